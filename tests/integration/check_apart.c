// SPDX-License-Identifier: Apache-2.0
// celld and unprivileged commands: without any confinement they do not read, trace, stop or kill it, nor hold up its starts. (A command
// of the very user that celld runs as can still signal it, as that is what users are.)
#include "tests/integration/deathkit.h"
#include "tests/integration/suites.h"

#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

// Says what it could do to the daemon, its parent, and to the init part above.
#define PROBE                                                               \
	"d=$PPID; i=$(cut -d' ' -f4 /proc/$d/stat); for p in $d $i; do "    \
	"for f in mem environ maps auxv fd/0 exe cwd root map_files; do "   \
	"(cat <\"/proc/$p/$f\") >/dev/null 2>&1 && echo \"read $f\"; "      \
	"(ls \"/proc/$p/$f/\") >/dev/null 2>&1 && echo \"list $f\"; done; " \
	"ls /proc/$p/fd >/dev/null 2>&1 && echo 'list fd'; "                \
	"(: >/proc/$p/mem) 2>/dev/null && echo 'write mem'; "               \
	"(echo 900 >/proc/$p/oom_score_adj) 2>/dev/null && echo 'write oom_score_adj'; done; true; "

#define SIGNALS                                                           \
	"for p in $d $i; do for s in 0 STOP CONT USR1 HUP TERM KILL; do " \
	"kill -$s $p 2>/dev/null && echo \"kill $s\"; done; done; true"

static void want_nothing(const struct testd *d, const char *command)
{
	struct resp r = {0};
	json_t *o = run(d, command, &r);
	ck_assert_str_eq(j_str(o, "stdout"), "");
	ck_assert_int_eq(j_int(o, "exit_code"), 0);
	resp_release(&r);
}

// Whether somebody of that uid may trace PID.
static bool can_trace(uid_t uid, pid_t pid)
{
	int status;
	pid_t child = fork();
	if (child == 0) {
		if (setgid(uid) < 0 || setuid(uid) < 0)
			_exit(2);
		_exit(ptrace(PTRACE_SEIZE, pid, 0L, 0L) == 0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) < 2);
	return WEXITSTATUS(status) == 1;
}

START_TEST(another_user_reaches_nothing)
{
	struct testd *d = d_start("--init", "--user", "nobody");
	want_nothing(d, PROBE SIGNALS);
	ck_assert(!can_trace(NOBODY, d->daemon) && !can_trace(NOBODY, d->init));
	d_finish(d);
}
END_TEST

// celld itself as nobody: a script that becomes it. Without root as who it is.
static struct testd *start_as_nobody(char dir[64], const char *more)
{
	static char script[128], workspace[128];
	char command[1024];
	const char *celld = getenv("CELLD");
	dir[0] = '\0';
	if (geteuid() != 0)
		return d_start("--init", more);
	(void)snprintf(dir, 64, "/tmp/celld-it-apart-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(script, sizeof script, "%s/start", dir);
	(void)snprintf(workspace, sizeof workspace, "%s/workspace", dir);
	(void)snprintf(command, sizeof command,
		"cd %s && cp '%s' celld && mkdir workspace && chown %d:%d workspace && chmod 755 . celld && "
		"printf '#!/bin/sh\\nexec setpriv --reuid %d --regid %d --clear-groups %s/celld \"$@\"\\n' >start && "
		"chmod 755 start",
		dir, celld && *celld == '/' ? celld : "$OLDPWD/build/celld", NOBODY, NOBODY, NOBODY, NOBODY, dir);
	ck_assert_int_eq(system(command), 0);
	const char *const args[] = {"--init", more, NULL};
	const struct d_opts opts = {.args = args, .binary = script, .workspace = workspace};
	return d_start_opts(&opts);
}

static void finish_as_nobody(struct testd *d, const char *dir)
{
	char command[100];
	d_finish(d);
	if (!dir[0])
		return;
	(void)snprintf(command, sizeof command, "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

START_TEST(its_own_user_reads_nothing)
{
	char dir[64];
	struct testd *d = start_as_nobody(dir, NULL);
	struct resp r = {0};
	// Without root's rights celld gives a command its score just after the start.
	static const char score[] =
		"id -u; for i in $(seq 300); do [ $(cat /proc/$$/oom_score_adj) = 100 ] && break; sleep .01; done;"
		"cat /proc/$$/oom_score_adj";
	ck_assert_str_eq(j_str(run(d, score, &r), "stdout"), "65534\n100\n");
	want_nothing(d, PROBE);
	ck_assert(!can_trace(NOBODY, d->daemon) && !can_trace(NOBODY, d->init));
	// Whoever runs another program is visible again, until that hides too.
	d_expect_crash(d);
	death_upgrade(d);
	want_nothing(d, PROBE);
	ck_assert(!can_trace(NOBODY, d->daemon) && !can_trace(NOBODY, d->init));
	resp_release(&r);
	finish_as_nobody(d, dir);
}
END_TEST

START_TEST(unless_it_is_to_be_debugged)
{
	char dir[64];
	struct testd *d = start_as_nobody(dir, "--dumpable");
	struct resp r = {0};
	ck_assert_int_eq(j_int(run(d, "ls /proc/$PPID/fd >/dev/null", &r), "exit_code"), 0);
	resp_release(&r);
	finish_as_nobody(d, dir);
}
END_TEST

// A program like sudo: celld may not signal what it becomes. The deadline is missed, which is said, and the end is its own.
START_TEST(deadline_of_anothers_process)
{
	char dir[64], command[200];
	struct testd *d = start_as_nobody(dir, NULL);
	struct resp r = {0};
	(void)snprintf(command, sizeof command, "cp \"$(command -v setpriv)\" %s/priv && chmod 4755 %s/priv", dir, dir);
	ck_assert_int_eq(system(command), 0);
	(void)snprintf(command, sizeof command, "%s/priv --reuid 0 id -ru", dir);
	if (strcmp(j_str(run(d, command, &r), "stdout"), "0\n") == 0) { // not where such programs are not heeded
		(void)snprintf(command, sizeof command, "exec %s/priv --reuid 0 sleep 1.5", dir);
		req_pack(d, "POST", "/exec", &r, "{s:s, s:f}", "command", command, "timeout", 0.2);
		ck_assert_int_eq(r.status, 200);
		ck_assert_int_eq(j_int(resp_json(&r), "exit_code"), 0);
		ck_assert(!j_bool(resp_json(&r), "timed_out"));
		ck_assert(d_log_has(d, "it cannot be ended"));
	}
	resp_release(&r);
	finish_as_nobody(d, dir);
}
END_TEST

// --- who stops whatever starts ---

// A user whom no other test has.
static const struct passwd *victim(void)
{
	static const char *const names[] = {"irc", "list", "backup", "games"};
	const struct passwd *user = NULL;
	for (size_t i = 0; !user && i < sizeof names / sizeof *names; i++)
		user = getpwnam(names[i]);
	return user;
}

// Whatever runs as UID is stopped, all the time.
static pid_t start_stopper(const struct passwd *user)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	if (setgid(user->pw_gid) < 0 || setuid(user->pw_uid) < 0)
		_exit(2);
	int64_t end = h_now_ms() + 30000;
	while (h_now_ms() < end)
		kill(-1, SIGSTOP);
	_exit(0);
}

static void want_health(const struct testd *d)
{
	struct resp r = {0};
	int64_t start = h_now_ms();
	req(d, "GET", "/health", NULL, &r);
	ck_assert_int_eq(r.status, 204);
	ck_assert_int_le(h_now_ms() - start, h_scaled(2000));
	resp_release(&r);
}

START_TEST(who_stops_what_starts_holds_nobody_up)
{
	const struct passwd *user = victim();
	if (!user) {
		fprintf(stderr, "apart: no user to try it with\n");
		return;
	}
	struct testd *d = d_start("--user", user->pw_name);
	int results = 0, later = 0;
	pid_t stopper = start_stopper(user);
	ck_assert_int_gt(stopper, 0);
	for (int64_t end = h_now_ms() + 3000; h_now_ms() < end;) {
		struct client *c = client_connect(d);
		struct resp r = {0};
		static const char body[] = "{\"command\":\"true\",\"timeout\":0.1}";
		client_request(c, "POST", "/exec", NULL, body, sizeof body - 1);
		want_health(d);
		client_response(c, &r);
		if (r.status == 200) { // stopped behind its start, it was killed at its timeout
			j_int(resp_json(&r), "exit_code");
			results++;
		} else {
			ck_assert(j_bool(assert_error(&r, 503, NULL), "retryable"));
			later++;
		}
		resp_release(&r);
		client_close(c);
	}
	kill(stopper, SIGKILL);
	ck_assert_int_eq(waitpid(stopper, NULL, 0), stopper);
	ck_assert_int_gt(results + later, 3);
	struct resp r = {0};
	ck_assert_int_eq(j_int(run(d, "true", &r), "exit_code"), 0);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *apart_suite(void)
{
	Suite *s = suite_create("apart");
	TCase *tc = h_tcase(s, "apart", 40);
	tcase_add_test(tc, unless_it_is_to_be_debugged);
	if (geteuid() != 0)
		return s; // the rest takes two users
	tcase_add_test(tc, another_user_reaches_nothing);
	tcase_add_test(tc, its_own_user_reads_nothing);
	tcase_add_test(tc, deadline_of_anothers_process);
	tcase_add_test(tc, who_stops_what_starts_holds_nobody_up);
	return s;
}
