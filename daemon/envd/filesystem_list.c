// SPDX-License-Identifier: Apache-2.0
// A tree in pre-order, each directory by its names' bytes (the clients rely on it). Each bufferful of a directory's names is sorted as it
// is read, and what they have been sorted into is merged while it is told, so that no step is longer than others. Unlike core/walk this goes
// into mount points.
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
#define FDS_MAX 64 // directories open at once, however deep the tree is

struct name {
	uint64_t first; // its first bytes as a number: most comparisons need no more
	const char *s;  // in its run
};

// A bufferful of names in their order, and behind them their bytes.
struct run {
	size_t size; // of it all
	size_t next, count;
	struct name names[];
};

// A directory on the way down.
struct level {
	int fd; // -1 while it is too far up
	dev_t dev;
	ino_t ino;
	size_t path_len;
	struct run **runs; // a heap: first the one whose next name is the least
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

static int compare(const void *a, const void *b)
{
	return less(a, b) ? -1 : less(b, a);
}

static void turn_round(struct name *n, size_t count)
{
	for (size_t i = 0; i < count / 2; i++) {
		struct name x = n[i];
		n[i] = n[count - 1 - i];
		n[count - 1 - i] = x;
	}
}

// Some file systems keep the order in which the entries were made, or have the last one first.
static void sort(struct name *n, size_t count)
{
	size_t up = 1, down = 1;
	while (up < count && less(&n[up - 1], &n[up]))
		up++;
	while (down < count && less(&n[down], &n[down - 1]))
		down++;
	if (down >= count)
		turn_round(n, count);
	else if (up < count)
		qsort(n, count, sizeof *n, compare);
}

static const struct dirent64 *entry_at(const char *read, size_t at)
{
	return (const struct dirent64 *)(const void *)(read + at);
}

static bool is_name(const char *s)
{
	return s[0] != '.' || (s[1] && (s[1] != '.' || s[2]));
}

// The names among the N bytes that getdents64 gave: *OUT, NULL if there are none. 0 or -ENOMEM.
static int run_new(struct run **out, const char *read, size_t n)
{
	size_t count = 0, bytes = 0;
	*out = NULL;
	for (size_t at = 0; at < n; at += entry_at(read, at)->d_reclen) {
		const char *s = entry_at(read, at)->d_name;
		if (is_name(s)) {
			count++;
			bytes += strlen(s) + 1;
		}
	}
	size_t size = sizeof(struct run) + count * sizeof(struct name) + bytes;
	struct run *r = count ? malloc(size) : NULL;
	if (!r)
		return count ? -ENOMEM : 0;
	*r = (struct run){.size = size};
	char *to = (char *)&r->names[count];
	for (size_t at = 0; at < n; at += entry_at(read, at)->d_reclen) {
		const char *s = entry_at(read, at)->d_name;
		if (!is_name(s))
			continue;
		r->names[r->count++] = (struct name){first_bytes(s), to};
		size_t len = strlen(s) + 1;
		memcpy(to, s, len);
		to += len;
	}
	sort(r->names, count);
	*out = r;
	return 0;
}

static bool earlier(const struct run *a, const struct run *b)
{
	return less(&a->names[a->next], &b->names[b->next]);
}

// R is of the current directory, the list's also on failure. 0 or negative errno.
static int runs_push(struct list *l, struct run *r)
{
	struct level *d = top(l);
	int rc = l->held + r->size > NAMES_MAX ? -EMSGSIZE : 0;
	if (rc == 0 && d->count == d->cap) {
		size_t cap = d->cap ? 2 * d->cap : 8;
		struct run **more = realloc(d->runs, cap * sizeof(struct run *));
		if (more) {
			d->runs = more;
			d->cap = cap;
		} else {
			rc = -ENOMEM;
		}
	}
	if (rc < 0) {
		free(r);
		return rc;
	}
	l->held += r->size;
	size_t i = d->count++;
	for (; i > 0 && earlier(r, d->runs[(i - 1) / 2]); i = (i - 1) / 2)
		d->runs[i] = d->runs[(i - 1) / 2];
	d->runs[i] = r;
	return 0;
}

// The least name of the current directory is told.
static void runs_pop(struct list *l)
{
	struct level *d = top(l);
	struct run *r = d->runs[0];
	if (++r->next == r->count) {
		l->held -= r->size;
		free(r);
		r = d->runs[--d->count];
	}
	size_t i = 0;
	for (size_t child = 1; child < d->count; child = 2 * i + 1) {
		if (child + 1 < d->count && earlier(d->runs[child + 1], d->runs[child]))
			child++;
		if (!earlier(d->runs[child], r))
			break;
		d->runs[i] = d->runs[child];
		i = child;
	}
	if (d->count > 0)
		d->runs[i] = r;
}

// --- levels ---

static void level_release(struct level *d)
{
	io_close(&d->fd);
	while (d->count > 0)
		free(d->runs[--d->count]);
	free(d->runs);
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

// Makes l->path NAME in the current directory, and *REL its copy there.
static int set_path(struct list *l, const char *name, const char **rel)
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
	*rel = memcpy(l->path + len, name, n + 1);
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
	struct run *r = NULL;
	if (n > 0)
		rc = run_new(&r, l->read, (size_t)n);
	if (r)
		rc = runs_push(l, r);
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

// The next entry.
static int tell(struct list *l)
{
	struct stat st;
	const struct run *r = top(l)->runs[0];
	const char *name;
	int fd = top(l)->fd, rc = set_path(l, r->names[r->next].s, &name);
	runs_pop(l);
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
	return tell(l);
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
