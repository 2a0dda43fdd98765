// SPDX-License-Identifier: Apache-2.0
#include "daemon/io.h"
#include "daemon/net/conn_priv.h"

#include <assert.h>
#include <errno.h>

bool conn_may_parse(const struct conn *c)
{
	if (c->state == CONN_STREAM)
		return c->sink && !c->paused; // the rest of the request that is being answered
	return c->state <= CONN_BODY && !c->paused && buf_len(&c->out) < c->net->limits.out_max;
}

// What is asked of a request to a route that is not open to all. False with E filled.
static bool guard(const struct conn *c, const struct http_head *head, struct err *e)
{
	const struct net_hooks *hooks = &c->net->hooks;
	if (route_check_site(&c->table->sites, head, e) < 0)
		return false;
	if (hooks->allowed && !hooks->allowed(hooks->arg, head)) {
		err_set(e, ERR_UNAUTHENTICATED, "access token missing or wrong");
		return false;
	}
	return true;
}

// False with E (and EXTRA) filled if the request is not to be served.
static bool admit(struct conn *c, const struct http_head *head, struct err *e, const char **extra)
{
	const struct net_limits *limits = &c->net->limits;
	const struct net_hooks *hooks = &c->net->hooks;
	c->route = (c->table->find ? c->table->find : route_find)(c->table, head, e, extra);
	if (!c->route)
		return false;
	bool vital = c->route->flags & ROUTE_VITAL;
	if (c->reserve && !vital) {
		err_http(e, 503, ERR_RESOURCE_EXHAUSTED, "too many connections");
		e->retryable = true;
		return false;
	}
	if (!(c->route->flags & ROUTE_OPEN) && !guard(c, head, e))
		return false;
	const struct err *refused = !vital && hooks->refuse ? hooks->refuse(hooks->arg) : NULL;
	if (refused) {
		*e = *refused;
		return false;
	}
	bool collected = !(c->route->flags & ROUTE_STREAM);
	if (collected && head->content_length > 0 && (uint64_t)head->content_length > limits->max_body) {
		err_http(e, 413, ERR_RESOURCE_EXHAUSTED, "body too large");
		return false;
	}
	return true;
}

// Without a body the request is over with its head. True if it is.
static bool ends_with_head(struct conn *c, const struct http_head *head)
{
	struct http_span none;
	size_t used = 0;
	return !head->chunked && head->content_length <= 0 && http_feed(c->http, "", 0, &used, &none) == HTTP_END;
}

// The handler takes the body, or has refused it.
static void on_stream_head(struct conn *c, const struct http_head *head)
{
	c->ended = ends_with_head(c, head);
	conn_enter(c, CONN_HANDLER);
	c->route->handler(c->table->ctx, c);
	if (c->state != CONN_BODY || !c->ended)
		return;
	conn_enter(c, CONN_HANDLER);
	c->sink->end(c->sink_arg);
}

static void on_head(struct conn *c)
{
	const struct http_head *head = http_head(c->http);
	struct err e;
	const char *extra = NULL;
	if (c->net->hooks.tell)
		conn_trace_begin(c, head);
	if (!head->keep_alive)
		c->close = true;
	if (admit(c, head, &e, &extra)) {
		if (c->route->flags & ROUTE_STREAM) {
			on_stream_head(c, head);
			return;
		}
		conn_enter(c, CONN_BODY);
		if (head->expect_continue && (head->chunked || head->content_length > 0)) {
			BUF_LIT(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
			conn_dirty(c);
		}
		return;
	}
	// Without a body the request is over and the connection can live on; else it ends, so that nothing of the body has
	// to be read.
	c->ended = ends_with_head(c, head);
	conn_fail(c, &e, extra);
}

static void on_body(struct conn *c, struct http_span body)
{
	struct err e;
	c->since = conn_now(c->net);
	if (c->sink) {
		enum conn_take took = c->sink->data(c->sink_arg, body.p, body.n);
		c->paused = took == CONN_TAKE_PAUSE && c->sink;
		return;
	}
	buf_append(&c->body, body.p, body.n);
	int rc = buf_failed(&c->body);
	if (!rc)
		return;
	if (rc == -EMSGSIZE)
		err_http(&e, 413, ERR_RESOURCE_EXHAUSTED, "body too large");
	else
		err_sys(&e, rc, "request body");
	conn_fail(c, &e, NULL);
}

void conn_serve(struct conn *c)
{
	struct net *n = c->net;
	bool vital = c->route->flags & ROUTE_VITAL;
	if (!vital && n->served_ns >= CONN_SERVE_NS) {
		c->waiting = true;
		conn_dirty(c);
		return;
	}
	const struct err *refused = c->waiting && n->hooks.refuse ? n->hooks.refuse(n->hooks.arg) : NULL;
	c->waiting = false;
	if (refused) {
		conn_fail(c, refused, NULL);
		return;
	}
	int64_t start = conn_now(n);
	c->route->handler(c->table->ctx, c);
	n->now = io_mono_ns();
	n->served_ns += n->now - start;
}

static void on_end(struct conn *c)
{
	c->ended = true;
	if (c->state == CONN_STREAM) {
		const struct conn_sink *sink = c->sink;
		c->sink = NULL;
		http_next(c->http);
		sink->end(c->sink_arg);
		return;
	}
	conn_enter(c, CONN_HANDLER);
	if (c->sink)
		c->sink->end(c->sink_arg);
	else
		conn_serve(c);
}

// Parses until the bytes are used up or an answer has to come first. Returns how many were used.
static size_t parse(struct conn *c, const char *p, size_t n)
{
	size_t at = 0;
	while (conn_may_parse(c)) {
		size_t used = 0;
		struct http_span body = {NULL, 0};
		enum http_event ev = http_feed(c->http, p + at, n - at, &used, &body);
		at += used;
		assert(at <= n);
		switch (ev) {
		case HTTP_MORE:
			if (c->state == CONN_IDLE && !http_idle(c->http))
				conn_enter(c, CONN_HEAD);
			return at;
		case HTTP_HEAD:
			on_head(c);
			break;
		case HTTP_BODY:
			on_body(c, body);
			break;
		case HTTP_END:
			on_end(c);
			break;
		case HTTP_ERROR:
			conn_fail(c, http_error(c->http), NULL);
			break;
		}
	}
	return at;
}

// Keeps bytes for later. Without memory for them the connection ends after what it is at: the peer then sees by
// "Connection: close" or the FIN that the rest was not served.
static void keep(struct conn *c, const char *p, size_t n)
{
	if (c->state >= CONN_CLOSE)
		return;
	buf_append(&c->in, p, n);
	if (!buf_failed(&c->in))
		return;
	buf_release(&c->in);
	c->close = true;
	if (c->state == CONN_STREAM && c->sink)
		conn_kill(c); // a piece of the body is missing
	if (c->state > CONN_BODY)
		return;
	conn_drop_sink(c);
	conn_enter(c, CONN_CLOSE);
}

// The peer has closed its side and all it sent is used: what is not complete now never will be.
static void input_end(struct conn *c)
{
	if (http_eof(c->http) == HTTP_ERROR)
		conn_fail(c, http_error(c->http), NULL);
	else
		conn_enter(c, CONN_CLOSE);
	conn_dirty(c);
}

void conn_resume(struct conn *c)
{
	// Also without input: the end of a message may be due, unless none has begun.
	if ((c->state != CONN_IDLE || buf_len(&c->in) > 0) && conn_may_parse(c))
		buf_consume(&c->in, parse(c, (const char *)buf_data(&c->in), buf_len(&c->in)));
	if (c->state >= CONN_CLOSE)
		buf_release(&c->in);
	buf_shrink(&c->in, 0);
	if (c->eof && conn_may_parse(c)) {
		input_end(c);
	} else if (c->eof && c->on_eof && c->state == CONN_HANDLER) {
		void (*fn)(void *arg) = c->on_eof;
		c->on_eof = NULL;
		fn(c->on_eof_arg);
	}
}

static void drop_input(struct conn *c, size_t n)
{
	c->dropped += n;
	if (c->dropped >= CONN_DISCARD_MAX && c->shut)
		conn_kill(c);
}

void conn_read(struct conn *c)
{
	bool bulk = c->bulk && buf_len(&c->in) == 0;
	size_t kept = buf_len(&c->in), room = bulk ? CONN_BULK_MAX : CONN_READ_MAX - kept;
	char *p = bulk ? c->net->bulk : c->net->rbuf;
	assert(c->state != CONN_DEAD && !c->eof && kept < CONN_READ_MAX);
	ssize_t n = io_read(c->fd, p, room);
	if (n == -EAGAIN)
		return;
	if (n < 0) {
		conn_kill(c);
		return;
	}
	if (c->table->counts)
		c->table->counts->received += (size_t)n;
	if (n == 0) {
		c->eof = true;
		conn_dirty(c);
	} else if (c->state == CONN_CLOSE) {
		drop_input(c, (size_t)n);
		return;
	} else {
		size_t used = kept > 0 ? 0 : parse(c, p, (size_t)n);
		if (used < (size_t)n)
			keep(c, p + used, (size_t)n - used);
		if (!bulk && (size_t)n == CONN_READ_MAX && c->state == CONN_BODY)
			conn_set_bulk(c, true);
	}
	if (c->state != CONN_DEAD)
		conn_resume(c);
}
