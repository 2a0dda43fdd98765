// SPDX-License-Identifier: Apache-2.0
// pool: the slots of a node: their states, the warm ones, the budget, the sweep. It decides; what is to be done with a real celld is its driver's
// (struct pool_driver), which answers by the functions below, now or later. Time comes in from outside (now_ns). Pure enough to be tested without any daemon.
#ifndef CELLD_GATEWAY_POOL_H
#define CELLD_GATEWAY_POOL_H

#include "proto/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// PENDING: its celld starts. WARM: ready, empty, nobody's. ACTIVE: a session's (paused ones too). RESETTING: its session is over, it is being emptied.
// FAILED: of no use: its celld is dead, or start or reset went wrong. TERMINATED: its celld is gone and its directory (claim) is being removed; uses no budget.
enum slot_state { SLOT_PENDING, SLOT_WARM, SLOT_ACTIVE, SLOT_RESETTING, SLOT_FAILED, SLOT_TERMINATED, SLOT_STATES };

struct slot_size {
	int memory_mb;
	double cpus; // 0 = unknown: uses none of the CPU budget
};

struct pool;
struct slot {
	struct pool *pool;
	unsigned number; // from 1, never used twice
	enum slot_state state;
	struct slot_size size;
	int64_t since_ns; // in this state
	bool wanted;      // PENDING: for a claim that waits, not for the warm stock
	bool remove_when_gone; // its claim ends with it (false: kept, for a session paused to its file system); true unless its owner says otherwise
	void *place;     // the driver's
	void *session;   // the session's, ACTIVE only
	bool ended;      // the driver has said so. This and what follows is the pool's
	unsigned resets; // asked for since it was ACTIVE
	struct slot *prev, *next;
};

struct pool_driver {
	// Begins a celld for S (place is the driver's to make): pool_started or pool_ended follows, later.
	// 0 or negative errno (the slot is dropped then).
	int (*start)(void *arg, struct slot *s);
	// Empties S: pool_reset_done follows, later. S->session is still there, the first time.
	// Asked again after the grace when no answer came: begin anew.
	void (*reset)(void *arg, struct slot *s);
	// Asks the kernel whether its celld lives.
	bool (*alive)(void *arg, const struct slot *s);
	// Ends its celld: pool_ended follows, later (also when it had ended already). May be asked again while it does not follow.
	void (*kill)(void *arg, struct slot *s);
	// Its celld has ended: removes the claim (directory) if remove_when_gone, and the place; pool_removed follows, later, and S is no more.
	void (*remove)(void *arg, struct slot *s);
	// The session in S has lost its celld (WHY). From here on S is no session's. May be NULL in tests.
	void (*lost)(void *arg, struct slot *s, const char *why);
};

struct pool_limits {
	size_t warm;           // to keep ready
	size_t max;            // slots that use budget
	int memory_mb;         // 0 = no limit
	double cpus;           // 0 = unknown: no CPU check
	int64_t grace_ns;      // a pending one older than this is reclaimed
	struct slot_size size; // of warm ones
};

struct pool *pool_new(const struct pool_limits *limits, const struct pool_driver *driver, void *arg);
// All slots and claims are forgotten at once; the driver's kill is called for each slot with a place whose end was not told, and nothing of the pool may be called after it.
void pool_free(struct pool *p);

// A session wants a slot of SIZE. 0: *OUT is ACTIVE and its own (a warm one of that size); 1: one starts or is on its way back, DONE(ARG, slot, NULL) or DONE(ARG, NULL, err)
// follows once, later; -1 with E filled: the node is full, 429 resource_exhausted, and the message says of what ("memory: 4096 of 4096 MiB are in use", "cpus: ...",
// "sandboxes: ..."). A warm one of another size makes room if that is all that is missing.
int pool_claim(struct pool *p, const struct slot_size *size, int64_t now_ns, struct slot **out,
	void (*done)(void *arg, struct slot *s, const struct err *e), void *arg, struct err *e);
// The claim that waits with that ARG is not wanted any more: what it began joins the warm ones.
void pool_unclaim(struct pool *p, void *arg);
// The session in S is over. REUSE: reset and back to warm; false, or when its celld has ended: deleted, claim and all (a pending one keeps its claim until it is gone).
void pool_release(struct slot *s, bool reuse, int64_t now_ns);

// The driver's answers.
void pool_started(struct slot *s, int64_t now_ns);
void pool_ended(struct slot *s, const char *why, int64_t now_ns);
void pool_reset_done(struct slot *s, int rc, const char *why, int64_t now_ns);
void pool_removed(struct slot *s, int64_t now_ns);

// Reclaims what is dead in every state and what has been pending for too long; has a healthy one whose reset was forgotten reset again (and warm with that), once;
// ends warm ones beyond the stock that nobody took for a grace; fills the stock up. Returns how many slots it gave back.
size_t pool_sweep(struct pool *p, int64_t now_ns);
// Starts warm ones as far as stock and budget want it; not while starts go wrong: then after a pause that doubles up to a minute.
void pool_fill(struct pool *p, int64_t now_ns);
struct pool_counts {
	size_t slots[SLOT_STATES];
	int memory_mb; // in use
	double cpus;
};
void pool_count(const struct pool *p, struct pool_counts *c);
struct slot *pool_first(const struct pool *p);  // then slot->next
const char *slot_state_name(enum slot_state s); // "warm"

#endif
