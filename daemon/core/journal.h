// SPDX-License-Identifier: Apache-2.0
// journal: append-only files below one directory whose users may plant anything there: no symlink is followed, nothing but a regular
// file with one name is opened, nothing blocks. What stands in a file's place is unlinked and made anew.
// Lines wait in a bounded buffer and are written once a turn of the loop, before it sleeps. What a full disk refuses is counted and
// said in a line once there is room again. The set outlives its journals; both belong to the caller. Must not know what lines mean.
#ifndef CELLD_CORE_JOURNAL_H
#define CELLD_CORE_JOURNAL_H

#include "proto/buf.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

struct journals;
struct journal;

// Everything made here belongs to UID and GID. ROOT (absolute, may be reached through symlinks) is copied, LOOP borrowed. NULL when out of
// memory.
struct journals *journals_new(struct ev_loop *loop, const char *root, uid_t uid, gid_t gid);
void journals_free(struct journals *s);
// Writes what waits.
void journals_flush(struct journals *s);
// HOLD: drops what waits, and until it is called with false whatever is appended, so that the root can be emptied.
void journals_hold(struct journals *s, bool hold);

// --- the files themselves: a descriptor (close-on-exec) or negative errno ---

// A directory below the root, "a" or "a/b"; MAKE: made where it is missing (0755). -ELOOP or -ENOTDIR for anything else.
int journals_dir(const struct journals *s, const char *dir, bool make);
// A new file for appending (0644) in place of whatever has that name; -EISDIR for a directory.
int journals_create(const struct journals *s, int dirfd, const char *name);
// An existing file, for reading, and its size. -ELOOP for what is no regular file, or one with a second name elsewhere.
int journals_read(int dirfd, const char *name, int64_t *size);
// A file may be one that was made here: a regular one with one name, of the right owner.
bool journals_made(const struct journals *s, const struct stat *st);
// Makes the file NAME with that text: it is there whole or not at all. 0 or negative errno.
int journals_put(const struct journals *s, int dirfd, const char *name, const char *text);

// --- journals ---

struct journal_spec {
	const char *dir;  // as for journals_dir; copied
	const char *name; // copied
	int64_t max;      // bytes a file may have
	bool rotate;      // a full file becomes NAME.1, else it ends with a last line and takes no more
	// Appends a line that says how many lines are missing here, and one that says that this was the last.
	void (*lost)(struct buf *out, uint64_t lines);
	void (*full)(struct buf *out);
	// Writing has begun to fail (ERR is a negative errno); said once until it works again.
	void (*failed)(const char *dir, const char *name, int err);
	// All that was appended before is in the file now, or it never will be. May be NULL.
	void (*settled)(void *arg);
	void *arg;
};

// NULL when out of memory. Touches no file before there are lines.
struct journal *journal_new(struct journals *s, const struct journal_spec *spec);
// Writes what waits and frees it. NULL is allowed.
void journal_free(struct journal *j);
// Frees it without writing.
void journal_drop(struct journal *j);
// Appends N bytes of whole lines.
void journal_append(struct journal *j, const void *lines, size_t n);
// True once a file that does not rotate was found full.
bool journal_full(const struct journal *j);
// Lines that could not be written and have not been said so yet.
uint64_t journal_lost(const struct journal *j);

#endif
