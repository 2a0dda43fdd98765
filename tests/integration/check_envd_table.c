// SPDX-License-Identifier: Apache-2.0
// The one table of processes as surface B shows it: List, SendSignal, and what the other surface sees.
#include "tests/integration/calls.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START "process.Process/Start"
#define LIST "process.Process/List"
#define SIGNAL "process.Process/SendSignal"

static char *format(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// The caller's.
static char *format(const char *fmt, ...)
{
	char *s;
	va_list ap;
	va_start(ap, fmt);
	ck_assert_int_ge(vasprintf(&s, fmt, ap), 0);
	va_end(ap);
	return s;
}

// --- List ---

static bool lists_nothing(void *arg)
{
	json_t *l = call(arg, LIST, CODEC_PROTO, NULL, "{}");
	bool none = json_object_size(l) == 0;
	json_decref(l);
	return none;
}

START_TEST(a_list_says_what_was_asked_word_for_word)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	ck_assert(lists_nothing(d));
	struct stream *s = stream_open(d, START, codec, NULL,
		"{\"process\":{\"cmd\":\"sleep\",\"args\":[\"2000\"],\"envs\":{\"B\":\"2\",\"A\":\"\"},\"cwd\":\"~\"},"
		"\"stdin\":false,\"tag\":\"lt\"}");
	int64_t pid = stream_pid(s);
	json_t *l = call(d, LIST, codec, NULL, "{}");
	char *got = j_text(l);
	char *want = format("{\"processes\":[{\"config\":{\"cmd\":\"sleep\",\"args\":[\"2000\"],\"envs\":{\"A\":\"\","
			    "\"B\":\"2\"},\"cwd\":\"~\"},\"pid\":%lld,\"tag\":\"lt\"}]}",
		(long long)pid);
	ck_assert_str_eq(got, want);
	json_decref(l);
	free(got);
	free(want);
	json_decref(call(d, SIGNAL, codec, NULL, "{\"process\":{\"tag\":\"lt\"},\"signal\":\"SIGNAL_SIGKILL\"}"));
	struct played o = {0};
	stream_play(s, &o, 5000);
	played_assert_signal(&o, "killed");
	ck_assert(lists_nothing(d));
	played_release(&o);
	stream_close(s);
	d_finish(d);
}
END_TEST

START_TEST(both_surfaces_have_one_table)
{
	struct testd *d = d_start(CALLS_ENVD);
	struct resp r = {0};
	struct sse *a = sse_open_pack(
		d, "/exec/stream", "{s:s,s:s,s:{s:s}}", "command", "sleep 1000", "workdir", "/tmp", "env", "K", "v");
	struct stream *b = stream_open(
		d, START, CODEC_JSON, NULL, "{\"process\":{\"cmd\":\"cat\",\"args\":[\"-u\"]},\"tag\":\"b\"}");
	long long pid_a = sse_pid(a), pid_b = stream_pid(b);
	json_t *l = call(d, LIST, CODEC_JSON, NULL, "{}");
	char *got = j_text(l);
	char *want = format(
		"{\"processes\":[{\"config\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"sleep 1000\"],\"envs\":{\"K\":"
		"\"v\"},\"cwd\":\"/tmp\"},\"pid\":%lld},{\"config\":{\"cmd\":\"cat\",\"args\":[\"-u\"]},\"pid\":%lld,"
		"\"tag\":\"b\"}]}",
		pid_a, pid_b);
	ck_assert_str_eq(got, want);
	free(got);
	free(want);
	json_decref(l);
	req(d, "GET", "/exec/processes", NULL, &r);
	json_t *second = json_array_get(j_get(resp_json(&r), "processes"), 1);
	ck_assert_int_eq(j_int(second, "pid"), pid_b);
	ck_assert_str_eq(j_str(second, "config"), "cat -u");
	// Each ends the other's.
	req_pack(d, "POST", "/exec/signal", &r, "{s:I,s:s}", "pid", (json_int_t)pid_b, "signal", "TERM");
	struct played o = {0};
	stream_play(b, &o, 5000);
	played_assert_signal(&o, "terminated");
	char *kill = format("{\"process\":{\"pid\":%lld},\"signal\":9}", pid_a);
	json_decref(call(d, SIGNAL, CODEC_JSON, NULL, kill));
	struct sse_event e = {0};
	sse_expect(a, &e, SSE_EXIT, 5000);
	ck_assert_str_eq(e.signal, "SIGKILL");
	sse_event_release(&e);
	free(kill);
	played_release(&o);
	resp_release(&r);
	sse_close(a);
	stream_close(b);
	d_finish(d);
}
END_TEST

// --- SendSignal ---

// B15
START_TEST(a_kill_reaches_the_group)
{
	struct testd *d = d_start(CALLS_ENVD);
	char *json = sh_request("for i in 1 2 3; do (exec sleep 7654321)& done; echo up; wait", "");
	struct stream *s = stream_open(d, START, (enum codec)_i, NULL, json);
	int64_t pid = stream_pid(s);
	stream_until(s, FRAME_STDOUT, "up", NULL, 5000);
	char *kill = format("{\"process\":{\"pid\":%lld},\"signal\":\"SIGNAL_SIGKILL\"}", (long long)pid);
	int64_t at = h_now_ms();
	json_decref(call(d, SIGNAL, (enum codec)_i, NULL, kill));
	struct played o = {0};
	stream_play(s, &o, 5000);
	played_assert_signal(&o, "killed");
	ck_assert_int_lt(o.end_at - at, h_scaled(1000));
	ck_assert(!d_nspid_alive(d, pid));
	ck_assert(wait_until((bool (*)(void *))d_no_commands, d, 2000));
	call_fails(d, SIGNAL, (enum codec)_i, NULL, kill, "not_found", NULL);
	played_release(&o);
	free(kill);
	free(json);
	stream_close(s);
	d_finish(d);
}
END_TEST

// B16
START_TEST(only_processes_of_the_table_are_signalled)
{
	static const struct {
		const char *json, *code, *message;
	} cases[] = {
		{"{\"process\":{\"pid\":0},\"signal\":9}", "not_found", "process with pid 0 not found"},
		{"{\"process\":{\"pid\":1},\"signal\":9}", "not_found", "process with pid 1 not found"},
		{"{\"process\":{\"pid\":2147483648},\"signal\":9}", "not_found",
			"process with pid 2147483648 not found"},
		{"{\"process\":{\"pid\":4294967295},\"signal\":9}", "not_found", "not found"},
		{"{\"process\":{\"tag\":\"\"},\"signal\":9}", "not_found", "process with tag  not found"},
		{"{\"process\":{\"tag\":\"no\"}}", "not_found", "process with tag no not found"},
		{"{\"process\":{},\"signal\":9}", "unimplemented", "invalid input type *process.ProcessSelector"},
		{"{\"signal\":9}", "unimplemented", "invalid input type *process.ProcessSelector"},
		{"{\"process\":{\"tag\":\"t\"}}", "unimplemented", "invalid signal: SIGNAL_UNSPECIFIED"},
		{"{\"process\":{\"tag\":\"t\"},\"signal\":2}", "unimplemented", "invalid signal: 2"},
	};
	static const char *const bad[] = {"{\"process\":{\"pid\":-1},\"signal\":9}",
		"{\"process\":{\"pid\":1099511627776},\"signal\":9}", "{\"process\":{\"pid\":\"x\"},\"signal\":9}"};
	struct testd *d = d_start(CALLS_ENVD);
	struct stream *s = stream_open(d, START, CODEC_JSON, NULL, "{\"process\":{\"cmd\":\"cat\"},\"tag\":\"t\"}");
	(void)stream_pid(s);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char message[256];
		call_fails(d, SIGNAL, (enum codec)_i, NULL, cases[i].json, cases[i].code, message);
		ck_assert_msg(strstr(message, cases[i].message), "%s: %s", cases[i].json, message);
	}
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		call_fails(d, SIGNAL, CODEC_JSON, NULL, bad[i], "invalid_argument", NULL);
	stream_close(s);
	d_finish(d);
}
END_TEST

Suite *envd_table_suite(void)
{
	Suite *s = suite_create("envd_table");
	TCase *t = h_tcase(s, "table", 40);
	tcase_add_loop_test(t, a_list_says_what_was_asked_word_for_word, 0, CODECS);
	tcase_add_test(t, both_surfaces_have_one_table);
	tcase_add_loop_test(t, a_kill_reaches_the_group, 0, CODECS);
	tcase_add_loop_test(t, only_processes_of_the_table_are_signalled, 0, CODECS);
	return s;
}
