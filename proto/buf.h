// SPDX-License-Identifier: Apache-2.0
// buf: growable bytes with a consumed offset, a hard limit and a sticky failure.
// The owner calls buf_init and buf_release; a zeroed struct buf is a valid empty one without a limit.
// After a failure (out of memory, over the limit) every append is ignored until buf_reset, so that an
// encoder is a straight line of appends and asks buf_failed once at its end.
// This is the only place that sizes memory from what a client sent. Knows no system call.
#ifndef CELLD_PROTO_BUF_H
#define CELLD_PROTO_BUF_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct buf {
	unsigned char *mem; // private: the allocation, NULL while empty
	size_t off;         // private: bytes consumed at the front
	size_t len;         // private: bytes after off
	size_t cap;         // private: bytes allocated
	size_t max;         // limit for len; 0 = none
	int fail;           // private: 0, -ENOMEM or -EMSGSIZE
	bool lent;          // private: mem is the caller's
};

// Makes B empty with at most MAX unconsumed bytes (0 = no limit). Allocates nothing.
void buf_init(struct buf *b, size_t max);
// As buf_init, but the first bytes, fewer than N, go into MEM, the caller's, that is there as long as B is used: a small one costs no allocation.
void buf_init_in(struct buf *b, void *mem, size_t n);
// Frees the bytes; B is then empty and usable again with the same limit. NULL is allowed.
void buf_release(struct buf *b);
// Drops the bytes and the failure, keeps the allocation.
void buf_reset(struct buf *b);
// Gives memory above KEEP bytes back when B is empty; otherwise does nothing.
void buf_shrink(struct buf *b, size_t keep);

// 0, or the sticky -ENOMEM / -EMSGSIZE of the first append that failed.
int buf_failed(const struct buf *b);
// The unconsumed bytes and their count. Valid until the next call that is not const. Never NULL.
const unsigned char *buf_data(const struct buf *b);
size_t buf_len(const struct buf *b);

// Appends; on failure nothing of the piece is appended and the failure sticks.
void buf_append(struct buf *b, const void *p, size_t n);
void buf_str(struct buf *b, const char *s);
void buf_byte(struct buf *b, unsigned char c);
void buf_u64(struct buf *b, uint64_t v); // decimal digits
void buf_i64(struct buf *b, int64_t v);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void buf_vprintf(struct buf *b, const char *fmt, va_list ap) __attribute__((format(printf, 2, 0)));
// Appends a string literal, its length taken from the literal.
#define BUF_LIT(b, lit) buf_append((b), "" lit, sizeof(lit) - 1)

// Room for N more bytes at the end, or NULL with the failure set. buf_commit then says how many were
// written (at most N). Nothing else may be called on B in between.
unsigned char *buf_reserve(struct buf *b, size_t n);
void buf_commit(struct buf *b, size_t n);
// Into room that is known to suffice, for what is written thousands of times in an answer: where the bytes end.
static inline char *buf_put(char *to, const void *p, size_t n)
{
	memcpy(to, p, n);
	return to + n;
}
#define BUF_PUT(to, lit) buf_put((to), "" lit, sizeof(lit) - 1)
char *buf_put_u64(char *to, uint64_t v); // decimal digits, at most 20
// Drops N bytes at the front (N <= buf_len). O(1) amortised.
void buf_consume(struct buf *b, size_t n);
// Shortens to N bytes (N <= buf_len).
void buf_truncate(struct buf *b, size_t n);
// Hands the bytes to the caller (free() it), NUL-terminated beyond *N (N may be NULL); B becomes empty.
// NULL on failure; B is empty then too.
char *buf_take(struct buf *b, size_t *n);
// Appends a NUL that does not count in buf_len and returns the bytes as a C string, or NULL on failure.
// Valid as buf_data is. The bytes may contain NULs of their own: the caller has checked.
const char *buf_cstr(struct buf *b);

#endif
