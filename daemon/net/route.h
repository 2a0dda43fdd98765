// SPDX-License-Identifier: Apache-2.0
// route: const tables of routes; finds a route, answers 404 and 405 with Allow, guards tokens and keeps the pages of other sites out.
// The handler does the rest.
// A table and what it points to live as long as the net. Must not know of processes, files or a surface.
#ifndef CELLD_NET_ROUTE_H
#define CELLD_NET_ROUTE_H

#include "daemon/net/conn.h"

#include <stdbool.h>
#include <stddef.h>

enum route_method {
	ROUTE_GET = 1 << 0,
	ROUTE_POST = 1 << 1,
};
enum route_flags {
	ROUTE_OPEN = 1 << 0,   // no access token needed
	ROUTE_VITAL = 1 << 1,  // served beyond the connection limit and while the sandbox ends
	ROUTE_PREFIX = 1 << 2, // PATH ends in '/' and matches whatever follows it (not nothing)
	ROUTE_STREAM = 1 << 3, // the handler is called at the head and takes the body itself: conn_body_sink
	ROUTE_SLOW = 1 << 4,   // its body may pause for any time
};

typedef void route_handler(void *ctx, struct conn *c);

struct route {
	unsigned methods;
	const char *path;
	route_handler *handler;
	unsigned flags;
};

// What browsers may send on behalf of pages.
struct metrics_surface;
struct route_sites {
	bool guarded;               // those of other sites are kept from all routes that are not ROUTE_OPEN
	const char *const *origins; // but for these: "https://HOST[:PORT]", or "*" for all
	size_t count;
};

struct route_table {
	const struct route *routes;
	size_t count;
	void *ctx;              // given to every handler
	const char *error_type; // Content-Type of an error body
	// Appends the body for an error in the surface's shape.
	void (*error_body)(struct buf *out, const struct err *e);
	const char *no_memory; // the body of a 503 when there is none to make one in
	// Optional, for a surface whose rules are its own. FIND is asked instead of route_find, with the same results; it guards the
	// token too (its routes are ROUTE_OPEN then).
	const struct route *(*find)(
		const struct route_table *t, const struct http_head *head, struct err *e, const char **allow);
	// Instead of error_type and error_body: a whole error answer, all its header lines but the length. HEAD is empty if none could
	// be read; EXTRA is a header line or NULL. Returns the status.
	int (*error)(const struct http_head *head, const struct err *e, const char *extra, struct buf *lines,
		struct buf *body);
	struct route_sites sites;
	const char *name;               // of the surface, for logs; or NULL
	struct metrics_surface *counts; // added to; or NULL
};

// The route for a head: NULL with E filled and *ALLOW set to a header line ("Allow: GET, POST\r\n", static or NULL).
const struct route *route_find(
	const struct route_table *t, const struct http_head *head, struct err *e, const char **allow);

// --- between net's files ---

// 0, or -1 with E filled if the request is a page's of another site.
int route_check_site(const struct route_sites *s, const struct http_head *head, struct err *e);
// The header lines by which the page of an allowed site gets to see the answer.
void route_put_cors(const struct route_sites *s, const struct http_head *head, struct buf *out);
// A browser asks whether a page may send a request (OPTIONS with an Origin), and the answer to it.
bool route_is_preflight(const struct route_table *t, const struct http_head *head);
route_handler route_preflight;

#endif
