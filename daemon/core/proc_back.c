// SPDX-License-Identifier: Apache-2.0
// Taking back what an earlier daemon left in the store, and leaving it there for a later one.
#include "daemon/core/proc_priv.h"

#include "daemon/core/proc_record.h"
#include "daemon/core/tree.h"
#include "daemon/io.h"
#include "daemon/io_watch.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

// A process that was being started when its daemon died says its pid as soon as it runs.
#define LATE_NS ((int64_t)1000000000)
#define LATE_LOOK_S 0.005
// What a session that was being ended gets before it is killed.
#define ENDING_GRACE_MS 2000

// --- what does not come back ---

static bool may_be_ours(const struct procs *t, pid_t pid)
{
	struct tree_stat st;
	if (pid <= 1 || pid == getpid() || pid == t->limits.init)
		return false;
	// Without /proc its word is taken.
	return tree_stat(pid, &st) < 0 || st.ppid == t->limits.init || st.ppid == getpid();
}

// Its processes end, rather than run on where nobody can reach them.
static void refuse(struct procs *t, struct store_slot *slot)
{
	const struct store_life *life = store_life(slot);
	pid_t pid = (pid_t)__atomic_load_n(&life->pid, __ATOMIC_ACQUIRE);
	if (!store_get(&life->ended) && may_be_ours(t, pid)) {
		proc_group_refuse(t, slot);
		tree_signal(pid, t->limits.init ? t->limits.init : getpid(), SIGKILL);
		kill(-pid, SIGKILL);
	}
	store_release(slot);
	procs_stir(t);
}

// --- what does ---

static struct proc *from_record(struct procs *t, const struct proc_record *r)
{
	struct proc *p = proc_new(t, r->command, r->session_id, r->note);
	if (!p)
		return NULL;
	p->kind = (enum proc_kind)r->kind;
	p->begun = true;
	p->started_ms = r->started_ms;
	p->started_ns = r->started_ns;
	p->terminal_id = r->terminal_id;
	p->in.wanted = r->wanted;
	p->asked = r->has_asked ? asked_dup(&r->asked, NULL) : NULL;
	if (r->has_asked == !!p->asked)
		return p;
	proc_free(p);
	return NULL;
}

// The process of SLOT with its log, not yet in any list. 0; -EPROTO if what is left of it makes no sense; -ENOMEM.
static int proc_of(struct procs *t, struct store_slot *slot, struct proc **out)
{
	size_t n;
	struct proc_record r;
	*out = NULL;
	const void *bytes = store_record_get(slot, &n);
	int rc = bytes ? proc_record_decode(&r, bytes, n) : -EPROTO;
	if (rc < 0)
		return rc;
	struct proc *p = r.kind <= PROC_INTERNAL ? from_record(t, &r) : NULL;
	rc = p                         ? output_take_back(&p->output, p + 1, slot, t->limits.replay)
	     : r.kind <= PROC_INTERNAL ? -ENOMEM
				       : -EPROTO;
	proc_record_release(&r);
	if (rc < 0) {
		proc_free(p);
		return rc == -ENOMEM ? rc : -EPROTO;
	}
	*out = p;
	return 0;
}

// The pipes that were open at its end, whoever holds them now.
static void take_drains(struct procs *t, struct store_slot *slot)
{
	static const enum store_end outputs[] = {STORE_STDOUT, STORE_STDERR, STORE_MASTER};
	unsigned gone = STORE_ENDS_ALL;
	for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++) {
		int fd = store_end_take(slot, outputs[i]);
		if (fd >= 0 && proc_io_park(t, fd, slot, outputs[i]) == 0)
			gone &= ~(1u << outputs[i]);
	}
	store_drop(slot, gone);
	procs_stir(t);
}

static void forgotten(struct procs *t, struct store_slot *slot)
{
	take_drains(t, slot);
	proc_store_forget(t, slot);
}

static void back_ended(struct proc *p)
{
	struct procs *t = p->table;
	const struct store_life *life = store_life(p->slot);
	p->state = PROC_ENDED;
	p->waited = true;
	p->ended_ns = life->ended_ns;
	proc_record_end(p, life->code, life->status);
	take_drains(t, p->slot);
	store_ack(p->slot);
	output_close(p->output);
	struct proc *other = procs_find(t, p->pid);
	if (other && other->state == PROC_ENDED && other->started_ns < p->started_ns)
		HASH_DEL(t->by_pid, other);
	if (!procs_find(t, p->pid))
		HASH_ADD(hh, t->by_pid, pid, sizeof p->pid, p);
	DL_APPEND(t->ended, p);
	t->ended_count++;
	proc_retire(p);
}

// False if there is no such process: nobody will ever say how it ended.
static bool find_process(struct proc *p)
{
	const struct store_life *life = store_life(p->slot);
	if (store_get(&life->ended))
		return true;
	bool there = kill(p->pid, 0) == 0 || errno != ESRCH;
	return store_get(&life->ended) || (there && may_be_ours(p->table, p->pid));
}

static int back_living(struct proc *p)
{
	const struct store_life *life = store_life(p->slot);
	uint32_t flags = store_get(&life->flags);
	p->in.closing = flags & PROC_KEPT_CLOSING;
	p->deadline_ns = __atomic_load_n(&life->deadline_ns, __ATOMIC_ACQUIRE);
	if (!find_process(p))
		return -ESRCH;
	if (proc_enlist(p) < 0)
		return -ENOMEM;
	proc_io_take_back(p);
	if (p->pipes[0].fd < 0 || (p->pipes[1].fd < 0 && p->kind != PROC_TERMINAL))
		output_lose(p->output); // the init part had no descriptor left to keep it
	proc_store_rest_take(p);
	proc_arm(p);
	p->adopted = true;
	p->table->adopted++;
	return 0;
}

static int back(struct proc *p)
{
	const struct store_life *life = store_life(p->slot);
	uint32_t flags = store_get(&life->flags);
	p->killed = flags & PROC_KEPT_KILLED;
	p->end.oom = flags & PROC_KEPT_OOM;
	uint32_t counted = flags >> PROC_KEPT_COUNTED & PROC_KEPT_COUNTED_MASK;
	p->counted = counted < METRICS_KINDS ? (enum metrics_kind)counted : METRICS_EXEC;
	if (flags & PROC_KEPT_ENDING)
		p->terminal_id = 0;
	if (!(flags & PROC_KEPT_ENDED) || !store_get(&life->ended))
		return back_living(p);
	back_ended(p);
	return 0;
}

// 0 or -ENOMEM.
static int take(struct procs *t, struct store_slot *slot, struct procs_taken *taken)
{
	struct store_life *life = store_life(slot);
	struct proc *p;
	if (store_get(&life->flags) & PROC_KEPT_FORGOTTEN) {
		forgotten(t, slot);
		return 0;
	}
	pid_t pid = (pid_t)__atomic_load_n(&life->pid, __ATOMIC_ACQUIRE);
	int rc = proc_of(t, slot, &p);
	if (rc == -ENOMEM)
		return rc;
	if (rc < 0) {
		size_t n;
		taken->refused += pid > 0 || store_record_get(slot, &n); // else its start had only begun
		refuse(t, slot);
		return 0;
	}
	p->slot = slot;
	p->pid = pid;
	proc_group_take_back(p);
	if (p->terminal_id > t->last_terminal)
		t->last_terminal = p->terminal_id;
	if (!pid) {
		p->live->late_ns = io_mono_ns() + LATE_NS;
		DL_APPEND(t->late, p);
		return 0;
	}
	rc = back(p);
	if (rc == 0) {
		taken->living += p->state != PROC_ENDED;
		taken->ended += p->state == PROC_ENDED;
		return 0;
	}
	p->slot = NULL;
	proc_free(p);
	if (rc == -ENOMEM)
		return rc;
	taken->refused++;
	refuse(t, slot);
	return 0;
}

static int by_start(const struct proc *a, const struct proc *b)
{
	return (a->started_ns > b->started_ns) - (a->started_ns < b->started_ns);
}

static int by_end(const struct proc *a, const struct proc *b)
{
	return (a->ended_ns > b->ended_ns) - (a->ended_ns < b->ended_ns);
}

int procs_take_back(struct procs *t, struct procs_taken *taken)
{
	size_t i = 0;
	struct store_slot *slot;
	*taken = (struct procs_taken){0};
	for (; t->limits.store && (slot = store_left(t->limits.store, i, &i)); i++) {
		int rc = take(t, slot, taken);
		if (rc < 0)
			return rc;
	}
	DL_SORT(t->living, by_start);
	DL_SORT(t->ended, by_end);
	procs_expire(t);
	ev_timer_stop(t->loop, &t->settle);
	ev_timer_set(&t->settle, 0., 0.);
	ev_timer_start(t->loop, &t->settle);
	return 0;
}

// --- in the loop ---

static void begin(struct proc *p)
{
	p->looked_at = true;
	if (p->kind == PROC_INTERNAL && !p->live->on_end && !proc_gone(p)) {
		proc_group_kill(p);
		tree_signal(p->pid, proc_parent(p), SIGKILL); // whoever wanted it is gone
		kill(-p->pid, SIGKILL);
	}
	if (store_get(&store_life(p->slot)->flags) & PROC_KEPT_ENDING)
		(void)proc_end_session(p, ENDING_GRACE_MS, NULL, NULL);
	proc_io_start(p);
	proc_stdin_go_on(p);
	proc_advance(p);
}

static bool look_for_late(struct procs *t)
{
	struct proc *p, *tmp;
	DL_FOREACH_SAFE(t->late, p, tmp)
	{
		struct store_slot *slot = p->slot;
		p->pid = (pid_t)__atomic_load_n(&store_life(slot)->pid, __ATOMIC_ACQUIRE);
		if (!p->pid && io_mono_ns() < p->live->late_ns)
			continue;
		DL_DELETE(t->late, p);
		int rc = p->pid ? back(p) : -ESRCH;
		if (rc == -ENOMEM)
			DL_PREPEND(t->late, p); // again
		if (rc == 0 || rc == -ENOMEM)
			continue;
		p->slot = NULL;
		proc_free(p);
		refuse(t, slot);
	}
	return t->late != NULL;
}

static void on_settle(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	struct procs *t = w->data;
	struct proc *p, *tmp;
	bool more = look_for_late(t);
	DL_FOREACH_SAFE(t->living, p, tmp)
	{
		if (p->begun && !p->looked_at)
			begin(p);
	}
	procs_reap(t);
	if (!more)
		return;
	ev_timer_set(w, LATE_LOOK_S, 0.);
	ev_timer_start(loop, w);
}

static void on_event(struct ev_loop *loop, ev_io *w, int revents)
{
	io_watch_failed(loop, w, revents);
	uint64_t n;
	(void)io_read(w->fd, &n, sizeof n);
	procs_reap(w->data);
}

void procs_store_init(struct procs *t)
{
	int fd = store_event_fd(t->limits.store);
	ev_io_init(&t->event, on_event, fd, EV_READ);
	ev_timer_init(&t->settle, on_settle, 0., 0.);
	t->event.data = t->settle.data = t;
	if (fd >= 0)
		io_watch(t->loop, &t->event);
}

void procs_store_release(struct procs *t)
{
	struct proc *p, *tmp;
	struct proc_drain *d;
	ev_io_stop(t->loop, &t->event);
	ev_timer_stop(t->loop, &t->settle);
	DL_FOREACH(t->drains, d)
	{
		d->slot = NULL;
	}
	DL_FOREACH(t->living, p)
	{
		p->slot = NULL;
		p->group = NULL; // it is in there still
	}
	DL_FOREACH(t->ended, p)
	{
		p->slot = NULL;
	}
	DL_FOREACH_SAFE(t->late, p, tmp)
	{
		DL_DELETE(t->late, p);
		p->slot = NULL;
		p->group = NULL;
		proc_free(p);
	}
}

// --- leaving ---

void procs_leave(struct procs *t)
{
	struct proc *p, *tmp;
	if (t->leaving)
		return;
	procs_reap(t);
	t->leaving = true;
	t->upgrade = (struct proc_end){.code = -1, .leaving = true};
	struct rlimit size = io_limit_lift(RLIMIT_FSIZE); // the store counts as a file
	DL_FOREACH_SAFE(t->living, p, tmp)
	{
		for (int i = 0; i < 2; i++)
			ev_io_stop(t->loop, &p->pipes[i].io);
		proc_stdin_leave(p);
		output_wake(p->output);
	}
	io_limit_restore(RLIMIT_FSIZE, &size);
}

bool procs_leaving(const struct procs *t)
{
	return t->leaving;
}
