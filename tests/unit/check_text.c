// SPDX-License-Identifier: Apache-2.0
#include "oom.h"
#include "proto/text.h"
#include "suites.h"

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROWS(table) ((int)(sizeof(table) / sizeof((table)[0])))
#define SAME(b, p, n)                                               \
	do {                                                        \
		ck_assert_uint_eq(buf_len(b), (n));                 \
		ck_assert_int_eq(memcmp(buf_data(b), (p), (n)), 0); \
	} while (0)
#define HOLDS(b, text) SAME(b, text, strlen(text))

// Deterministic bytes, all values among them.
static void fill(unsigned char *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		p[i] = (unsigned char)(seed >> 24);
	}
}

// ---- base64

static const struct b64_case {
	const char *plain, *coded;
} b64_cases[] = {
	{"", ""},
	{"f", "Zg=="},
	{"fo", "Zm8="},
	{"foo", "Zm9v"},
	{"foob", "Zm9vYg=="},
	{"fooba", "Zm9vYmE="},
	{"foobar", "Zm9vYmFy"},
	{"\xff\xff\xff\xfb\xef\xbe", "////++++"},
};

START_TEST(b64_known)
{
	const struct b64_case *c = &b64_cases[_i];
	struct buf b = {0};
	text_b64_encode(&b, c->plain, strlen(c->plain));
	HOLDS(&b, c->coded);
	buf_reset(&b);
	ck_assert_int_eq(text_b64_decode(&b, c->coded, strlen(c->coded)), 0);
	HOLDS(&b, c->plain);
	buf_release(&b);
}
END_TEST

// Bit by bit, sharing nothing with the code under test. Returns the length.
static size_t naive_b64(char *dst, const unsigned char *p, size_t n)
{
	static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	size_t len = 0;
	for (size_t bit = 0; bit < n * 8; bit += 6) {
		unsigned v = 0;
		for (size_t k = bit; k < bit + 6; k++)
			v = v * 2 + (k < n * 8 ? (unsigned)p[k / 8] >> (7 - k % 8) & 1 : 0);
		dst[len++] = set[v];
	}
	while (len % 4 != 0)
		dst[len++] = '=';
	return len;
}

static void b64_both_ways(const unsigned char *plain, size_t n, char *coded)
{
	struct buf b;
	size_t len = naive_b64(coded, plain, n);
	ck_assert_uint_eq(text_b64_len(n), len);
	buf_init(&b, len); // just enough: no room is asked for that is not used
	text_b64_encode(&b, plain, n);
	ck_assert_int_eq(buf_failed(&b), 0);
	SAME(&b, coded, len);
	buf_release(&b);
	buf_init(&b, n);
	ck_assert_int_eq(text_b64_decode(&b, coded, len), 0);
	SAME(&b, plain, n);
	buf_release(&b);
}

START_TEST(b64_every_length)
{
	for (size_t n = 0; n <= 300; n++) {
		unsigned char *plain = malloc(n > 0 ? n : 1);
		char *coded = malloc(n * 2 + 4);
		ck_assert(plain && coded);
		fill(plain, n, (uint32_t)n);
		b64_both_ways(plain, n, coded);
		memset(plain, 0xff, n);
		b64_both_ways(plain, n, coded);
		free(plain);
		free(coded);
	}
}
END_TEST

// Beyond the pieces that libb64 is given, on both sides of their border.
START_TEST(b64_long)
{
	const size_t border = (size_t)3 << 20;
	unsigned char *plain = malloc(border + 4);
	char *coded = malloc(border * 2);
	ck_assert(plain && coded);
	fill(plain, border + 4, 7);
	for (size_t n = border - 1; n <= border + 4; n++)
		b64_both_ways(plain, n, coded);
	free(plain);
	free(coded);
}
END_TEST

static const char *const b64_bad[] = {
	"A",
	"AB",
	"ABC",
	"=",
	"==",
	"===",
	"====",
	"A===",
	"AB=",
	"AB===",
	"=AAA",
	"A=AA",
	"AA=A",
	"A=A=",
	"AAAA=",
	"AAAAA",
	"AAAA====",
	"AAAAA===",
	"AA==AAAA",
	"AAA=AAAA",
	"AAA=AAA=",
	"AAAA\n",
	"AAA\n",
	"\nAAA",
	"AA\nAA==",
	"AAAA ",
	" AAA",
	"AA A",
	"AA==\n",
	"AAA=\n===",
	"AA-_",
	"AA..",
	"AA\t=",
	"AAA,",
	"AAA\xc3",
	"\xff\xff\xff\xff",
	"AA\xbd=",
};

START_TEST(b64_malformed)
{
	struct buf b = {0};
	BUF_LIT(&b, "before");
	ck_assert_int_eq(text_b64_decode(&b, b64_bad[_i], strlen(b64_bad[_i])), -EINVAL);
	HOLDS(&b, "before");
	ck_assert_int_eq(buf_failed(&b), 0);
	buf_release(&b);
}
END_TEST

// Each byte value at each place of a text of two groups.
START_TEST(b64_every_byte)
{
	static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	struct buf b = {0};
	for (size_t at = 0; at < 8; at++) {
		for (int c = 0; c < 256; c++) {
			char text[8] = {'A', 'A', 'A', 'A', 'A', 'A', 'A', 'A'};
			text[at] = (char)c;
			bool good = (c != 0 && strchr(set, c) != NULL) || (at == 7 && c == '=');
			buf_reset(&b);
			ck_assert_int_eq(text_b64_decode(&b, text, 8), good ? 0 : -EINVAL);
			ck_assert_uint_eq(buf_len(&b), good ? (c == '=' ? 5U : 6U) : 0U);
		}
	}
	buf_release(&b);
}
END_TEST

START_TEST(b64_over_the_limit)
{
	struct buf b;
	buf_init(&b, 2);
	ck_assert_int_eq(text_b64_decode(&b, "Zm9v", 4), -EMSGSIZE);
	ck_assert_uint_eq(buf_len(&b), 0);
	ck_assert_int_eq(text_b64_decode(&b, "Zg==", 4), -EMSGSIZE); // sticky
	buf_reset(&b);
	text_b64_encode(&b, "x", 1);
	ck_assert_int_eq(buf_failed(&b), -EMSGSIZE);
	ck_assert_uint_eq(buf_len(&b), 0);
	buf_release(&b);
}
END_TEST

// ---- percent-encoding and queries

static const struct percent_case {
	const char *given;
	unsigned flags;
	int rc;
	const char *want;
	size_t n;
} percent_cases[] = {
	{"", 0, 0, "", 0},
	{"abc/-._~", 0, 0, "abc/-._~", 8},
	{"%41%4a%4A", 0, 0, "AJJ", 3},
	{"a%20b+c", 0, 0, "a b+c", 5},
	{"a%20b+c%2B", TEXT_PLUS_IS_SPACE, 0, "a b c+", 6},
	{"%ff%80", 0, 0, "\xff\x80", 2},
	{"\xff", 0, 0, "\xff", 1},
	{"%2541", 0, 0, "%41", 3},
	{"%", 0, -EINVAL, "", 0},
	{"%4", 0, -EINVAL, "", 0},
	{"abc%4", 0, -EINVAL, "", 0},
	{"%4g", 0, -EINVAL, "", 0},
	{"%g4", 0, -EINVAL, "", 0},
	{"%%41", 0, -EINVAL, "", 0},
	{"% 1", 0, -EINVAL, "", 0},
	{"%+1", 0, -EINVAL, "", 0},
	{"%", TEXT_LENIENT, 0, "%", 1},
	{"%4", TEXT_LENIENT, 0, "%4", 2},
	{"100%", TEXT_LENIENT, 0, "100%", 4},
	{"%zz%41%4", TEXT_LENIENT, 0, "%zzA%4", 6},
	{"%%41", TEXT_LENIENT, 0, "%A", 2},
	{"%+1", TEXT_LENIENT | TEXT_PLUS_IS_SPACE, 0, "% 1", 3},
	{"a%00b", 0, -EINVAL, "", 0},
	{"a%00b", TEXT_LENIENT, -EINVAL, "", 0},
	{"a%00b", TEXT_NUL_OK, 0, "a\0b", 3},
};

START_TEST(percent_decode)
{
	const struct percent_case *c = &percent_cases[_i];
	struct buf b = {0};
	BUF_LIT(&b, ">");
	size_t n = strlen(c->given);
	char *exact = malloc(n > 0 ? n : 1); // no NUL behind the text
	ck_assert_ptr_nonnull(exact);
	memcpy(exact, c->given, n);
	ck_assert_int_eq(text_percent_decode(&b, exact, n, c->flags), c->rc);
	ck_assert_uint_eq(buf_len(&b), 1 + c->n);
	ck_assert_int_eq(memcmp(buf_data(&b) + 1, c->want, c->n), 0);
	free(exact);
	buf_release(&b);
}
END_TEST

START_TEST(percent_raw_nul)
{
	struct buf b = {0};
	ck_assert_int_eq(text_percent_decode(&b, "a\0b", 3, 0), -EINVAL);
	ck_assert_uint_eq(buf_len(&b), 0);
	ck_assert_int_eq(text_percent_decode(&b, "a\0b", 3, TEXT_NUL_OK), 0);
	SAME(&b, "a\0b", 3);
	buf_release(&b);
	buf_init(&b, 1);
	ck_assert_int_eq(text_percent_decode(&b, "%41b", 4, 0), -EMSGSIZE);
	ck_assert_uint_eq(buf_len(&b), 0);
	buf_release(&b);
}
END_TEST

START_TEST(percent_encode_every_byte)
{
	static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~/";
	struct buf b = {0}, back = {0};
	unsigned char all[256];
	for (int c = 0; c < 256; c++) {
		char want[4] = {(char)c};
		all[c] = (unsigned char)c;
		if (c == 0 || !strchr(plain, c))
			snprintf(want, sizeof(want), "%%%02X", (unsigned)c);
		buf_reset(&b);
		text_percent_encode(&b, &all[c], 1);
		HOLDS(&b, want);
	}
	buf_reset(&b);
	text_percent_encode(&b, all, sizeof(all));
	ck_assert_int_eq(text_percent_decode(&back, (const char *)buf_data(&b), buf_len(&b), TEXT_NUL_OK), 0);
	SAME(&back, all, sizeof(all));
	buf_release(&b);
	buf_release(&back);
}
END_TEST

static const struct query_case {
	const char *query, *key;
	unsigned flags;
	int rc;
	const char *want, *raw;
} query_cases[] = {
	{"", "a", 0, 0, "", NULL},
	{"a=1", "a", 0, 1, "1", "1"},
	{"a=1&b=2&c=3", "b", 0, 1, "2", "2"},
	{"a=1&b=2&c=3", "c", 0, 1, "3", "3"},
	{"a=1&a=2", "a", 0, 1, "1", "1"},
	{"a", "a", 0, 1, "", ""},
	{"b&a&c", "a", 0, 1, "", ""},
	{"a=", "a", 0, 1, "", ""},
	{"a=&b=2", "a", 0, 1, "", ""},
	{"aa=1", "a", 0, 0, "", NULL},
	{"a=1", "aa", 0, 0, "", NULL},
	{"A=1", "a", 0, 0, "", NULL},
	{"b=a=1", "a", 0, 0, "", NULL},
	{"a=b=c", "a", 0, 1, "b=c", "b=c"},
	{"&&a=1&&", "a", 0, 1, "1", "1"},
	{"=x&a=1", "a", 0, 1, "1", "1"},
	{"p%61th=%2Ftmp%2fa+b", "path", 0, 1, "/tmp/a b", "%2Ftmp%2fa+b"},
	{"my+key=1", "my key", 0, 1, "1", "1"},
	{"a%=1", "a%", 0, 1, "1", "1"},
	{"a%00=1", "a", 0, 0, "", NULL},
	{"path=%zz", "path", 0, -EINVAL, "", "%zz"},
	{"path=%zz", "path", TEXT_LENIENT, 1, "%zz", "%zz"},
	{"path=a%00b", "path", 0, -EINVAL, "", "a%00b"},
	{"x=%zz&path=%C3%A9", "path", 0, 1, "\xc3\xa9", "%C3%A9"},
};

START_TEST(query)
{
	const struct query_case *c = &query_cases[_i];
	struct buf b = {0};
	size_t n = strlen(c->query), len = 99;
	const char *p = NULL;
	char *exact = malloc(n > 0 ? n : 1);
	ck_assert_ptr_nonnull(exact);
	memcpy(exact, c->query, n);
	ck_assert_int_eq(text_query_get(&b, exact, n, c->key, c->flags), c->rc);
	HOLDS(&b, c->want);
	ck_assert_int_eq(text_query_raw(exact, n, c->key, &p, &len), c->raw != NULL);
	if (c->raw) {
		ck_assert_uint_eq(len, strlen(c->raw));
		ck_assert_int_eq(memcmp(p, c->raw, len), 0);
		ck_assert(p >= exact && p + len <= exact + n);
	}
	free(exact);
	buf_release(&b);
}
END_TEST

// ---- the rest

START_TEST(equal_ct)
{
	ck_assert(text_equal_ct("", 0, "", 0));
	ck_assert(text_equal_ct("secret", 6, "secret", 6));
	ck_assert(text_equal_ct("a\0b", 3, "a\0b", 3));
	ck_assert(!text_equal_ct("a\0b", 3, "a\0c", 3));
	ck_assert(!text_equal_ct("secret", 6, "secret", 5));
	ck_assert(!text_equal_ct("", 0, "a", 1));
	char a[16] = "0123456789abcde", b[16];
	for (size_t at = 0; at < 16; at++) {
		for (int bit = 0; bit < 8; bit++) {
			memcpy(b, a, 16);
			b[at] = (char)(b[at] ^ (1 << bit));
			ck_assert(!text_equal_ct(a, 16, b, 16));
		}
	}
}
END_TEST

static const struct int_case {
	const char *text;
	long long min, max;
	int rc;
	long long want;
} int_cases[] = {
	{"0", 0, 10, 0, 0},
	{"-0", 0, 10, 0, 0},
	{"007", 0, 10, 0, 7},
	{"10", 0, 10, 0, 10},
	{"11", 0, 10, -ERANGE, 0},
	{"-1", 0, 10, -ERANGE, 0},
	{"-1", -1, 10, 0, -1},
	{"", 0, 10, -EINVAL, 0},
	{"-", -9, 10, -EINVAL, 0},
	{"--1", -9, 10, -EINVAL, 0},
	{"+1", 0, 10, -EINVAL, 0},
	{" 1", 0, 10, -EINVAL, 0},
	{"1 ", 0, 10, -EINVAL, 0},
	{"1.0", 0, 10, -EINVAL, 0},
	{"0x1", 0, 10, -EINVAL, 0},
	{"1e1", 0, 10, -EINVAL, 0},
	{"9223372036854775807", LLONG_MIN, LLONG_MAX, 0, LLONG_MAX},
	{"-9223372036854775808", LLONG_MIN, LLONG_MAX, 0, LLONG_MIN},
	{"9223372036854775808", LLONG_MIN, LLONG_MAX, -ERANGE, 0},
	{"-9223372036854775809", LLONG_MIN, LLONG_MAX, -ERANGE, 0},
	{"99999999999999999999999999", LLONG_MIN, LLONG_MAX, -ERANGE, 0},
	{"18446744073709551617", 0, 10, -ERANGE, 0},
	{"99999999999999999999999999x", LLONG_MIN, LLONG_MAX, -EINVAL, 0},
};

START_TEST(integer)
{
	const struct int_case *c = &int_cases[_i];
	long long v = 4242;
	ck_assert_int_eq(text_int(c->text, strlen(c->text), c->min, c->max, &v), c->rc);
	ck_assert_int_eq(v, c->rc == 0 ? c->want : 4242);
	ck_assert_int_eq(text_int("123", 2, 0, 99, &v), 0); // the length counts, not a NUL
	ck_assert_int_eq(v, 12);
}
END_TEST

// Each function on its own buffer, so that each allocation's failure must be told by the function it happened in.
static int work(void *arg)
{
	struct buf b[5] = {{0}};
	int want = 0, rc = 0;
	(void)arg;
	text_b64_encode(&b[0], "some bytes", 10);
	want = buf_failed(&b[0]);
	if (!want) {
		rc = text_b64_decode(&b[1], (const char *)buf_data(&b[0]), buf_len(&b[0]));
		want = rc == buf_failed(&b[1]) ? rc : 1;
	}
	if (!want) {
		rc = text_percent_decode(&b[2], "%41bc", 5, 0);
		want = rc == buf_failed(&b[2]) ? rc : 2;
	}
	if (!want) {
		text_percent_encode(&b[3], "a b", 3);
		want = buf_failed(&b[3]);
	}
	if (!want) {
		rc = text_query_get(&b[4], "k=v", 3, "k", 0);
		want = rc == 1 ? 0 : rc == buf_failed(&b[4]) ? rc : 3;
	}
	for (size_t i = 0; i < 5; i++)
		buf_release(&b[i]);
	return want;
}

START_TEST(out_of_memory)
{
	OOM_LOOP(work, NULL);
}
END_TEST

Suite *text_suite(void)
{
	Suite *s = suite_create("text");
	TCase *tc = tcase_create("text");
	tcase_set_timeout(tc, 20);
	tcase_add_loop_test(tc, b64_known, 0, ROWS(b64_cases));
	tcase_add_test(tc, b64_every_length);
	tcase_add_test(tc, b64_long);
	tcase_add_loop_test(tc, b64_malformed, 0, ROWS(b64_bad));
	tcase_add_test(tc, b64_every_byte);
	tcase_add_test(tc, b64_over_the_limit);
	tcase_add_loop_test(tc, percent_decode, 0, ROWS(percent_cases));
	tcase_add_test(tc, percent_raw_nul);
	tcase_add_test(tc, percent_encode_every_byte);
	tcase_add_loop_test(tc, query, 0, ROWS(query_cases));
	tcase_add_test(tc, equal_ct);
	tcase_add_loop_test(tc, integer, 0, ROWS(int_cases));
	tcase_add_test(tc, out_of_memory);
	suite_add_tcase(s, tc);
	return s;
}
