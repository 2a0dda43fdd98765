// SPDX-License-Identifier: Apache-2.0
#include "asidekit.h"

#include "daemon/io.h"

#include <check.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int ak_cpus(void)
{
	cpu_set_t set;
	ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
	return CPU_COUNT(&set);
}

struct walk_remove *ak_removal_of(const char *path, unsigned flags)
{
	struct walk_remove *r;
	ck_assert_int_eq(walk_remove_new(&r, path, flags), 0);
	return r;
}

// Until it has a child (its descriptor), or (-1) is through here.
int ak_step_aside(struct walk_remove *r)
{
	while (walk_remove_step(r, 0)) {
		if (walk_remove_fd(r) >= 0)
			return walk_remove_fd(r);
	}
	return -1;
}

void ak_send_to(int fd, int sig)
{
	ck_assert_int_eq(syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0), 0);
}

void ak_await_end(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	ck_assert_int_eq(IO_AGAIN(poll(&p, 1, 20000)), 1);
}

void ak_assert_childless(void)
{
	siginfo_t si;
	ck_assert_int_eq(waitid(P_ALL, 0, &si, WEXITED | WNOHANG | __WALL), -1);
	ck_assert_int_eq(errno, ECHILD);
}

// Whether there are to be children here: a second CPU that may be used, and a kernel that makes them.
bool ak_able(void)
{
	char text[64], *end;
	int fd = -1;
	if (io_read_file("/sys/fs/cgroup/cpu.max", text, sizeof text) > 0) {
		long quota = strtol(text, &end, 10);
		if (quota > 0 && quota < 2 * strtol(end, NULL, 10))
			return false;
	}
	long pid = syscall(SYS_clone, (long)CLONE_PIDFD, 0L, &fd, 0L, 0L);
	if (pid == 0)
		_exit(0);
	if (pid > 0)
		ck_assert_int_eq(IO_AGAIN(waitpid((pid_t)pid, NULL, __WALL)), pid);
	io_close(&fd);
	return pid > 0 && ak_cpus() > 1;
}
