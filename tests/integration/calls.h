// SPDX-License-Identifier: Apache-2.0
// calls: a client of surface B's process and filesystem calls (contract B 1.3, 1.4) in both codecs: requests are written as JSON and
// sent in the codec asked for, messages come back as JSON. Strict: whatever an answer must not be fails the test. The caller frees.
#ifndef CELLD_TESTS_INTEGRATION_CALLS_H
#define CELLD_TESTS_INTEGRATION_CALLS_H

#include "proto/frame.h"
#include "tests/integration/client.h"
#include "tests/integration/daemon.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum codec { CODEC_JSON, CODEC_PROTO, CODECS };

// The options that give a daemon surface B: d_start(CALLS_ENVD).
#define CALLS_ENVD "--envd-listen", "127.0.0.1:0"
struct client *calls_connect(const struct testd *d, int rcvbuf);

// --- unary ---

// METHOD ("process.Process/List") with the message JSON and HEADERS (whole lines, or NULL) on C; the answer goes to R.
void call_on(
	struct client *c, const char *method, enum codec codec, const char *headers, const char *json, struct resp *r);
// The same on a connection of its own, wants 200: the message, the caller's (json_decref).
json_t *call(const struct testd *d, const char *method, enum codec codec, const char *headers, const char *json);
// Wants that error: its message goes to OUT (may be NULL).
void call_fails(const struct testd *d, const char *method, enum codec codec, const char *headers, const char *json,
	const char *code, char out[256]);

// --- streams ---

enum stream_kind {
	STREAM_TIMEOUT, // nothing whole within the deadline; try again
	STREAM_MESSAGE, // msg
	STREAM_LAST,    // the end frame: msg
	STREAM_OVER,    // the body was terminated properly behind it
	STREAM_CUT,     // the connection ended in the middle
};

struct stream;

// Sends a whole streaming call with one message in one envelope and reads the head of its answer: 200 and its type.
struct stream *stream_open(
	const struct testd *d, const char *method, enum codec codec, const char *headers, const char *json);
struct stream *stream_open_rcvbuf(
	const struct testd *d, const char *method, enum codec codec, const char *headers, const char *json, int rcvbuf);
// The same with a body of the test's own, sent as it is with a Content-Length.
struct stream *stream_open_raw(
	const struct testd *d, const char *method, enum codec codec, const char *headers, const void *body, size_t n);
// A client stream: the body is chunked and stays open for stream_send; stream_finish ends it and reads the answer's head.
struct stream *stream_upload(const struct testd *d, const char *method, enum codec codec, const char *headers);
// False once the peer has closed.
bool stream_send(struct stream *s, const char *json);
void stream_finish(struct stream *s);
// Hangs up, whatever the state. NULL is allowed.
void stream_close(struct stream *s);
// The same with RST.
void stream_abort(struct stream *s);
// Reads the next thing within MS. *MSG is the message or the end frame's object, the caller's, else NULL.
enum stream_kind stream_next(struct stream *s, json_t **msg, int64_t ms);

// The stream of a process put together.
struct played {
	int64_t pid;
	struct buf ch[FRAME_CHANNELS];
	json_t *end;  // the end event, or NULL
	json_t *last; // the end frame's object
	size_t data;  // data events
	size_t keepalives;
	int64_t end_at; // h_now_ms of the end frame
};
// Reads the start event: the pid.
int64_t stream_pid(struct stream *s);
// Reads until what this call has read of CHANNEL contains TEXT; all that was read is appended to OUT (may be NULL).
void stream_until(struct stream *s, enum frame_channel ch, const char *text, struct buf *out, int64_t ms);
// Reads to the end and checks the grammar: start first (unless read already), data, at most one end event, one end frame, the end of the
// body. O is zeroed by the caller.
void stream_play(struct stream *s, struct played *o, int64_t ms);
void played_release(struct played *o);
// Fails unless it ended with that exit code, or with SIGNAL ("killed"), and an end frame without an error.
void played_assert_exit(const struct played *o, int64_t code);
void played_assert_signal(const struct played *o, const char *word);
// Fails unless the end frame is that error; its message is returned, borrowed.
const char *played_assert_error(const struct played *o, const char *code);
// Start of JSON, then stream_play and stream_close.
void start_and_play(const struct testd *d, enum codec codec, const char *headers, const char *json, struct played *o);
// The request of `sh -c SCRIPT` with MORE behind it (",\"tag\":\"t\"", or ""), the caller's.
char *sh_request(const char *script, const char *more);
// start_and_play of that with stdin off.
void sh_play(const struct testd *d, enum codec codec, const char *headers, const char *script, struct played *o);

#endif
