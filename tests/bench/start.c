// SPDX-License-Identifier: Apache-2.0
// How fast it is there, and what it costs while nothing happens.
#include "tests/bench/bench.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define IDLE_S 3

int bench_listen(int *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&a, n) < 0 || listen(fd, 64) < 0 ||
		getsockname(fd, (struct sockaddr *)&a, &n) < 0) {
		perror("listen");
		exit(1);
	}
	*port = ntohs(a.sin_port);
	return fd;
}

static void serve(int listening)
{
	static const char answer[] = "HTTP/1.1 204 No Content\r\n\r\n";
	char request[4096];
	for (;;) {
		int fd = accept(listening, NULL, NULL);
		while (read(fd, request, sizeof request) > 0)
			if (write(fd, answer, sizeof answer - 1) < 0)
				break;
		close(fd);
	}
}

pid_t bench_floor_server(int fd)
{
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		serve(fd);
	}
	return pid;
}

static pid_t spawn_celld(const struct bench *b, int fd)
{
	char spec[32], workspace[256];
	snprintf(spec, sizeof spec, "fd:%d", fd);
	snprintf(workspace, sizeof workspace, "%s/start", b->dir);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (freopen("/dev/null", "w", stderr))
			execl(b->celld, b->celld, "--init", "--listen", spec, "--envd-listen", "off", "--workspace",
				workspace, "--venv", "off", "--user", sandbox_user(), (char *)NULL);
		_exit(127);
	}
	return pid;
}

// From before the fork to an answer with STATUS. The socket listens already, so that no polling blurs the time: the kernel
// holds the connection until it is accepted.
static double first_answer(struct bench *b, bool celld, int status)
{
	struct client c;
	int port, fd = bench_listen(&port);
	int64_t start = client_now_us();
	pid_t pid = celld ? spawn_celld(b, fd) : bench_floor_server(fd);
	int got = client_open(&c, port);
	if (got == 0)
		got = client_get(&c, "/ready");
	double ms = (double)(client_now_us() - start) / 1000;
	if (got != status)
		bench_wrong(b, "first answer: %d, want %d", got, status);
	client_close(&c);
	close(fd);
	kill(pid, celld ? SIGTERM : SIGKILL);
	waitpid(pid, NULL, 0);
	return ms;
}

void bench_start(struct bench *b)
{
	enum { MOST = 20 };
	double floor[MOST], celld[MOST];
	size_t n = b->quick ? MOST / 2 : MOST;
	int wrong = b->wrong;
	for (size_t i = 0; i < n && b->wrong == wrong; i++) {
		floor[i] = first_answer(b, false, 204);
		celld[i] = first_answer(b, true, 200);
	}
	if (b->wrong != wrong)
		return;
	bench_floor(b, ROW_START, bench_percentile(floor, n, 50));
	bench_celld(b, ROW_START, bench_percentile(celld, n, 50));
}

// The number behind KEY in /proc/PID/FILE, or 0.
static double proc_value(pid_t pid, const char *file, const char *key)
{
	char path[64], line[256];
	double v = 0;
	snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, file);
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		if (strncmp(line, key, strlen(key)) == 0)
			v = strtod(line + strlen(key), NULL);
	if (f)
		fclose(f);
	return v;
}

static double wakeups(pid_t pid)
{
	return proc_value(pid, "status", "voluntary_ctxt_switches:");
}

double bench_cpu(pid_t pid)
{
	char path[64], line[1024];
	unsigned long user = 0, system = 0;
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	FILE *f = fopen(path, "re");
	const char *at = f && fgets(line, sizeof line, f) ? strrchr(line, ')') : NULL;
	if (at && sscanf(at + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user, &system) != 2)
		user = system = 0;
	if (f)
		fclose(f);
	return (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
}

void bench_idle(struct bench *b)
{
	int port, fd = bench_listen(&port);
	pid_t floor = bench_floor_server(fd), init = b->box.init, daemon = sandbox_daemon(&b->box);
	const struct timespec settle = {.tv_nsec = 100000000}, idle = {.tv_sec = IDLE_S};
	close(fd);
	nanosleep(&settle, NULL);
	double floor0 = wakeups(floor), celld0 = wakeups(init) + wakeups(daemon);
	nanosleep(&idle, NULL);
	bench_floor(b, ROW_WAKEUPS, wakeups(floor) - floor0);
	bench_celld(b, ROW_WAKEUPS, wakeups(init) + wakeups(daemon) - celld0);
	bench_floor(b, ROW_PSS, proc_value(floor, "smaps_rollup", "Pss:"));
	bench_celld(b, ROW_PSS, proc_value(init, "smaps_rollup", "Pss:") + proc_value(daemon, "smaps_rollup", "Pss:"));
	kill(floor, SIGKILL);
	waitpid(floor, NULL, 0);
}
