// SPDX-License-Identifier: Apache-2.0
// slice: long jobs on the loop, step by step. Each turn of the loop runs steps, one job after the other, for at most about
// SLICE_TURN_NS in all; the sockets have the rest of the turn, so neither starves the other. With no job nothing is armed.
// The owner embeds a struct slice_job and takes it off with slice_stop before it frees it. Within a step everything is allowed: to
// stop and free the own job or others, to start more.
#ifndef CELLD_CORE_SLICE_H
#define CELLD_CORE_SLICE_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#define SLICE_TURN_NS INT64_C(1000000)
// A rest is one sleep of the loop, a millisecond at the least. With these two a removal of 50 000 files that stays on the loop takes x1.5 of nftw's
// time and /health waits 1.6 to 3 ms at the worst meanwhile; without rests x0.87 and 3 to 7 ms (the kernel frees inodes in batches of its own),
// with turns of a millisecond x2.3 and 1 ms.
#define SLICE_GENTLE_TURN_NS INT64_C(2000000)
#define SLICE_REST_S 0.0003
#define SLICE_STEP_NS INT64_C(500000) // what one step should take at most

struct slices;

struct slice_job {
	// Does a piece of the work. Is called again and again until slice_stop.
	void (*step)(struct slice_job *job);
	// The scheduler goes away with the job still running: frees it. Not called after slice_stop.
	void (*drop)(struct slice_job *job);
	struct slices *slices;                 // private: where it runs, NULL if it does not
	bool (*gently)(struct slice_job *job); // private: see slice_gently
	bool awaits;                           // private: see slice_await
	ev_io io;
	struct slice_job *prev, *next;
};

// LOOP is borrowed. NULL when out of memory.
struct slices *slices_new(struct ev_loop *loop);
// Drops what still runs. NULL is allowed.
void slices_free(struct slices *s);
// Runs JOB (step and drop set, the rest zero at first) from the next turn on. Does nothing if it runs already.
void slice_start(struct slices *s, struct slice_job *job);
// Stops it; it may be started again. Does nothing if it does not run.
void slice_stop(struct slice_job *job);
// FN is called in the place of the running JOB's step until it returns false. Unless another job runs, turns are a little longer then, with
// rests of a millisecond between them: for work whose after-effects the kernel must keep up with, or it does them in one go that holds
// everybody up (freeing inodes).
void slice_gently(struct slice_job *job, bool (*fn)(struct slice_job *job));
// The steps of the running JOB come again once FD is readable, and cost nothing until then. Does nothing if FD is -1.
void slice_await(struct slice_job *job, int fd);
// ANSWERED says whether anybody was answered since it was last asked: he gets the CPU before the next turn. Not called after slices_free.
void slices_give_way(struct slices *s, bool (*answered)(void *arg), void *arg);
// When a step that begins now should return (io_mono_ns).
int64_t slice_until(void);

#endif
