// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/files_priv.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// As many as the kernel follows.
enum { LINKS_MAX = 40 };

// A way under way.
struct way {
	int at;              // as far as it is gone; -1 = the root directory
	char rest[PATH_MAX]; // what is left of it
	unsigned links;
};

// The next part of the rest, moved to NAME. False behind the last one.
static bool next_part(struct way *w, char name[NAME_MAX + 2])
{
	size_t skip = strspn(w->rest, "/"), n = strcspn(w->rest + skip, "/");
	if (n == 0)
		return false;
	size_t kept = n <= NAME_MAX ? n : NAME_MAX + 1; // which the kernel finds too long
	memcpy(name, w->rest + skip, kept);
	name[kept] = '\0';
	memmove(w->rest, w->rest + skip + n, strlen(w->rest + skip + n) + 1);
	return true;
}

static void go_to(struct way *w, int fd)
{
	io_close(&w->at);
	w->at = fd;
}

// What is in the root directory is opened by its whole name: emulators and fakeroots know that alone.
static int open_here(const struct way *w, const char *name)
{
	char whole[NAME_MAX + 3] = "/";
	if (w->at < 0)
		memcpy(whole + 1, name, strlen(name) + 1);
	int fd = IO_AGAIN(openat(w->at, w->at < 0 ? whole : name, O_PATH | O_NOFOLLOW | O_CLOEXEC));
	return fd < 0 ? -errno : fd;
}

// Only root and the daemon's own user can put something into W's directory.
static bool is_closed(const struct way *w)
{
	struct stat st;
	return (w->at < 0 ? stat("/", &st) : fstat(w->at, &st)) == 0 && (st.st_uid == 0 || st.st_uid == geteuid()) &&
	       !(st.st_mode & 022);
}

// A link's owner says who made it, not who put it here: where hard links are not protected, anybody can give one of root's another name.
static bool is_trusted(const struct way *w, const struct stat *link)
{
	return (link->st_uid == 0 || link->st_uid == geteuid()) && (link->st_nlink == 1 || is_closed(w));
}

// LINK is a symlink in W's directory: the rest begins with where it leads.
static int follow(struct way *w, int link, const struct stat *st)
{
	char text[PATH_MAX];
	if (!is_trusted(w, st) || ++w->links > LINKS_MAX)
		return -ELOOP;
	ssize_t n = readlinkat(link, "", text, sizeof text);
	if (n < 0)
		return -errno;
	size_t rest = strlen(w->rest);
	if ((size_t)n + rest + 1 >= sizeof w->rest)
		return -ENAMETOOLONG;
	memmove(w->rest + n + 1, w->rest, rest + 1);
	memcpy(w->rest, text, (size_t)n);
	w->rest[n] = '/';
	if (n > 0 && text[0] == '/')
		go_to(w, -1);
	return 0;
}

static int step(struct way *w, const char *name)
{
	struct stat st;
	int fd = open_here(w, name);
	if (fd < 0)
		return fd;
	int rc = fstat(fd, &st) < 0 ? -errno : S_ISLNK(st.st_mode) ? follow(w, fd, &st) : 1;
	if (rc > 0)
		go_to(w, fd);
	else
		io_close(&fd);
	return rc < 0 ? rc : 0;
}

static int walk_it(const char *path)
{
	struct way w = {.at = -1};
	char name[NAME_MAX + 2];
	struct stat st;
	size_t n = strlen(path);
	if (n >= sizeof w.rest)
		return -ENAMETOOLONG;
	memcpy(w.rest, path, n + 1);
	int rc = 0;
	while (rc == 0 && next_part(&w, name))
		rc = step(&w, name);
	if (rc == 0 && w.at < 0)
		w.at = IO_AGAIN(open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
	if (rc == 0 && fstat(w.at, &st) < 0)
		rc = -errno;
	else if (rc == 0 && !S_ISDIR(st.st_mode))
		rc = -ENOTDIR;
	if (rc < 0)
		io_close(&w.at);
	return rc < 0 ? rc : w.at;
}

int files_open_trusted(const char *path)
{
	// In most cases there is no link at all, which one call says.
	struct open_how how = {
		.flags = O_PATH | O_DIRECTORY | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
	long fd = IO_AGAIN(syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how));
	return fd >= 0 ? (int)fd : walk_it(path);
}

int files_make_trusted(const char *path, const struct files_owner *owner)
{
	char parent[PATH_MAX];
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		n--;
	if (n < 2 || path[0] != '/')
		return -EINVAL;
	if (n >= sizeof parent)
		return -ENAMETOOLONG;
	memcpy(parent, path, n);
	parent[n] = '\0';
	char *slash = strrchr(parent, '/');
	*slash = '\0';
	int at = files_open_trusted(slash == parent ? "/" : parent);
	if (at < 0)
		return at;
	int rc = mkdirat(at, slash + 1, 0755) < 0 ? -errno : 0, fd = -1;
	if (rc == 0) {
		fd = files_open_made(at, slash + 1);
		rc = fd < 0 ? fd : files_give(fd, owner);
	}
	io_close(&fd);
	io_close(&at);
	return rc;
}
