// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/tunnel.h"

#include "daemon/io.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { PIECE = 32 * 1024 };

struct side {
	struct tunnel *tunnel;
	struct side *other;
	int fd;
	struct ev_io reader, writer;
	struct buf out; // for this side
	bool eof;       // it sends no more
	bool shut;      // it was told that the other one does not
};

struct tunnel {
	struct ev_loop *loop;
	struct side sides[2];
	void (*closed)(void *arg);
	void *arg;
};

static void want(struct side *s, struct ev_io *w, bool on)
{
	if (on)
		ev_io_start(s->tunnel->loop, w);
	else
		ev_io_stop(s->tunnel->loop, w);
}

// The one place that decides what is waited for; tells the owner when nothing is.
static void update(struct tunnel *t)
{
	bool over = true;
	for (int i = 0; i < 2; i++) {
		struct side *s = &t->sides[i];
		bool pending = buf_len(&s->out) > 0;
		if (!pending && s->other->eof && !s->shut) {
			s->shut = true;
			(void)shutdown(s->fd, SHUT_WR);
		}
		want(s, &s->reader, !s->eof && buf_len(&s->other->out) < TUNNEL_MAX);
		want(s, &s->writer, pending);
		over &= s->eof && s->shut;
	}
	if (over)
		t->closed(t->arg);
}

static void fail(struct tunnel *t)
{
	for (int i = 0; i < 2; i++) {
		want(&t->sides[i], &t->sides[i].reader, false);
		want(&t->sides[i], &t->sides[i].writer, false);
	}
	t->closed(t->arg);
}

// 0, or negative errno: the side is gone.
static int flush(struct side *s)
{
	while (buf_len(&s->out) > 0) {
		ssize_t n = io_send(s->fd, buf_data(&s->out), buf_len(&s->out));
		if (n < 0)
			return n == -EAGAIN ? 0 : (int)n;
		buf_consume(&s->out, (size_t)n);
	}
	buf_shrink(&s->out, 0);
	return 0;
}

static void on_readable(struct ev_loop *loop, struct ev_io *w, int revents)
{
	(void)loop, (void)revents;
	struct side *s = w->data;
	struct tunnel *t = s->tunnel;
	char piece[PIECE];
	ssize_t n = io_read(s->fd, piece, sizeof piece);
	if (n == -EAGAIN)
		return;
	s->eof |= n == 0;
	if (n > 0)
		buf_append(&s->other->out, piece, (size_t)n);
	if (n < 0 || buf_failed(&s->other->out) || flush(s->other) < 0)
		fail(t);
	else
		update(t);
}

static void on_writable(struct ev_loop *loop, struct ev_io *w, int revents)
{
	(void)loop, (void)revents;
	struct side *s = w->data;
	if (flush(s) < 0)
		fail(s->tunnel);
	else
		update(s->tunnel);
}

static void join(struct tunnel *t, int i, int fd, struct buf *out)
{
	struct side *s = &t->sides[i];
	s->tunnel = t;
	s->other = &t->sides[1 - i];
	s->fd = fd;
	s->out = *out;
	*out = (struct buf){0};
	ev_io_init(&s->reader, on_readable, fd, EV_READ);
	ev_io_init(&s->writer, on_writable, fd, EV_WRITE);
	s->reader.data = s->writer.data = s;
}

struct tunnel *tunnel_new_take(
	struct ev_loop *loop, int a, struct buf *to_a, int b, struct buf *to_b, void (*closed)(void *arg), void *arg)
{
	struct tunnel *t = calloc(1, sizeof *t);
	if (!t || buf_failed(to_a) || buf_failed(to_b)) {
		free(t);
		io_close(&a);
		io_close(&b);
		buf_release(to_a);
		buf_release(to_b);
		return NULL;
	}
	t->loop = loop;
	t->closed = closed;
	t->arg = arg;
	join(t, 0, a, to_a);
	join(t, 1, b, to_b);
	for (int i = 0; i < 2; i++) {
		// Both: what is queued goes out from the loop, as a failure has to be told from there.
		want(&t->sides[i], &t->sides[i].reader, buf_len(&t->sides[1 - i].out) < TUNNEL_MAX);
		want(&t->sides[i], &t->sides[i].writer, buf_len(&t->sides[i].out) > 0);
	}
	return t;
}

void tunnel_free(struct tunnel *t)
{
	for (int i = 0; t && i < 2; i++) {
		struct side *s = &t->sides[i];
		ev_io_stop(t->loop, &s->reader);
		ev_io_stop(t->loop, &s->writer);
		io_close(&s->fd);
		buf_release(&s->out);
	}
	free(t);
}
