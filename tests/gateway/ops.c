// SPDX-License-Identifier: Apache-2.0
// What operators and tests ask a gateway: its slots, its budget, a sweep now, the death of a sandbox.
#include "daemon/io.h"
#include "proto/json.h"
#include "tests/gateway/gateway.h"
#include "tests/gateway/session.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT(a) (sizeof(a) / sizeof(*(a)))
#define SLOTS "/gateway/sandboxes/"
#define KILL "/kill"

static void answer(struct conn *c, struct buf *out)
{
	buf_byte(out, '\n');
	conn_reply(c, 200, "application/json", "Cache-Control: no-store\r\n", out);
	buf_release(out);
}

// --- the slots ---

// The wall clock at NS of the monotonic one.
static void put_time(struct jsonw *w, const char *key, int64_t ns)
{
	char text[64];
	struct tm tm;
	int64_t ms = io_wall_ms() - (io_mono_ns() - ns) / 1000000;
	time_t s = (time_t)(ms / 1000);
	size_t n = gmtime_r(&s, &tm) ? strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm) : 0;
	jsonw_key(w, key);
	jsonw_str(w, text, n);
}

static void put_slot(struct jsonw *w, const struct slot *s)
{
	const struct box *b = node_box(s);
	pid_t pid = b ? box_pid(b) : 0;
	jsonw_obj(w);
	jsonw_kint(w, "number", s->number);
	jsonw_kstr(w, "state", slot_state_name(s->state));
	jsonw_kint(w, "memoryMB", s->size.memory_mb);
	jsonw_key(w, "cpus");
	jsonw_num(w, s->size.cpus);
	put_time(w, "since", s->since_ns);
	jsonw_key(w, "seconds");
	jsonw_num(w, (double)((io_mono_ns() - s->since_ns) / 1000000) / 1e3);
	jsonw_key(w, "pid");
	if (pid > 0)
		jsonw_int(w, pid);
	else
		jsonw_null(w);
	jsonw_key(w, "sandboxID");
	if (s->session)
		jsonw_cstr(w, session_id(s->session));
	else
		jsonw_null(w);
	jsonw_obj_end(w);
}

static void list(void *ctx, struct conn *c)
{
	const struct gateway *g = ctx;
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_arr(&w);
	for (const struct slot *s = pool_first(g->pool); s; s = s->next)
		put_slot(&w, s);
	jsonw_arr_end(&w);
	answer(c, &out);
}

// --- the node ---

static void put_counts(struct jsonw *w, const struct gateway *g)
{
	struct pool_counts n;
	size_t used = 0;
	pool_count(g->pool, &n);
	jsonw_key(w, "slots");
	jsonw_obj(w);
	for (unsigned s = 0; s < SLOT_STATES; s++) {
		jsonw_kint(w, slot_state_name((enum slot_state)s), (int64_t)n.slots[s]);
		used += s == SLOT_TERMINATED ? 0 : n.slots[s];
	}
	jsonw_obj_end(w);
	jsonw_kint(w, "used", (int64_t)used);
	jsonw_kint(w, "max", (int64_t)g->options->max);
	jsonw_kint(w, "memoryMB", n.memory_mb);
	jsonw_kint(w, "memoryBudgetMB", g->options->memory_mb);
	jsonw_key(w, "cpus");
	jsonw_num(w, n.cpus);
	jsonw_key(w, "cpuBudget");
	jsonw_num(w, g->options->cpus);
}

static void status(void *ctx, struct conn *c)
{
	const struct gateway *g = ctx;
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	jsonw_kstr(&w, "version", GATEWAY_VERSION);
	jsonw_kstr(&w, "domain", g->domain);
	jsonw_kstr(&w, "isolation", g->namespaces ? "namespaces" : "plain");
	if (g->plain_why)
		jsonw_kstr(&w, "plainBecause", g->plain_why);
	jsonw_kint(&w, "running", (int64_t)sessions_running(g));
	jsonw_kint(&w, "connections", (int64_t)net_conn_count(g->net));
	put_counts(&w, g);
	jsonw_obj_end(&w);
	answer(c, &out);
}

static void reclaim(void *ctx, struct conn *c)
{
	struct gateway *g = ctx;
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	jsonw_kint(&w, "reclaimed", (int64_t)node_sweep(g));
	put_counts(&w, g);
	jsonw_obj_end(&w);
	answer(c, &out);
}

// --- the death of one ---

// The number between SLOTS and KILL, 0 if the path is another.
static unsigned number_of(struct http_span path)
{
	size_t before = sizeof SLOTS - 1, after = sizeof KILL - 1;
	unsigned long v = 0;
	if (path.n <= before + after || memcmp(path.p, SLOTS, before) != 0 ||
		memcmp(path.p + path.n - after, KILL, after) != 0)
		return 0;
	for (size_t i = before; i < path.n - after; i++) {
		if (path.p[i] < '0' || path.p[i] > '9' || v > 100000000)
			return 0;
		v = v * 10 + (unsigned long)(path.p[i] - '0');
	}
	return (unsigned)v;
}

// As if it had crashed: the pool is not told but by its end.
static void kill_one(void *ctx, struct conn *c)
{
	const struct gateway *g = ctx;
	unsigned number = number_of(conn_head(c)->path);
	struct slot *s = pool_first(g->pool);
	struct err e;
	while (s && s->number != number)
		s = s->next;
	if (!s || !node_box(s)) {
		err_set(&e, ERR_NOT_FOUND, s ? "no celld runs in slot %u" : "there is no slot %u", number);
		conn_error(c, &e);
		return;
	}
	box_kill(node_box(s));
	conn_reply(c, 204, NULL, NULL, NULL);
}

const struct route *ops_find(struct gateway *g, const struct http_head *head, struct err *e, const char **allow)
{
	static const struct route routes[] = {
		{ROUTE_GET, "/gateway/sandboxes", list, ROUTE_OPEN},
		{ROUTE_GET, "/gateway/status", status, ROUTE_OPEN},
		{ROUTE_POST, "/gateway/reclaim", reclaim, ROUTE_OPEN},
		{ROUTE_POST, SLOTS, kill_one, ROUTE_OPEN | ROUTE_PREFIX},
	};
	const struct route_table t = {.routes = routes, .count = COUNT(routes)};
	const struct route *r = route_find(&t, head, e, allow);
	if (r && !gateway_key_ok(g, head, e))
		return NULL;
	if (r && r->handler == kill_one && number_of(head->path) == 0) {
		err_set(e, ERR_NOT_FOUND, "not found");
		return NULL;
	}
	return r;
}
