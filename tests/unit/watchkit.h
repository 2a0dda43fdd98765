// SPDX-License-Identifier: Apache-2.0
// watchkit: a set of watches over a fresh directory, for the tests of watch. Everything fails the running test by itself.
#ifndef CELLD_UNIT_WATCHKIT_H
#define CELLD_UNIT_WATCHKIT_H

#include "daemon/core/watch.h"

#include <ev.h>
#include <stdbool.h>

// A set with a loop of its own over a fresh directory, which is the working directory too.
struct watchkit {
	struct ev_loop *loop;
	struct slices *slices;
	struct watches *ws;
	char dir[64];
};

void watchkit_start(struct watchkit *k, const struct watch_limits *limits);
void watchkit_end(struct watchkit *k);
// One turn of the loop, without waiting.
void watchkit_turn(struct watchkit *k);
// Waits until the kernel watches so many inodes for us.
void watchkit_settle(struct watchkit *k, int watched);
// Watches PATH below the directory ("" is itself) and waits until it does: 0, or what it failed with.
int watchkit_add(struct watchkit *k, const char *path, bool recursive, struct watcher **w);
// The same, and it must.
struct watcher *watchkit_added(struct watchkit *k, const char *path, bool recursive);
// Takes the events so far, as text with blanks between: "+name" create, "wname" write, "-name" remove, ">name" rename, "mname"
// chmod, "!" lost, a "." behind the end. Names are below the root. Valid until the next call.
const char *watchkit_events(struct watchkit *k, struct watcher *w);

// Changes, by paths relative to the working directory, which is the kit's.
void watchkit_mkdir(const char *path);
void watchkit_file(const char *path);
void watchkit_write(const char *path);
void watchkit_move(const char *from, const char *to);
void watchkit_remove(const char *path); // a whole tree

#endif
