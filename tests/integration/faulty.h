// SPDX-License-Identifier: Apache-2.0
// faulty: a daemon that can be made to fail (tests/faults/plan.h), and a client that takes whatever comes of it and judges: a right
// answer, an error of the right shape, a cut connection, or something that must never be. CELLD_FAULTY is its binary.
#ifndef CELLD_TESTS_INTEGRATION_FAULTY_H
#define CELLD_TESTS_INTEGRATION_FAULTY_H

#include "tests/faults/plan.h"
#include "tests/integration/harness.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

enum verdict { RIGHT, REFUSED, CUT, WRONG };

// What fails, and what may come of it.
struct fault {
	const char *name;
	unsigned kinds;
	int err;
	unsigned every; // 0: the first, the second, ... until none is left to fail
	bool apart;
	unsigned room;
	bool harmless;   // the answer has to be right
	bool cuts;       // the connection may be cut
	int statuses[4]; // of refusals, up to 0
};

struct faulty {
	struct testd *d;
	struct fault_plan *plan;
	const struct fault *coming; // what f_arm arms
	const struct fault *fault;  // what is armed, or NULL
	unsigned at;                // which call fails
	bool armed;                 // it was, in this run
	int fds;                    // descriptors while nothing happens
	struct resp r;              // the last answer
	struct buf out;             // what the last stream has brought on stdout, or of a terminal
	struct buf err;             // on stderr
	unsigned struck;            // calls that failed so far
	char why[600];              // of WRONG
	char path[8][400];          // private: f_path
	unsigned next;
	unsigned failures; // with FAULTS_GO_ON in the environment, for who looks for all of them at once
};

// Starts the daemon; what it needs once is there afterwards.
void f_start(struct faulty *f);
// Stops it: no fault in it, nothing left, no leak.
void f_finish(struct faulty *f);

// One thing that clients do. It arms the fault when all is prepared, and leaves nothing behind if it went right.
struct path {
	const char *name;
	enum verdict (*run)(struct faulty *f);
};
// That without a fault; under each of the COUNT, as often as it takes, adding to STRUCK how many calls each made to fail; and without.
void f_try(struct faulty *f, const struct path *path, const struct fault *faults, size_t count, unsigned *struck);
// With FAULTS_FULL in the environment: every call in turn, as at night; otherwise some of them.
bool f_full(void);

// --- for paths ---

void f_arm(struct faulty *f);
void f_disarm(struct faulty *f);
// WRONG, with the reason.
enum verdict f_wrong(struct faulty *f, const char *format, ...) __attribute__((format(printf, 2, 3)));
// NAME below the workspace, valid for the next seven calls.
const char *f_path(struct faulty *f, const char *name);
void f_put(struct faulty *f, const char *name, const void *p, size_t n);
// RIGHT if the file is these bytes; WRONG if not. NULL: it must not be there.
enum verdict f_file(struct faulty *f, const char *name, const void *p, size_t n);

// How an answer is to look.
enum face {
	FACE_A,       // surface A's JSON
	FACE_SSE,     // a stream of it
	FACE_REST,    // surface B's /files and others
	FACE_RPC,     // a call in JSON
	FACE_PROTO,   // in protobuf
	FACE_STREAM,  // a stream in JSON
	FACE_PSTREAM, // in protobuf
};

struct talk {
	enum face face;
	struct client *c;
	struct buf body;
	int status;
	bool sent, over, cut;
};
// Sends; BODY NULL: none.
struct talk *f_open(struct faulty *f, enum face face, const char *method, const char *target, const char *headers,
	const void *body, size_t n);
// Reads until the body holds TEXT: true; false at the end, or when nothing came in time.
bool f_until(struct talk *t, const char *text);
// Reads to the end, judges and closes; the body is in f->r, output of a stream in f->out and f->err.
enum verdict f_end(struct faulty *f, struct talk *t);
// Hangs up.
void f_leave(struct talk *t);
// All at once.
enum verdict f_ask(struct faulty *f, enum face face, const char *method, const char *target, const char *headers,
	const void *body, size_t n);
// POST with JSON text, or GET if BODY is NULL, and RIGHT only if the answer holds WANT (NULL: anything).
enum verdict f_want(struct faulty *f, enum face face, const char *target, const char *body, const char *want);
// A message of surface B in FACE's codec, sent to METHOD ("process.Process/Start"); TYPE: the request's.
struct talk *f_call_open(
	struct faulty *f, enum face face, const char *method, const ProtobufCMessageDescriptor *type, const char *json);
enum verdict f_call(struct faulty *f, enum face face, const char *method, const ProtobufCMessageDescriptor *type,
	const char *json, const char *want);
// TEMPLATE with VALUE for each '@'.
void f_fill(char *out, size_t n, const char *template, const char *value);
// The number behind "KEY": in TEXT, or -1.
long long f_number(struct buf *text, const char *key);

#endif
