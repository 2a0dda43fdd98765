// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/cgroup_priv.h"

#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Neither file is longer, or what is looked for would not be found in it by anybody.
#define FILE_MAX ((size_t)256 * 1024)

// Freed by the caller. NULL with *RC.
static char *slurp(const char *path, int *rc)
{
	char *text = malloc(FILE_MAX);
	ssize_t n = text ? io_read_file(path, text, FILE_MAX) : -ENOMEM;
	if (n >= 0)
		return text;
	free(text);
	*rc = (int)n;
	return NULL;
}

// "0::/a/b": the group within the one hierarchy of version 2, as seen from the namespace of this process.
static int own_group(char *text, char *group, size_t n)
{
	static const char mark[] = "0::";
	for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		if (strncmp(line, mark, sizeof mark - 1) != 0)
			continue;
		const char *path = line + sizeof mark - 1;
		// One above the namespace's root has no name here; one that was removed is good for nothing.
		if (*path != '/' || strstr(path, "/..") || strstr(path, " (deleted)"))
			return -ENOENT;
		return (size_t)snprintf(group, n, "%s", path) < n ? 0 : -ENAMETOOLONG;
	}
	return -ENOENT;
}

// "\040" and the like, in place.
static void unescape(char *s)
{
	char *to = s;
	for (; *s; s++) {
		if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' && s[3] >= '0' &&
			s[3] <= '7') {
			*to++ = (char)((s[1] - '0') * 64 + (s[2] - '0') * 8 + (s[3] - '0'));
			s += 3;
		} else {
			*to++ = *s;
		}
	}
	*to = '\0';
}

// What of GROUP lies below ROOT, which is what a mount shows; NULL if it does not.
static const char *below(const char *group, const char *root)
{
	size_t n = strcmp(root, "/") == 0 ? 0 : strlen(root);
	if (strncmp(group, root, n) != 0 || (group[n] && group[n] != '/'))
		return NULL;
	return strcmp(group + n, "/") == 0 ? "" : group + n;
}

// A line of mountinfo: ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [TAGS] - TYPE SOURCE OPTIONS.
static bool mount_of(char *line, char **root, char **point)
{
	char *save, *field = strtok_r(line, " ", &save);
	for (int i = 0; field && i < 5; i++) {
		if (i == 3)
			*root = field;
		if (i == 4)
			*point = field;
		field = strtok_r(NULL, " ", &save);
	}
	while (field && strcmp(field, "-") != 0)
		field = strtok_r(NULL, " ", &save);
	field = field ? strtok_r(NULL, " ", &save) : NULL;
	if (!field || strcmp(field, "cgroup2") != 0)
		return false;
	unescape(*root);
	unescape(*point);
	return true;
}

static int find_mount(char *text, const char *group, char *path, size_t n)
{
	for (char *save, *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
		char *root = NULL, *point = NULL;
		const char *rest = mount_of(line, &root, &point) ? below(group, root) : NULL;
		if (!rest)
			continue;
		return (size_t)snprintf(path, n, "%s%s", point, rest) < n ? 0 : -ENAMETOOLONG;
	}
	return -ENOENT;
}

int cgroup_find(const char *cgroup, const char *mountinfo, char *path, size_t n)
{
	char group[PATH_MAX];
	int rc = 0;
	char *text = slurp(cgroup, &rc);
	if (!text)
		return rc;
	rc = own_group(text, group, sizeof group);
	free(text);
	text = rc == 0 ? slurp(mountinfo, &rc) : NULL;
	if (!text)
		return rc;
	rc = find_mount(text, group, path, n);
	free(text);
	return rc;
}
