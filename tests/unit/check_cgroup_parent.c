// SPDX-License-Identifier: Apache-2.0
// The directory that groups are made in: found, opened, shared; and the kernel's own, where this process may make some.
#include "daemon/core/cgroup_priv.h"
#include "daemon/io.h"
#include "groupfake.h"
#include "groupkit.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// --- where this process is ---

#define HYBRID                                                                                                        \
	"31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw\n" \
	"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime shared:9 master:1 - cgroup2 cgroup2 rw\n"
#define UNIFIED "29 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"

static const struct {
	const char *cgroup, *mountinfo, *path; // NULL: -ENOENT
} places[] = {
	{"4:memory:/x\n1:cpu:/\n0::/\n", HYBRID, "/sys/fs/cgroup/unified"},
	{"0::/system.slice/a b.service\n", UNIFIED, "/sys/fs/cgroup/system.slice/a b.service"},
	{"0::/", UNIFIED, "/sys/fs/cgroup"},
	{"0::/pod/one/two\n", "29 23 0:26 /pod/one /c rw - cgroup2 none rw\n", "/c/two"},
	{"0::/pod/one\n", "29 23 0:26 /pod/one /c rw - cgroup2 none rw\n", "/c"},
	{"0::/pod/oneself\n", "29 23 0:26 /pod/one /c rw - cgroup2 none rw\n", NULL},
	{"0::/other\n", "29 23 0:26 /pod /c rw - cgroup2 none rw\n30 23 0:26 / /d rw - cgroup2 none rw\n", "/d/other"},
	{"0::/a\n", "29 23 0:26 / /with\\040blank\\134 rw - cgroup2 none rw\n", "/with blank\\/a"},
	{"0::/a\n", "29 23 0:26 /../.. /c rw - cgroup2 none rw\n", NULL},
	{"0::/../a\n", UNIFIED, NULL},
	{"0::/a (deleted)\n", UNIFIED, NULL},
	{"1:name=systemd:/a\n", UNIFIED, NULL},
	{"0::/a\n", "31 23 0:28 / /sys/fs/cgroup rw - cgroup cgroup2 rw\n", NULL},
	{"0::/a\n", "29 23 0:26 / /c rw cgroup2\n29\n\n29 23 0:26 / /c rw -\n", NULL},
	{"", "", NULL},
};

START_TEST(finds)
{
	char a[96], b[96], path[PATH_MAX] = "";
	gk_put("self", places[_i].cgroup);
	gk_put("mounts", places[_i].mountinfo);
	snprintf(a, sizeof a, "%s/self", gk_base);
	snprintf(b, sizeof b, "%s/mounts", gk_base);
	int rc = cgroup_find(a, b, path, sizeof path);
	ck_assert_int_eq(rc, places[_i].path ? 0 : -ENOENT);
	if (places[_i].path)
		ck_assert_str_eq(path, places[_i].path);
	ck_assert_int_eq(cgroup_find("/nowhere", b, path, sizeof path), -ENOENT);
	ck_assert_int_eq(cgroup_find(a, b, path, 2), places[_i].path ? -ENAMETOOLONG : -ENOENT);
}
END_TEST

START_TEST(off_and_auto)
{
	struct cgroups *g;
	char why[256] = "";
	ck_assert_int_eq(cgroups_new(&g, "off", why, sizeof why), 0);
	ck_assert_ptr_null(g);
	ck_assert_int_eq(cgroups_new(&g, "auto", why, sizeof why), 0); // no PID 1
	ck_assert_ptr_null(g);
	ck_assert_int_eq(cgroups_new(&g, gk_base, why, sizeof why), -ENOTSUP);
	ck_assert_ptr_null(g);
	ck_assert_ptr_nonnull(strstr(why, gk_base));
	ck_assert_ptr_null(cgroups_state(NULL));
	cgroups_settle(NULL);
	cgroups_free(NULL);
	cgroup_release(NULL);
	ck_assert(cgroups_empty(NULL));
	ck_assert_int_eq(cgroups_kill_all(NULL), 0);
	struct cgroup *c;
	ck_assert_int_eq(cgroup_take(NULL, NULL, &c), -EOPNOTSUPP);
	ck_assert_int_eq(cgroup_take_back(NULL, 1, &c), -ENOENT);
}
END_TEST

// --- the parent ---

START_TEST(hands_controllers_down)
{
	static const char *const names[] = {"memory", "cpu", "pids"};
	char want[16], path[96];
	snprintf(want, sizeof want, "+%s", names[_i]);
	gk_put("cgroup.controllers", names[_i]);
	struct cgroups *g = gk_opened();
	const struct cgroup_state *s = cgroups_state(g);
	ck_assert(s->memory == (_i == 0) && s->cpu == (_i == 1) && s->pids == (_i == 2));
	snprintf(path, sizeof path, "%s/commands", gk_base);
	ck_assert_str_eq(s->path, path);
	GK_IS("cgroup.subtree_control", want);
	GK_IS("commands/cgroup.subtree_control", want);
	cgroups_free(g);
	*want = '-';
	GK_IS("cgroup.subtree_control", want);
}
END_TEST

START_TEST(leaves_what_was_handed_down)
{
	gk_put("cgroup.controllers", "pids");
	gk_put("cgroup.subtree_control", "cpu pids\n");
	struct cgroups *g = gk_opened();
	ck_assert(cgroups_state(g)->pids && !cgroups_state(g)->cpu);
	GK_IS("commands/cgroup.subtree_control", "+pids");
	cgroups_free(g);
	GK_IS("cgroup.subtree_control", "cpu pids");
}
END_TEST

START_TEST(no_controllers)
{
	struct cgroup *c;
	struct cgroup_bounds b[3] = {{.memory = 1}, {.cpus = 1}, {.pids = 1}};
	gk_put("cgroup.controllers", "hugetlb memoryx xpids\n");
	struct cgroups *g = gk_opened();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(cgroup_take(g, &b[i], &c), -EOPNOTSUPP);
	ck_assert_ptr_null(c);
	gk_make_group(1);
	ck_assert_int_eq(cgroups_each(g, gk_know, g), 0);
	c = gk_taken(g, &(struct cgroup_bounds){0});
	gk_put("commands/1/memory.events", "oom_kill 1\n");
	ck_assert(!cgroup_oom(c)); // not its own
	cgroup_release(c);
	cgroups_free(g);
}
END_TEST

START_TEST(parent_not_to_be_had)
{
	struct cgroups *g = (struct cgroups *)gk_base;
	char why[256], path[96];
	snprintf(path, sizeof path, "%s/none", gk_base);
	ck_assert_int_eq(cgroups_open(&g, path, "", why, sizeof why), -ENOENT);
	ck_assert_ptr_null(g);
	ck_assert_ptr_nonnull(strstr(why, path));
	gk_put("none", "");
	ck_assert_int_eq(cgroups_open(&g, path, "", why, sizeof why), -ENOTDIR);
	gk_take_away("none");
	gk_make_dir("none");
	gk_put("none/commands", "in the way");
	ck_assert_int_eq(cgroups_open(&g, path, "", why, sizeof why), -ENOTDIR);
	ck_assert_int_eq(cgroups_resume(&g, ""), 0);
	ck_assert_ptr_null(g);
	ck_assert_int_eq(cgroups_resume(&g, path), -ENOENT);
	ck_assert_int_eq(cgroups_resume(&g, "nothing"), -EINVAL);
	ck_assert_ptr_null(g);
}
END_TEST

// Two that were started in one group do not get into each other's.
START_TEST(parent_is_one_daemons)
{
	char why[256];
	struct cgroups *a = gk_opened(), *b, *again;
	ck_assert_int_eq(cgroups_open(&b, gk_base, "", why, sizeof why), 0);
	ck_assert_str_eq(strrchr(cgroups_state(b)->path, '/'), "/commands-2");
	gk_put("commands/cgroup.subtree_control", "cpu\n");
	ck_assert_int_eq(cgroups_resume(&again, cgroups_state(a)->path), 0);
	ck_assert_str_eq(cgroups_state(again)->path, cgroups_state(a)->path);
	ck_assert(cgroups_state(again)->cpu && !cgroups_state(again)->pids);
	cgroups_free(b);
	ck_assert_int_eq(access(cgroups_state(a)->path, F_OK), 0);
	char second[96];
	snprintf(second, sizeof second, "%s/commands-2", gk_base);
	ck_assert_int_eq(access(second, F_OK), -1);
	cgroups_free(again);
	cgroups_free(a);
	a = gk_opened();
	ck_assert_str_eq(strrchr(cgroups_state(a)->path, '/'), "/commands");
	cgroups_free(a);
}
END_TEST

// --- the kernel's ---

static pid_t sleeper_in(struct cgroup *c)
{
	pid_t pid = fork();
	if (pid == 0) {
		int fd = openat(cgroup_fd(c), "cgroup.procs", O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "0", 1) != 1)
			_exit(1);
		close(fd);
		for (;;)
			pause();
	}
	ck_assert_int_gt(pid, 0);
	char text[32];
	do // until it is in
		ck_assert_int_eq(cgroup_read(cgroup_fd(c), "cgroup.procs", text, sizeof text), 0);
	while (atoi(text) != pid);
	return pid;
}

static void is_killed(pid_t pid)
{
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

START_TEST(in_the_kernel)
{
	char path[PATH_MAX], why[256];
	struct cgroups *g;
	if (!groupkit_base(path, sizeof path))
		return;
	ck_assert_int_eq(cgroups_open(&g, path, "", why, sizeof why), 0);
	struct cgroup *a = gk_taken(g, NULL), *b = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(a), 1);
	pid_t one = sleeper_in(a), two = sleeper_in(b);
	ck_assert(!cgroups_empty(g));
	ck_assert_int_eq(cgroup_kill(a), 0);
	is_killed(one);
	ck_assert_int_eq(kill(two, 0), 0);
	cgroup_release(a);
	cgroup_release(b);                                        // still at work
	ck_assert_int_lt(unlinkat(g->dir, "1", AT_REMOVEDIR), 0); // which was killed, and is gone
	a = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(a), 3);
	b = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(b), 4);
	ck_assert_int_eq(cgroups_kill_all(g), 0);
	is_killed(two);
	ck_assert(cgroups_empty(g));
	ck_assert_int_eq(mkdirat(cgroup_fd(a), "below", 0755), 0); // a command may make its own
	pid_t three = sleeper_in(b);
	cgroups_free(g);
	is_killed(three);
	ck_assert_int_eq(rmdir(path), 0); // nothing was left in it
}
END_TEST

// The number of groups is up to somebody else.
START_TEST(no_more_groups)
{
	char path[PATH_MAX], why[256];
	struct cgroups *g;
	struct cgroup *c;
	if (!groupkit_base(path, sizeof path))
		return;
	ck_assert_int_eq(cgroups_open(&g, path, "", why, sizeof why), 0);
	ck_assert_int_eq(cgroup_write(g->base, "cgroup.max.descendants", "2"), 0);
	struct cgroup *a = gk_taken(g, NULL);
	ck_assert_int_eq(cgroup_take(g, NULL, &c), -EAGAIN);
	cgroup_release(a);
	cgroup_release(gk_taken(g, NULL));
	cgroups_free(g);
	ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

// Somebody has removed one that was to be taken again.
START_TEST(removed_meanwhile)
{
	char path[PATH_MAX], why[256];
	struct cgroups *g;
	if (!groupkit_base(path, sizeof path))
		return;
	ck_assert_int_eq(cgroups_open(&g, path, "", why, sizeof why), 0);
	cgroup_release(gk_taken(g, NULL));
	ck_assert_int_eq(unlinkat(g->dir, "1", AT_REMOVEDIR), 0);
	struct cgroup *c = gk_taken(g, NULL);
	ck_assert_uint_eq(cgroup_number(c), 2);
	ck_assert_int_eq(unlinkat(g->dir, "2", AT_REMOVEDIR), 0);
	ck_assert_int_lt(cgroup_kill(c), 0);
	cgroup_release(c);
	ck_assert(!g->idle && !g->waiting && !g->taken);
	cgroups_free(g);
	ck_assert_int_eq(rmdir(path), 0);
}
END_TEST

Suite *cgroup_parent_suite(void)
{
	Suite *s = suite_create("cgroup_parent");
	TCase *find = tcase_create("find"), *parent = tcase_create("parent"), *kernel = tcase_create("kernel");
	tcase_add_checked_fixture(find, gk_set_up, gk_tear_down);
	tcase_add_loop_test(find, finds, 0, sizeof places / sizeof *places);
	tcase_add_test(find, off_and_auto);
	tcase_add_checked_fixture(parent, gk_set_up, gk_tear_down);
	tcase_add_loop_test(parent, hands_controllers_down, 0, 3);
	tcase_add_test(parent, leaves_what_was_handed_down);
	tcase_add_test(parent, no_controllers);
	tcase_add_test(parent, parent_not_to_be_had);
	tcase_add_test(parent, parent_is_one_daemons);
	tcase_add_unchecked_fixture(kernel, NULL, groupkit_sweep);
	tcase_add_test(kernel, in_the_kernel);
	tcase_add_test(kernel, no_more_groups);
	tcase_add_test(kernel, removed_meanwhile);
	suite_add_tcase(s, find);
	suite_add_tcase(s, parent);
	suite_add_tcase(s, kernel);
	return s;
}
