// SPDX-License-Identifier: Apache-2.0
#include "proto/buf.h"

#include <assert.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BUF_FIRST = 64 }; // the smallest allocation

void buf_init(struct buf *b, size_t max)
{
	*b = (struct buf){.max = max};
}

void buf_init_in(struct buf *b, void *mem, size_t n)
{
	*b = (struct buf){.mem = mem, .cap = n, .lent = true};
}

void buf_release(struct buf *b)
{
	if (!b)
		return;
	if (!b->lent)
		free(b->mem);
	buf_init(b, b->max);
}

void buf_reset(struct buf *b)
{
	b->off = 0;
	b->len = 0;
	b->fail = 0;
}

void buf_shrink(struct buf *b, size_t keep)
{
	if (b->len > 0 || b->cap <= keep || b->lent)
		return;
	b->off = 0;
	if (keep == 0) {
		free(b->mem);
		b->mem = NULL;
		b->cap = 0;
		return;
	}
	unsigned char *mem = realloc(b->mem, keep);
	if (mem) {
		b->mem = mem;
		b->cap = keep;
	}
}

int buf_failed(const struct buf *b)
{
	return b->fail;
}

const unsigned char *buf_data(const struct buf *b)
{
	return b->mem ? b->mem + b->off : (const unsigned char *)"";
}

size_t buf_len(const struct buf *b)
{
	return b->len;
}

static unsigned char *end_of(const struct buf *b)
{
	return b->mem + b->off + b->len;
}

// The most that is ever allocated. An eighth above the limit lets a full buffer that is consumed and refilled
// in small steps slide that far before its bytes move down, which keeps consuming O(1) amortised.
static size_t cap_limit(const struct buf *b)
{
	if (b->max == 0 || b->max >= PTRDIFF_MAX / 2)
		return PTRDIFF_MAX;
	return b->max + b->max / 8 + 1;
}

static void move_down(struct buf *b)
{
	if (b->off > 0 && b->len > 0)
		memmove(b->mem, b->mem + b->off, b->len);
	b->off = 0;
}

// At least NEED bytes, else -ENOMEM.
static int grow(struct buf *b, size_t need)
{
	size_t limit = cap_limit(b), cap = b->cap < BUF_FIRST / 2 ? BUF_FIRST : b->cap * 2;
	if (cap > limit)
		cap = limit;
	if (cap < need)
		cap = need;
	move_down(b);
	unsigned char *mem = realloc(b->lent ? NULL : b->mem, cap);
	if (!mem)
		return -ENOMEM;
	if (b->lent)
		memcpy(mem, b->mem, b->len);
	b->lent = false;
	b->mem = mem;
	b->cap = cap;
	return 0;
}

// True once N more bytes and a NUL fit at the end; else the failure is set.
static bool make_room(struct buf *b, size_t n)
{
	if (b->fail)
		return false;
	if (n >= PTRDIFF_MAX - b->len || (b->max > 0 && n > b->max - b->len)) {
		b->fail = -EMSGSIZE;
		return false;
	}
	size_t need = b->len + n + 1;
	if (need <= b->cap - b->off)
		return true;
	// Moving pays if at least as many bytes were consumed as have to move, and where growing is no choice.
	if (need <= b->cap && (b->off >= b->len || b->cap >= cap_limit(b))) {
		move_down(b);
		return true;
	}
	b->fail = grow(b, need);
	return !b->fail;
}

// True if N more bytes and a NUL fit as things are: what nearly every append finds, and so cheap enough not to count. (False for some that
// make_room has room for: an empty buffer's first bytes, the last one below a limit.)
static bool fits(const struct buf *b, size_t n)
{
	return !b->fail && n < b->cap - b->off - b->len && n < b->max - b->len;
}

void buf_append(struct buf *b, const void *p, size_t n)
{
	if (n == 0)
		return;
	uintptr_t at = (uintptr_t)p, mem = (uintptr_t)b->mem;
	assert(at + n <= mem || at >= mem + b->cap); // growing would pull the bytes away
	if (!fits(b, n) && !make_room(b, n))
		return;
	memcpy(end_of(b), p, n);
	b->len += n;
}

void buf_str(struct buf *b, const char *s)
{
	buf_append(b, s, strlen(s));
}

void buf_byte(struct buf *b, unsigned char c)
{
	if (!fits(b, 1) && !make_room(b, 1))
		return;
	*end_of(b) = c;
	b->len++;
}

static void append_digits(struct buf *b, bool minus, uint64_t v)
{
	char digits[24], *p = digits + sizeof(digits);
	do {
		*--p = (char)('0' + v % 10);
		v /= 10;
	} while (v > 0);
	if (minus)
		*--p = '-';
	buf_append(b, p, (size_t)(digits + sizeof(digits) - p));
}

char *buf_put_u64(char *to, uint64_t v)
{
	char digits[24], *p = digits + sizeof(digits);
	do
		*--p = (char)('0' + v % 10);
	while (v /= 10);
	return buf_put(to, p, (size_t)(digits + sizeof(digits) - p));
}

void buf_u64(struct buf *b, uint64_t v)
{
	append_digits(b, false, v);
}

void buf_i64(struct buf *b, int64_t v)
{
	append_digits(b, v < 0, v < 0 ? UINT64_C(0) - (uint64_t)v : (uint64_t)v);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	buf_vprintf(b, fmt, ap);
	va_end(ap);
}

void buf_vprintf(struct buf *b, const char *fmt, va_list ap)
{
	if (b->fail)
		return;
	va_list again;
	va_copy(again, ap);
	size_t room = b->cap - b->off - b->len;
	int n = vsnprintf(room > 0 ? (char *)end_of(b) : NULL, room, fmt, ap);
	bool whole = n >= 0 && (size_t)n < room;
	if (n < 0)
		b->fail = errno == ENOMEM ? -ENOMEM : -EMSGSIZE;
	else if (make_room(b, (size_t)n)) {
		// Room that sufficed did not move the bytes, so they are in place already.
		if (!whole)
			n = vsnprintf((char *)end_of(b), (size_t)n + 1, fmt, again);
		if (n < 0)
			b->fail = -ENOMEM;
		else
			b->len += (size_t)n;
	}
	va_end(again);
}

unsigned char *buf_reserve(struct buf *b, size_t n)
{
	return fits(b, n) || make_room(b, n) ? end_of(b) : NULL;
}

void buf_commit(struct buf *b, size_t n)
{
	if (n == 0)
		return;
	assert(n < b->cap - b->off - b->len);
	assert(b->max == 0 || n <= b->max - b->len);
	b->len += n;
}

void buf_consume(struct buf *b, size_t n)
{
	assert(n <= b->len);
	b->len -= n;
	b->off = b->len > 0 ? b->off + n : 0;
}

void buf_truncate(struct buf *b, size_t n)
{
	assert(n <= b->len);
	b->len = n;
	if (n == 0)
		b->off = 0;
}

char *buf_take(struct buf *b, size_t *n)
{
	char *s = NULL;
	size_t len = b->len;
	if (b->lent)
		b->fail = b->fail ? b->fail : grow(b, len + 1);
	if (buf_cstr(b)) {
		move_down(b);
		s = (char *)b->mem;
		s[len] = '\0';
		b->mem = NULL;
	}
	if (n)
		*n = s ? len : 0;
	buf_release(b);
	return s;
}

const char *buf_cstr(struct buf *b)
{
	if (!make_room(b, 0))
		return NULL;
	*end_of(b) = '\0';
	return (const char *)buf_data(b);
}
