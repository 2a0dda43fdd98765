// SPDX-License-Identifier: Apache-2.0
// What surface B's downloads make of header lines and names.
#include "daemon/envd/files.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static struct http_span span(const char *s)
{
	return (struct http_span){s, s ? strlen(s) : 0};
}

// RESULT: a failure, or the ranges as "from+len ...".
static const struct range_case {
	const char *header;
	int64_t size;
	int status;
	const char *ranges;
} ranges[] = {
	{"", 10, 0, ""},
	{"bytes=0-3", 10, 1, "0+4 "},
	{"bytes=4-", 10, 1, "4+6 "},
	{"bytes=-3", 10, 1, "7+3 "},
	{"bytes=-30", 10, 1, "0+10 "},
	{"bytes=8-99", 10, 1, "8+2 "},
	{"bytes=0-0", 10, 1, "0+1 "},
	{"bytes=9-9", 10, 1, "9+1 "},
	{"bytes= 1 - 2 ,\t4-5, ,", 10, 2, "1+2 4+2 "},
	{"bytes=0-1,20-30,4-5", 10, 2, "0+2 4+2 "},
	{"bytes=0-4,0-4", 10, 2, "0+5 0+5 "},
	{"bytes=0-5,0-5", 10, 0, ""}, // more than there is
	{"bytes=", 10, 0, ""},
	{"bytes=0-99999999999999999999999", 10, 1, "0+10 "},
	{"bytes=9223372036854775807-", 10, FILES_RANGE_OUTSIDE, ""},
	{"bytes=99999999999999999999999-", 10, FILES_RANGE_OUTSIDE, ""},
	{"bytes=-99999999999999999999999", 10, 1, "0+10 "},
	{"bytes=10-", 10, FILES_RANGE_OUTSIDE, ""},
	{"bytes=-0", 10, FILES_RANGE_OUTSIDE, ""},
	{"bytes=5-2", 10, FILES_RANGE_BAD, ""},
	{"bytes=0-1,5-2", 10, FILES_RANGE_BAD, ""},
	{"bytes=x", 10, FILES_RANGE_BAD, ""},
	{"bytes=1", 10, FILES_RANGE_BAD, ""},
	{"bytes=-", 10, FILES_RANGE_BAD, ""},
	{"bytes=--1", 10, FILES_RANGE_BAD, ""},
	{"bytes=+1-2", 10, FILES_RANGE_BAD, ""},
	{"bytes=1-2x", 10, FILES_RANGE_BAD, ""},
	{"bytes =1-2", 10, FILES_RANGE_BAD, ""},
	{"Bytes=1-2", 10, FILES_RANGE_BAD, ""},
	{"lines=1-2", 10, FILES_RANGE_BAD, ""},
	{"byte", 10, FILES_RANGE_BAD, ""},
	{"bytes=0-3", 0, 0, ""},
	{"bytes=-3", 0, 0, ""},
	{"bytes=5-2", 0, 0, ""},
	{"bytes=x", 0, FILES_RANGE_BAD, ""},
};

START_TEST(range_headers)
{
	const struct range_case *r = &ranges[_i];
	struct files_range *list;
	struct buf text = {0};
	int got = files_ranges(span(r->header), r->size, &list);
	ck_assert_msg(got == r->status, "%s: %d", r->header, got);
	for (int i = 0; i < got; i++)
		buf_printf(&text, "%lld+%lld ", (long long)list[i].from, (long long)list[i].len);
	ck_assert_str_eq(buf_cstr(&text), r->ranges);
	ck_assert(got > 0 || !list);
	free(list);
	buf_release(&text);
}
END_TEST

static const struct accept_case {
	const char *header;
	enum files_coding want;
	bool refused;
} accepts[] = {
	{NULL, FILES_IDENTITY, false},
	{"", FILES_IDENTITY, false},
	{"gzip, deflate, br", FILES_GZIP, false},
	{"GZIP", FILES_GZIP, false},
	{"br", FILES_IDENTITY, false},
	{"*", FILES_IDENTITY, false},
	{"gzip;q=0", FILES_IDENTITY, false},
	{"gzip;q=0.000", FILES_IDENTITY, false},
	{"gzip;q=x", FILES_GZIP, false}, // means 1
	{"gzip; x=y ; Q=0.5, identity;q=0.8", FILES_IDENTITY, false},
	{"identity;q=0.5, gzip;q=0.5", FILES_IDENTITY, false},
	{"gzip;q=0.5, identity;q=0.5", FILES_GZIP, false},
	{"identity;q=0", FILES_NONE, true},
	{"*;q=0", FILES_NONE, true},
	{"br, *;q=0", FILES_NONE, true},
	{"identity, *;q=0", FILES_IDENTITY, false},
	{"*;q=0, gzip", FILES_GZIP, true},
	{"identity;q=0, *", FILES_GZIP, true},
	{",,;,gzip", FILES_GZIP, false},
	{"gzip;q=nan", FILES_IDENTITY, false},
};

START_TEST(accepted_codings)
{
	bool refused;
	const struct accept_case *a = &accepts[_i];
	ck_assert_msg(files_accept(span(a->header), &refused) == a->want, "%s", a->header);
	ck_assert_msg(refused == a->refused, "%s", a->header);
}
END_TEST

static const struct condition {
	const char *name, *value;
	int64_t mtime;
	int status;
	bool same; // as If-Range: that is the file
} conditions[] = {
	{"If-Modified-Since", "Wed, 01 May 2024 10:00:00 GMT", 1714557600, 304, true},
	{"If-Modified-Since", "Wednesday, 01-May-24 10:00:00 GMT", 1714557600, 304, true},
	{"If-Modified-Since", "Wed May  1 10:00:00 2024", 1714557600, 304, true},
	{"If-Modified-Since", "Wed, 01 May 2024 09:59:59 GMT", 1714557600, 200, false},
	{"If-Modified-Since", "yesterday", 1714557600, 200, false},
	{"If-Modified-Since", "Wed, 01 May 2024 10:00:00 GMT and so on", 1714557600, 200, false},
	{"If-Modified-Since", "Wed, 01 May 2024 10:00:00 GMT", 0, 200, false},
	{"If-Unmodified-Since", "Wed, 01 May 2024 09:59:59 GMT", 1714557600, 412, false},
	{"If-Unmodified-Since", "Wed, 01 May 2024 10:00:00 GMT", 1714557600, 200, true},
	{"If-None-Match", "*", 1714557600, 304, false},
	{"If-None-Match", "\"x\"", 1714557600, 200, false},
	{"If-Match", "*", 1714557600, 200, false},
	{"If-Match", "\"x\", \"y\"", 1714557600, 412, false},
};

START_TEST(condition_headers)
{
	const struct condition *c = &conditions[_i];
	struct http_header h = {span(c->name), span(c->value)};
	struct http_head head = {.headers = &h, .header_count = 1};
	ck_assert_msg(files_conditions(&head, c->mtime) == c->status, "%s: %s", c->name, c->value);
	h.name = span("If-Range");
	ck_assert(files_if_range(&head, c->mtime) == c->same);
	h.name = span("Other");
	ck_assert(files_if_range(&head, c->mtime));
}
END_TEST

static const struct disposition {
	const char *path, *line;
} dispositions[] = {
	{"/a/t.txt", "filename=t.txt"},
	{"/a/sp ace", "filename=\"sp ace\""},
	{"/q\"u\\o", "filename=\"q\\\"u\\\\o\""},
	{"/a;b", "filename=\"a;b\""},
	{"/\303\274 '(", "filename*=utf-8''%C3%BC%20%27%28"},
	{"/a\r\nSet-Cookie: x", "filename*=utf-8''a%0D%0ASet-Cookie%3A%20x"},
	{"/\377", "filename*=utf-8''%FF"},
	{"/a/", "filename=\"\""},
};

START_TEST(names_in_headers)
{
	struct buf got = {0}, want = {0};
	files_disposition(&got, dispositions[_i].path);
	buf_printf(&want, "Content-Disposition: inline; %s\r\n", dispositions[_i].line);
	ck_assert_str_eq(buf_cstr(&got), buf_cstr(&want));
	buf_release(&got);
	buf_release(&want);
}
END_TEST

static const struct content {
	const char *bytes;
	size_t n;
	const char *type;
} contents[] = {
	{"", 0, "text/plain; charset=utf-8"},
	{"plain words", 11, "text/plain; charset=utf-8"},
	{"\342\202\254", 3, "text/plain; charset=utf-8"},
	{"a\0b", 3, "application/octet-stream"},
	{"\x1b[1m", 4, "text/plain; charset=utf-8"},
	{" \n<!doctype html>", 17, "text/html; charset=utf-8"},
	{"<p>x</p>", 8, "text/html; charset=utf-8"},
	{"<px", 3, "text/plain; charset=utf-8"},
	{"<?xml version", 13, "text/xml; charset=utf-8"},
	{"%PDF-1.7", 8, "application/pdf"},
	{"%PDF", 4, "text/plain; charset=utf-8"},
	{"\x1f\x8b\x08", 3, "application/x-gzip"},
	{"RIFF....WAVEfmt ", 16, "audio/wave"},
	{"\0asm\1\0\0\0", 8, "application/wasm"},
};

START_TEST(types_by_content)
{
	const struct content *c = &contents[_i];
	// Where the bytes end, memory does.
	unsigned char *exact = malloc(c->n + (c->n == 0));
	ck_assert_ptr_nonnull(exact);
	memcpy(exact, c->bytes, c->n);
	ck_assert_str_eq(files_type_of_bytes(exact, c->n), c->type);
	free(exact);
}
END_TEST

START_TEST(types_by_name)
{
	ck_assert_str_eq(files_type_of_name("/a/b.TXT"), "text/plain; charset=utf-8");
	ck_assert_str_eq(files_type_of_name("/a/b.tar.gz"), "application/gzip");
	ck_assert_ptr_null(files_type_of_name("/a/b"));
	ck_assert_ptr_null(files_type_of_name("/a/b."));
	ck_assert_ptr_null(files_type_of_name("/a.txt/b"));
	ck_assert_ptr_null(files_type_of_name("/a/b.unknown"));
}
END_TEST

// --- queries and metadata ---

static int query_of(const char *text, struct files_query *q, struct err *e)
{
	struct http_head head = {.query = span(text)};
	return files_query_parse(q, &head, e);
}

START_TEST(queries)
{
	struct files_query q;
	struct err e;
	static const char *const bads[] = {"path=a&path=b", "username=&username=", "path=%zz", "path=a%00",
		"username=%", "signature_expiration=x",
		"signature_expiration=", "signature_expiration=99999999999999999999"};
	ck_assert_int_eq(query_of("path=a%2Fb+c&signature=&signature_expiration=-5&other=%zz", &q, &e), 0);
	ck_assert_str_eq(q.path, "a/b c");
	ck_assert_str_eq(q.signature, "");
	ck_assert_ptr_null(q.username);
	ck_assert(q.has_expiration);
	ck_assert_int_eq(q.expiration, -5);
	files_query_release(&q);
	ck_assert_int_eq(query_of("", &q, &e), 0);
	ck_assert(!q.path && !q.has_expiration);
	for (int i = 0; i < COUNT(bads); i++) {
		ck_assert_msg(query_of(bads[i], &q, &e) == -1, "%s", bads[i]);
		ck_assert_int_eq(e.status, 400);
		files_query_release(&q);
	}
}
END_TEST

static int parse_all(void *arg)
{
	static struct files_meta meta;
	struct http_header h[] = {{span("X-Metadata-A"), span("1")}, {span("x-metadata-b"), span("")},
		{span("X-METADATA-a"), span("2")}, {span("Other"), span("3")}};
	struct http_head head = {.headers = h, .header_count = 4, .query = span("path=p&username=u&signature=s")};
	struct files_query q;
	struct files_range *list = NULL;
	struct err e = {.sys = 0};
	(void)arg;
	int rc = files_query_parse(&q, &head, &e);
	int more = files_meta_parse(&meta, &head, rc ? &(struct err){0} : &e);
	int count = files_ranges(span("bytes=0-1,3-4"), 10, &list);
	bool wrong = rc == 0 && more == 0 && count > 0 &&
		     (strcmp(q.path, "p") != 0 || meta.count != 2 || strcmp(meta.keys[0], "a") != 0 ||
			     strcmp(meta.values[0], "1") != 0 || count != 2);
	free(list);
	files_meta_release(&meta);
	files_query_release(&q);
	if (wrong)
		return 1;
	if (rc < 0 || more < 0)
		return e.sys == ENOMEM ? -ENOMEM : 2;
	return count == FILES_RANGE_NOMEM ? -ENOMEM : 0;
}

START_TEST(out_of_memory)
{
	OOM_LOOP(parse_all, NULL);
}
END_TEST

Suite *envd_files_suite(void)
{
	Suite *s = suite_create("envd_files");
	TCase *tc = tcase_create("headers");
	tcase_add_loop_test(tc, range_headers, 0, COUNT(ranges));
	tcase_add_loop_test(tc, accepted_codings, 0, COUNT(accepts));
	tcase_add_loop_test(tc, condition_headers, 0, COUNT(conditions));
	tcase_add_loop_test(tc, names_in_headers, 0, COUNT(dispositions));
	tcase_add_loop_test(tc, types_by_content, 0, COUNT(contents));
	tcase_add_test(tc, types_by_name);
	tcase_add_test(tc, queries);
	tcase_add_test(tc, out_of_memory);
	suite_add_tcase(s, tc);
	return s;
}
