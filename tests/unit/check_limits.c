// SPDX-License-Identifier: Apache-2.0
#include "daemon/limits.h"
#include "suites.h"

#include <errno.h>
#include <string.h>

START_TEST(every_resource_has_a_name)
{
	static const char *const all[] = {"as", "core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice",
		"nofile", "nproc", "rss", "rtprio", "rttime", "sigpending", "stack"};
	unsigned seen = 0;
	for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
		int r = limits_find(all[i], strlen(all[i]));
		ck_assert_int_ge(r, 0);
		ck_assert_str_eq(limits_name(r), all[i]);
		seen |= 1u << r;
	}
	ck_assert_uint_eq(seen, (1u << LIMITS_COUNT) - 1);
	ck_assert_int_eq(limits_find("nofile", 6), RLIMIT_NOFILE);
	ck_assert_int_eq(limits_find("as", 2), RLIMIT_AS);
}
END_TEST

START_TEST(what_is_no_resource)
{
	ck_assert_int_eq(limits_find("", 0), -EINVAL);
	ck_assert_int_eq(limits_find("nofil", 5), -EINVAL);
	ck_assert_int_eq(limits_find("nofiles", 7), -EINVAL);
	ck_assert_int_eq(limits_find("NOFILE", 6), -EINVAL);
	ck_assert_int_eq(limits_find("nofile\0x", 8), -EINVAL);
	ck_assert_ptr_null(limits_name(-1));
	ck_assert_ptr_null(limits_name(LIMITS_COUNT));
	struct limits l = {0};
	ck_assert_int_eq(limits_put(&l, LIMITS_COUNT, 1, 1), -EINVAL);
	ck_assert_int_eq(limits_put(&l, -EINVAL, 1, 1), -EINVAL);
	ck_assert_int_eq(limits_put(&l, RLIMIT_CPU, 2, 1), -EINVAL);
	ck_assert_int_eq(limits_put(&l, RLIMIT_CPU, RLIM_INFINITY, 1), -EINVAL);
	ck_assert_uint_eq(l.set, 0);
}
END_TEST

static const struct {
	const char *text;
	int resource;
	uint64_t soft, hard;
} good[] = {
	{"nofile=64", RLIMIT_NOFILE, 64, 64},
	{"nofile=64:128", RLIMIT_NOFILE, 64, 128},
	{"core=0", RLIMIT_CORE, 0, 0},
	{"core=0:unlimited", RLIMIT_CORE, 0, RLIM_INFINITY},
	{"as=unlimited", RLIMIT_AS, RLIM_INFINITY, RLIM_INFINITY},
	{"as=1K:2m", RLIMIT_AS, 1024, 2 << 20},
	{"fsize=3G", RLIMIT_FSIZE, 3LL << 30, 3LL << 30},
	{"rss=9223372036854775807", RLIMIT_RSS, INT64_MAX, INT64_MAX},
};

START_TEST(texts_that_are_limits)
{
	struct limits l = {0};
	ck_assert_int_eq(limits_parse(&l, good[_i].text), 0);
	ck_assert_uint_eq(l.set, 1u << good[_i].resource);
	ck_assert_uint_eq(l.value[good[_i].resource].rlim_cur, good[_i].soft);
	ck_assert_uint_eq(l.value[good[_i].resource].rlim_max, good[_i].hard);
}
END_TEST

static const char *const bad[] = {"", "=", "nofile", "nofile=", "=1", "nofile=:", "nofile=1:", "nofile=:1",
	"nofile=2:1", "nofile=unlimited:1", "nofile=1:2:3", "nofile= 1", "nofile=1 ", "nofile=-1", "nofile=+1",
	"nofile=0x1", "nofile=1T", "nofile=1KB", "nofile=Unlimited", "nofile=unlimitedK", "nofile=9223372036854775808",
	"nofile=9007199254740992K", "nofile=00000000000000000000000000000001", "files=1", " nofile=1", "nofile=1=1"};

START_TEST(texts_that_are_none)
{
	struct limits l = {0};
	ck_assert_int_eq(limits_parse(&l, bad[_i]), -EINVAL);
	ck_assert_uint_eq(l.set, 0);
}
END_TEST

START_TEST(one_set_over_another)
{
	struct limits l = {0}, top = {0};
	ck_assert_int_eq(limits_parse(&l, "nofile=64"), 0);
	ck_assert_int_eq(limits_parse(&l, "cpu=5"), 0);
	ck_assert_int_eq(limits_parse(&l, "cpu=6:9"), 0); // the later one counts
	ck_assert_int_eq(limits_parse(&top, "nofile=32:33"), 0);
	ck_assert_int_eq(limits_parse(&top, "core=1"), 0);
	limits_over(&l, &top);
	ck_assert_uint_eq(l.set, 1u << RLIMIT_NOFILE | 1u << RLIMIT_CPU | 1u << RLIMIT_CORE);
	ck_assert_uint_eq(l.value[RLIMIT_NOFILE].rlim_cur, 32);
	ck_assert_uint_eq(l.value[RLIMIT_NOFILE].rlim_max, 33);
	ck_assert_uint_eq(l.value[RLIMIT_CPU].rlim_cur, 6);
	ck_assert_uint_eq(l.value[RLIMIT_CPU].rlim_max, 9);
	ck_assert_uint_eq(l.value[RLIMIT_CORE].rlim_cur, 1);
}
END_TEST

Suite *limits_suite(void)
{
	Suite *s = suite_create("limits");
	TCase *t = tcase_create("names");
	tcase_add_test(t, every_resource_has_a_name);
	tcase_add_test(t, what_is_no_resource);
	suite_add_tcase(s, t);
	t = tcase_create("texts");
	tcase_add_loop_test(t, texts_that_are_limits, 0, sizeof good / sizeof *good);
	tcase_add_loop_test(t, texts_that_are_none, 0, sizeof bad / sizeof *bad);
	tcase_add_test(t, one_set_over_another);
	suite_add_tcase(s, t);
	return s;
}
