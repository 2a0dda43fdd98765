// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/pool_state.h"

#include <utlist.h>

// CPU figures are sums of fractions: so much is rounding.
#define ROUNDING 1e-6

bool slot_size_same(const struct slot_size *a, const struct slot_size *b)
{
	return a->memory_mb == b->memory_mb && a->cpus >= b->cpus && a->cpus <= b->cpus;
}

void budget_add(struct budget *b, const struct slot_size *size)
{
	b->slots++;
	b->memory_mb += size->memory_mb;
	b->cpus += size->cpus;
}

static void budget_sub(struct budget *b, const struct slot_size *size)
{
	b->slots--;
	b->memory_mb -= size->memory_mb;
	b->cpus -= size->cpus;
}

struct budget budget_used(const struct pool *p)
{
	struct budget used = {0};
	const struct slot *s;
	DL_FOREACH(p->slots, s)
	if (s->state != SLOT_TERMINATED)
		budget_add(&used, &s->size);
	return used;
}

static bool fits(const struct pool *p, const struct budget *used, const struct slot_size *size)
{
	const struct pool_limits *l = &p->limits;
	return used->slots < (long long)l->max &&
	       (l->memory_mb == 0 || used->memory_mb + size->memory_mb <= l->memory_mb) &&
	       (!(l->cpus > 0) || used->cpus + size->cpus <= l->cpus + ROUNDING);
}

bool budget_fits(const struct pool *p, const struct slot_size *size)
{
	struct budget used = budget_used(p);
	return fits(p, &used, size);
}

// On its way out, unless it has been for so long that nobody should count on it.
static bool going(const struct pool *p, const struct slot *s, int64_t now_ns)
{
	return (s->state == SLOT_FAILED || s->state == SLOT_RESETTING) && now_ns - s->since_ns < p->limits.grace_ns;
}

// Stock that is of no use for a claim of SIZE.
static bool spare(const struct slot *s, const struct slot_size *size)
{
	return (s->state == SLOT_WARM || (s->state == SLOT_PENDING && !s->wanted)) && !slot_size_same(&s->size, size);
}

static bool fits_once_dead(const struct pool *p, const struct slot_size *size, bool and_spare, int64_t now_ns)
{
	struct budget used = budget_used(p);
	const struct slot *s;
	DL_FOREACH(p->slots, s)
	if ((s->state == SLOT_FAILED && going(p, s, now_ns)) || (and_spare && spare(s, size)))
		budget_sub(&used, &s->size);
	return fits(p, &used, size);
}

bool budget_room(struct pool *p, const struct slot_size *size, int64_t now_ns)
{
	if (budget_fits(p, size))
		return true;
	if (!fits_once_dead(p, size, true, now_ns))
		return false;
	for (struct slot *s = p->slots, *next; s && !fits_once_dead(p, size, false, now_ns); s = next) {
		next = s->next;
		if (spare(s, size))
			slot_end(s, NULL, now_ns);
	}
	return budget_fits(p, size); // what was found dead is gone at once
}

static int say_full(const struct pool *p, const struct slot_size *size, struct err *e)
{
	const struct pool_limits *l = &p->limits;
	struct budget used = budget_used(p);
	if (l->memory_mb > 0 && used.memory_mb + size->memory_mb > l->memory_mb)
		return err_set(e, ERR_RESOURCE_EXHAUSTED, "memory: %lld of %d MiB are in use, %d more are needed",
			used.memory_mb, l->memory_mb, size->memory_mb);
	if (l->cpus > 0 && used.cpus + size->cpus > l->cpus + ROUNDING)
		return err_set(e, ERR_RESOURCE_EXHAUSTED, "cpus: %.6g of %.6g are in use, %.6g more are needed",
			used.cpus, l->cpus, size->cpus);
	return err_set(e, ERR_RESOURCE_EXHAUSTED, "sandboxes: %lld of %zu are in use", used.slots, l->max);
}

bool budget_admits(
	const struct pool *p, const struct slot_size *size, const struct claim *until, int64_t now_ns, struct err *e)
{
	struct budget used = budget_used(p);
	const struct slot *s;
	DL_FOREACH(p->slots, s)
	if (going(p, s, now_ns) || spare(s, size))
		budget_sub(&used, &s->size);
	for (const struct claim *c = p->claims; c && c != until; c = c->next)
		if (!claim_covered(p, c))
			budget_add(&used, &c->size);
	if (fits(p, &used, size))
		return true;
	say_full(p, size, e);
	return false;
}
