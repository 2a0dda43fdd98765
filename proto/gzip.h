// SPDX-License-Identifier: Apache-2.0
// gzip: bounded inflation of RFC 1952 data over zlib: of a stream piece by piece, of a body at once. Several members
// count as one. Whoever calls says how many bytes may come out, since a small input can make a thousand times as many.
#ifndef CELLD_PROTO_GZIP_H
#define CELLD_PROTO_GZIP_H

#include "proto/buf.h"
#include "proto/err.h"

#include <stddef.h>

struct gunzip;

// NULL if out of memory.
struct gunzip *gunzip_new(void);
void gunzip_free(struct gunzip *g);
// Inflates the N bytes at P into OUT until all are taken or ROOM bytes (> 0) have come out; *USED says how many were
// taken. What zlib still holds back comes with the next call, which may be for no bytes. 0; -EINVAL: no gzip header
// where one must be; -EBADMSG: damaged data; -ENOMEM, or OUT's failure. A failure stays.
int gunzip_feed(struct gunzip *g, const void *p, size_t n, size_t *used, struct buf *out, size_t room);
// The input is over and all was taken: 0; -EINVAL: there was none, or less than a header; -EBADMSG: it is cut.
int gunzip_end(const struct gunzip *g);

// Appends all of the N bytes at P to OUT, which then holds at most MAX bytes more. 0, or -1 with E filled: not gzip or damaged is
// invalid_argument (contract B 1.5), too much is resource_exhausted. OUT is unchanged then. No bytes stay no bytes.
int gunzip_all(struct buf *out, const void *p, size_t n, size_t max, struct err *e);

#endif
