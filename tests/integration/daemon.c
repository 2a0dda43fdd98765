// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/daemon.h"
#include "tests/integration/guard.h"
#include "tests/integration/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START_DEADLINE 10000
#define ARGS_MAX 64

// A line of one of these in the binary's stderr fails the test whatever else happened.
static const char *const findings[] = {
	"ERROR: AddressSanitizer", "ERROR: LeakSanitizer", "runtime error:", "Assertion `", "stack smashing detected"};

bool d_env_pid1(void)
{
	const char *v = getenv("CELLD_TEST_PID1");
	return v && *v && strcmp(v, "0") != 0;
}

static char *read_log(const struct testd *d)
{
	struct buf b = {0};
	int fd = open(d->log, O_RDONLY | O_CLOEXEC);
	ssize_t n = 0;
	char part[4096];
	while (fd >= 0 && (n = read(fd, part, sizeof part)) > 0)
		buf_append(&b, part, (size_t)n);
	if (fd >= 0)
		(void)close(fd);
	char *text = buf_take(&b, NULL);
	return text ? text : strdup("");
}

bool d_log_has(const struct testd *d, const char *text)
{
	char *log = read_log(d);
	ck_assert_ptr_nonnull(log);
	bool found = strstr(log, text) != NULL;
	free(log);
	return found;
}

static void make_dirs(struct testd *d, const struct d_opts *o)
{
	const char *tmp = getenv("TMPDIR");
	(void)snprintf(d->base, sizeof d->base, "%.200s/celld-it-XXXXXX", tmp && *tmp ? tmp : "/tmp");
	if (!mkdtemp(d->base))
		ck_abort_msg("mkdtemp %s: %s", d->base, strerror(errno));
	// Commands may run as another user: they must reach the workspace.
	ck_assert_int_eq(chmod(d->base, 0755), 0);
	(void)snprintf(d->log, sizeof d->log, "%s/stderr", d->base);
	if (o->workspace)
		(void)snprintf(d->workspace, sizeof d->workspace, "%s", o->workspace);
	else
		(void)snprintf(d->workspace, sizeof d->workspace, "%s/workspace", d->base);
	if (!o->workspace && mkdir(d->workspace, 0755) < 0)
		ck_abort_msg("mkdir %s: %s", d->workspace, strerror(errno));
}

// ARGV has room for ARGS_MAX. The strings are borrowed; BINARY is the real path.
static void make_argv(const struct testd *d, const struct d_opts *o, const char *binary, const char **argv)
{
	static const char *const unshare[] = {"unshare", "--pid", "--fork", "--mount-proc", "--kill-child", "--", NULL};
	static const char *const defaults[] = {
		"--listen", "127.0.0.1:0", "--envd-listen", "off", "--venv", "off", NULL};
	size_t n = 0;
	for (size_t i = 0; d->pid1 && unshare[i]; i++)
		argv[n++] = unshare[i];
	argv[n++] = binary;
	for (size_t i = 0; !o->no_defaults && defaults[i]; i++)
		argv[n++] = defaults[i];
	argv[n++] = "--workspace";
	argv[n++] = d->workspace;
	// As PID 1 it would make groups on this machine; the tests of those ask for them.
	argv[n++] = "--cgroup";
	argv[n++] = "off";
	// Tests look at its descriptors, which otherwise only root may.
	if (geteuid() != 0)
		argv[n++] = "--dumpable";
	for (size_t i = 0; o->args && o->args[i]; i++) {
		ck_assert_uint_lt(n, ARGS_MAX - 1);
		argv[n++] = o->args[i];
	}
	argv[n] = NULL;
}

// One message of the guard within MS: false at the deadline. Ends of the binary are noted in D.
static bool guard_recv(struct testd *d, struct guard_msg *m, int64_t ms)
{
	struct pollfd p = {d->ctl, POLLIN, 0};
	if (poll(&p, 1, (int)(ms < 0 ? 0 : ms)) <= 0)
		return false;
	if (recv(d->ctl, m, sizeof *m, 0) != (ssize_t)sizeof *m)
		ck_abort_msg("the guard is gone");
	if (m->word == GUARD_EXITED) {
		d->exited = true;
		d->status = m->value;
	}
	return true;
}

static int exit_code(int status)
{
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1 - WTERMSIG(status);
}

static void poll_guard(struct testd *d)
{
	struct guard_msg m;
	while (!d->exited && guard_recv(d, &m, 0))
		;
}

// "127.0.0.1:2024" or "[::1]:2024" from S up to a comma or the line's end; "off" leaves PORT 0.
static void parse_addr(const char *s, char *host, size_t n, int *port)
{
	size_t len = strcspn(s, ",\n");
	size_t colon = len;
	while (colon > 0 && s[colon] != ':')
		colon--;
	if (colon == 0)
		return;
	bool brackets = s[0] == '[';
	(void)snprintf(host, n, "%.*s", (int)(brackets ? colon - 2 : colon), s + (brackets ? 1 : 0));
	*port = (int)strtol(s + colon + 1, NULL, 10);
}

// True once LOG holds the whole ready line "celld VERSION ready: sandboxd ADDR, envd ADDR".
static bool parse_ready(struct testd *d, const char *log)
{
	static const char first[] = " ready: sandboxd ";
	const char *line = strncmp(log, "celld ", 6) == 0 ? log : strstr(log, "\ncelld ");
	const char *a = line ? strstr(line, first) : NULL;
	if (!a || !strchr(a, '\n'))
		return false;
	a += sizeof first - 1;
	parse_addr(a, d->host, sizeof d->host, &d->port);
	const char *b = strstr(a, ", envd ");
	if (b && b < strchr(a, '\n'))
		parse_addr(b + 7, d->envd_host, sizeof d->envd_host, &d->envd_port);
	return true;
}

static void wait_ready(struct testd *d)
{
	int64_t end = h_now_ms() + h_scaled(START_DEADLINE);
	for (;;) {
		char *log = read_log(d);
		ck_assert_ptr_nonnull(log);
		bool ready = parse_ready(d, log);
		free(log);
		if (ready)
			return;
		poll_guard(d);
		if (d->exited)
			ck_abort_msg("the binary ended with %d before it was ready", exit_code(d->status));
		if (h_now_ms() > end)
			ck_abort_msg("no ready line within %d ms", START_DEADLINE);
		h_tick();
	}
}

// The same path, though another file may be there by now.
static bool same_path(const char *a, const char *b)
{
	static const char gone[] = " (deleted)";
	size_t n = strlen(a), m = strlen(b), tail = sizeof gone - 1;
	n -= n > tail && strcmp(a + n - tail, gone) == 0 ? tail : 0;
	m -= m > tail && strcmp(b + m - tail, gone) == 0 ? tail : 0;
	return n > 0 && n == m && memcmp(a, b, n) == 0;
}

// The serving process is the child of init that runs the same executable; init itself if there is none.
static pid_t find_daemon(const struct testd *d)
{
	struct pinfo p[512];
	char exe[PATH_MAX];
	char own[PATH_MAX];
	proc_exe(d->init, own, sizeof own);
	size_t n = procs_below(d->init, p, sizeof p / sizeof p[0]);
	for (size_t i = 0; i < n && i < sizeof p / sizeof p[0]; i++) {
		proc_exe(p[i].pid, exe, sizeof exe);
		if (p[i].ppid == d->init && p[i].state != 'Z' && same_path(exe, own))
			return p[i].pid;
	}
	return 0;
}

static void find_processes(struct testd *d, pid_t started)
{
	struct pinfo p[4];
	d->init = started;
	if (d->pid1) {
		size_t n = procs_below(started, p, sizeof p / sizeof p[0]);
		d->init = 0;
		for (size_t i = 0; i < n && i < sizeof p / sizeof p[0]; i++)
			if (p[i].ppid == started)
				d->init = p[i].pid;
		ck_assert_msg(d->init > 0, "no process below unshare");
	}
	pid_t child = find_daemon(d);
	d->has_init = child > 0;
	d->daemon = child > 0 ? child : d->init;
}

struct testd *d_start_opts(const struct d_opts *o)
{
	const char *argv[ARGS_MAX];
	const char *name = getenv("CELLD");
	name = o->binary ? o->binary : name && *name ? name : "build/celld";
	char *binary = realpath(name, NULL);
	if (!binary)
		ck_abort_msg("no binary %s", name);
	struct testd *d = calloc(1, sizeof *d);
	ck_assert_ptr_nonnull(d);
	d->pid1 = o->pid1 || (!o->plain && d_env_pid1());
	make_dirs(d, o);
	make_argv(d, o, binary, argv);
	struct guard_spec spec = {(char **)(uintptr_t)argv, o->env, o->nofile, d->log, d->base};
	d->guard = guard_start(&spec, &d->ctl);
	if (d->guard < 0)
		ck_abort_msg("guard: %s", strerror(-d->guard));
	struct guard_msg m;
	if (!guard_recv(d, &m, h_scaled(START_DEADLINE)) || m.word != GUARD_STARTED)
		ck_abort_msg("the guard could not start %s", binary);
	free(binary);
	wait_ready(d);
	find_processes(d, (pid_t)m.value);
	return d;
}

struct testd *d_start_args(const char *const *args)
{
	struct d_opts o = {.args = args};
	return d_start_opts(&o);
}

void d_signal(const struct testd *d, int sig)
{
	if (kill(d->init, sig) < 0)
		ck_abort_msg("kill(%d, %d): %s", (int)d->init, sig, strerror(errno));
}

int d_wait(struct testd *d, int64_t deadline_ms)
{
	int64_t end = h_now_ms() + h_scaled(deadline_ms);
	struct guard_msg m;
	while (!d->exited)
		if (!guard_recv(d, &m, end - h_now_ms()))
			ck_abort_msg("the binary has not ended within %lld ms", (long long)deadline_ms);
	return exit_code(d->status);
}

int d_stop(struct testd *d, int64_t deadline_ms)
{
	poll_guard(d);
	if (!d->exited)
		d_signal(d, SIGTERM);
	return d_wait(d, deadline_ms);
}

void d_expect_crash(struct testd *d)
{
	d->expect_crash = true;
}

pid_t d_refresh(struct testd *d)
{
	pid_t pid = d->has_init ? find_daemon(d) : pid_alive(d->init) ? d->init : 0;
	if (pid > 0)
		d->daemon = pid;
	return pid;
}

void d_assert_alive(const struct testd *d)
{
	char exe[PATH_MAX];
	pid_t now = d->has_init ? find_daemon(d) : d->init;
	proc_exe(now, exe, sizeof exe);
	if (!pid_alive(now))
		ck_abort_msg("the daemon %d has died", (int)d->daemon);
	if (now != d->daemon)
		ck_abort_msg("the daemon %d has died, %d took its place", (int)d->daemon, (int)now);
}

static void check_log(const struct testd *d)
{
	char *log = read_log(d);
	ck_assert_ptr_nonnull(log);
	for (size_t i = 0; i < sizeof findings / sizeof findings[0]; i++)
		if (strstr(log, findings[i]))
			ck_abort_msg("the binary's stderr says \"%s\"", findings[i]);
	free(log);
}

static bool nothing_left(void *arg)
{
	const struct testd *d = arg;
	struct pinfo p;
	return procs_below(d->guard, &p, 0) == 0;
}

void d_finish(struct testd *d)
{
	poll_guard(d);
	if (!d->exited) {
		if (d->expect_crash)
			ck_assert_msg(d_refresh(d) > 0, "no daemon at the end of the test");
		d_assert_alive(d);
		int status = d_stop(d, 8000);
		ck_assert_msg(status == 0, "exit status %d after TERM", status);
	} else if (exit_code(d->status) != 0 && !d->expect_crash) {
		ck_abort_msg("the binary had ended with %d", exit_code(d->status));
	}
	// Killed processes need a moment to become reaped ones.
	if (!wait_until(nothing_left, d, 500)) {
		struct pinfo p = {0};
		char exe[PATH_MAX];
		size_t n = procs_below(d->guard, &p, 1);
		proc_exe(p.pid, exe, sizeof exe);
		ck_abort_msg("%zu processes left, the first is %d %s", n, (int)p.pid, exe);
	}
	check_log(d);
	const char quiet = GUARD_QUIET;
	ck_assert_int_eq(send(d->ctl, &quiet, 1, MSG_NOSIGNAL), 1);
	(void)close(d->ctl);
	(void)waitpid(d->guard, NULL, 0);
	free(d);
}
