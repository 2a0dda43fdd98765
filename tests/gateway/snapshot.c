// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/snapshot.h"

#include "tests/gateway/session_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct snapshots {
	struct gateway *g;
	struct snapshot *list;
	size_t count;
	uint64_t serial;
};

struct snapshots *snapshots_new(struct gateway *g)
{
	struct snapshots *all = calloc(1, sizeof *all);
	if (all)
		all->g = g;
	return all;
}

void snapshots_free(struct snapshots *all)
{
	if (!all)
		return;
	while (all->list) {
		struct snapshot *p = all->list;
		DL_DELETE(all->list, p);
		job_stop(p->job);
		free(p);
	}
	free(all);
}

struct snapshot *snapshots_find(struct snapshots *all, const char *name)
{
	struct snapshot *p, *found = NULL;
	DL_FOREACH(all->list, p)
	{
		if (p->ready && (strcmp(p->id, name) == 0 || (p->name[0] && strcmp(p->name, name) == 0)))
			found = p;
	}
	return found;
}

struct snapshot *snapshots_first(struct snapshots *all)
{
	return all->list;
}

int snapshot_path(const struct snapshot *p, char *path, size_t size)
{
	int n = snprintf(path, size, "%s/snapshots/%s", node_root(p->g), p->id);
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

// --- its end ---

static void removed(void *arg, int status)
{
	(void)arg;
	(void)status;
}

static void snapshot_free(struct snapshot *p)
{
	char path[SESSION_PATH];
	if (snapshot_path(p, path, sizeof path) == 0)
		(void)job_remove(p->g->loop, path, removed, NULL);
	free(p);
}

void snapshot_hold(struct snapshot *p)
{
	p->holds++;
}

void snapshot_let_go(struct snapshot *p)
{
	if (--p->holds == 0 && p->deleted)
		snapshot_free(p);
}

void snapshot_delete(struct snapshot *p)
{
	struct snapshots *all = p->g->sessions->snapshots;
	DL_DELETE(all->list, p);
	all->count--;
	p->deleted = true;
	p->ready = false;
	if (p->holds == 0)
		snapshot_free(p);
}

// --- its making ---

// The session goes on as it was.
static void release_maker(struct snapshot *p)
{
	struct session *s = p->maker;
	p->maker = NULL;
	s->making = NULL;
	if (s->ended || s->state != SESSION_MOVING)
		return;
	struct box *b = s->slot ? node_box(s->slot) : NULL;
	if (b && box_frozen(b))
		(void)box_thaw(b);
	session_up(s);
}

static void tell(struct snapshot *p, struct snapshot *made, const struct err *e)
{
	void (*done)(void *arg, struct snapshot *made, const struct err *e) = p->done;
	p->done = NULL;
	if (done)
		done(p->arg, made, e);
}

static void copied(void *arg, int status)
{
	struct snapshot *p = arg;
	struct err e;
	p->job = NULL;
	release_maker(p);
	if (status == 0) {
		p->ready = true;
		tell(p, p, NULL);
		return;
	}
	if (status < 0)
		err_sys(&e, status, "snapshot");
	else
		err_http(&e, 500, ERR_INTERNAL, "snapshot: cp ended with %d", status);
	tell(p, NULL, &e);
	snapshot_delete(p);
}

void snapshot_lost(struct snapshot *p)
{
	struct err e;
	job_stop(p->job);
	p->job = NULL;
	p->maker->making = NULL;
	p->maker = NULL;
	err_set(&e, ERR_NOT_FOUND, "the sandbox has ended before its snapshot was complete");
	tell(p, NULL, &e);
	snapshot_delete(p);
}

void snapshot_forget(struct snapshot *p)
{
	p->done = NULL;
}

// The directory to copy into and the copy's beginning.
static int begin_copy(struct snapshot *p, const char *from)
{
	char to[SESSION_PATH];
	int rc = snapshot_path(p, to, sizeof to);
	if (rc < 0)
		return rc;
	char *leaf = strrchr(to, '/');
	*leaf = '\0';
	if (mkdir(to, 0700) < 0 && errno != EEXIST)
		return -errno;
	*leaf = '/';
	if (mkdir(to, 0700) < 0)
		return -errno;
	p->job = job_copy(p->g->loop, from, to, copied, p);
	if (p->job)
		return 0;
	rc = -errno;
	(void)rmdir(to);
	return rc;
}

static int workspace_of(const struct session *s, char *path, size_t size)
{
	struct box *b = s->slot ? node_box(s->slot) : NULL;
	if (s->files_only)
		return session_paused_path(s, true, path, size);
	if (!b || !box_alive(b))
		return -ESRCH;
	int n = snprintf(path, size, "%s", box_work(b));
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 0;
}

static struct snapshot *snapshot_new(struct session *s, const char *name)
{
	struct snapshots *all = s->g->sessions->snapshots;
	struct snapshot *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->g = s->g;
	p->id[0] = 's';
	if (session_random_id(p->id + 1, SNAPSHOT_ID - 1) < 0) {
		free(p);
		return NULL;
	}
	snprintf(p->name, sizeof p->name, "%s", name);
	snprintf(p->session, sizeof p->session, "%s", s->id);
	p->size = s->size;
	p->serial = ++all->serial;
	return p;
}

int snapshot_make(struct session *s, const char *name,
	void (*done)(void *arg, struct snapshot *made, const struct err *e), void *arg, struct err *e)
{
	struct snapshots *all = s->g->sessions->snapshots;
	char from[SESSION_PATH];
	if (s->making || (s->state != SESSION_RUNNING && s->state != SESSION_PAUSED))
		return err_http(e, 409, ERR_ABORTED, "The sandbox is still transitioning. Try again in a moment.");
	if (all->count >= SNAPSHOTS_MAX)
		return err_set(e, ERR_RESOURCE_EXHAUSTED, "snapshots: there are %d already", SNAPSHOTS_MAX);
	int rc = workspace_of(s, from, sizeof from);
	if (rc == -ESRCH)
		return session_not_found(e);
	struct snapshot *p = rc < 0 ? NULL : snapshot_new(s, name);
	if (!p)
		return err_sys(e, rc < 0 ? rc : -ENOMEM, "snapshot");
	p->maker = s;
	s->making = p;
	if (s->state == SESSION_RUNNING) {
		// A tree at rest is copied whole, and nobody in it can lead cp astray.
		session_timer(s, false);
		s->state = SESSION_MOVING;
		rc = box_freeze(node_box(s->slot));
	}
	if (rc == 0)
		rc = begin_copy(p, from);
	if (rc < 0) {
		release_maker(p);
		free(p);
		return err_sys(e, rc, "snapshot");
	}
	p->done = done;
	p->arg = arg;
	DL_APPEND(all->list, p);
	all->count++;
	return 0;
}
