// SPDX-License-Identifier: Apache-2.0
// proxy_priv: what the proxy's files share; nobody else includes it. proxy.c: a request's life from the handler to its end.
// proxy_target.c: which sandbox and port it is for. proxy_head.c: heads on their way. proxy_up.c: the connection to the sandbox, and
// what goes there. proxy_down.c: the answer. A proxy owns all but the conn and the session; it frees itself by proxy_over.
#ifndef CELLD_GATEWAY_PROXY_PRIV_H
#define CELLD_GATEWAY_PROXY_PRIV_H

#include "proto/buf.h"
#include "proto/err.h"
#include "proto/http.h"
#include "tests/gateway/ends.h"
#include "tests/gateway/gateway.h"
#include "tests/gateway/session.h"
#include "tests/gateway/tunnel.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

enum { PROXY_ID = 64 };                   // characters of an id
#define PROXY_READ ((size_t)32 * 1024)    // bytes of the sandbox's read at once
#define PROXY_UP ((size_t)64 * 1024)      // bytes queued for it, above which the client is not read
#define PROXY_INTERIM ((size_t)64 * 1024) // bytes of interim answers that are passed on
#define PROXY_GRACE 0.3                   // seconds between a connection's end and the news that its sandbox has ended

#define PROXY_NOT_FOUND "The sandbox was not found"
#define PROXY_PORT_CLOSED "The sandbox is running but port is not open"

struct proxy_target {
	struct session *session; // NULL: there is none of that id
	char id[PROXY_ID + 1];
	unsigned port;
	bool is_signed; // found by a signature, which only its token makes
};

enum proxy_stage {
	PROXY_WAKING,     // the session is asked to run
	PROXY_CONNECTING, // to the port, perhaps not for the first time
	PROXY_ASKING,     // no answer yet
	PROXY_ANSWERING,  // the conn asks for it
	PROXY_TUNNELLING, // the conn is gone, the sockets are the tunnel's
	PROXY_OVER,       // freed when nobody is in it
};

enum proxy_end {
	PROXY_RUNS,
	PROXY_WHOLE,  // the answer ended as it should
	PROXY_BROKEN, // it was cut
};

struct proxy {
	struct gateway *gateway;
	struct conn *conn;
	struct session *session; // NULL once it is gone
	struct session_watch watch;
	struct proxy_target target;
	enum proxy_stage stage;
	unsigned depth; // calls that are in it
	char why[64];   // the session is gone
	// to the sandbox
	int fd;
	struct ev_io reader, writer;
	struct ev_timer timer; // the next attempt; then: news of the session
	unsigned attempts;
	struct buf up;
	bool chunked; // the request's body is
	bool upgrade; // the request asks for another protocol
	bool asked;   // all of the request is here
	bool deaf;    // the sandbox takes no more of it
	bool fin;     // the client has closed its side
	bool shut;    // which the sandbox was told
	bool starved; // out of memory: a piece of the request is missing
	// from it
	size_t interim; // bytes of interim answers so far
	struct http *http;
	bool head_only;  // HEAD: no body follows
	bool eof;        // the connection has ended
	struct buf rest; // read before the conn asked
	struct ends ends;
	enum proxy_end end;
	struct tunnel *tunnel;
};

// --- proxy.c ---
// Every callback of a proxy's is between these two; the second frees it if it was over.
void proxy_enter(struct proxy *p);
void proxy_leave(struct proxy *p);
// Lets go of everything. The conn must have been answered, or be gone.
void proxy_over(struct proxy *p);
// Answers E, before the answer was begun, and is over.
void proxy_refuse(struct proxy *p, const struct err *e);
void proxy_refuse_port(struct proxy *p);
// True if the sandbox has ended, or will not answer any more. Asks the kernel.
bool proxy_lost(struct proxy *p);
// What the sandbox's end is for the client.
void proxy_lost_error(const struct proxy *p, struct err *e);

// --- proxy_target.c ---
// 0 with T filled, or -1 with E.
int proxy_find(const struct gateway *g, const struct http_head *head, struct proxy_target *t, struct err *e);

// --- proxy_head.c ---
// True if the request asks for an upgrade that goes through.
bool proxy_upgrades(const struct http_head *head);
// The request's head for the sandbox.
void proxy_put_request(struct buf *out, const struct http_head *head, bool upgrade);
// The answer's header lines for the client, without those that are the connection's own.
void proxy_put_lines(struct buf *out, const struct http_head *head, bool upgrade);

// --- proxy_up.c ---
extern const struct conn_sink proxy_sink;
void proxy_connect(struct proxy *p);
// The client has closed its side: so do we, once all is sent.
void proxy_shut(struct proxy *p);
void proxy_disconnect(struct proxy *p);

// --- proxy_down.c ---
// The connection stands: the answer is waited for.
void proxy_listen(struct proxy *p);
// The timer: nothing was heard of the session after its connection had ended, or memory ran out.
void proxy_give_up(struct proxy *p);

#endif
