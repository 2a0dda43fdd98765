// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/files.h"

#include "proto/json.h"
#include "proto/sign.h"
#include "proto/text.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// --- the query ---

// The parameter NAME, decoded, in *OUT, which stays NULL if there is none.
static int parameter(struct http_span query, const char *name, char **out, struct err *e)
{
	const char *p, *again;
	size_t n, m;
	struct buf text;
	if (!text_query_raw(query.p, query.n, name, &p, &n))
		return 0;
	if (text_query_raw(p + n, (size_t)(query.p + query.n - p) - n, name, &again, &m))
		return err_set(e, ERR_INVALID_ARGUMENT,
			"Invalid format for parameter %s: multiple values for single value parameter '%s'", name, name);
	buf_init(&text, 0);
	int rc = text_percent_decode(&text, p, n, TEXT_PLUS_IS_SPACE);
	if (rc == 0 && !(*out = buf_take(&text, NULL)) && !(*out = strdup("")))
		rc = -ENOMEM;
	buf_release(&text);
	if (rc == -EINVAL)
		return err_set(e, ERR_INVALID_ARGUMENT, "Invalid format for parameter %s: invalid URL escape", name);
	return rc < 0 ? err_sys(e, rc, "query") : 0;
}

static int expiration(struct files_query *q, struct http_span query, struct err *e)
{
	static const char name[] = "signature_expiration";
	char *text = NULL;
	long long v;
	if (parameter(query, name, &text, e) < 0)
		return -1;
	if (!text)
		return 0;
	int rc = text_int(text, strlen(text), LLONG_MIN, LLONG_MAX, &v);
	if (rc < 0)
		err_set(e, ERR_INVALID_ARGUMENT,
			"Invalid format for parameter %s: error binding string parameter: strconv.ParseInt: parsing "
			"\"%s\": %s",
			name, text, rc == -ERANGE ? "value out of range" : "invalid syntax");
	free(text);
	q->has_expiration = rc == 0;
	q->expiration = rc == 0 ? v : 0;
	return rc < 0 ? -1 : 0;
}

int files_query_parse(struct files_query *q, const struct http_head *head, struct err *e)
{
	struct http_span query = head->query;
	*q = (struct files_query){.path = NULL};
	if (query.n == 0)
		return 0;
	if (parameter(query, "path", &q->path, e) < 0 || parameter(query, "username", &q->username, e) < 0 ||
		parameter(query, "signature", &q->signature, e) < 0)
		return -1;
	return expiration(q, query, e);
}

void files_query_release(struct files_query *q)
{
	free(q->path);
	free(q->username);
	free(q->signature);
	*q = (struct files_query){.path = NULL};
}

// --- who may ---

static int refuse(struct err *e, const char *why)
{
	return err_set(e, ERR_UNAUTHENTICATED, "%s", why);
}

int files_authorise(const struct envd *envd, const struct http_head *head, const struct files_query *q,
	const char *operation, struct err *e)
{
	const char *token = envd_token(envd);
	struct http_span given = http_get(head, "X-Access-Token");
	if (!token)
		return 0;
	if (given.n > 0) {
		if (text_equal_ct(given.p, given.n, token, strlen(token)))
			return 0;
		return refuse(e, "access token present in header but does not match");
	}
	if (!q->signature)
		return refuse(e, "missing signature query parameter");
	struct sign_url url = {
		.path = q->path ? q->path : "",
		.path_n = q->path ? strlen(q->path) : 0,
		.operation = operation,
		.user = q->username ? q->username : "",
		.user_n = q->username ? strlen(q->username) : 0,
		.expires = q->has_expiration,
		.expiration = q->expiration,
	};
	int rc = sign_check(&url, token, strlen(token), q->signature, strlen(q->signature));
	if (rc <= 0)
		return rc < 0 ? err_sys(e, rc, "signature") : refuse(e, "invalid signature");
	if (q->has_expiration && q->expiration < time(NULL))
		return refuse(e, "signature is already expired");
	return 0;
}

int files_user(const struct envd *envd, const char *name, struct user *out, struct err *e)
{
	int rc = envd_user(envd, name, name ? strlen(name) : 0, out);
	const char *shown = name ? name : envd_default_user(envd);
	if (rc == -ENOENT)
		return err_set(
			e, ERR_UNAUTHENTICATED, "error looking up user '%s': user: unknown user %s", shown, shown);
	return rc < 0 ? err_sys(e, rc, "error looking up user '%s'", shown) : 0;
}

// --- texts ---

const char *files_text(int rc, char text[128])
{
	(void)snprintf(text, 128, "%s", strerror(-rc));
	if (isupper((unsigned char)text[0]) && !isupper((unsigned char)text[1]))
		text[0] = (char)tolower((unsigned char)text[0]);
	return text;
}

const char *files_base(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

void files_put_json(struct buf *out, const char *s)
{
	struct jsonw w;
	size_t from = buf_len(out);
	jsonw_init(&w, out);
	jsonw_cstr(&w, s);
	envd_escape(out, from);
}
