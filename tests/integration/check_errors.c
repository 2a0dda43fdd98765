// SPDX-License-Identifier: Apache-2.0
// B36: every error is one JSON object of the contract's shape, whatever the route and the input; nothing is run or changed by a
// request that is refused. Errors of system calls are in check_errno.c.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define MARK "\"command\":\"echo 1 >> ran\""

static const struct route {
	const char *method, *path, *allow;
	const char *key; // required in the body; NULL: takes none
} routes[] = {
	{"POST", "/exec", "POST", "command"},
	{"POST", "/exec/stream", "POST", "command"},
	{"POST", "/exec/stdin", "POST", "pid"},
	{"POST", "/exec/stdin/close", "POST", "pid"},
	{"POST", "/exec/signal", "POST", "pid"},
	{"GET", "/exec/attach", "GET", NULL},
	{"GET", "/exec/processes", "GET", NULL},
	{"GET", "/processes", "GET", NULL},
	{"GET", "/health", "GET", NULL},
	{"POST", "/ready", "GET, POST", NULL},
};

// Exactly the contract's keys. MSG NULL: any.
static void want_shape(struct resp *r, int status, const char *code, const char *msg)
{
	static const char *const keys[] = {"error", "code", "retryable", "errno", "reason"};
	json_t *o = assert_error(r, status, code);
	ck_assert_str_eq(resp_header(r, "Content-Type"), "application/json");
	size_t known = 0;
	for (size_t i = 0; i < COUNT(keys); i++)
		known += j_has(o, keys[i]);
	ck_assert_msg(known == json_object_size(o), "an unknown key in %s", buf_cstr(&r->body));
	ck_assert_msg(!j_bool(o, "retryable"), "retryable: %s", buf_cstr(&r->body));
	ck_assert_msg(!j_has(o, "errno") && !j_has(o, "reason"), "no system call failed: %s", buf_cstr(&r->body));
	if (msg)
		ck_assert_str_eq(j_str(o, "error"), msg);
}

static void post_bytes(struct client *c, const char *path, const void *body, size_t n, struct resp *r)
{
	client_request(c, "POST", path, NULL, body, n);
	client_response(c, r);
}

static void want_nothing_ran(const struct testd *d)
{
	struct resp r = {0};
	ck_assert_str_eq(j_str(run(d, "sleep .1; ls", &r), "stdout"), "");
	resp_release(&r);
}

static const struct {
	const char *p;
	size_t n;
} documents[] = {
#define D(s)                     \
	{                        \
		s, sizeof(s) - 1 \
	}
	D(""),
	D("null"),
	D("\"x\""),
	D("7"),
	D("true"),
	D("[]"),
	D("[{" MARK "}]"),
	D("{"),
	D("{" MARK),
	D("{" MARK ",}"),
	D("{" MARK "}x"),
	D("{" MARK "}{}"),
	D("{" MARK "} ]"),
	D("{'command':'ls'}"),
	D("{command:\"ls\"}"),
	D("{" MARK ",\"a\":}"),
	D("{" MARK ",\"a\":1,\"a\":2}"),
	D("{" MARK "," MARK "}"),
	D("{" MARK ",\"n\":99999999999999999999}"),
	D("{" MARK ",\"n\":-9223372036854775809}"),
	D("{" MARK ",\"n\":1e999}"),
	D("{" MARK ",\"n\":01}"),
	D("{" MARK ",\"n\":+1}"),
	D("{" MARK ",\"n\":.5}"),
	D("{" MARK ",\"n\":NaN}"),
	D("{" MARK ",\"n\":Infinity}"),
	D("{" MARK ",\"s\":\"\\ud800\"}"),
	D("{" MARK ",\"s\":\"\\x41\"}"),
	D("{" MARK ",\"s\":\"\377\"}"),
	D("{" MARK ",\"s\":\"\300\200\"}"),
	D("{" MARK ",\"s\":\"a\nb\"}"),
	D("{" MARK ",\"s\":\"\0\"}"),
	D("{" MARK "}\0"),
	D("\0"),
	D("\357\273\277{" MARK "}"),
	D("{" MARK "} // comment"),
	D("\377\376\001\002"),
	D("command=ls"),
	D("{\"a\\u0000b\":1," MARK "}"),
};

START_TEST(bad_json_is_another_error)
{
	struct testd *d = d_start();
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(routes); i++) {
		if (!routes[i].key)
			continue;
		struct client *c = client_connect(d);
		for (size_t k = 0; k < COUNT(documents); k++) {
			post_bytes(c, routes[i].path, documents[k].p, documents[k].n, &r);
			if (r.status != 400)
				ck_abort_msg("%s %s: status %d", routes[i].path, documents[k].p, r.status);
			want_shape(&r, 400, "invalid_argument", "invalid json");
		}
		client_request(c, "POST", routes[i].path, NULL, NULL, 0);
		client_response(c, &r);
		want_shape(&r, 400, "invalid_argument", "invalid json");
		client_close(c);
	}
	want_nothing_ran(d);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A million brackets, of each kind, also within a document that is otherwise good.
START_TEST(deep_nesting_ends_the_daemon)
{
	static const char *const units[] = {"[", "{\"a\":", "[{\"a\":[", "{\"command\":[[", "[],"};
	struct testd *d = d_start();
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(routes); i++)
		for (size_t k = 0; routes[i].key && k < COUNT(units); k++) {
			struct client *c = client_connect(d);
			struct buf b = {0};
			h_repeat(&b, units[k], (1 << 20) / strlen(units[k]));
			post_bytes(c, routes[i].path, buf_data(&b), buf_len(&b), &r);
			want_shape(&r, 400, "invalid_argument", "invalid json");
			buf_release(&b);
			client_close(c);
		}
	d_assert_alive(d);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Valid, but thousands of times larger in memory than on the wire: refused, and the memory given back.
START_TEST(many_small_values_keep_the_memory)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct buf b = {0};
	struct client *c = client_connect(d);
	buf_str(&b, "{" MARK ",\"a\":[");
	h_repeat(&b, "[],", 4 << 20);
	buf_str(&b, "0]}");
	long before = d_rss_kib(d);
	post_bytes(c, "/exec", buf_data(&b), buf_len(&b), &r);
	ck_assert_str_eq(j_str(assert_error(&r, 400, "invalid_argument"), "error"), "command too long");
	want_nothing_ran(d);
	long kept = d_rss_kib(d) - before;
	ck_assert_msg(d_sanitized(d) || kept < 8 * 1024, "%ld KiB are kept", kept);
	buf_release(&b);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Each key with values of each wrong type; PID stands for a living process's in "pid" where that is not the key in question.
static const struct {
	const char *path, *key;
	const char *wrong; // JSON values, separated by blanks
} typed[] = {
#define NO_STRING "7 1.5 true [] {} [\"ls\"] {\"a\":\"b\"}"
#define NO_NUMBER "\"7\" \"\" true [] {} [7]"
#define NO_BOOL "0 1 \"true\" \"\" [] {}"
	{"/exec", "command", NO_STRING " null \"\" \"a\\u0000b\""},
	{"/exec", "workdir", NO_STRING " \"/tmp\\u0000x\" \"\\u0000\""},
	{"/exec", "env", "7 true [] [\"A=b\"] \"A=b\" \"\" {\"A=B\":\"c\"} {\"\":\"c\"} {\"A\":\"b\\u0000c\"}"},
	{"/exec", "timeout", NO_NUMBER " -1 -0.001 1e10 9223372036854775807 -9223372036854775808"},
	{"/exec", "session_id", NO_STRING " \"a\\u0000\""},
	{"/exec", "encoding", NO_STRING " \"hex\" \"BASE64\" \"base64 \" \"base64\\u0000\""},
	{"/exec/stream", "command", NO_STRING " null \"\" \"\\u0000\""},
	{"/exec/stream", "workdir", NO_STRING " \"\\u0000\""},
	{"/exec/stream", "env", "7 true [] \"A=b\" {\"A=B\":\"c\"}"},
	{"/exec/stream", "timeout", NO_NUMBER " -1 1e10"},
	{"/exec/stream", "session_id", NO_STRING},
	{"/exec/stream", "stdin", NO_BOOL},
	{"/exec/stdin", "pid", NO_NUMBER " null 1.5 1e-3"},
	{"/exec/stdin", "data", NO_STRING " null"},
	{"/exec/stdin/close", "pid", NO_NUMBER " null 0.5"},
	{"/exec/signal", "pid", NO_NUMBER " null 2.5"},
	{"/exec/signal", "signal",
		"1.5 true [] {} null \"\" \"NOPE\" \"SIG\" \"TERM\\u0000\" 0 -9 \"0\" \"-9\" 65 1000 "
		"4294967305 \"4294967305\" \" TERM\" \"9x\""},
	{"/exec/signal", "group", NO_BOOL},
};

// A request to PATH that is good but for KEY, which is VALUE (of N bytes).
static void put_request(struct buf *b, const char *path, const char *key, const char *value, size_t n, int64_t pid)
{
	char text[200];
	bool command = strcmp(path, "/exec") == 0 || strcmp(path, "/exec/stream") == 0;
	int len = snprintf(text, sizeof text, "{\"%s\":%.*s", key, (int)n, value);
	ck_assert(len > 0 && (size_t)len < sizeof text);
	buf_str(b, text);
	if (command && strcmp(key, "command") != 0)
		buf_str(b, "," MARK);
	(void)snprintf(text, sizeof text, ",\"pid\":%lld", (long long)pid);
	if (!command && strcmp(key, "pid") != 0)
		buf_str(b, text);
	if (strcmp(path, "/exec/stdin") == 0 && strcmp(key, "data") != 0)
		buf_str(b, ",\"data\":\"YQ==\"");
	if (strcmp(path, "/exec/signal") == 0 && strcmp(key, "signal") != 0)
		buf_str(b, ",\"signal\":\"KILL\"");
	buf_str(b, "}");
}

START_TEST(wrong_type_is_taken_for_a_value)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct sse *stream = sse_exec(d, "cat");
	int64_t pid = sse_pid(stream);
	struct client *c = client_connect(d);
	for (size_t i = 0; i < COUNT(typed); i++) {
		for (const char *v = typed[i].wrong; *v; v += strspn(v, " ")) {
			size_t n = strcspn(v, " ");
			if (*v == '"') // strings may hold blanks
				n = (size_t)(strchr(v + 1, '"') - v) + 1;
			struct buf b = {0};
			put_request(&b, typed[i].path, typed[i].key, v, n, pid);
			post_bytes(c, typed[i].path, buf_data(&b), buf_len(&b), &r);
			if (r.status != 400)
				ck_abort_msg("%s %s: status %d", typed[i].path, buf_cstr(&b), r.status);
			want_shape(&r, 400, "invalid_argument", NULL);
			buf_release(&b);
			v += n;
		}
	}
	want_nothing_ran(d);
	ck_assert_msg(d_nspid_alive(d, pid), "a refused request has ended the command");
	client_close(c);
	sse_close(stream);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Clients match these.
START_TEST(exact_message_is_another)
{
	static const struct {
		const char *path, *body;
		int status;
		const char *code, *msg;
	} cases[] = {
		{"/exec", "{}", 400, "invalid_argument", "command required"},
		{"/exec", "{\"command\":null}", 400, "invalid_argument", "command required"},
		{"/exec/stream", "{\"command\":\"\"}", 400, "invalid_argument", "command required"},
		{"/exec/stdin", "{\"pid\":999999,\"data\":\"YQ==\"}", 404, "not_found", "process not found"},
		{"/exec/stdin", "{\"pid\":0,\"data\":\"YQ==\"}", 404, "not_found", "process not found"},
		{"/exec/stdin", "{\"pid\":-1,\"data\":\"YQ==\"}", 404, "not_found", "process not found"},
		{"/exec/stdin", "{\"pid\":1,\"data\":\"YQ==\"}", 404, "not_found", "process not found"},
		{"/exec/stdin/close", "{\"pid\":4294967297}", 404, "not_found", "process not found"},
		{"/exec/stdin/close", "{\"pid\":9223372036854775807}", 404, "not_found", "process not found"},
		{"/exec/signal", "{\"pid\":1,\"signal\":9}", 404, "not_found", "process not found"},
		{"/exec/signal", "{\"pid\":0,\"signal\":9}", 404, "not_found", "process not found"},
		{"/exec/signal", "{\"pid\":-1,\"signal\":9}", 404, "not_found", "process not found"},
		{"/exec/signal", "{\"pid\":-9223372036854775808,\"signal\":9}", 404, "not_found", "process not found"},
	};
	static const char *const base64[] = {"Y", "YQ=", "YQ", "YQ==YQ==", "Y Q=", "YQ==\\n", "_w==", "=", "YQ==="};
	struct testd *d = d_start();
	struct resp r = {0};
	char text[128];
	for (size_t i = 0; i < COUNT(cases); i++) {
		req(d, "POST", cases[i].path, cases[i].body, &r);
		want_shape(&r, cases[i].status, cases[i].code, cases[i].msg);
	}
	struct sse *stream = sse_exec(d, "cat");
	long long pid = sse_pid(stream);
	for (size_t i = 0; i < COUNT(base64); i++) {
		(void)snprintf(text, sizeof text, "{\"pid\":%lld,\"data\":\"%s\"}", pid, base64[i]);
		req(d, "POST", "/exec/stdin", text, &r);
		if (r.status != 400)
			ck_abort_msg("%s: status %d", base64[i], r.status);
		want_shape(&r, 400, "invalid_argument", "invalid base64");
	}
	(void)snprintf(text, sizeof text, "{\"pid\":%lld}", pid);
	req(d, "POST", "/exec/stdin/close", text, &r);
	ck_assert_int_eq(r.status, 200);
	(void)snprintf(text, sizeof text, "{\"pid\":%lld,\"data\":\"YQ==\"}", pid);
	req(d, "POST", "/exec/stdin", text, &r);
	ck_assert_msg(r.status == 409 || r.status == 404, "status %d", r.status); // closed, or already at its end
	want_shape(&r, r.status, r.status == 409 ? "failed_precondition" : "not_found", NULL);
	sse_close(stream);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(attach_takes_any_query)
{
	static const struct {
		const char *query;
		int status;
	} cases[] = {
		{"", 400},
		{"?", 400},
		{"?pid", 400},
		{"?pid=", 400},
		{"?pid=a", 400},
		{"?pid=1a", 400},
		{"?pid=1.5", 400},
		{"?pid=0x1", 400},
		{"?pid=%00", 400},
		{"?pid=%zz", 400},
		{"?PID=1", 400},
		{"?xpid=1", 400},
		{"?pid=1%201", 400},
		{"?pid=1", 404},
		{"?pid=0", 404},
		{"?pid=-1", 404},
		{"?pid=999999", 404},
		{"?pid=4294967297", 404},
		{"?pid=99999999999999999999", 404},
		{"?a=b&pid=999999", 404},
	};
	struct testd *d = d_start();
	struct resp r = {0};
	char text[128];
	for (size_t i = 0; i < COUNT(cases); i++) {
		(void)snprintf(text, sizeof text, "/exec/attach%s", cases[i].query);
		req(d, "GET", text, NULL, &r);
		if (r.status != cases[i].status)
			ck_abort_msg("%s: status %d", text, r.status);
		want_shape(&r, r.status, r.status == 400 ? "invalid_argument" : "not_found",
			r.status == 404 ? "process not found" : NULL);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(wrong_method_or_path_is_no_json)
{
	static const char *const methods[] = {"GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"};
	static const char *const paths[] = {"/", "//", "/exec/", "//exec", "/EXEC", "/Exec", "/exec%2fstream",
		"/%65xec", "/exec/stream/", "/exec/../exec", "/./exec", "/exec;a=b", "/health/", "/healthz", "/exe",
		"/execs", "/.", "/exec/stdin/close/x", "/favicon.ico", "/exec%00", "/%"};
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(routes); i++)
		for (size_t k = 0; k < COUNT(methods); k++) {
			if (strstr(routes[i].allow, methods[k]))
				continue;
			client_request(c, methods[k], routes[i].path, NULL, NULL, 0);
			client_response(c, &r);
			want_shape(&r, 405, "unimplemented", NULL);
			ck_assert_str_eq(resp_header(&r, "Allow"), routes[i].allow);
		}
	for (size_t i = 0; i < COUNT(paths); i++)
		for (size_t k = 0; k < COUNT(methods); k++) {
			client_request(c, methods[k], paths[i], NULL, NULL, 0);
			client_response(c, &r);
			want_shape(&r, 404, "not_found", NULL);
			ck_assert_ptr_null(resp_header(&r, "Allow"));
		}
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- errors that time cures ---

static void want_retryable(struct resp *r, int status, const char *code, const char *reason)
{
	json_t *o = assert_error(r, status, code);
	ck_assert(j_bool(o, "retryable"));
	if (reason)
		ck_assert_str_eq(j_str(o, "reason"), reason);
	ck_assert_uint_eq(json_object_size(o), reason ? 4 : 3);
}

START_TEST(busy_is_a_lasting_error)
{
	struct testd *d = d_start("--max-procs", "2");
	struct resp r = {0};
	struct sse *a = sse_exec(d, "exec sleep 30");
	struct sse *b = sse_exec(d, "exec sleep 30");
	long long pid = sse_pid(a);
	(void)sse_pid(b);
	req(d, "POST", "/exec", "{" MARK "}", &r);
	want_retryable(&r, 429, "resource_exhausted", NULL);
	req(d, "POST", "/exec/stream", "{" MARK "}", &r);
	want_retryable(&r, 429, "resource_exhausted", NULL);
	// Nobody reads this stdin: the pipe, then the queue behind it, are full some time.
	struct buf data = {0};
	char head[64];
	(void)snprintf(head, sizeof head, "{\"pid\":%lld,\"data\":\"", pid);
	buf_str(&data, head);
	h_repeat(&data, "YWFh", 100000);
	buf_str(&data, "\"}");
	int accepted = 0;
	for (; accepted < 10; accepted++) {
		req(d, "POST", "/exec/stdin", buf_cstr(&data), &r);
		if (r.status != 200)
			break;
	}
	ck_assert_int_ge(accepted, 3);
	want_retryable(&r, 429, "resource_exhausted", NULL);
	sse_close(a);
	sse_close(b);
	buf_release(&data);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static bool is_stopping(void *arg)
{
	return d_log_has(arg, " stop: ");
}

// Also for a request that came before, and on every route but /health.
START_TEST(stopping_sandbox_says_nothing)
{
	static const char stubborn[] = "{\"command\":\"trap '' TERM; exec sleep 30\"}";
	struct testd *d = d_start("--stop-grace", "3000");
	struct resp r = {0};
	struct sse *s = sse_exec(d, "trap '' TERM; echo a; exec sleep 30");
	sse_until(s, FRAME_STDOUT, "a\n", NULL, 5000);
	struct client *waiting = client_connect(d);
	client_request(waiting, "POST", "/exec", NULL, stubborn, strlen(stubborn));
	ck_assert(client_silent(waiting, 100));
	d_signal(d, SIGTERM);
	ck_assert(wait_until(is_stopping, d, 3000));
	for (size_t i = 0; i < COUNT(routes); i++) {
		const char *method = strcmp(routes[i].path, "/ready") == 0 ? "POST" : routes[i].method;
		req(d, method, routes[i].path, routes[i].key ? "{" MARK "}" : NULL, &r);
		if (strcmp(routes[i].path, "/health") == 0)
			ck_assert_int_eq(r.status, 204);
		else
			want_retryable(&r, 503, "unavailable", "sandbox_terminating");
	}
	client_response(waiting, &r);
	want_retryable(&r, 503, "unavailable", "sandbox_terminating");
	client_close(waiting);
	sse_close(s);
	resp_release(&r);
	ck_assert_int_eq(d_wait(d, 8000), 0);
	d_finish(d);
}
END_TEST

Suite *errors_suite(void)
{
	Suite *s = suite_create("errors");
	TCase *tc = h_tcase(s, "input", 30);
	tcase_add_test(tc, bad_json_is_another_error);
	tcase_add_test(tc, deep_nesting_ends_the_daemon);
	tcase_add_test(tc, many_small_values_keep_the_memory);
	tcase_add_test(tc, wrong_type_is_taken_for_a_value);
	tcase_add_test(tc, exact_message_is_another);
	tcase_add_test(tc, attach_takes_any_query);
	tcase_add_test(tc, wrong_method_or_path_is_no_json);
	tc = h_tcase(s, "retry", 30);
	tcase_add_test(tc, busy_is_a_lasting_error);
	tcase_add_test(tc, stopping_sandbox_says_nothing);
	return s;
}
