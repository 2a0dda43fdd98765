// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/filesystem.h"
#include "proto/pbjson.h"
#include "proto/pbwire.h"

#include <errno.h>

#define WHOLE_MAX ((size_t)128 * 1024) // a longer answer is streamed
#define FULL ((size_t)128 * 1024)      // a stream makes no more while this waits for its reader

static void finish(struct fs_job *j)
{
	slice_stop(&j->slice);
	buf_release(&j->out);
	j->ops->free(j);
}

static enum conn_pull pull(void *arg, struct buf *out, size_t room)
{
	struct fs_job *j = arg;
	size_t n = buf_len(&j->out);
	n = n < room ? n : room;
	buf_append(out, buf_data(&j->out), n);
	buf_consume(&j->out, n);
	bool empty = buf_len(&j->out) == 0;
	if (j->ended)
		return empty ? CONN_PULL_END : CONN_PULL_MORE;
	if (buf_len(&j->out) < FULL)
		slice_start(j->slices, &j->slice);
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
	struct fs_job *j = arg;
	j->rpc = NULL;
	if (!j->ops->keep_on)
		finish(j);
}

static void fail(struct fs_job *j)
{
	if (j->conn) {
		slice_stop(&j->slice);
		conn_abort(j->conn); // on_closed follows
		return;
	}
	if (j->rpc)
		rpc_error(j->rpc, &j->err);
	finish(j);
}

static void done(struct fs_job *j)
{
	j->ended = true;
	if (j->conn) {
		slice_stop(&j->slice);
		conn_wake(j->conn);
		return;
	}
	if (j->rpc)
		rpc_reply_body(j->rpc, &j->out);
	finish(j);
}

// Begins to send if that is a good deal already.
static void more(struct fs_job *j)
{
	if (!j->conn) {
		if (!j->rpc || j->ops->whole || buf_len(&j->out) < WHOLE_MAX)
			return;
		struct rpc *r = j->rpc;
		j->conn = rpc_conn(r);
		j->rpc = NULL;
		if (!rpc_reply_stream(r, &producer, j)) {
			finish(j);
			return;
		}
	}
	if (buf_len(&j->out) >= FULL)
		slice_stop(&j->slice);
	conn_wake(j->conn);
}

static void on_step(struct slice_job *slice)
{
	struct fs_job *j = (struct fs_job *)slice;
	enum fs_state state = j->ops->step(j, slice_until());
	if (state != FS_FAILED && buf_failed(&j->out)) {
		err_sys(&j->err, buf_failed(&j->out), "answer");
		state = FS_FAILED;
	}
	if (state == FS_FAILED)
		fail(j);
	else if (state == FS_DONE)
		done(j);
	else
		more(j);
}

static void on_drop(struct slice_job *slice)
{
	finish((struct fs_job *)slice);
}

void fs_job_start(struct fs_job *j, struct rpc *r, const struct fs_job_ops *ops)
{
	j->slice.step = on_step;
	j->slice.drop = on_drop;
	j->slices = rpc_envd(r)->slices;
	j->rpc = r;
	j->ops = ops;
	j->json = rpc_is_json(r);
	rpc_on_close(r, on_gone, j);
	slice_start(j->slices, &j->slice);
	on_step(&j->slice);
}

// --- lists ---

static void begin(struct fs_job *j, const char *name)
{
	if (j->count++ == 0)
		buf_printf(&j->out, "{\"%s\":[", name);
	else
		BUF_LIT(&j->out, ", ");
}

void fs_job_put(struct fs_job *j, const char *name, const ProtobufCMessage *m)
{
	if (!j->json) {
		pbwire_write_field(&j->out, 1, m);
		return;
	}
	begin(j, name);
	(void)pbjson_write(&j->out, m);
}

void fs_job_put_entry(struct fs_job *j, const char *name, struct fs_entry *e)
{
	if (!j->json) {
		pbwire_write_field(&j->out, 1, &e->info.base);
		return;
	}
	begin(j, name);
	(void)fs_entry_json(&j->out, e);
}

void fs_job_put_end(struct fs_job *j)
{
	if (!j->json)
		return;
	if (j->count == 0)
		BUF_LIT(&j->out, "{}");
	else
		BUF_LIT(&j->out, "]}");
}
