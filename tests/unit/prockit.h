// SPDX-License-Identifier: Apache-2.0
// prockit: a process table on a loop of its own, as celld has it, and a gate (a FIFO) at which scripts wait: "read x <$GATE".
// Scripts also find $DIR, an empty directory. Each wait turns the loop until a condition holds or a deadline ends the test.
#ifndef CELLD_UNIT_PROCKIT_H
#define CELLD_UNIT_PROCKIT_H

#include "daemon/core/proc.h"

#include <check.h>
#include <ev.h>
#include <stdbool.h>
#include <stddef.h>

struct prockit {
	struct ev_loop *loop;
	struct procs *procs;
	struct spawn_base base;
	ev_signal chld;
	ev_timer tick; // so that a turn ends
	char dir[64], gate_path[96];
	char env_dir[96], env_gate[128];
	const char *env[4];
	int gate;
	enum spawn_step step; // of the last start
};

// Reads all it is woken for into TEXT (the first bytes of it), unless it HOLDs.
struct prockit_reader {
	struct output_reader r; // first: the callbacks get it
	bool hold;
	int cut;
	size_t n;
	char text[4096]; // NUL-terminated
};

extern const struct proc_limits prockit_limits;

void prockit_init(struct prockit *k, const struct proc_limits *limits);
// Kills what is left.
void prockit_release(struct prockit *k);
int prockit_try(struct prockit *k, const char *script, double timeout, bool want_stdin, struct proc **out);
// With stdin and without a timeout.
struct proc *prockit_start(struct prockit *k, const char *script);
void prockit_open_gate(struct prockit *k);
void prockit_turn(struct prockit *k);
void prockit_turns_for(struct prockit *k, double seconds);
double prockit_time(void);

void prockit_attach(struct prockit_reader *r, struct proc *p, bool hold);
void prockit_read(struct prockit_reader *r, struct proc *p);
// What P's log holds, by a reader that comes and goes.
void prockit_output(struct prockit_reader *r, struct proc *p);

#define PROCKIT_UNTIL(k, cond)                                                       \
	do {                                                                         \
		double prockit_end = prockit_time() + 15;                            \
		while (!(cond)) {                                                    \
			ck_assert_msg(prockit_time() < prockit_end, "no %s", #cond); \
			prockit_turn(k);                                             \
		}                                                                    \
	} while (0)

#endif
