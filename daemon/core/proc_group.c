// SPDX-License-Identifier: Apache-2.0
// The control group of a process. What it says at the process's end, and its number, outlive a daemon in the slot's life.
#include "daemon/core/proc_priv.h"

#include "daemon/io.h"
#include "daemon/log.h"

#include <errno.h>
#include <signal.h>
#include <string.h>

// How often it is said that there is no group to be had.
#define SAY_NS ((int64_t)60 * 1000000000)

static void note(struct proc *p)
{
	if (p->slot)
		store_set(&store_life(p->slot)->group, p->group ? cgroup_number(p->group) : 0);
}

static bool asks(const struct cgroup_bounds *b)
{
	return b->memory || b->cpus > 0 || b->pids;
}

// It is killed and counted by its tree then, as where there are no groups at all.
static void goes_without(struct procs *t, int rc)
{
	int64_t now = io_mono_ns();
	if (t->ungrouped_ns && now - t->ungrouped_ns < SAY_NS)
		return;
	t->ungrouped_ns = now;
	log_warn("cgroup", "a command runs without a group of its own: %s", strerror(-rc));
}

int proc_group_take(struct proc *p, const struct cgroup_bounds *bounds)
{
	struct procs *t = p->table;
	bool asked = asks(bounds);
	if (!t->limits.cgroups)
		return asked ? -EOPNOTSUPP : 0;
	int rc = cgroup_take(t->limits.cgroups, asked ? bounds : NULL, &p->group);
	if (rc < 0 && !asked) {
		goes_without(t, rc);
		rc = 0;
	}
	note(p);
	return rc;
}

bool proc_group_drop(struct proc *p, const struct cgroup_bounds *bounds, int rc)
{
	if (!p->group)
		return false;
	cgroup_spend(p->group); // whatever a command has done to it must not meet the next one
	// What else a start fails for at that point is no better without.
	if (asks(bounds) || rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE || rc == -EAGAIN)
		return false;
	goes_without(p->table, rc);
	cgroup_release(p->group);
	p->group = NULL;
	note(p);
	return true;
}

void proc_group_take_back(struct proc *p)
{
	const struct store_life *life = store_life(p->slot);
	uint32_t number = store_get(&life->group);
	int rc = number ? cgroup_take_back(p->table->limits.cgroups, number, &p->group) : 0;
	if (rc < 0)
		goes_without(p->table, rc);
}

void proc_group_release(struct proc *p)
{
	if (!p->group)
		return;
	p->end.oom |= cgroup_oom(p->group);
	if (p->end.oom)
		proc_store_flag(p, PROC_KEPT_OOM);
	if (p->end.sig == SIGKILL)
		cgroup_spend(p->group);
	cgroup_release(p->group);
	p->group = NULL;
	note(p);
}

void proc_group_kill(struct proc *p)
{
	if (p->group)
		(void)cgroup_kill(p->group); // its tree is walked besides: a command may have left the group
}

void proc_group_refuse(struct procs *t, struct store_slot *slot)
{
	struct cgroup *c;
	if (cgroup_take_back(t->limits.cgroups, store_get(&store_life(slot)->group), &c) < 0)
		return;
	(void)cgroup_kill(c);
	cgroup_release(c);
}
