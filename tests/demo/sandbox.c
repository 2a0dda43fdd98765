// SPDX-License-Identifier: Apache-2.0
#include "tests/demo/sandbox.h"

#include "tests/demo/client.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define START_US ((int64_t)10000000)
#define STOP_US ((int64_t)10000000)

static void pause_ms(long ms)
{
	const struct timespec ts = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
	nanosleep(&ts, NULL);
}

// A file of at most N - 1 bytes as a string: its length, or -1.
static ssize_t read_text(const char *path, char *to, size_t n)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len = fd < 0 ? -1 : read(fd, to, n - 1);
	if (fd >= 0)
		close(fd);
	to[len < 0 ? 0 : len] = '\0';
	return len;
}

// The parent and the name of PID: its parent's pid, or -1.
static pid_t parent_of(pid_t pid, char *comm, size_t n)
{
	char path[64], text[512];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	if (read_text(path, text, sizeof text) <= 0)
		return -1;
	char *open = strchr(text, '(');
	char *close = strrchr(text, ')');
	int ppid;
	if (!open || !close || sscanf(close + 1, " %*c %d", &ppid) != 1)
		return -1;
	snprintf(comm, n, "%.*s", (int)(close - open - 1), open + 1);
	return ppid;
}

// A child of PARENT named COMM (NULL: any name); 0 if there is none.
static pid_t child_of(pid_t parent, const char *comm)
{
	DIR *dir = opendir("/proc");
	const struct dirent *d;
	pid_t found = 0;
	while (dir && !found && (d = readdir(dir)) != NULL) {
		char name[64];
		pid_t pid = atoi(d->d_name);
		if (pid > 0 && parent_of(pid, name, sizeof name) == parent && (!comm || strcmp(comm, name) == 0))
			found = pid;
	}
	if (dir)
		closedir(dir);
	return found;
}

// --- the keeper ---

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st;
	(void)type;
	(void)at;
	return remove(path);
}

// Orphans below come to us as the subreaper, so that this ends with no descendant left.
static void kill_all_below(void)
{
	for (;;) {
		pid_t pid = child_of(getpid(), NULL);
		if (pid > 0) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
		} else if (waitpid(-1, NULL, WNOHANG) < 0) {
			return;
		}
	}
}

// Waits for WORKER until its limit: its exit status, 1 if it ended in another way.
static int await_worker(pid_t worker, const sigset_t *set, int64_t end)
{
	for (;;) {
		int status;
		pid_t pid;
		while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
			if (pid == worker)
				return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		int64_t left = end - client_now_us();
		if (left <= 0) {
			fprintf(stderr, "the time is over\n");
			return 1;
		}
		const struct timespec ts = {.tv_sec = left / 1000000, .tv_nsec = left % 1000000 * 1000};
		int sig = sigtimedwait(set, NULL, &ts);
		if (sig > 0 && sig != SIGCHLD)
			return 1;
	}
}

int keeper_run(int (*work)(const char *dir, void *arg), void *arg, int limit_s)
{
	char dir[] = "/tmp/celld-XXXXXX";
	sigset_t set, old;
	sigemptyset(&set);
	sigaddset(&set, SIGCHLD);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGHUP);
	sigprocmask(SIG_BLOCK, &set, &old);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	if (!mkdtemp(dir)) {
		perror(dir);
		return 1;
	}
	pid_t worker = fork();
	if (worker == 0) {
		sigprocmask(SIG_SETMASK, &old, NULL);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		setvbuf(stdout, NULL, _IOLBF, 0);
		int status = work(dir, arg);
		fflush(stdout);
		_exit(status);
	}
	int status = worker < 0 ? 1 : await_worker(worker, &set, client_now_us() + (int64_t)limit_s * 1000000);
	kill_all_below();
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
	return status;
}

// --- the sandbox ---

bool sandbox_can_pid1(void)
{
	return geteuid() == 0 && system("unshare --pid --fork --mount-proc --kill-child true 2>/dev/null") == 0;
}

const char *sandbox_user(void)
{
	const struct passwd *pw = geteuid() == 0 ? NULL : getpwuid(geteuid());
	return pw ? pw->pw_name : "root";
}

static void run_celld(const struct sandbox *s, const char *celld, const char *workspace, int log)
{
	const char *argv[] = {"unshare", "--pid", "--fork", "--mount-proc", "--kill-child", celld, "--init", "--listen",
		"127.0.0.1:0", "--envd-listen", "127.0.0.1:0", "--workspace", workspace, "--venv", "off", "--user",
		sandbox_user(), NULL};
	const char *const *from = s->pid1 ? argv : argv + 5;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setenv("CELLD_DEMO", "of the daemon", 1);
	if (dup2(log, 2) == 2)
		execvp(from[0], (char *const *)(uintptr_t)from);
	_exit(127);
}

// The ports of the ready line in the log; false while it is not there.
static bool ready_ports(struct sandbox *s)
{
	static const char a[] = " ready: sandboxd 127.0.0.1:", b[] = ", envd 127.0.0.1:";
	char text[4096];
	if (read_text(s->log, text, sizeof text) <= 0)
		return false;
	const char *at = strstr(text, a);
	const char *then = at ? strstr(at, b) : NULL;
	if (!then || !strchr(then, '\n'))
		return false;
	s->port = atoi(at + sizeof a - 1);
	s->envd_port = atoi(then + sizeof b - 1);
	return true;
}

int sandbox_start(struct sandbox *s, const char *celld, const char *dir, bool pid1)
{
	char workspace[128];
	int64_t end = client_now_us() + START_US * client_scale();
	*s = (struct sandbox){.pid1 = pid1};
	snprintf(s->log, sizeof s->log, "%s/log", dir);
	snprintf(workspace, sizeof workspace, "%s/workspace", dir);
	// Emptied here: an earlier one's ready line must not be taken for this one's.
	int log = open(s->log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	s->started = log < 0 ? -1 : fork();
	if (s->started == 0)
		run_celld(s, celld, workspace, log);
	if (log >= 0)
		close(log);
	while (s->started > 0 && client_now_us() < end) {
		bool ready = ready_ports(s);
		s->init = pid1 ? child_of(s->started, NULL) : s->started;
		if (ready && s->init)
			return 0;
		if (waitpid(s->started, NULL, WNOHANG) != 0)
			break;
		pause_ms(2);
	}
	fprintf(stderr, "%s did not become ready\n", celld);
	sandbox_print_log(s);
	return -1;
}

pid_t sandbox_daemon(const struct sandbox *s)
{
	char comm[64];
	return parent_of(s->init, comm, sizeof comm) < 0 ? 0 : child_of(s->init, comm);
}

int sandbox_stop(struct sandbox *s)
{
	int64_t end = client_now_us() + STOP_US * client_scale();
	int status;
	kill(s->init, SIGTERM);
	while (waitpid(s->started, &status, WNOHANG) == 0) {
		if (client_now_us() > end)
			return -1;
		pause_ms(2);
	}
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void sandbox_print_log(const struct sandbox *s)
{
	char text[4096];
	if (read_text(s->log, text, sizeof text) > 0)
		fprintf(stderr, "--- celld's log\n%s---\n", text);
}
