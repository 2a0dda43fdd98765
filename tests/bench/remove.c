// SPDX-License-Identifier: Apache-2.0
// A tree of 50 000 empty files, removed in one call.
#include "tests/bench/bulk.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

void bench_remove(struct bench *b, struct target *t)
{
	char dir[256];
	struct wire w = {.c.fd = -1};
	snprintf(dir, sizeof dir, "%s/removed", b->room);
	int rc = bulk_tree_make(dir, BULK_TREE_FILES, false);
	if (rc < 0)
		bench_wrong(b, "%s: %s", dir, strerror(errno));
	if (rc == 0 && t)
		rc = bulk_open(&w, t, 0);
	int64_t start = bench_now_ns();
	if (rc == 0 && t)
		rc = wire_remove(&w, dir);
	else if (rc == 0)
		bench_remove_tree(dir);
	double ms = (double)(bench_now_ns() - start) / 1e6;
	if (rc < 0)
		bench_wrong(b, "remove by %s: %d, %.200s", bench_name(t), rc, wire_text(&w));
	else if (access(dir, F_OK) == 0 || errno != ENOENT)
		bench_wrong(b, "remove by %s: %s is still there", bench_name(t), dir);
	else
		bench_put(b, ROW_REMOVE, t, ms);
	wire_close(&w);
	bench_remove_tree(dir);
}
