// SPDX-License-Identifier: Apache-2.0
// Runs every suite. CK_RUN_SUITE, CK_RUN_CASE, CK_VERBOSITY and CK_FORK of Check work as usual; harness.h has the rest.
#include "tests/integration/gatewaykit.h"
#include "tests/integration/suites.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

// Whether the gateway's sandboxes can have namespaces here.
static bool can_isolate(void)
{
	int status = 1, flags = CLONE_NEWNS | CLONE_NEWPID | (geteuid() == 0 ? 0 : CLONE_NEWUSER);
	pid_t pid = fork();
	if (pid == 0)
		_exit(unshare(flags) == 0 ? 0 : 1);
	if (pid > 0)
		(void)waitpid(pid, &status, 0);
	return status == 0;
}

// The gateway makes PID 1s of its own: its suites are the same in both modes, and nothing without them.
static bool with_gateway(void)
{
	if (d_env_pid1())
		return false;
	bool can = can_isolate();
	if (!can)
		fprintf(stderr, "gateway: left out, no namespaces to be had\n");
	return can;
}

// They take their time, and are the same in both modes.
static bool is_long(const char *name)
{
	return strcmp(name, "crash_loop") == 0 || strncmp(name, "faults_", 7) == 0;
}

// Where all suites run under faults (make faults), those with faults of their own have no place.
static bool is_faulty(const char *name)
{
	return getenv("FAULTS_ALL") && strncmp(name, "faults_", 7) == 0;
}

static void list(const char *name, bool gateway)
{
	if ((d_env_pid1() && is_long(name)) || is_faulty(name))
		return;
	if (gateway || strncmp(name, "gateway_", 8) != 0)
		puts(name);
}

// With --list: the names of the suites, a line each, so that tests/run.sh can run several at once. With --serve: the server of gatewaykit.h.
int main(int argc, char **argv)
{
	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		bool gateway = with_gateway();
#define LIST(name) list(#name, gateway);
		INTEGRATION_SUITES(LIST)
#undef LIST
		return EXIT_SUCCESS;
	}
	if (argc == 2 && strcmp(argv[1], "--serve") == 0)
		return gateway_serve();
	SRunner *runner = srunner_create(NULL);
#define ADD(name) srunner_add_suite(runner, name##_suite());
	INTEGRATION_SUITES(ADD)
#undef ADD
	srunner_run_all(runner, CK_ENV);
	int ran = srunner_ntests_run(runner);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	if (ran == 0)
		fprintf(stderr, "integration: no test was run\n");
	return ran > 0 && failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
