// SPDX-License-Identifier: Apache-2.0
// What a box has in its DIR: the places that it writes to, its users, its key, its sockets.
#include "daemon/io.h"
#include "tests/gateway/box_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BACKLOG 4096

static const struct {
	const char *name;
	mode_t mode;
	bool of_user; // belongs to who runs commands
} dirs[] = {
	{"work", 0755, true},
	{"tmp", 01777, false},
	{"shm", 01777, false},
	{"root", 0700, false},
	{"key", 0700, false},
	{"etc", 0755, false},
};

// The lines of FROM but those of root and user, behind HEAD.
static int copy_lines(int from, FILE *out, const char *head)
{
	FILE *in = from < 0 ? NULL : fdopen(from, "r");
	char *line = NULL;
	size_t cap = 0;
	fputs(head, out);
	while (in && getline(&line, &cap, in) > 0) {
		if (strncmp(line, "root:", 5) != 0 && strncmp(line, BOX_USER ":", sizeof BOX_USER) != 0)
			fputs(line, out);
	}
	free(line);
	if (in)
		(void)fclose(in);
	return ferror(out) ? -EIO : 0;
}

static int write_users(const struct box *b, const char *name, const char *head)
{
	char path[32];
	(void)snprintf(path, sizeof path, "/etc/%s", name);
	int from = open(path, O_RDONLY | O_CLOEXEC);
	int fd = openat(b->dirfd, path + 1, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
	FILE *out = fd < 0 ? NULL : fdopen(fd, "w");
	if (!out) {
		int rc = -errno;
		io_close(&fd);
		io_close(&from);
		return rc;
	}
	int rc = copy_lines(from, out, head);
	return fclose(out) != 0 && rc == 0 ? -errno : rc;
}

// The user comes first, so that it is also the name of its uid. In a user namespace there is one uid only.
static int make_users(const struct box *b)
{
	char passwd[256], group[128];
	unsigned id = geteuid() == 0 ? BOX_UID : 0;
	const char *shell = access("/bin/bash", X_OK) == 0 ? "/bin/bash" : "/bin/sh";
	(void)snprintf(passwd, sizeof passwd, BOX_USER ":x:%u:%u::/home/" BOX_USER ":%s\nroot:x:0:0:root:/root:%s\n",
		id, id, shell, shell);
	(void)snprintf(group, sizeof group, BOX_USER ":x:%u:\nroot:x:0:\n", id);
	int rc = write_users(b, "passwd", passwd);
	return rc < 0 ? rc : write_users(b, "group", group);
}

static int drop_attributes(int fd)
{
	char names[4096];
	ssize_t n = flistxattr(fd, names, sizeof names);
	if (n < 0)
		return errno == ENOTSUP ? 0 : -errno;
	for (const char *s = names; s < names + n; s += strlen(s) + 1) {
		// Labels are the system's.
		bool left = strncmp(s, "user.", 5) == 0 || strncmp(s, "system.posix_acl_", 17) == 0;
		if (left && fremovexattr(fd, s) < 0)
			return -errno;
	}
	return 0;
}

int box_places_mend(const struct box *b)
{
	bool switches = b->namespaces && geteuid() == 0;
	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
		uid_t id = dirs[i].of_user ? BOX_UID : 0;
		// Its user may have closed it for himself, whose own we open it as.
		if (fchmodat(b->dirfd, dirs[i].name, 0700, AT_SYMLINK_NOFOLLOW) < 0)
			return -errno;
		int fd = openat(b->dirfd, dirs[i].name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		int rc = fd < 0 ? -errno : drop_attributes(fd);
		if (rc == 0 && switches && fchown(fd, id, id) < 0)
			rc = -errno;
		if (rc == 0 && fchmod(fd, dirs[i].mode) < 0)
			rc = -errno;
		io_close(&fd);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int box_places_make(const struct box *b)
{
	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++) {
		if (mkdirat(b->dirfd, dirs[i].name, 0700) < 0 && errno != EEXIST)
			return -errno;
	}
	int rc = box_places_mend(b);
	if (rc == 0)
		rc = box_write_token(b, "");
	return rc == 0 && b->namespaces ? make_users(b) : rc;
}

void box_places_remove(const struct box *b)
{
	static const char *const files[] = {"etc/passwd", "etc/group", "key/token", "key/new"};
	for (size_t i = 0; i < sizeof files / sizeof *files; i++)
		unlinkat(b->dirfd, files[i], 0);
	for (size_t i = 0; i < sizeof dirs / sizeof *dirs; i++)
		unlinkat(b->dirfd, dirs[i].name, AT_REMOVEDIR);
}

int box_write_token(const struct box *b, const char *token)
{
	size_t n = strlen(token);
	int fd = openat(b->dirfd, "key/new", O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	ssize_t wrote = io_write(fd, token, n);
	io_close(&fd);
	if (wrote < 0 || (size_t)wrote < n)
		return wrote < 0 ? (int)wrote : -EIO;
	return renameat(b->dirfd, "key/new", b->dirfd, "key/token") < 0 ? -errno : 0;
}

void box_address(const struct box *b, unsigned port, struct sockaddr_un *out)
{
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	(void)snprintf(out->sun_path, sizeof out->sun_path, "/proc/self/fd/%d/%u.sock", b->dirfd, port);
}

int box_listen(const struct box *b, unsigned port)
{
	struct sockaddr_un a;
	box_address(b, port, &a);
	if (unlink(a.sun_path) < 0 && errno != ENOENT)
		return -errno;
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (bind(fd, (const struct sockaddr *)&a, sizeof a) < 0 || chmod(a.sun_path, 0600) < 0 ||
		listen(fd, BACKLOG) < 0) {
		int rc = -errno;
		close(fd);
		return rc;
	}
	return fd;
}
