// SPDX-License-Identifier: Apache-2.0
// B56: bytes that two HTTP implementations could understand differently. Each is refused and ends the connection, so that the
// request behind it, which would leave a file in the workspace, is never served.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define KIB ((size_t)1024)
#define LINE "POST /exec HTTP/1.1\r\n"
#define HOST "Host: x\r\n"
#define TOP LINE HOST
#define CHUNKED TOP "Transfer-Encoding: chunked\r\n\r\n"
// A length whose body is there, so that only its form can be the reason.
#define LENGTH(v) TOP "Content-Length: " v "\r\n\r\n{}"
#define CODING(v) TOP "Transfer-Encoding: " v "\r\n\r\n2\r\n{}\r\n0\r\n\r\n"

struct shape {
	const char *name;
	const char *p;
	size_t n;
};
#define S(name, text)                        \
	{                                    \
		name, text, sizeof(text) - 1 \
	}

static const struct shape lengths[] = {
	S("length and coding", TOP "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
	S("coding and length", TOP "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
	S("coding and no length", TOP "Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n0\r\n\r\n"),
	S("two lengths", TOP "Content-Length: 2\r\nContent-Length: 7\r\n\r\n{}"),
	S("twice the same length", TOP "Content-Length: 2\r\nContent-Length: 2\r\n\r\n{}"),
	S("two lengths in a line", LENGTH("2, 2")),
	S("length +2", LENGTH("+2")),
	S("length -1", LENGTH("-1")),
	S("length -0", LENGTH("-0")),
	S("length 2^64", LENGTH("18446744073709551616")),
	S("length 2^64 + 2", LENGTH("18446744073709551618")),
	S("length 2^64 - 1", LENGTH("18446744073709551615")),
	S("length 2^63", LENGTH("9223372036854775808")),
	S("length of 40 digits", LENGTH("2000000000000000000000000000000000000000")),
	S("length 0x2", LENGTH("0x2")),
	S("length 2 2", LENGTH("2 2")),
	S("length 2,", LENGTH("2,")),
	S("length ,2", LENGTH(",2")),
	S("length 2.0", LENGTH("2.0")),
	S("length 2e0", LENGTH("2e0")),
	S("length 2;", LENGTH("2;")),
	S("length \"2\"", LENGTH("\"2\"")),
	S("empty length", LENGTH("")),
	S("length of letters", LENGTH("two")),
	S("length with VT", LENGTH("\v2")),
	S("length with blank before the colon", TOP "Content-Length : 2\r\n\r\n{}"),
};

static const struct shape codings[] = {
	S("blank before the colon", TOP "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
	S("tab before the colon", TOP "Transfer-Encoding\t: chunked\r\n\r\n0\r\n\r\n"),
	S("blank before the name", TOP " Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
	S("xchunked", CODING("xchunked")),
	S("chunkedx", CODING("chunkedx")),
	S("chunked, identity", CODING("chunked, identity")),
	S("chunked, chunked", CODING("chunked, chunked")),
	S("gzip, chunked", CODING("gzip, chunked")),
	S("identity", CODING("identity")),
	S("chunked;q=1", CODING("chunked;q=1")),
	S("chunked,", CODING("chunked,")),
	S(", chunked", CODING(", chunked")),
	S("\"chunked\"", CODING("\"chunked\"")),
	S("empty coding", CODING("")),
	S("VT before chunked", CODING("\vchunked")),
	S("FF behind chunked", CODING("chunked\f")),
	S("NUL behind chunked", CODING("chunked\0")),
	S("two codings", TOP "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
	S("two codings, chunked last",
		TOP "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
	S("twice chunked", TOP "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
	S("coding in HTTP/1.0",
		"POST /exec HTTP/1.0\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
	S("folded coding", TOP "Transfer-Encoding:\r\n chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
	S("folded length", TOP "Content-Length:\r\n 2\r\n\r\n{}"),
};

static const struct shape lines[] = {
	S("LF after the request line", "POST /exec HTTP/1.1\n" HOST "\r\n"),
	S("LF after a header", LINE "Host: x\nContent-Length: 0\r\n\r\n"),
	S("LF before a hidden header", TOP "X: y\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
	S("LF as the empty line", TOP "Content-Length: 0\r\n\n"),
	S("only LFs", "POST /exec HTTP/1.1\nHost: x\n\n"),
	S("CR in a value", TOP "X: a\rb\r\n\r\n"),
	S("CR before a hidden header", TOP "X: y\rTransfer-Encoding: chunked\r\n\r\n"),
	S("CR as the empty line", TOP "\r\r\n"),
	S("CR CR LF", LINE "Host: x\r\r\n\r\n"),
	S("CR in the request line", "POST /exec\r HTTP/1.1\r\n" HOST "\r\n"),
	S("folded with a blank", TOP "X: a\r\n b\r\n\r\n"),
	S("folded with a tab", TOP "X: a\r\n\tb\r\n\r\n"),
	S("fold before the first header", LINE " X: a\r\n" HOST "\r\n"),
	S("NUL in a value", TOP "X: a\0b\r\n\r\n"),
	S("NUL in a name", TOP "X\0Y: a\r\n\r\n"),
	S("NUL in the URL", "POST /ex\0ec HTTP/1.1\r\n" HOST "\r\n"),
	S("NUL first", "\0" TOP "\r\n"),
	S("DEL in a value", TOP "X: a\177b\r\n\r\n"),
	S("no colon", TOP "X\r\n\r\n"),
	S("empty name", TOP ": a\r\n\r\n"),
	S("blank in a name", TOP "X Y: a\r\n\r\n"),
	S("8-bit name", TOP "X\351: a\r\n\r\n"),
	S("parenthesis in a name", TOP "X(: a\r\n\r\n"),
	S("no Host", LINE "Content-Length: 0\r\n\r\n"),
	S("two Hosts", TOP HOST "\r\n"),
	S("blank in Host", LINE "Host: a b\r\n\r\n"),
	S("slash in Host", LINE "Host: a/b\r\n\r\n"),
	S("user in Host", LINE "Host: u@b\r\n\r\n"),
	S("many empty lines", "\r\n\r\n\r\n\r\n" TOP "\r\n"),
	S("LF before the request", "\n" TOP "\r\n"),
	S("unknown expectation", TOP "Content-Length: 2\r\nExpect: 200-ok\r\n\r\n{}"),
};

static const struct shape requests[] = {
	S("no version", "GET /health\r\n\r\n"),
	S("HTTP/0.9", "GET /health HTTP/0.9\r\n" HOST "\r\n"),
	S("HTTP/1.2", "GET /health HTTP/1.2\r\n" HOST "\r\n"),
	S("HTTP/2.0", "GET /health HTTP/2.0\r\n" HOST "\r\n"),
	S("HTTP/1.10", "GET /health HTTP/1.10\r\n" HOST "\r\n"),
	S("HTTP/11", "GET /health HTTP/11\r\n" HOST "\r\n"),
	S("http/1.1", "GET /health http/1.1\r\n" HOST "\r\n"),
	S("HTTPS/1.1", "GET /health HTTPS/1.1\r\n" HOST "\r\n"),
	S("HTTP/2's preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
	S("blank behind the version", "GET /health HTTP/1.1 \r\n" HOST "\r\n"),
	S("two blanks", "GET  /health HTTP/1.1\r\n" HOST "\r\n"),
	S("two blanks before the version", "GET /health  HTTP/1.1\r\n" HOST "\r\n"),
	S("tab", "GET\t/health HTTP/1.1\r\n" HOST "\r\n"),
	S("blank in the URL", "GET /hea lth HTTP/1.1\r\n" HOST "\r\n"),
	S("blank before the method", " GET /health HTTP/1.1\r\n" HOST "\r\n"),
	S("8-bit URL", "GET /health\377 HTTP/1.1\r\n" HOST "\r\n"),
	S("DEL in the URL", "GET /health?\177 HTTP/1.1\r\n" HOST "\r\n"),
	S("fragment", "GET /health#a HTTP/1.1\r\n" HOST "\r\n"),
	S("no slash", "GET health HTTP/1.1\r\n" HOST "\r\n"),
	S("star", "GET * HTTP/1.1\r\n" HOST "\r\n"),
	S("other scheme", "GET ftp://x/health HTTP/1.1\r\n" HOST "\r\n"),
	S("no authority", "GET http:///health HTTP/1.1\r\n" HOST "\r\n"),
	S("CONNECT", "CONNECT x:80 HTTP/1.1\r\n" HOST "\r\n"),
	S("RTSP", "DESCRIBE rtsp://x/health RTSP/1.0\r\n" HOST "\r\n"),
	S("RTSP's method", "DESCRIBE /health HTTP/1.1\r\n" HOST "\r\n"),
	S("ICE", "SOURCE /health ICE/1.0\r\n" HOST "\r\n"),
	S("ICE's method", "SOURCE /health HTTP/1.1\r\n" HOST "\r\n"),
	S("unknown method", "FETCH /health HTTP/1.1\r\n" HOST "\r\n"),
	S("small letters", "get /health HTTP/1.1\r\n" HOST "\r\n"),
	S("digit in the method", "G3T /health HTTP/1.1\r\n" HOST "\r\n"),
	S("TLS hello", "\026\003\001\002\000\001\000\001\374\003\003abcdefgh\r\n\r\n"),
	S("SOCKS", "\005\001\000\r\n\r\n"),
	S("an answer", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
};

static const struct shape chunks[] = {
	S("17 digits", CHUNKED "fffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
	S("16 digits", CHUNKED "ffffffffffffffff\r\n{}\r\n0\r\n\r\n"),
	S("2^64 + 2", CHUNKED "10000000000000002\r\n{}\r\n0\r\n\r\n"),
	S("2^63", CHUNKED "8000000000000000\r\n{}\r\n0\r\n\r\n"),
	S("size +2", CHUNKED "+2\r\n{}\r\n0\r\n\r\n"),
	S("size -2", CHUNKED "-2\r\n{}\r\n0\r\n\r\n"),
	S("size 0x2", CHUNKED "0x2\r\n{}\r\n0\r\n\r\n"),
	S("size zz", CHUNKED "zz\r\n{}\r\n0\r\n\r\n"),
	S("no size", CHUNKED "\r\n{}\r\n0\r\n\r\n"),
	S("only an extension", CHUNKED ";a=b\r\n{}\r\n0\r\n\r\n"),
	S("blank before the size", CHUNKED " 2\r\n{}\r\n0\r\n\r\n"),
	S("blanks in the size", CHUNKED "2 2\r\n{}\r\n0\r\n\r\n"),
	S("LF behind the size", CHUNKED "2\n{}\r\n0\r\n\r\n"),
	S("CR X behind the size", CHUNKED "2\rX{}\r\n0\r\n\r\n"),
	S("LF behind the data", CHUNKED "2\r\n{}\n0\r\n\r\n"),
	S("nothing behind the data", CHUNKED "2\r\n{}0\r\n\r\n"),
	S("other bytes behind the data", CHUNKED "2\r\n{}XX0\r\n\r\n"),
	S("longer than its size", CHUNKED "2\r\n{   }\r\n0\r\n\r\n"),
	S("LF in an extension", CHUNKED "2;a\nb\r\n{}\r\n0\r\n\r\n"),
	S("NUL in an extension", CHUNKED "2;a\0b\r\n{}\r\n0\r\n\r\n"),
	S("LF behind the last size", CHUNKED "2\r\n{}\r\n0\n\r\n"),
	S("LF as the end", CHUNKED "2\r\n{}\r\n0\r\n\n"),
	S("LF in the trailer", CHUNKED "2\r\n{}\r\n0\r\nX: y\nZ: 1\r\n\r\n"),
	S("folded trailer", CHUNKED "2\r\n{}\r\n0\r\nX: y\r\n z\r\n\r\n"),
	S("trailer without a colon", CHUNKED "2\r\n{}\r\n0\r\nX y\r\n\r\n"),
	S("blank before a trailer's colon", CHUNKED "2\r\n{}\r\n0\r\nX : y\r\n\r\n"),
	S("NUL in the trailer", CHUNKED "2\r\n{}\r\n0\r\nX: y\0\r\n\r\n"),
};

static const struct {
	const struct shape *shapes;
	size_t n;
} groups[] = {
#define GROUP(a)                           \
	{                                  \
		a, sizeof(a) / sizeof *(a) \
	}
	GROUP(lengths), GROUP(codings), GROUP(lines), GROUP(requests), GROUP(chunks)};

// SHAPE and behind it a request that would leave a file.
static void put_smuggled(struct buf *b, const struct shape *shape)
{
	static const char body[] = "{\"command\":\"echo 1 >> smuggled\"}";
	buf_append(b, shape->p, shape->n);
	buf_str(b, TOP "Content-Length: 32\r\n\r\n");
	buf_str(b, body);
	ck_assert_uint_eq(sizeof body - 1, 32);
	ck_assert_int_eq(buf_failed(b), 0);
}

static bool status_refuses(int status)
{
	static const int refusals[] = {400, 413, 414, 417, 431, 501, 505};
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
		if (refusals[i] == status)
			return true;
	return false;
}

// One refusal, a JSON object, and the end.
static void want_refusal(struct client *c, const char *name, size_t split)
{
	struct resp r = {0};
	c->eof = c->reset = false; // of the sending
	if (!client_try_response(c, &r))
		ck_abort_msg("%s, split at %zu: no whole answer", name, split);
	if (!status_refuses(r.status))
		ck_abort_msg("%s, split at %zu: status %d %.200s", name, split, r.status, buf_cstr(&r.body));
	ck_assert_uint_eq(json_object_size(assert_error(&r, r.status, NULL)), 3);
	const char *connection = resp_header(&r, "Connection");
	ck_assert_msg(connection && strcmp(connection, "close") == 0, "%s: Connection %s", name, connection);
	ck_assert_msg(
		client_wait_eof(c, 5000), "%s, split at %zu: more follows: %.100s", name, split, buf_cstr(&c->in));
	resp_release(&r);
}

static void want_no_marker(const struct testd *d, const char *name)
{
	struct resp r = {0};
	// Behind this one, whatever was started before would have left its file.
	ck_assert_msg(*j_str(run(d, "sleep .1; ls", &r), "stdout") == '\0', "%s: the hidden request was served", name);
	resp_release(&r);
}

// The shapes whole and at once; the group's number is the loop's.
START_TEST(hidden_request_is_served)
{
	struct testd *d = d_start();
	for (size_t i = 0; i < groups[_i].n; i++) {
		const struct shape *shape = &groups[_i].shapes[i];
		struct client *c = client_connect(d);
		struct buf b = {0};
		put_smuggled(&b, shape);
		(void)client_send_raw(c, buf_data(&b), buf_len(&b));
		want_refusal(c, shape->name, 0);
		client_close(c);
		buf_release(&b);
	}
	want_no_marker(d, "one of the group");
	d_finish(d);
}
END_TEST

// Every shape in two pieces, cut at each of its bytes in turn. All cuts of one shape are under way together, so that the
// daemon has read the first halves when the second ones come.
START_TEST(hidden_request_is_served_in_pieces)
{
	enum { CUTS_MAX = 256 };
	struct testd *d = d_start();
	struct client *c[CUTS_MAX];
	for (size_t i = 0; i < groups[_i].n; i++) {
		const struct shape *shape = &groups[_i].shapes[i];
		struct buf b = {0};
		put_smuggled(&b, shape);
		size_t cuts = shape->n < CUTS_MAX ? shape->n : CUTS_MAX;
		for (size_t cut = 1; cut <= cuts; cut++) {
			c[cut - 1] = client_connect(d);
			(void)client_send_raw(c[cut - 1], buf_data(&b), cut);
		}
		h_tick();
		for (size_t cut = 1; cut <= cuts; cut++)
			(void)client_send_raw(c[cut - 1], (const char *)buf_data(&b) + cut, buf_len(&b) - cut);
		for (size_t cut = 1; cut <= cuts; cut++) {
			want_refusal(c[cut - 1], shape->name, cut);
			client_close(c[cut - 1]);
		}
		buf_release(&b);
	}
	want_no_marker(d, "one of the group");
	d_finish(d);
}
END_TEST

// All shapes of a group side by side, each a byte at a time.
START_TEST(hidden_request_is_served_in_bytes)
{
	enum { SHAPES_MAX = 64 };
	struct testd *d = d_start();
	struct client *c[SHAPES_MAX];
	struct buf b[SHAPES_MAX] = {0};
	size_t n = groups[_i].n, longest = 0;
	const int on = 1;
	ck_assert_uint_le(n, SHAPES_MAX);
	for (size_t i = 0; i < n; i++) {
		c[i] = client_connect(d);
		ck_assert_int_eq(setsockopt(c[i]->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on), 0);
		put_smuggled(&b[i], &groups[_i].shapes[i]);
		longest = buf_len(&b[i]) > longest ? buf_len(&b[i]) : longest;
	}
	for (size_t at = 0; at < longest; at++) {
		for (size_t i = 0; i < n; i++)
			if (at < buf_len(&b[i]))
				(void)client_send_raw(c[i], (const char *)buf_data(&b[i]) + at, 1);
		h_tick();
	}
	for (size_t i = 0; i < n; i++) {
		want_refusal(c[i], groups[_i].shapes[i].name, 1);
		client_close(c[i]);
		buf_release(&b[i]);
	}
	want_no_marker(d, "one of the group");
	d_finish(d);
}
END_TEST

// The proof that the file would be there: behind a good request the same bytes are served.
START_TEST(marker_is_never_left)
{
	static const struct shape good = S("good", LENGTH("2"));
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	struct buf b = {0};
	put_smuggled(&b, &good);
	ck_assert(client_send_raw(c, buf_data(&b), buf_len(&b)));
	client_response(c, &r);
	ck_assert_int_eq(r.status, 400); // {} has no command
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_str_eq(j_str(run(d, "ls", &r), "stdout"), "smuggled\n");
	buf_release(&b);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static void put_large(struct buf *b, int kind)
{
	buf_str(b, kind == 0 ? "GET /" : kind < 3 ? TOP : CHUNKED);
	switch (kind) {
	case 0: // URL
		h_repeat(b, "u", 2048 * KIB);
		buf_str(b, " HTTP/1.1\r\n" HOST "\r\n");
		break;
	case 1: // one header
		buf_str(b, "X: ");
		h_repeat(b, "v", 2048 * KIB);
		buf_str(b, "\r\n\r\n");
		break;
	case 2: // many headers
		h_repeat(b, "X-Name: some value\r\n", 2048 * KIB / 20);
		buf_str(b, "\r\n");
		break;
	case 3: // one extension
		buf_str(b, "2;");
		h_repeat(b, "e", 1024 * KIB);
		buf_str(b, "\r\n{}\r\n0\r\n\r\n");
		break;
	case 4: // 300 extensions
		for (int i = 0; i < 300; i++) {
			buf_str(b, "1;");
			h_repeat(b, "e", 1024 * KIB / 300);
			buf_str(b, "\r\n \r\n");
		}
		buf_str(b, "0\r\n\r\n");
		break;
	default: // trailers
		buf_str(b, "2\r\n{}\r\n0\r\n");
		h_repeat(b, "X-Name: some value\r\n", 1024 * KIB / 20);
		buf_str(b, "\r\n");
	}
}

// Ten at once of each kind; the daemon holds no more of them than its limits say.
START_TEST(large_framing_takes_memory)
{
	enum { AT_ONCE = 10 };
	static const char *const names[] = {"URL", "header", "headers", "extension", "extensions", "trailers"};
	struct testd *d = d_start();
	struct client *c[AT_ONCE];
	struct buf b = {0};
	put_large(&b, _i);
	put_smuggled(&b, &(const struct shape)S("nothing", ""));
	long before = d_rss_kib(d);
	for (int i = 0; i < AT_ONCE; i++)
		c[i] = client_connect(d);
	for (int i = 0; i < AT_ONCE; i++)
		(void)client_send_raw(c[i], buf_data(&b), buf_len(&b));
	long grown = d_rss_kib(d) - before;
	for (int i = 0; i < AT_ONCE; i++) {
		want_refusal(c[i], names[_i], 0);
		client_close(c[i]);
	}
	ck_assert_msg(grown < (d_sanitized(d) ? 64 : 4) * 1024, "%s: %ld KiB more", names[_i], grown);
	want_no_marker(d, names[_i]);
	buf_release(&b);
	d_finish(d);
}
END_TEST

Suite *smuggling_suite(void)
{
	Suite *s = suite_create("smuggling");
	TCase *tc = h_tcase(s, "shapes", 30);
	const int n = (int)(sizeof groups / sizeof *groups);
	tcase_add_test(tc, marker_is_never_left);
	tcase_add_loop_test(tc, hidden_request_is_served, 0, n);
	tcase_add_loop_test(tc, hidden_request_is_served_in_pieces, 0, n);
	tcase_add_loop_test(tc, hidden_request_is_served_in_bytes, 0, n);
	tcase_add_loop_test(tc, large_framing_takes_memory, 0, 6);
	return s;
}
