// SPDX-License-Identifier: Apache-2.0
// net: the set of connections: its hook, limits, deadlines and sweep.
#include "daemon/io.h"
#include "daemon/net/conn_priv.h"

#include <assert.h>
#include <errno.h>
#include <linux/sockios.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <utlist.h>

#define SECONDS(s) ((int64_t)((s)*1e9))
#define EVICT_LOOKS 64

int64_t conn_now(struct net *n)
{
	unsigned turn = ev_iteration(n->loop);
	if (turn != n->turn || n->now == 0) {
		n->turn = turn;
		n->now = io_mono_ns();
	}
	return n->now;
}

// --- lists ---

void conn_dirty(struct conn *c)
{
	if (c->dirty || c->state == CONN_DEAD)
		return;
	c->dirty = true;
	DL_APPEND2(c->net->dirty, c, dprev, dnext);
	c->net->dirty_count++;
}

static void clean(struct conn *c)
{
	if (!c->dirty)
		return;
	c->dirty = false;
	DL_DELETE2(c->net->dirty, c, dprev, dnext);
	c->net->dirty_count--;
}

static void set_idle(struct conn *c, bool idle)
{
	if (idle == c->idle)
		return;
	c->idle = idle;
	if (idle)
		DL_APPEND2(c->net->idle, c, oprev, onext);
	else
		DL_DELETE2(c->net->idle, c, oprev, onext);
}

static void set_watched(struct conn *c, bool watched)
{
	struct net *n = c->net;
	if (watched == c->watched)
		return;
	c->watched = watched;
	n->watched += watched ? 1 : (size_t)-1;
	if (n->watched > 0 && !ev_is_active(&n->sweep))
		ev_timer_again(n->loop, &n->sweep);
	else if (n->watched == 0)
		ev_timer_stop(n->loop, &n->sweep);
}

void conn_set_bulk(struct conn *c, bool on)
{
	struct net *n = c->net;
	if (on == c->bulk)
		return;
	// A mapping, so that all of it goes back.
	if (on && !n->bulk) {
		void *p = mmap(NULL, CONN_BULK_MAX, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		n->bulk = p == MAP_FAILED ? NULL : p;
	}
	if (on && !n->bulk)
		return;
	c->bulk = on;
	if (on)
		n->bulk_count++;
	else
		n->bulk_count--;
	if (n->bulk_count > 0)
		return;
	munmap(n->bulk, CONN_BULK_MAX);
	n->bulk = NULL;
}

void conn_kill(struct conn *c)
{
	struct net *n = c->net;
	if (c->state == CONN_DEAD)
		return;
	ev_io_stop(n->loop, &c->io);
	ev_timer_stop(n->loop, &c->timer);
	io_close(&c->fd);
	set_idle(c, false);
	set_watched(c, false);
	clean(c);
	if (c->reserve) {
		DL_DELETE2(n->reserve, c, oprev, onext);
		n->reserve_count--;
	}
	DL_DELETE(n->conns, c);
	n->conn_count--;
	c->state = CONN_DEAD;
	DL_APPEND(n->dead, c);
}

// --- what a connection waits for ---

// When its patience ends, 0 = never.
static int64_t deadline_of(const struct conn *c)
{
	const struct net_limits *l = &c->net->limits;
	switch (c->state) {
	case CONN_IDLE:
		if (!c->idle && !c->reserve)
			return 0;
		return c->since + (c->reserve ? CONN_RESERVE_NS : SECONDS(l->idle_timeout));
	case CONN_HEAD:
		return c->since + (c->reserve ? CONN_RESERVE_NS : SECONDS(l->header_timeout));
	case CONN_BODY:
		return c->paused || (c->route->flags & ROUTE_SLOW) ? 0 : c->since + SECONDS(3 * l->header_timeout);
	case CONN_CLOSE:
		return c->shut ? c->since + CONN_LINGER_NS : 0;
	default:
		return 0;
	}
}

// A timer that is early enough already is left alone: it looks again when it fires. So a busy connection costs no timer work.
static void arm(struct conn *c, int64_t deadline)
{
	if (deadline == 0 || (ev_is_active(&c->timer) && c->timer_at <= deadline))
		return;
	int64_t wait = deadline - io_mono_ns();
	if (wait < 1000000)
		wait = 1000000;
	ev_timer_stop(c->net->loop, &c->timer);
	ev_timer_set(&c->timer, (double)wait / 1e9, 0.);
	ev_timer_start(c->net->loop, &c->timer);
	c->timer_at = deadline;
}

static int events_of(const struct conn *c)
{
	bool room = c->state == CONN_CLOSE ? c->dropped < CONN_DISCARD_MAX : buf_len(&c->in) < CONN_READ_MAX;
	return (room && !c->eof ? EV_READ : 0) | (c->blocked ? EV_WRITE : 0);
}

void conn_update(struct conn *c)
{
	if (c->state == CONN_DEAD)
		return;
	if (c->bulk && c->state != CONN_BODY)
		conn_set_bulk(c, false);
	int events = events_of(c);
	if (events != c->events) {
		ev_io_stop(c->net->loop, &c->io);
		ev_io_set(&c->io, c->fd, events);
		if (events)
			ev_io_start(c->net->loop, &c->io);
		c->events = events;
	}
	set_idle(c, c->state == CONN_IDLE && !c->reserve && buf_len(&c->out) == 0 && buf_len(&c->in) == 0);
	set_watched(c, c->blocked || c->warm || !(events & EV_READ));
	int64_t deadline = deadline_of(c);
	arm(c, deadline);
	assert(events || deadline || c->dirty || c->paused || c->state == CONN_HANDLER || c->state == CONN_STREAM);
}

static void on_io(struct ev_loop *loop, struct ev_io *w, int revents)
{
	(void)loop;
	struct conn *c = w->data;
	int asked = c->events;
	if (revents & EV_ERROR)
		c->events = 0; // the kernel had no memory to watch it: again
	if (revents & asked & EV_WRITE)
		conn_writable(c);
	if (revents & asked & EV_READ)
		conn_read(c);
	conn_update(c);
}

static void on_timer(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)loop;
	(void)revents;
	struct conn *c = w->data;
	int64_t now = io_mono_ns(), deadline = deadline_of(c);
	// After a stop of the whole daemon what the peer sent in time is still unread.
	if (deadline && now >= deadline && c->state <= CONN_BODY && (c->events & EV_READ) && io_pending(c->fd) > 0) {
		conn_read(c);
		deadline = deadline_of(c);
	}
	if (c->state != CONN_DEAD && deadline && now >= deadline) {
		if (c->state == CONN_IDLE || c->state == CONN_CLOSE || c->reserve) {
			conn_kill(c);
		} else {
			struct err e;
			err_http(&e, 408, ERR_DEADLINE_EXCEEDED, "request timeout");
			conn_fail(c, &e, NULL);
		}
	}
	conn_update(c);
}

// --- the hook and the sweep ---

static void reap(struct net *n)
{
	while (n->dead) {
		struct conn *c = n->dead;
		DL_DELETE(n->dead, c);
		conn_free(c);
	}
}

void net_flush(struct net *n)
{
	// Those that become dirty meanwhile have their turn next time.
	for (size_t turn = n->dirty_count; turn > 0 && n->dirty; turn--) {
		struct conn *c = n->dirty;
		clean(c);
		if (c->waiting)
			conn_serve(c);
		conn_flush(c);
		if (c->state != CONN_DEAD)
			conn_resume(c);
		conn_update(c);
	}
	reap(n);
}

static void before_sleep(struct ev_loop *loop, struct ev_prepare *w, int revents)
{
	(void)revents;
	struct net *n = w->data;
	n->served_ns = 0;
	net_flush(n);
	if (n->dirty)
		ev_idle_start(loop, &n->again);
	else
		ev_idle_stop(loop, &n->again);
}

static void on_again(struct ev_loop *loop, struct ev_idle *w, int revents)
{
	(void)loop;
	(void)w;
	(void)revents;
}

// epoll cannot be asked for errors alone through libev, so those who wait for no input are looked at here.
static bool socket_dead(const struct conn *c)
{
	struct pollfd p = {c->fd, 0, 0};
	return IO_AGAIN(poll(&p, 1, 0)) > 0 && (p.revents & (POLLERR | POLLHUP | POLLNVAL));
}

static void on_sweep(struct ev_loop *loop, struct ev_timer *w, int revents)
{
	(void)loop;
	(void)revents;
	struct net *n = w->data;
	struct conn *c, *next;
	DL_FOREACH_SAFE(n->conns, c, next)
	{
		if (!c->watched)
			continue;
		if (socket_dead(c) || conn_peer_gone(c)) {
			conn_kill(c);
			continue;
		}
		if (c->warm && c->sent == c->sent_at_sweep) {
			buf_shrink(&c->out, 0);
			c->warm = buf_len(&c->out) > 0;
		}
		c->sent_at_sweep = c->sent;
		conn_update(c);
	}
}

// --- the set ---

struct net *net_new(struct ev_loop *loop, const struct net_limits *limits, const struct net_hooks *hooks)
{
	struct net *n = malloc(sizeof(*n));
	if (!n)
		return NULL;
	// What nobody has written to takes no memory: 60 KiB of an idle daemon's.
	memset(n, 0, offsetof(struct net, rbuf));
	n->loop = loop;
	n->limits = *limits;
	n->hooks = *hooks;
	if (hooks->tell)
		conn_trace_seed(n);
	ev_prepare_init(&n->prepare, before_sleep);
	ev_idle_init(&n->again, on_again);
	ev_init(&n->sweep, on_sweep);
	n->sweep.repeat = NET_SWEEP;
	n->prepare.data = n;
	n->sweep.data = n;
	ev_prepare_start(loop, &n->prepare);
	return n;
}

void net_free(struct net *n)
{
	if (!n)
		return;
	while (n->conns || n->dead) {
		while (n->conns)
			conn_kill(n->conns);
		reap(n);
	}
	ev_prepare_stop(n->loop, &n->prepare);
	ev_idle_stop(n->loop, &n->again);
	ev_timer_stop(n->loop, &n->sweep);
	free(n);
}

bool net_answered(struct net *n)
{
	bool yes = n->answered;
	n->answered = false;
	return yes;
}

size_t net_conn_count(const struct net *n)
{
	return n->conn_count;
}

size_t net_max_conns(const struct net *n)
{
	return n->limits.max_conns;
}

void net_each(const struct net *n, void (*fn)(void *arg, const struct conn_info *c), void *arg)
{
	static const char *const states[] = {"idle", "head", "body", "handler", "stream", "close", "dead"};
	const struct conn *c;
	DL_FOREACH(n->conns, c)
	{
		const struct conn_info info = {
			.table = c->table,
			.state = states[c->state],
			.since_ns = c->since,
			.in = buf_len(&c->in),
			.body = buf_len(&c->body),
			.out = buf_len(&c->out),
			.sent = c->sent,
			.request = conn_request_id(c),
			.streams = c->state == CONN_STREAM,
			.blocked = c->blocked,
			.reserve = c->reserve,
		};
		fn(arg, &info);
	}
}

bool net_evict(struct net *n)
{
	struct conn *c;
	int looks = EVICT_LOOKS;
	DL_FOREACH2(n->idle, c, onext)
	{
		if (io_pending(c->fd) <= 0) { // else a request waits in it, and the end would be a reset
			conn_kill(c);
			return true;
		}
		if (--looks == 0)
			break;
	}
	return false;
}

// Room for one more: 0 and *RESERVE, or -EUSERS.
static int make_room(struct net *n, bool *reserve)
{
	*reserve = false;
	if (n->conn_count - n->reserve_count < n->limits.max_conns)
		return 0;
	if (net_evict(n))
		return 0;
	*reserve = true;
	if (n->reserve_count < NET_RESERVE)
		return 0;
	net_flush(n); // what those there have been answered is not to be lost
	if (n->reserve_count < NET_RESERVE)
		return 0;
	struct conn *c;
	DL_FOREACH2(n->reserve, c, onext)
	{
		if (c->state == CONN_HANDLER || c->state == CONN_STREAM)
			continue;
		conn_kill(c);
		return 0;
	}
	return -EUSERS;
}

int net_add_take(struct net *n, int fd, const struct route_table *table)
{
	bool reserve;
	int rc = make_room(n, &reserve);
	struct conn *c = rc ? NULL : conn_new(n, fd, table);
	if (table->counts && c)
		table->counts->accepted++;
	else if (table->counts)
		table->counts->refused++;
	if (!c) {
		io_close(&fd);
		return rc ? rc : -ENOMEM;
	}
	ev_init(&c->io, on_io);
	ev_init(&c->timer, on_timer);
	c->io.data = c;
	c->timer.data = c;
	DL_APPEND(n->conns, c);
	n->conn_count++;
	if (reserve) {
		c->reserve = true;
		DL_APPEND2(n->reserve, c, oprev, onext);
		n->reserve_count++;
	}
	conn_update(c);
	return 0;
}

// A request, or more of one, that nobody has read yet.
static bool unread(const struct conn *c)
{
	return c->state <= CONN_BODY && !c->eof && io_pending(c->fd) > 0;
}

void net_drain(struct net *n)
{
	n->draining = true;
	const struct err *refused = n->hooks.refuse ? n->hooks.refuse(n->hooks.arg) : NULL;
	struct conn *c, *next;
	DL_FOREACH_SAFE(n->conns, c, next)
	{
		if (c->state == CONN_IDLE && unread(c))
			continue; // it is read, and closes behind its answer
		if (c->idle) {
			conn_kill(c);
		} else if (c->state == CONN_BODY && refused) {
			conn_fail(c, refused, NULL); // the rest of the request would come too late
			conn_update(c);
		} else if (c->state == CONN_IDLE && buf_len(&c->in) == 0) {
			conn_enter(c, CONN_CLOSE);
			conn_dirty(c);
		}
	}
}

// Bytes that the peer's kernel has not acknowledged: they would be lost with our network. 0 where the socket cannot tell.
static bool unacknowledged(const struct conn *c)
{
	int left = 0;
	return c->state == CONN_CLOSE && ioctl(c->fd, SIOCOUTQ, &left) == 0 && left > 0;
}

bool net_drained(const struct net *n)
{
	const struct conn *c;
	DL_FOREACH(n->conns, c)
	{
		if (buf_len(&c->out) > 0 || c->state == CONN_HANDLER || c->state == CONN_STREAM || unacknowledged(c) ||
			unread(c))
			return false;
	}
	return true;
}
