// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/ctlkit.h"
#include "tests/faults/plan.h"
#include "tests/integration/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define WORDS_MAX 64

const char *ctl_binary(void)
{
	static char path[PATH_MAX];
	const char *name = getenv("CELLD");
	if (!path[0])
		ck_assert_ptr_nonnull(realpath(name && *name ? name : "build/celld", path));
	return path;
}

// --- starting ---

static void forget_variables(void)
{
	extern char **environ;
	char name[128];
	for (size_t i = 0; environ[i];) {
		if (strncmp(environ[i], "CELLD", 5) != 0) {
			i++;
			continue;
		}
		(void)snprintf(name, sizeof name, "%.*s", (int)strcspn(environ[i], "="), environ[i]);
		(void)unsetenv(name);
	}
}

// In the child: becomes the program BINARY.
static void become(const char *binary, const struct testd *d, const char *const *env, const char *const *words)
{
	const char *argv[WORDS_MAX + 3] = {binary, "ctl"};
	char url[128];
	size_t n = 2;
	forget_variables();
	if (d) {
		(void)snprintf(url, sizeof url, "http://%s:%d", d->host, d->port);
		(void)setenv("CELLD_URL", url, 1);
	}
	for (size_t i = 0; env && env[i]; i++)
		(void)putenv((char *)env[i]);
	for (size_t i = 0; words[i] && n < WORDS_MAX + 2; i++)
		argv[n++] = words[i];
	for (int sig = 1; sig < NSIG; sig++)
		(void)signal(sig, SIG_DFL);
	(void)execv(argv[0], (char *const *)argv);
	_exit(99);
}

static pid_t fork_child(void)
{
	pid_t parent = getpid(), pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0 && (prctl(PR_SET_PDEATHSIG, SIGKILL) < 0 || getppid() != parent))
		_exit(98);
	return pid;
}

static void start(struct ctlrun *c, const struct testd *d, const char *const *env, const char *const *words,
	const char *binary, struct fault_plan *plan)
{
	int in[2], out[2], err[2];
	*c = (struct ctlrun){.slave = -1};
	(void)signal(SIGPIPE, SIG_IGN);
	ck_assert_int_eq(pipe2(in, O_CLOEXEC) | pipe2(out, O_CLOEXEC) | pipe2(err, O_CLOEXEC), 0);
	c->pid = fork_child();
	if (c->pid == 0) {
		(void)dup2(in[0], 0);
		(void)dup2(out[1], 1);
		(void)dup2(err[1], 2);
		if (plan)
			atomic_store(&plan->pid, getpid());
		become(binary, d, env, words);
	}
	(void)close(in[0]);
	(void)close(out[1]);
	(void)close(err[1]);
	c->in = in[1];
	c->out = out[0];
	c->err = err[0];
	ck_assert_int_eq(fcntl(c->in, F_SETFL, O_NONBLOCK), 0);
}

void ctl_start(struct ctlrun *c, const struct testd *d, const char *const *env, const char *const *words)
{
	start(c, d, env, words, ctl_binary(), NULL);
}

void ctl_start_faulty(
	struct ctlrun *c, const struct testd *d, const char *const *words, struct fault_plan *plan, const char *path)
{
	char variable[600];
	(void)snprintf(variable, sizeof variable, "FAULTS_PLAN=%s", path);
	const char *const env[] = {variable, NULL}, *binary = getenv("CELLD_FAULTY");
	ck_assert_msg(binary && *binary, "CELLD_FAULTY names no binary");
	start(c, d, env, words, binary, plan);
}

void ctl_start_tty(
	struct ctlrun *c, const struct testd *d, const char *const *env, const char *const *words, int rows, int cols)
{
	int master, slave;
	struct winsize size = {.ws_row = (unsigned short)rows, .ws_col = (unsigned short)cols};
	*c = (struct ctlrun){.err = -1};
	(void)ctl_binary();
	ck_assert_int_eq(openpty(&master, &slave, NULL, NULL, &size), 0);
	ck_assert_int_eq(tcgetattr(slave, &c->before), 0);
	c->pid = fork_child();
	if (c->pid == 0) {
		(void)setsid();
		(void)ioctl(slave, TIOCSCTTY, 0);
		for (int fd = 0; fd < 3; fd++)
			(void)dup2(slave, fd);
		(void)close(slave);
		(void)close(master);
		become(ctl_binary(), d, env, words);
	}
	ck_assert_int_eq(fcntl(master, F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(fcntl(master, F_SETFD, FD_CLOEXEC), 0);
	ck_assert_int_eq(fcntl(slave, F_SETFD, FD_CLOEXEC), 0);
	c->in = c->out = master;
	c->slave = slave;
}

// --- while it runs ---

// Reads what is there into c->said[WHICH]. False at the end.
static bool take(struct ctlrun *c, int which)
{
	int *fd = which ? &c->err : &c->out;
	unsigned char part[65536];
	ssize_t n = read(*fd, part, sizeof part);
	if (n > 0)
		buf_append(&c->said[which], part, (size_t)n);
	if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
		return true;
	if (c->slave < 0)
		(void)close(*fd);
	*fd = -1;
	return false;
}

// Waits up to MS for output or room for input: what poll says of the input.
static short wait_any(struct ctlrun *c, bool write, int64_t ms)
{
	struct pollfd p[3] = {{c->out, POLLIN, 0}, {c->err, POLLIN, 0}, {write ? c->in : -1, POLLOUT, 0}};
	if (poll(p, 3, (int)ms) <= 0)
		return 0;
	for (int i = 0; i < 2; i++)
		if (p[i].revents)
			(void)take(c, i);
	return p[2].revents;
}

static void too_late(struct ctlrun *c, const char *what)
{
	ck_abort_msg("celld ctl: %s; stdout: %.600s; stderr: %.600s", what, ctl_out(c), ctl_err(c));
}

void ctl_until(struct ctlrun *c, bool err, const char *text)
{
	int64_t end = h_now_ms() + h_scaled(CTL_DEADLINE);
	while (!strstr(err ? ctl_err(c) : ctl_out(c), text)) {
		if (h_now_ms() > end || (c->out < 0 && c->err < 0))
			too_late(c, text);
		(void)wait_any(c, false, 100);
	}
}

void ctl_type(struct ctlrun *c, const void *p, size_t n)
{
	int64_t end = h_now_ms() + h_scaled(CTL_DEADLINE);
	const char *s = p;
	while (n > 0) {
		if (h_now_ms() > end)
			too_late(c, "does not take its input");
		if (!wait_any(c, true, 100))
			continue;
		ssize_t done = write(c->in, s, n);
		if (done < 0 && errno == EPIPE)
			return;
		if (done > 0) {
			s += done;
			n -= (size_t)done;
		}
	}
}

static bool ended(void *arg)
{
	struct ctlrun *c = arg;
	int status;
	if (c->slave >= 0 && c->out >= 0)
		(void)wait_any(c, false, 0);
	if (c->pid && waitpid(c->pid, &status, WNOHANG) == c->pid) {
		c->pid = 0;
		c->status = WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
	}
	return !c->pid;
}

int ctl_finish(struct ctlrun *c, const void *p, size_t n)
{
	int64_t end = h_now_ms() + h_scaled(CTL_DEADLINE);
	ctl_type(c, p, n);
	if (c->slave < 0) {
		(void)close(c->in);
		c->in = -1;
		while ((c->out >= 0 || c->err >= 0) && h_now_ms() < end)
			(void)wait_any(c, false, 100);
	}
	if (!wait_until(ended, c, CTL_DEADLINE))
		too_late(c, "does not end");
	if (c->slave >= 0)
		(void)wait_any(c, false, 0);
	const char *text = c->slave < 0 ? ctl_err(c) : ctl_out(c);
	if (strstr(text, "Sanitizer") || strstr(text, "runtime error:"))
		ck_abort_msg("%s", text);
	return c->status;
}

void ctl_release(struct ctlrun *c)
{
	int status;
	if (c->pid) {
		(void)kill(c->pid, SIGKILL);
		(void)waitpid(c->pid, &status, 0);
	}
	if (c->slave >= 0) {
		(void)close(c->slave);
		(void)close(c->in);
	} else {
		for (int i = 0; i < 3; i++) {
			int fd = i == 0 ? c->in : i == 1 ? c->out : c->err;
			if (fd >= 0)
				(void)close(fd);
		}
	}
	buf_release(&c->said[0]);
	buf_release(&c->said[1]);
}

// --- whole runs ---

int ctl_run_env(struct ctlrun *c, const struct testd *d, const char *const *env, const char *const *words)
{
	ctl_start(c, d, env, words);
	return ctl_finish(c, "", 0);
}

void ctl_expect(
	const char *file, int line, const struct testd *d, int status, struct ctlrun *c, const char *const *words)
{
	int got = ctl_run_env(c, d, NULL, words);
	if (got != status)
		ck_abort_msg("%s:%d: ctl %s: status %d, stdout: %.600s; stderr: %.600s", file, line, words[0], got,
			ctl_out(c), ctl_err(c));
}

const char *ctl_out(struct ctlrun *c)
{
	return buf_cstr(&c->said[0]);
}

const char *ctl_err(struct ctlrun *c)
{
	return buf_cstr(&c->said[1]);
}

unsigned char *ctl_noise(size_t n)
{
	unsigned char *p = malloc(n);
	uint64_t x = 88172645463325252u;
	ck_assert_ptr_nonnull(p);
	for (size_t i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		p[i] = (unsigned char)(x >> 32);
	}
	return p;
}

void ctl_file(const struct testd *d, const char *name, char path[512])
{
	(void)snprintf(path, 512, "%s/%s", d->base, name);
}
