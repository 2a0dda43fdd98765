// SPDX-License-Identifier: Apache-2.0
#include "feed.h"
#include "oom.h"
#include "proto/gzip.h"
#include "suites.h"

#include <stdlib.h>
#include <zlib.h>

static void put_member(struct buf *b, const char *p, size_t n)
{
	static unsigned char out[256 * 1024];
	z_stream z = {.zalloc = NULL};
	ck_assert_int_eq(deflateInit2(&z, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = (Bytef *)(uintptr_t)p;
	z.avail_in = (uInt)n;
	z.next_out = out;
	z.avail_out = sizeof(out);
	ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
	buf_append(b, out, z.total_out);
	deflateEnd(&z);
}

struct inflating {
	struct gunzip *g;
	struct buf out;
	size_t room; // a call
};

static int take(void *arg, const unsigned char *p, size_t n)
{
	struct inflating *i = arg;
	for (size_t at = 0;;) {
		size_t used, before = buf_len(&i->out);
		int rc = gunzip_feed(i->g, p + at, n - at, &used, &i->out, i->room);
		if (rc < 0)
			return rc;
		at += used;
		if (buf_len(&i->out) - before > i->room)
			return 1; // more than it was allowed
		if (buf_len(&i->out) - before < i->room)
			return at == n ? 0 : 2;
	}
}

// 0 or a negative errno; the caller calls done().
static int inflate_body(struct inflating *i, const struct buf *body, size_t chunk, size_t room)
{
	*i = (struct inflating){.g = gunzip_new(), .room = room};
	buf_init(&i->out, 0);
	if (!i->g)
		return -ENOMEM;
	int rc = feed(buf_data(body), buf_len(body), chunk, take, i);
	return rc ? rc : gunzip_end(i->g);
}

static void done(struct inflating *i)
{
	gunzip_free(i->g);
	buf_release(&i->out);
}

static const size_t rooms[] = {1, 2, 7, 100, 100000};
enum { ROOMS = sizeof(rooms) / sizeof(rooms[0]) };

START_TEST(members_are_one)
{
	struct inflating i;
	struct buf b;
	buf_init(&b, 0);
	put_member(&b, "hello ", 6);
	put_member(&b, "", 0);
	put_member(&b, "world, world, world, world", 26);
	ck_assert_int_eq(inflate_body(&i, &b, (size_t)(_i % FEED_SIZES), rooms[_i / FEED_SIZES]), 0);
	ck_assert_str_eq(buf_cstr(&i.out), "hello world, world, world, world");
	done(&i);
	buf_release(&b);
}
END_TEST

START_TEST(every_cut_is_told)
{
	struct buf b;
	struct err e;
	buf_init(&b, 0);
	put_member(&b, "hello world, world", 18);
	for (size_t n = buf_len(&b); n-- > 0;) {
		struct inflating i;
		buf_truncate(&b, n);
		int rc = inflate_body(&i, &b, (size_t)_i, 10000);
		ck_assert_int_eq(rc, n < 10 ? -EINVAL : -EBADMSG);
		done(&i);
		struct buf out;
		buf_init(&out, 0);
		buf_str(&out, "x");
		ck_assert_int_eq(gunzip_all(&out, buf_data(&b), n, 1000, &e), n > 0 ? -1 : 0);
		ck_assert_uint_eq(buf_len(&out), 1);
		ck_assert(n == 0 || e.code == ERR_INVALID_ARGUMENT);
		buf_release(&out);
	}
	buf_release(&b);
}
END_TEST

static const struct damage {
	size_t at; // from the end if it is negative
	int rc;
} damages[] = {
	{0, -EINVAL}, {1, -EINVAL}, {2, -EINVAL}, {12, -EBADMSG}, {(size_t)-1, -EBADMSG}, {(size_t)-5, -EBADMSG}};

START_TEST(damage_is_told)
{
	const struct damage *d = &damages[_i / FEED_SIZES];
	struct inflating i;
	struct buf b, bad;
	buf_init(&b, 0);
	buf_init(&bad, 0);
	put_member(&b, "hello world, world", 18);
	size_t at = d->at < 100 ? d->at : buf_len(&b) + d->at;
	for (size_t k = 0; k < buf_len(&b); k++)
		buf_byte(&bad, (unsigned char)(buf_data(&b)[k] ^ (k == at ? 0xff : 0)));
	ck_assert_int_eq(inflate_body(&i, &bad, (size_t)(_i % FEED_SIZES), 10000), d->rc);
	size_t used;
	ck_assert_int_eq(gunzip_feed(i.g, buf_data(&b), buf_len(&b), &used, &i.out, 10), d->rc);
	done(&i);
	buf_release(&bad);
	buf_release(&b);
}
END_TEST

START_TEST(garbage_behind_is_told)
{
	struct inflating i;
	struct buf b;
	buf_init(&b, 0);
	put_member(&b, "hello", 5);
	BUF_LIT(&b, "\0");
	ck_assert_int_eq(inflate_body(&i, &b, (size_t)_i, 10000), -EINVAL);
	done(&i);
	buf_reset(&b);
	put_member(&b, "hello", 5);
	BUF_LIT(&b, "garbage");
	ck_assert_int_eq(inflate_body(&i, &b, (size_t)_i, 10000), -EINVAL);
	done(&i);
	buf_release(&b);
}
END_TEST

START_TEST(a_bomb_is_bounded)
{
	enum { BIG = 4 * 1024 * 1024 };
	char *zeros = calloc(1, BIG);
	ck_assert_ptr_nonnull(zeros);
	struct buf b, out;
	struct err e;
	buf_init(&b, 0);
	buf_init(&out, 0);
	put_member(&b, zeros, BIG);
	ck_assert_uint_lt(buf_len(&b), BIG / 500);
	ck_assert_int_eq(gunzip_all(&out, buf_data(&b), buf_len(&b), BIG - 1, &e), -1);
	ck_assert_int_eq(e.code, ERR_RESOURCE_EXHAUSTED);
	ck_assert_str_eq(e.msg, "message size is larger than configured max 4194303");
	ck_assert_uint_eq(buf_len(&out), 0);
	ck_assert_int_eq(gunzip_all(&out, buf_data(&b), buf_len(&b), BIG, &e), 0);
	ck_assert_uint_eq(buf_len(&out), BIG);
	ck_assert_mem_eq(buf_data(&out), zeros, BIG);
	buf_release(&out);
	buf_init(&out, 100);
	ck_assert_int_eq(gunzip_all(&out, buf_data(&b), buf_len(&b), 1000, &e), -1);
	ck_assert_int_eq(e.code, ERR_RESOURCE_EXHAUSTED);
	buf_release(&out);
	buf_release(&b);
	free(zeros);
}
END_TEST

static int run(void *arg)
{
	struct inflating i;
	int rc = inflate_body(&i, arg, 5, 10);
	if (rc == 0 && (buf_len(&i.out) != 18 || memcmp(buf_data(&i.out), "hello world, world", 18) != 0))
		rc = 1;
	done(&i);
	return rc;
}

START_TEST(out_of_memory)
{
	struct buf b;
	buf_init(&b, 0);
	put_member(&b, "hello world, world", 18);
	OOM_LOOP(run, &b);
	buf_release(&b);
}
END_TEST

Suite *gzip_suite(void)
{
	Suite *s = suite_create("gzip");
	TCase *tc = tcase_create("inflate");
	tcase_add_loop_test(tc, members_are_one, 0, FEED_SIZES * ROOMS);
	tcase_add_loop_test(tc, every_cut_is_told, 0, FEED_SIZES);
	tcase_add_loop_test(tc, damage_is_told, 0, FEED_SIZES * (int)(sizeof(damages) / sizeof(damages[0])));
	tcase_add_loop_test(tc, garbage_behind_is_told, 0, FEED_SIZES);
	tcase_add_test(tc, a_bomb_is_bounded);
	tcase_add_test(tc, out_of_memory);
	tcase_set_timeout(tc, 30);
	suite_add_tcase(s, tc);
	return s;
}
