// SPDX-License-Identifier: Apache-2.0
#include "tests/faults/inject.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

extern const char __executable_start[]; // the linker's

static struct fault_plan *plan;
static struct fault_plan *further[2]; // of FAULTS_ALL: no plan excludes the other
static bool everywhere;
static pid_t owner; // this process, as long as it is no child on its way to exec

static struct fault_plan *shared(int fd)
{
	int flags = fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
	void *p = mmap(NULL, sizeof *plan, PROT_READ | PROT_WRITE, flags, fd, 0);
	if (p == MAP_FAILED) {
		perror("faults: mmap");
		abort();
	}
	return p;
}

// "eintr", "short1" or "half", each in memory of its own process: it forks.
static void arm_always(const char *words)
{
	static const unsigned moves = FAULT_SHORT_READ | FAULT_SHORT_WRITE;
	everywhere = true;
	if (strstr(words, "eintr"))
		*(further[0] = shared(-1)) =
			(struct fault_plan){.kinds = FAULT_INTERRUPT, .err = EINTR, .every = 2, .apart = 1};
	if (strstr(words, "short1"))
		*(further[1] = shared(-1)) = (struct fault_plan){.kinds = moves, .every = 1, .room = 1};
	else if (strstr(words, "half"))
		*(further[1] = shared(-1)) = (struct fault_plan){.kinds = moves, .every = 1, .room = 0};
	if (!further[0] && !further[1]) {
		fprintf(stderr, "faults: FAULTS_ALL=%s says nothing\n", words);
		abort();
	}
}

__attribute__((constructor)) static void set_up(void)
{
	const char *path = getenv("FAULTS_PLAN"), *words = getenv("FAULTS_ALL");
	owner = getpid();
	if (words)
		arm_always(words);
	if (!path)
		return;
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0) {
		perror(path);
		abort();
	}
	plan = shared(fd);
	close(fd);
}

void fault_forked(void)
{
	owner = getpid();
}

bool fault_is_own(void)
{
	return owner == getpid();
}

static bool is_for(const struct fault_plan *p, unsigned kinds)
{
	if (!p || !(atomic_load(&p->kinds) & kinds))
		return false;
	return owner == getpid() && (everywhere || owner == atomic_load(&p->pid));
}

bool fault_wants(unsigned kinds)
{
	return is_for(plan, kinds) || is_for(further[0], kinds) || is_for(further[1], kinds);
}

// Counts the call; whether it is one that the plan names.
static bool strikes(struct fault_plan *p, const struct fault_call *call, const void *where)
{
	unsigned all = atomic_fetch_add(&p->seen, 1) + 1, every = atomic_load(&p->every);
	unsigned n = atomic_load(&p->apart) ? atomic_fetch_add(&p->each[call->n], 1) + 1 : all;
	// The first of two, not the second: a call that is not made again has failed.
	if (every ? n % every != (every > 1 && atomic_load(&p->apart) ? 1 : 0) : n != atomic_load(&p->at))
		return false;
	atomic_fetch_add(&p->hits, 1);
	if (!everywhere) {
		snprintf(p->name, sizeof p->name, "%s", call->name);
		p->where = (uint64_t)((const char *)where - __executable_start);
	}
	return true;
}

static bool fails(struct fault_plan *p, const struct fault_call *call, unsigned kinds, const void *where)
{
	if (!is_for(p, kinds & ~(unsigned)(FAULT_SHORT_READ | FAULT_SHORT_WRITE)) || !strikes(p, call, where))
		return false;
	errno = atomic_load(&p->err);
	return true;
}

bool fault_hits(const struct fault_call *call, unsigned kinds, const void *where)
{
	return fails(plan, call, kinds, where) || fails(further[0], call, kinds, where);
}

static size_t room(struct fault_plan *p, const struct fault_call *call, unsigned kinds, size_t n, const void *where)
{
	unsigned left = p ? atomic_load(&p->room) : 0;
	if (n < 2 || !is_for(p, kinds & (FAULT_SHORT_READ | FAULT_SHORT_WRITE)) || !strikes(p, call, where))
		return n;
	return !left ? n / 2 : left < n ? left : n;
}

size_t fault_room(const struct fault_call *call, unsigned kinds, size_t n, const void *where)
{
	return room(further[1], call, kinds, room(plan, call, kinds, n, where), where);
}

// The kernel takes a setting whole or not at all.
static bool is_setting(int fd)
{
	struct statfs fs;
	if (fstatfs(fd, &fs) < 0)
		return true;
	return fs.f_type == PROC_SUPER_MAGIC || fs.f_type == SYSFS_MAGIC || fs.f_type == CGROUP2_SUPER_MAGIC ||
	       fs.f_type == CGROUP_SUPER_MAGIC;
}

// A memfd.
static bool is_memory(int fd, const struct stat *st)
{
	struct statfs fs;
	return S_ISREG(st->st_mode) && !st->st_nlink && fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC;
}

unsigned fault_of_fd(int fd, bool writing)
{
	unsigned moves = writing ? FAULT_SHORT_WRITE : FAULT_SHORT_READ;
	struct stat st = {0};
	int type = 0, saved = errno;
	socklen_t n = sizeof type;
	unsigned kinds = 0;
	if (fstat(fd, &st) < 0)
		kinds = 0;
	else if (S_ISREG(st.st_mode) && !is_setting(fd))
		kinds = moves | (writing ? FAULT_DISK_WRITE : FAULT_DISK_READ);
	else if (S_ISREG(st.st_mode))
		kinds = writing ? 0 : moves;
	else if (S_ISFIFO(st.st_mode) || isatty(fd))
		kinds = moves;
	else if (S_ISSOCK(st.st_mode) && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &n) == 0 && type == SOCK_STREAM)
		kinds = moves | (writing ? FAULT_SEND : 0);
	bool memory = is_memory(fd, &st);
	errno = saved;
	if (memory)
		return kinds & ~moves; // nothing interrupts that or cuts it short, and libseccomp does not go on
	if (writing && !(st.st_mode & S_IFMT))
		return 0;               // an eventfd: there is nothing to wait for, and libev does not look
	return kinds | FAULT_INTERRUPT; // records, of inotify or a signalfd, come whole
}
