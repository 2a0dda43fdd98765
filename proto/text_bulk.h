// SPDX-License-Identifier: Apache-2.0
// text_bulk: base64 for much at once. Each function does as many whole groups (3 bytes, 4 characters) from the beginning as it likes; the
// rest, padding and all complaints are the caller's (text.c, by libb64), to whose results these are equal.
#ifndef CELLD_PROTO_TEXT_BULK_H
#define CELLD_PROTO_TEXT_BULK_H

#include <stddef.h>

// How it is done: the fastest that this processor has, or one of them for tests and measurements.
enum text_bulk { TEXT_BULK_BEST, TEXT_BULK_WORDS, TEXT_BULK_AVX2 };

// Encodes from SRC, N bytes, to DST (text_b64_len(N) characters of room). Returns how many groups it did: 0 if HOW is not to be had.
size_t text_bulk_encode(enum text_bulk how, char *dst, const unsigned char *src, size_t n);
// Decodes from SRC, N characters, to DST (N / 4 * 3 bytes of room, of which those behind the result are undefined). Stops before the first
// group that holds anything but the alphabet. Returns how many groups it did.
size_t text_bulk_decode(enum text_bulk how, unsigned char *dst, const char *src, size_t n);

#endif
