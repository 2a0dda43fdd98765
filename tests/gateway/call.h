// SPDX-License-Identifier: Apache-2.0
// call: one HTTP request of the gateway's own to a box, and its whole answer. Everything runs in the loop.
#ifndef CELLD_GATEWAY_CALL_H
#define CELLD_GATEWAY_CALL_H

#include "proto/buf.h"
#include "proto/http.h"
#include "tests/gateway/box.h"

#include <ev.h>

struct call;
struct call_spec {
	const char *method, *target;
	const char *extra;      // complete header lines, or NULL
	const struct buf *body; // or NULL; sent as application/json with its length
	double timeout;         // seconds for all of it
	size_t max;             // bytes of the answer's body
};
struct call_answer {
	int status; // 0: there was none, ERROR says why (negative errno: -ETIMEDOUT, -ECONNREFUSED, -EPROTO, -EMSGSIZE ...)
	int error;
	const struct http_head *head;
	const struct buf *body; // without a NUL; valid in the callback only
};
// DONE is called once, from the loop, never from within call_start. NULL when out of memory.
struct call *call_start(struct ev_loop *loop, const struct box *b, unsigned port, const struct call_spec *spec,
	void (*done)(void *arg, const struct call_answer *a), void *arg);
// The same over the connected or connecting socket FD (taken), or after a failure to get one (negative errno).
struct call *call_start_take(struct ev_loop *loop, int fd, const struct call_spec *spec,
	void (*done)(void *arg, const struct call_answer *a), void *arg);
// DONE will not be called. Accepts NULL.
void call_cancel(struct call *c);

#endif
