// SPDX-License-Identifier: Apache-2.0
// wire: the calls that measurements make, spoken to either surface, so that a measurement is written once: surface A is JSON and
// server-sent events, surface B Connect's JSON, plain or in envelopes. A wire is one connection, used for one call at a time.
// Functions that return int give 0 or more if the answer was right, else a negative errno (-EPROTO: a wrong answer; wire_text has it).
#ifndef CELLD_TESTS_BENCH_WIRE_H
#define CELLD_TESTS_BENCH_WIRE_H

#include "proto/envelope.h"
#include "tests/bench/bench.h"

struct wire {
	struct client c;
	enum surface surface;
	const char *auth;            // header lines
	int64_t at_ns;               // when the last bytes of an answer were read
	size_t length;               // private: of the answer that is taken
	struct buf body;             // private: a stream's body, not decoded yet
	struct envelope_reader envs; // private
	struct frame_reader frames;  // private
	bool over;                   // private: the body is complete
};

// May be followed by wire_close whatever it returned.
int wire_open(struct wire *w, const struct target *t);
void wire_close(struct wire *w);
// The last answer's body, or what there is of it.
const char *wire_text(struct wire *w);

// One request with T's headers; JSON may be NULL. Of surface B's streams the body goes into an envelope.
void wire_put_get(struct buf *out, const char *target);
void wire_put_post(struct buf *out, enum surface s, const char *target, const char *json);
void wire_put_post_stream(struct buf *out, enum surface s, const char *target, const char *json);

void wire_put_stat(struct buf *out, enum surface s, const char *path);
void wire_put_command(struct buf *out, enum surface s, const char *auth, bool stream, const char *command);

// --- unary ---

// The quick way: a request made before, and its answer as it comes. The HTTP status or negative errno; wire_text has all of it.
int wire_ask(struct wire *w, const struct buf *request);
int wire_send(struct wire *w, const struct buf *request);
int wire_take(struct wire *w);
int wire_take_some(struct wire *w);      // what is there now: 0 while the answer is not complete
bool wire_is_stat(const struct wire *w); // that was the answer to a stat

// GET TARGET or POST JSON to it: the HTTP status, or negative errno; w->c.doc has the JSON.
int wire_get(struct wire *w, const char *target);
int wire_post(struct wire *w, const char *target, const char *json);
int wire_health(struct wire *w);
// The file or directory must be there.
int wire_stat(struct wire *w, const char *path);
// Entries directly in the directory: their number.
int64_t wire_list(struct wire *w, const char *dir);
int wire_remove(struct wire *w, const char *path);
int wire_signal(struct wire *w, int pid, const char *name); // "SIGKILL" or "SIGTERM"

// --- commands: /bin/sh -c COMMAND ---

int wire_exec_send(struct wire *w, const char *command);
int wire_exec_answer(struct wire *w);           // its exit code, or negative errno (also for a signal)
int wire_exec_code(struct wire *w, int status); // the same of an answer that was taken
int wire_exec(struct wire *w, const char *command);

enum wire_kind { WIRE_STARTED, WIRE_DATA, WIRE_ENDED };
struct wire_event {
	enum wire_kind kind;
	int pid;         // WIRE_STARTED
	struct buf data; // WIRE_DATA, decoded
	int code;        // WIRE_ENDED: exit code, -1 for a signal
};

// Ends with the answer's head.
int wire_stream_send(struct wire *w, const char *command);
int wire_stream_head(struct wire *w);
int wire_stream_open(struct wire *w, const char *command);
// The next event: 1, 0 at the stream's proper end (once, after WIRE_ENDED), or negative errno. E is zeroed before the first call.
int wire_event(struct wire *w, struct wire_event *e);
void wire_event_release(struct wire_event *e);

// --- raw bodies ---

// Gives the pieces of the answer's body, whose head was read, to TAKE until its end: 0 or negative errno.
int wire_drain(struct wire *w, void (*take)(void *arg, const char *p, size_t n), void *arg);

#endif
