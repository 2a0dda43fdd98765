// SPDX-License-Identifier: Apache-2.0
// Which sandbox and which port a request is for: routing headers, then the Host, then a /files URL's signature.
#include "proto/text.h"
#include "tests/gateway/proxy_priv.h"

#include <string.h>
#include <strings.h>

static const char id_header[] = "E2b-Sandbox-Id", port_header[] = "E2b-Sandbox-Port";

static int refuse(struct err *e, int status, const char *what)
{
	return err_http(e, status, status == 401 ? ERR_UNAUTHENTICATED : ERR_INVALID_ARGUMENT, "%s", what);
}

static bool has_header(const struct http_head *head, const char *name)
{
	return http_get(head, name).p;
}

static bool is_id(struct http_span s)
{
	for (size_t i = 0; i < s.n; i++) {
		if (!(s.p[i] >= 'a' && s.p[i] <= 'z') && !(s.p[i] >= '0' && s.p[i] <= '9'))
			return false;
	}
	return s.n > 0 && s.n <= PROXY_ID;
}

static int set_target(
	const struct gateway *g, struct http_span id, struct http_span port, struct proxy_target *t, struct err *e)
{
	long long n;
	if (!is_id(id))
		return refuse(e, 400, "Invalid sandbox ID");
	if (text_int(port.p, port.n, 1, 65535, &n))
		return refuse(e, 400, "Invalid sandbox port");
	memcpy(t->id, id.p, id.n);
	t->id[id.n] = '\0';
	t->port = (unsigned)n;
	t->session = sessions_find(g, id.p, id.n);
	return 0;
}

// --- the Host ---

struct host {
	struct http_span port, id, rest; // PORT-ID[-more].REST
};

static struct http_span cut(struct http_span *s, char at)
{
	const char *mark = s->n > 0 ? memchr(s->p, at, s->n) : NULL;
	struct http_span front = {s->p, mark ? (size_t)(mark - s->p) : s->n};
	s->p += front.n + (mark ? 1 : 0);
	s->n -= front.n + (mark ? 1 : 0);
	return front;
}

static bool all_digits(struct http_span s)
{
	size_t i = 0;
	while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9')
		i++;
	return s.n > 0 && i == s.n;
}

// A name that no sandbox has, but that is under our domain, is a sandbox's too: it is to be told what is wrong with it.
static bool host_of_sandbox(const struct gateway *g, const struct http_head *head, struct host *h)
{
	h->rest = http_get(head, "Host");
	bool dot = h->rest.n > 0 && memchr(h->rest.p, '.', h->rest.n);
	struct http_span label = cut(&h->rest, '.');
	if (!dot || !memchr(label.p, '-', label.n))
		return false;
	h->port = cut(&label, '-');
	h->id = cut(&label, '-'); // old clients append "-clientID"
	return http_span_is_nocase(h->rest, g->domain) || (all_digits(h->port) && is_id(h->id));
}

// --- /files ---

static bool is_files(const struct http_head *head)
{
	return http_span_is(head->path, "/files");
}

// The query's value for KEY in OUT; NULL if there is none (or no memory for it).
static const char *query_value(struct buf *out, const struct http_head *head, const char *key)
{
	if (text_query_get(out, head->query.p, head->query.n, key, TEXT_LENIENT) != 1)
		return NULL;
	return buf_cstr(out);
}

// The method that the URL is signed for: a browser asks first whether it may send it.
static struct http_span signed_method(const struct http_head *head)
{
	struct http_span later = http_get(head, "Access-Control-Request-Method");
	return http_span_is(head->method, "OPTIONS") && later.n > 0 ? later : head->method;
}

static int files_target(const struct gateway *g, const struct http_head *head, struct proxy_target *t, struct err *e)
{
	static const char *const keys[] = {"path", "username", "signature", "signature_expiration"};
	enum { KEYS = sizeof keys / sizeof *keys };
	struct http_span method = signed_method(head);
	struct buf bufs[KEYS + 1] = {{0}};
	const char *v[KEYS];
	buf_append(&bufs[KEYS], method.p, method.n);
	const char *name = buf_cstr(&bufs[KEYS]);
	for (size_t i = 0; i < KEYS; i++)
		v[i] = query_value(&bufs[i], head, keys[i]);
	struct session *s = name ? sessions_signed(g, name, v[0] ? v[0] : "", v[1] ? v[1] : "", v[2], v[3]) : NULL;
	bool has_signature = v[2];
	for (size_t i = 0; i <= KEYS; i++)
		buf_release(&bufs[i]);
	if (!s && has_signature)
		return refuse(e, 401, "invalid signature");
	if (!s)
		return refuse(e, 400, "which sandbox is meant? neither headers nor Host nor a signature say it");
	const char *id = session_id(s);
	t->is_signed = has_signature;
	return set_target(g, (struct http_span){id, strlen(id)}, (struct http_span){"49983", 5}, t, e);
}

// --- all ---

bool proxy_wants(const struct gateway *g, const struct http_head *head)
{
	struct host h;
	return has_header(head, id_header) || has_header(head, port_header) || host_of_sandbox(g, head, &h) ||
	       is_files(head);
}

int proxy_find(const struct gateway *g, const struct http_head *head, struct proxy_target *t, struct err *e)
{
	struct host h;
	*t = (struct proxy_target){.session = NULL};
	if (has_header(head, id_header) && has_header(head, port_header))
		return set_target(g, http_get(head, id_header), http_get(head, port_header), t, e);
	if (has_header(head, id_header) || has_header(head, port_header))
		return refuse(e, 400, "missing header");
	if (host_of_sandbox(g, head, &h))
		return set_target(g, h.id, h.port, t, e);
	return files_target(g, head, t, e);
}
