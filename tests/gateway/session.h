// SPDX-License-Identifier: Apache-2.0
// session: an E2B sandbox as its client sees it: id, token, template, metadata, timeout, pause; and the slot it runs in for now. All sessions are in one table.
// Whoever serves a request for one attaches a watch to it and is told when its celld is not there any more.
#ifndef CELLD_GATEWAY_SESSION_H
#define CELLD_GATEWAY_SESSION_H

#include "proto/err.h"
#include "tests/gateway/gateway.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

// CREATING: waits for its slot or its init. PAUSED: frozen (slot kept) or, filesystem only, without a slot. MOVING: pausing or resuming.
// A killed, expired or lost one is not in the table any more.
enum session_state { SESSION_CREATING, SESSION_RUNNING, SESSION_MOVING, SESSION_PAUSED };

struct session_watch {
	// The session is being killed, paused, expired, or its celld died: no answer comes from it any more. The watch is detached already. WHY: "was killed" ...
	void (*gone)(void *arg, const char *why);
	void *arg;
	struct session_watch *prev, *next; // private
};

struct session;
const char *session_id(const struct session *s);
const char *session_token(const struct session *s); // NULL = unsecured
enum session_state session_state(const struct session *s);
// The box that it runs in: only while it is RUNNING, never one that is going; NULL otherwise. Never to be kept.
struct box *session_box(const struct session *s);
void session_attach(struct session *s, struct session_watch *w);
void session_detach(struct session_watch *w); // accepts one that is not attached

// ID up to a '-' (old clients append "-clientID"). NULL if there is none.
struct session *sessions_find(const struct gateway *g, const char *id, size_t n);
// The one whose token makes SIGNATURE of that /files URL, paused ones too (who knows the signature knows the token: session_wake may be given
// it); without signature: the only running one that has no token, NULL if there are several.
struct session *sessions_signed(const struct gateway *g, const char *method, const char *path, const char *username,
	const char *signature, const char *expiration);
size_t sessions_running(const struct gateway *g);

// For a request to it: 0: it runs. 1: DONE is called once, later: it was paused with auto-resume, or is moving towards running. -1 with E filled: what the contract answers
// (502 "The sandbox was not found", 403 for a secured one when TOKEN is not its own, 409 transitioning, 429). TOKEN: the request's X-Access-Token or NULL; ENVD: it is for port 49983.
int session_wake(struct session *s, bool envd, const char *token, void (*done)(void *arg, const struct err *e),
	void *arg, struct err *e);
// DONE with that ARG will not be called.
void session_wake_forget(struct session *s, void *arg);

#endif
