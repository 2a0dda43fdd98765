// SPDX-License-Identifier: Apache-2.0
// limits: a set of resource limits (setrlimit) by name, as options and requests give them. A value: nothing to free.
// Must not know where the text came from.
#ifndef CELLD_DAEMON_LIMITS_H
#define CELLD_DAEMON_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#define LIMITS_COUNT 16 // RLIM_NLIMITS of Linux

// Which resources are set (bit RLIMIT_*), and to what: soft and hard limit.
struct limits {
	unsigned set;
	struct rlimit value[LIMITS_COUNT];
};

// "nofile", "nproc", "fsize", "as", "cpu", "core", ... (prlimit's names): RLIMIT_*, or -EINVAL.
int limits_find(const char *name, size_t n);
// NULL for a number that is none.
const char *limits_name(int resource);
// Sets RESOURCE. -EINVAL if SOFT exceeds HARD or RESOURCE is none. RLIM_INFINITY is unlimited.
int limits_put(struct limits *l, int resource, uint64_t soft, uint64_t hard);
// "NAME=SOFT[:HARD]", where each is a number (K, M, G may follow) or "unlimited"; one number is both. 0 or -EINVAL.
int limits_parse(struct limits *l, const char *text);
// What TOP sets wins over what L has.
void limits_over(struct limits *l, const struct limits *top);

#endif
