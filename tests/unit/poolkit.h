// SPDX-License-Identifier: Apache-2.0
// poolkit: a gateway's pool over a driver and a clock that are made up. What the driver is asked for is noted and answered when the test says so
// (kit_run, or one by one), so that every order of events can be shown.
#ifndef CELLD_UNIT_POOLKIT_H
#define CELLD_UNIT_POOLKIT_H

#include "tests/gateway/pool.h"

#define KIT_BOXES 8192
#define KIT_S INT64_C(1000000000)

enum { KIT_GRACE_S = 30 };

// One slot's celld and directory, kept after the slot is gone.
struct kit_box {
	struct slot *slot; // NULL: the pool has let go of it
	bool alive, directory;
	bool kept;                                  // its directory was not to be removed
	int starts, resets, kills, removes, lost;   // times asked for
	bool starting, resetting, killed, removing; // to be answered
	const char *why;
};

struct kit {
	struct pool *pool;
	struct pool_limits limits;
	int64_t now;
	int start_rc;    // what start answers
	int reset_rc;    // what resets end with
	bool frozen;     // nothing answers in kit_run but ends and removals
	unsigned starts; // in all
	unsigned lost;
	unsigned boxes, low;           // the newest, and one that all older than it are gone
	struct kit_box box[KIT_BOXES]; // by number
	void (*on_lost)(struct kit *k, struct slot *s);
};

// A claim's answer.
struct kit_wait {
	struct kit *kit;
	int calls, order; // how often, and as the how manieth of all
	int *orders;
	struct slot *slot;
	struct err e;
};

// A pool for MAX slots of LIMITS (grace and size are filled in when 0). Freed by kit_free, which also checks.
struct kit *kit_new(const struct pool_limits *limits);
void kit_free(struct kit *k);
// Answers all that is open until nothing is; checks after every step.
void kit_run(struct kit *k);
void kit_wait_s(struct kit *k, double seconds); // only the clock
struct kit_box *kit_box(struct kit *k, const struct slot *s);
void kit_die(struct kit *k, struct slot *s); // its celld dies, and nobody is told
void kit_say_ended(struct kit *k, struct slot *s);
// One open answer of BOX; each fails the test if it is not open.
void kit_started(struct kit *k, unsigned box);
void kit_ended(struct kit *k, unsigned box);
void kit_removed(struct kit *k, unsigned box);
void kit_reset_done(struct kit *k, unsigned box, int rc);
// What holds at all times: sums are those of the states, no slot is lost, no directory of a living one is gone.
void kit_check(const struct kit *k);

// A claim of the limits' size, or of MEMORY/CPUS. kit_claim fails the test if it gets none.
struct slot *kit_claim(struct kit *k);
int kit_ask(struct kit *k, int memory_mb, double cpus, struct kit_wait *w);
size_t kit_in(const struct kit *k, enum slot_state state);
struct slot *kit_first(const struct kit *k, enum slot_state state);

#endif
