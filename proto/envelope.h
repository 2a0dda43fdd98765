// SPDX-License-Identifier: Apache-2.0
// envelope: Connect's streams (contract B 1.4): a flag byte, four bytes of big-endian length, a payload; the last one is the
// end frame, always JSON. Written in place, whole or, if the buf fails, not at all. Also the incremental reader, the one frame that
// is written often (output) without a message in between, and the error bodies of unary calls, which look like the end frame's.
#ifndef CELLD_PROTO_ENVELOPE_H
#define CELLD_PROTO_ENVELOPE_H

#include "proto/buf.h"
#include "proto/err.h"
#include "proto/frame.h"

#include <stdbool.h>
#include <stddef.h>

enum { ENVELOPE_PREFIX = 5 };
enum envelope_flags {
	ENVELOPE_COMPRESSED = 1 << 0,
	ENVELOPE_END = 1 << 1,
};
enum envelope_codec { ENVELOPE_JSON, ENVELOPE_PROTO };

// --- writing ---

// Makes room for a prefix and returns the mark for envelope_end; the payload is what is appended in between. Nothing of
// OUT may be consumed meanwhile.
size_t envelope_begin(struct buf *out);
// Fills the prefix in, or takes back all since MARK if OUT failed.
void envelope_end(struct buf *out, size_t mark, unsigned flags);

// The end frame: {} without E, else {"error":{"code","message"}}.
void envelope_last(struct buf *out, const struct err *e);
// The body of a unary call's error: {"code","message"}; as Go writes it: <, > and & escaped, an empty message left out.
void envelope_error_body(struct buf *out, const struct err *e);

// A whole envelope of a process.StartResponse or ConnectResponse with N <= FRAME_RAW_MAX bytes of output.
void envelope_data(struct buf *out, enum envelope_codec codec, enum frame_channel ch, const void *p, size_t n);
// Upper bound of the bytes that one takes (any codec and channel).
size_t envelope_data_room(size_t n);

// --- reading ---

// Reads a request body. What a client gets wrong is told in contract B 1.5's words.
struct envelope_reader {
	struct buf payload;                    // the message, inflated; valid from one feed to the next
	unsigned messages;                     // so far
	bool ended;                            // an end frame was seen: what follows is skipped
	size_t max;                            // private from here
	size_t want;                           // the current payload's length
	unsigned char prefix[ENVELOPE_PREFIX]; // as far as it was read
	size_t have;
	bool gzip, complete;
};
// MAX bounds each payload, as sent and inflated. GZIP: the client announced Connect-Content-Encoding: gzip.
void envelope_reader_init(struct envelope_reader *r, size_t max, bool gzip);
void envelope_reader_release(struct envelope_reader *r);
// Takes from the N bytes at P up to the end of one message; *USED says how many were taken. 1: the next message is in
// r->payload; 0: all taken, none yet; -1 with E filled: the stream is broken, feed no more.
int envelope_reader_feed(struct envelope_reader *r, const void *p, size_t n, size_t *used, struct err *e);
// The body is over. 0, or -1 with E filled if it ended within an envelope.
int envelope_reader_end(const struct envelope_reader *r, struct err *e);
// The same for a call that takes one message: also an error unless there was exactly one.
int envelope_reader_end_one(const struct envelope_reader *r, struct err *e);

#endif
