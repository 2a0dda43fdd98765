// SPDX-License-Identifier: Apache-2.0
// /exec/stdin and /exec/stdin/close: what arrives, what is refused and with which answer, when it closes.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include "proto/text.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define MIB ((size_t)1024 * 1024)

// A connection for many small requests.
struct input {
	struct client *c;
	struct resp r;
	int64_t pid;
};

static void input_open(struct input *in, const struct testd *d, int64_t pid)
{
	*in = (struct input){.c = client_connect(d), .pid = pid};
}

static void input_release(struct input *in)
{
	client_close(in->c);
	resp_release(&in->r);
}

// Writes N bytes to the command's stdin: the status.
static int put(struct input *in, const void *p, size_t n)
{
	struct buf body = {0};
	buf_printf(&body, "{\"pid\":%lld,\"data\":\"", (long long)in->pid);
	text_b64_encode(&body, p, n);
	buf_str(&body, "\"}");
	ck_assert_int_eq(buf_failed(&body), 0);
	client_request(in->c, "POST", "/exec/stdin", NULL, buf_data(&body), buf_len(&body));
	buf_release(&body);
	client_response(in->c, &in->r);
	return in->r.status;
}

static void must_put(struct input *in, const void *p, size_t n)
{
	int status = put(in, p, n);
	ck_assert_msg(status == 200, "%zu bytes: %d %s", n, status, buf_cstr(&in->r.body));
	ck_assert(j_bool(resp_json(&in->r), "ok"));
}

static int shut(struct input *in)
{
	char body[64];
	int n = snprintf(body, sizeof body, "{\"pid\":%lld}", (long long)in->pid);
	client_request(in->c, "POST", "/exec/stdin/close", NULL, body, (size_t)n);
	client_response(in->c, &in->r);
	return in->r.status;
}

static void must_shut(struct input *in)
{
	int status = shut(in);
	ck_assert_msg(status == 200, "close: %d %s", status, buf_cstr(&in->r.body));
	ck_assert(j_bool(resp_json(&in->r), "ok"));
}

static void assert_closed(struct input *in)
{
	ck_assert_int_eq(put(in, "x", 1), 409);
	(void)assert_error(&in->r, 409, "failed_precondition");
}

static void assert_gone(struct input *in)
{
	ck_assert_int_eq(put(in, "x", 1), 404);
	ck_assert_str_eq(j_str(assert_error(&in->r, 404, "not_found"), "error"), "process not found");
	ck_assert_int_eq(shut(in), 404);
	(void)assert_error(&in->r, 404, "not_found");
}

static void expect_exit(struct sse *s, int64_t code)
{
	struct sse_event e = {0};
	sse_expect(s, &e, SSE_EXIT, 5000);
	ck_assert_int_eq(e.code, code);
	ck_assert_str_eq(e.signal, "");
	sse_event_release(&e);
	sse_close(s);
}

// Lets a command go on that waits with `while [ ! -e go ]`.
static void open_gate(const struct testd *d)
{
	char path[512];
	(void)snprintf(path, sizeof path, "%s/go", d->workspace);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
}

static const char gate[] = "echo up; while [ ! -e go ]; do sleep .02; done; ";

static struct sse *start_gated(const struct testd *d, const char *then, struct input *in)
{
	char command[256];
	(void)snprintf(command, sizeof command, "%s%s", gate, then);
	struct sse *s = sse_exec(d, command);
	input_open(in, d, sse_pid(s));
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	return s;
}

// N bytes of all values, in no short period.
static unsigned char *noise(size_t n)
{
	unsigned char *p = malloc(n);
	ck_assert_ptr_nonnull(p);
	uint32_t x = 1;
	for (size_t i = 0; i < n; i++) {
		x = x * 1664525U + 1013904223U;
		p[i] = (unsigned char)(x >> 24);
	}
	return p;
}

// Reads data frames until OUT holds N bytes.
static void read_up_to(struct sse *s, struct buf *out, size_t n)
{
	struct sse_event e = {0};
	while (buf_len(out) < n) {
		sse_expect(s, &e, SSE_DATA, 10000);
		buf_append(out, buf_data(&e.data), buf_len(&e.data));
	}
	sse_event_release(&e);
}

// Five megabytes in pieces of many sizes, all byte values, come back as they were.
START_TEST(stdin_bytes_are_lost_or_changed)
{
	static const size_t total = 5 * 1000 * 1000;
	static const size_t sizes[] = {1, 2, 3, 65535, 65536, 65537, 4096, 100000, 300001, 17, 200000};
	struct testd *d = d_start();
	struct sse *s = sse_exec(d, "exec cat");
	struct input in;
	struct buf got = {0};
	unsigned char *want = noise(total);
	input_open(&in, d, sse_pid(s));
	size_t at = 0;
	for (int i = 0; at < total; i++) {
		size_t n = sizes[i % COUNT(sizes)];
		n = n < total - at ? n : total - at;
		must_put(&in, want + at, n);
		at += n;
		// Some of it stays under way, less than the queue takes.
		read_up_to(s, &got, at > 400000 ? at - 400000 : 0);
	}
	must_shut(&in);
	read_up_to(s, &got, total);
	expect_exit(s, 0);
	assert_bytes(&got, want, total);
	free(want);
	buf_release(&got);
	input_release(&in);
	d_finish(d);
}
END_TEST

// The queue takes 1 MiB; what is refused is refused whole, and what was accepted arrives.
START_TEST(stdin_queue_has_no_bound)
{
	struct testd *d = d_start();
	struct input in;
	struct sse *s = start_gated(d, "exec cat", &in);
	unsigned char *data = noise(4 * MIB);
	long rss = d_rss_kib(d);
	ck_assert_int_eq(put(&in, data, MIB + 1), 429);
	must_put(&in, data, MIB);
	size_t taken = MIB;
	int refused = 0;
	for (int i = 0; i < 40; i++) {
		// Pieces of one byte too: a queue that has room for a byte takes it.
		size_t n = i % 2 ? 1 : 100000;
		if (put(&in, data + taken, n) == 200) {
			taken += n;
			continue;
		}
		refused++;
		ck_assert(j_bool(assert_error(&in.r, 429, "resource_exhausted"), "retryable"));
	}
	ck_assert_int_ge(refused, 10);
	// The queue and what the pipe holds.
	ck_assert_uint_le(taken, MIB + 65536 + 4096);
	ck_assert_msg(d_sanitized(d) || d_rss_kib(d) - rss < 8192, "grew by %ld KiB", d_rss_kib(d) - rss);
	// Nobody else is held up, and the close waits for the queue.
	struct resp r = {0};
	ck_assert_str_eq(j_str(run(d, "echo ok", &r), "stdout"), "ok\n");
	must_shut(&in);
	assert_closed(&in);
	open_gate(d);
	struct buf got = {0};
	read_up_to(s, &got, taken);
	expect_exit(s, 0);
	assert_bytes(&got, data, taken);
	assert_gone(&in);
	free(data);
	buf_release(&got);
	resp_release(&r);
	input_release(&in);
	d_finish(d);
}
END_TEST

// A queue that was full takes bytes again once the command reads.
START_TEST(stdin_queue_stays_full)
{
	struct testd *d = d_start();
	struct input in;
	struct sse *s = start_gated(d, "exec cat >/dev/null", &in);
	unsigned char *data = noise(MIB);
	must_put(&in, data, MIB);
	ck_assert_int_eq(put(&in, data, MIB), 429);
	open_gate(d);
	int64_t end = h_now_ms() + h_scaled(5000);
	while (put(&in, data, MIB) != 200) {
		ck_assert_int_eq(in.r.status, 429);
		ck_assert_int_lt(h_now_ms(), end);
		h_tick();
	}
	must_shut(&in);
	expect_exit(s, 0);
	free(data);
	input_release(&in);
	d_finish(d);
}
END_TEST

static const char *const bad_data[] = {"!!!!", "YQ", "YQ=", "Y", "YWI", "YQ==YQ==", "Y Q=", " YQ==", "YQ==\\n",
	"YQ\\n==", "====", "=", "YQ===", "Y===", "YW=J", "YWJj-_-_", "YWJj\\u0000",
	"YWJjZ\\u20ac==", "YWJjZGVmYWJjZGVmYWJj!GVm"};

START_TEST(malformed_base64_is_written)
{
	static const char *const bad_values[] = {"5", "true", "[]", "{}", "null"};
	struct testd *d = d_start();
	struct resp r = {0};
	char body[160];
	struct sse *s = sse_exec(d, "exec cat");
	struct input in;
	input_open(&in, d, sse_pid(s));
	for (int i = 0; i < COUNT(bad_data); i++) {
		(void)snprintf(body, sizeof body, "{\"pid\":%lld,\"data\":\"%s\"}", (long long)in.pid, bad_data[i]);
		req(d, "POST", "/exec/stdin", body, &r);
		ck_assert_msg(r.status == 400, "%s: %d", bad_data[i], r.status);
		const json_t *o = assert_error(&r, 400, "invalid_argument");
		if (!strstr(bad_data[i], "u0000"))
			ck_assert_str_eq(j_str(o, "error"), "invalid base64");
	}
	for (int i = 0; i < COUNT(bad_values); i++) {
		(void)snprintf(body, sizeof body, "{\"pid\":%lld,\"data\":%s}", (long long)in.pid, bad_values[i]);
		req(d, "POST", "/exec/stdin", body, &r);
		(void)assert_error(&r, 400, "invalid_argument");
	}
	(void)snprintf(body, sizeof body, "{\"pid\":%lld}", (long long)in.pid);
	req(d, "POST", "/exec/stdin", body, &r);
	(void)assert_error(&r, 400, "invalid_argument");
	must_put(&in, "ok\n", 3);
	must_shut(&in);
	struct sse_out o = {0};
	sse_collect(s, &o, CLIENT_DEADLINE);
	assert_text(&o.ch[FRAME_STDOUT], "ok\n");
	sse_close(s);
	sse_out_release(&o);
	input_release(&in);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static const char *const bad_bodies[] = {"{\"data\":\"YQ==\"}", "{\"pid\":\"1\",\"data\":\"YQ==\"}",
	"{\"pid\":null,\"data\":\"YQ==\"}", "{\"pid\":1.5,\"data\":\"YQ==\"}", "[]", "7", "", "{"};

// B20, B36: pids that are none of the table's.
START_TEST(stdin_of_a_stranger)
{
	static const char *const routes[] = {"/exec/stdin", "/exec/stdin/close"};
	static const char *const pids[] = {"0", "1", "-1", "2147483648", "1099511627776", "4194304"};
	struct testd *d = d_start();
	struct resp r = {0};
	char body[96];
	for (int k = 0; k < COUNT(routes); k++) {
		for (int i = 0; i < COUNT(pids); i++) {
			(void)snprintf(body, sizeof body, "{\"pid\":%s,\"data\":\"YQ==\"}", pids[i]);
			req(d, "POST", routes[k], body, &r);
			ck_assert_msg(r.status == 404 || (r.status == 400 && i != 1), "%s: %d", body, r.status);
			(void)assert_error(&r, r.status, NULL);
		}
		for (int i = 0; i < COUNT(bad_bodies); i++) {
			req(d, "POST", routes[k], bad_bodies[i], &r);
			(void)assert_error(&r, 400, "invalid_argument");
		}
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B20
START_TEST(closed_or_ended_stdin_takes_bytes)
{
	struct testd *d = d_start();
	struct input in;
	struct sse *s = sse_exec(d, "cat; echo eof; read x; echo $?; while [ ! -e go ]; do sleep .02; done; exit 6");
	input_open(&in, d, sse_pid(s));
	must_put(&in, "one\n", 4);
	sse_until(s, FRAME_STDOUT, "one\n", NULL, 5000);
	must_shut(&in);
	must_shut(&in);
	assert_closed(&in);
	sse_until(s, FRAME_STDOUT, "eof\n1\n", NULL, 5000);
	must_shut(&in);
	assert_closed(&in);
	open_gate(d);
	expect_exit(s, 6);
	assert_gone(&in);
	input_release(&in);
	d_finish(d);
}
END_TEST

// The pid of the only command.
static int64_t only_pid(const struct testd *d)
{
	struct resp r = {0};
	int64_t pid = 0;
	int64_t end = h_now_ms() + h_scaled(5000);
	while (!pid && h_now_ms() < end) {
		req(d, "GET", "/exec/processes", NULL, &r);
		const json_t *one = json_array_get(j_get(resp_json(&r), "processes"), 0);
		if (one)
			pid = j_int(one, "pid");
		else
			h_tick();
	}
	ck_assert_int_gt(pid, 0);
	resp_release(&r);
	return pid;
}

// B20: commands that were started without.
START_TEST(command_without_stdin_takes_bytes)
{
	static const char body[] = "{\"command\":\"cat; while [ ! -e go ]; do sleep .02; done\"}";
	struct testd *d = d_start();
	struct input in;
	struct sse *s = sse_open_pack(
		d, "/exec/stream", "{s:s, s:b}", "command", "cat; while [ ! -e go ]; do sleep .02; done", "stdin", 0);
	input_open(&in, d, sse_pid(s));
	assert_closed(&in);
	ck_assert_int_eq(put(&in, "", 0), 409);
	ck_assert_int_eq(shut(&in), 409);
	open_gate(d);
	expect_exit(s, 0);
	assert_gone(&in);
	input_release(&in);

	char path[512];
	(void)snprintf(path, sizeof path, "%s/go", d->workspace);
	ck_assert_int_eq(unlink(path), 0);
	struct client *c = client_connect(d);
	client_request(c, "POST", "/exec", NULL, body, sizeof body - 1);
	input_open(&in, d, only_pid(d));
	assert_closed(&in);
	open_gate(d);
	client_response(c, &in.r);
	ck_assert_int_eq(j_int(resp_json(&in.r), "exit_code"), 0);
	client_close(c);
	input_release(&in);
	d_finish(d);
}
END_TEST

// B21
static const struct {
	const char *json; // the stdin key, or ""
	bool open;
} defaults[] = {{"", true}, {",\"stdin\":true", true}, {",\"stdin\":null", true}, {",\"stdin\":false", false}};

START_TEST(stdin_default_is_the_wrong_one)
{
	struct testd *d = d_start();
	struct sse_event e = {0};
	char body[96];
	(void)snprintf(body, sizeof body, "{\"command\":\"cat; echo eof\"%s}", defaults[_i].json);
	struct sse *s = sse_open(d, "/exec/stream", body);
	struct input in;
	input_open(&in, d, sse_pid(s));
	if (defaults[_i].open) {
		ck_assert_int_eq(sse_next(s, &e, 600), SSE_TIMEOUT);
		must_put(&in, "", 0);
		must_put(&in, "a\n", 2);
		sse_until(s, FRAME_STDOUT, "a\n", NULL, 5000);
		must_put(&in, "", 0);
		ck_assert_int_eq(sse_next(s, &e, 300), SSE_TIMEOUT);
		must_shut(&in);
	}
	sse_until(s, FRAME_STDOUT, "eof\n", NULL, 2000);
	expect_exit(s, 0);
	sse_event_release(&e);
	input_release(&in);
	d_finish(d);
}
END_TEST

static const char *const bad_stdin[] = {"\"false\"", "0", "1", "[]", "{}", "\"\""};

START_TEST(bad_stdin_key_runs_the_command)
{
	struct testd *d = d_start();
	struct resp r = {0};
	char body[96];
	for (int i = 0; i < COUNT(bad_stdin); i++) {
		(void)snprintf(body, sizeof body, "{\"command\":\"echo >ran\",\"stdin\":%s}", bad_stdin[i]);
		req(d, "POST", "/exec/stream", body, &r);
		(void)assert_error(&r, 400, "invalid_argument");
	}
	ck_assert_str_eq(j_str(run(d, "ls", &r), "stdout"), "");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B20: 800 kB to a command that has closed its stdin, at once and again.
START_TEST(closed_reader_hurts_the_daemon)
{
	struct testd *d = d_start();
	struct input in;
	unsigned char *data = noise(800000);
	struct sse *s = sse_exec(d, "exec <&-; echo up; while [ ! -e go ]; do sleep .02; done; exit 5");
	input_open(&in, d, sse_pid(s));
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	ck_assert_int_eq(put(&in, data, 800000), 409);
	(void)assert_error(&in.r, 409, "failed_precondition");
	assert_closed(&in);
	must_shut(&in);
	open_gate(d);
	expect_exit(s, 5);
	free(data);
	input_release(&in);
	d_finish(d);
}
END_TEST

// The same with the queue full when the reader goes: what was accepted is dropped, later bytes are refused.
START_TEST(reader_leaves_a_full_queue)
{
	struct testd *d = d_start();
	struct input in;
	unsigned char *data = noise(800000);
	struct sse *s = start_gated(d, "exec <&-; echo closed; sleep 1; exit 7", &in);
	uint64_t cpu;
	must_put(&in, data, 800000);
	open_gate(d);
	sse_until(s, FRAME_STDOUT, "closed\n", NULL, 5000);
	cpu = d_cpu_ticks(d);
	// The daemon finds out by itself; nothing of it is waiting then.
	int64_t end = h_now_ms() + h_scaled(500);
	while (put(&in, "x", 1) == 200)
		ck_assert_int_lt(h_now_ms(), end);
	(void)assert_error(&in.r, 409, "failed_precondition");
	expect_exit(s, 7);
	ck_assert_msg(d_cpu_ticks(d) - cpu < 30, "the daemon spins on the closed pipe");
	free(data);
	input_release(&in);
	d_finish(d);
}
END_TEST

// B20: 150 writes against the end of the command.
START_TEST(writes_race_the_exit)
{
	struct testd *d = d_start();
	int seen[3] = {0};
	for (int i = 0; i < 5; i++) {
		struct sse *s = sse_exec(d, "read x; exit 0");
		struct input in;
		input_open(&in, d, sse_pid(s));
		for (int k = 0; k < 150; k++) {
			int status = put(&in, "y\n", 2);
			ck_assert_msg(
				status == 200 || status == 404 || status == 409, "%d %s", status, buf_cstr(&in.r.body));
			seen[status == 200 ? 0 : status == 404 ? 1 : 2]++;
			if (status != 200)
				(void)assert_error(&in.r, status, NULL);
		}
		expect_exit(s, 0);
		assert_gone(&in);
		input_release(&in);
	}
	ck_assert_int_gt(seen[0], 0);
	ck_assert_int_gt(seen[1], 0);
	d_finish(d);
}
END_TEST

// stdin belongs to the command, not to the stream that started it.
START_TEST(stdin_closes_with_its_stream)
{
	struct testd *d = d_start();
	struct sse_event e = {0};
	struct sse *s = sse_exec(d, "exec cat");
	struct input in;
	input_open(&in, d, sse_pid(s));
	sse_close(s);
	must_put(&in, "first\n", 6);
	s = sse_attach(d, in.pid);
	ck_assert_int_eq(sse_pid(s), in.pid);
	sse_until(s, FRAME_STDOUT, "first\n", NULL, 5000);
	must_put(&in, "second\n", 7);
	sse_until(s, FRAME_STDOUT, "second\n", NULL, 5000);
	ck_assert_int_eq(sse_next(s, &e, 300), SSE_TIMEOUT);
	must_shut(&in);
	expect_exit(s, 0);
	sse_event_release(&e);
	input_release(&in);
	d_finish(d);
}
END_TEST

Suite *stdin_suite(void)
{
	Suite *s = suite_create("stdin");
	TCase *tc = h_tcase(s, "bytes", 30);
	tcase_add_test(tc, stdin_bytes_are_lost_or_changed);
	tcase_add_test(tc, stdin_queue_has_no_bound);
	tcase_add_test(tc, stdin_queue_stays_full);
	tcase_add_test(tc, malformed_base64_is_written);
	tcase_add_test(tc, stdin_of_a_stranger);
	tc = h_tcase(s, "life", 30);
	tcase_add_test(tc, closed_or_ended_stdin_takes_bytes);
	tcase_add_test(tc, command_without_stdin_takes_bytes);
	tcase_add_loop_test(tc, stdin_default_is_the_wrong_one, 0, COUNT(defaults));
	tcase_add_test(tc, bad_stdin_key_runs_the_command);
	tcase_add_test(tc, closed_reader_hurts_the_daemon);
	tcase_add_test(tc, reader_leaves_a_full_queue);
	tcase_add_test(tc, writes_race_the_exit);
	tcase_add_test(tc, stdin_closes_with_its_stream);
	return s;
}
