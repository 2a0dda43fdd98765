// SPDX-License-Identifier: Apache-2.0
// terminal: the terminal that `celld ctl` itself is in: its size, and its modes, which are put back at the end.
#ifndef CELLD_DAEMON_CTL_TERMINAL_H
#define CELLD_DAEMON_CTL_TERMINAL_H

#include <stdbool.h>
#include <termios.h>

struct terminal {
	int fd;
	bool raw;
	struct termios old;
};

struct terminal_size {
	int rows, cols;
};

// Every key as its byte, nothing echoed. 0 or negative errno (-ENOTTY). FD is borrowed.
int terminal_raw(struct terminal *t, int fd);
// The modes as they were before; again is nothing.
void terminal_restore(struct terminal *t);
// 24 by 80 if it does not know.
struct terminal_size terminal_size(int fd);

#endif
