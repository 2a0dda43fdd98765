// SPDX-License-Identifier: Apache-2.0
// harness: what an integration test needs; tests include this header alone. Everything fails the running Check test by itself
// (ck_abort_msg), so a test is a straight line.
//
//	// B13
//	START_TEST(killed_shell_is_a_signal)
//	{
//		struct testd *d = d_start("--grace", "100");      // the real binary, options behind the defaults
//		struct resp r = {0};
//		req_pack(d, "POST", "/exec", &r, "{s:s}", "command", "kill -KILL $$");
//		ck_assert_str_eq(j_str(resp_json(&r), "signal"), "SIGKILL");
//		resp_release(&r);
//		d_finish(d);                                      // always last: asserts a clean daemon and stops it
//	}
//	END_TEST
//
//	Suite *ends_suite(void)                                   // one a file; add X(ends) to suites.h
//	{
//		Suite *s = suite_create("ends");
//		TCase *tc = h_tcase(s, "signals", 20);            // timeout in seconds, scaled
//		tcase_add_test(tc, killed_shell_is_a_signal);
//		return s;
//	}
//
// - Tests are named after the symptom, the field case's id stands in a comment. A test may fail or be killed anywhere:
//   a guard process (parent of the daemon) then dumps the daemon's stderr, kills all that is left and removes the files.
// - d_finish fails the test if the daemon died or was replaced (unless d_expect_crash), does not exit with 0 on TERM, leaves a
//   process behind, or printed a sanitizer's finding or an assertion.
// - Streams: sse_open, then sse_next for one event at a time or sse_collect for all of it; see sse.h.
// - No sleep as synchronisation: wait_until with a condition, sse_next or client_wait_eof with a deadline. All deadlines are in
//   milliseconds, unscaled: the harness multiplies them by T_SCALE. For a limit that the test checks itself use h_scaled.
// - Environment: CELLD (the binary, build/celld), CELLD_TEST_PID1=1 (run it as PID 1 of a pid namespace; needs root), T_SCALE
//   (1), and Check's own CK_RUN_SUITE, CK_RUN_CASE, CK_FORK=no for a debugger.
// - As PID 1 the pids in answers are those inside the namespace: map them with d_outside_pid before looking into /proc.
#ifndef CELLD_TESTS_INTEGRATION_HARNESS_H
#define CELLD_TESTS_INTEGRATION_HARNESS_H

#include "proto/buf.h"
#include "tests/integration/client.h"
#include "tests/integration/daemon.h"
#include "tests/integration/guard.h"
#include "tests/integration/procfs.h"
#include "tests/integration/sse.h"

#include <check.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Monotonic milliseconds.
int64_t h_now_ms(void);
// MS times T_SCALE, and the factor itself.
int64_t h_scaled(int64_t ms);
double h_scale(void);
// Polls FN (every few milliseconds) until it is true; false if DEADLINE_MS have passed.
bool wait_until(bool (*fn)(void *arg), void *arg, int64_t deadline_ms);
// A pause between polls, at most 20 ms: for loops of a test's own that watch a deadline.
void h_tick(void);
// A test case of S with a scaled timeout.
TCase *h_tcase(Suite *s, const char *name, double timeout_s);

// Members of a JSON object; each fails the test if the key is absent or of another type.
json_t *j_get(const json_t *obj, const char *key);
const char *j_str(const json_t *obj, const char *key);
int64_t j_int(const json_t *obj, const char *key);
bool j_bool(const json_t *obj, const char *key);
bool j_has(const json_t *obj, const char *key);

// J as compact text; the caller frees. Not json_dumps: proto/json gives jansson an allocator of its own, free() is wrong there.
char *j_text(const json_t *j);

// Fails with the first differing offset and its surroundings if the bytes are not the same.
#define assert_bytes(got, want, n) h_assert_bytes(__FILE__, __LINE__, (got), (want), (n))
#define assert_text(got, want) h_assert_bytes(__FILE__, __LINE__, (got), (want), strlen(want))
void h_assert_bytes(const char *file, int line, const struct buf *got, const void *want, size_t n);
// S repeated COUNT times, appended to B.
void h_repeat(struct buf *b, const char *s, size_t count);

#endif
