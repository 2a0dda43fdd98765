// SPDX-License-Identifier: Apache-2.0
// spawn_clone: a process that shares its parent's memory until it runs another program or ends, as after vfork, but on a stack of its own,
// so that the parent is not held meanwhile. It shares errno with its parent too. Part of spawn; must not know what the child does.
#ifndef CELLD_CORE_SPAWN_CLONE_H
#define CELLD_CORE_SPAWN_CLONE_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

// Has it run FN(ARG), which never returns, on the SIZE bytes at STACK (both multiples of 16). GROUP: the directory of the control
// group it is born in, or -1; *JOIN becomes true, before FN runs, if this kernel cannot do that and FN has to go there itself. The
// pid, with *PIDFD (close-on-exec); or negative errno.
pid_t spawn_clone(
	void *stack, size_t size, void (*fn)(void *arg), void *arg, int group, volatile bool *join, int *pidfd);

#endif
