// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/proc_priv.h"

#include "daemon/core/tree.h"
#include "daemon/io.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

#define BEAT_S 1.0
// A beat that comes this much late means that the daemon was stopped meanwhile, not that it was busy.
#define STOPPED_NS ((int64_t)2000000000)
// A reader that others wait for must take this much between two looks.
#define STALL_S 0.5
#define STALL_NS_MAX ((int64_t)750000000)
#define STALL_BYTES ((uint64_t)512 * 1024)
// How often an ended process that is still read is looked at again after its retention.
#define EXPIRE_AGAIN_S 1.0

static void on_deadline(struct ev_loop *loop, ev_timer *w, int revents);
static void on_grace(struct ev_loop *loop, ev_timer *w, int revents);

// --- the table ---

static void on_beat(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	procs_resumed(w->data);
}

void procs_resumed(struct procs *t)
{
	int64_t now = io_mono_ns();
	int64_t late = now - t->beat_ns - (int64_t)(BEAT_S * 1e9);
	t->beat_ns = now;
	if (!t->timed || late < STOPPED_NS)
		return;
	struct proc *p;
	DL_FOREACH(t->living, p)
	{
		if (p->deadline_ns)
			p->deadline_ns += late + (int64_t)(BEAT_S * 1e9); // it may have been stopped just after a beat
	}
}

static uint64_t reader_position(const struct output_reader *r)
{
	return r->at + r->used;
}

static void check_stall(struct proc *p)
{
	struct output_reader *r = output_blocker(p->output);
	int64_t now = io_mono_ns();
	// An older look tells nothing: it was not in the way since, or the daemon was stopped.
	bool again = r && p->blocker == r && now - p->blocker_ns < STALL_NS_MAX;
	if (again && reader_position(r) - p->blocker_at < STALL_BYTES)
		r->cut(r);
	p->blocker_ns = now;
	p->blocker = r;
	p->blocker_at = r ? reader_position(r) : 0;
}

static void on_stall(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	struct procs *t = w->data;
	struct proc *p, *tmp;
	bool any = false;
	DL_FOREACH_SAFE(t->living, p, tmp)
	{
		if (!p->starved)
			continue;
		any = true;
		check_stall(p);
		proc_resume(p); // also tries again after a ring that could not be mapped
	}
	if (!any)
		ev_timer_stop(loop, w);
}

static void proc_free(struct proc *p)
{
	if (!p)
		return;
	struct procs *t = p->table;
	proc_io_finish(p, false);
	proc_ending_detach(p);
	ev_timer_stop(t->loop, &p->deadline);
	ev_timer_stop(t->loop, &p->grace);
	io_close(&p->pidfd);
	output_free(p->output);
	free(p->command);
	free(p->session_id);
	free(p->asked);
	free(p);
}

static size_t kept_memory(const struct proc *p)
{
	return sizeof *p + output_memory(p->output) + strlen(p->command) + p->asked_size;
}

static void forget(struct proc *p)
{
	struct procs *t = p->table;
	struct proc *named = procs_find(t, p->pid);
	if (named == p)
		HASH_DEL(t->by_pid, p);
	DL_DELETE(t->ended, p);
	t->ended_count--;
	t->ended_memory -= kept_memory(p);
	proc_free(p);
}

// Drops what is kept too long or too much, the oldest first; what is still read stays. The newest always stays.
static void expire(struct procs *t)
{
	int64_t now = io_mono_ns();
	struct proc *p, *tmp;
	double next = 0;
	DL_FOREACH_SAFE(t->ended, p, tmp)
	{
		bool over = t->ended_count > t->limits.max_ended || t->ended_memory > t->limits.ended_memory;
		int64_t left = p->ended_ns + t->limits.retention_ms * 1000000 - now;
		if (left > 0 && (!over || !p->next)) {
			next = (double)left / 1e9;
			break;
		}
		if (output_readers(p->output))
			next = EXPIRE_AGAIN_S;
		else
			forget(p);
	}
	ev_timer_stop(t->loop, &t->expire);
	if (next > 0) {
		ev_timer_set(&t->expire, next, 0.);
		ev_timer_start(t->loop, &t->expire);
	}
}

void procs_forget(struct procs *t)
{
	struct proc *p, *tmp;
	DL_FOREACH_SAFE(t->ended, p, tmp)
	{
		if (!output_readers(p->output))
			forget(p);
	}
	expire(t);
}

static void on_expire(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	expire(w->data);
}

struct procs *procs_new(struct ev_loop *loop, const struct proc_limits *limits, const struct spawn_base *base)
{
	struct procs *t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	t->loop = loop;
	t->limits = *limits;
	t->base = base;
	ev_timer_init(&t->beat, on_beat, BEAT_S, BEAT_S);
	ev_timer_init(&t->stall, on_stall, STALL_S, STALL_S);
	ev_timer_init(&t->expire, on_expire, 0., 0.);
	t->beat.data = t->stall.data = t->expire.data = t;
	ev_set_priority(&t->beat, EV_MAXPRI); // deadlines are shifted before any that passed meanwhile is looked at
	return t;
}

void procs_free(struct procs *t)
{
	if (!t)
		return;
	ev_timer_stop(t->loop, &t->beat);
	ev_timer_stop(t->loop, &t->stall);
	ev_timer_stop(t->loop, &t->expire);
	HASH_CLEAR(hh, t->by_pid);
	while (t->drains)
		proc_drain_free(t->drains);
	while (t->endings)
		proc_ending_free(t->endings);
	struct proc *p, *tmp;
	DL_FOREACH_SAFE(t->living, p, tmp)
	{
		proc_free(p);
	}
	DL_FOREACH_SAFE(t->ended, p, tmp)
	{
		proc_free(p);
	}
	while (t->settled)
		proc_input_free(t->settled);
	free(t);
}

size_t procs_living(const struct procs *t)
{
	return t->living_count;
}

struct proc *procs_first(const struct procs *t)
{
	return t->living;
}

struct proc *proc_next(const struct proc *p)
{
	return p->next;
}

struct proc *procs_find(const struct procs *t, pid_t pid)
{
	struct proc *p;
	HASH_FIND(hh, t->by_pid, &pid, sizeof pid, p);
	return p;
}

static bool has_tag(const struct proc *p, const char *tag)
{
	return p->asked && p->asked->tag && strcmp(p->asked->tag, tag) == 0;
}

struct proc *procs_tagged(const struct procs *t, const char *tag)
{
	struct proc *p, *last = NULL;
	DL_FOREACH(t->ended, p)
	{
		if (has_tag(p, tag))
			last = p;
	}
	DL_FOREACH(t->living, p)
	{
		if (!has_tag(p, tag))
			continue;
		if (!p->waited)
			return p;
		last = p;
	}
	return last;
}

bool procs_childless(const struct procs *t)
{
	(void)t;
	siginfo_t si;
	return waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD;
}

bool procs_alone(const struct procs *t)
{
	return !t->living_count && procs_childless(t);
}

// In a PID namespace of celld's own one call reaches all but its first process and the caller, however many they are.
static bool own_namespace(const struct procs *t)
{
	return t->limits.init == 1 || getpid() == 1;
}

void procs_hold(struct procs *t, bool held)
{
	t->held = held;
}

void procs_signal_all(const struct procs *t, int sig)
{
	if (own_namespace(t)) {
		kill(-1, sig);
		return;
	}
	tree_signal_all(getpid(), 0, sig);
	if (t->limits.init)
		tree_signal_all(t->limits.init, getpid(), sig);
}

bool procs_strays(const struct procs *t)
{
	return t->limits.init && tree_signal_all(t->limits.init, getpid(), 0) > 0;
}

void procs_terminate(struct procs *t)
{
	const struct proc *p;
	DL_FOREACH(t->living, p)
	{
		if (p->kind == PROC_TERMINAL && !p->waited)
			kill(p->pid, SIGHUP); // interactive shells ignore TERM
	}
	procs_signal_all(t, SIGTERM);
}

// --- starting ---

static struct proc *proc_new(struct procs *t, const struct proc_spec *spec)
{
	struct proc *p = calloc(1, sizeof *p);
	if (!p)
		return NULL;
	p->table = t;
	p->pidfd = p->in.fd = p->pipes[0].fd = p->pipes[1].fd = p->slave = -1;
	p->kind = spec->kind;
	p->on_end = spec->on_end;
	p->on_end_arg = spec->on_end_arg;
	buf_init(&p->in.queue, t->limits.stdin_max);
	ev_timer_init(&p->deadline, on_deadline, 0., 0.);
	ev_timer_init(&p->grace, on_grace, 0., 0.);
	p->deadline.data = p->grace.data = p;
	p->output = output_new(t->limits.replay);
	p->command = strdup(spec->command);
	p->session_id = spec->session_id ? strdup(spec->session_id) : NULL;
	p->asked = spec->asked ? asked_dup(spec->asked, &p->asked_size) : NULL;
	if (!p->output || !p->command || (spec->session_id && !p->session_id) || (spec->asked && !p->asked)) {
		proc_free(p);
		return NULL;
	}
	return p;
}

static void set_deadline(struct proc *p, double timeout)
{
	struct procs *t = p->table;
	if (timeout <= 0)
		return;
	p->deadline_ns = p->started_ns + (int64_t)(timeout * 1e9);
	ev_now_update(t->loop);
	ev_timer_set(&p->deadline, timeout, 0.);
	ev_timer_start(t->loop, &p->deadline);
	if (t->timed++ == 0) {
		t->beat_ns = io_mono_ns();
		ev_timer_again(t->loop, &t->beat);
	}
}

static void clear_deadline(struct proc *p)
{
	if (!p->deadline_ns)
		return;
	p->deadline_ns = 0;
	ev_timer_stop(p->table->loop, &p->deadline);
	if (--p->table->timed == 0)
		ev_timer_stop(p->table->loop, &p->table->beat);
}

// The pid of a new process is its own from now on: an ended one of that number is not found any more.
static int enlist(struct proc *p)
{
	struct procs *t = p->table;
	struct proc *old = procs_find(t, p->pid);
	if (old)
		HASH_DEL(t->by_pid, old);
	HASH_ADD(hh, t->by_pid, pid, sizeof p->pid, p);
	if (!p->hh.tbl)
		return -ENOMEM;
	DL_APPEND(t->living, p);
	t->living_count++;
	return 0;
}

static void abandon(struct proc *p)
{
	siginfo_t si;
	kill(-p->pid, SIGKILL);
	while (waitid(P_PID, (id_t)p->pid, &si, WEXITED) < 0 && errno == EINTR)
		;
}

int proc_start(struct procs *t, const struct proc_spec *spec, struct proc **out, enum spawn_step *step)
{
	*step = SPAWN_PREPARE;
	if (t->living_count >= t->limits.max_procs)
		return -EUSERS;
	if (t->held)
		return -EBUSY;
	struct proc *p = proc_new(t, spec);
	if (!p)
		return -ENOMEM;
	struct spawn_spec run = spec->run;
	run.fd[0] = run.fd[1] = run.fd[2] = -1;
	run.controlling_tty = p->kind == PROC_TERMINAL;
	int rc = proc_io_open(p, spec, run.fd);
	if (rc == 0)
		rc = spawn_run(t->base, &run, &p->pid, &p->pidfd, step);
	for (int i = 0; i < 3; i++) {
		if (run.fd[i] != p->slave)
			io_close(&run.fd[i]);
	}
	if (rc == 0) {
		rc = enlist(p);
		if (rc < 0) {
			*step = SPAWN_PREPARE;
			abandon(p);
		}
	}
	if (rc < 0) {
		proc_free(p);
		return rc;
	}
	p->started_ms = io_wall_ms();
	p->started_ns = io_mono_ns();
	if (p->kind == PROC_TERMINAL)
		p->terminal_id = ++t->last_terminal;
	proc_io_start(p);
	set_deadline(p, spec->timeout);
	*out = p;
	return 0;
}

// --- the life machine ---

static void finish(struct proc *p)
{
	struct procs *t = p->table;
	p->state = PROC_ENDED;
	p->ended_ns = io_mono_ns();
	p->starved = false;
	clear_deadline(p);
	ev_timer_stop(t->loop, &p->grace);
	proc_io_finish(p, true);
	io_close(&p->pidfd);
	DL_DELETE(t->living, p);
	t->living_count--;
	DL_APPEND(t->ended, p);
	t->ended_count++;
	if (p->on_end)
		p->on_end(p->on_end_arg, p);
	output_close(p->output);
	t->ended_memory += kept_memory(p);
	expire(t);
}

void proc_advance(struct proc *p)
{
	bool eof = proc_io_eof(p);
	if (p->state == PROC_ENDED)
		return;
	if (p->waited && (eof || (p->grace_over && !proc_io_owes(p))))
		finish(p);
	else if (p->waited)
		p->state = PROC_EXITED;
	else
		p->state = eof ? PROC_DRAINED : PROC_RUNNING;
}

static void on_grace(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct proc *p = w->data;
	p->grace_over = true;
	proc_io_drain(p);
}

static void record_end(struct proc *p, const siginfo_t *si)
{
	bool exited = si->si_code == CLD_EXITED;
	p->end.code = exited ? si->si_status : -1;
	p->end.sig = exited ? 0 : si->si_status;
	p->end.core = si->si_code == CLD_DUMPED;
	p->end.timed_out = p->killed && p->end.sig == SIGKILL;
}

static void reaped(struct proc *p)
{
	p->waited = true;
	clear_deadline(p);
	proc_stdin_close_now(p);
	proc_io_close_slave(p);
	proc_io_mark_owed(p);
	ev_timer_set(&p->grace, (double)p->table->limits.grace_ms / 1e3, 0.);
	ev_timer_start(p->table->loop, &p->grace);
	proc_io_drain(p);
}

void procs_reap(struct procs *t)
{
	for (;;) {
		siginfo_t si = {0};
		if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0) {
			if (errno == EINTR)
				continue;
			return;
		}
		if (!si.si_pid)
			return;
		struct proc *p = procs_find(t, si.si_pid);
		if (p && p->waited)
			p = NULL;
		if (p)
			record_end(p, &si);
		// Seen and recorded; from here on the number may belong to someone else.
		waitid(P_PID, (id_t)si.si_pid, &si, WEXITED | WNOHANG);
		if (p)
			reaped(p);
	}
}

static void on_deadline(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	struct proc *p = w->data;
	int64_t left = p->deadline_ns - io_mono_ns();
	if (left > 0) {
		ev_timer_set(w, (double)left / 1e9, 0.);
		ev_timer_start(loop, w);
		return;
	}
	// It may have ended by itself already.
	struct procs *t = p->table;
	pid_t pid = p->pid;
	procs_reap(t);
	p = procs_find(t, pid);
	if (!p || p->waited)
		return;
	p->killed = true;
	tree_signal(p->pid, getpid(), SIGKILL);
	kill(-p->pid, SIGKILL);
}

void procs_kill_all(struct procs *t)
{
	procs_reap(t);
	struct proc *p, *tmp;
	DL_FOREACH_SAFE(t->living, p, tmp)
	{
		proc_io_drain(p);
	}
	DL_FOREACH_SAFE(t->living, p, tmp)
	{
		// One that had ended by itself, but whose output is cut here, has no end to tell either.
		if (!p->waited || proc_io_owes(p))
			p->end.stopped = true;
		p->waited = p->grace_over = true;
		p->pipes[0].owed = p->pipes[1].owed = 0;
		proc_advance(p);
	}
	procs_signal_all(t, SIGKILL);
}

void proc_starve(struct proc *p)
{
	p->starved = true;
	for (int i = 0; i < 2; i++)
		ev_io_stop(p->table->loop, &p->pipes[i].io);
	if (!ev_is_active(&p->table->stall))
		ev_timer_again(p->table->loop, &p->table->stall);
}

void proc_resume(struct proc *p)
{
	struct iovec iov[2];
	int count;
	if (!p->starved || output_room(p->output, PROC_READ_MAX, iov, &count) <= 0)
		return;
	p->starved = false;
	for (int i = 0; i < 2; i++) {
		if (p->pipes[i].fd >= 0)
			ev_io_start(p->table->loop, &p->pipes[i].io);
	}
}

int proc_signal(struct proc *p, int sig, bool group)
{
	if (p->waited)
		return -ESRCH;
	long rc = group ? kill(-p->pid, sig) : syscall(SYS_pidfd_send_signal, p->pidfd, sig, NULL, 0);
	return rc < 0 ? -errno : 0;
}
