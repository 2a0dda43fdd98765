// SPDX-License-Identifier: Apache-2.0
// The sandbox's end: quick, with status 0, every stream finished, nothing left behind.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define IGNORES "trap '' TERM; echo up; while :; do sleep .05; done"

static const int stops[] = {SIGTERM, SIGINT, SIGQUIT};
#define STOPS ((int)(sizeof stops / sizeof *stops))

// Sends the signal and wants status 0 within MS.
static void stop_within(struct testd *d, int sig, int64_t ms)
{
	int64_t start = h_now_ms();
	d_signal(d, sig);
	ck_assert_int_eq(d_wait(d, ms + 5000), 0);
	ck_assert_msg(h_now_ms() - start <= h_scaled(ms), "the end took %lld ms, want %lld",
		(long long)(h_now_ms() - start), (long long)ms);
}

// A stream of COMMAND that has said "up".
static struct sse *start_up(const struct testd *d, const char *command, int64_t *pid)
{
	struct sse *s = sse_exec(d, command);
	int64_t n = sse_pid(s);
	if (pid)
		*pid = n;
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	return s;
}

// The stream's end frame is the one for a sandbox that went first, its body is terminated and the connection ends by FIN.
static void assert_terminated(struct sse *s)
{
	struct sse_out o = {0};
	sse_collect(s, &o, 8000);
	ck_assert_msg(o.end.kind == SSE_ERROR, "%s frame instead of an error", sse_kind_name(o.end.kind));
	ck_assert_str_eq(j_str(o.end.obj, "code"), "unavailable");
	ck_assert_str_eq(j_str(o.end.obj, "reason"), "sandbox_terminating");
	ck_assert(j_bool(o.end.obj, "retryable"));
	ck_assert_msg(client_wait_eof(sse_client(s), 3000), "the connection stays open");
	ck_assert_msg(!sse_client(s)->reset, "RST instead of FIN");
	sse_out_release(&o);
}

static void assert_exit(struct sse *s, int64_t code, const char *signal)
{
	struct sse_out o = {0};
	sse_collect(s, &o, 8000);
	ck_assert_msg(o.end.kind == SSE_EXIT && o.end.code == code && strcmp(o.end.signal, signal) == 0,
		"%s %lld %s, want exit %lld %s", sse_kind_name(o.end.kind), (long long)o.end.code, o.end.signal,
		(long long)code, signal);
	ck_assert_msg(client_wait_eof(sse_client(s), 3000), "the connection stays open");
	ck_assert_msg(!sse_client(s)->reset, "RST instead of FIN");
	sse_out_release(&o);
}

// B26
START_TEST(idle_daemon_ignores_the_signal)
{
	static const char *const with_init[] = {"--init", NULL};
	const struct d_opts opts = {.args = _i / STOPS ? with_init : NULL};
	struct testd *d = d_start_opts(&opts);
	struct client *c = client_connect(d);
	struct resp r = {0};
	client_request(c, "GET", "/health", NULL, NULL, 0);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 204);
	stop_within(d, stops[_i % STOPS], 1000);
	ck_assert_msg(client_wait_eof(c, 1000) && !c->reset, "the idle connection was not closed by FIN");
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B26
START_TEST(sleeping_command_delays_the_end)
{
	struct testd *d = d_start();
	struct sse *s = start_up(d, "echo up; sleep 1000", NULL);
	stop_within(d, stops[_i], 1400);
	struct sse_out o = {0};
	sse_collect(s, &o, 1000);
	if (o.end.kind == SSE_EXIT)
		ck_assert_str_eq(o.end.signal, "SIGTERM");
	sse_out_release(&o);
	sse_close(s);
	d_finish(d);
}
END_TEST

START_TEST(command_that_ends_in_time_loses_its_code)
{
	struct testd *d = d_start();
	struct sse *s =
		start_up(d, "trap 'echo bye; sleep .3; exit 7' TERM; echo up; while :; do sleep .05; done", NULL);
	struct sse *quick = start_up(d, "trap 'exit 8' TERM; echo up; while :; do sleep .05; done", NULL);
	d_signal(d, SIGTERM);
	assert_exit(quick, 8, "");
	sse_until(s, FRAME_STDOUT, "bye\n", NULL, 3000);
	assert_exit(s, 7, "");
	ck_assert_int_eq(d_wait(d, 3000), 0);
	sse_close(s);
	sse_close(quick);
	d_finish(d);
}
END_TEST

// B26, B27. A second signal meanwhile changes nothing.
START_TEST(stubborn_command_cuts_its_streams)
{
	static const char *const with_init[] = {"--init", "--stop-grace", "600", NULL};
	const struct d_opts opts = {.args = with_init + (_i ? 0 : 1)};
	struct testd *d = d_start_opts(&opts);
	int64_t pid;
	struct sse *s[12];
	s[0] = start_up(d, IGNORES, &pid);
	for (int i = 1; i < 12; i++) {
		s[i] = i % 2 ? sse_attach(d, pid) : start_up(d, IGNORES, NULL);
		if (i % 2)
			(void)sse_pid(s[i]);
	}
	int64_t start = h_now_ms();
	d_signal(d, SIGTERM);
	d_signal(d, SIGTERM);
	for (int i = 0; i < 12; i++) {
		assert_terminated(s[i]);
		sse_close(s[i]);
	}
	ck_assert_int_ge(h_now_ms() - start, 550);
	ck_assert_int_eq(d_wait(d, 2000), 0);
	ck_assert_msg(h_now_ms() - start < h_scaled(2500), "%lld ms", (long long)(h_now_ms() - start));
	d_finish(d);
}
END_TEST

// The default grace: B26's 5 s.
START_TEST(stubborn_command_outlasts_the_sandbox)
{
	struct testd *d = d_start();
	struct sse *s = start_up(d, IGNORES, NULL);
	stop_within(d, SIGTERM, 3000);
	assert_terminated(s);
	sse_close(s);
	d_finish(d);
}
END_TEST

START_TEST(exec_in_flight_is_cut)
{
	struct testd *d = d_start("--stop-grace", "500");
	struct client *c = client_connect(d);
	struct client *quick = client_connect(d);
	struct resp r = {0};
	static const char body[] = "{\"command\":\"" IGNORES "\"}";
	static const char ends[] = "{\"command\":\"trap 'exit 9' TERM; echo up; while :; do sleep .05; done #2\"}";
	client_request(c, "POST", "/exec", NULL, body, sizeof body - 1);
	client_request(quick, "POST", "/exec", NULL, ends, sizeof ends - 1);
	// The trap is set once the loop's first sleep runs.
	int64_t end = h_now_ms() + h_scaled(5000);
	while (d_count_cmdline(d, "sleep .05", NULL) < 4)
		ck_assert_msg(h_now_ms() < end, "the commands have not started");
	d_signal(d, SIGTERM);
	client_response(quick, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_int_eq(j_int(resp_json(&r), "exit_code"), 9);
	client_response(c, &r);
	json_t *o = assert_error(&r, 503, "unavailable");
	ck_assert(j_bool(o, "retryable"));
	ck_assert_str_eq(j_str(o, "reason"), "sandbox_terminating");
	ck_assert_msg(client_wait_eof(c, 3000) && !c->reset, "no FIN");
	ck_assert_int_eq(d_wait(d, 3000), 0);
	client_close(c);
	client_close(quick);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// While the sandbox ends, nothing new is started, on new connections and old ones, but it still answers.
START_TEST(stopping_daemon_takes_new_work_or_hangs)
{
	static const char *const targets[] = {"/exec", "/exec/stream"};
	struct testd *d = d_start("--stop-grace", "1500");
	struct sse *s = start_up(d, IGNORES, NULL);
	struct client *old = client_connect(d);
	struct resp r = {0};
	client_request(old, "GET", "/health", NULL, NULL, 0);
	client_response(old, &r);
	d_signal(d, SIGTERM);
	int64_t end = h_now_ms() + h_scaled(1000);
	do {
		req(d, "POST", "/exec", "{\"command\":\"true\"}", &r);
		ck_assert_msg(h_now_ms() < end, "TERM has no effect");
	} while (r.status == 200);
	for (int i = 0; i < 2; i++) {
		req(d, "POST", targets[i], "{\"command\":\"true\"}", &r);
		json_t *o = assert_error(&r, 503, "unavailable");
		ck_assert(j_bool(o, "retryable"));
		ck_assert_str_eq(j_str(o, "reason"), "sandbox_terminating");
	}
	req(d, "GET", "/health", NULL, &r);
	ck_assert_int_eq(r.status, 204);
	client_request(old, "POST", "/exec", NULL, "{\"command\":\"true\"}", 18);
	client_response(old, &r);
	(void)assert_error(&r, 503, "unavailable");
	ck_assert(!d->exited);
	assert_terminated(s);
	ck_assert_int_eq(d_wait(d, 3000), 0);
	client_close(old);
	sse_close(s);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static int64_t bytes_of_first(const struct testd *d)
{
	struct resp r = {0};
	req(d, "GET", "/exec/processes", NULL, &r);
	const json_t *p = json_array_get(j_get(resp_json(&r), "processes"), 0);
	ck_assert_ptr_nonnull(p);
	int64_t n = j_int(j_get(p, "channel_bytes"), "stdout");
	resp_release(&r);
	return n;
}

// A stream of a flood, read no further than its pid; every buffer on the way is full.
static struct sse *start_stuck(const struct testd *d, const char *body)
{
	struct sse *s = sse_open_with(d, "/exec/stream", NULL, body, 4096);
	int64_t seen = -1;
	int64_t since = h_now_ms();
	int64_t end = since + h_scaled(10000);
	(void)sse_pid(s);
	while (h_now_ms() - since < 200) {
		int64_t now = bytes_of_first(d);
		if (now != seen || now == 0)
			since = h_now_ms();
		seen = now;
		ck_assert_msg(h_now_ms() < end, "nothing holds the flood back");
		h_tick();
	}
	return s;
}

static const char *const floods[] = {"{\"command\":\"yes\"}", "{\"command\":\"trap '' TERM; exec yes\"}",
	"{\"command\":\"trap 'exit 0' TERM; yes & wait\"}"};

// B27: a flood that nobody reads holds the end up for about a second; only one that ignores TERM takes the whole grace.
START_TEST(client_that_does_not_read_delays_the_end)
{
	struct testd *d = d_start();
	struct sse *s = start_stuck(d, floods[_i]);
	struct sse *reader = start_up(d, "echo up; sleep 1000", NULL);
	stop_within(d, SIGTERM, _i == 1 ? 2000 : 1200);
	struct sse_out o = {0};
	sse_collect(reader, &o, 1000);
	sse_out_release(&o);
	sse_close(reader);
	sse_close(s);
	d_finish(d);
}
END_TEST

// One that begins to read only when everything has ended: the rest of the pipe is lost to it, so it must not be told of an
// end that looks whole.
START_TEST(lost_output_ends_in_a_clean_exit)
{
	struct testd *d = d_start("--stop-grace", "300");
	struct sse *s = start_stuck(d, floods[2]);
	struct client *idle = client_connect(d);
	struct resp r = {0};
	client_request(idle, "GET", "/health", NULL, NULL, 0);
	client_response(idle, &r);
	d_signal(d, SIGTERM);
	ck_assert(client_wait_eof(idle, 5000));
	struct sse_event e = {0};
	enum sse_kind k;
	do
		k = sse_next(s, &e, 5000);
	while (k == SSE_DATA);
	ck_assert_msg(k == SSE_CUT || k == SSE_ERROR, "%s frame, code %lld", sse_kind_name(k), (long long)e.code);
	ck_assert_int_eq(d_wait(d, 3000), 0);
	sse_event_release(&e);
	client_close(idle);
	sse_close(s);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// d_finish looks for what is left.
START_TEST(daemonized_grandchild_outlives_the_sandbox)
{
	static const char *const commands[] = {
		"setsid sleep 1031 >/dev/null 2>&1 & echo",
		"(setsid sh -c '(trap \"\" TERM HUP; setsid sh -c \"sleep 1031; sleep 1031\") &' >/dev/null 2>&1 &) ; "
		"echo",
		"for i in $(seq 50); do (trap '' TERM; exec setsid sleep 1031) >/dev/null 2>&1 & done; echo",
		"(setsid sh -c 'trap \"setsid sleep 1031 & setsid sleep 1031 & exit\" TERM; while :; do sleep .05; "
		"done' "
		">/dev/null 2>&1 &) ; sleep .2",
	};
	static const char *const with_init[] = {"--init", NULL};
	const struct d_opts opts = {.args = _i % 2 ? with_init : NULL};
	struct testd *d = d_start_opts(&opts);
	struct resp r = {0};
	(void)run(d, commands[_i / 2], &r);
	stop_within(d, SIGTERM, 3000);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A request that is only half there when the sandbox ends.
START_TEST(half_a_request_gets_no_answer)
{
	static const char half[] = "POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"command\":";
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	ck_assert(client_send_str(c, half));
	req(d, "GET", "/health", NULL, &r); // by now it has been read
	d_signal(d, SIGTERM);
	client_response(c, &r);
	json_t *o = assert_error(&r, 503, "unavailable");
	ck_assert(j_bool(o, "retryable"));
	ck_assert_str_eq(j_str(o, "reason"), "sandbox_terminating");
	ck_assert_int_eq(d_wait(d, 3000), 0);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(port_stays_taken)
{
	struct testd *d = d_start();
	char addr[96];
	(void)snprintf(addr, sizeof addr, "127.0.0.1:%d", d->port);
	struct sse *s = start_up(d, "echo up; sleep 1000", NULL);
	struct client *idle = client_connect(d);
	stop_within(d, SIGTERM, 3000);
	const char *args[] = {"--listen", addr, "--envd-listen", "off", "--venv", "off", NULL};
	const struct d_opts opts = {.args = args, .no_defaults = true};
	struct testd *next = d_start_opts(&opts);
	ck_assert_int_eq(next->port, d->port);
	struct resp r = {0};
	ck_assert_str_eq(j_str(run(next, "echo again", &r), "stdout"), "again\n");
	client_close(idle);
	sse_close(s);
	resp_release(&r);
	d_finish(next);
	d_finish(d);
}
END_TEST

Suite *stop_suite(void)
{
	Suite *s = suite_create("stop");
	TCase *tc = h_tcase(s, "signal", 20);
	tcase_add_loop_test(tc, idle_daemon_ignores_the_signal, 0, 2 * STOPS);
	tcase_add_loop_test(tc, sleeping_command_delays_the_end, 0, STOPS);
	tcase_add_loop_test(tc, daemonized_grandchild_outlives_the_sandbox, 0, 8);
	tcase_add_test(tc, half_a_request_gets_no_answer);
	tcase_add_test(tc, port_stays_taken);
	tc = h_tcase(s, "streams", 20);
	tcase_add_test(tc, command_that_ends_in_time_loses_its_code);
	tcase_add_loop_test(tc, stubborn_command_cuts_its_streams, 0, 2);
	tcase_add_test(tc, stubborn_command_outlasts_the_sandbox);
	tcase_add_test(tc, exec_in_flight_is_cut);
	tcase_add_test(tc, stopping_daemon_takes_new_work_or_hangs);
	tcase_add_loop_test(tc, client_that_does_not_read_delays_the_end, 0, 3);
	tcase_add_test(tc, lost_output_ends_in_a_clean_exit);
	return s;
}
