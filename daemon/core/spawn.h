// SPDX-License-Identifier: Apache-2.0
// spawn: starts one process. The parent half prepares everything; the child half shares its memory until exec, on a stack of its own (where
// that is refused it is forked), and makes only async-signal-safe calls. The child gets descriptors 0-2 alone, default dispositions, an empty
// mask, a session of its own, the limits that celld was started with. Every path that launches something goes through here.
#ifndef CELLD_CORE_SPAWN_H
#define CELLD_CORE_SPAWN_H

#include "daemon/core/users.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/resource.h>
#include <sys/types.h>

struct cgroup;
struct confine;
struct limits;
struct spawn_memory;
struct store_slot;

// What every child gets, taken once at start before celld changes its own.
struct spawn_base {
	struct rlimit nofile;          // the limit that commands get back
	int oom_score_adj;             // theirs
	int own_oom;                   // and celld's; where both are the same there is nothing to change
	bool own_proc;                 // /proc is that of this pid namespace
	int devnull;                   // open /dev/null
	const struct confine *confine; // what every child is kept from; borrowed; NULL = nothing
	const struct limits *limits;   // resource limits of every child; borrowed; or NULL
	struct spawn_memory *memory;   // of the child half: one at a time
};

enum spawn_step { SPAWN_NONE, SPAWN_PREPARE, SPAWN_SETUP, SPAWN_USER, SPAWN_CWD, SPAWN_EXEC };

struct spawn_spec {
	const char *path;        // program; without '/' looked up in PATH of ENV
	const char *const *argv; // NULL-terminated
	const char *const *env;  // NULL-terminated
	const char *cwd;         // absolute
	const struct user *user; // identity; NULL or the daemon's own uid: nothing is switched
	int fd[3];               // become 0-2; borrowed; -1 = /dev/null
	bool controlling_tty;    // fd[0] is a terminal and becomes the controlling one
	bool like_shell; // what cannot be run says so on its stderr and exits with 127 (not found) or 126, as under a
			 // shell; a file without a header is run by /bin/sh
	struct store_slot *slot;     // where the child leaves its pid first of all, or NULL
	struct cgroup *cgroup;       // it is born in that group; borrowed; or NULL
	const struct limits *limits; // its own, over the base's; or NULL
	bool even_priority;          // nice 0 and I/O class best-effort 4, whatever celld has
};

// NOFILE and ORIGINAL_OOM are what celld was started with; commands get that limit and the larger of 100 and that score. Descriptors
// 0-2 must be open. 0 or negative errno.
int spawn_base_init(struct spawn_base *b, const struct rlimit *nofile, int original_oom);
void spawn_base_release(struct spawn_base *b);
// Starts it. 0 with *PID (its own until the caller has waited for it), or negative errno with *STEP set to what failed: exec, cwd and user errors are those of the child; nothing is left behind then. The child leads a new session and group.
// It waits until the program runs: -EAGAIN if somebody stops the child (SIGSTOP) before, twice; -ETIMEDOUT if it takes more than two seconds
// (then, if not even SIGKILL ends it at once, it is left to whoever collects every child).
int spawn_run(const struct spawn_base *b, const struct spawn_spec *spec, pid_t *pid, enum spawn_step *step);
// To be called a little after the last start: until then celld may have its commands' oom_score_adj, since to change it takes the kernel a
// look at every process there is, some 40 us a start. False if that failed: again later.
bool spawn_settle(const struct spawn_base *b);

#endif
