// SPDX-License-Identifier: Apache-2.0
// soak: what the parts share. One process watches a celld of its own; CLIENTS workers, each with a seed of its own, do random
// actions on both surfaces, check what came, and count into one shared mapping. An action is whole in itself: what it started
// and did not let go of has ended when it returns. Nothing here outlives keeper_run.
#ifndef CELLD_TESTS_SOAK_SOAK_H
#define CELLD_TESTS_SOAK_SOAK_H

#include "tests/demo/client.h"
#include "tests/demo/sandbox.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum surface { A, B };

#define WORKERS_MAX 1000
#define WRONGS_MAX 32
#define STATUS_MAX 600

// What the workers count; in a mapping that they share with the process that started them.
struct tally {
	atomic_bool stop;
	atomic_uint epoch; // odd while a daemon is being killed; each kill is two steps
	atomic_ulong actions, excused, requests, disconnects, slow_readers, malformed;
	atomic_ulong streams, streams_ended, streams_left, streams_cut; // begun; with their end; by the client; excused
	atomic_ulong status[2][STATUS_MAX];
	atomic_ulong no_answer; // of a request that had to be answered
	atomic_ulong bytes;
	atomic_uint wrongs;
	char wrong[WRONGS_MAX][320];
	char doing[WORKERS_MAX][32]; // the action that each worker is in, "" between them
};

struct worker {
	struct tally *t;
	int id;
	uint64_t random; // state
	int port[2];
	const char *dir; // absolute, its own, below the workspace
	unsigned long n; // of the current action, from 1
	const char *action;
	unsigned epoch;     // at the action's start
	char wrong[256];    // the action's first discrepancy, "" if there is none
	struct client c[2]; // kept between actions; fd < 0 if there is none
	bool spent[2];      // the last answer was no success: not to be used again
	unsigned long cuts; // streams of this action that ended badly
};

// --- worker.c ---

// Does actions until t->stop; the exit status.
int worker_run(struct worker *w);
uint32_t pick(struct worker *w, uint32_t n); // 0..N-1
bool chance(struct worker *w, uint32_t percent);
enum surface any(struct worker *w);
// Remembers the action's first discrepancy.
void wrong(struct worker *w, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void pause_us(int64_t us);

// The kept connection to S, opened if there is none; NULL after wrong().
struct client *surface(struct worker *w, enum surface s);
void hang_up(struct worker *w, enum surface s);
// A connection that the caller closes, with the limits of the workers.
bool dial(struct worker *w, enum surface s, struct client *c);
// Counts an answer and hands it on; a connection with an answer that is no success is not used again.
int answered(struct worker *w, enum surface s, int status);
// Requests on the kept connection: the status, or negative errno. The document is the connection's; BODY is consumed.
int get(struct worker *w, enum surface s, const char *target);
int post(struct worker *w, enum surface s, const char *target, json_t *body);
const json_t *answer(struct worker *w, enum surface s, const char *key);
// A request with bytes and headers (whole lines) of one's own on the kept connection.
int send_raw(struct worker *w, enum surface s, const char *method, const char *target, const char *headers,
	const void *body, size_t n);
// wrong() unless STATUS is one of the allowed (0 ends them). True if it was.
#define want(w, what, status, ...) want_one_of(w, what, status, (const int[]){__VA_ARGS__, 0})
bool want_one_of(struct worker *w, const char *what, int status, const int *allowed);
// JSON text of DOC, which is consumed, appended to OUT.
void put_json(struct buf *out, json_t *doc);

// --- stream.c: a command's or terminal's stream on either surface ---

struct command {
	const char *text; // for /bin/sh -c
	int timeout_ms;   // 0: none of ours
	bool input;       // its stdin is a pipe
	bool terminal;
};

struct stream {
	enum surface s;
	struct client c;
	struct frame_reader frames;
	bool terminal, bare; // bare: surface A's /pty/stream
	int pid;             // in the sandbox, 0 until told
	int terminal_id;     // of surface A
	uint64_t bytes;      // of output
	const char *pattern; // the output repeats this; NULL: anything
	char text[512];      // the output's beginning
	bool exited, ended;  // the end event; the frame after which nothing may come
	int code;
	char error[64]; // of an end that is an error: its code
};

// Starts CMD and reads up to its pid. False after wrong(); ST is then released.
bool stream_start(struct worker *w, struct stream *st, enum surface s, const struct command *cmd);
// Joins the process PID. The HTTP status, or 404 for an end frame of that kind; else negative errno. Anything but 200 releases ST.
int stream_attach(struct worker *w, struct stream *st, enum surface s, int pid);
// One event: 1, 0 at the body's proper end, negative errno.
int stream_step(struct worker *w, struct stream *st);
// Reads until the output so far contains TEXT, which has to be within its first bytes.
bool stream_until(struct worker *w, struct stream *st, const char *text);
// Reads to the end, slowly at first if SLOW, and checks that it was a proper one. True if so; ST is released but for the values.
bool stream_finish(struct worker *w, struct stream *st, bool slow);
// Hangs up in the middle.
void stream_leave(struct worker *w, struct stream *st);

// What goes to a process of the table, through surface S. The status.
int feed(struct worker *w, enum surface s, const struct stream *st, const void *p, size_t n);
int close_input(struct worker *w, enum surface s, int pid);
int send_signal(struct worker *w, enum surface s, int pid, bool kill);

// --- the actions ---

struct action {
	const char *name;
	void (*run)(struct worker *w);
	unsigned weight;
};
extern const struct action actions_process[], actions_files[], actions_watch[],
	actions_rest[]; // each ends with a NULL name

// --- check.c: what the sandbox holds ---

struct holding {
	bool sanitized; // memory is only told
	bool killed;    // temporary files are only told: a kill may leave them (README)
	long fds, init_fds, rss, init_rss, zombies, processes, watches, temps;
	long spare; // KiB of memory that the daemon may keep besides
};
void holding_take(struct holding *h, const struct sandbox *box, const char *workspace);
// Waits until the sandbox holds no more than BASE (NULL: until it is quiet); false at the deadline. H is the last look.
bool holding_await(
	struct holding *h, const struct holding *base, const struct sandbox *box, const char *workspace, int limit_s);
// How many pids that are in the sandbox, itself included; the first MAX go to PIDS.
int holding_processes(pid_t top, pid_t *pids, int max, long *zombies);
// Prints baseline beside after; how many rows are off.
int holding_print(const struct holding *base, const struct holding *after);

// --- load.c ---

int load_work(const char *dir, void *celld);

#endif
