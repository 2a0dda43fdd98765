// SPDX-License-Identifier: Apache-2.0
// The table of surface B and what is asked of a request before its handler (contract B 1.1): CORS, the token, the user, the path.
#include "daemon/envd/answer.h"
#include "daemon/envd/control.h"
#include "daemon/envd/rpc.h"
#include "proto/text.h"

#include <errno.h>
#include <string.h>

static void health(void *ctx, struct conn *c)
{
	(void)ctx;
	envd_reply(c, 204, "Cache-Control: no-store\r\n", NULL);
}

// The host's side of a microVM: pausing it, shrinking it.
static void not_here(void *ctx, struct conn *c)
{
	(void)ctx;
	struct err e;
	struct http_span path = conn_head(c)->path;
	err_http(&e, 501, ERR_UNIMPLEMENTED, "%.*s is not available here", (int)path.n, path.p);
	envd_error(c, &e, NULL);
}

// find_route guards them all, hence no flag that a route could lack.
static const struct route routes[] = {
	{ROUTE_GET, "/health", health, ROUTE_OPEN | ROUTE_VITAL},
	{ROUTE_GET, "/metrics", control_metrics, ROUTE_OPEN},
	{ROUTE_GET, "/envs", control_envs, ROUTE_OPEN},
	{ROUTE_POST, "/init", control_init, ROUTE_OPEN},
	{ROUTE_GET, "/files", envd_files_get, ROUTE_OPEN},
	{ROUTE_POST, "/files", envd_files_post, ROUTE_OPEN | ROUTE_STREAM},
	{ROUTE_POST, "/files/compose", envd_files_compose, ROUTE_OPEN},
	{ROUTE_POST, "/freeze", not_here, ROUTE_OPEN},
	{ROUTE_POST, "/unfreeze", not_here, ROUTE_OPEN},
	{ROUTE_POST, "/collapse", not_here, ROUTE_OPEN},
	{ROUTE_POST, "/fsfreeze", not_here, ROUTE_OPEN},
	{ROUTE_POST, "/fsthaw", not_here, ROUTE_OPEN},
	{ROUTE_POST, "/upgrade", control_upgrade, ROUTE_OPEN},
};
static const struct route preflight = {0, "", answer_preflight, ROUTE_OPEN};
static const struct route call = {ROUTE_POST, "", rpc_serve, ROUTE_OPEN};
static const struct route client_stream = {ROUTE_POST, "", rpc_serve, ROUTE_OPEN | ROUTE_STREAM | ROUTE_SLOW};

// These look after the token themselves, or need none.
static bool exempt(const struct http_head *head)
{
	static const struct exemption {
		const char *method, *path;
	} list[] = {{"GET", "/health"}, {"GET", "/files"}, {"POST", "/files"}, {"POST", "/init"}};
	for (size_t i = 0; i < sizeof list / sizeof *list; i++)
		if (http_span_is(head->method, list[i].method) && http_span_is(head->path, list[i].path))
			return true;
	return false;
}

static int check_token(const struct envd *envd, const struct http_head *head, struct err *e)
{
	const char *token = envd_token(envd);
	if (!token || exempt(head))
		return 0;
	struct http_span given = http_get(head, "X-Access-Token");
	if (given.p && text_equal_ct(given.p, given.n, token, strlen(token)))
		return 0;
	err_http(e, 401, ERR_UNAUTHENTICATED,
		"unauthorized access, please provide a valid access token or method signing if supported");
	e->reason = ANSWER_TOKEN;
	return -1;
}

static int check_user(const struct envd *envd, const struct http_head *head, struct err *e)
{
	struct user user = {0};
	struct buf name;
	if (control_known(envd, head))
		return 0;
	buf_init(&name, 0);
	bool basic = control_basic(head, &name);
	int rc = buf_failed(&name);
	if (rc == 0 && basic)
		rc = envd_user(envd, (const char *)buf_data(&name), buf_len(&name), &user);
	if (rc == 0 && basic)
		control_remember(envd, head, &user);
	if (rc == -ENOENT)
		err_set(e, ERR_UNAUTHENTICATED, "invalid username: '%.*s'", (int)buf_len(&name),
			(const char *)buf_data(&name));
	else if (rc < 0)
		err_sys(e, rc, "user");
	if (rc < 0)
		e->reason = ANSWER_USER;
	user_release(&user);
	buf_release(&name);
	return rc < 0 ? -1 : 0;
}

static const struct route *find_rpc(const struct http_head *head, struct err *e, const char **allow)
{
	const struct rpc_method *m = rpc_find(head->path);
	if (!m) {
		err_http(e, 404, ERR_UNIMPLEMENTED, "unknown method");
		return NULL;
	}
	if (!http_span_is(head->method, "POST")) {
		*allow = "Allow: POST\r\n";
		err_http(e, 405, ERR_UNIMPLEMENTED, "method not allowed");
		return NULL;
	}
	// Nothing of it would be of use: not even read.
	if (m->kind == RPC_UNARY && head->content_length > (int64_t)RPC_MESSAGE_MAX) {
		err_set(e, ERR_RESOURCE_EXHAUSTED, "message size %lld is larger than configured max %zu",
			(long long)head->content_length, RPC_MESSAGE_MAX);
		return NULL;
	}
	return m->kind == RPC_CLIENT_STREAM ? &client_stream : &call;
}

static const struct route *find_route(
	const struct route_table *t, const struct http_head *head, struct err *e, const char **allow)
{
	const struct envd *envd = t->ctx;
	*allow = NULL;
	if (answer_is_preflight(head))
		return &preflight;
	if (check_token(envd, head, e) < 0 || check_user(envd, head, e) < 0)
		return NULL;
	return rpc_path(head->path) ? find_rpc(head, e, allow) : route_find(t, head, e, allow);
}

void envd_routes(struct route_table *out, struct envd *ctx)
{
	*out = (struct route_table){
		.routes = routes,
		.count = sizeof routes / sizeof *routes,
		.ctx = ctx,
		.name = "envd",
		.find = find_route,
		.error = answer_error,
		.no_memory = "{\"code\":503,\"message\":\"out of memory\"}",
	};
}
