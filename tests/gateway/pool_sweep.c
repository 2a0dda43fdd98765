// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/pool_state.h"

#include <utlist.h>

// Warm ones of S's size beyond what is to be kept, the oldest first to go.
static bool surplus(const struct slot *s)
{
	const struct pool *p = s->pool;
	size_t keep = slot_size_same(&s->size, &p->limits.size) ? p->limits.warm : 0, younger = 0;
	for (const struct slot *o = s->next; o; o = o->next)
		younger += o->state == SLOT_WARM && slot_size_same(&o->size, &s->size);
	return younger >= keep;
}

static bool reclaim(struct slot *s, const char *why, int64_t now_ns)
{
	slot_end(s, why, now_ns);
	return true;
}

// Its reset has not answered for a grace: asked for once more, for what answers is of use; then given up.
static bool forgotten(struct slot *s, int64_t now_ns)
{
	if (s->resets > 1)
		return reclaim(s, "its reset does not end", now_ns);
	s->resets++;
	s->since_ns = now_ns;
	s->pool->driver.reset(s->pool->arg, s);
	return false;
}

static bool sweep_slot(struct slot *s, int64_t now_ns)
{
	bool alive = slot_alive(s), old = now_ns - s->since_ns > s->pool->limits.grace_ns;
	switch (s->state) {
	case SLOT_PENDING:
		if (!alive || old)
			return reclaim(s, alive ? "it did not get ready" : "its celld has ended", now_ns);
		return false;
	case SLOT_WARM:
		if (!alive)
			return reclaim(s, "its celld has ended", now_ns);
		if (old && surplus(s))
			slot_end(s, NULL, now_ns);
		return false;
	case SLOT_RESETTING:
		if (alive)
			return old && forgotten(s, now_ns);
		return reclaim(s, "its celld has ended", now_ns);
	case SLOT_ACTIVE:
		return !alive && reclaim(s, "its celld has ended", now_ns);
	case SLOT_FAILED:
		if (!alive)
			return reclaim(s, "its celld has ended", now_ns);
		s->pool->driver.kill(s->pool->arg, s);
		return false;
	case SLOT_TERMINATED:
		if (!s->ended)
			s->pool->driver.kill(s->pool->arg, s);
		return false;
	case SLOT_STATES:
		break;
	}
	return false;
}

size_t pool_sweep(struct pool *p, int64_t now_ns)
{
	size_t back = 0;
	struct slot *s, *next;
	DL_FOREACH_SAFE(p->slots, s, next)
	back += sweep_slot(s, now_ns);
	pool_settle(p, now_ns);
	return back;
}
