// SPDX-License-Identifier: Apache-2.0
// uploadkit: what the tests of surface B's uploads share. Everything fails the running test by itself.
#ifndef CELLD_TESTS_INTEGRATION_UPLOADKIT_H
#define CELLD_TESTS_INTEGRATION_UPLOADKIT_H

#include "tests/integration/exchange.h"
#include "tests/integration/fskit.h"

#include <stddef.h>
#include <stdint.h>

#define MIB ((size_t)1 << 20)
#define RAW "Content-Type: application/octet-stream\r\n"
#define FORM "Content-Type: multipart/form-data; boundary=b0undary\r\n"
#define MESSAGE(code, text) "{\"code\":" #code ",\"message\":\"" text "\"}\n"

// A daemon with surface B, for the user of fs_home.
struct testd *up_start(void);
struct client *up_connect(const struct testd *d);
// POST /files?QUERY with those header lines on a connection of its own: the status.
int up_post(const struct testd *d, const char *query, const char *headers, const void *body, size_t n, struct resp *r);
void up_content(const char *path, const void *want, size_t n);
// How many names DIR has.
int up_entries(const char *dir);
// N times C; the caller's.
char *up_filled(char c, size_t n);

// Asks for health now and then; the longest answer in milliseconds.
struct up_pulse {
	const struct testd *d;
	int64_t next, slowest;
};
void up_beat(struct up_pulse *p);

#endif
