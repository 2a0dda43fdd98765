// SPDX-License-Identifier: Apache-2.0
// The gateway's jobs: programs beside the loop.
#include "suites.h"
#include "tests/gateway/job.h"
#include "treekit.h"

#include <check.h>
#include <errno.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct result {
	int calls, status;
};

static struct ev_loop *loop;
static struct tree tree;
static int fds;

static void setup(void)
{
	tk_init(&tree, false);
	loop = ev_loop_new(EVFLAG_NOENV);
	ck_assert_ptr_nonnull(loop);
	fds = tk_fds();
}

static void teardown(void)
{
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
	ck_assert_int_eq(tk_fds(), fds);
	ev_loop_destroy(loop);
	tk_release(&tree);
}

static void on_done(void *arg, int status)
{
	struct result *r = arg;
	r->calls++;
	r->status = status;
}

// A loop without a watcher ends by itself: jobs that are over leave none, forgotten ones too.
static int run(struct job *j, struct result *r)
{
	ck_assert_msg(j != NULL, "%s", strerror(errno));
	ck_assert_int_eq(r->calls, 0);
	ev_run(loop, 0);
	ck_assert_int_eq(r->calls, 1);
	return r->status;
}

static int run_shell(const char *script)
{
	const char *argv[] = {"sh", "-c", script, NULL};
	struct result r = {0};
	return run(job_start(loop, argv, on_done, &r), &r);
}

START_TEST(its_status_is_told)
{
	ck_assert_int_eq(run_shell("exit 0"), 0);
	ck_assert_int_eq(run_shell("exit 3"), 3);
	ck_assert_int_eq(run_shell("kill -KILL $$"), 128 + SIGKILL);
	// It has what a program expects, and nothing of ours.
	ck_assert_int_eq(run_shell("[ \"$(ls /proc/self/fd | wc -l)\" -le 4 ]"), 0);
	ck_assert_int_eq(run_shell("[ $(readlink /proc/$$/fd/0)$(readlink /proc/$$/fd/1) = /dev/null/dev/null ]"), 0);
	signal(SIGPIPE, SIG_IGN);
	ck_assert_int_eq(run_shell("kill -PIPE $$"), 128 + SIGPIPE);
}
END_TEST

START_TEST(one_that_cannot_start)
{
	const char *argv[] = {"no-such-program", NULL};
	struct result r = {0};
	ck_assert_ptr_null(job_start(loop, argv, on_done, &r));
	ck_assert_int_eq(errno, ENOENT);
	ev_run(loop, 0);
	ck_assert_int_eq(r.calls, 0);
}
END_TEST

START_TEST(forgotten_it_goes_on)
{
	const char *argv[] = {"sh", "-c", "sleep 0.1; echo >ran", NULL};
	struct result r = {0};
	struct job *j = job_start(loop, argv, on_done, &r);
	ck_assert_ptr_nonnull(j);
	job_forget(j);
	job_forget(NULL);
	ev_run(loop, 0);
	ck_assert_int_eq(r.calls, 0);
	ck_assert(tk_exists("ran"));
}
END_TEST

START_TEST(stopped_it_ends_with_what_it_runs)
{
	const char *argv[] = {"sh", "-c", "sleep 1000; echo >ran", NULL};
	struct result r = {0};
	struct job *j = job_start(loop, argv, on_done, &r);
	ck_assert_ptr_nonnull(j);
	job_stop(j);
	job_stop(NULL);
	ev_run(loop, 0);
	ck_assert_int_eq(r.calls, 0);
	ck_assert(!tk_exists("ran"));
}
END_TEST

static void as_nobody(void)
{
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(chown(tree.top, 65534, 65534), 0);
	ck_assert(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
}

// Also as who is not root, and what a sandbox has made read-only.
START_TEST(copies_and_removes)
{
	struct result r = {0}, again = {0}, removed = {0};
	if (_i)
		as_nobody();
	tk_mkdir("from");
	tk_mkdir("from/.hidden");
	tk_file("from/.hidden/f", "text");
	ck_assert_int_eq(symlink("nowhere", "from/link"), 0);
	tk_mkdir("to");
	ck_assert_int_eq(run(job_copy(loop, "from", "to", on_done, &r), &r), 0);
	tk_assert_file("to/.hidden/f", "text");
	ck_assert_int_eq(tk_count("to"), 2);
	ck_assert_int_ne(run(job_copy(loop, "none", "to", on_done, &again), &again), 0);
	ck_assert_int_eq(chmod("to/.hidden", 0500), 0);
	tk_mkdir("to/closed");
	ck_assert_int_eq(chmod("to/closed", 0), 0);
	ck_assert_int_eq(run(job_remove(loop, "to", on_done, &removed), &removed), 0);
	ck_assert(!tk_exists("to"));
	ck_assert(tk_exists("from/.hidden/f"));
}
END_TEST

Suite *gateway_job_suite(void)
{
	Suite *s = suite_create("gateway_job");
	TCase *t = tcase_create("job");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, its_status_is_told);
	tcase_add_test(t, one_that_cannot_start);
	tcase_add_test(t, forgotten_it_goes_on);
	tcase_add_test(t, stopped_it_ends_with_what_it_runs);
	tcase_add_loop_test(t, copies_and_removes, 0, 2);
	suite_add_tcase(s, t);
	return s;
}
