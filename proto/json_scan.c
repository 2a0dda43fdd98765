// SPDX-License-Identifier: Apache-2.0
#include "proto/json_scan.h"

#include <errno.h>
#include <string.h>

// --- finding ---

void json_scan_init(struct json_scan *s, const char *key)
{
	*s = (struct json_scan){.key = key};
}

static int hex4(const char *p, unsigned *out)
{
	*out = 0;
	for (int i = 0; i < 4; i++) {
		char c = p[i];
		unsigned v = c >= '0' && c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a' + 10);
		if (v > 15 || (c > '9' && (c | 0x20) < 'a'))
			return -EINVAL;
		*out = *out << 4 | v;
	}
	return 0;
}

// True if the string that was read last is the key: its letters as they are or as \u00XX.
static bool is_key(const struct json_scan *s)
{
	size_t i = 0;
	for (const char *k = s->key; *k; k++) {
		unsigned c;
		if (s->name_n - i >= 6 && s->name[i] == '\\' && s->name[i + 1] == 'u') {
			if (hex4(s->name + i + 2, &c) < 0)
				return false;
			i += 6;
		} else if (i < s->name_n) {
			c = (unsigned char)s->name[i++];
		} else {
			return false;
		}
		if (c != (unsigned char)*k)
			return false;
	}
	return i == s->name_n;
}

static void keep_name(struct json_scan *s, const char *p, size_t n)
{
	if (s->depth != 1 || s->is_value)
		return;
	// One that does not fit stays longer than any that can be the key.
	size_t room = sizeof s->name - s->name_n;
	memcpy(s->name + s->name_n, p, n < room ? n : room);
	s->name_n += n < room ? n : room;
}

// The string's inside, up to its end or that of the piece. Returns how many bytes that are, the quote included.
static size_t in_string(struct json_scan *s, const char *p, size_t n)
{
	size_t i = 0;
	while (i < n && (s->escaped || p[i] != '"')) {
		s->escaped = !s->escaped && p[i] == '\\';
		i++;
	}
	keep_name(s, p, i);
	if (i == n)
		return i;
	s->in_string = false;
	if (s->is_value && s->depth == 1 && !s->found) {
		s->found = true;
		s->from = s->start;
		s->to = s->at + i;
	}
	s->was_string = !s->is_value;
	s->is_value = false;
	return i + 1;
}

static void outside(struct json_scan *s, char c)
{
	switch (c) {
	case ' ':
	case '\t':
	case '\r':
	case '\n':
		return;
	case '"':
		s->in_string = true;
		s->start = s->at + 1;
		s->name_n = 0;
		return;
	case ':':
		s->is_value = s->depth == 1 && s->was_string && is_key(s);
		s->was_string = false;
		return;
	case '{':
	case '[':
		s->depth++;
		break;
	case '}':
	case ']':
		s->depth--;
		break;
	default:
		break;
	}
	s->is_value = s->was_string = false;
}

void json_scan_feed(struct json_scan *s, const char *p, size_t n)
{
	while (n > 0) {
		size_t used = 1;
		if (s->in_string)
			used = in_string(s, p, n);
		else
			outside(s, *p);
		s->at += used;
		p += used;
		n -= used;
	}
}

// --- decoding ---

static void put_utf8(struct buf *out, unsigned cp)
{
	char b[4];
	size_t n = cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
	static const unsigned char lead[] = {0, 0, 0xC0, 0xE0, 0xF0};
	for (size_t i = n; i-- > 1; cp >>= 6)
		b[i] = (char)(0x80 | (cp & 0x3F));
	b[0] = (char)(lead[n] | cp);
	buf_append(out, b, n);
}

// The escape that U holds so far: 1 if it is complete (and appended), 0 if not, -EINVAL.
static int try_escape(const struct json_unescape *u, struct buf *out)
{
	static const char letters[] = "\"\"\\\\//b\bf\fn\nr\rt\t"; // pairs: the letter, what it stands for
	const char *e = u->escape;
	unsigned high, low;
	if (u->n < 2)
		return 0;
	if (e[1] != 'u') {
		for (const char *l = letters; *l; l += 2) {
			if (*l == e[1]) {
				buf_byte(out, (unsigned char)l[1]);
				return 1;
			}
		}
		return -EINVAL;
	}
	if (u->n < 6)
		return 0;
	if (hex4(e + 2, &high) < 0 || (high >= 0xDC00 && high <= 0xDFFF))
		return -EINVAL;
	if (high < 0xD800 || high > 0xDFFF) {
		put_utf8(out, high);
		return 1;
	}
	if ((u->n > 6 && e[6] != '\\') || (u->n > 7 && e[7] != 'u'))
		return -EINVAL;
	if (u->n < 12)
		return 0;
	if (hex4(e + 8, &low) < 0 || low < 0xDC00 || low > 0xDFFF)
		return -EINVAL;
	put_utf8(out, 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00));
	return 1;
}

int json_unescape(struct json_unescape *u, struct buf *out, const char *p, size_t n)
{
	for (size_t i = 0; i < n;) {
		if (u->n > 0 || p[i] == '\\') {
			if (u->tail.n > 0)
				return -EINVAL; // a character is cut
			u->escape[u->n++] = p[i++];
			int rc = try_escape(u, out);
			if (rc < 0)
				return rc;
			if (rc > 0)
				u->n = 0;
			continue;
		}
		size_t from = i;
		while (i < n && p[i] != '\\') {
			if ((unsigned char)p[i] < 0x20 || p[i] == '"')
				return -EINVAL;
			i++;
		}
		bool bad = false;
		text_utf8_repair(out, &u->tail, p + from, i - from, false, &bad);
		if (bad)
			return -EINVAL;
	}
	return buf_failed(out);
}

int json_unescape_end(const struct json_unescape *u)
{
	return u->n > 0 || u->tail.n > 0 ? -EINVAL : 0;
}
