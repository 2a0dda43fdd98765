// SPDX-License-Identifier: Apache-2.0
// fskit: what the tests of surface B's files share: calls of filesystem.Filesystem in either codec, each told as JSON, streams of
// it, and the home and the tree that the golden exchanges were made in. Everything fails the running test by itself.
#ifndef CELLD_TESTS_INTEGRATION_FSKIT_H
#define CELLD_TESTS_INTEGRATION_FSKIT_H

#include "tests/integration/golden.h"
#include "tests/integration/harness.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

// A daemon that serves surface B, and how it is spoken to.
struct fskit {
	struct testd *d;
	bool proto;       // the codec is binary, else JSON
	struct client *c; // one connection for all unary calls
};
// Starts the daemon with two more options, e.g. "--user", "user", or NULL.
void fs_start(struct fskit *k, bool proto, const char *option, const char *value);
void fs_finish(struct fskit *k);

// One unary call: METHOD ("Stat") with the request REQUEST (JSON text). R's body is JSON text in either codec.
void fs_call(struct fskit *k, const char *method, const char *request, struct resp *r);
// The same with further header lines.
void fs_call_as(struct fskit *k, const char *method, const char *headers, const char *request, struct resp *r);
// The request by json_pack's FMT; the answer has to have STATUS. Its object, borrowed from R.
json_t *fs_pack(struct fskit *k, const char *method, int status, struct resp *r, const char *fmt, ...);
// Fails unless R is an error of STATUS with the code CODE, {"code","message"}.
void fs_assert_error(struct resp *r, int status, const char *code);
// The descriptors of a method's messages.
const ProtobufCMessageDescriptor *fs_request_of(const char *method);
const ProtobufCMessageDescriptor *fs_response_of(const char *method);

// --- WatchDir ---

struct fs_stream {
	struct fskit *k;
	struct client *c;
	struct buf body;
	bool ended;   // the end frame was read
	bool whole;   // and the end of the body
	json_t *last; // the last frame's object, until the next
};
// Sends the call with REQUEST (JSON text) as its message, HEADERS (lines) or NULL, and reads the answer's head: HTTP 200.
void fs_open(struct fskit *k, struct fs_stream *s, const char *headers, const char *request);
// The next frame's object, borrowed, or NULL if none came within MS. Of an end frame too (ended is set then); at most one comes.
const json_t *fs_next(struct fs_stream *s, int64_t ms);
// Reads on to an event of TYPE ("CREATE") for NAME: its object.
const json_t *fs_await(struct fs_stream *s, const char *type, const char *name);
// The stream has to end with an error of CODE, then the body.
void fs_assert_end(struct fs_stream *s, const char *code);
// Closes the connection.
void fs_close(struct fs_stream *s);

// --- files ---

// Gives this test process, and the daemon that it starts then, a user `user` with the home HOME of their own: what is below /home is theirs
// alone. False if that is not possible here (needs root).
#define FS_HOME "/home/user"
bool fs_home(void);
// Makes the golden exchanges' tree at PATH (new), for the user of that home, or, without it, for the test's own.
void fs_tree(const char *path);
// Makes a file or directory, of that user.
void fs_put(const char *path, const char *text, unsigned mode);
void fs_dir(const char *path, unsigned mode);
// A shell's line of the test's own, in DIR; must succeed.
void fs_shell(const char *dir, const char *line);

#endif
