// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/env.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static int set(struct env *e, const char *name, const char *value)
{
	return env_set(e, name, strlen(name), value, strlen(value));
}

START_TEST(later_values_win_and_the_order_stays)
{
	struct env e;
	env_init(&e);
	const char *const *list = env_list(&e);
	ck_assert(list && !list[0]);
	env_put(&e, "A", "1");
	env_put(&e, "AB", "2");
	env_put(&e, "B", "");
	ck_assert_int_eq(set(&e, "A", "a=b"), 0);
	ck_assert_int_eq(env_set(&e, "ABCD", 3, "xyz", 2), 0);
	list = env_list(&e);
	ck_assert_str_eq(list[0], "A=a=b");
	ck_assert_str_eq(list[1], "AB=2");
	ck_assert_str_eq(list[2], "B=");
	ck_assert_str_eq(list[3], "ABC=xy");
	ck_assert_ptr_null(list[4]);
	env_release(&e);
	ck_assert(env_list(&e) && !env_list(&e)[0]);
}
END_TEST

START_TEST(bad_names_and_values_set_nothing)
{
	struct env e;
	env_init(&e);
	env_put(&e, "A", "1");
	ck_assert_int_eq(set(&e, "", "x"), -EINVAL);
	ck_assert_int_eq(set(&e, "A=", "x"), -EINVAL);
	ck_assert_int_eq(set(&e, "=", "x"), -EINVAL);
	ck_assert_int_eq(env_set(&e, "A\0B", 3, "x", 1), -EINVAL);
	ck_assert_int_eq(env_set(&e, "A", 1, "x\0y", 3), -EINVAL);
	ck_assert_int_eq(env_set(&e, "A", 1, "\0", 1), -EINVAL);
	const char *const *list = env_list(&e);
	ck_assert_str_eq(list[0], "A=1");
	ck_assert_ptr_null(list[1]);
	env_release(&e);
}
END_TEST

START_TEST(many_names)
{
	struct env e;
	char name[16], line[32];
	env_init(&e);
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 300; i++) {
			snprintf(name, sizeof name, "N%d", i);
			env_put(&e, name, round ? "two" : "one");
			ck_assert_ptr_null(env_list(&e)[round ? 300 : i + 1]);
		}
	}
	for (int i = 0; i < 300; i++) {
		snprintf(line, sizeof line, "N%d=two", i);
		ck_assert_str_eq(env_list(&e)[i], line);
	}
	env_release(&e);
}
END_TEST

// Enough names that the list grows twice, one of them replaced.
static int fill(void *arg)
{
	struct env e;
	char name[16];
	int first = 0;
	(void)arg;
	env_init(&e);
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof name, "N%d", i % 39);
		int rc = set(&e, name, "value");
		first = first ? first : rc;
	}
	const char *const *list = env_list(&e);
	int rc = first == 0 && (!list || !list[38] || list[39]) ? 1 : first;
	if (first && list)
		rc = 2; // memory ran out, and nobody would know
	env_release(&e);
	return rc;
}

START_TEST(out_of_memory_sticks)
{
	OOM_LOOP(fill, NULL);
}
END_TEST

// Each new name is compared with those before it, so their number has an end.
START_TEST(names_without_end_are_refused)
{
	struct env e;
	char name[16];
	int rc = 0, n = 0;
	env_init(&e);
	for (; rc == 0 && n < 100000; n++) {
		snprintf(name, sizeof name, "N%d", n);
		rc = set(&e, name, "");
	}
	ck_assert_int_eq(rc, -E2BIG);
	ck_assert_int_eq(n, 1025);
	const char *const *list = env_list(&e);
	ck_assert_str_eq(list[1023], "N1023=");
	ck_assert_ptr_null(list[1024]);
	env_release(&e);
}
END_TEST

Suite *env_suite(void)
{
	Suite *s = suite_create("env");
	TCase *t = tcase_create("list");
	suite_add_tcase(s, t);
	tcase_add_test(t, later_values_win_and_the_order_stays);
	tcase_add_test(t, bad_names_and_values_set_nothing);
	tcase_add_test(t, many_names);
	tcase_add_test(t, names_without_end_are_refused);
	tcase_add_test(t, out_of_memory_sticks);
	return s;
}
