// SPDX-License-Identifier: Apache-2.0
// What is written to a process: a bounded queue in front of its pipe or terminal, and behind it writes that wait until they are through.
#include "daemon/core/proc_priv.h"

#include "daemon/io.h"
#include "daemon/io_watch.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

// Bytes that may wait for one process.
#define WAITING_MAX (PROC_INPUT_MAX - (size_t)8 * 1024 * 1024)

// A write that waits. Settled, it is told from a timer of its own: whoever made room is in the middle of something.
struct proc_input {
	struct procs *table;
	struct proc *proc; // NULL once settled
	struct buf rest;
	int rc;
	ev_timer due;
	void (*done)(void *arg, int rc);
	void *arg;
	struct proc_input *prev, *next; // of its process, then of those to be told
};

static void flush(struct proc *p);

// --- those that wait ---

void proc_input_free(struct proc_input *in)
{
	ev_timer_stop(in->table->loop, &in->due);
	DL_DELETE(in->table->settled, in);
	free(in);
}

static void on_due(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct proc_input *in = w->data;
	void (*done)(void *arg, int rc) = in->done;
	void *arg = in->arg;
	int rc = in->rc;
	proc_input_free(in);
	done(arg, rc);
}

static void settle(struct proc_input *in, int rc)
{
	struct procs *t = in->table;
	DL_DELETE(in->proc->live->waiting, in);
	in->proc = NULL;
	buf_release(&in->rest);
	in->rc = rc;
	DL_APPEND(t->settled, in);
	ev_timer_init(&in->due, on_due, 0., 0.);
	in->due.data = in;
	ev_timer_start(t->loop, &in->due);
}

void proc_input_forget(struct proc_input *in)
{
	if (in->proc)
		settle(in, 0);
	proc_input_free(in);
}

// --- the queue ---

void proc_stdin_close_now(struct proc *p)
{
	if (p->in.fd >= 0) {
		if (p->kind != PROC_TERMINAL && !p->waited) // later it goes with the others
			proc_store_drop(p, 1u << STORE_STDIN);
		if (p->kind == PROC_TERMINAL) { // the master is read on
			ev_io_stop(p->table->loop, &p->live->typed);
			p->in.fd = -1;
		} else {
			io_unwatch(p->table->loop, &p->live->typed);
			io_close(&p->in.fd);
		}
	}
	buf_release(&p->live->queue);
	while (p->live->waiting)
		settle(p->live->waiting, p->waited ? -ESRCH : -EPIPE);
}

static void on_writable(struct ev_loop *loop, ev_io *w, int revents)
{
	io_watch_failed(loop, w, revents);
	flush(w->data);
}

void proc_stdin_start(struct proc *p)
{
	if (p->in.fd < 0)
		return;
	ev_io_init(&p->live->typed, on_writable, p->in.fd, EV_WRITE);
	p->live->typed.data = p;
}

// What is to be written next, NULL if there is nothing.
static struct buf *next_bytes(struct proc *p)
{
	if (buf_len(&p->live->queue))
		return &p->live->queue;
	return p->live->waiting ? &p->live->waiting->rest : NULL;
}

// One write has failed: true if others may follow.
static bool write_failed(struct proc *p)
{
	if (p->slave >= 0) // hung up: what was typed is gone, and reading opens it again
		return true;
	proc_stdin_close_now(p); // nobody reads it any more: later writes are told
	return false;
}

static void count(const struct proc *p, ssize_t n)
{
	if (n > 0 && p->table->limits.metrics)
		p->table->limits.metrics->bytes[METRICS_STDIN] += (size_t)n;
}

static void flush(struct proc *p)
{
	struct proc_stdin *in = &p->in;
	struct proc_live *l = p->live;
	struct buf *b;
	while (in->fd >= 0 && (b = next_bytes(p))) {
		ssize_t n = io_write(in->fd, buf_data(b), buf_len(b));
		if (n == -EAGAIN) {
			io_watch(p->table->loop, &l->typed);
			return;
		}
		if (n < 0 && !write_failed(p))
			return;
		count(p, n);
		buf_consume(b, n < 0 ? buf_len(b) : (size_t)n);
		if (b != &l->queue && !buf_len(b))
			settle(l->waiting, 0);
	}
	if (in->fd < 0)
		return;
	ev_io_stop(p->table->loop, &l->typed);
	if (in->closing)
		proc_stdin_close_now(p);
	else
		buf_release(&l->queue);
}

static int enqueue(struct proc *p, const void *data, size_t n)
{
	bool was_empty = buf_len(&p->live->queue) == 0;
	buf_append(&p->live->queue, data, n);
	if (buf_failed(&p->live->queue)) {
		if (was_empty)
			buf_release(&p->live->queue); // the failure sticks, and no flush would come to clear it
		return -ENOMEM;
	}
	if (was_empty)
		flush(p);
	return p->in.fd < 0 ? -EPIPE : 0; // the flush has found nobody who reads
}

// 0 if P takes input at all.
static int writable(const struct proc *p)
{
	if (p->waited)
		return -ESRCH;
	if (p->table->leaving)
		return -ERESTART;
	return p->in.fd < 0 || p->in.closing ? -EPIPE : 0;
}

static bool has_room(const struct proc *p, size_t n)
{
	return !p->live->waiting && buf_len(&p->live->queue) + n <= p->table->limits.stdin_max;
}

int proc_write(struct proc *p, const void *data, size_t n)
{
	int rc = writable(p);
	if (rc < 0)
		return rc;
	return has_room(p, n) ? enqueue(p, data, n) : -ENOBUFS;
}

// Writes what the pipe or terminal takes at once: *DATA and *N are moved behind that.
static int write_now(struct proc *p, const void **data, size_t *n)
{
	while (*n) {
		ssize_t done = io_write(p->in.fd, *data, *n);
		if (done == -EAGAIN)
			return 0;
		if (done < 0 && !write_failed(p))
			return -EPIPE;
		count(p, done);
		done = done < 0 ? (ssize_t)*n : done;
		*data = (const char *)*data + done;
		*n -= (size_t)done;
	}
	return 0;
}

size_t proc_input_left(const struct proc *p)
{
	size_t n = p->live ? buf_len(&p->live->queue) : 0;
	const struct proc_input *in;
	DL_FOREACH(p->live ? p->live->waiting : NULL, in)
	{
		n += buf_len(&in->rest);
	}
	return n;
}

static struct proc_input *input_new(struct proc *p, const void *data, size_t n)
{
	struct proc_input *in = calloc(1, sizeof *in);
	if (!in)
		return NULL;
	in->table = p->table;
	in->proc = p;
	buf_init(&in->rest, 0);
	buf_append(&in->rest, data, n);
	if (!buf_failed(&in->rest))
		return in;
	buf_release(&in->rest);
	free(in);
	return NULL;
}

int proc_write_wait(
	struct proc *p, const void *data, size_t n, void (*done)(void *arg, int rc), void *arg, struct proc_input **out)
{
	int rc = writable(p);
	if (rc == 0 && !next_bytes(p))
		rc = write_now(p, &data, &n);
	if (rc < 0 || !n)
		return rc;
	size_t waiting = proc_input_left(p) - buf_len(&p->live->queue);
	if (waiting + n > WAITING_MAX)
		return -ENOBUFS;
	struct proc_input *in = input_new(p, data, n);
	if (!in)
		return -ENOMEM;
	in->done = done;
	in->arg = arg;
	DL_APPEND(p->live->waiting, in);
	*out = in;
	flush(p);
	return 1;
}

int proc_close_stdin(struct proc *p)
{
	if (p->waited)
		return -ESRCH;
	if (!p->in.wanted)
		return -EPIPE;
	p->in.closing = true;
	proc_store_flag(p, PROC_KEPT_CLOSING);
	if (!p->table->leaving)
		flush(p);
	return 0;
}

void proc_stdin_go_on(struct proc *p)
{
	if (p->in.fd >= 0)
		flush(p);
}

void proc_stdin_leave(struct proc *p)
{
	struct proc_input *in;
	uint64_t n = buf_len(&p->live->queue);
	ev_io_stop(p->table->loop, &p->live->typed);
	if (p->in.fd < 0 || !next_bytes(p) || !proc_store_rest(p, 0, buf_data(&p->live->queue), (size_t)n))
		return;
	while ((in = p->live->waiting) && proc_store_rest(p, n, buf_data(&in->rest), buf_len(&in->rest))) {
		n += buf_len(&in->rest);
		settle(in, 0);
	}
	proc_store_rest_end(p, n);
}
