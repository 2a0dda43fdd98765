// SPDX-License-Identifier: Apache-2.0
#include "daemon/sandboxd/sandboxd.h"
#include "proto/frame.h"

static const enum frame_channel channels[OUTPUT_CHANNELS] = {
	[OUTPUT_STDOUT] = FRAME_STDOUT,
	[OUTPUT_STDERR] = FRAME_STDERR,
	[OUTPUT_PTY] = FRAME_PTY,
};

static void sse_start(struct buf *out, const struct proc *p)
{
	frame_sse_pid(out, proc_pid(p));
}

static void sse_data(struct buf *out, enum output_channel ch, const void *p, size_t n)
{
	frame_sse_data(out, channels[ch], p, n);
}

// What END means: false if it is the error frame, which is written then.
static bool exit_of(struct buf *out, const struct proc_end *end, bool truncated, struct frame_end *f, char number[16])
{
	if (end->stopped) {
		struct err e;
		sandboxd_terminating(&e);
		frame_sse_error(out, &e);
		return false;
	}
	if (end->leaving) {
		struct err e;
		sandboxd_leaving(&e);
		frame_sse_error(out, &e);
		return false;
	}
	*f = (struct frame_end){
		.code = end->code,
		.signal = end->sig ? proc_signal_name(end->sig) : NULL,
		.timed_out = end->timed_out,
		.truncated = truncated,
		.oom = end->oom,
	};
	if (end->sig && !f->signal) { // a real-time signal
		snprintf(number, 16, "SIG%d", end->sig);
		f->signal = number;
	}
	return true;
}

static void sse_end(struct buf *out, const struct proc_end *end, bool truncated)
{
	struct frame_end f;
	char number[16];
	if (exit_of(out, end, truncated, &f, number))
		frame_sse_exit(out, &f);
}

static void sse_end_attach(struct buf *out, const struct proc_end *end, bool truncated)
{
	sse_end(out, end, truncated);
	frame_sse_done(out);
}

static void terminal_data(struct buf *out, enum output_channel ch, const void *p, size_t n)
{
	(void)ch;
	frame_sse_bare(out, p, n);
}

static void terminal_end(struct buf *out, const struct proc_end *end, bool truncated)
{
	struct frame_end f;
	char number[16];
	if (exit_of(out, end, truncated, &f, number))
		frame_sse_terminal_exit(out, &f);
}

const struct stream_encoder *sandboxd_sse_terminal(void)
{
	static const struct stream_encoder bare = {
		.content_type = "text/event-stream",
		.extra = "Cache-Control: no-cache\r\n",
		.raw_max = FRAME_RAW_MAX,
		.room = frame_sse_room,
		.start = sse_start,
		.data = terminal_data,
		.end = terminal_end,
		.keepalive = frame_sse_keepalive,
	};
	return &bare;
}

const struct stream_encoder *sandboxd_sse(bool attach)
{
	static const struct stream_encoder plain = {
		.content_type = "text/event-stream",
		.extra = "Cache-Control: no-cache\r\n",
		.raw_max = FRAME_RAW_MAX,
		.room = frame_sse_room,
		.start = sse_start,
		.data = sse_data,
		.end = sse_end,
		.keepalive = frame_sse_keepalive,
	};
	static const struct stream_encoder with_done = {
		.content_type = "text/event-stream",
		.extra = "Cache-Control: no-cache\r\n",
		.raw_max = FRAME_RAW_MAX,
		.room = frame_sse_room,
		.start = sse_start,
		.data = sse_data,
		.end = sse_end_attach,
		.keepalive = frame_sse_keepalive,
	};
	return attach ? &with_done : &plain;
}
