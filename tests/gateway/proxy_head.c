// SPDX-License-Identifier: Apache-2.0
// Heads on their way through: all lines but those that belong to one connection only (RFC 9110 7.6.1).
#include "tests/gateway/proxy_priv.h"

#include <string.h>
#include <strings.h>

static bool is_own(const struct http_head *head, struct http_span name)
{
	static const char *const own[] = {
		"Connection", "Keep-Alive", "Transfer-Encoding", "Upgrade", "TE", "Trailer", "Expect"};
	// Whatever Connection says: without these the message would be another.
	static const char *const kept[] = {"Host", "Content-Length", "Content-Type", "Content-Encoding"};
	static const char proxy[] = "Proxy-";
	char text[64];
	for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
		if (http_span_is_nocase(name, own[i]))
			return true;
	}
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
		if (http_span_is_nocase(name, kept[i]))
			return false;
	}
	if (name.n >= sizeof proxy - 1 && strncasecmp(name.p, proxy, sizeof proxy - 1) == 0)
		return true;
	if (name.n >= sizeof text)
		return false;
	memcpy(text, name.p, name.n);
	text[name.n] = '\0';
	return http_has_token(head, "Connection", text);
}

static void put_line(struct buf *out, const struct http_header *h)
{
	buf_append(out, h->name.p, h->name.n);
	BUF_LIT(out, ": ");
	buf_append(out, h->value.p, h->value.n);
	BUF_LIT(out, "\r\n");
}

void proxy_put_lines(struct buf *out, const struct http_head *head, bool upgrade)
{
	bool no_length = head->status == 204 || head->status / 100 == 1;
	for (size_t i = 0; i < head->header_count; i++) {
		const struct http_header *h = &head->headers[i];
		bool other = upgrade && http_span_is_nocase(h->name, "Upgrade");
		if (is_own(head, h->name) && !other)
			continue;
		if (!no_length || !http_span_is_nocase(h->name, "Content-Length"))
			put_line(out, h);
	}
	if (upgrade)
		BUF_LIT(out, "Connection: Upgrade\r\n");
}

bool proxy_upgrades(const struct http_head *head)
{
	// h2c would be spoken on behind the upgrade by nobody here: it is ignored, as it may be.
	return head->minor > 0 && http_get(head, "Upgrade").n > 0 && http_has_token(head, "Connection", "upgrade") &&
	       !http_has_token(head, "Upgrade", "h2c");
}

// As it came; but what was said to a proxy ("http://host/path") is said to a server without the host.
static void put_target(struct buf *out, const struct http_head *head)
{
	char first = head->target.n > 0 ? head->target.p[0] : '/';
	if (first == '/' || first == '*') {
		buf_append(out, head->target.p, head->target.n);
		return;
	}
	buf_append(out, head->path.p, head->path.n);
	if (head->query.n > 0)
		BUF_LIT(out, "?");
	buf_append(out, head->query.p, head->query.n);
}

void proxy_put_request(struct buf *out, const struct http_head *head, bool upgrade)
{
	buf_append(out, head->method.p, head->method.n);
	BUF_LIT(out, " ");
	put_target(out, head);
	BUF_LIT(out, " HTTP/1.1\r\n");
	proxy_put_lines(out, head, upgrade);
	if (!http_get(head, "Host").p)
		BUF_LIT(out, "Host: localhost\r\n"); // HTTP/1.0 may go without
	if (head->chunked)
		BUF_LIT(out, "Transfer-Encoding: chunked\r\n");
	if (!upgrade)
		BUF_LIT(out, "Connection: close\r\n");
	http_put_end(out);
}
