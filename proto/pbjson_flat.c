// SPDX-License-Identifier: Apache-2.0
// The short way for what most requests are: one object of a few texts, small numbers and booleans without anything that needs thought. jansson
// and its tree took 15 times as long for {"path":"/a"}. Whatever is not that, right or wrong, is left to them, and to their words for it.
#include "proto/json.h"
#include "proto/pbjson_priv.h"

#include <stdint.h>
#include <string.h>

enum { DIGITS_MAX = 9 }; // fit whatever integer

struct flat {
	const char *p, *end;
	struct pb_memory memory;
};

static void skip_blanks(struct flat *f)
{
	while (f->p < f->end && (*f->p == ' ' || *f->p == '\t' || *f->p == '\n' || *f->p == '\r'))
		f->p++;
}

// Behind blanks C, and behind that blanks again.
static bool take(struct flat *f, char c)
{
	skip_blanks(f);
	if (f->p == f->end || *f->p != c)
		return false;
	f->p++;
	skip_blanks(f);
	return true;
}

// A string of visible ASCII and blanks without escapes: its inside, N bytes; NULL for any other.
static const char *take_text(struct flat *f, size_t *n)
{
	if (f->p == f->end || *f->p != '"')
		return NULL;
	const char *from = f->p + 1, *end = memchr(from, '"', (size_t)(f->end - from));
	if (!end)
		return NULL;
	if (!jsonw_plain(from, (size_t)(end - from)))
		for (const char *p = from; p < end; p++)
			if (*p < ' ' || *p >= 0x7f || *p == '\\')
				return NULL;
	*n = (size_t)(end - from);
	f->p = end + 1;
	return from;
}

static bool take_word(struct flat *f, const char *word)
{
	size_t n = strlen(word);
	if ((size_t)(f->end - f->p) < n || memcmp(f->p, word, n) != 0)
		return false;
	f->p += n;
	return true;
}

static bool take_number(struct flat *f, int32_t *v)
{
	const char *from = f->p;
	*v = 0;
	for (; f->p < f->end && *f->p >= '0' && *f->p <= '9'; f->p++) {
		if (f->p - from == DIGITS_MAX)
			return false;
		*v = *v * 10 + (*f->p - '0');
	}
	return f->p > from && (*from != '0' || f->p - from == 1); // a fraction or an exponent is no comma
}

static bool take_string(struct flat *f, char **to)
{
	size_t n;
	const char *text = take_text(f, &n);
	char *s = text ? pb_alloc(&f->memory, n + 1) : NULL;
	if (!s)
		return false;
	memcpy(s, text, n);
	*to = s;
	return true;
}

static bool take_value(struct flat *f, const ProtobufCFieldDescriptor *d, void *to)
{
	int32_t number;
	switch (d->type) {
	case PROTOBUF_C_TYPE_STRING:
		return take_string(f, to);
	case PROTOBUF_C_TYPE_BOOL:
		number = take_word(f, "true");
		*(protobuf_c_boolean *)to = number;
		return number || take_word(f, "false");
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_UINT32:
		return take_number(f, to);
	default:
		return false;
	}
}

static bool take_field(struct flat *f, ProtobufCMessage *m, uint64_t *seen)
{
	const ProtobufCMessageDescriptor *d = m->descriptor;
	char name[PBJSON_NAME];
	size_t n;
	const char *key = take_text(f, &n);
	if (!key || n >= sizeof name || !take(f, ':'))
		return false;
	memcpy(name, key, n);
	name[n] = '\0';
	const ProtobufCFieldDescriptor *field = pbjson_field(d, name);
	uint64_t bit = field ? UINT64_C(1) << (field - d->fields) : 0;
	if (!field || *seen & bit || field->label == PROTOBUF_C_LABEL_REPEATED ||
		field->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		return false;
	*seen |= bit;
	return take_value(f, field, pb_at(m, field));
}

static bool take_object(struct flat *f, ProtobufCMessage *m)
{
	uint64_t seen = 0;
	if (!take(f, '{'))
		return false;
	bool more = !take(f, '}');
	while (more) {
		if (!take_field(f, m, &seen))
			return false;
		more = take(f, ',');
		if (!more && !take(f, '}'))
			return false;
	}
	return f->p == f->end;
}

int pbjson_read_flat(const ProtobufCMessageDescriptor *d, const char *p, size_t n, ProtobufCMessage **m)
{
	struct flat f = {.p = p, .end = p + n};
	pb_memory_init(&f.memory, n);
	*m = pb_alloc(&f.memory, d->sizeof_message);
	if (!*m)
		return f.memory.fail;
	protobuf_c_message_init(d, *m);
	if (take_object(&f, *m))
		return 1;
	pb_free(*m);
	*m = NULL;
	return f.memory.fail;
}
