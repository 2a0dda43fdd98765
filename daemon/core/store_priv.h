// SPDX-License-Identifier: Apache-2.0
// store_priv: the store's shared memory as it lies there, and what its two sides and main share. Included by core/store*.c, by the init
// part and by main. The init part believes nothing that stands in shared memory: its own copies of sizes and numbers are in struct store.
#ifndef CELLD_CORE_STORE_PRIV_H
#define CELLD_CORE_STORE_PRIV_H

#include "daemon/core/store.h"

#include <signal.h>

// Changes with every change of what stands below, in core/keep or in what init and daemon say to each other.
#define STORE_LAYOUT 4u

// A slot's card: the front of its log, its record if that is short enough (head and all), and behind it, in the end, its output if that is. So
// eight of 1024 ended commands are on a page, instead of three pages for each.
#define STORE_CARD ((uint64_t)512)
// Bytes of the longest record on a card.
#define STORE_SHORT (STORE_CARD - STORE_FRONT - STORE_RECORD_HEAD)
#define STORE_RECORD_HEAD ((uint64_t)16)

// How a new binary ends that cannot read this arena.
#define STORE_EXIT_LAYOUT 91

// What does not change once it is made.
struct store_shape {
	uint64_t magic;
	uint32_t layout;
	uint32_t slots;
	uint64_t record, log, kept;                          // bytes
	uint64_t table_at, kept_at, record_at, log_at, size; // offsets in the memory
};

// Where a daemon died, written by its handler.
struct store_fault {
	uint32_t sig; // 0 = none; written last
	int32_t pid;
	uint64_t address;
};

struct store_head {
	struct store_shape shape;
	uint64_t sum;     // over the shape
	uint32_t used_to; // every slot in use is below
	uint32_t woken;   // a signal that has init look is under way
	uint32_t renew;   // what became of the start of a new binary: enum store_renew
	uint32_t upgrade; // the daemon ends so that a new binary can take its place
	struct store_fault fault;
	struct store_deaths deaths; // written while no daemon runs
};

// DONE: it has found its store. FAILED: it could not be executed, and the code of before went on in its place.
enum store_renew { STORE_RENEW_NONE, STORE_RENEW_DONE, STORE_RENEW_FAILED };

enum store_state { STORE_FREE, STORE_TAKEN, STORE_RELEASING };

// One process in the table: a line of the cache.
struct store_entry {
	struct store_life life;
	uint32_t state;
	uint32_t takes;  // counts the processes that had this slot
	uint32_t hands;  // counts what was handed to init for it
	uint32_t drop;   // the count (24 bits) and, below, the mask of ends that init shall close
	uint32_t acked;  // the take whose end the daemon knows
	uint32_t failed; // init could not keep what it was handed: a crash loses this process's ends
};

#define STORE_DROP_BITS 8
#define STORE_ALL_ENDS ((1u << STORE_ENDS) - 1)

static inline uint32_t store_drop_word(uint32_t hands, uint32_t ends)
{
	return hands << STORE_DROP_BITS | (ends & STORE_ALL_ENDS);
}

// From the daemon to init: there are messages, or slots whose words have changed. (One that nobody waits for is ignored.)
#define STORE_SIGNAL SIGURG

enum store_op { STORE_OP_HAND = 1 };

// From the daemon to init, with as many descriptors as ENDS has bits.
struct store_msg {
	uint32_t op;
	uint32_t slot;
	uint32_t hands;
	uint32_t ends;
};

// What one process knows of a slot; memory that is zero and untouched until the slot is used.
struct store_slot {
	struct store *store;
	int fd[STORE_ENDS]; // plus 1, so that 0 is none: init's copies; in a daemon, those it inherited and has not taken yet
	uint32_t hands;  // init: which hand they came with
	uint32_t orphan; // init: the take whose process is, or will be, init's own child; 0 = none
	pid_t held;      // init: a zombie that is not reaped yet; 0 = none
	int64_t held_ns; // since when
	uint32_t next;   // daemon: the next free slot, plus 1
	bool left;       // daemon: an earlier one took it
	bool clean;      // daemon: nothing was written to its log
};

struct store {
	struct store_shape shape;
	int memory;  // the memfd
	int event;   // init writes, the daemon reads
	int channel; // the daemon's end to init, or -1
	char *base;  // the mapping up to the logs
	struct store_head *head;
	struct store_entry *table;
	uint32_t *dirty; // a bit a slot: its words have changed
	struct store_slot *slots;
	uint32_t free;   // daemon: the first free slot below used_to, plus 1
	unsigned untold; // daemon: what init has not been woken for
	pid_t init;      // daemon: whom to wake
	bool stuck;      // daemon: init did not make room for the last message in time
};

static inline size_t store_index(const struct store_slot *slot)
{
	return (size_t)(slot - slot->store->slots);
}
static inline struct store_entry *store_entry(const struct store_slot *slot)
{
	return &slot->store->table[store_index(slot)];
}
// The cards come first, the pages for long records follow them.
static inline uint64_t store_long_at(const struct store_shape *shape)
{
	return shape->record_at + (shape->slots * STORE_CARD + 4095) / 4096 * 4096;
}
static inline size_t store_dirty_words(const struct store_shape *shape)
{
	return ((size_t)shape->slots + 31) / 32;
}

// --- store_arena.c ---
// A memfd that can be sealed, close-on-exec. -1 with errno.
int store_memory(const char *name);
// The arena behind MEMORY (taken, also on failure) as another process made it: 0 with *OUT; -EPROTO if it is of another layout or damaged.
int store_open(int memory, int event, struct store **out);
// False if the head is not what this process knows it to be.
bool store_whole(const struct store *s);
// Empties everything and writes the head anew. Nothing of before is left, but descriptors and processes are the caller's to end.
void store_wipe(struct store *s);
// Slots in use are below; never more than there are.
size_t store_used_to(const struct store *s);

// --- store.c ---
// Makes a daemon of this process: CHANNEL (taken) goes to init; slots that are in use are what an earlier daemon left.
void store_serve(struct store *s, int channel);

// --- store_fault.c ---
// From now on a fatal signal leaves its address in the arena and then does what it did before.
void store_catch_faults(struct store *s);

#endif
