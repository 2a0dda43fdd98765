// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/files.h"

#include "daemon/core/files_priv.h"
#include "daemon/io.h"

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

int files_give(int fd, const struct files_owner *owner)
{
	if (fchown(fd, owner->uid, owner->gid) == 0 || (errno == EPERM && geteuid() != 0))
		return 0;
	return -errno;
}

static int make_dir(const char *path, const struct files_owner *owner)
{
	if (mkdir(path, 0755) < 0)
		return -errno;
	// By a descriptor: whoever owns the directory above could have put something else there.
	int fd = IO_AGAIN(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | FILES_OPEN));
	if (fd < 0)
		return -errno;
	int rc = files_give(fd, owner);
	io_close(&fd);
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
