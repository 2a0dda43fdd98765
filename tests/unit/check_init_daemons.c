// SPDX-License-Identifier: Apache-2.0
// Daemons that do as badly as they can, and those that want another binary in their place.
#include "daemon/io.h"
#include "daemon/log.h"
#include "initkit.h"
#include "oom.h"
#include "storekit.h"
#include "suites.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

// --- deaths ---

static int exit_3(struct world *w)
{
	(void)w;
	return 3;
}

static int fault(struct world *w)
{
	(void)w;
	volatile uintptr_t at = 16;
	*(volatile char *)at = 1;
	return 0;
}

static int note_reason(struct world *w)
{
	struct store_deaths d;
	store_deaths(w->store, &d);
	memcpy(w->reason, d.reason, sizeof w->reason);
	w->left = (int)d.restarts;
	w->was_held = d.last_ms > io_wall_ms() - 60000 && d.last_ms <= io_wall_ms();
	w->code = (int)d.upgrades;
	return 0;
}

START_TEST(reason_of_a_death_is_unknown)
{
	static const struct {
		int (*daemon)(struct world *w);
		const char *reason;
	} cases[] = {{exit_3, "exit status 3"}, {world_do_die, "Killed"}, {fault, "Segmentation fault at 0x10"}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct world *w = world_new();
		w->daemon[0] = cases[i].daemon;
		w->daemon[1] = note_reason;
		world_run(w);
		ck_assert_str_eq(w->reason, cases[i].reason);
		ck_assert_int_eq(w->left, 1);
		ck_assert(w->was_held);
		world_free(w);
	}
}
END_TEST

// --- upgrades ---

static int want_upgrade(struct world *w)
{
	store_upgrade(w->store);
	return STORE_EXIT_UPGRADE;
}

static int not_there(struct world *w)
{
	(void)w;
	return -ENOENT;
}

static int not_celld(struct world *w)
{
	(void)w;
	_exit(0);
}

static int dies(struct world *w)
{
	(void)w;
	return world_die();
}

static int another_layout(struct world *w)
{
	(void)w;
	_exit(STORE_EXIT_LAYOUT);
}

static int ends_well(struct world *w)
{
	store_set(&w->store->head->renew, STORE_RENEW_DONE);
	_exit(0);
}

static int hangs(struct world *w)
{
	while (w->left == 0)
		pause();
	return 0;
}

START_TEST(bad_binary_ends_the_sandbox)
{
	static const struct {
		int (*renew)(struct world *w);
		int renewals;
	} cases[] = {{not_there, 1}, {not_celld, 2}, {dies, 2}, {another_layout, 1}, {hangs, 2}};
	struct world *w = world_new();
	w->daemon[0] = want_upgrade;
	w->daemon[1] = note_reason;
	w->renew = cases[_i].renew;
	world_run(w);
	ck_assert_int_eq(w->renewals, cases[_i].renewals);
	ck_assert_int_eq(w->starts, 2);
	ck_assert_int_eq(w->code, 1);
	world_free(w);
}
END_TEST

START_TEST(good_binary_is_not_started)
{
	struct world *w = world_new();
	w->daemon[0] = want_upgrade;
	w->renew = ends_well;
	world_run(w);
	ck_assert_int_eq(w->renewals, 1);
	ck_assert_int_eq(w->starts, 1);
	world_free(w);
}
END_TEST

static int crash_in_upgrade(struct world *w)
{
	store_upgrade(w->store);
	return world_die();
}

START_TEST(crash_in_an_upgrade_forgets_it)
{
	struct world *w = world_new();
	w->daemon[0] = crash_in_upgrade;
	w->renew = ends_well;
	world_run(w);
	ck_assert_int_eq(w->renewals, 1);
	world_free(w);
}
END_TEST

// --- what a daemon can do to init ---

static int scribble(struct world *w)
{
	struct store_slot *slot = world_command(w, 7, 0);
	struct store *s = w->store;
	while (!__atomic_load_n(&store_life(slot)->pid, __ATOMIC_ACQUIRE))
		usleep(1000); // else the command could say it after the scribbling
	const struct store_msg m = {0};
	memset(s->base, 0xa5, s->shape.log_at);
	(void)!send(s->channel, &m, sizeof m, MSG_NOSIGNAL);
	kill(w->init, STORE_SIGNAL);
	usleep(20000); // it may look at it now
	return world_die();
}

static int find_nothing(struct world *w)
{
	w->left = world_left(w, 0) != NULL;
	w->was_held = !world_until(world_first_gone, w, 3000);
	struct store_slot *slot = store_take(w->store);
	w->fd_ok = slot && store_life(slot)->pid == 0 && store_whole(w->store);
	return 0;
}

START_TEST(scribbled_arena_ends_init)
{
	struct world *w = world_new();
	w->daemon[0] = scribble;
	w->daemon[1] = find_nothing;
	world_run(w);
	ck_assert_int_eq(w->starts, 2);
	ck_assert(!w->left);
	ck_assert_msg(!w->was_held, "the command lives on, with nobody who knows it");
	ck_assert(w->fd_ok);
	world_free(w);
}
END_TEST

static int flood(struct world *w)
{
	unsigned seed = 1;
	uint32_t m[4];
	signal(SIGTERM, SIG_IGN);
	for (w->left = 1; w->left;) {
		for (int i = 0; i < 4; i++)
			m[i] = (uint32_t)rand_r(&seed) % 5;
		(void)!send(w->store->channel, m, (size_t)rand_r(&seed) % 17, MSG_NOSIGNAL);
		kill(w->init, STORE_SIGNAL);
	}
	return 0;
}

static bool flooded(struct world *w)
{
	return w->left;
}

START_TEST(flood_makes_init_deaf)
{
	struct world *w = world_new();
	w->daemon[0] = flood;
	pid_t pid = world_start(w);
	ck_assert(world_until(flooded, w, 3000));
	usleep(50000);
	int64_t start = io_mono_ns();
	ck_assert_int_eq(kill(pid, SIGTERM), 0);
	world_end(pid, 0);
	ck_assert_int_lt(io_mono_ns() - start, (int64_t)3000000000);
	world_free(w);
}
END_TEST

static int hand_and_die(struct world *w)
{
	for (int i = 0; i < 8; i++)
		world_command(w, -1, -1); // ends at once, in a slot that the next one releases
	return world_die();
}

static int release_and_die(struct world *w)
{
	size_t at = 0;
	struct store_slot *slot;
	for (; (slot = store_left(w->store, at, &at)); at++)
		store_release(slot);
	return hand_and_die(w);
}

static int count_fds(struct world *w)
{
	char path[64];
	size_t at = 0, n = 0;
	struct store_slot *slot;
	for (; (slot = store_left(w->store, at, &at)); at++)
		store_release(slot);
	for (int i = 0; i < 256; i++) {
		snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)w->init, i);
		char to[64];
		n += readlink(path, to, sizeof to) > 0 && strncmp(to, "pipe:", sizeof to > 5 ? 5 : 0) == 0;
	}
	w->left = (int)n;
	return 0;
}

// Eight copies each, given back by the next one.
START_TEST(crashes_wear_init_out)
{
	struct world *w = world_new();
	w->daemon[0] = count_fds;
	world_run(w);
	int before = w->left;
	w->daemon[0] = hand_and_die;
	w->daemon[1] = release_and_die;
	w->daemon[7] = count_fds;
	world_run(w);
	ck_assert_int_eq(w->starts, 9);
	ck_assert_int_le(w->left, before + 8);
	world_free(w);
}
END_TEST

// --- when init looks ---

// A pipe in a new slot that only init has the reading end of, and nobody once it has dropped it.
static bool pipe_with_init(struct world *w, int *writer, struct store_slot **slot)
{
	int out[2], fds[STORE_ENDS] = {-1, -1, -1, -1, -1};
	if (io_pipe(out) < 0)
		return false;
	fds[STORE_STDOUT] = out[0];
	*writer = out[1];
	*slot = store_take(w->store);
	bool handed = *slot && store_hand(*slot, fds) == 0;
	close(out[0]);
	return handed;
}

static bool has_reader(int writer)
{
	struct pollfd p = {.fd = writer, .events = POLLOUT};
	return poll(&p, 1, 0) == 1 && !(p.revents & POLLERR);
}

static bool first_has_none(struct world *w)
{
	return !has_reader((int)w->pids[0]);
}

static int drop_and_wake(struct world *w)
{
	struct store_slot *slot;
	int writer;
	if (!pipe_with_init(w, &writer, &slot))
		return world_failed(w, __LINE__);
	w->pids[0] = writer;
	store_wake(w->store);
	usleep(20000);
	if (!has_reader(writer))
		return world_failed(w, __LINE__);
	store_drop(slot, 1u << STORE_STDOUT);
	store_wake(w->store);
	return world_until(first_has_none, w, 3000) ? 0 : world_failed(w, __LINE__);
}

// Nobody wakes init: it comes by itself before what it is to look at is much.
static int drop_many(struct world *w)
{
	struct store_slot *slot;
	int writer;
	for (int i = 0; i < 100; i++) {
		if (!pipe_with_init(w, &writer, &slot))
			return world_failed(w, __LINE__);
		store_release(slot);
		if (i == 0)
			w->pids[0] = writer;
		else
			close(writer);
	}
	return world_until(first_has_none, w, 3000) ? 0 : world_failed(w, __LINE__);
}

START_TEST(init_is_not_woken)
{
	struct world *w = world_new();
	w->daemon[0] = _i ? drop_many : drop_and_wake;
	world_run(w);
	world_free(w);
}
END_TEST

// Without init's pauses between them.
START_TEST(thousand_daemons_that_die_at_once)
{
	struct storekit k;
	unsigned seed = 9;
	storekit_init(&k, 64);
	init_store_gone(&k.init);
	size_t before = storekit_fds();
	int pipes[2];
	ck_assert_int_eq(io_pipe(pipes), 0);
	oom_fail_at(-1);
	for (int i = 0; i < 1000; i++) {
		int channel = init_store_open(&k.init);
		pid_t pid = fork();
		if (pid == 0) {
			init_store_child(&k.init, channel);
			int fds[STORE_ENDS] = {pipes[0], pipes[1], -1, -1, -1};
			size_t at = 0;
			struct store_slot *slot;
			for (; (slot = store_left(k.init.store, at, &at)); at++) {
				if (rand_r(&seed) % 2)
					store_release(slot);
			}
			for (int n = rand_r(&seed) % 8; n > 0 && (slot = store_take(k.init.store)); n--)
				store_hand(slot, fds);
			world_die();
		}
		close(channel);
		k.init.daemon = pid;
		if (rand_r(&seed) % 2)
			init_store_turn(&k.init);
		waitpid(pid, NULL, 0);
		init_store_gone(&k.init);
	}
	long allocations = oom_count();
	oom_off();
	ck_assert_int_eq(allocations, 0);
	close(pipes[0]);
	close(pipes[1]);
	ck_assert_uint_eq(storekit_fds(), before + storekit_held(&k));
	ck_assert_uint_le(storekit_held(&k), 128);
	storekit_release(&k);
}
END_TEST

static void quiet(void)
{
	log_setup(LOG_ERROR, false);
}

Suite *init_daemons_suite(void)
{
	Suite *s = suite_create("init_daemons");
	TCase *tc = tcase_create("daemons");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, quiet, NULL);
	tcase_add_test(tc, reason_of_a_death_is_unknown);
	tcase_add_loop_test(tc, bad_binary_ends_the_sandbox, 0, 5);
	tcase_add_test(tc, good_binary_is_not_started);
	tcase_add_test(tc, crash_in_an_upgrade_forgets_it);
	tcase_add_test(tc, scribbled_arena_ends_init);
	tcase_add_test(tc, flood_makes_init_deaf);
	tcase_add_test(tc, crashes_wear_init_out);
	tcase_add_loop_test(tc, init_is_not_woken, 0, 2);
	tcase_add_test(tc, thousand_daemons_that_die_at_once);
	suite_add_tcase(s, tc);
	return s;
}
