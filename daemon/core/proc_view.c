// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/proc_priv.h"

#include "daemon/io.h"
#include "proto/text.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

pid_t proc_pid(const struct proc *p)
{
	return p->pid;
}

enum proc_state proc_state(const struct proc *p)
{
	return p->state;
}

enum proc_kind proc_kind(const struct proc *p)
{
	return p->kind;
}

const char *proc_command(const struct proc *p)
{
	return p->command;
}

const char *proc_session_id(const struct proc *p)
{
	return p->session_id;
}

const struct asked *proc_asked(const struct proc *p)
{
	return p->asked;
}

int64_t proc_started_ms(const struct proc *p)
{
	return p->started_ms;
}

int64_t proc_duration_ms(const struct proc *p)
{
	int64_t until = p->state == PROC_ENDED ? p->ended_ns : io_mono_ns();
	return (until - p->started_ns) / 1000000;
}

int64_t proc_ended_ago_ms(const struct proc *p)
{
	return p->state == PROC_ENDED ? (io_mono_ns() - p->ended_ns) / 1000000 : 0;
}

struct output *proc_output(const struct proc *p)
{
	return p->output;
}

const struct proc_end *proc_end(const struct proc *p)
{
	return p->state == PROC_ENDED ? &p->end : NULL;
}

const struct proc_end *proc_stream_end(const struct proc *p)
{
	if (p->state == PROC_ENDED)
		return &p->end;
	return p->table->leaving ? &p->table->upgrade : NULL;
}

const char *proc_note(const struct proc *p)
{
	return p->note;
}

void proc_on_end(struct proc *p, void (*on_end)(void *arg, const struct proc *p), void *arg)
{
	if (!p->live)
		return; // it was called already
	p->live->on_end = on_end;
	p->live->on_end_arg = arg;
}

bool proc_is_starved(const struct proc *p)
{
	return p->starved;
}

bool proc_waitable(const struct proc *p)
{
	return !p->waited;
}

static const struct {
	const char *name;
	int sig;
} other_names[] = {
	{"SIGIOT", SIGIOT},
	{"SIGCLD", SIGCHLD},
	{"SIGPOLL", SIGPOLL},
};

const char *proc_signal_name(int sig)
{
	// sigabbrev_np has no prefix, and its strings are constants, so the full names are held here.
	static const char *const names[] = {
		[SIGHUP] = "SIGHUP",
		[SIGINT] = "SIGINT",
		[SIGQUIT] = "SIGQUIT",
		[SIGILL] = "SIGILL",
		[SIGTRAP] = "SIGTRAP",
		[SIGABRT] = "SIGABRT",
		[SIGBUS] = "SIGBUS",
		[SIGFPE] = "SIGFPE",
		[SIGKILL] = "SIGKILL",
		[SIGUSR1] = "SIGUSR1",
		[SIGSEGV] = "SIGSEGV",
		[SIGUSR2] = "SIGUSR2",
		[SIGPIPE] = "SIGPIPE",
		[SIGALRM] = "SIGALRM",
		[SIGTERM] = "SIGTERM",
		[SIGSTKFLT] = "SIGSTKFLT",
		[SIGCHLD] = "SIGCHLD",
		[SIGCONT] = "SIGCONT",
		[SIGSTOP] = "SIGSTOP",
		[SIGTSTP] = "SIGTSTP",
		[SIGTTIN] = "SIGTTIN",
		[SIGTTOU] = "SIGTTOU",
		[SIGURG] = "SIGURG",
		[SIGXCPU] = "SIGXCPU",
		[SIGXFSZ] = "SIGXFSZ",
		[SIGVTALRM] = "SIGVTALRM",
		[SIGPROF] = "SIGPROF",
		[SIGWINCH] = "SIGWINCH",
		[SIGIO] = "SIGIO",
		[SIGPWR] = "SIGPWR",
		[SIGSYS] = "SIGSYS",
	};
	if (sig <= 0 || (size_t)sig >= sizeof names / sizeof *names)
		return NULL;
	return names[sig];
}

// "SIGRTMIN", "SIGRTMIN+3", "SIGRTMAX-1", as kill -l has them.
static int realtime_by_name(const char *full)
{
	static const char low[] = "SIGRTMIN", high[] = "SIGRTMAX";
	bool up = strncasecmp(full, low, sizeof low - 1) == 0;
	long long n = 0;
	if (!up && strncasecmp(full, high, sizeof high - 1) != 0)
		return -EINVAL;
	const char *rest = full + sizeof low - 1;
	if (*rest &&
		(*rest != (up ? '+' : '-') || text_int(rest + 1, strlen(rest + 1), 0, SIGRTMAX - SIGRTMIN, &n) < 0))
		return -EINVAL;
	return up ? SIGRTMIN + (int)n : SIGRTMAX - (int)n;
}

static int signal_by_name(const char *full)
{
	for (int sig = 1; sig < NSIG; sig++) {
		const char *name = proc_signal_name(sig);
		if (name && strcasecmp(name, full) == 0)
			return sig;
	}
	for (size_t i = 0; i < sizeof other_names / sizeof *other_names; i++) {
		if (strcasecmp(other_names[i].name, full) == 0)
			return other_names[i].sig;
	}
	return realtime_by_name(full);
}

int proc_signal_parse(const char *s, size_t n)
{
	static const char prefix[] = "SIGNAL_";
	long long v;
	char full[32];
	if (n && isdigit((unsigned char)*s))
		return text_int(s, n, 1, NSIG - 1, &v) == 0 ? (int)v : -EINVAL;
	if (n > sizeof prefix - 1 && strncasecmp(s, prefix, sizeof prefix - 1) == 0) {
		s += sizeof prefix - 1;
		n -= sizeof prefix - 1;
	}
	bool has_sig = n > 3 && strncasecmp(s, "SIG", 3) == 0;
	int len = snprintf(full, sizeof full, "%s%.*s", has_sig ? "" : "SIG", (int)(n < 24 ? n : 24), s);
	if (n >= 24 || len < 0 || memchr(s, '\0', n))
		return -EINVAL;
	return signal_by_name(full);
}
