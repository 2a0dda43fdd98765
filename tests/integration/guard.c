// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/guard.h"
#include "tests/integration/procfs.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Bytes of the log that a failed test prints at most.
#define DUMP_MAX ((off_t)64 * 1024)

extern char **environ;

static void say(int ctl, int word, int value)
{
	struct guard_msg m = {word, value};
	(void)!send(ctl, &m, sizeof m, MSG_NOSIGNAL);
}

// The tests' own variables and whatever the caller's shell has set for celld must not reach the binary.
static void child_env(const struct guard_spec *spec)
{
	for (size_t i = 0; environ[i];) {
		const char *eq = strchr(environ[i], '=');
		if (strncmp(environ[i], "CELLD", 5) != 0 || !eq) {
			i++;
			continue;
		}
		char name[128];
		(void)snprintf(name, sizeof name, "%.*s", (int)(eq - environ[i]), environ[i]);
		if (unsetenv(name) < 0)
			_exit(126);
		i = 0;
	}
	for (size_t i = 0; spec->env && spec->env[i]; i++)
		(void)putenv((char *)(uintptr_t)spec->env[i]);
}

static void child_run(const struct guard_spec *spec, const sigset_t *mask)
{
	int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int log = open(spec->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	if (null < 0 || log < 0 || dup2(null, 0) < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		_exit(126);
	child_env(spec);
	if (spec->nofile) {
		struct rlimit lim = {spec->nofile, spec->nofile};
		if (setrlimit(RLIMIT_NOFILE, &lim) < 0)
			_exit(126);
	}
	(void)signal(SIGPIPE, SIG_DFL);
	(void)sigprocmask(SIG_SETMASK, mask, NULL);
	execvp(spec->argv[0], spec->argv);
	dprintf(2, "cannot execute %s: %s\n", spec->argv[0], strerror(errno));
	_exit(127);
}

// Kills and reaps until nothing is left below the guard: what a killed process leaves behind becomes the guard's own.
static void kill_all(void)
{
	struct pinfo p[256];
	for (int round = 0; round < 2000; round++) {
		size_t n = procs_below(getpid(), p, sizeof p / sizeof p[0]);
		for (size_t i = 0; i < n && i < sizeof p / sizeof p[0]; i++)
			(void)kill(p[i].pid, SIGKILL);
		while (waitpid(-1, NULL, WNOHANG) > 0)
			;
		if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD)
			return;
		(void)poll(NULL, 0, 5);
	}
}

static void dump(const char *log)
{
	int fd = open(log, O_RDONLY | O_CLOEXEC);
	struct stat st;
	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_size > DUMP_MAX)
		(void)lseek(fd, st.st_size - DUMP_MAX, SEEK_SET);
	dprintf(2, "--- the daemon's stderr ---\n");
	char part[4096];
	ssize_t n;
	while ((n = read(fd, part, sizeof part)) > 0)
		(void)!write(2, part, (size_t)n);
	dprintf(2, "--- end ---\n");
	(void)close(fd);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st;
	(void)type;
	(void)ftw;
	(void)remove(path);
	return 0;
}

void guard_remove_tree(const char *dir)
{
	(void)nftw(dir, remove_one, 32, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}

static void reap(int ctl, pid_t child)
{
	int status;
	pid_t pid;
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		if (pid == child)
			say(ctl, GUARD_EXITED, status);
}

// Serves until the test closes its end; true if it said that all went well.
static bool serve(int ctl, int sfd, pid_t child)
{
	bool quiet = false;
	struct pollfd p[2] = {{ctl, POLLIN, 0}, {sfd, POLLIN, 0}};
	for (;;) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			return quiet;
		if (p[1].revents) {
			struct signalfd_siginfo si;
			(void)!read(sfd, &si, sizeof si);
			reap(ctl, child);
		}
		if (p[0].revents) {
			char c;
			if (recv(ctl, &c, 1, 0) <= 0)
				return quiet;
			quiet = quiet || c == GUARD_QUIET;
		}
	}
}

static void guard_main(const struct guard_spec *spec, int ctl)
{
	sigset_t chld;
	sigset_t old;
	(void)setsid();
	(void)prctl(PR_SET_CHILD_SUBREAPER, 1L, 0L, 0L, 0L);
	(void)sigemptyset(&chld);
	(void)sigaddset(&chld, SIGCHLD);
	(void)sigprocmask(SIG_BLOCK, &chld, &old);
	// Sockets of the test's earlier clients must not live on here.
	if (ctl != 3 && dup3(ctl, 3, O_CLOEXEC) < 0)
		_exit(1);
	ctl = 3;
	(void)close_range(4, ~0U, 0);
	int sfd = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
	pid_t child = fork();
	if (child == 0)
		child_run(spec, &old);
	if (child < 0)
		say(ctl, GUARD_FAILED, errno);
	else
		say(ctl, GUARD_STARTED, child);
	bool quiet = serve(ctl, sfd, child);
	kill_all();
	if (!quiet)
		dump(spec->log);
	guard_remove_tree(spec->base);
	_exit(0);
}

pid_t guard_start(const struct guard_spec *spec, int *ctl)
{
	int sv[2];
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sv) < 0)
		return -errno;
	(void)fflush(NULL);
	pid_t pid = fork();
	if (pid == 0)
		guard_main(spec, sv[1]);
	int e = errno;
	(void)close(sv[1]);
	if (pid < 0) {
		(void)close(sv[0]);
		return -e;
	}
	*ctl = sv[0];
	return pid;
}
