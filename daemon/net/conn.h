// SPDX-License-Identifier: Apache-2.0
// conn: one accepted connection: its socket, in and out buffers, parser, deadlines. It belongs to its struct net; it frees
// itself, in the before-sleep hook, never inside a callback. Handlers answer with conn_reply or conn_stream,
// at once or later; until then the conn is theirs to hold, and conn_on_close tells them when it goes first.
// Must not know of processes, files or a surface.
#ifndef CELLD_NET_CONN_H
#define CELLD_NET_CONN_H

#include "proto/buf.h"
#include "proto/err.h"
#include "proto/http.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conn;
struct net;
struct route_table;

struct net_limits {
	size_t max_body;       // bytes of a request body held in memory
	size_t max_header;     // bytes of a head
	size_t max_conns;      // open connections; a few more are kept for routes marked ROUTE_VITAL
	double header_timeout; // seconds from a head's first byte to its end; also the longest pause within a body x 3
	double idle_timeout;   // seconds a connection may wait for its next request
	double send_timeout;   // seconds after which a peer that acknowledges nothing counts as gone
	size_t out_max;        // bytes that a producer may have queued for one connection (256 KiB)
};

// Where a stream's bytes come from. Called only from the before-sleep hook.
enum conn_pull { CONN_PULL_MORE, CONN_PULL_IDLE, CONN_PULL_END, CONN_PULL_ABORT };
struct conn_producer {
	// Appends about ROOM bytes or less to OUT (framing is its own, chunking is the conn's); ROOM is at least half of out_max.
	// OUT holds other bytes too: only append. MORE: ask again when there is room;
	// IDLE: nothing now, conn_wake will say; END: that was all, finish well; ABORT: cut the connection without an end.
	enum conn_pull (*pull)(void *arg, struct buf *out, size_t room);
	// The conn is done with the producer: the stream ended or the peer is gone. Exactly once. ARG may be freed in it.
	void (*closed)(void *arg);
};

// Where a request's body goes that is not collected (ROUTE_STREAM).
enum conn_take { CONN_TAKE_MORE, CONN_TAKE_PAUSE };
struct conn_sink {
	// Takes N bytes, all of them, N > 0. PAUSE: no more until conn_resume_body; the socket is not read meanwhile (but for 64 KiB)
	// and no deadline runs. The request may be answered in it: then the rest of the body is not wanted.
	enum conn_take (*data)(void *arg, const void *p, size_t n);
	// That was all of the body: now, or later, the request is answered.
	void (*end)(void *arg);
	// The body will not come whole (the peer is gone, too slow, or makes no sense: then it has its answer), or the connection died
	// before it was answered. Once, and never after an answer; never from within a call of the sink's owner. ARG may be freed in it.
	void (*closed)(void *arg);
};

// --- the set of connections ---

struct net_hooks {
	void *arg;
	// Both may be NULL. REFUSE says why no new request is served now (at the sandbox's end), or NULL: answered to all but
	// routes marked ROUTE_VITAL.
	const struct err *(*refuse)(void *arg);
	// True if the request may use a route that is not ROUTE_OPEN (the access token).
	bool (*allowed)(void *arg, const struct http_head *head);
	// Every request gets an id, unless its client gave one (X-Request-Id), and a line in the log at its end.
	bool tell;
};

// Borrowed: LOOP, LIMITS is copied, HOOKS is copied. NULL when out of memory.
struct net *net_new(struct ev_loop *loop, const struct net_limits *limits, const struct net_hooks *hooks);
// Closes every connection at once.
void net_free(struct net *n);
size_t net_conn_count(const struct net *n);
// Takes an accepted, non-blocking socket that speaks HTTP to TABLE (borrowed). Closes FD on failure too.
// At the limit the longest idle connection makes room; if none is idle, up to 16 more are taken that are served only on
// routes marked ROUTE_VITAL, 503 else. 0, -ENOMEM, or -EUSERS (these are all in use too).
int net_add_take(struct net *n, int fd, const struct route_table *table);
// Closes the connection that has been idle for longest, for its descriptor: false if none is idle, as far as a few looks tell.
bool net_evict(struct net *n);
// Flushes every dirty connection once, by hand (the loop's own hook does it each turn while it runs).
void net_flush(struct net *n);
// True if an answer was completed since this was last asked.
bool net_answered(struct net *n);
// From now on each connection closes when its answer is out; idle ones at once unless something unread waits in them, and those whose request is still coming are refused. True from net_drained when none has an
// answer to come, a request to be read or bytes that the peer has not acknowledged (ask again each turn: it changes without an event of its own).
void net_drain(struct net *n);
bool net_drained(const struct net *n);

// What there is to see of a connection. Strings are static.
struct conn_info {
	const struct route_table *table;
	const char *state;    // "idle", "head", "body", "handler", "stream", "close"
	int64_t since_ns;     // io_mono_ns when the state was entered, or of its last progress
	size_t in, body, out; // bytes held
	uint64_t sent;
	const char *request; // the id of what it is at, where requests are logged; or NULL
	bool streams;
	bool blocked; // its peer takes no more for now
	bool reserve; // beyond the limit
};
// FN sees each of N's connections, and changes nothing.
void net_each(const struct net *n, void (*fn)(void *arg, const struct conn_info *c), void *arg);
// What max_conns has become.
size_t net_max_conns(const struct net *n);

// --- what a handler uses ---

// The request's head and whole body; valid until the answer is given (conn_reply) or the stream is begun (conn_stream).
const struct http_head *conn_head(const struct conn *c);
const struct buf *conn_body(const struct conn *c);
struct ev_loop *conn_loop(const struct conn *c);
// The id of the request, where requests are logged; else NULL. Valid as conn_head is.
const char *conn_request_id(const struct conn *c);

// Answers with STATUS and BODY (NULL or empty: Content-Length: 0, none at all for 204). CTYPE may be NULL. EXTRA: complete
// header lines ("Allow: GET\r\n") or NULL. If BODY failed (out of memory), a 503 goes out instead.
void conn_reply(struct conn *c, int status, const char *ctype, const char *extra, const struct buf *body);
// Answers with E's status and the body that the route table's error writer makes of it.
void conn_error(struct conn *c, const struct err *e);
// Begins a 200 whose body comes from a producer. HTTP/1.1: chunked, and the connection lives on unless the client asked for
// its end; HTTP/1.0: until the end of the connection. Returns false, with P->closed not called and an error answered, when out of memory.
bool conn_stream(struct conn *c, const char *ctype, const char *extra, const struct conn_producer *p, void *arg);
// The producer has something again (also callable before conn_stream's first pull). Cheap; any number of times.
void conn_wake(struct conn *c);
// FN(ARG) is called once, from the before-sleep hook, if the connection dies before it is answered; conn_reply, conn_error and
// conn_stream clear it. Between the death and that call they are allowed and do nothing else (the producer's closed follows).
void conn_on_close(struct conn *c, void (*fn)(void *arg), void *arg);
// Cuts the connection: unread bytes are dropped, a stream gets no end (one that would end with the connection: a reset). The producer's
// closed follows.
void conn_abort(struct conn *c);
// How an answer from a producer begins.
struct conn_answer {
	int status;
	const char *ctype, *extra; // as for conn_reply
	int64_t length;            // of the body, or -1 if nobody knows: chunked
	bool own_length;           // EXTRA has the Content-Length line: for an order of header lines of its own
};
// conn_stream with another status or a known length. A producer that ends before LENGTH bytes cuts the connection.
// LENGTH 0 with own_length: an answer without a body whatever EXTRA says (to HEAD, 304).
bool conn_stream_as(struct conn *c, const struct conn_answer *a, const struct conn_producer *p, void *arg);
// The same while the request's body may still be coming: its sink goes on taking it, pausing and resuming included, and is told of its
// end; but its closed is called no more: the producer's is the only one. A body that breaks off cuts the answer. If the answer ends
// first, the connection ends with it, lingering.
bool conn_stream_duplex(struct conn *c, const struct conn_answer *a, const struct conn_producer *p, void *arg);
// An interim answer (1xx) before the answer: STATUS and EXTRA. A client of HTTP/1.0 gets none.
void conn_interim(struct conn *c, int status, const char *extra);
// FN(ARG) is called once, from the loop, when the peer has closed its side (FIN) though the whole request is there and not answered yet:
// it may have gone, or only have closed its half. Cleared by the answer; a producer is asked instead (conn_eof).
void conn_on_eof(struct conn *c, void (*fn)(void *arg), void *arg);
// Hands the socket out of the net, for another protocol: only while the whole request is there and not answered. What came behind
// the request is appended to IN, what earlier answers left to send to OUT. C is gone then, and nothing of it is called any more.
// The descriptor, -ENOMEM (nothing has changed) or -ENOTCONN (the connection is dead, and says so as it would have).
int conn_detach(struct conn *c, struct buf *in, struct buf *out);
// In the handler of a ROUTE_STREAM route: takes the request's body. A client that waits for it gets its 100 Continue now. SINK is borrowed;
// its closed is conn_on_close's function from here on. conn_reply, conn_error and conn_stream end it; before the body's end
// they close the connection afterwards, lingering, so that the client gets to read the answer.
void conn_body_sink(struct conn *c, const struct conn_sink *sink, void *arg);
// Goes on after CONN_TAKE_PAUSE. Does nothing if it is not paused.
void conn_resume_body(struct conn *c);
// True once the peer sends no more (FIN): it may have gone, or only have closed its half. A producer is asked when that comes.
bool conn_eof(const struct conn *c);
// Bytes accepted by the kernel so far, for judging a reader's progress.
uint64_t conn_sent(const struct conn *c);

#endif
