// SPDX-License-Identifier: Apache-2.0
// The directory of a gateway's sandboxes: what an earlier gateway has left, and whose it is.
#include "suites.h"
#include "tests/gateway/root.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void shell(const char *line)
{
	ck_assert_msg(system(line) == 0, "%s", line);
}

static bool there(const char *dir, const char *name)
{
	char path[sizeof((struct root *)NULL)->path + 64];
	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	return access(path, F_OK) == 0;
}

static unsigned mode_of(const char *dir, const char *name)
{
	char path[sizeof((struct root *)NULL)->path + 64];
	struct stat st;
	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	ck_assert_int_eq(stat(path, &st), 0);
	return st.st_mode & 07777;
}

START_TEST(one_gateway_at_a_time_and_nothing_of_the_last)
{
	char dir[] = "/tmp/celld-root-XXXXXX", line[300];
	struct root r, other;
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(line, sizeof line, "cd %s && mkdir -p slots/1/work paused/i snapshots/s mine", dir);
	shell(line);
	ck_assert_int_eq(root_open(&r, dir), 0);
	ck_assert(
		!there(dir, "slots/1") && !there(dir, "paused/i") && !there(dir, "snapshots/s") && there(dir, "mine"));
	// Whom a sandbox's root would leave something there for may not get to it.
	ck_assert_uint_eq(mode_of(dir, "snapshots"), 0700);
	ck_assert_uint_eq(mode_of(dir, "paused"), 0700);
	ck_assert_int_eq(root_open(&other, dir), -EBUSY);
	ck_assert(there(dir, "slots"));
	root_close(&r);
	ck_assert(!there(dir, "slots") && !there(dir, "lock") && there(dir, "mine"));
	(void)snprintf(line, sizeof line, "rm -r %s", dir);
	shell(line);
}
END_TEST

// --- a gateway that was killed ---

// A directory as it leaves one; AGE: of its last change, as touch has it.
static void leave(char *dir, const char *age)
{
	char line[300];
	memcpy(dir, "/tmp/celld-gateway.XXXXXX", sizeof "/tmp/celld-gateway.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(line, sizeof line, "cd %s && : >lock && mkdir -p slots/1/work && touch -d '%s' .", dir, age);
	shell(line);
}

START_TEST(directories_that_nobody_holds_go)
{
	char gone[32], young[32], held[32], foreign[32], line[300];
	struct root r;
	leave(gone, "1 minute ago");
	leave(young, "now");
	leave(held, "1 minute ago");
	leave(foreign, "1 minute ago");
	(void)snprintf(line, sizeof line, "rm %s/lock && touch -d '1 minute ago' %s", foreign, foreign);
	shell(line);
	struct root holder;
	ck_assert_int_eq(root_open(&holder, held), 0);
	(void)snprintf(line, sizeof line, "touch -d '1 minute ago' %s", held);
	shell(line);
	ck_assert_int_eq(root_open(&r, NULL), 0);
	ck_assert(!there(gone, "."));
	ck_assert(there(young, "slots/1/work") && there(held, "slots") && there(foreign, "slots/1/work"));
	ck_assert(there(r.path, "slots"));
	root_close(&holder);
	char own[sizeof r.path];
	memcpy(own, r.path, sizeof own);
	root_close(&r);
	ck_assert(!there(own, "."));
	(void)snprintf(line, sizeof line, "rm -r %s %s %s", young, held, foreign);
	shell(line);
}
END_TEST

static pid_t stopped_of(const char *dir)
{
	char token[128];
	int status;
	(void)snprintf(token, sizeof token, "%s/slots/1/key/token", dir);
	pid_t pid = fork();
	if (pid == 0) {
		execl("/bin/sh", "sh", "-c", "kill -STOP $$; sleep 1000", "celld", "--token-file", token, NULL);
		_exit(127);
	}
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	return pid;
}

START_TEST(what_it_had_stopped_is_ended)
{
	char dir[] = "/tmp/celld-root-XXXXXX", other[] = "/tmp/celld-root-XXXXXX";
	struct root r;
	int status;
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_ptr_nonnull(mkdtemp(other));
	pid_t ours = stopped_of(dir), others = stopped_of(other);
	ck_assert_int_eq(root_open(&r, dir), 0);
	ck_assert_int_eq(waitpid(ours, &status, 0), ours);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	ck_assert_int_eq(waitpid(others, &status, WNOHANG), 0);
	ck_assert_int_eq(kill(others, SIGKILL), 0);
	ck_assert_int_eq(waitpid(others, NULL, 0), others);
	root_close(&r);
	ck_assert_int_eq(rmdir(dir) | rmdir(other), 0);
}
END_TEST

Suite *gateway_root_suite(void)
{
	Suite *s = suite_create("gateway_root");
	TCase *t = tcase_create("root");
	tcase_add_test(t, one_gateway_at_a_time_and_nothing_of_the_last);
	tcase_add_test(t, directories_that_nobody_holds_go);
	tcase_add_test(t, what_it_had_stopped_is_ended);
	suite_add_tcase(s, t);
	return s;
}
