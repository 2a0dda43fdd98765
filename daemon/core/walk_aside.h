// SPDX-License-Identifier: Apache-2.0
// walk_aside: the rest of a large removal, in a child process on another CPU: the kernel frees what is unlinked in batches on the CPU that
// unlinked it, whoever waits there. A child that nobody sees but who made it: its end raises no SIGCHLD, and a wait for commands does not find it
// (it is a `clone' child to wait(2)), so its number is its own until aside_free. It dies with the daemon. Part of walk_remove.
#ifndef CELLD_CORE_WALK_ASIDE_H
#define CELLD_CORE_WALK_ASIDE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// As much of a path as there is room for.
#define ASIDE_WHERE ((size_t)60 * 1024)

// What the child tells, in memory that all have: if it is killed, right but for the three entries or fewer that were just being removed.
struct aside_report {
	uint64_t count[2]; // of entries removed by the first and by the second process
	int err;           // the first failure, or 0
	bool done;         // it came to its end
	bool busy;         // the second process is at an entry that it has not counted yet
	char where[ASIDE_WHERE];
};

// What runs there. The child has a child of its own in turn, which helps it with half a hand (SECOND) until it is through: what that one leaves or meets
// does not count. aside_rest is for it. (If the child is killed that one dies too; then it is an orphan like others, which whoever reaps those reaps.)
typedef void aside_fn(void *arg, struct aside_report *report, bool second);

struct aside;

// Runs FN in a child. Of the descriptors it has 0 to 2 and KEEP (-1: none). 0; -EBUSY if as many run as may; another negative errno if it is not to be
// had here: one CPU, a daemon that is too large to be copied, a kernel that refuses.
int aside_start(struct aside **out, aside_fn *fn, void *arg, int keep);
// To be called between two pieces of work: sleeps when it has worked for a while.
void aside_rest(int64_t *until);
// Readable once the child has ended.
int aside_fd(const struct aside *a);
bool aside_ended(const struct aside *a);
// Kills it unless it has ended: what it has told, valid until aside_free.
const struct aside_report *aside_end(struct aside *a);
// The same. NULL is allowed.
void aside_free(struct aside *a);

#endif
