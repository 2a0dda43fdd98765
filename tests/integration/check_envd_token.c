// SPDX-License-Identifier: Apache-2.0
// Surface B's access token: what it guards, who may set it, and that it guards surface A too (contract B 2.1, 5.4).
#include "tests/integration/envdkit.h"
#include "tests/integration/suites.h"

#include <stdio.h>
#include <string.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define TOKEN "Secret-Token.2026"
#define JSON "Content-Type: application/json\r\n"
#define STREAM "Content-Type: application/connect+json\r\n"

static const char refusal[] = "{\"code\":401,\"message\":\"unauthorized access, please provide a valid access token or "
			      "method signing if supported\"}\n";

static const struct {
	const char *method, *target, *type;
} guarded[] = {
	{"GET", "/metrics", ""},
	{"GET", "/envs", ""},
	{"GET", "/nope", ""},
	{"GET", "/", ""},
	{"POST", "/health", ""},
	{"PUT", "/files", ""},
	{"OPTIONS", "/files", ""},
	{"GET", "/files/", ""},
	{"GET", "/files/compose", ""},
	{"GET", "/init", ""},
	{"POST", "/files/compose", JSON},
	{"POST", "/freeze", ""},
	{"POST", "/upgrade", ""},
	{"POST", "/process.Process/List", JSON},
	{"POST", "/process.Process/SendSignal", JSON},
	{"POST", "/process.Process/Start", STREAM},
	{"POST", "/process.Process/StreamInput", STREAM},
	{"POST", "/process.Process/Nope", JSON},
	{"POST", "/filesystem.Filesystem/Stat", JSON},
	{"POST", "/filesystem.Filesystem/Remove", JSON},
	{"POST", "/filesystem.Filesystem/WatchDir", STREAM},
};

static const char *const wrong[] = {
	"",
	"X-Access-Token: wrong\r\n",
	"X-Access-Token: " TOKEN "x\r\n",
	"X-Access-Token: Secret-Token.202\r\n",
	"X-Access-Token: ecret-Token.2026\r\n",
	"X-Access-Token:\r\n",
	"X-Access-Token: secret-token.2026\r\n",
	"X-Access-Token: SECRET-TOKEN.2026\r\n",
	"X-Access-Token: Bearer " TOKEN "\r\n",
	"X-Access-Tokens: " TOKEN "\r\n",
	"Authorization: Bearer " TOKEN "\r\n",
	"Cookie: X-Access-Token=" TOKEN "\r\n",
};

static const char *const right[] = {
	"X-Access-Token: " TOKEN "\r\n",
	"x-access-token: " TOKEN "\r\n",
	"X-ACCESS-TOKEN:" TOKEN "  \r\n",
};

static void want_refused(struct resp *r)
{
	envd_want_rest(r, 401);
	ck_assert_str_eq(buf_cstr(&r->body), refusal);
}

START_TEST(answers_are_those_of_the_golden_exchanges)
{
	static const char *const skip[] = {"stream", NULL};
	struct testd *d = d_start(ENVD_ON);
	envd_play_golden(d, "token", skip);
	d_finish(d);
}
END_TEST

// B55
START_TEST(only_the_token_opens_a_route)
{
	struct testd *d = d_start(ENVD_ON, "--token", TOKEN);
	struct resp r = {0};
	char lines[300];
	for (size_t i = 0; i < COUNT(guarded); i++) {
		for (size_t k = 0; k < COUNT(wrong); k++) {
			(void)snprintf(lines, sizeof lines, "%s%s", guarded[i].type, wrong[k]);
			envd_req(d, guarded[i].method, guarded[i].target, lines, NULL, 0, &r);
			ck_assert_msg(r.status == 401, "%s %s %s: %d", guarded[i].method, guarded[i].target, wrong[k],
				r.status);
			want_refused(&r);
		}
		for (size_t k = 0; k < COUNT(right); k++) {
			(void)snprintf(lines, sizeof lines, "%s%s", guarded[i].type, right[k]);
			envd_req(d, guarded[i].method, guarded[i].target, lines, "", 0, &r);
			ck_assert_msg(r.status != 401, "%s %s %s", guarded[i].method, guarded[i].target, right[k]);
		}
	}
	envd_req(d, "GET", "/health", NULL, NULL, 0, &r);
	ck_assert_int_eq(r.status, 204);
	envd_req(d, "HEAD", "/health", NULL, NULL, 0, &r);
	ck_assert_int_eq(r.status, 401);
	envd_req(d, "OPTIONS", "/process.Process/List", "Access-Control-Request-Method: POST\r\n", NULL, 0, &r);
	ck_assert_int_eq(r.status, 204);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B55
START_TEST(the_answer_does_not_wait_for_the_body)
{
	static const char heads[][160] = {
		"POST /process.Process/SendInput HTTP/1.1\r\nHost: x\r\n" JSON "Content-Length: 1000000\r\n\r\n",
		"POST /process.Process/StreamInput HTTP/1.1\r\nHost: x\r\n" STREAM "Transfer-Encoding: chunked\r\n\r\n",
		"POST /process.Process/Start HTTP/1.1\r\nHost: x\r\n" STREAM "Expect: 100-continue\r\n"
		"Content-Length: 1000\r\n\r\n",
	};
	struct testd *d = d_start(ENVD_ON, "--token", TOKEN);
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(heads); i++) {
		struct client *c = envd_connect(d);
		ck_assert(client_send_str(c, heads[i]));
		client_response(c, &r);
		want_refused(&r);
		client_close(c);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B55
START_TEST(only_who_knows_the_token_may_init)
{
	static const char *const refused[] = {"", "{}", "{\"accessToken\":null}", "{\"accessToken\":\"other\"}",
		"{\"accessToken\":\"secret-token.2026\"}", "{\"accessToken\":\"" TOKEN "x\"}",
		"{\"envVars\":{\"EVIL\":\"1\"}}", "{\"accessToken\":\"other\",\"envVars\":{\"EVIL\":\"1\"}}",
		"{\"timestamp\":\"2000-01-01T00:00:00Z\"}", "{\"defaultUser\":\"evil\"}"};
	static const char *const malformed[] = {"{bad", "[]", "null", "{\"accessToken\":\"\"}", "{\"accessToken\":5}",
		"{\"accessToken\":\"" TOKEN "\\u0000\"}"};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	ck_assert_int_eq(envd_init(d, "{\"envVars\":{\"A\":\"1\"}}"), 204);
	ck_assert_int_eq(envd_init(d, "{\"accessToken\":\"" TOKEN "\"}"), 204);
	for (size_t i = 0; i < COUNT(refused); i++)
		ck_assert_msg(envd_init(d, refused[i]) == 401, "%s", refused[i]);
	for (size_t i = 0; i < COUNT(malformed); i++)
		ck_assert_msg(envd_init(d, malformed[i]) == 400, "%s", malformed[i]);
	// The header does not help.
	envd_req(d, "POST", "/init", "X-Access-Token: " TOKEN "\r\n", "{}", 2, &r);
	envd_want_rest(&r, 401);
	envd_req(d, "GET", "/envs", right[0], NULL, 0, &r);
	ck_assert_str_eq(buf_cstr(&r.body), "{\"A\":\"1\",\"E2B_SANDBOX\":\"false\"}\n");
	ck_assert_int_eq(envd_init(d, "{\"accessToken\":\"" TOKEN "\",\"envVars\":{}}"), 204);
	envd_req(d, "GET", "/envs", right[0], NULL, 0, &r);
	ck_assert_str_eq(buf_cstr(&r.body), "{\"E2B_SANDBOX\":\"false\"}\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(a_token_of_the_command_line_is_no_one_s_to_change)
{
	struct testd *d = d_start(ENVD_ON, "--token", TOKEN);
	struct resp r = {0};
	ck_assert_int_eq(envd_init(d, "{}"), 401);
	ck_assert_int_eq(envd_init(d, "{\"accessToken\":\"mine\"}"), 401);
	ck_assert_int_eq(envd_init(d, "{\"accessToken\":\"" TOKEN "\",\"envVars\":{\"A\":\"1\"}}"), 204);
	envd_req(d, "GET", "/envs", right[0], NULL, 0, &r);
	ck_assert_str_eq(buf_cstr(&r.body), "{\"A\":\"1\",\"E2B_SANDBOX\":\"false\"}\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(a_token_that_init_sets_locks_both_surfaces)
{
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	req(d, "GET", "/processes", NULL, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_int_eq(envd_init(d, "{\"accessToken\":\"" TOKEN "\"}"), 204);
	req(d, "GET", "/processes", NULL, &r);
	assert_error(&r, 401, "unauthenticated");
	struct client *c = client_connect(d);
	envd_send(c, "GET", "/processes", right[0], NULL, 0);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	envd_send(c, "GET", "/health", NULL, NULL, 0);
	client_response(c, &r);
	ck_assert_int_eq(r.status / 100, 2);
	client_close(c);
	ck_assert(!d_log_has(d, TOKEN));
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(the_token_is_asked_for_before_the_user)
{
	struct testd *d = d_start(ENVD_ON, "--token", TOKEN);
	struct resp r = {0};
	envd_req(d, "POST", "/process.Process/List", JSON "Authorization: Basic bm9ib2R5LWhlcmU6\r\n", "{}", 2, &r);
	want_refused(&r);
	envd_req(d, "POST", "/process.Process/List",
		JSON "Authorization: Basic bm9ib2R5LWhlcmU6\r\nX-Access-Token: " TOKEN "\r\n", "{}", 2, &r);
	ck_assert_str_eq(envd_want_connect(&r, 401, "unauthenticated"), "invalid username: 'nobody-here'");
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *envd_token_suite(void)
{
	Suite *s = suite_create("envd_token");
	TCase *tc = h_tcase(s, "token", 20);
	tcase_add_test(tc, answers_are_those_of_the_golden_exchanges);
	tcase_add_test(tc, only_the_token_opens_a_route);
	tcase_add_test(tc, the_answer_does_not_wait_for_the_body);
	tcase_add_test(tc, only_who_knows_the_token_may_init);
	tcase_add_test(tc, a_token_of_the_command_line_is_no_one_s_to_change);
	tcase_add_test(tc, a_token_that_init_sets_locks_both_surfaces);
	tcase_add_test(tc, the_token_is_asked_for_before_the_user);
	return s;
}
