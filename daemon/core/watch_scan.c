// SPDX-License-Identifier: Apache-2.0
// A directory is watched before it is read, so that nothing falls in between; what is met twice is told twice.
#include "daemon/core/files.h"
#include "daemon/core/watch_priv.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#define CLOCK_EVERY 16 // entries that cost no call between two looks at the clock

void watch_scan_queue(struct watch_node *n)
{
	struct watcher *w = n->w;
	struct watches *ws = w->ws;
	n->unread = true;
	if (n->queued || w->closed || w->gone)
		return;
	n->queued = true;
	DL_APPEND2(w->queue, n, qprev, qnext);
	if (!w->scanning)
		DL_APPEND2(ws->scanning, w, sprev, snext);
	w->scanning = true;
	watch_work(ws);
}

void watch_scan_unqueue(struct watch_node *n)
{
	struct watcher *w = n->w;
	if (w->at == n) {
		closedir(w->reading);
		w->reading = NULL;
		w->at = NULL;
	}
	if (!n->queued)
		return;
	DL_DELETE2(w->queue, n, qprev, qnext);
	n->queued = false;
}

static void scanned(struct watcher *w)
{
	if (w->scanning)
		DL_DELETE2(w->ws->scanning, w, sprev, snext);
	w->scanning = false;
}

void watch_scan_stop(struct watcher *w)
{
	if (w->at)
		watch_scan_unqueue(w->at);
	while (w->queue)
		watch_scan_unqueue(w->queue);
	scanned(w);
}

// --- what can go wrong ---

static bool is_elsewhere(int rc)
{
	return rc == -ESTALE || rc == -ENOENT || rc == -ENOTDIR || rc == -ELOOP;
}

// N was to be read and is not where its path leads, maybe only because a rename has not been read yet. True to try again.
static bool missed(struct watch_node *n)
{
	struct watcher *w = n->w;
	w->unsure = true;
	n->tries += w->ws->settled;
	if (n->tries < WATCH_TRIES)
		return true;
	n->tries = 0;
	if (n == w->root) {
		watch_root_gone(w, WATCH_REMOVE);
		return false;
	}
	struct watch_node *parent = n->parent;
	bool known = n->wd != NULL;
	watch_node_take(n, WATCH_DROPPED);
	if (known)
		watch_scan_new(parent, n->name); // whatever is there now
	return false;
}

// Something that stays: limits, memory, permissions.
static void failed(struct watch_node *n, int rc)
{
	struct watcher *w = n->w;
	if (rc != -EACCES && rc != -EPERM) {
		if (w->ready)
			watch_lost(w);
		else
			watch_became_ready(w, rc);
	}
	if (!n->wd && n != w->root && n->place == WATCH_PLACED)
		watch_node_take(n, WATCH_DROPPED);
}

// --- a directory that is new ---

static int bind_child(struct watch_node *n)
{
	int fd = watch_node_open(n->parent);
	if (fd < 0)
		return fd;
	int rc = watch_node_bind_at(n, fd);
	io_close(&fd);
	return rc;
}

void watch_scan_new(struct watch_node *parent, const char *name)
{
	struct watch_node *n = watch_node_find(parent, name);
	if (!n)
		n = watch_node_new(parent->w, parent, name);
	if (!n) {
		failed(parent, watch_node_refused(parent->w));
		return;
	}
	int rc = bind_child(n);
	if (rc < 0 && !is_elsewhere(rc)) {
		failed(n, rc);
		return;
	}
	if (rc == 0)
		return; // met already, by reading its parent
	n->report = n->recheck = true;
	watch_scan_queue(n);
}

void watch_scan_moved(struct watch_node *n)
{
	struct watcher *w = n->w;
	int rc = bind_child(n);
	if (rc < 0 && !is_elsewhere(rc)) {
		failed(n, rc);
		return;
	}
	if (rc == 0 && !n->unread && !w->unsure && !w->scanning)
		return;
	// It may be another directory than the one we knew, and so may those below.
	n->report |= rc != 0;
	n->recheck = true;
	watch_scan_queue(n);
}

// --- reading ---

static bool is_dir(int fd, const struct dirent *e)
{
	struct stat st;
	if (e->d_type != DT_UNKNOWN)
		return e->d_type == DT_DIR;
	return fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

static void found_dir(struct watch_node *parent, int fd, const char *name)
{
	struct watcher *w = parent->w;
	struct watch_node *n = watch_node_find(parent, name);
	bool known = n != NULL;
	if (!known)
		n = watch_node_new(w, parent, name);
	if (!n) {
		failed(parent, watch_node_refused(w));
		return;
	}
	n->seen = w->pass;
	int rc = watch_node_bind_at(n, fd);
	if (rc < 0) {
		if (is_elsewhere(rc))
			watch_node_take(n, WATCH_DROPPED);
		else
			failed(n, rc);
		return;
	}
	bool fresh = parent->report || (parent->recheck && (!known || rc == 1));
	if (fresh && !parent->report)
		watch_push(parent, name, WATCH_CREATE);
	n->report |= fresh;
	n->recheck |= parent->recheck || (known && rc == 1);
	if (!known || rc == 1 || n->report || n->recheck)
		watch_scan_queue(n);
}

static void found(struct watch_node *parent, int fd, const struct dirent *e)
{
	if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 || files_temp_name(e->d_name))
		return;
	if (parent->report)
		watch_push(parent, e->d_name, WATCH_CREATE);
	if (is_dir(fd, e))
		found_dir(parent, fd, e->d_name);
}

// All entries have been met: children that were not are gone.
static void finish(struct watch_node *n)
{
	struct watcher *w = n->w;
	struct watch_node *c, *next;
	if (n->recheck) {
		DL_FOREACH_SAFE(n->children, c, next)
		{
			if (c->seen != w->pass)
				watch_node_take(c, WATCH_DROPPED);
		}
	}
	n->tries = 0;
	if (!n->queued)
		n->unread = n->report = n->recheck = false;
}

// Reads on in the current directory. True if it is through.
static bool read_on(struct watcher *w, int64_t until)
{
	struct watch_node *n = w->at;
	for (unsigned i = 1;; i++) {
		const struct dirent *e = readdir(w->reading);
		if (!e)
			break;
		found(n, dirfd(w->reading), e);
		if (w->at != n)
			return true; // given up from within
		bool quick = e->d_type != DT_DIR && e->d_type != DT_UNKNOWN;
		if ((!quick || i % CLOCK_EVERY == 0) && io_mono_ns() >= until)
			return false;
	}
	watch_scan_unqueue(n); // closes it
	finish(n);
	return true;
}

// 0, or negative errno.
static int begin(struct watch_node *n)
{
	struct watcher *w = n->w;
	int rc = n->wd ? 0 : bind_child(n);
	if (rc < 0)
		return rc;
	int fd = watch_node_open(n);
	if (fd < 0)
		return fd;
	w->reading = fdopendir(fd);
	if (!w->reading) {
		rc = -errno;
		io_close(&fd);
		return rc;
	}
	w->at = n;
	w->pass++;
	return 0;
}

// Takes the next directory. False if it is to be looked for again later.
static bool take_next(struct watcher *w)
{
	struct watch_node *n = w->queue;
	watch_scan_unqueue(n);
	if (!watch_node_placed(n)) {
		w->unsure = true; // to be read when the top of it, if it was only moved, is put somewhere
		return true;
	}
	if (n == w->root && !(w->dir && w->spec.recursive)) {
		n->unread = n->recheck = false;
		watcher_check(w);
		return true;
	}
	int rc = begin(n);
	if (rc == 0)
		return true;
	if (!is_elsewhere(rc)) {
		failed(n, rc);
		return true;
	}
	if (!missed(n))
		return true;
	watch_scan_queue(n);
	return false;
}

void watch_scan(struct watcher *w, int64_t until)
{
	if (w->at && !watch_node_placed(w->at)) {
		w->unsure = true;
		watch_scan_unqueue(w->at);
	}
	while (!w->gone && !w->closed && (w->at || w->queue)) {
		if (w->at ? !read_on(w, until) : !take_next(w))
			return;
		if (io_mono_ns() >= until && (w->at || w->queue))
			return;
	}
	scanned(w);
	if (!w->ready)
		watch_became_ready(w, 0);
}
