// SPDX-License-Identifier: Apache-2.0
#include "daemon/trim.h"

#include "daemon/io.h"

#include <malloc.h>
#include <stdlib.h>
#include <unistd.h>

#define LOOK_S 1.0
// Less is not worth it: it will be used again. The allocator takes about 0.1 ms a MiB to give it back.
#define WORTH ((size_t)64 * 1024)

// Bytes of ours that are resident and not allocated: free ones, the stack, tables. False if the kernel does not say.
static bool unused(size_t *bytes)
{
	char text[128], *at;
	if (io_read_file("/proc/self/statm", text, sizeof text) <= 0)
		return false;
	(void)strtoul(text, &at, 10); // all of it, whether it is there or not
	unsigned long resident = strtoul(at, &at, 10), shared = strtoul(at, &at, 10);
	if (shared > resident)
		return false;
	struct mallinfo2 m = mallinfo2();
	size_t own = (resident - shared) * (size_t)sysconf(_SC_PAGESIZE), used = m.uordblks + m.hblkhd;
	*bytes = own > used ? own - used : 0;
	return true;
}

bool trim_look(struct trim *t)
{
	size_t bytes;
	if (!unused(&bytes))
		return false;
	if (bytes < t->floor + WORTH) {
		t->floor = bytes < t->floor ? bytes : t->floor;
		return false;
	}
	malloc_trim(0);
	t->floor = unused(&bytes) ? bytes : 0;
	return true;
}

static void on_look(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct trim *t = w->data;
	t->looked = true;
	trim_look(t);
}

// A turn that is nothing but the look must not bring about the next one.
static void on_turn(struct ev_loop *loop, struct ev_prepare *w, int revents)
{
	(void)revents;
	struct trim *t = w->data;
	if (!t->looked && !ev_is_active(&t->look)) {
		ev_timer_set(&t->look, LOOK_S, 0.);
		ev_timer_start(loop, &t->look);
	}
	t->looked = false;
}

void trim_start(struct trim *t, struct ev_loop *loop)
{
	*t = (struct trim){.looked = true}; // nothing has happened before the first turn
	ev_prepare_init(&t->turn, on_turn);
	ev_timer_init(&t->look, on_look, LOOK_S, 0.);
	t->turn.data = t->look.data = t;
	unused(&t->floor);
	ev_prepare_start(loop, &t->turn);
}

void trim_stop(struct trim *t, struct ev_loop *loop)
{
	ev_prepare_stop(loop, &t->turn);
	ev_timer_stop(loop, &t->look);
}
