// SPDX-License-Identifier: Apache-2.0
// The streams of Start and Connect: a reader of the process's output as a source of messages.
#include "daemon/envd/process.h"
#include "proto/envelope.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct watcher {
	struct output_reader reader; // first: the callbacks get it
	struct rpc *rpc;
	struct proc *proc;
	enum envelope_codec codec;
	bool started;
	bool starter;
};

static const enum frame_channel channels[OUTPUT_CHANNELS] = {
	[OUTPUT_STDOUT] = FRAME_STDOUT,
	[OUTPUT_STDERR] = FRAME_STDERR,
	[OUTPUT_PTY] = FRAME_PTY,
};

// --- events ---

// StartResponse and ConnectResponse are the same on the wire.
static void put_event(struct rpc *r, struct buf *out, Process__ProcessEvent *event)
{
	Process__StartResponse m = PROCESS__START_RESPONSE__INIT;
	m.event = event;
	rpc_put(r, out, &m.base);
}

static void put_start(const struct watcher *w, struct buf *out)
{
	Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__StartEvent start = PROCESS__PROCESS_EVENT__START_EVENT__INIT;
	start.pid = (uint32_t)proc_pid(w->proc);
	event.event_case = PROCESS__PROCESS_EVENT__EVENT_START;
	event.start = &start;
	put_event(w->rpc, out, &event);
}

// How Go names signals; others are "signal N".
static const char *const signal_words[] = {
	[SIGHUP] = "hangup",
	[SIGINT] = "interrupt",
	[SIGQUIT] = "quit",
	[SIGILL] = "illegal instruction",
	[SIGTRAP] = "trace/breakpoint trap",
	[SIGABRT] = "aborted",
	[SIGBUS] = "bus error",
	[SIGFPE] = "floating point exception",
	[SIGKILL] = "killed",
	[SIGUSR1] = "user defined signal 1",
	[SIGSEGV] = "segmentation fault",
	[SIGUSR2] = "user defined signal 2",
	[SIGPIPE] = "broken pipe",
	[SIGALRM] = "alarm clock",
	[SIGTERM] = "terminated",
	[SIGSTKFLT] = "stack fault",
	[SIGXCPU] = "CPU time limit exceeded",
	[SIGXFSZ] = "file size limit exceeded",
	[SIGVTALRM] = "virtual timer expired",
	[SIGPROF] = "profiling timer expired",
	[SIGIO] = "I/O possible",
	[SIGPWR] = "power failure",
	[SIGSYS] = "bad system call",
};

void process_status(char out[PROCESS_STATUS_MAX], const struct proc_end *end)
{
	size_t known = sizeof signal_words / sizeof *signal_words;
	const char *word = end->sig > 0 && (size_t)end->sig < known ? signal_words[end->sig] : NULL;
	if (!end->sig)
		snprintf(out, PROCESS_STATUS_MAX, "exit status %d", end->code);
	else if (word)
		snprintf(out, PROCESS_STATUS_MAX, "signal: %s%s", word, end->core ? " (core dumped)" : "");
	else
		snprintf(out, PROCESS_STATUS_MAX, "signal: signal %d%s", end->sig, end->core ? " (core dumped)" : "");
}

static void put_end(const struct watcher *w, struct buf *out, const struct proc_end *end)
{
	static char oom[] = "out of memory";
	char status[PROCESS_STATUS_MAX];
	Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__EndEvent m = PROCESS__PROCESS_EVENT__END_EVENT__INIT;
	process_status(status, end);
	m.exit_code = end->code;
	m.exited = !end->sig;
	m.status = status;
	if (end->sig || end->code || end->oom) {
		m._error_case = PROCESS__PROCESS_EVENT__END_EVENT___ERROR_ERROR;
		m.error = end->oom ? oom : status;
	}
	event.event_case = PROCESS__PROCESS_EVENT__EVENT_END;
	event.end = &m;
	put_event(w->rpc, out, &event);
}

// --- the source ---

// Output as far as there is room; true if none is left.
static bool pull_output(struct watcher *w, struct buf *out, size_t room)
{
	struct output_span span;
	size_t start = buf_len(out);
	while (output_next(&w->reader, FRAME_RAW_MAX, &span)) {
		size_t used = buf_len(out) - start;
		if (used && used + envelope_data_room(span.n) > room)
			return false;
		envelope_data(out, w->codec, channels[span.channel], span.p, span.n);
		if (buf_failed(out))
			return false;
		output_taken(&w->reader, span.n);
	}
	return true;
}

// The end event, or the error that takes its place.
static void finish(struct watcher *w, struct buf *out, const struct proc_end *end)
{
	struct err e;
	if (!end->stopped && !end->leaving && !(w->starter && end->timed_out)) {
		put_end(w, out, end);
		return;
	}
	if (end->leaving)
		envd_leaving(&e);
	else if (end->stopped)
		err_set(&e, ERR_UNAVAILABLE, "the sandbox is terminating");
	else
		err_set(&e, ERR_DEADLINE_EXCEEDED, "context deadline exceeded");
	rpc_end(w->rpc, &e);
}

static enum conn_pull pull(void *arg, struct rpc *r, struct buf *out, size_t room)
{
	(void)r;
	struct watcher *w = arg;
	if (!w->started)
		put_start(w, out);
	w->started = true;
	bool all = pull_output(w, out, room);
	proc_resume(w->proc);
	const struct proc_end *end = all ? proc_stream_end(w->proc) : NULL;
	if (end)
		finish(w, out, end);
	if (buf_failed(out))
		return CONN_PULL_ABORT; // a message is missing: a cut is honest, an end would not be
	return end ? CONN_PULL_END : all ? CONN_PULL_IDLE : CONN_PULL_MORE;
}

static void keepalive(void *arg, struct rpc *r, struct buf *out)
{
	(void)arg;
	Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
	Process__ProcessEvent__KeepAlive m = PROCESS__PROCESS_EVENT__KEEP_ALIVE__INIT;
	event.event_case = PROCESS__PROCESS_EVENT__EVENT_KEEPALIVE;
	event.keepalive = &m;
	put_event(r, out, &event);
}

static void closed(void *arg)
{
	struct watcher *w = arg;
	output_detach(&w->reader);
	proc_resume(w->proc);
	free(w);
}

static void on_wake(struct output_reader *reader)
{
	struct watcher *w = (struct watcher *)reader;
	rpc_wake(w->rpc);
}

static void on_cut(struct output_reader *reader)
{
	struct watcher *w = (struct watcher *)reader;
	conn_abort(rpc_conn(w->rpc));
}

void process_stream(struct rpc *r, struct proc *p, bool starter)
{
	static const struct rpc_source source = {.pull = pull, .closed = closed, .keepalive = keepalive};
	struct watcher *w = calloc(1, sizeof *w);
	if (!w) {
		rpc_errorf(r, ERR_RESOURCE_EXHAUSTED, "out of memory");
		return;
	}
	w->rpc = r;
	w->proc = p;
	w->starter = starter;
	w->codec = rpc_is_json(r) ? ENVELOPE_JSON : ENVELOPE_PROTO;
	w->reader.wake = on_wake;
	w->reader.cut = on_cut;
	if (starter)
		output_attach(proc_output(p), &w->reader);
	else
		output_attach_live(proc_output(p), &w->reader);
	if (starter)
		rpc_own_deadline(r);
	if (!rpc_stream(r, &source, w))
		closed(w);
}

void process_connect(struct rpc *r, const ProtobufCMessage *m)
{
	const Process__ConnectRequest *req = (const Process__ConnectRequest *)m;
	struct err e;
	struct proc *p = process_remember(rpc_envd(r), req->process, &e);
	if (p)
		process_stream(r, p, false);
	else
		rpc_error(r, &e);
}
