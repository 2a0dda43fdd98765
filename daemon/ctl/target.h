// SPDX-License-Identifier: Apache-2.0
// target: which daemon `celld ctl` speaks to, and with which token. A value, filled once; says itself what is wrong.
#ifndef CELLD_DAEMON_CTL_TARGET_H
#define CELLD_DAEMON_CTL_TARGET_H

#include "daemon/config_value.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <sys/un.h>

struct target {
	union {
		struct sockaddr any;
		struct sockaddr_in in4;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
	} addr;
	socklen_t len;
	char name[160];                  // for messages: as it was given
	char host[96];                   // of the Host header
	char token[VALUE_TOKEN_MAX + 3]; // empty: none
};

// From URL (may be NULL), else CELLD_URL, else the first address of CELLD_LISTEN, else port 2024 here. 0, or -1 after a message.
int target_find(struct target *t, const char *url);
// The token from FILE (may be NULL), else CELLD_TOKEN or CELLD_TOKEN_FILE. 0, or -1 after a message.
int target_find_token(struct target *t, const char *file);

#endif
