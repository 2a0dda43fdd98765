// SPDX-License-Identifier: Apache-2.0
// What a proxy needs of a conn: answers that begin while the request still comes, interim ones, a peer's FIN told, a stream
// cut beyond doubt, the socket handed out.
#include "netkit.h"
#include "suites.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HOST "Host: x\r\n"
#define CHUNKED "POST /both HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"

static struct state {
	struct conn *conn;
	struct buf got, give; // of the request's body; for the answer's
	int ends, sink_closes, closes, eofs, cut;
	bool begun, last, abort, pause, at_head;
	struct conn_answer answer;
} st;

static struct kit kit;
static struct kit_client client;

static enum conn_pull pull(void *arg, struct buf *out, size_t room)
{
	ck_assert_ptr_eq(arg, &st);
	ck_assert_uint_gt(room, 0);
	buf_append(out, buf_data(&st.give), buf_len(&st.give));
	buf_reset(&st.give);
	return st.abort ? CONN_PULL_ABORT : st.last ? CONN_PULL_END : CONN_PULL_IDLE;
}

static void pull_closed(void *arg)
{
	((struct state *)arg)->closes++;
	st.conn = NULL;
}

static const struct conn_producer producer = {pull, pull_closed};

static void begin(void)
{
	st.begun = true;
	ck_assert(conn_stream_duplex(st.conn, &st.answer, &producer, &st));
}

static enum conn_take on_data(void *arg, const void *p, size_t n)
{
	ck_assert_ptr_eq(arg, &st);
	buf_append(&st.got, p, n);
	if (!st.begun && !st.at_head)
		begin();
	return st.pause ? CONN_TAKE_PAUSE : CONN_TAKE_MORE;
}

static void on_end(void *arg)
{
	((struct state *)arg)->ends++;
}

static void on_closed(void *arg)
{
	((struct state *)arg)->sink_closes++;
	st.conn = NULL;
}

static const struct conn_sink sink = {on_data, on_end, on_closed};

static void both(void *ctx, struct conn *c)
{
	(void)ctx;
	st.conn = c;
	conn_body_sink(c, &sink, &st);
	if (st.at_head)
		begin();
}

static void on_eof(void *arg)
{
	((struct state *)arg)->eofs++;
}

static void held_cut(void *arg)
{
	((struct state *)arg)->cut++;
	st.conn = NULL;
}

static void hold(void *ctx, struct conn *c)
{
	(void)ctx;
	st.conn = c;
	conn_on_close(c, held_cut, &st);
	conn_on_eof(c, on_eof, &st);
}

static void plain(void *ctx, struct conn *c)
{
	(void)ctx;
	conn_reply(c, 200, NULL, NULL, NULL);
}

static const struct route routes[] = {
	{ROUTE_POST, "/both", both, ROUTE_OPEN | ROUTE_STREAM},
	{ROUTE_GET, "/hold", hold, ROUTE_OPEN | ROUTE_STREAM},
	{ROUTE_GET, "/plain", plain, ROUTE_OPEN},
};

static void error_body(struct buf *out, const struct err *e)
{
	buf_printf(out, "{%s}", e->msg);
}

static const struct route_table table = {.routes = routes,
	.count = sizeof routes / sizeof *routes,
	.error_type = "text/error",
	.error_body = error_body};

static void setup(void)
{
	int fds[2];
	st = (struct state){.answer = {200, NULL, NULL, -1, false}};
	kit_init(&kit, &kit_limits);
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(fcntl(fds[i], F_SETFL, O_NONBLOCK), 0);
	client = (struct kit_client){.fd = fds[1]};
	ck_assert_int_eq(net_add_take(kit.net, fds[0], &table), 0);
}

static void teardown(void)
{
	kit_close(&client);
	kit_release(&kit);
	buf_release(&st.got);
	buf_release(&st.give);
}

static void give(const char *text)
{
	buf_str(&st.give, text);
	conn_wake(st.conn);
}

// --- both at once ---

// Question and answer by turns in one request, and the connection lives on.
START_TEST(by_turns)
{
	st.at_head = _i;
	kit_say(&kit, &client, CHUNKED "1\r\na\r\n");
	KIT_UNTIL(&kit, &client, st.begun && buf_len(&st.got) == 1);
	for (int i = 0; i < 3; i++) {
		give("b");
		KIT_UNTIL(&kit, &client, kit_has(&client, "\r\nb\r\n"));
		kit_forget(&client);
		kit_say(&kit, &client, "1\r\na\r\n");
		KIT_UNTIL(&kit, &client, buf_len(&st.got) == 2 + (size_t)i);
	}
	kit_say(&kit, &client, "0\r\n\r\nGET /plain HTTP/1.1\r\n" HOST "\r\n");
	KIT_UNTIL(&kit, &client, st.ends == 1);
	kit_turns_for(&kit, &client, 0.02);
	ck_assert_uint_eq(client.n, 0); // the next request waits
	st.last = true;
	conn_wake(st.conn);
	KIT_UNTIL(&kit, &client, kit_has(&client, "0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
	ck_assert_int_eq(st.closes, 1);
	ck_assert_int_eq(st.sink_closes, 0);
	ck_assert_int_eq(st.ends, 1);
}
END_TEST

// The sink's pauses hold while the answer runs.
START_TEST(pauses)
{
	static char body[2 * 1024 * 1024];
	st.pause = true;
	kit_say(&kit, &client, "POST /both HTTP/1.1\r\n" HOST "Content-Length: 2097152\r\n\r\n");
	size_t at = 0;
	for (double end = kit_time() + 0.2; kit_time() < end;) {
		ssize_t n = send(client.fd, body + at, sizeof body - at, MSG_NOSIGNAL);
		at += n > 0 ? (size_t)n : 0;
		kit_turn(&kit, NULL);
	}
	ck_assert(st.begun);
	ck_assert_uint_lt(at, 1000000);
	ck_assert_uint_le(buf_len(&st.got), 64 * 1024);
	st.pause = false;
	conn_resume_body(st.conn);
	kit_send(&kit, &client, body + at, sizeof body - at);
	KIT_UNTIL(&kit, &client, st.ends == 1);
	ck_assert_uint_eq(buf_len(&st.got), sizeof body);
	st.last = true;
	conn_wake(st.conn);
	KIT_UNTIL(&kit, &client, kit_has(&client, "\r\n0\r\n\r\n"));
	ck_assert(!client.eof);
}
END_TEST

// The answer is over first: the client gets to read it, and then the end.
START_TEST(answer_ends_first)
{
	kit_say(&kit, &client, CHUNKED "1\r\na\r\n");
	KIT_UNTIL(&kit, &client, st.begun);
	st.last = true;
	give("all");
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert_int_eq(client.error, 0);
	ck_assert(kit_has(&client, "3\r\nall\r\n0\r\n\r\n"));
	ck_assert_int_eq(st.closes, 1);
	ck_assert_int_eq(st.ends + st.sink_closes, 0);
}
END_TEST

// A body that breaks off, makes no sense, or whose client is gone: the answer is cut, and said once.
START_TEST(body_breaks_off)
{
	kit_say(&kit, &client, CHUNKED "5\r\nab");
	KIT_UNTIL(&kit, &client, st.begun);
	if (_i == 0)
		shutdown(client.fd, SHUT_WR);
	else if (_i == 1)
		kit_say(&kit, &client, "cdeX\r\n");
	else
		shutdown(client.fd, SHUT_RDWR);
	KIT_UNTIL(&kit, _i < 2 ? &client : NULL, st.closes == 1);
	ck_assert(!kit_has(&client, "0\r\n\r\n"));
	ck_assert_int_eq(st.ends + st.sink_closes, 0);
	ck_assert_uint_eq(net_conn_count(kit.net), 0);
}
END_TEST

// --- interim answers ---

START_TEST(interim)
{
	kit_say(&kit, &client, _i == 0 ? "GET /hold HTTP/1.1\r\n" HOST "\r\n" : "GET /hold HTTP/1.0\r\n\r\n");
	KIT_UNTIL(&kit, &client, st.conn);
	conn_interim(st.conn, 103, "Link: x\r\n");
	conn_reply(st.conn, 204, NULL, NULL, NULL);
	KIT_UNTIL(&kit, &client, kit_has(&client, " 204 "));
	if (_i == 0)
		ck_assert(strncmp(client.got, "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 204 ", 50) == 0);
	else
		ck_assert(!kit_has(&client, " 103 "));
}
END_TEST

// --- FIN ---

// Told once, also when it was there before, and the request can still be answered.
START_TEST(fin_is_told)
{
	kit_say(&kit, &client, "GET /hold HTTP/1.1\r\n" HOST "\r\n");
	if (_i == 0)
		KIT_UNTIL(&kit, &client, st.conn);
	ck_assert_int_eq(st.eofs, 0);
	shutdown(client.fd, SHUT_WR);
	KIT_UNTIL(&kit, &client, st.eofs == 1);
	kit_turns_for(&kit, &client, 0.02);
	ck_assert_int_eq(st.eofs, 1);
	ck_assert_int_eq(st.cut, 0);
	conn_reply(st.conn, 200, NULL, NULL, NULL);
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert(kit_has(&client, "Content-Length: 0\r\n"));
}
END_TEST

// --- cuts ---

// A body that only the connection's end would end is never taken for whole.
START_TEST(cut_of_a_stream_without_length)
{
	kit_close(&client);
	ck_assert_int_eq(kit_try(&kit, &client, KIT_TCP), 0);
	kit.source[0] = (struct kit_source){.left = 10, .piece = 10, .last = CONN_PULL_ABORT};
	if (_i == 1)
		kit.source[0].last = CONN_PULL_IDLE;
	kit_say(&kit, &client, "GET /stream HTTP/1.0\r\n\r\n");
	KIT_UNTIL(&kit, &client, kit.source[0].made == 10);
	if (_i == 1)
		conn_abort(kit.source[0].conn);
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert_int_eq(client.error, ECONNRESET);
	KIT_UNTIL(&kit, NULL, kit.source[0].closed == 1);
}
END_TEST

// --- the socket for another protocol ---

START_TEST(detached)
{
	struct buf in, out;
	char text[64];
	buf_init(&in, 0);
	buf_init(&out, 0);
	kit_say(&kit, &client, "GET /hold HTTP/1.1\r\n" HOST "Upgrade: x\r\nConnection: Upgrade\r\n\r\nearly");
	KIT_UNTIL(&kit, &client, st.conn);
	int fd = conn_detach(st.conn, &in, &out);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_eq(buf_len(&in), 5);
	ck_assert_mem_eq(buf_data(&in), "early", 5);
	ck_assert_uint_eq(buf_len(&out), 0);
	ck_assert_uint_eq(net_conn_count(kit.net), 0);
	ck_assert_int_eq(send(client.fd, "more", 4, 0), 4);
	kit_turns_for(&kit, &client, 0.02);
	ck_assert_int_eq(st.cut + st.eofs, 0);
	ck_assert_int_eq(read(fd, text, sizeof text), 4); // nobody else has read it
	ck_assert_int_eq(write(fd, "mine", 4), 4);
	KIT_UNTIL(&kit, &client, kit_has(&client, "mine"));
	close(fd);
	buf_release(&in);
	buf_release(&out);
}
END_TEST

// What earlier answers left to send goes along.
START_TEST(detached_with_output)
{
	struct buf in, out;
	buf_init(&in, 0);
	buf_init(&out, 0);
	kit_say(&kit, &client, "GET /plain HTTP/1.1\r\n" HOST "\r\nGET /hold HTTP/1.1\r\n" HOST "\r\n");
	while (!st.conn)
		ev_run(kit.loop, EVRUN_ONCE);
	conn_interim(st.conn, 103, NULL); // in no turn of the loop: it is still queued
	int fd = conn_detach(st.conn, &in, &out);
	ck_assert_int_ge(fd, 0);
	ck_assert_uint_gt(buf_len(&out), 0);
	const char *end = "HTTP/1.1 103 Early Hints\r\n\r\n";
	size_t n = strlen(end);
	ck_assert_mem_eq(buf_data(&out) + buf_len(&out) - n, end, n);
	close(fd);
	buf_release(&in);
	buf_release(&out);
}
END_TEST

Suite *conn_duplex_suite(void)
{
	Suite *s = suite_create("conn_duplex");
	TCase *t = tcase_create("duplex");
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, by_turns, 0, 2);
	tcase_add_test(t, pauses);
	tcase_add_test(t, answer_ends_first);
	tcase_add_loop_test(t, body_breaks_off, 0, 3);
	tcase_add_loop_test(t, interim, 0, 2);
	tcase_add_loop_test(t, fin_is_told, 0, 2);
	tcase_add_loop_test(t, cut_of_a_stream_without_length, 0, 2);
	tcase_add_test(t, detached);
	tcase_add_test(t, detached_with_output);
	suite_add_tcase(s, t);
	return s;
}
