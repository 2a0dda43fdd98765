// SPDX-License-Identifier: Apache-2.0
// spawn_clone: a process that shares its parent's memory until it runs another program or ends, as after vfork, but on a stack of its own,
// so that the parent is not held meanwhile. It shares errno with its parent too. Where kernel, container or emulator refuse that, a forked one,
// which shares only what is mapped as shared. Part of spawn; must not know what the child does.
#ifndef CELLD_CORE_SPAWN_CLONE_H
#define CELLD_CORE_SPAWN_CLONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// How a child is made: each is for where the one before it is refused.
enum spawn_way { SPAWN_CLONE3, SPAWN_CLONE, SPAWN_FORK };

// All zero before the first child, then kept for the next.
struct spawn_needs {
	enum spawn_way way; // that worked, and is the first to be tried from then on
	int gate; // of a forked child: a pipe that ends when it no more needs the memory, *BUSY tells nothing; to be closed; or -1
	// What FN has to do itself because this kernel does not; known before FN runs.
	volatile bool join;  // go into the control group
	volatile bool reset; // give every signal that has a handler its default
	volatile bool part;  // take descriptors of its own: it has its parent's, which it must not change
};

// Has it run FN(ARG), which never returns, on the SIZE bytes at STACK (both multiples of 16; not if it is forked). GROUP: the directory of the
// control group it is born in, or -1. SHARE: if it can be, its descriptors are its parent's, which saves copies. Its signals have their
// defaults, but for those that are ignored. *BUSY is 1 as long as it shares the memory, then 0, with a FUTEX_WAKE (not a private one).
// The pid, or negative errno.
pid_t spawn_clone(void *stack, size_t size, void (*fn)(void *arg), void *arg, int group, bool share,
	struct spawn_needs *needs, uint32_t *busy);

#endif
