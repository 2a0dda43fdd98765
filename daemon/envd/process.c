// SPDX-License-Identifier: Apache-2.0
// The methods of process.Process; selectors, Update and SendSignal. List is in process_list.c.
#include "daemon/envd/process.h"

#include <errno.h>
#include <signal.h>

// How long an end is remembered for Connect (contract B 3.3).
#define REMEMBER_MS 30000

// --- selectors ---

int process_not_found(const Process__ProcessSelector *s, struct err *e)
{
	if (s->selector_case == PROCESS__PROCESS_SELECTOR__SELECTOR_TAG)
		return err_set(e, ERR_NOT_FOUND, "process with tag %s not found", s->tag);
	return err_set(e, ERR_NOT_FOUND, "process with pid %u not found", s->pid);
}

struct proc *process_remember(const struct envd *envd, const Process__ProcessSelector *s, struct err *e)
{
	struct proc *p = NULL;
	switch (s ? s->selector_case : PROCESS__PROCESS_SELECTOR__SELECTOR__NOT_SET) {
	case PROCESS__PROCESS_SELECTOR__SELECTOR_PID:
		p = s->pid <= INT32_MAX ? procs_find(envd->procs, (pid_t)s->pid) : NULL;
		break;
	case PROCESS__PROCESS_SELECTOR__SELECTOR_TAG:
		p = procs_tagged(envd->procs, s->tag);
		break;
	default:
		err_set(e, ERR_UNIMPLEMENTED, "invalid input type *process.ProcessSelector");
		return NULL;
	}
	if (p && proc_kind(p) != PROC_INTERNAL && proc_ended_ago_ms(p) <= REMEMBER_MS)
		return p;
	process_not_found(s, e);
	return NULL;
}

struct proc *process_select(const struct envd *envd, const Process__ProcessSelector *s, struct err *e)
{
	struct proc *p = process_remember(envd, s, e);
	if (!p || proc_waitable(p))
		return p;
	process_not_found(s, e);
	return NULL;
}

// --- Update, SendSignal ---

static int resize(struct proc *p, const Process__UpdateRequest *req, struct err *e)
{
	if (req->_pty_case != PROCESS__UPDATE_REQUEST___PTY_PTY)
		return 0;
	const Process__PTY__Size *s = req->pty->size;
	struct pty_size size = {s ? (unsigned short)s->rows : 0, s ? (unsigned short)s->cols : 0};
	int rc = proc_resize(p, &size);
	if (rc == -ENOTTY)
		return err_set(e, ERR_INTERNAL, "error resizing tty: tty not assigned to process");
	if (rc == -ESRCH)
		return process_not_found(req->process, e);
	return rc < 0 ? err_sys(e, rc, "error resizing tty") : 0;
}

static void update(struct rpc *r, const ProtobufCMessage *m)
{
	const Process__UpdateRequest *req = (const Process__UpdateRequest *)m;
	struct err e;
	struct proc *p = process_select(rpc_envd(r), req->process, &e);
	Process__UpdateResponse answer = PROCESS__UPDATE_RESPONSE__INIT;
	if (p && resize(p, req, &e) == 0)
		rpc_reply(r, &answer.base);
	else
		rpc_error(r, &e);
}

static int send(struct proc *p, const Process__SendSignalRequest *req, struct err *e)
{
	int sig = (int)req->signal;
	if (sig == 0)
		return err_set(e, ERR_UNIMPLEMENTED, "invalid signal: SIGNAL_UNSPECIFIED");
	if (sig != SIGKILL && sig != SIGTERM)
		return err_set(e, ERR_UNIMPLEMENTED, "invalid signal: %d", sig);
	int rc = proc_signal(p, sig, true);
	if (rc == -ESRCH)
		return process_not_found(req->process, e);
	return rc < 0 ? err_sys(e, rc, "error sending signal") : 0;
}

static void send_signal(struct rpc *r, const ProtobufCMessage *m)
{
	const Process__SendSignalRequest *req = (const Process__SendSignalRequest *)m;
	struct err e;
	struct proc *p = process_select(rpc_envd(r), req->process, &e);
	Process__SendSignalResponse answer = PROCESS__SEND_SIGNAL_RESPONSE__INIT;
	if (p && send(p, req, &e) == 0)
		rpc_reply(r, &answer.base);
	else
		rpc_error(r, &e);
}

// --- the table ---

#define METHOD(name, kind_, lower, function)                                                                         \
	{                                                                                                            \
		.path = "/process.Process/" name, .kind = kind_, .request = &process__##lower##_request__descriptor, \
		.response = &process__##lower##_response__descriptor, .call = function                               \
	}

const struct rpc_method *envd_process_methods(void)
{
	static const struct rpc_method methods[] = {
		METHOD("List", RPC_UNARY, list, process_list),
		METHOD("Connect", RPC_SERVER_STREAM, connect, process_connect),
		METHOD("Start", RPC_SERVER_STREAM, start, process_start),
		METHOD("Update", RPC_UNARY, update, update),
		METHOD("SendInput", RPC_UNARY, send_input, process_send_input),
		METHOD("SendSignal", RPC_UNARY, send_signal, send_signal),
		METHOD("CloseStdin", RPC_UNARY, close_stdin, process_close_stdin),
		{
			.path = "/process.Process/StreamInput",
			.kind = RPC_CLIENT_STREAM,
			.request = &process__stream_input_request__descriptor,
			.response = &process__stream_input_response__descriptor,
			.call = process_stream_input,
			.done = process_stream_input_done,
		},
		{0},
	};
	return methods;
}
