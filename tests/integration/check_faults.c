// SPDX-License-Identifier: Apache-2.0
// The main paths of both surfaces while something fails: the right answer or an error, never a death, a leak, a hang or a stream
// without its end. What fails is at the end of this file; a suite a kind, so that they run side by side.
#include "tests/integration/faultpaths.h"
#include "tests/integration/faulty.h"
#include "tests/integration/suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BUSY 503, 500, 429
#define FULL 507, 429, 500

static const struct fault memory[] = {
	{.name = "every 1st", .kinds = FAULT_MEMORY, .err = ENOMEM, .every = 1, .cuts = true, .statuses = {BUSY}},
	{.name = "every 2nd", .kinds = FAULT_MEMORY, .err = ENOMEM, .every = 2, .cuts = true, .statuses = {BUSY}},
	{.name = "every 3rd", .kinds = FAULT_MEMORY, .err = ENOMEM, .every = 3, .cuts = true, .statuses = {BUSY}},
	{.name = "every 7th", .kinds = FAULT_MEMORY, .err = ENOMEM, .every = 7, .cuts = true, .statuses = {BUSY}},
	{.name = "every 50th", .kinds = FAULT_MEMORY, .err = ENOMEM, .every = 50, .cuts = true, .statuses = {BUSY}},
};
static const struct fault allocation[] = {
	{.name = "k-th malloc", .kinds = FAULT_MEMORY, .err = ENOMEM, .cuts = true, .statuses = {BUSY}},
};
static const struct fault kernel[] = {
	{.name = "mmap ENOMEM", .kinds = FAULT_KERNEL, .err = ENOMEM, .cuts = true, .statuses = {BUSY}},
	{.name = "watch ENOMEM", .kinds = FAULT_WATCH, .err = ENOMEM, .harmless = true},
	{.name = "watch ENOSPC", .kinds = FAULT_WATCH, .err = ENOSPC, .every = 1, .harmless = true},
	{.name = "fork EAGAIN", .kinds = FAULT_FORK, .err = EAGAIN, .statuses = {BUSY}},
	{.name = "fork ENOMEM", .kinds = FAULT_FORK, .err = ENOMEM, .statuses = {BUSY}},
};
static const struct fault descriptors[] = {
	{.name = "EMFILE k-th", .kinds = FAULT_DESCRIPTOR, .err = EMFILE, .cuts = true, .statuses = {BUSY}},
	{.name = "ENFILE k-th", .kinds = FAULT_DESCRIPTOR, .err = ENFILE, .cuts = true, .statuses = {BUSY}},
	{.name = "EMFILE 3rd", .kinds = FAULT_DESCRIPTOR, .err = EMFILE, .every = 3, .cuts = true, .statuses = {BUSY}},
};
static const struct fault disk[] = {
	{.name = "ENOSPC k-th", .kinds = FAULT_DISK_WRITE, .err = ENOSPC, .statuses = {FULL}},
	{.name = "EDQUOT k-th", .kinds = FAULT_DISK_WRITE, .err = EDQUOT, .statuses = {FULL}},
	{.name = "ENOSPC always", .kinds = FAULT_DISK_WRITE, .err = ENOSPC, .every = 1, .statuses = {FULL}},
	{.name = "EIO k-th", .kinds = FAULT_DISK_READ, .err = EIO, .cuts = true, .statuses = {500}},
};
static const struct fault sockets[] = {
	{.name = "EPIPE k-th", .kinds = FAULT_SEND, .err = EPIPE, .cuts = true},
	{.name = "ECONNRESET k-th", .kinds = FAULT_SEND, .err = ECONNRESET, .cuts = true},
};
static const struct fault interrupts[] = {
	{.name = "EINTR", .kinds = FAULT_INTERRUPT, .err = EINTR, .every = 2, .apart = true, .harmless = true},
	{.name = "one byte", .kinds = FAULT_SHORT_READ | FAULT_SHORT_WRITE, .every = 1, .room = 1, .harmless = true},
	{.name = "half", .kinds = FAULT_SHORT_READ | FAULT_SHORT_WRITE, .every = 1, .harmless = true},
};

// What each fault made to fail, over the paths of a suite: its tests are processes.
static unsigned *shared_counts(size_t count)
{
	void *p = mmap(NULL, count * sizeof(unsigned), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return p == MAP_FAILED ? NULL : p;
}

static void all(int group, const struct fault *faults, size_t count, unsigned *struck)
{
	const char *only = getenv("FAULTS_PATH"); // one alone, for who looks into it
	struct faulty f;
	ck_assert_ptr_nonnull(struck);
	f_start(&f);
	for (const struct path *p = fault_paths[group]; p->name; p++)
		if (!only || strcmp(only, p->name) == 0)
			f_try(&f, p, faults, count, struck);
	f_finish(&f);
}

// A fault that strikes nowhere proves nothing.
static void each_struck(const struct fault *faults, size_t count, const unsigned *struck)
{
	for (size_t i = 0; i < count && !getenv("FAULTS_PATH"); i++)
		ck_assert_msg(struck[i], "%s made nothing fail on any path", faults[i].name);
}

#define SUITE(faults)                                                                 \
	static unsigned *faults##_struck;                                             \
	START_TEST(faults##_fail)                                                     \
	{                                                                             \
		all(_i, faults, sizeof faults / sizeof *faults, faults##_struck);     \
	}                                                                             \
	END_TEST                                                                      \
	START_TEST(faults##_strike)                                                   \
	{                                                                             \
		each_struck(faults, sizeof faults / sizeof *faults, faults##_struck); \
	}                                                                             \
	END_TEST                                                                      \
	Suite *faults_##faults##_suite(void)                                          \
	{                                                                             \
		Suite *s = suite_create("faults_" #faults);                           \
		TCase *tc = h_tcase(s, #faults, f_full() ? 1200 : 240);               \
		faults##_struck = shared_counts(sizeof faults / sizeof *faults);      \
		tcase_add_loop_test(tc, faults##_fail, 0, FAULT_GROUPS);              \
		tcase_add_test(tc, faults##_strike); /* the last */                   \
		return s;                                                             \
	}

SUITE(memory)
SUITE(allocation)
SUITE(kernel)
SUITE(descriptors)
SUITE(disk)
SUITE(sockets)
SUITE(interrupts)
