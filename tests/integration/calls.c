// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/calls.h"

#include "proto/filesystem.pb-c.h"
#include "proto/pbjson.h"
#include "proto/pbwire.h"
#include "proto/process.pb-c.h"
#include "proto/text.h"
#include "tests/integration/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PREFIX 5

struct method {
	const char *name;
	const ProtobufCMessageDescriptor *request, *response;
};

struct stream {
	struct client *c;
	const struct method *method;
	enum codec codec;
	struct buf body; // not yet cut into envelopes
	bool headed;     // the answer's head was read
	bool last;       // the end frame was read
	bool over;
	bool pid_read;
};

static const struct method *find_method(const char *name)
{
#define ROW(name, lower)                                                          \
	{                                                                         \
		"process.Process/" name, &process__##lower##_request__descriptor, \
			&process__##lower##_response__descriptor                  \
	}
	static const struct method methods[] = {
		ROW("List", list),
		ROW("Start", start),
		ROW("Connect", connect),
		ROW("Update", update),
		ROW("SendInput", send_input),
		ROW("StreamInput", stream_input),
		ROW("SendSignal", send_signal),
		ROW("CloseStdin", close_stdin),
	};
#undef ROW
	static const struct method watch = {"filesystem.Filesystem/WatchDir",
		&filesystem__watch_dir_request__descriptor, &filesystem__watch_dir_response__descriptor};
	if (strcmp(name, watch.name) == 0)
		return &watch;
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		if (strcmp(methods[i].name, name) == 0)
			return &methods[i];
	}
	ck_abort_msg("no method %s", name);
}

// --- messages ---

static void put_message(struct buf *out, const struct method *m, enum codec codec, const char *json)
{
	struct err e;
	if (codec == CODEC_JSON) {
		buf_str(out, json);
		return;
	}
	ProtobufCMessage *msg = pbjson_read(m->request, json, strlen(json), &e);
	if (!msg)
		ck_abort_msg("%s: %s", json, e.msg);
	pbwire_write(out, msg);
	pb_free(msg);
}

static json_t *parse(const void *p, size_t n)
{
	json_error_t why;
	json_t *j = json_loadb(p, n, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &why);
	if (!json_is_object(j))
		ck_abort_msg("not a JSON object: %.*s", (int)(n < 300 ? n : 300), (const char *)p);
	return j;
}

static json_t *get_message(const struct method *m, enum codec codec, const void *p, size_t n)
{
	struct err e;
	struct buf text = {0};
	if (codec == CODEC_JSON)
		return parse(p, n);
	ProtobufCMessage *msg = pbwire_read(m->response, p, n, &e);
	if (!msg)
		ck_abort_msg("%s: %s", m->name, e.msg);
	ck_assert_int_eq(pbjson_write(&text, msg), 0);
	pb_free(msg);
	json_t *j = parse(buf_data(&text), buf_len(&text));
	buf_release(&text);
	return j;
}

struct client *calls_connect(const struct testd *d, int rcvbuf)
{
	return client_connect_to(d->envd_host, d->envd_port, rcvbuf);
}

static void send_head(struct client *c, const char *method, const char *type, const char *headers, long long length)
{
	struct buf out = {0};
	char target[80];
	(void)snprintf(target, sizeof target, "/%s", method);
	http_put_request(&out, "POST", target);
	http_put_header(&out, "Host", "127.0.0.1");
	http_put_header(&out, "Content-Type", type);
	http_put_header(&out, "Connect-Protocol-Version", "1");
	if (length < 0)
		http_put_header(&out, "Transfer-Encoding", "chunked");
	else
		http_put_length(&out, (uint64_t)length);
	if (headers)
		buf_str(&out, headers);
	http_put_end(&out);
	ck_assert(client_send_raw(c, buf_data(&out), buf_len(&out)));
	buf_release(&out);
}

// --- unary ---

void call_on(
	struct client *c, const char *method, enum codec codec, const char *headers, const char *json, struct resp *r)
{
	struct buf body = {0};
	put_message(&body, find_method(method), codec, json);
	send_head(c, method, codec == CODEC_JSON ? "application/json" : "application/proto", headers,
		(long long)buf_len(&body));
	ck_assert(client_send_raw(c, buf_data(&body), buf_len(&body)));
	buf_release(&body);
	client_response(c, r);
}

json_t *call(const struct testd *d, const char *method, enum codec codec, const char *headers, const char *json)
{
	struct resp r = {0};
	struct client *c = calls_connect(d, 0);
	call_on(c, method, codec, headers, json, &r);
	if (r.status != 200)
		ck_abort_msg("%s %s: %d %s", method, json, r.status, buf_cstr(&r.body));
	ck_assert_str_eq(
		resp_header(&r, "content-type"), codec == CODEC_JSON ? "application/json" : "application/proto");
	json_t *msg = get_message(find_method(method), codec, buf_data(&r.body), buf_len(&r.body));
	client_close(c);
	resp_release(&r);
	return msg;
}

void call_fails(const struct testd *d, const char *method, enum codec codec, const char *headers, const char *json,
	const char *code, char out[256])
{
	struct resp r = {0};
	struct client *c = calls_connect(d, 0);
	call_on(c, method, codec, headers, json, &r);
	if (r.status < 400)
		ck_abort_msg("%s %s: %d, want %s", method, json, r.status, code);
	ck_assert_str_eq(resp_header(&r, "content-type"), "application/json");
	json_t *msg = parse(buf_data(&r.body), buf_len(&r.body));
	if (strcmp(j_str(msg, "code"), code) != 0)
		ck_abort_msg("%s %s: %s, want %s", method, json, buf_cstr(&r.body), code);
	if (out)
		(void)snprintf(out, 256, "%s", j_str(msg, "message"));
	json_decref(msg);
	client_close(c);
	resp_release(&r);
}

// --- streams ---

static const char *stream_type(enum codec codec)
{
	return codec == CODEC_JSON ? "application/connect+json" : "application/connect+proto";
}

static void put_envelope(struct buf *out, const struct stream *s, const char *json)
{
	struct buf m = {0};
	put_message(&m, s->method, s->codec, json);
	size_t n = buf_len(&m);
	const unsigned char prefix[PREFIX] = {
		0, (unsigned char)(n >> 24), (unsigned char)(n >> 16), (unsigned char)(n >> 8), (unsigned char)n};
	buf_append(out, prefix, PREFIX);
	buf_append(out, buf_data(&m), n);
	buf_release(&m);
}

static void read_head(struct stream *s)
{
	enum http_event ev = client_event(s->c, &s->body, h_now_ms() + h_scaled(CLIENT_DEADLINE));
	if (ev != HTTP_HEAD)
		ck_abort_msg("%s: no head of an answer", s->method->name);
	const struct http_head *h = http_head(s->c->http);
	struct http_span type = http_get(h, "Content-Type");
	ck_assert_msg(h->status == 200 && http_span_is(type, stream_type(s->codec)), "%s: %d %.*s", s->method->name,
		h->status, (int)type.n, type.p);
	if (h->chunked) // the user check answers without it
		ck_assert(http_span_is(http_get(h, "Connect-Accept-Encoding"), "gzip"));
	ck_assert_msg(h->chunked || !h->keep_alive || h->content_length >= 0, "the end cannot be told");
	s->headed = true;
}

static struct stream *stream_new(const struct testd *d, const char *method, enum codec codec, int rcvbuf)
{
	struct stream *s = calloc(1, sizeof *s);
	ck_assert_ptr_nonnull(s);
	s->method = find_method(method);
	s->codec = codec;
	s->c = calls_connect(d, rcvbuf);
	return s;
}

static void send_whole(struct stream *s, const char *headers, const void *p, size_t n)
{
	send_head(s->c, s->method->name, stream_type(s->codec), headers, (long long)n);
	ck_assert(client_send_raw(s->c, p, n));
	read_head(s);
}

struct stream *stream_open_rcvbuf(
	const struct testd *d, const char *method, enum codec codec, const char *headers, const char *json, int rcvbuf)
{
	struct buf body = {0};
	struct stream *s = stream_new(d, method, codec, rcvbuf);
	put_envelope(&body, s, json);
	send_whole(s, headers, buf_data(&body), buf_len(&body));
	buf_release(&body);
	return s;
}

struct stream *stream_open(
	const struct testd *d, const char *method, enum codec codec, const char *headers, const char *json)
{
	return stream_open_rcvbuf(d, method, codec, headers, json, 0);
}

struct stream *stream_open_raw(
	const struct testd *d, const char *method, enum codec codec, const char *headers, const void *body, size_t n)
{
	struct stream *s = stream_new(d, method, codec, 0);
	send_whole(s, headers, body, n);
	return s;
}

struct stream *stream_upload(const struct testd *d, const char *method, enum codec codec, const char *headers)
{
	struct stream *s = stream_new(d, method, codec, 0);
	send_head(s->c, s->method->name, stream_type(codec), headers, -1);
	return s;
}

bool stream_send(struct stream *s, const char *json)
{
	struct buf envelope = {0}, chunk = {0};
	put_envelope(&envelope, s, json);
	http_put_chunk(&chunk, buf_data(&envelope), buf_len(&envelope));
	bool ok = client_send_raw(s->c, buf_data(&chunk), buf_len(&chunk));
	buf_release(&envelope);
	buf_release(&chunk);
	return ok;
}

void stream_finish(struct stream *s)
{
	struct buf end = {0};
	http_put_last_chunk(&end);
	ck_assert(client_send_raw(s->c, buf_data(&end), buf_len(&end)));
	buf_release(&end);
	read_head(s);
}

void stream_close(struct stream *s)
{
	if (!s)
		return;
	client_close(s->c);
	buf_release(&s->body);
	free(s);
}

void stream_abort(struct stream *s)
{
	client_abort(s->c);
	s->c = NULL;
	stream_close(s);
}

// An envelope out of what was read; false if none is whole yet.
static bool take_envelope(struct stream *s, enum stream_kind *kind, json_t **msg)
{
	const unsigned char *p = buf_data(&s->body);
	size_t len = buf_len(&s->body);
	if (len < PREFIX)
		return false;
	size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
	if (len < PREFIX + n)
		return false;
	ck_assert_msg((p[0] == 0 || p[0] == 2) && !s->last, "flags %d%s", p[0], s->last ? " behind the end" : "");
	s->last = p[0] == 2;
	*kind = s->last ? STREAM_LAST : STREAM_MESSAGE;
	*msg = s->last ? parse(p + PREFIX, n) : get_message(s->method, s->codec, p + PREFIX, n);
	buf_consume(&s->body, PREFIX + n);
	return true;
}

enum stream_kind stream_next(struct stream *s, json_t **msg, int64_t ms)
{
	int64_t end = h_now_ms() + h_scaled(ms);
	enum stream_kind kind;
	*msg = NULL;
	if (!s->headed)
		read_head(s);
	while (!take_envelope(s, &kind, msg)) {
		if (s->over)
			return STREAM_OVER;
		switch (client_event(s->c, &s->body, end)) {
		case HTTP_MORE:
			return STREAM_TIMEOUT;
		case HTTP_BODY:
			break;
		case HTTP_END:
			ck_assert_msg(
				s->last && !buf_len(&s->body), "%s: terminated without an end frame", s->method->name);
			s->over = true;
			break;
		default:
			return STREAM_CUT;
		}
	}
	return kind;
}

// --- processes ---

// The event of a message within MS, borrowed from *MSG.
static json_t *next_event(struct stream *s, json_t **msg, int64_t ms)
{
	enum stream_kind kind = stream_next(s, msg, ms);
	if (kind == STREAM_LAST) {
		char *text = j_text(*msg);
		ck_abort_msg("the end frame came: %s", text);
	}
	if (kind != STREAM_MESSAGE)
		ck_abort_msg("no message: %s", kind == STREAM_TIMEOUT ? "deadline" : "cut");
	return j_get(*msg, "event");
}

int64_t stream_pid(struct stream *s)
{
	json_t *msg;
	int64_t pid = j_int(j_get(next_event(s, &msg, CLIENT_DEADLINE), "start"), "pid");
	ck_assert_int_gt(pid, 0);
	json_decref(msg);
	s->pid_read = true;
	return pid;
}

// Appends the output of a data event to O; the channel.
static enum frame_channel take_data(json_t *data, struct buf ch[FRAME_CHANNELS])
{
	ck_assert_uint_eq(json_object_size(data), 1);
	for (int i = 0; i < FRAME_CHANNELS; i++) {
		const json_t *text = json_object_get(data, frame_channel_name((enum frame_channel)i));
		if (!text)
			continue;
		size_t before = buf_len(&ch[i]);
		ck_assert_int_eq(text_b64_decode(&ch[i], json_string_value(text), json_string_length(text)), 0);
		size_t n = buf_len(&ch[i]) - before;
		ck_assert_msg(n > 0 && n <= FRAME_RAW_MAX, "%zu bytes in one event", n);
		return (enum frame_channel)i;
	}
	ck_abort_msg("no channel");
}

void stream_until(struct stream *s, enum frame_channel ch, const char *text, struct buf *out, int64_t ms)
{
	struct buf got[FRAME_CHANNELS] = {0};
	int64_t end = h_now_ms() + h_scaled(ms);
	json_t *msg;
	do {
		int64_t left = (int64_t)((double)(end - h_now_ms()) / h_scale());
		json_t *event = next_event(s, &msg, left > 0 ? left : 0);
		if (j_has(event, "data"))
			(void)take_data(j_get(event, "data"), got);
		else
			ck_assert(j_has(event, "keepalive"));
		json_decref(msg);
	} while (!memmem(buf_data(&got[ch]), buf_len(&got[ch]), text, strlen(text)));
	if (out)
		buf_append(out, buf_data(&got[ch]), buf_len(&got[ch]));
	for (int i = 0; i < FRAME_CHANNELS; i++)
		buf_release(&got[i]);
}

static void take_event(struct stream *s, struct played *o, json_t *event)
{
	ck_assert_uint_eq(json_object_size(event), 1);
	ck_assert_msg(!o->end, "an event behind the end");
	if (j_has(event, "start")) {
		ck_assert_msg(!s->pid_read && !o->data && !o->keepalives, "start is not first");
		o->pid = j_int(j_get(event, "start"), "pid");
		s->pid_read = true;
		return;
	}
	ck_assert_msg(s->pid_read, "start is not first");
	if (j_has(event, "data")) {
		(void)take_data(j_get(event, "data"), o->ch);
		o->data++;
	} else if (j_has(event, "end")) {
		o->end = json_incref(j_get(event, "end"));
	} else {
		ck_assert_uint_eq(json_object_size(j_get(event, "keepalive")), 0);
		o->keepalives++;
	}
}

void stream_play(struct stream *s, struct played *o, int64_t ms)
{
	int64_t end = h_now_ms() + h_scaled(ms);
	for (;;) {
		json_t *msg;
		int64_t left = (int64_t)((double)(end - h_now_ms()) / h_scale());
		enum stream_kind kind = stream_next(s, &msg, left > 0 ? left : 0);
		if (kind == STREAM_OVER)
			return;
		if (kind == STREAM_MESSAGE) {
			take_event(s, o, j_get(msg, "event"));
			json_decref(msg);
		} else if (kind == STREAM_LAST) {
			o->last = msg;
			o->end_at = h_now_ms();
		} else {
			ck_abort_msg("%s of stream of %lld", kind == STREAM_CUT ? "cut" : "no end in time",
				(long long)o->pid);
		}
	}
}

void played_release(struct played *o)
{
	for (int i = 0; i < FRAME_CHANNELS; i++)
		buf_release(&o->ch[i]);
	json_decref(o->end);
	json_decref(o->last);
	*o = (struct played){0};
}

static void assert_good_end(const struct played *o)
{
	char *text = j_text(o->last);
	ck_assert_msg(json_object_size(o->last) == 0, "%s", text);
	free(text);
	ck_assert_ptr_nonnull(o->end);
}

// A member that may be left out at its default.
static int64_t exit_code(const json_t *end)
{
	return j_has(end, "exitCode") ? j_int(end, "exitCode") : 0;
}

void played_assert_exit(const struct played *o, int64_t code)
{
	char status[32];
	assert_good_end(o);
	(void)snprintf(status, sizeof status, "exit status %lld", (long long)code);
	ck_assert_str_eq(j_str(o->end, "status"), status);
	ck_assert_int_eq(exit_code(o->end), code);
	ck_assert(j_bool(o->end, "exited"));
	if (code)
		ck_assert_str_eq(j_str(o->end, "error"), status);
	else
		ck_assert(!j_has(o->end, "error"));
}

void played_assert_signal(const struct played *o, const char *word)
{
	char status[64];
	assert_good_end(o);
	(void)snprintf(status, sizeof status, "signal: %s", word);
	ck_assert_str_eq(j_str(o->end, "status"), status);
	ck_assert_str_eq(j_str(o->end, "error"), status);
	ck_assert_int_eq(exit_code(o->end), -1);
	ck_assert(!j_has(o->end, "exited"));
}

const char *played_assert_error(const struct played *o, const char *code)
{
	ck_assert_msg(!o->end, "an end event in front of the error");
	const json_t *e = j_get(o->last, "error");
	if (strcmp(j_str(e, "code"), code) != 0)
		ck_abort_msg("%s (%s), want %s", j_str(e, "code"), j_str(e, "message"), code);
	return j_str(e, "message");
}

void start_and_play(const struct testd *d, enum codec codec, const char *headers, const char *json, struct played *o)
{
	struct stream *s = stream_open(d, "process.Process/Start", codec, headers, json);
	stream_play(s, o, CLIENT_DEADLINE);
	stream_close(s);
}

char *sh_request(const char *script, const char *more)
{
	char *json = NULL;
	json_t *text = json_string(script);
	char *quoted = j_text(text);
	ck_assert(asprintf(&json, "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",%s]}%s}", quoted, more) > 0);
	json_decref(text);
	free(quoted);
	return json;
}

void sh_play(const struct testd *d, enum codec codec, const char *headers, const char *script, struct played *o)
{
	char *json = sh_request(script, ",\"stdin\":false");
	start_and_play(d, codec, headers, json, o);
	free(json);
}
