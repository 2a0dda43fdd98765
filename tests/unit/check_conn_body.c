// SPDX-License-Identifier: Apache-2.0
// Request bodies that go to a sink, and answers of a known length that come from a producer.
#include "netkit.h"
#include "suites.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST "Host: x\r\n"

// What the test's routes do with a body, and what they saw.
static struct state {
	struct buf got;
	struct conn *conn;
	size_t pause_each; // pauses whenever so many bytes came since the last pause, 0 = never
	size_t since_pause;
	size_t answer_at; // answers once so many bytes came, 0 = never
	bool later;       // END leaves the answer to the test
	int ends, closes, pauses;
	struct kit_source source;
	struct conn_answer answer;
} st;

static struct kit kit;
static struct kit_client client;

static void reply(const char *text)
{
	struct buf b;
	buf_init(&b, 0);
	buf_str(&b, text);
	conn_reply(st.conn, 200, "text/plain", NULL, &b);
	buf_release(&b);
}

static enum conn_take on_data(void *arg, const void *p, size_t n)
{
	ck_assert_ptr_eq(arg, &st);
	ck_assert_uint_gt(n, 0);
	buf_append(&st.got, p, n);
	st.since_pause += n;
	if (st.answer_at > 0 && buf_len(&st.got) >= st.answer_at) {
		struct err e;
		err_http(&e, 507, ERR_RESOURCE_EXHAUSTED, "full");
		conn_error(st.conn, &e);
		return CONN_TAKE_PAUSE; // means nothing any more
	}
	if (st.pause_each == 0 || st.since_pause < st.pause_each)
		return CONN_TAKE_MORE;
	st.since_pause = 0;
	st.pauses++;
	return CONN_TAKE_PAUSE;
}

static void on_end(void *arg)
{
	ck_assert_ptr_eq(arg, &st);
	st.ends++;
	if (!st.later)
		reply("taken");
}

static void on_closed(void *arg)
{
	ck_assert_ptr_eq(arg, &st);
	st.closes++;
	st.conn = NULL;
}

static void take(void *ctx, struct conn *c)
{
	static const struct conn_sink sink = {on_data, on_end, on_closed};
	(void)ctx;
	st.conn = c;
	conn_body_sink(c, &sink, &st);
}

static void refuse(void *ctx, struct conn *c)
{
	struct err e;
	(void)ctx;
	err_set(&e, ERR_UNAUTHENTICATED, "no");
	conn_error(c, &e);
}

static void at_once(void *ctx, struct conn *c)
{
	(void)ctx;
	st.conn = c;
	reply("at once");
}

static enum conn_pull pull(void *arg, struct buf *out, size_t room)
{
	struct kit_source *s = arg;
	size_t n = s->piece < room ? s->piece : room;
	n = n < s->left ? n : (size_t)s->left;
	for (size_t i = 0; i < n; i++)
		buf_byte(out, (unsigned char)('0' + s->made++ % 10));
	s->left -= n;
	return s->left > 0 ? CONN_PULL_MORE : s->last;
}

static void pull_closed(void *arg)
{
	((struct kit_source *)arg)->closed++;
}

static void sized(void *ctx, struct conn *c)
{
	static const struct conn_producer producer = {pull, pull_closed};
	(void)ctx;
	ck_assert(conn_stream_as(c, &st.answer, &producer, &st.source));
}

static const struct route routes[] = {
	{ROUTE_POST, "/take", take, ROUTE_OPEN | ROUTE_STREAM},
	{ROUTE_POST, "/refuse", refuse, ROUTE_OPEN | ROUTE_STREAM},
	{ROUTE_GET | ROUTE_POST, "/at-once", at_once, ROUTE_OPEN | ROUTE_STREAM},
	{ROUTE_GET | ROUTE_POST, "/sized", sized, ROUTE_OPEN},
	{ROUTE_POST, "/early", sized, ROUTE_OPEN | ROUTE_STREAM},
};

static void error_body(struct buf *out, const struct err *e)
{
	buf_printf(out, "{%s}", e->msg);
}

static const struct route_table table = {
	.routes = routes,
	.count = sizeof routes / sizeof *routes,
	.error_type = "text/error",
	.error_body = error_body,
};

static void open_client(void)
{
	int fds[2];
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(fcntl(fds[i], F_SETFL, O_NONBLOCK), 0);
	client = (struct kit_client){.fd = fds[1]};
	ck_assert_int_eq(net_add_take(kit.net, fds[0], &table), 0);
}

static void setup_limits(const struct net_limits *limits)
{
	st = (struct state){.source = {.piece = 1 << 20, .last = CONN_PULL_END}};
	kit_init(&kit, limits);
	open_client();
}

static void setup(void)
{
	setup_limits(&kit_limits);
}

static void teardown(void)
{
	kit_close(&client);
	kit_release(&kit);
	buf_release(&st.got);
}

// --- whole bodies ---

static const struct body {
	const char *request, *want;
} bodies[] = {
	{"POST /take HTTP/1.1\r\n" HOST "Content-Length: 10\r\n\r\n0123456789", "0123456789"},
	{"POST /take HTTP/1.1\r\n" HOST
	 "Transfer-Encoding: chunked\r\n\r\n3\r\n012\r\n7;x=y\r\n3456789\r\n0\r\nT: v\r\n\r\n",
		"0123456789"},
	{"POST /take HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", ""},
	{"POST /take HTTP/1.1\r\n" HOST "\r\n", ""},
	{"POST /take HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", ""},
};
enum { BODIES = sizeof bodies / sizeof *bodies, STEPS = 9 };

// Twice on one connection, so that the second request shows that the first took what was its own.
static void check_bodies(size_t pause_each)
{
	static const size_t steps[STEPS] = {1, 2, 3, 4, 5, 7, 16, 64, 1000};
	for (int i = 0; i < BODIES * STEPS; i++) {
		const struct body *b = &bodies[i % BODIES];
		char twice[512];
		(void)snprintf(twice, sizeof twice, "%s%s", b->request, b->request);
		st.pause_each = pause_each;
		st.ends = 0;
		buf_reset(&st.got);
		kit_forget(&client);
		size_t n = strlen(twice), step = steps[i / BODIES];
		for (size_t at = 0; at < n; at += step) {
			kit_send(&kit, &client, twice + at, step < n - at ? step : n - at);
			kit_turn(&kit, &client);
			if (st.conn)
				conn_resume_body(st.conn);
		}
		double end = kit_time() + 10;
		while (kit_times(&client, "\r\n\r\ntaken") < 2) {
			ck_assert_msg(kit_time() < end, "no answers to body %d", i);
			kit_turn(&kit, &client);
			if (st.conn)
				conn_resume_body(st.conn);
		}
		ck_assert_int_eq(st.ends, 2);
		ck_assert_int_eq(st.closes, 0);
		size_t len = strlen(b->want);
		ck_assert_uint_eq(buf_len(&st.got), 2 * len);
		ck_assert_mem_eq(buf_data(&st.got), b->want, len);
		ck_assert_mem_eq(buf_data(&st.got) + len, b->want, len);
	}
}

START_TEST(body_at_every_chunking)
{
	check_bodies(0);
	ck_assert_int_eq(st.pauses, 0);
}
END_TEST

START_TEST(body_with_pauses_at_every_chunking)
{
	for (size_t each = 1; each <= 4; each++)
		check_bodies(each);
	ck_assert_int_gt(st.pauses, 100);
}
END_TEST

// A collected body would be refused: the limit is for memory.
START_TEST(larger_than_memory)
{
	char piece[1000];
	memset(piece, 'x', sizeof piece);
	kit_say(&kit, &client, "POST /take HTTP/1.1\r\n" HOST "Content-Length: 1000000\r\n\r\n");
	for (int i = 0; i < 1000; i++)
		kit_send(&kit, &client, piece, sizeof piece);
	KIT_UNTIL(&kit, &client, kit_has(&client, "\r\n\r\ntaken"));
	ck_assert_uint_eq(buf_len(&st.got), 1000000);
	ck_assert(!kit_has(&client, "Connection: close"));
}
END_TEST

// --- backpressure ---

// While the sink pauses, the client's bytes stay in the socket, and time is not counted against it.
START_TEST(paused_body_is_not_read)
{
	static char body[4 * 1024 * 1024];
	struct net_limits limits = kit_limits;
	limits.header_timeout = 0.05;
	teardown();
	setup_limits(&limits);
	st.pause_each = 1;
	kit_say(&kit, &client, "POST /take HTTP/1.1\r\n" HOST "Content-Length: 4194304\r\n\r\n");
	size_t at = 0;
	double end = kit_time() + 0.5; // more than thrice the timeout
	while (kit_time() < end) {
		ssize_t n = send(client.fd, body + at, sizeof body - at, MSG_NOSIGNAL);
		at += n > 0 ? (size_t)n : 0;
		kit_turn(&kit, NULL);
	}
	ck_assert_uint_lt(at, 1000000);
	ck_assert_int_eq(st.pauses, 1);
	ck_assert_int_eq(st.closes, 0);
	st.pause_each = 0;
	conn_resume_body(st.conn);
	while (st.ends == 0) {
		ssize_t n = at < sizeof body ? send(client.fd, body + at, sizeof body - at, MSG_NOSIGNAL) : 0;
		at += n > 0 ? (size_t)n : 0;
		kit_turn(&kit, &client);
		ck_assert(kit_time() < end + 10);
	}
	ck_assert_uint_eq(buf_len(&st.got), sizeof body);
	KIT_UNTIL(&kit, &client, kit_has(&client, "\r\n\r\ntaken"));
}
END_TEST

// --- 100 Continue ---

START_TEST(continue_when_the_sink_takes)
{
	kit_say(&kit, &client, "POST /take HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
	KIT_UNTIL(&kit, &client, client.n > 0);
	ck_assert_str_eq(client.got, "HTTP/1.1 100 Continue\r\n\r\n");
	kit_say(&kit, &client, "abc");
	KIT_UNTIL(&kit, &client, kit_has(&client, "\r\n\r\ntaken"));
}
END_TEST

START_TEST(no_continue_when_refused)
{
	kit_say(&kit, &client, "POST /refuse HTTP/1.1\r\n" HOST "Expect: 100-continue\r\nContent-Length: 3\r\n\r\n");
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert_str_eq(client.got, "HTTP/1.1 401 Unauthorized\r\nContent-Type: text/error\r\nContent-Length: 4\r\n"
				     "Connection: close\r\n\r\n{no}");
	ck_assert_int_eq(client.error, 0);
}
END_TEST

// --- answers before the body's end ---

// Without a body there is nothing to be rid of: the connection lives on.
START_TEST(early_answer_without_a_body)
{
	kit_say(&kit, &client, "POST /refuse HTTP/1.1\r\n" HOST "\r\nGET /at-once HTTP/1.1\r\n" HOST "\r\n");
	KIT_UNTIL(&kit, &client, kit_has(&client, "\r\n\r\nat once"));
	ck_assert(strncmp(client.got, "HTTP/1.1 401 ", 13) == 0);
	ck_assert(!kit_has(&client, "Connection: close"));
	ck_assert_int_eq(st.closes, 0);
}
END_TEST

// The client goes on sending: an RST would take the answer from it.
static void check_lingering(const char *head, const char *status)
{
	static char body[900000];
	kit_say(&kit, &client, head);
	ck_assert_uint_eq(kit_send(&kit, &client, body, sizeof body), sizeof body);
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert_int_eq(client.error, 0);
	ck_assert_msg(strncmp(client.got, status, strlen(status)) == 0, "%s", client.got);
	ck_assert(kit_has(&client, "Connection: close\r\n"));
	ck_assert_uint_eq(kit_times(&client, "HTTP/1.1 "), 1);
	ck_assert_int_eq(st.closes, 0);
	ck_assert_int_eq(st.ends, 0);
}

START_TEST(refusal_survives_a_talking_client)
{
	check_lingering("POST /refuse HTTP/1.1\r\n" HOST "Content-Length: 900000\r\n\r\n", "HTTP/1.1 401 ");
}
END_TEST

START_TEST(success_survives_a_talking_client)
{
	check_lingering("POST /at-once HTTP/1.1\r\n" HOST "Content-Length: 900000\r\n\r\n", "HTTP/1.1 200 ");
}
END_TEST

START_TEST(failure_in_the_middle_survives)
{
	st.answer_at = 100000;
	check_lingering("POST /take HTTP/1.1\r\n" HOST "Content-Length: 900000\r\n\r\n", "HTTP/1.1 507 ");
	ck_assert_uint_lt(buf_len(&st.got), 500000); // the read that brought it there, and not what came behind
}
END_TEST

START_TEST(stream_survives_a_talking_client)
{
	st.source.left = 5;
	st.answer = (struct conn_answer){200, "text/plain", NULL, 5, false};
	check_lingering("POST /early HTTP/1.1\r\n" HOST "Content-Length: 900000\r\n\r\n", "HTTP/1.1 200 ");
	ck_assert(kit_has(&client, "\r\n\r\n01234"));
	ck_assert_int_eq(st.source.closed, 1);
}
END_TEST

// --- bodies that do not come whole ---

static void begin_body(void)
{
	kit_say(&kit, &client, "POST /take HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n5\r\nabc");
	KIT_UNTIL(&kit, &client, buf_len(&st.got) == 3);
}

static void check_cut(const char *status)
{
	KIT_UNTIL(&kit, &client, st.closes > 0);
	if (status) {
		KIT_UNTIL(&kit, &client, client.eof);
		ck_assert_msg(strncmp(client.got, status, strlen(status)) == 0, "%s", client.got);
	} else {
		KIT_UNTIL(&kit, &client, net_conn_count(kit.net) == 0);
	}
	kit_turns_for(&kit, NULL, 0.02);
	ck_assert_int_eq(st.closes, 1);
	ck_assert_int_eq(st.ends, 0);
}

START_TEST(half_closed)
{
	begin_body();
	shutdown(client.fd, SHUT_WR);
	check_cut("HTTP/1.1 400 ");
}
END_TEST

START_TEST(peer_gone)
{
	begin_body();
	shutdown(client.fd, SHUT_RDWR);
	check_cut(NULL);
}
END_TEST

// Nothing is read meanwhile that could tell.
START_TEST(peer_gone_while_paused)
{
	st.pause_each = 1;
	begin_body();
	shutdown(client.fd, SHUT_RDWR);
	check_cut(NULL);
}
END_TEST

START_TEST(broken_chunk)
{
	begin_body();
	kit_say(&kit, &client, "deX\r\n");
	check_cut("HTTP/1.1 400 ");
}
END_TEST

START_TEST(too_slow)
{
	struct net_limits limits = kit_limits;
	limits.header_timeout = 0.05;
	teardown();
	setup_limits(&limits);
	begin_body();
	check_cut("HTTP/1.1 408 ");
}
END_TEST

START_TEST(cut_by_the_owner)
{
	begin_body();
	conn_abort(st.conn);
	ck_assert_int_eq(st.closes, 0); // only from the hook
	conn_resume_body(st.conn);
	check_cut(NULL);
}
END_TEST

START_TEST(cut_before_a_late_answer)
{
	st.later = true;
	kit_say(&kit, &client, "POST /take HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc");
	KIT_UNTIL(&kit, &client, st.ends == 1);
	shutdown(client.fd, SHUT_RDWR);
	conn_abort(st.conn);
	KIT_UNTIL(&kit, &client, st.closes == 1);
	kit_turns_for(&kit, NULL, 0.02);
	ck_assert_int_eq(st.closes, 1);
}
END_TEST

START_TEST(late_answer)
{
	st.later = true;
	kit_say(&kit, &client,
		"POST /take HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabcGET /at-once HTTP/1.1\r\n" HOST "\r\n");
	KIT_UNTIL(&kit, &client, st.ends == 1);
	kit_turns_for(&kit, &client, 0.02);
	ck_assert_uint_eq(client.n, 0);
	reply("late");
	KIT_UNTIL(&kit, &client, kit_has(&client, "\r\n\r\nat once"));
	ck_assert(kit_has(&client, "\r\n\r\nlateHTTP/1.1 200 OK\r\n"));
	ck_assert_int_eq(st.closes, 0);
}
END_TEST

// --- answers of a known length ---

START_TEST(sized_answer_keeps_the_connection)
{
	st.source.left = 300000;
	st.answer = (struct conn_answer){206, "text/plain", "X: y\r\n", 300000, false};
	kit_say(&kit, &client, "GET /sized HTTP/1.1\r\n" HOST "\r\nGET /at-once HTTP/1.1\r\n" HOST "\r\n");
	static const char head[] =
		"HTTP/1.1 206 Partial Content\r\nContent-Type: text/plain\r\nX: y\r\nContent-Length: 300000\r\n\r\n";
	static const char next[] = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 7\r\n\r\nat once";
	KIT_UNTIL(&kit, &client, client.total == strlen(head) + 300000 + strlen(next));
	ck_assert(strncmp(client.got, head, strlen(head)) == 0);
	for (size_t i = strlen(head); i < client.n; i++)
		ck_assert_int_eq(client.got[i], '0' + (int)((i - strlen(head)) % 10));
	ck_assert_int_eq(st.source.closed, 1);
}
END_TEST

START_TEST(sized_answer_with_its_own_length_line)
{
	st.source.left = 2;
	st.answer = (struct conn_answer){200, NULL, "A: 1\r\nContent-Length: 2\r\nZ: 2\r\n", 2, true};
	kit_say(&kit, &client, "GET /sized HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
	KIT_UNTIL(&kit, &client, kit_has(&client, "\r\n\r\n01"));
	ck_assert_str_eq(
		client.got, "HTTP/1.1 200 OK\r\nA: 1\r\nContent-Length: 2\r\nZ: 2\r\nConnection: keep-alive\r\n\r\n01");
}
END_TEST

// Too short: cut, for the peer waits for the rest. Too long: the rest would be taken for the next answer.
START_TEST(sized_answer_of_another_length)
{
	st.source.left = _i == 0 ? 4 : 6;
	st.answer = (struct conn_answer){200, NULL, NULL, 5, false};
	kit_say(&kit, &client, "GET /sized HTTP/1.1\r\n" HOST "\r\nGET /at-once HTTP/1.1\r\n" HOST "\r\n");
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert_str_eq(client.got, _i == 0 ? "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n0123"
					     : "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n01234");
	ck_assert_int_eq(st.source.closed, 1);
}
END_TEST

Suite *conn_body_suite(void)
{
	Suite *s = suite_create("conn_body");
	TCase *tc = tcase_create("sink");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, body_at_every_chunking);
	tcase_add_test(tc, body_with_pauses_at_every_chunking);
	tcase_add_test(tc, larger_than_memory);
	tcase_add_test(tc, paused_body_is_not_read);
	tcase_add_test(tc, continue_when_the_sink_takes);
	tcase_add_test(tc, no_continue_when_refused);
	tcase_add_test(tc, early_answer_without_a_body);
	tcase_add_test(tc, refusal_survives_a_talking_client);
	tcase_add_test(tc, success_survives_a_talking_client);
	tcase_add_test(tc, failure_in_the_middle_survives);
	tcase_add_test(tc, stream_survives_a_talking_client);
	tcase_add_test(tc, half_closed);
	tcase_add_test(tc, peer_gone);
	tcase_add_test(tc, peer_gone_while_paused);
	tcase_add_test(tc, broken_chunk);
	tcase_add_test(tc, too_slow);
	tcase_add_test(tc, cut_by_the_owner);
	tcase_add_test(tc, cut_before_a_late_answer);
	tcase_add_test(tc, late_answer);
	tcase_add_test(tc, sized_answer_keeps_the_connection);
	tcase_add_test(tc, sized_answer_with_its_own_length_line);
	tcase_add_loop_test(tc, sized_answer_of_another_length, 0, 2);
	suite_add_tcase(s, tc);
	return s;
}
