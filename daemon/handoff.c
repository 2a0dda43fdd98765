// SPDX-License-Identifier: Apache-2.0
#include "daemon/handoff.h"

#include "daemon/core/store_priv.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define VARIABLE "CELLD_RESUME"
#define MAGIC 0x66666f646e6168u
// Changes with anything below.
#define VERSION 2u

// As it is written; behind it STORE_ENDS numbers for each slot below USED_TO.
struct written {
	uint64_t magic;
	uint32_t version, layout;
	uint32_t size;
	uint32_t used_to;
	int32_t memory, event, channel;
	int32_t oom_score_adj;
	uint64_t nofile, nofile_max;
	uint32_t restarts;
	uint32_t sandboxd_count, envd_count;
	int32_t sandboxd[CONFIG_LISTEN_MAX], envd[CONFIG_LISTEN_MAX];
	char binary[PATH_MAX];
	char cgroups[PATH_MAX];
	char token[HANDOFF_TOKEN_MAX + 1];
};

static void stay_open(int fd, bool open)
{
	if (fd >= 0)
		fcntl(fd, F_SETFD, open ? 0 : FD_CLOEXEC);
}

static void sockets_stay_open(const struct daemon_sockets *s, bool open)
{
	for (size_t i = 0; i < s->count; i++)
		stay_open(s->fd[i], open);
}

static void ends_stay_open(const struct store *s, bool open)
{
	for (size_t i = 0, n = store_used_to(s); i < n; i++) {
		for (int e = 0; e < STORE_ENDS; e++)
			stay_open(s->slots[i].fd[e] - 1, open);
	}
}

static void all_stay_open(const struct handoff *h, int channel, bool open)
{
	stay_open(h->store->memory, open);
	stay_open(h->store->event, open);
	stay_open(channel, open);
	sockets_stay_open(&h->sandboxd, open);
	sockets_stay_open(&h->envd, open);
	ends_stay_open(h->store, open);
}

// --- the old binary ---

static void put_sockets(const struct daemon_sockets *s, int32_t *fds, uint32_t *count)
{
	*count = (uint32_t)s->count;
	for (size_t i = 0; i < s->count; i++)
		fds[i] = s->fd[i];
}

static int write_all(int fd, const void *p, size_t n)
{
	const char *at = p;
	while (n > 0) {
		ssize_t done = io_write(fd, at, n);
		if (done < 0)
			return (int)done;
		at += done;
		n -= (size_t)done;
	}
	return 0;
}

static int write_ends(int fd, const struct store *s)
{
	int rc = 0;
	for (size_t i = 0, n = store_used_to(s); rc == 0 && i < n; i++)
		rc = write_all(fd, s->slots[i].fd, sizeof s->slots[i].fd);
	return rc;
}

static int write_down(const struct handoff *h, int channel)
{
	struct written w = {.magic = MAGIC, .version = VERSION, .layout = STORE_LAYOUT, .size = sizeof w};
	w.used_to = (uint32_t)store_used_to(h->store);
	w.memory = h->store->memory;
	w.event = h->store->event;
	w.channel = channel;
	w.oom_score_adj = h->oom_score_adj;
	w.nofile = h->nofile.rlim_cur;
	w.nofile_max = h->nofile.rlim_max;
	w.restarts = h->restarts;
	put_sockets(&h->sandboxd, w.sandboxd, &w.sandboxd_count);
	put_sockets(&h->envd, w.envd, &w.envd_count);
	memcpy(w.binary, h->binary, sizeof w.binary);
	memcpy(w.cgroups, h->cgroups, sizeof w.cgroups);
	memcpy(w.token, h->token, sizeof w.token);
	int fd = store_memory("celld-handoff");
	if (fd < 0)
		return -errno;
	int rc = write_all(fd, &w, sizeof w);
	explicit_bzero(w.token, sizeof w.token);
	if (rc == 0)
		rc = write_ends(fd, h->store);
	if (rc == 0)
		return fd;
	close(fd);
	return rc;
}

int handoff_exec(const struct handoff *h, char **argv, int channel)
{
	char number[16];
	struct rlimit size = io_limit_lift(RLIMIT_FSIZE); // a memfd counts as a file
	int fd = write_down(h, channel);
	io_limit_restore(RLIMIT_FSIZE, &size);
	if (fd < 0)
		return fd;
	snprintf(number, sizeof number, "%d", fd);
	int rc = setenv(VARIABLE, number, 1) < 0 ? -errno : 0;
	if (rc == 0) {
		all_stay_open(h, channel, true);
		stay_open(fd, true);
		execv(h->binary, argv);
		rc = -errno;
		all_stay_open(h, channel, false);
		unsetenv(VARIABLE);
	}
	close(fd);
	return rc;
}

// --- the new one ---

static int read_all(int fd, off_t at, void *p, size_t n)
{
	return io_pread(fd, p, n, at) == (ssize_t)n ? 0 : -EPROTO;
}

static bool get_sockets(struct daemon_sockets *s, const int32_t *fds, uint32_t count)
{
	if (count > CONFIG_LISTEN_MAX)
		return false;
	s->count = count;
	for (size_t i = 0; i < count; i++)
		s->fd[i] = fds[i];
	return true;
}

static int take_store(int fd, const struct written *w, struct store **out)
{
	struct store *s = NULL;
	int rc = store_open(w->memory, w->event, &s);
	if (rc < 0)
		return rc;
	for (size_t i = 0; rc == 0 && i < w->used_to && i < s->shape.slots; i++)
		rc = read_all(fd, (off_t)(sizeof *w + i * sizeof s->slots->fd), s->slots[i].fd, sizeof s->slots->fd);
	if (rc < 0) {
		store_free(s);
		return rc;
	}
	store_serve(s, w->channel);
	*out = s;
	return 0;
}

static int take_written(int fd, struct handoff *h)
{
	struct written w;
	int rc = read_all(fd, 0, &w, sizeof w);
	if (rc < 0 || w.magic != MAGIC || w.version != VERSION || w.layout != STORE_LAYOUT || w.size != sizeof w)
		return -EPROTO;
	if (!get_sockets(&h->sandboxd, w.sandboxd, w.sandboxd_count) || !get_sockets(&h->envd, w.envd, w.envd_count))
		return -EPROTO;
	h->nofile = (struct rlimit){.rlim_cur = w.nofile, .rlim_max = w.nofile_max};
	h->oom_score_adj = w.oom_score_adj;
	h->restarts = w.restarts;
	memcpy(h->binary, w.binary, sizeof h->binary);
	memcpy(h->cgroups, w.cgroups, sizeof h->cgroups);
	memcpy(h->token, w.token, sizeof h->token);
	h->binary[sizeof h->binary - 1] = h->token[sizeof h->token - 1] = h->cgroups[sizeof h->cgroups - 1] = '\0';
	explicit_bzero(w.token, sizeof w.token);
	rc = take_store(fd, &w, &h->store);
	if (rc == 0)
		all_stay_open(h, w.channel, false);
	return rc;
}

int handoff_take(struct handoff *h)
{
	const char *number = getenv(VARIABLE);
	char *end;
	memset(h, 0, sizeof *h);
	if (!number)
		return 0;
	long fd = strtol(number, &end, 10);
	int rc = end == number || *end || fd <= 2 || fd > INT_MAX ? -EPROTO : take_written((int)fd, h);
	if (fd > 2 && fd <= INT_MAX)
		close((int)fd);
	unsetenv(VARIABLE);
	return rc < 0 ? rc : 1;
}
