// SPDX-License-Identifier: Apache-2.0
// Who may use /files when there is an access token: its bearer, and whoever has a URL signed with it.
#include "proto/sign.h"
#include "tests/integration/exchange.h"
#include "tests/integration/fskit.h"
#include "tests/integration/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define G FS_HOME "/g"
#define TOKEN "golden-token-1"

static struct testd *start(void)
{
	return d_start("--envd-listen", "127.0.0.1:0", "--user", "user", "--token", TOKEN);
}

// Appends the signature as a query has it. EXPIRATION 0: none.
static void put_signature(
	struct buf *out, const char *path, const char *operation, const char *user, int64_t expiration)
{
	struct buf s = {0};
	struct sign_url url = {.path = path,
		.path_n = strlen(path),
		.operation = operation,
		.user = user,
		.user_n = strlen(user),
		.expires = expiration != 0,
		.expiration = expiration};
	sign_make(&s, &url, TOKEN, strlen(TOKEN));
	for (const char *p = buf_cstr(&s); *p; p++) {
		if (*p == '+' || *p == '/')
			buf_str(out, *p == '+' ? "%2B" : "%2F");
		else
			buf_byte(out, (unsigned char)*p);
	}
	buf_release(&s);
}

// TARGET with its marks replaced; the caller's.
static char *fill(const char *target, int64_t expiration)
{
	struct buf out = {0};
	while (*target) {
		if (strncmp(target, "<SIG>", 5) == 0) {
			put_signature(&out, "g/s.txt", "read", "", expiration);
			target += 5;
		} else if (strncmp(target, "<EXP>", 5) == 0) {
			buf_i64(&out, expiration);
			target += 5;
		} else {
			buf_byte(&out, (unsigned char)*target++);
		}
	}
	return buf_take(&out, NULL);
}

START_TEST(recorded_signatures)
{
	if (!fs_home())
		return;
	fs_tree(G);
	fs_put(G "/s.txt", "signed", 0644);
	struct testd *d = start();
	struct golden g;
	struct resp r = {0};
	int seen = 0;
	golden_open(&g, "signature");
	for (; golden_next(&g); seen++) {
		g.target = fill(g.target, (int64_t)time(NULL) + 3600);
		exchange_send(d, &g, NULL, &r);
		exchange_check(&g, &r, NULL, 0);
		free(g.target);
	}
	ck_assert_int_gt(seen, 20);
	golden_close(&g);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static int status_of(const struct testd *d, const char *request, struct resp *r)
{
	struct client *c = client_connect_to(d->envd_host, d->envd_port, 0);
	resp_release(r);
	client_send_str(c, request);
	client_response(c, r);
	client_close(c);
	return r->status;
}

// B55
START_TEST(wrong_token_is_let_in)
{
	static const struct given {
		const char *header;
		bool ok;
	} given[] = {{"", false}, {"X-Access-Token: golden-token-2\r\n", false},
		{"X-Access-Token: " TOKEN "x\r\n", false}, {"X-Access-Token: golden-token-\r\n", false},
		{"X-Access-Token: \r\n", false}, {"X-Access-Token: GOLDEN-token-1\r\n", false},
		{"x-aCCess-token: " TOKEN "\r\n", true}, {"X-ACCESS-TOKEN: " TOKEN "\r\n", true},
		{"X-Access-Token: wrong\r\nX-Access-Token: " TOKEN "\r\n", false}};
	static const char *const lines[] = {"GET /files?path=f HTTP/1.1\r\n",
		"POST /files?path=new HTTP/1.1\r\nContent-Type: application/octet-stream\r\nContent-Length: 1\r\n",
		"POST /files/compose HTTP/1.1\r\nContent-Length: 44\r\n"};
	static const char *const bodies[] = {"", "x", "{\"source_paths\":[\"f2\"],\"destination\":\"new3\"} "};
	if (!fs_home())
		return;
	struct testd *d = start();
	struct resp r = {0};
	char text[1024];
	fs_put(FS_HOME "/f", "content", 0644);
	for (size_t i = 0; i < COUNT(given); i++) {
		for (size_t k = 0; k < COUNT(lines); k++) {
			exchange_file(FS_HOME "/f2", "", 0);
			(void)snprintf(
				text, sizeof text, "%sHost: x\r\n%s\r\n%s", lines[k], given[i].header, bodies[k]);
			int status = status_of(d, text, &r);
			ck_assert_msg(status == (given[i].ok ? 200 : 401), "%s: %d", text, status);
			if (given[i].ok)
				continue;
			ck_assert_str_eq(resp_header(&r, "Content-Type"), "application/json; charset=utf-8");
			ck_assert_int_ne(access(FS_HOME "/new", F_OK), 0);
			ck_assert_int_ne(access(FS_HOME "/new3", F_OK), 0);
		}
		(void)unlink(FS_HOME "/new");
		(void)unlink(FS_HOME "/new3");
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B55: nothing of what was signed may be another.
START_TEST(signature_of_something_else_is_let_in)
{
	if (!fs_home())
		return;
	struct testd *d = start();
	struct resp r = {0};
	struct buf sig = {0}, text = {0};
	int64_t now = (int64_t)time(NULL), soon = now + 1000;
	const struct {
		const char *path, *operation, *user;
		int64_t signed_for, sent;
		int status;
	} cases[] = {
		{"f", "read", "", 0, 0, 200},
		{"f", "read", "", soon, soon, 200},
		{"f", "read", "", now - 2, now - 2, 401}, // expired
		{"f", "read", "", 0, soon, 401},          // added
		{"f", "read", "", soon, 0, 401},          // left out
		{"f", "read", "", soon, soon + 1, 401},   // raised
		{"f", "write", "", 0, 0, 401},
		{"f2", "read", "", 0, 0, 401},
		{"./f", "read", "", 0, 0, 401},
		{FS_HOME "/f", "read", "", 0, 0, 401},
		{"", "read", "", 0, 0, 401},
		{"f", "read", "root", 0, 0, 401},
		{"f", "read", "user", 0, 0, 401},
		{"f:read:", "", "", 0, 0, 401},
	};
	fs_put(FS_HOME "/f", "content", 0644);
	for (size_t i = 0; i < COUNT(cases); i++) {
		buf_reset(&sig);
		buf_reset(&text);
		put_signature(&sig, cases[i].path, cases[i].operation, cases[i].user, cases[i].signed_for);
		buf_printf(&text, "GET /files?path=f&signature=%s", buf_cstr(&sig));
		if (cases[i].sent)
			buf_printf(&text, "&signature_expiration=%lld", (long long)cases[i].sent);
		BUF_LIT(&text, " HTTP/1.1\r\nHost: x\r\n\r\n");
		ck_assert_msg(status_of(d, buf_cstr(&text), &r) == cases[i].status, "case %zu: %d", i, r.status);
		// Without its prefix it is none.
		buf_reset(&text);
		buf_printf(&text, "GET /files?path=f&signature=%s HTTP/1.1\r\nHost: x\r\n\r\n", buf_cstr(&sig) + 3);
		ck_assert_int_eq(status_of(d, buf_cstr(&text), &r), 401);
	}
	buf_release(&sig);
	buf_release(&text);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B55: the answer comes before the body: one that waits for 100 never sends it, another gets to read the answer.
START_TEST(refused_upload_is_read)
{
	if (!fs_home())
		return;
	struct testd *d = start();
	struct resp r = {0};
	static const char head[] =
		"POST /files?path=f HTTP/1.1\r\nHost: x\r\nContent-Type: application/octet-stream\r\n"
		"Content-Length: 8000000\r\n";
	struct client *c = client_connect_to(d->envd_host, d->envd_port, 0);
	client_send_str(c, head);
	client_send_str(c, "Expect: 100-continue\r\n\r\n");
	ssize_t n = client_fill(c, 5000);
	ck_assert_int_gt(n, 0);
	ck_assert_int_eq(strncmp((const char *)buf_data(&c->in), "HTTP/1.1 401 ", 13), 0);
	client_close(c);
	c = client_connect_to(d->envd_host, d->envd_port, 0);
	char *body = calloc(1, 8000000);
	client_send_str(c, head);
	client_send_str(c, "\r\n");
	ck_assert(client_send_raw(c, body, 8000000));
	client_response(c, &r);
	ck_assert_int_eq(r.status, 401);
	ck_assert_int_ne(access(FS_HOME "/f", F_OK), 0);
	client_close(c);
	free(body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *envd_signature_suite(void)
{
	Suite *s = suite_create("envd_signature");
	TCase *tc = h_tcase(s, "token", 30);
	tcase_add_test(tc, recorded_signatures);
	tcase_add_test(tc, wrong_token_is_let_in);
	tcase_add_test(tc, signature_of_something_else_is_let_in);
	tcase_add_test(tc, refused_upload_is_read);
	return s;
}
