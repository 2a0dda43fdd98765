// SPDX-License-Identifier: Apache-2.0
// watching: what the tests of watches share. The daemon and the test see the same files. Everything fails the running test by itself.
#ifndef CELLD_TESTS_INTEGRATION_WATCHING_H
#define CELLD_TESTS_INTEGRATION_WATCHING_H

#include "tests/integration/harness.h"

// Event types of contract A section 8.
enum { CREATED = 1, WRITTEN, REMOVED, RENAMED, CHMODDED };

// POST /watch/create for a path below the workspace: its id.
int64_t w_create(const struct testd *d, const char *path, bool recursive);
void w_remove(const struct testd *d, int64_t id);

// What polls have brought: each event as a line "TYPE NAME", NAME below the workspace.
struct w_events {
	struct buf text;
	size_t count;
	bool overflow;
	bool ended;
};
void w_release(struct w_events *w);
// One GET /watch/events, appended.
void w_poll(const struct testd *d, int64_t id, struct w_events *w);
bool w_has(struct w_events *w, int type, const char *name);
// Polls until that event has come, in this or an earlier poll.
void w_await(const struct testd *d, int64_t id, struct w_events *w, int type, const char *name);

// Files and directories below the workspace.
void w_file(const struct testd *d, const char *name);
void w_dir(const struct testd *d, const char *name);
// A shell's line of the test's own, in the workspace; must succeed.
void w_shell(const struct testd *d, const char *line);

// How many inodes the daemon's inotify descriptors watch.
int w_watched(const struct testd *d);
// Waits until it is that.
void w_settled(const struct testd *d, int watched);

#endif
