// SPDX-License-Identifier: Apache-2.0
// Connect's envelopes: the same messages and the same refusal whatever the cuts; what the writer makes is one message.
#include "tests/fuzz/fuzz.h"

#include "proto/envelope.h"

#include <string.h>

#define MAX_PAYLOAD ((size_t)256 * 1024)

static void read_all(struct buf *out, const uint8_t *p, size_t n, size_t step, bool gzip)
{
	struct envelope_reader r;
	struct err e;
	size_t at = 0;
	int rc = 0;
	envelope_reader_init(&r, MAX_PAYLOAD, gzip);
	while (at < n && rc >= 0) {
		size_t used = 0, len = step && step < n - at ? step : n - at;
		rc = envelope_reader_feed(&r, p + at, len, &used, &e);
		FUZZ_CHECK(rc < 0 || used <= len);
		at += used;
		if (rc != 1)
			continue;
		FUZZ_CHECK(buf_len(&r.payload) <= MAX_PAYLOAD);
		buf_printf(out, "%zu|", buf_len(&r.payload));
		buf_append(out, buf_data(&r.payload), buf_len(&r.payload));
	}
	if (rc >= 0)
		rc = envelope_reader_end(&r, &e);
	buf_printf(out, "|%d %u %d", rc < 0 ? e.status : 0, r.messages, r.ended);
	envelope_reader_release(&r);
}

static void written(const uint8_t *p, size_t n, unsigned choice)
{
	struct buf out = {0}, got = {0};
	enum envelope_codec codec = choice & 8 ? ENVELOPE_PROTO : ENVELOPE_JSON;
	envelope_data(&out, codec, (enum frame_channel)(choice % FRAME_CHANNELS), p, n);
	FUZZ_CHECK(buf_len(&out) <= envelope_data_room(n));
	read_all(&got, (const uint8_t *)buf_data(&out), buf_len(&out), 0, false);
	buf_append(&got, "", 1);
	FUZZ_CHECK(!buf_failed(&got) && strcmp((const char *)buf_data(&got) + buf_len(&got) - 7, "|0 1 0") == 0);
	buf_release(&out);
	buf_release(&got);
}

int fuzz_envelope(const uint8_t *p, size_t n)
{
	struct buf a = {0}, b = {0};
	unsigned choice = fuzz_choice(&p, &n);
	read_all(&a, p, n, 0, choice & 16);
	read_all(&b, p, n, 1 + choice % 7, choice & 16);
	FUZZ_CHECK(buf_len(&a) == buf_len(&b) && memcmp(buf_data(&a), buf_data(&b), buf_len(&a)) == 0);
	buf_release(&a);
	buf_release(&b);
	if (n && n <= FRAME_RAW_MAX)
		written(p, n, choice);
	return 0;
}
