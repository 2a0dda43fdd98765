// SPDX-License-Identifier: Apache-2.0
// Inflation: never more than was allowed, and the same whatever the cuts.
#include "tests/fuzz/fuzz.h"

#include "proto/gzip.h"

#include <string.h>

#define MAX_OUT ((size_t)64 * 1024)
#define ROOM ((size_t)512)

// 0 or the failure; at most MAX_OUT bytes are taken.
static int by_pieces(struct buf *out, const uint8_t *p, size_t n, size_t step)
{
	struct gunzip *g = gunzip_new();
	size_t at = 0;
	int rc = 0;
	FUZZ_CHECK(g);
	while (rc == 0 && buf_len(out) < MAX_OUT) {
		size_t used = 0, before = buf_len(out), len = step < n - at ? step : n - at;
		rc = gunzip_feed(g, p + at, len, &used, out, ROOM);
		FUZZ_CHECK(used <= len && buf_len(out) - before <= ROOM);
		at += used;
		if (at == n && buf_len(out) - before < ROOM)
			break;
	}
	if (rc == 0 && buf_len(out) < MAX_OUT)
		rc = gunzip_end(g);
	gunzip_free(g);
	return rc;
}

int fuzz_gzip(const uint8_t *p, size_t n)
{
	struct buf a = {0}, b = {0}, all = {0};
	struct err e;
	size_t step = 1 + fuzz_choice(&p, &n) % 7;
	int ra = by_pieces(&a, p, n, n ? n : 1), rb = by_pieces(&b, p, n, step);
	size_t common = buf_len(&a) < buf_len(&b) ? buf_len(&a) : buf_len(&b);
	FUZZ_CHECK(!common || memcmp(buf_data(&a), buf_data(&b), common) == 0);
	bool full = buf_len(&a) >= MAX_OUT || buf_len(&b) >= MAX_OUT;
	// What a call had inflated when it met damage is dropped.
	FUZZ_CHECK(full || (ra == rb && (ra < 0 || buf_len(&a) == buf_len(&b))));
	int rc = gunzip_all(&all, p, n, MAX_OUT, &e);
	FUZZ_CHECK(buf_len(&all) <= MAX_OUT);
	if (rc == 0 && n && !full)
		FUZZ_CHECK(ra == 0 && buf_len(&all) == buf_len(&a));
	buf_release(&a);
	buf_release(&b);
	buf_release(&all);
	return 0;
}
