// SPDX-License-Identifier: Apache-2.0
// env: an environment in the making: names set later win. A value; the owner releases it. Out of memory sticks and is asked once.
#ifndef CELLD_CORE_ENV_H
#define CELLD_CORE_ENV_H

#include <stddef.h>

struct env {
	char **list; // "NAME=VALUE", NULL-terminated once env_list was called
	size_t count;
	size_t cap;
	int fail;
};

void env_init(struct env *e);
void env_release(struct env *e);
// Sets NAME (N bytes) to VALUE (VN bytes), replacing an earlier value. -EINVAL for an empty name, one with '=', or a NUL anywhere
// (nothing is set then), -E2BIG beyond 1024 names, -ENOMEM, else 0.
int env_set(struct env *e, const char *name, size_t n, const char *value, size_t vn);
// For names and values that are known to be good.
void env_put(struct env *e, const char *name, const char *value);
// The finished list, borrowed; NULL when memory ran out in between.
const char *const *env_list(struct env *e);

#endif
