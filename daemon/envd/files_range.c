// SPDX-License-Identifier: Apache-2.0
// Ranges and conditions of a download (RFC 9110 13 and 14). There are no entity tags: only "*" matches.
#include "daemon/envd/files.h"
#include "proto/text.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// --- ranges ---

// A count of bytes; one that no file has is as good as the largest.
static bool number(struct http_span s, int64_t *v)
{
	long long got;
	if (s.n == 0)
		return false;
	for (size_t i = 0; i < s.n; i++)
		if (s.p[i] < '0' || s.p[i] > '9')
			return false;
	*v = text_int(s.p, s.n, 0, INT64_MAX, &got) < 0 ? INT64_MAX : (int64_t)got;
	return true;
}

// One spec: 1 with *OUT, 0 if it is outside of the file, or FILES_RANGE_BAD.
static int one_range(struct http_span spec, int64_t size, struct files_range *out)
{
	const char *dash = memchr(spec.p, '-', spec.n);
	if (!dash)
		return FILES_RANGE_BAD;
	struct http_span first = http_span_trim((struct http_span){spec.p, (size_t)(dash - spec.p)});
	struct http_span last = http_span_trim((struct http_span){dash + 1, spec.n - (size_t)(dash - spec.p) - 1});
	int64_t from, to = size - 1;
	if (first.n == 0) {
		if (!number(last, &to))
			return FILES_RANGE_BAD;
		to = to < size ? to : size;
		*out = (struct files_range){size - to, to};
		return to > 0;
	}
	if (!number(first, &from))
		return FILES_RANGE_BAD;
	if (from >= size)
		return 0;
	if (last.n > 0 && (!number(last, &to) || to < from))
		return FILES_RANGE_BAD;
	to = to < size ? to : size - 1;
	*out = (struct files_range){from, to - from + 1};
	return 1;
}

// Fills LIST, which has room for all. The number, or a failure.
static int all_ranges(struct http_span rest, int64_t size, struct files_range *list)
{
	int count = 0;
	bool outside = false;
	while (rest.n > 0) {
		const char *comma = memchr(rest.p, ',', rest.n);
		size_t n = comma ? (size_t)(comma - rest.p) : rest.n;
		struct http_span spec = http_span_trim((struct http_span){rest.p, n});
		n += comma != NULL;
		rest.p += n;
		rest.n -= n;
		if (spec.n == 0)
			continue;
		int rc = one_range(spec, size, &list[count]);
		if (rc < 0)
			return rc;
		outside |= rc == 0;
		count += rc;
	}
	return count == 0 && outside ? FILES_RANGE_OUTSIDE : count;
}

// More bytes than the file has are no use to anyone but an attacker.
static bool too_much(const struct files_range *list, int count, int64_t size)
{
	int64_t left = size;
	for (int i = 0; i < count; i++) {
		if (list[i].len > left)
			return true;
		left -= list[i].len;
	}
	return false;
}

int files_ranges(struct http_span header, int64_t size, struct files_range **out)
{
	static const char unit[] = "bytes=";
	const size_t u = sizeof unit - 1;
	*out = NULL;
	if (header.n == 0)
		return 0;
	if (header.n < u || memcmp(header.p, unit, u) != 0)
		return FILES_RANGE_BAD;
	struct http_span rest = {header.p + u, header.n - u};
	size_t room = 1;
	for (size_t i = 0; i < rest.n; i++)
		room += rest.p[i] == ',';
	struct files_range *list = calloc(room, sizeof *list);
	if (!list)
		return FILES_RANGE_NOMEM;
	int count = all_ranges(rest, size, list);
	if (count == FILES_RANGE_OUTSIDE && size == 0)
		count = 0;
	if (count > 0 && too_much(list, count, size))
		count = 0;
	if (count <= 0)
		free(list);
	else
		*out = list;
	return count;
}

// --- conditions ---

// An HTTP date in any of its three forms; 0 if it is none.
static int64_t date(struct http_span s)
{
	static const char *const forms[] = {
		"%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %d %H:%M:%S %Y"};
	char text[64];
	if (s.n >= sizeof text)
		return 0;
	memcpy(text, s.p, s.n);
	text[s.n] = '\0';
	for (size_t i = 0; i < sizeof forms / sizeof *forms; i++) {
		struct tm tm = {0};
		const char *end = strptime(text, forms[i], &tm);
		if (end && !*end)
			return timegm(&tm);
	}
	return 0;
}

// True if one of the header's tags is "*".
static bool any_tag(struct http_span s)
{
	s = http_span_trim(s);
	return s.n > 0 && s.p[0] == '*';
}

int files_conditions(const struct http_head *head, int64_t mtime)
{
	struct http_span match = http_get(head, "If-Match"), none = http_get(head, "If-None-Match");
	struct http_span since = http_get(head, "If-Modified-Since"), before = http_get(head, "If-Unmodified-Since");
	if (match.n > 0 && !any_tag(match))
		return 412;
	if (match.n == 0 && before.n > 0 && mtime > 0) {
		int64_t at = date(before);
		if (at > 0 && mtime > at)
			return 412;
	}
	if (none.n > 0)
		return any_tag(none) ? 304 : 200;
	if (since.n > 0 && mtime > 0) {
		int64_t at = date(since);
		if (at > 0 && mtime <= at)
			return 304;
	}
	return 200;
}

bool files_if_range(const struct http_head *head, int64_t mtime)
{
	struct http_span h = http_get(head, "If-Range");
	return h.n == 0 || (mtime > 0 && date(h) == mtime);
}
