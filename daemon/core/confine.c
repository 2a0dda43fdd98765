// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/confine_priv.h"
#include "daemon/io.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

// --- the lists ---

int confine_add(struct confine_list *l, const char *format, ...)
{
	char *text;
	va_list args;
	const char **at = realloc(l->at, (l->count + 2) * sizeof *at);
	if (!at)
		return -ENOMEM;
	l->at = at;
	at[l->count] = NULL;
	va_start(args, format);
	int n = vasprintf(&text, format, args);
	va_end(args);
	if (n < 0)
		return -ENOMEM;
	at[l->count++] = text;
	at[l->count] = NULL;
	return 0;
}

static void list_release(struct confine_list *l)
{
	for (size_t i = 0; i < l->count; i++)
		free((char *)l->at[i]);
	free(l->at);
}

static const char *const *list_or_none(const struct confine_list *l)
{
	static const char *const none[] = {NULL};
	return l->at ? l->at : none;
}

int confine_why(char *why, size_t n, int rc, const char *format, ...)
{
	va_list args;
	va_start(args, format);
	vsnprintf(why, n, format, args);
	va_end(args);
	return rc;
}

// --- made and freed ---

int confine_new(struct confine **out, const struct confine_spec *spec, char *why, size_t n)
{
	*out = NULL;
	confine_why(why, n, 0, "out of memory"); // unless somebody knows better
	struct confine *c = calloc(1, sizeof *c);
	if (!c)
		return -ENOMEM;
	c->ruleset = -1;
	c->state.no_new_privs = true;
	int rc = confine_caps_init(c, spec, why, n);
	if (rc == 0)
		rc = confine_landlock_init(c, spec, why, n);
	if (rc == 0)
		rc = confine_seccomp_init(c, spec, why, n);
	if (rc == 0 && spec->require && c->missing.count)
		rc = confine_why(why, n, -EOPNOTSUPP, "%s", c->missing.at[0]);
	if (rc < 0) {
		confine_free(c);
		return rc;
	}
	c->state.denied = list_or_none(&c->denied);
	c->state.writable = list_or_none(&c->writable);
	c->state.readable = list_or_none(&c->readable);
	c->state.missing = list_or_none(&c->missing);
	*out = c;
	return 0;
}

void confine_free(struct confine *c)
{
	if (!c)
		return;
	list_release(&c->denied);
	list_release(&c->writable);
	list_release(&c->readable);
	list_release(&c->missing);
	io_close(&c->ruleset);
	free(c->filter.filter);
	free(c);
}

const struct confine_state *confine_state(const struct confine *c)
{
	return &c->state;
}

// --- in the child ---

int confine_child_enter(const struct confine *c)
{
	if (!c)
		return 0;
	// First, as without it neither of the last two is to be had by everybody.
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
		return -errno;
	int rc = confine_caps_trim(c);
	if (rc < 0)
		return rc;
	if (c->ruleset >= 0 && syscall(SYS_landlock_restrict_self, c->ruleset, 0) < 0)
		return -errno;
	if (c->filter.len && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &c->filter) < 0)
		return -errno;
	return 0;
}

int confine_hide_self(void)
{
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}
