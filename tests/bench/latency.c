// SPDX-License-Identifier: Apache-2.0
// How long what a command writes is under way: a ticker writes the time again and again, and we subtract it from ours.
#include "tests/bench/bulk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define PERIOD_US 2000
#define TICKS_MAX 1000

struct ticks {
	double us[TICKS_MAX];
	size_t n;
	int64_t last;    // stamp
	struct buf part; // what came and is not used
	bool strange;
};

// N bytes that were there at AT_NS.
static void take(struct ticks *k, const void *p, size_t n, int64_t at_ns)
{
	int64_t stamp;
	buf_append(&k->part, p, n);
	while (buf_len(&k->part) >= sizeof stamp) {
		memcpy(&stamp, buf_data(&k->part), sizeof stamp);
		buf_consume(&k->part, sizeof stamp);
		k->strange = k->strange || stamp <= k->last || stamp > at_ns || k->n == TICKS_MAX;
		if (k->strange)
			return;
		k->last = stamp;
		k->us[k->n++] = (double)(at_ns - stamp) / 1000;
	}
}

// Read from the pipe, or (RELAY) from the connection of one who does. 0 once the ticker has ended well.
static int floor_ticks(const struct bench *b, struct ticks *k, size_t n, bool relay)
{
	char count[16], period[16], piece[4096];
	const char *argv[] = {NULL, "tick", count, period, NULL};
	int pipes[2], status = -1, in;
	ssize_t got;
	snprintf(count, sizeof count, "%zu", n);
	snprintf(period, sizeof period, "%d", PERIOD_US);
	if (pipe2(pipes, O_CLOEXEC) < 0)
		return -errno;
	in = pipes[0];
	pid_t between = relay ? bulk_floor_relay(pipes[0], &in) : 0;
	pid_t pid = between < 0 ? -1 : bench_spawn_floor(b, argv, pipes[1]);
	close(pipes[1]);
	while (pid > 0 && k->n < n && (got = read(in, piece, sizeof piece)) > 0)
		take(k, piece, (size_t)got, bench_now_ns());
	if (pid > 0)
		waitpid(pid, &status, 0);
	bench_kill(between);
	close(pipes[0]);
	if (relay)
		close(in);
	return status == 0 ? 0 : -EPROTO;
}

static int target_ticks(const struct bench *b, const struct target *t, struct ticks *k, size_t n)
{
	char command[512];
	struct wire w;
	struct wire_event e = {0};
	int code = -1, rc = wire_open(&w, t);
	snprintf(command, sizeof command, "exec %s tick %zu %d", b->floor, n, PERIOD_US);
	if (rc == 0)
		rc = wire_stream_open(&w, command);
	for (rc = rc < 0 ? rc : 1; rc > 0;) {
		rc = wire_event(&w, &e);
		if (rc == 1 && e.kind == WIRE_DATA)
			take(k, buf_data(&e.data), buf_len(&e.data), w.at_ns);
		if (rc == 1 && e.kind == WIRE_ENDED)
			code = e.code;
	}
	wire_event_release(&e);
	wire_close(&w);
	return rc < 0 ? rc : code == 0 ? 0 : -EPROTO;
}

static void measure(struct bench *b, struct target *t, bool relay)
{
	size_t n = b->quick ? TICKS_MAX / 4 : TICKS_MAX / 2;
	struct ticks *k = calloc(1, sizeof *k);
	int rc = !k ? -ENOMEM : t ? target_ticks(b, t, k, n) : floor_ticks(b, k, n, relay);
	if (rc < 0 || k->n != n || k->strange) {
		bench_wrong(b, "%s: %zu ticks of %zu%s: %s", bench_name(t), k ? k->n : 0, n,
			k && k->strange ? ", not all right" : "", strerror(-rc));
	} else {
		double p50 = bench_percentile(k->us, n, 50);
		if (t || relay)
			bench_put(b, ROW_LATENCY_RELAY, t, p50);
		if (!relay) {
			bench_put(b, ROW_LATENCY_P50, t, p50);
			bench_put(b, ROW_LATENCY_P99, t, bench_percentile(k->us, n, 99));
		}
	}
	if (k)
		buf_release(&k->part);
	free(k);
}

void bench_latency(struct bench *b, struct target *t)
{
	measure(b, t, false);
	if (!t)
		measure(b, NULL, true);
}
