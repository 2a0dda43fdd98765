// SPDX-License-Identifier: Apache-2.0
// bulk: what the measurements of files share: contents that can be checked byte by byte, trees, the plainest servers of files,
// and how much memory a target took at its peak.
#ifndef CELLD_TESTS_BENCH_BULK_H
#define CELLD_TESTS_BENCH_BULK_H

#include "tests/bench/bench.h"
#include "tests/bench/wire.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// Of one read or write, of the floors and of us.
#define BULK_PIECE ((size_t)64 * 1024)

// The contents: noise whose period is no power of two, so that bytes at a wrong offset are wrong bytes.
struct bulk {
	unsigned char *noise; // private
	unsigned char *piece; // BULK_PIECE bytes to read into
};
bool bulk_init(struct bulk *k); // false: no memory
void bulk_release(struct bulk *k);
// BULK_PIECE bytes of the contents from OFFSET on.
const unsigned char *bulk_at(const struct bulk *k, uint64_t offset);
bool bulk_right(const struct bulk *k, const void *p, size_t n, uint64_t offset);
// Writes a new file of BYTES; 0, or -1 with errno.
int bulk_file_make(const struct bulk *k, const char *path, uint64_t bytes);
// True if the file has exactly these BYTES.
bool bulk_file_right(struct bulk *k, const char *path, uint64_t bytes);

// A connection to T, or if it is NULL to the floor on PORT, that waits a minute where others wait ten seconds. 0 or negative
// errno; wire_close it whatever comes.
int bulk_open(struct wire *w, const struct target *t, int port);

#define BULK_ENTRIES 10000    // in the directory that is listed
#define BULK_TREE_FILES 50000 // in the tree that is removed
// A directory with FILES empty files, 100 in each directory below it (FLAT: in itself); 0 or -1 with errno.
int bulk_tree_make(const char *dir, unsigned files, bool flat);

// Servers for one connection, in a process of their own; their pid, for bench_kill. One takes one upload into the new file
// PATH, one sends the file PATH.
pid_t bulk_floor_take(const char *path, int *port);
pid_t bulk_floor_give(const char *path, int *port);
// nginx with ROOT as its root; its own files are in DIR. -1 if there is none.
pid_t bulk_floor_nginx(const char *dir, const char *root, int *port);

// A process that reads IN and writes what it gets into a connection, of which *OUT is our end: the least there can be between the two. Its pid,
// or -1.
pid_t bulk_floor_relay(int in, int *out);

// How much more memory T's processes have taken, at most, since bulk_peak_begin: KiB, summed; negative: not known.
double bulk_peak_begin(const struct target *t); // what they have; give it to bulk_peak
double bulk_peak(const struct target *t, double before);

#endif
