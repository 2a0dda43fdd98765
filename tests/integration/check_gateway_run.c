// SPDX-License-Identifier: Apache-2.0
// The gateway as a program: what it says, its directory, its commands for operators, its end; and what a reset takes away or gives up.
#include "tests/integration/gatewaykit.h"
#include "tests/integration/suites.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// Runs the gateway's own binary with ARGS; all that it says goes to TEXT. The exit status.
static int run_it(const struct gw *g, const char *args, char *text, size_t size)
{
	char line[1024];
	(void)snprintf(line, sizeof line, "exec /proc/%d/exe %s 2>&1", (int)g->d->init, args);
	FILE *f = popen(line, "re");
	ck_assert_ptr_nonnull(f);
	size_t n = fread(text, 1, size - 1, f);
	text[n] = '\0';
	int status = pclose(f);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void want_text(const char *text, const char *what)
{
	ck_assert_msg(strstr(text, what) != NULL, "\"%s\" is not in \"%s\"", what, text);
}

START_TEST(nobody_says_what_to_try)
{
	struct gw *g = gw_start("--pool", "1", "--api-key", "e2b_00");
	char url[64], want[256];
	(void)snprintf(url, sizeof url, "http://127.0.0.1:%d", g->d->port);
	(void)snprintf(want, sizeof want, " ready: %s (1 warm, ", url);
	ck_assert(d_log_has(g->d, want));
	(void)snprintf(want, sizeof want, "export E2B_API_URL=%s E2B_SANDBOX_URL=%s E2B_API_KEY='e2b_00'\n", url, url);
	ck_assert(d_log_has(g->d, want));
	ck_assert(d_log_has(g->d, "from e2b import Sandbox"));
	(void)snprintf(want, sizeof want, " %s/v2/sandboxes\n", url);
	ck_assert(d_log_has(g->d, want));
	gw_finish(g);
}
END_TEST

START_TEST(commands_for_operators_do_nothing)
{
	struct gw *g = gw_start("--pool", "1", "--api-key", "e2b_00");
	struct sbx s;
	char args[256], text[4096], want[200];
	gw_create(g, &s, GW_BASE);
	(void)snprintf(args, sizeof args, "list --api-key e2b_00 --url http://127.0.0.1:%d", g->d->port);
	ck_assert_int_eq(run_it(g, args, text, sizeof text), 0);
	(void)snprintf(want, sizeof want, "%8d %s\n", (int)gw_pid(g, &s, NULL), s.id);
	want_text(text, want);
	(void)snprintf(args, sizeof args, "reclaim --api-key=e2b_00 --url=http://localhost:%d/", g->d->port);
	ck_assert_int_eq(run_it(g, args, text, sizeof text), 0);
	want_text(text, "reclaimed 0;");
	want_text(text, " 1 active ");
	(void)snprintf(args, sizeof args, "reclaim --api-key wrong --url http://127.0.0.1:%d", g->d->port);
	ck_assert_int_eq(run_it(g, args, text, sizeof text), 1);
	want_text(text, "status 401");
	(void)snprintf(args, sizeof args, "list --url ftp://127.0.0.1:%d", g->d->port);
	ck_assert_int_eq(run_it(g, args, text, sizeof text), 1);
	gw_finish(g);
}
END_TEST

START_TEST(two_gateways_share_a_directory)
{
	struct gw *g = gw_start("--pool", "1");
	char args[512], text[1024];
	gw_await(g, "warm", 1);
	(void)snprintf(args, sizeof args, "--listen 127.0.0.1:0 --celld /bin/sh --dir %s", g->dir);
	ck_assert_int_eq(run_it(g, args, text, sizeof text), 1);
	want_text(text, "another gateway is at work in it");
	gw_await(g, "warm", 1); // and has what it had
	struct sbx s;
	gw_create(g, &s, GW_BASE);
	free(gw_sh(g, &s, "true"));
	gw_finish(g);
}
END_TEST

static void make_dir(char *path, size_t n, const char *base, const char *name)
{
	(void)snprintf(path, n, "%s/%s", base, name);
	ck_assert_int_eq(mkdir(path, 0755), 0);
}

START_TEST(what_an_earlier_gateway_left_stays)
{
	static const char *const parts[] = {"slots", "slots/1", "slots/77", "paused", "paused/ix", "snapshots", "mine"};
	char base[] = "/tmp/celld-left-XXXXXX", path[200], left[200];
	ck_assert_ptr_nonnull(mkdtemp(base));
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		make_dir(path, sizeof path, base, parts[i]);
	struct gw *g = gw_start("--pool", "1", "--dir", base);
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		bool again = strcmp(parts[i], "slots/1") == 0 || !strchr(parts[i], '/'); // made anew, or not its own
		(void)snprintf(left, sizeof left, "%s/%s", base, parts[i]);
		ck_assert_msg((access(left, F_OK) == 0) == again, "%s", left);
	}
	gw_finish(g);
	ck_assert_int_eq(rmdir(path), 0); // "mine"
	ck_assert_int_eq(rmdir(base), 0); // all else is gone
}
END_TEST

static bool pid_gone(void *arg)
{
	return !pid_alive(*(pid_t *)arg);
}

START_TEST(sandboxes_outlive_a_gateway_that_was_killed)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	gw_create(g, &s, GW_BASE);
	pid_t pid = gw_pid(g, &s, NULL);
	d_expect_crash(g->d);
	d_signal(g->d, SIGKILL);
	ck_assert_int_eq(d_wait(g->d, 10000), -10);
	ck_assert_msg(wait_until(pid_gone, &pid, 10000), "its celld lives on");
	d_finish(g->d); // and what it ran
	free(g);
}
END_TEST

START_TEST(end_waits_for_what_is_at_work)
{
	struct gw *g = gw_start("--pool", "3");
	struct sbx s[3];
	struct stream *run[3];
	for (int i = 0; i < 3; i++) {
		gw_create(g, &s[i], GW_BASE);
		run[i] = stream_open(g->d, "process.Process/Start", CODEC_JSON, s[i].headers,
			"{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"trap '' TERM; sleep 1000\"]}}");
		stream_pid(run[i]);
	}
	int64_t t = h_now_ms();
	ck_assert_int_eq(d_stop(g->d, 20000), 0);
	ck_assert_int_lt(h_now_ms() - t, h_scaled(5000));
	for (int i = 0; i < 3; i++)
		stream_close(run[i]);
	ck_assert_int_eq(rmdir(g->dir), 0); // nothing is in it
	d_finish(g->d);
	free(g);
}
END_TEST

// What outlives processes: queues go with the reset; what only its owner may remove costs the sandbox. A plain child has those of the machine.
START_TEST(queues_or_shared_memory_stay_after_a_reset)
{
	static const char *const make[] = {"touch /dev/mqueue/q", "ipcmk -M 100", "ipcmk -Q", "ipcmk -S 1"};
	struct gw *g = gw_start("--pool", "1", "--max-sandboxes", "1");
	struct sbx a, b;
	gw_create(g, &a, GW_BASE);
	pid_t pid = gw_pid(g, &a, NULL);
	if (g->isolated) {
		free(gw_sh(g, &a, make[_i]));
		gw_kill(g, &a);
		gw_create(g, &b, GW_BASE);
		ck_assert_int_eq(gw_pid(g, &b, NULL) == pid, _i == 0);
		char *text = gw_sh(g, &b, "cat /proc/sysvipc/* | grep -v key; ls -A /dev/mqueue");
		ck_assert_str_eq(text, "");
		free(text);
	}
	gw_finish(g);
}
END_TEST

// A reset without an answer is given up after 10 s, and the sandbox with it; the session's own end does not wait for it.
START_TEST(daemon_that_does_not_answer_holds_its_slot_for_ever)
{
	struct gw *g = gw_start("--pool", "1", "--max-sandboxes", "1");
	struct sbx a, b;
	char path[64], pids[64] = "";
	gw_create(g, &a, GW_BASE);
	pid_t pid = gw_pid(g, &a, NULL);
	(void)snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)pid);
	FILE *f = fopen(path, "re");
	ck_assert(f && fgets(pids, sizeof pids, f));
	(void)fclose(f);
	ck_assert_int_eq(kill((pid_t)strtol(pids, NULL, 10), SIGSTOP), 0);
	gw_kill(g, &a);
	gw_create(g, &b, GW_BASE); // waits for the room
	ck_assert_int_ne(gw_pid(g, &b, NULL), pid);
	ck_assert(!pid_alive(pid));
	free(gw_sh(g, &b, "true"));
	gw_finish(g);
}
END_TEST

Suite *gateway_run_suite(void)
{
	Suite *s = suite_create("gateway_run");
	TCase *tc = h_tcase(s, "run", 40);
	tcase_add_test(tc, nobody_says_what_to_try);
	tcase_add_test(tc, commands_for_operators_do_nothing);
	tcase_add_test(tc, two_gateways_share_a_directory);
	tcase_add_test(tc, what_an_earlier_gateway_left_stays);
	tcase_add_test(tc, sandboxes_outlive_a_gateway_that_was_killed);
	tcase_add_test(tc, end_waits_for_what_is_at_work);
	tcase_add_loop_test(tc, queues_or_shared_memory_stay_after_a_reset, 0, 4);
	tcase_add_test(tc, daemon_that_does_not_answer_holds_its_slot_for_ever);
	return s;
}
