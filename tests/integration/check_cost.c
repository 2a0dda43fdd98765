// SPDX-License-Identifier: Apache-2.0
// What remains after work, what happens when descriptors run out, what idleness costs.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Few enough commands are kept after their end that memory settles early.
static struct testd *start_frugal(void)
{
	return d_start("--retention", "0");
}

static void pass_ms(int64_t ms)
{
	int64_t end = h_now_ms() + ms;
	while (h_now_ms() < end)
		h_tick();
}

struct baseline {
	const struct testd *d;
	int fds;
	long rss;
	long kib; // growth allowed
};

static bool fds_are_back(void *arg)
{
	const struct baseline *b = arg;
	return d_fd_count(b->d) <= b->fds;
}

static struct baseline baseline(const struct testd *d, long kib)
{
	return (struct baseline){d, d_fd_count(d), d_rss_kib(d), d_sanitized(d) ? kib + 300L * 1024 : kib};
}

static void assert_baseline(struct baseline *b)
{
	if (!wait_until(fds_are_back, b, 3000))
		ck_abort_msg("%d descriptors, want %d", d_fd_count(b->d), b->fds);
	long grown = d_rss_kib(b->d) - b->rss;
	ck_assert_msg(grown <= b->kib, "%ld KiB more than before", grown);
	ck_assert_int_eq(d_zombies(b->d), 0);
}

static int scaled_count(int n)
{
	int count = (int)(n / h_scale());
	return count < 1 ? 1 : count;
}

static void exec_on(struct client *c, const char *body, struct resp *r)
{
	client_request(c, "POST", "/exec", NULL, body, strlen(body));
	client_response(c, r);
}

// N commands: four of five by /exec on one connection, the others as streams.
static void many_commands(const struct testd *d, int n)
{
	struct client *c = client_connect(d);
	struct resp r = {0};
	struct sse_out o = {0};
	for (int i = 0; i < n; i++) {
		if (i % 5 == 4) {
			sse_run(d, "echo out; echo err >&2; exit 3", 3, &o);
			continue;
		}
		exec_on(c, "{\"command\":\"echo out; exit 4\"}", &r);
		ck_assert_int_eq(j_int(resp_json(&r), "exit_code"), 4);
	}
	client_close(c);
	resp_release(&r);
	sse_out_release(&o);
}

// B23
START_TEST(commands_leak)
{
	struct testd *d = start_frugal();
	many_commands(d, 200);
	struct baseline b = baseline(d, 512);
	many_commands(d, scaled_count(5000));
	assert_baseline(&b);
	d_finish(d);
}
END_TEST

// The same with the default retention: what is kept is bounded, in descriptors none.
START_TEST(kept_commands_pile_up)
{
	struct testd *d = d_start();
	struct baseline b = baseline(d, 24L * 1024);
	struct sse_out o = {0};
	for (int i = 0; i < scaled_count(600); i++)
		sse_run(d, "head -c 100000 /dev/zero; exit 1", 1, &o);
	sse_out_release(&o);
	assert_baseline(&b);
	d_finish(d);
}
END_TEST

// B23: the ways a start can fail before, in and behind the child.
START_TEST(failing_spawns_leak)
{
	static const struct {
		const char *body;
		int status;
	} cases[] = {
		{"{\"command\":\"true\",\"workdir\":\"/no/such/dir\"}", 400},
		{"{\"command\":\"true\",\"workdir\":\"/etc/passwd\"}", 0},
		{"{\"command\":\"/no/such/program\"}", 200},
		{"{\"command\":\"exec /no/such/program\"}", 200},
	};
	struct testd *d = start_frugal();
	struct client *c = client_connect(d);
	struct resp r = {0};
	struct baseline b = {0};
	int count = scaled_count(2000);
	for (int i = -50; i < count; i++) {
		if (i == 0)
			b = baseline(d, 512);
		size_t k = (size_t)(i + 50) % (sizeof cases / sizeof *cases);
		exec_on(c, cases[k].body, &r);
		ck_assert_int_eq(r.status == 200, cases[k].status == 200);
		if (r.status == 200)
			ck_assert_int_eq(j_int(resp_json(&r), "exit_code"), 127);
		else
			(void)assert_error(&r, cases[k].status ? cases[k].status : r.status, NULL);
	}
	assert_baseline(&b);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Connections that end in every way: after an answer, unused, in a half head, in a half body, by RST, with a command running.
static void one_connection(const struct testd *d, int i)
{
	struct client *c = client_connect(d);
	struct resp r = {0};
	switch (i % 6) {
	case 0:
		client_request(c, "GET", "/health", NULL, NULL, 0);
		client_response(c, &r);
		ck_assert_int_eq(r.status, 204);
		break;
	case 1:
		break;
	case 2:
		(void)client_send_str(c, "POST /exec HTTP/1.1\r\nHost: x\r\nConten");
		break;
	case 3:
		(void)client_send_str(c, "POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: 500\r\n\r\n{\"comm");
		break;
	case 4:
		client_request(c, "POST", "/exec", NULL, "{\"command\":\"sleep .01\"}", 23);
		break;
	default:
		client_request(c, "POST", "/exec/stream", NULL, "{\"command\":\"echo x\"}", 20);
	}
	resp_release(&r);
	if (i % 2)
		client_abort(c);
	else
		client_close(c);
}

START_TEST(connections_leak)
{
	struct testd *d = start_frugal();
	for (int i = 0; i < 120; i++)
		one_connection(d, i);
	pass_ms(300);
	struct baseline b = baseline(d, 512);
	for (int i = 0; i < scaled_count(1000); i++)
		one_connection(d, i);
	assert_baseline(&b);
	d_finish(d);
}
END_TEST

// --- out of descriptors ---

#define FEW 64
#define CROWD 110

static struct testd *start_with_few(void)
{
	const struct d_opts opts = {.nofile = FEW};
	return d_start_opts(&opts);
}

static bool serves(void *arg)
{
	const struct testd *d = arg;
	struct client *c = client_connect(d);
	struct resp r = {0};
	static const char body[] = "{\"command\":\"echo again\"}";
	c->deadline = 500;
	client_request(c, "POST", "/exec", NULL, body, sizeof body - 1);
	bool ok =
		client_try_response(c, &r) && r.status == 200 && strcmp(j_str(resp_json(&r), "stdout"), "again\n") == 0;
	client_close(c);
	resp_release(&r);
	return ok;
}

static void assert_no_spin(const struct testd *d)
{
	uint64_t ticks = d_cpu_ticks(d);
	pass_ms(1000);
	ticks = d_cpu_ticks(d) - ticks;
	ck_assert_msg(ticks < (uint64_t)h_scaled(20), "%llu ticks in a second of waiting", (unsigned long long)ticks);
}

// B23: 110 connections that hold on to what they have: idle ones, or with half a head each.
START_TEST(crowd_of_connections_wears_it_out)
{
	struct testd *d = start_with_few();
	struct client *c[CROWD];
	struct resp r = {0};
	int fds = d_fd_count(d);
	for (int i = 0; i < CROWD; i++) {
		c[i] = client_connect(d);
		if (_i == 1)
			(void)client_send_str(c[i], "GET /health HTTP/1.1\r\nHos");
	}
	assert_no_spin(d);
	// Whoever only wants to know whether it lives is told, also now.
	req(d, "GET", "/health", NULL, &r);
	ck_assert_int_eq(r.status, 204);
	for (int i = 0; i < CROWD; i++)
		client_close(c[i]);
	ck_assert_msg(wait_until(serves, d, 3000), "it does not recover");
	struct baseline b = {d, fds, 0, 1L << 30};
	assert_baseline(&b);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The error for a start that found no descriptors, or the one for too many connections.
static void assert_exhausted(struct resp *r)
{
	json_t *o = assert_error(r, 503, NULL);
	const char *code = j_str(o, "code");
	ck_assert_msg(strcmp(code, "resource_exhausted") == 0 || strcmp(code, "unavailable") == 0, "code %s", code);
	ck_assert_msg(j_bool(o, "retryable"), "time cures this");
}

static const char sleeper[] = "{\"command\":\"exec sleep 1000\",\"timeout\":0}";

// Starts streams until one is refused: their number. The refusal has been read from the last one.
static size_t fill_with_streams(const struct testd *d, struct client **c)
{
	for (size_t i = 0; i < FEW; i++) {
		struct buf body = {0};
		int64_t end = h_now_ms() + h_scaled(5000);
		c[i] = client_connect(d);
		client_request(c[i], "POST", "/exec/stream", NULL, sleeper, sizeof sleeper - 1);
		ck_assert_int_eq(client_event(c[i], &body, end), HTTP_HEAD);
		bool refused = http_head(c[i]->http)->status != 200;
		while (refused && client_event(c[i], &body, end) == HTTP_BODY)
			;
		buf_release(&body);
		if (refused) {
			http_next(c[i]->http);
			return i;
		}
	}
	ck_abort_msg("%d commands with %d descriptors", FEW, FEW);
	return 0;
}

// Starts commands by /exec until one is refused, and reads that into R: their number.
static size_t fill_with_execs(const struct testd *d, struct client **c, struct resp *r)
{
	for (size_t i = 0; i < FEW; i++) {
		c[i] = client_connect(d);
		client_request(c[i], "POST", "/exec", NULL, sleeper, sizeof sleeper - 1);
		if (client_fill(c[i], 200) < 0)
			continue;
		client_response(c[i], r);
		return i;
	}
	ck_abort_msg("%d commands with %d descriptors", FEW, FEW);
	return 0;
}

static bool sleepers_are_dead(void *arg)
{
	pid_t pid = 0;
	if (d_count_cmdline(arg, "sleep 1000", &pid) == 0)
		return true;
	(void)kill(pid, SIGKILL);
	return false;
}

static void close_all(struct client **c, size_t n)
{
	for (size_t i = 0; i < n; i++)
		client_close(c[i]);
}

// B23: commands until a start fails, then connections until accept fails, too.
START_TEST(failed_start_for_want_of_descriptors_is_the_end)
{
	struct testd *d = start_with_few();
	struct client *stream[FEW];
	struct client *exec[FEW];
	struct client *more[FEW];
	struct resp r = {0};
	int fds = d_fd_count(d);
	size_t streams = fill_with_streams(d, stream);
	ck_assert_uint_ge(streams, 4);
	client_request(stream[streams], "POST", "/exec/stream", NULL, sleeper, sizeof sleeper - 1);
	client_response(stream[streams], &r);
	assert_exhausted(&r);
	size_t execs = fill_with_execs(d, exec, &r);
	assert_exhausted(&r);
	req(d, "GET", "/health", NULL, &r);
	ck_assert_int_eq(r.status, 204);
	for (int i = 0; i < FEW; i++) {
		more[i] = client_connect(d);
		(void)client_send_str(more[i], "GET /health HTTP/1.1\r\nHos");
	}
	assert_no_spin(d);
	close_all(more, FEW);
	close_all(exec, execs + 1);
	close_all(stream, streams + 1);
	ck_assert(wait_until(sleepers_are_dead, d, 5000));
	ck_assert_msg(wait_until(serves, d, 3000), "it does not recover");
	struct baseline b = {d, fds, 0, 1L << 30};
	assert_baseline(&b);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- idle ---

static void assert_sleeps(const struct testd *d, int64_t ms)
{
	uint64_t wakeups = d_wakeups(d);
	uint64_t ticks = d_cpu_ticks(d);
	pass_ms(ms);
	wakeups = d_wakeups(d) - wakeups;
	ticks = d_cpu_ticks(d) - ticks;
	// Where each call is interrupted on purpose a sleep is several.
	ck_assert_msg(wakeups <= (getenv("FAULTS_ALL") ? 8 : 1), "%llu wake-ups in %lld ms",
		(unsigned long long)wakeups, (long long)ms);
	ck_assert_msg(ticks == 0, "%llu ticks in %lld ms", (unsigned long long)ticks, (long long)ms);
}

START_TEST(idle_daemon_wakes_up)
{
	struct testd *d = d_start("--init");
	struct testd init = *d;
	init.daemon = d->init;
	pass_ms(200);
	uint64_t wakeups = d_wakeups(&init);
	assert_sleeps(d, 3000);
	ck_assert_uint_eq(d_wakeups(&init) - wakeups, 0);
	d_finish(d);
}
END_TEST

// After floods, and with a connection that waits and two readers of a command that says nothing.
START_TEST(used_daemon_finds_no_sleep)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct sse_out o = {0};
	sse_run(d, "head -c 30000000 /dev/zero", 0, &o);
	sse_run(d, "head -c 3000000 /dev/zero >&2; exit 1", 1, &o);
	struct sse *s = sse_open(d, "/exec/stream", "{\"command\":\"echo x; exec sleep 1000\",\"timeout\":0}");
	struct sse *a = sse_attach(d, sse_pid(s));
	sse_until(a, FRAME_STDOUT, "x\n", NULL, 5000);
	struct client *c = client_connect(d);
	exec_on(c, "{\"command\":\"echo y\"}", &r);
	ck_assert_int_eq(r.status, 200);
	// What follows an answer (a look at memory to give back, a lingering close) is over after three seconds.
	pass_ms(3000);
	assert_sleeps(d, 2500);
	client_close(c);
	sse_close(s);
	sse_close(a);
	resp_release(&r);
	sse_out_release(&o);
	d_finish(d);
}
END_TEST

Suite *cost_suite(void)
{
	Suite *s = suite_create("cost");
	TCase *tc = h_tcase(s, "leaks", 120);
	tcase_add_test(tc, commands_leak);
	tcase_add_test(tc, kept_commands_pile_up);
	tcase_add_test(tc, failing_spawns_leak);
	tcase_add_test(tc, connections_leak);
	tc = h_tcase(s, "descriptors", 30);
	tcase_add_loop_test(tc, crowd_of_connections_wears_it_out, 0, 2);
	tcase_add_test(tc, failed_start_for_want_of_descriptors_is_the_end);
	tc = h_tcase(s, "idle", 30);
	tcase_add_test(tc, idle_daemon_wakes_up);
	tcase_add_test(tc, used_daemon_finds_no_sleep);
	return s;
}
