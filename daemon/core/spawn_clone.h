// SPDX-License-Identifier: Apache-2.0
// spawn_clone: a process that shares its parent's memory until it runs another program or ends, as after vfork, but on a stack of its own,
// so that the parent is not held meanwhile. It shares errno with its parent too. Part of spawn; must not know what the child does.
#ifndef CELLD_CORE_SPAWN_CLONE_H
#define CELLD_CORE_SPAWN_CLONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// What FN has to do itself because this kernel does not; known before FN runs.
struct spawn_needs {
	volatile bool join;  // go into the control group
	volatile bool reset; // give every signal that has a handler its default
};

// Has it run FN(ARG), which never returns, on the SIZE bytes at STACK (both multiples of 16). GROUP: the directory of the control
// group it is born in, or -1. Its signals have their defaults, but for those that are ignored. *BUSY is 1 as long as it shares the memory,
// then 0, with a FUTEX_WAKE (not a private one). The pid, or negative errno.
pid_t spawn_clone(void *stack, size_t size, void (*fn)(void *arg), void *arg, int group, struct spawn_needs *needs,
	uint32_t *busy);

#endif
