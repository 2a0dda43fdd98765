// SPDX-License-Identifier: Apache-2.0
// The transport: what HTTP/1.1 clients do to one connection. Limits and slow peers are in check_http_limits.c.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define GET_HEALTH "GET /health HTTP/1.1\r\nHost: x\r\n\r\n"

static void send_all(struct client *c, const char *s)
{
	ck_assert_msg(client_send_str(c, s), "the peer closed while it was sent to");
}

// "POST TARGET HTTP/1.1" with BODY; HEADERS are whole lines.
static void put_post(struct buf *b, const char *target, const char *headers, const char *body)
{
	http_put_request(b, "POST", target);
	http_put_header(b, "Host", "x");
	http_put_length(b, strlen(body));
	buf_str(b, headers);
	http_put_end(b);
	buf_str(b, body);
	ck_assert_int_eq(buf_failed(b), 0);
}

static void want_status(struct client *c, struct resp *r, int status)
{
	client_response(c, r);
	ck_assert_msg(r->status == status, "status %d, want %d: %.200s", r->status, status, buf_cstr(&r->body));
}

static void want_error(struct client *c, struct resp *r, int status, const char *code)
{
	client_response(c, r);
	(void)assert_error(r, status, code);
}

static void want_stdout(struct client *c, struct resp *r, const char *text)
{
	want_status(c, r, 200);
	ck_assert_str_eq(j_str(resp_json(r), "stdout"), text);
}

static void want_end(struct client *c)
{
	ck_assert_msg(client_wait_eof(c, 3000), "the connection stays open");
	ck_assert_msg(!c->reset, "the connection was reset");
}

START_TEST(connection_is_closed_after_each_request)
{
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	for (int i = 0; i < 50; i++) {
		client_request(c, "GET", "/health", NULL, NULL, 0);
		want_status(c, &r, 204);
		ck_assert_ptr_null(resp_header(&r, "Connection"));
		ck_assert_ptr_null(resp_header(&r, "Content-Length"));
		client_request(c, "POST", "/exec", NULL, "{\"command\":\"echo a\"}", 20);
		want_stdout(c, &r, "a\n");
		ck_assert_ptr_null(resp_header(&r, "Connection"));
		client_request(c, "POST", "/no/such", NULL, NULL, 0);
		want_error(c, &r, 404, "not_found");
	}
	client_request(c, "POST", "/exec", "Connection: close\r\n", "{\"command\":\"echo a\"}", 20);
	want_stdout(c, &r, "a\n");
	ck_assert_str_eq(resp_header(&r, "Connection"), "close");
	want_end(c);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The first is the slowest, and errors without a body do not end the row.
START_TEST(pipelined_answers_lose_their_order)
{
	enum { COUNT = 40 };
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	struct buf b = {0};
	char text[64];
	for (int i = 0; i < COUNT; i++) {
		(void)snprintf(text, sizeof text, "{\"command\":\"%secho %d\"}", i ? "" : "sleep .3; ", i);
		put_post(&b, "/exec", "", text);
		buf_str(&b, "GET /exec HTTP/1.1\r\nHost: x\r\n\r\n");
		buf_str(&b, GET_HEALTH);
		put_post(&b, "/exec", "", "{\"command\":7}");
	}
	ck_assert(client_send_raw(c, buf_data(&b), buf_len(&b)));
	for (int i = 0; i < COUNT; i++) {
		(void)snprintf(text, sizeof text, "%d\n", i);
		want_stdout(c, &r, text);
		want_status(c, &r, 405);
		want_status(c, &r, 204);
		want_status(c, &r, 400);
	}
	ck_assert(client_silent(c, 50));
	buf_release(&b);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// More than one read takes, more answers than the socket's buffers hold at once, in one go, and the end behind them.
START_TEST(many_pipelined_requests_are_lost)
{
	enum { COUNT = 6000 };
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	struct buf b = {0};
	h_repeat(&b, GET_HEALTH, COUNT);
	put_post(&b, "/exec", "Connection: close\r\n", "{\"command\":\"echo last\"}");
	buf_str(&b, GET_HEALTH);
	ck_assert(client_send_raw(c, buf_data(&b), buf_len(&b)));
	for (int i = 0; i < COUNT; i++)
		want_status(c, &r, 204);
	want_stdout(c, &r, "last\n");
	want_end(c); // what stands behind "Connection: close" is not served
	buf_release(&b);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(chunked_body_is_not_understood)
{
	static const char head[] = "POST /exec HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
	static const char *const bodies[] = {
		"14\r\n{\"command\":\"echo c\"}\r\n0\r\n\r\n",
		"1\r\n{\r\n0012\r\n\"command\":\"echo c\"\r\n1\r\n}\r\n000\r\n\r\n",
		"A;name=value\r\n{\"command\"\r\nA;q\r\n:\"echo c\"}\r\n0\r\nX-Trailer: 1\r\nY: 2\r\n\r\n",
		"a\r\n{\"command\"\r\na\r\n:\"echo c\"}\r\n0\r\nContent-Length: 5\r\n\r\n",
	};
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
		send_all(c, head);
		send_all(c, bodies[i]);
		want_stdout(c, &r, "c\n");
	}
	send_all(c, "GET /health HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" GET_HEALTH);
	want_status(c, &r, 204);
	want_status(c, &r, 204);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The bytes that come next, without anything behind them.
static void want_bytes(struct client *c, const char *text)
{
	while (buf_len(&c->in) < strlen(text))
		ck_assert_msg(client_fill(c, 3000) > 0, "got only: %s", buf_cstr(&c->in));
	assert_text(&c->in, text);
	buf_consume(&c->in, strlen(text));
}

START_TEST(expect_continue_waits_for_ever)
{
	static const char expect[] = "POST %s HTTP/1.1\r\nHost: x\r\nExpect: 100-Continue\r\n%s\r\n\r\n";
	static const struct {
		const char *target, *length;
		int status;
	} refused[] = {{"/no", "Content-Length: 5", 404}, {"/health", "Content-Length: 5", 405},
		{"/exec", "Content-Length: 90000000", 413}};
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	char text[256];
	(void)snprintf(text, sizeof text, expect, "/exec", "Content-Length: 20");
	send_all(c, text);
	want_bytes(c, "HTTP/1.1 100 Continue\r\n\r\n");
	send_all(c, "{\"command\":\"echo a\"}");
	want_stdout(c, &r, "a\n");
	(void)snprintf(text, sizeof text, expect, "/exec", "Transfer-Encoding: chunked");
	send_all(c, text);
	want_bytes(c, "HTTP/1.1 100 Continue\r\n\r\n");
	send_all(c, "14\r\n{\"command\":\"echo b\"}\r\n0\r\n\r\n");
	want_stdout(c, &r, "b\n");
	send_all(c, "GET /health HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n\r\n");
	want_bytes(c, "HTTP/1.1 204 No Content\r\n\r\n");
	client_close(c);
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		(void)snprintf(text, sizeof text, expect, refused[i].target, refused[i].length);
		c = client_connect(d);
		send_all(c, text);
		ck_assert_int_gt(client_fill(c, 3000), 0);
		ck_assert_int_ne(strncmp(buf_cstr(&c->in), "HTTP/1.1 100", 12), 0);
		want_status(c, &r, refused[i].status);
		want_end(c);
		client_close(c);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(request_in_single_bytes_is_dropped)
{
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	struct buf b = {0};
	const int on = 1;
	ck_assert_int_eq(setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
	put_post(&b, "/exec", "", "{\"command\":\"echo a\"}");
	buf_str(&b, "POST /exec HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
		    "a\r\n{\"command\"\r\na\r\n:\"echo c\"}\r\n0\r\nT: 1\r\n\r\n");
	for (size_t i = 0; i < buf_len(&b); i++) {
		ck_assert(client_send_raw(c, (const char *)buf_data(&b) + i, 1));
		h_tick();
	}
	want_stdout(c, &r, "a\n");
	want_stdout(c, &r, "c\n");
	buf_release(&b);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(absolute_form_is_not_found)
{
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	struct buf b = {0};
	send_all(c, "GET http://127.0.0.1:2024/health HTTP/1.1\r\nHost: x\r\n\r\n"
		    "GET HTTPS://[::1]/health?a=b HTTP/1.1\r\nHost: x\r\n\r\n"
		    "\r\nGET http://h HTTP/1.1\r\nHost: x\r\n\r\n");
	want_status(c, &r, 204);
	want_status(c, &r, 204);
	want_status(c, &r, 404);
	put_post(&b, "http://some.host/exec?x=y", "", "{\"command\":\"echo a\"}");
	ck_assert(client_send_raw(c, buf_data(&b), buf_len(&b)));
	want_stdout(c, &r, "a\n");
	buf_release(&b);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// As `curl --http2` asks, and a browser's WebSocket: not spoken, so the request is served as it is.
START_TEST(upgrade_header_stops_the_connection)
{
	static const char h2c[] = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"
				  "HTTP2-Settings: AAMAAABkAAQCAAAAAAIAAAAA\r\n";
	static const char websocket[] = "Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n"
					"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	struct buf b = {0};
	client_request(c, "GET", "/health", h2c, NULL, 0);
	want_status(c, &r, 204);
	client_request(c, "GET", "/health", websocket, NULL, 0);
	want_status(c, &r, 204);
	put_post(&b, "/exec", h2c, "{\"command\":\"echo a\"}");
	put_post(&b, "/exec", websocket, "{\"command\":\"echo b\"}");
	buf_str(&b, GET_HEALTH);
	ck_assert(client_send_raw(c, buf_data(&b), buf_len(&b)));
	want_stdout(c, &r, "a\n");
	want_stdout(c, &r, "b\n");
	want_status(c, &r, 204);
	ck_assert_ptr_null(resp_header(&r, "Upgrade"));
	buf_release(&b);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(http_1_0_client_waits_for_ever)
{
	static const char stream[] =
		"POST /exec/stream HTTP/1.0\r\nContent-Length: 20\r\nConnection: keep-alive\r\n\r\n"
		"{\"command\":\"echo a\"}";
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	send_all(c, "GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
	want_status(c, &r, 204);
	ck_assert_str_eq(resp_header(&r, "Connection"), "keep-alive");
	send_all(c, "POST /exec HTTP/1.0\r\nContent-Length: 20\r\n\r\n{\"command\":\"echo a\"}");
	want_stdout(c, &r, "a\n");
	ck_assert_str_eq(resp_header(&r, "Connection"), "close");
	want_end(c);
	client_close(c);

	c = client_connect(d);
	send_all(c, stream);
	want_status(c, &r, 200); // to the end of the connection
	ck_assert(!r.chunked);
	ck_assert_ptr_nonnull(strstr(buf_cstr(&r.body), "\"data\":\"YQo=\""));
	ck_assert_ptr_nonnull(strstr(buf_cstr(&r.body), "data: {\"exit\":0}\n\n"));
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// An answer to HEAD has no body, or the next answer cannot be found.
START_TEST(head_request_gets_a_body)
{
	static const char *const targets[] = {"/exec", "/health", "/no"};
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	for (size_t i = 0; i < sizeof targets / sizeof *targets; i++) {
		client_request(c, "HEAD", targets[i], NULL, NULL, 0);
		client_request(c, "GET", "/health", NULL, NULL, 0);
		client_response_head(c, &r);
		ck_assert_int_eq(r.status, i == 2 ? 404 : 405);
		want_bytes(c, "HTTP/1.1 204 No Content\r\n\r\n");
	}
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The client says at once that nothing follows, as `nc -N` does: it still gets all answers.
START_TEST(half_closed_client_gets_nothing)
{
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	struct buf b = {0};
	put_post(&b, "/exec", "", "{\"command\":\"sleep .2; echo a\"}");
	put_post(&b, "/exec", "", "{\"command\":\"echo b\"}");
	put_post(&b, "/exec/stream", "", "{\"command\":\"sleep .2; echo c\"}");
	ck_assert(client_send_raw(c, buf_data(&b), buf_len(&b)));
	client_shutdown_write(c);
	want_stdout(c, &r, "a\n");
	want_stdout(c, &r, "b\n");
	want_status(c, &r, 200);
	ck_assert_ptr_nonnull(strstr(buf_cstr(&r.body), "\"data\":\"Ywo=\""));
	ck_assert_ptr_nonnull(strstr(buf_cstr(&r.body), "data: {\"exit\":0}\n\n"));
	want_end(c);
	client_close(c);
	// In the middle of a request: said so, and nothing was run.
	for (size_t cut = 1; cut < 100; cut += 14) {
		c = client_connect(d);
		buf_reset(&b);
		put_post(&b, "/exec", "", "{\"command\":\"touch half; echo a; echo b; echo c\"}");
		ck_assert_uint_gt(buf_len(&b), 99);
		ck_assert(client_send_raw(c, buf_data(&b), cut));
		client_shutdown_write(c);
		want_error(c, &r, 400, "invalid_argument");
		want_end(c);
		client_close(c);
	}
	ck_assert_str_eq(j_str(run(d, "ls", &r), "stdout"), "");
	buf_release(&b);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *http_suite(void)
{
	Suite *s = suite_create("http");
	TCase *tc = h_tcase(s, "connection", 20);
	tcase_add_test(tc, connection_is_closed_after_each_request);
	tcase_add_test(tc, pipelined_answers_lose_their_order);
	tcase_add_test(tc, many_pipelined_requests_are_lost);
	tcase_add_test(tc, half_closed_client_gets_nothing);
	tc = h_tcase(s, "messages", 20);
	tcase_add_test(tc, chunked_body_is_not_understood);
	tcase_add_test(tc, expect_continue_waits_for_ever);
	tcase_add_test(tc, request_in_single_bytes_is_dropped);
	tcase_add_test(tc, absolute_form_is_not_found);
	tcase_add_test(tc, upgrade_header_stops_the_connection);
	tcase_add_test(tc, http_1_0_client_waits_for_ever);
	tcase_add_test(tc, head_request_gets_a_body);
	return s;
}
