// SPDX-License-Identifier: Apache-2.0
#include "daemon/sandboxd/sandboxd.h"

static const struct route routes[] = {
	{ROUTE_GET | ROUTE_POST, "/ready", sandboxd_ready, ROUTE_OPEN},
	{ROUTE_GET, "/health", sandboxd_health, ROUTE_OPEN | ROUTE_VITAL},
	{ROUTE_POST, "/exec", sandboxd_exec, 0},
	{ROUTE_POST, "/exec/stream", sandboxd_exec_stream, 0},
	{ROUTE_GET, "/exec/attach", sandboxd_exec_attach, 0},
	{ROUTE_POST, "/exec/stdin", sandboxd_exec_stdin, 0},
	{ROUTE_POST, "/exec/stdin/close", sandboxd_exec_stdin_close, 0},
	{ROUTE_POST, "/exec/signal", sandboxd_exec_signal, 0},
	{ROUTE_GET, "/exec/processes", sandboxd_exec_processes, 0},
	{ROUTE_POST, "/pty/create", sandboxd_pty_create, 0},
	{ROUTE_POST, "/pty/input", sandboxd_pty_input, 0},
	{ROUTE_POST, "/pty/resize", sandboxd_pty_resize, 0},
	{ROUTE_GET, "/pty/foreground", sandboxd_pty_foreground, 0},
	{ROUTE_POST, "/pty/signal", sandboxd_pty_signal, 0},
	{ROUTE_POST, "/pty/destroy", sandboxd_pty_destroy, 0},
	{ROUTE_GET, "/pty/stream", sandboxd_pty_stream, 0},
	{ROUTE_POST, "/files/write", sandboxd_files_write, 0},
	{ROUTE_GET, "/files/read", sandboxd_files_read, 0},
	{ROUTE_GET, "/files/list", sandboxd_files_list, 0},
	{ROUTE_POST, "/files/stat", sandboxd_files_stat, 0},
	{ROUTE_POST, "/files/mkdir", sandboxd_files_mkdir, 0},
	{ROUTE_POST, "/files/move", sandboxd_files_move, 0},
	{ROUTE_POST, "/files/remove", sandboxd_files_remove, 0},
	{ROUTE_POST, "/exec/background", sandboxd_background, 0},
	{ROUTE_GET, "/exec/background/", sandboxd_background_get, ROUTE_PREFIX},
	{ROUTE_GET, "/transcript", sandboxd_transcript, 0},
	{ROUTE_GET, "/events", sandboxd_events, 0},
	{ROUTE_POST, "/workspace/reset", sandboxd_reset, 0},
	{ROUTE_POST, "/watch/create", sandboxd_watch_create, 0},
	{ROUTE_GET, "/watch/events", sandboxd_watch_events, 0},
	{ROUTE_POST, "/watch/remove", sandboxd_watch_remove, 0},
	{ROUTE_GET, "/watch/stream", sandboxd_watch_stream, 0},
	{ROUTE_GET, "/processes", sandboxd_processes, 0},
	{ROUTE_GET, "/capabilities", sandboxd_capabilities, 0},
	{ROUTE_GET, "/metrics", sandboxd_metrics, ROUTE_VITAL},
};

void sandboxd_routes(struct route_table *out, struct sandboxd *ctx)
{
	*out = (struct route_table){
		.routes = routes,
		.count = sizeof routes / sizeof *routes,
		.ctx = ctx,
		.name = "sandboxd",
		.error_type = "application/json",
		.error_body = json_error_body,
		.no_memory = "{\"error\":\"out of memory\",\"code\":\"resource_exhausted\",\"retryable\":true}",
		.sites = {true, ctx->config->allow_origin, ctx->config->allow_origin_count},
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

// What no command, environment or stdin piece exceeds, and jansson parses without holding the loop up for long.
#define JSON_MAX ((size_t)4 * 1024 * 1024)

json_t *sandboxd_json(const struct conn *c, struct err *e)
{
	const struct buf *body = conn_body(c);
	if (buf_len(body) <= JSON_MAX)
		return jsonr_parse(buf_data(body), buf_len(body), e);
	err_http(e, 413, ERR_RESOURCE_EXHAUSTED, "body too large");
	return NULL;
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

void sandboxd_leaving(struct err *e)
{
	err_set(e, ERR_UNAVAILABLE, "the daemon is being upgraded; reconnect");
}
