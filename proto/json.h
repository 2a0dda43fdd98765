// SPDX-License-Identifier: Apache-2.0
// json: a reader over jansson with typed getters that fill a struct err, and a writer straight into a buf.
// jsonr_parse's document belongs to the caller (jsonr_free); strings from getters are borrowed from it.
// The reader bounds what jansson may allocate for one document, since a small text can make a large tree.
#ifndef CELLD_PROTO_JSON_H
#define CELLD_PROTO_JSON_H

#include "proto/buf.h"
#include "proto/err.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

// --- reading ---

// Parses one JSON object (duplicate keys refused, \u0000 allowed in values). NULL with E filled: text that is
// no JSON object is invalid_argument "invalid json"; a tree over 8 bytes a byte of text plus 1 MiB is 413; out of memory
// is 503 resource_exhausted.
json_t *jsonr_parse(const void *p, size_t n, struct err *e);
// The same with a tree of any size: for whoever is asked to hold it, as a client is by its own daemon.
json_t *jsonr_parse_trusted(const void *p, size_t n, struct err *e);
void jsonr_free(json_t *doc);

enum jsonr_flags {
	JSONR_REQUIRED = 1 << 0, // absent, null or empty string is the error "KEY required"
	JSONR_NUL_OK = 1 << 1,   // else a NUL inside a string is an error
};
// Each getter returns 1 with the value set, 0 if the key is absent or null (value untouched), -1 with E filled
// ("KEY must be a string", ...). Strings are NUL-terminated; *N (may be NULL) is their length in bytes.
int jsonr_str(const json_t *obj, const char *key, unsigned flags, const char **s, size_t *n, struct err *e);
// Integers also come as integral reals (5.0); else, or outside MIN..MAX, an error.
int jsonr_int(const json_t *obj, const char *key, unsigned flags, int64_t min, int64_t max, int64_t *v, struct err *e);
int jsonr_num(const json_t *obj, const char *key, unsigned flags, double min, double max, double *v, struct err *e);
int jsonr_bool(const json_t *obj, const char *key, unsigned flags, bool *v, struct err *e);
int jsonr_obj(const json_t *obj, const char *key, unsigned flags, const json_t **v, struct err *e);

// --- writing ---

// A writer keeps only where commas go: one bit a level, at most 63 levels (deeper is an assert).
struct jsonw {
	struct buf *out;
	uint64_t first; // private: bit d set = nothing yet at level d
	unsigned depth; // private
	bool after_key; // private
	bool ascii;     // set it after jsonw_init: what is beyond U+007F is written as \uXXXX
	bool html;      // the same way: '<', '>', '&', U+2028 and U+2029 are written as \uXXXX (Go's encoding/json)
	bool spaced;    // the same way: a blank follows each comma
};
void jsonw_init(struct jsonw *w, struct buf *out);
void jsonw_obj(struct jsonw *w);
void jsonw_obj_end(struct jsonw *w);
void jsonw_arr(struct jsonw *w);
void jsonw_arr_end(struct jsonw *w);
void jsonw_key(struct jsonw *w, const char *key);
// Writes a string: control characters, '"' and '\' escaped, invalid UTF-8 as U+FFFD. NUL is \u0000.
void jsonw_str(struct jsonw *w, const void *p, size_t n);
// A piece of a string's inside, escaped: for one that comes in pieces and is put together by the caller. Whole characters only.
void jsonw_inside(struct buf *out, const void *p, size_t n);
// True if the N bytes are ASCII that nobody escapes, html or not.
bool jsonw_plain(const void *p, size_t n);
void jsonw_cstr(struct jsonw *w, const char *s);
void jsonw_b64(struct jsonw *w, const void *p, size_t n);
void jsonw_int(struct jsonw *w, int64_t v);
void jsonw_num(struct jsonw *w, double v); // finite; shortest form that reads back the same
void jsonw_bool(struct jsonw *w, bool v);
void jsonw_null(struct jsonw *w);
// The bytes of a value that is JSON already.
void jsonw_raw(struct jsonw *w, const void *p, size_t n);
// Key and value in one, for the common cases.
void jsonw_kstr(struct jsonw *w, const char *key, const char *s);
void jsonw_kint(struct jsonw *w, const char *key, int64_t v);
void jsonw_kbool(struct jsonw *w, const char *key, bool v);

// Surface A's error body (contract A section 1): {"error","code","retryable"} plus "errno" and "reason" when set.
void json_error_body(struct buf *out, const struct err *e);
// The same object as a value of W.
void jsonw_error(struct jsonw *w, const struct err *e);

#endif
