// SPDX-License-Identifier: Apache-2.0
// workkit: what celld keeps in the workspace, for the tests of background runs, events and the reset.
#ifndef CELLD_TESTS_INTEGRATION_WORKKIT_H
#define CELLD_TESTS_INTEGRATION_WORKKIT_H

#include "tests/integration/harness.h"

// NAME below the workspace; the same for a run's file. Valid for the next three calls.
const char *wk_path(const struct testd *d, const char *name);
const char *wk_run_path(const struct testd *d, const char *id, const char *name);
// A file's first bytes as text, valid until the next call; fails the test if it cannot be read.
const char *wk_content(const char *path);
void wk_put(const char *path, const char *text);

// POST /exec/background, wants it started.
void wk_submit(const struct testd *d, const char *id, const char *command);
// GET /exec/background/ID: the answer's object, borrowed from R.
json_t *wk_run(const struct testd *d, const char *id, struct resp *r);
// The same once the run is over.
json_t *wk_await(const struct testd *d, const char *id, struct resp *r);
void wk_assert_over(const struct testd *d, const char *id, const char *status, int code);

// GET /events QUERY ("?limit=1" or ""): the array, which the caller releases.
json_t *wk_events(const struct testd *d, const char *query);
// The names of the events, one after the other with a blank behind each.
const char *wk_event_names(const struct testd *d);
void wk_await_events(const struct testd *d, const char *want);

// POST /workspace/reset, wants 200: the answer's object, borrowed from R.
json_t *wk_reset(const struct testd *d, struct resp *r);
// What `ls -A` says but for the journal of events.
const char *wk_left(const struct testd *d);

#endif
