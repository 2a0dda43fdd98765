// SPDX-License-Identifier: Apache-2.0
// Large removals, which go on in a child process. Where there is one CPU, or the kernel refuses, they go on here: each test says which it wants.
#include "asidekit.h"
#include "daemon/core/files.h"
#include "daemon/core/walk.h"
#include "daemon/io.h"
#include "suites.h"
#include "treekit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define DIRS 50
#define FILES 100
#define ENTRIES ((uint64_t)DIRS * (FILES + 1) + 1) // and the root

static void make_tree(const char *top)
{
	char name[64];
	tk_mkdir(top);
	for (int i = 0; i < DIRS * FILES; i++) {
		(void)snprintf(name, sizeof name, "%s/d%d", top, i / FILES);
		if (i % FILES == 0)
			tk_mkdir(name);
		(void)snprintf(name, sizeof name, "%s/d%d/file-%06d", top, i / FILES, i);
		int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		ck_assert_int_ge(fd, 0);
		close(fd);
	}
}

static pid_t pid_of(int fd)
{
	char path[64], text[1024];
	(void)snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	ck_assert_int_gt(io_read_file(path, text, sizeof text), 0);
	const char *at = strstr(text, "Pid:");
	ck_assert_ptr_nonnull(at);
	return atoi(at + 4);
}

struct result {
	int err;
	uint64_t count;
	char where[256];
	bool aside;
};

static struct result remove_by(const char *path, bool may_be_aside)
{
	struct result s = {.err = 0};
	const char *where;
	struct walk_remove *r = ak_removal_of(path, 0);
	int fd = may_be_aside ? ak_step_aside(r) : -1;
	s.aside = fd >= 0;
	if (s.aside)
		ak_await_end(fd);
	ck_assert(!walk_remove_step(r, may_be_aside ? 0 : INT64_MAX));
	ck_assert_int_eq(walk_remove_fd(r), -1);
	s.count = walk_remove_count(r);
	s.err = walk_remove_error(r, &where);
	(void)snprintf(s.where, sizeof s.where, "%s", where);
	walk_remove_free(r);
	return s;
}

START_TEST(child_tells_something_else)
{
	struct tree t;
	tk_init(&t, true);
	if (ak_able()) {
		struct result s[2];
		sigset_t child, pending;
		int fds = tk_fds();
		sigemptyset(&child);
		sigaddset(&child, SIGCHLD);
		sigprocmask(SIG_BLOCK, &child, NULL);
		for (int aside = 0; aside < 2; aside++) {
			make_tree("top");
			if (t.mounts) { // what cannot be removed, in the middle
				tk_mkdir("top/d25/m");
				tk_mount("top/d25/m", 1 << 20);
			}
			s[aside] = remove_by(tk_path(&t, "top"), aside);
			ck_assert_int_eq(s[aside].aside, aside);
			ck_assert_int_eq(s[aside].err, t.mounts ? -EBUSY : 0);
			ck_assert_uint_eq(s[aside].count, t.mounts ? ENTRIES - 2 : ENTRIES);
			if (t.mounts) {
				ck_assert_str_eq(s[aside].where, tk_path(&t, "top/d25/m"));
				ck_assert_int_eq(umount2("top/d25/m", 0), 0);
				struct result rest = remove_by(tk_path(&t, "top"), false);
				ck_assert_uint_eq(rest.count, 3);
			}
			ck_assert(!tk_exists("top"));
		}
		ck_assert_int_eq(sigpending(&pending), 0);
		ck_assert_int_eq(sigismember(&pending, SIGCHLD), 0); // whoever waits for commands is not woken
		ck_assert_int_eq(tk_fds(), fds);
		ak_assert_childless();
	}
	tk_release(&t);
}
END_TEST

START_TEST(kept_root_is_removed_aside)
{
	struct tree t;
	tk_init(&t, false);
	if (ak_able()) {
		make_tree("top");
		ck_assert_int_eq(symlink("top", "link"), 0);
		struct walk_remove *r = ak_removal_of(tk_path(&t, "link"), WALK_KEEP_ROOT);
		int fd = ak_step_aside(r);
		ck_assert_int_ge(fd, 0);
		ak_await_end(fd);
		ck_assert(!walk_remove_step(r, 0));
		ck_assert_int_eq(walk_remove_error(r, NULL), 0);
		ck_assert_uint_eq(walk_remove_count(r), ENTRIES - 1);
		ck_assert_int_eq(tk_count("top"), 0);
		walk_remove_free(r);
		ak_assert_childless();
	}
	tk_release(&t);
}
END_TEST

// Whoever kills it, wherever it is: the rest is done here.
START_TEST(killed_child_leaves_the_rest)
{
	struct tree t;
	tk_init(&t, false);
	if (ak_able()) {
		make_tree("top");
		int fds = tk_fds();
		struct walk_remove *r = ak_removal_of(tk_path(&t, "top"), 0);
		int fd = ak_step_aside(r);
		ck_assert_int_ge(fd, 0);
		ak_send_to(fd, SIGSTOP);
		ck_assert(walk_remove_step(r, 0)); // it is waited for
		ck_assert_int_eq(walk_remove_fd(r), fd);
		ak_send_to(fd, SIGKILL);
		ak_await_end(fd);
		while (walk_remove_step(r, 0))
			ck_assert_int_eq(walk_remove_fd(r), -1); // and no other one is tried
		ck_assert_int_eq(walk_remove_error(r, NULL), 0);
		// One may have been removed and not counted, and two by the process that helps it and dies after it.
		ck_assert_uint_le(walk_remove_count(r), ENTRIES);
		ck_assert_uint_ge(walk_remove_count(r), ENTRIES - 3);
		ck_assert(!tk_exists("top"));
		walk_remove_free(r);
		ck_assert_int_eq(tk_fds(), fds);
		ak_assert_childless();
	}
	tk_release(&t);
}
END_TEST

// A stopped one, too.
START_TEST(child_outlives_its_removal)
{
	struct tree t;
	tk_init(&t, false);
	if (ak_able()) {
		make_tree("top");
		int fds = tk_fds();
		struct walk_remove *r = ak_removal_of(tk_path(&t, "top"), 0);
		int fd = ak_step_aside(r);
		ck_assert_int_ge(fd, 0);
		ak_send_to(fd, SIGSTOP);
		pid_t pid = pid_of(fd);
		walk_remove_free(r);
		ck_assert_int_eq(kill(pid, 0), -1);
		ak_assert_childless();
		ck_assert_int_eq(tk_fds(), fds);
		// Or who waits for nothing ends it here.
		r = ak_removal_of(tk_path(&t, "top"), 0);
		fd = ak_step_aside(r);
		if (fd >= 0)
			ak_send_to(fd, SIGSTOP);
		ck_assert(!walk_remove_step(r, INT64_MAX));
		ck_assert_int_eq(walk_remove_error(r, NULL), 0);
		ck_assert(!tk_exists("top"));
		walk_remove_free(r);
		ak_assert_childless();
		ck_assert_int_eq(tk_fds(), fds);
	}
	tk_release(&t);
}
END_TEST

static int others_fds(pid_t pid)
{
	char path[64];
	int n = 0;
	(void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
	DIR *d = opendir(path);
	ck_assert_ptr_nonnull(d);
	for (struct dirent *e; (e = readdir(d));)
		n += atoi(e->d_name) > 2;
	closedir(d);
	return n;
}

// What waits for commands does not see it, and nobody waits for the end of a descriptor because of it.
START_TEST(child_is_seen_by_others)
{
	struct tree t;
	tk_init(&t, false);
	if (ak_able()) {
		int ends[2];
		char c;
		siginfo_t si;
		make_tree("top");
		ck_assert_int_eq(io_pipe(ends), 0);
		struct walk_remove *r = ak_removal_of(tk_path(&t, "top"), 0);
		int fd = ak_step_aside(r);
		ck_assert_int_ge(fd, 0);
		pid_t pid = pid_of(fd);
		close(ends[1]);
		ck_assert_int_eq(io_read(ends[0], &c, 1), 0);
		ak_send_to(fd, SIGSTOP);
		ck_assert_int_le(others_fds(pid), WALK_FDS + 1);
		ck_assert_int_eq(waitid(P_ALL, 0, &si, WEXITED | WSTOPPED | WNOHANG | WNOWAIT), -1);
		ck_assert_int_eq(errno, ECHILD);
		ak_send_to(fd, SIGTERM); // of which it takes no notice
		ak_send_to(fd, SIGCONT);
		ak_await_end(fd);
		ck_assert_int_eq(waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT), -1);
		ck_assert(!walk_remove_step(r, 0));
		ck_assert_uint_eq(walk_remove_count(r), ENTRIES);
		walk_remove_free(r);
		close(ends[0]);
		ak_assert_childless();
	}
	tk_release(&t);
}
END_TEST

// A kernel or a filter without close_range(2), and a limit far above what is open: it does not go through all numbers.
START_TEST(child_closes_what_is_open)
{
	struct tree t;
	tk_init(&t, false);
	if (ak_able()) {
		int ends[2];
		char c;
		struct rlimit n;
		make_tree("top");
		ck_assert_int_eq(io_pipe(ends), 0);
		ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &n), 0);
		scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
		const struct scmp_arg_cmp last = {.arg = 0, .op = SCMP_CMP_EQ, .datum_a = n.rlim_cur - 1};
		ck_assert_int_eq(
			seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(close_range), 0, NULL), 0);
		ck_assert_int_eq(seccomp_rule_add_array(filter, SCMP_ACT_KILL_PROCESS, SCMP_SYS(close), 1, &last), 0);
		ck_assert_int_eq(seccomp_load(filter), 0);
		seccomp_release(filter);
		struct walk_remove *r = ak_removal_of(tk_path(&t, "top"), 0);
		int fd = ak_step_aside(r);
		ck_assert_int_ge(fd, 0);
		close(ends[1]);
		ck_assert_int_eq(io_read(ends[0], &c, 1), 0); // nobody waits for it
		ak_await_end(fd);
		ck_assert(!walk_remove_step(r, 0)); // it was through
		ck_assert_uint_eq(walk_remove_count(r), ENTRIES);
		ck_assert(!tk_exists("top"));
		walk_remove_free(r);
		close(ends[0]);
		ak_assert_childless();
	}
	tk_release(&t);
}
END_TEST

static void remove_here(const struct tree *t)
{
	make_tree("top");
	struct walk_remove *r = ak_removal_of(tk_path(t, "top"), 0);
	bool was_long = false;
	while (walk_remove_step(r, 0)) {
		ck_assert_int_eq(walk_remove_fd(r), -1);
		was_long |= walk_remove_is_long(r);
	}
	ck_assert(was_long && !walk_remove_is_long(r));
	ck_assert_int_eq(walk_remove_error(r, NULL), 0);
	ck_assert_uint_eq(walk_remove_count(r), ENTRIES);
	ck_assert(!tk_exists("top"));
	walk_remove_free(r);
	ak_assert_childless();
}

START_TEST(child_on_the_only_cpu)
{
	struct tree t;
	cpu_set_t set;
	tk_init(&t, false);
	int cpu = sched_getcpu();
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	ck_assert_int_eq(sched_setaffinity(0, sizeof set, &set), 0);
	remove_here(&t);
	tk_release(&t);
}
END_TEST

// Its page tables would be copied.
START_TEST(child_of_a_large_process)
{
	struct tree t;
	tk_init(&t, false);
	size_t n = (size_t)80 << 20;
	char *p = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert(p != MAP_FAILED);
	memset(p, 1, n);
	remove_here(&t);
	munmap(p, n);
	tk_release(&t);
}
END_TEST

static void lack_descriptors(void)
{
	struct rlimit none;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &none), 0);
	none.rlim_cur = 3;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
}

static void lack_processes(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	ck_assert_ptr_nonnull(filter);
	// Those of the kind alone: a leak checker makes others.
	const struct scmp_arg_cmp kind = {.arg = 0, .op = SCMP_CMP_EQ, .datum_a = CLONE_PIDFD};
	int rc = seccomp_rule_add_array(filter, SCMP_ACT_ERRNO(EAGAIN), SCMP_SYS(clone), 1, &kind);
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(seccomp_load(filter), 0);
	seccomp_release(filter);
}

START_TEST(child_that_is_not_to_be_had)
{
	static void (*const lacks[])(void) = {lack_descriptors, lack_processes};
	struct tree t;
	char name[64];
	struct rlimit old;
	tk_init(&t, false);
	tk_mkdir("top");
	for (int i = 0; i < 5000; i++) {
		(void)snprintf(name, sizeof name, "top/%d", i);
		tk_file(name, "");
	}
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	struct walk_remove *r = ak_removal_of(tk_path(&t, "top"), 0);
	lacks[_i]();
	bool more = true, aside = false;
	while (more && !aside) {
		more = walk_remove_step(r, 0);
		aside = walk_remove_fd(r) >= 0;
	}
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	ck_assert(!aside);
	ck_assert_int_eq(walk_remove_error(r, NULL), 0);
	ck_assert_uint_eq(walk_remove_count(r), 5001);
	ck_assert(!tk_exists("top"));
	walk_remove_free(r);
	ak_assert_childless();
	tk_release(&t);
}
END_TEST

// One CPU is left for others, and four children are enough.
START_TEST(as_many_children_as_there_are_removals)
{
	struct tree t;
	tk_init(&t, false);
	if (ak_able()) {
		struct walk_remove *r[6];
		char name[16];
		int most = ak_cpus() - 1 < 4 ? ak_cpus() - 1 : 4;
		for (int i = 0; i <= most; i++) {
			(void)snprintf(name, sizeof name, "top%d", i);
			make_tree(name);
			r[i] = ak_removal_of(tk_path(&t, name), 0);
			int fd = -1;
			for (int steps = 0; i == most && steps < DIRS * FILES / 2; steps++) {
				ck_assert(walk_remove_step(r[i], 0));
				ck_assert_int_eq(walk_remove_fd(r[i]), -1);
			}
			if (i == most)
				break;
			fd = ak_step_aside(r[i]);
			ck_assert_int_ge(fd, 0);
			ak_send_to(fd, SIGSTOP);
		}
		// There is room again.
		walk_remove_free(r[0]);
		ck_assert_int_ge(ak_step_aside(r[most]), 0);
		for (int i = 1; i <= most; i++)
			walk_remove_free(r[i]);
		ak_assert_childless();
	}
	tk_release(&t);
}
END_TEST

// What is left of a move to another file system: the source, or, given up, the copy.
START_TEST(moved_source_is_removed_aside)
{
	struct tree t;
	tk_init(&t, true);
	if (ak_able() && t.mounts) {
		struct files_move *m;
		int fds = tk_fds(), fd = -1;
		make_tree("src");
		tk_mkdir("m");
		tk_mount("m", 64 << 20);
		ck_assert_int_eq(files_move_new(&m, tk_path(&t, "src"), tk_path(&t, "m/dst")), 0);
		ck_assert_ptr_nonnull(m);
		ck_assert_int_eq(files_move_fd(m), -1);
		while (fd < 0 && files_move_step(m, io_mono_ns()) == 1)
			fd = files_move_fd(m);
		ck_assert_int_ge(fd, 0);
		ak_await_end(fd);
		ck_assert_int_eq(files_move_step(m, 0), 0);
		ck_assert_int_eq(files_move_fd(m), -1);
		files_move_free(m);
		ck_assert(!tk_exists("src"));
		ck_assert_int_eq(tk_count("m/dst"), DIRS);
		ck_assert_int_eq(tk_fds(), fds);
		ak_assert_childless();
	}
	tk_release(&t);
}
END_TEST

Suite *walk_aside_suite(void)
{
	Suite *s = suite_create("walk_aside");
	TCase *t = tcase_create("aside");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, child_tells_something_else);
	tcase_add_test(t, kept_root_is_removed_aside);
	tcase_add_test(t, killed_child_leaves_the_rest);
	tcase_add_test(t, child_outlives_its_removal);
	tcase_add_test(t, child_is_seen_by_others);
	tcase_add_test(t, child_closes_what_is_open);
	tcase_add_test(t, child_on_the_only_cpu);
	tcase_add_test(t, child_of_a_large_process);
	tcase_add_loop_test(t, child_that_is_not_to_be_had, 0, 2);
	tcase_add_test(t, as_many_children_as_there_are_removals);
	tcase_add_test(t, moved_source_is_removed_aside);
	return s;
}
