// SPDX-License-Identifier: Apache-2.0
// store: what of processes outlives the daemon: one slot a process, with a record and an output log in memory that is shared with the
// init part (a sealed memfd), and with the pipe and terminal ends that init holds copies of. Made by main before the init part forks
// the daemon; every later daemon finds in it what the one before it had. Without an init part there is none (NULL everywhere).
// Must not know what a record says, nor how output is laid out.
#ifndef CELLD_CORE_STORE_H
#define CELLD_CORE_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// The ends init keeps for one process. MASTER is a terminal's; SLAVE is held so that it is not hung up.
enum store_end { STORE_STDIN, STORE_STDOUT, STORE_STDERR, STORE_MASTER, STORE_SLAVE, STORE_ENDS };

// What changes while a process lives, in shared memory: single words, each written by one side, read with acquire and written with
// release order (store_get, store_set), so that a crash between two writes leaves an older truth and not a wrong one.
struct store_life {
	int32_t pid;    // the child writes it before it does anything else (store_child); 0 = not yet
	uint32_t ended; // 1 once code and status are right; by whoever sees the end, before the process is reaped
	int32_t code;   // si_code and si_status of waitid
	int32_t status;
	int64_t ended_ns;    // monotonic
	uint32_t flags;      // the daemon's own (proc_store.c); init does not look at them
	uint32_t group;      // the same: the number of its control group, 0 = none (a record may not be whole)
	int64_t deadline_ns; // the daemon's own, monotonic; 0 = none
};

struct store;
struct store_slot;

struct store_sizes {
	size_t slots;  // processes at most, ended ones that are kept included
	size_t record; // bytes of a record at most
	size_t log;    // bytes of an output log's memory; all of them are rounded up to pages
};

// --- made and owned by main ---

// An arena for SIZES, and KEPT bytes for what else outlives a daemon (core/keep). NULL, with errno set, if it cannot be had.
struct store *store_new(const struct store_sizes *sizes, size_t kept);
// Accepts NULL. Init's copies and every mapping of this process go; the memory stays while another process has it.
void store_free(struct store *s);
void *store_kept(const struct store *s);

// --- the daemon's side ---

// A free slot, or NULL if there is none. Its record is empty, its life zero, its log zero.
struct store_slot *store_take(struct store *s);
// Writes the record with its version, length and checksum, whole. 0 or -EMSGSIZE (then the process cannot be taken back: ended at a crash).
int store_record_put(struct store_slot *slot, const void *p, size_t n);
// NULL if it is not whole or of another version. *N bytes.
const void *store_record_get(const struct store_slot *slot, size_t *n);
struct store_life *store_life(struct store_slot *slot);
// The log's memory: the descriptor and the place to map (shared) for it, sizes.log bytes from *OFFSET on. Before the first byte is written there:
// store_log_used.
int store_log(const struct store_slot *slot, off_t *offset);
void store_log_used(struct store_slot *slot);
// STORE_FRONT bytes that whoever writes the log has for what it knows of it: zero at first, mapped in any case, in the record's neighbourhood.
#define STORE_FRONT ((size_t)176)
void *store_log_front(const struct store_slot *slot);
// What the slot's record has left free behind itself, *N bytes, once it was put: there a short log can lie instead.
void *store_log_room(const struct store_slot *slot, size_t *n);
// Gives pages back that hold nothing any more: N bytes from AT within the log's memory; or all of it.
void store_log_punch(const struct store_slot *slot, size_t at, size_t n);
void store_log_clear(struct store_slot *slot);
// Has init keep copies of the ends that are >= 0; done when it returns, before anything is spawned: from then on they are in the channel, where
// init finds them whatever becomes of this process. 0; negative errno (nothing is kept then): -EAGAIN if init makes no room in time, -EMFILE, ...
int store_hand(struct store_slot *slot, const int fds[STORE_ENDS]);
// Init closes those copies (a mask of 1 << enum store_end) when it looks the next time. Cannot fail.
void store_drop(struct store_slot *slot, unsigned ends);
// Has init look at all of that now. It is not woken for each hand, drop and release: to be called where somebody waits for a drop, and a
// little after the last of them. S may be NULL.
void store_wake(struct store *s);
// The daemon knows the end: an orphan's zombie may go, and with it its number.
void store_ack(struct store_slot *slot);
// The slot is free: record wiped, log given back, copies closed as with store_drop. Accepts NULL.
void store_release(struct store_slot *slot);

// In a new child, before all else: async-signal-safe. Accepts NULL.
void store_child(struct store_slot *slot);

// What an earlier daemon left, in order of their numbers: the first slot in use at or after index FROM, or NULL. *INDEX is its own.
struct store_slot *store_left(struct store *s, size_t from, size_t *index);
// The end of such a slot in this process, the caller's now (close-on-exec), or -1: each once.
int store_end_take(struct store_slot *slot, enum store_end end);
// Readable when init has recorded ends of orphans (an eventfd: read it, then look at the lives); -1 if there is none.
int store_event_fd(const struct store *s);

// The daemon is about to end with STORE_EXIT_UPGRADE, so that the binary at the recorded path takes its place: whatever kills it first, that
// one comes next.
#define STORE_EXIT_UPGRADE 90
void store_upgrade(struct store *s);

// About the daemons themselves, for logs and status. S may be NULL.
struct store_deaths {
	uint32_t restarts; // after deaths
	uint32_t upgrades;
	int64_t last_ms; // wall clock of the last death, 0 = none
	char reason[96]; // of the last death: "Segmentation fault at 0x10", "exit status 3"
};
void store_deaths(const struct store *s, struct store_deaths *d);

static inline uint32_t store_get(const uint32_t *w)
{
	return __atomic_load_n(w, __ATOMIC_ACQUIRE);
}
static inline void store_set(uint32_t *w, uint32_t v)
{
	__atomic_store_n(w, v, __ATOMIC_RELEASE);
}

#endif
