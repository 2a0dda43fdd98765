// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/files_priv.h"
#include "daemon/core/walk.h"
#include "daemon/io.h"

#include <dirent.h>
#include <errno.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PIECE ((size_t)128 * 1024)

enum phase {
	COPYING,
	REMOVING, // the source, all is copied
	UNDOING,  // the copy
	ENDED,
};

struct files_move {
	enum phase phase;
	char *source, *destination;
	int from,
		to; // the directories that have the source and the destination, O_PATH: the ways there may be others' by and by
	char *temp;          // the copy until it is whole, beside the destination
	struct stat st;      // of the source
	struct stat made;    // of a copy that is a directory; of a file nothing, so that no directory is taken for it
	struct walk *walk;   // a source that is a directory
	int root;            // its copy
	int into;            // the copy of the directory the walk is in
	struct stat file_st; // the file being copied
	int in, out;
	char *piece;
	struct walk_remove *remove;
	int err;
	char *where;
};

// --- one entry ---

// Where a copy comes from and goes to, each a directory and a name.
struct pair {
	int from, to;
	const char *from_name, *to_name;
};

static int copy_link(const struct pair *p, const struct stat *st)
{
	char *target;
	int rc = files_readlink(p->from, p->from_name, &target);
	if (rc < 0)
		return rc;
	const struct timespec times[] = {st->st_atim, st->st_mtim};
	if (symlinkat(target, p->to, p->to_name) < 0)
		rc = -errno;
	else if (fchownat(p->to, p->to_name, st->st_uid, st->st_gid, AT_SYMLINK_NOFOLLOW) < 0 && errno != EPERM)
		rc = -errno;
	else
		(void)utimensat(p->to, p->to_name, times, AT_SYMLINK_NOFOLLOW);
	free(target);
	return rc;
}

static int open_file(struct files_move *m, const struct pair *p)
{
	m->in = IO_AGAIN(openat(p->from, p->from_name, O_RDONLY | O_NOFOLLOW | FILES_OPEN));
	if (m->in < 0 || fstat(m->in, &m->file_st) < 0)
		return -errno;
	if (!S_ISREG(m->file_st.st_mode))
		return -EINVAL;
	m->out = IO_AGAIN(openat(p->to, p->to_name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | FILES_OPEN, 0600));
	return m->out < 0 ? -errno : 0;
}

static int finish_meta(int from, int to, const struct stat *st)
{
	int rc = files_copy_meta(from, to, st);
	if (rc == 0 && futimens(to, (const struct timespec[]){st->st_atim, st->st_mtim}) < 0 && errno != ENOSYS &&
		errno != EOPNOTSUPP && errno != EPERM)
		rc = -errno;
	return rc;
}

// A hole stays one: written out it might be more than any disk has. 0 or negative errno.
static int skip_hole(struct files_move *m)
{
	if (m->file_st.st_blocks >= m->file_st.st_size / 512)
		return 0;
	off_t at = lseek(m->in, 0, SEEK_CUR), data = at < 0 ? at : lseek(m->in, at, SEEK_DATA);
	if (data < 0 && errno == ENXIO && at < m->file_st.st_size)
		data = lseek(m->in, m->file_st.st_size, SEEK_SET);
	if (data <= at) // or nobody knows; the position is as it was
		return 0;
	if (lseek(m->out, data, SEEK_SET) < 0 || IO_AGAIN(ftruncate(m->out, data)) < 0)
		return -errno;
	return 0;
}

static int copy_piece(struct files_move *m)
{
	if (!m->piece && !(m->piece = malloc(PIECE)))
		return -ENOMEM;
	int hole = skip_hole(m);
	if (hole < 0)
		return hole;
	ssize_t n = io_read(m->in, m->piece, PIECE);
	if (n < 0)
		return (int)n;
	if (n > 0)
		return files_write_all(m->out, m->piece, (size_t)n);
	int rc = finish_meta(m->in, m->out, &m->file_st), kept = io_close_written(&m->out);
	io_close(&m->in);
	return rc < 0 ? rc : kept;
}

// Makes the copy of what ST says, and for a file or directory more is to come. Special files stay where they are.
static int begin(struct files_move *m, const struct pair *p, const struct stat *st)
{
	switch (st->st_mode & S_IFMT) {
	case S_IFREG:
		return open_file(m, p);
	case S_IFLNK:
		return copy_link(p, st);
	case S_IFDIR:
		return mkdirat(p->to, p->to_name, 0700) < 0 ? -errno : 0;
	default:
		return -EINVAL;
	}
}

// --- the tree ---

// The directory in the copy that has the path REL ("" = the copy itself). Nothing that others put in the way is followed.
static int open_copy(const struct files_move *m, const char *rel)
{
	struct open_how how = {.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | FILES_OPEN};
	how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
	int fd = (int)IO_AGAIN(syscall(SYS_openat2, m->root, *rel ? rel : ".", &how, sizeof how));
	if (fd < 0 && (errno == ENOSYS || errno == EPERM))
		fd = IO_AGAIN(openat(m->root, *rel ? rel : ".", (int)how.flags));
	return fd < 0 ? -errno : fd;
}

// Goes to the directory REL of the copy, N bytes of it.
static int go_to(struct files_move *m, const char *rel, size_t n)
{
	char *s = strndup(rel, n);
	io_close(&m->into);
	m->into = s ? open_copy(m, s) : -ENOMEM;
	free(s);
	return m->into < 0 ? m->into : 0;
}

// What of an entry's path is below the source.
static const char *relative(const struct files_move *m, const struct walk_entry *e)
{
	const char *rel = e->path + strlen(m->source);
	return *rel == '/' ? rel + 1 : rel;
}

static int on_entry(struct files_move *m, const struct walk_entry *e)
{
	struct stat st;
	int rc = walk_stat(e, &st);
	if (rc < 0)
		return rc == -ENOENT ? 0 : rc;
	rc = begin(m, &(struct pair){e->dirfd, m->into, e->name, e->name}, &st);
	if (rc < 0 || !S_ISDIR(st.st_mode))
		return rc;
	const char *rel = relative(m, e);
	rc = go_to(m, rel, strlen(rel));
	if (rc == 0)
		rc = walk_enter(m->walk);
	return rc == -EXDEV ? -EBUSY : rc;
}

static int on_leave(struct files_move *m, const struct walk_entry *e)
{
	struct stat st;
	int from = walk_open_dir(e->dirfd, e->name);
	if (from < 0)
		return from;
	int rc = fstat(from, &st) < 0 ? -errno : finish_meta(from, m->into, &st);
	io_close(&from);
	if (rc < 0)
		return rc;
	const char *rel = relative(m, e);
	size_t n = strlen(rel) - strlen(e->name);
	return go_to(m, rel, n > 0 ? n - 1 : 0);
}

static const char *last_name(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static int fail_at(struct files_move *m, int rc, const char *path)
{
	if (rc < 0 && !m->where)
		m->where = strdup(path);
	return rc;
}

// The copy is whole: it takes its place, and the source goes.
static int finish_copy(struct files_move *m)
{
	int rc = 0;
	if (m->walk) {
		int from = walk_open_dir(m->from, last_name(m->source));
		rc = from < 0 ? from : finish_meta(from, m->root, &m->st);
		io_close(&from);
	}
	if (rc == 0)
		rc = renameat(m->to, last_name(m->temp), m->to, last_name(m->destination)) < 0 ? -errno : 0;
	if (rc < 0)
		return rc;
	rc = walk_remove_at(&m->remove, m->from, m->source, &m->st);
	m->phase = rc < 0 ? ENDED : REMOVING;
	return rc;
}

// One piece of the copy. 1: there is more; 0: it is whole; negative errno.
static int copy_step(struct files_move *m)
{
	struct walk_entry e;
	int rc;
	if (m->in >= 0)
		rc = copy_piece(m);
	else if (!m->walk)
		return 0;
	else
		switch (walk_next(m->walk, &e)) {
		case WALK_ENTRY:
			rc = fail_at(m, on_entry(m, &e), e.path);
			break;
		case WALK_LEAVE:
			rc = fail_at(m, on_leave(m, &e), e.path);
			break;
		case WALK_ERROR:
			rc = fail_at(m, e.err, e.path);
			break;
		default:
			return 0;
		}
	return rc < 0 ? rc : 1;
}

// --- the whole ---

static int open_above(const char *path)
{
	char *dir = files_dirname(path);
	int fd = dir ? IO_AGAIN(open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)) : -1;
	int rc = !dir ? -ENOMEM : fd < 0 ? -errno : fd;
	free(dir);
	return rc;
}

static int open_both(struct files_move *m)
{
	m->from = open_above(m->source);
	m->to = m->from < 0 ? m->from : open_above(m->destination);
	return m->to < 0 ? m->to : 0;
}

static int start_copy(struct files_move *m)
{
	const char *name = last_name(m->source);
	struct stat st;
	int rc = open_both(m);
	if (rc == 0 && fstatat(m->from, name, &m->st, AT_SYMLINK_NOFOLLOW) < 0)
		rc = -errno;
	if (rc < 0)
		return rc;
	if (fstatat(m->to, last_name(m->destination), &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		S_ISDIR(st.st_mode) != S_ISDIR(m->st.st_mode))
		return S_ISDIR(st.st_mode) ? -EISDIR : -ENOTDIR;
	rc = begin(m, &(struct pair){m->from, m->to, name, last_name(m->temp)}, &m->st);
	if (rc < 0 || !S_ISDIR(m->st.st_mode))
		return rc;
	m->root = files_open_made(m->to, last_name(m->temp));
	if (m->root < 0 || fstat(m->root, &m->made) < 0)
		return m->root < 0 ? m->root : -errno;
	rc = go_to(m, "", 0);
	int fd = rc < 0 ? rc : walk_open_dir(m->from, name);
	return fd < 0 ? fd : walk_new(&m->walk, fd, m->source);
}

static char *without_slashes(const char *path)
{
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	return strndup(path, n);
}

static struct files_move *move_alloc(const char *source, const char *destination)
{
	struct files_move *m = calloc(1, sizeof *m);
	if (!m)
		return NULL;
	char name[FILES_TEMP_SIZE];
	files_temp_make(name);
	m->from = m->to = m->root = m->into = m->in = m->out = -1;
	m->source = without_slashes(source);
	m->destination = without_slashes(destination);
	char *dir = files_dirname(destination);
	m->temp = dir ? files_path(dir, name) : NULL;
	free(dir);
	if (m->source && m->destination && m->temp)
		return m;
	files_move_free(m);
	return NULL;
}

int files_move_new(struct files_move **out, const char *source, const char *destination)
{
	*out = NULL;
	int rc = files_rename(source, destination);
	if (rc != -EXDEV)
		return rc;
	struct files_move *m = move_alloc(source, destination);
	if (!m)
		return -ENOMEM;
	rc = start_copy(m);
	if (rc < 0)
		files_move_free(m);
	else
		*out = m;
	return rc;
}

// Lets go of what copying holds, so that what was copied can be removed.
static void stop_copy(struct files_move *m)
{
	walk_free(m->walk);
	m->walk = NULL;
	io_close(&m->in);
	io_close(&m->out);
	io_close(&m->into);
	io_close(&m->root);
	io_close(&m->from);
	io_close(&m->to);
}

static void fail(struct files_move *m, int rc)
{
	m->err = rc;
	if (m->phase != COPYING) {
		m->phase = ENDED;
		return;
	}
	int to = m->to;
	m->to = -1;
	stop_copy(m);
	m->phase = to < 0 || walk_remove_at(&m->remove, to, m->temp, &m->made) < 0 ? ENDED : UNDOING;
	io_close(&to);
}

static void end_remove(struct files_move *m)
{
	const char *path;
	int rc = walk_remove_error(m->remove, &path);
	if (m->phase == REMOVING && rc < 0)
		m->err = fail_at(m, rc, path);
	m->phase = ENDED;
}

int files_move_step(struct files_move *m, int64_t until)
{
	while (m->phase == COPYING) {
		int rc = copy_step(m);
		if (rc == 0)
			rc = finish_copy(m);
		if (rc < 0)
			fail(m, rc);
		if (io_mono_ns() >= until)
			return 1;
	}
	if (m->phase != ENDED && walk_remove_step(m->remove, until))
		return 1;
	if (m->phase != ENDED)
		end_remove(m);
	return m->err;
}

int files_move_fd(const struct files_move *m)
{
	return m->remove ? walk_remove_fd(m->remove) : -1;
}

const char *files_move_where(const struct files_move *m)
{
	return m->where ? m->where : m->source;
}

void files_move_free(struct files_move *m)
{
	if (!m)
		return;
	if (m->phase == COPYING && m->temp)
		fail(m, -ECANCELED);
	while (m->phase == UNDOING && files_move_step(m, INT64_MAX) > 0)
		continue;
	stop_copy(m);
	walk_remove_free(m->remove);
	free(m->source);
	free(m->destination);
	free(m->temp);
	free(m->piece);
	free(m->where);
	free(m);
}
