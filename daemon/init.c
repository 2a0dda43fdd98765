// SPDX-License-Identifier: Apache-2.0
#include "daemon/init.h"

#include "daemon/core/store_priv.h"
#include "daemon/core/tree.h"
#include "daemon/init_store.h"
#include "daemon/io.h"
#include "daemon/log.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// A daemon that lived shorter than this is started again after a pause, which doubles from the first to the last.
#define LIVED_NS ((int64_t)1000000000)
#define PAUSE_FIRST_MS ((int64_t)10)
#define PAUSE_LAST_MS ((int64_t)5000)
#define FORK_AGAIN_MS ((int64_t)100)
// What a new binary gets to find the store; and how often one may die at once before the code of old serves again.
#define RENEW_NS ((int64_t)5000000000)
#define RENEW_DEATHS 2

struct init {
	const struct init_spec *spec;
	struct init_store store;
	int signals;         // descriptor, or -1
	pid_t daemon;        // 0 while none runs
	int64_t started_ns;  // when it was started
	int64_t start_at_ns; // when to start the next one; 0 = nothing due
	int64_t kill_at_ns;  // when to kill one that does not stop; 0 = nothing due
	int64_t pause_ms;
	bool no_fork; // the last one could not be forked, which was said
	unsigned restarts;
	struct store_deaths deaths;
	unsigned renew_deaths;
	bool renewed; // the next one is, and the last one was, the new binary
	bool stopping;
	bool done;
	int status;
	sigset_t mask;
};

static struct store_head *head(const struct init *in)
{
	return in->spec->store ? in->spec->store->head : NULL;
}

static _Noreturn void run_child(struct init *in, pid_t self, int channel)
{
	// What would kill it as long as it has no handlers waits for them.
	sigset_t wait;
	sigemptyset(&wait);
	sigaddset(&wait, SIGHUP);
	sigaddset(&wait, SIGUSR1);
	sigaddset(&wait, SIGUSR2);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != self)
		_exit(1); // init is gone already
	io_close(&in->signals);
	sigprocmask(SIG_SETMASK, &wait, NULL);
	if (in->renewed) {
		int rc = in->spec->renew(in->spec->arg, in->restarts, channel);
		log_error("upgrade", "%s: the code of before goes on", strerror(-rc));
		store_set(&head(in)->renew, STORE_RENEW_FAILED);
	}
	init_store_child(&in->store, channel);
	_exit(in->spec->daemon(in->spec->arg, in->restarts));
}

// The first daemon is a start that fails. Later on commands are there to be served again, and what they take up may be free soon.
static void fork_failed(struct init *in, int err)
{
	io_close(&in->store.channel);
	if (!in->restarts) {
		log_plain("celld: fork: %s", strerror(err));
		in->status = 1;
		in->done = true;
		return;
	}
	if (!in->no_fork)
		log_error("daemon_fork", "%s: tried again until it goes", strerror(err));
	in->no_fork = true;
	in->start_at_ns = in->started_ns + FORK_AGAIN_MS * 1000000;
}

static void start(struct init *in)
{
	in->start_at_ns = 0;
	pid_t self = getpid();
	int channel = init_store_open(&in->store);
	if (head(in)) {
		head(in)->deaths = in->deaths;
		store_set(&head(in)->renew, STORE_RENEW_NONE);
	}
	pid_t pid = fork();
	if (pid == 0)
		run_child(in, self, channel);
	io_close(&channel);
	in->started_ns = io_mono_ns();
	if (pid < 0) {
		fork_failed(in, errno);
		return;
	}
	in->no_fork = false;
	in->daemon = in->store.daemon = pid;
	if (in->renewed && !in->stopping)
		in->kill_at_ns = in->started_ns + RENEW_NS;
}

// --- the daemon's end ---

static void describe(const struct init *in, const siginfo_t *si, char *out, size_t n)
{
	const struct store_fault *f = head(in) ? &head(in)->fault : NULL;
	const char *core = si->si_code == CLD_DUMPED ? " (core dumped)" : "";
	if (si->si_code == CLD_EXITED)
		snprintf(out, n, "exit status %d", si->si_status);
	else if (f && f->pid == si->si_pid && store_get(&f->sig) == (uint32_t)si->si_status)
		snprintf(out, n, "%s at 0x%llx%s", strsignal(si->si_status), (unsigned long long)f->address, core);
	else
		snprintf(out, n, "%s%s", strsignal(si->si_status), core);
}

static void note_death(struct init *in, const char *reason)
{
	log_error("daemon_died", "%s; start %u follows in %lld ms", reason, in->restarts + 1, (long long)in->pause_ms);
	in->deaths.restarts++;
	in->deaths.last_ms = io_wall_ms();
	snprintf(in->deaths.reason, sizeof in->deaths.reason, "%s", reason);
}

static void note_upgrade(struct init *in)
{
	log_info("upgrade", "start %u is the new binary's", in->restarts + 1);
	in->deaths.upgrades++;
}

// What the new binary made of its start decides whether it gets another one.
static void judge_renewal(struct init *in, const siginfo_t *si, bool lived)
{
	uint32_t renew = head(in) ? store_get(&head(in)->renew) : STORE_RENEW_NONE;
	bool unreadable = si->si_code == CLD_EXITED && si->si_status == STORE_EXIT_LAYOUT;
	if (!in->renewed)
		return;
	in->renew_deaths = lived && renew == STORE_RENEW_DONE ? 0 : in->renew_deaths + 1;
	if (unreadable)
		log_error("upgrade", "the new binary cannot read this store: the code of before goes on");
	else if (renew != STORE_RENEW_FAILED && in->renew_deaths >= RENEW_DEATHS)
		log_error("upgrade", "the new binary does not stay alive: the code of before goes on");
	else if (renew != STORE_RENEW_FAILED)
		return;
	in->renewed = false;
	in->renew_deaths = 0;
}

static bool ended_in_order(const struct init *in, const siginfo_t *si)
{
	if (si->si_code != CLD_EXITED || si->si_status != 0)
		return false;
	// A program that is not celld at all may also exit with 0.
	return !in->renewed || store_get(&head(in)->renew) != STORE_RENEW_NONE;
}

static void daemon_ended(struct init *in, const siginfo_t *si)
{
	char reason[sizeof(((struct store_deaths *)0)->reason)];
	int64_t now = io_mono_ns();
	in->daemon = 0;
	in->kill_at_ns = 0;
	init_store_gone(&in->store);
	if (ended_in_order(in, si) || in->stopping) {
		// A daemon that had to be killed at the end has still stopped the sandbox, which is what was asked for.
		in->status = 0;
		in->done = true;
		return;
	}
	bool lived = now - in->started_ns >= LIVED_NS;
	bool asked = in->spec->renew && head(in) && store_get(&head(in)->upgrade);
	if (lived)
		in->pause_ms = 0;
	if (asked && si->si_code == CLD_EXITED && si->si_status == STORE_EXIT_UPGRADE) {
		note_upgrade(in);
	} else {
		judge_renewal(in, si, lived);
		describe(in, si, reason, sizeof reason);
		note_death(in, reason);
	}
	if (asked) {
		store_set(&head(in)->upgrade, 0);
		in->renewed = true;
		in->renew_deaths = 0;
	}
	in->restarts++;
	in->start_at_ns = now + in->pause_ms * 1000000 + 1;
	in->pause_ms = in->pause_ms ? in->pause_ms * 2 : PAUSE_FIRST_MS;
	if (in->pause_ms > PAUSE_LAST_MS)
		in->pause_ms = PAUSE_LAST_MS;
}

// --- signals ---

static pid_t look(idtype_t type, pid_t pid, siginfo_t *si, int more)
{
	si->si_pid = 0;
	while (waitid(type, (id_t)pid, si, WEXITED | WNOHANG | more) < 0) {
		if (errno != EINTR)
			return 0;
	}
	return si->si_pid;
}

// The daemon first: what it left, zombies too, are init's children from the moment on in which it can be waited for.
static void reap(struct init *in)
{
	siginfo_t si;
	for (;;) {
		if (in->daemon && look(P_PID, in->daemon, &si, 0))
			daemon_ended(in, &si);
		if (in->store.held)
			init_store_look(&in->store);
		pid_t pid = look(P_ALL, 0, &si, WNOWAIT);
		if (!pid)
			return;
		if (pid == in->daemon)
			continue;
		// One that is held hides the others until the daemon knows of it.
		if (init_store_holds(&in->store, pid))
			return;
		if (!init_store_ended(&in->store, &si))
			look(P_PID, pid, &si, 0);
	}
}

static void store_turn(struct init *in)
{
	if (init_store_turn(&in->store))
		reap(in);
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
	if (sig == STORE_SIGNAL) {
		store_turn(in);
		return;
	}
	if (in->daemon)
		kill(in->daemon, sig);
	else if (sig == SIGUSR2 && in->spec->renew && head(in))
		in->renewed = true;
	if (!asks_for_end(sig))
		return;
	if (!in->stopping)
		in->kill_at_ns = io_mono_ns() + in->spec->stop_ms * 1000000;
	in->stopping = true;
	if (!in->daemon)
		in->done = true;
}

static void take_signals(struct init *in)
{
	struct signalfd_siginfo si[8];
	ssize_t n = io_read(in->signals, si, sizeof si);
	for (ssize_t i = 0; i < n / (ssize_t)sizeof *si; i++)
		handle(in, (int)si[i].ssi_signo);
}

// --- the loop ---

static void on_time(struct init *in)
{
	int64_t now = io_mono_ns();
	if (in->start_at_ns && now >= in->start_at_ns)
		start(in);
	if (!in->kill_at_ns || !in->daemon)
		return;
	if (!in->stopping && store_get(&head(in)->renew) != STORE_RENEW_NONE) {
		in->kill_at_ns = 0; // the new binary has found the store
	} else if (now >= in->kill_at_ns) {
		log_error("daemon_stuck", "it did not %s in time and is killed", in->stopping ? "stop" : "start");
		kill(in->daemon, SIGKILL);
		in->kill_at_ns = 0;
	}
}

static void earlier(int64_t *due, int64_t other)
{
	if (other && (!*due || other < *due))
		*due = other;
}

// Waits for a signal, or until the next thing is due. The channel alone wakes nobody.
static void wait_for_more(const struct init *in, struct pollfd p[2])
{
	int64_t due = in->start_at_ns;
	earlier(&due, in->kill_at_ns);
	earlier(&due, init_store_due(&in->store));
	int64_t left = due ? due - io_mono_ns() : 0;
	if (left < 0)
		left = 0;
	struct timespec ts = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
	p[0] = (struct pollfd){.fd = in->signals, .events = POLLIN};
	p[1] = (struct pollfd){.fd = in->store.more ? in->store.channel : -1, .events = POLLIN};
	if (ppoll(p, 2, due ? &ts : NULL, NULL) < 0)
		p[0].revents = p[1].revents = 0;
}

static void turn(struct init *in)
{
	struct pollfd p[2];
	wait_for_more(in, p);
	if (p[0].revents)
		take_signals(in);
	if (p[1].revents)
		store_turn(in);
	if (init_store_overdue(&in->store))
		reap(in);
	on_time(in);
}

int init_run(const struct init_spec *spec)
{
	static const int handled[] = {
		SIGCHLD, SIGTERM, SIGINT, SIGQUIT, SIGHUP, SIGUSR1, SIGUSR2, SIGCONT, STORE_SIGNAL};
	struct init in = {.spec = spec, .store = {.store = spec->store, .channel = -1}};
	sigemptyset(&in.mask);
	for (size_t i = 0; i < sizeof handled / sizeof *handled; i++)
		sigaddset(&in.mask, handled[i]);
	sigprocmask(SIG_SETMASK, &in.mask, NULL);
	in.signals = signalfd(-1, &in.mask, SFD_CLOEXEC | SFD_NONBLOCK);
	if (in.signals < 0) {
		log_error("signalfd", "%s", strerror(errno));
		return 1;
	}
	// Orphans of a daemon that died must come here, not to whatever started celld.
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	start(&in);
	while (!in.done)
		turn(&in);
	// Orphans of a daemon that crashed are here. Nothing is left to lose now, so this may allocate.
	if (getpid() == 1)
		kill(-1, SIGKILL);
	else
		tree_signal_all(getpid(), 0, SIGKILL);
	io_close(&in.signals);
	io_close(&in.store.channel);
	return in.status;
}
