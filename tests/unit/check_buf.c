// SPDX-License-Identifier: Apache-2.0
#include "oom.h"
#include "proto/buf.h"
#include "suites.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HOLDS(b, text) SAME((b), (text), strlen(text))
#define SAME(b, p, n)                                               \
	do {                                                        \
		ck_assert_uint_eq(buf_len(b), (n));                 \
		ck_assert_int_eq(memcmp(buf_data(b), (p), (n)), 0); \
	} while (0)

START_TEST(empty_and_zeroed)
{
	struct buf made, zeroed = {0};
	buf_init(&made, 10);
	struct buf *both[] = {&made, &zeroed};
	for (size_t i = 0; i < 2; i++) {
		struct buf *b = both[i];
		ck_assert_uint_eq(buf_len(b), 0);
		ck_assert_ptr_nonnull(buf_data(b));
		ck_assert_int_eq(buf_failed(b), 0);
		buf_append(b, NULL, 0);
		buf_consume(b, 0);
		buf_truncate(b, 0);
		buf_commit(b, 0);
		buf_shrink(b, 0);
		buf_reset(b);
		ck_assert_ptr_nonnull(buf_data(b));
		buf_str(b, "abc");
		HOLDS(b, "abc");
		buf_release(b);
		ck_assert_uint_eq(buf_len(b), 0);
		buf_release(b);
	}
	buf_release(NULL);
}
END_TEST

START_TEST(appends)
{
	struct buf b;
	buf_init(&b, 0);
	buf_append(&b, "a\0b", 3);
	buf_byte(&b, 0xff);
	buf_str(&b, "str");
	BUF_LIT(&b, "l\0t");
	buf_str(&b, "");
	SAME(&b, "a\0b\xffstrl\0t", 10);
	buf_release(&b);
}
END_TEST

START_TEST(numbers)
{
	struct buf b = {0};
	buf_u64(&b, 0);
	buf_byte(&b, ' ');
	buf_u64(&b, UINT64_MAX);
	buf_byte(&b, ' ');
	buf_i64(&b, INT64_MIN);
	buf_byte(&b, ' ');
	buf_i64(&b, INT64_MAX);
	buf_byte(&b, ' ');
	buf_i64(&b, -10);
	HOLDS(&b, "0 18446744073709551615 -9223372036854775808 9223372036854775807 -10");
	buf_release(&b);
}
END_TEST

// Texts of every length around the free room: both what fits in place and what has to grow.
START_TEST(printf_at_every_length)
{
	char text[300];
	memset(text, 'x', sizeof(text));
	for (int n = 0; n < 290; n++) {
		struct buf b = {0};
		buf_printf(&b, "%.*s|%d", n, text, n);
		buf_printf(&b, "%s", "tail");
		char want[320];
		int len = snprintf(want, sizeof(want), "%.*s|%dtail", n, text, n);
		SAME(&b, want, (size_t)len);
		buf_release(&b);
	}
}
END_TEST

START_TEST(printf_limits)
{
	struct buf b;
	buf_init(&b, 5);
	buf_printf(&b, "%d", 12345);
	HOLDS(&b, "12345");
	ck_assert_int_eq(buf_failed(&b), 0);
	buf_printf(&b, "%s", "");
	ck_assert_int_eq(buf_failed(&b), 0);
	buf_truncate(&b, 4);
	buf_printf(&b, "%s", "67"); // fits the allocation, not the limit
	ck_assert_int_eq(buf_failed(&b), -EMSGSIZE);
	HOLDS(&b, "1234");
	buf_release(&b);
	buf_printf(&b, "%*d", 20000000, 1);
	ck_assert_int_eq(buf_failed(&b), -EMSGSIZE);
	ck_assert_uint_eq(buf_len(&b), 0);
	buf_release(&b);
}
END_TEST

START_TEST(limit_is_sticky)
{
	struct buf b;
	buf_init(&b, 4);
	BUF_LIT(&b, "abcd");
	ck_assert_int_eq(buf_failed(&b), 0);
	buf_byte(&b, 'e');
	ck_assert_int_eq(buf_failed(&b), -EMSGSIZE);
	HOLDS(&b, "abcd");
	buf_consume(&b, 4);
	BUF_LIT(&b, "x"); // would fit now, but a piece is missing before it
	buf_u64(&b, 1);
	buf_printf(&b, "%d", 1);
	ck_assert_ptr_null(buf_reserve(&b, 1));
	ck_assert_ptr_null(buf_cstr(&b));
	ck_assert_uint_eq(buf_len(&b), 0);
	ck_assert_int_eq(buf_failed(&b), -EMSGSIZE);
	buf_reset(&b);
	BUF_LIT(&b, "wxyz");
	ck_assert_int_eq(buf_failed(&b), 0);
	HOLDS(&b, "wxyz");
	buf_release(&b);
	buf_append(&b, "12345", 5);
	ck_assert_int_eq(buf_failed(&b), -EMSGSIZE); // release kept the limit
	buf_release(&b);
	ck_assert_int_eq(buf_failed(&b), 0);
}
END_TEST

START_TEST(absurd_sizes)
{
	struct buf b = {0};
	BUF_LIT(&b, "abc");
	size_t sizes[] = {SIZE_MAX, SIZE_MAX - 3, (size_t)PTRDIFF_MAX + 1, PTRDIFF_MAX, PTRDIFF_MAX - 3};
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		ck_assert_ptr_null(buf_reserve(&b, sizes[i]));
		ck_assert_int_eq(buf_failed(&b), -EMSGSIZE);
		HOLDS(&b, "abc");
		b.fail = 0;
	}
	buf_release(&b);
	buf_init(&b, SIZE_MAX);
	BUF_LIT(&b, "abc");
	ck_assert_int_eq(buf_failed(&b), 0);
	HOLDS(&b, "abc");
	buf_release(&b);
}
END_TEST

START_TEST(reserve_and_commit)
{
	struct buf b;
	buf_init(&b, 100);
	unsigned char *p = buf_reserve(&b, 100);
	ck_assert_ptr_nonnull(p);
	memset(p, 'a', 100);
	buf_commit(&b, 3);
	HOLDS(&b, "aaa");
	p = buf_reserve(&b, 97);
	ck_assert_ptr_nonnull(p);
	memset(p, 'b', 97);
	buf_commit(&b, 97);
	ck_assert_uint_eq(buf_len(&b), 100);
	ck_assert_ptr_nonnull(buf_reserve(&b, 0));
	ck_assert_ptr_null(buf_reserve(&b, 1));
	ck_assert_int_eq(buf_failed(&b), -EMSGSIZE);
	buf_release(&b);
}
END_TEST

START_TEST(take)
{
	struct buf b;
	size_t n = 99;
	buf_init(&b, 8);
	char *s = buf_take(&b, &n);
	ck_assert_str_eq(s, "");
	ck_assert_uint_eq(n, 0);
	free(s);
	BUF_LIT(&b, "abcdefgh");
	buf_consume(&b, 2);
	s = buf_take(&b, &n);
	ck_assert_str_eq(s, "cdefgh");
	ck_assert_uint_eq(n, 6);
	free(s);
	ck_assert_uint_eq(buf_len(&b), 0);
	BUF_LIT(&b, "x");
	s = buf_take(&b, NULL);
	ck_assert_str_eq(s, "x");
	free(s);
	BUF_LIT(&b, "123456789");
	ck_assert_int_eq(buf_failed(&b), -EMSGSIZE);
	ck_assert_ptr_null(buf_take(&b, &n));
	ck_assert_uint_eq(n, 0);
	ck_assert_int_eq(buf_failed(&b), 0);
	ck_assert_uint_eq(buf_len(&b), 0);
}
END_TEST

START_TEST(cstr)
{
	struct buf b;
	buf_init(&b, 64); // so that the NUL must go beyond the limit
	ck_assert_str_eq(buf_cstr(&b), "");
	for (size_t i = 1; i <= 64; i++) {
		buf_byte(&b, 'c');
		ck_assert_uint_eq(strlen(buf_cstr(&b)), i);
		ck_assert_uint_eq(buf_len(&b), i);
	}
	buf_consume(&b, 10);
	ck_assert_uint_eq(strlen(buf_cstr(&b)), 54);
	buf_truncate(&b, 5);
	ck_assert_str_eq(buf_cstr(&b), "ccccc");
	buf_release(&b);
}
END_TEST

START_TEST(shrink)
{
	struct buf b = {0};
	ck_assert_ptr_nonnull(buf_reserve(&b, 100000));
	ck_assert_uint_ge(b.cap, 100000);
	BUF_LIT(&b, "abc");
	buf_shrink(&b, 0);
	HOLDS(&b, "abc");
	ck_assert_uint_ge(b.cap, 100000);
	buf_consume(&b, 3);
	buf_shrink(&b, 1000);
	ck_assert_uint_eq(b.cap, 1000);
	for (int i = 0; i < 5000; i++)
		buf_byte(&b, 'x');
	ck_assert_uint_eq(buf_len(&b), 5000);
	buf_reset(&b);
	buf_shrink(&b, 0);
	ck_assert_uint_eq(b.cap, 0);
	ck_assert_ptr_nonnull(buf_data(&b));
	BUF_LIT(&b, "again");
	HOLDS(&b, "again");
	buf_release(&b);
}
END_TEST

// Memory of the caller's is not freed, and is left when it is too small.
START_TEST(first_bytes_elsewhere)
{
	static const char text[] = "0123456789abcdef";
	char room[8];
	for (size_t n = 0; n < sizeof text; n++) {
		struct buf b;
		size_t len;
		memset(room, 'x', sizeof room);
		buf_init_in(&b, room, sizeof room);
		buf_shrink(&b, 0);
		for (size_t i = 0; i < n; i++)
			buf_byte(&b, (unsigned char)text[i]);
		SAME(&b, text, n);
		ck_assert_int_eq(buf_data(&b) == (unsigned char *)room, n < sizeof room);
		ck_assert_int_eq(strncmp(buf_cstr(&b), text, n), 0);
		if (n > 2) {
			buf_consume(&b, 2);
			buf_append(&b, text, 2);
			ck_assert_uint_eq(buf_len(&b), n);
		}
		char *taken = buf_take(&b, &len);
		ck_assert_ptr_nonnull(taken);
		ck_assert_uint_eq(strlen(taken), n);
		ck_assert_uint_eq(len, n);
		free(taken);
		buf_init_in(&b, room, sizeof room);
		buf_append(&b, text, n);
		buf_release(&b);
		buf_str(&b, "as new");
		HOLDS(&b, "as new");
		buf_release(&b);
	}
}
END_TEST

static int grow_elsewhere(void *arg)
{
	char room[8];
	struct buf b;
	buf_init_in(&b, room, sizeof room);
	buf_str(&b, "1234567");
	bool right = !buf_failed(&b);
	buf_str(&b, arg);
	int rc = buf_failed(&b);
	right = right && buf_len(&b) == (rc < 0 ? 7 : 11) && memcmp(buf_data(&b), "1234567more", buf_len(&b)) == 0;
	char *taken = buf_take(&b, NULL);
	right = right && (taken == NULL) == (rc < 0);
	free(taken);
	return right ? rc : 1;
}

START_TEST(first_bytes_elsewhere_out_of_memory)
{
	char more[] = "more";
	OOM_LOOP(grow_elsewhere, more);
}
END_TEST

START_TEST(growth_doubles_up_to_the_limit)
{
	const size_t max = 1000000;
	struct buf b;
	buf_init(&b, max);
	oom_fail_at(-1);
	for (size_t i = 0; i < max; i++)
		buf_byte(&b, (unsigned char)i);
	long count = oom_count();
	oom_off();
	ck_assert_int_eq(buf_failed(&b), 0);
	ck_assert_uint_eq(buf_len(&b), max);
	ck_assert_int_le(count, 20);
	ck_assert_uint_le(b.cap, max + max / 8 + 1);
	buf_release(&b);
}
END_TEST

// A full buffer that gives one byte and takes one: moving its megabyte each time would take hours.
START_TEST(consume_is_amortised)
{
	const size_t max = 1 << 20, rounds = 1 << 20;
	struct buf b;
	buf_init(&b, max);
	ck_assert_ptr_nonnull(buf_reserve(&b, max));
	memset(buf_reserve(&b, max), 'x', max);
	buf_commit(&b, max);
	for (size_t i = 0; i < rounds; i++) {
		buf_consume(&b, 1);
		buf_byte(&b, (unsigned char)i);
	}
	ck_assert_int_eq(buf_failed(&b), 0);
	ck_assert_uint_eq(buf_len(&b), max);
	ck_assert_uint_le(b.cap, max + max / 8 + 1);
	for (size_t i = 0; i < max; i++)
		if (buf_data(&b)[i] != (unsigned char)i)
			ck_abort_msg("byte %zu is wrong", i);
	buf_release(&b);
}
END_TEST

// Memory follows what is in the buffer, not what went through it.
START_TEST(sliding_does_not_grow)
{
	struct buf b = {0};
	unsigned char piece[100] = {0};
	for (int i = 0; i < 10; i++)
		buf_append(&b, piece, sizeof(piece));
	for (int i = 0; i < 100000; i++) {
		buf_append(&b, piece, sizeof(piece));
		buf_consume(&b, sizeof(piece));
	}
	ck_assert_uint_eq(buf_len(&b), 1000);
	ck_assert_uint_le(b.cap, 8192);
	buf_release(&b);
}
END_TEST

// Random operations against plain memory; each of the loop's seeds has another limit.
struct model {
	unsigned char bytes[4096];
	size_t len;
};

static void model_step(struct buf *b, struct model *m, unsigned op, size_t n, unsigned char fill)
{
	unsigned char piece[400];
	memset(piece, fill, n);
	if (op < 3) {
		if (op == 0) {
			buf_append(b, piece, n);
		} else if (op == 1) {
			unsigned char *p = buf_reserve(b, n);
			if (p)
				memcpy(p, piece, n);
			buf_commit(b, p ? n : 0);
		} else {
			buf_printf(b, "%.*s", (int)n, (const char *)piece);
		}
		bool fits = n <= b->max - m->len;
		if (buf_failed(b) != (fits ? 0 : -EMSGSIZE))
			ck_abort_msg("failure %d, fits %d", buf_failed(b), fits);
		if (fits) {
			memcpy(m->bytes + m->len, piece, n);
			m->len += n;
		} else {
			SAME(b, m->bytes, m->len);
			buf_reset(b);
			m->len = 0;
		}
	} else if (op == 3) {
		n = n < m->len ? n : m->len;
		buf_truncate(b, m->len - n);
		m->len -= n;
	} else {
		n = n < m->len ? n : m->len;
		buf_consume(b, n);
		m->len -= n;
		memmove(m->bytes, m->bytes + n, m->len);
	}
}

START_TEST(against_a_model)
{
	static const size_t limits[] = {1, 2, 63, 64, 65, 127, 400, 1000, 4096};
	struct buf b;
	struct model m = {.len = 0};
	uint32_t seed = (uint32_t)_i + 1;
	buf_init(&b, limits[_i]);
	for (int round = 0; round < 20000; round++) {
		seed = seed * 1664525 + 1013904223;
		size_t most = limits[_i] < 400 ? limits[_i] : 400;
		model_step(&b, &m, (seed >> 28) % 6, (seed >> 10) % (most + 1), (unsigned char)('a' + seed % 26));
		// One condition, as each passing ck_assert costs a message to Check's parent.
		if (buf_len(&b) != m.len || memcmp(buf_data(&b), m.bytes, m.len) != 0 ||
			b.cap > limits[_i] + limits[_i] / 8 + 1)
			ck_abort_msg("round %d: %zu bytes instead of %zu, or others", round, buf_len(&b), m.len);
	}
	buf_release(&b);
}
END_TEST

START_TEST(append_of_its_own_bytes)
{
	struct buf b = {0};
	BUF_LIT(&b, "abc");
	buf_append(&b, buf_data(&b), 3);
}
END_TEST

START_TEST(consume_too_much)
{
	struct buf b = {0};
	BUF_LIT(&b, "abc");
	buf_consume(&b, 4);
}
END_TEST

START_TEST(commit_too_much)
{
	struct buf b;
	buf_init(&b, 3);
	ck_assert_ptr_nonnull(buf_reserve(&b, 3));
	buf_commit(&b, 4);
}
END_TEST

// Pieces of growing size through every call that allocates; what was in before a failure stays.
static int work(void *arg)
{
	struct buf b;
	(void)arg;
	buf_init(&b, 0);
	size_t whole = 0;
	for (int i = 0; i < 100 && !buf_failed(&b); i++) {
		whole = buf_len(&b);
		if (i % 4 == 0)
			BUF_LIT(&b, "0123456789");
		else if (i % 4 == 1)
			buf_printf(&b, "%010d", i);
		else if (i % 4 == 2)
			buf_u64(&b, UINT64_C(1234567890));
		else if (buf_reserve(&b, 10))
			memset(buf_reserve(&b, 10), 'r', 10), buf_commit(&b, 10);
	}
	int rc = buf_failed(&b);
	if (rc != 0 && buf_len(&b) != whole)
		rc = 1;
	if (rc == 0 && buf_len(&b) != 1000)
		rc = 2;
	if (whole > 0 && memcmp(buf_data(&b), "0123456789", 10) != 0)
		rc = 3;
	buf_release(&b);
	return rc;
}

static int work_take(void *arg)
{
	struct buf b;
	(void)arg;
	buf_init(&b, 0);
	char *empty = buf_take(&b, NULL);
	buf_str(&b, "text");
	const char *s = buf_cstr(&b);
	int rc = empty && s ? 0 : -ENOMEM;
	if (s && strcmp(s, "text") != 0)
		rc = 1;
	if (!s && buf_failed(&b) != -ENOMEM)
		rc = 2;
	char *taken = buf_take(&b, NULL);
	if ((taken != NULL) != (s != NULL) || buf_failed(&b) || buf_len(&b) != 0)
		rc = 3;
	free(taken);
	free(empty);
	buf_release(&b);
	return rc;
}

START_TEST(out_of_memory)
{
	OOM_LOOP(work, NULL);
	OOM_LOOP(work_take, NULL);
}
END_TEST

START_TEST(shrink_out_of_memory)
{
	struct buf b = {0};
	ck_assert_ptr_nonnull(buf_reserve(&b, 1000));
	oom_fail_at(0);
	buf_shrink(&b, 10);
	oom_off();
	ck_assert(oom_failed());
	ck_assert_int_eq(buf_failed(&b), 0);
	BUF_LIT(&b, "abc");
	HOLDS(&b, "abc");
	buf_release(&b);
}
END_TEST

Suite *buf_suite(void)
{
	Suite *s = suite_create("buf");
	TCase *tc = tcase_create("buf");
	tcase_add_test(tc, empty_and_zeroed);
	tcase_add_test(tc, appends);
	tcase_add_test(tc, numbers);
	tcase_add_test(tc, printf_at_every_length);
	tcase_add_test(tc, printf_limits);
	tcase_add_test(tc, limit_is_sticky);
	tcase_add_test(tc, absurd_sizes);
	tcase_add_test(tc, reserve_and_commit);
	tcase_add_test(tc, take);
	tcase_add_test(tc, cstr);
	tcase_add_test(tc, shrink);
	tcase_add_test(tc, first_bytes_elsewhere);
	tcase_add_test(tc, first_bytes_elsewhere_out_of_memory);
	tcase_add_test(tc, growth_doubles_up_to_the_limit);
	tcase_add_test(tc, consume_is_amortised);
	tcase_add_test(tc, sliding_does_not_grow);
	tcase_add_loop_test(tc, against_a_model, 0, 9);
	tcase_add_test_raise_signal(tc, append_of_its_own_bytes, SIGABRT);
	tcase_add_test_raise_signal(tc, consume_too_much, SIGABRT);
	tcase_add_test_raise_signal(tc, commit_too_much, SIGABRT);
	tcase_add_test(tc, out_of_memory);
	tcase_add_test(tc, shrink_out_of_memory);
	suite_add_tcase(s, tc);
	return s;
}
