// SPDX-License-Identifier: Apache-2.0
// The system's calls.
#define FAULT_BASE 32
#include "tests/faults/inject.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// A wrapper of a function that gives -1 when it fails in one of KINDS.
#define OR_MINUS(kinds, type, name, parameters, arguments) \
	type __real_##name parameters;                     \
	type __wrap_##name parameters;                     \
	type __wrap_##name parameters                      \
	{                                                  \
		FAULT_CALL(#name);                         \
		if (fault_hits(&call, kinds, where))       \
			return -1;                         \
		return __real_##name arguments;            \
	}

// --- what moves bytes ---

enum {
	MOVES = FAULT_DISK_READ | FAULT_DISK_WRITE | FAULT_SEND | FAULT_INTERRUPT | FAULT_SHORT_READ | FAULT_SHORT_WRITE
};

static unsigned kinds_of(int fd, bool writing)
{
	return fault_wants(MOVES) ? fault_of_fd(fd, writing) : 0;
}

// A wrapper of one that moves up to N bytes on FD.
#define MOVE(writing, name, parameters, arguments)            \
	ssize_t __real_##name parameters;                     \
	ssize_t __wrap_##name parameters;                     \
	ssize_t __wrap_##name parameters                      \
	{                                                     \
		FAULT_CALL(#name);                            \
		unsigned kinds = kinds_of(fd, writing);       \
		if (kinds && fault_hits(&call, kinds, where)) \
			return -1;                            \
		n = fault_room(&call, kinds, n, where);       \
		return __real_##name arguments;               \
	}

MOVE(false, read, (int fd, void *p, size_t n), (fd, p, n))
MOVE(false, pread, (int fd, void *p, size_t n, off_t at), (fd, p, n, at))
MOVE(false, __pread_chk, (int fd, void *p, size_t n, off_t at, size_t size), (fd, p, n, at, size))
MOVE(true, write, (int fd, const void *p, size_t n), (fd, p, n))
MOVE(true, pwrite, (int fd, const void *p, size_t n, off_t at), (fd, p, n, at))
MOVE(true, send, (int fd, const void *p, size_t n, int flags), (fd, p, n, flags))

ssize_t __real_readv(int fd, const struct iovec *iov, int count);
ssize_t __wrap_readv(int fd, const struct iovec *iov, int count);
ssize_t __wrap_readv(int fd, const struct iovec *iov, int count)
{
	FAULT_CALL("readv");
	unsigned kinds = kinds_of(fd, false);
	if (kinds && fault_hits(&call, kinds, where))
		return -1;
	if (count < 1 || !iov[0].iov_len)
		return __real_readv(fd, iov, count);
	size_t n = fault_room(&call, kinds, iov[0].iov_len, where);
	struct iovec first = {.iov_base = iov[0].iov_base, .iov_len = n};
	return n < iov[0].iov_len ? __real_readv(fd, &first, 1) : __real_readv(fd, iov, count);
}

OR_MINUS(FAULT_INTERRUPT, ssize_t, sendmsg, (int fd, const struct msghdr *m, int flags), (fd, m, flags))
OR_MINUS(FAULT_INTERRUPT, ssize_t, recvmsg, (int fd, struct msghdr *m, int flags), (fd, m, flags))
OR_MINUS(FAULT_INTERRUPT, ssize_t, getrandom, (void *p, size_t n, unsigned flags), (p, n, flags))
OR_MINUS(FAULT_DISK_READ, ssize_t, getdents64, (int fd, void *p, size_t n), (fd, p, n))

// --- what makes a descriptor ---

enum { OPENS = FAULT_DESCRIPTOR | FAULT_INTERRUPT };

// O_CREAT needs room on the disk.
static unsigned opens(int flags)
{
	return OPENS | (flags & O_CREAT ? FAULT_DISK_WRITE : 0);
}

int __real_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode);
int __wrap_open(const char *path, int flags, mode_t mode)
{
	FAULT_CALL("open");
	return fault_hits(&call, opens(flags), where) ? -1 : __real_open(path, flags, mode);
}

int __real_openat(int at, const char *path, int flags, mode_t mode);
int __wrap_openat(int at, const char *path, int flags, mode_t mode);
int __wrap_openat(int at, const char *path, int flags, mode_t mode)
{
	FAULT_CALL("openat");
	return fault_hits(&call, opens(flags), where) ? -1 : __real_openat(at, path, flags, mode);
}

OR_MINUS(OPENS, int, __open_2, (const char *path, int flags), (path, flags))
OR_MINUS(OPENS, int, __openat_2, (int at, const char *path, int flags), (at, path, flags))
OR_MINUS(OPENS, int, accept4, (int fd, struct sockaddr *a, socklen_t *n, int flags), (fd, a, n, flags))
OR_MINUS(FAULT_DESCRIPTOR, int, pipe2, (int *fds, int flags), (fds, flags))
OR_MINUS(FAULT_DESCRIPTOR, int, socketpair, (int family, int type, int protocol, int *fds),
	(family, type, protocol, fds))
OR_MINUS(FAULT_DESCRIPTOR, int, socket, (int family, int type, int protocol), (family, type, protocol))
OR_MINUS(FAULT_DESCRIPTOR, int, eventfd, (unsigned count, int flags), (count, flags))
OR_MINUS(FAULT_DESCRIPTOR | FAULT_KERNEL, int, memfd_create, (const char *name, unsigned flags), (name, flags))
OR_MINUS(FAULT_DESCRIPTOR | FAULT_KERNEL, int, inotify_init1, (int flags), (flags))
OR_MINUS(FAULT_DESCRIPTOR, int, signalfd, (int fd, const sigset_t *mask, int flags), (fd, mask, flags))
OR_MINUS(FAULT_DESCRIPTOR, int, epoll_create1, (int flags), (flags))
OR_MINUS(FAULT_DESCRIPTOR, int, timerfd_create, (int clock, int flags), (clock, flags))
OR_MINUS(FAULT_INTERRUPT, int, dup2, (int from, int to), (from, to))

int __real_fcntl(int fd, int cmd, uintptr_t arg);
int __wrap_fcntl(int fd, int cmd, uintptr_t arg);
int __wrap_fcntl(int fd, int cmd, uintptr_t arg)
{
	FAULT_CALL("fcntl");
	bool makes = cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC;
	return makes && fault_hits(&call, FAULT_DESCRIPTOR, where) ? -1 : __real_fcntl(fd, cmd, arg);
}

static unsigned kinds_of_syscall(long number)
{
	switch (number) {
	case SYS_openat2:
		return OPENS;
	case SYS_pidfd_open:
		return FAULT_DESCRIPTOR | FAULT_KERNEL;
	case SYS_clone3:
		return FAULT_FORK;
	case SYS_clone:
		return FAULT_FORK | FAULT_DESCRIPTOR;
	default:
		return 0;
	}
}

long __real_syscall(long number, ...);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	FAULT_CALL("syscall");
	unsigned kinds = kinds_of_syscall(number);
	return kinds && fault_hits(&call, kinds, where) ? -1 : __real_syscall(number, a, b, c, d, e, f);
}

// --- what needs room on the disk, or the kernel's memory ---

OR_MINUS(FAULT_DISK_WRITE | FAULT_INTERRUPT, int, fallocate, (int fd, int mode, off_t at, off_t n), (fd, mode, at, n))
OR_MINUS(FAULT_INTERRUPT, int, ftruncate, (int fd, off_t n), (fd, n))
OR_MINUS(FAULT_INTERRUPT, int, flock, (int fd, int how), (fd, how))
OR_MINUS(FAULT_DISK_WRITE, int, mkdir, (const char *path, mode_t mode), (path, mode))
OR_MINUS(FAULT_DISK_WRITE, int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode))
OR_MINUS(FAULT_DISK_WRITE, int, rename, (const char *from, const char *to), (from, to))
OR_MINUS(FAULT_DISK_WRITE, int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to))
OR_MINUS(FAULT_DISK_WRITE, int, symlinkat, (const char *to, int at, const char *path), (to, at, path))
OR_MINUS(FAULT_DISK_WRITE, int, setxattr, (const char *path, const char *name, const void *p, size_t n, int flags),
	(path, name, p, n, flags))
OR_MINUS(FAULT_DISK_WRITE, int, fsetxattr, (int fd, const char *name, const void *p, size_t n, int flags),
	(fd, name, p, n, flags))
OR_MINUS(FAULT_KERNEL, int, inotify_add_watch, (int fd, const char *path, uint32_t mask), (fd, path, mask))

// The kernel needs memory only for a descriptor that it does not watch yet: that, and nothing else, can fail.
int __real_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev);
int __wrap_epoll_ctl(int ep, int op, int fd, struct epoll_event *ev)
{
	FAULT_CALL("epoll_ctl");
	int rc = __real_epoll_ctl(ep, op, fd, ev);
	if (rc == 0 && op == EPOLL_CTL_ADD && fault_hits(&call, FAULT_WATCH, where)) {
		int err = errno;
		(void)__real_epoll_ctl(ep, EPOLL_CTL_DEL, fd, NULL);
		errno = err;
		return -1;
	}
	return rc;
}

// --- what waits ---

OR_MINUS(FAULT_INTERRUPT, int, poll, (struct pollfd * p, nfds_t n, int ms), (p, n, ms))
OR_MINUS(FAULT_INTERRUPT, int, ppoll, (struct pollfd * p, nfds_t n, const struct timespec *t, const sigset_t *mask),
	(p, n, t, mask))
OR_MINUS(FAULT_INTERRUPT, int, epoll_wait, (int ep, struct epoll_event *ev, int n, int ms), (ep, ev, n, ms))
OR_MINUS(FAULT_INTERRUPT, int, waitid, (idtype_t type, id_t id, siginfo_t *si, int options), (type, id, si, options))
OR_MINUS(FAULT_INTERRUPT, int, connect, (int fd, const struct sockaddr *a, socklen_t n), (fd, a, n))
OR_MINUS(FAULT_INTERRUPT, int, nanosleep, (const struct timespec *t, struct timespec *left), (t, left))

int __real_close(int fd);
int __wrap_close(int fd);
int __wrap_close(int fd)
{
	FAULT_CALL("close");
	int rc = __real_close(fd); // the descriptor is gone also when it was interrupted
	return rc == 0 && fault_hits(&call, FAULT_INTERRUPT, where) ? -1 : rc;
}

// --- processes ---

pid_t __real_fork(void);
pid_t __wrap_fork(void);
pid_t __wrap_fork(void)
{
	FAULT_CALL("fork");
	if (fault_hits(&call, FAULT_FORK, where))
		return -1;
	pid_t pid = __real_fork();
	if (pid == 0)
		fault_forked();
	return pid;
}

// The daemon's own, for it calls the kernel without the C library.
struct spawn_needs;
pid_t __real_spawn_clone(void *stack, size_t size, void (*fn)(void *arg), void *arg, int group, bool share,
	struct spawn_needs *needs, uint32_t *busy);
pid_t __wrap_spawn_clone(void *stack, size_t size, void (*fn)(void *arg), void *arg, int group, bool share,
	struct spawn_needs *needs, uint32_t *busy);
pid_t __wrap_spawn_clone(void *stack, size_t size, void (*fn)(void *arg), void *arg, int group, bool share,
	struct spawn_needs *needs, uint32_t *busy)
{
	FAULT_CALL("spawn_clone");
	if (fault_hits(&call, FAULT_FORK, where))
		return -errno;
	return __real_spawn_clone(stack, size, fn, arg, group, share, needs, busy);
}

// The daemon leaves by it, without the end of a process at which a leak checker looks.
void __lsan_do_leak_check(void) __attribute__((weak));
_Noreturn void __real__exit(int status);
_Noreturn void __wrap__exit(int status);
_Noreturn void __wrap__exit(int status)
{
	if (fault_is_own() && __lsan_do_leak_check)
		__lsan_do_leak_check();
	__real__exit(status);
}
