// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/spawn_clone.h"

#include "daemon/io.h"

#include <errno.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// clone3's argument as of Linux 5.7, all that is needed here.
struct request {
	uint64_t flags;
	uint64_t pidfd;
	uint64_t child_tid;
	uint64_t parent_tid;
	uint64_t exit_signal;
	uint64_t stack;
	uint64_t stack_size;
	uint64_t tls;
	uint64_t set_tid;
	uint64_t set_tid_size;
	uint64_t cgroup;
};

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif
#ifndef CLONE_INTO_CGROUP
#define CLONE_INTO_CGROUP 0x200000000ULL
#endif

// The child comes back from the call on another stack, where no function of C has a frame: it must not leave these lines but by the call of
// FN. The result is the kernel's: a pid or a negative errno.
#if defined(__x86_64__) && !defined(__ILP32__)
static long call(const struct request *request, void (*fn)(void *arg), void *arg)
{
	register void (*to)(void *) __asm__("r8") = fn;
	register void *with __asm__("r9") = arg;
	long result;
	__asm__ volatile("syscall\n\t"
			 "testq %%rax, %%rax\n\t"
			 "jnz 1f\n\t"
			 "xorl %%ebp, %%ebp\n\t"
			 "movq %%r9, %%rdi\n\t"
			 "callq *%%r8\n\t"
			 "hlt\n"
			 "1:"
			 : "=a"(result)
			 : "a"((long)SYS_clone3), "D"(request), "S"(sizeof *request), "r"(to), "r"(with)
			 : "rcx", "r11", "cc", "memory");
	return result;
}
#elif defined(__aarch64__) && !defined(__ILP32__)
static long call(const struct request *request, void (*fn)(void *arg), void *arg)
{
	register long result __asm__("x0") = (long)request;
	register size_t size __asm__("x1") = sizeof *request;
	register void (*to)(void *) __asm__("x2") = fn;
	register void *with __asm__("x3") = arg;
	register long number __asm__("x8") = SYS_clone3;
	__asm__ volatile("svc #0\n\t"
			 "cbnz x0, 1f\n\t"
			 "mov x29, xzr\n\t"
			 "mov x0, x3\n\t"
			 "blr x2\n\t"
			 "brk #0\n"
			 "1:"
			 : "+r"(result)
			 : "r"(size), "r"(to), "r"(with), "r"(number)
			 : "cc", "memory");
	return result;
}
#elif defined(__riscv) && __riscv_xlen == 64
static long call(const struct request *request, void (*fn)(void *arg), void *arg)
{
	register long result __asm__("a0") = (long)request;
	register size_t size __asm__("a1") = sizeof *request;
	register void (*to)(void *) __asm__("a2") = fn;
	register void *with __asm__("a3") = arg;
	register long number __asm__("a7") = SYS_clone3;
	__asm__ volatile("ecall\n\t"
			 "bnez a0, 1f\n\t"
			 "mv s0, zero\n\t"
			 "mv a0, a3\n\t"
			 "jalr a2\n\t"
			 "ebreak\n"
			 "1:"
			 : "+r"(result)
			 : "r"(size), "r"(to), "r"(with), "r"(number)
			 : "memory");
	return result;
}
#else
static long call(const struct request *request, void (*fn)(void *arg), void *arg)
{
	(void)request, (void)fn, (void)arg;
	return -ENOSYS;
}
#endif

// What clone wants, and what the other way to make a child does.
struct entry {
	void (*fn)(void *arg);
	void *arg;
};

static int enter(void *arg)
{
	struct entry *e = arg;
	e->fn(e->arg);
	_exit(127);
}

// Without clone3. The entry is at the end of the child's memory: the caller of this may be gone before the child.
static long call_clone(char *stack, size_t size, void (*fn)(void *arg), void *arg, uint32_t *busy)
{
	size -= (sizeof(struct entry) + 15) / 16 * 16;
	struct entry *e = (struct entry *)(void *)(stack + size);
	*e = (struct entry){fn, arg};
	int pid = clone(enter, stack + size, CLONE_VM | CLONE_CHILD_CLEARTID | SIGCHLD, e, NULL, NULL, busy);
	return pid < 0 ? -errno : pid;
}

// Without memory that two processes have. What the kernel clears at the end of a shared memory it does not clear here: the child's end of a
// pipe tells of it, being closed by whatever program it runs.
static long call_fork(void (*fn)(void *arg), void *arg, int *gate)
{
	int ends[2];
	int rc = io_pipe(ends);
	if (rc < 0)
		return rc;
	pid_t pid = _Fork();
	int err = errno;
	if (pid == 0) {
		fn(arg);
		_exit(127);
	}
	io_close(&ends[1]);
	if (pid < 0)
		io_close(&ends[0]);
	*gate = ends[0];
	return pid < 0 ? -err : pid;
}

// None, forbidden, or (of clone3, of two kinds) too old to know of signals or groups.
static bool is_refused(long result)
{
	return result == -ENOSYS || result == -EPERM || result == -EINVAL || result == -E2BIG;
}

pid_t spawn_clone(void *stack, size_t size, void (*fn)(void *arg), void *arg, int group, bool share,
	struct spawn_needs *needs, uint32_t *busy)
{
	struct request request = {
		.flags = CLONE_VM | CLONE_CHILD_CLEARTID | CLONE_CLEAR_SIGHAND | (group < 0 ? 0 : CLONE_INTO_CGROUP) |
			 (share ? CLONE_FILES : 0),
		.child_tid = (uintptr_t)busy,
		.exit_signal = SIGCHLD,
		.stack = (uintptr_t)stack,
		.stack_size = size,
		.cgroup = group < 0 ? 0 : (uint64_t)group,
	};
	enum spawn_way way = needs->way;
	long pid = -ENOSYS;
	*busy = 1;
	*needs = (struct spawn_needs){.way = way, .gate = -1};
	if (way == SPAWN_CLONE3) {
		needs->part = share;
		pid = call(&request, fn, arg);
		if (is_refused(pid))
			way = SPAWN_CLONE;
	}
	if (way != SPAWN_CLONE3) {
		needs->part = false;
		needs->reset = true;
		needs->join = group >= 0;
	}
	if (way == SPAWN_CLONE) {
		pid = call_clone(stack, size, fn, arg, busy);
		if (is_refused(pid))
			way = SPAWN_FORK;
	}
	if (way == SPAWN_FORK)
		pid = call_fork(fn, arg, &needs->gate);
	if (pid > 0)
		needs->way = way;
	return (pid_t)pid;
}
