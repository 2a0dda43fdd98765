// SPDX-License-Identifier: Apache-2.0
#include "daemon/daemon_loop.h"

#include "daemon/io_watch.h"
#include "daemon/log.h"
#include "daemon/metrics.h"

#include <errno.h>
#include <ev.h>
#include <malloc.h>
#include <stdalign.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

// Memory of last resort for libev's few arrays, which only ever grow, by doubling. Untouched, it costs nothing.
#define RESERVE ((size_t)1024 * 1024)
// Seconds until what could not be watched is looked at again.
#define AGAIN 0.01
#define REFS_MAX 1000000000

// One of its pieces.
struct piece {
	alignas(max_align_t) size_t size;
};

static struct {
	alignas(max_align_t) unsigned char bytes[RESERVE];
	size_t used;
} reserve;
static ev_async wake;
static ev_timer again;
static ev_fork anew;
static ev_check awake;
static struct metrics *measured; // or NULL
static double awake_at;          // loop time at which this turn began; 0 = none has
static bool failing;             // since the timer was last due
static int refs;
static int epoll_fd = -1; // libev's, which it does not tell

static bool is_reserve(const void *p)
{
	const unsigned char *at = p;
	return at >= reserve.bytes && at < reserve.bytes + RESERVE;
}

static size_t size_of(void *p)
{
	if (is_reserve(p))
		return ((struct piece *)p - 1)->size;
	return p ? malloc_usable_size(p) : 0;
}

static void *from_reserve(size_t n)
{
	size_t whole =
		(sizeof(struct piece) + n + sizeof(struct piece) - 1) / sizeof(struct piece) * sizeof(struct piece);
	if (whole > RESERVE - reserve.used)
		return NULL;
	struct piece *piece = (struct piece *)(reserve.bytes + reserve.used);
	reserve.used += whole;
	piece->size = n;
	return piece + 1;
}

// libev's realloc; it aborts if it gets nothing.
static void *allocate(void *p, long size) EV_NOEXCEPT
{
	size_t n = (size_t)size, old = size_of(p);
	bool ours = is_reserve(p);
	if (n == 0) {
		free(ours ? NULL : p);
		return NULL;
	}
	void *more = ours ? malloc(n) : realloc(p, n);
	if (more && !ours)
		return more;
	if (!more)
		more = from_reserve(n);
	if (more && p)
		memcpy(more, p, old < n ? old : n);
	if (more && !ours)
		free(p);
	return more;
}

// It asks again until it has its descriptor, having closed the one before: there will be one again.
static void on_error(const char *what) EV_NOEXCEPT
{
	static const struct timespec pause = {.tv_nsec = 1000000};
	bool passes = errno == EMFILE || errno == ENFILE || errno == ENOMEM;
	if (passes && strstr(what, "create")) {
		nanosleep(&pause, NULL);
		return;
	}
	log_error("loop", "%s: %s", what, strerror(errno));
	abort();
}

static void on_again(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	if (!failing)
		ev_timer_stop(loop, w);
	failing = false;
}

// Everything is about to be watched anew, and what wakes the loop may be what cannot be: it is not to sleep long.
static void on_anew(struct ev_loop *loop, ev_fork *w, int revents)
{
	(void)w, (void)revents;
	failing = true;
	if (!ev_is_active(&again))
		ev_timer_again(loop, &again);
}

// Nothing is pending here but what libev made itself: the errors of watchers that the kernel had no memory for. They do not keep libev from
// sleeping, so it is woken: at once the first time, then at the latest by the timer, for as long as there are any. (They try again in
// each turn, so woken at once they would spin.)
static void on_sleep(struct ev_loop *loop) EV_NOEXCEPT
{
	if (awake_at > 0)
		metrics_observe(&measured->turn, (int64_t)((ev_now(loop) - awake_at) * 1e9));
	awake_at = 0;
	if (!ev_pending_count(loop))
		return;
	// If libev's own pipe is one of them it would stay unwatched, and the next signal end the process by an assertion: its start mends it.
	// libev then counts one watcher less, and must not think that it has none.
	ev_async_stop(loop, &wake);
	ev_async_start(loop, &wake);
	if (refs < REFS_MAX) {
		ev_ref(loop);
		refs++;
	}
	failing = true;
	if (ev_is_active(&again))
		return;
	ev_timer_again(loop, &again);
	ev_async_send(loop, &wake);
}

static void on_slept(struct ev_loop *loop) EV_NOEXCEPT
{
	(void)loop;
}

static void on_awake(struct ev_loop *loop, ev_check *w, int revents)
{
	(void)w, (void)revents;
	awake_at = ev_now(loop);
}

void loop_measure(struct ev_loop *loop, struct metrics *m)
{
	measured = m;
	ev_check_start(loop, &awake);
}

// The lowest descriptor that was free before libev made its loop, if that is an epoll now (it says that OTHER is not in it).
static int find_epoll(int lowest, int other)
{
	bool is = lowest >= 0 && other >= 0 && epoll_ctl(lowest, EPOLL_CTL_DEL, other, NULL) < 0 && errno == ENOENT;
	return is ? lowest : -1;
}

bool io_can_unwatch(void)
{
	return epoll_fd >= 0;
}

void io_unwatch(struct ev_loop *loop, ev_io *w)
{
	// One that was never set says descriptor 0, which may be a listener's.
	if (!ev_cb(w))
		return;
	ev_io_stop(loop, w);
	if (epoll_fd < 0 || epoll_ctl(epoll_fd, EPOLL_CTL_DEL, w->fd, NULL) == 0)
		return;
	// libev has had to make another one since, with another number. (ENOENT: it was not in it.)
	if (errno == EBADF || errno == EINVAL)
		epoll_fd = -1;
}

static void on_wake(struct ev_loop *loop, ev_async *w, int revents)
{
	(void)loop, (void)w, (void)revents;
}

struct ev_loop *loop_new(void)
{
	ev_set_allocator(allocate);
	ev_set_syserr_cb(on_error);
	int first = eventfd(0, EFD_CLOEXEC), other = eventfd(0, EFD_CLOEXEC);
	close(first);
	struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	epoll_fd = loop ? find_epoll(first, other) : -1;
	close(other);
	if (!loop)
		return NULL;
	ev_async_init(&wake, on_wake);
	ev_async_start(loop, &wake);
	ev_timer_init(&again, on_again, 0., AGAIN);
	ev_fork_init(&anew, on_anew);
	ev_fork_start(loop, &anew);
	ev_check_init(&awake, on_awake);
	ev_set_priority(&awake, EV_MAXPRI);
	awake_at = 0;
	failing = false;
	refs = 0;
	ev_set_loop_release_cb(loop, on_sleep, on_slept);
	return loop;
}

void loop_free(struct ev_loop *loop)
{
	if (!loop)
		return;
	ev_check_stop(loop, &awake);
	ev_async_stop(loop, &wake);
	ev_timer_stop(loop, &again);
	ev_fork_stop(loop, &anew);
	ev_loop_destroy(loop);
	epoll_fd = -1;
}
