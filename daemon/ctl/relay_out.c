// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/ctl_priv.h"
#include "daemon/ctl/relay_priv.h"
#include "daemon/io.h"
#include "proto/text.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

// Bytes that wait for a reader here before the stream has to wait.
#define PENDING_MAX ((size_t)256 * 1024)
// What is read at once: a stream that is faster than we are must not keep signals waiting.
#define STEPS_MAX 32

// --- sinks ---

bool relay_pending(const struct relay *r)
{
	return buf_len(&r->sinks[0].pending) > 0 || buf_len(&r->sinks[1].pending) > 0;
}

bool relay_has_room(const struct relay *r)
{
	return buf_len(&r->sinks[0].pending) < PENDING_MAX && buf_len(&r->sinks[1].pending) < PENDING_MAX;
}

static void sink_breaks(struct relay *r, struct sink *s, int sys)
{
	s->broken = true;
	buf_reset(&s->pending);
	if (!r->end->write_error)
		r->end->write_error = sys;
	if (r->spec->kind != RELAY_COMMAND) {
		r->end->cut_by = SIGPIPE;
	} else if (!r->pressed) {
		r->pressed = io_mono_ns();
	}
	r->signals |= 1ull << (SIGPIPE - 1);
}

// A pipe or a terminal that poll calls writable takes PIPE_BUF bytes without waiting, whoever shares it.
void relay_flush(struct relay *r, struct sink *s)
{
	while (buf_len(&s->pending) > 0) {
		size_t n = buf_len(&s->pending);
		ssize_t done = io_write(s->fd, buf_data(&s->pending), s->plain || n < PIPE_BUF ? n : PIPE_BUF);
		if (done == -EAGAIN)
			return;
		if (done < 0) {
			sink_breaks(r, s, (int)-done);
			return;
		}
		buf_consume(&s->pending, (size_t)done);
		if (!s->plain)
			return;
	}
}

// Lines as they are, else nothing that moves a cursor. (A character may be cut at the end: what it could become is not known.)
static void put_safe(struct buf *out, const char *p, size_t n)
{
	while (n > 0) {
		const char *end = memchr(p, '\n', n);
		size_t line = end ? (size_t)(end - p) : n;
		bool cut = !end && (unsigned char)p[n - 1] == 0xc2;
		ctl_put_shown(out, p, line - cut);
		if (end || cut)
			buf_byte(out, end ? '\n' : '?');
		p += line + !!end;
		n -= line + !!end;
	}
}

static int sink_put(struct relay *r, struct sink *s, const void *p, size_t n, struct err *e)
{
	r->out_bytes += n;
	if (s->fd < 0)
		return 0;
	if (s->broken) { // as a writer of a broken pipe gets it: with each write
		sink_breaks(r, s, EPIPE);
		return 0;
	}
	if (s->safe)
		put_safe(&s->pending, p, n);
	else
		buf_append(&s->pending, p, n);
	if (buf_failed(&s->pending))
		return err_sys(e, buf_failed(&s->pending), "output");
	if (s->plain)
		relay_flush(r, s);
	return 0;
}

// --- frames ---

static int malformed(struct err *e)
{
	return err_set(e, ERR_INTERNAL, "a frame of the stream is not understood");
}

static int take_data(struct relay *r, struct sink *s, const char *text, size_t n, struct err *e)
{
	struct buf raw;
	buf_init(&raw, 0);
	int rc = text_b64_decode(&raw, text, n);
	rc = rc < 0 ? malformed(e) : sink_put(r, s, buf_data(&raw), buf_len(&raw), e);
	buf_release(&raw);
	return rc;
}

static int take_channel(struct relay *r, const json_t *doc, const char *channel, struct err *e)
{
	const char *data;
	size_t n;
	if (jsonr_str(doc, "data", 0, &data, &n, e) <= 0)
		return malformed(e);
	bool other = strcmp(channel, frame_channel_name(FRAME_STDERR)) == 0;
	return r->spec->frames ? 0 : take_data(r, &r->sinks[other], data, n, e);
}

static int signal_number(const char *name)
{
	long long number;
	if (strncmp(name, "SIG", 3) != 0)
		return 0;
	if (text_int(name + 3, strlen(name + 3), 1, NSIG - 1, &number) == 0)
		return (int)number;
	if (strcmp(name, "SIGIO") == 0) // libc's name for it is POLL
		return SIGIO;
	for (int sig = 1; sig < NSIG; sig++) {
		const char *known = sigabbrev_np(sig);
		if (known && strcmp(known, name + 3) == 0)
			return sig;
	}
	return 0;
}

static int take_exit(struct relay *r, const json_t *doc, int64_t code, struct err *e)
{
	const char *name = "";
	r->over = true;
	r->end->code = (int)code;
	if (jsonr_str(doc, "signal", 0, &name, NULL, e) < 0 ||
		jsonr_bool(doc, "timed_out", 0, &r->end->timed_out, e) < 0 ||
		jsonr_bool(doc, "truncated", 0, &r->end->truncated, e) < 0)
		return -1;
	r->end->sig = signal_number(name);
	return 0;
}

// Instead of the exit: the sandbox ends, the daemon is replaced.
static int take_error(const json_t *doc, const char *text, struct err *e)
{
	const char *word = NULL;
	(void)jsonr_str(doc, "code", 0, &word, NULL, e);
	return err_set(e, http_client_code(word), "%s", text);
}

static int take_object(struct relay *r, const json_t *doc, struct err *e)
{
	const char *text;
	int64_t n;
	if (jsonr_str(doc, "channel", 0, &text, NULL, e) > 0)
		return take_channel(r, doc, text, e);
	if (jsonr_int(doc, "pid", 0, 1, INT32_MAX, &n, e) > 0) {
		r->pid = n;
		r->begun = true;
		return 0;
	}
	if (jsonr_int(doc, "exit", 0, INT32_MIN, INT32_MAX, &n, e) > 0)
		return take_exit(r, doc, n, e);
	if (jsonr_str(doc, "error", 0, &text, NULL, e) > 0)
		return take_error(doc, text, e);
	return 0; // of a later version
}

// A data frame as daemons write it needs no tree for its one large string. 1 if it was one, 0 if it is anything else, -1 with E filled.
static int take_usual(struct relay *r, const char *p, size_t n, struct err *e)
{
	static const char head[] = "{\"channel\":\"", middle[] = "\",\"data\":\"", tail[] = "\"}";
	size_t head_n = sizeof head - 1, middle_n = sizeof middle - 1, tail_n = sizeof tail - 1;
	for (int ch = 0; ch < FRAME_CHANNELS; ch++) {
		const char *name = frame_channel_name((enum frame_channel)ch);
		size_t name_n = strlen(name), from = head_n + name_n + middle_n;
		if (n < from + tail_n || memcmp(p, head, head_n) != 0 || memcmp(p + head_n, name, name_n) != 0 ||
			memcmp(p + head_n + name_n, middle, middle_n) != 0 ||
			memcmp(p + n - tail_n, tail, tail_n) != 0 || memchr(p + from, '\\', n - from))
			continue;
		return take_data(r, &r->sinks[ch == FRAME_STDERR], p + from, n - from - tail_n, e) < 0 ? -1 : 1;
	}
	return 0;
}

static int take_frame(struct relay *r, const struct buf *ev, struct err *e)
{
	const char *p = (const char *)buf_data(ev);
	size_t n = buf_len(ev);
	if (n > 0 && *p != '{') // a terminal's bare base64
		return take_data(r, &r->sinks[0], p, n, e);
	int rc = r->spec->frames ? 0 : take_usual(r, p, n, e);
	if (rc)
		return rc < 0 ? -1 : 0;
	json_t *doc = jsonr_parse(p, n, e);
	if (!doc)
		return malformed(e);
	if (r->spec->frames)
		rc = sink_put(r, &r->sinks[0], p, n, e) < 0 ? -1 : sink_put(r, &r->sinks[0], "\n", 1, e);
	if (rc == 0)
		rc = take_object(r, doc, e);
	jsonr_free(doc);
	return rc;
}

// Frames of what has come. 0, or -1 with E filled.
static int take_frames(struct relay *r, struct err *e)
{
	struct buf *body = &r->stream.body;
	while (buf_len(body) > 0 && relay_has_room(r) && !r->over) {
		const struct buf *ev;
		size_t used = 0;
		int rc = frame_reader_feed(&r->frames, buf_data(body), buf_len(body), &used, &ev);
		if (rc < 0)
			return err_sys(e, rc, "stream");
		if (rc == 1 && take_frame(r, ev, e) < 0)
			return -1;
		buf_consume(body, used);
	}
	return 0;
}

int relay_take(struct relay *r, struct err *e)
{
	r->more = false;
	for (int steps = 0; !r->over; steps++) {
		if (!r->failed && take_frames(r, e) < 0)
			return -1;
		if (r->over || !relay_has_room(r))
			return 0;
		r->more = steps == STEPS_MAX;
		if (r->more)
			return 0;
		switch (http_client_step(&r->stream, e)) {
		case HTTP_CLIENT_WAIT:
			return 0;
		case HTTP_CLIENT_HEAD:
			r->failed = http_client_status(&r->stream) != 200;
			break;
		case HTTP_CLIENT_BODY:
			break;
		case HTTP_CLIENT_END:
			if (r->failed)
				http_client_error(&r->stream, e);
			else if (take_frames(r, e) == 0 && !r->over && relay_has_room(r))
				err_set(e, ERR_UNAVAILABLE, "the stream has ended before the command");
			else
				return r->over ? 0 : -1;
			return -1;
		case HTTP_CLIENT_FAILED:
			return -1;
		}
	}
	return 0;
}
