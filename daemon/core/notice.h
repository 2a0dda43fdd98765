// SPDX-License-Identifier: Apache-2.0
// notice: two files that are asked for with each request, and are looked at only if something has happened to them: inotify tells, on a
// descriptor of its own that the loop reads before all others. What it cannot see (a mount over them, another machine's writes) is seen
// within NOTICE_MAX_S. Embedded in its owner, who looks at the files himself. Without inotify nothing is ever quiet.
#ifndef CELLD_CORE_NOTICE_H
#define CELLD_CORE_NOTICE_H

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

#define NOTICE_MAX_S 1.0
#define NOTICE_FILES 2

struct notice {
	struct ev_loop *loop; // NULL: not in use
	const char *path[NOTICE_FILES];
	ev_io io;
	bool armed;    // nothing has happened since the watches were set
	double since;  // loop time of the last look
	unsigned asks; // not worth watches yet
};

// PATHS (borrowed) are absolute.
void notice_init(struct notice *n, struct ev_loop *loop, const char *a, const char *b);
// A zeroed one is allowed. Before the loop goes.
void notice_release(struct notice *n);
// True if the files are as they were at the last look (notice_look).
bool notice_quiet(const struct notice *n);
// The owner is about to look at both: from here on it is noticed what happens.
void notice_look(struct notice *n);
// The last look was not one that can be relied on.
void notice_doubt(struct notice *n);

#endif
