// SPDX-License-Identifier: Apache-2.0
#include "daemon/daemon_loop.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <ev.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { WATCHERS = 300 };

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	*(int *)w->data += 1;
}

static void on_io(struct ev_loop *loop, ev_io *w, int revents)
{
	(void)revents;
	*(int *)w->data += 1;
	ev_io_stop(loop, w);
}

// Watchers of both kinds, while no memory is to be had for libev's arrays: it would end the process.
START_TEST(loop_grows_without_memory)
{
	static ev_timer timers[WATCHERS];
	static ev_io ios[WATCHERS];
	int fds[WATCHERS], fired = 0, ready = 0;
	for (int i = 0; i < WATCHERS; i++)
		ck_assert_int_ge(fds[i] = eventfd(1, EFD_CLOEXEC), 0);
	struct ev_loop *loop = loop_new();
	ck_assert_ptr_nonnull(loop);
	for (int i = 0; i < WATCHERS; i++) {
		oom_fail_at(0);
		ev_timer_init(&timers[i], on_timer, 0., 0.);
		timers[i].data = &fired;
		ev_timer_start(loop, &timers[i]);
		oom_fail_at(0);
		ev_io_init(&ios[i], on_io, fds[i], EV_READ);
		ios[i].data = &ready;
		ev_io_start(loop, &ios[i]);
		oom_off();
	}
	for (int turns = 0; (fired < WATCHERS || ready < WATCHERS) && turns < 100; turns++)
		ev_run(loop, EVRUN_NOWAIT);
	ck_assert_int_eq(fired, WATCHERS);
	ck_assert_int_eq(ready, WATCHERS);
	loop_free(loop);
	for (int i = 0; i < WATCHERS; i++)
		close(fds[i]);
}
END_TEST

Suite *daemon_loop_suite(void)
{
	Suite *s = suite_create("daemon_loop");
	TCase *tc = tcase_create("memory");
	tcase_add_test(tc, loop_grows_without_memory);
	suite_add_tcase(s, tc);
	return s;
}
