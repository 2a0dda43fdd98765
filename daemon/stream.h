// SPDX-License-Identifier: Apache-2.0
// stream: one reader of a process's output on one connection: an output cursor, an encoder, and the conn's producer. It owns itself: it
// is freed when the connection is done with it. Ends with exactly one end frame, after all output.
#ifndef CELLD_DAEMON_STREAM_H
#define CELLD_DAEMON_STREAM_H

#include "daemon/core/proc.h"
#include "daemon/net/conn.h"

#include <stdbool.h>
#include <stddef.h>

// How a surface writes a stream. All but keepalive are required.
struct stream_encoder {
	const char *content_type;
	const char *extra;        // further header lines, or NULL
	size_t raw_max;           // bytes that one data() takes at most
	size_t (*room)(size_t n); // upper bound of what data() appends for N bytes
	void (*start)(struct buf *out, const struct proc *p);
	void (*data)(struct buf *out, enum output_channel ch, const void *p, size_t n);
	// TRUNCATED: this reader missed output. END may be one that is LEAVING.
	void (*end)(struct buf *out, const struct proc_end *end, bool truncated);
	void (*keepalive)(struct buf *out);
};

enum stream_from { STREAM_REPLAY, STREAM_LIVE };

// Answers C with a stream of P's output, what is kept of it first or only what comes from now on. KEEPALIVE: seconds between keepalive
// frames, 0 = none. If memory is out the conn has been answered with an error.
void stream_start(
	struct conn *c, struct proc *p, const struct stream_encoder *enc, enum stream_from from, double keepalive);

#endif
