// SPDX-License-Identifier: Apache-2.0
// Transcripts: what is written for a session, and the windows through which it is read.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static void put_transcript(const struct testd *d, const char *session, const char *text)
{
	char path[512];
	(void)snprintf(path, sizeof path, "%s/.k8e_transcripts", d->workspace);
	(void)mkdir(path, 0755);
	(void)snprintf(path, sizeof path, "%s/.k8e_transcripts/%s.log", d->workspace, session);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(fd);
}

static json_t *window(const struct testd *d, const char *query, struct resp *r)
{
	char target[256];
	(void)snprintf(target, sizeof target, "/transcript?%s", query);
	req(d, "GET", target, NULL, r);
	if (r->status != 200)
		ck_abort_msg("%s: status %d %s", query, r->status, buf_cstr(&r->body));
	return resp_json(r);
}

// The whole transcript without its times, each checked to be one.
static const char *whole(const struct testd *d, const char *session)
{
	static struct buf out;
	struct resp r = {0};
	char query[200];
	int64_t at = 0;
	bool eof = false;
	struct buf raw = {0};
	buf_reset(&out);
	while (!eof) {
		(void)snprintf(query, sizeof query, "session=%s&offset=%lld", session, (long long)at);
		const json_t *o = window(d, query, &r);
		buf_append(&raw, json_string_value(j_get(o, "output")), json_string_length(j_get(o, "output")));
		ck_assert_int_gt(j_int(o, "next_offset"), at - (at == 0));
		at = j_int(o, "next_offset");
		eof = j_bool(o, "eof");
	}
	const char *p = buf_cstr(&raw);
	while (*p) {
		char *end;
		ck_assert_int_ge(strtoll(p, &end, 10), 1000000000);
		ck_assert_int_eq(*end, ' ');
		const char *nl = strchr(end, '\n');
		ck_assert_ptr_nonnull(nl);
		buf_append(&out, end + 1, (size_t)(nl - end));
		p = nl + 1;
	}
	buf_release(&raw);
	resp_release(&r);
	return buf_cstr(&out);
}

static void exec_in(const struct testd *d, const char *session, const char *command)
{
	struct resp r = {0};
	req_pack(d, "POST", "/exec", &r, "{s:s, s:s}", "command", command, "session_id", session);
	ck_assert_int_eq(r.status, 200);
	resp_release(&r);
}

START_TEST(commands_of_a_session)
{
	struct testd *d = d_start();
	struct resp r = {0};
	exec_in(d, "s1", "echo one; echo two");
	exec_in(d, "other", "echo not here");
	exec_in(d, "s1", "printf part; sleep .1; printf 'ial\\n\\nend' >&1; exec >&2; sleep .1; echo err");
	exec_in(d, "s1", "true\n\n# a comment\n");
	ck_assert_str_eq(whole(d, "s1"),
		"cmd echo one; echo two\nstdout one\nstdout two\n"
		"cmd printf part; sleep .1; printf 'ial\\n\\nend' >&1; exec >&2; sleep .1; echo err\n"
		"stdout partial\nstdout \nstderr err\nstdout end\n"
		"cmd true\ncmd \ncmd # a comment\n");
	ck_assert_str_eq(whole(d, "other"), "cmd echo not here\nstdout not here\n");
	(void)run(d, "echo no session", &r);
	req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s, s:s}", "command", "echo bg", "run_id", "r",
		"session_id", "s2");
	struct sse *s = sse_open_pack(d, "/exec/stream", "{s:s, s:s}", "command", "echo streamed", "session_id", "s3");
	struct sse_out o = {0};
	sse_collect(s, &o, CLIENT_DEADLINE);
	ck_assert_str_eq(whole(d, "s3"), "cmd echo streamed\nstdout streamed\n");
	int64_t end = h_now_ms() + h_scaled(5000);
	while (strcmp(whole(d, "s2"), "cmd echo bg\nstdout bg\n") != 0) {
		ck_assert_int_lt(h_now_ms(), end);
		h_tick();
	}
	const json_t *ls = run(d, "ls -A .k8e_transcripts", &r);
	ck_assert_str_eq(j_str(ls, "stdout"), "other.log\ns1.log\ns2.log\ns3.log\n");
	sse_out_release(&o);
	sse_close(s);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Lines come while the command runs.
START_TEST(transcript_of_a_running_command)
{
	struct testd *d = d_start();
	struct sse *s =
		sse_open_pack(d, "/exec/stream", "{s:s, s:s}", "command", "echo now; read x", "session_id", "live");
	(void)sse_pid(s);
	sse_until(s, FRAME_STDOUT, "now\n", NULL, CLIENT_DEADLINE);
	ck_assert_str_eq(whole(d, "live"), "cmd echo now; read x\nstdout now\n");
	sse_close(s);
	d_finish(d);
}
END_TEST

START_TEST(long_line_is_cut_into_several)
{
	struct testd *d = d_start();
	exec_in(d, "s", "head -c 20000 /dev/zero | tr '\\0' a");
	struct buf want = {0};
	BUF_LIT(&want, "cmd head -c 20000 /dev/zero | tr '\\0' a\nstdout ");
	h_repeat(&want, "a", 8192);
	BUF_LIT(&want, "\nstdout ");
	h_repeat(&want, "a", 8192);
	BUF_LIT(&want, "\nstdout ");
	h_repeat(&want, "a", 20000 - 2 * 8192);
	BUF_LIT(&want, "\n");
	ck_assert_str_eq(whole(d, "s"), buf_cstr(&want));
	buf_release(&want);
	d_finish(d);
}
END_TEST

START_TEST(large_output_is_all_there)
{
	struct testd *d = d_start();
	exec_in(d, "s", "seq 20000; seq 20000 >&2");
	const char *p = whole(d, "s");
	int out = 0, err = 0;
	for (const char *nl = strchr(p, '\n') + 1; *nl; nl = strchr(nl, '\n') + 1) {
		int n = atoi(nl + 7);
		if (strncmp(nl, "stdout ", 7) == 0)
			ck_assert_int_eq(n, ++out);
		else
			ck_assert_int_eq(n, ++err);
	}
	ck_assert_int_eq(out, 20000);
	ck_assert_int_eq(err, 20000);
	d_finish(d);
}
END_TEST

// B04: a transcript is no second reader whose progress would get a slow one cut.
START_TEST(slow_reader_with_a_session_is_cut)
{
	struct testd *d = d_start();
	struct sse *s = sse_open_with(d, "/exec/stream", NULL,
		"{\"command\":\"head -c 12000000 /dev/zero | tr '\\\\0' q\",\"session_id\":\"slow\"}", 4096);
	int64_t end = h_now_ms() + 2500;
	while (h_now_ms() < end)
		h_tick();
	struct sse_out o = {0};
	sse_collect(s, &o, 30000);
	ck_assert_uint_eq(buf_len(&o.ch[FRAME_STDOUT]), 12000000);
	ck_assert_int_eq(o.end.kind, SSE_EXIT);
	ck_assert(!o.end.truncated);
	sse_out_release(&o);
	sse_close(s);
	d_finish(d);
}
END_TEST

START_TEST(session_id_is_a_path)
{
	static const char *const ids[] = {"../../tmp/escaped", ".", "..", "a/b", "a b", "", "a%2fb"};
	struct testd *d = d_start();
	struct resp r = {0};
	for (int i = 0; i < COUNT(ids); i++) {
		req_pack(d, "POST", "/exec", &r, "{s:s, s:s}", "command", "echo fine", "session_id", ids[i]);
		ck_assert_int_eq(r.status, 200);
		ck_assert_str_eq(j_str(resp_json(&r), "stdout"), "fine\n");
	}
	ck_assert_str_eq(j_str(run(d, "ls -d .k8e_transcripts; ls /tmp/escaped*", &r), "stdout"), "");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The golden windows.
START_TEST(windows)
{
	struct testd *d = d_start();
	struct resp r = {0};
	put_transcript(d, "s2", "100 cmd echo hi\n101 stdout hi\n102 stdout bye\n");
	(void)window(d, "session=s2&offset=0&limit=20", &r);
	assert_text(&r.body,
		"{\"output\":\"100 cmd echo hi\\n\",\"offset\":0,\"next_offset\":16,\"truncated_before\":false,"
		"\"eof\":false}");
	(void)window(d, "session=s2&offset=16&limit=0", &r);
	assert_text(&r.body, "{\"output\":\"101 stdout hi\\n102 stdout bye\\n\",\"offset\":16,\"next_offset\":45,"
			     "\"truncated_before\":true,\"eof\":true}");
	const json_t *o = window(d, "session=s2", &r);
	ck_assert_int_eq(j_int(o, "next_offset"), 45);
	ck_assert(j_bool(o, "eof"));
	// At the end and beyond it, as after a reset: nothing, and the place where it goes on.
	for (int i = 0; i < 2; i++) {
		o = window(d, i ? "session=s2&offset=1000" : "session=s2&offset=45", &r);
		ck_assert_str_eq(j_str(o, "output"), "");
		ck_assert_int_eq(j_int(o, "next_offset"), 45);
		ck_assert(j_bool(o, "eof"));
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A line longer than the window, of characters of one to four bytes: never an empty window, never half a character.
START_TEST(long_line_gives_endless_empty_windows)
{
	static const char text[] = "100 stdout a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80"
				   "aaaaaaaaaaaaaaaaaaaa\n101 stdout x\n";
	struct testd *d = d_start();
	struct resp r = {0};
	put_transcript(d, "s", text);
	for (int limit = 4; limit < 20; limit++) {
		struct buf got = {0};
		int64_t at = 0;
		char query[64];
		bool eof = false;
		while (!eof) {
			(void)snprintf(query, sizeof query, "session=s&offset=%d&limit=%d", (int)at, limit);
			const json_t *o = window(d, query, &r);
			size_t n = strlen(j_str(o, "output"));
			ck_assert_uint_gt(n, 0);
			ck_assert_uint_le(n, (size_t)limit);
			ck_assert_int_eq(j_int(o, "offset"), at);
			buf_str(&got, j_str(o, "output"));
			at = j_int(o, "next_offset");
			eof = j_bool(o, "eof");
		}
		assert_text(&got, text);
		buf_release(&got);
	}
	// Even a window within a character moves on.
	const json_t *o = window(d, "session=s&offset=12&limit=1", &r);
	ck_assert_int_eq(j_int(o, "next_offset"), 13);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(window_is_bounded)
{
	struct testd *d = d_start();
	struct resp r = {0};
	exec_in(d, "s", "seq 100000");
	const json_t *o = window(d, "session=s&limit=10000000", &r);
	ck_assert_int_le(j_int(o, "next_offset"), 262144);
	ck_assert_int_ge(j_int(o, "next_offset"), 262144 - 64);
	ck_assert(!j_bool(o, "eof"));
	const char *text = j_str(o, "output");
	ck_assert_int_eq(text[strlen(text) - 1], '\n');
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(bad_requests)
{
	static const struct {
		const char *target;
		int status;
		const char *error;
	} cases[] = {
		{"/transcript", 400, "session required"},
		{"/transcript?session=", 400, "session required"},
		{"/transcript?session=../x", 400, "invalid session"},
		{"/transcript?session=..", 400, "invalid session"},
		{"/transcript?session=a%2Fb", 400, "invalid session"},
		{"/transcript?session=a%00", 400, "invalid session"},
		{"/transcript?session=%zz", 400, "invalid session"},
		{"/transcript?session=s&offset=-1", 400, NULL},
		{"/transcript?session=s&offset=x", 400, NULL},
		{"/transcript?session=s&limit=99999999999999999999", 400, NULL},
		{"/transcript?session=s1&offset=0&limit=0", 404, "no transcript"},
	};
	struct testd *d = d_start();
	struct resp r = {0};
	for (int i = 0; i < COUNT(cases); i++) {
		req(d, "GET", cases[i].target, NULL, &r);
		const json_t *o = assert_error(&r, cases[i].status, cases[i].status == 404 ? "not_found" : NULL);
		if (cases[i].error)
			ck_assert_str_eq(j_str(o, "error"), cases[i].error);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

static const char *const plants[] = {
	"ln -s \"$OUT\" .k8e_transcripts",
	"mkfifo .k8e_transcripts",
	"echo x >.k8e_transcripts",
	"mkdir .k8e_transcripts; ln -s \"$OUT/s.log\" .k8e_transcripts/s.log",
	"mkdir .k8e_transcripts; ln \"$OUT/s.log\" .k8e_transcripts/s.log",
	"mkdir .k8e_transcripts; mkfifo .k8e_transcripts/s.log",
	"mkdir -p .k8e_transcripts/s.log",
};

START_TEST(planted)
{
	struct testd *d = d_start();
	struct resp r = {0};
	char cmd[1024];
	(void)snprintf(cmd, sizeof cmd, "OUT=%s/out; mkdir $OUT; echo secret >$OUT/s.log; %s", d->base, plants[_i]);
	ck_assert_int_eq(j_int(run(d, cmd, &r), "exit_code"), 0);
	// Before anything is written: it is not read.
	req(d, "GET", "/transcript?session=s", NULL, &r);
	ck_assert_int_ge(r.status, 400);
	exec_in(d, "s", "echo mine");
	exec_in(d, "s", "echo more");
	(void)snprintf(cmd, sizeof cmd, "cd %s/out && ls -A && cat s.log", d->base);
	ck_assert_str_eq(j_str(run(d, cmd, &r), "stdout"), "s.log\nsecret\n");
	req(d, "GET", "/transcript?session=s", NULL, &r);
	ck_assert(strstr(buf_cstr(&r.body), "secret") == NULL);
	// What is no directory in the way of one is replaced.
	bool replaced = _i >= 3 && _i <= 5;
	ck_assert_int_eq(r.status == 200, replaced);
	if (replaced)
		ck_assert_str_eq(whole(d, "s"), "cmd echo mine\nstdout mine\ncmd echo more\nstdout more\n");
	else
		ck_assert(d_log_has(d, "journal: .k8e_transcripts/s.log"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(full_transcript)
{
	struct testd *d = d_start();
	struct resp r = {0};
	put_transcript(d, "s", "100 stdout old\n");
	char path[512];
	struct stat st;
	(void)snprintf(path, sizeof path, "%s/.k8e_transcripts/s.log", d->workspace);
	ck_assert_int_eq(truncate(path, (64 << 20) - 10), 0);
	exec_in(d, "s", "echo last");
	exec_in(d, "s", "echo beyond; seq 100000");
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_lt(st.st_size, (64 << 20) + 1000);
	const json_t *o = run(d, "tail -n 1 .k8e_transcripts/s.log", &r);
	ck_assert_ptr_nonnull(strstr(j_str(o, "stdout"), " stderr [the transcript is full]\n"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *transcript_suite(void)
{
	Suite *s = suite_create("transcript");
	TCase *tc = h_tcase(s, "writing", 40);
	tcase_add_test(tc, commands_of_a_session);
	tcase_add_test(tc, transcript_of_a_running_command);
	tcase_add_test(tc, long_line_is_cut_into_several);
	tcase_add_test(tc, large_output_is_all_there);
	tcase_add_test(tc, slow_reader_with_a_session_is_cut);
	tcase_add_test(tc, session_id_is_a_path);
	tcase_add_loop_test(tc, planted, 0, COUNT(plants));
	tcase_add_test(tc, full_transcript);
	tc = h_tcase(s, "reading", 20);
	tcase_add_test(tc, windows);
	tcase_add_test(tc, long_line_gives_endless_empty_windows);
	tcase_add_test(tc, window_is_bounded);
	tcase_add_test(tc, bad_requests);
	return s;
}
