// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/keep.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

// Two places: one is filled while the other stays valid, then TURN says which holds.
struct keep {
	size_t max;
	atomic_uint turn; // 0: nothing yet; odd: place 1, even: place 0
	size_t n[2];
	char bytes[]; // 2 * max, touched only where used
};

size_t keep_size(size_t max)
{
	return sizeof(struct keep) + 2 * max;
}

struct keep *keep_new(size_t max)
{
	void *p = mmap(NULL, keep_size(max), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	return keep_at(p, max);
}

struct keep *keep_at(void *p, size_t max)
{
	struct keep *k = p;
	if (k->max != max)
		atomic_store(&k->turn, 0);
	k->max = max;
	return k;
}

void keep_free(struct keep *k)
{
	if (k)
		munmap(k, keep_size(k->max));
}

int keep_put(struct keep *k, const void *p, size_t n)
{
	if (n > k->max)
		return -EMSGSIZE;
	unsigned next = atomic_load(&k->turn) + 1;
	if (next == 0)
		next = 2;
	size_t place = next % 2;
	memcpy(k->bytes + place * k->max, p, n);
	k->n[place] = n;
	atomic_store(&k->turn, next);
	return 0;
}

const void *keep_get(const struct keep *k, size_t *n)
{
	unsigned turn = atomic_load(&((struct keep *)(uintptr_t)k)->turn);
	if (turn == 0)
		return NULL;
	*n = k->n[turn % 2];
	if (*n > k->max)
		return NULL;
	return k->bytes + turn % 2 * k->max;
}
