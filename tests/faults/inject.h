// SPDX-License-Identifier: Apache-2.0
// inject: decides for each wrapped call whether it fails now. Async-signal-safe, and says no in a child between clone and exec,
// which shares its parent's memory.
#ifndef CELLD_TESTS_FAULTS_INJECT_H
#define CELLD_TESTS_FAULTS_INJECT_H

#include "tests/faults/plan.h"

#include <stdbool.h>
#include <stddef.h>

// A wrapped function: its name and a number of its own.
struct fault_call {
	const char *name;
	unsigned n;
};

// True, with errno set, if this call, which can fail in the ways KINDS, is to. WHERE: its caller.
bool fault_hits(const struct fault_call *call, unsigned kinds, const void *where);
// Whether a plan for any of KINDS is armed for this process: what a descriptor is need not be looked up otherwise.
bool fault_wants(unsigned kinds);
// How many of N bytes this transfer may move.
size_t fault_room(const struct fault_call *call, unsigned kinds, size_t n, const void *where);
// What FD's transfers can meet: FAULT_INTERRUPT, FAULT_DISK_* if it is a file's, FAULT_SEND if a stream socket's, FAULT_SHORT_* if they may be short.
unsigned fault_of_fd(int fd, bool writing);
// In a new process: it is no child on its way to exec.
void fault_forked(void);
// True in a process of celld's own, not in a child on its way to exec.
bool fault_is_own(void);

// Within a wrapper (FAULT_BASE: the first number of its file's, defined before this): its own struct fault_call, and who called it.
#define FAULT_CALL(text)                                                                     \
	static const struct fault_call call = {.name = text, .n = FAULT_BASE + __COUNTER__}; \
	const void *where = __builtin_return_address(0)

#endif
