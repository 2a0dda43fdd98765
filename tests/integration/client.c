// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/client.h"
#include "tests/integration/harness.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static const struct http_limits limits = {.head = 1 << 20, .headers = 1000, .overhead = SIZE_MAX / 2};

// Milliseconds until END for poll: never negative.
static int left(int64_t end)
{
	int64_t ms = end - h_now_ms();
	return ms < 0 ? 0 : ms > 1000000 ? 1000000 : (int)ms;
}

static int open_unix(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	(void)snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		ck_abort_msg("connect %s: %s", path, strerror(errno));
	ck_assert_int_ge(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	return fd;
}

static int open_socket(const char *host, int port, int rcvbuf)
{
	if (*host == '/')
		return open_unix(host);
	char service[16];
	struct addrinfo hints = {.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
	struct addrinfo *ai = NULL;
	(void)snprintf(service, sizeof service, "%d", port);
	if (getaddrinfo(host, service, &hints, &ai) != 0)
		ck_abort_msg("bad address %s port %d", host, port);
	int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	if (rcvbuf > 0)
		ck_assert_int_eq(setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &rcvbuf, sizeof rcvbuf), 0);
	if (connect(fd, ai->ai_addr, ai->ai_addrlen) < 0)
		ck_abort_msg("connect %s port %d: %s", host, port, strerror(errno));
	freeaddrinfo(ai);
	ck_assert_int_ge(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	return fd;
}

struct client *client_connect_to(const char *host, int port, int rcvbuf)
{
	struct client *c = calloc(1, sizeof *c);
	ck_assert_ptr_nonnull(c);
	c->fd = open_socket(host, port, rcvbuf);
	c->deadline = CLIENT_DEADLINE;
	c->http = http_new(HTTP_RESPONSE, &limits);
	ck_assert_ptr_nonnull(c->http);
	return c;
}

struct client *client_connect_rcvbuf(const struct testd *d, int rcvbuf)
{
	return client_connect_to(d->host, d->port, rcvbuf);
}

struct client *client_connect(const struct testd *d)
{
	return client_connect_rcvbuf(d, 0);
}

void client_close(struct client *c)
{
	if (!c)
		return;
	(void)close(c->fd);
	http_free(c->http);
	buf_release(&c->in);
	free(c);
}

void client_abort(struct client *c)
{
	const struct linger off = {.l_onoff = 1, .l_linger = 0};
	ck_assert_int_eq(setsockopt(c->fd, SOL_SOCKET, SO_LINGER, &off, sizeof off), 0);
	client_close(c);
}

bool client_send_raw(struct client *c, const void *p, size_t n)
{
	const char *at = p;
	int64_t end = h_now_ms() + h_scaled(c->deadline);
	while (n > 0) {
		ssize_t sent = send(c->fd, at, n, MSG_NOSIGNAL);
		if (sent > 0) {
			at += sent;
			n -= (size_t)sent;
			end = h_now_ms() + h_scaled(c->deadline);
			continue;
		}
		if (errno == EPIPE || errno == ECONNRESET) {
			c->eof = true;
			c->reset = c->reset || errno == ECONNRESET;
			return false;
		}
		ck_assert_msg(errno == EAGAIN || errno == EINTR, "send: %s", strerror(errno));
		struct pollfd f = {c->fd, POLLOUT, 0};
		if (poll(&f, 1, left(end)) == 0)
			return false;
	}
	return true;
}

bool client_send_str(struct client *c, const char *s)
{
	return client_send_raw(c, s, strlen(s));
}

void client_shutdown_write(struct client *c)
{
	ck_assert_int_eq(shutdown(c->fd, SHUT_WR), 0);
}

void client_request(
	struct client *c, const char *method, const char *target, const char *headers, const void *body, size_t n)
{
	struct buf out = {0};
	http_put_request(&out, method, target);
	http_put_header(&out, "Host", "127.0.0.1");
	if (body) {
		http_put_header(&out, "Content-Type", "application/json");
		http_put_length(&out, n);
	}
	if (headers)
		buf_str(&out, headers);
	http_put_end(&out);
	if (body)
		buf_append(&out, body, n);
	ck_assert_int_eq(buf_failed(&out), 0);
	if (!client_send_raw(c, buf_data(&out), buf_len(&out)))
		ck_abort_msg("%s %s: the request could not be sent whole", method, target);
	buf_release(&out);
}

static ssize_t fill_until(struct client *c, int64_t end)
{
	char part[64 * 1024];
	if (c->eof)
		return 0;
	for (;;) {
		ssize_t n = recv(c->fd, part, sizeof part, 0);
		if (n > 0) {
			buf_append(&c->in, part, (size_t)n);
			ck_assert_int_eq(buf_failed(&c->in), 0);
			return n;
		}
		if (n == 0 || errno == ECONNRESET || errno == EPIPE) {
			c->eof = true;
			c->reset = n < 0;
			return 0;
		}
		ck_assert_msg(errno == EAGAIN || errno == EINTR, "recv: %s", strerror(errno));
		struct pollfd f = {c->fd, POLLIN, 0};
		if (poll(&f, 1, left(end)) == 0)
			return -1;
	}
}

ssize_t client_fill(struct client *c, int64_t ms)
{
	return fill_until(c, h_now_ms() + h_scaled(ms));
}

static void add_header(json_t *headers, const struct http_header *h)
{
	char name[256];
	size_t n = h->name.n < sizeof name - 1 ? h->name.n : sizeof name - 1;
	for (size_t i = 0; i < n; i++)
		name[i] = (char)tolower((unsigned char)h->name.p[i]);
	name[n] = '\0';
	const char *old = json_string_value(json_object_get(headers, name));
	json_t *value =
		old ? json_sprintf("%s, %.*s", old, (int)h->value.n, h->value.p) : json_stringn(h->value.p, h->value.n);
	ck_assert_int_eq(json_object_set_new(headers, name, value), 0);
}

static void take_head(struct resp *r, const struct http_head *head)
{
	r->status = head->status;
	r->chunked = head->chunked;
	r->keep_alive = head->keep_alive;
	r->headers = json_object();
	ck_assert_ptr_nonnull(r->headers);
	for (size_t i = 0; i < head->header_count; i++)
		add_header(r->headers, &head->headers[i]);
}

enum http_event client_event(struct client *c, struct buf *body, int64_t end)
{
	for (;;) {
		size_t used = 0;
		struct http_span span = {0};
		const char *in = (const char *)buf_data(&c->in);
		enum http_event ev = http_feed(c->http, in, buf_len(&c->in), &used, &span);
		if (ev == HTTP_BODY)
			buf_append(body, span.p, span.n);
		ck_assert_int_eq(buf_failed(body), 0);
		buf_consume(&c->in, used);
		if (ev != HTTP_MORE)
			return ev;
		if (c->eof) {
			ev = c->reset ? HTTP_ERROR : http_eof(c->http);
			return ev == HTTP_END ? HTTP_END : HTTP_ERROR;
		}
		if (fill_until(c, end) < 0)
			return HTTP_MORE;
	}
}

// One whole answer behind any 1xx ones; HTTP_END, or what kept it from being whole.
static enum http_event read_response(struct client *c, struct resp *r, bool head_only)
{
	int64_t end = h_now_ms() + h_scaled(c->deadline);
	resp_release(r);
	if (head_only)
		http_expect_no_body(c->http);
	for (;;) {
		enum http_event ev = client_event(c, &r->body, end);
		if (ev == HTTP_HEAD && http_head(c->http)->status >= 200)
			take_head(r, http_head(c->http));
		if (ev == HTTP_END)
			http_next(c->http);
		if (ev == HTTP_MORE || ev == HTTP_ERROR || (ev == HTTP_END && r->headers))
			return ev;
	}
}

static void must_respond(struct client *c, struct resp *r, bool head_only)
{
	enum http_event ev = read_response(c, r, head_only);
	if (ev == HTTP_MORE)
		ck_abort_msg("no whole answer within %lld ms", (long long)c->deadline);
	if (ev != HTTP_END)
		ck_abort_msg("the connection %s (status %d, %zu bytes of body): %s",
			c->reset ? "was reset"
			: c->eof ? "ended in an answer"
				 : "carries no HTTP",
			r->status, buf_len(&r->body), c->eof ? "cut" : http_error(c->http)->msg);
}

void client_response(struct client *c, struct resp *r)
{
	must_respond(c, r, false);
}

void client_response_head(struct client *c, struct resp *r)
{
	must_respond(c, r, true);
}

bool client_try_response(struct client *c, struct resp *r)
{
	return read_response(c, r, false) == HTTP_END;
}

bool client_wait_eof(struct client *c, int64_t ms)
{
	return buf_len(&c->in) == 0 && client_fill(c, ms) == 0;
}

bool client_silent(struct client *c, int64_t ms)
{
	return buf_len(&c->in) == 0 && client_fill(c, ms) < 0;
}

static void req_bytes(
	const struct testd *d, const char *method, const char *target, const char *body, size_t n, struct resp *r)
{
	struct client *c = client_connect(d);
	client_request(c, method, target, NULL, body, n);
	client_response(c, r);
	client_close(c);
}

void req(const struct testd *d, const char *method, const char *target, const char *body, struct resp *r)
{
	req_bytes(d, method, target, body, body ? strlen(body) : 0, r);
}

char *client_pack(const char *fmt, va_list ap)
{
	json_error_t e;
	json_t *j = json_vpack_ex(&e, 0, fmt, ap);
	if (!j)
		ck_abort_msg("json_pack %s: %s", fmt, e.text);
	char *text = j_text(j);
	json_decref(j);
	return text;
}

void req_pack(const struct testd *d, const char *method, const char *target, struct resp *r, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	char *body = client_pack(fmt, ap);
	va_end(ap);
	req(d, method, target, body, r);
	free(body);
}

json_t *run(const struct testd *d, const char *command, struct resp *r)
{
	req_pack(d, "POST", "/exec", r, "{s:s}", "command", command);
	if (r->status != 200)
		ck_abort_msg("/exec %s: status %d %s", command, r->status, buf_cstr(&r->body));
	return resp_json(r);
}

void resp_release(struct resp *r)
{
	json_decref(r->headers);
	json_decref(r->json);
	buf_release(&r->body);
	*r = (struct resp){0};
}

const char *resp_header(const struct resp *r, const char *name)
{
	char key[256];
	size_t n = strlen(name);
	ck_assert_uint_lt(n, sizeof key);
	for (size_t i = 0; i <= n; i++)
		key[i] = (char)tolower((unsigned char)name[i]);
	return json_string_value(json_object_get(r->headers, key));
}

json_t *resp_json(struct resp *r)
{
	if (r->json)
		return r->json;
	const char *type = resp_header(r, "Content-Type");
	ck_assert_msg(type && strncmp(type, "application/json", 16) == 0, "Content-Type %s", type ? type : "absent");
	json_error_t e;
	r->json = json_loadb(
		(const char *)buf_data(&r->body), buf_len(&r->body), JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &e);
	if (!json_is_object(r->json))
		ck_abort_msg("status %d: no JSON object (%s): %.300s", r->status, e.text, buf_cstr(&r->body));
	return r->json;
}

json_t *assert_error(struct resp *r, int status, const char *code)
{
	static const char *const success[] = {"ok", "exit_code", "stdout", "content", "size", "terminal_id", "pid",
		"watcher_id", "processes", "files", "events", "output"};
	if (r->status != status)
		ck_abort_msg("status %d, want %d: %.300s", r->status, status, buf_cstr(&r->body));
	json_t *o = resp_json(r);
	ck_assert_str_ne(j_str(o, "error"), "");
	(void)j_bool(o, "retryable");
	ck_assert_str_ne(j_str(o, "code"), "");
	if (code)
		ck_assert_str_eq(j_str(o, "code"), code);
	if (j_has(o, "errno"))
		ck_assert_int_eq(j_str(o, "errno")[0], 'E');
	for (size_t i = 0; i < sizeof success / sizeof success[0]; i++)
		ck_assert_msg(!j_has(o, success[i]), "an error body with the success key \"%s\"", success[i]);
	return o;
}
