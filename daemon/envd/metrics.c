// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/control.h"
#include "daemon/io.h"
#include "proto/json.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

struct memory {
	uint64_t total, available, cached, reclaimable; // KiB
};

static bool read_memory(struct memory *m)
{
	char text[4096];
	const struct field {
		const char *name;
		uint64_t *to;
	} fields[] = {{"\nMemTotal:", &m->total}, {"\nMemAvailable:", &m->available}, {"\nCached:", &m->cached},
		{"\nSReclaimable:", &m->reclaimable}};
	text[0] = '\n';
	if (io_read_file("/proc/meminfo", text + 1, sizeof text - 1) <= 0)
		return false;
	for (size_t i = 0; i < sizeof fields / sizeof *fields; i++) {
		const char *at = strstr(text, fields[i].name);
		*fields[i].to = at ? strtoull(at + strlen(fields[i].name), NULL, 10) : 0;
	}
	return m->total > 0;
}

// Jiffies of all processors since the boot: user nice system idle iowait irq softirq steal. The guests' are within user and nice.
static bool read_cpu(uint64_t *busy, uint64_t *total)
{
	char text[512], *at = text + sizeof "cpu" - 1;
	uint64_t v[8] = {0};
	ssize_t n = io_read_file("/proc/stat", text, sizeof text);
	if ((n <= 0 && n != -EFBIG) || strncmp(text, "cpu ", sizeof "cpu " - 1) != 0) // the first line is enough
		return false;
	*total = 0;
	for (size_t i = 0; i < 8; i++) {
		const char *from = at;
		v[i] = strtoull(from, &at, 10);
		if (at == from && i < 4)
			return false;
		*total += v[i];
	}
	*busy = *total - v[3] - v[4];
	return true;
}

void control_metrics_start(struct control *c)
{
	(void)read_cpu(&c->cpu_busy, &c->cpu_total);
}

// Percent since the last call (the first time: since the start), with two decimals.
static double cpu_used(struct control *c)
{
	uint64_t busy = 0, total = 0;
	if (!read_cpu(&busy, &total))
		return 0;
	double b = (double)(busy - c->cpu_busy), t = (double)(total - c->cpu_total);
	bool sane = busy >= c->cpu_busy && total > c->cpu_total;
	c->cpu_busy = busy;
	c->cpu_total = total;
	double percent = sane ? b / t * 100 : 0;
	return floor((percent > 100 ? 100 : percent) * 100 + 0.5) / 100;
}

static void put(struct buf *out, struct control *c, const struct memory *m, const struct statvfs *disk)
{
	struct jsonw w;
	uint64_t used = m->total > m->available ? m->total - m->available : 0, unit = disk->f_frsize;
	jsonw_init(&w, out);
	jsonw_obj(&w);
	jsonw_kint(&w, "ts", time(NULL));
	jsonw_kint(&w, "cpu_count", sysconf(_SC_NPROCESSORS_ONLN));
	jsonw_key(&w, "cpu_used_pct");
	jsonw_num(&w, cpu_used(c));
	jsonw_kint(&w, "mem_total_mib", (int64_t)(m->total / 1024));
	jsonw_kint(&w, "mem_used_mib", (int64_t)(used / 1024));
	jsonw_kint(&w, "mem_total", (int64_t)(m->total * 1024));
	jsonw_kint(&w, "mem_used", (int64_t)(used * 1024));
	jsonw_kint(&w, "mem_cache", (int64_t)((m->cached + m->reclaimable) * 1024));
	jsonw_kint(&w, "disk_used", (int64_t)((disk->f_blocks - disk->f_bavail) * unit));
	jsonw_kint(&w, "disk_total", (int64_t)(disk->f_blocks * unit));
	jsonw_obj_end(&w);
	BUF_LIT(out, "\n");
}

void control_metrics(void *ctx, struct conn *c)
{
	struct envd *envd = ctx;
	struct memory m = {0};
	struct statvfs disk;
	struct buf out;
	struct err e;
	if (!read_memory(&m) || statvfs("/", &disk) < 0) {
		err_http(&e, 500, ERR_INTERNAL, "metrics: %s", strerror(errno));
		envd_error(c, &e, NULL);
		return;
	}
	buf_init(&out, 0);
	put(&out, envd->control, &m, &disk);
	envd_reply(c, 200, "Cache-Control: no-store\r\nContent-Type: application/json\r\n", &out);
	buf_release(&out);
}
