// SPDX-License-Identifier: Apache-2.0
// Event streams: the same events whatever the cuts; what our own writer makes comes back as it was.
#include "tests/fuzz/fuzz.h"

#include "proto/frame.h"
#include "proto/json.h"
#include "proto/text.h"

#include <string.h>

static size_t read_all(struct buf *out, const void *p, size_t n, size_t step)
{
	struct frame_reader r;
	const struct buf *ev;
	size_t count = 0, at = 0;
	int rc = 0;
	frame_reader_init(&r, 1024 * 1024);
	while (at < n && rc >= 0) {
		size_t used = 0, len = step && step < n - at ? step : n - at;
		rc = frame_reader_feed(&r, (const char *)p + at, len, &used, &ev);
		FUZZ_CHECK(rc < 0 || used <= len);
		at += used;
		if (rc == 1) {
			buf_append(out, buf_data(ev), buf_len(ev));
			buf_append(out, "\n|", 2);
			count++;
		}
	}
	buf_printf(out, "%d", rc < 0);
	frame_reader_release(&r);
	return count;
}

static void written(const uint8_t *p, size_t n, enum frame_channel ch)
{
	struct buf out = {0}, got = {0}, data = {0};
	struct err e;
	frame_sse_data(&out, ch, p, n);
	FUZZ_CHECK(buf_len(&out) <= frame_sse_room(n));
	FUZZ_CHECK(read_all(&got, buf_data(&out), buf_len(&out), 0) == 1);
	json_t *doc = jsonr_parse(buf_data(&got), buf_len(&got) - 3, &e);
	FUZZ_CHECK(doc);
	const json_t *v = json_object_get(doc, "data");
	FUZZ_CHECK(strcmp(json_string_value(json_object_get(doc, "channel")), frame_channel_name(ch)) == 0);
	FUZZ_CHECK(text_b64_decode(&data, json_string_value(v), json_string_length(v)) == 0);
	FUZZ_CHECK(buf_len(&data) == n && memcmp(buf_data(&data), p, n) == 0);
	jsonr_free(doc);
	buf_release(&out);
	buf_release(&got);
	buf_release(&data);
}

int fuzz_frame(const uint8_t *p, size_t n)
{
	struct buf a = {0}, b = {0};
	unsigned choice = fuzz_choice(&p, &n);
	size_t whole = read_all(&a, p, n, 0);
	size_t cut = read_all(&b, p, n, 1 + choice % 7);
	FUZZ_CHECK(whole == cut && buf_len(&a) == buf_len(&b) && memcmp(buf_data(&a), buf_data(&b), buf_len(&a)) == 0);
	buf_release(&a);
	buf_release(&b);
	if (n && n <= FRAME_RAW_MAX)
		written(p, n, (enum frame_channel)(choice % FRAME_CHANNELS));
	return 0;
}
