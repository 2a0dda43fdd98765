// SPDX-License-Identifier: Apache-2.0
// main_listen: opens what the surfaces listen on at the start: the addresses of the configuration, and sockets that the service manager gives.
#ifndef CELLD_DAEMON_MAIN_LISTEN_H
#define CELLD_DAEMON_MAIN_LISTEN_H

#include "daemon/config.h"
#include "daemon/daemon.h"
#include "daemon/notify.h"

#include <stddef.h>

// Fills SPEC's sockets; A and B, of N bytes each, get the addresses of the two surfaces or "off". 0, or what to exit with: one line on stderr has
// said why.
int main_listen(
	const struct config *c, const struct notify *given, struct daemon_spec *spec, char *a, char *b, size_t n);

#endif
