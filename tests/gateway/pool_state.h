// SPDX-License-Identifier: Apache-2.0
// The pool's inside, shared by pool*.c alone: its lists and the steps that keep them right.
// Every step leaves the states true before it calls out, so that a callback may call the pool again.
#ifndef CELLD_GATEWAY_POOL_STATE_H
#define CELLD_GATEWAY_POOL_STATE_H

#include "tests/gateway/pool.h"

// One that waits for a slot of its size. The first that waits for a size gets the first that is ready: none is bound to a slot.
struct claim {
	struct slot_size size;
	void (*done)(void *arg, struct slot *s, const struct err *e);
	void *arg;
	struct claim *prev, *next;
};

struct pool {
	struct pool_limits limits;
	struct pool_driver driver;
	void *arg;
	struct slot *slots;   // oldest first
	struct claim *claims; // oldest first
	unsigned numbers;     // given so far
	unsigned failures;    // starts gone wrong since the last good one
	int64_t retry_ns;     // no start for the stock before this
	bool serving, again;
};

// --- pool_budget.c ---
struct budget {
	long long slots, memory_mb;
	double cpus;
};
bool slot_size_same(const struct slot_size *a, const struct slot_size *b);
// What all slots use; dying ones too until their celld is gone.
struct budget budget_used(const struct pool *p);
void budget_add(struct budget *b, const struct slot_size *size);
bool budget_fits(const struct pool *p, const struct slot_size *size); // one more, now
// Whether SIZE fits now. If not, and ending others' stock would be enough, ends that (it fits once they are gone).
bool budget_room(struct pool *p, const struct slot_size *size, int64_t now_ns);
// Whether SIZE will fit once what is on its way out is gone and all claims before UNTIL (NULL: all) have theirs. False with E
// filled: 429, and what there is too little of.
bool budget_admits(
	const struct pool *p, const struct slot_size *size, const struct claim *until, int64_t now_ns, struct err *e);

// --- pool_claim.c ---
// Whether one that starts is meant for C already.
bool claim_covered(const struct pool *p, const struct claim *c);
// A start of SIZE has gone wrong (S is still PENDING): the claim that is left without one, or NULL.
struct claim *claim_failing(const struct pool *p, const struct slot *s);
void claim_fail(struct pool *p, struct claim *c, const struct err *e);
// After any change: gives what is ready to whom it belongs, starts what is wanted, fills the stock.
void pool_settle(struct pool *p, int64_t now_ns);

// --- pool.c ---
bool slot_alive(const struct slot *s);
// A new PENDING one whose celld is being started. 0 or negative errno.
int slot_begin(struct pool *p, const struct slot_size *size, int64_t now_ns);
// S is of no use any more: FAILED, or TERMINATED if its celld is dead; killed. A claim or session that counted on it is told WHY.
// WHY NULL: nothing went wrong, it is only not to be kept.
void slot_end(struct slot *s, const char *why, int64_t now_ns);
// A start has gone wrong: the stock waits before the next.
void pool_back_off(struct pool *p, int64_t now_ns);

#endif
