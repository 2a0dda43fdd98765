// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/tree.h"
#include "daemon/io.h"
#include "suites.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

// A family: ROOT leads a session; CHILD and GRANDCHILD stay in it, AWAY left it; ORPHAN is of it, but its parent is gone. The
// NEIGHBOUR (with a CHILD_OF_NEIGHBOUR) and the SIBLING are the test's other children and none of it.
enum role { ROOT, CHILD, GRANDCHILD, AWAY, ORPHAN, FAMILY, NEIGHBOUR = FAMILY, CHILD_OF_NEIGHBOUR, SIBLING, ROLES };

struct family {
	pid_t self;
	int tell[2];
	pid_t pid[ROLES];
	int ignored; // a signal that CHILD ignores, or 0
};

struct news {
	enum role role;
	pid_t pid;
};

static void settle_down(const struct family *f, enum role role)
{
	struct news n = {role, getpid()};
	if (write(f->tell[1], &n, sizeof n) != sizeof n)
		_exit(1);
	for (;;)
		pause();
}

// The new process ends by itself if the test does not end it.
static pid_t beget(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		signal(SIGTERM, SIG_DFL); // Check has handlers of its own
		signal(SIGALRM, SIG_DFL);
		alarm(60);
	}
	return pid;
}

static void be_orphan(const struct family *f)
{
	if (beget() > 0)
		_exit(0);
	while (getppid() != f->self)
		usleep(1000);
	settle_down(f, ORPHAN);
}

static void be_root(const struct family *f)
{
	setsid();
	if (beget() == 0) {
		if (f->ignored)
			signal(f->ignored, SIG_IGN);
		if (beget() == 0)
			settle_down(f, GRANDCHILD);
		settle_down(f, CHILD);
	}
	if (beget() == 0) {
		setsid();
		settle_down(f, AWAY);
	}
	pid_t pid = beget();
	if (pid == 0)
		be_orphan(f);
	waitpid(pid, NULL, 0);
	settle_down(f, ROOT);
}

static void family_start(struct family *f)
{
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	f->self = getpid();
	ck_assert_int_eq(io_pipe(f->tell), 0);
	if (beget() == 0)
		be_root(f);
	if (beget() == 0) {
		setsid();
		if (beget() == 0)
			settle_down(f, CHILD_OF_NEIGHBOUR);
		settle_down(f, NEIGHBOUR);
	}
	if (beget() == 0)
		settle_down(f, SIBLING);
	for (int i = 0; i < ROLES; i++) {
		struct news n;
		ck_assert_int_eq(io_read(f->tell[0], &n, sizeof n), sizeof n);
		f->pid[n.role] = n.pid;
	}
}

static void check_ended_by(pid_t pid, int sig)
{
	int status = 0;
	pid_t got;
	while ((got = waitpid(pid, &status, 0)) < 0 && errno == ECHILD && kill(pid, 0) == 0)
		usleep(1000); // it comes to us when its parent is gone
	ck_assert_int_eq(got, pid);
	ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == sig, "status %x", (unsigned)status);
}

static void check_untouched(pid_t pid)
{
	struct tree_stat s;
	ck_assert_int_eq(tree_stat(pid, &s), 0);
	ck_assert_msg(s.state == 'S' || s.state == 'R', "state %c", s.state);
}

static void family_end(struct family *f)
{
	for (int i = 0; i < ROLES; i++)
		kill(f->pid[i], SIGKILL);
	while (waitpid(-1, NULL, 0) > 0)
		;
	io_close(&f->tell[0]);
	io_close(&f->tell[1]);
}

START_TEST(kill_ends_the_family_and_nobody_else)
{
	struct family f = {0};
	family_start(&f);
	ck_assert_int_eq(tree_signal(f.pid[ROOT], f.self, SIGKILL), FAMILY);
	for (int i = 0; i < FAMILY; i++)
		check_ended_by(f.pid[i], SIGKILL);
	for (int i = FAMILY; i < ROLES; i++)
		check_untouched(f.pid[i]);
	ck_assert_int_le(tree_signal(f.pid[ROOT], f.self, SIGKILL), 0);
	family_end(&f);
}
END_TEST

START_TEST(term_reaches_all_and_may_be_ignored)
{
	struct family f = {.ignored = SIGTERM};
	family_start(&f);
	ck_assert_int_eq(tree_signal(f.pid[ROOT], f.self, SIGTERM), FAMILY);
	for (int i = 0; i < FAMILY; i++) {
		if (i != CHILD && i != GRANDCHILD)
			check_ended_by(f.pid[i], SIGTERM);
	}
	for (int i = FAMILY; i < ROLES; i++)
		check_untouched(f.pid[i]);
	check_untouched(f.pid[CHILD]);
	struct tree_stat st;
	while (tree_stat(f.pid[GRANDCHILD], &st) == 0 && st.state != 'Z')
		usleep(1000);
	// Its root is gone: it is still of that session.
	ck_assert_int_eq(tree_signal(f.pid[ROOT], f.self, SIGKILL), 1);
	check_ended_by(f.pid[CHILD], SIGKILL);
	check_ended_by(f.pid[GRANDCHILD], SIGTERM); // nobody reaped it before
	family_end(&f);
}
END_TEST

START_TEST(a_root_in_the_middle_takes_only_what_is_below)
{
	struct family f = {0};
	family_start(&f);
	ck_assert_int_eq(tree_signal(f.pid[CHILD], f.self, SIGKILL), 2);
	check_ended_by(f.pid[GRANDCHILD], SIGKILL);
	for (int i = 0; i < ROLES; i++) {
		if (i != CHILD && i != GRANDCHILD)
			check_untouched(f.pid[i]);
	}
	family_end(&f);
}
END_TEST

START_TEST(all_is_everything_but_self)
{
	static const int sigs[] = {SIGTERM, SIGKILL};
	struct family f = {0};
	family_start(&f);
	ck_assert_int_eq(tree_signal_all(f.self, 0, sigs[_i]), ROLES);
	for (int i = 0; i < ROLES; i++)
		check_ended_by(f.pid[i], sigs[_i]);
	ck_assert_int_eq(waitpid(-1, NULL, 0), -1);
	ck_assert_int_eq(tree_signal_all(f.self, 0, sigs[_i]), 0);
	family_end(&f);
}
END_TEST

// Each of its processes forks as long as there are fewer than so many.
static void bomb(volatile int *born)
{
	setsid();
	for (;;) {
		pid_t pid = __atomic_add_fetch(born, 1, __ATOMIC_SEQ_CST) < 300 ? beget() : -1;
		if (pid < 0) {
			__atomic_sub_fetch(born, 1, __ATOMIC_SEQ_CST);
			usleep(1000);
		}
	}
}

START_TEST(a_fork_bomb_cannot_outrun_kill)
{
	volatile int *born = mmap(NULL, sizeof *born, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne((void *)(uintptr_t)born, MAP_FAILED);
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	pid_t root = beget();
	if (root == 0)
		bomb(born);
	while (__atomic_load_n(born, __ATOMIC_SEQ_CST) < 20)
		usleep(500);
	ck_assert_int_gt(tree_signal(root, getpid(), SIGKILL), 0);
	int status;
	while (waitpid(-1, &status, 0) > 0)
		ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}
END_TEST

START_TEST(stat_of_odd_names)
{
	static const char *const names[] = {"plain", "a) b (c", "x) R 1 1 1 1", "(((", ")))", ") S (", "", " ", "a\nb",
		"exactly15bytes!", "\xff\x01"};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		int fds[2];
		char c;
		ck_assert_int_eq(io_pipe(fds), 0);
		pid_t pid = beget();
		if (pid == 0) {
			setsid();
			prctl(PR_SET_NAME, names[i]);
			io_close(&fds[1]);
			pause();
		}
		io_close(&fds[1]);
		ck_assert_int_eq(io_read(fds[0], &c, 1), 0);
		struct tree_stat s;
		ck_assert_int_eq(tree_stat(pid, &s), 0);
		ck_assert_str_eq(s.comm, names[i]);
		ck_assert(s.pid == pid && s.ppid == getpid() && s.pgrp == pid && s.session == pid);
		ck_assert(s.state == 'S' || s.state == 'R');
		ck_assert_uint_gt(s.start, 0);
		kill(pid, SIGKILL);
		siginfo_t si;
		ck_assert_int_eq(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOWAIT), 0);
		unsigned long long start = s.start;
		ck_assert_int_eq(tree_stat(pid, &s), 0);
		ck_assert(s.state == 'Z' && s.start == start);
		ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
		ck_assert_int_eq(tree_stat(pid, &s), -ESRCH);
		io_close(&fds[0]);
	}
}
END_TEST

// Where a PID namespace has no /proc of its own, numbers mean other processes there: nothing is said of them, and none is signalled.
START_TEST(stat_in_another_namespace)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		struct tree_stat s;
		if (unshare(geteuid() == 0 ? CLONE_NEWPID : CLONE_NEWUSER | CLONE_NEWPID) < 0)
			_exit(77); // not to be had here
		pid = fork();
		if (pid == 0)
			_exit(tree_stat(1, &s) == -ENOENT && tree_signal_all(1, 0, 0) <= 0 ? 0 : 1);
		waitpid(pid, &status, 0);
		_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 2);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status) && (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 77));
}
END_TEST

struct search {
	pid_t pid;
	int seen, after;
};

static int look(void *arg, const struct tree_stat *s)
{
	struct search *f = arg;
	f->after += f->seen > 0;
	f->seen += s->pid == f->pid;
	return 0;
}

static int look_and_stop(void *arg, const struct tree_stat *s)
{
	look(arg, s);
	return s->pid == ((struct search *)arg)->pid ? -EXDEV : 0;
}

START_TEST(each_visits_all_once_or_until_told)
{
	struct search f = {.pid = getpid()};
	ck_assert_int_eq(tree_each(look, &f), 0);
	ck_assert_int_eq(f.seen, 1);
	f = (struct search){.pid = getpid()};
	ck_assert_int_eq(tree_each(look_and_stop, &f), -EXDEV);
	ck_assert(f.seen == 1 && f.after == 0);
	struct rlimit old, none;
	int fd = dup(1);
	ck_assert_int_ge(fd, 3);
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = (struct rlimit){3, old.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	ck_assert_int_eq(tree_each(look, &f), -EMFILE);
	struct tree_stat s;
	ck_assert_int_eq(tree_stat(getpid(), &s), -EMFILE);
	setrlimit(RLIMIT_NOFILE, &old);
	close(fd);
}
END_TEST

Suite *tree_suite(void)
{
	Suite *s = suite_create("tree");
	TCase *t = tcase_create("processes");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_test(t, kill_ends_the_family_and_nobody_else);
	tcase_add_test(t, term_reaches_all_and_may_be_ignored);
	tcase_add_test(t, a_root_in_the_middle_takes_only_what_is_below);
	tcase_add_loop_test(t, all_is_everything_but_self, 0, 2);
	tcase_add_test(t, a_fork_bomb_cannot_outrun_kill);
	tcase_add_test(t, stat_of_odd_names);
	tcase_add_test(t, stat_in_another_namespace);
	tcase_add_test(t, each_visits_all_once_or_until_told);
	return s;
}
