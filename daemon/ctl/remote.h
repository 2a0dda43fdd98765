// SPDX-License-Identifier: Apache-2.0
// remote: files of the sandbox over surface A. Paths are bytes: they go in base64. Everything fails with E filled.
#ifndef CELLD_DAEMON_CTL_REMOTE_H
#define CELLD_DAEMON_CTL_REMOTE_H

#include "daemon/ctl/http_client.h"

#include <stdbool.h>
#include <stddef.h>

struct ctl;

enum remote_type { REMOTE_MISSING, REMOTE_FILE, REMOTE_DIR, REMOTE_OTHER };

struct remote_entry {
	enum remote_type type;
	unsigned mode;
	long long size;
	char *path; // links followed, the caller's
};

// /files/stat's object, the caller's, or NULL; TEXT (may be NULL) gets it as it came.
json_t *remote_stat(const struct ctl *ctl, const char *path, struct buf *text, struct err *e);
// What PATH is once its links are followed; that it is missing is no failure. 0 or -1.
int remote_look(const struct ctl *ctl, const char *path, struct remote_entry *entry, struct err *e);
// N bytes to a file's end; FIRST: it is made, or emptied. Whole or not at all. 0 or -1; a status of 413: less at once.
int remote_append(struct http_client *c, const char *path, const void *p, size_t n, bool first, struct err *e);
int remote_move(struct http_client *c, const char *from, const char *to, struct err *e);
int remote_remove(struct http_client *c, const char *path, struct err *e);
// A short command of the shell's: 0 if it exits with 0.
int remote_run(struct http_client *c, const char *command, struct err *e);

#endif
