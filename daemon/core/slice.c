// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/slice.h"

#include "daemon/core/thread.h"
#include "daemon/io.h"

#include <pthread.h>
#include <stdlib.h>
#include <utlist.h>

struct slices {
	struct ev_loop *loop;
	struct slice_job *jobs; // the next one first
	struct ev_check turn;   // once a turn, however busy the sockets are
	struct ev_idle awake;   // keeps the loop from sleeping
	struct ev_async back;   // jobs have come back; started while any is away
	size_t away;            // jobs in aside and done
	bool threaded;          // there is a thread to be joined
	pthread_t thread;
	pthread_mutex_t lock; // of what follows
	pthread_cond_t free;  // a job that was stopped is not at work any more
	struct slice_job *aside, *done;
	struct slice_job *at_work;
	bool running; // the thread looks at aside once more before it ends
};

// --- in the loop ---

static void run(struct slice_job *job)
{
	if (!job->aside)
		job->step(job);
	else if (!job->aside(job))
		job->aside = NULL;
}

static void on_turn(struct ev_loop *loop, struct ev_check *w, int revents)
{
	(void)loop, (void)revents;
	struct slices *s = w->data;
	int64_t end = io_mono_ns() + SLICE_TURN_NS - SLICE_STEP_NS;
	while (s->jobs) {
		struct slice_job *job = s->jobs;
		// To the back before its step, for that may free it.
		DL_DELETE(s->jobs, job);
		DL_APPEND(s->jobs, job);
		run(job);
		if (io_mono_ns() >= end)
			break;
	}
}

static void on_awake(struct ev_loop *loop, struct ev_idle *w, int revents)
{
	(void)loop, (void)w, (void)revents;
}

static void put_here(struct slices *s, struct slice_job *job)
{
	if (!s->jobs) {
		ev_check_start(s->loop, &s->turn);
		ev_idle_start(s->loop, &s->awake);
	}
	DL_APPEND(s->jobs, job);
}

static void take_from_here(struct slices *s, struct slice_job *job)
{
	DL_DELETE(s->jobs, job);
	if (s->jobs)
		return;
	ev_check_stop(s->loop, &s->turn);
	ev_idle_stop(s->loop, &s->awake);
}

// --- the thread ---

static void *work(void *arg)
{
	struct slices *s = arg;
	thread_be_nice();
	pthread_mutex_lock(&s->lock);
	while (s->aside) {
		struct slice_job *job = s->at_work = s->aside;
		pthread_mutex_unlock(&s->lock);
		bool more = job->aside(job);
		pthread_mutex_lock(&s->lock);
		s->at_work = NULL;
		if (job->stopped) {
			pthread_cond_signal(&s->free); // and is not ours any more
			continue;
		}
		DL_DELETE(s->aside, job);
		if (more) {
			DL_APPEND(s->aside, job);
			continue;
		}
		job->back = true;
		DL_APPEND(s->done, job);
		ev_async_send(s->loop, &s->back);
	}
	s->running = false;
	pthread_mutex_unlock(&s->lock);
	return NULL;
}

static void join(struct slices *s)
{
	if (!s->threaded)
		return;
	pthread_join(s->thread, NULL);
	s->threaded = false;
}

// With the lock held and no thread running.
static int start_thread(struct slices *s)
{
	join(s);
	int rc = thread_start(&s->thread, work, s);
	s->threaded = s->running = rc == 0;
	return rc;
}

static void came_back(struct slices *s, struct slice_job *job)
{
	job->away = false;
	if (--s->away == 0)
		ev_async_stop(s->loop, &s->back);
}

static void on_back(struct ev_loop *loop, struct ev_async *w, int revents)
{
	(void)loop, (void)revents;
	struct slices *s = w->data;
	pthread_mutex_lock(&s->lock);
	while (s->done) {
		struct slice_job *job = s->done;
		DL_DELETE(s->done, job);
		job->aside = NULL;
		came_back(s, job);
		put_here(s, job);
	}
	bool over = !s->running;
	pthread_mutex_unlock(&s->lock);
	if (over)
		join(s);
}

void slice_aside(struct slice_job *job, bool (*fn)(struct slice_job *job))
{
	struct slices *s = job->slices;
	job->aside = fn;
	job->away = true;
	job->back = job->stopped = false;
	if (s->away++ == 0)
		ev_async_start(s->loop, &s->back);
	pthread_mutex_lock(&s->lock);
	bool fine = s->running || start_thread(s) == 0;
	if (fine) {
		take_from_here(s, job);
		DL_APPEND(s->aside, job);
	}
	pthread_mutex_unlock(&s->lock);
	if (!fine)
		came_back(s, job);
}

static void take_from_aside(struct slices *s, struct slice_job *job)
{
	pthread_mutex_lock(&s->lock);
	if (job->back)
		DL_DELETE(s->done, job);
	else
		DL_DELETE(s->aside, job);
	job->stopped = true;
	while (s->at_work == job)
		pthread_cond_wait(&s->free, &s->lock);
	pthread_mutex_unlock(&s->lock);
	came_back(s, job);
}

// --- the whole ---

struct slices *slices_new(struct ev_loop *loop)
{
	struct slices *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->loop = loop;
	ev_check_init(&s->turn, on_turn);
	ev_idle_init(&s->awake, on_awake);
	ev_async_init(&s->back, on_back);
	pthread_mutex_init(&s->lock, NULL);
	pthread_cond_init(&s->free, NULL);
	s->turn.data = s->back.data = s;
	return s;
}

static struct slice_job *any_of(struct slices *s)
{
	pthread_mutex_lock(&s->lock);
	struct slice_job *job = s->jobs ? s->jobs : s->aside ? s->aside : s->done;
	pthread_mutex_unlock(&s->lock);
	return job;
}

void slices_free(struct slices *s)
{
	if (!s)
		return;
	for (struct slice_job *job; (job = any_of(s)) != NULL;) {
		slice_stop(job);
		job->drop(job);
	}
	join(s);
	pthread_mutex_destroy(&s->lock);
	pthread_cond_destroy(&s->free);
	free(s);
}

void slice_start(struct slices *s, struct slice_job *job)
{
	if (job->slices)
		return;
	job->slices = s;
	job->aside = NULL;
	put_here(s, job);
}

void slice_stop(struct slice_job *job)
{
	struct slices *s = job->slices;
	if (!s)
		return;
	job->slices = NULL;
	if (job->away)
		take_from_aside(s, job);
	else
		take_from_here(s, job);
}

int64_t slice_until(void)
{
	return io_mono_ns() + SLICE_STEP_NS;
}
