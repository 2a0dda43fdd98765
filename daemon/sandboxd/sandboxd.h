// SPDX-License-Identifier: Apache-2.0
// sandboxd: surface A (contract A): parse, call the core, encode. What its handlers share; owned by the daemon.
#ifndef CELLD_SANDBOXD_SANDBOXD_H
#define CELLD_SANDBOXD_SANDBOXD_H

#include "daemon/config.h"
#include "daemon/core/env.h"
#include "daemon/core/proc.h"
#include "daemon/core/users.h"
#include "daemon/net/route.h"
#include "daemon/stream.h"
#include "proto/json.h"

#include <stdbool.h>

// All borrowed; the handlers' context.
struct sandboxd {
	const struct config *config;
	struct procs *procs;
	struct users *users;
};

// The table of surface A, its handlers bound to CTX.
void sandboxd_routes(struct route_table *out, struct sandboxd *ctx);

// --- between its files ---

// The common keys of a request that runs a command (contract A section 4), and what they became. Released by launch_release.
struct launch {
	struct proc_spec spec; // points into the rest
	const char *argv[4];
	json_t *doc;
	struct env env;
	struct user user;
	char *cwd;
};
// Parses the body of C. 0, or -1 with E filled.
int launch_parse(struct launch *l, const struct sandboxd *s, struct conn *c, struct err *e);
// Starts it. 0 with *OUT, or -1 with E filled.
int launch_start(struct launch *l, const struct sandboxd *s, struct proc **out, struct err *e);
void launch_release(struct launch *l);

// Answers 200 with a JSON body that OUT holds; OUT is released. {"ok":true} for sandboxd_ok.
void sandboxd_reply(struct conn *c, struct buf *out);
void sandboxd_ok(struct conn *c);
// The process that {"pid":N} names, if it is of the table: NULL with E filled (404 "process not found").
struct proc *sandboxd_pid(const struct sandboxd *s, const json_t *doc, struct err *e);
// Fills E with what a stream or an answer says when the sandbox itself ends first.
void sandboxd_terminating(struct err *e);
// Surface A's frames; ATTACH adds the done frame.
const struct stream_encoder *sandboxd_sse(bool attach);

route_handler sandboxd_exec;
route_handler sandboxd_exec_stream;
route_handler sandboxd_exec_attach;
route_handler sandboxd_exec_stdin;
route_handler sandboxd_exec_stdin_close;
route_handler sandboxd_exec_signal;
route_handler sandboxd_exec_processes;
route_handler sandboxd_ready;
route_handler sandboxd_health;
route_handler sandboxd_processes;

#endif
