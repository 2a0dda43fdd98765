// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/pool.h"
#include "tests/gateway/pool_state.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

#define SECOND_NS INT64_C(1000000000)
#define RETRY_MAX_S 60

// One that dies sooner than this after it was ready counts as a start gone wrong.
#define YOUNG_NS (5 * SECOND_NS)

struct pool *pool_new(const struct pool_limits *limits, const struct pool_driver *driver, void *arg)
{
	struct pool *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->limits = *limits;
	p->driver = *driver;
	p->arg = arg;
	p->retry_ns = INT64_MIN;
	return p;
}

void pool_free(struct pool *p)
{
	if (!p)
		return;
	struct slot *s, *next_slot;
	DL_FOREACH_SAFE(p->slots, s, next_slot)
	{
		if (s->place && !s->ended)
			p->driver.kill(p->arg, s);
		free(s);
	}
	struct claim *c, *next_claim;
	DL_FOREACH_SAFE(p->claims, c, next_claim)
	free(c);
	free(p);
}

const char *slot_state_name(enum slot_state s)
{
	static const char *const names[SLOT_STATES] = {
		[SLOT_PENDING] = "pending",
		[SLOT_WARM] = "warm",
		[SLOT_ACTIVE] = "active",
		[SLOT_RESETTING] = "resetting",
		[SLOT_FAILED] = "failed",
		[SLOT_TERMINATED] = "terminated",
	};
	return (unsigned)s < SLOT_STATES ? names[s] : "unknown";
}

struct slot *pool_first(const struct pool *p)
{
	return p->slots;
}

void pool_count(const struct pool *p, struct pool_counts *c)
{
	*c = (struct pool_counts){0};
	const struct slot *s;
	DL_FOREACH(p->slots, s)
	c->slots[s->state]++;
	struct budget used = budget_used(p);
	c->memory_mb = (int)used.memory_mb;
	c->cpus = used.cpus;
}

static void enter(struct slot *s, enum slot_state state, int64_t now_ns)
{
	s->state = state;
	s->since_ns = now_ns;
	if (state != SLOT_PENDING)
		s->wanted = false;
}

bool slot_alive(const struct slot *s)
{
	return !s->ended && s->pool->driver.alive(s->pool->arg, s);
}

void pool_back_off(struct pool *p, int64_t now_ns)
{
	if (now_ns < p->retry_ns)
		return; // several that fail together are one failure
	int64_t pause = p->failures < 6 ? INT64_C(1) << p->failures : RETRY_MAX_S;
	p->failures++;
	p->retry_ns = now_ns + pause * SECOND_NS;
}

int slot_begin(struct pool *p, const struct slot_size *size, int64_t now_ns)
{
	struct slot *s = calloc(1, sizeof *s);
	if (!s)
		return -ENOMEM;
	s->pool = p;
	s->number = ++p->numbers;
	s->size = *size;
	s->remove_when_gone = true;
	enter(s, SLOT_PENDING, now_ns);
	DL_APPEND(p->slots, s);
	int rc = p->driver.start(p->arg, s);
	if (rc < 0) {
		DL_DELETE(p->slots, s);
		free(s);
	}
	return rc;
}

// Takes S out of use: it is in STATE from now on, and whoever counted on it is told WHY. NULL: by its owner's own will.
static void leave(struct slot *s, enum slot_state state, const char *why, int64_t now_ns)
{
	struct pool *p = s->pool;
	enum slot_state old = s->state;
	bool young = old == SLOT_WARM && now_ns - s->since_ns < YOUNG_NS;
	struct claim *c = why && old == SLOT_PENDING ? claim_failing(p, s) : NULL;
	enter(s, state, now_ns);
	if (why && (old == SLOT_PENDING || young))
		pool_back_off(p, now_ns);
	if (why && old == SLOT_ACTIVE && p->driver.lost)
		p->driver.lost(p->arg, s, why);
	s->session = NULL;
	if (!c)
		return;
	struct err e;
	err_set(&e, ERR_UNAVAILABLE, "the sandbox could not be started: %s", why);
	claim_fail(p, c, &e);
}

void slot_end(struct slot *s, const char *why, int64_t now_ns)
{
	leave(s, slot_alive(s) ? SLOT_FAILED : SLOT_TERMINATED, why, now_ns);
	s->pool->driver.kill(s->pool->arg, s);
}

void pool_release(struct slot *s, bool reuse, int64_t now_ns)
{
	struct pool *p = s->pool;
	if (s->state != SLOT_ACTIVE && s->state != SLOT_PENDING)
		return;
	if (s->state == SLOT_ACTIVE && reuse && slot_alive(s)) {
		enter(s, SLOT_RESETTING, now_ns);
		s->resets = 1;
		p->driver.reset(p->arg, s);
		s->session = NULL;
	} else {
		slot_end(s, NULL, now_ns);
	}
	pool_settle(p, now_ns);
}

void pool_started(struct slot *s, int64_t now_ns)
{
	if (s->state != SLOT_PENDING || !slot_alive(s))
		return; // given up meanwhile, or its end is about to be told
	s->pool->failures = 0;
	enter(s, SLOT_WARM, now_ns);
	pool_settle(s->pool, now_ns);
}

void pool_ended(struct slot *s, const char *why, int64_t now_ns)
{
	struct pool *p = s->pool;
	if (s->ended)
		return;
	s->ended = true;
	if (s->state != SLOT_TERMINATED)
		leave(s, SLOT_TERMINATED, why, now_ns);
	p->driver.remove(p->arg, s);
	pool_settle(p, now_ns);
}

void pool_reset_done(struct slot *s, int rc, const char *why, int64_t now_ns)
{
	if (s->state != SLOT_RESETTING)
		return;
	if (rc == 0 && slot_alive(s))
		enter(s, SLOT_WARM, now_ns);
	else
		slot_end(s, why ? why : "its celld has ended", now_ns);
	pool_settle(s->pool, now_ns);
}

void pool_removed(struct slot *s, int64_t now_ns)
{
	(void)now_ns;
	DL_DELETE(s->pool->slots, s);
	free(s);
}
