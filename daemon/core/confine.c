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
#include <sys/wait.h>
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

static void list_clear(struct confine_list *l)
{
	list_release(l);
	*l = (struct confine_list){0};
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

// --- tried ---

enum part { PRIVILEGES, CAPS, LANDLOCK, SECCOMP, PARTS };

// No new privileges come first, as without them neither Landlock nor seccomp is to be had by everybody.
static int enter_part(const struct confine *c, enum part part)
{
	int rc = 0;
	switch (part) {
	case PRIVILEGES:
		rc = prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ? -errno : 0;
		break;
	case CAPS:
		rc = confine_caps_trim(c);
		break;
	case LANDLOCK:
		if (c->ruleset >= 0 && syscall(SYS_landlock_restrict_self, c->ruleset, 0) < 0)
			rc = -errno;
		break;
	default:
		if (c->filter.len && syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &c->filter) < 0)
			rc = -errno;
	}
	return rc;
}

static _Noreturn void try_and_exit(const struct confine *c, enum part part)
{
	int rc = part == CAPS ? confine_child_caps(c) : enter_part(c, PRIVILEGES);
	if (rc == 0)
		rc = enter_part(c, part);
	_exit(-rc); // an errno fits
}

// What a child would get from that part: 0, negative errno, or 1 if there can be no child now.
static int try_part(const struct confine *c, enum part part)
{
	int status = 0;
	pid_t pid = fork();
	if (pid == 0)
		try_and_exit(c, part);
	if (pid < 0)
		return 1;
	if (IO_AGAIN(waitpid(pid, &status, 0)) < 0)
		return -errno;
	return WIFEXITED(status) ? -WEXITSTATUS(status) : -EIO;
}

static int leave_out(struct confine *c, enum part part, int rc)
{
	static const char *const names[] = {[CAPS] = "capabilities", [LANDLOCK] = "landlock", [SECCOMP] = "seccomp"};
	if (part == CAPS) {
		c->keep = c->state.caps = ~(uint64_t)0;
		c->drop = 0;
	} else if (part == LANDLOCK) {
		io_close(&c->ruleset);
		c->state.landlock = 0;
		list_clear(&c->writable);
		list_clear(&c->readable);
	} else {
		free(c->filter.filter);
		c->filter = (struct sock_fprog){0};
		c->state.seccomp = false;
		list_clear(&c->denied);
	}
	return confine_add(&c->missing, "%s: %s", names[part], strerror(-rc));
}

// A kernel that has it all may still be kept from giving it, by a container's own filter for one: then every start would fail.
static int try_all(struct confine *c, bool require, char *why, size_t n)
{
	for (enum part part = PRIVILEGES; part < PARTS; part++) {
		int rc = try_part(c, part);
		if (rc > 0)
			return require ? confine_why(why, n, -EAGAIN, "no process to try it in") : 0;
		if (rc < 0 && part == PRIVILEGES)
			return confine_why(why, n, rc, "no new privileges: %s", strerror(-rc));
		if (rc < 0 && leave_out(c, part, rc) < 0)
			return -ENOMEM;
	}
	return 0;
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
	if (rc == 0)
		rc = try_all(c, spec->require, why, n);
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
	int rc = 0;
	for (enum part part = PRIVILEGES; c && part < PARTS && rc == 0; part++)
		rc = enter_part(c, part);
	return rc;
}

int confine_hide_self(void)
{
	return prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0 ? -errno : 0;
}
