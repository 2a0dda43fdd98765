// SPDX-License-Identifier: Apache-2.0
// Background runs: what is on the disk, what is told of them while they run, at their end, and when somebody disturbs them.
#include "tests/integration/suites.h"
#include "tests/integration/workkit.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

START_TEST(run_from_start_to_end)
{
	struct testd *d = d_start();
	struct resp r = {0};
	ck_assert_int_eq(mkfifo(wk_path(d, "gate"), 0600), 0);
	req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s, s:i}", "command",
		"echo out; echo err >&2; read x <gate; exit 4", "run_id", "run-1", "timeout", 300);
	assert_text(&r.body, "{\"status\":\"started\",\"run_id\":\"run-1\"}");
	(void)wk_run(d, "run-1", &r);
	assert_text(&r.body, "{\"run_id\":\"run-1\",\"status\":\"running\"}");
	ck_assert_int_eq(r.status, 200);
	ck_assert_int_ge(atoi(wk_content(wk_run_path(d, "run-1", "pid"))), 2);
	ck_assert_int_ge(atoi(wk_content(wk_run_path(d, "run-1", "started_at"))), 1000000000);
	ck_assert_int_lt(access(wk_run_path(d, "run-1", "exit_code"), F_OK), 0);
	wk_put(wk_path(d, "gate"), "go\n");
	(void)wk_await(d, "run-1", &r);
	assert_text(&r.body, "{\"run_id\":\"run-1\",\"status\":\"completed\",\"exit_code\":4,\"stdout\":\"out\\n\","
			     "\"stderr\":\"err\\n\",\"truncated\":false}");
	ck_assert_str_eq(wk_content(wk_run_path(d, "run-1", "exit_code")), "4\n");
	ck_assert_str_eq(wk_content(wk_run_path(d, "run-1", "stdout")), "out\n");
	ck_assert_str_eq(wk_content(wk_run_path(d, "run-1", "stderr")), "err\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(missing_keys)
{
	static const char *const bodies[] = {"{\"command\": \"true\"}", "{\"run_id\":\"a\"}", "{}",
		"{\"command\":\"true\",\"run_id\":\"\"}", "{\"command\":\"\",\"run_id\":\"a\"}",
		"{\"command\":\"true\",\"run_id\":null}"};
	struct testd *d = d_start();
	struct resp r = {0};
	for (int i = 0; i < COUNT(bodies); i++) {
		req(d, "POST", "/exec/background", bodies[i], &r);
		ck_assert_str_eq(
			j_str(assert_error(&r, 400, "invalid_argument"), "error"), "command and run_id required");
	}
	ck_assert_int_lt(access(wk_path(d, ".k8e_bg"), F_OK), 0);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(run_id_is_a_path)
{
	static const char *const ids[] = {
		"../../tmp/escaped", ".", "..", "a/b", "/etc", "a b", "a\\u0000b", "a\\n", "\\u00e9", "a%2fb"};
	struct testd *d = d_start();
	struct resp r = {0};
	char body[512], longest[130];
	for (int i = 0; i < COUNT(ids); i++) {
		(void)snprintf(body, sizeof body, "{\"command\":\"touch ran\",\"run_id\":\"%s\"}", ids[i]);
		req(d, "POST", "/exec/background", body, &r);
		ck_assert_str_eq(j_str(assert_error(&r, 400, "invalid_argument"), "error"), "invalid run_id");
	}
	memset(longest, 'x', 129);
	longest[129] = '\0';
	req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s}", "command", "touch ran", "run_id", longest);
	(void)assert_error(&r, 400, "invalid_argument");
	req(d, "GET", "/exec/background/..%2f..%2fetc", NULL, &r);
	(void)assert_error(&r, 400, "invalid_argument");
	ck_assert_int_lt(access(wk_path(d, "ran"), F_OK), 0);
	ck_assert_int_lt(access(wk_path(d, ".k8e_bg"), F_OK), 0);
	longest[128] = '\0';
	wk_submit(d, longest, "true");
	wk_assert_over(d, longest, "completed", 0);
	wk_submit(d, "...", "true");
	wk_assert_over(d, "...", "completed", 0);
	wk_submit(d, "-_.A9", "exit 1");
	wk_assert_over(d, "-_.A9", "completed", 1);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(unknown_run)
{
	struct testd *d = d_start();
	struct resp r = {0};
	ck_assert_str_eq(j_str(wk_run(d, "none", &r), "status"), "not_found");
	ck_assert_str_eq(j_str(assert_error(&r, 404, "not_found"), "run_id"), "none");
	wk_submit(d, "some", "true");
	wk_assert_over(d, "some", "completed", 0);
	ck_assert_str_eq(j_str(wk_run(d, "none", &r), "status"), "not_found");
	ck_assert_int_eq(r.status, 404);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(killed_shell_stays_running)
{
	struct testd *d = d_start();
	struct resp r = {0};
	wk_submit(d, "self", "echo x; kill -KILL $$");
	ck_assert_str_eq(j_str(wk_await(d, "self", &r), "signal"), "SIGKILL");
	ck_assert_str_eq(j_str(resp_json(&r), "stdout"), "x\n");
	wk_assert_over(d, "self", "completed", -1);
	wk_submit(d, "other", "sleep 1000");
	req_pack(d, "POST", "/exec/signal", &r, "{s:i, s:s}", "pid", atoi(wk_content(wk_run_path(d, "other", "pid"))),
		"signal", "TERM");
	ck_assert_int_eq(r.status, 200);
	ck_assert_str_eq(j_str(wk_await(d, "other", &r), "signal"), "SIGTERM");
	wk_assert_over(d, "other", "completed", -1);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Long after the table has forgotten it too.
START_TEST(timed_out_run)
{
	struct testd *d = d_start("--retention", "0");
	struct resp r = {0};
	req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s, s:f}", "command", "sleep 30 & sleep 30", "run_id",
		"run-t", "timeout", 0.3);
	ck_assert_int_eq(r.status, 200);
	for (int i = 0; i < 3; i++) {
		const json_t *o = wk_await(d, "run-t", &r);
		ck_assert_str_eq(j_str(o, "status"), "timed_out");
		ck_assert_int_eq(j_int(o, "exit_code"), -1);
		ck_assert_str_eq(j_str(o, "stdout"), "");
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(no_timeout_unless_asked_for)
{
	struct testd *d = d_start("--timeout", "1");
	wk_submit(d, "long", "sleep 1.4; echo done");
	wk_assert_over(d, "long", "completed", 0);
	d_finish(d);
}
END_TEST

START_TEST(same_run_id_again)
{
	struct testd *d = d_start();
	struct resp r = {0};
	wk_submit(d, "r", "echo first; sleep 1000");
	req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s}", "command", "touch ran", "run_id", "r");
	(void)assert_error(&r, 409, "already_exists");
	ck_assert_int_lt(access(wk_path(d, "ran"), F_OK), 0);
	req_pack(d, "POST", "/exec/signal", &r, "{s:i, s:s}", "pid", atoi(wk_content(wk_run_path(d, "r", "pid"))),
		"signal", "KILL");
	wk_assert_over(d, "r", "completed", -1);
	wk_submit(d, "r", "echo second; exit 2");
	const json_t *o = wk_await(d, "r", &r);
	ck_assert_str_eq(j_str(o, "stdout"), "second\n");
	ck_assert(!j_has(o, "signal"));
	wk_assert_over(d, "r", "completed", 2);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(start_that_fails_leaves_nothing)
{
	struct testd *d = d_start();
	struct resp r = {0};
	wk_submit(d, "old", "echo kept; exit 3");
	wk_assert_over(d, "old", "completed", 3);
	for (int i = 0; i < 2; i++) {
		req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s, s:s}", "command", "true", "run_id",
			i ? "new" : "old", "workdir", "/none");
		(void)assert_error(&r, 400, "invalid_argument");
	}
	ck_assert_str_eq(j_str(wk_await(d, "old", &r), "stdout"), "kept\n");
	wk_assert_over(d, "old", "completed", 3);
	ck_assert_str_eq(j_str(wk_run(d, "new", &r), "status"), "not_found");
	ck_assert_int_lt(access(wk_path(d, ".k8e_bg/new"), F_OK), 0);
	ck_assert_str_eq(
		j_str(run(d, "ls -A .k8e_bg/old", &r), "stdout"), "end\nexit_code\npid\nstarted_at\nstderr\nstdout\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B32
START_TEST(output_is_complete)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct buf want = {0};
	wk_submit(d, "out", "for i in $(seq 40000); do echo $i; done; seq 40000 >&2; exit 7");
	const json_t *o = wk_await(d, "out", &r);
	for (int i = 1; i <= 40000; i++)
		buf_printf(&want, "%d\n", i);
	ck_assert_str_eq(j_str(o, "stdout"), buf_cstr(&want));
	ck_assert_str_eq(j_str(o, "stderr"), buf_cstr(&want));
	ck_assert_int_eq(j_int(o, "exit_code"), 7);
	ck_assert(!j_bool(o, "truncated"));
	buf_release(&want);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(tail_of_a_long_output)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct client *c = client_connect(d), *h = client_connect(d);
	// Characters of two bytes, one byte off: the tail would begin within one.
	wk_submit(d, "long", "printf x; yes é | tr -d '\\n' | head -c 12582912; yes ab | head -c 100 >&2");
	(void)wk_await(d, "long", &r);
	resp_release(&r);
	client_request(c, "GET", "/exec/background/long", NULL, NULL, 0);
	int64_t worst = 0;
	for (int i = 0; i < 20; i++) {
		int64_t start = h_now_ms();
		client_request(h, "GET", "/health", NULL, NULL, 0);
		client_response(h, &r);
		ck_assert_int_eq(r.status, 204);
		resp_release(&r);
		worst = h_now_ms() - start > worst ? h_now_ms() - start : worst;
	}
	ck_assert_int_lt(worst, h_scaled(100)); // not a measurement: that it is not the whole answer
	client_response(c, &r);
	const json_t *o = resp_json(&r);
	const char *text = j_str(o, "stdout");
	size_t n = strlen(text);
	ck_assert_uint_le(n, 10485760);
	ck_assert_uint_ge(n, 10485760 - 4);
	ck_assert_int_eq(memcmp(text, "é", 2), 0);
	ck_assert_ptr_null(strstr(text, "\xef\xbf\xbd\xef\xbf\xbd"));
	ck_assert(j_bool(o, "truncated"));
	resp_release(&r);
	client_close(c);
	client_close(h);
	d_finish(d);
}
END_TEST

START_TEST(output_that_is_no_text)
{
	struct testd *d = d_start();
	struct resp r = {0};
	wk_submit(d, "raw", "printf 'a\\377b\\000c\\033\"\\\\'; head -c 100000 /dev/zero | tr '\\0' '\\303' >&2");
	const json_t *o = wk_await(d, "raw", &r);
	const json_t *out = j_get(o, "stdout");
	ck_assert_uint_eq(json_string_length(out), 10);
	ck_assert_int_eq(memcmp(json_string_value(out),
				 "a\xef\xbf\xbd"
				 "b\0c\033\"\\",
				 10),
		0);
	ck_assert_uint_eq(json_string_length(j_get(o, "stderr")), 300000);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B23
START_TEST(stdin_is_empty)
{
	struct testd *d = d_start();
	struct resp r = {0};
	wk_submit(d, "cat", "cat; readlink /proc/self/fd/0");
	ck_assert_str_eq(j_str(wk_await(d, "cat", &r), "stdout"), "/dev/null\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B08
START_TEST(grandchild_keeps_the_run_going)
{
	struct testd *d = d_start();
	struct resp r = {0};
	wk_submit(d, "bg", "sleep 1000 & echo up; exit 5");
	ck_assert_str_eq(j_str(wk_await(d, "bg", &r), "stdout"), "up\n");
	wk_assert_over(d, "bg", "completed", 5);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(run_is_listed_and_attached)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct sse_out o = {0};
	wk_submit(d, "l", "echo hello; read x <gate 2>/dev/null; sleep .3; exit 6");
	int pid = atoi(wk_content(wk_run_path(d, "l", "pid")));
	req(d, "GET", "/exec/processes", NULL, &r);
	const json_t *first = json_array_get(j_get(resp_json(&r), "processes"), 0);
	ck_assert_int_eq(j_int(first, "pid"), pid);
	ck_assert_str_eq(j_str(first, "kind"), "background");
	struct sse *s = sse_attach(d, pid);
	sse_collect(s, &o, CLIENT_DEADLINE);
	assert_text(&o.ch[FRAME_STDOUT], "hello\n");
	ck_assert_int_eq(o.end.code, 6);
	sse_out_release(&o);
	sse_close(s);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// An attached client that does not read costs the run nothing: it is cut, the files are whole.
START_TEST(stuck_attacher_holds_the_run_up)
{
	struct testd *d = d_start();
	struct resp r = {0};
	wk_submit(d, "s", "sleep .3; head -c 20000000 /dev/zero; echo end >&2");
	char target[64];
	(void)snprintf(target, sizeof target, "/exec/attach?pid=%d", atoi(wk_content(wk_run_path(d, "s", "pid"))));
	struct sse *s = sse_open_with(d, target, NULL, NULL, 4096);
	ck_assert_str_eq(j_str(wk_await(d, "s", &r), "stderr"), "end\n");
	struct stat st;
	ck_assert_int_eq(stat(wk_run_path(d, "s", "stdout"), &st), 0);
	ck_assert_int_eq(st.st_size, 20000000);
	sse_close(s);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *background_suite(void)
{
	Suite *s = suite_create("background");
	TCase *tc = h_tcase(s, "life", 30);
	tcase_add_test(tc, run_from_start_to_end);
	tcase_add_test(tc, missing_keys);
	tcase_add_test(tc, run_id_is_a_path);
	tcase_add_test(tc, unknown_run);
	tcase_add_test(tc, killed_shell_stays_running);
	tcase_add_test(tc, timed_out_run);
	tcase_add_test(tc, no_timeout_unless_asked_for);
	tcase_add_test(tc, same_run_id_again);
	tcase_add_test(tc, start_that_fails_leaves_nothing);
	tcase_add_test(tc, grandchild_keeps_the_run_going);
	tc = h_tcase(s, "output", 40);
	tcase_add_test(tc, output_is_complete);
	tcase_add_test(tc, tail_of_a_long_output);
	tcase_add_test(tc, output_that_is_no_text);
	tcase_add_test(tc, stdin_is_empty);
	tcase_add_test(tc, run_is_listed_and_attached);
	tcase_add_test(tc, stuck_attacher_holds_the_run_up);
	return s;
}
