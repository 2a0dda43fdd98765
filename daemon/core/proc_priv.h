// SPDX-License-Identifier: Apache-2.0
// proc_priv: what proc.c (life machine), proc_table.c, proc_io.c (pipes), proc_store.c and the others of proc share. Nobody else includes it.
#ifndef CELLD_CORE_PROC_PRIV_H
#define CELLD_CORE_PROC_PRIV_H

#include "daemon/core/cells.h"
#include "daemon/core/proc.h"
#include "daemon/core/store.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

#define STORE_ENDS_ALL ((1u << STORE_ENDS) - 1)

// What a slot's life says in its flags.
enum proc_kept {
	PROC_KEPT_KILLED = 1,     // by its deadline
	PROC_KEPT_CLOSING = 2,    // its stdin is to be closed
	PROC_KEPT_ENDING = 4,     // its session is being ended
	PROC_KEPT_ENDED = 8,      // ENDED, and those who wait for that have been told
	PROC_KEPT_FORGOTTEN = 16, // only pipes that others hold are left of it
	PROC_KEPT_OOM = 32        // killed in its group for want of memory
};
// Above them what it is counted as.
#define PROC_KEPT_COUNTED 8
#define PROC_KEPT_COUNTED_MASK 7u
_Static_assert(METRICS_KINDS <= PROC_KEPT_COUNTED_MASK + 1, "a kind has its bits");

// Bytes that may wait for one process, in its queue and behind it.
#define PROC_INPUT_MAX ((size_t)40 * 1024 * 1024)
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
};

// What only one that has not ENDED needs: most of its bytes.
struct proc_live {
	ev_timer deadline;
	ev_timer grace;
	struct proc_pipe pipes[2];
	ev_io typed; // its stdin takes more
	struct buf queue;
	struct proc_input *waiting; // for room in the queue, in order
	void (*on_end)(void *arg, const struct proc *p);
	void *on_end_arg;
	int64_t late_ns;                     // until when its pid is waited for
	const struct output_reader *blocker; // seen holding the others up, and where it was then
	uint64_t blocker_at;
	int64_t blocker_ns; // when
};

struct proc {
	struct procs *table;
	pid_t pid;
	enum proc_kind kind;
	enum proc_state state;
	struct proc_end end;
	bool waited;
	bool grace_over;
	bool killed;             // by its deadline
	bool starved;            // output has no room, the pipes are not read
	bool adopted;            // started by an earlier daemon and not waited for yet
	bool begun;              // by an earlier daemon
	bool looked_at;          // since it was taken back
	struct store_slot *slot; // or NULL
	struct cgroup *group;    // or NULL; until it has ENDED
	const char *command;     // with what lives: once it has ENDED it is empty, and those two are NULL
	const char *session_id;  // or NULL
	const char *note;        // or NULL
	struct asked *asked;     // or NULL; the tag alone once it has ENDED
	size_t memory;           // what it was counted with, once it has ENDED
	enum metrics_kind counted;
	char *request; // or NULL; until it has ENDED
	int64_t started_ms;
	int64_t started_ns;
	int64_t ended_ns;
	int64_t deadline_ns; // 0 = none
	struct output *output;
	struct proc_live *live;  // NULL once it has ENDED
	struct proc_pipe *pipes; // in there
	struct proc_stdin in;
	int slave;           // of a terminal, until its leader was waited for: without it the master would say EOF
			     // as soon as the processes have it closed, and hang up the session when we close it too
	int64_t terminal_id; // 0 = no terminal, or it was told to end
	struct proc_ending *ending;
	UT_hash_handle hh;
	struct proc *prev, *next; // in the living or the ended list
};

// A pipe that outlived its command: read and dropped, so that who holds it is never killed by SIGPIPE.
struct proc_drain {
	struct procs *table;
	int fd;
	ev_io io;
	struct store_slot *slot; // that keeps it too, or NULL
	enum store_end end;
	struct proc_drain *prev, *next;
};

struct procs {
	struct ev_loop *loop;
	struct proc_limits limits;
	const struct spawn_base *base;
	struct cells cells; // the procs, each with the struct of its output behind it
	struct proc *by_pid;
	struct proc *living, *ended;
	size_t living_count, ended_count, ended_memory;
	bool held;               // nothing may be started
	bool leaving;            // another daemon takes the place of this one
	size_t adopted;          // living ones that an earlier daemon started, not waited for yet
	struct proc *late;       // left by it before they had a pid
	ev_io event;             // the store has news of those
	ev_timer settle;         // goes on with what was taken back
	struct proc_end upgrade; // what streams end with while leaving
	size_t timed;            // living ones with a deadline
	struct proc_drain *drains;
	struct proc_ending *endings;
	struct proc_input *settled; // to be told
	int64_t last_terminal;
	ev_timer beat;   // while timed: notices that the daemon was stopped
	ev_timer stall;  // while a proc is starved: looks for a reader that holds others up
	ev_timer expire; // while anything ended is kept
	ev_timer calm;   // from a start or an end on, until there was none for a while
	int64_t beat_ns;
	int64_t ungrouped_ns; // when it was last said that one runs without a control group; 0 = never
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
// Hands open pipes to drains (PARK) or closes them; closes stdin. The ends that are with drains now.
unsigned proc_io_finish(struct proc *p, bool park);
// The same for one that is taken back ended: FD (taken) is still held by others.
int proc_io_park(struct procs *t, int fd, struct store_slot *slot, enum store_end end);
// The ends that an earlier daemon left.
void proc_io_take_back(struct proc *p);
// From now on a terminal's output ends with its last process.
void proc_io_close_slave(struct proc *p);
void proc_drain_free(struct proc_drain *d);

// --- proc_stdin.c ---
void proc_stdin_start(struct proc *p);
void proc_stdin_close_now(struct proc *p);
// Writes on, after it was taken back.
void proc_stdin_go_on(struct proc *p);
// What is not written yet goes to the store, and nothing is written any more.
void proc_stdin_leave(struct proc *p);
// Of one that is settled.
void proc_input_free(struct proc_input *in);

// --- proc_pty.c ---
void proc_ending_free(struct proc_ending *e);
// P is about to be freed.
void proc_ending_detach(struct proc *p);

// --- proc_table.c ---
void proc_free(struct proc *p);
void proc_forget(struct proc *p);
void procs_expire(struct procs *t);

// --- proc_store.c: all of it does nothing for a process without a slot ---
// Takes a slot and writes the record; without one the process lives no longer than its daemon.
void proc_store_begin(struct proc *p);
// Has the ends kept, before anything runs at their other side.
void proc_store_hand(struct proc *p);
// At once while it lives, else soon.
void proc_store_drop(struct proc *p, unsigned ends);
void proc_store_deadline(struct proc *p, int64_t ns);
void proc_store_flag(struct proc *p, enum proc_kept flag);
// Before it is reaped: how it ended.
void proc_store_end(struct proc *p, int code, int status);
// When it did so if the store knows better than now.
int64_t proc_store_ended_ns(const struct proc *p);
// The process of SLOT (or NULL) is not kept any more; pipes that others hold may be.
void proc_store_forget(struct procs *t, struct store_slot *slot);
// One such pipe has ended.
void proc_store_drained(struct procs *t, struct store_slot *slot, enum store_end end);
// True once its pid may not be used any more, whether its end was looked at or not.
bool proc_gone(const struct proc *p);
// N bytes of input that it has not taken, AT behind the first; then how many there are; and back into its queue.
bool proc_store_rest(struct proc *p, uint64_t at, const void *data, size_t n);
void proc_store_rest_end(struct proc *p, uint64_t n);
void proc_store_rest_take(struct proc *p);
// The ends of those that an earlier daemon started.
void procs_collect(struct procs *t);
// It was waited for, or nobody will.
void proc_unadopt(struct proc *p);
// Where those of its session are that have lost their parents.
pid_t proc_parent(const struct proc *p);

// --- proc_group.c: its control group, where there are any ---
// Takes one with BOUNDS and notes its number. 0 (without one, if there is none to be had and no bound asks for it); -EOPNOTSUPP; negative errno.
int proc_group_take(struct proc *p, const struct cgroup_bounds *bounds);
void proc_group_take_back(struct proc *p);
// It has ENDED, or did not come to run.
void proc_group_release(struct proc *p);
// KILL to all that it has started and that is in the group still.
void proc_group_kill(struct proc *p);
// The same for what SLOT's process has left, whose record makes no sense.
void proc_group_refuse(struct procs *t, struct store_slot *slot);
// A start in it failed with RC, before the child was its own: the group is not used again. True if it may have been to blame: try without one.
bool proc_group_drop(struct proc *p, const struct cgroup_bounds *bounds, int rc);

// --- proc_tell.c: what is counted and logged ---
// P runs, or (RC < 0) nothing does.
void proc_tell_start(struct procs *t, const struct proc_spec *spec, struct proc *p, int rc, enum spawn_step step);
// It has ENDED.
void proc_tell_end(const struct proc *p);

// --- proc_back.c ---
void procs_store_init(struct procs *t);
// The table goes, what the store keeps stays.
void procs_store_release(struct procs *t);

// --- proc.c ---
// Copies the strings; SESSION_ID and NOTE may be NULL.
struct proc *proc_new(struct procs *t, const char *command, const char *session_id, const char *note);
// It is among the ended from now on, and has no more than those need.
void proc_retire(struct proc *p);
// The pid of a new process is its own from now on: an ended one of that number is not found any more. 0 or -ENOMEM.
int proc_enlist(struct proc *p);
// Something was started, or seems to have ended, or the store was told something: what can wait until no more comes is done then.
void procs_stir(struct procs *t);
// Starts the timer of its deadline, if it has one.
void proc_arm(struct proc *p);
void proc_record_end(struct proc *p, int code, int status);
// Its end is known, and its number may be another's from now on.
void proc_waited(struct proc *p);
// The one place where states change; call it after anything that it depends on has.
void proc_advance(struct proc *p);
void proc_starve(struct proc *p);

#endif
