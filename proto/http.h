// SPDX-License-Identifier: Apache-2.0
// http: HTTP/1.1 messages in and out, over llhttp with strictness of our own (smuggling shapes that llhttp lets through).
// A parser belongs to its connection; it holds one head at a time. Pull interface: feed bytes, get one event at a time, so
// that the caller decides when a pipelined request may start. Nothing here knows a socket.
#ifndef CELLD_PROTO_HTTP_H
#define CELLD_PROTO_HTTP_H

#include "proto/buf.h"
#include "proto/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum http_kind { HTTP_REQUEST, HTTP_RESPONSE };

enum http_event {
	HTTP_MORE,  // all bytes taken, nothing to report
	HTTP_HEAD,  // a head is complete: http_head
	HTTP_BODY,  // body bytes: *body, pointing into the bytes that were fed
	HTTP_END,   // the message is complete; the next one may be fed after http_next
	HTTP_ERROR, // http_error says what to answer; the connection must be closed afterwards. Sticky.
};

struct http_span {
	const char *p;
	size_t n;
};

struct http_header {
	struct http_span name;  // as sent; compare without case
	struct http_span value; // without surrounding blanks
};

struct http_head {
	struct http_span method; // "GET"; requests only
	struct http_span target; // as sent
	struct http_span path;   // target up to '?', undecoded; of an absolute-form target its path
	struct http_span query;  // behind '?', undecoded; n = 0 if there is none
	int status;              // responses only
	int minor;               // 1, or 0 for HTTP/1.0
	bool keep_alive;         // RFC 9112 9.3
	bool chunked;
	bool expect_continue;
	int64_t content_length; // -1 if there is no Content-Length
	const struct http_header *headers;
	size_t header_count;
	// Bit N: no header's name has N bytes, so that most of those that are not there are not looked for.
	uint64_t without;
};

struct http_limits {
	size_t head;     // bytes of a request line with its headers; over it 431
	size_t headers;  // how many headers; over it 431
	size_t overhead; // bytes of chunk lines and trailers in one message, 20 a chunk free; over it 400
};

struct http;

// NULL when out of memory. LIMITS is copied.
struct http *http_new(enum http_kind kind, const struct http_limits *limits);
void http_free(struct http *h);
// Takes bytes until the next event. *USED says how many of the N were taken (0 < *USED unless the event needs none).
// Call again with the rest. BODY is set for HTTP_BODY. N = 0 is allowed: an event that is due without more bytes
// (a request without a body ends so) is still reported.
enum http_event http_feed(struct http *h, const char *p, size_t n, size_t *used, struct http_span *body);
// The peer closed: HTTP_END if that completes a response whose body runs to the end, HTTP_MORE between messages,
// HTTP_ERROR in the middle of one.
enum http_event http_eof(struct http *h);
// The head of the current message, from HTTP_HEAD until http_next.
const struct http_head *http_head(const struct http *h);
// What to answer after HTTP_ERROR: status 400, 413 (length beyond 2^63 - 1), 417, 431, 501, 503 (no memory) or 505.
const struct err *http_error(const struct http *h);
// Ready for the next message on the same connection, and drops the head's memory. Only after HTTP_END.
void http_next(struct http *h);
// True between messages: nothing of a head has come yet.
bool http_idle(const struct http *h);
// For a response parser, before the head is complete: the request was HEAD, or the answer has no body for another
// reason. Holds for one answer and the interim ones (1xx) before it.
void http_expect_no_body(struct http *h);

// These are inline for their lengths to be constants: a request asks for some fifteen headers, most of which are not there.
bool http_same_nocase(const char *a, const char *b, size_t n); // ASCII, any case
static inline bool http_span_is_nocase(struct http_span s, const char *lit)
{
	size_t n = strlen(lit);
	return s.n == n && http_same_nocase(s.p, lit, n);
}
static inline bool http_span_is(struct http_span s, const char *lit) // exact
{
	size_t n = strlen(lit);
	return s.n == n && (n == 0 || memcmp(s.p, lit, n) == 0);
}
struct http_span http_get_n(const struct http_head *head, const char *name, size_t n);
// The value of the first header NAME (any case), or p = NULL.
static inline struct http_span http_get(const struct http_head *head, const char *name)
{
	size_t n = strlen(name);
	if (n < 64 && (head->without >> n & 1))
		return (struct http_span){NULL, 0};
	return http_get_n(head, name, n);
}
// S without the blanks and tabs around it.
struct http_span http_span_trim(struct http_span s);
// True if a comma-separated header NAME (all its lines) contains TOKEN, any case.
bool http_has_token(const struct http_head *head, const char *name, const char *token);

// --- writing ---

// "HTTP/1.1 200 OK\r\n"; the phrase comes from err_phrase.
void http_put_status(struct buf *out, int status);
void http_put_request(struct buf *out, const char *method, const char *target);
// "NAME: VALUE\r\n". CR, LF and NUL in VALUE become spaces: no header injection.
void http_put_header(struct buf *out, const char *name, const char *value);
void http_put_length(struct buf *out, uint64_t n); // Content-Length
void http_put_end(struct buf *out);                // the empty line
// A chunk (RFC 9112 7.1) in one go; N = 0 writes nothing (that would be the end).
void http_put_chunk(struct buf *out, const void *p, size_t n);
// The end of a chunked body.
void http_put_last_chunk(struct buf *out);
// Begins a chunk of unknown length of at most 16 MiB in OUT: leaves room for its size; http_chunk_end fills it in from what was
// appended in between (nothing appended: the room is taken back). Returns the mark for http_chunk_end.
size_t http_chunk_begin(struct buf *out);
void http_chunk_end(struct buf *out, size_t mark);

#endif
