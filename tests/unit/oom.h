// SPDX-License-Identifier: Apache-2.0
// oom: makes the n-th allocation fail, and counts what is not freed.
// Link with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc,--wrap=free. That catches the calls of the objects and
// static archives in the test program, not those inside shared libraries: a library that lets its allocator be
// set (jansson) gets this program's malloc and free. While armed, no ck_assert: Check may allocate.
#ifndef CELLD_UNIT_OOM_H
#define CELLD_UNIT_OOM_H

#include <stdbool.h>
#include <stddef.h>

// Arms: allocation N from now (0 = the next one) fails, all others succeed. N < 0: none fails, all are counted.
void oom_fail_at(long n);
// Disarms.
void oom_off(void);
// Since the last oom_fail_at: whether the failure was injected, how many allocations were asked for, and how many
// blocks allocated since then are not freed. oom_live is to be asked before oom_off.
bool oom_failed(void);
long oom_count(void);
size_t oom_live(void);

// Calls RUN(ARG) with allocation 0, 1, 2, ... failing, until a run meets no failure. RUN does its whole work, frees
// everything, and returns 0 for success, a negative errno for a failure it was told of, or a positive number of its
// own for a wrong result. The test fails unless at least one run met a failure, every such run returned a negative
// number, the last one returned 0, and none left a block behind.
#define OOM_LOOP(run, arg) oom_loop((run), (arg), __FILE__, __LINE__)
void oom_loop(int (*run)(void *arg), void *arg, const char *file, int line);

#endif
