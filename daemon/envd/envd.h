// SPDX-License-Identifier: Apache-2.0
// envd: surface B (contract B): parse, call the core, encode.
#ifndef CELLD_ENVD_ENVD_H
#define CELLD_ENVD_ENVD_H

#include "daemon/net/route.h"

// The table of surface B.
void envd_routes(struct route_table *out);

#endif
