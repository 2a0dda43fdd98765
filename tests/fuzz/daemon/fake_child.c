// SPDX-License-Identifier: Apache-2.0
// Children without processes: spawn_run, waitid, kill, the look at trees and terminals.
#include "daemon/core/pty.h"
#include "daemon/core/spawn.h"
#include "daemon/core/tree.h"
#include "daemon/io.h"
#include "tests/fuzz/daemon/fake.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN = 64, FIRST_PID = 100, PIECE = 4096, BIG = 300 * 1024 };

struct child {
	pid_t pid; // 0 = none
	int fd[3];
	bool cat, stays, ended;
	size_t says; // bytes of stdout that are left
	int code, sig;
};

static _Thread_local struct child children[CHILDREN];
static _Thread_local pid_t last_pid;

int __wrap_spawn_run(const struct spawn_base *b, const struct spawn_spec *spec, pid_t *pid, enum spawn_step *step);
int __real_waitid(idtype_t type, id_t id, siginfo_t *si, int options);
int __wrap_waitid(idtype_t type, id_t id, siginfo_t *si, int options);
int __real_kill(pid_t pid, int sig);
int __wrap_kill(pid_t pid, int sig);
int __wrap_tree_stat(pid_t pid, struct tree_stat *out);
int __wrap_tree_each(int (*fn)(void *arg, const struct tree_stat *s), void *arg);
int __wrap_tree_signal(pid_t root, pid_t self, int sig);
int __wrap_tree_signal_all(pid_t top, pid_t spare, int sig);
int __wrap_tree_session(pid_t session, pid_t self, enum tree_act act);
bool __wrap_tree_sweep(DIR *proc, size_t max, pid_t session, enum tree_act act, size_t *found);
bool __wrap_tree_group_in(pid_t pgrp, pid_t session);
int __wrap_pty_open(int *master, int *slave, const struct pty_size *size, uid_t owner);
int __wrap_pty_resize(int master, const struct pty_size *size);
int __wrap_pty_foreground(int master, pid_t *pgrp);

static void end(struct child *c, int sig)
{
	if (c->ended)
		return;
	c->ended = true;
	c->sig = sig;
	for (int i = 0; i < 3; i++)
		io_close(&c->fd[i]);
}

// --- what it does ---

static bool ready(int fd, short events)
{
	struct pollfd p = {.fd = fd, .events = events};
	return fd >= 0 && poll(&p, 1, 0) > 0;
}

// True if it is through.
static bool give_back(struct child *c)
{
	char piece[PIECE];
	if (c->fd[0] < 0)
		return true;
	if (!ready(c->fd[0], POLLIN) || !ready(c->fd[1], POLLOUT))
		return false;
	ssize_t n = read(c->fd[0], piece, sizeof piece);
	return n <= 0 || write(c->fd[1], piece, (size_t)n) < 0;
}

static bool say(struct child *c)
{
	static const char line[] = "a line of some output\n";
	char piece[PIECE];
	size_t n = c->says < sizeof piece ? c->says : sizeof piece;
	if (!c->says || c->fd[1] < 0)
		return true;
	if (!ready(c->fd[1], POLLOUT))
		return false;
	for (size_t i = 0; i < n; i++)
		piece[i] = line[i % (sizeof line - 1)];
	ssize_t put = write(c->fd[1], piece, n);
	c->says -= put > 0 ? (size_t)put : c->says;
	return !c->says;
}

bool fake_children_turn(void)
{
	bool any = false;
	for (struct child *c = children; c < children + CHILDREN; c++) {
		if (!c->pid || c->ended || !say(c) || c->stays || (c->cat && !give_back(c)))
			continue;
		if (ready(c->fd[2], POLLOUT))
			(void)!write(c->fd[2], "err\n", 4);
		end(c, 0);
		any = true;
	}
	return any;
}

void fake_children_end(void)
{
	for (struct child *c = children; c < children + CHILDREN; c++) {
		if (c->pid)
			end(c, SIGKILL);
	}
}

void fake_children_free(void)
{
	fake_children_end();
	memset(children, 0, sizeof children);
	last_pid = 0;
}

// --- how it begins and ends ---

int __wrap_spawn_run(const struct spawn_base *b, const struct spawn_spec *spec, pid_t *pid, enum spawn_step *step)
{
	struct child *c = children;
	struct stat st;
	const char *line = "";
	(void)b;
	for (const char *const *a = spec->argv; *a; a++)
		line = *a;
	while (c < children + CHILDREN && c->pid)
		c++;
	*step = c == children + CHILDREN ? SPAWN_SETUP : SPAWN_CWD;
	if (c == children + CHILDREN)
		return -EAGAIN;
	if (stat(spec->cwd, &st) < 0)
		return -errno;
	*step = SPAWN_EXEC;
	if (strstr(line, "missing"))
		return -ENOENT;
	*c = (struct child){.pid = FIRST_PID + ++last_pid, .code = (int)(strlen(line) % 4)};
	c->cat = strstr(line, "cat");
	c->stays = strstr(line, "sleep");
	c->says = strstr(line, "big") ? BIG : 22;
	for (int i = 0; i < 3; i++)
		c->fd[i] = spec->fd[i] < 0 ? -1 : fcntl(spec->fd[i], F_DUPFD_CLOEXEC, 3);
	*pid = c->pid;
	*step = SPAWN_NONE;
	return 0;
}

int __wrap_waitid(idtype_t type, id_t id, siginfo_t *si, int options)
{
	bool any = false;
	if (!fake_on())
		return __real_waitid(type, id, si, options);
	memset(si, 0, sizeof *si);
	for (struct child *c = children; c < children + CHILDREN; c++) {
		if (!c->pid || (type == P_PID && (pid_t)id != c->pid))
			continue;
		any = true;
		if (!c->ended)
			continue;
		si->si_pid = c->pid;
		si->si_code = c->sig ? CLD_KILLED : CLD_EXITED;
		si->si_status = c->sig ? c->sig : c->code;
		if (!(options & WNOWAIT))
			c->pid = 0;
		return 0;
	}
	errno = ECHILD;
	return any ? 0 : -1;
}

static int living(pid_t pid, int sig)
{
	int n = 0;
	for (struct child *c = children; c < children + CHILDREN; c++) {
		if (!c->pid || c->ended || (pid && c->pid != pid))
			continue;
		n++;
		if (sig == SIGKILL || sig == SIGTERM || sig == SIGINT || sig == SIGHUP)
			end(c, sig);
	}
	return n;
}

int __wrap_kill(pid_t pid, int sig)
{
	if (!fake_on())
		return __real_kill(pid, sig);
	FUZZ_CHECK(pid != 0);
	pid = pid < 0 ? -pid : pid;
	if (pid == 1 || living(pid, sig))
		return 0;
	for (struct child *c = children; c < children + CHILDREN; c++) {
		if (c->pid == pid)
			return 0; // a zombie takes them all
	}
	errno = ESRCH;
	return -1;
}

// --- trees, terminals ---

int __wrap_tree_stat(pid_t pid, struct tree_stat *out)
{
	for (struct child *c = children; c < children + CHILDREN; c++) {
		if (!c->pid || c->pid != pid)
			continue;
		*out = (struct tree_stat){
			.pid = pid, .ppid = 1, .pgrp = pid, .session = pid, .threads = 1, .comm = "a) b"};
		out->state = c->ended ? 'Z' : 'S';
		return 0;
	}
	return -ESRCH;
}

int __wrap_tree_each(int (*fn)(void *arg, const struct tree_stat *s), void *arg)
{
	int rc = 0;
	for (struct child *c = children; c < children + CHILDREN && rc == 0; c++) {
		struct tree_stat st;
		if (c->pid && __wrap_tree_stat(c->pid, &st) == 0)
			rc = fn(arg, &st);
	}
	return rc;
}

int __wrap_tree_signal(pid_t root, pid_t self, int sig)
{
	(void)self;
	return living(root, sig);
}

int __wrap_tree_signal_all(pid_t top, pid_t spare, int sig)
{
	(void)top, (void)spare;
	return living(0, sig);
}

int __wrap_tree_session(pid_t session, pid_t self, enum tree_act act)
{
	(void)self;
	return living(session, act == TREE_KILL ? SIGKILL : act == TREE_HANG_UP ? SIGHUP : 0);
}

bool __wrap_tree_sweep(DIR *proc, size_t max, pid_t session, enum tree_act act, size_t *found)
{
	(void)proc, (void)max;
	*found += (size_t)__wrap_tree_session(session, 0, act);
	return true;
}

bool __wrap_tree_group_in(pid_t pgrp, pid_t session)
{
	return pgrp == session;
}

int __wrap_pty_open(int *master, int *slave, const struct pty_size *size, uid_t owner)
{
	int fds[2] = {-1, -1};
	(void)size, (void)owner;
	int rc = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) < 0 ? -errno : io_set_nonblock(fds[0]);
	*master = fds[0];
	*slave = fds[1];
	return rc;
}

int __wrap_pty_resize(int master, const struct pty_size *size)
{
	(void)master, (void)size;
	return 0;
}

int __wrap_pty_foreground(int master, pid_t *pgrp)
{
	(void)master;
	*pgrp = last_pid ? FIRST_PID + last_pid : -1;
	return 0;
}
