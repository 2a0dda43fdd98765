// SPDX-License-Identifier: Apache-2.0
#include "daemon/stream.h"

#include <errno.h>
#include <stdlib.h>

struct stream {
	struct output_reader reader; // first: the callbacks get it
	struct conn *conn;
	struct proc *proc;
	const struct stream_encoder *enc;
	ev_timer keepalive;
	bool started;
	bool ping; // a keepalive frame is due
};

static void on_wake(struct output_reader *r)
{
	struct stream *s = (struct stream *)r;
	conn_wake(s->conn);
}

static void on_cut(struct output_reader *r)
{
	struct stream *s = (struct stream *)r;
	conn_abort(s->conn);
}

static void on_keepalive(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct stream *s = w->data;
	s->ping = true;
	conn_wake(s->conn);
}

// Output as far as there is room; true if none is left.
static bool pull_output(struct stream *s, struct buf *out, size_t room)
{
	struct output_span span;
	size_t start = buf_len(out);
	while (output_next(&s->reader, s->enc->raw_max, &span)) {
		size_t used = buf_len(out) - start;
		if (used && used + s->enc->room(span.n) > room)
			return false;
		s->enc->data(out, span.channel, span.p, span.n);
		if (buf_failed(out))
			return false;
		output_taken(&s->reader, span.n);
	}
	return true;
}

static enum conn_pull pull(void *arg, struct buf *out, size_t room)
{
	struct stream *s = arg;
	size_t start = buf_len(out);
	if (!s->started)
		s->enc->start(out, s->proc);
	s->started = true;
	bool all = pull_output(s, out, room);
	proc_resume(s->proc);
	const struct proc_end *end = all ? proc_stream_end(s->proc) : NULL;
	if (end)
		s->enc->end(out, end, s->reader.lost);
	else if (s->ping && buf_len(out) == start)
		s->enc->keepalive(out);
	s->ping = false;
	if (ev_is_active(&s->keepalive))
		ev_timer_again(conn_loop(s->conn), &s->keepalive);
	if (buf_failed(out))
		return CONN_PULL_ABORT; // a frame is missing: a cut is honest, an end would not be
	return end ? CONN_PULL_END : all ? CONN_PULL_IDLE : CONN_PULL_MORE;
}

static void stream_free(void *arg)
{
	struct stream *s = arg;
	ev_timer_stop(conn_loop(s->conn), &s->keepalive);
	output_detach(&s->reader);
	proc_resume(s->proc);
	free(s);
}

static const struct conn_producer producer = {.pull = pull, .closed = stream_free};

void stream_start(
	struct conn *c, struct proc *p, const struct stream_encoder *enc, enum stream_from from, double keepalive)
{
	struct stream *s = calloc(1, sizeof *s);
	if (!s) {
		struct err e;
		err_sys(&e, -ENOMEM, "stream");
		conn_error(c, &e);
		return;
	}
	s->conn = c;
	s->proc = p;
	s->enc = enc;
	s->reader.wake = on_wake;
	s->reader.cut = on_cut;
	ev_timer_init(&s->keepalive, on_keepalive, keepalive, keepalive);
	s->keepalive.data = s;
	if (from == STREAM_REPLAY)
		output_attach(proc_output(p), &s->reader);
	else
		output_attach_live(proc_output(p), &s->reader);
	if (!conn_stream(c, enc->content_type, enc->extra, &producer, s)) {
		stream_free(s);
		return;
	}
	if (keepalive > 0 && enc->keepalive)
		ev_timer_again(conn_loop(c), &s->keepalive);
	conn_wake(c);
}
