// SPDX-License-Identifier: Apache-2.0
#include "proto/frame.h"

#include "proto/json.h"
#include "proto/text.h"

#include <assert.h>
#include <string.h>

struct piece {
	const char *p;
	size_t n;
};
#define PIECE(lit)                      \
	{                               \
		"" lit, sizeof(lit) - 1 \
	}

// --- writing ---

#define DATA "data: "
#define END "\n\n"

static const struct {
	const char *name;
	struct piece head;
} channels[FRAME_CHANNELS] = {
	[FRAME_STDOUT] = {"stdout", PIECE(DATA "{\"channel\":\"stdout\",\"data\":\"")},
	[FRAME_STDERR] = {"stderr", PIECE(DATA "{\"channel\":\"stderr\",\"data\":\"")},
	[FRAME_PTY] = {"pty", PIECE(DATA "{\"channel\":\"pty\",\"data\":\"")},
};
static const struct piece tagged_tail = PIECE("\"}" END);
static const struct piece bare_head = PIECE(DATA);
static const struct piece bare_tail = PIECE(END);

const char *frame_channel_name(enum frame_channel ch)
{
	assert((unsigned)ch < FRAME_CHANNELS);
	return channels[ch].name;
}

// Takes a frame that began at MARK back if it could not be written whole.
static void frame_seal(struct buf *out, size_t mark)
{
	if (buf_failed(out))
		buf_truncate(out, mark);
}

// The room is reserved for the whole frame at once: one growth, and no other copy of the bytes.
static void put_data(struct buf *out, struct piece head, const void *p, size_t n, struct piece tail)
{
	assert(n <= FRAME_RAW_MAX);
	size_t mark = buf_len(out);
	if (!buf_reserve(out, head.n + text_b64_len(n) + tail.n))
		return;
	buf_append(out, head.p, head.n);
	text_b64_encode(out, p, n);
	buf_append(out, tail.p, tail.n);
	frame_seal(out, mark);
}

void frame_sse_data(struct buf *out, enum frame_channel ch, const void *p, size_t n)
{
	assert((unsigned)ch < FRAME_CHANNELS);
	put_data(out, channels[ch].head, p, n, tagged_tail);
}

void frame_sse_bare(struct buf *out, const void *p, size_t n)
{
	put_data(out, bare_head, p, n, bare_tail);
}

size_t frame_sse_room(size_t n)
{
	size_t head = 0;
	for (size_t ch = 0; ch < FRAME_CHANNELS; ch++) {
		if (channels[ch].head.n > head)
			head = channels[ch].head.n;
	}
	return head + text_b64_len(n) + tagged_tail.n;
}

// Begins a frame whose body W writes. Returns the mark for body_end.
static size_t body_begin(struct jsonw *w, struct buf *out)
{
	size_t mark = buf_len(out);
	BUF_LIT(out, DATA);
	jsonw_init(w, out);
	w->ascii = true; // clients cut streams at any byte and decode each part by itself
	return mark;
}

static void body_end(struct jsonw *w, size_t mark)
{
	BUF_LIT(w->out, END);
	frame_seal(w->out, mark);
}

void frame_sse_pid(struct buf *out, int pid)
{
	struct jsonw w;
	size_t mark = body_begin(&w, out);
	jsonw_obj(&w);
	jsonw_kint(&w, "pid", pid);
	jsonw_obj_end(&w);
	body_end(&w, mark);
}

void frame_sse_exit(struct buf *out, const struct frame_end *end)
{
	struct jsonw w;
	size_t mark = body_begin(&w, out);
	jsonw_obj(&w);
	jsonw_kint(&w, "exit", end->code);
	if (end->signal)
		jsonw_kstr(&w, "signal", end->signal);
	if (end->timed_out)
		jsonw_kbool(&w, "timed_out", true);
	if (end->truncated)
		jsonw_kbool(&w, "truncated", true);
	if (end->oom)
		jsonw_kbool(&w, "oom", true);
	jsonw_obj_end(&w);
	body_end(&w, mark);
}

void frame_sse_terminal_exit(struct buf *out, const struct frame_end *end)
{
	struct jsonw w;
	size_t mark = body_begin(&w, out);
	jsonw_obj(&w);
	jsonw_kint(&w, "exit", end->code);
	jsonw_kstr(&w, "signal", end->signal ? end->signal : "");
	jsonw_kbool(&w, "truncated", end->truncated);
	if (end->oom)
		jsonw_kbool(&w, "oom", true);
	jsonw_obj_end(&w);
	body_end(&w, mark);
}

void frame_sse_error(struct buf *out, const struct err *e)
{
	struct jsonw w;
	size_t mark = body_begin(&w, out);
	jsonw_error(&w, e);
	body_end(&w, mark);
}

void frame_sse_done(struct buf *out)
{
	BUF_LIT(out, DATA "{\"done\":true}" END);
}

void frame_sse_keepalive(struct buf *out)
{
	BUF_LIT(out, ": keepalive" END);
}

// --- reading ---

void frame_reader_init(struct frame_reader *r, size_t max)
{
	*r = (struct frame_reader){.has_data = false};
	// A line carries its field name and the blank besides the data.
	buf_init(&r->line, max > 0 && max < SIZE_MAX - (sizeof(DATA) - 1) ? max + sizeof(DATA) - 1 : max);
	buf_init(&r->data, max);
}

void frame_reader_release(struct frame_reader *r)
{
	buf_release(&r->line);
	buf_release(&r->data);
}

static int reader_failed(const struct frame_reader *r)
{
	int rc = buf_failed(&r->line);
	return rc ? rc : buf_failed(&r->data);
}

static void take_field(struct frame_reader *r, const char *line, size_t n)
{
	static const struct piece data = PIECE("data");
	const char *colon = memchr(line, ':', n);
	size_t name = colon ? (size_t)(colon - line) : n;
	if (name != data.n || memcmp(line, data.p, name) != 0)
		return;
	size_t value = colon ? name + 1 : n;
	if (value < n && line[value] == ' ')
		value++;
	if (r->has_data)
		buf_byte(&r->data, '\n');
	buf_append(&r->data, line + value, n - value);
	r->has_data = true;
}

// The line is complete. True if it ended an event.
static bool take_line(struct frame_reader *r)
{
	static const struct piece mark = PIECE("\xEF\xBB\xBF"); // a byte order mark may begin the stream
	const char *line = (const char *)buf_data(&r->line);
	size_t n = buf_len(&r->line);
	if (!r->begun && n >= mark.n && memcmp(line, mark.p, mark.n) == 0) {
		line += mark.n;
		n -= mark.n;
	}
	r->begun = true;
	bool event = n == 0 && r->has_data;
	if (event)
		r->has_data = false;
	else
		take_field(r, line, n);
	buf_reset(&r->line);
	return event;
}

int frame_reader_feed(struct frame_reader *r, const void *p, size_t n, size_t *used, const struct buf **ev)
{
	const char *s = p;
	size_t i = 0;
	*used = 0;
	if (reader_failed(r))
		return reader_failed(r);
	if (!r->has_data)
		buf_reset(&r->data); // the event that the last call gave
	if (n > 0 && r->cr && s[0] == '\n')
		i = 1;
	if (n > 0)
		r->cr = false;
	while (i < n) {
		size_t from = i;
		while (i < n && s[i] != '\n' && s[i] != '\r')
			i++;
		buf_append(&r->line, s + from, i - from);
		*used = i;
		if (buf_failed(&r->line) || i == n)
			return buf_failed(&r->line);
		bool crlf = s[i] == '\r' && i + 1 < n && s[i + 1] == '\n';
		r->cr = s[i] == '\r' && i + 1 == n; // the LF of this line's end may be next
		i += crlf ? 2 : 1;
		*used = i;
		if (take_line(r)) {
			*ev = &r->data;
			return 1;
		}
		if (buf_failed(&r->data))
			return buf_failed(&r->data);
	}
	*used = i;
	return 0;
}
