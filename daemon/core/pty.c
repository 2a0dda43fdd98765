// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/pty.h"

#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

// Images without udev may have only the file system's own multiplexer.
static int open_master(void)
{
	int fd = IO_AGAIN(open("/dev/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC));
	if (fd < 0 && (errno == ENOENT || errno == ENODEV || errno == ENXIO))
		fd = IO_AGAIN(open("/dev/pts/ptmx", O_RDWR | O_NOCTTY | O_CLOEXEC));
	if (fd >= 0)
		return fd;
	return errno == ENOENT || errno == ENXIO ? -ENODEV : -errno;
}

// The ioctl finds the slave even where another file system lies over /dev/pts; older kernels know it by name alone.
static int open_slave(int master)
{
	char name[64];
#ifdef TIOCGPTPEER
	int fd = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
	if (fd >= 0)
		return fd;
	if (errno != EINVAL && errno != ENOTTY)
		return -errno;
#endif
	int rc = ptsname_r(master, name, sizeof name);
	if (rc)
		return -rc;
	int slave = IO_AGAIN(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC));
	return slave < 0 ? -errno : slave;
}

static int open_pair(int *master, int *slave)
{
	*master = open_master();
	if (*master < 0)
		return *master;
	if (unlockpt(*master) < 0)
		return -errno;
	*slave = open_slave(*master);
	if (*slave < 0)
		return *slave;
	return io_set_nonblock(*master);
}

// Erasing in canonical mode takes whole characters.
static void expect_utf8(int slave)
{
	struct termios t;
	if (tcgetattr(slave, &t) < 0)
		return;
	t.c_iflag |= IUTF8;
	tcsetattr(slave, TCSANOW, &t);
}

int pty_open(int *master, int *slave, const struct pty_size *size, uid_t owner)
{
	*master = *slave = -1;
	int rc = open_pair(master, slave);
	if (rc == 0)
		rc = pty_resize(*master, size);
	if (rc < 0) {
		*master = *master < 0 ? -1 : *master;
		*slave = *slave < 0 ? -1 : *slave;
		io_close(slave);
		io_close(master);
		return rc;
	}
	expect_utf8(*slave);
	// Where that is refused (a user namespace without the uid) the terminal works through its open descriptors.
	int ignored = fchown(*slave, owner, (gid_t)-1) | fchmod(*slave, 0620);
	(void)ignored;
	return 0;
}

int pty_reopen(int master, int *slave)
{
	io_close(slave);
	int fd = open_slave(master);
	*slave = fd < 0 ? -1 : fd;
	return fd < 0 ? fd : 0;
}

int pty_resize(int master, const struct pty_size *size)
{
	struct winsize ws = {.ws_row = size->rows, .ws_col = size->cols};
	return ioctl(master, TIOCSWINSZ, &ws) < 0 ? -errno : 0;
}

int pty_foreground(int master, pid_t *pgrp)
{
	*pgrp = -1;
	pid_t group = 0;
	if (ioctl(master, TIOCGPGRP, &group) < 0)
		return -errno;
	if (group > 0)
		*pgrp = group;
	return 0;
}
