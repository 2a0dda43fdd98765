// SPDX-License-Identifier: Apache-2.0
// Watchers that outlive the request: made, asked for what they have, removed by their id.
#include "daemon/envd/filesystem.h"
#include "daemon/io.h"

#include <errno.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define STEP_OUT ((size_t)64 * 1024)
enum { ID_CHARS = 20 }; // behind a 'w'

struct envd_filesystem {
	void *by_id; // tsearch: struct stored
};

struct stored {
	char id[1 + ID_CHARS + 1];
	struct envd *envd;
	struct watcher *w; // NULL once events were lost
	bool with_entry;
	// Until its tree is watched and its id is told:
	struct rpc *rpc;
	char *path;
};

// --- the table ---

static int cmp_id(const void *a, const void *b)
{
	const struct stored *x = a, *y = b;
	return strcmp(x->id, y->id);
}

static struct stored *find(const struct envd *e, const char *id)
{
	struct stored want;
	if (!e->filesystem || strlen(id) >= sizeof want.id)
		return NULL;
	memcpy(want.id, id, strlen(id) + 1);
	struct stored **found = tfind(&want, &e->filesystem->by_id, cmp_id);
	return found ? *found : NULL;
}

static void stored_free(void *arg)
{
	struct stored *s = arg;
	watcher_close(s->w);
	free(s->path);
	free(s);
}

static void forget(struct stored *s)
{
	tdelete(s, &s->envd->filesystem->by_id, cmp_id);
	stored_free(s);
}

void envd_filesystem_free(struct envd_filesystem *f)
{
	if (!f)
		return;
	tdestroy(f->by_id, stored_free);
	free(f);
}

static int make_id(struct stored *s)
{
	static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz0123456789";
	unsigned char random[ID_CHARS];
	if (IO_AGAIN(getrandom(random, sizeof random, 0)) != (ssize_t)sizeof random)
		return -errno;
	s->id[0] = 'w';
	for (unsigned i = 0; i < ID_CHARS; i++)
		s->id[1 + i] = alphabet[random[i] % (sizeof alphabet - 1)];
	return 0;
}

// Puts S into the table. 0 or negative errno.
static int keep(struct stored *s)
{
	struct envd *e = s->envd;
	if (!e->filesystem)
		e->filesystem = calloc(1, sizeof *e->filesystem);
	if (!e->filesystem)
		return -ENOMEM;
	int rc = make_id(s);
	if (rc < 0)
		return rc;
	struct stored **kept = tsearch(s, &e->filesystem->by_id, cmp_id);
	if (!kept)
		return -ENOMEM;
	return *kept == s ? 0 : -EEXIST;
}

static void refuse_id(struct rpc *r, const char *id)
{
	rpc_errorf(r, ERR_NOT_FOUND, "watcher with id %s not found", id);
}

// --- making ---

static void on_ready(void *arg, int rc)
{
	struct stored *s = arg;
	struct rpc *r = s->rpc;
	struct err e;
	s->rpc = NULL;
	// A client that does not wait any more would never remove what it asked for.
	if (rc == 0 && conn_eof(rpc_conn(r)))
		rc = err_set(&e, ERR_UNAVAILABLE, "the connection was closed meanwhile");
	else if (rc < 0)
		fs_watch_error(&e, rc, s->path);
	else if ((rc = keep(s)) < 0)
		err_sys(&e, rc, "watcher");
	if (rc < 0) {
		rpc_error(r, &e);
		stored_free(s);
		return;
	}
	free(s->path);
	s->path = NULL;
	Filesystem__CreateWatcherResponse m = FILESYSTEM__CREATE_WATCHER_RESPONSE__INIT;
	m.watcher_id = s->id;
	rpc_reply(r, &m.base);
}

void fs_create_watcher(struct rpc *r, const ProtobufCMessage *m)
{
	const Filesystem__CreateWatcherRequest *req = (const void *)m;
	struct err e;
	struct stored *s = calloc(1, sizeof *s);
	if (!s) {
		err_sys(&e, -ENOMEM, "watch");
		rpc_error(r, &e);
		return;
	}
	struct fs_watch_ask ask = {
		.path = req->path,
		.recursive = req->recursive,
		.any_mount = req->allow_network_mounts,
		.arg = s,
		.ready = on_ready,
	};
	s->envd = rpc_envd(r);
	s->rpc = r;
	s->with_entry = req->include_entry;
	if (fs_watch_open(r, &ask, &s->w, &s->path, &e) < 0) {
		rpc_error(r, &e);
		stored_free(s);
	} else if (watcher_ready(s->w)) {
		on_ready(s, 0);
	} else {
		rpc_on_close(r, stored_free, s);
	}
}

// --- asking ---

struct poll {
	struct fs_job job; // first
	struct envd *envd;
	char id[sizeof((struct stored *)0)->id]; // it may be removed meanwhile
	size_t left; // events that this answer may still have: those that were there when it began
	struct fs_event event;
};

static void poll_free(struct fs_job *j)
{
	struct poll *p = (struct poll *)j;
	fs_event_release(&p->event);
	free(p);
}

// From now on there is nothing to be had but this.
static enum fs_state lost(struct poll *p, struct stored *s)
{
	watcher_close(s->w);
	s->w = NULL;
	fs_watch_lost(&p->job.err);
	return FS_FAILED;
}

static enum fs_state poll_step(struct fs_job *j, int64_t until)
{
	struct poll *p = (struct poll *)j;
	struct stored *s = find(p->envd, p->id);
	const struct watch_event *ev;
	size_t start = buf_len(&j->out);
	if (s && !s->w)
		return lost(p, s); // another call has met it
	for (; s && p->left > 0 && (ev = watcher_next(s->w)); p->left--) {
		if (buf_len(&j->out) - start >= STEP_OUT || io_mono_ns() >= until)
			return FS_MORE;
		if (ev->type == WATCH_LOST)
			return lost(p, s);
		int rc = fs_event_fill(&p->event, p->envd->users, ev, s->with_entry);
		if (rc < 0) {
			err_sys(&j->err, rc, "events");
			return FS_FAILED;
		}
		fs_job_put(j, "events", &p->event.event.base);
		watcher_taken(s->w);
	}
	fs_job_put_end(j);
	return FS_DONE;
}

void fs_get_watcher_events(struct rpc *r, const ProtobufCMessage *m)
{
	static const struct fs_job_ops ops = {.step = poll_step, .free = poll_free, .whole = true};
	const char *id = ((const Filesystem__GetWatcherEventsRequest *)(const void *)m)->watcher_id;
	struct envd *envd = rpc_envd(r);
	struct stored *s = find(envd, id);
	struct err e;
	if (!s) {
		refuse_id(r, id);
		return;
	}
	if (!s->w) {
		fs_watch_lost(&e);
		rpc_error(r, &e);
		return;
	}
	struct poll *p = calloc(1, sizeof *p);
	if (!p) {
		err_sys(&e, -ENOMEM, "events");
		rpc_error(r, &e);
		return;
	}
	watches_sync(envd->watches); // what was done before this call is told
	p->envd = envd;
	memcpy(p->id, s->id, sizeof p->id);
	p->left = watcher_count(s->w);
	fs_job_start(&p->job, r, &ops);
}

void fs_remove_watcher(struct rpc *r, const ProtobufCMessage *m)
{
	const char *id = ((const Filesystem__RemoveWatcherRequest *)(const void *)m)->watcher_id;
	struct stored *s = find(rpc_envd(r), id);
	if (!s) {
		refuse_id(r, id);
		return;
	}
	forget(s);
	Filesystem__RemoveWatcherResponse res = FILESYSTEM__REMOVE_WATCHER_RESPONSE__INIT;
	rpc_reply(r, &res.base);
}
