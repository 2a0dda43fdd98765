// SPDX-License-Identifier: Apache-2.0
// GET /transcript: a window of a session's transcript that ends at the end of a line.
#include "daemon/io.h"
#include "daemon/sandboxd/workspace.h"
#include "proto/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WINDOW_MAX 262144

struct window {
	char name[256]; // of the file
	int64_t offset, limit;
};

// ?KEY=N, absent or empty: *V stays.
static int number(const struct http_head *head, const char *key, int64_t *v, struct err *e)
{
	const char *p;
	size_t n;
	long long got;
	if (!text_query_raw(head->query.p, head->query.n, key, &p, &n) || !n)
		return 0;
	if (text_int(p, n, 0, INT64_MAX, &got) < 0)
		return err_set(e, ERR_INVALID_ARGUMENT, "%s must be a number of bytes", key);
	*v = got;
	return 0;
}

static int parse(struct window *win, const struct http_head *head, struct err *e)
{
	struct buf session;
	buf_init(&session, 4096);
	int rc = text_query_get(&session, head->query.p, head->query.n, "session", 0);
	if (rc >= 0 && !buf_len(&session) && !buf_failed(&session))
		rc = err_set(e, ERR_INVALID_ARGUMENT, "session required");
	else if (rc == -ENOMEM || buf_failed(&session) == -ENOMEM)
		rc = err_sys(e, -ENOMEM, "session");
	else if (rc < 0 || buf_failed(&session) ||
		 !workspace_id_ok((const char *)buf_data(&session), buf_len(&session)))
		rc = err_set(e, ERR_INVALID_ARGUMENT, "invalid session");
	else
		rc = 0;
	if (rc == 0)
		snprintf(win->name, sizeof win->name, "%.*s.log", (int)buf_len(&session),
			(const char *)buf_data(&session));
	buf_release(&session);
	win->offset = win->limit = 0;
	if (rc < 0 || number(head, "offset", &win->offset, e) < 0 || number(head, "limit", &win->limit, e) < 0)
		return -1;
	if (!win->limit || win->limit > WINDOW_MAX)
		win->limit = WINDOW_MAX;
	return 0;
}

// How many of N bytes that do not reach the end of the file are given: whole lines, or, where one line is longer, whole characters of it.
static size_t cut(const unsigned char *p, size_t n)
{
	const unsigned char *nl = n ? memrchr(p, '\n', n) : NULL;
	if (nl)
		return (size_t)(nl - p) + 1;
	size_t k = n;
	while (k > 1 && n - k < 3 && (p[k - 1] & 0xc0) == 0x80)
		k--;
	if (k > 1 && p[k - 1] >= 0xc0)
		k--;
	else
		k = n;
	return k;
}

static void answer(struct conn *c, const struct window *win, const unsigned char *p, size_t n, int64_t size)
{
	struct buf out;
	struct jsonw w;
	buf_init(&out, 0);
	jsonw_init(&w, &out);
	jsonw_obj(&w);
	jsonw_key(&w, "output");
	jsonw_str(&w, p, n);
	jsonw_kint(&w, "offset", win->offset);
	jsonw_kint(&w, "next_offset", win->offset + (int64_t)n);
	jsonw_kbool(&w, "truncated_before", win->offset > 0);
	jsonw_kbool(&w, "eof", win->offset + (int64_t)n >= size);
	jsonw_obj_end(&w);
	sandboxd_reply(c, &out);
}

static int read_window(struct conn *c, struct window *win, int fd, int64_t size)
{
	if (win->offset > size)
		win->offset = size; // it was shorter all the time, or the workspace was reset
	size_t want = size - win->offset < win->limit ? (size_t)(size - win->offset) : (size_t)win->limit;
	unsigned char *p = malloc(want + 1);
	if (!p)
		return -ENOMEM;
	ssize_t n = io_pread(fd, p, want, win->offset);
	int rc = n < 0 ? (int)n : 0;
	if (rc == 0)
		answer(c, win, p, win->offset + n < size ? cut(p, (size_t)n) : (size_t)n, size);
	free(p);
	return rc;
}

void sandboxd_transcript(void *ctx, struct conn *c)
{
	struct sandboxd *s = ctx;
	struct window win;
	struct err e;
	int64_t size = 0;
	if (parse(&win, conn_head(c), &e) < 0) {
		conn_error(c, &e);
		return;
	}
	journals_flush(s->workspace->journals);
	int dirfd = journals_dir(s->workspace->journals, TRANSCRIPTS_DIR, false);
	int fd = dirfd < 0 ? dirfd : journals_read(dirfd, win.name, &size);
	int rc = fd < 0 ? fd : read_window(c, &win, fd, size);
	if (rc == -ENOENT)
		err_set(&e, ERR_NOT_FOUND, "no transcript");
	else if (rc < 0)
		err_sys(&e, rc, "transcript");
	if (rc < 0)
		conn_error(c, &e);
	io_close(&fd);
	io_close(&dirfd);
}
