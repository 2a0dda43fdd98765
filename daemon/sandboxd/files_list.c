// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/walk.h"
#include "daemon/io.h"
#include "daemon/sandboxd/files.h"
#include "daemon/sandboxd/work.h"
#include "proto/text.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define STEP_OUT ((size_t)64 * 1024)
#define ENTRY_ROOM ((size_t)256) // for one as JSON without its path
enum { ERRORS_MAX = 1000 };

struct list {
	struct work work; // first
	struct walk *walk;
	struct jsonw json; // into work.out
	bool detailed;     // path or depth was given: directories too, and more about each entry
	unsigned depth;    // 0 = all the way down
	bool has_since;
	long long since;
	struct buf errors; // directories that could not be read, JSON
	struct jsonw errors_json;
	unsigned error_count;
	int fatal; // negative errno: there is no list
};

static char *put_int(char *to, int64_t v)
{
	return v < 0 ? buf_put_u64(BUF_PUT(to, "-"), UINT64_C(0) - (uint64_t)v) : buf_put_u64(to, (uint64_t)v);
}

static char *put_owner(char *to, const struct stat *st)
{
	char mode[FILES_MODE];
	const char *digits = files_mode(mode, st->st_mode);
	to = BUF_PUT(to, ",\"mode\":\"");
	to = buf_put(to, digits, strlen(digits));
	to = buf_put_u64(BUF_PUT(to, "\",\"uid\":"), st->st_uid);
	to = buf_put_u64(BUF_PUT(to, ",\"gid\":"), st->st_gid);
	return BUF_PUT(to, ",\"symlink_target\":\"\"");
}

// As put_entry, for one whose path needs no escapes and that leads nowhere: nearly all. Member by member a list took a quarter longer.
static void put_usual(struct list *l, const struct walk_entry *e, const struct stat *st)
{
	const char *type = files_type(st->st_mode);
	jsonw_raw(&l->json, "", 0); // the comma
	char *start = (char *)buf_reserve(&l->work.out, ENTRY_ROOM + e->path_len);
	if (!start)
		return;
	char *to = BUF_PUT(start, "{\"path\":\"");
	to = buf_put(to, e->path, e->path_len);
	to = put_int(BUF_PUT(to, "\",\"modified\":"), st->st_mtime);
	to = BUF_PUT(to, ",\"type\":\"");
	to = buf_put(to, type, strlen(type));
	to = put_int(BUF_PUT(to, "\",\"size\":"), st->st_size);
	if (l->detailed)
		to = put_owner(to, st);
	to = BUF_PUT(to, "}");
	buf_commit(&l->work.out, (size_t)(to - start));
}

static void put_entry(struct list *l, const struct walk_entry *e)
{
	struct stat st;
	struct jsonw *w = &l->json;
	if (walk_stat(e, &st) < 0 || (l->has_since && st.st_mtime < l->since))
		return;
	if (!S_ISLNK(st.st_mode) && jsonw_plain(e->path, e->path_len)) {
		put_usual(l, e, &st);
		return;
	}
	jsonw_obj(w);
	files_put_name(w, "path", e->path, e->path_len);
	jsonw_kint(w, "modified", st.st_mtime);
	jsonw_kstr(w, "type", files_type(st.st_mode));
	jsonw_kint(w, "size", st.st_size);
	if (l->detailed) {
		files_put_owner(w, &st);
		files_put_target(w, st.st_mode, e->dirfd, e->name);
	}
	jsonw_obj_end(w);
}

// What is below E is not in the list. Without the root, or without memory, there is none.
static void put_error(struct list *l, const struct walk_entry *e, int rc)
{
	if (e->depth == 0 || rc == -ENOMEM) {
		err_sys(&l->work.err, rc, "%s", e->path);
		l->fatal = rc;
	}
	struct jsonw *w = &l->errors_json;
	const char *name = err_errno_name(-rc);
	if (l->error_count++ >= ERRORS_MAX)
		return;
	jsonw_obj(w);
	files_put_name(w, "path", e->path, e->path_len);
	if (name)
		jsonw_kstr(w, "errno", name);
	jsonw_obj_end(w);
}

static void on_entry(struct list *l, const struct walk_entry *e)
{
	bool dir = e->type == DT_DIR;
	if (!dir || l->detailed)
		put_entry(l, e);
	if (!dir || (l->depth && e->depth >= l->depth))
		return;
	int rc = walk_enter(l->walk);
	// A mount point is listed but not entered; the others are no directories any more.
	if (rc < 0 && rc != -EXDEV && rc != -ENOENT && rc != -ENOTDIR && rc != -ELOOP)
		put_error(l, e, rc);
}

static enum work_state put_end(struct list *l)
{
	jsonw_arr_end(&l->json);
	if (l->error_count) {
		jsonw_arr_end(&l->errors_json);
		jsonw_key(&l->json, "errors");
		jsonw_raw(&l->json, buf_data(&l->errors), buf_len(&l->errors));
	}
	jsonw_obj_end(&l->json);
	int rc = buf_failed(&l->errors);
	if (rc == 0)
		return WORK_DONE;
	err_sys(&l->work.err, rc, "list");
	return WORK_FAILED;
}

static enum work_state list_step(struct work *w, int64_t until)
{
	struct list *l = (struct list *)w;
	struct walk_entry e;
	size_t start = buf_len(&w->out);
	do {
		switch (walk_next(l->walk, &e)) {
		case WALK_ENTRY:
			on_entry(l, &e);
			break;
		case WALK_LEAVE:
			break;
		case WALK_ERROR:
			put_error(l, &e, e.err);
			break;
		case WALK_DONE:
			return put_end(l);
		}
	} while (!l->fatal && buf_len(&w->out) - start < STEP_OUT && io_mono_ns() < until);
	return l->fatal ? WORK_FAILED : WORK_MORE;
}

static void list_free(struct work *w)
{
	struct list *l = (struct list *)w;
	walk_free(l->walk);
	buf_release(&l->errors);
	free(l);
}

static const struct work_ops list_ops = {.step = list_step, .free = list_free};

static int query_number(
	const struct conn *c, const char *key, long long min, long long max, long long *v, struct err *e)
{
	struct buf text;
	buf_init(&text, 0);
	int rc = files_query(c, key, &text, e);
	if (rc > 0 && text_int((const char *)buf_data(&text), buf_len(&text), min, max, v) < 0)
		rc = err_set(e, ERR_INVALID_ARGUMENT, "%s must be an integer from %lld to %lld", key, min, max);
	buf_release(&text);
	return rc;
}

static int open_walk(struct list *l, const char *path, struct err *e)
{
	struct stat st;
	int fd = walk_open_root(path);
	int rc = fd < 0 ? fd : walk_new(&l->walk, fd, path);
	if (rc == 0)
		return 0;
	err_sys(e, rc, "%s", path);
	if (rc == -ENOTDIR && stat(path, &st) == 0) { // it is there, but no directory
		e->code = ERR_INVALID_ARGUMENT;
		e->status = 400;
	}
	return -1;
}

static int list_open(struct list *l, const struct sandboxd *s, const struct conn *c, struct err *e)
{
	long long depth = 1;
	char *path = NULL;
	int has_depth = query_number(c, "depth", 1, INT_MAX, &depth, e);
	int has_since = query_number(c, "since", LLONG_MIN, LLONG_MAX, &l->since, e);
	if (has_depth < 0 || has_since < 0)
		return -1;
	int has_path = files_query_path(s, c, &path, e);
	if (has_path < 0)
		return -1;
	l->has_since = has_since > 0;
	l->detailed = has_path || has_depth;
	l->depth = l->detailed ? (unsigned)depth : 0;
	if (!path && !(path = strdup(s->config->workspace)))
		return err_sys(e, -ENOMEM, "path");
	size_t n = strlen(path);
	while (n > 1 && path[n - 1] == '/')
		path[--n] = '\0';
	int rc = open_walk(l, path, e);
	free(path);
	return rc;
}

void sandboxd_files_list(void *ctx, struct conn *c)
{
	const struct sandboxd *s = ctx;
	struct err e;
	struct list *l = calloc(1, sizeof *l);
	if (!l)
		err_sys(&e, -ENOMEM, "list");
	if (!l || list_open(l, s, c, &e) < 0) {
		conn_error(c, &e);
		free(l);
		return;
	}
	jsonw_init(&l->json, &l->work.out);
	jsonw_init(&l->errors_json, &l->errors);
	jsonw_arr(&l->errors_json);
	jsonw_obj(&l->json);
	jsonw_key(&l->json, "files");
	jsonw_arr(&l->json);
	work_start(&l->work, s->slices, c, &list_ops);
}
