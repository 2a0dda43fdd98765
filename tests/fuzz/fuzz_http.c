// SPDX-License-Identifier: Apache-2.0
// Requests and responses: the same events whatever the cuts, and nothing behind an error.
#include "tests/fuzz/fuzz.h"

#include "proto/buf.h"
#include "proto/http.h"

#include <string.h>

static const struct http_limits limits = {.head = 4096, .headers = 32, .overhead = 1024};

static void note_head(struct buf *out, const struct http_head *h)
{
	buf_printf(out, "head %.*s %.*s %d %d %d%d%d %lld\n", (int)h->method.n, h->method.p, (int)h->target.n,
		h->target.p, h->status, h->minor, h->keep_alive, h->chunked, h->expect_continue,
		(long long)h->content_length);
	for (size_t i = 0; i < h->header_count; i++) {
		const struct http_header *f = &h->headers[i];
		FUZZ_CHECK(!memchr(f->name.p, '\n', f->name.n) && !memchr(f->value.p, '\n', f->value.n));
		buf_append(out, f->name.p, f->name.n);
		buf_str(out, ": ");
		buf_append(out, f->value.p, f->value.n);
		buf_str(out, "\n");
	}
}

// All that the parser says of the N bytes in pieces of STEP (0: whole), as text. Bodies are noted joined.
static void run(struct buf *out, enum http_kind kind, const uint8_t *p, size_t n, size_t step)
{
	struct http *h = http_new(kind, &limits);
	struct buf body = {0};
	size_t at = 0;
	enum http_event ev = HTTP_MORE;
	FUZZ_CHECK(h);
	while (ev != HTTP_ERROR) {
		size_t used = 0, len = step && step < n - at ? step : n - at;
		struct http_span b = {0};
		ev = http_feed(h, (const char *)p + at, len, &used, &b);
		FUZZ_CHECK(used <= len);
		at += used;
		if (ev == HTTP_HEAD)
			note_head(out, http_head(h));
		if (ev == HTTP_BODY)
			buf_append(&body, b.p, b.n);
		if (ev == HTTP_END) {
			buf_printf(out, "body %zu %zu\n", buf_len(&body), at);
			buf_append(out, buf_data(&body), buf_len(&body));
			buf_release(&body);
			http_next(h);
		}
		if (ev == HTTP_MORE && at == n)
			break;
	}
	if (ev == HTTP_ERROR)
		buf_printf(out, "error %d\n", http_error(h)->status);
	else
		buf_printf(out, "eof %d\n", (int)http_eof(h));
	buf_release(&body);
	http_free(h);
}

int fuzz_http(const uint8_t *p, size_t n)
{
	unsigned choice = fuzz_choice(&p, &n);
	enum http_kind kind = choice & 1 ? HTTP_RESPONSE : HTTP_REQUEST;
	struct buf whole = {0}, cut = {0};
	run(&whole, kind, p, n, 0);
	run(&cut, kind, p, n, 1 + (choice >> 1) % 7);
	FUZZ_CHECK(buf_len(&whole) == buf_len(&cut));
	FUZZ_CHECK(memcmp(buf_data(&whole), buf_data(&cut), buf_len(&cut)) == 0);
	buf_release(&whole);
	buf_release(&cut);
	return 0;
}
