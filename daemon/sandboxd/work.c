// SPDX-License-Identifier: Apache-2.0
#include "daemon/sandboxd/work.h"

#include <errno.h>

#define WHOLE_MAX ((size_t)256 * 1024) // a longer answer is streamed
#define FULL ((size_t)128 * 1024)      // a stream makes no more while this waits for its reader

static void finish(struct work *w)
{
	slice_stop(&w->job);
	buf_release(&w->out);
	w->ops->free(w);
}

static enum conn_pull pull(void *arg, struct buf *out, size_t room)
{
	struct work *w = arg;
	size_t n = buf_len(&w->out);
	n = n < room ? n : room;
	buf_append(out, buf_data(&w->out), n);
	buf_consume(&w->out, n);
	bool empty = buf_len(&w->out) == 0;
	if (w->ended)
		return empty ? CONN_PULL_END : CONN_PULL_MORE;
	if (buf_len(&w->out) < FULL)
		slice_start(w->slices, &w->job);
	return empty ? CONN_PULL_IDLE : CONN_PULL_MORE;
}

static void on_closed(void *arg)
{
	finish(arg);
}

static const struct conn_producer producer = {.pull = pull, .closed = on_closed};

// The client went before it was answered.
static void on_gone(void *arg)
{
	struct work *w = arg;
	w->conn = NULL;
	if (!w->ops->keep_on)
		finish(w);
}

static void fail(struct work *w)
{
	struct conn *c = w->conn;
	if (w->streaming) {
		slice_stop(&w->job);
		conn_abort(c); // on_closed follows
		return;
	}
	if (c)
		conn_error(c, &w->err);
	finish(w);
}

static void done(struct work *w)
{
	w->ended = true;
	if (w->streaming) {
		slice_stop(&w->job);
		conn_wake(w->conn);
		return;
	}
	if (w->conn)
		conn_reply(w->conn, 200, "application/json", NULL, &w->out);
	finish(w);
}

static void more(struct work *w)
{
	if (!w->conn || buf_len(&w->out) == 0)
		return;
	if (!w->streaming) {
		if (buf_len(&w->out) < WHOLE_MAX)
			return;
		if (!conn_stream(w->conn, "application/json", NULL, &producer, w)) {
			finish(w);
			return;
		}
		w->streaming = true;
	}
	if (buf_len(&w->out) >= FULL)
		slice_stop(&w->job);
	conn_wake(w->conn);
}

static void on_step(struct slice_job *job)
{
	struct work *w = (struct work *)job;
	enum work_state state = w->ops->step(w, slice_until());
	if (state != WORK_FAILED && buf_failed(&w->out)) {
		err_sys(&w->err, buf_failed(&w->out), "answer");
		state = WORK_FAILED;
	}
	if (state == WORK_FAILED)
		fail(w);
	else if (state == WORK_DONE)
		done(w);
	else
		more(w);
}

static void on_drop(struct slice_job *job)
{
	finish((struct work *)job);
}

void work_start(struct work *w, struct slices *slices, struct conn *c, const struct work_ops *ops)
{
	w->job.step = on_step;
	w->job.drop = on_drop;
	w->slices = slices;
	w->conn = c;
	w->ops = ops;
	conn_on_close(c, on_gone, w);
	slice_start(slices, &w->job);
	on_step(&w->job);
}
