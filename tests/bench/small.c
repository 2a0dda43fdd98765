// SPDX-License-Identifier: Apache-2.0
// The smallest requests: one after the other on one connection, and over 64 connections at once.
#include "tests/bench/bulk.h"
#include "tests/bench/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define CONNECTIONS 64
#define WARM 50
#define MOST 2000

// What is asked, and how its answer is known.
struct question {
	struct buf request;
	int status;
	bool stat;
};

static int check(const struct question *q, const struct wire *w, int status)
{
	if (status < 0)
		return status;
	return status == q->status && (!q->stat || wire_is_stat(w)) ? 0 : -EPROTO;
}

// One after the other: 0 with US filled, or negative errno.
static int ask(const struct question *q, const struct target *t, double *us, size_t n)
{
	struct wire w;
	int rc = wire_open(&w, t);
	for (size_t i = 0; i < n + WARM && rc == 0; i++) {
		int64_t start = bench_now_ns();
		rc = check(q, &w, wire_ask(&w, &q->request));
		us[i < WARM ? 0 : i - WARM] = (double)(w.at_ns - start) / 1000;
	}
	wire_close(&w);
	return rc;
}

// N requests over the connections of W, on each the next one as soon as the last is answered.
static int crowd(const struct question *q, struct wire *w, int epoll, size_t n)
{
	struct epoll_event ev[CONNECTIONS];
	size_t sent = 0, done = 0;
	int rc = 0;
	for (; sent < CONNECTIONS && rc == 0; sent++)
		rc = wire_send(&w[sent], &q->request);
	while (done < n && rc == 0) {
		int ready = epoll_wait(epoll, ev, CONNECTIONS, (int)(w[0].c.limit_us / 1000));
		rc = ready > 0 ? 0 : ready == 0 ? -ETIMEDOUT : -errno;
		for (int i = 0; i < ready && rc == 0; i++) {
			struct wire *at = &w[ev[i].data.u32];
			int status = wire_take_some(at);
			if (status == 0)
				continue;
			rc = check(q, at, status);
			done++;
			if (rc == 0 && sent++ < n)
				rc = wire_send(at, &q->request);
		}
	}
	return rc;
}

// The requests a second over all connections, or 0 with the reason printed.
static double rate(struct bench *b, const struct question *q, const struct target *t, const char *name)
{
	struct wire *w = calloc(CONNECTIONS, sizeof *w);
	size_t n = b->quick ? 10000 : 30000;
	int rc = w ? 0 : -ENOMEM, epoll = epoll_create1(EPOLL_CLOEXEC);
	double seconds = 1;
	for (uint32_t i = 0; w && i < CONNECTIONS; i++) {
		struct epoll_event ev = {.events = EPOLLIN, .data.u32 = i};
		int failed = wire_open(&w[i], t);
		failed = failed == 0 && epoll_ctl(epoll, EPOLL_CTL_ADD, w[i].c.fd, &ev) < 0 ? -errno : failed;
		rc = rc ? rc : failed;
	}
	if (rc == 0)
		rc = crowd(q, w, epoll, CONNECTIONS * WARM);
	int64_t start = bench_now_ns();
	if (rc == 0)
		rc = crowd(q, w, epoll, n);
	seconds = (double)(bench_now_ns() - start) / 1e9;
	if (rc < 0)
		bench_wrong(b, "%s: requests over %d connections: %s", name, CONNECTIONS, strerror(-rc));
	for (size_t i = 0; w && i < CONNECTIONS; i++)
		wire_close(&w[i]);
	free(w);
	close(epoll);
	return rc < 0 ? 0 : (double)n / seconds;
}

// nginx if there is one, else the floor program's server for many connections.
static void floor_crowd(struct bench *b)
{
	struct question q = {.status = 204};
	struct target floor = {.surface = SURFACE_A};
	pid_t pid = bulk_floor_nginx(b->dir, b->room, &floor.port);
	bench_floor_is(b, ROW_STAT_64, pid > 0 ? "nginx 204" : "C epoll 204");
	if (pid <= 0) {
		char port[16];
		const char *argv[] = {NULL, "crowd", port, NULL};
		floor.port = bench_free_port();
		snprintf(port, sizeof port, "%d", floor.port);
		pid = bench_spawn_floor(b, argv, -1);
	}
	wire_put_get(&q.request, "/204");
	double v = bench_await(floor.port) ? rate(b, &q, &floor, "the floor") : 0;
	if (v > 0)
		bench_put(b, ROW_STAT_64, NULL, v);
	buf_release(&q.request);
	bench_kill(pid);
}

static void floor_small(struct bench *b, size_t n)
{
	struct question q = {.status = 204};
	struct target floor = {.surface = SURFACE_A, .port = bench_free_port()};
	double us[MOST];
	pid_t pid = bench_floor_server(b, floor.port);
	wire_put_get(&q.request, "/health");
	int rc = bench_await(floor.port) ? ask(&q, &floor, us, n) : -ETIMEDOUT;
	if (rc < 0) {
		bench_wrong(b, "the floor: 204: %s", strerror(-rc));
	} else {
		bench_put(b, ROW_STAT_P50, NULL, bench_percentile(us, n, 50));
		bench_put(b, ROW_STAT_P99, NULL, bench_percentile(us, n, 99));
		bench_put(b, ROW_HEALTH_P50, NULL, bench_percentile(us, n, 50));
	}
	buf_release(&q.request);
	bench_kill(pid);
}

static void target_small(struct bench *b, const struct target *t, size_t n, const char *path)
{
	struct question health = {.status = 204}, stat = {.status = 200, .stat = true};
	double us[MOST];
	wire_put_get(&health.request, "/health");
	wire_put_stat(&stat.request, t->surface, path);
	int rc = ask(&health, t, us, n);
	if (rc == 0)
		bench_put(b, ROW_HEALTH_P50, t, bench_percentile(us, n, 50));
	rc = rc < 0 ? rc : ask(&stat, t, us, n);
	if (rc == 0) {
		bench_put(b, ROW_STAT_P50, t, bench_percentile(us, n, 50));
		bench_put(b, ROW_STAT_P99, t, bench_percentile(us, n, 99));
	} else {
		bench_wrong(b, "%s: small requests: %s", t->name, strerror(-rc));
	}
	buf_release(&health.request);
	buf_release(&stat.request);
}

// The empty file that is asked for: PATH, or NULL after saying why.
static const char *small_file(struct bench *b, char *path, size_t n)
{
	snprintf(path, n, "%s/small.txt", b->dir);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd < 0)
		bench_wrong(b, "%s: %s", path, strerror(errno));
	else
		close(fd);
	return fd < 0 ? NULL : path;
}

void bench_small(struct bench *b, struct target *t)
{
	size_t n = b->quick ? MOST / 4 : MOST;
	char path[256];
	if (!t)
		floor_small(b, n);
	else if (small_file(b, path, sizeof path))
		target_small(b, t, n, path);
}

void bench_crowd(struct bench *b, struct target *t)
{
	struct question stat = {.status = 200, .stat = true};
	char path[256];
	if (!t) {
		floor_crowd(b);
		return;
	}
	if (!small_file(b, path, sizeof path))
		return;
	wire_put_stat(&stat.request, t->surface, path);
	double v = rate(b, &stat, t, t->name);
	if (v > 0)
		bench_put(b, ROW_STAT_64, t, v);
	buf_release(&stat.request);
}
