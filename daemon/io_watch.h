// SPDX-License-Identifier: Apache-2.0
// io_watch: watchers of descriptors that go on when the kernel had no memory to watch one. libev then stops the watcher and calls it with
// EV_ERROR; daemon_loop.c sees to it that this comes at intervals, not in a spin.
#ifndef CELLD_DAEMON_IO_WATCH_H
#define CELLD_DAEMON_IO_WATCH_H

#include <ev.h>
#include <stdbool.h>

// Starts W so that the kernel hears of it. ev_io_start alone does not tell it in the turn in which libev stopped W because it could not be
// watched: to libev nothing has changed.
static inline void io_watch(struct ev_loop *loop, ev_io *w)
{
	if (ev_is_active(w))
		return;
	ev_io_set(w, w->fd, w->events & (EV_READ | EV_WRITE));
	ev_io_start(loop, w);
}

// For the callback of each watcher that io_watch started, first of all.
static inline void io_watch_failed(struct ev_loop *loop, ev_io *w, int revents)
{
	if (revents & EV_ERROR)
		io_watch(loop, w);
}

// True if io_unwatch takes effect at once.
bool io_can_unwatch(void);
// Stops W, whose descriptor is about to be closed while others hold its description: the kernel would go on to watch that, and libev, told of
// a descriptor it does not know, begin anew with all of them.
void io_unwatch(struct ev_loop *loop, ev_io *w);

#endif
