// SPDX-License-Identifier: Apache-2.0
#include "proto/envelope.h"

#include "proto/gzip.h"
#include "proto/json.h"
#include "proto/process.pb-c.h"
#include "proto/text.h"

#include <assert.h>
#include <limits.h>
#include <string.h>

// --- writing ---

static void put_prefix(unsigned char *to, unsigned flags, size_t n)
{
	assert(flags <= UINT8_MAX && n <= UINT32_MAX);
	to[0] = (unsigned char)flags;
	for (unsigned i = 1; i < ENVELOPE_PREFIX; i++)
		to[i] = (unsigned char)(n >> (ENVELOPE_PREFIX - 1 - i) * 8);
}

size_t envelope_begin(struct buf *out)
{
	static const unsigned char room[ENVELOPE_PREFIX];
	size_t mark = buf_len(out);
	buf_append(out, room, sizeof(room));
	return mark;
}

void envelope_end(struct buf *out, size_t mark, unsigned flags)
{
	unsigned char *end = buf_reserve(out, 0);
	if (!end) {
		buf_truncate(out, mark);
		return;
	}
	size_t n = buf_len(out) - mark;
	assert(n >= ENVELOPE_PREFIX);
	put_prefix(end - n, flags, n - ENVELOPE_PREFIX);
}

static void put_error(struct jsonw *w, const struct err *e)
{
	jsonw_obj(w);
	jsonw_kstr(w, "code", err_word(e->code));
	if (e->msg[0])
		jsonw_kstr(w, "message", e->msg);
	jsonw_obj_end(w);
}

void envelope_last(struct buf *out, const struct err *e)
{
	size_t mark = envelope_begin(out);
	struct jsonw w;
	jsonw_init(&w, out);
	w.html = true;
	jsonw_obj(&w);
	if (e) {
		jsonw_key(&w, "error");
		put_error(&w, e);
	}
	jsonw_obj_end(&w);
	envelope_end(out, mark, ENVELOPE_END);
}

void envelope_error_body(struct buf *out, const struct err *e)
{
	struct jsonw w;
	jsonw_init(&w, out);
	w.html = true;
	put_error(&w, e);
}

// --- output events ---

// The field numbers of {"event":{"data":{...}}}; the last one has no constant, the tests compare with the descriptor.
enum {
	TAG_EVENT = 1,
	TAG_DATA = PROCESS__PROCESS_EVENT__EVENT_DATA,
	LENGTH_MAX = 3, // bytes of a length here, which is little more than FRAME_RAW_MAX
};
_Static_assert(FRAME_RAW_MAX + 2 * (1 + LENGTH_MAX) < 1 << 7 * LENGTH_MAX, "a length takes LENGTH_MAX bytes");

#define JSON_HEAD(name) "{\"event\":{\"data\":{\"" name "\":\""
#define JSON_TAIL "\"}}}"

static const struct {
	const char *json;
	unsigned tag;
} channels[FRAME_CHANNELS] = {
	[FRAME_STDOUT] = {JSON_HEAD("stdout"), PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDOUT},
	[FRAME_STDERR] = {JSON_HEAD("stderr"), PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDERR},
	[FRAME_PTY] = {JSON_HEAD("pty"), PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_PTY},
};

// Puts in front of END a field's tag and the length N of what follows it. Returns the new front.
static unsigned char *tag_before(unsigned char *end, unsigned tag, size_t n)
{
	unsigned char head[1 + LENGTH_MAX];
	size_t len = 0;
	head[len++] = (unsigned char)(tag << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
	for (; n > 0x7f; n >>= 7)
		head[len++] = (unsigned char)(n | 0x80);
	head[len++] = (unsigned char)n;
	return memcpy(end - len, head, len);
}

static void put_proto(struct buf *out, enum frame_channel ch, const void *p, size_t n)
{
	unsigned char head[3 * (1 + LENGTH_MAX)], *end = head + sizeof(head), *at;
	at = tag_before(end, channels[ch].tag, n);
	at = tag_before(at, TAG_DATA, (size_t)(end - at) + n);
	at = tag_before(at, TAG_EVENT, (size_t)(end - at) + n);
	buf_append(out, at, (size_t)(end - at));
	buf_append(out, p, n);
}

static void put_json(struct buf *out, enum frame_channel ch, const void *p, size_t n)
{
	buf_str(out, channels[ch].json);
	text_b64_encode(out, p, n);
	BUF_LIT(out, JSON_TAIL);
}

size_t envelope_data_room(size_t n)
{
	// Base64 and its braces are always longer than the bytes and their tags.
	return ENVELOPE_PREFIX + sizeof(JSON_HEAD("stdout")) - 1 + text_b64_len(n) + sizeof(JSON_TAIL) - 1;
}

void envelope_data(struct buf *out, enum envelope_codec codec, enum frame_channel ch, const void *p, size_t n)
{
	assert(n <= FRAME_RAW_MAX && (unsigned)ch < FRAME_CHANNELS);
	size_t mark = envelope_begin(out);
	(codec == ENVELOPE_PROTO ? put_proto : put_json)(out, ch, p, n);
	envelope_end(out, mark, 0);
}

// --- reading ---

void envelope_reader_init(struct envelope_reader *r, size_t max, bool gzip)
{
	*r = (struct envelope_reader){.max = max, .gzip = gzip};
	buf_init(&r->payload, max);
}

void envelope_reader_release(struct envelope_reader *r)
{
	buf_release(&r->payload);
}

static int take_prefix(struct envelope_reader *r, struct err *e)
{
	r->want = 0;
	for (unsigned i = 1; i < ENVELOPE_PREFIX; i++)
		r->want = r->want << 8 | r->prefix[i];
	if (r->prefix[0] & ENVELOPE_END) {
		r->ended = true;
		return 0;
	}
	if (r->want > r->max)
		return err_set(e, ERR_RESOURCE_EXHAUSTED, "message size %zu is larger than configured max %zu", r->want,
			r->max);
	return 0;
}

static int unzip(struct envelope_reader *r, struct err *e)
{
	struct buf plain;
	buf_init(&plain, r->max);
	int rc = gunzip_all(&plain, buf_data(&r->payload), buf_len(&r->payload), r->max, e);
	buf_release(&r->payload);
	r->payload = plain;
	return rc;
}

// The payload is complete. 1, or -1 with E filled.
static int take_message(struct envelope_reader *r, struct err *e)
{
	unsigned flags = r->prefix[0];
	r->have = 0;
	r->complete = true;
	r->messages += r->messages < UINT_MAX;
	if (flags & ENVELOPE_COMPRESSED && r->want > 0) {
		if (!r->gzip)
			return err_set(
				e, ERR_INTERNAL, "protocol error: sent compressed message without compression support");
		if (unzip(r, e) < 0)
			return -1;
	}
	if (flags & ~(unsigned)ENVELOPE_COMPRESSED)
		return err_set(e, ERR_INTERNAL, "protocol error: invalid envelope flags %u", flags);
	return 1;
}

int envelope_reader_feed(struct envelope_reader *r, const void *p, size_t n, size_t *used, struct err *e)
{
	const unsigned char *s = p;
	*used = 0;
	if (r->complete)
		buf_reset(&r->payload); // what the last call gave
	r->complete = false;
	while (*used < n && r->have < ENVELOPE_PREFIX && !r->ended) {
		r->prefix[r->have++] = s[(*used)++];
		if (r->have == ENVELOPE_PREFIX && take_prefix(r, e) < 0)
			return -1;
	}
	if (r->ended)
		*used = n;
	if (r->ended || r->have < ENVELOPE_PREFIX)
		return 0;
	size_t need = r->want - buf_len(&r->payload), some = need < n - *used ? need : n - *used;
	buf_append(&r->payload, s + *used, some);
	*used += some;
	if (buf_failed(&r->payload))
		return err_sys(e, buf_failed(&r->payload), "message");
	return some == need ? take_message(r, e) : 0;
}

int envelope_reader_end(const struct envelope_reader *r, struct err *e)
{
	if (r->ended || r->have == 0)
		return 0;
	if (r->have < ENVELOPE_PREFIX)
		return err_set(e, ERR_INVALID_ARGUMENT, "protocol error: incomplete envelope: unexpected EOF");
	return err_set(e, ERR_INVALID_ARGUMENT,
		"protocol error: promised %zu bytes in enveloped message, got %zu bytes", r->want,
		buf_len(&r->payload));
}

int envelope_reader_end_one(const struct envelope_reader *r, struct err *e)
{
	if (envelope_reader_end(r, e) < 0)
		return -1;
	if (r->messages == 1)
		return 0;
	return err_set(e, ERR_UNIMPLEMENTED, "unary request has %s messages", r->messages ? "multiple" : "zero");
}
