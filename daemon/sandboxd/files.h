// SPDX-License-Identifier: Apache-2.0
// files: what the handlers of /files share: paths of requests, owners, and how an entry looks in an answer.
#ifndef CELLD_SANDBOXD_FILES_H
#define CELLD_SANDBOXD_FILES_H

#include "daemon/core/files.h"
#include "daemon/sandboxd/sandboxd.h"

#include <sys/stat.h>

// The member KEY of a request as an absolute path, or KEY_b64, for a name that is not UTF-8. *PATH is the caller's. 0, or -1 with E filled ("KEY
// required"). *ASKED, unless it is NULL, is the path as it was asked for (the caller's too).
int files_body_path(
	const struct sandboxd *s, const json_t *doc, const char *key, char **path, char **asked, struct err *e);
// The query's path (contract A section 1: what does not exist decoded but does undecoded means the latter). 1 and *PATH, the
// caller's; 0 if it has none or an empty one, -1 with E filled.
int files_query_path(const struct sandboxd *s, const struct conn *c, char **path, struct err *e);
// The query's KEY, decoded, appended to OUT: 1, 0 if there is none, -1 with E filled.
int files_query(const struct conn *c, const char *key, struct buf *out, struct err *e);
// Who owns what is made. 0, or -1 with E filled.
int files_owner(const struct sandboxd *s, struct files_owner *owner, struct err *e);
// Fills E for a file PATH that could not be opened to read or write. Returns -1.
int files_error(struct err *e, int rc, const char *path);

// Writes KEY, and KEY_b64 beside it if the N bytes are not UTF-8.
void files_put_name(struct jsonw *w, const char *key, const char *s, size_t n);
// "file", "dir", "symlink" or "other".
const char *files_type(mode_t mode);
// The permissions in octal digits, somewhere in TEXT.
enum { FILES_MODE = 8 };
const char *files_mode(char text[static FILES_MODE], mode_t mode);
// Writes mode, uid and gid.
void files_put_owner(struct jsonw *w, const struct stat *st);
// Writes symlink_target: of the link NAME of the directory AT, "" for anything else.
void files_put_target(struct jsonw *w, mode_t mode, int at, const char *name);

#endif
