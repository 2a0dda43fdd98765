// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/rpc_priv.h"
#include "proto/pbwire.h"

#include <errno.h>
#include <string.h>

// The body cannot be understood (contract B 3.7).
static void broken(struct rpc *r, const struct err *why)
{
	struct err e;
	err_set(&e, ERR_UNKNOWN, "error streaming input: %s: %s", err_word(why->code), why->msg);
	rpc_abandon(r, &e);
}

// One message for the handler. False if the call is answered.
static bool deliver(struct rpc *r)
{
	struct err e;
	ProtobufCMessage *m = rpc_decode(r, &r->input.payload, &e);
	if (!m) {
		broken(r, &e);
		return false;
	}
	r->method->call(r, m);
	pb_free(m);
	return !r->dead && !r->streaming;
}

// Messages from the N bytes at P until they are used up, the handler pauses, or the call is answered. Returns how many were used.
static size_t feed(struct rpc *r, const unsigned char *p, size_t n)
{
	size_t at = 0;
	while (at < n && !r->paused) {
		struct err e;
		size_t used;
		int rc = envelope_reader_feed(&r->input, p + at, n - at, &used, &e);
		at += used;
		if (rc < 0)
			broken(r, &e);
		if (rc < 0 || (rc > 0 && !deliver(r)))
			return n;
	}
	return at;
}

// The handler has returned: frees R if it answered and the answer is over. True if the call is answered.
static bool settle(struct rpc *r)
{
	bool answered = r->dead || r->streaming;
	r->busy = false;
	if (r->dead)
		rpc_free(r);
	return answered;
}

static enum conn_take on_data(void *arg, const void *p, size_t n)
{
	struct rpc *r = arg;
	r->busy = true;
	size_t used = feed(r, p, n);
	bool paused = r->paused;
	if (used < n)
		buf_append(&r->held, (const unsigned char *)p + used, n - used);
	if (buf_failed(&r->held)) {
		struct err e;
		err_sys(&e, -ENOMEM, "input");
		rpc_abandon(r, &e);
	}
	return !settle(r) && paused ? CONN_TAKE_PAUSE : CONN_TAKE_MORE;
}

static void on_end(void *arg)
{
	struct rpc *r = arg;
	struct err e;
	r->busy = true;
	if (envelope_reader_end(&r->input, &e) < 0)
		broken(r, &e);
	else
		r->method->done(r);
	settle(r);
}

const struct conn_sink *rpc_sink(void)
{
	static const struct conn_sink sink = {.data = on_data, .end = on_end, .closed = rpc_gone};
	return &sink;
}

void rpc_pause(struct rpc *r)
{
	r->paused = true;
}

void rpc_resume(struct rpc *r)
{
	if (!r->paused)
		return;
	r->paused = false;
	if (r->busy)
		return; // feed goes on
	r->busy = true;
	buf_consume(&r->held, feed(r, buf_data(&r->held), buf_len(&r->held)));
	buf_shrink(&r->held, 0);
	bool paused = r->paused;
	if (!settle(r) && !paused)
		conn_resume_body(r->conn);
}
