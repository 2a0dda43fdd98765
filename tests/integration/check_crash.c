// SPDX-License-Identifier: Apache-2.0
// A daemon that dies beside its init part while commands run: the next one has them all, as if nothing had happened.
#include "tests/integration/deathkit.h"
#include "tests/integration/suites.h"

#include "proto/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define START "process.Process/Start"
#define CONNECT "process.Process/Connect"

static const int deaths[] = {SIGKILL, SIGSEGV, SIGABRT, DEATH_FAULT};

static const char *death_text(int sig)
{
	return sig == DEATH_FAULT ? strsignal(SIGSEGV) : strsignal(sig);
}

START_TEST(crash_takes_a_command_along)
{
	static const char script[] = "echo up; echo err >&2; read x; echo \"got $x\"; exit 7";
	struct testd *d = death_start_with();
	struct resp r = {0};
	struct sse_out o = {0};
	bool faulted = false;
	(void)run(d, "setsid sleep 1017 >/dev/null 2>&1 & echo", &r);
	struct sse *s = sse_exec(d, script);
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDERR, "err\n", NULL, 5000);
	pid_t init = d->init, old = death_kill(d, deaths[_i], &faulted);
	// Connects while there may be no daemon: the listening socket is init's.
	death_assert_serves(d);
	death_await(d, old, 3000);
	death_was_cut(s);
	ck_assert(pid_alive(init));
	ck_assert_int_eq(d_count_cmdline(d, "sleep 1017", NULL), 1);
	json_t *row = death_row(d, pid, &r);
	ck_assert_msg(row, "the command is not listed");
	ck_assert(j_bool(row, "alive"));
	ck_assert_str_eq(j_str(row, "config"), script);
	ck_assert_str_eq(j_str(row, "kind"), "exec");
	death_feed(d, pid, "hello\n", 6);
	death_collect(d, pid, 7, &o);
	assert_text(&o.ch[FRAME_STDOUT], "up\ngot hello\n");
	assert_text(&o.ch[FRAME_STDERR], "err\n");
	ck_assert(o.done && !o.end.truncated);
	death_assert_log(d, "daemon_died");
	death_assert_log(d, death_text(deaths[_i]));
	death_assert_log(d, "daemon_restart");
	json_t *status = death_status(d, &r);
	ck_assert_int_eq(j_int(status, "restarts"), 1);
	ck_assert_ptr_nonnull(strstr(j_str(status, "last_death"), faulted ? DEATH_FAULT_AT : death_text(deaths[_i])));
	sse_out_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(tagged_process_is_lost_on_the_other_surface)
{
	struct testd *d = death_start_with();
	enum codec codec = (enum codec)_i;
	struct played o = {0};
	char *json = sh_request("echo up; read x; echo \"got $x\"; cat; exit 5", ",\"tag\":\"kept\",\"stdin\":true");
	struct stream *s = stream_open(d, START, codec, NULL, json);
	int64_t pid = stream_pid(s);
	stream_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	json_t *before = call(d, "process.Process/List", codec, NULL, "{}");
	death_crash(d, deaths[_i]);
	json_t *after = call(d, "process.Process/List", codec, NULL, "{}");
	ck_assert_msg(json_equal(before, after), "%s became %s", j_text(before), j_text(after));
	stream_close(s);
	s = stream_open(d, CONNECT, codec, NULL, "{\"process\":{\"tag\":\"kept\"}}");
	ck_assert_int_eq(stream_pid(s), pid);
	json_decref(call(d, "process.Process/SendInput", codec, NULL,
		"{\"process\":{\"tag\":\"kept\"},\"input\":{\"stdin\":\"YQpiCg==\"}}"));
	json_decref(call(d, "process.Process/CloseStdin", codec, NULL, "{\"process\":{\"tag\":\"kept\"}}"));
	stream_play(s, &o, 5000);
	played_assert_exit(&o, 5);
	assert_text(&o.ch[FRAME_STDOUT], "got a\nb\n");
	played_release(&o);
	stream_close(s);
	json_decref(before);
	json_decref(after);
	free(json);
	d_finish(d);
}
END_TEST

// --- while there is no daemon ---

START_TEST(output_of_the_time_without_a_daemon_is_lost)
{
	struct testd *d = death_start_with();
	struct sse_out o = {0};
	int gate = death_gate(d, "gate");
	struct sse *s =
		sse_exec(d, "echo before; read x <gate; echo during; echo there >&2; touch told; read x <gate; exit 3");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "before\n", NULL, 5000);
	pid_t old = death_down(d, SIGKILL);
	death_was_cut(s);
	ck_assert_int_eq(write(gate, "\n", 1), 1);
	death_await_file(d, "told", "");
	death_up(d, old);
	ck_assert_int_eq(write(gate, "\n", 1), 1);
	death_collect(d, pid, 3, &o);
	assert_text(&o.ch[FRAME_STDOUT], "before\nduring\n");
	assert_text(&o.ch[FRAME_STDERR], "there\n");
	ck_assert(!o.end.truncated);
	sse_out_release(&o);
	(void)close(gate);
	d_finish(d);
}
END_TEST

struct gone {
	const struct testd *d;
	int64_t pid;
};

static bool is_gone(void *arg)
{
	const struct gone *g = arg;
	return !d_nspid_alive(g->d, g->pid);
}

static void await_gone(const struct testd *d, int64_t pid)
{
	struct gone g = {d, pid};
	ck_assert_msg(wait_until(is_gone, &g, 5000), "%lld lives on", (long long)pid);
}

START_TEST(exit_of_the_time_without_a_daemon_is_lost)
{
	struct testd *d = death_start_with();
	int64_t pid[12], killed;
	struct resp r = {0};
	int gate = death_gate(d, "gate");
	for (int i = 0; i < COUNT(pid); i++) {
		char script[80];
		(void)snprintf(script, sizeof script, "read x <gate; echo late; exit %d", i + 40);
		struct sse *s = sse_exec(d, script);
		pid[i] = sse_pid(s);
		sse_close(s);
	}
	struct sse *s = sse_exec(d, "exec sleep 1018");
	killed = sse_pid(s);
	sse_close(s);
	pid_t old = death_down(d, deaths[_i]);
	for (int i = 0; i < COUNT(pid); i++)
		ck_assert_int_eq(write(gate, "\n", 1), 1);
	ck_assert_int_eq(kill(d_outside_pid(d, killed), SIGUSR1), 0);
	for (int i = 0; i < COUNT(pid); i++)
		await_gone(d, pid[i]);
	await_gone(d, killed);
	death_up(d, old);
	for (int i = 0; i < COUNT(pid); i++) {
		struct sse_out o = {0};
		death_collect(d, pid[i], i + 40, &o);
		assert_text(&o.ch[FRAME_STDOUT], "late\n");
		sse_out_release(&o);
		ck_assert_ptr_null(death_row(d, pid[i], &r));
	}
	struct sse_out o = {0};
	s = sse_attach(d, killed);
	sse_collect(s, &o, 5000);
	ck_assert_str_eq(o.end.signal, "SIGUSR1");
	sse_close(s);
	sse_out_release(&o);
	resp_release(&r);
	(void)close(gate);
	d_finish(d);
}
END_TEST

START_TEST(timeout_waits_for_a_daemon_in_vain)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	struct sse_out o = {0};
	int64_t start = h_now_ms();
	struct sse *s = sse_open_pack(
		d, "/exec/stream", "{s:s,s:f}", "command", "echo up; sleep 1019 & sleep 1019", "timeout", 0.7);
	int64_t pid = sse_pid(s);
	struct sse *later = sse_open_pack(
		d, "/exec/stream", "{s:s,s:f}", "command", "exec sleep 1019", "timeout", (double)h_scaled(2500) / 1000);
	int64_t later_start = h_now_ms(), later_pid = sse_pid(later);
	pid_t old = death_down(d, SIGKILL);
	sse_close(s);
	sse_close(later);
	death_wait_until(start, 900);
	ck_assert_msg(d_nspid_alive(d, pid), "ended by nobody");
	death_up(d, old);
	int64_t back = h_now_ms();
	s = sse_attach(d, pid);
	sse_collect(s, &o, 3000);
	ck_assert_int_le(h_now_ms() - back, h_scaled(600));
	ck_assert(o.end.kind == SSE_EXIT && o.end.timed_out);
	ck_assert_int_eq(o.end.code, -1);
	assert_text(&o.ch[FRAME_STDOUT], "up\n");
	sse_close(s);
	sse_out_release(&o);
	// One that was not due keeps its time.
	ck_assert_ptr_nonnull(death_row(d, later_pid, &r));
	s = sse_attach(d, later_pid);
	o = (struct sse_out){0};
	sse_collect(s, &o, 5000);
	ck_assert(o.end.timed_out);
	ck_assert_int_ge(h_now_ms() - later_start, h_scaled(2500) - 50);
	ck_assert_int_le(h_now_ms() - later_start, h_scaled(3300));
	sse_close(s);
	sse_out_release(&o);
	ck_assert_int_eq(d_count_cmdline(d, "sleep 1019", NULL), 0);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(started_before_during_and_after)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	struct sse_out o = {0};
	struct sse *s = sse_exec(d, "read x; exit 11");
	int64_t before = sse_pid(s);
	pid_t old = death_down(d, SIGKILL);
	sse_close(s);
	struct client *c = client_connect(d);
	static const char body[] = "{\"command\":\"echo during; exit 12\"}";
	client_request(c, "POST", "/exec", NULL, body, sizeof body - 1);
	ck_assert(client_silent(c, 50));
	death_up(d, old);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_int_eq(j_int(resp_json(&r), "exit_code"), 12);
	ck_assert_str_eq(j_str(resp_json(&r), "stdout"), "during\n");
	client_close(c);
	ck_assert_int_eq(j_int(run(d, "exit 13", &r), "exit_code"), 13);
	death_feed(d, before, "\n", 1);
	death_collect(d, before, 11, &o);
	sse_out_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- what can be done to a command that was taken over ---

START_TEST(input_is_lost_or_comes_twice)
{
	enum { FIRST = 40000, MORE = 25000 };
	struct testd *d = death_start_with();
	struct sse_out o = {0};
	int gate = death_gate(d, "gate");
	char bytes[FIRST + MORE];
	for (int i = 0; i < FIRST + MORE; i++)
		bytes[i] = (char)('a' + i % 23);
	struct sse *s = sse_exec(d, "read x <gate; cat >file; exit 9");
	int64_t pid = sse_pid(s);
	death_feed(d, pid, bytes, FIRST);
	death_crash(d, deaths[_i]);
	sse_close(s);
	death_feed(d, pid, bytes + FIRST, MORE);
	death_crash(d, deaths[_i]);
	death_post(d, "/exec/stdin/close", "{s:I}", "pid", (json_int_t)pid);
	ck_assert_int_eq(write(gate, "\n", 1), 1);
	death_collect(d, pid, 9, &o);
	char *file = death_file(d, "file");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(strlen(file), FIRST + MORE);
	ck_assert_int_eq(memcmp(file, bytes, FIRST + MORE), 0);
	free(file);
	sse_out_release(&o);
	(void)close(gate);
	d_finish(d);
}
END_TEST

// What the daemon itself still held goes with it; what the pipe had is there, once.
START_TEST(queued_input_comes_twice)
{
	enum { ALL = 300000 };
	struct testd *d = death_start_with();
	struct sse_out o = {0};
	int gate = death_gate(d, "gate");
	char *bytes = malloc(ALL);
	ck_assert_ptr_nonnull(bytes);
	for (int i = 0; i < ALL; i++)
		bytes[i] = (char)('a' + i % 23);
	struct sse *s = sse_exec(d, "read x <gate; cat >file; exit 9");
	int64_t pid = sse_pid(s);
	death_feed(d, pid, bytes, ALL);
	death_crash(d, SIGKILL);
	sse_close(s);
	death_post(d, "/exec/stdin/close", "{s:I}", "pid", (json_int_t)pid);
	ck_assert_int_eq(write(gate, "\n", 1), 1);
	death_collect(d, pid, 9, &o);
	char *file = death_file(d, "file");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_ge(strlen(file), 4096);
	ck_assert_uint_le(strlen(file), ALL);
	ck_assert_int_eq(memcmp(file, bytes, strlen(file)), 0);
	free(file);
	free(bytes);
	sse_out_release(&o);
	(void)close(gate);
	d_finish(d);
}
END_TEST

START_TEST(signal_finds_nobody)
{
	struct testd *d = death_start_with();
	struct sse_out o = {0};
	struct sse *s = sse_exec(d, "trap 'echo usr; exit 6' USR1; echo up; while :; do sleep .02; done");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	struct sse *plain = sse_exec(d, "sleep 1020 & sleep 1020");
	int64_t plain_pid = sse_pid(plain);
	death_crash(d, deaths[_i]);
	sse_close(s);
	sse_close(plain);
	death_post(d, "/exec/signal", "{s:I,s:s}", "pid", (json_int_t)pid, "signal", "USR1");
	death_collect(d, pid, 6, &o);
	assert_text(&o.ch[FRAME_STDOUT], "up\nusr\n");
	sse_out_release(&o);
	death_post(d, "/exec/signal", "{s:I,s:s}", "pid", (json_int_t)plain_pid, "signal", "KILL");
	s = sse_attach(d, plain_pid);
	o = (struct sse_out){0};
	sse_collect(s, &o, 5000);
	ck_assert_str_eq(o.end.signal, "SIGKILL");
	ck_assert_int_eq(d_count_cmdline(d, "sleep 1020", NULL), 0);
	sse_close(s);
	sse_out_release(&o);
	d_finish(d);
}
END_TEST

// The terminal of id ID by its own stream, until TEXT came.
static void terminal_says(const struct testd *d, int64_t id, const char *text)
{
	char target[64];
	(void)snprintf(target, sizeof target, "/pty/stream?terminal_id=%lld", (long long)id);
	struct sse *s = sse_open(d, target, NULL);
	(void)sse_pid(s);
	sse_until(s, FRAME_PTY, text, NULL, 5000);
	sse_close(s);
}

START_TEST(terminal_is_hung_up)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	struct sse_out o = {0};
	req_pack(d, "POST", "/pty/create", &r, "{s:[s,s,s],s:i,s:i}", "argv", "/bin/sh", "-c",
		"stty -echo; trap 'echo hup' HUP; trap 'stty size' WINCH; echo up; "
		"while :; do read x || continue; [ \"$x\" = end ] && exit 8; echo \"<$x>\"; done",
		"rows", 20, "cols", 70);
	ck_assert_int_eq(r.status, 200);
	int64_t id = j_int(resp_json(&r), "terminal_id"), pid = j_int(resp_json(&r), "pid");
	terminal_says(d, id, "up\r\n");
	death_crash(d, deaths[_i]);
	death_post(d, "/pty/input", "{s:I,s:s}", "terminal_id", (json_int_t)id, "data", "one\n");
	terminal_says(d, id, "<one>\r\n");
	death_post(d, "/pty/resize", "{s:I,s:i,s:i}", "terminal_id", (json_int_t)id, "rows", 33, "cols", 99);
	death_post(d, "/pty/input", "{s:I,s:s}", "terminal_id", (json_int_t)id, "data", "two\n");
	terminal_says(d, id, "33 99\r\n");
	char target[64];
	(void)snprintf(target, sizeof target, "/pty/foreground?terminal_id=%lld", (long long)id);
	req(d, "GET", target, NULL, &r);
	ck_assert_int_eq(j_int(resp_json(&r), "process_group_id"), pid);
	// A second terminal does not get the number of the first.
	req_pack(d, "POST", "/pty/create", &r, "{s:[s,s]}", "argv", "sleep", "1021");
	int64_t other = j_int(resp_json(&r), "terminal_id");
	ck_assert_int_gt(other, id);
	death_crash(d, SIGKILL);
	death_post(d, "/pty/destroy", "{s:I,s:i}", "terminal_id", (json_int_t)other, "grace_ms", 500);
	ck_assert_int_eq(d_count_cmdline(d, "sleep 1021", NULL), 0);
	death_post(d, "/pty/input", "{s:I,s:s}", "terminal_id", (json_int_t)id, "data", "end\n");
	death_collect(d, pid, 8, &o);
	const char *all = buf_cstr(&o.ch[FRAME_PTY]);
	ck_assert_msg(strncmp(all, "up\r\n<one>\r\n", 11) == 0 && !strstr(all, "hup"), "%s", all);
	sse_out_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- those that have ended ---

START_TEST(ended_command_is_forgotten)
{
	struct testd *d = death_start_with("--retention", "3");
	struct resp r = {0};
	struct sse_out o = {0};
	int64_t start = h_now_ms();
	sse_run(d, "echo kept; echo too >&2; exit 5", 5, &o);
	int64_t pid = o.pid;
	sse_out_release(&o);
	death_crash(d, deaths[_i]);
	for (int round = 0; round < 2; round++) {
		o = (struct sse_out){0};
		death_collect(d, pid, 5, &o);
		assert_text(&o.ch[FRAME_STDOUT], "kept\n");
		assert_text(&o.ch[FRAME_STDERR], "too\n");
		ck_assert(!o.end.truncated);
		sse_out_release(&o);
		if (round == 0)
			death_crash(d, SIGKILL);
	}
	ck_assert_ptr_null(death_row(d, pid, &r));
	char target[64];
	(void)snprintf(target, sizeof target, "/exec/attach?pid=%lld", (long long)pid);
	// Its time goes on from its end, not from the crash. (A slow machine may have used it up above.)
	death_wait_until(start, 3300);
	int64_t end = h_now_ms() + h_scaled(3000);
	do {
		ck_assert_int_lt(h_now_ms(), end);
		req(d, "GET", target, NULL, &r);
	} while (r.status == 200);
	(void)assert_error(&r, 404, NULL);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Whether it lies beside the record or on pages of its own, whether all of it is kept or the last 64 KiB.
START_TEST(ended_output_is_lost_or_cut)
{
	static const int sizes[] = {0, 1, 200, 250, 320, 5000, 65536, 65700, 200000};
	struct testd *d = death_start_with();
	struct sse_out o = {0};
	char command[128];
	int64_t pids[COUNT(sizes)];
	for (size_t i = 0; i < COUNT(sizes); i++) {
		(void)snprintf(command, sizeof command, "head -c %d /dev/zero | tr '\\0' %c; exit %d", sizes[i],
			'a' + (int)i, 10 + (int)i);
		sse_run(d, command, 10 + (int64_t)i, &o);
		ck_assert_uint_eq(buf_len(&o.ch[FRAME_STDOUT]), (size_t)sizes[i]);
		pids[i] = o.pid;
		sse_out_release(&o);
		o = (struct sse_out){0};
	}
	for (int daemon = 0; daemon < 3; daemon++) {
		for (size_t i = 0; i < COUNT(sizes); i++) {
			death_collect(d, pids[i], 10 + (int64_t)i, &o);
			const unsigned char *p = buf_data(&o.ch[FRAME_STDOUT]);
			size_t n = buf_len(&o.ch[FRAME_STDOUT]);
			for (size_t k = 0; k < n; k++) {
				if (p[k] != 'a' + i)
					ck_abort_msg("another's output");
			}
			ck_assert_uint_le(n, (size_t)sizes[i]);
			ck_assert(n == (size_t)sizes[i] || n >= 65536);
			ck_assert(o.end.truncated == (n < (size_t)sizes[i]) && (sizes[i] < 100000 || n < 65700));
			sse_out_release(&o);
			o = (struct sse_out){0};
		}
		death_crash(d, SIGKILL);
	}
	d_finish(d);
}
END_TEST

// A grandchild that holds the pipe writes after the crash: no SIGPIPE.
START_TEST(grandchild_gets_sigpipe)
{
	struct testd *d = death_start_with();
	struct sse_out o = {0};
	int gate = death_gate(d, "gate");
	sse_run(d, "(read x <gate; echo late; echo $? >alive) & exit 2", 2, &o);
	sse_out_release(&o);
	death_crash(d, deaths[_i]);
	ck_assert_int_eq(write(gate, "\n", 1), 1);
	death_await_file(d, "alive", "0\n");
	(void)close(gate);
	d_finish(d);
}
END_TEST

Suite *crash_suite(void)
{
	Suite *s = suite_create("crash");
	TCase *tc = h_tcase(s, "commands", 30);
	tcase_add_loop_test(tc, crash_takes_a_command_along, 0, COUNT(deaths));
	tcase_add_loop_test(tc, tagged_process_is_lost_on_the_other_surface, 0, CODECS);
	tcase_add_test(tc, output_of_the_time_without_a_daemon_is_lost);
	tcase_add_loop_test(tc, exit_of_the_time_without_a_daemon_is_lost, 0, 2);
	tcase_add_test(tc, timeout_waits_for_a_daemon_in_vain);
	tcase_add_test(tc, started_before_during_and_after);
	tc = h_tcase(s, "controls", 30);
	// Not where writes are cut short: what the daemon had not written yet is lost with it, and there it always has some.
	if (!getenv("FAULTS_ALL"))
		tcase_add_loop_test(tc, input_is_lost_or_comes_twice, 0, 2);
	tcase_add_test(tc, queued_input_comes_twice);
	tcase_add_loop_test(tc, signal_finds_nobody, 0, 2);
	tcase_add_loop_test(tc, terminal_is_hung_up, 0, 2);
	tcase_add_loop_test(tc, ended_command_is_forgotten, 0, 2);
	tcase_add_test(tc, ended_output_is_lost_or_cut);
	tcase_add_loop_test(tc, grandchild_gets_sigpipe, 0, 2);
	return s;
}
