// SPDX-License-Identifier: Apache-2.0
#include "proto/json.h"
#include "proto/pbjson.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_MAX_LEN = 64 };

struct writer {
	struct jsonw w;
	int fail;
};

static void put_message(struct writer *j, const ProtobufCMessage *m);

void pbjson_name(char *to, size_t size, const char *field)
{
	size_t n = 0;
	bool up = false;
	for (const char *s = field; *s && n + 1 < size; s++) {
		if (*s != '_')
			to[n++] = (char)(up && *s >= 'a' && *s <= 'z' ? *s - 'a' + 'A' : *s);
		up = *s == '_';
	}
	to[n] = '\0';
}

// As a string: JavaScript's numbers have 53 bits.
static void put_int64(struct writer *j, int64_t v)
{
	jsonw_raw(&j->w, "\"", 1);
	buf_i64(j->w.out, v);
	buf_byte(j->w.out, '"');
}

static void put_enum(struct writer *j, const ProtobufCEnumDescriptor *d, int v)
{
	const ProtobufCEnumValue *value = protobuf_c_enum_descriptor_get_value(d, v);
	if (value)
		jsonw_cstr(&j->w, value->name);
	else
		jsonw_int(&j->w, v);
}

static void put_value(struct writer *j, const ProtobufCFieldDescriptor *f, const void *at)
{
	const ProtobufCBinaryData *bytes = at;
	const char *s;
	switch (f->type) {
	case PROTOBUF_C_TYPE_INT32:
	case PROTOBUF_C_TYPE_SINT32:
		jsonw_int(&j->w, *(const int32_t *)at);
		break;
	case PROTOBUF_C_TYPE_UINT32:
		jsonw_int(&j->w, *(const uint32_t *)at);
		break;
	case PROTOBUF_C_TYPE_INT64:
		put_int64(j, *(const int64_t *)at);
		break;
	case PROTOBUF_C_TYPE_BOOL:
		jsonw_bool(&j->w, *(const protobuf_c_boolean *)at);
		break;
	case PROTOBUF_C_TYPE_ENUM:
		put_enum(j, f->descriptor, *(const int *)at);
		break;
	case PROTOBUF_C_TYPE_STRING:
		s = *(char *const *)at;
		jsonw_cstr(&j->w, s ? s : "");
		break;
	case PROTOBUF_C_TYPE_BYTES:
		jsonw_b64(&j->w, bytes->len > 0 ? bytes->data : (const uint8_t *)"", bytes->len);
		break;
	case PROTOBUF_C_TYPE_MESSAGE:
		put_message(j, *(ProtobufCMessage *const *)at);
		break;
	default:
		assert(false); // a type that no message of ours has
	}
}

static size_t size_of(ProtobufCType type)
{
	switch (type) {
	case PROTOBUF_C_TYPE_INT64:
		return sizeof(int64_t);
	case PROTOBUF_C_TYPE_STRING:
	case PROTOBUF_C_TYPE_MESSAGE:
		return sizeof(void *);
	case PROTOBUF_C_TYPE_BYTES:
		return sizeof(ProtobufCBinaryData);
	default:
		return sizeof(int32_t);
	}
}

static void put_list(struct writer *j, const ProtobufCFieldDescriptor *f, const char *items, size_t n)
{
	jsonw_arr(&j->w);
	for (size_t i = 0; i < n; i++)
		put_value(j, f, items + i * size_of(f->type));
	jsonw_arr_end(&j->w);
}

// An element of a map: its key, and where it stands in the message.
struct pair {
	const char *key;
	const ProtobufCMessage *entry;
	size_t at;
};

static int pair_order(const void *a, const void *b)
{
	const struct pair *x = a, *y = b;
	int order = strcmp(x->key, y->key);
	return order ? order : x->at < y->at ? -1 : 1;
}

static void put_map(struct writer *j, ProtobufCMessage *const *entries, size_t n)
{
	struct pair *pairs = calloc(n > 0 ? n : 1, sizeof(*pairs));
	if (!pairs)
		j->fail = -ENOMEM;
	for (size_t i = 0; pairs && i < n; i++) {
		const char *key = *(char **)pb_at(entries[i], &entries[i]->descriptor->fields[0]);
		pairs[i] = (struct pair){key ? key : "", entries[i], i};
	}
	if (pairs)
		qsort(pairs, n, sizeof(*pairs), pair_order);
	jsonw_obj(&j->w);
	for (size_t i = 0; pairs && i < n; i++) {
		const ProtobufCFieldDescriptor *value = &pairs[i].entry->descriptor->fields[1];
		if (i + 1 < n && strcmp(pairs[i].key, pairs[i + 1].key) == 0)
			continue;
		jsonw_key(&j->w, pairs[i].key);
		put_value(j, value, pb_at(pairs[i].entry, value));
	}
	jsonw_obj_end(&j->w);
	free(pairs);
}

static void put_time(struct writer *j, const ProtobufCMessage *m)
{
	char text[PBJSON_TIME];
	const ProtobufCFieldDescriptor *f = m->descriptor->fields;
	size_t n = pbjson_time_write(text, *(int64_t *)pb_at(m, &f[0]), *(int32_t *)pb_at(m, &f[1]));
	jsonw_str(&j->w, text, n);
}

static void put_name(struct writer *j, const char *field)
{
	char name[NAME_MAX_LEN];
	if (strchr(field, '_')) {
		pbjson_name(name, sizeof(name), field);
		field = name;
	}
	jsonw_key(&j->w, field);
}

static void put_message(struct writer *j, const ProtobufCMessage *m)
{
	const ProtobufCMessageDescriptor *d = m ? m->descriptor : NULL;
	if (d && strcmp(d->short_name, "Timestamp") == 0) {
		put_time(j, m);
		return;
	}
	jsonw_obj(&j->w);
	for (unsigned i = 0; d && i < d->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];
		if (!pb_is_set(m, f))
			continue;
		put_name(j, f->name);
		if (pb_is_map(f))
			put_map(j, *(ProtobufCMessage ***)pb_at(m, f), *(size_t *)pb_quantifier(m, f));
		else if (f->label == PROTOBUF_C_LABEL_REPEATED)
			put_list(j, f, *(char **)pb_at(m, f), *(size_t *)pb_quantifier(m, f));
		else
			put_value(j, f, pb_at(m, f));
	}
	jsonw_obj_end(&j->w);
}

int pbjson_write(struct buf *out, const ProtobufCMessage *m)
{
	size_t mark = buf_len(out);
	struct writer j = {.fail = 0};
	jsonw_init(&j.w, out);
	j.w.spaced = true;
	put_message(&j, m);
	if (buf_failed(out))
		j.fail = buf_failed(out);
	if (j.fail)
		buf_truncate(out, mark);
	return j.fail;
}
