// SPDX-License-Identifier: Apache-2.0
// rpc: Connect calls (contract B sections 1.3 to 1.9) between a connection and a handler: content types, codecs, envelopes,
// compression, timeouts, the user, the shape of errors. A struct rpc lives from the request to the end of its answer and frees
// itself; a handler that answers later keeps it and learns from rpc_on_close when the client goes first.
// Must not know what a method does.
#ifndef CELLD_ENVD_RPC_H
#define CELLD_ENVD_RPC_H

#include "daemon/core/users.h"
#include "daemon/envd/envd.h"
#include "daemon/net/conn.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Bytes of a message, as they come and inflated.
#define RPC_MESSAGE_MAX ((size_t)16 * 1024 * 1024)

struct rpc;

enum rpc_kind { RPC_UNARY, RPC_SERVER_STREAM, RPC_CLIENT_STREAM };

struct rpc_method {
	const char *path; // "/process.Process/Start"
	enum rpc_kind kind;
	const ProtobufCMessageDescriptor *request;
	const ProtobufCMessageDescriptor *response; // what rpc_reply and rpc_put get; for documentation and asserts
	// Called with a whole, decoded request; timeout, protocol version and the rest of the head are good. REQ is valid until the
	// call is answered or its stream is begun. Answers now or later. A client stream's is called for each message, in order (REQ
	// until it returns), until the call is answered.
	void (*call)(struct rpc *r, const ProtobufCMessage *req);
	// Client streams only: all messages have come; answers. Not called once the call is answered.
	void (*done)(struct rpc *r);
};

// The tables, one a service, each in its own file; ended by a NULL path.
const struct rpc_method *envd_process_methods(void);
const struct rpc_method *envd_filesystem_methods(void);

// --- what is asked ---

struct envd *rpc_envd(const struct rpc *r);
struct conn *rpc_conn(const struct rpc *r);
// The codec is JSON, else binary.
bool rpc_is_json(const struct rpc *r);
// Who asks: the Basic user, or the default one. Looked up at the first use, which comes before the answer; borrowed for the rest of the
// call. NULL with E filled (`unauthenticated`, or out of memory).
const struct user *rpc_user(struct rpc *r, struct err *e);
// The same, valid only until the loop goes on: mostly it is known, and then not copied.
const struct user *rpc_user_now(struct rpc *r, struct err *e);
// Connect-Timeout-Ms, 0 = none. A stream ends by itself when it is over (deadline_exceeded), unless the handler says that it ends
// it; that a process ends too is its handler's.
int64_t rpc_timeout_ms(const struct rpc *r);
void rpc_own_deadline(struct rpc *r);
// Free for the handler; NULL at first.
void rpc_set_data(struct rpc *r, void *data);
void *rpc_data(const struct rpc *r);

// --- unary and client streams: exactly one of these ends the call; R is gone then ---

void rpc_reply(struct rpc *r, const ProtobufCMessage *m);
// Unary only: a whole message that is encoded already, in the call's codec.
void rpc_reply_body(struct rpc *r, const struct buf *body);
// Unary only: one as it is made, with a length that nobody knows; what P gives is the body. False (out of memory): answered, closed not called.
bool rpc_reply_stream(struct rpc *r, const struct conn_producer *p, void *arg);
// Any kind: unary with the code's HTTP status, streams as HTTP 200 with END_STREAM. Before rpc_stream only.
void rpc_error(struct rpc *r, const struct err *e);
// The same, E made here.
void rpc_errorf(struct rpc *r, enum err_code code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
// FN(ARG) if the client goes before the call is answered, or its deadline or a broken body answers it: no answer is due any more, R is
// gone when FN returns. Everything that answers clears it.
void rpc_on_close(struct rpc *r, void (*fn)(void *arg), void *arg);

// Client streams: no further message until rpc_resume, which may call the handler.
void rpc_pause(struct rpc *r);
void rpc_resume(struct rpc *r);

// --- server streams ---

// Where the messages come from. Called from the before-sleep hook only, as conn_producer's.
struct rpc_source {
	// Appends messages with rpc_put (or ready-made envelopes), about ROOM bytes at most, at least one if there is any. MORE, IDLE as
	// conn_pull; END: all sent, END_STREAM {} follows (or the error of rpc_end); ABORT: cut without an end.
	enum conn_pull (*pull)(void *arg, struct rpc *r, struct buf *out, size_t room);
	// Exactly once, when the stream is over for whatever reason: end, deadline, error, the client gone. ARG may be freed in it, R is
	// gone when it returns.
	void (*closed)(void *arg);
	// Appends what keeps the stream alive when nothing was sent for the time that Keepalive-Ping-Interval asks for (90 s without
	// the header), or NULL.
	void (*keepalive)(void *arg, struct rpc *r, struct buf *out);
};
// Begins the stream. False (out of memory): answered, CLOSED not called, R is gone.
bool rpc_stream(struct rpc *r, const struct rpc_source *src, void *arg);
// There is something to pull again. Cheap.
void rpc_wake(struct rpc *r);
// Ends a begun stream with an error, behind what was sent already: the source is not pulled any more. Callable at any time,
// in a pull too (then return CONN_PULL_END).
void rpc_end(struct rpc *r, const struct err *e);
// Appends one message in its envelope.
void rpc_put(struct rpc *r, struct buf *out, const ProtobufCMessage *m);

// --- between rpc, control and routes ---

// The method of a path, or NULL.
const struct rpc_method *rpc_find(struct http_span path);
// True for a path below one of the services, known or not.
bool rpc_path(struct http_span path);
// The Content-Type that a stream's answer has if T is one of a streaming call, else NULL.
const char *rpc_stream_type(struct http_span t);
// The route handler of every method.
void rpc_serve(void *ctx, struct conn *c);

#endif
