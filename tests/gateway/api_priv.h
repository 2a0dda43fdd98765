// SPDX-License-Identifier: Apache-2.0
// api_priv: what the parts of the control plane share: what is asked of a request, how it is answered, how a session looks.
#ifndef CELLD_GATEWAY_API_PRIV_H
#define CELLD_GATEWAY_API_PRIV_H

#include "proto/json.h"
#include "tests/gateway/session_priv.h"

enum {
	API_BODY_MAX = 256 * 1024, // of a request: bounds all that a create can leave here
	API_LIST_MAX = 100,
};

// --- api.c ---
// The segment behind /sandboxes/, /snapshots/ or /templates/, decoded, as a C string in OUT; NULL: answered.
const char *api_id(struct conn *c, struct buf *out);
// The session that the path names. NULL: answered with the 404.
struct session *api_session(struct gateway *g, struct conn *c);
// The body's object, empty if there is no body (json_decref it). NULL: answered.
json_t *api_body(struct conn *c);
void api_reply(struct conn *c, int status, const char *extra, const struct buf *body);
void api_no_content(struct conn *c);
// E about the session ID: the proxy's "not found" is the control plane's 404.
void api_fail(struct conn *c, const char *id, const struct err *e);
// The query's parameter KEY, decoded, as a C string in OUT: 1, 0 (absent or empty), or -1: answered.
int api_query(struct conn *c, const char *key, struct buf *out, const char **text);

// --- api_view.c ---
void api_put_sandbox(struct jsonw *w, const struct session *s);
void api_put_listed(struct jsonw *w, const struct session *s);
void api_put_detail(struct jsonw *w, const struct session *s);
void api_put_snapshot(struct jsonw *w, const struct snapshot *p);
void api_put_time(struct jsonw *w, const char *key, int64_t wall_ms);
int api_cpus(const struct session *s); // whole ones, at least 1
void api_reply_sandbox(struct conn *c, int status, const struct session *s);

// --- api_list.c ---
struct api_page {
	bool asc;
	int64_t limit;
	uint64_t after; // the serial that the last page ended with; 0 = the first page
};
// A decimal parameter within MIN..MAX: 1 with *V set, 0 absent, -1 answered.
int api_query_int(struct conn *c, const char *key, long long min, long long max, long long *v);
// limit, order, nextToken. 0, or -1: answered.
int api_page_parse(struct conn *c, struct api_page *p);
// True if SERIAL is on this page or a later one.
bool api_page_has(const struct api_page *p, uint64_t serial);
// Answers 200 with the array in BODY; LAST: the serial that it ends with if there are more, else 0.
void api_page_reply(struct conn *c, const struct buf *body, uint64_t last);

// --- handlers ---
route_handler api_create, api_list, api_list_running, api_info, api_kill, api_timeout, api_refreshes, api_pause,
	api_connect, api_resume, api_metrics, api_fork, api_network, api_snapshot_create, api_snapshot_list,
	api_snapshot_delete;

#endif
