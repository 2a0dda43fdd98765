// SPDX-License-Identifier: Apache-2.0
// groupfake: a directory of plain files that stands for one of control groups, where everything that is written can be looked at.
#ifndef CELLD_UNIT_GROUPFAKE_H
#define CELLD_UNIT_GROUPFAKE_H

#include "daemon/core/cgroup_priv.h"

#include <check.h>

extern char gk_base[64];

// Checked fixtures: with all controllers, and an empty "commands".
void gk_set_up(void);
void gk_tear_down(void);
// Files and directories below it; the text up to the first newline (nothing truncates a plain file), valid until the next call.
void gk_put(const char *name, const char *text);
const char *gk_get(const char *name);
void gk_make_dir(const char *name);
void gk_take_away(const char *name);
#define GK_IS(name, text) ck_assert_str_eq(gk_get(name), text)

// The files of a group that nothing is in.
void gk_make_group(unsigned number);
struct cgroups *gk_opened(void);
// NUMBER is known to G (a struct cgroups), as if G had made it and nothing was in it any more; and all that gk_make_group made.
void gk_know(void *g, uint32_t number);
struct cgroups *gk_opened_with_groups(void);
struct cgroup *gk_taken(struct cgroups *g, const struct cgroup_bounds *b);

#endif
