// SPDX-License-Identifier: Apache-2.0
// Control groups: each command has its own, what of a command dies with it, which are taken again, and what outlives a daemon.
#include "tests/integration/deathkit.h"
#include "tests/integration/groupskit.h"
#include "tests/integration/suites.h"
#include "tests/integration/workkit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define START "process.Process/Start"

// --- each in its own ---

START_TEST(commands_share_a_group)
{
	enum { N = 6 };
	struct sse *s[N];
	struct resp r = {0};
	int numbers[N + 3];
	if (cg_none())
		return;
	struct testd *d = d_start("--cgroup", cg_base, CALLS_ENVD);
	for (int i = 0; i < N; i++) {
		s[i] = sse_exec(d, "sleep 900");
		numbers[i] = cg_pid_number(d, sse_pid(s[i]));
	}
	req_pack(d, "POST", "/pty/create", &r, "{s:[s,s]}", "argv", "sleep", "900");
	numbers[N] = cg_pid_number(d, j_int(resp_json(&r), "pid"));
	req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s}", "command", "sleep 900", "run_id", "b");
	ck_assert_int_eq(r.status, 200);
	numbers[N + 1] = cg_pid_number(d, atoi(wk_content(wk_run_path(d, "b", "pid"))));
	char *json = sh_request("sleep 900", "");
	struct stream *b = stream_open(d, START, CODEC_JSON, NULL, json);
	numbers[N + 2] = cg_pid_number(d, stream_pid(b));
	for (int i = 0; i < N + 3; i++) {
		ck_assert_msg(numbers[i] > 0, "number %d", i);
		for (int j = 0; j < i; j++)
			ck_assert_int_ne(numbers[i], numbers[j]);
	}
	free(json);
	stream_close(b);
	for (int i = 0; i < N; i++)
		sse_close(s[i]);
	resp_release(&r);
	cg_finish(d);
}
END_TEST

static bool few_groups(void *arg)
{
	int max = *(const int *)arg, n = cg_count("commands");
	return n >= 0 && n <= max;
}

struct baseline {
	const struct testd *d;
	int fds;
};

// Connections that were closed are noticed a moment later.
static bool at_baseline(void *arg)
{
	const struct baseline *b = arg;
	return d_fd_count(b->d) <= b->fds;
}

START_TEST(groups_pile_up)
{
	enum { N = 80 };
	struct sse *s[N];
	if (cg_none())
		return;
	struct testd *d = d_start("--cgroup", cg_base);
	int first = cg_run_number(d), fds = d_fd_count(d);
	ck_assert_int_gt(first, 0);
	for (int i = 0; i < 50; i++)
		ck_assert_int_eq(cg_run_number(d), first);
	ck_assert_int_eq(cg_count("commands"), 1);
	for (int i = 0; i < N; i++)
		s[i] = sse_exec(d, "read x");
	for (int i = 0; i < N; i++)
		(void)sse_pid(s[i]);
	ck_assert_int_eq(cg_count("commands"), N);
	for (int i = 0; i < N; i++)
		sse_close(s[i]);
	struct resp r = {0};
	req(d, "GET", "/exec/processes", NULL, &r);
	json_t *list = j_get(resp_json(&r), "processes");
	for (size_t i = 0; i < json_array_size(list); i++)
		death_feed(d, j_int(json_array_get(list, i), "pid"), "\n", 1);
	int max = 64;
	ck_assert_msg(wait_until(few_groups, &max, 5000), "%d groups are kept", cg_count("commands"));
	(void)cg_run_number(d);
	struct baseline end = {d, fds};
	ck_assert_msg(wait_until(at_baseline, &end, 3000), "%d descriptors, before: %d", d_fd_count(d), fds);
	resp_release(&r);
	cg_finish(d);
}
END_TEST

// --- what dies ---

static const char daemonize[] = "setsid sh -c 'trap \"\" TERM HUP; sleep 4142.1 >/dev/null 2>&1 &'; "
				"(setsid sh -c '(setsid sleep 4142.1 &)' >/dev/null 2>&1 &); ";

START_TEST(daemonized_process_outlives_the_timeout)
{
	struct resp r = {0};
	char command[512];
	if (cg_none())
		return;
	struct testd *d = d_start("--cgroup", cg_base);
	int before = cg_run_number(d);
	// After an end of its own it stays, as everywhere, in a group that nobody else gets.
	(void)snprintf(command, sizeof command, "%s cat /proc/self/cgroup", daemonize);
	ck_assert_int_eq(cg_number_in(j_str(run(d, command, &r), "stdout")), before);
	cg_assert_count(d, "sleep 4142.1", 2);
	int other = cg_run_number(d);
	ck_assert_int_ne(other, before);
	(void)snprintf(command, sizeof command, "%s sleep 4142.3", daemonize);
	for (int i = 0; i < 2; i++) {
		req_pack(d, "POST", "/exec", &r, "{s:s, s:f}", "command", command, "timeout", 0.7);
		ck_assert(j_bool(resp_json(&r), "timed_out"));
		cg_assert_count(d, "sleep 4142.3", 0);
		cg_assert_count(d, "sleep 4142.1", 2); // the first one's
	}
	ck_assert_int_gt(cg_run_number(d), 0); // groups that were killed are no trap
	(void)wk_reset(d, &r);
	cg_assert_count(d, "sleep 4142.1", 0);
	ck_assert_int_gt(cg_run_number(d), 0);
	ck_assert(!j_has(run(d, "exit 3", &r), "oom"));
	resp_release(&r);
	cg_finish(d);
}
END_TEST

START_TEST(process_outlives_the_sandbox)
{
	struct resp r = {0};
	char command[1024];
	if (cg_none())
		return;
	struct testd *d = d_start("--cgroup", cg_base, "--stop-grace", "200");
	(void)snprintf(command, sizeof command, "mkdir %s/commands/1/below; echo $?; %s", cg_base, daemonize);
	ck_assert_str_eq(j_str(run(d, command, &r), "stdout"), "0\n");
	cg_assert_count(d, "sleep 4142.1", 2);
	ck_assert_int_eq(d_stop(d, 5000), 0);
	cg_assert_count(d, "sleep 4142.1", 0);
	ck_assert_int_eq(cg_count_below(cg_base), 0);
	resp_release(&r);
	cg_finish(d);
}
END_TEST

// --- other daemons ---

static void replace(struct testd *d, bool upgrade)
{
	if (upgrade)
		death_upgrade(d);
	else
		death_crash(d, SIGKILL);
}

START_TEST(next_daemon_finds_no_group)
{
	struct sse_out o = {0};
	struct resp r = {0};
	char command[512];
	bool upgrade = _i;
	if (cg_none())
		return;
	struct testd *d = death_start_with("--cgroup", cg_base);
	(void)run(d, "(setsid sleep 4142.5 >/dev/null 2>&1 &)", &r);
	(void)snprintf(command, sizeof command, "%s echo up; sleep 4142.3", daemonize);
	int64_t start = h_now_ms();
	struct sse *s = sse_open_pack(
		d, "/exec/stream", "{s:s, s:i}", "command", command, "timeout", (int)(h_scaled(4000) / 1000));
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	int number = cg_pid_number(d, pid);
	ck_assert_int_gt(number, 0);
	for (int i = 0; i < 2; i++)
		replace(d, upgrade);
	sse_close(s);
	ck_assert_int_eq(cg_pid_number(d, pid), number);
	for (int i = 0; i < 8; i++) {
		int other = cg_run_number(d);
		ck_assert_int_gt(other, 0);
		ck_assert_int_ne(other, number);
	}
	cg_assert_count(d, "sleep 4142.1", 3); // the shell's script too
	s = sse_attach(d, pid);
	sse_collect(s, &o, 15000);
	ck_assert(o.end.timed_out && !j_has(o.end.obj, "oom"));
	ck_assert_int_ge(h_now_ms() - start, h_scaled(4000) / 1000 * 1000 - 100);
	cg_assert_count(d, "sleep 4142.1", 0);
	cg_assert_count(d, "sleep 4142.5", 1); // which belongs to no timeout
	ck_assert_int_eq(cg_count("commands-2"), -1);
	sse_close(s);
	sse_out_release(&o);
	resp_release(&r);
	cg_finish(d);
}
END_TEST

START_TEST(two_share_a_parent)
{
	if (cg_none())
		return;
	struct testd *a = d_start("--cgroup", cg_base), *b = d_start("--cgroup", cg_base);
	ck_assert_int_gt(cg_run_number(a), 0);
	ck_assert_int_eq(cg_count("commands-2"), 0);
	struct resp r = {0};
	ck_assert_ptr_nonnull(strstr(j_str(run(b, "cat /proc/self/cgroup", &r), "stdout"), "/commands-2/1\n"));
	resp_release(&r);
	d_finish(b);
	ck_assert_int_eq(cg_count("commands-2"), -1);
	ck_assert_int_gt(cg_run_number(a), 0);
	cg_finish(a);
}
END_TEST

Suite *cgroup_life_suite(void)
{
	Suite *s = suite_create("cgroup_life");
	TCase *tc = h_tcase(s, "groups", 60);
	tcase_add_checked_fixture(tc, cg_set_up, cg_tear_down);
	tcase_add_test(tc, commands_share_a_group);
	tcase_add_test(tc, groups_pile_up);
	tcase_add_test(tc, daemonized_process_outlives_the_timeout);
	tcase_add_test(tc, process_outlives_the_sandbox);
	tcase_add_loop_test(tc, next_daemon_finds_no_group, 0, 2);
	tcase_add_test(tc, two_share_a_parent);
	return s;
}
