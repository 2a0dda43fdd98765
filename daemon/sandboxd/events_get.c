// SPDX-License-Identifier: Apache-2.0
// GET /events: the last lines of the journal as one JSON array, made in slices. The file belongs to the sandbox's users: only whole
// lines that are JSON objects are passed on.
#include "daemon/io.h"
#include "daemon/sandboxd/work.h"
#include "daemon/sandboxd/workspace.h"
#include "proto/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT_DEFAULT 500
#define LIMIT_MAX 100000
// Of each generation; the journal itself keeps to this.
#define TAIL_MAX ((int64_t)4 * 1024 * 1024)
#define BLOCK ((size_t)64 * 1024)
#define BACK ((size_t)8 * 1024) // on the stack
// A longer line is none of ours.
#define LINE_MAX_BYTES ((size_t)64 * 1024)

struct part {
	int fd;
	int64_t at, end;
};

struct events_read {
	struct work work;    // first
	struct part part[2]; // the older generation, the newer one
	int now;             // which is read
	struct buf line;     // what was read of the next ones
	bool some;           // the array has begun
	bool first;
};

static void events_free(struct work *w)
{
	struct events_read *r = (struct events_read *)w;
	io_close(&r->part[0].fd);
	io_close(&r->part[1].fd);
	buf_release(&r->line);
	free(r);
}

// 0, also if it is none of ours, or -ENOMEM.
static int put_line(struct events_read *r, const char *p, size_t n)
{
	struct err e = {0};
	json_t *doc = n && n <= LINE_MAX_BYTES ? jsonr_parse(p, n, &e) : NULL;
	if (!doc)
		return e.sys == ENOMEM ? -ENOMEM : 0;
	jsonr_free(doc);
	if (r->some)
		buf_byte(&r->work.out, ',');
	r->some = true;
	buf_append(&r->work.out, p, n);
	return 0;
}

// Passes on whole lines: 1 if there was one, 0, or -ENOMEM.
static int take_line(struct events_read *r, bool last)
{
	const char *p = (const char *)buf_data(&r->line);
	size_t n = buf_len(&r->line);
	const char *nl = n ? memchr(p, '\n', n) : NULL;
	if (nl) {
		int rc = put_line(r, p, (size_t)(nl - p));
		buf_consume(&r->line, (size_t)(nl - p) + 1);
		return rc < 0 ? rc : 1;
	}
	if (last || n > LINE_MAX_BYTES)
		buf_reset(&r->line); // not whole, or none of ours
	return 0;
}

// 1, 0 at the end, or negative errno.
static int read_block(struct events_read *r)
{
	struct part *p = &r->part[r->now];
	if (p->fd < 0 || p->at >= p->end)
		return 0;
	size_t want = p->end - p->at < (int64_t)BLOCK ? (size_t)(p->end - p->at) : BLOCK;
	unsigned char *room = buf_reserve(&r->line, want);
	if (!room)
		return -ENOMEM;
	ssize_t n = io_pread(p->fd, room, want, p->at);
	buf_commit(&r->line, n > 0 ? (size_t)n : 0);
	if (n < 0)
		return (int)n;
	p->at = n > 0 ? p->at + n : p->end;
	return n > 0;
}

// What is next of the array: 1, 0 once a generation is through, or negative errno.
static int next_lines(struct events_read *r)
{
	int rc = take_line(r, false);
	if (rc == 0)
		rc = read_block(r);
	return rc == 0 ? take_line(r, true) : rc;
}

static enum work_state events_step(struct work *w, int64_t until)
{
	struct events_read *r = (struct events_read *)w;
	size_t start = buf_len(&w->out);
	if (!r->first)
		buf_byte(&w->out, '[');
	r->first = true;
	do {
		int rc = next_lines(r);
		if (rc < 0) {
			err_sys(&w->err, rc, "events");
			return WORK_FAILED;
		}
		if (rc > 0 || ++r->now < 2)
			continue;
		buf_byte(&w->out, ']');
		return WORK_DONE;
	} while (io_mono_ns() < until && buf_len(&w->out) - start < BLOCK);
	return WORK_MORE;
}

static const struct work_ops ops = {.step = events_step, .free = events_free};

// Moves P->at to the start of its last N lines: how many there are, or negative errno.
static long seek_lines(struct part *p, long n)
{
	char block[BACK];
	int64_t floor = p->end > TAIL_MAX ? p->end - TAIL_MAX : 0;
	int64_t at = p->end;
	long lines = 0;
	while (at > floor) {
		size_t want = at - floor < (int64_t)BACK ? (size_t)(at - floor) : BACK;
		at -= (int64_t)want;
		ssize_t got = io_pread(p->fd, block, want, at);
		if (got < 0)
			return got;
		if (got < (ssize_t)want)
			break;
		const char *hit = block + want;
		while ((hit = memrchr(block, '\n', (size_t)(hit - block)))) {
			// The newline behind line L+1 from the end begins what follows it.
			if (lines++ == n) {
				p->at = at + (hit - block) + 1;
				return n;
			}
		}
	}
	p->at = floor;
	return lines;
}

// 0 or negative errno; -ENOENT if there is no journal at all.
static int open_parts(struct events_read *r, struct workspace *ws, long limit)
{
	int dirfd = journals_dir(ws->journals, EVENTS_DIR, false);
	if (dirfd < 0)
		return dirfd;
	r->part[1].fd = journals_read(dirfd, EVENTS_FILE, &r->part[1].end);
	int rc = r->part[1].fd < 0 ? r->part[1].fd : 0;
	long lines = rc == 0 ? seek_lines(&r->part[1], limit) : rc;
	if (lines >= 0 && lines < limit) {
		r->part[0].fd = journals_read(dirfd, EVENTS_FILE ".1", &r->part[0].end);
		rc = r->part[0].fd < 0 && r->part[0].fd != -ENOENT ? r->part[0].fd : 0;
		if (r->part[0].fd >= 0)
			lines = seek_lines(&r->part[0], limit - lines);
	}
	io_close(&dirfd);
	return rc < 0 ? rc : lines < 0 ? (int)lines : 0;
}

// ?limit=N: -1 with E filled if it is no number.
static long limit_of(const struct http_head *head, struct err *e)
{
	const char *p;
	size_t n;
	long long v;
	if (!text_query_raw(head->query.p, head->query.n, "limit", &p, &n) || !n)
		return LIMIT_DEFAULT;
	int rc = text_int(p, n, 0, LIMIT_MAX, &v);
	if (rc == -ERANGE && *p != '-')
		return LIMIT_MAX;
	if (rc < 0)
		return err_set(e, ERR_INVALID_ARGUMENT, "limit must be a number of lines");
	return v ? (long)v : LIMIT_DEFAULT;
}

void sandboxd_events(void *ctx, struct conn *c)
{
	struct sandboxd *s = ctx;
	struct err e;
	long limit = limit_of(conn_head(c), &e);
	struct events_read *r = limit < 0 ? NULL : calloc(1, sizeof *r);
	if (limit >= 0 && !r)
		err_sys(&e, -ENOMEM, "events");
	if (!r) {
		conn_error(c, &e);
		return;
	}
	r->part[0].fd = r->part[1].fd = -1;
	journals_flush(s->workspace->journals);
	int rc = open_parts(r, s->workspace, limit);
	if (rc == 0) {
		work_start(&r->work, s->slices, c, &ops);
		return;
	}
	if (rc == -ENOENT)
		err_set(&e, ERR_NOT_FOUND, "no events");
	else
		err_sys(&e, rc, "events");
	conn_error(c, &e);
	events_free(&r->work);
}
