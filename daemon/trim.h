// SPDX-License-Identifier: Apache-2.0
// trim: gives freed memory back to the kernel. What a large answer or many connections needed stays with the allocator if anything small
// lies above it. A second after the loop did something, free memory is looked at, and given back if there is enough; a loop that
// sleeps is not woken again. Must not know what was freed, nor by whom.
#ifndef CELLD_DAEMON_TRIM_H
#define CELLD_DAEMON_TRIM_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

struct trim {
	struct ev_prepare turn;
	struct ev_timer look;
	size_t floor; // bytes that are resident and not in use: the least seen since memory was given back last
	bool looked;  // this turn is the look's own
};

// LOOP is borrowed and outlives T.
void trim_start(struct trim *t, struct ev_loop *loop);
// Does nothing if it was never started (zeroed).
void trim_stop(struct trim *t, struct ev_loop *loop);
// Looks now; true if memory was given back. (The loop does it by itself.)
bool trim_look(struct trim *t);

#endif
