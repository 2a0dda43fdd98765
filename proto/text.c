// SPDX-License-Identifier: Apache-2.0
#include "proto/text.h"

#include "proto/text_bulk.h"

#include <b64/cdecode.h>
#include <b64/cencode.h>
#include <errno.h>
#include <stdint.h>
#include <string.h>

// libb64 counts in int, so long inputs go through it in pieces of this many groups (3 bytes, 4 characters).
enum { B64_GROUPS = 1 << 20 };
// Encoding is the bulk path's, decoding from so many bytes on: on output frames of 64 KiB it is ten times as fast as libb64 (3.9 to 0.37 GB/s
// for encoding, 2.3 to 0.39 for decoding), which was 41 % of what a stream cost.
enum { B64_BULK = 256 };

size_t text_b64_len(size_t n)
{
	return n / 3 * 4 + (n % 3 > 0 ? 4 : 0);
}

void text_b64_encode(struct buf *out, const void *p, size_t n)
{
	size_t groups = n / 3, rest = n % 3, len = text_b64_len(n);
	char *dst = (char *)buf_reserve(out, len);
	if (!dst)
		return;
	(void)text_bulk_encode(TEXT_BULK_BEST, dst, p, groups * 3);
	if (rest > 0) {
		// Apart, since libb64 ends the text with a newline, for which the reserved room has no place.
		char last[8];
		base64_encodestate state;
		base64_init_encodestate(&state);
		int k = base64_encode_block((const char *)p + groups * 3, (int)rest, last, &state);
		base64_encode_blockend(last + k, &state);
		memcpy(dst + groups * 4, last, 4);
	}
	buf_commit(out, len);
}

static bool b64_char(char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' || c == '/';
}

// Decodes GROUPS * 4 characters, and leaves the byte behind the result undefined.
static void b64_decode_groups(char *dst, const char *src, size_t groups)
{
	while (groups > 0) {
		size_t some = groups < B64_GROUPS ? groups : B64_GROUPS;
		base64_decodestate state;
		base64_init_decodestate(&state);
		base64_decode_block(src, (int)(some * 4), dst, &state);
		src += some * 4;
		dst += some * 3;
		groups -= some;
	}
}

static bool b64_valid(const char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!b64_char(p[i]))
			return false;
	return true;
}

// libb64 skips what it does not know, and tells it by the sign of a char: it only ever gets the alphabet.
int text_b64_decode(struct buf *out, const char *p, size_t n)
{
	if (n % 4 != 0)
		return -EINVAL;
	size_t pad = 0, len = n / 4 * 3, done = 0;
	while (pad < 2 && pad < n && p[n - 1 - pad] == '=')
		pad++;
	if (n < B64_BULK && !b64_valid(p, n - pad))
		return -EINVAL;
	char *dst = (char *)buf_reserve(out, len - pad);
	if (!dst)
		return buf_failed(out);
	if (n >= B64_BULK) {
		done = text_bulk_decode(TEXT_BULK_BEST, (unsigned char *)dst, p, n - 4);
		if (!b64_valid(p + done * 4, n - pad - done * 4))
			return -EINVAL;
	}
	if (n > 0) {
		// The last group apart: libb64 touches one byte behind its result.
		size_t groups = n / 4 - 1;
		char last[4] = {0};
		base64_decodestate state;
		base64_init_decodestate(&state);
		b64_decode_groups(dst + done * 3, p + done * 4, groups - done);
		base64_decode_block(p + groups * 4, (int)(4 - pad), last, &state);
		memcpy(dst + groups * 3, last, 3 - pad);
	}
	buf_commit(out, len - pad);
	return 0;
}

// Bytes of the UTF-8 sequence that LEAD opens, 0 if it opens none.
static size_t utf8_need(unsigned char lead)
{
	if (lead < 0x80)
		return 1;
	if (lead < 0xc2 || lead > 0xf4)
		return 0;
	return lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
}

// True if C may be the byte at AT (>= 1) of the sequence that LEAD opens (Unicode 3.9, table 3-7).
static bool utf8_goes_on(unsigned char lead, size_t at, unsigned char c)
{
	unsigned char low = 0x80, high = 0xbf;
	if (at == 1) {
		if (lead == 0xe0)
			low = 0xa0;
		else if (lead == 0xed)
			high = 0x9f;
		else if (lead == 0xf0)
			low = 0x90;
		else if (lead == 0xf4)
			high = 0x8f;
	}
	return c >= low && c <= high;
}

static size_t ascii_run(const unsigned char *s, size_t n)
{
	size_t i = 0;
	uint64_t word;
	for (; n - i >= sizeof(word); i += sizeof(word)) {
		memcpy(&word, s + i, sizeof(word));
		if (word & UINT64_C(0x8080808080808080))
			break;
	}
	while (i < n && s[i] < 0x80)
		i++;
	return i;
}

// How many of the N bytes at the front are whole valid characters.
static size_t utf8_run(const unsigned char *s, size_t n)
{
	size_t i = 0;
	for (;;) {
		i += ascii_run(s + i, n - i);
		size_t need = i < n ? utf8_need(s[i]) : 0;
		if (need == 0 || need > n - i)
			return i;
		for (size_t at = 1; at < need; at++)
			if (!utf8_goes_on(s[i], at, s[i + at]))
				return i;
		i += need;
	}
}

static void replace(struct buf *out, struct text_tail *tail, bool *bad)
{
	BUF_LIT(out, "\xef\xbf\xbd"); // U+FFFD
	tail->n = 0;
	if (bad)
		*bad = true;
}

// A sequence that is broken or cut goes through the tail byte by byte, wherever the pieces were cut; only a run
// of whole characters is appended at once.
void text_utf8_repair(struct buf *out, struct text_tail *tail, const void *p, size_t n, bool final, bool *bad)
{
	const unsigned char *s = p;
	size_t i = 0;
	while (i < n) {
		if (tail->n == 0) {
			size_t run = utf8_run(s + i, n - i);
			buf_append(out, s + i, run);
			i += run;
			if (i == n)
				break;
			tail->held[tail->n++] = s[i];
			if (utf8_need(s[i++]) == 0)
				replace(out, tail, bad);
		} else if (!utf8_goes_on(tail->held[0], tail->n, s[i])) {
			replace(out, tail, bad);
		} else {
			tail->held[tail->n++] = s[i++];
			if (tail->n == utf8_need(tail->held[0])) {
				buf_append(out, tail->held, tail->n);
				tail->n = 0;
			}
		}
	}
	if (final && tail->n > 0)
		replace(out, tail, bad);
}

bool text_utf8_valid(const void *p, size_t n)
{
	return n == 0 || utf8_run(p, n) == n;
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

// Decodes one byte at the front of N (> 0) into *C: how many it took, 0 if it is none that FLAGS allow.
static size_t percent_next(const char *p, size_t n, unsigned flags, unsigned char *c)
{
	int high = -1, low = -1;
	size_t took = 1;
	*c = (unsigned char)p[0];
	if (p[0] == '+' && (flags & TEXT_PLUS_IS_SPACE))
		*c = ' ';
	if (p[0] == '%') {
		if (n >= 3) {
			high = hex_value(p[1]);
			low = hex_value(p[2]);
		}
		if (high >= 0 && low >= 0) {
			*c = (unsigned char)(high * 16 + low);
			took = 3;
		} else if (!(flags & TEXT_LENIENT)) {
			return 0;
		}
	}
	return *c == '\0' && !(flags & TEXT_NUL_OK) ? 0 : took;
}

int text_percent_decode(struct buf *out, const char *p, size_t n, unsigned flags)
{
	unsigned char c;
	size_t len = 0;
	for (size_t i = 0, took; i < n; i += took, len++) {
		took = percent_next(p + i, n - i, flags, &c);
		if (took == 0)
			return -EINVAL;
	}
	unsigned char *dst = buf_reserve(out, len);
	if (!dst)
		return buf_failed(out);
	for (size_t i = 0; i < n; dst++)
		i += percent_next(p + i, n - i, flags, dst);
	buf_commit(out, len);
	return 0;
}

static bool unreserved(unsigned char c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
	       c == '_' || c == '~';
}

void text_percent_encode(struct buf *out, const void *p, size_t n)
{
	static const char hex[] = "0123456789ABCDEF";
	const unsigned char *s = p;
	size_t len = n;
	for (size_t i = 0; i < n; i++)
		if (!unreserved(s[i]) && s[i] != '/')
			len += 2;
	unsigned char *dst = buf_reserve(out, len);
	if (!dst)
		return;
	for (size_t i = 0; i < n; i++) {
		if (unreserved(s[i]) || s[i] == '/') {
			*dst++ = s[i];
			continue;
		}
		*dst++ = '%';
		*dst++ = (unsigned char)hex[s[i] >> 4];
		*dst++ = (unsigned char)hex[s[i] & 15];
	}
	buf_commit(out, len);
}

// True if the N encoded bytes decode to KEY.
static bool key_is(const char *p, size_t n, const char *key)
{
	size_t i = 0;
	for (; i < n && *key; key++) {
		unsigned char c = 0;
		size_t took = percent_next(p + i, n - i, TEXT_PLUS_IS_SPACE | TEXT_LENIENT, &c);
		if (took == 0 || c != (unsigned char)*key)
			return false;
		i += took;
	}
	return i == n && !*key;
}

int text_query_raw(const char *query, size_t n, const char *key, const char **p, size_t *len)
{
	for (size_t at = 0; at < n;) {
		const char *pair = query + at, *amp = memchr(pair, '&', n - at);
		size_t pair_len = amp ? (size_t)(amp - pair) : n - at;
		const char *eq = memchr(pair, '=', pair_len);
		size_t key_len = eq ? (size_t)(eq - pair) : pair_len;
		if (pair_len > 0 && key_is(pair, key_len, key)) {
			*p = eq ? eq + 1 : pair + pair_len;
			*len = eq ? pair_len - key_len - 1 : 0;
			return 1;
		}
		at += pair_len + 1;
	}
	return 0;
}

int text_query_get(struct buf *out, const char *query, size_t n, const char *key, unsigned flags)
{
	const char *p;
	size_t len;
	if (!text_query_raw(query, n, key, &p, &len))
		return 0;
	int rc = text_percent_decode(out, p, len, flags | TEXT_PLUS_IS_SPACE);
	return rc < 0 ? rc : 1;
}

bool text_equal_ct(const char *a, size_t an, const char *b, size_t bn)
{
	if (an != bn)
		return false;
	volatile unsigned char diff = 0; // volatile: or the compiler may stop at the first difference
	for (size_t i = 0; i < an; i++)
		diff = (unsigned char)(diff | (a[i] ^ b[i]));
	return diff == 0;
}

int text_int(const char *p, size_t n, long long min, long long max, long long *out)
{
	bool minus = n > 0 && p[0] == '-', over = false;
	long long v = 0;
	if (n == (minus ? 1 : 0))
		return -EINVAL;
	for (size_t i = minus ? 1 : 0; i < n; i++) {
		if (p[i] < '0' || p[i] > '9')
			return -EINVAL;
		// Counted below zero, where the smallest number has its place.
		over = over || __builtin_mul_overflow(v, 10, &v) || __builtin_sub_overflow(v, p[i] - '0', &v);
	}
	if (!minus)
		over = over || __builtin_sub_overflow(0, v, &v);
	if (over || v < min || v > max)
		return -ERANGE;
	*out = v;
	return 0;
}
