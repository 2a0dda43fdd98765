// SPDX-License-Identifier: Apache-2.0
// What a box's root could do to the machine, to other boxes, or to the next session in his own.
#include "boxkit.h"
#include "suites.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

static char out[65536];

static void want(const struct boxkit_box *x, const char *command, const char *answer)
{
	int code = boxkit_run(x, command, out, sizeof out);
	ck_assert_msg(strcmp(out, answer) == 0, "%s: exit %d, \"%s\" instead of \"%s\"", command, code, out, answer);
}

// The machine's device nodes lie in it, and its list of users is read by every session's tools.
START_TEST(what_is_shared_is_fixed)
{
	struct boxkit k;
	boxkit_init(&k, (enum boxkit_way)_i);
	struct boxkit_box *x = boxkit_start(&k, 0);
	if (k.namespaces) {
		want(x, "chmod 666 /dev/full 2>/dev/null; echo $?", "1");
		want(x, "touch /dev/null 2>/dev/null; echo $?", "1");
		want(x, "(echo a >>/etc/passwd) 2>/dev/null || echo no", "no");
		want(x, "chmod 644 /etc/group 2>/dev/null; echo $?", "1");
		want(x, "echo a >/dev/null && head -c2 /dev/zero | wc -c", "2");
	}
	boxkit_release(&k);
}
END_TEST

// Who has raw sockets reads what others say in that network: keys and tokens.
START_TEST(raw_sockets_in_its_own_network_only)
{
	struct boxkit k;
	boxkit_init(&k, (enum boxkit_way)(_i / 2));
	k.private_net = _i % 2;
	struct boxkit_box *x = boxkit_start(&k, 0);
	if (k.namespaces)
		want(x, "c=$(grep CapBnd /proc/self/status | tail -c 9); echo $((0x$c >> 13 & 1))",
			k.private_net ? "1" : "0");
	boxkit_release(&k);
}
END_TEST

// A key of root's is a key of the machine's root.
START_TEST(keyrings_are_closed)
{
	struct boxkit k;
	char command[256];
	static const long calls[] = {SYS_keyctl, SYS_add_key, SYS_request_key};
	boxkit_init(&k, (enum boxkit_way)_i);
	struct boxkit_box *x = boxkit_start(&k, 0);
	for (size_t i = 0; k.namespaces && i < sizeof calls / sizeof *calls; i++) {
		(void)snprintf(command, sizeof command,
			"perl -e 'my $r = syscall(%ld, 0, -4, 0, 0, 0); print \"$r \", $! + 0'", calls[i]);
		want(x, command, "-1 38");
	}
	boxkit_release(&k);
}
END_TEST

START_TEST(others_lie_in_what_is_hidden)
{
	struct boxkit k;
	char root[] = "/var/lib/celld-box-XXXXXX", old[sizeof k.dir], command[600];
	boxkit_init(&k, BOXKIT_OURS);
	if (k.namespaces && geteuid() == 0) {
		ck_assert_ptr_nonnull(mkdtemp(root));
		(void)snprintf(
			command, sizeof command, "mkdir %s/slots %s/paused; echo >%s/paused/s", root, root, root);
		ck_assert_int_eq(system(command), 0);
		(void)snprintf(old, sizeof old, "%s", k.dir);
		(void)snprintf(k.dir, sizeof k.dir, "%s/slots", root);
		k.hide = root;
		struct boxkit_box *x = boxkit_start(&k, 0);
		(void)snprintf(command, sizeof command, "ls -A %s", root);
		want(x, command, "");
		boxkit_end(x);
		(void)snprintf(command, sizeof command, "rm -rf %s", root);
		ck_assert_int_eq(system(command), 0);
		(void)snprintf(k.dir, sizeof k.dir, "%s", old);
	}
	boxkit_release(&k);
}
END_TEST

// --- between sessions ---

START_TEST(places_are_mended)
{
	struct boxkit k;
	struct stat st;
	char path[600];
	boxkit_init(&k, (enum boxkit_way)_i);
	struct boxkit_box *x = boxkit_start(&k, 0);
	bool root = k.namespaces && geteuid() == 0;
	(void)snprintf(path, sizeof path, "%s/tmp", box_dir(x->b));
	int marked = setxattr(box_work(x->b), "user.left", "secret", 6, 0);
	if (root)
		want(x, "chown 77:78 /tmp /home/user; echo $?", "0");
	(void)snprintf(out, sizeof out, "chmod 0 %s %s; echo $?", box_temp(x->b, 0), box_home(x->b));
	want(x, strdupa(out), "0");
	ck_assert_int_eq(box_mend(x->b), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 01777);
	ck_assert_int_eq((int)st.st_uid, (int)geteuid());
	ck_assert_int_eq(stat(box_work(x->b), &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0755);
	ck_assert_int_eq((int)st.st_uid, root ? 1000 : (int)geteuid());
	if (marked == 0) {
		ck_assert_int_eq((int)getxattr(box_work(x->b), "user.left", out, sizeof out), -1);
		ck_assert_int_eq(errno, ENODATA);
	}
	ck_assert_ptr_null(box_remembered(x->b));
	ck_assert_int_eq(box_remember(x->b, "one"), 0);
	ck_assert_int_eq(box_remember(x->b, "two"), 0);
	ck_assert_str_eq(box_remembered(x->b), "two");
	boxkit_release(&k);
}
END_TEST

// --- its end ---

// Orphans come to us, also those whose namespace did not take them along.
static bool nothing_left(void)
{
	while (waitpid(-1, NULL, WNOHANG) > 0) {
	}
	return waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD;
}

START_TEST(stopped_ones_end_with_their_box)
{
	struct boxkit k;
	setenv("CELLD_GATEWAY_CGROUP", "off", 1);
	boxkit_init(&k, (enum boxkit_way)_i);
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	struct boxkit_box *x = boxkit_start(&k, 0);
	want(x, "setsid sleep 1000 >/dev/null 2>&1 & setsid sleep 1000 >/dev/null 2>&1 & kill -STOP $!; echo a", "a");
	ck_assert_int_eq(box_freeze(x->b), 0);
	ck_assert_int_eq(kill(box_pid(x->b), SIGKILL), 0);
	BOXKIT_UNTIL(&k, x->ended);
	BOXKIT_UNTIL(&k, nothing_left());
	boxkit_release(&k);
}
END_TEST

START_TEST(one_that_was_sent_kill_does_not_live)
{
	struct boxkit k;
	boxkit_init(&k, (enum boxkit_way)_i);
	for (int i = 0; i < 20; i++) {
		struct boxkit_box *x = boxkit_start(&k, 0);
		ck_assert(box_alive(x->b));
		ck_assert_int_eq(kill(box_pid(x->b), SIGKILL), 0);
		ck_assert(!box_alive(x->b));
		BOXKIT_UNTIL(&k, x->ended);
	}
	boxkit_release(&k);
}
END_TEST

// A child of ours that does not die before we let it: whoever traces it is asked first.
static pid_t start_stubborn(void)
{
	int status;
	pid_t pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, NULL, NULL);
		(void)raise(SIGSTOP);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFSTOPPED(status));
	ck_assert_int_eq(ptrace(PTRACE_SETOPTIONS, pid, NULL, (void *)PTRACE_O_TRACEEXIT), 0);
	return pid;
}

// Its group cannot be removed with its box. When the next one starts it can.
START_TEST(group_of_one_that_takes_its_time_to_die)
{
	struct boxkit k;
	char line[200];
	int status;
	boxkit_init(&k, BOXKIT_OURS);
	struct boxkit_box *x = boxkit_start(&k, 0);
	if (geteuid() == 0 && boxkit_groups(getpid()) == 1) {
		pid_t pid = start_stubborn();
		(void)snprintf(line, sizeof line,
			"echo %d | tee /sys/fs/cgroup/celld-gateway-%d-*/cgroup.procs "
			"/sys/fs/cgroup/unified/celld-gateway-%d-*/cgroup.procs >/dev/null 2>&1",
			(int)pid, (int)getpid(), (int)getpid());
		ck_assert_int_ge(system(line), 0);
		boxkit_end(x);
		ck_assert_int_eq(boxkit_groups(getpid()), 1);
		(void)boxkit_start(&k, 0);
		ck_assert_int_eq(boxkit_groups(getpid()), 2);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert_int_eq(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFSIGNALED(status));
		(void)boxkit_start(&k, 1);
		ck_assert_int_eq(boxkit_groups(getpid()), 2);
	}
	boxkit_release(&k);
}
END_TEST

Suite *gateway_apart_suite(void)
{
	Suite *s = suite_create("gateway_apart");
	TCase *t = tcase_create("apart");
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, what_is_shared_is_fixed, 0, BOXKIT_PLAIN);
	tcase_add_loop_test(t, raw_sockets_in_its_own_network_only, 0, 2 * BOXKIT_PLAIN);
	tcase_add_loop_test(t, keyrings_are_closed, 0, BOXKIT_PLAIN);
	tcase_add_test(t, others_lie_in_what_is_hidden);
	tcase_add_loop_test(t, places_are_mended, 0, BOXKIT_WAYS);
	tcase_add_loop_test(t, stopped_ones_end_with_their_box, 0, BOXKIT_WAYS);
	tcase_add_loop_test(t, one_that_was_sent_kill_does_not_live, 0, BOXKIT_WAYS);
	tcase_add_test(t, group_of_one_that_takes_its_time_to_die);
	suite_add_tcase(s, t);
	return s;
}
