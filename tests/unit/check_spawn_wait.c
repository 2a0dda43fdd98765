// SPDX-License-Identifier: Apache-2.0
// The wait until a program runs, and what else may differ from one start to the next.
#include "daemon/core/cgroup_priv.h"
#include "daemon/io.h"
#include "daemon/limits.h"
#include "spawnkit.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// The child of PARENT that is not this process and not NOT, or 0.
static pid_t other_child(pid_t parent, pid_t except)
{
	char path[64], list[256];
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)parent, (int)parent);
	if (io_read_file(path, list, sizeof list) <= 0)
		return 0;
	for (char *p = list, *end;; p = end) {
		pid_t pid = (pid_t)strtol(p, &end, 10);
		if (end == p || (pid != getpid() && pid != except))
			return end == p ? 0 : pid;
	}
}

// A process that stops COUNT children of this one as they come, then empties the pipe FD.
static pid_t start_stopper(int count, int fd)
{
	pid_t parent = getpid(), pid = fork(), last = 0, child;
	if (pid != 0)
		return pid;
	for (int i = 0; i < count; i++) {
		while ((child = other_child(parent, last)) == 0)
			usleep(1000);
		kill(child, SIGSTOP);
		last = child;
	}
	char text[4096];
	while (other_child(parent, last) == 0)
		usleep(1000);
	while (read(fd, text, sizeof text) > 0)
		;
	_exit(0);
}

// Of a child that cannot get on before its program runs: it has to say something, and nobody reads it.
static int run_held(struct spawnkit *f, int stops, pid_t *pid)
{
	int held[2];
	ck_assert_int_eq(io_pipe(held), 0);
	ck_assert_int_gt(fcntl(held[1], F_SETPIPE_SZ, 4096), 0);
	ck_assert_int_eq(write(held[1], (char[4096]){0}, 4096), 4096);
	pid_t stopper = stops ? start_stopper(stops, held[0]) : 0;
	f->spec.like_shell = true;
	f->spec.path = f->argv[0] = "/no/such/command";
	f->spec.fd[2] = held[1];
	int rc = spawn_run(&f->base, &f->spec, pid, &f->step);
	f->spec.fd[2] = -1;
	close(held[0]);
	close(held[1]);
	if (stopper) {
		kill(stopper, SIGKILL);
		ck_assert_int_eq(waitpid(stopper, NULL, 0), stopper);
	}
	return rc;
}

START_TEST(a_child_that_is_stopped_holds_nobody)
{
	struct spawnkit f;
	pid_t pid;
	spawnkit_init(&f);
	size_t before = spawnkit_fds();
	int64_t start = io_mono_ns();
	ck_assert_int_eq(run_held(&f, 2, &pid), -EAGAIN);
	ck_assert_int_eq(f.step, SPAWN_PREPARE);
	ck_assert_int_lt(io_mono_ns() - start, 3000000000LL);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
	// Once is made good.
	ck_assert_int_eq(run_held(&f, 1, &pid), 0);
	ck_assert_int_eq(f.step, SPAWN_NONE);
	ck_assert_int_eq(waitpid(pid, &f.status, 0), pid);
	ck_assert_int_eq(WEXITSTATUS(f.status), 127);
	ck_assert_uint_eq(spawnkit_fds(), before);
	ck_assert_int_eq(spawnkit_shell(&f, "echo on"), 0);
	spawnkit_release(&f);
}
END_TEST

START_TEST(a_child_that_hangs_is_given_up)
{
	struct spawnkit f;
	pid_t pid;
	spawnkit_init(&f);
	int64_t start = io_mono_ns();
	ck_assert_int_eq(run_held(&f, 0, &pid), -ETIMEDOUT);
	ck_assert_int_eq(f.step, SPAWN_PREPARE);
	ck_assert_int_ge(io_mono_ns() - start, 1900000000LL);
	ck_assert_int_lt(io_mono_ns() - start, 4000000000LL);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
	spawnkit_release(&f);
}
END_TEST

// Whoever owns a program can have everybody wait who runs it, for as long as /proc/sys/fs/lease-break-time says.
START_TEST(a_lease_holds_nobody)
{
	struct spawnkit f;
	spawnkit_init(&f);
	spawnkit_file(&f, "leased", "#!/bin/sh\n", 0755);
	int fd = open(f.path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	signal(SIGIO, SIG_IGN);
	if (fcntl(fd, F_SETLEASE, F_WRLCK) < 0) {
		fprintf(stderr, "spawn_wait: %s has no leases\n", f.dir);
	} else {
		int64_t start = io_mono_ns();
		ck_assert_int_eq(spawnkit_program(&f, f.path), -ETIMEDOUT);
		ck_assert_int_lt(io_mono_ns() - start, 4000000000LL);
		ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	}
	close(fd);
	ck_assert_int_eq(spawnkit_program(&f, spawnkit_path(&f, "leased")), 0);
	spawnkit_release(&f);
}
END_TEST

// As in a container that does not know of clone3.
static void without_clone3(int err)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	ck_assert_ptr_nonnull(ctx);
	ck_assert_int_eq(seccomp_rule_add(ctx, SCMP_ACT_ERRNO((uint32_t)err), SCMP_SYS(clone3), 0), 0);
	ck_assert_int_eq(seccomp_load(ctx), 0);
	seccomp_release(ctx);
	ck_assert_int_eq(syscall(SYS_clone3, NULL, 0), -1);
	ck_assert_int_eq(errno, err);
}

START_TEST(the_older_call_does_as_well)
{
	struct spawnkit f;
	without_clone3(_i ? EPERM : ENOSYS);
	spawnkit_init(&f);
	ck_assert_int_eq(spawnkit_shell(&f, "echo yes"), 0);
	ck_assert_str_eq(f.out, "yes\n");
	ck_assert_int_eq(spawnkit_program(&f, "/no/such/program"), -ENOENT);
	ck_assert_int_eq(f.step, SPAWN_EXEC);
	spawnkit_release(&f);
}
END_TEST

// Then it goes to its control group itself, whatever user it becomes.
START_TEST(a_child_joins_its_group)
{
	struct spawnkit f;
	struct cgroup group = {0};
	struct user nobody = {.uid = 65534, .gid = 65534};
	without_clone3(ENOSYS);
	spawnkit_init(&f);
	spawnkit_file(&f, "cgroup.procs", "", 0600);
	group.fd = open(f.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(group.fd, 0);
	f.spec.cgroup = &group;
	if (geteuid() == 0)
		f.spec.user = &nobody;
	ck_assert_int_eq(spawnkit_shell(&f, "echo yes"), 0);
	ck_assert_str_eq(f.out, "yes\n");
	char text[8];
	ck_assert_int_eq(io_read_file(spawnkit_path(&f, "cgroup.procs"), text, sizeof text), 1);
	ck_assert_str_eq(text, "0");
	ck_assert_int_eq(unlink(f.path), 0);
	ck_assert_int_eq(spawnkit_shell(&f, "echo yes"), -ENOENT);
	ck_assert_int_eq(f.step, SPAWN_SETUP);
	close(group.fd);
	spawnkit_release(&f);
}
END_TEST

// What is no group is an error, not a command without one.
START_TEST(a_group_that_is_none)
{
	struct spawnkit f;
	struct cgroup group = {0};
	spawnkit_init(&f);
	group.fd = open(f.dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(group.fd, 0);
	f.spec.cgroup = &group;
	ck_assert_int_lt(spawnkit_shell(&f, "echo yes"), 0);
	close(group.fd);
	spawnkit_release(&f);
}
END_TEST

START_TEST(limits_are_the_commands)
{
	struct spawnkit f;
	struct limits all = {0}, own = {0};
	spawnkit_init(&f);
	f.base.limits = &all;
	ck_assert_int_eq(limits_parse(&all, "core=0"), 0);
	ck_assert_int_eq(limits_parse(&all, "fsize=512K"), 0);
	ck_assert_int_eq(spawnkit_shell(&f, "ulimit -n; ulimit -Hc; ulimit -f"), 0);
	ck_assert_str_eq(f.out, "77\n0\n1024\n");
	f.spec.limits = &own;
	ck_assert_int_eq(limits_parse(&own, "nofile=20:30"), 0);
	ck_assert_int_eq(limits_parse(&own, "fsize=1M"), 0);
	ck_assert_int_eq(spawnkit_shell(&f, "ulimit -n; ulimit -Hn; ulimit -Hc; ulimit -f"), 0);
	ck_assert_str_eq(f.out, "20\n30\n0\n2048\n");
	// What cannot be had, and what the daemon's own are.
	ck_assert_int_eq(limits_parse(&own, "nofile=1:unlimited"), 0);
	ck_assert_int_eq(spawnkit_program(&f, "true"), -EPERM);
	ck_assert_int_eq(f.step, SPAWN_SETUP);
	own.value[RLIMIT_NOFILE].rlim_max = 0;
	ck_assert_int_eq(spawnkit_program(&f, "true"), -EINVAL);
	ck_assert_int_eq(f.step, SPAWN_SETUP);
	struct rlimit now;
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &now), 0);
	ck_assert_uint_gt(now.rlim_cur, 1 << 20);
	spawnkit_release(&f);
}
END_TEST

static TCase *add_case(Suite *s, const char *name)
{
	TCase *t = tcase_create(name);
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, a_child_that_is_stopped_holds_nobody);
	tcase_add_test(t, a_child_that_hangs_is_given_up);
	tcase_add_test(t, a_lease_holds_nobody);
	tcase_add_loop_test(t, the_older_call_does_as_well, 0, 2);
	tcase_add_test(t, a_child_joins_its_group);
	tcase_add_test(t, a_group_that_is_none);
	tcase_add_test(t, limits_are_the_commands);
	return t;
}

Suite *spawn_wait_suite(void)
{
	Suite *s = suite_create("spawn_wait");
	add_case(s, "wait");
	tcase_add_checked_fixture(add_case(s, "forked"), spawnkit_fork_only, NULL);
	return s;
}
