// SPDX-License-Identifier: Apache-2.0
// storekit: both sides of a store in one process: what init holds, and a daemon that found the arena by itself.
#ifndef CELLD_UNIT_STOREKIT_H
#define CELLD_UNIT_STOREKIT_H

#include "daemon/core/store_priv.h"
#include "daemon/init_store.h"

struct storekit {
	struct init_store init;
	struct store *daemon;
};

// SLOTS slots, 8 KiB a record, 64 KiB a log, 4 KiB kept.
void storekit_init(struct storekit *k, size_t slots);
void storekit_release(struct storekit *k);
// One more daemon: another process's view of the same memory, with a channel to init if CHANNEL, and none of init's descriptors.
struct store *storekit_daemon(struct storekit *k, bool channel);
// Lets init read until nothing is left.
void storekit_turn(struct storekit *k);
// Ends that init holds, for all slots.
size_t storekit_held(const struct storekit *k);
struct store_slot *storekit_take(struct storekit *k);
// Hands over the ends of MASK (bits 1 << enum store_end), pipes all of them, and closes its own: store_hand's result.
int storekit_hand(struct store_slot *slot, unsigned mask);
// The reading end of a pipe that has ended.
int storekit_pipe(void);
// Open descriptors of this process.
size_t storekit_fds(void);

#endif
