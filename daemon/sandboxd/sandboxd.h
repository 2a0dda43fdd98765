// SPDX-License-Identifier: Apache-2.0
// sandboxd: surface A (contract A): parse, call the core, encode. What its handlers share; owned by the daemon.
#ifndef CELLD_SANDBOXD_SANDBOXD_H
#define CELLD_SANDBOXD_SANDBOXD_H

#include "daemon/config.h"
#include "daemon/core/cgroup.h"
#include "daemon/core/confine.h"
#include "daemon/core/env.h"
#include "daemon/core/proc.h"
#include "daemon/core/slice.h"
#include "daemon/core/users.h"
#include "daemon/net/route.h"
#include "daemon/stream.h"
#include "proto/json.h"

#include <stdbool.h>

// All borrowed; the handlers' context.
struct sandboxd {
	const struct config *config;
	struct procs *procs;
	struct users *users;
	struct slices *slices;
	struct watches *watches;
	const struct net *net;
	const struct metrics *metrics;
	int64_t started_ms;                  // the daemon was; wall clock
	struct workspace *workspace;         // or NULL: then nothing is written there
	const struct store *store;           // or NULL
	const struct confine_state *confine; // or NULL: commands are not confined
	const struct cgroup_state *cgroups;  // or NULL: they have no groups
	bool local_only;                     // no port, of either surface: unix sockets at most
};

// The table of surface A, its handlers bound to CTX.
void sandboxd_routes(struct route_table *out, struct sandboxd *ctx);

// --- between its files ---

// The common keys of a request that runs a command (contract A section 4), and what they became. Released by launch_release.
struct launch {
	struct proc_spec spec; // points into the rest
	const char *argv[4];
	const char **list; // or these, with the line that lists show
	char *line;
	json_t *doc;
	struct env env;
	struct env own_env; // what the request alone sets
	struct asked asked;
	struct user user;
	char *cwd;
	struct limits limits; // what the request says; spec.run points to it then
};
// The kernel's limit for one string of argv or the environment (MAX_ARG_STRLEN, its NUL included).
#define LAUNCH_STRING_MAX ((size_t)128 * 1024)
// Parses the body of C. 0, or -1 with E filled.
int launch_parse(struct launch *l, const struct sandboxd *s, struct conn *c, struct err *e);
// Its parts, for requests with other keys: the document of C alone, then, once spec's kind and run.argv are set, what all have
// (workdir, env, session_id, the user). 0, or -1 with E filled; launch_release in either case.
int launch_open(struct launch *l, struct conn *c, struct err *e);
int launch_common(struct launch *l, const struct sandboxd *s, struct err *e);
// Part of launch_common: "rlimits" and "limits".
int launch_limits(struct launch *l, struct err *e);
// Fills E for limits that no control group can give: 501. Returns -1.
int launch_limits_missing(const struct launch *l, const struct sandboxd *s, struct err *e);
// Starts it. 0 with *OUT, or -1 with E filled.
int launch_start(struct launch *l, const struct sandboxd *s, struct proc **out, struct err *e);
void launch_release(struct launch *l);

// --- what is kept in the workspace (workspace.h has the rest) ---

// Borrows S (its workspace is not set). NULL when out of memory.
struct workspace *workspace_new(struct sandboxd *s, struct ev_loop *loop);
// Before the loop goes, after the processes have.
void workspace_free(struct workspace *ws);
// Requests are served: what may be done in the background begins, and what an earlier daemon had begun goes on: after
// procs_take_back, before the loop runs.
void workspace_ready(struct workspace *ws);
// The sandbox ends: nothing is begun in the background any more.
void workspace_terminate(struct workspace *ws);
// Another daemon takes the place of this one, after procs_leave: background runs and transcripts are left as they are, for it to go on.
void workspace_leave(struct workspace *ws);
// True if the virtual environment is there and finished.
bool workspace_venv(const struct sandboxd *s);
// 0, or -1 with E filled while a reset empties the workspace. WS may be NULL here and below.
int workspace_admit(struct workspace *ws, struct err *e);
// Round proc_start: the events and the transcript of a command.
void workspace_prepare(struct workspace *ws, struct proc_spec *spec);
void workspace_started(struct workspace *ws, struct proc *p);
// Writes an event (contract A section 9) of SESSION (or NULL) with one more key, unless KEY is NULL.
void events_put(const struct sandboxd *s, const char *name, const char *session, const char *key, const char *value);
void events_put_int(const struct sandboxd *s, const char *name, const char *session, const char *key, int64_t value);

// Answers 200 with a JSON body that OUT holds; OUT is released. {"ok":true} for sandboxd_ok.
void sandboxd_reply(struct conn *c, struct buf *out);
void sandboxd_ok(struct conn *c);
// The request's JSON object, the caller's (jsonr_free); NULL with E filled. Parsed in one go, so larger than 4 MiB is 413; only
// /files/write takes more.
json_t *sandboxd_json(const struct conn *c, struct err *e);
// The process that {"pid":N} names, if it is of the table: NULL with E filled (404 "process not found").
struct proc *sandboxd_pid(const struct sandboxd *s, const json_t *doc, struct err *e);
// Fills E with what a stream or an answer says when the sandbox itself ends first.
void sandboxd_terminating(struct err *e);
// The same when another daemon takes the place of this one: unavailable, and worth another try at once.
void sandboxd_leaving(struct err *e);
// Surface A's frames; ATTACH adds the done frame.
const struct stream_encoder *sandboxd_sse(bool attach);
// A terminal's own: bare base64.
const struct stream_encoder *sandboxd_sse_terminal(void);
// "encoding": absent or "text", or "base64". 0, or -1 with E filled.
int sandboxd_base64(const json_t *doc, bool *base64, struct err *e);
// Seconds of "Keepalive-Ping-Interval" or ?keepalive=; anything but 1..86400 means none.
double sandboxd_keepalive(const struct http_head *head);

route_handler sandboxd_exec;
route_handler sandboxd_exec_stream;
route_handler sandboxd_exec_attach;
route_handler sandboxd_exec_stdin;
route_handler sandboxd_exec_stdin_close;
route_handler sandboxd_exec_signal;
route_handler sandboxd_exec_processes;
route_handler sandboxd_pty_create;
route_handler sandboxd_pty_input;
route_handler sandboxd_pty_resize;
route_handler sandboxd_pty_foreground;
route_handler sandboxd_pty_signal;
route_handler sandboxd_pty_destroy;
route_handler sandboxd_pty_stream;
route_handler sandboxd_files_write;
route_handler sandboxd_files_read;
route_handler sandboxd_files_list;
route_handler sandboxd_files_stat;
route_handler sandboxd_files_mkdir;
route_handler sandboxd_files_move;
route_handler sandboxd_files_remove;
route_handler sandboxd_background;
route_handler sandboxd_background_get;
route_handler sandboxd_transcript;
route_handler sandboxd_events;
route_handler sandboxd_reset;
route_handler sandboxd_watch_create;
route_handler sandboxd_watch_events;
route_handler sandboxd_watch_remove;
route_handler sandboxd_watch_stream;
route_handler sandboxd_ready;
route_handler sandboxd_health;
route_handler sandboxd_processes;
route_handler sandboxd_capabilities;
route_handler sandboxd_metrics;

#endif
