// SPDX-License-Identifier: Apache-2.0
// Short commands: one after the other, and 64 at once.
#include "tests/bench/wire.h"

#include <errno.h>
#include <poll.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FLIGHT 64

static const char command[] = "true";
static char *const argv_true[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"true"}, NULL};
static char *const env_plain[] = {(char[]){"PATH=/usr/local/bin:/usr/bin:/bin"}, NULL};

static int bare(void)
{
	int status = -1;
	pid_t pid;
	if (posix_spawn(&pid, "/bin/sh", NULL, NULL, argv_true, env_plain) == 0)
		waitpid(pid, &status, 0);
	return status;
}

void bench_exec(struct bench *b, struct target *t)
{
	enum { MOST = 500, WARM = 20 };
	size_t n = b->quick ? MOST / 2 : MOST;
	double us[MOST];
	struct wire w = {.c.fd = -1};
	int rc = t ? wire_open(&w, t) : 0;
	for (size_t i = 0; i < n + WARM && rc == 0; i++) {
		int64_t start = bench_now_ns();
		rc = t ? wire_exec(&w, command) : bare();
		us[i < WARM ? 0 : i - WARM] = (double)(bench_now_ns() - start) / 1000;
	}
	if (rc != 0)
		bench_wrong(b, "%s: sh -c true: %d, %.300s", bench_name(t), rc, t ? wire_text(&w) : "");
	wire_close(&w);
	if (rc != 0)
		return;
	bench_put(b, ROW_EXEC_P50, t, bench_percentile(us, n, 50));
	bench_put(b, ROW_EXEC_P99, t, bench_percentile(us, n, 99));
}

// In a process of its own, so that waiting for any child means these: 0 if all succeeded.
static int spawn_many(size_t n)
{
	size_t started = 0, ended = 0;
	int bad = 0, status;
	while (ended < n) {
		pid_t pid;
		if (started < n && started - ended < FLIGHT) {
			if (posix_spawn(&pid, "/bin/sh", NULL, NULL, argv_true, env_plain) != 0)
				return 1;
			started++;
			continue;
		}
		bad += waitpid(-1, &status, 0) <= 0 || status != 0;
		ended++;
	}
	return bad != 0;
}

static void floor_flight(struct bench *b, size_t n)
{
	int status = -1;
	pid_t pid = fork();
	int64_t start = bench_now_ns();
	if (pid == 0)
		_exit(spawn_many(n));
	waitpid(pid, &status, 0);
	if (status != 0)
		bench_wrong(b, "posix_spawn of many: wait status %d", status);
	else
		bench_put(b, ROW_FLIGHT, NULL, (double)n * 1e9 / (double)(bench_now_ns() - start));
}

// Takes what has come on W: 1 once a command has succeeded, 0 before, negative errno.
static int advance(struct wire *w)
{
	int status = wire_take_some(w);
	if (status == 0)
		return 0;
	int code = wire_exec_code(w, status);
	return code == 0 ? 1 : code < 0 ? code : -EPROTO;
}

// N commands over FLIGHT connections, on each the next one as soon as the last is answered.
static int fly(struct wire *w, struct pollfd *p, size_t n)
{
	size_t sent = 0, done = 0;
	int rc = 0;
	for (size_t i = 0; i < FLIGHT && rc == 0; i++, sent++)
		rc = wire_exec_send(&w[i], command);
	while (done < n && rc == 0) {
		if (poll(p, FLIGHT, (int)(w[0].c.limit_us / 1000)) <= 0)
			rc = -ETIMEDOUT;
		for (size_t i = 0; i < FLIGHT && rc == 0; i++) {
			int got = p[i].revents ? advance(&w[i]) : 0;
			if (got <= 0) {
				rc = got;
				continue;
			}
			done++;
			if (sent < n)
				rc = wire_exec_send(&w[i], command);
			else
				p[i].fd = -1;
			sent++;
		}
	}
	return rc;
}

void bench_flight(struct bench *b, struct target *t)
{
	struct pollfd p[FLIGHT];
	size_t n = b->quick ? 1000 : 3000;
	int rc = 0;
	if (!t) {
		floor_flight(b, n);
		return;
	}
	struct wire *w = calloc(FLIGHT, sizeof *w);
	for (size_t i = 0; w && i < FLIGHT; i++) {
		int failed = wire_open(&w[i], t);
		rc = rc ? rc : failed;
		p[i] = (struct pollfd){.fd = w[i].c.fd, .events = POLLIN};
	}
	double cpu = bench_cpu(t);
	int64_t start = bench_now_ns();
	if (rc == 0)
		rc = w ? fly(w, p, n) : -ENOMEM;
	double seconds = (double)(bench_now_ns() - start) / 1e9;
	if (rc == 0) {
		bench_put(b, ROW_FLIGHT, t, (double)n / seconds);
		bench_put(b, ROW_FLIGHT_CPU, t, (bench_cpu(t) - cpu) * 1e6 / (double)n);
	} else {
		bench_wrong(b, "%s: 64 commands in flight: %s", t->name, strerror(-rc));
	}
	for (size_t i = 0; w && i < FLIGHT; i++)
		wire_close(&w[i]);
	free(w);
}
