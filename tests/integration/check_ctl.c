// SPDX-License-Identifier: Apache-2.0
// celld ctl exec, attach, ps and kill, through pipes: bytes, statuses, signals.
#include "tests/integration/ctlkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BIG ((size_t)4 * 1024 * 1024 + 13)

START_TEST(output_comes_apart_with_the_status)
{
	struct testd *d = d_start();
	struct ctlrun c;
	ctl_exits(d, 7, &c, "exec", "--", "sh", "-c", "echo out; echo err >&2; exit 7");
	ck_assert_str_eq(ctl_out(&c), "out\n");
	ck_assert_str_eq(ctl_err(&c), "err\n");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

START_TEST(large_input_comes_back_byte_by_byte)
{
	struct testd *d = d_start();
	struct ctlrun c;
	unsigned char *p = ctl_noise(BIG);
	ctl_start(&c, d, NULL, ctl_words("exec", "-i", "cat"));
	ck_assert_int_eq(ctl_finish(&c, p, BIG), 0);
	assert_bytes(&c.said[0], p, BIG);
	ck_assert_uint_eq(buf_len(&c.said[1]), 0);
	ctl_release(&c);
	free(p);
	d_finish(d);
}
END_TEST

// Neither waits for the other: what nobody reads is dropped, what nobody sends is at its end.
START_TEST(input_that_nobody_wants_is_no_error)
{
	struct testd *d = d_start();
	struct ctlrun c;
	unsigned char *p = ctl_noise(BIG);
	ctl_start(&c, d, NULL, ctl_words("exec", "-i", "--", "sh", "-c", "exec <&-; sleep 0.2; echo done; exit 4"));
	ck_assert_int_eq(ctl_finish(&c, p, BIG), 4);
	ck_assert_str_eq(ctl_out(&c), "done\n");
	ctl_release(&c);
	ctl_start(&c, d, NULL, ctl_words("exec", "-i", "--", "wc", "-c"));
	ck_assert_int_eq(ctl_finish(&c, "", 0), 0);
	ck_assert_str_eq(ctl_out(&c), "0\n");
	ctl_release(&c);
	ctl_start(&c, d, NULL, ctl_words("exec", "--", "wc", "-c"));
	ck_assert_int_eq(ctl_finish(&c, "x", 1), 0);
	ck_assert_str_eq(ctl_out(&c), "0\n");
	ctl_release(&c);
	free(p);
	d_finish(d);
}
END_TEST

static bool nothing_runs(void *d)
{
	return d_no_commands(d);
}

// What cannot be read is not the end of the input, and the command is not left waiting.
START_TEST(unreadable_input_is_told)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char line[1200];
	(void)snprintf(line, sizeof line, "CELLD_URL=http://%s:%d '%s' ctl exec -i cat </ 2>%s/said", d->host, d->port,
		ctl_binary(), d->base);
	int status = system(line);
	ck_assert_int_eq(WEXITSTATUS(status), 125);
	(void)snprintf(
		line, sizeof line, "grep -qx 'celld ctl: input: Is a directory (invalid_argument)' %s/said", d->base);
	ck_assert_int_eq(system(line), 0);
	ck_assert(wait_until(nothing_runs, d, 5000));
	ctl_ok(d, &c, "ps", "-q");
	ck_assert_str_eq(ctl_out(&c), "");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

START_TEST(words_reach_the_command_as_they_are)
{
	static const char *const given[] = {"exec", "--", "printf", "<%s>", "a b", "it's", "$HOME", "*", "", "\\", "-n",
		"\"q\"", "new\nline", "gr\xc3\xbc\xc3\x9f", "`id`", "a=b", "~", "#", NULL};
	struct testd *d = d_start();
	struct ctlrun c;
	ck_assert_int_eq(ctl_run_env(&c, d, NULL, given), 0);
	ck_assert_str_eq(
		ctl_out(&c), "<a b><it's><$HOME><*><><\\><-n><\"q\"><new\nline><gr\xc3\xbc\xc3\x9f><`id`><a=b><~><#>");
	ctl_release(&c);
	// A name that the language of the shell has a meaning for.
	ctl_exits(d, 127, &c, "exec", "--", "while");
	ctl_assert_has(ctl_err(&c), "not found");
	ctl_release(&c);
	ctl_exits(d, 127, &c, "exec", "--", "-c");
	ctl_release(&c);
	ctl_exits(d, 2, &c, "exec", "--", "echo", "\xff");
	ctl_assert_has(ctl_err(&c), "not UTF-8");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

START_TEST(environment_and_directory_are_asked_for)
{
	struct testd *d = d_start();
	struct ctlrun c;
	ck_assert_int_eq(ctl_run_env(&c, d, ctl_words("HERE=from here"),
				 ctl_words("exec", "-e", "HERE", "-e", "A=1", "--env=A=2=3", "--env", "ABSENT", "-w",
					 "/tmp", "--", "sh", "-c", "pwd; echo $HERE $A ${ABSENT-none}")),
		0);
	ck_assert_str_eq(ctl_out(&c), "/tmp\nfrom here 2=3 none\n");
	ctl_release(&c);
	ck_assert_int_eq(ctl_run_env(&c, d, ctl_words("HERE=\xff"),
				 ctl_words("exec", "-e", "HERE", "--", "sh", "-c", "echo $HERE")),
		2);
	ctl_assert_has(ctl_err(&c), "--env: bytes that are not UTF-8 cannot be sent");
	ctl_release(&c);
	ctl_exits(d, 125, &c, "exec", "-w", "/nowhere", "true");
	ctl_assert_has(ctl_err(&c), "celld ctl: workdir /nowhere: No such file or directory (invalid_argument)\n");
	ctl_release(&c);
	ctl_ok(d, &c, "exec", "--session", "s1", "true");
	ctl_release(&c);
	char path[512];
	(void)snprintf(path, sizeof path, "%s/.k8e_transcripts/s1.log", d->workspace);
	ck_assert_int_eq(access(path, F_OK), 0);
	d_finish(d);
}
END_TEST

START_TEST(death_and_time_have_their_statuses)
{
	struct testd *d = d_start();
	struct ctlrun c;
	ctl_exits(d, 128 + SIGKILL, &c, "exec", "--", "sh", "-c", "kill -9 $$");
	ctl_release(&c);
	ctl_exits(d, 128 + SIGRTMIN + 3, &c, "exec", "--", "sh", "-c", "kill -37 $$");
	ctl_release(&c);
	// The signal that has two names.
	ctl_exits(d, 128 + SIGIO, &c, "exec", "--", "sh", "-c", "kill -29 $$");
	ctl_release(&c);
	ctl_exits(d, 124, &c, "exec", "--timeout", "200ms", "sleep", "60");
	ck_assert_str_eq(ctl_err(&c), "celld ctl: the command's time was up\n");
	ctl_release(&c);
	ctl_exits(d, 2, &c, "exec", "--timeout", "soon", "true");
	ctl_assert_has(ctl_err(&c), "--timeout: \"soon\" is no time");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

// SIGINT, SIGTERM, SIGHUP, SIGQUIT: the command decides.
START_TEST(signals_go_to_the_command)
{
	static const struct {
		int sig;
		const char *name;
	} all[] = {{SIGINT, "INT"}, {SIGTERM, "TERM"}, {SIGHUP, "HUP"}, {SIGQUIT, "QUIT"}};
	struct testd *d = d_start();
	struct ctlrun c;
	char script[160], want[32];
	(void)snprintf(script, sizeof script, "trap 'echo got %s; exit 3' %s; echo up; while :; do sleep 0.02; done",
		all[_i].name, all[_i].name);
	(void)snprintf(want, sizeof want, "up\ngot %s\n", all[_i].name);
	ctl_start(&c, d, NULL, ctl_words("exec", "--", "sh", "-c", script));
	ctl_until(&c, false, "up");
	ck_assert_int_eq(kill(c.pid, all[_i].sig), 0);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 3);
	ck_assert_str_eq(ctl_out(&c), want);
	ctl_release(&c);
	// One without a trap.
	ctl_start(&c, d, NULL, ctl_words("exec", "yes"));
	ctl_until(&c, false, "y\n");
	ck_assert_int_eq(kill(c.pid, all[_i].sig), 0);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 128 + all[_i].sig);
	ctl_release(&c);
	d_finish(d);
}
END_TEST

START_TEST(closed_output_ends_the_command)
{
	struct testd *d = d_start();
	struct ctlrun c;
	ctl_start(&c, d, NULL, ctl_words("exec", "yes"));
	ctl_until(&c, false, "y\ny\n");
	(void)close(c.out);
	c.out = -1;
	ck_assert_int_eq(ctl_finish(&c, "", 0), 128 + SIGPIPE);
	ck_assert_str_eq(ctl_err(&c), "");
	ctl_release(&c);
	ck_assert(wait_until(nothing_runs, d, 5000));
	d_finish(d);
}
END_TEST

// Who does not read holds the command up, and nothing is lost.
START_TEST(slow_reader_loses_nothing)
{
	struct testd *d = d_start();
	struct ctlrun c;
	ctl_start(&c, d, NULL,
		ctl_words("exec", "--", "sh", "-c", "head -c 20000000 /dev/zero; echo end >&2; echo written >written"));
	char path[512];
	(void)snprintf(path, sizeof path, "%s/written", d->workspace);
	int64_t until = h_now_ms() + 300;
	while (h_now_ms() < until)
		h_tick();
	ck_assert_int_ne(access(path, F_OK), 0);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 0);
	ck_assert_uint_eq(buf_len(&c.said[0]), 20000000);
	ck_assert_str_eq(ctl_err(&c), "end\n");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

START_TEST(frames_are_there_for_programs)
{
	struct testd *d = d_start();
	struct ctlrun c;
	ctl_exits(d, 3, &c, "exec", "--json", "--", "sh", "-c", "echo hi; exit 3");
	ctl_assert_has(ctl_out(&c), "{\"channel\":\"stdout\",\"data\":\"aGkK\"}\n");
	ctl_assert_has(ctl_out(&c), "{\"exit\":3}\n");
	ck_assert_int_eq(strncmp(ctl_out(&c), "{\"pid\":", 7), 0);
	ctl_release(&c);
	d_finish(d);
}
END_TEST

// --- ps, attach, kill ---

static int64_t background(const struct testd *d, const char *script, const char *mark)
{
	struct sse *s = sse_exec(d, script);
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, mark, NULL, 10000);
	sse_close(s);
	return pid;
}

START_TEST(ps_shows_what_runs)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char number[24];
	int64_t pid = background(d, "echo up; exec sleep 60 # \033[31m", "up");
	(void)snprintf(number, sizeof number, "%lld\n", (long long)pid);
	ctl_ok(d, &c, "ps", "-q");
	ck_assert_str_eq(ctl_out(&c), number);
	ctl_release(&c);
	ctl_ok(d, &c, "ps");
	ck_assert_int_eq(strncmp(ctl_out(&c), "     PID KIND ", 14), 0);
	ctl_assert_has(ctl_out(&c), "echo up; exec sleep 60 # ?[31m\n");
	ctl_release(&c);
	ctl_ok(d, &c, "ps", "--json");
	json_t *o = json_loads(ctl_out(&c), 0, NULL);
	ck_assert_int_eq(j_int(json_array_get(j_get(o, "processes"), 0), "pid"), pid);
	json_decref(o);
	ctl_release(&c);
	ctl_ok(d, &c, "ps", "--all");
	ctl_assert_has(ctl_out(&c), "sleep\n");
	ctl_release(&c);
	(void)snprintf(number, sizeof number, "%lld", (long long)pid);
	ctl_ok(d, &c, "kill", number);
	ctl_release(&c);
	ctl_exits(d, 128 + SIGTERM, &c, "attach", number);
	ctl_release(&c);
	d_finish(d);
}
END_TEST

START_TEST(attach_replays_and_follows)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char number[24];
	int64_t pid = background(
		d, "echo before; echo aside >&2; until [ -e go ]; do sleep 0.02; done; echo after; exit 6", "before");
	(void)snprintf(number, sizeof number, "%lld", (long long)pid);
	ctl_start(&c, d, NULL, ctl_words("attach", number));
	ctl_until(&c, false, "before\n");
	struct resp r = {0};
	req_pack(d, "POST", "/files/write", &r, "{s:s,s:s}", "path", "go", "content", "");
	ck_assert_int_eq(r.status, 200);
	resp_release(&r);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 6);
	ck_assert_str_eq(ctl_out(&c), "before\nafter\n");
	ck_assert_str_eq(ctl_err(&c), "aside\n");
	ctl_release(&c);
	ctl_exits(d, 125, &c, "attach", "999999");
	ck_assert_str_eq(ctl_err(&c), "celld ctl: process not found (not_found)\n");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

// It is somebody else's command.
START_TEST(ending_attach_leaves_the_command)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char number[24];
	int64_t pid = background(d, "echo up; exec sleep 60", "up");
	(void)snprintf(number, sizeof number, "%lld", (long long)pid);
	ctl_start(&c, d, NULL, ctl_words("attach", number));
	ctl_until(&c, false, "up");
	ck_assert_int_eq(kill(c.pid, SIGINT), 0);
	ck_assert_int_eq(ctl_finish(&c, "", 0), -1 - SIGINT);
	ctl_release(&c);
	ck_assert(d_nspid_alive(d, pid));
	ctl_ok(d, &c, "kill", "-s", "KILL", number);
	ctl_release(&c);
	d_finish(d);
}
END_TEST

START_TEST(kill_reaches_group_or_leader)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char number[24];
	int64_t pid = background(d,
		"sh -c 'trap \"echo child\" USR1; echo up; while :; do sleep 0.02; done' & "
		"trap 'echo leader' USR1; while :; do sleep 0.02; done",
		"up");
	(void)snprintf(number, sizeof number, "%lld", (long long)pid);
	struct ctlrun a;
	ctl_start(&a, d, NULL, ctl_words("attach", number));
	ctl_until(&a, false, "up");
	ctl_ok(d, &c, "kill", "--no-group", "-s", "SIGUSR1", number);
	ctl_release(&c);
	ctl_until(&a, false, "leader");
	ck_assert_ptr_null(strstr(ctl_out(&a), "child"));
	ctl_ok(d, &c, "kill", "-sUSR1", number);
	ctl_release(&c);
	ctl_until(&a, false, "child");
	ctl_ok(d, &c, "kill", "-s9", number);
	ctl_release(&c);
	ck_assert_int_eq(ctl_finish(&a, "", 0), 128 + SIGKILL);
	ctl_release(&a);
	ctl_exits(d, 1, &c, "kill", "999999");
	ck_assert_str_eq(ctl_err(&c), "celld ctl: 999999: process not found (not_found)\n");
	ctl_release(&c);
	ctl_exits(d, 2, &c, "kill", "x");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

Suite *ctl_suite(void)
{
	Suite *s = suite_create("ctl");
	TCase *tc = h_tcase(s, "exec", 60);
	tcase_add_test(tc, output_comes_apart_with_the_status);
	tcase_add_test(tc, large_input_comes_back_byte_by_byte);
	tcase_add_test(tc, input_that_nobody_wants_is_no_error);
	tcase_add_test(tc, unreadable_input_is_told);
	tcase_add_test(tc, words_reach_the_command_as_they_are);
	tcase_add_test(tc, environment_and_directory_are_asked_for);
	tcase_add_test(tc, death_and_time_have_their_statuses);
	tcase_add_loop_test(tc, signals_go_to_the_command, 0, 4);
	tcase_add_test(tc, closed_output_ends_the_command);
	tcase_add_test(tc, slow_reader_loses_nothing);
	tcase_add_test(tc, frames_are_there_for_programs);
	tc = h_tcase(s, "processes", 60);
	tcase_add_test(tc, ps_shows_what_runs);
	tcase_add_test(tc, attach_replays_and_follows);
	tcase_add_test(tc, ending_attach_leaves_the_command);
	tcase_add_test(tc, kill_reaches_group_or_leader);
	return s;
}
