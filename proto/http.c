// SPDX-License-Identifier: Apache-2.0
#include "proto/http.h"

#include "proto/http_head.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

// llhttp's enumerators of these names are others than ours.
#define HTTP_REQUEST LLHTTP_REQUEST
#define HTTP_RESPONSE LLHTTP_RESPONSE
#define HTTP_HEAD LLHTTP_HEAD
#include <llhttp.h>
#undef HTTP_REQUEST
#undef HTTP_RESPONSE
#undef HTTP_HEAD

enum {
	SKIP_MAX = 2,    // empty lines before a request line (RFC 9112 2.2)
	KEPT_MAX = 1024, // bytes of a head that is kept between requests
	CHUNK_FREE = 20, // bytes of a chunk's framing that are no overhead: the longest size and its line ends
};

enum state {
	ST_HEAD,
	ST_BODY,
	ST_TRAILER, // behind the last chunk's size line
	ST_DONE,    // complete, HTTP_END not yet reported
	ST_ENDED,
	ST_ERROR,
};

// Where a scan of a head or a trailer is: what the next byte belongs to.
enum scan {
	SCAN_START,    // nothing yet but skipped empty lines
	SCAN_START_CR, // the LF of a skipped empty line
	SCAN_LINE,     // a line's first byte
	SCAN_TEXT,     // inside a line
	SCAN_LF,       // the LF of a line
	SCAN_END,      // the LF of the empty line
	SCAN_DONE,     // from here on nothing is taken
	SCAN_BAD,
	SCAN_MANY, // too many lines
};

// The last request's head. Most clients send the same one again and again: then nothing of it is looked at twice, which was more than a quarter
// of a small request's cost.
struct kept {
	struct buf raw; // empty: none
	struct http_header *headers;
	struct http_head head;
	llhttp_t ll;   // behind it
	bool complete; // llhttp was, there
};

struct http {
	enum http_kind kind;
	enum state state;
	enum scan scan;
	unsigned skipped; // empty lines
	bool announced;   // http_expect_no_body was called
	bool no_body;     // this answer has none
	bool in_body;     // llhttp is through with the head
	bool last_chunk;
	bool complete; // llhttp saw the message's end
	struct http_limits limits;
	struct buf raw; // the head as it came; all spans point into it
	struct http_header *headers;
	size_t lines;           // headers or trailers seen by the scan; the room in headers
	uint64_t overhead;      // bytes of chunked framing so far
	uint64_t chunks;        // chunks begun
	uint64_t left;          // bytes of a request's body of known length that are still to come
	struct http_span piece; // what llhttp's on_body reported
	struct http_head head;
	llhttp_t ll;
	struct kept kept;
	struct err err;
};

static enum http_event fail(struct http *h, int status, const char *what)
{
	http_refuse(&h->err, status, what);
	h->state = ST_ERROR;
	return HTTP_ERROR;
}

static enum http_event fail_memory(struct http *h)
{
	err_sys(&h->err, -ENOMEM, "http head");
	h->state = ST_ERROR;
	return HTTP_ERROR;
}

// What llhttp knows beyond HTTP's methods (ICE, RTSP, HTTP/2's preface) has higher numbers.
static bool method_ok(const struct http *h)
{
	return h->ll.method != HTTP_CONNECT && h->ll.method < HTTP_SOURCE;
}

static enum http_event fail_llhttp(struct http *h, llhttp_errno_t rc)
{
	const char *reason = llhttp_get_error_reason(&h->ll);
	int status = 400;
	if (rc == HPE_INVALID_METHOD || !method_ok(h))
		status = 501;
	else if (rc == HPE_INVALID_VERSION)
		status = 505;
	else if (rc == HPE_CB_CHUNK_HEADER || (rc == HPE_INVALID_CONTENT_LENGTH && !h->in_body &&
						      strstr(reason, "overflow"))) // no trailer has a length
		status = 413;
	return fail(h, status, reason);
}

// --- what llhttp reports ---

static void extend(struct http_span *s, const char *p, size_t n)
{
	if (!s->p)
		s->p = p;
	s->n = (size_t)(p + n - s->p);
}

static int on_method(llhttp_t *ll, const char *p, size_t n)
{
	struct http *h = ll->data;
	extend(&h->head.method, p, n);
	return 0;
}

static int on_url(llhttp_t *ll, const char *p, size_t n)
{
	struct http *h = ll->data;
	extend(&h->head.target, p, n);
	return 0;
}

static int on_header_field(llhttp_t *ll, const char *p, size_t n)
{
	struct http *h = ll->data;
	if (h->in_body) // trailers are dropped
		return 0;
	if (h->head.header_count >= h->lines)
		return -1;
	// The head is fed in one piece, so that each name and each value comes as one span.
	h->headers[h->head.header_count++] = (struct http_header){.name = {p, n}, .value = {p + n, 0}};
	return 0;
}

static int on_header_value(llhttp_t *ll, const char *p, size_t n)
{
	struct http *h = ll->data;
	if (h->in_body)
		return 0;
	if (h->head.header_count == 0)
		return -1;
	while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
		n--;
	h->headers[h->head.header_count - 1].value = (struct http_span){p, n};
	return 0;
}

static int on_headers_complete(llhttp_t *ll)
{
	struct http *h = ll->data;
	h->in_body = true;
	if (h->kind == HTTP_REQUEST)
		return 0;
	int status = ll->status_code;
	h->no_body = h->announced || status / 100 == 1 || status == 204 || status == 304;
	return h->no_body ? 1 : 0;
}

static int on_body(llhttp_t *ll, const char *p, size_t n)
{
	struct http *h = ll->data;
	if (n == 0)
		return 0;
	h->piece = (struct http_span){p, n};
	return HPE_PAUSED;
}

static int on_chunk_header(llhttp_t *ll)
{
	struct http *h = ll->data;
	if (ll->content_length > INT64_MAX)
		return -1;
	if (ll->content_length > 0)
		return 0;
	h->last_chunk = true;
	return HPE_PAUSED;
}

// Stopping here also keeps llhttp from its stop for another protocol (Upgrade), which would come next: it is not wanted.
static int on_message_complete(llhttp_t *ll)
{
	struct http *h = ll->data;
	h->complete = true;
	return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
	.on_method = on_method,
	.on_url = on_url,
	.on_header_field = on_header_field,
	.on_header_value = on_header_value,
	.on_headers_complete = on_headers_complete,
	.on_body = on_body,
	.on_chunk_header = on_chunk_header,
	.on_message_complete = on_message_complete,
};

// Feeds llhttp until it pauses; *USED is where. 0, or its error.
static llhttp_errno_t execute(struct http *h, const char *p, size_t n, size_t *used)
{
	h->piece = (struct http_span){NULL, 0};
	*used = n;
	llhttp_errno_t rc = llhttp_execute(&h->ll, p, n);
	if (rc != HPE_PAUSED)
		return rc;
	*used = (size_t)(llhttp_get_error_pos(&h->ll) - p);
	llhttp_resume(&h->ll);
	return HPE_OK;
}

// --- the scan: lines end in CRLF, are not folded, have a name and no control characters ---

static enum scan scan_first(const struct http *h, unsigned char c)
{
	// Methods are letters; anything else is no HTTP (a TLS hello, say) and gets its answer at once.
	bool letter = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
	if (h->kind == HTTP_RESPONSE)
		return c == 'H' ? SCAN_TEXT : SCAN_BAD;
	if (c == '\r')
		return h->skipped < SKIP_MAX ? SCAN_START_CR : SCAN_BAD;
	return letter ? SCAN_TEXT : SCAN_BAD;
}

static enum scan scan_line(struct http *h, unsigned char c)
{
	if (c == '\r')
		return SCAN_END;
	if (c <= ' ' || c == 0x7f || c == ':')
		return SCAN_BAD;
	return ++h->lines > h->limits.headers ? SCAN_MANY : SCAN_TEXT;
}

static enum scan scan_byte(struct http *h, unsigned char c)
{
	switch (h->scan) {
	case SCAN_START:
		return scan_first(h, c);
	case SCAN_START_CR:
		h->skipped++;
		return c == '\n' ? SCAN_START : SCAN_BAD;
	case SCAN_LINE:
		return scan_line(h, c);
	case SCAN_TEXT:
		if (c == '\r')
			return SCAN_LF;
		return (c < ' ' && c != '\t') || c == 0x7f ? SCAN_BAD : SCAN_TEXT;
	case SCAN_LF:
		return c == '\n' ? SCAN_LINE : SCAN_BAD;
	case SCAN_END:
		return c == '\n' ? SCAN_DONE : SCAN_BAD;
	default:
		return h->scan;
	}
}

// Takes bytes up to the end of the head or trailer or to the first bad one. Returns how many. Most of them go past the states: these were a
// tenth of a small request.
static size_t scan(struct http *h, const char *p, size_t n)
{
	size_t i = 0;
	while (i < n && h->scan < SCAN_DONE) {
		if (h->scan == SCAN_TEXT)
			i += http_text_run(p + i, n - i);
		while (i < n && h->scan < SCAN_DONE) {
			enum scan was = h->scan;
			h->scan = scan_byte(h, (unsigned char)p[i++]);
			if (was != SCAN_TEXT && h->scan == SCAN_TEXT)
				break;
		}
	}
	return i;
}

// Takes empty lines before the head. Returns how many bytes.
static size_t skip_empty(struct http *h, const char *p, size_t n)
{
	size_t i = 0;
	while (i < n && (h->scan == SCAN_START_CR || (h->scan == SCAN_START && p[i] == '\r')))
		h->scan = scan_byte(h, (unsigned char)p[i++]);
	return i;
}

static enum http_event fail_scan(struct http *h)
{
	if (h->scan == SCAN_MANY)
		return fail(h, h->in_body ? 400 : 431, h->in_body ? "too many trailers" : "too many headers");
	return fail(h, 400, "bad line end or character");
}

// --- the head ---

static void begin_body(struct http *h)
{
	bool known = h->kind == HTTP_REQUEST && !h->head.chunked && h->head.content_length > 0;
	h->left = known ? (uint64_t)h->head.content_length : 0;
	h->state = h->complete ? ST_DONE : ST_BODY;
}

static enum http_event finish_head(struct http *h)
{
	const char *p = (const char *)buf_data(&h->raw);
	size_t n = buf_len(&h->raw), used;
	if (h->lines > 0 && !(h->headers = malloc(h->lines * sizeof(*h->headers)))) // filled as far as it is counted
		return fail_memory(h);
	h->head.headers = h->headers;
	llhttp_errno_t rc = execute(h, p, n, &used);
	if (rc != HPE_OK)
		return fail_llhttp(h, rc);
	if (h->kind == HTTP_REQUEST && !method_ok(h))
		return fail(h, 501, "method not implemented");
	if (used != n || !h->in_body || h->head.header_count != h->lines)
		return fail(h, 400, "ambiguous head");
	if (http_head_check(&h->head, h->kind, &h->raw, !h->no_body, &h->err)) {
		h->state = ST_ERROR;
		return HTTP_ERROR;
	}
	begin_body(h);
	h->kept.ll = h->ll;
	h->kept.complete = h->complete;
	return HTTP_HEAD;
}

static void drop_head(struct http *h)
{
	buf_release(&h->raw);
	free(h->headers);
	h->headers = NULL;
	memset(&h->head, 0, sizeof(h->head));
}

static void drop_kept(struct http *h)
{
	buf_release(&h->kept.raw);
	free(h->kept.headers);
	h->kept.headers = NULL;
}

// Only where what may be kept of it is little.
static void keep_head(struct http *h)
{
	struct kept *k = &h->kept;
	if (h->kind != HTTP_REQUEST || buf_len(&h->raw) > KEPT_MAX)
		return;
	k->raw = h->raw;
	k->headers = h->headers;
	k->head = h->head;
	buf_init(&h->raw, h->limits.head);
	h->headers = NULL;
}

// True if the N bytes begin with the head that is kept: it is the message's then. Else none is kept any more.
static bool same_head(struct http *h, const char *p, size_t n, size_t *used)
{
	struct kept *k = &h->kept;
	size_t len = buf_len(&k->raw);
	if (n < len || memcmp(p, buf_data(&k->raw), len) != 0) {
		drop_kept(h);
		return false;
	}
	h->raw = k->raw;
	h->headers = k->headers;
	h->head = k->head;
	h->lines = h->head.header_count;
	h->ll = k->ll;
	buf_init(&k->raw, 0);
	k->headers = NULL;
	h->scan = SCAN_DONE;
	h->in_body = true;
	h->complete = k->complete;
	begin_body(h);
	*used = len;
	return true;
}

static enum http_event feed_head(struct http *h, const char *p, size_t n, size_t *used)
{
	if (n > 0 && buf_len(&h->kept.raw) > 0 && same_head(h, p, n, used))
		return HTTP_HEAD;
	size_t skip = skip_empty(h, p, n);
	p += skip;
	n -= skip;
	size_t room = h->limits.head - buf_len(&h->raw);
	size_t taken = scan(h, p, n < room ? n : room);
	*used = skip + taken;
	if (h->scan > SCAN_DONE)
		return fail_scan(h);
	if (taken < n && h->scan != SCAN_DONE)
		return fail(h, 431, "request head too large");
	buf_append(&h->raw, p, taken);
	if (buf_failed(&h->raw))
		return fail_memory(h);
	return h->scan == SCAN_DONE ? finish_head(h) : HTTP_MORE;
}

// --- the body ---

// Counts the N bytes of a step that are not body; true while they are within the limit. A step ends at the latest with
// a piece of body, and a chunk's free bytes count from its beginning: the answer does not depend on how bytes are cut.
static bool overhead_ok(struct http *h, size_t n)
{
	if (!h->head.chunked)
		return true;
	h->overhead += n;
	bool ok = h->overhead <= h->limits.overhead + h->chunks * CHUNK_FREE;
	if (h->piece.n > 0 && h->ll.content_length == 0) // all of the chunk's bytes are here
		h->chunks++;
	return ok;
}

// There is nothing to parse in it.
static enum http_event feed_known(struct http *h, const char *p, size_t n, size_t *used, struct http_span *body)
{
	size_t step = n < h->left ? n : (size_t)h->left;
	if (step == 0)
		return HTTP_MORE;
	*body = (struct http_span){p, step};
	*used = step;
	h->left -= step;
	h->state = h->left > 0 ? ST_BODY : ST_DONE;
	return HTTP_BODY;
}

static enum http_event feed_body(struct http *h, const char *p, size_t n, size_t *used, struct http_span *body)
{
	for (;;) {
		size_t at = *used, step = n - at;
		if (h->state == ST_TRAILER)
			step = scan(h, p + at, step);
		if (h->scan > SCAN_DONE)
			return fail_scan(h);
		llhttp_errno_t rc = execute(h, p + at, step, &step);
		if (rc != HPE_OK)
			return fail_llhttp(h, rc);
		*used = at + step;
		if (!overhead_ok(h, step - h->piece.n))
			return fail(h, 400, "too much chunk overhead");
		if (h->state == ST_TRAILER && h->complete != (h->scan == SCAN_DONE))
			return fail(h, 400, "ambiguous trailer");
		if (h->piece.n > 0) {
			*body = h->piece;
			return HTTP_BODY;
		}
		if (h->complete) {
			h->state = ST_ENDED;
			return HTTP_END;
		}
		if (h->state == ST_TRAILER || !h->last_chunk)
			return HTTP_MORE;
		h->state = ST_TRAILER;
		h->scan = SCAN_LINE;
		h->lines = 0;
	}
}

// --- the interface ---

static void start(struct http *h)
{
	h->state = ST_HEAD;
	h->scan = SCAN_START;
	h->skipped = 0;
	h->no_body = h->in_body = h->last_chunk = h->complete = false;
	h->lines = 0;
	h->overhead = 0;
	h->chunks = 1;
	llhttp_init(&h->ll, h->kind == HTTP_REQUEST ? LLHTTP_REQUEST : LLHTTP_RESPONSE, &settings);
	h->ll.data = h;
}

struct http *http_new(enum http_kind kind, const struct http_limits *limits)
{
	struct http *h = calloc(1, sizeof(*h));
	if (!h)
		return NULL;
	h->kind = kind;
	h->limits = *limits;
	buf_init(&h->raw, limits->head);
	start(h);
	return h;
}

void http_free(struct http *h)
{
	if (!h)
		return;
	drop_head(h);
	drop_kept(h);
	free(h);
}

enum http_event http_feed(struct http *h, const char *p, size_t n, size_t *used, struct http_span *body)
{
	enum http_event ev = HTTP_ERROR;
	*used = 0;
	*body = (struct http_span){NULL, 0};
	if (n == 0)
		p = "";
	switch (h->state) {
	case ST_HEAD:
		ev = feed_head(h, p, n, used);
		if (ev == HTTP_ERROR)
			drop_head(h);
		break;
	case ST_BODY:
	case ST_TRAILER:
		// The head stays even after an error: a handler may be at work on it.
		ev = (h->left > 0 ? feed_known : feed_body)(h, p, n, used, body);
		break;
	case ST_DONE:
	case ST_ENDED:
		h->state = ST_ENDED;
		return HTTP_END;
	case ST_ERROR:
		break;
	}
	if (ev == HTTP_ERROR)
		*used = n; // nothing that follows means anything
	return ev;
}

// True in an answer's body that runs until the peer closes.
static bool to_eof(const struct http *h)
{
	return h->kind == HTTP_RESPONSE && !h->head.chunked && h->head.content_length < 0;
}

enum http_event http_eof(struct http *h)
{
	size_t used = 0;
	struct http_span body;
	switch (h->state) {
	case ST_HEAD:
		if (http_idle(h))
			return HTTP_MORE;
		break;
	case ST_BODY:
	case ST_TRAILER:
		// The last byte of a body may be in, with the end still to be reported.
		if (!to_eof(h) && feed_body(h, "", 0, &used, &body) != HTTP_END)
			break;
		h->state = ST_ENDED;
		return HTTP_END;
	case ST_DONE:
		h->state = ST_ENDED;
		return HTTP_END;
	case ST_ENDED:
		return HTTP_MORE;
	case ST_ERROR:
		return HTTP_ERROR;
	}
	return fail(h, 400, "connection closed inside a message");
}

const struct http_head *http_head(const struct http *h)
{
	return &h->head;
}

const struct err *http_error(const struct http *h)
{
	return &h->err;
}

void http_next(struct http *h)
{
	assert(h->state == ST_ENDED);
	// An interim answer (1xx) is not yet the one that was announced.
	if (h->head.status / 100 != 1)
		h->announced = false;
	keep_head(h);
	drop_head(h);
	start(h);
}

bool http_idle(const struct http *h)
{
	return h->state == ST_HEAD && h->scan <= SCAN_START_CR;
}

void http_expect_no_body(struct http *h)
{
	h->announced = true;
}
