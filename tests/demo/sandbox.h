// SPDX-License-Identifier: Apache-2.0
// sandbox: one celld of our own in a fresh directory, and the keeper that leaves nothing of it behind: no process and no
// file, also after a crash, a signal or a worker that hangs.
#ifndef CELLD_TESTS_DEMO_SANDBOX_H
#define CELLD_TESTS_DEMO_SANDBOX_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct sandbox {
	bool pid1;     // real PID 1 of a namespace
	pid_t started; // our child: init, or the unshare around it
	pid_t init;    // as seen from here
	int port;      // of surface A
	int envd_port; // of surface B
	char log[128]; // the file that has celld's stderr
};

// Runs WORK(DIR, ARG) in a process of its own with a fresh directory; its return value is the exit status. After it, or after
// LIMIT_S seconds, whatever still runs below is killed and DIR removed. SIGINT, SIGTERM and SIGHUP end the work early.
int keeper_run(int (*work)(const char *dir, void *arg), void *arg, int limit_s);

// True if a PID namespace can be made here.
bool sandbox_can_pid1(void);
// Who commands can run as: root, or without its rights who we are.
const char *sandbox_user(void);
// Starts CELLD with --init and the workspace DIR/workspace, and waits for its ready line. 0, or -1 after saying why on stderr.
int sandbox_start(struct sandbox *s, const char *celld, const char *dir, bool pid1);
// The serving process: the child of init of the same name. 0 while there is none.
pid_t sandbox_daemon(const struct sandbox *s);
// SIGTERM to init, then waits: the exit status, or -1 (a signal, or ten seconds were not enough).
int sandbox_stop(struct sandbox *s);
// Copies celld's log to stderr.
void sandbox_print_log(const struct sandbox *s);

#endif
