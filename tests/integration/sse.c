// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/sse.h"
#include "proto/text.h"
#include "tests/integration/harness.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct sse {
	struct client *c;
	struct buf body; // not yet cut into frames
	struct frame_reader reader;
	bool attach; // a done frame is due
	bool pid_read;
	bool over;      // the body's end has been reached
	bool ended;     // an exit or error frame was read
	char what[128]; // for messages
};

static const char data_prefix[] = "data: ";
static const char keepalive[] = ": keepalive";

const char *sse_kind_name(enum sse_kind kind)
{
	static const char *const names[] = {
		"timeout", "pid", "data", "exit", "error", "watch", "done", "keepalive", "end of body", "cut"};
	return names[kind];
}

static void check_head(const struct sse *s)
{
	const struct http_head *h = http_head(s->c->http);
	struct http_span type = http_get(h, "Content-Type");
	if (h->status != 200)
		ck_abort_msg("%s: status %d, want a stream", s->what, h->status);
	ck_assert_msg(http_span_is(type, "text/event-stream"), "%s: Content-Type %.*s", s->what, (int)type.n, type.p);
	ck_assert_msg(http_has_token(h, "Cache-Control", "no-cache"), "%s: no Cache-Control: no-cache", s->what);
	ck_assert_msg(h->chunked || !h->keep_alive, "%s: the end of the stream cannot be told", s->what);
}

struct sse *sse_open_with(const struct testd *d, const char *target, const char *headers, const char *body, int rcvbuf)
{
	struct sse *s = calloc(1, sizeof *s);
	ck_assert_ptr_nonnull(s);
	(void)snprintf(s->what, sizeof s->what, "%s", target);
	s->attach = strncmp(target, "/exec/attach", 12) == 0;
	s->c = client_connect_rcvbuf(d, rcvbuf);
	frame_reader_init(&s->reader, 0);
	client_request(s->c, body ? "POST" : "GET", target, headers, body, body ? strlen(body) : 0);
	enum http_event ev = client_event(s->c, &s->body, h_now_ms() + h_scaled(CLIENT_DEADLINE));
	if (ev != HTTP_HEAD)
		ck_abort_msg("%s: no head of an answer (%s)", target, ev == HTTP_MORE ? "deadline" : "cut");
	check_head(s);
	return s;
}

struct sse *sse_open(const struct testd *d, const char *target, const char *body)
{
	return sse_open_with(d, target, NULL, body, 0);
}

struct sse *sse_open_pack(const struct testd *d, const char *target, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	char *body = client_pack(fmt, ap);
	va_end(ap);
	struct sse *s = sse_open(d, target, body);
	free(body);
	return s;
}

struct sse *sse_exec(const struct testd *d, const char *command)
{
	return sse_open_pack(d, "/exec/stream", "{s:s}", "command", command);
}

struct sse *sse_attach(const struct testd *d, int64_t pid)
{
	char target[64];
	(void)snprintf(target, sizeof target, "/exec/attach?pid=%lld", (long long)pid);
	return sse_open(d, target, NULL);
}

void sse_close(struct sse *s)
{
	if (!s)
		return;
	client_close(s->c);
	buf_release(&s->body);
	frame_reader_release(&s->reader);
	free(s);
}

struct client *sse_client(struct sse *s)
{
	return s->c;
}

void sse_event_release(struct sse_event *e)
{
	buf_release(&e->data);
	json_decref(e->obj);
	*e = (struct sse_event){0};
}

static void take_exit(struct sse_event *e, const char *payload)
{
	static const char first[] = "{\"exit\":";
	const json_t *o = e->obj;
	ck_assert_msg(strncmp(payload, first, sizeof first - 1) == 0, "\"exit\" is not the first key: %s", payload);
	e->kind = SSE_EXIT;
	e->code = j_int(o, "exit");
	if (j_has(o, "signal"))
		(void)snprintf(e->signal, sizeof e->signal, "%s", j_str(o, "signal"));
	e->timed_out = j_has(o, "timed_out") && j_bool(o, "timed_out");
	e->truncated = j_has(o, "truncated") && j_bool(o, "truncated");
}

static void take_data(struct sse_event *e)
{
	const char *name = j_str(e->obj, "channel");
	const char *b64 = j_str(e->obj, "data");
	int ch = 0;
	while (ch < FRAME_CHANNELS && strcmp(frame_channel_name((enum frame_channel)ch), name) != 0)
		ch++;
	ck_assert_msg(ch < FRAME_CHANNELS, "unknown channel %s", name);
	e->kind = SSE_DATA;
	e->channel = (enum frame_channel)ch;
	ck_assert_msg(text_b64_decode(&e->data, b64, strlen(b64)) == 0, "no base64: %.100s", b64);
}

// PAYLOAD is what stands behind "data: ", NUL-terminated.
static void take_payload(struct sse_event *e, const char *payload, size_t n)
{
	if (payload[0] != '{') {
		e->kind = SSE_DATA;
		e->channel = FRAME_PTY;
		e->bare = true;
		ck_assert_msg(text_b64_decode(&e->data, payload, n) == 0, "no base64: %.100s", payload);
		return;
	}
	json_error_t err;
	e->obj = json_loadb(payload, n, JSON_REJECT_DUPLICATES, &err);
	ck_assert_msg(json_is_object(e->obj), "frame is no JSON object (%s): %.300s", err.text, payload);
	if (j_has(e->obj, "channel")) {
		take_data(e);
	} else if (j_has(e->obj, "exit")) {
		take_exit(e, payload);
	} else if (j_has(e->obj, "error")) {
		e->kind = SSE_ERROR;
		(void)j_str(e->obj, "error");
		(void)j_str(e->obj, "code");
		(void)j_bool(e->obj, "retryable");
	} else if (j_has(e->obj, "done")) {
		ck_assert_str_eq(payload, "{\"done\":true}");
		e->kind = SSE_DONE;
	} else if (!j_has(e->obj, "pid")) {
		e->kind = SSE_WATCH;
	} else {
		e->kind = SSE_PID;
		e->pid = j_int(e->obj, "pid");
		ck_assert_msg(e->pid > 0 && json_object_size(e->obj) == 1, "pid frame %s", payload);
	}
}

// One frame of N bytes, its two newlines included.
static void take_frame(struct sse *s, struct sse_event *e, const char *p, size_t n)
{
	const struct buf *seen = NULL;
	size_t used = 0;
	size_t len = n - 2;
	for (size_t i = 0; i < len; i++)
		if (p[i] < ' ' || p[i] > '~')
			ck_abort_msg(
				"byte %02x in a frame: %.*s", (unsigned char)p[i], (int)(len < 300 ? len : 300), p);
	int rc = frame_reader_feed(&s->reader, p, n, &used, &seen);
	if (len == sizeof keepalive - 1 && memcmp(p, keepalive, len) == 0) {
		ck_assert_msg(rc == 0, "the reader takes a comment for an event");
		e->kind = SSE_KEEPALIVE;
		return;
	}
	size_t skip = sizeof data_prefix - 1;
	if (len <= skip || memcmp(p, data_prefix, skip) != 0)
		ck_abort_msg("not a frame: %.*s", (int)(len < 300 ? len : 300), p);
	ck_assert_msg(rc == 1 && used == n && buf_len(seen) == len - skip &&
			      memcmp(buf_data(seen), p + skip, len - skip) == 0,
		"proto/frame reads this frame otherwise: %.*s", (int)(len < 300 ? len : 300), p);
	char *payload = calloc(1, len - skip + 1); // not strndup: strict_string_checks wants a NUL behind the source
	ck_assert_ptr_nonnull(payload);
	memcpy(payload, p + skip, len - skip);
	take_payload(e, payload, len - skip);
	free(payload);
}

// Cuts one frame off the body's front: false if there is no whole one.
static bool cut_frame(struct sse *s, struct sse_event *e)
{
	const char *p = (const char *)buf_data(&s->body);
	const char *end = memmem(p, buf_len(&s->body), "\n\n", 2);
	if (!end)
		return false;
	size_t n = (size_t)(end - p) + 2;
	take_frame(s, e, p, n);
	buf_consume(&s->body, n);
	return true;
}

enum sse_kind sse_next(struct sse *s, struct sse_event *e, int64_t ms)
{
	int64_t deadline = h_now_ms() + h_scaled(ms);
	sse_event_release(e);
	while (!cut_frame(s, e)) {
		enum http_event ev = s->over ? HTTP_END : client_event(s->c, &s->body, deadline);
		if (ev == HTTP_MORE)
			return e->kind = SSE_TIMEOUT;
		if (ev == HTTP_BODY)
			continue;
		s->over = ev == HTTP_END;
		if (s->over && buf_len(&s->body) > 0 && !memmem(buf_data(&s->body), buf_len(&s->body), "\n\n", 2))
			ck_abort_msg("%s: the body ends in half a frame: %s", s->what, buf_cstr(&s->body));
		e->kind = s->over ? SSE_END : SSE_CUT;
		break;
	}
	s->pid_read = s->pid_read || e->kind == SSE_PID;
	s->ended = s->ended || e->kind == SSE_EXIT || e->kind == SSE_ERROR;
	e->at = h_now_ms();
	return e->kind;
}

void sse_expect(struct sse *s, struct sse_event *e, enum sse_kind kind, int64_t ms)
{
	int64_t end = h_now_ms() + h_scaled(ms);
	do {
		int64_t left = (int64_t)((double)(end - h_now_ms()) / h_scale());
		(void)sse_next(s, e, left > 0 ? left : 0);
	} while (e->kind == SSE_KEEPALIVE);
	if (e->kind == kind)
		return;
	ck_abort_msg("%s: %s, want %s within %lld ms: %.300s", s->what, sse_kind_name(e->kind), sse_kind_name(kind),
		(long long)ms, j_text(e->obj));
}

int64_t sse_pid(struct sse *s)
{
	struct sse_event e = {0};
	sse_expect(s, &e, SSE_PID, CLIENT_DEADLINE);
	int64_t pid = e.pid;
	sse_event_release(&e);
	return pid;
}

void sse_until(struct sse *s, enum frame_channel ch, const char *text, struct buf *out, int64_t ms)
{
	struct sse_event e = {0};
	struct buf own = {0};
	int64_t end = h_now_ms() + h_scaled(ms);
	while (!memmem(buf_data(&own), buf_len(&own), text, strlen(text))) {
		int64_t left = (int64_t)((double)(end - h_now_ms()) / h_scale());
		enum sse_kind kind = sse_next(s, &e, left > 0 ? left : 0);
		if (kind == SSE_TIMEOUT || kind == SSE_END || kind == SSE_CUT || kind == SSE_EXIT || kind == SSE_ERROR)
			ck_abort_msg("%s: %s before \"%s\" came; so far: %s", s->what, sse_kind_name(kind), text,
				buf_cstr(&own));
		if (kind == SSE_DATA && e.channel == ch)
			buf_append(&own, buf_data(&e.data), buf_len(&e.data));
	}
	if (out)
		buf_append(out, buf_data(&own), buf_len(&own));
	sse_event_release(&e);
	buf_release(&own);
}

static void collect_data(struct sse_out *o, const struct sse_event *e, const char *what)
{
	ck_assert_msg(buf_len(&e->data) > 0 && buf_len(&e->data) <= FRAME_RAW_MAX, "%s: a data frame of %zu bytes",
		what, buf_len(&e->data));
	buf_append(&o->ch[e->channel], buf_data(&e->data), buf_len(&e->data));
	ck_assert_int_eq(buf_failed(&o->ch[e->channel]), 0);
	if (o->frames++ == 0)
		o->first_data = e->at;
}

// What may follow what; E is consumed.
static void collect_one(struct sse *s, struct sse_out *o, struct sse_event *e, bool had_pid, bool had_end)
{
	enum sse_kind k = e->kind;
	bool end_frame = k == SSE_EXIT || k == SSE_ERROR;
	if (k == SSE_KEEPALIVE) {
		ck_assert_msg(!had_end, "%s: keepalive behind the end", s->what);
		o->keepalives++;
		return;
	}
	ck_assert_msg(had_pid == (k != SSE_PID), "%s: %s frame, but pid %s", s->what, sse_kind_name(k),
		had_pid ? "came before" : "has not come");
	ck_assert_msg(!had_end || k == SSE_DONE, "%s: %s frame behind the end frame", s->what, sse_kind_name(k));
	ck_assert_msg(k != SSE_DONE || (s->attach && had_end && !o->done), "%s: done frame out of place", s->what);
	if (k == SSE_PID)
		o->pid = e->pid;
	if (k == SSE_DATA)
		collect_data(o, e, s->what);
	o->done = o->done || k == SSE_DONE;
	if (end_frame) {
		o->end = *e;
		*e = (struct sse_event){0};
	}
}

void sse_collect(struct sse *s, struct sse_out *o, int64_t ms)
{
	struct sse_event e = {0};
	int64_t deadline = h_now_ms() + h_scaled(ms);
	for (;;) {
		bool had_pid = s->pid_read;
		bool had_end = s->ended;
		int64_t left = (int64_t)((double)(deadline - h_now_ms()) / h_scale());
		enum sse_kind k = sse_next(s, &e, left > 0 ? left : 0);
		if (k == SSE_TIMEOUT || k == SSE_CUT)
			ck_abort_msg("%s: %s after %zu data frames (stdout %zu, stderr %zu bytes), end frame: %s",
				s->what, sse_kind_name(k), o->frames, buf_len(&o->ch[FRAME_STDOUT]),
				buf_len(&o->ch[FRAME_STDERR]), had_end ? "yes" : "no");
		if (k == SSE_END)
			break;
		collect_one(s, o, &e, had_pid, had_end);
	}
	ck_assert_msg(s->ended, "%s: the body ended without an exit or error frame", s->what);
	ck_assert_msg(o->done == s->attach, "%s: done frame %s", s->what, o->done ? "unasked" : "missing");
	sse_event_release(&e);
}

void sse_out_release(struct sse_out *o)
{
	for (size_t i = 0; i < FRAME_CHANNELS; i++)
		buf_release(&o->ch[i]);
	sse_event_release(&o->end);
	*o = (struct sse_out){0};
}

void sse_run(const struct testd *d, const char *command, int64_t code, struct sse_out *o)
{
	struct sse *s = sse_exec(d, command);
	sse_out_release(o);
	sse_collect(s, o, CLIENT_DEADLINE);
	sse_close(s);
	ck_assert_msg(o->end.kind == SSE_EXIT && o->end.code == code && o->end.signal[0] == '\0',
		"%s: ended with %s %lld %s, want exit %lld", command, sse_kind_name(o->end.kind),
		(long long)o->end.code, o->end.signal, (long long)code);
}
