// SPDX-License-Identifier: Apache-2.0
// sse: a client of surface A's streams (contract A section 5). Strict: each frame must be "data: <payload>\n\n" or
// ": keepalive\n\n", plain printable ASCII, and proto/frame's reader must see the same events. The caller frees.
#ifndef CELLD_TESTS_INTEGRATION_SSE_H
#define CELLD_TESTS_INTEGRATION_SSE_H

#include "proto/buf.h"
#include "proto/frame.h"
#include "tests/integration/client.h"
#include "tests/integration/daemon.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sse_kind {
	SSE_TIMEOUT,   // nothing whole within the deadline; try again
	SSE_PID,       // pid
	SSE_DATA,      // channel, data; bare if it was base64 without JSON around it
	SSE_EXIT,      // code, signal, timed_out, truncated
	SSE_ERROR,     // the "error" frame: see obj
	SSE_WATCH,     // a watch stream's: see obj
	SSE_DONE,      // {"done":true}
	SSE_KEEPALIVE, // the comment
	SSE_END,       // the body was terminated properly: last chunk, or the announced close
	SSE_CUT,       // the connection ended in the middle
};

struct sse_event {
	enum sse_kind kind;
	int64_t pid;
	enum frame_channel channel;
	bool bare;
	struct buf data; // decoded bytes
	int64_t code;
	char signal[32]; // "" if there is none
	bool timed_out;
	bool truncated;
	json_t *obj; // the payload, NULL for keepalive, bare data, END and CUT; owned by the event
	int64_t at;  // h_now_ms when it was read
};

struct sse;

// POST with BODY, or GET if BODY is NULL; wants 200 and text/event-stream.
struct sse *sse_open(const struct testd *d, const char *target, const char *body);
// The same with header lines ("Keepalive-Ping-Interval: 1\r\n", or NULL) and a small receive buffer (0: default).
struct sse *sse_open_with(const struct testd *d, const char *target, const char *headers, const char *body, int rcvbuf);
// POST /exec/stream {"command":COMMAND}.
struct sse *sse_exec(const struct testd *d, const char *command);
// POST TARGET with a body by json_pack's FMT.
struct sse *sse_open_pack(const struct testd *d, const char *target, const char *fmt, ...);
// GET /exec/attach?pid=PID.
struct sse *sse_attach(const struct testd *d, int64_t pid);
// Hangs up, whatever the state. NULL is allowed.
void sse_close(struct sse *s);
// The connection below, for tests of their own kind with its socket (s->fd, rcvbuf). Still owned by S.
struct client *sse_client(struct sse *s);

// The next event within MS; E is zeroed before the first call and released after the last one (each call releases it first).
enum sse_kind sse_next(struct sse *s, struct sse_event *e, int64_t ms);
void sse_event_release(struct sse_event *e);
// The next event that is no keepalive; fails the test unless it is of that kind.
void sse_expect(struct sse *s, struct sse_event *e, enum sse_kind kind, int64_t ms);
// Reads the pid frame: the pid.
int64_t sse_pid(struct sse *s);
// Reads until CHANNEL's bytes that this call has read contain TEXT; fails at the deadline or an end. The bytes are appended to
// OUT (may be NULL).
void sse_until(struct sse *s, enum frame_channel ch, const char *text, struct buf *out, int64_t ms);

// A whole stream put together.
struct sse_out {
	int64_t pid; // 0 if the pid frame had been read before
	struct buf ch[FRAME_CHANNELS];
	struct sse_event end; // the exit or error frame
	bool done;
	size_t frames; // data frames
	size_t keepalives;
	int64_t first_data; // h_now_ms of the first data frame, 0 if there was none
};

// Reads to the end of the stream and checks its grammar: first frame pid (unless it was read already), then data, exactly one
// exit or error frame behind all data, on an attach stream one done frame behind that, nothing more, and a proper end of the
// body; data frames are not empty and carry at most FRAME_RAW_MAX bytes. MS bounds the whole. O is zeroed by the caller.
void sse_collect(struct sse *s, struct sse_out *o, int64_t ms);
void sse_out_release(struct sse_out *o);
// sse_exec, sse_collect, sse_close in one; fails unless it ended with that exit code and no signal.
void sse_run(const struct testd *d, const char *command, int64_t code, struct sse_out *o);
const char *sse_kind_name(enum sse_kind kind);

#endif
