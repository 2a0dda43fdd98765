// SPDX-License-Identifier: Apache-2.0
#include "feed.h"
#include "oom.h"
#include "proto/json.h"
#include "proto/json_scan.h"
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>

static int take_scan(void *arg, const unsigned char *p, size_t n)
{
	json_scan_feed(arg, (const char *)p, n);
	return 0;
}

struct decoding {
	struct json_unescape u;
	struct buf out;
};

static int take_unescape(void *arg, const unsigned char *p, size_t n)
{
	struct decoding *d = arg;
	return json_unescape(&d->u, &d->out, (const char *)p, n);
}

// Decodes N bytes of a string's inside in chunks: 0 and D->out, or negative errno. The caller releases D->out.
static int decode(struct decoding *d, const char *p, size_t n, size_t chunk)
{
	*d = (struct decoding){.u = {.n = 0}};
	int rc = feed(p, n, chunk, take_unescape, d);
	return rc < 0 ? rc : json_unescape_end(&d->u);
}

static struct json_scan scan(const char *text, size_t n, size_t chunk)
{
	struct json_scan s;
	json_scan_init(&s, "content");
	ck_assert_int_eq(feed(text, n, chunk, take_scan, &s), 0);
	return s;
}

// --- finding ---

static const struct find {
	const char *text;
	const char *inside; // NULL = not found
} finds[] = {
	{"{\"content\":\"abc\"}", "abc"},
	{"{\"content\":\"\"}", ""},
	{" { \"a\" : 1 , \"content\"\n:\t\r \"x\\\"y\\\\\" , \"b\":2}", "x\\\"y\\\\"},
	{"{\"a\":{\"content\":\"no\"},\"content\":\"yes\"}", "yes"},
	{"{\"a\":[\"content\",{\"content\":\"no\"}],\"b\":\"content\"}", NULL},
	{"{\"a\":\"content\",\"content\":\"yes\"}", "yes"},
	{"{\"a\":\"\\\"content\\\":\\\"no\\\"\",\"content\":\"}{][\"}", "}{]["},
	{"{\"\\u0063ont\\u0065nt\":\"yes\"}", "yes"},
	{"{\"\\u0063\\u006f\\u006E\\u0074\\u0065\\u006e\\u0074\":\"yes\"}", "yes"},
	{"{\"contents\":\"no\",\"conten\":\"no\",\"\":\"no\"}", NULL},
	{"{\"content\\u0000\":\"no\",\"\\u00zzontent\":\"no\"}", NULL},
	{"{\"content\":5}", NULL},
	{"{\"content\":null,\"a\":\"no\"}", NULL},
	{"{\"content\":[\"no\"]}", NULL},
	{"{\"content\":{\"content\":\"no\"}}", NULL},
	{"[\"content\",\"no\"]", NULL},
	{"\"content\"", NULL},
	{"", NULL},
	{"{\"content\":\"first\",\"content\":\"second\"}", "first"},
	{"{\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
	 "\":1"
	 ",\"content\":\"yes\"}",
		"yes"},
};

START_TEST(member_is_found)
{
	const struct find *f = &finds[_i / FEED_SIZES];
	struct json_scan s = scan(f->text, strlen(f->text), (size_t)(_i % FEED_SIZES));
	ck_assert_msg(s.found == (f->inside != NULL), "%s", f->text);
	ck_assert_uint_eq(s.at, strlen(f->text));
	if (!f->inside)
		return;
	ck_assert_uint_eq(s.to - s.from, strlen(f->inside));
	ck_assert_int_eq(memcmp(f->text + s.from, f->inside, s.to - s.from), 0);
}
END_TEST

// --- decoding ---

static const struct good {
	const char *inside, *want;
	size_t n;
} goods[] = {
	{"", "", 0},
	{"plain", "plain", 5},
	{"\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t", 8},
	{"a\\u0000b", "a\0b", 3},
	{"\\u00e9\\u20AC", "\xc3\xa9\xe2\x82\xac", 5},
	{"\\ud83d\\uDE00", "\xf0\x9f\x98\x80", 4},
	{"\\udbff\\udfff", "\xf4\x8f\xbf\xbf", 4},
	{"\xe2\x82\xac\\n\xf0\x9f\x98\x80", "\xe2\x82\xac\n\xf0\x9f\x98\x80", 8},
	{"\x7f\\uffff", "\x7f\xef\xbf\xbf", 4},
};

START_TEST(escapes_are_decoded)
{
	const struct good *g = &goods[_i / FEED_SIZES];
	struct decoding d;
	ck_assert_int_eq(decode(&d, g->inside, strlen(g->inside), (size_t)(_i % FEED_SIZES)), 0);
	ck_assert_uint_eq(buf_len(&d.out), g->n);
	ck_assert_int_eq(memcmp(buf_data(&d.out), g->want, g->n), 0);
	buf_release(&d.out);
}
END_TEST

static const char *const bads[] = {"\\", "a\\x", "\\u12", "\\u12g4", "\\u 123", "\\ud800", "\\ud800x", "\\ud800\\n",
	"\\ud800\\u0041", "\\ud800\\ud800", "\\udc00", "\n", "\t", "\x01", "a\"b", "\xff", "\xc0\x80", "\xed\xa0\x80",
	"\xe2\x82", "\xe2\x82\\n", "\xe2\\u0041", "\xf4\x90\x80\x80", "\\U0041", "\\'", "\\u@@@@",
	"\\u::::", "\\u````"};

START_TEST(bad_strings_are_refused)
{
	const char *b = bads[_i / FEED_SIZES];
	struct decoding d;
	ck_assert_msg(decode(&d, b, strlen(b), (size_t)(_i % FEED_SIZES)) == -EINVAL, "%s", b);
	buf_release(&d.out);
}
END_TEST

static int decode_run(void *arg)
{
	(void)arg;
	struct decoding d;
	static const char text[] = "\\u00e9 plain text that is long enough for the buffer to grow more than once \\n"
				   "and then some more of it, so that there is a second allocation to be failed";
	int rc = decode(&d, text, sizeof text - 1, 0);
	buf_release(&d.out);
	return rc;
}

START_TEST(decoding_out_of_memory)
{
	OOM_LOOP(decode_run, NULL);
}
END_TEST

// --- against jansson ---

// Random text of what JSON is made of, valid often enough.
static void random_string(struct buf *b)
{
	static const char *const parts[] = {"a", "content", "\\n", "\\\"", "\\\\", "\\u0041", "\\u0063",
		"\\ud83d\\ude00", "\xc3\xa9", " ", "{", "}", ":", ",", "[", "\\/", "\xf0\x9f\x98\x80", "\\ud800",
		"\xff", "\t", "\\x", "\\u00"};
	size_t good = 17; // the rest is not allowed
	buf_byte(b, '"');
	for (int n = rand() % 6; n > 0; n--)
		buf_str(b, parts[(size_t)rand() % (rand() % 24 ? good : sizeof parts / sizeof *parts)]);
	buf_byte(b, '"');
}

static void random_key(struct buf *b)
{
	static const char *const keys[] = {"\"content\"", "\"\\u0063ontent\"", "\"path\"", "\"a\"", "\"b\""};
	if (rand() % 5)
		buf_str(b, keys[rand() % 5]);
	else
		random_string(b);
}

static void random_value(struct buf *b, int depth)
{
	static const char *const atoms[] = {"1", "-2.5e3", "true", "null", "false", "01", "nul", "", "'x'"};
	int kind = rand() % (depth > 3 ? 6 : 8);
	if (kind < 4) {
		random_string(b);
	} else if (kind < 6) {
		buf_str(b, atoms[rand() % (rand() % 12 ? 5 : 9)]);
	} else {
		bool object = kind == 6;
		buf_byte(b, object ? '{' : '[');
		for (int n = rand() % 4, i = 0; i < n; i++) {
			if (i > 0 || rand() % 30 == 0)
				buf_byte(b, ',');
			if (object || rand() % 40 == 0) {
				random_key(b);
				buf_str(b, rand() % 3 ? ":" : " : ");
			}
			random_value(b, depth + 1);
		}
		buf_byte(b, object != (rand() % 40 == 0) ? '}' : ']');
	}
}

static void random_document(struct buf *b)
{
	buf_reset(b);
	buf_byte(b, '{');
	for (int n = 1 + rand() % 4, i = 0; i < n; i++) {
		if (i > 0)
			buf_byte(b, ',');
		random_key(b);
		buf_byte(b, ':');
		random_value(b, 0);
	}
	buf_str(b, rand() % 20 ? "}" : "");
	if (rand() % 20 == 0 && buf_len(b) > 2)
		buf_truncate(b, (size_t)rand() % buf_len(b));
}

// What the scanner, the unescaper and jsonr_parse make of TEXT together: its document without the content, NULL if it is refused.
static json_t *ours(const char *text, size_t n, size_t chunk, struct decoding *d, bool *found)
{
	struct json_scan s = scan(text, n, chunk);
	struct err e;
	struct buf rest;
	size_t from = s.found ? s.from : 0, to = s.found ? s.to : 0;
	*found = s.found;
	buf_init(&rest, 0);
	buf_append(&rest, text, from);
	buf_append(&rest, text + to, n - to);
	json_t *doc = jsonr_parse(buf_data(&rest), buf_len(&rest), &e);
	buf_release(&rest);
	if (decode(d, text + from, to - from, chunk) == 0)
		return doc;
	jsonr_free(doc);
	return NULL;
}

START_TEST(jansson_says_the_same)
{
	struct buf text;
	struct err e;
	int valid = 0, refused = 0, with = 0;
	buf_init(&text, 0);
	srand(4711);
	for (int i = 0; i < 60000; i++) {
		struct decoding d;
		bool found;
		random_document(&text);
		const char *p = (const char *)buf_data(&text);
		size_t n = buf_len(&text);
		json_t *want = jsonr_parse(p, n, &e);
		json_t *got = ours(p, n, (size_t)(i % FEED_SIZES), &d, &found);
		ck_assert_msg(!want == !got, "%.*s", (int)n, p);
		const json_t *content = want ? json_object_get(want, "content") : NULL;
		if (want) {
			ck_assert_msg(found == json_is_string(content), "%.*s", (int)n, p);
			ck_assert_uint_eq(json_object_size(want), json_object_size(got));
		}
		if (json_is_string(content)) {
			ck_assert_uint_eq(buf_len(&d.out), json_string_length(content));
			ck_assert_int_eq(memcmp(buf_data(&d.out), json_string_value(content), buf_len(&d.out)), 0);
			with++;
		}
		*(want ? &valid : &refused) += 1;
		buf_release(&d.out);
		jsonr_free(want);
		jsonr_free(got);
	}
	// The documents are worth something.
	ck_assert_int_gt(valid, 5000);
	ck_assert_int_gt(refused, 5000);
	ck_assert_int_gt(with, 2000);
	buf_release(&text);
}
END_TEST

Suite *json_scan_suite(void)
{
	Suite *s = suite_create("json_scan");
	TCase *t = tcase_create("strings");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_loop_test(t, member_is_found, 0, (int)(sizeof finds / sizeof *finds) * FEED_SIZES);
	tcase_add_loop_test(t, escapes_are_decoded, 0, (int)(sizeof goods / sizeof *goods) * FEED_SIZES);
	tcase_add_loop_test(t, bad_strings_are_refused, 0, (int)(sizeof bads / sizeof *bads) * FEED_SIZES);
	tcase_add_test(t, decoding_out_of_memory);
	tcase_add_test(t, jansson_says_the_same);
	return s;
}
