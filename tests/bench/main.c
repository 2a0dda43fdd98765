// SPDX-License-Identifier: Apache-2.0
// bench [-q] [-H] [-r ROUNDS] CELLD: measures a celld beside floors in the same run and prints medians of the rounds.
// -q is quick, -H asks GET /health beside loads and nothing more.
// The exit status is 1 if a result was wrong, never because of a time.
#include "tests/bench/bench.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_S 300

static const struct {
	const char *what, *unit, *floor;
} names[ROWS] = {
	[ROW_START] = {"spawn to first answer", "ms", "forked C server"},
	[ROW_PSS] = {"idle memory (PSS)", "KiB", "forked C server"},
	[ROW_WAKEUPS] = {"idle wakeups in 3 s", "", "forked C server"},
	[ROW_EXEC_P50] = {"/exec true, p50", "us", "vfork+execve+wait of sh -c true"},
	[ROW_EXEC_P99] = {"/exec true, p99", "us", "the same"},
	[ROW_EXEC_MORE] = {"/exec true, p50 above the floor", "us", ""},
	[ROW_STREAM] = {"one stream, raw bytes", "MB/s", "C relay: pipe, base64, loopback"},
	[ROW_STREAM_CPU] = {"one stream, CPU", "s/GB", "the same"},
	[ROW_FLIGHT] = {"64 commands in flight", "1/s", "posix_spawn, 64 in flight"},
	[ROW_FLIGHT_CPU] = {"64 in flight, daemon CPU a command", "us", ""},
};

void bench_floor(struct bench *b, enum row_id id, double v)
{
	if (b->row[id].floors < ROUNDS_MAX)
		b->row[id].floor[b->row[id].floors++] = v;
}

void bench_celld(struct bench *b, enum row_id id, double v)
{
	if (b->row[id].rounds < ROUNDS_MAX)
		b->row[id].celld[b->row[id].rounds++] = v;
}

void bench_wrong(struct bench *b, const char *fmt, ...)
{
	va_list ap;
	b->wrong++;
	va_start(ap, fmt);
	printf("WRONG ");
	vprintf(fmt, ap);
	putchar('\n');
	va_end(ap);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double bench_percentile(double *v, size_t n, int p)
{
	qsort(v, n, sizeof *v, by_value);
	return n ? v[(n - 1) * (size_t)p / 100] : 0;
}

static void cell(char *to, size_t n, double *v, int count)
{
	double m = bench_percentile(v, (size_t)count, 50);
	if (count == 0)
		snprintf(to, n, "-");
	else
		snprintf(to, n, "%.*f", m >= 100 ? 0 : m >= 10 ? 1 : 2, m);
}

static void print_table(struct bench *b)
{
	printf("%-36s %-5s %9s %9s %7s   %s\n", "MEDIAN OF THE ROUNDS", "UNIT", "FLOOR", "CELLD", "RATIO",
		"THE FLOOR IS");
	for (int i = 0; i < ROWS; i++) {
		struct row *r = &b->row[i];
		char floor[32], celld[32], ratio[32] = "";
		cell(floor, sizeof floor, r->floor, r->floors);
		cell(celld, sizeof celld, r->celld, r->rounds);
		double f = bench_percentile(r->floor, (size_t)r->floors, 50);
		if (r->floors && r->rounds && f > 0)
			snprintf(ratio, sizeof ratio, "x%.2f", bench_percentile(r->celld, (size_t)r->rounds, 50) / f);
		printf("%-36s %-5s %9s %9s %7s   %s\n", names[i].what, names[i].unit, floor, celld, ratio,
			names[i].floor);
	}
}

static int work(const char *dir, void *arg)
{
	struct bench *b = arg;
	int64_t start = client_now_us();
	b->dir = dir;
	for (int i = 0; i < b->rounds && !b->only_health; i++) {
		bench_start(b);
		if (sandbox_start(&b->box, b->celld, dir, false) < 0)
			return 1;
		bench_idle(b); // first, since memory is that of a fresh one
		bench_exec(b);
		bench_flight(b);
		bench_stream(b);
		int status = sandbox_stop(&b->box);
		if (status != 0)
			bench_wrong(b, "exit status %d after TERM", status);
	}
	// Apart, since memory that it leaves here would be counted for the floors, which are forked.
	for (int i = 0; i < b->rounds; i++)
		bench_health(b);
	if (!b->only_health)
		print_table(b);
	bench_health_print(b);
	printf("%d rounds, %.0f s, %ld CPUs\n", b->rounds, (double)(client_now_us() - start) / 1e6,
		sysconf(_SC_NPROCESSORS_ONLN));
	return b->wrong ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct bench b = {.rounds = 3};
	char room[64];
	int opt;
	while ((opt = getopt(argc, argv, "qHr:")) != -1) {
		if (opt == 'q') {
			b.quick = true;
			b.rounds = 1;
		}
		if (opt == 'H')
			b.only_health = true;
		if (opt == 'r')
			b.rounds = atoi(optarg);
		if (opt == '?')
			return 2;
	}
	if (optind + 1 != argc || b.rounds < 1 || b.rounds > ROUNDS_MAX) {
		fprintf(stderr, "usage: bench [-q] [-H] [-r ROUNDS] CELLD\n");
		return 2;
	}
	b.celld = argv[optind];
	b.room = bench_room_make(room, sizeof room);
	if (!b.room) {
		perror(room);
		return 1;
	}
	int status = keeper_run(work, &b, LIMIT_S * client_scale());
	bench_room_remove(b.room);
	return status;
}
