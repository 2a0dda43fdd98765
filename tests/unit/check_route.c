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

Suite *route_suite(void)
{
	Suite *s = suite_create("route");
	TCase *tc = tcase_create("find");
	tcase_add_loop_test(tc, find, 0, sizeof(cases) / sizeof(cases[0]));
	suite_add_tcase(s, tc);
	return s;
}
