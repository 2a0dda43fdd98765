// SPDX-License-Identifier: Apache-2.0
// ctl: `celld ctl`, the tool for people: commands, terminals and files of a sandbox, over surface A as any client.
// Knows nothing of the daemon that it shares a binary with but how options and variables are read.
#ifndef CELLD_DAEMON_CTL_CTL_H
#define CELLD_DAEMON_CTL_CTL_H

// ARGV[0] is "ctl". The exit status: ctl_priv.h has them.
int ctl_main(int argc, char **argv);

#endif
