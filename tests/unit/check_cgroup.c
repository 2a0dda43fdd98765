// SPDX-License-Identifier: Apache-2.0
// Groups over a directory of plain files.
#include "daemon/core/cgroup_priv.h"
#include "daemon/io.h"
#include "groupfake.h"
#include "oom.h"
#include "storekit.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

// --- groups ---

START_TEST(bounds_are_written_and_lifted)
{
	gk_make_group(1);
	struct cgroups *g = gk_opened_with_groups();
	struct cgroup *c = gk_taken(g, &(struct cgroup_bounds){.memory = 64 << 20, .cpus = 0.5, .pids = 20});
	ck_assert_uint_eq(cgroup_number(c), 1);
	GK_IS("commands/1/memory.max", "67108864");
	GK_IS("commands/1/memory.swap.max", "0");
	GK_IS("commands/1/memory.oom.group", "1");
	GK_IS("commands/1/cpu.max", "50000 100000");
	GK_IS("commands/1/pids.max", "20");
	cgroup_release(c);
	GK_IS("commands/1/memory.max", "max");
	GK_IS("commands/1/memory.swap.max", "max");
	GK_IS("commands/1/memory.oom.group", "0");
	GK_IS("commands/1/cpu.max", "max 100000");
	GK_IS("commands/1/pids.max", "max");
	// Nothing is written for one without limits.
	gk_put("commands/1/pids.max", "mine");
	gk_put("commands/1/memory.max", "mine");
	gk_put("commands/1/cpu.max", "mine");
	c = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(c), 1);
	cgroup_release(c);
	GK_IS("commands/1/pids.max", "mine");
	GK_IS("commands/1/memory.max", "mine");
	GK_IS("commands/1/cpu.max", "mine");
	cgroups_free(g);
}
END_TEST

START_TEST(quota_has_bounds)
{
	static const struct {
		double cpus;
		const char *text;
	} rows[] = {
		{0.0001, "1000 100000"}, {0.25, "25000 100000"}, {3, "300000 100000"}, {1e300, "1000000000000 100000"}};
	gk_make_group(1);
	struct cgroups *g = gk_opened_with_groups();
	struct cgroup *c = gk_taken(g, &(struct cgroup_bounds){.cpus = rows[_i].cpus});
	GK_IS("commands/1/cpu.max", rows[_i].text);
	GK_IS("commands/1/memory.max", "max");
	cgroup_release(c);
	GK_IS("commands/1/cpu.max", "max 100000");
	cgroups_free(g);
}
END_TEST

// A kernel without swap, or an old one.
START_TEST(files_that_may_lack)
{
	gk_make_group(1);
	gk_take_away("commands/1/memory.swap.max");
	gk_take_away("commands/1/memory.oom.group");
	struct cgroups *g = gk_opened_with_groups();
	struct cgroup *c = gk_taken(g, &(struct cgroup_bounds){.memory = 1 << 20});
	GK_IS("commands/1/memory.max", "1048576");
	cgroup_release(c);
	GK_IS("commands/1/memory.max", "max");
	cgroups_free(g);
}
END_TEST

START_TEST(killed_for_memory)
{
	gk_make_group(1);
	gk_make_group(2);
	struct cgroups *g = gk_opened_with_groups();
	struct cgroup *c = gk_taken(g, NULL), *other = gk_taken(g, NULL), *third;
	ck_assert(!cgroup_oom(c)); // "oom 3" killed nothing
	char name[64];
	snprintf(name, sizeof name, "commands/%u/memory.events", cgroup_number(c));
	gk_put(name, "low 0\noom 4\noom_kill 2\noom_group_kill 1\n");
	ck_assert(cgroup_oom(c));
	ck_assert(!cgroup_oom(other));
	uint32_t spent = cgroup_number(c);
	cgroup_release(c);
	// The count stays with the group, so nobody else gets it.
	c = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(c), 3);
	ck_assert_int_eq(cgroup_take(g, NULL, &third), 0);
	ck_assert_uint_ne(cgroup_number(third), spent);
	gk_take_away(name);
	ck_assert(!cgroup_oom(other));
	cgroups_free(g);
}
END_TEST

START_TEST(one_with_processes_waits)
{
	gk_make_group(1);
	struct cgroups *g = gk_opened_with_groups();
	struct cgroup *c = gk_taken(g, &(struct cgroup_bounds){.pids = 5});
	gk_put("commands/1/cgroup.events", "populated 1\nfrozen 0\n");
	cgroup_release(c);
	GK_IS("commands/1/pids.max", "5"); // what it has left is kept to it
	gk_make_group(2);
	gk_know(g, 2);
	c = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(c), 2);
	gk_put("commands/1/cgroup.events", "populated 0\nfrozen 0\n");
	struct cgroup *first = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(first), 1);
	GK_IS("commands/1/pids.max", "max");
	cgroups_free(g);
}
END_TEST

// One for whose memory the limit is too low is left alone: the kernel would have to look for what it can free.
START_TEST(used_memory)
{
	struct cgroup *c;
	gk_make_group(1);
	gk_put("commands/1/memory.current", "2000000\n");
	struct cgroups *g = gk_opened_with_groups();
	ck_assert_int_eq(
		cgroup_take(g, &(struct cgroup_bounds){.memory = 1000000}, &c), -ENOENT); // a new one, without files
	GK_IS("commands/1/memory.max", "max");
	c = gk_taken(g, &(struct cgroup_bounds){.memory = 3000000});
	ck_assert_uint_eq(cgroup_number(c), 1);
	cgroups_free(g);
}
END_TEST

// A command that may write its group can leave it so that nothing can be born there.
START_TEST(meddled_with)
{
	static const struct {
		const char *file, *text;
	} rows[] = {{"commands/1/cgroup.events", "populated 0\nfrozen 1\n"}, {"commands/1/sub", NULL}, {NULL, NULL}};
	struct stat st;
	ck_assert_int_eq(stat(gk_base, &st), 0);
	if (rows[_i].file && !rows[_i].text && st.st_nlink < 2)
		return; // this file system does not count directories
	gk_make_group(1);
	struct cgroups *g = gk_opened_with_groups();
	struct cgroup *c = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(c), 1);
	cgroup_release(c);
	ck_assert_uint_eq(g->idle_count, 1);
	c = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(c), 1); // as long as nobody meddled
	if (rows[_i].text)
		gk_put(rows[_i].file, rows[_i].text);
	else if (rows[_i].file)
		gk_make_dir(rows[_i].file);
	else
		cgroup_spend(c); // a start has failed
	cgroup_release(c);
	ck_assert_uint_eq(g->idle_count, 0);
	ck_assert_ptr_null(g->waiting);
	c = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(c), 2);
	cgroups_free(g);
}
END_TEST

START_TEST(kills)
{
	gk_make_group(1);
	struct cgroups *g = gk_opened_with_groups();
	struct cgroup *c = gk_taken(g, NULL);
	GK_IS("commands/1/cgroup.kill", "");
	ck_assert_int_eq(cgroup_kill(c), 0);
	GK_IS("commands/1/cgroup.kill", "1");
	GK_IS("commands/cgroup.kill", "");
	ck_assert_int_eq(cgroups_kill_all(g), 0);
	GK_IS("commands/cgroup.kill", "1");
	cgroup_release(c);
	ck_assert_ptr_null(g->idle); // a killed one is not taken again
	ck_assert_ptr_null(g->waiting);
	c = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(c), 2);
	cgroup_release(c);
	gk_put("commands/1/cgroup.kill", "");
	gk_know(g, 1);
	cgroup_release(gk_taken(g, NULL));
	ck_assert_uint_eq(g->idle_count, 1);
	ck_assert_int_eq(cgroups_kill_all(g), 0);
	ck_assert_uint_eq(g->idle_count, 0);
	c = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(c), 3);
	cgroup_release(c);
	gk_take_away("commands/1/cgroup.kill");
	gk_take_away("commands/cgroup.kill");
	ck_assert_int_eq(cgroup_take_back(g, 1, &c), 0);
	ck_assert_int_eq(cgroup_kill(c), -ENOENT);
	ck_assert_int_eq(cgroups_kill_all(g), -ENOENT);
	ck_assert(cgroups_empty(g));
	gk_put("commands/cgroup.events", "frozen 0\npopulated 1\n");
	ck_assert(!cgroups_empty(g));
	cgroups_free(g);
}
END_TEST

START_TEST(taken_back)
{
	gk_make_group(3);
	gk_make_group(7);
	gk_make_group(8);
	gk_put("commands/8/cgroup.events", "populated 1\n");
	gk_make_dir("commands/0");
	gk_make_dir("commands/x1");
	gk_make_dir("commands/4294967296");
	struct cgroups *g;
	struct cgroup *c, *other;
	char why[64];
	ck_assert_int_eq(cgroups_open(&g, gk_base, "", why, sizeof why), 0);
	ck_assert_int_eq(cgroup_take_back(g, 7, &c), 0);
	ck_assert_uint_eq(cgroup_number(c), 7);
	ck_assert_int_ge(cgroup_fd(c), 0);
	ck_assert_int_eq(cgroup_take_back(g, 7, &other), -ENOENT);
	ck_assert_int_eq(cgroup_take_back(g, 0, &other), -ENOENT);
	ck_assert_int_eq(cgroup_take_back(g, 9, &other), -ENOENT);
	cgroups_settle(g);
	ck_assert_int_eq(cgroup_take_back(g, 8, &other), 0); // which was waiting
	// Nothing that another daemon used is taken again: it may have been killed, or be limited.
	other = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(other), 9);
	ck_assert_ptr_null(g->waiting);
	ck_assert_ptr_null(g->idle);
	cgroup_release(c);
	ck_assert_ptr_null(g->idle);
	cgroups_free(g);
}
END_TEST

START_TEST(few_are_kept)
{
	for (unsigned i = 1; i <= CGROUP_IDLE_MAX + 6; i++)
		gk_make_group(i);
	size_t fds = storekit_fds();
	struct cgroups *g = gk_opened_with_groups();
	while (g->waiting) // some are looked at each time
		cgroup_release(gk_taken(g, NULL));
	ck_assert_uint_eq(g->idle_count, CGROUP_IDLE_MAX);
	ck_assert_uint_eq(storekit_fds(), fds + 2);
	struct cgroup *c[CGROUP_IDLE_MAX];
	for (int i = 0; i < CGROUP_IDLE_MAX; i++)
		c[i] = gk_taken(g, NULL);
	ck_assert_uint_eq(storekit_fds(), fds + 2 + CGROUP_IDLE_MAX);
	for (int i = 0; i < CGROUP_IDLE_MAX; i++)
		cgroup_release(c[i]);
	ck_assert_uint_eq(storekit_fds(), fds + 2);
	ck_assert_uint_eq(g->idle_count, CGROUP_IDLE_MAX);
	cgroups_free(g);
	ck_assert_uint_eq(storekit_fds(), fds);
}
END_TEST

// --- what fails ---

START_TEST(a_limit_that_cannot_be_set)
{
	static const char *const files[] = {"memory.max", "memory.swap.max", "cpu.max", "pids.max"};
	char name[64];
	struct cgroup *c;
	gk_make_group(1);
	snprintf(name, sizeof name, "commands/1/%s", files[_i]);
	gk_take_away(name);
	gk_make_dir(name);
	struct cgroups *g = gk_opened_with_groups();
	const struct cgroup_bounds b = {.memory = 1 << 20, .cpus = 1, .pids = 9};
	c = (struct cgroup *)gk_base;
	ck_assert_int_lt(cgroup_take(g, &b, &c), 0);
	ck_assert_ptr_null(c);
	ck_assert_ptr_null(g->taken);
	ck_assert_ptr_null(g->idle); // not one whose limits are not known to be gone
	gk_take_away(name);
	cgroups_free(g);
}
END_TEST

START_TEST(unreadable)
{
	gk_make_group(1);
	gk_make_group(2);
	gk_make_group(3);
	gk_take_away("commands/1/cgroup.events");
	gk_put("commands/2/cgroup.events", "");
	gk_take_away("commands/3/cgroup.events");
	gk_make_dir("commands/3/cgroup.events");
	struct cgroups *g = gk_opened_with_groups();
	struct cgroup *c = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(c), 4);
	ck_assert_ptr_null(g->idle);
	ck_assert(g->waiting && g->waiting->next && !g->waiting->next->next); // 2 and 3 may be emptied yet
	gk_take_away("commands/3/cgroup.events");
	gk_put("commands/3/cgroup.events", "populated 0\n");
	c = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(c), 3);
	cgroups_free(g);
}
END_TEST

START_TEST(no_name_is_free)
{
	struct cgroup *c;
	char name[32];
	for (int i = 1; i <= 16; i++) {
		snprintf(name, sizeof name, "commands/%d", i);
		gk_put(name, "");
	}
	struct cgroups *g = gk_opened_with_groups();
	ck_assert_int_eq(cgroup_take(g, NULL, &c), -EEXIST);
	ck_assert_ptr_null(c);
	c = gk_taken(g, NULL); // further on
	ck_assert_uint_eq(cgroup_number(c), 17);
	cgroups_free(g);
}
END_TEST

START_TEST(no_descriptor_is_left)
{
	gk_make_group(1);
	gk_make_group(2);
	struct cgroups *g = gk_opened_with_groups();
	struct cgroup *a = gk_taken(g, NULL), *c;
	struct rlimit old, none;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = (struct rlimit){.rlim_cur = 0, .rlim_max = old.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	int rc = cgroup_take(g, NULL, &c);
	bool oom = cgroup_oom(a);
	int killed = cgroup_kill(a);
	cgroup_release(a);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	ck_assert_int_eq(rc, -EMFILE);
	ck_assert(!oom);
	ck_assert_int_eq(killed, -EMFILE);
	// Both are there again when there are some.
	a = gk_taken(g, NULL);
	c = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(a) + cgroup_number(c), 3);
	cgroups_free(g);
}
END_TEST

static int all_of_it(void *arg)
{
	(void)arg;
	struct cgroups *g, *again;
	struct cgroup *c = NULL, *more = NULL;
	char why[256], self[96];
	snprintf(self, sizeof self, "%s/self", gk_base);
	int rc = cgroup_find(self, "/proc/self/mountinfo", why, sizeof why);
	if (rc == 0 || rc == -ENOENT)
		rc = cgroups_open(&g, gk_base, "", why, sizeof why);
	if (rc < 0)
		return rc;
	cgroups_settle(g);
	rc = cgroup_take(g, NULL, &c);
	if (rc == 0)
		rc = cgroup_take(g, NULL, &more);
	if (rc == 0)
		rc = cgroups_resume(&again, cgroups_state(g)->path);
	if (rc == 0) {
		rc = cgroup_take_back(again, 1, &c);
		cgroups_free(again);
	}
	// What was found and could not be remembered is only not used again.
	if (rc == 0 && oom_failed())
		rc = -ENOMEM;
	cgroups_free(g);
	return rc;
}

START_TEST(allocations_fail)
{
	gk_make_group(1);
	gk_put("self", "0::/not/here\n");
	gk_put("cgroup.controllers", "");
	OOM_LOOP(all_of_it, NULL);
}
END_TEST

Suite *cgroup_suite(void)
{
	Suite *s = suite_create("cgroup");
	TCase *groups = tcase_create("groups"), *faults = tcase_create("faults");
	tcase_add_checked_fixture(groups, gk_set_up, gk_tear_down);
	tcase_add_test(groups, bounds_are_written_and_lifted);
	tcase_add_loop_test(groups, quota_has_bounds, 0, 4);
	tcase_add_test(groups, files_that_may_lack);
	tcase_add_test(groups, killed_for_memory);
	tcase_add_test(groups, one_with_processes_waits);
	tcase_add_test(groups, used_memory);
	tcase_add_loop_test(groups, meddled_with, 0, 3);
	tcase_add_test(groups, kills);
	tcase_add_test(groups, taken_back);
	tcase_add_test(groups, few_are_kept);
	tcase_add_checked_fixture(faults, gk_set_up, gk_tear_down);
	tcase_add_loop_test(faults, a_limit_that_cannot_be_set, 0, 4);
	tcase_add_test(faults, unreadable);
	tcase_add_test(faults, no_name_is_free);
	tcase_add_test(faults, no_descriptor_is_left);
	tcase_add_test(faults, allocations_fail);
	suite_add_tcase(s, groups);
	suite_add_tcase(s, faults);
	return s;
}
