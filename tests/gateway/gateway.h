// SPDX-License-Identifier: Apache-2.0
// gateway: what its parts share: built in main.c, freed there. One port serves the control plane and the proxy; which of them a request is for is decided in route.c.
#ifndef CELLD_GATEWAY_GATEWAY_H
#define CELLD_GATEWAY_GATEWAY_H

#include "daemon/net/conn.h"
#include "daemon/net/route.h"
#include "tests/gateway/box.h"
#include "tests/gateway/options.h"
#include "tests/gateway/pool.h"

#include <ev.h>
#include <stdbool.h>

#define GATEWAY_VERSION "0.1.0"

struct node;
struct sessions;

struct gateway {
	const struct options *options;
	struct ev_loop *loop;
	struct net *net;
	struct node *node;
	struct pool *pool;
	struct sessions *sessions;
	struct route_table table;
	bool namespaces;       // boxes are isolated
	const char *plain_why; // NULL then, else why not
	char domain[128];      // "localhost:3000"
};

// --- node.c: the pool's driver: boxes, their directories ---
int node_open(struct gateway *g); // the pool, filled; the sweep's timer. 0 or negative errno
void node_close(struct gateway *g);
struct box *node_box(const struct slot *s); // NULL while there is none
const char *node_dir(const struct slot *s); // its claim
size_t node_sweep(struct gateway *g);       // now
// For a session that was paused to its file system: takes the claim out of S (the directory moves to TO) so that S can end without it;
// and puts it back into a fresh one. 0 or negative errno.
int node_keep_claim(struct slot *s, const char *to);
const char *node_root(const struct gateway
		*g); // absolute: options' dir or the new one; snapshots/ and paused/ in it are the sessions'

// --- session.c ---
int sessions_open(struct gateway *g);
void sessions_close(struct gateway *g);
// The slot's celld is gone (the pool's driver tells).
void sessions_lost(struct gateway *g, struct slot *s, const char *why);

// --- api.c: the control plane's routes ---
// NULL with E filled (404, 405): the routes it knows are ROUTE_OPEN; it checks the API key itself.
const struct route *api_find(struct gateway *g, const struct http_head *head, struct err *e, const char **allow);
// An error body as the control plane has it: {"code":404,"message":"..."}.
void api_error_body(struct buf *out, const struct err *e);

// --- route.c: the port's only table: proxy or control plane ---
void gateway_routes(struct route_table *t, struct gateway *g);
// True if the head's X-API-KEY is the one (any that is not empty, without --api-key); else false and E is the 401.
bool gateway_key_ok(const struct gateway *g, const struct http_head *head, struct err *e);

// --- ops.c: the operators' routes under /gateway/ ---
// As api_find; route.c asks it for paths that begin with /gateway/, and the control plane for all others.
const struct route *ops_find(struct gateway *g, const struct http_head *head, struct err *e, const char **allow);

// --- proxy.c: requests to a sandbox ---
// The handler (ROUTE_STREAM) for a request that is for a sandbox; finds out itself which one and which port.
void proxy_request(void *ctx, struct conn *c);
// True if the head is for a sandbox: E2b-Sandbox-Id/-Port, a Host of PORT-ID.domain, or /files with a signature (or the only sandbox).
bool proxy_wants(const struct gateway *g, const struct http_head *head);

#endif
