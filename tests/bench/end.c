// SPDX-License-Identifier: Apache-2.0
// What is left of it all.
#include "tests/bench/bench.h"

#define REST_MS 1500 // a daemon that gives memory back later than that keeps it

void bench_end(struct bench *b, struct target *t)
{
	if (t == b->target)
		bench_pause_ms(REST_MS);
	double rss = bench_rss(t);
	if (rss > 0) // else it is not known: another user's processes
		bench_put(b, ROW_END, t, rss);
}
