// SPDX-License-Identifier: Apache-2.0
// client: a blocking HTTP client with deadlines over proto/http. One struct client is one connection, reused for as many
// requests as the test likes (also pipelined). Every failure but those named fails the test. The caller frees.
#ifndef CELLD_TESTS_INTEGRATION_CLIENT_H
#define CELLD_TESTS_INTEGRATION_CLIENT_H

#include "proto/buf.h"
#include "proto/http.h"
#include "tests/integration/daemon.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// The deadline where none is given, in milliseconds, before scaling.
#define CLIENT_DEADLINE 15000

struct client {
	int fd;
	struct http *http; // private: the response parser
	struct buf in;     // private: bytes read, not yet parsed
	int64_t deadline;  // milliseconds for each whole call below; CLIENT_DEADLINE unless set
	bool eof;          // the peer has closed
	bool reset;        // ... with RST
};

// One answer. Zeroed is empty; release it, also before it is filled again.
struct resp {
	int status;
	json_t *headers; // names in lower case, several values joined with ", "
	struct buf body;
	bool chunked;
	bool keep_alive;
	json_t *json; // private: resp_json
};

struct client *client_connect(const struct testd *d);
// With SO_RCVBUF of that many bytes set before the connect (0 = the kernel's default): for readers that fill up early.
struct client *client_connect_rcvbuf(const struct testd *d, int rcvbuf);
// To any address: surface B, another listener; a HOST that begins with '/' is a unix socket.
struct client *client_connect_to(const char *host, int port, int rcvbuf);
void client_close(struct client *c); // NULL is allowed
// Closes with RST instead of FIN.
void client_abort(struct client *c);

// All N bytes, or false if the peer closed meanwhile (c->eof or c->reset say how) or nothing moved for the deadline.
bool client_send_raw(struct client *c, const void *p, size_t n);
bool client_send_str(struct client *c, const char *s);
void client_shutdown_write(struct client *c);
// Sends one request. HEADERS: whole lines "Name: value\r\n...", or NULL. Host and, with a BODY, Content-Length and
// Content-Type: application/json are added. Sends all or fails the test.
void client_request(
	struct client *c, const char *method, const char *target, const char *headers, const void *body, size_t n);
// Reads one answer whole; 1xx answers are skipped.
void client_response(struct client *c, struct resp *r);
// The same for the answer to HEAD.
void client_response_head(struct client *c, struct resp *r);
// The same, but false if the connection ended before the answer was whole, or it was malformed; nothing fails.
bool client_try_response(struct client *c, struct resp *r);
// True if the peer closes (FIN or RST) within MS without sending anything more.
bool client_wait_eof(struct client *c, int64_t ms);
// True if nothing at all comes for MS: neither bytes nor a close.
bool client_silent(struct client *c, int64_t ms);
// Waits up to MS for bytes and appends them to c->in: their number, 0 at the end of the stream (c->eof), -1 if none came.
// For streams' readers and for tests of raw bytes.
ssize_t client_fill(struct client *c, int64_t ms);

// The parser's next event from what was read or from more of it; body bytes are appended to BODY. HTTP_MORE: END (h_now_ms) has
// passed; HTTP_ERROR: malformed or cut. For streams' readers; http_head(c->http) is the head.
enum http_event client_event(struct client *c, struct buf *body, int64_t end);
// json_pack's FMT as text, for bodies; the caller frees.
char *client_pack(const char *fmt, va_list ap);

// One request on a connection of its own. BODY: JSON text, or NULL. R is released first.
void req(const struct testd *d, const char *method, const char *target, const char *body, struct resp *r);
// The body by json_pack's FMT.
void req_pack(const struct testd *d, const char *method, const char *target, struct resp *r, const char *fmt, ...);
// POST /exec {"command":COMMAND}, wants 200: the answer's object, borrowed from R.
json_t *run(const struct testd *d, const char *command, struct resp *r);

void resp_release(struct resp *r);
// The value, or NULL.
const char *resp_header(const struct resp *r, const char *name);
// The body as a JSON object, Content-Type application/json; borrowed.
json_t *resp_json(struct resp *r);
// Fails unless R is an error answer as contract A section 1 has it: STATUS, {"error","code":CODE,"retryable"}, each of
// its type, and no success key beside them. CODE NULL: any. Returns the object.
json_t *assert_error(struct resp *r, int status, const char *code);

#endif
