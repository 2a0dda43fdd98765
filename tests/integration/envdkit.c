// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/envdkit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct client *envd_connect(const struct testd *d)
{
	ck_assert_int_gt(d->envd_port, 0);
	return client_connect_to(d->envd_host, d->envd_port, 0);
}

void envd_send(
	struct client *c, const char *method, const char *target, const char *headers, const void *body, size_t n)
{
	struct buf b = {0};
	buf_printf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, target, headers ? headers : "");
	if (body)
		buf_printf(&b, "Content-Length: %zu\r\n", n);
	BUF_LIT(&b, "\r\n");
	if (n > 0)
		buf_append(&b, body, n);
	ck_assert_int_eq(buf_failed(&b), 0);
	ck_assert(client_send_raw(c, buf_data(&b), buf_len(&b)));
	buf_release(&b);
}

void envd_req(const struct testd *d, const char *method, const char *target, const char *headers, const void *body,
	size_t n, struct resp *r)
{
	struct client *c = envd_connect(d);
	resp_release(r);
	envd_send(c, method, target, headers, body, n);
	if (strcmp(method, "HEAD") == 0)
		client_response_head(c, r);
	else
		client_response(c, r);
	client_close(c);
}

int envd_init(const struct testd *d, const char *body)
{
	struct resp r = {0};
	envd_req(d, "POST", "/init", "Content-Type: application/json\r\n", body, strlen(body), &r);
	int status = r.status;
	ck_assert_str_eq(resp_header(&r, "X-Envd-Version"), "0.6.13");
	if (status != 204)
		envd_want_rest(&r, status);
	resp_release(&r);
	return status;
}

// --- shapes ---

static json_t *object_of(const void *p, size_t n)
{
	json_error_t e;
	json_t *o = json_loadb(p, n, JSON_REJECT_DUPLICATES, &e);
	ck_assert_msg(json_is_object(o), "no JSON object: %.*s", (int)n, (const char *)p);
	return o;
}

static const char *want_message(json_t *o)
{
	const char *message = j_str(o, "message");
	ck_assert_uint_gt(strlen(message), 0);
	ck_assert_uint_eq(json_object_size(o), 2);
	return message;
}

const char *envd_want_rest(struct resp *r, int status)
{
	ck_assert_int_eq(r->status, status);
	ck_assert_str_eq(resp_header(r, "Content-Type"), "application/json; charset=utf-8");
	ck_assert_str_eq(resp_header(r, "X-Content-Type-Options"), "nosniff");
	json_decref(r->json);
	r->json = object_of(buf_data(&r->body), buf_len(&r->body));
	ck_assert_int_eq(j_int(r->json, "code"), status);
	ck_assert_int_eq(buf_data(&r->body)[buf_len(&r->body) - 1], '\n');
	return want_message(r->json);
}

const char *envd_want_connect(struct resp *r, int status, const char *code)
{
	ck_assert_msg(r->status == status, "%d %s", r->status, buf_cstr(&r->body));
	ck_assert_str_eq(resp_header(r, "Content-Type"), "application/json");
	json_decref(r->json);
	r->json = object_of(buf_data(&r->body), buf_len(&r->body));
	ck_assert_str_eq(j_str(r->json, "code"), code);
	return want_message(r->json);
}

json_t *envd_want_stream(struct resp *r, size_t *messages)
{
	const unsigned char *p = buf_data(&r->body);
	size_t n = buf_len(&r->body), count = 0;
	json_t *last = NULL;
	ck_assert_int_eq(r->status, 200);
	ck_assert_msg(strncmp(resp_header(r, "Content-Type"), "application/connect+", 20) == 0, "%s",
		resp_header(r, "Content-Type"));
	while (n > 0) {
		ck_assert_msg(n >= 5, "%zu bytes behind the last envelope", n);
		size_t len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
		ck_assert_msg(!last, "an envelope behind the end frame");
		ck_assert_uint_le(len, n - 5);
		ck_assert_uint_le(p[0], 3);
		if (p[0] & 2)
			last = p[0] & 1 ? json_object() : object_of(p + 5, len);
		else
			count++;
		p += 5 + len;
		n -= 5 + len;
	}
	ck_assert_msg(last, "no end frame");
	if (messages)
		*messages = count;
	return last;
}

void envd_want_stream_error(struct resp *r, const char *code, char out[256])
{
	size_t messages;
	json_t *last = envd_want_stream(r, &messages);
	json_t *error = j_get(last, "error");
	ck_assert_uint_eq(json_object_size(last), 1);
	ck_assert_str_eq(j_str(error, "code"), code);
	const char *message = want_message(error);
	if (out)
		(void)snprintf(out, 256, "%s", message);
	json_decref(last);
}

void envd_envelope(struct buf *out, unsigned flags, const char *payload)
{
	size_t n = strlen(payload);
	buf_byte(out, (unsigned char)flags);
	for (int shift = 24; shift >= 0; shift -= 8)
		buf_byte(out, (unsigned char)(n >> shift));
	buf_str(out, payload);
}

// --- golden exchanges ---

// Its text as bytes: "<LF>" and "<xNN>" are marks. False if there are others, which stand for what varies.
static bool unmark(const char *text, struct buf *out)
{
	for (const char *p = text; *p; p++) {
		unsigned v;
		if (*p != '<') {
			if (*p != '\n')
				buf_byte(out, (unsigned char)*p);
		} else if (strncmp(p, "<LF>", 4) == 0) {
			buf_byte(out, '\n');
			p += 3;
		} else if (sscanf(p, "<x%2x>", &v) == 1) {
			buf_byte(out, (unsigned char)v);
			p += 4;
		} else {
			return false;
		}
	}
	return true;
}

static bool skipped(const char *label, const char *const *skip)
{
	for (size_t i = 0; skip && skip[i]; i++)
		if (strstr(label, skip[i]))
			return true;
	return false;
}

// The head lines of a request as they go on the wire; Host and Content-Length are ours.
static void request_lines(const struct golden *g, struct buf *out)
{
	for (const char *p = g->head; p && *p;) {
		size_t n = strcspn(p, "\n");
		bool ours = strncmp(p, "Host:", 5) == 0 || strncmp(p, "Content-Length:", 15) == 0 ||
			    strncmp(p, "Transfer-Encoding:", 18) == 0;
		if (!ours) {
			buf_append(out, p, n);
			BUF_LIT(out, "\r\n");
		}
		p += n + (p[n] == '\n');
	}
}

// A Connect error of any code.
static void want_words(struct resp *r)
{
	json_t *o = object_of(buf_data(&r->body), buf_len(&r->body));
	ck_assert_uint_gt(strlen(j_str(o, "code")), 0);
	want_message(o);
	json_decref(o);
}

static void want_answer(const struct golden *g, struct resp *r, bool rpc)
{
	struct buf want = {0};
	bool head = strcmp(g->method, "HEAD") == 0, json = g->answer && strchr(g->answer, '{') == g->answer;
	ck_assert_msg(r->status == g->status, "%s: %d %s", g->label, r->status, buf_cstr(&r->body));
	if (g->status >= 400 && !head && !json) {
		if (!rpc)
			envd_want_rest(r, g->status);
		else
			want_words(r);
		ck_assert_str_eq(resp_header(r, "Vary"), "Origin");
	} else if (!head && strncmp(g->target, "/health", 7) != 0) {
		if (!strstr(g->answer_head, "\nConnection:"))
			json_object_del(r->headers, "connection");
		golden_assert_head(g, r);
	}
	// Texts after "unmarshal" are free.
	bool exact = json && unmark(g->answer, &want) && !strstr(g->answer, "unmarshal into");
	if (exact)
		ck_assert_msg(
			strcmp(buf_cstr(&r->body), buf_cstr(&want)) == 0, "%s: got %s", g->label, buf_cstr(&r->body));
	buf_release(&want);
}

void envd_play_golden(const struct testd *d, const char *name, const char *const *skip)
{
	struct golden g;
	size_t played = 0;
	golden_open(&g, name);
	while (golden_next(&g)) {
		struct buf lines = {0}, body = {0};
		struct resp r = {0};
		bool has_body = g.body && (strstr(g.head, "Content-Length:") || strstr(g.head, "chunked"));
		if (skipped(g.label, skip) || (g.body && *g.body == '[' && g.body[1] != ']') ||
			!unmark(g.body ? g.body : "", &body)) {
			buf_release(&body);
			continue;
		}
		request_lines(&g, &lines);
		envd_req(
			d, g.method, g.target, buf_cstr(&lines), has_body ? buf_cstr(&body) : NULL, buf_len(&body), &r);
		want_answer(&g, &r, strstr(g.target, ".Process/") || strstr(g.target, ".Filesystem/"));
		played++;
		resp_release(&r);
		buf_release(&lines);
		buf_release(&body);
	}
	golden_close(&g);
	ck_assert_uint_gt(played, 0);
}
