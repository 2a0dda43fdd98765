// SPDX-License-Identifier: Apache-2.0
#include "crashkit.h"
#include "daemon/core/store_priv.h"
#include "daemon/io.h"
#include "suites.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// --- while it lives ---

START_TEST(a_process_has_its_place_in_the_store)
{
	struct crashkit s;
	crashkit_init(&s, &prockit_limits);
	struct proc *p = prockit_start(&s.k, "read x");
	struct store_slot *slot = crashkit_slot(&s, 0);
	PROCKIT_UNTIL(&s.k, crashkit_held(&s) == 3);
	ck_assert_uint_eq(crashkit_used(&s), 1);
	ck_assert_int_eq(store_life(slot)->pid, proc_pid(p));
	ck_assert_uint_eq(store_life(slot)->ended, 0);
	ck_assert_int_eq(proc_write(p, "\n", 1), 0);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	ck_assert_uint_eq(store_life(slot)->ended, 1);
	ck_assert(store_life(slot)->code == CLD_EXITED && store_life(slot)->status == 0);
	PROCKIT_UNTIL(&s.k, crashkit_held(&s) == 0); // kept, but for its output alone
	ck_assert_uint_eq(crashkit_used(&s), 1);
	procs_forget(s.k.procs);
	ck_assert_uint_eq(crashkit_used(&s), 0);
	crashkit_release(&s);
}
END_TEST

START_TEST(closed_stdin_is_closed_everywhere)
{
	struct crashkit s;
	struct prockit_reader r;
	crashkit_init(&s, &prockit_limits);
	struct proc *p = prockit_start(&s.k, "cat; echo end");
	ck_assert_int_eq(proc_write(p, "x\n", 2), 0);
	ck_assert_int_eq(proc_close_stdin(p), 0);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	prockit_output(&r, p);
	ck_assert_str_eq(r.text, "x\nend\n");
	crashkit_release(&s);
}
END_TEST

START_TEST(what_does_not_start_leaves_nothing)
{
	struct crashkit s;
	struct proc *p;
	crashkit_init(&s, &prockit_limits);
	const char *const argv[] = {"/nonexistent", NULL};
	struct proc_spec spec = {.run = {.path = argv[0], .argv = argv, .env = s.k.env, .cwd = "/"},
		.kind = PROC_TERMINAL,
		.command = "x",
		.size = {24, 80}};
	enum spawn_step step;
	for (int i = 0; i < 40; i++) {
		spec.kind = i % 2 ? PROC_TERMINAL : PROC_EXEC;
		ck_assert_int_lt(proc_start(s.k.procs, &spec, &p, &step), 0);
		ck_assert_int_eq(step, SPAWN_EXEC);
		prockit_turn(&s.k);
	}
	PROCKIT_UNTIL(&s.k, crashkit_held(&s) == 0);
	ck_assert_uint_eq(crashkit_used(&s), 0);
	crashkit_release(&s);
}
END_TEST

// The ended make room for those that start; beyond that a command runs without.
START_TEST(a_full_store_stops_nobody)
{
	struct crashkit s;
	struct proc *p;
	crashkit_init(&s, &prockit_limits);
	for (int i = 0; i < CRASHKIT_SLOTS; i++) {
		p = prockit_start(&s.k, "exit 1");
		PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	}
	ck_assert_uint_eq(crashkit_used(&s), CRASHKIT_SLOTS);
	for (int i = 0; i < CRASHKIT_SLOTS + 2; i++)
		p = prockit_start(&s.k, "read x <$GATE");
	ck_assert_uint_eq(crashkit_used(&s), CRASHKIT_SLOTS);
	ck_assert_uint_eq(procs_living(s.k.procs), CRASHKIT_SLOTS + 2);
	for (int i = 0; i < CRASHKIT_SLOTS + 2; i++)
		prockit_open_gate(&s.k);
	PROCKIT_UNTIL(&s.k, procs_living(s.k.procs) == 0);
	crashkit_release(&s);
}
END_TEST

// What does not fit into a record is told shorter; who it is stays.
START_TEST(a_command_line_beyond_the_record)
{
	struct crashkit s;
	char *large = malloc(30000), *value = malloc(30000);
	crashkit_init(&s, &prockit_limits);
	memset(large, 'x', 29999);
	memset(value, 'V', 29999);
	large[29999] = value[29999] = '\0';
	value[1] = '=';
	const char *const argv[] = {"/bin/sh", "-c", "read x <$GATE; exit 4", large, NULL}, *const env[] = {
												    value, NULL};
	struct asked asked = {.argv = _i ? argv : env, .env = env, .tag = "tag"};
	struct proc_spec spec = {.run = {.path = argv[0], .argv = argv, .env = s.k.env, .cwd = "/"},
		.command = _i ? large : "short",
		.asked = &asked};
	enum spawn_step step;
	struct proc *p;
	ck_assert_int_eq(proc_start(s.k.procs, &spec, &p, &step), 0);
	crashkit_restart(&s, 1, 0);
	p = procs_tagged(s.k.procs, "tag");
	ck_assert_ptr_nonnull(p);
	ck_assert(proc_asked(p)->argv && proc_asked(p)->env);
	ck_assert_uint_eq(strlen(proc_command(p)), _i ? 1023 : 5);
	prockit_open_gate(&s.k);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(proc_end(p)->code, 4);
	free(large);
	free(value);
	crashkit_release(&s);
}
END_TEST

// --- taken back ---

START_TEST(it_is_the_same_process)
{
	struct crashkit s;
	struct prockit_reader r;
	crashkit_init(&s, &prockit_limits);
	struct proc *p = prockit_start(&s.k, "echo one; read x; echo $x; read x <$GATE; echo $x >&2; exit 7");
	pid_t pid = proc_pid(p);
	int64_t started = proc_started_ms(p);
	prockit_attach(&r, p, false);
	PROCKIT_UNTIL(&s.k, strcmp(r.text, "one\n") == 0);
	output_detach(&r.r);
	for (int i = 0; i < 3; i++) {
		crashkit_restart(&s, 1, 0);
		p = crashkit_only(&s);
		ck_assert(proc_pid(p) == pid && proc_started_ms(p) == started && proc_kind(p) == PROC_EXEC);
		ck_assert_str_eq(proc_session_id(p), "session");
		ck_assert_int_eq(strncmp(proc_command(p), "echo one", 8), 0);
		ck_assert(proc_waitable(p) && procs_find(s.k.procs, pid) == p && !procs_childless(s.k.procs));
		ck_assert_int_eq(proc_signal(p, 0, false), 0);
		prockit_turns_for(&s.k, 0.02);
	}
	prockit_attach(&r, p, false);
	ck_assert_int_eq(proc_write(p, "two\n", 4), 0);
	PROCKIT_UNTIL(&s.k, strcmp(r.text, "one\ntwo\n") == 0);
	output_detach(&r.r);
	crashkit_restart(&s, 1, 0);
	prockit_open_gate(&s.k);
	p = crashkit_only(&s);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->code == 7 && !proc_end(p)->sig);
	prockit_output(&r, p);
	ck_assert_str_eq(r.text, "one\ntwo\ngo\n");
	ck_assert(!r.r.lost && output_total(proc_output(p), OUTPUT_STDERR) == 3);
	PROCKIT_UNTIL(&s.k, crashkit_held(&s) == 0);
	crashkit_release(&s);
}
END_TEST

// Its output waits in the pipes, its end in the slot.
START_TEST(one_that_ends_without_a_daemon)
{
	struct crashkit s;
	struct prockit_reader r;
	crashkit_init(&s, &prockit_limits);
	struct proc *p = prockit_start(&s.k, "read x <$GATE; echo late; echo err >&2; exit 9");
	pid_t pid = proc_pid(p);
	crashkit_crash(&s);
	prockit_open_gate(&s.k);
	crashkit_init_reaps(&s, pid);
	struct procs_taken taken;
	crashkit_back(&s, &taken);
	ck_assert(taken.living == 1 && taken.ended == 0 && taken.refused == 0);
	p = crashkit_only(&s);
	prockit_attach(&r, p, false);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->code == 9 && r.n == 9 && !r.r.lost && strstr(r.text, "late\n"));
	ck_assert_int_eq(proc_signal(p, 0, false), -ESRCH);
	output_detach(&r.r);
	crashkit_release(&s);
}
END_TEST

START_TEST(one_that_has_ended_before_the_crash)
{
	struct crashkit s;
	struct prockit_reader r;
	struct proc_limits limits = prockit_limits;
	limits.retention_ms = 1500;
	crashkit_init(&s, &limits);
	struct proc *p = prockit_start(&s.k, "echo kept; kill -QUIT $$");
	pid_t pid = proc_pid(p);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	for (int i = 0; i < 2; i++) {
		crashkit_restart(&s, 0, 1);
		p = procs_find(s.k.procs, pid);
		ck_assert_ptr_nonnull(p);
		ck_assert(proc_state(p) == PROC_ENDED && proc_end(p)->sig == SIGQUIT && proc_end(p)->code == -1);
		ck_assert(procs_living(s.k.procs) == 0 && procs_childless(s.k.procs));
		prockit_output(&r, p);
		ck_assert_str_eq(r.text, "kept\n");
	}
	PROCKIT_UNTIL(&s.k, !procs_find(s.k.procs, pid)); // its retention goes on where it was
	ck_assert_uint_eq(crashkit_used(&s), 0);
	crashkit_release(&s);
}
END_TEST

static void on_end(void *arg, const struct proc *p)
{
	(void)p;
	++*(int *)arg;
}

// Whoever asks before the loop runs is told; a second daemon does not tell again.
START_TEST(ends_are_told_once)
{
	struct crashkit s;
	struct procs_taken taken;
	int told = 0;
	crashkit_init(&s, &prockit_limits);
	pid_t pid = proc_pid(prockit_start(&s.k, "exit 3"));
	crashkit_crash(&s);
	crashkit_init_reaps(&s, pid);
	crashkit_back(&s, &taken);
	procs_reap(s.k.procs);
	ck_assert_ptr_null(proc_end(crashkit_only(&s)));
	proc_on_end(crashkit_only(&s), on_end, &told);
	PROCKIT_UNTIL(&s.k, told == 1);
	crashkit_restart(&s, 0, 1);
	prockit_turns_for(&s.k, 0.05);
	ck_assert_int_eq(told, 1);
	crashkit_release(&s);
}
END_TEST

START_TEST(a_terminal_goes_on)
{
	struct crashkit s;
	struct prockit_reader r;
	crashkit_init(&s, &prockit_limits);
	const char *const argv[] = {"/bin/sh", "-c", "stty -echo; echo up; read x; stty size; read x; exit 6", NULL};
	struct proc_spec spec = {.run = {.path = argv[0], .argv = argv, .env = s.k.env, .cwd = "/"},
		.kind = PROC_TERMINAL,
		.command = "terminal",
		.size = {24, 80}};
	enum spawn_step step;
	struct proc *p;
	ck_assert_int_eq(proc_start(s.k.procs, &spec, &p, &step), 0);
	PROCKIT_UNTIL(&s.k, output_total(proc_output(p), OUTPUT_PTY) == 4);
	ck_assert_int_eq(proc_terminal_id(p), 1);
	crashkit_restart(&s, 1, 0);
	p = procs_terminal(s.k.procs, 1);
	ck_assert_ptr_nonnull(p);
	struct pty_size size = {30, 99};
	pid_t group;
	ck_assert_int_eq(proc_resize(p, &size), 0);
	ck_assert_int_eq(proc_foreground(p, &group), 0);
	ck_assert_int_eq(group, proc_pid(p));
	ck_assert_int_eq(proc_write(p, "\n", 1), 0);
	prockit_attach(&r, p, false);
	PROCKIT_UNTIL(&s.k, strcmp(r.text, "up\r\n30 99\r\n") == 0);
	output_detach(&r.r);
	crashkit_restart(&s, 1, 0);
	p = procs_terminal(s.k.procs, 1);
	ck_assert_int_eq(proc_write(p, "\n", 1), 0);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(proc_end(p)->code, 6);
	PROCKIT_UNTIL(&s.k, crashkit_held(&s) == 0);
	// The next one has a number of its own.
	ck_assert_int_eq(proc_start(s.k.procs, &spec, &p, &step), 0);
	ck_assert_int_eq(proc_terminal_id(p), 2);
	crashkit_release(&s);
}
END_TEST

static void ended(void *arg, int rc)
{
	*(int *)arg = rc;
}

START_TEST(a_session_that_was_being_ended_ends)
{
	struct crashkit s;
	crashkit_init(&s, &prockit_limits);
	const char *const argv[] = {"/bin/sh", "-c", "trap '' HUP TERM; echo up; while :; do sleep 1; done", NULL};
	struct proc_spec spec = {.run = {.path = argv[0], .argv = argv, .env = s.k.env, .cwd = "/"},
		.kind = PROC_TERMINAL,
		.command = "terminal",
		.size = {24, 80}};
	enum spawn_step step;
	struct proc *p;
	int rc = 1;
	ck_assert_int_eq(proc_start(s.k.procs, &spec, &p, &step), 0);
	PROCKIT_UNTIL(&s.k, output_total(proc_output(p), OUTPUT_PTY) > 0);
	ck_assert_ptr_nonnull(proc_end_session(p, 60000, ended, &rc));
	crashkit_restart(&s, 1, 0);
	p = crashkit_only(&s);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->sig == SIGKILL && !proc_terminal_id(p) && rc == 1);
	crashkit_restart(&s, 0, 1);
	ck_assert_ptr_null(procs_terminal(s.k.procs, 1));
	crashkit_release(&s);
}
END_TEST

// --- deadlines ---

START_TEST(a_deadline_that_fell_due_meanwhile)
{
	struct crashkit s;
	struct procs_taken taken;
	struct proc *p;
	crashkit_init(&s, &prockit_limits);
	ck_assert_int_eq(prockit_try(&s.k, "sleep 100", 0.05, false, &p), 0);
	crashkit_crash(&s);
	poll(NULL, 0, 80);
	double start = prockit_time();
	crashkit_back(&s, &taken);
	p = crashkit_only(&s);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->timed_out && proc_end(p)->sig == SIGKILL);
	ck_assert_double_lt(prockit_time() - start, 5);
	pid_t pid = proc_pid(p);
	crashkit_restart(&s, 0, 1);
	ck_assert(proc_end(procs_find(s.k.procs, pid))->timed_out);
	crashkit_release(&s);
}
END_TEST

START_TEST(a_deadline_that_is_still_to_come)
{
	struct crashkit s;
	struct proc *p;
	crashkit_init(&s, &prockit_limits);
	double start = prockit_time();
	ck_assert_int_eq(prockit_try(&s.k, "sleep 100", 0.4, false, &p), 0);
	crashkit_restart(&s, 1, 0);
	p = crashkit_only(&s);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->timed_out);
	ck_assert_double_ge(prockit_time() - start, 0.39);
	crashkit_release(&s);
}
END_TEST

START_TEST(who_ended_in_time_was_in_time)
{
	struct crashkit s;
	struct procs_taken taken;
	struct proc *p;
	crashkit_init(&s, &prockit_limits);
	ck_assert_int_eq(prockit_try(&s.k, "exit 8", 0.1, false, &p), 0);
	pid_t pid = proc_pid(p);
	crashkit_crash(&s);
	crashkit_init_reaps(&s, pid);
	poll(NULL, 0, 120);
	crashkit_back(&s, &taken);
	p = crashkit_only(&s);
	PROCKIT_UNTIL(&s.k, proc_state(p) == PROC_ENDED);
	ck_assert(proc_end(p)->code == 8 && !proc_end(p)->timed_out);
	crashkit_release(&s);
}
END_TEST

Suite *proc_store_suite(void)
{
	Suite *s = suite_create("proc_store");
	TCase *t = tcase_create("living");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_test(t, a_process_has_its_place_in_the_store);
	tcase_add_test(t, closed_stdin_is_closed_everywhere);
	tcase_add_test(t, what_does_not_start_leaves_nothing);
	tcase_add_test(t, a_full_store_stops_nobody);
	tcase_add_loop_test(t, a_command_line_beyond_the_record, 0, 2);
	t = tcase_create("taken back");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_test(t, it_is_the_same_process);
	tcase_add_test(t, one_that_ends_without_a_daemon);
	tcase_add_test(t, one_that_has_ended_before_the_crash);
	tcase_add_test(t, ends_are_told_once);
	tcase_add_test(t, a_terminal_goes_on);
	tcase_add_test(t, a_session_that_was_being_ended_ends);
	tcase_add_test(t, a_deadline_that_fell_due_meanwhile);
	tcase_add_test(t, a_deadline_that_is_still_to_come);
	tcase_add_test(t, who_ended_in_time_was_in_time);
	return s;
}
