// SPDX-License-Identifier: Apache-2.0
// Base64, UTF-8, percent-encoding: round trips, and repairs that do not depend on the cuts.
#include "tests/fuzz/fuzz.h"

#include "proto/text.h"
#include "proto/text_bulk.h"

#include <stdlib.h>
#include <string.h>

// The ways of doing much at once agree, as far as each goes, with each other and with what small pieces give, which are libb64's.
static void bulk(const uint8_t *p, size_t n)
{
	struct buf text = {0}, back = {0};
	for (size_t at = 0; at + 3 <= n; at += 3)
		text_b64_encode(&text, p + at, 3);
	size_t groups = n / 3, stop[3];
	char *coded = malloc(groups * 4 + 1);
	unsigned char *plain = malloc(n + 1);
	FUZZ_CHECK(coded && plain);
	for (int how = TEXT_BULK_BEST; how <= TEXT_BULK_AVX2; how++) {
		size_t done = text_bulk_encode((enum text_bulk)how, coded, p, n);
		FUZZ_CHECK(done <= groups && (how == TEXT_BULK_AVX2 || done == groups));
		FUZZ_CHECK(!done || memcmp(coded, buf_data(&text), done * 4) == 0);
		// The input itself as base64.
		stop[how] = text_bulk_decode((enum text_bulk)how, plain, (const char *)p, n);
		for (size_t i = 0; i < stop[how]; i++) {
			buf_truncate(&back, 0);
			FUZZ_CHECK(text_b64_decode(&back, (const char *)p + i * 4, 4) == 0);
			FUZZ_CHECK(buf_len(&back) == 3 && memcmp(buf_data(&back), plain + i * 3, 3) == 0);
		}
	}
	FUZZ_CHECK(stop[TEXT_BULK_BEST] == stop[TEXT_BULK_WORDS] && stop[TEXT_BULK_AVX2] <= stop[TEXT_BULK_WORDS]);
	free(coded);
	free(plain);
	buf_release(&text);
	buf_release(&back);
}

static void base64(const uint8_t *p, size_t n)
{
	bulk(p, n);
	struct buf text = {0}, back = {0}, again = {0};
	text_b64_encode(&text, p, n);
	FUZZ_CHECK(buf_len(&text) == text_b64_len(n));
	FUZZ_CHECK(text_b64_decode(&back, (const char *)buf_data(&text), buf_len(&text)) == 0);
	FUZZ_CHECK(buf_len(&back) == n && (!n || memcmp(buf_data(&back), p, n) == 0));
	buf_release(&back);
	buf_release(&text);
	// The input itself as base64: what is taken has one form only, but for the bits that padding leaves over.
	if (text_b64_decode(&back, (const char *)p, n) == 0) {
		text_b64_encode(&again, buf_data(&back), buf_len(&back));
		FUZZ_CHECK(buf_len(&again) == n);
		FUZZ_CHECK(n < 4 || memcmp(buf_data(&again), p, n - 4) == 0);
	}
	buf_release(&back);
	buf_release(&again);
}

static void repair(struct buf *out, const uint8_t *p, size_t n, size_t step, bool *bad)
{
	struct text_tail tail = {0};
	for (size_t at = 0; at < n; at += step)
		text_utf8_repair(out, &tail, p + at, step < n - at ? step : n - at, false, bad);
	text_utf8_repair(out, &tail, "", 0, true, bad);
}

static void utf8(const uint8_t *p, size_t n, size_t step)
{
	struct buf a = {0}, b = {0};
	bool bad_a = false, bad_b = false, valid = text_utf8_valid(p, n);
	repair(&a, p, n, n ? n : 1, &bad_a);
	repair(&b, p, n, step, &bad_b);
	FUZZ_CHECK(bad_a == bad_b && bad_a == !valid);
	FUZZ_CHECK(
		buf_len(&a) == buf_len(&b) && (!buf_len(&a) || memcmp(buf_data(&a), buf_data(&b), buf_len(&a)) == 0));
	FUZZ_CHECK(text_utf8_valid(buf_data(&a), buf_len(&a)));
	FUZZ_CHECK(!valid || (buf_len(&a) == n && (!n || memcmp(buf_data(&a), p, n) == 0)));
	buf_release(&a);
	buf_release(&b);
}

static void percent(const uint8_t *p, size_t n, unsigned flags)
{
	struct buf text = {0}, back = {0};
	const char *raw;
	size_t len;
	text_percent_encode(&text, p, n);
	FUZZ_CHECK(text_percent_decode(&back, (const char *)buf_data(&text), buf_len(&text), TEXT_NUL_OK) == 0);
	FUZZ_CHECK(buf_len(&back) == n && (!n || memcmp(buf_data(&back), p, n) == 0));
	buf_release(&back);
	buf_release(&text);
	if (text_percent_decode(&back, (const char *)p, n, flags) == 0)
		FUZZ_CHECK(buf_len(&back) <= n &&
			   ((flags & TEXT_NUL_OK) || !memchr(buf_data(&back), 0, buf_len(&back)) || !n));
	else
		FUZZ_CHECK(buf_len(&back) == 0);
	buf_release(&back);
	(void)text_query_get(&back, (const char *)p, n, "path", flags);
	if (text_query_raw((const char *)p, n, "path", &raw, &len))
		FUZZ_CHECK(raw >= (const char *)p && raw + len <= (const char *)p + n);
	buf_release(&back);
}

int fuzz_text(const uint8_t *p, size_t n)
{
	long long v = 0;
	unsigned choice = fuzz_choice(&p, &n);
	base64(p, n);
	utf8(p, n, 1 + choice % 7);
	percent(p, n, choice % 8);
	if (text_int((const char *)p, n, -500, 70000, &v) == 0)
		FUZZ_CHECK(v >= -500 && v <= 70000);
	return 0;
}
