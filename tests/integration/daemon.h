// SPDX-License-Identifier: Apache-2.0
// daemon: starts and stops the real binary for one test. Between the test and the binary stands a guard process: it is the
// binary's parent and a subreaper, so whatever the test or the binary does, everything below it can be found and killed.
// Default options: --listen 127.0.0.1:0 --envd-listen off --venv off --workspace <fresh directory> --cgroup off, then the caller's.
// struct testd belongs to the test, d_finish frees it. Read its fields, do not write them.
#ifndef CELLD_TESTS_INTEGRATION_DAEMON_H
#define CELLD_TESTS_INTEGRATION_DAEMON_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct testd {
	char base[256];      // holds workspace/ and stderr
	char workspace[280]; // --workspace
	char log[280];       // the file that is the binary's stdout and stderr
	char host[64];       // surface A's address and port from the ready line; port 0 if it is off
	int port;
	char envd_host[64]; // surface B's
	int envd_port;
	pid_t guard;  // parent of the binary
	pid_t init;   // the process that was started (PID 1 of its namespace if pid1), as seen from outside
	pid_t daemon; // the serving process: a child of init, or init itself without an init part
	bool pid1;
	bool has_init;
	int ctl;    // private: to the guard
	int status; // wait status once exited
	bool exited;
	bool expect_crash; // set by d_expect_crash
};

struct d_opts {
	const char *const *args; // options behind the defaults, NULL-terminated, or NULL
	const char *const
		*env;     // "NAME=value" for the binary, NULL-terminated, or NULL; CELLD* variables are never inherited
	bool pid1;        // as PID 1 of a namespace even without CELLD_TEST_PID1
	bool plain;       // never as PID 1
	bool no_defaults; // none of the default options but --workspace and --cgroup
	unsigned nofile;  // RLIMIT_NOFILE, soft and hard; 0 = as it is
	const char *workspace; // an existing directory of the caller's instead of a fresh one
	const char *binary;    // another copy of it; NULL: the one under test
};

// Starts the binary and waits for the ready line. Options as strings: d_start(), d_start("--init"), d_start("--grace", "100").
#define d_start(...) d_start_args((const char *const[]){"", ##__VA_ARGS__, NULL} + 1)
struct testd *d_start_args(const char *const *args);
struct testd *d_start_opts(const struct d_opts *o);

// The end of every test: asserts that the daemon is alive and the same as at the start (unless stopped by d_stop, or
// d_expect_crash), stops it, asserts exit status 0, no process left, nothing of a sanitizer in its stderr; frees D.
void d_finish(struct testd *d);
// SIGTERM to init, then d_wait: the exit status.
int d_stop(struct testd *d, int64_t deadline_ms);
// Waits until the binary has ended and returns its exit status, or -1 - N if signal N ended it. The test fails at the deadline.
int d_wait(struct testd *d, int64_t deadline_ms);
// A signal to init.
void d_signal(const struct testd *d, int sig);
// The test crashes the daemon on purpose: d_finish accepts another daemon pid (but still wants one alive).
void d_expect_crash(struct testd *d);
// Looks the daemon up again (after a crash): its pid, or 0 while there is none. Updates d->daemon if found.
pid_t d_refresh(struct testd *d);
// Fails unless the daemon is the one of the start and living.
void d_assert_alive(const struct testd *d);
// True if the binary's stderr contains TEXT by now.
bool d_log_has(const struct testd *d, const char *text);

// True if the tests run as PID 1 (CELLD_TEST_PID1=1).
bool d_env_pid1(void);

#endif
