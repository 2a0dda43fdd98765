// SPDX-License-Identifier: Apache-2.0
// Timeouts: what dies, what is spared, when the answer comes and what it holds. Signals that clients send are in check_signals.c.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

// All trees run at once, so they get time enough to stand before it is over.
#define TIMEOUT_S 2
#define TIMEOUT_MS ((int64_t)1000 * TIMEOUT_S)
#define LATE_MS ((int64_t)1500)

// A process of a test is known by its command line.
struct mark {
	const struct testd *d;
	const char *text;
	int count;
};

static bool count_is(void *arg)
{
	const struct mark *m = arg;
	return d_count_cmdline(m->d, m->text, NULL) == m->count;
}

static void assert_count(const struct testd *d, const char *text, int count, int64_t ms)
{
	struct mark m = {d, text, count};
	if (!wait_until(count_is, &m, ms))
		ck_abort_msg("%d processes of \"%s\", want %d", d_count_cmdline(d, text, NULL), text, count);
}

static bool no_commands(void *arg)
{
	return d_no_commands(arg);
}

static void assert_no_commands(struct testd *d, const char *what)
{
	if (!wait_until(no_commands, d, 2000))
		ck_abort_msg("%s: %d processes left below the daemon", what, d_children(d));
}

// B14, B15, B17: each tree holds one or more `sleep $M`, and all of it has to go.
static const struct {
	const char *name;
	const char *command;
} trees[] = {
	{"pipeline", "echo x | sh -c 'sleep $M'"},
	{"background jobs", "sleep $M & sleep $M & wait"},
	{"other groups", "set -m; sleep $M & sleep $M"},
	{"groups of a job control shell", "bash -c 'set -m; sleep $M & (sleep $M; :) & sleep $M | cat & wait'"},
	{"TERM is ignored", "trap '' TERM; sleep $M & wait; sleep $M"},
	{"everything is ignored", "trap '' HUP INT QUIT TERM PIPE USR1 USR2; setsid sh -c 'sleep $M; :' & wait"},
	{"new session, parent lives", "setsid sleep $M & wait"},
	{"new sessions below each other", "setsid sh -c 'setsid sh -c \"setsid sleep $M & wait\" & wait' & wait"},
	{"orphan of the session", "(sleep $M &); sleep $M"},
	{"orphan in its own group", "bash -c 'set -m; (sleep $M & sleep $M &) & wait %1; exec sleep $M'"},
	{"new session below an orphan", "(sh -c 'setsid sleep $M & wait' &); sleep $M"},
	{"stopped leader", "sleep $M & kill -STOP $$; sleep $M"},
	{"stopped child", "sh -c 'kill -STOP $$; sleep $M' & sleep $M"},
	{"nohup", "nohup sleep $M >/dev/null 2>&1 & wait"},
	{"closed pipes", "exec <&- >&- 2>&-; sleep $M & sleep $M"},
	{"leader waits in a read", "sleep $M | cat >/dev/null; :"},
	{"restarts what dies", "while :; do sleep $M; done"},
	{"restarter with sessions", "for i in 1 2 3; do (while :; do setsid sleep $M; done) & done; wait"},
};

// The body of a request that runs trees[I].
static char *tree_body(int i)
{
	char mark[32];
	(void)snprintf(mark, sizeof mark, "3141.%02d", i);
	json_t *o =
		json_pack("{s:s, s:i, s:{s:s}}", "command", trees[i].command, "timeout", TIMEOUT_S, "env", "M", mark);
	ck_assert_ptr_nonnull(o);
	char *text = j_text(o);
	json_decref(o);
	return text;
}

static void assert_on_time(const char *name, int64_t took)
{
	if (took < TIMEOUT_MS - 20 || took > TIMEOUT_MS + h_scaled(LATE_MS))
		ck_abort_msg("%s: the end came after %lld ms", name, (long long)took);
}

START_TEST(timeout_of_exec_leaves_processes)
{
	struct testd *d = d_start();
	struct client *c[COUNT(trees)];
	int64_t start[COUNT(trees)];
	struct resp r = {0};
	for (int i = 0; i < COUNT(trees); i++) {
		char *body = tree_body(i);
		c[i] = client_connect(d);
		start[i] = h_now_ms();
		client_request(c[i], "POST", "/exec", NULL, body, strlen(body));
		free(body);
	}
	assert_count(d, "sleep 3141.06", 1, 1500);
	for (int i = 0; i < COUNT(trees); i++) {
		client_response(c[i], &r);
		assert_on_time(trees[i].name, h_now_ms() - start[i]);
		ck_assert_int_eq(r.status, 200);
		const json_t *o = resp_json(&r);
		ck_assert_msg(j_bool(o, "timed_out"), "%s", trees[i].name);
		ck_assert_int_eq(j_int(o, "exit_code"), -1);
		ck_assert_str_eq(j_str(o, "signal"), "SIGKILL");
		assert_on_time(trees[i].name, j_int(o, "duration_ms"));
		client_close(c[i]);
	}
	assert_no_commands(d, "after the timeouts");
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(timeout_of_a_stream_leaves_processes)
{
	struct testd *d = d_start();
	struct sse *s[COUNT(trees)];
	int64_t start[COUNT(trees)];
	for (int i = 0; i < COUNT(trees); i++) {
		char *body = tree_body(i);
		start[i] = h_now_ms();
		s[i] = sse_open(d, "/exec/stream", body);
		free(body);
	}
	assert_count(d, "sleep 3141.06", 1, 1500);
	for (int i = 0; i < COUNT(trees); i++) {
		struct sse_out o = {0};
		sse_collect(s[i], &o, CLIENT_DEADLINE);
		assert_on_time(trees[i].name, o.end.at - start[i]);
		ck_assert_int_eq(o.end.kind, SSE_EXIT);
		ck_assert_msg(o.end.timed_out, "%s", trees[i].name);
		ck_assert_int_eq(o.end.code, -1);
		ck_assert_str_eq(o.end.signal, "SIGKILL");
		ck_assert(!o.end.truncated);
		sse_close(s[i]);
		sse_out_release(&o);
	}
	assert_no_commands(d, "after the timeouts");
	d_finish(d);
}
END_TEST

// B14: the client has left; the command lives on, but not beyond its time.
START_TEST(timeout_is_lost_with_its_client)
{
	struct testd *d = d_start();
	int64_t start[COUNT(trees)];
	for (int i = 0; i < COUNT(trees); i++) {
		char *body = tree_body(i);
		start[i] = h_now_ms();
		if (i % 2) {
			struct sse *s = sse_open(d, "/exec/stream", body);
			(void)sse_pid(s);
			sse_close(s);
		} else {
			struct client *c = client_connect(d);
			client_request(c, "POST", "/exec", NULL, body, strlen(body));
			client_abort(c);
		}
		free(body);
	}
	// One of a stream, one of an exec that was hung up on.
	assert_count(d, "sleep 3141.01", 2, 1500);
	assert_count(d, "sleep 3141.06", 1, 1500);
	while (h_now_ms() - start[0] < TIMEOUT_MS - 200)
		h_tick();
	ck_assert_int_eq(d_count_cmdline(d, "sleep 3141.01", NULL), 2);
	assert_no_commands(d, "clients that left");
	ck_assert_int_le(h_now_ms() - start[COUNT(trees) - 1], TIMEOUT_MS + h_scaled(LATE_MS));
	d_finish(d);
}
END_TEST

// A reader that does not read holds up the output, not the end of the command.
START_TEST(stuck_reader_keeps_a_command_beyond_its_timeout)
{
	struct testd *d = d_start();
	struct sse *s = sse_open_with(d, "/exec/stream", NULL,
		"{\"command\":\"while :; do echo 3141.90 $(head -c 20000 /dev/zero | tr '\\\\0' x); done\","
		"\"timeout\":1}",
		4096);
	assert_count(d, "3141.90", 0, 3000);
	assert_no_commands(d, "stuck reader");
	struct sse_out o = {0};
	sse_collect(s, &o, CLIENT_DEADLINE);
	ck_assert_int_eq(o.end.kind, SSE_EXIT);
	ck_assert(o.end.timed_out);
	ck_assert(!o.end.truncated);
	// Not at once either: the output began to flow.
	ck_assert_uint_gt(buf_len(&o.ch[FRAME_STDOUT]), 50000);
	sse_close(s);
	sse_out_release(&o);
	d_finish(d);
}
END_TEST

// A real daemon (new session, parent gone) is no part of the command: neither its timeout nor its end touches it. It ends
// with the sandbox, even if it ignores TERM; d_finish asserts that.
START_TEST(daemonized_process_dies_with_its_command)
{
	static const char daemonize[] = "setsid sh -c 'trap \"\" TERM HUP; sleep 3142.1 >/dev/null 2>&1 &'; "
					"setsid sh -c 'sleep 3142.2 >/dev/null 2>&1 &'; ";
	struct testd *d = d_start();
	struct resp r = {0};
	char command[512];
	(void)snprintf(command, sizeof command, "%s sleep 3142.3", daemonize);
	req_pack(d, "POST", "/exec", &r, "{s:s, s:i}", "command", command, "timeout", 1);
	ck_assert(j_bool(resp_json(&r), "timed_out"));
	assert_count(d, "sleep 3142.3", 0, 1000);
	ck_assert_int_eq(d_count_cmdline(d, "sleep 3142.1", NULL), 1);
	ck_assert_int_eq(d_count_cmdline(d, "sleep 3142.2", NULL), 1);

	(void)snprintf(command, sizeof command, "%s exit 3", daemonize);
	ck_assert_int_eq(j_int(run(d, command, &r), "exit_code"), 3);
	ck_assert_int_eq(d_count_cmdline(d, "sleep 3142.1", NULL), 2);
	ck_assert_int_eq(d_count_cmdline(d, "sleep 3142.2", NULL), 2);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static const char *const bombs[] = {
	// 511 processes that stay.
	"f() { [ $1 -ge 8 ] || { f $(($1+1)) & f $(($1+1)) & }; sleep 30; }; f 0",
	// Relays: each process starts its successor and ends, so that none lives long enough to be found twice.
	"f() { [ $1 -le 0 ] || f $(($1-1)) & }; for i in $(seq 20); do f 4000; done; sleep 30",
	// The same, a group of its own for each: only descent and session tell that they belong here.
	"bash -c 'set -m; f() { [ $1 -le 0 ] || f $(($1-1)) & }; for i in 1 2 3 4 5 6 7 8; do f 4000; done; sleep 30'",
};

// What forks faster than it is killed wins over a daemon that kills one by one.
START_TEST(fork_bomb_outruns_the_timeout)
{
	struct testd *d = d_start();
	struct resp r = {0};
	int64_t start = h_now_ms();
	req_pack(d, "POST", "/exec", &r, "{s:s, s:i}", "command", bombs[_i], "timeout", 1);
	ck_assert_int_eq(r.status, 200);
	ck_assert(j_bool(resp_json(&r), "timed_out"));
	ck_assert_int_le(h_now_ms() - start, 1000 + h_scaled(4000));
	if (!wait_until(no_commands, d, 1000))
		ck_abort_msg("%d processes are left", d_children(d));
	// It still serves.
	ck_assert_str_eq(j_str(run(d, "echo ok", &r), "stdout"), "ok\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B18
START_TEST(timeout_loses_output_of_exec)
{
	struct testd *d = d_start();
	struct resp r = {0};
	req_pack(d, "POST", "/exec", &r, "{s:s, s:i}", "command",
		"echo before; echo oops >&2; printf 'no newline'; (sleep .3; echo child) & sleep 9", "timeout", 1);
	const json_t *o = resp_json(&r);
	ck_assert_str_eq(j_str(o, "stdout"), "before\nno newlinechild\n");
	ck_assert_str_eq(j_str(o, "stderr"), "oops\n");
	ck_assert(j_bool(o, "timed_out"));
	ck_assert(!j_bool(o, "truncated"));
	ck_assert_int_eq(j_int(o, "exit_code"), -1);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B18: 100 kB shortly before the deadline, more than a pipe holds, to a reader that comes late.
START_TEST(timeout_loses_output_of_a_stream)
{
	struct testd *d = d_start();
	struct sse *s = sse_open_with(d, "/exec/stream", NULL,
		"{\"command\":\"sleep .5; head -c 100000 /dev/zero | tr '\\\\0' q; echo oops >&2; exec sleep 9\","
		"\"timeout\":1}",
		4096);
	assert_count(d, "sleep 9", 0, 3000);
	struct sse_out o = {0};
	struct buf want = {0};
	h_repeat(&want, "q", 100000);
	sse_collect(s, &o, CLIENT_DEADLINE);
	assert_bytes(&o.ch[FRAME_STDOUT], buf_data(&want), buf_len(&want));
	assert_text(&o.ch[FRAME_STDERR], "oops\n");
	ck_assert(o.end.timed_out);
	ck_assert(!o.end.truncated);
	sse_close(s);
	buf_release(&want);
	sse_out_release(&o);
	d_finish(d);
}
END_TEST

// What ended by itself has not timed out, however it ended; the timer goes with it.
START_TEST(end_before_the_deadline_counts_as_timeout)
{
	struct testd *d = d_start();
	struct resp r = {0};
	static const char *const commands[] = {
		"sleep .2; exit 0", "kill -KILL $$", "sleep 1.8 >/dev/null 2>&1 & exit 4"};
	for (int i = 0; i < COUNT(commands); i++) {
		req_pack(d, "POST", "/exec", &r, "{s:s, s:f}", "command", commands[i], "timeout", 1.2);
		ck_assert_int_eq(r.status, 200);
		ck_assert_msg(!j_bool(resp_json(&r), "timed_out"), "%s", commands[i]);
	}
	// The command was over; its timeout does not reach what it left behind.
	int64_t start = h_now_ms();
	while (h_now_ms() - start < 1400)
		h_tick();
	ck_assert_int_eq(d_count_cmdline(d, "sleep 1.8", NULL), 1);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static int64_t time_of(const struct testd *d, const char *body, bool timed_out)
{
	struct resp r = {0};
	int64_t start = h_now_ms();
	req(d, "POST", "/exec", body, &r);
	ck_assert_msg(r.status == 200, "%s: %d %s", body, r.status, buf_cstr(&r.body));
	ck_assert_msg(j_bool(resp_json(&r), "timed_out") == timed_out, "%s", body);
	resp_release(&r);
	return h_now_ms() - start;
}

START_TEST(timeout_is_misread)
{
	struct testd *d = d_start("--timeout", "0.5");
	struct resp r = {0};
	ck_assert_int_le(time_of(d, "{\"command\":\"sleep 9\"}", true), 500 + h_scaled(LATE_MS));
	ck_assert_int_le(time_of(d, "{\"command\":\"sleep 9\",\"timeout\":null}", true), 500 + h_scaled(LATE_MS));
	ck_assert_int_ge(time_of(d, "{\"command\":\"sleep 1\",\"timeout\":0}", false), 990);
	ck_assert_int_ge(time_of(d, "{\"command\":\"sleep 1\",\"timeout\":86400}", false), 990);
	ck_assert_int_le(time_of(d, "{\"command\":\"sleep 9\",\"timeout\":0.25}", true), 250 + h_scaled(LATE_MS));
	static const char *const bad[] = {"-1", "\"5\"", "true", "[]", "1e300"};
	for (int i = 0; i < COUNT(bad); i++) {
		char body[128];
		(void)snprintf(body, sizeof body, "{\"command\":\"echo 1 >ran\",\"timeout\":%s}", bad[i]);
		req(d, "POST", "/exec", body, &r);
		(void)assert_error(&r, 400, "invalid_argument");
	}
	ck_assert_str_eq(j_str(run(d, "ls", &r), "stdout"), "");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// While the daemon is stopped the command's clock stands still too, or every deadline would pass at once when it goes on.
START_TEST(deadline_passes_while_the_daemon_is_stopped)
{
	struct testd *d = d_start();
	struct sse_event e = {0};
	struct sse *s = sse_open_pack(d, "/exec/stream", "{s:s, s:i}", "command", "exec sleep 3143.1", "timeout", 4);
	(void)sse_pid(s);
	int64_t start = h_now_ms();
	ck_assert_int_eq(kill(d->daemon, SIGSTOP), 0);
	while (h_now_ms() - start < 4500)
		h_tick();
	ck_assert_int_eq(kill(d->daemon, SIGCONT), 0);
	// Four seconds of its own, give or take the second in which the stop is noticed.
	sse_expect(s, &e, SSE_EXIT, 8000);
	ck_assert_int_ge(e.at - start, 4500 + 2900);
	ck_assert_int_le(e.at - start, 4500 + 4000 + h_scaled(LATE_MS));
	ck_assert(e.timed_out);
	sse_event_release(&e);
	sse_close(s);
	d_finish(d);
}
END_TEST

// B14 when clients have used up the descriptors, which finding the processes of a tree takes too.
START_TEST(timeout_without_descriptors_leaves_processes)
{
	static const char tree[] =
		"{\"command\":\"setsid sleep 3142.1 & setsid sh -c 'sleep 3142.2 & wait' & wait\",\"timeout\":3}";
	static const char more[] = "{\"command\":\"exec sleep 3143\"}";
	const struct d_opts opts = {.nofile = 64};
	struct testd *d = d_start_opts(&opts);
	struct sse *s = sse_open(d, "/exec/stream", tree);
	struct sse_event e = {0};
	struct client *c[40];
	struct resp r = {0};
	int n = 0;
	(void)sse_pid(s);
	for (r.status = 200; r.status == 200 && n < 32; n++) {
		c[n] = client_connect(d);
		client_request(c[n], "POST", "/exec/stream", NULL, more, sizeof more - 1);
		client_response_head(c[n], &r);
	}
	ck_assert_int_eq(r.status, 503);
	// A command takes several; connections take the rest.
	for (int i = 0; i < 8; i++)
		c[n++] = client_connect(d);
	sse_expect(s, &e, SSE_EXIT, 8000);
	ck_assert(e.timed_out);
	assert_count(d, "sleep 3142", 0, 1000);
	for (int i = 0; i < n; i++)
		client_close(c[i]);
	sse_event_release(&e);
	resp_release(&r);
	sse_close(s);
	d_finish(d);
}
END_TEST

Suite *kills_suite(void)
{
	Suite *s = suite_create("kills");
	TCase *tc = h_tcase(s, "trees", 30);
	tcase_add_test(tc, timeout_of_exec_leaves_processes);
	tcase_add_test(tc, timeout_of_a_stream_leaves_processes);
	tcase_add_test(tc, timeout_is_lost_with_its_client);
	tcase_add_test(tc, stuck_reader_keeps_a_command_beyond_its_timeout);
	tcase_add_test(tc, daemonized_process_dies_with_its_command);
	tcase_add_loop_test(tc, fork_bomb_outruns_the_timeout, 0, COUNT(bombs));
	tcase_add_test(tc, timeout_without_descriptors_leaves_processes);
	tc = h_tcase(s, "deadlines", 30);
	tcase_add_test(tc, timeout_loses_output_of_exec);
	tcase_add_test(tc, timeout_loses_output_of_a_stream);
	tcase_add_test(tc, end_before_the_deadline_counts_as_timeout);
	tcase_add_test(tc, timeout_is_misread);
	tcase_add_test(tc, deadline_passes_while_the_daemon_is_stopped);
	return s;
}
