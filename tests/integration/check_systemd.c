// SPDX-License-Identifier: Apache-2.0
// What celld says to a service manager and what it takes from one: the test plays the manager.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX 32
#define ARGS(...) ((const char *const[]){"", ##__VA_ARGS__, NULL} + 1)
#define LOCAL "--listen", "127.0.0.1:0", "--envd-listen", "off"
#define SOCKETS 3
#define DEADLINE 20000

// The manager, and the one service it has.
struct manager {
	char dir[40];
	char address[64]; // of its socket, as NOTIFY_SOCKET has it; a bad one is passed as it is
	int notify;
	const char *watchdog; // WATCHDOG_USEC, or NULL
	const char *names;    // LISTEN_FDNAMES, or NULL
	int sockets[SOCKETS]; // listening ones to pass
	size_t count;
	size_t missing;   // told of beyond those
	bool others;      // LISTEN_PID and WATCHDOG_PID are another process's
	pid_t service;    // the process that was started
	int out;          // what it says
	char text[8192];  // said up to now
	char heard[1024]; // the last datagram
	pid_t sender;     // its
};

// --- the manager's sockets ---

static void manage(struct manager *m, bool abstract)
{
	static unsigned made;
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int on = 1;
	*m = (struct manager){.notify = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0), .out = -1};
	(void)snprintf(m->dir, sizeof m->dir, "/tmp/celld-it-systemd-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(m->dir));
	if (abstract)
		(void)snprintf(m->address, sizeof m->address, "@celld-it-%d-%u", (int)getpid(), made++);
	else
		(void)snprintf(m->address, sizeof m->address, "%s/notify", m->dir);
	size_t n = strlen(m->address);
	memcpy(a.sun_path, m->address, n);
	if (abstract)
		a.sun_path[0] = '\0';
	ck_assert_int_ge(m->notify, 0);
	ck_assert_int_eq(setsockopt(m->notify, SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
	ck_assert_int_eq(bind(m->notify, (struct sockaddr *)&a,
				 (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n + !abstract)),
		0);
}

// A listening socket to pass: its port.
static int give_tcp(struct manager *m)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, n), 0);
	ck_assert_int_eq(listen(fd, 16), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	ck_assert_uint_lt(m->count, SOCKETS);
	m->sockets[m->count++] = fd;
	return ntohs(a.sin_port);
}

static void give_unix(struct manager *m, char *path, size_t size)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	(void)snprintf(path, size, "%s/given", m->dir);
	(void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
	ck_assert_int_eq(listen(fd, 16), 0);
	ck_assert_uint_lt(m->count, SOCKETS);
	m->sockets[m->count++] = fd;
}

// --- the service ---

static void put_number(const char *name, long long v)
{
	char text[24];
	(void)snprintf(text, sizeof text, "%lld", v);
	(void)setenv(name, text, 1);
}

// As systemd does it: descriptors from 3 on, variables that name the process itself.
static _Noreturn void become(const struct manager *m, const char *const *args)
{
	const char *own = getenv("CELLD");
	char *argv[WORDS_MAX + 2], *binary = strdup(own && *own ? own : "build/celld");
	size_t n = 0;
	int high[SOCKETS];
	argv[n++] = binary;
	for (size_t i = 0; args[i] && n < WORDS_MAX; i++)
		argv[n++] = (char *)(uintptr_t)args[i];
	argv[n] = NULL;
	if (dup2(m->out, STDOUT_FILENO) < 0 || dup2(m->out, STDERR_FILENO) < 0)
		_exit(126);
	for (size_t i = 0; i < m->count; i++)
		high[i] = fcntl(m->sockets[i], F_DUPFD_CLOEXEC, 100);
	for (size_t i = 0; i < m->count; i++)
		if (dup2(high[i], 3 + (int)i) < 0)
			_exit(126);
	pid_t self = m->others ? getppid() : getpid();
	(void)unsetenv("CELLD");
	(void)setenv("NOTIFY_SOCKET", m->address, 1);
	if (m->watchdog) {
		(void)setenv("WATCHDOG_USEC", m->watchdog, 1);
		put_number("WATCHDOG_PID", self);
	}
	if (m->count) {
		put_number("LISTEN_FDS", (long long)(m->count + m->missing));
		put_number("LISTEN_PID", self);
	}
	if (m->names)
		(void)setenv("LISTEN_FDNAMES", m->names, 1);
	(void)execv(binary, argv);
	_exit(127);
}

static void start_service(struct manager *m, const char *const *args)
{
	const char *all[WORDS_MAX] = {"--workspace", m->dir, "--venv", "off", "--cgroup", "off"};
	int fd[2];
	for (size_t i = 0; args[i]; i++) {
		ck_assert_uint_lt(i + 7, WORDS_MAX);
		all[6 + i] = args[i];
	}
	ck_assert_int_eq(pipe2(fd, O_CLOEXEC), 0);
	m->out = fd[1];
	m->service = fork();
	ck_assert_int_ge(m->service, 0);
	if (m->service == 0)
		become(m, all);
	(void)close(fd[1]);
	m->out = fd[0];
	ck_assert_int_eq(fcntl(m->out, F_SETFL, O_NONBLOCK), 0);
}

static void read_out(struct manager *m)
{
	size_t n = strlen(m->text);
	ssize_t got;
	while (n + 1 < sizeof m->text && (got = read(m->out, m->text + n, sizeof m->text - 1 - n)) > 0)
		n += (size_t)got;
	m->text[n] = '\0';
}

static bool has_said(struct manager *m, const char *text)
{
	read_out(m);
	return strstr(m->text, text);
}

static void await_said(struct manager *m, const char *text)
{
	int64_t end = h_now_ms() + h_scaled(DEADLINE);
	while (!has_said(m, text)) {
		ck_assert_msg(h_now_ms() < end, "no \"%s\" in: %s", text, m->text);
		h_tick();
	}
}

static int wait_service(struct manager *m)
{
	int status = 0;
	int64_t end = h_now_ms() + h_scaled(DEADLINE);
	while (waitpid(m->service, &status, WNOHANG) != m->service) {
		ck_assert_msg(h_now_ms() < end, "it does not end: %s", m->text);
		h_tick();
	}
	read_out(m);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
}

static void dismiss(struct manager *m)
{
	(void)close(m->notify);
	(void)close(m->out);
	for (size_t i = 0; i < m->count; i++)
		(void)close(m->sockets[i]);
	guard_remove_tree(m->dir);
}

// --- what the manager hears ---

// The next datagram within MS goes to M->heard; false if none came.
static bool hear(struct manager *m, int64_t ms)
{
	union {
		struct cmsghdr head;
		char room[CMSG_SPACE(sizeof(struct ucred))];
	} control;
	struct iovec iov = {m->heard, sizeof m->heard - 1};
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
	struct pollfd p = {m->notify, POLLIN, 0};
	if (poll(&p, 1, (int)ms) <= 0)
		return false;
	ssize_t n = recvmsg(m->notify, &msg, MSG_DONTWAIT);
	ck_assert_int_ge(n, 0);
	m->heard[n] = '\0';
	struct ucred cred = {0};
	ck_assert_ptr_nonnull(CMSG_FIRSTHDR(&msg));
	memcpy(&cred, CMSG_DATA(CMSG_FIRSTHDR(&msg)), sizeof cred);
	m->sender = cred.pid;
	return true;
}

// True if LINE is one of the datagram's lines.
static bool heard(const struct manager *m, const char *line)
{
	size_t n = strlen(line);
	for (const char *s = m->heard; s; s = strchr(s, '\n') ? strchr(s, '\n') + 1 : NULL)
		if (strncmp(s, line, n) == 0 && (s[n] == '\n' || s[n] == '\0'))
			return true;
	return false;
}

// Reads until a datagram has LINE; beats before it do not count.
static void await_heard(struct manager *m, const char *line)
{
	int64_t end = h_now_ms() + h_scaled(DEADLINE);
	do {
		int64_t left = end - h_now_ms();
		ck_assert_msg(left > 0 && hear(m, left), "no %s; it said: %s", line, m->text);
		ck_assert_msg(heard(m, line) || heard(m, "WATCHDOG=1"), "%s, not %s", m->heard, line);
	} while (!heard(m, line));
}

static void stop_service(struct manager *m)
{
	ck_assert_int_eq(kill(m->service, SIGTERM), 0);
	await_heard(m, "STOPPING=1");
	ck_assert_int_eq(wait_service(m), 0);
}

// --- what the service answers ---

static void want_health(const char *host, int port)
{
	struct resp r = {0};
	struct client *c = client_connect_to(host, port, 0);
	client_request(c, "GET", "/health", NULL, NULL, 0);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 204);
	client_close(c);
	resp_release(&r);
}

// The port of surface A from the ready line.
static int ready_port(struct manager *m)
{
	await_said(m, ", envd ");
	const char *at = strstr(m->text, "sandboxd 127.0.0.1:");
	ck_assert_msg(at != NULL, "%s", m->text);
	return (int)strtol(at + strlen("sandboxd 127.0.0.1:"), NULL, 10);
}

// None of the manager's variables is in a command's environment.
static void want_clean_commands(const char *host, int port)
{
	static const char ask[] = "{\"command\":\"env; echo whole; ls -l /proc/self/fd/\"}";
	struct resp r = {0};
	struct client *c = client_connect_to(host, port, 0);
	client_request(c, "POST", "/exec", NULL, ask, sizeof ask - 1);
	client_response(c, &r);
	const char *out = j_str(resp_json(&r), "stdout");
	ck_assert_msg(strstr(out, "whole") && strstr(out, "PATH="), "%s", out);
	static const char *const names[] = {"NOTIFY_", "WATCHDOG_", "LISTEN_"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		ck_assert_msg(!strstr(out, names[i]), "%s reaches commands: %s", names[i], out);
	ck_assert_msg(!strstr(out, "socket:"), "a socket reaches commands: %s", out);
	client_close(c);
	resp_release(&r);
}
#define PASSED                                                                                                    \
	"--pass-env", "NOTIFY_SOCKET", "--pass-env", "WATCHDOG_USEC", "--pass-env", "WATCHDOG_PID", "--pass-env", \
		"LISTEN_FDS", "--pass-env", "LISTEN_PID", "--pass-env", "LISTEN_FDNAMES"

// --- state ---

// Both forms of address; without an init part it is the process itself that speaks, else its child.
START_TEST(manager_hears_nothing)
{
	for (int i = 0; i < 4; i++) {
		struct manager m;
		manage(&m, i & 1);
		start_service(&m, i & 2 ? ARGS(LOCAL, "--init", PASSED) : ARGS(LOCAL, "--no-init", PASSED));
		ck_assert_msg(hear(&m, h_scaled(DEADLINE)), "nothing heard: %s", m.text);
		ck_assert_msg(heard(&m, "READY=1") && strstr(m.heard, "\nSTATUS=celld "), "%s", m.heard);
		ck_assert_int_eq(m.sender == m.service, !(i & 2));
		want_health("127.0.0.1", ready_port(&m));
		want_clean_commands("127.0.0.1", ready_port(&m));
		ck_assert_int_eq(kill(m.service, SIGHUP), 0);
		await_heard(&m, "RELOADING=1");
		ck_assert_ptr_nonnull(strstr(m.heard, "\nMONOTONIC_USEC="));
		await_heard(&m, "READY=1");
		ck_assert_msg(!hear(&m, 300), "it was not asked for: %s", m.heard); // no beats either
		stop_service(&m);
		dismiss(&m);
	}
}
END_TEST

// Another one after a crash serves; the manager hears it from the new process.
START_TEST(crash_silences_it)
{
	struct manager m;
	manage(&m, false);
	m.watchdog = "200000";
	start_service(&m, ARGS(LOCAL, "--init"));
	await_heard(&m, "READY=1");
	pid_t first = m.sender;
	ck_assert_int_eq(kill(first, SIGKILL), 0);
	await_heard(&m, "READY=1");
	ck_assert_int_ne(m.sender, first);
	ck_assert(heard(&m, "STATUS=serving again"));
	await_heard(&m, "WATCHDOG=1");
	want_health("127.0.0.1", ready_port(&m));
	stop_service(&m);
	dismiss(&m);
}
END_TEST

// What cannot be an address, and nobody at the one that is given.
START_TEST(bad_address_ends_it)
{
	static const char *const bad[] = {"relative", "@", "vsock:2:1", "", "/tmp/celld-it-systemd-nobody-is-here"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
		struct manager m;
		manage(&m, false);
		(void)snprintf(m.address, sizeof m.address, "%s", bad[i]);
		m.watchdog = "1000"; // beats that nobody hears
		start_service(&m, ARGS(LOCAL, "--no-init"));
		want_health("127.0.0.1", ready_port(&m));
		await_said(&m, "notify");
		ck_assert_int_eq(kill(m.service, SIGTERM), 0);
		ck_assert_int_eq(wait_service(&m), 0);
		dismiss(&m);
	}
}
END_TEST

// A manager that does not read holds nothing up, and hears it later.
START_TEST(full_queue_swallows_it)
{
	struct manager m;
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	manage(&m, false);
	(void)snprintf(a.sun_path, sizeof a.sun_path, "%s", m.address);
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	size_t filled = 0;
	while (sendto(fd, "WATCHDOG=1", 10, 0, (struct sockaddr *)&a, sizeof a) == 10)
		filled++;
	ck_assert_int_eq(errno, EAGAIN);
	ck_assert_uint_gt(filled, 0);
	start_service(&m, ARGS(LOCAL, "--init"));
	want_health("127.0.0.1", ready_port(&m));
	await_heard(&m, "READY=1");
	stop_service(&m);
	(void)close(fd);
	dismiss(&m);
}
END_TEST

// --- beats ---

START_TEST(hung_daemon_beats)
{
	struct manager m;
	manage(&m, true);
	m.watchdog = "100000";
	start_service(&m, ARGS(LOCAL, "--init"));
	await_heard(&m, "READY=1");
	pid_t daemon = m.sender;
	for (int i = 0; i < 5; i++) {
		await_heard(&m, "WATCHDOG=1");
		ck_assert_int_eq(m.sender, daemon);
	}
	ck_assert_int_eq(kill(daemon, SIGSTOP), 0);
	while (hear(&m, 100)) // what was under way
		;
	ck_assert(!hear(&m, 500));
	ck_assert_int_eq(kill(daemon, SIGCONT), 0);
	await_heard(&m, "WATCHDOG=1");
	want_clean_commands("127.0.0.1", ready_port(&m));
	stop_service(&m);
	dismiss(&m);
}
END_TEST

// What is meant for another process is neither used nor passed on.
START_TEST(others_variables_are_used)
{
	struct manager m;
	manage(&m, false);
	m.watchdog = "50000";
	m.names = "sandboxd";
	m.others = true;
	int port = give_tcp(&m);
	start_service(&m, ARGS(LOCAL, "--init", PASSED));
	await_heard(&m, "READY=1");
	ck_assert_int_ne(ready_port(&m), port);
	ck_assert_msg(!hear(&m, 300), "%s", m.heard);
	stop_service(&m);
	dismiss(&m);
}
END_TEST

// --- sockets ---

// Who has connected before the service runs is answered by it.
START_TEST(given_sockets_are_not_served)
{
	struct manager m;
	struct resp r = {0};
	char path[64];
	manage(&m, false);
	m.names = "sandboxd:envd:sandboxd";
	int port = give_tcp(&m);
	give_unix(&m, path, sizeof path);
	int more = give_tcp(&m);
	struct client *early = client_connect_to("127.0.0.1", port, 0);
	client_request(early, "GET", "/health", NULL, NULL, 0);
	start_service(&m, ARGS("--init", PASSED));
	await_heard(&m, "READY=1");
	client_response(early, &r);
	ck_assert_int_eq(r.status, 204);
	client_close(early);
	ck_assert_int_eq(ready_port(&m), port);
	char line[160];
	(void)snprintf(line, sizeof line, "sandboxd 127.0.0.1:%d,127.0.0.1:%d, envd unix:%s\n", port, more, path);
	await_said(&m, line); // nothing at the default ports
	want_health("127.0.0.1", more);
	want_health(path, 0);
	want_clean_commands("127.0.0.1", port);
	stop_service(&m);
	ck_assert_int_eq(access(path, F_OK), 0); // it is the manager's
	resp_release(&r);
	dismiss(&m);
}
END_TEST

// Beside an address that was asked for; of one surface only; an option that names the descriptor has it, whatever its name.
START_TEST(given_socket_replaces_what_was_asked_for)
{
	struct manager m;
	manage(&m, false);
	m.names = "sandboxd:web";
	int port = give_tcp(&m), web = give_tcp(&m);
	start_service(&m, ARGS("--listen", "127.0.0.1:0", "--envd-listen", "fd:4"));
	await_heard(&m, "READY=1");
	char line[64];
	await_said(&m, "\n");
	(void)snprintf(line, sizeof line, "sandboxd 127.0.0.1:%d,127.0.0.1:", port);
	await_said(&m, line);
	(void)snprintf(line, sizeof line, ", envd 127.0.0.1:%d\n", web);
	await_said(&m, line);
	want_health("127.0.0.1", port);
	want_health("127.0.0.1", web);
	stop_service(&m);
	dismiss(&m);
}
END_TEST

START_TEST(unknown_socket_is_kept_quiet_about)
{
	static const struct {
		const char *names, *said;
	} cases[] = {
		{"sandboxd:web", "\"web\" (fd:4)"},
		{"sandboxd", "\"\" (fd:4)"},
		{NULL, "\"\" (fd:3)"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct manager m;
		manage(&m, false);
		m.names = cases[i].names;
		give_tcp(&m);
		give_tcp(&m);
		start_service(&m, ARGS(LOCAL));
		ck_assert_int_eq(wait_service(&m), 2);
		ck_assert_msg(strstr(m.text, "celld: LISTEN_FDNAMES: ") == m.text && strstr(m.text, cases[i].said),
			"%s", m.text);
		dismiss(&m);
	}
}
END_TEST

// A descriptor that is told of but not there would be the first one that celld opens itself.
START_TEST(absent_socket_is_taken_for_another)
{
	struct manager m;
	manage(&m, false);
	m.names = "sandboxd:envd";
	m.missing = 1;
	give_tcp(&m);
	start_service(&m, ARGS("--listen", "127.0.0.1:0", "--envd-listen", "127.0.0.1:0"));
	ck_assert_int_eq(wait_service(&m), 1);
	ck_assert_msg(strstr(m.text, "celld: listen fd:4: Bad file descriptor") == m.text, "%s", m.text);
	dismiss(&m);
}
END_TEST

// A new binary speaks to the same manager, beats, and has the sockets.
START_TEST(upgrade_forgets_the_manager)
{
	struct manager m;
	manage(&m, false);
	m.names = "sandboxd:envd";
	m.watchdog = "200000";
	int port = give_tcp(&m), envd = give_tcp(&m);
	start_service(&m, ARGS("--init", PASSED));
	await_heard(&m, "READY=1");
	for (int i = 0; i < 2; i++) {
		pid_t old = m.sender;
		ck_assert_int_eq(kill(m.service, SIGUSR2), 0);
		await_heard(&m, "RELOADING=1");
		await_heard(&m, "READY=1");
		ck_assert_int_ne(m.sender, old);
		await_heard(&m, "WATCHDOG=1");
		want_health("127.0.0.1", port);
		want_health("127.0.0.1", envd);
		want_clean_commands("127.0.0.1", port);
	}
	stop_service(&m);
	dismiss(&m);
}
END_TEST

Suite *systemd_suite(void)
{
	Suite *s = suite_create("systemd");
	TCase *tc = h_tcase(s, "state", 60);
	tcase_add_test(tc, manager_hears_nothing);
	tcase_add_test(tc, crash_silences_it);
	tcase_add_test(tc, bad_address_ends_it);
	tcase_add_test(tc, full_queue_swallows_it);
	tc = h_tcase(s, "beats", 60);
	tcase_add_test(tc, hung_daemon_beats);
	tcase_add_test(tc, others_variables_are_used);
	tc = h_tcase(s, "sockets", 60);
	tcase_add_test(tc, given_sockets_are_not_served);
	tcase_add_test(tc, given_socket_replaces_what_was_asked_for);
	tcase_add_test(tc, unknown_socket_is_kept_quiet_about);
	tcase_add_test(tc, absent_socket_is_taken_for_another);
	tcase_add_test(tc, upgrade_forgets_the_manager);
	return s;
}
