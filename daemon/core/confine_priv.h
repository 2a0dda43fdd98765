// SPDX-License-Identifier: Apache-2.0
// What the parts of confine share.
#ifndef CELLD_CORE_CONFINE_PRIV_H
#define CELLD_CORE_CONFINE_PRIV_H

#include "daemon/core/confine.h"

#include <linux/filter.h>

#define CONFINE_CAPS 64

// Texts of its own, NULL-terminated.
struct confine_list {
	const char **at;
	size_t count;
};

struct confine {
	struct confine_state state;
	struct confine_list denied, writable, readable, missing;
	uint64_t keep; // of the capabilities
	uint64_t drop; // what of the bounding set goes; nothing where that is not allowed
	int ruleset;   // Landlock's, or -1
	struct sock_fprog filter;
};

// Adds a text. 0 or -ENOMEM.
__attribute__((format(printf, 2, 3))) int confine_add(struct confine_list *l, const char *format, ...);
// Says WHY; returns RC.
__attribute__((format(printf, 4, 5))) int confine_why(char *why, size_t n, int rc, const char *format, ...);

// Each prepares its part: 0, or negative errno with WHY. What the kernel lacks becomes an entry of missing.
int confine_caps_init(struct confine *c, const struct confine_spec *spec, char *why, size_t n);
int confine_landlock_init(struct confine *c, const struct confine_spec *spec, char *why, size_t n);
int confine_seccomp_init(struct confine *c, const struct confine_spec *spec, char *why, size_t n);

// In the child. 0 or negative errno.
int confine_caps_trim(const struct confine *c);

#endif
