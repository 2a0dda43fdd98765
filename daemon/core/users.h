// SPDX-License-Identifier: Apache-2.0
// users: passwd and group look-ups straight from the files, without NSS (a static binary has none), cached until the files change.
// The table belongs to the caller; a struct user is a value that the caller releases.
#ifndef CELLD_CORE_USERS_H
#define CELLD_CORE_USERS_H

#include <stddef.h>
#include <sys/types.h>

struct users;

struct user {
	uid_t uid;
	gid_t gid;
	char *name;
	char *home;
	char *shell;
	gid_t *groups; // supplementary, the primary one included
	size_t group_count;
	void *mem; // private: what all of these are in, if it is to be freed
};

struct ev_loop;

// PASSWD and GROUP are paths ("/etc/passwd", "/etc/group"); borrowed for the table's life. NULL when out of memory.
struct users *users_new(const char *passwd, const char *group);
void users_free(struct users *u);
// From now on the files are looked at once a turn of LOOP (borrowed; U goes first), at the first question of the turn, or only when inotify
// tells of a change (notice.h), instead of at each question.
void users_by_turns(struct users *u, struct ev_loop *loop);
// Another number once the files have been read again: what was found with the number before may be wrong. 0 if they cannot be read.
unsigned users_generation(struct users *u);
// By name, or by decimal uid. "root" and "0" exist even without a passwd file (home /root, shell /bin/sh); so
// does the daemon's own uid (home /, shell /bin/sh).
// 0, -ENOENT, -ENOMEM, or the errno of reading the file. OUT is owned by the caller (user_release).
int users_find(struct users *u, const char *name, struct user *out);
// The name of a uid or gid, borrowed until the next call on U; NULL if it has none.
const char *users_uid_name(struct users *u, uid_t uid);
const char *users_gid_name(struct users *u, gid_t gid);
// Frees the contents; a zeroed struct user is allowed.
void user_release(struct user *u);
// A copy. 0 or -ENOMEM (OUT is zeroed then).
int user_dup(struct user *out, const struct user *u);

#endif
