// SPDX-License-Identifier: Apache-2.0
// feed: hands an input to an incremental parser, cut into pieces. Every parser test runs at each chunk size.
#ifndef CELLD_UNIT_FEED_H
#define CELLD_UNIT_FEED_H

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

// Chunk sizes are 0 .. FEED_SIZES - 1; 0 = whole. For tcase_add_loop_test and for-loops.
enum { FEED_SIZES = 6 };

// Calls TAKE(ARG, piece, length) for N bytes at P in pieces of CHUNK; for no bytes at all, once with length 0. Each
// piece is a block of its own size, gone after the call, so that a sanitizer sees reads beyond it and pointers kept
// into it. Stops at the first result that is not 0 and returns it; -ENOMEM if a block cannot be had.
static inline int feed(const void *p, size_t n, size_t chunk,
	int (*take)(void *arg, const unsigned char *piece, size_t len), void *arg)
{
	size_t at = 0;
	int rc;
	do {
		size_t len = chunk > 0 && chunk < n - at ? chunk : n - at;
		unsigned char *piece = malloc(len > 0 ? len : 1);
		if (!piece)
			return -ENOMEM;
		if (len > 0)
			memcpy(piece, (const unsigned char *)p + at, len);
		rc = take(arg, piece, len);
		free(piece);
		at += len;
	} while (rc == 0 && at < n);
	return rc;
}

#endif
