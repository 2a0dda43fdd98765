// SPDX-License-Identifier: Apache-2.0
// Starting, the life machine, signals.
#include "daemon/core/proc_priv.h"

#include "daemon/core/tree.h"
#include "daemon/io.h"
#include "daemon/io_watch.h"
#include "daemon/log.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utlist.h>

static void on_deadline(struct ev_loop *loop, ev_timer *w, int revents);
static void on_grace(struct ev_loop *loop, ev_timer *w, int revents);

static const char *put(char **at, const char *s)
{
	if (!s)
		return NULL;
	size_t n = strlen(s) + 1;
	char *copy = memcpy(*at, s, n);
	*at += n;
	return copy;
}

struct proc *proc_new(struct procs *t, const char *command, const char *session_id, const char *note)
{
	size_t n = strlen(command) + 1 + (session_id ? strlen(session_id) + 1 : 0) + (note ? strlen(note) + 1 : 0);
	struct proc_live *l = calloc(1, sizeof *l + n);
	struct proc *p = l ? cells_get(&t->cells) : NULL;
	if (!p) {
		free(l);
		return NULL;
	}
	char *strings = (char *)(l + 1);
	p->table = t;
	p->command = put(&strings, command);
	p->session_id = put(&strings, session_id);
	p->note = put(&strings, note);
	p->live = l;
	p->pipes = l->pipes;
	p->in.fd = p->pipes[0].fd = p->pipes[1].fd = p->slave = -1;
	buf_init(&l->queue, t->limits.stdin_max);
	ev_timer_init(&l->deadline, on_deadline, 0., 0.);
	ev_timer_init(&l->grace, on_grace, 0., 0.);
	l->deadline.data = l->grace.data = p;
	return p;
}

// It did not come to run.
static void unmake(struct proc *p)
{
	struct procs *t = p->table;
	struct store_slot *slot = p->slot;
	p->slot = NULL;
	proc_free(p);
	store_release(slot);
	procs_stir(t);
}

static struct proc *proc_make(struct procs *t, const struct proc_spec *spec)
{
	struct proc *p = proc_new(t, spec->command, spec->session_id, spec->note);
	if (!p)
		return NULL;
	p->kind = spec->kind;
	p->counted = spec->counted;
	p->started_ms = io_wall_ms();
	p->started_ns = io_mono_ns();
	if (spec->timeout > 0)
		p->deadline_ns = p->started_ns + (int64_t)(spec->timeout * 1e9);
	p->live->on_end = spec->on_end;
	p->live->on_end_arg = spec->on_end_arg;
	p->in.wanted = spec->want_stdin && spec->kind != PROC_TERMINAL;
	p->terminal_id = spec->kind == PROC_TERMINAL ? t->last_terminal + 1 : 0;
	p->asked = spec->asked ? asked_dup(spec->asked, NULL) : NULL;
	if (!spec->asked == !p->asked) {
		proc_store_begin(p);
		p->output = output_place(p + 1, p->slot, t->limits.replay);
	}
	// What runs must be able to write, and to come to its end: room for that is found before it runs.
	if (p->output && output_map(p->output) == 0)
		return p;
	unmake(p);
	return NULL;
}

void proc_arm(struct proc *p)
{
	struct procs *t = p->table;
	if (!p->deadline_ns)
		return;
	int64_t left = p->deadline_ns - io_mono_ns();
	ev_now_update(t->loop);
	ev_timer_set(&p->live->deadline, left > 0 ? (double)left / 1e9 : 0., 0.);
	ev_timer_start(t->loop, &p->live->deadline);
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
	ev_timer_stop(p->table->loop, &p->live->deadline);
	if (--p->table->timed == 0)
		ev_timer_stop(p->table->loop, &p->table->beat);
}

int proc_enlist(struct proc *p)
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
	proc_group_kill(p);
	kill(-p->pid, SIGKILL);
	while (waitid(P_PID, (id_t)p->pid, &si, WEXITED) < 0 && errno == EINTR)
		;
}

// Runs it, in its group if that can be. 0 or negative errno.
static int run_in_group(struct proc *p, const struct proc_spec *spec, struct spawn_spec *run, enum spawn_step *step)
{
	const struct spawn_base *base = p->table->base;
	run->slot = p->slot;
	run->cgroup = p->group;
	procs_stir(p->table);
	int rc = spawn_run(base, run, &p->pid, step);
	if (rc < 0 && *step == SPAWN_PREPARE && proc_group_drop(p, &spec->bounds, rc)) {
		run->cgroup = NULL;
		rc = spawn_run(base, run, &p->pid, step);
	}
	return rc;
}

static int start(struct procs *t, const struct proc_spec *spec, struct proc **out, enum spawn_step *step)
{
	*step = SPAWN_PREPARE;
	if (t->living_count >= t->limits.max_procs)
		return -EUSERS;
	if (t->held)
		return -EBUSY;
	if (t->leaving)
		return -ERESTART;
	struct proc *p = proc_make(t, spec);
	if (!p)
		return -ENOMEM;
	struct spawn_spec run = spec->run;
	run.fd[0] = run.fd[1] = run.fd[2] = -1;
	run.controlling_tty = p->kind == PROC_TERMINAL;
	int rc = proc_group_take(p, &spec->bounds);
	if (rc == 0)
		rc = proc_io_open(p, spec, run.fd);
	if (rc == 0)
		rc = run_in_group(p, spec, &run, step);
	for (int i = 0; i < 3; i++) {
		if (run.fd[i] != p->slave)
			io_close(&run.fd[i]);
	}
	if (rc == 0) {
		rc = proc_enlist(p);
		if (rc < 0) {
			*step = SPAWN_PREPARE;
			abandon(p);
		}
	}
	if (rc < 0) {
		unmake(p);
		return rc;
	}
	if (p->terminal_id)
		t->last_terminal = p->terminal_id;
	proc_io_start(p);
	proc_arm(p);
	*out = p;
	return 0;
}

int proc_start(struct procs *t, const struct proc_spec *spec, struct proc **out, enum spawn_step *step)
{
	int rc = start(t, spec, out, step);
	proc_tell_start(t, spec, rc < 0 ? NULL : *out, rc, *step);
	return rc;
}

// --- the life machine ---

static void finish(struct proc *p)
{
	struct procs *t = p->table;
	p->state = PROC_ENDED;
	p->ended_ns = proc_store_ended_ns(p);
	p->starved = false;
	clear_deadline(p);
	unsigned held = proc_io_finish(p, true);
	proc_group_release(p);
	DL_DELETE(t->living, p);
	t->living_count--;
	DL_APPEND(t->ended, p);
	t->ended_count++;
	proc_tell_end(p);
	if (p->live->on_end)
		p->live->on_end(p->live->on_end_arg, p);
	output_close(p->output);
	proc_store_flag(p, PROC_KEPT_ENDED);
	proc_store_drop(p, STORE_ENDS_ALL & ~held); // now that nobody will miss them
	proc_retire(p);
	procs_expire(t);
}

void proc_advance(struct proc *p)
{
	if (p->state == PROC_ENDED || p->table->leaving)
		return;
	bool eof = proc_io_eof(p);
	if (p->waited && (eof || (p->grace_over && !proc_io_owes(p))))
		finish(p);
	else if (p->waited)
		p->state = PROC_EXITED;
	else if (!eof)
		p->state = PROC_RUNNING;
	else if (p->state != PROC_DRAINED) {
		p->state = PROC_DRAINED;
		procs_stir(p->table); // it has likely ended: a look, in case the signal is lost
	}
}

static void on_grace(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct proc *p = w->data;
	p->grace_over = true;
	proc_io_drain(p);
}

void proc_record_end(struct proc *p, int code, int status)
{
	bool exited = code == CLD_EXITED;
	p->end.code = exited ? status : -1;
	p->end.sig = exited ? 0 : status;
	p->end.core = code == CLD_DUMPED;
	p->end.timed_out = p->killed && p->end.sig == SIGKILL;
}

void proc_waited(struct proc *p)
{
	p->waited = true;
	proc_unadopt(p);
	clear_deadline(p);
	proc_stdin_close_now(p);
	proc_io_close_slave(p);
	proc_io_mark_owed(p);
	ev_timer_set(&p->live->grace, (double)p->table->limits.grace_ms / 1e3, 0.);
	ev_timer_start(p->table->loop, &p->live->grace);
	proc_io_drain(p);
}

void procs_reap(struct procs *t)
{
	for (;;) {
		siginfo_t si = {0};
		if (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT) < 0) {
			if (errno == EINTR)
				continue;
			break;
		}
		if (!si.si_pid)
			break;
		struct proc *p = procs_find(t, si.si_pid);
		if (p && p->waited)
			p = NULL;
		if (p) {
			proc_record_end(p, si.si_code, si.si_status);
			proc_store_end(p, si.si_code, si.si_status);
		}
		// Seen and recorded; from here on the number may belong to someone else.
		IO_AGAIN(waitid(P_PID, (id_t)si.si_pid, &si, WEXITED | WNOHANG));
		if (p)
			proc_waited(p);
	}
	procs_collect(t);
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
	if (!p || proc_gone(p))
		return;
	p->killed = true;
	proc_store_flag(p, PROC_KEPT_KILLED);
	proc_group_kill(p);
	tree_signal(p->pid, proc_parent(p), SIGKILL);
	if (kill(-p->pid, SIGKILL) < 0 && errno == EPERM)
		log_warn("deadline", "process %d is another user's: it cannot be ended", (int)p->pid);
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
		proc_unadopt(p);
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
		if (p->pipes[i].fd >= 0 && !p->table->leaving)
			io_watch(p->table->loop, &p->pipes[i].io);
	}
}

int proc_signal(struct proc *p, int sig, bool group)
{
	if (proc_gone(p))
		return -ESRCH;
	// The number is its own until it was waited for.
	return kill(group ? -p->pid : p->pid, sig) < 0 ? -errno : 0;
}
