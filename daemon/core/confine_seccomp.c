// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/confine_priv.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/ioprio.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <seccomp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// Linux's own arguments are 32 bits wide where ours are: what is above is for nobody to compare.
#define LOW_BITS 0xffffffffu
// The order of clone's arguments.
#if defined(__s390__)
#define CLONE_FLAGS 1
#else
#define CLONE_FLAGS 0
#endif

// Refused whatever they are asked for: they reach the kernel, the machine, other namespaces or other processes' memory.
static const char *const refused[] = {"kexec_load", "kexec_file_load", "init_module", "finit_module", "create_module",
	"delete_module", "reboot", "swapon", "swapoff", "mount", "umount", "umount2", "pivot_root", "move_mount",
	"open_tree", "fsopen", "fsconfig", "fsmount", "fspick", "mount_setattr", "bpf", "perf_event_open",
	"userfaultfd", "keyctl", "add_key", "request_key", "acct", "stime", "settimeofday", "clock_settime",
	"clock_settime64", "clock_adjtime", "clock_adjtime64", "adjtimex", "iopl", "ioperm", "setns",
	"process_vm_readv", "process_vm_writev", "quotactl", "quotactl_fd", "syslog", "vhangup", "open_by_handle_at",
	"io_uring_setup", "io_uring_enter", "io_uring_register", "lookup_dcookie", "nfsservctl"};

// Refused if ARGUMENT has all of BITS, of those in MASK (0: where it has any of BITS).
static const struct partly {
	const char *name;
	unsigned argument;
	uint64_t mask, bits;
	const char *text;
} partly[] = {
	// What of these flags clone can take; 0x80 (CLONE_NEWTIME) is part of the signal there.
	{"clone", CLONE_FLAGS, 0,
		CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
			CLONE_NEWNET,
		"clone: new namespaces"},
	{"unshare", 0, 0,
		CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER | CLONE_NEWPID |
			CLONE_NEWNET | CLONE_NEWTIME,
		"unshare: new namespaces"},
	{"ioctl", 1, LOW_BITS, TIOCSTI, "ioctl: TIOCSTI"},
	{"ioctl", 1, LOW_BITS, TIOCLINUX, "ioctl: TIOCLINUX"},
	// It makes whoever opens or runs the file wait, celld too.
	{"fcntl", 1, LOW_BITS, F_SETLEASE, "fcntl: F_SETLEASE"},
	{"fcntl64", 1, LOW_BITS, F_SETLEASE, "fcntl64: F_SETLEASE"},
};

// Refused for celld itself only: threads and children of a command are numbers as well.
static const struct aimed {
	const char *name;
	unsigned argument;  // which of them is the process
	uint64_t everybody; // what the first one is that means all processes of a user; 0: nothing
} aimed[] = {
	{"sched_setaffinity", 0, 0},
	{"sched_setscheduler", 0, 0},
	{"sched_setparam", 0, 0},
	{"sched_setattr", 0, 0},
	{"setpriority", 1, PRIO_USER},
	{"ioprio_set", 1, IOPRIO_WHO_USER},
};

// Refused too, but newer than libseccomp may be: the numbers are the same on every machine that add_architectures has.
static const struct late {
	const char *name;
	int number;
} late[] = {{"open_tree_attr", 467}};
#define LATE_MAX (sizeof late / sizeof *late)

static bool is_allowed(const struct confine_spec *spec, const char *name)
{
	for (size_t i = 0; i < spec->allow_calls_count; i++) {
		if (strcmp(spec->allow_calls[i], name) == 0)
			return true;
	}
	return false;
}

// The number that NAME has somewhere, or __NR_SCMP_ERROR. One that this machine has not is no harm: others of its architectures may.
static int number_of(const char *name)
{
	for (size_t i = 0; i < LATE_MAX; i++) {
		if (strcmp(late[i].name, name) == 0)
			return late[i].number;
	}
	return seccomp_syscall_resolve_name(name);
}

static int add_partly(scmp_filter_ctx ctx, const struct partly *p)
{
	int number = number_of(p->name);
	if (p->mask)
		return seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), number, 1,
			SCMP_CMP(p->argument, SCMP_CMP_MASKED_EQ, p->mask, p->bits));
	int rc = 0;
	for (uint64_t bit = 1; bit <= p->bits && rc == 0; bit <<= 1) {
		if (p->bits & bit)
			rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), number, 1,
				SCMP_CMP(p->argument, SCMP_CMP_MASKED_EQ, bit, bit));
	}
	return rc;
}

// The init part, which the daemon is made from again, or what there is of celld without one; by a later binary it is the parent.
static int add_aimed(scmp_filter_ctx ctx, const struct aimed *a)
{
	const pid_t own[] = {getpid(), getppid(), getpgrp()};
	const uint32_t action = SCMP_ACT_ERRNO(EPERM);
	int number = number_of(a->name), rc = 0;
	for (size_t i = 0; i < sizeof own / sizeof *own && rc == 0; i++) {
		if (own[i] > 0) // of another pid namespace: 0, which here is the caller
			rc = seccomp_rule_add(ctx, action, number, 1,
				SCMP_CMP(a->argument, SCMP_CMP_MASKED_EQ, LOW_BITS, (scmp_datum_t)own[i]));
		if (rc == -EEXIST) // two of them are one
			rc = 0;
	}
	if (rc == 0 && a->everybody)
		rc = seccomp_rule_add(ctx, action, number, 1, SCMP_CMP(0, SCMP_CMP_MASKED_EQ, LOW_BITS, a->everybody));
	return rc;
}

static int add_all_aimed(scmp_filter_ctx ctx, struct confine_list *denied, const struct confine_spec *spec)
{
	int rc = 0;
	for (size_t i = 0; i < sizeof aimed / sizeof *aimed && rc == 0; i++) {
		if (is_allowed(spec, aimed[i].name))
			continue;
		rc = add_aimed(ctx, &aimed[i]);
		if (rc == 0 && denied)
			rc = confine_add(denied, "%s: celld itself", aimed[i].name);
	}
	if (rc < 0 || is_allowed(spec, "prlimit64"))
		return rc;
	// Nobody's limits but the caller's own: root could take from celld what it needs, and its next start's with it. They may be read.
	rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), number_of("prlimit64"), 2, SCMP_CMP(0, SCMP_CMP_NE, 0, 0),
		SCMP_CMP(2, SCMP_CMP_NE, 0, 0));
	return rc == 0 && denied ? confine_add(denied, "prlimit64: another process") : rc;
}

// What is refused is noted in DENIED, unless that is NULL.
static int add_rules(scmp_filter_ctx ctx, struct confine_list *denied, const struct confine_spec *spec)
{
	int rc = 0;
	for (size_t i = 0; i < sizeof refused / sizeof *refused && rc == 0; i++) {
		int number = number_of(refused[i]);
		if (number == __NR_SCMP_ERROR || is_allowed(spec, refused[i]))
			continue;
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), number, 0);
		if (rc == 0 && denied)
			rc = confine_add(denied, "%s", refused[i]);
	}
	for (size_t i = 0; i < sizeof partly / sizeof *partly && rc == 0; i++) {
		if (is_allowed(spec, partly[i].name))
			continue;
		rc = add_partly(ctx, &partly[i]);
		if (rc == 0 && denied)
			rc = confine_add(denied, "%s", partly[i].text);
	}
	if (rc == 0)
		rc = add_all_aimed(ctx, denied, spec);
	// Its flags are in memory, where a filter cannot look: as if it did not exist, so that C libraries use clone.
	if (rc == 0 && !is_allowed(spec, "clone3") && number_of("clone3") != __NR_SCMP_ERROR)
		rc = seccomp_rule_add(ctx, SCMP_ACT_ERRNO(ENOSYS), number_of("clone3"), 0);
	return rc;
}

// Programs of the machine's other architectures get the same; calls in any other way, x32's on an x86_64 too, do not exist.
static int add_architectures(scmp_filter_ctx ctx)
{
	static const struct {
		uint32_t native, other;
	} pairs[] = {{SCMP_ARCH_X86_64, SCMP_ARCH_X86}, {SCMP_ARCH_AARCH64, SCMP_ARCH_ARM},
		{SCMP_ARCH_S390X, SCMP_ARCH_S390}, {SCMP_ARCH_PPC64, SCMP_ARCH_PPC}};
	int rc = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_ERRNO(ENOSYS));
	// A tree: the kernel tries the filter with every call that there is whenever a child takes it.
	if (rc == 0)
		rc = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
	for (size_t i = 0; i < sizeof pairs / sizeof *pairs && rc == 0; i++) {
		if (seccomp_arch_native() == pairs[i].native)
			rc = seccomp_arch_add(ctx, pairs[i].other);
	}
	return rc;
}

// libseccomp writes its program to descriptors only.
static int export(scmp_filter_ctx ctx, struct sock_fprog *out)
{
	struct stat st;
	int fd = memfd_create("filter", MFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	int rc = seccomp_export_bpf(ctx, fd);
	if (rc == 0 && fstat(fd, &st) < 0)
		rc = -errno;
	if (rc == 0) {
		size_t size = (size_t)st.st_size;
		out->filter = malloc(size);
		if (!out->filter)
			rc = -ENOMEM;
		else if (pread(fd, out->filter, size, 0) != st.st_size)
			rc = -EIO;
		else
			out->len = (unsigned short)(size / sizeof *out->filter);
	}
	close(fd);
	return rc;
}

// Puts what libseccomp may not know before its program.
static int put_late(struct confine_list *denied, const struct confine_spec *spec, struct sock_fprog *out)
{
	struct sock_filter head[1 + 2 * LATE_MAX] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	size_t n = 1;
	int rc = 0;
	for (size_t i = 0; i < LATE_MAX && rc == 0; i++) {
		if (is_allowed(spec, late[i].name))
			continue;
		head[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)late[i].number, 0, 1);
		head[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
		if (denied)
			rc = confine_add(denied, "%s", late[i].name);
	}
	struct sock_filter *all = rc == 0 ? realloc(out->filter, (out->len + n) * sizeof *all) : NULL;
	if (!all)
		return -ENOMEM;
	memmove(all + n, all, out->len * sizeof *all);
	memcpy(all, head, n * sizeof *all);
	out->filter = all;
	out->len = (unsigned short)(out->len + n);
	return 0;
}

static int build(struct confine_list *denied, const struct confine_spec *spec, struct sock_fprog *out)
{
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	if (!ctx)
		return -ENOMEM;
	int rc = add_architectures(ctx);
	if (rc == 0)
		rc = add_rules(ctx, denied, spec);
	if (rc == 0)
		rc = export(ctx, out);
	if (rc == 0)
		rc = put_late(denied, spec, out);
	seccomp_release(ctx);
	return rc;
}

// Twice, and both have to be the same: without memory for all of it libseccomp (2.5) may write a part of the program and call that a
// success. Or it may crash, but at a start that does no harm.
static int build_surely(struct confine *c, const struct confine_spec *spec)
{
	struct sock_fprog again = {0};
	int rc = build(&c->denied, spec, &c->filter);
	if (rc == 0)
		rc = build(NULL, spec, &again);
	if (rc == 0 && (again.len != c->filter.len ||
			       memcmp(again.filter, c->filter.filter, again.len * sizeof *again.filter) != 0))
		rc = -ENOMEM;
	free(again.filter);
	return rc;
}

int confine_seccomp_init(struct confine *c, const struct confine_spec *spec, char *why, size_t n)
{
	for (size_t i = 0; i < spec->allow_calls_count; i++) {
		if (number_of(spec->allow_calls[i]) == __NR_SCMP_ERROR)
			return confine_why(why, n, -EINVAL, "%s: no such system call", spec->allow_calls[i]);
	}
	// Where there are filters, it is the missing one that is complained of.
	if (syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, NULL) == 0 || errno != EFAULT)
		return confine_add(&c->missing, "seccomp: not to be had from this kernel");
	int rc = build_surely(c, spec);
	if (rc < 0)
		return confine_why(why, n, rc, "seccomp: %s", strerror(-rc));
	c->state.seccomp = true;
	return 0;
}
