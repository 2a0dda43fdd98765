// SPDX-License-Identifier: Apache-2.0
// Between the files of watch: watch.c (the set, the descriptor, the watchers' lives), watch_event.c (what the kernel says),
// watch_scan.c (directories read in slices), watch_node.c (the tree of a watcher), watch_queue.c (its events).
//
// Each watcher has a tree of nodes, one a directory; a node hangs on the watch descriptor of its inode, which it may share with nodes of
// other watchers. A node out of its tree (dropped) stays on the descriptor until a slice frees it: a hundred thousand
// removed at once would fill the kernel's queue with IN_IGNORED.
#ifndef CELLD_CORE_WATCH_PRIV_H
#define CELLD_CORE_WATCH_PRIV_H

#include "daemon/core/watch.h"
#include "daemon/metrics.h"

#include <dirent.h>
#include <sys/inotify.h>
#include <sys/types.h>

// All that anybody wants: the mask of every descriptor, so that sharing one changes nothing.
#define WATCH_MASK \
	(IN_CREATE | IN_MODIFY | IN_DELETE | IN_DELETE_SELF | IN_MOVED_TO | IN_MOVED_FROM | IN_MOVE_SELF | IN_ATTRIB)
#define WATCH_TRIES 3 // how often a node whose path leads elsewhere is looked for, with all events read in between
#define WATCH_READ ((size_t)64 * 1024)
#define WATCH_COOKIES 16

struct watch_wd {
	int wd;
	struct watch_node *nodes;
};

enum watch_place { WATCH_PLACED, WATCH_MOVED, WATCH_DROPPED };

struct watch_node {
	struct watcher *w;
	struct watch_node *parent; // NULL for the root and for what was taken out of the tree
	char *name;                // below the parent; "" for the root
	void *by_name;             // tsearch: the children; it grows without the pauses of a hash table
	struct watch_node *children, *prev, *next;
	struct watch_wd *wd; // NULL: not watched (yet)
	struct watch_node *wprev, *wnext;
	struct watch_node *qprev, *qnext; // to be read, moved, or dropped
	uint64_t seen;                    // the last reading of its parent that met it
	uint32_t cookie;                  // WATCH_MOVED: of the rename
	enum watch_place place;           // of the top of a tree
	unsigned tries;
	bool queued;
	bool unread;  // queued, or its reading was cut off
	bool report;  // read it and report what is in it
	bool recheck; // read it and look at the known ones again, too
};

struct watch_item {
	struct watch_event e; // first
	struct watch_item *prev, *next;
	bool queued; // for the two that are embedded
	char text[];
};

struct watcher {
	struct watches *ws;
	struct watcher *prev, *next;   // all
	struct watcher *sprev, *snext; // those that have directories to read
	const void *owner;
	uint64_t id;
	struct watch_spec spec; // path: a copy
	char *path;             // cleaned; no slash at its end but for "/"
	char *real;             // realpath of it
	bool dir;
	dev_t dev;
	ino_t ino;
	struct watch_node *root;
	size_t nodes;
	struct watch_node *queue; // to be read
	struct watch_node *at;    // being read
	DIR *reading;
	uint64_t pass; // number of the reading
	bool scanning; // in the set's list
	bool ready, closed, gone;
	int stopped; // why, or 0
	bool late;   // added, but not ready then: the owner wants to be told
	int rc;      // the tree could not be watched
	bool unsure; // a directory was not found where it should be: look again after a rename
	struct watch_item *items;
	size_t waiting; // all items; count and bytes are without the two below
	size_t count, bytes;
	// Those two are always there, however little memory is.
	struct watch_item *lost, *end;
};

struct watches {
	struct ev_loop *loop;
	struct slices *slices;
	struct watch_limits limits;
	struct slice_job job;
	ev_io io;
	int fd;
	void *by_wd; // tsearch: struct watch_wd
	struct watcher *all;
	struct watcher *turn;   // the next one of all that is to be dealt with
	struct watcher *closed; // freed when their nodes are
	struct watcher *scanning;
	struct watch_node *moved;   // out of the tree, their new place not read yet
	struct watch_node *dropped; // to be freed
	struct watch_node *cursor;  // the next one to get the current event
	size_t nodes, count, bytes;
	uint64_t last_id;
	struct metrics *metrics;         // or NULL
	size_t freed;                    // nodes since the last trim
	bool settled;                    // all events so far have been handled
	bool busy;                       // within a piece of work: no other begins
	uint32_t cookies[WATCH_COOKIES]; // renames away from hidden names
	unsigned cookie_at;
	char *buf; // WATCH_READ bytes
	size_t off, len;
};

// --- watch_queue.c ---

// Queues an event for LEAF in N ("": N itself).
void watch_push(struct watch_node *n, const char *leaf, enum watch_type type);
void watch_lost(struct watcher *w);
void watch_end(struct watcher *w, enum watch_type type);
int watch_queue_init(struct watcher *w);
void watch_queue_release(struct watcher *w);

// --- watch_node.c ---

// NULL when out of memory or over the limit.
struct watch_node *watch_node_new(struct watcher *w, struct watch_node *parent, const char *name);
// Why it was NULL: -EUSERS for the limit, or -ENOMEM.
int watch_node_refused(const struct watcher *w);
// It has no children any more.
void watch_node_free(struct watch_node *n);
struct watch_node *watch_node_find(const struct watch_node *parent, const char *name);
// The top of the tree that N is in.
struct watch_node *watch_node_top(struct watch_node *n);
// False if it was taken out of its watcher's tree.
bool watch_node_placed(struct watch_node *n);
// Takes the tree at N out; PLACE is WATCH_MOVED or WATCH_DROPPED.
void watch_node_take(struct watch_node *n, enum watch_place place);
// Puts one that was moved in again. 0 or -ENOMEM (it is dropped then).
int watch_node_put(struct watch_node *n, struct watch_node *parent, const char *name);
// The way down from the root to LEAF in N: its length, and its bytes up to END.
size_t watch_node_len(const struct watch_node *n, const char *leaf);
void watch_node_name(const struct watch_node *n, const char *leaf, char *end);
// Makes the kernel watch what PATH names for N. 0: as before; 1: another inode than before; negative errno.
int watch_node_bind(struct watch_node *n, const char *path);
// The same for NAME in the open directory FD.
int watch_node_bind_at(struct watch_node *n, int fd);
void watch_node_unbind(struct watch_node *n);
// Opens N's directory. A descriptor, or negative errno: -ESTALE if its path leads to another directory now.
int watch_node_open(struct watch_node *n);
struct watch_wd *watch_wd_find(const struct watches *ws, int wd);

// --- watch_scan.c ---

void watch_scan_queue(struct watch_node *n);
void watch_scan_unqueue(struct watch_node *n);
// Reads directories of W until UNTIL, or until one is to be looked for again later. W is ready when none is left.
void watch_scan(struct watcher *w, int64_t until);
// Forgets what is to be read.
void watch_scan_stop(struct watcher *w);
// NAME in N is a directory that has just come.
void watch_scan_new(struct watch_node *n, const char *name);
// N has been put where it is by a rename.
void watch_scan_moved(struct watch_node *n);

// --- watch_event.c ---

// Reads and handles events until UNTIL. True if there are no more.
bool watch_drain(struct watches *ws, int64_t until);

// --- watch.c ---

// The root of W is not where it was.
void watch_root_gone(struct watcher *w, enum watch_type type);
// The first reading of the tree is through.
void watch_became_ready(struct watcher *w, int rc);
// There is work for slices.
void watch_work(struct watches *ws);

#endif
