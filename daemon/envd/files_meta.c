// SPDX-License-Identifier: Apache-2.0
// Metadata: X-Metadata-* headers and the extended attributes that they become (contract B 5.6).
#include "daemon/envd/files.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/xattr.h>

#define HEADER "X-Metadata-"
#define ATTRIBUTE "user.e2b."
enum { KEY_MAX = 246, HEADER_LEN = sizeof HEADER - 1, ATTRIBUTE_LEN = sizeof ATTRIBUTE - 1 };
_Static_assert(ATTRIBUTE_LEN + KEY_MAX <= XATTR_NAME_MAX, "the longest key has a name");

// --- headers ---

static bool known(const struct files_meta *m, const char *key)
{
	for (size_t i = 0; i < m->count; i++)
		if (strcmp(m->keys[i], key) == 0)
			return true;
	return false;
}

// The offset of the first byte that is not printable ASCII, or -1.
static int unprintable(const char *s)
{
	for (int i = 0; s[i]; i++)
		if ((unsigned char)s[i] < 0x20 || (unsigned char)s[i] > 0x7e)
			return i;
	return -1;
}

static int check(const char *key, const char *value, struct err *e)
{
	int at = unprintable(value);
	if (strlen(key) > KEY_MAX)
		return err_set(e, ERR_INVALID_ARGUMENT, "invalid metadata: metadata key \"%s\" exceeds %d bytes", key,
			KEY_MAX);
	if (unprintable(key) >= 0)
		return err_set(e, ERR_INVALID_ARGUMENT, "invalid metadata: metadata key is not printable ASCII");
	if (at >= 0)
		return err_set(e, ERR_INVALID_ARGUMENT,
			"invalid metadata: metadata value for key \"%s\" contains non-printable-ASCII byte 0x%02x at "
			"offset %d",
			key, (unsigned char)value[at], at);
	return 0;
}

static char *copy(const char *p, size_t n)
{
	char *s = malloc(n + 1);
	if (!s)
		return NULL;
	memcpy(s, p, n);
	s[n] = '\0';
	return s;
}

// Keeps one header, unless its key is there. *SUM: bytes so far.
static int keep(struct files_meta *m, const struct http_header *h, size_t *sum, struct err *e)
{
	char *key = copy(h->name.p + HEADER_LEN, h->name.n - HEADER_LEN);
	char *value = copy(h->value.p, h->value.n);
	int rc = key && value ? 0 : err_sys(e, -ENOMEM, "metadata");
	for (char *p = key; p && *p; p++)
		*p = (char)tolower((unsigned char)*p);
	if (rc == 0 && *key && !known(m, key)) {
		rc = check(key, value, e);
		*sum += ATTRIBUTE_LEN + strlen(key) + strlen(value);
		// What is beyond is only counted, for the message.
		if (rc == 0 && *sum <= FILES_META_MAX) {
			m->keys[m->count] = key;
			m->values[m->count++] = value;
			return 0;
		}
	}
	free(key);
	free(value);
	return rc;
}

int files_meta_parse(struct files_meta *m, const struct http_head *head, struct err *e)
{
	size_t sum = 0;
	m->count = 0;
	for (size_t i = 0; i < head->header_count; i++) {
		const struct http_header *h = &head->headers[i];
		if (h->name.n <= HEADER_LEN || strncasecmp(h->name.p, HEADER, HEADER_LEN) != 0)
			continue;
		if (keep(m, h, &sum, e) < 0)
			return -1;
	}
	if (sum > FILES_META_MAX)
		return err_set(e, ERR_INVALID_ARGUMENT, "invalid metadata: total metadata size %zu exceeds %d bytes",
			sum, FILES_META_MAX);
	return 0;
}

void files_meta_release(struct files_meta *m)
{
	for (size_t i = 0; i < m->count; i++) {
		free(m->keys[i]);
		free(m->values[i]);
	}
	m->count = 0;
}

// --- attributes ---

// The names of PATH's attributes, *N bytes, each with its NUL; the caller's. 0 or negative errno.
static int list(const char *path, char **names, size_t *n)
{
	*names = NULL;
	*n = 0;
	ssize_t len = listxattr(path, NULL, 0);
	if (len <= 0)
		return len < 0 ? -errno : 0;
	// With room for what comes meanwhile.
	size_t room = (size_t)len + 1024;
	*names = malloc(room);
	if (!*names)
		return -ENOMEM;
	len = listxattr(path, *names, room);
	*n = len > 0 ? (size_t)len : 0;
	return len < 0 ? -errno : 0;
}

static bool is_meta(const char *name)
{
	return strncmp(name, ATTRIBUTE, ATTRIBUTE_LEN) == 0;
}

static int unset_others(const struct files_meta *m, const char *path)
{
	char *names;
	size_t n;
	int rc = list(path, &names, &n);
	for (const char *p = names; rc == 0 && n > 0 && p < names + n; p += strlen(p) + 1)
		if (is_meta(p) && !known(m, p + ATTRIBUTE_LEN) && removexattr(path, p) < 0 && errno != ENODATA)
			rc = -errno;
	free(names);
	return rc;
}

// Nothing is written that is there already: each change is an event for those who watch.
static int set(const char *path, const char *key, const char *value)
{
	char name[ATTRIBUTE_LEN + KEY_MAX + 1] = ATTRIBUTE, old[FILES_META_MAX];
	size_t n = strlen(value);
	memcpy(name + ATTRIBUTE_LEN, key, strlen(key) + 1);
	ssize_t had = getxattr(path, name, old, sizeof old);
	if (had == (ssize_t)n && memcmp(old, value, n) == 0)
		return 0;
	return setxattr(path, name, value, n, 0) < 0 ? -errno : 0;
}

int files_meta_store(const struct files_meta *m, const char *path, struct err *e)
{
	char text[128];
	int rc = unset_others(m, path);
	for (size_t i = 0; i < m->count && rc == 0; i++)
		rc = set(path, m->keys[i], m->values[i]);
	if (rc == -EOPNOTSUPP || rc == -EPERM || rc == -ENOSYS) // also what is no regular file
		rc = 0;
	if (rc == -ENOSPC || rc == -EDQUOT || rc == -E2BIG)
		return err_http(
			e, 507, ERR_RESOURCE_EXHAUSTED, "not enough space for file metadata: %s", files_text(rc, text));
	return rc < 0 ? err_http(e, 500, ERR_INTERNAL, "error writing metadata: %s", files_text(rc, text)) : 0;
}

// --- answers ---

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void put_member(struct buf *out, const char *path, const char *name, bool first)
{
	char value[FILES_META_MAX + 1];
	ssize_t n = getxattr(path, name, value, sizeof value - 1);
	value[n > 0 ? n : 0] = '\0';
	if (!first)
		buf_byte(out, ',');
	files_put_json(out, name + ATTRIBUTE_LEN);
	buf_byte(out, ':');
	files_put_json(out, value);
}

void files_meta_put(struct buf *out, const char *path)
{
	const char *sorted[FILES_META_MAX / ATTRIBUTE_LEN];
	size_t n, count = 0;
	char *names;
	int rc = list(path, &names, &n);
	for (const char *p = names; rc == 0 && n > 0 && p < names + n; p += strlen(p) + 1)
		if (is_meta(p) && count < sizeof sorted / sizeof *sorted)
			sorted[count++] = p;
	if (count > 0) {
		qsort(sorted, count, sizeof *sorted, by_name);
		BUF_LIT(out, "\"metadata\":{");
		for (size_t i = 0; i < count; i++)
			put_member(out, path, sorted[i], i == 0);
		BUF_LIT(out, "},");
	}
	free(names);
}
