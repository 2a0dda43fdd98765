// SPDX-License-Identifier: Apache-2.0
// A cgroup of its own for each box, where version 2 is mounted and we may make one: all of the box is in it, whatever it forks.
#include "daemon/io.h"
#include "tests/gateway/box_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME "celld-gateway-"
#define TICK_NS 200000
#define TICKS 20
#define LEFT_MAX 64
#define DEPTH_MAX 16

static void pause_a_tick(void)
{
	static const struct timespec tick = {.tv_nsec = TICK_NS};
	nanosleep(&tick, NULL);
}

// Our own group as version 2 names it: "/user.slice/...". False without one.
static bool own_group(char *out, size_t n)
{
	FILE *f = fopen("/proc/self/cgroup", "re");
	char *line = NULL;
	size_t cap = 0;
	bool found = false;
	while (f && !found && getline(&line, &cap, f) > 0) {
		found = strncmp(line, "0::/", 4) == 0;
		line[strcspn(line, "\n")] = '\0';
		if (found)
			found = snprintf(out, n, "%s", line + 3) < (int)n;
	}
	free(line);
	if (f)
		(void)fclose(f);
	return found;
}

// If LINE of mountinfo is version 2 and shows GROUP: the directory of GROUP.
static bool shows(char *line, const char *group, char *out, size_t n)
{
	char root[PATH_MAX], at[PATH_MAX];
	if (!strstr(line, " - cgroup2 ") || sscanf(line, "%*d %*d %*s %4095s %4095s", root, at) != 2)
		return false;
	size_t skip = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (strncmp(group, root, skip) != 0 || (group[skip] != '/' && group[skip]))
		return false;
	const char *rest = strcmp(group + skip, "/") == 0 ? "" : group + skip;
	return snprintf(out, n, "%s%s", at, rest) < (int)n;
}

static bool find_base(char out[PATH_MAX])
{
	char group[PATH_MAX], *line = NULL;
	const char *wish = getenv("CELLD_GATEWAY_CGROUP");
	if ((wish && strcmp(wish, "off") == 0) || !own_group(group, sizeof group))
		return false;
	FILE *f = fopen("/proc/self/mountinfo", "re");
	size_t cap = 0;
	bool found = false;
	while (f && !found && getline(&line, &cap, f) > 0)
		found = shows(line, group, out, PATH_MAX);
	free(line);
	if (f)
		(void)fclose(f);
	return found;
}

static int put(int cgroup, const char *file, const char *text)
{
	int fd = openat(cgroup, file, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = io_write(fd, text, strlen(text));
	close(fd);
	return n < 0 ? (int)n : 0;
}

static bool says(int cgroup, const char *file, const char *text)
{
	char content[1024];
	int fd = openat(cgroup, file, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : io_read(fd, content, sizeof content - 1);
	io_close(&fd);
	content[n > 0 ? n : 0] = '\0';
	return strstr(content, text) != NULL;
}

int box_cgroup_freeze(const struct box *b, bool freeze)
{
	int rc = put(b->cgroup, "cgroup.freeze", freeze ? "1" : "0");
	// What is in the kernel just now freezes on its way out of it: waited for a little, not for ever.
	for (int i = 0; rc == 0 && freeze && i < TICKS && !says(b->cgroup, "cgroup.events", "frozen 1"); i++)
		pause_a_tick();
	return rc;
}

bool box_cgroup_kill(const struct box *b)
{
	return b->cgroup >= 0 && put(b->cgroup, "cgroup.kill", "1") == 0;
}

int box_cgroup_cpu(const struct box *b, double *seconds)
{
	char text[1024];
	long long usec;
	int fd = openat(b->cgroup, "cpu.stat", O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	ssize_t n = io_read(fd, text, sizeof text - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	if (sscanf(text, "usage_usec %lld", &usec) != 1)
		return -ENOENT;
	*seconds = (double)usec / 1e6;
	return 0;
}

// NAME in AT, with what the sandbox has made below it: celld makes a group for each command.
static void remove_groups(int at, const char *name, int depth)
{
	int fd = depth < DEPTH_MAX ? openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	const struct dirent *e;
	while (d && (e = readdir(d))) {
		if (e->d_type == DT_DIR && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
			remove_groups(fd, e->d_name, depth + 1);
	}
	for (int i = 0; i < TICKS && unlinkat(at, name, AT_REMOVEDIR) < 0 && errno == EBUSY; i++)
		pause_a_tick();
	if (d)
		closedir(d);
	else
		io_close(&fd);
}

// Groups of ours whose processes took longer to die than they were waited for.
static char *left[LEFT_MAX];

static bool is_there(const char *path)
{
	return access(path, F_OK) == 0;
}

static void keep_for_later(char *path)
{
	for (size_t i = 0; i < LEFT_MAX; i++)
		if (!left[i]) {
			left[i] = path;
			return;
		}
	free(path); // the next gateway's
}

static bool is_empty(const char *path)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	bool empty = fd < 0 || says(fd, "cgroup.events", "populated 0");
	io_close(&fd);
	return empty;
}

static void remove_left(void)
{
	for (size_t i = 0; i < LEFT_MAX; i++) {
		if (!left[i] || !is_empty(left[i]))
			continue;
		remove_groups(AT_FDCWD, left[i], 0);
		if (is_there(left[i]))
			continue;
		free(left[i]);
		left[i] = NULL;
	}
}

void box_cgroup_open(struct box *b)
{
	static unsigned serial;
	char base[PATH_MAX], *path;
	if (!find_base(base))
		return;
	remove_left();
	if (asprintf(&path, "%s/" NAME "%d-%u", base, (int)getpid(), serial++) < 0)
		return;
	int rc = mkdir(path, 0755) < 0 ? -errno : 0;
	// A gateway's that had our number.
	if (rc == -EEXIST && rmdir(path) == 0)
		rc = mkdir(path, 0755) < 0 ? -errno : 0;
	int fd = rc < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0 && faccessat(fd, "cgroup.freeze", W_OK, 0) == 0) {
		b->cgroup = fd;
		b->cgroup_path = path;
		return;
	}
	io_close(&fd);
	if (rc == 0)
		rmdir(path);
	free(path);
}

void box_cgroup_close(struct box *b)
{
	if (b->cgroup < 0)
		return;
	box_cgroup_kill(b);
	remove_groups(AT_FDCWD, b->cgroup_path, 0);
	io_close(&b->cgroup);
	if (is_there(b->cgroup_path))
		keep_for_later(b->cgroup_path);
	else
		free(b->cgroup_path);
	b->cgroup_path = NULL;
}

// Plain boxes that were frozen live on without their gateway.
static void sweep_one(int base, const char *name)
{
	int fd = openat(base, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return;
	put(fd, "cgroup.kill", "1");
	remove_groups(base, name, 0);
	close(fd);
}

// Nobody may have waited for it.
static bool is_gone(pid_t pid)
{
	struct tree_stat s;
	int rc = tree_stat(pid, &s);
	return rc == -ESRCH || (rc == 0 && strchr("ZXx", s.state));
}

void box_cgroup_sweep(void)
{
	char base[PATH_MAX];
	remove_left();
	DIR *d = find_base(base) ? opendir(base) : NULL;
	struct dirent *e;
	while (d && (e = readdir(d))) {
		int pid;
		if (sscanf(e->d_name, NAME "%d-", &pid) == 1 && pid > 0 && is_gone(pid))
			sweep_one(dirfd(d), e->d_name);
	}
	if (d)
		closedir(d);
}
