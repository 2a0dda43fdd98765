// SPDX-License-Identifier: Apache-2.0
#include "feed.h"
#include "http_cases.h"
#include "oom.h"
#include "proto/http.h"
#include "suites.h"

#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))
static const struct http_limits limits = {.head = 2048, .headers = 20, .overhead = 256};

// --- a run of one parser, as a text: one line an event, body pieces joined ---

struct run {
	struct http *h;
	enum http_kind kind;
	const struct http_limits *limits;
	bool no_body;
	bool in_body;
	size_t fed; // bytes taken up to the error
	size_t n;
	char log[4096];
};

// What take returns besides 0 and -ENOMEM.
enum { STOPPED = 1, WRONG };

__attribute__((format(printf, 2, 3))) static void note(struct run *r, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int n = vsnprintf(r->log + r->n, sizeof(r->log) - r->n, fmt, ap);
	va_end(ap);
	if (n > 0)
		r->n += (size_t)n < sizeof(r->log) - r->n ? (size_t)n : sizeof(r->log) - 1 - r->n;
}

static void note_span(struct run *r, struct http_span s)
{
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i])
			note(r, "%c", s.p[i]);
		else
			note(r, "\\0");
}

static void note_head(struct run *r)
{
	const struct http_head *head = http_head(r->h);
	if (r->kind == HTTP_REQUEST) {
		note_span(r, head->method);
		note(r, " ");
		note_span(r, head->path);
		if (head->query.p)
			note(r, "?");
		note_span(r, head->query);
	} else {
		note(r, "%d", head->status);
	}
	note(r, " 1.%d%s", head->minor, head->keep_alive ? " keep" : " close");
	if (head->chunked)
		note(r, " chunked");
	if (head->content_length >= 0)
		note(r, " %lld", (long long)head->content_length);
	if (head->expect_continue)
		note(r, " expect");
	for (size_t i = 0; i < head->header_count; i++) {
		note(r, "|");
		note_span(r, head->headers[i].name);
		note(r, "=");
		note_span(r, head->headers[i].value);
	}
	note(r, "\n");
}

static void note_body(struct run *r, struct http_span body)
{
	if (!r->in_body)
		note(r, "body:");
	r->in_body = true;
	note_span(r, body);
}

// Notes an error and sees that it sticks. WRONG if it does not.
static int note_error(struct run *r)
{
	size_t used = 0;
	struct http_span body;
	int status = http_error(r->h)->status;
	if (r->in_body)
		note(r, "\n");
	note(r, "error %d\n", status);
	bool sticks = http_feed(r->h, NEXT, sizeof(NEXT) - 1, &used, &body) == HTTP_ERROR && used == sizeof(NEXT) - 1 &&
		      http_feed(r->h, NULL, 0, &used, &body) == HTTP_ERROR && http_eof(r->h) == HTTP_ERROR;
	if (!sticks || http_error(r->h)->status != status || http_error(r->h)->msg[0] == '\0')
		return WRONG;
	return status == 503 ? -ENOMEM : STOPPED;
}

static void note_end(struct run *r)
{
	note(r, r->in_body ? "\nend\n" : "end\n");
	r->in_body = false;
}

static int take(void *arg, const unsigned char *piece, size_t len)
{
	struct run *r = arg;
	const char *p = (const char *)piece;
	for (size_t at = 0;;) {
		size_t used = 0;
		struct http_span body;
		enum http_event ev = http_feed(r->h, p + at, len - at, &used, &body);
		if (used > len - at || (ev == HTTP_MORE && used != len - at))
			return WRONG;
		at += used;
		r->fed += used;
		switch (ev) {
		case HTTP_MORE:
			return 0;
		case HTTP_HEAD:
			note_head(r);
			break;
		case HTTP_BODY:
			if (body.n == 0 || body.p < p || body.p + body.n != p + at)
				return WRONG;
			note_body(r, body);
			break;
		case HTTP_END:
			note_end(r);
			http_next(r->h);
			if (r->no_body)
				http_expect_no_body(r->h);
			break;
		case HTTP_ERROR:
			return note_error(r);
		}
	}
}

static struct run run_of(enum http_kind kind, const struct http_limits *lim)
{
	struct run r = {.kind = kind, .limits = lim};
	r.h = http_new(kind, lim);
	ck_assert_ptr_nonnull(r.h);
	return r;
}

// Feeds the input in pieces of CHUNK to a new parser and compares the log.
static void expect_log(
	enum http_kind kind, const char *what, const char *in, size_t n, int chunk, bool no_body, const char *log)
{
	struct run r = run_of(kind, &limits);
	r.no_body = no_body;
	if (no_body)
		http_expect_no_body(r.h);
	int rc = feed(in, n, (size_t)chunk, take, &r);
	if (rc == 0 && kind == HTTP_RESPONSE && http_eof(r.h) == HTTP_END)
		note_end(&r);
	ck_assert_msg(rc == 0 || rc == STOPPED, "%s at %d: %d", what, chunk, rc);
	ck_assert_msg(strcmp(r.log, log) == 0, "%s at %d: got\n%s\nexpected\n%s", what, chunk, r.log, log);
	http_free(r.h);
}

// --- good requests ---

START_TEST(good_requests)
{
	const struct good *g = &good[_i];
	for (int chunk = 0; chunk < FEED_SIZES; chunk++)
		expect_log(HTTP_REQUEST, g->what, g->in, g->n, chunk, false, g->log);
}
END_TEST

// --- shapes that must not pass (B56) ---

START_TEST(bad_requests)
{
	const struct bad *b = &bad[_i];
	char in[1024], last[32];
	ck_assert_uint_lt(b->n + sizeof(NEXT), sizeof(in));
	memcpy(in, b->in, b->n);
	memcpy(in + b->n, NEXT, sizeof(NEXT) - 1);
	snprintf(last, sizeof(last), "error %d\n", b->status);
	for (int chunk = 0; chunk < FEED_SIZES; chunk++) {
		struct run r = run_of(HTTP_REQUEST, &limits);
		int rc = feed(in, b->n + sizeof(NEXT) - 1, (size_t)chunk, take, &r);
		ck_assert_msg(rc == STOPPED, "%s at %d: %d\n%s", b->what, chunk, rc, r.log);
		const char *end = r.log + strlen(r.log);
		bool right = r.n >= strlen(last) && strcmp(end - strlen(last), last) == 0;
		ck_assert_msg(right, "%s at %d: got\n%s", b->what, chunk, r.log);
		ck_assert_msg(!strstr(r.log, "smuggled"), "%s at %d: got\n%s", b->what, chunk, r.log);
		http_free(r.h);
	}
}
END_TEST

START_TEST(refused_early)
{
	const struct bad *b = &early[_i];
	for (int chunk = 0; chunk < FEED_SIZES; chunk++) {
		struct run r = run_of(HTTP_REQUEST, &limits);
		ck_assert_int_eq(feed(b->in, b->n - 1, (size_t)chunk, take, &r), 0);
		ck_assert_int_eq(feed(b->in + b->n - 1, 1, 0, take, &r), STOPPED);
		ck_assert_int_eq(http_error(r.h)->status, b->status);
		ck_assert_int_eq(http_error(r.h)->code, ERR_INVALID_ARGUMENT);
		http_free(r.h);
	}
}
END_TEST

// --- limits ---

static char *repeat(const char *s, size_t times)
{
	size_t n = strlen(s);
	char *out = malloc(n * times + 1);
	ck_assert_ptr_nonnull(out);
	for (size_t i = 0; i < times; i++)
		memcpy(out + i * n, s, n);
	out[n * times] = '\0';
	return out;
}

// Feeds PREFIX, then PIECE again and again, in pieces of CHUNK, until the parser refuses. Returns the bytes it took.
static size_t until_refused(const char *prefix, const char *piece, size_t times, int chunk, int status)
{
	struct run r = run_of(HTTP_REQUEST, &limits);
	char *many = repeat(piece, times);
	int rc = feed(prefix, strlen(prefix), (size_t)chunk, take, &r);
	if (rc == 0)
		rc = feed(many, strlen(piece) * times, chunk > 0 ? (size_t)chunk * 10 : 0, take, &r);
	ck_assert_int_eq(rc, STOPPED);
	ck_assert_int_eq(http_error(r.h)->status, status);
	ck_assert_ptr_null(strstr(r.log, "end"));
	size_t fed = r.fed;
	free(many);
	http_free(r.h);
	return fed;
}

START_TEST(too_much)
{
	const size_t most = limits.head + 64;
	char *ext = repeat("e", 3500), piece[3600];
	snprintf(piece, sizeof(piece), "1;%s\r\nx\r\n", ext);
	free(ext);
	for (int chunk = 0; chunk < FEED_SIZES; chunk++) {
		size_t url = until_refused("GET /", "a", 2000000, chunk, 431);
		size_t value = until_refused("GET / HTTP/1.1\r\nA: ", "a", 2000000, chunk, 431);
		size_t lines = until_refused("GET / HTTP/1.1\r\n", "A: b\r\n", 300000, chunk, 431);
		size_t one = until_refused(CHUNKED "1;", "e", 1000000, chunk, 400);
		size_t many = until_refused(CHUNKED, piece, 300, chunk, 400);
		size_t zeros = until_refused(CHUNKED, "0", 1000000, chunk, 400);
		size_t trailers = until_refused(CHUNKED "0\r\n", "A: bcdefghijklmnopqrstuvwxyz\r\n", 30000, chunk, 400);
		if (chunk > 0)
			ck_assert(url < most && value < most && lines < most && one < most && many < most &&
				  zeros < most && trailers < most);
	}
}
END_TEST

// Small extensions add up as well; each chunk by itself would pass.
START_TEST(overhead_adds_up)
{
	for (int chunk = 0; chunk < FEED_SIZES; chunk++)
		until_refused(CHUNKED, "1;eeeeeeeeeeeeeeeeeeeeeeeeeeeeee\r\nx\r\n", 300, chunk, 400);
}
END_TEST

// Chunks without extensions are no overhead, however many.
START_TEST(many_plain_chunks)
{
	struct run r = run_of(HTTP_REQUEST, &limits);
	char *many = repeat("2\r\nhi\r\n", 2000);
	ck_assert_int_eq(feed(BYTES(CHUNKED), 0, take, &r), 0);
	ck_assert_int_eq(feed(many, strlen(many), _i > 0 ? (size_t)_i : 0, take, &r), 0);
	ck_assert_int_eq(feed(BYTES("0\r\n\r\n"), 0, take, &r), 0);
	ck_assert_ptr_nonnull(strstr(r.log, "\nbody:hihi"));
	free(many);
	http_free(r.h);
}
END_TEST

static int status_with(const struct http_limits *lim, const char *in, int chunk)
{
	struct run r = run_of(HTTP_REQUEST, lim);
	int rc = feed(in, strlen(in), (size_t)chunk, take, &r);
	int status = rc == 0 ? 0 : http_error(r.h)->status;
	ck_assert_int_eq(strstr(r.log, "end") != NULL, rc == 0);
	http_free(r.h);
	return status;
}

START_TEST(limits_are_exact)
{
	const char *in = "GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\r\n";
	const char *chunks = CHUNKED "1;ab\r\nx\r\n0\r\nT: v\r\n\r\n"; // nothing but free bytes
	for (int chunk = 0; chunk < FEED_SIZES; chunk++) {
		struct http_limits lim = {.head = strlen(in), .headers = 2, .overhead = 0};
		ck_assert_int_eq(status_with(&lim, in, chunk), 0);
		lim.head--;
		ck_assert_int_eq(status_with(&lim, in, chunk), 431);
		lim.head++;
		lim.headers--;
		ck_assert_int_eq(status_with(&lim, in, chunk), 431);
		lim.head = 200;
		lim.headers = 2;
		ck_assert_int_eq(status_with(&lim, chunks, chunk), 0);
		lim.overhead = 0;
		const char *over = CHUNKED "0;0123456789012345678901\r\n\r\n"; // 28 bytes, 20 of them free
		ck_assert_int_eq(status_with(&lim, over, chunk), 400);
		lim.overhead = 7;
		ck_assert_int_eq(status_with(&lim, over, chunk), 400);
		lim.overhead = 8;
		ck_assert_int_eq(status_with(&lim, over, chunk), 0);
	}
}
END_TEST

// --- responses ---

START_TEST(responses)
{
	const struct answer *a = &answers[_i];
	for (int chunk = 0; chunk < FEED_SIZES; chunk++)
		expect_log(HTTP_RESPONSE, a->what, a->in, a->n, chunk, a->no_body, a->log);
}
END_TEST

// An interim answer does not use up what was said of the final one; the final one does.
START_TEST(no_body_outlasts_interim)
{
	struct run r = run_of(HTTP_RESPONSE, &limits);
	http_expect_no_body(r.h);
	const char in[] = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"
			  "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi";
	ck_assert_int_eq(feed(in, sizeof(in) - 1, (size_t)_i, take, &r), 0);
	ck_assert_str_eq(r.log, "100 1.1 keep\nend\n200 1.1 keep 2|Content-Length=2\nend\n"
				"200 1.1 keep 2|Content-Length=2\nbody:hi\nend\n");
	http_free(r.h);
}
END_TEST

// --- the end of the connection ---

START_TEST(peer_closes)
{
	const struct closing *c = &closings[_i];
	for (int chunk = 0; chunk < FEED_SIZES; chunk++) {
		struct run r = run_of(c->kind, &limits);
		ck_assert_int_eq(feed(c->in, strlen(c->in), (size_t)chunk, take, &r), 0);
		ck_assert_int_eq(http_eof(r.h), c->ev);
		if (c->ev == HTTP_ERROR)
			ck_assert_int_eq(http_error(r.h)->status, 400);
		http_free(r.h);
	}
}
END_TEST

// A caller that was told of the last byte, and hears of the close before it asks again, still gets the end.
START_TEST(end_is_due_at_close)
{
	static const char *const in[] = {"GET / HTTP/1.1\r\nHost: h\r\n\r\n", LENGTH("2") "hi"};
	for (size_t i = 0; i < 2; i++) {
		struct http *h = http_new(HTTP_REQUEST, &limits);
		ck_assert_ptr_nonnull(h);
		size_t used = 0, at = 0, n = strlen(in[i]);
		struct http_span body;
		while (at < n) {
			enum http_event ev = http_feed(h, in[i] + at, n - at, &used, &body);
			ck_assert(ev == HTTP_HEAD || ev == HTTP_BODY);
			at += used;
		}
		ck_assert_int_eq(http_eof(h), HTTP_END);
		ck_assert_int_eq(http_eof(h), HTTP_MORE);
		ck_assert_int_eq(http_feed(h, NULL, 0, &used, &body), HTTP_END);
		http_free(h);
	}
}
END_TEST

START_TEST(life)
{
	struct http *h = http_new(HTTP_REQUEST, &limits);
	size_t used = 1;
	struct http_span body;
	ck_assert_ptr_nonnull(h);
	ck_assert_uint_lt(malloc_usable_size(h), 1024);
	ck_assert(http_idle(h));
	ck_assert_int_eq(http_feed(h, NULL, 0, &used, &body), HTTP_MORE);
	ck_assert_uint_eq(used, 0);
	ck_assert_int_eq(http_feed(h, BYTES("\r\n\r"), &used, &body), HTTP_MORE);
	ck_assert(http_idle(h));
	ck_assert_int_eq(http_feed(h, BYTES("\nG"), &used, &body), HTTP_MORE);
	ck_assert(!http_idle(h));
	ck_assert_int_eq(http_feed(h, BYTES("ET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET"), &used, &body), HTTP_HEAD);
	ck_assert_uint_eq(used, sizeof("ET /1 HTTP/1.1\r\nHost: h\r\n\r\n") - 1);
	ck_assert(!http_idle(h));
	ck_assert_int_eq(http_feed(h, BYTES("GET"), &used, &body), HTTP_END);
	ck_assert_uint_eq(used, 0);
	ck_assert(http_span_is(http_head(h)->target, "/1"));
	ck_assert_int_eq(http_feed(h, BYTES("GET"), &used, &body), HTTP_END); // not before http_next
	ck_assert_uint_eq(used, 0);
	http_next(h);
	ck_assert(http_idle(h));
	ck_assert_int_eq(http_feed(h, BYTES("GET"), &used, &body), HTTP_MORE);
	http_free(h);
	http_free(NULL);
}
END_TEST

// A connection between messages costs one small block, and its last head if that is short.
START_TEST(next_drops_memory)
{
	char *pad = repeat("x", 1024), in[2048];
	for (int big = 0; big < 2; big++) {
		int n = snprintf(in, sizeof in, "GET /%s HTTP/1.1\r\nHost: h\r\n\r\n", big ? pad : "");
		oom_fail_at(-1);
		struct run r = {.kind = HTTP_REQUEST, .limits = &limits, .h = http_new(HTTP_REQUEST, &limits)};
		int rc = r.h ? feed(in, (size_t)n, (size_t)_i, take, &r) : -ENOMEM;
		size_t live = oom_live();
		http_free(r.h);
		size_t left = oom_live();
		oom_off();
		ck_assert_int_eq(rc, 0);
		ck_assert_uint_eq(live, big ? 1 : 3);
		ck_assert_uint_eq(left, 0);
	}
	free(pad);
}
END_TEST

// A head that comes again byte for byte is not parsed again: that must not show, whatever follows it and however it is cut.
START_TEST(same_head_again)
{
	static const char get[] = "GET /g?q HTTP/1.1\r\nHost: h\r\nX: y\r\n\r\n", zero[] = LENGTH("0");
	static const struct again {
		const char *in, *log;
		size_t times;
	} all[] = {
		{get, "GET /g?q 1.1 keep|Host=h|X=y\nend\n", 3},
		{NEXT, "GET /smuggled 1.1 keep|Host=h\nend\n", 1},
		{LENGTH("2") "hi", "POST / 1.1 keep 2|Host=h|Content-Length=2\nbody:hi\nend\n", 2},
		{LENGTH("2") "\r\n", "POST / 1.1 keep 2|Host=h|Content-Length=2\nbody:\r\n\nend\n", 2},
		{zero, "POST / 1.1 keep 0|Host=h|Content-Length=0\nend\n", 3},
		{CHUNKED "2\r\nhi\r\n0\r\nT: v\r\n\r\n",
			"POST /c 1.1 keep chunked|Host=h|Transfer-Encoding=chunked\nbody:hi\nend\n", 3},
		{"GET /e HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
			"GET /e 1.1 close|Host=h|Connection=close\nend\n", 2},
		{"\r\nGET /e HTTP/1.1\r\nHost: h\r\n\r\n", "GET /e 1.1 keep|Host=h\nend\n", 2},
		{LENGTH("2x"), "error 400\n", 1},
	};
	struct buf in = {0}, log = {0};
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		for (size_t k = 0; k < all[i].times; k++) {
			buf_str(&in, all[i].in);
			buf_str(&log, all[i].log);
		}
	struct run r = run_of(HTTP_REQUEST, &limits);
	ck_assert_int_eq(feed(buf_data(&in), buf_len(&in), (size_t)_i, take, &r), STOPPED);
	ck_assert_str_eq(r.log, buf_cstr(&log));
	http_free(r.h);
	buf_release(&in);
	buf_release(&log);
}
END_TEST

// --- out of memory ---

static int run_messages(void *arg)
{
	const struct good *g = arg;
	struct run r = {.kind = HTTP_REQUEST, .limits = &limits};
	r.h = http_new(r.kind, r.limits);
	if (!r.h)
		return -ENOMEM;
	int rc = feed(g->in, g->n, 5, take, &r);
	if (rc == 0 && strcmp(r.log, g->log) != 0)
		rc = WRONG;
	if (rc == -ENOMEM && strstr(r.log, "error") && http_error(r.h)->code != ERR_RESOURCE_EXHAUSTED)
		rc = WRONG;
	http_free(r.h);
	return rc;
}

START_TEST(no_memory)
{
	struct good g = good[_i];
	OOM_LOOP(run_messages, &g);
}
END_TEST

Suite *http_suite(void)
{
	Suite *s = suite_create("http");
	TCase *c = tcase_create("requests");
	tcase_add_loop_test(c, good_requests, 0, ROWS(good));
	tcase_add_loop_test(c, bad_requests, 0, ROWS(bad));
	tcase_add_loop_test(c, refused_early, 0, ROWS(early));
	tcase_add_test(c, life);
	tcase_add_loop_test(c, next_drops_memory, 0, FEED_SIZES);
	tcase_add_loop_test(c, same_head_again, 0, FEED_SIZES);
	tcase_add_loop_test(c, peer_closes, 0, ROWS(closings));
	tcase_add_test(c, end_is_due_at_close);
	suite_add_tcase(s, c);
	c = tcase_create("limits");
	tcase_add_test(c, too_much);
	tcase_add_test(c, overhead_adds_up);
	tcase_add_loop_test(c, many_plain_chunks, 0, FEED_SIZES);
	tcase_add_test(c, limits_are_exact);
	tcase_add_loop_test(c, no_memory, 0, ROWS(good));
	suite_add_tcase(s, c);
	c = tcase_create("responses");
	tcase_add_loop_test(c, responses, 0, ROWS(answers));
	tcase_add_loop_test(c, no_body_outlasts_interim, 0, FEED_SIZES);
	suite_add_tcase(s, c);
	return s;
}
