// SPDX-License-Identifier: Apache-2.0
// init: the part that is PID 1 (or, with --init, a subreaper): forks the daemon, reaps every orphan, forwards signals, starts a crashed
// daemon again, keeps for it what stands in the store. Whatever it needs (listening sockets, memory) is there before; after start it
// allocates nothing and cannot fail. Must not know what the daemon does.
#ifndef CELLD_DAEMON_INIT_H
#define CELLD_DAEMON_INIT_H

#include <stdint.h>

struct store;

struct init_spec {
	// Runs the daemon in the forked child, RESTARTS times after the first; its result is the child's exit status. 0 means that it
	// ended in order; anything else, like a death by a signal, gets it started again.
	int (*daemon)(void *arg, unsigned restarts);
	// In the forked child, instead, once a daemon has ended for an upgrade: executes the new binary, for which CHANNEL is the way to init.
	// Comes back only if that fails, with negative errno; then the daemon runs. NULL: there are no upgrades.
	int (*renew)(void *arg, unsigned restarts, int channel);
	void *arg;
	int64_t stop_ms;     // the daemon is killed when it has not ended so long after TERM, INT or QUIT
	struct store *store; // or NULL
};

// Runs until the daemon has ended in order. The exit status for this process: 0, or the daemon's after a stop that it failed.
// The caller's signal mask and dispositions are replaced.
int init_run(const struct init_spec *spec);

#endif
