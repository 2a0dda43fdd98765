// SPDX-License-Identifier: Apache-2.0
// cgroup_priv: what cgroup.c (groups of commands), cgroup_parent.c (the directory that they are in) and cgroup_find.c (where this process is) share.
#ifndef CELLD_CORE_CGROUP_PRIV_H
#define CELLD_CORE_CGROUP_PRIV_H

#include "daemon/core/cgroup.h"

#include <limits.h>
#include <sys/types.h>

enum cgroup_control { CGROUP_MEMORY, CGROUP_CPU, CGROUP_PIDS, CGROUP_CONTROLS };
#define CGROUP_ALL ((1u << CGROUP_CONTROLS) - 1)

// Groups that nothing is in and that wait to be taken again, at most.
#define CGROUP_IDLE_MAX 64

struct cgroup {
	struct cgroups *all;
	uint32_t number;
	int fd;           // -1 unless it is taken
	unsigned bounded; // a mask of what may not be at its maximum
	bool spent;       // not to be taken again
	struct cgroup *prev, *next;
};

struct cgroups {
	struct cgroup_state state;
	char path[PATH_MAX];
	char name[24];                         // of the directory within BASE
	int base, dir;                         // what all is made in, and the commands' own
	unsigned have;                         // a mask of controllers
	unsigned enabled;                      // those that were not handed down before
	bool moved;                            // this process is in a leaf of its own
	uint32_t last;                         // number
	size_t idle_count;                     // of idle
	struct cgroup *taken, *idle, *waiting; // waiting: released, but something is in them still
};

// --- cgroup_find.c ---
// The directory of the group that a process is in, from its CGROUP and MOUNTINFO (files of /proc/PID): 0; -ENOENT: no hierarchy of version 2 that shows it;
// negative errno.
int cgroup_find(const char *cgroup, const char *mountinfo, char *path, size_t n);

// --- cgroup_parent.c ---
// Works in PATH, whatever that is (tests use plain files). OWN: the group of this process itself, or "". As cgroups_new.
int cgroups_open(struct cgroups **out, const char *path, const char *own, char *why, size_t n);
// AT's child NAME gets TEXT, or is read into it (NUL-terminated, what fits). 0 or negative errno.
int cgroup_write(int at, const char *name, const char *text);
int cgroup_read(int at, const char *name, char *text, size_t n);
// Each directory in G whose name is a number.
int cgroups_each(const struct cgroups *g, void (*fn)(void *arg, uint32_t number), void *arg);

#endif
