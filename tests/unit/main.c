// SPDX-License-Identifier: Apache-2.0
// Runs every suite. CK_RUN_SUITE, CK_RUN_CASE, CK_VERBOSITY and CK_FORK of Check work as usual.
#include "suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAME(name) puts(#name);

// With --list: the names of the suites, a line each, so that tests/run.sh can run several at once.
int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		UNIT_SUITES(NAME)
		return EXIT_SUCCESS;
	}
	SRunner *runner = srunner_create(NULL);
#define ADD(module) srunner_add_suite(runner, module##_suite());
	UNIT_SUITES(ADD)
#undef ADD
	srunner_run_all(runner, CK_ENV);
	int ran = srunner_ntests_run(runner), failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	if (ran == 0)
		fprintf(stderr, "unit: no test was run\n");
	return ran > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
