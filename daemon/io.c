// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1 // accept4, pipe2
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

ssize_t io_read(int fd, void *p, size_t n)
{
	ssize_t got;
	do
		got = read(fd, p, n);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

ssize_t io_readv(int fd, const struct iovec *iov, int count)
{
	ssize_t got;
	do
		got = readv(fd, iov, count);
	while (got < 0 && errno == EINTR);
	return got < 0 ? -errno : got;
}

ssize_t io_write(int fd, const void *p, size_t n)
{
	ssize_t put;
	do
		put = write(fd, p, n);
	while (put < 0 && errno == EINTR);
	return put < 0 ? -errno : put;
}

ssize_t io_send(int fd, const void *p, size_t n)
{
	ssize_t put;
	do
		put = send(fd, p, n, MSG_NOSIGNAL);
	while (put < 0 && errno == EINTR);
	return put < 0 ? -errno : put;
}

ssize_t io_pread(int fd, void *p, size_t n, off_t at)
{
	size_t done = 0;
	while (done < n) {
		ssize_t got = IO_AGAIN(pread(fd, (char *)p + done, n - done, at + (off_t)done));
		if (got < 0)
			return -errno;
		if (got == 0)
			break;
		done += (size_t)got;
	}
	return (ssize_t)done;
}

int io_pwrite(int fd, const void *p, size_t n, off_t at)
{
	size_t done = 0;
	while (done < n) {
		ssize_t put = IO_AGAIN(pwrite(fd, (const char *)p + done, n - done, at + (off_t)done));
		if (put <= 0)
			return put < 0 ? -errno : -EIO;
		done += (size_t)put;
	}
	return 0;
}

int io_accept(int fd)
{
	int conn;
	// The connection that went away while it waited is gone from the queue: the next one may be fine.
	do
		conn = accept4(fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	while (conn < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO));
	return conn < 0 ? -errno : conn;
}

int io_pipe(int fds[2])
{
	if (pipe2(fds, O_CLOEXEC) == 0)
		return 0;
	int rc = -errno;
	fds[0] = fds[1] = -1;
	return rc;
}

int io_set_nonblock(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	if (flags < 0)
		return -errno;
	if (!(flags & O_NONBLOCK) && fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0)
		return -errno;
	return 0;
}

void io_close(int *fd)
{
	if (*fd < 0)
		return;
	int saved = errno;
	close(*fd); // not again at EINTR: Linux has released the descriptor by then
	*fd = -1;
	errno = saved;
}

int io_close_written(int *fd)
{
	int saved = errno, rc = close(*fd) < 0 && errno != EINTR ? -errno : 0;
	*fd = -1;
	errno = saved;
	return rc;
}

ssize_t io_pending(int fd)
{
	int n = 0;
	return ioctl(fd, FIONREAD, &n) < 0 ? -errno : n;
}

static int open_file(const char *path, int flags)
{
	int fd;
	do
		fd = open(path, flags | O_CLOEXEC | O_NOCTTY);
	while (fd < 0 && errno == EINTR);
	return fd < 0 ? -errno : fd;
}

static ssize_t read_file(const char *path, int flags, char *p, size_t n)
{
	if (n == 0)
		return -EINVAL;
	int fd = open_file(path, O_RDONLY | flags);
	if (fd < 0)
		return fd;
	size_t len = 0;
	ssize_t got;
	// The last byte of room is read too: that it comes shows that there is more than fits.
	while ((got = io_read(fd, p + len, n - len)) > 0) {
		len += (size_t)got;
		if (len == n) {
			got = -EFBIG;
			break;
		}
	}
	io_close(&fd);
	p[len < n ? len : n - 1] = '\0';
	return got < 0 ? got : (ssize_t)len;
}

ssize_t io_read_file(const char *path, char *p, size_t n)
{
	return read_file(path, 0, p, n);
}

ssize_t io_read_file_now(const char *path, char *p, size_t n)
{
	return read_file(path, O_NONBLOCK, p, n);
}

int io_write_file(const char *path, const char *text)
{
	int fd = open_file(path, O_WRONLY | O_TRUNC);
	if (fd < 0)
		return fd;
	size_t n = strlen(text);
	ssize_t put = io_write(fd, text, n); // at once: a /proc file takes a setting whole or not at all
	io_close(&fd);
	if (put < 0)
		return (int)put;
	return (size_t)put == n ? 0 : -EIO;
}

struct rlimit io_limit_lift(int resource)
{
	struct rlimit old = {0};
	if (getrlimit((__rlimit_resource_t)resource, &old) < 0)
		return (struct rlimit){0};
	struct rlimit all = {.rlim_cur = old.rlim_max, .rlim_max = old.rlim_max};
	if (old.rlim_cur != old.rlim_max)
		setrlimit((__rlimit_resource_t)resource, &all);
	return old;
}

void io_limit_restore(int resource, const struct rlimit *old)
{
	if (old->rlim_cur != old->rlim_max)
		setrlimit((__rlimit_resource_t)resource, old);
}

int64_t io_mono_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t io_wall_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}
