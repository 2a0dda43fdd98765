// SPDX-License-Identifier: Apache-2.0
// relay: from one stream of a command or a terminal to descriptors here, and from here to its input: bytes, signals, sizes.
// One loop of poll(2) to the command's end. Descriptors are borrowed, and never made non-blocking: others share them.
#ifndef CELLD_DAEMON_CTL_RELAY_H
#define CELLD_DAEMON_CTL_RELAY_H

#include "daemon/ctl/target.h"
#include "daemon/ctl/terminal.h"
#include "proto/buf.h"
#include "proto/err.h"

#include <stdbool.h>
#include <stdint.h>

enum relay_kind {
	RELAY_COMMAND,  // signals go on to it
	RELAY_FOLLOWED, // somebody else's: signals end the relay alone, as they end any program
	RELAY_TERMINAL, // a signal hangs up
};

struct relay_spec {
	const struct target *target;
	enum relay_kind kind;
	const char *method, *path; // the stream's
	const struct buf *body;    // or NULL
	int64_t terminal_id;
	struct terminal *terminal; // raw already
	int in, out, err;          // -1: no input, output is dropped
	bool frames;               // OUT gets the frames as they come, one a line
	bool safe_err; // ERR, if a terminal, gets no control characters: what comes is no program's that was asked for
	void (*moved)(void *arg, uint64_t in, uint64_t out); // bytes so far, after each step; or NULL
	void *arg;
};

struct relay_end {
	int code;
	int sig;
	bool timed_out;
	bool truncated;
	int cut_by;      // the signal to this process that ended it before the command's end
	int write_error; // positive errno of an output, 0 if there was none
};

// 0 once the command has ended or the relay was cut by a signal; -1 with E filled.
int relay_run(const struct relay_spec *spec, struct relay_end *end, struct err *e);
// What a shell would say of that end.
int relay_status(const struct relay_end *end);

#endif
