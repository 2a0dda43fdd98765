// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/watch_priv.h"
#include "daemon/io.h"
#include "daemon/io_watch.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <utlist.h>

#define IO_NS INT64_C(2000000)   // a turn's share when the kernel has events
#define SYNC_NS INT64_C(4000000) // what somebody waits for what has been done to be in the queues
#define REAP_LOOK 64             // nodes freed between two looks at the clock and at the kernel's queue
#define REAP_READ 4096           // nodes freed before events are read again: each leaves an IN_IGNORED

static const struct watch_limits defaults = {
	.max_nodes = (size_t)1 << 20, // the highest default of the kernel's own limit
	.max_events = 16384,
	.max_bytes = (size_t)4 * 1024 * 1024,
	.max_total = (size_t)64 * 1024 * 1024,
};

#define TRIM_AT 16384 // nodes freed after which the allocator is asked to give memory back

// --- a watcher's life ---

static void watcher_free(struct watcher *w)
{
	watch_queue_release(w);
	free(w->path);
	free(w->real);
	free(w);
}

// The tree goes, in slices.
static void let_go(struct watcher *w)
{
	watch_scan_stop(w);
	if (w->root)
		watch_node_take(w->root, WATCH_DROPPED);
	w->root = NULL;
	w->gone = true;
}

// A file that has been replaced, as editors and our own writer do it, is still watched: that was a write.
static bool replaced(struct watcher *w, const struct stat *st)
{
	if (w->dir || !S_ISREG(st->st_mode) || (st->st_dev == w->dev && st->st_ino == w->ino))
		return false;
	if (watch_node_bind(w->root, w->path) < 0)
		return false;
	w->dev = st->st_dev;
	w->ino = st->st_ino;
	watch_push(w->root, "", WATCH_WRITE);
	return true;
}

void watch_root_gone(struct watcher *w, enum watch_type type)
{
	struct stat st;
	if (w->gone || (type == WATCH_REMOVE && stat(w->path, &st) == 0 && replaced(w, &st)))
		return;
	let_go(w);
	if (w->ready)
		watch_end(w, type);
	else
		watch_became_ready(w, -ENOENT);
}

static void check(struct watcher *w)
{
	struct stat st;
	if (w->gone || w->closed)
		return;
	if (stat(w->path, &st) < 0) {
		if (errno == ENOENT || errno == ENOTDIR)
			watch_root_gone(w, WATCH_REMOVE);
		return;
	}
	if ((st.st_dev != w->dev || st.st_ino != w->ino) && !replaced(w, &st))
		watch_root_gone(w, WATCH_REMOVE);
}

void watch_became_ready(struct watcher *w, int rc)
{
	if (w->ready)
		return;
	w->ready = true;
	w->rc = rc;
	if (rc < 0 && !w->gone)
		let_go(w);
	if (w->late && w->spec.ready && !w->closed)
		w->spec.ready(w->spec.arg, rc);
}

// --- work ---

// Frees dropped nodes, leaves first. The kernel tells of each watch that is removed, so not too many at once.
static void reap(struct watches *ws, int64_t until)
{
	unsigned count = 0;
	while (ws->dropped && count < REAP_READ) {
		struct watch_node *top = ws->dropped, *n = top, *up;
		DL_DELETE2(ws->dropped, top, qprev, qnext);
		for (; n; n = up) {
			if (count >= REAP_READ || (count % REAP_LOOK == REAP_LOOK - 1 && io_mono_ns() >= until)) {
				DL_PREPEND2(ws->dropped, top, qprev, qnext);
				return;
			}
			while (n->children)
				n = n->children;
			up = n->parent;
			watch_node_free(n);
			count++;
			ws->freed++;
		}
	}
	if (ws->freed >= TRIM_AT && !ws->dropped) {
		malloc_trim(0); // they lay between what stays
		ws->freed = 0;
	}
	struct watcher *w, *next;
	DL_FOREACH_SAFE(ws->closed, w, next)
	{
		if (w->nodes > 0)
			continue;
		DL_DELETE(ws->closed, w);
		watcher_free(w);
	}
}

// One directory at a time for each watcher in turn; those that somebody waits for a tree of, only in SLICES.
static void scan(struct watches *ws, int64_t until, bool slices)
{
	size_t idle = 0, count;
	struct watcher *w;
	DL_COUNT2(ws->scanning, w, count, snext);
	while ((w = ws->scanning) && idle < count) {
		DL_DELETE2(ws->scanning, w, sprev, snext);
		DL_APPEND2(ws->scanning, w, sprev, snext);
		idle++;
		if (slices || w->ready)
			watch_scan(w, until);
		if (io_mono_ns() >= until)
			break;
	}
}

static bool pending(const struct watches *ws)
{
	return ws->off < ws->len || ws->moved || ws->dropped || ws->closed || ws->scanning;
}

static void work(struct watches *ws, int64_t until, bool slices)
{
	if (ws->busy)
		return;
	ws->busy = true;
	bool all = watch_drain(ws, until);
	if (all || slices) { // however many events come
		int64_t end = all ? until : slice_until();
		scan(ws, end, slices);
		reap(ws, end);
	}
	ws->settled = false;
	ws->busy = false;
	if (pending(ws))
		slice_start(ws->slices, &ws->job);
	else
		slice_stop(&ws->job);
}

void watch_work(struct watches *ws)
{
	slice_start(ws->slices, &ws->job);
}

static void on_slice(struct slice_job *job)
{
	struct watches *ws = (struct watches *)((char *)job - offsetof(struct watches, job));
	work(ws, slice_until(), true);
}

static void on_slices_gone(struct slice_job *job)
{
	(void)job; // the set has an owner
}

static void on_readable(struct ev_loop *loop, ev_io *io, int revents)
{
	io_watch_failed(loop, io, revents);
	work(io->data, io_mono_ns() + IO_NS, false);
}

void watches_sync(struct watches *ws)
{
	work(ws, io_mono_ns() + SYNC_NS, false);
}

// --- the set ---

struct watches *watches_new(struct ev_loop *loop, struct slices *slices, const struct watch_limits *limits)
{
	struct watches *ws = calloc(1, sizeof *ws);
	if (!ws)
		return NULL;
	ws->loop = loop;
	ws->slices = slices;
	ws->limits = limits ? *limits : defaults;
	ws->job.step = on_slice;
	ws->job.drop = on_slices_gone;
	ws->fd = -1;
	ev_io_init(&ws->io, on_readable, -1, EV_READ);
	// Before the requests that come in the same turn: a directory that the last one made is watched when the next one writes.
	ev_set_priority(&ws->io, EV_MAXPRI);
	ws->io.data = ws;
	return ws;
}

int watches_open(struct watches *ws)
{
	if (ws->fd >= 0)
		return 0;
	if (!ws->buf)
		ws->buf = malloc(WATCH_READ);
	if (!ws->buf)
		return -ENOMEM;
	ws->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	if (ws->fd < 0)
		return -errno;
	ev_io_set(&ws->io, ws->fd, EV_READ);
	io_watch(ws->loop, &ws->io);
	return 0;
}

void watches_free(struct watches *ws)
{
	if (!ws)
		return;
	ev_io_stop(ws->loop, &ws->io);
	io_close(&ws->fd); // with all its watches
	while (ws->all)
		watcher_close(ws->all);
	while (ws->moved)
		watch_node_take(ws->moved, WATCH_DROPPED);
	while (ws->dropped || ws->closed)
		reap(ws, INT64_MAX);
	slice_stop(&ws->job);
	free(ws->buf);
	free(ws);
}

void watches_count(struct watches *ws, struct metrics *m)
{
	ws->metrics = m;
}

struct watcher *watches_first(const struct watches *ws)
{
	return ws->all;
}

struct watcher *watcher_after(const struct watcher *w)
{
	return w->next;
}

size_t watches_nodes(const struct watches *ws)
{
	return ws->nodes;
}

size_t watcher_nodes(const struct watcher *w)
{
	return w->nodes;
}

static bool is_below(const char *path, const char *dir)
{
	size_t n = strlen(dir);
	while (n > 0 && dir[n - 1] == '/')
		n--;
	return strncmp(path, dir, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

void watches_end_below(struct watches *ws, const char *path)
{
	char *real = realpath(path, NULL);
	bool busy = ws->busy;
	ws->busy = true;
	for (struct watcher *w = ws->all; w; w = ws->turn) {
		ws->turn = w->next;
		if (w->gone || !(is_below(w->path, path) || (real && is_below(w->real, real))))
			continue;
		let_go(w);
		if (w->ready)
			watch_end(w, WATCH_REMOVE);
		else
			watch_became_ready(w, -ENOENT);
	}
	ws->busy = busy;
	free(real);
}

void watches_terminate(struct watches *ws, int why)
{
	bool busy = ws->busy;
	ws->busy = true;
	for (struct watcher *w = ws->all; w; w = ws->turn) {
		ws->turn = w->next;
		w->stopped = why;
		if (!w->ready)
			watch_became_ready(w, why);
		else if (w->spec.changed)
			w->spec.changed(w->spec.arg);
	}
	ws->busy = busy;
}

// --- watchers ---

// Without "//", "/./" and slashes at the end: what events are told of should look like a path.
static char *clean(const char *path)
{
	char *s = malloc(strlen(path) + 2), *to = s;
	if (!s)
		return NULL;
	while (*path) {
		size_t n = strcspn(path, "/");
		if (n > 0 && !(n == 1 && *path == '.')) {
			*to++ = '/';
			memcpy(to, path, n);
			to += n;
		}
		path += n + (path[n] == '/');
	}
	if (to == s)
		*to++ = '/';
	*to = '\0';
	return s;
}

static int copy_path(struct watcher *w, const char *path)
{
	w->path = clean(path);
	if (!w->path)
		return -ENOMEM;
	w->real = realpath(path, NULL); // as given: "file/" is no path
	return w->real ? 0 : -errno;
}

static int begin(struct watcher *w)
{
	struct stat st;
	int rc = watch_queue_init(w);
	if (rc == 0)
		rc = copy_path(w, w->spec.path);
	if (rc < 0)
		return rc;
	w->spec.path = w->path;
	if (stat(w->path, &st) < 0)
		return -errno;
	w->dir = S_ISDIR(st.st_mode);
	w->dev = st.st_dev;
	w->ino = st.st_ino;
	w->root = watch_node_new(w, NULL, "");
	if (!w->root)
		return watch_node_refused(w);
	rc = watch_node_bind(w->root, w->path);
	return rc < 0 ? rc : 0;
}

int watches_add(struct watches *ws, const struct watch_spec *spec, const void *owner, struct watcher **out)
{
	int rc = watches_open(ws);
	struct watcher *w = rc < 0 ? NULL : calloc(1, sizeof *w);
	if (!w)
		return rc < 0 ? rc : -ENOMEM;
	w->ws = ws;
	w->owner = owner;
	w->spec = *spec;
	DL_APPEND(ws->all, w);
	ws->count++;
	rc = begin(w);
	if (rc == 0) {
		// A small tree is watched at once.
		watch_scan_queue(w->root);
		bool busy = ws->busy;
		ws->busy = true;
		watch_scan(w, slice_until());
		ws->busy = busy;
		rc = w->rc;
	}
	if (rc < 0) {
		watcher_close(w);
		return rc;
	}
	w->late = !w->ready;
	w->id = ++ws->last_id;
	*out = w;
	return 0;
}

struct watcher *watches_find(const struct watches *ws, const void *owner, uint64_t id)
{
	struct watcher *w;
	DL_FOREACH(ws->all, w)
	{
		if (w->id == id && w->owner == owner)
			return w;
	}
	return NULL;
}

void watcher_close(struct watcher *w)
{
	if (!w)
		return;
	struct watches *ws = w->ws;
	let_go(w);
	w->closed = true;
	while (w->items) // what it has of the common memory is free at once
		watcher_taken(w);
	if (ws->turn == w)
		ws->turn = w->next;
	DL_DELETE(ws->all, w);
	DL_APPEND(ws->closed, w);
	ws->count--;
	if (!ws->busy)
		reap(ws, slice_until());
	if (pending(ws))
		watch_work(ws);
}

void watcher_check(struct watcher *w)
{
	bool busy = w->ws->busy;
	w->ws->busy = true;
	check(w);
	w->ws->busy = busy;
}

bool watcher_ready(const struct watcher *w)
{
	return w->ready;
}

uint64_t watcher_id(const struct watcher *w)
{
	return w->id;
}

const char *watcher_path(const struct watcher *w)
{
	return w->path;
}

void *watcher_arg(const struct watcher *w)
{
	return w->spec.arg;
}

int watcher_stopped(const struct watcher *w)
{
	return w->stopped;
}
