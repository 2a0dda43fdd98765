// SPDX-License-Identifier: Apache-2.0
// How terminals end, and what of them is left; what is refused.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static struct sse *open_stream(const struct testd *d, int64_t id)
{
	char target[64];
	(void)snprintf(target, sizeof target, "/pty/stream?terminal_id=%lld", (long long)id);
	return sse_open(d, target, NULL);
}

// The terminal's id.
static int64_t create(const struct testd *d, const char *script, int64_t *pid)
{
	struct resp r = {0};
	req_pack(d, "POST", "/pty/create", &r, "{s:[s,s,s]}", "argv", "sh", "-c", script);
	ck_assert_int_eq(r.status, 200);
	int64_t id = j_int(resp_json(&r), "terminal_id");
	if (pid)
		*pid = j_int(resp_json(&r), "pid");
	resp_release(&r);
	return id;
}

static int status_of(const struct testd *d, const char *target, const char *fmt, ...)
{
	struct resp r = {0};
	va_list ap;
	va_start(ap, fmt);
	char *body = client_pack(fmt, ap);
	va_end(ap);
	req(d, "POST", target, body, &r);
	int status = r.status;
	if (status != 200)
		(void)assert_error(&r, status, NULL);
	free(body);
	resp_release(&r);
	return status;
}

static int destroy(const struct testd *d, int64_t id, int grace_ms)
{
	return status_of(d, "/pty/destroy", "{s:I,s:i}", "terminal_id", (json_int_t)id, "grace_ms", grace_ms);
}

static void expect_end(struct sse *s, int64_t code, const char *sig)
{
	struct sse_event e = {0};
	do
		(void)sse_next(s, &e, 8000);
	while (e.kind == SSE_DATA || e.kind == SSE_PID);
	ck_assert_msg(e.kind == SSE_EXIT, "%s, want an exit", sse_kind_name(e.kind));
	ck_assert_int_eq(e.code, code);
	ck_assert_str_eq(e.signal, sig);
	sse_event_release(&e);
	sse_close(s);
}

static void until(struct sse *s, const char *text)
{
	(void)sse_pid(s);
	sse_until(s, FRAME_PTY, text, NULL, 8000);
}

// --- what is refused ---

struct before {
	const struct testd *d;
	int fds;
};

static bool descriptors_are_back(void *arg)
{
	const struct before *b = arg;
	return d_fd_count(b->d) <= b->fds;
}

START_TEST(create_starts_what_it_cannot)
{
	static const struct {
		const char *body, *code, *name;
		int status;
	} bad[] = {
		{"{\"argv\":[\"/no/such\"]}", "not_found", "ENOENT", 404},
		{"{\"argv\":[\"no-such-program\"]}", "not_found", "ENOENT", 404},
		{"{\"argv\":[\"\"]}", "not_found", "ENOENT", 404},
		{"{\"argv\":[\"/etc/passwd/x\"]}", "not_found", "ENOTDIR", 404},
		{"{\"argv\":[\"/etc/passwd\"]}", "permission_denied", "EACCES", 403},
		{"{\"argv\":[\"/\"]}", "permission_denied", "EACCES", 403},
		{"{\"argv\":[\"./empty\"]}", "invalid_argument", "ENOEXEC", 400},
		{"{\"argv\":[\"empty\"],\"env\":{\"PATH\":\"/none:.\"}}", "invalid_argument", "ENOEXEC", 400},
		{"{\"argv\":[\"true\"],\"workdir\":\"/no/such\"}", "invalid_argument", "ENOENT", 400},
		{"{\"argv\":[\"true\"],\"workdir\":\"empty\"}", "invalid_argument", "ENOTDIR", 400},
		{"{\"argv\":\"bash\"}", "invalid_argument", NULL, 400},
		{"{\"argv\":[]}", "invalid_argument", NULL, 400},
		{"{}", "invalid_argument", NULL, 400},
		{"{\"argv\":[\"a\",5]}", "invalid_argument", NULL, 400},
		{"{\"argv\":[\"a\\u0000b\"]}", "invalid_argument", NULL, 400},
		{"{\"argv\":[\"true\"],\"rows\":-1}", "invalid_argument", NULL, 400},
		{"{\"argv\":[\"true\"],\"rows\":0}", "invalid_argument", NULL, 400},
		{"{\"argv\":[\"true\"],\"cols\":65536}", "invalid_argument", NULL, 400},
		{"{\"argv\":[\"true\"],\"cols\":\"80\"}", "invalid_argument", NULL, 400},
		{"{\"argv\":[\"true\"],\"env\":{\"A=B\":\"x\"}}", "invalid_argument", NULL, 400},
		{"{\"argv\":[\"true\"],\"env\":[]}", "invalid_argument", NULL, 400},
		{"[]", "invalid_argument", NULL, 400},
	};
	struct testd *d = d_start();
	struct resp r = {0};
	struct before b = {d, d_fd_count(d)};
	(void)run(d, ": >empty; chmod 755 empty", &r);
	for (int i = 0; i < COUNT(bad); i++) {
		req(d, "POST", "/pty/create", bad[i].body, &r);
		ck_assert_msg(r.status == bad[i].status, "%s: %d %s", bad[i].body, r.status, buf_cstr(&r.body));
		json_t *o = assert_error(&r, bad[i].status, bad[i].code);
		ck_assert_int_eq(j_has(o, "errno"), bad[i].name != NULL);
		if (bad[i].name)
			ck_assert_str_eq(j_str(o, "errno"), bad[i].name);
	}
	ck_assert_msg(wait_until(descriptors_are_back, &b, 3000), "%d descriptors, before %d", d_fd_count(d), b.fds);
	ck_assert_int_eq(d_children(d), 0);
	ck_assert_int_eq(create(d, "exit 0", NULL), 1); // none of those took an id
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(unknown_terminal_is_something_else)
{
	static const char *const posts[] = {"input", "resize", "signal", "destroy"};
	static const char *const gets[] = {"foreground", "stream"};
	static const char *const ids[] = {"0", "-1", "9999", "9223372036854775807"};
	struct testd *d = d_start();
	struct resp r = {0};
	char target[96], body[128];
	for (int i = 0; i < COUNT(ids); i++) {
		for (int k = 0; k < COUNT(posts); k++) {
			(void)snprintf(target, sizeof target, "/pty/%s", posts[k]);
			(void)snprintf(body, sizeof body,
				"{\"terminal_id\":%s,\"data\":\"x\",\"rows\":1,\"cols\":1,\"signal\":\"INT\"}", ids[i]);
			req(d, "POST", target, body, &r);
			ck_assert_str_eq(j_str(assert_error(&r, 404, "not_found"), "error"), "terminal not found");
		}
		for (int k = 0; k < COUNT(gets); k++) {
			(void)snprintf(target, sizeof target, "/pty/%s?terminal_id=%s", gets[k], ids[i]);
			req(d, "GET", target, NULL, &r);
			ck_assert_str_eq(j_str(assert_error(&r, 404, "not_found"), "error"), "terminal not found");
		}
	}
	for (int k = 0; k < COUNT(posts); k++) {
		(void)snprintf(target, sizeof target, "/pty/%s", posts[k]);
		req(d, "POST", target, "{}", &r);
		ck_assert_str_eq(j_str(assert_error(&r, 400, "invalid_argument"), "error"), "terminal_id required");
		req(d, "POST", target, "{\"terminal_id\":\"1\"}", &r);
		(void)assert_error(&r, 400, "invalid_argument");
		req(d, "POST", target, "nonsense", &r);
		ck_assert_str_eq(j_str(assert_error(&r, 400, "invalid_argument"), "error"), "invalid json");
	}
	for (int k = 0; k < COUNT(gets); k++) {
		(void)snprintf(target, sizeof target, "/pty/%s?terminal_id=x", gets[k]);
		req(d, "GET", target, NULL, &r);
		(void)assert_error(&r, 400, "invalid_argument");
		(void)snprintf(target, sizeof target, "/pty/%s", gets[k]);
		req(d, "GET", target, NULL, &r);
		(void)assert_error(&r, 400, "invalid_argument");
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B38
START_TEST(bad_requests_change_a_terminal)
{
	static const struct {
		const char *target, *rest;
	} bad[] = {
		{"resize", "\"rows\":0,\"cols\":0"},
		{"resize", "\"rows\":-1,\"cols\":10"},
		{"resize", "\"rows\":10,\"cols\":70000"},
		{"resize", "\"rows\":1099511627776,\"cols\":10"},
		{"resize", "\"rows\":10"},
		{"resize", "\"rows\":10,\"cols\":1.5"},
		{"input", "\"data\":\"!!\",\"encoding\":\"base64\""},
		{"input", "\"data\":\"eA==\",\"encoding\":\"hex\""},
		{"input", "\"data\":5"},
		{"input", "\"encoding\":\"text\""},
		{"signal", "\"signal\":\"USR1\""},
		{"signal", "\"signal\":\"SIGSTOP\""},
		{"signal", "\"signal\":\"9\""},
		{"signal", "\"signal\":9"},
		{"signal", "\"sig\":\"INT\""},
		{"destroy", "\"grace_ms\":-1"},
		{"destroy", "\"grace_ms\":\"1\""},
	};
	struct testd *d = d_start();
	struct resp r = {0};
	char target[32], body[160];
	int64_t id = create(d, "echo up; read x; echo \"<$x>\"; stty size", NULL);
	struct sse *s = open_stream(d, id);
	until(s, "up\r\n");
	for (int i = 0; i < COUNT(bad); i++) {
		(void)snprintf(target, sizeof target, "/pty/%s", bad[i].target);
		(void)snprintf(body, sizeof body, "{\"terminal_id\":%lld,%s}", (long long)id, bad[i].rest);
		req(d, "POST", target, body, &r);
		ck_assert_msg(r.status == 400, "%s %s: %d", target, body, r.status);
		(void)assert_error(&r, 400, "invalid_argument");
	}
	int64_t n = (int64_t)id;
	ck_assert_int_eq(status_of(d, "/pty/resize", "{s:I,s:i,s:i}", "terminal_id", n, "rows", 33, "cols", 44), 200);
	ck_assert_int_eq(status_of(d, "/pty/input", "{s:I,s:s}", "terminal_id", n, "data", "in\n"), 200);
	sse_until(s, FRAME_PTY, "33 44\r\n", NULL, 5000);
	expect_end(s, 0, "");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B38
START_TEST(terminal_that_ended_is_still_there)
{
	struct testd *d = d_start();
	for (int i = 0; i < 30; i++) {
		int64_t pid, id = create(d, i % 2 ? "exit 3" : "echo x; exit 3", &pid), n = id;
		expect_end(open_stream(d, id), 3, "");
		ck_assert_int_eq(status_of(d, "/pty/input", "{s:I,s:s}", "terminal_id", n, "data", "x"), 404);
		ck_assert_int_eq(
			status_of(d, "/pty/resize", "{s:I,s:i,s:i}", "terminal_id", n, "rows", 3, "cols", 3), 404);
		ck_assert_int_eq(status_of(d, "/pty/signal", "{s:I,s:s}", "terminal_id", n, "signal", "KILL"), 404);
		char target[64];
		struct resp r = {0};
		(void)snprintf(target, sizeof target, "/pty/foreground?terminal_id=%lld", (long long)id);
		req(d, "GET", target, NULL, &r);
		(void)assert_error(&r, 404, "not_found");
		resp_release(&r);
		expect_end(open_stream(d, id), 3, "");
		ck_assert_int_eq(destroy(d, id, 100), 200);
		ck_assert_int_eq(destroy(d, id, 100), 404);
	}
	d_finish(d);
}
END_TEST

START_TEST(table_has_no_end)
{
	struct testd *d = d_start("--max-procs", "3");
	int64_t id = 0;
	for (int i = 0; i < 3; i++)
		id = create(d, "read x", NULL);
	struct resp r = {0};
	req(d, "POST", "/pty/create", "{\"argv\":[\"true\"]}", &r);
	ck_assert(j_bool(assert_error(&r, 503, "resource_exhausted"), "retryable"));
	ck_assert_int_eq(destroy(d, id, 1000), 200);
	ck_assert_int_eq(create(d, "exit 0", NULL), 4);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- how they end ---

// B09
START_TEST(terminal_without_open_descriptors_has_ended)
{
	struct testd *d = d_start();
	int64_t start = h_now_ms();
	uint64_t ticks = d_cpu_ticks(d);
	int64_t id = create(d, "exec </dev/null >/dev/null 2>&1; sleep 1.5; echo late >/dev/tty; exit 4", NULL);
	struct sse *s = open_stream(d, id);
	until(s, "late\r\n");
	expect_end(s, 4, "");
	ck_assert_int_ge(h_now_ms() - start, 1500);
	ck_assert_msg((double)(d_cpu_ticks(d) - ticks) <= 10 * h_scale(), "it spins");
	d_finish(d);
}
END_TEST

// The leader's own output is whole, whoever keeps the terminal open and goes on writing; and that one is not killed for it.
START_TEST(background_job_holds_the_end)
{
	struct testd *d = d_start();
	int64_t start = h_now_ms();
	int64_t id = create(d,
		"stty -opost; trap '' HUP; (while [ ! -e go ]; do echo noise; sleep .01; done; echo x && : >done) & "
		"seq 1 20000; exit 5",
		NULL);
	struct sse_out o = {0};
	struct sse *s = open_stream(d, id);
	sse_collect(s, &o, 10000);
	ck_assert_int_eq(o.end.code, 5);
	ck_assert_int_lt(h_now_ms() - start, h_scaled(4000));
	struct buf *ch = &o.ch[FRAME_PTY];
	ck_assert_ptr_nonnull(memmem(buf_data(ch), buf_len(ch), "20000\n", 6));
	sse_out_release(&o);
	sse_close(s);
	struct resp r = {0};
	json_t *a = run(
		d, ": >go; i=0; while [ ! -e done ] && [ $i -lt 300 ]; do sleep .02; i=$((i+1)); done; ls done", &r);
	ck_assert_str_eq(j_str(a, "stdout"), "done\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

static bool none_sleeps(void *arg)
{
	return d_count_cmdline(arg, "sleep 1234", NULL) == 0;
}

static bool two_sleep(void *arg)
{
	return d_count_cmdline(arg, "sleep 1234", NULL) >= 2;
}

// Jobs in groups of their own, stopped ones, such that ignore what is polite.
START_TEST(destroy_leaves_jobs_behind)
{
	static const struct {
		const char *script;
		bool killed;
	} stories[] = {
		{"set -m; sleep 1234 & sleep 1234.0 & echo up; wait", false},
		{"set -m; sleep 1234 & sleep 1234.0 & kill -STOP %1 %2; echo up; read x", false},
		{"set -m; trap '' HUP TERM; sleep 1234 & sleep 1234.0 & echo up; wait; wait; wait", true},
		{"set -m; trap '' HUP TERM; sleep 1234 & sleep 1234.0 & kill -STOP %1; trap - HUP; echo up; read x",
			true},
		{"trap '' HUP; sleep 1234 & sleep 1234.0 & echo up; exit 1", false},
		{"(trap '' HUP TERM; sleep 1234 & sleep 1234.0 >/dev/null </dev/null 2>&1 &) ; echo up; read x", true},
	};
	struct testd *d = d_start();
	int64_t other = create(d, "echo up; read x; exit 9", NULL), n = other;
	for (int i = 0; i < COUNT(stories); i++) {
		int64_t id = create(d, stories[i].script, NULL);
		struct sse *s = open_stream(d, id);
		until(s, "up\r\n");
		ck_assert_msg(wait_until(two_sleep, d, 5000), "%s: jobs are missing", stories[i].script);
		int64_t start = h_now_ms();
		ck_assert_int_eq(destroy(d, id, stories[i].killed ? 300 : 10000), 200);
		ck_assert_msg(none_sleeps(d), "%s: a job is left", stories[i].script);
		int64_t took = h_now_ms() - start;
		if (stories[i].killed)
			ck_assert_msg(took >= 300 && took < h_scaled(3000), "%s: %d ms", stories[i].script, (int)took);
		else
			ck_assert_msg(took < h_scaled(3000), "%s: %d ms", stories[i].script, (int)took);
		sse_close(s);
		ck_assert_int_eq(destroy(d, id, 0), 404);
	}
	ck_assert_int_eq(status_of(d, "/pty/input", "{s:I,s:s}", "terminal_id", n, "data", "x\n"), 200);
	expect_end(open_stream(d, other), 9, "");
	d_finish(d);
}
END_TEST

// What left the session is no part of the terminal any more.
START_TEST(destroy_kills_strangers)
{
	struct testd *d = d_start();
	int64_t id = create(d, "setsid sleep 1234 >/dev/null 2>&1 </dev/null & sleep .2; echo up; read x", NULL);
	struct sse *s = open_stream(d, id);
	until(s, "up\r\n");
	struct sse *cmd = sse_exec(d, "exec sleep 1234");
	(void)sse_pid(cmd);
	ck_assert_int_eq(destroy(d, id, 1000), 200);
	expect_end(s, -1, "SIGHUP");
	ck_assert_int_eq(d_count_cmdline(d, "sleep 1234", NULL), 2);
	sse_close(cmd);
	d_finish(d);
}
END_TEST

// Meanwhile others are served, the id is taken, readers see the end; and it goes on when its client has left.
START_TEST(destroy_holds_others_up)
{
	static const char script[] = "trap '' HUP TERM; echo up; sleep 1234; sleep 1234; sleep 1234";
	struct testd *d = d_start();
	struct resp r = {0};
	char body[64];
	int64_t id = create(d, script, NULL);
	struct sse *s = open_stream(d, id);
	until(s, "up\r\n");
	struct client *c = client_connect(d);
	int64_t start = h_now_ms();
	int n = snprintf(body, sizeof body, "{\"terminal_id\":%lld,\"grace_ms\":700}", (long long)id);
	client_request(c, "POST", "/pty/destroy", NULL, body, (size_t)n);
	// The ignored signals are inherited: the session stays as it is.
	for (int i = 0; i < 10; i++) {
		req(d, "GET", "/health", NULL, &r);
		ck_assert_int_eq(r.status, 204);
	}
	ck_assert_int_lt(h_now_ms() - start, 700);
	ck_assert_int_eq(destroy(d, id, 0), 404);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert(j_bool(resp_json(&r), "ok"));
	ck_assert_int_ge(h_now_ms() - start, 700);
	expect_end(s, -1, "SIGKILL");
	id = create(d, script, NULL);
	s = open_stream(d, id);
	until(s, "up\r\n");
	n = snprintf(body, sizeof body, "{\"terminal_id\":%lld,\"grace_ms\":300}", (long long)id);
	client_request(c, "POST", "/pty/destroy", NULL, body, (size_t)n);
	ck_assert(client_silent(c, 50));
	client_abort(c);
	expect_end(s, -1, "SIGKILL");
	ck_assert(wait_until(none_sleeps, d, 3000));
	resp_release(&r);
	d_finish(d);
}
END_TEST

static bool sleeps(void *arg)
{
	struct pinfo p;
	return proc_info(*(const pid_t *)arg, &p) && p.state == 'S';
}

// Interactive shells ignore TERM. (One that has its prompt out but does not yet read would not notice HUP either.)
START_TEST(open_terminal_delays_the_stop)
{
	struct testd *d = d_start("--stop-grace", "8000");
	struct resp r = {0};
	req(d, "POST", "/pty/create", "{\"argv\":[\"bash\",\"--norc\",\"-i\"],\"env\":{\"PS1\":\"P> \"}}", &r);
	struct sse *s = open_stream(d, j_int(resp_json(&r), "terminal_id"));
	until(s, "P> ");
	pid_t pid = d_outside_pid(d, j_int(resp_json(&r), "pid"));
	ck_assert(wait_until(sleeps, &pid, 5000));
	int64_t start = h_now_ms();
	ck_assert_int_eq(d_stop(d, 7000), 0);
	ck_assert_int_lt(h_now_ms() - start, h_scaled(3000));
	expect_end(s, -1, "SIGHUP");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- what is left ---

// Terminals that PID holds open. (How many the kernel has counts other tests' too.)
static int terminals_at(pid_t pid)
{
	char path[64], name[64];
	int found = 0;
	for (int fd = 0; fd < 1024; fd++) {
		(void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)pid, fd);
		ssize_t n = readlink(path, name, sizeof name - 1);
		name[n > 0 ? n : 0] = '\0';
		found += strstr(name, "/ptmx") || strstr(name, "/pts/");
	}
	return found;
}

static int ptys_of(const struct testd *d)
{
	return terminals_at(d->daemon) + (d->has_init ? terminals_at(d->init) : 0);
}

struct ptys {
	const struct testd *d;
	int count;
};

static bool ptys_are_back(void *arg)
{
	const struct ptys *p = arg;
	return ptys_of(p->d) <= p->count;
}

START_TEST(terminals_leave_something_behind)
{
	struct testd *d = d_start("--retention", "0");
	int rounds = (int)(1000 / h_scale());
	long rss = 0;
	struct before b = {d, 0};
	struct ptys ptys = {d, 0};
	for (int i = 0; i < rounds + 100; i++) {
		if (i == 100) {
			b.fds = d_fd_count(d);
			rss = d_rss_kib(d);
			ptys.count = ptys_of(d);
		}
		int64_t id = create(d, i % 3 ? "sleep 1234 & read x" : "echo x", NULL);
		if (i % 3 == 1) {
			struct sse *s = open_stream(d, id);
			(void)sse_pid(s);
			sse_close(s);
		}
		int status = destroy(d, id, 100);
		ck_assert_msg(status == 200 || (i % 3 == 0 && status == 404), "round %d: %d", i, status);
	}
	ck_assert_msg(wait_until(descriptors_are_back, &b, 3000), "%d descriptors, before %d", d_fd_count(d), b.fds);
	ck_assert(wait_until(ptys_are_back, &ptys, 3000)); // the init part lets go a moment later
	ck_assert(none_sleeps(d));
	long grown = d_rss_kib(d) - rss;
	ck_assert_msg(grown <= (d_sanitized(d) ? 300 * 1024 : 2048), "%ld KiB more than before", grown);
	d_finish(d);
}
END_TEST

Suite *pty_end_suite(void)
{
	Suite *s = suite_create("pty_end");
	TCase *tc = h_tcase(s, "refused", 40);
	tcase_add_test(tc, create_starts_what_it_cannot);
	tcase_add_test(tc, unknown_terminal_is_something_else);
	tcase_add_test(tc, bad_requests_change_a_terminal);
	tcase_add_test(tc, terminal_that_ended_is_still_there);
	tcase_add_test(tc, table_has_no_end);
	tc = h_tcase(s, "ends", 60);
	tcase_add_test(tc, terminal_without_open_descriptors_has_ended);
	tcase_add_test(tc, background_job_holds_the_end);
	tcase_add_test(tc, destroy_leaves_jobs_behind);
	tcase_add_test(tc, destroy_kills_strangers);
	tcase_add_test(tc, destroy_holds_others_up);
	tcase_add_test(tc, open_terminal_delays_the_stop);
	tc = h_tcase(s, "left", 100);
	tcase_add_test(tc, terminals_leave_something_behind);
	return s;
}
