// SPDX-License-Identifier: Apache-2.0
// The control plane's routes, and what each handler asks of its request first.
#include "tests/gateway/api_priv.h"

#include "proto/text.h"

#include <errno.h>
#include <string.h>

enum { GET = 1 << 0, POST = 1 << 1, DELETE = 1 << 2, PUT = 1 << 3, METHODS = 1 << 4 };

// A '*' is one segment. Both generations of a route share a handler. Which methods a path has is in METHODS here: struct route knows
// only two.
static const struct api_row {
	unsigned method;
	struct route route;
} rows[] = {
	{POST, {ROUTE_POST, "/v2/sandboxes", api_create, ROUTE_OPEN}},
	{POST, {ROUTE_POST, "/sandboxes", api_create, ROUTE_OPEN}},
	{GET, {ROUTE_GET, "/v2/sandboxes", api_list, ROUTE_OPEN}},
	{GET, {ROUTE_GET, "/sandboxes", api_list_running, ROUTE_OPEN}},
	{GET, {ROUTE_GET, "/sandboxes/*", api_info, ROUTE_OPEN}},
	{DELETE, {0, "/sandboxes/*", api_kill, ROUTE_OPEN}},
	{POST, {ROUTE_POST, "/v2/sandboxes/*/connect", api_connect, ROUTE_OPEN}},
	{POST, {ROUTE_POST, "/sandboxes/*/connect", api_connect, ROUTE_OPEN}},
	{POST, {ROUTE_POST, "/sandboxes/*/resume", api_resume, ROUTE_OPEN}},
	{POST, {ROUTE_POST, "/sandboxes/*/pause", api_pause, ROUTE_OPEN}},
	{POST, {ROUTE_POST, "/sandboxes/*/timeout", api_timeout, ROUTE_OPEN}},
	{POST, {ROUTE_POST, "/sandboxes/*/refreshes", api_refreshes, ROUTE_OPEN}},
	{GET, {ROUTE_GET, "/sandboxes/*/metrics", api_metrics, ROUTE_OPEN}},
	{POST, {ROUTE_POST, "/sandboxes/*/snapshots", api_snapshot_create, ROUTE_OPEN}},
	{POST, {ROUTE_POST, "/sandboxes/*/fork", api_fork, ROUTE_OPEN}},
	{PUT, {0, "/sandboxes/*/network", api_network, ROUTE_OPEN}},
	{GET, {ROUTE_GET, "/snapshots", api_snapshot_list, ROUTE_OPEN}},
	{DELETE, {0, "/templates/*", api_snapshot_delete, ROUTE_OPEN}},
};

static unsigned method_of(struct http_span m)
{
	static const struct word {
		const char *name;
		unsigned bit;
	} words[] = {{"GET", GET}, {"POST", POST}, {"DELETE", DELETE}, {"PUT", PUT}};
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (http_span_is(m, words[i].name))
			return words[i].bit;
	return 0;
}

static bool path_matches(const char *pattern, struct http_span path)
{
	size_t at = 0;
	for (; *pattern; pattern++) {
		size_t begin = at;
		if (*pattern != '*') {
			if (at >= path.n || path.p[at++] != *pattern)
				return false;
			continue;
		}
		while (at < path.n && path.p[at] != '/')
			at++;
		if (at == begin)
			return false;
	}
	return at == path.n;
}

const struct route *api_find(struct gateway *g, const struct http_head *head, struct err *e, const char **allow)
{
	static const char *const allows[METHODS] = {
		[GET] = "Allow: GET\r\n",
		[POST] = "Allow: POST\r\n",
		[DELETE] = "Allow: DELETE\r\n",
		[PUT] = "Allow: PUT\r\n",
		[GET | POST] = "Allow: GET, POST\r\n",
		[GET | DELETE] = "Allow: GET, DELETE\r\n",
	};
	unsigned method = method_of(head->method), offered = 0;
	*allow = NULL;
	if (!gateway_key_ok(g, head, e))
		return NULL;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		if (!path_matches(rows[i].route.path, head->path))
			continue;
		if (rows[i].method == method)
			return &rows[i].route;
		offered |= rows[i].method;
	}
	if (offered) {
		*allow = allows[offered];
		err_http(e, 405, ERR_UNIMPLEMENTED, "method not allowed");
	} else {
		err_set(e, ERR_NOT_FOUND, "not found");
	}
	return NULL;
}

void api_error_body(struct buf *out, const struct err *e)
{
	struct jsonw w;
	jsonw_init(&w, out);
	jsonw_obj(&w);
	jsonw_kint(&w, "code", e->status);
	jsonw_kstr(&w, "message", e->msg);
	if (e->reason)
		jsonw_kstr(&w, "error_code", e->reason);
	jsonw_obj_end(&w);
}

// --- requests ---

// The path's segment behind its first, "v2" not counted.
static struct http_span segment(struct http_span path)
{
	static const char v2[] = "/v2";
	struct http_span s = {NULL, 0};
	size_t skip = path.n > sizeof v2 - 1 && memcmp(path.p, "/v2/", sizeof v2) == 0 ? sizeof v2 - 1 : 0;
	const char *end = path.p + path.n, *p = path.p + skip + 1;
	p = memchr(p, '/', (size_t)(end - p));
	if (!p)
		return s;
	s.p = ++p;
	const char *slash = memchr(p, '/', (size_t)(end - p));
	s.n = (size_t)((slash ? slash : end) - p);
	return s;
}

const char *api_id(struct conn *c, struct buf *out)
{
	struct http_span s = segment(conn_head(c)->path);
	struct err e;
	int rc = text_percent_decode(out, s.p ? s.p : "", s.n, 0);
	const char *id = rc == 0 ? buf_cstr(out) : NULL;
	if (id && text_utf8_valid(id, strlen(id)))
		return id;
	if (rc == -ENOMEM || buf_failed(out))
		err_sys(&e, -ENOMEM, "id");
	else
		err_set(&e, ERR_INVALID_ARGUMENT, "Invalid sandbox ID");
	conn_error(c, &e);
	return NULL;
}

static void not_found(struct conn *c, const char *id)
{
	struct err e;
	err_set(&e, ERR_NOT_FOUND, "Sandbox \"%.64s\" doesn't exist or you don't have access to it", id);
	conn_error(c, &e);
}

struct session *api_session(struct gateway *g, struct conn *c)
{
	struct buf out;
	buf_init(&out, 0);
	const char *id = api_id(c, &out);
	struct session *s = id ? sessions_find(g, id, strlen(id)) : NULL;
	if (id && !s)
		not_found(c, id);
	buf_release(&out);
	return s;
}

json_t *api_body(struct conn *c)
{
	const struct buf *b = conn_body(c);
	struct err e;
	json_t *doc = NULL;
	if (buf_len(b) > API_BODY_MAX) {
		err_http(&e, 413, ERR_RESOURCE_EXHAUSTED, "the body is larger than %d bytes", API_BODY_MAX);
	} else if (buf_len(b) > 0) {
		doc = jsonr_parse(buf_data(b), buf_len(b), &e);
	} else {
		doc = json_object();
		err_sys(&e, -ENOMEM, "body");
	}
	if (!doc)
		conn_error(c, &e);
	return doc;
}

int api_query(struct conn *c, const char *key, struct buf *out, const char **text)
{
	struct http_span query = conn_head(c)->query;
	struct err e;
	buf_reset(out);
	int rc = query.n > 0 ? text_query_get(out, query.p, query.n, key, 0) : 0;
	if (rc == 1) {
		*text = buf_cstr(out);
		rc = !*text ? -ENOMEM : **text != '\0';
	}
	if (rc >= 0)
		return rc;
	if (rc == -EINVAL)
		err_set(&e, ERR_INVALID_ARGUMENT, "%s: invalid escape", key);
	else
		err_sys(&e, rc, "%s", key);
	conn_error(c, &e);
	return -1;
}

// --- answers ---

void api_reply(struct conn *c, int status, const char *extra, const struct buf *body)
{
	conn_reply(c, status, "application/json", extra, body);
}

void api_no_content(struct conn *c)
{
	conn_reply(c, 204, NULL, NULL, NULL);
}

void api_fail(struct conn *c, const char *id, const struct err *e)
{
	if (e->status == 502)
		not_found(c, id);
	else
		conn_error(c, e);
}
