// SPDX-License-Identifier: Apache-2.0
// A sandbox in which the calls that celld makes its commands by are refused, as by container runtimes that are older than these calls, by strict
// ones, by emulated kernels: everything that is started starts all the same.
#include "tests/integration/deathkit.h"
#include "tests/integration/groupskit.h"
#include "tests/integration/suites.h"
#include "tests/integration/workkit.h"

#include <errno.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

// What each call is refused with; 0: it is not.
static const struct {
	int clone3, memory, pidfd; // memory: clone with memory that is shared
} refusals[] = {
	{ENOSYS, 0, 0},
	{EPERM, 0, EPERM},
	{ENOSYS, EPERM, 0},
	{EPERM, ENOSYS, ENOSYS},
};

// Threads, vfork (the shells of commands) and the leak checker's way to look at its own process are left alone.
#define SHARES (CLONE_VM | CLONE_VFORK | CLONE_THREAD | CLONE_UNTRACED)

static void refuse(scmp_filter_ctx ctx, int err, int call, struct scmp_arg_cmp *flags)
{
	if (err)
		ck_assert_int_eq(
			seccomp_rule_add_array(ctx, SCMP_ACT_ERRNO((uint32_t)err), call, flags ? 1 : 0, flags), 0);
}

static void assert_refused(int err, long result)
{
	if (err)
		ck_assert_msg(result == -1 && errno == err, "%ld, %s", result, strerror(errno));
}

// For this process and all that it starts.
static void refuse_calls(int which)
{
	struct scmp_arg_cmp shares = SCMP_A0(SCMP_CMP_MASKED_EQ, SHARES, CLONE_VM);
	scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
	ck_assert_ptr_nonnull(ctx);
	refuse(ctx, refusals[which].clone3, SCMP_SYS(clone3), NULL);
	refuse(ctx, refusals[which].memory, SCMP_SYS(clone), &shares);
	refuse(ctx, refusals[which].pidfd, SCMP_SYS(pidfd_open), NULL);
	ck_assert_int_eq(seccomp_load(ctx), 0);
	seccomp_release(ctx);
	// Of a kind that the kernel itself would refuse with another error.
	assert_refused(refusals[which].clone3, syscall(SYS_clone3, NULL, 0));
	assert_refused(
		refusals[which].memory, syscall(SYS_clone, CLONE_VM | CLONE_FS | CLONE_NEWNS, NULL, NULL, NULL, NULL));
	assert_refused(refusals[which].pidfd, syscall(SYS_pidfd_open, -1, 0));
}

START_TEST(command_does_not_start)
{
	refuse_calls(_i);
	struct testd *d = d_start();
	struct resp r = {0};
	struct sse_out o = {0};
	for (int i = 0; i < 3; i++) { // the first one finds out how, the others know
		json_t *a = run(d, "echo out; echo err >&2; ls /proc/self/fd | wc -l; exit 7", &r);
		ck_assert_str_eq(j_str(a, "stdout"), "out\n4\n");
		ck_assert_str_eq(j_str(a, "stderr"), "err\n");
		ck_assert_int_eq(j_int(a, "exit_code"), 7);
		sse_run(d, "echo out; echo err >&2; exit 3", 3, &o);
		assert_text(&o.ch[FRAME_STDOUT], "out\n");
		assert_text(&o.ch[FRAME_STDERR], "err\n");
		sse_out_release(&o);
		o = (struct sse_out){0};
	}
	ck_assert_str_eq(j_str(run(d, "kill -KILL $$", &r), "signal"), "SIGKILL");
	ck_assert_str_eq(j_str(run(d, "sh -c 'kill -INT $$'; echo $?", &r), "stdout"), "130\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

static void want_errno(const struct testd *d, const char *argv0, const char *workdir, int status, const char *name)
{
	struct resp r = {0};
	req_pack(d, "POST", "/pty/create", &r, "{s:[s], s:s}", "argv", argv0, "workdir", workdir);
	ck_assert_str_eq(j_str(assert_error(&r, status, NULL), "errno"), name);
	resp_release(&r);
}

struct before {
	const struct testd *d;
	int fds;
};

// The last connection may be closing still.
static bool descriptors_are_back(void *arg)
{
	const struct before *b = arg;
	return d_fd_count(b->d) <= b->fds;
}

START_TEST(missing_program_is_not_told)
{
	refuse_calls(_i);
	struct testd *d = d_start();
	struct resp r = {0};
	ck_assert_int_eq(j_int(run(d, ": >empty; chmod 755 empty", &r), "exit_code"), 0);
	int before = d_fd_count(d);
	for (int i = 0; i < 3; i++) {
		want_errno(d, "/no/such", "/", 404, "ENOENT");
		want_errno(d, "no-such-program", "/", 404, "ENOENT");
		want_errno(d, "/etc/passwd", "/", 403, "EACCES");
		want_errno(d, "./empty", d->workspace, 400, "ENOEXEC");
		want_errno(d, "true", "/no/such", 400, "ENOENT");
	}
	ck_assert_int_eq(j_int(run(d, "no-such-program", &r), "exit_code"), 127);
	ck_assert(wait_until(descriptors_are_back, &(struct before){d, before}, 5000));
	ck_assert_int_eq(d_zombies(d), 0);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(timeout_leaves_processes)
{
	refuse_calls(_i);
	struct testd *d = d_start("--grace", "100");
	struct resp r = {0};
	req_pack(d, "POST", "/exec", &r, "{s:s, s:f}", "command",
		"setsid sleep 3191 & sleep 3191 & trap '' TERM; sleep 3191", "timeout", 0.5);
	ck_assert(j_bool(resp_json(&r), "timed_out"));
	cg_assert_count(d, "sleep 3191", 0);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(terminal_is_none)
{
	refuse_calls(_i);
	struct testd *d = d_start();
	struct resp r = {0};
	struct sse_out o = {0};
	req_pack(d, "POST", "/pty/create", &r, "{s:[s,s,s], s:i, s:i}", "argv", "/bin/sh", "-c",
		"stty -echo; stty size; tty; read x </dev/tty; echo got $x; exit 6", "rows", 30, "cols", 100);
	ck_assert_int_eq(r.status, 200);
	int64_t pid = j_int(resp_json(&r), "pid");
	struct sse *s = sse_attach(d, pid);
	ck_assert_int_eq(sse_pid(s), pid);
	sse_until(s, FRAME_PTY, "/dev/pts/", &o.ch[FRAME_PTY], 5000);
	death_post(
		d, "/pty/input", "{s:I, s:s}", "terminal_id", j_int(resp_json(&r), "terminal_id"), "data", "typed\n");
	sse_collect(s, &o, 5000);
	ck_assert_int_eq(o.end.code, 6);
	ck_assert_ptr_nonnull(strstr(buf_cstr(&o.ch[FRAME_PTY]), "30 100\r\n"));
	ck_assert_ptr_nonnull(strstr(buf_cstr(&o.ch[FRAME_PTY]), "got typed\r\n"));
	sse_close(s);
	sse_out_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(crash_takes_commands_along)
{
	refuse_calls(_i);
	struct testd *d = death_start_with();
	struct resp r = {0};
	struct sse_out o = {0};
	int gate = death_gate(d, "gate");
	wk_submit(d, "lives", "read x <gate; echo lived $x; exit 4");
	struct sse *s = sse_exec(d, "echo up; read x; echo \"got $x\"; exit 7");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	death_crash(d, SIGKILL);
	death_was_cut(s);
	ck_assert(j_bool(death_row(d, pid, &r), "alive"));
	death_feed(d, pid, "hello\n", 6);
	death_collect(d, pid, 7, &o);
	assert_text(&o.ch[FRAME_STDOUT], "up\ngot hello\n");
	ck_assert_int_eq(write(gate, "on\n", 3), 3);
	ck_assert_str_eq(j_str(wk_await(d, "lives", &r), "stdout"), "lived on\n");
	ck_assert_int_eq(j_int(resp_json(&r), "exit_code"), 4);
	// Of the new daemon's, too.
	ck_assert_str_eq(j_str(run(d, "echo new", &r), "stdout"), "new\n");
	(void)close(gate);
	sse_out_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(command_is_not_confined)
{
	refuse_calls(_i);
	struct testd *d = d_start("--confine", "on", "--user", geteuid() == 0 ? "nobody" : "root");
	struct resp r = {0};
	const char *told =
		j_str(run(d, "id -u; ulimit -Hc; sed -n 's/^Seccomp_filters:.//p' /proc/self/status", &r), "stdout");
	char want[64];
	(void)snprintf(want, sizeof want, "%d\n0\n", geteuid() == 0 ? 65534 : (int)geteuid());
	ck_assert_msg(strncmp(told, want, strlen(want)) == 0, "%s", told);
	// This test's filter is the first one.
	const char *filters = told + strlen(want);
	ck_assert(!*filters || !d_log_has(d, "seccomp on") || strcmp(filters, "1\n") != 0);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(command_is_in_no_group)
{
	if (cg_none())
		return;
	refuse_calls(_i);
	struct testd *d = d_start("--cgroup", cg_base);
	int first = cg_run_number(d);
	ck_assert_int_gt(first, 0);
	struct sse *s = sse_exec(d, "read x");
	int held = cg_pid_number(d, sse_pid(s));
	ck_assert(held > 0 && held != cg_run_number(d));
	sse_close(s);
	cg_finish(d);
}
END_TEST

Suite *refused_suite(void)
{
	Suite *s = suite_create("refused");
	TCase *t = h_tcase(s, "calls", 30);
	tcase_add_loop_test(t, command_does_not_start, 0, COUNT(refusals));
	tcase_add_loop_test(t, missing_program_is_not_told, 0, COUNT(refusals));
	tcase_add_loop_test(t, timeout_leaves_processes, 0, COUNT(refusals));
	tcase_add_loop_test(t, terminal_is_none, 0, COUNT(refusals));
	tcase_add_loop_test(t, crash_takes_commands_along, 0, COUNT(refusals));
	tcase_add_loop_test(t, command_is_not_confined, 0, COUNT(refusals));
	t = h_tcase(s, "groups", 30);
	tcase_add_checked_fixture(t, cg_set_up, cg_tear_down);
	tcase_add_loop_test(t, command_is_in_no_group, 0, COUNT(refusals));
	return s;
}
