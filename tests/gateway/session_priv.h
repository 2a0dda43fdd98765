// SPDX-License-Identifier: Apache-2.0
// session_priv: what session*.c share, and the control plane (api*.c), which shows sessions and is what makes them go.
#ifndef CELLD_GATEWAY_SESSION_PRIV_H
#define CELLD_GATEWAY_SESSION_PRIV_H

#include "tests/gateway/drive.h"
#include "tests/gateway/idem.h"
#include "tests/gateway/job.h"
#include "tests/gateway/session.h"
#include "tests/gateway/snapshot.h"

#define HASH_NONFATAL_OOM 1
#include <uthash.h>
#include <utlist.h>

enum {
	SESSIONS_MAX = 1024,     // in the table: those paused to their file system need no slot
	SESSION_WAITS_MAX = 256, // that wait for one to run
	SESSION_ID = 21,         // characters: "i" and 20 more
	SESSION_TOKEN = 64,      // hex of 32 bytes
	SESSION_TRIES = 3,       // slots that one may lose before it runs
	SESSION_PATH = 4096,
	SESSION_WOKEN_S = 300, // the least lifetime after an auto-resume
};

struct session_wait {
	void (*done)(void *arg, const struct err *e); // E NULL: it runs
	void *arg;
	struct session_wait *prev, *next;
};

struct session {
	struct gateway *g;
	UT_hash_handle hh;
	char id[SESSION_ID + 1];
	uint64_t serial; // in the order of their creation
	enum session_state state;
	bool ended;      // out of the table, freed before the loop sleeps
	bool taken;      // its creator has its answer
	bool files_only; // PAUSED or MOVING from there: without slot and memory, its workspace is in paused/ID

	// What its creator asked for.
	char *token, *template;                     // token NULL: unsecured
	json_t *metadata, *env, *network, *volumes; // each may be NULL
	int internet;                               // allow_internet_access: 0, 1, or -1: not said
	bool auto_pause, auto_pause_memory, auto_resume;
	int64_t timeout_s;
	struct slot_size size;

	int64_t started_ms, end_ms; // wall clock
	int64_t deadline_ns;        // monotonic, of END_MS; counts only while it runs
	struct ev_timer expiry;     // active only while it runs

	// Where it runs, and what it waits for on the way there: at most one of these.
	struct slot *slot;
	bool claiming;
	struct ev_timer step;
	char why[128]; // its last slot was lost
	struct job *job;
	struct drive *drive;
	const char *template_dir;           // of an option: belongs to whoever made it
	struct snapshot *template_snapshot; // held until the workspace is filled
	unsigned tries;
	int64_t lifetime_s;      // from when it runs
	unsigned mode, uid, gid; // of the empty workspace
	struct snapshot *making; // MOVING or PAUSED: a copy is made of its workspace

	struct session_watch watches; // ring
	struct session_wait *waits;
	double cpu_seconds; // at CPU_NS, for metrics
	int64_t cpu_ns;
	struct session *next_dead;
};

struct sessions {
	struct gateway *g;
	struct session *table; // by id; iterates in the order of creation
	struct session *dead;
	struct ev_prepare sweep;
	uint64_t serial;
	struct snapshots *snapshots;
	struct idem *idem;
};

// --- session.c ---
// Fills N characters from [a-z0-9] and a NUL. 0 or negative errno.
int session_random_id(char *out, size_t n);
// A CREATING one with an id, in the table. NULL with E filled.
struct session *session_new(struct gateway *g, struct err *e);
// As sessions_find, but those that are being created too.
struct session *session_get(const struct gateway *g, const char *id, size_t n);
// It is over: the watches are told WHY, who waits for it E (NULL: the contract's 502), the slot is given back (REUSE: to be reset, if its box is well).
// S is valid until the loop sleeps.
void session_end(struct session *s, const char *why, const struct err *e);
void session_tell_watches(struct session *s, const char *why);
// DONE(ARG) when it runs or will not. 0, or -1 with E filled.
int session_await(struct session *s, void (*done)(void *arg, const struct err *e), void *arg, struct err *e);
// E NULL: it runs.
void session_tell_waits(struct session *s, const struct err *e);
int session_not_found(struct err *e); // the proxy's 502; -1

// --- session_create.c ---
// From a create's body. The session is CREATING: wait for it. NULL with E filled.
struct session *session_create(struct gateway *g, const json_t *doc, struct err *e);
// Takes the egress part of a network object (NULL: of none) over what was stored before. Strings only are checked to be of the right kind.
int session_set_network(struct session *s, const json_t *doc, struct err *e);

// --- session_boot.c ---
// Gets a slot, fills its workspace, hands the session to its celld: then it runs for LIFETIME_S, or has failed: a CREATING one ends, another is PAUSED again.
// 0, or -1 with E filled if it failed at once (the state is as before).
int session_boot(struct session *s, int64_t lifetime_s, struct err *e);
// Drops whatever it waits for.
void session_boot_cancel(struct session *s);
// Its slot has gone on the way there: tries with another.
void session_boot_lost(struct session *s, const char *why);
// It runs now (state, timer) and who waits is told.
void session_up(struct session *s);

// --- session_pause.c ---
// RUNNING to PAUSED; MEMORY: its processes stay, frozen. 0, or -1 with E filled (it runs on).
int session_pause(struct session *s, bool memory, struct err *e);
// PAUSED to running for LIFETIME_S. REBOOT: without its memory. 0: it runs; 1: it will: wait for it; -1 with E filled.
int session_resume(struct session *s, int64_t lifetime_s, bool reboot, struct err *e);
// The end is SECONDS from now; EXTEND: unless it is later already. Of a RUNNING one that has none left it comes at once.
void session_lifetime(struct session *s, int64_t seconds, bool extend);
void session_timer(struct session *s, bool on);
void session_expiry_init(struct session *s);
// Where a workspace paused to the file system is: its claim, or the workspace in it (WORK). 0 or -ENAMETOOLONG.
int session_paused_path(const struct session *s, bool work, char *path, size_t size);
// Removes them there.
void session_drop_files(struct session *s);

#endif
