// SPDX-License-Identifier: Apache-2.0
// Which coding a client takes, and gzip in pieces.
#include "daemon/envd/files.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

// Level 1: three times as fast as 6 (70 MB/s, which the network of a sandbox easily does), for an eighth more bytes.
enum { CODINGS_MAX = 32, GZIP_WINDOW = 15 + 16, GZIP_LEVEL = 1, GZIP_MEMORY = 8 };
#define GZIP_PIECE ((size_t)16 * 1024)

struct coding {
	struct http_span name;
	double q;
};

// The part of *S up to C, which is taken off it together with C.
static struct http_span cut(struct http_span *s, char c)
{
	const char *end = memchr(s->p, c, s->n);
	size_t n = end ? (size_t)(end - s->p) : s->n;
	struct http_span head = {s->p, n};
	n += end != NULL;
	s->p += n;
	s->n -= n;
	return http_span_trim(head);
}

// The q among the parameters; 1 if there is none that can be read.
static double quality(struct http_span params)
{
	while (params.n > 0) {
		struct http_span p = cut(&params, ';');
		char text[16], *end;
		if (p.n < 3 || p.n - 2 >= sizeof text || strncasecmp(p.p, "q=", 2) != 0)
			continue;
		memcpy(text, p.p + 2, p.n - 2);
		text[p.n - 2] = '\0';
		double q = strtod(text, &end);
		return end > text && !*end ? q : 1;
	}
	return 1;
}

// The header's codings, the best first, equals in their order. Returns how many.
static size_t codings(struct http_span header, struct coding list[CODINGS_MAX])
{
	size_t count = 0;
	while (header.n > 0 && count < CODINGS_MAX) {
		struct http_span params = cut(&header, ',');
		struct coding c = {.name = cut(&params, ';')};
		c.q = quality(params);
		if (c.name.n == 0)
			continue;
		size_t at = count++;
		for (; at > 0 && list[at - 1].q < c.q; at--)
			list[at] = list[at - 1];
		list[at] = c;
	}
	return count;
}

static bool identity_refused(const struct coding *list, size_t count)
{
	bool refused = false;
	for (size_t i = 0; i < count; i++) {
		if (http_span_is_nocase(list[i].name, "identity"))
			return list[i].q <= 0;
		if (http_span_is(list[i].name, "*") && list[i].q <= 0)
			refused = true;
	}
	return refused;
}

enum files_coding files_accept(struct http_span header, bool *refused)
{
	struct coding list[CODINGS_MAX];
	size_t count = header.p ? codings(header, list) : 0;
	*refused = identity_refused(list, count);
	for (size_t i = 0; i < count && list[i].q > 0; i++) {
		if (http_span_is_nocase(list[i].name, "gzip"))
			return FILES_GZIP;
		if (http_span_is_nocase(list[i].name, "identity"))
			return FILES_IDENTITY;
		if (http_span_is(list[i].name, "*"))
			return *refused ? FILES_GZIP : FILES_IDENTITY;
	}
	return *refused ? FILES_NONE : FILES_IDENTITY;
}

// --- compressing ---

int files_gzip_init(struct files_gzip *g)
{
	// Nothing about this machine: no time, no name, system "unknown".
	*g = (struct files_gzip){.header = {.os = 255}};
	if (deflateInit2(&g->z, GZIP_LEVEL, Z_DEFLATED, GZIP_WINDOW, GZIP_MEMORY, Z_DEFAULT_STRATEGY) != Z_OK)
		return -ENOMEM;
	(void)deflateSetHeader(&g->z, &g->header);
	return 0;
}

void files_gzip_put(struct files_gzip *g, struct buf *out, const void *p, size_t n, bool last)
{
	z_stream *z = &g->z;
	int rc;
	z->next_in = (unsigned char *)(uintptr_t)p; // zlib does not write to it
	z->avail_in = (unsigned)n;
	do {
		unsigned char *to = buf_reserve(out, GZIP_PIECE);
		if (!to)
			return;
		z->next_out = to;
		z->avail_out = (unsigned)GZIP_PIECE;
		rc = deflate(z, last ? Z_FINISH : Z_NO_FLUSH);
		assert(rc == Z_OK || rc == Z_STREAM_END || rc == Z_BUF_ERROR);
		buf_commit(out, GZIP_PIECE - z->avail_out);
	} while (z->avail_out == 0 && rc != Z_STREAM_END);
}

void files_gzip_release(struct files_gzip *g)
{
	(void)deflateEnd(&g->z);
}

bool files_gzip_gains(const void *p, size_t n)
{
	uLongf len = compressBound(n);
	unsigned char *to = malloc(len);
	// Whoever has no memory for this finds out about the rest.
	bool gains = !to || compress2(to, &len, p, n, Z_BEST_SPEED) != Z_OK || len < n - n / 16;
	free(to);
	return gains;
}
