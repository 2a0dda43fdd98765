// SPDX-License-Identifier: Apache-2.0
// The reading half of json; check_jsonw.c has the writing half.
#include "oom.h"
#include "proto/json.h"
#include "suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES(lit) lit, sizeof(lit) - 1

static json_t *parse(const char *text)
{
	struct err e;
	json_t *doc = jsonr_parse(text, strlen(text), &e);
	ck_assert_msg(doc != NULL, "%.200s: %s", text, e.msg);
	return doc;
}

static void append_many(struct buf *b, const char *piece, size_t times)
{
	for (size_t i = 0; i < times; i++)
		buf_str(b, piece);
}

// --- reading ---

static const struct {
	const char *text;
	size_t n;
} invalid[] = {
	{BYTES("")},
	{BYTES(" ")},
	{BYTES("null")},
	{BYTES("true")},
	{BYTES("7")},
	{BYTES("\"x\"")},
	{BYTES("[]")},
	{BYTES("[{}]")},
	{BYTES("{")},
	{BYTES("}")},
	{BYTES("{}x")},
	{BYTES("{}{}")},
	{BYTES("{}\0")},
	{BYTES("\0{}")},
	{BYTES("{'a':1}")},
	{BYTES("{a:1}")},
	{BYTES("{\"a\":1,}")},
	{BYTES("{\"a\" 1}")},
	{BYTES("{\"a\":01}")},
	{BYTES("{\"a\":+1}")},
	{BYTES("{\"a\":.5}")},
	{BYTES("{\"a\":NaN}")},
	{BYTES("{\"a\":1e999}")},
	{BYTES("{\"a\":9223372036854775808}")},
	{BYTES("{\"a\":-9223372036854775809}")},
	{BYTES("{\"a\":123456789012345678901234567890}")},
	{BYTES("{\"a\":1,\"a\":1}")},
	{BYTES("{\"a\":{\"b\":1,\"c\":2,\"b\":null}}")},
	{BYTES("{\"a\":\"line\nbreak\"}")},
	{BYTES("{\"a\":\"nul\0raw\"}")},
	{BYTES("{\"a\\u0000b\":1}")},
	{BYTES("{\"a\":\"\\ud800\"}")},
	{BYTES("{\"a\":\"\\udc00\\ud800\"}")},
	{BYTES("{\"a\":\"\\x41\"}")},
	{BYTES("{\"a\":\"\\u00g0\"}")},
	{BYTES("{\"a\":\"\xff\"}")},
	{BYTES("{\"a\":\"\xc0\x80\"}")},
	{BYTES("{\"a\":\"\xed\xa0\x80\"}")},
	{BYTES("{\"a\":\"\xe2\x82\"}")},
	{BYTES("\xef\xbb\xbf{}")},
};

START_TEST(parse_refuses)
{
	struct err e;
	// Exactly as long as the text, so that a sanitizer sees every byte read beyond it.
	char *text = malloc(invalid[_i].n + 1);
	ck_assert_ptr_nonnull(text);
	char *end = text + 1;
	memcpy(end, invalid[_i].text, invalid[_i].n);
	ck_assert_msg(!jsonr_parse(end, invalid[_i].n, &e), "%s", invalid[_i].text);
	ck_assert_str_eq(e.msg, "invalid json");
	ck_assert_int_eq(e.status, 400);
	ck_assert_int_eq(e.code, ERR_INVALID_ARGUMENT);
	ck_assert_int_eq(e.sys, 0);
	ck_assert(!e.retryable);
	free(text);
}
END_TEST

START_TEST(parse_takes)
{
	static const char *const good[] = {"{}", " \t\r\n{ } \n", "{\"a\":{}}",
		"{\"a\":[1,2.5,null,true,\"x\"],\"b\":-0}", "{\"\":\"\"}",
		"{\"a\":9223372036854775807,\"b\":-9223372036854775808}"};
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
		jsonr_free(parse(good[i]));
	jsonr_free(NULL);
}
END_TEST

START_TEST(parse_each_prefix_of_a_text)
{
	static const char text[] = "{\"k\":[1,-2.5e3,true,null,\"\\u20ac\\n\xe2\x82\xac\"],\"o\":{\"p\":false}}";
	struct err e;
	for (size_t n = 0; n < sizeof(text) - 1; n++) {
		char *cut = malloc(n + 1);
		ck_assert_ptr_nonnull(cut);
		memcpy(cut + 1, text, n);
		ck_assert_ptr_null(jsonr_parse(cut + 1, n, &e));
		ck_assert_str_eq(e.msg, "invalid json");
		free(cut);
	}
	jsonr_free(parse(text));
}
END_TEST

START_TEST(parse_deep_nesting)
{
	static const struct {
		const char *open, *close;
		size_t depth;
		int status; // 0 = taken
	} cases[] = {{"[", "]", 400, 0}, {"{\"a\":", "}", 150, 0}, {"[", "]", 5000, 400}, {"[", "", 1000000, 400},
		{"{\"a\":", "", 1000000, 400}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf text = {0};
		struct err e = {.status = 0};
		BUF_LIT(&text, "{\"a\":");
		append_many(&text, cases[i].open, cases[i].depth);
		BUF_LIT(&text, "1");
		append_many(&text, cases[i].close, cases[i].depth);
		BUF_LIT(&text, "}");
		json_t *doc = jsonr_parse(buf_data(&text), buf_len(&text), &e);
		ck_assert_int_eq(e.status, cases[i].status);
		ck_assert(!doc == (cases[i].status != 0));
		jsonr_free(doc);
		buf_release(&text);
	}
}
END_TEST

// The number is just above a power of two, where jansson's doubling wastes most.
START_TEST(parse_large_strings)
{
	static const struct {
		const char *piece;
		size_t times, len;
	} cases[] = {{"0123456789abcde\xe2\x82\xac", 932068, 18 * 932068}, {"\\u0041", 1747627, 1747627}};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf text = {0};
		struct err e;
		const char *s = NULL;
		size_t n = 0;
		BUF_LIT(&text, "{\"content\":\"");
		append_many(&text, cases[i].piece, cases[i].times);
		BUF_LIT(&text, "\"}");
		json_t *doc = jsonr_parse(buf_data(&text), buf_len(&text), &e);
		ck_assert_ptr_nonnull(doc);
		ck_assert_int_eq(jsonr_str(doc, "content", JSONR_REQUIRED, &s, &n, &e), 1);
		ck_assert_uint_eq(n, cases[i].len);
		ck_assert_uint_eq(strlen(s), n);
		jsonr_free(doc);
		buf_release(&text);
	}
}
END_TEST

static void is_over_budget(const struct err *e)
{
	ck_assert_int_eq(e->status, 413);
	ck_assert_int_eq(e->code, ERR_RESOURCE_EXHAUSTED);
	ck_assert(!e->retryable);
}

START_TEST(parse_bounds_the_tree)
{
	static const char *const pieces[] = {"[],", "{},", "0,", "\"\",", "0.5,"};
	for (size_t i = 0; i < sizeof(pieces) / sizeof(pieces[0]); i++) {
		struct buf text = {0};
		struct err e;
		BUF_LIT(&text, "{\"a\":[");
		append_many(&text, pieces[i], 300000);
		BUF_LIT(&text, "0]}");
		ck_assert_ptr_null(jsonr_parse(buf_data(&text), buf_len(&text), &e));
		is_over_budget(&e);
		// The bound is for one document: the next one starts anew.
		for (int k = 0; k < 100; k++)
			jsonr_free(parse("{\"a\":[1,2,3]}"));
		buf_release(&text);
	}
}
END_TEST

// jansson 2.14 does not notice that its token buffer could not grow: that must happen at every place of a token.
START_TEST(parse_bound_met_inside_a_token)
{
	static const char *const tokens[] = {"\"%s\"", "1.%s", "0.%se-5", "{\"%s\":1}"};
	size_t taken = 0, refused = 0;
	char digits[20001];
	memset(digits, '1', sizeof(digits) - 1);
	digits[sizeof(digits) - 1] = '\0';
	for (size_t fill = 0; fill < 24000; fill += 229) {
		for (size_t t = 0; t < sizeof(tokens) / sizeof(tokens[0]); t++) {
			struct buf text = {0};
			struct err e;
			BUF_LIT(&text, "{\"a\":[");
			append_many(&text, "[],", fill);
			const char *hole = strstr(tokens[t], "%s");
			buf_append(&text, tokens[t], (size_t)(hole - tokens[t]));
			buf_str(&text, digits);
			buf_str(&text, hole + 2);
			BUF_LIT(&text, "]}");
			json_t *doc = jsonr_parse(buf_data(&text), buf_len(&text), &e);
			if (doc) {
				const json_t *list = json_object_get(doc, "a");
				ck_assert_uint_eq(json_array_size(list), fill + 1);
				if (t == 0)
					ck_assert_str_eq(json_string_value(json_array_get(list, fill)), digits);
				taken++;
			} else {
				is_over_budget(&e);
				refused++;
			}
			jsonr_free(doc);
			buf_release(&text);
		}
	}
	ck_assert_uint_gt(taken, 20);
	ck_assert_uint_gt(refused, 20);
}
END_TEST

START_TEST(parse_documents_do_not_share)
{
	struct err e;
	json_t *own = json_pack("{s:[i,s]}", "a", 1, "b"); // made outside of the reader
	json_t *one = parse("{\"a\":[1,2,{\"b\":\"c\"}]}");
	ck_assert_ptr_null(jsonr_parse("{\"a\":[1,", 8, &e));
	json_t *two = parse("{\"d\":\"e\"}");
	ck_assert_ptr_nonnull(own);
	json_t *kept = json_incref(json_object_get(one, "a"));
	jsonr_free(one);
	ck_assert_str_eq(json_string_value(json_object_get(two, "d")), "e");
	jsonr_free(two);
	ck_assert_uint_eq(json_array_size(kept), 3);
	ck_assert_int_eq(json_array_append_new(kept, json_string("more")), 0);
	json_decref(kept);
	json_decref(own);
}
END_TEST

static int parse_once(void *arg)
{
	static const char text[] = "{\"a\":[1,-2.25,true,{\"b\":\"a string that is longer than sixteen bytes\"}],"
				   "\"c\":12345678901234567,\"d\":1.00000000000000000000000000001,\"e\":false}";
	struct err e;
	(void)arg;
	json_t *doc = jsonr_parse(text, sizeof(text) - 1, &e);
	if (!doc)
		return e.status == 503 && e.code == ERR_RESOURCE_EXHAUSTED ? -e.sys : 1;
	const json_t *list = json_object_get(doc, "a");
	const char *s = json_string_value(json_object_get(json_array_get(list, 3), "b"));
	int rc = s && strcmp(s, "a string that is longer than sixteen bytes") == 0 ? 0 : 2;
	jsonr_free(doc);
	return rc;
}

START_TEST(parse_out_of_memory)
{
	OOM_LOOP(parse_once, NULL);
	ck_assert_int_gt(oom_count(), 20);
}
END_TEST

// --- getters ---

static const char fields[] = "{\"s\":\"text\",\"empty\":\"\",\"nul\":\"a\\u0000b\",\"i\":-7,\"whole\":5.0,\"half\":5.5,"
			     "\"big\":9223372036854775807,\"huge\":9.3e18,\"edge\":9223372036854775808.0,\"low\":-"
			     "9223372036854775808.0,\"null\":null,"
			     "\"yes\":true,\"no\":false,\"o\":{\"k\":1},\"l\":[]}";

START_TEST(get_strings)
{
	static const struct {
		const char *key;
		unsigned flags;
		int rc;
		const char *value, *msg;
	} cases[] = {
		{"s", 0, 1, "text", NULL},
		{"s", JSONR_REQUIRED | JSONR_NUL_OK, 1, "text", NULL},
		{"empty", 0, 1, "", NULL},
		{"empty", JSONR_REQUIRED, -1, NULL, "empty required"},
		{"command", 0, 0, NULL, NULL},
		{"command", JSONR_REQUIRED, -1, NULL, "command required"},
		{"path", JSONR_REQUIRED, -1, NULL, "path required"},
		{"null", 0, 0, NULL, NULL},
		{"null", JSONR_REQUIRED, -1, NULL, "null required"},
		{"nul", JSONR_NUL_OK, 1, "a", NULL},
		{"nul", 0, -1, NULL, "nul must not contain NUL"},
		{"i", 0, -1, NULL, "i must be a string"},
		{"yes", JSONR_REQUIRED, -1, NULL, "yes must be a string"},
		{"o", 0, -1, NULL, "o must be a string"},
		{"l", 0, -1, NULL, "l must be a string"},
	};
	json_t *doc = parse(fields);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *untouched = "untouched", *s = untouched;
		size_t n = 99;
		struct err e = {.msg = ""};
		ck_assert_int_eq(jsonr_str(doc, cases[i].key, cases[i].flags, &s, &n, &e), cases[i].rc);
		ck_assert_str_eq(s, cases[i].value ? cases[i].value : untouched);
		ck_assert_str_eq(e.msg, cases[i].msg ? cases[i].msg : "");
		ck_assert_int_eq(e.status, cases[i].msg ? 400 : 0);
		if (cases[i].rc < 1)
			ck_assert_uint_eq(n, 99);
		else
			ck_assert_uint_eq(n, strcmp(cases[i].key, "nul") == 0 ? 3 : strlen(s));
		ck_assert_int_eq(jsonr_str(doc, cases[i].key, cases[i].flags, &s, NULL, &e), cases[i].rc);
	}
	jsonr_free(doc);
}
END_TEST

START_TEST(get_integers)
{
	static const struct {
		const char *key;
		unsigned flags;
		int64_t min, max;
		int rc;
		int64_t value;
		const char *msg;
	} cases[] = {
		{"i", 0, INT64_MIN, INT64_MAX, 1, -7, NULL},
		{"i", 0, -7, -7, 1, -7, NULL},
		{"i", 0, 0, 10, -1, 0, "i must be from 0 to 10"},
		{"i", 0, -100, -8, -1, 0, "i must be from -100 to -8"},
		{"whole", 0, 1, 5, 1, 5, NULL},
		{"whole", 0, 1, 4, -1, 0, "whole must be from 1 to 4"},
		{"half", 0, 1, 9, -1, 0, "half must be an integer"},
		{"big", 0, INT64_MIN, INT64_MAX, 1, INT64_MAX, NULL},
		{"huge", 0, INT64_MIN, INT64_MAX, -1, 0,
			"huge must be from -9223372036854775808 to 9223372036854775807"},
		{"edge", 0, INT64_MIN, INT64_MAX, -1, 0,
			"edge must be from -9223372036854775808 to 9223372036854775807"},
		{"low", 0, INT64_MIN, INT64_MAX, 1, INT64_MIN, NULL},
		{"s", 0, 0, 1, -1, 0, "s must be an integer"},
		{"yes", 0, 0, 1, -1, 0, "yes must be an integer"},
		{"pid", 0, 0, 1, 0, 0, NULL},
		{"pid", JSONR_REQUIRED, 0, 1, -1, 0, "pid required"},
		{"null", 0, 0, 1, 0, 0, NULL},
		{"null", JSONR_REQUIRED, 0, 1, -1, 0, "null required"},
	};
	json_t *doc = parse(fields);
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int64_t v = 4242;
		struct err e = {.msg = ""};
		int rc = jsonr_int(doc, cases[i].key, cases[i].flags, cases[i].min, cases[i].max, &v, &e);
		ck_assert_int_eq(rc, cases[i].rc);
		ck_assert_int_eq(v, rc == 1 ? cases[i].value : 4242);
		ck_assert_str_eq(e.msg, cases[i].msg ? cases[i].msg : "");
	}
	jsonr_free(doc);
}
END_TEST

START_TEST(get_numbers)
{
	json_t *doc = parse(fields);
	struct err e;
	double v = 42;
	ck_assert_int_eq(jsonr_num(doc, "half", 0, 0, 10, &v, &e), 1);
	ck_assert_double_eq(v, 5.5);
	ck_assert_int_eq(jsonr_num(doc, "i", 0, -10, 10, &v, &e), 1);
	ck_assert_double_eq(v, -7);
	ck_assert_int_eq(jsonr_num(doc, "gone", 0, 0, 10, &v, &e), 0);
	ck_assert_int_eq(jsonr_num(doc, "gone", JSONR_REQUIRED, 0, 10, &v, &e), -1);
	ck_assert_str_eq(e.msg, "gone required");
	ck_assert_int_eq(jsonr_num(doc, "s", 0, 0, 10, &v, &e), -1);
	ck_assert_str_eq(e.msg, "s must be a number");
	ck_assert_int_eq(jsonr_num(doc, "i", 0, 0, 86400.5, &v, &e), -1);
	ck_assert_str_eq(e.msg, "i must be from 0 to 86400.5");
	ck_assert_double_eq(v, -7);
	jsonr_free(doc);
}
END_TEST

START_TEST(get_booleans_and_objects)
{
	json_t *doc = parse(fields);
	struct err e;
	bool b = false;
	ck_assert_int_eq(jsonr_bool(doc, "yes", 0, &b, &e), 1);
	ck_assert(b);
	ck_assert_int_eq(jsonr_bool(doc, "gone", 0, &b, &e), 0);
	ck_assert_int_eq(jsonr_bool(doc, "null", 0, &b, &e), 0);
	ck_assert(b);
	ck_assert_int_eq(jsonr_bool(doc, "no", JSONR_REQUIRED, &b, &e), 1);
	ck_assert(!b);
	ck_assert_int_eq(jsonr_bool(doc, "gone", JSONR_REQUIRED, &b, &e), -1);
	ck_assert_str_eq(e.msg, "gone required");
	ck_assert_int_eq(jsonr_bool(doc, "i", 0, &b, &e), -1);
	ck_assert_str_eq(e.msg, "i must be a boolean");

	const json_t *o = NULL;
	int64_t k = 0;
	ck_assert_int_eq(jsonr_obj(doc, "null", 0, &o, &e), 0);
	ck_assert_ptr_null(o);
	ck_assert_int_eq(jsonr_obj(doc, "o", 0, &o, &e), 1);
	ck_assert_int_eq(jsonr_int(o, "k", JSONR_REQUIRED, 1, 1, &k, &e), 1);
	ck_assert_int_eq(jsonr_obj(doc, "l", 0, &o, &e), -1);
	ck_assert_str_eq(e.msg, "l must be an object");
	ck_assert_int_eq(jsonr_obj(doc, "env", JSONR_REQUIRED, &o, &e), -1);
	ck_assert_str_eq(e.msg, "env required");
	jsonr_free(doc);
}
END_TEST

Suite *json_suite(void)
{
	Suite *s = suite_create("json");
	TCase *r = tcase_create("read");
	tcase_set_timeout(r, 60);
	tcase_add_loop_test(r, parse_refuses, 0, sizeof(invalid) / sizeof(invalid[0]));
	tcase_add_test(r, parse_takes);
	tcase_add_test(r, parse_each_prefix_of_a_text);
	tcase_add_test(r, parse_deep_nesting);
	tcase_add_test(r, parse_large_strings);
	tcase_add_test(r, parse_bounds_the_tree);
	tcase_add_test(r, parse_bound_met_inside_a_token);
	tcase_add_test(r, parse_documents_do_not_share);
	tcase_add_test(r, parse_out_of_memory);
	tcase_add_test(r, get_strings);
	tcase_add_test(r, get_integers);
	tcase_add_test(r, get_numbers);
	tcase_add_test(r, get_booleans_and_objects);
	suite_add_tcase(s, r);
	return s;
}
