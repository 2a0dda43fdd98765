// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/route.h"

#include <string.h>

static unsigned method_bit(struct http_span m)
{
	if (http_span_is(m, "GET"))
		return ROUTE_GET;
	if (http_span_is(m, "POST"))
		return ROUTE_POST;
	return 0;
}

static bool path_matches(const struct route *r, struct http_span path)
{
	size_t n = strlen(r->path);
	if (r->flags & ROUTE_PREFIX)
		return path.n > n && memcmp(path.p, r->path, n) == 0;
	return path.n == n && memcmp(path.p, r->path, n) == 0;
}

static const struct route preflight = {0, "", route_preflight, ROUTE_OPEN};

const struct route *route_find(
	const struct route_table *t, const struct http_head *head, struct err *e, const char **allow)
{
	static const char *const allows[] = {
		[ROUTE_GET] = "Allow: GET\r\n",
		[ROUTE_POST] = "Allow: POST\r\n",
		[ROUTE_GET | ROUTE_POST] = "Allow: GET, POST\r\n",
	};
	unsigned method = method_bit(head->method), offered = 0;
	*allow = NULL;
	for (size_t i = 0; i < t->count; i++) {
		const struct route *r = &t->routes[i];
		if (!path_matches(r, head->path))
			continue;
		if (r->methods & method)
			return r;
		offered |= r->methods & (ROUTE_GET | ROUTE_POST);
	}
	if (offered && route_is_preflight(t, head))
		return route_check_site(&t->sites, head, e) < 0 ? NULL : &preflight;
	if (offered) {
		*allow = allows[offered];
		err_http(e, 405, ERR_UNIMPLEMENTED, "method not allowed");
	} else {
		err_set(e, ERR_NOT_FOUND, "not found");
	}
	return NULL;
}
