// SPDX-License-Identifier: Apache-2.0
#include "poolkit.h"

#include <check.h>
#include <stdlib.h>

static struct kit_box *box_at(struct kit *k, unsigned number)
{
	ck_assert_uint_gt(number, 0);
	ck_assert_uint_lt(number, KIT_BOXES);
	return &k->box[number];
}

struct kit_box *kit_box(struct kit *k, const struct slot *s)
{
	return box_at(k, s->number);
}

static int on_start(void *arg, struct slot *s)
{
	struct kit *k = arg;
	k->starts++;
	if (k->start_rc < 0)
		return k->start_rc;
	struct kit_box *b = box_at(k, s->number);
	ck_assert_int_eq(b->starts, 0);
	*b = (struct kit_box){.slot = s, .alive = true, .directory = true, .starts = 1, .starting = true};
	k->boxes = s->number;
	s->place = b;
	return 0;
}

static void on_reset(void *arg, struct slot *s)
{
	struct kit_box *b = kit_box(arg, s);
	ck_assert_int_eq(s->state, SLOT_RESETTING);
	ck_assert(b->alive);
	b->resets++;
	b->resetting = true;
}

static bool on_alive(void *arg, const struct slot *s)
{
	return kit_box(arg, s)->alive;
}

static void on_kill(void *arg, struct slot *s)
{
	struct kit_box *b = kit_box(arg, s);
	ck_assert_ptr_eq(b->slot, s);
	b->kills++;
	b->killed = true;
}

static void on_remove(void *arg, struct slot *s)
{
	struct kit_box *b = kit_box(arg, s);
	ck_assert(!b->alive);
	ck_assert_int_eq(b->removes, 0);
	b->removes++;
	b->removing = true;
}

static void on_lost(void *arg, struct slot *s, const char *why)
{
	struct kit *k = arg;
	struct kit_box *b = kit_box(k, s);
	ck_assert(!b->alive);
	ck_assert_ptr_nonnull(why);
	k->lost++;
	b->lost++;
	b->why = why;
	if (k->on_lost)
		k->on_lost(k, s);
}

struct kit *kit_new(const struct pool_limits *limits)
{
	static const struct pool_driver driver = {on_start, on_reset, on_alive, on_kill, on_remove, on_lost};
	struct kit *k = calloc(1, sizeof *k);
	ck_assert_ptr_nonnull(k);
	k->limits = *limits;
	if (k->limits.grace_ns == 0)
		k->limits.grace_ns = KIT_GRACE_S * KIT_S;
	if (k->limits.size.memory_mb == 0)
		k->limits.size = (struct slot_size){.memory_mb = 512, .cpus = 1};
	if (k->limits.max == 0)
		k->limits.max = 64;
	k->now = 1000 * KIT_S;
	k->low = 1;
	k->pool = pool_new(&k->limits, &driver, k);
	ck_assert_ptr_nonnull(k->pool);
	pool_fill(k->pool, k->now);
	return k;
}

void kit_free(struct kit *k)
{
	kit_check(k);
	int open = 0, killed = 0;
	for (unsigned i = 1; i <= k->boxes; i++) {
		if (k->box[i].slot && k->box[i].removes == 0)
			open++;
		k->box[i].killed = false;
	}
	pool_free(k->pool);
	for (unsigned i = 1; i <= k->boxes; i++)
		killed += k->box[i].slot && k->box[i].killed;
	ck_assert_int_eq(killed, open);
	free(k);
}

void kit_wait_s(struct kit *k, double seconds)
{
	k->now += (int64_t)(seconds * (double)KIT_S);
}

void kit_die(struct kit *k, struct slot *s)
{
	kit_box(k, s)->alive = false;
}

void kit_say_ended(struct kit *k, struct slot *s)
{
	struct kit_box *b = kit_box(k, s);
	b->alive = b->starting = b->resetting = b->killed = false;
	pool_ended(s, "exit status 1", k->now);
	kit_check(k);
}

void kit_started(struct kit *k, unsigned box)
{
	struct kit_box *b = box_at(k, box);
	ck_assert(b->starting);
	b->starting = false;
	pool_started(b->slot, k->now);
	kit_check(k);
}

void kit_ended(struct kit *k, unsigned box)
{
	ck_assert(box_at(k, box)->killed);
	kit_say_ended(k, box_at(k, box)->slot);
}

void kit_removed(struct kit *k, unsigned box)
{
	struct kit_box *b = box_at(k, box);
	struct slot *s = b->slot;
	ck_assert(b->removing);
	b->removing = false;
	b->kept = !s->remove_when_gone;
	b->directory = b->kept;
	b->slot = NULL;
	while (k->low < k->boxes && !k->box[k->low].slot)
		k->low++;
	pool_removed(s, k->now);
	kit_check(k);
}

void kit_reset_done(struct kit *k, unsigned box, int rc)
{
	struct kit_box *b = box_at(k, box);
	ck_assert(b->resetting);
	b->resetting = false;
	pool_reset_done(b->slot, rc, rc == 0 ? NULL : "the workspace is not empty", k->now);
	kit_check(k);
}

void kit_run(struct kit *k)
{
	kit_check(k);
	for (bool again = true; again;) {
		again = false;
		for (unsigned i = k->low; i <= k->boxes; i++) {
			struct kit_box *b = &k->box[i];
			if (!b->slot)
				continue;
			bool before = again;
			again = true;
			if (b->killed)
				kit_ended(k, i);
			else if (b->removing)
				kit_removed(k, i);
			else if (b->starting && b->alive && !k->frozen)
				kit_started(k, i);
			else if (b->resetting && b->alive && !k->frozen)
				kit_reset_done(k, i, k->reset_rc);
			else
				again = before;
		}
	}
}

// Checked many times over: Check's own macros tell another process of each.
#define MUST(what) ((what) ? (void)0 : ck_abort_msg("%s", #what))

void kit_check(const struct kit *k)
{
	struct pool_counts counts, sum = {0};
	pool_count(k->pool, &counts);
	size_t slots = 0, boxes = 0;
	for (const struct slot *s = pool_first(k->pool); s; s = s->next) {
		slots++;
		sum.slots[s->state]++;
		MUST(k->box[s->number].slot == s);
		MUST(k->box[s->number].directory);
		if (s->state == SLOT_TERMINATED) {
			MUST(!k->box[s->number].alive);
			continue;
		}
		sum.memory_mb += s->size.memory_mb;
		sum.cpus += s->size.cpus;
	}
	for (unsigned i = k->low; i <= k->boxes; i++)
		boxes += k->box[i].slot != NULL;
	MUST(slots == boxes);
	size_t used = 0;
	for (int state = 0; state < SLOT_STATES; state++) {
		MUST(counts.slots[state] == sum.slots[state]);
		used += state == SLOT_TERMINATED ? 0 : counts.slots[state];
	}
	MUST(counts.memory_mb == sum.memory_mb);
	MUST(counts.cpus - sum.cpus < 1e-6 && sum.cpus - counts.cpus < 1e-6);
	MUST(used <= k->limits.max);
	MUST(k->limits.memory_mb == 0 || counts.memory_mb <= k->limits.memory_mb);
	MUST(!(k->limits.cpus > 0) || counts.cpus <= k->limits.cpus + 1e-6);
}

static void on_done(void *arg, struct slot *s, const struct err *e)
{
	struct kit_wait *w = arg;
	ck_assert_int_eq(w->calls, 0);
	ck_assert((s == NULL) != (e == NULL));
	w->calls++;
	w->slot = s;
	if (w->orders)
		w->order = ++*w->orders;
	if (e)
		w->e = *e;
	if (s) {
		ck_assert_int_eq(s->state, SLOT_ACTIVE);
		ck_assert(kit_box(w->kit, s)->alive);
		s->session = w;
	}
}

int kit_ask(struct kit *k, int memory_mb, double cpus, struct kit_wait *w)
{
	struct slot_size size = {.memory_mb = memory_mb, .cpus = cpus};
	int *orders = w->orders;
	*w = (struct kit_wait){.kit = k, .orders = orders};
	int rc = pool_claim(k->pool, &size, k->now, &w->slot, on_done, w, &w->e);
	ck_assert_int_eq(w->calls, 0);
	if (rc == 0) {
		ck_assert_int_eq(w->slot->state, SLOT_ACTIVE);
		ck_assert(kit_box(k, w->slot)->alive);
		ck_assert_ptr_null(w->slot->session);
		w->slot->session = w;
	}
	kit_check(k);
	return rc;
}

struct slot *kit_claim(struct kit *k)
{
	struct kit_wait w = {0};
	int rc = kit_ask(k, k->limits.size.memory_mb, k->limits.size.cpus, &w);
	ck_assert_int_ge(rc, 0);
	if (rc == 1) {
		kit_run(k);
		ck_assert_int_eq(w.calls, 1);
	}
	ck_assert_ptr_nonnull(w.slot);
	return w.slot;
}

size_t kit_in(const struct kit *k, enum slot_state state)
{
	struct pool_counts counts;
	pool_count(k->pool, &counts);
	return counts.slots[state];
}

struct slot *kit_first(const struct kit *k, enum slot_state state)
{
	struct slot *s = pool_first(k->pool);
	while (s && s->state != state)
		s = s->next;
	ck_assert_ptr_nonnull(s);
	return s;
}
