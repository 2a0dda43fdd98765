// SPDX-License-Identifier: Apache-2.0
// crashkit: a prockit whose table keeps its processes in a store, with the init part's side of it in the same process; and a daemon that
// dies (its table goes, its processes stay) and comes back with a new one.
#ifndef CELLD_UNIT_CRASHKIT_H
#define CELLD_UNIT_CRASHKIT_H

#include "daemon/core/store.h"
#include "daemon/init_store.h"
#include "prockit.h"

struct crashkit {
	struct prockit k;
	struct proc_limits limits;
	struct init_store init;
	struct store *store; // the daemon's
	ev_timer turn;       // init's
};

enum { CRASHKIT_SLOTS = 16 };

void crashkit_init(struct crashkit *s, const struct proc_limits *limits);
void crashkit_release(struct crashkit *s);
// The daemon dies. What it had sent to init counts.
void crashkit_crash(struct crashkit *s);
// Another one is there, and has taken back.
void crashkit_back(struct crashkit *s, struct procs_taken *taken);
// Both. Fails unless that many are taken back, and none refused.
void crashkit_restart(struct crashkit *s, size_t living, size_t ended);
// The only one that lives.
struct proc *crashkit_only(struct crashkit *s);
// While there is no daemon: children that have ended are init's.
void crashkit_init_reaps(struct crashkit *s, pid_t pid);
// Copies of ends that init holds.
size_t crashkit_held(const struct crashkit *s);
// Slots in use.
size_t crashkit_used(const struct crashkit *s);
struct store_slot *crashkit_slot(struct crashkit *s, size_t i);

#endif
