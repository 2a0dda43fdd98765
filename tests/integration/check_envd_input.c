// SPDX-License-Identifier: Apache-2.0
// SendInput, StreamInput and CloseStdin: what arrives, what waits, what is refused and how (B20, B21).
#include "tests/integration/calls.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include "proto/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START "process.Process/Start"
#define SEND "process.Process/SendInput"
#define CLOSE "process.Process/CloseStdin"
#define STREAM "process.Process/StreamInput"

// {"process":{"pid":PID},"input":{"MEMBER":"<base64>"}}, the caller's.
static char *input_json(int64_t pid, const char *member, const void *p, size_t n)
{
	struct buf json = {0};
	buf_printf(&json, "{\"process\":{\"pid\":%lld},\"input\":{\"%s\":\"", (long long)pid, member);
	text_b64_encode(&json, p, n);
	buf_str(&json, "\"}}");
	char *s = buf_take(&json, NULL);
	ck_assert_ptr_nonnull(s);
	return s;
}

static void send_input(const struct testd *d, enum codec codec, int64_t pid, const void *p, size_t n)
{
	char *json = input_json(pid, "stdin", p, n);
	json_t *answer = call(d, SEND, codec, NULL, json);
	ck_assert_uint_eq(json_object_size(answer), 0);
	json_decref(answer);
	free(json);
}

static void send_fails(const struct testd *d, enum codec codec, int64_t pid, const char *member, const char *code)
{
	char *json = input_json(pid, member, "x", 1);
	call_fails(d, SEND, codec, NULL, json, code, NULL);
	free(json);
}

static void pid_json(char out[64], int64_t pid)
{
	(void)snprintf(out, 64, "{\"process\":{\"pid\":%lld}}", (long long)pid);
}

static void close_stdin(const struct testd *d, enum codec codec, int64_t pid)
{
	char json[64];
	pid_json(json, pid);
	json_decref(call(d, CLOSE, codec, NULL, json));
}

static struct stream *start(const struct testd *d, enum codec codec, const char *script, const char *more, int64_t *pid)
{
	char *json = sh_request(script, more);
	struct stream *s = stream_open(d, START, codec, NULL, json);
	*pid = stream_pid(s);
	free(json);
	return s;
}

static void expect_exit(struct stream *s, int64_t code, const char *out)
{
	struct played o = {0};
	stream_play(s, &o, 10000);
	played_assert_exit(&o, code);
	if (out)
		assert_text(&o.ch[FRAME_STDOUT], out);
	played_release(&o);
	stream_close(s);
}

// B21
START_TEST(stdin_is_open_unless_it_is_off)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	static const char *const more[] = {"", ",\"stdin\":true", ",\"stdin\":null"};
	for (size_t i = 0; i < 3; i++) {
		int64_t pid;
		struct stream *s =
			start(d, codec, "cat; echo over", i == 2 && codec == CODEC_PROTO ? "" : more[i], &pid);
		send_input(d, codec, pid, "", 0);
		send_input(d, codec, pid, "a\0b", 3);
		stream_until(s, FRAME_STDOUT, "b", NULL, 5000);
		close_stdin(d, codec, pid);
		expect_exit(s, 0, "over\n");
	}
	struct played o = {0};
	sh_play(d, codec, NULL, "cat; read x; echo $?", &o);
	played_assert_exit(&o, 0);
	assert_text(&o.ch[FRAME_STDOUT], "1\n");
	played_release(&o);
	d_finish(d);
}
END_TEST

// B20
START_TEST(what_cannot_take_input_says_so)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	int64_t pid;
	struct stream *s = start(d, codec, "sleep 7654321", ",\"stdin\":false", &pid);
	send_fails(d, codec, pid, "stdin", "failed_precondition");
	send_fails(d, codec, pid, "pty", "failed_precondition");
	close_stdin(d, codec, pid); // none is as good as closed
	stream_close(s);
	s = start(d, codec, "exec sleep 7654321", "", &pid);
	close_stdin(d, codec, pid);
	close_stdin(d, codec, pid);
	send_fails(d, codec, pid, "stdin", "failed_precondition");
	stream_close(s);
	s = start(d, codec, "exec <&-; echo go; exec sleep 7654321", "", &pid);
	stream_until(s, FRAME_STDOUT, "go", NULL, 5000);
	send_fails(d, codec, pid, "stdin", "failed_precondition");
	send_fails(d, codec, pid, "stdin", "failed_precondition");
	stream_close(s);
	s = start(d, codec, "exec sleep 7654321", ",\"pty\":{}", &pid);
	char json[64];
	pid_json(json, pid);
	send_fails(d, codec, pid, "stdin", "failed_precondition");
	call_fails(d, CLOSE, codec, NULL, json, "failed_precondition", NULL);
	stream_close(s);
	s = start(d, codec, "exit 0", "", &pid);
	expect_exit(s, 0, NULL);
	pid_json(json, pid);
	send_fails(d, codec, pid, "stdin", "not_found");
	call_fails(d, CLOSE, codec, NULL, json, "not_found", NULL);
	call_fails(d, SEND, codec, NULL, "{\"process\":{\"pid\":999999}}", "not_found", NULL);
	call_fails(d, SEND, codec, NULL, "{\"input\":{\"stdin\":\"\"}}", "unimplemented", NULL);
	d_finish(d);
}
END_TEST

START_TEST(input_without_a_member_is_unimplemented)
{
	struct testd *d = d_start(CALLS_ENVD);
	int64_t pid;
	char json[80], message[256];
	struct stream *s = start(d, CODEC_JSON, "exec cat", "", &pid);
	(void)snprintf(json, sizeof json, "{\"process\":{\"pid\":%lld},\"input\":{}}", (long long)pid);
	call_fails(d, SEND, (enum codec)_i, NULL, json, "unimplemented", message);
	ck_assert_str_eq(message, "invalid input type <nil>");
	stream_close(s);
	d_finish(d);
}
END_TEST

// B20: an exit in the middle of many writes.
START_TEST(writes_that_race_with_the_exit)
{
	struct testd *d = d_start(CALLS_ENVD);
	struct client *c = calls_connect(d, 0);
	struct resp r = {0};
	int64_t pid;
	struct stream *s = start(d, CODEC_JSON, "read x; exit 0", "", &pid);
	char *json = input_json(pid, "stdin", "x\n", 2);
	for (int i = 0; i < 150; i++) {
		call_on(c, SEND, CODEC_JSON, NULL, json, &r);
		ck_assert_msg(r.status == 200 || r.status == 400 || r.status == 404, "%d", r.status);
		ck_assert_msg(r.status == 200 ||
				      strstr(buf_cstr(&r.body), r.status == 400 ? "failed_precondition" : "not_found"),
			"%s", buf_cstr(&r.body));
	}
	expect_exit(s, 0, NULL);
	free(json);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// More than the pipe holds: the answer comes when all is in it, and nothing is lost.
START_TEST(a_large_input_waits_for_its_reader)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	const size_t n = 4000000;
	int64_t pid;
	char *data = malloc(n), want[32], path[512], script[600];
	ck_assert_ptr_nonnull(data);
	memset(data, 'q', n);
	(void)snprintf(path, sizeof path, "%s/go", d->workspace);
	(void)snprintf(script, sizeof script, "while [ ! -e %s ]; do sleep .02; done; exec wc -c", path);
	struct stream *s = start(d, codec, script, "", &pid);
	struct client *c = calls_connect(d, 0);
	struct buf body = {0};
	char *json = input_json(pid, "stdin", data, n);
	// By hand, as no answer comes at first.
	buf_printf(&body,
		"POST /" SEND " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
		"%zu\r\n\r\n%s",
		strlen(json), json);
	ck_assert(client_send_raw(c, buf_data(&body), buf_len(&body)));
	ck_assert(client_silent(c, 300));
	// Others are served meanwhile, also with the same process.
	json_decref(call(d, "process.Process/List", codec, NULL, "{}"));
	FILE *f = fopen(path, "w");
	ck_assert(f && fclose(f) == 0);
	struct resp r = {0};
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	close_stdin(d, codec, pid);
	(void)snprintf(want, sizeof want, "%zu\n", n);
	expect_exit(s, 0, want);
	resp_release(&r);
	buf_release(&body);
	client_close(c);
	free(json);
	free(data);
	d_finish(d);
}
END_TEST

// Who waits is told when nobody will read.
START_TEST(a_waiting_input_ends_with_its_process)
{
	struct testd *d = d_start(CALLS_ENVD);
	int64_t pid;
	const size_t n = 2000000;
	char *data = calloc(1, n);
	ck_assert_ptr_nonnull(data);
	struct stream *s = start(d, CODEC_JSON, "exec sleep 7654321", "", &pid);
	struct client *c = calls_connect(d, 0), *gone = calls_connect(d, 0);
	char *json = input_json(pid, "stdin", data, n), kill[80];
	struct buf body = {0};
	buf_printf(&body,
		"POST /" SEND " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: "
		"%zu\r\n\r\n%s",
		strlen(json), json);
	ck_assert(client_send_raw(gone, buf_data(&body), buf_len(&body)));
	ck_assert(client_silent(gone, 200));
	ck_assert(client_send_raw(c, buf_data(&body), buf_len(&body)));
	ck_assert(client_silent(c, 200));
	client_abort(gone);
	(void)snprintf(kill, sizeof kill, "{\"process\":{\"pid\":%lld},\"signal\":9}", (long long)pid);
	json_decref(call(d, "process.Process/SendSignal", CODEC_JSON, NULL, kill));
	struct resp r = {0};
	client_response(c, &r);
	ck_assert_msg(r.status == 404 || r.status == 400, "%d %s", r.status, buf_cstr(&r.body));
	resp_release(&r);
	buf_release(&body);
	client_close(c);
	stream_close(s);
	free(json);
	free(data);
	d_finish(d);
}
END_TEST

// B20: 800 kB to one that closes its stdin.
START_TEST(input_that_nobody_will_read_is_refused)
{
	struct testd *d = d_start(CALLS_ENVD);
	const size_t n = 800000;
	int64_t pid;
	char *data = calloc(1, n);
	ck_assert_ptr_nonnull(data);
	struct stream *s = start(d, (enum codec)_i, "sleep .3; exec <&-; exec sleep 7654321", "", &pid);
	char *json = input_json(pid, "stdin", data, n);
	call_fails(d, SEND, (enum codec)_i, NULL, json, "failed_precondition", NULL);
	stream_close(s);
	free(json);
	free(data);
	d_finish(d);
}
END_TEST

// --- StreamInput ---

static struct stream *upload_to(const struct testd *d, enum codec codec, int64_t pid)
{
	char json[80];
	struct stream *u = stream_upload(d, STREAM, codec, NULL);
	(void)snprintf(json, sizeof json, "{\"start\":{\"process\":{\"pid\":%lld}}}", (long long)pid);
	ck_assert(stream_send(u, json));
	return u;
}

static void expect_done(struct stream *u)
{
	json_t *msg;
	ck_assert_int_eq(stream_next(u, &msg, 10000), STREAM_MESSAGE);
	ck_assert_uint_eq(json_object_size(msg), 0);
	json_decref(msg);
	ck_assert_int_eq(stream_next(u, &msg, 5000), STREAM_LAST);
	ck_assert_uint_eq(json_object_size(msg), 0);
	json_decref(msg);
	ck_assert_int_eq(stream_next(u, &msg, 5000), STREAM_OVER);
	stream_close(u);
}

static void expect_error(struct stream *u, const char *code, const char *message)
{
	json_t *msg;
	ck_assert_int_eq(stream_next(u, &msg, 5000), STREAM_LAST);
	const json_t *e = j_get(msg, "error");
	ck_assert_str_eq(j_str(e, "code"), code);
	ck_assert_msg(strstr(j_str(e, "message"), message), "%s", j_str(e, "message"));
	json_decref(msg);
	stream_close(u);
}

START_TEST(streamed_input_arrives_while_the_call_is_open)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	int64_t pid;
	struct stream *s = start(d, codec, "exec cat", "", &pid), *u = upload_to(d, codec, pid);
	ck_assert(stream_send(u, "{\"data\":{\"input\":{\"stdin\":\"czEK\"}}}"));
	stream_until(s, FRAME_STDOUT, "s1\n", NULL, 5000);
	ck_assert(stream_send(u, "{\"keepalive\":{}}"));
	ck_assert(stream_send(u, "{\"data\":{\"input\":{\"stdin\":\"czIK\"}}}"));
	stream_until(s, FRAME_STDOUT, "s2\n", NULL, 5000);
	stream_finish(u);
	expect_done(u);
	close_stdin(d, codec, pid);
	expect_exit(s, 0, "");
	u = stream_upload(d, STREAM, codec, NULL); // nothing at all
	stream_finish(u);
	expect_done(u);
	d_finish(d);
}
END_TEST

START_TEST(streamed_input_is_held_back_by_a_slow_reader)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	int64_t pid;
	const size_t n = 300000, count = 60;
	char *data = malloc(n), want[32];
	ck_assert_ptr_nonnull(data);
	memset(data, 'z', n);
	struct buf json = {0};
	buf_str(&json, "{\"data\":{\"input\":{\"stdin\":\"");
	text_b64_encode(&json, data, n);
	buf_str(&json, "\"}}}");
	struct stream *s = start(d, codec, "sleep 1; exec wc -c", "", &pid), *u = upload_to(d, codec, pid);
	long before = d_rss_kib(d);
	for (size_t i = 0; i < count; i++)
		ck_assert(stream_send(u, buf_cstr(&json)));
	ck_assert_int_lt(d_rss_kib(d) - before, d_sanitized(d) ? 300000 : 12000);
	stream_finish(u);
	expect_done(u);
	close_stdin(d, codec, pid);
	(void)snprintf(want, sizeof want, "%zu\n", n * count);
	expect_exit(s, 0, want);
	buf_release(&json);
	free(data);
	d_finish(d);
}
END_TEST

START_TEST(streamed_input_that_goes_nowhere_is_told)
{
	struct testd *d = d_start(CALLS_ENVD);
	enum codec codec = (enum codec)_i;
	int64_t pid;
	struct stream *u = upload_to(d, codec, 999999);
	expect_error(u, "not_found", "process with pid 999999 not found");
	u = stream_upload(d, STREAM, codec, NULL);
	ck_assert(stream_send(u, "{\"data\":{\"input\":{\"stdin\":\"\"}}}"));
	expect_error(u, "invalid_argument", "data before start");
	u = stream_upload(d, STREAM, codec, NULL);
	ck_assert(stream_send(u, "{}"));
	expect_error(u, "unimplemented", "invalid event type <nil>");
	struct stream *s = start(d, codec, "exec cat", "", &pid);
	u = upload_to(d, codec, pid);
	ck_assert(stream_send(u, "{\"data\":{\"input\":{\"pty\":\"eA==\"}}}"));
	expect_error(u, "failed_precondition", "tty not assigned");
	u = upload_to(d, codec, pid);
	close_stdin(d, codec, pid);
	expect_exit(s, 0, NULL);
	ck_assert(stream_send(u, "{\"data\":{\"input\":{\"stdin\":\"eA==\"}}}"));
	expect_error(u, "not_found", "not found");
	u = stream_open_raw(d, STREAM, CODEC_JSON, NULL, "\0\0", 2);
	expect_error(u, "unknown", "error streaming input: invalid_argument: protocol error");
	u = stream_open_raw(d, STREAM, CODEC_JSON, NULL, "\0\0\0\0\004{bad", 9);
	expect_error(u, "unknown", "error streaming input: invalid_argument: unmarshal message");
	d_finish(d);
}
END_TEST

Suite *envd_input_suite(void)
{
	Suite *s = suite_create("envd_input");
	TCase *t = h_tcase(s, "input", 40);
	tcase_add_loop_test(t, stdin_is_open_unless_it_is_off, 0, CODECS);
	tcase_add_loop_test(t, what_cannot_take_input_says_so, 0, CODECS);
	tcase_add_loop_test(t, input_without_a_member_is_unimplemented, 0, CODECS);
	tcase_add_test(t, writes_that_race_with_the_exit);
	tcase_add_loop_test(t, a_large_input_waits_for_its_reader, 0, CODECS);
	tcase_add_test(t, a_waiting_input_ends_with_its_process);
	tcase_add_loop_test(t, input_that_nobody_will_read_is_refused, 0, CODECS);
	tcase_add_loop_test(t, streamed_input_arrives_while_the_call_is_open, 0, CODECS);
	tcase_add_loop_test(t, streamed_input_is_held_back_by_a_slow_reader, 0, CODECS);
	tcase_add_loop_test(t, streamed_input_that_goes_nowhere_is_told, 0, CODECS);
	return s;
}
