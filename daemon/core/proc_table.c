// SPDX-License-Identifier: Apache-2.0
// The table: what is in it, how long the ended are kept, and what is said to all.
#include "daemon/core/proc_priv.h"

#include "daemon/core/tree.h"
#include "daemon/io.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
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
// Starts and ends that follow each other faster than this are one burst.
#define CALM_S 0.05

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
		if (p->deadline_ns) // it may have been stopped just after a beat
			proc_store_deadline(p, p->deadline_ns + late + (int64_t)(BEAT_S * 1e9));
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
	struct proc_live *l = p->live;
	bool again = r && l->blocker == r && now - l->blocker_ns < STALL_NS_MAX;
	if (again && reader_position(r) - l->blocker_at < STALL_BYTES) {
		if (p->table->limits.metrics)
			p->table->limits.metrics->readers_cut++;
		r->cut(r);
	}
	l->blocker_ns = now;
	l->blocker = r;
	l->blocker_at = r ? reader_position(r) : 0;
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
		proc_resume(p);
	}
	if (!any)
		ev_timer_stop(loop, w);
}

static void free_live(struct proc *p)
{
	struct procs *t = p->table;
	if (!p->live)
		return;
	proc_io_finish(p, false);
	ev_timer_stop(t->loop, &p->live->deadline);
	ev_timer_stop(t->loop, &p->live->grace);
	free(p->live);
	free(p->request);
	p->live = NULL;
	p->pipes = NULL;
	p->command = "";
	p->session_id = p->note = p->request = NULL;
}

void proc_free(struct proc *p)
{
	if (!p)
		return;
	free_live(p);
	proc_ending_detach(p);
	proc_group_release(p);
	output_free(p->output);
	free(p->asked);
	cells_put(&p->table->cells, p);
}

static void count_memory(struct proc *p)
{
	const char *tag = p->asked ? p->asked->tag : NULL;
	size_t n = sizeof *p + output_memory(p->output) + (tag ? sizeof *p->asked + strlen(tag) : 0);
	p->table->ended_memory += n - p->memory;
	p->memory = n;
}

// All that is asked of one that has ended is its tag.
static void forget_asked(struct proc *p)
{
	static const char *const none[] = {NULL};
	const struct asked tag = {.argv = none, .env = none, .tag = p->asked ? p->asked->tag : NULL};
	struct asked *less = tag.tag ? asked_dup(&tag, NULL) : NULL;
	if (tag.tag && !less)
		return;
	free(p->asked);
	p->asked = less;
}

void proc_retire(struct proc *p)
{
	free_live(p);
	forget_asked(p);
	count_memory(p);
}

void proc_forget(struct proc *p)
{
	struct procs *t = p->table;
	struct store_slot *slot = p->slot;
	struct proc *named = procs_find(t, p->pid);
	if (named == p)
		HASH_DEL(t->by_pid, p);
	DL_DELETE(t->ended, p);
	t->ended_count--;
	t->ended_memory -= p->memory;
	p->slot = NULL;
	proc_free(p);
	proc_store_forget(t, slot);
}

// Drops what is kept too long or too much, the oldest first; what is still read stays. The newest always stays.
void procs_expire(struct procs *t)
{
	int64_t now = io_mono_ns();
	struct proc *p, *tmp;
	double next = 0;
	DL_FOREACH(t->ended_memory > t->limits.ended_memory ? t->ended : NULL, p)
	{
		count_memory(p); // readers that have left it since its end may have held more
	}
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
			proc_forget(p);
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
			proc_forget(p);
	}
	procs_expire(t);
}

static void on_expire(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	procs_expire(w->data);
}

static void on_calm(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	struct procs *t = w->data;
	// A tracer that dies (strace into a closed pipe) takes the SIGCHLD along that it has just seen.
	procs_reap(t);
	store_wake(t->limits.store);
	if (spawn_settle(t->base))
		ev_timer_stop(loop, w);
}

void procs_stir(struct procs *t)
{
	ev_timer_again(t->loop, &t->calm);
}

struct procs *procs_new(struct ev_loop *loop, const struct proc_limits *limits, const struct spawn_base *base)
{
	struct procs *t = calloc(1, sizeof *t);
	if (!t)
		return NULL;
	t->loop = loop;
	t->limits = *limits;
	t->base = base;
	cells_init(&t->cells, sizeof(struct proc) + output_place_size());
	ev_timer_init(&t->beat, on_beat, BEAT_S, BEAT_S);
	ev_timer_init(&t->stall, on_stall, STALL_S, STALL_S);
	ev_timer_init(&t->expire, on_expire, 0., 0.);
	ev_timer_init(&t->calm, on_calm, CALM_S, CALM_S);
	t->beat.data = t->stall.data = t->expire.data = t->calm.data = t;
	procs_store_init(t);
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
	ev_timer_stop(t->loop, &t->calm);
	(void)spawn_settle(t->base);
	procs_store_release(t);
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
	cells_release(&t->cells);
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

size_t procs_ended(const struct procs *t)
{
	return t->ended_count;
}

const struct proc *procs_first_ended(const struct procs *t)
{
	return t->ended;
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

// Something that an earlier daemon left behind lives: the init part's child, or below one.
static bool strays(const struct procs *t)
{
	return t->limits.init && tree_signal_all(t->limits.init, getpid(), 0) > 0;
}

bool procs_childless(const struct procs *t)
{
	siginfo_t si;
	if (t->adopted || t->late)
		return false;
	return IO_AGAIN(waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT)) < 0 && errno == ECHILD && !strays(t) &&
	       cgroups_empty(t->limits.cgroups);
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
	if (sig == SIGKILL)
		(void)cgroups_kill_all(t->limits.cgroups); // also whoever has lost all its parents
	if (own_namespace(t)) {
		kill(-1, sig);
		return;
	}
	// By their own numbers first: to look for them takes descriptors, and there may be none.
	const struct proc *p;
	DL_FOREACH(sig == SIGKILL ? t->living : NULL, p)
	{
		if (!p->waited)
			kill(p->pid, sig);
	}
	tree_signal_all(getpid(), 0, sig);
	if (t->limits.init)
		tree_signal_all(t->limits.init, getpid(), sig);
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
