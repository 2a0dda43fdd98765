// SPDX-License-Identifier: Apache-2.0
// bench: what the measurements share. Each takes one round's figures of celld and, interleaved with them, of its floor: the
// same work done by the plainest C that the kernel allows. A timing decides nothing; a wrong result fails the run.
#ifndef CELLD_TESTS_BENCH_BENCH_H
#define CELLD_TESTS_BENCH_BENCH_H

#include "tests/demo/client.h"
#include "tests/demo/sandbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum row_id {
	ROW_START,
	ROW_PSS,
	ROW_WAKEUPS,
	ROW_EXEC_P50,
	ROW_EXEC_P99,
	ROW_EXEC_MORE,
	ROW_STREAM,
	ROW_STREAM_CPU,
	ROW_FLIGHT,
	ROW_FLIGHT_CPU,
	ROWS
};

#define ROUNDS_MAX 9

struct row {
	double floor[ROUNDS_MAX];
	double celld[ROUNDS_MAX];
	int floors;
	int rounds;
};

// What happens while /health is asked; in the order in which it is measured.
enum health_case { HEALTH_QUIET, HEALTH_LIST, HEALTH_REMOVE, HEALTH_WRITE, HEALTH_READ, HEALTH_STREAM, HEALTH_CASES };

struct health {
	double p50[ROUNDS_MAX], p99[ROUNDS_MAX], max[ROUNDS_MAX]; // us
	double load[ROUNDS_MAX];                                  // s, for one
	int rounds;
};

struct bench {
	const char *celld;
	const char *dir;
	const char *room; // another directory, in memory if there is room
	bool quick;
	bool only_health;
	int rounds;
	int wrong; // results that were not what they should be
	struct sandbox box;
	struct row row[ROWS];
	struct health health[HEALTH_CASES];
};

void bench_floor(struct bench *b, enum row_id id, double v);
void bench_celld(struct bench *b, enum row_id id, double v);
// Notes a wrong result and prints why.
void bench_wrong(struct bench *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// The value below which P percent of V lie; sorts V.
double bench_percentile(double *v, size_t n, int p);

// One round each.
void bench_start(struct bench *b);
void bench_idle(struct bench *b);
void bench_exec(struct bench *b);
void bench_flight(struct bench *b);
void bench_stream(struct bench *b);
void bench_health(struct bench *b); // with a celld of its own in the room

void bench_health_print(struct bench *b);
// A new directory on tmpfs if there is room for the loads of bench_health, else in /tmp: DIR, or NULL with errno.
const char *bench_room_make(char *dir, size_t n);
void bench_room_remove(const char *dir);

// CPU seconds that PID has used so far, user and system.
double bench_cpu(pid_t pid);
// A socket that listens on a port of the kernel's choice.
int bench_listen(int *port);
// A forked accept-read-answer-204 loop on the listening FD, the plainest server there is. Its pid.
pid_t bench_floor_server(int fd);

#endif
