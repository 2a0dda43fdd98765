// SPDX-License-Identifier: Apache-2.0
// guard: the process between a test and the binary. It starts the binary, reaps everything that ends up below it (it is a
// subreaper), and when the test's end of the control socket closes, kills what is left, dumps the log unless the test
// said that all was well, and removes the test's directory. Private to daemon.c.
#ifndef CELLD_TESTS_INTEGRATION_GUARD_H
#define CELLD_TESTS_INTEGRATION_GUARD_H

#include <sys/types.h>

struct guard_spec {
	char **argv;            // NULL-terminated, argv[0] is looked up in PATH
	const char *const *env; // further "NAME=value", or NULL
	unsigned nofile;        // RLIMIT_NOFILE, 0 = as it is
	const char *log;        // stdout and stderr go there
	const char *base;       // directory to remove at the end
};

enum guard_word {
	GUARD_STARTED = 1, // value: pid of argv
	GUARD_EXITED,      // value: its wait status
	GUARD_FAILED,      // value: errno of the fork
};

struct guard_msg {
	int word;
	int value;
};

// What the test sends before it closes its end: the test went well, no dump.
#define GUARD_QUIET 'q'

// Forks the guard: its pid, *CTL the test's end of the control socket (SOCK_SEQPACKET, close-on-exec). Negative errno on failure.
pid_t guard_start(const struct guard_spec *spec, int *ctl);

// Removes DIR and all below it, but nothing on another file system.
void guard_remove_tree(const char *dir);

#endif
