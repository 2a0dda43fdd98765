// SPDX-License-Identifier: Apache-2.0
// Create. A request waits until its session runs; if it goes away before, the session goes too. With an Idempotency-Key a second request joins the first
// one's session, or gets its answer again.
#include "tests/gateway/api_priv.h"

#include "daemon/io.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct create {
	struct gateway *g;
	struct conn *c;
	struct session *s;
	uint64_t key; // of its entry in the table of keys, or 0
};

static void on_close(void *arg)
{
	struct create *w = arg;
	struct session *s = w->s;
	session_wake_forget(s, w);
	if (s->state == SESSION_CREATING && !s->waits) {
		idem_drop(w->g->sessions->idem, w->key);
		session_end(s, "was killed", NULL);
	}
	free(w);
}

// It has hung up: whoever waits for a create keeps his side open.
static void on_eof(void *arg)
{
	struct create *w = arg;
	conn_abort(w->c);
}

static void answer(const struct create *w)
{
	struct jsonw j;
	struct buf out;
	buf_init(&out, 0);
	jsonw_init(&j, &out);
	api_put_sandbox(&j, w->s);
	w->s->taken |= !buf_failed(&out);
	idem_answer(w->g->sessions->idem, w->key, &out);
	api_reply(w->c, 201, NULL, &out);
	buf_release(&out);
}

static void created(void *arg, const struct err *e)
{
	struct create w = *(struct create *)arg;
	free(arg);
	if (e) {
		idem_drop(w.g->sessions->idem, w.key);
		api_fail(w.c, w.s->id, e);
	} else if (conn_eof(w.c)) {
		idem_drop(w.g->sessions->idem, w.key); // if nobody else waits the session ends
		conn_on_close(w.c, NULL, NULL);
		conn_on_eof(w.c, NULL, NULL);
		conn_abort(w.c);
	} else {
		answer(&w);
	}
}

// C waits for S.
static int join(struct gateway *g, struct conn *c, struct session *s, uint64_t key, struct err *e)
{
	struct create *w = malloc(sizeof *w);
	if (!w)
		return err_sys(e, -ENOMEM, "sandbox");
	*w = (struct create){g, c, s, key};
	if (session_await(s, created, w, e) < 0) {
		free(w);
		return -1;
	}
	conn_on_close(c, on_close, w);
	conn_on_eof(c, on_eof, w);
	return 0;
}

static void begin(struct gateway *g, struct conn *c, const json_t *doc, uint64_t key)
{
	struct err e;
	struct session *s = session_create(g, doc, &e);
	if (s && join(g, c, s, key, &e) < 0) {
		session_end(s, "could not be created", &e);
		s = NULL;
	}
	if (s) {
		idem_session(g->sessions->idem, key, s->id);
		return;
	}
	idem_drop(g->sessions->idem, key);
	conn_error(c, &e);
}

// True if the request's key was used before and C is dealt with. Else *KEY is a new entry's, or 0.
static bool seen(struct gateway *g, struct conn *c, uint64_t *key)
{
	struct http_span name = http_get(conn_head(c), "Idempotency-Key");
	const struct buf *body = conn_body(c), *answered = NULL;
	struct session *s = NULL;
	const char *id = NULL;
	struct err e;
	*key = 0;
	if (!name.p || name.n == 0)
		return false;
	int rc = idem_enter(g->sessions->idem, name, body, io_mono_ns(), key, &id, &answered, &e);
	if (rc == 0)
		return false;
	if (rc > 0 && answered) {
		api_reply(c, 201, NULL, answered);
		return true;
	}
	if (rc > 0)
		s = session_get(g, id, strlen(id));
	if (rc > 0 && !s)
		err_set(&e, ERR_UNAVAILABLE, "the first request with this Idempotency-Key has just failed");
	if (rc < 0 || !s || join(g, c, s, *key, &e) < 0)
		conn_error(c, &e);
	return true;
}

void api_create(void *ctx, struct conn *c)
{
	uint64_t key;
	json_t *doc = api_body(c);
	if (!doc)
		return;
	if (!seen(ctx, c, &key))
		begin(ctx, c, doc, key);
	json_decref(doc);
}
