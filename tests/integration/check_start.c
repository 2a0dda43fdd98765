// SPDX-License-Identifier: Apache-2.0
// How celld starts, and how it says that it cannot: one clear line, and a status that tells a bad option (2) from the rest (1).
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define ARGS_MAX 24
#define FREE "127.0.0.1:0"

// A run of the binary that is expected to end by itself.
struct outcome {
	int status; // exit status, -1 - N for signal N
	char text[32 * 1024];
};

static _Noreturn void exec_celld(const char *const *args, const char *env, int out)
{
	char *argv[ARGS_MAX + 2];
	const char *name = getenv("CELLD");
	size_t n = 0;
	argv[n++] = (char *)(uintptr_t)(name && *name ? name : "build/celld");
	for (size_t i = 0; args[i] && i < ARGS_MAX; i++)
		argv[n++] = (char *)(uintptr_t)args[i];
	argv[n] = NULL;
	char *binary = strdup(argv[0]);
	(void)unsetenv("CELLD");
	if (env)
		(void)putenv((char *)(uintptr_t)env);
	if (dup2(out, STDOUT_FILENO) < 0 || dup2(out, STDERR_FILENO) < 0)
		_exit(126);
	(void)execv(binary, argv);
	_exit(127);
}

static pid_t spawn(const char *const *args, const char *env, int *out)
{
	int fd[2];
	ck_assert_int_eq(pipe2(fd, O_CLOEXEC), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0)
		exec_celld(args, env, fd[1]);
	(void)close(fd[1]);
	*out = fd[0];
	return pid;
}

// Reads FD to its end, or until TEXT holds UNTIL.
static bool read_text(int fd, char *text, size_t size, const char *until)
{
	int64_t end = h_now_ms() + h_scaled(10000);
	size_t n = strlen(text);
	while (!until || !strstr(text, until)) {
		struct pollfd p = {fd, POLLIN, 0};
		int64_t left = end - h_now_ms();
		if (n + 1 == size || left <= 0 || poll(&p, 1, (int)left) == 0)
			return false;
		ssize_t got = read(fd, text + n, size - n - 1);
		if (got <= 0)
			return !until;
		n += (size_t)got;
		text[n] = '\0';
	}
	return true;
}

static int wait_exit(pid_t pid)
{
	int status = 0;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
}

static void run_celld(const char *const *args, const char *env, struct outcome *o)
{
	int out;
	pid_t pid = spawn(args, env, &out);
	o->text[0] = '\0';
	bool ended = read_text(out, o->text, sizeof o->text, NULL);
	if (!ended)
		(void)kill(pid, SIGKILL);
	(void)close(out);
	o->status = wait_exit(pid);
	ck_assert_msg(ended, "it did not end; it said: %s", o->text);
}

// Ends with STATUS and one line that holds both A and B.
static void want_refusal(const char *const *args, const char *env, int status, const char *a, const char *b)
{
	struct outcome o;
	run_celld(args, env, &o);
	ck_assert_msg(o.status == status, "status %d, want %d: %s", o.status, status, o.text);
	ck_assert_msg(strncmp(o.text, "celld: ", 7) == 0, "it said: %s", o.text);
	const char *newline = strchr(o.text, '\n');
	ck_assert_msg(newline && newline[1] == '\0', "not one line: %s", o.text);
	ck_assert_msg(strstr(o.text, a) && strstr(o.text, b), "neither %s nor %s, or not both: %s", a, b, o.text);
}
#define ARGS(...) ((const char *const[]){__VA_ARGS__, NULL})

// A listening socket of the test's own, and its address.
static int occupy(char *name, size_t n)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, len), 0);
	ck_assert_int_eq(listen(fd, 5), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	(void)snprintf(name, n, "127.0.0.1:%d", ntohs(a.sin_port));
	return fd;
}

START_TEST(taken_port_is_not_told)
{
	char dir[] = "/tmp/celld-it-start-XXXXXX", taken[64];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	int fd = occupy(taken, sizeof taken);
	static const char why[] = "Address already in use";
	want_refusal(ARGS("--workspace", dir, "--envd-listen", "off", "--listen", taken), NULL, 1, taken, why);
	want_refusal(ARGS("--workspace", dir, "--envd-listen", taken, "--listen", FREE), NULL, 1, taken, why);
	want_refusal(ARGS("--workspace", dir, "--envd-listen", "off", "--listen", FREE, "--listen", taken, "--init"),
		NULL, 1, taken, why);
	want_refusal(ARGS("--workspace", dir, "--envd-listen", "off", "--listen", "192.0.2.1:0"), NULL, 1,
		"192.0.2.1:0", "Cannot assign requested address");
	// Of the right form, but no address.
	want_refusal(ARGS("--workspace", dir, "--listen", "300.0.0.1:80"), NULL, 1, "300.0.0.1:80", "Invalid argument");
	(void)close(fd);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(impossible_workspace_is_taken)
{
	static char longname[5000];
	char file[] = "/tmp/celld-it-start-XXXXXX", below[64];
	int fd = mkstemp(file);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	(void)snprintf(below, sizeof below, "%s/below/this", file);
	want_refusal(ARGS("--listen", FREE, "--workspace", file), NULL, 1, file, "Not a directory");
	want_refusal(ARGS("--listen", FREE, "--workspace", below), NULL, 1, below, "Not a directory");
	want_refusal(ARGS("--listen", FREE, "--workspace", "/proc/no/such"), NULL, 1, "/proc/no/such", "No such file");
	memset(longname, 'n', sizeof longname - 1);
	longname[0] = '/';
	struct outcome o;
	run_celld(ARGS("--listen", FREE, "--workspace", longname), NULL, &o);
	ck_assert_int_eq(o.status, 1);
	ck_assert_ptr_nonnull(strstr(o.text, "...: File name too long"));
	(void)unlink(file);
}
END_TEST

START_TEST(unknown_user_is_taken)
{
	static const char *const names[] = {"no-such-user", "root:root", "-1", "4294967296x"};
	for (size_t i = 0; i < COUNT(names); i++)
		want_refusal(
			ARGS("--listen", FREE, "--workspace", "/tmp", "--user", names[i]), NULL, 1, "user", names[i]);
	want_refusal(ARGS("--listen", FREE, "--workspace", "/tmp", "--token-file", "/no/such/file"), NULL, 1,
		"--token-file", "No such file");
}
END_TEST

// The same, started by what COMMAND makes of it.
static void want_refusal_by(const char *command, const char *const *args, const char *a, const char *b)
{
	const char *name = getenv("CELLD");
	char *binary = realpath(name && *name ? name : "build/celld", NULL), script[] = "/tmp/celld-it-start-XXXXXX";
	int fd = mkstemp(script);
	FILE *f = fdopen(fd, "w");
	ck_assert(binary && f);
	(void)fprintf(f, "#!/bin/sh\nexec %s %s \"$@\"\n", command, binary);
	ck_assert_int_eq(fchmod(fd, 0755), 0);
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_int_eq(setenv("CELLD", script, 1), 0);
	want_refusal(args, NULL, 1, a, b);
	ck_assert_int_eq(setenv("CELLD", binary, 1), 0);
	(void)unlink(script);
	free(binary);
}

// It would say that it is ready, and then start nothing, or never end what it has started.
START_TEST(user_is_beyond_its_rights)
{
	static const char *const names[] = {"setuid", "setgid", "kill"};
	char command[64];
	for (size_t i = 0; geteuid() == 0 && i < COUNT(names); i++) {
		(void)snprintf(command, sizeof command, "setpriv --bounding-set=-%s", names[i]);
		want_refusal_by(command,
			ARGS("--listen", FREE, "--envd-listen", "off", "--workspace", "/tmp", "--user", "nobody"),
			"user nobody: celld has not the capability", names[i]);
	}
}
END_TEST

// Listening, and nobody there who answers.
START_TEST(daemon_that_cannot_be_forked_is_waited_for)
{
	if (geteuid() != 0)
		return;
	// A leak checker could not be forked either.
	want_refusal_by("env ASAN_OPTIONS=detect_leaks=0 setpriv --reuid 64321 --regid 64321 --clear-groups prlimit "
			"--nproc=1:1",
		ARGS("--listen", FREE, "--envd-listen", "off", "--workspace", "/tmp", "--cgroup", "off", "--init"),
		"fork", "Resource temporarily unavailable");
}
END_TEST

// It could not even say that it has none left.
START_TEST(lack_of_descriptors_is_a_hang)
{
	want_refusal_by("prlimit --nofile=15:15", ARGS("--listen", FREE, "--envd-listen", "off", "--workspace", "/tmp"),
		"15", "open files");
	want_refusal_by("prlimit --nofile=12:12",
		ARGS("--listen", FREE, "--envd-listen", "off", "--workspace", "/tmp", "--init"), "12", "open files");
}
END_TEST

// A bare root, as of a virtual machine whose /dev nobody has mounted.
START_TEST(empty_dev_is_silent)
{
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("tmpfs", "/dev", "tmpfs", 0, "size=1m"), 0);
	want_refusal(ARGS("--listen", FREE, "--workspace", "/tmp"), NULL, 1, "/dev/null", "No such file");
}
END_TEST

START_TEST(bad_option_is_not_named)
{
	static const struct {
		const char *option, *value; // VALUE NULL: none
		const char *named;          // NULL: the option
	} cases[] = {
		{"--nope", NULL, NULL},
		{"--nope=1", NULL, "--nope"},
		{"-x", NULL, NULL},
		{"argument", NULL, NULL},
		{"--", "argument", "argument"},
		{"--max-body", NULL, NULL},
		{"--init=1", NULL, "--init"},
		{"--max-body", "1X", NULL},
		{"--max-body", "", NULL},
		{"--max-body", "-1", NULL},
		{"--max-body", "1", NULL},
		{"--max-conns", "0", NULL},
		{"--max-conns", "1.5", NULL},
		{"--max-conns", "99999999999999999999", NULL},
		{"--timeout", "-1", NULL},
		{"--timeout", "nan", NULL},
		{"--timeout", "inf", NULL},
		{"--timeout", "1s", NULL},
		{"--listen", "localhost", NULL},
		{"--listen", "", NULL},
		{"--listen", "127.0.0.1", NULL},
		{"--listen", "127.0.0.1:65536", NULL},
		{"--listen", "127.0.0.1:-1", NULL},
		{"--listen", "127.0.0.1:x", NULL},
		{"--listen", "[::1:80", NULL},
		{"--listen", "fd:", NULL},
		{"--listen", "fd:-1", NULL},
		{"--listen", "unix:", NULL},
		{"--envd-listen", "2024", NULL},
		{"--workspace", "relative", NULL},
		{"--workspace", "", NULL},
		{"--user", "", NULL},
		{"--venv", "on", NULL},
		{"--log-level", "loud", NULL},
		{"--log-format", "xml", NULL},
		{"--pass-env", "A=B", NULL},
		{"--pass-env", "", NULL},
		{"--header-timeout", "0", NULL},
	};
	for (size_t i = 0; i < COUNT(cases); i++)
		want_refusal(ARGS(cases[i].option, cases[i].value), NULL, 2,
			cases[i].named ? cases[i].named : cases[i].option, cases[i].value ? cases[i].value : "");
	want_refusal(ARGS("--max-body", "1M", "--nope"), NULL, 2, "--nope", "unknown");
	want_refusal(ARGS("--listen", FREE), "CELLD_TIMEOUT=soon", 2, "CELLD_TIMEOUT", "soon");
	want_refusal(ARGS("--listen", FREE), "CELLD_ENVD_LISTEN=x", 2, "CELLD_ENVD_LISTEN", "\"x\"");
}
END_TEST

// A token that is refused is not shown, and not with another's help.
START_TEST(bad_token_is_printed)
{
	static const char *const tokens[] = {"", " hidden", "hidden ", "hid\nden", "\001hidden"};
	for (size_t i = 0; i < COUNT(tokens); i++) {
		struct outcome o;
		run_celld(ARGS("--listen", FREE, "--workspace", "/tmp", "--token", tokens[i]), NULL, &o);
		ck_assert_msg(o.status == 2 && strstr(o.text, "--token") && !strstr(o.text, "hid"), "%d %s", o.status,
			o.text);
	}
	want_refusal(ARGS("--token", "hidden", "--token-file", "/dev/null"), NULL, 2, "--token-file", "--token:");
	want_refusal(ARGS("--token-file", "/dev/null", "--listen", FREE), NULL, 1, "--token-file", "/dev/null");
}
END_TEST

START_TEST(help_is_an_error)
{
	static const char *const options[] = {"--listen", "--envd-listen", "--workspace", "--user", "--init",
		"--no-init", "--token", "--token-file", "--timeout", "--grace", "--max-body", "--max-header",
		"--max-conns", "--version", "CELLD_LISTEN", "CELLD_MAX_BODY", "CELLD_TOKEN"};
	struct outcome o;
	run_celld(ARGS("--help"), NULL, &o);
	ck_assert_int_eq(o.status, 0);
	for (size_t i = 0; i < COUNT(options); i++)
		ck_assert_msg(strstr(o.text, options[i]), "no %s in the help", options[i]);
	run_celld(ARGS("--version"), NULL, &o);
	ck_assert_int_eq(o.status, 0);
	int major = -1, minor = -1, end = 0;
	ck_assert_int_eq(sscanf(o.text, "celld %d.%d.%*d%n", &major, &minor, &end), 2);
	ck_assert_str_eq(o.text + end, "\n");
	run_celld(ARGS("--max-body", "1M", "--help", "--nope"), NULL, &o);
	ck_assert_int_eq(o.status, 0);
}
END_TEST

// --- what it listens on ---

// GET /health over the socket FD, which is closed.
static void want_health_fd(int fd)
{
	static const char ask[] = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
	char text[512] = "";
	ck_assert_int_eq(send(fd, ask, sizeof ask - 1, MSG_NOSIGNAL), sizeof ask - 1);
	ck_assert_msg(read_text(fd, text, sizeof text, NULL), "no end of the answer: %s", text);
	ck_assert_msg(strncmp(text, "HTTP/1.1 204 ", 13) == 0, "it said: %s", text);
	(void)close(fd);
}

static int dial(const struct sockaddr *a, socklen_t n)
{
	int fd = socket(a->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_msg(connect(fd, a, n) == 0, "connect: %s", strerror(errno));
	return fd;
}

static int dial4(int port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	return dial((struct sockaddr *)&a, sizeof a);
}

static int dial_unix(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	(void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	return dial((struct sockaddr *)&a, sizeof a);
}

// Starts celld in DIR with further ARGS, waits for the ready line (into TEXT).
static pid_t serve(const char *dir, const char *const *args, char *text, size_t n, int *out)
{
	const char *all[ARGS_MAX] = {"--workspace", dir, "--envd-listen", "off", "--venv", "off", NULL};
	for (size_t i = 0; args[i]; i++)
		all[6 + i] = args[i];
	pid_t pid = spawn(all, NULL, out);
	text[0] = '\0';
	bool ready = read_text(*out, text, n, ", envd off\n");
	if (!ready)
		(void)kill(pid, SIGKILL);
	ck_assert_msg(ready, "no ready line: %s", text);
	return pid;
}

static void end_serving(pid_t pid, int out)
{
	ck_assert_int_eq(kill(pid, SIGTERM), 0);
	ck_assert_int_eq(wait_exit(pid), 0);
	(void)close(out);
}

START_TEST(given_socket_is_not_served)
{
	char dir[] = "/tmp/celld-it-start-XXXXXX", name[64], text[2048], spec[16];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	int fd = occupy(name, sizeof name), out;
	ck_assert_int_eq(fcntl(fd, F_SETFD, 0), 0);
	(void)snprintf(spec, sizeof spec, "fd:%d", fd);
	pid_t pid = serve(dir, ARGS("--listen", spec), text, sizeof text, &out);
	ck_assert_msg(strstr(text, name), "no %s in %s", name, text);
	want_health_fd(dial4((int)strtol(strchr(name, ':') + 1, NULL, 10)));
	end_serving(pid, out);
	(void)close(fd);
	want_refusal(ARGS("--workspace", dir, "--listen", "fd:777"), NULL, 1, "fd:777", "Bad file descriptor");
	want_refusal(ARGS("--workspace", dir, "--listen", "fd:1"), NULL, 1, "fd:1", "non-socket");
	int unbound = socket(AF_INET, SOCK_STREAM, 0);
	(void)snprintf(spec, sizeof spec, "fd:%d", unbound);
	want_refusal(ARGS("--workspace", dir, "--listen", spec), NULL, 1, spec, "Invalid argument");
	(void)close(unbound);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(unix_socket_is_not_served)
{
	char dir[] = "/tmp/celld-it-start-XXXXXX", path[64], spec[80], text[2048];
	struct stat st;
	int out;
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(path, sizeof path, "%s/socket", dir);
	(void)snprintf(spec, sizeof spec, "unix:%s", path);
	for (int i = 0; i < 2; i++) { // the second time there is the first one's socket
		pid_t pid = serve(dir, ARGS("--listen", spec), text, sizeof text, &out);
		ck_assert_msg(strstr(text, spec), "no %s in %s", spec, text);
		ck_assert_int_eq(stat(path, &st), 0);
		ck_assert_uint_eq(st.st_mode, S_IFSOCK | 0600);
		want_health_fd(dial_unix(path));
		want_refusal(ARGS("--workspace", dir, "--listen", spec), NULL, 1, spec, "Address already in use");
		want_health_fd(dial_unix(path));
		if (i == 0) {
			ck_assert_int_eq(kill(pid, SIGKILL), 0); // leaves its socket behind for sure
			ck_assert_int_eq(wait_exit(pid), -1 - SIGKILL);
			(void)close(out);
		} else {
			end_serving(pid, out);
		}
	}
	(void)unlink(path);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	ck_assert_int_eq(write(fd, "keep", 4), 4);
	(void)close(fd);
	want_refusal(ARGS("--workspace", dir, "--listen", spec), NULL, 1, spec, "File exists");
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_size, 4);
	(void)unlink(path);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

// The ports of the ready line's surface A, in order: their number.
static size_t ready_ports(const char *text, int *ports, size_t max)
{
	const char *p = strstr(text, "ready: sandboxd ");
	ck_assert_ptr_nonnull(p);
	p += strlen("ready: sandboxd ");
	const char *end = strstr(p, ", envd ");
	ck_assert_ptr_nonnull(end);
	size_t n = 0;
	while (p < end && n < max) {
		const char *next = memchr(p, ',', (size_t)(end - p));
		next = next ? next : end;
		const char *colon = memrchr(p, ':', (size_t)(next - p));
		ck_assert_ptr_nonnull(colon);
		ports[n++] = (int)strtol(colon + 1, NULL, 10);
		p = next + 1;
	}
	return n;
}

START_TEST(several_listeners_are_not_served)
{
	char dir[] = "/tmp/celld-it-start-XXXXXX", text[2048];
	int ports[8], out;
	ck_assert_ptr_nonnull(mkdtemp(dir));
	pid_t pid = serve(dir, ARGS("--listen", FREE, "--listen", FREE, "--listen", "[::]:0", "--listen", "[::1]:0"),
		text, sizeof text, &out);
	ck_assert_uint_eq(ready_ports(text, ports, COUNT(ports)), 4);
	for (int i = 0; i < 3; i++) { // the third takes IPv4 too
		ck_assert_int_gt(ports[i], 0);
		want_health_fd(dial4(ports[i]));
	}
	for (int i = 2; i < 4; i++) {
		struct sockaddr_in6 a = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)ports[i])};
		a.sin6_addr = in6addr_loopback;
		want_health_fd(dial((struct sockaddr *)&a, sizeof a));
	}
	end_serving(pid, out);
	// "off" takes away what stood before it.
	pid = serve(dir, ARGS("--listen", FREE, "--listen", "off", "--listen", FREE), text, sizeof text, &out);
	ck_assert_uint_eq(ready_ports(text, ports, COUNT(ports)), 1);
	end_serving(pid, out);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

START_TEST(ready_line_lies)
{
	struct testd *d = d_start("--envd-listen", FREE);
	struct resp r = {0};
	ck_assert_int_gt(d->port, 0);
	ck_assert_int_gt(d->envd_port, 0);
	ck_assert_int_ne(d->port, d->envd_port);
	req(d, "GET", "/health", NULL, &r);
	ck_assert_int_eq(r.status, 204);
	struct client *c = client_connect_to(d->envd_host, d->envd_port, 0);
	client_request(c, "GET", "/health", NULL, NULL, 0);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 204);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- variables, the workspace ---

START_TEST(variables_are_ignored)
{
	static const char *const env[] = {"CELLD_LISTEN=127.0.0.1:0,127.0.0.1:0", "CELLD_ENVD_LISTEN=off",
		"CELLD_VENV=off", "CELLD_TIMEOUT=0.3", "CELLD_MAX_BODY=2K", "CELLD_PASS_ENV=KEPT,ALSO", "KEPT=1",
		"ALSO=2", "NOT=3", "CELLD_WORKSPACE=/no/such/place/at/all", NULL};
	static const char *const args[] = {"--max-body", "4K", NULL};
	const struct d_opts opts = {.args = args, .env = env, .no_defaults = true};
	struct testd *d = d_start_opts(&opts);
	struct resp r = {0};
	struct buf b = {0};
	ck_assert_int_eq(d->envd_port, 0);
	const char *out = j_str(run(d, "env; pwd", &r), "stdout");
	ck_assert(strstr(out, "KEPT=1\n") && strstr(out, "ALSO=2\n") && !strstr(out, "NOT=3"));
	ck_assert(!strstr(out, "CELLD_") && strstr(out, d->workspace));
	ck_assert(j_bool(run(d, "sleep 20", &r), "timed_out"));
	buf_str(&b, "{\"command\":\"echo a\"}");
	h_repeat(&b, " ", 3000); // the option wins
	req(d, "POST", "/exec", buf_cstr(&b), &r);
	ck_assert_int_eq(r.status, 200);
	h_repeat(&b, " ", 2000);
	req(d, "POST", "/exec", buf_cstr(&b), &r);
	(void)assert_error(&r, 413, "resource_exhausted");
	buf_release(&b);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(workspace_is_not_made)
{
	char dir[] = "/tmp/celld-it-start-XXXXXX", deep[64], text[2048];
	struct stat st;
	int out;
	bool root = geteuid() == 0;
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chmod(dir, 0755), 0);
	(void)snprintf(deep, sizeof deep, "%s/a/b/c", dir);
	pid_t pid = serve(deep, root ? ARGS("--listen", FREE, "--user", "nobody") : ARGS("--listen", FREE), text,
		sizeof text, &out);
	ck_assert_int_eq(stat(deep, &st), 0);
	ck_assert_uint_eq(st.st_mode, S_IFDIR | 0755);
	ck_assert_uint_eq(st.st_uid, root ? 65534 : geteuid());
	end_serving(pid, out);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(rmdir(deep), 0);
		*strrchr(deep, '/') = '\0';
	}
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

Suite *start_suite(void)
{
	Suite *s = suite_create("start");
	TCase *tc = h_tcase(s, "refusals", 30);
	tcase_add_test(tc, taken_port_is_not_told);
	tcase_add_test(tc, impossible_workspace_is_taken);
	tcase_add_test(tc, unknown_user_is_taken);
	tcase_add_test(tc, user_is_beyond_its_rights);
	tcase_add_test(tc, daemon_that_cannot_be_forked_is_waited_for);
	tcase_add_test(tc, lack_of_descriptors_is_a_hang);
	tcase_add_test(tc, empty_dev_is_silent);
	tcase_add_test(tc, bad_option_is_not_named);
	tcase_add_test(tc, bad_token_is_printed);
	tcase_add_test(tc, help_is_an_error);
	tc = h_tcase(s, "listeners", 30);
	tcase_add_test(tc, given_socket_is_not_served);
	tcase_add_test(tc, unix_socket_is_not_served);
	tcase_add_test(tc, several_listeners_are_not_served);
	tcase_add_test(tc, ready_line_lies);
	tc = h_tcase(s, "settings", 30);
	tcase_add_test(tc, variables_are_ignored);
	tcase_add_test(tc, workspace_is_not_made);
	return s;
}
