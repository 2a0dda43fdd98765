// SPDX-License-Identifier: Apache-2.0
// Background runs that somebody disturbs: a crash, a stop, what commands plant in their way, a full disk.
#include "tests/integration/suites.h"
#include "tests/integration/workkit.h"

#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static bool is_dead(void *arg)
{
	return !pid_alive(*(pid_t *)arg);
}

static bool serves_again(void *arg)
{
	struct testd *d = arg;
	return d_refresh(d) > 0 && d_log_has(d, "daemon_restart");
}

static bool has_begun(void *arg)
{
	return strcmp(wk_content(wk_run_path(arg, "cut", "stdout")), "begun\n") == 0;
}

START_TEST(run_outlives_a_crash)
{
	struct testd *d = d_start("--init");
	struct resp r = {0};
	d_expect_crash(d);
	wk_submit(d, "done", "echo kept");
	wk_assert_over(d, "done", "completed", 0);
	wk_submit(d, "cut", "echo begun; while [ ! -e go ]; do sleep .05; done; echo over; exit 4");
	ck_assert(wait_until(has_begun, d, 5000));
	pid_t old = d->daemon;
	ck_assert_int_eq(kill(old, SIGKILL), 0);
	ck_assert(wait_until(is_dead, &old, 3000));
	ck_assert(wait_until(serves_again, d, 10000));
	ck_assert_str_eq(j_str(wk_run(d, "cut", &r), "status"), "running");
	ck_assert_int_eq(j_int(run(d, "touch go", &r), "exit_code"), 0);
	wk_assert_over(d, "cut", "completed", 4);
	ck_assert_str_eq(j_str(wk_run(d, "cut", &r), "stdout"), "begun\nover\n");
	wk_assert_over(d, "done", "completed", 0);
	wk_submit(d, "cut", "exit 3");
	wk_assert_over(d, "cut", "completed", 3);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static bool orderly_has_begun(void *arg)
{
	return strcmp(wk_content(wk_run_path(arg, "orderly", "stdout")), "begun\n") == 0;
}

START_TEST(run_cut_off_by_a_stop)
{
	char dir[] = "/tmp/celld-bg-XXXXXX";
	ck_assert_ptr_nonnull(mkdtemp(dir));
	const struct d_opts opts = {.workspace = dir};
	struct resp r = {0};
	struct testd *d = d_start_opts(&opts);
	wk_submit(d, "cut", "trap '' TERM; echo begun; while :; do sleep .1; done");
	wk_submit(d, "killed", "sleep 1000");
	wk_submit(d, "orderly", "trap 'exit 3' TERM; echo begun; while :; do sleep .1; done");
	ck_assert(wait_until(has_begun, d, 5000) && wait_until(orderly_has_begun, d, 5000));
	d_finish(d);
	d = d_start_opts(&opts);
	ck_assert_str_eq(j_str(wk_run(d, "cut", &r), "status"), "failed");
	ck_assert_str_eq(j_str(wk_run(d, "killed", &r), "status"), "failed");
	wk_assert_over(d, "orderly", "completed", 3);
	req(d, "POST", "/workspace/reset", NULL, &r);
	ck_assert_int_eq(r.status, 200);
	resp_release(&r);
	d_finish(d);
	guard_remove_tree(dir);
}
END_TEST

static const char *const plants[] = {
	"ln -s \"$OUT\" .k8e_bg",
	"mkfifo .k8e_bg",
	"echo x >.k8e_bg",
	"mkdir .k8e_bg; ln -s \"$OUT\" .k8e_bg/r",
	"mkdir .k8e_bg; mkfifo .k8e_bg/r",
	"mkdir -p .k8e_bg/r/stdout",
	"mkdir -p .k8e_bg/r/exit_code",
};

// Nothing is written through what a command has planted, nothing blocks, and it is no 200.
START_TEST(planted_directory)
{
	struct testd *d = d_start();
	struct resp r = {0};
	char out[300], cmd[512];
	(void)snprintf(out, sizeof out, "%s/out", d->base);
	ck_assert_int_eq(mkdir(out, 0777), 0);
	(void)snprintf(cmd, sizeof cmd, "OUT=%s; %s", out, plants[_i]);
	ck_assert_int_eq(j_int(run(d, cmd, &r), "exit_code"), 0);
	req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s}", "command", "touch ran", "run_id", "r");
	ck_assert_int_ge(r.status, 400);
	(void)assert_error(&r, r.status, NULL);
	ck_assert_int_lt(access(wk_path(d, "ran"), F_OK), 0);
	(void)wk_run(d, "r", &r);
	ck_assert_int_eq(rmdir(out), 0); // still empty
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The same where the directory itself is fine.
START_TEST(planted_files)
{
	static const char *const kinds[] = {"ln -sf \"$OUT\"", "mkfifo", "ln -f \"$OUT\""};
	static const char *const names[] = {
		"exit_code", ".exit_code", "end", ".end", "stdout", "pid", ".stdout", ".pid"};
	struct testd *d = d_start();
	struct resp r = {0};
	char out[300], cmd[1024];
	(void)snprintf(out, sizeof out, "%s/out", d->base);
	wk_put(out, "secret");
	for (int i = 0; i < COUNT(names); i++) {
		(void)snprintf(cmd, sizeof cmd,
			"OUT=%s; cd .k8e_bg/r 2>/dev/null || { mkdir -p .k8e_bg/r; cd .k8e_bg/r; }; rm -f %s; %s %s; "
			"exit 3",
			out, names[i], kinds[_i], names[i]);
		// Planted before a run and within one.
		ck_assert_int_eq(j_int(run(d, cmd, &r), "exit_code"), 3);
		wk_submit(d, "r", "exit 4");
		wk_assert_over(d, "r", "completed", 4);
		wk_submit(d, "r", cmd);
		(void)wk_await(d, "r", &r);
		ck_assert_int_eq(j_int(resp_json(&r), "exit_code"), 3);
		ck_assert_str_eq(wk_content(out), "secret");
		ck_assert_ptr_null(strstr(buf_cstr(&r.body), "secret"));
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(run_removes_its_own_files)
{
	struct testd *d = d_start();
	struct resp r = {0};
	wk_submit(d, "rm", "echo lost; rm -rf .k8e_bg; exit 9");
	const json_t *o = wk_await(d, "rm", &r);
	ck_assert_int_eq(j_int(o, "exit_code"), 9);
	ck_assert(j_bool(o, "truncated"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The disk that the run itself fills still takes how it ended.
START_TEST(full_disk)
{
	if (geteuid() != 0)
		return;
	char dir[] = "/tmp/celld-full-XXXXXX";
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("tmpfs", dir, "tmpfs", 0, "size=1m"), 0);
	const struct d_opts opts = {.workspace = dir};
	struct testd *d = d_start_opts(&opts);
	struct resp r = {0};
	req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s, s:s}", "command",
		"cat /dev/zero >fill; for i in $(seq 2000); do echo $i; done; exit 12", "run_id", "full", "session_id",
		"s");
	ck_assert_int_eq(r.status, 200);
	const json_t *o = wk_await(d, "full", &r);
	ck_assert_int_eq(j_int(o, "exit_code"), 12);
	ck_assert_str_eq(j_str(o, "status"), "completed");
	ck_assert(j_bool(o, "truncated"));
	// And everything works again once there is room.
	ck_assert_int_eq(j_int(run(d, "rm fill", &r), "exit_code"), 0);
	wk_submit(d, "next", "echo fine");
	ck_assert_str_eq(j_str(wk_await(d, "next", &r), "stdout"), "fine\n");
	resp_release(&r);
	d_finish(d);
	ck_assert_int_eq(umount2(dir, MNT_DETACH), 0);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

static bool at_baseline(void *arg)
{
	const int *want = ((void **)arg)[1];
	return d_fd_count(((void **)arg)[0]) <= *want;
}

START_TEST(thousand_runs_leak_nothing)
{
	struct testd *d = d_start("--retention", "0");
	struct client *c = client_connect(d);
	struct resp r = {0};
	char body[128], id[32];
	int fds = 0;
	long rss = 0;
	for (int i = 0; i < 1100; i++) {
		int n = snprintf(body, sizeof body,
			"{\"command\":\"echo $$\",\"run_id\":\"r%d\",\"session_id\":\"s%d\"}", i % 100, i % 7);
		do {
			client_request(c, "POST", "/exec/background", NULL, body, (size_t)n);
			client_response(c, &r);
			ck_assert(r.status == 200 || r.status == 409);
		} while (r.status == 409);
		if (i == 100) {
			wk_assert_over(d, "r0", "completed", 0);
			fds = d_fd_count(d);
			rss = d_rss_kib(d);
		}
	}
	for (int i = 0; i < 100; i++) {
		(void)snprintf(id, sizeof id, "r%d", i);
		wk_assert_over(d, id, "completed", 0);
	}
	void *arg[2] = {d, &fds};
	ck_assert_msg(wait_until(at_baseline, arg, 3000), "%d descriptors, %d before", d_fd_count(d), fds);
	ck_assert_int_le(d_rss_kib(d), rss + (d_sanitized(d) ? 40000 : 1500));
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *background_cut_suite(void)
{
	Suite *s = suite_create("background_cut");
	TCase *tc = h_tcase(s, "disturbed", 40);
	tcase_add_test(tc, run_outlives_a_crash);
	tcase_add_test(tc, run_cut_off_by_a_stop);
	tcase_add_loop_test(tc, planted_directory, 0, COUNT(plants));
	tcase_add_loop_test(tc, planted_files, 0, 3);
	tcase_add_test(tc, run_removes_its_own_files);
	tcase_add_test(tc, full_disk);
	tcase_add_test(tc, thousand_runs_leak_nothing);
	return s;
}
