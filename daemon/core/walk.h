// SPDX-License-Identifier: Apache-2.0
// walk: a directory tree, entry by entry: a pull iterator that does a bounded piece of work a call, so that the caller decides how
// long it goes on. Everything is done relative to open directories: no symlink is followed below the root, no mount point is entered,
// and at most WALK_FDS directories are open however deep the tree is. Entries that come or go meanwhile do no harm.
// walk_remove: removes a tree with it. Both belong to the caller. Must not know why somebody walks.
#ifndef CELLD_CORE_WALK_H
#define CELLD_CORE_WALK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

#define WALK_FDS 64

struct walk;

enum walk_event {
	WALK_ENTRY, // an entry of the current directory
	WALK_LEAVE, // a directory that was entered is through; the entry is that directory again, seen from its parent
	WALK_ERROR, // a directory could not be read (on): err; the entry is that directory. Its WALK_LEAVE follows, or, when the way
	// up is lost because somebody moved a directory away, WALK_DONE
	WALK_DONE, // the root is through. Stays
};

// Valid until the next call on the walk.
struct walk_entry {
	const char *path; // the root's path as given, then the way down
	size_t path_len;
	const char *name;   // the last part of path
	int dirfd;          // the directory that has the entry; -1 for WALK_ERROR
	unsigned depth;     // 1 = an entry of the root, 0 = the root
	unsigned char type; // DT_DIR, DT_REG, ...; never DT_UNKNOWN but for an entry that is gone
	int err;            // WALK_ERROR: negative errno
	bool marked;        // WALK_LEAVE, WALK_DONE: walk_mark was called within it
	unsigned passes;    // WALK_LEAVE: how often it has been entered
};

// Walks what the open directory FD (taken, closed on failure too; from walk_open_root or walk_open_dir) has; PATH is copied. 0 or negative errno.
int walk_new(struct walk **out, int fd, const char *path);
void walk_free(struct walk *w);
// In which order it gives what the kernel tells of a directory at once: as it is told; or the files and then the directories, or the other way
// round, the first kind from its last one on. (Files are removed faster in that order, 5 % on a tmpfs; and two that remove the same tree, one in
// each order, meet late.)
enum walk_order { WALK_AS_TOLD, WALK_FILES_FIRST, WALK_DIRECTORIES_FIRST };
// From the next directory on.
void walk_set_order(struct walk *w, enum walk_order order);
enum walk_event walk_next(struct walk *w, struct walk_entry *e);
// Goes into the directory that the last WALK_ENTRY or (for another pass) WALK_LEAVE gave. 0 or negative errno: -EXDEV for a mount
// point, -ENOENT, -ENOTDIR or -ELOOP if it is none any more.
int walk_enter(struct walk *w);
// Marks the current directory (of the last WALK_ENTRY, or of what was left) and those above it.
void walk_mark(struct walk *w);
// lstat of the entry. 0 or negative errno (-ENOENT: gone meanwhile).
int walk_stat(const struct walk_entry *e, struct stat *st);

// Opens the directory NAME of the directory AT for a walk: no symlink, no mount point (-EXDEV). A descriptor or negative errno.
int walk_open_dir(int at, const char *name);
// Opens a root by its path; symlinks are followed. A descriptor or negative errno (-ENOTDIR).
int walk_open_root(const char *path);

// --- removing ---

enum walk_remove_flags {
	WALK_KEEP_ROOT =
		1 << 0, // only what is below the root, which may be reached through a symlink and may be a mount point
	WALK_KEEP_MOUNTS = 1 << 1, // mount points are no failure: they and the directories above them stay
};

struct walk_remove;

// Prepares to remove PATH (absolute; a symlink is removed itself). Removes nothing yet. 0, or negative errno: -ENOENT, -EBUSY for a
// mount point, -EINVAL for "/" and for paths that end in "." or "..".
int walk_remove_new(struct walk_remove **out, const char *path, unsigned flags);
// The same for the last name of PATH in the directory AT (copied), whatever PATH leads to by now; a directory there has to be ST's, or it is -ESTALE.
int walk_remove_at(struct walk_remove **out, int at, const char *path, const struct stat *st);
void walk_remove_free(struct walk_remove *r);
// Goes on until UNTIL (io_mono_ns). True if there is more to do. A failure is noted, the rest is removed all the same. What takes more than
// a few calls goes on in a child process if it can be, unless UNTIL is INT64_MAX: that is to the end, here.
bool walk_remove_step(struct walk_remove *r, int64_t until);
// Readable once the child has ended and there is something to do here again; -1 if there is no child. Valid until the next step.
int walk_remove_fd(const struct walk_remove *r);
// True if it has taken a while already and still goes on here: gently, for what the kernel does for each entry would hold up the loop.
bool walk_remove_is_long(const struct walk_remove *r);
// How many entries are gone through it.
uint64_t walk_remove_count(const struct walk_remove *r);
// The first failure: negative errno and, unless PATH is NULL, where (borrowed); 0 if there was none.
int walk_remove_error(const struct walk_remove *r, const char **path);

#endif
