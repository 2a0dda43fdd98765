// SPDX-License-Identifier: Apache-2.0
// http_head: what a head must be beyond the grammar that llhttp checks. For http.c alone.
#ifndef CELLD_PROTO_HTTP_HEAD_H
#define CELLD_PROTO_HTTP_HEAD_H

#include "proto/buf.h"
#include "proto/err.h"
#include "proto/http.h"

#include <stdbool.h>

// Fills E for an HTTP status that refuses a message. Returns -1.
int http_refuse(struct err *e, int status, const char *what);
// Checks HEAD, of which llhttp has set method, target and headers, and whose bytes are RAW, and fills in the rest.
// HAS_BODY is false if the body is left out whatever the headers say. 0, or -1 with E filled.
int http_head_check(struct http_head *head, enum http_kind kind, const struct buf *raw, bool has_body, struct err *e);
// How many of the N bytes at the front are inside a line, as far as eight at a time tell: all but control characters.
size_t http_text_run(const char *p, size_t n);

#endif
