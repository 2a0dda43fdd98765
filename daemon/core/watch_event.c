// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/files.h"
#include "daemon/core/watch_priv.h"
#include "daemon/io.h"

#include <limits.h>
#include <utlist.h>

#define CLOCK_EVERY 8 // events between two looks at the clock
#define EVENT_MAX (sizeof(struct inotify_event) + NAME_MAX + 1)

// Bits of one event, in the order in which they are told.
static const struct {
	uint32_t bits;
	enum watch_type type;
} types[] = {
	{IN_CREATE | IN_MOVED_TO, WATCH_CREATE},
	{IN_MOVED_FROM, WATCH_RENAME},
	{IN_ATTRIB, WATCH_CHMOD},
	{IN_MODIFY, WATCH_WRITE},
	{IN_DELETE, WATCH_REMOVE},
};

static void tell(struct watch_node *n, const struct inotify_event *ev, const char *leaf)
{
	for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
		if (ev->mask & types[i].bits)
			watch_push(n, leaf, types[i].type);
	}
}

// --- names ---

// A writer of ours makes a hidden file and renames it over its target: that is one write of the target.
static void remember_hidden(struct watches *ws, uint32_t cookie)
{
	ws->cookies[ws->cookie_at] = cookie;
	ws->cookie_at = (ws->cookie_at + 1) % WATCH_COOKIES;
}

static bool was_hidden(const struct watches *ws, const struct inotify_event *ev)
{
	if (!(ev->mask & IN_MOVED_TO) || (ev->mask & IN_ISDIR))
		return false;
	for (unsigned i = 0; i < WATCH_COOKIES; i++) {
		if (ws->cookies[i] == ev->cookie)
			return true;
	}
	return false;
}

// --- directories that come and go ---

static void drop(struct watch_node *parent, const char *name)
{
	struct watch_node *n = watch_node_find(parent, name);
	if (n)
		watch_node_take(n, WATCH_DROPPED);
}

static struct watch_node *moved_here(const struct watcher *w, uint32_t cookie)
{
	struct watch_node *n;
	DL_FOREACH2(w->ws->moved, n, qnext)
	{
		if (n->w == w && n->cookie == cookie)
			return n;
	}
	return NULL;
}

static void dir_came(struct watch_node *parent, const struct inotify_event *ev)
{
	struct watcher *w = parent->w;
	if (ev->mask & IN_CREATE) {
		watch_scan_new(parent, ev->name);
		return;
	}
	drop(parent, ev->name); // an empty directory that a rename has replaced goes without a word
	struct watch_node *n = moved_here(w, ev->cookie);
	if (!n)
		watch_scan_new(parent, ev->name);
	else if (watch_node_put(n, parent, ev->name) < 0)
		watch_lost(w);
	else
		watch_scan_moved(n);
}

static void dir_event(struct watch_node *parent, const struct inotify_event *ev)
{
	if (ev->mask & (IN_CREATE | IN_MOVED_TO))
		dir_came(parent, ev);
	if (ev->mask & IN_DELETE)
		drop(parent, ev->name);
	if (!(ev->mask & IN_MOVED_FROM))
		return;
	struct watch_node *n = watch_node_find(parent, ev->name);
	if (!n)
		return;
	watch_node_take(n, WATCH_MOVED);
	n->cookie = ev->cookie;
}

static void child_event(struct watch_node *n, const struct inotify_event *ev)
{
	if (files_temp_name(ev->name))
		return;
	if (was_hidden(n->w->ws, ev))
		watch_push(n, ev->name, WATCH_WRITE);
	else
		tell(n, ev, ev->name);
	if ((ev->mask & IN_ISDIR) && n->w->dir && n->w->spec.recursive && !n->w->gone && !n->w->closed)
		dir_event(n, ev);
}

// About the directory itself: what its parent tells too is left to that, but for a change of its mode, told twice.
static void self_event(struct watch_node *n, const struct inotify_event *ev)
{
	struct watcher *w = n->w;
	if (n == w->root) {
		if (ev->mask & IN_MOVE_SELF)
			watch_root_gone(w, WATCH_RENAME);
		else if (ev->mask & (IN_DELETE_SELF | IN_UNMOUNT))
			watch_root_gone(w, WATCH_REMOVE);
		else if ((ev->mask & IN_ATTRIB) && !w->dir)
			watcher_check(w); // one link less?
		if (!n->wd || n->wd->wd != ev->wd)
			return; // it was about the file before
	}
	tell(n, ev, "");
}

// --- descriptors ---

// The kernel does not watch it any more: removed, or its file system was unmounted and another directory is in its place.
static void ignored(struct watches *ws, int wd)
{
	struct watch_wd *e;
	while ((e = watch_wd_find(ws, wd))) {
		struct watch_node *n = e->nodes;
		watch_node_unbind(n); // the last one frees E
		if (!watch_node_placed(n))
			continue;
		if (n == n->w->root) {
			watch_root_gone(n->w, WATCH_REMOVE);
		} else {
			n->report = n->recheck = true;
			watch_scan_queue(n);
		}
	}
}

// Anything may have happened: every tree is looked at again.
static void overflow(struct watches *ws)
{
	for (struct watcher *w = ws->all; w; w = ws->turn) {
		ws->turn = w->next;
		if (w->gone)
			continue;
		w->root->recheck = true;
		watch_scan_queue(w->root);
		watch_lost(w);
	}
}

static void dispatch(struct watches *ws, const struct inotify_event *ev)
{
	if (ev->mask & IN_Q_OVERFLOW) {
		overflow(ws);
		return;
	}
	const struct watch_wd *e = watch_wd_find(ws, ev->wd);
	if (!e)
		return; // of one that was removed meanwhile
	if ((ev->mask & IN_MOVED_FROM) && ev->len && files_temp_name(ev->name))
		remember_hidden(ws, ev->cookie);
	for (struct watch_node *n = e->nodes; n; n = ws->cursor) {
		ws->cursor = n->wnext;
		if (!watch_node_placed(n))
			continue;
		if (ev->len && *ev->name)
			child_event(n, ev);
		else
			self_event(n, ev);
	}
	if (ev->mask & IN_IGNORED)
		ignored(ws, ev->wd);
}

bool watch_drain(struct watches *ws, int64_t until)
{
	bool all = false; // the last read took all that there was
	ws->settled = false;
	for (unsigned i = 1; ws->fd >= 0; i++) {
		if (ws->off >= ws->len) {
			if (all && !ws->moved)
				break;
			ssize_t n = io_read(ws->fd, ws->buf, WATCH_READ);
			ws->off = 0;
			ws->len = n > 0 ? (size_t)n : 0;
			if (n <= 0)
				break;
			all = ws->len + EVENT_MAX <= WATCH_READ;
		}
		const struct inotify_event *ev = (const void *)(ws->buf + ws->off);
		ws->off += sizeof *ev + ev->len;
		dispatch(ws, ev);
		if (i % CLOCK_EVERY == 0 && io_mono_ns() >= until)
			return false;
	}
	// Both halves of a rename are queued at once, or nearly: whoever has no new name even after one more read has left the tree.
	while (ws->moved)
		watch_node_take(ws->moved, WATCH_DROPPED);
	ws->settled = true;
	return true;
}
