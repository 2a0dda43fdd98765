// SPDX-License-Identifier: Apache-2.0
// The UTF-8 half of text, against the standard's table and at every way of cutting the input.
#include "feed.h"
#include "oom.h"
#include "proto/text.h"
#include "suites.h"

#include <stdint.h>
#include <string.h>

#define ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))
#define SAME(b, p, n)                                               \
	do {                                                        \
		ck_assert_uint_eq(buf_len(b), (n));                 \
		ck_assert_int_eq(memcmp(buf_data(b), (p), (n)), 0); \
	} while (0)
#define HOLDS(b, text) SAME(b, text, strlen(text))

// The well-formed sequences as the standard's table has them: ranges byte by byte.
static const struct utf8_row {
	unsigned char low[4], high[4];
	size_t n;
} utf8_rows[] = {
	{{0x00}, {0x7f}, 1},
	{{0xc2, 0x80}, {0xdf, 0xbf}, 2},
	{{0xe0, 0xa0, 0x80}, {0xe0, 0xbf, 0xbf}, 3},
	{{0xe1, 0x80, 0x80}, {0xec, 0xbf, 0xbf}, 3},
	{{0xed, 0x80, 0x80}, {0xed, 0x9f, 0xbf}, 3},
	{{0xee, 0x80, 0x80}, {0xef, 0xbf, 0xbf}, 3},
	{{0xf0, 0x90, 0x80, 0x80}, {0xf0, 0xbf, 0xbf, 0xbf}, 4},
	{{0xf1, 0x80, 0x80, 0x80}, {0xf3, 0xbf, 0xbf, 0xbf}, 4},
	{{0xf4, 0x80, 0x80, 0x80}, {0xf4, 0x8f, 0xbf, 0xbf}, 4},
};

// The whole text at once, straight from the definition. DST has three times the room. Returns the length.
static size_t naive_repair(unsigned char *dst, const unsigned char *p, size_t n, bool *bad)
{
	size_t len = 0;
	*bad = false;
	for (size_t i = 0; i < n;) {
		size_t best = 0;
		bool whole = false;
		for (int r = 0; r < ROWS(utf8_rows); r++) {
			size_t k = 0;
			while (k < utf8_rows[r].n && i + k < n && p[i + k] >= utf8_rows[r].low[k] &&
				p[i + k] <= utf8_rows[r].high[k])
				k++;
			best = k > best ? k : best;
			whole = whole || k == utf8_rows[r].n;
		}
		if (whole) {
			memcpy(dst + len, p + i, best);
			len += best;
		} else {
			memcpy(dst + len, "\xef\xbf\xbd", 3);
			len += 3;
			*bad = true;
		}
		i += best > 0 ? best : 1;
	}
	return len;
}

struct repair {
	struct buf *out;
	struct text_tail tail;
	bool bad;
};

static int repair_piece(void *arg, const unsigned char *p, size_t n)
{
	struct repair *r = arg;
	text_utf8_repair(r->out, &r->tail, p, n, false, &r->bad);
	return buf_failed(r->out);
}

static int repair_all(struct buf *out, const void *p, size_t n, size_t chunk, bool *bad)
{
	struct repair r = {.out = out};
	int rc = feed(p, n, chunk, repair_piece, &r);
	text_utf8_repair(out, &r.tail, NULL, 0, true, &r.bad);
	*bad = r.bad;
	return rc < 0 ? rc : buf_failed(out);
}

// Repairs P as the definition says at every chunk size, and with FINAL given along with the bytes.
static void check_repair(struct buf *b, const unsigned char *p, size_t n)
{
	unsigned char want[64];
	bool want_bad, bad;
	size_t len = naive_repair(want, p, n, &want_bad);
	for (size_t chunk = 0; chunk < FEED_SIZES; chunk++) {
		buf_reset(b);
		int rc = repair_all(b, p, n, chunk, &bad);
		if (rc != 0 || bad != want_bad || buf_len(b) != len || memcmp(buf_data(b), want, len) != 0)
			ck_abort_msg(
				"%02x %02x %02x %02x (%zu bytes) in chunks of %zu", p[0], p[1], p[2], p[3], n, chunk);
	}
	struct text_tail tail = {.n = 0};
	bad = false;
	buf_reset(b);
	text_utf8_repair(b, &tail, p, n, true, &bad);
	// One condition: each passing ck_assert costs a message to Check's parent, and this runs a million times.
	bool same = buf_len(b) == len && memcmp(buf_data(b), want, len) == 0 && bad == want_bad && tail.n == 0;
	if (!same || text_utf8_valid(p, n) == want_bad || !text_utf8_valid(buf_data(b), buf_len(b)))
		ck_abort_msg("%02x %02x %02x %02x (%zu bytes) at once", p[0], p[1], p[2], p[3], n);
}

// R stands for U+FFFD. The first five are the standard's own examples.
static const struct utf8_case {
	const char *given, *want;
} utf8_cases[] = {
	{"\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41", "RRRRRRRRA"},
	{"\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41", "RRRRRRRRA"},
	{"\xf4\x91\x92\x93\xff\x41\x80\xbf\x42", "RRRRRARRB"},
	{"\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41", "RRRRA"},
	{"\x61\xf1\x80\x80\xe1\x80\xc2\x62\x80\x63\x80\xbf\x64", "aRRRbRcRRd"},
	{"", ""},
	{"plain", "plain"},
	{"a\xe2\x82\xac"
	 "b",
		"a\xe2\x82\xac"
		"b"},
	{"\xf4\x8f\xbf\xbf", "\xf4\x8f\xbf\xbf"},
	{"\xef\xbf\xbd", "\xef\xbf\xbd"},
	{"\xe2\x82", "R"},
	{"\xf0\x9f\x98", "R"},
	{"\xc3", "R"},
	{"\xe2\x82\xe2\x82\xac", "R\xe2\x82\xac"},
	{"\xfe\xff\x80", "RRR"},
};

START_TEST(known)
{
	const struct utf8_case *c = &utf8_cases[_i];
	struct buf want = {0}, b = {0};
	bool bad;
	for (const char *s = c->want; *s; s++) {
		if (*s == 'R')
			buf_str(&want, "\xef\xbf\xbd");
		else
			buf_byte(&want, (unsigned char)*s);
	}
	for (size_t chunk = 0; chunk < FEED_SIZES; chunk++) {
		buf_reset(&b);
		ck_assert_int_eq(repair_all(&b, c->given, strlen(c->given), chunk, &bad), 0);
		SAME(&b, buf_data(&want), buf_len(&want));
		ck_assert_int_eq(bad, strchr(c->want, 'R') != NULL);
		ck_assert_int_eq(text_utf8_valid(c->given, strlen(c->given)), !bad);
	}
	buf_release(&want);
	buf_release(&b);
}
END_TEST

START_TEST(every_pair)
{
	struct buf b = {0};
	for (unsigned v = 0; v < 65536; v++) {
		unsigned char p[4] = {(unsigned char)(v >> 8), (unsigned char)v, 'A', 0x80};
		check_repair(&b, p, 2);
		if (v % 256 >= 0x7e && v % 256 <= 0xc3)
			check_repair(&b, p, 4);
	}
	buf_release(&b);
}
END_TEST

// Sequences of four of the bytes at which something changes.
START_TEST(every_border)
{
	static const unsigned char border[] = {0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1, 0xc2, 0xdf, 0xe0,
		0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff};
	const unsigned k = sizeof(border);
	struct buf b = {0};
	unsigned char p[4] = {border[_i]};
	for (unsigned v = 0; v < k * k * k; v++) {
		p[1] = border[v / k / k];
		p[2] = border[v / k % k];
		p[3] = border[v % k];
		check_repair(&b, p, 4);
	}
	buf_release(&b);
}
END_TEST

// Every number a sequence of N bytes can carry is valid if it needs N bytes and is a character.
START_TEST(every_character)
{
	for (uint32_t v = 0; v < 0x200000; v++) {
		unsigned char two[] = {(unsigned char)(0xc0 | v >> 6), (unsigned char)(0x80 | (v & 0x3f))};
		unsigned char three[] = {(unsigned char)(0xe0 | v >> 12), (unsigned char)(0x80 | (v >> 6 & 0x3f)),
			(unsigned char)(0x80 | (v & 0x3f))};
		unsigned char four[] = {(unsigned char)(0xf0 | v >> 18), (unsigned char)(0x80 | (v >> 12 & 0x3f)),
			(unsigned char)(0x80 | (v >> 6 & 0x3f)), (unsigned char)(0x80 | (v & 0x3f))};
		bool surrogate = v >= 0xd800 && v <= 0xdfff;
		if ((v < 0x800 && text_utf8_valid(two, 2) != (v >= 0x80)) ||
			(v < 0x10000 && text_utf8_valid(three, 3) != (v >= 0x800 && !surrogate)) ||
			text_utf8_valid(four, 4) != (v >= 0x10000 && v <= 0x10ffff))
			ck_abort_msg("U+%04X", (unsigned)v);
	}
}
END_TEST

// A stray byte, a cut character and a whole one at every place of a text long enough for the fast path.
START_TEST(within_ascii)
{
	static const char *const odd[] = {"\x80", "\xe2\x82", "\xe2\x82\xac", "\xf0\x9f\x98\x80"};
	struct buf b = {0};
	for (size_t at = 0; at <= 19; at++) {
		for (size_t k = 0; k < 4; k++) {
			unsigned char p[24];
			memset(p, 'x', sizeof(p));
			memcpy(p + at, odd[k], strlen(odd[k]));
			check_repair(&b, p, 20);
			check_repair(&b, p, at + strlen(odd[k]) < 20 ? at + strlen(odd[k]) : 20);
		}
	}
	ck_assert(text_utf8_valid(NULL, 0));
	buf_release(&b);
}
END_TEST

START_TEST(held_back)
{
	struct buf b = {0};
	struct text_tail tail = {.n = 0};
	bool bad = false;
	text_utf8_repair(&b, &tail, "a\xe2\x82", 3, false, &bad);
	HOLDS(&b, "a");
	ck_assert_uint_eq(tail.n, 2);
	text_utf8_repair(&b, &tail, NULL, 0, false, &bad);
	HOLDS(&b, "a");
	text_utf8_repair(&b, &tail,
		"\xac"
		"b",
		2, false, &bad);
	HOLDS(&b, "a\xe2\x82\xac"
		  "b");
	ck_assert(!bad);
	text_utf8_repair(&b, &tail, "\xe2", 1, false, NULL);
	text_utf8_repair(&b, &tail, NULL, 0, true, NULL); // no flag wanted
	HOLDS(&b, "a\xe2\x82\xac"
		  "b\xef\xbf\xbd");
	bad = true;
	text_utf8_repair(&b, &tail, "c", 1, true, &bad);
	ck_assert(bad); // it only ever becomes true
	buf_release(&b);
}
END_TEST

static int work_repair(void *arg)
{
	const size_t *chunk = arg;
	struct buf b = {0};
	char text[512];
	bool bad;
	for (size_t i = 0; i < sizeof(text); i++)
		text[i] = "ab\xe2\x82\xac\xff"[i % 6];
	int rc = repair_all(&b, text, sizeof(text), *chunk, &bad);
	if (rc == 0 && (!bad || !text_utf8_valid(buf_data(&b), buf_len(&b))))
		rc = 1;
	buf_release(&b);
	return rc;
}

START_TEST(out_of_memory)
{
	size_t chunk = (size_t)_i;
	OOM_LOOP(work_repair, &chunk);
}
END_TEST

Suite *utf8_suite(void)
{
	Suite *s = suite_create("utf8");
	TCase *tc = tcase_create("utf8");
	tcase_set_timeout(tc, 20);
	tcase_add_loop_test(tc, known, 0, ROWS(utf8_cases));
	tcase_add_test(tc, every_pair);
	tcase_add_loop_test(tc, every_border, 0, 20);
	tcase_add_test(tc, every_character);
	tcase_add_test(tc, within_ascii);
	tcase_add_test(tc, held_back);
	tcase_add_loop_test(tc, out_of_memory, 0, FEED_SIZES);
	suite_add_tcase(s, tc);
	return s;
}
