// SPDX-License-Identifier: Apache-2.0
#include "daemon/init.h"

#include "daemon/core/tree.h"
#include "daemon/io.h"
#include "daemon/log.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// A daemon that lived shorter than this is started again after a pause, which doubles from the first to the last.
#define LIVED_NS ((int64_t)1000000000)
#define PAUSE_FIRST_MS ((int64_t)10)
#define PAUSE_LAST_MS ((int64_t)5000)
#define FORK_AGAIN_MS ((int64_t)100)

struct init {
	const struct init_spec *spec;
	pid_t daemon;        // 0 while none runs
	int64_t started_ns;  // when it was started
	int64_t start_at_ns; // when to start the next one; 0 = nothing due
	int64_t kill_at_ns;  // when to kill one that does not stop; 0 = nothing due
	int64_t pause_ms;
	unsigned restarts;
	bool stopping;
	bool done;
	int status;
	sigset_t signals;
};

static void start(struct init *in)
{
	in->start_at_ns = 0;
	pid_t self = getpid();
	pid_t pid = fork();
	if (pid == 0) {
		sigset_t none;
		sigemptyset(&none);
		prctl(PR_SET_PDEATHSIG, SIGTERM);
		if (getppid() != self)
			_exit(1); // init is gone already
		sigprocmask(SIG_SETMASK, &none, NULL);
		_exit(in->spec->daemon(in->spec->arg, in->restarts));
	}
	in->started_ns = io_mono_ns();
	if (pid < 0) {
		log_error("daemon_fork", "%s", strerror(errno));
		in->start_at_ns = in->started_ns + FORK_AGAIN_MS * 1000000;
		return;
	}
	in->daemon = pid;
}

static void say_death(const struct init *in, const siginfo_t *si)
{
	if (si->si_code == CLD_EXITED)
		log_error("daemon_died", "exit status %d; start %u follows in %lld ms", si->si_status, in->restarts + 1,
			(long long)in->pause_ms);
	else
		log_error("daemon_died", "%s%s; start %u follows in %lld ms", strsignal(si->si_status),
			si->si_code == CLD_DUMPED ? " (core dumped)" : "", in->restarts + 1, (long long)in->pause_ms);
}

static void daemon_ended(struct init *in, const siginfo_t *si)
{
	int64_t now = io_mono_ns();
	in->daemon = 0;
	in->kill_at_ns = 0;
	bool in_order = si->si_code == CLD_EXITED && si->si_status == 0;
	if (in_order || in->stopping) {
		// A daemon that had to be killed at the end has still stopped the sandbox, which is what was asked for.
		in->status = 0;
		in->done = true;
		return;
	}
	if (now - in->started_ns >= LIVED_NS)
		in->pause_ms = 0;
	say_death(in, si);
	in->restarts++;
	in->start_at_ns = now + in->pause_ms * 1000000 + 1;
	in->pause_ms = in->pause_ms ? in->pause_ms * 2 : PAUSE_FIRST_MS;
	if (in->pause_ms > PAUSE_LAST_MS)
		in->pause_ms = PAUSE_LAST_MS;
}

static void reap(struct init *in)
{
	for (;;) {
		siginfo_t si = {0};
		if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG) < 0 && errno == EINTR)
			continue;
		if (!si.si_pid)
			return;
		if (si.si_pid == in->daemon)
			daemon_ended(in, &si);
	}
}

static bool asks_for_end(int sig)
{
	return sig == SIGTERM || sig == SIGINT || sig == SIGQUIT;
}

static void handle(struct init *in, int sig)
{
	if (sig == SIGCHLD) {
		reap(in);
		return;
	}
	if (in->daemon)
		kill(in->daemon, sig);
	if (!asks_for_end(sig))
		return;
	if (!in->stopping)
		in->kill_at_ns = io_mono_ns() + in->spec->stop_ms * 1000000;
	in->stopping = true;
	if (!in->daemon)
		in->done = true;
}

static void on_time(struct init *in)
{
	int64_t now = io_mono_ns();
	if (in->start_at_ns && now >= in->start_at_ns)
		start(in);
	if (in->kill_at_ns && now >= in->kill_at_ns && in->daemon) {
		log_error("daemon_stuck", "it did not stop in time and is killed");
		kill(in->daemon, SIGKILL);
		in->kill_at_ns = 0;
	}
}

// Waits for a signal, or until the next thing is due.
static int next_signal(const struct init *in)
{
	int64_t due = in->start_at_ns;
	if (in->kill_at_ns && (!due || in->kill_at_ns < due))
		due = in->kill_at_ns;
	if (!due)
		return sigwaitinfo(&in->signals, NULL);
	int64_t left = due - io_mono_ns();
	if (left < 0)
		left = 0;
	struct timespec ts = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
	return sigtimedwait(&in->signals, NULL, &ts);
}

int init_run(const struct init_spec *spec)
{
	static const int handled[] = {SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT};
	struct init in = {.spec = spec};
	sigemptyset(&in.signals);
	for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
		sigaddset(&in.signals, handled[i]);
	sigprocmask(SIG_SETMASK, &in.signals, NULL);
	// Orphans of a daemon that died must come here, not to whatever started celld.
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	start(&in);
	while (!in.done) {
		int sig = next_signal(&in);
		if (sig > 0)
			handle(&in, sig);
		on_time(&in);
	}
	// Orphans of a daemon that crashed are here. Nothing is left to lose now, so this may allocate.
	if (getpid() == 1)
		kill(-1, SIGKILL);
	else
		tree_signal_all(getpid(), 0, SIGKILL);
	return in.status;
}
