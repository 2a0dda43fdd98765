// SPDX-License-Identifier: Apache-2.0
// The ends of orphans, through the init part.
#include "daemon/io.h"
#include "daemon/log.h"
#include "initkit.h"
#include "suites.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static bool first_ended(struct world *w)
{
	return world_left(w, 0) && store_get(&world_left(w, 0)->ended);
}

static bool second_ended(struct world *w)
{
	return world_left(w, 1) && store_get(&world_left(w, 1)->ended);
}

static bool first_has_pid(struct world *w)
{
	return world_left(w, 0) && world_left(w, 0)->pid;
}

static int one_command(struct world *w)
{
	world_command(w, 7, 0);
	return world_die();
}

static int two_commands(struct world *w)
{
	world_command(w, 7, 0);
	world_command(w, 8, 1);
	return world_die();
}

static int see_end(struct world *w)
{
	struct store_slot *slot = world_left_slot(w, 0);
	if (!slot ||
		!world_until(first_has_pid, w, 3000)) // the command says its pid itself, after the daemon died perhaps
		return world_failed(w, __LINE__);
	int fd = store_end_take(slot, STORE_STDOUT);
	w->fd_ok = fd >= 0 && fcntl(fd, F_GETPIPE_SZ) > 0 && store_end_take(slot, STORE_STDOUT) == -1;
	w->left = store_life(slot)->pid == w->pids[0];
	world_go(w);
	struct pollfd p = {.fd = store_event_fd(w->store), .events = POLLIN};
	int64_t ended = io_mono_ns();
	if (poll(&p, 1, 3000) != 1 || !first_ended(w))
		return world_failed(w, __LINE__);
	w->code = store_life(slot)->code;
	w->status = store_life(slot)->status;
	// Init waits a second for the word; whoever was kept from looking for so long cannot tell.
	w->was_held = world_state_of(w->pids[0]) == 'Z' || io_mono_ns() - ended > 800000000;
	store_ack(slot);
	int64_t start = io_mono_ns();
	if (!world_until(world_first_gone, w, 5000))
		return world_failed(w, __LINE__);
	w->took_ms = (io_mono_ns() - start) / 1000000;
	return 0;
}

START_TEST(end_of_an_orphan_is_lost)
{
	struct world *w = world_new();
	w->daemon[0] = one_command;
	w->daemon[1] = see_end;
	world_run(w);
	ck_assert_int_eq(w->starts, 2);
	ck_assert(w->fd_ok);
	ck_assert(w->left);
	ck_assert(w->was_held);
	ck_assert_int_eq(w->code, CLD_EXITED);
	ck_assert_int_eq(w->status, 7);
	ck_assert_int_lt(w->took_ms, 900);
	world_free(w);
}
END_TEST

static int never_ack(struct world *w)
{
	world_go(w);
	if (!world_until(first_ended, w, 3000))
		return world_failed(w, __LINE__);
	int64_t start = io_mono_ns();
	if (!world_until(world_first_gone, w, 5000))
		return world_failed(w, __LINE__);
	w->took_ms = (io_mono_ns() - start) / 1000000;
	return 0;
}

START_TEST(daemon_that_never_says_keeps_a_zombie)
{
	struct world *w = world_new();
	w->daemon[0] = one_command;
	w->daemon[1] = never_ack;
	world_run(w);
	ck_assert_int_eq(w->starts, 2);
	ck_assert_int_ge(w->took_ms, 800);
	world_free(w);
}
END_TEST

static int die_with_a_zombie(struct world *w)
{
	world_go(w);
	if (!world_until(first_ended, w, 3000) && !world_until(second_ended, w, 1))
		return world_failed(w, __LINE__);
	world_go(w);
	if (!world_until(first_ended, w, 500) || !world_until(second_ended, w, 500))
		return world_failed(w, __LINE__);
	return world_die();
}

static int after_zombies(struct world *w)
{
	w->left = first_ended(w) && second_ended(w) && world_left(w, 0)->status == 7 && world_left(w, 1)->status == 8;
	w->was_held = world_state_of(w->pids[0]) != '-' || world_state_of(w->pids[1]) != '-';
	return 0;
}

START_TEST(held_zombie_hides_the_others)
{
	struct world *w = world_new();
	w->daemon[0] = two_commands;
	w->daemon[1] = die_with_a_zombie;
	w->daemon[2] = after_zombies;
	world_run(w);
	ck_assert_int_eq(w->starts, 3);
	ck_assert(w->left);
	ck_assert(!w->was_held);
	world_free(w);
}
END_TEST

static int die_and_let_end(struct world *w)
{
	world_go(w);
	return world_die();
}

static int after_the_pause(struct world *w)
{
	w->left = first_ended(w) && world_left(w, 0)->status == 7;
	w->was_held = world_state_of(w->pids[0]) != '-';
	return 0;
}

// The fifth pause is long enough for the command to end in it.
START_TEST(end_without_a_daemon_is_lost)
{
	struct world *w = world_new();
	w->daemon[0] = one_command;
	w->daemon[1] = world_do_die;
	w->daemon[5] = die_and_let_end;
	w->daemon[6] = after_the_pause;
	world_run(w);
	ck_assert_int_eq(w->starts, 7);
	ck_assert(w->left);
	ck_assert(!w->was_held);
	world_free(w);
}
END_TEST

// Reaps as the daemon does: seen, recorded, then reaped.
static int reap_as_daemon(struct world *w)
{
	struct store_slot *slot = world_command(w, w->code, -1);
	struct store_life *life = store_life(slot);
	while (w->code >= 0) {
		siginfo_t si = {0};
		if (waitid(P_ALL, 0, &si, WEXITED | WNOWAIT) < 0)
			continue;
		if (si.si_pid == __atomic_load_n(&life->pid, __ATOMIC_ACQUIRE)) {
			life->code = si.si_code;
			life->status = si.si_status;
			store_set(&life->ended, 1);
		}
		waitid(P_PID, (id_t)si.si_pid, &si, WEXITED);
	}
	return 1;
}

static int see_any_end(struct world *w)
{
	if (!world_until(first_has_pid, w, 100)) {
		w->left = 1; // it was never started
		w->status = w->code;
		return 0;
	}
	struct store_life *life = world_left(w, 0);
	world_go(w);
	if (!world_until(first_ended, w, 3000))
		return world_failed(w, __LINE__);
	w->status = life->code == CLD_EXITED ? life->status : -1;
	store_ack(world_left_slot(w, 0));
	return 0;
}

// A daemon is killed in the very moments in which a command starts and ends.
START_TEST(status_is_lost_in_the_moment_of_the_crash)
{
	unsigned seed = 5;
	int unborn = 0;
	for (int i = 0; i < 400; i++) {
		struct world *w = world_new();
		w->daemon[0] = reap_as_daemon;
		w->daemon[1] = see_any_end;
		w->code = i & 0xff;
		w->status = -2;
		w->delay_us = rand_r(&seed) % 3 ? 0 : rand_r(&seed) % 500;
		pid_t pid = world_start(w);
		while (!store_get(&w->store->head->used_to) || !store_get(&w->store->table[0].hands))
			;
		int64_t end = io_mono_ns() + rand_r(&seed) % 2000000;
		while (io_mono_ns() < end)
			;
		char path[64], text[32] = "";
		snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
		if (io_read_file(path, text, sizeof text) > 0)
			kill((pid_t)atoi(text), SIGKILL);
		world_end(pid, 0);
		ck_assert_msg(w->starts == 2, "round %d: %d starts", i, w->starts);
		ck_assert_msg(w->status == (i & 0xff), "round %d: status %d", i, w->status);
		unborn += w->left;
		world_free(w);
	}
	ck_assert_int_lt(unborn, 380);
}
END_TEST

static int pid_comes_late(struct world *w)
{
	w->delay_us = 50000;
	world_command(w, 9, 0);
	return world_die();
}

static int see_late_pid(struct world *w)
{
	w->left = world_left(w, 0) && world_left(w, 0)->pid == 0;
	if (!world_until(first_has_pid, w, 3000))
		return world_failed(w, __LINE__);
	world_go(w);
	if (!world_until(first_ended, w, 3000))
		return world_failed(w, __LINE__);
	w->status = world_left(w, 0)->status;
	return 0;
}

START_TEST(crash_between_fork_and_pid)
{
	struct world *w = world_new();
	w->daemon[0] = pid_comes_late;
	w->daemon[1] = see_late_pid;
	world_run(w);
	ck_assert_int_eq(w->starts, 2);
	ck_assert(w->left);
	ck_assert_int_eq(w->status, 9);
	world_free(w);
}
END_TEST

static int strays(struct world *w)
{
	for (int i = 0; i < 50; i++) {
		if (fork() == 0) {
			char c;
			(void)!io_read(w->go[0], &c, 1);
			_exit(i);
		}
	}
	return world_die();
}

static bool no_children(struct world *w)
{
	char path[64], text[1024];
	snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)w->init, (int)w->init);
	ssize_t n = io_read_file(path, text, sizeof text);
	return n > 0 && strchr(text, ' ') == strrchr(text, ' '); // this daemon alone
}

static int end_strays(struct world *w)
{
	for (int i = 0; i < 50; i++)
		world_go(w);
	return world_until(no_children, w, 3000) ? 0 : world_failed(w, __LINE__);
}

START_TEST(orphans_that_nobody_knows_become_zombies)
{
	struct world *w = world_new();
	w->daemon[0] = strays;
	w->daemon[1] = end_strays;
	world_run(w);
	ck_assert_int_eq(w->starts, 2);
	world_free(w);
}
END_TEST

static void quiet(void)
{
	log_setup(LOG_ERROR, false);
}

Suite *init_suite(void)
{
	Suite *s = suite_create("init");
	TCase *tc = tcase_create("orphans");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, quiet, NULL);
	tcase_add_test(tc, end_of_an_orphan_is_lost);
	tcase_add_test(tc, daemon_that_never_says_keeps_a_zombie);
	tcase_add_test(tc, held_zombie_hides_the_others);
	tcase_add_test(tc, end_without_a_daemon_is_lost);
	tcase_add_test(tc, status_is_lost_in_the_moment_of_the_crash);
	tcase_add_test(tc, crash_between_fork_and_pid);
	tcase_add_test(tc, orphans_that_nobody_knows_become_zombies);
	suite_add_tcase(s, tc);
	return s;
}
