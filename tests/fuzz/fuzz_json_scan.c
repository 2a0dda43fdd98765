// SPDX-License-Identifier: Apache-2.0
// The scan for one large string: where it says that it found it, jansson finds the same string, however the text was cut.
#include "tests/fuzz/fuzz.h"

#include "proto/json.h"
#include "proto/json_scan.h"

#include <string.h>

static void scan(struct json_scan *s, const uint8_t *p, size_t n, size_t step)
{
	json_scan_init(s, "content");
	for (size_t at = 0; at < n; at += step)
		json_scan_feed(s, (const char *)p + at, step < n - at ? step : n - at);
}

// 0, or what json_unescape says.
static int decode(struct buf *out, const uint8_t *p, size_t n, size_t step)
{
	struct json_unescape u = {0};
	int rc = 0;
	for (size_t at = 0; rc == 0 && at < n; at += step)
		rc = json_unescape(&u, out, (const char *)p + at, step < n - at ? step : n - at);
	return rc < 0 ? rc : json_unescape_end(&u);
}

int fuzz_json_scan(const uint8_t *p, size_t n)
{
	struct json_scan whole, cut;
	struct buf a = {0}, b = {0};
	struct err e;
	size_t step = 1 + fuzz_choice(&p, &n) % 7;
	scan(&whole, p, n, n ? n : 1);
	scan(&cut, p, n, step);
	FUZZ_CHECK(whole.found == cut.found);
	json_t *doc = jsonr_parse(p, n, &e);
	const json_t *v = doc ? json_object_get(doc, "content") : NULL;
	// A key written with escapes or too long for the scan is left to jansson.
	if (whole.found) {
		FUZZ_CHECK(whole.from <= whole.to && whole.to <= n && whole.from == cut.from && whole.to == cut.to);
		int ra = decode(&a, p + whole.from, whole.to - whole.from, n ? n : 1);
		int rb = decode(&b, p + whole.from, whole.to - whole.from, step);
		FUZZ_CHECK(ra == rb);
		if (ra == 0)
			FUZZ_CHECK(buf_len(&a) == buf_len(&b) && memcmp(buf_data(&a), buf_data(&b), buf_len(&a)) == 0);
		if (json_is_string(v)) {
			FUZZ_CHECK(ra == 0 && json_string_length(v) == buf_len(&a));
			FUZZ_CHECK(memcmp(json_string_value(v), buf_data(&a), buf_len(&a)) == 0);
		}
	}
	jsonr_free(doc);
	buf_release(&a);
	buf_release(&b);
	return 0;
}
