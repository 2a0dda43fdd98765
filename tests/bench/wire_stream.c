// SPDX-License-Identifier: Apache-2.0
// Streams: server-sent events of surface A, envelopes of surface B.
#include "proto/text.h"
#include "tests/bench/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define READ_MAX ((size_t)64 * 1024)

int wire_stream_send(struct wire *w, const char *command)
{
	struct buf out = {0};
	wire_put_command(&out, w->surface, w->auth, true, command);
	int rc = buf_failed(&out);
	if (rc == 0)
		rc = client_send_bytes(&w->c, &out);
	buf_release(&out);
	return rc;
}

int wire_stream_head(struct wire *w)
{
	int status = client_answer_stream(&w->c);
	buf_reset(&w->body);
	w->over = false;
	envelope_reader_release(&w->envs);
	envelope_reader_init(&w->envs, 1 << 20, false);
	return status == 200 ? 0 : status < 0 ? status : -EPROTO;
}

int wire_stream_open(struct wire *w, const char *command)
{
	int rc = wire_stream_send(w, command);
	return rc < 0 ? rc : wire_stream_head(w);
}

// Gives N bytes of an answer to the parser, and the body bytes among them to TAKE: 1 at the answer's end, 0, or negative errno.
static int feed(struct wire *w, const char *p, size_t n, void (*take)(void *arg, const char *p, size_t n), void *arg)
{
	enum http_event ev = HTTP_HEAD;
	// Until it wants more, also without bytes: the end of a counted body comes without any.
	while (ev != HTTP_MORE) {
		size_t used = 0;
		struct http_span body = {0};
		ev = http_feed(w->c.http, p, n, &used, &body);
		p += used;
		n -= used;
		if (ev == HTTP_BODY)
			take(arg, body.p, body.n);
		if (ev == HTTP_ERROR)
			return -EPROTO;
		if (ev == HTTP_END) {
			http_next(w->c.http);
			return 1;
		}
	}
	return 0;
}

// What came with the head, then one read into PIECE; as feed.
static int pump(struct wire *w, char *piece, size_t room, void (*take)(void *arg, const char *p, size_t n), void *arg)
{
	if (buf_len(&w->c.in)) {
		int rc = feed(w, (const char *)buf_data(&w->c.in), buf_len(&w->c.in), take, arg);
		buf_reset(&w->c.in);
		return rc;
	}
	ssize_t n = recv(w->c.fd, piece, room, 0);
	w->at_ns = bench_now_ns();
	if (n > 0)
		return feed(w, piece, (size_t)n, take, arg);
	if (n < 0)
		return -errno;
	return http_eof(w->c.http) == HTTP_END ? 1 : -ECONNRESET;
}

int wire_drain(struct wire *w, void (*take)(void *arg, const char *p, size_t n), void *arg)
{
	char *piece = malloc(READ_MAX);
	int rc = piece ? 0 : -ENOMEM;
	while (rc == 0)
		rc = pump(w, piece, READ_MAX, take, arg);
	free(piece);
	return rc < 0 ? rc : 0;
}

// --- events ---

// The string behind KEY in the N bytes at P: its length, or -1. Nothing in it is escaped: it is base64.
static ssize_t string_behind(const char *p, size_t n, const char *key, const char **s)
{
	const char *at = memmem(p, n, key, strlen(key));
	if (!at)
		return -1;
	*s = at + strlen(key);
	const char *end = memchr(*s, '"', (size_t)(p + n - *s));
	return end ? end - *s : -1;
}

static int number(const char *p, size_t n, const char *key, int otherwise)
{
	const char *at = memmem(p, n, key, strlen(key));
	return at ? atoi(at + strlen(key)) : otherwise;
}

// One message: 1, or -EPROTO. A NUL is behind it.
static int decode(enum surface surface, struct wire_event *e, const char *p, size_t n)
{
	static const char *const keys[][4] = {
		[SURFACE_A] = {"\"data\":\"", "{\"pid\":", "{\"exit\":", NULL},
		[SURFACE_B] = {"{\"data\":{\"stdout\":\"", "{\"start\":{\"pid\":", "\"exitCode\":", "{\"end\":{"},
	};
	const char *const *key = keys[surface];
	const char *s = NULL;
	ssize_t len = string_behind(p, n, key[0], &s);
	if (len >= 0) {
		e->kind = WIRE_DATA;
		return text_b64_decode(&e->data, s, (size_t)len) < 0 ? -EPROTO : 1;
	}
	e->pid = number(p, n, key[1], 0);
	if (e->pid > 0) {
		e->kind = WIRE_STARTED;
		return 1;
	}
	e->kind = WIRE_ENDED;
	e->code = number(p, n, key[2], key[3] && memmem(p, n, "\"exited\":true", 13) ? 0 : -1);
	return memmem(p, n, key[3] ? key[3] : key[2], strlen(key[3] ? key[3] : key[2])) ? 1 : -EPROTO;
}

// From the body's bytes that are there: 1, 0 if they are no whole event, or negative errno.
static int next(struct wire *w, struct wire_event *e)
{
	struct err err = {0};
	const struct buf *message = &w->envs.payload;
	size_t used = 0;
	int rc = w->surface == SURFACE_A
			 ? frame_reader_feed(&w->frames, buf_data(&w->body), buf_len(&w->body), &used, &message)
			 : envelope_reader_feed(&w->envs, buf_data(&w->body), buf_len(&w->body), &used, &err);
	buf_consume(&w->body, used);
	if (rc <= 0)
		return rc < 0 ? -EPROTO : 0;
	struct buf *text = &w->c.body;
	buf_reset(text);
	buf_append(text, buf_data(message), buf_len(message));
	const char *s = buf_cstr(text);
	return s ? decode(w->surface, e, s, buf_len(text)) : -ENOMEM;
}

static void keep(void *arg, const char *p, size_t n)
{
	buf_append(arg, p, n);
}

int wire_event(struct wire *w, struct wire_event *e)
{
	char piece[16384];
	wire_event_release(e);
	for (;;) {
		int rc = next(w, e);
		if (rc != 0)
			return rc;
		// Surface B's body ends with its end frame, or something was lost.
		if (w->over)
			return w->surface == SURFACE_A || w->envs.ended ? 0 : -EPROTO;
		rc = pump(w, piece, sizeof piece, keep, &w->body);
		if (rc < 0 || buf_failed(&w->body))
			return rc < 0 ? rc : buf_failed(&w->body);
		w->over = rc == 1;
	}
}

void wire_event_release(struct wire_event *e)
{
	buf_release(&e->data);
	*e = (struct wire_event){0};
}
