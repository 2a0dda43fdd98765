// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/walk.h"

#include "daemon/io.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define READ_MAX ((size_t)8 * 1024) // four times as much takes getdents64 2 ms on some file systems
#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)

// A directory on the way down.
struct level {
	int fd; // -1 while it is too far up
	dev_t dev;
	ino_t ino;
	size_t path_len, name_at;
	char *entries; // what getdents64 gave; READ_MAX, NULL while there is none
	size_t at, end;
	size_t back;  // the next of the first kind (enum walk_order), and one; 0 = none
	off_t resume; // where to read on once entries are lost
	bool eof;
	bool marked;
	unsigned passes;
};

struct walk {
	struct level *levels;
	size_t count, cap;
	char *path;
	size_t path_len, path_cap;
	size_t name_at; // of the last entry
	enum walk_event last;
	unsigned passes; // of the last WALK_LEAVE
	bool marked;     // of the root, once it is through
	enum walk_order order;
};

// --- opening ---

static bool same_mount(int a, int b)
{
	struct statx x, y;
	if (statx(a, "", AT_EMPTY_PATH, STATX_MNT_ID, &x) < 0 || statx(b, "", AT_EMPTY_PATH, STATX_MNT_ID, &y) < 0)
		return false;
	if (x.stx_dev_major != y.stx_dev_major || x.stx_dev_minor != y.stx_dev_minor)
		return false;
	return !(x.stx_mask & y.stx_mask & STATX_MNT_ID) || x.stx_mnt_id == y.stx_mnt_id;
}

int walk_open_dir(int at, const char *name)
{
	struct open_how how = {.flags = DIR_FLAGS | O_NOFOLLOW, .resolve = RESOLVE_NO_XDEV};
	int fd = (int)IO_AGAIN(syscall(SYS_openat2, at, name, &how, sizeof how));
	if (fd >= 0)
		return fd;
	if (errno != ENOSYS && errno != EPERM)
		return -errno;
	// An old kernel, or a filter that does not know the call.
	fd = IO_AGAIN(openat(at, name, DIR_FLAGS | O_NOFOLLOW));
	if (fd < 0)
		return -errno;
	if (same_mount(at, fd))
		return fd;
	io_close(&fd);
	return -EXDEV;
}

int walk_open_root(const char *path)
{
	int fd = IO_AGAIN(open(path, DIR_FLAGS));
	return fd < 0 ? -errno : fd;
}

// --- levels ---

static struct level *top(struct walk *w)
{
	return &w->levels[w->count - 1];
}

static void level_close(struct level *l)
{
	io_close(&l->fd);
	free(l->entries);
	l->entries = NULL;
	l->at = l->end = l->back = 0;
}

// FD is taken unless it fails.
static int push(struct walk *w, int fd, unsigned passes)
{
	struct stat st;
	int rc = fstat(fd, &st) < 0 ? -errno : 0;
	if (rc == 0 && w->count == w->cap) {
		size_t cap = w->cap ? 2 * w->cap : 16;
		struct level *more = realloc(w->levels, cap * sizeof *more);
		if (more) {
			w->levels = more;
			w->cap = cap;
		} else {
			rc = -ENOMEM;
		}
	}
	if (rc < 0)
		return rc;
	if (w->count >= WALK_FDS)
		level_close(&w->levels[w->count - WALK_FDS]);
	w->levels[w->count++] = (struct level){
		.fd = fd,
		.dev = st.st_dev,
		.ino = st.st_ino,
		.path_len = w->path_len,
		.name_at = w->name_at,
		.passes = passes,
	};
	return 0;
}

// Opens the level L, that was closed for those below it, by way of its child CHILD.
static int reopen(struct level *l, int child)
{
	struct stat st;
	int fd = IO_AGAIN(openat(child, "..", DIR_FLAGS | O_NOFOLLOW));
	if (fd < 0)
		return -errno;
	// The child may have been moved elsewhere meanwhile: then the way up is not ours.
	int rc = fstat(fd, &st) < 0 ? -errno : 0;
	if (rc == 0 && (st.st_dev != l->dev || st.st_ino != l->ino))
		rc = -ESTALE;
	if (rc == 0 && l->resume && lseek(fd, l->resume, SEEK_SET) < 0)
		rc = -errno;
	if (rc < 0)
		io_close(&fd);
	else
		l->fd = fd;
	return rc;
}

// Appends to the path.
static bool put(struct walk *w, const char *s)
{
	size_t n = strlen(s), need = w->path_len + n + 1;
	if (need > w->path_cap) {
		char *more = realloc(w->path, 2 * need);
		if (!more)
			return false;
		w->path = more;
		w->path_cap = 2 * need;
	}
	memcpy(w->path + w->path_len, s, n + 1);
	w->path_len += n;
	return true;
}

static void cut(struct walk *w, size_t len)
{
	w->path_len = len;
	w->path[len] = '\0';
}

int walk_new(struct walk **out, int fd, const char *path)
{
	struct walk *w = calloc(1, sizeof *w);
	if (!w) {
		io_close(&fd);
		return -ENOMEM;
	}
	int rc = put(w, path) ? push(w, fd, 1) : -ENOMEM;
	if (rc < 0) {
		io_close(&fd);
		walk_free(w);
		return rc;
	}
	w->last = WALK_DONE;
	*out = w;
	return 0;
}

void walk_free(struct walk *w)
{
	if (!w)
		return;
	while (w->count)
		level_close(&w->levels[--w->count]);
	free(w->levels);
	free(w->path);
	free(w);
}

// --- going on ---

static struct dirent64 *entry_at(const struct level *l, size_t at)
{
	return (struct dirent64 *)(void *)(l->entries + at);
}

static bool is_first_kind(const struct walk *w, const struct dirent64 *d)
{
	bool file = d->d_type != DT_DIR && d->d_type != DT_UNKNOWN;
	return w->order != WALK_AS_TOLD && file == (w->order == WALK_FILES_FIRST);
}

static bool is_dot(const struct dirent64 *d)
{
	return strcmp(d->d_name, ".") == 0 || strcmp(d->d_name, "..") == 0;
}

// Has those of the first kind among the entries that were read come from the last one on: each takes the one before it into its d_ino. If
// they are directories, what is entered may cost the entries: the rest of these is then given up (whoever wants them all takes the other order).
static void chain(const struct walk *w, struct level *l)
{
	for (size_t at = 0; at < l->end; at += entry_at(l, at)->d_reclen) {
		struct dirent64 *d = entry_at(l, at);
		if (w->order == WALK_DIRECTORIES_FIRST)
			l->resume = d->d_off;
		if (!is_first_kind(w, d) || is_dot(d))
			continue;
		d->d_ino = l->back;
		l->back = at + 1;
	}
}

// Reads on. 0 or negative errno.
static int fill(const struct walk *w, struct level *l)
{
	if (!l->entries && !(l->entries = malloc(READ_MAX)))
		return -ENOMEM;
	ssize_t n = getdents64(l->fd, l->entries, READ_MAX);
	if (n < 0 && errno != ENOENT) // a directory that was removed has nothing more
		return -errno;
	n = n < 0 ? 0 : n;
	l->at = 0;
	l->end = (size_t)n;
	l->eof = n == 0;
	if (w->order != WALK_AS_TOLD)
		chain(w, l);
	return 0;
}

// The next entry of the directory L but "." and "..": 1, 0 at its end, or negative errno.
static int next_dirent(const struct walk *w, struct level *l, const struct dirent64 **out)
{
	while (!l->eof) {
		if (l->back) {
			*out = entry_at(l, l->back - 1);
			l->back = (*out)->d_ino;
			return 1;
		}
		if (l->at == l->end) {
			int rc = fill(w, l);
			if (rc < 0)
				return rc;
			continue;
		}
		const struct dirent64 *d = entry_at(l, l->at);
		l->at += d->d_reclen;
		l->resume = d->d_off;
		if (!is_first_kind(w, d) && !is_dot(d)) {
			*out = d;
			return 1;
		}
	}
	return 0;
}

// Fills E but for what only this EVENT has; its name is the last part of the path as it stands.
static enum walk_event give(struct walk *w, struct walk_entry *e, enum walk_event event, size_t depth)
{
	e->path = w->path;
	e->path_len = w->path_len;
	e->name = w->path + w->name_at;
	e->depth = (unsigned)depth;
	w->last = event;
	return event;
}

// The current directory cannot be read on.
static enum walk_event fail(struct walk *w, struct walk_entry *e, int err)
{
	struct level *l = top(w);
	*e = (struct walk_entry){.type = DT_DIR, .dirfd = -1, .err = err};
	l->eof = true;
	l->at = l->end = l->back = 0;
	w->name_at = l->name_at;
	return give(w, e, WALK_ERROR, w->count - 1);
}

static enum walk_event done(struct walk *w, struct walk_entry *e)
{
	*e = (struct walk_entry){.type = DT_DIR, .dirfd = -1, .marked = w->marked};
	return give(w, e, WALK_DONE, 0);
}

// The current directory is through.
static enum walk_event leave(struct walk *w, struct walk_entry *e)
{
	struct level *l = top(w), *up = l - 1;
	*e = (struct walk_entry){.type = DT_DIR, .dirfd = -1, .marked = l->marked, .passes = l->passes};
	w->name_at = l->name_at;
	w->passes = l->passes;
	int rc = w->count > 1 && up->fd < 0 ? reopen(up, l->fd) : 0;
	level_close(l);
	w->count--;
	if (w->count == 0) {
		w->marked = e->marked;
		return done(w, e);
	}
	if (rc == 0) {
		up->marked |= e->marked;
		e->dirfd = up->fd;
		return give(w, e, WALK_LEAVE, w->count);
	}
	e->err = rc;
	size_t depth = w->count;
	w->count = 0; // those further up are closed too
	w->marked = true;
	return give(w, e, WALK_ERROR, depth);
}

enum walk_event walk_next(struct walk *w, struct walk_entry *e)
{
	if (w->count == 0)
		return done(w, e);
	struct level *l = top(w);
	const struct dirent64 *d = NULL;
	cut(w, l->path_len);
	int rc = next_dirent(w, l, &d);
	if (rc == 0)
		return leave(w, e);
	const char *sep = w->path[l->path_len - 1] == '/' ? "" : "/";
	if (rc > 0 && put(w, sep) && put(w, d->d_name)) {
		struct stat st;
		w->name_at = l->path_len + strlen(sep);
		*e = (struct walk_entry){.type = d->d_type, .dirfd = l->fd};
		give(w, e, WALK_ENTRY, w->count);
		if (e->type == DT_UNKNOWN && walk_stat(e, &st) == 0)
			e->type = (unsigned char)IFTODT(st.st_mode);
		return WALK_ENTRY;
	}
	cut(w, l->path_len);
	return fail(w, e, rc < 0 ? rc : -ENOMEM);
}

void walk_set_order(struct walk *w, enum walk_order order)
{
	w->order = order;
}

int walk_enter(struct walk *w)
{
	assert(w->count > 0 && (w->last == WALK_ENTRY || w->last == WALK_LEAVE));
	unsigned passes = w->last == WALK_LEAVE ? w->passes + 1 : 1;
	int fd = walk_open_dir(top(w)->fd, w->path + w->name_at);
	int rc = fd < 0 ? fd : push(w, fd, passes);
	if (rc < 0)
		io_close(&fd);
	return rc;
}

void walk_mark(struct walk *w)
{
	if (w->count > 0)
		top(w)->marked = true;
}

int walk_stat(const struct walk_entry *e, struct stat *st)
{
	return fstatat(e->dirfd, e->name, st, AT_SYMLINK_NOFOLLOW) < 0 ? -errno : 0;
}
