// SPDX-License-Identifier: Apache-2.0
// fake: what stands in for the system under a whole daemon part: sockets, the clock, child processes. The program is linked with --wrap for
// each function named in fuzz.mk; outside fake_begin ... fake_end (one thread, one input) all of them do what they always do.
#ifndef CELLD_FUZZ_FAKE_H
#define CELLD_FUZZ_FAKE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct buf;

// --- jail.c: the thread in which a daemon may do whatever it is asked for ---

// Runs FN(ARG) in a thread whose root is an empty directory of its own in memory and which the kernel refuses processes, signals to others,
// mounts, sockets and settings of the machine. Ends the program if it cannot be had.
void jail_run(void (*fn)(void *arg), void *arg);
// False where neither root nor a user namespace is to be had.
bool jail_possible(void);
// In it: the root as every input finds it.
void jail_reset(void);
// Anywhere: removes what is below the directory NAME of AT.
void jail_empty(int at, const char *name);

// --- the clock (fake_io.c) ---

void fake_begin(void);
void fake_end(void);
bool fake_on(void);
void fake_pass(double seconds);

// --- descriptors (fake_io.c) ---

// What answers for one descriptor; all but ARG may be NULL: then it is as it always is. Results as in daemon/io.h.
struct fake_fd {
	int fd;
	void *arg;
	ssize_t (*read)(void *arg, void *p, size_t n);
	ssize_t (*send)(void *arg, const void *p, size_t n);
	ssize_t (*pending)(void *arg);
	void (*shut)(void *arg);
	void (*closed)(void *arg);
};
// The number of the WHICHth watch that inotify has made for this input.
int fake_watch(unsigned which);

enum { FAKE_FDS = 4 };
void fake_fd(const struct fake_fd *f);

// --- children (fake_child.c) ---
// No process is started: a child is some lines, the exit code that its command line is long (modulo 4), or what its command line names: "cat"
// gives back its input, "sleep" stays, "big" says 300 KiB; "missing" cannot be executed.

// Each does a piece of what it does. True if one has ended.
bool fake_children_turn(void);
void fake_children_end(void); // all that still run are killed
void fake_children_free(void);

#endif
