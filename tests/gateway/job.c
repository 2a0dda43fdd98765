// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/job.h"

#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

struct job {
	ev_io end;
	void (*done)(void *arg, int status); // NULL: forgotten
	void *arg;
	pid_t pid;
	int pidfd;
};

static void on_end(struct ev_loop *loop, ev_io *w, int revents)
{
	(void)revents;
	struct job *j = w->data;
	siginfo_t si = {0};
	if (waitid(P_PIDFD, (id_t)j->pidfd, &si, WEXITED | WNOHANG) < 0 || !si.si_pid)
		return;
	int status = si.si_code == CLD_EXITED ? si.si_status : 128 + si.si_status;
	ev_io_stop(loop, w);
	io_close(&j->pidfd);
	if (j->done)
		j->done(j->arg, status);
	free(j);
}

static int set_up(posix_spawn_file_actions_t *files, posix_spawnattr_t *attr)
{
	sigset_t all, none;
	sigfillset(&all);
	sigemptyset(&none);
	int rc = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
	if (rc == 0)
		rc = posix_spawn_file_actions_addopen(files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	if (rc == 0)
		rc = posix_spawn_file_actions_addclosefrom_np(files, STDERR_FILENO + 1);
	if (rc == 0)
		rc = posix_spawnattr_setflags(
			attr, POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
	posix_spawnattr_setsigdefault(attr, &all);
	posix_spawnattr_setsigmask(attr, &none);
	return rc;
}

// The pid or negative errno.
static pid_t spawn(const char *const *argv)
{
	posix_spawn_file_actions_t files;
	posix_spawnattr_t attr;
	pid_t pid;
	int rc = posix_spawn_file_actions_init(&files);
	if (rc)
		return -rc;
	rc = posix_spawnattr_init(&attr);
	if (rc == 0) {
		rc = set_up(&files, &attr);
		if (rc == 0)
			rc = posix_spawnp(&pid, argv[0], &files, &attr, (char *const *)argv, environ);
		posix_spawnattr_destroy(&attr);
	}
	posix_spawn_file_actions_destroy(&files);
	return rc ? -rc : pid;
}

struct job *job_start(struct ev_loop *loop, const char *const *argv, void (*done)(void *arg, int status), void *arg)
{
	struct job *j = calloc(1, sizeof *j);
	if (!j)
		return NULL;
	j->done = done;
	j->arg = arg;
	j->pid = spawn(argv);
	j->pidfd = j->pid < 0 ? -1 : (int)syscall(SYS_pidfd_open, j->pid, 0);
	if (j->pidfd < 0) {
		int err = j->pid < 0 ? -j->pid : errno;
		if (j->pid > 0) {
			kill(-j->pid, SIGKILL);
			waitpid(j->pid, NULL, 0);
		}
		free(j);
		errno = err;
		return NULL;
	}
	ev_io_init(&j->end, on_end, j->pidfd, EV_READ);
	j->end.data = j;
	ev_io_start(loop, &j->end);
	return j;
}

void job_forget(struct job *j)
{
	if (j)
		j->done = NULL;
}

void job_stop(struct job *j)
{
	if (!j)
		return;
	// Its group: the programs that it runs in its turn. It was not waited for, so the number is its own.
	kill(-j->pid, SIGKILL);
	job_forget(j);
}

struct job *job_copy(
	struct ev_loop *loop, const char *from, const char *to, void (*done)(void *arg, int status), void *arg)
{
	char *inside;
	if (asprintf(&inside, "%s/.", from) < 0) {
		errno = ENOMEM;
		return NULL;
	}
	const char *argv[] = {"cp", "-a", "--reflink=auto", "--", inside, to, NULL};
	struct job *j = job_start(loop, argv, done, arg);
	int err = errno;
	free(inside);
	errno = err;
	return j;
}

struct job *job_remove(struct ev_loop *loop, const char *dir, void (*done)(void *arg, int status), void *arg)
{
	// Who is not root cannot empty directories that a sandbox has made read-only, as long as they are.
	static const char open_up[] = "chmod -Rf u+rwX -- \"$1\"; exec rm -rf --one-file-system -- \"$1\"";
	const char *rm[] = {"rm", "-rf", "--one-file-system", "--", dir, NULL};
	const char *sh[] = {"sh", "-c", open_up, "sh", dir, NULL};
	return job_start(loop, geteuid() == 0 ? rm : sh, done, arg);
}
