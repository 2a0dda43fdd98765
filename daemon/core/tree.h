// SPDX-License-Identifier: Apache-2.0
// tree: finds and signals the living processes of a session and below a process, each through a pidfd that was checked
// after it was opened, so that a recycled pid is never hit (by its pid, just checked, where there are no pidfds). Holds nothing between calls.
#ifndef CELLD_CORE_TREE_H
#define CELLD_CORE_TREE_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

// Descriptors that a soft limit should leave below the hard one, so that processes can be found when all others are in use.
#define TREE_SPARE 8

struct tree_stat {
	pid_t pid, ppid, pgrp, session;
	char state; // 'R', 'S', 'Z', ...
	int threads;
	unsigned long long start; // with pid: the identity of a process
	char comm[64];
};

// One line of /proc/PID/stat. 0 or negative errno (-ESRCH: no such process).
int tree_stat(pid_t pid, struct tree_stat *out);
// Every process of /proc in turn, until FN returns nonzero, which is then the result. 0, or negative errno.
int tree_each(int (*fn)(void *arg, const struct tree_stat *s), void *arg);

// Sends SIG to ROOT, to every process below it (by parent pid) and to those children of SELF whose session is ROOT (members of its
// session whose parents are gone), with all below them. For SIGKILL they are stopped first until no new one is found, so
// that a fork bomb cannot outrun it. Returns how many were signalled, or negative errno.
int tree_signal(pid_t root, pid_t self, int sig);
// The same for every process below TOP, itself left out, and SPARE with all below it (0 = none).
int tree_signal_all(pid_t top, pid_t spare, int sig);
// What happens to the members of a session: nothing; HUP, TERM and CONT (so that the stopped ones act); KILL.
enum tree_act { TREE_COUNT, TREE_HANG_UP, TREE_KILL };
// To those members of SESSION that hang below its leader or below SELF itself. Returns how many live, or negative errno.
int tree_session(pid_t session, pid_t self, enum tree_act act);
// To those among the next MAX entries of PROC (/proc), whoever their parents are; *FOUND grows by the living ones. True once through.
bool tree_sweep(DIR *proc, size_t max, pid_t session, enum tree_act act, size_t *found);
// True if PGRP is a group of SESSION with a process in it.
bool tree_group_in(pid_t pgrp, pid_t session);

#endif
