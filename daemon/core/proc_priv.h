// SPDX-License-Identifier: Apache-2.0
// proc_priv: what proc.c (table, life machine) and proc_io.c (pipes, stdin) share. Nobody else includes it.
#ifndef CELLD_CORE_PROC_PRIV_H
#define CELLD_CORE_PROC_PRIV_H

#include "daemon/core/proc.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define PROC_READ_MAX ((size_t)64 * 1024)

struct proc_pipe {
	struct proc *proc;
	int fd; // -1 once at EOF or handed over
	enum output_channel channel;
	ev_io io;
	size_t owed; // bytes that were in it when the process was waited for
};

struct proc_stdin {
	int fd; // -1: closed, or never there
	bool wanted;
	bool closing; // close it once the queue is empty
	ev_io io;
	struct buf queue;
	struct proc_input *waiting; // for room in the queue, in order
};

struct proc {
	struct procs *table;
	pid_t pid;
	int pidfd;
	enum proc_kind kind;
	enum proc_state state;
	struct proc_end end;
	bool waited;
	bool grace_over;
	bool killed;  // by its deadline
	bool starved; // output has no room, the pipes are not read
	char *command;
	char *session_id;
	struct asked *asked; // or NULL
	size_t asked_size;
	int64_t started_ms;
	int64_t started_ns;
	int64_t ended_ns;
	int64_t deadline_ns; // 0 = none
	void (*on_end)(void *arg, const struct proc *p);
	void *on_end_arg;
	ev_timer deadline;
	ev_timer grace;
	struct output *output;
	struct proc_pipe pipes[2];
	struct proc_stdin in;
	int slave;           // of a terminal, until its leader was waited for: without it the master would say EOF
			     // as soon as the processes have it closed, and hang up the session when we close it too
	int64_t terminal_id; // 0 = no terminal, or it was told to end
	struct proc_ending *ending;
	const struct output_reader *blocker; // seen holding the others up, and where it was then
	uint64_t blocker_at;
	int64_t blocker_ns; // when
	UT_hash_handle hh;
	struct proc *prev, *next; // in the living or the ended list
};

// A pipe that outlived its command: read and dropped, so that who holds it is never killed by SIGPIPE.
struct proc_drain {
	struct procs *table;
	int fd;
	ev_io io;
	struct proc_drain *prev, *next;
};

struct procs {
	struct ev_loop *loop;
	struct proc_limits limits;
	const struct spawn_base *base;
	struct proc *by_pid;
	struct proc *living, *ended;
	size_t living_count, ended_count, ended_memory;
	bool held;    // nothing may be started
	size_t timed; // living ones with a deadline
	struct proc_drain *drains;
	struct proc_ending *endings;
	struct proc_input *settled; // to be told
	int64_t last_terminal;
	ev_timer beat;   // while timed: notices that the daemon was stopped
	ev_timer stall;  // while a proc is starved: looks for a reader that holds others up
	ev_timer expire; // while anything ended is kept
	int64_t beat_ns;
};

// --- proc_io.c ---
// Makes the pipes of P and the ends for its child (fd, owned by the caller), or its terminal (fd is then P's slave).
// 0 or negative errno.
int proc_io_open(struct proc *p, const struct proc_spec *spec, int child_fd[3]);
void proc_io_start(struct proc *p);
// Reads what the pipes hold, as far as there is room and budget, then lets the life machine look.
void proc_io_drain(struct proc *p);
// Notes how much each pipe holds at the moment the process was waited for.
void proc_io_mark_owed(struct proc *p);
bool proc_io_owes(const struct proc *p);
bool proc_io_eof(const struct proc *p);
// Hands open pipes to drains (PARK) or closes them; closes stdin.
void proc_io_finish(struct proc *p, bool park);
// From now on a terminal's output ends with its last process.
void proc_io_close_slave(struct proc *p);
void proc_drain_free(struct proc_drain *d);

// --- proc_stdin.c ---
void proc_stdin_start(struct proc *p);
void proc_stdin_close_now(struct proc *p);
// Of one that is settled.
void proc_input_free(struct proc_input *in);

// --- proc_pty.c ---
void proc_ending_free(struct proc_ending *e);
// P is about to be freed.
void proc_ending_detach(struct proc *p);

// --- proc.c ---
// The one place where states change; call it after anything that it depends on has.
void proc_advance(struct proc *p);
void proc_starve(struct proc *p);

#endif
