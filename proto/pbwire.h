// SPDX-License-Identifier: Apache-2.0
// pbwire: protobuf-c messages and their binary form, with what protobuf-c leaves to its callers: a bound on memory, strings that are
// UTF-8 without NUL, output straight into a buf. A message that a reader made belongs to the caller (pb_free); one that is only to
// be written may as well live on the stack and borrow its strings. Of a map (repeated `...Entry`) the last of equal keys counts.
#ifndef CELLD_PROTO_PBWIRE_H
#define CELLD_PROTO_PBWIRE_H

#include "proto/buf.h"
#include "proto/err.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>

// What one message may allocate: PB_BUDGET_FACTOR for each byte of its encoded form and PB_BUDGET_BASE, so that a small
// text of many tiny values cannot become a large tree.
#define PB_BUDGET_FACTOR ((size_t)2)
#define PB_BUDGET_BASE ((size_t)8 * 1024 * 1024)

// An allocator for one message; its blocks are malloc's.
struct pb_memory {
	ProtobufCAllocator base;
	size_t left; // of the budget
	int fail;    // 0, -ENOMEM, or -EMSGSIZE for the budget
};
// For a message whose encoded form has N bytes. M must not move.
void pb_memory_init(struct pb_memory *m, size_t n);
// Zeroed; NULL with M->fail set. Freed by free().
void *pb_alloc(struct pb_memory *m, size_t n);
// Counts N bytes that were allocated elsewhere: 0 or M->fail.
int pb_charge(struct pb_memory *m, size_t n);

void pb_free(ProtobufCMessage *m);
// True if the field of M counts as set: a oneof's chosen member, a list with elements, another value than the default.
bool pb_is_set(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);
// True if the field is a map: a repeated message called ...Entry of key and value.
bool pb_is_map(const ProtobufCFieldDescriptor *f);
// Where the field is in M, and where its case (oneof) or count (repeated) is.
void *pb_at(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);
void *pb_quantifier(const ProtobufCMessage *m, const ProtobufCFieldDescriptor *f);

// Decodes N bytes. NULL with E filled: what is no such message is invalid_argument, "unmarshal message: unmarshal into
// *process.StartRequest: ..." (contract B 1.5); over the budget 413; out of memory 503.
ProtobufCMessage *pbwire_read(const ProtobufCMessageDescriptor *d, const void *p, size_t n, struct err *e);
// Appends M: fields in the order of their numbers, defaults left out. A byte of a string that is not UTF-8 becomes '?' (a
// client would refuse the whole message). Nothing is appended if OUT fails.
void pbwire_write(struct buf *out, const ProtobufCMessage *m);
// The same as the field of that number (up to 15) of a message around it.
void pbwire_write_field(struct buf *out, unsigned field, const ProtobufCMessage *m);

// Fills E for a decoder of D that failed with RC, -ENOMEM or -EMSGSIZE, or with the text otherwise. Returns -1.
int pb_refuse(struct err *e, const ProtobufCMessageDescriptor *d, int rc, const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

#endif
