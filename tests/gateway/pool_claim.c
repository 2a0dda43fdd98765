// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/pool_state.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

// Claims of SIZE before UNTIL (NULL: all).
static size_t claims_before(const struct pool *p, const struct slot_size *size, const struct claim *until)
{
	size_t n = 0;
	for (const struct claim *c = p->claims; c && c != until; c = c->next)
		n += slot_size_same(&c->size, size);
	return n;
}

static size_t slots_in(const struct pool *p, const struct slot_size *size, enum slot_state state)
{
	size_t n = 0;
	const struct slot *s;
	DL_FOREACH(p->slots, s)
	n += s->state == state && slot_size_same(&s->size, size);
	return n;
}

bool claim_covered(const struct pool *p, const struct claim *c)
{
	return claims_before(p, &c->size, c) < slots_in(p, &c->size, SLOT_PENDING);
}

struct claim *claim_failing(const struct pool *p, const struct slot *s)
{
	size_t starting = slots_in(p, &s->size, SLOT_PENDING), n = 0;
	struct claim *c;
	DL_FOREACH(p->claims, c)
	if (slot_size_same(&c->size, &s->size) && ++n == starting)
		return c;
	return NULL;
}

static void answer(struct pool *p, struct claim *c, struct slot *s, const struct err *e)
{
	struct claim copy = *c;
	DL_DELETE(p->claims, c);
	free(c);
	copy.done(copy.arg, s, e);
}

void claim_fail(struct pool *p, struct claim *c, const struct err *e)
{
	answer(p, c, NULL, e);
}

// The oldest warm one of SIZE that lives; what is found dead is ended.
static struct slot *take_warm(struct pool *p, const struct slot_size *size, int64_t now_ns)
{
	struct slot *s, *next;
	DL_FOREACH_SAFE(p->slots, s, next)
	{
		if (s->state != SLOT_WARM || !slot_size_same(&s->size, size))
			continue;
		if (slot_alive(s)) {
			s->state = SLOT_ACTIVE;
			s->since_ns = now_ns;
			s->resets = 0;
			return s;
		}
		slot_end(s, "its celld has ended", now_ns);
	}
	return NULL;
}

static void err_start(struct err *e, int rc)
{
	err_sys(e, rc, "the sandbox could not be started");
	if (e->status < 500) // whatever it was, it is not the client's fault
		err_set(e, ERR_UNAVAILABLE, "the sandbox could not be started");
}

// Does one step for the claims, oldest first; false when none is left to do. A claim that has to wait for room holds up those behind it that need room too.
static bool serve_one(struct pool *p, int64_t now_ns)
{
	bool blocked = false;
	struct claim *c;
	DL_FOREACH(p->claims, c)
	{
		struct slot *s = take_warm(p, &c->size, now_ns);
		struct err e;
		if (s) {
			answer(p, c, s, NULL);
			return true;
		}
		if (blocked || claim_covered(p, c))
			continue;
		if (budget_room(p, &c->size, now_ns)) {
			int rc = slot_begin(p, &c->size, now_ns);
			if (rc == 0)
				return true;
			pool_back_off(p, now_ns);
			err_start(&e, rc);
			answer(p, c, NULL, &e);
			return true;
		}
		if (!budget_admits(p, &c->size, c, now_ns, &e)) {
			answer(p, c, NULL, &e);
			return true;
		}
		blocked = true;
	}
	return false;
}

static void mark_wanted(struct pool *p)
{
	for (struct slot *s = p->slots; s; s = s->next) {
		if (s->state != SLOT_PENDING)
			continue;
		size_t older = 0;
		for (const struct slot *o = p->slots; o != s; o = o->next)
			older += o->state == SLOT_PENDING && slot_size_same(&o->size, &s->size);
		s->wanted = older < claims_before(p, &s->size, NULL);
	}
}

static bool all_covered(const struct pool *p)
{
	const struct claim *c;
	DL_FOREACH(p->claims, c)
	if (!claim_covered(p, c))
		return false;
	return true;
}

void pool_fill(struct pool *p, int64_t now_ns)
{
	const struct slot_size *size = &p->limits.size;
	mark_wanted(p);
	if (now_ns < p->retry_ns || !all_covered(p))
		return;
	size_t wanted = claims_before(p, size, NULL) + p->limits.warm;
	size_t stock =
		slots_in(p, size, SLOT_PENDING) + slots_in(p, size, SLOT_WARM) + slots_in(p, size, SLOT_RESETTING);
	for (; stock < wanted && budget_fits(p, size); stock++) {
		if (slot_begin(p, size, now_ns) < 0) {
			pool_back_off(p, now_ns);
			return;
		}
	}
}

void pool_settle(struct pool *p, int64_t now_ns)
{
	p->again = true;
	if (p->serving)
		return; // from a callback: the one below it in the stack goes on
	p->serving = true;
	while (p->again) {
		p->again = false;
		do
			mark_wanted(p);
		while (serve_one(p, now_ns));
	}
	p->serving = false;
	pool_fill(p, now_ns);
}

int pool_claim(struct pool *p, const struct slot_size *size, int64_t now_ns, struct slot **out,
	void (*done)(void *arg, struct slot *s, const struct err *e), void *arg, struct err *e)
{
	*out = take_warm(p, size, now_ns);
	if (*out) {
		pool_settle(p, now_ns);
		return 0;
	}
	mark_wanted(p);
	bool first = all_covered(p), covered = claims_before(p, size, NULL) < slots_in(p, size, SLOT_PENDING);
	if (!covered && !budget_admits(p, size, NULL, now_ns, e))
		return -1;
	struct claim *c = calloc(1, sizeof *c);
	if (!c) {
		err_start(e, -ENOMEM);
		return -1;
	}
	*c = (struct claim){.size = *size, .done = done, .arg = arg};
	// Begun here and not by serve_one, for an error is to be this call's answer.
	int rc = !covered && first && budget_room(p, size, now_ns) ? slot_begin(p, size, now_ns) : 0;
	if (rc < 0) {
		free(c);
		pool_back_off(p, now_ns);
		err_start(e, rc);
		return -1;
	}
	DL_APPEND(p->claims, c);
	pool_fill(p, now_ns);
	return 1;
}

void pool_unclaim(struct pool *p, void *arg)
{
	struct claim *c;
	DL_FOREACH(p->claims, c)
	{
		if (c->arg != arg)
			continue;
		DL_DELETE(p->claims, c);
		free(c);
		mark_wanted(p);
		return;
	}
}
