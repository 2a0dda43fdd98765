// SPDX-License-Identifier: Apache-2.0
// spawnkit: one spawn with its files, and what it came to. Whatever goes wrong fails the running test.
#ifndef CELLD_UNIT_SPAWNKIT_H
#define CELLD_UNIT_SPAWNKIT_H

#include "daemon/core/spawn.h"

#include <sys/types.h>

// A spec in the making, a directory for its files, and what the command wrote.
struct spawnkit {
	struct spawn_base base;
	struct spawn_spec spec;
	const char *argv[8], *env[4];
	char dir[64], path[256];
	enum spawn_step step;
	char path_line[512];
	char out[8192], err[2048];
	int status;
};

void spawnkit_init(struct spawnkit *f);
void spawnkit_release(struct spawnkit *f);
// The path of NAME in its directory, in f->path.
const char *spawnkit_path(struct spawnkit *f, const char *name);
void spawnkit_file(struct spawnkit *f, const char *name, const char *text, mode_t mode);
// Descriptors that this process has open.
size_t spawnkit_fds(void);
// Runs the spec; its output, and its status, are in F. The result is spawn_run's.
int spawnkit_program(struct spawnkit *f, const char *path);
int spawnkit_shell(struct spawnkit *f, const char *script);
// A checked fixture: from then on celld's children can only be forked. Not where tests share a process (CK_FORK=no).
void spawnkit_fork_only(void);

#endif
