// SPDX-License-Identifier: Apache-2.0
// ctlkit: runs `celld ctl` of the binary under test as a program of its own, through pipes or in a terminal. Everything fails the
// running test by itself; what is still running ends with the test.
#ifndef CELLD_TESTS_INTEGRATION_CTLKIT_H
#define CELLD_TESTS_INTEGRATION_CTLKIT_H

#include "proto/buf.h"
#include "tests/integration/daemon.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <termios.h>

#define CTL_DEADLINE 30000

struct ctlrun {
	pid_t pid;             // 0 once it has ended
	int in;                // its input, -1 once closed; in a terminal the master
	int out;               // -1 once at its end
	int err;               // -1 in a terminal
	struct buf said[2];    // stdout (or the terminal's output) and stderr
	int slave;             // of a terminal, so that it can be looked at after the end
	struct termios before; // its modes
	int status;            // exit status, or -1 - N of signal N
};

// The words of a run: ctl_words("ps", "-a").
#define ctl_words(...) ((const char *const[]){__VA_ARGS__, NULL})
// The real path of the binary under test.
const char *ctl_binary(void);

// Starts `celld ctl WORDS...` with CELLD_URL for D (NULL: none) and the variables ENV ("NAME=value", NULL-terminated, or NULL)
// and no other CELLD_* variable.
void ctl_start(struct ctlrun *c, const struct testd *d, const char *const *env, const char *const *words);
// The same in a terminal of that size.
void ctl_start_tty(
	struct ctlrun *c, const struct testd *d, const char *const *env, const char *const *words, int rows, int cols);
// Sends N bytes, closes the input (in a terminal it stays open), reads all and waits for the end: the exit status. Nothing of a sanitizer
// may be on stderr.
int ctl_finish(struct ctlrun *c, const void *p, size_t n);
// Reads until stdout (or stderr) has TEXT.
void ctl_until(struct ctlrun *c, bool err, const char *text);
void ctl_type(struct ctlrun *c, const void *p, size_t n);
void ctl_release(struct ctlrun *c);
// ctl_start of the binary with faults, PLAN (of the file PATH) armed for it.
struct fault_plan;
void ctl_start_faulty(
	struct ctlrun *c, const struct testd *d, const char *const *words, struct fault_plan *plan, const char *path);

// ctl_start and ctl_finish: what it printed stays in C.
int ctl_run_env(struct ctlrun *c, const struct testd *d, const char *const *env, const char *const *words);
// The same without variables; wants STATUS.
void ctl_expect(
	const char *file, int line, const struct testd *d, int status, struct ctlrun *c, const char *const *words);
#define ctl_ok(d, c, ...) ctl_expect(__FILE__, __LINE__, (d), 0, (c), ctl_words(__VA_ARGS__))
#define ctl_exits(d, status, c, ...) ctl_expect(__FILE__, __LINE__, (d), (status), (c), ctl_words(__VA_ARGS__))
// What it has said, as text.
const char *ctl_out(struct ctlrun *c);
const char *ctl_err(struct ctlrun *c);
#define ctl_assert_has(text, part) ck_assert_msg(strstr((text), (part)) != NULL, "\"%s\" is not in: %s", (part), (text))

// N bytes that no encoding leaves alone, the caller's.
unsigned char *ctl_noise(size_t n);
// A file below D's directory: its path.
void ctl_file(const struct testd *d, const char *name, char path[512]);

#endif
