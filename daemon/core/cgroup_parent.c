// SPDX-License-Identifier: Apache-2.0
// The directory that commands' groups are in: BASE/commands, which one celld has at a time. Controllers are handed down from BASE; where that is
// not the root of all groups nothing may be in it for that, so celld itself goes to BASE/celld.
#include "daemon/core/cgroup_priv.h"

#include "daemon/io.h"
#include "proto/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include <utlist.h>

#define LEAF "celld"
#define COMMANDS "commands"
// Sandboxes that may share one group without a namespace.
#define SHARED_MAX 1000
// What was killed at the end is gone by then, or hangs in the kernel.
#define EMPTY_NS ((int64_t)1000000000)
#define EMPTY_LOOK_NS 2000000
// Groups that commands have made below their own.
#define DEPTH_MAX 16

static const char *const controls[CGROUP_CONTROLS] = {"memory", "cpu", "pids"};

int cgroup_write(int at, const char *name, const char *text)
{
	int fd = IO_AGAIN(openat(at, name, O_WRONLY | O_CLOEXEC | O_NONBLOCK));
	if (fd < 0)
		return -errno;
	ssize_t n = io_write(fd, text, strlen(text));
	io_close(&fd);
	return n < 0 ? (int)n : 0;
}

int cgroup_read(int at, const char *name, char *text, size_t n)
{
	int fd = IO_AGAIN(openat(at, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
	if (fd < 0)
		return -errno;
	ssize_t got = io_read(fd, text, n - 1);
	io_close(&fd);
	if (got < 0)
		return (int)got;
	text[got] = '\0';
	return 0;
}

static int fails(char *why, size_t n, int rc, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
static int fails(char *why, size_t n, int rc, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int len = vsnprintf(why, n, fmt, ap);
	va_end(ap);
	if (len >= 0 && (size_t)len < n)
		snprintf(why + len, n - (size_t)len, ": %s", strerror(-rc));
	return rc;
}

static int open_dir(int at, const char *name)
{
	int fd = IO_AGAIN(openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	return fd < 0 ? -errno : fd;
}

// --- controllers ---

static bool has_word(const char *list, const char *word)
{
	size_t n = strlen(word);
	for (const char *p = list; (p = strstr(p, word)); p += n) {
		if ((p == list || p[-1] == ' ') && (!p[n] || p[n] == ' ' || p[n] == '\n'))
			return true;
	}
	return false;
}

static int hand_down(int dir, const char *control)
{
	char text[24];
	snprintf(text, sizeof text, "+%s", control);
	return cgroup_write(dir, "cgroup.subtree_control", text);
}

static int take_back(int dir, const char *control)
{
	char text[24];
	snprintf(text, sizeof text, "-%s", control);
	return cgroup_write(dir, "cgroup.subtree_control", text);
}

// "0" is the process that writes.
static bool move_to_leaf(struct cgroups *g)
{
	if (mkdirat(g->base, LEAF, 0755) < 0 && errno != EEXIST)
		return false;
	g->moved = cgroup_write(g->base, LEAF "/cgroup.procs", "0") == 0;
	if (!g->moved)
		unlinkat(g->base, LEAF, AT_REMOVEDIR);
	return g->moved;
}

static void move_back(struct cgroups *g)
{
	if (!g->moved || cgroup_write(g->base, "cgroup.procs", "0") < 0)
		return;
	g->moved = false;
	unlinkat(g->base, LEAF, AT_REMOVEDIR); // another one may be in it
}

static void tell(struct cgroups *g)
{
	g->state.memory = g->have & (1u << CGROUP_MEMORY);
	g->state.cpu = g->have & (1u << CGROUP_CPU);
	g->state.pids = g->have & (1u << CGROUP_PIDS);
}

static void hand_down_all(struct cgroups *g, bool own)
{
	char there[512], before[512];
	if (cgroup_read(g->base, "cgroup.controllers", there, sizeof there) < 0)
		return;
	if (cgroup_read(g->base, "cgroup.subtree_control", before, sizeof before) < 0)
		before[0] = '\0';
	for (int i = 0; i < CGROUP_CONTROLS; i++) {
		if (!has_word(there, controls[i]))
			continue;
		bool already = has_word(before, controls[i]);
		int rc = already ? 0 : hand_down(g->base, controls[i]);
		if (rc == -EBUSY && own && !g->moved && move_to_leaf(g))
			rc = hand_down(g->base, controls[i]);
		if (rc == 0 && !already)
			g->enabled |= 1u << i;
		if (rc == 0 && hand_down(g->dir, controls[i]) == 0)
			g->have |= 1u << i;
	}
	if (!g->have)
		move_back(g); // others are in there, for whom it was in vain
	tell(g);
}

// --- the directory ---

// One that another celld has is locked, for as long as any process of it lives.
static int open_commands(struct cgroups *g)
{
	for (int i = 1; i <= SHARED_MAX; i++) {
		snprintf(g->name, sizeof g->name, i == 1 ? COMMANDS : COMMANDS "-%d", i);
		if (mkdirat(g->base, g->name, 0755) < 0 && errno != EEXIST)
			return -errno;
		int fd = open_dir(g->base, g->name);
		if (fd == -ENOENT)
			continue; // its owner has just removed it
		if (fd < 0)
			return fd;
		struct stat a, b;
		if (IO_AGAIN(flock(fd, LOCK_EX | LOCK_NB)) == 0 && fstat(fd, &a) == 0 &&
			fstatat(g->base, g->name, &b, 0) == 0 && a.st_ino == b.st_ino) {
			g->dir = fd;
			return 0;
		}
		close(fd);
	}
	return -EBUSY;
}

static bool same_dir(int fd, const char *path)
{
	struct stat a, b;
	return *path && fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

static struct cgroups *blank(void)
{
	struct cgroups *g = calloc(1, sizeof *g);
	if (!g)
		return NULL;
	g->base = g->dir = -1;
	g->state.path = g->path;
	return g;
}

static void forget(struct cgroups *g)
{
	struct cgroup *lists[] = {g->taken, g->idle, g->waiting}, *c, *tmp;
	for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
		DL_FOREACH_SAFE(lists[i], c, tmp)
		{
			io_close(&c->fd);
			free(c);
		}
	}
	io_close(&g->dir);
	io_close(&g->base);
	free(g);
}

int cgroups_open(struct cgroups **out, const char *path, const char *own, char *why, size_t n)
{
	*out = NULL;
	struct cgroups *g = blank();
	if (!g)
		return fails(why, n, -ENOMEM, "control group %s", path);
	g->base = open_dir(AT_FDCWD, path);
	int rc = g->base < 0 ? g->base : open_commands(g);
	if (rc == 0 && (size_t)snprintf(g->path, sizeof g->path, "%s/%s", path, g->name) >= sizeof g->path) {
		unlinkat(g->base, g->name, AT_REMOVEDIR);
		rc = -ENAMETOOLONG;
	}
	if (rc < 0) {
		forget(g);
		return fails(why, n, rc, "control group %s", path);
	}
	hand_down_all(g, same_dir(g->base, own));
	*out = g;
	return 0;
}

static bool is_cgroup2(const char *path)
{
	struct statfs fs;
	return statfs(path, &fs) == 0 && fs.f_type == CGROUP2_SUPER_MAGIC;
}

// A celld that was started in another one's leaf, or its own of before, works beside that one.
static void leave_leaf(char *own)
{
	char beside[PATH_MAX];
	char *name = strrchr(own, '/');
	if (!name || name == own || strcmp(name, "/" LEAF) != 0)
		return;
	int n = snprintf(beside, sizeof beside, "%.*s/" COMMANDS, (int)(name - own), own);
	if (n > 0 && (size_t)n < sizeof beside && is_cgroup2(beside))
		*name = '\0';
}

// Whether a child can be born into C: 0; -ECHILD if it is killed at that (see cgroup.c), because this process's own group was killed once; negative errno.
static int give_birth(struct cgroup *c)
{
	struct clone_args args = {.flags = CLONE_INTO_CGROUP, .exit_signal = SIGCHLD, .cgroup = (unsigned)cgroup_fd(c)};
	siginfo_t si = {0};
	long pid = syscall(SYS_clone3, &args, sizeof args);
	if (pid == 0)
		_exit(0);
	// None, forbidden, or too old: children then go there themselves.
	if (pid < 0)
		return errno == ENOSYS || errno == EPERM || errno == EINVAL || errno == E2BIG ? 0 : -errno;
	if (IO_AGAIN(waitid(P_PID, (id_t)pid, &si, WEXITED)) < 0)
		return -errno;
	return si.si_code == CLD_EXITED ? 0 : -ECHILD;
}

// Leaves nothing: daemons that are forked from this process begin with what they find.
static int try_out(struct cgroups *g)
{
	struct cgroup *c;
	int rc = cgroup_take(g, NULL, &c);
	if (rc < 0)
		return rc;
	rc = give_birth(c);
	c->spent = true;
	cgroup_release(c);
	g->last = 0;
	return rc;
}

static int open_tried(struct cgroups **out, const char *path, const char *own, char *why, size_t n)
{
	int rc = cgroups_open(out, path, own, why, n);
	if (rc < 0)
		return rc;
	rc = try_out(*out);
	if (rc == 0)
		return 0;
	fails(why, n, rc, "control group %s: nothing can be started in it", (*out)->path);
	cgroups_free(*out);
	*out = NULL;
	return rc;
}

int cgroups_new(struct cgroups **out, const char *how, char *why, size_t n)
{
	char own[PATH_MAX] = "";
	*out = NULL;
	bool may = strcmp(how, "auto") == 0;
	if (strcmp(how, "off") == 0 || (may && getpid() != 1))
		return 0;
	int rc = cgroup_find("/proc/self/cgroup", "/proc/self/mountinfo", own, sizeof own);
	if (*how == '/') {
		rc = is_cgroup2(how) ? open_tried(out, how, rc == 0 ? own : "", why, n) : -ENOTSUP;
		if (rc == -ENOTSUP)
			return fails(why, n, rc, "%s is no directory of control groups (version 2)", how);
		return rc;
	}
	if (rc < 0) {
		fails(why, n, rc, "no control groups of version 2 that show this process");
		return may ? 0 : rc;
	}
	leave_leaf(own);
	rc = open_tried(out, own, own, why, n);
	return may ? 0 : rc;
}

int cgroups_resume(struct cgroups **out, const char *path)
{
	*out = NULL;
	const char *name = strrchr(path, '/');
	if (!*path)
		return 0;
	if (!name || name == path || strlen(path) >= sizeof(*out)->path || strlen(name + 1) >= sizeof(*out)->name)
		return -EINVAL;
	struct cgroups *g = blank();
	if (!g)
		return -ENOMEM;
	memcpy(g->path, path, strlen(path) + 1);
	memcpy(g->name, name + 1, strlen(name));
	g->path[name - path] = '\0';
	g->base = open_dir(AT_FDCWD, g->path);
	g->path[name - path] = '/';
	g->dir = g->base < 0 ? g->base : open_dir(g->base, g->name);
	int rc = g->dir < 0 ? g->dir : 0;
	char there[512];
	if (rc == 0)
		rc = cgroup_read(g->dir, "cgroup.subtree_control", there, sizeof there);
	if (rc < 0) {
		forget(g);
		return rc;
	}
	for (int i = 0; i < CGROUP_CONTROLS; i++)
		g->have |= has_word(there, controls[i]) ? 1u << i : 0;
	tell(g);
	*out = g;
	return 0;
}

const struct cgroup_state *cgroups_state(const struct cgroups *g)
{
	return g ? &g->state : NULL;
}

// --- the end ---

int cgroups_each(const struct cgroups *g, void (*fn)(void *arg, uint32_t number), void *arg)
{
	int fd = open_dir(g->dir, ".");
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		int rc = fd < 0 ? fd : -errno;
		io_close(&fd);
		return rc;
	}
	for (const struct dirent *e; (e = readdir(d));) {
		long long number;
		if (e->d_type == DT_DIR && *e->d_name != '0' &&
			text_int(e->d_name, strlen(e->d_name), 1, UINT32_MAX, &number) == 0)
			fn(arg, (uint32_t)number);
	}
	closedir(d);
	return 0;
}

// NAME and the groups below it.
static void remove_tree(int at, const char *name, int depth)
{
	if (unlinkat(at, name, AT_REMOVEDIR) == 0 || depth >= DEPTH_MAX)
		return;
	int fd = open_dir(at, name);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	if (!d) {
		io_close(&fd);
		return;
	}
	bool any = false;
	for (const struct dirent *e; (e = readdir(d));) {
		if (e->d_type != DT_DIR || strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		any = true;
		remove_tree(fd, e->d_name, depth + 1);
	}
	closedir(d);
	if (any)
		unlinkat(at, name, AT_REMOVEDIR);
}

static void remove_one(void *arg, uint32_t number)
{
	const struct cgroups *g = arg;
	char name[16];
	snprintf(name, sizeof name, "%u", (unsigned)number);
	remove_tree(g->dir, name, 0);
}

// What is killed takes a moment to be gone.
static void remove_all(struct cgroups *g)
{
	int64_t until = io_mono_ns() + EMPTY_NS;
	cgroups_kill_all(g);
	for (;;) {
		int rc = cgroups_each(g, remove_one, g);
		if (unlinkat(g->base, g->name, AT_REMOVEDIR) == 0 || errno != EBUSY || rc < 0 || io_mono_ns() > until)
			return;
		nanosleep(&(struct timespec){.tv_nsec = EMPTY_LOOK_NS}, NULL);
	}
}

void cgroups_free(struct cgroups *g)
{
	if (!g)
		return;
	remove_all(g);
	for (int i = 0; i < CGROUP_CONTROLS; i++) {
		if (g->enabled & (1u << i))
			(void)take_back(g->base, controls[i]);
	}
	move_back(g);
	forget(g);
}
