// SPDX-License-Identifier: Apache-2.0
#include "proto/pbwire.h"

#include "proto/text.h"

#include <assert.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// --- memory ---

enum { BLOCK_COST = 16 }; // what malloc adds to a block

static void *alloc_hook(void *m, size_t n)
{
	return pb_alloc(m, n);
}

static void free_hook(void *m, void *p)
{
	(void)m;
	free(p);
}

void pb_memory_init(struct pb_memory *m, size_t n)
{
	bool fits = n < (SIZE_MAX - PB_BUDGET_BASE) / PB_BUDGET_FACTOR;
	m->base = (ProtobufCAllocator){alloc_hook, free_hook, m};
	m->left = fits ? n * PB_BUDGET_FACTOR + PB_BUDGET_BASE : SIZE_MAX;
	m->fail = 0;
}

int pb_charge(struct pb_memory *m, size_t n)
{
	if (m->fail)
		return m->fail;
	if (m->left < BLOCK_COST || n > m->left - BLOCK_COST)
		return m->fail = -EMSGSIZE;
	m->left -= n + BLOCK_COST;
	return 0;
}

void *pb_alloc(struct pb_memory *m, size_t n)
{
	if (pb_charge(m, n) < 0)
		return NULL;
	void *p = malloc(n > 0 ? n : 1); // calloc does not go through malloc's cache
	if (!p)
		m->fail = -ENOMEM;
	else
		memset(p, 0, n);
	return p;
}

void pb_free(ProtobufCMessage *m)
{
	protobuf_c_message_free_unpacked(m, NULL);
}

// --- fields ---

void *pb_at(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	return (char *)(uintptr_t)m + f->offset;
}

void *pb_quantifier(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	return (char *)(uintptr_t)m + f->quantifier_offset;
}

bool pb_is_map(const ProtobufCFieldDescriptor *f)
{
	static const char suffix[] = "Entry";
	if (f->label != PROTOBUF_C_LABEL_REPEATED || f->type != PROTOBUF_C_TYPE_MESSAGE)
		return false;
	const ProtobufCMessageDescriptor *d = f->descriptor;
	size_t n = strlen(d->short_name), tail = sizeof(suffix) - 1;
	return n > tail && strcmp(d->short_name + n - tail, suffix) == 0 && d->n_fields == 2 &&
	       strcmp(d->fields[0].name, "key") == 0 && strcmp(d->fields[1].name, "value") == 0;
}

bool pb_is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f)
{
	const void *at = pb_at(m, f);
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF)
		return *(const uint32_t *)pb_quantifier(m, f) == f->id;
	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return *(const size_t *)pb_quantifier(m, f) > 0;
	switch (f->type) {
	case PROTOBUF_C_TYPE_STRING:
		return *(char *const *)at && **(char *const *)at;
	case PROTOBUF_C_TYPE_BYTES:
		return ((const ProtobufCBinaryData *)at)->len > 0;
	case PROTOBUF_C_TYPE_MESSAGE:
		return *(ProtobufCMessage *const *)at != NULL;
	case PROTOBUF_C_TYPE_INT64:
		return *(const int64_t *)at != 0;
	default:
		return *(const int32_t *)at != 0;
	}
}

// --- the binary form ---

struct wire {
	unsigned char *p, *end;
};

// A varint of at most ten bytes; false if there is none.
static bool take_varint(struct wire *w, uint64_t *v)
{
	*v = 0;
	for (unsigned shift = 0; shift < 70 && w->p < w->end; shift += 7) {
		unsigned char c = *w->p++;
		*v |= shift < 64 ? (uint64_t)(c & 0x7f) << shift : 0;
		if (!(c & 0x80))
			return true;
	}
	return false;
}

// Takes one field's value, *N bytes at the result; NULL if it is cut or of a kind that proto3 does not have.
static unsigned char *take_value(struct wire *w, unsigned kind, size_t *n)
{
	unsigned char *from = w->p;
	uint64_t v;
	switch (kind) {
	case PROTOBUF_C_WIRE_TYPE_VARINT:
		*n = 0;
		return take_varint(w, &v) ? from : NULL;
	case PROTOBUF_C_WIRE_TYPE_32BIT:
		*n = 4;
		break;
	case PROTOBUF_C_WIRE_TYPE_64BIT:
		*n = 8;
		break;
	case PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED:
		if (!take_varint(w, &v) || v > (size_t)(w->end - w->p))
			return NULL;
		*n = (size_t)v;
		break;
	default:
		return NULL;
	}
	if (*n > (size_t)(w->end - w->p))
		return NULL;
	from = w->p;
	w->p += *n;
	return from;
}

// Calls STRING for each string field in the N bytes of a message of type D, however deep. 0, -EBADMSG for what is no
// protobuf, or STRING's first failure. The depth is bounded by the types, none of which holds itself.
static int each_string(
	const ProtobufCMessageDescriptor *d, unsigned char *p, size_t n, int (*string)(unsigned char *p, size_t n))
{
	struct wire w = {p, p + n};
	while (w.p < w.end) {
		uint64_t tag;
		size_t len;
		if (!take_varint(&w, &tag) || tag > UINT32_MAX || tag >> 3 == 0)
			return -EBADMSG;
		unsigned char *value = take_value(&w, tag & 7, &len);
		if (!value)
			return -EBADMSG;
		const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field(d, (unsigned)(tag >> 3));
		if (!f || (tag & 7) != PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED)
			continue;
		int rc = 0;
		if (f->type == PROTOBUF_C_TYPE_STRING)
			rc = string(value, len);
		else if (f->type == PROTOBUF_C_TYPE_MESSAGE)
			rc = each_string(f->descriptor, value, len, string);
		if (rc < 0)
			return rc;
	}
	return 0;
}

static int check_string(unsigned char *p, size_t n)
{
	if (!text_utf8_valid(p, n))
		return -EILSEQ;
	return memchr(p, '\0', n) ? -EINVAL : 0;
}

static int mend_string(unsigned char *p, size_t n)
{
	if (text_utf8_valid(p, n))
		return 0;
	for (size_t i = 0; i < n;) {
		size_t len = p[i] < 0x80 ? 1 : p[i] < 0xe0 ? 2 : p[i] < 0xf0 ? 3 : 4;
		if (len <= n - i && text_utf8_valid(p + i, len))
			i += len;
		else
			p[i++] = '?';
	}
	return 0;
}

int pb_refuse(struct err *e, const ProtobufCMessageDescriptor *d, int rc, const char *fmt, ...)
{
	char text[2 * sizeof(e->msg)];
	va_list ap;
	if (rc == -ENOMEM)
		return err_sys(e, rc, "unmarshal message");
	if (rc == -EMSGSIZE)
		return err_http(e, 413, ERR_RESOURCE_EXHAUSTED, "message has too many values for its size");
	va_start(ap, fmt);
	if (vsnprintf(text, sizeof(text), fmt, ap) < 0)
		text[0] = '\0';
	va_end(ap);
	return err_set(e, ERR_INVALID_ARGUMENT, "unmarshal message: unmarshal into *%s: %s", d->name, text);
}

ProtobufCMessage *pbwire_read(const ProtobufCMessageDescriptor *d, const void *p, size_t n, struct err *e)
{
	// check_string only reads.
	int rc = n > 0 ? each_string(d, (unsigned char *)(uintptr_t)p, n, check_string) : 0;
	if (rc == -EILSEQ)
		pb_refuse(e, d, rc, "string field contains invalid UTF-8");
	else if (rc == -EINVAL)
		pb_refuse(e, d, rc, "string field contains NUL");
	else if (rc < 0)
		pb_refuse(e, d, rc, "proto: cannot parse invalid wire-format data");
	if (rc < 0)
		return NULL;
	struct pb_memory memory;
	pb_memory_init(&memory, n);
	ProtobufCMessage *m = protobuf_c_message_unpack(d, &memory.base, n, p);
	if (m && memory.fail) {
		pb_free(m);
		m = NULL;
	}
	if (!m)
		pb_refuse(e, d, memory.fail, "proto: cannot parse invalid wire-format data");
	return m;
}

// Writes M, whose encoded form has N bytes.
static void pack(unsigned char *to, const ProtobufCMessage *m, size_t n)
{
	size_t packed = protobuf_c_message_pack(m, to);
	assert(packed == n);
	int rc = each_string(m->descriptor, to, n, mend_string);
	assert(rc == 0);
}

void pbwire_write(struct buf *out, const ProtobufCMessage *m)
{
	size_t n = protobuf_c_message_get_packed_size(m);
	unsigned char *to = buf_reserve(out, n);
	if (!to)
		return;
	pack(to, m, n);
	buf_commit(out, n);
}

void pbwire_write_field(struct buf *out, unsigned field, const ProtobufCMessage *m)
{
	unsigned char head[1 + 10];
	size_t n = protobuf_c_message_get_packed_size(m), v = n, at = 0;
	assert(field > 0 && field < 16);
	head[at++] = (unsigned char)(field << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
	for (; v >= 0x80; v >>= 7)
		head[at++] = (unsigned char)(v | 0x80);
	head[at++] = (unsigned char)v;
	unsigned char *to = buf_reserve(out, at + n);
	if (!to)
		return;
	memcpy(to, head, at);
	pack(to + at, m, n);
	buf_commit(out, at + n);
}
