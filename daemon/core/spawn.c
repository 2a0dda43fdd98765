// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/spawn.h"

#include "daemon/core/cgroup.h"
#include "daemon/core/spawn_clone.h"
#include "daemon/core/spawn_priv.h"
#include "daemon/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

// struct child at the end, below it the child's stack, before it a page that catches what outgrows it.
#define MEMORY_SIZE ((size_t)256 * 1024)
#define GUARD_SIZE ((size_t)64 * 1024)
#define STACK_SIZE ((MEMORY_SIZE - GUARD_SIZE - sizeof(struct child)) / 16 * 16)

// A child that has not run its program by then is looked at, every so often.
#define LOOK_MS 50
#define LOOKS_MAX (2000 / LOOK_MS)
// A killed one that is not dead by then hangs in the kernel.
#define DEATH_MS 500
// Somebody stopped the child: no errno.
#define STOPPED (-5000)

struct spawn_memory {
	char *at; // NULL: not mapped yet, or left to a child that would not die
};

int spawn_base_init(struct spawn_base *b, const struct rlimit *nofile, int original_oom)
{
	char now[16];
	b->nofile = *nofile;
	b->oom_score_adj = original_oom > 100 ? original_oom : 100;
	b->own_oom = b->oom_score_adj;
	if (io_read_file("/proc/self/oom_score_adj", now, sizeof now) > 0)
		b->own_oom = atoi(now);
	ssize_t n = readlink("/proc/self", now, sizeof now - 1);
	now[n > 0 ? n : 0] = '\0';
	b->own_proc = atoi(now) == getpid();
	b->devnull = IO_AGAIN(open("/dev/null", O_RDWR | O_CLOEXEC));
	if (b->devnull < 0)
		return -errno;
	b->memory = calloc(1, sizeof *b->memory);
	return b->memory ? 0 : -ENOMEM;
}

void spawn_base_release(struct spawn_base *b)
{
	io_close(&b->devnull);
	if (b->memory && b->memory->at)
		munmap(b->memory->at, MEMORY_SIZE);
	free(b->memory);
	b->memory = NULL;
}

static const char *env_get(const char *const *env, const char *name)
{
	size_t n = strlen(name);
	for (; *env; env++) {
		if (strncmp(*env, name, n) == 0 && (*env)[n] == '=')
			return *env + n + 1;
	}
	return NULL;
}

// Where the child looks for its program; NULL if that is a path itself.
static const char *search_path(const struct spawn_spec *s)
{
	if (strchr(s->path, '/'))
		return NULL;
	const char *path = env_get(s->env, "PATH");
	return path ? path : "/usr/bin:/bin";
}

// {"/bin/sh", NULL, ARGV[1], ...}; freed by the caller. NULL when out of memory.
static char **sh_argv(const char *const *argv)
{
	size_t n = 1;
	while (argv[0] && argv[n])
		n++;
	char **sh = calloc(n + 2, sizeof *sh);
	if (!sh)
		return NULL;
	sh[0] = (char *)"/bin/sh";
	memcpy(sh + 2, argv + 1, (n - 1) * sizeof *sh);
	return sh;
}

// The child's memory, mapped once; NULL if there is none.
static struct child *take_child(struct spawn_memory *m)
{
	if (!m->at) {
		char *at = mmap(NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
		if (at == MAP_FAILED)
			return NULL;
		mprotect(at, GUARD_SIZE, PROT_NONE);
		m->at = at;
	}
	return (struct child *)(void *)(m->at + GUARD_SIZE + STACK_SIZE);
}

static void prepare(struct child *c, const struct spawn_base *b, const struct spawn_spec *s, char **sh)
{
	c->base = b;
	c->spec = s;
	c->dirs = search_path(s);
	c->sh = sh;
	c->switch_user = s->user && s->user->uid != geteuid();
	c->limits.set = 1u << RLIMIT_NOFILE;
	c->limits.value[RLIMIT_NOFILE] = b->nofile;
	if (b->limits)
		limits_over(&c->limits, b->limits);
	if (s->limits)
		limits_over(&c->limits, s->limits);
	for (int i = 0; i < 3; i++)
		assert(s->fd[i] < 0 || s->fd[i] > 2);
}

// --- the score that the kernel kills by ---

static bool put_score(int fd, int score)
{
	char text[16];
	int n = snprintf(text, sizeof text, "%d", score);
	return pwrite(fd, text, (size_t)n, 0) == n;
}

// Whoever shares memory has one score, and the child is to have the commands' before it can fork: so celld has theirs for the time of a
// start. Best effort, as it is at start: a sandbox without the right to it still runs commands.
static int begin_score(const struct spawn_base *b)
{
	if (b->own_oom == b->oom_score_adj)
		return -1;
	int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
	if (fd >= 0 && !put_score(fd, b->oom_score_adj))
		io_close(&fd);
	return fd;
}

// Who may not open its own (not dumpable, and not root) may that of what it has started: PID, or 0.
static void end_score(const struct spawn_base *b, int fd, pid_t pid)
{
	char path[48];
	if (fd >= 0) {
		put_score(fd, b->own_oom);
		close(fd);
	} else if (pid > 0 && b->own_oom != b->oom_score_adj && b->own_proc) {
		snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)pid);
		fd = open(path, O_WRONLY | O_CLOEXEC);
		if (fd >= 0)
			put_score(fd, b->oom_score_adj);
		io_close(&fd);
	}
}

// --- the wait for the program ---

static bool is_stopped(pid_t pid)
{
	siginfo_t si = {0};
	return waitid(P_PID, (id_t)pid, &si, WSTOPPED | WNOHANG | WNOWAIT) == 0 && si.si_pid == pid;
}

// The child is a zombie or about to be one: collect it here, so that nobody else sees it. False if it does not die.
static bool collect(pid_t pid, int pidfd)
{
	struct pollfd dead = {.fd = pidfd, .events = POLLIN};
	siginfo_t si;
	return poll(&dead, 1, DEATH_MS) == 1 && waitid(P_PID, (id_t)pid, &si, WEXITED) == 0;
}

static void give_up(struct spawn_memory *m, pid_t pid, int pidfd)
{
	kill(pid, SIGKILL);
	if (!collect(pid, pidfd))
		m->at = NULL; // the kernel may still write to its stack
}

// Until the child has run its program or failed. What it does meanwhile it does with the parent's errno: look at none here.
static int await(struct child *c, pid_t pid, int pidfd, int alive, enum spawn_step *step)
{
	struct pollfd gone = {.fd = alive, .events = POLLIN};
	struct spawn_memory *m = c->base->memory;
	int looks = 0;
	while (poll(&gone, 1, LOOK_MS) != 1) {
		bool stopped = is_stopped(pid);
		if (!stopped && ++looks < LOOKS_MAX)
			continue;
		give_up(m, pid, pidfd);
		return stopped ? STOPPED : -ETIMEDOUT;
	}
	if (c->step == SPAWN_NONE)
		return 0;
	int rc = -c->err;
	*step = c->step;
	give_up(m, pid, pidfd);
	return rc;
}

static int run_once(struct child *c, pid_t *pid, int *pidfd, enum spawn_step *step)
{
	const struct spawn_base *b = c->base;
	int alive[2], fd = -1;
	int rc = io_pipe(alive);
	if (rc < 0)
		return rc;
	c->alive = alive[1];
	c->step = SPAWN_NONE;
	int score = begin_score(b);
	int group = c->spec->cgroup ? cgroup_fd(c->spec->cgroup) : -1;
	sigset_t all, old;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pid_t p = spawn_clone(b->memory->at + GUARD_SIZE, STACK_SIZE, spawn_child, c, group, &c->join, &fd);
	close(alive[1]);
	rc = p < 0 ? p : await(c, p, fd, alive[0], step);
	sigprocmask(SIG_SETMASK, &old, NULL);
	close(alive[0]);
	end_score(b, score, rc < 0 ? 0 : p);
	if (rc == 0 && fd < 0) { // before Linux 5.2
		kill(p, SIGKILL);
		waitid(P_PID, (id_t)p, &(siginfo_t){0}, WEXITED);
		rc = -ENOSYS;
	}
	if (rc < 0) {
		io_close(&fd);
		return rc;
	}
	*pid = p;
	*pidfd = fd;
	*step = SPAWN_NONE;
	return 0;
}

int spawn_run(const struct spawn_base *b, const struct spawn_spec *s, pid_t *pid, int *pidfd, enum spawn_step *step)
{
	*step = SPAWN_PREPARE;
	char **sh = s->like_shell ? sh_argv(s->argv) : NULL;
	int rc = s->like_shell && !sh ? -ENOMEM : STOPPED;
	for (int i = 0; i < 2 && rc == STOPPED; i++) {
		struct child *c = take_child(b->memory);
		if (!c) {
			rc = -ENOMEM;
			break;
		}
		prepare(c, b, s, sh);
		rc = run_once(c, pid, pidfd, step);
	}
	free(sh);
	return rc == STOPPED ? -EAGAIN : rc;
}
