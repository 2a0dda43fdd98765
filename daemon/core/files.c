// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/files.h"

#include "daemon/core/files_priv.h"
#include "daemon/io.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char *files_path(const char *dir, const char *path)
{
	char *s;
	if (*path == '/')
		return strdup(path);
	return asprintf(&s, "%s/%s", dir, path) < 0 ? NULL : s;
}

char *files_dirname(const char *path)
{
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	while (n > 0 && path[n - 1] != '/')
		n--;
	while (n > 1 && path[n - 1] == '/')
		n--;
	return n > 0 ? strndup(path, n) : strdup(".");
}

int files_readlink(int at, const char *name, char **out)
{
	char target[PATH_MAX + 1];
	ssize_t n = readlinkat(at, name, target, sizeof target - 1);
	if (n < 0)
		return -errno;
	target[n] = '\0';
	*out = strdup(target);
	return *out ? 0 : -ENOMEM;
}

int files_rename(const char *from, const char *to)
{
	return rename(from, to) < 0 ? -errno : 0;
}

int files_unlink(int at, const char *name)
{
	return unlinkat(at, name, 0) < 0 ? -errno : 0;
}

int files_unlink_known(const char *path, const struct stat *st)
{
	struct stat now;
	const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
	char *dir = files_dirname(path);
	int at = dir ? IO_AGAIN(open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)) : -1;
	int rc = !dir ? -ENOMEM : at < 0 || fstatat(at, name, &now, 0) < 0 ? -errno : 0;
	if (rc == 0)
		rc = now.st_dev == st->st_dev && now.st_ino == st->st_ino ? files_unlink(at, name) : -ESTALE;
	io_close(&at);
	free(dir);
	return rc;
}

int files_give(int fd, const struct files_owner *owner)
{
	struct stat st;
	if (fchown(fd, owner->uid, owner->gid) == 0 || (errno == EPERM && geteuid() != 0))
		return 0;
	int rc = -errno;
	// Where nobody can change it, it may be whose it is to be.
	return fstat(fd, &st) == 0 && st.st_uid == owner->uid && st.st_gid == owner->gid ? 0 : rc;
}

static bool is_dot(const char *name)
{
	return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

// Nothing is in the directory FD: 0, -EEXIST, or another negative errno.
static int check_empty(int fd)
{
	_Alignas(struct dirent64) char entries[1024];
	ssize_t n;
	while ((n = getdents64(fd, entries, sizeof entries)) > 0) {
		for (ssize_t at = 0; at < n;) {
			const struct dirent64 *d = (const struct dirent64 *)(const void *)(entries + at);
			if (!is_dot(d->d_name))
				return -EEXIST;
			at += d->d_reclen;
		}
	}
	return n < 0 ? -errno : 0;
}

int files_open_made(int at, const char *name)
{
	int fd = IO_AGAIN(openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | FILES_OPEN));
	int rc = fd < 0 ? -errno : check_empty(fd);
	if (rc < 0)
		io_close(&fd);
	return rc < 0 ? rc : fd;
}

// The way there is gone once: whoever owns a directory on it could lead a second one elsewhere.
static int make_dir(const char *path, const struct files_owner *owner)
{
	size_t n = strlen(path), from;
	while (n > 1 && path[n - 1] == '/')
		n--;
	for (from = n; from > 0 && path[from - 1] != '/'; from--)
		;
	char *dir = files_dirname(path), *name = strndup(path + from, n - from);
	int at = dir && name ? IO_AGAIN(open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC)) : -1, fd = -1;
	int rc = !dir || !name ? -ENOMEM : at < 0 ? -errno : 0;
	if (rc == 0)
		rc = mkdirat(at, *name ? name : ".", 0755) < 0 ? -errno : 0;
	if (rc == 0) {
		// One that stays ours may be full at once: cgroup's are.
		fd = owner->uid != geteuid()
			     ? files_open_made(at, name)
			     : IO_AGAIN(openat(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | FILES_OPEN));
		rc = fd >= 0 ? files_give(fd, owner) : owner->uid != geteuid() ? fd : -errno;
	}
	io_close(&fd);
	io_close(&at);
	free(dir);
	free(name);
	return rc;
}

int files_make_parents(const char *path, const struct files_owner *owner)
{
	char *s = strdup(path);
	if (!s)
		return -ENOMEM;
	int rc = 0;
	size_t end = strlen(s);
	while (end > 0 && s[end - 1] == '/')
		end--; // a slash at the end makes nothing a parent
	for (size_t i = 1; i < end && rc == 0; i++) {
		struct stat st;
		if (s[i] != '/')
			continue;
		s[i] = '\0';
		rc = make_dir(s, owner);
		if (rc < 0 && stat(s, &st) == 0)
			rc = S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
		s[i] = '/';
	}
	free(s);
	return rc;
}

int files_mkdir(const char *path, bool parents, const struct files_owner *owner)
{
	int rc = make_dir(path, owner);
	if (rc != -ENOENT || !parents)
		return rc;
	rc = files_make_parents(path, owner);
	return rc < 0 ? rc : make_dir(path, owner);
}

static int check_read(const struct stat *st, int64_t max)
{
	if (S_ISDIR(st->st_mode))
		return -EISDIR;
	if (!S_ISREG(st->st_mode))
		return -EINVAL;
	return st->st_size > max ? -EFBIG : 0;
}

int files_open_read(const char *path, int64_t max, int *fd, int64_t *size)
{
	struct stat st;
	// Looked at first: to open a device may already do something.
	int rc = stat(path, &st) < 0 ? -errno : check_read(&st, max);
	if (rc < 0)
		return rc;
	int f = IO_AGAIN(open(path, O_RDONLY | FILES_OPEN));
	if (f < 0)
		return -errno;
	rc = fstat(f, &st) < 0 ? -errno : check_read(&st, max);
	if (rc < 0) {
		io_close(&f);
		return rc;
	}
	*fd = f;
	*size = st.st_size;
	return 0;
}
