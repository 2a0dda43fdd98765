// SPDX-License-Identifier: Apache-2.0
// groupkit: directories of a test's own in the kernel's control groups.
#ifndef CELLD_UNIT_GROUPKIT_H
#define CELLD_UNIT_GROUPKIT_H

#include <stdbool.h>
#include <stddef.h>

// A new one below the group of this process, which the test removes; false where there is none to be had.
bool groupkit_base(char *path, size_t n);
// An unchecked fixture's teardown: what tests have left that were killed or have failed, and all that is in it.
void groupkit_sweep(void);

#endif
