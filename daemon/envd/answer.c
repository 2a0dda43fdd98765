// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/answer.h"

#include "daemon/envd/rpc.h"
#include "proto/envelope.h"
#include "proto/json.h"
#include "proto/pbjson.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define LINES_MAX 32
#define LINES_ROOM 256 // for all of them, mostly

struct line {
	const char *p;
	size_t n;    // without CRLF
	size_t name; // bytes before ':'
};

struct lines {
	struct line list[LINES_MAX];
	size_t count;
};

static void add(struct lines *l, const char *p, size_t n)
{
	const char *colon = memchr(p, ':', n);
	assert(colon && l->count < LINES_MAX);
	l->list[l->count++] = (struct line){p, n, (size_t)(colon - p)};
}

static void add_all(struct lines *l, const char *text)
{
	for (const char *end; (end = strstr(text, "\r\n")); text = end + 2)
		add(l, text, (size_t)(end - text));
}

static bool has(const struct lines *l, const char *name)
{
	for (size_t i = 0; i < l->count; i++)
		if (l->list[i].name == strlen(name) && strncasecmp(l->list[i].p, name, l->list[i].name) == 0)
			return true;
	return false;
}

static int compare(const struct line *a, const struct line *b)
{
	size_t n = a->name < b->name ? a->name : b->name;
	int rc = memcmp(a->p, b->p, n);
	return rc ? rc : a->name < b->name ? -1 : a->name > b->name;
}

static void sort(struct lines *l)
{
	for (size_t i = 1; i < l->count; i++) {
		struct line x = l->list[i];
		size_t at = i;
		for (; at > 0 && compare(&l->list[at - 1], &x) > 0; at--)
			l->list[at] = l->list[at - 1];
		l->list[at] = x;
	}
}

// strftime would take as long as the rest of a small answer, and gmtime_r a tenth of it.
static void put_date(struct buf *out)
{
	static const char days[][4] = {"Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"};
	static const char months[][4] = {
		"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
	char text[] = "Date: Www, 00 Mmm 0000 00:00:00 GMT\r\n", *at = text + sizeof "Date: " - 1;
	char iso[PBJSON_TIME]; // 2000-01-31T23:59:59Z
	int64_t now = time(NULL);
	now = now > 0 ? now : 0;
	(void)pbjson_time_write(iso, now, 0);
	unsigned month = (unsigned)(iso[5] - '0') * 10 + (unsigned)(iso[6] - '0');
	memcpy(at, days[now / 86400 % 7], 3);
	memcpy(at + sizeof "Www, " - 1, iso + 8, 2);
	memcpy(at + sizeof "Www, 00 " - 1, months[month - 1], 3);
	memcpy(at + sizeof "Www, 00 Mmm " - 1, iso, 4);
	memcpy(at + sizeof "Www, 00 Mmm 0000 " - 1, iso + 11, 8);
	buf_append(out, text, sizeof text - 1);
}

static bool cors_method(struct http_span m)
{
	static const char *const methods[] = {"HEAD", "GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"};
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
		if (http_span_is(m, methods[i]))
			return true;
	return false;
}

static void put_sorted(struct lines *l, struct buf *out)
{
	sort(l);
	for (size_t i = 0; i < l->count; i++) {
		buf_append(out, l->list[i].p, l->list[i].n);
		BUF_LIT(out, "\r\n");
	}
	put_date(out);
}

// True if LINES are in their order and all in front of Vary: by their first letters, so that it may be and nobody sees it.
static bool in_order(const char *lines)
{
	char last = '\0';
	for (const char *end; *lines; lines = end + 1) {
		end = strchr(lines, '\n');
		if (!end || *lines <= last || *lines >= 'V')
			return false;
		last = *lines;
	}
	return true;
}

void envd_lines(const struct http_head *head, const char *lines, struct buf *out)
{
	static const char cors[] = "Access-Control-Allow-Origin: *\r\n"
				   "Access-Control-Expose-Headers: Grpc-Status, Grpc-Message, Grpc-Status-Details-Bin, "
				   "Location, Cache-Control, X-Content-Type-Options\r\n";
	static const char vary[] = "Vary: Origin\r\n";
	bool page = http_get(head, "Origin").p;
	struct lines l;
	if (!lines)
		lines = "";
	if (!page && in_order(lines)) { // most answers
		buf_str(out, lines);
		buf_append(out, vary, sizeof vary - 1);
		put_date(out);
		return;
	}
	l.count = 0;
	add_all(&l, lines);
	if (!has(&l, "Vary"))
		add_all(&l, vary);
	if (page && cors_method(head->method))
		add_all(&l, cors);
	put_sorted(&l, out);
}

bool answer_is_preflight(const struct http_head *head)
{
	return http_span_is(head->method, "OPTIONS") && http_get(head, "Access-Control-Request-Method").n > 0;
}

void answer_preflight(void *ctx, struct conn *c)
{
	(void)ctx;
	const struct http_head *head = conn_head(c);
	struct http_span asked = http_get(head, "Access-Control-Request-Headers");
	struct http_span method = http_get(head, "Access-Control-Request-Method");
	struct buf mine, all;
	struct lines l = {.count = 0};
	buf_init(&mine, 0);
	buf_init(&all, 0);
	BUF_LIT(&mine, "Vary: Origin, Access-Control-Request-Method, Access-Control-Request-Headers\r\n");
	if (http_get(head, "Origin").n > 0 && cors_method(method)) {
		BUF_LIT(&mine, "Access-Control-Allow-Origin: *\r\nAccess-Control-Max-Age: 7200\r\n");
		buf_printf(&mine, "Access-Control-Allow-Methods: %.*s\r\n", (int)method.n, method.p);
		if (asked.n > 0)
			buf_printf(&mine, "Access-Control-Allow-Headers: %.*s\r\n", (int)asked.n, asked.p);
	}
	const char *text = buf_cstr(&mine);
	if (text)
		add_all(&l, text);
	put_sorted(&l, &all);
	conn_reply(c, 204, NULL, buf_cstr(&all), !text ? &mine : buf_failed(&all) ? &all : NULL);
	buf_release(&all);
	buf_release(&mine);
}

void envd_reply(struct conn *c, int status, const char *lines, const struct buf *body)
{
	struct buf all;
	char room[LINES_ROOM];
	buf_init_in(&all, room, sizeof room);
	envd_lines(conn_head(c), lines, &all);
	const char *text = buf_cstr(&all);
	if (text)
		conn_reply(c, status, NULL, text, body);
	else
		conn_reply(c, status, NULL, NULL, &all); // failed: out of memory is what goes out
	buf_release(&all);
}

void envd_escape(struct buf *out, size_t from)
{
	size_t n = buf_len(out), more = 0;
	if (buf_failed(out))
		return;
	for (const unsigned char *p = buf_data(out) + from; p < buf_data(out) + n; p++)
		more += *p == '<' || *p == '>' || *p == '&' ? 5 : 0;
	if (more == 0 || !buf_reserve(out, more))
		return;
	buf_commit(out, more);
	unsigned char *base = buf_reserve(out, 0); // the end
	if (!base)
		return;
	base -= n + more;
	// From the back, so that nothing is overwritten before it was moved.
	for (size_t at = n, to = n + more; at < to;) {
		unsigned char ch = base[--at];
		if (ch == '<' || ch == '>' || ch == '&') {
			to -= 6;
			memcpy(base + to, ch == '<' ? "\\u003c" : ch == '>' ? "\\u003e" : "\\u0026", 6);
		} else {
			base[--to] = ch;
		}
	}
}

#define LINES_TEXT 512
#define REST_LINES "Content-Type: application/json; charset=utf-8\r\nX-Content-Type-Options: nosniff\r\n"

static void rest_error(struct buf *body, const struct err *e)
{
	struct jsonw w;
	jsonw_init(&w, body);
	w.html = true;
	jsonw_obj(&w);
	jsonw_kint(&w, "code", e->status);
	jsonw_kstr(&w, "message", e->msg);
	jsonw_obj_end(&w);
	BUF_LIT(body, "\n");
}

void envd_error(struct conn *c, const struct err *e, const char *extra)
{
	char lines[LINES_TEXT];
	struct buf body;
	buf_init(&body, 0);
	rest_error(&body, e);
	(void)snprintf(lines, sizeof lines, "%s" REST_LINES, extra ? extra : "");
	envd_reply(c, e->status, lines, &body);
	buf_release(&body);
}

static bool reason_is(const struct err *e, const char *reason)
{
	return e->reason && strcmp(e->reason, reason) == 0;
}

// What ended a call that would otherwise have been served: a stream's client only finds it at the end of an HTTP 200.
static bool of_a_call(const struct err *e)
{
	return e->status == 401 || e->status == 413 || e->status == 429 || e->status == 500 || e->status == 503;
}

int answer_error(
	const struct http_head *head, const struct err *e, const char *extra, struct buf *lines, struct buf *body)
{
	bool user = reason_is(e, ANSWER_USER), token = reason_is(e, ANSWER_TOKEN);
	const char *stream = rpc_stream_type(http_get(head, "Content-Type"));
	char mine[LINES_TEXT];
	if (!extra)
		extra = "";
	if (!token && stream && (user || rpc_path(head->path)) && of_a_call(e)) {
		(void)snprintf(mine, sizeof mine, "%sContent-Type: %s\r\n", extra, stream);
		envelope_last(body, e);
		envd_lines(head, mine, lines);
		return 200;
	}
	if (!token && (user || rpc_path(head->path))) {
		(void)snprintf(mine, sizeof mine, "%sContent-Type: application/json\r\n", extra);
		envelope_error_body(body, e);
	} else {
		(void)snprintf(mine, sizeof mine, "%s" REST_LINES, extra);
		rest_error(body, e);
	}
	envd_lines(head, mine, lines);
	return e->status;
}

int envd_leaving(struct err *e)
{
	return err_set(e, ERR_UNAVAILABLE, "the daemon is being upgraded; reconnect");
}
