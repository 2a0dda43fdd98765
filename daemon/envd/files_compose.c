// SPDX-License-Identifier: Apache-2.0
// POST /files/compose: files put together into one, in slices; then they are removed. The destination is old or new, never a mix.
#include "daemon/envd/files.h"
#include "daemon/io.h"
#include "proto/json.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE ((size_t)128 * 1024)
enum { SOURCES_MAX = 10000 };

struct source {
	const char *given; // of the document
	char *path;
	struct stat st; // of what was read
};

struct compose {
	struct slice_job job; // first
	const struct envd *envd;
	struct conn *conn;
	json_t *doc;
	struct user user;
	struct source *sources;
	size_t count, at;
	int fd; // of the current one, -1 between them
	struct files_put put;
	char *piece;
	struct err err;
};

static void compose_free(struct compose *m)
{
	slice_stop(&m->job);
	io_close(&m->fd);
	files_put_release(&m->put);
	for (size_t i = 0; i < m->count; i++)
		free(m->sources[i].path);
	free(m->sources);
	free(m->piece);
	user_release(&m->user);
	jsonr_free(m->doc);
	free(m);
}

// --- the work ---

static int open_source(struct compose *m, struct source *s)
{
	char text[128];
	int64_t size;
	int rc = files_open_read(s->path, INT64_MAX, &m->fd, &size);
	if (rc == 0 && fstat(m->fd, &s->st) < 0)
		rc = -errno;
	return rc < 0 ? err_http(&m->err, rc == -ENOENT ? 404 : 500, ERR_INTERNAL,
				"error opening source file: open %s: %s", s->path, files_text(rc, text))
		      : 0;
}

static int copy_some(struct compose *m)
{
	char text[128];
	if (m->fd < 0 && open_source(m, &m->sources[m->at]) < 0)
		return -1;
	ssize_t n = io_read(m->fd, m->piece, PIECE);
	if (n < 0)
		return err_http(&m->err, 500, ERR_INTERNAL, "error reading source file: %s", files_text((int)n, text));
	if (n > 0)
		return files_put_feed(&m->put, m->piece, (size_t)n, &m->err);
	io_close(&m->fd);
	m->at++;
	return 0;
}

static int finish(struct compose *m)
{
	static const struct files_meta none = {.count = 0};
	if (files_meta_store(&none, m->put.path, &m->err) < 0)
		return -1;
	for (size_t i = 0; i < m->count; i++)
		(void)files_unlink_known(m->sources[i].path, &m->sources[i].st);
	return 0;
}

// 1 goes on, 0 done, -1 with err filled.
static int step(struct compose *m)
{
	if (m->at < m->count)
		return copy_some(m) < 0 ? -1 : 1;
	int rc = files_put_commit(&m->put, &m->err);
	return rc != 0 ? rc : finish(m);
}

static void answer(struct compose *m)
{
	struct buf out;
	buf_init(&out, 0);
	BUF_LIT(&out, "{\"name\":");
	files_put_json(&out, files_base(m->put.path));
	BUF_LIT(&out, ",\"path\":");
	files_put_json(&out, m->put.path);
	BUF_LIT(&out, ",\"type\":\"file\"}\n");
	envd_reply(m->conn, 200, "Content-Type: application/json\r\n", &out);
	buf_release(&out);
	compose_free(m);
}

static void fail(struct compose *m)
{
	struct conn *c = m->conn;
	struct err e = m->err;
	compose_free(m); // first: whoever reads the answer finds nothing half written
	envd_error(c, &e, NULL);
}

static void on_step(struct slice_job *job)
{
	struct compose *m = (struct compose *)job;
	int64_t until = slice_until();
	int rc;
	do
		rc = step(m);
	while (rc > 0 && io_mono_ns() < until);
	if (rc == 0)
		answer(m);
	else if (rc < 0)
		fail(m);
}

static void on_drop(struct slice_job *job)
{
	compose_free((struct compose *)job);
}

static void on_gone(void *arg)
{
	compose_free(arg);
}

// --- the request ---

static int bad_request(struct compose *m, const char *why)
{
	return err_set(&m->err, ERR_INVALID_ARGUMENT, "invalid request body: %s", why);
}

static int resolve(struct compose *m, const char *given, char **path)
{
	struct err bad;
	*path = envd_path(m->envd, &m->user, given, &bad);
	if (*path)
		return 0;
	if (bad.code != ERR_INVALID_ARGUMENT) {
		m->err = bad;
		return -1;
	}
	return err_set(&m->err, ERR_INVALID_ARGUMENT, "error resolving path: %s", bad.msg);
}

// Also another name of the destination must not be a source, or it would be removed in the end.
static int check_source(struct compose *m, struct source *s, const char *destination)
{
	struct stat st, dst;
	if (resolve(m, s->given, &s->path) < 0)
		return -1;
	bool same = strcmp(s->path, destination) == 0;
	if (!same && stat(s->path, &st) < 0)
		return err_set(&m->err, ERR_NOT_FOUND, "source file not found: %s", s->given);
	if (!same && !S_ISREG(st.st_mode))
		return err_set(&m->err, ERR_INVALID_ARGUMENT, "source path is not a regular file: %s", s->given);
	if (!same && stat(destination, &dst) == 0)
		same = st.st_dev == dst.st_dev && st.st_ino == dst.st_ino;
	if (same)
		return err_set(&m->err, ERR_INVALID_ARGUMENT, "source path \"%s\" cannot be the same as destination",
			s->given);
	return 0;
}

static int sources(struct compose *m, const json_t *list)
{
	size_t n = json_array_size(list);
	if (n > SOURCES_MAX)
		return err_http(&m->err, 413, ERR_RESOURCE_EXHAUSTED, "more than %d source_paths", SOURCES_MAX);
	m->sources = calloc(n, sizeof *m->sources);
	if (!m->sources)
		return err_sys(&m->err, -ENOMEM, "compose");
	for (m->count = 0; m->count < n; m->count++) {
		const json_t *s = json_array_get(list, m->count);
		m->sources[m->count].given = json_string_value(s);
		if (!json_is_string(s) || strlen(json_string_value(s)) != json_string_length(s))
			return bad_request(m, "source_paths must be strings");
	}
	return 0;
}

static int parse(struct compose *m, const char **destination, const char **username)
{
	const struct buf *body = conn_body(m->conn);
	struct err bad;
	m->doc = jsonr_parse(buf_data(body), buf_len(body), &bad);
	if (!m->doc && bad.code == ERR_INVALID_ARGUMENT)
		return bad_request(m, bad.msg);
	if (!m->doc) {
		m->err = bad;
		return -1;
	}
	const json_t *list = json_object_get(m->doc, "source_paths");
	if (list && !json_is_array(list) && !json_is_null(list))
		return bad_request(m, "source_paths must be an array");
	if (jsonr_str(m->doc, "destination", 0, destination, NULL, &bad) < 0 ||
		jsonr_str(m->doc, "username", 0, username, NULL, &bad) < 0)
		return bad_request(m, bad.msg);
	if (json_array_size(list) == 0)
		return err_set(&m->err, ERR_INVALID_ARGUMENT, "source_paths must not be empty");
	if (!*destination || !**destination)
		return err_set(&m->err, ERR_INVALID_ARGUMENT, "destination is required");
	return sources(m, list);
}

static int prepare(struct compose *m)
{
	const char *destination = NULL, *username = NULL;
	char *path;
	if (parse(m, &destination, &username) < 0 || files_user(m->envd, username, &m->user, &m->err) < 0 ||
		resolve(m, destination, &path) < 0)
		return -1;
	int rc = 0;
	for (size_t i = 0; i < m->count && rc == 0; i++)
		rc = check_source(m, &m->sources[i], path);
	if (rc == 0 && !(m->piece = malloc(PIECE)))
		rc = err_sys(&m->err, -ENOMEM, "compose");
	if (rc < 0) {
		free(path);
		return -1;
	}
	return files_put_open(&m->put, path, -1, &m->user, &m->err);
}

void envd_files_compose(void *ctx, struct conn *c)
{
	const struct envd *envd = ctx;
	struct compose *m = calloc(1, sizeof *m);
	if (!m) {
		struct err e;
		err_sys(&e, -ENOMEM, "compose");
		envd_error(c, &e, NULL);
		return;
	}
	m->job.step = on_step;
	m->job.drop = on_drop;
	m->envd = envd;
	m->conn = c;
	m->fd = -1;
	m->put.announced = -1;
	if (prepare(m) < 0) {
		fail(m);
		return;
	}
	conn_on_close(c, on_gone, m);
	slice_start(envd->slices, &m->job);
}
