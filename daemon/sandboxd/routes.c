// SPDX-License-Identifier: Apache-2.0
#include "daemon/sandboxd/sandboxd.h"

static const struct route routes[] = {
	{ROUTE_GET | ROUTE_POST, "/ready", sandboxd_ready, ROUTE_OPEN | ROUTE_VITAL},
	{ROUTE_GET, "/health", sandboxd_health, ROUTE_OPEN | ROUTE_VITAL},
	{ROUTE_POST, "/exec", sandboxd_exec, 0},
	{ROUTE_POST, "/exec/stream", sandboxd_exec_stream, 0},
	{ROUTE_GET, "/exec/attach", sandboxd_exec_attach, 0},
	{ROUTE_POST, "/exec/stdin", sandboxd_exec_stdin, 0},
	{ROUTE_POST, "/exec/stdin/close", sandboxd_exec_stdin_close, 0},
	{ROUTE_POST, "/exec/signal", sandboxd_exec_signal, 0},
	{ROUTE_GET, "/exec/processes", sandboxd_exec_processes, 0},
	{ROUTE_GET, "/processes", sandboxd_processes, 0},
};

void sandboxd_routes(struct route_table *out, struct sandboxd *ctx)
{
	*out = (struct route_table){
		.routes = routes,
		.count = sizeof routes / sizeof *routes,
		.ctx = ctx,
		.error_type = "application/json",
		.error_body = json_error_body,
	};
}

void sandboxd_reply(struct conn *c, struct buf *out)
{
	conn_reply(c, 200, "application/json", NULL, out);
	buf_release(out);
}

void sandboxd_ok(struct conn *c)
{
	struct buf out;
	buf_init(&out, 0);
	BUF_LIT(&out, "{\"ok\":true}");
	sandboxd_reply(c, &out);
}

struct proc *sandboxd_pid(const struct sandboxd *s, const json_t *doc, struct err *e)
{
	int64_t pid;
	if (jsonr_int(doc, "pid", JSONR_REQUIRED, INT64_MIN, INT64_MAX, &pid, e) < 0)
		return NULL;
	struct proc *p = pid > 0 && pid <= INT32_MAX ? procs_find(s->procs, (pid_t)pid) : NULL;
	if (!p)
		err_set(e, ERR_NOT_FOUND, "process not found");
	return p;
}

void sandboxd_terminating(struct err *e)
{
	err_set(e, ERR_UNAVAILABLE, "sandbox is terminating");
	e->reason = "sandbox_terminating";
}
