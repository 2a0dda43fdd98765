// SPDX-License-Identifier: Apache-2.0
// asidekit: removals that go on in a child process, for tests that look at the child.
#ifndef CELLD_UNIT_ASIDEKIT_H
#define CELLD_UNIT_ASIDEKIT_H

#include "daemon/core/walk.h"

#include <stdbool.h>

int ak_cpus(void); // that may be used
// Whether there are to be children here: a second CPU that may be used, and a kernel that makes them.
bool ak_able(void);
struct walk_remove *ak_removal_of(const char *path, unsigned flags);
// Until it has a child (its descriptor), or (-1) is through here.
int ak_step_aside(struct walk_remove *r);
// The child by its descriptor: a signal to it; its end, which must come.
void ak_send_to(int fd, int sig);
void ak_await_end(int fd);
void ak_assert_childless(void);

#endif
