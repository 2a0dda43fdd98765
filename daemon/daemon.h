// SPDX-License-Identifier: Apache-2.0
// daemon: what serves: the loop, the table of processes, the connections and the surfaces, tied together; and the orderly stop.
// Everything is reached from one struct, built here and freed here.
#ifndef CELLD_DAEMON_DAEMON_H
#define CELLD_DAEMON_DAEMON_H

#include "daemon/config.h"
#include "daemon/core/spawn.h"

#include <stdbool.h>
#include <stddef.h>

// Processes that have ended and are kept, at most.
#define DAEMON_ENDED_MAX ((size_t)1024)

struct daemon_sockets {
	int fd[CONFIG_LISTEN_MAX]; // listening; borrowed
	size_t count;
};

struct cgroups;
struct keep;
struct metrics;
struct notify;
struct store;

struct daemon_spec {
	struct config *config;
	struct daemon_sockets sandboxd;
	struct daemon_sockets envd;
	struct spawn_base base;
	bool under_init;         // the parent is celld's init part
	struct store *store;     // what of processes does; borrowed, or NULL
	struct cgroups *cgroups; // one for each command; borrowed, or NULL
	struct metrics *metrics; // added to, shared with later daemons; borrowed, or NULL
	struct keep *keep;       // what surface B was told and outlives a crash; borrowed, or NULL
	const char *binary;      // what takes this one's place at an upgrade; NULL: there are none
	const char *ready;       // said on stderr once requests are served, or NULL
	struct notify *notify;   // the service manager, told of the state; borrowed
};

// Serves until TERM, INT or QUIT, then ends the sandbox: 0. Until SIGUSR2, if there are upgrades: STORE_EXIT_UPGRADE, and the sandbox goes on.
// 1 if it could not start.
int daemon_run(const struct daemon_spec *spec);

#endif
