// SPDX-License-Identifier: Apache-2.0
// The proxy in front of the sandboxes: how they are named, and that requests and answers come through unchanged and unheld.
#include "tests/integration/envdkit.h"
#include "tests/integration/gatewaykit.h"
#include "tests/integration/suites.h"

#include "proto/sign.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

// A whole request of the test's own, on a connection of its own.
static void ask(const struct gw *g, struct resp *r, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
static void ask(const struct gw *g, struct resp *r, const char *fmt, ...)
{
	char text[4096];
	va_list ap;
	va_start(ap, fmt);
	ck_assert_int_lt(vsnprintf(text, sizeof text, fmt, ap), (int)sizeof text);
	va_end(ap);
	struct client *c = client_connect(g->d);
	resp_release(r);
	client_send_str(c, text);
	client_response(c, r);
	client_close(c);
}

START_TEST(sandbox_is_not_found_by_one_of_its_names)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s, t;
	struct resp r = {0};
	gw_create(g, &s, GW_BASE);
	gw_create(g, &t, GW_BASE);
	gw_put(g, &s, "who", "s", 1);
	gw_put(g, &t, "who", "t", 1);
	static const char *const hosts[] = {"49983-%s.localhost:%d", "49983-%s.LOCALHOST:%d",
		"49983-%s-abcd.localhost:%d", "49983-%s.example.org:%d"};
	for (size_t i = 0; i < COUNT(hosts); i++) {
		char host[200];
		const char *at = strstr(hosts[i], "%s");
		(void)snprintf(host, sizeof host, "%.*s%s%.*s%d", (int)(at - hosts[i]), hosts[i], t.id,
			(int)strlen(at) - 4, at + 2, g->d->port);
		ask(g, &r, "GET /files?path=who HTTP/1.1\r\nHost: %s\r\nX-Access-Token: %s\r\n\r\n", host, t.token);
		ck_assert_msg(r.status == 200, "%s: %d %s", host, r.status, buf_cstr(&r.body));
		assert_text(&r.body, "t");
	}
	// The headers are stronger than the Host; many requests to several on one connection.
	ask(g, &r, "GET /files?path=who HTTP/1.1\r\nHost: 49983-%s.localhost\r\n%s\r\n", t.id, s.headers);
	assert_text(&r.body, "s");
	struct client *c = client_connect(g->d);
	for (int i = 0; i < 6; i++) {
		client_request(c, "GET", "/files?path=who", i % 2 ? s.headers : t.headers, NULL, 0);
		client_response(c, &r);
		assert_text(&r.body, i % 2 ? "s" : "t");
		client_request(c, "GET", "/v2/sandboxes", GW_KEY, NULL, 0);
		client_response(c, &r);
		ck_assert_uint_eq(json_array_size(gw_array(&r)), 2);
	}
	client_close(c);
	static const char *const wrong[] = {"E2b-Sandbox-Id: %s\r\n", "E2b-Sandbox-Port: 1\r\nX-A: %s\r\n",
		"E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 0\r\n", "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 65536\r\n",
		"E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: x\r\n", "E2b-Sandbox-Id: A%s\r\nE2b-Sandbox-Port: 1\r\n",
		"E2b-Sandbox-Id: \r\nE2b-Sandbox-Port: 1\r\nX-A: %s\r\n"};
	for (size_t i = 0; i < COUNT(wrong); i++) {
		const char *at = strstr(wrong[i], "%s");
		ask(g, &r, "GET /health HTTP/1.1\r\nHost: localhost\r\n%.*s%s%s\r\n", (int)(at - wrong[i]), wrong[i],
			s.id, at + 2);
		ck_assert_msg(r.status == 400, "%s: %d", wrong[i], r.status);
	}
	resp_release(&r);
	gw_finish(g);
}
END_TEST

// What Python's and JavaScript's downloadUrl and uploadUrl give: nothing of it names the sandbox.
static void signed_url(
	struct buf *out, const struct sbx *s, const char *path, const char *operation, int64_t expiration)
{
	struct buf sig = {0};
	struct sign_url url = {.path = path,
		.path_n = strlen(path),
		.operation = operation,
		.user = "",
		.expires = expiration != 0,
		.expiration = expiration};
	sign_make(&sig, &url, s->token, strlen(s->token));
	buf_reset(out);
	buf_printf(out, "/files?path=%s&signature=", path);
	for (const char *p = buf_cstr(&sig); *p; p++)
		buf_str(out, *p == '+' ? "%2B" : *p == '/' ? "%2F" : *p == '=' ? "%3D" : (char[]){*p, '\0'});
	if (expiration)
		buf_printf(out, "&signature_expiration=%lld", (long long)expiration);
	buf_release(&sig);
}

START_TEST(signed_url_finds_another_sandbox_or_none)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s[3], open;
	struct resp r = {0};
	struct buf url = {0};
	int64_t now = (int64_t)time(NULL);
	for (int i = 0; i < 3; i++) {
		gw_create(g, &s[i], GW_BASE);
		gw_put(g, &s[i], "f", i == 0 ? "0" : i == 1 ? "1" : "2", 1);
	}
	for (int i = 0; i < 3; i++) {
		for (int expires = 0; expires < 2; expires++) {
			signed_url(&url, &s[i], "f", "read", expires ? now + 1000 : 0);
			ask(g, &r, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", buf_cstr(&url));
			ck_assert_msg(r.status == 200, "%s: %d %s", buf_cstr(&url), r.status, buf_cstr(&r.body));
			ck_assert_int_eq(buf_cstr(&r.body)[0], '0' + i);
		}
		signed_url(&url, &s[i], "up", "write", 0);
		ask(g, &r,
			"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: multipart/form-data; boundary=b\r\n"
			"Content-Length: 79\r\n\r\n--b\r\nContent-Disposition: form-data; name=\"file\"; "
			"filename=\"up\"\r\n\r\nup%d\r\n--b--\r\n",
			buf_cstr(&url), i);
		ck_assert_msg(r.status == 200, "%d %s", r.status, buf_cstr(&r.body));
		char *text = gw_sh(g, &s[i], "cat up");
		ck_assert_int_eq(text[2], '0' + i);
		free(text);
	}
	signed_url(&url, &s[0], "f", "read", now - 5);
	ask(g, &r, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", buf_cstr(&url));
	ck_assert_int_eq(r.status, 401);
	signed_url(&url, &s[0], "f", "write", 0);
	ask(g, &r, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", buf_cstr(&url));
	ck_assert_int_ge(r.status, 400);
	gw_kill(g, &s[1]);
	signed_url(&url, &s[1], "f", "read", 0);
	ask(g, &r, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", buf_cstr(&url));
	ck_assert_int_ge(r.status, 400);
	// Without signature: only an unsecured one, and only if it is the only one.
	ask(g, &r, "GET /files?path=f HTTP/1.1\r\nHost: localhost\r\n\r\n");
	ck_assert_int_ge(r.status, 400);
	gw_kill(g, &s[0]);
	gw_kill(g, &s[2]);
	gw_create(g, &open, "{\"templateID\":\"base\",\"secure\":false}");
	ck_assert_str_eq(open.token, "");
	gw_put(g, &open, "f", "open", 4);
	ask(g, &r, "GET /files?path=f HTTP/1.1\r\nHost: localhost\r\n\r\n");
	assert_text(&r.body, "open");
	buf_release(&url);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

// Headers for PORT of S.
static const char *port_headers(const struct sbx *s, int port)
{
	static char text[256];
	(void)snprintf(text, sizeof text, "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: %d\r\n", s->id, port);
	return text;
}

START_TEST(request_to_a_port_is_changed)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct stream *run;
	struct resp r = {0};
	char want[1024];
	gw_create(g, &s, GW_BASE);
	int port = gw_serve(g, &s, &run);
	static const char lines[] =
		"Accept-Encoding: br, x\r\nX-Odd:   blanks \r\nCookie: a=b\r\nCookie: c=d\r\nContent-Length: 0\r\n";
	ask(g, &r, "DELETE /any%%2Fpath//x?q=1&q=%%20+2 HTTP/1.1\r\nHost: %d-%s.localhost:%d\r\n%s\r\n", port, s.id,
		g->d->port, lines);
	ck_assert_int_eq(r.status, 200);
	const char *got = buf_cstr(&r.body);
	(void)snprintf(want, sizeof want,
		"DELETE /any%%2Fpath//x?q=1&q=%%20+2 HTTP/1.1\r\nHost: %d-%s.localhost:%d\r\n", port, s.id, g->d->port);
	ck_assert_msg(strncmp(got, want, strlen(want)) == 0, "%s", got);
	ck_assert_ptr_nonnull(strstr(got, "\r\nAccept-Encoding: br, x\r\n"));
	ck_assert_ptr_nonnull(strstr(got, "\r\nCookie: a=b\r\nCookie: c=d\r\n"));
	ck_assert_ptr_nonnull(strstr(got, "blanks"));
	ck_assert_str_eq(resp_header(&r, "X-Kept"), "a, b");
	ck_assert_ptr_null(resp_header(&r, "Content-Encoding"));
	// An end by close is an end, and HEAD has no body.
	struct client *c = client_connect(g->d);
	client_request(c, "GET", "/until", port_headers(&s, port), NULL, 0);
	client_response(c, &r);
	assert_text(&r.body, "whole");
	client_close(c);
	c = client_connect(g->d);
	client_request(c, "HEAD", "/x", port_headers(&s, port), NULL, 0);
	client_response_head(c, &r);
	ck_assert_int_eq(r.status, 200);
	client_close(c);
	stream_close(run);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(private_network_cannot_be_reached)
{
	struct gw *g = gw_start("--pool", "1", "--net", "private");
	struct sbx s;
	struct stream *run;
	struct resp r = {0};
	gw_create(g, &s, GW_BASE);
	int port = gw_serve(g, &s, &run);
	struct client *c = client_connect(g->d);
	client_request(c, "GET", "/x", port_headers(&s, port), NULL, 0);
	client_response(c, &r);
	ck_assert_msg(r.status == 200, "%d %s", r.status, buf_cstr(&r.body));
	client_close(c);
	stream_close(run);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

// Reads exactly what TEXT is, bytes as they are on the wire.
static void want_bytes(struct client *c, const char *text)
{
	size_t n = strlen(text);
	while (buf_len(&c->in) < n && client_fill(c, 10000) > 0)
		;
	ck_assert_msg(buf_len(&c->in) >= n && memcmp(buf_data(&c->in), text, n) == 0, "got \"%s\", want \"%s\"",
		buf_cstr(&c->in), text);
	buf_consume(&c->in, n);
}

static void skip_head(struct client *c)
{
	const char *end;
	while (!(end = memmem(buf_data(&c->in), buf_len(&c->in), "\r\n\r\n", 4)))
		ck_assert_int_gt(client_fill(c, 10000), 0);
	buf_consume(&c->in, (size_t)(end + 4 - (const char *)buf_data(&c->in)));
}

START_TEST(upgrade_does_not_pass)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct stream *run;
	gw_create(g, &s, GW_BASE);
	int port = gw_serve(g, &s, &run);
	struct client *c = client_connect(g->d);
	char text[512];
	(void)snprintf(text, sizeof text,
		"GET /socket HTTP/1.1\r\nHost: x\r\n%sConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
		port_headers(&s, port));
	client_send_str(c, text);
	want_bytes(c, "HTTP/1.1 101 ");
	skip_head(c);
	for (int i = 0; i < 50; i++) {
		(void)snprintf(text, sizeof text, "%c%cmessage %d\r\n\r\n", 0x81, 0x7f, i);
		client_send_str(c, text);
		want_bytes(c, text);
	}
	gw_crash(g, &s);
	ck_assert(client_wait_eof(c, 5000)); // nothing but an end
	client_close(c);
	stream_close(run);
	gw_finish(g);
}
END_TEST

START_TEST(bodies_are_held_back)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct stream *run;
	char text[512];
	gw_create(g, &s, GW_BASE);
	int port = gw_serve(g, &s, &run);
	struct client *c = client_connect(g->d);
	(void)snprintf(text, sizeof text, "POST /echo HTTP/1.1\r\nHost: x\r\n%sTransfer-Encoding: chunked\r\n\r\n",
		port_headers(&s, port));
	client_send_str(c, text);
	struct buf body = {0};
	ck_assert_int_eq(
		client_event(c, &body, h_now_ms() + h_scaled(10000)), HTTP_HEAD); // before any of the body was sent
	for (int i = 0; i < 30; i++) {
		(void)snprintf(
			text, sizeof text, "%x\r\n%.*s%2d\r\n", i + 5, i + 3, "                                ", i);
		client_send_str(c, text);
		while (buf_len(&body) < (size_t)i + 5)
			ck_assert_int_eq(client_event(c, &body, h_now_ms() + h_scaled(10000)), HTTP_BODY);
		ck_assert_int_eq(strtol(buf_cstr(&body), NULL, 10), i);
		buf_reset(&body);
	}
	client_send_str(c, "0\r\n\r\n");
	ck_assert_int_eq(client_event(c, &body, h_now_ms() + h_scaled(10000)), HTTP_END);
	client_close(c);
	stream_close(run);
	buf_release(&body);
	// A client stream: what is sent arrives while the request is open.
	char *request = sh_request("cat", ",\"stdin\":true");
	run = stream_open(g->d, "process.Process/Start", CODEC_JSON, s.headers, request);
	int64_t pid = stream_pid(run);
	struct stream *in = stream_upload(g->d, "process.Process/StreamInput", CODEC_PROTO, s.headers);
	(void)snprintf(text, sizeof text, "{\"start\":{\"process\":{\"pid\":%lld}}}", (long long)pid);
	ck_assert(stream_send(in, text));
	for (int i = 0; i < 5; i++) {
		ck_assert(stream_send(in, "{\"data\":{\"input\":{\"stdin\":\"bGluZQo=\"}}}"));
		stream_until(run, FRAME_STDOUT, "line\n", NULL, 10000);
	}
	stream_finish(in);
	json_t *msg;
	ck_assert_int_eq(stream_next(in, &msg, 10000), STREAM_MESSAGE);
	json_decref(msg);
	ck_assert_int_eq(stream_next(in, &msg, 10000), STREAM_LAST);
	ck_assert(!j_has(msg, "error"));
	json_decref(msg);
	stream_close(in);
	stream_close(run);
	free(request);
	gw_finish(g);
}
END_TEST

// Its memory may grow by so much while one of its clients or servers takes nothing, in KiB.
static long growth(const struct gw *g)
{
	return g->sanitized ? 40 * 1024 : 6 * 1024;
}

START_TEST(slow_side_makes_the_gateway_grow)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct stream *run;
	char text[512];
	gw_create(g, &s, GW_BASE);
	int port = gw_serve(g, &s, &run);
	long before = d_rss_kib(g->d);
	struct client *slow[4], *c;
	for (int i = 0; i < 4; i++) {
		slow[i] = client_connect_rcvbuf(g->d, 4096);
		client_request(slow[i], "GET", "/flood", port_headers(&s, port), NULL, 0);
	}
	// Nobody else waits for it, and it can hold much less than another reads meanwhile.
	c = client_connect(g->d);
	client_request(c, "GET", "/flood", port_headers(&s, port), NULL, 0);
	for (size_t total = 0; total < (size_t)64 * 1024 * 1024;) {
		ssize_t n = client_fill(c, 10000);
		ck_assert_int_gt(n, 0);
		buf_consume(&c->in, buf_len(&c->in));
		total += (size_t)n;
	}
	long grown = d_rss_kib(g->d) - before;
	ck_assert_msg(grown < growth(g), "%ld KiB more", grown);
	client_close(c);
	for (int i = 0; i < 4; i++)
		client_close(slow[i]);
	// The same on the way there: a server that takes nothing.
	c = client_connect(g->d);
	(void)snprintf(text, sizeof text, "POST /slow HTTP/1.1\r\nHost: x\r\n%sContent-Length: 1000000000\r\n\r\n",
		port_headers(&s, port));
	client_send_str(c, text);
	size_t size = 128 * 1024 * 1024; // far more than the kernel may keep for the sockets on the way
	char *body = calloc(1, size);
	ck_assert_ptr_nonnull(body);
	c->deadline = 500;
	ck_assert(!client_send_raw(c, body, size)); // it stops to be taken
	ck_assert(!c->eof);
	grown = d_rss_kib(g->d) - before;
	ck_assert_msg(grown < growth(g), "%ld KiB more", grown);
	free(body);
	client_close(c);
	stream_close(run);
	gw_finish(g);
}
END_TEST

struct count {
	const struct gw *g;
	const struct sbx *s;
};

static bool one_server(void *arg)
{
	const struct count *c = arg;
	char *text = gw_sh(c->g, c->s,
		"n=0; for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline 2>/dev/null | grep -q '^./server --serve' && "
		"n=$((n+1)); done; echo $n");
	bool yes = strcmp(text, "1\n") == 0;
	free(text);
	return yes;
}

START_TEST(hung_up_client_keeps_the_server_busy)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct stream *run;
	static const char *const paths[] = {"/flood", "/part", "/echo"};
	gw_create(g, &s, GW_BASE);
	int port = gw_serve(g, &s, &run);
	for (size_t i = 0; i < COUNT(paths); i++) {
		struct client *c = client_connect(g->d);
		client_request(c, "GET", paths[i], port_headers(&s, port), NULL, 0);
		if (i != 2)
			skip_head(c);
		client_close(c);
	}
	struct count n = {g, &s};
	ck_assert(wait_until(one_server, &n, 10000));
	stream_close(run);
	gw_finish(g);
}
END_TEST

START_TEST(host_route_is_let_through)
{
	static const char *const routes[] = {
		"/init", "/freeze", "/unfreeze", "/collapse", "/fsfreeze", "/fsthaw", "/upgrade"};
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct resp r = {0};
	gw_create(g, &s, GW_BASE);
	for (size_t i = 0; i < COUNT(routes); i++) {
		envd_req(g->d, "POST", routes[i], s.headers, "{}", 2, &r);
		gw_error(&r, 404, NULL);
		ck_assert_str_eq(j_str(resp_json(&r), "path"), routes[i]);
	}
	ck_assert_int_eq(gw_health(g, &s), 204);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(absent_sandbox_or_port_has_another_answer)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s, none = {.id = "inone"};
	struct resp r = {0};
	struct stream *run;
	(void)snprintf(none.headers, sizeof none.headers, "E2b-Sandbox-Id: inone\r\nE2b-Sandbox-Port: 49983\r\n");
	gw_gone(g, &none);
	static const char *const targets[] = {
		"/process.Process/Start", "/process.Process/List", "/files?path=x", "/health", "/x"};
	for (size_t i = 0; i < COUNT(targets); i++) {
		envd_req(g->d, "POST", targets[i], none.headers, "{}", 2, &r);
		gw_want_gone(&r, "inone");
		ck_assert_str_eq(resp_header(&r, "Content-Type"), "application/json; charset=utf-8");
	}
	gw_create(g, &s, GW_BASE);
	int port = gw_serve(g, &s, &run);
	stream_close(run);
	free(gw_sh(g, &s,
		"pkill -f '[s]erver --serve' || kill $(grep -l serve /proc/[0-9]*/cmdline | cut -d/ -f3 | grep -v $$) "
		"2>/dev/null; "
		"sleep 0.1"));
	int64_t begun = h_now_ms();
	ask(g, &r, "GET / HTTP/1.1\r\nHost: x\r\n%s\r\n", port_headers(&s, port));
	gw_error(&r, 502, "The sandbox is running but port is not open");
	ck_assert_str_eq(j_str(resp_json(&r), "sandboxId"), s.id);
	ck_assert_int_eq(j_int(resp_json(&r), "port"), port);
	ck_assert_int_lt(h_now_ms() - begun, h_scaled(8000)); // it may try again for a while
	gw_kill(g, &s);
	ask(g, &r, "GET / HTTP/1.1\r\nHost: x\r\n%s\r\n", port_headers(&s, port));
	gw_want_gone(&r, s.id);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

Suite *gateway_proxy_suite(void)
{
	Suite *s = suite_create("gateway_proxy");
	TCase *tc = h_tcase(s, "proxy", 60);
	tcase_add_test(tc, sandbox_is_not_found_by_one_of_its_names);
	tcase_add_test(tc, signed_url_finds_another_sandbox_or_none);
	tcase_add_test(tc, request_to_a_port_is_changed);
	tcase_add_test(tc, private_network_cannot_be_reached);
	tcase_add_test(tc, upgrade_does_not_pass);
	tcase_add_test(tc, bodies_are_held_back);
	tcase_add_test(tc, slow_side_makes_the_gateway_grow);
	tcase_add_test(tc, hung_up_client_keeps_the_server_busy);
	tcase_add_test(tc, host_route_is_let_through);
	tcase_add_test(tc, absent_sandbox_or_port_has_another_answer);
	return s;
}
