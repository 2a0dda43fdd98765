// SPDX-License-Identifier: Apache-2.0
// conn_priv: what net.c, conn.c, conn_in.c and conn_out.c share; nobody else includes it.
// net.c: the set, the before-sleep hook, limits, deadlines, the sweep. conn.c: state and answers. conn_in.c: bytes in,
// requests out. conn_out.c: producers pulled, bytes out, the end of a connection.
#ifndef CELLD_NET_CONN_PRIV_H
#define CELLD_NET_CONN_PRIV_H

#include "daemon/metrics.h"
#include "daemon/net/conn.h"
#include "daemon/net/route.h"
#include "proto/http.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CONN_READ_MAX ((size_t)64 * 1024)   // bytes of one read, and of pipelined input kept
#define CONN_BULK_MAX ((size_t)256 * 1024)  // bytes of one read within a large body
#define CONN_TURN_MAX ((size_t)256 * 1024)  // bytes sent for one connection a turn
#define CONN_WARM ((size_t)16 * 1024)       // a stream that sends more at once keeps its memory until the sweep
#define CONN_SMALL ((size_t)512)            // a stream keeps that much: its small frames cost no allocation
#define CONN_DISCARD_MAX ((size_t)64 << 20) // bytes read and dropped after the last answer
#define CONN_LINGER_NS INT64_C(2000000000)  // time for the peer to close after our FIN
#define CONN_RESERVE_NS INT64_C(1000000000) // time for a head on a connection beyond the limit
#define CONN_SERVE_NS INT64_C(2000000)      // time for handlers a turn; then the others wait for the next one
#define NET_RESERVE ((size_t)16)            // connections beyond the limit
#define NET_SWEEP 1.0                       // seconds between looks at connections that epoll cannot judge

enum conn_state {
	CONN_IDLE,    // nothing of the next request has come
	CONN_HEAD,    // part of a head has
	CONN_BODY,    // the head was admitted, its body is being collected, or goes to the sink
	CONN_HANDLER, // the handler has the request
	CONN_STREAM,  // the producer is asked for the answer
	CONN_CLOSE,   // the last answer is queued or sent; input is dropped
	CONN_DEAD,    // socket closed; freed by the hook
};

struct conn {
	struct net *net;
	struct conn *prev, *next;   // net->conns or net->dead
	struct conn *oprev, *onext; // net->idle or net->reserve, both oldest first
	struct conn *dprev, *dnext; // net->dirty
	struct ev_io io;
	struct ev_timer timer;
	int64_t since;    // when the state was entered, or its last progress
	int64_t timer_at; // when the timer fires, if it is active
	int64_t stuck_at; // when output got stuck
	int fd;
	int events; // what io waits for
	enum conn_state state;
	bool close;   // no further request on this connection
	bool eof;     // the peer sends no more
	bool ended;   // all of the current request has been read
	bool chunked; // the stream is sent in chunks
	bool blocked; // the socket takes no more: wait for EV_WRITE
	bool shut;    // our FIN is sent
	bool reserve; // beyond the limit
	bool idle;    // in net->idle
	bool dirty;   // in net->dirty
	bool watched; // counted in net->watched
	bool warm;    // out has memory of a burst
	bool waiting; // CONN_HANDLER, but the handler has not been called yet
	bool paused;  // the sink takes no more for now
	bool bulk;    // in net->bulk_count: its body comes faster than it is read
	const struct route_table *table;
	const struct route *route;
	struct http *http;
	struct buf in;   // read, not parsed yet
	struct buf body; // of the current request
	struct buf out;
	const struct conn_sink *sink; // of the current request, NULL: its body is collected; may go on in CONN_STREAM
	void *sink_arg;
	int64_t due; // bytes that the producer still has to give, -1 = who knows
	const struct conn_producer *producer;
	void *producer_arg;
	void (*on_close)(void *arg);
	void *on_close_arg;
	void (*on_eof)(void *arg);
	void *on_eof_arg;
	uint64_t sent, sent_at_sweep;
	size_t dropped;           // bytes of input in CONN_CLOSE
	struct conn_trace *trace; // of the current request, where they are logged
};

struct net {
	struct ev_loop *loop;
	struct net_limits limits;
	struct net_hooks hooks;
	struct conn *conns, *idle, *reserve, *dirty, *dead;
	size_t conn_count, reserve_count, dirty_count;
	size_t watched;    // connections that need the sweep
	int64_t served_ns; // spent in handlers this turn
	int64_t now;       // this turn's time, see conn_now
	unsigned turn;
	bool draining;
	bool answered;    // see net_answered
	uint64_t last_id; // of a request
	struct ev_prepare prepare;
	struct ev_idle again; // keeps the loop from sleeping while a connection is dirty
	struct ev_timer sweep;
	char *bulk; // for those with large bodies, CONN_BULK_MAX; NULL while there are none
	size_t bulk_count;
	char rbuf[CONN_READ_MAX]; // the last, not zeroed. Shared: nothing stays in it from one read to the next
};

// --- conn.c ---
struct conn *conn_new(struct net *n, int fd, const struct route_table *table);
// Calls what waits for its end, then frees it. Only for a connection that is unlinked from everything.
void conn_free(struct conn *c);
void conn_enter(struct conn *c, enum conn_state state);
// Answers E instead of serving the request, and tells its sink; EXTRA as in conn_reply.
void conn_fail(struct conn *c, const struct err *e, const char *extra);
// The rest of the body will not come: tells the sink.
void conn_drop_sink(struct conn *c);
// The answer is queued whole: on to the next request or to the end.
void conn_answered(struct conn *c);
// True if no request follows the current one.
bool conn_is_last(const struct conn *c);
// Cuts a stream so that its body cannot be taken for whole.
void conn_cut(struct conn *c);

// --- conn_in.c ---
// The socket is readable.
void conn_read(struct conn *c);
// Goes on with input that had to wait, and acts on the peer's EOF once all of it is used.
void conn_resume(struct conn *c);
bool conn_may_parse(const struct conn *c);
// Calls the handler, or puts it off while others have had their share of this turn: starting a command takes its time, and many clients
// may ask for one at once.
void conn_serve(struct conn *c);

// --- conn_out.c ---
// Pulls and sends once, up to CONN_TURN_MAX.
void conn_flush(struct conn *c);
// The socket takes bytes again.
void conn_writable(struct conn *c);
// True if output is stuck and the peer has acknowledged nothing for the send timeout though it was asked to.
bool conn_peer_gone(const struct conn *c);

// --- conn_trace.c: requests that are logged ---
#define CONN_ID_MAX ((size_t)64)
// Where ids that are made begin.
void conn_trace_seed(struct net *n);
// A head has come.
void conn_trace_begin(struct conn *c, const struct http_head *head);
void conn_trace_answer(struct conn *c, int status);
// The request is over; does nothing if that was said already.
void conn_trace_end(struct conn *c, bool whole);
// The header line with the current request's id, if it has one.
void conn_put_id(const struct conn *c, struct buf *out);

// --- net.c ---
// The time (io_mono_ns) as it was when this turn of the loop first asked, or when its last handler returned: a request asks six times, which
// was a sixth of a small one's cost.
int64_t conn_now(struct net *n);
void conn_dirty(struct conn *c);
// C is read in larger pieces, or is no more.
void conn_set_bulk(struct conn *c, bool on);
// Closes the socket and unlinks it; the hook frees it.
void conn_kill(struct conn *c);
// The one place that decides what the connection waits for: events, deadline, sweep, place among the idle.
void conn_update(struct conn *c);

#endif
