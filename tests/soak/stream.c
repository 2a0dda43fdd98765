// SPDX-License-Identifier: Apache-2.0
// A process's stream on either surface, read into one form: pid, output, end, the body's end.
#include "tests/soak/soak.h"

#include "proto/envelope.h"
#include "proto/text.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define FRAME_MAX ((size_t)1 << 20)

static void release(struct stream *st)
{
	client_close(&st->c);
	frame_reader_release(&st->frames);
}

// --- decoding ---

static int take_output(struct worker *w, struct stream *st, const char *b64, size_t n)
{
	struct buf raw = {0};
	int rc = text_b64_decode(&raw, b64, n);
	const char *p = (const char *)buf_data(&raw);
	size_t len = buf_len(&raw), at = strlen(st->text);
	size_t period = st->pattern ? strlen(st->pattern) : 0;
	for (size_t i = 0; period && i < len; i++)
		if (p[i] != st->pattern[(st->bytes + i) % period]) {
			wrong(w, "output differs at byte %llu", (unsigned long long)(st->bytes + i));
			period = 0;
		}
	if (st->bytes == at)
		snprintf(st->text + at, sizeof st->text - at, "%.*s", (int)len, p);
	st->bytes += len;
	atomic_fetch_add(&w->t->bytes, len);
	if (rc < 0 || len == 0 || st->exited)
		wrong(w, "a frame of output that has no place: %.40s", b64);
	buf_release(&raw);
	return 1;
}

static void take_error(struct stream *st, const json_t *code)
{
	const char *word = json_string_value(code);
	snprintf(st->error, sizeof st->error, "%s", word ? word : "an error without a code");
}

static void take_sse(struct worker *w, struct stream *st, const struct buf *ev)
{
	json_t *doc = json_loadb((const char *)buf_data(ev), buf_len(ev), 0, NULL);
	const json_t *v, *data = json_object_get(doc, "data");
	if (st->ended)
		wrong(w, "a frame after the last one");
	if (st->bare && buf_len(ev) > 0 && buf_data(ev)[0] != '{') {
		take_output(w, st, (const char *)buf_data(ev), buf_len(ev));
	} else if (json_is_string(data) && json_object_get(doc, "channel")) {
		take_output(w, st, json_string_value(data), json_string_length(data));
	} else if ((v = json_object_get(doc, "exit")) != NULL) {
		if (st->exited)
			wrong(w, "a second exit frame");
		st->exited = true;
		st->code = (int)json_integer_value(v);
	} else if (json_object_get(doc, "error")) {
		take_error(st, json_object_get(doc, "code"));
		st->exited = true;
	} else if ((v = json_object_get(doc, "pid")) != NULL) {
		st->pid = (int)json_integer_value(v);
	} else if (json_is_true(json_object_get(doc, "done"))) {
		st->ended = true;
	} else {
		wrong(w, "no frame: %.*s", (int)(buf_len(ev) > 100 ? 100 : buf_len(ev)), (const char *)buf_data(ev));
	}
	json_decref(doc);
}

static void take_message(struct worker *w, struct stream *st, unsigned flags, const json_t *doc)
{
	const json_t *event = json_object_get(doc, "event"), *v;
	if (st->ended || !doc) {
		wrong(w, st->ended ? "an envelope after the last one" : "an envelope that is no JSON");
	} else if (flags & ENVELOPE_END) {
		st->ended = true;
		if ((v = json_object_get(doc, "error")) != NULL)
			take_error(st, json_object_get(v, "code"));
	} else if ((v = json_object_get(event, "start")) != NULL) {
		st->pid = (int)json_integer_value(json_object_get(v, "pid"));
	} else if ((v = json_object_get(event, "end")) != NULL) {
		st->exited = true;
		st->code = (int)json_integer_value(json_object_get(v, "exitCode"));
	} else if ((v = json_object_get(event, "data")) != NULL) {
		const char *key;
		json_t *data;
		json_object_foreach((json_t *)(uintptr_t)v, key, data)
			take_output(w, st, json_string_value(data), json_string_length(data));
	} else if (!json_object_get(event, "keepalive")) {
		wrong(w, "no event in a message");
	}
}

// One envelope of what was read: 1, or 0 if there is none yet.
static int next_message(struct worker *w, struct stream *st)
{
	const unsigned char *p = buf_data(&st->c.body);
	size_t n = buf_len(&st->c.body);
	if (n < ENVELOPE_PREFIX)
		return 0;
	size_t len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
	if (n - ENVELOPE_PREFIX < len)
		return 0;
	json_t *doc = json_loadb((const char *)p + ENVELOPE_PREFIX, len, 0, NULL);
	take_message(w, st, p[0], doc);
	json_decref(doc);
	buf_consume(&st->c.body, ENVELOPE_PREFIX + len);
	return 1;
}

static int next_sse(struct worker *w, struct stream *st)
{
	const struct buf *ev = NULL;
	size_t used = 0;
	int rc = frame_reader_feed(&st->frames, buf_data(&st->c.body), buf_len(&st->c.body), &used, &ev);
	buf_consume(&st->c.body, used);
	if (rc == 1)
		take_sse(w, st, ev);
	return rc;
}

int stream_step(struct worker *w, struct stream *st)
{
	for (;;) {
		int rc = st->s == A ? next_sse(w, st) : next_message(w, st);
		if (rc != 0)
			return rc;
		rc = client_more(&st->c);
		if (rc <= 0)
			return rc == 0 && buf_len(&st->c.body) > 0 ? -EPROTO : rc;
	}
}

// --- opening ---

static int send_envelope(struct stream *st, const char *target, const char *headers, json_t *doc)
{
	struct buf body = {0}, out = {0};
	size_t mark = envelope_begin(&body);
	put_json(&body, doc);
	envelope_end(&body, mark, 0);
	buf_printf(&out, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/connect+json\r\n%s", target,
		headers);
	http_put_length(&out, buf_len(&body));
	http_put_end(&out);
	buf_append(&out, buf_data(&body), buf_len(&body));
	int rc = client_send_bytes(&st->c, &out);
	buf_release(&body);
	buf_release(&out);
	return rc;
}

static int send_start_a(struct worker *w, struct stream *st, const struct command *cmd)
{
	char target[64];
	if (!cmd->terminal) {
		struct buf text = {0};
		put_json(&text, json_pack("{s:s, s:f, s:b, s:s}", "command", cmd->text, "timeout",
					cmd->timeout_ms ? cmd->timeout_ms / 1000.0 : 60.0, "stdin", cmd->input,
					"workdir", w->dir));
		const char *json = buf_cstr(&text);
		int rc = json ? client_send(&st->c, "POST", "/exec/stream", json) : -ENOMEM;
		buf_release(&text);
		return rc;
	}
	int status = post(w, A, "/pty/create",
		json_pack("{s:[s, s, s], s:s, s:i, s:i}", "argv", "/bin/sh", "-c", cmd->text, "workdir", w->dir, "rows",
			10 + (int)pick(w, 50), "cols", 20 + (int)pick(w, 200)));
	if (!want(w, "pty/create", status, 200))
		return -EIO;
	st->terminal_id = (int)json_integer_value(answer(w, A, "terminal_id"));
	st->pid = (int)json_integer_value(answer(w, A, "pid"));
	st->bare = chance(w, 50);
	if (st->bare)
		snprintf(target, sizeof target, "/pty/stream?terminal_id=%d", st->terminal_id);
	else
		snprintf(target, sizeof target, "/exec/attach?pid=%d", st->pid);
	return client_send(&st->c, "GET", target, NULL);
}

static int send_start_b(struct worker *w, struct stream *st, const struct command *cmd)
{
	char headers[64] = "";
	json_t *doc = json_pack(
		"{s:{s:s, s:[s, s], s:s}}", "process", "cmd", "/bin/sh", "args", "-c", cmd->text, "cwd", w->dir);
	if (cmd->terminal)
		json_object_set_new(doc, "pty", json_pack("{s:{s:i, s:i}}", "size", "cols", 80, "rows", 24));
	else if (!cmd->input || chance(w, 50)) // absent means a pipe
		json_object_set_new(doc, "stdin", json_boolean(cmd->input));
	snprintf(headers, sizeof headers, "Connect-Timeout-Ms: %d\r\n", cmd->timeout_ms ? cmd->timeout_ms : 60000);
	return send_envelope(st, "/process.Process/Start", headers, doc);
}

// The answer's head and the first frame; with it a stream is begun. The status, or that of an end frame.
static int begin(struct worker *w, struct stream *st, int rc)
{
	int status = rc == 0 ? client_answer_stream(&st->c) : rc;
	answered(w, st->s, status);
	if (status == 200)
		rc = stream_step(w, st);
	if (status != 200 || rc <= 0) {
		status = status != 200 ? status : rc < 0 ? rc : -EPROTO;
	} else if (strcmp(st->error, "not_found") == 0) {
		status = 404;
	} else if (!st->pid) {
		status = -EPROTO;
	}
	if (status != 200) {
		release(st);
		return status;
	}
	atomic_fetch_add(&w->t->streams, 1);
	return 200;
}

bool stream_start(struct worker *w, struct stream *st, enum surface s, const struct command *cmd)
{
	*st = (struct stream){.s = s, .terminal = cmd->terminal, .c.fd = -1};
	frame_reader_init(&st->frames, FRAME_MAX);
	int rc = dial(w, s, &st->c) ? 0 : -ECONNREFUSED;
	if (rc == 0)
		rc = s == A ? send_start_a(w, st, cmd) : send_start_b(w, st, cmd);
	return want(w, s == A ? "start on A" : "start on B", begin(w, st, rc), 200);
}

int stream_attach(struct worker *w, struct stream *st, enum surface s, int pid)
{
	char target[64];
	*st = (struct stream){.s = s, .c.fd = -1};
	frame_reader_init(&st->frames, FRAME_MAX);
	if (!dial(w, s, &st->c))
		return begin(w, st, -ECONNREFUSED);
	snprintf(target, sizeof target, "/exec/attach?pid=%d", pid);
	if (s == A)
		return begin(w, st, client_send(&st->c, "GET", target, NULL));
	return begin(w, st,
		send_envelope(st, "/process.Process/Connect", "", json_pack("{s:{s:i}}", "process", "pid", pid)));
}

// --- closing ---

bool stream_until(struct worker *w, struct stream *st, const char *text)
{
	int rc = 1;
	while (!strstr(st->text, text) && rc == 1 && !st->exited)
		rc = stream_step(w, st);
	if (strstr(st->text, text))
		return true;
	wrong(w, "stream on %c: no \"%s\" in its output \"%.80s\": %s", "AB"[st->s], text, st -> text,
		rc < 0 ? strerror(-rc) : "it ended");
	return false;
}

bool stream_finish(struct worker *w, struct stream *st, bool slow)
{
	int rc;
	if (slow)
		atomic_fetch_add(&w->t->slow_readers, 1);
	for (int i = 0; (rc = stream_step(w, st)) == 1; i++)
		if (slow && i < 40)
			pause_us(1000 + pick(w, 30000));
	bool deadline = st->s == B && strcmp(st->error, "deadline_exceeded") == 0;
	bool ok = rc == 0 && (st->s == A || st->ended) && (st->exited || deadline) && (!st->error[0] || deadline);
	if (ok) {
		atomic_fetch_add(&w->t->streams_ended, 1);
	} else {
		w->cuts++;
		wrong(w, "stream of pid %d on %c after %llu bytes, exit %d, end frame %d, error \"%s\": %s", st->pid,
			"AB"[st->s], (unsigned long long)st -> bytes, st -> exited, st -> ended, st -> error,
			rc < 0 ? strerror(-rc) : "no proper end");
	}
	release(st);
	return ok;
}

void stream_leave(struct worker *w, struct stream *st)
{
	atomic_fetch_add(&w->t->streams_left, 1);
	atomic_fetch_add(&w->t->disconnects, 1);
	release(st);
}

// --- what goes in ---

static json_t *base64(const void *p, size_t n)
{
	struct buf b = {0};
	text_b64_encode(&b, p, n);
	json_t *s = json_stringn((const char *)buf_data(&b), buf_len(&b));
	buf_release(&b);
	return s;
}

static json_t *selector(int pid)
{
	return json_pack("{s:i}", "pid", pid);
}

int feed(struct worker *w, enum surface s, const struct stream *st, const void *p, size_t n)
{
	if (s == B)
		return post(w, B, "/process.Process/SendInput",
			json_pack("{s:o, s:{s:o}}", "process", selector(st->pid), "input",
				st->terminal ? "pty" : "stdin", base64(p, n)));
	if (st->terminal)
		return post(w, A, "/pty/input",
			json_pack("{s:i, s:o, s:s}", "terminal_id", st->terminal_id, "data", base64(p, n), "encoding",
				"base64"));
	return post(w, A, "/exec/stdin", json_pack("{s:i, s:o}", "pid", st->pid, "data", base64(p, n)));
}

int close_input(struct worker *w, enum surface s, int pid)
{
	if (s == B)
		return post(w, B, "/process.Process/CloseStdin", json_pack("{s:o}", "process", selector(pid)));
	return post(w, A, "/exec/stdin/close", json_pack("{s:i}", "pid", pid));
}

int send_signal(struct worker *w, enum surface s, int pid, bool kill)
{
	if (s == B)
		return post(w, B, "/process.Process/SendSignal",
			json_pack("{s:o, s:s}", "process", selector(pid), "signal",
				kill ? "SIGNAL_SIGKILL" : "SIGNAL_SIGTERM"));
	return post(w, A, "/exec/signal", json_pack("{s:i, s:s}", "pid", pid, "signal", kill ? "KILL" : "SIGTERM"));
}
