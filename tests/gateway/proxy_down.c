// SPDX-License-Identifier: Apache-2.0
// The answer: its head starts the client's, then the conn asks for the body whenever it has room for it, so that nothing is read
// that the client does not take.
#include "daemon/io.h"
#include "tests/gateway/proxy_priv.h"

#include <errno.h>
#include <string.h>

static void refuse_bad(struct proxy *p, const char *what)
{
	struct err e;
	err_http(&e, 502, ERR_UNAVAILABLE, "The sandbox is running but %s", what);
	proxy_refuse(p, &e);
}

static void on_grace(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct proxy *p = w->data;
	proxy_enter(p);
	proxy_give_up(p);
	proxy_leave(p);
}

// The connection has ended too early. A sandbox that dies closes it before anybody knows: wait for the news.
static void await_news(struct proxy *p)
{
	ev_io_stop(p->gateway->loop, &p->reader);
	p->eof = true;
	ev_timer_stop(p->gateway->loop, &p->timer);
	ev_timer_init(&p->timer, on_grace, PROXY_GRACE, 0.);
	p->timer.data = p;
	ev_timer_start(p->gateway->loop, &p->timer);
}

void proxy_give_up(struct proxy *p)
{
	struct err e;
	if (p->stage == PROXY_ANSWERING) {
		p->end = PROXY_BROKEN;
		conn_wake(p->conn);
	} else if (p->starved) {
		err_sys(&e, -ENOMEM, "proxy");
		proxy_refuse(p, &e);
	} else if (proxy_lost(p)) {
		err_http(&e, 502, ERR_UNAVAILABLE, PROXY_NOT_FOUND);
		proxy_refuse(p, &e);
	} else {
		refuse_bad(p, "the connection to its port was closed without an answer");
	}
}

// --- the body, when the conn asks for it ---

static void take(struct proxy *p, struct buf *out, const char *bytes, size_t n)
{
	for (size_t at = 0; p->end == PROXY_RUNS;) {
		struct http_span body;
		size_t used = 0;
		enum http_event ev = http_feed(p->http, bytes + at, n - at, &used, &body);
		at += used;
		if (ev == HTTP_BODY)
			ends_feed(&p->ends, out, body.p, body.n);
		else if (ev == HTTP_END)
			p->end = PROXY_WHOLE;
		else if (ev == HTTP_ERROR)
			p->end = PROXY_BROKEN;
		else if (ev == HTTP_MORE)
			return;
	}
}

// A body that runs to the connection's end is whole only if that was orderly and the sandbox lives.
static void take_eof(struct proxy *p, bool orderly)
{
	if (orderly && http_eof(p->http) == HTTP_END && !proxy_lost(p))
		p->end = PROXY_WHOLE;
	else if (p->ends.kind == ENDS_PLAIN || proxy_lost(p))
		p->end = PROXY_BROKEN;
	else
		await_news(p);
}

// Reads up to ROOM bytes. False if there is nothing more for now.
static bool read_more(struct proxy *p, struct buf *out, size_t room)
{
	char piece[PROXY_READ];
	if (p->fd < 0 || p->eof)
		return false;
	ssize_t n = io_read(p->fd, piece, room < sizeof piece ? room : sizeof piece);
	if (n == -EAGAIN) {
		ev_io_start(p->gateway->loop, &p->reader);
		return false;
	}
	if (n > 0)
		take(p, out, piece, (size_t)n);
	else
		take_eof(p, n == 0);
	return p->end == PROXY_RUNS && !p->eof;
}

static enum conn_pull finish(struct proxy *p, struct buf *out)
{
	struct err e;
	if (p->end == PROXY_WHOLE) {
		ends_finish(&p->ends, out);
		return buf_failed(&p->ends.held) ? CONN_PULL_ABORT : CONN_PULL_END;
	}
	if (proxy_lost(p))
		proxy_lost_error(p, &e);
	else
		err_set(&e, ERR_UNAVAILABLE, "The connection to the sandbox was lost");
	e.retryable = true;
	return ends_cut(&p->ends, out, &e) ? CONN_PULL_END : CONN_PULL_ABORT;
}

static enum conn_pull pull(void *arg, struct buf *out, size_t room)
{
	struct proxy *p = arg;
	size_t start = buf_len(out);
	bool more = true;
	if (!p->fin && conn_eof(p->conn)) {
		p->fin = true;
		proxy_shut(p);
	}
	if (buf_len(&p->rest) > 0) {
		take(p, out, (const char *)buf_data(&p->rest), buf_len(&p->rest));
		buf_release(&p->rest);
	}
	while (more && p->end == PROXY_RUNS && buf_len(out) - start < room)
		more = read_more(p, out, room - (buf_len(out) - start));
	if (buf_failed(&p->ends.held))
		p->end = PROXY_BROKEN;
	if (p->end != PROXY_RUNS) {
		proxy_disconnect(p);
		return finish(p, out);
	}
	return more ? CONN_PULL_MORE : CONN_PULL_IDLE;
}

static void on_closed(void *arg)
{
	struct proxy *p = arg;
	p->conn = NULL;
	proxy_over(p);
}

// --- the head ---

static void on_tunnel_closed(void *arg)
{
	proxy_over(arg);
}

static void begin_tunnel(struct proxy *p, const char *bytes, size_t n)
{
	struct buf in, out;
	struct err e;
	buf_init(&in, 0);
	buf_init(&out, 0);
	// Before the conn is let go of: memory may fail.
	buf_append(&in, buf_data(&p->up), buf_len(&p->up));
	struct buf head;
	buf_init(&head, 0);
	http_put_status(&head, 101);
	proxy_put_lines(&head, http_head(p->http), true);
	http_put_end(&head);
	buf_append(&head, bytes, n);
	int fd = buf_failed(&head) ? -ENOMEM : conn_detach(p->conn, &in, &out);
	if (fd >= 0) {
		buf_append(&out, buf_data(&head), buf_len(&head));
		ev_io_stop(p->gateway->loop, &p->reader);
		ev_io_stop(p->gateway->loop, &p->writer);
		int up = p->fd;
		p->fd = -1;
		p->conn = NULL;
		p->stage = PROXY_TUNNELLING;
		p->tunnel = tunnel_new_take(p->gateway->loop, fd, &out, up, &in, on_tunnel_closed, p);
		if (!p->tunnel)
			proxy_over(p);
	} else if (fd != -ENOTCONN) { // else its end is told in a moment
		err_sys(&e, fd, "tunnel");
		proxy_refuse(p, &e);
	}
	buf_release(&head);
	buf_release(&in);
	buf_release(&out);
}

static void begin_answer(struct proxy *p, const char *bytes, size_t n)
{
	static const struct conn_producer producer = {pull, on_closed};
	const struct http_head *head = http_head(p->http);
	bool bodiless = p->head_only || head->status == 204 || head->status == 304;
	struct conn_answer a = {.status = head->status, .length = bodiless ? 0 : head->content_length};
	struct buf lines;
	struct err e;
	buf_init(&lines, 0);
	proxy_put_lines(&lines, head, false);
	a.extra = buf_cstr(&lines);
	a.own_length = a.length >= 0;
	buf_append(&p->rest, bytes, n);
	if (!a.extra || buf_failed(&p->rest)) {
		err_sys(&e, -ENOMEM, "answer");
		proxy_refuse(p, &e);
	} else {
		ends_init(&p->ends, bodiless ? ENDS_PLAIN : ends_kind_of(head));
		ev_io_stop(p->gateway->loop, &p->reader);
		p->stage = PROXY_ANSWERING;
		if (!conn_stream_duplex(p->conn, &a, &producer, p)) {
			p->conn = NULL;
			proxy_over(p);
		}
	}
	buf_release(&lines);
}

// An interim answer goes on, but for 100: that the client had from us; and only so much of them: a client that does not read them is not waited for.
static void pass_interim(struct proxy *p)
{
	const struct http_head *head = http_head(p->http);
	struct buf lines;
	buf_init(&lines, 0);
	proxy_put_lines(&lines, head, false);
	const char *extra = buf_cstr(&lines);
	p->interim += buf_len(&lines);
	if (extra && head->status != 100 && p->interim <= PROXY_INTERIM)
		conn_interim(p->conn, head->status, extra);
	buf_release(&lines);
}

// Reads the head, and interim ones before it.
static void take_head(struct proxy *p, const char *bytes, size_t n)
{
	for (size_t at = 0;;) {
		struct http_span body;
		size_t used = 0;
		if (http_idle(p->http) && p->head_only)
			http_expect_no_body(p->http);
		enum http_event ev = http_feed(p->http, bytes + at, n - at, &used, &body);
		at += used;
		int status = http_head(p->http)->status;
		if (ev == HTTP_MORE)
			return;
		if (ev == HTTP_ERROR) {
			refuse_bad(p, "its answer is no HTTP");
			return;
		}
		if (ev == HTTP_END) {
			http_next(p->http);
		} else if (status == 101 && (!p->upgrade || !p->asked)) {
			refuse_bad(p, "it switches protocols though nobody asked");
			return;
		} else if (status == 101) {
			begin_tunnel(p, bytes + at, n - at);
			return;
		} else if (status / 100 == 1) {
			pass_interim(p);
		} else {
			begin_answer(p, bytes + at, n - at);
			return;
		}
	}
}

static void on_readable(struct ev_loop *loop, struct ev_io *w, int revents)
{
	(void)revents;
	struct proxy *p = w->data;
	if (p->stage == PROXY_ANSWERING) {
		ev_io_stop(loop, w); // until all is read that the conn has room for
		conn_wake(p->conn);
		return;
	}
	char piece[PROXY_READ];
	ssize_t n = io_read(p->fd, piece, sizeof piece);
	if (n == -EAGAIN)
		return;
	proxy_enter(p);
	if (n > 0)
		take_head(p, piece, (size_t)n);
	else if (proxy_lost(p))
		proxy_give_up(p);
	else
		await_news(p);
	proxy_leave(p);
}

void proxy_listen(struct proxy *p)
{
	ev_io_init(&p->reader, on_readable, p->fd, EV_READ);
	p->reader.data = p;
	ev_io_start(p->gateway->loop, &p->reader);
}
