// SPDX-License-Identifier: Apache-2.0
// envd: surface B (contract B): parse, call the core, encode. What its handlers share; owned by the daemon.
#ifndef CELLD_ENVD_ENVD_H
#define CELLD_ENVD_ENVD_H

#include "daemon/config.h"
#include "daemon/core/env.h"
#include "daemon/core/proc.h"
#include "daemon/core/slice.h"
#include "daemon/core/users.h"
#include "daemon/core/watch.h"
#include "daemon/net/route.h"

#include <stdbool.h>
#include <stddef.h>

struct control;
struct keep;

// All borrowed; the handlers' context.
struct envd {
	const struct config *config;
	struct procs *procs;
	struct users *users;
	struct slices *slices;
	struct watches *watches;
	struct ev_loop *loop;
	struct control *control;      // what /init sets
	struct envd_process *process; // state of their own of process*.c and filesystem*.c, or NULL
	struct envd_filesystem *filesystem;
	// The binary at celld's path takes this one's place, soon after it has returned 0; negative errno: what is wrong with it. Or NULL.
	int (*upgrade)(void *arg);
	void *upgrade_arg;
};

// The table of surface B, its handlers bound to CTX.
void envd_routes(struct route_table *out, struct envd *ctx);
// Frees the watchers that clients have left; before the watches themselves are. NULL is allowed.
void envd_filesystem_free(struct envd_filesystem *f);

// --- control.c: what /init sets, for all ---

// Bytes that it may take as JSON: what a struct keep for it has to hold.
#define ENVD_KEEP_MAX ((size_t)1024 * 1024)

// CONFIG gives the first default user and the token; a token that /init sets goes into it, for surface A to ask for too. KEEP (borrowed,
// or NULL) brings back what /init had set before a crash. NULL when out of memory.
struct control *control_new(struct config *config, struct keep *keep);
void control_free(struct control *c);
// The configuration's token was read again (or taken back): one that /init set is over, here and in KEEP. 0 or -ENOMEM: it still holds.
int control_reloaded(struct control *c);
// Leaves the file by which programs know that they are in such a sandbox (/run/e2b/.E2B_SANDBOX), where that is possible.
void control_mark(void);
// The access token or NULL, borrowed until the next /init or reload.
const char *envd_token(const struct envd *e);
// Sets the daemon-wide variables (contract B 5.3) in ENV, whose failure sticks.
void envd_env(const struct envd *e, struct env *env);
// The user NAME (N bytes), by name only, never by uid; NULL: the default user. 0, -ENOENT, -ENOMEM or the errno of reading. OUT is the
// caller's (user_release).
int envd_user(const struct envd *e, const char *name, size_t n, struct user *out);
// Borrowed as the token is.
const char *envd_default_user(const struct envd *e);
// Contract B 2.4: PATH as U's, NUL-terminated and the caller's (free). NULL with E filled: invalid_argument for ~name, or out of memory.
char *envd_path(const struct envd *e, const struct user *u, const char *path, struct err *err);
// Removes ".", ".." and doubled slashes from an absolute path, by its text alone.
void envd_clean(char *path);

// --- answers (answer.c): header lines in the golden order, CORS, Vary and Date on each ---

// Answers with STATUS, BODY (may be NULL) and LINES: complete header lines ("Content-Type: ...\r\n") in any order or NULL. They are
// sorted by name together with Vary (unless LINES has one), the CORS headers and, at last, Date.
void envd_reply(struct conn *c, int status, const char *lines, const struct buf *body);
// The same lines for conn_stream's EXTRA (with ctype NULL): appended to OUT, whose failure sticks.
void envd_lines(const struct http_head *head, const char *lines, struct buf *out);
// A REST error: e->status, {"code":<status>,"message":"..."}\n; EXTRA: further header lines or NULL.
void envd_error(struct conn *c, const struct err *e, const char *extra);

// Fills E with what a stream ends with when another daemon takes the place of this one: unavailable, ask again. -1.
int envd_leaving(struct err *e);

// Escapes < > & of the JSON that OUT holds from FROM on, as this surface's error bodies and REST answers have them.
void envd_escape(struct buf *out, size_t from);

// --- routes of files.c ---
route_handler envd_files_get;
route_handler envd_files_post;
route_handler envd_files_compose;

#endif
