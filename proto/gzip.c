// SPDX-License-Identifier: Apache-2.0
#include "proto/gzip.h"

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#define ZLIB_CONST
#include <zlib.h>

enum {
	CHUNK = 16 * 1024,
	WINDOW = MAX_WBITS + 16, // + 16: gzip and nothing else
};

struct gunzip {
	z_stream z;
	bool within; // a member has begun and has not ended
	bool body;   // its header is complete
	int fail;
	gz_header header;
};

struct gunzip *gunzip_new(void)
{
	struct gunzip *g = calloc(1, sizeof(*g));
	if (!g)
		return NULL;
	if (inflateInit2(&g->z, WINDOW) != Z_OK || inflateGetHeader(&g->z, &g->header) != Z_OK) {
		gunzip_free(g);
		return NULL;
	}
	g->fail = -ENODATA;
	return g;
}

void gunzip_free(struct gunzip *g)
{
	if (!g)
		return;
	inflateEnd(&g->z);
	free(g);
}

static int next_member(struct gunzip *g)
{
	g->within = g->body = false;
	g->header = (gz_header){.done = 0};
	return inflateReset(&g->z) == Z_OK && inflateGetHeader(&g->z, &g->header) == Z_OK ? 0 : -EINVAL;
}

// One call of inflate. Negative for a failure; else how many bytes came out, and *IDLE if nothing moved.
static long step(struct gunzip *g, unsigned char *to, size_t room, bool *idle)
{
	uInt in = g->z.avail_in;
	g->z.next_out = to;
	g->z.avail_out = (uInt)room;
	int rc = inflate(&g->z, Z_NO_FLUSH);
	long n = (long)(room - g->z.avail_out);
	*idle = n == 0 && in == g->z.avail_in;
	g->within = g->within || in > g->z.avail_in;
	g->body = g->body || g->header.done == 1;
	if (rc == Z_STREAM_END)
		return next_member(g) < 0 ? -EINVAL : n;
	if (rc == Z_MEM_ERROR)
		return -ENOMEM;
	if (rc != Z_OK && rc != Z_BUF_ERROR)
		return g->body ? -EBADMSG : -EINVAL;
	return n;
}

int gunzip_feed(struct gunzip *g, const void *p, size_t n, size_t *used, struct buf *out, size_t room)
{
	unsigned char chunk[CHUNK];
	const unsigned char *s = p;
	*used = 0;
	if (g->fail && g->fail != -ENODATA)
		return g->fail;
	if (n > 0)
		g->fail = 0;
	while (room > 0) {
		size_t left = n - *used, some = left < UINT_MAX ? left : UINT_MAX;
		bool idle;
		g->z.next_in = s + *used;
		g->z.avail_in = (uInt)some;
		// Between two members zlib would take the lack of bytes for a fault.
		if (some == 0 && !g->within)
			return 0;
		long got = step(g, chunk, room < CHUNK ? room : CHUNK, &idle);
		if (got < 0)
			return g->fail = (int)got;
		*used += some - g->z.avail_in;
		buf_append(out, chunk, (size_t)got);
		room -= (size_t)got;
		if (buf_failed(out))
			return g->fail = buf_failed(out);
		if (idle)
			return 0;
	}
	return 0;
}

int gunzip_end(const struct gunzip *g)
{
	if (g->fail)
		return g->fail == -ENODATA ? -EINVAL : g->fail;
	if (!g->within)
		return 0;
	return g->body ? -EBADMSG : -EINVAL;
}

static int inflate_all(struct buf *out, const void *p, size_t n, size_t max)
{
	struct gunzip *g = gunzip_new();
	size_t used, mark = buf_len(out);
	if (!g)
		return -ENOMEM;
	int rc = gunzip_feed(g, p, n, &used, out, max < SIZE_MAX ? max + 1 : max);
	if (rc == 0 && buf_len(out) - mark > max)
		rc = -EMSGSIZE;
	if (rc == 0)
		rc = gunzip_end(g);
	gunzip_free(g);
	if (rc < 0)
		buf_truncate(out, mark);
	return rc;
}

int gunzip_all(struct buf *out, const void *p, size_t n, size_t max, struct err *e)
{
	int rc = n > 0 ? inflate_all(out, p, n, max) : buf_failed(out);
	switch (rc) {
	case 0:
		return 0;
	case -EINVAL:
		return err_set(e, ERR_INVALID_ARGUMENT, "get decompressor: gzip: invalid header");
	case -EBADMSG:
		return err_set(e, ERR_INVALID_ARGUMENT, "decompress: gzip: damaged or cut short");
	case -EMSGSIZE:
		return err_set(e, ERR_RESOURCE_EXHAUSTED, "message size is larger than configured max %zu", max);
	default:
		return err_sys(e, rc, "decompress");
	}
}
