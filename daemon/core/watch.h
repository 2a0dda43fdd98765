// SPDX-License-Identifier: Apache-2.0
// watch: what changes below a path, told as events in the order the kernel had them. One inotify descriptor serves all watchers;
// each has a bounded queue of its own and takes nothing from the others. A watcher belongs to whoever added it, until
// watcher_close. Its callbacks come from the loop or from within the calls on the set and watcher_check, never from watches_add;
// in them everything is allowed, to close the watcher too. Temporary files of our own writers (files_temp_name) are hidden. Must not know of surfaces.
#ifndef CELLD_CORE_WATCH_H
#define CELLD_CORE_WATCH_H

#include "daemon/core/slice.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct metrics;
struct watches;
struct watcher;

// What surfaces say as numbers too.
enum watch_type {
	WATCH_LOST = 0,   // events were lost between the one before and the one behind
	WATCH_CREATE = 1, // also: renamed to this name; also: was already there in a directory that is new
	WATCH_WRITE = 2,
	WATCH_REMOVE = 3,
	WATCH_RENAME = 4, // renamed away from this name
	WATCH_CHMOD = 5,
};

struct watch_event {
	enum watch_type type;
	bool end;         // the root is gone, or (REMOVE) watches_end_below: the last one
	const char *path; // the root's path, then the way down; any bytes, NUL-terminated. Of no meaning for LOST
	size_t path_len;
	const char *name; // the part of it below the root, "" for the root itself
};

struct watch_limits {
	size_t max_nodes;  // watched directories and watchers, together
	size_t max_events; // that wait in one queue
	size_t max_bytes;  // in one queue
	size_t max_total;  // in all queues
};

struct watch_spec {
	const char *path; // absolute; a symlink is followed, below it none is
	bool recursive;
	// RC 0: the whole tree is watched; negative errno: it cannot be, there is nothing but to close the watcher. Not called if
	// watcher_ready was true at once.
	void (*ready)(void *arg, int rc);
	// There are events again, or the watcher has been stopped. May be NULL.
	void (*changed)(void *arg);
	void *arg;
};

// LOOP and SLICES are borrowed; LIMITS NULL means the defaults. NULL when out of memory.
struct watches *watches_new(struct ev_loop *loop, struct slices *slices, const struct watch_limits *limits);
// Frees the watchers that are left too. NULL is allowed.
void watches_free(struct watches *ws);
// Overflows are added to M (borrowed).
void watches_count(struct watches *ws, struct metrics *m);
// Opens the inotify descriptor unless it is open. 0 or negative errno; -EMFILE: out of fs.inotify.max_user_instances.
int watches_open(struct watches *ws);
// Takes what the kernel has, so that what has been done is in the queues (as far as a few milliseconds suffice).
void watches_sync(struct watches *ws);
// Ends all watchers at or below PATH.
void watches_end_below(struct watches *ws, const char *path);
// Every watcher is stopped: -ECANCELED, the sandbox ends; -ERESTART, another daemon takes the place of this one.
void watches_terminate(struct watches *ws, int why);

// Begins to watch. 0, or negative errno, of the path, or of inotify: -ENOSPC (out of fs.inotify.max_user_watches), -EUSERS (over
// max_nodes). OWNER is compared only: who may find the watcher again.
int watches_add(struct watches *ws, const struct watch_spec *spec, const void *owner, struct watcher **out);
// OWNER's watcher of that id, or NULL.
struct watcher *watches_find(const struct watches *ws, const void *owner, uint64_t id);
void watcher_close(struct watcher *w); // NULL is allowed
// All there are, in order of their beginning; how many nodes (directories, single files) are watched for all of them, and for one.
struct watcher *watches_first(const struct watches *ws);
struct watcher *watcher_after(const struct watcher *w);
size_t watches_nodes(const struct watches *ws);
size_t watcher_nodes(const struct watcher *w);

bool watcher_ready(const struct watcher *w);
uint64_t watcher_id(const struct watcher *w); // from 1, never twice
// The path as given, without needless slashes and dots.
const char *watcher_path(const struct watcher *w);
// The spec's.
void *watcher_arg(const struct watcher *w);
// How many events wait.
size_t watcher_count(const struct watcher *w);
// The oldest event, or NULL. Valid until watcher_taken, which drops it.
const struct watch_event *watcher_next(const struct watcher *w);
void watcher_taken(struct watcher *w);
// The end event has been taken.
bool watcher_ended(const struct watcher *w);
// What watches_terminate was called with, or 0.
int watcher_stopped(const struct watcher *w);
// Looks whether the root is still there: not every way to lose it is told by the kernel (a directory above it is moved, somebody
// still works in it). It ends as if it had been told.
void watcher_check(struct watcher *w);

#endif
