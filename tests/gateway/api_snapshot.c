// SPDX-License-Identifier: Apache-2.0
// Snapshots; fork, which this gateway cannot; network, which it only remembers.
#include "tests/gateway/api_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

// A request that waits for its snapshot.
struct making {
	struct conn *c;
	struct snapshot *p; // once there is one
	struct session *s;  // until then, it waits for this to run
	char name[SNAPSHOT_NAME + 1];
	char id[SESSION_ID + 1];
};

static void on_close(void *arg)
{
	struct making *m = arg;
	if (m->p)
		snapshot_forget(m->p);
	else
		session_wake_forget(m->s, m);
	free(m);
}

static void made(void *arg, struct snapshot *p, const struct err *e)
{
	struct making *m = arg;
	struct conn *c = m->c;
	struct jsonw w;
	struct buf out;
	free(m);
	if (e) {
		conn_error(c, e);
		return;
	}
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	api_put_snapshot(&w, p);
	api_reply(c, 201, NULL, &out);
	buf_release(&out);
}

static void begin(struct making *m)
{
	struct conn *c = m->c;
	struct err e;
	if (snapshot_make(m->s, m->name, made, m, &e) == 0) {
		m->p = m->s->making;
		return;
	}
	api_fail(c, m->id, &e);
	free(m);
}

static void running(void *arg, const struct err *e)
{
	struct making *m = arg;
	struct conn *c = m->c;
	if (!e) {
		begin(m);
		return;
	}
	api_fail(c, m->id, e);
	free(m);
}

static int take_name(const json_t *doc, char *name, struct err *e)
{
	const char *text = "";
	size_t n = 0;
	if (jsonr_str(doc, "name", 0, &text, &n, e) < 0)
		return -1;
	if (n > SNAPSHOT_NAME)
		return err_set(e, ERR_INVALID_ARGUMENT, "name is longer than %d bytes", SNAPSHOT_NAME);
	memcpy(name, text, n);
	name[n] = '\0';
	return 0;
}

void api_snapshot_create(void *ctx, struct conn *c)
{
	struct session *s = api_session(ctx, c);
	struct err e;
	json_t *doc = s ? api_body(c) : NULL;
	if (!doc)
		return;
	struct making *m = calloc(1, sizeof *m);
	int rc = m ? take_name(doc, m->name, &e) : err_sys(&e, -ENOMEM, "snapshot");
	json_decref(doc);
	if (rc == 0) {
		m->c = c;
		m->s = s;
		memcpy(m->id, s->id, sizeof m->id);
	}
	if (rc == 0 && s->state == SESSION_MOVING)
		rc = session_await(s, running, m, &e);
	else if (rc == 0) {
		conn_on_close(c, on_close, m);
		begin(m);
		return;
	}
	if (rc == 0) {
		conn_on_close(c, on_close, m);
		return;
	}
	conn_error(c, &e);
	free(m);
}

void api_snapshot_delete(void *ctx, struct conn *c)
{
	struct gateway *g = ctx;
	struct buf out;
	struct err e;
	buf_init(&out, 0);
	const char *id = api_id(c, &out);
	struct snapshot *p = id ? snapshots_find(g->sessions->snapshots, id) : NULL;
	if (p) {
		snapshot_delete(p);
		api_no_content(c);
	} else if (id) {
		err_set(&e, ERR_NOT_FOUND, "template '%.100s' not found", id);
		conn_error(c, &e);
	}
	buf_release(&out);
}

// --- fork ---

static void put_refusals(struct buf *out, int64_t count)
{
	struct jsonw w;
	jsonw_init(&w, out);
	jsonw_arr(&w);
	for (int64_t i = 0; i < count; i++) {
		jsonw_obj(&w);
		jsonw_key(&w, "error");
		jsonw_obj(&w);
		jsonw_kint(&w, "code", 501);
		jsonw_kstr(&w, "message",
			"this gateway cannot fork a running sandbox: make a snapshot and create from it");
		jsonw_obj_end(&w);
		jsonw_obj_end(&w);
	}
	jsonw_arr_end(&w);
}

void api_fork(void *ctx, struct conn *c)
{
	struct session *s = api_session(ctx, c);
	int64_t count = 1, timeout = 1;
	struct buf out;
	struct err e;
	json_t *doc = s ? api_body(c) : NULL;
	if (!doc)
		return;
	int rc = jsonr_int(doc, "count", 0, 1, 20, &count, &e);
	if (rc >= 0)
		rc = jsonr_int(doc, "timeout", 0, 1, INT32_MAX, &timeout, &e);
	json_decref(doc);
	if (rc < 0) {
		conn_error(c, &e);
		return;
	}
	buf_init(&out, 0);
	put_refusals(&out, count);
	api_reply(c, 201, NULL, &out);
	buf_release(&out);
}

// --- network ---

void api_network(void *ctx, struct conn *c)
{
	struct session *s = api_session(ctx, c);
	bool allowed = true;
	struct err e;
	json_t *doc = s ? api_body(c) : NULL;
	if (!doc)
		return;
	int rc = jsonr_bool(doc, "allow_internet_access", 0, &allowed, &e);
	if (rc < 0 || session_set_network(s, doc, &e) < 0) {
		conn_error(c, &e);
	} else {
		s->internet = rc > 0 ? allowed : -1;
		api_no_content(c);
	}
	json_decref(doc);
}
