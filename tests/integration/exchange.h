// SPDX-License-Identifier: Apache-2.0
// exchange: the golden exchanges of /files, sent again and compared. A field of the test's own may replace what the recording
// left out. Every failure fails the running test.
#ifndef CELLD_TESTS_INTEGRATION_EXCHANGE_H
#define CELLD_TESTS_INTEGRATION_EXCHANGE_H

#include "tests/integration/golden.h"
#include "tests/integration/harness.h"

#include <stdbool.h>
#include <stddef.h>

// Where the answer is meant to be another one than the recorded.
struct deviation {
	const char *label; // "37. path twice"
	int status;        // 0: as recorded
	const char *body;  // whole; NULL: not compared
	bool head;         // its header lines are others
};

// The bytes that a text of the recording stands for, appended.
void exchange_unmark(struct buf *out, const char *text);
// True if it is one of /files whose request can be sent as it was recorded.
bool exchange_is_ours(const struct golden *g);
// Sends the request on a connection of its own; DATE: what "<DATE>" in it means.
void exchange_send(const struct testd *d, const struct golden *g, const char *date, struct resp *r);
// Compares R with the recorded answer or the deviation from it that LIST (COUNT) has.
void exchange_check(const struct golden *g, struct resp *r, const struct deviation *list, size_t count);
// Makes or overwrites a file with N bytes.
void exchange_file(const char *path, const void *p, size_t n);
// Both, for all exchanges of a recording that are ours.
void exchange_all(const struct testd *d, const char *name, const struct deviation *list, size_t count);

#endif
