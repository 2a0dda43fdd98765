// SPDX-License-Identifier: Apache-2.0
// files: single files: reading, writing (design rule 13: an overwrite is old or new, never a mix), making directories, moving. Knows no
// surface: paths are absolute, results are 0 or negative errno. Nothing here blocks on a FIFO or a device.
// Readers, writers and moves belong to the caller; freeing an unfinished one undoes what it did.
#ifndef CELLD_CORE_FILES_H
#define CELLD_CORE_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

// An overwrite up to this size is held in memory whole and then written in place.
#define FILES_INPLACE_MAX ((size_t)1024 * 1024)

// Who gets what is made here.
struct files_owner {
	uid_t uid;
	gid_t gid;
};

// An absolute PATH as it is, a relative one below DIR. NULL when out of memory; the caller frees.
char *files_path(const char *dir, const char *path);
// True for the name of a temporary file that a writer or a move keeps beside its target while it works: watches hide it.
bool files_temp_name(const char *name);
// rename(2). 0 or negative errno.
int files_rename(const char *from, const char *to);
// unlinkat(2) of a file. 0 or negative errno.
int files_unlink(int at, const char *name);
// Removes the file PATH, or the link to it, if it is still ST's: whoever owns what is above it may have led the way elsewhere. -ESTALE if not.
int files_unlink_known(const char *path, const struct stat *st);
// Reads the symlink NAME of the directory AT (AT_FDCWD for a path). *OUT is the caller's. 0 or negative errno.
int files_readlink(int at, const char *name, char **out);

// Makes a directory (mode 0755), with PARENTS also the missing ones above it. -EEXIST if there is anything at PATH.
int files_mkdir(const char *path, bool parents, const struct files_owner *owner);

// Opens a directory (absolute PATH, O_PATH) by a way that nobody but root and celld's own user can have laid: commands of another user's may own what
// is above it, or put links into a /tmp. The descriptor; -ELOOP for a symlink of somebody else's, -ENOTDIR, or the open's errno.
int files_open_trusted(const char *path);
// Opens the directory NAME of AT, which was made a moment ago: -EEXIST if there is something in it, since who owns AT may have put another in its
// place, which is not to be given away.
int files_open_made(int at, const char *name);
// Makes a directory (absolute PATH, mode 0755) in one that is reached by such a way. 0 or negative errno: -EEXIST for whatever is there already.
int files_make_trusted(const char *path, const struct files_owner *owner);

// --- reading ---

// Opens a regular file. 0, -EISDIR, -EINVAL for anything else that is no file, -EFBIG for more than MAX bytes, or the open's errno.
// *SIZE is what stat says: 0 for files of /proc, which have more; read to the end.
int files_open_read(const char *path, int64_t max, int *fd, int64_t *size);

// --- writing ---

struct files_writer;

struct files_write {
	const char *path; // symlinks are followed, missing parents are made
	bool append;
	int64_t size; // bytes to come, if they are known, else -1
	struct files_owner owner;
	bool give; // an old file gets that owner too, before its new content, unless a symlink leads to it
};

// Opens the target. 0, -EISDIR, -EINVAL for a FIFO, socket or block device, or negative errno. Nothing of an existing file is touched.
int files_writer_new(struct files_writer **out, const struct files_write *spec);
// Takes N bytes. 0, or a negative errno that sticks.
int files_writer_feed(struct files_writer *w, const void *p, size_t n);
// All bytes are there: makes them the file's content, a piece of work a call. 1: call again; 0: done; negative errno: nothing changed.
int files_writer_commit(struct files_writer *w);
// Without a finished commit: a new file is unlinked, an old one has its old content, nothing is left beside it. NULL is allowed.
void files_writer_free(struct files_writer *w);

// --- moving ---

struct files_move;

// Moves as rename(2) does: *OUT is NULL and all is done, or (other file system) files_move_step does the work: the tree is copied to a
// hidden name beside DESTINATION, renamed, then SOURCE is removed. 0 or negative errno.
int files_move_new(struct files_move **out, const char *source, const char *destination);
// Goes on until UNTIL (io_mono_ns). 1: call again; 0: done; negative errno: failed (a copy that is not whole is removed by further steps
// before that is said). Special files and mount points below SOURCE are failures (-EINVAL, -EBUSY).
int files_move_step(struct files_move *m, int64_t until);
// Readable once there is something to do again, if that is to be waited for (walk_remove_fd); -1 if not.
int files_move_fd(const struct files_move *m);
// Where a step failed, borrowed.
const char *files_move_where(const struct files_move *m);
void files_move_free(struct files_move *m);

#endif
