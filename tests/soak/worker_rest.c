// SPDX-License-Identifier: Apache-2.0
// The other routes, what is malformed, and clients that go away in the middle.
#include "tests/soak/soak.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

struct request {
	enum surface s;
	const char *bytes;
	int status, also; // what is allowed; also = 0: nothing else
};

#define H "Host: x\r\n"
#define JSON_ "Content-Type: application/json\r\n"
#define CONNECT_ "Content-Type: application/connect+json\r\n"

static const struct request malformed[] = {
	{A, "NONSENSE\r\n\r\n", 501, 400},
	{A, "GET /health HTTP/1.1\r\n\r\n", 400, 0},
	{A, "GET /health HTTP/2.0\r\n" H "\r\n", 505, 400},
	{A, "GET /he alth HTTP/1.1\r\n" H "\r\n", 400, 0},
	{A, "POST /exec HTTP/1.1\r\n" H "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, 0},
	{A, "POST /exec HTTP/1.1\r\n" H "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, 0},
	{A, "POST /exec HTTP/1.1\r\n" H "Content-Length: -1\r\n\r\n", 400, 0},
	{A, "POST /exec HTTP/1.1\r\n" H "Content-Length: 99999999999\r\n\r\n", 413, 0},
	{A, "POST /exec HTTP/1.1\r\n" H JSON_ "Content-Length: 8\r\n\r\n{\"comman", 400, 0},
	{A, "POST /exec HTTP/1.1\r\n" H JSON_ "Content-Length: 2\r\n\r\n{}", 400, 0},
	{A, "POST /exec/stream HTTP/1.1\r\n" H JSON_ "Content-Length: 2\r\n\r\n[]", 400, 0},
	{A, "POST /exec/stdin HTTP/1.1\r\n" H JSON_ "Content-Length: 24\r\n\r\n{\"pid\":999999,\"data\":\"\"}", 404, 0},
	{A, "GET /exec/attach?pid=999999 HTTP/1.1\r\n" H "\r\n", 404, 0},
	{A, "GET /exec/background/..%2f HTTP/1.1\r\n" H "\r\n", 400, 404},
	{A, "GET /files/read HTTP/1.1\r\n" H "\r\n", 400, 0},
	{A, "DELETE /exec HTTP/1.1\r\n" H "\r\n", 405, 0},
	{A, "GET /no/such/route HTTP/1.1\r\n" H "\r\n", 404, 0},
	{B, "\x16\x03\x01\x02\x01\r\n\r\n", 400, 0},
	{B, "GET /no/such/route HTTP/1.1\r\n" H "\r\n", 404, 0},
	{B, "GET /process.Process/List HTTP/1.1\r\n" H "\r\n", 405, 0},
	{B, "POST /process.Process/List HTTP/1.1\r\n" H "Content-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}", 415,
		0},
	{B, "POST /process.Process/List HTTP/1.1\r\n" H JSON_ "Content-Length: 2\r\n\r\n{]", 400, 0},
	{B,
		"POST /process.Process/List HTTP/1.1\r\n" H
		"Content-Type: application/proto\r\nContent-Length: 2\r\n\r\n\x7f\x7f",
		400, 0},
	{B, "POST /process.Process/Start HTTP/1.1\r\n" H CONNECT_ "Content-Length: 2\r\n\r\n{}", 200, 0},
	{B, "POST /process.Process/Start HTTP/1.1\r\n" H CONNECT_ "Content-Length: 0\r\n\r\n", 200, 0},
	{B, "POST /files HTTP/1.1\r\n" H "Content-Length: 2\r\n\r\n{}", 400, 0},
	{B,
		"POST /files HTTP/1.1\r\n" H
		"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: 4\r\n\r\n--xx",
		500, 400},
	{B, "GET /files?path=/nowhere/at/all HTTP/1.1\r\n" H "\r\n", 404, 0},
	{B, "POST /init HTTP/1.1\r\n" H JSON_ "Content-Length: 1\r\n\r\n{", 400, 0},
};

static void send_malformed(struct worker *w)
{
	const struct request *r = &malformed[pick(w, sizeof malformed / sizeof *malformed)];
	struct buf out = {0};
	struct client c;
	if (!dial(w, r->s, &c))
		return;
	buf_str(&out, r->bytes);
	int rc = client_send_bytes(&c, &out);
	atomic_fetch_add(&w->t->malformed, 1);
	char what[80];
	snprintf(what, sizeof what, "on %c: %.60s", "AB"[r->s], r -> bytes);
	want(w, what, answered(w, r->s, rc == 0 ? client_answer(&c) : rc), r->status, r->also);
	buf_release(&out);
	client_close(&c);
}

static void random_bytes(struct worker *w)
{
	struct buf out = {0};
	struct client c;
	enum surface s = any(w);
	if (!dial(w, s, &c))
		return;
	for (uint32_t n = 1 + pick(w, 20000); n > 0; n--)
		buf_byte(&out, (unsigned char)pick(w, 256));
	client_send_bytes(&c, &out); // may be refused before all of it is sent
	shutdown(c.fd, SHUT_WR);
	atomic_fetch_add(&w->t->malformed, 1);
	int status = client_answer(&c);
	if (status >= 0)
		want(w, "random bytes", answered(w, s, status), 400, 431, 501);
	buf_release(&out);
	client_close(&c);
}

static const struct request whole[] = {
	{A, "POST /exec HTTP/1.1\r\n" H JSON_ "Content-Length: 29\r\n\r\n{\"command\":\"sleep 0.2; true\"}", 0, 0},
	{A, "POST /exec/stream HTTP/1.1\r\n" H JSON_ "Content-Length: 32\r\n\r\n{\"command\":\"yes | head -c99999\"}",
		0, 0},
	{A, "GET /exec/processes HTTP/1.1\r\n" H "\r\n", 0, 0},
	{A, "GET /files/list HTTP/1.1\r\n" H "\r\n", 0, 0},
	{A, "POST /pty/create HTTP/1.1\r\n" H JSON_ "Content-Length: 15\r\n\r\n{\"argv\":[\"ls\"]}", 0, 0},
	{B, "POST /process.Process/List HTTP/1.1\r\n" H JSON_ "Content-Length: 2\r\n\r\n{}", 0, 0},
	{B, "POST /process.Process/Start HTTP/1.1\r\n" H CONNECT_ "Transfer-Encoding: chunked\r\n\r\n1c\r\n", 0, 0},
	{B, "GET /files?path=/bin/sh HTTP/1.1\r\n" H "\r\n", 0, 0},
	{B, "GET /metrics HTTP/1.1\r\n" H "\r\n", 0, 0},
};

// Goes away before, within or after its request, with an orderly end or a reset.
static void go_away(struct worker *w)
{
	const struct request *r = &whole[pick(w, sizeof whole / sizeof *whole)];
	struct buf out = {0};
	struct client c;
	if (!dial(w, r->s, &c))
		return;
	buf_append(&out, r->bytes, chance(w, 40) ? pick(w, (uint32_t)strlen(r->bytes)) : strlen(r->bytes));
	client_send_bytes(&c, &out);
	if (chance(w, 60))
		pause_us(pick(w, 20000));
	if (chance(w, 30))
		setsockopt(c.fd, SOL_SOCKET, SO_LINGER, &(struct linger){.l_onoff = 1}, sizeof(struct linger));
	atomic_fetch_add(&w->t->disconnects, 1);
	buf_release(&out);
	client_close(&c);
}

static void states(struct worker *w)
{
	want(w, "/health", get(w, any(w), "/health"), 204);
	switch (pick(w, 7)) {
	case 0:
		if (want(w, "/ready", post(w, A, "/ready", json_object()), 200) && !answer(w, A, "status"))
			wrong(w, "/ready without a status");
		break;
	case 1:
		want(w, "/metrics", get(w, B, "/metrics"), 200);
		break;
	case 2:
		want(w, "/envs", get(w, B, "/envs"), 200);
		break;
	case 3:
		want(w, "/init", post(w, B, "/init", json_pack("{s:{s:s}}", "envVars", "SOAK", "1")), 204);
		break;
	case 4:
		want(w, "/freeze", post(w, B, "/freeze", json_object()), 501);
		break;
	case 5:
		want(w, "List in protobuf",
			send_raw(w, B, "POST", "/process.Process/List", "Content-Type: application/proto\r\n", "", 0),
			200);
		break;
	default:
		want(w, "/files/list", get(w, A, "/files/list?path=."), 200);
	}
}

const struct action actions_rest[] = {
	{"malformed", send_malformed, 6},
	{"random_bytes", random_bytes, 2},
	{"go_away", go_away, 6},
	{"states", states, 5},
	{NULL, NULL, 0},
};
