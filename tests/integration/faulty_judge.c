// SPDX-License-Identifier: Apache-2.0
// What an answer is: f_end of faulty.h.
#include "tests/integration/faulty.h"

#include "proto/pbjson.h"
#include "proto/pbwire.h"
#include "proto/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SETTLE 8000

static enum verdict refused(struct faulty *f, int status)
{
	const struct fault *fault = f->fault;
	for (size_t i = 0; fault && i < 4 && fault->statuses[i]; i++)
		if (fault->statuses[i] == status)
			return REFUSED;
	return f_wrong(f, "refused with %d: %s", status, buf_cstr(&f->r.body));
}

static json_t *object_of(const void *p, size_t n)
{
	json_t *o = json_loadb(p, n, JSON_REJECT_DUPLICATES, NULL);
	if (o && !json_is_object(o)) {
		json_decref(o);
		o = NULL;
	}
	return o;
}

// An error's own members, of the right types.
static bool is_error(enum face face, int status, const json_t *o)
{
	const json_t *code = json_object_get(o, "code");
	if (face <= FACE_SSE)
		return json_is_string(json_object_get(o, "error")) && json_is_string(code) &&
		       json_is_boolean(json_object_get(o, "retryable"));
	if (!json_is_string(json_object_get(o, "message")))
		return false;
	// What fails before the route is known is in REST's form.
	return json_integer_value(code) == status || (face != FACE_REST && json_is_string(code));
}

static enum verdict judge_error(struct faulty *f, const struct talk *t)
{
	json_t *o = object_of(buf_data(&f->r.body), buf_len(&f->r.body));
	bool good = o && is_error(t->face, t->status, o);
	json_decref(o);
	return good ? refused(f, t->status)
		    : f_wrong(f, "%d without an error object: %s", t->status, buf_cstr(&f->r.body));
}

// The bytes of all data of a channel: "MEMBER":"<base64>" behind the text BEFORE.
static void collect(struct buf *out, struct buf *from, const char *before)
{
	const char *p = (const char *)buf_data(from), *end = p + buf_len(from), *stop;
	size_t n = strlen(before);
	while (p && (p = memmem(p, (size_t)(end - p), before, n))) {
		p += n;
		stop = memchr(p, '"', (size_t)(end - p));
		if (!stop || text_b64_decode(out, p, (size_t)(stop - p)) < 0)
			return;
	}
}

static enum verdict judge_sse(struct faulty *f)
{
	const char *text = buf_cstr(&f->r.body);
	size_t n = buf_len(&f->r.body);
	collect(&f->out, &f->r.body, "\"channel\":\"stdout\",\"data\":\"");
	collect(&f->err, &f->r.body, "\"channel\":\"stderr\",\"data\":\"");
	if (n < 2 || strcmp(text + n - 2, "\n\n") != 0)
		return f_wrong(f, "a stream ended in a frame: %s", text);
	const char *error = strstr(text, "data: {\"error\":"), *last = text;
	for (const char *p = text; (p = strstr(p, "\n\n")) && p[2]; p += 2)
		last = p + 2;
	if (error)
		return strstr(error, "\"code\":") && strstr(error, "\"retryable\":")
			       ? REFUSED
			       : f_wrong(f, "no error object in a frame: %s", error);
	bool ended = strncmp(last, "data: {\"exit\":", 14) == 0 || strncmp(last, "data: {\"done\":", 14) == 0 ||
		     strncmp(last, "data: {\"ended\":", 15) == 0;
	return ended ? RIGHT : f_wrong(f, "a stream without its end: %.300s", text);
}

static enum verdict judge_envelopes(struct faulty *f)
{
	const unsigned char *p = buf_data(&f->r.body);
	size_t n = buf_len(&f->r.body);
	json_t *last = NULL;
	collect(&f->out, &f->r.body, "\"stdout\":\"");
	collect(&f->out, &f->r.body, "\"pty\":\"");
	collect(&f->err, &f->r.body, "\"stderr\":\"");
	while (n >= 5) {
		size_t len = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
		if (last || len > n - 5 || (p[0] != 0 && p[0] != 2))
			break;
		last = p[0] == 2 ? object_of(p + 5, len) : NULL;
		p += 5 + len;
		n -= 5 + len;
	}
	if (!last || n)
		return json_decref(last), f_wrong(f, "a stream without its end frame");
	const json_t *error = json_object_get(last, "error");
	bool good = json_is_string(json_object_get(error, "code"));
	json_decref(last);
	if (!error)
		return RIGHT;
	return good ? REFUSED : f_wrong(f, "no error object in an end frame");
}

static enum verdict judge(struct faulty *f, const struct talk *t)
{
	bool stream = t->face == FACE_SSE || t->face == FACE_STREAM || t->face == FACE_PSTREAM;
	if (t->cut || (!t->sent && !t->over))
		return f->fault && f->fault->cuts ? CUT : f_wrong(f, "cut with %zu bytes of a body", buf_len(&t->body));
	if (!t->over)
		return f_wrong(f, "%s (status %d, %zu bytes of a body: %.300s)",
			stream ? "a stream has no end" : "no answer", t->status, buf_len(&t->body),
			buf_cstr(&f->r.body));
	if (t->status < 200 || t->status > 299)
		return judge_error(f, t);
	if (!stream)
		return RIGHT;
	return t->face == FACE_SSE ? judge_sse(f) : judge_envelopes(f);
}

enum verdict f_end(struct faulty *f, struct talk *t)
{
	while (f_until(t, "\1no such byte in any answer\1"))
		;
	resp_release(&f->r);
	buf_release(&f->out);
	buf_release(&f->err);
	f->r.status = t->status;
	buf_append(&f->r.body, buf_data(&t->body), buf_len(&t->body));
	enum verdict v = judge(f, t);
	f_leave(t);
	return v;
}

enum verdict f_ask(struct faulty *f, enum face face, const char *method, const char *target, const char *headers,
	const void *body, size_t n)
{
	return f_end(f, f_open(f, face, method, target, headers, body, n));
}

static enum verdict wanted(struct faulty *f, enum verdict v, const char *want)
{
	if (v != RIGHT || !want || memmem(buf_data(&f->r.body), buf_len(&f->r.body), want, strlen(want)))
		return v;
	return f_wrong(f, "%d, but no %s in %.300s", f->r.status, want, buf_cstr(&f->r.body));
}

enum verdict f_want(struct faulty *f, enum face face, const char *target, const char *body, const char *want)
{
	const char *method = body ? "POST" : "GET";
	return wanted(f, f_ask(f, face, method, target, NULL, body, body ? strlen(body) : 0), want);
}

struct talk *f_call_open(
	struct faulty *f, enum face face, const char *method, const ProtobufCMessageDescriptor *type, const char *json)
{
	struct buf m = {0}, body = {0};
	struct err e;
	char target[80];
	(void)snprintf(target, sizeof target, "/%s", method);
	if (face == FACE_PROTO || face == FACE_PSTREAM) {
		ProtobufCMessage *msg = pbjson_read(type, json, strlen(json), &e);
		ck_assert_ptr_nonnull(msg);
		pbwire_write(&m, msg);
		pb_free(msg);
	} else {
		buf_str(&m, json);
	}
	size_t n = buf_len(&m);
	const unsigned char prefix[] = {
		0, (unsigned char)(n >> 24), (unsigned char)(n >> 16), (unsigned char)(n >> 8), (unsigned char)n};
	if (face >= FACE_STREAM)
		buf_append(&body, prefix, sizeof prefix);
	buf_append(&body, buf_data(&m), n);
	struct talk *t = f_open(f, face, "POST", target, "Connect-Protocol-Version: 1\r\n",
		buf_len(&body) ? (const void *)buf_data(&body) : "", buf_len(&body));
	buf_release(&m);
	buf_release(&body);
	return t;
}

enum verdict f_call(struct faulty *f, enum face face, const char *method, const ProtobufCMessageDescriptor *type,
	const char *json, const char *want)
{
	return wanted(f, f_end(f, f_call_open(f, face, method, type, json)), want);
}

long long f_number(struct buf *text, const char *key)
{
	char name[64];
	(void)snprintf(name, sizeof name, "\"%s\":", key);
	(void)buf_cstr(text); // a NUL behind it
	const char *p = memmem(buf_data(text), buf_len(text), name, strlen(name));
	return p ? strtoll(p + strlen(name), NULL, 10) : -1;
}

void f_fill(char *out, size_t n, const char *template, const char *value)
{
	size_t used = 0, len = strlen(value);
	for (const char *p = template; *p; p++) {
		const char *from = *p == '@' ? value : p;
		size_t more = *p == '@' ? len : 1;
		ck_assert_uint_lt(used + more, n);
		memcpy(out + used, from, more);
		used += more;
	}
	out[used] = '\0';
}
