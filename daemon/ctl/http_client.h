// SPDX-License-Identifier: Apache-2.0
// http_client: one connection to a daemon over proto/http. Steps never wait, so that a loop of poll(2) can drive several;
// http_client_call waits, with a limit. After a whole answer the connection serves the next request, or is made anew.
// Every failure fills a struct err; what is wrong with the connection itself has the reason HTTP_CLIENT_LOST.
#ifndef CELLD_DAEMON_CTL_HTTP_CLIENT_H
#define CELLD_DAEMON_CTL_HTTP_CLIENT_H

#include "daemon/ctl/target.h"
#include "proto/buf.h"
#include "proto/err.h"
#include "proto/http.h"
#include "proto/json.h"

#include <stdbool.h>
#include <stdint.h>

struct http_client {
	const struct target *target;
	int fd; // -1: not connected
	struct http *http;
	struct buf out;   // private: not sent yet
	struct buf in;    // private: read, not looked at yet
	struct buf body;  // of the answer, as far as it has come; the caller may consume
	int64_t limit_ms; // of a whole http_client_call, and of a connect
	int stop_fd;      // -1: none; once it is readable http_client_call does not wait much longer
	int64_t stop_by;  // private: until then (io_mono_ns), 0: it was not
	unsigned interim; // private: answers before the answer (1xx)
	bool eof;         // private
	bool busy;        // a request is under way
};

enum http_client_event {
	HTTP_CLIENT_WAIT, // poll for http_client_interest first
	HTTP_CLIENT_HEAD, // http_client_status
	HTTP_CLIENT_BODY, // more of it in body
	HTTP_CLIENT_END,
	HTTP_CLIENT_FAILED,
};

#define HTTP_CLIENT_LIMIT_MS 60000

void http_client_init(struct http_client *c, const struct target *target);
void http_client_release(struct http_client *c);
// True if E says that there is no connection (any more).
bool http_client_lost(const struct err *e);

// Connects if need be and takes the request; JSON (may be NULL) is its body. 0, or -1 with E filled.
int http_client_begin(
	struct http_client *c, const char *method, const char *path, const struct buf *json, struct err *e);
// Sends and reads what goes without waiting.
enum http_client_event http_client_step(struct http_client *c, struct err *e);
// For poll: what c->fd waits for.
short http_client_interest(const struct http_client *c);
int http_client_status(const struct http_client *c);
// What an answer with another status than 200 says, once it is whole.
void http_client_error(struct http_client *c, struct err *e);
// The code that a word (may be NULL) stands for, ERR_UNKNOWN for one that is not ours.
enum err_code http_client_code(const char *word);
// Waits up to END (io_mono_ns) until a step may do something. 0, or -1 with E filled.
int http_client_wait(struct http_client *c, int64_t end, struct err *e);
// A whole exchange: the object that came with 200, the caller's (jsonr_free); NULL with E filled. The text stays in c->body.
json_t *http_client_call(
	struct http_client *c, const char *method, const char *path, const struct buf *json, struct err *e);

#endif
