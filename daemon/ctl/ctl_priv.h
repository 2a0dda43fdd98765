// SPDX-License-Identifier: Apache-2.0
// What the commands of `celld ctl` share: exit statuses, what was asked for, messages.
// A command gets a struct ctl, borrowed, and returns the exit status; what it prints goes through ctl_print, what it says
// through ctl_say.
#ifndef CELLD_DAEMON_CTL_CTL_PRIV_H
#define CELLD_DAEMON_CTL_CTL_PRIV_H

#include "daemon/ctl/http_client.h"
#include "daemon/ctl/options.h"
#include "daemon/ctl/target.h"
#include "proto/buf.h"
#include "proto/err.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

// The manual page has them too: they are contract.
enum ctl_exit {
	CTL_OK = 0,
	CTL_FAILED = 1,      // answered with an error, or something failed here
	CTL_USAGE = 2,       // not understood
	CTL_TIMED_OUT = 124, // the command's time was up
	CTL_LOST = 125,    // no daemon, or the connection was lost; of exec and attach: whatever failed but the command
	CTL_NOT_RUN = 126, // exec -t: may not be executed
	CTL_NOT_FOUND = 127, // exec -t: no such program
	CTL_SIGNAL = 128,    // + N: ended by signal N
};

struct ctl {
	struct options opt;
	struct target target;
	const struct command *command;
	char **words; // behind the command's name, without options; NULL-terminated
	int count;
};

// "celld ctl: ...", one line on stderr.
void ctl_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
// What failed, with its code. Returns the exit status: CTL_LOST or CTL_FAILED.
int ctl_fail(const struct err *e);
// A wrong use of the command: the line, and where to look. Returns CTL_USAGE.
int ctl_usage(const struct ctl *ctl, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
// All of B: 0 or negative errno.
int ctl_write(int fd, const struct buf *b);
// OUT whole on stdout, released: CTL_OK, or CTL_FAILED after a message.
int ctl_print(struct buf *out);
// One call on a connection of its own. NULL with E filled unless the answer is 200 with an object: the caller's. TEXT
// (may be NULL) gets the object as it came.
json_t *ctl_call(const struct ctl *ctl, const char *method, const char *path, const struct buf *body, struct buf *text,
	struct err *e);
// Bytes for a table on a terminal or in a pipe: what moves a cursor is a '?'.
void ctl_put_shown(struct buf *out, const char *s, size_t n);
// Adds SIG to those that we take ourselves, unless the caller ignores it (nohup): then it stays ignored.
void ctl_add_signal(sigset_t *set, int sig);
// A period: "5", "5s", "1.5s", "500ms", "2m", "1h"; in seconds. False if it is none.
bool ctl_period(const char *s, double *seconds);

// --- the commands ---
int ctl_exec(struct ctl *ctl);
int ctl_attach(struct ctl *ctl);
int ctl_ps(struct ctl *ctl);
int ctl_kill(struct ctl *ctl);
int ctl_ls(struct ctl *ctl);
int ctl_watch(struct ctl *ctl);
int ctl_cp(struct ctl *ctl);
int ctl_ready(struct ctl *ctl);
int ctl_completion(struct ctl *ctl);

// --- help ---
int ctl_help(void);
int ctl_help_command(const struct command *c);

#endif
