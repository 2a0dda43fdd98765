// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/exchange.h"

#include "proto/gzip.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MARK(at, text) (strncmp((at), text, sizeof text - 1) == 0)

static unsigned hex(char c)
{
	return c <= '9' ? (unsigned)(c - '0') : (unsigned)(c - 'a' + 10);
}

void exchange_unmark(struct buf *out, const char *text)
{
	for (const char *p = text; p && *p;) {
		if (MARK(p, "<LF>")) {
			buf_byte(out, '\n');
			p += 4;
		} else if (MARK(p, "<CR>")) {
			buf_byte(out, '\r');
			p += 4;
		} else if (MARK(p, "<TAB>")) {
			buf_byte(out, '\t');
			p += 5;
		} else if (MARK(p, "<x") && p[2] && p[3] && p[4] == '>') {
			buf_byte(out, (unsigned char)(hex(p[2]) * 16 + hex(p[3])));
			p += 5;
		} else if (*p == '\n') {
			p++; // a line break of the recording
		} else {
			buf_byte(out, (unsigned char)*p++);
		}
	}
}

bool exchange_is_ours(const struct golden *g)
{
	if (strncmp(g->target, "/filesystem", 11) == 0)
		return false;
	return !g->body || (!strstr(g->body, "<gzip of ") && !strstr(g->body, "<... "));
}

void exchange_file(const char *path, const void *p, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_msg(fd >= 0, "%s", path);
	ck_assert_int_eq(write(fd, p, n), (ssize_t)n);
	(void)close(fd);
}

static void put_request(const struct golden *g, const char *date, struct buf *out)
{
	struct buf body = {0};
	buf_printf(out, "%s %s HTTP/1.1\r\n", g->method, g->target);
	for (const char *p = g->head; *p; p++) {
		if (MARK(p, "<DATE>")) {
			ck_assert_msg(date, "%s: no date", g->label);
			buf_str(out, date);
			p += 5;
		} else if (MARK(p, "<TAB>")) {
			buf_byte(out, '\t');
			p += 4;
		} else if (*p == '\n') {
			BUF_LIT(out, "\r\n");
		} else {
			buf_byte(out, (unsigned char)*p);
		}
	}
	BUF_LIT(out, "\r\n");
	exchange_unmark(&body, g->body);
	if (strstr(g->head, "Transfer-Encoding: chunked")) {
		buf_printf(out, "%zx\r\n", buf_len(&body));
		buf_append(out, buf_data(&body), buf_len(&body));
		BUF_LIT(out, "\r\n0\r\n\r\n");
	} else {
		buf_append(out, buf_data(&body), buf_len(&body));
	}
	buf_release(&body);
}

void exchange_send(const struct testd *d, const struct golden *g, const char *date, struct resp *r)
{
	struct buf out = {0};
	struct client *c = client_connect_to(d->envd_host, d->envd_port, 0);
	put_request(g, date, &out);
	client_send_raw(c, buf_data(&out), buf_len(&out));
	if (strcmp(g->method, "HEAD") == 0)
		client_response_head(c, r);
	else
		client_response(c, r);
	client_close(c);
	buf_release(&out);
}

static const struct deviation *find(const struct golden *g, const struct deviation *list, size_t count)
{
	static const struct deviation none = {.label = ""};
	for (size_t i = 0; i < count; i++) {
		const char *label = g->label + strlen("======== ");
		if (strcmp(label, list[i].label) == 0)
			return &list[i];
	}
	return &none;
}

// What the answer has in the place of <BOUNDARY>.
static void put_boundary(const struct resp *r, struct buf *out)
{
	const char *type = resp_header(r, "content-type");
	const char *b = type ? strstr(type, "boundary=") : NULL;
	ck_assert_msg(b, "no boundary in %s", type ? type : "nothing");
	buf_str(out, b + 9);
}

static void put_wanted(const struct golden *g, const struct resp *r, struct buf *out)
{
	struct buf text = {0};
	const char *p = g->answer;
	const char *plain = p && MARK(p, "<gzip of ") ? strchr(p, '>') + 2 : p;
	for (const char *at; plain && (at = strstr(plain, "<BOUNDARY>")); plain = at + 10) {
		buf_append(&text, plain, (size_t)(at - plain));
		put_boundary(r, &text);
	}
	if (plain)
		buf_str(&text, plain);
	exchange_unmark(out, buf_cstr(&text));
	buf_release(&text);
}

static void check_body(const struct golden *g, struct resp *r, const char *instead)
{
	struct buf want = {0}, plain = {0};
	const char *coding = resp_header(r, "content-encoding");
	const struct buf *got = &r->body;
	struct err e;
	if (instead)
		buf_str(&want, instead);
	else
		put_wanted(g, r, &want);
	if (coding) {
		ck_assert_str_eq(coding, "gzip");
		ck_assert_int_eq(gunzip_all(&plain, buf_data(got), buf_len(got), 1 << 20, &e), 0);
		got = &plain;
	}
	ck_assert_msg(buf_len(got) == buf_len(&want) && memcmp(buf_data(got), buf_data(&want), buf_len(got)) == 0,
		"%s: got\n%.*s\nwant\n%.*s", g->label, (int)buf_len(got), (const char *)buf_data(got),
		(int)buf_len(&want), (const char *)buf_data(&want));
	buf_release(&want);
	buf_release(&plain);
}

// Header lines as recorded. That the end of a connection is announced, after a body that was not read, is our own way.
static void check_head(const struct golden *g, struct resp *r)
{
	struct tm tm = {0};
	const char *modified = resp_header(r, "last-modified");
	if (modified) {
		const char *end = strptime(modified, "%a, %d %b %Y %H:%M:%S GMT", &tm);
		ck_assert_msg(end && !*end, "%s: %s", g->label, modified);
		json_object_set_new(r->headers, "last-modified", json_string("<DATE>"));
	}
	json_object_del(r->headers, "connection");
	// The type of an upload's answer was guessed and stands last.
	const char *type = resp_header(r, "content-type");
	if (r->status == 200 && strcmp(g->method, "POST") == 0 &&
		strstr(g->answer_head, "\nContent-Type: text/plain")) {
		json_t *moved = json_string(type);
		json_object_del(r->headers, "content-type");
		json_object_set_new(r->headers, "content-type", moved);
	}
	golden_assert_head(g, r);
}

void exchange_check(const struct golden *g, struct resp *r, const struct deviation *list, size_t count)
{
	const struct deviation *d = find(g, list, count);
	int status = d->status ? d->status : g->status;
	ck_assert_msg(r->status == status, "%s: %d, want %d: %.*s", g->label, r->status, status, (int)buf_len(&r->body),
		(const char *)buf_data(&r->body));
	if (status >= 400 && strcmp(g->method, "HEAD") != 0) {
		ck_assert_str_eq(resp_header(r, "content-type"), "application/json; charset=utf-8");
		json_t *o = json_loadb((const char *)buf_data(&r->body), buf_len(&r->body), 0, NULL);
		ck_assert_msg(o, "%s: no JSON", g->label);
		ck_assert_int_eq(j_int(o, "code"), status);
		ck_assert_uint_gt(strlen(j_str(o, "message")), 0);
		ck_assert_uint_eq(json_object_size(o), 2);
		json_decref(o);
	}
	if (!d->head && !strstr(g->answer_head, "<BOUNDARY>") && !strstr(g->answer_head, "HTTP/1.1 "))
		check_head(g, r);
	if (d->body || !*d->label)
		check_body(g, r, d->body);
}

void exchange_all(const struct testd *d, const char *name, const struct deviation *list, size_t count)
{
	struct golden g;
	struct resp r = {0};
	int seen = 0;
	golden_open(&g, name);
	while (golden_next(&g)) {
		if (!exchange_is_ours(&g))
			continue;
		exchange_send(d, &g, NULL, &r);
		exchange_check(&g, &r, list, count);
		seen++;
	}
	ck_assert_int_gt(seen, 2);
	golden_close(&g);
	resp_release(&r);
}
