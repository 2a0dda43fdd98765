// SPDX-License-Identifier: Apache-2.0
// The connection to the sandbox, and the request on its way there.
#include "daemon/io.h"
#include "tests/gateway/proxy_priv.h"

#include <assert.h>
#include <errno.h>
#include <sys/socket.h>

enum { ATTEMPTS = 5 };        // of connecting, as E2B has it,
static const double gap = .1; // and so many seconds behind the first, twice as many behind the second, ...

static void on_writable(struct ev_loop *loop, struct ev_io *w, int revents);

void proxy_disconnect(struct proxy *p)
{
	ev_timer_stop(p->gateway->loop, &p->timer);
	if (p->fd < 0)
		return;
	ev_io_stop(p->gateway->loop, &p->reader);
	ev_io_stop(p->gateway->loop, &p->writer);
	io_close(&p->fd);
}

// --- connecting ---

static void on_again(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct proxy *p = w->data;
	proxy_enter(p);
	proxy_connect(p);
	proxy_leave(p);
}

// No connection: RC says why.
static void retry(struct proxy *p, int rc)
{
	struct err e;
	proxy_disconnect(p);
	if (++p->attempts < ATTEMPTS) {
		ev_timer_init(&p->timer, on_again, gap * p->attempts, 0.);
		p->timer.data = p;
		ev_timer_start(p->gateway->loop, &p->timer);
		return;
	}
	switch (-rc) {
	case EMFILE:
	case ENFILE:
	case ENOMEM:
	case ENOBUFS:
	case EAGAIN: // its queue of connections is full
		err_sys(&e, rc, "connection to the sandbox");
		proxy_refuse(p, &e);
		break;
	default:
		proxy_refuse_port(p);
	}
}

void proxy_connect(struct proxy *p)
{
	struct box *b = session_box(p->session);
	struct err e;
	if (!b) {
		if (session_state(p->session) == SESSION_RUNNING) // it has just died: its end is yet to be told
			err_http(&e, 502, ERR_UNAVAILABLE, PROXY_NOT_FOUND);
		else
			err_http(&e, 409, ERR_ABORTED, "The sandbox is still transitioning. Try again in a moment.");
		proxy_refuse(p, &e);
		return;
	}
	int fd = box_connect(b, p->target.port);
	if (fd < 0) {
		retry(p, fd);
		return;
	}
	p->fd = fd;
	ev_io_init(&p->writer, on_writable, fd, EV_WRITE);
	p->writer.data = p;
	ev_init(&p->reader, NULL); // proxy_listen's
	ev_io_start(p->gateway->loop, &p->writer);
}

// --- sending ---

void proxy_shut(struct proxy *p)
{
	if (p->shut || !p->fin || !p->asked || p->stage < PROXY_ASKING || p->fd < 0 || buf_len(&p->up) > 0)
		return;
	p->shut = true;
	(void)shutdown(p->fd, SHUT_WR);
}

// The sandbox may have answered without wanting all: so a failure is for the reader to find.
static void send_up(struct proxy *p)
{
	while (p->fd >= 0 && buf_len(&p->up) > 0) {
		ssize_t n = io_send(p->fd, buf_data(&p->up), buf_len(&p->up));
		if (n == -EAGAIN) {
			ev_io_start(p->gateway->loop, &p->writer);
			return;
		}
		if (n < 0) {
			p->deaf = true;
			buf_release(&p->up);
		} else {
			buf_consume(&p->up, (size_t)n);
		}
	}
	if (p->fd >= 0)
		ev_io_stop(p->gateway->loop, &p->writer);
	buf_shrink(&p->up, 0);
	proxy_shut(p);
}

static void on_writable(struct ev_loop *loop, struct ev_io *w, int revents)
{
	(void)loop, (void)revents;
	struct proxy *p = w->data;
	int rc = 0;
	socklen_t n = sizeof rc;
	proxy_enter(p);
	if (p->stage == PROXY_CONNECTING) {
		if (getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &rc, &n) < 0)
			rc = errno;
		if (rc) {
			retry(p, -rc);
			proxy_leave(p);
			return;
		}
		p->stage = PROXY_ASKING;
		proxy_listen(p);
	}
	send_up(p);
	if (p->conn && buf_len(&p->up) <= PROXY_UP / 2)
		conn_resume_body(p->conn);
	proxy_leave(p);
}

// --- the client's bytes ---

static void on_starved(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct proxy *p = w->data;
	proxy_enter(p);
	proxy_give_up(p);
	proxy_leave(p);
}

static void after_append(struct proxy *p)
{
	if (buf_failed(&p->up)) {
		p->starved = p->deaf = true;
		proxy_disconnect(p);
		buf_release(&p->up);
		ev_timer_init(&p->timer, on_starved, 0., 0.);
		p->timer.data = p;
		ev_timer_start(p->gateway->loop, &p->timer);
	} else if (p->stage >= PROXY_ASKING) {
		send_up(p);
	}
}

static enum conn_take on_data(void *arg, const void *bytes, size_t n)
{
	struct proxy *p = arg;
	if (p->deaf)
		return CONN_TAKE_MORE;
	if (p->chunked)
		http_put_chunk(&p->up, bytes, n);
	else
		buf_append(&p->up, bytes, n);
	after_append(p);
	return buf_len(&p->up) > PROXY_UP ? CONN_TAKE_PAUSE : CONN_TAKE_MORE;
}

static void on_end(void *arg)
{
	struct proxy *p = arg;
	p->asked = true;
	if (p->chunked && !p->deaf) {
		http_put_last_chunk(&p->up);
		after_append(p);
	}
	proxy_shut(p);
}

static void on_closed(void *arg)
{
	struct proxy *p = arg;
	p->conn = NULL;
	proxy_over(p);
}

const struct conn_sink proxy_sink = {on_data, on_end, on_closed};
