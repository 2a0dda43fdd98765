// SPDX-License-Identifier: Apache-2.0
#include "daemon/net/route.h"
#include "suites.h"

#include <string.h>

static void handler(void *ctx, struct conn *c)
{
	(void)ctx;
	(void)c;
}

static const struct route routes[] = {
	{ROUTE_GET, "/health", handler, ROUTE_OPEN},
	{ROUTE_GET, "/files", handler, 0},
	{ROUTE_POST, "/files", handler, 0},
	{ROUTE_POST, "/exec", handler, 0},
	{ROUTE_GET | ROUTE_POST, "/both", handler, 0},
	{ROUTE_POST, "/process.Process/", handler, ROUTE_PREFIX},
	{ROUTE_GET, "/process.Process/List", handler, 0},
};
static const struct route_table table = {.routes = routes, .count = sizeof(routes) / sizeof(routes[0])};

static const struct find_case {
	const char *method, *path;
	int found; // index, or -status
	const char *allow;
} cases[] = {
	{"GET", "/health", 0, NULL},
	{"HEAD", "/health", -405, "Allow: GET\r\n"},
	{"POST", "/health", -405, "Allow: GET\r\n"},
	{"get", "/health", -405, "Allow: GET\r\n"},
	{"GET", "/health/", -404, NULL},
	{"GET", "/healt", -404, NULL},
	{"GET", "/Health", -404, NULL},
	{"GET", "/%68ealth", -404, NULL},
	{"GET", "", -404, NULL},
	{"OPTIONS", "*", -404, NULL},
	{"GET", "/files", 1, NULL},
	{"POST", "/files", 2, NULL},
	{"PUT", "/files", -405, "Allow: GET, POST\r\n"},
	{"GET", "/exec", -405, "Allow: POST\r\n"},
	{"POST", "/both", 4, NULL},
	{"DELETE", "/both", -405, "Allow: GET, POST\r\n"},
	{"POST", "/process.Process/Start", 5, NULL},
	{"POST", "/process.Process/a/b", 5, NULL},
	{"POST", "/process.Process/", -404, NULL},
	{"POST", "/process.Process", -404, NULL},
	{"GET", "/process.Process/Start", -405, "Allow: POST\r\n"},
	{"GET", "/process.Process/List", 6, NULL},
	{"PUT", "/process.Process/List", -405, "Allow: GET, POST\r\n"},
};

START_TEST(find)
{
	const struct find_case *t = &cases[_i];
	struct http_head head = {
		.method = {t->method, strlen(t->method)},
		.path = {t->path, strlen(t->path)},
	};
	struct err e = {.code = ERR_NONE};
	const char *allow = "unset";
	const struct route *r = route_find(&table, &head, &e, &allow);
	if (t->found >= 0) {
		ck_assert_ptr_eq(r, &routes[t->found]);
	} else {
		ck_assert_ptr_null(r);
		ck_assert_int_eq(e.status, -t->found);
		ck_assert_str_eq(e.msg, t->found == -404 ? "not found" : "method not allowed");
		ck_assert(!e.retryable);
	}
	ck_assert_pstr_eq(allow, t->allow);
}
END_TEST

// --- pages of other sites ---

static const char *const listed[] = {"https://app.example", "http://dev.example:8080", "ext://abc"};
static const char *const any[] = {"*"};
static const struct route_table guarded = {
	.routes = routes, .count = sizeof(routes) / sizeof(routes[0]), .sites = {true, listed, 3}};

static const struct site_case {
	const char *host, *origin, *fetch_site; // NULL: no such header
	bool none, list, star;                  // served without allowed origins, with LISTED, with "*"
} sites[] = {
	{"h:2024", NULL, NULL, true, true, true},
	{NULL, NULL, NULL, true, true, true},
	{"h:2024", NULL, "none", true, true, true},
	{"h:2024", NULL, "same-origin", true, true, true},
	{"h:2024", NULL, "same-site", false, false, true},
	{"h:2024", NULL, "cross-site", false, false, true},
	{"h:2024", NULL, "", false, false, true},
	{"h:2024", NULL, "Same-Origin", false, false, true},
	{"h:2024", "http://h:2024", NULL, true, true, true},
	{"h:2024", "https://h:2024", "same-origin", true, true, true},
	{"h:2024", "http://h:2024", "cross-site", false, false, true},
	{"H:2024", "HTTP://h:2024", NULL, true, true, true},
	{"h", "http://h:80", NULL, true, true, true},
	{"h:443", "https://h", NULL, true, true, true},
	{"h:80", "https://h", NULL, false, false, true},
	{"h", "https://h:80", NULL, false, false, true},
	{"[::1]:2024", "http://[::1]:2024", NULL, true, true, true},
	{"h:2024", "http://h", NULL, false, false, true},
	{"h:2024", "http://h:20245", NULL, false, false, true},
	{"h:2024", "http://xh:2024", NULL, false, false, true},
	{"h:2024", "http://h:2024.evil", NULL, false, false, true},
	{"h:2024", "http://h:2024/", NULL, false, false, true},
	{"h:2024", "ftp://h:2024", NULL, false, false, true},
	{"h:2024", "h:2024", NULL, false, false, true},
	{"h:2024", "http:h:2024", NULL, false, false, true},
	{"h:2024", "://h:2024", NULL, false, false, true},
	{"h:2024", "null", NULL, false, false, true},
	{"null", "null", NULL, false, false, true},
	{"h:2024", "", NULL, false, false, true},
	{"", "http://", NULL, false, false, true},
	{"", "http:", NULL, false, false, true},
	{NULL, "http://h", NULL, false, false, true},
	{"h:2024", "https://app.example", "cross-site", false, true, true},
	{"h:2024", "https://APP.example:443", "cross-site", false, true, true},
	{"h:2024", "http://app.example", NULL, false, false, true},
	{"h:2024", "https://app.example:8443", NULL, false, false, true},
	{"h:2024", "https://app.example.evil", NULL, false, false, true},
	{"h:2024", "https://x.app.example", NULL, false, false, true},
	{"h:2024", "http://dev.example:8080", "same-site", false, true, true},
	{"h:2024", "http://dev.example", NULL, false, false, true},
	{"h:2024", "ext://abc", NULL, false, true, true},
};

static struct http_span span(const char *s)
{
	return (struct http_span){s, strlen(s)};
}

// HEADERS: names and values in turn, to NULL; those without a value are left out.
static struct http_head head_of(struct http_header *to, const char *const *headers)
{
	struct http_head head = {.headers = to};
	for (size_t i = 0; headers[2 * i]; i++)
		if (headers[2 * i + 1])
			to[head.header_count++] = (struct http_header){span(headers[2 * i]), span(headers[2 * i + 1])};
	return head;
}

static void want_site(const struct route_sites *s, const struct http_head *head, bool served)
{
	struct err e = {.code = ERR_NONE};
	ck_assert_int_eq(route_check_site(s, head, &e), served ? 0 : -1);
	if (served)
		return;
	ck_assert_int_eq(e.status, 403);
	ck_assert_int_eq(e.code, ERR_PERMISSION_DENIED);
	ck_assert_str_eq(e.reason, "cross_site");
	ck_assert(!e.retryable);
}

START_TEST(site)
{
	const struct site_case *t = &sites[_i];
	struct http_header headers[4];
	const char *const list[] = {"host", t->host, "ORIGIN", t->origin, "sec-fetch-site", t->fetch_site, NULL};
	struct http_head head = head_of(headers, list);
	want_site(&(struct route_sites){true, NULL, 0}, &head, t->none);
	want_site(&guarded.sites, &head, t->list);
	want_site(&(struct route_sites){true, any, 1}, &head, t->star);
	want_site(&(struct route_sites){false, NULL, 0}, &head, true);
}
END_TEST

START_TEST(two_headers_are_none)
{
	struct http_header headers[4];
	const char *const origins[] = {"Host", "h", "Origin", "http://h", "origin", "http://h", NULL};
	const char *const allowed[] = {
		"Origin", "https://app.example", "Host", "h", "Origin", "https://app.example", NULL};
	const char *const fetched[] = {"Host", "h", "Sec-Fetch-Site", "none", "sec-fetch-site", "cross-site", NULL};
	struct http_head head = head_of(headers, origins);
	want_site(&guarded.sites, &head, false);
	want_site(&(struct route_sites){true, any, 1}, &head, false);
	head = head_of(headers, allowed);
	want_site(&guarded.sites, &head, false);
	head = head_of(headers, fetched);
	want_site(&guarded.sites, &head, false);
}
END_TEST

static const struct cors_case {
	const char *origin;
	const char *list, *star; // what answers carry then
} cors[] = {
	{NULL, "Vary: Origin\r\n", ""},
	{"http://h", "Vary: Origin\r\n", "Access-Control-Allow-Origin: *\r\n"},
	{"https://evil.example", "Vary: Origin\r\n", "Access-Control-Allow-Origin: *\r\n"},
	{"a\x80\xff", "Vary: Origin\r\n", "Access-Control-Allow-Origin: *\r\n"},
	{"https://app.example", "Access-Control-Allow-Origin: https://app.example\r\nVary: Origin\r\n",
		"Access-Control-Allow-Origin: *\r\n"},
};

START_TEST(answers_to_an_allowed_origin)
{
	const struct cors_case *t = &cors[_i];
	struct http_header headers[4];
	const char *const list[] = {"Host", "h", "Origin", t->origin, NULL};
	struct http_head head = head_of(headers, list);
	struct buf out;
	buf_init(&out, 0);
	route_put_cors(&guarded.sites, &head, &out);
	ck_assert_str_eq(buf_cstr(&out), t->list);
	buf_reset(&out);
	route_put_cors(&(struct route_sites){true, any, 1}, &head, &out);
	ck_assert_str_eq(buf_cstr(&out), t->star);
	buf_reset(&out);
	route_put_cors(&(struct route_sites){true, NULL, 0}, &head, &out);
	route_put_cors(&(struct route_sites){false, any, 1}, &head, &out);
	ck_assert_uint_eq(buf_len(&out), 0);
	buf_release(&out);
}
END_TEST

static const struct preflight_case {
	const char *path, *origin;
	int status; // with the guard
} preflights[] = {
	{"/exec", NULL, 405},
	{"/exec", "http://h", 204},
	{"/exec", "https://app.example", 204},
	{"/health", "https://app.example", 204},
	{"/exec", "https://evil.example", 403},
	{"/exec", "null", 403},
	{"/health", "null", 403},
	{"/none", "https://app.example", 404},
	{"/none", "null", 404},
};

START_TEST(preflight)
{
	const struct preflight_case *t = &preflights[_i];
	struct http_header headers[4];
	const char *const list[] = {"Host", "h", "Origin", t->origin, NULL};
	struct http_head head = head_of(headers, list);
	head.method = span("OPTIONS");
	head.path = span(t->path);
	struct err e = {.code = ERR_NONE};
	const char *allow;
	const struct route *r = route_find(&guarded, &head, &e, &allow);
	ck_assert_int_eq(r ? 204 : e.status, t->status);
	ck_assert(!r || (r->handler == route_preflight && (r->flags & ROUTE_OPEN)));
	ck_assert_int_eq(allow != NULL, t->status == 405);
	ck_assert_ptr_null(route_find(&table, &head, &e, &allow));
	ck_assert_int_eq(e.status, t->status == 404 ? 404 : 405);
}
END_TEST

Suite *route_suite(void)
{
	Suite *s = suite_create("route");
	TCase *tc = tcase_create("find");
	tcase_add_loop_test(tc, find, 0, sizeof(cases) / sizeof(cases[0]));
	suite_add_tcase(s, tc);
	tc = tcase_create("site");
	tcase_add_loop_test(tc, site, 0, sizeof(sites) / sizeof(sites[0]));
	tcase_add_test(tc, two_headers_are_none);
	tcase_add_loop_test(tc, answers_to_an_allowed_origin, 0, sizeof(cors) / sizeof(cors[0]));
	tcase_add_loop_test(tc, preflight, 0, sizeof(preflights) / sizeof(preflights[0]));
	suite_add_tcase(s, tc);
	return s;
}
