// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/remote.h"
#include "daemon/ctl/ctl_priv.h"
#include "proto/text.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINKS_MAX 16
#define RUN_S 60

static void put_path(struct jsonw *w, const char *key, const char *path)
{
	jsonw_key(w, key);
	jsonw_b64(w, path, strlen(path));
}

// One object with PATH under KEY, and perhaps another.
static int call(struct http_client *c, const char *route, const char *key, const char *path, const char *key2,
	const char *path2, struct err *e)
{
	struct buf body;
	struct jsonw w;
	buf_init(&body, 0);
	jsonw_init(&w, &body);
	jsonw_obj(&w);
	put_path(&w, key, path);
	if (key2)
		put_path(&w, key2, path2);
	jsonw_obj_end(&w);
	json_t *doc = http_client_call(c, "POST", route, &body, e);
	buf_release(&body);
	jsonr_free(doc);
	return doc ? 0 : -1;
}

json_t *remote_stat(const struct ctl *ctl, const char *path, struct buf *text, struct err *e)
{
	struct buf body;
	struct jsonw w;
	buf_init(&body, 0);
	jsonw_init(&w, &body);
	jsonw_obj(&w);
	put_path(&w, "path_b64", path);
	jsonw_obj_end(&w);
	json_t *doc = ctl_call(ctl, "POST", "/files/stat", &body, text, e);
	buf_release(&body);
	return doc;
}

int remote_append(struct http_client *c, const char *path, const void *p, size_t n, bool first, struct err *e)
{
	struct buf body;
	struct jsonw w;
	buf_init(&body, 0);
	jsonw_init(&w, &body);
	jsonw_obj(&w);
	put_path(&w, "path_b64", path);
	jsonw_kstr(&w, "mode", first ? "w" : "a");
	jsonw_kstr(&w, "encoding", "base64");
	jsonw_key(&w, "content");
	jsonw_b64(&w, p, n);
	jsonw_obj_end(&w);
	json_t *doc = http_client_call(c, "POST", "/files/write", &body, e);
	buf_release(&body);
	jsonr_free(doc);
	return doc ? 0 : -1;
}

int remote_move(struct http_client *c, const char *from, const char *to, struct err *e)
{
	return call(c, "/files/move", "source_b64", from, "destination_b64", to, e);
}

int remote_remove(struct http_client *c, const char *path, struct err *e)
{
	return call(c, "/files/remove", "path_b64", path, NULL, NULL, e);
}

int remote_run(struct http_client *c, const char *command, struct err *e)
{
	struct buf body;
	struct jsonw w;
	buf_init(&body, 0);
	jsonw_init(&w, &body);
	jsonw_obj(&w);
	jsonw_kstr(&w, "command", command);
	jsonw_kint(&w, "timeout", RUN_S);
	jsonw_obj_end(&w);
	json_t *doc = http_client_call(c, "POST", "/exec", &body, e);
	buf_release(&body);
	if (!doc)
		return -1;
	int rc = 0;
	const char *text = json_string_value(json_object_get(doc, "stderr"));
	if (json_integer_value(json_object_get(doc, "exit_code")) != 0)
		rc = err_set(e, ERR_INTERNAL, "in the sandbox: %s", text && *text ? text : command);
	jsonr_free(doc);
	return rc;
}

// --- links ---

// Where the link at PATH leads, the caller's; NULL when out of memory.
static char *follow(const char *path, const json_t *o)
{
	struct buf target, full;
	const json_t *raw = json_object_get(o, "symlink_target_b64"), *plain = json_object_get(o, "symlink_target");
	const char *slash = strrchr(path, '/');
	buf_init(&target, 0);
	buf_init(&full, 0);
	if (json_is_string(raw))
		(void)text_b64_decode(&target, json_string_value(raw), json_string_length(raw));
	else if (json_is_string(plain))
		buf_append(&target, json_string_value(plain), json_string_length(plain));
	if (buf_len(&target) > 0 && *buf_data(&target) != '/' && slash)
		buf_append(&full, path, (size_t)(slash - path) + 1);
	buf_append(&full, buf_data(&target), buf_len(&target));
	if (buf_failed(&target))
		full.fail = buf_failed(&target);
	buf_release(&target);
	return buf_take(&full, NULL);
}

static void fill(struct remote_entry *entry, const json_t *o)
{
	const char *type = json_string_value(json_object_get(o, "type"));
	const char *mode = json_string_value(json_object_get(o, "mode"));
	entry->type = !type                       ? REMOTE_OTHER
		      : strcmp(type, "file") == 0 ? REMOTE_FILE
		      : strcmp(type, "dir") == 0  ? REMOTE_DIR
						  : REMOTE_OTHER;
	entry->mode = mode ? (unsigned)strtoul(mode, NULL, 8) : 0;
	entry->size = json_integer_value(json_object_get(o, "size"));
}

int remote_look(const struct ctl *ctl, const char *path, struct remote_entry *entry, struct err *e)
{
	*entry = (struct remote_entry){.type = REMOTE_MISSING, .path = strdup(path)};
	for (int links = 0; entry->path && links < LINKS_MAX; links++) {
		json_t *o = remote_stat(ctl, entry->path, NULL, e);
		if (!o && e->status == 404)
			return 0;
		if (!o)
			return -1;
		const char *type = json_string_value(json_object_get(o, "type"));
		if (!type || strcmp(type, "symlink") != 0) {
			fill(entry, o);
			jsonr_free(o);
			return 0;
		}
		char *next = follow(entry->path, o);
		jsonr_free(o);
		free(entry->path);
		entry->path = next;
	}
	return err_sys(e, entry->path ? -ELOOP : -ENOMEM, "%s", path);
}
