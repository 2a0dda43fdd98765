// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/rpc.h"

#include "daemon/envd/control.h"
#include "daemon/envd/rpc_priv.h"
#include "proto/gzip.h"
#include "proto/pbjson.h"
#include "proto/pbwire.h"
#include "proto/text.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define KEEPALIVE_S 90.0
#define KEEPALIVE_MAX_S 86400
#define TIMEOUT_DIGITS 10
#define GZIP_MAX ((size_t)64 * 1024) // compressed in one go; a longer answer would hold up the others

#define UNARY(type) "Accept-Encoding: gzip\r\nContent-Type: " type "\r\n"
#define ANSWER(type) type, UNARY(type), UNARY(type) "Content-Encoding: gzip\r\n"
static const struct rpc_type types[] = {
	{"application/json", ANSWER("application/json"), false, true, false},
	{"application/json", ANSWER("application/json; charset=utf-8"), true, true, false},
	{"application/proto", ANSWER("application/proto"), false, false, false},
	{"application/connect+json", ANSWER("application/connect+json"), false, true, true},
	{"application/connect+json", ANSWER("application/connect+json; charset=utf-8"), true, true, true},
	{"application/connect+proto", ANSWER("application/connect+proto"), false, false, true},
};
#undef ANSWER
#undef UNARY

// --- methods and types ---

static const struct rpc_method *find_in(const struct rpc_method *m, struct http_span path)
{
	for (; m->path; m++)
		if (http_span_is(path, m->path))
			return m;
	return NULL;
}

// The methods of PATH's service, or NULL.
static const struct rpc_method *service_of(struct http_span path)
{
	static const char process[] = "/process.Process/", filesystem[] = "/filesystem.Filesystem/";
	if (path.n >= sizeof process && memcmp(path.p, process, sizeof process - 1) == 0)
		return envd_process_methods();
	if (path.n >= sizeof filesystem && memcmp(path.p, filesystem, sizeof filesystem - 1) == 0)
		return envd_filesystem_methods();
	return NULL;
}

const struct rpc_method *rpc_find(struct http_span path)
{
	const struct rpc_method *methods = service_of(path);
	return methods ? find_in(methods, path) : NULL;
}

bool rpc_path(struct http_span path)
{
	return service_of(path);
}

static struct http_span trimmed(const char *p, size_t n)
{
	while (n > 0 && (*p == ' ' || *p == '\t'))
		p++, n--;
	while (n > 0 && (p[n - 1] == ' ' || p[n - 1] == '\t'))
		n--;
	return (struct http_span){p, n};
}

static const struct rpc_type *find_type(struct http_span t)
{
	if (!t.p)
		return NULL;
	const char *semi = memchr(t.p, ';', t.n);
	struct http_span name = trimmed(t.p, semi ? (size_t)(semi - t.p) : t.n), rest = {NULL, 0};
	if (semi)
		rest = trimmed(semi + 1, t.n - (size_t)(semi + 1 - t.p));
	bool charset = http_span_is_nocase(rest, "charset=utf-8") || http_span_is_nocase(rest, "charset=\"utf-8\"");
	if (rest.n > 0 && !charset)
		return NULL;
	for (size_t i = 0; i < sizeof types / sizeof *types; i++)
		if (types[i].charset == charset && http_span_is_nocase(name, types[i].name))
			return &types[i];
	return NULL;
}

const char *rpc_stream_type(struct http_span t)
{
	const struct rpc_type *type = find_type(t);
	return type && type->stream ? type->answer : NULL;
}

static void refuse_type(struct conn *c, bool stream)
{
#define GRPC                                                                                                      \
	"application/grpc, application/grpc+json, application/grpc+json; charset=utf-8, application/grpc+proto, " \
	"application/grpc-web, application/grpc-web+json, application/grpc-web+json; charset=utf-8, "             \
	"application/grpc-web+proto"
	static const char unary_types[] = "Accept-Post: " GRPC ", application/json, "
					  "application/json; charset=utf-8, application/proto\r\n"
					  "Content-Type: application/json\r\n";
	static const char stream_types[] = "Accept-Post: application/connect+json, "
					   "application/connect+json; charset=utf-8, "
					   "application/connect+proto, " GRPC "\r\n"
					   "Content-Type: application/json\r\n";
#undef GRPC
	struct err e;
	struct buf body;
	buf_init(&body, 0);
	err_http(&e, 415, ERR_INVALID_ARGUMENT, "unsupported content type for a %s call", stream ? "stream" : "unary");
	envelope_error_body(&body, &e);
	envd_reply(c, 415, stream ? stream_types : unary_types, &body);
	buf_release(&body);
}

// --- the life of a call ---

void rpc_free(struct rpc *r)
{
	ev_timer_stop(r->envd->loop, &r->deadline);
	ev_timer_stop(r->envd->loop, &r->keepalive);
	r->dead = true;
	if (r->busy)
		return;
	if (r->request)
		pb_free(r->request);
	user_release(&r->user);
	envelope_reader_release(&r->input);
	buf_release(&r->held);
	buf_release(&r->last);
	buf_release(&r->plain);
	free(r);
}

static void tell(struct rpc *r)
{
	void (*fn)(void *arg) = r->on_close;
	r->on_close = NULL;
	if (fn)
		fn(r->on_close_arg);
}

void rpc_gone(void *arg)
{
	struct rpc *r = arg;
	tell(r);
	rpc_free(r);
}

void rpc_abandon(struct rpc *r, const struct err *e)
{
	tell(r);
	rpc_error(r, e);
}

// --- the head ---

static int read_timeout(struct rpc *r, const struct http_head *head, struct err *e)
{
	struct http_span t = http_get(head, "Connect-Timeout-Ms");
	long long ms;
	if (t.n == 0)
		return 0;
	if (t.n > TIMEOUT_DIGITS)
		return err_set(e, ERR_INVALID_ARGUMENT, "parse timeout: \"%.*s\" has >%d digits",
			t.n < 100 ? (int)t.n : 100, t.p, TIMEOUT_DIGITS);
	size_t sign = *t.p == '+' && t.n > 1 && t.p[1] != '-';
	if (text_int(t.p + sign, t.n - sign, INT64_MIN, INT64_MAX, &ms) < 0)
		return err_set(e, ERR_INVALID_ARGUMENT,
			"parse timeout: strconv.ParseInt: parsing \"%.*s\": invalid syntax", (int)t.n, t.p);
	r->timed = true;
	r->timeout_ms = ms > 0 ? ms : 0;
	return 0;
}

// True if the header holds the bare word "gzip" (contract B 1.8: no q-values).
static bool wants_gzip(struct http_span s)
{
	for (size_t i = 0; i < s.n;) {
		size_t n = 0;
		while (i + n < s.n && s.p[i + n] != ',' && s.p[i + n] != ' ')
			n++;
		if (http_span_is((struct http_span){s.p + i, n}, "gzip"))
			return true;
		i += n + 1;
	}
	return false;
}

static int read_encodings(struct rpc *r, const struct http_head *head, struct err *e)
{
	bool stream = r->type->stream;
	struct http_span in = http_get(head, stream ? "Connect-Content-Encoding" : "Content-Encoding");
	struct http_span out = http_get(head, stream ? "Connect-Accept-Encoding" : "Accept-Encoding");
	r->gzip_in = http_span_is(in, "gzip");
	r->gzip_out = r->gzip_in || wants_gzip(out);
	if (r->gzip_in || in.n == 0 || http_span_is(in, "identity"))
		return 0;
	r->no_encoding = true;
	r->gzip_out = false;
	return err_set(e, ERR_UNIMPLEMENTED, "unknown compression \"%.*s\": supported encodings are gzip",
		in.n < 100 ? (int)in.n : 100, in.p);
}

static int read_head(struct rpc *r, const struct http_head *head, struct err *e)
{
	struct http_span version = http_get(head, "Connect-Protocol-Version");
	struct http_span ping = http_get(head, "Keepalive-Ping-Interval");
	long long s;
	r->keepalive_s = ping.n > 0 && text_int(ping.p, ping.n, 1, KEEPALIVE_MAX_S, &s) == 0 ? (double)s : KEEPALIVE_S;
	if (read_encodings(r, head, e) < 0 || read_timeout(r, head, e) < 0)
		return -1;
	if (version.n > 0 && !http_span_is(version, "1"))
		return err_set(e, ERR_INVALID_ARGUMENT, "Connect-Protocol-Version must be \"1\": got \"%.*s\"",
			version.n < 100 ? (int)version.n : 100, version.p);
	if (r->timed && r->timeout_ms == 0)
		return err_set(e, ERR_DEADLINE_EXCEEDED, "context deadline exceeded");
	return 0;
}

// --- the request ---

ProtobufCMessage *rpc_decode(const struct rpc *r, const struct buf *body, struct err *e)
{
	const ProtobufCMessageDescriptor *d = r->method->request;
	const void *p = buf_data(body);
	size_t n = buf_len(body);
	// An empty payload is an empty message, but for unary JSON.
	if (r->type->json && (n > 0 || !r->type->stream))
		return pbjson_read(d, p, n, e);
	return pbwire_read(d, p, n, e);
}

static ProtobufCMessage *decode_unary(struct rpc *r, struct err *e)
{
	const struct buf *body = conn_body(r->conn);
	struct buf plain;
	buf_init(&plain, RPC_MESSAGE_MAX);
	ProtobufCMessage *m = NULL;
	if (buf_len(body) > RPC_MESSAGE_MAX)
		err_set(e, ERR_RESOURCE_EXHAUSTED, "message size %zu is larger than configured max %zu", buf_len(body),
			RPC_MESSAGE_MAX);
	else if (!r->gzip_in)
		m = rpc_decode(r, body, e);
	else if (gunzip_all(&plain, buf_data(body), buf_len(body), RPC_MESSAGE_MAX, e) == 0)
		m = rpc_decode(r, &plain, e);
	buf_release(&plain);
	return m;
}

static ProtobufCMessage *decode_envelope(struct rpc *r, struct err *e)
{
	const struct buf *body = conn_body(r->conn);
	const unsigned char *p = buf_data(body);
	size_t n = buf_len(body), used = 0;
	ProtobufCMessage *m = NULL;
	envelope_reader_init(&r->input, RPC_MESSAGE_MAX, r->gzip_in);
	// A second message is an error that comes before what is wrong inside the first one.
	struct buf first;
	buf_init(&first, 0);
	for (int rc = 1; rc != 0 && n > 0; p += used, n -= used) {
		rc = envelope_reader_feed(&r->input, p, n, &used, e);
		if (rc < 0)
			goto out;
		if (rc > 0 && r->input.messages == 1)
			buf_append(&first, buf_data(&r->input.payload), buf_len(&r->input.payload));
	}
	if (envelope_reader_end_one(&r->input, e) < 0)
		goto out;
	if (buf_failed(&first))
		err_sys(e, -ENOMEM, "request");
	else
		m = rpc_decode(r, &first, e);
out:
	buf_release(&first);
	envelope_reader_release(&r->input);
	return m;
}

void rpc_serve(void *ctx, struct conn *c)
{
	const struct http_head *head = conn_head(c);
	const struct rpc_method *m = rpc_find(head->path);
	const struct rpc_type *type = find_type(http_get(head, "Content-Type"));
	struct err e;
	if (!type || type->stream != (m->kind != RPC_UNARY)) {
		refuse_type(c, m->kind != RPC_UNARY);
		return;
	}
	struct rpc *r = malloc(sizeof *r); // calloc does not go through malloc's cache
	if (!r) {
		err_sys(&e, -ENOMEM, "call");
		conn_error(c, &e);
		return;
	}
	*r = (struct rpc){.envd = ctx, .conn = c, .method = m, .type = type};
	conn_on_close(c, rpc_gone, r);
	rpc_arm(r);
	bool good = read_head(r, head, &e) == 0;
	if (good && m->kind == RPC_CLIENT_STREAM) {
		envelope_reader_init(&r->input, RPC_MESSAGE_MAX, r->gzip_in);
		rpc_arm(r);
		conn_body_sink(c, rpc_sink(), r);
		return;
	}
	if (good)
		r->request = m->kind == RPC_UNARY ? decode_unary(r, &e) : decode_envelope(r, &e);
	if (!r->request) {
		rpc_error(r, &e);
		return;
	}
	if (m->kind == RPC_SERVER_STREAM)
		rpc_arm(r);
	m->call(r, r->request);
}

// --- what a handler asks ---

struct envd *rpc_envd(const struct rpc *r)
{
	return r->envd;
}

struct conn *rpc_conn(const struct rpc *r)
{
	return r->conn;
}

bool rpc_is_json(const struct rpc *r)
{
	return r->type->json;
}

int64_t rpc_timeout_ms(const struct rpc *r)
{
	return r->timeout_ms;
}

void rpc_own_deadline(struct rpc *r)
{
	ev_timer_stop(r->envd->loop, &r->deadline);
}

void rpc_set_data(struct rpc *r, void *data)
{
	r->data = data;
}

void *rpc_data(const struct rpc *r)
{
	return r->data;
}

void rpc_on_close(struct rpc *r, void (*fn)(void *arg), void *arg)
{
	r->on_close = fn;
	r->on_close_arg = arg;
}

const struct user *rpc_user(struct rpc *r, struct err *e)
{
	struct buf name;
	if (r->user_known)
		return &r->user;
	const struct user *known = control_known(r->envd, conn_head(r->conn));
	buf_init(&name, 0);
	bool basic = !known && control_basic(conn_head(r->conn), &name);
	int rc = known ? user_dup(&r->user, known) : buf_failed(&name);
	if (rc == 0 && !known)
		rc = envd_user(r->envd, basic ? (const char *)buf_data(&name) : NULL, buf_len(&name), &r->user);
	if (rc == -ENOENT && basic)
		err_set(e, ERR_UNAUTHENTICATED, "invalid username: '%.*s'", (int)buf_len(&name),
			(const char *)buf_data(&name));
	else if (rc == -ENOENT)
		err_set(e, ERR_UNAUTHENTICATED, "invalid default user: '%s'", envd_default_user(r->envd));
	else if (rc < 0)
		err_sys(e, rc, "user");
	buf_release(&name);
	r->user_known = rc == 0;
	return rc == 0 ? &r->user : NULL;
}

const struct user *rpc_user_now(struct rpc *r, struct err *e)
{
	const struct user *known = r->user_known ? NULL : control_known(r->envd, conn_head(r->conn));
	return known ? known : rpc_user(r, e);
}

// --- unary answers ---

int rpc_encode(const struct rpc *r, struct buf *out, const ProtobufCMessage *m)
{
	if (r->type->json)
		return pbjson_write(out, m);
	pbwire_write(out, m);
	return buf_failed(out);
}

bool rpc_gzip(struct buf *out, const void *p, size_t n)
{
	z_stream z = {0};
	gz_header header = {.os = 255}; // unknown
	if (n > UINT32_MAX ||
		deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return false;
	(void)deflateSetHeader(&z, &header);
	size_t room = deflateBound(&z, n);
	unsigned char *to = buf_reserve(out, room);
	bool ok = to;
	if (ok) {
		z.next_in = (unsigned char *)(uintptr_t)p;
		z.avail_in = (uInt)n;
		z.next_out = to;
		z.avail_out = (uInt)room;
		ok = deflate(&z, Z_FINISH) == Z_STREAM_END;
		buf_commit(out, ok ? room - z.avail_out : 0);
	}
	deflateEnd(&z);
	return ok;
}

void rpc_reply_body(struct rpc *r, const struct buf *body)
{
	struct buf zipped;
	buf_init(&zipped, 0);
	// Without memory for it the answer goes out as it is.
	bool gzip = r->gzip_out && !buf_failed(body) && buf_len(body) <= GZIP_MAX &&
		    rpc_gzip(&zipped, buf_data(body), buf_len(body));
	r->on_close = NULL;
	envd_reply(r->conn, 200, gzip ? r->type->unary_gzip : r->type->unary, gzip ? &zipped : body);
	buf_release(&zipped);
	rpc_free(r);
}

void rpc_reply(struct rpc *r, const ProtobufCMessage *m)
{
	struct buf body;
	if (r->type->stream) {
		rpc_put(r, &r->last, m);
		rpc_stream_end(r, NULL);
		return;
	}
	buf_init(&body, 0);
	if (rpc_encode(r, &body, m) == 0) {
		rpc_reply_body(r, &body);
	} else {
		struct err e;
		err_sys(&e, -ENOMEM, "answer");
		rpc_error(r, &e);
	}
	buf_release(&body);
}

bool rpc_reply_stream(struct rpc *r, const struct conn_producer *p, void *arg)
{
	struct buf all;
	struct err e;
	buf_init(&all, 0);
	envd_lines(conn_head(r->conn), r->type->unary, &all);
	const char *text = buf_cstr(&all);
	r->on_close = NULL;
	bool ok = text && conn_stream(r->conn, NULL, text, p, arg);
	if (!text) {
		err_sys(&e, -ENOMEM, "answer");
		conn_error(r->conn, &e);
	}
	buf_release(&all);
	rpc_free(r);
	return ok;
}

// The code's HTTP status (contract B 1.6).
static int status_of(const struct err *e)
{
	struct err same;
	err_set(&same, e->code, "%s", "");
	return e->code == ERR_FAILED_PRECONDITION ? 400 : same.status;
}

void rpc_error(struct rpc *r, const struct err *e)
{
	struct buf body;
	if (r->type->stream) {
		rpc_stream_end(r, e);
		return;
	}
	buf_init(&body, 0);
	envelope_error_body(&body, e);
	r->on_close = NULL;
	envd_reply(r->conn, status_of(e), "Accept-Encoding: gzip\r\nContent-Type: application/json\r\n", &body);
	buf_release(&body);
	rpc_free(r);
}

void rpc_errorf(struct rpc *r, enum err_code code, const char *fmt, ...)
{
	struct err e;
	char text[sizeof e.msg * 2];
	va_list ap;
	va_start(ap, fmt);
	(void)vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	err_set(&e, code, "%s", text);
	rpc_error(r, &e);
}
