// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/envd.h"
#include "proto/json.h"

static void health(void *ctx, struct conn *c)
{
	(void)ctx;
	conn_reply(c, 204, NULL, "Cache-Control: no-store\r\n", NULL);
}

static const struct route routes[] = {
	{ROUTE_GET, "/health", health, ROUTE_OPEN | ROUTE_VITAL},
};

// A REST error body: {"code":<status>,"message":"..."}.
static void error_body(struct buf *out, const struct err *e)
{
	struct jsonw w;
	jsonw_init(&w, out);
	jsonw_obj(&w);
	jsonw_kint(&w, "code", e->status);
	jsonw_kstr(&w, "message", e->msg);
	jsonw_obj_end(&w);
}

void envd_routes(struct route_table *out)
{
	*out = (struct route_table){
		.routes = routes,
		.count = sizeof routes / sizeof *routes,
		.error_type = "application/json",
		.error_body = error_body,
	};
}
