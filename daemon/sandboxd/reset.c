// SPDX-License-Identifier: Apache-2.0
// POST /workspace/reset: first everything that runs below the daemon is killed and waited for, then every entry of the workspace goes, in
// slices. It goes on without its client; a second request meanwhile shares the result.
#include "daemon/core/files.h"
#include "daemon/core/walk.h"
#include "daemon/core/watch.h"
#include "daemon/io.h"
#include "daemon/log.h"
#include "daemon/sandboxd/workspace.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

#define LOOK_S 0.005
#define AGAIN_LOOKS 20
// Whatever a KILL has not ended by then hangs in the kernel.
#define KILL_NS ((int64_t)5000000000)

struct waiter {
	struct reset *reset;
	struct conn *conn;
	struct waiter *prev, *next;
};

struct reset {
	struct slice_job job; // first: the steps get it
	struct workspace *ws;
	ev_timer look; // while processes are waited for
	int64_t until; // and how long
	unsigned looks;
	bool alive; // some did not end
	struct walk_remove *remove;
	struct waiter *waiters;
};

static void waiter_free(struct waiter *w)
{
	DL_DELETE(w->reset->waiters, w);
	free(w);
}

static void on_gone(void *arg)
{
	waiter_free(arg);
}

void reset_free(struct workspace *ws)
{
	struct reset *r = ws->reset;
	if (!r)
		return;
	ev_timer_stop(ws->loop, &r->look);
	slice_stop(&r->job);
	walk_remove_free(r->remove);
	while (r->waiters)
		waiter_free(r->waiters);
	free(r);
	ws->reset = NULL;
}

static void on_drop(struct slice_job *job)
{
	struct reset *r = (struct reset *)job;
	reset_free(r->ws);
}

// --- the end ---

// What is left, if anything is: negative errno and where.
static int left(const struct reset *r, int rc, const char **path)
{
	*path = r->ws->sandboxd->config->workspace;
	if (rc < 0)
		return rc;
	rc = r->remove ? walk_remove_error(r->remove, path) : 0;
	return rc == 0 && r->alive ? -EBUSY : rc;
}

static void answer_left(struct conn *c, int rc, const char *path, bool alive)
{
	struct buf out;
	struct jsonw w;
	struct err e;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	err_sys(&e, rc, "%.180s", alive ? "processes that cannot be ended" : path);
	jsonw_obj(&w);
	jsonw_kstr(&w, "error", e.msg);
	jsonw_kstr(&w, "code", e.retryable ? err_word(e.code) : "internal");
	jsonw_kbool(&w, "retryable", e.retryable);
	if (err_errno_name(-rc))
		jsonw_kstr(&w, "errno", err_errno_name(-rc));
	jsonw_kstr(&w, "path", path);
	jsonw_obj_end(&w);
	conn_reply(c, e.retryable ? e.status : 500, "application/json", NULL, &out);
	buf_release(&out);
}

static void answer_done(struct conn *c, uint64_t removed)
{
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	jsonw_kbool(&w, "ok", true);
	jsonw_kint(&w, "removed", (int64_t)removed);
	jsonw_obj_end(&w);
	sandboxd_reply(c, &out);
}

// RC: why nothing could be removed at all, or 0.
static void finish(struct reset *r, int rc)
{
	struct workspace *ws = r->ws;
	const char *path;
	uint64_t removed = r->remove ? walk_remove_count(r->remove) : 0;
	rc = left(r, rc, &path);
	procs_hold(ws->sandboxd->procs, false);
	bool alive = r->alive && rc == -EBUSY;
	if (rc < 0)
		log_error("reset", "%s: %s", path, strerror(-rc));
	else
		log_info("reset", "%llu entries removed", (unsigned long long)removed);
	while (r->waiters) {
		struct conn *c = r->waiters->conn;
		waiter_free(r->waiters);
		if (rc < 0)
			answer_left(c, rc, path, alive);
		else
			answer_done(c, removed);
	}
	procs_forget(ws->sandboxd->procs);
	reset_free(ws);
	journals_hold(ws->journals, false);
	events_put_int(ws->sandboxd, "reset", NULL, "removed", (int64_t)removed);
	venv_start(ws);
}

// --- removing ---

// The workspace itself is gone: made again for who runs commands.
static int make_again(const struct sandboxd *s)
{
	struct user user = {0};
	int rc = users_find(s->users, s->config->user, &user);
	if (rc == 0)
		rc = files_make_trusted(s->config->workspace, &(struct files_owner){user.uid, user.gid});
	user_release(&user);
	return rc;
}

static bool on_remove(struct slice_job *job)
{
	struct reset *r = (struct reset *)job;
	bool more = walk_remove_step(r->remove, slice_until());
	slice_await(job, walk_remove_fd(r->remove));
	return more;
}

static void on_step(struct slice_job *job)
{
	struct reset *r = (struct reset *)job;
	if (!on_remove(job))
		finish(r, 0);
	else if (walk_remove_is_long(r->remove))
		slice_gently(job, on_remove);
}

static void begin_remove(struct reset *r)
{
	const struct sandboxd *s = r->ws->sandboxd;
	ev_timer_stop(r->ws->loop, &r->look);
	int rc = walk_remove_new(&r->remove, s->config->workspace, WALK_KEEP_ROOT | WALK_KEEP_MOUNTS);
	if (rc < 0) {
		finish(r, rc == -ENOENT ? make_again(s) : rc);
		return;
	}
	slice_start(s->slices, &r->job);
}

// --- ending what runs ---

static void on_look(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct reset *r = w->data;
	struct procs *procs = r->ws->sandboxd->procs;
	procs_reap(procs);
	if (procs_childless(procs)) {
		begin_remove(r);
	} else if (io_mono_ns() > r->until) {
		r->alive = true;
		begin_remove(r);
	} else if (++r->looks % AGAIN_LOOKS == 0) {
		procs_signal_all(procs, SIGKILL); // what was being born
	}
}

static struct reset *reset_new(struct workspace *ws)
{
	struct reset *r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	r->ws = ws;
	r->job.step = on_step;
	r->job.drop = on_drop;
	r->until = io_mono_ns() + KILL_NS;
	ev_timer_init(&r->look, on_look, LOOK_S, LOOK_S);
	r->look.data = r;
	ws->reset = r;
	return r;
}

static void begin(struct reset *r)
{
	struct workspace *ws = r->ws;
	journals_hold(ws->journals, true);
	venv_drop(ws);
	transcripts_drop(ws);
	background_drop(ws);
	watches_end_below(ws->sandboxd->watches, ws->sandboxd->config->workspace);
	procs_hold(ws->sandboxd->procs, true);
	procs_signal_all(ws->sandboxd->procs, SIGKILL);
	ev_timer_again(ws->loop, &r->look);
}

// Where all of the file system is the workspace, there is nothing that a reset may keep.
static bool is_root(const char *dir)
{
	struct stat a, b;
	return stat(dir, &a) == 0 && stat("/", &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

void sandboxd_reset(void *ctx, struct conn *c)
{
	struct sandboxd *s = ctx;
	struct workspace *ws = s->workspace;
	if (is_root(s->config->workspace)) {
		struct err e;
		err_set(&e, ERR_FAILED_PRECONDITION, "the workspace is the root directory");
		conn_error(c, &e);
		return;
	}
	bool running = ws->reset != NULL;
	struct waiter *w = calloc(1, sizeof *w);
	struct reset *r = !w ? NULL : running ? ws->reset : reset_new(ws);
	if (!r) {
		struct err e;
		err_sys(&e, -ENOMEM, "reset");
		conn_error(c, &e);
		free(w);
		return;
	}
	w->reset = r;
	w->conn = c;
	DL_APPEND(r->waiters, w);
	conn_on_close(c, on_gone, w);
	if (!running)
		begin(r);
}
