// SPDX-License-Identifier: Apache-2.0
#include "oom.h"
#include "proto/sign.h"
#include "suites.h"

#include <errno.h>
#include <string.h>

#define TOKEN "golden-token-1"

static struct sign_url url(const char *path, const char *operation, const char *user)
{
	return (struct sign_url){path, strlen(path), operation, user, strlen(user), false, 0};
}

// Made by the daemon that this one replaces, with the token above.
static const struct vector {
	const char *path, *operation, *user;
	bool expires;
	int64_t expiration;
	const char *signature;
} vectors[] = {
	{"g/s.txt", "read", "", false, 0, "v1_vOfuJRl+lPgrUfO5NRqcZi0mkx2XqNAKgPHBvyZmk/8"},
	{"g/s.txt", "read", "user", false, 0, "v1_HYH0HG14Yx7WqqS0+0Jojugc7rexyyR4phZSMv7TuPc"},
	{"g/s.txt", "read", "", true, 1000, "v1_RIGJOoSMIELX6nfoEJcNv8s4L/qe34LQSQWZi92FHmY"},
	{"g/none", "read", "", false, 0, "v1_yHQ4//DuPTP2LmC3R4mhqaOhYd5Lf2H60A1pvh7El9I"},
	{"g/w.txt", "write", "", false, 0, "v1_xjQjzxjamWDON98igRUDjoS4/tvx9v9Wema1WO+slLk"},
};
enum { VECTORS = sizeof(vectors) / sizeof(vectors[0]) };

START_TEST(recorded_signatures)
{
	const struct vector *v = &vectors[_i];
	struct sign_url u = url(v->path, v->operation, v->user);
	u.expires = v->expires;
	u.expiration = v->expiration;
	struct buf b;
	buf_init(&b, 0);
	buf_str(&b, "=");
	sign_make(&b, &u, TOKEN, strlen(TOKEN));
	ck_assert_str_eq(buf_cstr(&b) + 1, v->signature);
	ck_assert_uint_eq(buf_len(&b), 1 + SIGN_LEN);
	for (int i = 0; i < VECTORS; i++)
		ck_assert_int_eq(sign_check(&u, TOKEN, strlen(TOKEN), vectors[i].signature, SIGN_LEN), i == _i);
	buf_release(&b);
}
END_TEST

START_TEST(anything_else_is_wrong)
{
	const char *right = vectors[0].signature;
	struct sign_url u = url("g/s.txt", "read", "");
	char text[SIGN_LEN + 2];
	for (size_t i = 0; i < SIGN_LEN; i++) {
		memcpy(text, right, SIGN_LEN + 1);
		text[i] = text[i] == 'A' ? 'B' : 'A';
		ck_assert_int_eq(sign_check(&u, TOKEN, strlen(TOKEN), text, SIGN_LEN), 0);
		ck_assert_int_eq(sign_check(&u, TOKEN, strlen(TOKEN), right, i), 0);
	}
	memcpy(text, right, SIGN_LEN);
	text[SIGN_LEN] = '=';
	ck_assert_int_eq(sign_check(&u, TOKEN, strlen(TOKEN), text, SIGN_LEN + 1), 0);
	ck_assert_int_eq(sign_check(&u, TOKEN, strlen(TOKEN), right, SIGN_LEN), 1);
	ck_assert_int_eq(sign_check(&u, TOKEN, strlen(TOKEN) - 1, right, SIGN_LEN), 0);
	ck_assert_int_eq(sign_check(&u, "", 0, right, SIGN_LEN), 0);
	u.expires = true;
	ck_assert_int_eq(sign_check(&u, TOKEN, strlen(TOKEN), right, SIGN_LEN), 0);
	u = url("g/s.txt", "write", "");
	ck_assert_int_eq(sign_check(&u, TOKEN, strlen(TOKEN), right, SIGN_LEN), 0);
}
END_TEST

// A minus sign is part of the text that is signed, and a NUL in the path does not end it.
START_TEST(every_byte_counts)
{
	struct sign_url u = url("p", "read", ""), v = u;
	struct buf a, b;
	buf_init(&a, 0);
	buf_init(&b, 0);
	u.expires = v.expires = true;
	u.expiration = 5;
	v.expiration = -5;
	sign_make(&a, &u, TOKEN, strlen(TOKEN));
	sign_make(&b, &v, TOKEN, strlen(TOKEN));
	ck_assert_str_ne(buf_cstr(&a), buf_cstr(&b));
	v = u;
	v.path = "p\0x";
	v.path_n = 3;
	buf_reset(&b);
	sign_make(&b, &v, TOKEN, strlen(TOKEN));
	ck_assert_str_ne(buf_cstr(&a), buf_cstr(&b));
	buf_release(&a);
	buf_release(&b);
}
END_TEST

static int run(void *arg)
{
	(void)arg;
	struct sign_url u = url("g/s.txt", "read", "");
	int rc = sign_check(&u, TOKEN, strlen(TOKEN), vectors[0].signature, SIGN_LEN);
	return rc == 1 ? 0 : rc == 0 ? 1 : rc;
}

START_TEST(out_of_memory)
{
	OOM_LOOP(run, NULL);
}
END_TEST

Suite *sign_suite(void)
{
	Suite *s = suite_create("sign");
	TCase *tc = tcase_create("sign");
	tcase_add_loop_test(tc, recorded_signatures, 0, VECTORS);
	tcase_add_test(tc, anything_else_is_wrong);
	tcase_add_test(tc, every_byte_counts);
	tcase_add_test(tc, out_of_memory);
	suite_add_tcase(s, tc);
	return s;
}
