// SPDX-License-Identifier: Apache-2.0
// The gateway's ends: whatever was let through of a stream, it can be ended well there.
#include "feed.h"
#include "oom.h"
#include "proto/envelope.h"
#include "suites.h"
#include "tests/gateway/ends.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BYTES(lit) lit, sizeof(lit) - 1

// A stream and the places in it where it may end; -1 ends the list.
static const struct stream {
	enum ends_kind kind;
	const char *p;
	size_t n;
	int bounds[12];
	int complete_at; // from here on it has had its end; -1 never
} streams[] = {
	{ENDS_CONNECT, BYTES("\0\0\0\0\2{}\0\0\0\0\0\1\0\0\0\3abc\0\0\0\0\1x"), {0, 7, 12, 20, 26, -1}, -1},
	{ENDS_CONNECT, BYTES("\0\0\0\0\2{}\2\0\0\0\2{}"), {0, 7, 14, -1}, 14},
	{ENDS_CONNECT, BYTES("\3\0\0\0\1z"), {0, 6, -1}, 6}, // a compressed end
	{ENDS_EVENTS, BYTES("data: a\n\ndata: b\ndata: c\n\n\nx: y\n\n"), {0, 9, 26, 27, 33, -1}, -1},
	{ENDS_EVENTS, BYTES("data: a\r\n\r\ndata: b\r\n\r\n"), {0, 10, 11, 21, 22, -1}, -1},
	{ENDS_EVENTS, BYTES("data: a\r\rdata: b\r\r"), {0, 9, 18, -1}, -1},
	{ENDS_EVENTS, BYTES("data: a\r\n\rdata: b\n\r\n"), {0, 10, 19, 20, -1}, -1},
	{ENDS_EVENTS, BYTES(": hi\n: a\r\n\ndata: x\n: y\n\n"), {0, 5, 9, 10, 11, 24, -1}, -1},
	{ENDS_PLAIN, BYTES("abc\n"), {0, 1, 2, 3, 4, -1}, -1},
};
enum { STREAMS = sizeof streams / sizeof *streams };

static struct err why;

static void setup(void)
{
	err_set(&why, ERR_UNAVAILABLE, "The sandbox was not found: it was killed");
}

// The last place up to AT where S may end.
static size_t bound(const struct stream *s, size_t at)
{
	size_t best = 0;
	for (size_t i = 0; s->bounds[i] >= 0 && (size_t)s->bounds[i] <= at; i++)
		best = (size_t)s->bounds[i];
	return best;
}

struct fed {
	struct ends ends;
	struct buf out;
	const struct stream *stream;
	size_t in;
};

static int take(void *arg, const unsigned char *p, size_t n)
{
	struct fed *f = arg;
	ends_feed(&f->ends, &f->out, p, n);
	f->in += n;
	if (!f->stream)
		return 0;
	size_t want = bound(f->stream, f->in);
	ck_assert_uint_eq(buf_len(&f->out), want);
	ck_assert_mem_eq(buf_data(&f->out), f->stream->p, want);
	return 0;
}

static void fed_init(struct fed *f, enum ends_kind kind, const struct stream *s)
{
	*f = (struct fed){.stream = s};
	ends_init(&f->ends, kind);
	buf_init(&f->out, 0);
}

static void fed_release(struct fed *f)
{
	ends_release(&f->ends);
	buf_release(&f->out);
}

static void check_end(const struct fed *f, enum ends_kind kind, size_t from)
{
	static const char envelope[] = "\2\0\0\0\x5a{\"error\":{\"code\":\"unavailable\",\"message\":\"The sandbox "
				       "was not found: it was killed\"}}";
	static const char event[] = "data: {\"error\":\"The sandbox was not found: it was killed\","
				    "\"code\":\"unavailable\",\"retryable\":true}\n\n";
	const char *want = kind == ENDS_CONNECT ? envelope : event;
	size_t n = kind == ENDS_CONNECT ? sizeof envelope - 1 : sizeof event - 1;
	ck_assert_uint_eq(buf_len(&f->out), from + n);
	if (kind == ENDS_CONNECT)
		ck_assert_uint_eq(buf_data(&f->out)[from + 4], n - ENVELOPE_PREFIX);
	ck_assert_mem_eq(buf_data(&f->out) + from + ENVELOPE_PREFIX, want + ENVELOPE_PREFIX, n - ENVELOPE_PREFIX);
	ck_assert_uint_eq(buf_data(&f->out)[from], (unsigned char)want[0]);
}

// Each stream, cut at each byte, fed in pieces of each size.
START_TEST(cut_anywhere)
{
	const struct stream *s = &streams[_i / FEED_SIZES];
	for (size_t cut = 0; cut <= s->n; cut++) {
		struct fed f;
		fed_init(&f, s->kind, s);
		feed(s->p, cut, (size_t)(_i % FEED_SIZES), take, &f);
		size_t kept = bound(s, cut);
		bool complete = s->complete_at >= 0 && cut >= (size_t)s->complete_at;
		ck_assert_int_eq(f.ends.complete, complete);
		ck_assert_int_eq(ends_cut(&f.ends, &f.out, &why), s->kind != ENDS_PLAIN);
		ck_assert_mem_eq(buf_data(&f.out), s->p, kept);
		if (complete || s->kind == ENDS_PLAIN)
			ck_assert_uint_eq(buf_len(&f.out), kept);
		else
			check_end(&f, s->kind, kept);
		fed_release(&f);
	}
}
END_TEST

// What a body holds that ended as it should is passed on whatever it is.
START_TEST(finish_anywhere)
{
	const struct stream *s = &streams[_i];
	for (size_t cut = 0; cut <= s->n; cut++) {
		struct fed f;
		fed_init(&f, s->kind, s);
		feed(s->p, cut, 1, take, &f);
		ends_finish(&f.ends, &f.out);
		ck_assert_uint_eq(buf_len(&f.out), cut);
		ck_assert_mem_eq(buf_data(&f.out), s->p, cut);
		fed_release(&f);
	}
}
END_TEST

// What follows the end of a Connect stream is nobody's business.
START_TEST(behind_the_end)
{
	struct fed f;
	fed_init(&f, ENDS_CONNECT, NULL);
	feed(BYTES("\2\0\0\0\2{}junk"), (size_t)_i, take, &f);
	ck_assert_uint_eq(buf_len(&f.out), 11);
	ck_assert(ends_cut(&f.ends, &f.out, &why));
	ck_assert_uint_eq(buf_len(&f.out), 11);
	fed_release(&f);
}
END_TEST

// --- units of all sizes ---

static unsigned char big[4 * 64 * 1024];

// A unit of N bytes at AT.
static void put_unit(enum ends_kind kind, size_t at, size_t n)
{
	memset(big + at, 'x', n);
	if (kind == ENDS_EVENTS) {
		big[at + n - 1] = big[at + n - 2] = '\n';
		return;
	}
	size_t payload = n - ENVELOPE_PREFIX;
	big[at] = 0;
	for (unsigned i = 1; i < ENVELOPE_PREFIX; i++)
		big[at + i] = (unsigned char)(payload >> (ENVELOPE_PREFIX - 1 - i) * 8);
}

// Up to the limit a unit is held until it is whole; above it goes through, and in its middle the stream can only be cut.
START_TEST(limit)
{
	static const size_t sizes[] = {ENDS_HELD - 1, ENDS_HELD, ENDS_HELD + 1, 2 * ENDS_HELD + 7};
	static const size_t steps[] = {1000, 4096, ENDS_HELD - 1, ENDS_HELD, 3 * ENDS_HELD};
	enum ends_kind kind = _i % 2 ? ENDS_EVENTS : ENDS_CONNECT;
	for (size_t i = 0; i < 4 * 5; i++) {
		struct fed f;
		size_t n = sizes[i % 4], step = steps[i / 4];
		fed_init(&f, kind, NULL);
		put_unit(kind, 0, 10);
		put_unit(kind, 10, n);
		put_unit(kind, 10 + n, 20);
		feed(big, 10 + n - 1, step, take, &f); // but for the last byte
		// How long an event will be is not known.
		bool passes = (kind == ENDS_CONNECT ? n : n - 1) > ENDS_HELD;
		ck_assert_uint_eq(buf_len(&f.out), passes ? 10 + n - 1 : 10);
		ck_assert_uint_le(buf_len(&f.ends.held), ENDS_HELD);
		if (_i / 2) {
			ck_assert_int_eq(ends_cut(&f.ends, &f.out, &why), !passes);
		} else {
			feed(big + 10 + n - 1, 1 + 20, step, take, &f);
			ck_assert_uint_eq(buf_len(&f.out), 10 + n + 20);
			ck_assert_mem_eq(buf_data(&f.out), big, 10 + n + 20);
			ck_assert(ends_cut(&f.ends, &f.out, &why));
			check_end(&f, kind, 10 + n + 20);
		}
		fed_release(&f);
	}
}
END_TEST

// --- which kind ---

START_TEST(kinds)
{
	static const struct {
		const char *lines;
		enum ends_kind kind;
	} heads[] = {
		{"Content-Type: application/connect+json\r\n", ENDS_CONNECT},
		{"content-type: Application/Connect+Proto ; charset=utf-8\r\n", ENDS_CONNECT},
		{"Content-Type: text/event-stream;charset=utf-8\r\n", ENDS_EVENTS},
		{"Content-Type: application/json\r\n", ENDS_PLAIN},
		{"Content-Type: application/connect+jsonx\r\n", ENDS_PLAIN},
		{"X: y\r\n", ENDS_PLAIN},
		{"Content-Type: application/connect+json\r\nContent-Length: 7\r\n", ENDS_PLAIN},
		{"Content-Type: text/event-stream\r\nContent-Encoding: gzip\r\n", ENDS_PLAIN},
		{"Content-Type: text/event-stream\r\nContent-Encoding: identity\r\n", ENDS_EVENTS},
	};
	static const struct http_limits limits = {4096, 16, 4096};
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		struct http *h = http_new(HTTP_RESPONSE, &limits);
		struct http_span body;
		size_t used;
		char text[256];
		(void)snprintf(text, sizeof text, "HTTP/1.1 200 OK\r\n%s\r\n", heads[i].lines);
		ck_assert_int_eq(http_feed(h, text, strlen(text), &used, &body), HTTP_HEAD);
		ck_assert_msg(ends_kind_of(http_head(h)) == heads[i].kind, "%s", heads[i].lines);
		http_free(h);
	}
}
END_TEST

// --- out of memory ---

static int run(void *arg)
{
	const struct stream *s = arg;
	struct fed f;
	int rc = 0;
	fed_init(&f, s->kind, NULL);
	for (size_t i = 0; i < s->n; i++)
		ends_feed(&f.ends, &f.out, s->p + i, 1);
	if (!ends_cut(&f.ends, &f.out, &why))
		rc = -ENOMEM;
	else if (buf_failed(&f.out) || buf_failed(&f.ends.held))
		rc = 1;
	fed_release(&f);
	return rc;
}

// A stream of which a piece is missing is not ended as if it were whole.
START_TEST(no_memory)
{
	OOM_LOOP(run, (void *)(uintptr_t)&streams[_i]);
}
END_TEST

Suite *gateway_ends_suite(void)
{
	Suite *s = suite_create("gateway_ends");
	TCase *t = tcase_create("ends");
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_loop_test(t, cut_anywhere, 0, STREAMS * FEED_SIZES);
	tcase_add_loop_test(t, finish_anywhere, 0, STREAMS);
	tcase_add_loop_test(t, behind_the_end, 0, FEED_SIZES);
	tcase_add_loop_test(t, limit, 0, 4);
	tcase_add_test(t, kinds);
	tcase_add_loop_test(t, no_memory, 0, STREAMS - 1);
	suite_add_tcase(s, t);
	return s;
}
