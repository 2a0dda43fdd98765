// SPDX-License-Identifier: Apache-2.0
// The writing half of json; check_json.c has the reading half.
#include "oom.h"
#include "proto/json.h"
#include "proto/text.h"
#include "suites.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BYTES(lit) lit, sizeof(lit) - 1

static void is_bytes(const struct buf *out, const char *want, size_t n)
{
	ck_assert_int_eq(buf_failed(out), 0);
	ck_assert_msg(buf_len(out) == n && memcmp(buf_data(out), want, n) == 0, "got %.*s, not %s", (int)buf_len(out),
		(const char *)buf_data(out), want);
}

static void is_text(const struct buf *out, const char *want)
{
	is_bytes(out, want, strlen(want));
}

// A repeatable sequence of numbers.
static uint32_t next_random(uint32_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 17;
	*state ^= *state << 5;
	return *state;
}

static void write_all_kinds(struct jsonw *w)
{
	jsonw_obj(w);
	jsonw_kstr(w, "s", "x");
	jsonw_kint(w, "i", INT64_MIN);
	jsonw_kbool(w, "t", true);
	jsonw_key(w, "a");
	jsonw_arr(w);
	jsonw_int(w, 1);
	jsonw_bool(w, false);
	jsonw_null(w);
	jsonw_arr(w);
	jsonw_arr_end(w);
	jsonw_obj(w);
	jsonw_obj_end(w);
	jsonw_cstr(w, "y");
	jsonw_b64(w, "hi\n", 3);
	jsonw_raw(w, BYTES("{\"raw\":[]}"));
	jsonw_num(w, 0.5);
	jsonw_arr_end(w);
	jsonw_key(w, "k\"");
	jsonw_null(w);
	jsonw_key(w, "o");
	jsonw_obj(w);
	jsonw_kstr(w, "b", "");
	jsonw_obj_end(w);
	jsonw_kint(w, "z", 0);
	jsonw_obj_end(w);
}

static const char all_kinds[] =
	"{\"s\":\"x\",\"i\":-9223372036854775808,\"t\":true,\"a\":[1,false,null,[],{},\"y\",\"aGkK\","
	"{\"raw\":[]},0.5],\"k\\\"\":null,\"o\":{\"b\":\"\"},\"z\":0}";

START_TEST(write_structure)
{
	struct buf out = {0};
	struct jsonw w;
	jsonw_init(&w, &out);
	write_all_kinds(&w);
	is_text(&out, all_kinds);
	json_t *doc = json_loadb(all_kinds, sizeof(all_kinds) - 1, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_ptr_nonnull(doc);
	json_decref(doc);
	buf_release(&out);
}
END_TEST

START_TEST(write_63_levels)
{
	struct buf out = {0};
	struct jsonw w;
	jsonw_init(&w, &out);
	for (int i = 0; i < 63; i++) {
		jsonw_arr(&w);
		jsonw_int(&w, i);
	}
	for (int i = 0; i < 63; i++) {
		jsonw_arr_end(&w);
		if (i < 62)
			jsonw_null(&w);
	}
	json_t *doc = json_loadb((const char *)buf_data(&out), buf_len(&out), 0, NULL);
	ck_assert_ptr_nonnull(doc);
	ck_assert_uint_eq(json_array_size(doc), 3);
	json_decref(doc);
	buf_release(&out);
}
END_TEST

START_TEST(write_each_ascii_byte)
{
	static const char want[] =
		"\"\\u0000\\u0001\\u0002\\u0003\\u0004\\u0005\\u0006\\u0007\\b\\t\\n\\u000b\\f\\r\\u000e\\u000f"
		"\\u0010\\u0011\\u0012\\u0013\\u0014\\u0015\\u0016\\u0017\\u0018\\u0019\\u001a\\u001b\\u001c\\u001d\\u0"
		"01e\\u001f"
		" !\\\"#$%&'()*+,-./"
		"0123456789:;<=>?@ABCDEFGHIJKLMNOPQRSTUVWXYZ[\\\\]^_`abcdefghijklmnopqrstuvwxyz{|}~\x7f\"";
	for (int ascii = 0; ascii < 2; ascii++) {
		struct buf out = {0};
		struct jsonw w;
		unsigned char all[128];
		for (size_t i = 0; i < sizeof(all); i++)
			all[i] = (unsigned char)i;
		jsonw_init(&w, &out);
		w.ascii = ascii;
		jsonw_str(&w, all, sizeof(all));
		is_bytes(&out, BYTES(want));
		buf_release(&out);
	}
}
END_TEST

static const struct {
	const char *in;
	size_t n;
	const char *utf8, *ascii;
} texts[] = {
	{BYTES(""), "\"\"", "\"\""},
	{BYTES("gr\xc3\xbc\xc3\x9f"), "\"gr\xc3\xbc\xc3\x9f\"", "\"gr\\u00fc\\u00df\""},
	{BYTES("\xe2\x82\xac!"), "\"\xe2\x82\xac!\"", "\"\\u20ac!\""},
	{BYTES("\xef\xbf\xbf"), "\"\xef\xbf\xbf\"", "\"\\uffff\""},
	{BYTES("\xf0\x90\x80\x80"), "\"\xf0\x90\x80\x80\"", "\"\\ud800\\udc00\""},
	{BYTES("\xf0\x9f\x98\x80"), "\"\xf0\x9f\x98\x80\"", "\"\\ud83d\\ude00\""},
	{BYTES("\xf4\x8f\xbf\xbf"), "\"\xf4\x8f\xbf\xbf\"", "\"\\udbff\\udfff\""},
	{BYTES("a\xff\xfe\x80z"), "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\"", "\"a\\ufffd\\ufffd\\ufffdz\""},
	{BYTES("\xe2\x82"), "\"\xef\xbf\xbd\"", "\"\\ufffd\""},
	{BYTES("\xe2\x82\n\xac"), "\"\xef\xbf\xbd\\n\xef\xbf\xbd\"", "\"\\ufffd\\n\\ufffd\""},
	{BYTES("\xc0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\"", "\"\\ufffd\\ufffd\""},
	{BYTES("\xed\xa0\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"", "\"\\ufffd\\ufffd\\ufffd\""},
	{BYTES("\xf0\x9f\x98\""), "\"\xef\xbf\xbd\\\"\"", "\"\\ufffd\\\"\""},
	{BYTES("\xf4\x90\x80\x80"), "\"\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"",
		"\"\\ufffd\\ufffd\\ufffd\\ufffd\""},
};

START_TEST(write_text)
{
	struct buf out = {0};
	struct jsonw w;
	jsonw_init(&w, &out);
	jsonw_str(&w, texts[_i].in, texts[_i].n);
	is_text(&out, texts[_i].utf8);
	buf_reset(&out);
	w.ascii = true;
	jsonw_str(&w, texts[_i].in, texts[_i].n);
	is_text(&out, texts[_i].ascii);
	buf_release(&out);
}
END_TEST

// Bytes that often form characters, or nearly do.
static void random_bytes(unsigned char *p, size_t n, uint32_t *seed)
{
	static const unsigned char edges[] = {0, '\n', '"', '\\', 'a', 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc1,
		0xc2, 0xdf, 0xe0, 0xed, 0xef, 0xf0, 0xf4, 0xf5, 0xff};
	uint32_t kind = next_random(seed) % 3;
	for (size_t i = 0; i < n; i++) {
		uint32_t r = next_random(seed);
		p[i] = kind == 0   ? (unsigned char)r
		       : kind == 1 ? edges[r % sizeof(edges)]
				   : (unsigned char)(0x80 | r % 128);
	}
}

START_TEST(write_random_bytes_read_back)
{
	uint32_t seed = 20240611;
	for (int round = 0; round < 20000; round++) {
		unsigned char in[48];
		size_t n = next_random(&seed) % (sizeof(in) + 1);
		random_bytes(in, n, &seed);
		struct buf out = {0}, want = {0};
		struct text_tail tail = {.n = 0};
		struct jsonw w;
		text_utf8_repair(&want, &tail, in, n, true, NULL);
		jsonw_init(&w, &out);
		w.ascii = round % 2;
		jsonw_arr(&w);
		jsonw_str(&w, in, n);
		jsonw_arr_end(&w);
		size_t beyond = 0;
		for (size_t i = 0; i < buf_len(&out); i++)
			beyond += buf_data(&out)[i] >= 0x80;
		ck_assert(!w.ascii || beyond == 0);
		json_t *doc = json_loadb((const char *)buf_data(&out), buf_len(&out), JSON_ALLOW_NUL, NULL);
		ck_assert_ptr_nonnull(doc);
		const json_t *got = json_array_get(doc, 0);
		ck_assert_uint_eq(json_string_length(got), buf_len(&want));
		ck_assert_int_eq(memcmp(json_string_value(got), buf_data(&want), buf_len(&want)), 0);
		json_decref(doc);
		buf_release(&out);
		buf_release(&want);
	}
}
END_TEST

START_TEST(write_numbers)
{
	static const struct {
		double v;
		const char *text;
	} cases[] = {{0, "0"}, {5, "5"}, {-2.5, "-2.5"}, {0.1, "0.1"}, {1.0 / 3, "0.3333333333333333"},
		{1e300, "1e+300"}, {5e-324, "5e-324"}, {1.7976931348623157e308, "1.7976931348623157e+308"},
		{1718000000.123, "1718000000.123"}, {9007199254740993.0, "9007199254740992"}};
	uint32_t seed = 77;
	struct buf out = {0};
	struct jsonw w;
	jsonw_init(&w, &out);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		buf_reset(&out);
		jsonw_num(&w, cases[i].v);
		is_text(&out, cases[i].text);
	}
	for (int i = 0; i < 20000; i++) {
		uint64_t bits = (uint64_t)next_random(&seed) << 32 | next_random(&seed);
		double v;
		memcpy(&v, &bits, sizeof(v));
		if (!isfinite(v))
			continue;
		buf_reset(&out);
		jsonw_num(&w, v);
		ck_assert_double_eq(strtod(buf_cstr(&out), NULL), v);
	}
	buf_release(&out);
}
END_TEST

START_TEST(write_base64)
{
	struct buf out = {0}, back = {0};
	struct jsonw w;
	unsigned char all[256];
	for (size_t i = 0; i < sizeof(all); i++)
		all[i] = (unsigned char)i;
	jsonw_init(&w, &out);
	jsonw_b64(&w, all, sizeof(all));
	const char *text = (const char *)buf_data(&out);
	ck_assert_uint_eq(buf_len(&out), text_b64_len(sizeof(all)) + 2);
	ck_assert(text[0] == '"' && text[buf_len(&out) - 1] == '"');
	ck_assert_int_eq(text_b64_decode(&back, text + 1, buf_len(&out) - 2), 0);
	is_bytes(&back, (const char *)all, sizeof(all));
	buf_reset(&out);
	jsonw_b64(&w, "", 0);
	is_text(&out, "\"\"");
	buf_release(&out);
	buf_release(&back);
}
END_TEST

START_TEST(write_error_bodies)
{
	struct buf out = {0};
	struct err e;
	err_set(&e, ERR_INVALID_ARGUMENT, "command required");
	json_error_body(&out, &e);
	is_text(&out, "{\"error\":\"command required\",\"code\":\"invalid_argument\",\"retryable\":false}");
	buf_reset(&out);
	err_sys(&e, -ENOENT, "%s", "a\"\xc3\xa4");
	json_error_body(&out, &e);
	is_text(&out,
		"{\"error\":\"a\\\"\xc3\xa4: No such file or directory\",\"code\":\"not_found\",\"retryable\":false,"
		"\"errno\":\"ENOENT\"}");
	buf_reset(&out);
	err_set(&e, ERR_UNAVAILABLE, "stopping");
	e.reason = "sandbox_terminating";
	json_error_body(&out, &e);
	is_text(&out, "{\"error\":\"stopping\",\"code\":\"unavailable\",\"retryable\":true,\"reason\":\"sandbox_"
		      "terminating\"}");
	buf_release(&out);
}
END_TEST

static int write_once(void *arg)
{
	struct buf out = {0};
	struct jsonw w;
	(void)arg;
	jsonw_init(&w, &out);
	write_all_kinds(&w);
	int rc = buf_failed(&out);
	if (!rc && (buf_len(&out) != sizeof(all_kinds) - 1 || memcmp(buf_data(&out), BYTES(all_kinds)) != 0))
		rc = 1;
	buf_release(&out);
	return rc;
}

START_TEST(write_out_of_memory)
{
	OOM_LOOP(write_once, NULL);
	ck_assert_int_ge(oom_count(), 2);
}
END_TEST

START_TEST(write_over_the_limit)
{
	for (size_t max = 1; max <= sizeof(all_kinds); max++) {
		struct buf out;
		struct jsonw w;
		buf_init(&out, max);
		jsonw_init(&w, &out);
		write_all_kinds(&w);
		ck_assert_int_eq(buf_failed(&out), max < sizeof(all_kinds) - 1 ? -EMSGSIZE : 0);
		buf_release(&out);
	}
}
END_TEST

// Each byte at each place of strings of each small length, where what looks at several bytes at once might miss it.
START_TEST(write_each_byte_at_each_place)
{
	char text[20];
	for (size_t n = 1; n <= sizeof text; n++) {
		for (size_t at = 0; at < n * 256; at++) {
			unsigned char c = (unsigned char)(at % 256);
			bool plain = c >= 0x20 && c < 0x80 && c != '"' && c != '\\';
			bool html = c == '<' || c == '>' || c == '&';
			struct buf out = {0};
			struct jsonw w;
			memset(text, 'x', n);
			text[at / 256] = (char)c;
			for (int page = 0; page < 2; page++) {
				buf_reset(&out);
				jsonw_init(&w, &out);
				w.html = page;
				jsonw_str(&w, text, n);
				bool same = buf_len(&out) == n + 2 && memcmp(buf_data(&out) + 1, text, n) == 0;
				ck_assert_msg(
					same == (plain && !(page && html)), "byte %d at %zu of %zu", c, at / 256, n);
			}
			buf_release(&out);
		}
	}
}
END_TEST

Suite *jsonw_suite(void)
{
	Suite *s = suite_create("jsonw");
	TCase *w = tcase_create("write");
	tcase_set_timeout(w, 60);
	tcase_add_test(w, write_structure);
	tcase_add_test(w, write_63_levels);
	tcase_add_test(w, write_each_ascii_byte);
	tcase_add_test(w, write_each_byte_at_each_place);
	tcase_add_loop_test(w, write_text, 0, sizeof(texts) / sizeof(texts[0]));
	tcase_add_test(w, write_random_bytes_read_back);
	tcase_add_test(w, write_numbers);
	tcase_add_test(w, write_base64);
	tcase_add_test(w, write_error_bodies);
	tcase_add_test(w, write_out_of_memory);
	tcase_add_test(w, write_over_the_limit);
	suite_add_tcase(s, w);
	return s;
}
