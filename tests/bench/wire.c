// SPDX-License-Identifier: Apache-2.0
// Unary calls are read by a few lines of our own, not by the parser and jansson: the client's time is part of each figure.
#include "tests/bench/wire.h"

#include "proto/json.h"

#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

// Surface B's user: what the official clients send, where there is such a user.
static const char *auth_header(void)
{
	bool user = geteuid() == 0 && getpwnam("user");
	return user ? "Authorization: Basic dXNlcjo=\r\n" : "";
}

int wire_open(struct wire *w, const struct target *t)
{
	*w = (struct wire){.surface = t->surface, .auth = t->surface == SURFACE_B ? auth_header() : ""};
	envelope_reader_init(&w->envs, 1 << 20, false);
	frame_reader_init(&w->frames, 1 << 20);
	int rc = client_open(&w->c, t->port);
	const struct timeval silence = {.tv_sec = w->c.limit_us / 1000000};
	if (w->c.fd >= 0)
		setsockopt(w->c.fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
	return rc;
}

void wire_close(struct wire *w)
{
	client_close(&w->c);
	buf_release(&w->body);
	envelope_reader_release(&w->envs);
	frame_reader_release(&w->frames);
}

const char *wire_text(struct wire *w)
{
	const char *s = buf_cstr(&w->body);
	return s ? s : "";
}

// --- requests ---

void wire_put_get(struct buf *out, const char *target)
{
	http_put_request(out, "GET", target);
	http_put_header(out, "Host", "127.0.0.1");
	http_put_end(out);
}

static void put_post(
	struct buf *out, const char *auth, const char *type, const char *target, const char *body, size_t n)
{
	http_put_request(out, "POST", target);
	http_put_header(out, "Host", "127.0.0.1");
	http_put_header(out, "Content-Type", type);
	buf_str(out, auth);
	http_put_length(out, n);
	http_put_end(out);
	buf_append(out, body, n);
}

void wire_put_post(struct buf *out, enum surface s, const char *target, const char *json)
{
	const char *body = json ? json : "{}";
	put_post(out, s == SURFACE_B ? auth_header() : "", "application/json", target, body, strlen(body));
}

static void put_stream(struct buf *out, enum surface s, const char *auth, const char *target, const char *json)
{
	struct buf body = {0};
	size_t mark = s == SURFACE_B ? envelope_begin(&body) : 0;
	buf_str(&body, json ? json : "{}");
	if (s == SURFACE_B)
		envelope_end(&body, mark, 0);
	put_post(out, auth, s == SURFACE_B ? "application/connect+json" : "application/json", target,
		(const char *)buf_data(&body), buf_len(&body));
	buf_release(&body);
}

void wire_put_post_stream(struct buf *out, enum surface s, const char *target, const char *json)
{
	put_stream(out, s, s == SURFACE_B ? auth_header() : "", target, json);
}

static int send_taken(struct wire *w, struct buf *out)
{
	int rc = buf_failed(out);
	if (rc == 0)
		rc = wire_send(w, out);
	buf_release(out);
	return rc;
}

// --- answers ---

// The length of the answer of which N bytes are there, 0 if its head is not, 1 if only the end of its chunks will tell.
static size_t answer_length(const char *p, size_t n)
{
	const char *end = memmem(p, n, "\r\n\r\n", 4);
	if (!end)
		return 0;
	size_t head = (size_t)(end - p) + 4;
	for (const char *at = memchr(p, '\n', head); at && at < end; at = memchr(at, '\n', (size_t)(end + 4 - at))) {
		at++;
		if (strncasecmp(at, "Content-Length:", 15) == 0)
			return head + strtoul(at + 15, NULL, 10);
		if (strncasecmp(at, "Transfer-Encoding:", 18) == 0)
			return 1;
	}
	return head;
}

static bool complete(size_t length, const char *p, size_t n)
{
	static const char last[] = "\r\n0\r\n\r\n";
	if (length != 1)
		return length > 0 && n >= length;
	return n >= sizeof last - 1 && memcmp(p + n - (sizeof last - 1), last, sizeof last - 1) == 0;
}

// One read: the status if the answer is complete now, else 0, or negative errno.
static int take(struct wire *w, int flags)
{
	unsigned char *room = buf_reserve(&w->body, 16384);
	ssize_t got = room ? recv(w->c.fd, room, 16384, flags) : -1;
	if (got < 0 && room && errno == EAGAIN && flags)
		return 0;
	if (got <= 0)
		return got == 0 ? -ECONNRESET : room ? -errno : -ENOMEM;
	w->at_ns = bench_now_ns();
	buf_commit(&w->body, (size_t)got);
	const char *p = (const char *)buf_data(&w->body);
	size_t n = buf_len(&w->body);
	w->length = w->length ? w->length : answer_length(p, n);
	if (!complete(w->length, p, n))
		return 0;
	return n > 12 && memcmp(p, "HTTP/1.1 ", 9) == 0 ? atoi(p + 9) : -EPROTO;
}

// Between two answers.
static void next_answer(struct wire *w)
{
	buf_reset(&w->body);
	w->length = 0;
}

int wire_take_some(struct wire *w)
{
	return take(w, MSG_DONTWAIT);
}

int wire_take(struct wire *w)
{
	int rc = 0;
	while (rc == 0)
		rc = take(w, 0);
	return rc;
}

int wire_send(struct wire *w, const struct buf *request)
{
	next_answer(w);
	return client_send_bytes(&w->c, request);
}

int wire_ask(struct wire *w, const struct buf *request)
{
	int rc = wire_send(w, request);
	return rc < 0 ? rc : wire_take(w);
}

int wire_get(struct wire *w, const char *target)
{
	int rc = client_get(&w->c, target);
	buf_reset(&w->body);
	buf_append(&w->body, buf_data(&w->c.body), buf_len(&w->c.body));
	return rc;
}

int wire_post(struct wire *w, const char *target, const char *json)
{
	struct buf out = {0};
	put_post(&out, w->auth, "application/json", target, json ? json : "{}", strlen(json ? json : "{}"));
	int rc = send_taken(w, &out);
	if (rc == 0)
		rc = client_answer(&w->c);
	buf_reset(&w->body);
	buf_append(&w->body, buf_data(&w->c.body), buf_len(&w->c.body));
	return rc;
}

// --- unary calls ---

// Appends {"KEY":"VALUE"}, or with KEY2 {"KEY":"VALUE","KEY2":NUMBER}.
static void put_pair(struct buf *json, const char *key, const char *value, const char *key2, int number)
{
	struct jsonw j;
	jsonw_init(&j, json);
	jsonw_obj(&j);
	jsonw_kstr(&j, key, value);
	if (key2)
		jsonw_kint(&j, key2, number);
	jsonw_obj_end(&j);
}

void wire_put_stat(struct buf *out, enum surface s, const char *path)
{
	struct buf json = {0};
	put_pair(&json, "path", path, NULL, 0);
	const char *text = buf_cstr(&json);
	wire_put_post(out, s, s == SURFACE_A ? "/files/stat" : "/filesystem.Filesystem/Stat", text);
	buf_release(&json);
}

bool wire_is_stat(const struct wire *w)
{
	const char *mark = w->surface == SURFACE_A ? "\"type\":\"" : "\"type\":\"FILE_TYPE_";
	return memmem(buf_data(&w->body), buf_len(&w->body), mark, strlen(mark)) != NULL;
}

static int ok(int status)
{
	return status < 0 ? status : status == 200 || status == 204 ? 0 : -EPROTO;
}

int wire_health(struct wire *w)
{
	static const char request[] = "GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n";
	next_answer(w);
	ssize_t sent = send(w->c.fd, request, sizeof request - 1, MSG_NOSIGNAL);
	if (sent != (ssize_t)sizeof request - 1)
		return -errno;
	int status = wire_take(w);
	return status == 204 ? 0 : ok(status) < 0 ? status : -EPROTO;
}

int wire_stat(struct wire *w, const char *path)
{
	struct buf json = {0}, out = {0};
	put_pair(&json, "path", path, NULL, 0);
	put_post(&out, w->auth, "application/json",
		w->surface == SURFACE_A ? "/files/stat" : "/filesystem.Filesystem/Stat", (const char *)buf_data(&json),
		buf_len(&json));
	int rc = wire_ask(w, &out);
	buf_release(&json);
	buf_release(&out);
	return rc == 200 && !wire_is_stat(w) ? -EPROTO : ok(rc);
}

static void count_objects(void *arg, const char *p, size_t n)
{
	int64_t *count = arg;
	const char *end = p + n;
	while (p < end && (p = memchr(p, '{', (size_t)(end - p))) != NULL) {
		++*count;
		p++;
	}
}

int64_t wire_list(struct wire *w, const char *dir)
{
	struct buf json = {0}, out = {0};
	int64_t objects = 0;
	if (w->surface == SURFACE_A) {
		buf_printf(&json, "/files/list?depth=1&path=%s", dir);
		wire_put_get(&out, buf_cstr(&json));
	} else {
		put_pair(&json, "path", dir, "depth", 1);
		put_post(&out, w->auth, "application/json", "/filesystem.Filesystem/ListDir",
			(const char *)buf_data(&json), buf_len(&json));
	}
	buf_release(&json);
	int rc = send_taken(w, &out);
	if (rc == 0)
		rc = client_answer_stream(&w->c);
	if (rc == 200)
		rc = wire_drain(w, count_objects, &objects);
	else if (rc >= 0)
		rc = -EPROTO;
	// The answer itself is an object, too.
	return rc < 0 ? rc : objects - 1;
}

static int post_pair(struct wire *w, const char *a, const char *b, const char *path)
{
	struct buf json = {0};
	put_pair(&json, "path", path, NULL, 0);
	int rc = wire_post(w, w->surface == SURFACE_A ? a : b, buf_cstr(&json));
	buf_release(&json);
	return ok(rc);
}

int wire_remove(struct wire *w, const char *path)
{
	return post_pair(w, "/files/remove", "/filesystem.Filesystem/Remove", path);
}

int wire_signal(struct wire *w, int pid, const char *name)
{
	char json[128];
	if (w->surface == SURFACE_A)
		snprintf(json, sizeof json, "{\"pid\":%d,\"signal\":\"%s\"}", pid, name);
	else
		snprintf(json, sizeof json, "{\"process\":{\"pid\":%d},\"signal\":\"SIGNAL_%s\"}", pid, name);
	return ok(wire_post(w, w->surface == SURFACE_A ? "/exec/signal" : "/process.Process/SendSignal", json));
}

// --- commands ---

void wire_put_command(struct buf *out, enum surface s, const char *auth, bool stream, const char *command)
{
	struct buf json = {0};
	struct jsonw j;
	jsonw_init(&j, &json);
	jsonw_obj(&j);
	if (s == SURFACE_A) {
		jsonw_kstr(&j, "command", command);
		jsonw_kint(&j, "timeout", 0);
	} else {
		jsonw_key(&j, "process");
		jsonw_obj(&j);
		jsonw_kstr(&j, "cmd", "/bin/sh");
		jsonw_key(&j, "args");
		jsonw_arr(&j);
		jsonw_cstr(&j, "-c");
		jsonw_cstr(&j, command);
		jsonw_arr_end(&j);
		jsonw_obj_end(&j);
		jsonw_kbool(&j, "stdin", false);
	}
	jsonw_obj_end(&j);
	const char *a = stream ? "/exec/stream" : "/exec";
	put_stream(out, s, auth, s == SURFACE_A ? a : "/process.Process/Start", buf_cstr(&json));
	buf_release(&json);
}

int wire_exec_send(struct wire *w, const char *command)
{
	struct buf out = {0};
	wire_put_command(&out, w->surface, w->auth, false, command);
	return send_taken(w, &out);
}

// The number behind MARK, or OTHERWISE.
static int number_behind(const char *text, const char *mark, int otherwise)
{
	const char *at = strstr(text, mark);
	return at ? atoi(at + strlen(mark)) : otherwise;
}

int wire_exec_code(struct wire *w, int status)
{
	const char *text = wire_text(w);
	int code = -1;
	if (status != 200)
		return status < 0 ? status : -EPROTO;
	if (w->surface == SURFACE_A) {
		code = number_behind(text, "\"exit_code\":", -1);
	} else {
		// Behind NUL bytes, which begin each envelope; the end frame's stop the search for the rest.
		size_t n = buf_len(&w->body);
		const char *end = memmem(text, n, "{\"end\":{", 8);
		if (end && strstr(end, "\"exited\":true") && memmem(text, n, "{\"start\":{\"pid\":", 16))
			code = number_behind(end, "\"exitCode\":", 0);
	}
	return code < 0 ? -EPROTO : code;
}

int wire_exec_answer(struct wire *w)
{
	return wire_exec_code(w, wire_take(w));
}

int wire_exec(struct wire *w, const char *command)
{
	int rc = wire_exec_send(w, command);
	return rc < 0 ? rc : wire_exec_answer(w);
}
