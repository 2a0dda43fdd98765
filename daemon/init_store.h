// SPDX-License-Identifier: Apache-2.0
// init_store: the init part's side of the store: copies of descriptors, the ends of orphans, zombies that are held until the daemon knows.
// Allocates nothing, waits for nothing, and believes nothing that the daemon says or writes. Used by init.c alone (and its tests).
#ifndef CELLD_DAEMON_INIT_STORE_H
#define CELLD_DAEMON_INIT_STORE_H

#include "daemon/core/store.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct init_store {
	struct store *store; // NULL: none, and every call does nothing
	int channel;         // to the daemon that runs, or -1
	pid_t daemon;        // 0 while none runs
	size_t orphans;      // slots whose processes are init's own children
	size_t held;         // zombies that wait for the daemon's word
	bool more;           // the last turn has left messages in the channel
	uint32_t strange;    // messages of this daemon that made no sense
	uint32_t unkept;     // ... and those whose descriptors found no room
};

// Before a daemon is forked: its end of a new channel, or -1 (it then serves, but nothing of it outlives it).
int init_store_open(struct init_store *is);
// In the child: CHANNEL (taken) is its own, and the store serves it. An arena that was damaged is emptied first: what ran from it is killed.
void init_store_child(struct init_store *is, int channel);
// The daemon has died: what it had sent counts still, its living processes are init's now, and nothing is held any more.
void init_store_gone(struct init_store *is);
// After a STORE_SIGNAL, and while there is more: reads what the daemon sent, a bounded number of messages, and does what its slots ask for.
// True if a zombie that was held is gone.
bool init_store_turn(struct init_store *is);
// A child of init has ended, as waitid tells with WNOWAIT: recorded if a slot knows it. True if it must not be reaped yet.
bool init_store_ended(struct init_store *is, const siginfo_t *si);
// The same for every orphan that a slot knows: a zombie that is held hides them from a wait for any child.
void init_store_look(struct init_store *is);
bool init_store_holds(const struct init_store *is, pid_t pid);
// When the first zombie will have been held too long, monotonic; 0 = none is held.
int64_t init_store_due(const struct init_store *is);
// Reaps those. True if there were any.
bool init_store_overdue(struct init_store *is);

#endif
