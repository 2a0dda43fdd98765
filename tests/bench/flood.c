// SPDX-License-Identifier: Apache-2.0
// A command writes much more than its reader reads: what others wait meanwhile, and how much the daemon keeps for it. Then the
// rest is read: nothing may be missing.
#include "tests/bench/bulk.h"

#include <stdio.h>

#define FLOOD_MIB 96
#define PROBES 400
#define PACE_MS 2

struct flood {
	struct wire stream, other;
	struct wire_event e;
	uint64_t bytes;
	bool exited;
};

// The stream's next event: 1, 0 at the end, or negative errno.
static int next(struct flood *f)
{
	int rc = wire_event(&f->stream, &f->e);
	if (rc > 0 && f->e.kind == WIRE_DATA)
		f->bytes += buf_len(&f->e.data);
	if (rc > 0 && f->e.kind == WIRE_ENDED)
		f->exited = f->e.code == 0;
	return rc;
}

// Asks again and again beside the flood, of which it takes one event each time.
static int probe(struct bench *b, struct flood *f, double *us, size_t n)
{
	int rc = 1;
	for (size_t i = 0; i < n && rc > 0; i++) {
		int64_t start = bench_now_ns();
		rc = wire_stat(&f->other, b->room) < 0 ? -1 : 1;
		us[i] = (double)(bench_now_ns() - start) / 1e3;
		rc = rc < 0 ? rc : next(f);
		bench_pause_ms(PACE_MS);
	}
	return rc;
}

static void run(struct bench *b, struct flood *f, const struct target *t)
{
	char command[64];
	double us[PROBES];
	size_t n = b->quick ? PROBES / 2 : PROBES;
	double before = bulk_peak_begin(t);
	snprintf(command, sizeof command, "head -c %dM /dev/zero", FLOOD_MIB);
	int rc = wire_stream_open(&f->stream, command);
	rc = rc < 0 ? rc : probe(b, f, us, n);
	double grown = before < 0 ? -1 : bulk_peak(t, before);
	uint64_t slowly = f->bytes;
	while (rc > 0)
		rc = next(f);
	if (rc < 0 || !f->exited || f->bytes != (uint64_t)FLOOD_MIB * 1024 * 1024) {
		bench_wrong(b, "flood of %s: %d, %llu bytes (%llu of them slowly), %s", t->name, rc,
			(unsigned long long)f->bytes, (unsigned long long)slowly, f->exited ? "ended" : "not ended");
		return;
	}
	bench_put(b, ROW_FLOOD_STAT, t, bench_percentile(us, n, 50));
	if (before >= 0)
		bench_put(b, ROW_FLOOD_GROWTH, t, grown);
}

void bench_flood(struct bench *b, struct target *t)
{
	struct flood f = {.stream.c.fd = -1, .other.c.fd = -1};
	if (bulk_open(&f.stream, t, 0) < 0 || bulk_open(&f.other, t, 0) < 0)
		bench_wrong(b, "no connections to %s beside a flood", t->name);
	else
		run(b, &f, t);
	wire_event_release(&f.e);
	wire_close(&f.stream);
	wire_close(&f.other);
}
