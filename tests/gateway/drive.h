// SPDX-License-Identifier: Apache-2.0
// drive: what the gateway has a daemon do, over both surfaces: ready, a session's init, reset, a signal to all. Each is a chain of calls with one
// result. Surface A (port 2024) for ready, reset and signals, surface B for /init and metrics.
#ifndef CELLD_GATEWAY_DRIVE_H
#define CELLD_GATEWAY_DRIVE_H

#include "tests/gateway/box.h"

#include <jansson.h>

struct drive;
// RC: 0, or negative errno with WHY (borrowed, never NULL).
typedef void drive_done(void *arg, int rc, const char *why);

// Health on both surfaces and a command run through surface A's exec, which has to come back with its output and exit 0.
struct drive *drive_ready(struct ev_loop *loop, struct box *b, drive_done *done, void *arg);
// POST /init {accessToken, envVars, defaultUser, defaultWorkdir}, then /health. TOKEN NULL: none. ENV: object of strings or NULL.
struct drive *drive_session(
	struct ev_loop *loop, struct box *b, const char *token, const json_t *env, drive_done *done, void *arg);
// The end of a session, so that the next one finds nothing of it: the token is taken back (nobody has to know it for that), commands are
// signalled, the workspace is reset (kills every process), temporary places are emptied, the session's environment and user are taken back, and then
// the proof: the workspace lists empty, the temporary places too, no process is left, no token is asked for, neither surface has a variable of the
// session. Any doubt is an error.
struct drive *drive_reset(struct ev_loop *loop, struct box *b, drive_done *done, void *arg);
// Surface B's /metrics, parsed; the document is borrowed.
struct drive *drive_metrics(
	struct ev_loop *loop, struct box *b, const char *token, void (*done)(void *arg, const json_t *doc), void *arg);
// DONE will not be called. Accepts NULL.
void drive_cancel(struct drive *d);

#endif
