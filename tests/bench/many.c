// SPDX-License-Identifier: Apache-2.0
// 1000 streams that say nothing: how soon they are there, and what each costs.
#include "tests/bench/wire.h"

#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define MANY 1000
#define QUIET "exec sleep 60"

static char *const argv_quiet[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){QUIET}, NULL};
static char *const env_plain[] = {(char[]){"PATH=/usr/local/bin:/usr/bin:/bin"}, NULL};

static void floor_many(struct bench *b)
{
	pid_t pid[MANY];
	size_t n = 0;
	int64_t start = bench_now_ns();
	while (n < MANY && posix_spawn(&pid[n], "/bin/sh", NULL, NULL, argv_quiet, env_plain) == 0)
		n++;
	double seconds = (double)(bench_now_ns() - start) / 1e9;
	for (size_t i = 0; i < n; i++)
		kill(pid[i], SIGKILL);
	for (size_t i = 0; i < n; i++)
		waitpid(pid[i], NULL, 0);
	if (n == MANY)
		bench_put(b, ROW_MANY_OPEN, NULL, seconds);
	else
		bench_wrong(b, "posix_spawn: only %zu of %d", n, MANY);
}

struct held {
	struct wire w;
	int pid;
};

// Opens all, then waits for each one's first event. 0 or negative errno.
static int open_all(struct held *h, const struct target *t)
{
	struct wire_event e = {0};
	int rc = 0;
	for (size_t i = 0; i < MANY && rc == 0; i++) {
		rc = wire_open(&h[i].w, t);
		if (rc == 0)
			rc = wire_stream_send(&h[i].w, QUIET);
	}
	for (size_t i = 0; i < MANY && rc == 0; i++) {
		rc = wire_stream_head(&h[i].w);
		if (rc == 0)
			rc = wire_event(&h[i].w, &e);
		if (rc == 1 && e.kind == WIRE_STARTED && e.pid > 0) {
			h[i].pid = e.pid;
			rc = 0;
		}
		rc = rc > 0 ? -EPROTO : rc;
	}
	wire_event_release(&e);
	return rc;
}

// Kills all commands; each stream must say so and end.
static int end_all(struct held *h, const struct target *t)
{
	struct wire_event e = {0};
	struct wire control;
	int rc = wire_open(&control, t);
	for (size_t i = 0; i < MANY && rc == 0; i++)
		rc = h[i].pid ? wire_signal(&control, h[i].pid, "SIGKILL") : 0;
	for (size_t i = 0; i < MANY && rc == 0; i++) {
		if (!h[i].pid)
			continue;
		rc = wire_event(&h[i].w, &e);
		if (rc == 1)
			rc = e.kind == WIRE_ENDED && e.code == -1 ? wire_event(&h[i].w, &e) : -EPROTO;
		rc = rc > 0 ? -EPROTO : rc;
	}
	wire_event_release(&e);
	wire_close(&control);
	return rc;
}

// Of T, by the daemon AT, which is T's or one like it.
static void target_many(struct bench *b, const struct target *t, const struct target *at, struct held *h)
{
	double before = bench_rss(at);
	int64_t start = bench_now_ns();
	int rc = open_all(h, at);
	double seconds = (double)(bench_now_ns() - start) / 1e9;
	double each = (bench_rss(at) - before) / MANY;
	int ended = end_all(h, at);
	if (rc < 0 || ended < 0) {
		bench_wrong(b, "%s: %d streams: %s; their end: %s", t->name, MANY, strerror(-rc), strerror(-ended));
		return;
	}
	bench_put(b, ROW_MANY_OPEN, t, seconds);
	bench_put(b, ROW_MANY_MEMORY, t, each);
}

// A celld of its own: in the one that all use there may be free memory that it does not have to ask for.
static void fresh_many(struct bench *b, const struct target *t, struct held *h)
{
	char dir[128];
	struct sandbox box;
	struct target fresh = *t;
	snprintf(dir, sizeof dir, "%s/many", b->room);
	mkdir(dir, 0755);
	if (sandbox_start(&box, b->celld, dir, false) < 0) {
		bench_wrong(b, "no celld for %d streams", MANY);
		return;
	}
	fresh.pid = box.init;
	fresh.port = t->surface == SURFACE_A ? box.port : box.envd_port;
	target_many(b, t, &fresh, h);
	if (sandbox_stop(&box) != 0)
		bench_wrong(b, "the celld of %d streams ended badly", MANY);
}

void bench_many(struct bench *b, struct target *t)
{
	struct rlimit files;
	struct held *h = calloc(MANY, sizeof *h);
	for (size_t i = 0; h && i < MANY; i++)
		h[i].w.c.fd = -1;
	if (!t)
		floor_many(b);
	else if (!h || getrlimit(RLIMIT_NOFILE, &files) < 0 || files.rlim_cur < MANY + 100)
		printf("%s: no %d streams: too few descriptors\n", t->name, MANY);
	else if (t->command)
		target_many(b, t, t, h);
	else
		fresh_many(b, t, h);
	for (size_t i = 0; h && i < MANY; i++)
		wire_close(&h[i].w);
	free(h);
}
