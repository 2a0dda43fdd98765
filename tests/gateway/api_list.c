// SPDX-License-Identifier: Apache-2.0
// Lists: pages, filters (contract 2.4).
#include "tests/gateway/api_priv.h"

#include "proto/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// --- pages ---

static int bad(struct conn *c, const char *key, int rc)
{
	struct err e;
	if (rc == -ENOMEM)
		err_sys(&e, rc, "%s", key);
	else
		err_set(&e, ERR_INVALID_ARGUMENT, "invalid %s", key);
	conn_error(c, &e);
	return -1;
}

int api_query_int(struct conn *c, const char *key, long long min, long long max, long long *v)
{
	const char *text;
	struct buf out;
	buf_init(&out, 0);
	int rc = api_query(c, key, &out, &text);
	if (rc > 0 && text_int(text, strlen(text), min, max, v) < 0)
		rc = bad(c, key, -EINVAL);
	buf_release(&out);
	return rc;
}

int api_page_parse(struct conn *c, struct api_page *p)
{
	long long limit = API_LIST_MAX, after = 0;
	const char *text;
	struct buf out;
	buf_init(&out, 0);
	p->asc = false;
	int rc = api_query(c, "order", &out, &text);
	if (rc > 0 && strcmp(text, "asc") == 0)
		p->asc = true;
	else if (rc > 0 && strcmp(text, "desc") != 0)
		rc = bad(c, "order", -EINVAL);
	buf_release(&out);
	if (rc < 0 || api_query_int(c, "limit", 1, API_LIST_MAX, &limit) < 0 ||
		api_query_int(c, "nextToken", 1, INT64_MAX, &after) < 0)
		return -1;
	p->limit = limit;
	p->after = (uint64_t)after;
	return 0;
}

bool api_page_has(const struct api_page *p, uint64_t serial)
{
	return p->after == 0 || (p->asc ? serial > p->after : serial < p->after);
}

void api_page_reply(struct conn *c, const struct buf *body, uint64_t last)
{
	struct buf head;
	buf_init(&head, 0);
	if (last) {
		BUF_LIT(&head, "X-Next-Token: ");
		buf_u64(&head, last);
		BUF_LIT(&head, "\r\n");
	}
	const char *extra = last ? buf_cstr(&head) : NULL;
	if (last && !extra) {
		struct err e;
		err_sys(&e, -ENOMEM, "list");
		conn_error(c, &e);
	} else {
		api_reply(c, 200, extra, body);
	}
	buf_release(&head);
}

// --- filters ---

struct filter {
	struct api_page page;
	bool running, paused;
	int64_t after_ns; // started then or later
	struct buf template;
	json_t *metadata; // pairs that must be there
};

// RFC 3339 to nanoseconds since 1970: 0 or -EINVAL.
static int parse_time(const char *text, int64_t *ns)
{
	struct tm tm = {0};
	int64_t fraction = 0, unit = 100000000, offset = 0;
	const char *p = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	if (!p)
		return -EINVAL;
	if (*p == '.') {
		for (p++; *p >= '0' && *p <= '9'; p++, unit /= 10)
			fraction += (*p - '0') * unit;
	}
	if (*p == '+' || *p == '-') {
		int sign = *p == '+' ? 1 : -1;
		long long h, m;
		if (strlen(p) != 6 || p[3] != ':' || text_int(p + 1, 2, 0, 23, &h) < 0 ||
			text_int(p + 4, 2, 0, 59, &m) < 0)
			return -EINVAL;
		offset = sign * (h * 3600 + m * 60);
	} else if ((*p != 'Z' && *p != 'z') || p[1]) {
		return -EINVAL;
	}
	time_t t = timegm(&tm);
	if (t < 0 || t > INT64_MAX / 1000000000 - 86400)
		return -EINVAL;
	*ns = ((int64_t)t - offset) * 1000000000 + fraction;
	return 0;
}

// The N characters of a form's key or value, decoded twice.
static int decode_twice(struct buf *out, const char *p, size_t n)
{
	struct buf once;
	buf_init(&once, 0);
	int rc = text_percent_decode(&once, p, n, TEXT_PLUS_IS_SPACE | TEXT_LENIENT);
	if (rc == 0)
		rc = text_percent_decode(out, (const char *)buf_data(&once), buf_len(&once), TEXT_LENIENT);
	buf_release(&once);
	return rc;
}

static int add_pair(json_t *to, const char *p, size_t n)
{
	struct buf key, value;
	const char *eq = memchr(p, '=', n);
	size_t k = eq ? (size_t)(eq - p) : n;
	buf_init(&key, 0);
	buf_init(&value, 0);
	int rc = decode_twice(&key, p, k);
	if (rc == 0 && eq)
		rc = decode_twice(&value, eq + 1, n - k - 1);
	const char *ks = rc == 0 ? buf_cstr(&key) : NULL, *vs = rc == 0 ? buf_cstr(&value) : NULL;
	if (rc == 0 && (!ks || !vs))
		rc = -ENOMEM;
	if (rc == 0 && (!text_utf8_valid(ks, strlen(ks)) || !text_utf8_valid(vs, strlen(vs))))
		rc = -EINVAL;
	if (rc == 0 && json_object_set_new(to, ks, json_string(vs)) < 0)
		rc = -ENOMEM;
	buf_release(&key);
	buf_release(&value);
	return rc;
}

// A form within the query's value, whose pairs are percent-encoded once more.
static int parse_metadata(struct filter *f, const char *text)
{
	int rc = 0;
	f->metadata = json_object();
	if (!f->metadata)
		return -ENOMEM;
	for (const char *p = text; rc == 0 && *p;) {
		size_t n = strcspn(p, "&");
		if (n > 0)
			rc = add_pair(f->metadata, p, n);
		p += n + (p[n] == '&');
	}
	return rc;
}

static int parse_state(struct filter *f, const char *text)
{
	f->running = f->paused = false;
	for (const char *p = text; *p;) {
		size_t n = strcspn(p, ",");
		if (n == 7 && strncmp(p, "running", n) == 0)
			f->running = true;
		else if (n == 6 && strncmp(p, "paused", n) == 0)
			f->paused = true;
		else
			return -EINVAL;
		p += n + (p[n] == ',');
	}
	return 0;
}

static int parse_template(struct filter *f, const char *text)
{
	buf_str(&f->template, text);
	return buf_failed(&f->template);
}

static int parse_after(struct filter *f, const char *text)
{
	return parse_time(text, &f->after_ns);
}

// 0, or -1: answered.
static int filter_parse(struct conn *c, struct filter *f)
{
	static const struct part {
		const char *key;
		int (*parse)(struct filter *f, const char *text);
	} parts[] = {{"metadata", parse_metadata}, {"state", parse_state}, {"template", parse_template},
		{"startedAfter", parse_after}};
	struct buf out;
	const char *text;
	int rc = api_page_parse(c, &f->page);
	buf_init(&out, 0);
	for (size_t i = 0; rc == 0 && i < sizeof parts / sizeof *parts; i++) {
		rc = api_query(c, parts[i].key, &out, &text);
		int parsed = rc > 0 ? parts[i].parse(f, text) : 0;
		if (rc > 0)
			rc = parsed < 0 ? bad(c, parts[i].key, parsed) : 0;
	}
	buf_release(&out);
	return rc;
}

static bool matches(const struct filter *f, const struct session *s)
{
	const char *key;
	json_t *value;
	bool paused = s->state == SESSION_PAUSED;
	if (s->state == SESSION_CREATING || !(paused ? f->paused : f->running))
		return false;
	if (s->started_ms * 1000000 < f->after_ns)
		return false;
	size_t n = buf_len(&f->template);
	if (n > 0 && (strlen(s->template) != n || memcmp(s->template, buf_data(&f->template), n) != 0))
		return false;
	json_object_foreach(f->metadata, key, value)
	{
		const char *has = json_string_value(json_object_get(s->metadata, key));
		if (!has || strcmp(has, json_string_value(value)) != 0)
			return false;
	}
	return true;
}

// --- sandboxes ---

static struct session *first(const struct sessions *all, bool asc)
{
	if (asc || !all->table)
		return all->table;
	return ELMT_FROM_HH(all->table->hh.tbl, all->table->hh.tbl->tail);
}

static struct session *following(const struct session *s, bool asc)
{
	return asc ? s->hh.next : s->hh.prev;
}

static void list(struct gateway *g, struct conn *c, const struct filter *f)
{
	struct jsonw w;
	struct buf out;
	int64_t n = 0;
	uint64_t last = 0;
	bool more = false;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_arr(&w);
	for (struct session *s = first(g->sessions, f->page.asc); s && !more; s = following(s, f->page.asc)) {
		if (!api_page_has(&f->page, s->serial) || !matches(f, s))
			continue;
		more = n == f->page.limit;
		if (more)
			break;
		api_put_listed(&w, s);
		last = s->serial;
		n++;
	}
	jsonw_arr_end(&w);
	api_page_reply(c, &out, more ? last : 0);
	buf_release(&out);
}

static void list_states(struct gateway *g, struct conn *c, bool paused)
{
	struct filter f = {.running = true, .paused = paused};
	buf_init(&f.template, 0);
	if (filter_parse(c, &f) == 0)
		list(g, c, &f);
	buf_release(&f.template);
	json_decref(f.metadata);
}

void api_list(void *ctx, struct conn *c)
{
	list_states(ctx, c, true);
}

// The first generation knew no paused ones.
void api_list_running(void *ctx, struct conn *c)
{
	list_states(ctx, c, false);
}

// --- snapshots ---

static bool snapshot_matches(const struct snapshot *p, const char *session, const char *name)
{
	return p->ready && (!session || strcmp(p->session, session) == 0) && (!name || strcmp(p->name, name) == 0);
}

static void list_snapshots(
	struct gateway *g, struct conn *c, const struct api_page *page, const char *session, const char *name)
{
	struct jsonw w;
	struct buf out;
	int64_t n = 0;
	uint64_t last = 0;
	bool more = false;
	struct snapshot *head = snapshots_first(g->sessions->snapshots);
	struct snapshot *p = page->asc || !head ? head : head->prev;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_arr(&w);
	while (p && !more) {
		if (api_page_has(page, p->serial) && snapshot_matches(p, session, name)) {
			more = n == page->limit;
			if (!more) {
				api_put_snapshot(&w, p);
				last = p->serial;
				n++;
			}
		}
		p = page->asc ? p->next : p == head ? NULL : p->prev;
	}
	jsonw_arr_end(&w);
	api_page_reply(c, &out, more ? last : 0);
	buf_release(&out);
}

void api_snapshot_list(void *ctx, struct conn *c)
{
	struct api_page page;
	struct buf session, name;
	const char *id = NULL, *wanted = NULL;
	buf_init(&session, 0);
	buf_init(&name, 0);
	if (api_page_parse(c, &page) == 0 && api_query(c, "sandboxID", &session, &id) >= 0 &&
		api_query(c, "name", &name, &wanted) >= 0)
		list_snapshots(ctx, c, &page, id, wanted);
	buf_release(&session);
	buf_release(&name);
}
