// SPDX-License-Identifier: Apache-2.0
// /files/write: bodies may be large, so the content never becomes part of a JSON tree: it is found, checked and decoded in pieces, straight
// from the body into the file. Nothing on disk is touched before all of the request is known to be good.
#include "daemon/io.h"
#include "daemon/sandboxd/files.h"
#include "daemon/sandboxd/work.h"
#include "proto/json_scan.h"
#include "proto/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define PIECE ((size_t)32 * 1024)
// Of the body without the content, for that is parsed at once.
#define REST_MAX ((size_t)256 * 1024)

enum phase {
	SCANNING, // where is the content?
	CHECKING, // is it good, and how long?
	WRITING,
	COMMITTING,
};

struct writing {
	struct work work; // first
	const struct sandboxd *sandboxd;
	enum phase phase;
	struct json_scan scan;
	char *path;
	bool append, base64;
	struct files_writer *writer;
	size_t at;    // in the body
	int64_t size; // of the decoded content, as far as it is checked
	struct json_unescape unescape;
	struct buf text; // unescaped, not decoded yet
	struct buf raw;  // decoded
	bool padded;     // base64 has come to its end
};

static int bad_json(struct err *e)
{
	return err_set(e, ERR_INVALID_ARGUMENT, "invalid json");
}

// --- the request ---

static int request_mode(const json_t *doc, bool *append, struct err *e)
{
	const char *mode = "w";
	if (jsonr_str(doc, "mode", 0, &mode, NULL, e) < 0)
		return -1;
	*append = strcmp(mode, "a") == 0;
	if (!*append && strcmp(mode, "w") != 0 && *mode)
		return err_set(e, ERR_INVALID_ARGUMENT, "mode must be w or a");
	return 0;
}

static int request_keys(struct writing *w, const json_t *doc, struct err *e)
{
	const char *content; // "", wherever the real one is
	if (files_body_path(w->sandboxd, doc, "path", &w->path, NULL, e) < 0 || request_mode(doc, &w->append, e) < 0 ||
		sandboxd_base64(doc, &w->base64, e) < 0)
		return -1;
	return jsonr_str(doc, "content", 0, &content, NULL, e) < 0 ? -1 : 0;
}

// Parses the body without the content.
static int request(struct writing *w, const struct buf *body, struct err *e)
{
	const struct json_scan *scan = &w->scan;
	size_t from = scan->found ? scan->from : 0, to = scan->found ? scan->to : 0;
	struct buf rest;
	if (buf_len(body) - (to - from) > REST_MAX)
		return err_http(e, 413, ERR_RESOURCE_EXHAUSTED, "request without its content is too large");
	buf_init(&rest, 0);
	buf_append(&rest, buf_data(body), from);
	buf_append(&rest, buf_data(body) + to, buf_len(body) - to);
	json_t *doc = NULL;
	if (buf_failed(&rest))
		err_sys(e, buf_failed(&rest), "request");
	else
		doc = jsonr_parse(buf_data(&rest), buf_len(&rest), e);
	buf_release(&rest);
	int rc = doc ? request_keys(w, doc, e) : -1;
	jsonr_free(doc);
	return rc;
}

// --- the content ---

static void rewind_content(struct writing *w)
{
	w->at = w->scan.found ? w->scan.from : 0;
	w->unescape = (struct json_unescape){.n = 0};
	w->padded = false;
	buf_reset(&w->text);
}

// The text so far, in whole groups; what is left is kept. Nothing may follow padding.
static int decode(struct writing *w)
{
	size_t n = buf_len(&w->text) / 4 * 4;
	if (w->padded && buf_len(&w->text) > 0)
		return -EINVAL;
	int rc = text_b64_decode(&w->raw, (const char *)buf_data(&w->text), n);
	if (rc < 0)
		return rc;
	w->padded = buf_len(&w->raw) < n / 4 * 3;
	buf_consume(&w->text, n);
	return w->padded && buf_len(&w->text) > 0 ? -EINVAL : 0;
}

// Decodes the next piece into *OUT, valid until the next one. 1, 0 at the end, or -1 with E filled.
static int next_piece(struct writing *w, const struct buf *body, const struct buf **out, struct err *e)
{
	size_t to = w->scan.found ? w->scan.to : 0, n = to - w->at;
	n = n < PIECE ? n : PIECE;
	if (!w->base64)
		buf_reset(&w->text);
	buf_reset(&w->raw);
	*out = w->base64 ? &w->raw : &w->text;
	int rc = json_unescape(&w->unescape, &w->text, (const char *)buf_data(body) + w->at, n);
	w->at += n;
	if (rc == 0 && n == 0)
		rc = json_unescape_end(&w->unescape);
	if (rc < 0)
		return rc == -EINVAL ? bad_json(e) : err_sys(e, rc, "content");
	if (w->base64)
		rc = n > 0 ? decode(w) : buf_len(&w->text) > 0 ? -EINVAL : 0;
	if (rc < 0)
		return rc == -EINVAL ? err_set(e, ERR_INVALID_ARGUMENT, "invalid base64") : err_sys(e, rc, "content");
	return n > 0;
}

// --- the steps; each 1 for more, 0 when its phase is through, -1 with E filled ---

static int scan_step(struct writing *w, const struct buf *body, struct err *e)
{
	size_t n = buf_len(body) - w->at;
	n = n < 2 * PIECE ? n : 2 * PIECE;
	json_scan_feed(&w->scan, (const char *)buf_data(body) + w->at, n);
	w->at += n;
	if (w->at < buf_len(body))
		return 1;
	if (request(w, body, e) < 0)
		return -1;
	rewind_content(w);
	return 0;
}

static int open_writer(struct writing *w, struct err *e)
{
	struct files_write spec = {.path = w->path, .append = w->append, .size = w->size};
	if (workspace_admit(w->sandboxd->workspace, e) < 0 || files_owner(w->sandboxd, &spec.owner, e) < 0)
		return -1;
	int rc = files_writer_new(&w->writer, &spec);
	return rc < 0 ? files_error(e, rc, w->path) : 0;
}

static int check_step(struct writing *w, const struct buf *body, struct err *e)
{
	const struct buf *piece;
	int rc = next_piece(w, body, &piece, e);
	if (rc < 0)
		return rc;
	w->size += (int64_t)buf_len(piece);
	if (rc > 0)
		return 1;
	rewind_content(w);
	return open_writer(w, e);
}

static int write_step(struct writing *w, const struct buf *body, struct err *e)
{
	const struct buf *piece;
	int more = next_piece(w, body, &piece, e);
	if (more < 0)
		return -1;
	int rc = files_writer_feed(w->writer, buf_data(piece), buf_len(piece));
	return rc < 0 ? err_sys(e, rc, "%s", w->path) : more;
}

static int commit_step(struct writing *w, struct err *e)
{
	int rc = files_writer_commit(w->writer);
	return rc < 0 ? err_sys(e, rc, "%s", w->path) : rc;
}

static int phase_step(struct writing *w, struct err *e)
{
	const struct buf *body = conn_body(w->work.conn);
	switch (w->phase) {
	case SCANNING:
		return scan_step(w, body, e);
	case CHECKING:
		return check_step(w, body, e);
	case WRITING:
		return write_step(w, body, e);
	default:
		return commit_step(w, e);
	}
}

static enum work_state writing_step(struct work *work, int64_t until)
{
	struct writing *w = (struct writing *)work;
	do {
		int rc = phase_step(w, &work->err);
		if (rc < 0)
			return WORK_FAILED;
		if (rc == 0 && w->phase == COMMITTING) {
			BUF_LIT(&work->out, "{\"ok\":true,\"size\":");
			buf_i64(&work->out, w->size);
			BUF_LIT(&work->out, "}");
			events_put(w->sandboxd, "file_write", NULL, "path", w->path);
			return WORK_DONE;
		}
		w->phase += rc == 0;
	} while (io_mono_ns() < until);
	return WORK_MORE;
}

static void writing_free(struct work *work)
{
	struct writing *w = (struct writing *)work;
	files_writer_free(w->writer);
	buf_release(&w->text);
	buf_release(&w->raw);
	free(w->path);
	free(w);
}

static const struct work_ops writing_ops = {.step = writing_step, .free = writing_free};

void sandboxd_files_write(void *ctx, struct conn *c)
{
	const struct sandboxd *s = ctx;
	struct writing *w = calloc(1, sizeof *w);
	if (!w) {
		struct err e;
		err_sys(&e, -ENOMEM, "write");
		conn_error(c, &e);
		return;
	}
	w->sandboxd = s;
	json_scan_init(&w->scan, "content");
	work_start(&w->work, s->slices, c, &writing_ops);
}
