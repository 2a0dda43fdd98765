// SPDX-License-Identifier: Apache-2.0
// io: system calls on descriptors with EINTR folded in and errors as negative errno: the one seam that a fuzzer or a fault
// injector replaces. Descriptors made here are close-on-exec. Nothing here logs, exits or knows the loop.
#ifndef CELLD_DAEMON_IO_H
#define CELLD_DAEMON_IO_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <sys/uio.h>

// Bytes moved, 0 at end of file (reads), or negative errno; -EAGAIN when it would block.
ssize_t io_read(int fd, void *p, size_t n);
ssize_t io_readv(int fd, const struct iovec *iov, int count);
ssize_t io_write(int fd, const void *p, size_t n);
// To a socket, without SIGPIPE.
ssize_t io_send(int fd, const void *p, size_t n);
// CALL (open, ftruncate, poll, ...), again as long as it is interrupted: what it gives at last, with errno as it left it.
#define IO_AGAIN(call)                                    \
	__extension__({                                   \
		__typeof__(call) io_again;                \
		do                                        \
			io_again = (call);                \
		while (io_again == -1 && errno == EINTR); \
		io_again;                                 \
	})
// From or to a file at an offset, in as many calls as it takes: fewer than N bytes only at its end, or negative errno.
ssize_t io_pread(int fd, void *p, size_t n, off_t at);
// All N bytes: 0 or negative errno.
int io_pwrite(int fd, const void *p, size_t n, off_t at);
// A non-blocking, close-on-exec connection, or negative errno (-EAGAIN: none waits; -ECONNABORTED is folded in).
int io_accept(int fd);
// fds[0] reads, fds[1] writes; both close-on-exec, both blocking. 0 or negative errno (fds are -1 then).
int io_pipe(int fds[2]);
// O_NONBLOCK on the open description: never for an end that a child shares.
int io_set_nonblock(int fd);
// Closes *FD if it is >= 0 and sets it to -1; keeps errno.
void io_close(int *fd);
// The same, and tells what was said then: some file systems (NFS, FUSE) only find out now that they cannot keep what was written. 0 or negative errno.
int io_close_written(int *fd);
// Bytes waiting in a pipe or socket (FIONREAD), or negative errno.
ssize_t io_pending(int fd);
// Reads a small file whole (a /proc or token file), NUL-terminated: bytes read, at most N-1 (-EFBIG if there is more).
ssize_t io_read_file(const char *path, char *p, size_t n);
// The same, but -EAGAIN rather than a wait for whoever has a lease on the file, or writes to a pipe.
ssize_t io_read_file_now(const char *path, char *p, size_t n);
// Writes a short text to an existing file (/proc settings). 0 or negative errno.
int io_write_file(const char *path, const char *text);
// Raises the soft limit of RESOURCE (RLIMIT_*) to the hard one for a while; returns what it was, for the other.
struct rlimit io_limit_lift(int resource);
void io_limit_restore(int resource, const struct rlimit *old);
// CLOCK_MONOTONIC in nanoseconds; CLOCK_REALTIME in milliseconds.
int64_t io_mono_ns(void);
int64_t io_wall_ms(void);

#endif
