// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/files_priv.h"
#include "daemon/io.h"
#include "proto/buf.h"

#include <errno.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

enum { LINKS_MAX = 40, RACES_MAX = 8 };
#define COPY_MAX ((size_t)256 * 1024)
// What of a large file is cut off in one go: the kernel needs 60 ms for a GiB.
#define CUT_MIN ((off_t)32 << 20)
enum { CUT_STEPS = 1024 };

// Where the bytes go until the commit.
enum way {
	WAY_NEW,    // into the new file, which is unlinked if it does not come to an end
	WAY_APPEND, // behind the old content, cut off again in that case
	WAY_DEVICE, // out
	WAY_MEMORY, // kept, then over the old content
	WAY_TEMP,   // into a file beside the old one, then renamed over it
};

struct files_writer {
	enum way way;
	int dir;    // of the target, O_PATH
	char *base; // its name there
	int fd;     // the target
	struct stat old;
	uint64_t written; // to the target
	bool linked;      // a symlink is on the way to it
	bool give;        // an old file changes its owner
	struct files_owner owner;
	struct buf mem; // WAY_MEMORY
	off_t step;     // once all of it is in the target: what of the rest is cut off in one go
	int tmp;        // WAY_TEMP
	char tmp_name[FILES_TEMP_SIZE];
	char *copy; // rename was refused: the piece of tmp under way
	int err;
	bool done;
};

// --- opening ---

// True if FD is not what it says it is: a symlink is in PATH, or nobody knows.
static bool is_elsewhere(int fd, const char *path)
{
	char name[32], at[PATH_MAX];
	(void)snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(name, at, sizeof at);
	return n < 0 || (size_t)n != strlen(path) || memcmp(at, path, (size_t)n) != 0;
}

// Links are followed, and noted.
static int open_parent(struct files_writer *w, const char *dir)
{
	struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
	w->dir = (int)IO_AGAIN(syscall(SYS_openat2, AT_FDCWD, dir, &how, sizeof how));
	if (w->dir >= 0)
		return 0;
	bool link = errno == ELOOP;
	w->dir = IO_AGAIN(open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (w->dir < 0)
		return -errno;
	w->linked |= link || is_elsewhere(w->dir, dir);
	return 0;
}

// Opens the directory of PATH, made if missing, and keeps PATH's last name.
static int open_dir(struct files_writer *w, const char *path, const struct files_owner *owner)
{
	const char *slash = strrchr(path, '/');
	char *dir = files_dirname(path);
	io_close(&w->dir);
	free(w->base);
	w->base = strdup(slash ? slash + 1 : path);
	if (!dir || !w->base) {
		free(dir);
		return -ENOMEM;
	}
	int rc = open_parent(w, dir);
	if (rc == -ENOENT)
		rc = files_make_parents(path, owner);
	if (w->dir < 0 && rc == 0)
		rc = open_parent(w, dir);
	free(dir);
	return rc;
}

// What the link at PATH (whose directory is open) points to, as a path. NULL with *RC set.
static char *follow(const struct files_writer *w, const char *path, int *rc)
{
	char *target, *dir, *next;
	*rc = files_readlink(w->dir, w->base, &target);
	if (*rc < 0)
		return NULL;
	dir = files_dirname(path);
	next = dir ? files_path(dir, target) : NULL;
	*rc = next ? 0 : -ENOMEM;
	free(dir);
	free(target);
	return next;
}

static int stat_base(const struct files_writer *w, struct stat *st)
{
	return fstatat(w->dir, w->base, st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}

// Finds the directory and the name that PATH leads to, through symlinks, also one whose target is missing. 0 with W->old, -ENOENT if there is nothing
// yet, or another negative errno.
static int resolve(struct files_writer *w, const struct files_write *spec)
{
	char *path = strdup(spec->path);
	int rc = path ? 0 : -ENOMEM;
	w->linked = false;
	for (int links = 0; rc == 0; links++) {
		rc = open_dir(w, path, &spec->owner);
		if (rc == 0 && !*w->base)
			rc = -EISDIR;
		if (rc == 0)
			rc = stat_base(w, &w->old);
		if (rc < 0 || !S_ISLNK(w->old.st_mode))
			break;
		w->linked = true;
		if (links == LINKS_MAX) {
			rc = -ELOOP;
			break;
		}
		char *next = follow(w, path, &rc);
		free(path);
		path = next;
	}
	free(path);
	return rc;
}

// A file that is written in place over several turns is locked, so that no other writer mixes its bytes into it. Where there are no locks
// it goes without.
static void claim(const struct files_writer *w)
{
	(void)!IO_AGAIN(flock(w->fd, LOCK_EX | LOCK_NB));
}

static bool claimed(const struct files_writer *w)
{
	bool busy = IO_AGAIN(flock(w->fd, LOCK_SH | LOCK_NB)) < 0 && errno == EWOULDBLOCK;
	if (!busy)
		(void)!IO_AGAIN(flock(w->fd, LOCK_UN));
	return busy;
}

static int create(struct files_writer *w, const struct files_owner *owner)
{
	w->fd = IO_AGAIN(openat(w->dir, w->base, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | FILES_OPEN, 0644));
	if (w->fd < 0)
		return -errno;
	w->way = WAY_NEW;
	claim(w);
	int rc = fstat(w->fd, &w->old) < 0 ? -errno : 0;
	return rc < 0 ? rc : files_give(w->fd, owner);
}

static int make_temp(struct files_writer *w)
{
	int rc = -EEXIST;
	for (int i = 0; i < RACES_MAX && rc == -EEXIST; i++) {
		files_temp_make(w->tmp_name);
		w->tmp = IO_AGAIN(
			openat(w->dir, w->tmp_name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | FILES_OPEN, 0600));
		rc = w->tmp < 0 ? -errno : 0;
	}
	if (rc == 0) {
		w->way = WAY_TEMP;
		rc = files_copy_meta(w->fd, w->tmp, &w->old);
	}
	return rc;
}

static int open_old(struct files_writer *w, const struct files_write *spec)
{
	bool device = S_ISCHR(w->old.st_mode);
	if (S_ISDIR(w->old.st_mode))
		return -EISDIR;
	if (!S_ISREG(w->old.st_mode) && !device)
		return -EINVAL;
	struct stat st;
	w->fd = IO_AGAIN(openat(w->dir, w->base, O_WRONLY | O_NOFOLLOW | FILES_OPEN | (spec->append ? O_APPEND : 0)));
	if (w->fd < 0 || fstat(w->fd, &st) < 0)
		return -errno;
	if ((st.st_mode & S_IFMT) != (w->old.st_mode & S_IFMT))
		return -EINVAL;
	w->old = st;
	// Who writes to /dev/null does not come to own it, nor what somebody's link points to, or is a second name of: that may be any file.
	w->give = spec->give && !device && !w->linked && st.st_nlink <= 1;
	if (device)
		w->way = WAY_DEVICE;
	else if (spec->append && claimed(w))
		return -EAGAIN;
	else if (spec->append)
		w->way = WAY_APPEND;
	else if (spec->size > (int64_t)FILES_INPLACE_MAX)
		return make_temp(w);
	else
		w->way = WAY_MEMORY;
	return 0;
}

int files_writer_new(struct files_writer **out, const struct files_write *spec)
{
	if (strlen(spec->path) >= PATH_MAX)
		return -ENAMETOOLONG; // by its directory it could be written, but by nobody read again
	struct files_writer *w = calloc(1, sizeof *w);
	if (!w)
		return -ENOMEM;
	w->dir = w->fd = w->tmp = -1;
	w->way = WAY_MEMORY; // nothing to undo yet
	w->owner = spec->owner;
	int rc = -EAGAIN;
	// What was there may go, and what was not may come, before it is opened.
	for (int i = 0; i < RACES_MAX && rc == -EAGAIN; i++) {
		rc = resolve(w, spec);
		if (rc == -ENOENT && w->dir >= 0) {
			rc = create(w, &spec->owner);
			rc = rc == -EEXIST ? -EAGAIN : rc;
		} else if (rc == 0) {
			rc = open_old(w, spec);
			rc = w->fd < 0 && (rc == -ENOENT || rc == -ELOOP) ? -EAGAIN : rc;
		}
	}
	if (rc < 0) {
		files_writer_free(w);
		return rc;
	}
	*out = w;
	return 0;
}

// --- feeding ---

static int put_target(struct files_writer *w, const void *p, size_t n)
{
	const char *at = p;
	while (n > 0) {
		ssize_t put = io_write(w->fd, at, n);
		if (put <= 0)
			return put < 0 ? (int)put : -EIO;
		w->written += (uint64_t)put; // also of a write that fails later: to be undone
		at += put;
		n -= (size_t)put;
	}
	return 0;
}

// What is in memory goes to a file beside the target, as does what follows.
static int spill(struct files_writer *w)
{
	int rc = make_temp(w);
	if (rc == 0)
		rc = files_write_all(w->tmp, buf_data(&w->mem), buf_len(&w->mem));
	buf_release(&w->mem);
	return rc;
}

static int put(struct files_writer *w, const void *p, size_t n)
{
	if (w->way == WAY_MEMORY && buf_len(&w->mem) + n > FILES_INPLACE_MAX) {
		int rc = spill(w);
		if (rc < 0)
			return rc;
	}
	switch (w->way) {
	case WAY_MEMORY:
		buf_append(&w->mem, p, n);
		return buf_failed(&w->mem);
	case WAY_TEMP:
		return files_write_all(w->tmp, p, n);
	default:
		return put_target(w, p, n);
	}
}

int files_writer_feed(struct files_writer *w, const void *p, size_t n)
{
	if (w->err == 0)
		w->err = put(w, p, n);
	return w->err;
}

// --- committing ---

static int cut_target(const struct files_writer *w, off_t size)
{
	return IO_AGAIN(ftruncate(w->fd, size)) < 0 ? -errno : 0;
}

// A piece of what the old content has more than the new. 1: call again.
static int cut_rest(struct files_writer *w)
{
	off_t end = (off_t)w->written;
	if (w->old.st_size <= end)
		return 0;
	w->old.st_size = w->old.st_size - end > w->step ? w->old.st_size - w->step : end;
	int rc = cut_target(w, w->old.st_size);
	return rc < 0 ? rc : w->old.st_size > end;
}

// What is cut off in one go. A file without many blocks is long because of its holes.
static off_t cut_step(const struct stat *st)
{
	off_t step = st->st_blocks > CUT_MIN / 512 ? st->st_size / CUT_STEPS : st->st_size;
	return step > CUT_MIN ? step : CUT_MIN;
}

// Has the file system keep what FD was given, as far as it does so at a close; without a descriptor left for that nobody can say. 0 or negative errno.
static int settle(int fd)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0);
	return copy < 0 ? 0 : io_close_written(&copy);
}

// What the new content takes the place of: a network may promise room and lose what comes. *N bytes, the caller's; NULL if there are none, or
// none to be had. 0 or -ENOMEM.
static int save(const struct files_writer *w, char **out, size_t *n)
{
	struct stat st;
	char *old = NULL;
	int rc = 0;
	*n = (off_t)buf_len(&w->mem) < w->old.st_size ? buf_len(&w->mem) : (size_t)w->old.st_size;
	int fd = *n ? IO_AGAIN(openat(w->dir, w->base, O_RDONLY | O_NOFOLLOW | FILES_OPEN)) : -1;
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_dev == w->old.st_dev && st.st_ino == w->old.st_ino)
		rc = (old = malloc(*n)) ? 0 : -ENOMEM;
	if (old && io_pread(fd, old, *n, 0) != (ssize_t)*n) {
		free(old);
		old = NULL;
	}
	io_close(&fd);
	*out = old;
	return rc;
}

// The old content again, as far as something was written over it.
static void restore(struct files_writer *w, const char *old, size_t n)
{
	if (!old || w->written == 0 || io_pwrite(w->fd, old, w->written < n ? (size_t)w->written : n, 0) < 0)
		return;
	if ((off_t)w->written <= w->old.st_size || cut_target(w, w->old.st_size) == 0)
		w->written = 0;
}

// OLD: N bytes of what is there, or NULL.
static int write_in_place(struct files_writer *w, const char *old, size_t n)
{
	int rc = put_target(w, buf_data(&w->mem), buf_len(&w->mem));
	if (rc == 0)
		rc = settle(w->fd);
	if (rc < 0)
		restore(w, old, n);
	if (rc < 0)
		return rc;
	w->step = cut_step(&w->old);
	rc = cut_rest(w);
	if (rc > 0)
		claim(w);
	return rc;
}

// The old file FD, or the one that takes its place, gets its new owner.
static int give(const struct files_writer *w, int fd)
{
	return w->give ? files_give(fd, &w->owner) : 0;
}

// True for file systems that never write over what they have: what they promise for bytes that are there already is nothing worth.
static bool copies_on_write(int fd)
{
	static const uint32_t magics[] = {BTRFS_SUPER_MAGIC, 0x2fc12fc1 /* ZFS */, 0xca451a4e /* bcachefs */};
	struct statfs fs;
	bool found = false;
	int rc = IO_AGAIN(fstatfs(fd, &fs));
	for (size_t i = 0; rc == 0 && i < sizeof magics / sizeof *magics; i++)
		found |= (uint32_t)fs.f_type == magics[i]; // it may be signed
	return found;
}

// Room for SIZE bytes in the old file before it is touched. -EOPNOTSUPP if nobody can promise it.
static int reserve(const struct files_writer *w, off_t size)
{
	if (size > 0 && w->old.st_size > 0 && copies_on_write(w->fd))
		return -EOPNOTSUPP;
	if (size == 0 || IO_AGAIN(fallocate(w->fd, FALLOC_FL_KEEP_SIZE, 0, size)) == 0)
		return 0;
	int rc = -errno;
	if (rc == -ENOSYS || rc == -ENODEV)
		rc = -EOPNOTSUPP;
	if (rc != -EOPNOTSUPP)
		(void)!IO_AGAIN(ftruncate(w->fd, w->old.st_size)); // what it got beyond the end
	return rc;
}

// Another writer is in the middle of it, or has put another file in its place. Else its size is known as it is now.
static bool is_taken(struct files_writer *w)
{
	struct stat st;
	if (claimed(w) || stat_base(w, &st) < 0 || st.st_dev != w->old.st_dev || st.st_ino != w->old.st_ino)
		return true;
	w->old.st_size = st.st_size;
	return false;
}

// 1: what is in memory is in a file beside the target, to be renamed over it.
static int put_beside(struct files_writer *w)
{
	int rc = make_temp(w);
	if (rc == 0)
		rc = files_write_all(w->tmp, buf_data(&w->mem), buf_len(&w->mem));
	return rc < 0 ? rc : 1;
}

static int put_memory(struct files_writer *w)
{
	char *old = NULL;
	size_t n = 0;
	int rc = reserve(w, (off_t)buf_len(&w->mem));
	// Settings of /proc have no content to lose. Those of /sys say that they have; there is no file to be made beside them.
	if (rc == -EOPNOTSUPP && w->old.st_size > 0) {
		rc = put_beside(w);
		if (rc > 0 || w->tmp >= 0)
			return rc;
		rc = rc == -EACCES || rc == -EPERM || rc == -EROFS ? 0 : rc;
	} else if (rc == -EOPNOTSUPP) {
		rc = 0;
	} else if (rc == 0) {
		rc = save(w, &old, &n);
	}
	if (rc == 0)
		rc = write_in_place(w, old, n);
	free(old);
	return rc;
}

// The owner first: whoever watches sees that before the content.
static int commit_memory(struct files_writer *w)
{
	if (w->step > 0)
		return cut_rest(w);
	if (is_taken(w))
		return put_beside(w);
	int rc = give(w, w->fd);
	if (rc == 0)
		rc = put_memory(w);
	if (rc < 0 && w->give)
		(void)files_give(w->fd, &(struct files_owner){w->old.st_uid, w->old.st_gid});
	return rc;
}

// The next piece from the temporary file into the target, which nothing can be renamed over.
static int copy_back(struct files_writer *w)
{
	if (!w->copy) {
		struct stat st;
		if (fstat(w->tmp, &st) < 0)
			return -errno;
		int rc = reserve(w, st.st_size);
		if (rc < 0 && rc != -EOPNOTSUPP)
			return rc;
		claim(w);
		w->copy = malloc(COPY_MAX);
		if (!w->copy)
			return -ENOMEM;
		rc = give(w, w->fd);
		if (rc < 0)
			return rc;
	}
	ssize_t n = io_pread(w->tmp, w->copy, COPY_MAX, (off_t)w->written);
	if (n < 0)
		return (int)n;
	int rc = n > 0 ? put_target(w, w->copy, (size_t)n) : cut_target(w, (off_t)w->written);
	if (rc == 0 && n == 0)
		return settle(w->fd);
	return rc < 0 ? rc : 1;
}

static int commit_temp(struct files_writer *w)
{
	if (w->copy)
		return copy_back(w);
	int rc = give(w, w->tmp);
	if (rc == 0)
		rc = settle(w->tmp);
	if (rc < 0)
		return rc;
	if (renameat(w->dir, w->tmp_name, w->dir, w->base) == 0) {
		io_close(&w->tmp); // it has no other name now
		return 0;
	}
	rc = -errno;
	return rc == -EBUSY || rc == -EXDEV || rc == -ETXTBSY ? copy_back(w) : rc;
}

int files_writer_commit(struct files_writer *w)
{
	int rc = w->err;
	if (rc == 0 && w->way == WAY_MEMORY)
		rc = commit_memory(w);
	else if (rc == 0 && w->way == WAY_TEMP)
		rc = commit_temp(w);
	else if (rc == 0 && w->way == WAY_NEW)
		rc = io_close_written(&w->fd);
	else if (rc == 0 && w->way == WAY_APPEND)
		rc = settle(w->fd);
	w->err = rc < 0 ? rc : 0;
	w->done = rc == 0;
	return rc;
}

// --- undoing ---

static void undo(const struct files_writer *w)
{
	struct stat st;
	switch (w->way) {
	case WAY_NEW:
		if (stat_base(w, &st) == 0 && st.st_dev == w->old.st_dev && st.st_ino == w->old.st_ino)
			(void)unlinkat(w->dir, w->base, 0);
		break;
	case WAY_APPEND:
		// Unless others have appended meanwhile.
		if (fstat(w->fd, &st) == 0 && st.st_size == w->old.st_size + (off_t)w->written)
			(void)!cut_target(w, w->old.st_size);
		break;
	case WAY_MEMORY:
		if (w->step > 0)
			(void)!cut_target(w, (off_t)w->written); // all but that was done
		else if (w->written > 0 && w->old.st_size == 0)
			(void)!IO_AGAIN(ftruncate(w->fd, 0));
		break;
	default:
		break;
	}
}

void files_writer_free(struct files_writer *w)
{
	if (!w)
		return;
	if (!w->done)
		undo(w);
	bool beside = w->tmp >= 0;
	io_close(&w->tmp); // first: what is open some file systems only rename
	if (beside)
		(void)unlinkat(w->dir, w->tmp_name, 0);
	io_close(&w->fd);
	io_close(&w->dir);
	buf_release(&w->mem);
	free(w->copy);
	free(w->base);
	free(w);
}
