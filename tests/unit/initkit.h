// SPDX-License-Identifier: Apache-2.0
// initkit: the init part in a process of its own, with daemons made for a test.
#ifndef CELLD_UNIT_INITKIT_H
#define CELLD_UNIT_INITKIT_H

#include "daemon/core/store_priv.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WORLD_STEPS 16

// What all the processes of one test share.
struct world {
	int (*daemon[WORLD_STEPS])(
		struct world *w); // by number of the start; the last one given goes on for all later ones
	int (*renew)(struct world *w);
	struct store *store;
	volatile int starts, renewals;
	volatile pid_t init, pids[4];
	volatile int code, status, was_held, left, fd_ok;
	volatile int64_t took_ms;
	volatile int failed; // where
	char reason[96];
	int go[2]; // commands end when it is closed or written to
	int delay_us;
};

struct world *world_new(void);
// The test fails if a daemon called world_failed.
void world_free(struct world *w);
// Starts init with the daemons of W. Its pid.
pid_t world_start(struct world *w);
// Waits for its end, with STATUS.
void world_end(pid_t pid, int status);
// Both, for one that ends by itself with 0.
void world_run(struct world *w);

// --- in daemons ---

int world_die(void);
int world_do_die(struct world *w);
// Ends the sandbox (else a daemon that fails would be started again and again), and the test with it.
int world_failed(struct world *w, int line);
bool world_until(bool (*what)(struct world *w), struct world *w, int64_t ms);
// A command in a slot, pids[N]: ends with CODE once somebody calls world_go; with N < 0 at once.
struct store_slot *world_command(struct world *w, int code, int n);
void world_go(struct world *w);
// The N-th slot that an earlier daemon left, or NULL.
struct store_slot *world_left_slot(struct world *w, size_t n);
struct store_life *world_left(struct world *w, size_t n);
// Of a process: 'Z' for a zombie, '-' for none.
char world_state_of(pid_t pid);
// pids[0] is not there any more.
bool world_first_gone(struct world *w);

#endif
