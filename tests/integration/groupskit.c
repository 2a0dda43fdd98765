// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/groupskit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "celld-it-cgroup-"

char cg_base[512]; // "": there is no such hierarchy that we could write
bool cg_memory, cg_cpu, cg_pids;

// --- the directory ---

bool cg_write(const char *dir, const char *name, const char *text)
{
	char path[PATH_MAX + 64];
	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
	if (fd >= 0)
		(void)close(fd);
	return ok;
}

const char *cg_read(const char *dir, const char *name)
{
	static char text[4096];
	char path[PATH_MAX + 64];
	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
	if (fd >= 0)
		(void)close(fd);
	text[n > 0 ? n : 0] = '\0';
	return text;
}

// All groups below DIR, and DIR.
static void remove_groups(const char *dir)
{
	DIR *d = opendir(dir);
	for (const struct dirent *e; d && (e = readdir(d));) {
		char path[PATH_MAX];
		if (e->d_type == DT_DIR && e->d_name[0] != '.' &&
			snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path)
			remove_groups(path);
	}
	if (d)
		(void)closedir(d);
	(void)rmdir(dir);
}

// Groups below DIR, however deep.
int cg_count_below(const char *dir)
{
	int n = 0;
	DIR *d = opendir(dir);
	for (const struct dirent *e; d && (e = readdir(d));) {
		char path[PATH_MAX];
		if (e->d_type == DT_DIR && e->d_name[0] != '.' &&
			snprintf(path, sizeof path, "%s/%s", dir, e->d_name) < (int)sizeof path)
			n += 1 + cg_count_below(path);
	}
	if (d)
		(void)closedir(d);
	return n;
}

int cg_count(const char *name)
{
	char path[PATH_MAX + 64];
	(void)snprintf(path, sizeof path, "%s/%s", cg_base, name);
	return access(path, F_OK) < 0 ? -1 : cg_count_below(path);
}

static bool gone(void *arg)
{
	(void)arg;
	return cg_count_below(cg_base) == 0;
}

// The directory of our own group: a mount of version 2 whose root is the hierarchy's.
static bool own_group(char *out, size_t n)
{
	char line[4096], root[1024], at[1024], own[1024] = "";
	FILE *f = fopen("/proc/self/cgroup", "re");
	while (f && fgets(line, sizeof line, f)) {
		if (strncmp(line, "0::/", 4) == 0)
			(void)snprintf(own, sizeof own, "%.*s", (int)strcspn(line + 3, "\n"), line + 3);
	}
	if (f)
		(void)fclose(f);
	bool found = false;
	f = *own ? fopen("/proc/self/mountinfo", "re") : NULL;
	while (f && !found && fgets(line, sizeof line, f)) {
		found = strstr(line, " - cgroup2 ") && sscanf(line, "%*d %*d %*s %1023s %1023s", root, at) == 2 &&
			strcmp(root, "/") == 0;
	}
	if (f)
		(void)fclose(f);
	return found && snprintf(out, n, "%s%s", at, strcmp(own, "/") == 0 ? "" : own) < (int)n;
}

// What a test left that was killed itself.
static void sweep(const char *parent)
{
	DIR *d = opendir(parent);
	for (const struct dirent *e; d && (e = readdir(d));) {
		char path[PATH_MAX];
		int pid;
		if (sscanf(e->d_name, NAME "%d", &pid) != 1 || kill(pid, 0) == 0 || errno != ESRCH ||
			snprintf(path, sizeof path, "%s/%s", parent, e->d_name) >= (int)sizeof path)
			continue;
		(void)cg_write(path, "cgroup.kill", "1");
		remove_groups(path);
	}
	if (d)
		(void)closedir(d);
}

void cg_set_up(void)
{
	char own[sizeof cg_base - 64];
	cg_base[0] = '\0';
	if (geteuid() != 0 || !own_group(own, sizeof own))
		return;
	sweep(own);
	// Where others are in our group this is refused, and there are no controllers to be had.
	(void)cg_write(own, "cgroup.subtree_control", "+memory");
	(void)cg_write(own, "cgroup.subtree_control", "+cpu");
	(void)cg_write(own, "cgroup.subtree_control", "+pids");
	(void)snprintf(cg_base, sizeof cg_base, "%s/" NAME "%d", own, (int)getpid());
	if (mkdir(cg_base, 0755) < 0)
		cg_base[0] = '\0';
	const char *there = *cg_base ? cg_read(cg_base, "cgroup.controllers") : "";
	cg_memory = strstr(there, "memory");
	cg_cpu = strstr(there, "cpu ") || strstr(there, "cpu\n");
	cg_pids = strstr(there, "pids");
}

void cg_tear_down(void)
{
	if (!*cg_base)
		return;
	(void)cg_write(cg_base, "cgroup.kill", "1");
	remove_groups(cg_base);
	ck_assert_int_eq(access(cg_base, F_OK), -1);
}

// Says so, and lets the test pass: there is nothing to look at.
bool cg_none(void)
{
	if (!*cg_base)
		(void)fprintf(stderr, "cgroup: no hierarchy of version 2 that can be written: not tested\n");
	return !*cg_base;
}

// Everything is gone from the directory when the daemon is.
void cg_finish(struct testd *d)
{
	d_finish(d);
	if (!wait_until(gone, NULL, 2000))
		ck_abort_msg("%d groups are left in %s", cg_count_below(cg_base), cg_base);
}

// The number of the group that a command is in, by what it says itself; 0: in none of ours.
int cg_number_in(const char *text)
{
	const char *name = strrchr(cg_base, '/');
	const char *at = strstr(text, name);
	int number = 0;
	if (!at || sscanf(at + strlen(name), "/commands/%d\n", &number) != 1)
		return 0;
	return number;
}

int cg_run_number(const struct testd *d)
{
	struct resp r = {0};
	int number = cg_number_in(j_str(run(d, "cat /proc/self/cgroup", &r), "stdout"));
	resp_release(&r);
	return number;
}

int cg_pid_number(const struct testd *d, int64_t pid)
{
	char path[64];
	(void)snprintf(path, sizeof path, "/proc/%d", (int)d_outside_pid(d, pid));
	return cg_number_in(cg_read(path, "cgroup"));
}

struct mark {
	const struct testd *d;
	const char *text;
	int count;
};

static bool count_is(void *arg)
{
	const struct mark *m = arg;
	return d_count_cmdline(m->d, m->text, NULL) == m->count;
}

void cg_assert_count(const struct testd *d, const char *text, int count)
{
	struct mark m = {d, text, count};
	if (!wait_until(count_is, &m, 3000))
		ck_abort_msg("%d processes of \"%s\", want %d", d_count_cmdline(d, text, NULL), text, count);
}
