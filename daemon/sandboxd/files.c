// SPDX-License-Identifier: Apache-2.0
// The handlers of /files that work at once, or whose work is all in the core.
#include "daemon/sandboxd/files.h"

#include "daemon/core/walk.h"
#include "daemon/sandboxd/work.h"
#include "proto/text.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

// --- stat ---

static int stat_reply(const struct sandboxd *s, const json_t *doc, struct buf *out, struct err *e)
{
	char *path, *asked;
	if (files_body_path(s, doc, "path", &path, &asked, e) < 0)
		return -1;
	struct stat st;
	int rc = lstat(path, &st) < 0 ? err_sys(e, -errno, "%s", asked) : 0;
	if (rc == 0) {
		struct jsonw w;
		jsonw_init(&w, out);
		jsonw_obj(&w);
		jsonw_kstr(&w, "type", files_type(st.st_mode));
		jsonw_kint(&w, "size", st.st_size);
		files_put_owner(&w, &st);
		jsonw_kint(&w, "mtime", st.st_mtime);
		files_put_name(&w, "name", asked, strlen(asked));
		files_put_target(&w, st.st_mode, AT_FDCWD, path);
		jsonw_obj_end(&w);
	}
	free(path);
	free(asked);
	return rc;
}

void sandboxd_files_stat(void *ctx, struct conn *c)
{
	struct err e;
	struct buf out;
	buf_init(&out, 0);
	json_t *doc = sandboxd_json(c, &e);
	if (!doc || stat_reply(ctx, doc, &out, &e) < 0)
		conn_error(c, &e);
	else
		sandboxd_reply(c, &out);
	jsonr_free(doc);
}

// --- mkdir ---

static int make(const struct sandboxd *s, const json_t *doc, struct err *e)
{
	char *path;
	bool parents = true;
	struct files_owner owner;
	if (workspace_admit(s->workspace, e) < 0 || jsonr_bool(doc, "parents", 0, &parents, e) < 0 ||
		files_owner(s, &owner, e) < 0 || files_body_path(s, doc, "path", &path, NULL, e) < 0)
		return -1;
	int rc = files_mkdir(path, parents, &owner);
	if (rc == -EEXIST) {
		err_set(e, ERR_ALREADY_EXISTS, "already exists"); // clients look for these words
		e->sys = EEXIST;
	} else if (rc < 0) {
		err_sys(e, rc, "%s", path);
	}
	free(path);
	return rc < 0 ? -1 : 0;
}

void sandboxd_files_mkdir(void *ctx, struct conn *c)
{
	struct err e;
	json_t *doc = sandboxd_json(c, &e);
	if (!doc || make(ctx, doc, &e) < 0)
		conn_error(c, &e);
	else
		sandboxd_ok(c);
	jsonr_free(doc);
}

// --- move and remove ---

static bool same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

// True if PATH is the workspace or a directory above it: /workspace/reset is what empties it.
static bool holds_workspace(const struct sandboxd *s, const char *path)
{
	struct stat target, st;
	char *dir = realpath(s->config->workspace, NULL);
	if (!dir || lstat(path, &target) < 0) {
		free(dir);
		return false;
	}
	bool found = stat("/", &st) == 0 && same_file(&st, &target);
	for (size_t i = 1; dir[0] && dir[i - 1] && !found; i++) {
		char at = dir[i];
		if (at && at != '/')
			continue;
		dir[i] = '\0';
		found = stat(dir, &st) == 0 && same_file(&st, &target);
		dir[i] = at;
	}
	free(dir);
	return found;
}

static int guard(const struct sandboxd *s, const char *path, const char *verb, struct err *e)
{
	if (!holds_workspace(s, path))
		return 0;
	return err_set(e, ERR_INVALID_ARGUMENT, "refusing to %s the workspace", verb);
}

struct change {
	struct work work; // first
	struct files_move *move;
	struct walk_remove *remove;
	bool gently;
};

static void change_free(struct work *w)
{
	struct change *c = (struct change *)w;
	files_move_free(c->move);
	walk_remove_free(c->remove);
	free(c);
}

// One step: 1, there is more; 0; or negative errno, and WHERE.
static int change_on(struct change *c, int64_t until, const char **where)
{
	int rc;
	if (c->move) {
		rc = files_move_step(c->move, until);
		*where = files_move_where(c->move);
		slice_await(&c->work.job, files_move_fd(c->move));
	} else {
		rc = walk_remove_step(c->remove, until) ? 1 : walk_remove_error(c->remove, where);
		slice_await(&c->work.job, walk_remove_fd(c->remove));
	}
	return rc;
}

// What the kernel does for each entry would hold up the loop.
static bool change_gently(struct slice_job *job)
{
	const char *where;
	return change_on((struct change *)job, slice_until(), &where) > 0;
}

static enum work_state change_step(struct work *w, int64_t until)
{
	struct change *c = (struct change *)w;
	const char *where = NULL;
	if (c->move && !c->gently) {
		c->gently = true;
		slice_gently(&w->job, change_gently);
		return WORK_MORE;
	}
	int rc = change_on(c, until, &where);
	if (rc > 0 && c->remove && walk_remove_is_long(c->remove))
		slice_gently(&w->job, change_gently);
	if (rc > 0)
		return WORK_MORE;
	if (rc < 0) {
		err_sys(&w->err, rc, "%s", where);
		return WORK_FAILED;
	}
	BUF_LIT(&w->out, "{\"ok\":true}");
	return WORK_DONE;
}

static const struct work_ops change_ops = {.step = change_step, .free = change_free, .keep_on = true};

static int start_remove(const struct sandboxd *s, const json_t *doc, struct change *ch, struct err *e)
{
	char *path;
	if (files_body_path(s, doc, "path", &path, NULL, e) < 0)
		return -1;
	int rc = guard(s, path, "remove", e);
	int sys = rc == 0 ? walk_remove_new(&ch->remove, path, 0) : 0;
	if (sys < 0)
		rc = err_sys(e, sys, "%s", path);
	free(path);
	return rc;
}

static bool has_path(const json_t *doc, const char *key, const char *b64)
{
	const json_t *plain = json_object_get(doc, key), *other = json_object_get(doc, b64);
	return (plain && !json_is_null(plain)) || (other && !json_is_null(other));
}

static int move_paths(const struct sandboxd *s, const json_t *doc, char **from, char **to, struct err *e)
{
	if (!has_path(doc, "source", "source_b64") || !has_path(doc, "destination", "destination_b64"))
		return err_set(e, ERR_INVALID_ARGUMENT, "source and destination required");
	if (files_body_path(s, doc, "source", from, NULL, e) < 0)
		return -1;
	if (files_body_path(s, doc, "destination", to, NULL, e) == 0)
		return 0;
	free(*from);
	return -1;
}

static int start_move(const struct sandboxd *s, const json_t *doc, struct change *ch, struct err *e)
{
	char *from, *to;
	if (move_paths(s, doc, &from, &to, e) < 0)
		return -1;
	int rc = guard(s, from, "move", e);
	int sys = rc == 0 ? files_move_new(&ch->move, from, to) : 0;
	if (sys < 0)
		rc = err_sys(e, sys, "%s", from);
	free(from);
	free(to);
	return rc;
}

static void change(const struct sandboxd *s, struct conn *c,
	int (*start)(const struct sandboxd *s, const json_t *doc, struct change *ch, struct err *e))
{
	struct err e;
	json_t *doc = sandboxd_json(c, &e);
	struct change *ch = calloc(1, sizeof *ch);
	if (doc && !ch)
		err_sys(&e, -ENOMEM, "request");
	if (!doc || !ch || workspace_admit(s->workspace, &e) < 0 || start(s, doc, ch, &e) < 0) {
		conn_error(c, &e);
		free(ch);
	} else if (ch->move || ch->remove) {
		work_start(&ch->work, s->slices, c, &change_ops);
	} else {
		sandboxd_ok(c);
		free(ch);
	}
	jsonr_free(doc);
}

void sandboxd_files_remove(void *ctx, struct conn *c)
{
	change(ctx, c, start_remove);
}

void sandboxd_files_move(void *ctx, struct conn *c)
{
	change(ctx, c, start_move);
}
