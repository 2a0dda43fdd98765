// SPDX-License-Identifier: Apache-2.0
// The daemons that are measured, and the processes of the floors.
#include "tests/bench/bench.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define AWAIT_US ((int64_t)10000000)
#define ROOM ((uint64_t)1536 * 1024 * 1024)
#define ROOM_FILES 250000

// --- helpers ---

int64_t bench_now_ns(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

void bench_pause_ms(long ms)
{
	const struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	nanosleep(&ts, NULL);
}

int bench_listen(int *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one) < 0 ||
		bind(fd, (struct sockaddr *)&a, n) < 0 || listen(fd, 128) < 0 ||
		getsockname(fd, (struct sockaddr *)&a, &n) < 0) {
		perror("listen");
		exit(1);
	}
	*port = ntohs(a.sin_port);
	return fd;
}

// Also kept free: a connection that its server ends first leaves the port in TIME_WAIT, where the kernel gives it to no client
// that connects meanwhile, but to a server that sets SO_REUSEADDR.
int bench_free_port(void)
{
	struct client c;
	int port, listening = bench_listen(&port);
	int fd = client_open(&c, port) == 0 ? accept(listening, NULL, NULL) : -1;
	if (fd >= 0)
		close(fd);
	client_close(&c);
	close(listening);
	return port;
}

void bench_kill(pid_t pid)
{
	if (pid > 0 && kill(pid, SIGKILL) == 0)
		waitpid(pid, NULL, 0);
}

pid_t bench_spawn_floor(const struct bench *b, const char **argv, int out)
{
	argv[0] = "bench-floor";
	// As celld's and the peers' start: what a large bench pays for a fork is no part of the figures.
	pid_t pid = vfork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (out < 0 || dup2(out, 1) == 1)
			execv(b->floor, (char *const *)(uintptr_t)argv);
		_exit(127);
	}
	return pid;
}

pid_t bench_floor_server(const struct bench *b, int port)
{
	char text[16];
	const char *argv[] = {NULL, "serve", text, NULL};
	snprintf(text, sizeof text, "%d", port);
	return bench_spawn_floor(b, argv, -1);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

void bench_remove_tree(const char *dir)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *bench_room_make(char *dir, size_t n)
{
	struct statvfs fs;
	bool room = statvfs("/dev/shm", &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize >= ROOM &&
		    (fs.f_files == 0 || fs.f_favail >= ROOM_FILES);
	snprintf(dir, n, "%s/celld-XXXXXX", room ? "/dev/shm" : "/tmp");
	return mkdtemp(dir);
}

// --- peers ---

bool bench_add_peer(struct bench *b, char *text)
{
	char *colon = strchr(text, ':');
	if (!colon || b->targets == TARGETS_MAX || !strstr(colon, "{port}"))
		return false;
	*colon = '\0';
	char *equals = strchr(text, '=');
	const char *kind = equals ? equals + 1 : text;
	if (equals)
		*equals = '\0';
	bool a = strcmp(kind, "sandboxd") == 0;
	if (!a && strcmp(kind, "envd") != 0)
		return false;
	b->target[b->targets++] =
		(struct target){.name = text, .surface = a ? SURFACE_A : SURFACE_B, .command = colon + 1};
	return true;
}

pid_t bench_spawn_peer(const struct target *t, int port, const char *file)
{
	char command[2048];
	const char *at = strstr(t->command, "{port}");
	int n = snprintf(command, sizeof command, "exec %.*s%d%s", (int)(at - t->command), t->command, port,
		at + sizeof "{port}" - 1);
	int log = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (log < 0 || n >= (int)sizeof command)
		return -1;
	pid_t pid = vfork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (dup2(log, 1) == 1 && dup2(log, 2) == 2)
			execl("/bin/sh", "sh", "-c", command, (char *)NULL);
		_exit(127);
	}
	close(log);
	return pid;
}

int bench_connect(struct client *c, int port)
{
	const struct timespec pause = {.tv_nsec = 200000};
	int64_t end = client_now_us() + AWAIT_US * client_scale();
	int rc;
	while ((rc = client_open(c, port)) < 0 && client_now_us() < end) {
		client_close(c);
		nanosleep(&pause, NULL);
	}
	return rc;
}

bool bench_await(int port)
{
	struct client c;
	int rc = bench_connect(&c, port);
	client_close(&c);
	return rc == 0;
}

static int start_peer(struct bench *b, struct target *t)
{
	char log[512];
	snprintf(log, sizeof log, "%s/%d.log", b->dir, (int)(t - b->target));
	t->port = bench_free_port();
	t->pid = bench_spawn_peer(t, t->port, log);
	if (t->pid > 0 && bench_await(t->port))
		return 0;
	fprintf(stderr, "%s did not listen\n", t->name);
	return -1;
}

// --- all ---

bool bench_place_floor(struct bench *b, char *path, size_t n)
{
	char piece[65536];
	ssize_t got = -1;
	snprintf(path, n, "%s/bench-floor", b->dir);
	int from = open(b->floor, O_RDONLY | O_CLOEXEC), to = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	while (from >= 0 && to >= 0 && (got = read(from, piece, sizeof piece)) > 0)
		if (write(to, piece, (size_t)got) != got)
			break;
	close(from);
	b->floor = path;
	return close(to) == 0 && got == 0 && chmod(b->dir, 0755) == 0 && chmod(b->room, 0777) == 0;
}

int bench_targets_start(struct bench *b)
{
	if (sandbox_start(&b->box, b->celld, b->room, false) < 0)
		return -1;
	for (int i = 0; i < b->targets; i++) {
		struct target *t = &b->target[i];
		if (!t->command) {
			t->pid = b->box.init;
			t->port = t->surface == SURFACE_A ? b->box.port : b->box.envd_port;
		} else if (start_peer(b, t) < 0) {
			return -1;
		}
	}
	return 0;
}

void bench_targets_stop(struct bench *b)
{
	int status = sandbox_stop(&b->box);
	if (status != 0) {
		bench_wrong(b, "celld: exit status %d after TERM", status);
		sandbox_print_log(&b->box);
	}
	for (int i = 0; i < b->targets; i++)
		if (b->target[i].command)
			bench_kill(b->target[i].pid);
}
