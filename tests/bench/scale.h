// SPDX-License-Identifier: Apache-2.0
// scale: what ten, a hundred, a thousand and ten thousand of a kind cost, each number in a celld of its own: memory, time, and what
// one call takes beside them. A picture and a table; only a wrong answer fails the run. Where the machine's limits refuse ten
// thousand, it is as many as they allow.
#ifndef CELLD_TESTS_BENCH_SCALE_H
#define CELLD_TESTS_BENCH_SCALE_H

#include "tests/bench/bench.h"
#include "tests/bench/plot.h"
#include "tests/bench/wire.h"

// Of what both surfaces can, B's row follows A's.
enum scale_row {
	SCALE_READERS_MEMORY_A,
	SCALE_READERS_MEMORY_B,
	SCALE_READERS_OPEN_A,
	SCALE_READERS_OPEN_B,
	SCALE_READERS_LINE_A,
	SCALE_READERS_LINE_B,
	SCALE_READERS_CLOSE_A,
	SCALE_READERS_CLOSE_B,
	SCALE_READERS_HEALTH_A,
	SCALE_READERS_HEALTH_B,
	SCALE_COMMANDS_MEMORY,
	SCALE_COMMANDS_START,
	SCALE_COMMANDS_LIST_A,
	SCALE_COMMANDS_LIST_B,
	SCALE_COMMANDS_END,
	SCALE_COMMANDS_RESET,
	SCALE_COMMANDS_EXEC_A,
	SCALE_COMMANDS_EXEC_B,
	SCALE_WATCHERS_MEMORY_A,
	SCALE_WATCHERS_MEMORY_B,
	SCALE_WATCHERS_ADD_A,
	SCALE_WATCHERS_ADD_B,
	SCALE_WATCHERS_REMOVE_A,
	SCALE_WATCHERS_REMOVE_B,
	SCALE_WATCHERS_TREE_A,
	SCALE_WATCHERS_TREE_B,
	SCALE_WATCHERS_EVENT_A,
	SCALE_WATCHERS_EVENT_B,
	SCALE_ENTRIES_MEMORY_A,
	SCALE_ENTRIES_MEMORY_B,
	SCALE_ENTRIES_LIST_A,
	SCALE_ENTRIES_LIST_B,
	SCALE_ENTRIES_FLOOR,
	SCALE_ENTRIES_STAT_A,
	SCALE_ENTRIES_STAT_B,
	SCALE_ROWS
};

enum { SCALE_STEPS = PLOT_POINTS, SCALE_LOADS = 4 };

struct scale {
	struct bench *b;
	struct sandbox box;
	char workspace[128];
	struct target target[2]; // by surface
	struct wire wire[2];     // to ask with, by surface
	pid_t tree[2];           // celld's processes
	size_t n;
	int step;
	double pss;                         // KiB before the load
	char why[128];                      // a limit refused it
	double x[SCALE_LOADS][SCALE_STEPS]; // how many, by load; 0: none
	double v[SCALE_ROWS][SCALE_STEPS];
};

// Runs all of it; the picture goes into the file SVG.
void scale_run(struct bench *b, const char *svg);

// --- the loads: s->n of a kind on surface T; false if it was wrong or refused ---

bool scale_readers(struct scale *s, enum surface t);
bool scale_commands(struct scale *s, enum surface t);
bool scale_watchers(struct scale *s, enum surface t);
bool scale_entries(struct scale *s, enum surface t);

// --- what they share ---

void scale_put(struct scale *s, int row, double v);
// Memory above what there was before the load, KiB.
void scale_put_memory(struct scale *s, int row);
// A wrong result, or, where RC is a status that says that something is exhausted, a refused size. Always false.
bool scale_wrong(struct scale *s, const char *what, int64_t rc);
double scale_ms_since(int64_t start_us);
// The p50 in microseconds of TIMES calls of CALL, which gives what is right or a negative errno, on surface T's wire; negative if one was wrong.
double scale_p50_us(
	struct scale *s, enum surface t, int times, int (*call)(struct wire *w, const char *arg), const char *arg);
// GET TARGET, or POST JSON to it, on surface T's wire: the milliseconds until all of the answer was there, which must have KEY
// COUNT times. Negative if not.
double scale_list_ms(
	struct scale *s, enum surface t, const char *target, const char *json, const char *key, size_t count);

#endif
