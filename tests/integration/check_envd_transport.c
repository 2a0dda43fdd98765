// SPDX-License-Identifier: Apache-2.0
// Connect over HTTP as surface B speaks it: types, versions, envelopes, compression, timeouts, users (contract B 1.3 to 1.8, 2.2).
#include "tests/integration/envdkit.h"
#include "tests/integration/fskit.h"
#include "tests/integration/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define JSON "Content-Type: application/json\r\n"
#define STREAM "Content-Type: application/connect+json\r\n"
#define STAT "/filesystem.Filesystem/Stat"
#define START "/process.Process/Start"
#define TRUE_CALL "{\"process\":{\"cmd\":\"true\"},\"stdin\":false}"

static void call(const struct testd *d, const char *target, const char *headers, const char *body, struct resp *r)
{
	envd_req(d, "POST", target, headers, body, strlen(body), r);
}

// A stream call with one envelope of BODY.
static void stream(const struct testd *d, const char *target, const char *headers, unsigned flags, const char *body,
	struct resp *r)
{
	struct buf b = {0};
	envd_envelope(&b, flags, body);
	envd_req(d, "POST", target, headers, buf_data(&b), buf_len(&b), r);
	buf_release(&b);
}

START_TEST(unary_answers_are_those_of_the_golden_exchanges)
{
	static const char *const skip[] = {
		"request gzip", "Accept-Encoding: gzip", "deflate, gzip", "100-continue", NULL};
	if (!fs_home())
		return; // needs root
	fs_dir(FS_HOME "/g", 0755);
	fs_put(FS_HOME "/g/u.txt", "x", 0644);
	struct testd *d = d_start(ENVD_ON, "--user", "user");
	envd_play_golden(d, "unary-transport", skip);
	d_finish(d);
}
END_TEST

START_TEST(users_are_those_of_the_golden_exchanges)
{
	static const char *const skip[] = {"user root", "default user", "password ignored", "no colon", "not base64",
		"Bearer", "octet-stream", NULL};
	struct testd *d = d_start(ENVD_ON);
	envd_play_golden(d, "user-auth", skip);
	d_finish(d);
}
END_TEST

START_TEST(a_content_type_of_the_other_kind_is_415)
{
	static const char *const unary[] = {"", "Content-Type: text/plain\r\n",
		"Content-Type: application/json; v=1\r\n", "Content-Type: application/json; charset=latin1\r\n",
		"Content-Type: application/proto; charset=utf-8\r\n", "Content-Type: application/connect+json\r\n",
		"Content-Type: application/grpc\r\n", "Content-Type: application/jsonx\r\n", "Content-Type:\r\n"};
	static const char *const good[] = {"Content-Type: application/json;charset=utf-8\r\n",
		"Content-Type: Application/JSON ; Charset=UTF-8\r\n",
		"Content-Type: application/json; charset=\"utf-8\"\r\n"};
	static const char *const other[] = {"", JSON, "Content-Type: application/proto\r\n",
		"Content-Type: application/connect\r\n", "Content-Type: application/grpc-web+proto\r\n"};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(unary); i++) {
		call(d, STAT, unary[i], "{\"path\":\"/\"}", &r);
		ck_assert_msg(r.status == 415, "%s: %d", unary[i], r.status);
		envd_want_connect(&r, 415, "invalid_argument");
		ck_assert_ptr_nonnull(
			strstr(resp_header(&r, "Accept-Post"), "application/json; charset=utf-8, application/proto"));
	}
	for (size_t i = 0; i < COUNT(good); i++) {
		call(d, STAT, good[i], "{\"path\":\"/\"}", &r);
		ck_assert_msg(r.status == 200, "%s: %d", good[i], r.status);
		ck_assert_str_eq(resp_header(&r, "Content-Type"), "application/json; charset=utf-8");
	}
	for (size_t i = 0; i < COUNT(other); i++) {
		stream(d, START, other[i], 0, TRUE_CALL, &r);
		envd_want_connect(&r, 415, "invalid_argument");
		ck_assert_ptr_nonnull(strstr(resp_header(&r, "Accept-Post"), "application/connect+proto"));
	}
	stream(d, "/process.Process/StreamInput", JSON, 0, "{}", &r);
	envd_want_connect(&r, 415, "invalid_argument");
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(a_method_that_is_not_there_is_unimplemented)
{
	static const char *const paths[] = {"/process.Process/Nope", "/process.Process/start",
		"/process.Process/Start/", "/filesystem.Filesystem/stat", "/filesystem.Filesystem/Statx"};
	static const char *const known[] = {"/process.Process/List", START, "/process.Process/StreamInput", STAT};
	static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS", "PATCH"};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(paths); i++) {
		call(d, paths[i], i % 2 ? JSON : STREAM, "{}", &r);
		envd_want_connect(&r, 404, "unimplemented");
	}
	for (size_t i = 0; i < COUNT(known); i++) {
		for (size_t k = 0; k < COUNT(methods); k++) {
			envd_req(d, methods[k], known[i], JSON, NULL, 0, &r);
			if (strcmp(methods[k], "HEAD") != 0)
				envd_want_connect(&r, 405, "unimplemented");
			ck_assert_int_eq(r.status, 405);
			ck_assert_str_eq(resp_header(&r, "Allow"), "POST");
		}
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B33
START_TEST(every_failure_of_a_stream_is_in_its_end_frame)
{
	static const struct {
		const char *target, *headers, *body, *code;
	} cases[] = {
		{START, "Connect-Protocol-Version: 2\r\n", TRUE_CALL, "invalid_argument"},
		{START, "Connect-Content-Encoding: br\r\n", TRUE_CALL, "unimplemented"},
		{START, "Connect-Timeout-Ms: abc\r\n", TRUE_CALL, "invalid_argument"},
		{START, "Connect-Timeout-Ms: 12345678901\r\n", TRUE_CALL, "invalid_argument"},
		{START, "Connect-Timeout-Ms: 0\r\n", TRUE_CALL, "deadline_exceeded"},
		{START, "Connect-Timeout-Ms: -5\r\n", TRUE_CALL, "deadline_exceeded"},
		{START, "", "{bad", "invalid_argument"},
		{START, "", "null", "invalid_argument"},
		{START, "", "\"x\"", "invalid_argument"},
		{START, "", "7", "invalid_argument"},
		{START, "", "[]", "invalid_argument"},
		{START, "", "{} x", "invalid_argument"},
		{START, "", "{\"process\":{\"cmd\":7}}", "invalid_argument"},
		{START, "", "{\"process\":{\"cmd\":\"true\",\"cwd\":\"/none\"}}", "invalid_argument"},
		{START, "Authorization: Basic bm9ib2R5LWhlcmU6\r\n", TRUE_CALL, "unauthenticated"},
		{START, "Authorization: Basic Og==\r\n", TRUE_CALL, "unauthenticated"},
		{"/process.Process/Connect", "", "{\"process\":{\"pid\":999999}}", "not_found"},
		{"/process.Process/Connect", "", "{\"process\":{\"tag\":\"zz\"}}", "not_found"},
		{"/process.Process/Connect", "", "{}", "unimplemented"},
		{"/filesystem.Filesystem/WatchDir", "", "{\"path\":\"/no/such/dir\"}", "not_found"},
		{"/process.Process/StreamInput", "", "{\"start\":{\"process\":{\"pid\":999999}}}", "not_found"},
		{"/process.Process/StreamInput", "", "{bad", "unknown"},
	};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	char lines[200];
	for (size_t i = 0; i < COUNT(cases); i++) {
		(void)snprintf(lines, sizeof lines, STREAM "%s", cases[i].headers);
		stream(d, cases[i].target, lines, 0, cases[i].body, &r);
		envd_want_stream_error(&r, cases[i].code, NULL);
		ck_assert_str_eq(resp_header(&r, "Content-Type"), "application/connect+json");
		(void)snprintf(lines, sizeof lines, "Content-Type: application/connect+json; charset=utf-8\r\n%s",
			cases[i].headers);
		stream(d, cases[i].target, lines, 0, cases[i].body, &r);
		envd_want_stream_error(&r, cases[i].code, NULL);
		ck_assert_str_eq(resp_header(&r, "Content-Type"), "application/connect+json; charset=utf-8");
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B33
START_TEST(a_default_user_that_is_not_there_ends_the_stream)
{
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	char text[256];
	ck_assert_int_eq(envd_init(d, "{\"defaultUser\":\"nouser-x\"}"), 204);
	stream(d, START, STREAM, 0, TRUE_CALL, &r);
	envd_want_stream_error(&r, "unauthenticated", text);
	ck_assert_str_eq(text, "invalid default user: 'nouser-x'");
	resp_release(&r);
	d_finish(d);
}
END_TEST

static void put_raw(struct buf *b, const char *hex, const char *tail)
{
	for (; *hex; hex += 2) {
		unsigned v;
		ck_assert_int_eq(sscanf(hex, "%2x", &v), 1);
		buf_byte(b, (unsigned char)v);
	}
	buf_str(b, tail);
}

START_TEST(broken_envelopes_are_told_apart)
{
	static const struct {
		const char *hex, *tail, *code, *message;
	} cases[] = {
		{"", "", "unimplemented", "unary request has zero messages"},
		{"000000", "", "invalid_argument", "protocol error: incomplete envelope: unexpected EOF"},
		{"000000000a", "{}", "invalid_argument",
			"protocol error: promised 10 bytes in enveloped message, got 2 bytes"},
		{"000000000a", "", "invalid_argument",
			"protocol error: promised 10 bytes in enveloped message, got 0 bytes"},
		{"0200000002", "{}", "unimplemented", "unary request has zero messages"},
		{"0100000002", "{}", "internal", "protocol error: sent compressed message without compression support"},
		{"0400000002", "{}", "internal", "protocol error: invalid envelope flags 4"},
		{"00000000000000000000", "", "unimplemented", "unary request has multiple messages"},
		{"0000000000000000", "", "invalid_argument", "protocol error: incomplete envelope: unexpected EOF"},
		{"00ffffffff", "{}", "resource_exhausted", NULL},
	};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	char text[256];
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct buf b = {0};
		put_raw(&b, cases[i].hex, cases[i].tail);
		envd_req(d, "POST", "/process.Process/Connect", STREAM, buf_data(&b), buf_len(&b), &r);
		envd_want_stream_error(&r, cases[i].code, text);
		if (cases[i].message)
			ck_assert_str_eq(text, cases[i].message);
		buf_release(&b);
	}
	// A message and then the client's end frame is how some clients send it.
	struct buf b = {0};
	envd_envelope(&b, 0, TRUE_CALL);
	envd_envelope(&b, 2, "{}");
	envd_req(d, "POST", START, STREAM, buf_data(&b), buf_len(&b), &r);
	json_t *last = envd_want_stream(&r, NULL);
	ck_assert_uint_eq(json_object_size(last), 0);
	json_decref(last);
	buf_release(&b);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- compression ---

static void zip(struct buf *out, const char *text)
{
	z_stream z = {0};
	unsigned char to[512];
	ck_assert_int_eq(deflateInit2(&z, 6, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
	z.next_in = (unsigned char *)(uintptr_t)text;
	z.avail_in = (uInt)strlen(text);
	z.next_out = to;
	z.avail_out = sizeof to;
	ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
	buf_append(out, to, sizeof to - z.avail_out);
	(void)deflateEnd(&z);
}

static void unzip(struct buf *out, const unsigned char *p, size_t n)
{
	z_stream z = {0};
	unsigned char to[4096];
	ck_assert_int_eq(inflateInit2(&z, 31), Z_OK);
	z.next_in = (unsigned char *)(uintptr_t)p;
	z.avail_in = (uInt)n;
	z.next_out = to;
	z.avail_out = sizeof to;
	ck_assert_int_eq(inflate(&z, Z_FINISH), Z_STREAM_END);
	ck_assert_uint_eq(z.avail_in, 0);
	buf_append(out, to, sizeof to - z.avail_out);
	(void)inflateEnd(&z);
}

START_TEST(unary_bodies_may_be_gzip_both_ways)
{
	static const char *const plain[] = {"", "Accept-Encoding: gzip;q=1, br\r\n", "Accept-Encoding: identity\r\n",
		"Accept-Encoding:\r\n", "Content-Encoding: identity\r\n", "Accept-Encoding: zstd,br,deflate\r\n"};
	static const char *const zipped[] = {
		"Accept-Encoding: gzip\r\n", "Accept-Encoding: deflate, gzip\r\n", "Accept-Encoding: zstd,gzip,br\r\n"};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	struct buf b = {0}, text = {0};
	char lines[200];
	for (size_t i = 0; i < COUNT(plain); i++) {
		(void)snprintf(lines, sizeof lines, JSON "%s", plain[i]);
		call(d, "/process.Process/List", lines, "{}", &r);
		ck_assert_str_eq(buf_cstr(&r.body), "{}");
		ck_assert_ptr_null(resp_header(&r, "Content-Encoding"));
		ck_assert_str_eq(resp_header(&r, "Accept-Encoding"), "gzip");
	}
	for (size_t i = 0; i < COUNT(zipped); i++) {
		(void)snprintf(lines, sizeof lines, JSON "%s", zipped[i]);
		call(d, "/process.Process/List", lines, "{}", &r);
		ck_assert_str_eq(resp_header(&r, "Content-Encoding"), "gzip");
		buf_reset(&text);
		unzip(&text, buf_data(&r.body), buf_len(&r.body));
		ck_assert_str_eq(buf_cstr(&text), "{}");
		// Errors never are.
		call(d, STAT, lines, "{\"path\":\"/no/such\"}", &r);
		envd_want_connect(&r, 404, "not_found");
		ck_assert_ptr_null(resp_header(&r, "Content-Encoding"));
	}
	zip(&b, "{\"path\":\"/no/such\"}");
	envd_req(d, "POST", STAT, JSON "Content-Encoding: gzip\r\n", buf_data(&b), buf_len(&b), &r);
	envd_want_connect(&r, 404, "not_found");
	envd_req(d, "POST", STAT, JSON "Content-Encoding: gzip\r\n", buf_data(&b), buf_len(&b) - 9, &r);
	envd_want_connect(&r, 400, "invalid_argument");
	call(d, STAT, JSON "Content-Encoding: gzip\r\n", "{\"path\":\"/\"}", &r);
	ck_assert_str_eq(envd_want_connect(&r, 400, "invalid_argument"), "get decompressor: gzip: invalid header");
	call(d, STAT, JSON "Content-Encoding: br\r\n", "{}", &r);
	ck_assert_str_eq(envd_want_connect(&r, 501, "unimplemented"),
		"unknown compression \"br\": supported encodings are gzip");
	buf_release(&b);
	buf_release(&text);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The envelopes of a compressed stream, inflated and joined.
static size_t unzip_stream(const struct resp *r, struct buf *text)
{
	const unsigned char *p = buf_data(&r->body);
	size_t n = buf_len(&r->body), count = 0;
	for (; n >= 5; count++) {
		size_t len = (size_t)p[3] << 8 | p[4];
		ck_assert_uint_eq(p[0] & 1, 1);
		unzip(text, p + 5, len);
		p += 5 + len;
		n -= 5 + len;
	}
	return count;
}

START_TEST(streams_are_gzip_only_when_asked)
{
	static const struct {
		const char *headers;
		bool zipped, request;
	} cases[] = {
		{"", false, false},
		{"Accept-Encoding: gzip\r\n", false, false},
		{"Connect-Accept-Encoding: identity\r\nConnect-Content-Encoding: identity\r\n", false, false},
		{"Connect-Accept-Encoding: gzip\r\n", true, false},
		{"Connect-Content-Encoding: gzip\r\n", true, false},
		{"Connect-Content-Encoding: gzip\r\n", true, true},
	};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	char lines[200];
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct buf b = {0}, text = {0};
		(void)snprintf(lines, sizeof lines, STREAM "%s", cases[i].headers);
		envd_envelope(&b, 0, TRUE_CALL);
		if (cases[i].request) {
			buf_reset(&b);
			zip(&text, TRUE_CALL);
			put_raw(&b, "0100000000", "");
			unsigned char *prefix = (unsigned char *)(uintptr_t)buf_data(&b);
			prefix[4] = (unsigned char)buf_len(&text);
			buf_append(&b, buf_data(&text), buf_len(&text));
			buf_reset(&text);
		}
		envd_req(d, "POST", START, lines, buf_data(&b), buf_len(&b), &r);
		json_decref(envd_want_stream(&r, NULL));
		const char *encoding = resp_header(&r, "Connect-Content-Encoding");
		ck_assert_msg(cases[i].zipped ? encoding && strcmp(encoding, "gzip") == 0 : !encoding, "%s", lines);
		ck_assert_ptr_null(resp_header(&r, "Content-Encoding"));
		if (cases[i].zipped) {
			ck_assert_uint_eq(unzip_stream(&r, &text), 3);
			ck_assert_ptr_nonnull(strstr(buf_cstr(&text), "\"exit status 0\""));
		} else {
			ck_assert_uint_eq(buf_data(&r.body)[0], 0);
		}
		buf_release(&b);
		buf_release(&text);
	}
	stream(d, START, STREAM "Connect-Accept-Encoding: gzip\r\n", 0,
		"{\"process\":{\"cmd\":\"true\",\"cwd\":\"/none\"}}", &r);
	struct buf text = {0};
	ck_assert_uint_eq(buf_data(&r.body)[0], 3);
	ck_assert_uint_eq(unzip_stream(&r, &text), 1);
	ck_assert_ptr_nonnull(strstr(buf_cstr(&text), "cwd '/none' does not exist"));
	buf_release(&text);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(a_gzip_bomb_is_refused)
{
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	size_t n = (size_t)64 << 20;
	unsigned char *zeros = calloc(1, n), *to = malloc(n / 512);
	ck_assert(zeros && to);
	memset(zeros, ' ', n);
	z_stream z = {.next_in = zeros, .avail_in = (uInt)n, .next_out = to, .avail_out = (uInt)(n / 512)};
	ck_assert_int_eq(deflateInit2(&z, 9, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY), Z_OK);
	ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
	envd_req(d, "POST", STAT, JSON "Content-Encoding: gzip\r\n", to, n / 512 - z.avail_out, &r);
	envd_want_connect(&r, 429, "resource_exhausted");
	(void)deflateEnd(&z);
	free(zeros);
	free(to);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(a_deadline_ends_the_stream)
{
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	char text[256];
	int64_t before = h_now_ms();
	stream(d, "/filesystem.Filesystem/WatchDir", STREAM "Connect-Timeout-Ms: 300\r\n", 0, "{\"path\":\"/tmp\"}",
		&r);
	int64_t took = h_now_ms() - before;
	envd_want_stream_error(&r, "deadline_exceeded", text);
	ck_assert_str_eq(text, "context deadline exceeded");
	ck_assert_int_ge(took, 290);
	ck_assert_int_lt(took, h_scaled(3000));
	// A client stream that never ends its body.
	struct client *c = envd_connect(d);
	before = h_now_ms();
	ck_assert(client_send_str(c, "POST /process.Process/StreamInput HTTP/1.1\r\nHost: x\r\n" STREAM
				     "Connect-Timeout-Ms: 300\r\nTransfer-Encoding: chunked\r\n\r\n"));
	client_response(c, &r);
	took = h_now_ms() - before;
	envd_want_stream_error(&r, "deadline_exceeded", NULL);
	ck_assert_int_ge(took, 290);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(a_client_stream_may_be_cut_anywhere)
{
	static const char *const starts[] = {"", "5\r\n", "5\r\n\1\2", "7\r\n\2"};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	for (int round = 0; round < 40; round++) {
		struct client *c = envd_connect(d);
		ck_assert(client_send_str(c, "POST /process.Process/StreamInput HTTP/1.1\r\nHost: x\r\n" STREAM
					     "Transfer-Encoding: chunked\r\n\r\n"));
		ck_assert(client_send_str(c, starts[(size_t)round % COUNT(starts)]));
		if (round % 2)
			client_abort(c);
		else
			client_close(c);
	}
	// An empty body, and one with the end frame alone, are whole.
	envd_req(d, "POST", "/process.Process/StreamInput", STREAM, "", 0, &r);
	size_t messages;
	json_t *last = envd_want_stream(&r, &messages);
	ck_assert_uint_eq(json_object_size(last), 0);
	ck_assert_uint_eq(messages, 1);
	json_decref(last);
	stream(d, "/process.Process/StreamInput", STREAM, 2, "{}", &r);
	json_decref(envd_want_stream(&r, &messages));
	ck_assert_uint_eq(messages, 1);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B56
START_TEST(what_is_no_http_gets_an_object_too)
{
	static const struct {
		const char *bytes;
		int status;
	} cases[] = {
		{"GET /health HTTP/1.1\r\n\r\n", 400},
		{"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
		{"GET /health HTTP/1.1\nHost: a\n\n", 400},
		{"GET /health HTTP/2.0\r\nHost: a\r\n\r\n", 505},
		{"POST /init HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}", 400},
		{"POST /init HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400},
		{"POST /init HTTP/1.1\r\nHost: a\r\nContent-Length: +2\r\n\r\n{}", 400},
		{"POST /init HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 400},
		{"POST /init HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 400},
		{"POST /process.Process/List HTTP/1.1\r\nHost: a\r\n" JSON "Transfer-Encoding: chunked\r\n\r\nzz\r\n{}",
			400},
		{"POST /process.Process/Start HTTP/1.1\r\nHost: a\r\n" STREAM
		 "Transfer-Encoding: chunked\r\n\r\n-1\r\n",
			400},
		{"POST /process.Process/StreamInput HTTP/1.1\r\nHost: a\r\n" STREAM
		 "Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}",
			400},
	};
	struct testd *d = d_start(ENVD_ON);
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(cases); i++) {
		struct client *c = envd_connect(d);
		ck_assert(client_send_str(c, cases[i].bytes));
		client_response(c, &r);
		bool ok = r.status == cases[i].status || (cases[i].status == 400 && r.status == 501);
		ck_assert_msg(ok, "%s: %d", cases[i].bytes, r.status);
		if (strstr(cases[i].bytes, "process"))
			envd_want_connect(&r, r.status, r.status == 400 ? "invalid_argument" : "unimplemented");
		else
			envd_want_rest(&r, r.status);
		ck_assert(!r.keep_alive);
		ck_assert(client_wait_eof(c, 3000));
		client_close(c);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *envd_transport_suite(void)
{
	Suite *s = suite_create("envd_transport");
	TCase *tc = h_tcase(s, "transport", 20);
	tcase_add_test(tc, unary_answers_are_those_of_the_golden_exchanges);
	tcase_add_test(tc, users_are_those_of_the_golden_exchanges);
	tcase_add_test(tc, a_content_type_of_the_other_kind_is_415);
	tcase_add_test(tc, a_method_that_is_not_there_is_unimplemented);
	tcase_add_test(tc, every_failure_of_a_stream_is_in_its_end_frame);
	tcase_add_test(tc, a_default_user_that_is_not_there_ends_the_stream);
	tcase_add_test(tc, broken_envelopes_are_told_apart);
	tcase_add_test(tc, unary_bodies_may_be_gzip_both_ways);
	tcase_add_test(tc, streams_are_gzip_only_when_asked);
	tcase_add_test(tc, a_gzip_bomb_is_refused);
	tcase_add_test(tc, a_deadline_ends_the_stream);
	tcase_add_test(tc, a_client_stream_may_be_cut_anywhere);
	tcase_add_test(tc, what_is_no_http_gets_an_object_too);
	return s;
}
