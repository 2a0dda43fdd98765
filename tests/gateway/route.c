// SPDX-License-Identifier: Apache-2.0
// The port's only table. A request is for a sandbox (by its headers, its host name, a signed URL), an operator's, or the control plane's.
#include "daemon/net/route.h"

#include "proto/text.h"
#include "tests/gateway/gateway.h"

#include <string.h>

#define OPERATORS "/gateway/"

bool gateway_key_ok(const struct gateway *g, const struct http_head *head, struct err *e)
{
	struct http_span key = http_get(head, "X-API-KEY");
	const char *wanted = g->options->api_key;
	if (key.n == 0) {
		err_set(e, ERR_UNAUTHENTICATED, "the header X-API-KEY is missing");
		return false;
	}
	if (!wanted || text_equal_ct(key.p, key.n, wanted, strlen(wanted)))
		return true;
	err_set(e, ERR_UNAUTHENTICATED, "the API key is not valid here");
	return false;
}

static const struct route *find(
	const struct route_table *t, const struct http_head *head, struct err *e, const char **allow)
{
	// What comes is read as it goes on: a body that a command is fed with may pause for any time.
	static const struct route proxied = {0, "/", proxy_request, ROUTE_OPEN | ROUTE_STREAM | ROUTE_SLOW};
	struct gateway *g = t->ctx;
	size_t n = sizeof OPERATORS - 1;
	*allow = NULL;
	if (proxy_wants(g, head))
		return &proxied;
	if (head->path.n > n && memcmp(head->path.p, OPERATORS, n) == 0)
		return ops_find(g, head, e, allow);
	return api_find(g, head, e, allow);
}

void gateway_routes(struct route_table *t, struct gateway *g)
{
	*t = (struct route_table){
		.ctx = g,
		.error_type = "application/json",
		.error_body = api_error_body,
		.find = find,
	};
}
