// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/http_client.h"
#include "daemon/config.h"
#include "daemon/io.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define READ_MAX ((size_t)64 * 1024)
#define POLL_MAX_MS 60000
#define BODY_MAX ((size_t)1024 * 1024 * 1024)
// Of an answer that is an error.
#define ERROR_MAX ((size_t)1024 * 1024)
#define INTERIM_MAX 32
// What a call gets to end in once nobody wants it any more.
#define STOP_NS 1000000000ll

static const char lost_reason[] = "connection";

bool http_client_lost(const struct err *e)
{
	return e->reason == lost_reason;
}

static int lost(const struct http_client *c, struct err *e, const char *what)
{
	err_set(e, ERR_UNAVAILABLE, "%s: %s", c->target->name, what);
	e->reason = lost_reason;
	return -1;
}

static int out_of_memory(struct err *e)
{
	return err_sys(e, -ENOMEM, "connection");
}

void http_client_init(struct http_client *c, const struct target *target)
{
	*c = (struct http_client){.target = target, .fd = -1, .stop_fd = -1, .limit_ms = HTTP_CLIENT_LIMIT_MS};
	buf_init(&c->body, BODY_MAX);
}

static void hang_up(struct http_client *c)
{
	io_close(&c->fd);
	http_free(c->http);
	c->http = NULL;
	buf_reset(&c->out);
	buf_reset(&c->in);
	c->eof = false;
	c->busy = false;
}

void http_client_release(struct http_client *c)
{
	hang_up(c);
	buf_release(&c->out);
	buf_release(&c->in);
	buf_release(&c->body);
}

// --- the connection ---

// Somebody who has vanished is to be noticed, however quiet the command.
static void tune(int fd)
{
	const int one = 1, idle = 30, every = 10, times = 3;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
	setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

static int wait_fd(struct http_client *c, short events, int64_t end, struct err *e)
{
	struct pollfd p[2] = {{.fd = c->fd, .events = events}, {.fd = c->stop_fd, .events = POLLIN}};
	for (;;) {
		int64_t by = c->stop_by && c->stop_by < end ? c->stop_by : end;
		int64_t ms = (by - io_mono_ns() + 999999) / 1000000;
		int n = poll(p, c->stop_by ? 1 : 2, ms < 0 ? 0 : ms > POLL_MAX_MS ? POLL_MAX_MS : (int)ms);
		if (n > 0 && p[0].revents)
			return 0;
		if (n > 0)
			c->stop_by = io_mono_ns() + STOP_NS;
		if (n == 0 && ms <= 0)
			return lost(c, e, strerror(ETIMEDOUT));
		if (n < 0 && errno != EINTR)
			return lost(c, e, strerror(errno));
	}
}

static int connect_now(struct http_client *c, struct err *e)
{
	const struct target *t = c->target;
	int failure = 0;
	socklen_t n = sizeof failure;
	c->fd = socket(t->addr.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (c->fd < 0)
		return lost(c, e, strerror(errno));
	if (t->addr.any.sa_family != AF_UNIX)
		tune(c->fd);
	if (IO_AGAIN(connect(c->fd, &t->addr.any, t->len)) == 0 || errno == EISCONN)
		return 0;
	if (errno != EINPROGRESS && errno != EALREADY)
		return lost(c, e, strerror(errno));
	if (wait_fd(c, POLLOUT, io_mono_ns() + c->limit_ms * 1000000, e) < 0)
		return -1;
	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &failure, &n) < 0 || failure)
		return lost(c, e, strerror(failure ? failure : errno));
	return 0;
}

// A connection that has been idle may have been closed by the other side: what is sent on it would be lost.
static bool usable(const struct http_client *c)
{
	char byte;
	if (c->fd < 0 || c->busy || c->eof || buf_len(&c->in) > 0)
		return false;
	return IO_AGAIN(recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT)) < 0 && errno == EAGAIN;
}

static int ensure(struct http_client *c, struct err *e)
{
	static const struct http_limits limits = {.head = 65536, .headers = 100, .overhead = SIZE_MAX / 2};
	if (usable(c)) {
		http_next(c->http);
		return 0;
	}
	hang_up(c);
	c->http = http_new(HTTP_RESPONSE, &limits);
	if (!c->http)
		return out_of_memory(e);
	if (connect_now(c, e) == 0)
		return 0;
	hang_up(c);
	return -1;
}

// --- one exchange ---

int http_client_begin(
	struct http_client *c, const char *method, const char *path, const struct buf *json, struct err *e)
{
	if (json && buf_failed(json))
		return out_of_memory(e);
	c->stop_by = 0;
	if (ensure(c, e) < 0)
		return -1;
	c->interim = 0;
	buf_reset(&c->body);
	http_put_request(&c->out, method, path);
	http_put_header(&c->out, "Host", c->target->host);
	http_put_header(&c->out, "User-Agent", "celld-ctl/" CONFIG_VERSION);
	if (c->target->token[0])
		http_put_header(&c->out, "X-Access-Token", c->target->token);
	if (json) {
		http_put_header(&c->out, "Content-Type", "application/json");
		http_put_length(&c->out, buf_len(json));
	}
	http_put_end(&c->out);
	if (json)
		buf_append(&c->out, buf_data(json), buf_len(json));
	if (buf_failed(&c->out)) {
		hang_up(c);
		return out_of_memory(e);
	}
	c->busy = true;
	return 0;
}

short http_client_interest(const struct http_client *c)
{
	return (short)(POLLIN | (buf_len(&c->out) > 0 ? POLLOUT : 0));
}

int http_client_status(const struct http_client *c)
{
	return http_head(c->http)->status;
}

// A daemon that refuses a body answers before it has all of it: what cannot be sent is left to the answer.
static void flush(struct http_client *c)
{
	while (buf_len(&c->out) > 0) {
		ssize_t n = io_send(c->fd, buf_data(&c->out), buf_len(&c->out));
		if (n == -EAGAIN)
			return;
		if (n < 0)
			buf_reset(&c->out);
		else
			buf_consume(&c->out, (size_t)n);
	}
	buf_shrink(&c->out, READ_MAX);
}

// More bytes: 1, 0 if there are none yet, -1 with E filled.
static int fill(struct http_client *c, struct err *e)
{
	unsigned char *room = buf_reserve(&c->in, READ_MAX);
	if (!room)
		return out_of_memory(e);
	ssize_t n = io_read(c->fd, room, READ_MAX);
	buf_commit(&c->in, n > 0 ? (size_t)n : 0);
	if (n == -EAGAIN)
		return 0;
	if (n < 0)
		return lost(c, e, strerror((int)-n));
	c->eof = n == 0;
	return 1;
}

static enum http_client_event ended(struct http_client *c)
{
	bool again = http_head(c->http)->keep_alive && !c->eof && buf_len(&c->out) == 0;
	c->busy = false;
	c->eof |= !again;
	return HTTP_CLIENT_END;
}

// A proxy's "wait" or "this will follow" is not the answer yet. (Nobody asked to switch protocols: that one is.)
static bool is_interim(struct http_client *c, enum http_event *ev)
{
	int status = *ev == HTTP_HEAD || *ev == HTTP_END ? http_client_status(c) : 0;
	if (status / 100 != 1 || status == 101)
		return false;
	if (*ev == HTTP_END)
		http_next(c->http);
	if (++c->interim > INTERIM_MAX)
		*ev = HTTP_ERROR;
	return *ev != HTTP_ERROR;
}

static enum http_event feed(struct http_client *c)
{
	enum http_event ev;
	do {
		size_t used = 0;
		struct http_span body = {0};
		ev = http_feed(c->http, (const char *)buf_data(&c->in), buf_len(&c->in), &used, &body);
		if (ev == HTTP_BODY)
			buf_append(&c->body, body.p, body.n);
		buf_consume(&c->in, used);
	} while (is_interim(c, &ev));
	return ev;
}

// What is parsed of c->in; WAIT if that is not enough for an event.
static enum http_client_event parse(struct http_client *c, struct err *e)
{
	enum http_event ev = feed(c);
	if (buf_failed(&c->body)) {
		err_sys(e, buf_failed(&c->body), "answer");
		return HTTP_CLIENT_FAILED;
	}
	if (ev == HTTP_BODY && buf_len(&c->body) > ERROR_MAX && http_client_status(c) != 200) {
		int status = http_client_status(c);
		err_http(e, status, ERR_UNKNOWN, "HTTP %d %s", status, err_phrase(status));
		return HTTP_CLIENT_FAILED;
	}
	switch (ev) {
	case HTTP_HEAD:
		return HTTP_CLIENT_HEAD;
	case HTTP_BODY:
		return HTTP_CLIENT_BODY;
	case HTTP_END:
		return ended(c);
	case HTTP_ERROR:
		lost(c, e, "what answers there does not speak HTTP/1.1");
		return HTTP_CLIENT_FAILED;
	default:
		return HTTP_CLIENT_WAIT;
	}
}

enum http_client_event http_client_step(struct http_client *c, struct err *e)
{
	flush(c);
	for (;;) {
		enum http_client_event ev = parse(c, e);
		if (ev != HTTP_CLIENT_WAIT)
			return ev;
		if (c->eof && http_eof(c->http) == HTTP_END)
			return ended(c);
		if (c->eof)
			lost(c, e, "the connection was closed");
		int rc = c->eof ? -1 : fill(c, e);
		if (rc <= 0)
			return rc < 0 ? HTTP_CLIENT_FAILED : HTTP_CLIENT_WAIT;
	}
}

int http_client_wait(struct http_client *c, int64_t end, struct err *e)
{
	return wait_fd(c, http_client_interest(c), end, e);
}

enum err_code http_client_code(const char *word)
{
	enum err_code code = word ? err_from_word(word, strlen(word)) : ERR_UNKNOWN;
	return code == ERR_NONE ? ERR_UNKNOWN : code;
}

void http_client_error(struct http_client *c, struct err *e)
{
	const char *text = NULL, *word = NULL, *name = NULL;
	int status = http_client_status(c);
	json_t *doc = jsonr_parse(buf_data(&c->body), buf_len(&c->body), e);
	if (!doc || jsonr_str(doc, "error", 0, &text, NULL, e) <= 0 || jsonr_str(doc, "code", 0, &word, NULL, e) <= 0) {
		err_http(e, status, ERR_UNKNOWN, "HTTP %d %s", status, err_phrase(status));
	} else {
		err_http(e, status, http_client_code(word), "%s", text);
		(void)jsonr_bool(doc, "retryable", 0, &e->retryable, e);
		if (jsonr_str(doc, "errno", 0, &name, NULL, e) > 0)
			for (int sys = 1; sys < 134 && !e->sys; sys++) {
				const char *known = err_errno_name(sys);
				e->sys = known && strcmp(known, name) == 0 ? sys : 0;
			}
	}
	jsonr_free(doc);
}

// The object that has come.
static json_t *take_object(struct http_client *c, struct err *e)
{
	json_t *doc = jsonr_parse_trusted(buf_data(&c->body), buf_len(&c->body), e);
	if (!doc && e->code == ERR_INVALID_ARGUMENT) // it is not the request that was wrong
		err_set(e, ERR_INTERNAL, "%s: the answer is no JSON object", c->target->name);
	return doc;
}

json_t *http_client_call(
	struct http_client *c, const char *method, const char *path, const struct buf *json, struct err *e)
{
	int64_t end = io_mono_ns() + c->limit_ms * 1000000;
	enum http_client_event ev;
	json_t *doc = NULL;
	int status = 0;
	if (http_client_begin(c, method, path, json, e) < 0)
		return NULL;
	do {
		ev = http_client_step(c, e);
		if (ev == HTTP_CLIENT_HEAD)
			status = http_client_status(c);
		if (ev == HTTP_CLIENT_WAIT && http_client_wait(c, end, e) < 0)
			ev = HTTP_CLIENT_FAILED;
		if (ev == HTTP_CLIENT_BODY && io_mono_ns() >= end) { // one without an end never makes us wait
			lost(c, e, strerror(ETIMEDOUT));
			ev = HTTP_CLIENT_FAILED;
		}
	} while (ev != HTTP_CLIENT_END && ev != HTTP_CLIENT_FAILED);
	if (ev == HTTP_CLIENT_END && status == 200)
		doc = take_object(c, e);
	else if (ev == HTTP_CLIENT_END)
		http_client_error(c, e);
	if (ev != HTTP_CLIENT_END)
		hang_up(c);
	return doc;
}
