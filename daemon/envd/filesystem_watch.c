// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/filesystem.h"
#include "daemon/io.h"
#include "proto/text.h"

#include <errno.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/vfs.h>

#define TURN_NS INT64_C(1000000) // what a stream takes of a turn: each event may cost some system calls

// --- beginning ---

static bool is_network(const char *path)
{
	static const uint32_t magics[] = {
		NFS_SUPER_MAGIC, CIFS_SUPER_MAGIC, SMB_SUPER_MAGIC, SMB2_SUPER_MAGIC, FUSE_SUPER_MAGIC};
	struct statfs fs;
	if (statfs(path, &fs) < 0)
		return false;
	for (size_t i = 0; i < sizeof magics / sizeof *magics; i++) {
		if ((uint32_t)fs.f_type == magics[i]) // it may be signed
			return true;
	}
	return false;
}

static bool is_symlink(const char *path)
{
	struct stat st;
	char *s = strdup(path);
	if (!s)
		return false;
	envd_clean(s); // a slash at the end would follow it
	bool yes = lstat(s, &st) == 0 && S_ISLNK(st.st_mode);
	free(s);
	return yes;
}

static int check_path(const char *path, const struct fs_watch_ask *ask, struct err *e)
{
	struct stat st;
	if (stat(path, &st) < 0) {
		int rc = -errno;
		if (rc == -ENOENT)
			return fs_failed(e, ERR_NOT_FOUND, rc, "path %s not found: stat %s", path, path);
		return fs_failed(e, ERR_INTERNAL, rc, "error statting path %s: stat %s", path, path);
	}
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_INVALID_ARGUMENT, "path %s is not a directory", path);
	if (!ask->any_mount && is_network(path))
		return err_set(e, ERR_INVALID_ARGUMENT, "cannot watch path on network filesystem: %s", path);
	if (ask->recursive && is_symlink(path))
		return fs_watch_error(e, -ENOTDIR, path);
	return 0;
}

int fs_watch_error(struct err *e, int rc, const char *path)
{
	switch (rc) {
	case -ENOENT: // gone while its tree was read
		return fs_failed(e, ERR_NOT_FOUND, rc, "path %s not found: stat %s", path, path);
	case -ECANCELED:
		return err_set(e, ERR_UNAVAILABLE, "the sandbox is terminating");
	case -ERESTART:
		return envd_leaving(e);
	case -ENOSPC:
		return err_set(e, ERR_INTERNAL,
			"error adding path %s to watcher: out of inotify watches, see fs.inotify.max_user_watches",
			path);
	case -EUSERS:
		return err_set(e, ERR_RESOURCE_EXHAUSTED,
			"error adding path %s to watcher: too many directories are watched", path);
	default:
		return fs_failed(e, ERR_INTERNAL, rc, "error adding path %s to watcher", path);
	}
}

int fs_watch_lost(struct err *e)
{
	return err_set(e, ERR_INTERNAL, "watcher error: queue or buffer overflow: events were lost");
}

int fs_watch_open(struct rpc *r, const struct fs_watch_ask *ask, struct watcher **w, char **path, struct err *e)
{
	struct watches *ws = rpc_envd(r)->watches;
	*path = fs_path(r, ask->path, e);
	if (!*path || check_path(*path, ask, e) < 0)
		return -1;
	struct watch_spec spec = {
		.path = *path,
		.recursive = ask->recursive,
		.ready = ask->ready,
		.changed = ask->changed,
		.arg = ask->arg,
	};
	int rc = watches_add(ws, &spec, rpc_envd(r), w);
	return rc < 0 ? fs_watch_error(e, rc, *path) : 0;
}

// --- events ---

static int fill_name(struct fs_event *f, const char *name)
{
	struct text_tail tail = {0};
	buf_reset(&f->name);
	text_utf8_repair(&f->name, &tail, *name ? name : ".", *name ? strlen(name) : 1, true, NULL);
	buf_byte(&f->name, '\0');
	f->event.name = (char *)(uintptr_t)buf_data(&f->name); // only read
	return buf_failed(&f->name) ? -ENOMEM : 0;
}

int fs_event_fill(struct fs_event *f, struct users *u, const struct watch_event *ev, bool with_entry)
{
	f->event = (Filesystem__FilesystemEvent)FILESYSTEM__FILESYSTEM_EVENT__INIT;
	f->event.type = (Filesystem__EventType)ev->type; // the same numbers
	int rc = fill_name(f, ev->name);
	if (rc < 0 || !with_entry || ev->type == WATCH_REMOVE || ev->type == WATCH_RENAME)
		return rc;
	rc = fs_entry_of(&f->entry, u, ev->path);
	if (rc == -ENOMEM)
		return rc;
	if (rc < 0)
		return 0; // gone meanwhile
	f->event._entry_case = FILESYSTEM__FILESYSTEM_EVENT___ENTRY_ENTRY;
	f->event.entry = &f->entry.info;
	return 0;
}

void fs_event_release(struct fs_event *f)
{
	buf_release(&f->name);
	fs_entry_release(&f->entry);
}

// --- the stream ---

struct watching {
	struct rpc *rpc;
	struct watcher *w;
	char *path; // as the errors have it
	bool with_entry;
	bool begun;   // the stream
	bool started; // its first message is out
	bool paused;  // had its share of the turn
	struct fs_event event;
};

static void watching_free(void *arg)
{
	struct watching *g = arg;
	watcher_close(g->w);
	fs_event_release(&g->event);
	free(g->path);
	free(g);
}

static void put_start(struct rpc *r, struct buf *out)
{
	Filesystem__WatchDirResponse m = FILESYSTEM__WATCH_DIR_RESPONSE__INIT;
	Filesystem__WatchDirResponse__StartEvent start = FILESYSTEM__WATCH_DIR_RESPONSE__START_EVENT__INIT;
	m.event_case = FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_START;
	m.start = &start;
	rpc_put(r, out, &m.base);
}

static void put_keepalive(void *arg, struct rpc *r, struct buf *out)
{
	(void)arg;
	Filesystem__WatchDirResponse m = FILESYSTEM__WATCH_DIR_RESPONSE__INIT;
	Filesystem__WatchDirResponse__KeepAlive alive = FILESYSTEM__WATCH_DIR_RESPONSE__KEEP_ALIVE__INIT;
	m.event_case = FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_KEEPALIVE;
	m.keepalive = &alive;
	rpc_put(r, out, &m.base);
}

static int put_event(struct watching *g, struct buf *out, const struct watch_event *ev)
{
	Filesystem__WatchDirResponse m = FILESYSTEM__WATCH_DIR_RESPONSE__INIT;
	int rc = fs_event_fill(&g->event, rpc_envd(g->rpc)->users, ev, g->with_entry);
	if (rc < 0)
		return rc;
	m.event_case = FILESYSTEM__WATCH_DIR_RESPONSE__EVENT_FILESYSTEM;
	m.filesystem = &g->event.event;
	rpc_put(g->rpc, out, &m.base);
	return buf_failed(out);
}

static enum conn_pull pull_events(struct watching *g, struct buf *out, size_t room)
{
	const struct watch_event *ev;
	struct err e;
	size_t start = buf_len(out);
	int64_t until = io_mono_ns() + TURN_NS;
	while ((ev = watcher_next(g->w))) {
		if (ev->type == WATCH_LOST) {
			fs_watch_lost(&e);
			rpc_end(g->rpc, &e);
			return CONN_PULL_END;
		}
		if (buf_len(out) - start >= room / 2)
			return CONN_PULL_MORE;
		if (put_event(g, out, ev) < 0)
			return CONN_PULL_ABORT;
		watcher_taken(g->w);
		if (io_mono_ns() >= until) {
			g->paused = true;
			return CONN_PULL_MORE;
		}
	}
	if (!watcher_stopped(g->w))
		return CONN_PULL_IDLE; // also behind the end of what is watched: only the client ends this
	fs_watch_error(&e, watcher_stopped(g->w), g->path);
	rpc_end(g->rpc, &e);
	return CONN_PULL_END;
}

static enum conn_pull pull(void *arg, struct rpc *r, struct buf *out, size_t room)
{
	struct watching *g = arg;
	if (g->paused) { // asked again in the same turn: nothing, so that others come first
		g->paused = false;
		return CONN_PULL_MORE;
	}
	if (!g->started)
		put_start(r, out);
	g->started = true;
	return pull_events(g, out, room);
}

static void on_changed(void *arg)
{
	struct watching *g = arg;
	if (g->begun)
		rpc_wake(g->rpc);
}

// RC: the tree is watched, or why not.
static void on_ready(void *arg, int rc)
{
	static const struct rpc_source source = {.pull = pull, .closed = watching_free, .keepalive = put_keepalive};
	struct watching *g = arg;
	struct err e;
	if (rc < 0) {
		fs_watch_error(&e, rc, g->path);
		rpc_error(g->rpc, &e);
		watching_free(g);
		return;
	}
	g->begun = true;
	if (!rpc_stream(g->rpc, &source, g))
		watching_free(g);
	else
		rpc_wake(g->rpc);
}

void fs_watch_dir(struct rpc *r, const ProtobufCMessage *m)
{
	const Filesystem__WatchDirRequest *req = (const void *)m;
	struct err e;
	struct watching *g = calloc(1, sizeof *g);
	if (!g) {
		err_sys(&e, -ENOMEM, "watch");
		rpc_error(r, &e);
		return;
	}
	struct fs_watch_ask ask = {
		.path = req->path,
		.recursive = req->recursive,
		.any_mount = req->allow_network_mounts,
		.arg = g,
		.ready = on_ready,
		.changed = on_changed,
	};
	g->rpc = r;
	g->with_entry = req->include_entry;
	if (fs_watch_open(r, &ask, &g->w, &g->path, &e) < 0) {
		rpc_error(r, &e);
		watching_free(g);
	} else if (watcher_ready(g->w)) {
		on_ready(g, 0);
	} else {
		rpc_on_close(r, watching_free, g);
	}
}
