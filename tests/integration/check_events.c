// SPDX-License-Identifier: Apache-2.0
// The journal of events.
#include "tests/integration/suites.h"
#include "tests/integration/workkit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

START_TEST(events_of_commands)
{
	struct testd *d = d_start();
	struct resp r = {0};
	req(d, "GET", "/events", NULL, &r);
	(void)assert_error(&r, 404, "not_found");
	req_pack(d, "POST", "/exec", &r, "{s:s, s:s}", "command", "exit 3", "session_id", "s1");
	ck_assert_str_eq(wk_event_names(d), "exec_start exec_end ");
	json_t *list = wk_events(d, "?limit=1");
	ck_assert_uint_eq(json_array_size(list), 1);
	const json_t *ev = json_array_get(list, 0);
	ck_assert_str_eq(j_str(ev, "ev"), "exec_end");
	ck_assert_str_eq(j_str(ev, "sid"), "s1");
	ck_assert_int_eq(j_int(ev, "exit"), 3);
	ck_assert_int_ge(j_int(ev, "dur_ms"), 0);
	json_decref(list);
	// A reader that hangs up does not keep the end from being told.
	struct sse *s = sse_exec(d, "sleep .2");
	(void)sse_pid(s);
	sse_close(s);
	wk_await_events(d, "exec_start exec_end exec_start exec_end ");
	req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s, s:s}", "command", "exit 5", "run_id", "r", "session_id",
		"s2");
	wk_await_events(d, "exec_start exec_end exec_start exec_end bg_submit bg_end ");
	list = wk_events(d, "?limit=2");
	for (size_t i = 0; i < 2; i++) {
		ck_assert_str_eq(j_str(json_array_get(list, i), "run_id"), "r");
		ck_assert_str_eq(j_str(json_array_get(list, i), "sid"), "s2");
	}
	ck_assert_int_eq(j_int(json_array_get(list, 1), "exit"), 5);
	json_decref(list);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(events_of_terminals)
{
	struct testd *d = d_start();
	struct resp r = {0};
	req_pack(d, "POST", "/pty/create", &r, "{s:[s,s,s]}", "argv", "/bin/sh", "-c", "exit 2");
	int64_t id = j_int(resp_json(&r), "terminal_id");
	wk_await_events(d, "pty_create pty_end ");
	json_t *list = wk_events(d, "");
	ck_assert_int_eq(j_int(json_array_get(list, 0), "terminal_id"), id);
	ck_assert_int_eq(j_int(json_array_get(list, 1), "exit"), 2);
	json_decref(list);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(events_of_files)
{
	struct testd *d = d_start();
	struct resp r = {0};
	req_pack(d, "POST", "/files/write", &r, "{s:s, s:s}", "path", "dir/f", "content", "x");
	ck_assert_int_eq(r.status, 200);
	req(d, "GET", "/files/read?path=dir/f", NULL, &r);
	ck_assert_int_eq(r.status, 200);
	req(d, "GET", "/files/read?path=none", NULL, &r);
	ck_assert_int_eq(r.status, 404);
	ck_assert_str_eq(wk_event_names(d), "file_write file_read ");
	json_t *list = wk_events(d, "");
	for (size_t i = 0; i < 2; i++) {
		const char *path = j_str(json_array_get(list, i), "path");
		ck_assert_str_eq(path + strlen(path) - 5, "dir/f");
	}
	json_decref(list);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(bad_limits)
{
	static const char *const bad[] = {"?limit=x", "?limit=-1", "?limit=1.5"};
	struct testd *d = d_start();
	struct resp r = {0};
	char target[64];
	(void)run(d, "true", &r);
	for (int i = 0; i < COUNT(bad); i++) {
		(void)snprintf(target, sizeof target, "/events%s", bad[i]);
		req(d, "GET", target, NULL, &r);
		(void)assert_error(&r, 400, "invalid_argument");
	}
	json_decref(wk_events(d, "?limit="));
	json_decref(wk_events(d, "?limit=0"));
	json_decref(wk_events(d, "?limit=99999999999999999999"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The file belongs to the sandbox: whatever is in it, the answer is an array of objects.
START_TEST(spoiled_journal)
{
	struct testd *d = d_start();
	struct resp r = {0};
	json_t *list = json_loads("[]", 0, NULL);
	(void)run(d, "true", &r);
	(void)run(d,
		"cd .k8e_events; { echo; echo ']'; echo '[1]'; echo '{\"a\":'; echo '\"x\"'; head -c 300000 /dev/zero; "
		"echo; printf '\\377\\n'; } >>events.ndjson",
		&r);
	(void)run(d, "printf '{\"t\":1}' >>.k8e_events/events.ndjson", &r);
	req(d, "GET", "/events", NULL, &r);
	json_decref(list);
	list = json_loadb((const char *)buf_data(&r.body), buf_len(&r.body), 0, NULL);
	ck_assert_msg(json_is_array(list), "%.300s", buf_cstr(&r.body));
	json_decref(list);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static void fill_journal(const struct testd *d, int first, int64_t bytes)
{
	struct buf b = {0};
	for (int i = first; (int64_t)buf_len(&b) < bytes; i++)
		buf_printf(&b, "{\"t\":1700000000,\"ev\":\"old\",\"sid\":\"\",\"n\":%d}\n", i);
	(void)mkdir(wk_path(d, ".k8e_events"), 0755);
	int fd = open(wk_path(d, ".k8e_events/events.ndjson"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, buf_data(&b), buf_len(&b)), (ssize_t)buf_len(&b));
	(void)close(fd);
	buf_release(&b);
}

START_TEST(journal_is_rotated)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct stat st;
	fill_journal(d, 0, (4 << 20) - 60);
	(void)run(d, "true", &r);
	ck_assert_int_eq(stat(wk_path(d, ".k8e_events/events.ndjson.1"), &st), 0);
	ck_assert_int_ge(st.st_size, (4 << 20) - 60);
	ck_assert_int_eq(stat(wk_path(d, ".k8e_events/events.ndjson"), &st), 0);
	ck_assert_int_lt(st.st_size, 1000);
	// The last lines, over both.
	json_t *list = wk_events(d, "?limit=10");
	ck_assert_uint_eq(json_array_size(list), 10);
	ck_assert_str_eq(j_str(json_array_get(list, 9), "ev"), "exec_end");
	int64_t n = j_int(json_array_get(list, 0), "n");
	for (size_t i = 0; i < 8; i++)
		ck_assert_int_eq(j_int(json_array_get(list, i), "n"), n + (int64_t)i);
	json_decref(list);
	// All of them: a long answer.
	list = wk_events(d, "?limit=100000");
	ck_assert_uint_gt(json_array_size(list), 50000);
	ck_assert_int_eq(j_int(json_array_get(list, 0), "n"), 0);
	json_decref(list);
	ck_assert_uint_eq(json_array_size(list = wk_events(d, "")), 500);
	json_decref(list);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static const char *const plants[] = {
	"ln -s $OUT .k8e_events",
	"mkfifo .k8e_events",
	"mkdir .k8e_events; ln -s $OUT/events.ndjson .k8e_events/events.ndjson",
	"mkdir .k8e_events; ln $OUT/events.ndjson .k8e_events/events.ndjson",
	"mkdir .k8e_events; mkfifo .k8e_events/events.ndjson",
	"mkdir -p .k8e_events/events.ndjson",
	"mkdir .k8e_events; ln -s $OUT/events.ndjson .k8e_events/events.ndjson.1",
};

START_TEST(planted_journal)
{
	struct testd *d = d_start();
	struct resp r = {0};
	char cmd[1200];
	(void)snprintf(cmd, sizeof cmd,
		"cd %s && OUT=%s/out && mkdir $OUT && echo '{\"t\":1,\"ev\":\"secret\",\"sid\":\"\"}' "
		">$OUT/events.ndjson && { %s; }",
		d->workspace, d->base, plants[_i]);
	ck_assert_int_eq(system(cmd), 0);
	for (int i = 0; i < 3; i++) {
		req(d, "GET", "/events", NULL, &r);
		ck_assert_ptr_null(strstr(buf_cstr(&r.body), "secret"));
		ck_assert_str_eq(j_str(run(d, "echo more", &r), "stdout"), "more\n");
	}
	(void)snprintf(cmd, sizeof cmd, "cd %s/out && ls -A && cat events.ndjson", d->base);
	ck_assert_str_eq(j_str(run(d, cmd, &r), "stdout"), "events.ndjson\n{\"t\":1,\"ev\":\"secret\",\"sid\":\"\"}\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *events_suite(void)
{
	Suite *s = suite_create("events");
	TCase *tc = h_tcase(s, "events", 30);
	tcase_add_test(tc, events_of_commands);
	tcase_add_test(tc, events_of_terminals);
	tcase_add_test(tc, events_of_files);
	tcase_add_test(tc, bad_limits);
	tcase_add_test(tc, spoiled_journal);
	tcase_add_test(tc, journal_is_rotated);
	tcase_add_loop_test(tc, planted_journal, 0, COUNT(plants));
	return s;
}
