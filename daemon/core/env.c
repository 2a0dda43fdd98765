// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/env.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void env_init(struct env *e)
{
	memset(e, 0, sizeof *e);
}

void env_release(struct env *e)
{
	for (size_t i = 0; i < e->count; i++)
		free(e->list[i]);
	free(e->list);
	env_init(e);
}

// Setting a name looks through those set before; the kernel takes some thousand small ones at most anyway.
#define ENV_MAX ((size_t)1024)

static char **slot(struct env *e, const char *name, size_t n)
{
	for (size_t i = 0; i < e->count; i++) {
		if (strncmp(e->list[i], name, n) == 0 && e->list[i][n] == '=')
			return &e->list[i];
	}
	if (e->count + 1 >= e->cap) {
		size_t cap = e->cap ? e->cap * 2 : 16;
		char **list = realloc(e->list, cap * sizeof *list);
		if (!list)
			return NULL;
		e->list = list;
		e->cap = cap;
	}
	e->list[e->count] = NULL;
	return &e->list[e->count];
}

int env_set(struct env *e, const char *name, size_t n, const char *value, size_t vn)
{
	if (e->count >= ENV_MAX)
		return -E2BIG;
	if (!n || memchr(name, '=', n) || memchr(name, '\0', n) || memchr(value, '\0', vn))
		return -EINVAL;
	char *line = malloc(n + vn + 2);
	char **at = line ? slot(e, name, n) : NULL;
	if (!at) {
		free(line);
		e->fail = -ENOMEM;
		return -ENOMEM;
	}
	memcpy(line, name, n);
	line[n] = '=';
	memcpy(line + n + 1, value, vn);
	line[n + 1 + vn] = '\0';
	if (!*at)
		e->count++;
	free(*at);
	*at = line;
	return 0;
}

void env_put(struct env *e, const char *name, const char *value)
{
	env_set(e, name, strlen(name), value, strlen(value));
}

const char *const *env_list(struct env *e)
{
	static const char *const empty[] = {NULL};
	if (e->fail)
		return NULL;
	if (!e->list)
		return empty;
	e->list[e->count] = NULL;
	return (const char *const *)e->list;
}
