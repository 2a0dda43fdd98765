// SPDX-License-Identifier: Apache-2.0
// pbjson: proto3 JSON (contract B 1.9) to and from protobuf-c messages, driven by their descriptors: one codec for all of them.
// Messages of type ...Timestamp are RFC 3339 text, repeated `...Entry` messages are objects. A message that was read belongs to the
// caller (pb_free). Types known: 32-bit integers, int64, bool, enum, string, bytes, message.
#ifndef CELLD_PROTO_PBJSON_H
#define CELLD_PROTO_PBJSON_H

#include "proto/buf.h"
#include "proto/err.h"
#include "proto/pbwire.h"

#include <jansson.h>
#include <stddef.h>

// Decodes a JSON text. Field names in lowerCamelCase and as they are in the .proto, unknown fields skipped, NULs in strings
// refused. NULL with E filled as pbwire_read does; the text after "proto: " has no position. No bytes at all are an error here; where
// they are an empty message (Connect streams), pbwire_read makes one.
ProtobufCMessage *pbjson_read(const ProtobufCMessageDescriptor *d, const void *p, size_t n, struct err *e);
// The same from a document, of which N is the size that its memory is bounded by. OBJ is borrowed.
ProtobufCMessage *pbjson_read_tree(const ProtobufCMessageDescriptor *d, const json_t *obj, size_t n, struct err *e);

// Appends M: fields in the order of their numbers, map keys sorted, a blank after each comma (as envd 0.6.13 writes it), none after
// colons. What is not UTF-8 in a string becomes U+FFFD; a Timestamp outside the years 1 to 9999 becomes the nearest inside.
// 0, or negative: no memory, or OUT's failure; nothing is appended then.
int pbjson_write(struct buf *out, const ProtobufCMessage *m);

// The name of a field in JSON: "exit_code" is "exitCode". TO holds SIZE bytes, the name is cut to fit.
void pbjson_name(char *to, size_t size, const char *field);

// RFC 3339 text of N bytes to seconds since 1970 and nanoseconds: 0 or -EINVAL.
int pbjson_time_read(const char *p, size_t n, int64_t *seconds, int32_t *nanos);
// The other way, with 0, 3, 6 or 9 digits of fraction; TO holds PBJSON_TIME bytes. Returns the length.
enum { PBJSON_TIME = 40 };
size_t pbjson_time_write(char *to, int64_t seconds, int32_t nanos);
// Only what follows the seconds, for who knows the rest; NANOS are less than a second's. TO holds 12 bytes.
size_t pbjson_time_fraction(char *to, int32_t nanos);

#endif
