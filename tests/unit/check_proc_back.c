// SPDX-License-Identifier: Apache-2.0
// What is not plain about taking back: pipes that outlive their command, starts that were cut, records that are damaged, upgrades.
#include "crashkit.h"
#include "daemon/core/store_priv.h"
#include "daemon/io.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static bool gone(pid_t pid)
{
	siginfo_t si = {0};
	return waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG | WNOWAIT) < 0 || si.si_pid == pid;
}

// --- pipes that others hold ---

// _i: 1: the command is not kept any more when the daemon dies.
START_TEST(a_grandchild_writes_on_after_a_crash)
{
	struct crashkit s;
	struct proc_limits limits = prockit_limits;
	char mark[128];
	limits.grace_ms = 30;
	crashkit_init(&s, &limits);
	struct proc *p = prockit_start(
		&s.k, "exec 2>&1; (read x <$GATE; echo late && : >$DIR/mark; read x <$GATE) 2>/dev/null & echo early");
	pid_t pid = proc_pid(p);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	if (_i)
		procs_forget(s.k.procs);
	for (int i = 0; i < 2; i++) {
		crashkit_restart(&s, 0, _i ? 0 : 1);
		ck_assert_int_eq(procs_find(s.k.procs, pid) != NULL, !_i);
		PROCKIT_UNTIL(&s.k, crashkit_held(&s) == 1);
	}
	snprintf(mark, sizeof mark, "%s/mark", s.k.dir);
	prockit_open_gate(&s.k);
	PROCKIT_UNTIL(&s.k, access(mark, F_OK) == 0);
	ck_assert_uint_eq(crashkit_used(&s), 1);
	prockit_open_gate(&s.k);
	PROCKIT_UNTIL(&s.k, crashkit_held(&s) == 0);
	procs_forget(s.k.procs);
	ck_assert_uint_eq(crashkit_used(&s), 0);
	crashkit_release(&s);
}
END_TEST

// The init part had no room for it: what the pipe held is gone, which is told, and the end is not.
START_TEST(an_end_that_was_not_kept)
{
	struct crashkit s;
	struct prockit_reader r;
	struct procs_taken taken;
	crashkit_init(&s, &prockit_limits);
	pid_t pid = proc_pid(prockit_start(&s.k, "trap '' PIPE; read x <$GATE; echo lost; echo kept >&2; exit 3"));
	PROCKIT_UNTIL(&s.k, crashkit_held(&s) == 3);
	crashkit_crash(&s);
	int *fd = &s.init.store->slots[0].fd[STORE_STDOUT];
	close(*fd - 1);
	*fd = 0;
	crashkit_back(&s, &taken);
	ck_assert(taken.living == 1 && proc_pid(crashkit_only(&s)) == pid);
	struct proc *p = crashkit_only(&s);
	prockit_open_gate(&s.k);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(proc_end(p)->code, 3);
	prockit_output(&r, p);
	ck_assert(r.r.lost && strstr(r.text, "kept\n") && !strstr(r.text, "lost\n"));
	crashkit_release(&s);
}
END_TEST

// --- a start that was cut ---

START_TEST(a_pid_that_comes_late)
{
	struct crashkit s;
	struct procs_taken taken;
	crashkit_init(&s, &prockit_limits);
	struct proc *p = prockit_start(&s.k, "read x <$GATE; echo here; exit 2");
	int32_t pid = proc_pid(p);
	struct store_entry *e = &s.init.store->table[0];
	crashkit_crash(&s);
	e->life.pid = 0;
	crashkit_back(&s, &taken);
	ck_assert(taken.living == 0 && taken.ended == 0 && taken.refused == 0);
	prockit_turns_for(&s.k, 0.05);
	ck_assert(!procs_first(s.k.procs) && !procs_childless(s.k.procs));
	e->life.pid = pid;
	PROCKIT_UNTIL(&s.k, procs_first(s.k.procs));
	p = crashkit_only(&s);
	ck_assert_int_eq(proc_pid(p), pid);
	prockit_open_gate(&s.k);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(proc_end(p)->code, 2);
	crashkit_release(&s);
}
END_TEST

// _i: how far it had come: 0: the slot alone, 1: its record, 2: its pipes.
START_TEST(a_start_that_never_was)
{
	struct crashkit s;
	struct procs_taken taken;
	crashkit_init(&s, &prockit_limits);
	struct proc *p = prockit_start(&s.k, "sleep 100");
	pid_t pid = proc_pid(p);
	struct store_slot *slot = store_take(s.store);
	size_t n;
	const void *record = store_record_get(crashkit_slot(&s, 0), &n);
	if (_i >= 1)
		ck_assert_int_eq(store_record_put(slot, record, n), 0);
	int fds[2], ends[STORE_ENDS] = {-1, -1, -1, -1, -1};
	ck_assert_int_eq(io_pipe(fds), 0);
	ends[STORE_STDOUT] = fds[0];
	if (_i >= 2)
		ck_assert_int_eq(store_hand(slot, ends), 0);
	io_close(&fds[0]);
	io_close(&fds[1]);
	crashkit_crash(&s);
	crashkit_back(&s, &taken);
	ck_assert(taken.living == 1 && taken.refused == 0);
	PROCKIT_UNTIL(&s.k, crashkit_used(&s) == 1);
	PROCKIT_UNTIL(&s.k, crashkit_held(&s) == 3);
	ck_assert_int_eq(proc_pid(crashkit_only(&s)), pid);
	crashkit_release(&s);
}
END_TEST

// --- what cannot be read ---

static void damage(struct crashkit *s, int what)
{
	struct store_slot *slot = &s->init.store->slots[0];
	size_t n;
	slot->store = s->init.store;
	unsigned char *record = (unsigned char *)(uintptr_t)store_record_get(slot, &n);
	ck_assert_ptr_nonnull(record);
	if (what == 0)
		record[n / 2] ^= 1;
	else if (what == 1)
		record[0] ^= 1; // our own version, behind the store's
	if (what == 2)
		memset(store_log_front(slot), 0x5a, 64);
	if (what == 1) // with a checksum that fits
		ck_assert_int_eq(store_record_put(slot, record, n), 0);
}

START_TEST(what_cannot_be_read_is_ended)
{
	struct crashkit s;
	struct procs_taken taken;
	crashkit_init(&s, &prockit_limits);
	pid_t pid = proc_pid(prockit_start(&s.k, "trap '' TERM HUP; read x"));
	crashkit_crash(&s);
	damage(&s, _i);
	crashkit_back(&s, &taken);
	ck_assert(taken.living == 0 && taken.ended == 0 && taken.refused == 1);
	PROCKIT_UNTIL(&s.k, gone(pid));
	ck_assert_uint_eq(crashkit_used(&s), 0);
	PROCKIT_UNTIL(&s.k, crashkit_held(&s) == 0);
	crashkit_release(&s);
}
END_TEST

// Nobody is killed for a number that makes no sense.
START_TEST(a_pid_that_makes_no_sense)
{
	struct crashkit s;
	struct procs_taken taken;
	crashkit_init(&s, &prockit_limits);
	pid_t pid = proc_pid(prockit_start(&s.k, "sleep 100"));
	const int32_t wrong[] = {1, -1, -pid, getpid(), getppid(), INT32_MAX, INT32_MIN};
	crashkit_crash(&s);
	s.init.store->table[0].life.pid = wrong[_i];
	crashkit_back(&s, &taken);
	ck_assert(taken.living == 0 && taken.refused == 1 && !procs_first(s.k.procs));
	prockit_turns_for(&s.k, 0.02);
	ck_assert(!gone(pid));
	kill(-pid, SIGKILL);
	crashkit_release(&s);
}
END_TEST

static int take_back(void *arg)
{
	struct crashkit *s = arg;
	struct procs_taken taken;
	struct procs *t = procs_new(s->k.loop, &s->limits, &s->k.base);
	int rc = t ? procs_take_back(t, &taken) : -ENOMEM;
	if (rc == 0 && (taken.living != 1 || taken.refused))
		rc = 1;
	procs_free(t);
	// As the next daemon finds it: what init holds was taken by none of them.
	struct store *kept = s->init.store;
	for (int e = 0; e < STORE_ENDS; e++) {
		int fd = kept->slots[0].fd[e];
		if (fd > 0 && s->store->slots[0].fd[e] == 0)
			s->store->slots[0].fd[e] = dup(fd - 1) + 1;
	}
	return rc;
}

START_TEST(without_memory_all_stays_for_the_next)
{
	struct crashkit s;
	crashkit_init(&s, &prockit_limits);

	pid_t pid = proc_pid(prockit_start(&s.k, "echo x; sleep 100"));
	crashkit_restart(&s, 1, 0);
	procs_free(s.k.procs);
	OOM_LOOP(take_back, &s);
	struct procs_taken taken;
	s.k.procs = NULL;
	store_free(s.store);
	init_store_gone(&s.init);
	crashkit_back(&s, &taken);
	ck_assert(taken.living == 1 && proc_pid(crashkit_only(&s)) == pid);
	crashkit_release(&s);
}
END_TEST

// --- upgrades ---

static void written(void *arg, int rc)
{
	*(int *)arg = rc;
}

// Input that is still queued goes on to the next daemon; _i: its end too.
// Also not where files may be smaller than the store, as which it counts.
START_TEST(nothing_is_lost_when_the_daemon_leaves)
{
	enum { MUCH = 400000 };
	const struct rlimit small = {65536, RLIM_INFINITY}, all = {RLIM_INFINITY, RLIM_INFINITY};
	struct crashkit s;
	struct prockit_reader r;
	struct proc_input *in;
	int done = 1;
	char *data = malloc(MUCH), want[32];
	ck_assert_ptr_nonnull(data);
	memset(data, 'x', MUCH);
	crashkit_init(&s, &prockit_limits);
	struct proc *p = prockit_start(&s.k, "echo a; read x <$GATE; cat | tr -d y | wc -c");
	prockit_attach(&r, p, true);
	PROCKIT_UNTIL(&s.k, output_total(proc_output(p), OUTPUT_STDOUT) == 2);
	ck_assert_int_eq(proc_write(p, data, 90000), 0);
	ck_assert_int_eq(proc_write_wait(p, data, MUCH, written, &done, &in), 1);
	if (_i)
		ck_assert_int_eq(proc_close_stdin(p), 0);
	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &small);
	procs_leave(s.k.procs);
	setrlimit(RLIMIT_FSIZE, &all);
	const struct proc_end *end = proc_stream_end(p);
	ck_assert(end && end->leaving && !end->stopped && !proc_end(p) && procs_leaving(s.k.procs));
	ck_assert_int_eq(proc_write(p, "x", 1), -ERESTART);
	ck_assert_int_eq(prockit_try(&s.k, "true", 0, false, &p), -ERESTART);
	PROCKIT_UNTIL(&s.k, done == 0);
	prockit_open_gate(&s.k);
	prockit_turns_for(&s.k, 0.05);
	output_detach(&r.r);
	crashkit_restart(&s, 1, 0);
	p = crashkit_only(&s);
	if (!_i)
		ck_assert_int_eq(proc_close_stdin(p), 0);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	prockit_output(&r, p);
	snprintf(want, sizeof want, "a\n%d\n", MUCH + 90000);
	ck_assert_str_eq(r.text, want);
	ck_assert(!r.r.lost);
	free(data);
	crashkit_release(&s);
}
END_TEST

// Not even a process that ends meanwhile, with its output unread, has an end here.
START_TEST(who_ends_while_the_daemon_leaves)
{
	struct crashkit s;
	struct prockit_reader r;
	struct proc_limits limits = prockit_limits;
	limits.grace_ms = 10;
	crashkit_init(&s, &limits);
	struct proc *p = prockit_start(&s.k, "read x <$GATE; echo unread; exit 5");
	procs_leave(s.k.procs);
	prockit_open_gate(&s.k);
	PROCKIT_UNTIL(&s.k, !proc_waitable(p));
	prockit_turns_for(&s.k, 0.05);
	ck_assert(!proc_end(p) && output_total(proc_output(p), OUTPUT_STDOUT) == 0);
	crashkit_restart(&s, 1, 0);
	p = crashkit_only(&s);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(proc_end(p)->code, 5);
	prockit_output(&r, p);
	ck_assert_str_eq(r.text, "unread\n");
	crashkit_release(&s);
}
END_TEST

START_TEST(the_end_of_the_sandbox_ends_them_too)
{
	struct crashkit s;
	crashkit_init(&s, &prockit_limits);
	pid_t pid = proc_pid(prockit_start(&s.k, "trap '' TERM; while :; do sleep 1; done"));
	crashkit_restart(&s, 1, 0);
	struct proc *p = crashkit_only(&s);
	prockit_turns_for(&s.k, 0.02);
	ck_assert(!procs_childless(s.k.procs) && !procs_alone(s.k.procs));
	procs_kill_all(s.k.procs);
	ck_assert(proc_state(p) == PROC_ENDED && proc_end(p)->stopped);
	PROCKIT_UNTIL(&s.k, gone(pid));
	crashkit_release(&s);
}
END_TEST

// A process of somebody else's with one below it, for a short time at most.
static void strangers(pid_t *parent, pid_t *child)
{
	int fds[2];
	ck_assert_int_eq(io_pipe(fds), 0);
	pid_t first = fork();
	if (first == 0) {
		if (fork() > 0)
			_exit(0);
		alarm(15);
		pid_t pids[2] = {getpid(), fork()};
		if (pids[1] > 0 && write(fds[1], pids, sizeof pids) == (ssize_t)sizeof pids)
			waitpid(pids[1], NULL, 0);
		else if (pids[1] == 0)
			pause();
		_exit(0);
	}
	pid_t pids[2];
	ck_assert_int_eq(waitpid(first, NULL, 0), first);
	ck_assert_int_eq(read(fds[0], pids, sizeof pids), sizeof pids);
	*parent = pids[0];
	*child = pids[1];
	io_close(&fds[0]);
	io_close(&fds[1]);
}

// What commands of an earlier daemon left behind is a child of the init part, and none of this one's.
START_TEST(the_end_of_the_sandbox_waits_for_strays)
{
	struct crashkit s;
	struct proc_limits limits = prockit_limits;
	pid_t stray;
	strangers(&limits.init, &stray);
	crashkit_init(&s, &limits);
	ck_assert(!procs_childless(s.k.procs) && !procs_alone(s.k.procs));
	ck_assert_int_eq(kill(stray, SIGKILL), 0);
	PROCKIT_UNTIL(&s.k, procs_alone(s.k.procs));
	crashkit_release(&s);
}
END_TEST

Suite *proc_back_suite(void)
{
	Suite *s = suite_create("proc_back");
	TCase *t = tcase_create("back");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_loop_test(t, a_grandchild_writes_on_after_a_crash, 0, 2);
	tcase_add_test(t, an_end_that_was_not_kept);
	tcase_add_test(t, a_pid_that_comes_late);
	tcase_add_loop_test(t, a_start_that_never_was, 0, 3);
	tcase_add_loop_test(t, what_cannot_be_read_is_ended, 0, 3);
	tcase_add_loop_test(t, a_pid_that_makes_no_sense, 0, 7);
	tcase_add_test(t, without_memory_all_stays_for_the_next);
	tcase_add_loop_test(t, nothing_is_lost_when_the_daemon_leaves, 0, 2);
	tcase_add_test(t, who_ends_while_the_daemon_leaves);
	tcase_add_test(t, the_end_of_the_sandbox_ends_them_too);
	tcase_add_test(t, the_end_of_the_sandbox_waits_for_strays);
	return s;
}
