// SPDX-License-Identifier: Apache-2.0
#include "feed.h"
#include "oom.h"
#include "proto/envelope.h"
#include "proto/pbjson.h"
#include "proto/pbwire.h"
#include "proto/process.pb-c.h"
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

// Appends an envelope with FLAGS, the announced length SAYS and the N bytes at P.
static void put(struct buf *b, unsigned flags, size_t says, const void *p, size_t n)
{
	const unsigned char prefix[] = {(unsigned char)flags, (unsigned char)(says >> 24), (unsigned char)(says >> 16),
		(unsigned char)(says >> 8), (unsigned char)says};
	buf_append(b, prefix, sizeof(prefix));
	buf_append(b, p, n);
}

static void put_text(struct buf *b, unsigned flags, const char *text)
{
	put(b, flags, strlen(text), text, strlen(text));
}

static void put_gzip(struct buf *b, unsigned flags, const char *text, size_t n, int level)
{
	unsigned char out[4096];
	z_stream z = {.zalloc = NULL};
	ck_assert_int_eq(deflateInit2(&z, level, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = (Bytef *)(uintptr_t)text;
	z.avail_in = (uInt)n;
	z.next_out = out;
	z.avail_out = sizeof(out);
	ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
	put(b, flags, z.total_out, out, z.total_out);
	deflateEnd(&z);
}

static void ck_bytes(const struct buf *b, const void *want, size_t n)
{
	ck_assert_uint_eq(buf_len(b), n);
	ck_assert_mem_eq(buf_data(b), want, n);
}

// --- writing ---

START_TEST(written_in_place)
{
	static const unsigned char want[] = "x\x00\x00\x00\x00\x03"
					    "abc"
					    "\x02\x00\x00\x00\x02{}";
	struct buf b;
	buf_init(&b, 0);
	buf_byte(&b, 'x');
	size_t mark = envelope_begin(&b);
	BUF_LIT(&b, "abc");
	envelope_end(&b, mark, 0);
	envelope_last(&b, NULL);
	ck_bytes(&b, want, sizeof(want) - 1);
	buf_reset(&b);
	for (size_t i = 0; i < 0x10203; i++)
		buf_byte(&b, 'y');
	buf_consume(&b, 0x10203 - 1);
	mark = envelope_begin(&b);
	for (size_t i = 0; i < 0x10203; i++)
		buf_byte(&b, 'y');
	envelope_end(&b, mark, ENVELOPE_COMPRESSED);
	ck_assert_mem_eq(buf_data(&b), "y\x01\x00\x01\x02\x03y", 7);
	buf_release(&b);
}
END_TEST

START_TEST(whole_or_not_at_all)
{
	static const unsigned char bytes[300];
	struct buf whole, b;
	buf_init(&whole, 0);
	envelope_data(&whole, ENVELOPE_JSON, FRAME_STDOUT, bytes, sizeof(bytes));
	for (size_t max = 4; max < buf_len(&whole) + 3; max++) {
		buf_init(&b, max);
		BUF_LIT(&b, "abc");
		envelope_data(&b, ENVELOPE_JSON, FRAME_STDOUT, bytes, sizeof(bytes));
		ck_bytes(&b, "abc", 3);
		buf_reset(&b);
		BUF_LIT(&b, "abc");
		envelope_data(&b, ENVELOPE_PROTO, FRAME_STDOUT, bytes, sizeof(bytes));
		ck_assert(buf_failed(&b) ? buf_len(&b) == 3 : buf_len(&b) == 3 + ENVELOPE_PREFIX + 9 + sizeof(bytes));
		buf_release(&b);
	}
	buf_release(&whole);
}
END_TEST

// stream-transport 4 and 20, and what Go escapes.
START_TEST(errors_as_go_writes_them)
{
	struct err e;
	struct buf b;
	buf_init(&b, 0);
	err_set(&e, ERR_INVALID_ARGUMENT, "cwd '/none' does not exist");
	envelope_last(&b, &e);
	ck_bytes(&b,
		"\x02\x00\x00\x00\x4c{\"error\":{\"code\":\"invalid_argument\",\"message\":\"cwd '/none' does not "
		"exist\"}}",
		ENVELOPE_PREFIX + 76);
	buf_reset(&b);
	err_set(&e, ERR_NOT_FOUND, "<a> & \"b\" \xE2\x80\xA8\xE2\x80\xA9\xE2\x80\xAA\n");
	envelope_error_body(&b, &e);
	ck_assert_str_eq(buf_cstr(&b), "{\"code\":\"not_found\",\"message\":\"\\u003ca\\u003e \\u0026 \\\"b\\\" "
				       "\\u2028\\u2029\xE2\x80\xAA\\n\"}");
	buf_reset(&b);
	err_set(&e, ERR_INTERNAL, "%s", "");
	envelope_error_body(&b, &e);
	ck_assert_str_eq(buf_cstr(&b), "{\"code\":\"internal\"}");
	buf_release(&b);
}
END_TEST

// --- output events: the same bytes as the generic codec makes ---

static void generic(struct buf *b, enum envelope_codec codec, int ch, const ProtobufCMessage *m)
{
	(void)ch;
	size_t mark = envelope_begin(b);
	if (codec == ENVELOPE_JSON)
		ck_assert_int_eq(pbjson_write(b, m), 0);
	else
		pbwire_write(b, m);
	envelope_end(b, mark, 0);
}

static void same_as_generic(enum envelope_codec codec, enum frame_channel ch, unsigned char *p, size_t n)
{
	Process__ProcessEvent__DataEvent data = PROCESS__PROCESS_EVENT__DATA_EVENT__INIT;
	Process__ProcessEvent event = PROCESS__PROCESS_EVENT__INIT;
	Process__StartResponse start = PROCESS__START_RESPONSE__INIT;
	Process__ConnectResponse connect = PROCESS__CONNECT_RESPONSE__INIT;
	data.output_case = ch == FRAME_STDOUT   ? PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDOUT
			   : ch == FRAME_STDERR ? PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDERR
						: PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_PTY;
	data.pty = (ProtobufCBinaryData){n, p};
	event.event_case = PROCESS__PROCESS_EVENT__EVENT_DATA;
	event.data = &data;
	start.event = connect.event = &event;
	struct buf fast, slow;
	buf_init(&fast, 0);
	buf_init(&slow, 0);
	envelope_data(&fast, codec, ch, p, n);
	ck_assert_uint_le(buf_len(&fast), envelope_data_room(n));
	generic(&slow, codec, (int)ch, &start.base);
	ck_bytes(&fast, buf_data(&slow), buf_len(&slow));
	buf_reset(&slow);
	generic(&slow, codec, (int)ch, &connect.base);
	ck_bytes(&fast, buf_data(&slow), buf_len(&slow));
	buf_release(&fast);
	buf_release(&slow);
}

START_TEST(data_is_what_the_codec_makes)
{
	static unsigned char bytes[FRAME_RAW_MAX];
	static const size_t edges[] = {
		16377, 16378, 16379, 16380, 16381, 16383, 16384, FRAME_RAW_MAX - 1, FRAME_RAW_MAX};
	srand(7);
	for (size_t i = 0; i < sizeof(bytes); i++)
		bytes[i] = (unsigned char)rand();
	enum envelope_codec codec = _i % 2 ? ENVELOPE_PROTO : ENVELOPE_JSON;
	enum frame_channel ch = (enum frame_channel)(_i / 2);
	for (size_t n = 0; n <= 300; n++)
		same_as_generic(codec, ch, bytes + n, n);
	for (size_t i = 0; i < 100; i++)
		same_as_generic(codec, ch, bytes, (size_t)rand() % (FRAME_RAW_MAX + 1));
	for (size_t i = 0; i < sizeof(edges) / sizeof(edges[0]); i++)
		same_as_generic(codec, ch, bytes, edges[i]);
}
END_TEST

// proto-codec 6, json-input 15.
START_TEST(data_as_recorded)
{
	struct buf b;
	buf_init(&b, 0);
	envelope_data(&b, ENVELOPE_PROTO, FRAME_STDOUT, "hi\n", 3);
	ck_bytes(&b, "\x00\x00\x00\x00\x09\x0a\x07\x12\x05\x0a\x03hi\n", 14);
	buf_reset(&b);
	envelope_data(&b, ENVELOPE_JSON, FRAME_STDOUT, "\xfb\xff", 2);
	ck_bytes(&b, "\x00\x00\x00\x00\x24{\"event\":{\"data\":{\"stdout\":\"+/8=\"}}}", 41);
	buf_release(&b);
}
END_TEST

// --- reading ---

struct reading {
	struct envelope_reader r;
	struct buf seen; // the messages, each with a '|' behind it
	struct err e;
};

static int take(void *arg, const unsigned char *p, size_t n)
{
	struct reading *r = arg;
	size_t used, at = 0;
	do {
		int rc = envelope_reader_feed(&r->r, p + at, n - at, &used, &r->e);
		if (rc < 0)
			return -1;
		at += used;
		if (rc == 0 && at < n)
			return 7; // "all taken" was not true
		if (rc == 1) {
			buf_append(&r->seen, buf_data(&r->r.payload), buf_len(&r->r.payload));
			buf_byte(&r->seen, '|');
		}
	} while (at < n);
	return buf_failed(&r->seen);
}

// Reads a body in chunks: 0 or -1 with r->e. The caller calls done().
static int read_body(struct reading *r, const struct buf *body, size_t chunk, size_t max, bool gzip, bool one)
{
	*r = (struct reading){.e = {.code = ERR_NONE}};
	envelope_reader_init(&r->r, max, gzip);
	buf_init(&r->seen, 0);
	int rc = feed(buf_data(body), buf_len(body), chunk, take, r);
	if (rc == 0)
		rc = one ? envelope_reader_end_one(&r->r, &r->e) : envelope_reader_end(&r->r, &r->e);
	return rc;
}

static void done(struct reading *r)
{
	envelope_reader_release(&r->r);
	buf_release(&r->seen);
}

START_TEST(messages_in_order)
{
	struct reading r;
	struct buf b;
	buf_init(&b, 0);
	put_text(&b, 0, "{\"a\":1}");
	put_text(&b, 0, "");
	put_gzip(&b, ENVELOPE_COMPRESSED, "packed", 6, 9);
	put(&b, ENVELOPE_COMPRESSED, 0, "", 0);
	put_text(&b, 0, "last");
	put_text(&b, ENVELOPE_END, "{}");
	put_text(&b, 0x40, "nobody looks");
	ck_assert_int_eq(read_body(&r, &b, (size_t)_i, 30, true, false), 0);
	ck_assert_str_eq(buf_cstr(&r.seen), "{\"a\":1}||packed||last|");
	ck_assert(r.r.ended);
	ck_assert_uint_eq(r.r.messages, 5);
	done(&r);
	buf_release(&b);
}
END_TEST

enum kind { PLAIN, RAW, GZIP, TWICE };

// Contract B 1.5 and the recorded stream-transport.
static const struct fault {
	enum kind kind;
	unsigned flags;
	size_t says, has;
	bool gzip;
	enum err_code code;
	const char *msg;
} faults[] = {
	{RAW, 0, 0, 0, false, ERR_UNIMPLEMENTED, "unary request has zero messages"},
	{RAW, 0, 0, 1, false, ERR_INVALID_ARGUMENT, "protocol error: incomplete envelope: unexpected EOF"},
	{RAW, 0, 0, 3, false, ERR_INVALID_ARGUMENT, "protocol error: incomplete envelope: unexpected EOF"},
	{RAW, 0, 0, 4, false, ERR_INVALID_ARGUMENT, "protocol error: incomplete envelope: unexpected EOF"},
	{PLAIN, 0, 10, 2, false, ERR_INVALID_ARGUMENT,
		"protocol error: promised 10 bytes in enveloped message, got 2 bytes"},
	{PLAIN, 0, 10, 0, false, ERR_INVALID_ARGUMENT,
		"protocol error: promised 10 bytes in enveloped message, got 0 bytes"},
	{PLAIN, ENVELOPE_END, 2, 2, false, ERR_UNIMPLEMENTED, "unary request has zero messages"},
	{TWICE, 0, 9, 9, false, ERR_UNIMPLEMENTED, "unary request has multiple messages"},
	{PLAIN, 4, 9, 9, false, ERR_INTERNAL, "protocol error: invalid envelope flags 4"},
	{PLAIN, 0x84, 9, 9, false, ERR_INTERNAL, "protocol error: invalid envelope flags 132"},
	{GZIP, 1, 0, 9, false, ERR_INTERNAL, "protocol error: sent compressed message without compression support"},
	{PLAIN, 1, 9, 9, true, ERR_INVALID_ARGUMENT, "get decompressor: gzip: invalid header"},
	{GZIP, 5, 0, 9, true, ERR_INTERNAL, "protocol error: invalid envelope flags 5"},
	{PLAIN, 0, 101, 101, false, ERR_RESOURCE_EXHAUSTED, "message size 101 is larger than configured max 100"},
	{PLAIN, 0, 0xffffffff, 0, false, ERR_RESOURCE_EXHAUSTED,
		"message size 4294967295 is larger than configured max 100"},
	{GZIP, 1, 0, 101, true, ERR_RESOURCE_EXHAUSTED, "message size is larger than configured max 100"},
};

START_TEST(rejections)
{
	const struct fault *f = &faults[_i / FEED_SIZES];
	char text[200];
	memset(text, 'x', sizeof(text));
	struct reading r;
	struct buf b;
	buf_init(&b, 0);
	if (f->kind == RAW)
		buf_append(&b, "\0\0\0\0", f->has);
	else if (f->kind == GZIP)
		put_gzip(&b, f->flags, text, f->has, 9);
	else
		put(&b, f->flags, f->says, text, f->has);
	if (f->kind == TWICE)
		put(&b, f->flags, f->says, text, f->has);
	ck_assert_int_eq(read_body(&r, &b, (size_t)(_i % FEED_SIZES), 100, f->gzip, true), -1);
	ck_assert_str_eq(r.e.msg, f->msg);
	ck_assert_int_eq(r.e.code, f->code);
	done(&r);
	buf_release(&b);
}
END_TEST

START_TEST(size_limit_is_exact)
{
	char text[100];
	memset(text, 'x', sizeof(text));
	struct reading r;
	struct buf b;
	buf_init(&b, 0);
	put(&b, 0, 100, text, 100);
	ck_assert_int_eq(read_body(&r, &b, (size_t)_i, 100, false, true), 0);
	done(&r);
	buf_reset(&b);
	put_gzip(&b, 1, text, 100, 9);
	ck_assert_int_eq(read_body(&r, &b, (size_t)_i, 100, true, true), 0);
	ck_assert_uint_eq(buf_len(&r.seen), 101);
	done(&r);
	buf_release(&b);
}
END_TEST

static int run_read(void *arg)
{
	struct reading r;
	int rc = read_body(&r, arg, 0, 1000, true, false);
	if (rc == -1 && r.e.sys == 0)
		rc = 1; // a failure that does not say out of memory
	if (rc == 0 && (buf_len(&r.seen) != 13 || memcmp(buf_data(&r.seen), "plain|packed|", 13) != 0))
		rc = 2;
	done(&r);
	return rc;
}

START_TEST(reading_out_of_memory)
{
	struct buf b;
	buf_init(&b, 0);
	put_text(&b, 0, "plain");
	put_gzip(&b, 1, "packed", 6, 9);
	OOM_LOOP(run_read, &b);
	buf_release(&b);
}
END_TEST

static int run_write(void *arg)
{
	(void)arg;
	static const unsigned char bytes[1000];
	struct buf b;
	struct err e;
	buf_init(&b, 0);
	envelope_data(&b, ENVELOPE_JSON, FRAME_PTY, bytes, sizeof(bytes));
	size_t first = buf_len(&b);
	bool whole = first == 0 || first == ENVELOPE_PREFIX + 24 + 1336 + 5;
	envelope_data(&b, ENVELOPE_PROTO, FRAME_PTY, bytes, sizeof(bytes));
	err_set(&e, ERR_INTERNAL, "x");
	envelope_last(&b, &e);
	int rc = buf_failed(&b);
	if (!whole || (rc == 0 && buf_len(&b) != first + ENVELOPE_PREFIX + 9 + 1000 + ENVELOPE_PREFIX + 43))
		rc = 1;
	buf_release(&b);
	return rc;
}

START_TEST(writing_out_of_memory)
{
	OOM_LOOP(run_write, NULL);
}
END_TEST

Suite *envelope_suite(void)
{
	Suite *s = suite_create("envelope");
	TCase *tc = tcase_create("write");
	tcase_add_test(tc, written_in_place);
	tcase_add_test(tc, whole_or_not_at_all);
	tcase_add_test(tc, errors_as_go_writes_them);
	tcase_add_loop_test(tc, data_is_what_the_codec_makes, 0, 2 * FRAME_CHANNELS);
	tcase_add_test(tc, data_as_recorded);
	tcase_add_test(tc, writing_out_of_memory);
	tcase_set_timeout(tc, 30);
	suite_add_tcase(s, tc);
	tc = tcase_create("read");
	tcase_add_loop_test(tc, messages_in_order, 0, FEED_SIZES);
	tcase_add_loop_test(tc, rejections, 0, FEED_SIZES * (int)(sizeof(faults) / sizeof(faults[0])));
	tcase_add_loop_test(tc, size_limit_is_exact, 0, FEED_SIZES);
	tcase_add_test(tc, reading_out_of_memory);
	suite_add_tcase(s, tc);
	return s;
}
