// SPDX-License-Identifier: Apache-2.0
// Writes to a process that wait until it has taken them.
#include "oom.h"
#include "prockit.h"
#include "suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MUCH ((size_t)1000000)

struct told {
	int count;
	int rc;
	int order; // when, among all
};

static int told_all;

static void tell(void *arg, int rc)
{
	struct told *t = arg;
	t->count++;
	t->rc = rc;
	t->order = ++told_all;
}

static char *much(void)
{
	char *p = malloc(MUCH);
	ck_assert_ptr_nonnull(p);
	memset(p, 'm', MUCH);
	return p;
}

START_TEST(what_has_no_room_waits_in_order)
{
	struct prockit k;
	struct prockit_reader r;
	struct told first = {0}, second = {0};
	struct proc_input *in;
	char *data = much();
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "read x <$GATE; exec wc -c");
	ck_assert_int_eq(proc_write_wait(p, "abc", 3, tell, &first, &in), 0);
	ck_assert_int_eq(proc_write_wait(p, data, MUCH, tell, &first, &in), 1);
	ck_assert_int_eq(proc_write_wait(p, "de", 2, tell, &second, &in), 1);
	ck_assert_int_eq(proc_write(p, "x", 1), -ENOBUFS); // not past those that wait
	free(data);
	prockit_turns_for(&k, 0.1);
	ck_assert_int_eq(first.count + second.count, 0);
	ck_assert_int_eq(proc_close_stdin(p), 0); // once all has been read
	ck_assert_int_eq(proc_write_wait(p, "x", 1, tell, &second, &in), -EPIPE);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	ck_assert(first.count == 1 && first.rc == 0 && second.count == 1 && second.rc == 0);
	ck_assert_int_lt(first.order, second.order);
	prockit_output(&r, p);
	ck_assert_str_eq(r.text, "1000005\n");
	prockit_release(&k);
}
END_TEST

START_TEST(who_waits_is_told_that_nobody_reads)
{
	struct prockit k;
	struct told first = {0}, second = {0};
	struct proc_input *in;
	char *data = much();
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "read x <$GATE; exec <&-; read x <$GATE");
	ck_assert_int_eq(proc_write_wait(p, data, MUCH, tell, &first, &in), 1);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, first.count);
	ck_assert_int_eq(first.rc, -EPIPE);
	struct proc *q = prockit_start(&k, "read x <$GATE");
	ck_assert_int_eq(proc_write_wait(q, data, MUCH, tell, &second, &in), 1);
	prockit_open_gate(&k);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, proc_end(p) && proc_end(q) && second.count);
	ck_assert(second.rc == -ESRCH || second.rc == -EPIPE); // dead before it was waited for
	ck_assert_int_eq(proc_write_wait(q, data, 1, tell, &second, &in), -ESRCH);
	ck_assert(first.count == 1 && second.count == 1);
	free(data);
	prockit_release(&k);
}
END_TEST

START_TEST(a_forgotten_write_is_dropped)
{
	struct prockit k;
	struct prockit_reader r;
	struct told told = {0};
	struct proc_input *in;
	char *data = much();
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "read x <$GATE; wc -c");
	ck_assert_int_eq(proc_write_wait(p, data, MUCH, tell, &told, &in), 1);
	proc_input_forget(in);
	prockit_open_gate(&k);
	PROCKIT_UNTIL(&k, proc_write(p, "", 0) == 0);
	ck_assert_int_eq(proc_close_stdin(p), 0);
	PROCKIT_UNTIL(&k, proc_state(p) == PROC_ENDED);
	prockit_output(&r, p);
	long read = strtol(r.text, NULL, 10);
	ck_assert(read >= 4096 && read < (long)MUCH);
	ck_assert_int_eq(told.count, 0);
	// One that is settled, but not yet told.
	struct proc *q = prockit_start(&k, "read x <$GATE");
	ck_assert_int_eq(proc_write_wait(q, data, MUCH, tell, &told, &in), 1);
	prockit_open_gate(&k);
	while (!proc_end(q))
		procs_reap(k.procs); // without a turn of the loop
	proc_input_forget(in);
	prockit_turns_for(&k, 0.05);
	ck_assert_int_eq(told.count, 0);
	free(data);
	prockit_release(&k);
}
END_TEST

START_TEST(what_waits_is_bounded)
{
	struct prockit k;
	struct told told = {0};
	struct proc_input *in;
	char *data = much();
	int rc = 1, n = 0;
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "read x <$GATE");
	for (; rc == 1 && n < 100; n++)
		rc = proc_write_wait(p, data, MUCH, tell, &told, &in);
	ck_assert_int_eq(rc, -ENOBUFS);
	ck_assert(n > 30 && n < 40);
	free(data);
	prockit_release(&k); // with all of them waiting
}
END_TEST

static int wait_once(void *arg)
{
	struct proc_input *in;
	static char data[200000];
	int rc = proc_write_wait(arg, data, sizeof data, tell, NULL, &in);
	if (rc == 1)
		proc_input_forget(in);
	return rc == 1 ? 0 : rc == 0 ? 99 : rc;
}

START_TEST(waiting_survives_a_lack_of_memory)
{
	struct prockit k;
	struct proc_input *in;
	struct told told = {0};
	char *data = much();
	prockit_init(&k, &prockit_limits);
	struct proc *p = prockit_start(&k, "read x <$GATE");
	ck_assert_int_eq(proc_write_wait(p, data, MUCH, tell, &told, &in), 1);
	ck_assert_int_eq(wait_once(p), 0); // so that libev's own arrays have room
	OOM_LOOP(wait_once, p);
	free(data);
	prockit_release(&k);
}
END_TEST

Suite *proc_stdin_suite(void)
{
	Suite *s = suite_create("proc_stdin");
	TCase *t = tcase_create("waiting");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 30);
	tcase_add_test(t, what_has_no_room_waits_in_order);
	tcase_add_test(t, who_waits_is_told_that_nobody_reads);
	tcase_add_test(t, a_forgotten_write_is_dropped);
	tcase_add_test(t, what_waits_is_bounded);
	tcase_add_test(t, waiting_survives_a_lack_of_memory);
	return s;
}
