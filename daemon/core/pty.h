// SPDX-License-Identifier: Apache-2.0
// pty: pairs of pseudo-terminals: open one, its size, its foreground group. Works on descriptors that the caller owns; holds nothing.
// Who runs in a terminal and how its session ends is proc's.
#ifndef CELLD_CORE_PTY_H
#define CELLD_CORE_PTY_H

#include <sys/types.h>

struct pty_size {
	unsigned short rows, cols;
};

// Opens a pair of that size: *MASTER does not block, *SLAVE does and belongs to OWNER as far as celld may give it away; both are
// close-on-exec, neither becomes celld's controlling terminal. 0 or negative errno (both are -1 then): -ENODEV where there is no
// devpts, -ENOSPC when the kernel has no terminal left.
int pty_open(int *master, int *slave, const struct pty_size *size, uid_t owner);
// One more descriptor of MASTER's slave, also after a vhangup: *SLAVE is closed first. 0 or negative errno (*SLAVE is -1 then).
int pty_reopen(int master, int *slave);
// The kernel sends SIGWINCH to the foreground group if that is a change. 0 or negative errno.
int pty_resize(int master, const struct pty_size *size);
// The foreground group of the slave's session, -1 if there is none. 0 or negative errno.
int pty_foreground(int master, pid_t *pgrp);

#endif
