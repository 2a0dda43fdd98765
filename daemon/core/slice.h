// SPDX-License-Identifier: Apache-2.0
// slice: long jobs on the loop, step by step. Each turn of the loop runs steps, one job after the other, for at most about
// SLICE_TURN_NS in all; the sockets have the rest of the turn, so neither starves the other. With no job nothing is armed.
// A job may go aside: then it runs in the one thread beside the loop, which lives only while there is such work.
// The owner embeds a struct slice_job and takes it off with slice_stop before it frees it. Within a step everything is allowed: to
// stop and free the own job or others, to start more.
#ifndef CELLD_CORE_SLICE_H
#define CELLD_CORE_SLICE_H

#include <ev.h>
#include <stdbool.h>
#include <stdint.h>

#define SLICE_TURN_NS INT64_C(1000000)
#define SLICE_STEP_NS INT64_C(500000) // what one step should take at most

struct slices;

struct slice_job {
	// Does a piece of the work. Is called again and again until slice_stop.
	void (*step)(struct slice_job *job);
	// The scheduler goes away with the job still running: frees it. Not called after slice_stop.
	void (*drop)(struct slice_job *job);
	struct slices *slices;                // private: where it runs, NULL if it does not
	bool (*aside)(struct slice_job *job); // NULL if nothing is to be done aside any more
	bool away;                            // it is, or was and the loop does not know yet that it is back
	bool back, stopped;                   // of one that is away; the thread has these too
	struct slice_job *prev, *next;
};

// LOOP is borrowed. NULL when out of memory.
struct slices *slices_new(struct ev_loop *loop);
// Drops what still runs. NULL is allowed.
void slices_free(struct slices *s);
// Runs JOB (step and drop set, the rest zero at first) from the next turn on. Does nothing if it runs already.
void slice_start(struct slices *s, struct slice_job *job);
// Stops it; it may be started again. Does nothing if it does not run. One that is aside is waited for: until its FN returns.
void slice_stop(struct slice_job *job);
// The running JOB goes aside, for work that is nothing but system calls which hold everybody up (freeing inodes, copying trees): FN is called
// in the thread until it returns false, then step in the loop again. FN should return after SLICE_STEP_NS, and touches nothing but
// what belongs to the job alone. Without a thread to be had, FN is called in the loop.
void slice_aside(struct slice_job *job, bool (*fn)(struct slice_job *job));
// When a step that begins now should return (io_mono_ns).
int64_t slice_until(void);

#endif
