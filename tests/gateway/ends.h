// SPDX-License-Identifier: Apache-2.0
// ends: lets the bytes of a streamed answer through so that it can be ended well at any moment: of a Connect stream only whole
// envelopes, of an event stream only whole events. A unit of more than ENDS_HELD bytes goes through as it comes: inside it the stream
// can only be cut. Embedded in its owner. Knows no socket.
#ifndef CELLD_GATEWAY_ENDS_H
#define CELLD_GATEWAY_ENDS_H

#include "proto/buf.h"
#include "proto/err.h"
#include "proto/http.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ENDS_HELD ((size_t)64 * 1024)

enum ends_kind {
	ENDS_PLAIN,   // anything else: all goes through, and it can only be cut
	ENDS_CONNECT, // application/connect+json, +proto: END_STREAM envelope (contract B 1.4)
	ENDS_EVENTS,  // text/event-stream: an error frame (contract A 5)
};

struct ends {
	enum ends_kind kind;
	bool complete; // the stream has had its end: an END_STREAM envelope
	bool inside;   // private: part of a unit is out
	bool line;     // private: inside a line
	bool comment;  // private: inside a line that is one
	bool event;    // private: the unit has a line that is no comment
	bool cr;       // private: the last line ended with CR, so that an LF still belongs to it
	uint64_t left; // private: bytes of an envelope too large to be held
	struct buf held;
};

// What the answer HEAD is to be treated as. One of a known length or with a Content-Encoding is ENDS_PLAIN: nothing can be appended to it.
enum ends_kind ends_kind_of(const struct http_head *head);
void ends_init(struct ends *e, enum ends_kind kind);
void ends_release(struct ends *e);
// Takes N bytes as they came; appends to OUT what may go on. OUT or e->held failing means that the stream has to be cut.
void ends_feed(struct ends *e, struct buf *out, const void *p, size_t n);
// The body has ended as it should: what was held back goes on too.
void ends_finish(struct ends *e, struct buf *out);
// The body was cut: what was held back is dropped. True: OUT has E as the stream's end, or it had had one: it is to be ended well.
// False: it is to be cut.
bool ends_cut(struct ends *e, struct buf *out, const struct err *why);

#endif
