// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/control.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void envd_clean(char *path)
{
	char *to = path;
	for (const char *p = path; *p;) {
		size_t n = strcspn(p + 1, "/");
		bool up = n == 2 && p[1] == '.' && p[2] == '.';
		if (up)
			while (to > path && *--to != '/')
				;
		else if (n > 0 && !(n == 1 && p[1] == '.'))
			memmove(to, p, n + 1), to += n + 1;
		p += n + 1;
	}
	if (to == path)
		*to++ = '/';
	*to = '\0';
}

// HOME/REST, cleaned; the caller's.
static char *below(const char *home, const char *rest, struct err *err)
{
	size_t h = strlen(home), n = strlen(rest);
	char *path = malloc(h + n + 3);
	if (!path) {
		err_sys(err, -ENOMEM, "path");
		return NULL;
	}
	path[0] = '/';
	memcpy(path + 1, home, h);
	path[h + 1] = '/';
	memcpy(path + h + 2, rest, n + 1);
	envd_clean(path);
	return path;
}

char *envd_path(const struct envd *e, const struct user *u, const char *path, struct err *err)
{
	if (!*path && e->control->now.workdir)
		path = e->control->now.workdir;
	if (path[0] == '~' && path[1] && path[1] != '/' && path[1] != '\\') {
		err_set(err, ERR_INVALID_ARGUMENT,
			"failed to expand path '%s' for user '%s': cannot expand user-specific home dir", path,
			u->name);
		return NULL;
	}
	if (path[0] == '~')
		return below(u->home, path + 1, err);
	if (path[0] != '/')
		return below(u->home, path, err);
	char *same = strdup(path);
	if (!same)
		err_sys(err, -ENOMEM, "path");
	return same;
}
