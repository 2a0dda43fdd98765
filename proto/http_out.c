// SPDX-License-Identifier: Apache-2.0
// Look-ups in a head, and the writers.
#include "proto/http.h"

#include <assert.h>
#include <string.h>
#include <strings.h>

enum { SIZE_DIGITS = 7 }; // 16 MiB in hex

static char lower(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

bool http_same_nocase(const char *a, const char *b, size_t n)
{
	if (n == 0 || memcmp(a, b, n) == 0) // mostly
		return true;
	for (size_t i = 0; i < n; i++)
		if (a[i] != b[i] && lower(a[i]) != lower(b[i]))
			return false;
	return true;
}

struct http_span http_get_n(const struct http_head *head, const char *name, size_t n)
{
	const struct http_header *h = head->headers;
	for (size_t i = 0; i < head->header_count; i++)
		if (h[i].name.n == n && http_same_nocase(h[i].name.p, name, n))
			return h[i].value;
	return (struct http_span){NULL, 0};
}

static bool is_blank(char c)
{
	return c == ' ' || c == '\t';
}

struct http_span http_span_trim(struct http_span s)
{
	while (s.n > 0 && is_blank(s.p[0]))
		s.p++, s.n--;
	while (s.n > 0 && is_blank(s.p[s.n - 1]))
		s.n--;
	return s;
}

static bool list_has(struct http_span list, const char *token)
{
	const char *p = list.p, *end = list.p + list.n;
	while (p < end) {
		const char *comma = memchr(p, ',', (size_t)(end - p));
		size_t n = (size_t)((comma ? comma : end) - p);
		if (http_span_is_nocase(http_span_trim((struct http_span){p, n}), token))
			return true;
		p = comma ? comma + 1 : end;
	}
	return false;
}

bool http_has_token(const struct http_head *head, const char *name, const char *token)
{
	for (size_t i = 0; i < head->header_count; i++)
		if (http_span_is_nocase(head->headers[i].name, name) && list_has(head->headers[i].value, token))
			return true;
	return false;
}

void http_put_status(struct buf *out, int status)
{
	char line[] = "HTTP/1.1 000 ";
	if (status == 200) {
		BUF_LIT(out, "HTTP/1.1 200 OK\r\n");
		return;
	}
	assert(status >= 0 && status < 1000);
	char *at = line + sizeof line - 2; // the last blank
	for (int left = status; left > 0; left /= 10)
		*--at = (char)('0' + left % 10);
	buf_append(out, line, sizeof line - 1);
	buf_str(out, err_phrase(status));
	BUF_LIT(out, "\r\n");
}

void http_put_request(struct buf *out, const char *method, const char *target)
{
	buf_str(out, method);
	buf_byte(out, ' ');
	// A blank or control character would end the target early.
	for (const char *p = target; *p; p++) {
		unsigned char c = (unsigned char)*p;
		if (c <= ' ' || c >= 0x7f)
			buf_printf(out, "%%%02X", c);
		else
			buf_byte(out, c);
	}
	BUF_LIT(out, " HTTP/1.1\r\n");
}

void http_put_header(struct buf *out, const char *name, const char *value)
{
	size_t n = strlen(value);
	buf_str(out, name);
	BUF_LIT(out, ": ");
	unsigned char *to = buf_reserve(out, n);
	if (!to)
		return;
	for (size_t i = 0; i < n; i++)
		to[i] = value[i] == '\r' || value[i] == '\n' ? ' ' : (unsigned char)value[i];
	buf_commit(out, n);
	BUF_LIT(out, "\r\n");
}

void http_put_length(struct buf *out, uint64_t n)
{
	char line[sizeof "Content-Length: \r\n" + 20];
	char *end = BUF_PUT(buf_put_u64(BUF_PUT(line, "Content-Length: "), n), "\r\n");
	buf_append(out, line, (size_t)(end - line));
}

void http_put_end(struct buf *out)
{
	BUF_LIT(out, "\r\n");
}

void http_put_chunk(struct buf *out, const void *p, size_t n)
{
	if (n == 0)
		return;
	buf_printf(out, "%zx\r\n", n);
	buf_append(out, p, n);
	BUF_LIT(out, "\r\n");
}

void http_put_last_chunk(struct buf *out)
{
	BUF_LIT(out, "0\r\n\r\n");
}

size_t http_chunk_begin(struct buf *out)
{
	size_t mark = buf_len(out);
	BUF_LIT(out, "0000000\r\n");
	return mark;
}

void http_chunk_end(struct buf *out, size_t mark)
{
	static const char hex[] = "0123456789abcdef";
	const size_t room = SIZE_DIGITS + sizeof("\r\n") - 1;
	if (buf_failed(out))
		return;
	assert(buf_len(out) >= mark + room);
	size_t n = buf_len(out) - mark - room;
	if (n == 0) {
		buf_truncate(out, mark);
		return;
	}
	assert(n < (size_t)1 << 4 * SIZE_DIGITS);
	// The bytes are ours to change: the buf is not const.
	unsigned char *to = (unsigned char *)buf_data(out) + mark;
	for (size_t i = SIZE_DIGITS, rest = n; i-- > 0; rest >>= 4)
		to[i] = (unsigned char)hex[rest & 15];
	BUF_LIT(out, "\r\n");
}
