// SPDX-License-Identifier: Apache-2.0
// cgroup: a control group (v2) for each command, below one that is celld's to write: kill in one call, memory, CPU and process limits, and whether
// the kernel killed for want of memory. Groups are kept for reuse: making one costs more than starting a command. Where there is none
// everything here is NULL and says so. Must not know of requests.
#ifndef CELLD_CORE_CGROUP_H
#define CELLD_CORE_CGROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct cgroups;
struct cgroup;

// Which controllers commands can be limited with.
struct cgroup_state {
	const char *path; // of the parent of all commands' groups
	bool memory, cpu, pids;
};

// What a command may use; 0 = no limit.
struct cgroup_bounds {
	uint64_t memory; // bytes; swap is not added to it
	double cpus;     // 0.5 = half of one
	uint64_t pids;
};

// HOW: "off"; "on", below the group that this process is in (moved to a leaf of it, so that controllers can be handed down); or the absolute path of a
// directory to work in. "auto": "on" for a PID 1, else "off". 0 with *OUT NULL when it is off, or "auto" found none to write. Negative errno
// with WHY said (N bytes). Made before the init part forks.
int cgroups_new(struct cgroups **out, const char *how, char *why, size_t n);
// For a binary that goes on in the place of an earlier one: the parent again, by its path (state.path; "": there was none, and *OUT is NULL). The init
// part's to free. 0 or negative errno.
int cgroups_resume(struct cgroups **out, const char *path);
// What an earlier daemon took is taken back: whatever else is there can be taken again as soon as nothing is in it. Accepts NULL.
void cgroups_settle(struct cgroups *g);
// Kills what is in any of them, waits a second at most until all are empty, and removes what was made. Accepts NULL.
void cgroups_free(struct cgroups *g);
const struct cgroup_state *cgroups_state(const struct cgroups *g); // NULL: none
// Kills whatever is in any of them. 0 or negative errno.
int cgroups_kill_all(struct cgroups *g);
// True if nothing lives in any of them. Accepts NULL.
bool cgroups_empty(const struct cgroups *g);

// A group that nothing is in, with BOUNDS (NULL: none). 0 with *OUT; -EOPNOTSUPP if a bound's controller is not to be had; negative errno.
int cgroup_take(struct cgroups *g, const struct cgroup_bounds *bounds, struct cgroup **out);
// One that an earlier daemon took, by its number. 0; -ENOENT; negative errno.
int cgroup_take_back(struct cgroups *g, uint32_t number, struct cgroup **out);
uint32_t cgroup_number(const struct cgroup *c); // from 1
// Its directory, for clone3 (CLONE_INTO_CGROUP); borrowed.
int cgroup_fd(const struct cgroup *c);
// Everything in it gets SIGKILL, at once and by the kernel. 0 or negative errno.
int cgroup_kill(struct cgroup *c);
// True if the kernel has killed in it for want of memory since it was taken.
bool cgroup_oom(const struct cgroup *c);
// It is not taken again: somebody may have killed it, or nothing starts in it (see cgroup.c).
void cgroup_spend(struct cgroup *c);
// No more needed: it can be taken again as soon as nothing is in it. Accepts NULL.
void cgroup_release(struct cgroup *c);

#endif
