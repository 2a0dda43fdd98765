// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/progress.h"
#include "daemon/ctl/ctl_priv.h"
#include "daemon/io.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EVERY_NS 100000000
#define BAR 20

static double mib(int64_t n)
{
	return (double)n / (1024 * 1024);
}

static void show(struct progress *p, int64_t now)
{
	struct buf line;
	double s = (double)(now - p->begun) / 1e9;
	size_t n = strlen(p->name), from = n > 30 ? n - 30 : 0;
	while ((p->name[from] & 0xc0) == 0x80) // not inside a character
		from++;
	buf_init(&line, 0);
	buf_byte(&line, '\r');
	ctl_put_shown(&line, p->name + from, n - from);
	if (p->total > 0) {
		double part = p->done < p->total ? (double)p->done / (double)p->total : 1;
		int full = (int)(part * BAR);
		buf_printf(&line, "  %3d%% [%.*s%.*s]", (int)(part * 100), full, "####################", BAR - full,
			"--------------------");
	}
	buf_printf(&line, "  %.1f MiB", mib(p->done));
	if (s > 0.2)
		buf_printf(&line, "  %.1f MiB/s", mib(p->done) / s);
	buf_str(&line, "\x1b[K");
	(void)ctl_write(STDERR_FILENO, &line);
	buf_release(&line);
	p->shown = now;
}

void progress_begin(struct progress *p, const char *name, int64_t total, bool quiet)
{
	*p = (struct progress){.on = !quiet && isatty(STDERR_FILENO), .name = name, .total = total};
	p->begun = io_mono_ns();
}

void progress_at(struct progress *p, int64_t done)
{
	p->done = done;
	if (!p->on)
		return;
	int64_t now = io_mono_ns();
	if (now - p->shown >= EVERY_NS)
		show(p, now);
}

void progress_end(struct progress *p)
{
	if (!p->on)
		return;
	show(p, io_mono_ns());
	(void)io_write(STDERR_FILENO, "\n", 1);
	p->on = false;
}
