// SPDX-License-Identifier: Apache-2.0
// GET /files: one file, or pieces of it, as the client takes them, in constant memory.
#include "daemon/envd/files.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define PIECE ((size_t)128 * 1024)        // bytes of one read
#define GZIP_PIECE ((size_t)32 * 1024)    // bytes compressed in one go: about a millisecond
#define GZIP_WHOLE ((size_t)2 * 1024)     // compressed bytes that go out with their length
#define GZIP_TRY ((size_t)64 * 1024)      // bytes of a file that may become so few
#define GZIP_LARGE ((int64_t)1024 * 1024) // files from this size on are compressed only if that makes them smaller
enum { SNIFF = 512, BOUNDARY = 60 };

struct download {
	int fd;
	int64_t at;                 // the next byte to read
	int64_t left;               // of the current range, -1 = until the end
	struct files_range *ranges; // several: each with a head of its own
	int count, next;
	int64_t size;
	char boundary[BOUNDARY + 1];
	const char *type;
	bool coded; // gzip is set up
	struct files_gzip gzip;
	struct buf ready; // goes out first
};

static void download_free(struct download *d)
{
	if (!d)
		return;
	io_close(&d->fd);
	if (d->coded)
		files_gzip_release(&d->gzip);
	buf_release(&d->ready);
	free(d->ranges);
	free(d);
}

// --- the producer ---

static ssize_t read_piece(struct download *d, void *to, size_t n)
{
	ssize_t got = io_pread(d->fd, to, n, (off_t)d->at);
	if (got > 0)
		d->at += got;
	return got;
}

static enum conn_pull put_ready(struct download *d, struct buf *out, size_t room)
{
	size_t n = buf_len(&d->ready);
	n = n < room ? n : room;
	buf_append(out, buf_data(&d->ready), n);
	buf_consume(&d->ready, n);
	return CONN_PULL_MORE;
}

static enum conn_pull put_plain(struct download *d, struct buf *out, size_t room)
{
	size_t n = room < PIECE ? room : PIECE;
	if (d->left >= 0 && (uint64_t)d->left < n)
		n = (size_t)d->left;
	unsigned char *to = buf_reserve(out, n);
	ssize_t got = to ? read_piece(d, to, n) : -ENOMEM;
	if (to)
		buf_commit(out, got > 0 ? (size_t)got : 0);
	if (got < 0 || (got == 0 && d->left > 0))
		return CONN_PULL_ABORT; // it became shorter
	if (d->left >= 0)
		d->left -= got;
	return got == 0 ? CONN_PULL_END : CONN_PULL_MORE;
}

static void part_head(const struct download *d, const struct files_range *r, bool first, struct buf *out)
{
	buf_printf(out, "%s--%s\r\nContent-Range: bytes %lld-%lld/%lld\r\nContent-Type: %s\r\n\r\n",
		first ? "" : "\r\n", d->boundary, (long long)r->from, (long long)(r->from + r->len - 1),
		(long long)d->size, d->type);
}

static void part_end(const struct download *d, struct buf *out)
{
	buf_printf(out, "\r\n--%s--\r\n", d->boundary);
}

// The next of several ranges begins, or they end.
static enum conn_pull next_part(struct download *d)
{
	if (d->next > d->count)
		return CONN_PULL_END;
	if (d->next == d->count) {
		part_end(d, &d->ready);
	} else {
		const struct files_range *r = &d->ranges[d->next];
		part_head(d, r, d->next == 0, &d->ready);
		d->at = r->from;
		d->left = r->len;
	}
	d->next++;
	return buf_failed(&d->ready) ? CONN_PULL_ABORT : CONN_PULL_MORE;
}

static enum conn_pull pull(void *arg, struct buf *out, size_t room)
{
	struct download *d = arg;
	if (buf_len(&d->ready) > 0)
		return put_ready(d, out, room);
	if (d->left != 0)
		return put_plain(d, out, room);
	enum conn_pull got = d->count > 1 ? next_part(d) : CONN_PULL_END;
	return got == CONN_PULL_MORE ? put_ready(d, out, room) : got;
}

// Compresses a piece into OUT. MORE, END, or ABORT.
static enum conn_pull put_coded(struct download *d, struct buf *out)
{
	unsigned char raw[GZIP_PIECE];
	ssize_t got = read_piece(d, raw, sizeof raw);
	if (got < 0)
		return CONN_PULL_ABORT;
	files_gzip_put(&d->gzip, out, raw, (size_t)got, got == 0);
	return got == 0 ? CONN_PULL_END : CONN_PULL_MORE;
}

static enum conn_pull pull_coded(void *arg, struct buf *out, size_t room)
{
	struct download *d = arg;
	if (buf_len(&d->ready) > 0)
		return put_ready(d, out, room);
	return put_coded(d, out);
}

static void on_closed(void *arg)
{
	download_free(arg);
}

static const struct conn_producer plain = {.pull = pull, .closed = on_closed};
static const struct conn_producer coded = {.pull = pull_coded, .closed = on_closed};

// --- the request ---

struct get {
	struct conn *conn;
	const struct http_head *head;
	struct files_query query;
	struct user user;
	char *path;
	struct stat st;
	enum files_coding coding;
	struct download *d;
	struct buf lines; // of the answer, unsorted
	struct err err;
	bool negotiated; // which every answer from then on says
	bool only_coded; // the client refuses the file as it is
};

static int check_file(struct get *g)
{
	char text[128];
	int rc = stat(g->path, &g->st) < 0 ? -errno : 0;
	if (rc == -ENOENT)
		return err_set(&g->err, ERR_NOT_FOUND, "path '%s' does not exist", g->path);
	if (rc < 0)
		return err_http(&g->err, 500, ERR_INTERNAL, "error checking if path exists '%s': stat %s: %s", g->path,
			g->path, files_text(rc, text));
	if (S_ISDIR(g->st.st_mode))
		return err_set(&g->err, ERR_INVALID_ARGUMENT, "path '%s' is a directory", g->path);
	if (!S_ISREG(g->st.st_mode))
		return err_set(&g->err, ERR_INVALID_ARGUMENT, "path '%s' is not a regular file", g->path);
	return 0;
}

static int negotiate(struct get *g)
{
	static const char *const plain_only[] = {"Range", "If-Modified-Since", "If-None-Match", "If-Range"};
	g->coding = files_accept(http_get(g->head, "Accept-Encoding"), &g->only_coded);
	if (g->coding == FILES_NONE)
		return err_http(&g->err, 406, ERR_INVALID_ARGUMENT,
			"error parsing Accept-Encoding: no acceptable encoding found, supported: [gzip]");
	g->negotiated = true;
	for (size_t i = 0; i < sizeof plain_only / sizeof *plain_only; i++) {
		if (!http_get(g->head, plain_only[i]).p)
			continue;
		g->coding = FILES_IDENTITY;
		if (g->only_coded)
			return err_http(&g->err, 406, ERR_INVALID_ARGUMENT,
				"identity encoding not acceptable for Range or conditional request");
	}
	return 0;
}

static int open_file(struct get *g)
{
	char text[128];
	int64_t size = 0;
	g->d = calloc(1, sizeof *g->d);
	if (!g->d)
		return err_sys(&g->err, -ENOMEM, "download");
	g->d->fd = -1;
	int rc = files_open_read(g->path, INT64_MAX, &g->d->fd, &size);
	if (rc < 0)
		return err_http(&g->err, err_errno_status(-rc) >= 503 ? err_errno_status(-rc) : 500, ERR_INTERNAL,
			"error opening file '%s': open %s: %s", g->path, g->path, files_text(rc, text));
	g->d->size = size;
	return fstat(g->d->fd, &g->st) < 0 ? err_sys(&g->err, -errno, "error opening file '%s'", g->path) : 0;
}

static int prepare(struct get *g, const struct envd *envd)
{
	struct err bad;
	if (files_query_parse(&g->query, g->head, &g->err) < 0 ||
		files_authorise(envd, g->head, &g->query, "read", &g->err) < 0 ||
		files_user(envd, g->query.username, &g->user, &g->err) < 0)
		return -1;
	const char *asked = g->query.path ? g->query.path : "";
	g->path = envd_path(envd, &g->user, asked, &bad);
	if (!g->path && bad.code != ERR_INVALID_ARGUMENT) {
		g->err = bad;
		return -1;
	}
	if (!g->path)
		return err_set(
			&g->err, ERR_INVALID_ARGUMENT, "error expanding and resolving path '%s': %s", asked, bad.msg);
	return check_file(g) < 0 || negotiate(g) < 0 || open_file(g) < 0 ? -1 : 0;
}

// --- the answer ---

static void put_time(struct get *g)
{
	char text[64];
	struct tm tm;
	if (g->st.st_mtime <= 0 || !gmtime_r(&g->st.st_mtime, &tm))
		return;
	size_t n = strftime(text, sizeof text, "Last-Modified: %a, %d %b %Y %H:%M:%S GMT\r\n", &tm);
	buf_append(&g->lines, text, n);
}

static int no_memory(struct get *g)
{
	return err_sys(&g->err, -ENOMEM, "answer");
}

// Begins the answer; LENGTH -1: not known.
static int begin(struct get *g, int status, int64_t length, const struct conn_producer *p)
{
	struct buf all;
	if (length >= 0)
		buf_printf(&g->lines, "Content-Length: %lld\r\n", (long long)length);
	const char *lines = buf_cstr(&g->lines);
	buf_init(&all, 0);
	if (lines)
		envd_lines(g->head, lines, &all);
	const char *extra = lines ? buf_cstr(&all) : NULL;
	int rc = extra ? 0 : no_memory(g);
	if (extra) {
		struct conn_answer a = {status, NULL, extra, length, length >= 0};
		if (conn_stream_as(g->conn, &a, p, g->d))
			g->d = NULL; // the conn's now
	}
	buf_release(&all);
	return rc;
}

static int answer_coded(struct get *g)
{
	struct download *d = g->d;
	const char *type = files_type_of_name(g->path);
	size_t before = buf_len(&g->lines);
	if (files_gzip_init(&d->gzip) < 0)
		return no_memory(g);
	d->coded = true;
	enum conn_pull got = CONN_PULL_MORE;
	while (got == CONN_PULL_MORE && d->at < (int64_t)GZIP_TRY && buf_len(&d->ready) <= GZIP_WHOLE)
		got = put_coded(d, &d->ready);
	if (got == CONN_PULL_ABORT)
		return err_sys(&g->err, -EIO, "error reading file '%s'", g->path);
	buf_printf(
		&g->lines, "Content-Encoding: gzip\r\nContent-Type: %s\r\n", type ? type : "application/octet-stream");
	bool whole = got != CONN_PULL_MORE;
	if (whole)
		d->left = 0; // all of it is ready
	int rc = begin(g, 200, whole ? (int64_t)buf_len(&d->ready) : -1, whole ? &plain : &coded);
	if (rc < 0 && !buf_failed(&g->lines))
		buf_truncate(&g->lines, before); // they are not an error's
	return rc;
}

static void several(struct get *g, int64_t *length)
{
	struct download *d = g->d;
	struct buf heads;
	unsigned char r[BOUNDARY / 2] = {0};
	(void)!IO_AGAIN(
		getrandom(r, sizeof r, GRND_NONBLOCK)); // must only not be in the file, and a guess at it gains nothing
	for (size_t i = 0; i < sizeof r; i++) {
		d->boundary[2 * i] = "0123456789abcdef"[r[i] >> 4];
		d->boundary[2 * i + 1] = "0123456789abcdef"[r[i] & 15];
	}
	buf_init(&heads, 0);
	*length = 0;
	for (int i = 0; i < d->count; i++) {
		buf_reset(&heads);
		part_head(d, &d->ranges[i], i == 0, &heads);
		*length += (int64_t)buf_len(&heads) + d->ranges[i].len;
	}
	buf_reset(&heads);
	part_end(d, &heads);
	*length += (int64_t)buf_len(&heads);
	if (buf_failed(&heads))
		*length = -1;
	buf_release(&heads);
	buf_printf(&g->lines, "Content-Type: multipart/byteranges; boundary=%s\r\n", d->boundary);
}

static int answer_plain(struct get *g)
{
	struct download *d = g->d;
	int64_t length = d->size;
	put_time(g);
	if (d->left < 0) {
		buf_printf(&g->lines, "Content-Type: %s\r\n", d->type);
		return begin(g, 200, -1, &plain);
	}
	BUF_LIT(&g->lines, "Accept-Ranges: bytes\r\n");
	if (d->count > 1) {
		d->left = 0; // each part says how much
		several(g, &length);
		return length < 0 ? no_memory(g) : begin(g, 206, length, &plain);
	}
	buf_printf(&g->lines, "Content-Type: %s\r\n", d->type);
	d->left = length;
	if (d->count == 0)
		return begin(g, 200, length, &plain);
	d->at = d->ranges[0].from;
	d->left = d->ranges[0].len;
	buf_printf(&g->lines, "Content-Range: bytes %lld-%lld/%lld\r\n", (long long)d->at,
		(long long)(d->at + d->left - 1), (long long)d->size);
	return begin(g, 206, d->left, &plain);
}

static int wrong_range(struct get *g, int rc)
{
	if (rc == FILES_RANGE_NOMEM)
		return no_memory(g);
	if (rc == FILES_RANGE_OUTSIDE)
		buf_printf(&g->lines, "Content-Range: bytes */%lld\r\n", (long long)g->d->size);
	return err_http(&g->err, 416, ERR_OUT_OF_RANGE, "invalid range%s",
		rc == FILES_RANGE_OUTSIDE ? ": failed to overlap" : "");
}

// Clients name gzip without thinking of what they fetch: an archive or a picture would cost both sides seconds of work for nothing.
static bool worth_coding(const struct get *g)
{
	unsigned char first[GZIP_PIECE];
	if (g->only_coded || g->d->size < GZIP_LARGE)
		return true;
	ssize_t n = io_pread(g->d->fd, first, sizeof first, 0);
	return n <= 0 || files_gzip_gains(first, (size_t)n);
}

static int answer(struct get *g)
{
	struct download *d = g->d;
	unsigned char first[SNIFF];
	files_disposition(&g->lines, g->path);
	if (g->coding == FILES_GZIP && worth_coding(g))
		return answer_coded(g);
	int64_t mtime = g->st.st_mtime > 0 ? g->st.st_mtime : 0;
	int status = files_conditions(g->head, mtime);
	if (status != 200)
		put_time(g);
	if (status == 304) {
		const char *lines = buf_cstr(&g->lines);
		if (!lines)
			return no_memory(g);
		envd_reply(g->conn, status, lines, NULL);
		return 0;
	}
	if (status == 412)
		return err_http(&g->err, 412, ERR_FAILED_PRECONDITION, "precondition failed");
	d->type = files_type_of_name(g->path);
	ssize_t n = io_pread(d->fd, first, sizeof first, 0);
	if (n < 0)
		return err_sys(&g->err, (int)n, "error reading file '%s'", g->path);
	if (!d->type)
		d->type = files_type_of_bytes(first, (size_t)n);
	// Files of /proc have more than they say, those of /sys less.
	bool wrong = d->size == 0 ? n > 0 : n < (d->size < SNIFF ? (ssize_t)d->size : SNIFF);
	d->left = wrong ? -1 : d->size;
	if (d->left >= 0 && files_if_range(g->head, mtime))
		d->count = files_ranges(http_get(g->head, "Range"), d->size, &d->ranges);
	return d->count < 0 ? wrong_range(g, d->count) : answer_plain(g);
}

// What the answer would have said goes with the error if it was about to be given.
static void fail(struct get *g)
{
	const char *lines = buf_cstr(&g->lines);
	envd_error(g->conn, &g->err, lines && *lines ? lines : NULL);
}

void envd_files_get(void *ctx, struct conn *c)
{
	struct get g = {.conn = c, .head = conn_head(c)};
	int rc = prepare(&g, ctx);
	if (g.negotiated)
		BUF_LIT(&g.lines, "Vary: Accept-Encoding\r\n");
	if (rc < 0 || answer(&g) < 0)
		fail(&g);
	download_free(g.d);
	buf_release(&g.lines);
	files_query_release(&g.query);
	user_release(&g.user);
	free(g.path);
}
