// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1 // memmem
#include "proto/http_head.h"

#include <string.h>

#define VERSION "HTTP/1."

size_t http_text_run(const char *p, size_t n)
{
	const uint64_t ones = UINT64_C(0x0101010101010101), high = ones * 0x80;
	size_t i = 0;
	for (uint64_t word; n - i >= sizeof word; i += sizeof word) {
		memcpy(&word, p + i, sizeof word);
		uint64_t del = word ^ ones * 0x7f;
		if ((((word - ones * ' ') & ~word) | ((del - ones) & ~del)) & high)
			break;
	}
	return i;
}

int http_refuse(struct err *e, int status, const char *what)
{
	enum err_code code = ERR_INVALID_ARGUMENT;
	if (status == 413 || status == 431)
		code = ERR_RESOURCE_EXHAUSTED;
	else if (status == 501 || status == 505)
		code = ERR_UNIMPLEMENTED;
	return err_http(e, status, code, "malformed or unsupported HTTP: %s", what);
}

static bool is_digit(char c)
{
	return c >= '0' && c <= '9';
}

// HTTP/1.0 or HTTP/1.1 and nothing else: llhttp takes RTSP, ICE and other versions.
static bool read_version(struct http_head *head, const char *p, const char *end)
{
	size_t n = sizeof(VERSION) - 1;
	if ((size_t)(end - p) <= n || memcmp(p, VERSION, n) != 0 || (p[n] != '0' && p[n] != '1'))
		return false;
	head->minor = p[n] - '0';
	return true;
}

// The URI behind its authority, for http and https; p = NULL for what is none.
static struct http_span behind_authority(struct http_span t)
{
	const struct http_span none = {NULL, 0};
	const char *end = t.p + t.n, *mark = memmem(t.p, t.n, "://", 3);
	if (!mark)
		return none;
	struct http_span scheme = {t.p, (size_t)(mark - t.p)};
	if (!http_span_is_nocase(scheme, "http") && !http_span_is_nocase(scheme, "https"))
		return none;
	const char *host = mark + 3, *p = host;
	while (p < end && *p != '/' && *p != '?')
		p++;
	return p == host ? none : (struct http_span){p, (size_t)(end - p)};
}

static bool is_visible(char c)
{
	return c > ' ' && c < 0x7f;
}

// The forms of RFC 9112 3.2: origin, absolute, and "*" for OPTIONS.
static bool read_target(struct http_head *head)
{
	struct http_span t = head->target;
	for (size_t i = 0; i < t.n; i++)
		if (!is_visible(t.p[i]) || t.p[i] == '#')
			return false;
	if (http_span_is(t, "*")) {
		head->path = t;
		return http_span_is(head->method, "OPTIONS");
	}
	if (t.n == 0)
		return false;
	if (t.p[0] != '/')
		t = behind_authority(t);
	if (!t.p)
		return false;
	const char *mark = memchr(t.p, '?', t.n);
	head->path = (struct http_span){t.p, mark ? (size_t)(mark - t.p) : t.n};
	if (head->path.n == 0)
		head->path = (struct http_span){"/", 1};
	if (mark)
		head->query = (struct http_span){mark + 1, (size_t)(t.p + t.n - mark - 1)};
	return true;
}

// "GET /a HTTP/1.1" with single blanks: llhttp takes several.
static int check_request_line(struct http_head *head, const char *end, struct err *e)
{
	struct http_span t = head->target;
	const char *version = t.p ? t.p + t.n + 1 : end;
	if (!t.p || t.p != head->method.p + head->method.n + 1 || end - version < (ptrdiff_t)sizeof(VERSION) + 2)
		return http_refuse(e, 400, "bad request line");
	if (memcmp(version, "HTTP/", 5) != 0)
		return http_refuse(e, 400, "bad request line");
	if (!read_version(head, version, end) || version[sizeof(VERSION)] != '\r')
		return http_refuse(e, 505, "only HTTP/1.1 and HTTP/1.0 are spoken");
	return read_target(head) ? 0 : http_refuse(e, 400, "bad request target");
}

// "HTTP/1.1 200 OK": the reason and the blank before it may be missing.
static int check_status_line(struct http_head *head, const char *p, const char *end, struct err *e)
{
	if (!read_version(head, p, end))
		return http_refuse(e, 505, "only HTTP/1.1 and HTTP/1.0 are understood");
	p += sizeof(VERSION);
	if (end - p < 5 || p[0] != ' ' || p[1] == '0' || !is_digit(p[1]) || !is_digit(p[2]) || !is_digit(p[3]))
		return http_refuse(e, 400, "bad status line");
	if (p[4] != ' ' && p[4] != '\r')
		return http_refuse(e, 400, "bad status line");
	head->status = (p[1] - '0') * 100 + (p[2] - '0') * 10 + (p[3] - '0');
	return 0;
}

static bool host_valid(struct http_span s)
{
	for (size_t i = 0; i < s.n; i++) {
		char c = s.p[i];
		if (!is_visible(c) || c == '/' || c == '\\' || c == '?' || c == '#' || c == '@' || c == ',')
			return false;
	}
	return true;
}

// The number that S is; -1 if it is not all digits, -2 if it is beyond int64.
static int64_t read_length(struct http_span s)
{
	int64_t v = 0;
	for (size_t i = 0; i < s.n; i++) {
		if (!is_digit(s.p[i]))
			return -1;
		int64_t d = s.p[i] - '0';
		if (v != -2)
			v = v > (INT64_MAX - d) / 10 ? -2 : v * 10 + d;
	}
	return s.n > 0 ? v : -1;
}

struct counts {
	unsigned host;
	unsigned length;
	unsigned coding;
};

// Only the headers that say where a message ends or what it is for.
static int check_header(struct http_head *head, const struct http_header *h, struct counts *seen, struct err *e)
{
	if (http_span_is_nocase(h->name, "Content-Length")) {
		head->content_length = read_length(h->value);
		if (++seen->length > 1 || head->content_length == -1)
			return http_refuse(e, 400, "bad Content-Length");
		return head->content_length >= 0 ? 0 : http_refuse(e, 413, "Content-Length too large");
	}
	if (http_span_is_nocase(h->name, "Transfer-Encoding")) {
		head->chunked = true;
		if (++seen->coding > 1 || !http_span_is_nocase(h->value, "chunked"))
			return http_refuse(e, 400, "bad Transfer-Encoding");
	}
	return 0;
}

// Those that mean something in a request only.
static int check_request_header(struct http_head *head, const struct http_header *h, struct counts *seen, struct err *e)
{
	if (http_span_is_nocase(h->name, "Host") && (++seen->host > 1 || !host_valid(h->value)))
		return http_refuse(e, 400, "bad Host");
	if (http_span_is_nocase(h->name, "Expect")) {
		if (!http_span_is_nocase(h->value, "100-continue"))
			return http_refuse(e, 417, "unknown expectation");
		head->expect_continue = head->minor > 0; // a 1.0 client does not wait (RFC 9110 10.1.1)
	}
	return 0;
}

int http_head_check(struct http_head *head, enum http_kind kind, const struct buf *raw, bool has_body, struct err *e)
{
	const char *p = (const char *)buf_data(raw), *end = p + buf_len(raw);
	bool request = kind == HTTP_REQUEST;
	struct counts seen = {0, 0, 0};
	head->content_length = -1;
	head->without = UINT64_MAX;
	if (request ? check_request_line(head, end, e) : check_status_line(head, p, end, e))
		return -1;
	for (size_t i = 0; i < head->header_count; i++) {
		const struct http_header *h = &head->headers[i];
		if (h->name.n < 64)
			head->without &= ~(UINT64_C(1) << h->name.n);
		if (check_header(head, h, &seen, e) || (request && check_request_header(head, h, &seen, e)))
			return -1;
	}
	if (request && head->minor > 0 && seen.host == 0)
		return http_refuse(e, 400, "no Host");
	if (seen.coding > 0 && (head->minor == 0 || seen.length > 0))
		return http_refuse(e, 400, "Transfer-Encoding in HTTP/1.0 or with Content-Length");
	if (!head->chunked && head->content_length <= 0)
		head->expect_continue = false; // nothing to wait for
	bool to_eof = !request && has_body && !head->chunked && head->content_length < 0;
	head->keep_alive = !to_eof && !http_has_token(head, "Connection", "close") &&
			   (head->minor > 0 || http_has_token(head, "Connection", "keep-alive"));
	return 0;
}
