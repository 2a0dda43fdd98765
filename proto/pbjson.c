// SPDX-License-Identifier: Apache-2.0
#include "proto/pbjson_priv.h"

#include "proto/json.h"
#include "proto/text.h"

#include <assert.h>
#include <errno.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reader {
	const ProtobufCMessageDescriptor *top;
	struct pb_memory memory;
	struct err *e;
};

static int read_message(struct reader *r, const json_t *v, ProtobufCMessage **to, const ProtobufCFieldDescriptor *f);

// --- what is refused ---

static int no_memory(struct reader *r)
{
	return pb_refuse(r->e, r->top, r->memory.fail, "proto: out of memory");
}

static const char *type_name(const ProtobufCFieldDescriptor *f)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
		return "int32";
	case PROTOBUF_C_TYPE_SINT32:
		return "sint32";
	case PROTOBUF_C_TYPE_UINT32:
		return "uint32";
	case PROTOBUF_C_TYPE_INT64:
		return "int64";
	case PROTOBUF_C_TYPE_BOOL:
		return "bool";
	case PROTOBUF_C_TYPE_ENUM:
		return "enum";
	case PROTOBUF_C_TYPE_STRING:
		return "string";
	case PROTOBUF_C_TYPE_BYTES:
		return "bytes";
	default:
		return "message";
	}
}

static int wrong(struct reader *r, const ProtobufCFieldDescriptor *f, const json_t *v)
{
	char text[96];
	switch (json_typeof(v)) {
	case JSON_STRING:
		snprintf(text, sizeof(text), "\"%.80s\"", json_string_value(v));
		break;
	case JSON_INTEGER:
		snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(v));
		break;
	case JSON_REAL:
		snprintf(text, sizeof(text), "%.15g", json_real_value(v));
		break;
	default:
		snprintf(text, sizeof(text), "%s",
			json_is_object(v)  ? "{"
			: json_is_array(v) ? "["
			: json_is_true(v)  ? "true"
			: json_is_false(v) ? "false"
					   : "null");
	}
	return pb_refuse(r->e, r->top, 0, "proto: invalid value for %s field %s: %s", type_name(f), f->name, text);
}

// --- scalars ---

// True if the N bytes are a JSON number and nothing else.
static bool is_number(const char *s, size_t n)
{
	const char *end = s + n;
	s += s < end && *s == '-';
	const char *from = s;
	while (s < end && *s >= '0' && *s <= '9')
		s++;
	if (s == from || (*from == '0' && s - from > 1))
		return false;
	if (s < end && *s == '.') {
		from = ++s;
		while (s < end && *s >= '0' && *s <= '9')
			s++;
		if (s == from)
			return false;
	}
	if (s < end && (*s == 'e' || *s == 'E')) {
		s++;
		s += s < end && (*s == '+' || *s == '-');
		from = s;
		while (s < end && *s >= '0' && *s <= '9')
			s++;
		if (s == from)
			return false;
	}
	return s == end;
}

static bool from_real(double d, int64_t *to)
{
	if (!(d >= -0x1p63 && d < 0x1p63) || trunc(d) < d || trunc(d) > d)
		return false;
	*to = (int64_t)d;
	return true;
}

// An integer within MIN..MAX, as a number or as text.
static bool get_int(const json_t *v, int64_t min, int64_t max, int64_t *to)
{
	const char *s = json_string_value(v);
	long long value;
	if (json_is_integer(v)) {
		*to = json_integer_value(v);
	} else if (json_is_real(v)) {
		if (!from_real(json_real_value(v), to))
			return false;
	} else if (s && is_number(s, json_string_length(v))) {
		int rc = text_int(s, json_string_length(v), INT64_MIN, INT64_MAX, &value);
		*to = value;
		if (rc == -ERANGE || (rc < 0 && !from_real(strtod(s, NULL), to)))
			return false;
	} else {
		return false;
	}
	return *to >= min && *to <= max;
}

static int read_int(struct reader *r, const ProtobufCFieldDescriptor *f, const json_t *v, void *to)
{
	int64_t value, min = INT32_MIN, max = INT32_MAX;
	if (f->type == PROTOBUF_C_TYPE_UINT32) {
		min = 0;
		max = UINT32_MAX;
	} else if (f->type == PROTOBUF_C_TYPE_INT64) {
		min = INT64_MIN;
		max = INT64_MAX;
	}
	if (!get_int(v, min, max, &value))
		return wrong(r, f, v);
	if (f->type == PROTOBUF_C_TYPE_INT64)
		*(int64_t *)to = value;
	else if (f->type == PROTOBUF_C_TYPE_UINT32)
		*(uint32_t *)to = (uint32_t)value;
	else
		*(int32_t *)to = (int32_t)value;
	return 1;
}

// 0: an unknown name, which leaves the field unset.
static int read_enum(struct reader *r, const ProtobufCFieldDescriptor *f, const json_t *v, void *to)
{
	int64_t number;
	if (json_is_string(v)) {
		const ProtobufCEnumValue *value =
			protobuf_c_enum_descriptor_get_value_by_name(f->descriptor, json_string_value(v));
		if (value)
			*(int *)to = value->value;
		return value != NULL;
	}
	if (!get_int(v, INT32_MIN, INT32_MAX, &number))
		return wrong(r, f, v);
	*(int *)to = (int)number;
	return 1;
}

static int read_string(struct reader *r, const ProtobufCFieldDescriptor *f, const json_t *v, void *to)
{
	if (!json_is_string(v))
		return wrong(r, f, v);
	size_t n = json_string_length(v);
	if (memchr(json_string_value(v), '\0', n))
		return pb_refuse(r->e, r->top, 0, "proto: string field %s contains NUL", f->name);
	char *s = pb_alloc(&r->memory, n + 1);
	if (!s)
		return no_memory(r);
	memcpy(s, json_string_value(v), n);
	*(char **)to = s;
	return 1;
}

// Decodes either alphabet, padded or not. 0, -EINVAL, or a failure of OUT or the memory.
static int decode(struct reader *r, struct buf *out, const char *s, size_t n)
{
	bool url = memchr(s, '-', n) || memchr(s, '_', n);
	if (!url && n % 4 == 0)
		return text_b64_decode(out, s, n);
	// Both alphabets at once are wrong, as is padding that does not make whole groups.
	if (n % 4 == 1 || (url && (memchr(s, '+', n) || memchr(s, '/', n))) || (n % 4 != 0 && memchr(s, '=', n)))
		return -EINVAL;
	char *copy = pb_alloc(&r->memory, n + 4);
	if (!copy)
		return r->memory.fail;
	for (size_t i = 0; i < n; i++)
		copy[i] = (char)(s[i] == '-' ? '+' : s[i] == '_' ? '/' : s[i]);
	for (; n % 4 != 0; n++)
		copy[n] = '=';
	int rc = text_b64_decode(out, copy, n);
	free(copy);
	return rc;
}

static int read_bytes(struct reader *r, const ProtobufCFieldDescriptor *f, const json_t *v, void *to)
{
	if (!json_is_string(v))
		return wrong(r, f, v);
	struct buf out;
	buf_init(&out, 0);
	int rc = pb_charge(&r->memory, json_string_length(v));
	if (rc == 0)
		rc = decode(r, &out, json_string_value(v), json_string_length(v));
	ProtobufCBinaryData bytes = {.len = 0};
	if (rc == 0) {
		bytes.data = (uint8_t *)buf_take(&out, &bytes.len);
		rc = bytes.data ? 0 : -ENOMEM;
	}
	buf_release(&out);
	if (rc == -EINVAL)
		return wrong(r, f, v);
	if (rc < 0)
		return pb_refuse(r->e, r->top, rc, "proto: no room");
	*(ProtobufCBinaryData *)to = bytes;
	return 1;
}

// One value into its place: 1; 0 if it leaves the place as it is; -1 with the error filled.
static int read_value(struct reader *r, const ProtobufCFieldDescriptor *f, const json_t *v, void *to)
{
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
	case PROTOBUF_C_TYPE_UINT32:
	case PROTOBUF_C_TYPE_INT64:
		return read_int(r, f, v, to);
	case PROTOBUF_C_TYPE_BOOL:
		if (!json_is_boolean(v))
			return wrong(r, f, v);
		*(protobuf_c_boolean *)to = json_is_true(v);
		return 1;
	case PROTOBUF_C_TYPE_ENUM:
		return read_enum(r, f, v, to);
	case PROTOBUF_C_TYPE_STRING:
		return read_string(r, f, v, to);
	case PROTOBUF_C_TYPE_BYTES:
		return read_bytes(r, f, v, to);
	case PROTOBUF_C_TYPE_MESSAGE:
		return read_message(r, v, to, f);
	default:
		assert(false); // a type that no message of ours has
		return -1;
	}
}

// --- lists and maps, whose elements are strings and messages ---

static int read_list(struct reader *r, const ProtobufCFieldDescriptor *f, const json_t *v, ProtobufCMessage *m)
{
	assert(f->type == PROTOBUF_C_TYPE_STRING || f->type == PROTOBUF_C_TYPE_MESSAGE);
	if (!json_is_array(v))
		return wrong(r, f, v);
	size_t n = json_array_size(v);
	if (n == 0)
		return 0;
	void **items = pb_alloc(&r->memory, n * sizeof(*items));
	if (!items)
		return no_memory(r);
	*(void ***)pb_at(m, f) = items;
	*(size_t *)pb_quantifier(m, f) = n;
	for (size_t i = 0; i < n; i++)
		if (read_value(r, f, json_array_get(v, i), &items[i]) < 0)
			return -1;
	return 1;
}

static int read_pair(
	struct reader *r, const ProtobufCMessageDescriptor *d, const char *key, const json_t *v, ProtobufCMessage **to)
{
	ProtobufCMessage *m = pb_alloc(&r->memory, d->sizeof_message);
	if (!m)
		return no_memory(r);
	protobuf_c_message_init(d, m);
	*to = m;
	size_t n = strlen(key);
	char *copy = pb_alloc(&r->memory, n + 1);
	if (!copy)
		return no_memory(r);
	memcpy(copy, key, n);
	*(char **)pb_at(m, &d->fields[0]) = copy;
	return read_value(r, &d->fields[1], v, pb_at(m, &d->fields[1]));
}

static int read_map(struct reader *r, const ProtobufCFieldDescriptor *f, const json_t *v, ProtobufCMessage *m)
{
	if (!json_is_object(v))
		return wrong(r, f, v);
	size_t n = json_object_size(v), i = 0;
	if (n == 0)
		return 0;
	ProtobufCMessage **items = pb_alloc(&r->memory, n * sizeof(*items));
	if (!items)
		return no_memory(r);
	*(ProtobufCMessage ***)pb_at(m, f) = items;
	*(size_t *)pb_quantifier(m, f) = n;
	json_t *obj = (json_t *)(uintptr_t)v; // jansson's iterators want it so, and change nothing
	for (void *it = json_object_iter(obj); it; it = json_object_iter_next(obj, it), i++)
		if (read_pair(r, f->descriptor, json_object_iter_key(it), json_object_iter_value(it), &items[i]) < 0)
			return -1;
	return 1;
}

// --- messages ---

const ProtobufCFieldDescriptor *pbjson_field(const ProtobufCMessageDescriptor *d, const char *key)
{
	for (unsigned i = 0; i < d->n_fields; i++) {
		char name[PBJSON_NAME];
		if (strcmp(key, d->fields[i].name) == 0)
			return &d->fields[i];
		pbjson_name(name, sizeof(name), d->fields[i].name);
		if (strcmp(key, name) == 0)
			return &d->fields[i];
	}
	return NULL;
}

static int read_oneof(struct reader *r, const ProtobufCFieldDescriptor *f, const json_t *v, ProtobufCMessage *m)
{
	uint32_t *which = pb_quantifier(m, f);
	if (*which != 0)
		return pb_refuse(r->e, r->top, 0, "proto: error parsing \"%s\", oneof of %s is already set", f->name,
			m->descriptor->name);
	// The case only once there is a value: freeing the message follows it.
	int rc = read_value(r, f, v, pb_at(m, f));
	if (rc > 0 || (f->type == PROTOBUF_C_TYPE_MESSAGE && *(void **)pb_at(m, f)))
		*which = f->id;
	return rc;
}

static int read_field(struct reader *r, const ProtobufCFieldDescriptor *f, const json_t *v, ProtobufCMessage *m)
{
	if (json_is_null(v))
		return 0;
	if (pb_is_map(f))
		return read_map(r, f, v, m);
	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return read_list(r, f, v, m);
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		return read_oneof(r, f, v, m);
	return read_value(r, f, v, pb_at(m, f));
}

static int read_fields(struct reader *r, const json_t *v, ProtobufCMessage *m)
{
	const ProtobufCMessageDescriptor *d = m->descriptor;
	json_t *obj = (json_t *)(uintptr_t)v;
	uint64_t seen = 0;
	assert(d->n_fields <= 64);
	for (void *it = json_object_iter(obj); it; it = json_object_iter_next(obj, it)) {
		const char *key = json_object_iter_key(it);
		const ProtobufCFieldDescriptor *f = pbjson_field(d, key);
		if (!f)
			continue;
		uint64_t bit = UINT64_C(1) << (f - d->fields);
		if (seen & bit)
			return pb_refuse(r->e, r->top, 0, "proto: duplicate field \"%s\"", key);
		seen |= bit;
		if (read_field(r, f, json_object_iter_value(it), m) < 0)
			return -1;
	}
	return 1;
}

static int read_time(struct reader *r, const json_t *v, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	const ProtobufCFieldDescriptor *fields = m->descriptor->fields;
	const char *s = json_string_value(v);
	if (!s || pbjson_time_read(s, json_string_length(v), pb_at(m, &fields[0]), pb_at(m, &fields[1])) < 0)
		return wrong(r, f, v);
	return 1;
}

// *TO is set as soon as there is a message, so that whoever holds it frees it, and is NULL before.
static int read_message(struct reader *r, const json_t *v, ProtobufCMessage **to, const ProtobufCFieldDescriptor *f)
{
	const ProtobufCMessageDescriptor *d = f->descriptor;
	bool time = strcmp(d->short_name, "Timestamp") == 0;
	*to = NULL;
	if (!time && !json_is_object(v))
		return wrong(r, f, v);
	*to = pb_alloc(&r->memory, d->sizeof_message);
	if (!*to)
		return no_memory(r);
	protobuf_c_message_init(d, *to);
	return time ? read_time(r, v, *to, f) : read_fields(r, v, *to);
}

ProtobufCMessage *pbjson_read_tree(const ProtobufCMessageDescriptor *d, const json_t *obj, size_t n, struct err *e)
{
	struct reader r = {.top = d, .e = e};
	const ProtobufCFieldDescriptor top = {.name = "of the body", .type = PROTOBUF_C_TYPE_MESSAGE, .descriptor = d};
	ProtobufCMessage *m;
	pb_memory_init(&r.memory, n);
	if (read_message(&r, obj, &m, &top) >= 0)
		return m;
	pb_free(m);
	return NULL;
}

ProtobufCMessage *pbjson_read(const ProtobufCMessageDescriptor *d, const void *p, size_t n, struct err *e)
{
	if (n == 0) {
		err_set(e, ERR_INVALID_ARGUMENT, "unmarshal message: zero-length payload is not a valid JSON object");
		return NULL;
	}
	ProtobufCMessage *m;
	int rc = pbjson_read_flat(d, p, n, &m);
	if (rc < 0)
		pb_refuse(e, d, rc, "proto: out of memory");
	if (rc != 0)
		return m;
	json_t *doc = jsonr_parse(p, n, e);
	if (!doc) {
		if (e->code == ERR_INVALID_ARGUMENT)
			pb_refuse(e, d, 0, "proto: syntax error: invalid json");
		return NULL;
	}
	m = pbjson_read_tree(d, doc, n, e);
	jsonr_free(doc);
	return m;
}
