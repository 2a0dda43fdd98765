// SPDX-License-Identifier: Apache-2.0
// What copy's files share: copy.c finds out what goes where, copy_up.c sends a file, copy_down.c gets one, copy_tree.c moves directories.
#ifndef CELLD_DAEMON_CTL_COPY_H
#define CELLD_DAEMON_CTL_COPY_H

#include "daemon/ctl/ctl_priv.h"
#include "daemon/ctl/relay.h"
#include "daemon/ctl/remote.h"

// Names of half-made copies begin so.
#define COPY_TEMP ".celld-cp-"

// A message about something here, from a positive errno. Returns CTL_FAILED.
int copy_fails(const char *path, int sys);
// /exec/stream's request of COMMAND.
void copy_put_command(struct buf *out, const char *command, bool with_stdin);
// PATH for a command's line: never an option.
void copy_put_path(struct buf *line, const char *path);
// The exit status of a relay, after a message if need be; WHO for it.
int copy_judge(int rc, const struct relay_end *end, const char *who, const struct err *e);

// Each gives the exit status. SRC is looked at already; TO is the file or directory to be.
int copy_up(struct ctl *ctl, int fd, const char *src, const char *to);
int copy_down(struct ctl *ctl, const struct remote_entry *src, const char *to);
int copy_tree_up(struct ctl *ctl, const char *src, const char *to);
int copy_tree_down(struct ctl *ctl, const char *src, const char *to);

#endif
