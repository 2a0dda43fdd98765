// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/spawn.h"

#include "daemon/core/store.h"
#include "daemon/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/ioprio.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

// What the child half needs, all of it prepared; and where it reports, in memory that vfork shares.
struct child {
	const struct spawn_base *base;
	const struct spawn_spec *spec;
	const char *dirs; // PATH of the child; NULL: the program is a path itself
	char *path;       // PATH_MAX bytes for one candidate
	char **sh;        // like_shell: argv for /bin/sh, its second one still to be set
	bool switch_user;
	char oom[16];
	size_t oom_len;
	volatile enum spawn_step step;
	volatile int err;
};

// The kernel's struct sigaction all zero: SIG_DFL, no flags, an empty mask. The C library's call refuses the two signals that it keeps for
// itself, which may have been inherited as ignored.
static const unsigned long default_action[8];

int spawn_base_init(struct spawn_base *b, const struct rlimit *nofile, int original_oom)
{
	b->nofile = *nofile;
	b->oom_score_adj = original_oom > 100 ? original_oom : 100;
	char now[16];
	b->set_oom = io_read_file("/proc/self/oom_score_adj", now, sizeof now) > 0 && atoi(now) != b->oom_score_adj;
	b->devnull = open("/dev/null", O_RDWR | O_CLOEXEC);
	return b->devnull < 0 ? -errno : 0;
}

void spawn_base_release(struct spawn_base *b)
{
	io_close(&b->devnull);
}

static _Noreturn void child_fail(struct child *c, enum spawn_step step)
{
	c->err = errno;
	c->step = step;
	_exit(127);
}

// Raw calls: the C library's wrappers may take locks or talk to threads.
static void child_user(struct child *c)
{
	const struct user *u = c->spec->user;
	if (!c->switch_user)
		return;
	if (syscall(SYS_setgroups, u->group_count, u->groups) < 0 ||
		syscall(SYS_setresgid, u->gid, u->gid, u->gid) < 0 ||
		syscall(SYS_setresuid, u->uid, u->uid, u->uid) < 0)
		child_fail(c, SPAWN_USER);
}

// Not the command's doing: the caller is to know, also of one that is like_shell.
static bool is_ours(int err)
{
	return err == E2BIG || err == ENOMEM || err == EAGAIN;
}

// exec has failed for good. strerrordesc_np is a look-up in a constant table.
static _Noreturn void child_not_run(struct child *c, const char *path)
{
	if (!c->spec->like_shell || is_ours(errno))
		child_fail(c, SPAWN_EXEC);
	int err = errno;
	if (err == ENOEXEC) {
		c->sh[1] = (char *)path;
		execve(c->sh[0], c->sh, (char *const *)c->spec->env);
	}
	// Short enough for any pipe or terminal, as nobody reads it yet.
	char text[1200];
	const char *const parts[] = {"'", c->spec->path, "': ", strerrordesc_np(err), "\n"};
	size_t len = 0;
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		size_t n = strnlen(parts[i], 1024);
		memcpy(text + len, parts[i], n);
		len += n;
	}
	ssize_t ignored = write(2, text, len);
	(void)ignored;
	_exit(err == ENOENT ? 127 : 126);
}

// Returns only if that candidate is none: then whether it is a file that may not be run. Other failures are final.
static bool child_try(struct child *c, const char *path)
{
	const struct spawn_spec *s = c->spec;
	struct stat st;
	if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	execve(path, (char *const *)s->argv, (char *const *)s->env);
	if (errno != EACCES && errno != ENOENT && errno != ENOTDIR)
		child_not_run(c, path);
	return errno == EACCES;
}

// execvp's look-up, by the child because what may be run and where a relative entry leads depend on its identity and
// directory. A file that exists but cannot be run is remembered, as shells do.
static _Noreturn void child_exec(struct child *c)
{
	const struct spawn_spec *s = c->spec;
	if (!c->dirs) {
		execve(s->path, (char *const *)s->argv, (char *const *)s->env);
		child_not_run(c, s->path);
	}
	bool denied = false;
	size_t name = strlen(s->path) + 1;
	for (const char *p = c->dirs; p; p = *p ? p + 1 : NULL) {
		size_t n = strcspn(p, ":");
		if (name > 1 && n + 1 + name <= PATH_MAX) {
			memcpy(c->path, p, n);
			c->path[n] = '/';
			memcpy(c->path + n + (n > 0), s->path, name); // an empty entry is the working directory
			denied |= child_try(c, c->path);
		}
		p += n;
	}
	errno = denied ? EACCES : ENOENT;
	child_not_run(c, s->path);
}

// Between vfork and exec: async-signal-safe calls only, and nothing of the parent's memory is changed but struct child.
static _Noreturn void child_run(struct child *c)
{
	const struct spawn_spec *s = c->spec;
	store_child(s->slot);
	for (int sig = 1; sig < NSIG; sig++)
		syscall(SYS_rt_sigaction, sig, default_action, NULL, sizeof(uint64_t));
	if (setsid() < 0)
		child_fail(c, SPAWN_SETUP);
	for (int i = 0; i < 3; i++) {
		if (dup2(s->fd[i] < 0 ? c->base->devnull : s->fd[i], i) < 0)
			child_fail(c, SPAWN_SETUP);
	}
	if (s->controlling_tty && ioctl(0, TIOCSCTTY, 0) < 0)
		child_fail(c, SPAWN_SETUP);
	if (c->oom_len) {
		// Best effort, as it is at start: a sandbox without the right to it still runs commands.
		int fd = open("/proc/self/oom_score_adj", O_WRONLY);
		ssize_t ignored = fd < 0 ? 0 : write(fd, c->oom, c->oom_len);
		(void)ignored;
		close(fd);
	}
	if (s->even_priority) {
		syscall(SYS_setpriority, PRIO_PROCESS, 0, 0);
		syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 4));
	}
	syscall(SYS_close_range, 3u, ~0u, 0u); // where the kernel has no such call, close-on-exec does it
	if (setrlimit(RLIMIT_NOFILE, &c->base->nofile) < 0)
		child_fail(c, SPAWN_SETUP);
	child_user(c);
	if (chdir(s->cwd) < 0)
		child_fail(c, SPAWN_CWD);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	child_exec(c);
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

// The child has reported a failure and is about to be a zombie: collect it here, so that nobody else sees it.
static void collect(pid_t pid)
{
	siginfo_t si;
	while (waitid(P_PID, (id_t)pid, &si, WEXITED) < 0 && errno == EINTR)
		;
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

static pid_t start_child(struct child *c)
{
	pid_t pid = vfork();
	if (pid == 0)
		child_run(c);
	return pid;
}

static int run(const struct spawn_base *b, const struct spawn_spec *s, char **sh, pid_t *pid, int *pidfd,
	enum spawn_step *step)
{
	char path[PATH_MAX];
	struct child c = {.base = b,
		.spec = s,
		.dirs = search_path(s),
		.path = path,
		.sh = sh,
		.switch_user = s->user && s->user->uid != geteuid()};
	if (b->set_oom)
		c.oom_len = (size_t)snprintf(c.oom, sizeof c.oom, "%d", b->oom_score_adj);
	for (int i = 0; i < 3; i++)
		assert(s->fd[i] < 0 || s->fd[i] > 2);
	*step = SPAWN_PREPARE;
	// A descriptor for the pidfd is set aside first: with none left the command must not have run at all.
	int reserve = fcntl(b->devnull, F_DUPFD_CLOEXEC, 3);
	if (reserve < 0)
		return -errno;
	sigset_t all, old;
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pid_t p = start_child(&c);
	int rc = p < 0 ? -errno : 0;
	sigprocmask(SIG_SETMASK, &old, NULL);
	io_close(&reserve);
	if (rc < 0)
		return rc;
	if (c.step != SPAWN_NONE) {
		collect(p);
		*step = c.step;
		return -c.err;
	}
	*pidfd = (int)syscall(SYS_pidfd_open, p, 0);
	if (*pidfd < 0) {
		rc = -errno;
		kill(-p, SIGKILL);
		kill(p, SIGKILL);
		collect(p);
		return rc;
	}
	*pid = p;
	*step = SPAWN_NONE;
	return 0;
}

int spawn_run(const struct spawn_base *b, const struct spawn_spec *s, pid_t *pid, int *pidfd, enum spawn_step *step)
{
	*step = SPAWN_PREPARE;
	char **sh = s->like_shell ? sh_argv(s->argv) : NULL;
	if (s->like_shell && !sh)
		return -ENOMEM;
	int rc = run(b, s, sh, pid, pidfd, step);
	free(sh);
	return rc;
}
