// SPDX-License-Identifier: Apache-2.0
// The access token: what opens a route and what does not, where the token can be seen, how it is changed.
#include "tests/integration/envdkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TOKEN "Secret-Token.2026"
#define MARK "{\"command\":\"echo 1 >> ran\"}"

static const struct {
	const char *method, *target, *body;
	int status; // with the token
} routes[] = {
	{"POST", "/exec", MARK, 200},
	{"POST", "/exec/stream", MARK, 200},
	{"POST", "/exec/stdin", "{\"pid\":1,\"data\":\"\"}", 404},
	{"POST", "/exec/stdin/close", "{\"pid\":1}", 404},
	{"POST", "/exec/signal", "{\"pid\":1,\"signal\":9}", 404},
	{"GET", "/exec/attach?pid=1", NULL, 404},
	{"GET", "/exec/processes", NULL, 200},
	{"GET", "/processes", NULL, 200},
};

static const char *const refused[] = {
	"",
	"X-Access-Token: wrong\r\n",
	"X-Access-Token: " TOKEN "x\r\n",
	"X-Access-Token: Secret-Token.202\r\n",
	"X-Access-Token: ecret-Token.2026\r\n",
	"X-Access-Token: S\r\n",
	"X-Access-Token:\r\n",
	"X-Access-Token: secret-token.2026\r\n",
	"X-Access-Token: SECRET-TOKEN.2026\r\n",
	"X-Access-Token: Secret-Token.2027\r\n",
	"X-Access-Token: Bearer " TOKEN "\r\n",
	"X-Access-Token: \"" TOKEN "\"\r\n",
	"X-Access-Token: " TOKEN ", " TOKEN "\r\n",
	"X-Access-Tokens: " TOKEN "\r\n",
	"Access-Token: " TOKEN "\r\n",
	"X-Token: " TOKEN "\r\n",
	"Cookie: X-Access-Token=" TOKEN "\r\n",
	"Authorization: " TOKEN "\r\n",
	"Authorization:\r\n",
	"Authorization: Bearer\r\n",
	"Authorization: Bearer wrong\r\n",
	"Authorization: Bearer " TOKEN "x\r\n",
	"Authorization: Bearer Secret-Token.202\r\n",
	"Authorization: Bearer secret-token.2026\r\n",
	"Authorization: Bearer" TOKEN "\r\n",
	"Authorization: Bearer, " TOKEN "\r\n",
	"Authorization: Basic " TOKEN "\r\n",
	"Authorization: Basic U2VjcmV0LVRva2VuLjIwMjY6\r\n",
};

static const char *const accepted[] = {
	"X-Access-Token: " TOKEN "\r\n",
	"x-access-token: " TOKEN "\r\n",
	"X-ACCESS-TOKEN:" TOKEN "\r\n",
	"X-Access-Token:  \t" TOKEN " \t\r\n",
	"Authorization: Bearer " TOKEN "\r\n",
	"authorization: Bearer " TOKEN "\r\n",
	"AUTHORIZATION: bearer " TOKEN "\r\n",
	"Authorization: Basic abc\r\nX-Access-Token: " TOKEN "\r\n",
};

static void want_401(struct resp *r)
{
	json_t *o = assert_error(r, 401, "unauthenticated");
	ck_assert(!j_bool(o, "retryable"));
	ck_assert_uint_eq(json_object_size(o), 3);
	ck_assert_ptr_null(strstr(buf_cstr(&r->body), TOKEN));
}

// One request on a connection of its own: the status.
static int ask(const struct testd *d, const char *method, const char *target, const char *headers, const char *body,
	struct resp *r)
{
	struct client *c = client_connect(d);
	client_request(c, method, target, headers, body, body ? strlen(body) : 0);
	client_response(c, r);
	client_close(c);
	return r->status;
}

static bool opens(const struct testd *d, const char *token)
{
	struct resp r = {0};
	char header[300];
	(void)snprintf(header, sizeof header, "X-Access-Token: %s\r\n", token);
	int status = ask(d, "GET", "/exec/processes", header, NULL, &r);
	if (status != 200)
		want_401(&r);
	resp_release(&r);
	return status == 200;
}

static void want_open_routes(const struct testd *d)
{
	struct resp r = {0};
	ck_assert_int_eq(ask(d, "GET", "/health", NULL, NULL, &r), 204);
	ck_assert_int_eq(ask(d, "GET", "/ready", NULL, NULL, &r), 200);
	ck_assert_int_eq(ask(d, "POST", "/ready", "X-Access-Token: wrong\r\n", "{}", &r), 200);
	ck_assert_str_eq(j_str(resp_json(&r), "status"), "ready");
	resp_release(&r);
}

START_TEST(wrong_token_opens_a_route)
{
	struct testd *d = d_start("--token", TOKEN);
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(routes); i++)
		for (size_t k = 0; k < COUNT(refused); k++) {
			if (ask(d, routes[i].method, routes[i].target, refused[k], routes[i].body, &r) != 401)
				ck_abort_msg("%s %s: status %d", routes[i].target, refused[k], r.status);
			want_401(&r);
		}
	ck_assert_int_eq(ask(d, "POST", "/exec", accepted[0], "{\"command\":\"sleep .1; ls\"}", &r), 200);
	ck_assert_str_eq(j_str(resp_json(&r), "stdout"), "");
	want_open_routes(d);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(right_token_is_refused)
{
	struct testd *d = d_start("--token", TOKEN);
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(routes); i++)
		for (size_t k = 0; k < COUNT(accepted); k++)
			if (ask(d, routes[i].method, routes[i].target, accepted[k], routes[i].body, &r) !=
				routes[i].status)
				ck_abort_msg("%s %s: status %d", routes[i].target, accepted[k], r.status);
	want_open_routes(d);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Nothing of a stranger's body is waited for, and no 100 Continue lures it out.
START_TEST(body_is_read_before_the_token)
{
	static const char *const heads[] = {
		"POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: 90000000\r\n\r\n",
		"POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\n{\"comm",
		"POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\nExpect: 100-continue\r\n\r\n",
		"POST /exec HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
	};
	struct testd *d = d_start("--token", TOKEN);
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(heads); i++) {
		struct client *c = client_connect(d);
		ck_assert(client_send_str(c, heads[i]));
		ck_assert_int_gt(client_fill(c, 3000), 0);
		ck_assert_int_eq(strncmp(buf_cstr(&c->in), "HTTP/1.1 401 ", 13), 0);
		client_response(c, &r);
		want_401(&r);
		ck_assert_str_eq(resp_header(&r, "Connection"), "close");
		ck_assert(client_wait_eof(c, 3000));
		client_close(c);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- where it can be seen ---

static void want_hidden(pid_t pid, const char *file)
{
	char path[64], text[64 * 1024];
	(void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_msg(fd >= 0, "%s cannot be opened", path);
	size_t n = 0;
	ssize_t got;
	while ((got = read(fd, text + n, sizeof text - n)) > 0)
		n += (size_t)got;
	(void)close(fd);
	ck_assert_msg(n > 0 || strcmp(file, "environ") == 0, "%s is empty", path);
	ck_assert_msg(!memmem(text, n, "Token.2026", 10), "%s shows the token", path);
}

static void want_secret(struct testd *d)
{
	static const char script[] = "{\"command\":\"tr '\\\\0' '\\\\n' < /proc/$PPID/environ; "
				     "tr '\\\\0' '\\\\n' < /proc/$PPID/cmdline; env; set\"}";
	struct resp r = {0};
	want_hidden(d->init, "cmdline");
	want_hidden(d->init, "environ");
	want_hidden(d->daemon, "cmdline");
	want_hidden(d->daemon, "environ");
	ck_assert_int_eq(ask(d, "POST", "/exec", accepted[0], script, &r), 200);
	const char *out = j_str(resp_json(&r), "stdout");
	ck_assert_ptr_nonnull(strstr(out, "--listen"));
	ck_assert_ptr_null(strstr(out, "Token.2026"));
	ck_assert_int_eq(ask(d, "GET", "/exec/processes", NULL, NULL, &r), 401);
	ck_assert(!d_log_has(d, "Token.2026"));
	resp_release(&r);
	d_finish(d);
}

START_TEST(token_is_seen_in_proc)
{
	static const char *const env[] = {"CELLD_TOKEN=" TOKEN, "CELLD_TIMEOUT=10", NULL};
	static const char *const init[] = {"--init", "--token=" TOKEN, NULL};
	want_secret(d_start("--token", TOKEN));
	want_secret(d_start_args(init));
	const struct d_opts opts = {.env = env};
	want_secret(d_start_opts(&opts));
}
END_TEST

// --- a token of a file ---

static void write_token(const char *path, const char *text)
{
	FILE *f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs(text, f), 0);
	ck_assert_int_eq(fclose(f), 0);
}

struct tried {
	const struct testd *d;
	const char *text;
};

static bool opens_now(void *arg)
{
	const struct tried *t = arg;
	return opens(t->d, t->text);
}

static bool shut_now(void *arg)
{
	return !opens_now(arg);
}

static bool logged(void *arg)
{
	const struct tried *t = arg;
	return d_log_has(t->d, t->text);
}

static void reload(struct testd *d, const char *path, const char *text, const char *token)
{
	struct tried t = {d, token};
	write_token(path, text);
	d_signal(d, SIGHUP);
	ck_assert_msg(wait_until(opens_now, &t, 3000), "%s does not open after SIGHUP", token);
}

static void try_reload(const char *init)
{
	char path[] = "/tmp/celld-it-token-XXXXXX";
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	write_token(path, "first\n");
	struct testd *d = d_start("--token-file", path, init);
	ck_assert(opens(d, "first"));
	ck_assert(!opens(d, "second"));
	reload(d, path, "second and longer\r\n", "second and longer");
	ck_assert(!opens(d, "first"));
	reload(d, path, "3", "3");
	ck_assert(!opens(d, "second and longer"));
	// A file without a token, or none at all: the last one stays.
	struct tried bad = {d, "error token_reload"};
	write_token(path, "");
	d_signal(d, SIGHUP);
	ck_assert(wait_until(logged, &bad, 3000));
	ck_assert(opens(d, "3"));
	ck_assert(!opens(d, ""));
	ck_assert_int_eq(unlink(path), 0);
	d_signal(d, SIGHUP);
	bad.text = "No such file";
	ck_assert(wait_until(logged, &bad, 3000));
	ck_assert(opens(d, "3"));
	want_open_routes(d);
	d_finish(d);
}

// Somebody has a lease on the file: nobody waits for that, and the last token stays.
START_TEST(token_file_with_a_lease_holds_the_daemon)
{
	char path[] = "/tmp/celld-it-token-XXXXXX";
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	write_token(path, "first");
	struct testd *d = d_start("--token-file", path);
	struct tried busy = {d, "temporarily unavailable"};
	write_token(path, "second");
	(void)signal(SIGIO, SIG_IGN);
	if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0) {
		d_signal(d, SIGHUP);
		ck_assert_msg(wait_until(logged, &busy, 3000), "the lease is waited for");
		ck_assert(opens(d, "first"));
	} else {
		fprintf(stderr, "token: /tmp has no leases\n");
	}
	(void)close(fd);
	reload(d, path, "third", "third");
	(void)unlink(path);
	d_finish(d);
}
END_TEST

START_TEST(no_token_file_is_complained_of)
{
	struct testd *d = d_start("--log-level", "info", "--no-init");
	d_signal(d, SIGHUP);
	ck_assert(opens(d, "any")); // by now it has been seen
	usleep(100000);
	ck_assert(!d_log_has(d, "token_reload"));
	d_finish(d);
}
END_TEST

START_TEST(token_file_is_read_once)
{
	try_reload("--no-init");
	try_reload("--init");
}
END_TEST

static bool has_daemon(void *arg)
{
	struct testd *d = arg;
	pid_t before = d->daemon;
	return d_refresh(d) > 0 && d->daemon != before;
}

// A token that was taken back must not open anything again.
START_TEST(crash_brings_the_old_token_back)
{
	char path[] = "/tmp/celld-it-token-XXXXXX";
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	write_token(path, "first");
	struct testd *d = d_start("--token-file", path, "--init");
	reload(d, path, "second", "second");
	d_expect_crash(d);
	ck_assert_int_eq(kill(d->daemon, SIGKILL), 0);
	ck_assert(wait_until(has_daemon, d, 5000));
	ck_assert(!opens(d, "first"));
	ck_assert(opens(d, "second"));
	(void)unlink(path);
	d_finish(d);
}
END_TEST

// With a file that may be empty tokens come and go, also one that /init has set; a crash brings none back.
START_TEST(token_cannot_be_taken_back)
{
	char path[] = "/tmp/celld-it-token-XXXXXX";
	static const char set_one[] = "{\"accessToken\":\"from init\"}";
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	struct testd *d = d_start(ENVD_ON, "--token-file", path, "--token-empty", "none", _i ? "--init" : "--no-init");
	ck_assert(opens(d, "whatever"));
	reload(d, path, "first", "first"); // which opens it before, too
	struct tried other = {d, "whatever"};
	ck_assert(wait_until(shut_now, &other, 3000));
	ck_assert(opens(d, "first"));
	reload(d, path, "", "whatever");
	for (int round = 0; round < 2; round++) {
		ck_assert_int_eq(envd_init(d, set_one), 204);
		ck_assert(!opens(d, "whatever"));
		ck_assert(opens(d, "from init"));
		reload(d, path, "", "whatever");
		if (!_i)
			continue;
		d_expect_crash(d);
		ck_assert_int_eq(kill(d->daemon, SIGKILL), 0);
		ck_assert(wait_until(has_daemon, d, 5000));
		ck_assert(opens(d, "whatever"));
	}
	(void)unlink(path);
	d_finish(d);
}
END_TEST

Suite *token_suite(void)
{
	Suite *s = suite_create("token");
	TCase *tc = h_tcase(s, "access", 30);
	tcase_add_test(tc, wrong_token_opens_a_route);
	tcase_add_test(tc, right_token_is_refused);
	tcase_add_test(tc, body_is_read_before_the_token);
	tc = h_tcase(s, "secret", 30);
	tcase_add_test(tc, token_is_seen_in_proc);
	tcase_add_test(tc, token_file_is_read_once);
	tcase_add_test(tc, token_file_with_a_lease_holds_the_daemon);
	tcase_add_test(tc, no_token_file_is_complained_of);
	tcase_add_test(tc, crash_brings_the_old_token_back);
	tcase_add_loop_test(tc, token_cannot_be_taken_back, 0, 2);
	return s;
}
