// SPDX-License-Identifier: Apache-2.0
// Browsers send requests for whatever page is open in them, also to a port of the machine they run on. What they say about that page
// (Origin, Sec-Fetch-Site) decides; clients that are no browsers say nothing.
#include "daemon/net/route.h"

#include <string.h>
#include <strings.h>

enum site { SITE_NONE, SITE_OWN, SITE_ALLOWED, SITE_OTHER };

struct origin {
	struct http_span scheme, authority;
};

// False for "null" and whatever else is no origin with a host.
static bool parse(struct http_span s, struct origin *o)
{
	const char *colon = s.n > 0 ? memchr(s.p, ':', s.n) : NULL;
	if (!colon || s.n - (size_t)(colon - s.p) <= 3 || memcmp(colon, "://", 3) != 0)
		return false;
	o->scheme = (struct http_span){s.p, (size_t)(colon - s.p)};
	o->authority = (struct http_span){colon + 3, s.n - o->scheme.n - 3};
	return true;
}

static bool same(struct http_span a, struct http_span b)
{
	return a.n == b.n && strncasecmp(a.p, b.p, a.n) == 0;
}

// S without the port that SCHEME has anyway.
static struct http_span without_port(struct http_span s, struct http_span scheme)
{
	const char *port = http_span_is_nocase(scheme, "https")  ? ":443"
			   : http_span_is_nocase(scheme, "http") ? ":80"
								 : "";
	size_t n = strlen(port);
	if (n > 0 && s.n > n && memcmp(s.p + s.n - n, port, n) == 0)
		s.n -= n;
	return s;
}

static bool same_place(const struct origin *o, struct http_span authority)
{
	return same(without_port(o->authority, o->scheme), without_port(authority, o->scheme));
}

// The page came from where the request goes to.
static bool is_own(const struct origin *o, const struct http_head *head)
{
	struct http_span host = http_get(head, "Host");
	if (!http_span_is_nocase(o->scheme, "http") && !http_span_is_nocase(o->scheme, "https"))
		return false;
	return host.n > 0 && same_place(o, host);
}

static bool allows_any(const struct route_sites *s)
{
	for (size_t i = 0; i < s->count; i++)
		if (strcmp(s->origins[i], "*") == 0)
			return true;
	return false;
}

static bool is_allowed(const struct route_sites *s, const struct origin *o)
{
	for (size_t i = 0; i < s->count; i++) {
		struct origin x;
		if (parse((struct http_span){s->origins[i], strlen(s->origins[i])}, &x) && same(x.scheme, o->scheme) &&
			same_place(o, x.authority))
			return true;
	}
	return false;
}

// What the Origin header says. Two of them are one too many to believe either.
static enum site site_of(const struct route_sites *s, const struct http_head *head)
{
	struct http_span origin = {NULL, 0};
	struct origin o;
	for (size_t i = 0; i < head->header_count; i++) {
		if (!http_span_is_nocase(head->headers[i].name, "Origin"))
			continue;
		if (origin.p)
			return SITE_OTHER;
		origin = head->headers[i].value;
	}
	if (!origin.p)
		return SITE_NONE;
	if (allows_any(s))
		return SITE_ALLOWED;
	if (!parse(origin, &o))
		return SITE_OTHER;
	return is_allowed(s, &o) ? SITE_ALLOWED : is_own(&o, head) ? SITE_OWN : SITE_OTHER;
}

// Where browsers say it themselves, also for what they send without an Origin.
static bool fetched_elsewhere(const struct http_head *head)
{
	for (size_t i = 0; i < head->header_count; i++) {
		const struct http_header *h = &head->headers[i];
		if (http_span_is_nocase(h->name, "Sec-Fetch-Site") && !http_span_is(h->value, "same-origin") &&
			!http_span_is(h->value, "none"))
			return true;
	}
	return false;
}

static int refuse(struct err *e)
{
	err_set(e, ERR_PERMISSION_DENIED, "request of a page of another site (see --allow-origin)");
	e->reason = "cross_site";
	return -1;
}

int route_check_site(const struct route_sites *s, const struct http_head *head, struct err *e)
{
	if (!s->guarded)
		return 0;
	enum site site = site_of(s, head);
	if (site == SITE_ALLOWED || (site == SITE_NONE && allows_any(s)))
		return 0;
	return site == SITE_OTHER || fetched_elsewhere(head) ? refuse(e) : 0;
}

void route_put_cors(const struct route_sites *s, const struct http_head *head, struct buf *out)
{
	if (!s->guarded || s->count == 0)
		return;
	if (allows_any(s)) {
		if (site_of(s, head) == SITE_ALLOWED)
			BUF_LIT(out, "Access-Control-Allow-Origin: *\r\n");
		return;
	}
	if (site_of(s, head) == SITE_ALLOWED) { // as one of the list, so with nothing in it that a header cannot carry
		struct http_span origin = http_get(head, "Origin");
		BUF_LIT(out, "Access-Control-Allow-Origin: ");
		buf_append(out, origin.p, origin.n);
		BUF_LIT(out, "\r\n");
	}
	BUF_LIT(out, "Vary: Origin\r\n");
}

bool route_is_preflight(const struct route_table *t, const struct http_head *head)
{
	return t->sites.guarded && http_span_is(head->method, "OPTIONS") && http_get(head, "Origin").p;
}

void route_preflight(void *ctx, struct conn *c)
{
	(void)ctx;
	conn_reply(c, 204, NULL,
		"Access-Control-Allow-Methods: GET, POST\r\n"
		"Access-Control-Allow-Headers: Authorization, Content-Type, Keepalive-Ping-Interval, X-Access-Token\r\n"
		"Access-Control-Max-Age: 7200\r\n",
		NULL);
}
