// SPDX-License-Identifier: Apache-2.0
#include "proto/json.h"

#include "proto/text.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdalign.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- reading ---

enum { TREE_FACTOR = 8, TREE_SLACK = 1024 * 1024 };

// In front of each of jansson's allocations: the ring of those of one document.
struct block {
	alignas(max_align_t) struct block *prev;
	struct block *next;
};

// jansson's allocator is global, so its bound cannot live anywhere but in a static. It is active inside jsonr_parse
// only; freeing always works. A failure must not return to jansson's lexer: it ignores that its token buffer could
// not grow and then reads beyond it, or aborts (akheron/jansson issue 362). So it is left by longjmp, and the ring
// knows what to free.
static struct {
	jmp_buf fail;
	struct block ring;
	size_t left;
	int rc;
	bool active;
} tree;

static void *tree_alloc(size_t n)
{
	struct block *b = NULL;
	bool fits = n <= (tree.active ? tree.left : SIZE_MAX - sizeof(*b));
	if (fits)
		b = malloc(sizeof(*b) + n);
	if (!tree.active) {
		if (!b)
			return NULL;
		b->prev = b->next = b;
		return b + 1;
	}
	if (!b) {
		tree.rc = fits ? -ENOMEM : -EMSGSIZE;
		longjmp(tree.fail, 1);
	}
	tree.left -= n;
	b->prev = tree.ring.prev;
	b->next = &tree.ring;
	b->prev->next = b->next->prev = b;
	return b + 1;
}

static void ring_leave(struct block *b)
{
	b->prev->next = b->next;
	b->next->prev = b->prev;
}

static void tree_free(void *p)
{
	if (!p)
		return;
	struct block *b = (struct block *)p - 1;
	ring_leave(b);
	free(b);
}

// Before main, since a value made with one allocator must not be freed with another.
__attribute__((constructor)) static void tree_install(void)
{
	json_set_alloc_funcs(tree_alloc, tree_free);
}

static json_t *load(const char *p, size_t n)
{
	if (setjmp(tree.fail) != 0)
		return NULL;
	return json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
}

static json_t *load_bounded(const char *p, size_t n, size_t bound)
{
	tree.ring.prev = tree.ring.next = &tree.ring;
	tree.left = bound;
	tree.rc = 0;
	tree.active = true;
	json_t *doc = load(p, n);
	tree.active = false;
	while (tree.rc && tree.ring.next != &tree.ring)
		tree_free(tree.ring.next + 1);
	ring_leave(&tree.ring);
	return doc;
}

static json_t *parse(const void *p, size_t n, size_t bound, struct err *e)
{
	json_t *doc = load_bounded(p, n, bound);
	if (json_is_object(doc))
		return doc;
	jsonr_free(doc);
	if (tree.rc == -EMSGSIZE)
		err_http(e, 413, ERR_RESOURCE_EXHAUSTED, "json has too many values for its size");
	else if (tree.rc)
		err_sys(e, tree.rc, "json");
	else
		err_set(e, ERR_INVALID_ARGUMENT, "invalid json");
	return NULL;
}

json_t *jsonr_parse(const void *p, size_t n, struct err *e)
{
	bool fits = n < PTRDIFF_MAX / TREE_FACTOR - TREE_SLACK;
	return parse(p, n, fits ? n * TREE_FACTOR + TREE_SLACK : PTRDIFF_MAX, e);
}

json_t *jsonr_parse_trusted(const void *p, size_t n, struct err *e)
{
	return parse(p, n, PTRDIFF_MAX, e);
}

void jsonr_free(json_t *doc)
{
	json_decref(doc);
}

// 1 and *V, 0 for absent or null, -1 if it is required then.
static int get(const json_t *obj, const char *key, unsigned flags, const json_t **v, struct err *e)
{
	*v = json_object_get(obj, key);
	if (*v && !json_is_null(*v))
		return 1;
	return flags & JSONR_REQUIRED ? err_set(e, ERR_INVALID_ARGUMENT, "%s required", key) : 0;
}

static int wrong(struct err *e, const char *key, const char *what)
{
	return err_set(e, ERR_INVALID_ARGUMENT, "%s must be %s", key, what);
}

int jsonr_str(const json_t *obj, const char *key, unsigned flags, const char **s, size_t *n, struct err *e)
{
	const json_t *v;
	int rc = get(obj, key, flags, &v, e);
	if (rc <= 0)
		return rc;
	if (!json_is_string(v))
		return wrong(e, key, "a string");
	size_t len = json_string_length(v);
	if (len == 0 && flags & JSONR_REQUIRED)
		return err_set(e, ERR_INVALID_ARGUMENT, "%s required", key);
	if (!(flags & JSONR_NUL_OK) && strlen(json_string_value(v)) < len)
		return err_set(e, ERR_INVALID_ARGUMENT, "%s must not contain NUL", key);
	*s = json_string_value(v);
	if (n)
		*n = len;
	return 1;
}

int jsonr_int(const json_t *obj, const char *key, unsigned flags, int64_t min, int64_t max, int64_t *v, struct err *e)
{
	const json_t *found;
	int rc = get(obj, key, flags, &found, e);
	if (rc <= 0)
		return rc;
	if (!json_is_number(found))
		return wrong(e, key, "an integer");
	int64_t value = json_integer_value(found);
	bool fits = true;
	if (json_is_real(found)) {
		double d = json_real_value(found);
		if (trunc(d) != d)
			return wrong(e, key, "an integer");
		fits = d >= -0x1p63 && d < 0x1p63;
		value = fits ? (int64_t)d : 0;
	}
	if (!fits || value < min || value > max)
		return err_set(
			e, ERR_INVALID_ARGUMENT, "%s must be from %lld to %lld", key, (long long)min, (long long)max);
	*v = value;
	return 1;
}

int jsonr_num(const json_t *obj, const char *key, unsigned flags, double min, double max, double *v, struct err *e)
{
	const json_t *found;
	int rc = get(obj, key, flags, &found, e);
	if (rc <= 0)
		return rc;
	if (!json_is_number(found))
		return wrong(e, key, "a number");
	double value = json_number_value(found);
	if (value < min || value > max)
		return err_set(e, ERR_INVALID_ARGUMENT, "%s must be from %g to %g", key, min, max);
	*v = value;
	return 1;
}

int jsonr_bool(const json_t *obj, const char *key, unsigned flags, bool *v, struct err *e)
{
	const json_t *found;
	int rc = get(obj, key, flags, &found, e);
	if (rc <= 0)
		return rc;
	if (!json_is_boolean(found))
		return wrong(e, key, "a boolean");
	*v = json_is_true(found);
	return 1;
}

int jsonr_obj(const json_t *obj, const char *key, unsigned flags, const json_t **v, struct err *e)
{
	const json_t *found;
	int rc = get(obj, key, flags, &found, e);
	if (rc <= 0)
		return rc;
	if (!json_is_object(found))
		return wrong(e, key, "an object");
	*v = found;
	return 1;
}

// --- writing ---

enum { DEPTH_MAX = 63 };

static void put_unit(struct buf *out, unsigned unit)
{
	static const char hex[] = "0123456789abcdef";
	const char text[] = {'\\', 'u', hex[unit >> 12 & 15], hex[unit >> 8 & 15], hex[unit >> 4 & 15], hex[unit & 15]};
	buf_append(out, text, sizeof(text));
}

static void put_escape(struct buf *out, unsigned char c)
{
	static const char letters[] = "\"\"\\\\\nn\tt\rr\bb\ff"; // pairs: the character, what stands for it
	for (const char *l = letters; *l; l += 2) {
		if ((unsigned char)*l == c) {
			const char text[] = {'\\', l[1]};
			buf_append(out, text, sizeof(text));
			return;
		}
	}
	put_unit(out, c);
}

// Decodes one character beyond ASCII of N > 0 bytes; a maximal invalid subpart (as in text_utf8_repair) is U+FFFD.
// Returns how many bytes it takes.
static size_t next_char(const unsigned char *p, size_t n, unsigned *cp)
{
	unsigned char c = p[0], low = 0x80, high = 0xBF;
	size_t more = c < 0xC2 ? 0 : c < 0xE0 ? 1 : c < 0xF0 ? 2 : c < 0xF5 ? 3 : 0;
	if (c == 0xE0)
		low = 0xA0;
	else if (c == 0xF0)
		low = 0x90;
	else if (c == 0xED)
		high = 0x9F;
	else if (c == 0xF4)
		high = 0x8F;
	unsigned value = c & (0x3Fu >> more);
	for (size_t i = 1; i <= more; i++) {
		if (i == n || p[i] < low || p[i] > high) {
			*cp = 0xFFFD;
			return i;
		}
		value = value << 6 | (p[i] & 0x3F);
		low = 0x80;
		high = 0xBF;
	}
	*cp = more > 0 ? value : 0xFFFD;
	return more + 1;
}

static void put_ascii(struct buf *out, const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n;) {
		if (p[i] < 0x80) {
			buf_byte(out, p[i++]);
			continue;
		}
		unsigned cp;
		i += next_char(p + i, n - i, &cp);
		if (cp > 0xFFFF) {
			put_unit(out, 0xD800 + ((cp - 0x10000) >> 10));
			cp = 0xDC00 + (cp & 0x3FF);
		}
		put_unit(out, cp);
	}
}

// Bytes of what W has to escape at P (N > 0 bytes), 0 if it is an ordinary character.
static size_t special(const struct jsonw *w, const unsigned char *p, size_t n)
{
	if (p[0] < 0x20 || p[0] == '"' || p[0] == '\\')
		return 1;
	if (!w->html)
		return 0;
	if (p[0] == '<' || p[0] == '>' || p[0] == '&')
		return 1;
	return p[0] == 0xE2 && n > 2 && p[1] == 0x80 && (p[2] == 0xA8 || p[2] == 0xA9) ? 3 : 0;
}

// The high bit of each byte of WORD that is C, and perhaps of some in front of it (in a number's order).
static inline uint64_t bytes_equal(uint64_t word, unsigned char c)
{
	const uint64_t ones = UINT64_C(0x0101010101010101);
	uint64_t x = word ^ ones * c;
	return (x - ones) & ~x;
}

// True if the eight bytes are ASCII that nobody escapes.
static inline bool word_plain(uint64_t word)
{
	const uint64_t ones = UINT64_C(0x0101010101010101), high = ones * 0x80;
	uint64_t found = word | ((word - ones * 0x20) & ~word) | bytes_equal(word, '\\');
	found |= bytes_equal(word | ones * ('<' ^ '>'), '>') | bytes_equal(word | ones * ('"' ^ '&'), '&');
	return !(found & high);
}

// How many of the N bytes at the front are that, as far as eight at a time tell.
static size_t plain_run(const unsigned char *p, size_t n)
{
	size_t i = 0;
	for (uint64_t word; n - i >= sizeof word; i += sizeof word) {
		memcpy(&word, p + i, sizeof word);
		if (!word_plain(word))
			break;
	}
	return i;
}

// Names, paths, keys: in one piece, and not byte by byte, they cost a third.
bool jsonw_plain(const void *bytes, size_t n)
{
	const unsigned char *p = bytes;
	uint64_t word = UINT64_C(0x6161616161616161);
	size_t i = plain_run(p, n);
	if (n - i >= sizeof word)
		return false;
	if (n >= sizeof word) {
		memcpy(&word, p + n - sizeof word, sizeof word); // some of them again
	} else if (n >= sizeof(uint32_t)) {
		uint32_t first, last;
		memcpy(&first, p, sizeof first);
		memcpy(&last, p + n - sizeof last, sizeof last);
		word = first | (uint64_t)last << 32;
	} else if (n > 0) {
		word = word << 24 | (uint64_t)p[0] << 16 | (uint64_t)p[n / 2] << 8 | p[n - 1];
	}
	return word_plain(word);
}

static void put_inside(const struct jsonw *w, const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n;) {
		size_t from = i, len = 0;
		unsigned char seen = 0;
		i += plain_run(p + i, n - i);
		while (i < n && (len = special(w, p + i, n - i)) == 0)
			seen |= p[i++];
		// What ends a run is a whole character, so one cut there is invalid in the whole string too.
		struct text_tail tail = {.n = 0};
		if (seen < 0x80)
			buf_append(w->out, p + from, i - from);
		else if (w->ascii)
			put_ascii(w->out, p + from, i - from);
		else
			text_utf8_repair(w->out, &tail, p + from, i - from, true, NULL);
		if (i < n && len == 1)
			put_escape(w->out, p[i]);
		else if (i < n)
			put_unit(w->out, 0x2000u | (p[i + 2] & 0x3Fu));
		i += i < n ? len : 0;
	}
}

static void put_string(const struct jsonw *w, const unsigned char *p, size_t n)
{
	unsigned char *to = jsonw_plain(p, n) ? buf_reserve(w->out, n + 2) : NULL;
	if (to) {
		to[0] = '"';
		if (n > 0)
			memcpy(to + 1, p, n);
		to[n + 1] = '"';
		buf_commit(w->out, n + 2);
		return;
	}
	buf_byte(w->out, '"');
	put_inside(w, p, n);
	buf_byte(w->out, '"');
}

void jsonw_inside(struct buf *out, const void *p, size_t n)
{
	put_inside(&(struct jsonw){.out = out}, p, n);
}

// Everything that goes where a value or a key may stand calls this first.
static void comma(struct jsonw *w)
{
	uint64_t level = UINT64_C(1) << w->depth;
	if (!w->after_key && w->depth > 0 && !(w->first & level))
		buf_append(w->out, ", ", w->spaced ? 2 : 1);
	w->first &= ~level;
	w->after_key = false;
}

static void level_open(struct jsonw *w, unsigned char c)
{
	assert(w->depth < DEPTH_MAX);
	comma(w);
	buf_byte(w->out, c);
	w->depth++;
	w->first |= UINT64_C(1) << w->depth;
}

static void level_close(struct jsonw *w, unsigned char c)
{
	assert(w->depth > 0 && !w->after_key);
	w->depth--;
	buf_byte(w->out, c);
}

void jsonw_init(struct jsonw *w, struct buf *out)
{
	*w = (struct jsonw){.out = out};
}

void jsonw_obj(struct jsonw *w)
{
	level_open(w, '{');
}

void jsonw_obj_end(struct jsonw *w)
{
	level_close(w, '}');
}

void jsonw_arr(struct jsonw *w)
{
	level_open(w, '[');
}

void jsonw_arr_end(struct jsonw *w)
{
	level_close(w, ']');
}

void jsonw_key(struct jsonw *w, const char *key)
{
	assert(w->depth > 0 && !w->after_key);
	size_t n = strlen(key);
	comma(w);
	unsigned char *to = jsonw_plain(key, n) ? buf_reserve(w->out, n + 3) : NULL;
	if (to) { // nearly all keys: in one piece
		*to++ = '"';
		memcpy(to, key, n);
		to[n] = '"';
		to[n + 1] = ':';
		buf_commit(w->out, n + 3);
	} else {
		put_string(w, (const unsigned char *)key, n);
		buf_byte(w->out, ':');
	}
	w->after_key = true;
}

void jsonw_str(struct jsonw *w, const void *p, size_t n)
{
	comma(w);
	put_string(w, p, n);
}

void jsonw_cstr(struct jsonw *w, const char *s)
{
	jsonw_str(w, s, strlen(s));
}

void jsonw_b64(struct jsonw *w, const void *p, size_t n)
{
	comma(w);
	buf_byte(w->out, '"');
	text_b64_encode(w->out, p, n);
	buf_byte(w->out, '"');
}

void jsonw_int(struct jsonw *w, int64_t v)
{
	comma(w);
	buf_i64(w->out, v);
}

void jsonw_num(struct jsonw *w, double v)
{
	assert(isfinite(v));
	enum { DIGITS_ENOUGH = 17 }; // for any double (DBL_DECIMAL_DIG)
	char text[32];
	int digits = 1;
	do
		snprintf(text, sizeof(text), "%.*g", digits, v);
	while (digits++ < DIGITS_ENOUGH && (strtod(text, NULL) < v || strtod(text, NULL) > v));
	comma(w);
	buf_str(w->out, text);
}

void jsonw_bool(struct jsonw *w, bool v)
{
	comma(w);
	buf_str(w->out, v ? "true" : "false");
}

void jsonw_null(struct jsonw *w)
{
	comma(w);
	BUF_LIT(w->out, "null");
}

void jsonw_raw(struct jsonw *w, const void *p, size_t n)
{
	comma(w);
	buf_append(w->out, p, n);
}

void jsonw_kstr(struct jsonw *w, const char *key, const char *s)
{
	jsonw_key(w, key);
	jsonw_cstr(w, s);
}

void jsonw_kint(struct jsonw *w, const char *key, int64_t v)
{
	jsonw_key(w, key);
	jsonw_int(w, v);
}

void jsonw_kbool(struct jsonw *w, const char *key, bool v)
{
	jsonw_key(w, key);
	jsonw_bool(w, v);
}

void jsonw_error(struct jsonw *w, const struct err *e)
{
	const char *name = e->sys ? err_errno_name(e->sys) : NULL;
	jsonw_obj(w);
	jsonw_kstr(w, "error", e->msg);
	jsonw_kstr(w, "code", err_word(e->code));
	jsonw_kbool(w, "retryable", e->retryable);
	if (name)
		jsonw_kstr(w, "errno", name);
	if (e->reason)
		jsonw_kstr(w, "reason", e->reason);
	jsonw_obj_end(w);
}

void json_error_body(struct buf *out, const struct err *e)
{
	struct jsonw w;
	jsonw_init(&w, out);
	jsonw_error(&w, e);
}
