// SPDX-License-Identifier: Apache-2.0
// B04: several readers of one command. One that is stuck or gone goes alone and without a false end; the others keep their flow.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

// The same as a shell and as a JSON string see it.
#define FLOOD_WITH(nul) "while :; do head -c 200000 /dev/zero | tr '" nul "' x; echo; sleep .02; done"
#define FLOOD FLOOD_WITH("\\0")
#define FLOOD_BODY "{\"command\":\"" FLOOD_WITH("\\\\0") "\"}"
#define READERS_MAX 3

// One reader that reads: how much, and the longest time that nothing came.
struct flow {
	struct sse *s;
	int64_t bytes;
	int64_t since;
	int64_t last;
	int64_t silence;
	struct sse_event end;
	bool done;
	bool over;
};

static void flow_init(struct flow *f, struct sse *s)
{
	*f = (struct flow){.s = s, .since = h_now_ms(), .last = h_now_ms()};
}

// What has come by now; true if anything had.
static bool flow_take(struct flow *f)
{
	struct sse_event e = {0};
	bool any = false;
	for (int i = 0; i < 16 && !f->over; i++) {
		enum sse_kind k = sse_next(f->s, &e, 0);
		if (k == SSE_TIMEOUT)
			break;
		any = true;
		ck_assert_msg(k != SSE_CUT, "a reader that reads was cut after %lld bytes", (long long)f->bytes);
		f->over = k == SSE_END;
		f->done = f->done || k == SSE_DONE;
		if (k == SSE_EXIT || k == SSE_ERROR) {
			f->end = e;
			e = (struct sse_event){0};
		} else if (k == SSE_DATA) {
			int64_t now = h_now_ms();
			f->bytes += (int64_t)buf_len(&e.data);
			f->silence = now - f->last > f->silence ? now - f->last : f->silence;
			f->last = now;
		}
	}
	sse_event_release(&e);
	return any;
}

// Reads all of them in turn for MS, or until the end of all (MS 0: with a deadline of 30 s).
static void flow_run(struct flow *f, size_t n, int64_t ms)
{
	int64_t end = h_now_ms() + (ms ? ms : h_scaled(30000));
	size_t over = 0;
	while (h_now_ms() < end && over < n) {
		bool any = false;
		struct pollfd p[READERS_MAX];
		over = 0;
		for (size_t i = 0; i < n; i++) {
			any = flow_take(&f[i]) || any;
			over += f[i].over ? 1 : 0;
			p[i] = (struct pollfd){f[i].over ? -1 : sse_client(f[i].s)->fd, POLLIN, 0};
		}
		if (!any && over < n)
			(void)poll(p, (nfds_t)n, 20);
	}
	ck_assert_msg(ms || over == n, "the streams do not end");
}

// Megabytes a second, no silence of more than a few seconds.
static void assert_flows(const struct flow *f, const char *who)
{
	int64_t now = h_now_ms();
	int64_t silence = now - f->last > f->silence ? now - f->last : f->silence;
	double rate = (double)f->bytes / 1000 / (double)(now - f->since);
	ck_assert_msg(silence < h_scaled(2500), "%s: nothing for %lld ms", who, (long long)silence);
	ck_assert_msg(rate * h_scale() > 1.5, "%s: %.2f MB/s", who, rate);
}

// Counts anew from here.
static void flow_reset(struct flow *f)
{
	f->bytes = 0;
	f->silence = 0;
	f->since = f->last = h_now_ms();
}

static void flow_release(struct flow *f)
{
	sse_event_release(&f->end);
	sse_close(f->s);
}

// S got no end of any kind: what was queued, then the cut.
static void assert_cut(struct sse *s)
{
	struct sse_event e = {0};
	enum sse_kind k;
	do
		k = sse_next(s, &e, 5000);
	while (k == SSE_DATA || k == SSE_PID);
	ck_assert_msg(k == SSE_CUT, "the stuck reader saw: %s", sse_kind_name(k));
	sse_event_release(&e);
}

static struct sse *attach_with(const struct testd *d, int64_t pid, int rcvbuf)
{
	char target[64];
	(void)snprintf(target, sizeof target, "/exec/attach?pid=%lld", (long long)pid);
	struct sse *s = sse_open_with(d, target, NULL, NULL, rcvbuf);
	(void)sse_pid(s);
	return s;
}

static void kill_command(const struct testd *d, int64_t pid)
{
	struct resp r = {0};
	int64_t start = h_now_ms();
	req(d, "GET", "/health", NULL, &r);
	ck_assert_int_eq(r.status, 204);
	req_pack(d, "POST", "/exec/signal", &r, "{s:I, s:s}", "pid", (json_int_t)pid, "signal", "KILL");
	ck_assert_int_eq(r.status, 200);
	ck_assert_msg(
		h_now_ms() - start < h_scaled(3000), "health and kill took %lld ms", (long long)(h_now_ms() - start));
	resp_release(&r);
}

// Each reader's end is the real one; the first, if it was there FROM_START, has missed nothing.
static void assert_killed(struct flow *f, size_t n, bool from_start)
{
	flow_run(f, n, 0);
	for (size_t i = 0; i < n; i++) {
		ck_assert_int_eq(f[i].end.kind, SSE_EXIT);
		ck_assert_str_eq(f[i].end.signal, "SIGKILL");
	}
	ck_assert(!from_start || !f[0].end.truncated);
}

// _i 0: the starter is the stuck one; 1: an attached reader is, and the starter reads.
START_TEST(stuck_reader_stops_the_others)
{
	struct testd *d = d_start();
	struct sse *a = sse_open_with(d, "/exec/stream", NULL, FLOOD_BODY, _i == 0 ? 4096 : 0);
	int64_t pid = sse_pid(a);
	struct sse *b = attach_with(d, pid, _i == 0 ? 0 : 4096);
	struct sse *stuck = _i == 0 ? a : b;
	struct flow f[2];
	long before = d_rss_kib(d);
	flow_init(&f[0], _i == 0 ? b : a);
	flow_run(f, 1, 1800);
	flow_init(&f[1], attach_with(d, pid, 0));
	flow_run(f, 2, 1000);
	assert_flows(&f[0], "first reader");
	assert_flows(&f[1], "second reader");
	ck_assert_int_lt(d_rss_kib(d) - before, d_sanitized(d) ? 300 * 1024 : 4096);
	kill_command(d, pid);
	assert_killed(f, 2, _i == 1); // who attaches to a flood may come too late for its beginning
	assert_cut(stuck);
	sse_close(stuck);
	flow_release(&f[0]);
	flow_release(&f[1]);
	d_finish(d);
}
END_TEST

// Two stuck at once, beside one that reads: neither shields the other.
START_TEST(stuck_readers_shield_each_other)
{
	struct testd *d = d_start();
	struct sse *a = sse_open_with(d, "/exec/stream", NULL, FLOOD_BODY, 4096);
	int64_t pid = sse_pid(a);
	struct sse *b = attach_with(d, pid, 4096);
	struct flow f[1];
	flow_init(&f[0], attach_with(d, pid, 0));
	// One is cut after the other; then nothing holds the flood back.
	flow_run(f, 1, 2500);
	ck_assert_msg(f[0].silence < h_scaled(2400), "nothing for %lld ms", (long long)f[0].silence);
	flow_reset(&f[0]);
	flow_run(f, 1, 1000);
	assert_flows(&f[0], "the reader");
	kill_command(d, pid);
	assert_killed(f, 1, false);
	assert_cut(a);
	assert_cut(b);
	sse_close(a);
	sse_close(b);
	flow_release(&f[0]);
	d_finish(d);
}
END_TEST

// Nobody reads on: no reader is cut, for none waits. Both then get all of it.
START_TEST(two_late_readers_lose_output)
{
	static const char body[] = "{\"command\":\"read x; head -c 6000000 /dev/zero | tr '\\\\0' x; exit 4\"}";
	struct testd *d = d_start();
	struct flow f[2];
	struct resp r = {0};
	struct sse *a = sse_open_with(d, "/exec/stream", NULL, body, 4096);
	int64_t pid = sse_pid(a);
	struct sse *b = attach_with(d, pid, 4096);
	req_pack(d, "POST", "/exec/stdin", &r, "{s:I, s:s}", "pid", (json_int_t)pid, "data", "Cg==");
	ck_assert_int_eq(r.status, 200);
	int64_t end = h_now_ms() + 2500;
	while (h_now_ms() < end)
		h_tick();
	flow_init(&f[0], a);
	flow_init(&f[1], b);
	flow_run(f, 2, 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(f[i].bytes, 6000000);
		ck_assert_int_eq(f[i].end.code, 4);
		ck_assert(!f[i].end.truncated);
		flow_release(&f[i]);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(fast_reader_is_cut_on_a_flood)
{
	static const int64_t total = 60000000;
	struct testd *d = d_start();
	struct flow f[2];
	struct resp r = {0};
	struct sse *a = sse_exec(d, "read x; head -c 60000000 /dev/zero; exit 6");
	int64_t pid = sse_pid(a);
	flow_init(&f[0], a);
	flow_init(&f[1], attach_with(d, pid, 0));
	req_pack(d, "POST", "/exec/stdin", &r, "{s:I, s:s}", "pid", (json_int_t)pid, "data", "Cg==");
	ck_assert_int_eq(r.status, 200);
	flow_run(f, 2, 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(f[i].bytes, total);
		ck_assert_int_eq(f[i].end.code, 6);
		ck_assert(!f[i].end.truncated);
	}
	ck_assert(f[1].done);
	flow_release(&f[0]);
	flow_release(&f[1]);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- peers that vanish ---

// A network of the test's own, in which packets can be dropped. False where that cannot be had: the test is left out then.
static bool own_network(void)
{
	const char *fork_mode = getenv("CK_FORK");
	if (geteuid() != 0 || (fork_mode && strcmp(fork_mode, "no") == 0) || unshare(CLONE_NEWNET) < 0)
		return false;
	return system("ip link set lo up && iptables -L -n >/dev/null") == 0;
}

static void drop_packets_of(const struct sse *s)
{
	struct sockaddr_in a = {0};
	socklen_t n = sizeof a;
	char line[200];
	ck_assert_int_eq(getsockname(sse_client((struct sse *)(uintptr_t)s)->fd, (struct sockaddr *)&a, &n), 0);
	int port = ntohs(a.sin_port);
	(void)snprintf(line, sizeof line,
		"iptables -A INPUT -p tcp --dport %d -j DROP && iptables -A INPUT -p tcp --sport %d -j DROP", port,
		port);
	ck_assert_int_eq(system(line), 0);
}

START_TEST(vanished_reader_stops_the_others)
{
	if (!own_network())
		return;
	struct testd *d = d_start("--send-timeout", "2");
	struct sse *a = sse_exec(d, FLOOD);
	int64_t pid = sse_pid(a);
	struct flow f[1];
	flow_init(&f[0], attach_with(d, pid, 0));
	drop_packets_of(a);
	flow_run(f, 1, 3500);
	assert_flows(&f[0], "the reader that is left");
	kill_command(d, pid);
	assert_killed(f, 1, false);
	sse_close(a);
	flow_release(&f[0]);
	d_finish(d);
}
END_TEST

static int64_t stdout_bytes(const struct testd *d)
{
	struct resp r = {0};
	req(d, "GET", "/exec/processes", NULL, &r);
	const json_t *p = json_array_get(j_get(resp_json(&r), "processes"), 0);
	ck_assert_msg(p, "the command has gone");
	int64_t n = j_int(j_get(p, "channel_bytes"), "stdout");
	resp_release(&r);
	return n;
}

struct progress {
	const struct testd *d;
	int64_t past;
};

static bool has_written(void *arg)
{
	const struct progress *p = arg;
	return stdout_bytes(p->d) > p->past;
}

struct descriptors {
	const struct testd *d;
	int count;
};

static bool has_fewer(void *arg)
{
	const struct descriptors *f = arg;
	return d_fd_count(f->d) < f->count;
}

// The only reader: it stops (_i 1: with its window full, _i 0: while it reads) and then its packets are lost. The daemon lets
// go of it and the command runs on.
START_TEST(vanished_reader_blocks_its_command_for_ever)
{
	if (!own_network())
		return;
	struct testd *d = d_start("--send-timeout", "2");
	struct sse *a = sse_open(d, "/exec/stream", "{\"command\":\"exec yes\",\"timeout\":0}");
	(void)sse_pid(a);
	int fds = d_fd_count(d);
	if (_i == 1) {
		int64_t end = h_now_ms() + 1000;
		while (h_now_ms() < end)
			h_tick();
	}
	drop_packets_of(a);
	int64_t end = h_now_ms() + 600;
	while (h_now_ms() < end)
		h_tick();
	struct progress p = {d, stdout_bytes(d) + 30000000};
	ck_assert_msg(wait_until(has_written, &p, 12000), "the command is still blocked");
	// The connections of has_written close a moment later.
	struct descriptors fewer = {d, fds};
	ck_assert_msg(wait_until(has_fewer, &fewer, 2000), "the connection is still held");
	sse_close(a);
	d_finish(d);
}
END_TEST

// The same peer, living: it does not read for far longer than the timeout, and is not cut.
START_TEST(living_slow_reader_counts_as_vanished)
{
	struct testd *d = d_start("--send-timeout", "1");
	struct sse *a = sse_open_with(
		d, "/exec/stream", NULL, "{\"command\":\"head -c 9000000 /dev/zero; exit 2\",\"timeout\":60}", 4096);
	struct flow f[1];
	(void)sse_pid(a);
	int64_t end = h_now_ms() + 3600;
	while (h_now_ms() < end)
		h_tick();
	flow_init(&f[0], a);
	flow_run(f, 1, 0);
	ck_assert_int_eq(f[0].bytes, 9000000);
	ck_assert_int_eq(f[0].end.code, 2);
	flow_release(&f[0]);
	d_finish(d);
}
END_TEST

Suite *readers_suite(void)
{
	Suite *s = suite_create("readers");
	TCase *tc = h_tcase(s, "stuck", 60);
	tcase_add_loop_test(tc, stuck_reader_stops_the_others, 0, 2);
	tcase_add_test(tc, stuck_readers_shield_each_other);
	tcase_add_test(tc, two_late_readers_lose_output);
	tcase_add_test(tc, fast_reader_is_cut_on_a_flood);
	tc = h_tcase(s, "vanished", 60);
	tcase_add_test(tc, vanished_reader_stops_the_others);
	tcase_add_loop_test(tc, vanished_reader_blocks_its_command_for_ever, 0, 2);
	tcase_add_test(tc, living_slow_reader_counts_as_vanished);
	return s;
}
