// SPDX-License-Identifier: Apache-2.0
// procfs: what /proc says of the daemon under test and of the processes below it. All pids are outside pids unless the name
// says nspid.
#ifndef CELLD_TESTS_INTEGRATION_PROCFS_H
#define CELLD_TESTS_INTEGRATION_PROCFS_H

#include "tests/integration/daemon.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct pinfo {
	pid_t pid;
	pid_t ppid;
	char state; // R S D T Z ...
};

// Of the serving process; each fails the test if it is gone.
int d_fd_count(const struct testd *d);
long d_rss_kib(const struct testd *d);
uint64_t d_cpu_ticks(const struct testd *d); // user + system, in clock ticks (sysconf(_SC_CLK_TCK))
uint64_t d_wakeups(const struct testd *d);   // voluntary context switches so far

// True if the binary was built with AddressSanitizer: it keeps freed memory, so limits on memory need to be wider.
bool d_sanitized(const struct testd *d);

// Below init: zombies; all processes below the serving process, zombies included.
int d_zombies(const struct testd *d);
int d_children(const struct testd *d);
// Processes below the guard whose command line (blanks between the arguments) contains TEXT, zombies excluded; the first one's
// pid goes to *PID unless it is NULL. A shell that was started with TEXT in its script counts too.
int d_count_cmdline(const struct testd *d, const char *text, pid_t *pid);
// True once nothing but init and the serving process is left below the guard.
bool d_no_commands(const struct testd *d);

// The outside pid of a pid from an answer, or 0 if there is no such process. The same number unless the binary is PID 1.
pid_t d_outside_pid(const struct testd *d, int64_t nspid);
// True if that process exists and is no zombie.
bool d_nspid_alive(const struct testd *d, int64_t nspid);
bool pid_alive(pid_t pid);

// The processes below ROOT, zombies included, without ROOT: their number, at most MAX of them in P.
size_t procs_below(pid_t root, struct pinfo *p, size_t max);
// False if PID does not exist.
bool proc_info(pid_t pid, struct pinfo *p);
// The process's executable (readlink of exe), or "" if it cannot be read.
void proc_exe(pid_t pid, char *path, size_t n);

#endif
