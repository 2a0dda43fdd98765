// SPDX-License-Identifier: Apache-2.0
#include "netkit.h"

#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

// ck_assert allocates even when all is well.
static void must(bool ok, const char *what)
{
	if (!ok)
		ck_abort_msg("%s", what);
}

// --- routes ---

static void reply_text(struct conn *c, const char *text)
{
	struct buf b;
	buf_init(&b, 0);
	buf_str(&b, text);
	conn_reply(c, 200, "text/plain", NULL, &b);
	buf_release(&b);
}

static void on_ready(void *ctx, struct conn *c)
{
	((struct kit *)ev_userdata(conn_loop(c)))->handled++;
	(void)ctx;
	reply_text(c, "ok");
}

static void on_echo(void *ctx, struct conn *c)
{
	((struct kit *)ev_userdata(conn_loop(c)))->handled++;
	(void)ctx;
	conn_reply(c, 200, "text/plain", "X-Extra: 1\r\n", conn_body(c));
}

static void on_empty(void *ctx, struct conn *c)
{
	(void)ctx;
	conn_reply(c, 204, "text/plain", NULL, NULL);
}

static void on_broken(void *ctx, struct conn *c)
{
	(void)ctx;
	struct buf b;
	buf_init(&b, 1);
	buf_str(&b, "too long");
	conn_reply(c, 200, "text/plain", NULL, &b);
	buf_release(&b);
}

static void on_fault(void *ctx, struct conn *c)
{
	(void)ctx;
	struct err e;
	err_sys(&e, -EACCES, "open");
	conn_error(c, &e);
}

static void held_cut(void *arg)
{
	struct kit *k = arg;
	k->cut++;
}

static void on_later(void *ctx, struct conn *c)
{
	(void)ctx;
	struct kit *k = ev_userdata(conn_loop(c));
	k->handled++;
	must(k->held_count < sizeof(k->held) / sizeof(k->held[0]), "too many held");
	k->held[k->held_count++] = c;
	conn_on_close(c, held_cut, k);
}

void kit_answer(struct kit *k, const char *body)
{
	must(k->held_count > 0, "none held");
	struct conn *c = k->held[0];
	k->held_count--;
	memmove(k->held, k->held + 1, k->held_count * sizeof(k->held[0]));
	reply_text(c, body);
}

static enum conn_pull pull(void *arg, struct buf *out, size_t room)
{
	struct kit_source *s = arg;
	if (s->dry > 0) {
		s->dry--;
		return CONN_PULL_MORE;
	}
	s->room_max = room > s->room_max ? room : s->room_max;
	s->room_min = room < s->room_min || s->room_min == 0 ? room : s->room_min;
	size_t n = s->piece > 0 && s->piece < room ? s->piece : room;
	if (n > s->left)
		n = (size_t)s->left;
	for (size_t i = 0; i < n; i++)
		buf_byte(out, (unsigned char)('0' + s->made++ % 10));
	s->left -= n;
	return s->left > 0 ? CONN_PULL_MORE : s->last;
}

static void pull_closed(void *arg)
{
	struct kit_source *s = arg;
	s->closed++;
	s->conn = NULL;
}

static void begin(struct conn *c, struct kit_source *s)
{
	static const struct conn_producer producer = {pull, pull_closed};
	if (conn_stream(c, "text/event-stream", "Cache-Control: no-cache\r\n", &producer, s))
		s->conn = c;
}

static void on_stream(void *ctx, struct conn *c)
{
	(void)ctx;
	begin(c, &((struct kit *)ev_userdata(conn_loop(c)))->source[0]);
}

static void on_stream2(void *ctx, struct conn *c)
{
	(void)ctx;
	begin(c, &((struct kit *)ev_userdata(conn_loop(c)))->source[1]);
}

// Takes its time, as starting a command does.
static void on_slow(void *ctx, struct conn *c)
{
	(void)ctx;
	struct kit *k = ev_userdata(conn_loop(c));
	k->handled++;
	for (double end = kit_time() + 0.001; kit_time() < end;)
		;
	conn_reply(c, 200, NULL, NULL, NULL);
}

static const struct route routes[] = {
	{ROUTE_GET, "/slow", on_slow, ROUTE_OPEN},
	{ROUTE_GET, "/ready", on_ready, ROUTE_OPEN | ROUTE_VITAL},
	{ROUTE_GET, "/plain", on_ready, ROUTE_OPEN},
	{ROUTE_GET | ROUTE_POST, "/secret", on_ready, 0},
	{ROUTE_POST, "/echo", on_echo, ROUTE_OPEN},
	{ROUTE_GET, "/empty", on_empty, ROUTE_OPEN},
	{ROUTE_GET, "/broken", on_broken, ROUTE_OPEN},
	{ROUTE_GET, "/fault", on_fault, ROUTE_OPEN},
	{ROUTE_GET, "/later", on_later, ROUTE_OPEN},
	{ROUTE_GET, "/vital-later", on_later, ROUTE_OPEN | ROUTE_VITAL},
	{ROUTE_GET, "/stream", on_stream, ROUTE_OPEN},
	{ROUTE_GET, "/stream2", on_stream2, ROUTE_OPEN},
};

static void error_body(struct buf *out, const struct err *e)
{
	buf_printf(out, "{\"error\":\"%s\",\"retryable\":%s}", e->msg, e->retryable ? "true" : "false");
}

const struct route_table kit_table = {
	.routes = routes,
	.count = sizeof(routes) / sizeof(routes[0]),
	.error_type = "application/json",
	.error_body = error_body,
};

const struct net_limits kit_limits = {
	.max_body = 4096,
	.max_header = 2048,
	.max_conns = 100,
	.header_timeout = 20,
	.idle_timeout = 100,
	.send_timeout = 60,
	.out_max = 64 * 1024,
};

// --- the set ---

static const struct err *refuse(void *arg)
{
	struct kit *k = arg;
	return k->refusing ? &k->refusal : NULL;
}

static bool allowed(void *arg, const struct http_head *head)
{
	struct kit *k = arg;
	return !k->locked || http_span_is(http_get(head, "x-access-token"), "right");
}

static bool init(struct kit *k, struct ev_loop *loop, const struct net_limits *limits, bool tell)
{
	memset(k, 0, sizeof(*k));
	k->loop = loop;
	ev_set_userdata(loop, k);
	struct net_hooks hooks = {k, refuse, allowed, tell};
	k->net = net_new(loop, limits, &hooks);
	return k->net;
}

bool kit_init_on(struct kit *k, struct ev_loop *loop, const struct net_limits *limits)
{
	return init(k, loop, limits, false);
}

void kit_init_telling(struct kit *k, const struct net_limits *limits)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_NOENV);
	ck_assert_ptr_nonnull(loop);
	ck_assert(init(k, loop, limits, true));
}

void kit_init(struct kit *k, const struct net_limits *limits)
{
	struct ev_loop *loop = ev_loop_new(EVFLAG_NOENV);
	ck_assert_ptr_nonnull(loop);
	ck_assert(kit_init_on(k, loop, limits));
}

void kit_release(struct kit *k)
{
	net_free(k->net);
	ev_loop_destroy(k->loop);
}

// --- clients ---

static void tcp_pair(int fds[2])
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t n = sizeof(a);
	int l = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(l, (struct sockaddr *)&a, n), 0);
	ck_assert_int_eq(listen(l, 1), 0);
	ck_assert_int_eq(getsockname(l, (struct sockaddr *)&a, &n), 0);
	fds[1] = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(connect(fds[1], (struct sockaddr *)&a, n), 0);
	fds[0] = accept4(l, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	ck_assert_int_ge(fds[0], 0);
	close(l);
}

int kit_try(struct kit *k, struct kit_client *c, enum kit_mode mode)
{
	int fds[2];
	if (mode == KIT_TCP)
		tcp_pair(fds);
	else
		must(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0, "socketpair");
	for (int i = 0; i < 2; i++)
		must(fcntl(fds[i], F_SETFL, O_NONBLOCK) == 0, "fcntl");
	c->fd = fds[1];
	kit_forget(c);
	c->total = 0;
	c->eof = false;
	c->error = 0;
	return net_add_take(k->net, fds[0], &kit_table);
}

void kit_open(struct kit *k, struct kit_client *c, enum kit_mode mode)
{
	ck_assert_int_eq(kit_try(k, c, mode), 0);
}

void kit_close(struct kit_client *c)
{
	close(c->fd);
	c->fd = -1;
}

static void take(struct kit_client *c)
{
	char piece[16 * 1024];
	ssize_t n = read(c->fd, piece, sizeof(piece));
	if (n == 0) {
		c->eof = true;
	} else if (n < 0) {
		c->error = errno == EAGAIN ? 0 : errno;
		c->eof = c->error != 0;
	} else {
		size_t room = KIT_GOT - 1 - c->n, keep = (size_t)n < room ? (size_t)n : room;
		memcpy(c->got + c->n, piece, keep);
		c->n += keep;
		c->got[c->n] = '\0';
		c->total += (uint64_t)n;
	}
}

void kit_turn(struct kit *k, struct kit_client *c)
{
	ev_run(k->loop, EVRUN_NOWAIT);
	ev_run(k->loop, EVRUN_NOWAIT);
	struct pollfd p = {c && !c->eof ? c->fd : -1, POLLIN, 0};
	if (poll(&p, 1, 1) > 0)
		take(c);
}

size_t kit_send(struct kit *k, struct kit_client *c, const void *p, size_t n)
{
	double end = kit_time() + 10;
	size_t at = 0;
	while (at < n) {
		ssize_t rc = send(c->fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
		if (rc < 0 && errno != EAGAIN)
			break;
		at += rc > 0 ? (size_t)rc : 0;
		ck_assert_msg(kit_time() < end, "peer takes no bytes");
		ev_run(k->loop, EVRUN_NOWAIT);
	}
	return at;
}

void kit_say(struct kit *k, struct kit_client *c, const char *text)
{
	ck_assert_uint_eq(kit_send(k, c, text, strlen(text)), strlen(text));
}

void kit_turns_for(struct kit *k, struct kit_client *c, double seconds)
{
	for (double end = kit_time() + seconds; kit_time() < end;)
		kit_turn(k, c);
}

double kit_time(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

void kit_forget(struct kit_client *c)
{
	c->n = 0;
	c->got[0] = '\0';
}

bool kit_has(const struct kit_client *c, const char *text)
{
	return strstr(c->got, text);
}

size_t kit_times(const struct kit_client *c, const char *text)
{
	size_t times = 0;
	for (const char *p = c->got; (p = strstr(p, text)); p++)
		times++;
	return times;
}
