// SPDX-License-Identifier: Apache-2.0
// What attachers see of a command, before and after its end; keepalives; a gigabyte through one command.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

// The contract's 64 KiB, of which an attacher gets at least this much.
#define REPLAY_MIN ((size_t)60000)

static void seq(struct buf *b, int from, int to)
{
	for (int i = from; i <= to; i++)
		buf_printf(b, "%d\n", i);
	ck_assert_int_eq(buf_failed(b), 0);
}

// GOT is what WANT ends with, and at least MIN bytes of it.
static void assert_tail(const struct buf *got, const struct buf *want, size_t min)
{
	size_t n = buf_len(got);
	ck_assert_msg(n >= min && n <= buf_len(want), "%zu bytes, want at least %zu of %zu", n, min, buf_len(want));
	assert_bytes(got, (const char *)buf_data(want) + buf_len(want) - n, n);
}

static void send_line(const struct testd *d, int64_t pid)
{
	struct resp r = {0};
	req_pack(d, "POST", "/exec/stdin", &r, "{s:I, s:s}", "pid", (json_int_t)pid, "data", "Cg==");
	ck_assert_int_eq(r.status, 200);
	resp_release(&r);
}

static int attach_status(const struct testd *d, int64_t pid)
{
	struct resp r = {0};
	char target[64];
	(void)snprintf(target, sizeof target, "/exec/attach?pid=%lld", (long long)pid);
	req(d, "GET", target, NULL, &r);
	int status = r.status;
	if (status == 404)
		ck_assert_str_eq(j_str(assert_error(&r, 404, "not_found"), "error"), "process not found");
	resp_release(&r);
	return status;
}

static bool is_listed(const struct testd *d, int64_t pid)
{
	struct resp r = {0};
	req(d, "GET", "/exec/processes", NULL, &r);
	const json_t *list = j_get(resp_json(&r), "processes");
	bool found = false;
	for (size_t i = 0; i < json_array_size(list); i++)
		found = found || j_int(json_array_get(list, i), "pid") == pid;
	resp_release(&r);
	return found;
}

// B30: FIN (_i 0) or RST (_i 1) of the starter only detaches it.
START_TEST(lost_client_takes_its_command_along)
{
	struct testd *d = d_start();
	struct sse *s = sse_exec(d, "echo first; read x; echo second; sleep 1000");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "first\n", NULL, 5000);
	if (_i == 1) {
		const struct linger off = {.l_onoff = 1, .l_linger = 0};
		ck_assert_int_eq(setsockopt(sse_client(s)->fd, SOL_SOCKET, SO_LINGER, &off, sizeof off), 0);
	}
	sse_close(s);
	ck_assert(is_listed(d, pid));
	s = sse_attach(d, pid);
	ck_assert_int_eq(sse_pid(s), pid);
	send_line(d, pid);
	struct buf got = {0};
	sse_until(s, FRAME_STDOUT, "second\n", &got, 5000);
	assert_text(&got, "first\nsecond\n");
	struct resp r = {0};
	req_pack(d, "POST", "/exec/signal", &r, "{s:I, s:s}", "pid", (json_int_t)pid, "signal", "SIGKILL");
	ck_assert_int_eq(r.status, 200);
	struct sse_out o = {0};
	sse_collect(s, &o, 3000);
	ck_assert_str_eq(o.end.signal, "SIGKILL");
	ck_assert(!is_listed(d, pid));
	sse_close(s);
	sse_out_release(&o);
	resp_release(&r);
	buf_release(&got);
	d_finish(d);
}
END_TEST

// B32: attachers in the middle of 200 kB get one gapless piece up to the end, the starter all of it.
START_TEST(attacher_sees_gaps_or_duplicates)
{
	struct testd *d = d_start();
	struct buf want = {0};
	struct sse_out o = {0};
	seq(&want, 1, 20000);
	size_t first = buf_len(&want);
	seq(&want, 20001, 40000);
	struct sse *s = sse_exec(d, "seq 1 20000; read x; seq 20001 40000; exit 6");
	int64_t pid = sse_pid(s);
	struct buf head = {0};
	sse_until(s, FRAME_STDOUT, "\n20000\n", &head, 5000);
	struct sse *a[3];
	for (int i = 0; i < 3; i++)
		a[i] = sse_attach(d, pid);
	send_line(d, pid);
	for (int i = 0; i < 3; i++) {
		sse_collect(a[i], &o, 10000);
		ck_assert_int_eq(o.end.code, 6);
		assert_tail(&o.ch[FRAME_STDOUT], &want, buf_len(&want) - first + REPLAY_MIN);
		ck_assert_uint_le(buf_len(&o.ch[FRAME_STDOUT]), buf_len(&want) - first + 2 * 65536);
		sse_out_release(&o);
		sse_close(a[i]);
	}
	sse_collect(s, &o, 10000);
	buf_append(&head, buf_data(&o.ch[FRAME_STDOUT]), buf_len(&o.ch[FRAME_STDOUT]));
	assert_bytes(&head, buf_data(&want), buf_len(&want));
	ck_assert(!o.end.truncated);
	sse_out_release(&o);
	sse_close(s);
	buf_release(&head);
	buf_release(&want);
	d_finish(d);
}
END_TEST

// B32: after the end, as often as one likes: the tail, the exit, done.
START_TEST(ended_command_cannot_be_attached)
{
	struct testd *d = d_start();
	struct buf want = {0};
	struct sse_out o = {0};
	seq(&want, 1, 40000);
	sse_run(d, "seq 1 40000; exit 5", 5, &o);
	assert_bytes(&o.ch[FRAME_STDOUT], buf_data(&want), buf_len(&want));
	int64_t pid = o.pid;
	for (int i = 0; i < 3; i++) {
		struct sse *s = sse_attach(d, pid);
		sse_out_release(&o);
		sse_collect(s, &o, 5000);
		sse_close(s);
		ck_assert_int_eq(o.pid, pid);
		ck_assert_int_eq(o.end.kind, SSE_EXIT);
		ck_assert_int_eq(o.end.code, 5);
		ck_assert(o.end.truncated);
		assert_tail(&o.ch[FRAME_STDOUT], &want, REPLAY_MIN);
	}
	// A short one is complete, and says so; its signal is kept too.
	sse_run(d, "echo a; sleep .1; echo b >&2; sleep .1; echo c", 0, &o);
	struct sse *s = sse_attach(d, o.pid);
	struct sse_event e = {0};
	static const char *const pieces[] = {"a\n", "b\n", "c\n"};
	(void)sse_pid(s);
	for (int i = 0; i < 3; i++) {
		sse_expect(s, &e, SSE_DATA, 2000);
		ck_assert_int_eq(e.channel, i == 1 ? FRAME_STDERR : FRAME_STDOUT);
		assert_text(&e.data, pieces[i]);
	}
	sse_expect(s, &e, SSE_EXIT, 2000);
	ck_assert(!e.truncated);
	sse_expect(s, &e, SSE_DONE, 2000);
	sse_event_release(&e);
	sse_close(s);
	sse_out_release(&o);
	buf_release(&want);
	d_finish(d);
}
END_TEST

// What /exec ran can be attached to as well, while it runs and after it.
START_TEST(command_of_exec_cannot_be_attached)
{
	struct testd *d = d_start();
	struct resp r = {0};
	ck_assert_int_eq(j_int(run(d, "echo $$; kill -TERM $$", &r), "exit_code"), -1);
	int64_t pid = strtoll(j_str(resp_json(&r), "stdout"), NULL, 10);
	struct sse *s = sse_attach(d, pid);
	struct sse_out o = {0};
	sse_collect(s, &o, 3000);
	ck_assert_str_eq(o.end.signal, "SIGTERM");
	ck_assert_int_eq(strtoll(buf_cstr(&o.ch[FRAME_STDOUT]), NULL, 10), pid);
	sse_out_release(&o);
	sse_close(s);
	resp_release(&r);
	d_finish(d);
}
END_TEST

struct descriptors {
	const struct testd *d;
	int count;
};

static bool has_no_more(void *arg)
{
	const struct descriptors *f = arg;
	return d_fd_count(f->d) <= f->count;
}

START_TEST(ended_command_is_kept_for_ever)
{
	struct testd *d = d_start("--retention", "1");
	struct sse_out o = {0};
	sse_run(d, "echo x; exit 3", 3, &o);
	int64_t pid = o.pid;
	int64_t ended = h_now_ms();
	int fds = d_fd_count(d);
	ck_assert_int_eq(attach_status(d, pid), 200);
	ck_assert_int_eq(attach_status(d, 999999), 404);
	int status;
	do {
		h_tick();
		status = attach_status(d, pid);
		ck_assert_msg(h_now_ms() - ended < h_scaled(3000), "still there after 3 s");
	} while (status == 200);
	ck_assert_int_eq(status, 404);
	ck_assert_int_ge(h_now_ms() - ended, 900);
	struct descriptors same = {d, fds};
	ck_assert_msg(wait_until(has_no_more, &same, 2000), "%d descriptors, want %d", d_fd_count(d), fds);
	sse_out_release(&o);
	d_finish(d);
}
END_TEST

// --- keepalive ---

struct ping_case {
	const char *target;
	const char *headers;
	int pings;
};

static const struct ping_case pings[] = {
	{"/exec/stream", "Keepalive-Ping-Interval: 1\r\n", 2},
	{"/exec/stream?keepalive=1", NULL, 2},
	{"/exec/stream", NULL, 0},
	{"/exec/stream", "Keepalive-Ping-Interval: 0\r\n", 0},
	{"/exec/stream", "Keepalive-Ping-Interval: -1\r\n", 0},
	{"/exec/stream", "Keepalive-Ping-Interval: x\r\n", 0},
	{"/exec/stream", "Keepalive-Ping-Interval:\r\n", 0},
	{"/exec/stream", "Keepalive-Ping-Interval: 1.5\r\n", 0},
	{"/exec/stream", "Keepalive-Ping-Interval: 10000000000000000000\r\n", 0},
	{"/exec/stream?keepalive=", NULL, 0},
	{"/exec/stream?keepalive=99999999999999999999", NULL, 0},
};
#define PINGS (sizeof pings / sizeof *pings)

// B28
START_TEST(keepalive_floods_or_is_missing)
{
	struct testd *d = d_start();
	struct sse *s[PINGS + 1];
	for (size_t i = 0; i < PINGS; i++)
		s[i] = sse_open_with(d, pings[i].target, pings[i].headers, "{\"command\":\"sleep 2.5; echo done\"}", 0);
	int64_t pid = sse_pid(s[0]);
	char target[64];
	(void)snprintf(target, sizeof target, "/exec/attach?pid=%lld", (long long)pid);
	s[PINGS] = sse_open_with(d, target, "Keepalive-Ping-Interval: 1\r\n", NULL, 0);
	for (size_t i = 0; i <= PINGS; i++) {
		int want = i < PINGS ? pings[i].pings : 2;
		struct sse_out o = {0};
		sse_collect(s[i], &o, 10000);
		int got = (int)o.keepalives;
		ck_assert_msg(h_scale() > 1 && want ? got >= 1 : got == want, "case %zu: %d keepalives, want %d", i,
			got, want);
		ck_assert_int_eq(o.end.code, 0);
		assert_text(&o.ch[FRAME_STDOUT], "done\n");
		sse_out_release(&o);
		sse_close(s[i]);
	}
	d_finish(d);
}
END_TEST

// --- a gigabyte ---

struct counts {
	uint64_t bytes[FRAME_CHANNELS];
	bool begun; // the pid frame was read
	bool exited;
};

static size_t base64_zeros(const char *p, size_t n)
{
	static char zeros[1 << 16];
	if (!zeros[0])
		memset(zeros, 'A', sizeof zeros);
	size_t pad = n > 0 && p[n - 1] == '=' ? n > 1 && p[n - 2] == '=' ? 2 : 1 : 0;
	ck_assert_uint_le(n, sizeof zeros);
	ck_assert_uint_eq(n % 4, 0);
	ck_assert_msg(memcmp(p, zeros, n - pad) == 0, "other bytes than were written");
	return n / 4 * 3 - pad;
}

// One frame without its newlines, looked at without a JSON parser, which would take most of the test's time.
static void count_frame(struct counts *c, const char *p, size_t n)
{
	static const struct {
		enum frame_channel ch;
		const char *head;
	} heads[] = {
		{FRAME_STDOUT, "data: {\"channel\":\"stdout\",\"data\":\""},
		{FRAME_STDERR, "data: {\"channel\":\"stderr\",\"data\":\""},
	};
	for (size_t i = 0; i < 2; i++) {
		size_t len = strlen(heads[i].head);
		if (n < len + 2 || memcmp(p, heads[i].head, len) != 0)
			continue;
		ck_assert(c->begun && !c->exited && memcmp(p + n - 2, "\"}", 2) == 0);
		c->bytes[heads[i].ch] += base64_zeros(p + len, n - len - 2);
		return;
	}
	static const char pid[] = "data: {\"pid\":";
	static const char end[] = "data: {\"exit\":7}";
	if (!c->begun) {
		ck_assert(n > sizeof pid && memcmp(p, pid, sizeof pid - 1) == 0);
		c->begun = true;
		return;
	}
	ck_assert_msg(
		n == sizeof end - 1 && memcmp(p, end, n) == 0, "unexpected frame %.*s", (int)(n < 200 ? n : 200), p);
	ck_assert(!c->exited);
	c->exited = true;
}

static void count_frames(struct counts *c, struct buf *body)
{
	const char *p = (const char *)buf_data(body);
	size_t used = 0;
	const char *end;
	while ((end = memmem(p + used, buf_len(body) - used, "\n\n", 2))) {
		count_frame(c, p + used, (size_t)(end - p) - used);
		used = (size_t)(end - p) + 2;
	}
	buf_consume(body, used);
}

// Reads S to its end; the daemon's memory is looked at on the way.
static void count_stream(const struct testd *d, struct sse *s, struct counts *c, int64_t ms)
{
	struct client *client = sse_client(s);
	struct buf body = {0};
	int64_t end = h_now_ms() + h_scaled(ms);
	long before = d_rss_kib(d);
	enum http_event ev;
	uint64_t looked = 0;
	while ((ev = client_event(client, &body, end)) == HTTP_BODY) {
		if (buf_len(&body) < 128 * 1024)
			continue;
		count_frames(c, &body);
		uint64_t all = c->bytes[FRAME_STDOUT] + c->bytes[FRAME_STDERR];
		if (all - looked < 50000000)
			continue;
		looked = all;
		ck_assert_int_lt(d_rss_kib(d) - before, d_sanitized(d) ? 300 * 1024 : 4096);
	}
	count_frames(c, &body);
	ck_assert_msg(ev == HTTP_END, "%s after %llu bytes", ev == HTTP_MORE ? "deadline" : "cut",
		(unsigned long long)(c->bytes[FRAME_STDOUT] + c->bytes[FRAME_STDERR]));
	ck_assert_uint_eq(buf_len(&body), 0);
	buf_release(&body);
}

// 1 GiB on stderr alone, on stdout alone, half on each at once.
START_TEST(gigabyte_is_short_or_stuck)
{
	static const char *const commands[] = {
		"head -c $n /dev/zero >&2",
		"head -c $n /dev/zero",
		"head -c $n /dev/zero >&2 & head -c $n /dev/zero; wait",
	};
	unsigned long long n = (unsigned long long)((double)(_i == 2 ? 1 << 29 : 1 << 30) / (h_scale() * h_scale()));
	char command[160];
	struct counts c = {0};
	struct testd *d = d_start();
	(void)snprintf(command, sizeof command, "n=%llu; %s; exit 7", n, commands[_i]);
	struct sse *s = sse_exec(d, command);
	count_stream(d, s, &c, 29000);
	ck_assert(c.exited);
	ck_assert_uint_eq(c.bytes[FRAME_STDERR], _i == 1 ? 0 : n);
	ck_assert_uint_eq(c.bytes[FRAME_STDOUT], _i == 0 ? 0 : n);
	sse_close(s);
	d_finish(d);
}
END_TEST

Suite *replay_suite(void)
{
	Suite *s = suite_create("replay");
	TCase *tc = h_tcase(s, "attach", 30);
	tcase_add_loop_test(tc, lost_client_takes_its_command_along, 0, 2);
	tcase_add_test(tc, attacher_sees_gaps_or_duplicates);
	tcase_add_test(tc, ended_command_cannot_be_attached);
	tcase_add_test(tc, command_of_exec_cannot_be_attached);
	tcase_add_test(tc, ended_command_is_kept_for_ever);
	tc = h_tcase(s, "keepalive", 30);
	tcase_add_test(tc, keepalive_floods_or_is_missing);
	tc = h_tcase(s, "volume", 60);
	tcase_add_loop_test(tc, gigabyte_is_short_or_stuck, 0, 3);
	return s;
}
