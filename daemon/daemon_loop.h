// SPDX-License-Identifier: Apache-2.0
// daemon_loop: the event loop, made to live through want of memory and of descriptors, where libev by itself ends the process or sleeps on
// its own events. One in a process: libev asks without saying for whom.
#ifndef CELLD_DAEMON_DAEMON_LOOP_H
#define CELLD_DAEMON_DAEMON_LOOP_H

struct ev_loop;
struct metrics;

// NULL when out of memory. Freed by loop_free; NULL is allowed.
struct ev_loop *loop_new(void);
void loop_free(struct ev_loop *loop);
// How long each turn takes is added to M (borrowed until loop_free). Asks no clock: libev has looked already.
void loop_measure(struct ev_loop *loop, struct metrics *m);

#endif
