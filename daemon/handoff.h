// SPDX-License-Identifier: Apache-2.0
// handoff: how a new binary finds what it goes on with: the numbers of inherited descriptors and what was true at the start, in a memfd whose
// number stands in one variable of its environment. The secret among it (the token) is in no argument and no variable.
#ifndef CELLD_DAEMON_HANDOFF_H
#define CELLD_DAEMON_HANDOFF_H

#include "daemon/daemon.h"

#include <limits.h>
#include <stdbool.h>
#include <sys/resource.h>

#define HANDOFF_TOKEN_MAX 4096

struct handoff {
	struct daemon_sockets sandboxd, envd;
	struct rlimit nofile; // what celld was started with
	int oom_score_adj;
	unsigned restarts;
	char binary[PATH_MAX];             // the recorded path
	char token[HANDOFF_TOKEN_MAX + 1]; // of the configuration; empty = none
	char cgroups[PATH_MAX];            // the parent of the commands' groups; empty = none
	struct store *store;               // serves already
};

// Executes H->binary with ARGV and this process's environment in its place; CHANNEL leads to init. Comes back only with negative errno, and
// everything is as before then.
int handoff_exec(const struct handoff *h, char **argv, int channel);
// In a new binary, before all else. 0: it is none, this is an ordinary start; 1 with H filled, whose descriptors are close-on-exec again; or
// -EPROTO: there is something that this binary does not know how to read.
int handoff_take(struct handoff *h);

#endif
