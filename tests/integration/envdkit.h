// SPDX-License-Identifier: Apache-2.0
// envdkit: what the tests of surface B's transport and control share: requests with bytes of the test's own, the shapes of
// errors, the golden exchanges played again. Everything fails the running test by itself.
#ifndef CELLD_TESTS_INTEGRATION_ENVDKIT_H
#define CELLD_TESTS_INTEGRATION_ENVDKIT_H

#include "tests/integration/golden.h"
#include "tests/integration/harness.h"

#include <stdbool.h>
#include <stddef.h>

// The options that give a daemon surface B, and a connection to it.
#define ENVD_ON "--envd-listen", "127.0.0.1:0"
struct client *envd_connect(const struct testd *d);

// One request on C with HEADERS (whole lines) and N bytes of body; nothing is added but Host and Content-Length.
void envd_send(
	struct client *c, const char *method, const char *target, const char *headers, const void *body, size_t n);
// The same on a connection of its own, with its answer.
void envd_req(const struct testd *d, const char *method, const char *target, const char *headers, const void *body,
	size_t n, struct resp *r);
// POST /init with BODY (JSON): the status.
int envd_init(const struct testd *d, const char *body);

// Fails unless R is {"code":STATUS,"message"} as a REST route has it. Its message, borrowed.
const char *envd_want_rest(struct resp *r, int status);
// Fails unless R is a unary call's error: STATUS, {"code":CODE,"message"}. Its message, borrowed.
const char *envd_want_connect(struct resp *r, int status, const char *code);
// Fails unless R is a stream: HTTP 200, whole envelopes, exactly one with END, the last one, its payload a JSON object. That object, the
// caller's (json_decref). *MESSAGES (may be NULL): envelopes before it.
json_t *envd_want_stream(struct resp *r, size_t *messages);
// The same, with the error CODE in it; the message goes to OUT (may be NULL).
void envd_want_stream_error(struct resp *r, const char *code, char out[256]);

// Appends an envelope.
void envd_envelope(struct buf *out, unsigned flags, const char *payload);

// Plays the exchanges of NAME.http again, but for those whose label contains a word of SKIP (NULL-terminated), and those with
// envelopes. Where the real daemon gave text or nothing with an error, a JSON object is wanted instead.
void envd_play_golden(const struct testd *d, const char *name, const char *const *skip);

#endif
