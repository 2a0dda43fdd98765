// SPDX-License-Identifier: Apache-2.0
// frame: the frames of surface A's streams (contract A section 5): "data: <one JSON object>\n\n", pure ASCII, written
// whole or, if the buf fails, not at all. Lengths come from the literal or the formatter.
// Also the incremental reader that clients of such a stream need.
#ifndef CELLD_PROTO_FRAME_H
#define CELLD_PROTO_FRAME_H

#include "proto/buf.h"
#include "proto/err.h"

#include <stdbool.h>
#include <stddef.h>

// Raw bytes in one data frame at most.
#define FRAME_RAW_MAX ((size_t)32 * 1024)

enum frame_channel { FRAME_STDOUT, FRAME_STDERR, FRAME_PTY, FRAME_CHANNELS };

// "stdout", "stderr", "pty".
const char *frame_channel_name(enum frame_channel ch);

// data: {"pid":N}
void frame_sse_pid(struct buf *out, int pid);
// data: {"channel":"stdout","data":"<base64>"}; N <= FRAME_RAW_MAX
void frame_sse_data(struct buf *out, enum frame_channel ch, const void *p, size_t n);
// data: <base64>, the bare form of /pty/stream
void frame_sse_bare(struct buf *out, const void *p, size_t n);
// Upper bound of the bytes that one data frame of N raw bytes takes (any channel).
size_t frame_sse_room(size_t n);

struct frame_end {
	int code;           // exit code; -1 for a signal or a timeout
	const char *signal; // "SIGKILL", or NULL
	bool timed_out;
	bool truncated; // output was lost before a reader could have it
	bool oom;       // the kernel has killed in it for want of memory
};
// data: {"exit":N,...}; "exit" is the first key, then only those that apply
void frame_sse_exit(struct buf *out, const struct frame_end *end);
// The same for a terminal's stream: always with "signal" ("" if there is none) and "truncated", with "oom" if it applies
void frame_sse_terminal_exit(struct buf *out, const struct frame_end *end);
// data: {"done":true}
void frame_sse_done(struct buf *out);
// data: {"error",...}: the body of json_error_body
void frame_sse_error(struct buf *out, const struct err *e);
// ": keepalive\n\n"
void frame_sse_keepalive(struct buf *out);

// Reads a text/event-stream (WHATWG HTML, "Interpreting an event stream"): lines end with LF, CR or CRLF, the data lines of
// an event are joined with LF, comments and other fields are skipped.
struct frame_reader {
	struct buf line; // private
	struct buf data; // private
	bool has_data;   // private
	bool cr;         // private
	bool begun;      // private
};
// MAX bounds the data bytes of one event and each line (0 = no limit): beyond it -EMSGSIZE.
void frame_reader_init(struct frame_reader *r, size_t max);
void frame_reader_release(struct frame_reader *r);
// Takes from the N bytes at P up to the end of one event. *USED says how many were taken. 1: an event is complete, its
// data (without a NUL) is in *EV until the next call; 0: all taken, no event yet; negative: the buf's failure.
int frame_reader_feed(struct frame_reader *r, const void *p, size_t n, size_t *used, const struct buf **ev);

#endif
