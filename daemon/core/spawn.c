// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/spawn.h"

#include "daemon/core/cgroup.h"
#include "daemon/core/spawn_priv.h"
#include "daemon/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/futex.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
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

// From so many descriptors on a child gets no copies of them: to make those and to close them again takes a quarter of each start of 2000
// commands that stay.
#define SHARE_FROM 256

struct spawn_memory {
	int low[3]; // below SPAWN_LOW: the ends of a child that has its parent's descriptors; the last is -1 if that cannot be
	char *at;    // NULL: not mapped yet, or left to a child that would not die
	bool raised; // celld has its commands' score
	uint64_t ignored;
};

// Best effort.
static void reserve_low(struct spawn_base *b)
{
	int *low = b->memory->low;
	bool able = syscall(SYS_close_range, ~0u, ~0u, CLOSE_RANGE_UNSHARE) == 0 && b->devnull < (int)SPAWN_LOW;
	for (int i = 0; i < 3; i++) {
		low[i] = able ? fcntl(b->devnull, F_DUPFD_CLOEXEC, 3) : -1;
		able = low[i] >= 0 && low[i] < (int)SPAWN_LOW;
	}
	if (!able)
		io_close(&low[2]);
}

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
	if (!b->memory)
		return -ENOMEM;
	reserve_low(b);
	return 0;
}

void spawn_base_release(struct spawn_base *b)
{
	io_close(&b->devnull);
	if (b->memory && b->memory->at)
		munmap(b->memory->at, MEMORY_SIZE);
	for (int i = 0; b->memory && i < 3; i++)
		io_close(&b->memory->low[i]);
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

// Those that are ignored, the two that the C library hides as well.
static uint64_t ignored_signals(void)
{
	uint64_t set = 0;
	for (int sig = 1; sig < NSIG; sig++) {
		unsigned long action[8] = {0};
		if (syscall(SYS_rt_sigaction, sig, NULL, action, sizeof(uint64_t)) == 0 &&
			action[0] == (unsigned long)SIG_IGN)
			set |= (uint64_t)1 << (sig - 1);
	}
	return set;
}

// The child's memory, mapped once, by when celld ignores what it always will; NULL if there is none.
static struct child *take_child(struct spawn_memory *m)
{
	if (!m->at) {
		// Shared: where children are forked, what they report is here all the same.
		char *at = mmap(
			NULL, MEMORY_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		if (at == MAP_FAILED)
			return NULL;
		mprotect(at, GUARD_SIZE, PROT_NONE);
		m->at = at;
		m->ignored = ignored_signals();
	}
	return (struct child *)(void *)(m->at + GUARD_SIZE + STACK_SIZE);
}

static void prepare(struct child *c, const struct spawn_base *b, const struct spawn_spec *s, char **sh)
{
	c->base = b;
	c->spec = s;
	c->dirs = search_path(s);
	c->sh = sh;
	c->ignored = b->memory->ignored;
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

// PID's, or that of celld itself (0).
static int put_score(pid_t pid, int score)
{
	char path[48], text[16];
	snprintf(path, sizeof path, pid ? "/proc/%d/oom_score_adj" : "/proc/self/oom_score_adj", (int)pid);
	snprintf(text, sizeof text, "%d", score);
	return io_write_file(path, text);
}

// Whoever shares memory has one score, and the child is to have the commands' before it can fork: so celld has theirs, from a start on
// until spawn_settle. Best effort, as it is at start: a sandbox without the right to it still runs commands. Negative errno if it is not that.
static int raise_score(const struct spawn_base *b)
{
	if (b->own_oom == b->oom_score_adj || b->memory->raised)
		return 0;
	int rc = put_score(0, b->oom_score_adj);
	b->memory->raised = rc == 0;
	return rc == -EMFILE || rc == -ENFILE || rc == -ENOMEM ? rc : 0;
}

// Who may not write its own (not dumpable, and not root) may that of what it has started, though not in the very moment in which that
// takes on its program: it is still hidden then.
static void give_score(const struct spawn_base *b, pid_t pid)
{
	static const struct timespec moment = {.tv_nsec = 50000};
	if (b->own_oom == b->oom_score_adj || b->memory->raised || !b->own_proc)
		return;
	for (int tries = 0; tries < 20 && put_score(pid, b->oom_score_adj) == -EACCES; tries++)
		nanosleep(&moment, NULL);
}

bool spawn_settle(const struct spawn_base *b)
{
	if (b->memory && b->memory->raised)
		b->memory->raised = put_score(0, b->own_oom) < 0;
	return !b->memory || !b->memory->raised;
}

// --- the wait for the program ---

static bool is_stopped(pid_t pid)
{
	siginfo_t si = {0};
	return waitid(P_PID, (id_t)pid, &si, WSTOPPED | WNOHANG | WNOWAIT) == 0 && si.si_pid == pid;
}

// The child is a zombie or about to be one: collect it here, so that nobody else sees it. False if it does not die.
static bool collect(pid_t pid)
{
	for (int ms = 0; ms < DEATH_MS; ms++) {
		siginfo_t si = {0};
		if (waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG) == 0 && si.si_pid == pid)
			return true;
		poll(NULL, 0, 1);
	}
	return false;
}

static void give_up(struct spawn_memory *m, pid_t pid)
{
	kill(pid, SIGKILL);
	if (!collect(pid))
		m->at = NULL; // the kernel may still write to its stack
}

// False if nothing has happened for LOOK_MS.
static bool is_through(struct child *c)
{
	static const struct timespec look = {.tv_nsec = LOOK_MS * 1000000};
	int64_t end = io_mono_ns() + look.tv_nsec;
	if (c->needs.gate >= 0) {
		struct pollfd gate = {.fd = c->needs.gate, .events = POLLIN};
		return poll(&gate, 1, LOOK_MS) > 0;
	}
	while (__atomic_load_n(&c->busy, __ATOMIC_ACQUIRE)) {
		syscall(SYS_futex, &c->busy, FUTEX_WAIT, 1, &look, NULL, 0);
		if (io_mono_ns() >= end)
			return !__atomic_load_n(&c->busy, __ATOMIC_ACQUIRE);
	}
	return true;
}

// Until the child has run its program or failed. What it does meanwhile it does with the parent's errno: look at none here.
static int await(struct child *c, pid_t pid, enum spawn_step *step)
{
	struct spawn_memory *m = c->base->memory;
	int looks = 0;
	while (!is_through(c)) {
		bool stopped = is_stopped(pid);
		if (!stopped && ++looks < LOOKS_MAX)
			continue;
		give_up(m, pid);
		return stopped ? STOPPED : -ETIMEDOUT;
	}
	if (c->step == SPAWN_NONE)
		return 0;
	int rc = -c->err;
	*step = c->step;
	give_up(m, pid);
	return rc;
}

static void drop_shared(const struct spawn_base *b)
{
	for (int i = 0; i < 3; i++)
		dup3(b->devnull, b->memory->low[i], O_CLOEXEC);
}

// Its ends go where it finds them without those above. (What confines a child may need others.) False if it is to have copies.
static bool share_descriptors(struct child *c)
{
	const struct spawn_base *b = c->base;
	const int *fd = c->spec->fd;
	memcpy(c->fd, fd, sizeof c->fd);
	if (b->memory->low[2] < 0 || b->confine || (fd[0] < SHARE_FROM && fd[1] < SHARE_FROM && fd[2] < SHARE_FROM))
		return false;
	for (int i = 0; i < 3; i++) {
		if (fd[i] >= 0 && dup3(fd[i], b->memory->low[i], O_CLOEXEC) < 0) {
			drop_shared(b);
			return false;
		}
	}
	for (int i = 0; i < 3; i++)
		c->fd[i] = fd[i] < 0 ? -1 : b->memory->low[i];
	return true;
}

static int run_once(struct child *c, pid_t *pid, enum spawn_step *step)
{
	const struct spawn_base *b = c->base;
	int rc = raise_score(b);
	if (rc < 0)
		return rc;
	c->step = SPAWN_NONE;
	int group = c->spec->cgroup ? cgroup_fd(c->spec->cgroup) : -1;
	sigset_t all, old;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	bool share = share_descriptors(c);
	pid_t p =
		spawn_clone(b->memory->at + GUARD_SIZE, STACK_SIZE, spawn_child, c, group, share, &c->needs, &c->busy);
	rc = p < 0 ? p : await(c, p, step);
	if (share)
		drop_shared(b);
	if (p >= 0)
		io_close(&c->needs.gate);
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (rc < 0)
		return rc;
	give_score(b, p);
	*pid = p;
	*step = SPAWN_NONE;
	return 0;
}

int spawn_run(const struct spawn_base *b, const struct spawn_spec *s, pid_t *pid, enum spawn_step *step)
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
		rc = run_once(c, pid, step);
	}
	free(sh);
	return rc == STOPPED ? -EAGAIN : rc;
}
