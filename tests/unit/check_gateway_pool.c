// SPDX-License-Identifier: Apache-2.0
// The states of a node's slots, one test for each thing that went wrong in the field; claims that wait are in check_gateway_claims.c.
#include "poolkit.h"
#include "suites.h"

#include <string.h>

#define ASSERT_MSG(e, part) ck_assert_msg(strstr((e).msg, part) != NULL, "\"%s\" lacks \"%s\"", (e).msg, part)

// A pool without stock: every slot is begun by a claim.
static struct kit *bare(size_t max, int memory_mb, double cpus)
{
	return kit_new(&(struct pool_limits){.max = max, .memory_mb = memory_mb, .cpus = cpus});
}

static struct kit *stocked(size_t warm)
{
	struct kit *k = kit_new(&(struct pool_limits){.warm = warm});
	kit_run(k);
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), warm);
	return k;
}

START_TEST(failed_one_in_resetting_is_left)
{
	struct kit *k = bare(0, 0, 0);
	// Its celld has died while it was being emptied, and nobody was told.
	struct slot *s = kit_claim(k);
	unsigned number = s->number;
	pool_release(s, true, k->now);
	ck_assert_int_eq(s->state, SLOT_RESETTING);
	k->frozen = true;
	kit_die(k, s);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 1);
	ck_assert_int_eq(s->state, SLOT_TERMINATED);
	kit_run(k);
	ck_assert(!k->box[number].directory);
	k->frozen = false;
	// The reset says that it failed: not warm, though it lives.
	s = kit_claim(k);
	number = s->number;
	pool_release(s, true, k->now);
	kit_reset_done(k, number, -39);
	ck_assert_int_eq(s->state, SLOT_FAILED);
	kit_run(k);
	ck_assert(!k->box[number].directory);
	// It says that all went well, and is dead.
	s = kit_claim(k);
	pool_release(s, true, k->now);
	kit_die(k, s);
	kit_reset_done(k, s->number, 0);
	ck_assert_int_eq(s->state, SLOT_TERMINATED);
	kit_run(k);
	ck_assert_ptr_null(pool_first(k->pool));
	kit_free(k);
}
END_TEST

START_TEST(one_pending_past_the_grace_is_left)
{
	struct kit *k = kit_new(&(struct pool_limits){.warm = 1});
	struct slot *s = kit_first(k, SLOT_PENDING);
	unsigned number = s->number;
	kit_wait_s(k, KIT_GRACE_S + 0.1);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 1);
	ck_assert_int_eq(s->state, SLOT_FAILED);
	pool_started(s, k->now); // too late
	ck_assert_int_eq(s->state, SLOT_FAILED);
	k->frozen = true;
	kit_run(k);
	ck_assert(!k->box[number].directory);
	kit_free(k);
}
END_TEST

START_TEST(recent_pending_one_is_reclaimed)
{
	struct kit *k = kit_new(&(struct pool_limits){.warm = 1});
	struct slot *s = kit_first(k, SLOT_PENDING);
	kit_wait_s(k, KIT_GRACE_S - 0.1);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 0);
	ck_assert_int_eq(s->state, SLOT_PENDING);
	ck_assert_int_eq(kit_box(k, s)->kills, 0);
	kit_run(k);
	ck_assert_int_eq(s->state, SLOT_WARM);
	kit_free(k);
}
END_TEST

START_TEST(dead_one_in_some_state_is_left)
{
	struct kit *k = kit_new(&(struct pool_limits){.warm = 1});
	struct slot *s = kit_first(k, SLOT_PENDING);
	kit_die(k, s);
	kit_started(k, s->number); // what it said before
	ck_assert_int_eq(s->state, SLOT_PENDING);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 1);
	kit_wait_s(k, 2);
	kit_run(k);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 0); // the pause is over: the stock is filled
	kit_run(k);
	s = kit_first(k, SLOT_WARM);
	kit_die(k, s);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 1);
	kit_wait_s(k, 2);
	kit_run(k);
	s = kit_claim(k);
	kit_die(k, s);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 1);
	ck_assert_uint_eq(k->lost, 1);
	kit_run(k);
	s = kit_claim(k);
	pool_release(s, false, k->now);
	ck_assert_int_eq(s->state, SLOT_FAILED);
	kit_die(k, s); // and its end is never told
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 1);
	ck_assert_int_eq(s->state, SLOT_TERMINATED);
	int kills = kit_box(k, s)->kills;
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 0);
	ck_assert_int_eq(kit_box(k, s)->kills, kills + 1); // asked again
	kit_run(k);
	kit_free(k);
}
END_TEST

START_TEST(healthy_resetting_one_is_not_promoted)
{
	struct kit *k = bare(0, 0, 0);
	struct slot *s = kit_claim(k);
	pool_release(s, true, k->now);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 0);
	ck_assert_int_eq(s->state, SLOT_RESETTING); // recent: not before it is empty
	kit_reset_done(k, s->number, 0);
	ck_assert_int_eq(s->state, SLOT_WARM);
	ck_assert_ptr_eq(kit_claim(k), s);
	// Its answer is lost: the sweep asks again.
	pool_release(s, true, k->now);
	kit_box(k, s)->resetting = false;
	kit_wait_s(k, KIT_GRACE_S + 1);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 0);
	ck_assert_int_eq(kit_box(k, s)->resets, 3);
	kit_reset_done(k, s->number, 0);
	ck_assert_int_eq(s->state, SLOT_WARM);
	// And once only: what then says nothing is of no use.
	ck_assert_ptr_eq(kit_claim(k), s);
	pool_release(s, true, k->now);
	kit_box(k, s)->resetting = false;
	for (size_t i = 0; i < 2; i++) {
		kit_wait_s(k, KIT_GRACE_S + 1);
		ck_assert_uint_eq(pool_sweep(k->pool, k->now), i);
	}
	ck_assert_int_eq(s->state, SLOT_FAILED);
	kit_free(k);
}
END_TEST

START_TEST(terminated_ones_use_budget)
{
	struct kit *k = bare(2, 1024, 2);
	struct slot *a = kit_claim(k), *b = kit_claim(k);
	struct kit_wait w = {0};
	ck_assert_int_eq(kit_ask(k, 512, 1, &w), -1);
	kit_say_ended(k, a);
	kit_say_ended(k, b);
	ck_assert_uint_eq(kit_in(k, SLOT_TERMINATED), 2); // their directories are still there
	struct pool_counts counts;
	pool_count(k->pool, &counts);
	ck_assert_int_eq(counts.memory_mb, 0);
	ck_assert_double_eq_tol(counts.cpus, 0, 1e-9);
	struct kit_wait x = {0}, y = {0};
	ck_assert_int_eq(kit_ask(k, 512, 1, &x), 1);
	ck_assert_int_eq(kit_ask(k, 512, 1, &y), 1);
	kit_run(k);
	ck_assert(x.slot && y.slot);
	kit_free(k);
}
END_TEST

START_TEST(node_full_of_memory_accepts)
{
	struct kit *k = bare(0, 2048, 0);
	for (int i = 0; i < 4; i++)
		kit_claim(k);
	struct kit_wait w = {0};
	ck_assert_int_eq(kit_ask(k, 512, 1, &w), -1);
	ck_assert_int_eq(w.e.code, ERR_RESOURCE_EXHAUSTED);
	ck_assert_int_eq(w.e.status, 429);
	ASSERT_MSG(w.e, "memory: 2048 of 2048 MiB are in use");
	ck_assert_int_eq(kit_ask(k, 1, 0, &w), -1);
	ck_assert_uint_eq(k->starts, 4); // and nothing was begun for it
	kit_run(k);
	ck_assert_int_eq(w.calls, 0);
	kit_free(k);
}
END_TEST

START_TEST(node_full_of_cpus_accepts)
{
	struct kit *k = bare(0, 0, 0.3);
	struct kit_wait w = {0};
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(kit_ask(k, 512, 0.1, &w), 1); // sums of tenths are not exact
		kit_run(k);
	}
	ck_assert_int_eq(kit_ask(k, 512, 0.1, &w), -1);
	ck_assert_int_eq(w.e.status, 429);
	ASSERT_MSG(w.e, "cpus: 0.3 of 0.3 are in use");
	kit_free(k);
}
END_TEST

START_TEST(node_full_of_sandboxes_accepts)
{
	struct kit *k = bare(3, 0, 0);
	for (int i = 0; i < 3; i++)
		kit_claim(k);
	struct kit_wait w = {0};
	ck_assert_int_eq(kit_ask(k, 512, 1, &w), -1);
	ck_assert_int_eq(w.e.status, 429);
	ASSERT_MSG(w.e, "sandboxes: 3 of 3 are in use");
	kit_free(k);
}
END_TEST

START_TEST(node_with_cpu_to_spare_refuses)
{
	struct kit *k = bare(0, 4096, 4);
	for (int i = 0; i < 3; i++)
		kit_claim(k);
	struct kit_wait w = {0};
	ck_assert_int_eq(kit_ask(k, 512, 1.5, &w), -1);
	ASSERT_MSG(w.e, "cpus: 3 of 4 are in use");
	kit_claim(k);
	kit_free(k);
}
END_TEST

START_TEST(unknown_cpu_refuses)
{
	struct kit *k = bare(0, 0, 0); // the node's
	for (int i = 0; i < 8; i++)
		kit_claim(k);
	kit_free(k);
	k = bare(0, 0, 2); // the sandboxes'
	kit_claim(k);
	kit_claim(k);
	struct kit_wait w = {0};
	ck_assert_int_eq(kit_ask(k, 512, 1, &w), -1);
	ck_assert_int_eq(kit_ask(k, 512, 0, &w), 1);
	kit_run(k);
	ck_assert_ptr_nonnull(w.slot);
	kit_free(k);
}
END_TEST

START_TEST(session_whose_sandbox_ended_leaves_its_claim)
{
	struct kit *k = bare(0, 0, 0);
	for (int reuse = 0; reuse < 2; reuse++) {
		struct slot *s = kit_claim(k);
		unsigned number = s->number;
		kit_die(k, s);
		pool_release(s, reuse, k->now);
		ck_assert_int_eq(k->box[number].resets, 0);
		kit_run(k);
		ck_assert_ptr_null(k->box[number].slot);
		ck_assert(!k->box[number].directory);
		ck_assert_int_eq(k->box[number].removes, 1);
		ck_assert_uint_eq(k->lost, 0); // who released it knows
	}
	kit_free(k);
}
END_TEST

START_TEST(destroyed_pending_one_loses_its_claim_before_it_is_gone)
{
	struct kit *k = kit_new(&(struct pool_limits){.warm = 1});
	struct slot *s = kit_first(k, SLOT_PENDING);
	unsigned number = s->number;
	pool_release(s, true, k->now);
	ck_assert_int_eq(s->state, SLOT_FAILED);
	ck_assert_int_eq(k->box[number].kills, 1);
	ck_assert_int_eq(k->box[number].removes, 0); // its celld may still be writing
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(pool_sweep(k->pool, k->now), 0);
	ck_assert_int_eq(k->box[number].removes, 0);
	ck_assert(k->box[number].directory);
	kit_ended(k, number);
	ck_assert_int_eq(k->box[number].removes, 1);
	kit_run(k);
	ck_assert(!k->box[number].directory);
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), 1); // another one, at once: nothing went wrong
	kit_free(k);
}
END_TEST

START_TEST(resumed_session_gets_the_dying_one)
{
	struct kit *k = stocked(0);
	struct slot *old = kit_claim(k);
	unsigned number = old->number;
	old->remove_when_gone = false; // paused to its file system
	pool_release(old, false, k->now);
	ck_assert_ptr_null(old->session);
	struct kit_wait w = {0};
	ck_assert_int_eq(kit_ask(k, 512, 1, &w), 1); // while the old one's celld still runs
	ck_assert(k->box[number].alive);
	kit_started(k, number + 1);
	ck_assert_int_eq(w.calls, 1);
	ck_assert_ptr_ne(w.slot, old);
	ck_assert_uint_ne(w.slot->number, number);
	kit_run(k);
	ck_assert(k->box[number].kept);
	ck_assert(k->box[number].directory);
	// A warm one that has died unseen is not given out either.
	pool_release(w.slot, true, k->now);
	kit_run(k);
	struct slot *dead = kit_first(k, SLOT_WARM);
	kit_die(k, dead);
	ck_assert_int_eq(kit_ask(k, 512, 1, &w), 1);
	ck_assert_int_eq(dead->state, SLOT_TERMINATED);
	kit_run(k);
	ck_assert(w.slot && k->box[w.slot->number].alive);
	kit_free(k);
}
END_TEST

START_TEST(nine_crashes_on_a_node_for_thirteen_cost_slots)
{
	struct kit *k = bare(13, 13 * 512, 13);
	struct slot *s[13];
	for (int i = 0; i < 13; i++)
		s[i] = kit_claim(k);
	for (int i = 0; i < 9; i++)
		kit_die(k, s[i]);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 9);
	ck_assert_uint_eq(k->lost, 9);
	for (int i = 9; i < 13; i++)
		pool_release(s[i], true, k->now);
	kit_run(k);
	struct slot *usable[13];
	for (int i = 0; i < 13; i++)
		usable[i] = kit_claim(k);
	for (int i = 0; i < 13; i++)
		for (int j = 0; j < i; j++)
			ck_assert_ptr_ne(usable[i], usable[j]);
	struct kit_wait w = {0};
	ck_assert_int_eq(kit_ask(k, 512, 1, &w), -1);
	kit_free(k);
	// In a row: each crash is told, and the next session gets another.
	k = bare(13, 13 * 512, 13);
	for (int i = 0; i < 9; i++)
		kit_say_ended(k, kit_claim(k));
	pool_sweep(k->pool, k->now);
	for (int i = 0; i < 13; i++)
		kit_claim(k);
	kit_free(k);
}
END_TEST

START_TEST(lost_session_is_told_twice_or_not)
{
	struct kit *k = bare(0, 0, 0);
	struct slot *s = kit_claim(k);
	unsigned number = s->number;
	kit_die(k, s);
	pool_sweep(k->pool, k->now);
	pool_sweep(k->pool, k->now);
	kit_ended(k, number);
	pool_ended(s, "again", k->now);
	ck_assert_int_eq(k->box[number].lost, 1);
	pool_release(s, true, k->now); // and whoever was told may still give it back
	kit_run(k);
	ck_assert_int_eq(k->box[number].removes, 1);
	kit_free(k);
}
END_TEST

START_TEST(surplus_of_warm_ones_stays_for_ever)
{
	struct kit *k = stocked(2);
	struct slot *s[5];
	for (int i = 0; i < 5; i++)
		s[i] = kit_claim(k);
	kit_run(k);
	for (int i = 0; i < 5; i++)
		pool_release(s[i], true, k->now);
	kit_run(k);
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), 7);
	pool_sweep(k->pool, k->now);
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), 7); // they may be wanted again soon
	kit_wait_s(k, KIT_GRACE_S + 1);
	ck_assert_uint_eq(pool_sweep(k->pool, k->now), 0);
	kit_run(k);
	ck_assert_uint_eq(kit_in(k, SLOT_WARM), 2);
	ck_assert_uint_eq(k->starts, 7);
	kit_free(k);
}
END_TEST

START_TEST(states_have_no_names)
{
	static const char *const names[] = {"pending", "warm", "active", "resetting", "failed", "terminated"};
	for (int i = 0; i < SLOT_STATES; i++)
		ck_assert_str_eq(slot_state_name((enum slot_state)i), names[i]);
	pool_free(NULL);
}
END_TEST

Suite *gateway_pool_suite(void)
{
	Suite *s = suite_create("gateway_pool");
	TCase *t = tcase_create("slots");
	suite_add_tcase(s, t);
	tcase_add_test(t, failed_one_in_resetting_is_left);
	tcase_add_test(t, one_pending_past_the_grace_is_left);
	tcase_add_test(t, recent_pending_one_is_reclaimed);
	tcase_add_test(t, dead_one_in_some_state_is_left);
	tcase_add_test(t, healthy_resetting_one_is_not_promoted);
	tcase_add_test(t, terminated_ones_use_budget);
	tcase_add_test(t, node_full_of_memory_accepts);
	tcase_add_test(t, node_full_of_cpus_accepts);
	tcase_add_test(t, node_full_of_sandboxes_accepts);
	tcase_add_test(t, node_with_cpu_to_spare_refuses);
	tcase_add_test(t, unknown_cpu_refuses);
	tcase_add_test(t, session_whose_sandbox_ended_leaves_its_claim);
	tcase_add_test(t, destroyed_pending_one_loses_its_claim_before_it_is_gone);
	tcase_add_test(t, resumed_session_gets_the_dying_one);
	tcase_add_test(t, nine_crashes_on_a_node_for_thirteen_cost_slots);
	tcase_add_test(t, lost_session_is_told_twice_or_not);
	tcase_add_test(t, surplus_of_warm_ones_stays_for_ever);
	tcase_add_test(t, states_have_no_names);
	return s;
}
