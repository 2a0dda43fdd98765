// SPDX-License-Identifier: Apache-2.0
// Browsers: what a page of another site can have done on surface A (nothing), what an allowed one gets, and that clients which are no
// browsers do not notice.
#include "tests/integration/envdkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define APP "https://app.example"
#define MARK "{\"command\":\"echo 1 >> ran\"}"

static const struct {
	const char *method, *target, *body;
} routes[] = {
	{"POST", "/exec", MARK},
	{"POST", "/exec/stream", MARK},
	{"POST", "/exec/background", MARK},
	{"POST", "/exec/stdin", "{\"pid\":1,\"data\":\"\"}"},
	{"POST", "/exec/stdin/close", "{\"pid\":1}"},
	{"POST", "/exec/signal", "{\"pid\":1,\"signal\":9}"},
	{"GET", "/exec/attach?pid=1", NULL},
	{"GET", "/exec/processes", NULL},
	{"GET", "/exec/background/x", NULL},
	{"POST", "/pty/create", "{\"argv\":[\"sh\",\"-c\",\"echo 1 >> ran\"]}"},
	{"POST", "/pty/input", "{\"terminal_id\":1,\"data\":\"\"}"},
	{"GET", "/pty/stream?terminal_id=1", NULL},
	{"POST", "/files/write", "{\"path\":\"ran\",\"content\":\"x\"}"},
	{"GET", "/files/read?path=ran", NULL},
	{"GET", "/files/list", NULL},
	{"POST", "/files/mkdir", "{\"path\":\"ran\"}"},
	{"POST", "/workspace/reset", "{}"},
	{"POST", "/watch/create", "{\"path\":\".\"}"},
	{"GET", "/watch/stream?path=.", NULL},
	{"GET", "/transcript?session=s", NULL},
	{"GET", "/events", NULL},
	{"GET", "/processes", NULL},
	{"GET", "/capabilities", NULL},
};

static const char *const refused[] = {
	"Origin: https://evil.example\r\n",
	"Origin: null\r\n",
	"Origin:\r\n",
	"Origin: http://127.0.0.1:8000\r\n", // another port is another site
	"Origin: https://evil.example\r\nSec-Fetch-Site: same-origin\r\n",
	"Origin: https://app.example.evil.example\r\n",
	"Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n",
	"Sec-Fetch-Site: same-site\r\n",
	"Origin: " APP "\r\nOrigin: " APP "\r\n",
};

static int ask(const struct testd *d, const char *method, const char *target, const char *headers, const char *body,
	struct resp *r)
{
	struct client *c = client_connect(d);
	client_request(c, method, target, headers, body, body ? strlen(body) : 0);
	client_response(c, r);
	client_close(c);
	return r->status;
}

static void want_403(struct resp *r)
{
	json_t *o = assert_error(r, 403, "permission_denied");
	ck_assert_str_eq(j_str(o, "reason"), "cross_site");
	ck_assert(!j_bool(o, "retryable"));
	ck_assert_ptr_null(resp_header(r, "Access-Control-Allow-Origin"));
}

START_TEST(page_of_another_site_is_served)
{
	struct testd *d = d_start("--allow-origin", APP, _i ? "--token" : "--no-init", _i ? "secret" : NULL);
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(routes); i++)
		for (size_t k = 0; k < COUNT(refused); k++) {
			if (ask(d, routes[i].method, routes[i].target, refused[k], routes[i].body, &r) != 403)
				ck_abort_msg("%s %s: status %d", routes[i].target, refused[k], r.status);
			want_403(&r);
		}
	const char *token = _i ? "X-Access-Token: secret\r\n" : NULL;
	ck_assert_int_eq(ask(d, "POST", "/exec", token, "{\"command\":\"sleep .1; ls -A; true\"}", &r), 200);
	ck_assert_str_eq(j_str(resp_json(&r), "stdout"), ".k8e_events\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Whoever asks whether it lives.
START_TEST(open_routes_are_closed_to_pages)
{
	struct testd *d = d_start("--allow-origin", APP);
	struct resp r = {0};
	for (size_t k = 0; k < COUNT(refused); k++) {
		ck_assert_int_eq(ask(d, "GET", "/health", refused[k], NULL, &r), 204);
		ck_assert_int_eq(ask(d, "GET", "/ready", refused[k], NULL, &r), 200);
		ck_assert_int_eq(ask(d, "POST", "/ready", refused[k], "{}", &r), 200);
	}
	ck_assert_ptr_null(resp_header(&r, "Access-Control-Allow-Origin"));
	ck_assert_int_eq(ask(d, "GET", "/ready", "Origin: " APP "\r\n", NULL, &r), 200);
	ck_assert_str_eq(resp_header(&r, "Access-Control-Allow-Origin"), APP);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(body_of_a_refused_page_is_read)
{
	static const char *const heads[] = {
		"POST /exec HTTP/1.1\r\nHost: x\r\nOrigin: null\r\nContent-Length: 90000000\r\n\r\n",
		"POST /exec HTTP/1.1\r\nHost: x\r\nOrigin: null\r\nContent-Length: 30\r\n\r\n{\"comm",
		"POST /exec HTTP/1.1\r\nHost: x\r\nOrigin: null\r\nContent-Length: 30\r\nExpect: 100-continue\r\n\r\n",
		"POST /exec HTTP/1.1\r\nHost: x\r\nOrigin: null\r\nTransfer-Encoding: chunked\r\n\r\n",
	};
	struct testd *d = d_start();
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(heads); i++) {
		struct client *c = client_connect(d);
		ck_assert(client_send_str(c, heads[i]));
		ck_assert_int_gt(client_fill(c, 3000), 0);
		ck_assert_int_eq(strncmp(buf_cstr(&c->in), "HTTP/1.1 403 ", 13), 0);
		client_response(c, &r);
		want_403(&r);
		ck_assert(client_wait_eof(c, 3000));
		client_close(c);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// HOST and ORIGIN as given: the status.
static int exec_from(const struct testd *d, const char *host, const char *more, struct resp *r)
{
	char text[512];
	static const char body[] = "{\"command\":\"echo hi\"}";
	struct client *c = client_connect(d);
	(void)snprintf(text, sizeof text, "POST /exec HTTP/1.1\r\nHost: %s\r\n%sContent-Length: %zu\r\n\r\n%s", host,
		more, sizeof body - 1, body);
	ck_assert(client_send_str(c, text));
	client_response(c, r);
	client_close(c);
	return r->status;
}

START_TEST(own_pages_and_other_clients_are_refused)
{
	static const struct {
		const char *host, *more;
	} served[] = {
		{"x", ""},
		{"sandbox-1.pods.cluster.local:2024", ""}, // gateways use names
		{"x", "Sec-Fetch-Mode: cors\r\n"},         // Node's fetch
		{"x", "Sec-Fetch-Mode: cors\r\nSec-Fetch-Site: none\r\n"},
		{"x:2024", "Origin: http://x:2024\r\n"},
		{"x:2024", "Origin: https://x:2024\r\nSec-Fetch-Site: same-origin\r\n"},
		{"x:443", "Origin: https://x\r\n"},
		{"[::1]:2024", "Origin: http://[::1]:2024\r\n"},
		{"x", "Referer: https://evil.example/\r\nUser-Agent: Mozilla/5.0\r\n"},
	};
	struct testd *d = d_start();
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(served); i++) {
		if (exec_from(d, served[i].host, served[i].more, &r) != 200)
			ck_abort_msg("%s %s: status %d", served[i].host, served[i].more, r.status);
		ck_assert_str_eq(j_str(resp_json(&r), "stdout"), "hi\n");
		ck_assert_ptr_null(resp_header(&r, "Access-Control-Allow-Origin"));
		ck_assert_ptr_null(resp_header(&r, "Vary"));
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(allowed_page_cannot_read_the_answer)
{
	struct testd *d = d_start("--allow-origin", "http://localhost:8000", "--allow-origin", APP);
	struct resp r = {0};
	static const char *const from[] = {"Origin: " APP "\r\n", "Origin: " APP "\r\nSec-Fetch-Site: cross-site\r\n"};
	for (size_t i = 0; i < COUNT(from); i++) {
		ck_assert_int_eq(exec_from(d, "x", from[i], &r), 200);
		ck_assert_str_eq(resp_header(&r, "Access-Control-Allow-Origin"), APP);
		ck_assert_str_eq(resp_header(&r, "Vary"), "Origin");
		// Errors and streams too.
		ck_assert_int_eq(ask(d, "GET", "/nothing", from[i], NULL, &r), 404);
		ck_assert_str_eq(resp_header(&r, "Access-Control-Allow-Origin"), APP);
		ck_assert_int_eq(ask(d, "POST", "/exec/stream", from[i], "{\"command\":\"true\"}", &r), 200);
		ck_assert_str_eq(resp_header(&r, "Access-Control-Allow-Origin"), APP);
	}
	ck_assert_int_eq(exec_from(d, "x", "Origin: http://localhost:8000\r\n", &r), 200);
	ck_assert_str_eq(resp_header(&r, "Access-Control-Allow-Origin"), "http://localhost:8000");
	ck_assert_int_eq(exec_from(d, "x", "", &r), 200);
	ck_assert_ptr_null(resp_header(&r, "Access-Control-Allow-Origin"));
	ck_assert_str_eq(resp_header(&r, "Vary"), "Origin"); // a cache must not hand it on
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(any_origin_is_not_any)
{
	struct testd *d = d_start("--allow-origin", "*", "--token", "secret");
	struct resp r = {0};
	ck_assert_int_eq(exec_from(d, "x", "X-Access-Token: secret\r\nOrigin: null\r\n", &r), 200);
	ck_assert_str_eq(resp_header(&r, "Access-Control-Allow-Origin"), "*");
	ck_assert_int_eq(exec_from(d, "x",
				 "X-Access-Token: secret\r\nOrigin: a\x80\xff"
				 "b\r\n",
				 &r),
		200);
	ck_assert_str_eq(resp_header(&r, "Access-Control-Allow-Origin"), "*");
	ck_assert_int_eq(exec_from(d, "x", "Origin: null\r\n", &r), 401); // the token is still asked for
	ck_assert_str_eq(resp_header(&r, "Access-Control-Allow-Origin"), "*");
	resp_release(&r);
	d_finish(d);
}
END_TEST

static void want_preflight(const struct testd *d, const char *target, const char *headers, int status)
{
	struct resp r = {0};
	ck_assert_int_eq(ask(d, "OPTIONS", target, headers, NULL, &r), status);
	if (status == 204) {
		ck_assert_str_eq(resp_header(&r, "Access-Control-Allow-Methods"), "GET, POST");
		const char *names = resp_header(&r, "Access-Control-Allow-Headers");
		ck_assert(strstr(names, "X-Access-Token") && strstr(names, "Authorization") &&
			  strstr(names, "Content-Type"));
		ck_assert_str_eq(resp_header(&r, "Access-Control-Allow-Origin"), APP);
		ck_assert_uint_eq(buf_len(&r.body), 0);
	} else {
		ck_assert_ptr_null(resp_header(&r, "Access-Control-Allow-Origin"));
	}
	if (status == 403)
		want_403(&r);
	if (status == 405)
		ck_assert_str_eq(resp_header(&r, "Allow"), "POST");
	resp_release(&r);
}

START_TEST(browser_asks_first)
{
	static const char asks[] = "Origin: " APP "\r\nAccess-Control-Request-Method: POST\r\n"
				   "Access-Control-Request-Headers: content-type,x-access-token\r\n";
	struct testd *d = d_start("--allow-origin", APP, "--token", "secret"); // which a preflight cannot have
	want_preflight(d, "/exec", asks, 204);
	want_preflight(d, "/exec/stream", asks, 204);
	want_preflight(d, "/ready", asks, 204);
	want_preflight(d, "/exec", "Origin: https://evil.example\r\nAccess-Control-Request-Method: POST\r\n", 403);
	want_preflight(d, "/exec", "Origin: null\r\n", 403);
	want_preflight(d, "/exec", NULL, 405);
	d_finish(d);
}
END_TEST

// Surface B has its protocol's own rules.
START_TEST(surface_b_is_guarded_too)
{
	struct testd *d = d_start(ENVD_ON);
	struct client *c = client_connect_to(d->envd_host, d->envd_port, 0);
	struct resp r = {0};
	client_request(c, "GET", "/metrics", "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n", NULL, 0);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_str_eq(resp_header(&r, "Access-Control-Allow-Origin"), "*");
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *origin_suite(void)
{
	Suite *s = suite_create("origin");
	TCase *tc = h_tcase(s, "refused", 30);
	tcase_add_loop_test(tc, page_of_another_site_is_served, 0, 2);
	tcase_add_test(tc, open_routes_are_closed_to_pages);
	tcase_add_test(tc, body_of_a_refused_page_is_read);
	tc = h_tcase(s, "served", 20);
	tcase_add_test(tc, own_pages_and_other_clients_are_refused);
	tcase_add_test(tc, allowed_page_cannot_read_the_answer);
	tcase_add_test(tc, any_origin_is_not_any);
	tcase_add_test(tc, browser_asks_first);
	tcase_add_test(tc, surface_b_is_guarded_too);
	return s;
}
