// SPDX-License-Identifier: Apache-2.0
#include "daemon/io.h"
#include "oom.h"
#include "prockit.h"
#include "suites.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

// --- output under pressure ---

START_TEST(what_an_exited_command_wrote_is_owed_to_a_slow_reader)
{
	struct prockit k;
	struct prockit_reader r;
	struct proc_limits limits = prockit_limits;
	limits.grace_ms = 50;
	prockit_init(&k, &limits);
	// More than the ring holds, the rest fits into the pipe; a grandchild keeps the pipe open.
	struct proc *p = prockit_start(&k, "head -c 290000 /dev/zero; sleep 100 & exit 3");
	prockit_attach(&r, p, true);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_EXITED);
	prockit_turns_for(&k, 0.3); // its grace is long over
	ck_assert(proc_state(p) == PROC_EXITED && !proc_end(p));
	ck_assert_uint_lt(output_held(proc_output(p)), 290000);
	while (proc_state(p) != PROC_ENDED) {
		prockit_read(&r, p);
		prockit_turn(&k);
	}
	prockit_read(&r, p);
	ck_assert_uint_eq(r.n, 290000);
	ck_assert(!r.cut && !r.r.lost && proc_end(p)->code == 3);
	output_detach(&r.r);
	prockit_release(&k);
}
END_TEST

START_TEST(a_reader_that_leaves_sets_the_command_free)
{
	struct prockit k;
	struct prockit_reader r;
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "head -c 2000000 /dev/zero");
	prockit_attach(&r, p, true);
	PROCKIT_UNTIL(&k, output_held(proc_output(p)) > 200000);
	prockit_turns_for(&k, 2.5); // a single reader is waited for, and never cut
	ck_assert(!r.cut && proc_state(p) == PROC_RUNNING);
	ck_assert_uint_lt(output_total(proc_output(p), OUTPUT_STDOUT), 300000);
	output_detach(&r.r);
	proc_resume(p);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert_uint_eq(output_total(proc_output(p), OUTPUT_STDOUT), 2000000);
	prockit_output(&r, p);
	ck_assert(r.r.lost && r.n >= prockit_limits.replay);
	prockit_release(&k);
}
END_TEST

START_TEST(of_two_readers_the_one_that_blocks_is_cut)
{
	struct prockit k;
	struct prockit_reader slow, fast;
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "head -c 2000000 /dev/zero");
	struct proc *other = prockit_start(&k, "head -c 2000000 /dev/zero; read x <$GATE");
	prockit_attach(&slow, p, true);
	prockit_attach(&fast, p, false);
	double start = prockit_time();
	PROCKIT_UNTIL(&k, slow.cut);
	ck_assert_double_ge(prockit_time() - start, 0.5);
	ck_assert_int_eq(fast.cut, 0);
	output_detach(&slow.r);
	proc_resume(p);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert(fast.n == 2000000 && !fast.r.lost && !fast.cut);
	ck_assert_uint_eq(output_total(proc_output(other), OUTPUT_STDOUT), 2000000); // was never held up
	output_detach(&fast.r);
	prockit_release(&k);
}
END_TEST

// Looks are shared by all commands: one that came long before says nothing about a reader that is in the way again.
START_TEST(a_reader_is_not_cut_for_what_it_did_long_ago)
{
	struct prockit k;
	struct prockit_reader slow, fast, third;
	prockit_init(&k, &prockit_limits);
	struct proc *other = prockit_start(&k, "head -c 2000000 /dev/zero");
	prockit_attach(&third, other, true); // keeps the looks going
	struct proc *p = prockit_start(&k, "head -c 290000 /dev/zero; read x <$GATE; head -c 290000 /dev/zero");
	prockit_attach(&slow, p, true);
	prockit_attach(&fast, p, false);
	prockit_turns_for(&k, 0.75); // one look at least, two at most
	prockit_read(&slow, p);
	PROCKIT_UNTIL(&k, output_total(proc_output(p), OUTPUT_STDOUT) == 290000);
	prockit_read(&slow, p);
	int before = slow.cut;
	prockit_turns_for(&k, 1.2);
	double start = prockit_time();
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, slow.cut > before);
	ck_assert_double_ge(prockit_time() - start, 0.5);
	output_detach(&slow.r);
	proc_resume(p);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert(fast.n == 580000 && !fast.cut && !third.cut);
	output_detach(&fast.r);
	output_detach(&third.r);
	prockit_release(&k);
}
END_TEST

// It is behind at every look, but takes more than it must in between.
START_TEST(a_reader_that_goes_on_is_not_cut)
{
	struct prockit k;
	struct prockit_reader slow, fast;
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "head -c 8000000 /dev/zero");
	prockit_attach(&slow, p, true);
	prockit_attach(&fast, p, false);
	while (proc_state(p) != PROC_ENDED) {
		prockit_turns_for(&k, 0.05);
		prockit_read(&slow, p);
		ck_assert_int_eq(slow.cut, 0);
	}
	ck_assert(slow.n == 8000000 && fast.n == 8000000);
	output_detach(&slow.r);
	output_detach(&fast.r);
	prockit_release(&k);
}
END_TEST

START_TEST(without_readers_nothing_blocks)
{
	struct prockit k;
	struct prockit_reader r;
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "head -c 3000000 /dev/zero >&2; echo end");
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert_uint_eq(output_total(proc_output(p), OUTPUT_STDERR), 3000000);
	prockit_output(&r, p);
	ck_assert(r.r.lost && r.n >= prockit_limits.replay);
	prockit_release(&k);
}
END_TEST

// What was started has room for its output and comes to its end; without such room nothing is started.
START_TEST(no_memory_for_output)
{
	struct prockit k;
	struct prockit_reader r;
	struct rlimit old, tight;
	struct proc *p, *none = NULL;
	struct proc_limits limits = prockit_limits;
	char statm[128];
	limits.replay = 16 * 1024 * 1024; // a ring of 64 MiB
	prockit_init(&k, &limits);
	p = prockit_start(&k, "read x; echo late");
	ck_assert_int_gt(io_read_file("/proc/self/statm", statm, sizeof statm), 0);
	ck_assert_int_eq(getrlimit(RLIMIT_AS, &old), 0);
	tight = old;
	tight.rlim_cur = (rlim_t)strtoul(statm, NULL, 10) * (rlim_t)sysconf(_SC_PAGESIZE) + 8 * 1024 * 1024;
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &tight), 0);
	int rc = prockit_try(&k, "touch $DIR/ran", 0, false, &none);
	enum spawn_step step = k.step;
	ck_assert_int_eq(proc_write(p, "\n", 1), 0);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	setrlimit(RLIMIT_AS, &old);
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert_int_eq(step, SPAWN_PREPARE);
	ck_assert_uint_eq(procs_living(k.procs), 0);
	prockit_output(&r, p);
	ck_assert_str_eq(r.text, "late\n");
	char path[96];
	snprintf(path, sizeof path, "%s/ran", k.dir);
	ck_assert_int_ne(access(path, F_OK), 0);
	p = prockit_start(&k, "echo again");
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	prockit_release(&k);
}
END_TEST

// --- stdin ---

START_TEST(stdin_arrives_in_order_up_to_its_bound)
{
	struct prockit k;
	struct prockit_reader r;
	char piece[10000], *all = malloc(400000);
	size_t sent = 0;
	prockit_init(&k, &prockit_limits);
	ck_assert_ptr_nonnull(all);
	struct proc *p = prockit_start(&k, "read x <$GATE; exec cksum");
	ck_assert_int_eq(proc_write(p, all, prockit_limits.stdin_max + 1), -ENOBUFS);
	int rc = 0;
	for (int i = 0; rc == 0 && sent + sizeof piece <= 400000; i++) {
		memset(piece, 'a' + i % 26, sizeof piece);
		rc = proc_write(p, piece, sizeof piece);
		if (rc == 0) {
			memcpy(all + sent, piece, sizeof piece);
			sent += sizeof piece;
		}
	}
	ck_assert_int_eq(rc, -ENOBUFS);
	ck_assert(sent > prockit_limits.stdin_max && sent <= prockit_limits.stdin_max + 64 * 1024);
	prockit_open_gate(&k);
	for (int left = 10; left > 0;) { // it drains, and more fits
		rc = proc_write(p, "0123456789", 10);
		ck_assert(rc == 0 || rc == -ENOBUFS);
		if (rc == 0) {
			memcpy(all + sent, "0123456789", 10);
			sent += 10;
			left--;
		}
		prockit_turn(&k);
	}
	ck_assert_int_eq(proc_close_stdin(p), 0);
	ck_assert_int_eq(proc_close_stdin(p), 0);
	ck_assert_int_eq(proc_write(p, "x", 1), -EPIPE);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	prockit_output(&r, p);
	// The witness: another one that reads the same from a file.
	struct prockit_reader sum = r;
	char path[128], script[300];
	snprintf(path, sizeof path, "%s/mark", k.dir);
	FILE *f = fopen(path, "w");
	ck_assert(f && fwrite(all, 1, sent, f) == sent && fclose(f) == 0);
	snprintf(script, sizeof script, "exec cksum <%s", path);
	p = prockit_start(&k, script);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	prockit_output(&r, p);
	ck_assert_str_eq(r.text, sum.text);
	free(all);
	prockit_release(&k);
}
END_TEST

START_TEST(stdin_that_nobody_reads_is_epipe)
{
	struct prockit k;
	struct proc *p;
	prockit_init(&k, &prockit_limits);
	p = prockit_start(&k, "exec <&-; echo closed; read x <$GATE; exit 8");
	PROCKIT_UNTIL(&k, output_held(proc_output(p)));
	ck_assert_int_eq(proc_write(p, "x", 1), -EPIPE);
	ck_assert_int_eq(proc_write(p, "x", 1), -EPIPE);
	ck_assert_int_eq(proc_close_stdin(p), 0);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(proc_end(p)->code, 8);
	// Closed while a queue waits: the queue goes, the command lives on.
	p = prockit_start(&k, "read x <$GATE; exec <&-; echo closed; read x <$GATE; exit 9");
	char *much = calloc(1, 90000);
	ck_assert_ptr_nonnull(much);
	ck_assert_int_eq(proc_write(p, much, 90000), 0);
	free(much);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, output_held(proc_output(p)));
	PROCKIT_UNTIL(&k, proc_write(p, "x", 1) == -EPIPE);
	ck_assert_int_eq(proc_state(p), PROC_RUNNING);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(proc_end(p)->code, 9);
	prockit_release(&k);
}
END_TEST

START_TEST(without_stdin_there_is_none)
{
	struct prockit k;
	struct proc *p;
	prockit_init(&k, &prockit_limits);
	ck_assert_int_eq(prockit_try(&k, "read y || read x <$GATE; exit 1", 0, false, &p), 0);
	ck_assert_int_eq(proc_write(p, "x", 1), -EPIPE);
	ck_assert_int_eq(proc_close_stdin(p), -EPIPE);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert_int_eq(proc_write(p, "x", 1), -ESRCH);
	ck_assert_int_eq(proc_close_stdin(p), -ESRCH);
	prockit_release(&k);
}
END_TEST

START_TEST(stdin_works_again_after_memory_was_out)
{
	struct prockit k;
	struct prockit_reader r;
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "exec cat");
	prockit_attach(&r, p, false);
	oom_fail_at(0);
	int rc = proc_write(p, "lost", 4);
	oom_off();
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert_int_eq(proc_write(p, "here", 4), 0);
	PROCKIT_UNTIL(&k, r.n == 4);
	ck_assert_str_eq(r.text, "here");
	ck_assert_int_eq(proc_close_stdin(p), 0);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	output_detach(&r.r);
	prockit_release(&k);
}
END_TEST

Suite *proc_io_suite(void)
{
	Suite *s = suite_create("proc_io");
	TCase *t = tcase_create("pipes");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, what_an_exited_command_wrote_is_owed_to_a_slow_reader);
	tcase_add_test(t, a_reader_that_leaves_sets_the_command_free);
	tcase_add_test(t, of_two_readers_the_one_that_blocks_is_cut);
	tcase_add_test(t, a_reader_is_not_cut_for_what_it_did_long_ago);
	tcase_add_test(t, a_reader_that_goes_on_is_not_cut);
	tcase_add_test(t, without_readers_nothing_blocks);
	tcase_add_test(t, no_memory_for_output);
	tcase_add_test(t, stdin_arrives_in_order_up_to_its_bound);
	tcase_add_test(t, stdin_that_nobody_reads_is_epipe);
	tcase_add_test(t, without_stdin_there_is_none);
	tcase_add_test(t, stdin_works_again_after_memory_was_out);
	return s;
}
