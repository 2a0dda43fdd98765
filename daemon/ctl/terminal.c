// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/terminal.h"
#include "daemon/io.h"

#include <errno.h>
#include <sys/ioctl.h>

int terminal_raw(struct terminal *t, int fd)
{
	struct termios raw;
	if (IO_AGAIN(tcgetattr(fd, &t->old)) < 0)
		return -errno;
	t->fd = fd;
	raw = t->old;
	cfmakeraw(&raw);
	if (IO_AGAIN(tcsetattr(fd, TCSADRAIN, &raw)) < 0)
		return -errno;
	t->raw = true;
	return 0;
}

void terminal_restore(struct terminal *t)
{
	if (t->raw)
		(void)IO_AGAIN(tcsetattr(t->fd, TCSADRAIN, &t->old));
	t->raw = false;
}

struct terminal_size terminal_size(int fd)
{
	struct winsize w;
	if (ioctl(fd, TIOCGWINSZ, &w) < 0 || !w.ws_row || !w.ws_col)
		return (struct terminal_size){24, 80};
	return (struct terminal_size){w.ws_row, w.ws_col};
}
