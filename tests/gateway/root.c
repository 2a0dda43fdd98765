// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/root.h"

#include "daemon/core/tree.h"
#include "daemon/io.h"
#include "daemon/log.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
#define LOCK "lock"
#define OWN "/tmp/celld-gateway."
// A younger one may be somebody's who is about to lock it.
#define OWN_AGE_S 10

// Others than the gateway's user pass through to a sandbox's workspace, but see nothing on the way.
enum { PASS = 0711 };

static const struct {
	const char *name;
	mode_t mode;
} parts[] = {{"slots", PASS}, {"snapshots", 0700}, {"paused", 0700}};

static bool name_in(char *out, size_t n, const struct root *r, const char *name)
{
	int len = snprintf(out, n, "%s/%s", r->path, name);
	return len > 0 && (size_t)len < n;
}

// A directory that its own user may not read is opened up first: only root needs no leave.
static void remove_tree(const char *dir)
{
	static const char script[] =
		"[ $2 = 0 ] || chmod -R u+rwX -- \"$1\" 2>/dev/null; exec rm -rf --one-file-system -- \"$1\"";
	const char *const argv[] = {"sh", "-c", script, "sh", dir, geteuid() == 0 ? "0" : "1", NULL};
	pid_t pid;
	int status = 0;
	if (access(dir, F_OK) < 0)
		return;
	int rc = posix_spawnp(&pid, "sh", NULL, NULL, (char *const *)(uintptr_t)argv, environ);
	while (rc == 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (rc || status)
		log_warn("left", "%s could not be removed", dir);
}

static void remove_parts(const struct root *r)
{
	for (size_t i = 0; i < COUNT(parts); i++) {
		char path[PATH_MAX + 16];
		if (name_in(path, sizeof path, r, parts[i].name))
			remove_tree(path);
	}
}

static int make_parts(const struct root *r)
{
	for (size_t i = 0; i < COUNT(parts); i++) {
		char path[PATH_MAX + 16];
		if (!name_in(path, sizeof path, r, parts[i].name))
			return -ENAMETOOLONG;
		if (mkdir(path, parts[i].mode) < 0)
			return -errno;
	}
	return 0;
}

static int make_own(struct root *r)
{
	char name[] = OWN "XXXXXX";
	if (!mkdtemp(name))
		return -errno;
	r->own = true;
	(void)snprintf(r->path, sizeof r->path, "%s", name);
	return chmod(name, PASS) < 0 ? -errno : 0;
}

static int use(struct root *r, const char *dir)
{
	static_assert(sizeof r->path >= PATH_MAX, "realpath writes that much");
	if (mkdir(dir, PASS) < 0 && errno != EEXIST)
		return -errno;
	if (!realpath(dir, r->path)) {
		r->path[0] = '\0';
		return -errno;
	}
	return 0;
}

// MORE: O_CREAT, or 0: only if it is there.
static int lock(struct root *r, int more)
{
	char path[PATH_MAX + 16];
	if (!name_in(path, sizeof path, r, LOCK))
		return -ENAMETOOLONG;
	r->lock = open(path, O_RDWR | more | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (r->lock < 0)
		return -errno;
	if (flock(r->lock, LOCK_EX | LOCK_NB) == 0)
		return 0;
	int rc = errno == EWOULDBLOCK ? -EBUSY : -errno;
	io_close(&r->lock);
	return rc;
}

// --- what a gateway that was killed has left ---

// A plain child that was stopped then is there for ever: its command line says where it belongs.
static int end_leftover(void *arg, const struct tree_stat *s)
{
	const struct root *r = arg;
	char path[48], line[2 * PATH_MAX], own[PATH_MAX + 32];
	(void)snprintf(path, sizeof path, "/proc/%d/cmdline", (int)s->pid);
	ssize_t n = io_read_file(path, line, sizeof line);
	int len = snprintf(own, sizeof own, "--token-file%c%s/slots/", '\0', r->path);
	if (n > 0 && len > 0 && (size_t)len < sizeof own && memmem(line, (size_t)n, own, (size_t)len))
		tree_signal(s->pid, getpid(), SIGKILL);
	return 0;
}

static void end_leftovers(struct root *r)
{
	(void)tree_each(end_leftover, r);
	remove_parts(r);
}

// Those that were made here and that nobody holds any more.
static void sweep_own(void)
{
	glob_t found;
	if (glob(OWN "??????", GLOB_NOSORT, NULL, &found) != 0)
		return;
	for (size_t i = 0; i < found.gl_pathc; i++) {
		struct root old = {.lock = -1, .own = true};
		struct stat st;
		(void)snprintf(old.path, sizeof old.path, "%s", found.gl_pathv[i]);
		if (lstat(old.path, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() ||
			time(NULL) - st.st_mtime < OWN_AGE_S || lock(&old, 0) < 0)
			continue;
		end_leftovers(&old);
		root_close(&old);
	}
	globfree(&found);
}

int root_open(struct root *r, const char *dir)
{
	*r = (struct root){.lock = -1};
	if (!dir)
		sweep_own();
	int rc = dir ? use(r, dir) : make_own(r);
	if (rc == 0)
		rc = lock(r, O_CREAT);
	if (rc == 0) {
		end_leftovers(r);
		rc = make_parts(r);
	}
	if (rc < 0)
		root_close(r);
	return rc;
}

void root_close(struct root *r)
{
	char path[PATH_MAX + 16];
	if (r->path[0] && r->lock >= 0) {
		remove_parts(r);
		if (name_in(path, sizeof path, r, LOCK))
			unlink(path);
	}
	if (r->path[0] && r->own)
		rmdir(r->path);
	if (r->lock >= 0)
		io_close(&r->lock);
	r->path[0] = '\0';
}
