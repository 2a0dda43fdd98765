// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/slice.h"
#include "daemon/io.h"
#include "oom.h"
#include "suites.h"

#include <stdlib.h>
#include <unistd.h>

struct job {
	struct slice_job job; // first
	struct slices *slices;
	struct job *other;
	int steps, until;
	int *order, *at; // where the steps of several jobs are noted
	int name;
	int dropped;
};

static void on_drop(struct slice_job *j)
{
	((struct job *)j)->dropped++;
}

static void count(struct slice_job *j)
{
	struct job *job = (struct job *)j;
	if (job->order)
		job->order[(*job->at)++] = job->name;
	if (++job->steps >= job->until)
		slice_stop(j);
}

static struct job job_of(void (*step)(struct slice_job *j), int until)
{
	return (struct job){.job = {.step = step, .drop = on_drop}, .until = until};
}

static struct slices *slices_on(struct ev_loop *loop)
{
	struct slices *s = slices_new(loop);
	ck_assert_ptr_nonnull(s);
	return s;
}

START_TEST(idle_scheduler_keeps_the_loop_alive)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	struct slices *s = slices_on(loop);
	struct job a = job_of(count, 5);
	ev_run(loop, 0); // returns: nothing is armed
	slice_start(s, &a.job);
	slice_start(s, &a.job);
	ev_run(loop, 0); // returns once the job is through
	ck_assert_int_eq(a.steps, 5);
	slice_stop(&a.job);
	slice_start(s, &a.job); // again
	ev_run(loop, 0);
	ck_assert_int_eq(a.steps, 6);
	slices_free(s);
	ck_assert_int_eq(a.dropped, 0);
	ev_loop_destroy(loop);
}
END_TEST

START_TEST(one_job_starves_another)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	struct slices *s = slices_on(loop);
	int order[9], at = 0;
	struct job jobs[3];
	for (int i = 0; i < 3; i++) {
		jobs[i] = job_of(count, 3);
		jobs[i].order = order;
		jobs[i].at = &at;
		jobs[i].name = i;
		slice_start(s, &jobs[i].job);
	}
	ev_run(loop, 0);
	for (int i = 0; i < 9; i++)
		ck_assert_int_eq(order[i], i % 3);
	slices_free(s);
	ev_loop_destroy(loop);
}
END_TEST

static void stop_other_and_free(struct slice_job *j)
{
	struct job *job = (struct job *)j;
	slice_stop(&job->other->job);
	free(job->other);
	slice_stop(j);
	free(job);
}

static bool piece(struct slice_job *j)
{
	struct job *job = (struct job *)j;
	return ++job->steps < job->until;
}

static void gently(struct slice_job *j)
{
	struct job *job = (struct job *)j;
	if (job->steps >= job->until)
		slice_stop(j);
	else
		slice_gently(j, piece);
}

// A gentle job rests between its turns, gets through all the same, and its rest holds nobody else up.
START_TEST(gentle_job_never_ends_or_holds_others_up)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	struct slices *s = slices_on(loop);
	struct job a = job_of(gently, 20), b = job_of(count, 5);
	slice_start(s, &a.job);
	ev_run(loop, 0);
	ck_assert_int_eq(a.steps, 20);
	a.until = 1000 * 1000 * 1000;
	slice_start(s, &a.job);
	for (int turn = 0; turn < 4; turn++)
		ev_run(loop, EVRUN_NOWAIT); // it rests now
	slice_start(s, &b.job);
	for (int turn = 0; turn < 2; turn++)
		ev_run(loop, EVRUN_NOWAIT);
	ck_assert_int_eq(b.steps, 5);
	slice_stop(&a.job);
	ev_run(loop, 0); // returns: no rest is left armed
	slices_free(s);
	ev_loop_destroy(loop);
}
END_TEST

START_TEST(step_frees_its_own_job_and_others)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	struct slices *s = slices_on(loop);
	struct job *a = malloc(sizeof *a), *b = malloc(sizeof *b), last = job_of(count, 2);
	ck_assert(a && b);
	*a = job_of(stop_other_and_free, 0);
	*b = job_of(count, 1000);
	a->other = b;
	slice_start(s, &a->job);
	slice_start(s, &b->job);
	slice_start(s, &last.job);
	ev_run(loop, 0);
	ck_assert_int_eq(last.steps, 2);
	slices_free(s);
	ev_loop_destroy(loop);
}
END_TEST

static void drop_and_free(struct slice_job *j)
{
	free(j);
}

START_TEST(jobs_of_a_freed_scheduler_leak)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	struct slices *s = slices_on(loop);
	struct job a = job_of(count, 1000), *b = malloc(sizeof *b);
	ck_assert_ptr_nonnull(b);
	*b = job_of(count, 1000);
	b->job.drop = drop_and_free;
	slice_start(s, &a.job);
	slice_start(s, &b->job);
	slices_free(s);
	ck_assert_int_eq(a.dropped, 1);
	ck_assert_int_eq(a.steps, 0);
	ev_run(loop, 0); // nothing of it is left in the loop
	slices_free(NULL);
	ev_loop_destroy(loop);
}
END_TEST

static void slow(struct slice_job *j)
{
	int64_t end = slice_until();
	while (io_mono_ns() < end)
		continue;
	count(j);
}

static void on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
	(void)loop, (void)revents;
	int *calls = w->data;
	++*calls; // and the byte stays: a socket that is always busy
}

// A turn of the loop has both: a descriptor that is always ready, and jobs for no longer than a turn's share.
START_TEST(sockets_and_jobs_starve_each_other)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	struct slices *s = slices_on(loop);
	int fds[2], calls = 0;
	ev_io io;
	ck_assert_int_eq(io_pipe(fds), 0);
	ck_assert_int_eq(io_write(fds[1], "x", 1), 1);
	ev_io_init(&io, on_readable, fds[0], EV_READ);
	io.data = &calls;
	ev_io_start(loop, &io);
	struct job a = job_of(slow, 40);
	slice_start(s, &a.job);
	int turns = 0;
	for (; a.steps < 40; turns++)
		ev_run(loop, EVRUN_NOWAIT);
	ck_assert_int_eq(calls, turns);
	ck_assert_int_ge(turns, 40 / (int)(SLICE_TURN_NS / SLICE_STEP_NS));
	ck_assert_int_le(turns, 40);
	ev_io_stop(loop, &io);
	close(fds[0]);
	close(fds[1]);
	slices_free(s);
	ev_loop_destroy(loop);
}
END_TEST

static void await(struct slice_job *j)
{
	struct job *job = (struct job *)j;
	char c;
	job->steps++;
	slice_await(j, -1); // nothing
	if (io_read(job->until, &c, 1) == 1 && c == 'x')
		slice_stop(j);
	else
		slice_await(j, job->until);
}

static bool await_gently(struct slice_job *j)
{
	await(j);
	return true;
}

static void gently_awaited(struct slice_job *j)
{
	slice_gently(j, await_gently);
}

// While a job waits for a descriptor nothing is done for it, others go on, and whatever may be done to one that runs may be done to it.
START_TEST(job_that_waits_is_stepped_or_lost)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	struct slices *s = slices_on(loop);
	int fds[2];
	ck_assert_int_eq(io_pipe(fds), 0);
	ck_assert_int_eq(io_set_nonblock(fds[0]), 0);
	struct job a = job_of(_i ? gently_awaited : await, fds[0]), b = job_of(count, 1000);
	slice_start(s, &a.job);
	slice_start(s, &b.job);
	ev_run(loop, EVRUN_NOWAIT);
	while (b.steps < 1000)
		ev_run(loop, EVRUN_NOWAIT);
	for (int i = 0; i < 3; i++)
		ev_run(loop, EVRUN_NOWAIT);
	ck_assert_int_eq(a.steps, 1);
	ck_assert_int_eq(io_write(fds[1], "a", 1), 1);
	while (a.steps < 2)
		ev_run(loop, EVRUN_NOWAIT);
	for (int i = 0; i < 3; i++)
		ev_run(loop, EVRUN_NOWAIT);
	ck_assert_int_eq(a.steps, 2);
	slice_start(s, &a.job); // it runs
	ck_assert_int_eq(io_write(fds[1], "x", 1), 1);
	ev_run(loop, 0); // returns: it has stopped itself
	ck_assert_int_eq(a.steps, 3);
	// Stopped while it waits, and dropped.
	for (int i = 0; i < 2; i++) {
		slice_start(s, &a.job);
		while (a.steps < 4 + i)
			ev_run(loop, EVRUN_NOWAIT);
		if (i == 0)
			slice_stop(&a.job);
	}
	slices_free(s);
	ck_assert_int_eq(a.dropped, 1);
	ck_assert_int_eq(io_write(fds[1], "x", 1), 1);
	ev_run(loop, 0); // returns: nothing is watched
	ck_assert_int_eq(a.steps, 5);
	close(fds[0]);
	close(fds[1]);
	ev_loop_destroy(loop);
}
END_TEST

static int make(void *arg)
{
	struct slices *s = slices_new(arg);
	slices_free(s);
	return s ? 0 : -1;
}

START_TEST(out_of_memory)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	OOM_LOOP(make, loop);
	ev_loop_destroy(loop);
}
END_TEST

Suite *slice_suite(void)
{
	Suite *s = suite_create("slice");
	TCase *t = tcase_create("jobs");
	suite_add_tcase(s, t);
	tcase_add_test(t, idle_scheduler_keeps_the_loop_alive);
	tcase_add_test(t, one_job_starves_another);
	tcase_add_test(t, gentle_job_never_ends_or_holds_others_up);
	tcase_add_test(t, step_frees_its_own_job_and_others);
	tcase_add_test(t, jobs_of_a_freed_scheduler_leak);
	tcase_add_test(t, sockets_and_jobs_starve_each_other);
	tcase_add_loop_test(t, job_that_waits_is_stepped_or_lost, 0, 2);
	tcase_add_test(t, out_of_memory);
	return s;
}
