// SPDX-License-Identifier: Apache-2.0
// control: the state that /init sets, and what else control*.c, path.c, metrics.c and routes.c share. Its owner is the daemon; the rest of the
// surface reads it through envd.h.
#ifndef CELLD_ENVD_CONTROL_H
#define CELLD_ENVD_CONTROL_H

#include "daemon/core/keep.h"
#include "daemon/envd/envd.h"
#include "proto/buf.h"
#include "proto/err.h"
#include "proto/http.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

// What E2B_SANDBOX says. In a microVM it would be "true".
#define CONTROL_SANDBOX "false"

struct control_var {
	char *name, *value;
};

// What /init sets. Strings are its own or NULL.
struct control_state {
	char *token; // NULL too if the token is the configuration's
	char *user, *workdir;
	char *events;             // the address of events.e2b.local
	struct control_var *vars; // sorted by name
	size_t var_count;
	struct timespec newest; // timestamp seen, {0, 0} = none
};

struct control {
	struct config *config;
	struct keep *keep; // or NULL
	// Whom the Basic credentials AUTH were last, as long as the generation of the users is that. Clients send the same with each request.
	struct {
		char *auth; // or NULL
		size_t n;
		unsigned generation;
		struct user user;
	} last;
	const char *first_user;
	struct control_state now;
	uint64_t cpu_busy, cpu_total; // jiffies at the last look
};

// Takes from DOC what it sets over the state of C into NEXT, a whole new state. 0, or -1 with E filled and NEXT empty.
int control_next(const struct control *c, const json_t *doc, struct control_state *next, struct err *e);
void control_state_release(struct control_state *s);
// Puts NEXT (taken) in place and keeps it for after a crash. 0, or -1 with E filled and nothing changed.
int control_commit(struct control *c, struct control_state *next, struct err *e);
// An RFC 3339 time. 0 or -EINVAL.
int control_time(const char *s, struct timespec *out);
// True once /init was called.
bool control_initialized(const struct control *c);
// True and the name in NAME if HEAD has usable Basic credentials.
bool control_basic(const struct http_head *head, struct buf *name);
// The user that HEAD's credentials were remembered to mean, borrowed until others are; or NULL: to be looked up.
const struct user *control_known(const struct envd *e, const struct http_head *head);
// Without memory for it nothing is remembered.
void control_remember(const struct envd *e, const struct http_head *head, const struct user *u);

// Puts the certificates PEM (N bytes) among those that the system trusts, in place of those given before. 0, or -1 with E filled.
int control_trust(const char *pem, size_t n, struct err *e);
// Makes IP the address of events.e2b.local. 0 or negative errno.
int control_hosts(const char *ip);
// The first look at the processors, which later ones are compared with.
void control_metrics_start(struct control *c);

route_handler control_init;
route_handler control_metrics;
route_handler control_envs;
route_handler control_upgrade;

#endif
