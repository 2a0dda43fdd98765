// SPDX-License-Identifier: Apache-2.0
#include "tests/demo/client.h"

#include "proto/text.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define LIMIT_US ((int64_t)10000000)
#define READ_MAX ((size_t)64 * 1024)

int64_t client_now_us(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000 + ts.tv_nsec / 1000;
}

int client_scale(void)
{
	const char *v = getenv("T_SCALE");
	int n = v ? atoi(v) : 1;
	return n < 1 ? 1 : n;
}

int client_open(struct client *c, int port)
{
	static const struct http_limits limits = {.head = 65536, .headers = 100, .overhead = SIZE_MAX / 2};
	const struct sockaddr_in to = {
		.sin_family = AF_INET,
		.sin_port = htons((uint16_t)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int one = 1;
	*c = (struct client){.limit_us = LIMIT_US * client_scale()};
	frame_reader_init(&c->frames, 1 << 20);
	c->http = http_new(HTTP_RESPONSE, &limits);
	c->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!c->http || c->fd < 0)
		return -ENOMEM;
	setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	return connect(c->fd, (const struct sockaddr *)&to, sizeof to) < 0 ? -errno : 0;
}

void client_close(struct client *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	http_free(c->http);
	c->http = NULL;
	buf_release(&c->in);
	buf_release(&c->body);
	frame_reader_release(&c->frames);
	json_decref(c->doc);
	c->doc = NULL;
}

// 0 once the socket is ready for EVENTS, -ETIMEDOUT at END.
static int wait_for(const struct client *c, short events, int64_t end)
{
	struct pollfd p = {.fd = c->fd, .events = events};
	for (;;) {
		int64_t ms = (end - client_now_us() + 999) / 1000;
		int n = poll(&p, 1, ms < 0 ? 0 : (int)ms);
		if (n > 0)
			return 0;
		if (n == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

int client_send_bytes(struct client *c, const struct buf *out)
{
	int64_t end = client_now_us() + c->limit_us;
	const unsigned char *p = buf_data(out);
	size_t n = buf_len(out);
	while (n > 0) {
		ssize_t sent = send(c->fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
		if (sent > 0) {
			p += sent;
			n -= (size_t)sent;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		int rc = wait_for(c, POLLOUT, end);
		if (rc < 0)
			return rc;
	}
	return 0;
}

int client_send(struct client *c, const char *method, const char *target, const char *json)
{
	struct buf out = {0};
	http_put_request(&out, method, target);
	http_put_header(&out, "Host", "127.0.0.1");
	if (c->extra)
		buf_str(&out, c->extra);
	if (json) {
		http_put_header(&out, "Content-Type", "application/json");
		http_put_length(&out, strlen(json));
	}
	http_put_end(&out);
	if (json)
		buf_str(&out, json);
	int rc = buf_failed(&out) ? buf_failed(&out) : client_send_bytes(c, &out);
	buf_release(&out);
	return rc;
}

// More bytes into c->in: their number, 0 at the end, negative errno.
static int fill(struct client *c, int64_t end)
{
	int rc = wait_for(c, POLLIN, end);
	unsigned char *room = rc < 0 ? NULL : buf_reserve(&c->in, READ_MAX);
	if (!room)
		return rc < 0 ? rc : buf_failed(&c->in);
	ssize_t n = recv(c->fd, room, READ_MAX, 0);
	buf_commit(&c->in, n > 0 ? (size_t)n : 0);
	return n < 0 ? -errno : (int)n;
}

// Parses up to the next event but HTTP_MORE; body bytes go to c->body. The event, or negative errno.
static int next_event(struct client *c, int64_t end)
{
	for (;;) {
		size_t used = 0;
		struct http_span body = {0};
		enum http_event ev = http_feed(c->http, (const char *)buf_data(&c->in), buf_len(&c->in), &used, &body);
		if (ev == HTTP_BODY)
			buf_append(&c->body, body.p, body.n);
		buf_consume(&c->in, used);
		if (buf_failed(&c->body))
			return buf_failed(&c->body);
		if (ev == HTTP_ERROR)
			return -EPROTO;
		if (ev != HTTP_MORE)
			return (int)ev;
		int n = fill(c, end);
		if (n < 0)
			return n;
		if (n == 0)
			return http_eof(c->http) == HTTP_END ? (int)HTTP_END : -ECONNRESET;
	}
}

static int read_head(struct client *c, int64_t end)
{
	buf_reset(&c->body);
	json_decref(c->doc);
	c->doc = NULL;
	c->over = false;
	int ev = next_event(c, end);
	return ev < 0 ? ev : http_head(c->http)->status;
}

static int read_rest(struct client *c, int64_t end)
{
	int ev;
	do {
		ev = next_event(c, end);
	} while (ev >= 0 && ev != HTTP_END);
	if (ev < 0)
		return ev;
	c->over = true;
	http_next(c->http);
	c->doc = json_loadb((const char *)buf_data(&c->body), buf_len(&c->body), JSON_ALLOW_NUL, NULL);
	return 0;
}

int client_answer(struct client *c)
{
	int64_t end = client_now_us() + c->limit_us;
	int status = read_head(c, end);
	int rc = status < 0 ? status : read_rest(c, end);
	return rc < 0 ? rc : status;
}

int client_answer_stream(struct client *c)
{
	int64_t end = client_now_us() + c->limit_us;
	int status = read_head(c, end);
	int rc = status < 0 || status == 200 ? status : read_rest(c, end);
	return rc < 0 ? rc : status;
}

int client_more(struct client *c)
{
	if (c->over)
		return 0;
	int ev = next_event(c, client_now_us() + c->limit_us);
	if (ev < 0)
		return ev;
	c->over = ev == HTTP_END;
	if (c->over)
		http_next(c->http);
	return !c->over;
}

int client_get(struct client *c, const char *target)
{
	int rc = client_send(c, "GET", target, NULL);
	return rc < 0 ? rc : client_answer(c);
}

int client_get_stream(struct client *c, const char *target)
{
	int rc = client_send(c, "GET", target, NULL);
	return rc < 0 ? rc : client_answer_stream(c);
}

static int dump_into(const char *p, size_t n, void *out)
{
	buf_append(out, p, n);
	return buf_failed(out);
}

static int post(struct client *c, const char *target, const char *fmt, va_list ap)
{
	struct buf text = {0};
	json_t *doc = json_vpack_ex(NULL, 0, fmt, ap);
	int rc = doc && json_dump_callback(doc, dump_into, &text, JSON_COMPACT) == 0 ? 0 : -EINVAL;
	const char *json = rc == 0 ? buf_cstr(&text) : NULL;
	if (rc == 0)
		rc = json ? client_send(c, "POST", target, json) : -ENOMEM;
	buf_release(&text);
	json_decref(doc);
	return rc;
}

int client_post(struct client *c, const char *target, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int rc = post(c, target, fmt, ap);
	va_end(ap);
	return rc < 0 ? rc : client_answer(c);
}

int client_post_stream(struct client *c, const char *target, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	int rc = post(c, target, fmt, ap);
	va_end(ap);
	return rc < 0 ? rc : client_answer_stream(c);
}

static int decode_data(struct event *e, const json_t *doc)
{
	const char *name = json_string_value(json_object_get(doc, "channel"));
	const json_t *data = json_object_get(doc, "data");
	e->kind = EVENT_DATA;
	for (int i = 0; name && i < FRAME_CHANNELS; i++) {
		if (strcmp(name, frame_channel_name((enum frame_channel)i)) != 0)
			continue;
		e->channel = (enum frame_channel)i;
		int rc = json_is_string(data)
				 ? text_b64_decode(&e->data, json_string_value(data), json_string_length(data))
				 : -EINVAL;
		return rc < 0 ? -EPROTO : 1;
	}
	return -EPROTO;
}

static int decode(struct event *e, const json_t *doc)
{
	const json_t *pid = json_object_get(doc, "pid");
	const json_t *code = json_object_get(doc, "exit");
	const char *sig = json_string_value(json_object_get(doc, "signal"));
	if (json_object_get(doc, "channel"))
		return decode_data(e, doc);
	if (json_is_integer(pid)) {
		e->kind = EVENT_PID;
		e->pid = (int)json_integer_value(pid);
	} else if (json_is_integer(code)) {
		e->kind = EVENT_EXIT;
		e->code = (int)json_integer_value(code);
		snprintf(e->signal, sizeof e->signal, "%s", sig ? sig : "");
		e->timed_out = json_is_true(json_object_get(doc, "timed_out"));
	} else if (json_object_get(doc, "error")) {
		e->kind = EVENT_ERROR;
	} else if (json_is_true(json_object_get(doc, "done"))) {
		e->kind = EVENT_DONE;
	} else {
		return -EPROTO;
	}
	return 1;
}

int client_event(struct client *c, struct event *e)
{
	int64_t end = client_now_us() + c->limit_us;
	event_release(e);
	for (;;) {
		const struct buf *ev = NULL;
		size_t used = 0;
		int rc = frame_reader_feed(&c->frames, buf_data(&c->body), buf_len(&c->body), &used, &ev);
		buf_consume(&c->body, used);
		if (rc < 0)
			return rc;
		if (rc == 1) {
			json_t *doc = json_loadb((const char *)buf_data(ev), buf_len(ev), 0, NULL);
			snprintf(e->text, sizeof e->text, "%.*s", (int)buf_len(ev), (const char *)buf_data(ev));
			rc = decode(e, doc);
			json_decref(doc);
			return rc;
		}
		if (c->over)
			return 0;
		rc = next_event(c, end);
		if (rc < 0)
			return rc;
		c->over = rc == HTTP_END;
		if (c->over)
			http_next(c->http);
	}
}

void event_release(struct event *e)
{
	buf_release(&e->data);
	*e = (struct event){0};
}
