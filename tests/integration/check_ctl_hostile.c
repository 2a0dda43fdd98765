// SPDX-License-Identifier: Apache-2.0
// celld ctl against what is no celld, or one that means ill: it ends, with a word, and hands nothing on to the terminal.
#include "tests/integration/ctlkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// --- the other side ---

struct fake {
	pid_t pid;
	char url[64];
};

typedef void serve_fn(int listener, const void *arg);

static int open_listener(char url[64])
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, n) | listen(fd, 16), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	(void)snprintf(url, 64, "http://127.0.0.1:%d", ntohs(a.sin_port));
	return fd;
}

// A process of its own that serves until fake_end.
static void fake_start(struct fake *f, serve_fn *serve, const void *arg)
{
	int fd = open_listener(f->url);
	pid_t parent = getpid();
	f->pid = fork();
	ck_assert_int_ge(f->pid, 0);
	if (f->pid == 0) {
		(void)signal(SIGPIPE, SIG_IGN);
		if (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent)
			serve(fd, arg);
		_exit(0);
	}
	(void)close(fd);
}

static void fake_end(const struct fake *f)
{
	ck_assert_int_eq(kill(f->pid, SIGKILL), 0);
	ck_assert_int_eq(waitpid(f->pid, NULL, 0), f->pid);
}

// The next connection, its request in TEXT as far as it comes at once.
static int next_request(int listener, char *text, size_t size)
{
	int fd = accept(listener, NULL, NULL);
	size_t n = 0;
	text[0] = '\0';
	while (n < size - 1 && !strstr(text, "\r\n\r\n")) {
		ssize_t got = recv(fd, text + n, size - 1 - n, 0);
		if (got <= 0)
			break;
		n += (size_t)got;
		text[n] = '\0';
	}
	return fd;
}

static bool say(int fd, const char *p, size_t n)
{
	while (n > 0) {
		ssize_t done = send(fd, p, n, MSG_NOSIGNAL);
		if (done < 0 && errno != EINTR)
			return false;
		p += done > 0 ? done : 0;
		n -= done > 0 ? (size_t)done : 0;
	}
	return true;
}

// Answers each request with the same bytes, and hangs up.
static void serve_always(int listener, const void *arg)
{
	char text[65536];
	for (;;) {
		int fd = next_request(listener, text, sizeof text);
		(void)say(fd, arg, strlen(arg));
		(void)shutdown(fd, SHUT_WR);
		while (recv(fd, text, sizeof text, 0) > 0)
			;
		(void)close(fd);
	}
}

// Answers each request with a head and then, without end, with the second line.
static void serve_endless(int listener, const void *arg)
{
	char text[65536], many[65536];
	const char *const *lines = arg;
	size_t n = 0, line = strlen(lines[1]);
	for (; n + line < sizeof many; n += line)
		memcpy(many + n, lines[1], line);
	for (;;) {
		int fd = next_request(listener, text, sizeof text);
		(void)say(fd, lines[0], strlen(lines[0]));
		while (say(fd, many, n))
			;
		(void)close(fd);
	}
}

// --- tests ---

#define OK "HTTP/1.1 200 OK\r\n\r\n"
#define PID "data: {\"pid\":7}\n\n"
#define ERROR(json) "HTTP/1.1 500 Internal Server Error\r\n\r\n" json

static const struct {
	const char *answer;
	const char *words[3];
	int status;
	const char *out; // all of it
	const char *err; // a part
} odd[] = {
	// Words of other versions, and of others.
	{ERROR("{\"error\":\"odd\",\"code\":\"of_tomorrow\"}"), {"ps"}, 1, "", "celld ctl: odd (unknown)\n"},
	{OK PID "data: {\"error\":\"odd\",\"code\":\"of_tomorrow\"}\n\n", {"exec", "true"}, 125, "", "odd (unknown)\n"},
	{OK PID "data: {\"error\":\"odd\"}\n\n", {"attach", "7"}, 125, "", "odd (unknown)\n"},
	{OK "data: {\"watcher_id\":1}\n\ndata: {\"error\":\"odd\",\"code\":\"x\"}\n\n", {"watch", "x"}, 1, "",
		"odd (unknown)\n"},
	// What a proxy says before the answer.
	{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" OK "{\"processes\":[{\"pid\":7}]}",
		{"ps", "-q"}, 0, "7\n", ""},
	{"HTTP/1.1 103 Early Hints\r\n\r\n" OK PID "data: {\"exit\":3}\n\n", {"exec", "true"}, 3, "", ""},
	// Not an object.
	{OK "[1]", {"ps"}, 1, "", ": the answer is no JSON object (internal)\n"},
	{OK "<html>", {"ready"}, 1, "", ": the answer is no JSON object (internal)\n"},
	{OK "data: {\"watcher_id\":1}\n\ndata: 5\n\n", {"watch", "x"}, 1, "", "is not understood (internal)\n"},
	// Ends that no command can have: never a success.
	{OK PID "data: {\"exit\":256}\n\n", {"exec", "true"}, 255, "", ""},
	{OK PID "data: {\"exit\":-1,\"signal\":\"SIG200\"}\n\n", {"exec", "true"}, 255, "", ""},
	{OK PID "data: {\"exit\":-1,\"signal\":\"SIG99999999999999999999\"}\n\n", {"exec", "true"}, 255, "", ""},
	// What came before the fault is not lost with it.
	{OK PID "data: {\"channel\":\"stdout\",\"data\":\"aGk=\"}\n\ndata: "
		"{\"error\":\"gone\",\"code\":\"unavailable\"}\n\n",
		{"exec", "true"}, 125, "hi", "gone (unavailable)\n"},
	{OK PID "data: {\"channel\":\"stdout\",\"data\":\"aGk=\"}\n\ndata: {\"channel\":\"stdout\",\"data\":\"!\"}\n\n",
		{"exec", "true"}, 125, "hi", "is not understood (internal)\n"},
	// Nor is handed on what is no JSON.
	{OK PID "data: {\"x\":\"\x1b[31m\"}\n\n", {"exec", "--json", "true"}, 125, "{\"pid\":7}\n",
		"is not understood"},
	// Numbers and names.
	{OK "{\"processes\":[{\"pid\":-9223372036854775808,\"started_at\":-9223372036854775808,\"kind\":\"\\u001b[2J\","
	    "\"session_id\":\"12345678901\xc3\xa9\xc3\xa9\",\"channel_bytes\":{\"a\":9223372036854775807,\"b\":"
	    "9223372036854775807},"
	    "\"config\":\"\\u009b31m\"}]}",
		{"ps"}, 0,
		"     PID KIND           AGE OUTPUT SESSION      COMMAND\n"
		"-9223372036854775808 ?[2J            0s   8.0E 12345678901\xc3\xa9 ?31m\n",
		""},
};

START_TEST(odd_answer_ends_it_with_a_word)
{
	struct fake f;
	struct ctlrun c;
	fake_start(&f, serve_always, odd[_i].answer);
	const char *const words[] = {"--url", f.url, odd[_i].words[0], odd[_i].words[1], odd[_i].words[2], NULL};
	ck_assert_int_eq(ctl_run_env(&c, NULL, NULL, words), odd[_i].status);
	ck_assert_str_eq(ctl_out(&c), odd[_i].out);
	ctl_assert_has(ctl_err(&c), odd[_i].err);
	ck_assert_ptr_null(strchr(ctl_err(&c), '\x1b'));
	ctl_release(&c);
	fake_end(&f);
}
END_TEST

// Neither memory nor time is the other side's to take.
static const struct {
	const char *lines[2], *words[2], *says;
	int status;
} endless[] = {
	{{"", "HTTP/1.1 100 Continue\r\n\r\n"}, {"ps"}, "does not speak HTTP/1.1", 125},
	{{"HTTP/1.1 200 OK\r\n", "X: y\r\n"}, {"exec", "true"}, "does not speak HTTP/1.1", 125},
	{{ERROR(""), "no end "}, {"ps"}, "HTTP 500 Internal Server Error", 1},
	{{ERROR(""), "no end "}, {"exec", "true"}, "HTTP 500 Internal Server Error", 125},
	{{ERROR(""), "no end "}, {"watch", "x"}, "HTTP 500 Internal Server Error", 1},
	{{OK, "no end "}, {"attach", "7"}, "Message too long", 125},
};

START_TEST(endless_answer_is_cut)
{
	struct fake f;
	struct ctlrun c;
	fake_start(&f, serve_endless, endless[_i].lines);
	const char *const words[] = {"--url", f.url, endless[_i].words[0], endless[_i].words[1], NULL};
	ck_assert_int_eq(ctl_run_env(&c, NULL, NULL, words), endless[_i].status);
	ctl_assert_has(ctl_err(&c), endless[_i].says);
	ctl_release(&c);
	fake_end(&f);
}
END_TEST

// A process that sends what means nothing, as fast as it is taken: several do, and at whatever byte they interrupt each
// other it means nothing still.
static pid_t flood(int fd)
{
	char many[65536];
	pid_t parent = getpid(), pid = fork();
	if (pid != 0)
		return pid;
	for (size_t n = 0; n < sizeof many; n++)
		many[n] = n % 3 ? '\n' : ':';
	while (prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent && say(fd, many, sizeof many))
		;
	_exit(0);
}

#define FLOODS 3

// A second connection is the signal.
static void serve_flood(int listener, const void *arg)
{
	static const char ok[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}";
	static const char ended[] = "\n\ndata: {\"exit\":5}\n\n", wrong[] = "\n\ndata: ?\n\n";
	char text[65536];
	pid_t floods[FLOODS];
	(void)arg;
	int fd = next_request(listener, text, sizeof text);
	(void)say(fd, OK PID, sizeof OK PID - 1);
	for (int i = 0; i < FLOODS; i++)
		floods[i] = flood(fd);
	int other = next_request(listener, text, sizeof text);
	for (int i = 0; i < FLOODS; i++)
		if (floods[i] > 0 && kill(floods[i], SIGKILL) == 0)
			(void)waitpid(floods[i], NULL, 0);
	bool asked = strstr(text, "/exec/signal") != NULL;
	(void)say(other, ok, sizeof ok - 1);
	(void)say(fd, asked ? ended : wrong, asked ? sizeof ended - 1 : sizeof wrong - 1);
	for (;;)
		(void)pause();
}

START_TEST(fast_stream_starves_signals)
{
	struct fake f;
	struct ctlrun c;
	fake_start(&f, serve_flood, NULL);
	ctl_start(&c, NULL, NULL, ctl_words("--url", f.url, "exec", "true"));
	int64_t until = h_now_ms() + 300;
	while (h_now_ms() < until)
		h_tick();
	ck_assert_int_eq(kill(c.pid, SIGINT), 0);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 5);
	ctl_release(&c);
	fake_end(&f);
}
END_TEST

// Knows no file, and never says whether one was written.
static void serve_no_write(int listener, const void *arg)
{
	static const char missing[] = "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n"
				      "{\"error\":\"x\",\"code\":\"not_found\"}";
	char text[65536];
	(void)arg;
	for (;;) {
		int fd = next_request(listener, text, sizeof text);
		if (!strstr(text, "/files/stat"))
			continue;
		(void)say(fd, missing, sizeof missing - 1);
		(void)close(fd);
	}
}

// Ctrl-C does not wait for a daemon that hangs.
START_TEST(hung_daemon_holds_a_copy)
{
	struct fake f;
	struct ctlrun c;
	fake_start(&f, serve_no_write, NULL);
	ctl_start(&c, NULL, NULL, ctl_words("--url", f.url, "cp", "/etc/passwd", ":x"));
	int64_t until = h_now_ms() + 300, began;
	while (h_now_ms() < until)
		h_tick();
	began = h_now_ms();
	ck_assert_int_eq(kill(c.pid, SIGINT), 0);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 128 + SIGINT);
	ck_assert_int_lt(h_now_ms() - began, h_scaled(15000));
	ctl_release(&c);
	fake_end(&f);
}
END_TEST

Suite *ctl_hostile_suite(void)
{
	Suite *s = suite_create("ctl_hostile");
	TCase *tc = h_tcase(s, "answers", 60);
	tcase_add_loop_test(tc, odd_answer_ends_it_with_a_word, 0, (int)(sizeof odd / sizeof *odd));
	tcase_add_loop_test(tc, endless_answer_is_cut, 0, (int)(sizeof endless / sizeof *endless));
	tc = h_tcase(s, "signals", 60);
	tcase_add_test(tc, fast_stream_starves_signals);
	tcase_add_test(tc, hung_daemon_holds_a_copy);
	return s;
}
