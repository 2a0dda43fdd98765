// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/conn.h"

#include "daemon/io.h"
#include "daemon/net/conn_priv.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { HEADERS_MAX = 256, OVERHEAD_MAX = 64 * 1024 };
enum { HEAD_ROOM = 256 }; // for an answer's head without what a handler adds

// Each of these is refused by a socket that is not TCP, which does no harm.
static void socket_options(int fd)
{
	static const struct option {
		int level, name, value;
	} options[] = {
		{SOL_SOCKET, SO_KEEPALIVE, 1}, // finds a dead peer that we only wait for
		{IPPROTO_TCP, TCP_KEEPIDLE, 20}, {IPPROTO_TCP, TCP_KEEPINTVL, 10}, {IPPROTO_TCP, TCP_KEEPCNT, 3},
		{IPPROTO_TCP, TCP_NODELAY, 1}, // answers are written whole
	};
	for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}

struct conn *conn_new(struct net *n, int fd, const struct route_table *table)
{
	struct conn *c = calloc(1, sizeof(*c));
	if (!c)
		return NULL;
	struct http_limits limits = {n->limits.max_header, HEADERS_MAX, OVERHEAD_MAX};
	c->http = http_new(HTTP_REQUEST, &limits);
	if (!c->http) {
		free(c);
		return NULL;
	}
	c->net = n;
	c->fd = fd;
	c->table = table;
	c->since = io_mono_ns();
	buf_init(&c->in, CONN_BULK_MAX);
	buf_init(&c->body, n->limits.max_body);
	socket_options(fd);
	return c;
}

void conn_free(struct conn *c)
{
	conn_trace_end(c, false);
	if (c->on_close)
		c->on_close(c->on_close_arg);
	if (c->producer)
		c->producer->closed(c->producer_arg);
	http_free(c->http);
	conn_set_bulk(c, false);
	buf_release(&c->in);
	buf_release(&c->body);
	buf_release(&c->out);
	free(c->trace);
	free(c);
}

void conn_enter(struct conn *c, enum conn_state state)
{
	// A connection beyond the limit has one deadline for its whole head.
	if (!c->reserve || state != CONN_HEAD)
		c->since = conn_now(c->net);
	c->state = state;
}

bool conn_is_last(const struct conn *c)
{
	return c->close || c->reserve || c->net->draining || (c->eof && buf_len(&c->in) == 0);
}

// --- answers ---

struct answer {
	int status;
	const char *ctype, *extra;
	const struct buf *body; // NULL for a stream
	bool no_length;         // EXTRA has it, or there is none
};

// 204 and 304 have no body, and the length of none would be that of another answer's.
static bool bodiless(int status)
{
	return status == 204 || status == 304;
}

// Content-Type, EXTRA, the length, Connection: the order that surface A's clients have seen so far.
static void put_head(struct buf *b, const struct conn *c, const struct answer *a, bool stream)
{
	bool old = c->ended && http_head(c->http)->minor == 0;
	http_put_status(b, a->status);
	if (a->ctype && !bodiless(a->status))
		http_put_header(b, "Content-Type", a->ctype);
	if (a->extra)
		buf_str(b, a->extra);
	route_put_cors(&c->table->sites, http_head(c->http), b);
	conn_put_id(c, b);
	if (stream && c->chunked)
		BUF_LIT(b, "Transfer-Encoding: chunked\r\n");
	else if (!a->no_length && !bodiless(a->status))
		http_put_length(b, stream ? (uint64_t)c->due : a->body ? buf_len(a->body) : 0);
	if (conn_is_last(c))
		BUF_LIT(b, "Connection: close\r\n");
	else if (old)
		BUF_LIT(b, "Connection: keep-alive\r\n");
	http_put_end(b);
}

// Queues the answer whole or, out of memory, not at all (false).
static bool put_answer(struct conn *c, const struct answer *a, bool stream)
{
	// Apart while older bytes wait, for a failure in their buffer could not be undone.
	struct buf tmp, *b = buf_len(&c->out) > 0 ? &tmp : &c->out;
	buf_init(&tmp, 0);
	// At once: growing to it costs more than all that is written. (The failure sticks.)
	(void)buf_reserve(b, HEAD_ROOM + (a->extra ? strlen(a->extra) : 0) + (a->body ? buf_len(a->body) : 0));
	put_head(b, c, a, stream);
	if (a->body && !bodiless(a->status) && !http_span_is(http_head(c->http)->method, "HEAD"))
		buf_append(b, buf_data(a->body), buf_len(a->body));
	bool ok = !buf_failed(b);
	if (!ok)
		buf_reset(b);
	if (ok && b == &tmp) {
		buf_append(&c->out, buf_data(b), buf_len(b));
		ok = !buf_failed(&c->out);
	}
	buf_release(&tmp);
	if (ok && c->table->counts)
		c->table->counts->answers[a->status / 100]++;
	if (ok && c->net->hooks.tell)
		conn_trace_answer(c, a->status);
	return ok;
}

static bool put_error(struct conn *c, const struct err *e, const char *extra)
{
	struct buf body, lines;
	struct answer a = {e->status, c->table->error_type, extra, &body, false};
	buf_init(&body, 0);
	buf_init(&lines, 0);
	if (c->table->error) {
		a.status = c->table->error(http_head(c->http), e, extra, &lines, &body);
		a.ctype = NULL;
		a.extra = buf_cstr(&lines);
	} else {
		c->table->error_body(&body, e);
	}
	bool ok = !buf_failed(&body) && !buf_failed(&lines) && put_answer(c, &a, false);
	buf_release(&lines);
	buf_release(&body);
	return ok;
}

// A 503 instead of the answer, and the end of the connection. If not even that fits into memory, bytes that need none.
static void out_of_memory(struct conn *c)
{
	char bare[320];
	struct err e;
	c->close = true;
	err_sys(&e, -ENOMEM, "answer");
	if (!buf_failed(&c->out) && put_error(c, &e, NULL))
		return;
	if (buf_len(&c->out) == 0 && !c->blocked) {
		buf_reset(&c->out);
		const char *body = c->table->no_memory ? c->table->no_memory : "";
		int n = snprintf(bare, sizeof bare,
			"HTTP/1.1 503 Service Unavailable\r\n%sContent-Length: %zu\r\nConnection: close\r\n\r\n%s",
			*body ? "Content-Type: application/json\r\n" : "", strlen(body), body);
		(void)io_send(c->fd, bare, (size_t)n);
	} else if (buf_failed(&c->out)) {
		conn_kill(c); // nothing can follow what waits there
	}
}

void conn_answered(struct conn *c)
{
	conn_trace_end(c, c->state != CONN_DEAD);
	c->on_close = NULL;
	c->on_eof = NULL;
	c->sink = NULL;
	c->paused = false;
	c->route = NULL;
	buf_release(&c->body);
	if (c->state == CONN_DEAD)
		return;
	c->net->answered = true;
	if (c->state != CONN_STREAM && c->ended)
		http_next(c->http);
	c->ended = false;
	conn_enter(c, conn_is_last(c) ? CONN_CLOSE : CONN_IDLE);
	conn_dirty(c);
}

static void answer_error(struct conn *c, const struct err *e, const char *extra)
{
	if (!c->ended)
		c->close = true;
	if (!put_error(c, e, extra))
		out_of_memory(c);
	conn_answered(c);
}

void conn_drop_sink(struct conn *c)
{
	void (*closed)(void *arg) = c->sink ? c->on_close : NULL;
	if (!closed)
		return;
	c->sink = NULL;
	c->paused = false;
	c->on_close = NULL;
	closed(c->on_close_arg);
}

void conn_fail(struct conn *c, const struct err *e, const char *extra)
{
	if (c->state == CONN_STREAM) {
		conn_kill(c); // the answer runs already
		return;
	}
	conn_drop_sink(c);
	answer_error(c, e, extra);
}

// --- what a handler uses ---

const struct http_head *conn_head(const struct conn *c)
{
	return http_head(c->http);
}

const struct buf *conn_body(const struct conn *c)
{
	return &c->body;
}

struct ev_loop *conn_loop(const struct conn *c)
{
	return c->net->loop;
}

static void assert_unanswered(const struct conn *c)
{
	assert(c->state == CONN_HANDLER || c->state == CONN_DEAD || (c->state == CONN_BODY && c->sink));
}

// True if the request may be answered; false if its connection is dead.
static bool answerable(struct conn *c)
{
	assert_unanswered(c);
	if (c->state == CONN_DEAD)
		return false;
	if (!c->ended)
		c->close = true; // what is left of the body is not read
	return true;
}

void conn_reply(struct conn *c, int status, const char *ctype, const char *extra, const struct buf *body)
{
	struct answer a = {status, ctype, extra, body, false};
	if (answerable(c) && ((body && buf_failed(body)) || !put_answer(c, &a, false)))
		out_of_memory(c);
	conn_answered(c);
}

void conn_error(struct conn *c, const struct err *e)
{
	if (answerable(c))
		answer_error(c, e, NULL);
	else
		conn_answered(c);
}

// Puts the head of a stream and makes C one; false if that failed (and was answered).
static bool begin_stream(struct conn *c, const struct conn_answer *as)
{
	struct answer a = {as->status, as->ctype, as->extra, NULL, as->length < 0 || as->own_length};
	c->due = as->length;
	c->chunked = as->length < 0 && http_head(c->http)->minor > 0;
	if (as->length < 0 && !c->chunked)
		c->close = true; // only the end of the connection ends the body
	c->close = conn_is_last(c);
	if (!put_answer(c, &a, true)) {
		out_of_memory(c);
		conn_answered(c);
		return false;
	}
	if (c->ended)
		http_next(c->http);
	if (c->table->counts)
		c->table->counts->streams++;
	conn_enter(c, CONN_STREAM);
	conn_dirty(c);
	return true;
}

static void set_producer(struct conn *c, const struct conn_producer *p, void *arg)
{
	c->on_close = NULL;
	c->on_eof = NULL;
	buf_release(&c->body);
	c->producer = p;
	c->producer_arg = arg;
}

bool conn_stream_as(struct conn *c, const struct conn_answer *a, const struct conn_producer *p, void *arg)
{
	if (answerable(c) && !begin_stream(c, a))
		return false;
	c->sink = NULL;
	c->paused = false;
	set_producer(c, p, arg);
	return true;
}

bool conn_stream_duplex(struct conn *c, const struct conn_answer *a, const struct conn_producer *p, void *arg)
{
	if (c->ended || c->state == CONN_DEAD || !c->sink)
		return conn_stream_as(c, a, p, arg);
	assert_unanswered(c);
	if (!begin_stream(c, a))
		return false;
	set_producer(c, p, arg);
	return true;
}

bool conn_stream(struct conn *c, const char *ctype, const char *extra, const struct conn_producer *p, void *arg)
{
	struct conn_answer a = {200, ctype, extra, -1, false};
	return conn_stream_as(c, &a, p, arg);
}

void conn_body_sink(struct conn *c, const struct conn_sink *sink, void *arg)
{
	assert(c->state == CONN_HANDLER && !c->sink && c->route && (c->route->flags & ROUTE_STREAM));
	c->sink = sink;
	c->sink_arg = arg;
	c->on_close = sink->closed;
	c->on_close_arg = arg;
	conn_enter(c, CONN_BODY);
	if (!c->ended && http_head(c->http)->expect_continue) {
		BUF_LIT(&c->out, "HTTP/1.1 100 Continue\r\n\r\n");
		conn_dirty(c);
	}
}

void conn_resume_body(struct conn *c)
{
	if (!c->paused)
		return;
	c->paused = false;
	c->since = io_mono_ns(); // it was not the peer that was slow
	conn_dirty(c);
}

void conn_wake(struct conn *c)
{
	if (c->state == CONN_STREAM)
		conn_dirty(c);
}

void conn_on_close(struct conn *c, void (*fn)(void *arg), void *arg)
{
	c->on_close = fn;
	c->on_close_arg = arg;
}

void conn_on_eof(struct conn *c, void (*fn)(void *arg), void *arg)
{
	c->on_eof = fn;
	c->on_eof_arg = arg;
	if (fn && c->eof)
		conn_dirty(c);
}

void conn_interim(struct conn *c, int status, const char *extra)
{
	assert_unanswered(c);
	if (c->state == CONN_DEAD || http_head(c->http)->minor == 0)
		return;
	http_put_status(&c->out, status);
	if (extra)
		buf_str(&c->out, extra);
	http_put_end(&c->out);
	conn_dirty(c);
}

int conn_detach(struct conn *c, struct buf *in, struct buf *out)
{
	assert(c->state == CONN_DEAD || (c->state == CONN_HANDLER && c->ended));
	if (c->state == CONN_DEAD)
		return -ENOTCONN;
	buf_append(in, buf_data(&c->in), buf_len(&c->in));
	buf_append(out, buf_data(&c->out), buf_len(&c->out));
	if (buf_failed(in) || buf_failed(out))
		return -ENOMEM;
	int fd = c->fd;
	ev_io_stop(c->net->loop, &c->io); // while it knows the descriptor
	c->fd = -1;
	c->on_close = NULL;
	c->on_eof = NULL;
	c->sink = NULL;
	conn_kill(c);
	return fd;
}

// Where only the end of the connection ends the body, an orderly one would say that it was whole.
void conn_cut(struct conn *c)
{
	static const struct linger none = {.l_onoff = 1, .l_linger = 0};
	if (c->state == CONN_STREAM && !c->chunked && c->due < 0)
		(void)setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &none, sizeof none);
	conn_kill(c);
}

void conn_abort(struct conn *c)
{
	conn_cut(c);
}

bool conn_eof(const struct conn *c)
{
	return c->eof;
}

uint64_t conn_sent(const struct conn *c)
{
	return c->sent;
}
