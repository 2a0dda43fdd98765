// SPDX-License-Identifier: Apache-2.0
// The suites of the integration tests. check_<name>.c exports <name>_suite and nothing else; a new file adds its line to
// INTEGRATION_SUITES. What a test can use is in harness.h.
#ifndef CELLD_INTEGRATION_SUITES_H
#define CELLD_INTEGRATION_SUITES_H

#include <check.h>

// clang-format off
#define INTEGRATION_SUITES(X) \
	X(answers) \
	X(ends) \
	X(output)
// clang-format on

#define INTEGRATION_DECLARE(name) Suite *name##_suite(void);
INTEGRATION_SUITES(INTEGRATION_DECLARE)
#undef INTEGRATION_DECLARE

#endif
