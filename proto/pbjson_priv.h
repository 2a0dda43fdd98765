// SPDX-License-Identifier: Apache-2.0
// pbjson_priv: what pbjson.c and pbjson_flat.c share; nobody else includes it.
#ifndef CELLD_PROTO_PBJSON_PRIV_H
#define CELLD_PROTO_PBJSON_PRIV_H

#include "proto/pbjson.h"

enum { PBJSON_NAME = 64 }; // bytes of a field's name with its NUL

// The field that KEY means, or NULL.
const ProtobufCFieldDescriptor *pbjson_field(const ProtobufCMessageDescriptor *d, const char *key);
// pbjson_read of a text that is simple: 1 and *M, the caller's; 0 if it is not and is to be read the long way; or negative errno (no memory).
int pbjson_read_flat(const ProtobufCMessageDescriptor *d, const char *p, size_t n, ProtobufCMessage **m);

#endif
