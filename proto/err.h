// SPDX-License-Identifier: Apache-2.0
// err: what a handler answers when something failed: a code word, an errno, an HTTP status, a message.
// Holds the one table errno <-> code word <-> HTTP status <-> Connect code. A value: nothing to free.
// Core functions return negative errno; only handlers and parsers fill a struct err.
#ifndef CELLD_PROTO_ERR_H
#define CELLD_PROTO_ERR_H

#include <stdbool.h>
#include <stddef.h>

// The Connect codes (connectrpc.com, "Error codes"), which surface A uses as its stable words too.
enum err_code {
	ERR_NONE = 0,
	ERR_CANCELED,
	ERR_UNKNOWN,
	ERR_INVALID_ARGUMENT,
	ERR_DEADLINE_EXCEEDED,
	ERR_NOT_FOUND,
	ERR_ALREADY_EXISTS,
	ERR_PERMISSION_DENIED,
	ERR_RESOURCE_EXHAUSTED,
	ERR_FAILED_PRECONDITION,
	ERR_ABORTED,
	ERR_OUT_OF_RANGE,
	ERR_UNIMPLEMENTED,
	ERR_INTERNAL,
	ERR_UNAVAILABLE,
	ERR_DATA_LOSS,
	ERR_UNAUTHENTICATED,
	ERR_CODES // how many
};

struct err {
	enum err_code code;
	int sys;            // positive errno of the failed system call, 0 if there was none
	int status;         // HTTP status
	bool retryable;     // the same request may succeed later
	const char *reason; // static word for clients that branch on it ("sandbox_terminating"), or NULL
	char msg[256];      // valid UTF-8, cut at a character if too long
};

// Fills E; the status and retryable come from the code. Messages longer than msg are cut. Returns -1.
int err_set(struct err *e, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// The same with an HTTP status that the code alone does not give (405, 408, 413, 417, 431, 501, 505, ...).
int err_http(struct err *e, int status, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
// Fills E from a system call's failure: RC is the negative errno (-4095..-1) it gave; code, status and
// retryable come from the errno table (contract A section 2). The message is "WHAT: strerror".
int err_sys(struct err *e, int rc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

// "not_found" for ERR_NOT_FOUND; "unknown" for a value outside the enum.
const char *err_word(enum err_code code);
// The code of a word of N bytes; ERR_NONE if there is none.
enum err_code err_from_word(const char *word, size_t n);
// The code and HTTP status of a positive errno; errnos not in the table are ERR_INTERNAL and 500.
enum err_code err_errno_code(int sys);
int err_errno_status(int sys);
// "ENOENT" for ENOENT; "E<number>" is never made up: NULL for a number without a name.
const char *err_errno_name(int sys);
// The reason phrase of an HTTP status ("Not Found"); "Unknown" for one that is not known.
const char *err_phrase(int status);

#endif
