// SPDX-License-Identifier: Apache-2.0
// One connection: requests in, answers and streams out, and how it ends.
#include "netkit.h"
#include "suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define OK_ANSWER "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nok"
#define STREAM_HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n"

static struct kit kit;
static struct kit_client client;

static void setup(void)
{
	kit_init(&kit, &kit_limits);
	kit_open(&kit, &client, KIT_TCP);
}

static void teardown(void)
{
	kit_close(&client);
	kit_release(&kit);
}

// One exchange, whole and byte by byte; END: the connection ends afterwards.
static const struct exchange {
	const char *send, *answer;
	bool end;
} exchanges[] = {
	{"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n", OK_ANSWER, false},
	{"GET /ready?a=b HTTP/1.1\r\nHost: x\r\n\r\nGET /empty HTTP/1.1\r\nHost: x\r\n\r\n"
	 "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabcGET /ready HTTP/1.1\r\nHost: x\r\n\r\n",
		OK_ANSWER
		"HTTP/1.1 204 No Content\r\n\r\n"
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Extra: 1\r\nContent-Length: 3\r\n\r\nabc" OK_ANSWER,
		false},
	{"POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Extra: 1\r\nContent-Length: 7\r\n\r\nabcdefg", false},
	{"POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Extra: 1\r\nContent-Length: 0\r\n\r\n", false},
	{"GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
		true},
	{"GET /ready HTTP/1.0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok",
		true},
	{"GET /ready HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: keep-alive\r\n\r\nok",
		false},
	{"GET /nope HTTP/1.1\r\nHost: x\r\n\r\nGET /ready HTTP/1.1\r\nHost: x\r\n\r\n",
		"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 39\r\n\r\n"
		"{\"error\":\"not found\",\"retryable\":false}" OK_ANSWER,
		false},
	{"POST /ready HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 405 Method Not Allowed\r\nContent-Type: application/json\r\nAllow: GET\r\nContent-Length: "
		"48\r\n"
		"\r\n{\"error\":\"method not allowed\",\"retryable\":false}",
		false},
	{"POST /nope HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 404 Not Found\r\nContent-Type: application/json\r\nContent-Length: 39\r\nConnection: "
		"close\r\n\r\n"
		"{\"error\":\"not found\",\"retryable\":false}",
		true},
	{"GET /fault HTTP/1.1\r\nHost: x\r\n\r\n",
		"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: 53\r\n\r\n"
		"{\"error\":\"open: Permission denied\",\"retryable\":false}",
		false},
	{"POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4097\r\n\r\n",
		"HTTP/1.1 413 Content Too Large\r\nContent-Type: application/json\r\nContent-Length: 44\r\nConnection: "
		"close\r\n"
		"\r\n{\"error\":\"body too large\",\"retryable\":false}",
		true},
};

static void check_exchange(const struct exchange *x, size_t step)
{
	size_t n = strlen(x->send), want = strlen(x->answer);
	for (size_t at = 0; at < n; at += step) {
		kit_send(&kit, &client, x->send + at, step < n - at ? step : n - at);
		kit_turn(&kit, &client);
	}
	KIT_UNTIL(&kit, &client, client.n >= want);
	kit_turn(&kit, &client);
	ck_assert_str_eq(client.got, x->answer);
	if (x->end) {
		KIT_UNTIL(&kit, &client, client.eof);
		ck_assert_int_eq(client.error, 0);
	} else {
		kit_turns_for(&kit, &client, 0.02);
		ck_assert(!client.eof);
		kit_forget(&client);
		kit_say(&kit, &client, "GET /empty HTTP/1.1\r\nHost: x\r\n\r\n");
		KIT_UNTIL(&kit, &client, kit_has(&client, "HTTP/1.1 204 No Content\r\n\r\n"));
	}
}

START_TEST(exchange_whole)
{
	check_exchange(&exchanges[_i], 100000);
}
END_TEST

START_TEST(exchange_bytewise)
{
	check_exchange(&exchanges[_i], 1);
}
END_TEST

START_TEST(exchange_over_unix)
{
	kit_close(&client);
	kit_open(&kit, &client, KIT_UNIX);
	check_exchange(&exchanges[_i], 7);
}
END_TEST

START_TEST(bad_request_ends)
{
	kit_say(&kit, &client, "GET /ready HTTP/1.1\r\nHost : x\r\n\r\nGET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert_int_eq(client.error, 0);
	ck_assert(strncmp(client.got, "HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\n", 57) == 0);
	ck_assert(kit_has(&client, "\r\nConnection: close\r\n"));
	ck_assert_int_eq(kit.handled, 0);
}
END_TEST

START_TEST(expect_continue)
{
	kit_say(&kit, &client, "POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
	KIT_UNTIL(&kit, &client, client.n > 0);
	ck_assert_str_eq(client.got, "HTTP/1.1 100 Continue\r\n\r\n");
	kit_say(&kit, &client, "abc");
	KIT_UNTIL(&kit, &client, kit_has(&client, "\r\n\r\nabc"));
}
END_TEST

START_TEST(chunked_over_the_limit)
{
	char chunk[1024];
	memset(chunk, 'x', sizeof(chunk));
	kit_say(&kit, &client, "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
	for (int i = 0; i < 5; i++) {
		kit_say(&kit, &client, "400\r\n");
		kit_send(&kit, &client, chunk, sizeof(chunk));
		kit_say(&kit, &client, "\r\n");
	}
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert(strncmp(client.got, "HTTP/1.1 413 ", 13) == 0);
	ck_assert_int_eq(kit.handled, 0);
}
END_TEST

// The client goes on sending its body; an RST would take the answer from it.
START_TEST(answer_survives_a_talking_client)
{
	static char body[900 * 1000];
	kit_say(&kit, &client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n\r\n");
	size_t sent = kit_send(&kit, &client, body, sizeof(body));
	ck_assert_uint_eq(sent, sizeof(body));
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert_int_eq(client.error, 0);
	ck_assert(kit_has(&client, "HTTP/1.1 413 "));
	ck_assert(kit_has(&client, "{\"error\":\"body too large\""));
	ck_assert_uint_eq(net_conn_count(kit.net), 1);
	kit_close(&client);
	KIT_UNTIL(&kit, NULL, net_conn_count(kit.net) == 0);
}
END_TEST

START_TEST(talking_client_is_cut_in_the_end)
{
	static char body[80 * 1000 * 1000];
	kit_say(&kit, &client, "GET /ready HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	ck_assert_uint_lt(kit_send(&kit, &client, body, sizeof(body)), sizeof(body));
	ck_assert_uint_eq(net_conn_count(kit.net), 0);
}
END_TEST

START_TEST(unwanted_answer_is_refused_early)
{
	kit.locked = true;
	kit_say(&kit, &client, "POST /secret HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n");
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert(kit_has(&client, "HTTP/1.1 401 Unauthorized\r\n"));
	kit_close(&client);
	kit_open(&kit, &client, KIT_TCP);
	kit_say(&kit, &client, "GET /secret HTTP/1.1\r\nHost: x\r\nX-Access-Token: right\r\n\r\n");
	KIT_UNTIL(&kit, &client, kit_has(&client, OK_ANSWER));
	kit.refusing = true;
	err_set(&kit.refusal, ERR_UNAVAILABLE, "going away");
	kit_forget(&client);
	kit_say(&kit, &client, "GET /plain HTTP/1.1\r\nHost: x\r\n\r\nGET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
	KIT_UNTIL(&kit, &client, kit_has(&client, OK_ANSWER));
	ck_assert(strncmp(client.got, "HTTP/1.1 503 Service Unavailable\r\n", 34) == 0);
	ck_assert(kit_has(&client, "{\"error\":\"going away\",\"retryable\":true}"));
	ck_assert_int_eq(kit.handled, 2);
}
END_TEST

START_TEST(failed_body_is_503)
{
	kit_say(&kit, &client, "GET /broken HTTP/1.1\r\nHost: x\r\n\r\n");
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert(strncmp(client.got, "HTTP/1.1 503 ", 13) == 0);
	ck_assert(kit_has(&client, "{\"error\":"));
}
END_TEST

START_TEST(pipelined_requests_wait)
{
	kit_say(&kit, &client,
		"GET /later HTTP/1.1\r\nHost: x\r\n\r\nGET /later HTTP/1.1\r\nHost: x\r\n\r\n"
		"GET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
	kit_turns_for(&kit, &client, 0.02);
	ck_assert_uint_eq(kit.held_count, 1);
	ck_assert_uint_eq(client.n, 0);
	kit_answer(&kit, "first");
	KIT_UNTIL(&kit, &client, kit.held_count == 1);
	kit_answer(&kit, "second");
	KIT_UNTIL(&kit, &client, kit_has(&client, "\r\n\r\nok"));
	ck_assert(strstr(client.got, "first") < strstr(client.got, "second"));
	ck_assert_uint_eq(kit_times(&client, "HTTP/1.1 200 OK"), 3);
}
END_TEST

// More requests than are read ahead: the client has to wait, nothing is lost.
START_TEST(pipelining_is_bounded)
{
	enum { REQUESTS = 100000 };
	static const char first[] = "GET /later HTTP/1.1\r\nHost: x\r\n\r\n",
			  one[] = "GET /empty HTTP/1.1\r\nHost: x\r\n\r\n";
	const size_t len = sizeof(one) - 1;
	char *all = malloc(REQUESTS * len);
	for (size_t i = 0; i < REQUESTS; i++)
		memcpy(all + i * len, one, len);
	kit_close(&client);
	kit_open(&kit, &client, KIT_UNIX);
	kit_say(&kit, &client, first);
	KIT_UNTIL(&kit, &client, kit.held_count == 1);
	// While an answer is due, and then while the client does not read its answers.
	size_t at = 0;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 200; i++) {
			ssize_t n = send(client.fd, all + at, REQUESTS * len - at, MSG_NOSIGNAL);
			at += n > 0 ? (size_t)n : 0;
			kit_turn(&kit, NULL);
		}
		ck_assert_uint_lt(at, REQUESTS * len / 3);
		if (round == 0)
			kit_answer(&kit, "first");
	}
	const uint64_t want = (uint64_t)REQUESTS * strlen("HTTP/1.1 204 No Content\r\n\r\n");
	double end = kit_time() + 30;
	while (client.total < want && kit_time() < end) {
		ssize_t n = at < REQUESTS * len ? send(client.fd, all + at, REQUESTS * len - at, MSG_NOSIGNAL) : 0;
		at += n > 0 ? (size_t)n : 0;
		kit_turn(&kit, &client);
	}
	kit_turn(&kit, &client);
	ck_assert_uint_eq(client.total - want, strlen("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"
						      "Content-Length: 5\r\n\r\nfirst"));
	free(all);
}
END_TEST

START_TEST(half_close_is_served)
{
	kit_say(&kit, &client, "GET /later HTTP/1.1\r\nHost: x\r\n\r\nGET /later HTTP/1.1\r\nHost: x\r\n\r\n");
	shutdown(client.fd, SHUT_WR);
	KIT_UNTIL(&kit, &client, kit.held_count == 1);
	kit_turns_for(&kit, &client, 0.02);
	// An EOF that stays readable must not keep the loop busy: only the sweep wakes it.
	unsigned before = ev_iteration(kit.loop);
	double end = kit_time() + 0.3;
	while (kit_time() < end && ev_iteration(kit.loop) - before < 10)
		ev_run(kit.loop, EVRUN_ONCE);
	ck_assert_uint_lt(ev_iteration(kit.loop) - before, 10);
	kit_answer(&kit, "first");
	KIT_UNTIL(&kit, &client, kit.held_count == 1);
	kit_answer(&kit, "second");
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert_int_eq(client.error, 0);
	ck_assert(kit_has(&client, "second"));
	KIT_UNTIL(&kit, NULL, net_conn_count(kit.net) == 0);
	ck_assert_int_eq(kit.cut, 0);
}
END_TEST

START_TEST(cut_request_is_no_request)
{
	kit_say(&kit, &client, "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nabc");
	shutdown(client.fd, SHUT_WR);
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert(strncmp(client.got, "HTTP/1.1 400 ", 13) == 0);
	ck_assert_int_eq(kit.handled, 0);
	KIT_UNTIL(&kit, NULL, net_conn_count(kit.net) == 0);
}
END_TEST

// After the half-close there is no input to wait for, so that only the sweep can see the reset.
START_TEST(reset_after_half_close_is_noticed)
{
	if (_i == 1) {
		kit_close(&client);
		kit_open(&kit, &client, KIT_UNIX);
	}
	kit_say(&kit, &client, "GET /later HTTP/1.1\r\nHost: x\r\n\r\n");
	shutdown(client.fd, SHUT_WR);
	KIT_UNTIL(&kit, &client, kit.held_count == 1);
	kit_turns_for(&kit, &client, 0.02);
	ck_assert_int_eq(kit.cut, 0);
	struct linger hard = {1, 0};
	setsockopt(client.fd, SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
	kit_close(&client);
	KIT_UNTIL(&kit, NULL, kit.cut == 1);
	ck_assert_uint_eq(net_conn_count(kit.net), 0);
}
END_TEST

START_TEST(answer_to_a_dead_connection)
{
	kit_say(&kit, &client, "GET /later HTTP/1.1\r\nHost: x\r\n\r\nGET /ready");
	KIT_UNTIL(&kit, &client, kit.held_count == 1);
	conn_abort(kit.held[0]);
	kit_answer(&kit, "late"); // before the hook has run
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert_uint_eq(client.n, 0);
	ck_assert_int_eq(kit.cut, 0);
}
END_TEST

// --- streams ---

static void expect_stream_end(const char *answer, bool end)
{
	KIT_UNTIL(&kit, &client, kit.source[0].closed > 0);
	KIT_UNTIL(&kit, &client, client.n >= strlen(answer));
	ck_assert_str_eq(client.got, answer);
	ck_assert_int_eq(kit.source[0].closed, 1);
	if (end) {
		KIT_UNTIL(&kit, &client, client.eof);
		ck_assert_int_eq(client.error, 0);
	}
}

START_TEST(stream_then_next_request)
{
	kit.source[0] = (struct kit_source){.left = 15, .piece = 8, .last = CONN_PULL_END};
	kit_say(&kit, &client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\nGET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
	KIT_UNTIL(&kit, &client, kit_has(&client, OK_ANSWER));
	expect_stream_end(STREAM_HEAD "Transfer-Encoding: chunked\r\n\r\n0000008\r\n01234567\r\n0000007\r\n8901234\r\n"
				      "0\r\n\r\n" OK_ANSWER,
		false);
}
END_TEST

START_TEST(stream_to_a_closing_client)
{
	kit.source[0] = (struct kit_source){.left = 5, .last = CONN_PULL_END};
	kit_say(&kit, &client, "GET /stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
	expect_stream_end(STREAM_HEAD
		"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n0000005\r\n01234\r\n0\r\n\r\n",
		true);
}
END_TEST

START_TEST(stream_to_http_1_0)
{
	kit.source[0] = (struct kit_source){.left = 5, .last = CONN_PULL_END};
	kit_say(&kit, &client, "GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
	expect_stream_end(STREAM_HEAD "Connection: close\r\n\r\n01234", true);
}
END_TEST

START_TEST(stream_cut_by_its_producer)
{
	kit.source[0] = (struct kit_source){.left = 5, .last = CONN_PULL_ABORT};
	kit_say(&kit, &client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	expect_stream_end(STREAM_HEAD "Transfer-Encoding: chunked\r\n\r\n0000005\r\n01234\r\n", true);
}
END_TEST

START_TEST(stream_cut_by_abort)
{
	kit.source[0] = (struct kit_source){.left = 5, .last = CONN_PULL_IDLE};
	kit_say(&kit, &client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	KIT_UNTIL(&kit, &client, kit_has(&client, "01234\r\n"));
	conn_abort(kit.source[0].conn);
	ck_assert_int_eq(kit.source[0].closed, 0); // only from the hook
	KIT_UNTIL(&kit, &client, client.eof);
	ck_assert_int_eq(kit.source[0].closed, 1);
	ck_assert(!kit_has(&client, "\r\n0\r\n\r\n"));
}
END_TEST

START_TEST(stream_woken_again)
{
	struct kit_source *s = &kit.source[0];
	*s = (struct kit_source){.left = 3, .last = CONN_PULL_IDLE};
	kit_say(&kit, &client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	KIT_UNTIL(&kit, &client, kit_has(&client, "0000003\r\n012\r\n"));
	s->left = 2;
	conn_wake(s->conn);
	conn_wake(s->conn);
	KIT_UNTIL(&kit, &client, kit_has(&client, "0000002\r\n34\r\n"));
	ck_assert_uint_eq(conn_sent(s->conn), client.total);
	s->last = CONN_PULL_END;
	conn_wake(s->conn);
	KIT_UNTIL(&kit, &client, kit_has(&client, "34\r\n0\r\n\r\n"));
}
END_TEST

static void stop_loop(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)w;
	(void)revents;
	ev_break(loop, EVBREAK_ONE);
}

START_TEST(idle_stream_lets_the_loop_sleep)
{
	kit.source[0] = (struct kit_source){.left = 50000, .last = CONN_PULL_IDLE};
	kit_say(&kit, &client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	KIT_UNTIL(&kit, &client, client.total > 50000);
	kit_turns_for(&kit, &client, 3.5); // the burst's memory is given back by the sweep, which then stops
	struct ev_timer stop;
	ev_timer_init(&stop, stop_loop, 1.3, 0.);
	ev_now_update(kit.loop);
	ev_timer_start(kit.loop, &stop);
	unsigned before = ev_iteration(kit.loop);
	ev_run(kit.loop, 0);
	ck_assert_uint_le(ev_iteration(kit.loop) - before, 1);
}
END_TEST

// A producer that works in slices is asked again without anything else happening.
START_TEST(dry_producer_keeps_the_loop_awake)
{
	kit.source[0] = (struct kit_source){.left = 5, .dry = 20, .last = CONN_PULL_END};
	kit_say(&kit, &client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	struct ev_timer stop;
	ev_timer_init(&stop, stop_loop, 5., 0.);
	ev_now_update(kit.loop);
	ev_timer_start(kit.loop, &stop);
	while (ev_is_active(&stop) && !kit.source[0].closed)
		ev_run(kit.loop, EVRUN_ONCE);
	ck_assert_int_eq(kit.source[0].closed, 1);
	ck_assert(ev_is_active(&stop));
	ev_timer_stop(kit.loop, &stop);
	KIT_UNTIL(&kit, &client, kit_has(&client, "01234\r\n0\r\n\r\n"));
}
END_TEST

START_TEST(slow_reader_holds_its_producer)
{
	struct kit_source *s = &kit.source[0];
	*s = (struct kit_source){.left = 1 << 30, .last = CONN_PULL_END};
	kit_close(&client);
	kit_open(&kit, &client, KIT_UNIX);
	kit_say(&kit, &client, "GET /stream HTTP/1.0\r\n\r\n");
	for (int i = 0; i < 300; i++)
		kit_turn(&kit, NULL);
	uint64_t held = s->made;
	ck_assert_uint_lt(held, 1000 * 1000);
	ck_assert_uint_le(s->made - conn_sent(s->conn), kit_limits.out_max);
	ck_assert_uint_ge(s->room_min, kit_limits.out_max / 2);
	ck_assert_uint_le(s->room_max, kit_limits.out_max);
	KIT_UNTIL(&kit, &client, client.total > 4 * 1000 * 1000);
	const char *body = strstr(client.got, "\r\n\r\n") + 4;
	for (size_t i = 0; body[i]; i++)
		ck_assert_int_eq(body[i], '0' + (int)(i % 10));
	ck_assert_uint_gt(s->made, held);
	kit_close(&client);
	KIT_UNTIL(&kit, NULL, s->closed == 1);
	ck_assert_uint_eq(net_conn_count(kit.net), 0);
}
END_TEST

START_TEST(two_streams_share_the_loop)
{
	static struct kit_client other;
	for (int i = 0; i < 2; i++)
		kit.source[i] = (struct kit_source){.left = 1 << 30, .last = CONN_PULL_END};
	kit_open(&kit, &other, KIT_TCP);
	kit_say(&kit, &client, "GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
	kit_say(&kit, &other, "GET /stream2 HTTP/1.1\r\nHost: x\r\n\r\n");
	double end = kit_time() + 10;
	while ((client.total < 4000000 || other.total < 4000000) && kit_time() < end) {
		kit_turn(&kit, &client);
		kit_turn(&kit, &other);
	}
	ck_assert_uint_ge(other.total, 4000000);
	ck_assert_uint_lt(client.total, 3 * other.total);
	ck_assert_uint_lt(other.total, 3 * client.total);
	// A third gets its answer meanwhile, within a few turns.
	static struct kit_client third;
	kit_open(&kit, &third, KIT_TCP);
	kit_say(&kit, &third, "GET /ready HTTP/1.1\r\nHost: x\r\n\r\n");
	for (int i = 0; i < 5 && !kit_has(&third, OK_ANSWER); i++)
		kit_turn(&kit, &third);
	ck_assert(kit_has(&third, OK_ANSWER));
	kit_close(&third);
	kit_close(&other);
}
END_TEST

Suite *conn_suite(void)
{
	const int n = sizeof(exchanges) / sizeof(exchanges[0]);
	const TTest *const requests[] = {bad_request_ends, expect_continue, chunked_over_the_limit,
		answer_survives_a_talking_client, talking_client_is_cut_in_the_end, unwanted_answer_is_refused_early,
		failed_body_is_503, pipelined_requests_wait, pipelining_is_bounded, half_close_is_served,
		cut_request_is_no_request, answer_to_a_dead_connection};
	const TTest *const streams[] = {stream_then_next_request, stream_to_a_closing_client, stream_to_http_1_0,
		stream_cut_by_its_producer, stream_cut_by_abort, stream_woken_again, idle_stream_lets_the_loop_sleep,
		dry_producer_keeps_the_loop_awake, slow_reader_holds_its_producer, two_streams_share_the_loop};
	Suite *s = suite_create("conn");
	TCase *tc = tcase_create("requests");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, exchange_whole, 0, n);
	tcase_add_loop_test(tc, exchange_bytewise, 0, n);
	tcase_add_loop_test(tc, exchange_over_unix, 0, n);
	tcase_add_loop_test(tc, reset_after_half_close_is_noticed, 0, 2);
	for (size_t i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
		tcase_add_test(tc, requests[i]);
	suite_add_tcase(s, tc);
	tc = tcase_create("streams");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	for (size_t i = 0; i < sizeof(streams) / sizeof(streams[0]); i++)
		tcase_add_test(tc, streams[i]);
	suite_add_tcase(s, tc);
	return s;
}
