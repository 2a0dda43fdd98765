// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/daemon/peer.h"

#include "daemon/io.h"
#include "proto/json.h"
#include "tests/fuzz/daemon/fake.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PIECES_MAX 200 // of input, then it comes whole

static const struct http_limits limits = {.head = 64 * 1024, .headers = 256, .overhead = 64 * 1024};

static uint32_t roll(struct peer *p)
{
	p->dice = p->dice * 1664525u + 1013904223u;
	return p->dice >> 16;
}

// --- the daemon reads ---

static void note_asked(struct peer *p, const char *s, size_t n)
{
	size_t at = 0;
	while (!p->asked_bad) {
		size_t used = 0;
		struct http_span body;
		enum http_event ev = http_feed(p->asked, s + at, n - at, &used, &body);
		at += used;
		if (ev == HTTP_MORE)
			return;
		if (ev == HTTP_HEAD) {
			FUZZ_CHECK(p->heads < PEER_REQUESTS);
			p->head[p->heads++] = http_span_is(http_head(p->asked)->method, "HEAD");
		} else if (ev == HTTP_END) {
			p->whole++;
			http_next(p->asked);
		}
		p->asked_bad = ev == HTTP_ERROR;
	}
}

static ssize_t give(void *arg, void *to, size_t n)
{
	struct peer *p = arg;
	size_t have = buf_len(&p->in);
	if (p->reset)
		return -ECONNRESET;
	if (!have)
		return p->eof ? 0 : -EAGAIN;
	if (n > have)
		n = have;
	if (p->cut && p->pieces++ < PIECES_MAX) {
		size_t piece = p->cut < 8 ? p->cut : 1 + roll(p) % (p->cut * 4);
		n = piece < n ? piece : n;
	}
	memcpy(to, buf_data(&p->in), n);
	buf_consume(&p->in, n);
	note_asked(p, to, n);
	return (ssize_t)n;
}

static ssize_t left(void *arg)
{
	const struct peer *p = arg;
	return (ssize_t)buf_len(&p->in);
}

// --- the daemon writes ---

static void answer_begins(struct peer *p)
{
	const struct http_head *h = http_head(p->told);
	if (h->status / 100 == 1)
		return;
	FUZZ_CHECK(h->status >= 200 && h->status < 600 && h->minor == 1);
	p->last = !h->keep_alive;
	// One that is not asked for is about what could not be read as a request, and the last one.
	FUZZ_CHECK(p->answers < p->heads || p->last);
	p->answering = true;
	p->json = h->status >= 400 && !p->head[p->answers];
	buf_reset(&p->body);
}

static void answer_ends(struct peer *p)
{
	if (p->answering && p->json && buf_len(&p->body) < PEER_BODY) {
		struct err e;
		json_t *doc = jsonr_parse(buf_data(&p->body), buf_len(&p->body), &e);
		FUZZ_CHECK(doc && json_is_object(doc));
		jsonr_free(doc);
	}
	p->answers += p->answering;
	p->over |= p->answering && p->last;
	p->answering = false;
	http_next(p->told);
}

static void note_told(struct peer *p, const char *s, size_t n)
{
	size_t at = 0;
	for (;;) {
		size_t used = 0;
		struct http_span body;
		FUZZ_CHECK(at == n || !p->over);
		if (http_idle(p->told) && at < n && p->answers < p->heads && p->head[p->answers])
			http_expect_no_body(p->told);
		enum http_event ev = http_feed(p->told, s + at, n - at, &used, &body);
		at += used;
		FUZZ_CHECK(ev != HTTP_ERROR);
		if (ev == HTTP_MORE)
			return;
		if (ev == HTTP_HEAD)
			answer_begins(p);
		else if (ev == HTTP_BODY && p->json && buf_len(&p->body) < PEER_BODY)
			buf_append(&p->body, body.p, body.n);
		else if (ev == HTTP_END)
			answer_ends(p);
	}
}

static ssize_t take(void *arg, const void *from, size_t n)
{
	struct peer *p = arg;
	FUZZ_CHECK(!p->shut && !p->closed);
	if (p->reset)
		return -EPIPE;
	if (p->stalled || (p->put >= 8 && roll(p) % 4 == 0))
		return -EAGAIN;
	if (p->put && n) {
		size_t piece = p->put < 8 ? p->put * 16 : 1 + roll(p) % (p->put * 8);
		n = piece < n ? piece : n;
	}
	note_told(p, from, n);
	return (ssize_t)n;
}

// --- the end ---

// An answer without a length ends here. A cut one is one that the daemon could not finish: then it says so with a reset or without the
// last chunk, which is what the client sees.
static void told_all(struct peer *p)
{
	if (p->over)
		return;
	if (p->answering && http_eof(p->told) == HTTP_END)
		answer_ends(p);
	p->over = true;
}

static void on_shut(void *arg)
{
	struct peer *p = arg;
	p->shut = true;
	told_all(p);
}

static void on_closed(void *arg)
{
	struct peer *p = arg;
	p->closed = true;
	told_all(p);
}

void peer_ending(struct peer *p)
{
	p->streamed = p->answering;
	p->put = 0;
}

void peer_settled(const struct peer *p)
{
	if (p->reset)
		return;
	FUZZ_CHECK(!p->answering && http_idle(p->told));
	FUZZ_CHECK(p->answers >= p->whole || p->last || p->streamed);
	FUZZ_CHECK(p->answers <= p->heads + 1);
}

int peer_open(struct peer *p, unsigned cut, unsigned put)
{
	int fds[2];
	memset(p, 0, sizeof *p);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
		return -errno;
	p->fd = fds[0];
	p->far = fds[1];
	p->cut = cut;
	p->put = put;
	p->dice = cut * 256 + put;
	p->asked = http_new(HTTP_REQUEST, &limits);
	p->told = http_new(HTTP_RESPONSE, &limits);
	FUZZ_CHECK(p->asked && p->told && send(p->far, "", 1, MSG_NOSIGNAL) == 1);
	const struct fake_fd f = {p->fd, p, give, take, left, on_shut, on_closed};
	fake_fd(&f);
	return 0;
}

void peer_say(struct peer *p, const void *bytes, size_t n)
{
	if (!p->eof && !p->reset)
		buf_append(&p->in, bytes, n);
}

void peer_reset(struct peer *p)
{
	p->reset = true;
	io_close(&p->far); // a look at the socket sees it too
}

void peer_close(struct peer *p)
{
	io_close(&p->far);
	http_free(p->asked);
	http_free(p->told);
	buf_release(&p->in);
	buf_release(&p->body);
}
