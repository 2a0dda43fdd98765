// SPDX-License-Identifier: Apache-2.0
// files: surface B's files over REST (contract B 5.5 to 5.7). What its files share: files.c (query, signatures, users, paths), files_get.c
// (downloads), files_range.c (ranges and conditions), files_type.c (content types, names in headers), files_gzip.c, files_post.c
// (uploads: the request), files_put.c (uploads: one file), files_meta.c (metadata), files_compose.c. Nobody else includes it.
#ifndef CELLD_ENVD_FILES_H
#define CELLD_ENVD_FILES_H

#include "daemon/core/files.h"
#include "daemon/core/users.h"
#include "daemon/envd/envd.h"
#include "proto/buf.h"
#include "proto/err.h"
#include "proto/http.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <zlib.h>

// --- files.c ---

// A query's parameters, decoded. NULL: not there.
struct files_query {
	char *path, *username, *signature;
	bool has_expiration;
	int64_t expiration;
};
// Each function that takes an E returns 0, or -1 with E filled.
int files_query_parse(struct files_query *q, const struct http_head *head, struct err *e);
void files_query_release(struct files_query *q);
// The access token or a signature for OPERATION ("read", "write"; contract B 2.5).
int files_authorise(const struct envd *envd, const struct http_head *head, const struct files_query *q,
	const char *operation, struct err *e);
// The user NAME, NULL: the default one. OUT is the caller's.
int files_user(const struct envd *envd, const char *name, struct user *out, struct err *e);
// What went wrong as the C library says it, with a small first letter; TEXT is returned.
const char *files_text(int rc, char text[128]);
// The last name of PATH, borrowed from it.
const char *files_base(const char *path);
// Appends S as a JSON string as REST answers have it.
void files_put_json(struct buf *out, const char *s);

// --- files_range.c ---

struct files_range {
	int64_t from, len;
};
enum { FILES_RANGE_BAD = -1, FILES_RANGE_OUTSIDE = -2, FILES_RANGE_NOMEM = -3 };
// The ranges that HEADER asks of SIZE bytes: how many, in *OUT (free it), 0 = all of it; or one of the above.
int files_ranges(struct http_span header, int64_t size, struct files_range **out);
// The status that the request's conditions make of a 200: 200, 304 or 412. MTIME 0: not known.
int files_conditions(const struct http_head *head, int64_t mtime);
// False if If-Range makes the request one for all of the file.
bool files_if_range(const struct http_head *head, int64_t mtime);

// --- files_type.c ---

// By the extension of NAME, or NULL.
const char *files_type_of_name(const char *name);
// By the first N bytes (as many as 512).
const char *files_type_of_bytes(const unsigned char *p, size_t n);
// The line "Content-Disposition: inline; filename=..." for the last name of PATH.
void files_disposition(struct buf *out, const char *path);

// --- files_gzip.c ---

enum files_coding { FILES_IDENTITY, FILES_GZIP, FILES_NONE };
// What Accept-Encoding (P = NULL: absent) asks for; NONE if nothing that we have. *REFUSED: identity is.
enum files_coding files_accept(struct http_span header, bool *refused);
// A gzip stream to write.
struct files_gzip {
	z_stream z;
	gz_header header;
};
// 0 or -ENOMEM. Does not move afterwards.
int files_gzip_init(struct files_gzip *g);
// Compresses N bytes into OUT, whose failure sticks; LAST: these are the last.
void files_gzip_put(struct files_gzip *g, struct buf *out, const void *p, size_t n, bool last);
void files_gzip_release(struct files_gzip *g);
// True if N bytes at P, the beginning of a file, become smaller by more than a sixteenth.
bool files_gzip_gains(const void *p, size_t n);

// --- files_meta.c ---

enum { FILES_META_MAX = 4096 };
struct files_meta {
	char *keys[FILES_META_MAX / 9], *values[FILES_META_MAX / 9];
	size_t count;
};
// What X-Metadata-* headers say.
int files_meta_parse(struct files_meta *m, const struct http_head *head, struct err *e);
void files_meta_release(struct files_meta *m);
// Makes M the whole metadata of the file PATH. What a file system without attributes does not keep is no failure.
int files_meta_store(const struct files_meta *m, const char *path, struct err *e);
// Appends the object that PATH's metadata is, with its key: "metadata":{...}, -- nothing if there is none.
void files_meta_put(struct buf *out, const char *path);

// --- files_put.c ---

// One file being written.
struct files_put {
	struct files_writer *writer; // NULL: none
	char *path;
	int64_t announced; // bytes of the whole request, -1 if not known: for messages
};
// Begins the file PATH, which is taken, for U; SIZE: its bytes, -1 if not known. With E filled PATH is still set.
int files_put_open(struct files_put *p, char *path, int64_t size, const struct user *u, struct err *e);
int files_put_feed(struct files_put *p, const void *data, size_t n, struct err *e);
// All is there: 1 call again, 0 done (path is still set).
int files_put_commit(struct files_put *p, struct err *e);
// Also of one that is not finished: then it leaves nothing.
void files_put_release(struct files_put *p);

#endif
