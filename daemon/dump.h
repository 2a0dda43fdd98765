// SPDX-License-Identifier: Apache-2.0
// dump: what the daemon is at, as lines of the log, for whoever has sent SIGUSR1. A bounded number of lines of bounded length; none is waited
// for. Reads and changes nothing.
#ifndef CELLD_DAEMON_DUMP_H
#define CELLD_DAEMON_DUMP_H

#include <stdint.h>

struct config;
struct metrics;
struct net;
struct procs;
struct store;
struct watches;

// All borrowed.
struct dump {
	const struct config *config;
	const struct procs *procs;
	const struct net *net;
	const struct watches *watches;
	const struct store *store; // or NULL
	const struct metrics *metrics;
	const char *phase;  // "serving", ...
	int64_t started_ms; // the daemon was
};

// Lines of one kind (commands, connections, watches) at most; a line says how many more there are.
#define DUMP_MAX 64
void dump_write(const struct dump *d);

#endif
