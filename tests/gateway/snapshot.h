// SPDX-License-Identifier: Apache-2.0
// snapshot: copies of workspaces in DIR/snapshots/ID, which a create takes as its template. The table owns them; whoever copies from one holds it meanwhile:
// deleted, it is found no more, and its directory goes when the last holder lets go. Making one stops the session for the time of the copy.
#ifndef CELLD_GATEWAY_SNAPSHOT_H
#define CELLD_GATEWAY_SNAPSHOT_H

#include "proto/err.h"
#include "tests/gateway/gateway.h"

struct session;
struct snapshots;
enum { SNAPSHOTS_MAX = 256, SNAPSHOT_NAME = 128, SNAPSHOT_ID = 21 };

struct snapshot {
	struct gateway *g;
	char id[SNAPSHOT_ID + 1];
	char name[SNAPSHOT_NAME + 1]; // "" = none
	char session[32];             // the id of the one it was made from
	struct slot_size size;
	uint64_t serial;
	bool ready;   // complete
	bool deleted; // not in the table
	unsigned holds;
	struct session *maker; // while it is made
	struct job *job;
	void (*done)(void *arg, struct snapshot *made, const struct err *e);
	void *arg;
	struct snapshot *prev, *next;
};

struct snapshots *snapshots_new(struct gateway *g);
void snapshots_free(struct snapshots *all);
// The newest ready one with that id or name, or NULL.
struct snapshot *snapshots_find(struct snapshots *all, const char *name);
struct snapshot *snapshots_first(struct snapshots *all); // then ->next, in the order of creation, unready ones too
// DIR/snapshots/ID: 0 or -ENAMETOOLONG.
int snapshot_path(const struct snapshot *p, char *path, size_t size);
void snapshot_hold(struct snapshot *p);
void snapshot_let_go(struct snapshot *p);
void snapshot_delete(struct snapshot *p);
// A copy of the workspace of S, RUNNING or PAUSED; NAME "" = none. 0: DONE(ARG, made, NULL) or DONE(ARG, NULL, err) follows once, later; -1 with E filled.
int snapshot_make(struct session *s, const char *name,
	void (*done)(void *arg, struct snapshot *made, const struct err *e), void *arg, struct err *e);
// DONE is not called; the snapshot is made all the same.
void snapshot_forget(struct snapshot *p);
// The session that it is made from is over.
void snapshot_lost(struct snapshot *p);

#endif
