// SPDX-License-Identifier: Apache-2.0
// Surface B's streams of processes: Connect, deadlines, keepalives, ends, slow and lost readers, broken requests.
#include "tests/integration/calls.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define START "process.Process/Start"
#define CONNECT "process.Process/Connect"
#define LIST "process.Process/List"

static struct stream *start_sh(
	const struct testd *d, enum codec codec, const char *headers, const char *script, const char *more, int rcvbuf)
{
	char *json = sh_request(script, more);
	struct stream *s = stream_open_rcvbuf(d, START, codec, headers, json, rcvbuf);
	free(json);
	return s;
}

static void pid_json(char out[64], int64_t pid)
{
	(void)snprintf(out, 64, "{\"process\":{\"pid\":%lld}}", (long long)pid);
}

static struct stream *attach(const struct testd *d, enum codec codec, const char *headers, int64_t pid, int rcvbuf)
{
	char json[64];
	pid_json(json, pid);
	return stream_open_rcvbuf(d, CONNECT, codec, headers, json, rcvbuf);
}

static void kill_pid(const struct testd *d, int64_t pid)
{
	char json[80];
	(void)snprintf(json, sizeof json, "{\"process\":{\"pid\":%lld},\"signal\":\"SIGNAL_SIGKILL\"}", (long long)pid);
	json_decref(call(d, "process.Process/SendSignal", CODEC_JSON, NULL, json));
}

static void say(const struct testd *d, int64_t pid, const char *base64)
{
	char json[200];
	(void)snprintf(
		json, sizeof json, "{\"process\":{\"pid\":%lld},\"input\":{\"stdin\":\"%s\"}}", (long long)pid, base64);
	json_decref(call(d, "process.Process/SendInput", CODEC_JSON, NULL, json));
}

// --- Connect ---

// B32
START_TEST(connect_is_live_and_knows_the_end)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	struct played a = {0}, b = {0}, c = {0};
	struct stream *s = stream_open(d, START, codec, NULL, "{\"process\":{\"cmd\":\"cat\"},\"tag\":\"ct\"}");
	int64_t pid = stream_pid(s);
	say(d, pid, "b25lCg==");
	stream_until(s, FRAME_STDOUT, "one\n", NULL, 5000);
	struct stream *t = stream_open(d, CONNECT, codec, NULL, "{\"process\":{\"tag\":\"ct\"}}");
	ck_assert_int_eq(stream_pid(t), pid);
	say(d, pid, "dHdvCg==");
	char json[64];
	pid_json(json, pid);
	json_decref(call(d, "process.Process/CloseStdin", codec, NULL, json));
	stream_play(s, &a, 5000);
	stream_play(t, &b, 5000);
	played_assert_exit(&a, 0);
	played_assert_exit(&b, 0);
	assert_text(&a.ch[FRAME_STDOUT], "two\n");
	assert_text(&b.ch[FRAME_STDOUT], "two\n");
	stream_close(s);
	stream_close(t);
	// Afterwards the end is remembered, the output is not.
	for (int by_tag = 0; by_tag < 2; by_tag++) {
		t = stream_open(d, CONNECT, codec, NULL, by_tag ? "{\"process\":{\"tag\":\"ct\"}}" : json);
		stream_play(t, &c, 5000);
		ck_assert_int_eq(c.pid, pid);
		ck_assert_uint_eq(c.data, 0);
		played_assert_exit(&c, 0);
		played_release(&c);
		stream_close(t);
	}
	played_release(&a);
	played_release(&b);
	d_finish(d);
}
END_TEST

// B30
START_TEST(a_lost_client_only_detaches)
{
	struct testd *d = d_start(CALLS_ENVD);
	struct stream *s = start_sh(d, (enum codec)_i, NULL, "read x; exit 4", "", 0);
	int64_t pid = stream_pid(s);
	stream_abort(s);
	json_t *l = call(d, LIST, (enum codec)_i, NULL, "{}");
	ck_assert_int_eq(j_int(json_array_get(j_get(l, "processes"), 0), "pid"), pid);
	json_decref(l);
	struct played o = {0};
	s = attach(d, (enum codec)_i, NULL, pid, 0);
	ck_assert_int_eq(stream_pid(s), pid);
	say(d, pid, "Cg==");
	stream_play(s, &o, 5000);
	played_assert_exit(&o, 4);
	played_release(&o);
	stream_close(s);
	d_finish(d);
}
END_TEST

// --- deadlines ---

// B14, B18
START_TEST(a_deadline_leaves_nothing_of_the_command)
{
	struct testd *d = d_start(CALLS_ENVD);
	struct played o = {0};
	int64_t at = h_now_ms();
	struct stream *s = start_sh(d, (enum codec)_i, "Connect-Timeout-Ms: 1000\r\n",
		"echo before; echo x | sh -c 'sleep 7654321' & setsid sleep 7654321 & sleep 7654321",
		",\"stdin\":false", 0);
	stream_play(s, &o, 10000);
	ck_assert_int_ge(o.end_at - at, 950);
	ck_assert_int_lt(o.end_at - at, h_scaled(2500));
	ck_assert_str_eq(played_assert_error(&o, "deadline_exceeded"), "context deadline exceeded");
	assert_text(&o.ch[FRAME_STDOUT], "before\n");
	int64_t pid = o.pid;
	played_release(&o);
	stream_close(s);
	ck_assert(wait_until((bool (*)(void *))d_no_commands, d, 2000));
	json_t *l = call(d, LIST, (enum codec)_i, NULL, "{}");
	ck_assert_uint_eq(json_object_size(l), 0);
	json_decref(l);
	s = attach(d, (enum codec)_i, NULL, pid, 0);
	stream_play(s, &o, 5000);
	played_assert_signal(&o, "killed");
	played_release(&o);
	stream_close(s);
	d_finish(d);
}
END_TEST

START_TEST(a_deadline_holds_without_its_client)
{
	struct testd *d = d_start(CALLS_ENVD);
	struct played o = {0};
	struct stream *s = start_sh(d, CODEC_JSON, "Connect-Timeout-Ms: 700\r\n", "sleep 7654321", "", 0);
	int64_t pid = stream_pid(s);
	struct stream *t = attach(d, CODEC_JSON, NULL, pid, 0);
	(void)stream_pid(t);
	stream_close(s);
	stream_play(t, &o, 5000);
	played_assert_signal(&o, "killed"); // who attached has asked for no deadline
	ck_assert(wait_until((bool (*)(void *))d_no_commands, d, 2000));
	played_release(&o);
	stream_close(t);
	d_finish(d);
}
END_TEST

// B30
START_TEST(the_deadline_of_connect_ends_that_stream_alone)
{
	struct testd *d = d_start(CALLS_ENVD);
	struct played o = {0};
	struct stream *s = start_sh(d, (enum codec)_i, NULL, "cat", "", 0);
	int64_t pid = stream_pid(s), at = h_now_ms();
	struct stream *t = attach(d, (enum codec)_i, "Connect-Timeout-Ms: 300\r\n", pid, 0);
	stream_play(t, &o, 5000);
	(void)played_assert_error(&o, "deadline_exceeded");
	ck_assert_int_ge(o.end_at - at, 280);
	ck_assert_int_lt(o.end_at - at, h_scaled(1300));
	played_release(&o);
	stream_close(t);
	ck_assert(d_nspid_alive(d, pid));
	say(d, pid, "bGl2ZQ==");
	stream_until(s, FRAME_STDOUT, "live", NULL, 5000);
	stream_close(s);
	kill_pid(d, pid);
	d_finish(d);
}
END_TEST

// --- keepalives ---

// B28
START_TEST(keepalives_come_at_the_interval)
{
	struct testd *d = d_start(CALLS_ENVD);
	struct played o = {0}, c = {0};
	struct stream *s = start_sh(d, (enum codec)_i, "Keepalive-Ping-Interval: 1\r\n",
		"sleep 2.6; printf x; sleep 1.4", ",\"stdin\":false", 0);
	int64_t pid = stream_pid(s);
	struct stream *t = attach(d, (enum codec)_i, "Keepalive-Ping-Interval: 1\r\n", pid, 0);
	(void)stream_pid(t);
	stream_play(s, &o, 10000);
	stream_play(t, &c, 10000);
	played_assert_exit(&o, 0);
	ck_assert_msg(o.keepalives >= 2 && o.keepalives <= 4, "%zu keepalives", o.keepalives);
	ck_assert_msg(c.keepalives >= 2 && c.keepalives <= 4, "%zu keepalives", c.keepalives);
	assert_text(&o.ch[FRAME_STDOUT], "x");
	played_release(&o);
	played_release(&c);
	stream_close(s);
	stream_close(t);
	d_finish(d);
}
END_TEST

START_TEST(bad_intervals_are_the_default)
{
	static const char *const values[] = {"0", "-1", "x", "", "1.5", "12345678901234567890"};
	struct testd *d = d_start(CALLS_ENVD);
	for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
		struct played o = {0};
		char header[64];
		(void)snprintf(header, sizeof header, "Keepalive-Ping-Interval: %s\r\n", values[i]);
		sh_play(d, CODEC_JSON, header, "sleep .3; echo done", &o);
		played_assert_exit(&o, 0);
		ck_assert_msg(o.keepalives == 0, "%s: %zu keepalives", values[i], o.keepalives);
		played_release(&o);
	}
	d_finish(d);
}
END_TEST

// --- ends ---

// B08
START_TEST(a_grandchild_with_the_pipe_holds_no_end_up)
{
	static const struct {
		const char *script;
		int code;
		size_t bytes;
	} cases[] = {
		{"sleep 7654321 & echo STARTED", 0, 8},
		{"(setsid sleep 7654321 >&2 &) ; exit 3", 3, 0},
		{"sleep 7654321 & head -c 2000000 /dev/zero; exit 5", 5, 2000000},
	};
	struct testd *d = d_start(CALLS_ENVD);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct played o = {0};
		int64_t at = h_now_ms();
		sh_play(d, (enum codec)_i, NULL, cases[i].script, &o);
		played_assert_exit(&o, cases[i].code);
		ck_assert_int_lt(o.end_at - at, h_scaled(1500));
		ck_assert_uint_eq(buf_len(&o.ch[FRAME_STDOUT]), cases[i].bytes);
		ck_assert(!d_nspid_alive(d, o.pid));
		played_release(&o);
	}
	d_finish(d);
}
END_TEST

// B09
START_TEST(closed_pipes_are_no_end)
{
	struct testd *d = d_start(CALLS_ENVD);
	struct played o = {0};
	int64_t at = h_now_ms();
	sh_play(d, (enum codec)_i, NULL, "exec >&- 2>&-; sleep 1; exit 4", &o);
	played_assert_exit(&o, 4);
	ck_assert_int_ge(o.end_at - at, 950);
	played_release(&o);
	d_finish(d);
}
END_TEST

// B27
START_TEST(the_sandboxs_end_ends_streams_as_unavailable)
{
	struct testd *d = d_start(CALLS_ENVD, "--stop-grace", "300");
	struct played o = {0}, c = {0};
	struct stream *s = start_sh(d, (enum codec)_i, NULL, "trap '' TERM; echo up; while :; do sleep 1; done", "", 0);
	int64_t pid = stream_pid(s);
	stream_until(s, FRAME_STDOUT, "up", NULL, 5000);
	struct stream *t = attach(d, (enum codec)_i, NULL, pid, 0);
	(void)stream_pid(t);
	d_signal(d, SIGTERM);
	stream_play(s, &o, 5000);
	stream_play(t, &c, 5000);
	(void)played_assert_error(&o, "unavailable");
	(void)played_assert_error(&c, "unavailable");
	ck_assert_int_eq(d_wait(d, 5000), 0);
	played_release(&o);
	played_release(&c);
	stream_close(s);
	stream_close(t);
	d_finish(d);
}
END_TEST

// --- readers ---

static void play_until_bytes(struct stream *s, size_t want, int64_t ms)
{
	size_t got = 0;
	int64_t end = h_now_ms() + h_scaled(ms);
	while (got < want) {
		json_t *msg;
		ck_assert_msg(h_now_ms() < end, "%zu of %zu bytes", got, want);
		enum stream_kind kind = stream_next(s, &msg, 2500); // no silence longer than that
		ck_assert_int_eq(kind, STREAM_MESSAGE);
		const json_t *data = json_object_get(j_get(msg, "event"), "data");
		if (data)
			got += strlen(j_str(data, "stdout")) * 3 / 4;
		json_decref(msg);
	}
}

#define FLOOD "while :; do head -c 200000 /dev/zero | tr '\\0' x; echo; sleep .02; done"

// B04: the stuck one may be who started it (0) or one that attached (1).
START_TEST(one_stuck_reader_stalls_nobody)
{
	struct testd *d = d_start(CALLS_ENVD);
	struct stream *s = start_sh(d, CODEC_JSON, NULL, FLOOD, ",\"stdin\":false", _i ? 0 : 4096);
	int64_t pid = stream_pid(s);
	struct stream *t = attach(d, CODEC_PROTO, NULL, pid, _i ? 4096 : 0);
	(void)stream_pid(t);
	struct stream *reader = _i ? s : t, *stuck = _i ? t : s;
	play_until_bytes(reader, 8000000, 45000);
	struct stream *late = attach(d, CODEC_JSON, NULL, pid, 0);
	(void)stream_pid(late);
	stream_close(reader);
	play_until_bytes(late, 2000000, 15000);
	int64_t at = h_now_ms();
	kill_pid(d, pid);
	ck_assert_int_lt(h_now_ms() - at, h_scaled(3000));
	// It was cut, without an end of any kind.
	enum stream_kind kind;
	json_t *msg;
	do {
		kind = stream_next(stuck, &msg, 5000);
		json_decref(msg);
	} while (kind == STREAM_MESSAGE);
	ck_assert_int_eq(kind, STREAM_CUT);
	stream_close(late);
	stream_close(stuck);
	d_finish(d);
}
END_TEST

START_TEST(a_single_slow_reader_loses_nothing)
{
	struct testd *d = d_start(CALLS_ENVD);
	struct played o = {0};
	struct stream *s = start_sh(
		d, (enum codec)_i, NULL, "head -c 12000000 /dev/zero | tr '\\0' y; exit 6", ",\"stdin\":false", 4096);
	(void)stream_pid(s);
	int64_t until = h_now_ms() + 1500;
	while (h_now_ms() < until)
		h_tick();
	stream_play(s, &o, 20000);
	played_assert_exit(&o, 6);
	ck_assert_uint_eq(buf_len(&o.ch[FRAME_STDOUT]), 12000000);
	played_release(&o);
	stream_close(s);
	d_finish(d);
}
END_TEST

// B05
START_TEST(without_a_reader_output_is_discarded)
{
	struct testd *d = d_start(CALLS_ENVD);
	char *path, *script;
	ck_assert_int_gt(asprintf(&path, "%s/done", d->workspace), 0);
	ck_assert_int_gt(asprintf(&script, "head -c 200000000 /dev/zero; touch %s; exec sleep 7654321", path), 0);
	struct stream *s = start_sh(d, CODEC_JSON, NULL, script, ",\"stdin\":false", 4096);
	int64_t pid = stream_pid(s);
	long before = d_rss_kib(d);
	stream_close(s);
	int64_t end = h_now_ms() + h_scaled(20000);
	while (access(path, F_OK) < 0) {
		ck_assert_msg(h_now_ms() < end, "the command is blocked");
		h_tick();
	}
	ck_assert_int_lt(d_rss_kib(d) - before, d_sanitized(d) ? 20000 : 4000);
	// What was written before the attach is not told.
	struct played o = {0};
	s = attach(d, CODEC_JSON, NULL, pid, 0);
	(void)stream_pid(s);
	kill_pid(d, pid);
	stream_play(s, &o, 5000);
	played_assert_signal(&o, "killed");
	ck_assert_uint_eq(o.data, 0);
	played_release(&o);
	stream_close(s);
	free(script);
	free(path);
	d_finish(d);
}
END_TEST

// --- broken requests ---

// B33
START_TEST(every_failure_is_in_the_end_frame)
{
#define RAW(text) text, sizeof text - 1
	static const struct {
		const char *method, *body;
		size_t n;
		const char *code;
	} cases[] = {
		{START, RAW("\0\0\0\0\004{bad"), "invalid_argument"},
		{START, RAW("\0\0\0\0\004null"), "invalid_argument"},
		{START, RAW("\0\0\0\0\003\"x\""), "invalid_argument"},
		{START, RAW("\0\0\0\0\0017"), "invalid_argument"},
		{START, RAW(""), "unimplemented"},
		{START, RAW("\0\0\0"), "invalid_argument"},
		{START, RAW("\0\0\0\0\012{}"), "invalid_argument"},
		{START, RAW("\002\0\0\0\002{}"), "unimplemented"},
		{START, RAW("\0\0\0\0\002{}\0\0\0\0\002{}"), "unimplemented"},
		{START, RAW("\001\0\0\0\002{}"), "internal"},
		{START, RAW("\004\0\0\0\002{}"), "internal"},
		{CONNECT, RAW("\0\0\0\0\002{}"), "unimplemented"},
		{CONNECT, RAW("\0\0\0\0\016{\"process\":{}}"), "unimplemented"},
		{CONNECT, RAW("\0\0\0\0\032{\"process\":{\"pid\":999999}}"), "not_found"},
		{CONNECT, RAW("\0\0\0\0\030{\"process\":{\"tag\":\"zz\"}}"), "not_found"},
	};
#undef RAW
	struct testd *d = d_start(CALLS_ENVD);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct played o = {0};
		struct stream *s = stream_open_raw(d, cases[i].method, CODEC_JSON, NULL, cases[i].body, cases[i].n);
		stream_play(s, &o, 5000);
		(void)played_assert_error(&o, cases[i].code);
		played_release(&o);
		stream_close(s);
	}
	d_finish(d);
}
END_TEST

Suite *envd_streams_suite(void)
{
	Suite *s = suite_create("envd_streams");
	TCase *t = h_tcase(s, "streams", 60);
	tcase_add_loop_test(t, connect_is_live_and_knows_the_end, 0, CODECS);
	tcase_add_loop_test(t, a_lost_client_only_detaches, 0, CODECS);
	tcase_add_loop_test(t, a_deadline_leaves_nothing_of_the_command, 0, CODECS);
	tcase_add_test(t, a_deadline_holds_without_its_client);
	tcase_add_loop_test(t, the_deadline_of_connect_ends_that_stream_alone, 0, CODECS);
	tcase_add_loop_test(t, keepalives_come_at_the_interval, 0, CODECS);
	tcase_add_test(t, bad_intervals_are_the_default);
	tcase_add_loop_test(t, a_grandchild_with_the_pipe_holds_no_end_up, 0, CODECS);
	tcase_add_loop_test(t, closed_pipes_are_no_end, 0, CODECS);
	tcase_add_loop_test(t, the_sandboxs_end_ends_streams_as_unavailable, 0, CODECS);
	tcase_add_loop_test(t, one_stuck_reader_stalls_nobody, 0, 2);
	tcase_add_loop_test(t, a_single_slow_reader_loses_nothing, 0, CODECS);
	tcase_add_test(t, without_a_reader_output_is_discarded);
	tcase_add_test(t, every_failure_is_in_the_end_frame);
	return s;
}
