// SPDX-License-Identifier: Apache-2.0
// What the figures mean, what they should be, and the table of them.
#include "tests/bench/bench.h"

#include <stdio.h>
#include <stdlib.h>

enum goal {
	GOAL_NONE,
	GOAL_MOST_X, // at most so many times the floor
	GOAL_LEAST_X,
	GOAL_MOST, // at most
	GOAL_LEAST,
};
enum pick { MEDIAN, LEAST }; // LEAST: of the quietest round

struct row_text {
	const char *what, *unit;
	enum goal goal;
	double bound;
	const char *floor;
	enum pick pick;
};

static const struct row_text texts[ROWS] = {
	[ROW_START] = {"spawn to first answer", "ms", GOAL_MOST_X, 1.5, "static C server", MEDIAN},
	[ROW_IDLE_PSS] = {"idle: memory (PSS)", "KiB", GOAL_MOST, 1229, "static C server", MEDIAN},
	[ROW_IDLE_WAKEUPS] = {"idle: wakeups in 3 s", "", GOAL_MOST, 0, "static C server", MEDIAN},
	[ROW_IDLE_CPU] = {"idle: CPU in 3 s", "ms", GOAL_MOST, 0, "static C server", MEDIAN},
	[ROW_EXEC_P50] = {"sh -c true, p50", "us", GOAL_MOST_X, 1.25, "posix_spawn + wait", MEDIAN},
	[ROW_EXEC_P99] = {"sh -c true, p99", "us", GOAL_NONE, 0, "the same", MEDIAN},
	[ROW_FLIGHT] = {"sh -c true, 64 in flight", "1/s", GOAL_LEAST_X, 0.75, "posix_spawn, 64 at once", MEDIAN},
	[ROW_FLIGHT_CPU] = {"64 in flight: CPU of the daemon each", "us", GOAL_NONE, 0, "", MEDIAN},
	[ROW_STREAM] = {"one stream, raw bytes", "MB/s", GOAL_LEAST_X, 0.8, "C relay: pipe, base64, TCP", MEDIAN},
	[ROW_STREAM_CPU] = {"one stream: CPU", "s/GB", GOAL_MOST, 0.8, "the same", MEDIAN},
	[ROW_STREAMS] = {"8 streams together", "MB/s", GOAL_NONE, 0, "8 C relays", MEDIAN},
	[ROW_STREAMS_SHARE] = {"8 streams, of the one", "x", GOAL_LEAST, 0.9, "8 C relays", MEDIAN},
	[ROW_STREAMS_EVEN] = {"8 streams: slowest of fastest", "x", GOAL_LEAST, 0.8, "8 C relays", MEDIAN},
	[ROW_LATENCY_P50] = {"write in the command to client, p50", "us", GOAL_MOST_X, 3, "the pipe read", MEDIAN},
	[ROW_LATENCY_RELAY] = {"the same", "us", GOAL_NONE, 0, "C relay: pipe, TCP", MEDIAN},
	[ROW_LATENCY_P99] = {"write in the command to client, p99", "us", GOAL_NONE, 0, "the pipe read", MEDIAN},
	[ROW_MANY_OPEN] = {"1000 held streams: opened in", "s", GOAL_MOST, 1, "1000 posix_spawn", MEDIAN},
	[ROW_MANY_MEMORY] = {"1000 held streams: memory each", "KiB", GOAL_MOST, 12, "", MEDIAN},
	[ROW_UPLOAD] = {"upload 512 MiB", "MB/s", GOAL_LEAST_X, 0.9, "C recv + write", MEDIAN},
	[ROW_UPLOAD_CPU] = {"upload: CPU", "s/GB", GOAL_NONE, 0, "C recv + write", MEDIAN},
	[ROW_UPLOAD_GROWTH] = {"upload: memory growth", "KiB", GOAL_MOST, 1024, "", MEDIAN},
	[ROW_DOWNLOAD] = {"download 512 MiB", "MB/s", GOAL_NONE, 0, "C sendfile", MEDIAN},
	[ROW_DOWNLOAD_NGINX] = {"download 512 MiB", "MB/s", GOAL_LEAST_X, 0.95, "nginx sendfile", MEDIAN},
	[ROW_DOWNLOAD_CPU] = {"download: CPU", "s/GB", GOAL_NONE, 0, "C sendfile", MEDIAN},
	[ROW_DOWNLOAD_GROWTH] = {"download: memory growth", "KiB", GOAL_MOST, 1024, "", MEDIAN},
	[ROW_JSON_WRITE] = {"24 MiB base64 JSON written", "MB/s", GOAL_LEAST, 100, "", MEDIAN},
	[ROW_JSON_READ] = {"24 MiB base64 JSON read", "MB/s", GOAL_LEAST, 300, "", MEDIAN},
	[ROW_JSON_LEFT] = {"24 MiB base64 JSON: memory kept", "KiB", GOAL_MOST, 1024, "", MEDIAN},
	[ROW_LIST] = {"list 10 000 entries, p50", "ms", GOAL_MOST_X, 2, "scandir + lstat", MEDIAN},
	[ROW_STAT_P50] = {"stat, p50", "us", GOAL_MOST_X, 1.5, "C 204", MEDIAN},
	[ROW_STAT_P99] = {"stat, p99", "us", GOAL_NONE, 0, "C 204", MEDIAN},
	[ROW_HEALTH_P50] = {"health, p50", "us", GOAL_NONE, 0, "C 204", MEDIAN},
	[ROW_STAT_64] = {"stat, 64 connections", "1/s", GOAL_LEAST_X, 0.75, "C epoll 204", MEDIAN},
	[ROW_WATCH_P50] = {"watch: create to event, p50", "us", GOAL_MOST_X, 2, "the inotify read", MEDIAN},
	[ROW_WATCH_RELAY] = {"the same", "us", GOAL_NONE, 0, "C relay: inotify, TCP", MEDIAN},
	[ROW_WATCH_P99] = {"watch: create to event, p99", "us", GOAL_NONE, 0, "the inotify read", MEDIAN},
	[ROW_REMOVE] = {"remove 50 000 files", "ms", GOAL_MOST_X, 0.8, "nftw", MEDIAN},
	[ROW_BESIDE_NOTHING] = {"health, alone: max", "ms", GOAL_NONE, 0, "", LEAST},
	[ROW_BESIDE_LIST] = {"health beside 10 000 listed: max", "ms", GOAL_MOST, 2.5, "", LEAST},
	[ROW_BESIDE_REMOVE] = {"health beside the removal: max", "ms", GOAL_MOST, 2.5, "", LEAST},
	[ROW_BESIDE_WRITE] = {"health beside 64 MiB JSON written: max", "ms", GOAL_NONE, 0, "", LEAST},
	[ROW_BESIDE_READ] = {"health beside 64 MiB JSON read: max", "ms", GOAL_NONE, 0, "", LEAST},
	[ROW_BESIDE_STREAM] = {"health beside a full stream: max", "ms", GOAL_MOST, 2, "", LEAST},
	[ROW_BESIDE_NOTHING_P99] = {"health, alone: p99", "ms", GOAL_NONE, 0, "", MEDIAN},
	[ROW_BESIDE_LIST_P99] = {"health beside 10 000 listed: p99", "ms", GOAL_NONE, 0, "", MEDIAN},
	[ROW_BESIDE_REMOVE_P99] = {"health beside the removal: p99", "ms", GOAL_NONE, 0, "", MEDIAN},
	[ROW_BESIDE_WRITE_P99] = {"health beside 64 MiB JSON written: p99", "ms", GOAL_NONE, 0, "", MEDIAN},
	[ROW_BESIDE_READ_P99] = {"health beside 64 MiB JSON read: p99", "ms", GOAL_NONE, 0, "", MEDIAN},
	[ROW_BESIDE_STREAM_P99] = {"health beside a full stream: p99", "ms", GOAL_NONE, 0, "", MEDIAN},
	[ROW_FLOOD_STAT] = {"stat beside a slowly read flood, p50", "us", GOAL_NONE, 0, "", MEDIAN},
	[ROW_FLOOD_GROWTH] = {"slowly read flood: memory growth", "KiB", GOAL_NONE, 0, "", MEDIAN},
	[ROW_END] = {"memory after the whole run (RSS)", "KiB", GOAL_MOST, 4096, "", MEDIAN},
};

static int column(const struct bench *b, const struct target *t)
{
	return t ? 1 + (int)(t - b->target) : 0;
}

void bench_put(struct bench *b, enum row_id id, const struct target *t, double v)
{
	struct row *r = &b->row[id];
	int c = column(b, t);
	if (r->n[c] < ROUNDS_MAX)
		r->v[c][r->n[c]++] = v;
}

void bench_floor_is(struct bench *b, enum row_id id, const char *text)
{
	b->row[id].floor = text;
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

// The round's figure that stands in the table.
static double picked(const struct row *r, int c, enum pick pick)
{
	double v[ROUNDS_MAX];
	for (int i = 0; i < r->n[c]; i++)
		v[i] = r->v[c][i];
	return bench_percentile(v, (size_t)r->n[c], pick == LEAST ? 0 : 50);
}

double bench_median(const struct bench *b, enum row_id id, const struct target *t)
{
	return picked(&b->row[id], column(b, t), MEDIAN);
}

static bool missed(const struct row_text *text, double v, double floor)
{
	switch (text->goal) {
	case GOAL_MOST_X:
		return floor > 0 && v > text->bound * floor;
	case GOAL_LEAST_X:
		return floor > 0 && v < text->bound * floor;
	case GOAL_MOST:
		return v > text->bound;
	case GOAL_LEAST:
		return v < text->bound;
	case GOAL_NONE:
		break;
	}
	return false;
}

static void print_value(double v, int n)
{
	if (n == 0)
		printf(" %8s", "-");
	else
		printf(" %8.*f", v >= 100 || v == 0 ? 0 : v >= 10 ? 1 : 2, v);
}

static void print_goal(const struct row_text *text)
{
	static const char *const signs[] = {
		[GOAL_NONE] = "",
		[GOAL_MOST_X] = "<= x",
		[GOAL_LEAST_X] = ">= x",
		[GOAL_MOST] = "<= ",
		[GOAL_LEAST] = ">= ",
	};
	char s[32] = "";
	if (text->goal != GOAL_NONE)
		snprintf(s, sizeof s, "%s%g", signs[text->goal], text->bound);
	printf("  %-9s %s\n", s, text->floor);
}

// Returns how many goals celld misses in it.
static int print_row(struct bench *b, enum row_id id)
{
	const struct row *r = &b->row[id];
	struct row_text text = texts[id];
	double floor = picked(r, 0, text.pick);
	int misses = 0;
	text.floor = r->floor ? r->floor : text.floor;
	printf("%-39s %-4s", text.what, text.unit);
	print_value(floor, r->n[0]);
	for (int c = 1; c <= b->targets; c++) {
		double v = picked(r, c, text.pick);
		bool miss = r->n[c] && missed(&text, v, floor);
		char ratio[16] = "";
		if (r->n[c] && r->n[0] && floor > 0)
			snprintf(ratio, sizeof ratio, "x%.2f", v / floor);
		print_value(v, r->n[c]);
		printf("%c%-6s", miss ? '!' : ' ', ratio);
		misses += miss && !b->target[c - 1].command;
	}
	print_goal(&text);
	return misses;
}

void bench_print(struct bench *b)
{
	int misses = 0;
	printf("%-39s %-4s %8s", "MEDIAN OF THE ROUNDS", "UNIT", "FLOOR");
	for (int i = 0; i < b->targets; i++)
		printf(" %8.8s%7s", b->target[i].name, "");
	printf("  %-9s %s\n", "GOAL", "THE FLOOR IS");
	for (int id = 0; id < ROWS; id++) {
		int given = 0;
		for (int c = 0; c <= b->targets; c++)
			given += b->row[id].n[c];
		if (given)
			misses += print_row(b, (enum row_id)id);
	}
	printf("Maxima are those of the quietest round. ! marks a goal that is missed (celld: %d).\n", misses);
}
