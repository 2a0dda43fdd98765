// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/procfs.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROCS_MAX 8192

// Reads /proc/PID/NAME: bytes, NUL-terminated in P, or -1.
static ssize_t read_proc(pid_t pid, const char *name, char *p, size_t n)
{
	char path[64];
	(void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	size_t got = 0;
	ssize_t r;
	while (got < n - 1 && (r = read(fd, p + got, n - 1 - got)) > 0)
		got += (size_t)r;
	(void)close(fd);
	p[got] = '\0';
	return (ssize_t)got;
}

// The text behind KEY ("VmRSS:") in /proc/PID/status, or NULL; points into TEXT.
static const char *status_line(pid_t pid, const char *key, char *text, size_t n)
{
	if (read_proc(pid, "status", text, n) <= 0)
		return NULL;
	size_t len = strlen(key);
	for (const char *p = text; p; p = strchr(p, '\n')) {
		if (*p == '\n')
			p++;
		if (strncmp(p, key, len) == 0)
			return p + len;
	}
	return NULL;
}

bool proc_info(pid_t pid, struct pinfo *p)
{
	char text[1024];
	if (read_proc(pid, "stat", text, sizeof text) <= 0)
		return false;
	// The name in parentheses may contain blanks and parentheses itself.
	const char *end = strrchr(text, ')');
	int ppid = 0;
	char state = '?';
	if (!end || sscanf(end + 1, " %c %d", &state, &ppid) != 2)
		return false;
	*p = (struct pinfo){pid, (pid_t)ppid, state};
	return true;
}

void proc_exe(pid_t pid, char *path, size_t n)
{
	char link[64];
	(void)snprintf(link, sizeof link, "/proc/%d/exe", (int)pid);
	ssize_t got = readlink(link, path, n - 1);
	path[got > 0 ? got : 0] = '\0';
}

bool pid_alive(pid_t pid)
{
	struct pinfo p;
	return pid > 0 && proc_info(pid, &p) && p.state != 'Z' && p.state != 'X';
}

static size_t all_procs(struct pinfo *p, size_t max)
{
	DIR *dir = opendir("/proc");
	size_t n = 0;
	const struct dirent *de;
	while (dir && n < max && (de = readdir(dir))) {
		char *end;
		long pid = strtol(de->d_name, &end, 10);
		if (*end == '\0' && pid > 0 && proc_info((pid_t)pid, &p[n]))
			n++;
	}
	if (dir)
		(void)closedir(dir);
	return n;
}

static bool is_in(const struct pinfo *p, size_t n, pid_t pid)
{
	for (size_t i = 0; i < n; i++)
		if (p[i].pid == pid)
			return true;
	return false;
}

size_t procs_below(pid_t root, struct pinfo *p, size_t max)
{
	struct pinfo *all = calloc(PROCS_MAX, sizeof *all);
	struct pinfo *found = calloc(PROCS_MAX, sizeof *found);
	size_t n = 0;
	size_t before;
	size_t count = all && found ? all_procs(all, PROCS_MAX) : 0;
	// Pids are not ordered by descent (they wrap), so pass over the table until nothing new turns up.
	do {
		before = n;
		for (size_t i = 0; i < count; i++)
			if ((all[i].ppid == root || is_in(found, n, all[i].ppid)) && !is_in(found, n, all[i].pid))
				found[n++] = all[i];
	} while (n > before);
	if (n > 0 && max > 0)
		memcpy(p, found, (n < max ? n : max) * sizeof *p);
	free(all);
	free(found);
	return n;
}

int d_fd_count(const struct testd *d)
{
	char path[64];
	(void)snprintf(path, sizeof path, "/proc/%d/fd", (int)d->daemon);
	DIR *dir = opendir(path);
	if (!dir)
		ck_abort_msg("daemon %d is gone", (int)d->daemon);
	int n = 0;
	const struct dirent *de;
	while ((de = readdir(dir)))
		if (de->d_name[0] != '.')
			n++;
	(void)closedir(dir);
	return n;
}

static uint64_t status_number(const struct testd *d, const char *key)
{
	char text[4096];
	const char *p = status_line(d->daemon, key, text, sizeof text);
	if (!p)
		ck_abort_msg("no %s of daemon %d: it is gone", key, (int)d->daemon);
	return strtoull(p, NULL, 10);
}

long d_rss_kib(const struct testd *d)
{
	return (long)status_number(d, "VmRSS:");
}

bool d_sanitized(const struct testd *d)
{
	// The shadow memory alone reserves terabytes.
	return status_number(d, "VmSize:") > UINT64_C(1) << 30;
}

uint64_t d_wakeups(const struct testd *d)
{
	return status_number(d, "voluntary_ctxt_switches:");
}

uint64_t d_cpu_ticks(const struct testd *d)
{
	char text[1024];
	unsigned long long user = 0;
	unsigned long long sys = 0;
	const char *end = read_proc(d->daemon, "stat", text, sizeof text) > 0 ? strrchr(text, ')') : NULL;
	if (!end || sscanf(end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu", &user, &sys) != 2)
		ck_abort_msg("daemon %d is gone", (int)d->daemon);
	return user + sys;
}

int d_zombies(const struct testd *d)
{
	struct pinfo *p = calloc(PROCS_MAX, sizeof *p);
	ck_assert_ptr_nonnull(p);
	size_t n = procs_below(d->init, p, PROCS_MAX);
	int zombies = 0;
	for (size_t i = 0; i < n; i++)
		if (p[i].state == 'Z')
			zombies++;
	free(p);
	return zombies;
}

int d_children(const struct testd *d)
{
	struct pinfo p;
	return (int)procs_below(d->daemon, &p, 0);
}

int d_count_cmdline(const struct testd *d, const char *text, pid_t *pid)
{
	struct pinfo *p = calloc(PROCS_MAX, sizeof *p);
	static const size_t max = 256 * 1024;
	char *line = malloc(max);
	ck_assert(p && line);
	size_t n = procs_below(d->guard, p, PROCS_MAX);
	int found = 0;
	for (size_t i = 0; i < n; i++) {
		ssize_t len = read_proc(p[i].pid, "cmdline", line, max);
		for (ssize_t k = 0; k < len - 1; k++)
			if (line[k] == '\0')
				line[k] = ' ';
		if (len > 0 && p[i].state != 'Z' && strstr(line, text) && ++found == 1 && pid)
			*pid = p[i].pid;
	}
	free(line);
	free(p);
	return found;
}

bool d_no_commands(const struct testd *d)
{
	struct pinfo p[8];
	size_t n = procs_below(d->init, p, sizeof p / sizeof p[0]);
	return d->has_init ? n == 1 && p[0].pid == d->daemon : n == 0;
}

pid_t d_outside_pid(const struct testd *d, int64_t nspid)
{
	char text[4096];
	if (nspid <= 0 || nspid > INT32_MAX)
		return 0;
	if (!d->pid1)
		return status_line((pid_t)nspid, "Pid:", text, sizeof text) ? (pid_t)nspid : 0;
	if (nspid == 1)
		return d->init;
	struct pinfo *p = calloc(PROCS_MAX, sizeof *p);
	ck_assert_ptr_nonnull(p);
	size_t n = procs_below(d->init, p, PROCS_MAX);
	pid_t found = 0;
	for (size_t i = 0; i < n && !found; i++) {
		// The innermost namespace's number stands last.
		const char *ids = status_line(p[i].pid, "NSpid:", text, sizeof text);
		const char *end = ids ? strchr(ids, '\n') : NULL;
		while (end && end > ids && end[-1] != '\t')
			end--;
		if (end && strtoll(end, NULL, 10) == nspid)
			found = p[i].pid;
	}
	free(p);
	return found;
}

bool d_nspid_alive(const struct testd *d, int64_t nspid)
{
	return pid_alive(d_outside_pid(d, nspid));
}
