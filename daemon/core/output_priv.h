// SPDX-License-Identifier: Apache-2.0
// output_priv: how a log lies in memory, and what output.c (writing, reading) and output_end.c (what is left of one that has ended, or of a daemon)
// share. Nobody else includes it.
#ifndef CELLD_CORE_OUTPUT_PRIV_H
#define CELLD_CORE_OUTPUT_PRIV_H

#include "daemon/core/output.h"
#include "daemon/core/store.h"

#include <string.h>
#include <unistd.h>

// The ring holds records: a four-byte header (channel, length), aligned so that it never wraps, then the bytes. The newest
// record grows while the channel stays the same, so that a program that writes byte by byte costs no header a byte.
#define RECORD_HEAD ((uint64_t)4)
#define NO_RECORD UINT64_MAX
#define MAGIC ((uint32_t)0x6c6f6731)
// Offsets do not come near it, so that sums of them do not wrap.
#define OFFSET_MAX ((uint64_t)1 << 62)

struct index {
	uint64_t head; // offset behind the newest byte
	uint64_t tail; // the oldest record
	uint64_t last; // the newest record, or NO_RECORD; its length is what head says
	uint64_t total[OUTPUT_CHANNELS];
	uint64_t held; // bytes in the records from tail on, headers not counted
	uint64_t card; // 1: it has ended, and all of it lies in its slot's room and not in the ring
};

// The front of a log in shared memory, all zero at first. An index is written into the place that does not hold, then TURN says
// that it does: whoever takes the log back finds one that is whole, and behind it bytes that were there before.
struct shared {
	uint32_t magic;
	uint32_t turn; // index[turn % 2] holds
	uint32_t reading;
	uint32_t lost;
	uint64_t cap;
	struct index index[2];
	uint64_t mark[OUTPUT_CHANNELS];
};
_Static_assert(sizeof(struct shared) <= STORE_FRONT, "it has its place");

struct output {
	struct shared *shared; // in the slot, or NULL: a ring of our own
	unsigned char *
		ring; // mapped at the first chunk; of one that has ended and is not read: not mapped, or the slot's room
	size_t cap;   // power of two
	size_t replay;
	struct index ix;
	bool closed;
	bool own;                // its struct is freed with it
	bool lost;               // a read was cut by a crash
	struct store_slot *slot; // whose memory it is, or NULL
	struct output_reader *readers;
};

static inline uint64_t align4(uint64_t v)
{
	return (v + 3) & ~(uint64_t)3;
}

static inline unsigned char *at(const struct output *o, uint64_t off)
{
	return o->ring + (off & (o->cap - 1));
}

static inline uint32_t record_word(const struct output *o, uint64_t off)
{
	uint32_t w;
	memcpy(&w, at(o, off), sizeof w);
	return w;
}

static inline uint32_t record_len(const struct output *o, uint64_t off)
{
	return record_word(o, off) & 0xffffffu;
}

static inline enum output_channel record_channel(const struct output *o, uint64_t off)
{
	return (enum output_channel)(record_word(o, off) >> 24);
}

static inline void record_put(struct output *o, uint64_t off, enum output_channel ch, uint32_t len)
{
	uint32_t w = (uint32_t)ch << 24 | len;
	memcpy(at(o, off), &w, sizeof w);
}

static inline uint64_t record_next(const struct output *o, uint64_t off)
{
	return align4(off + RECORD_HEAD + record_len(o, off));
}

static inline size_t page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

// What is in O holds from now on, also for a daemon that takes it back.
void output_publish(struct output *o);
void output_unmap(struct output *o);
void output_drop_oldest(struct output *o);
// A record that a cursor stands in stays, even when all of it was read.
bool output_pinned(const struct output *o);
// It has ended: from now on it takes no more than it holds, and while nobody reads it no mapping either.
void output_settle(struct output *o);

#endif
