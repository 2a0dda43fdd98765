// SPDX-License-Identifier: Apache-2.0
// bench [-q] [-s | -S] [-o NAME,...] [-r ROUNDS] [-p PEER]... CELLD: measures celld's two surfaces, and peers, beside floors in the
// same run and prints medians of the rounds; then how celld's costs grow with numbers (-s: only that, -S: not at all), also as a
// picture beside this program. -q is quick, -o takes only these measurements, -p adds 'envd:COMMAND' or 'sandboxd:COMMAND'.
// The exit status is 1 if a result was wrong, never because of a time.
#include "tests/bench/bench.h"
#include "tests/bench/scale.h"

#include <errno.h>
#include <libgen.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define LIMIT_S 900

// Latencies are taken on one CPU: across CPUs they tell how the scheduler has placed the two processes.
enum { FLOOR = 1 << 0, A = 1 << 1, B = 1 << 2, ONE_CPU = 1 << 3, ALL = FLOOR | A | B };

struct measure {
	const char *name;
	void (*run)(struct bench *b, struct target *t);
	unsigned whom;
};

// In this order in each round: idle early, since memory is that of fresh ones.
static const struct measure measures[] = {
	{"start", bench_start, ALL | ONE_CPU},
	{"idle", bench_idle, FLOOR},
	{"exec", bench_exec, ALL | ONE_CPU},
	{"flight", bench_flight, ALL},
	{"stream", bench_stream, ALL},
	{"latency", bench_latency, ALL | ONE_CPU},
	{"many", bench_many, ALL},
	{"small", bench_small, ALL | ONE_CPU},
	{"crowd", bench_crowd, ALL | ONE_CPU},
	{"files", bench_files, FLOOR | B},
	{"json", bench_files_json, A},
	{"list", bench_list, ALL | ONE_CPU},
	{"watch", bench_watch, ALL | ONE_CPU},
	{"remove", bench_remove, ALL},
	{"health", bench_health, A | B},
	{"flood", bench_flood, A | B},
	{"end", bench_end, A | B},
};
enum { MEASURES = sizeof measures / sizeof measures[0] };

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

const char *bench_name(const struct target *t)
{
	return t ? t->name : "the floor";
}

// True if NAME is in the comma list LIST.
static bool listed(const char *list, const char *name)
{
	size_t n = strlen(name);
	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
		if (strncmp(at, name, n) == 0 && (at[n] == ',' || at[n] == '\0'))
			return true;
	return false;
}

static void run(struct bench *b, const struct measure *m, struct target *t)
{
	if (m->whom & ONE_CPU)
		bench_pin(t, true);
	m->run(b, t);
	if (m->whom & ONE_CPU)
		bench_pin(t, false);
}

static void measure(struct bench *b, const struct measure *m)
{
	if (b->only && !listed(b->only, m->name))
		return;
	if (m->whom & FLOOR)
		run(b, m, NULL);
	for (int i = 0; i < b->targets; i++)
		if (m->whom & (b->target[i].surface == SURFACE_A ? A : B))
			run(b, m, &b->target[i]);
}

// A stream each costs a descriptor.
static void raise_files(void)
{
	struct rlimit files;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
}

static int work(const char *dir, void *arg)
{
	struct bench *b = arg;
	char floor[128];
	int64_t start = client_now_us();
	b->dir = dir;
	signal(SIGPIPE, SIG_IGN);
	raise_files();
	if (!bench_place_floor(b, floor, sizeof floor)) {
		perror(floor);
		return 1;
	}
	for (int i = 0; i < b->rounds && !b->no_table; i++) {
		if (bench_targets_start(b) < 0)
			return 1;
		for (int k = 0; k < MEASURES; k++)
			measure(b, &measures[k]);
		bench_targets_stop(b);
	}
	if (!b->no_table)
		bench_print(b);
	if (!b->no_scale)
		scale_run(b, b->picture);
	printf("%d rounds, %.0f s, %ld CPUs\n", b->rounds, (double)(client_now_us() - start) / 1e6,
		sysconf(_SC_NPROCESSORS_ONLN));
	return b->wrong ? 1 : 0;
}

static int usage(void)
{
	fprintf(stderr, "usage: bench [-q] [-s | -S] [-o NAME,...] [-r ROUNDS] [-p 'envd|sandboxd:COMMAND with "
			"{port}']... CELLD\n"
			"measurements:");
	for (int k = 0; k < MEASURES; k++)
		fprintf(stderr, " %s", measures[k].name);
	fputc('\n', stderr);
	return 2;
}

// False if a measurement of the list -o is none.
static bool all_known(const char *list)
{
	size_t names = 1, found = 0;
	for (const char *at = list; *at; at++)
		names += *at == ',';
	for (int k = 0; k < MEASURES; k++)
		found += listed(list, measures[k].name);
	return found == names;
}

static bool parse(struct bench *b, int argc, char **argv)
{
	int opt;
	while ((opt = getopt(argc, argv, "qsSo:r:p:")) != -1) {
		if (opt == 'q') {
			b->quick = true;
			b->rounds = 1;
		} else if (opt == 'o') {
			b->only = optarg;
			b->no_scale = true;
		} else if (opt == 's') {
			b->no_table = true;
		} else if (opt == 'S') {
			b->no_scale = true;
		} else if (opt == 'r') {
			b->rounds = atoi(optarg);
		} else if (opt != 'p' || !bench_add_peer(b, optarg)) {
			return false;
		}
	}
	if (optind + 1 != argc || b->rounds < 1 || b->rounds > ROUNDS_MAX)
		return false;
	b->celld = argv[optind];
	return !b->only || all_known(b->only);
}

// The program of the floors is beside this one, and the picture will be.
static bool find_floor(struct bench *b, char *path, size_t n)
{
	char self[3072];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	if (len <= 0)
		return false;
	self[len] = '\0';
	const char *dir = dirname(self);
	snprintf(b->picture, sizeof b->picture, "%s/bench-scale.svg", dir);
	snprintf(path, n, "%s/bench-floor", dir);
	if (access(path, X_OK) == 0)
		return true;
	fprintf(stderr, "%s: %s\n", path, strerror(errno));
	return false;
}

int main(int argc, char **argv)
{
	struct bench *b = calloc(1, sizeof *b);
	char room[64], floor[4096];
	if (!b || !find_floor(b, floor, sizeof floor))
		return 1;
	b->rounds = 3;
	b->floor = floor;
	b->target[b->targets++] = (struct target){.name = "celld A", .surface = SURFACE_A};
	b->target[b->targets++] = (struct target){.name = "celld B", .surface = SURFACE_B};
	if (!parse(b, argc, argv))
		return usage();
	b->room = bench_room_make(room, sizeof room);
	if (!b->room) {
		perror(room);
		return 1;
	}
	int status = keeper_run(work, b, LIMIT_S * client_scale());
	bench_remove_tree(b->room);
	free(b);
	return status;
}
