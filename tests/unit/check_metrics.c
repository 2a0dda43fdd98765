// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics.h"
#include "suites.h"

#include <ctype.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool ends_with(const char *s, const char *end)
{
	size_t n = strlen(s), m = strlen(end);
	return n >= m && strcmp(s + n - m, end) == 0;
}

// What Prometheus' own rules ask of names: a prefix, base units, _total for what only rises.
START_TEST(name_breaks_the_rules)
{
	for (int i = 0; i < METRICS_COUNT; i++) {
		const struct metrics_info *m = metrics_info((enum metrics_family)i);
		bool counter = strcmp(m->type, "counter") == 0;
		ck_assert_msg(strncmp(m->name, "celld_", 6) == 0, "%s", m->name);
		for (const char *p = m->name; *p; p++)
			ck_assert_msg(islower((unsigned char)*p) || *p == '_', "%s", m->name);
		ck_assert_msg(ends_with(m->name, "_total") == counter, "%s", m->name);
		ck_assert(counter || strcmp(m->type, "gauge") == 0 || strcmp(m->type, "histogram") == 0);
		ck_assert_msg(!strstr(m->name, "_ms") && !strstr(m->name, "_kb"), "%s", m->name);
		ck_assert_msg(ends_with(m->help, ".") && !strpbrk(m->help, "\n\\"), "%s", m->name);
		for (int j = 0; j < i; j++)
			ck_assert_str_ne(m->name, metrics_info((enum metrics_family)j)->name);
	}
}
END_TEST

START_TEST(bucket_is_the_wrong_one)
{
	struct metrics_histogram h = {0};
	int64_t sum = 0;
	for (size_t i = 0; i < METRICS_BUCKETS; i++) {
		int64_t bound = metrics_bound(i);
		ck_assert(i == 0 || bound > metrics_bound(i - 1));
		metrics_observe(&h, bound);
		ck_assert_uint_eq(h.bucket[i], i ? 2 : 1); // "le": the bound itself is within
		metrics_observe(&h, bound + 1);
		ck_assert_uint_eq(h.bucket[i + 1], 1);
		sum += 2 * bound + 1;
	}
	ck_assert_uint_eq(h.sum_ns, (uint64_t)sum);
	metrics_observe(&h, INT64_C(5000000000));
	ck_assert_uint_eq(h.bucket[METRICS_BUCKETS], 2);
	metrics_observe(&h, -1); // the clock was set back
	ck_assert_uint_eq(h.bucket[0], 2);
	ck_assert_uint_eq(h.sum_ns, (uint64_t)sum + UINT64_C(5000000000));
}
END_TEST

START_TEST(counts_die_with_their_process)
{
	int status;
	struct metrics *m = metrics_new();
	ck_assert_ptr_nonnull(m);
	ck_assert_int_gt(m->since_ms, 0);
	ck_assert_uint_eq(m->started[METRICS_EXEC], 0);
	pid_t pid = fork();
	if (pid == 0) {
		m->started[METRICS_EXEC]++;
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_uint_eq(m->started[METRICS_EXEC], 1);
	metrics_free(m);
	metrics_free(NULL);
}
END_TEST

START_TEST(descriptor_is_not_counted)
{
	struct metrics_self before, after;
	metrics_self(&before);
	int fd = open("/dev/null", O_RDONLY);
	metrics_self(&after);
	ck_assert_uint_eq(after.fds, before.fds + 1);
	ck_assert_int_eq(close(fd), 0);
	metrics_self(&after);
	ck_assert_uint_eq(after.fds, before.fds);
	ck_assert_uint_gt(after.fds_max, after.fds);
	ck_assert_uint_gt(after.rss, 100000);
	ck_assert_uint_ge(after.cpu_ns, before.cpu_ns);
}
END_TEST

Suite *metrics_suite(void)
{
	Suite *s = suite_create("metrics");
	TCase *t = tcase_create("metrics");
	tcase_add_test(t, name_breaks_the_rules);
	tcase_add_test(t, bucket_is_the_wrong_one);
	tcase_add_test(t, counts_die_with_their_process);
	tcase_add_test(t, descriptor_is_not_counted);
	suite_add_tcase(s, t);
	return s;
}
