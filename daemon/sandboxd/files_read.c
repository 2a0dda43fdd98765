// SPDX-License-Identifier: Apache-2.0
#include "daemon/io.h"
#include "daemon/sandboxd/files.h"
#include "daemon/sandboxd/work.h"
#include "proto/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define READ_MAX (INT64_C(64) * 1024 * 1024)
#define PIECE ((size_t)24 * 1024) // a multiple of 3, for base64

struct reading {
	struct work work; // first
	int fd;
	bool base64;
	bool lossy;
	int64_t size;          // bytes so far
	struct text_tail tail; // a character that the last piece cut
	size_t held;           // bytes at the front of raw that the last piece left
	unsigned char raw[PIECE];
	struct buf text;
};

static int put_text(struct reading *r, size_t n, bool final)
{
	text_utf8_repair(&r->text, &r->tail, r->raw, n, final, &r->lossy);
	jsonw_inside(&r->work.out, buf_data(&r->text), buf_len(&r->text));
	int rc = buf_failed(&r->text);
	buf_reset(&r->text);
	return rc;
}

static int put_base64(struct reading *r, size_t n, bool final)
{
	size_t whole = final ? n : n - n % 3;
	text_b64_encode(&r->work.out, r->raw, whole);
	r->held = n - whole;
	memmove(r->raw, r->raw + whole, r->held);
	return 0; // the answer's buffer tells
}

static void put_end(struct reading *r)
{
	struct buf *out = &r->work.out;
	BUF_LIT(out, "\",\"size\":");
	buf_i64(out, r->size);
	if (r->base64)
		BUF_LIT(out, ",\"encoding\":\"base64\"");
	if (r->lossy)
		BUF_LIT(out, ",\"lossy\":true");
	BUF_LIT(out, "}");
}

static int too_large(struct err *e)
{
	return err_http(e, 413, ERR_RESOURCE_EXHAUSTED, "file is larger than %lld bytes", (long long)READ_MAX);
}

static enum work_state read_step(struct work *w, int64_t until)
{
	struct reading *r = (struct reading *)w;
	size_t start = buf_len(&w->out);
	do {
		ssize_t got = io_read(r->fd, r->raw + r->held, PIECE - r->held);
		if (got < 0) {
			err_sys(&w->err, (int)got, "read");
			return WORK_FAILED;
		}
		r->size += got;
		if (r->size > READ_MAX) { // it grew, or is a file of /proc
			too_large(&w->err);
			return WORK_FAILED;
		}
		bool end = got == 0;
		int rc = r->base64 ? put_base64(r, r->held + (size_t)got, end) : put_text(r, (size_t)got, end);
		if (rc < 0) {
			err_sys(&w->err, rc, "read");
			return WORK_FAILED;
		}
		if (end) {
			put_end(r);
			return WORK_DONE;
		}
	} while (buf_len(&w->out) - start < 2 * PIECE && io_mono_ns() < until);
	return WORK_MORE;
}

static void read_free(struct work *w)
{
	struct reading *r = (struct reading *)w;
	io_close(&r->fd);
	buf_release(&r->text);
	free(r);
}

static const struct work_ops read_ops = {.step = read_step, .free = read_free};

static int read_encoding(const struct conn *c, bool *base64, struct err *e)
{
	struct buf text;
	buf_init(&text, 0);
	int rc = files_query(c, "encoding", &text, e);
	const char *s = rc > 0 ? buf_cstr(&text) : "";
	*base64 = s && strcmp(s, "base64") == 0;
	if (rc > 0 && !*base64 && buf_len(&text) > 0)
		rc = err_set(e, ERR_INVALID_ARGUMENT, "encoding must be base64");
	buf_release(&text);
	return rc < 0 ? -1 : 0;
}

static int read_open(struct reading *r, const struct sandboxd *s, const struct conn *c, struct err *e)
{
	char *path;
	int64_t size;
	if (read_encoding(c, &r->base64, e) < 0)
		return -1;
	int rc = files_query_path(s, c, &path, e);
	if (rc < 0)
		return -1;
	if (rc == 0)
		return err_set(e, ERR_INVALID_ARGUMENT, "path required");
	rc = files_open_read(path, READ_MAX, &r->fd, &size);
	if (rc == -EFBIG)
		too_large(e);
	else if (rc < 0)
		files_error(e, rc, path);
	else
		events_put(s, "file_read", NULL, "path", path);
	free(path);
	return rc < 0 ? -1 : 0;
}

void sandboxd_files_read(void *ctx, struct conn *c)
{
	const struct sandboxd *s = ctx;
	struct err e;
	struct reading *r = calloc(1, sizeof *r);
	if (!r)
		err_sys(&e, -ENOMEM, "read");
	if (!r || read_open(r, s, c, &e) < 0) {
		conn_error(c, &e);
		free(r);
		return;
	}
	BUF_LIT(&r->work.out, "{\"content\":\"");
	work_start(&r->work, s->slices, c, &read_ops);
}
