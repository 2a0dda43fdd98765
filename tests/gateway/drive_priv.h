// SPDX-License-Identifier: Apache-2.0
// drive_priv: what drive.c (the chain, ready, session, metrics) and drive_reset.c share. A chain is a table of steps, each one call to the daemon; a step
// has STEP_S seconds, its repetitions included, and the first one that fails ends the chain.
#ifndef CELLD_GATEWAY_DRIVE_PRIV_H
#define CELLD_GATEWAY_DRIVE_PRIV_H

#include "proto/buf.h"
#include "tests/gateway/call.h"
#include "tests/gateway/drive.h"

#include <stdint.h>

enum step_result {
	STEP_NEXT,
	STEP_AGAIN, // the same once more in a little while
	STEP_MORE,  // the same once more at once
};

struct step {
	const char *what; // for messages
	unsigned port;
	const char *method, *target;
	// Before each call: appends the request's body (nothing: none). STEP_NEXT: not called at all; STEP_MORE: call; negative errno: failed.
	int (*prepare)(struct drive *d, struct buf *body);
	// What the answer, which was a 2xx with a JSON object in DOC (NULL: an empty body), means: a step_result or negative errno (drive_because says why).
	// NULL: any 2xx will do.
	int (*check)(struct drive *d, const json_t *doc);
	enum {
		STRICT,
		PATIENT,
		LENIENT
	} mood; // what is no 2xx: an error; STEP_AGAIN; no matter: STEP_MORE, as a 2xx is then
};

struct drive {
	struct ev_loop *loop;
	struct box *box;
	const struct step *steps;
	size_t count, at;
	bool begun; // the step has been tried before
	struct call *call;
	ev_timer timer; // until the step is tried again, or fails
	int64_t until;  // for the step at work
	int rc;
	char why[256]; // of the last thing that was not right
	bool ending;   // the owner is being told

	drive_done *done;
	void (*metrics)(void *arg, const json_t *doc);
	void *arg;

	char *extra;  // header lines with the token, or NULL
	json_t *init; // the body of /init
	json_t *list; // processes to be signalled
	size_t list_at;
	json_t *doc; // metrics
};

// A drive with nothing said but these. NULL when out of memory.
struct drive *drive_new(struct ev_loop *loop, struct box *b, const struct step *steps, size_t count, void *arg);
// Begins the first step. Returns D.
struct drive *drive_begin(struct drive *d);
void drive_free(struct drive *d);
// Notes why. Returns RC.
int drive_because(struct drive *d, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// --- pieces of steps ---
// The body of /init for a session's TOKEN and ENV, either may be NULL. NULL when out of memory.
json_t *drive_init_body(const struct box *b, const char *token, const json_t *env);
int drive_put_init(struct drive *d, struct buf *body);
// The body of an exec that prints what commands find around them that no file is: limits, priorities, what is mounted.
int drive_put_surroundings(struct drive *d, struct buf *body);
// The body of an exec of COMMAND at the root. It has BOX_WORK, and BOX_TEMP0 and on for where else files may be left.
int drive_put_exec(struct drive *d, struct buf *body, const char *command);
// Once: the removal of the journal of what was done over surface A, which no session is to find in its home.
int drive_put_journal(struct drive *d, struct buf *body);
// What an exec printed, if it ended with 0; else NULL, noted.
const char *drive_printed(struct drive *d, const json_t *doc);
// True where the box has namespaces of its own.
bool drive_isolated(const struct drive *d);

#endif
