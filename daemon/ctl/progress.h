// SPDX-License-Identifier: Apache-2.0
// progress: how far a copy is, on one line of stderr, if that is a terminal and nobody said to be quiet. A value.
#ifndef CELLD_DAEMON_CTL_PROGRESS_H
#define CELLD_DAEMON_CTL_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool on;
	const char *name;
	int64_t total; // bytes; -1: not known
	int64_t done;
	int64_t begun, shown; // io_mono_ns
};

void progress_begin(struct progress *p, const char *name, int64_t total, bool quiet);
// DONE bytes so far.
void progress_at(struct progress *p, int64_t done);
// Leaves the line as it is at the end.
void progress_end(struct progress *p);

#endif
