// SPDX-License-Identifier: Apache-2.0
#include "daemon/sandboxd/files.h"
#include "proto/text.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

// --- requests ---

static int out_of_memory(struct err *e)
{
	return err_sys(e, -ENOMEM, "path");
}

enum { KEY_ROOM = 32 };

// KEY_b64. (printf was a twentieth of a small request.)
static void put_b64_key(char to[static KEY_ROOM], const char *key)
{
	size_t n = strlen(key);
	assert(n + sizeof "_b64" <= KEY_ROOM);
	memcpy(to, key, n);
	memcpy(to + n, "_b64", sizeof "_b64");
}

// The raw bytes of a path in base64: *ASKED, the caller's.
static int decode_path(const char *key, const char *text, size_t n, char **asked, struct err *e)
{
	struct buf raw;
	buf_init(&raw, 0);
	int rc = text_b64_decode(&raw, text, n);
	size_t len = buf_len(&raw);
	*asked = rc == 0 ? buf_take(&raw, NULL) : NULL;
	buf_release(&raw);
	if (rc == -EINVAL)
		return err_set(e, ERR_INVALID_ARGUMENT, "invalid base64");
	if (!*asked)
		return out_of_memory(e);
	if (strlen(*asked) == len && len > 0)
		return 0;
	free(*asked);
	*asked = NULL;
	return err_set(e, ERR_INVALID_ARGUMENT, len ? "%s must not contain NUL" : "%s required", key);
}

int files_body_path(
	const struct sandboxd *s, const json_t *doc, const char *key, char **path, char **asked, struct err *e)
{
	char b64[KEY_ROOM];
	const char *text;
	size_t n;
	put_b64_key(b64, key);
	int rc = jsonr_str(doc, b64, 0, &text, &n, e);
	if (rc < 0)
		return -1;
	char *given = NULL;
	if (rc > 0 && decode_path(key, text, n, &given, e) < 0)
		return -1;
	if (rc == 0) {
		if (jsonr_str(doc, key, JSONR_REQUIRED, &text, NULL, e) < 0)
			return -1;
		given = strdup(text);
	}
	*path = given ? files_path(s->config->workspace, given) : NULL;
	if (!*path) {
		free(given);
		return out_of_memory(e);
	}
	if (asked)
		*asked = given;
	else
		free(given);
	return 0;
}

static int query_error(struct err *e, const char *key, int rc)
{
	if (rc == -EINVAL)
		return err_set(e, ERR_INVALID_ARGUMENT, "invalid escape or NUL in %s", key);
	return err_sys(e, rc, "%s", key);
}

int files_query(const struct conn *c, const char *key, struct buf *out, struct err *e)
{
	struct http_span q = conn_head(c)->query;
	int rc = text_query_get(out, q.p, q.n, key, 0);
	if (rc >= 0 && !buf_cstr(out))
		rc = -ENOMEM;
	return rc < 0 ? query_error(e, key, rc) : rc;
}

static bool missing(const char *path)
{
	struct stat st;
	return lstat(path, &st) < 0 && (errno == ENOENT || errno == ENOTDIR);
}

// The path as clients before their fix put it: undecoded. NULL if that is the same or does not exist either.
static char *undecoded(const struct sandboxd *s, struct http_span q)
{
	const char *raw;
	size_t n;
	if (text_query_raw(q.p, q.n, "path", &raw, &n) <= 0 || n == 0)
		return NULL;
	char *given = malloc(n + 1);
	if (given) {
		memcpy(given, raw, n);
		given[n] = '\0';
	}
	char *path = given ? files_path(s->config->workspace, given) : NULL;
	free(given);
	if (path && !missing(path))
		return path;
	free(path);
	return NULL;
}

int files_query_path(const struct sandboxd *s, const struct conn *c, char **path, struct err *e)
{
	struct http_span q = conn_head(c)->query;
	struct buf given;
	buf_init(&given, 0);
	int rc = text_query_get(&given, q.p, q.n, "path", TEXT_LENIENT);
	if (rc > 0 && buf_len(&given) == 0)
		rc = 0;
	if (rc > 0) {
		const char *text = buf_cstr(&given);
		*path = text ? files_path(s->config->workspace, text) : NULL;
		rc = *path ? 1 : -ENOMEM;
	}
	buf_release(&given);
	if (rc < 0)
		return query_error(e, "path", rc);
	if (rc > 0 && missing(*path)) {
		char *other = undecoded(s, q);
		if (other) {
			free(*path);
			*path = other;
		}
	}
	return rc;
}

int files_error(struct err *e, int rc, const char *path)
{
	if (rc == -EINVAL)
		return err_sys(e, rc, "%s: not a regular file", path);
	return err_sys(e, rc, "%s", path);
}

int files_owner(const struct sandboxd *s, struct files_owner *owner, struct err *e)
{
	struct user user;
	int rc = users_find(s->users, s->config->user, &user);
	if (rc < 0)
		return err_sys(e, rc, "user %s", s->config->user);
	*owner = (struct files_owner){user.uid, user.gid};
	user_release(&user);
	return 0;
}

// --- answers ---

void files_put_name(struct jsonw *w, const char *key, const char *s, size_t n)
{
	jsonw_key(w, key);
	jsonw_str(w, s, n);
	if (text_utf8_valid(s, n))
		return;
	char b64[KEY_ROOM];
	put_b64_key(b64, key);
	jsonw_key(w, b64);
	jsonw_b64(w, s, n);
}

const char *files_type(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFREG:
		return "file";
	case S_IFDIR:
		return "dir";
	case S_IFLNK:
		return "symlink";
	default:
		return "other";
	}
}

const char *files_mode(char text[static FILES_MODE], mode_t mode)
{
	char *at = text + FILES_MODE - 1;
	*at = '\0';
	for (unsigned m = mode & 07777; m || !*at; m /= 8) // printf was a tenth of a list
		*--at = (char)('0' + m % 8);
	return at;
}

void files_put_owner(struct jsonw *w, const struct stat *st)
{
	char mode[FILES_MODE];
	jsonw_kstr(w, "mode", files_mode(mode, st->st_mode));
	jsonw_kint(w, "uid", st->st_uid);
	jsonw_kint(w, "gid", st->st_gid);
}

void files_put_target(struct jsonw *w, mode_t mode, int at, const char *name)
{
	char *target = NULL;
	if (S_ISLNK(mode) && files_readlink(at, name, &target) < 0)
		target = NULL; // gone meanwhile
	files_put_name(w, "symlink_target", target ? target : "", target ? strlen(target) : 0);
	free(target);
}
