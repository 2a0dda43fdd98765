// SPDX-License-Identifier: Apache-2.0
// Whether boxes can have namespaces here: a child goes all the way to where celld would be executed, once.
#include "daemon/io.h"
#include "tests/gateway/box_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAIT_MS 10000

static int wait_for(pid_t pid, int log, char *why, size_t n)
{
	struct pollfd p = {.fd = log, .events = POLLIN};
	int status;
	bool quick = poll(&p, 1, WAIT_MS) > 0; // its word, or its end
	ssize_t got = quick ? io_read(log, why, n - 1) : 0;
	if (!quick)
		kill(pid, SIGKILL);
	why[got > 0 ? got : 0] = '\0';
	why[strcspn(why, "\n")] = '\0';
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : quick ? -ECHILD : -ETIMEDOUT;
}

static int try_in(const struct box *b, char *why, size_t n)
{
	int log[2] = {-1, -1}, parent = -1;
	int rc = box_places_make(b);
	if (rc == 0)
		rc = io_pipe(log);
	if (rc == 0)
		parent = (int)syscall(SYS_pidfd_open, getpid(), 0);
	if (rc == 0 && parent < 0)
		rc = -errno;
	struct isolate i = {.namespaces = true,
		.user_ns = geteuid() != 0,
		.dir = b->dir,
		.listen = {-1, -1},
		.log = log[1],
		.parent = parent};
	pid_t pid = rc < 0 ? rc : isolate_start(&i, -1);
	io_close(&log[1]);
	io_close(&parent);
	rc = pid < 0 ? pid : wait_for(pid, log[0], why, n);
	io_close(&log[0]);
	return rc;
}

const char *box_can_isolate(void)
{
	// The answer does not change while we run.
	static char why[256];
	static bool known;
	char dir[] = "/tmp/celld-gateway-try-XXXXXX";
	if (known)
		return why[0] ? why : NULL;
	known = true;
	box_cgroup_sweep();
	struct box b = {.dir = dir, .namespaces = true, .dirfd = -1};
	int rc = mkdtemp(dir) ? 0 : -errno;
	if (rc == 0) {
		b.dirfd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		rc = b.dirfd < 0 ? -errno : try_in(&b, why, sizeof why);
		box_places_remove(&b);
		io_close(&b.dirfd);
		rmdir(dir);
	}
	if (rc == 0)
		why[0] = '\0';
	else if (!why[0])
		(void)snprintf(why, sizeof why, "%s", strerror(-rc));
	return why[0] ? why : NULL;
}
