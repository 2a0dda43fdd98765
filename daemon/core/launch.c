// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/launch.h"

#include "proto/buf.h"

#include <stdlib.h>
#include <string.h>

// Bytes of the strings of LIST, their number goes to *COUNT.
static size_t list_size(const char *const *list, size_t *count)
{
	size_t bytes = 0, n = 0;
	for (; list[n]; n++)
		bytes += strlen(list[n]) + 1;
	*count = n;
	return bytes;
}

static size_t string_size(const char *s)
{
	return s ? strlen(s) + 1 : 0;
}

static const char *put_string(char **at, const char *s)
{
	if (!s)
		return NULL;
	const char *copy = *at;
	size_t n = strlen(s) + 1;
	memcpy(*at, s, n);
	*at += n;
	return copy;
}

// Fills the COUNT + 1 pointers at OUT.
static const char *const *put_list(const char **out, char **at, const char *const *list, size_t count)
{
	for (size_t i = 0; i < count; i++)
		out[i] = put_string(at, list[i]);
	out[count] = NULL;
	return out;
}

struct asked *asked_dup(const struct asked *a, size_t *size)
{
	size_t argc, envc;
	size_t bytes = list_size(a->argv, &argc) + list_size(a->env, &envc);
	size_t pointers = (argc + envc + 2) * sizeof(char *);
	bytes += sizeof *a + pointers + string_size(a->cwd) + string_size(a->tag);
	struct asked *copy = malloc(bytes);
	if (!copy)
		return NULL;
	const char **lists = (const char **)(copy + 1);
	char *at = (char *)lists + pointers;
	copy->argv = put_list(lists, &at, a->argv, argc);
	copy->env = put_list(lists + argc + 1, &at, a->env, envc);
	copy->cwd = put_string(&at, a->cwd);
	copy->tag = put_string(&at, a->tag);
	if (size)
		*size = bytes;
	return copy;
}

char *launch_line(const char *const *argv)
{
	struct buf line;
	buf_init(&line, 0);
	for (size_t i = 0; argv[i]; i++) {
		if (i)
			buf_byte(&line, ' ');
		buf_str(&line, argv[i]);
	}
	return buf_take(&line, NULL);
}

void launch_env_user(struct env *env, const struct user *u)
{
	env_put(env, "HOME", u->home);
	env_put(env, "USER", u->name);
	env_put(env, "LOGNAME", u->name);
}
