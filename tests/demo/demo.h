// SPDX-License-Identifier: Apache-2.0
// demo: what the demo's steps share: the running sandbox and the lines that are printed. A step says what it expects as a
// text and prints what came in the same form; both being equal is the check.
#ifndef CELLD_TESTS_DEMO_DEMO_H
#define CELLD_TESTS_DEMO_DEMO_H

#include "tests/demo/client.h"
#include "tests/demo/sandbox.h"

struct demo {
	struct sandbox box; // a celld without a gateway
	struct gateway_demo {
		pid_t pid;       // 0 once it is stopped
		int port;        // 0: requests go to the box
		char lines[512]; // headers that lead to its sandbox
		char id[64];
	} gateway;
	const char *celld, *gateway_path;
	int steps;
	int failed;
};

// One line: WHAT was done, what was expected, what came.
void demo_line(struct demo *d, const char *what, const char *want, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));
// An indented remark.
void demo_note(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

// A connection to the sandbox that the steps are for now: through the gateway, or the box. As client_open.
int demo_open(const struct demo *d, struct client *c);

// Starts the gateway with its directory in DIR, and creates a sandbox there. False if the steps cannot go through it.
bool demo_gateway_begin(struct demo *d, const char *dir);
// Kills the sandbox, then the gateway.
void demo_gateway_end(struct demo *d, const char *dir);
void demo_commands(struct demo *d);
void demo_streams(struct demo *d);
void demo_files(struct demo *d);
void demo_survival(struct demo *d);

// What one command's stream gave.
struct run {
	int status; // of HTTP, or the negative errno that ended it
	int pid;
	struct buf out[FRAME_CHANNELS];
	struct event end; // EVENT_EXIT or EVENT_ERROR
	bool ended;
	bool done; // attach's last frame came
};
// Takes what is left of a stream. SHOW prints each frame.
void run_collect(struct client *c, struct run *r, bool show);
// Reads frames until CHANNEL's bytes contain TEXT.
bool run_until(struct client *c, struct run *r, enum frame_channel ch, const char *text);
const char *run_text(struct run *r, enum frame_channel ch);
void run_release(struct run *r);
// Sends N bytes to PID's stdin, on a connection of its own, and closes it if CLOSING. True if all was accepted.
bool run_feed(const struct demo *d, int pid, const void *p, size_t n, bool closing);

#endif
