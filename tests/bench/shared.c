// SPDX-License-Identifier: Apache-2.0
// The demo's client and keeper serve here too; each program is built from its own directory.
#include "tests/demo/client.c"
#include "tests/demo/sandbox.c"
