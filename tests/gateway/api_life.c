// SPDX-License-Identifier: Apache-2.0
// What happens to a session that exists: info, kill, timeout, pause, connect, resume. A request that has to wait is a struct wait.
#include "tests/gateway/api_priv.h"

#include <errno.h>
#include <stdlib.h>

// A request that waits for its session to run.
struct wait {
	struct conn *c;
	struct session *s;
	int status;       // a Sandbox object with it
	int64_t lifetime; // at least, from then on; 0 = as it is
	bool pause;       // then it is paused instead
	bool memory;
};

static void wait_done(void *arg, const struct err *e);

static void on_close(void *arg)
{
	struct wait *w = arg;
	session_wake_forget(w->s, w);
	free(w);
}

static void wait_begin(const struct wait *what)
{
	struct err e;
	struct wait *w = malloc(sizeof *w);
	if (w) {
		*w = *what;
		if (session_await(w->s, wait_done, w, &e) == 0) {
			conn_on_close(w->c, on_close, w);
			return;
		}
		free(w);
	} else {
		err_sys(&e, -ENOMEM, "sandbox");
	}
	api_fail(what->c, what->s->id, &e);
}

// --- info, kill ---

void api_info(void *ctx, struct conn *c)
{
	struct session *s = api_session(ctx, c);
	struct jsonw w;
	struct buf out;
	if (!s)
		return;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	api_put_detail(&w, s);
	api_reply(c, 200, NULL, &out);
	buf_release(&out);
}

void api_kill(void *ctx, struct conn *c)
{
	struct session *s = api_session(ctx, c);
	if (!s)
		return;
	session_end(s, "was killed", NULL);
	api_no_content(c);
}

// --- lifetime ---

static void set_lifetime(struct session *s, struct conn *c, int64_t seconds, bool extend)
{
	struct err e;
	if (s->state == SESSION_PAUSED) {
		session_not_found(&e);
		api_fail(c, s->id, &e);
		return;
	}
	session_lifetime(s, seconds, extend);
	api_no_content(c);
}

void api_timeout(void *ctx, struct conn *c)
{
	int64_t timeout = 0;
	struct session *s = api_session(ctx, c);
	struct err e;
	json_t *doc = s ? api_body(c) : NULL;
	if (!doc)
		return;
	int rc = jsonr_int(doc, "timeout", JSONR_REQUIRED, INT32_MIN, INT32_MAX, &timeout, &e);
	json_decref(doc);
	if (rc < 0)
		conn_error(c, &e);
	else
		set_lifetime(s, c, timeout, false);
}

void api_refreshes(void *ctx, struct conn *c)
{
	int64_t duration = 15; // as the first SDKs' server had it
	struct session *s = api_session(ctx, c);
	struct err e;
	json_t *doc = s ? api_body(c) : NULL;
	if (!doc)
		return;
	int rc = jsonr_int(doc, "duration", 0, 0, INT32_MAX, &duration, &e);
	json_decref(doc);
	if (rc < 0)
		conn_error(c, &e);
	else
		set_lifetime(s, c, duration, true);
}

// --- pause ---

static void pause_now(struct session *s, struct conn *c, bool memory)
{
	struct err e;
	if (session_pause(s, memory, &e) < 0)
		api_fail(c, s->id, &e);
	else
		api_no_content(c);
}

void api_pause(void *ctx, struct conn *c)
{
	struct session *s = api_session(ctx, c);
	struct err e;
	bool memory = true;
	json_t *doc = s ? api_body(c) : NULL;
	if (!doc)
		return;
	int rc = jsonr_bool(doc, "memory", 0, &memory, &e);
	json_decref(doc);
	if (rc < 0) {
		conn_error(c, &e);
	} else if (s->state == SESSION_PAUSED) {
		err_http(&e, 409, ERR_FAILED_PRECONDITION, "Error pausing sandbox - sandbox '%s' is already paused",
			s->id);
		conn_error(c, &e);
	} else if (s->state == SESSION_MOVING) {
		wait_begin(&(struct wait){.c = c, .s = s, .pause = true, .memory = memory});
	} else {
		pause_now(s, c, memory);
	}
}

static void wait_done(void *arg, const struct err *e)
{
	struct wait w = *(struct wait *)arg;
	free(arg);
	if (e) {
		api_fail(w.c, w.s->id, e);
	} else if (w.pause) {
		pause_now(w.s, w.c, w.memory);
	} else {
		if (w.lifetime > 0)
			session_lifetime(w.s, w.lifetime, true);
		api_reply_sandbox(w.c, w.status, w.s);
	}
}

// --- connect, resume ---

static void wake(struct session *s, struct conn *c, int64_t timeout, bool reboot)
{
	struct err e;
	int rc = session_resume(s, timeout, reboot, &e);
	if (rc < 0)
		api_fail(c, s->id, &e);
	else if (rc == 0)
		api_reply_sandbox(c, 201, s);
	else
		wait_begin(&(struct wait){.c = c, .s = s, .status = 201});
}

void api_connect(void *ctx, struct conn *c)
{
	struct gateway *g = ctx;
	struct session *s = api_session(g, c);
	struct err e;
	int64_t timeout = (int64_t)g->options->timeout;
	bool memory = true;
	json_t *doc = s ? api_body(c) : NULL;
	if (!doc)
		return;
	int rc = jsonr_int(doc, "timeout", 0, 0, INT32_MAX, &timeout, &e);
	if (rc >= 0)
		rc = jsonr_bool(doc, "memory", 0, &memory, &e);
	json_decref(doc);
	if (rc < 0) {
		conn_error(c, &e);
	} else if (s->state == SESSION_PAUSED) {
		wake(s, c, timeout, !memory);
	} else if (s->state == SESSION_MOVING) {
		wait_begin(&(struct wait){.c = c, .s = s, .status = 200, .lifetime = timeout});
	} else {
		session_lifetime(s, timeout, true);
		api_reply_sandbox(c, 200, s);
	}
}

void api_resume(void *ctx, struct conn *c)
{
	struct gateway *g = ctx;
	struct session *s = api_session(g, c);
	struct err e;
	int64_t timeout = (int64_t)g->options->timeout;
	json_t *doc = s ? api_body(c) : NULL;
	if (!doc)
		return;
	bool pause = s->auto_pause;
	int rc = jsonr_int(doc, "timeout", 0, 0, INT32_MAX, &timeout, &e);
	if (rc >= 0)
		rc = jsonr_bool(doc, "autoPause", 0, &pause, &e);
	json_decref(doc);
	if (rc < 0) {
		conn_error(c, &e);
	} else if (s->state != SESSION_PAUSED) {
		err_http(&e, 409, ERR_FAILED_PRECONDITION, "Sandbox %s is already running", s->id);
		conn_error(c, &e);
	} else {
		s->auto_pause = pause;
		wake(s, c, timeout, false);
	}
}
