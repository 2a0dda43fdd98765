// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/proc_priv.h"

#include "daemon/core/tree.h"
#include "daemon/io.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utlist.h>

// Between two looks at a session that ends: the first pause, doubled up to the longest.
#define LOOK_FIRST_S 0.005
#define LOOK_LAST_S 0.05
// Entries of /proc that one turn of the loop may take.
#define SWEEP_MAX ((size_t)128)
// What is left this long after the first KILL will not go.
#define GIVE_UP_NS ((int64_t)10000000000)

// A session on its way out. It outlives its proc where that is forgotten early.
struct proc_ending {
	struct procs *table;
	struct proc *proc; // NULL once that was freed
	pid_t session;
	pid_t parent;    // where members are that have lost theirs
	int64_t kill_ns; // when patience is over
	double pause;
	ev_timer look;
	DIR *sweep;   // nothing is left where members should be: /proc is gone through for such as hang elsewhere
	size_t found; // by it
	bool swept;   // once at least: those have been told
	void (*done)(void *arg, int rc);
	void *arg;
	struct proc_ending *prev, *next;
};

int64_t proc_terminal_id(const struct proc *p)
{
	return p->terminal_id;
}

static struct proc *find_in(struct proc *list, int64_t id)
{
	struct proc *p;
	DL_FOREACH(list, p)
	{
		if (p->terminal_id == id)
			return p;
	}
	return NULL;
}

struct proc *procs_terminal(const struct procs *t, int64_t id)
{
	if (id <= 0)
		return NULL;
	struct proc *p = find_in(t->living, id);
	return p ? p : find_in(t->ended, id);
}

// The master of a terminal that still has its leader, or negative errno.
static int living_master(const struct proc *p)
{
	if (p->kind != PROC_TERMINAL)
		return -ENOTTY;
	return proc_gone(p) || p->pipes[0].fd < 0 ? -ESRCH : p->pipes[0].fd;
}

int proc_resize(struct proc *p, const struct pty_size *size)
{
	int fd = living_master(p);
	return fd < 0 ? fd : pty_resize(fd, size);
}

int proc_foreground(const struct proc *p, pid_t *pgrp)
{
	int fd = living_master(p);
	return fd < 0 ? fd : pty_foreground(fd, pgrp);
}

int proc_signal_foreground(struct proc *p, int sig, pid_t *pgrp)
{
	int rc = proc_foreground(p, pgrp);
	if (rc < 0)
		return rc;
	// The kernel keeps the number of a group that has died, and that may be somebody else's by now. The leader's own is safe while
	// the leader was not waited for.
	if (*pgrp <= 0 || (*pgrp != p->pid && !tree_group_in(*pgrp, p->pid)))
		return -ENXIO;
	return kill(-*pgrp, sig) < 0 ? -errno : 0;
}

// --- the end of a session ---

void proc_ending_free(struct proc_ending *e)
{
	ev_timer_stop(e->table->loop, &e->look);
	if (e->sweep)
		closedir(e->sweep);
	DL_DELETE(e->table->endings, e);
	if (e->proc)
		e->proc->ending = NULL;
	free(e);
}

void proc_ending_detach(struct proc *p)
{
	if (p->ending)
		p->ending->proc = NULL;
	p->ending = NULL;
}

void proc_ending_forget(struct proc_ending *e)
{
	e->done = NULL;
}

static bool leader_waited(const struct proc_ending *e)
{
	return !e->proc || e->proc->waited;
}

// A reaped leader's number is free again only when the last of its session has gone.
static bool recycled(pid_t session, bool waited)
{
	return waited && (kill(session, 0) == 0 || errno == EPERM);
}

// One part of the sweep: 0 when that has found none, 1 when it has or goes on.
static int sweep(struct proc_ending *e, enum tree_act act)
{
	if (!tree_sweep(e->sweep, SWEEP_MAX, e->session, act, &e->found))
		return 1;
	closedir(e->sweep);
	e->sweep = NULL;
	e->swept = true;
	return e->found > 0;
}

// Processes of the session (0 = it is over), or negative errno.
static int look_at(struct proc_ending *e, bool kill_them)
{
	if (recycled(e->session, leader_waited(e)))
		return 0;
	if (e->sweep)
		return sweep(e, kill_them ? TREE_KILL : e->swept ? TREE_COUNT : TREE_HANG_UP);
	int n = tree_session(e->session, e->parent, kill_them ? TREE_KILL : TREE_COUNT);
	if (n < 0 && kill_them && !leader_waited(e))
		kill(-e->session, SIGKILL); // what can be done without a list
	if (n || !leader_waited(e))
		return n ? n : 1;
	e->found = 0;
	e->sweep = opendir("/proc");
	return e->sweep ? 1 : -errno;
}

static void on_look(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	struct proc_ending *e = w->data;
	procs_reap(e->table);
	int64_t now = io_mono_ns();
	int left = look_at(e, now >= e->kill_ns);
	if (left == 0 || now > e->kill_ns + GIVE_UP_NS) {
		void (*done)(void *arg, int rc) = e->done;
		void *arg = e->arg;
		proc_ending_free(e);
		if (done)
			done(arg, left > 0 ? -EBUSY : left);
		return;
	}
	double patience = (double)(e->kill_ns - now) / 1e9, pause = e->pause;
	if (e->sweep)
		pause = 0;
	else
		e->pause = pause * 2 < LOOK_LAST_S ? pause * 2 : LOOK_LAST_S;
	ev_timer_set(w, patience > 0 && patience < pause ? patience : pause, 0.);
	ev_timer_start(loop, w);
}

struct proc_ending *proc_end_session(struct proc *p, int64_t grace_ms, void (*done)(void *arg, int rc), void *arg)
{
	struct procs *t = p->table;
	struct proc_ending *e = calloc(1, sizeof *e);
	if (!e)
		return NULL;
	p->terminal_id = 0;
	p->ending = e;
	proc_store_flag(p, PROC_KEPT_ENDING);
	*e = (struct proc_ending){
		.table = t, .proc = p, .session = p->pid, .parent = proc_parent(p), .done = done, .arg = arg};
	e->kill_ns = io_mono_ns() + grace_ms * 1000000;
	e->pause = LOOK_FIRST_S;
	DL_APPEND(t->endings, e);
	if (!recycled(e->session, p->waited) && tree_session(e->session, e->parent, TREE_HANG_UP) < 0 && !p->waited)
		kill(-e->session, SIGHUP);
	ev_timer_init(&e->look, on_look, 0., 0.);
	e->look.data = e;
	ev_now_update(t->loop);
	ev_timer_start(t->loop, &e->look);
	return e;
}
