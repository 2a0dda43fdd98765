// SPDX-License-Identifier: Apache-2.0
// The gateway's own requests, to a peer that answers in pieces, late, wrongly or not at all. The box is a socket pair.
#define _GNU_SOURCE 1
#include "daemon/io.h"
#include "oom.h"
#include "suites.h"
#include "tests/gateway/call.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static struct ev_loop *loop;
static int peer = -1, refusal;
static ev_timer feeder;
static ev_io reader;
// What the peer says, PIECE bytes a turn, and whether it then closes.
static const char *answer;
static size_t left, piece;
static bool closes;
static char heard[4096];
static size_t heard_n;

static int told, status, error;
static char body[256];
static size_t body_n;

// What a box would do.
static int connect_peer(void)
{
	int fds[2];
	if (refusal)
		return refusal;
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) < 0)
		return -errno;
	peer = fds[1];
	return fds[0];
}

static void done(void *arg, const struct call_answer *a)
{
	(void)arg;
	told++;
	status = a->status;
	error = a->error;
	if (a->status) {
		body_n = buf_len(a->body) < sizeof body ? buf_len(a->body) : sizeof body;
		memcpy(body, buf_data(a->body), body_n);
		ck_assert_int_eq(a->head->status, a->status);
	}
	ev_break(loop, EVBREAK_ALL);
}

static void on_feed(struct ev_loop *l, ev_timer *w, int revents)
{
	(void)revents;
	size_t n = left < piece ? left : piece;
	if (n > 0 && write(peer, answer, n) > 0) {
		answer += n;
		left -= n;
	}
	if (left > 0)
		return;
	ev_timer_stop(l, w);
	if (closes) {
		ev_io_stop(l, &reader);
		io_close(&peer);
	}
}

static void on_read(struct ev_loop *l, ev_io *w, int revents)
{
	(void)revents;
	ssize_t n = read(w->fd, heard + heard_n, sizeof heard - 1 - heard_n);
	if (n <= 0)
		ev_io_stop(l, w);
	else
		heard_n += (size_t)n;
	heard[heard_n] = '\0';
}

static void setup(void)
{
	loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	ck_assert_ptr_nonnull(loop);
	piece = 1 << 20;
}

static void teardown(void)
{
	io_close(&peer);
	ev_loop_destroy(loop);
}

static const struct call_spec get = {.method = "GET", .target = "/x", .timeout = 5, .max = 200};

static void begin(const struct call_spec *spec, const char *text, size_t n, bool close_after)
{
	told = status = error = 0;
	body_n = heard_n = 0;
	answer = text;
	left = n;
	closes = close_after;
	ck_assert_ptr_nonnull(call_start_take(loop, connect_peer(), spec, done, NULL));
	ck_assert_int_eq(told, 0);
	if (peer < 0)
		return;
	ev_io_init(&reader, on_read, peer, EV_READ);
	ev_io_start(loop, &reader);
	ev_timer_init(&feeder, on_feed, 0., 1e-5);
	ev_timer_start(loop, &feeder);
}

static void finish(void)
{
	ev_run(loop, 0);
	ck_assert_int_eq(told, 1);
	if (peer >= 0) {
		ev_io_stop(loop, &reader);
		ev_timer_stop(loop, &feeder);
		io_close(&peer);
	}
}

#define OK "HTTP/1.1 200 OK\r\n"
static const struct answer_case {
	const char *text;
	bool closes;
	int status, error;
	const char *body;
} cases[] = {
	{OK "Content-Length: 5\r\n\r\nhello", false, 200, 0, "hello"},
	{OK "Content-Length: 5\r\n\r\nhello", true, 200, 0, "hello"},
	{OK "Content-Length: 0\r\n\r\n", false, 200, 0, ""},
	{OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: x\r\n\r\n", false, 200, 0, "hello"},
	{OK "Connection: close\r\n\r\nuntil the end", true, 200, 0, "until the end"},
	{"HTTP/1.0 200 OK\r\n\r\n", true, 200, 0, ""},
	{"HTTP/1.1 204 No Content\r\n\r\n", false, 204, 0, ""},
	{"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno", false, 404, 0, "no"},
	{"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" OK "Content-Length: 2\r\n\r\nok",
		false, 200, 0, "ok"},
	{OK "Content-Length: 5\r\n\r\nhello" OK "Content-Length: 3\r\n\r\nbad", false, 200, 0, "hello"},
	// Cut, wrong, or too much.
	{"", true, 0, -ECONNRESET, ""},
	{"HTTP/1.1 200 O", true, 0, -ECONNRESET, ""},
	{OK "Content-Length: 5\r\n", true, 0, -ECONNRESET, ""},
	{OK "Content-Length: 5\r\n\r\nhell", true, 0, -ECONNRESET, ""},
	{OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nll", true, 0, -ECONNRESET, ""},
	{OK "Transfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n", true, 0, -ECONNRESET, ""},
	{"HTTP/1.1 100 Continue\r\n\r\n", true, 0, -ECONNRESET, ""},
	{"SSH-2.0-x\r\n", false, 0, -EPROTO, ""},
	{OK "Transfer-Encoding: chunked\r\n\r\nzz\r\n", false, 0, -EPROTO, ""},
	{OK "Content-Length: 5\r\nContent-Length: 6\r\n\r\n", false, 0, -EPROTO, ""},
	{OK "Content-Length: 201\r\n\r\n"
	    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789"
	    "0123456789012345678901234567890123456789012345678901234567890123456789012345678901234567890123456789!",
		false, 0, -EMSGSIZE, ""},
};

START_TEST(answers)
{
	const struct answer_case *c = &cases[_i / 4];
	piece = (const size_t[]){1 << 20, 1, 2, 7}[_i % 4];
	begin(&get, c->text, strlen(c->text), c->closes);
	finish();
	ck_assert_int_eq(status, c->status);
	ck_assert_int_eq(error, c->error);
	ck_assert_uint_eq(body_n, strlen(c->body));
	ck_assert_int_eq(memcmp(body, c->body, body_n), 0);
}
END_TEST

START_TEST(head_has_no_body)
{
	static const char text[] = OK "Content-Length: 5\r\n\r\n";
	struct call_spec spec = get;
	spec.method = "HEAD";
	begin(&spec, text, sizeof text - 1, false);
	finish();
	ck_assert_int_eq(status, 200);
	ck_assert_uint_eq(body_n, 0);
}
END_TEST

START_TEST(what_is_asked)
{
	static const char text[] = "HTTP/1.1 204 No Content\r\n\r\n";
	struct buf json;
	buf_init(&json, 0);
	buf_str(&json, "{\"a\":1}");
	struct call_spec spec = {
		.method = "POST", .target = "/p?q=1", .extra = "X-A: b\r\n", .body = &json, .timeout = 5, .max = 1};
	begin(&spec, text, 0, false);
	buf_release(&json); // it is the call's own by now
	while (!strstr(heard, "{\"a\":1}"))
		ev_run(loop, EVRUN_ONCE);
	ck_assert_str_eq(heard, "POST /p?q=1 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-A: b\r\n"
				"Content-Type: application/json\r\nContent-Length: 7\r\n\r\n{\"a\":1}");
	ck_assert_int_eq(write(peer, text, sizeof text - 1), sizeof text - 1);
	finish();
	ck_assert_int_eq(status, 204);
}
END_TEST

// A peer that has read enough answers and closes while the request is still on its way.
START_TEST(an_answer_before_the_request_is_out_counts)
{
	static const char text[] = "HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nbig";
	struct buf large;
	buf_init(&large, 0);
	while (buf_len(&large) < 4 << 20)
		buf_str(&large, "0123456789012345678901234567890123456789");
	struct call_spec spec = {.method = "POST", .target = "/", .body = &large, .timeout = 5, .max = 100};
	begin(&spec, text, sizeof text - 1, false);
	ev_io_stop(loop, &reader); // it reads nothing of it
	buf_release(&large);
	finish();
	ck_assert_int_eq(status, 413);
	ck_assert_uint_eq(body_n, 3);
}
END_TEST

START_TEST(a_silent_peer_times_out)
{
	static const char *const texts[] = {"", "HTTP/1.1 200", OK "Content-Length: 5\r\n\r\nhel"};
	struct call_spec spec = get;
	spec.timeout = 0.05;
	begin(&spec, texts[_i], strlen(texts[_i]), false);
	int64_t t = io_mono_ns();
	finish();
	ck_assert_int_eq(status, 0);
	ck_assert_int_eq(error, -ETIMEDOUT);
	ck_assert_int_ge(io_mono_ns() - t, 45000000);
}
END_TEST

START_TEST(a_refusal_comes_from_the_loop)
{
	refusal = -ECONNREFUSED;
	begin(&get, "", 0, false);
	finish();
	ck_assert_int_eq(error, -ECONNREFUSED);
}
END_TEST

START_TEST(a_cancelled_call_says_nothing)
{
	static const char text[] = OK "Content-Length: 5\r\n\r\nhello";
	told = 0;
	struct call *c = call_start_take(loop, connect_peer(), &get, done, NULL);
	ck_assert_ptr_nonnull(c);
	ck_assert_int_eq(write(peer, text, sizeof text - 1), sizeof text - 1);
	call_cancel(c);
	ev_run(loop, 0); // nothing is left in it
	ck_assert_int_eq(told, 0);
	call_cancel(NULL);
}
END_TEST

static int start_oom(void *arg)
{
	(void)arg;
	struct call *c = call_start_take(loop, connect_peer(), &get, done, NULL);
	io_close(&peer);
	if (!c)
		return -ENOMEM;
	call_cancel(c);
	return 0;
}

START_TEST(every_allocation_of_the_start_may_fail)
{
	struct call *c =
		call_start_take(loop, connect_peer(), &get, done, NULL); // the loop's own arrays are there from here on
	call_cancel(c);
	io_close(&peer);
	OOM_LOOP(start_oom, NULL);
}
END_TEST

Suite *gateway_call_suite(void)
{
	Suite *s = suite_create("gateway_call");
	TCase *t = tcase_create("gateway_call");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, answers, 0, 4 * (int)(sizeof cases / sizeof *cases));
	tcase_add_test(t, head_has_no_body);
	tcase_add_test(t, what_is_asked);
	tcase_add_test(t, an_answer_before_the_request_is_out_counts);
	tcase_add_loop_test(t, a_silent_peer_times_out, 0, 3);
	tcase_add_test(t, a_refusal_comes_from_the_loop);
	tcase_add_test(t, a_cancelled_call_says_nothing);
	tcase_add_test(t, every_allocation_of_the_start_may_fail);
	suite_add_tcase(s, t);
	return s;
}
