// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/slice.h"

#include "daemon/io.h"
#include "daemon/io_watch.h"

#include <sched.h>
#include <stdlib.h>
#include <utlist.h>

struct slices {
	struct ev_loop *loop;
	struct slice_job *jobs;    // the next one first
	struct slice_job *waiting; // for a descriptor
	struct ev_prepare turn;    // once a turn, when what the sockets brought is answered
	struct ev_idle awake;      // keeps the loop from sleeping
	struct ev_timer rest;
	bool resting;
	bool tired; // the last turn was a gentle one
	bool (*answered)(void *arg);
	void *answered_arg;
};

static bool all_gentle(const struct slices *s)
{
	const struct slice_job *job;
	DL_FOREACH(s->jobs, job)
	{
		if (!job->gently)
			return false;
	}
	return s->jobs != NULL;
}

static void on_rested(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)revents;
	struct slices *s = w->data;
	ev_timer_stop(loop, w);
	s->resting = false;
	if (s->jobs)
		ev_idle_start(loop, &s->awake);
}

static void stand_by(struct slices *s)
{
	ev_prepare_stop(s->loop, &s->turn);
	ev_idle_stop(s->loop, &s->awake);
	ev_timer_stop(s->loop, &s->rest);
	s->resting = s->tired = false;
}

static void rest(struct slices *s)
{
	s->resting = true;
	s->tired = false;
	ev_idle_stop(s->loop, &s->awake);
	ev_now_update(s->loop); // or it would be reckoned from before the turn, and be over
	ev_timer_set(&s->rest, SLICE_REST_S, 0.);
	ev_timer_start(s->loop, &s->rest);
}

// The kernel puts who is woken by an answer where we are, since who answers mostly sleeps then. We do not: without this he waits for the next tick
// (of /health beside lists, the hundredth slowest came in 3.6 ms instead of 1.1). Only then: those who compute all the time take a tick each.
static void give_way(const struct slices *s)
{
	if (s->answered && s->answered(s->answered_arg) && !all_gentle(s))
		sched_yield();
}

static void on_turn(struct ev_loop *loop, struct ev_prepare *w, int revents)
{
	(void)loop, (void)revents;
	struct slices *s = w->data;
	if (s->resting)
		return;
	// What the last turn brought has gone out by now: only then the loop may sleep.
	if (!s->jobs) {
		stand_by(s);
		return;
	}
	if (s->tired && all_gentle(s)) {
		rest(s);
		return;
	}
	give_way(s);
	int64_t end = io_mono_ns() + (all_gentle(s) ? SLICE_GENTLE_TURN_NS : SLICE_TURN_NS) - SLICE_STEP_NS;
	while (s->jobs) {
		struct slice_job *job = s->jobs;
		// To the back before its step, for that may free it.
		DL_DELETE(s->jobs, job);
		DL_APPEND(s->jobs, job);
		if (!job->gently)
			job->step(job);
		else if (!job->gently(job))
			job->gently = NULL;
		if (io_mono_ns() >= end)
			break;
	}
	s->tired = all_gentle(s);
}

static void on_awake(struct ev_loop *loop, struct ev_idle *w, int revents)
{
	(void)loop, (void)w, (void)revents;
}

struct slices *slices_new(struct ev_loop *loop)
{
	struct slices *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->loop = loop;
	ev_prepare_init(&s->turn, on_turn);
	ev_set_priority(&s->turn, EV_MINPRI); // behind those who answer
	ev_idle_init(&s->awake, on_awake);
	ev_timer_init(&s->rest, on_rested, SLICE_REST_S, 0.);
	s->turn.data = s->rest.data = s;
	return s;
}

void slices_free(struct slices *s)
{
	if (!s)
		return;
	while (s->jobs || s->waiting) {
		struct slice_job *job = s->jobs ? s->jobs : s->waiting;
		slice_stop(job);
		job->drop(job);
	}
	stand_by(s);
	free(s);
}

static void enter(struct slices *s, struct slice_job *job)
{
	if (!s->jobs) {
		ev_prepare_start(s->loop, &s->turn);
		ev_idle_start(s->loop, &s->awake);
	}
	DL_APPEND(s->jobs, job);
	if (s->resting)
		on_rested(s->loop, &s->rest, 0);
}

static void leave(struct slices *s, struct slice_job *job)
{
	DL_DELETE(s->jobs, job);
	if (!s->jobs && s->resting)
		stand_by(s); // else at the next turn
}

static void end_wait(struct slices *s, struct slice_job *job)
{
	ev_io_stop(s->loop, &job->io);
	DL_DELETE(s->waiting, job);
	job->awaits = false;
}

static void on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
	struct slice_job *job = w->data;
	struct slices *s = job->slices;
	io_watch_failed(loop, w, revents);
	if (!(revents & EV_READ))
		return;
	end_wait(s, job);
	enter(s, job);
}

void slice_start(struct slices *s, struct slice_job *job)
{
	if (job->slices)
		return;
	job->slices = s;
	job->gently = NULL;
	job->awaits = false;
	enter(s, job);
}

void slice_stop(struct slice_job *job)
{
	struct slices *s = job->slices;
	if (!s)
		return;
	job->slices = NULL;
	if (job->awaits)
		end_wait(s, job);
	else
		leave(s, job);
}

void slice_await(struct slice_job *job, int fd)
{
	struct slices *s = job->slices;
	if (fd < 0 || !s || job->awaits)
		return;
	leave(s, job);
	DL_APPEND(s->waiting, job);
	job->awaits = true;
	ev_io_init(&job->io, on_readable, fd, EV_READ);
	job->io.data = job;
	io_watch(s->loop, &job->io);
}

void slice_gently(struct slice_job *job, bool (*fn)(struct slice_job *job))
{
	job->gently = fn;
}

void slices_give_way(struct slices *s, bool (*answered)(void *arg), void *arg)
{
	s->answered = answered;
	s->answered_arg = arg;
}

int64_t slice_until(void)
{
	return io_mono_ns() + SLICE_STEP_NS;
}
