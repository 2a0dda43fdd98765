// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/slice.h"

#include "daemon/io.h"

#include <stdlib.h>
#include <utlist.h>

struct slices {
	struct ev_loop *loop;
	struct slice_job *jobs; // the next one first
	struct ev_check turn;   // once a turn, however busy the sockets are
	struct ev_idle awake;   // keeps the loop from sleeping
	struct ev_timer rest;
	bool resting;
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

static void rest(struct slices *s)
{
	s->resting = true;
	ev_idle_stop(s->loop, &s->awake);
	ev_now_update(s->loop); // or it would be reckoned from before the turn, and be over
	ev_timer_set(&s->rest, SLICE_REST_S, 0.);
	ev_timer_start(s->loop, &s->rest);
}

static void on_turn(struct ev_loop *loop, struct ev_check *w, int revents)
{
	(void)loop, (void)revents;
	struct slices *s = w->data;
	if (s->resting)
		return;
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
	if (all_gentle(s))
		rest(s);
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
	ev_check_init(&s->turn, on_turn);
	ev_idle_init(&s->awake, on_awake);
	ev_timer_init(&s->rest, on_rested, SLICE_REST_S, 0.);
	s->turn.data = s->rest.data = s;
	return s;
}

void slices_free(struct slices *s)
{
	if (!s)
		return;
	while (s->jobs) {
		struct slice_job *job = s->jobs;
		slice_stop(job);
		job->drop(job);
	}
	free(s);
}

void slice_start(struct slices *s, struct slice_job *job)
{
	if (job->slices)
		return;
	job->slices = s;
	job->gently = NULL;
	if (!s->jobs) {
		ev_check_start(s->loop, &s->turn);
		ev_idle_start(s->loop, &s->awake);
	}
	DL_APPEND(s->jobs, job);
	if (s->resting)
		on_rested(s->loop, &s->rest, 0);
}

void slice_stop(struct slice_job *job)
{
	struct slices *s = job->slices;
	if (!s)
		return;
	job->slices = NULL;
	DL_DELETE(s->jobs, job);
	if (s->jobs)
		return;
	ev_check_stop(s->loop, &s->turn);
	ev_idle_stop(s->loop, &s->awake);
	ev_timer_stop(s->loop, &s->rest);
	s->resting = false;
}

void slice_gently(struct slice_job *job, bool (*fn)(struct slice_job *job))
{
	job->gently = fn;
}

int64_t slice_until(void)
{
	return io_mono_ns() + SLICE_STEP_NS;
}
