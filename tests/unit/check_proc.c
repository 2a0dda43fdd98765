// SPDX-License-Identifier: Apache-2.0
#include "oom.h"
#include "prockit.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// --- the life machine ---

START_TEST(exit_first_then_end_of_output)
{
	struct prockit k;
	struct prockit_reader r;
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "(read x <$GATE; echo late) & echo early; exit 3");
	pid_t pid = proc_pid(p);
	ck_assert_int_eq(proc_state(p), PROC_RUNNING);
	ck_assert(proc_waitable(p) && proc_kind(p) == PROC_EXEC && procs_first(k.procs) == p && !proc_next(p));
	ck_assert_str_eq(proc_session_id(p), "session");
	PROCKIT_UNTIL(&k, proc_state(p) != PROC_RUNNING);
	ck_assert_int_eq(proc_state(p), PROC_EXITED);
	ck_assert(!proc_waitable(p) && !proc_end(p) && procs_living(k.procs) == 1 && !procs_alone(k.procs));
	ck_assert_int_eq(proc_signal(p, SIGKILL, true), -ESRCH);
	ck_assert_int_eq(proc_signal(p, SIGKILL, false), -ESRCH);
	ck_assert_int_eq(proc_write(p, "x", 1), -ESRCH);
	ck_assert_int_eq(proc_close_stdin(p), -ESRCH);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert_ptr_eq(procs_find(k.procs, pid), p);
	ck_assert_uint_eq(procs_living(k.procs), 0);
	const struct proc_end *end = proc_end(p);
	ck_assert(end->code == 3 && !end->sig && !end->timed_out && !end->stopped);
	prockit_output(&r, p);
	ck_assert_str_eq(r.text, "early\nlate\n");
	prockit_release(&k);
}
END_TEST

START_TEST(end_of_output_first_then_exit)
{
	struct prockit k;
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "exec >&- 2>&-; read x <$GATE; exit 4");
	PROCKIT_UNTIL(&k, proc_state(p) != PROC_RUNNING);
	ck_assert_int_eq(proc_state(p), PROC_DRAINED);
	prockit_turns_for(&k, 0.1);
	ck_assert(proc_state(p) == PROC_DRAINED && proc_waitable(p) && !proc_end(p));
	ck_assert_int_eq(proc_signal(p, 0, false), 0);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(proc_end(p)->code, 4);
	prockit_release(&k);
}
END_TEST

// Both had happened before the loop looked.
START_TEST(exit_and_end_of_output_at_once)
{
	struct prockit k;
	struct prockit_reader r;
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "echo out; echo err >&2; kill -TERM $$");
	siginfo_t si;
	ck_assert_int_eq(waitid(P_PID, (id_t)proc_pid(p), &si, WEXITED | WNOWAIT), 0);
	prockit_attach(&r, p, false);
	procs_reap(k.procs);
	ck_assert_int_eq(proc_state(p), PROC_ENDED);
	ck_assert(proc_end(p)->code == -1 && proc_end(p)->sig == SIGTERM && !proc_end(p)->timed_out);
	ck_assert_str_eq(r.text, "out\nerr\n");
	ck_assert_uint_eq(output_total(proc_output(p), OUTPUT_STDOUT), 4);
	ck_assert_uint_eq(output_total(proc_output(p), OUTPUT_STDERR), 4);
	int64_t took = proc_duration_ms(p);
	prockit_turns_for(&k, 0.05);
	ck_assert_int_eq(proc_duration_ms(p), took);
	output_detach(&r.r);
	prockit_release(&k);
}
END_TEST

START_TEST(a_grandchild_with_the_pipe_holds_nothing_up)
{
	struct prockit k;
	struct prockit_reader r;
	struct proc_limits limits = prockit_limits;
	char mark[128];
	limits.grace_ms = 100;
	prockit_init(&k, &limits);
	double start = prockit_time();
	struct proc *p = prockit_start(
		&k, "(read x <$GATE; echo late && echo more >&2 && : >$DIR/mark; read x <$GATE) & echo early");
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert_double_ge(prockit_time() - start, 0.09);
	ck_assert(proc_end(p)->code == 0 && procs_living(k.procs) == 0 && !procs_alone(k.procs));
	// What it writes later goes nowhere, and does not kill it.
	snprintf(mark, sizeof mark, "%s/mark", k.dir);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, access(mark, F_OK) == 0);
	prockit_turns_for(&k, 0.05);
	prockit_output(&r, p);
	ck_assert_str_eq(r.text, "early\n");
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, procs_alone(k.procs)); // the adopted grandchild is reaped too
	ck_assert_int_eq(proc_end(p)->code, 0);
	prockit_release(&k);
}
END_TEST

// --- the deadline ---

START_TEST(a_deadline_ends_the_whole_tree)
{
	struct prockit k;
	struct proc *p;
	prockit_init(&k, &prockit_limits);
	ck_assert_int_eq(prockit_try(&k, "setsid sleep 100 & sleep 100 & wait", 0.15, false, &p), 0);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->timed_out && proc_end(p)->sig == SIGKILL && proc_end(p)->code == -1);
	ck_assert_int_ge(proc_duration_ms(p), 150);
	PROCKIT_UNTIL(&k, procs_alone(k.procs));
	prockit_release(&k);
}
END_TEST

START_TEST(who_ended_before_the_deadline_was_in_time)
{
	struct prockit k;
	struct proc *p;
	siginfo_t si;
	prockit_init(&k, &prockit_limits);
	ck_assert_int_eq(prockit_try(&k, "exit 7", 0.2, false, &p), 0);
	ck_assert_int_eq(waitid(P_PID, (id_t)proc_pid(p), &si, WEXITED | WNOWAIT), 0);
	poll(NULL, 0, 300); // the loop was busy: it sees the exit and the deadline at once
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->code == 7 && !proc_end(p)->timed_out);
	// Killed, but not by a deadline.
	ck_assert_int_eq(prockit_try(&k, "kill -KILL $$", 60, false, &p), 0);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->sig == SIGKILL && !proc_end(p)->timed_out);
	prockit_release(&k);
}
END_TEST

START_TEST(time_that_the_daemon_was_stopped_does_not_count)
{
	struct prockit k;
	struct proc *p;
	prockit_init(&k, &prockit_limits);
	ck_assert_int_eq(prockit_try(&k, "sleep 100", 0.8, false, &p), 0);
	prockit_turn(&k);
	poll(NULL, 0, 3200);
	procs_resumed(k.procs);
	prockit_turns_for(&k, 0.2);
	ck_assert_int_eq(proc_state(p), PROC_RUNNING); // though it has "run" for four times its time
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->timed_out);
	prockit_release(&k);
}
END_TEST

// --- what is kept ---

static pid_t run_to_end(struct prockit *k, const char *script)
{
	struct proc *p = prockit_start(k, script);
	pid_t pid = proc_pid(p);
	PROCKIT_UNTIL(k, proc_state(p) == PROC_ENDED);
	return pid;
}

START_TEST(the_ended_are_kept_for_their_time)
{
	struct prockit k;
	struct prockit_reader r;
	struct proc_limits limits = prockit_limits;
	limits.retention_ms = 150;
	prockit_init(&k, &limits);
	double start = prockit_time();
	struct proc *p = prockit_start(&k, "echo x");
	pid_t read_by = proc_pid(p);
	prockit_attach(&r, p, false);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	pid_t other = run_to_end(&k, "echo y");
	PROCKIT_UNTIL(&k, !procs_find(k.procs, other));
	ck_assert_double_ge(prockit_time() - start, 0.14);
	prockit_turns_for(&k, 0.2);
	ck_assert_ptr_eq(procs_find(k.procs, read_by), p); // still read
	output_detach(&r.r);
	PROCKIT_UNTIL(&k, !procs_find(k.procs, read_by));
	prockit_release(&k);
}
END_TEST

START_TEST(the_oldest_ended_go_when_they_are_too_many)
{
	struct prockit k;
	struct proc_limits limits = prockit_limits;
	pid_t pid[6];
	limits.max_ended = 3;
	prockit_init(&k, &limits);
	for (int i = 0; i < 6; i++)
		pid[i] = run_to_end(&k, "true");
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(procs_find(k.procs, pid[i]) != NULL, i >= 3);
	prockit_release(&k);
}
END_TEST

START_TEST(the_oldest_ended_go_when_they_take_too_much)
{
	struct prockit k;
	struct proc_limits limits = prockit_limits;
	pid_t pid[5];
	limits.ended_memory = 250 * 1024;
	prockit_init(&k, &limits);
	for (int i = 0; i < 5; i++)
		pid[i] = run_to_end(&k, "head -c 200000 /dev/zero"); // of each, 64 KiB to 128 KiB are kept
	int kept = 0;
	for (int i = 0; i < 5; i++)
		kept += procs_find(k.procs, pid[i]) != NULL;
	ck_assert(kept >= 1 && kept <= 3);
	ck_assert(procs_find(k.procs, pid[4]) && !procs_find(k.procs, pid[0]));
	prockit_release(&k);
	// The newest stays, however large.
	limits.ended_memory = 1;
	prockit_init(&k, &limits);
	pid[0] = run_to_end(&k, "echo x");
	ck_assert_ptr_nonnull(procs_find(k.procs, pid[0]));
	pid[1] = run_to_end(&k, "echo x");
	ck_assert(!procs_find(k.procs, pid[0]) && procs_find(k.procs, pid[1]));
	prockit_release(&k);
}
END_TEST

START_TEST(no_retention_at_all)
{
	struct prockit k;
	struct proc *p;
	struct proc_limits limits = prockit_limits;
	limits.retention_ms = 0;
	limits.grace_ms = 0;
	prockit_init(&k, &limits);
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(prockit_try(&k, i % 2 ? "echo x" : "sleep 0.05 & exit 1", i, i % 2, &p), 0);
		pid_t pid = proc_pid(p);
		PROCKIT_UNTIL(&k, !procs_find(k.procs, pid));
	}
	prockit_release(&k);
}
END_TEST

START_TEST(no_more_than_max_procs)
{
	struct prockit k;
	struct proc *p[3];
	struct proc_limits limits = prockit_limits;
	limits.max_procs = 2;
	prockit_init(&k, &limits);
	ck_assert_int_eq(prockit_try(&k, "read x <$GATE", 0, false, &p[0]), 0);
	ck_assert_int_eq(prockit_try(&k, "read x <$GATE", 0, false, &p[1]), 0);
	ck_assert_int_eq(prockit_try(&k, "true", 0, false, &p[2]), -EUSERS);
	ck_assert_ptr_eq(proc_next(p[0]), p[1]);
	ck_assert_int_eq(proc_signal(p[0], SIGKILL, true), 0);
	PROCKIT_UNTIL(&k, procs_living(k.procs) == 1);
	ck_assert_int_eq(prockit_try(&k, "true", 0, false, &p[2]), 0);
	prockit_release(&k);
}
END_TEST

// --- ends from outside ---

START_TEST(kill_all_stops_the_living_and_keeps_exits)
{
	struct prockit k;
	struct prockit_reader r;
	prockit_init(&k, &prockit_limits);
	struct proc *lives = prockit_start(&k, "echo before; setsid sleep 100 & read x <$GATE");
	struct proc *exited = prockit_start(&k, "sleep 100 & exit 9");
	prockit_attach(&r, lives, false);
	PROCKIT_UNTIL(&k, proc_state(exited) == PROC_EXITED && r.n);
	procs_kill_all(k.procs);
	ck_assert(proc_state(lives) == PROC_ENDED && proc_state(exited) == PROC_ENDED);
	ck_assert(proc_end(lives)->stopped && !proc_end(exited)->stopped && proc_end(exited)->code == 9);
	ck_assert(output_closed(proc_output(lives)) && procs_living(k.procs) == 0);
	ck_assert_str_eq(r.text, "before\n");
	PROCKIT_UNTIL(&k, procs_alone(k.procs));
	ck_assert(proc_end(lives)->stopped && proc_end(lives)->sig == 0); // reaping it changed nothing
	output_detach(&r.r);
	prockit_release(&k);
}
END_TEST

START_TEST(terminate_is_a_term_for_all)
{
	struct prockit k;
	prockit_init(&k, &prockit_limits);
	// A subshell whose traps are not reset yet would lose the signal: each says when it is up.
	struct proc *p = prockit_start(&k, "trap 'exit 5' TERM; (echo up; exec sleep 100) & echo up; wait");
	PROCKIT_UNTIL(&k, output_held(proc_output(p)) == 6);
	procs_terminate(k.procs);
	PROCKIT_UNTIL(&k, procs_alone(k.procs));
	ck_assert(proc_end(p)->code == 5 && !proc_end(p)->stopped);
	prockit_release(&k);
}
END_TEST

START_TEST(signals_go_to_one_or_to_the_group)
{
	struct prockit k;
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "sh -c 'trap \"exit 1\" USR1; echo up; read x <$GATE; echo alone' & "
					   "trap 'exit 6' USR1; echo up; while :; do wait; done");
	PROCKIT_UNTIL(&k, output_held(proc_output(p)) == 6);
	ck_assert_int_eq(proc_signal(p, 200, true), -EINVAL);
	ck_assert_int_eq(proc_signal(p, 200, false), -EINVAL);
	ck_assert_int_eq(proc_signal(p, SIGUSR1, false), 0);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_EXITED);
	prockit_open_gate(&k); // the other one was not hit
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(proc_end(p)->code, 6);
	ck_assert_uint_eq(output_held(proc_output(p)), 12);
	p = prockit_start(&k, "sleep 100 & sleep 100");
	ck_assert_int_eq(proc_signal(p, SIGKILL, true), 0);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(proc_end(p)->sig, SIGKILL);
	prockit_release(&k);
}
END_TEST

// In a pid namespace of its own, where the next pid can be chosen. The result is the line that failed, or 0.
#define NEED(cond)                                 \
	do {                                       \
		if (!(cond))                       \
			_exit(__LINE__ % 251 + 1); \
	} while (0)

static _Noreturn void reuse_a_pid(void)
{
	struct prockit k;
	struct proc_limits limits = prockit_limits;
	char text[16];
	limits.max_ended = 2;
	prockit_init(&k, &limits);
	struct proc *old = prockit_start(&k, "exit 1");
	pid_t pid = proc_pid(old);
	PROCKIT_UNTIL(&k, proc_state(old) == PROC_ENDED);
	int fd = open("/proc/sys/kernel/ns_last_pid", O_WRONLY | O_CLOEXEC);
	int n = snprintf(text, sizeof text, "%d", (int)pid - 1);
	NEED(fd >= 0 && write(fd, text, (size_t)n) == n);
	struct proc *p = prockit_start(&k, "read x; exit 2");
	NEED(proc_pid(p) == pid);
	NEED(procs_find(k.procs, pid) == p && proc_end(old)->code == 1);
	NEED(proc_close_stdin(p) == 0);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	NEED(proc_end(p)->code == 2 && proc_end(old)->code == 1);
	struct proc *third = prockit_start(&k, "exit 3"); // the old one goes, and its number stays the new one's
	PROCKIT_UNTIL(&k, proc_state(third) == PROC_ENDED);
	NEED(procs_find(k.procs, pid) == p && proc_end(p)->code == 2);
	_exit(0);
}

START_TEST(a_recycled_pid_is_the_new_ones)
{
	int status = 0;
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (unshare(CLONE_NEWPID) < 0)
			_exit(0); // only root may
		pid_t first = fork();
		if (first == 0)
			reuse_a_pid();
		_exit(waitpid(first, &status, 0) == first && status == 0 ? 0 : WEXITSTATUS(status) | 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

// --- out of memory ---

static unsigned long open_set(void)
{
	unsigned long set = 0;
	for (int fd = 0; fd < 64; fd++)
		set |= (unsigned long)(fcntl(fd, F_GETFD) >= 0) << fd;
	return set;
}

static int start_one(void *arg)
{
	struct prockit *k = arg;
	struct proc *p = NULL;
	unsigned long before = open_set();
	struct procs *mine = procs_new(k->loop, &prockit_limits, &k->base), *kept = k->procs;
	if (!mine)
		return -ENOMEM;
	k->procs = mine;
	int rc = prockit_try(k, "exit 3", 50, true, &p);
	if (rc < 0 && k->step != SPAWN_PREPARE)
		rc = 4;
	if (rc == 0)
		waitpid(proc_pid(p), NULL, 0);
	else if (rc == -ENOMEM && (p || procs_living(mine) || procs_first(mine)))
		rc = 1;
	k->procs = kept;
	procs_free(mine);
	if (waitpid(-1, NULL, WNOHANG) != -1 || errno != ECHILD)
		return 2;
	return open_set() == before ? rc : 3;
}

START_TEST(out_of_memory_leaves_nothing_behind)
{
	struct prockit k;
	struct proc *p;
	prockit_init(&k, &prockit_limits);
	ev_signal_stop(k.loop, &k.chld);
	for (int i = 0; i < 8; i++) // so that libev's own arrays have room
		ck_assert_int_eq(prockit_try(&k, "exit 0", 50, true, &p), 0);
	while (procs_living(k.procs)) {
		procs_reap(k.procs);
		prockit_turn(&k);
	}
	OOM_LOOP(start_one, &k);
	ev_signal_start(k.loop, &k.chld);
	prockit_release(&k);
	procs_free(NULL);
}
END_TEST

Suite *proc_suite(void)
{
	Suite *s = suite_create("proc");
	TCase *t = tcase_create("life");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, exit_first_then_end_of_output);
	tcase_add_test(t, end_of_output_first_then_exit);
	tcase_add_test(t, exit_and_end_of_output_at_once);
	tcase_add_test(t, a_grandchild_with_the_pipe_holds_nothing_up);
	tcase_add_test(t, a_deadline_ends_the_whole_tree);
	tcase_add_test(t, who_ended_before_the_deadline_was_in_time);
	tcase_add_test(t, time_that_the_daemon_was_stopped_does_not_count);
	tcase_add_test(t, kill_all_stops_the_living_and_keeps_exits);
	tcase_add_test(t, terminate_is_a_term_for_all);
	tcase_add_test(t, signals_go_to_one_or_to_the_group);
	t = tcase_create("table");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, the_ended_are_kept_for_their_time);
	tcase_add_test(t, the_oldest_ended_go_when_they_are_too_many);
	tcase_add_test(t, the_oldest_ended_go_when_they_take_too_much);
	tcase_add_test(t, no_retention_at_all);
	tcase_add_test(t, no_more_than_max_procs);
	tcase_add_test(t, a_recycled_pid_is_the_new_ones);
	tcase_add_test(t, out_of_memory_leaves_nothing_behind);
	return s;
}
