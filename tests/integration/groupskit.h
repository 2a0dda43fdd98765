// SPDX-License-Identifier: Apache-2.0
// groupskit: a directory in the kernel's own hierarchy (version 2) below the group of the test, for daemons to make their groups in. Everything fails the
// running test by itself.
#ifndef CELLD_TESTS_INTEGRATION_GROUPSKIT_H
#define CELLD_TESTS_INTEGRATION_GROUPSKIT_H

#include "tests/integration/harness.h"

extern char cg_base[512]; // "": there is no such hierarchy that we could write
extern bool cg_memory, cg_cpu, cg_pids;

// Checked fixtures. What earlier tests left that were killed goes too.
void cg_set_up(void);
void cg_tear_down(void);
// True, and said, if there is none: then there is nothing to look at.
bool cg_none(void);
// d_finish; everything is gone from the directory then.
void cg_finish(struct testd *d);

// A file of the group DIR: whether it took TEXT; its text, valid until the next call ("": it cannot be read).
bool cg_write(const char *dir, const char *name, const char *text);
const char *cg_read(const char *dir, const char *name);
// Groups below DIR, and below NAME in the directory (-1: it is not there).
int cg_count_below(const char *dir);
int cg_count(const char *name);

// The number of a command's group, by what it says of itself (TEXT: its /proc/self/cgroup), of one that is run for that, of one by its pid in answers;
// 0: it is in none of ours.
int cg_number_in(const char *text);
int cg_run_number(const struct testd *d);
int cg_pid_number(const struct testd *d, int64_t pid);
// Until COUNT processes have TEXT in their command lines.
void cg_assert_count(const struct testd *d, const char *text, int count);

#endif
