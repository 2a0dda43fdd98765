// SPDX-License-Identifier: Apache-2.0
// bench: what the measurements share. Each is one function that takes one round's figures of one target, or, with T == NULL,
// of its floor: the same work done by the plainest C that the kernel allows. Floor and targets take turns within a round, so
// that a busy moment of the machine meets all. A time decides nothing; a wrong result fails the run.
#ifndef CELLD_TESTS_BENCH_BENCH_H
#define CELLD_TESTS_BENCH_BENCH_H

#include "tests/demo/client.h"
#include "tests/demo/sandbox.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum surface { SURFACE_A, SURFACE_B };

// One line of the table; rows.c says what each means. A row that a measurement does not give is not printed.
enum row_id {
	ROW_START,
	ROW_IDLE_PSS,
	ROW_IDLE_WAKEUPS,
	ROW_IDLE_CPU,
	ROW_EXEC_P50,
	ROW_EXEC_P99,
	ROW_FLIGHT,
	ROW_FLIGHT_CPU,
	ROW_STREAM,
	ROW_STREAM_CPU,
	ROW_STREAMS,
	ROW_STREAMS_SHARE,
	ROW_STREAMS_EVEN,
	ROW_LATENCY_P50,
	ROW_LATENCY_RELAY,
	ROW_LATENCY_P99,
	ROW_MANY_OPEN,
	ROW_MANY_MEMORY,
	ROW_UPLOAD,
	ROW_UPLOAD_CPU,
	ROW_UPLOAD_GROWTH,
	ROW_DOWNLOAD,
	ROW_DOWNLOAD_NGINX,
	ROW_DOWNLOAD_CPU,
	ROW_DOWNLOAD_GROWTH,
	ROW_JSON_WRITE,
	ROW_JSON_READ,
	ROW_JSON_LEFT,
	ROW_LIST,
	ROW_STAT_P50,
	ROW_STAT_P99,
	ROW_HEALTH_P50,
	ROW_STAT_64,
	ROW_WATCH_P50,
	ROW_WATCH_RELAY,
	ROW_WATCH_P99,
	ROW_REMOVE,
	ROW_BESIDE_NOTHING,
	ROW_BESIDE_LIST,
	ROW_BESIDE_REMOVE,
	ROW_BESIDE_WRITE,
	ROW_BESIDE_READ,
	ROW_BESIDE_STREAM,
	ROW_BESIDE_NOTHING_P99,
	ROW_BESIDE_LIST_P99,
	ROW_BESIDE_REMOVE_P99,
	ROW_BESIDE_WRITE_P99,
	ROW_BESIDE_READ_P99,
	ROW_BESIDE_STREAM_P99,
	ROW_FLOOD_STAT,
	ROW_FLOOD_GROWTH,
	ROW_END,
	ROWS
};

#define ROUNDS_MAX 9
#define TARGETS_MAX 6

// What is measured: one surface of a daemon. celld's two surfaces belong to one process tree.
struct target {
	const char *name;
	enum surface surface;
	int port;            // of this surface
	pid_t pid;           // the root of its process tree
	const char *command; // a peer's command line, with {port} in it; NULL for celld
};

struct row {
	double v[1 + TARGETS_MAX][ROUNDS_MAX]; // the floor, then the targets
	int n[1 + TARGETS_MAX];
	const char *floor; // what it was this time, if that depends on the machine
};

struct bench {
	const char *celld;
	const char *floor; // the program of the floors, see floor/floor.c
	const char *dir;   // logs and small files
	const char *
		room; // another directory, in memory if there is room: large files and trees; celld's workspace is in it
	const char *only; // comma list of measurements, or NULL
	bool quick;
	bool no_table, no_scale; // what is not wanted of the two parts
	char picture[4096];      // where that of the scaling goes
	int rounds;
	int wrong; // results that were not what they should be
	struct sandbox box;
	struct target target[TARGETS_MAX];
	int targets;
	struct row row[ROWS];
};

// --- figures ---

// T == NULL: the floor.
void bench_put(struct bench *b, enum row_id id, const struct target *t, double v);
// The median of what was put in the rounds so far; 0 if nothing was.
double bench_median(const struct bench *b, enum row_id id, const struct target *t);
// Says what ROW's floor is on this machine, instead of rows.c's words. TEXT is kept.
void bench_floor_is(struct bench *b, enum row_id id, const char *text);
// Notes a wrong result and prints why.
void bench_wrong(struct bench *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// The name of T, "the floor" if it is NULL.
const char *bench_name(const struct target *t);
// The value below which P percent of V lie; sorts V.
double bench_percentile(double *v, size_t n, int p);
void bench_print(struct bench *b);

// --- measurements: one round each, of T or of the floor ---

void bench_start(struct bench *b, struct target *t);
void bench_idle(struct bench *b, struct target *t); // called for the floor alone: takes all while they idle together
void bench_exec(struct bench *b, struct target *t);
void bench_flight(struct bench *b, struct target *t);
void bench_stream(struct bench *b, struct target *t);
void bench_latency(struct bench *b, struct target *t);
void bench_many(struct bench *b, struct target *t);
void bench_small(struct bench *b, struct target *t);
void bench_crowd(struct bench *b, struct target *t);
void bench_files(struct bench *b, struct target *t);      // surface B
void bench_files_json(struct bench *b, struct target *t); // surface A; no floor
void bench_list(struct bench *b, struct target *t);
void bench_watch(struct bench *b, struct target *t);
void bench_remove(struct bench *b, struct target *t);
void bench_health(struct bench *b, struct target *t); // no floor
void bench_flood(struct bench *b, struct target *t);  // no floor
void bench_end(struct bench *b, struct target *t);    // no floor

// --- targets ---

// Starts celld and the peers: fresh ones for each round. 0, or -1 after saying why.
int bench_targets_start(struct bench *b);
// Ends them; a celld that does not end well is a wrong result.
void bench_targets_stop(struct bench *b);
// A peer from '[NAME=]envd:COMMAND' or '[NAME=]sandboxd:COMMAND'; TEXT is kept and cut up. False if it is neither.
bool bench_add_peer(struct bench *b, char *text);
// Starts T's command on PORT, with its output in FILE. Its pid, or -1.
pid_t bench_spawn_peer(const struct target *t, int port, const char *file);
// Connects C to PORT, however long it takes until something listens there, at most ten seconds. 0, or negative errno; client_close C.
int bench_connect(struct client *c, int port);
bool bench_await(int port); // the same, without keeping the connection

// Sums over T's process tree, but only of processes of the same program: not of the commands that it runs.
double bench_sum(const struct target *t, double (*of)(pid_t pid));
double bench_cpu(const struct target *t);     // seconds so far, user and system
double bench_pss(const struct target *t);     // KiB: shared pages are divided among those who share them
double bench_rss(const struct target *t);     // KiB
double bench_wakeups(const struct target *t); // voluntary context switches so far
// Puts T's processes (NULL: none) and ourselves on one CPU, or on all again. What they start is there, too.
void bench_pin(const struct target *t, bool one);

// --- helpers ---

// A socket that listens on a port of the kernel's choice.
int bench_listen(int *port);
// Such a port for a server that is started next.
int bench_free_port(void);
// The floor program in role ARGV[1], ...; ARGV[0] is filled in. OUT, if it is not -1, becomes its stdout. Its pid.
pid_t bench_spawn_floor(const struct bench *b, const char **argv, int out);
// An accept-read-answer-204 loop on PORT, the plainest server there is. Its pid.
pid_t bench_floor_server(const struct bench *b, int port);
// Copies the floor program to where every user may run it: b->floor is PATH then.
bool bench_place_floor(struct bench *b, char *path, size_t n);
void bench_kill(pid_t pid); // and reaps
void bench_pause_ms(long ms);
int64_t bench_now_ns(void); // CLOCK_MONOTONIC
// A new directory on tmpfs if there is room for the loads, else in /tmp: DIR, or NULL with errno.
const char *bench_room_make(char *dir, size_t n);
void bench_remove_tree(const char *dir);

#endif
