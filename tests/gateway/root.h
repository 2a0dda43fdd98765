// SPDX-License-Identifier: Apache-2.0
// root: the directory that all of a gateway's sandboxes live in: slots/N for their claims, snapshots and paused for what outlives them.
// One gateway at a time; what an earlier one left there goes. Its calls block: only for the start and the end.
#ifndef CELLD_GATEWAY_ROOT_H
#define CELLD_GATEWAY_ROOT_H

#include <stdbool.h>

struct root {
	char path[4096]; // absolute; "" = not open
	int lock;
	bool own; // was made here and goes with root_close
};

// DIR is made if missing; NULL: a new one, and those that killed gateways have left go. 0 or negative errno (-EBUSY: another gateway's).
int root_open(struct root *r, const char *dir);
// Removes all of what is in it, and itself if it is its own. Accepts one that is not open.
void root_close(struct root *r);

#endif
