// SPDX-License-Identifier: Apache-2.0
// Watches (contract A section 8): polled ones, and streams of one frame an event.
#include "daemon/core/watch.h"

#include "daemon/io.h"
#include "daemon/sandboxd/files.h"
#include "daemon/sandboxd/work.h"
#include "proto/frame.h"
#include "proto/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define STEP_OUT ((size_t)64 * 1024)

// What a failed watches_add means.
static int watch_error(struct err *e, int rc, const char *path)
{
	switch (rc) {
	case -ENOSPC:
		err_http(e, 503, ERR_RESOURCE_EXHAUSTED, "%s: out of inotify watches, see fs.inotify.max_user_watches",
			path);
		break;
	case -EUSERS:
		return err_http(e, 503, ERR_RESOURCE_EXHAUSTED, "%s: too many directories are watched", path);
	case -ECANCELED:
		sandboxd_terminating(e);
		return -1;
	case -ERESTART:
		sandboxd_leaving(e);
		return -1;
	default:
		return err_sys(e, rc, "%s", path);
	}
	e->sys = -rc;
	return -1;
}

static int watch_open(const struct sandboxd *s, struct err *e)
{
	int rc = watches_open(s->watches);
	if (rc != -EMFILE)
		return rc < 0 ? err_sys(e, rc, "inotify") : 0;
	err_http(e, 503, ERR_RESOURCE_EXHAUSTED,
		"out of inotify instances or descriptors, see fs.inotify.max_user_instances");
	e->sys = EMFILE;
	e->retryable = true;
	return -1;
}

// --- how an event looks ---

static void put_event(struct jsonw *w, const struct watch_event *ev)
{
	jsonw_obj(w);
	files_put_name(w, "name", ev->path, ev->path_len);
	jsonw_kint(w, "type", (int64_t)ev->type);
	jsonw_obj_end(w);
}

static void put_id(struct jsonw *w, const struct watcher *of)
{
	jsonw_obj(w);
	jsonw_kint(w, "watcher_id", (int64_t)watcher_id(of));
	jsonw_obj_end(w);
}

// --- both kinds: from the request to the answer ---

// A watch that is asked for, and, if it is a stream, lives. A polled one is on its own once its id is told.
struct watching {
	struct conn *conn;
	struct watcher *w;
	char *path; // as the errors have it
	bool stream;
	bool late;    // the answer had to wait for the tree
	bool removed; // by its id
	bool started;
	bool ping;
	bool probed;
	double every; // seconds between keepalive frames, 0 = none
	ev_timer keepalive;
};

static void watching_free(void *arg)
{
	struct watching *g = arg;
	if (ev_is_active(&g->keepalive))
		ev_timer_stop(conn_loop(g->conn), &g->keepalive);
	watcher_close(g->w);
	free(g->path);
	free(g);
}

static void answer_id(struct watching *g)
{
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	put_id(&w, g->w);
	if (buf_failed(&out) == 0)
		g->w = NULL; // stays
	sandboxd_reply(g->conn, &out);
	watching_free(g);
}

static void stream_begin(struct watching *g);

static void on_ready(void *arg, int rc)
{
	struct watching *g = arg;
	struct err e;
	if (rc == 0 && g->late && conn_eof(g->conn)) {
		// Most likely it did not want to wait so long, and nobody would ever remove what it asked for.
		err_set(&e, ERR_UNAVAILABLE, "the connection was closed meanwhile");
		conn_error(g->conn, &e);
		watching_free(g);
	} else if (rc < 0) {
		watch_error(&e, rc, g->path);
		conn_error(g->conn, &e);
		watching_free(g);
	} else if (g->stream) {
		stream_begin(g);
	} else {
		answer_id(g);
	}
}

static void on_changed(void *arg)
{
	struct watching *g = arg;
	conn_wake(g->conn);
}

// Takes PATH. A polled watcher is the surface's, a stream's is the set's: /watch/events finds only the former.
static void begin(struct sandboxd *s, struct conn *c, char *path, bool recursive, bool stream)
{
	struct err e;
	struct watching *g = calloc(1, sizeof *g);
	if (!g) {
		free(path);
		err_sys(&e, -ENOMEM, "watch");
		conn_error(c, &e);
		return;
	}
	*g = (struct watching){.conn = c, .path = path, .stream = stream};
	g->every = stream ? sandboxd_keepalive(conn_head(c)) : 0;
	struct watch_spec spec = {
		.path = path,
		.recursive = recursive,
		.ready = on_ready,
		.changed = stream ? on_changed : NULL,
		.arg = g,
	};
	int rc = watch_open(s, &e);
	if (rc == 0) {
		rc = watches_add(s->watches, &spec, stream ? (const void *)s->watches : s, &g->w);
		if (rc < 0)
			watch_error(&e, rc, path);
	}
	if (rc < 0) {
		conn_error(c, &e);
		watching_free(g);
		return;
	}
	g->late = !watcher_ready(g->w);
	if (g->late)
		conn_on_close(c, watching_free, g);
	else
		on_ready(g, 0);
}

void sandboxd_watch_create(void *ctx, struct conn *c)
{
	struct sandboxd *s = ctx;
	struct err e;
	char *path = NULL;
	bool recursive = false;
	json_t *doc = sandboxd_json(c, &e);
	if (!doc || files_body_path(s, doc, "path", &path, NULL, &e) < 0 ||
		jsonr_bool(doc, "recursive", 0, &recursive, &e) < 0) {
		free(path);
		conn_error(c, &e);
	} else {
		begin(s, c, path, recursive, false);
	}
	jsonr_free(doc);
}

// --- polled ---

struct poll {
	struct work work; // first
	struct sandboxd *s;
	uint64_t id;
	size_t left; // events that this answer may still have: those that were there when it began
	struct jsonw json;
	bool lost;
};

static void poll_free(struct work *w)
{
	free(w);
}

static enum work_state poll_step(struct work *work, int64_t until)
{
	struct poll *p = (struct poll *)work;
	struct watcher *of = watches_find(p->s->watches, p->s, p->id);
	const struct watch_event *ev;
	size_t start = buf_len(&work->out);
	while (of && p->left > 0 && (ev = watcher_next(of))) {
		if (ev->type == WATCH_LOST)
			p->lost = true;
		else
			put_event(&p->json, ev);
		if (buf_failed(&work->out))
			return WORK_MORE; // told by the work
		watcher_taken(of);
		p->left--;
		if (buf_len(&work->out) - start >= STEP_OUT || io_mono_ns() >= until)
			return WORK_MORE;
	}
	jsonw_arr_end(&p->json);
	if (p->lost)
		jsonw_kbool(&p->json, "overflow", true);
	if (of && watcher_ended(of))
		jsonw_kbool(&p->json, "ended", true);
	jsonw_obj_end(&p->json);
	return WORK_DONE;
}

static void poll_begin(struct sandboxd *s, struct conn *c, struct watcher *of)
{
	static const struct work_ops ops = {.step = poll_step, .free = poll_free};
	struct err e;
	struct poll *p = calloc(1, sizeof *p);
	if (!p) {
		err_sys(&e, -ENOMEM, "events");
		conn_error(c, &e);
		return;
	}
	watches_sync(s->watches);
	watcher_check(of);
	p->s = s;
	p->id = watcher_id(of);
	p->left = watcher_count(of);
	jsonw_init(&p->json, &p->work.out);
	p->json.ascii = true;
	jsonw_obj(&p->json);
	jsonw_key(&p->json, "events");
	jsonw_arr(&p->json);
	work_start(&p->work, s->slices, c, &ops);
}

static const char not_found[] = "watcher not found";

void sandboxd_watch_events(void *ctx, struct conn *c)
{
	struct sandboxd *s = ctx;
	const struct http_head *head = conn_head(c);
	struct err e;
	const char *v;
	size_t n;
	long long id;
	if (!text_query_raw(head->query.p, head->query.n, "watcher_id", &v, &n) || !n) {
		err_set(&e, ERR_INVALID_ARGUMENT, "watcher_id required");
		conn_error(c, &e);
		return;
	}
	int rc = text_int(v, n, 1, INT64_MAX, &id);
	struct watcher *of = rc == 0 ? watches_find(s->watches, s, (uint64_t)id) : NULL;
	if (of) {
		poll_begin(s, c, of);
		return;
	}
	if (rc == -EINVAL)
		err_set(&e, ERR_INVALID_ARGUMENT, "watcher_id must be a number");
	else
		err_set(&e, ERR_NOT_FOUND, not_found);
	conn_error(c, &e);
}

static int remove_by_id(struct sandboxd *s, const json_t *doc, struct err *e)
{
	int64_t id;
	if (jsonr_int(doc, "watcher_id", JSONR_REQUIRED, INT64_MIN, INT64_MAX, &id, e) < 0)
		return -1;
	struct watcher *of = watches_find(s->watches, s, (uint64_t)id);
	if (of) {
		watcher_close(of);
		return 0;
	}
	of = watches_find(s->watches, s->watches, (uint64_t)id);
	struct watching *g = of ? watcher_arg(of) : NULL;
	if (!g || !g->started || g->removed)
		return err_set(e, ERR_NOT_FOUND, not_found);
	g->removed = true;
	conn_wake(g->conn);
	return 0;
}

void sandboxd_watch_remove(void *ctx, struct conn *c)
{
	struct err e;
	json_t *doc = sandboxd_json(c, &e);
	if (!doc || remove_by_id(ctx, doc, &e) < 0)
		conn_error(c, &e);
	else
		sandboxd_ok(c);
	jsonr_free(doc);
}

// --- pushed ---

static void frame_begin(struct jsonw *w, struct buf *out)
{
	BUF_LIT(out, "data: ");
	jsonw_init(w, out);
	w->ascii = true;
}

static void frame_end(struct buf *out)
{
	BUF_LIT(out, "\n\n");
}

static void frame_flag(struct buf *out, const char *key)
{
	struct jsonw w;
	frame_begin(&w, out);
	jsonw_obj(&w);
	jsonw_kbool(&w, key, true);
	jsonw_obj_end(&w);
	frame_end(out);
}

static void frame_event(struct buf *out, const struct watch_event *ev)
{
	struct jsonw w;
	if (ev->type == WATCH_LOST) {
		frame_flag(out, "overflow");
		return;
	}
	frame_begin(&w, out);
	put_event(&w, ev);
	frame_end(out);
}

// False if there was no room for all.
static bool pull_events(struct watching *g, struct buf *out, size_t start, size_t room)
{
	const struct watch_event *ev;
	while ((ev = watcher_next(g->w))) {
		if (buf_len(out) - start >= room / 2)
			return false;
		frame_event(out, ev);
		if (buf_failed(out))
			return false;
		watcher_taken(g->w);
	}
	return true;
}

// True if that was all.
static bool pull_end(struct watching *g, struct buf *out)
{
	struct err e;
	if (watcher_ended(g->w) || g->removed) {
		frame_flag(out, "ended");
	} else if (watcher_stopped(g->w)) {
		watch_error(&e, watcher_stopped(g->w), g->path);
		frame_sse_error(out, &e);
	} else {
		return false;
	}
	return true;
}

static enum conn_pull pull(void *arg, struct buf *out, size_t room)
{
	struct watching *g = arg;
	struct jsonw w;
	size_t start = buf_len(out);
	if (!g->started) {
		frame_begin(&w, out);
		put_id(&w, g->w);
		frame_end(out);
	}
	g->started = true;
	bool all = pull_events(g, out, start, room);
	bool end = all && pull_end(g, out);
	// A peer that has closed answers what is sent now with RST; one that has closed its half only skips a comment.
	bool probe = conn_eof(g->conn) && !g->probed;
	if ((g->ping || probe) && buf_len(out) == start)
		frame_sse_keepalive(out);
	g->ping = false;
	g->probed |= probe;
	if (ev_is_active(&g->keepalive))
		ev_timer_again(conn_loop(g->conn), &g->keepalive);
	if (buf_failed(out))
		return CONN_PULL_ABORT;
	return end ? CONN_PULL_END : all ? CONN_PULL_IDLE : CONN_PULL_MORE;
}

static void on_keepalive(struct ev_loop *loop, ev_timer *t, int revents)
{
	(void)loop, (void)revents;
	struct watching *g = t->data;
	watcher_check(g->w);
	g->ping = true;
	conn_wake(g->conn);
}

static void stream_begin(struct watching *g)
{
	static const struct conn_producer producer = {.pull = pull, .closed = watching_free};
	ev_timer_init(&g->keepalive, on_keepalive, g->every, g->every);
	g->keepalive.data = g;
	if (!conn_stream(g->conn, "text/event-stream", "Cache-Control: no-cache\r\n", &producer, g)) {
		watching_free(g);
		return;
	}
	if (g->every > 0)
		ev_timer_again(conn_loop(g->conn), &g->keepalive);
	conn_wake(g->conn);
}

// "recursive" of a query: absent, "0" or "false"; "1" or "true".
static int query_recursive(const struct conn *c, bool *recursive, struct err *e)
{
	const struct http_head *head = conn_head(c);
	const char *v;
	size_t n;
	if (!text_query_raw(head->query.p, head->query.n, "recursive", &v, &n) || n == 0)
		return 0;
	*recursive = (n == 1 && *v == '1') || (n == 4 && memcmp(v, "true", n) == 0);
	if (*recursive || (n == 1 && *v == '0') || (n == 5 && memcmp(v, "false", n) == 0))
		return 0;
	return err_set(e, ERR_INVALID_ARGUMENT, "recursive must be true or false");
}

static int query_path(const struct sandboxd *s, const struct conn *c, char **path, struct err *e)
{
	struct buf b;
	buf_init(&b, 0);
	int rc = files_query(c, "path", &b, e);
	if (rc >= 0 && buf_len(&b) == 0)
		rc = err_set(e, ERR_INVALID_ARGUMENT, "path required");
	const char *asked = rc < 0 ? NULL : buf_cstr(&b);
	*path = asked ? files_path(s->config->workspace, asked) : NULL;
	if (rc >= 0 && !*path)
		rc = err_sys(e, -ENOMEM, "path");
	buf_release(&b);
	return rc < 0 ? -1 : 0;
}

void sandboxd_watch_stream(void *ctx, struct conn *c)
{
	struct sandboxd *s = ctx;
	struct err e;
	char *path;
	bool recursive = false;
	if (query_recursive(c, &recursive, &e) < 0 || query_path(s, c, &path, &e) < 0)
		conn_error(c, &e);
	else
		begin(s, c, path, recursive, true);
}
