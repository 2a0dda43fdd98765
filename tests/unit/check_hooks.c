// SPDX-License-Identifier: Apache-2.0
// What others hang on the process table: the end hook, readers that hold nobody up, and forgetting.
#include "prockit.h"
#include "suites.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct seen {
	struct prockit_reader reader;
	int calls;
	size_t read_before; // what the reader had when the hook was called
	struct proc_end end;
	bool log_open;
};

static void on_end(void *arg, const struct proc *p)
{
	struct seen *s = arg;
	s->calls++;
	s->read_before = s->reader.n;
	s->end = *proc_end(p);
	s->log_open = !output_closed(proc_output(p));
}

static int start_hooked(struct prockit *k, const char *script, struct seen *s, struct proc **p)
{
	const char *const argv[] = {"/bin/sh", "-c", script, NULL};
	struct proc_spec spec = {
		.run = {.path = argv[0], .argv = argv, .env = k->env, .cwd = "/"},
		.command = script,
		.on_end = on_end,
		.on_end_arg = s,
	};
	enum spawn_step step;
	return proc_start(k->procs, &spec, p, &step);
}

START_TEST(end_hook_is_called_once)
{
	struct prockit k;
	struct seen s = {0};
	struct proc *p = NULL;
	prockit_init(&k, &prockit_limits);
	ck_assert_int_eq(start_hooked(&k, "echo out; exit 3", &s, &p), 0);
	prockit_attach(&s.reader, p, false);
	PROCKIT_UNTIL(&k, s.calls);
	ck_assert_int_eq(s.end.code, 3);
	ck_assert(!s.end.stopped);
	ck_assert(s.log_open); // readers find the end later
	ck_assert_uint_eq(s.read_before, 4);
	output_detach(&s.reader.r);
	prockit_turns_for(&k, 0.1);
	ck_assert_int_eq(s.calls, 1);
	prockit_release(&k);
	ck_assert_int_eq(s.calls, 1);
}
END_TEST

START_TEST(end_hook_of_a_stopped_process)
{
	struct prockit k;
	struct seen s = {0};
	struct proc *p = NULL;
	prockit_init(&k, &prockit_limits);
	ck_assert_int_eq(start_hooked(&k, "read x <$GATE", &s, &p), 0);
	procs_kill_all(k.procs);
	ck_assert_int_eq(s.calls, 1);
	ck_assert(s.end.stopped);
	prockit_release(&k);
	ck_assert_int_eq(s.calls, 1);
}
END_TEST

START_TEST(end_hook_of_one_that_did_not_start)
{
	struct prockit k;
	struct seen s = {0};
	struct proc *p = NULL;
	struct proc_limits limits = prockit_limits;
	limits.max_procs = 0;
	prockit_init(&k, &limits);
	ck_assert_int_lt(start_hooked(&k, "true", &s, &p), 0);
	prockit_release(&k);
	ck_assert_int_eq(s.calls, 0);
}
END_TEST

// A passive reader beside a stuck one is no reason to cut that; another one is.
START_TEST(passive_reader_cuts_nobody)
{
	struct prockit k;
	struct prockit_reader stuck, other;
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "head -c 4000000 /dev/zero; echo end");
	prockit_attach(&stuck, p, true);
	prockit_attach(&other, p, false);
	other.r.passive = true;
	prockit_turns_for(&k, 2);
	ck_assert_int_eq(stuck.cut, 0);
	ck_assert_uint_lt(other.n, 4000000); // the command waits
	other.r.passive = false;
	PROCKIT_UNTIL(&k, stuck.cut);
	output_detach(&stuck.r);
	proc_resume(p);
	PROCKIT_UNTIL(&k, proc_end(p));
	ck_assert_uint_eq(other.n, 4000004);
	output_detach(&other.r);
	prockit_release(&k);
}
END_TEST

START_TEST(ended_processes_are_forgotten)
{
	struct prockit k;
	struct prockit_reader reader;
	prockit_init(&k, &prockit_limits);
	struct proc *read = prockit_start(&k, "echo a");
	struct proc *gone = prockit_start(&k, "echo b");
	struct proc *lives = prockit_start(&k, "read x <$GATE");
	pid_t pids[3] = {proc_pid(read), proc_pid(gone), proc_pid(lives)};
	prockit_attach(&reader, read, false);
	PROCKIT_UNTIL(&k, proc_end(read) && proc_end(gone));
	procs_forget(k.procs);
	ck_assert_ptr_eq(procs_find(k.procs, pids[0]), read);
	ck_assert_ptr_null(procs_find(k.procs, pids[1]));
	ck_assert_ptr_eq(procs_find(k.procs, pids[2]), lives);
	output_detach(&reader.r);
	procs_forget(k.procs);
	ck_assert_ptr_null(procs_find(k.procs, pids[0]));
	prockit_release(&k);
}
END_TEST

Suite *hooks_suite(void)
{
	Suite *s = suite_create("hooks");
	TCase *tc = tcase_create("hooks");
	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, end_hook_is_called_once);
	tcase_add_test(tc, end_hook_of_a_stopped_process);
	tcase_add_test(tc, end_hook_of_one_that_did_not_start);
	tcase_add_test(tc, passive_reader_cuts_nobody);
	tcase_add_test(tc, ended_processes_are_forgotten);
	suite_add_tcase(s, tc);
	return s;
}
