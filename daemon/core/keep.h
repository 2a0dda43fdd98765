// SPDX-License-Identifier: Apache-2.0
// keep: some bytes that outlive a crash of the daemon, in memory it shares with the init part. Made before the fork; the last
// thing that was put whole is what a new daemon gets. Must not know what the bytes mean.
#ifndef CELLD_CORE_KEEP_H
#define CELLD_CORE_KEEP_H

#include <stddef.h>

struct keep;

// For at most MAX bytes, in memory of its own. NULL when out of memory.
struct keep *keep_new(size_t max);
void keep_free(struct keep *k);
// The same in memory that somebody else shares, keep_size(MAX) bytes of it, zero or as an earlier daemon left it; not to be freed. What stands
// there for another MAX is forgotten.
size_t keep_size(size_t max);
struct keep *keep_at(void *p, size_t max);
// Replaces what is kept. 0 or -EMSGSIZE (the old stays).
int keep_put(struct keep *k, const void *p, size_t n);
// What is kept, *N bytes of it, borrowed until the next put; NULL if nothing was put yet.
const void *keep_get(const struct keep *k, size_t *n);

#endif
