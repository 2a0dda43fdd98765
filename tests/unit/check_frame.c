// SPDX-License-Identifier: Apache-2.0
#include "feed.h"
#include "oom.h"
#include "proto/frame.h"
#include "proto/json.h"
#include "proto/text.h"
#include "suites.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

#define BYTES(lit) lit, sizeof(lit) - 1
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

// --- writing: the exact bytes of every frame ---

static void put_frame(struct buf *out, size_t i)
{
	struct err e;
	switch (i) {
	case 0:
		frame_sse_pid(out, 1);
		break;
	case 1:
		frame_sse_pid(out, INT_MAX);
		break;
	case 2:
		frame_sse_data(out, FRAME_STDOUT, "hi\n", 3);
		break;
	case 3:
		frame_sse_data(out, FRAME_STDERR, "\0\xff", 2);
		break;
	case 4:
		frame_sse_data(out, FRAME_PTY, "x", 1);
		break;
	case 5:
		frame_sse_bare(out, "hi\n", 3);
		break;
	case 6:
		frame_sse_exit(out, &(struct frame_end){.code = 0});
		break;
	case 7:
		frame_sse_exit(out, &(struct frame_end){.code = 255, .truncated = true});
		break;
	case 8:
		frame_sse_exit(out, &(struct frame_end){-1, "SIGKILL", true, true, false});
		break;
	case 9:
		frame_sse_exit(out, &(struct frame_end){.code = -1, .signal = "SIGSEGV", .oom = true});
		break;
	case 10:
		frame_sse_done(out);
		break;
	case 11:
		err_set(&e, ERR_UNAVAILABLE, "the sandbox ends");
		e.reason = "sandbox_terminating";
		frame_sse_error(out, &e);
		break;
	case 12:
		err_sys(&e, -ENOENT, "%s", "/\xc3\xa4\xf0\x9f\x98\x80\"\n");
		frame_sse_error(out, &e);
		break;
	case 13:
		frame_sse_terminal_exit(out, &(struct frame_end){.code = 7});
		break;
	case 14:
		frame_sse_terminal_exit(out, &(struct frame_end){.code = -1, .signal = "SIGHUP", .truncated = true});
		break;
	case 15:
		frame_sse_terminal_exit(out, &(struct frame_end){.code = 137, .oom = true});
		break;
	default:
		frame_sse_keepalive(out);
	}
}

static const char *const frames[] = {
	"data: {\"pid\":1}\n\n",
	"data: {\"pid\":2147483647}\n\n",
	"data: {\"channel\":\"stdout\",\"data\":\"aGkK\"}\n\n",
	"data: {\"channel\":\"stderr\",\"data\":\"AP8=\"}\n\n",
	"data: {\"channel\":\"pty\",\"data\":\"eA==\"}\n\n",
	"data: aGkK\n\n",
	"data: {\"exit\":0}\n\n",
	"data: {\"exit\":255,\"truncated\":true}\n\n",
	"data: {\"exit\":-1,\"signal\":\"SIGKILL\",\"timed_out\":true,\"truncated\":true}\n\n",
	"data: {\"exit\":-1,\"signal\":\"SIGSEGV\",\"oom\":true}\n\n",
	"data: {\"done\":true}\n\n",
	"data: {\"error\":\"the sandbox ends\",\"code\":\"unavailable\",\"retryable\":true,"
	"\"reason\":\"sandbox_terminating\"}\n\n",
	"data: {\"error\":\"/\\u00e4\\ud83d\\ude00\\\"\\n: No such file or directory\",\"code\":\"not_found\","
	"\"retryable\":false,\"errno\":\"ENOENT\"}\n\n",
	"data: {\"exit\":7,\"signal\":\"\",\"truncated\":false}\n\n",
	"data: {\"exit\":-1,\"signal\":\"SIGHUP\",\"truncated\":true}\n\n",
	"data: {\"exit\":137,\"signal\":\"\",\"truncated\":false,\"oom\":true}\n\n",
	": keepalive\n\n",
};

static bool holds(const struct buf *b, const char *want, size_t n)
{
	return buf_len(b) == n && memcmp(buf_data(b), want, n) == 0;
}

START_TEST(frame_bytes)
{
	struct buf out = {0};
	put_frame(&out, (size_t)_i);
	ck_assert_int_eq(buf_failed(&out), 0);
	ck_assert_msg(holds(&out, frames[_i], strlen(frames[_i])), "got %.*s", (int)buf_len(&out),
		(const char *)buf_data(&out));
	buf_release(&out);
}
END_TEST

START_TEST(frame_names)
{
	ck_assert_str_eq(frame_channel_name(FRAME_STDOUT), "stdout");
	ck_assert_str_eq(frame_channel_name(FRAME_STDERR), "stderr");
	ck_assert_str_eq(frame_channel_name(FRAME_PTY), "pty");
}
END_TEST

// A limit that cuts the frame at each of its bytes: what stood before stays, nothing of the frame does.
START_TEST(frame_whole_or_not_at_all)
{
	static const char before[] = "before";
	size_t n = sizeof(before) - 1, whole = n + strlen(frames[_i]);
	for (size_t max = n; max <= whole; max++) {
		struct buf out;
		buf_init(&out, max);
		buf_str(&out, before);
		put_frame(&out, (size_t)_i);
		ck_assert_int_eq(buf_failed(&out), max < whole ? -EMSGSIZE : 0);
		ck_assert_uint_eq(buf_len(&out), max < whole ? n : whole);
		ck_assert_int_eq(memcmp(buf_data(&out), before, n), 0);
		buf_release(&out);
	}
}
END_TEST

static int put_frame_once(void *arg)
{
	size_t i = *(const size_t *)arg;
	struct buf out = {0};
	put_frame(&out, i);
	int rc = buf_failed(&out);
	if (!holds(&out, rc ? "" : frames[i], rc ? 0 : strlen(frames[i])))
		rc = 1;
	buf_release(&out);
	return rc;
}

START_TEST(frame_out_of_memory)
{
	size_t i = (size_t)_i;
	OOM_LOOP(put_frame_once, &i);
}
END_TEST

// One growth is all that a data frame costs, and its room is what frame_sse_room promises.
START_TEST(frame_room)
{
	static const size_t sizes[] = {0, 1, 2, 3, 4, 57, 58, 1000, 4096, 32767, FRAME_RAW_MAX};
	static const unsigned char raw[FRAME_RAW_MAX];
	for (size_t i = 0; i < COUNT(sizes); i++) {
		size_t most = 0;
		for (int ch = 0; ch < FRAME_CHANNELS; ch++) {
			struct buf out;
			buf_init(&out, frame_sse_room(sizes[i]));
			oom_fail_at(-1);
			frame_sse_data(&out, (enum frame_channel)ch, raw, sizes[i]);
			oom_off();
			ck_assert_int_eq(oom_count(), 1);
			ck_assert_int_eq(buf_failed(&out), 0);
			if (buf_len(&out) > most)
				most = buf_len(&out);
			buf_release(&out);
		}
		ck_assert_uint_eq(most, frame_sse_room(sizes[i]));
	}
}
END_TEST

// --- reading ---

struct events {
	struct frame_reader reader;
	struct buf log; // each event as "<data>|"
};

static int take(void *arg, const unsigned char *piece, size_t n)
{
	struct events *evs = arg;
	int rc;
	do {
		const struct buf *ev = NULL;
		size_t used = n + 1;
		rc = frame_reader_feed(&evs->reader, piece, n, &used, &ev);
		if (used > n || (rc == 0 && used < n) || (rc == 1) != (ev != NULL))
			return 1;
		if (ev) {
			buf_append(&evs->log, buf_data(ev), buf_len(ev));
			buf_byte(&evs->log, '|');
		}
		piece += used;
		n -= used;
	} while (rc == 1);
	return rc ? rc : buf_failed(&evs->log);
}

static int read_stream(struct events *evs, const void *p, size_t n, size_t chunk, size_t max)
{
	*evs = (struct events){.log = {.max = 0}};
	frame_reader_init(&evs->reader, max);
	return feed(p, n, chunk, take, evs);
}

static void events_release(struct events *evs)
{
	frame_reader_release(&evs->reader);
	buf_release(&evs->log);
}

static const struct {
	const char *in;
	size_t n;
	const char *events;
} streams[] = {
	{BYTES(""), ""},
	{BYTES("\n\n\r\n\r\r"), ""},
	{BYTES("data: x\n\n"), "x|"},
	{BYTES("data: x\r\n\r\n"), "x|"},
	{BYTES("data: x\r\r"), "x|"},
	{BYTES("data: x\r\n\ndata: y\n\r\ndata: z\r\r\n"), "x|y|z|"},
	{BYTES("data: x\n\r\r\n\ndata: y\r\n\r\n"), "x|y|"},
	{BYTES("data: a\ndata: b\n\ndata: c\n\n"), "a\nb|c|"},
	{BYTES("data: a\r\ndata:\r\ndata: b\r\n\r\n"), "a\n\nb|"},
	{BYTES("\rd\nata: y\n\ndata: x\n\n"), "x|"}, // a CR, more, and then an LF of its own
	{BYTES("data:x\n\ndata:  x\n\ndata: x: y \n\n"), "x| x|x: y |"},
	{BYTES("data\n\ndata:\n\ndata\ndata\n\n"), "||\n|"},
	{BYTES(": keepalive\n\ndata: x\n\n:\n\n"), "x|"},
	{BYTES("event: e\nid: 7\nretry: 1\n\ndata: x\nevent: e\n: c\n\n"), "x|"},
	{BYTES("Data: a\n\ndatax: b\n\ndat: c\n\n data: d\n\ndata : e\n\n: data: f\n\n"), ""},
	{BYTES("data: whole\n\ndata: cut\n"), "whole|"},
	{BYTES("data: whole\n\ndata: cut"), "whole|"},
	{BYTES("\xef\xbb\xbf"
	       "data: x\n\n\xef\xbb\xbf"
	       "data: y\n\n"),
		"x|"},
	{BYTES("data: \xef\xbb\xbf\n\n"), "\xef\xbb\xbf|"},
	{BYTES("data: {\"pid\":1}\n\ndata: {\"exit\":0}\n\n"), "{\"pid\":1}|{\"exit\":0}|"},
};

START_TEST(reader_streams)
{
	for (size_t chunk = 0; chunk < FEED_SIZES; chunk++) {
		struct events evs;
		ck_assert_int_eq(read_stream(&evs, streams[_i].in, streams[_i].n, chunk, 0), 0);
		ck_assert_msg(holds(&evs.log, streams[_i].events, strlen(streams[_i].events)), "chunk %zu: %.*s", chunk,
			(int)buf_len(&evs.log), (const char *)buf_data(&evs.log));
		events_release(&evs);
	}
}
END_TEST

START_TEST(reader_keeps_nul)
{
	static const char in[] = "data: a\0b\n\n";
	for (size_t chunk = 0; chunk < FEED_SIZES; chunk++) {
		struct events evs;
		ck_assert_int_eq(read_stream(&evs, BYTES(in), chunk, 0), 0);
		ck_assert(holds(&evs.log, BYTES("a\0b|")));
		events_release(&evs);
	}
}
END_TEST

START_TEST(reader_reads_what_was_written)
{
	struct buf stream = {0}, want = {0};
	for (size_t i = 0; i < COUNT(frames); i++) {
		put_frame(&stream, i);
		if (frames[i][0] == ':')
			continue;
		buf_append(&want, frames[i] + 6, strlen(frames[i]) - 8);
		buf_byte(&want, '|');
	}
	for (size_t chunk = 0; chunk < FEED_SIZES; chunk++) {
		struct events evs;
		ck_assert_int_eq(read_stream(&evs, buf_data(&stream), buf_len(&stream), chunk, 0), 0);
		ck_assert(holds(&evs.log, (const char *)buf_data(&want), buf_len(&want)));
		events_release(&evs);
	}
	buf_release(&stream);
	buf_release(&want);
}
END_TEST

START_TEST(reader_limit)
{
	static const struct {
		const char *in, *events;
		int rc;
	} cases[] = {
		{"data: 12345678\n\ndata: 12345678\n\n", "12345678|12345678|", 0},
		{"data: 123\ndata: 5678\n\n", "123\n5678|", 0},
		{"data: 1\n\ndata: 123456789\n\n", "1|", -EMSGSIZE},
		{"data: 1\n\ndata:123456789\n\n", "1|", -EMSGSIZE},
		{"data: 1234\ndata: 5678\n\ndata: x\n\n", "", -EMSGSIZE},
		{"data\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\ndata\n\n", "", -EMSGSIZE},
		{": 3456789 1234\ndata: x\n\n", "x|", 0},
		{": 3456789 12345\ndata: x\n\n", "", -EMSGSIZE},
	};
	for (size_t i = 0; i < COUNT(cases); i++) {
		for (size_t chunk = 0; chunk < FEED_SIZES; chunk++) {
			struct events evs;
			const struct buf *ev = NULL;
			size_t used = 99;
			ck_assert_int_eq(read_stream(&evs, cases[i].in, strlen(cases[i].in), chunk, 8), cases[i].rc);
			ck_assert(holds(&evs.log, cases[i].events, strlen(cases[i].events)));
			// The failure sticks.
			ck_assert_int_eq(frame_reader_feed(&evs.reader, "\n\n", 2, &used, &ev), cases[i].rc);
			ck_assert_ptr_null(ev);
			ck_assert_uint_eq(used, cases[i].rc ? 0 : 2);
			events_release(&evs);
		}
	}
}
END_TEST

static int read_once(void *arg)
{
	static const char in[] = ": c\n\ndata: 0123456789012345678901234567890123456789012345678901234567890123456789\n"
				 "data: x\n\ndata: y\n\n";
	struct events evs;
	(void)arg;
	// Pieces are not allocated: only the reader's own failures may stop it.
	evs = (struct events){.log = {.max = 0}};
	frame_reader_init(&evs.reader, 0);
	int rc = take(&evs, (const unsigned char *)in, sizeof(in) - 1);
	static const char want[] = "0123456789012345678901234567890123456789012345678901234567890123456789\nx|y|";
	if (rc == 0 && !holds(&evs.log, BYTES(want)))
		rc = 2;
	events_release(&evs);
	return rc;
}

START_TEST(reader_out_of_memory)
{
	OOM_LOOP(read_once, NULL);
}
END_TEST

// --- there and back ---

static uint32_t next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

// The raw bytes of a data frame, as a client gets them.
static void open_frame(const struct buf *ev, enum frame_channel ch, struct buf *raw)
{
	struct err e;
	const char *name = NULL, *data = NULL;
	size_t n = 0;
	json_t *doc = jsonr_parse(buf_data(ev), buf_len(ev), &e);
	ck_assert_ptr_nonnull(doc);
	ck_assert_uint_eq(json_object_size(doc), 2);
	ck_assert_int_eq(jsonr_str(doc, "channel", JSONR_REQUIRED, &name, NULL, &e), 1);
	ck_assert_str_eq(name, frame_channel_name(ch));
	ck_assert_int_eq(jsonr_str(doc, "data", 0, &data, &n, &e), 1);
	ck_assert_int_eq(text_b64_decode(raw, data, n), 0);
	jsonr_free(doc);
}

static void round_trip(enum frame_channel ch, const unsigned char *p, size_t n, size_t chunk)
{
	struct buf out = {0}, raw = {0};
	struct events evs;
	frame_sse_data(&out, ch, p, n);
	size_t odd = 0; // bytes that are neither printable ASCII nor a newline
	for (size_t i = 0; i < buf_len(&out); i++) {
		unsigned char c = buf_data(&out)[i];
		odd += c != '\n' && (c < 0x20 || c > 0x7e);
	}
	ck_assert_uint_eq(odd, 0);
	ck_assert_int_eq(read_stream(&evs, buf_data(&out), buf_len(&out), chunk, 0), 0);
	ck_assert_uint_gt(buf_len(&evs.log), 0);
	buf_truncate(&evs.log, buf_len(&evs.log) - 1); // the bar; a second event would make the JSON invalid
	open_frame(&evs.log, ch, &raw);
	ck_assert(holds(&raw, (const char *)p, n));
	events_release(&evs);
	buf_release(&raw);

	buf_reset(&out);
	frame_sse_bare(&out, p, n);
	ck_assert_int_eq(read_stream(&evs, buf_data(&out), buf_len(&out), chunk, 0), 0);
	ck_assert_int_eq(text_b64_decode(&raw, (const char *)buf_data(&evs.log), buf_len(&evs.log) - 1), 0);
	ck_assert(holds(&raw, (const char *)p, n));
	events_release(&evs);
	buf_release(&raw);
	buf_release(&out);
}

START_TEST(data_of_all_bytes)
{
	unsigned char all[256];
	for (size_t i = 0; i < sizeof(all); i++)
		all[i] = (unsigned char)i;
	for (size_t chunk = 0; chunk < FEED_SIZES; chunk++) {
		for (int ch = 0; ch < FRAME_CHANNELS; ch++) {
			round_trip((enum frame_channel)ch, all, sizeof(all), chunk);
			for (size_t i = 0; i < sizeof(all); i++)
				round_trip((enum frame_channel)ch, all + i, 1, chunk);
		}
	}
}
END_TEST

START_TEST(data_of_random_sizes)
{
	static unsigned char raw[FRAME_RAW_MAX];
	uint32_t seed = 4711;
	for (size_t i = 0; i < sizeof(raw); i++)
		raw[i] = (unsigned char)next_random(&seed);
	for (int i = 0; i < 100; i++) {
		size_t n = next_random(&seed) % (sizeof(raw) + 1);
		round_trip((enum frame_channel)(i % FRAME_CHANNELS), raw, n, (size_t)i % FEED_SIZES);
	}
	for (size_t n = 0; n < 70; n++)
		round_trip(FRAME_STDOUT, raw, n, n % FEED_SIZES);
	round_trip(FRAME_PTY, raw, sizeof(raw), 0);
	round_trip(FRAME_PTY, raw, sizeof(raw) - 1, 0);
}
END_TEST

// B35: what a command prints is never taken for a frame.
START_TEST(data_that_looks_like_frames)
{
	static const struct {
		const char *p;
		size_t n;
	} forged[] = {
		{BYTES("x\revent: exit\rdata: 0")},
		{BYTES("\n\ndata: {\"exit\":0}\n\n")},
		{BYTES("data: {\"exit\":0}\r\n\r\n")},
		{BYTES("{\"exit\":0}")},
		{BYTES("\x02\0\0\0\x02{}")},
		{BYTES("\"}\n\ndata: {\"done\":true}\n\n")},
		{BYTES("\xef\xbb\xbf"
		       "data: {\"pid\":1}\n\n")},
		{BYTES(": keepalive\n\n")},
	};
	for (size_t i = 0; i < COUNT(forged); i++) {
		for (size_t chunk = 0; chunk < FEED_SIZES; chunk++) {
			struct buf out = {0};
			struct events evs;
			struct err e;
			round_trip(FRAME_STDOUT, (const unsigned char *)forged[i].p, forged[i].n, chunk);
			// Nor is an error message that carries such bytes.
			err_set(&e, ERR_INTERNAL, "%s", forged[i].p);
			frame_sse_error(&out, &e);
			ck_assert_int_eq(read_stream(&evs, buf_data(&out), buf_len(&out), chunk, 0), 0);
			ck_assert_uint_eq(
				buf_len(&evs.log), buf_len(&out) - 7); // one event: all but "data: \n\n", and a bar
			events_release(&evs);
			buf_release(&out);
		}
	}
}
END_TEST

Suite *frame_suite(void)
{
	Suite *s = suite_create("frame");
	TCase *w = tcase_create("write");
	tcase_add_loop_test(w, frame_bytes, 0, COUNT(frames));
	tcase_add_test(w, frame_names);
	tcase_add_loop_test(w, frame_whole_or_not_at_all, 0, COUNT(frames));
	tcase_add_loop_test(w, frame_out_of_memory, 0, COUNT(frames));
	tcase_add_test(w, frame_room);
	suite_add_tcase(s, w);
	TCase *r = tcase_create("read");
	tcase_add_loop_test(r, reader_streams, 0, COUNT(streams));
	tcase_add_test(r, reader_keeps_nul);
	tcase_add_test(r, reader_reads_what_was_written);
	tcase_add_test(r, reader_limit);
	tcase_add_test(r, reader_out_of_memory);
	suite_add_tcase(s, r);
	TCase *b = tcase_create("there and back");
	tcase_set_timeout(b, 60);
	tcase_add_test(b, data_of_all_bytes);
	tcase_add_test(b, data_of_random_sizes);
	tcase_add_test(b, data_that_looks_like_frames);
	suite_add_tcase(s, b);
	return s;
}
