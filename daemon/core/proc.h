// SPDX-License-Identifier: Apache-2.0
// proc: the table of processes that clients started: life machine, output log, stdin queue, timers, reaping, kills.
// The table owns its procs; a proc lives until its retention is over and its last reader has left. Readers attach to proc_output and
// are woken on output and at the end. Callbacks must not start or free procs.
// Must not know HTTP, JSON or a surface.
#ifndef CELLD_CORE_PROC_H
#define CELLD_CORE_PROC_H

#include "daemon/core/cgroup.h"
#include "daemon/core/launch.h"
#include "daemon/core/output.h"
#include "daemon/core/pty.h"
#include "daemon/core/spawn.h"
#include "daemon/metrics.h"
#include "proto/buf.h"

#include <ev.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

// INTERNAL: of celld itself, in no list that clients see.
enum proc_kind { PROC_EXEC, PROC_TERMINAL, PROC_BACKGROUND, PROC_INTERNAL };

// RUNNING: neither waited nor drained. EXITED: waited, some pipe still open: grace. DRAINED: all pipes at EOF, not yet waited. ENDED:
// both, or the grace is over; the end is known to readers.
enum proc_state { PROC_RUNNING, PROC_EXITED, PROC_DRAINED, PROC_ENDED };

struct proc_end {
	int code;       // exit code, or -1 for a signal
	int sig;        // the signal that ended it, or 0
	bool core;      // ... and the kernel has dumped its core
	bool timed_out; // its deadline passed before it had ended
	bool oom;       // the kernel has killed in its control group for want of memory
	bool stopped;   // the sandbox ended first: there is no exit to tell
	bool leaving;   // of a stream alone: the daemon is being replaced, the process goes on
};

struct proc_limits {
	size_t max_procs;    // living ones
	size_t max_ended;    // kept after their end
	size_t ended_memory; // bytes all of those may take together
	size_t stdin_max;    // bytes queued for one process
	size_t replay;
	int64_t grace_ms;
	int64_t retention_ms;
	pid_t init;              // the init part, which has what an earlier daemon left; 0 = none
	struct store *store;     // where processes outlive the daemon; borrowed; NULL = nowhere
	struct cgroups *cgroups; // a group for each; borrowed; NULL = none
	struct metrics *metrics; // added to; borrowed; or NULL
	bool tell;               // starts and ends are logged
};

struct procs;
struct proc;
struct store;

struct proc_spec {
	struct spawn_spec run; // fd is filled in by proc_start
	enum proc_kind kind;
	const char *command;         // shown in lists
	const char *session_id;      // or NULL
	const char *note;            // what its surface needs to find it again after a crash, or NULL
	const struct asked *asked;   // or NULL; copied
	double timeout;              // seconds, 0 = none
	bool want_stdin;             // a pipe; else /dev/null
	struct cgroup_bounds bounds; // -EOPNOTSUPP if they cannot be had
	enum metrics_kind counted;   // what it is counted as
	const char *request;         // the id of the request that starts it, for the log; or NULL
	// Called once when it has ENDED, also when it was stopped, before its readers find the end. NULL is allowed.
	void (*on_end)(void *arg, const struct proc *p);
	void *on_end_arg;
	struct pty_size size; // of a terminal, which is its fd 0-2 then and its controlling one
};

// Borrowed: LOOP, BASE. NULL when out of memory.
struct procs *procs_new(struct ev_loop *loop, const struct proc_limits *limits, const struct spawn_base *base);
// Frees the table; living processes are left alone.
void procs_free(struct procs *t);

// What a store's log has to hold for one process (struct store_sizes).
size_t proc_log_size(size_t replay);
struct procs_taken {
	size_t living, ended; // taken back
	size_t refused;       // could not be read: ended
};
// Before the loop runs: whatever an earlier daemon left in the store is in the table again, with its pid. Those that live are looked at
// in the loop's first turn: until then readers can be attached and ends asked for (proc_on_end), as if nothing had happened. 0; -ENOMEM:
// then all is still there for the next daemon, and this one should go.
int procs_take_back(struct procs *t, struct procs_taken *taken);
// Another daemon is to take the place of this one: no pipe is read any more, nothing can be started (-ERESTART), every reader is woken:
// proc_stream_end. Input that a process has not taken yet is left in the store; who waits for that is told that it is written.
void procs_leave(struct procs *t);
bool procs_leaving(const struct procs *t);

// Reaps whatever has ended (the SIGCHLD callback; also called by hand).
void procs_reap(struct procs *t);
// The daemon runs again after it was stopped (SIGCONT): deadlines move by the time it was away. Also noticed without the signal.
void procs_resumed(struct procs *t);
size_t procs_living(const struct procs *t);
// True when no command lives and nothing that one of them left behind either.
bool procs_alone(const struct procs *t);
// True when nothing runs, what an earlier daemon left behind included: commands that still count as living wait for readers only.
bool procs_childless(const struct procs *t);
struct proc *procs_first(const struct procs *t); // in order of start; then proc_next
struct proc *proc_next(const struct proc *p);
struct proc *procs_find(const struct procs *t, pid_t pid);
// The first living one with that tag, else the last one that has ended and is kept. NULL if there is none.
struct proc *procs_tagged(const struct procs *t, const char *tag);

// TERM to every command's tree and all else that runs below the daemon; procs_alone says when they are gone.
void procs_terminate(struct procs *t);
// While HELD nothing can be started: the workspace is being emptied.
void procs_hold(struct procs *t, bool held);
// Sends SIG to all that runs in the sandbox, what an earlier daemon left behind too, but not to celld itself.
void procs_signal_all(const struct procs *t, int sig);
// Forgets every process that has ended and is not read any more, its output too.
void procs_forget(struct procs *t);
// Marks all that still live as stopped (their readers find the end) and kills everything below the daemon.
void procs_kill_all(struct procs *t);

// Starts one. 0, or negative errno with *STEP set (-EUSERS: max_procs; -EBUSY: held; -ERESTART: leaving). *OUT is borrowed.
int proc_start(struct procs *t, const struct proc_spec *spec, struct proc **out, enum spawn_step *step);
pid_t proc_pid(const struct proc *p);
enum proc_state proc_state(const struct proc *p);
enum proc_kind proc_kind(const struct proc *p);
// What it is called, until it has ENDED and all who wait for that were told: then nobody asks (empty, NULL), but for the tag.
const char *proc_command(const struct proc *p);
const char *proc_session_id(const struct proc *p);    // NULL if none was given
const struct asked *proc_asked(const struct proc *p); // NULL if its start gave nothing
int64_t proc_started_ms(const struct proc *p);        // wall clock
int64_t proc_duration_ms(const struct proc *p);       // until its end, or until now
int64_t proc_ended_ago_ms(const struct proc *p);      // 0 while it has not
struct output *proc_output(const struct proc *p);
// The end once it is ENDED, else NULL.
const struct proc_end *proc_end(const struct proc *p);
// What a stream of its output ends with: that, or one that is LEAVING; NULL: not yet.
const struct proc_end *proc_stream_end(const struct proc *p);
const char *proc_note(const struct proc *p); // NULL if none was given, or as above
// Replaces the function of its spec, for one that was taken back (it has none then).
void proc_on_end(struct proc *p, void (*on_end)(void *arg, const struct proc *p), void *arg);
// True while it has not been waited for, so that its pid and group are its own.
bool proc_waitable(const struct proc *p);
enum metrics_kind proc_counted_as(const struct proc *p);
const char *proc_request(const struct proc *p); // NULL if that is not known (any more), or starts are not logged
// Its output has no room and is not read; bytes that it has not taken of its input.
bool proc_is_starved(const struct proc *p);
size_t proc_input_left(const struct proc *p);
// How many have ended and are kept; the first of them, then proc_next.
size_t procs_ended(const struct procs *t);
const struct proc *procs_first_ended(const struct procs *t);

// A reader has taken output: pipes that waited for room are read again. Called by readers after output_taken and output_detach.
void proc_resume(struct proc *p);
// Sends SIG to the group (GROUP) or to the process alone. 0, -ESRCH once it was reaped, or the kernel's errno.
int proc_signal(struct proc *p, int sig, bool group);
// Queues N bytes for its stdin. 0; -ESRCH once it has ended; -EPIPE if it has no open stdin; -ENOBUFS if the queue is full (nothing
// is queued then); -ENOMEM.
int proc_write(struct proc *p, const void *data, size_t n);
struct proc_input;
// The same for any N: what the process does not take yet waits. 0: all is written; 1: DONE is called once, from the loop, when it is, or
// with -ESRCH or -EPIPE, and *IN is valid till then; negative as above (-ENOBUFS: far too much waits already). DATA is copied.
int proc_write_wait(
	struct proc *p, const void *data, size_t n, void (*done)(void *arg, int rc), void *arg, struct proc_input **in);
// DONE will not be called, and what waits is dropped.
void proc_input_forget(struct proc_input *in);
// Closes its stdin once the queue is written. 0 (again: 0), -ESRCH once it has ended, -EPIPE if it was started without.
int proc_close_stdin(struct proc *p);

// --- terminals (proc_pty.c) ---
// What proc_write gets is typed; a terminal's stdin cannot be closed (-EPIPE). -ENOTTY for any other kind.

// Counts from 1 in each table; 0 for what is no terminal, and once proc_end_session was called.
int64_t proc_terminal_id(const struct proc *p);
// Also one that has ended, while it is kept. NULL if there is none.
struct proc *procs_terminal(const struct procs *t, int64_t id);
// -ESRCH once its leader was waited for, or the kernel's errno.
int proc_resize(struct proc *p, const struct pty_size *size);
// *PGRP is -1 if there is no foreground group.
int proc_foreground(const struct proc *p, pid_t *pgrp);
// To the foreground group, if that is one of the terminal's session: else -ENXIO.
int proc_signal_foreground(struct proc *p, int sig, pid_t *pgrp);

struct proc_ending;
// Takes the terminal's id and ends its session: HUP, TERM and CONT to each process, KILL to what is left after GRACE_MS. DONE
// is called once, from the loop: 0 when the session is empty and its leader was reaped; -EBUSY when even KILL left something, or
// what kept us from looking. NULL when out of memory (nothing has happened then).
struct proc_ending *proc_end_session(struct proc *p, int64_t grace_ms, void (*done)(void *arg, int rc), void *arg);
// DONE will not be called; the ending goes on.
void proc_ending_forget(struct proc_ending *e);

// "exec" for SPAWN_EXEC.
const char *proc_step_name(int step);
// "SIGKILL" for 9; NULL for numbers without a name.
const char *proc_signal_name(int sig);
// "SIGTERM", "TERM", "SIGNAL_SIGTERM", "15" (N bytes): the number, or -EINVAL.
int proc_signal_parse(const char *s, size_t n);

#endif
