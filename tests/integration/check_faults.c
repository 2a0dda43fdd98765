// SPDX-License-Identifier: Apache-2.0
// The main paths of both surfaces while something fails: the right answer or an error, never a death, a leak, a hang or a stream
// without its end. What fails is at the end of this file; a suite a kind, so that they run side by side.
#include "tests/integration/faultpaths.h"
#include "tests/integration/faulty.h"
#include "tests/integration/suites.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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

static void all(int group, const struct fault *faults, size_t count)
{
	const char *only = getenv("FAULTS_PATH"); // one alone, for who looks into it
	struct faulty f;
	f_start(&f);
	for (const struct path *p = fault_paths[group]; p->name; p++)
		for (size_t i = 0; i < count; i++)
			if (!only || strcmp(only, p->name) == 0)
				f_try(&f, p, &faults[i]);
	f_finish(&f);
}

#define SUITE(faults)                                                                          \
	START_TEST(faults##_fail)                                                              \
	{                                                                                      \
		all(_i, faults, sizeof faults / sizeof *faults);                               \
	}                                                                                      \
	END_TEST                                                                               \
	Suite *faults_##faults##_suite(void)                                                   \
	{                                                                                      \
		Suite *s = suite_create("faults_" #faults);                                    \
		tcase_add_loop_test(h_tcase(s, #faults, 240), faults##_fail, 0, FAULT_GROUPS); \
		return s;                                                                      \
	}

SUITE(memory)
SUITE(allocation)
SUITE(kernel)
SUITE(descriptors)
SUITE(disk)
SUITE(sockets)
SUITE(interrupts)
