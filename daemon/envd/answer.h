// SPDX-License-Identifier: Apache-2.0
// answer: the shapes of surface B's answers, beyond what envd.h has for the handlers: Connect errors, and those that are made
// before a handler is asked. Used by routes.c, rpc*.c and control*.c.
#ifndef CELLD_ENVD_ANSWER_H
#define CELLD_ENVD_ANSWER_H

#include "daemon/envd/envd.h"
#include "proto/buf.h"
#include "proto/err.h"
#include "proto/http.h"

// err.reason of a missing or wrong access token, and of an unknown user in Authorization: their answers have one shape on every path.
#define ANSWER_TOKEN "access_token"
#define ANSWER_USER "user"

// route_table's error hook. REST paths: {"code":<status>,"message"}; RPC paths: a Connect error, and for a stream what ends a call
// that was meant to be served is an HTTP 200 with END_STREAM.
int answer_error(
	const struct http_head *head, const struct err *e, const char *extra, struct buf *lines, struct buf *body);
// A CORS preflight, and its route handler.
bool answer_is_preflight(const struct http_head *head);
void answer_preflight(void *ctx, struct conn *c);

#endif
