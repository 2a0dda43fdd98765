// SPDX-License-Identifier: Apache-2.0
// client: a small blocking client of surface A: one connection, a deadline for each call, server-sent events decoded.
// Functions return an HTTP status, or a negative errno (-ETIMEDOUT at the deadline, -EPROTO for what is no HTTP or no frame,
// -ECONNRESET for an answer that was cut). client_open may be followed by client_close whatever it returned.
#ifndef CELLD_TESTS_DEMO_CLIENT_H
#define CELLD_TESTS_DEMO_CLIENT_H

#include "proto/buf.h"
#include "proto/frame.h"
#include "proto/http.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct client {
	int fd;
	int64_t limit_us;           // for each call; ten seconds, times T_SCALE
	const char *extra;          // complete header lines for every request, or NULL; borrowed
	struct http *http;          // private
	struct buf in;              // private: read, not parsed
	struct buf body;            // of the last answer; of a stream: what is not decoded yet
	json_t *doc;                // the last answer's body if it is a JSON object, else NULL
	struct frame_reader frames; // private
	bool over;                  // private: the stream's body is complete
};

int client_open(struct client *c, int port);
void client_close(struct client *c);
// Sends a request and nothing more; JSON may be NULL. 0 or negative errno.
int client_send(struct client *c, const char *method, const char *target, const char *json);
// Sends OUT as it is. 0 or negative errno.
int client_send_bytes(struct client *c, const struct buf *out);
// Reads one answer whole.
int client_answer(struct client *c);
// Reads an answer's head; unless that is 200, the body too.
int client_answer_stream(struct client *c);
// Appends more of such a stream to c->body: 1, 0 at the body's proper end, or negative errno.
int client_more(struct client *c);
int client_get(struct client *c, const char *target);
// The body by json_pack's FMT.
int client_post(struct client *c, const char *target, const char *fmt, ...);
// The same for streams: these end with the answer's head. A status other than 200 has its body read.
int client_get_stream(struct client *c, const char *target);
int client_post_stream(struct client *c, const char *target, const char *fmt, ...);

enum event_kind { EVENT_PID, EVENT_DATA, EVENT_EXIT, EVENT_ERROR, EVENT_DONE };

struct event {
	enum event_kind kind;
	char text[128]; // the frame's payload, cut if longer
	int pid;
	enum frame_channel channel;
	struct buf data; // decoded
	int code;
	char signal[16]; // "" if there is none
	bool timed_out;
};
// The stream's next event: 1, 0 at its proper end, or negative errno. E is zeroed before the first call.
int client_event(struct client *c, struct event *e);
void event_release(struct event *e);

// Monotonic.
int64_t client_now_us(void);
// T_SCALE of the environment, at least 1.
int client_scale(void);

#endif
