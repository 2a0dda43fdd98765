// SPDX-License-Identifier: Apache-2.0
// What a target's processes use, from /proc.
#include "tests/bench/bench.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TREE_MAX 8192

// The number behind KEY in the file, or 0.
static double value_in(const char *path, const char *key)
{
	char line[256];
	double v = 0;
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, key, strlen(key)) == 0)
			v = strtod(line + strlen(key), NULL);
	if (f)
		fclose(f);
	return v;
}

// The words of /proc/PID/stat behind the name.
static bool read_stat(pid_t pid, pid_t *parent, double *ticks)
{
	char path[64], line[1024];
	unsigned long user = 0, system = 0;
	int ppid = 0, got = 0;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "re");
	const char *at = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
	if (at)
		got = sscanf(at + 1, " %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &ppid, &user, &system);
	if (f)
		fclose(f);
	*parent = ppid;
	*ticks = (double)(user + system);
	return got == 3;
}

static bool same_program(const struct stat *exe, pid_t pid)
{
	char path[64];
	struct stat st;
	snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
	return stat(path, &st) == 0 && st.st_dev == exe->st_dev && st.st_ino == exe->st_ino;
}

static double cpu_of(pid_t pid)
{
	pid_t parent;
	double ticks;
	return read_stat(pid, &parent, &ticks) ? ticks / (double)sysconf(_SC_CLK_TCK) : 0;
}

static double rollup_of(pid_t pid, const char *key)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
	return value_in(path, key);
}

static double pss_of(pid_t pid)
{
	return rollup_of(pid, "Pss:");
}

static double rss_of(pid_t pid)
{
	return rollup_of(pid, "Rss:");
}

// The sum of OF over the threads of PID.
static double over_threads(pid_t pid, double (*of)(pid_t pid, pid_t tid))
{
	char path[64];
	double sum = 0;
	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	DIR *dir = opendir(path);
	const struct dirent *d;
	while (dir && (d = readdir(dir)) != NULL)
		sum += atoi(d->d_name) > 0 ? of(pid, atoi(d->d_name)) : 0;
	if (dir)
		closedir(dir);
	return sum;
}

static double thread_wakeups(pid_t pid, pid_t tid)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task/%d/status", (int)pid, (int)tid);
	return value_in(path, "voluntary_ctxt_switches:");
}

static double wakeups_of(pid_t pid)
{
	return over_threads(pid, thread_wakeups);
}

// To the first CPU that we may use, or to all of them: those of the keeper, our parent, which never change.
static double pin_thread(pid_t tid, bool one)
{
	cpu_set_t cpus, first;
	size_t cpu = 0;
	if (sched_getaffinity(getppid(), sizeof cpus, &cpus) < 0)
		return 0;
	while (cpu < CPU_SETSIZE - 1 && !CPU_ISSET(cpu, &cpus))
		cpu++;
	CPU_ZERO(&first);
	CPU_SET(cpu, &first);
	return sched_setaffinity(tid, sizeof cpus, one ? &first : &cpus) == 0;
}

static double pin_thread_to_one(pid_t pid, pid_t tid)
{
	(void)pid;
	return pin_thread(tid, true);
}

static double pin_thread_to_all(pid_t pid, pid_t tid)
{
	(void)pid;
	return pin_thread(tid, false);
}

static double pin_to_one(pid_t pid)
{
	return over_threads(pid, pin_thread_to_one);
}

static double pin_to_all(pid_t pid)
{
	return over_threads(pid, pin_thread_to_all);
}

struct edge {
	pid_t pid, parent;
};

// The sum of OF over those below ROOT in the list, itself included, that run EXE. A child may stand before its parent.
static double sum_below(struct edge *e, size_t n, pid_t root, const struct stat *exe, double (*of)(pid_t pid))
{
	double sum = of(root);
	pid_t *known = calloc(n + 1, sizeof *known);
	size_t have = 1;
	if (!known)
		return 0;
	known[0] = root;
	for (size_t at = 0; at < have; at++) {
		for (size_t i = 0; i < n; i++) {
			if (e[i].parent != known[at] || !same_program(exe, e[i].pid))
				continue;
			sum += of(e[i].pid);
			known[have++] = e[i].pid;
		}
	}
	free(known);
	return sum;
}

double bench_sum(const struct target *t, double (*of)(pid_t pid))
{
	struct edge *e = calloc(TREE_MAX, sizeof *e);
	struct stat exe;
	char path[64];
	size_t n = 0;
	DIR *dir = opendir("/proc");
	const struct dirent *d;
	snprintf(path, sizeof path, "/proc/%d/exe", (int)t->pid);
	while (e && dir && n < TREE_MAX && (d = readdir(dir)) != NULL) {
		double ticks;
		e[n].pid = atoi(d->d_name);
		n += e[n].pid > 0 && read_stat(e[n].pid, &e[n].parent, &ticks);
	}
	double sum = e && stat(path, &exe) == 0 ? sum_below(e, n, t->pid, &exe, of) : 0;
	if (dir)
		closedir(dir);
	free(e);
	return sum;
}

double bench_cpu(const struct target *t)
{
	return bench_sum(t, cpu_of);
}

double bench_pss(const struct target *t)
{
	return bench_sum(t, pss_of);
}

double bench_rss(const struct target *t)
{
	return bench_sum(t, rss_of);
}

double bench_wakeups(const struct target *t)
{
	return bench_sum(t, wakeups_of);
}

void bench_pin(const struct target *t, bool one)
{
	pin_thread(0, one);
	if (t)
		bench_sum(t, one ? pin_to_one : pin_to_all);
}
