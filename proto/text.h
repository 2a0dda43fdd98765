// SPDX-License-Identifier: Apache-2.0
// text: base64 (libb64 inside), UTF-8 repair, percent-decoding, query strings, constant-time compare.
// Pure functions over bytes; output goes into the caller's buf, whose sticky failure says out of memory.
#ifndef CELLD_PROTO_TEXT_H
#define CELLD_PROTO_TEXT_H

#include "proto/buf.h"

#include <stdbool.h>
#include <stddef.h>

// Characters of the base64 of N bytes, padding included (RFC 4648 section 4, no line breaks).
size_t text_b64_len(size_t n);
// Appends the base64 of N bytes, one line, padded.
void text_b64_encode(struct buf *out, const void *p, size_t n);
// Appends the bytes of a padded base64 text. Strict: only the alphabet, length a multiple of four,
// '=' only as padding; nothing is skipped. 0, -EINVAL (out unchanged), or the buf's failure.
int text_b64_decode(struct buf *out, const char *p, size_t n);

// A UTF-8 sequence cut at the end of the last piece, held back until the next one.
struct text_tail {
	unsigned char held[4];
	unsigned n;
};
// Appends N bytes as valid UTF-8: each maximal invalid subpart becomes U+FFFD (Unicode 3.9, W3C practice),
// a cut sequence is held in TAIL. FINAL: what is held becomes U+FFFD. The result does not depend on how
// the bytes were cut. *BAD (may be NULL) becomes true if anything was replaced, else stays.
void text_utf8_repair(struct buf *out, struct text_tail *tail, const void *p, size_t n, bool final, bool *bad);
// True if the N bytes are valid UTF-8 (no overlong forms, no surrogates, at most U+10FFFF).
bool text_utf8_valid(const void *p, size_t n);

enum text_percent_flags {
	TEXT_PLUS_IS_SPACE = 1 << 0, // as in a query
	TEXT_LENIENT = 1 << 1,       // an escape that is none stands for itself instead of -EINVAL
	TEXT_NUL_OK = 1 << 2,        // else %00 and a raw NUL are -EINVAL
};
// Appends the decoded bytes. 0, -EINVAL (out unchanged), or the buf's failure.
int text_percent_decode(struct buf *out, const char *p, size_t n, unsigned flags);
// Appends the bytes percent-encoded: all but unreserved characters (RFC 3986 2.3) and '/'.
void text_percent_encode(struct buf *out, const void *p, size_t n);
// Finds the first KEY in the query of N bytes (without '?') and appends its decoded value ('+' is a space;
// FLAGS as above, PLUS_IS_SPACE implied). 1 found (a key without '=' has the empty value), 0 absent, -EINVAL.
int text_query_get(struct buf *out, const char *query, size_t n, const char *key, unsigned flags);
// The same, but finds the raw value without decoding it: 1 and *P, *LEN set, or 0.
int text_query_raw(const char *query, size_t n, const char *key, const char **p, size_t *len);

// True if both texts are equal; the time taken depends on the lengths only.
bool text_equal_ct(const char *a, size_t an, const char *b, size_t bn);
// A decimal integer of N bytes, all of them, optional '-', within MIN..MAX: 0, or -EINVAL / -ERANGE.
int text_int(const char *p, size_t n, long long min, long long max, long long *out);

#endif
