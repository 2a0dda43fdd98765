// SPDX-License-Identifier: Apache-2.0
// boxkit: real boxes for a test, on a loop of its own and in a directory of its own, and short words for what tests do with them. Everything fails the
// test by itself and has a deadline. The daemon is $CELLD.
#ifndef CELLD_UNIT_BOXKIT_H
#define CELLD_UNIT_BOXKIT_H

#include "tests/gateway/box.h"

#include <check.h>
#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

#define BOXKIT_MAX 50

struct boxkit_box {
	struct boxkit *k;
	struct box *b;
	int ready, ended;
	char why[512];
};

struct boxkit {
	struct ev_loop *loop;
	char dir[400], celld[512];
	bool namespaces; // what boxes are started with
	bool private_net;
	const char *hide; // NULL: as the box has it by itself
	struct boxkit_box box[BOXKIT_MAX];
};

// How boxes are run: as who we are (root in `make test`), as nobody, or as plain children.
enum boxkit_way { BOXKIT_OURS, BOXKIT_NOBODY, BOXKIT_PLAIN, BOXKIT_WAYS };
void boxkit_init(struct boxkit *k, enum boxkit_way way);
// Frees what lives and removes the directory. Fails if a mount, a descriptor, a child or a cgroup is left.
void boxkit_release(struct boxkit *k);
// The I-th box begins in DIR/I.
struct boxkit_box *boxkit_begin(struct boxkit *k, int i);
// ... and is ready.
struct boxkit_box *boxkit_start(struct boxkit *k, int i);
// Kills it and waits for its end.
void boxkit_end(struct boxkit_box *x);
void boxkit_turn(struct boxkit *k, double seconds);
double boxkit_time(void);
// Groups that the gateway PID has.
int boxkit_groups(pid_t pid);

// One request; the answer's status and body. -1 if there is none within SECONDS. Connects by box_connect.
int boxkit_ask(const struct boxkit_box *x, unsigned port, const char *head, const char *body, double seconds, char *out,
	size_t n);
// A shell command through surface A as root: its exit code, and its output without the last newline. -1 without an answer.
int boxkit_run(const struct boxkit_box *x, const char *command, char *out, size_t n);

#define BOXKIT_UNTIL(k, cond)                                                         \
	do {                                                                          \
		double boxkit_end_at = boxkit_time() + 20;                            \
		while (!(cond)) {                                                     \
			ck_assert_msg(boxkit_time() < boxkit_end_at, "no %s", #cond); \
			boxkit_turn(k, 0.01);                                         \
		}                                                                     \
	} while (0)

#endif
