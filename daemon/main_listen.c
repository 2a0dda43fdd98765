// SPDX-License-Identifier: Apache-2.0
#include "daemon/main_listen.h"

#include "daemon/log.h"
#include "daemon/net/listener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

// What sockets that are given to a surface are named.
#define SURFACE_A "sandboxd"
#define SURFACE_B "envd"

static int fails(const char *spec, int rc)
{
	log_plain("celld: listen %s: %s", spec, strerror(-rc));
	return 1;
}

// Where a surface listens, and its name among sockets that are given.
struct place {
	const char *surface;
	struct daemon_sockets *sockets;
	const char *const *specs;
	size_t count;
	bool is_default;
	char *names; // out: the addresses, as the ready line has them
	size_t size;
};

static int open_socket(struct place *p, const char *spec)
{
	struct daemon_sockets *s = p->sockets;
	char name[160];
	size_t used = s->count ? strlen(p->names) : 0, left = p->size - used;
	if (s->count == CONFIG_LISTEN_MAX)
		return fails(spec, -E2BIG);
	int fd = listener_open(spec, p->is_default);
	int rc = fd < 0 ? fd : listener_name(fd, name, sizeof name);
	if (rc < 0)
		return fails(spec, rc);
	if (snprintf(p->names + used, left, "%s%s", s->count ? "," : "", name) >= (int)left)
		p->names[used] = '\0';
	s->fd[s->count++] = fd;
	return 0;
}

static bool names_spec(const char *const *specs, size_t count, const char *spec)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(specs[i], spec) == 0)
			return true;
	return false;
}

// A given socket that an option names is that option's, whatever its name.
static bool is_named(const struct config *c, const char *spec)
{
	return names_spec(c->listen, c->listen_count, spec) || names_spec(c->envd_listen, c->envd_listen_count, spec);
}

// Sockets of a surface's own name take the place of its default addresses; those that were asked for stand beside them.
static int open_sockets(struct place *p, const struct config *c, const struct notify *given)
{
	char name[32], spec[24];
	int rc = 0;
	snprintf(p->names, p->size, "off");
	for (size_t i = 0; rc == 0 && i < given->given; i++) {
		notify_name(given, i, name, sizeof name);
		snprintf(spec, sizeof spec, "fd:%zu", i + NOTIFY_FIRST);
		if (strcmp(name, p->surface) == 0 && !is_named(c, spec))
			rc = open_socket(p, spec);
	}
	if (p->sockets->count && p->is_default)
		return rc;
	for (size_t i = 0; rc == 0 && i < p->count; i++)
		rc = open_socket(p, p->specs[i]);
	return rc;
}

// A socket that was given and that nobody serves would have clients wait for ever.
static int check_given(const struct config *c, const struct notify *given)
{
	char name[32], spec[24];
	if (given->given > 2 * CONFIG_LISTEN_MAX)
		return fails("LISTEN_FDS", -E2BIG);
	for (size_t i = 0; i < given->given; i++) {
		notify_name(given, i, name, sizeof name);
		snprintf(spec, sizeof spec, "fd:%zu", i + NOTIFY_FIRST);
		// Before the first socket of ours could get the number of one that is not there.
		if (fcntl((int)i + NOTIFY_FIRST, F_GETFD) < 0)
			return fails(spec, -errno);
		if (strcmp(name, SURFACE_A) == 0 || strcmp(name, SURFACE_B) == 0 || is_named(c, spec))
			continue;
		log_plain("celld: LISTEN_FDNAMES: \"%s\" (%s) is neither " SURFACE_A " nor " SURFACE_B, name, spec);
		return 2;
	}
	return 0;
}

int main_listen(
	const struct config *c, const struct notify *given, struct daemon_spec *spec, char *a, char *b, size_t n)
{
	struct place sandboxd = {SURFACE_A, &spec->sandboxd, c->listen, c->listen_count, c->listen_default, a, n};
	struct place envd = {
		SURFACE_B, &spec->envd, c->envd_listen, c->envd_listen_count, c->envd_listen_default, b, n};
	int status = check_given(c, given);
	if (status == 0)
		status = open_sockets(&sandboxd, c, given);
	return status ? status : open_sockets(&envd, c, given);
}
