// SPDX-License-Identifier: Apache-2.0
// What a process is kept from once it has entered. Each check is a process of its own, whose exit status is the line that was wrong.
#include "daemon/core/confine.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/ioprio.h>
#include <linux/landlock.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KEPT 0x404fbu // of the default
#define OPEN_TREE_ATTR 467
#define EVEN IOPRIO_PRIO_VALUE(IOPRIO_CLASS_BE, 4)

// What must hold in the child; else it ends with its line.
#define HOLD(cond)                       \
	do {                             \
		if (!(cond))             \
			return __LINE__; \
	} while (0)
#define REFUSED(call, err) HOLD((call) == -1 && errno == (err))

struct kit {
	struct confine *confine;
	const struct confine_state *state;
	char dir[64], inside[80], outside[80];
	const char *writable[1];
	char why[256];
};

static int landlock_version(void)
{
	return (int)syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
}

// A directory that may be written, beside one that may not.
static void kit_init(struct kit *k, struct confine_spec *spec)
{
	memset(k, 0, sizeof *k);
	snprintf(k->dir, sizeof k->dir, "/tmp/celld-confine-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(k->dir));
	snprintf(k->inside, sizeof k->inside, "%s/in", k->dir);
	snprintf(k->outside, sizeof k->outside, "%s/out", k->dir);
	ck_assert(mkdir(k->inside, 0755) == 0 && mkdir(k->outside, 0755) == 0);
	k->writable[0] = k->inside;
	if (!spec->writable_count) {
		spec->writable = k->writable;
		spec->writable_count = 1;
	}
	ck_assert_msg(confine_new(&k->confine, spec, k->why, sizeof k->why) == 0, "%s", k->why);
	k->state = confine_state(k->confine);
}

static void kit_release(struct kit *k)
{
	char command[100];
	confine_free(k->confine);
	snprintf(command, sizeof command, "rm -rf %s", k->dir);
	ck_assert_int_eq(system(command), 0);
}

static void in_child(struct kit *k, int (*fn)(const struct kit *k))
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		if (confine_child_caps(k->confine) != 0 || confine_child_enter(k->confine) != 0)
			_exit(1);
		int line = fn(k);
		if (line)
			fprintf(stderr, "check_confine.c:%d: %s\n", line, strerror(errno));
		_exit(line ? 2 : 0);
	}
	ck_assert_int_gt(pid, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0, "status %x", (unsigned)status);
}

static int check_nothing(const struct kit *k)
{
	(void)k;
	return 0;
}

// --- privileges ---

static int check_caps(const struct kit *k)
{
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	HOLD(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
	HOLD(syscall(SYS_capget, &head, data) == 0);
	HOLD((data[0].permitted & ~KEPT) == 0 && (data[0].effective & ~KEPT) == 0 && data[0].inheritable == 0);
	HOLD(data[1].permitted == 0 && data[1].effective == 0 && data[1].inheritable == 0);
	for (int i = 0; i < 64; i++) {
		int has = prctl(PR_CAPBSET_READ, i, 0, 0, 0);
		HOLD(k->state->caps == ~(uint64_t)0 || (has == 1) == ((k->state->caps >> i & 1) == 1));
	}
	if (geteuid() == 0)
		HOLD(data[0].effective & 1u << CAP_CHOWN && k->state->caps == (k->state->caps & KEPT));
	return 0;
}

START_TEST(privileges_are_trimmed)
{
	struct confine_spec spec = {0};
	struct kit k;
	kit_init(&k, &spec);
	ck_assert(k.state->no_new_privs);
	in_child(&k, check_caps);
	kit_release(&k);
}
END_TEST

static int check_none(const struct kit *k)
{
	(void)k;
	struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[2];
	HOLD(syscall(SYS_capget, &head, data) == 0);
	HOLD(data[0].permitted == 0 && data[0].effective == 0);
	return 0;
}

START_TEST(all_privileges_or_none)
{
	const char *keep[] = {"none"};
	struct confine_spec spec = {.keep_caps = keep, .keep_caps_count = 1};
	struct kit k;
	kit_init(&k, &spec);
	in_child(&k, check_none);
	kit_release(&k);
	keep[0] = "all";
	kit_init(&k, &spec);
	ck_assert(k.state->caps == ~(uint64_t)0);
	kit_release(&k);
}
END_TEST

START_TEST(names_of_privileges)
{
	ck_assert_str_eq(confine_cap_name(CAP_CHOWN), "chown");
	ck_assert_str_eq(confine_cap_name(CAP_SYS_ADMIN), "sys_admin");
	ck_assert_str_eq(confine_cap_name(CAP_AUDIT_READ), "audit_read");
	ck_assert_str_eq(confine_cap_name(CAP_LAST_CAP), "checkpoint_restore");
	ck_assert_ptr_null(confine_cap_name(CAP_LAST_CAP + 1));
	ck_assert_ptr_null(confine_cap_name(-1));
}
END_TEST

// --- trees ---

static int make(const char *dir, const char *name)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	if (fd >= 0)
		close(fd);
	return fd < 0 ? -1 : 0;
}

static int check_trees(const struct kit *k)
{
	char a[128], b[128], kept[128];
	HOLD(make(k->inside, "new") == 0);
	REFUSED(make(k->outside, "new"), EACCES);
	snprintf(kept, sizeof kept, "%s/kept", k->outside);
	int fd = open(kept, O_RDONLY | O_CLOEXEC);
	HOLD(fd >= 0);
	REFUSED(open(kept, O_WRONLY | O_CLOEXEC), EACCES);
	REFUSED(unlink(kept), EACCES);
	if (k->state->landlock >= 3)
		REFUSED(truncate(kept, 0), EACCES);
	snprintf(a, sizeof a, "%s/one", k->inside);
	snprintf(b, sizeof b, "%s/two", k->inside);
	HOLD(mkdir(a, 0755) == 0 && mkdir(b, 0755) == 0 && make(a, "f") == 0);
	snprintf(a, sizeof a, "%s/one/f", k->inside);
	snprintf(b, sizeof b, "%s/two/f", k->inside);
	HOLD(rename(a, b) == 0 || k->state->landlock < 2);
	HOLD(truncate(b, 5) == 0 && unlink(b) == 0);
	REFUSED(rename(kept, a), EACCES);
	HOLD((fd = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0 && write(fd, "x", 1) == 1);
	HOLD((fd = open("/dev/ptmx", O_RDWR | O_CLOEXEC | O_NOCTTY)) >= 0 && ioctl(fd, TIOCGPTN, &(int){0}) == 0);
	return 0;
}

START_TEST(only_the_trees_are_written)
{
	struct confine_spec spec = {0};
	struct kit k;
	if (landlock_version() < 1) {
		fprintf(stderr, "confine: no Landlock here, trees are left out\n");
		return;
	}
	kit_init(&k, &spec);
	ck_assert_int_eq(k.state->landlock, landlock_version());
	ck_assert_int_eq(make(k.outside, "kept"), 0);
	ck_assert_str_eq(k.state->writable[0], k.inside);
	ck_assert_str_eq(k.state->readable[0], "/");
	in_child(&k, check_trees);
	kit_release(&k);
}
END_TEST

static int check_reading(const struct kit *k)
{
	char path[128];
	snprintf(path, sizeof path, "%s/kept", k->outside);
	REFUSED(open(path, O_RDONLY | O_CLOEXEC), EACCES);
	HOLD(open("/usr", O_RDONLY | O_DIRECTORY | O_CLOEXEC) >= 0);
	return 0;
}

START_TEST(only_the_trees_are_read)
{
	const char *readable[] = {"/usr"};
	struct confine_spec spec = {.readable = readable, .readable_count = 1};
	struct kit k;
	if (landlock_version() < 1)
		return;
	kit_init(&k, &spec);
	ck_assert_int_eq(make(k.outside, "kept"), 0);
	in_child(&k, check_reading);
	kit_release(&k);
}
END_TEST

// --- calls ---

static int enter_namespaces(void *arg)
{
	(void)arg;
	return 0;
}

static int check_calls(const struct kit *k)
{
	static char stack[65536] __attribute__((aligned(16)));
	(void)k;
	REFUSED(mount("none", "/tmp", "tmpfs", 0, NULL), EPERM);
	REFUSED(umount2("/nothing", 0), EPERM);
	REFUSED(unshare(CLONE_NEWUSER), EPERM);
	REFUSED(unshare(CLONE_NEWNET | CLONE_FS), EPERM);
	REFUSED(unshare(0x80), EPERM); // a time namespace
	HOLD(unshare(CLONE_FILES) == 0);
	REFUSED(setns(0, 0), EPERM);
	REFUSED(clone(enter_namespaces, stack + sizeof stack, CLONE_NEWUSER | SIGCHLD, NULL), EPERM);
	REFUSED(syscall(SYS_clone3, NULL, 0), ENOSYS);
	REFUSED(syscall(SYS_reboot, 0, 0, 0, NULL), EPERM);
	REFUSED(syscall(SYS_bpf, 0, NULL, 0), EPERM);
	REFUSED(syscall(SYS_keyctl, 0, 0, 0, 0, 0), EPERM);
	REFUSED(syscall(SYS_process_vm_readv, getpid(), NULL, 0, NULL, 0, 0), EPERM);
	REFUSED(syscall(SYS_io_uring_setup, 1, NULL), EPERM);
	REFUSED(ioctl(0, TIOCSTI, "x"), EPERM);
	REFUSED(fcntl(0, F_SETLEASE, F_RDLCK), EPERM);
	HOLD(fcntl(0, F_GETFD) >= 0);
	REFUSED(syscall(OPEN_TREE_ATTR, -1, "", 0, NULL, 0), EPERM);
	// The kernel looks at 32 bits of it.
	REFUSED(syscall(SYS_ioctl, 0, 0x700000000 | TIOCSTI, "x"), EPERM);
	REFUSED(syscall(SYS_clone, 0x100000000 | CLONE_NEWUTS | SIGCHLD, 0, 0, 0, 0), EPERM);
	pid_t pid = fork();
	if (pid == 0)
		_exit(0);
	HOLD(pid > 0 && waitpid(pid, NULL, 0) == pid);
	return 0;
}

static int check_aimed_calls(const struct kit *k)
{
	(void)k;
	const pid_t celld = getppid();
	const struct sched_param none = {0};
	struct rlimit limit;
	cpu_set_t cpus;
	HOLD(syscall(SYS_prlimit64, celld, RLIMIT_CORE, NULL, &limit) == 0);
	REFUSED(syscall(SYS_prlimit64, celld, RLIMIT_CORE, &limit, NULL), EPERM);
	REFUSED(syscall(SYS_prlimit64, 1, RLIMIT_CORE, &limit, NULL), EPERM);
	HOLD(syscall(SYS_prlimit64, 0, RLIMIT_CORE, &limit, NULL) == 0);
	HOLD(sched_getaffinity(0, sizeof cpus, &cpus) == 0);
	REFUSED(sched_setaffinity(celld, sizeof cpus, &cpus), EPERM);
	REFUSED(sched_setscheduler(celld, SCHED_OTHER, &none), EPERM);
	REFUSED(sched_setparam(celld, &none), EPERM);
	REFUSED(syscall(SYS_sched_setattr, celld, NULL, 0), EPERM);
	REFUSED(setpriority(PRIO_PROCESS, (id_t)celld, 0), EPERM);
	REFUSED(setpriority(PRIO_USER, 0, 0), EPERM);
	REFUSED(syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, celld, EVEN), EPERM);
	REFUSED(syscall(SYS_ioprio_set, IOPRIO_WHO_USER, 0, EVEN), EPERM);
	// A thread is a number too, to the C library.
	for (pid_t own = 0; own <= getpid(); own += getpid()) {
		HOLD(sched_setaffinity(own, sizeof cpus, &cpus) == 0);
		HOLD(sched_setscheduler(own, SCHED_OTHER, &none) == 0);
		HOLD(setpriority(PRIO_PROCESS, (id_t)own, getpriority(PRIO_PROCESS, 0)) == 0);
		HOLD(syscall(SYS_ioprio_set, IOPRIO_WHO_PROCESS, own, EVEN) == 0);
	}
	return 0;
}

#if defined(__x86_64__)
static long call32(long number, long a)
{
	long result;
	__asm__ volatile("int $0x80"
			 : "=a"(result)
			 : "a"(number), "b"(a), "c"(0), "d"(0)
			 : "r8", "r9", "r10", "r11", "memory");
	return result;
}

// By the machine's other ways into the kernel.
static int check_foreign_calls(const struct kit *k)
{
	(void)k;
	const long x32 = 0x40000000;
	REFUSED(syscall(x32 | SYS_mount, NULL, NULL, NULL, 0, NULL), ENOSYS);
	REFUSED(syscall(x32 | 528, 0, 0, 0, 0), ENOSYS); // kexec_load
	REFUSED(syscall(x32 | SYS_unshare, CLONE_NEWUSER), ENOSYS);
	REFUSED(syscall(x32 | SYS_getpid), ENOSYS);
	if (call32(20, 0) != getpid()) // this kernel runs no such programs
		return 0;
	HOLD(call32(21, 0) == -EPERM);              // mount
	HOLD(call32(22, 0) == -EPERM);              // umount
	HOLD(call32(310, CLONE_NEWUSER) == -EPERM); // unshare
	HOLD(call32(120, CLONE_NEWUSER) == -EPERM); // clone
	HOLD(call32(435, 0) == -ENOSYS);            // clone3
	HOLD(call32(88, 0) == -EPERM);              // reboot
	HOLD(call32(25, 0) == -EPERM);              // stime
	HOLD(call32(404, 0) == -EPERM);             // clock_settime64
	HOLD(call32(OPEN_TREE_ATTR, 0) == -EPERM);
	return 0;
}
#endif

START_TEST(calls_are_refused)
{
	struct confine_spec spec = {0};
	struct kit k;
	kit_init(&k, &spec);
	if (k.state->seccomp) {
		in_child(&k, check_calls);
		in_child(&k, check_aimed_calls);
#if defined(__x86_64__)
		in_child(&k, check_foreign_calls);
#endif
	} else {
		fprintf(stderr, "confine: no seccomp here, calls are left out\n");
	}
	kit_release(&k);
}
END_TEST

static int check_allowed(const struct kit *k)
{
	(void)k;
	REFUSED(syscall(SYS_keyctl, 12345, 0, 0, 0, 0), EOPNOTSUPP);
	REFUSED(syscall(SYS_bpf, 0, NULL, 0), EPERM);
	return 0;
}

START_TEST(calls_that_are_allowed)
{
	const char *allow[] = {"keyctl", "mount", "open_tree_attr"};
	struct confine_spec spec = {.allow_calls = allow, .allow_calls_count = 3};
	struct kit k;
	bool refused = false;
	kit_init(&k, &spec);
	for (size_t i = 0; k.state->denied[i]; i++) {
		ck_assert_str_ne(k.state->denied[i], "keyctl");
		ck_assert_str_ne(k.state->denied[i], "mount");
		ck_assert_str_ne(k.state->denied[i], "open_tree_attr");
		refused |= strcmp(k.state->denied[i], "bpf") == 0;
	}
	ck_assert(refused == k.state->seccomp);
	if (k.state->seccomp && syscall(SYS_keyctl, 12345, 0, 0, 0, 0) == -1 && errno == EOPNOTSUPP)
		in_child(&k, check_allowed);
	kit_release(&k);
}
END_TEST

// --- what is wrong ---

START_TEST(names_that_are_none)
{
	static const char *const cap[] = {"chown", "fly"}, *const call[] = {"keyctl", "no_such_call"};
	const struct confine_spec caps = {.keep_caps = cap, .keep_caps_count = 2};
	const struct confine_spec calls = {.allow_calls = call, .allow_calls_count = 2};
	struct confine *c;
	char why[64];
	ck_assert_int_eq(confine_new(&c, &caps, why, sizeof why), -EINVAL);
	ck_assert_str_eq(why, "fly: no such capability");
	ck_assert_ptr_null(c);
	ck_assert_int_eq(confine_new(&c, &calls, why, sizeof why), -EINVAL);
	ck_assert_str_eq(why, "no_such_call: no such system call");
	ck_assert_ptr_null(c);
	confine_free(NULL);
	ck_assert_int_eq(confine_child_caps(NULL), 0);
	ck_assert_int_eq(confine_child_enter(NULL), 0);
}
END_TEST

START_TEST(a_tree_that_is_missing)
{
	static const char *const tree[] = {"/no/such/tree"};
	struct confine_spec spec = {.writable = tree, .writable_count = 1};
	struct confine *c;
	char why[128];
	if (landlock_version() < 3)
		return;
	ck_assert_int_eq(confine_new(&c, &spec, why, sizeof why), 0);
	ck_assert_str_eq(confine_state(c)->missing[0], "/no/such/tree: No such file or directory");
	confine_free(c);
	spec.require = true;
	ck_assert_int_eq(confine_new(&c, &spec, why, sizeof why), -EOPNOTSUPP);
	ck_assert_str_eq(why, "/no/such/tree: No such file or directory");
}
END_TEST

// As in a container whose filter is older than its kernel: all of it is there, and none to be had.
START_TEST(what_is_there_but_refused)
{
	static const struct {
		int call;
		const char *name;
	} all[] = {{SCMP_SYS(capset), "capabilities: "}, {SCMP_SYS(landlock_restrict_self), "landlock: "},
		{SCMP_SYS(seccomp), "seccomp: "}};
	struct confine_spec spec = {0};
	struct kit k;
	struct confine *c;
	char why[128];
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	kit_init(&k, &spec);
	bool has = k.state->landlock >= 3 && k.state->seccomp;
	kit_release(&k);
	ck_assert_ptr_nonnull(ctx);
	int rc = _i == 2 ? seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), all[_i].call, 1, SCMP_CMP(2, SCMP_CMP_NE, 0, 0))
			 : seccomp_rule_add(ctx, SCMP_ACT_ERRNO(EPERM), all[_i].call, 0);
	ck_assert_int_eq(rc, 0);
	if (!has || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || seccomp_load(ctx) < 0) {
		fprintf(stderr, "confine: nothing to refuse here\n");
		seccomp_release(ctx);
		return;
	}
	seccomp_release(ctx);
	kit_init(&k, &(struct confine_spec){0});
	ck_assert_msg(k.state->missing[0] && strncmp(k.state->missing[0], all[_i].name, strlen(all[_i].name)) == 0,
		"%s", k.state->missing[0]);
	ck_assert_ptr_null(k.state->missing[1]);
	ck_assert((k.state->caps == ~(uint64_t)0) == (_i == 0) || geteuid() != 0);
	ck_assert((k.state->landlock == 0) == (_i == 1) && (!k.state->writable[0]) == (_i == 1));
	ck_assert(k.state->seccomp == (_i != 2) && (!k.state->denied[0]) == (_i == 2));
	in_child(&k, check_nothing); // and it can be entered
	kit_release(&k);
	spec = (struct confine_spec){.require = true};
	ck_assert_int_eq(confine_new(&c, &spec, why, sizeof why), -EOPNOTSUPP);
	ck_assert_msg(strncmp(why, all[_i].name, strlen(all[_i].name)) == 0, "%s", why);
	ck_assert_ptr_null(c);
}
END_TEST

// Up to libseccomp, which does not bear it (confine_seccomp.c): a name that is none is found last.
START_TEST(no_memory)
{
	static const char *const keep[] = {"none"}, *const call[] = {"no_such_call"}, *const tree[] = {"/no/such/tree"};
	const struct confine_spec spec = {.keep_caps = keep,
		.keep_caps_count = 1,
		.allow_calls = call,
		.allow_calls_count = 1,
		.readable = tree,
		.readable_count = 1,
		.workspace = "/tmp"};
	struct confine *c;
	char why[64];
	long n = 0;
	for (bool failed = true; failed; n++) {
		oom_fail_at(n);
		int rc = confine_new(&c, &spec, why, sizeof why);
		size_t live = oom_live();
		failed = oom_failed();
		oom_off();
		ck_assert_msg(rc == (failed ? -ENOMEM : -EINVAL), "allocation %ld failing: %d", n, rc);
		ck_assert_msg(live == 0, "allocation %ld failing: %zu blocks are left", n, live);
		ck_assert_str_ne(why, "");
	}
	ck_assert_int_gt(n, 5);
}
END_TEST

START_TEST(what_is_hidden)
{
	char path[64];
	ck_assert_int_eq(confine_hide_self(), 0);
	ck_assert_int_eq(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0), 0);
	pid_t parent = getpid(), pid = fork();
	if (pid == 0) {
		if (geteuid() == 0 && (setgid(65534) < 0 || setuid(65534) < 0))
			_exit(1);
		static const char *const files[] = {"mem", "environ", "fd/0", "maps", "exe", "cwd/x"};
		for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
			snprintf(path, sizeof path, "/proc/%d/%s", (int)parent, files[i]);
			if (open(path, O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES)
				_exit(2);
		}
		_exit(0);
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

Suite *confine_suite(void)
{
	Suite *s = suite_create("confine");
	TCase *t = tcase_create("confine");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, privileges_are_trimmed);
	tcase_add_test(t, all_privileges_or_none);
	tcase_add_test(t, names_of_privileges);
	tcase_add_test(t, only_the_trees_are_written);
	tcase_add_test(t, only_the_trees_are_read);
	tcase_add_test(t, calls_are_refused);
	tcase_add_test(t, calls_that_are_allowed);
	tcase_add_test(t, names_that_are_none);
	tcase_add_test(t, a_tree_that_is_missing);
	tcase_add_loop_test(t, what_is_there_but_refused, 0, 3);
	tcase_add_test(t, no_memory);
	tcase_add_test(t, what_is_hidden);
	return s;
}
