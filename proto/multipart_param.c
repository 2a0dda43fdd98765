// SPDX-License-Identifier: Apache-2.0
#include "proto/multipart.h"
#include "proto/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { PIECES_MAX = 64 }; // of one value: each costs a look at the whole header

struct scan {
	const char *p, *end;
};

static bool is_token(char c)
{
	return c > ' ' && c < 0x7f && !strchr("()<>@,;:\\\"/[]?=", c);
}

static void blanks(struct scan *s)
{
	while (s->p < s->end && (*s->p == ' ' || *s->p == '\t'))
		s->p++;
}

static bool mark(struct scan *s, char c)
{
	if (s->p == s->end || *s->p != c)
		return false;
	s->p++;
	return true;
}

static size_t token(struct scan *s, const char **p)
{
	*p = s->p;
	while (s->p < s->end && is_token(*s->p))
		s->p++;
	return (size_t)(s->p - *p);
}

// A quoted string, its quotes and escapes undone, into OUT (may be NULL). False if it does not end.
static bool quoted(struct scan *s, struct buf *out)
{
	if (!mark(s, '"'))
		return false;
	while (s->p < s->end && *s->p != '"') {
		if (*s->p == '\\' && s->p + 1 < s->end && s->p[1] != '\0' && strchr("()<>@,;:\\\"/[]?=", s->p[1]))
			s->p++;
		if (out)
			buf_byte(out, (unsigned char)*s->p);
		s->p++;
	}
	return mark(s, '"');
}

// The next parameter: 1 with its name and S at its value; 0 at the end; -EINVAL.
static int next_param(struct scan *s, const char **name, size_t *n)
{
	blanks(s);
	if (s->p == s->end)
		return 0;
	if (!mark(s, ';'))
		return -EINVAL;
	blanks(s);
	if (s->p == s->end)
		return 0; // a semicolon may end the header
	*n = token(s, name);
	blanks(s);
	if (*n == 0 || !mark(s, '='))
		return -EINVAL;
	blanks(s);
	return 1;
}

// The value at S into OUT (may be NULL).
static bool take_value(struct scan *s, struct buf *out)
{
	const char *p;
	if (s->p < s->end && *s->p == '"')
		return quoted(s, out);
	size_t n = token(s, &p);
	if (out)
		buf_append(out, p, n);
	return n > 0;
}

// Finds the parameter that is called exactly KEY and appends its value: 1, 0, or -EINVAL, also for two of them.
static int find(struct buf *out, const char *header, size_t n, const char *key)
{
	struct scan s = {header, header + n};
	const char *name;
	size_t len;
	int found = 0, rc;
	while (s.p < s.end && *s.p != ';')
		s.p++;
	while ((rc = next_param(&s, &name, &len)) > 0) {
		bool ours = len == strlen(key) && strncasecmp(name, key, len) == 0;
		if ((ours && found) || !take_value(&s, ours ? out : NULL))
			return -EINVAL;
		found |= ours;
	}
	return rc < 0 ? rc : found;
}

// The text of an extended value (charset'language'percent-encoded; without FIRST only the last of these). Only UTF-8 and ASCII.
static int extended(struct buf *out, const char *p, size_t n, bool first)
{
	const char *quote = first ? memchr(p, '\'', n) : NULL;
	if (first) {
		size_t charset = quote ? (size_t)(quote - p) : 0;
		bool known = (charset == 5 && strncasecmp(p, "utf-8", 5) == 0) ||
			     (charset == 8 && strncasecmp(p, "us-ascii", 8) == 0);
		const char *end = p + n;
		quote = known ? memchr(quote + 1, '\'', (size_t)(end - quote - 1)) : NULL;
		if (!quote)
			return -EINVAL;
		n = (size_t)(end - quote - 1);
		p = quote + 1;
	}
	return text_percent_decode(out, p, n, 0);
}

// Finds KEY with SUFFIX and appends its value, decoded if it is EXTENDED.
static int find_piece(
	struct buf *out, const char *header, size_t n, const char *key, const char *suffix, bool ext, bool first)
{
	char name[64];
	struct buf raw;
	buf_init(&raw, 0);
	snprintf(name, sizeof(name), "%s%s", key, suffix);
	int rc = find(&raw, header, n, name);
	if (rc > 0 && buf_failed(&raw))
		rc = buf_failed(&raw);
	if (rc > 0 && !ext)
		buf_append(out, buf_data(&raw), buf_len(&raw));
	if (rc > 0 && ext) {
		int bad = extended(out, (const char *)buf_data(&raw), buf_len(&raw), first);
		rc = bad ? bad : rc;
	}
	buf_release(&raw);
	return rc;
}

// KEY*0, KEY*1*, ... joined: 1, 0 or negative.
static int find_pieces(struct buf *out, const char *header, size_t n, const char *key)
{
	int found = 0;
	for (unsigned i = 0; i < PIECES_MAX; i++) {
		char suffix[16];
		int len = snprintf(suffix, sizeof(suffix), "*%u", i);
		int rc = find_piece(out, header, n, key, suffix, false, false);
		if (rc == 0) {
			snprintf(suffix + len, sizeof(suffix) - (size_t)len, "*");
			rc = find_piece(out, header, n, key, suffix, true, i == 0);
		}
		if (rc <= 0)
			return rc < 0 ? rc : found;
		found = 1;
	}
	return -EINVAL;
}

int multipart_param(struct buf *out, const char *header, size_t n, const char *key)
{
	size_t mark_n = buf_len(out);
	// The extended forms win over the plain one, which is there for those who do not know them.
	int rc = find_piece(out, header, n, key, "*", true, true);
	if (rc == 0)
		rc = find_pieces(out, header, n, key);
	if (rc == 0)
		rc = find_piece(out, header, n, key, "", false, false);
	if (rc >= 0 && buf_failed(out))
		rc = buf_failed(out);
	if (rc < 0)
		buf_truncate(out, mark_n);
	return rc;
}
