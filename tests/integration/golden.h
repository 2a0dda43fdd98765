// SPDX-License-Identifier: Apache-2.0
// golden: what envd 0.6.13 put on the wire, exchange by exchange, from tests/golden/envd/NAME.http (its README has the format).
// The reader belongs to the test; every failure fails the running test.
#ifndef CELLD_TESTS_INTEGRATION_GOLDEN_H
#define CELLD_TESTS_INTEGRATION_GOLDEN_H

#include "tests/integration/client.h"

#include <stdbool.h>

struct golden {
	char *text, *at; // private
	// The current exchange, pieces of the text; NULL if it has none.
	const char *label;
	char *method, *target;
	char *head; // the request's header lines, each ended by '\n'
	char *body;
	int status;
	char *answer_head;
	char *answer; // without the marks of chunked bodies
};

void golden_open(struct golden *g, const char *name);
bool golden_next(struct golden *g);
void golden_close(struct golden *g);
// The value of a header in a HEAD as above, appended to OUT; false if it has none.
bool golden_header(const char *head, const char *name, struct buf *out);
// Fails unless R has the exchange's header lines in their order; dates and how the length is told may differ.
void golden_assert_head(const struct golden *g, const struct resp *r);

#endif
