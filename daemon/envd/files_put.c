// SPDX-License-Identifier: Apache-2.0
// One file being written for a client, and what its failures are called (contract B 5.6).
#include "daemon/envd/files.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static bool no_space(int rc)
{
	return rc == -ENOSPC || rc == -EDQUOT;
}

// The part of PATH that is missing or in the way: its first ancestor that is no directory, cut off in place. False if all are.
static bool first_bad_parent(char *path)
{
	for (char *p = path + 1; *p; p++) {
		struct stat st;
		if (*p != '/')
			continue;
		*p = '\0';
		if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
			return true;
		*p = '/';
	}
	return false;
}

static int parent_error(int rc, char *path, struct err *e)
{
	char text[128];
	if (rc == -ENOTDIR)
		return err_http(e, 500, ERR_INTERNAL, "error ensuring directories: path is a file: %s", path);
	return err_http(e, 500, ERR_INTERNAL, "error ensuring directories: failed to create directory: mkdir %s: %s",
		path, files_text(rc, text));
}

static int open_error(int rc, const char *path, struct err *e)
{
	char text[128], *parent = strdup(path);
	bool above = parent && first_bad_parent(parent);
	int status = err_errno_status(-rc);
	if (rc == -EISDIR)
		err_set(e, ERR_INVALID_ARGUMENT, "path is a directory: %s", path);
	else if (rc == -EINVAL)
		err_set(e, ERR_INVALID_ARGUMENT, "path is not a regular file: %s", path);
	else if (above && rc != -ENOMEM && rc != -ENAMETOOLONG)
		parent_error(rc, parent, e);
	else if (no_space(rc))
		err_http(e, 507, ERR_RESOURCE_EXHAUSTED, "not enough inodes available: open %s: %s", path,
			files_text(rc, text));
	else if (rc == -ENAMETOOLONG)
		err_http(e, 500, ERR_INTERNAL, "error getting file info: stat %s: %s", path, files_text(rc, text));
	else
		err_http(e, status == 503 ? 503 : 500, ERR_INTERNAL, "error opening file: open %s: %s", path,
			files_text(rc, text));
	free(parent);
	return -1;
}

int files_put_open(struct files_put *p, char *path, int64_t size, const struct user *u, struct err *e)
{
	struct files_write spec = {.path = path, .size = size, .owner = {u->uid, u->gid}, .give = true};
	p->path = path;
	int rc = files_writer_new(&p->writer, &spec);
	return rc < 0 ? open_error(rc, path, e) : 0;
}

static int write_error(const struct files_put *p, int rc, struct err *e)
{
	char text[128];
	if (no_space(rc) && p->announced >= 0)
		return err_http(e, 507, ERR_RESOURCE_EXHAUSTED,
			"attempted to write %lld bytes: not enough disk space available", (long long)p->announced);
	if (no_space(rc))
		return err_http(e, 507, ERR_RESOURCE_EXHAUSTED, "not enough disk space available");
	return err_http(e, rc == -ENOMEM ? 503 : 500, ERR_INTERNAL, "error writing file: %s", files_text(rc, text));
}

int files_put_feed(struct files_put *p, const void *data, size_t n, struct err *e)
{
	int rc = files_writer_feed(p->writer, data, n);
	return rc < 0 ? write_error(p, rc, e) : 0;
}

int files_put_commit(struct files_put *p, struct err *e)
{
	int rc = files_writer_commit(p->writer);
	if (rc < 0)
		return write_error(p, rc, e);
	if (rc > 0)
		return 1;
	files_writer_free(p->writer);
	p->writer = NULL;
	return 0;
}

void files_put_release(struct files_put *p)
{
	files_writer_free(p->writer);
	p->writer = NULL;
	free(p->path);
	p->path = NULL;
}
