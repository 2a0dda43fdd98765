// SPDX-License-Identifier: Apache-2.0
// multipart/form-data: the same parts whatever the cuts, memory that does not grow with the body; and parameters of headers.
#include "tests/fuzz/fuzz.h"

#include "proto/multipart.h"

#include <string.h>

static void note(struct buf *out, const char *what, const struct buf *b)
{
	buf_printf(out, "%s %zu:", what, buf_len(b));
	buf_append(out, buf_data(b), buf_len(b));
}

static void read_all(struct buf *out, const char *type, const uint8_t *p, size_t n, size_t step)
{
	struct multipart m;
	struct err e;
	size_t at = 0;
	int ev = multipart_init(&m, type, strlen(type), &e);
	FUZZ_CHECK(ev == 0);
	while (ev >= 0) {
		size_t used = 0, len = step && step < n - at ? step : n - at;
		ev = multipart_feed(&m, p + at, len, &used, &e);
		FUZZ_CHECK(ev < 0 || used <= len);
		at += used;
		if (ev == MULTIPART_PART) {
			note(out, "\npart", &m.name);
			note(out, m.has_filename ? "file" : "none", &m.filename);
			note(out, "type", &m.type);
		}
		if (ev == MULTIPART_DATA)
			buf_append(out, m.data, m.data_n);
		if (ev == MULTIPART_PART_END)
			buf_str(out, "\nend");
		if (ev == MULTIPART_MORE && at == n)
			break;
	}
	if (ev >= 0)
		ev = multipart_end(&m, &e);
	buf_printf(out, "\n%d", ev < 0 ? e.status : 0);
	multipart_release(&m);
}

int fuzz_multipart(const uint8_t *p, size_t n)
{
	struct buf a = {0}, b = {0};
	struct multipart m;
	struct err e;
	unsigned choice = fuzz_choice(&p, &n);
	read_all(&a, "multipart/form-data; boundary=XyZ", p, n, 0);
	read_all(&b, "multipart/form-data; boundary=XyZ", p, n, 1 + choice % 7);
	FUZZ_CHECK(buf_len(&a) == buf_len(&b) && memcmp(buf_data(&a), buf_data(&b), buf_len(&a)) == 0);
	buf_release(&a);
	buf_release(&b);
	// The same bytes as a header.
	if (multipart_init(&m, (const char *)p, n, &e) < 0)
		FUZZ_CHECK(e.status >= 400);
	multipart_release(&m);
	(void)multipart_param(&a, (const char *)p, n, "filename");
	(void)multipart_param(&a, (const char *)p, n, "name");
	buf_release(&a);
	return 0;
}
