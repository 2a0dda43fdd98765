// SPDX-License-Identifier: Apache-2.0
// Output arrives whole: what a command wrote is what its client gets, byte for byte, and costs bounded memory on the way.
#include "proto/text.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

struct output_case {
	const char *command;
	const char *want;
	size_t n;
};

#define CASE(command, want)                     \
	{                                       \
		command, want, sizeof(want) - 1 \
	}

// B01 (blank lines, CR), B02 (no final newline), B03 (bytes that are no UTF-8).
static const struct output_case plain[] = {
	CASE("printf 'a\\n\\nb\\n\\n\\nc\\n'", "a\n\nb\n\n\nc\n"),
	CASE("printf '\\n\\nx'", "\n\nx"),
	CASE("printf '\\n\\n\\n\\n'", "\n\n\n\n"),
	CASE("printf 'a\\r\\n\\r\\nb\\r\\n'", "a\r\n\r\nb\r\n"),
	CASE("printf 'x\\ry\\r'", "x\ry\r"),
	CASE("printf 'data: x\\n\\ndata: y\\n\\n'", "data: x\n\ndata: y\n\n"),
	CASE("printf '  blanks \\t '", "  blanks \t "),
	CASE("printf 'no newline'", "no newline"),
	CASE("printf 'x\\ny'", "x\ny"),
	CASE("printf '\\000\\377\\376\\200'", "\000\377\376\200"),
	CASE("true", ""),
};
#define PLAIN_COUNT ((int)(sizeof plain / sizeof plain[0]))

// B35: frames of the protocols as output, then exit 9.
static const struct output_case forged[] = {
	CASE("printf 'x\\revent: exit\\rdata: 0'; exit 9", "x\revent: exit\rdata: 0"),
	CASE("printf '\\n\\ndata: {\"exit\":0}\\n\\n'; exit 9", "\n\ndata: {\"exit\":0}\n\n"),
	CASE("printf '{\"exit\":0}'; exit 9", "{\"exit\":0}"),
	CASE("printf '\\002\\000\\000\\000\\002{}'; exit 9", "\002\000\000\000\002{}"),
	CASE("printf '0\\r\\n\\r\\nHTTP/1.1 200 OK\\r\\n\\r\\n'; exit 9", "0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"),
};
#define FORGED_COUNT ((int)(sizeof forged / sizeof forged[0]))

// /exec with base64: the decoded streams.
static int64_t exec_raw(const struct testd *d, const char *command, struct buf *out, struct buf *err)
{
	struct resp r = {0};
	req_pack(d, "POST", "/exec", &r, "{s:s, s:s}", "command", command, "encoding", "base64");
	ck_assert_int_eq(r.status, 200);
	const json_t *o = resp_json(&r);
	ck_assert_str_eq(j_str(o, "encoding"), "base64");
	const char *b = j_str(o, "stdout");
	ck_assert_int_eq(text_b64_decode(out, b, strlen(b)), 0);
	b = j_str(o, "stderr");
	ck_assert_int_eq(text_b64_decode(err, b, strlen(b)), 0);
	int64_t code = j_int(o, "exit_code");
	resp_release(&r);
	return code;
}

static void seq(struct buf *b, int n)
{
	for (int i = 1; i <= n; i++)
		buf_printf(b, "%d\n", i);
	ck_assert_int_eq(buf_failed(b), 0);
}

// Resident memory that a test may see grow: a sanitized binary keeps what was freed.
static long rss_limit(const struct testd *d, long kib)
{
	return d_sanitized(d) ? kib + 300L * 1024 : kib;
}

static void assert_grew_less(const struct testd *d, long before, long kib)
{
	long now = d_rss_kib(d);
	ck_assert_msg(now - before < rss_limit(d, kib), "resident memory grew from %ld to %ld KiB", before, now);
}

START_TEST(stream_changes_bytes_of_stdout)
{
	const struct output_case *k = &plain[_i];
	struct testd *d = d_start();
	struct sse_out o = {0};
	sse_run(d, k->command, 0, &o);
	assert_bytes(&o.ch[FRAME_STDOUT], k->want, k->n);
	assert_bytes(&o.ch[FRAME_STDERR], "", 0);
	sse_out_release(&o);
	d_finish(d);
}
END_TEST

START_TEST(stream_changes_bytes_of_stderr)
{
	const struct output_case *k = &plain[_i];
	struct testd *d = d_start();
	struct sse_out o = {0};
	char command[256];
	(void)snprintf(command, sizeof command, "exec >&2; %s", k->command);
	sse_run(d, command, 0, &o);
	assert_bytes(&o.ch[FRAME_STDERR], k->want, k->n);
	assert_bytes(&o.ch[FRAME_STDOUT], "", 0);
	sse_out_release(&o);
	d_finish(d);
}
END_TEST

START_TEST(exec_changes_bytes)
{
	const struct output_case *k = &plain[_i];
	struct testd *d = d_start();
	struct buf out = {0};
	struct buf err = {0};
	char command[256];
	ck_assert_int_eq(exec_raw(d, k->command, &out, &err), 0);
	assert_bytes(&out, k->want, k->n);
	assert_bytes(&err, "", 0);
	buf_reset(&out);
	(void)snprintf(command, sizeof command, "exec >&2; %s", k->command);
	ck_assert_int_eq(exec_raw(d, command, &out, &err), 0);
	assert_bytes(&out, "", 0);
	assert_bytes(&err, k->want, k->n);
	buf_release(&out);
	buf_release(&err);
	d_finish(d);
}
END_TEST

// B01: 3 MB on both channels at once.
START_TEST(both_channels_full_at_once_deadlock_the_stream)
{
	struct testd *d = d_start();
	struct sse_out o = {0};
	struct buf want = {0};
	seq(&want, 440000);
	sse_run(d, "seq 440000 >&2 & seq 440000; wait", 0, &o);
	assert_bytes(&o.ch[FRAME_STDOUT], buf_data(&want), buf_len(&want));
	assert_bytes(&o.ch[FRAME_STDERR], buf_data(&want), buf_len(&want));
	ck_assert(!o.end.truncated);
	sse_out_release(&o);
	buf_release(&want);
	d_finish(d);
}
END_TEST

// B01: /exec keeps the first MiB of each, drains the rest and says so.
START_TEST(both_channels_full_at_once_deadlock_exec)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct buf want = {0};
	seq(&want, 440000);
	buf_truncate(&want, 1024 * 1024);
	const json_t *o = run(d, "seq 440000 >&2 & seq 440000; wait; exit 6", &r);
	ck_assert_int_eq(j_int(o, "exit_code"), 6);
	ck_assert(j_bool(o, "truncated"));
	ck_assert_uint_eq(strlen(j_str(o, "stdout")), buf_len(&want));
	ck_assert_uint_eq(strlen(j_str(o, "stderr")), buf_len(&want));
	ck_assert_int_eq(memcmp(j_str(o, "stdout"), buf_data(&want), buf_len(&want)), 0);
	ck_assert_int_eq(memcmp(j_str(o, "stderr"), buf_data(&want), buf_len(&want)), 0);
	resp_release(&r);
	buf_release(&want);
	d_finish(d);
}
END_TEST

// One MiB exactly is not too much, one byte more is.
START_TEST(truncated_is_off_by_one)
{
	struct testd *d = d_start();
	struct resp r = {0};
	const json_t *o = run(d, "head -c 1048576 /dev/zero | tr '\\0' x", &r);
	ck_assert(!j_bool(o, "truncated"));
	ck_assert_uint_eq(strlen(j_str(o, "stdout")), 1048576);
	o = run(d, "head -c 1048577 /dev/zero | tr '\\0' x", &r);
	ck_assert(j_bool(o, "truncated"));
	ck_assert_uint_eq(strlen(j_str(o, "stdout")), 1048576);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B02: a prompt without a newline.
START_TEST(prompt_comes_only_at_the_exit)
{
	struct testd *d = d_start();
	static const char *const commands[] = {"printf 'name? '; sleep 5", "printf 'name? ' >&2; sleep 5"};
	for (int i = 0; i < 2; i++) {
		struct sse *s = sse_exec(d, commands[i]);
		int64_t start = h_now_ms();
		(void)sse_pid(s);
		struct buf out = {0};
		sse_until(s, i ? FRAME_STDERR : FRAME_STDOUT, "name? ", &out, 2000);
		assert_text(&out, "name? ");
		ck_assert_int_lt(h_now_ms() - start, h_scaled(2000));
		buf_release(&out);
		sse_close(s);
	}
	d_finish(d);
}
END_TEST

// B03: the two halves come in two frames, and together they are the character.
START_TEST(cut_character_is_lost)
{
	static const char command[] = "printf 'a\\342\\202'; sleep 0.4; printf '\\254b'";
	struct testd *d = d_start();
	struct sse_out o = {0};
	struct resp r = {0};
	sse_run(d, command, 0, &o);
	assert_text(&o.ch[FRAME_STDOUT], "a\342\202\254b");
	ck_assert_uint_ge(o.frames, 2);
	sse_out_release(&o);
	ck_assert_str_eq(j_str(run(d, command, &r), "stdout"), "a\342\202\254b");
	// Cut for good: one replacement, nothing else touched.
	ck_assert_str_eq(j_str(run(d, "printf 'a\\342\\202'", &r), "stdout"), "a\357\277\275");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B03: 300 kB of a 3-byte character, whatever the sizes of the reads; with one byte in front so that no size divides.
START_TEST(long_text_of_wide_characters_is_damaged)
{
	static const char *const commands[] = {"yes '\342\202\254' | head -n 100000 | tr -d '\\n'",
		"printf x; yes '\342\202\254' | head -n 100000 | tr -d '\\n'"};
	struct testd *d = d_start();
	for (int i = 0; i < 2; i++) {
		struct buf want = {0};
		struct sse_out o = {0};
		struct resp r = {0};
		buf_str(&want, i ? "x" : "");
		h_repeat(&want, "\342\202\254", 100000);
		const char *text = j_str(run(d, commands[i], &r), "stdout");
		ck_assert_uint_eq(strlen(text), buf_len(&want));
		ck_assert_int_eq(memcmp(text, buf_data(&want), buf_len(&want)), 0);
		sse_run(d, commands[i], 0, &o);
		assert_bytes(&o.ch[FRAME_STDOUT], buf_data(&want), buf_len(&want));
		sse_out_release(&o);
		resp_release(&r);
		buf_release(&want);
	}
	d_finish(d);
}
END_TEST

// B03: all 256 byte values.
START_TEST(some_byte_value_is_lost)
{
	static const char command[] =
		"i=0; while [ $i -lt 256 ]; do printf \"\\\\$(printf %03o $i)\"; i=$((i+1)); done";
	struct testd *d = d_start();
	struct sse_out o = {0};
	struct resp r = {0};
	struct buf out = {0};
	struct buf err = {0};
	unsigned char all[256];
	for (size_t i = 0; i < sizeof all; i++)
		all[i] = (unsigned char)i;
	sse_run(d, command, 0, &o);
	assert_bytes(&o.ch[FRAME_STDOUT], all, sizeof all);
	ck_assert_int_eq(exec_raw(d, command, &out, &err), 0);
	assert_bytes(&out, all, sizeof all);
	// As text the ASCII half survives, NUL and controls included, and each other byte is one U+FFFD.
	const json_t *text = j_get(run(d, command, &r), "stdout");
	buf_reset(&out);
	buf_append(&out, all, 128);
	h_repeat(&out, "\357\277\275", 128);
	buf_reset(&err);
	buf_append(&err, json_string_value(text), json_string_length(text));
	assert_bytes(&err, buf_data(&out), buf_len(&out));
	buf_release(&out);
	buf_release(&err);
	resp_release(&r);
	sse_out_release(&o);
	d_finish(d);
}
END_TEST

static bool progress_past(void *arg)
{
	const struct testd *d = arg;
	char path[320];
	int n = 0;
	(void)snprintf(path, sizeof path, "%s/progress", d->workspace);
	FILE *f = fopen(path, "r");
	if (!f)
		return false;
	int got = fscanf(f, "%d", &n);
	(void)fclose(f);
	return got == 1 && n >= 100;
}

// B05: the client hangs up after the first frame; the command goes on (100 MB are drained) and memory stays.
START_TEST(output_without_a_reader_piles_up_or_blocks)
{
	static const char command[] = "i=0; while :; do head -c 1000000 /dev/zero | tr '\\0' x; i=$((i+1)); "
				      "echo $i >progress; done";
	struct testd *d = d_start();
	struct sse *s = sse_exec(d, command);
	int64_t pid = sse_pid(s);
	sse_close(s);
	long before = d_rss_kib(d);
	ck_assert_msg(wait_until(progress_past, d, 20000), "the command is blocked");
	assert_grew_less(d, before, 4096);
	ck_assert(d_nspid_alive(d, pid));
	// What is left to attach to is a bounded piece, not the 100 MB.
	struct resp r = {0};
	req(d, "GET", "/exec/processes", NULL, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_uint_eq(json_array_size(j_get(resp_json(&r), "processes")), 1);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Bytes that process PID has written so far.
static long long written(pid_t pid)
{
	char path[64];
	char line[128];
	long long n = -1;
	(void)snprintf(path, sizeof path, "/proc/%d/io", (int)pid);
	FILE *f = fopen(path, "r");
	ck_assert_msg(f, "process %d is gone", (int)pid);
	while (fgets(line, sizeof line, f))
		if (sscanf(line, "wchar: %lld", &n) == 1)
			break;
	(void)fclose(f);
	ck_assert_int_ge(n, 0);
	return n;
}

static bool no_commands(void *arg)
{
	return d_no_commands(arg);
}

// B05: a reader of some 10 kB a second holds the command back; once it has gone the command runs to its end.
START_TEST(slow_reader_makes_the_daemon_hoard)
{
	struct testd *d = d_start();
	struct sse *s = sse_open_with(
		d, "/exec/stream", NULL, "{\"command\":\"exec dd if=/dev/zero bs=64k count=4096 2>/dev/null\"}", 4096);
	pid_t pid = d_outside_pid(d, sse_pid(s));
	long before = d_rss_kib(d);
	struct client *c = sse_client(s);
	int64_t end = h_now_ms() + 3000;
	int64_t taken = 0;
	char part[512];
	while (h_now_ms() < end) {
		if (taken * 1000 < (3000 - (end - h_now_ms())) * 10000) {
			ssize_t n = recv(c->fd, part, sizeof part, MSG_DONTWAIT);
			ck_assert(n != 0);
			taken += n > 0 ? n : 0;
		}
		h_tick();
	}
	ck_assert_int_gt(taken, 0);
	// Pipe, replay, queue and socket buffers hold some MiB at most.
	ck_assert_int_lt(written(pid), 16LL * 1024 * 1024);
	assert_grew_less(d, before, 8192);
	sse_close(s);
	ck_assert_msg(wait_until(no_commands, d, 30000), "the command is still blocked by a reader that has gone");
	assert_grew_less(d, before, 8192);
	d_finish(d);
}
END_TEST

// B04: a single reader, however late, loses nothing.
START_TEST(late_reader_loses_output)
{
	struct testd *d = d_start();
	struct sse *s = sse_open_with(d, "/exec/stream", NULL, "{\"command\":\"seq 1700000; exit 5\"}", 4096);
	pid_t pid = d_outside_pid(d, sse_pid(s));
	int64_t end = h_now_ms() + 2000;
	while (h_now_ms() < end)
		h_tick();
	ck_assert_msg(pid_alive(pid), "12 MB went somewhere without a reader");
	struct buf want = {0};
	struct sse_out o = {0};
	seq(&want, 1700000);
	sse_collect(s, &o, 40000);
	assert_bytes(&o.ch[FRAME_STDOUT], buf_data(&want), buf_len(&want));
	ck_assert_int_eq(o.end.kind, SSE_EXIT);
	ck_assert_int_eq(o.end.code, 5);
	ck_assert(!o.end.truncated);
	sse_close(s);
	sse_out_release(&o);
	buf_release(&want);
	d_finish(d);
}
END_TEST

#define IDLE 200

// B06: 200 commands that do nothing.
START_TEST(idle_commands_cost_megabytes)
{
	struct testd *d = d_start();
	struct sse *s[IDLE];
	struct sse_out o = {0};
	sse_run(d, "true", 0, &o);
	sse_out_release(&o);
	long before = d_rss_kib(d);
	for (int i = 0; i < IDLE; i++) {
		s[i] = sse_exec(d, "exec sleep 600");
		(void)sse_pid(s[i]);
	}
	assert_grew_less(d, before, IDLE * 64L);
	// By their parent: right after the pid frame a child may still carry the daemon's command line.
	ck_assert_int_eq(d_children(d), IDLE);
	for (int i = 0; i < IDLE; i++)
		sse_close(s[i]);
	assert_grew_less(d, before, IDLE * 64L);
	d_finish(d);
}
END_TEST

// B06: one line of 50 MB.
START_TEST(endless_line_is_buffered_or_refused)
{
	static const size_t size = 50000000;
	struct testd *d = d_start();
	struct sse_event e = {0};
	long before = d_rss_kib(d);
	struct sse *s = sse_open_pack(
		d, "/exec/stream", "{s:s, s:i}", "command", "head -c 50000000 /dev/zero | tr '\\0' x", "timeout", 0);
	(void)sse_pid(s);
	size_t got = 0;
	while (sse_next(s, &e, CLIENT_DEADLINE) == SSE_DATA) {
		const unsigned char *p = buf_data(&e.data);
		for (size_t i = 0; i < buf_len(&e.data); i++)
			if (p[i] != 'x') // an assert a byte takes its time
				ck_abort_msg("byte %02x at %zu", p[i], got + i);
		got += buf_len(&e.data);
	}
	ck_assert_int_eq(e.kind, SSE_EXIT);
	ck_assert_int_eq(e.code, 0);
	ck_assert(!e.truncated);
	ck_assert_uint_eq(got, size);
	assert_grew_less(d, before, 8192);
	ck_assert_int_eq(sse_next(s, &e, CLIENT_DEADLINE), SSE_END);
	sse_event_release(&e);
	sse_close(s);
	d_finish(d);
}
END_TEST

// B35: on the stream, on attach and in /exec's answer.
START_TEST(output_is_taken_for_a_frame)
{
	const struct output_case *k = &forged[_i];
	struct testd *d = d_start();
	struct sse_out o = {0};
	struct sse_out again = {0};
	struct buf out = {0};
	struct buf err = {0};
	sse_run(d, k->command, 9, &o);
	assert_bytes(&o.ch[FRAME_STDOUT], k->want, k->n);
	struct sse *s = sse_attach(d, o.pid);
	sse_collect(s, &again, CLIENT_DEADLINE);
	sse_close(s);
	ck_assert_int_eq(again.pid, o.pid);
	ck_assert_int_eq(again.end.kind, SSE_EXIT);
	ck_assert_int_eq(again.end.code, 9);
	assert_bytes(&again.ch[FRAME_STDOUT], k->want, k->n);
	ck_assert_int_eq(exec_raw(d, k->command, &out, &err), 9);
	assert_bytes(&out, k->want, k->n);
	buf_release(&out);
	buf_release(&err);
	sse_out_release(&o);
	sse_out_release(&again);
	d_finish(d);
}
END_TEST

// What comes on one channel keeps its order against the other one when the writes are apart.
START_TEST(channels_are_swapped_or_reordered)
{
	struct testd *d = d_start();
	struct sse *s = sse_exec(d, "echo 1; sleep .2; echo 2 >&2; sleep .2; echo 3; sleep .2; echo 4 >&2");
	struct sse_event e = {0};
	(void)sse_pid(s);
	for (int i = 1; i <= 4; i++) {
		const char want[] = {(char)('0' + i), '\n', '\0'};
		sse_expect(s, &e, SSE_DATA, 5000);
		ck_assert_int_eq(e.channel, i % 2 ? FRAME_STDOUT : FRAME_STDERR);
		assert_text(&e.data, want);
	}
	sse_expect(s, &e, SSE_EXIT, 5000);
	sse_expect(s, &e, SSE_END, 5000);
	sse_event_release(&e);
	sse_close(s);
	d_finish(d);
}
END_TEST

// Of the serving process, in bytes; NEW: what it may have from now on, 0 = as much as it likes.
static rlim_t address_space(const struct testd *d, rlim_t new)
{
	char path[64];
	unsigned long pages = 0;
	(void)snprintf(path, sizeof path, "/proc/%d/statm", (int)d->daemon);
	FILE *f = fopen(path, "re");
	ck_assert(f && fscanf(f, "%lu", &pages) == 1);
	(void)fclose(f);
	struct rlimit to = {.rlim_cur = new ? new : RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
	ck_assert_int_eq(prlimit(d->daemon, RLIMIT_AS, &to, NULL), 0);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

struct watched_fds {
	const struct testd *d;
	int want;
};

// What a request before had open may have been among the first ones.
static bool no_more_fds(void *arg)
{
	const struct watched_fds *w = arg;
	return d_fd_count(w->d) <= w->want;
}

// A daemon that can map nothing more has no room for what commands write: it starts none, and says so.
START_TEST(no_memory_for_output_leaves_no_end)
{
	static const rlim_t more[] = {0, 64 * 1024, 200 * 1024};
	static const char *const routes[] = {"/exec", "/exec/stream"};
	struct testd *d = d_start();
	struct resp r = {0};
	struct sse_out o = {0};
	ck_assert_int_eq(j_int(run(d, "echo hi", &r), "exit_code"), 0);
	sse_run(d, "echo hi", 0, &o);
	struct watched_fds fds = {d, d_fd_count(d)};
	int refused = 0;
	for (size_t i = 0; i < sizeof more / sizeof *more && !d_sanitized(d); i++) {
		(void)address_space(d, address_space(d, 0) + more[i]);
		for (int k = 0; k < 4; k++) {
			struct client *c = client_connect(d);
			char body[] = "{\"command\":\"echo hi\",\"timeout\":2}";
			c->deadline = 6000;
			client_request(c, "POST", routes[k % 2], NULL, body, strlen(body));
			client_response(c, &r);
			if (r.status != 200)
				(void)assert_error(&r, 503, NULL);
			refused += r.status == 503;
			client_close(c);
		}
		(void)address_space(d, 0);
		ck_assert_str_eq(j_str(run(d, "echo hi", &r), "stdout"), "hi\n");
		ck_assert_msg(
			wait_until(no_more_fds, &fds, 3000), "%d descriptors, %d at first", d_fd_count(d), fds.want);
		ck_assert(d_no_commands(d));
	}
	ck_assert(refused > 0 || d_sanitized(d));
	sse_out_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *output_suite(void)
{
	Suite *s = suite_create("output");
	TCase *tc = h_tcase(s, "bytes", 30);
	tcase_add_loop_test(tc, stream_changes_bytes_of_stdout, 0, PLAIN_COUNT);
	tcase_add_loop_test(tc, stream_changes_bytes_of_stderr, 0, PLAIN_COUNT);
	tcase_add_loop_test(tc, exec_changes_bytes, 0, PLAIN_COUNT);
	tcase_add_loop_test(tc, output_is_taken_for_a_frame, 0, FORGED_COUNT);
	tcase_add_test(tc, both_channels_full_at_once_deadlock_the_stream);
	tcase_add_test(tc, both_channels_full_at_once_deadlock_exec);
	tcase_add_test(tc, truncated_is_off_by_one);
	tcase_add_test(tc, prompt_comes_only_at_the_exit);
	tcase_add_test(tc, channels_are_swapped_or_reordered);
	tcase_add_test(tc, cut_character_is_lost);
	tcase_add_test(tc, long_text_of_wide_characters_is_damaged);
	tcase_add_test(tc, some_byte_value_is_lost);
	tc = h_tcase(s, "memory", 90);
	tcase_add_test(tc, output_without_a_reader_piles_up_or_blocks);
	tcase_add_test(tc, slow_reader_makes_the_daemon_hoard);
	tcase_add_test(tc, late_reader_loses_output);
	tcase_add_test(tc, idle_commands_cost_megabytes);
	tcase_add_test(tc, endless_line_is_buffered_or_refused);
	tcase_add_test(tc, no_memory_for_output_leaves_no_end);
	return s;
}
