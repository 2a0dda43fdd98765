// SPDX-License-Identifier: Apache-2.0
// What a sandbox holds, seen from outside through /proc: taken before and after, and compared.
#include "tests/soak/soak.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define RSS_MORE_KIB 4096 // the daemon gives freed memory back within a second or two
#define PIDS_MAX 8192
#define STEP_US 250000
#define OWN_WATCHES 3 // celld's, once users were asked for often enough: passwd, group and their directory
#define STEADY 12     // looks without a change: longer than ended commands are kept

// --- one process ---

static long count_fds(pid_t pid, long *watches)
{
	char path[400], line[256];
	snprintf(path, sizeof path, "/proc/%d/fdinfo", (int)pid);
	DIR *dir = opendir(path);
	const struct dirent *d;
	long n = 0;
	while (dir && (d = readdir(dir)) != NULL) {
		if (!isdigit((unsigned char)d->d_name[0]))
			continue;
		n++;
		snprintf(path, sizeof path, "/proc/%d/fdinfo/%s", (int)pid, d->d_name);
		FILE *f = watches ? fopen(path, "re") : NULL;
		while (f && fgets(line, sizeof line, f))
			*watches += strncmp(line, "inotify ", 8) == 0;
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return n;
}

static long rss_kib(pid_t pid)
{
	char path[64], line[256];
	long kib = 0;
	snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		sscanf(line, "VmRSS: %ld", &kib);
	if (f)
		fclose(f);
	return kib;
}

static bool is_sanitized(pid_t pid)
{
	char path[64], line[512];
	bool found = false;
	snprintf(path, sizeof path, "/proc/%d/maps", (int)pid);
	FILE *f = fopen(path, "re");
	while (f && !found && fgets(line, sizeof line, f))
		found = strstr(line, "libasan") != NULL;
	if (f)
		fclose(f);
	return found;
}

// --- all of them ---

struct seen {
	pid_t pid, parent;
	char state;
};

static int all_processes(struct seen *all, int max)
{
	DIR *dir = opendir("/proc");
	const struct dirent *d;
	int n = 0;
	while (dir && n < max && (d = readdir(dir)) != NULL) {
		char path[300], text[512];
		snprintf(path, sizeof path, "/proc/%s/stat", d->d_name);
		int fd = isdigit((unsigned char)d->d_name[0]) ? open(path, O_RDONLY | O_CLOEXEC) : -1;
		ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
		if (fd >= 0)
			close(fd);
		text[len < 0 ? 0 : len] = '\0';
		const char *end = strrchr(text, ')');
		if (end && sscanf(end + 1, " %c %d", &all[n].state, &all[n].parent) == 2)
			all[n++].pid = atoi(d->d_name);
	}
	if (dir)
		closedir(dir);
	return n;
}

int holding_processes(pid_t top, pid_t *pids, int max, long *zombies)
{
	struct seen *all = calloc(PIDS_MAX, sizeof *all);
	int n = all ? all_processes(all, PIDS_MAX) : 0, found = 0;
	bool more = true;
	*zombies = 0;
	if (max > 0)
		pids[found++] = top;
	while (more) {
		more = false;
		for (int i = 0; i < n; i++) {
			bool below = false;
			for (int k = 0; k < found && !below; k++)
				below = all[i].pid > 0 && all[i].parent == pids[k];
			if (!below || found == max)
				continue;
			*zombies += all[i].state == 'Z';
			pids[found++] = all[i].pid;
			all[i].pid = 0;
			more = true;
		}
	}
	free(all);
	return found;
}

// nftw gives its callback nothing of the caller's, so this walks by itself.
static long count_temps(const char *path, int depth)
{
	DIR *dir = depth < 16 ? opendir(path) : NULL;
	const struct dirent *d;
	long n = 0;
	while (dir && (d = readdir(dir)) != NULL) {
		char below[1024];
		n += strncmp(d->d_name, ".celld-", 7) == 0;
		snprintf(below, sizeof below, "%s/%s", path, d->d_name);
		if (d->d_type == DT_DIR && strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0)
			n += count_temps(below, depth + 1);
	}
	if (dir)
		closedir(dir);
	return n;
}

void holding_take(struct holding *h, const struct sandbox *box, const char *workspace)
{
	pid_t daemon = sandbox_daemon(box), pids[1024];
	*h = (struct holding){.sanitized = is_sanitized(daemon)};
	h->fds = count_fds(daemon, &h->watches);
	h->rss = rss_kib(daemon);
	h->init_fds = count_fds(box->init, NULL);
	h->init_rss = rss_kib(box->init);
	h->processes = holding_processes(box->started, pids, 1024, &h->zombies);
	h->temps = count_temps(workspace, 0);
}

// --- comparing ---

struct row {
	const char *what, *unit;
	long base, after, more;
	bool told; // and not judged
};

#define ROWS 8
static void rows_of(struct row rows[ROWS], const struct holding *b, const struct holding *a)
{
	const struct row all[ROWS] = {
		{"daemon: descriptors", "", b->fds, a->fds, 0, false},
		{"daemon: memory (RSS)", "KiB", b->rss, a->rss, RSS_MORE_KIB + b->spare, b->sanitized},
		{"init: descriptors", "", b->init_fds, a->init_fds, 0, false},
		{"init: memory (RSS)", "KiB", b->init_rss, a->init_rss, RSS_MORE_KIB, b->sanitized},
		{"processes in the sandbox", "", b->processes, a->processes, 0, false},
		{"zombies", "", 0, a->zombies, 0, false},
		{"inotify watches", "", b->watches, a->watches, OWN_WATCHES, false},
		{"temporary files (.celld-*)", "", 0, a->temps, 0, b->killed},
	};
	memcpy(rows, all, sizeof all);
}

static int off(const struct holding *base, const struct holding *after)
{
	struct row rows[ROWS];
	int n = 0;
	rows_of(rows, base, after);
	for (int i = 0; i < ROWS; i++)
		n += !rows[i].told && rows[i].after > rows[i].base + rows[i].more;
	return n;
}

bool holding_await(
	struct holding *h, const struct holding *base, const struct sandbox *box, const char *workspace, int limit_s)
{
	int64_t end = client_now_us() + (int64_t)limit_s * 1000000;
	struct holding last = {0};
	int steady = 0;
	for (;;) {
		holding_take(h, box, workspace);
		if (base && off(base, h) == 0)
			return true;
		bool same = h->fds == last.fds && h->processes == last.processes && h->watches == last.watches;
		steady = same && h->processes <= 2 + box->pid1 ? steady + 1 : 0;
		if (!base && steady >= STEADY)
			return true;
		if (client_now_us() > end)
			return false;
		last = *h;
		pause_us(STEP_US);
	}
}

int holding_print(const struct holding *base, const struct holding *after)
{
	struct row rows[ROWS];
	rows_of(rows, base, after);
	printf("\n%-28s %-4s %9s %9s %9s\n", "THE SANDBOX HOLDS", "", "BASELINE", "AFTER", "ALLOWED");
	for (int i = 0; i < ROWS; i++) {
		const struct row *r = &rows[i];
		printf("%-28s %-4s %9ld %9ld ", r->what, r->unit, r->base, r->after);
		if (r->told)
			printf("%9s\n", "any");
		else
			printf("%9ld%s\n", r->base + r->more, r->after > r->base + r->more ? "  <- OFF" : "");
	}
	return off(base, after);
}
