// SPDX-License-Identifier: Apache-2.0
// Short commands: one after the other, and 64 at once.
#include "tests/bench/bench.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define FLIGHT 64

static const char request[] = "{\"command\":\"true\"}";
static char *const argv_true[] = {(char[]){"sh"}, (char[]){"-c"}, (char[]){"true"}, NULL};
static char *const env_plain[] = {(char[]){"PATH=/usr/local/bin:/usr/bin:/bin"}, NULL};

static int bare(void)
{
	int status = -1;
	pid_t pid = vfork();
	if (pid == 0) {
		execve("/bin/sh", argv_true, env_plain);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	return status;
}

// Takes the answer of one `true`.
static void check(struct bench *b, struct client *c)
{
	int status = client_answer(c);
	const json_t *code = json_object_get(c->doc, "exit_code");
	if (status != 200 || !json_is_integer(code) || json_integer_value(code) != 0)
		bench_wrong(b, "/exec true: status %d, %.100s", status, buf_cstr(&c->body));
}

void bench_exec(struct bench *b)
{
	enum { MOST = 1000, WARM = 20 };
	size_t n = b->quick ? MOST / 4 : MOST;
	double floor[MOST], celld[MOST];
	struct client c;
	if (client_open(&c, b->box.port) < 0) {
		bench_wrong(b, "no connection for /exec");
		client_close(&c);
		return;
	}
	int wrong = b->wrong;
	for (size_t i = 0; i < n + WARM && b->wrong == wrong; i++) {
		size_t at = i < WARM ? 0 : i - WARM;
		int64_t start = client_now_us();
		if (bare() != 0)
			bench_wrong(b, "sh -c true failed");
		int64_t between = client_now_us();
		client_send(&c, "POST", "/exec", request);
		check(b, &c);
		floor[at] = (double)(between - start);
		celld[at] = (double)(client_now_us() - between);
	}
	client_close(&c);
	if (b->wrong != wrong)
		return;
	bench_floor(b, ROW_EXEC_P50, bench_percentile(floor, n, 50));
	bench_celld(b, ROW_EXEC_P50, bench_percentile(celld, n, 50));
	bench_floor(b, ROW_EXEC_P99, bench_percentile(floor, n, 99));
	bench_celld(b, ROW_EXEC_P99, bench_percentile(celld, n, 99));
	bench_celld(b, ROW_EXEC_MORE, bench_percentile(celld, n, 50) - bench_percentile(floor, n, 50));
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
		if (waitpid(-1, &status, 0) > 0)
			bad += status != 0;
		ended++;
	}
	return bad != 0;
}

static double floor_rate(struct bench *b, size_t n)
{
	int status = -1;
	int64_t start = client_now_us();
	pid_t pid = fork();
	if (pid == 0)
		_exit(spawn_many(n));
	waitpid(pid, &status, 0);
	if (status != 0)
		bench_wrong(b, "posix_spawn of many: wait status %d", status);
	return (double)n * 1e6 / (double)(client_now_us() - start);
}

// N commands over FLIGHT connections, on each the next one as soon as the last is answered.
static void fly(struct bench *b, struct client *c, struct pollfd *p, size_t n)
{
	size_t sent = 0, done = 0;
	for (size_t i = 0; i < FLIGHT; i++, sent++)
		client_send(&c[i], "POST", "/exec", request);
	while (done < n) {
		int wrong = b->wrong;
		if (poll(p, FLIGHT, (int)(c[0].limit_us / 1000)) <= 0)
			bench_wrong(b, "%zu of %zu commands in flight were not answered", n - done, n);
		for (size_t i = 0; i < FLIGHT; i++) {
			if (!p[i].revents)
				continue;
			check(b, &c[i]);
			done++;
			if (sent < n) {
				client_send(&c[i], "POST", "/exec", request);
				sent++;
			} else {
				p[i].fd = -1;
			}
		}
		if (b->wrong != wrong)
			return;
	}
}

void bench_flight(struct bench *b)
{
	struct client c[FLIGHT];
	struct pollfd p[FLIGHT];
	size_t n = b->quick ? 1000 : 3000;
	int failed = 0;
	bench_floor(b, ROW_FLIGHT, floor_rate(b, n));
	for (size_t i = 0; i < FLIGHT; i++) {
		failed += client_open(&c[i], b->box.port) < 0;
		p[i] = (struct pollfd){.fd = c[i].fd, .events = POLLIN};
	}
	double cpu = bench_cpu(sandbox_daemon(&b->box));
	int64_t start = client_now_us();
	int wrong = b->wrong;
	if (failed)
		bench_wrong(b, "%d of %d connections failed", failed, FLIGHT);
	else
		fly(b, c, p, n);
	if (b->wrong == wrong) {
		bench_celld(b, ROW_FLIGHT, (double)n * 1e6 / (double)(client_now_us() - start));
		bench_celld(b, ROW_FLIGHT_CPU, (bench_cpu(sandbox_daemon(&b->box)) - cpu) * 1e6 / (double)n);
	}
	for (size_t i = 0; i < FLIGHT; i++)
		client_close(&c[i]);
}
