// SPDX-License-Identifier: Apache-2.0
// output: the tagged byte log of one process. Writers append chunks with a channel, readers are cursors with absolute offsets, so
// that no reader has a copy. Bytes are written before the indices that publish them. The log belongs to its process; a reader
// belongs to whoever attached it and detaches it before the log is freed.
// It may lie in the memory of a store's slot: then a daemon that takes the place of one that died finds it there.
// wake() is called from output_filled, output_close and output_wake; in it a reader may read and may detach itself, nothing else.
#ifndef CELLD_CORE_OUTPUT_H
#define CELLD_CORE_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

enum output_channel { OUTPUT_STDOUT, OUTPUT_STDERR, OUTPUT_PTY, OUTPUT_CHANNELS };

struct output;
struct store_slot;

struct output_reader {
	void (*wake)(struct output_reader *r); // there is more to read, or the log was closed
	void (*cut)(
		struct output_reader *r); // it held the others up for too long: it must detach, now or in its next turn
	struct output *log;               // private
	uint64_t at;                      // private: offset of the record the cursor is in
	uint32_t used;                    // private: bytes of that record already taken
	bool lost;                        // output before the cursor was overwritten before this reader could have it
	bool passive;                     // takes all in each wake and is no reason to cut another one
	struct output_reader *prev, *next; // private
};

struct output_span {
	enum output_channel channel;
	const unsigned char *p;
	size_t n;
};

// REPLAY: bytes kept for readers that attach later. Allocates no pages until something is written. NULL when out of memory.
struct output *output_new(size_t replay);
// The same in the memory of SLOT (borrowed; NULL: memory of its own): output_memory_size(REPLAY) bytes that are zero.
struct output *output_new_in(struct store_slot *slot, size_t replay);
size_t output_memory_size(size_t replay);
// The same with its struct at MEM, output_place_size() bytes that are the caller's, as long as it is not freed.
struct output *output_place(void *mem, struct store_slot *slot, size_t replay);
size_t output_place_size(void);
// The log that an earlier daemon left in SLOT, with the same REPLAY, at MEM (NULL: allocated). 0; -EINVAL if it makes no sense; -ENOMEM.
int output_take_back(struct output **out, void *mem, struct store_slot *slot, size_t replay);
// Maps the ring now, so that output_room cannot fail before the log is closed. 0 or -ENOMEM.
int output_map(struct output *o);
// Leaves what is in a slot's memory.
void output_free(struct output *o);

// Room for the next chunk as up to two pieces of the ring, at most WANT bytes together; *COUNT pieces. Returns the bytes of room: 0 when a
// reader has to take something first, -ENOMEM when the ring cannot be mapped.
ssize_t output_room(struct output *o, size_t want, struct iovec iov[2], int *count);
// Round a read into that room: while it is ON, a crash may lose what the read has brought, and the log says so when it is taken back.
// output_filled ends it too.
void output_reading(struct output *o, bool on);
// Publishes N bytes that were written into that room (N <= the room) and wakes the readers.
void output_filled(struct output *o, enum output_channel ch, size_t n);
// No more will come: the ring shrinks to what replay needs. Wakes the readers, which then find the end.
void output_close(struct output *o);
bool output_closed(const struct output *o);

// Bytes ever written to a channel; bytes that the ring holds for readers and replay.
uint64_t output_total(const struct output *o, enum output_channel ch);
size_t output_held(const struct output *o);
// Memory of the log in bytes, for bounds on what ended processes keep.
size_t output_memory(const struct output *o);

// Wakes all readers.
void output_wake(struct output *o);
// True if a crash may have cut bytes out of it, or output_lose was called: every reader that attaches is told (lost), in later daemons too.
bool output_lost(const struct output *o);
void output_lose(struct output *o);

// Attaches R at the oldest byte that is kept. R->lost says whether earlier output is gone already.
void output_attach(struct output *o, struct output_reader *r);
// At the end of what was written: live output only.
void output_attach_live(struct output *o, struct output_reader *r);
// At the oldest byte that there is; SKIP: bytes of each channel that R is to leave out until it is FROM bytes into that channel.
// R->lost says whether a channel begins only behind that; then FROM is raised to where it does.
void output_attach_from(
	struct output *o, struct output_reader *r, uint64_t from[OUTPUT_CHANNELS], uint64_t skip[OUTPUT_CHANNELS]);
// A number for each channel that a log in a slot keeps for somebody, 0 at first and elsewhere.
void output_mark(struct output *o, enum output_channel ch, uint64_t n);
uint64_t output_marked(const struct output *o, enum output_channel ch);
void output_detach(struct output_reader *r);
size_t output_readers(const struct output *o);
// The next bytes for R, at most MAX and contiguous: true and *S set; false if it has read all. They stay valid until output_taken.
bool output_next(struct output_reader *r, size_t max, struct output_span *s);
// R is done with N bytes of that span.
void output_taken(struct output_reader *r, size_t n);
// Bytes between R and the end of the log.
size_t output_behind(const struct output_reader *r);
// The reader that keeps output_room at 0 while another one has read all there is; NULL if nobody is held up so.
struct output_reader *output_blocker(const struct output *o);

#endif
