// SPDX-License-Identifier: Apache-2.0
// Claims on a node's pool that have to wait, starts that go wrong, room that others make, and long random histories.
#include "oom.h"
#include "poolkit.h"
#include "suites.h"

#include <errno.h>
#include <string.h>

#define ASSERT_MSG(e, part) ck_assert_msg(strstr((e).msg, part) != NULL, "\"%s\" lacks \"%s\"", (e).msg, part)

static struct kit *bare(size_t max, int memory_mb)
{
	return kit_new(&(struct pool_limits){.max = max, .memory_mb = memory_mb});
}

START_TEST(claims_that_wait_are_served_out_of_order)
{
	struct kit *k = bare(0, 0);
	int orders = 0;
	struct kit_wait w[4];
	for (int i = 0; i < 4; i++) {
		w[i].orders = &orders;
		ck_assert_int_eq(kit_ask(k, 512, 1, &w[i]), 1);
	}
	ck_assert_uint_eq(k->starts, 4);
	kit_started(k, 3); // the first that is ready is for the first that waits
	ck_assert_int_eq(w[0].order, 1);
	ck_assert_uint_eq(w[0].slot->number, 3);
	kit_started(k, 4);
	kit_started(k, 1);
	kit_started(k, 2);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(w[i].order, i + 1);
	ck_assert_uint_eq(kit_in(k, SLOT_ACTIVE), 4);
	kit_free(k);
}
END_TEST

START_TEST(claim_begins_another_though_one_starts_for_the_stock)
{
	struct kit *k = kit_new(&(struct pool_limits){.warm = 1, .max = 2});
	ck_assert_uint_eq(k->starts, 1);
	struct kit_wait w = {0};
	ck_assert_int_eq(kit_ask(k, 512, 1, &w), 1);
	ck_assert_uint_eq(k->starts, 2); // that one is the new stock
	ck_assert(kit_first(k, SLOT_PENDING)->wanted);
	ck_assert(!kit_first(k, SLOT_PENDING)->next->wanted);
	kit_started(k, 1);
	ck_assert_int_eq(w.calls, 1);
	kit_run(k);
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), 1);
	kit_free(k);
}
END_TEST

START_TEST(claim_given_up_is_answered)
{
	struct kit *k = bare(0, 0);
	struct kit_wait w[2];
	memset(w, 0, sizeof w);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(kit_ask(k, 512, 1, &w[i]), 1);
	pool_unclaim(k->pool, &w[0]);
	pool_unclaim(k->pool, &w[0]); // nobody's
	kit_started(k, 1);
	ck_assert_int_eq(w[0].calls, 0);
	ck_assert_int_eq(w[1].calls, 1);
	kit_run(k);
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), 1); // what it began is the next one's
	ck_assert_int_eq(kit_ask(k, 512, 1, &w[0]), 0);
	ck_assert_uint_eq(k->starts, 2);
	kit_free(k);
}
END_TEST

START_TEST(destroy_then_create_on_a_full_node_is_refused)
{
	for (int reuse = 0; reuse < 2; reuse++) {
		struct kit *k = bare(1, 0);
		struct slot *s = kit_claim(k);
		struct kit_wait w = {0}, x = {0};
		pool_release(s, reuse, k->now);
		ck_assert_int_eq(kit_ask(k, 512, 1, &w), 1);  // it waits for that room
		ck_assert_int_eq(kit_ask(k, 512, 1, &x), -1); // which is one sandbox's
		ck_assert_uint_eq(k->starts, 1);
		kit_run(k);
		ck_assert_int_eq(w.calls, 1);
		ck_assert_ptr_nonnull(w.slot);
		ck_assert_uint_eq(w.slot->number, reuse ? 1 : 2);
		kit_free(k);
	}
}
END_TEST

START_TEST(room_that_never_comes_is_waited_for)
{
	struct kit *k = bare(1, 0);
	struct slot *s = kit_claim(k);
	struct kit_wait w = {0};
	pool_release(s, false, k->now); // killed, but its celld hangs
	ck_assert_int_eq(kit_ask(k, 512, 1, &w), 1);
	kit_wait_s(k, KIT_GRACE_S + 1);
	pool_sweep(k->pool, k->now);
	ck_assert_int_eq(w.calls, 1);
	ck_assert_int_eq(w.e.status, 429);
	ASSERT_MSG(w.e, "sandboxes: 1 of 1");
	ck_assert_int_ge(kit_box(k, s)->kills, 2);
	kit_free(k);
}
END_TEST

START_TEST(warm_ones_of_another_size_take_the_room)
{
	struct kit *k = kit_new(&(struct pool_limits){.warm = 4, .memory_mb = 2048});
	kit_run(k);
	struct kit_wait w = {0}, x = {0};
	ck_assert_int_eq(kit_ask(k, 2049, 1, &x), -1); // no room would be enough
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), 4);
	ck_assert_int_eq(kit_ask(k, 1000, 1, &w), 1);
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), 2);   // as many as it takes
	ck_assert_uint_eq(kit_in(k, SLOT_FAILED), 2); // which use their memory until they are gone
	ck_assert_uint_eq(k->starts, 4);
	kit_ended(k, 1);
	ck_assert_uint_eq(k->starts, 4);
	kit_ended(k, 2);
	ck_assert_uint_eq(k->starts, 5);
	kit_run(k);
	ck_assert_int_eq(w.slot->size.memory_mb, 1000);
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), 2); // and the stock does not push back
	// One that starts for the stock makes room as well, one that starts for a claim does not.
	kit_free(k);
	k = kit_new(&(struct pool_limits){.warm = 1, .memory_mb = 1024});
	ck_assert_int_eq(kit_ask(k, 512, 1, &x), 1);
	ck_assert_int_eq(kit_ask(k, 1024, 1, &w), -1);
	ASSERT_MSG(w.e, "memory: 1024 of 1024 MiB");
	ck_assert_int_eq(kit_ask(k, 300, 1, &w), 1);
	kit_run(k);
	ck_assert_int_eq(x.calls, 1);
	ck_assert_int_eq(w.slot->size.memory_mb, 300);
	kit_free(k);
}
END_TEST

START_TEST(small_claim_overtakes_one_that_waits_for_room)
{
	struct kit *k = bare(0, 1024);
	struct slot *a = kit_claim(k);
	struct kit_wait big = {0}, small = {0};
	pool_release(a, false, k->now);
	ck_assert_int_eq(kit_ask(k, 1024, 1, &big), 1);
	ck_assert_int_eq(kit_ask(k, 100, 1, &small), -1); // it would fit now, and keep the first from its room
	kit_run(k);
	ck_assert_ptr_nonnull(big.slot);
	kit_free(k);
}
END_TEST

START_TEST(room_goes_to_one_that_came_later)
{
	struct kit *k = bare(0, 1536);
	struct slot *a = kit_claim(k), *b = kit_claim(k);
	struct kit_wait big = {0}, small = {0};
	pool_release(a, false, k->now);
	pool_release(b, false, k->now);
	ck_assert_int_eq(kit_ask(k, 1024, 1, &big), 1);
	ck_assert_int_eq(kit_ask(k, 512, 1, &small), 1); // there would be room now
	pool_sweep(k->pool, k->now);
	ck_assert_uint_eq(k->starts, 2);
	kit_ended(k, 1);
	ck_assert_uint_eq(k->starts, 3);
	ck_assert_int_eq(kit_first(k, SLOT_PENDING)->size.memory_mb, 1024);
	kit_run(k);
	ck_assert(big.slot && small.slot);
	kit_free(k);
}
END_TEST

START_TEST(stock_is_filled_though_one_is_on_its_way_back)
{
	struct kit *k = kit_new(&(struct pool_limits){.warm = 1});
	kit_run(k);
	k->start_rc = -EAGAIN; // no new stock for now
	struct slot *s = kit_claim(k);
	k->start_rc = 0;
	kit_wait_s(k, 2);
	unsigned before = k->starts;
	pool_release(s, true, k->now);
	ck_assert_uint_eq(k->starts, before);
	kit_run(k);
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), 1);
	kit_free(k);
}
END_TEST

START_TEST(start_that_fails_leaves_the_claim_waiting)
{
	struct kit *k = bare(0, 0);
	struct kit_wait w[3];
	memset(w, 0, sizeof w);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(kit_ask(k, 512, 1, &w[i]), 1);
	kit_say_ended(k, k->box[1].slot); // two are left for two: the last to come has none
	ck_assert_int_eq(w[2].calls, 1);
	ck_assert_int_eq(w[2].e.status, 503);
	ck_assert_int_eq(w[2].e.code, ERR_UNAVAILABLE);
	ASSERT_MSG(w[2].e, "exit status 1");
	kit_wait_s(k, KIT_GRACE_S + 1);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 2); // stuck
	ck_assert_int_eq(w[0].e.status, 503);
	ck_assert_int_eq(w[1].e.status, 503);
	kit_run(k);
	ck_assert_ptr_null(pool_first(k->pool));
	// It cannot even begin.
	k->start_rc = -EMFILE;
	ck_assert_int_eq(kit_ask(k, 512, 1, &w[0]), -1);
	ck_assert_int_eq(w[0].e.status, 503);
	k->start_rc = -ENOENT;
	ck_assert_int_eq(kit_ask(k, 512, 1, &w[0]), -1);
	ck_assert_int_eq(w[0].e.status, 503);
	ck_assert_ptr_null(pool_first(k->pool));
	kit_free(k);
}
END_TEST

START_TEST(start_fails_for_one_that_waited_for_room)
{
	struct kit *k = bare(1, 0);
	struct slot *s = kit_claim(k);
	struct kit_wait w = {0};
	pool_release(s, false, k->now);
	ck_assert_int_eq(kit_ask(k, 512, 1, &w), 1);
	k->start_rc = -EAGAIN;
	kit_run(k);
	ck_assert_int_eq(w.calls, 1);
	ck_assert_int_eq(w.e.status, 503);
	kit_free(k);
}
END_TEST

START_TEST(failing_starts_spin)
{
	struct kit *k = kit_new(&(struct pool_limits){.warm = 2});
	unsigned before = k->starts;
	ck_assert_uint_eq(before, 2);

	for (int s = 0; s < 600; s++) { // ten minutes in which every celld ends at once
		for (unsigned i = 1; i <= k->boxes; i++)
			if (k->box[i].slot && k->box[i].starting)
				kit_say_ended(k, k->box[i].slot);
		k->frozen = true;
		kit_run(k);
		pool_fill(k->pool, k->now);

		kit_wait_s(k, 1);
		pool_sweep(k->pool, k->now);
	}
	ck_assert_uint_gt(k->starts, 2 * 8);
	ck_assert_uint_lt(k->starts, 2 * 20); // 1, 2, 4 ... 60 s apart
	// And when the fault is mended, the stock is back within a minute.
	k->frozen = false;
	for (int s = 0; s < 61; s++) {
		kit_wait_s(k, 1);
		pool_sweep(k->pool, k->now);
		kit_run(k);
	}
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), 2);
	// What was is forgotten: two that fail together are one failure, and the first.
	for (int i = 0; i < 4; i++) // the warm ones, and at once the two that are begun in their place
		kit_say_ended(k, kit_first(k, i < 2 ? SLOT_WARM : SLOT_PENDING));
	before = k->starts;
	kit_wait_s(k, 0.9);
	pool_fill(k->pool, k->now);
	ck_assert_uint_eq(k->starts, before);
	kit_wait_s(k, 0.2);
	pool_fill(k->pool, k->now);
	ck_assert_uint_eq(k->starts, before + 2);
	kit_free(k);
}
END_TEST

START_TEST(warm_ones_that_die_at_once_spin)
{
	struct kit *k = kit_new(&(struct pool_limits){.warm = 2});
	for (int turn = 0; turn < 1000; turn++) {
		kit_run(k);
		for (struct slot *s = pool_first(k->pool), *next; s; s = next) {
			next = s->next;
			if (s->state == SLOT_WARM)
				kit_say_ended(k, s);
		}
	}
	ck_assert_uint_le(k->starts, 2);
	kit_wait_s(k, 2);
	pool_fill(k->pool, k->now);
	kit_run(k);
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), 2);
	// One that has stood for a while is replaced at once.
	kit_wait_s(k, 10);
	kit_say_ended(k, kit_first(k, SLOT_WARM));
	ck_assert_uint_eq(kit_in(k, SLOT_PENDING), 1);
	kit_free(k);
}
END_TEST

static struct kit_wait *again_wait;

static void claim_again(struct kit *k, struct slot *s)
{
	(void)s;
	ck_assert_int_ge(kit_ask(k, 512, 1, again_wait), 0);
}

START_TEST(callbacks_that_claim_upset_the_pool)
{
	struct kit *k = kit_new(&(struct pool_limits){.warm = 1, .max = 2});
	struct kit_wait w = {0};
	again_wait = &w;
	k->on_lost = claim_again;
	kit_run(k);
	struct slot *s = kit_claim(k);
	kit_die(k, s);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 1);
	kit_run(k);
	ck_assert_ptr_nonnull(w.slot);
	ck_assert_ptr_ne(w.slot, s);
	kit_free(k);
}
END_TEST

enum { RANDOM_WAITS = 24, RANDOM_STEPS = 5000 };

struct history {
	struct kit *kit;
	struct kit_wait wait[RANDOM_WAITS];
	enum { FREE, WAITING, HOLDING } is[RANDOM_WAITS];
	unsigned long long seed;
};

static unsigned draw(struct history *h, unsigned below)
{
	h->seed = h->seed * 6364136223846793005ULL + 1442695040888963407ULL;
	return (unsigned)(h->seed >> 33) % below;
}

// What a session in S would do when told that it is lost.
static void forget(struct kit *k, struct slot *s)
{
	(void)k;
	struct kit_wait *w = s->session;
	ck_assert_ptr_nonnull(w);
	w->slot = NULL;
}

static void session_step(struct history *h, unsigned i)
{
	static const int sizes[] = {512, 512, 512, 256, 1500};
	struct kit *k = h->kit;
	struct kit_wait *w = &h->wait[i];
	if (h->is[i] == WAITING && w->calls > 0)
		h->is[i] = HOLDING;
	if (h->is[i] == HOLDING && !w->slot)
		h->is[i] = FREE; // it was refused, or lost
	if (h->is[i] == FREE) {
		int rc = kit_ask(k, sizes[draw(h, 5)], draw(h, 3), w);
		h->is[i] = rc == 0 ? HOLDING : rc == 1 ? WAITING : FREE;
	} else if (h->is[i] == WAITING && draw(h, 4) == 0) {
		pool_unclaim(k->pool, w);
		h->is[i] = FREE;
	} else if (h->is[i] == HOLDING) {
		w->slot->remove_when_gone = draw(h, 5) > 0;
		pool_release(w->slot, draw(h, 3) > 0, k->now);
		w->slot = NULL;
		h->is[i] = FREE;
	}
}

static void box_step(struct history *h, unsigned i)
{
	struct kit *k = h->kit;
	struct kit_box *b = &k->box[i];
	if (!b->slot)
		return;
	if (b->removing)
		kit_removed(k, i);
	else if (b->killed)
		kit_ended(k, i);
	else if (draw(h, 12) == 0 && b->alive)
		b->alive = false;
	else if (!b->alive && b->removes == 0 && draw(h, 2) == 0)
		kit_say_ended(k, b->slot);
	else if (b->starting)
		kit_started(k, i);
	else if (b->resetting)
		kit_reset_done(k, i, draw(h, 5) ? 0 : -EIO);
}

// Slots that hold a session, and sessions that hold a slot, are the same.
static void check_sessions(const struct history *h)
{
	size_t holding = 0;
	for (unsigned i = 0; i < RANDOM_WAITS; i++) {
		const struct kit_wait *w = &h->wait[i];
		if ((h->is[i] == HOLDING || (h->is[i] == WAITING && w->calls > 0)) && w->slot) {
			if (w->slot->state != SLOT_ACTIVE || w->slot->session != w)
				ck_abort_msg("session %u has somebody else's slot", i);
			holding++;
		}
	}
	ck_assert_uint_eq(holding, kit_in(h->kit, SLOT_ACTIVE));
}

START_TEST(random_histories_lose_slots)
{
	struct history h = {.seed = (unsigned long long)_i + 1};
	h.kit = kit_new(&(struct pool_limits){.warm = (size_t)_i % 4,
		.max = _i % 2 ? 12 : 5,
		.memory_mb = _i % 3 ? 4096 : 0,
		.cpus = _i % 5 ? 8 : 0});
	h.kit->on_lost = forget;
	struct kit *k = h.kit;
	for (int n = 0; n < RANDOM_STEPS && k->boxes < KIT_BOXES - 64; n++) {
		k->start_rc = draw(&h, 20) ? 0 : -EAGAIN;
		unsigned what = draw(&h, 10);
		if (what < 4)
			session_step(&h, draw(&h, RANDOM_WAITS));
		else if (what < 9 && k->boxes > 0)
			box_step(&h, k->boxes - draw(&h, k->boxes < 40 ? k->boxes : 40));
		else if (draw(&h, 4) == 0)
			pool_sweep(k->pool, k->now);
		kit_wait_s(k, draw(&h, 100) ? 0.05 : 20);
		kit_check(k);
		check_sessions(&h);
	}
	// Everybody goes: after one sweep all that was ever used can be used again.
	k->start_rc = 0;
	for (unsigned i = 0; i < RANDOM_WAITS; i++) {
		if (h.is[i] == WAITING && h.wait[i].calls == 0)
			pool_unclaim(k->pool, &h.wait[i]);
		else if (h.is[i] != FREE && h.wait[i].slot)
			pool_release(h.wait[i].slot, true, k->now);
	}
	kit_run(k);
	kit_wait_s(k, 100);
	pool_sweep(k->pool, k->now);
	kit_run(k);
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), k->limits.warm);
	size_t most = k->limits.memory_mb && k->limits.max > 8 ? 8 : k->limits.max;
	if (k->limits.cpus > 0 && most > 8)
		most = 8;
	for (size_t i = 0; i < most; i++)
		kit_claim(k);
	kit_free(k);
}
END_TEST

static int start_nothing(void *arg, struct slot *s)
{
	(void)arg;
	(void)s;
	return 0;
}

static bool never_alive(void *arg, const struct slot *s)
{
	(void)arg;
	(void)s;
	return true;
}

static void nothing(void *arg, struct slot *s)
{
	(void)arg;
	(void)s;
}

static void done_nothing(void *arg, struct slot *s, const struct err *e)
{
	(void)arg;
	(void)s;
	(void)e;
}

static int make(void *arg)
{
	static const struct pool_driver driver = {start_nothing, nothing, never_alive, nothing, nothing, NULL};
	struct pool *p = pool_new(&(struct pool_limits){.max = 4, .grace_ns = KIT_S}, &driver, arg);
	struct slot *s;
	struct err e;
	if (!p)
		return -ENOMEM;
	int rc = pool_claim(p, &(struct slot_size){.memory_mb = 1}, 0, &s, done_nothing, NULL, &e);
	if (rc == 1)
		pool_started(pool_first(p), 0);
	bool told = rc == 1 || (rc == -1 && e.status == 503);
	pool_free(p);
	return !told ? 1 : rc == 1 ? 0 : -ENOMEM;
}

START_TEST(out_of_memory)
{
	OOM_LOOP(make, NULL);
}
END_TEST

Suite *gateway_claims_suite(void)
{
	Suite *s = suite_create("gateway_claims");
	TCase *t = tcase_create("claims");
	suite_add_tcase(s, t);
	tcase_add_test(t, claims_that_wait_are_served_out_of_order);
	tcase_add_test(t, claim_begins_another_though_one_starts_for_the_stock);
	tcase_add_test(t, claim_given_up_is_answered);
	tcase_add_test(t, destroy_then_create_on_a_full_node_is_refused);
	tcase_add_test(t, room_that_never_comes_is_waited_for);
	tcase_add_test(t, warm_ones_of_another_size_take_the_room);
	tcase_add_test(t, small_claim_overtakes_one_that_waits_for_room);
	tcase_add_test(t, room_goes_to_one_that_came_later);
	tcase_add_test(t, stock_is_filled_though_one_is_on_its_way_back);
	tcase_add_test(t, start_that_fails_leaves_the_claim_waiting);
	tcase_add_test(t, start_fails_for_one_that_waited_for_room);
	tcase_add_test(t, failing_starts_spin);
	tcase_add_test(t, warm_ones_that_die_at_once_spin);
	tcase_add_test(t, callbacks_that_claim_upset_the_pool);
	tcase_add_test(t, out_of_memory);
	t = tcase_create("histories");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_loop_test(t, random_histories_lose_slots, 0, 30);
	return s;
}
