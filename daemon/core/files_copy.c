// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/files_priv.h"
#include "daemon/io.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/xattr.h>
#include <unistd.h>

#define TEMP_PREFIX ".celld-"
enum { TEMP_HEX = 16 };
_Static_assert(sizeof TEMP_PREFIX + TEMP_HEX <= FILES_TEMP_SIZE, "the name fits");

void files_temp_make(char name[FILES_TEMP_SIZE])
{
	uint64_t r;
	if (IO_AGAIN(getrandom(&r, sizeof r, GRND_NONBLOCK)) != (ssize_t)sizeof r)
		r = (uint64_t)io_mono_ns(); // O_EXCL guards it
	(void)snprintf(name, FILES_TEMP_SIZE, TEMP_PREFIX "%016llx", (unsigned long long)r);
}

bool files_temp_name(const char *name)
{
	size_t n = sizeof TEMP_PREFIX - 1;
	return strncmp(name, TEMP_PREFIX, n) == 0 && strlen(name + n) == TEMP_HEX &&
	       strspn(name + n, "0123456789abcdef") == TEMP_HEX;
}

int files_write_all(int fd, const void *p, size_t n)
{
	const char *at = p;
	while (n > 0) {
		ssize_t put = io_write(fd, at, n);
		if (put <= 0)
			return put < 0 ? (int)put : -EIO;
		at += put;
		n -= (size_t)put;
	}
	return 0;
}

// One attribute. What the file system or the kernel does not let us copy is left out.
static int copy_xattr(int from, int to, const char *name)
{
	// Capabilities were given to the old content; a write in place loses them too.
	if (strcmp(name, "security.capability") == 0)
		return 0;
	ssize_t n = fgetxattr(from, name, NULL, 0);
	if (n < 0)
		return 0;
	char *value = malloc((size_t)n + 1);
	if (!value)
		return -ENOMEM;
	n = fgetxattr(from, name, value, (size_t)n);
	int rc = n >= 0 && fsetxattr(to, name, value, (size_t)n, 0) < 0 ? -errno : 0;
	free(value);
	return rc == -ENOSPC || rc == -EDQUOT ? rc : 0;
}

static int copy_xattrs(int from, int to)
{
	ssize_t n = flistxattr(from, NULL, 0);
	if (n <= 0)
		return 0;
	char *names = malloc((size_t)n);
	if (!names)
		return -ENOMEM;
	n = flistxattr(from, names, (size_t)n);
	int rc = 0;
	for (ssize_t at = 0; at < n && rc == 0; at += (ssize_t)strlen(names + at) + 1)
		rc = copy_xattr(from, to, names + at);
	free(names);
	return rc;
}

static int copy_mode(int to, mode_t mode)
{
	struct stat st;
	if (fchmod(to, mode) == 0)
		return 0;
	int rc = -errno;
	return fstat(to, &st) == 0 && (st.st_mode & 07777) == mode ? 0 : rc;
}

int files_copy_meta(int from, int to, const struct stat *st)
{
	// The mode last: a change of the owner clears bits of it, and an ACL among the attributes has its own idea of it.
	int rc = files_give(to, &(struct files_owner){st->st_uid, st->st_gid});
	// What the new one has from a directory's default is not of the old one: it may let others read it.
	(void)fremovexattr(to, "system.posix_acl_access");
	if (S_ISDIR(st->st_mode))
		(void)fremovexattr(to, "system.posix_acl_default");
	if (rc == 0)
		rc = copy_xattrs(from, to);
	return rc < 0 ? rc : copy_mode(to, st->st_mode & 07777);
}
