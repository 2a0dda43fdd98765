// SPDX-License-Identifier: Apache-2.0
// json_scan: a large string in a JSON document, without a tree of it: finds where one member of the top-level object is, and decodes
// it piece by piece. What json_scan leaves over (the document with that string replaced by "") is for jsonr_parse, which is
// the judge of its syntax; the inside of the string is judged by json_unescape. Both take any pieces. Values: nothing to free.
#ifndef CELLD_PROTO_JSON_SCAN_H
#define CELLD_PROTO_JSON_SCAN_H

#include "proto/buf.h"
#include "proto/text.h"

#include <stdbool.h>
#include <stddef.h>

enum { JSON_SCAN_KEY_MAX = 96 }; // bytes of a key as it is written, its quotes left out

struct json_scan {
	const char *key;              // ASCII letters
	bool found;                   // the member is there and is a string
	size_t from, to;              // found: the inside of the string, without its quotes
	size_t at;                    // private from here: bytes so far
	size_t depth;                 // open brackets
	size_t start;                 // of the string that is or was read last
	bool in_string, escaped;      // at the next byte
	bool was_string;              // the last token
	bool is_value;                // the next token is the member's value
	char name[JSON_SCAN_KEY_MAX]; // the string that is or was read last, as far as it fits
	size_t name_n;
};

// KEY is borrowed.
void json_scan_init(struct json_scan *s, const char *key);
// Takes the next N bytes. Cannot fail: of a document that is not JSON the result means nothing.
void json_scan_feed(struct json_scan *s, const char *p, size_t n);

struct json_unescape {
	struct text_tail tail;
	char escape[12]; // an escape (or pair of them) that is not complete yet
	size_t n;
};

// Appends what the next N bytes of a string's inside stand for; U is zeroed at first. 0, -EINVAL for what RFC 8259 does not allow
// there (also: invalid UTF-8, half of a surrogate pair), or the buf's failure.
int json_unescape(struct json_unescape *u, struct buf *out, const char *p, size_t n);
// The string is over: 0, or -EINVAL if it ends within something.
int json_unescape_end(const struct json_unescape *u);

#endif
