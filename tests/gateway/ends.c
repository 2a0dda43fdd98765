// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/ends.h"

#include "proto/envelope.h"
#include "proto/frame.h"

#include <string.h>

static bool type_is(struct http_span type, const char *name)
{
	const char *end = type.n > 0 ? memchr(type.p, ';', type.n) : NULL;
	struct http_span bare = {type.p, end ? (size_t)(end - type.p) : type.n};
	return http_span_is_nocase(http_span_trim(bare), name);
}

enum ends_kind ends_kind_of(const struct http_head *head)
{
	struct http_span type = http_get(head, "Content-Type"), coding = http_get(head, "Content-Encoding");
	if (head->content_length >= 0 || (coding.n > 0 && !http_span_is_nocase(coding, "identity")))
		return ENDS_PLAIN;
	if (type_is(type, "application/connect+json") || type_is(type, "application/connect+proto"))
		return ENDS_CONNECT;
	return type_is(type, "text/event-stream") ? ENDS_EVENTS : ENDS_PLAIN;
}

void ends_init(struct ends *e, enum ends_kind kind)
{
	*e = (struct ends){.kind = kind};
	buf_init(&e->held, ENDS_HELD);
}

void ends_release(struct ends *e)
{
	buf_release(&e->held);
}

static void let_out(struct ends *e, struct buf *out)
{
	buf_append(out, buf_data(&e->held), buf_len(&e->held));
	buf_reset(&e->held);
}

// --- Connect ---

static uint64_t envelope_size(const unsigned char *prefix)
{
	uint64_t n = 0;
	for (unsigned i = 1; i < ENVELOPE_PREFIX; i++)
		n = n << 8 | prefix[i];
	return n + ENVELOPE_PREFIX;
}

// The bytes of the N at P that are whole envelopes, up to one that ends the stream.
static size_t whole_envelopes(struct ends *e, const unsigned char *p, size_t n)
{
	size_t at = 0;
	while (!e->complete && n - at >= ENVELOPE_PREFIX) {
		uint64_t size = envelope_size(p + at);
		if (size > n - at)
			break;
		e->complete = p[at] & ENVELOPE_END;
		at += (size_t)size;
	}
	return at;
}

// Takes bytes of the envelope that is held back or passing. Returns how many; 0: it is not begun yet.
static size_t continue_envelope(struct ends *e, struct buf *out, const unsigned char *p, size_t n)
{
	size_t have = buf_len(&e->held);
	if (e->inside) {
		size_t some = e->left < n ? (size_t)e->left : n;
		buf_append(out, p, some);
		e->left -= some;
		e->inside = e->left > 0;
		return some;
	}
	if (have == 0 && n >= ENVELOPE_PREFIX && envelope_size(p) > ENDS_HELD) {
		e->complete = p[0] & ENVELOPE_END;
		e->left = envelope_size(p);
		e->inside = true;
		return continue_envelope(e, out, p, n);
	}
	uint64_t want = have < ENVELOPE_PREFIX ? ENVELOPE_PREFIX : envelope_size(buf_data(&e->held));
	size_t some = want - have < n ? (size_t)(want - have) : n;
	buf_append(&e->held, p, some);
	have += some;
	if (buf_failed(&e->held) || have < ENVELOPE_PREFIX)
		return some;
	const unsigned char *held = buf_data(&e->held);
	want = envelope_size(held);
	if (have == want || want > ENDS_HELD) {
		e->complete = held[0] & ENVELOPE_END;
		e->left = want - have;
		e->inside = e->left > 0;
		let_out(e, out);
	}
	return some;
}

static void feed_connect(struct ends *e, struct buf *out, const unsigned char *p, size_t n)
{
	while (n > 0 && !buf_failed(&e->held)) {
		size_t used = 0;
		if (!e->inside && buf_len(&e->held) == 0) {
			used = whole_envelopes(e, p, n);
			if (e->complete)
				used = n; // nothing that follows means anything
			buf_append(out, p, used);
		}
		if (used == 0)
			used = continue_envelope(e, out, p, n);
		p += used;
		n -= used;
	}
}

// --- events ---

// Looks at one byte. True if the stream may end behind it: the line it ended was blank, or there were only comments.
static bool take_byte(struct ends *e, unsigned char c)
{
	if (c == '\n' && e->cr) {
		e->cr = false;
		return !e->event; // the rest of a CRLF
	}
	e->cr = c == '\r';
	if (c != '\r' && c != '\n') {
		if (!e->line)
			e->comment = c == ':';
		e->line = true;
		e->event |= !e->comment;
		return false;
	}
	if (!e->line)
		e->event = false;
	e->line = false;
	return !e->event;
}

static void feed_events(struct ends *e, struct buf *out, const unsigned char *p, size_t n)
{
	size_t good = 0; // of them are let out
	bool end = false;
	for (size_t i = 0; i < n; i++) {
		end = take_byte(e, p[i]);
		if (end)
			good = i + 1;
	}
	if (good > 0) {
		let_out(e, out);
		buf_append(out, p, good);
		e->inside = false;
	}
	if (good == n)
		return;
	if (!e->inside && buf_len(&e->held) + n - good > ENDS_HELD) {
		let_out(e, out);
		e->inside = true;
	}
	buf_append(e->inside ? out : &e->held, p + good, n - good);
}

// --- all ---

void ends_feed(struct ends *e, struct buf *out, const void *p, size_t n)
{
	if (n == 0 || buf_failed(&e->held))
		return;
	if (e->kind == ENDS_CONNECT && !(e->complete && !e->inside))
		feed_connect(e, out, p, n);
	else if (e->kind == ENDS_EVENTS)
		feed_events(e, out, p, n);
	else
		buf_append(out, p, n);
}

void ends_finish(struct ends *e, struct buf *out)
{
	let_out(e, out);
}

bool ends_cut(struct ends *e, struct buf *out, const struct err *why)
{
	bool failed = buf_failed(&e->held) || buf_failed(out);
	buf_reset(&e->held);
	if (e->kind == ENDS_PLAIN || e->inside || failed)
		return false;
	if (e->kind == ENDS_EVENTS)
		frame_sse_error(out, why);
	else if (!e->complete)
		envelope_last(out, why);
	return !buf_failed(out);
}
