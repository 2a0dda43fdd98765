// SPDX-License-Identifier: Apache-2.0
#include "daemon/io.h"
#include "daemon/net/conn_priv.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

static void end_stream(struct conn *c)
{
	const struct conn_producer *p = c->producer;
	void *arg = c->producer_arg;
	c->producer = NULL;
	if (!c->ended)
		c->close = true; // what is left of the request's body is not read
	conn_answered(c);
	p->closed(arg);
}

// Counts N bytes of a body whose length was announced. False if it ends at another length: a peer would wait for the rest, or take
// what is too much for the next answer.
static bool count_due(struct conn *c, size_t n, enum conn_pull got)
{
	if (n > (uint64_t)c->due) {
		buf_truncate(&c->out, buf_len(&c->out) - (n - (size_t)c->due));
		return false;
	}
	c->due -= (int64_t)n;
	return got != CONN_PULL_END || c->due == 0;
}

// Asks the producer once. True if it may be asked again in this turn.
static bool pull(struct conn *c)
{
	size_t before = buf_len(&c->out), mark = c->chunked ? http_chunk_begin(&c->out) : 0;
	size_t start = buf_len(&c->out);
	enum conn_pull got = c->producer->pull(c->producer_arg, &c->out, c->net->limits.out_max - before);
	if (c->state != CONN_STREAM)
		return false; // cut from within
	if (c->due >= 0 && !count_due(c, buf_len(&c->out) - start, got))
		got = CONN_PULL_ABORT;
	if (c->chunked)
		http_chunk_end(&c->out, mark);
	if (got == CONN_PULL_ABORT && !c->chunked && c->due < 0) {
		conn_cut(c);
		return false;
	}
	if (got == CONN_PULL_ABORT) {
		c->close = true;
		conn_trace_end(c, false);
	} else if (got == CONN_PULL_END && c->chunked)
		http_put_last_chunk(&c->out);
	if (buf_failed(&c->out)) {
		conn_kill(c); // a piece is missing
		return false;
	}
	if (got == CONN_PULL_END || got == CONN_PULL_ABORT) {
		end_stream(c);
		return false;
	}
	if (got == CONN_PULL_MORE && buf_len(&c->out) == before && !c->blocked)
		conn_dirty(c); // busy without a result: others first
	return got == CONN_PULL_MORE && buf_len(&c->out) > before;
}

// Sends up to MAX bytes; false if no more can be sent now.
static bool send_some(struct conn *c, size_t max)
{
	size_t n = buf_len(&c->out);
	if (n > max)
		n = max;
	ssize_t rc = io_send(c->fd, buf_data(&c->out), n);
	if (rc < 0 && rc != -EAGAIN) {
		conn_kill(c);
		return false;
	}
	size_t done = rc > 0 ? (size_t)rc : 0;
	buf_consume(&c->out, done);
	c->sent += done;
	if (c->table->counts)
		c->table->counts->sent += done;
	if (done < n) {
		c->blocked = true;
		c->stuck_at = io_mono_ns();
	}
	return done == n;
}

// All is sent.
static void drained(struct conn *c, uint64_t count)
{
	if (c->state == CONN_STREAM && (c->warm || count > CONN_WARM))
		c->warm = true; // the next burst is likely near
	else
		buf_shrink(&c->out, c->state == CONN_STREAM ? CONN_SMALL : 0);
	if (c->state == CONN_IDLE && count > 0)
		c->since = conn_now(c->net);
	if (c->state != CONN_CLOSE || (c->shut && !c->eof))
		return;
	if (c->eof || c->dropped >= CONN_DISCARD_MAX || shutdown(c->fd, SHUT_WR) < 0) {
		conn_kill(c);
		return;
	}
	// Closing now, with input unread or still on its way, would make the kernel send RST, and the peer could lose the
	// answer. So wait for its FIN a while.
	c->shut = true;
	c->since = io_mono_ns();
}

void conn_flush(struct conn *c)
{
	uint64_t start = c->sent;
	bool more = true;
	if (buf_failed(&c->out)) {
		conn_kill(c);
		return;
	}
	for (;;) {
		// Asked at half the limit, so that a producer always finds room for a whole frame.
		while (more && c->state == CONN_STREAM && buf_len(&c->out) <= c->net->limits.out_max / 2)
			more = pull(c);
		if (c->state == CONN_DEAD || c->blocked || buf_len(&c->out) == 0)
			break;
		size_t done = (size_t)(c->sent - start);
		if (done >= CONN_TURN_MAX) {
			conn_dirty(c);
			break;
		}
		if (!send_some(c, CONN_TURN_MAX - done))
			break;
	}
	if (c->state != CONN_DEAD && buf_len(&c->out) == 0)
		drained(c, c->sent - start);
}

void conn_writable(struct conn *c)
{
	c->blocked = false;
	conn_dirty(c);
}

// A living peer answers retransmissions and window probes, however long it does not read; but the kernel spaces both out up to
// two minutes, so silence counts only once two of them went unanswered. (A retransmission doubles tcpi_rto, so with answers
// coming the silence never lasts longer than that.)
bool conn_peer_gone(const struct conn *c)
{
	int64_t limit = (int64_t)(c->net->limits.send_timeout * 1e9);
	if (!c->blocked || io_mono_ns() - c->stuck_at < limit)
		return false;
	struct tcp_info info = {0};
	socklen_t n = sizeof(info);
	if (getsockopt(c->fd, IPPROTO_TCP, TCP_INFO, &info, &n) < 0)
		return false; // not TCP: the kernel tells when the peer is gone
	int64_t silent = (int64_t)info.tcpi_last_ack_recv * 1000000;
	if (silent < limit)
		return false;
	if (info.tcpi_unacked > 0)
		return info.tcpi_retransmits >= 2 && silent > (int64_t)info.tcpi_rto * 1000 + 1000000000;
	return info.tcpi_probes >= 2;
}
