// SPDX-License-Identifier: Apache-2.0
// What a client can grow, and how long it may take: body, head, connections, slow and idle ones.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((size_t)1024 * 1024)
#define CHUNKED_HEAD "POST /exec HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"

static void want_error(struct client *c, int status, const char *code)
{
	struct resp r = {0};
	client_response(c, &r);
	(void)assert_error(&r, status, code);
	ck_assert_str_eq(resp_header(&r, "Connection"), "close");
	resp_release(&r);
}

static void want_end(struct client *c)
{
	ck_assert_msg(client_wait_eof(c, 3000), "the connection stays open");
	ck_assert_msg(!c->reset, "the connection was reset");
}

static void want_health(struct client *c)
{
	struct resp r = {0};
	client_request(c, "GET", "/health", NULL, NULL, 0);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 204);
	resp_release(&r);
}

// {"command":"echo a"} and blanks, N bytes in all.
static void put_padded(struct buf *b, size_t n)
{
	static const char body[] = "{\"command\":\"echo a\"}";
	buf_str(b, body);
	h_repeat(b, " ", n - (sizeof body - 1));
}

static void try_body(const struct testd *d, size_t n, bool chunked)
{
	struct client *c = client_connect(d);
	struct resp r = {0};
	struct buf b = {0};
	struct buf body = {0};
	put_padded(&body, n);
	http_put_request(&b, "POST", "/exec");
	http_put_header(&b, "Host", "x");
	if (chunked)
		http_put_header(&b, "Transfer-Encoding", "chunked");
	else
		http_put_length(&b, n);
	http_put_end(&b);
	while (chunked && buf_len(&body) > 0) {
		size_t part = buf_len(&body) < 5000 ? buf_len(&body) : 5000;
		http_put_chunk(&b, buf_data(&body), part);
		buf_consume(&body, part);
	}
	if (chunked)
		http_put_last_chunk(&b);
	buf_append(&b, buf_data(&body), buf_len(&body));
	ck_assert_int_eq(buf_failed(&b), 0);
	(void)client_send_raw(c, buf_data(&b), buf_len(&b));
	c->eof = c->reset = false; // of the sending
	client_response(c, &r);
	if (n <= MIB)
		ck_assert_int_eq(r.status, 200);
	else
		(void)assert_error(&r, 413, "resource_exhausted");
	buf_release(&b);
	buf_release(&body);
	client_close(c);
	resp_release(&r);
}

START_TEST(body_limit_is_off_by_one)
{
	struct testd *d = d_start("--max-body", "1M");
	for (int chunked = 0; chunked < 2; chunked++) {
		try_body(d, MIB - 1, chunked);
		try_body(d, MIB, chunked);
		try_body(d, MIB + 1, chunked);
		try_body(d, MIB + MIB / 2, chunked);
	}
	d_finish(d);
}
END_TEST

// The answer comes without a byte of the body.
START_TEST(body_is_read_before_it_is_refused)
{
	static const char *const lengths[] = {"1048577", "90000000", "9223372036854775807", "9223372036854775808"};
	struct testd *d = d_start("--max-body", "1M");
	char text[200];
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		struct client *c = client_connect(d);
		(void)snprintf(
			text, sizeof text, "POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: %s\r\n\r\n", lengths[i]);
		ck_assert(client_send_str(c, text));
		want_error(c, 413, "resource_exhausted");
		want_end(c);
		client_close(c);
	}
	d_finish(d);
}
END_TEST

// The sum counts, not one chunk; and a chunk's size alone is no reason to wait for it.
START_TEST(chunked_body_grows_without_limit)
{
	struct testd *d = d_start("--max-body", "1M");
	struct client *c = client_connect(d);
	struct buf chunk = {0};
	struct buf data = {0};
	h_repeat(&data, " ", 8192);
	http_put_chunk(&chunk, buf_data(&data), buf_len(&data));
	ck_assert(client_send_str(c, CHUNKED_HEAD));
	bool sent = true;
	for (int i = 0; i < 192 && sent; i++)
		sent = client_send_raw(c, buf_data(&chunk), buf_len(&chunk));
	ck_assert_msg(sent, "cut off while it was sending");
	want_error(c, 413, "resource_exhausted");
	client_close(c);
	buf_release(&chunk);
	buf_release(&data);
	d_finish(d);
}
END_TEST

// A client that reads only when it has sent all: the answer must not be lost to a reset.
START_TEST(answer_is_lost_while_the_client_sends)
{
	static const size_t amounts[] = {MIB / 2, 3 * MIB, 8 * MIB};
	struct testd *d = d_start("--max-body", "1M");
	struct buf data = {0};
	h_repeat(&data, "x", 64 * 1024);
	for (size_t i = 0; i < sizeof amounts / sizeof *amounts; i++) {
		struct client *c = client_connect(d);
		ck_assert(client_send_str(c, "POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: 90000000\r\n\r\n"));
		bool sent = true;
		for (size_t n = 0; n < amounts[i] && sent; n += buf_len(&data))
			sent = client_send_raw(c, buf_data(&data), buf_len(&data));
		ck_assert_msg(sent || amounts[i] > MIB, "cut off within the first MiB");
		c->eof = c->reset = false; // of the sending
		want_error(c, 413, "resource_exhausted");
		if (amounts[i] < MIB)
			want_end(c);
		client_close(c);
	}
	buf_release(&data);
	d_finish(d);
}
END_TEST

static void try_head(const struct testd *d, const char *name, size_t url, size_t value, size_t headers, int status)
{
	struct client *c = client_connect(d);
	struct resp r = {0};
	struct buf b = {0};
	buf_str(&b, "GET /health?");
	h_repeat(&b, "u", url);
	buf_str(&b, " HTTP/1.1\r\nHost: x\r\nX-Long: ");
	h_repeat(&b, "v", value);
	buf_str(&b, "\r\n");
	h_repeat(&b, "X-Many: 1\r\n", headers);
	buf_str(&b, "\r\n");
	ck_assert_int_eq(buf_failed(&b), 0);
	ck_assert_msg(client_send_raw(c, buf_data(&b), buf_len(&b)), "%s: cut off while sending", name);
	client_response(c, &r);
	ck_assert_msg(r.status == status, "%s: status %d", name, r.status);
	if (status != 204) {
		(void)assert_error(&r, status, "resource_exhausted");
		want_end(c);
	}
	buf_release(&b);
	client_close(c);
	resp_release(&r);
}

START_TEST(head_limit_is_not_kept)
{
	struct testd *d = d_start();
	try_head(d, "long value", 0, 60000, 0, 204);
	try_head(d, "long URL", 60000, 0, 0, 204);
	try_head(d, "many", 0, 0, 200, 204);
	try_head(d, "too long value", 0, 70000, 0, 431);
	try_head(d, "too long URL", 70000, 0, 0, 431);
	try_head(d, "together too long", 33000, 33000, 0, 431);
	try_head(d, "too many", 0, 0, 300, 431);
	d_finish(d);
	d = d_start("--max-header", "2K");
	try_head(d, "2K value", 0, 1900, 0, 204);
	try_head(d, "2K too long", 0, 2100, 0, 431);
	d_finish(d);
}
END_TEST

// --- B59 ---

#define SLOW 300

static void open_slow(const struct testd *d, struct client **c, const char *bytes)
{
	for (int i = 0; i < SLOW; i++) {
		c[i] = client_connect(d);
		ck_assert(client_send_str(c[i], bytes));
	}
}

// Every one gets its 408 and the end between FROM and UNTIL milliseconds after START.
static void want_408(struct client **c, int64_t start, int64_t from, int64_t until)
{
	for (int i = 0; i < SLOW; i++) {
		want_error(c[i], 408, "deadline_exceeded");
		int64_t ms = h_now_ms() - start;
		ck_assert_msg(ms >= from && ms < h_scaled(until), "ended after %lld ms", (long long)ms);
		want_end(c[i]);
		client_close(c[i]);
	}
}

START_TEST(half_sent_heads_hold_up_others)
{
	struct testd *d = d_start("--header-timeout", "1");
	struct client *c[SLOW];
	struct client *idle = client_connect(d);
	struct client *fresh = client_connect(d); // has said nothing at all
	struct resp r = {0};
	want_health(idle);
	int64_t start = h_now_ms();
	open_slow(d, c, "POST /exec HTTP/1.1\r\nHo");
	int64_t opened = h_now_ms();
	(void)run(d, "echo a", &r);
	ck_assert_int_lt(h_now_ms() - opened, h_scaled(800));
	want_408(c, start, 900, 4000);
	// Dripping does not help: the whole head has its time from its first byte on.
	open_slow(d, c, "GET /health HTTP/1.1\r\nX: ");
	start = h_now_ms();
	while (h_now_ms() - start < 600) {
		for (int i = 0; i < SLOW; i++)
			ck_assert(client_send_str(c[i], "y"));
		h_tick();
	}
	want_408(c, start, 700, 4000);
	want_health(idle);
	want_health(fresh);
	client_close(idle);
	client_close(fresh);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A body may pause three times as long as a head may take, and go on for as long as it moves.
START_TEST(half_sent_bodies_stay_for_ever)
{
	struct testd *d = d_start("--header-timeout", "0.3");
	struct client *c[SLOW];
	struct client *moving = client_connect(d);
	struct resp r = {0};
	ck_assert(client_send_str(moving, "POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: 1020\r\n\r\n"));
	int64_t start = h_now_ms();
	open_slow(d, c, "POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"command\":");
	int sent = 0;
	for (; sent < 1000 && h_now_ms() - start < 2000; sent += 2) {
		ck_assert(client_send_str(moving, "  "));
		h_tick();
	}
	for (; sent < 1000; sent++)
		ck_assert(client_send_str(moving, " "));
	ck_assert(client_send_str(moving, "{\"command\":\"echo a\"}"));
	client_response(moving, &r);
	ck_assert_int_eq(r.status, 200);
	want_408(c, start, 800, 6000);
	client_close(moving);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(idle_connection_is_kept_too_long)
{
	struct testd *d = d_start("--idle-timeout", "0.5", "--header-timeout", "0.2");
	struct client *c = client_connect(d);
	for (int i = 0; i < 150; i++) { // longer than the limit, each pause shorter
		want_health(c);
		h_tick();
	}
	int64_t last = h_now_ms();
	ck_assert(client_wait_eof(c, 5000));
	ck_assert(!c->reset);
	ck_assert_int_ge(h_now_ms() - last, 400);
	client_close(c);
	d_finish(d);
}
END_TEST

// --- the limit of connections ---

#define CONNS 8

static void want_refused(const struct testd *d)
{
	struct client *c = client_connect(d);
	struct resp r = {0};
	client_request(c, "POST", "/exec", NULL, "{\"command\":\"echo a\"}", 20);
	client_response(c, &r);
	ck_assert(j_bool(assert_error(&r, 503, "resource_exhausted"), "retryable"));
	want_end(c);
	client_close(c);
	resp_release(&r);
}

static bool exec_works(void *arg)
{
	struct resp r = {0};
	req(arg, "POST", "/exec", "{\"command\":\"echo a\"}", &r);
	int status = r.status;
	resp_release(&r);
	return status == 200;
}

START_TEST(health_fails_at_the_connection_limit)
{
	struct testd *d = d_start("--max-conns", "8");
	struct client *busy[CONNS];
	struct resp r = {0};
	struct buf body = {0};
	for (int i = 0; i < CONNS; i++) {
		busy[i] = client_connect(d);
		client_request(busy[i], "POST", "/exec/stream", NULL, "{\"command\":\"cat\"}", 17);
		while (client_event(busy[i], &body, h_now_ms() + h_scaled(3000)) != HTTP_BODY)
			ck_assert(!busy[i]->eof);
	}
	for (int i = 0; i < 3; i++) {
		want_refused(d);
		req(d, "GET", "/health", NULL, &r);
		ck_assert_int_eq(r.status, 204);
	}
	// Many that say nothing do not take the reserve away for long.
	struct client *mute[40];
	for (int i = 0; i < 40; i++)
		mute[i] = client_connect(d);
	req(d, "GET", "/health", NULL, &r);
	ck_assert_int_eq(r.status, 204);
	for (int i = 0; i < 40; i++)
		client_close(mute[i]);
	client_abort(busy[0]); // a mere FIN could be a half-close: the stream would go on
	ck_assert_msg(wait_until(exec_works, d, 3000), "the place of one that has gone is not used");
	for (int i = 1; i < CONNS; i++)
		client_close(busy[i]);
	buf_release(&body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(idle_connections_lock_others_out)
{
	struct testd *d = d_start("--max-conns", "8");
	struct client *idle[CONNS];
	for (int i = 0; i < CONNS; i++) {
		idle[i] = client_connect(d);
		want_health(idle[i]);
	}
	ck_assert(exec_works(d)); // the longest idle one made room
	ck_assert(client_wait_eof(idle[0], 3000));
	for (int i = 1; i < CONNS; i++)
		want_health(idle[i]);
	for (int i = 0; i < CONNS; i++)
		client_close(idle[i]);
	d_finish(d);
}
END_TEST

// Who has sent a request gets an answer, whoever came after it: these all wait when the daemon looks.
START_TEST(crowd_is_reset)
{
	struct testd *d = d_start("--max-conns", "8");
	struct client *c[100];
	struct resp r = {0};
	int served = 0;
	ck_assert_int_eq(kill(d->daemon, SIGSTOP), 0);
	for (int i = 0; i < 100; i++) {
		c[i] = client_connect(d);
		client_request(c[i], "GET", "/processes", NULL, NULL, 0);
	}
	ck_assert_int_eq(kill(d->daemon, SIGCONT), 0);
	for (int i = 0; i < 100; i++) {
		client_response(c[i], &r);
		ck_assert_msg(r.status == 200 || r.status == 503, "request %d: %d", i, r.status);
		served += r.status == 200;
		client_close(c[i]);
	}
	ck_assert_int_ge(served, CONNS);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *http_limits_suite(void)
{
	Suite *s = suite_create("http_limits");
	TCase *tc = h_tcase(s, "size", 30);
	tcase_add_test(tc, body_limit_is_off_by_one);
	tcase_add_test(tc, body_is_read_before_it_is_refused);
	tcase_add_test(tc, chunked_body_grows_without_limit);
	tcase_add_test(tc, answer_is_lost_while_the_client_sends);
	tcase_add_test(tc, head_limit_is_not_kept);
	tc = h_tcase(s, "time", 30);
	tcase_add_test(tc, half_sent_heads_hold_up_others);
	tcase_add_test(tc, half_sent_bodies_stay_for_ever);
	tcase_add_test(tc, idle_connection_is_kept_too_long);
	tc = h_tcase(s, "count", 30);
	tcase_add_test(tc, health_fails_at_the_connection_limit);
	tcase_add_test(tc, idle_connections_lock_others_out);
	tcase_add_test(tc, crowd_is_reset);
	return s;
}
