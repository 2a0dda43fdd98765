// SPDX-License-Identifier: Apache-2.0
// A tree in pre-order, each directory by its names' bytes (the clients rely on it). The names of a directory go into a heap while it is read
// and come out sorted while it is told, so that no step is longer than others. Unlike core/walk this goes into mount points.
#include "daemon/envd/filesystem.h"
#include "daemon/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK)
#define STEP_OUT ((size_t)64 * 1024)
#define READ_MAX ((size_t)32 * 1024)
// What the names that wait may take: about a million.
#define NAMES_MAX ((size_t)64 * 1024 * 1024)
#define NAME_COST (sizeof(struct name) + 16)
#define FDS_MAX 64 // directories open at once, however deep the tree is

struct name {
	uint64_t first; // its first bytes as a number: most comparisons need no more
	char *s;
};

// A directory on the way down.
struct level {
	int fd; // -1 while it is too far up
	dev_t dev;
	ino_t ino;
	size_t path_len;
	struct name *names; // a heap: the least one first
	size_t count, cap;
};

struct list {
	struct fs_job job; // first
	struct users *users;
	unsigned depth;
	struct level *levels;
	size_t count, cap;
	char *path; // of the entry, or of the current directory
	size_t path_cap;
	size_t held; // by names
	char *read;  // what getdents64 gave of the current directory, if it is being read
	struct fs_entry entry;
};

static struct level *top(struct list *l)
{
	return &l->levels[l->count - 1];
}

// --- names ---

static bool less(const struct name *a, const struct name *b)
{
	return a->first != b->first ? a->first < b->first : strcmp(a->s, b->s) < 0;
}

static uint64_t first_bytes(const char *s)
{
	uint64_t v = 0;
	for (unsigned i = 0; i < sizeof v; i++)
		v = v << 8 | (unsigned char)(*s ? *s++ : 0);
	return v;
}

static int names_push(struct list *l, const char *name)
{
	struct level *d = top(l);
	size_t cost = strlen(name) + NAME_COST;
	if (l->held + cost > NAMES_MAX)
		return -EMSGSIZE;
	if (d->count == d->cap) {
		size_t cap = d->cap ? 2 * d->cap : 64;
		struct name *more = realloc(d->names, cap * sizeof *more);
		if (!more)
			return -ENOMEM;
		d->names = more;
		d->cap = cap;
	}
	struct name new = {first_bytes(name), strdup(name)};
	if (!new.s)
		return -ENOMEM;
	l->held += cost;
	size_t i = d->count++;
	for (; i > 0 && less(&new, &d->names[(i - 1) / 2]); i = (i - 1) / 2)
		d->names[i] = d->names[(i - 1) / 2];
	d->names[i] = new;
	return 0;
}

// The least name, the caller's. There is one.
static char *names_pop(struct list *l)
{
	struct level *d = top(l);
	char *least = d->names[0].s;
	struct name last = d->names[--d->count];
	size_t i = 0;
	for (size_t child = 1; child < d->count; child = 2 * i + 1) {
		if (child + 1 < d->count && less(&d->names[child + 1], &d->names[child]))
			child++;
		if (!less(&d->names[child], &last))
			break;
		d->names[i] = d->names[child];
		i = child;
	}
	d->names[i] = last;
	l->held -= strlen(least) + NAME_COST;
	return least;
}

// --- levels ---

static void level_release(struct level *d)
{
	io_close(&d->fd);
	while (d->count > 0)
		free(d->names[--d->count].s);
	free(d->names);
	*d = (struct level){.fd = -1};
}

// Begins to read the directory FD (taken, closed on failure too), whose path is l->path. 0 or negative errno.
static int push(struct list *l, int fd)
{
	struct stat st;
	int rc = fstat(fd, &st) < 0 ? -errno : 0;
	if (rc == 0 && l->count == l->cap) {
		size_t cap = l->cap ? 2 * l->cap : 16;
		struct level *more = realloc(l->levels, cap * sizeof *more);
		if (more) {
			l->levels = more;
			l->cap = cap;
		} else {
			rc = -ENOMEM;
		}
	}
	if (rc == 0 && !(l->read = malloc(READ_MAX)))
		rc = -ENOMEM;
	if (rc < 0) {
		io_close(&fd);
		return rc;
	}
	if (l->count >= FDS_MAX)
		io_close(&l->levels[l->count - FDS_MAX].fd);
	l->levels[l->count++] =
		(struct level){.fd = fd, .dev = st.st_dev, .ino = st.st_ino, .path_len = strlen(l->path)};
	return 0;
}

// The current directory is through. 0, or negative errno if the way up is lost.
static int pop(struct list *l)
{
	struct level *d = top(l), *up = d - 1;
	struct stat st;
	int rc = 0;
	if (l->count > 1 && up->fd < 0) {
		up->fd = IO_AGAIN(openat(d->fd, "..", DIR_FLAGS));
		// Somebody may have moved the directory elsewhere.
		if (up->fd < 0 || fstat(up->fd, &st) < 0)
			rc = -errno;
		else if (st.st_dev != up->dev || st.st_ino != up->ino)
			rc = -ESTALE;
	}
	level_release(d);
	l->count--;
	return rc;
}

// Makes l->path NAME in the current directory.
static int set_path(struct list *l, const char *name)
{
	size_t len = top(l)->path_len, n = strlen(name), need = len + 1 + n + 1;
	if (need > l->path_cap) {
		char *more = realloc(l->path, 2 * need);
		if (!more)
			return -ENOMEM;
		l->path = more;
		l->path_cap = 2 * need;
	}
	if (l->path[len - 1] != '/')
		l->path[len++] = '/';
	memcpy(l->path + len, name, n + 1);
	return 0;
}

// --- going on ---

static int fail(struct list *l, int rc)
{
	l->path[l->count ? top(l)->path_len : strlen(l->path)] = '\0';
	if (rc == -EMSGSIZE)
		return err_set(&l->job.err, ERR_RESOURCE_EXHAUSTED, "too many entries: %s", l->path);
	return fs_failed(&l->job.err, ERR_INTERNAL, rc, "error reading directory %s", l->path);
}

// Takes a bufferful of names; at their end l->read goes. 0 or negative errno.
static int read_some(struct list *l)
{
	ssize_t n = getdents64(top(l)->fd, l->read, READ_MAX);
	int rc = n < 0 ? -errno : 0;
	if (rc == -ENOENT || rc == -ESRCH)
		rc = 0; // it was removed: there is nothing more
	for (ssize_t at = 0; at < n && rc == 0;) {
		const struct dirent64 *d = (const struct dirent64 *)(void *)(l->read + at);
		at += d->d_reclen;
		if (strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			rc = names_push(l, d->d_name);
	}
	if (n <= 0 || rc < 0) {
		free(l->read);
		l->read = NULL;
	}
	return rc;
}

// What has gone or changed since it was told is no failure.
static int enter(struct list *l, const char *name)
{
	int fd = IO_AGAIN(openat(top(l)->fd, name, DIR_FLAGS | O_NOFOLLOW));
	if (fd >= 0)
		return push(l, fd);
	return errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == ESRCH ? 0 : -errno;
}

static int tell(struct list *l, const char *name)
{
	struct stat st;
	int fd = top(l)->fd;
	int rc = set_path(l, name);
	if (rc < 0 || fstatat(fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return rc; // gone meanwhile
	rc = fs_entry_fill(&l->entry, l->users, fd, name, l->path, &st);
	if (rc < 0)
		return rc;
	fs_job_put_entry(&l->job, "entries", &l->entry);
	return S_ISDIR(st.st_mode) && l->count < l->depth ? enter(l, name) : 0;
}

static int next(struct list *l)
{
	if (l->read)
		return read_some(l);
	if (top(l)->count == 0)
		return pop(l);
	char *name = names_pop(l);
	int rc = tell(l, name);
	free(name);
	return rc;
}

static enum fs_state list_step(struct fs_job *j, int64_t until)
{
	struct list *l = (struct list *)j;
	size_t start = buf_len(&j->out);
	fs_entry_forget(&l->entry);
	while (l->count > 0) {
		int rc = next(l);
		if (rc < 0) {
			fail(l, rc);
			return FS_FAILED;
		}
		if (buf_len(&j->out) - start >= STEP_OUT || io_mono_ns() >= until)
			return FS_MORE;
	}
	fs_job_put_end(j);
	return FS_DONE;
}

static void list_free(struct fs_job *j)
{
	struct list *l = (struct list *)j;
	while (l->count > 0)
		level_release(&l->levels[--l->count]);
	free(l->levels);
	free(l->read);
	free(l->path);
	fs_entry_release(&l->entry);
	free(l);
}

// --- beginning ---

// Fills E for a path that is not there: the message names what is missing, a symlink's target too.
static int missing(struct err *e, const char *path)
{
	char name[PATH_MAX], target[PATH_MAX];
	struct stat st;
	size_t n = 1;
	(void)snprintf(name, sizeof name, "%s", path);
	ssize_t len = readlink(name, target, sizeof target - 1);
	if (len > 0) {
		target[len] = '\0';
		char *slash = strrchr(name, '/');
		size_t dir = target[0] == '/' || !slash ? 0 : (size_t)(slash - name) + 1;
		(void)snprintf(name + dir, sizeof name - dir, "%s", target);
		envd_clean(name);
	}
	for (; name[n]; n++) {
		if (name[n] != '/')
			continue;
		name[n] = '\0';
		if (lstat(name, &st) < 0)
			break;
		name[n] = '/';
	}
	return fs_failed(e, ERR_NOT_FOUND, -ENOENT, "path not found: lstat %s", name);
}

// Fills E for RC of opening PATH.
static int open_error(struct err *e, int rc, const char *path)
{
	if (rc == -ENOENT)
		return missing(e, path);
	if (rc == -ELOOP)
		return err_set(e, ERR_FAILED_PRECONDITION, "cyclic symlink or chain >255 links at \"%s\"", path);
	char *real = rc == -ENOTDIR ? realpath(path, NULL) : NULL;
	if (real)
		err_set(e, ERR_INVALID_ARGUMENT, "path is not a directory: %s", real);
	else
		fs_failed(e, ERR_INTERNAL, rc, "error resolving symlink");
	free(real);
	return -1;
}

static int list_open(struct list *l, struct rpc *r, const Filesystem__ListDirRequest *req, struct err *e)
{
	l->users = rpc_envd(r)->users;
	l->depth = req->depth ? req->depth : 1;
	l->path = fs_path(r, req->path, e);
	if (!l->path)
		return -1;
	int fd = IO_AGAIN(open(l->path, DIR_FLAGS));
	if (fd < 0)
		return open_error(e, -errno, l->path);
	envd_clean(l->path);
	l->path_cap = strlen(l->path) + 1;
	int rc = push(l, fd);
	return rc < 0 ? fs_failed(e, ERR_INTERNAL, rc, "error reading directory %s", l->path) : 0;
}

void fs_list(struct rpc *r, const ProtobufCMessage *req)
{
	static const struct fs_job_ops ops = {.step = list_step, .free = list_free};
	struct err e;
	struct list *l = calloc(1, sizeof *l);
	if (l && list_open(l, r, (const void *)req, &e) == 0) {
		fs_job_start(&l->job, r, &ops);
		return;
	}
	if (l)
		list_free(&l->job);
	else
		err_sys(&e, -ENOMEM, "list");
	rpc_error(r, &e);
}
