// SPDX-License-Identifier: Apache-2.0
// process: what the files of process.Process share (contract B section 3). Handlers parse, call core/proc, encode; the processes are
// those of the one table, whichever surface started them.
#ifndef CELLD_ENVD_PROCESS_H
#define CELLD_ENVD_PROCESS_H

#include "daemon/core/proc.h"
#include "daemon/envd/rpc.h"
#include "proto/err.h"
#include "proto/process.pb-c.h"

#include <stdbool.h>
#include <stddef.h>

// The living process that S (or NULL) names: not yet waited for. NULL with E filled.
struct proc *process_select(const struct envd *envd, const Process__ProcessSelector *s, struct err *e);
// The same, but also one that has ended and is remembered (contract B 3.3).
struct proc *process_remember(const struct envd *envd, const Process__ProcessSelector *s, struct err *e);
// E becomes what says that the process S names is not there. -1.
int process_not_found(const Process__ProcessSelector *s, struct err *e);

// Answers R with P's output: all of it (STARTER), or what comes from now on; then its end. The stream of a starter ends with
// deadline_exceeded if P's deadline has ended it, any stream with unavailable when another daemon takes the place of this one.
// That a crash of an earlier daemon has cut bytes out of the output is not said here: the messages have no place for it, an error in
// place of the end would take the exit status away, and what was there before a Connect is never told. Surface A's streams say it.
void process_stream(struct rpc *r, struct proc *p, bool starter);
// What went wrong when P was signalled by the sandbox's end.
int process_terminating(struct err *e);

// How a process ended, as contract B 3.2 has it: "exit status 3", "signal: killed".
#define PROCESS_STATUS_MAX 64
void process_status(char out[PROCESS_STATUS_MAX], const struct proc_end *end);

void process_list(struct rpc *r, const ProtobufCMessage *req);
void process_start(struct rpc *r, const ProtobufCMessage *req);
void process_connect(struct rpc *r, const ProtobufCMessage *req);
void process_send_input(struct rpc *r, const ProtobufCMessage *req);
void process_close_stdin(struct rpc *r, const ProtobufCMessage *req);
void process_stream_input(struct rpc *r, const ProtobufCMessage *req);
void process_stream_input_done(struct rpc *r);

#endif
