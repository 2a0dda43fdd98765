// SPDX-License-Identifier: Apache-2.0
// The bulk path against libb64: the same bytes for every length, nothing written beside the room, nothing taken that is no base64.
#include "proto/text_bulk.h"
#include "suites.h"

#include <b64/cencode.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LENGTHS ((size_t)4096)
#define MARK 0x5a

static const enum text_bulk ways[] = {TEXT_BULK_BEST, TEXT_BULK_WORDS, TEXT_BULK_AVX2};

static void fill(unsigned char *p, size_t n, uint32_t seed)
{
	for (size_t i = 0; i < n; i++) {
		seed = seed * 1664525 + 1013904223;
		p[i] = (unsigned char)(seed >> 24);
	}
}

// libb64's whole groups of N bytes. Returns how many.
static size_t reference(char *dst, const unsigned char *p, size_t n)
{
	base64_encodestate state;
	base64_init_encodestate(&state);
	state.stepcount = INT_MIN; // no line breaks
	base64_encode_block((const char *)p, (int)(n / 3 * 3), dst, &state);
	return n / 3;
}

// Memory that ends with the allocation, so that a sanitizer sees what goes beyond; and has a mark in front.
static unsigned char *room(size_t n)
{
	unsigned char *p = malloc(n + 1);
	ck_assert_ptr_nonnull(p);
	memset(p, MARK, n + 1);
	return p + 1;
}

static void drop(unsigned char *p)
{
	ck_assert_uint_eq(p[-1], MARK);
	free(p - 1);
}

static void one_length(size_t n, enum text_bulk how)
{
	unsigned char *plain = room(n), *back = room(n / 3 * 3);
	char *coded = (char *)room(n / 3 * 4), *want = (char *)room(n / 3 * 4 + 8);
	fill(plain, n, (uint32_t)n * 7 + 1);
	size_t groups = reference(want, plain, n), done = text_bulk_encode(how, coded, plain, n);
	if (how == TEXT_BULK_AVX2)
		ck_assert_uint_le(done, groups);
	else
		ck_assert_uint_eq(done, groups);
	ck_assert_int_eq(memcmp(coded, want, done * 4), 0);
	done = text_bulk_decode(how, back, want, groups * 4);
	if (how == TEXT_BULK_AVX2)
		ck_assert_uint_le(done, groups);
	else
		ck_assert_uint_eq(done, groups);
	ck_assert_int_eq(memcmp(back, plain, done * 3), 0);
	drop(plain);
	drop(back);
	drop((unsigned char *)coded);
	drop((unsigned char *)want);
}

START_TEST(every_length_is_libb64s)
{
	for (size_t n = 0; n <= LENGTHS; n++)
		one_length(n, ways[_i]);
}
END_TEST

// Where the processor has it, it does nearly all: a path that is never taken would prove nothing.
START_TEST(avx2_is_taken)
{
#ifdef __x86_64__
	unsigned char plain[960];
	char coded[1280];
	fill(plain, sizeof plain, 3);
	size_t done = text_bulk_encode(TEXT_BULK_AVX2, coded, plain, sizeof plain);
	ck_assert_uint_eq(done > 300, __builtin_cpu_supports("avx2") != 0);
#endif
}
END_TEST

// Each byte that is none of the alphabet, at each place of a step and of the words behind it.
START_TEST(stops_before_what_is_none)
{
	enum { N = 160 };
	static const char set[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	unsigned char plain[N / 4 * 3], back[N / 4 * 3];
	char coded[N + 8];
	fill(plain, sizeof plain, 11);
	reference(coded, plain, sizeof plain);
	for (size_t at = 0; at < N; at++) {
		char old = coded[at];
		for (int c = 0; c < 256; c++) {
			bool good = c != 0 && strchr(set, c) != NULL;
			coded[at] = (char)c;
			size_t done = text_bulk_decode(ways[_i], back, coded, N);
			ck_assert_msg(good || done <= at / 4, "0x%02x at %zu: %zu groups", (unsigned)c, at, done);
			ck_assert(!good || ways[_i] == TEXT_BULK_AVX2 || done == N / 4);
		}
		coded[at] = old;
	}
}
END_TEST

Suite *text_bulk_suite(void)
{
	Suite *s = suite_create("text_bulk");
	TCase *tc = tcase_create("bulk");
	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, every_length_is_libb64s, 0, sizeof ways / sizeof *ways);
	tcase_add_loop_test(tc, stops_before_what_is_none, 0, sizeof ways / sizeof *ways);
	tcase_add_test(tc, avx2_is_taken);
	suite_add_tcase(s, tc);
	return s;
}
