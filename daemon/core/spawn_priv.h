// SPDX-License-Identifier: Apache-2.0
// What the two halves of spawn share.
#ifndef CELLD_CORE_SPAWN_PRIV_H
#define CELLD_CORE_SPAWN_PRIV_H

#include "daemon/core/spawn.h"
#include "daemon/core/spawn_clone.h"
#include "daemon/limits.h"

#include <limits.h>
#include <stdint.h>

// Below it lies all that a child needs which has had no copies of its parent's descriptors.
#define SPAWN_LOW 64u

// What the child half needs, all of it prepared; and where it reports, in memory that both have.
struct child {
	const struct spawn_base *base;
	const struct spawn_spec *spec;
	const char *dirs; // PATH of the child; NULL: the program is a path itself
	char **sh;        // like_shell: argv for /bin/sh, its second one still to be set
	uint32_t busy;    // until the child no more needs this memory: it has run the program, or ended
	int fd[3];        // the spec's, or copies of them
	bool switch_user;
	struct limits limits;
	struct spawn_needs needs;
	uint64_t ignored; // signals that celld ignores, bit 0 is the first
	volatile enum spawn_step step;
	volatile int err;
	char path[PATH_MAX]; // for one candidate
};

// ARG is the struct child. Only async-signal-safe calls, and nothing of the parent's memory is changed but struct child and errno, which is
// one for both: until the child is gone the parent makes only calls whose errno it need not know.
_Noreturn void spawn_child(void *arg);

#endif
