// SPDX-License-Identifier: Apache-2.0
#include "oom.h"
#include "proto/http.h"
#include "suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES(lit) "" lit, sizeof(lit) - 1

static const char written[] = "HTTP/1.1 404 Not Found\r\nA: b  c\r\nContent-Length: 18446744073709551615\r\n\r\n"
			      "3\r\na\0b\r\n0000002\r\nhi\r\n0\r\n\r\n";

static void write_all(struct buf *out)
{
	http_put_status(out, 404);
	http_put_header(out, "A", "b\r\nc");
	http_put_length(out, UINT64_MAX);
	http_put_end(out);
	http_put_chunk(out, "a\0b", 3);
	http_put_chunk(out, "", 0);
	size_t empty = http_chunk_begin(out);
	http_chunk_end(out, empty);
	size_t mark = http_chunk_begin(out);
	buf_str(out, "hi");
	http_chunk_end(out, mark);
	http_put_last_chunk(out);
}

static int run_writers(void *arg)
{
	(void)arg;
	struct buf out;
	buf_init(&out, 0);
	write_all(&out);
	int rc = buf_failed(&out);
	if (rc == 0 &&
		(buf_len(&out) != sizeof(written) - 1 || memcmp(buf_data(&out), written, sizeof(written) - 1) != 0))
		rc = 1;
	buf_release(&out);
	return rc;
}

START_TEST(writers)
{
	ck_assert_int_eq(run_writers(NULL), 0);
	OOM_LOOP(run_writers, NULL);
}
END_TEST

// Each smaller limit fails the buf at another place; nothing crashes and nothing is written behind it.
START_TEST(writers_over_limit)
{
	for (size_t max = 1; max < sizeof(written) - 1; max++) {
		struct buf out;
		buf_init(&out, max);
		write_all(&out);
		ck_assert_int_eq(buf_failed(&out), -EMSGSIZE);
		ck_assert_uint_le(buf_len(&out), max);
		buf_release(&out);
	}
}
END_TEST

START_TEST(writes_request)
{
	struct buf out;
	buf_init(&out, 0);
	http_put_request(&out, "GET", "/a b\r\n\xc3?q=%20");
	http_put_header(&out, "Empty", "");
	http_put_status(&out, 799);
	buf_byte(&out, '\0');
	ck_assert_str_eq((const char *)buf_data(&out),
		"GET /a%20b%0D%0A%C3?q=%20 HTTP/1.1\r\nEmpty: \r\nHTTP/1.1 799 Unknown\r\n");
	buf_release(&out);
}
END_TEST

// Chunks behind bytes that are still to be sent, a large one, and what the parser makes of them.
START_TEST(chunks_round_trip)
{
	struct buf out;
	buf_init(&out, 0);
	BUF_LIT(&out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
	static const char digits[] = "0123456789abcdef";
	size_t size = (size_t)1 << 20;
	char *big = malloc(size);
	ck_assert_ptr_nonnull(big);
	for (size_t i = 0; i < size; i++)
		big[i] = digits[i % 16];
	size_t mark = http_chunk_begin(&out);
	buf_append(&out, big, size);
	http_chunk_end(&out, mark);
	ck_assert_int_eq(memcmp(buf_data(&out) + mark, "0100000\r\n0123", 13), 0);
	http_put_chunk(&out, "tail", 4);
	http_put_last_chunk(&out);
	struct http *h = http_new(HTTP_RESPONSE, &(struct http_limits){.head = 100, .headers = 1, .overhead = 0});
	ck_assert_ptr_nonnull(h);
	const char *p = (const char *)buf_data(&out);
	size_t n = buf_len(&out), used, total = 0;
	struct http_span body;
	enum http_event ev;
	while ((ev = http_feed(h, p, n, &used, &body)) == HTTP_HEAD || ev == HTTP_BODY) {
		if (ev == HTTP_BODY && total < size)
			ck_assert_int_eq(memcmp(body.p, big + total, body.n), 0);
		total += body.n;
		p += used;
		n -= used;
	}
	ck_assert_int_eq(ev, HTTP_END);
	ck_assert_uint_eq(n - used, 0);
	ck_assert_uint_eq(total, size + 4);
	http_free(h);
	free(big);
	buf_release(&out);
}
END_TEST

START_TEST(look_ups)
{
	static const struct http_header headers[] = {
		{{BYTES("Accept")}, {BYTES("a/b")}},
		{{BYTES("X")}, {BYTES("one,\t Two ,,three")}},
		{{BYTES("accept")}, {BYTES("second")}},
		{{BYTES("x")}, {BYTES("")}},
		{{BYTES("x")}, {BYTES("four")}},
	};
	const struct http_head head = {.headers = headers, .header_count = 5};
	ck_assert(http_span_is(http_get(&head, "ACCEPT"), "a/b"));
	ck_assert_ptr_null(http_get(&head, "Accep").p);
	ck_assert_uint_eq(http_get(&head, "Accepts").n, 0);
	ck_assert(http_has_token(&head, "X", "one") && http_has_token(&head, "x", "TWO"));
	ck_assert(http_has_token(&head, "X", "three") && http_has_token(&head, "X", "four"));
	ck_assert(!http_has_token(&head, "X", "on") && !http_has_token(&head, "X", "ones"));
	ck_assert(!http_has_token(&head, "Y", "one") && !http_has_token(&head, "X", "one,"));
	ck_assert(http_span_is((struct http_span){NULL, 0}, "") && !http_span_is((struct http_span){NULL, 0}, "a"));
	ck_assert(!http_span_is((struct http_span){BYTES("Ab")}, "ab"));
	ck_assert(http_span_is_nocase((struct http_span){BYTES("Ab[")}, "aB["));
	ck_assert(!http_span_is_nocase((struct http_span){BYTES("Ab[")}, "aB{"));
}
END_TEST

Suite *http_out_suite(void)
{
	Suite *s = suite_create("http_out");
	TCase *c = tcase_create("http_out");
	tcase_add_test(c, writers);
	tcase_add_test(c, writers_over_limit);
	tcase_add_test(c, writes_request);
	tcase_add_test(c, chunks_round_trip);
	tcase_add_test(c, look_ups);
	suite_add_tcase(s, c);
	return s;
}
