// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/cgroup.h"
#include "daemon/core/confine.h"
#include "daemon/core/spawn_priv.h"
#include "daemon/core/store.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/close_range.h>
#include <linux/ioprio.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// These functions never return, on a stack that AddressSanitizer does not know: it must not keep frames for them, nor clean up there.
#define ON_OWN_STACK __attribute__((no_sanitize("address")))

// The kernel's struct sigaction all zero: SIG_DFL, no flags, an empty mask. The C library's call refuses the two signals that it keeps for
// itself, which may have been inherited as ignored.
static const unsigned long default_action[8];

ON_OWN_STACK static _Noreturn void child_fail(struct child *c, enum spawn_step step)
{
	c->err = errno;
	c->step = step;
	_exit(127);
}

// Raw calls: the C library's wrappers may take locks or talk to threads.
ON_OWN_STACK static void child_user(struct child *c)
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
ON_OWN_STACK static _Noreturn void child_not_run(struct child *c, const char *path)
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
ON_OWN_STACK static bool child_try(struct child *c, const char *path)
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
ON_OWN_STACK static _Noreturn void child_exec(struct child *c)
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

// All but 0-2 go when the program is run, since what keeps the child from things needs some of them; where the kernel has no such call,
// close-on-exec does it.
ON_OWN_STACK static void child_close(void)
{
	(void)syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
}

ON_OWN_STACK static void child_descriptors(struct child *c)
{
	const struct spawn_spec *s = c->spec;
	if (c->needs.part && syscall(SYS_close_range, SPAWN_LOW, ~0u, CLOSE_RANGE_UNSHARE) < 0)
		child_fail(c, SPAWN_SETUP);
	if (c->needs.join) {
		int fd = openat(cgroup_fd(s->cgroup), "cgroup.procs", O_WRONLY | O_CLOEXEC);
		if (fd < 0 || write(fd, "0", 1) < 0)
			child_fail(c, SPAWN_SETUP);
	}
	for (int i = 0; i < 3; i++) {
		if (dup2(c->fd[i] < 0 ? c->base->devnull : c->fd[i], i) < 0)
			child_fail(c, SPAWN_SETUP);
	}
	if (s->controlling_tty && ioctl(0, TIOCSCTTY, 0) < 0)
		child_fail(c, SPAWN_SETUP);
	child_close();
}

ON_OWN_STACK static void child_limits(struct child *c)
{
	for (int i = 0; i < LIMITS_COUNT; i++) {
		if (c->limits.set & 1u << i && setrlimit((__rlimit_resource_t)i, &c->limits.value[i]) < 0)
			child_fail(c, SPAWN_SETUP);
	}
}

ON_OWN_STACK _Noreturn void spawn_child(void *arg)
{
	struct child *c = arg;
	const struct spawn_spec *s = c->spec;
	store_child(s->slot);
	for (int sig = 1; sig < NSIG; sig++) {
		if (c->needs.reset || c->ignored >> (sig - 1) & 1)
			syscall(SYS_rt_sigaction, sig, default_action, NULL, sizeof(uint64_t));
	}
	if (setsid() < 0)
		child_fail(c, SPAWN_SETUP);
	child_descriptors(c);
	if (s->even_priority) {
		syscall(SYS_setpriority, PRIO_PROCESS, 0, 0);
		syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, 0, IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 4));
	}
	child_limits(c);
	int rc = confine_child_caps(c->base->confine);
	if (rc == 0) {
		child_user(c);
		rc = confine_child_enter(c->base->confine);
	}
	if (rc < 0) {
		errno = -rc;
		child_fail(c, SPAWN_SETUP);
	}
	if (chdir(s->cwd) < 0)
		child_fail(c, SPAWN_CWD);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	child_exec(c);
}
