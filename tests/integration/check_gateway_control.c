// SPDX-License-Identifier: Apache-2.0
// The gateway's control plane as E2B's SDKs call it: create, get, list, errors. What becomes of sandboxes over time is in check_gateway_life.c.
#include "tests/integration/gatewaykit.h"
#include "tests/integration/suites.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

static const char *const strings[] = {"templateID", "sandboxID", "clientID", "envdVersion"};

// The members that Python's SDK does not live without, and none of the nulls that it does not bear.
static void want_sandbox(const json_t *o)
{
	static const char *const nullable[] = {"alias", "metadata", "volumeMounts", "allowInternetAccess", "domain",
		"envdAccessToken", "trafficAccessToken"};
	const char *key;
	json_t *value;
	for (size_t i = 0; i < COUNT(strings); i++)
		ck_assert_str_ne(j_str(o, strings[i]), "");
	ck_assert_str_eq(j_str(o, "envdVersion"), "0.6.13");
	for (const char *p = j_str(o, "sandboxID"); *p; p++)
		ck_assert_msg(islower(*p) || isdigit(*p), "id %s", j_str(o, "sandboxID"));
	json_object_foreach((json_t *)(uintptr_t)o, key, value)
	{
		bool may = false;
		for (size_t i = 0; i < COUNT(nullable); i++)
			may = may || strcmp(nullable[i], key) == 0;
		ck_assert_msg(may || !json_is_null(value), "%s is null", key);
	}
}

// RFC 3339 in UTC with a Z: seconds since 1970.
static time_t moment(const json_t *o, const char *key)
{
	struct tm tm = {0};
	const char *text = j_str(o, key), *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	ck_assert_msg(end && (*end == '.' || *end == 'Z') && text[strlen(text) - 1] == 'Z', "%s: %s", key, text);
	return timegm(&tm);
}

static void want_listed(const json_t *o, const char *state)
{
	want_sandbox(o);
	ck_assert_str_eq(j_str(o, "state"), state);
	ck_assert_int_ge(moment(o, "endAt"), moment(o, "startedAt"));
	ck_assert_int_gt(j_int(o, "cpuCount"), 0);
	ck_assert_int_gt(j_int(o, "memoryMB"), 0);
	ck_assert_int_ge(j_int(o, "diskSizeMB"), 0);
}

START_TEST(create_of_some_generation_fails)
{
	struct gw *g = gw_start("--pool", "1");
	struct resp r = {0};
	static const struct {
		const char *target, *body;
	} cases[] = {
		// As the current JavaScript and Python SDKs send it, the one before, and with members that nobody knows.
		{"/v2/sandboxes", "{\"templateID\":\"base\",\"metadata\":{\"app\":\"x y\"},\"timeout\":60}"},
		{"/v2/sandboxes", "{\"templateID\":\"base\",\"timeout\":60,\"metadata\":{},\"envVars\":{}}"},
		{"/sandboxes",
			"{\"templateID\":\"base\",\"timeout\":300,\"secure\":true,\"allow_internet_access\":true}"},
		{"/v2/sandboxes",
			"{\"templateID\":\"base\",\"later\":{\"a\":[1,null]},\"network\":{\"allowOut\":[\"1.1.1.1\"],"
			"\"egressProxy\":{\"address\":\"a:1\",\"password\":\"secret\"}},\"iam\":{},\"mcp\":{}}"},
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct sbx s;
		gw_want(g, "POST", cases[i].target, cases[i].body, 201, &r);
		want_sandbox(resp_json(&r));
		gw_take_sandbox(&r, &s);
		ck_assert_str_ne(s.token, "");
		char port[32];
		(void)snprintf(port, sizeof port, "localhost:%d", g->d->port);
		ck_assert_str_eq(s.domain, port);
		ck_assert_int_eq(gw_health(g, &s), 204);
		gw_on(g, "GET", "/sandboxes/%s", s.id, NULL, 200, &r);
		want_listed(resp_json(&r), "running");
		ck_assert_ptr_null(strstr(buf_cstr(&r.body), "secret"));
		ck_assert_str_eq(j_str(resp_json(&r), "envdAccessToken"), s.token);
		const json_t *life = j_get(resp_json(&r), "lifecycle");
		ck_assert_str_eq(j_str(life, "onTimeout"), "kill");
		ck_assert(!j_bool(life, "autoResume"));
		gw_kill(g, &s);
	}
	resp_release(&r);
	gw_finish(g);
}
END_TEST

// JavaScript's SDK sends every body chunked.
START_TEST(chunked_body_is_not_read)
{
	struct gw *g = gw_start("--pool", "1");
	struct client *c = client_connect(g->d);
	struct resp r = {0};
	client_send_str(c, "POST /v2/sandboxes HTTP/1.1\r\nHost: localhost\r\n" GW_KEY
			   "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
			   "3\r\n{\"t\r\n16\r\nemplateID\":\"base\",\"met\r\n");
	client_send_str(c, "1c\r\nadata\":{\"a\":\"chunk\"}       }\r\n0\r\n\r\n");
	client_response(c, &r);
	ck_assert_msg(r.status == 201, "%d %s", r.status, buf_cstr(&r.body));
	// The same connection goes on, to the sandbox and back.
	struct sbx s;
	gw_take_sandbox(&r, &s);
	client_request(c, "GET", "/health", s.headers, NULL, 0);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 204);
	char target[128];
	(void)snprintf(target, sizeof target, "/sandboxes/%s", s.id);
	client_request(c, "GET", target, GW_KEY, NULL, 0);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_str_eq(j_str(j_get(resp_json(&r), "metadata"), "a"), "chunk");
	client_close(c);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

static void want_no_slots(const struct gw *g)
{
	json_t *slots = gw_slots(g);
	ck_assert_uint_eq(json_array_size(slots), 0);
	json_decref(slots);
}

START_TEST(error_has_another_body_than_the_sdks_read)
{
	struct gw *g = gw_start("--pool", "0");
	struct resp r = {0};
	static const struct {
		const char *method, *target, *body;
		int status;
		const char *message; // NULL: free
	} cases[] = {
		{"POST", "/v2/sandboxes", "{\"templateID\":\"nope\"}", 404, NULL},
		{"POST", "/v2/sandboxes", "{\"templateID\":\"base\",\"timeout\":0}", 400,
			"Timeout must be greater than 0"},
		{"POST", "/sandboxes", "{\"templateID\":\"base\",\"timeout\":-1}", 400,
			"Timeout must be greater than 0"},
		{"POST", "/v2/sandboxes", "{\"templateID\":\"base\",\"autoPauseMemory\":false}", 400, NULL},
		{"POST", "/v2/sandboxes",
			"{\"templateID\":\"base\",\"autoPause\":true,\"autoPauseMemory\":false,\"autoResume\":{"
			"\"enabled\":true}}",
			400, NULL},
		{"POST", "/v2/sandboxes", "{\"templateID\":\"base\"", 400, NULL},
		{"POST", "/v2/sandboxes", "[]", 400, NULL},
		{"POST", "/v2/sandboxes", "{}", 400, NULL},
		{"POST", "/v2/sandboxes", "{\"templateID\":\"base\",\"envVars\":{\"A\":1}}", 400, NULL},
		{"POST", "/v2/sandboxes", "{\"templateID\":\"base\",\"metadata\":[]}", 400, NULL},
		{"GET", "/sandboxes/inone", NULL, 404,
			"Sandbox \"inone\" doesn't exist or you don't have access to it"},
		{"DELETE", "/sandboxes/inone", NULL, 404,
			"Sandbox \"inone\" doesn't exist or you don't have access to it"},
		{"POST", "/sandboxes/inone/timeout", "{\"timeout\":3}", 404, NULL},
		{"POST", "/sandboxes/inone/pause", "{}", 404, NULL},
		{"POST", "/sandboxes/inone/pause", NULL, 404, NULL},
		{"POST", "/sandboxes/inone/snapshots", "{}", 404, NULL},
		{"POST", "/sandboxes/inone/fork", "{}", 404, NULL},
		{"GET", "/sandboxes/inone/metrics", NULL, 404, NULL},
		{"PUT", "/sandboxes/inone/network", "{}", 404, NULL},
		{"POST", "/v2/sandboxes/inone/connect", "{}", 404, NULL},
		{"POST", "/sandboxes/inone/connect", "{\"timeout\":300}", 404, NULL},
		{"DELETE", "/templates/nope", NULL, 404, NULL},
		{"DELETE", "/templates/team%2Fname%3Atag", NULL, 404, NULL},
		{"GET", "/templates/aliases/base", NULL, 404, NULL},
		{"GET", "/v2/templates", NULL, 404, NULL},
		{"GET", "/volumes", NULL, 404, NULL},
		{"GET", "/secrets", NULL, 404, NULL},
		{"GET", "/", NULL, 404, NULL},
		{"GET", "/v2/sandboxes?limit=0", NULL, 400, NULL},
		{"GET", "/v2/sandboxes?limit=101", NULL, 400, NULL},
		{"GET", "/v2/sandboxes?nextToken=x", NULL, 400, NULL},
		{"GET", "/v2/sandboxes?state=gone", NULL, 400, NULL},
		{"GET", "/v2/sandboxes?startedAfter=yesterday", NULL, 400, NULL},
		{"PATCH", "/v2/sandboxes", "{}", 405, NULL},
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		gw_want(g, cases[i].method, cases[i].target, cases[i].body, cases[i].status, &r);
		gw_error(&r, cases[i].status, cases[i].message);
	}
	want_no_slots(g); // nothing of all that has begun a sandbox
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(key_is_not_asked_for)
{
	static const char *const targets[] = {
		"/v2/sandboxes", "/sandboxes/ix", "/snapshots", "/gateway/sandboxes", "/nowhere"};
	static const char *const given[] = {NULL, "X-API-Key: \r\n", "X-API-Key: other\r\n", "X-API-Key: right\r\n"};
	struct resp r = {0};
	for (int fixed = 0; fixed < 2; fixed++) {
		struct gw *g = fixed ? gw_start("--pool", "0", "--api-key", "right") : gw_start("--pool", "0");
		for (size_t i = 0; i < COUNT(targets) * COUNT(given); i++) {
			size_t key = i % COUNT(given), target = i / COUNT(given);
			bool ok = key == 3 || (key == 2 && !fixed);
			struct client *c = client_connect(g->d);
			client_request(c, "GET", targets[target], given[key], NULL, 0);
			client_response(c, &r);
			if (ok)
				ck_assert_int_ne(r.status, 401);
			else if (target < 4)
				gw_error(&r, 401, NULL);
			else
				ck_assert_int_ge(r.status, 400);
			client_close(c);
		}
		gw_finish(g);
	}
	resp_release(&r);
}
END_TEST

static size_t listed(const struct gw *g, const char *query, struct resp *r)
{
	char target[512];
	(void)snprintf(target, sizeof target, "/v2/sandboxes%s", query);
	gw_want(g, "GET", target, NULL, 200, r);
	return json_array_size(gw_array(r));
}

START_TEST(list_leaves_sandboxes_out)
{
	struct gw *g = gw_start("--pool", "0", "--template", "other");
	struct sbx s[5];
	struct resp r = {0};
	char query[256];
	ck_assert_uint_eq(listed(g, "", &r), 0);
	gw_create(g, &s[0], "{\"templateID\":\"base\",\"metadata\":{\"a b\":\"c&d\",\"n\":\"0\"}}");
	gw_create(g, &s[1], "{\"templateID\":\"base\",\"metadata\":{\"n\":\"1\"}}");
	gw_create(g, &s[2], "{\"templateID\":\"other\",\"metadata\":{\"n\":\"1\",\"a b\":\"c\"}}");
	gw_create(g, &s[3], GW_BASE);
	gw_create(g, &s[4], GW_BASE);
	gw_on(g, "POST", "/sandboxes/%s/pause", s[3].id, "{}", 204, &r);
	// All of them, the newest first, or the oldest.
	ck_assert_uint_eq(listed(g, "", &r), 5);
	ck_assert_ptr_null(resp_header(&r, "X-Next-Token"));
	for (size_t i = 0; i < 5; i++) {
		const json_t *o = json_array_get(gw_array(&r), i);
		want_listed(o, i == 1 ? "paused" : "running");
		ck_assert_str_eq(j_str(o, "sandboxID"), s[4 - i].id);
		ck_assert(!j_has(o, "envdAccessToken"));
	}
	ck_assert_uint_eq(listed(g, "?order=asc", &r), 5);
	ck_assert_str_eq(j_str(json_array_get(gw_array(&r), 0), "sandboxID"), s[0].id);
	static const struct {
		const char *query;
		size_t count;
	} cases[] = {
		{"?state=running", 4},
		{"?state=paused", 1},
		{"?state=running%2Cpaused", 5},
		{"?state=running,paused", 5},
		{"?template=other", 1},
		{"?template=base", 4},
		{"?template=none", 0},
		{"?metadata=n%3D1", 2},
		{"?metadata=a%252520b%3Dc%252526d", 1},
		{"?metadata=a%252520b%3Dc%252526d%26n%3D0", 1},
		{"?metadata=a%252520b%3Dc%252526d%26n%3D1", 0},
		{"?metadata=n%3D1&template=other", 1},
		{"?metadata=none%3D1", 0},
		{"?startedAfter=2020-01-01T00%3A00%3A00Z", 5},
		{"?startedAfter=2020-01-01T00%3A00%3A00%2B01%3A00", 5},
		{"?startedAfter=2200-01-01T00%3A00%3A00.000Z", 0},
	};
	for (size_t i = 0; i < COUNT(cases); i++)
		ck_assert_msg(
			listed(g, cases[i].query, &r) == cases[i].count, "%s: %s", cases[i].query, buf_cstr(&r.body));
	gw_want(g, "GET", "/sandboxes", NULL, 200, &r); // of old: the running ones
	ck_assert_uint_eq(json_array_size(gw_array(&r)), 4);
	// Its own moment is included.
	gw_on(g, "GET", "/sandboxes/%s", s[4].id, NULL, 200, &r);
	(void)snprintf(query, sizeof query, "?startedAfter=%s", j_str(resp_json(&r), "startedAt"));
	ck_assert_uint_ge(listed(g, query, &r), 1);
	ck_assert_str_eq(j_str(json_array_get(gw_array(&r), 0), "sandboxID"), s[4].id);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(pages_repeat_or_skip)
{
	struct gw *g = gw_start("--pool", "0");
	struct sbx s[5], late;
	struct resp r = {0};
	char query[256];
	for (int i = 0; i < 5; i++)
		gw_create(g, &s[i], GW_BASE);
	for (int asc = 0; asc < 2; asc++) {
		size_t seen = 0;
		(void)snprintf(query, sizeof query, "?limit=2&order=%s", asc ? "asc" : "desc");
		for (int page = 0; page < 3; page++) {
			size_t n = listed(g, query, &r);
			ck_assert_uint_eq(n, page < 2 ? 2 : 1);
			for (size_t i = 0; i < n; i++, seen++)
				ck_assert_str_eq(j_str(json_array_get(gw_array(&r), i), "sandboxID"),
					s[asc ? seen : 4 - seen].id);
			const char *next = resp_header(&r, "X-Next-Token");
			ck_assert_msg((page < 2) == (next && *next), "page %d: next %s", page, next ? next : "none");
			if (!next)
				break;
			(void)snprintf(
				query, sizeof query, "?limit=2&order=%s&nextToken=%s", asc ? "asc" : "desc", next);
			if (page == 0 && !asc) { // one that comes meanwhile is on no later page
				gw_create(g, &late, GW_BASE);
				gw_kill(g, &late);
			}
		}
		ck_assert_uint_eq(seen, 5);
	}
	// Exactly full: no further page.
	ck_assert_uint_eq(listed(g, "?limit=5", &r), 5);
	ck_assert_ptr_null(resp_header(&r, "X-Next-Token"));
	resp_release(&r);
	gw_finish(g);
}
END_TEST

// Python's SDK sends a create again when it was not answered.
START_TEST(create_that_is_sent_again_makes_another_sandbox)
{
	static const char key[] = GW_KEY "Idempotency-Key: key-1\r\n", wrong[] = GW_KEY "Idempotency-Key: A key!\r\n";
	static const char other[] = "{\"templateID\":\"base\",\"timeout\":5}";
	struct gw *g = gw_start("--pool", "0");
	struct resp r = {0};
	struct sbx s, same;
	struct client *c[3];
	for (int i = 0; i < 3; i++) { // the last ones while the first is at work
		c[i] = client_connect(g->d);
		client_request(c[i], "POST", "/v2/sandboxes", key, GW_BASE, sizeof GW_BASE - 1);
	}
	for (int i = 0; i < 3; i++) {
		client_response(c[i], &r);
		ck_assert_msg(r.status == 201, "%d %s", r.status, buf_cstr(&r.body));
		gw_take_sandbox(&r, i ? &same : &s);
		ck_assert(i == 0 || strcmp(s.id, same.id) == 0);
	}
	client_request(c[0], "POST", "/v2/sandboxes", key, GW_BASE, sizeof GW_BASE - 1);
	client_response(c[0], &r);
	gw_take_sandbox(&r, &same);
	ck_assert_str_eq(s.id, same.id);
	ck_assert_uint_eq(listed(g, "", &r), 1);
	client_request(c[0], "POST", "/v2/sandboxes", key, other, sizeof other - 1);
	client_response(c[0], &r);
	gw_error(&r, 409, NULL);
	client_request(c[0], "POST", "/v2/sandboxes", wrong, GW_BASE, sizeof GW_BASE - 1);
	client_response(c[0], &r);
	gw_error(&r, 400, NULL);
	ck_assert_uint_eq(listed(g, "", &r), 1);
	for (int i = 0; i < 3; i++)
		client_close(c[i]);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(killed_sandbox_is_still_there)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct resp r = {0};
	char old[128];
	gw_create(g, &s, GW_BASE);
	(void)snprintf(old, sizeof old, "%s-abc123", s.id); // old clients say it so
	gw_on(g, "GET", "/sandboxes/%s", old, NULL, 200, &r);
	gw_on(g, "DELETE", "/sandboxes/%s", old, NULL, 204, &r);
	gw_on(g, "DELETE", "/sandboxes/%s", s.id, NULL, 404, &r);
	gw_error(&r, 404, NULL);
	gw_on(g, "GET", "/sandboxes/%s", s.id, NULL, 404, &r);
	ck_assert_uint_eq(listed(g, "", &r), 0);
	gw_gone(g, &s);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(metrics_or_network_fail)
{
	struct gw *g = gw_start("--pool", "1");
	static const char *const numbers[] = {
		"timestampUnix", "cpuCount", "memUsed", "memTotal", "memCache", "diskUsed", "diskTotal"};
	struct sbx s;
	struct resp r = {0};
	gw_create(g, &s, GW_BASE);
	gw_on(g, "GET", "/sandboxes/%s/metrics?start=1&end=4000000000", s.id, NULL, 200, &r);
	const json_t *o;
	size_t i;
	json_array_foreach(gw_array(&r), i, o)
	{
		for (size_t k = 0; k < COUNT(numbers); k++)
			ck_assert_int_ge(j_int(o, numbers[k]), 0);
		ck_assert(json_is_number(j_get(o, "cpuUsedPct")));
		moment(o, "timestamp");
	}
	gw_on(g, "PUT", "/sandboxes/%s/network", s.id, "{\"allowOut\":[\"1.1.1.1\"],\"denyOut\":[\"0.0.0.0/0\"]}", 204,
		&r);
	gw_on(g, "GET", "/sandboxes/%s", s.id, NULL, 200, &r);
	ck_assert_uint_eq(json_array_size(j_get(j_get(resp_json(&r), "network"), "allowOut")), 1);
	gw_on(g, "PUT", "/sandboxes/%s/network", s.id, "{}", 204, &r);
	gw_on(g, "GET", "/sandboxes/%s", s.id, NULL, 200, &r);
	const json_t *network = json_object_get(resp_json(&r), "network");
	ck_assert(!network || !json_object_get(network, "allowOut"));
	resp_release(&r);
	gw_finish(g);
}
END_TEST

Suite *gateway_control_suite(void)
{
	Suite *s = suite_create("gateway_control");
	TCase *tc = h_tcase(s, "control", 60);
	tcase_add_test(tc, create_of_some_generation_fails);
	tcase_add_test(tc, chunked_body_is_not_read);
	tcase_add_test(tc, error_has_another_body_than_the_sdks_read);
	tcase_add_test(tc, key_is_not_asked_for);
	tcase_add_test(tc, list_leaves_sandboxes_out);
	tcase_add_test(tc, pages_repeat_or_skip);
	tcase_add_test(tc, create_that_is_sent_again_makes_another_sandbox);
	tcase_add_test(tc, killed_sandbox_is_still_there);
	tcase_add_test(tc, metrics_or_network_fail);
	return s;
}
