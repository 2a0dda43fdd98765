// SPDX-License-Identifier: Apache-2.0
// http_cases: the tables of check_http.c: messages and what a parser must make of them.
// A log is one line an event; a head's is METHOD PATH?QUERY or STATUS, version, keep or close, framing, |NAME=VALUE...
#ifndef CELLD_UNIT_HTTP_CASES_H
#define CELLD_UNIT_HTTP_CASES_H

#include "proto/http.h"

#include <stdbool.h>
#include <stddef.h>

#define BYTES(lit) "" lit, sizeof(lit) - 1
#define CHUNKED "POST /c HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"
#define LENGTH(value) "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: " value "\r\n\r\n"
#define CODING(value) "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: " value "\r\n\r\n0\r\n\r\n"
#define NEXT "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"

static const struct good {
	const char *what;
	const char *in;
	size_t n;
	const char *log;
} good[] = {
	{"get", BYTES("GET /a/b?x=1&y HTTP/1.1\r\nHost: h:80\r\n\r\n"), "GET /a/b?x=1&y 1.1 keep|Host=h:80\nend\n"},
	{"no query, empty query", BYTES("GET /? HTTP/1.1\r\nHost:\r\n\r\n"), "GET /? 1.1 keep|Host=\nend\n"},
	{"blanks around values", BYTES("GET / HTTP/1.1\r\nHost: \t h \t \r\nA:b\r\nE: \t\r\nF: c  d\xff\r\n\r\n"),
		"GET / 1.1 keep|Host=h|A=b|E=|F=c  d\xff\nend\n"},
	{"post with length", BYTES("POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 0005\r\n\r\nhello"),
		"POST /p 1.1 keep 5|Host=h|Content-Length=0005\nbody:hello\nend\n"},
	{"any bytes in a body", BYTES(LENGTH("6") "\0\xff\r\n\x01 "),
		"POST / 1.1 keep 6|Host=h|Content-Length=6\nbody:\\0\xff\r\n\x01 \nend\n"},
	{"length 0", BYTES(LENGTH("0")), "POST / 1.1 keep 0|Host=h|Content-Length=0\nend\n"},
	{"chunked with extensions and trailers",
		BYTES(CHUNKED "3;a;b=c\r\nabc\r\n0A;q=\"x y\"\r\n0123456789\r\n00;last\r\nT: v\r\nContent-Length: 3\r\n"
			      "Upgrade: x\r\nConnection: upgrade\r\n\r\n" NEXT),
		"POST /c 1.1 keep chunked|Host=h|Transfer-Encoding=chunked\nbody:abc0123456789\nend\n"
		"GET /smuggled 1.1 keep|Host=h\nend\n"},
	{"chunked and empty, coding in capitals",
		BYTES("PUT /c HTTP/1.1\r\nhost: h\r\ntransfer-encoding: CHUNKED\r\n\r\n0\r\n\r\n"),
		"PUT /c 1.1 keep chunked|host=h|transfer-encoding=CHUNKED\nend\n"},
	{"three pipelined",
		BYTES("GET /1 HTTP/1.1\r\nHost: h\r\n\r\nPOST /2 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nhi"
		      "DELETE /3 HTTP/1.1\r\nHost: h\r\nConnection: a, Close\r\n\r\n"),
		"GET /1 1.1 keep|Host=h\nend\nPOST /2 1.1 keep 2|Host=h|Content-Length=2\nbody:hi\nend\n"
		"DELETE /3 1.1 close|Host=h|Connection=a, Close\nend\n"},
	{"pipelined behind close", BYTES("GET /1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n" NEXT),
		"GET /1 1.1 close|Host=h|Connection=close\nend\nGET /smuggled 1.1 keep|Host=h\nend\n"},
	{"two empty lines before each",
		BYTES("\r\n\r\nGET /1 HTTP/1.1\r\nHost: h\r\n\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n"),
		"GET /1 1.1 keep|Host=h\nend\nGET /2 1.1 keep|Host=h\nend\n"},
	{"expect", BYTES("PUT /e HTTP/1.1\r\nHost: h\r\nExpect: 100-Continue\r\nContent-Length: 1\r\n\r\nx"),
		"PUT /e 1.1 keep 1 expect|Host=h|Expect=100-Continue|Content-Length=1\nbody:x\nend\n"},
	{"expect without a body", BYTES("GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue\r\n\r\n"),
		"GET / 1.1 keep|Host=h|Expect=100-continue\nend\n"},
	{"expect in 1.0", BYTES("PUT /e HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx"),
		"PUT /e 1.0 close 1|Expect=100-continue|Content-Length=1\nbody:x\nend\n"},
	{"absolute form", BYTES("GET http://u.example:80/a?b/c HTTP/1.1\r\nHost: h\r\n\r\n"),
		"GET /a?b/c 1.1 keep|Host=h\nend\n"},
	{"absolute form without a path", BYTES("GET HTTPS://h?q HTTP/1.1\r\nHost: h\r\n\r\n"),
		"GET /?q 1.1 keep|Host=h\nend\n"},
	{"absolute form, authority alone", BYTES("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n"),
		"GET / 1.1 keep|Host=h\nend\n"},
	{"options *", BYTES("OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n"), "OPTIONS * 1.1 keep|Host=h\nend\n"},
	{"a method for the router to refuse", BYTES("PROPFIND / HTTP/1.1\r\nHost: h\r\n\r\n"),
		"PROPFIND / 1.1 keep|Host=h\nend\n"},
	{"1.0", BYTES("GET / HTTP/1.0\r\n\r\n"), "GET / 1.0 close\nend\n"},
	{"1.0 kept", BYTES("HEAD / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\nGET / HTTP/1.0\r\n\r\n"),
		"HEAD / 1.0 keep|Connection=Keep-Alive\nend\nGET / 1.0 close\nend\n"},
	{"upgrade ignored",
		BYTES("GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n" NEXT),
		"GET / 1.1 keep|Host=h|Connection=Upgrade, HTTP2-Settings|Upgrade=h2c\nend\n"
		"GET /smuggled 1.1 keep|Host=h\nend\n"},
	{"upgrade ignored with a body",
		BYTES("POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: "
		      "2\r\n\r\nhi" NEXT),
		"POST / 1.1 keep 2|Host=h|Connection=Upgrade|Upgrade=h2c|Content-Length=2\nbody:hi\nend\n"
		"GET /smuggled 1.1 keep|Host=h\nend\n"},
	{"upgrade ignored with chunks",
		BYTES("POST / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: w\r\nTransfer-Encoding: "
		      "chunked\r\n\r\n"
		      "2\r\nhi\r\n0\r\n\r\n" NEXT),
		"POST / 1.1 keep chunked|Host=h|Connection=Upgrade|Upgrade=w|Transfer-Encoding=chunked\nbody:hi\nend\n"
		"GET /smuggled 1.1 keep|Host=h\nend\n"},
	{"escapes stay", BYTES("PATCH /%00%2f?%3F HTTP/1.1\r\nHost: [::1]:9\r\n\r\n"),
		"PATCH /%00%2f?%3F 1.1 keep|Host=[::1]:9\nend\n"},
	{"largest length", BYTES(LENGTH("9223372036854775807") "x"),
		"POST / 1.1 keep 9223372036854775807|Host=h|Content-Length=9223372036854775807\nbody:x"},
};

// Shapes that must not pass (B56). A request is put behind each; it must not be seen.
static const struct bad {
	const char *what;
	const char *in;
	size_t n;
	int status;
} bad[] = {
	{"length with chunked",
		BYTES("POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
		      "0\r\n\r\n"),
		400},
	{"chunked with length",
		BYTES("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n"
		      "0\r\n\r\n"),
		400},
	{"two lengths", BYTES(LENGTH("5\r\nContent-Length: 6") "hello"), 400},
	{"two lengths, the same", BYTES(LENGTH("5\r\nContent-Length: 5") "hello"), 400},
	{"length list", BYTES(LENGTH("5, 5") "hello"), 400},
	{"length empty", BYTES(LENGTH("")), 400},
	{"length +2", BYTES(LENGTH("+2") "hi"), 400},
	{"length -1", BYTES(LENGTH("-1")), 400},
	{"length 2^63", BYTES(LENGTH("9223372036854775808")), 413},
	{"length 2^64 - 1", BYTES(LENGTH("18446744073709551615")), 413},
	{"length 2^64", BYTES(LENGTH("18446744073709551616")), 413},
	{"length of 30 digits", BYTES(LENGTH("100000000000000000000000000000")), 413},
	{"length 0x2", BYTES(LENGTH("0x2") "hi"), 400},
	{"length 2 2", BYTES(LENGTH("2 2") "hi"), 400},
	{"length 2,", BYTES(LENGTH("2,") "hi"), 400},
	{"length 2.0", BYTES(LENGTH("2.0") "hi"), 400},
	{"blank before the colon", BYTES("POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n"),
		400},
	{"tab before the colon", BYTES("POST / HTTP/1.1\r\nHost: h\r\nContent-Length\t: 2\r\n\r\nhi"), 400},
	{"xchunked", BYTES(CODING("xchunked")), 400},
	{"chunkedx", BYTES(CODING("chunkedx")), 400},
	{"chunked, identity", BYTES(CODING("chunked, identity")), 400},
	{"gzip, chunked", BYTES(CODING("gzip, chunked")), 400},
	{"chunked, chunked", BYTES(CODING("chunked, chunked")), 400},
	{"chunked twice", BYTES(CODING("chunked\r\nTransfer-Encoding: chunked")), 400},
	{"identity", BYTES(CODING("identity")), 400},
	{"coding empty", BYTES(CODING("")), 400},
	{"coding with a vertical tab", BYTES(CODING("\vchunked")), 400},
	{"coding with a parameter", BYTES(CODING("chunked;a=b")), 400},
	{"coding folded", BYTES(CODING("\r\n chunked")), 400},
	{"chunked in 1.0", BYTES("POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"), 400},
	{"folded header", BYTES("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\n\r\n"), 400},
	{"folded with a tab", BYTES("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n\tc\r\n\r\n"), 400},
	{"folded first header", BYTES("GET / HTTP/1.1\r\n Host: h\r\n\r\n"), 400},
	{"bare LF behind the request line", BYTES("GET / HTTP/1.1\nHost: h\r\n\r\n"), 400},
	{"bare LF behind a header", BYTES("GET / HTTP/1.1\r\nHost: h\nA: b\r\n\r\n"), 400},
	{"bare LF ends the headers", BYTES("GET / HTTP/1.1\r\nHost: h\r\n\n"), 400},
	{"bare LF first", BYTES("\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"bare CR in a header", BYTES("GET / HTTP/1.1\r\nHost: h\rA: b\r\n\r\n"), 400},
	{"bare CR behind the request line", BYTES("GET / HTTP/1.1\rHost: h\r\n\r\n"), 400},
	{"bare CR before the line end", BYTES("GET / HTTP/1.1\r\nHost: h\r\r\n\r\n"), 400},
	{"bare CR ends the headers", BYTES("GET / HTTP/1.1\r\nHost: h\r\n\rX"), 400},
	{"NUL in a value", BYTES("GET / HTTP/1.1\r\nHost: h\r\nA: b\0c\r\n\r\n"), 400},
	{"NUL in a name", BYTES("GET / HTTP/1.1\r\nHost: h\r\nA\0: b\r\n\r\n"), 400},
	{"NUL in the URL", BYTES("GET /a\0b HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"control character in a value", BYTES("GET / HTTP/1.1\r\nHost: h\r\nA: b\x01\r\n\r\n"), 400},
	{"DEL in a value", BYTES("GET / HTTP/1.1\r\nHost: h\r\nA: b\x7f\r\n\r\n"), 400},
	{"8-bit URL", BYTES("GET /\xc3\xa4 HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"tab in the URL", BYTES("GET /a\tb HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"fragment", BYTES("GET /a#b HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"no header name", BYTES("GET / HTTP/1.1\r\nHost: h\r\n: b\r\n\r\n"), 400},
	{"no colon", BYTES("GET / HTTP/1.1\r\nHost: h\r\nabc\r\n\r\n"), 400},
	{"8-bit header name", BYTES("GET / HTTP/1.1\r\nHost: h\r\n\xc3\xa4: b\r\n\r\n"), 400},
	{"bad header name", BYTES("GET / HTTP/1.1\r\nHost: h\r\na(b: c\r\n\r\n"), 400},
	{"no Host", BYTES("GET / HTTP/1.1\r\nA: b\r\n\r\n"), 400},
	{"no header at all", BYTES("GET / HTTP/1.1\r\n\r\n"), 400},
	{"two Hosts", BYTES("GET / HTTP/1.1\r\nHost: h\r\nhost: h\r\n\r\n"), 400},
	{"two Hosts in 1.0", BYTES("GET / HTTP/1.0\r\nHost: h\r\nHost: i\r\n\r\n"), 400},
	{"Host with a path", BYTES("GET / HTTP/1.1\r\nHost: h/x\r\n\r\n"), 400},
	{"Host with a blank", BYTES("GET / HTTP/1.1\r\nHost: h i\r\n\r\n"), 400},
	{"version 0.9", BYTES("GET / HTTP/0.9\r\nHost: h\r\n\r\n"), 505},
	{"no version", BYTES("GET /\r\nHost: h\r\n\r\n"), 400},
	{"version 1.2", BYTES("GET / HTTP/1.2\r\nHost: h\r\n\r\n"), 505},
	{"version 1.10", BYTES("GET / HTTP/1.10\r\nHost: h\r\n\r\n"), 505},
	{"version 2.0", BYTES("GET / HTTP/2.0\r\nHost: h\r\n\r\n"), 505},
	{"version 3.0", BYTES("GET / HTTP/3.0\r\nHost: h\r\n\r\n"), 505},
	{"version in small letters", BYTES("GET / http/1.1\r\nHost: h\r\n\r\n"), 400},
	{"blank behind the version", BYTES("GET / HTTP/1.1 \r\nHost: h\r\n\r\n"), 505},
	{"two blanks before the version", BYTES("GET /  HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"two blanks before the target", BYTES("GET  / HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"no target", BYTES("GET HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"RTSP", BYTES("OPTIONS * RTSP/1.0\r\nHost: h\r\n\r\n"), 400},
	{"RTSP method", BYTES("DESCRIBE /a RTSP/1.0\r\nHost: h\r\n\r\n"), 501},
	{"RTSP method over HTTP", BYTES("PLAY /a HTTP/1.1\r\nHost: h\r\n\r\n"), 501},
	{"ICE", BYTES("SOURCE /a ICE/1.0\r\nHost: h\r\n\r\n"), 501},
	{"ICE method over HTTP", BYTES("SOURCE /a HTTP/1.1\r\nHost: h\r\n\r\n"), 501},
	{"HTTP/2 preface", BYTES("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), 501},
	{"HTTP/2 method", BYTES("PRI * HTTP/1.1\r\nHost: h\r\n\r\n"), 501},
	{"CONNECT", BYTES("CONNECT h:443 HTTP/1.1\r\nHost: h\r\n\r\n"), 501},
	{"unknown method", BYTES("BREW / HTTP/1.1\r\nHost: h\r\n\r\n"), 501},
	{"method in small letters", BYTES("get / HTTP/1.1\r\nHost: h\r\n\r\n"), 501},
	{"longer method", BYTES("GETX / HTTP/1.1\r\nHost: h\r\n\r\n"), 501},
	{"GET *", BYTES("GET * HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"relative target", BYTES("GET a/b HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"strange scheme", BYTES("GET ftp://h/ HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"absolute form without a host", BYTES("GET http:///a HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"unknown expectation", BYTES("GET / HTTP/1.1\r\nHost: h\r\nExpect: tea\r\n\r\n"), 417},
	{"expectation list", BYTES("GET / HTTP/1.1\r\nHost: h\r\nExpect: 100-continue, tea\r\n\r\n"), 417},
	{"empty expectation", BYTES("GET / HTTP/1.1\r\nHost: h\r\nExpect:\r\n\r\n"), 417},
	{"three empty lines", BYTES("\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"blank first", BYTES(" GET / HTTP/1.1\r\nHost: h\r\n\r\n"), 400},
	{"TLS hello", BYTES("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"), 400},
	{"a response", BYTES("HTTP/1.1 200 OK\r\nHost: h\r\n\r\n"), 501},
	{"chunk size f x 17", BYTES(CHUNKED "fffffffffffffffff\r\n"), 400},
	{"chunk size f x 16", BYTES(CHUNKED "ffffffffffffffff\r\nab"), 413},
	{"chunk size +2", BYTES(CHUNKED "+2\r\nhi\r\n0\r\n\r\n"), 400},
	{"chunk size -2", BYTES(CHUNKED "-2\r\nhi\r\n0\r\n\r\n"), 400},
	{"chunk size 0x2", BYTES(CHUNKED "0x2\r\nhi\r\n0\r\n\r\n"), 400},
	{"chunk size zz", BYTES(CHUNKED "zz\r\nhi\r\n0\r\n\r\n"), 400},
	{"chunk size empty", BYTES(CHUNKED "\r\nhi\r\n0\r\n\r\n"), 400},
	{"chunk size of an extension alone", BYTES(CHUNKED ";a\r\nhi\r\n0\r\n\r\n"), 400},
	{"blank before the chunk size", BYTES(CHUNKED " 2\r\nhi\r\n0\r\n\r\n"), 400},
	{"blank behind the chunk size", BYTES(CHUNKED "2 \r\nhi\r\n0\r\n\r\n"), 400},
	{"chunk size with a bare LF", BYTES(CHUNKED "2\nhi\r\n0\r\n\r\n"), 400},
	{"chunk size with a bare CR", BYTES(CHUNKED "2\rXhi\r\n0\r\n\r\n"), 400},
	{"chunk extension with a bare LF", BYTES(CHUNKED "2;a\nhi\r\n0\r\n\r\n"), 400},
	{"chunk extension with a quoted LF", BYTES(CHUNKED "2;a=\"\n\"\r\nhi\r\n0\r\n\r\n"), 400},
	{"chunk extension with a quoted CR", BYTES(CHUNKED "2;a=\"\r\n\"\r\nhi\r\n0\r\n\r\n"), 400},
	{"chunk extension with a bare CR", BYTES(CHUNKED "2;a\rX\r\nhi\r\n0\r\n\r\n"), 400},
	{"chunk extension with a NUL", BYTES(CHUNKED "2;a=\"\0\"\r\nhi\r\n0\r\n\r\n"), 400},
	{"no CRLF behind the data", BYTES(CHUNKED "2\r\nhiX\r\n0\r\n\r\n"), 400},
	{"data too long", BYTES(CHUNKED "2\r\nhii\r\n0\r\n\r\n"), 400},
	{"bare LF behind the data", BYTES(CHUNKED "2\r\nhi\n0\r\n\r\n"), 400},
	{"bare CR behind the data", BYTES(CHUNKED "2\r\nhi\r0\r\n\r\n"), 400},
	{"bare LF behind the last chunk", BYTES(CHUNKED "0\n\r\n"), 400},
	{"bare LF ends the trailers", BYTES(CHUNKED "0\r\n\n"), 400},
	{"bare LF behind a trailer", BYTES(CHUNKED "0\r\nA: b\n\r\n"), 400},
	{"folded trailer", BYTES(CHUNKED "0\r\nA: b\r\n c\r\n\r\n"), 400},
	{"trailer without a name", BYTES(CHUNKED "0\r\n: b\r\n\r\n"), 400},
	{"trailer with a NUL", BYTES(CHUNKED "0\r\nA: \0\r\n\r\n"), 400},
	{"trailer without a colon", BYTES(CHUNKED "0\r\nabc\r\n\r\n"), 400},
	{"request for a trailer", BYTES(CHUNKED "0\r\n" NEXT), 400},
	{"garbage behind a request", BYTES("GET / HTTP/1.1\r\nHost: h\r\n\r\n\x16\x03\x01"), 400},
};

// What cannot become HTTP any more is refused at once, without an empty line; N is the byte that decides.
static const struct bad early[] = {
	{"TLS hello", BYTES("\x16"), 400},
	{"NUL", BYTES("\0"), 400},
	{"control character", BYTES("GET\x01"), 400},
	{"NUL in the URL", BYTES("GET /\0"), 400},
	{"bare LF in the request line", BYTES("GET / HTTP/1.1\n"), 400},
	{"bare CR in the request line", BYTES("GET / HTTP/1.1\rX"), 400},
	{"8-bit byte", BYTES("\x80"), 400},
	{"third empty line", BYTES("\r\n\r\n\r"), 400},
	{"CR alone", BYTES("\rG"), 400},
	{"folding", BYTES("GET / HTTP/1.1\r\nHost: h\r\n "), 400},
};

static const struct answer {
	const char *what;
	const char *in;
	size_t n;
	bool no_body;
	const char *log;
} answers[] = {
	{"length", BYTES("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhiHTTP/1.0 404 \r\nContent-Length: 0\r\n\r\n"),
		false, "200 1.1 keep 2|Content-Length=2\nbody:hi\nend\n404 1.0 close 0|Content-Length=0\nend\n"},
	{"chunked",
		BYTES("HTTP/1.1 200 Fine\tday \xe4\r\nTransfer-Encoding: chunked\r\n\r\n2;e\r\nhi\r\n0\r\nT: "
		      "v\r\n\r\n"),
		false, "200 1.1 keep chunked|Transfer-Encoding=chunked\nbody:hi\nend\n"},
	{"to the end", BYTES("HTTP/1.1 200 OK\r\nA: b\r\n\r\nsome\r\nbytes"), false,
		"200 1.1 close|A=b\nbody:some\r\nbytes\nend\n"},
	{"to the end, no body came", BYTES("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\n"), false,
		"200 1.0 close|Connection=keep-alive\nend\n"},
	{"no reason", BYTES("HTTP/1.1 201\r\nContent-Length: 0\r\n\r\n"), false,
		"201 1.1 keep 0|Content-Length=0\nend\n"},
	{"no bodies",
		BYTES("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
		      "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\nHTTP/1.1 204 x\r\nContent-Length: "
		      "3\r\n\r\n"),
		false,
		"100 1.1 keep\nend\n204 1.1 keep\nend\n304 1.1 keep 9|Content-Length=9\nend\n"
		"204 1.1 keep 3|Content-Length=3\nend\n"},
	{"interim, then a body", BYTES("HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx"),
		false, "103 1.1 keep\nend\n200 1.1 keep 1|Content-Length=1\nbody:x\nend\n"},
	{"head",
		BYTES("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: "
		      "chunked\r\n\r\n"
		      "HTTP/1.1 200 OK\r\n\r\n"),
		true,
		"200 1.1 keep 9|Content-Length=9\nend\n200 1.1 keep chunked|Transfer-Encoding=chunked\nend\n"
		"200 1.1 keep\nend\n"},
	{"switching", BYTES("HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n"), false,
		"101 1.1 keep|Connection=upgrade|Upgrade=x\nend\n"},
	{"upgrade offered", BYTES("HTTP/1.1 200 OK\r\nConnection: upgrade\r\nUpgrade: x\r\nContent-Length: 1\r\n\r\ny"),
		false, "200 1.1 keep 1|Connection=upgrade|Upgrade=x|Content-Length=1\nbody:y\nend\n"},
	{"gzip, chunked", BYTES("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"), false,
		"error 400\n"},
	{"length and chunked", BYTES("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"),
		false, "error 400\n"},
	{"two lengths", BYTES("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx"), false,
		"error 400\n"},
	{"length too large", BYTES("HTTP/1.1 200 OK\r\nContent-Length: 9223372036854775808\r\n\r\n"), false,
		"error 413\n"},
	{"bare LF", BYTES("HTTP/1.1 200 OK\nA: b\r\n\r\n"), false, "error 400\n"},
	{"folded", BYTES("HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n"), false, "error 400\n"},
	{"two digits", BYTES("HTTP/1.1 20 OK\r\n\r\n"), false, "error 400\n"},
	{"four digits", BYTES("HTTP/1.1 2000 OK\r\n\r\n"), false, "error 400\n"},
	{"below 100", BYTES("HTTP/1.1 099 OK\r\n\r\n"), false, "error 400\n"},
	{"no status", BYTES("HTTP/1.1 \r\n\r\n"), false, "error 400\n"},
	{"version", BYTES("HTTP/2.0 200 OK\r\n\r\n"), false, "error 505\n"},
	{"other protocol", BYTES("RTSP/1.0 200 OK\r\n\r\n"), false, "error 400\n"},
	{"empty line first", BYTES("\r\nHTTP/1.1 200 OK\r\n\r\n"), false, "error 400\n"},
	{"request", BYTES("GET / HTTP/1.1\r\n\r\n"), false, "error 400\n"},
};

// What a close means behind these bytes.
static const struct closing {
	enum http_kind kind;
	const char *in;
	enum http_event ev;
} closings[] = {
	{HTTP_REQUEST, "", HTTP_MORE},
	{HTTP_REQUEST, "\r\n", HTTP_MORE},
	{HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: h\r\n\r\n", HTTP_MORE},
	{HTTP_REQUEST, "G", HTTP_ERROR},
	{HTTP_REQUEST, "GET / HTTP/1.1\r\nHost: h\r\n", HTTP_ERROR},
	{HTTP_REQUEST, LENGTH("2"), HTTP_ERROR},
	{HTTP_REQUEST, LENGTH("2") "h", HTTP_ERROR},
	{HTTP_REQUEST, CHUNKED, HTTP_ERROR},
	{HTTP_REQUEST, CHUNKED "2\r\nh", HTTP_ERROR},
	{HTTP_REQUEST, CHUNKED "2\r\nhi\r\n", HTTP_ERROR},
	{HTTP_REQUEST, CHUNKED "0\r\n", HTTP_ERROR},
	{HTTP_RESPONSE, "", HTTP_MORE},
	{HTTP_RESPONSE, "HTTP/1.1 200 OK\r\n", HTTP_ERROR},
	{HTTP_RESPONSE, "HTTP/1.1 200 OK\r\n\r\nabc", HTTP_END},
	{HTTP_RESPONSE, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na", HTTP_ERROR},
	{HTTP_RESPONSE, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", HTTP_MORE},
	{HTTP_RESPONSE, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n", HTTP_ERROR},
};

#endif
