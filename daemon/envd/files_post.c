// SPDX-License-Identifier: Apache-2.0
// POST /files: one file as it is, or several in a form; the body goes to the disk as it comes, in constant memory. What one call has
// no time for is done in slices, while the body waits in its socket.
#include "daemon/envd/files.h"
#include "daemon/io.h"
#include "proto/gzip.h"
#include "proto/multipart.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define PLAIN ((size_t)64 * 1024)             // bytes inflated in one go
#define ANSWER_MAX ((size_t)16 * 1024 * 1024) // of the list of files
enum { UPLOADS_MAX = 10000 };                 // files in one request

enum progress { FAILED = -1, WAITING, BUSY, DONE };

struct upload {
	struct slice_job job; // first
	const struct envd *envd;
	struct conn *conn;
	struct user user;
	char *path; // the query's or NULL
	struct files_meta meta;
	bool form;
	struct multipart parts;
	struct gunzip *gunzip; // or NULL
	bool held;             // it may have more without more input
	struct buf in;         // come, not used yet
	struct buf plain;      // inflated, not used yet
	bool ended;            // all of the body has come
	bool checked;          // ... and makes sense to its end
	bool committing;       // the current file is whole
	struct files_put put;  // the current one
	char **paths;          // those that are done
	size_t count, room;
	struct buf answer;
	struct err err;
};

static void upload_free(struct upload *u)
{
	slice_stop(&u->job);
	files_put_release(&u->put);
	files_meta_release(&u->meta);
	multipart_release(&u->parts);
	gunzip_free(u->gunzip);
	buf_release(&u->in);
	buf_release(&u->plain);
	buf_release(&u->answer);
	user_release(&u->user);
	for (size_t i = 0; i < u->count; i++)
		free(u->paths[i]);
	free(u->paths);
	free(u->path);
	free(u);
}

static int no_memory(struct upload *u)
{
	return err_sys(&u->err, -ENOMEM, "upload");
}

// --- one file ---

static int remember(struct upload *u, char *path)
{
	if (u->count == u->room) {
		size_t room = u->room ? 2 * u->room : 4;
		char **paths = realloc(u->paths, room * sizeof *paths);
		if (!paths) {
			free(path);
			return no_memory(u);
		}
		u->paths = paths;
		u->room = room;
	}
	u->paths[u->count++] = path;
	return 0;
}

static int check_new(struct upload *u, const char *path)
{
	if (u->count == UPLOADS_MAX)
		return err_http(&u->err, 413, ERR_RESOURCE_EXHAUSTED, "more than %d files in one upload", UPLOADS_MAX);
	for (size_t i = 0; i < u->count; i++)
		if (strcmp(u->paths[i], path) == 0)
			return err_set(&u->err, ERR_INVALID_ARGUMENT,
				"you cannot upload multiple files to the same path '%s' in one upload request, only "
				"the first "
				"specified file was uploaded",
				path);
	return 0;
}

// Begins the file that PATH means for the user.
static int begin_file(struct upload *u, const char *path, int64_t size)
{
	struct err bad;
	char *full = envd_path(u->envd, &u->user, path, &bad);
	if (!full && bad.code == ERR_INVALID_ARGUMENT)
		return err_set(&u->err, ERR_INVALID_ARGUMENT, "error resolving path: %s", bad.msg);
	if (!full) {
		u->err = bad;
		return -1;
	}
	if (check_new(u, full) < 0) {
		free(full);
		return -1;
	}
	return files_put_open(&u->put, full, size, &u->user, &u->err);
}

static int end_file(struct upload *u)
{
	int rc = files_put_commit(&u->put, &u->err);
	if (rc != 0)
		return rc;
	char *path = u->put.path;
	u->put.path = NULL;
	u->committing = false;
	if (files_meta_store(&u->meta, path, &u->err) < 0) {
		free(path);
		return -1;
	}
	struct buf *out = &u->answer;
	buf_str(out, u->count > 0 ? ",{" : "{");
	files_meta_put(out, path);
	BUF_LIT(out, "\"name\":");
	files_put_json(out, files_base(path));
	BUF_LIT(out, ",\"path\":");
	files_put_json(out, path);
	BUF_LIT(out, ",\"type\":\"file\"}");
	return remember(u, path);
}

// --- the body ---

static int begin_part(struct upload *u)
{
	struct multipart *m = &u->parts;
	const char *name = buf_cstr(&m->name), *filename = buf_cstr(&m->filename);
	if (!name || !filename)
		return no_memory(u);
	if (strcmp(name, "file") != 0)
		return 0; // its bytes are skipped
	if (u->path)
		return begin_file(u, u->path, -1);
	if (!m->has_filename)
		return err_set(&u->err, ERR_INVALID_ARGUMENT,
			"error getting multipart custom part file name: filename not found in Content-Disposition "
			"header");
	if (strlen(filename) != buf_len(&m->filename))
		return err_set(&u->err, ERR_INVALID_ARGUMENT, "error resolving path: NUL in the file name");
	return begin_file(u, filename, -1);
}

// Uses up to N bytes of the form. Returns how many, or -1.
static ssize_t feed_form(struct upload *u, const unsigned char *p, size_t n)
{
	size_t used = 0;
	int rc = multipart_feed(&u->parts, p, n, &used, &u->err);
	if (rc == MULTIPART_PART)
		rc = begin_part(u);
	else if (rc == MULTIPART_DATA && u->put.writer)
		rc = files_put_feed(&u->put, u->parts.data, u->parts.data_n, &u->err);
	else if (rc == MULTIPART_PART_END)
		u->committing = u->put.writer != NULL;
	return rc < 0 ? -1 : (ssize_t)used;
}

// Uses bytes of the body until they, the time or the current file are at an end. Returns how many, or -1.
static ssize_t feed(struct upload *u, const unsigned char *p, size_t n, int64_t until)
{
	size_t at = 0;
	if (!u->form)
		return files_put_feed(&u->put, p, n, &u->err) < 0 ? -1 : (ssize_t)n;
	do {
		ssize_t used = feed_form(u, p + at, n - at);
		if (used < 0)
			return -1;
		at += (size_t)used;
	} while (at < n && !u->committing && io_mono_ns() < until);
	return (ssize_t)at;
}

static int feed_from(struct upload *u, struct buf *b, int64_t until)
{
	ssize_t used = feed(u, buf_data(b), buf_len(b), until);
	if (used > 0)
		buf_consume(b, (size_t)used);
	return used < 0 ? -1 : 0;
}

static int bad_gzip(struct upload *u, int rc)
{
	if (rc == -ENOMEM)
		return no_memory(u);
	if (rc == -EINVAL)
		return err_set(&u->err, ERR_INVALID_ARGUMENT,
			"error decompressing request body: failed to create gzip reader: gzip: invalid header");
	return err_http(&u->err, 500, ERR_INTERNAL, "error writing file: %s",
		u->ended && buf_len(&u->in) == 0 ? "unexpected EOF" : "gzip: damaged data");
}

static int inflate_some(struct upload *u)
{
	size_t used = 0;
	int rc = gunzip_feed(u->gunzip, buf_data(&u->in), buf_len(&u->in), &used, &u->plain, PLAIN);
	buf_consume(&u->in, used);
	u->held = buf_len(&u->plain) == PLAIN;
	return rc < 0 ? bad_gzip(u, rc) : 0;
}

// All bytes are used: was that all there had to be? Then the last file may be due.
static int check_end(struct upload *u)
{
	int rc = u->gunzip ? gunzip_end(u->gunzip) : 0;
	if (rc < 0)
		return bad_gzip(u, rc);
	u->checked = true;
	if (u->form)
		return multipart_end(&u->parts, &u->err);
	u->committing = true;
	return 0;
}

// One piece of work: BUSY, or why there is none.
static enum progress step(struct upload *u, int64_t until)
{
	int rc;
	if (u->committing)
		rc = end_file(u);
	else if (buf_len(&u->plain) > 0)
		rc = feed_from(u, &u->plain, until);
	else if (u->gunzip && (buf_len(&u->in) > 0 || u->held))
		rc = inflate_some(u);
	else if (buf_len(&u->in) > 0)
		rc = feed_from(u, &u->in, until);
	else if (u->ended && !u->checked)
		rc = check_end(u);
	else
		return u->ended ? DONE : WAITING;
	return rc < 0 ? FAILED : BUSY;
}

static enum progress work(struct upload *u)
{
	int64_t until = slice_until();
	enum progress p;
	do
		p = step(u, until);
	while (p == BUSY && io_mono_ns() < until);
	return p;
}

// --- the answer; U is gone then ---

static void fail(struct upload *u)
{
	struct conn *c = u->conn;
	struct err e = u->err;
	upload_free(u); // first: whoever reads the answer finds nothing half written
	envd_error(c, &e, NULL);
}

static void done(struct upload *u)
{
	BUF_LIT(&u->answer, "]");
	envd_reply(u->conn, 200, "Content-Type: text/plain; charset=utf-8\r\n", &u->answer);
	upload_free(u);
}

// Works a while. WAITING or BUSY; else U is gone.
static enum progress advance(struct upload *u)
{
	enum progress p = work(u);
	if (p == DONE)
		done(u);
	else if (p == FAILED)
		fail(u);
	else if (p == BUSY)
		slice_start(u->envd->slices, &u->job);
	return p;
}

static void on_step(struct slice_job *job)
{
	struct upload *u = (struct upload *)job;
	if (advance(u) != WAITING)
		return;
	slice_stop(&u->job);
	conn_resume_body(u->conn);
}

static void on_drop(struct slice_job *job)
{
	upload_free((struct upload *)job);
}

static enum conn_take on_data(void *arg, const void *p, size_t n)
{
	struct upload *u = arg;
	ssize_t used = u->gunzip ? 0 : feed(u, p, n, slice_until());
	if (used < 0) {
		fail(u);
		return CONN_TAKE_MORE;
	}
	buf_append(&u->in, (const char *)p + used, n - (size_t)used);
	if (buf_failed(&u->in)) {
		no_memory(u);
		fail(u);
		return CONN_TAKE_MORE;
	}
	return advance(u) == BUSY ? CONN_TAKE_PAUSE : CONN_TAKE_MORE;
}

static void on_end(void *arg)
{
	struct upload *u = arg;
	u->ended = true;
	(void)advance(u);
}

static void on_closed(void *arg)
{
	upload_free(arg);
}

// --- the request ---

// The value of a header up to its parameters.
static struct http_span value_of(const struct http_head *head, const char *name)
{
	struct http_span s = http_get(head, name);
	const char *end = s.n > 0 ? memchr(s.p, ';', s.n) : NULL;
	if (end)
		s.n = (size_t)(end - s.p);
	while (s.n > 0 && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
		s.n--;
	return s;
}

static int content_encoding(struct upload *u, const struct http_head *head)
{
	struct http_span coding = value_of(head, "Content-Encoding");
	if (coding.n == 0 || http_span_is_nocase(coding, "identity"))
		return 0;
	if (!http_span_is_nocase(coding, "gzip"))
		return err_set(&u->err, ERR_INVALID_ARGUMENT,
			"error decompressing request body: unsupported Content-Encoding: %.*s, supported: [gzip]",
			(int)coding.n, coding.p);
	u->gunzip = gunzip_new();
	return u->gunzip ? 0 : no_memory(u);
}

static int content_type(struct upload *u, const struct http_head *head)
{
	static const char form[] = "multipart/";
	struct http_span type = value_of(head, "Content-Type"), whole = http_get(head, "Content-Type");
	if (type.n > sizeof form - 1 && strncasecmp(type.p, form, sizeof form - 1) == 0) {
		u->form = true;
		return multipart_init(&u->parts, whole.p, whole.n, &u->err);
	}
	if (!http_span_is_nocase(type, "application/octet-stream"))
		return err_set(&u->err, ERR_INVALID_ARGUMENT,
			"unsupported content type: %.*s, expected multipart/form-data or application/octet-stream",
			(int)whole.n, whole.n ? whole.p : "");
	if (!u->path)
		return err_set(&u->err, ERR_INVALID_ARGUMENT, "path query parameter is required for raw body upload");
	return begin_file(u, u->path, u->gunzip ? -1 : head->content_length);
}

static int prepare(struct upload *u, const struct http_head *head)
{
	struct files_query q;
	int rc = files_query_parse(&q, head, &u->err);
	if (rc == 0)
		rc = files_authorise(u->envd, head, &q, "write", &u->err);
	if (rc == 0)
		rc = content_encoding(u, head);
	if (rc == 0)
		rc = files_user(u->envd, q.username, &u->user, &u->err);
	if (rc == 0)
		rc = files_meta_parse(&u->meta, head, &u->err);
	u->path = q.path;
	q.path = NULL;
	files_query_release(&q);
	return rc < 0 ? -1 : content_type(u, head);
}

void envd_files_post(void *ctx, struct conn *c)
{
	static const struct conn_sink sink = {.data = on_data, .end = on_end, .closed = on_closed};
	struct upload *u = calloc(1, sizeof *u);
	if (!u) {
		struct err e;
		err_sys(&e, -ENOMEM, "upload");
		envd_error(c, &e, NULL);
		return;
	}
	u->job.step = on_step;
	u->job.drop = on_drop;
	u->envd = ctx;
	u->conn = c;
	u->put.announced = conn_head(c)->content_length;
	buf_init(&u->answer, ANSWER_MAX);
	BUF_LIT(&u->answer, "[");
	if (prepare(u, conn_head(c)) < 0)
		fail(u);
	else
		conn_body_sink(c, &sink, u);
}
