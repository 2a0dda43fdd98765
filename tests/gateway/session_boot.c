// SPDX-License-Identifier: Apache-2.0
// A session's way into a slot: claim, copy into the workspace, owner of what was copied, /init. Each step begins the next; a slot that is lost on the way,
// or whose daemon does not answer, is given up and another one tried.
#include "daemon/io.h"
#include "tests/gateway/session_priv.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void begin_init(struct session *s);
static int claim(struct session *s, struct err *e);

static void later(struct session *s, void (*fn)(struct ev_loop *loop, struct ev_timer *w, int revents))
{
	ev_timer_init(&s->step, fn, 0., 0.);
	s->step.data = s;
	ev_timer_start(s->g->loop, &s->step);
}

void session_boot_cancel(struct session *s)
{
	if (s->claiming && s->g->pool)
		pool_unclaim(s->g->pool, s);
	s->claiming = false;
	ev_timer_stop(s->g->loop, &s->step);
	job_stop(s->job);
	s->job = NULL;
	drive_cancel(s->drive);
	s->drive = NULL;
	if (s->ended && s->template_snapshot) {
		snapshot_let_go(s->template_snapshot);
		s->template_snapshot = NULL;
	}
}

// The slot is of no use any more.
static void drop_slot(struct session *s)
{
	session_boot_cancel(s);
	if (!s->slot)
		return;
	s->slot->session = NULL;
	pool_release(s->slot, false, io_mono_ns());
	s->slot = NULL;
}

// What became of it, told later: a CREATING session is over, another is what it was.
static void failed(struct session *s, const struct err *e)
{
	drop_slot(s);
	if (s->state == SESSION_CREATING) {
		session_end(s, "could not be created", e);
		return;
	}
	s->state = SESSION_PAUSED;
	session_tell_waits(s, e);
}

static void retry(struct session *s, const char *what, const char *why)
{
	struct err e;
	drop_slot(s);
	if (s->tries >= SESSION_TRIES) {
		err_http(&e, 503, ERR_UNAVAILABLE, "%s: %s", what, why);
		failed(s, &e);
	} else if (claim(s, &e) < 0) {
		failed(s, &e);
	}
}

static void lost(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct session *s = w->data;
	(void)loop;
	(void)revents;
	retry(s, "the sandbox has ended before it was ready", s->why);
}

// The pool tells it, and is not asked for another one within that.
void session_boot_lost(struct session *s, const char *why)
{
	session_boot_cancel(s);
	snprintf(s->why, sizeof s->why, "%s", why);
	later(s, lost);
}

// --- the last step ---

void session_up(struct session *s)
{
	bool created = s->state == SESSION_CREATING;
	s->state = SESSION_RUNNING;
	s->cpu_ns = 0;
	session_timer(s, true);
	session_tell_waits(s, NULL);
	// Nobody is there any more who could know its id.
	if (created && !s->taken)
		session_end(s, "was killed", NULL);
}

static void init_done(void *arg, int rc, const char *why)
{
	struct session *s = arg;
	s->drive = NULL;
	if (rc < 0) {
		retry(s, "the sandbox could not be initialized", why);
		return;
	}
	if (s->template_snapshot)
		snapshot_let_go(s->template_snapshot);
	s->template_snapshot = NULL;
	// The copy in paused/ID has done its duty.
	if (s->files_only)
		session_drop_files(s);
	s->files_only = false;
	if (s->state == SESSION_CREATING)
		s->started_ms = io_wall_ms();
	s->end_ms = io_wall_ms() + s->lifetime_s * 1000;
	s->deadline_ns = io_mono_ns() + s->lifetime_s * 1000000000;
	session_up(s);
}

static void begin_init(struct session *s)
{
	struct box *b = node_box(s->slot);
	s->drive = b ? drive_session(s->g->loop, b, s->token, s->env, init_done, s) : NULL;
	if (!s->drive)
		retry(s, "the sandbox could not be initialized", b ? "out of memory" : "it has ended");
}

// --- the workspace ---

static void fill_failed(struct session *s, const char *what, int status)
{
	struct err e;
	if (status < 0)
		err_sys(&e, status, "%s", what);
	else
		err_http(&e, 500, ERR_INTERNAL, "%s: cp ended with %d", what, status);
	failed(s, &e);
}

static void owned(void *arg, int status)
{
	struct session *s = arg;
	struct box *b = node_box(s->slot);
	s->job = NULL;
	if (status != 0)
		fill_failed(s, "the template's files could not be given to the user", status);
	else if (b && chmod(box_work(b), s->mode) < 0)
		fill_failed(s, "the workspace could not be set up", -errno);
	else
		begin_init(s);
}

// A template's directory belongs to whoever made it; copies of workspaces have the right owner already.
static void own(struct session *s)
{
	struct box *b = node_box(s->slot);
	char who[32];
	if (!b || geteuid() != 0) {
		owned(s, 0);
		return;
	}
	snprintf(who, sizeof who, "%u:%u", s->uid, s->gid);
	const char *const argv[] = {"chown", "-R", "-h", "--", who, box_work(b), NULL};
	s->job = job_start(s->g->loop, argv, owned, s);
	if (!s->job)
		fill_failed(s, "the template's files could not be given to the user", -errno);
}

static void filled(void *arg, int status)
{
	struct session *s = arg;
	s->job = NULL;
	if (status != 0)
		fill_failed(s, "the workspace could not be filled", status);
	else if (s->template_dir && !s->files_only)
		own(s);
	else
		begin_init(s);
}

// The directory that the workspace is copied from: 1, or 0 if it stays empty.
static int source(const struct session *s, char *path, size_t size)
{
	if (s->files_only)
		return session_paused_path(s, true, path, size) < 0 ? -ENAMETOOLONG : 1;
	if (s->template_snapshot)
		return snapshot_path(s->template_snapshot, path, size) < 0 ? -ENAMETOOLONG : 1;
	if (!s->template_dir)
		return 0;
	int n = snprintf(path, size, "%s", s->template_dir);
	return n < 0 || (size_t)n >= size ? -ENAMETOOLONG : 1;
}

static void fill(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	struct session *s = w->data;
	(void)loop;
	(void)revents;
	char from[SESSION_PATH];
	struct box *b = node_box(s->slot);
	struct stat st;
	int rc = source(s, from, sizeof from);
	if (rc == 0 || !b) {
		begin_init(s);
		return;
	}
	if (rc > 0 && stat(box_work(b), &st) < 0)
		rc = -errno;
	if (rc > 0) {
		s->mode = st.st_mode & 07777;
		s->uid = st.st_uid;
		s->gid = st.st_gid;
		s->job = job_copy(s->g->loop, from, box_work(b), filled, s);
		rc = s->job ? 0 : -errno;
	}
	if (rc < 0)
		fill_failed(s, "the workspace could not be filled", rc);
}

// --- the slot ---

// Goes on in the loop, so that nobody is told of an end within his own call.
static void have_slot(struct session *s, struct slot *slot)
{
	s->slot = slot;
	slot->session = s;
	later(s, fill);
}

static void claimed(void *arg, struct slot *slot, const struct err *e)
{
	struct session *s = arg;
	s->claiming = false;
	if (slot)
		have_slot(s, slot);
	else
		failed(s, e);
}

static int claim(struct session *s, struct err *e)
{
	struct slot *slot = NULL;
	int rc = pool_claim(s->g->pool, &s->size, io_mono_ns(), &slot, claimed, s, e);
	if (rc < 0)
		return -1;
	s->tries++;
	if (rc == 0)
		have_slot(s, slot);
	else
		s->claiming = true;
	return 0;
}

int session_boot(struct session *s, int64_t lifetime_s, struct err *e)
{
	s->lifetime_s = lifetime_s;
	s->tries = 0;
	return claim(s, e);
}
