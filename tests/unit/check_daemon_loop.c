// SPDX-License-Identifier: Apache-2.0
#include "daemon/daemon_loop.h"
#include "daemon/io_watch.h"
#include "daemon/metrics.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
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

static int refusals; // how often the kernel has no memory to watch a descriptor; -1: always

// libev's calls come here, not to the C library's.
int epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	if (op == EPOLL_CTL_ADD && refusals) {
		refusals -= refusals > 0;
		errno = ENOMEM;
		return -1;
	}
	return (int)syscall(SYS_epoll_ctl, ep, op, fd, ev);
}

struct heard {
	ev_io io;
	ev_timer tick; // so that no turn takes for ever
	ev_signal sig;
	int reads, calls, signals;
};

static void on_count(struct ev_loop *loop, ev_io *w, int revents)
{
	struct heard *h = w->data;
	uint64_t n;
	io_watch_failed(loop, w, revents);
	h->calls++;
	h->reads += read(w->fd, &n, sizeof n) == sizeof n;
}

static void on_tick(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)w, (void)revents;
}

static void on_sig(struct ev_loop *loop, ev_signal *w, int revents)
{
	(void)loop, (void)revents;
	((struct heard *)w->data)->signals++;
}

static struct ev_loop *listen_to(struct heard *h, int fd)
{
	struct ev_loop *loop = loop_new();
	ck_assert_ptr_nonnull(loop);
	*h = (struct heard){0};
	ev_io_init(&h->io, on_count, fd, EV_READ);
	ev_timer_init(&h->tick, on_tick, 60., 60.);
	ev_signal_init(&h->sig, on_sig, SIGUSR1);
	h->io.data = h->sig.data = h;
	ev_timer_start(loop, &h->tick);
	ev_signal_start(loop, &h->sig);
	ev_run(loop, EVRUN_NOWAIT);
	return loop;
}

static void run_for(struct ev_loop *loop, double seconds)
{
	ev_timer end;
	ev_timer_init(&end, on_tick, 0., 0.);
	ev_now_update(loop);
	ev_timer_set(&end, seconds, 0.);
	ev_timer_start(loop, &end);
	while (ev_is_active(&end))
		ck_assert(ev_run(loop, EVRUN_ONCE));
}

// Long before the tick.
static void run_until(struct ev_loop *loop, const int *count, int wanted)
{
	ev_now_update(loop);
	double end = ev_now(loop) + 0.5;
	while (*count < wanted) {
		ck_assert(ev_run(loop, EVRUN_ONCE));
		ev_now_update(loop);
		ck_assert_msg(ev_now(loop) < end, "%d, not %d", *count, wanted);
	}
	ck_assert_int_eq(*count, wanted);
}

static void put(int fd)
{
	const uint64_t one = 1;
	ck_assert_int_eq(write(fd, &one, sizeof one), sizeof one);
}

// Heard while it cannot be watched, without spinning; watched when it can be; also when it was stopped and started between.
START_TEST(unwatched_descriptor_is_heard)
{
	struct heard h;
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct ev_loop *loop = listen_to(&h, fd);
	refusals = -1;
	io_watch(loop, &h.io);
	put(fd);
	run_for(loop, 0.5);
	ck_assert_int_eq(h.reads, 1);
	ck_assert_int_le(h.calls, 70); // each 10 ms
	refusals = 0;
	run_for(loop, 0.05);
	int calls = h.calls;
	put(fd);
	run_until(loop, &h.reads, 2);
	ck_assert_int_le(h.calls, calls + 2); // it was quiet
	ev_signal_stop(loop, &h.sig);
	ev_io_stop(loop, &h.io);
	loop_free(loop);
	close(fd);
}
END_TEST

// An event of a descriptor that was closed while another process holds it has libev watch all again, its own pipe too.
static void have_all_watched_again(struct ev_loop *loop, struct heard *h)
{
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC), held = dup(fd), other = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	ev_io w;
	ev_io_init(&w, on_count, fd, EV_READ);
	w.data = h;
	io_watch(loop, &w);
	ev_run(loop, EVRUN_NOWAIT);
	ev_io_stop(loop, &w);
	ev_run(loop, EVRUN_NOWAIT);
	ck_assert_int_eq(dup2(other, fd), fd);
	io_watch(loop, &w);
	ev_run(loop, EVRUN_NOWAIT);
	put(held);
	ev_run(loop, EVRUN_NOWAIT);
	ev_io_stop(loop, &w);
	close(fd);
	close(held);
	close(other);
}

START_TEST(signals_are_heard_all_the_same)
{
	struct heard h;
	int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	struct ev_loop *loop = listen_to(&h, fd);
	io_watch(loop, &h.io);
	for (int i = 0; i < 20; i++) {
		refusals = 0;
		have_all_watched_again(loop, &h);
		refusals = _i ? -1 : 1 + i % 3;
		ev_run(loop, EVRUN_NOWAIT);
		ck_assert_int_lt(refusals, 1 + i % 3); // it did ask
		ck_assert_int_eq(raise(SIGUSR1), 0);
		run_until(loop, &h.signals, 2 * i + 1);
		refusals = 0;
		ck_assert_int_eq(raise(SIGUSR1), 0);
		run_until(loop, &h.signals, 2 * i + 2);
		put(fd);
		run_until(loop, &h.reads, i + 1);
	}
	ev_signal_stop(loop, &h.sig);
	ev_io_stop(loop, &h.io);
	loop_free(loop);
	close(fd);
}
END_TEST

static void on_busy(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	usleep(30000);
	ev_timer_stop(loop, w);
}

// What a callback takes is told, what the loop sleeps is not.
START_TEST(sleep_is_a_stall)
{
	struct metrics m = {0};
	struct ev_loop *loop = loop_new();
	ev_timer timer;
	ck_assert_ptr_nonnull(loop);
	loop_measure(loop, &m);
	ev_timer_init(&timer, on_busy, 0.2, 0.);
	ev_timer_start(loop, &timer);
	while (ev_is_active(&timer))
		ev_run(loop, EVRUN_ONCE);
	ev_run(loop, EVRUN_NOWAIT); // a turn is over when the next sleep begins
	ck_assert_uint_ge(m.turn.sum_ns, 29000000);
	ck_assert_uint_lt(m.turn.sum_ns, 190000000);
	uint64_t long_ones = 0;
	for (size_t i = 0; i <= METRICS_BUCKETS; i++)
		long_ones += i > 0 && metrics_bound(i - 1) >= 25000000 ? m.turn.bucket[i] : 0;
	ck_assert_uint_eq(long_ones, 1);
	loop_free(loop);
}
END_TEST

// The watcher of a descriptor that never was says 0, which may be somebody's.
START_TEST(watcher_that_was_never_set_stops_another)
{
	struct ev_loop *loop = loop_new();
	int heard = 0, fds[2];
	ev_io io, never = {0};
	ck_assert_ptr_nonnull(loop);
	ck_assert_int_eq(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
	ck_assert_int_eq(dup2(fds[0], 0), 0);
	ev_io_init(&io, on_io, 0, EV_READ);
	io.data = &heard;
	io_watch(loop, &io);
	ev_run(loop, EVRUN_NOWAIT);
	io_unwatch(loop, &never);
	ck_assert_int_eq(write(fds[1], "x", 1), 1);
	ev_run(loop, EVRUN_NOWAIT);
	ck_assert_int_eq(heard, 1);
	loop_free(loop);
	close(fds[0]);
	close(fds[1]);
}
END_TEST

static void on_renewal(struct ev_loop *loop, ev_fork *w, int revents)
{
	(void)loop, (void)revents;
	*(int *)w->data += 1;
}

// Another holds the description of what is closed here: the kernel still knows it, and libev, when told of it, would watch all anew.
START_TEST(closed_descriptor_is_watched_on)
{
	struct ev_loop *loop = loop_new();
	int heard = 0, renewed = 0, fds[2];
	ev_io io;
	ev_fork renewal;
	ck_assert_ptr_nonnull(loop);
	ck_assert(io_can_unwatch());
	ev_fork_init(&renewal, on_renewal);
	renewal.data = &renewed;
	ev_fork_start(loop, &renewal);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(pipe2(fds, O_CLOEXEC | O_NONBLOCK), 0);
		int kept = dup(fds[0]);
		ev_io_init(&io, on_io, fds[0], EV_READ);
		io.data = &heard;
		io_watch(loop, &io);
		ev_run(loop, EVRUN_NOWAIT);
		io_unwatch(loop, &io);
		close(fds[0]);
		ck_assert_int_eq(write(fds[1], "x", 1), 1);
		for (int turns = 0; turns < 3; turns++)
			ev_run(loop, EVRUN_NOWAIT);
		ck_assert_int_eq(heard, 0);
		ck_assert_int_eq(renewed, 0);
		// The number is free for others, who are heard.
		ck_assert_int_eq(dup2(kept, fds[0]), fds[0]);
		ev_io_init(&io, on_io, fds[0], EV_READ);
		io.data = &heard;
		io_watch(loop, &io);
		ev_run(loop, EVRUN_NOWAIT);
		ck_assert_int_eq(heard, 1);
		heard = 0;
		io_unwatch(loop, &io);
		close(fds[0]);
		close(fds[1]);
		close(kept);
	}
	ev_fork_stop(loop, &renewal);
	loop_free(loop);
	ck_assert(!io_can_unwatch());
}
END_TEST

Suite *daemon_loop_suite(void)
{
	Suite *s = suite_create("daemon_loop");
	TCase *tc = tcase_create("memory");
	tcase_add_test(tc, loop_grows_without_memory);
	tcase_add_test(tc, unwatched_descriptor_is_heard);
	tcase_add_test(tc, closed_descriptor_is_watched_on);
	tcase_add_test(tc, watcher_that_was_never_set_stops_another);
	tcase_add_loop_test(tc, signals_are_heard_all_the_same, 0, 2);
	tcase_add_test(tc, sleep_is_a_stall);
	tcase_set_timeout(tc, 60);
	suite_add_tcase(s, tc);
	return s;
}
