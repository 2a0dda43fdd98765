// SPDX-License-Identifier: Apache-2.0
#include "oom.h"

#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t k, size_t n);
void *__real_realloc(void *p, size_t n);
void __real_free(void *p);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t k, size_t n);
void *__wrap_realloc(void *p, size_t n);
void __wrap_free(void *p);

enum {
	OOM_BLOCKS = 4096, // blocks alive at once; one more would not be seen leaking
	OOM_RUNS = 20000,  // a loop that needs more never ends
};

static struct oom {
	pid_t armed; // this process alone: what a child of it fails at would not be seen here; 0 = none
	bool failed;
	long fail_at, count;
	void *blocks[OOM_BLOCKS]; // those allocated while armed and not freed; NULL = unused
	size_t used;              // slots ever used
} oom;

static bool is_armed(void)
{
	return oom.armed && oom.armed == getpid();
}

static void **slot_of(const void *p)
{
	for (size_t i = 0; p && i < oom.used; i++)
		if (oom.blocks[i] == p)
			return &oom.blocks[i];
	return NULL;
}

static void remember(void *p)
{
	size_t i = 0;
	while (i < oom.used && oom.blocks[i])
		i++;
	if (!p || i == OOM_BLOCKS)
		return;
	oom.blocks[i] = p;
	if (i == oom.used)
		oom.used++;
}

static bool must_fail(void)
{
	if (!is_armed() || oom.count++ != oom.fail_at)
		return false;
	oom.failed = true;
	errno = ENOMEM;
	return true;
}

void *__wrap_malloc(size_t n)
{
	if (must_fail())
		return NULL;
	void *p = __real_malloc(n);
	if (is_armed())
		remember(p);
	return p;
}

void *__wrap_calloc(size_t k, size_t n)
{
	if (must_fail())
		return NULL;
	void *p = __real_calloc(k, n);
	if (is_armed())
		remember(p);
	return p;
}

void *__wrap_realloc(void *old, size_t n)
{
	if (must_fail())
		return NULL;
	void **slot = is_armed() ? slot_of(old) : NULL;
	bool fresh = !old;
	void *p = __real_realloc(old, n);
	if (slot && p)
		*slot = p;
	else if (is_armed() && fresh)
		remember(p);
	return p;
}

void __wrap_free(void *p)
{
	void **slot = is_armed() ? slot_of(p) : NULL;
	if (slot)
		*slot = NULL;
	__real_free(p);
}

void oom_fail_at(long n)
{
	oom = (struct oom){.armed = getpid(), .fail_at = n};
}

void oom_off(void)
{
	oom.armed = 0;
}

bool oom_failed(void)
{
	return oom.failed;
}

long oom_count(void)
{
	return oom.count;
}

size_t oom_live(void)
{
	size_t live = 0;
	for (size_t i = 0; i < oom.used; i++)
		live += oom.blocks[i] != NULL;
	return live;
}

void oom_loop(int (*run)(void *arg), void *arg, const char *file, int line)
{
	for (long n = 0; n < OOM_RUNS; n++) {
		oom_fail_at(n);
		int rc = run(arg);
		oom_off();
		size_t live = oom_live();
		if (rc > 0)
			ck_abort_msg("%s:%d: allocation %ld failing: wrong result %d", file, line, n, rc);
		if (live > 0)
			ck_abort_msg("%s:%d: allocation %ld failing: %zu blocks left", file, line, n, live);
		if (oom_failed() && rc == 0)
			ck_abort_msg("%s:%d: allocation %ld failing: reported as success", file, line, n);
		if (oom_failed())
			continue;
		if (rc != 0)
			ck_abort_msg("%s:%d: no allocation failing: returned %d", file, line, rc);
		if (n == 0)
			ck_abort_msg("%s:%d: it allocates nothing: the loop tests nothing", file, line);
		return;
	}
	ck_abort_msg("%s:%d: still failing after %d runs", file, line, OOM_RUNS);
}
