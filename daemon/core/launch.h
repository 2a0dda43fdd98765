// SPDX-License-Identifier: Apache-2.0
// launch: what every surface needs to start a command: the environment's defaults, and what the client asked for, kept word for word
// with the process for lists and selectors. Must not know how a surface says it.
#ifndef CELLD_CORE_LAUNCH_H
#define CELLD_CORE_LAUNCH_H

#include "daemon/core/env.h"
#include "daemon/core/users.h"

#include <stddef.h>

// The PATH of commands where nothing else gives one.
#define LAUNCH_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// What a client asked for. NULL where it said nothing; the lists are never NULL and end with NULL.
struct asked {
	const char *const *argv; // the program first
	const char *const *env;  // "NAME=VALUE", what the request alone sets
	const char *cwd;
	const char *tag;
};

// A copy in one piece of memory (free); *SIZE (may be NULL) says how large. NULL when out of memory.
struct asked *asked_dup(const struct asked *a, size_t *size);
// The words of ARGV with a blank between, the caller's. NULL when out of memory.
char *launch_line(const char *const *argv);
// HOME, USER and LOGNAME.
void launch_env_user(struct env *env, const struct user *u);

#endif
