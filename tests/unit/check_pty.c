// SPDX-License-Identifier: Apache-2.0
#include "oom.h"
#include "prockit.h"
#include "suites.h"

#include "daemon/core/pty.h"
#include "daemon/core/tree.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const struct pty_size small = {3, 70};

// --- the pair ---

static struct pty_size size_of(int fd)
{
	struct winsize ws;
	ck_assert_int_eq(ioctl(fd, TIOCGWINSZ, &ws), 0);
	return (struct pty_size){ws.ws_row, ws.ws_col};
}

START_TEST(pair_is_ready_to_use)
{
	int master, slave;
	pid_t pgrp = 5;
	struct stat st;
	ck_assert_int_eq(pty_open(&master, &slave, &small, geteuid()), 0);
	ck_assert(isatty(slave) && fcntl(master, F_GETFD) == FD_CLOEXEC && fcntl(slave, F_GETFD) == FD_CLOEXEC);
	ck_assert((fcntl(master, F_GETFL) & O_NONBLOCK) && !(fcntl(slave, F_GETFL) & O_NONBLOCK));
	ck_assert(size_of(slave).rows == 3 && size_of(slave).cols == 70);
	ck_assert_int_eq(pty_resize(master, &(struct pty_size){65535, 1}), 0);
	ck_assert(size_of(slave).rows == 65535 && size_of(slave).cols == 1);
	ck_assert_int_eq(fstat(slave, &st), 0);
	ck_assert(st.st_uid == geteuid() && (st.st_mode & 0777) == 0620);
	ck_assert_int_eq(pty_foreground(master, &pgrp), 0);
	ck_assert_int_eq(pgrp, -1);
	// Without a slave: EOF; with a new one not any more.
	char byte;
	ck_assert_int_eq(io_read(master, &byte, 1), -EAGAIN);
	io_close(&slave);
	ck_assert_int_eq(io_read(master, &byte, 1), -EIO);
	ck_assert_int_eq(pty_reopen(master, &slave), 0);
	ck_assert(isatty(slave));
	ck_assert_int_eq(io_read(master, &byte, 1), -EAGAIN);
	io_close(&slave);
	io_close(&master);
	ck_assert_int_eq(pty_resize(master, &small), -EBADF);
	ck_assert_int_eq(pty_foreground(master, &pgrp), -EBADF);
	ck_assert_int_eq(pty_reopen(master, &slave), -EBADF);
	ck_assert_int_eq(slave, -1);
}
END_TEST

START_TEST(pair_without_descriptors)
{
	struct rlimit was, low;
	int free_fd = fcntl(0, F_DUPFD, 3), master, slave;
	ck_assert_int_ge(free_fd, 3);
	close(free_fd);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &was), 0);
	for (int more = 0; more < 2; more++) {
		low = was;
		low.rlim_cur = (rlim_t)(free_fd + more);
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
		int rc = pty_open(&master, &slave, &small, geteuid());
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &was), 0);
		ck_assert_int_eq(rc, -EMFILE);
		ck_assert(master == -1 && slave == -1 && fcntl(free_fd, F_GETFD) < 0);
	}
}
END_TEST

// --- the kind of process ---

static int try_terminal(struct prockit *k, const char *const argv[], struct proc **out)
{
	struct proc_spec spec = {
		.run = {.path = argv[0], .argv = argv, .env = k->env, .cwd = "/"},
		.kind = PROC_TERMINAL,
		.command = argv[0],
		.size = small,
	};
	return proc_start(k->procs, &spec, out, &k->step);
}

static struct proc *terminal(struct prockit *k, const char *script)
{
	const char *const argv[] = {"/bin/sh", "-c", script, NULL};
	struct proc *p = NULL;
	ck_assert_int_eq(try_terminal(k, argv, &p), 0);
	return p;
}

static bool has(struct proc *p, const char *text)
{
	struct prockit_reader r;
	prockit_output(&r, p);
	return strstr(r.text, text) != NULL;
}

START_TEST(terminal_lives_and_ends)
{
	struct prockit k;
	prockit_init(&k, &prockit_limits);
	struct proc *p = terminal(&k, "stty size; read x; echo \"<$x>\"; stty size; exit 3");
	int64_t id = proc_terminal_id(p);
	ck_assert(id == 1 && procs_terminal(k.procs, 1) == p && !procs_terminal(k.procs, 0) &&
		  !procs_terminal(k.procs, 2) && !procs_terminal(k.procs, -1));
	ck_assert_int_eq(proc_kind(p), PROC_TERMINAL);
	PROCKIT_UNTIL(&k, has(p, "3 70\r\n"));
	pid_t pgrp = 0;
	ck_assert_int_eq(proc_foreground(p, &pgrp), 0);
	ck_assert_int_eq(pgrp, proc_pid(p));
	ck_assert_int_eq(proc_resize(p, &(struct pty_size){50, 60}), 0);
	ck_assert_int_eq(proc_close_stdin(p), -EPIPE);
	ck_assert_int_eq(proc_write(p, "in\n", 3), 0);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->code == 3 && !proc_end(p)->sig);
	ck_assert(has(p, "<in>\r\n50 60\r\n"));
	ck_assert_uint_eq(output_total(proc_output(p), OUTPUT_STDOUT), 0);
	ck_assert_ptr_eq(procs_terminal(k.procs, id), p);
	ck_assert_int_eq(proc_write(p, "x", 1), -ESRCH);
	ck_assert_int_eq(proc_resize(p, &small), -ESRCH);
	ck_assert_int_eq(proc_foreground(p, &pgrp), -ESRCH);
	ck_assert_int_eq(proc_signal_foreground(p, SIGKILL, &pgrp), -ESRCH);
	struct proc *other = prockit_start(&k, "read x <$GATE");
	ck_assert_int_eq(proc_terminal_id(other), 0);
	ck_assert_int_eq(proc_resize(other, &small), -ENOTTY);
	ck_assert_int_eq(proc_signal_foreground(other, SIGKILL, &pgrp), -ENOTTY);
	ck_assert_int_eq(proc_terminal_id(terminal(&k, "exit 0")), 2);
	prockit_release(&k);
}
END_TEST

START_TEST(terminal_that_cannot_start_takes_nothing)
{
	struct prockit k;
	const char *const argv[] = {"/no/such", NULL};
	struct proc *p = NULL;
	prockit_init(&k, &prockit_limits);
	int next = fcntl(0, F_DUPFD, 3);
	close(next);
	ck_assert_int_eq(try_terminal(&k, argv, &p), -ENOENT);
	ck_assert_int_eq(k.step, SPAWN_EXEC);
	ck_assert(!procs_living(k.procs) && fcntl(next, F_GETFD) < 0);
	ck_assert_int_eq(proc_terminal_id(terminal(&k, "exit 0")), 1);
	prockit_release(&k);
}
END_TEST

// Nobody has it open: that is no end while the leader lives.
START_TEST(terminal_closed_by_all_goes_on)
{
	struct prockit k;
	prockit_init(&k, &prockit_limits);
	struct proc *p = terminal(&k, "exec </dev/null >/dev/null 2>&1; read x <$GATE; echo late >/dev/tty; exit 4");
	prockit_turns_for(&k, 0.2);
	ck_assert_int_eq(proc_state(p), PROC_RUNNING);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->code == 4 && has(p, "late\r\n"));
	prockit_release(&k);
}
END_TEST

// The leader's output is whole, the survivor's does not delay the end, and he is not hung up.
START_TEST(survivor_keeps_its_terminal)
{
	struct prockit k;
	struct proc_limits limits = prockit_limits;
	char mark[96];
	limits.grace_ms = 100;
	prockit_init(&k, &limits);
	struct proc *p = terminal(&k, "stty -opost; trap '' HUP; (while :; do echo noise; done) & (read x "
				      "<$GATE; echo y; : >$DIR/mark) &"
				      "seq 1 3000; echo last; exit 5");
	struct prockit_reader r;
	prockit_attach(&r, p, false);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(proc_end(p)->code, 5);
	ck_assert_int_lt(proc_duration_ms(p), 8000);
	output_detach(&r.r);
	ck_assert(!procs_alone(k.procs));
	snprintf(mark, sizeof mark, "%s/mark", k.dir);
	prockit_turns_for(&k, 0.05);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, access(mark, F_OK) == 0);
	prockit_release(&k);
}
END_TEST

// The kernel remembers a group that is gone, and would name it still.
START_TEST(stale_foreground_group_is_not_signalled)
{
	struct prockit k;
	const char *const argv[] = {"/usr/bin/perl", "-e",
		"use POSIX; $SIG{TTOU}='IGNORE'; $p=fork(); if(!$p){setpgid(0,0); exit 0} setpgid($p,$p); "
		"POSIX::tcsetpgrp(0,$p); waitpid($p,0); sleep 100",
		NULL};
	struct proc *p = NULL;
	pid_t pgrp = 0;
	if (access(argv[0], X_OK) != 0)
		return;
	prockit_init(&k, &prockit_limits);
	ck_assert_int_eq(try_terminal(&k, argv, &p), 0);
	prockit_turns_for(&k, 0.2);
	while (proc_foreground(p, &pgrp) == 0 && pgrp == proc_pid(p))
		prockit_turn(&k);
	PROCKIT_UNTIL(&k, kill(-pgrp, 0) < 0 || pgrp < 0);
	ck_assert_int_eq(proc_signal_foreground(p, SIGKILL, &pgrp), -ENXIO);
	prockit_release(&k);
}
END_TEST

START_TEST(groups_of_a_session)
{
	struct prockit k;
	prockit_init(&k, &prockit_limits);
	struct proc *p = terminal(&k, "set -m; sh -c 'sleep 100 & sleep 100 &' & echo $!; wait; echo up; read x");
	PROCKIT_UNTIL(&k, has(p, "up\r\n"));
	pid_t sid = proc_pid(p);
	struct prockit_reader r;
	prockit_output(&r, p);
	int job = atoi(r.text);
	ck_assert_int_gt(job, 1);
	ck_assert(tree_group_in(sid, sid));
	ck_assert(!tree_group_in(getpgrp(), sid) && !tree_group_in(sid, getsid(0)));
	// That group lives without its leader.
	ck_assert(getpgid(job) < 0 && tree_group_in(job, sid) && !tree_group_in(job, getsid(0)));
	ck_assert_int_eq(tree_session(sid, getpid(), TREE_COUNT), 3);
	ck_assert_int_eq(tree_session(sid, getpid(), TREE_KILL), 3);
	PROCKIT_UNTIL(&k, tree_session(sid, getpid(), TREE_COUNT) == 0);
	PROCKIT_UNTIL(&k, !tree_group_in(job, sid)); // once the last has been reaped
	prockit_release(&k);
}
END_TEST

// --- the end of a session ---

struct ending {
	int calls, rc;
};

static void on_done(void *arg, int rc)
{
	struct ending *e = arg;
	e->calls++;
	e->rc = rc;
}

START_TEST(session_ends_politely)
{
	struct prockit k;
	struct ending done = {0};
	prockit_init(&k, &prockit_limits);
	struct proc *p = terminal(&k, "set -m; sleep 100 & sleep 100 & echo up; read x");
	pid_t sid = proc_pid(p);
	PROCKIT_UNTIL(&k, has(p, "up"));
	double start = prockit_time();
	ck_assert_ptr_nonnull(proc_end_session(p, 60000, on_done, &done));
	ck_assert(!done.calls && proc_terminal_id(p) == 0 && !procs_terminal(k.procs, 1));
	PROCKIT_UNTIL(&k, done.calls);
	ck_assert(done.calls == 1 && done.rc == 0 && prockit_time() - start < 10);
	ck_assert(!proc_waitable(p) && tree_session(sid, getpid(), TREE_COUNT) == 0);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->sig == SIGHUP || proc_end(p)->sig == SIGTERM);
	prockit_turns_for(&k, 0.1);
	ck_assert_int_eq(done.calls, 1);
	prockit_release(&k);
}
END_TEST

START_TEST(stubborn_session_is_killed)
{
	struct prockit k;
	struct ending done = {0};
	prockit_init(&k, &prockit_limits);
	struct proc *p =
		terminal(&k, "set -m; trap '' HUP TERM; sleep 100 & sleep 100 & echo up; while :; do sleep 100; done");
	PROCKIT_UNTIL(&k, has(p, "up"));
	double start = prockit_time();
	ck_assert_ptr_nonnull(proc_end_session(p, 150, on_done, &done));
	prockit_turns_for(&k, 0.1);
	ck_assert(!done.calls && proc_waitable(p));
	PROCKIT_UNTIL(&k, done.calls);
	ck_assert(done.rc == 0 && prockit_time() - start >= 0.15);
	ck_assert_int_eq(tree_session(proc_pid(p), getpid(), TREE_COUNT), 0);
	PROCKIT_UNTIL(&k, procs_alone(k.procs));
	ck_assert_int_eq(proc_end(p)->sig, SIGKILL);
	prockit_release(&k);
}
END_TEST

// Its parent has left the session, and hangs below us by itself.
START_TEST(member_below_a_stranger_is_found)
{
	struct prockit k;
	struct ending done = {0};
	prockit_init(&k, &prockit_limits);
	struct proc *p = terminal(&k,
		"trap '' HUP; (sleep 100 & exec setsid sh -c 'read x <$GATE; echo up >$DIR/mark; exec sleep 100') & "
		"read x; exit 1");
	pid_t sid = proc_pid(p);
	char mark[96];
	snprintf(mark, sizeof mark, "%s/mark", k.dir);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, access(mark, F_OK) == 0);
	ck_assert_int_eq(proc_write(p, "x\n", 2), 0);
	PROCKIT_UNTIL(&k, !proc_waitable(p));
	PROCKIT_UNTIL(&k, tree_session(sid, getpid(), TREE_COUNT) == 0);
	DIR *all = opendir("/proc");
	size_t found = 0;
	ck_assert_ptr_nonnull(all);
	while (!tree_sweep(all, 10, sid, TREE_COUNT, &found))
		;
	closedir(all);
	ck_assert_uint_eq(found, 1);
	ck_assert_ptr_nonnull(proc_end_session(p, 60000, on_done, &done));
	PROCKIT_UNTIL(&k, done.calls);
	ck_assert_int_eq(done.rc, 0);
	ck_assert(!procs_alone(k.procs)); // the stranger lives
	prockit_release(&k);
}
END_TEST

// The leader has gone and is forgotten; what it left is found all the same.
START_TEST(ending_outlives_its_terminal)
{
	struct prockit k;
	struct proc_limits limits = prockit_limits;
	struct ending done = {0};
	limits.retention_ms = 200;
	limits.grace_ms = 0;
	prockit_init(&k, &limits);
	struct proc *p = terminal(&k, "trap '' HUP TERM; sleep 100 & exit 3");
	pid_t sid = proc_pid(p);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(tree_session(sid, getpid(), TREE_COUNT), 1);
	ck_assert_ptr_nonnull(proc_end_session(p, 500, on_done, &done));
	PROCKIT_UNTIL(&k, !procs_find(k.procs, sid));
	ck_assert_int_eq(done.calls, 0);
	PROCKIT_UNTIL(&k, done.calls);
	ck_assert_int_eq(done.rc, 0);
	PROCKIT_UNTIL(&k, procs_alone(k.procs));
	prockit_release(&k);
}
END_TEST

START_TEST(ending_is_forgotten)
{
	struct prockit k;
	struct ending done = {0};
	prockit_init(&k, &prockit_limits);
	struct proc *p = terminal(&k, "trap '' HUP TERM; echo up; while :; do sleep 100; done");
	PROCKIT_UNTIL(&k, has(p, "up"));
	proc_ending_forget(proc_end_session(p, 100, on_done, &done));
	PROCKIT_UNTIL(&k, procs_alone(k.procs));
	prockit_turns_for(&k, 0.1);
	ck_assert_int_eq(done.calls, 0);
	// Another one is under way when its table is freed.
	struct procs *mine = procs_new(k.loop, &prockit_limits, &k.base), *kept = k.procs;
	k.procs = mine;
	p = terminal(&k, "exec sleep 100");
	ck_assert_ptr_nonnull(proc_end_session(p, 60000, on_done, &done));
	k.procs = kept;
	procs_free(mine);
	prockit_turns_for(&k, 0.1);
	ck_assert_int_eq(done.calls, 0);
	prockit_release(&k);
}
END_TEST

static int start_and_end(void *arg)
{
	struct prockit *k = arg;
	const char *const argv[] = {"/bin/true", NULL};
	struct proc *p = NULL;
	struct procs *mine = procs_new(k->loop, &prockit_limits, &k->base), *kept = k->procs;
	if (!mine)
		return -ENOMEM;
	k->procs = mine;
	int rc = try_terminal(k, argv, &p);
	if (rc == 0) {
		rc = proc_write(p, "x", 1);
		rc = rc == -EPIPE ? 0 : rc;
		if (!proc_end_session(p, 1000, NULL, NULL))
			rc = proc_terminal_id(p) ? -ENOMEM : 1;
		waitpid(proc_pid(p), NULL, 0);
	}
	k->procs = kept;
	procs_free(mine);
	return rc == 0 && oom_failed() ? -ENOMEM : rc; // without memory for a list the leader's group is told
}

START_TEST(out_of_memory_leaves_no_terminal)
{
	struct prockit k;
	prockit_init(&k, &prockit_limits);
	ev_signal_stop(k.loop, &k.chld);
	for (int i = 0; i < 8; i++) // so that libev's own arrays have room
		terminal(&k, "exit 0");
	while (procs_living(k.procs)) {
		procs_reap(k.procs);
		prockit_turn(&k);
	}
	OOM_LOOP(start_and_end, &k);
	prockit_release(&k);
}
END_TEST

Suite *pty_suite(void)
{
	Suite *s = suite_create("pty");
	TCase *tc = tcase_create("pair");
	tcase_add_test(tc, pair_is_ready_to_use);
	tcase_add_test(tc, pair_without_descriptors);
	suite_add_tcase(s, tc);
	tc = tcase_create("terminals");
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, terminal_lives_and_ends);
	tcase_add_test(tc, terminal_that_cannot_start_takes_nothing);
	tcase_add_test(tc, terminal_closed_by_all_goes_on);
	tcase_add_test(tc, survivor_keeps_its_terminal);
	tcase_add_test(tc, stale_foreground_group_is_not_signalled);
	tcase_add_test(tc, groups_of_a_session);
	suite_add_tcase(s, tc);
	tc = tcase_create("ends");
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, session_ends_politely);
	tcase_add_test(tc, stubborn_session_is_killed);
	tcase_add_test(tc, member_below_a_stranger_is_found);
	tcase_add_test(tc, ending_outlives_its_terminal);
	tcase_add_test(tc, ending_is_forgotten);
	tcase_add_test(tc, out_of_memory_leaves_no_terminal);
	suite_add_tcase(s, tc);
	return s;
}
