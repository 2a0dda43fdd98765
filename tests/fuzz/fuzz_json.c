// SPDX-License-Identifier: Apache-2.0
// JSON: what is taken has bounded memory; a string that was read and is written again reads back the same.
#include "tests/fuzz/fuzz.h"

#include "proto/buf.h"
#include "proto/json.h"
#include "proto/text.h"

#include <string.h>

static void rewrite(const char *key, const json_t *v)
{
	struct buf out = {0};
	struct jsonw w;
	struct err e;
	size_t n = json_string_length(v);
	jsonw_init(&w, &out);
	w.ascii = n & 1;
	w.html = n & 2;
	jsonw_obj(&w);
	jsonw_key(&w, key);
	jsonw_str(&w, json_string_value(v), n);
	jsonw_obj_end(&w);
	FUZZ_CHECK(!buf_failed(&out));
	json_t *again = jsonr_parse(buf_data(&out), buf_len(&out), &e);
	FUZZ_CHECK(again);
	const json_t *got = json_object_get(again, key);
	FUZZ_CHECK(json_string_length(got) == n && memcmp(json_string_value(got), json_string_value(v), n) == 0);
	jsonr_free(again);
	buf_release(&out);
}

int fuzz_json(const uint8_t *p, size_t n)
{
	static const unsigned flags[] = {0, JSONR_REQUIRED, JSONR_NUL_OK, JSONR_REQUIRED | JSONR_NUL_OK};
	struct err e;
	unsigned f = flags[fuzz_choice(&p, &n) % 4];
	json_t *doc = jsonr_parse(p, n, &e);
	if (!doc) {
		FUZZ_CHECK(e.status >= 400 && text_utf8_valid(e.msg, strlen(e.msg)));
		return 0;
	}
	const char *key, *s;
	json_t *v;
	json_object_foreach(doc, key, v)
	{
		int64_t i = 0;
		double d = 0;
		bool b;
		size_t len;
		const json_t *o;
		(void)jsonr_str(doc, key, f, &s, &len, &e);
		if (jsonr_int(doc, key, f, -1000, 1000, &i, &e) == 1)
			FUZZ_CHECK(i >= -1000 && i <= 1000);
		if (jsonr_num(doc, key, f, 0, 1e9, &d, &e) == 1)
			FUZZ_CHECK(d >= 0 && d <= 1e9);
		(void)jsonr_bool(doc, key, f, &b, &e);
		(void)jsonr_obj(doc, key, f, &o, &e);
		if (json_is_string(v))
			rewrite(key, v);
	}
	jsonr_free(doc);
	return 0;
}
