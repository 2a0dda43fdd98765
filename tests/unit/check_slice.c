// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/slice.h"
#include "daemon/io.h"
#include "oom.h"
#include "suites.h"

#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
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

struct away {
	struct slice_job job; // first
	int left, steps, dropped;
	pthread_t by; // who has done the last piece
	int64_t piece_ns;
};

static bool piece(struct slice_job *j)
{
	struct away *a = (struct away *)j;
	int64_t end = io_mono_ns() + a->piece_ns;
	while (io_mono_ns() < end)
		continue;
	a->by = pthread_self();
	return --a->left > 0;
}

static void go_or_end(struct slice_job *j)
{
	struct away *a = (struct away *)j;
	if (a->steps++ == 0)
		slice_aside(j, piece);
	else
		slice_stop(j);
}

static void drop_away(struct slice_job *j)
{
	((struct away *)j)->dropped++;
}

static struct away away_of(int pieces, int64_t piece_ns)
{
	return (struct away){.job = {.step = go_or_end, .drop = drop_away},
		.left = pieces,
		.by = pthread_self(),
		.piece_ns = piece_ns};
}

// Several jobs go aside and come back, each once all is done; then nothing is armed, and it works again.
START_TEST(job_aside_never_comes_back_or_works_in_the_loop)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	struct slices *s = slices_on(loop);
	for (int round = 0; round < 3; round++) {
		struct away jobs[3] = {away_of(50, 0), away_of(1, 0), away_of(20, 100000)};
		for (int i = 0; i < 3; i++)
			slice_start(s, &jobs[i].job);
		ev_run(loop, 0);
		for (int i = 0; i < 3; i++) {
			ck_assert_int_eq(jobs[i].left, 0);
			ck_assert_int_eq(jobs[i].steps, 2);
			ck_assert(!pthread_equal(jobs[i].by, pthread_self()));
			ck_assert_int_eq(jobs[i].dropped, 0);
		}
	}
	slices_free(s);
	ev_loop_destroy(loop);
}
END_TEST

// What is stopped while it is aside is not at work any more, and may be freed and started again.
START_TEST(stopped_job_is_still_at_work_aside)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	struct slices *s = slices_on(loop);
	for (int round = 0; round < 50; round++) {
		struct away *a = malloc(sizeof *a), b = away_of(3, 0);
		ck_assert_ptr_nonnull(a);
		*a = away_of(round % 2 ? 1 : INT_MAX, 20000 * (round % 5));
		slice_start(s, &a->job);
		slice_start(s, &b.job);
		for (int turn = 0; turn < round % 7; turn++)
			ev_run(loop, EVRUN_NOWAIT);
		slice_stop(&a->job);
		slice_stop(&a->job);
		memset(a, 0xEE, sizeof *a);
		free(a);
		ev_run(loop, 0);
		ck_assert_int_eq(b.left, 0);
	}
	slices_free(s);
	ev_loop_destroy(loop);
}
END_TEST

// The loop goes on meanwhile, with jobs of its own.
START_TEST(job_aside_holds_up_the_loop)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	struct slices *s = slices_on(loop);
	struct away a = away_of(1, 200000000);
	struct job b = job_of(count, 5);
	int64_t start = io_mono_ns();
	slice_start(s, &a.job);
	ev_run(loop, EVRUN_NOWAIT);
	slice_start(s, &b.job);
	while (b.steps < 5)
		ev_run(loop, EVRUN_NOWAIT);
	ck_assert_int_lt(io_mono_ns() - start, 200000000);
	ev_run(loop, 0);
	ck_assert_int_eq(a.left, 0);
	slices_free(s);
	ev_loop_destroy(loop);
}
END_TEST

START_TEST(jobs_aside_of_a_freed_scheduler_leak)
{
	for (int turns = 0; turns < 4; turns++) {
		struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
		struct slices *s = slices_on(loop);
		struct away jobs[3] = {away_of(INT_MAX, 1000), away_of(1, 0), away_of(INT_MAX, 0)};
		for (int i = 0; i < 3; i++)
			slice_start(s, &jobs[i].job);
		for (int turn = 0; turn < turns; turn++)
			ev_run(loop, EVRUN_NOWAIT);
		slices_free(s);
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(jobs[i].dropped + (jobs[i].steps == 2), 1);
		ev_run(loop, 0);
		ev_loop_destroy(loop);
	}
}
END_TEST

// No thread to be had: the work is done all the same, by the loop.
START_TEST(job_aside_is_lost_without_a_thread)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO);
	struct slices *s = slices_on(loop);
	struct away a = away_of(20, 0), b = away_of(INT_MAX, 0);
	struct rlimit none = {0, 0};
	ck_assert_int_eq(setrlimit(RLIMIT_AS, &none), 0);
	slice_start(s, &a.job);
	slice_start(s, &b.job);
	for (int turn = 0; turn < 4 || a.steps < 2; turn++)
		ev_run(loop, EVRUN_NOWAIT);
	slice_stop(&b.job);
	ck_assert_int_eq(a.left, 0);
	ck_assert(pthread_equal(a.by, pthread_self()));
	ev_run(loop, 0);
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
	tcase_add_test(t, step_frees_its_own_job_and_others);
	tcase_add_test(t, jobs_of_a_freed_scheduler_leak);
	tcase_add_test(t, sockets_and_jobs_starve_each_other);
	tcase_add_test(t, out_of_memory);
	t = tcase_create("aside");
	suite_add_tcase(s, t);
	tcase_add_test(t, job_aside_never_comes_back_or_works_in_the_loop);
	tcase_add_test(t, stopped_job_is_still_at_work_aside);
	tcase_add_test(t, job_aside_holds_up_the_loop);
	tcase_add_test(t, jobs_aside_of_a_freed_scheduler_leak);
	tcase_add_test(t, job_aside_is_lost_without_a_thread);
	return s;
}
