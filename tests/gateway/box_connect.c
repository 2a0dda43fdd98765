// SPDX-License-Identifier: Apache-2.0
// Connections to a box: to the sockets in its directory, to a port of its network or of ours. A socket belongs to the network in which it was made.
#include "daemon/io.h"
#include "tests/gateway/box_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define SOCKET_FLAGS (SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC)

void box_net_open(struct box *b)
{
	char path[48];
	(void)snprintf(path, sizeof path, "/proc/%d/ns/net", (int)b->pid);
	if (b->private_net)
		b->netns = open(path, O_RDONLY | O_CLOEXEC);
}

// In a child that shares our descriptors: who is not root has to be in the box's user namespace first, and would not come back from there.
static _Noreturn void lend_hand(const struct box *b, int family, int report)
{
	char path[48];
	(void)snprintf(path, sizeof path, "/proc/%d/ns/user", (int)b->pid);
	int user = open(path, O_RDONLY | O_CLOEXEC), fd = -1;
	if (user >= 0 && setns(user, CLONE_NEWUSER) == 0 && setns(b->netns, CLONE_NEWNET) == 0)
		fd = socket(family, SOCKET_FLAGS, 0);
	int rc = fd < 0 ? -errno : fd;
	io_close(&user);
	(void)io_write(report, &rc, sizeof rc);
	_exit(0);
}

static int socket_by_child(const struct box *b, int family)
{
	int report[2], fd;
	int rc = io_pipe(report);
	if (rc < 0)
		return rc;
	struct clone_args args = {.flags = CLONE_FILES | CLONE_VFORK, .exit_signal = SIGCHLD};
	long pid = syscall(SYS_clone3, &args, sizeof args);
	if (pid == 0)
		lend_hand(b, family, report[1]);
	rc = pid < 0 ? -errno : 0;
	io_close(&report[1]);
	if (pid > 0) {
		fd = -EIO;
		if (io_read(report[0], &fd, sizeof fd) != (ssize_t)sizeof fd)
			fd = -EIO;
		rc = fd;
		while (waitpid((pid_t)pid, NULL, 0) < 0 && errno == EINTR) {
		}
	}
	io_close(&report[0]);
	return rc;
}

static int socket_there(const struct box *b, int family)
{
	int ours = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
	if (ours < 0)
		return -errno;
	if (setns(b->netns, CLONE_NEWNET) < 0) {
		int rc = -errno;
		close(ours);
		return rc == -EPERM ? socket_by_child(b, family) : rc;
	}
	int fd = socket(family, SOCKET_FLAGS, 0);
	int rc = fd < 0 ? -errno : fd;
	if (setns(ours, CLONE_NEWNET) < 0)
		abort(); // in a network that is not ours nothing would be right any more
	close(ours);
	return rc;
}

// The loopback answers while connect still runs, so a refusal is known.
static int refusal(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLOUT};
	int err = 0;
	socklen_t n = sizeof err;
	if (poll(&p, 1, 0) <= 0)
		return 0;
	return getsockopt(fd, SOL_SOCKET, SO_ERROR, &err, &n) < 0 ? -errno : -err;
}

static int connect_to(int fd, const void *addr, socklen_t n)
{
	if (fd < 0)
		return fd;
	int rc = connect(fd, addr, n) == 0 ? 0 : -errno;
	if (rc == -EINPROGRESS)
		rc = refusal(fd);
	if (rc < 0)
		close(fd);
	return rc < 0 ? rc : fd;
}

static int connect_inet(const struct box *b, int family, unsigned port)
{
	struct sockaddr_in v4 = {
		.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 v6 = {
		.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	int fd = b->netns >= 0 ? socket_there(b, family) : socket(family, SOCKET_FLAGS, 0);
	if (fd == -1)
		fd = -errno;
	return family == AF_INET ? connect_to(fd, &v4, sizeof v4) : connect_to(fd, &v6, sizeof v6);
}

int box_connect(const struct box *b, unsigned port)
{
	if (!b->pid || port > 65535)
		return -ECONNREFUSED;
	if (port == BOX_SANDBOXD || port == BOX_ENVD) {
		struct sockaddr_un a;
		box_address(b, port, &a);
		int fd = socket(AF_UNIX, SOCKET_FLAGS, 0);
		return connect_to(fd < 0 ? -errno : fd, &a, sizeof a);
	}
	if (b->private_net && b->netns < 0)
		return -ECONNREFUSED;
	int fd = connect_inet(b, AF_INET, port);
	if (fd != -ECONNREFUSED)
		return fd;
	// Servers told to listen on "localhost" may have taken the other one.
	fd = connect_inet(b, AF_INET6, port);
	return fd < 0 ? -ECONNREFUSED : fd;
}
