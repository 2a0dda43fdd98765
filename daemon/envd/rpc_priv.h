// SPDX-License-Identifier: Apache-2.0
// rpc_priv: what rpc.c (heads, requests, unary answers), rpc_stream.c (streamed answers) and rpc_input.c (client streams) share;
// nobody else includes it.
#ifndef CELLD_ENVD_RPC_PRIV_H
#define CELLD_ENVD_RPC_PRIV_H

#include "daemon/envd/rpc.h"
#include "proto/envelope.h"

#include <ev.h>

struct rpc {
	struct envd *envd;
	struct conn *conn;
	const struct rpc_method *method;
	const struct rpc_type *type; // of the request, and of the answer
	ProtobufCMessage *request;
	struct user user;
	bool user_known;
	bool gzip_in;     // the request may be compressed
	bool gzip_out;    // the answer is
	bool no_encoding; // the request's compression is unknown: a stream says that it has none
	bool timed;       // there is a timeout
	int64_t timeout_ms;
	double keepalive_s;
	void *data;
	void (*on_close)(void *arg);
	void *on_close_arg;
	bool busy; // a handler is being called that may free it
	bool dead; // freed when the handler returns
	ev_timer deadline;
	// a streamed answer
	const struct rpc_source *source; // NULL: nothing but what last holds and the end
	void *source_arg;
	struct buf last;  // envelopes in front of the end
	struct buf plain; // envelopes to be compressed
	bool streaming;
	bool cut;   // a message is missing
	bool ended; // by END, which may be ERR_NONE
	struct err end;
	ev_timer keepalive;
	bool ping;   // a keepalive is due
	bool probed; // one was sent because the peer has closed its half
	// a client stream
	struct envelope_reader input;
	struct buf held; // bytes of the body behind the message that paused
	bool paused;
};

struct rpc_type {
	const char *name;               // without parameters
	const char *answer;             // Content-Type of the answer
	const char *unary, *unary_gzip; // a unary answer's header lines, as it is and compressed
	bool charset;                   // with charset=utf-8
	bool json, stream;
};

// --- rpc.c ---
void rpc_free(struct rpc *r);
// The client went before it was answered: the handler is told, R freed.
void rpc_gone(void *r);
// Decodes a message for the call. NULL with E filled.
ProtobufCMessage *rpc_decode(const struct rpc *r, const struct buf *body, struct err *e);
// 0, or negative: no memory.
int rpc_encode(const struct rpc *r, struct buf *out, const ProtobufCMessage *m);
// Appends the N bytes at P as gzip. False if there is no memory for it.
bool rpc_gzip(struct buf *out, const void *p, size_t n);
// The call ends with E that its handler did not give: it is told, then the answer goes out.
void rpc_abandon(struct rpc *r, const struct err *e);

// --- rpc_stream.c ---
// Begins a stream that ends at once, with E or, NULL, without an error, behind what r->last holds.
void rpc_stream_end(struct rpc *r, const struct err *e);
// Arms the deadline of a call with a streamed answer.
void rpc_arm(struct rpc *r);

// --- rpc_input.c ---
const struct conn_sink *rpc_sink(void);

#endif
