// SPDX-License-Identifier: Apache-2.0
// plan: what is to fail in celld-faults, in memory that the test shares with it. celld-faults is the product's own objects, linked with
// --wrap (faults.mk) for everything that allocates and for the system's calls; the product knows nothing of it. A test names its
// file in FAULTS_PLAN, fills a plan in and arms it with the daemon's pid: until then, and in any other process, nothing fails.
// FAULTS_ALL=eintr,short1,half instead: from the start, in every process that celld forks, without a plan.
#ifndef CELLD_TESTS_FAULTS_PLAN_H
#define CELLD_TESTS_FAULTS_PLAN_H

#include <stdatomic.h>
#include <stdint.h>

// What a call does, as far as it can fail: a plan asks for some of them.
enum fault_kind {
	FAULT_MEMORY = 1 << 0,      // allocates
	FAULT_KERNEL = 1 << 1,      // takes memory of the kernel's
	FAULT_DESCRIPTOR = 1 << 2,  // makes a descriptor
	FAULT_DISK_WRITE = 1 << 3,  // writes to a file, creates or renames one, reserves room
	FAULT_DISK_READ = 1 << 4,   // reads a file or a directory
	FAULT_FORK = 1 << 5,        // makes a process
	FAULT_SEND = 1 << 6,        // writes to a stream socket
	FAULT_INTERRUPT = 1 << 7,   // may be interrupted
	FAULT_SHORT_READ = 1 << 8,  // moves bytes, and may move fewer
	FAULT_SHORT_WRITE = 1 << 9, //
	FAULT_WATCH = 1 << 10,      // has the kernel watch a descriptor
};

enum fault_calls { FAULT_CALLS_MAX = 96 };

struct fault_plan {
	_Atomic int32_t pid;    // the process that it is for; 0: disarmed
	_Atomic uint32_t kinds; // enum fault_kind
	_Atomic int32_t err;    // the errno
	_Atomic uint32_t every; // each n-th call fails; 0: the one below
	_Atomic uint32_t at;    // exactly that one, from 1
	_Atomic uint32_t apart; // each function's calls are counted apart
	_Atomic uint32_t room;  // FAULT_SHORT_*: bytes left of each transfer; 0: half of them
	_Atomic uint32_t seen;  // calls so far that could have failed
	_Atomic uint32_t hits;  // of them failed, or were cut short
	// The last one: its name, and where in celld-faults it was called (for addr2line).
	char name[24];
	uint64_t where;
	_Atomic uint32_t each[FAULT_CALLS_MAX];
};

#endif
