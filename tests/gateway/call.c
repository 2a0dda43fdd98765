// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/call.h"

#include "daemon/io.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define READ_MAX 65536

struct call {
	struct ev_loop *loop;
	struct http *http;
	struct buf out;  // of the request, what is still to be sent
	struct buf body; // of the answer
	ev_io io;        // fd -1: there was no connection
	ev_timer timer;  // the deadline; at once where ERROR is known already
	int error;       // negative errno
	bool answering;  // DONE runs
	void (*done)(void *arg, const struct call_answer *a);
	void *arg;
};

static void call_free(struct call *c)
{
	if (!c)
		return;
	ev_io_stop(c->loop, &c->io);
	ev_timer_stop(c->loop, &c->timer);
	io_close(&c->io.fd);
	http_free(c->http);
	buf_release(&c->out);
	buf_release(&c->body);
	free(c);
}

void call_cancel(struct call *c)
{
	if (c && !c->answering)
		call_free(c);
}

// The last thing that happens to C. ERROR: negative errno, or 0 with the answer whole.
static void finish(struct call *c, int error)
{
	struct call_answer a = {.error = error};
	ev_io_stop(c->loop, &c->io);
	ev_timer_stop(c->loop, &c->timer);
	if (error == 0) {
		a.head = http_head(c->http);
		a.body = &c->body;
		a.status = a.head->status;
	}
	c->answering = true;
	c->done(c->arg, &a);
	call_free(c);
}

// --- reading ---

// Of the parser: goes on (1), or it is over: 0 or negative errno.
static int take_event(struct call *c, enum http_event ev, const struct http_span *body)
{
	switch (ev) {
	case HTTP_BODY:
		buf_append(&c->body, body->p, body->n);
		return buf_failed(&c->body) < 0 ? buf_failed(&c->body) : 1;
	case HTTP_END:
		if (http_head(c->http)->status / 100 != 1)
			return 0;
		http_next(c->http); // an interim answer
		return 1;
	case HTTP_ERROR:
		return http_error(c->http)->status == 503 ? -ENOMEM : -EPROTO;
	case HTTP_HEAD:
	case HTTP_MORE:
		return 1;
	}
	return -EPROTO;
}

static int take_bytes(struct call *c, const char *p, size_t n)
{
	enum http_event ev = HTTP_BODY;
	int rc = 1;
	// Until nothing is due any more, also when all bytes are taken.
	while (rc == 1 && ev != HTTP_MORE) {
		size_t used = 0;
		struct http_span body = {0};
		ev = http_feed(c->http, p, n, &used, &body);
		p += used;
		n -= used;
		rc = take_event(c, ev, &body);
	}
	return rc;
}

// The end of the answer if that is how it ends; in the middle of one, or before, the peer was cut off.
static int take_eof(struct call *c)
{
	return !http_idle(c->http) && http_eof(c->http) == HTTP_END ? 0 : -ECONNRESET;
}

static int receive(struct call *c)
{
	char bytes[READ_MAX];
	ssize_t n = io_read(c->io.fd, bytes, sizeof bytes);
	if (n == -EAGAIN)
		return 1;
	if (n < 0)
		return (int)n;
	return n == 0 ? take_eof(c) : take_bytes(c, bytes, (size_t)n);
}

// --- writing ---

// A peer that takes no more of the request may have answered it: what counts is what can be read then.
static void transmit(struct call *c)
{
	while (buf_len(&c->out) > 0) {
		ssize_t n = io_send(c->io.fd, buf_data(&c->out), buf_len(&c->out));
		if (n == -EAGAIN)
			return;
		if (n < 0)
			buf_reset(&c->out);
		else
			buf_consume(&c->out, (size_t)n);
	}
	ev_io_stop(c->loop, &c->io);
	ev_io_set(&c->io, c->io.fd, EV_READ);
	ev_io_start(c->loop, &c->io);
}

static void on_io(struct ev_loop *loop, ev_io *w, int revents)
{
	(void)loop;
	struct call *c = w->data;
	int rc = 1;
	if (revents & EV_WRITE) {
		int error = 0;
		socklen_t n = sizeof error;
		if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &n) < 0)
			error = errno;
		if (error) {
			finish(c, -error);
			return;
		}
		transmit(c);
	}
	if (revents & EV_READ)
		rc = receive(c);
	if (rc <= 0)
		finish(c, rc);
}

static void on_timer(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct call *c = w->data;
	finish(c, c->error);
}

// --- beginning ---

static void put_request(struct buf *out, const struct call_spec *spec)
{
	http_put_request(out, spec->method, spec->target);
	http_put_header(out, "Host", "localhost");
	http_put_header(out, "Connection", "close");
	if (spec->extra)
		buf_str(out, spec->extra);
	if (spec->body)
		http_put_header(out, "Content-Type", "application/json");
	if (spec->body || strcmp(spec->method, "GET") != 0)
		http_put_length(out, spec->body ? buf_len(spec->body) : 0);
	http_put_end(out);
	if (spec->body)
		buf_append(out, buf_data(spec->body), buf_len(spec->body));
}

struct call *call_start_take(struct ev_loop *loop, int fd, const struct call_spec *spec,
	void (*done)(void *arg, const struct call_answer *a), void *arg)
{
	static const struct http_limits limits = {.head = 65536, .headers = 128, .overhead = 65536};
	struct call *c = calloc(1, sizeof *c);
	assert(spec->max > 0);
	if (!c) {
		io_close(&fd);
		return NULL;
	}
	c->loop = loop;
	c->done = done;
	c->arg = arg;
	c->error = fd < 0 ? fd : -ETIMEDOUT;
	// The loop's own time may be old by what this turn has done so far.
	ev_timer_init(&c->timer, on_timer, fd < 0 ? 0. : spec->timeout + ev_time() - ev_now(loop), 0.);
	ev_io_init(&c->io, on_io, fd, EV_READ | EV_WRITE);
	c->timer.data = c->io.data = c;
	buf_init(&c->out, 0);
	buf_init(&c->body, spec->max);
	put_request(&c->out, spec);
	c->http = http_new(HTTP_RESPONSE, &limits);
	if (!c->http || buf_failed(&c->out)) {
		call_free(c);
		return NULL;
	}
	if (strcmp(spec->method, "HEAD") == 0)
		http_expect_no_body(c->http);
	ev_timer_start(loop, &c->timer);
	if (fd >= 0)
		ev_io_start(loop, &c->io);
	return c;
}

struct call *call_start(struct ev_loop *loop, const struct box *b, unsigned port, const struct call_spec *spec,
	void (*done)(void *arg, const struct call_answer *a), void *arg)
{
	return call_start_take(loop, box_connect(b, port), spec, done, arg);
}
