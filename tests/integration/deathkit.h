// SPDX-License-Identifier: Apache-2.0
// deathkit: a daemon beside its init part that dies, or is replaced, while commands run; for the suites crash* and upgrade.
// Everything fails the running test by itself.
#ifndef CELLD_TESTS_INTEGRATION_DEATHKIT_H
#define CELLD_TESTS_INTEGRATION_DEATHKIT_H

#include "tests/integration/calls.h"
#include "tests/integration/harness.h"

#include <signal.h>

// A death without a signal being sent: the daemon really reads what is not mapped. (Where it may not be traced, SIGSEGV is sent.)
#define DEATH_FAULT 0
#define DEATH_FAULT_AT "Segmentation fault at 0x10"

// As --init whatever the mode, both surfaces on; in a sanitized binary the signals kill as they do without. BINARY may be NULL.
struct testd *death_start(const char *binary, const char *const *more);
#define death_start_with(...) death_start(NULL, (const char *const[]){"", ##__VA_ARGS__, NULL} + 1)

// The old daemon's pid, once it is dead. SIG may be DEATH_FAULT; *FAULTED (may be NULL): it was a real one.
pid_t death_kill(const struct testd *d, int sig, bool *faulted);
// Until another daemon than OLD serves: d->daemon is its pid.
void death_await(struct testd *d, pid_t old, int64_t ms);
// Both.
void death_crash(struct testd *d, int sig);
// Killed, and no new daemon before death_up: init is stopped so long.
pid_t death_down(const struct testd *d, int sig);
void death_up(struct testd *d, pid_t old);
// SIGUSR2 to init; waits for the new daemon.
void death_upgrade(struct testd *d);
// Until MS have passed since START (h_now_ms), not scaled.
void death_wait_until(int64_t start, int64_t ms);

void death_assert_serves(const struct testd *d);
// Until TEXT stands in the log: it may be written a moment after its cause shows.
void death_assert_log(const struct testd *d, const char *text);
// The "daemon" of GET /processes, borrowed from R.
json_t *death_status(const struct testd *d, struct resp *r);
// The row of GET /exec/processes with that pid, borrowed from R; NULL if there is none.
json_t *death_row(const struct testd *d, int64_t pid, struct resp *r);

// POST TARGET with a body by json_pack's FMT, wants 200.
void death_post(const struct testd *d, const char *target, const char *fmt, ...);
// To PID's stdin by surface A, all taken.
void death_feed(const struct testd *d, int64_t pid, const void *p, size_t n);
// Attaches to PID, reads to the end: exit CODE without a signal. O is zeroed by the caller.
void death_collect(const struct testd *d, int64_t pid, int64_t code, struct sse_out *o);
// The stream of a daemon that died: no end frame, no proper end of the body. Closes it.
void death_was_cut(struct sse *s);

// A fifo NAME in the workspace that commands read ("read x <NAME"); opened for writing and held by the test.
int death_gate(const struct testd *d, const char *name);
// NAME below the workspace as text, the caller's; NULL if it is not there.
char *death_file(const struct testd *d, const char *name);
// Until it is there with just that.
void death_await_file(const struct testd *d, const char *name, const char *want);

// A daemon-like view of init, for the counters of procfs.
struct testd death_init_view(const struct testd *d);

#endif
