// SPDX-License-Identifier: Apache-2.0
// client: a command to a running gateway (`celld-gateway reclaim|list`): one request, its answer on stdout. Blocks.
#ifndef CELLD_GATEWAY_CLIENT_H
#define CELLD_GATEWAY_CLIENT_H

#include "tests/gateway/options.h"

// The exit status; what went wrong is said on stderr.
int client_run(const struct options *o);

#endif
