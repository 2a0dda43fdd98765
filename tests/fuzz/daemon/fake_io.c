// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/daemon/fake.h"

#include "daemon/io.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

ssize_t __real_io_read(int fd, void *p, size_t n);
ssize_t __wrap_io_read(int fd, void *p, size_t n);
ssize_t __real_io_send(int fd, const void *p, size_t n);
ssize_t __wrap_io_send(int fd, const void *p, size_t n);
ssize_t __real_io_pending(int fd);
ssize_t __wrap_io_pending(int fd);
void __real_io_close(int *fd);
void __wrap_io_close(int *fd);
int __real_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how);
int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __real_inotify_init1(int flags);
int __wrap_inotify_init1(int flags);
int __real_inotify_add_watch(int fd, const char *path, uint32_t mask);
int __wrap_inotify_add_watch(int fd, const char *path, uint32_t mask);
ssize_t __real_getrandom(void *p, size_t n, unsigned flags);
ssize_t __wrap_getrandom(void *p, size_t n, unsigned flags);

#define START_NS INT64_C(1000000000000)
#define WALL_S 1700000000
// Whoever looks at the clock has taken that long.
#define LOOK_NS 500

static _Thread_local struct fake {
	bool on;
	int inotify;  // stays open, for closing one takes the kernel 10 ms; plus 1
	int wd_first; // what it watched before
	int rolls;
	int open_fds; // before as behind
	int64_t now;
	struct fake_fd fds[FAKE_FDS];
	size_t count;
} fake;

// Open descriptors among the first ones.
static int open_fds(void)
{
	struct pollfd p[256];
	int count = 0;
	for (int i = 0; i < 256; i++)
		p[i] = (struct pollfd){.fd = i};
	FUZZ_CHECK(poll(p, 256, 0) >= 0);
	for (int i = 0; i < 256; i++)
		count += !(p[i].revents & POLLNVAL);
	return count;
}

void fake_begin(void)
{
	const struct fake old = fake;
	fake = (struct fake){.on = true, .now = START_NS, .inotify = old.inotify, .wd_first = old.wd_first};
	if (!fake.inotify)
		fake.inotify = __real_inotify_init1(IN_NONBLOCK | IN_CLOEXEC) + 1;
	fake.open_fds = open_fds();
}

// Whatever it watches by now, and what it has to say about that, goes.
static void forget_watches(void)
{
	char events[4096];
	int fd = fake.inotify - 1, last = __real_inotify_add_watch(fd, ".", IN_DELETE_SELF);
	FUZZ_CHECK(last >= 0);
	for (int wd = fake.wd_first + 1; wd <= last; wd++)
		inotify_rm_watch(fd, wd);
	fake.wd_first = last;
	while (__real_io_read(fd, events, sizeof events) > 0)
		;
}

void fake_end(void)
{
	FUZZ_CHECK(open_fds() == fake.open_fds);
	fake.on = false;
	forget_watches();
}

int __wrap_inotify_init1(int flags)
{
	if (!fake.on)
		return __real_inotify_init1(flags);
	return fcntl(fake.inotify - 1, F_DUPFD_CLOEXEC, 3);
}

// Below a directory that is open, also where there is no /proc.
int __wrap_inotify_add_watch(int fd, const char *path, uint32_t mask)
{
	static const char open_ones[] = "/proc/self/fd/";
	char *rest;
	if (!fake.on || strncmp(path, open_ones, sizeof open_ones - 1) != 0)
		return __real_inotify_add_watch(fd, path, mask);
	int dir = (int)strtol(path + sizeof open_ones - 1, &rest, 10), here = open(".", O_PATH | O_CLOEXEC);
	int rc = fchdir(dir) < 0 ? -1 : __real_inotify_add_watch(fd, *rest ? rest + 1 : ".", mask), saved = errno;
	FUZZ_CHECK(here >= 0 && fchdir(here) == 0);
	close(here);
	errno = saved;
	return rc;
}

ssize_t __wrap_getrandom(void *p, size_t n, unsigned flags)
{
	if (!fake.on)
		return __real_getrandom(p, n, flags);
	memset(p, fake.rolls++, n);
	return (ssize_t)n;
}

int fake_watch(unsigned which)
{
	return fake.wd_first + 1 + (int)which;
}

bool fake_on(void)
{
	return fake.on;
}

void fake_pass(double seconds)
{
	fake.now += (int64_t)(seconds * 1e9);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
	if (!fake.on)
		return __real_clock_gettime(id, t);
	fake.now += LOOK_NS;
	*t = (struct timespec){.tv_sec = fake.now / 1000000000, .tv_nsec = fake.now % 1000000000};
	if (id == CLOCK_REALTIME)
		t->tv_sec += WALL_S;
	return 0;
}

void fake_fd(const struct fake_fd *f)
{
	FUZZ_CHECK(fake.on && fake.count < FAKE_FDS);
	fake.fds[fake.count++] = *f;
}

static struct fake_fd *find(int fd)
{
	for (size_t i = 0; fake.on && i < fake.count; i++) {
		if (fake.fds[i].fd == fd)
			return &fake.fds[i];
	}
	return NULL;
}

ssize_t __wrap_io_read(int fd, void *p, size_t n)
{
	struct fake_fd *f = find(fd);
	return f && f->read ? f->read(f->arg, p, n) : __real_io_read(fd, p, n);
}

ssize_t __wrap_io_send(int fd, const void *p, size_t n)
{
	struct fake_fd *f = find(fd);
	return f && f->send ? f->send(f->arg, p, n) : __real_io_send(fd, p, n);
}

ssize_t __wrap_io_pending(int fd)
{
	struct fake_fd *f = find(fd);
	return f && f->pending ? f->pending(f->arg) : __real_io_pending(fd);
}

int __wrap_shutdown(int fd, int how)
{
	struct fake_fd *f = find(fd);
	if (f && f->shut)
		f->shut(f->arg);
	return __real_shutdown(fd, how);
}

void __wrap_io_close(int *fd)
{
	struct fake_fd *f = *fd < 0 ? NULL : find(*fd);
	if (f) {
		if (f->closed)
			f->closed(f->arg);
		*f = fake.fds[--fake.count]; // the number may come again
	}
	__real_io_close(fd);
}
