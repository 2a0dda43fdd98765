// SPDX-License-Identifier: Apache-2.0
#include "daemon/metrics.h"

#include "daemon/io.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define US INT64_C(1000)
#define MS (1000 * US)

static const int64_t bounds[METRICS_BUCKETS] = {
	100 * US, 250 * US, 500 * US, MS, 2500 * US, 5 * MS, 10 * MS, 25 * MS, 50 * MS, 100 * MS, 250 * MS, 1000 * MS};

const struct metrics_info *metrics_info(enum metrics_family f)
{
#define METRICS_ROW(word, type, name, labels, help) [METRICS_##word] = {type, name, help, labels},
	static const struct metrics_info list[METRICS_COUNT] = {METRICS_FAMILIES(METRICS_ROW)};
#undef METRICS_ROW
	return &list[f];
}

const char *metrics_kind(enum metrics_kind k)
{
	static const char *const names[METRICS_KINDS] = {"exec", "stream", "background", "pty", "envd", "internal"};
	return names[k];
}

const char *metrics_end(enum metrics_end e)
{
	static const char *const names[METRICS_ENDS] = {"success", "failure", "signal", "timeout", "oom", "stopped"};
	return names[e];
}

const char *metrics_channel(enum metrics_channel c)
{
	static const char *const names[METRICS_CHANNELS] = {"stdout", "stderr", "pty", "stdin"};
	return names[c];
}

int64_t metrics_bound(size_t bucket)
{
	return bounds[bucket];
}

void metrics_observe(struct metrics_histogram *h, int64_t ns)
{
	size_t i = 0;
	if (ns < 0)
		ns = 0; // the clock was set
	while (i < METRICS_BUCKETS && ns > bounds[i])
		i++;
	h->bucket[i]++;
	h->sum_ns += (uint64_t)ns;
}

struct metrics *metrics_new(void)
{
	struct metrics *m = mmap(NULL, sizeof *m, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (m == MAP_FAILED)
		return NULL;
	m->since_ms = io_wall_ms();
	return m;
}

void metrics_free(struct metrics *m)
{
	if (m)
		munmap(m, sizeof *m);
}

static uint64_t resident(void)
{
	char text[128];
	char *pages;
	if (io_read_file("/proc/self/statm", text, sizeof text) <= 0)
		return 0;
	(void)strtoull(text, &pages, 10); // all of it, whether it is there or not
	return strtoull(pages, NULL, 10) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t descriptors(void)
{
	uint64_t n = 0;
	DIR *dir = opendir("/proc/self/fd");
	if (!dir)
		return 0;
	const struct dirent *e;
	while ((e = readdir(dir)))
		n += e->d_name[0] != '.';
	closedir(dir);
	return n - 1; // without the one that looks
}

void metrics_self(struct metrics_self *out)
{
	struct rusage u;
	struct rlimit r;
	*out = (struct metrics_self){.rss = resident(), .fds = descriptors()};
	if (getrusage(RUSAGE_SELF, &u) == 0)
		out->cpu_ns = (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000000000 +
			      (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
	if (getrlimit(RLIMIT_NOFILE, &r) == 0)
		out->fds_max = r.rlim_cur;
}
