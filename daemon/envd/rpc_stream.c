// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/rpc_priv.h"

#include "proto/pbwire.h"

#include <errno.h>
#include <stdio.h>

// --- pulled by the connection ---

// Without memory an envelope goes out as it is, which is allowed.
static void out_plain(struct buf *out, size_t mark, const void *p, size_t n)
{
	if (buf_failed(out))
		return;
	buf_truncate(out, mark);
	buf_append(out, p, n);
}

// What the envelopes in FROM become when their payloads are compressed (contract B 1.8: the end frame's too).
static void compress(struct buf *out, const struct buf *from)
{
	const unsigned char *p = buf_data(from), *end = p + buf_len(from);
	while (end - p >= ENVELOPE_PREFIX) {
		size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
		size_t mark = envelope_begin(out);
		if (rpc_gzip(out, p + ENVELOPE_PREFIX, n))
			envelope_end(out, mark, p[0] | ENVELOPE_COMPRESSED);
		else
			out_plain(out, mark, p, ENVELOPE_PREFIX + n);
		p += ENVELOPE_PREFIX + n;
	}
}

static enum conn_pull pull_into(struct rpc *r, struct buf *out, size_t room)
{
	enum conn_pull got = CONN_PULL_END;
	size_t start = buf_len(out);
	buf_append(out, buf_data(&r->last), buf_len(&r->last));
	buf_release(&r->last);
	if (r->source && !r->ended)
		got = r->source->pull(r->source_arg, r, out, room);
	if (buf_failed(out) || r->cut || got == CONN_PULL_ABORT)
		return CONN_PULL_ABORT; // a message is missing: a cut is honest, an end would not be
	if (r->ended)
		got = CONN_PULL_END;
	if (got == CONN_PULL_END && buf_len(out) > start) {
		r->ended = true; // the end frame is a chunk of its own
		return CONN_PULL_MORE;
	}
	if (got == CONN_PULL_END)
		envelope_last(out, r->ended && r->end.code != ERR_NONE ? &r->end : NULL);
	// A peer that has closed answers what is sent now with RST; one that has closed its half only reads a message without a meaning.
	bool probe = conn_eof(r->conn) && !r->probed;
	if (got != CONN_PULL_END && (r->ping || probe) && buf_len(out) == start && r->source->keepalive)
		r->source->keepalive(r->source_arg, r, out);
	r->ping = false;
	r->probed |= probe;
	if (ev_is_active(&r->keepalive) && buf_len(out) > start)
		ev_timer_again(r->envd->loop, &r->keepalive);
	return buf_failed(out) ? CONN_PULL_ABORT : got;
}

static enum conn_pull pull(void *arg, struct buf *out, size_t room)
{
	struct rpc *r = arg;
	if (!r->gzip_out)
		return pull_into(r, out, room);
	enum conn_pull got = pull_into(r, &r->plain, room);
	if (got != CONN_PULL_ABORT)
		compress(out, &r->plain);
	buf_reset(&r->plain);
	return buf_failed(out) ? CONN_PULL_ABORT : got;
}

static void on_closed(void *arg)
{
	struct rpc *r = arg;
	if (r->source)
		r->source->closed(r->source_arg);
	rpc_free(r);
}

static const struct conn_producer producer = {.pull = pull, .closed = on_closed};

// --- timers ---

static void on_keepalive(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct rpc *r = w->data;
	r->ping = true;
	conn_wake(r->conn);
}

static void on_deadline(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct rpc *r = w->data;
	struct err e;
	err_set(&e, ERR_DEADLINE_EXCEEDED, "context deadline exceeded");
	if (r->streaming)
		rpc_end(r, &e);
	else
		rpc_abandon(r, &e);
}

void rpc_arm(struct rpc *r)
{
	ev_timer_init(&r->deadline, on_deadline, 0., 0.);
	ev_timer_init(&r->keepalive, on_keepalive, 0., 0.);
	r->deadline.data = r->keepalive.data = r;
	if (!r->timed)
		return;
	ev_now_update(r->envd->loop);
	ev_timer_set(&r->deadline, (double)r->timeout_ms / 1e3, 0.);
	ev_timer_start(r->envd->loop, &r->deadline);
}

// --- begin and end ---

// False: answered with an error, R is gone.
static bool begin(struct rpc *r)
{
	char lines[160];
	struct buf all;
	struct err e;
	const char *encoding = r->gzip_out ? "gzip" : "";
	buf_init(&all, 0);
	(void)snprintf(lines, sizeof lines, "Connect-Accept-Encoding: gzip\r\nContent-Type: %s\r\n%s%s%s",
		r->type->answer, r->gzip_out || r->no_encoding ? "Connect-Content-Encoding: " : "", encoding,
		r->gzip_out || r->no_encoding ? "\r\n" : "");
	envd_lines(conn_head(r->conn), lines, &all);
	const char *text = buf_cstr(&all);
	r->on_close = NULL;
	bool ok = text && conn_stream(r->conn, NULL, text, &producer, r);
	if (!text) {
		err_sys(&e, -ENOMEM, "answer");
		conn_error(r->conn, &e);
	}
	buf_release(&all);
	if (!ok) {
		rpc_free(r);
		return false;
	}
	r->streaming = true;
	if (r->request)
		pb_free(r->request);
	r->request = NULL;
	conn_wake(r->conn);
	return true;
}

bool rpc_stream(struct rpc *r, const struct rpc_source *src, void *arg)
{
	if (!begin(r))
		return false;
	r->source = src;
	r->source_arg = arg;
	ev_timer_set(&r->keepalive, r->keepalive_s, r->keepalive_s);
	if (src->keepalive)
		ev_timer_again(r->envd->loop, &r->keepalive);
	return true;
}

void rpc_stream_end(struct rpc *r, const struct err *e)
{
	ev_timer_stop(r->envd->loop, &r->deadline);
	r->ended = true;
	if (e)
		r->end = *e;
	(void)begin(r);
}

void rpc_wake(struct rpc *r)
{
	conn_wake(r->conn);
}

void rpc_end(struct rpc *r, const struct err *e)
{
	if (r->ended)
		return;
	r->ended = true;
	r->end = *e;
	conn_wake(r->conn);
}

void rpc_put(struct rpc *r, struct buf *out, const ProtobufCMessage *m)
{
	size_t mark = envelope_begin(out);
	if (rpc_encode(r, out, m) < 0)
		r->cut = true;
	envelope_end(out, mark, 0);
}
