// SPDX-License-Identifier: Apache-2.0
// Processes and their control groups, in the kernel's hierarchy where this process may make groups in it (else there is nothing to look at).
#include "crashkit.h"
#include "daemon/core/cgroup_priv.h"
#include "daemon/core/proc_priv.h"
#include "daemon/io.h"
#include "groupkit.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct fix {
	struct crashkit s;
	struct cgroups *groups[2]; // the first one's maker, and the one in use
	char base[PATH_MAX];
};

static bool fix_init(struct fix *f)
{
	char why[256];
	struct proc_limits limits = prockit_limits;
	memset(f, 0, sizeof *f);
	if (!groupkit_base(f->base, sizeof f->base))
		return false;
	ck_assert_int_eq(cgroups_open(&f->groups[0], f->base, "", why, sizeof why), 0);
	ck_assert_int_eq(cgroups_resume(&f->groups[1], cgroups_state(f->groups[0])->path), 0);
	limits.cgroups = f->groups[1];
	crashkit_init(&f->s, &limits);
	return true;
}

static void fix_release(struct fix *f)
{
	crashkit_release(&f->s);
	cgroups_free(f->groups[1]);
	cgroups_free(f->groups[0]);
	ck_assert_int_eq(rmdir(f->base), 0);
}

static void crash(struct fix *f)
{
	crashkit_crash(&f->s);
}

static void back(struct fix *f, struct procs_taken *taken)
{
	struct cgroups *old = f->groups[1];
	ck_assert_int_eq(cgroups_resume(&f->groups[1], cgroups_state(f->groups[0])->path), 0);
	f->s.limits.cgroups = f->groups[1];
	crashkit_back(&f->s, taken);
	cgroups_settle(f->groups[1]);
	old->name[0] = '\0'; // it is forgotten, as by a death: nothing of it may be killed or removed
	io_close(&old->dir);
	cgroups_free(old);
}

// Its number there, from what /proc says; 0: in none.
static int group_of(pid_t pid)
{
	char path[32], text[4096];
	int number = 0;
	snprintf(path, sizeof path, "/proc/%d/cgroup", (int)pid);
	if (io_read_file(path, text, sizeof text) < 0)
		return 0;
	const char *at = strstr(text, "/commands/");
	return at && sscanf(at, "/commands/%d", &number) == 1 ? number : 0;
}

static int processes_in(const struct fix *f, int number)
{
	char name[32], text[4096];
	int n = 0;
	snprintf(name, sizeof name, "%d/cgroup.procs", number);
	if (cgroup_read(f->groups[0]->dir, name, text, sizeof text) < 0)
		return 0;
	for (const char *p = text; (p = strchr(p, '\n')); p++)
		n++;
	return n;
}

// Which has left the session and its parents when the mark is there.
#define DAEMON "setsid sh -c '(exec >/dev/null 2>&1; sleep 300 &)'; touch $DIR/mark; "

static bool marked(const struct prockit *k)
{
	char path[96];
	snprintf(path, sizeof path, "%s/mark", k->dir);
	return access(path, F_OK) == 0;
}

static void unmark(const struct prockit *k)
{
	char path[96];
	snprintf(path, sizeof path, "%s/mark", k->dir);
	ck_assert_int_eq(unlink(path), 0);
}

START_TEST(groups_live_with_their_processes)
{
	struct fix f;
	if (!fix_init(&f))
		return;
	struct prockit *k = &f.s.k;
	struct proc *a = prockit_start(k, "read x"), *b = prockit_start(k, "read x");
	ck_assert_int_eq(group_of(proc_pid(a)), 1);
	ck_assert_int_eq(group_of(proc_pid(b)), 2);
	ck_assert_uint_eq(store_life(a->slot)->group, 1);
	ck_assert_int_eq(proc_write(a, "\n", 1), 0);
	PROCKIT_UNTIL(k, proc_end(a));
	ck_assert(!proc_end(a)->oom);
	ck_assert_ptr_null(a->group);
	ck_assert_uint_eq(store_life(a->slot)->group, 0);
	struct proc *c = prockit_start(k, "read x");
	ck_assert_int_eq(group_of(proc_pid(c)), 1);
	// What left all its parents counts as running.
	ck_assert(!procs_childless(k->procs));
	procs_kill_all(k->procs);
	PROCKIT_UNTIL(k, procs_childless(k->procs));
	ck_assert(cgroups_empty(f.groups[1]));
	fix_release(&f);
}
END_TEST

START_TEST(deadline_spares_no_daemon)
{
	struct fix f;
	struct proc *p;
	if (!fix_init(&f))
		return;
	struct prockit *k = &f.s.k;
	ck_assert_int_eq(prockit_try(k, DAEMON "read x", 1.5, true, &p), 0);
	int number = group_of(proc_pid(p));
	PROCKIT_UNTIL(k, marked(k) && processes_in(&f, number) == 2);
	PROCKIT_UNTIL(k, proc_end(p));
	ck_assert(proc_end(p)->timed_out);
	PROCKIT_UNTIL(k, processes_in(&f, number) == 0);
	p = prockit_start(k, "read x");
	ck_assert_int_ne(group_of(proc_pid(p)), number); // which was killed
	ck_assert_int_gt(group_of(proc_pid(p)), 0);
	fix_release(&f);
}
END_TEST

START_TEST(next_daemon_has_the_group)
{
	struct fix f;
	struct procs_taken taken;
	struct proc *p;
	if (!fix_init(&f))
		return;
	struct prockit *k = &f.s.k;
	p = prockit_start(k, "exec >/dev/null 2>&1; " DAEMON "exit 0");
	int left = group_of(proc_pid(p));
	PROCKIT_UNTIL(k, proc_end(p));
	unmark(k);
	ck_assert_int_eq(prockit_try(k, DAEMON "read x", 4, true, &p), 0);
	int number = group_of(proc_pid(p));
	PROCKIT_UNTIL(k, marked(k) && processes_in(&f, number) == 2);
	crash(&f);
	back(&f, &taken);
	ck_assert_uint_eq(taken.living, 1);
	p = crashkit_only(&f.s);
	ck_assert_uint_eq(cgroup_number(p->group), (uint32_t)number);
	struct proc *other = prockit_start(k, "read x");
	ck_assert_int_gt(group_of(proc_pid(other)), 2);
	ck_assert_int_eq(processes_in(&f, number), 2);
	PROCKIT_UNTIL(k, proc_end(p));
	PROCKIT_UNTIL(k, processes_in(&f, number) == 0);
	ck_assert_int_eq(processes_in(&f, left), 1); // its end is nobody's business but the sandbox's
	fix_release(&f);
}
END_TEST

START_TEST(refused_process_leaves_a_group)
{
	struct fix f;
	struct procs_taken taken;
	if (!fix_init(&f))
		return;
	struct prockit *k = &f.s.k;
	struct proc *p = prockit_start(k, DAEMON "read x");
	int number = group_of(proc_pid(p));
	PROCKIT_UNTIL(k, marked(k) && processes_in(&f, number) == 2);
	ck_assert_int_eq(store_record_put(p->slot, "no record", 9), 0);
	crash(&f);
	back(&f, &taken);
	ck_assert_uint_eq(taken.refused, 1);
	PROCKIT_UNTIL(k, processes_in(&f, number) == 0);
	fix_release(&f);
}
END_TEST

START_TEST(oom_is_forgotten)
{
	struct fix f;
	struct procs_taken taken;
	if (!fix_init(&f))
		return;
	struct prockit *k = &f.s.k;
	struct proc *p = prockit_start(k, "exit 9");
	PROCKIT_UNTIL(k, proc_end(p));
	proc_store_flag(p, PROC_KEPT_OOM); // as at its end, if the kernel says so
	crash(&f);
	back(&f, &taken);
	ck_assert_uint_eq(taken.ended, 1);
	p = k->procs->ended;
	ck_assert_int_eq(proc_end(p)->code, 9);
	ck_assert(proc_end(p)->oom);
	fix_release(&f);
}
END_TEST

static int start_bound(struct prockit *k, struct cgroup_bounds bounds, struct proc **out)
{
	static const char *const argv[] = {"/bin/sh", "-c", "touch $DIR/mark", NULL};
	struct proc_spec spec = {
		.run = {.path = argv[0], .argv = argv, .env = k->env, .cwd = "/"}, .command = "sh", .bounds = bounds};
	return proc_start(k->procs, &spec, out, &k->step);
}

START_TEST(bounds_without_groups)
{
	struct prockit k;
	struct proc *p;
	prockit_init(&k, &prockit_limits);
	ck_assert_int_eq(start_bound(&k, (struct cgroup_bounds){.memory = 1 << 20}, &p), -EOPNOTSUPP);
	ck_assert_int_eq(start_bound(&k, (struct cgroup_bounds){.cpus = 0.1}, &p), -EOPNOTSUPP);
	ck_assert_int_eq(start_bound(&k, (struct cgroup_bounds){.pids = 1}, &p), -EOPNOTSUPP);
	ck_assert_int_eq(k.step, SPAWN_PREPARE);
	ck_assert_uint_eq(procs_living(k.procs), 0);
	prockit_turns_for(&k, 0.05);
	ck_assert(!marked(&k));
	ck_assert_int_eq(start_bound(&k, (struct cgroup_bounds){0}, &p), 0);
	PROCKIT_UNTIL(&k, proc_end(p));
	ck_assert(marked(&k));
	prockit_release(&k);
}
END_TEST

// A directory that is no group at all: nothing can be born in it.
START_TEST(useless_group_keeps_commands_from_running)
{
	struct prockit k;
	struct proc_limits limits = prockit_limits;
	struct proc *p;
	char dir[] = "/tmp/celld-group-XXXXXX", name[64], why[256];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(cgroups_open(&limits.cgroups, dir, "", why, sizeof why), 0);
	limits.cgroups->have = CGROUP_ALL;
	prockit_init(&k, &limits);
	ck_assert_int_lt(start_bound(&k, (struct cgroup_bounds){.pids = 9}, &p), 0);
	ck_assert(!marked(&k));
	ck_assert_int_eq(start_bound(&k, (struct cgroup_bounds){0}, &p), 0);
	PROCKIT_UNTIL(&k, proc_end(p));
	ck_assert_int_eq(proc_end(p)->code, 0);
	ck_assert(marked(&k));
	ck_assert_int_gt(k.procs->ungrouped_ns, 0);
	prockit_release(&k);
	cgroups_free(limits.cgroups);
	snprintf(name, sizeof name, "rm -rf %s", dir);
	ck_assert_int_eq(system(name), 0);
}
END_TEST

Suite *proc_group_suite(void)
{
	Suite *s = suite_create("proc_group");
	TCase *tc = tcase_create("proc_group");
	tcase_set_timeout(tc, 30);
	tcase_add_unchecked_fixture(tc, NULL, groupkit_sweep);
	tcase_add_test(tc, groups_live_with_their_processes);
	tcase_add_test(tc, deadline_spares_no_daemon);
	tcase_add_test(tc, next_daemon_has_the_group);
	tcase_add_test(tc, refused_process_leaves_a_group);
	tcase_add_test(tc, oom_is_forgotten);
	tcase_add_test(tc, bounds_without_groups);
	tcase_add_test(tc, useless_group_keeps_commands_from_running);
	suite_add_tcase(s, tc);
	return s;
}
