// SPDX-License-Identifier: Apache-2.0
// How fast it is there, and what it costs while nothing happens.
#include "tests/bench/bench.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define SETTLE_MS 1500 // celld looks back at what its start took after a second
#define IDLE_MS 3000

static pid_t spawn_celld(const struct bench *b, enum surface s, int port)
{
	char spec[32], workspace[256];
	bool a = s == SURFACE_A;
	const char *argv[] = {b->celld, "--init", "--listen", a ? spec : "off", "--envd-listen", a ? "off" : spec,
		"--workspace", workspace, "--venv", "off", "--user", sandbox_user(), NULL};
	int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
	snprintf(spec, sizeof spec, "127.0.0.1:%d", port);
	snprintf(workspace, sizeof workspace, "%s/start", b->room);
	pid_t pid = null < 0 ? -1 : vfork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (dup2(null, 2) == 2)
			execv(b->celld, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	close(null);
	return pid;
}

static pid_t spawn(const struct bench *b, const struct target *t, int port)
{
	char log[512];
	snprintf(log, sizeof log, "%s/start.log", b->dir);
	if (!t)
		return bench_floor_server(b, port);
	return t->command ? bench_spawn_peer(t, port, log) : spawn_celld(b, t->surface, port);
}

// From before the fork to an answer, in ms, as one sees it who polls the port.
static double first_answer(struct bench *b, const struct target *t)
{
	bool a = t && t->surface == SURFACE_A;
	struct client c = {.fd = -1};
	int port = bench_free_port();
	int64_t start = bench_now_ns();
	pid_t pid = spawn(b, t, port);
	int got = pid > 0 ? bench_connect(&c, port) : -ECHILD;
	if (got == 0)
		got = client_get(&c, a ? "/ready" : "/health");
	double ms = (double)(bench_now_ns() - start) / 1e6;
	if (got != (a ? 200 : 204))
		bench_wrong(b, "%s: first answer: %d", bench_name(t), got);
	client_close(&c);
	if (t && !t->command && pid > 0) {
		kill(pid, SIGTERM);
		waitpid(pid, NULL, 0);
	} else {
		bench_kill(pid);
	}
	return ms;
}

void bench_start(struct bench *b, struct target *t)
{
	enum { MOST = 20 };
	double ms[MOST];
	size_t n = b->quick || (t && t->command) ? MOST / 2 : MOST;
	int wrong = b->wrong;
	for (size_t i = 0; i < n && b->wrong == wrong; i++)
		ms[i] = first_answer(b, t);
	if (b->wrong == wrong)
		bench_put(b, ROW_START, t, bench_percentile(ms, n, 50));
}

// All of them while they idle together.
void bench_idle(struct bench *b, struct target *t)
{
	struct target floor = {.pid = bench_floor_server(b, bench_free_port())};
	double wakeups[1 + TARGETS_MAX], cpu[1 + TARGETS_MAX];
	(void)t;
	bench_pause_ms(SETTLE_MS);
	for (int i = 0; i <= b->targets; i++) {
		const struct target *of = i ? &b->target[i - 1] : &floor;
		wakeups[i] = bench_wakeups(of);
		cpu[i] = bench_cpu(of);
	}
	bench_pause_ms(IDLE_MS);
	for (int i = 0; i <= b->targets; i++) {
		const struct target *of = i ? &b->target[i - 1] : &floor, *to = i ? of : NULL;
		bench_put(b, ROW_IDLE_WAKEUPS, to, bench_wakeups(of) - wakeups[i]);
		bench_put(b, ROW_IDLE_CPU, to, (bench_cpu(of) - cpu[i]) * 1000);
		bench_put(b, ROW_IDLE_PSS, to, bench_pss(of));
	}
	bench_kill(floor.pid);
}
