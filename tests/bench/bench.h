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

struct bench {
	const char *celld;
	const char *dir;
	bool quick;
	int rounds;
	int wrong; // results that were not what they should be
	struct sandbox box;
	struct row row[ROWS];
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

// CPU seconds that PID has used so far, user and system.
double bench_cpu(pid_t pid);
// A socket that listens on a port of the kernel's choice.
int bench_listen(int *port);
// A forked accept-read-answer-204 loop on the listening FD, the plainest server there is. Its pid.
pid_t bench_floor_server(int fd);

#endif
