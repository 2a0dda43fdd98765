// SPDX-License-Identifier: Apache-2.0
// A proxied request's life: found, woken, connected, asked, answered; and each way in which it can end.
#include "proto/json.h"
#include "proto/text.h"
#include "tests/gateway/proxy_priv.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define JSON_TYPE "application/json; charset=utf-8"

// --- errors (contract E2B 3.3) ---

// T may be NULL; PORT: say which it is.
static void answer_error(struct conn *c, const struct err *e, const struct proxy_target *t, bool port)
{
	struct buf body;
	struct jsonw w;
	buf_init(&body, 0);
	jsonw_init(&w, &body);
	jsonw_obj(&w);
	if (t && e->status == 502)
		jsonw_kstr(&w, "sandboxId", t->id);
	jsonw_kstr(&w, "message", e->msg);
	if (t && port)
		jsonw_kint(&w, "port", t->port);
	jsonw_kint(&w, "code", e->status);
	jsonw_obj_end(&w);
	conn_reply(c, e->status, JSON_TYPE, NULL, &body);
	buf_release(&body);
}

// What only the gateway itself may ask of a sandbox: a daemon does not have it, for anybody else.
static bool is_host_route(const struct http_head *head)
{
	static const char *const routes[] = {
		"/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"};
	struct buf path;
	bool is = false;
	buf_init(&path, 0);
	text_percent_decode(&path, head->path.p, head->path.n, TEXT_LENIENT | TEXT_NUL_OK);
	struct http_span s = {(const char *)buf_data(&path), buf_len(&path)};
	for (size_t i = 0; i < sizeof routes / sizeof *routes; i++)
		is |= http_span_is(s, routes[i]);
	buf_release(&path);
	return is;
}

static void answer_no_route(struct conn *c)
{
	struct http_span path = conn_head(c)->path;
	struct buf body;
	struct jsonw w;
	buf_init(&body, 0);
	jsonw_init(&w, &body);
	jsonw_obj(&w);
	jsonw_kstr(&w, "message", "not found");
	jsonw_key(&w, "path");
	jsonw_str(&w, path.p, path.n);
	jsonw_kint(&w, "code", 404);
	jsonw_obj_end(&w);
	conn_reply(c, 404, JSON_TYPE, NULL, &body);
	buf_release(&body);
}

static void refuse(struct proxy *p, const struct err *e, bool port)
{
	struct conn *c = p->conn;
	p->conn = NULL;
	answer_error(c, e, &p->target, port);
	proxy_over(p);
}

void proxy_refuse(struct proxy *p, const struct err *e)
{
	refuse(p, e, false);
}

void proxy_refuse_port(struct proxy *p)
{
	struct err e;
	err_http(&e, 502, ERR_UNAVAILABLE, PROXY_PORT_CLOSED);
	refuse(p, &e, true);
}

bool proxy_lost(struct proxy *p)
{
	struct box *b = p->session ? session_box(p->session) : NULL;
	return !b || !box_alive(b);
}

void proxy_lost_error(const struct proxy *p, struct err *e)
{
	err_http(e, 502, ERR_UNAVAILABLE, p->why[0] ? PROXY_NOT_FOUND ": it %s" : PROXY_NOT_FOUND, p->why);
}

// --- life ---

void proxy_enter(struct proxy *p)
{
	p->depth++;
}

void proxy_leave(struct proxy *p)
{
	if (--p->depth == 0 && p->stage == PROXY_OVER)
		free(p);
}

void proxy_over(struct proxy *p)
{
	if (p->stage == PROXY_OVER)
		return;
	if (p->stage == PROXY_WAKING && p->session)
		session_wake_forget(p->session, p);
	session_detach(&p->watch);
	proxy_disconnect(p);
	tunnel_free(p->tunnel);
	http_free(p->http);
	buf_release(&p->up);
	buf_release(&p->rest);
	ends_release(&p->ends);
	p->stage = PROXY_OVER;
	if (p->depth == 0)
		free(p);
}

static void not_found(struct err *e)
{
	err_http(e, 502, ERR_UNAVAILABLE, PROXY_NOT_FOUND);
}

static void on_gone(void *arg, const char *why)
{
	struct proxy *p = arg;
	struct err e;
	proxy_enter(p);
	p->session = NULL;
	(void)snprintf(p->why, sizeof p->why, "%s", why);
	proxy_disconnect(p);
	if (p->stage == PROXY_ANSWERING) {
		if (p->end == PROXY_RUNS)
			p->end = PROXY_BROKEN;
		conn_wake(p->conn);
	} else if (p->stage == PROXY_TUNNELLING) {
		proxy_over(p);
	} else if (p->stage != PROXY_OVER) {
		not_found(&e);
		proxy_refuse(p, &e);
	}
	proxy_leave(p);
}

static void run(struct proxy *p)
{
	p->stage = PROXY_CONNECTING;
	session_attach(p->session, &p->watch);
	proxy_connect(p);
}

static void on_woken(void *arg, const struct err *e)
{
	struct proxy *p = arg;
	proxy_enter(p);
	if (e) {
		p->session = NULL; // it may be gone for good
		proxy_refuse(p, e);
	} else {
		run(p);
	}
	proxy_leave(p);
}

static void on_fin(void *arg)
{
	struct proxy *p = arg;
	p->fin = true;
	proxy_shut(p);
}

// NULL when out of memory.
static struct proxy *proxy_new(struct gateway *g, struct conn *c, const struct proxy_target *t)
{
	static const struct http_limits limits = {.head = 128 * 1024, .headers = 512, .overhead = 64 * 1024};
	const struct http_head *head = conn_head(c);
	struct proxy *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->gateway = g;
	p->conn = c;
	p->session = t->session;
	p->watch.gone = on_gone;
	p->watch.arg = p;
	p->target = *t;
	p->fd = -1;
	p->chunked = head->chunked;
	p->upgrade = proxy_upgrades(head);
	p->head_only = http_span_is(head->method, "HEAD");
	p->http = http_new(HTTP_RESPONSE, &limits);
	proxy_put_request(&p->up, head, p->upgrade);
	ends_init(&p->ends, ENDS_PLAIN);
	ev_timer_init(&p->timer, NULL, 0., 0.);
	if (p->http && !buf_failed(&p->up))
		return p;
	p->session = NULL; // nothing was asked of it yet
	p->conn = NULL;
	proxy_over(p);
	return NULL;
}

static void begin(struct gateway *g, struct conn *c, const struct proxy_target *t)
{
	struct http_span token = http_get(conn_head(c), "X-Access-Token");
	struct buf text;
	struct err e;
	struct proxy *p = proxy_new(g, c, t);
	buf_init(&text, 0);
	buf_append(&text, token.p, token.n);
	const char *value = buf_cstr(&text);
	if (!p || !value) {
		err_sys(&e, -ENOMEM, "proxy");
		answer_error(c, &e, NULL, false);
		if (p) {
			p->session = NULL;
			p->conn = NULL;
			proxy_over(p);
		}
		return;
	}
	proxy_enter(p);
	const char *known = t->is_signed ? session_token(t->session) : token.p ? value : NULL;
	int rc = session_wake(t->session, t->port == BOX_ENVD, known, on_woken, p, &e);
	buf_release(&text);
	if (rc < 0) {
		p->session = NULL;
		proxy_refuse(p, &e);
	} else {
		conn_on_eof(c, on_fin, p);
		conn_body_sink(c, &proxy_sink, p);
		if (rc == 0)
			run(p);
	}
	proxy_leave(p);
}

void proxy_request(void *ctx, struct conn *c)
{
	struct gateway *g = ctx;
	const struct http_head *head = conn_head(c);
	struct proxy_target t;
	struct err e;
	if (proxy_find(g, head, &t, &e)) {
		answer_error(c, &e, NULL, false);
	} else if (t.port == BOX_ENVD && is_host_route(head)) {
		answer_no_route(c);
	} else if (!t.session) {
		not_found(&e);
		answer_error(c, &e, &t, false);
	} else {
		begin(g, c, &t);
	}
}
