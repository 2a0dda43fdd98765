// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/walk_aside.h"

#include "daemon/io.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// At once, and always a CPU less than there are.
#define ASIDES_MAX 4
// Of the daemon's own memory: to copy the tables of so much holds it up for half a millisecond (7 to 10 us a MiB).
#define ANON_MAX ((uint64_t)64 * 1024 * 1024)
// How long the second process may take with its last entry: two seconds.
#define COUNT_PAUSE_NS 50000
#define COUNT_PAUSES 40000
// A killed child that is not dead by then hangs in the kernel.
#define DEATH_MS 500

#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x1000
#endif

// How long the second process works at a stretch, and rests after it. On two CPUs it shares one with the daemon, which should find little to
// wait for: 50 000 files are removed in x0.75 of nftw's time then, without it in x0.88.
#define WORK_NS ((int64_t)300000)
#define REST_NS ((int64_t)1000000)

// What sched_setattr(2) takes, as far as it is needed here.
struct attributes {
	uint32_t size, policy;
	uint64_t flags;
	int32_t nice;
	uint32_t priority;
	uint64_t runtime, deadline, period;
};
// The longest time that a process can ask to run at a stretch.
#define STRETCH_NS UINT64_C(100000000)

// In memory that the child has too, for the report's sake. So a removal needs no memory on the way that could be refused to it.
struct aside {
	pid_t pid;
	int pidfd;
	struct aside_report report;
};

// Of this process, as its children are.
static int running;

// --- whether ---

// What a quota in the sandbox's own control group leaves of CPUS.
static int within_quota(int cpus)
{
	char text[64], *end;
	if (io_read_file("/sys/fs/cgroup/cpu.max", text, sizeof text) <= 0)
		return cpus;
	long quota = strtol(text, &end, 10), period = strtol(end, NULL, 10);
	if (quota <= 0 || period <= 0) // "max"
		return cpus;
	return quota / period < cpus ? (int)(quota / period) : cpus;
}

static int own_cpus(void)
{
	cpu_set_t set;
	if (sched_getaffinity(0, sizeof set, &set) < 0)
		return ASIDES_MAX + 1; // more than a set has room for
	return CPU_COUNT(&set);
}

// What a child gets a copy of the tables of; UINT64_MAX if it cannot be told.
static uint64_t own_memory(void)
{
	char text[128], *at = text;
	if (io_read_file("/proc/self/statm", text, sizeof text) <= 0)
		return UINT64_MAX;
	(void)strtoull(at, &at, 10);
	uint64_t resident = strtoull(at, &at, 10), shared = strtoull(at, &at, 10);
	return (resident - shared) * (uint64_t)sysconf(_SC_PAGESIZE);
}

static int room_on(int cpus)
{
	if (cpus < 2)
		return -ENOTSUP;
	return running >= ASIDES_MAX || running >= cpus - 1 ? -EBUSY : 0;
}

static int admit(void)
{
	int cpus = own_cpus(), rc = room_on(cpus);
	if (rc == 0)
		rc = room_on(within_quota(cpus));
	return rc == 0 && own_memory() > ANON_MAX ? -E2BIG : rc;
}

// --- the child ---

// One by one, those that are open: a limit may be a thousand million of which a few are. False without /proc.
static bool close_listed(unsigned from, unsigned to)
{
	DIR *d = opendir("/proc/self/fd");
	if (!d)
		return false;
	for (const struct dirent *e; (e = readdir(d));) {
		unsigned long fd = strtoul(e->d_name, NULL, 10); // "." and ".." are 0: never in between
		if (fd >= from && fd <= to && fd != (unsigned long)dirfd(d))
			close((int)fd);
	}
	closedir(d);
	return true;
}

static void close_from_to(unsigned from, unsigned to)
{
	if (from > to || syscall(SYS_close_range, from, to, 0) == 0 || close_listed(from, to))
		return;
	// An old kernel. Whoever waits for the end of something must not wait for this process.
	unsigned last = (unsigned)sysconf(_SC_OPEN_MAX);
	for (unsigned fd = from; fd <= to && fd < last; fd++)
		close((int)fd);
}

// Where the daemon is not (CPU is where it is), for the kernel would wake it behind this process or behind the freeing of inodes all the same: a
// request would wait a tick or a batch. And whoever wakes there comes first: as much time as others, but in longer stretches (Linux 6.12).
static void settle(int cpu)
{
	cpu_set_t set;
	struct attributes a = {0};
	if (cpu >= 0 && sched_getaffinity(0, sizeof set, &set) == 0) {
		CPU_CLR((size_t)cpu, &set);
		(void)sched_setaffinity(0, sizeof set, &set);
	}
	if (syscall(SYS_sched_getattr, 0, &a, sizeof a, 0) == 0 && a.policy == SCHED_OTHER) {
		a.runtime = STRETCH_NS;
		(void)syscall(SYS_sched_setattr, 0, &a, 0);
	}
}

// What CHILD has ended with is of no interest.
static void wait_for(pid_t child)
{
	siginfo_t si;
	(void)IO_AGAIN(waitid(P_PID, (id_t)child, &si, WEXITED | __WALL));
}

// As fork, but for the signal at its end: none.
static pid_t clone_quietly(int *pidfd)
{
	return (pid_t)syscall(SYS_clone, pidfd ? (long)CLONE_PIDFD : 0L, 0L, pidfd, 0L, 0L);
}

static void die_with(pid_t parent)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
}

// Where neither the first process nor the daemon is, or, on two CPUs, with the daemon.
static void settle_second(int cpu)
{
	cpu_set_t set;
	if (cpu < 0 || sched_getaffinity(0, sizeof set, &set) < 0 || CPU_COUNT(&set) > 1)
		return;
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	(void)sched_setaffinity(0, sizeof set, &set);
}

// What a child is made for.
struct task {
	aside_fn *fn;
	void *arg;
	int keep;
	struct aside_report *report;
};

// What SECOND has just removed is counted: it may be freeing a large file still. One that is stopped is not waited for.
static void await_count(pid_t second, const struct aside_report *report)
{
	static const struct timespec pause = {.tv_nsec = COUNT_PAUSE_NS};
	siginfo_t si = {0};
	for (int i = 0; i < COUNT_PAUSES && !si.si_pid && __atomic_load_n(&report->busy, __ATOMIC_ACQUIRE); i++) {
		nanosleep(&pause, NULL);
		(void)waitid(P_PID, (id_t)second, &si, WEXITED | WNOHANG | WNOWAIT | __WALL);
	}
}

static _Noreturn void run(const struct task *t, pid_t parent, int cpu)
{
	// All signals stay blocked: the handlers are the daemon's, and would write to what it listens to.
	die_with(parent);
	prctl(PR_SET_NAME, "celld-remove");
	if (t->keep > 2)
		close_from_to(3, (unsigned)t->keep - 1);
	close_from_to(t->keep > 2 ? (unsigned)t->keep + 1 : 3, ~0u);
	settle(cpu);
	pid_t self = getpid(), second = clone_quietly(NULL);
	if (second == 0) {
		die_with(self);
		settle_second(cpu);
		t->fn(t->arg, t->report, true);
		_exit(0);
	}
	t->fn(t->arg, t->report, false);
	if (second > 0) {
		await_count(second, t->report);
		kill(second, SIGKILL);
		wait_for(second);
	}
	__atomic_store_n(&t->report->done, true, __ATOMIC_RELEASE);
	_exit(0);
}

void aside_rest(int64_t *until)
{
	static const struct timespec rest = {.tv_nsec = REST_NS};
	int64_t now = io_mono_ns();
	if (!*until)
		*until = now + WORK_NS;
	if (now < *until)
		return;
	nanosleep(&rest, NULL);
	*until = io_mono_ns() + WORK_NS;
}

// --- its parent ---

static int start(struct aside *a, const struct task *t)
{
	sigset_t all, old;
	pid_t self = getpid();
	int cpu = sched_getcpu();
	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pid_t pid = clone_quietly(&a->pidfd);
	int err = errno;
	if (pid == 0)
		run(t, self, cpu);
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		return -err;
	a->pid = pid;
	running++;
	return a->pidfd < 0 ? -ENOSYS : 0; // a kernel that has no such descriptors
}

int aside_start(struct aside **out, aside_fn *fn, void *arg, int keep)
{
	int rc = admit();
	if (rc < 0)
		return rc;
	struct aside *a = mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (a == MAP_FAILED)
		return -ENOMEM;
	a->pidfd = -1;
	rc = start(a, &(struct task){fn, arg, keep, &a->report});
	if (rc < 0)
		aside_free(a);
	else
		*out = a;
	return rc;
}

int aside_fd(const struct aside *a)
{
	return a->pidfd;
}

static bool is_dead(const struct aside *a, int ms)
{
	struct pollfd p = {.fd = a->pidfd, .events = POLLIN};
	return IO_AGAIN(poll(&p, 1, ms)) > 0;
}

bool aside_ended(const struct aside *a)
{
	return is_dead(a, 0);
}

const struct aside_report *aside_end(struct aside *a)
{
	if (!a->pid)
		return &a->report;
	kill(a->pid, SIGKILL);
	// One that hangs is left to the init part: only a daemon that ends kills.
	if (a->pidfd < 0 || is_dead(a, DEATH_MS))
		wait_for(a->pid);
	a->pid = 0;
	running--;
	return &a->report;
}

void aside_free(struct aside *a)
{
	if (!a)
		return;
	(void)aside_end(a);
	io_close(&a->pidfd);
	munmap(a, sizeof *a);
}
