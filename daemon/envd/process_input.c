// SPDX-License-Identifier: Apache-2.0
// SendInput, StreamInput, CloseStdin. A write is answered when the process's pipe or terminal has taken all of it; till then its caller
// waits, and a stream's body is not read.
#include "daemon/envd/process.h"

#include <errno.h>
#include <stdlib.h>

// Where input goes: a process as it was when it was named; its number may be another's later.
struct target {
	pid_t pid;
	int64_t started_ms;
};

// A StreamInput call.
struct inflow {
	struct rpc *rpc;
	struct target target; // pid 0: none yet
	struct proc_input *waiting;
};

static int gone(pid_t pid, struct err *e)
{
	return err_set(e, ERR_NOT_FOUND, "process with pid %d not found", (int)pid);
}

// Whether IN may go to P at all; 0 or -1.
static int check_input(const struct proc *p, const Process__ProcessInput *in, struct err *e)
{
	bool terminal = proc_kind(p) == PROC_TERMINAL;
	switch (in ? in->input_case : PROCESS__PROCESS_INPUT__INPUT__NOT_SET) {
	case PROCESS__PROCESS_INPUT__INPUT_STDIN:
		if (terminal)
			return err_set(e, ERR_FAILED_PRECONDITION,
				"error writing to stdin: tty assigned to process — input should be written to the "
				"pty, not the stdin");
		return 0;
	case PROCESS__PROCESS_INPUT__INPUT_PTY:
		if (!terminal)
			return err_set(e, ERR_FAILED_PRECONDITION,
				"error writing to tty: tty not assigned to process — input should be written to the "
				"stdin, not the tty");
		return 0;
	default:
		return err_set(e, ERR_UNIMPLEMENTED, "invalid input type <nil>");
	}
}

// What a failed proc_write_wait means.
static int write_error(pid_t pid, int rc, struct err *e)
{
	switch (rc) {
	case -ESRCH:
		return gone(pid, e);
	case -EPIPE:
		return err_set(e, ERR_FAILED_PRECONDITION, "error writing to stdin: stdin not enabled or closed");
	case -ENOBUFS:
		return err_set(e, ERR_RESOURCE_EXHAUSTED, "error writing to stdin: too much input waits already");
	case -ERESTART:
		return envd_leaving(e);
	default:
		return err_sys(e, rc, "error writing to stdin");
	}
}

// Writes IN to P: 0, 1 if DONE follows, -1 with E filled.
static int put_input(struct proc *p, const Process__ProcessInput *in, void (*done)(void *arg, int rc), void *arg,
	struct proc_input **waiting, struct err *e)
{
	if (check_input(p, in, e) < 0)
		return -1;
	const ProtobufCBinaryData *data = in->input_case == PROCESS__PROCESS_INPUT__INPUT_PTY ? &in->pty : &in->stdin;
	int rc = proc_write_wait(p, data->data, data->len, done, arg, waiting);
	return rc < 0 ? write_error(proc_pid(p), rc, e) : rc;
}

static void forget(void *arg)
{
	proc_input_forget(arg);
}

// --- SendInput ---

static void answer_input(struct rpc *r)
{
	Process__SendInputResponse answer = PROCESS__SEND_INPUT_RESPONSE__INIT;
	rpc_reply(r, &answer.base);
}

static void sent(void *arg, int rc)
{
	struct rpc *r = arg;
	struct err e;
	if (rc == 0)
		answer_input(r);
	else if (write_error((pid_t)(intptr_t)rpc_data(r), rc, &e) < 0)
		rpc_error(r, &e);
}

void process_send_input(struct rpc *r, const ProtobufCMessage *m)
{
	const Process__SendInputRequest *req = (const Process__SendInputRequest *)m;
	struct proc_input *waiting;
	struct err e;
	struct proc *p = process_select(rpc_envd(r), req->process, &e);
	int rc = p ? put_input(p, req->input, sent, r, &waiting, &e) : -1;
	if (rc < 0) {
		rpc_error(r, &e);
	} else if (rc == 0) {
		answer_input(r);
	} else {
		rpc_set_data(r, (void *)(intptr_t)proc_pid(p));
		rpc_on_close(r, forget, waiting);
	}
}

// --- CloseStdin ---

static int close_stdin(struct proc *p, struct err *e)
{
	if (proc_kind(p) == PROC_TERMINAL)
		return err_set(e, ERR_FAILED_PRECONDITION,
			"error closing stdin: cannot close stdin for PTY process — send Ctrl+D (0x04) instead");
	int rc = proc_close_stdin(p);
	if (rc == 0 || rc == -EPIPE) // one that has none is as good as closed
		return 0;
	return rc == -ESRCH ? gone(proc_pid(p), e) : err_sys(e, rc, "error closing stdin");
}

void process_close_stdin(struct rpc *r, const ProtobufCMessage *m)
{
	const Process__CloseStdinRequest *req = (const Process__CloseStdinRequest *)m;
	struct err e;
	struct proc *p = process_select(rpc_envd(r), req->process, &e);
	Process__CloseStdinResponse answer = PROCESS__CLOSE_STDIN_RESPONSE__INIT;
	if (p && close_stdin(p, &e) == 0)
		rpc_reply(r, &answer.base);
	else
		rpc_error(r, &e);
}

// --- StreamInput ---

static void inflow_free(void *arg)
{
	struct inflow *in = arg;
	if (in && in->waiting)
		proc_input_forget(in->waiting);
	free(in);
}

static void fail(struct inflow *in, const struct err *e)
{
	struct rpc *r = in->rpc;
	inflow_free(in);
	rpc_error(r, e);
}

static void streamed(void *arg, int rc)
{
	struct inflow *in = arg;
	struct err e;
	in->waiting = NULL;
	if (rc == 0)
		rpc_resume(in->rpc);
	else if (write_error(in->target.pid, rc, &e) < 0)
		fail(in, &e);
}

static struct proc *find_target(const struct inflow *in, struct err *e)
{
	const struct target *t = &in->target;
	if (!t->pid) {
		err_set(e, ERR_INVALID_ARGUMENT, "data before start");
		return NULL;
	}
	struct proc *p = procs_find(rpc_envd(in->rpc)->procs, t->pid);
	if (p && proc_waitable(p) && proc_started_ms(p) == t->started_ms)
		return p;
	gone(t->pid, e);
	return NULL;
}

static int take(struct inflow *in, const Process__StreamInputRequest *req, struct err *e)
{
	struct proc *p;
	switch (req->event_case) {
	case PROCESS__STREAM_INPUT_REQUEST__EVENT_START:
		p = process_select(rpc_envd(in->rpc), req->start->process, e);
		if (!p)
			return -1;
		in->target = (struct target){.pid = proc_pid(p), .started_ms = proc_started_ms(p)};
		return 0;
	case PROCESS__STREAM_INPUT_REQUEST__EVENT_DATA:
		p = find_target(in, e);
		return p ? put_input(p, req->data->input, streamed, in, &in->waiting, e) : -1;
	case PROCESS__STREAM_INPUT_REQUEST__EVENT_KEEPALIVE:
		return 0;
	default:
		return err_set(e, ERR_UNIMPLEMENTED, "invalid event type <nil>");
	}
}

void process_stream_input(struct rpc *r, const ProtobufCMessage *m)
{
	struct inflow *in = rpc_data(r);
	struct err e;
	if (!in) {
		in = calloc(1, sizeof *in);
		if (!in) {
			rpc_errorf(r, ERR_RESOURCE_EXHAUSTED, "out of memory");
			return;
		}
		in->rpc = r;
		rpc_set_data(r, in);
		rpc_on_close(r, inflow_free, in);
	}
	int rc = take(in, (const Process__StreamInputRequest *)m, &e);
	if (rc < 0)
		fail(in, &e);
	else if (rc > 0)
		rpc_pause(r);
}

void process_stream_input_done(struct rpc *r)
{
	Process__StreamInputResponse answer = PROCESS__STREAM_INPUT_RESPONSE__INIT;
	inflow_free(rpc_data(r));
	rpc_reply(r, &answer.base);
}
