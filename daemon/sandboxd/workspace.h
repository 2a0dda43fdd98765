// SPDX-License-Identifier: Apache-2.0
// workspace: what surface A keeps below the workspace beside the users' own files: events, transcripts, background runs, the virtual
// environment; and the reset that empties it. One struct workspace a daemon, reached from struct sandboxd.
#ifndef CELLD_SANDBOXD_WORKSPACE_H
#define CELLD_SANDBOXD_WORKSPACE_H

#include "daemon/core/journal.h"
#include "daemon/core/proc.h"
#include "daemon/sandboxd/sandboxd.h"

#include <stdbool.h>
#include <stddef.h>

#define EVENTS_DIR ".k8e_events"
#define EVENTS_FILE "events.ndjson"
#define TRANSCRIPTS_DIR ".k8e_transcripts"
#define BACKGROUND_DIR ".k8e_bg"

// The note of a command that surface A has started; a background run's is its run_id, the virtual environment's is this too.
#define SANDBOXD_NOTE "sandboxd"

struct bg_run;
struct transcript;
struct reset;
struct venv;

struct workspace {
	struct sandboxd *sandboxd;
	struct ev_loop *loop;
	struct journals *journals;
	struct journal *events;
	struct bg_run *runs;            // that have not ended
	struct transcript *transcripts; // of commands that have not ended
	struct reset *reset;            // while one runs
	struct venv *venv;              // while it is made
	ev_timer venv_later;
	bool terminating;
};

// True for what may be a run_id or the name of a transcript: [A-Za-z0-9._-]{1,128}, but neither "." nor "..".
bool workspace_id_ok(const char *id, size_t n);

// --- events.c ---
// The journal of events. 0 or -ENOMEM.
int events_open(struct workspace *ws);
// The events of the commands and terminals that launch_start runs.
void events_start(struct workspace *ws, const struct proc *p);
void events_end(struct workspace *ws, const struct proc *p);
// bg_submit (P NULL) and bg_end.
void events_background(
	struct workspace *ws, const char *ev, const char *session, const char *run_id, const struct proc *p);

// --- transcript.c ---
// Writes P's command and output into the transcript of its session, if it has one of a fitting name.
void transcript_start(struct workspace *ws, struct proc *p);
// Ends them all where they are.
void transcripts_drop(struct workspace *ws);
// Writes what waits and leaves them for the next daemon, which goes on behind the last whole line. (Lines that waited when a daemon
// died are not there.)
void transcripts_leave(struct workspace *ws);
void transcript_take_back(struct workspace *ws, struct proc *p);

// --- background.c ---
// Their processes end without a trace.
void background_drop(struct workspace *ws);
// P was a run of an earlier daemon. Its files have what that one had written; what follows comes from the log.
void background_take_back(struct workspace *ws, struct proc *p, const char *run_id);
bool background_running(const struct workspace *ws, const char *run_id);

// --- reset.c ---
void reset_free(struct workspace *ws);

// --- venv.c ---
void venv_init(struct workspace *ws);
// Makes the virtual environment in the background, if it is wanted and not there.
void venv_start(struct workspace *ws);
void venv_drop(struct workspace *ws);
void venv_take_back(struct workspace *ws, struct proc *p, const char *note);
// It goes on without this daemon.
void venv_leave(struct workspace *ws);

#endif
