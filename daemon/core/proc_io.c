// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/proc_priv.h"

#include "daemon/io.h"
#include "daemon/io_watch.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

// Bytes one process may bring in a turn of the loop: a full pipe. With more, those whose writers happen to run while they are read get more
// than the others (of eight streams the slowest got half of the fastest), and one alone is no faster.
#define TURN_MAX PROC_READ_MAX
// A read of less than that was one write, with nothing behind it: a full buffer of stdio's is likely not the last one.
#define SMALL ((size_t)PIPE_BUF)
// More than the kernel holds between a terminal's two ends, which it does not count.
#define TERMINAL_HELD ((size_t)64 * 1024)

static void on_readable(struct ev_loop *loop, ev_io *w, int revents);

static void init_watchers(struct proc *p)
{
	for (int i = 0; i < 2; i++) {
		struct proc_pipe *pipe = &p->pipes[i];
		pipe->proc = p;
		ev_io_init(&pipe->io, on_readable, pipe->fd, EV_READ);
		pipe->io.data = pipe;
	}
	proc_stdin_start(p);
}

static int open_output(struct proc *p, int i, int *child_fd)
{
	int fds[2];
	int rc = io_pipe(fds);
	if (rc < 0)
		return rc;
	p->pipes[i].fd = fds[0];
	p->pipes[i].channel = i ? OUTPUT_STDERR : OUTPUT_STDOUT;
	*child_fd = fds[1];
	return 0;
}

// Where io_unwatch cannot be had, *FD is a description from here on that nobody shares: epoll would go on to watch one that others hold after
// it is closed. That takes longer: some 10 us a command. (The other side of the pipe is another description in any case, and stays blocking.)
static int own(const struct store_slot *slot, int *fd, int flags)
{
	char path[32];
	if (*fd < 0)
		return 0;
	if (!slot || io_can_unwatch())
		return io_set_nonblock(*fd);
	snprintf(path, sizeof path, "/proc/self/fd/%d", *fd);
	int mine = IO_AGAIN(open(path, flags | O_NONBLOCK | O_CLOEXEC));
	if (mine < 0) // without /proc
		return io_set_nonblock(*fd);
	close(*fd);
	*fd = mine;
	return 0;
}

static int own_all(struct proc *p)
{
	if (p->kind == PROC_TERMINAL)
		return 0; // a master cannot be opened a second time
	int rc = own(p->slot, &p->pipes[0].fd, O_RDONLY);
	if (rc == 0)
		rc = own(p->slot, &p->pipes[1].fd, O_RDONLY);
	return rc == 0 ? own(p->slot, &p->in.fd, O_WRONLY) : rc;
}

static int open_terminal(struct proc *p, const struct proc_spec *spec, int child_fd[3])
{
	const struct user *u = spec->run.user;
	int rc = pty_open(&p->pipes[0].fd, &p->slave, &spec->size, u ? u->uid : geteuid());
	if (rc < 0)
		return rc;
	p->pipes[0].channel = OUTPUT_PTY;
	p->in.fd = p->pipes[0].fd;
	child_fd[0] = child_fd[1] = child_fd[2] = p->slave;
	return 0;
}

static int open_ends(struct proc *p, const struct proc_spec *spec, int child_fd[3])
{
	int fds[2], rc = 0;
	if (p->kind == PROC_TERMINAL)
		return open_terminal(p, spec, child_fd);
	for (int i = 0; rc == 0 && i < 2; i++)
		rc = open_output(p, i, &child_fd[i + 1]);
	if (rc < 0 || !p->in.wanted)
		return rc;
	rc = io_pipe(fds);
	if (rc < 0)
		return rc;
	child_fd[0] = fds[0];
	p->in.fd = fds[1];
	return 0;
}

int proc_io_open(struct proc *p, const struct proc_spec *spec, int child_fd[3])
{
	int rc = open_ends(p, spec, child_fd);
	if (rc < 0)
		return rc;
	proc_store_hand(p);
	return own_all(p);
}

static void take_terminal(struct proc *p)
{
	p->pipes[0].fd = p->in.fd = store_end_take(p->slot, STORE_MASTER);
	p->pipes[0].channel = OUTPUT_PTY;
	p->slave = store_end_take(p->slot, STORE_SLAVE);
}

static void take_pipes(struct proc *p)
{
	struct store_slot *slot = p->slot;
	for (int i = 0; i < 2; i++) {
		p->pipes[i].fd = store_end_take(slot, i ? STORE_STDERR : STORE_STDOUT);
		p->pipes[i].channel = i ? OUTPUT_STDERR : OUTPUT_STDOUT;
	}
	p->in.fd = store_end_take(slot, STORE_STDIN);
	(void)own_all(p);
}

void proc_io_take_back(struct proc *p)
{
	if (p->kind == PROC_TERMINAL)
		take_terminal(p);
	else
		take_pipes(p);
	init_watchers(p);
}

void proc_io_start(struct proc *p)
{
	if (!p->begun)
		init_watchers(p);
	for (int i = 0; i < 2; i++) {
		if (p->pipes[i].fd >= 0 && !p->table->leaving)
			io_watch(p->table->loop, &p->pipes[i].io);
	}
}

static void pipe_close(struct proc *p, struct proc_pipe *pipe)
{
	if (p->in.fd == pipe->fd)
		proc_stdin_close_now(p);
	io_unwatch(p->table->loop, &pipe->io);
	io_close(&pipe->fd);
	pipe->owed = 0;
}

// After a vhangup (as login does it) the terminal is to be opened again, and so do we.
static bool hung_up(struct proc *p)
{
	return p->slave >= 0 && pty_reopen(p->pipes[0].fd, &p->slave) == 0;
}

// Reads one pipe once. Bytes read; 0 when that was all it has or can take for now.
static size_t read_pipe(struct proc *p, struct proc_pipe *pipe)
{
	struct iovec iov[2];
	int count;
	ssize_t room = output_room(p->output, PROC_READ_MAX, iov, &count);
	if (room <= 0) {
		proc_starve(p);
		return 0;
	}
	output_reading(p->output, true);
	ssize_t n = io_readv(pipe->fd, iov, count);
	if (n <= 0)
		output_reading(p->output, false);
	if (n == -EAGAIN) {
		pipe->owed = 0;
		return 0;
	}
	if (n == -EIO && hung_up(p))
		return 0;
	if (n <= 0) { // EOF; a terminal says EIO
		pipe_close(p, pipe);
		return 0;
	}
	pipe->owed -= pipe->owed < (size_t)n ? pipe->owed : (size_t)n;
	if (p->table->limits.metrics)
		p->table->limits.metrics->bytes[pipe->channel] += (size_t)n;
	output_filled(p->output, pipe->channel, (size_t)n);
	return (size_t)n;
}

// All that was in it is read, and nobody can write.
static bool at_end(const struct proc_pipe *pipe, const struct pollfd *pfd)
{
	return pfd->revents == POLLHUP && pipe->channel != OUTPUT_PTY;
}

static void drain(struct proc *p, size_t taken)
{
	size_t got = 1;
	while (got && taken < TURN_MAX && !p->starved && !p->table->leaving && !proc_io_eof(p)) {
		struct pollfd pfd[2] = {
			{.fd = p->pipes[0].fd, .events = POLLIN}, {.fd = p->pipes[1].fd, .events = POLLIN}};
		got = 0;
		int ready = IO_AGAIN(poll(pfd, 2, 0));
		if (ready == 0)
			p->pipes[0].owed = p->pipes[1].owed = 0;
		if (ready <= 0)
			break;
		for (int i = 0; i < 2 && !p->starved; i++) {
			if (pfd[i].fd < 0 || !pfd[i].revents)
				continue;
			if (at_end(&p->pipes[i], &pfd[i]))
				pipe_close(p, &p->pipes[i]);
			else
				got += read_pipe(p, &p->pipes[i]);
		}
		taken += got;
	}
	proc_advance(p);
}

void proc_io_drain(struct proc *p)
{
	drain(p, 0);
}

// The loop says by itself that only one pipe is ready, and again if there is more: a small write is on its way to the client after one
// read, without a look at both pipes before and behind it.
static void on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
	io_watch_failed(loop, w, revents);
	struct proc_pipe *pipe = w->data;
	struct proc *p = pipe->proc;
	bool both = ev_is_pending(&p->pipes[pipe == p->pipes].io);
	if (both || p->waited || pipe->channel == OUTPUT_PTY || p->table->leaving) {
		drain(p, 0);
		return;
	}
	size_t n = read_pipe(p, pipe);
	if (n >= SMALL)
		drain(p, n);
	else if (!n)
		proc_advance(p);
}

void proc_io_mark_owed(struct proc *p)
{
	for (int i = 0; i < 2; i++) {
		ssize_t n = p->pipes[i].fd < 0 ? 0 : io_pending(p->pipes[i].fd);
		p->pipes[i].owed = n > 0 ? (size_t)n : 0;
		if (p->pipes[i].fd >= 0 && p->pipes[i].channel == OUTPUT_PTY)
			p->pipes[i].owed = TERMINAL_HELD; // at most: until it has nothing for us
	}
}

bool proc_io_owes(const struct proc *p)
{
	return p->pipes[0].owed || p->pipes[1].owed;
}

bool proc_io_eof(const struct proc *p)
{
	return p->pipes[0].fd < 0 && p->pipes[1].fd < 0;
}

// --- what outlives a command ---

void proc_drain_free(struct proc_drain *d)
{
	struct procs *t = d->table;
	struct store_slot *slot = d->slot;
	enum store_end end = d->end;
	DL_DELETE(t->drains, d);
	io_unwatch(t->loop, &d->io);
	io_close(&d->fd);
	free(d);
	proc_store_drained(t, slot, end);
}

static void on_drain(struct ev_loop *loop, ev_io *w, int revents)
{
	io_watch_failed(loop, w, revents);
	char scratch[16 * 1024];
	struct proc_drain *d = w->data;
	ssize_t n = io_read(d->fd, scratch, sizeof scratch);
	if (n <= 0 && n != -EAGAIN)
		proc_drain_free(d);
}

static int park(struct procs *t, int fd, struct store_slot *slot, enum store_end end)
{
	struct proc_drain *d = calloc(1, sizeof *d);
	if (!d)
		return -ENOMEM;
	d->table = t;
	d->fd = fd;
	d->slot = slot;
	d->end = end;
	ev_io_init(&d->io, on_drain, d->fd, EV_READ);
	d->io.data = d;
	io_watch(t->loop, &d->io);
	DL_APPEND(t->drains, d);
	return 0;
}

int proc_io_park(struct procs *t, int fd, struct store_slot *slot, enum store_end end)
{
	int rc = end == STORE_MASTER ? 0 : own(slot, &fd, O_RDONLY);
	if (rc == 0)
		rc = park(t, fd, slot, end);
	if (rc < 0)
		io_close(&fd);
	return rc;
}

static enum store_end end_of(const struct proc *p, int i)
{
	return p->kind == PROC_TERMINAL ? STORE_MASTER : i ? STORE_STDERR : STORE_STDOUT;
}

unsigned proc_io_finish(struct proc *p, bool parked)
{
	unsigned held = 0;
	proc_stdin_close_now(p);
	proc_io_close_slave(p);
	for (int i = 0; i < 2; i++) {
		struct proc_pipe *pipe = &p->pipes[i];
		if (pipe->fd < 0)
			continue;
		ev_io_stop(p->table->loop, &pipe->io);
		if (parked && park(p->table, pipe->fd, p->slot, end_of(p, i)) == 0) {
			pipe->fd = -1;
			held |= 1u << end_of(p, i);
		} else {
			pipe_close(p, pipe);
		}
	}
	return held;
}

void proc_io_close_slave(struct proc *p)
{
	if (p->kind == PROC_TERMINAL)
		proc_store_drop(p, 1u << STORE_SLAVE);
	io_close(&p->slave);
}
