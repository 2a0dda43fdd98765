// SPDX-License-Identifier: Apache-2.0
// GET /watch/stream: one frame an event, and how it ends.
#include "tests/integration/suites.h"
#include "tests/integration/watching.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

// Opens it and reads the frame with its id.
static struct sse *open_stream(const struct testd *d, const char *query, int64_t *id)
{
	char target[300];
	struct sse_event e = {0};
	(void)snprintf(target, sizeof target, "/watch/stream?%s", query);
	struct sse *s = sse_open(d, target, NULL);
	sse_expect(s, &e, SSE_WATCH, 5000);
	ck_assert_uint_eq(json_object_size(e.obj), 1);
	int64_t got = j_int(e.obj, "watcher_id");
	ck_assert_int_ge(got, 1);
	if (id)
		*id = got;
	sse_event_release(&e);
	return s;
}

static void expect(const struct testd *d, struct sse *s, int type, const char *name)
{
	struct sse_event e = {0};
	char full[600];
	(void)snprintf(full, sizeof full, "%s/%s", d->workspace, name);
	sse_expect(s, &e, SSE_WATCH, 5000);
	ck_assert_msg(j_has(e.obj, "name"), "a frame without a name instead of %d %s", type, name);
	ck_assert_str_eq(j_str(e.obj, "name"), full);
	ck_assert_int_eq(j_int(e.obj, "type"), type);
	sse_event_release(&e);
}

static void expect_end(struct sse *s)
{
	struct sse_event e = {0};
	sse_expect(s, &e, SSE_WATCH, 5000);
	ck_assert(j_has(e.obj, "ended"));
	ck_assert(j_bool(e.obj, "ended"));
	ck_assert_int_eq(sse_next(s, &e, 5000), SSE_END);
	sse_event_release(&e);
}

START_TEST(events_come_late_or_not)
{
	struct testd *d = d_start();
	w_dir(d, "w");
	struct sse *s = open_stream(d, "path=w&recursive=true", NULL);
	struct sse *flat = open_stream(d, "path=w", NULL);
	for (int i = 0; i < 20; i++) {
		w_dir(d, "w/d");
		expect(d, s, CREATED, "w/d");
		expect(d, flat, CREATED, "w/d");
		w_file(d, "w/d/f");
		expect(d, s, CREATED, "w/d/f");
		w_shell(d, "rm -r w/d");
		expect(d, s, REMOVED, "w/d/f");
		expect(d, s, REMOVED, "w/d");
		expect(d, flat, REMOVED, "w/d");
	}
	sse_close(flat);
	sse_close(s);
	w_settled(d, 0);
	d_finish(d);
}
END_TEST

START_TEST(stream_outlives_its_root)
{
	static const char *const lines[] = {"rm -r w", "mv w x"};
	static const int types[] = {REMOVED, RENAMED};
	struct testd *d = d_start();
	w_dir(d, "w");
	struct sse *s = open_stream(d, "path=w&recursive=1", NULL);
	w_shell(d, lines[_i]);
	expect(d, s, types[_i], "w");
	expect_end(s);
	sse_close(s);
	w_settled(d, 0);
	d_finish(d);
}
END_TEST

START_TEST(stream_is_removed_by_id)
{
	struct testd *d = d_start();
	struct resp r = {0};
	int64_t id;
	char target[64];
	struct sse *s = open_stream(d, "path=.", &id);
	// Its events are the stream's alone.
	(void)snprintf(target, sizeof target, "/watch/events?watcher_id=%lld", (long long)id);
	req(d, "GET", target, NULL, &r);
	(void)assert_error(&r, 404, "not_found");
	w_remove(d, id);
	expect_end(s);
	req_pack(d, "POST", "/watch/remove", &r, "{s:I}", "watcher_id", (json_int_t)id);
	(void)assert_error(&r, 404, "not_found");
	sse_close(s);
	w_settled(d, 0);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B27
START_TEST(sandbox_end_cuts_watch_streams)
{
	struct testd *d = d_start();
	w_dir(d, "w"); // the workspace itself holds journals
	struct sse *s = open_stream(d, "path=w&recursive=1", NULL);
	struct sse *busy = sse_exec(d, "trap 'touch w/last; exit 0' TERM; echo up; while :; do sleep .02; done");
	struct sse_event e = {0};
	(void)sse_pid(busy);
	sse_until(busy, FRAME_STDOUT, "up\n", NULL, 5000);
	d_signal(d, SIGTERM);
	expect(d, s, CREATED, "w/last"); // what commands do at the end is still told
	do
		(void)sse_next(s, &e, 5000);
	while (e.kind == SSE_WATCH);
	ck_assert_msg(e.kind == SSE_ERROR, "%s instead of the error frame", sse_kind_name(e.kind));
	ck_assert_str_eq(j_str(e.obj, "code"), "unavailable");
	ck_assert_str_eq(j_str(e.obj, "reason"), "sandbox_terminating");
	ck_assert_int_eq(sse_next(s, &e, 5000), SSE_END);
	ck_assert_int_eq(d_wait(d, 5000), 0);
	sse_event_release(&e);
	sse_close(busy);
	sse_close(s);
	d_finish(d);
}
END_TEST

static const struct {
	const char *query, *header;
	bool want;
} pings[] = {
	{"/watch/stream?path=.&keepalive=1", NULL, true},
	{"/watch/stream?path=.", "Keepalive-Ping-Interval: 1\r\n", true},
	{"/watch/stream?path=.", NULL, false},
	{"/watch/stream?path=.", "Keepalive-Ping-Interval: 0\r\n", false},
	{"/watch/stream?path=.", "Keepalive-Ping-Interval: x\r\n", false},
	{"/watch/stream?path=.", "Keepalive-Ping-Interval: 10000000000000000000\r\n", false},
};
#define PINGS (sizeof pings / sizeof *pings)

// B28
START_TEST(keepalive_floods_or_is_missing)
{
	struct testd *d = d_start();
	struct sse *s[PINGS];
	struct sse_event e = {0};
	for (size_t i = 0; i < PINGS; i++)
		s[i] = sse_open_with(d, pings[i].query, pings[i].header, NULL, 0);
	// The last of the first one's pings says that the time has passed for the others too.
	int64_t start = h_now_ms(), took;
	for (size_t i = 0; i < PINGS; i++) {
		int got = 0;
		(void)sse_next(s[i], &e, 5000);
		ck_assert_int_eq(e.kind, SSE_WATCH);
		while (got < 2 && sse_next(s[i], &e, i == 0 ? 5000 : 100) == SSE_KEEPALIVE)
			got++;
		ck_assert_msg(pings[i].want ? got >= 1 : got == 0, "case %zu: %d keepalives", i, got);
		if (i == 0) {
			took = h_now_ms() - start;
			ck_assert_msg(took > 1500, "two keepalives within %lld ms", (long long)took);
		}
	}
	w_file(d, "f"); // and it still works
	for (size_t i = 0; i < PINGS; i++) {
		expect(d, s[i], CREATED, "f");
		sse_close(s[i]);
	}
	w_settled(d, 0);
	sse_event_release(&e);
	d_finish(d);
}
END_TEST

// Somebody's working directory: the kernel says nothing of its removal.
START_TEST(held_root_ends_nothing)
{
	struct testd *d = d_start();
	w_dir(d, "w");
	struct sse *s = open_stream(d, "path=w&keepalive=1", NULL);
	struct sse *holder =
		sse_open_pack(d, "/exec/stream", "{s:s,s:s}", "command", "echo up; sleep 60", "workdir", "w");
	(void)sse_pid(holder);
	sse_until(holder, FRAME_STDOUT, "up\n", NULL, 5000);
	w_shell(d, "rmdir w");
	expect(d, s, REMOVED, "w");
	expect_end(s);
	sse_close(holder);
	sse_close(s);
	d_finish(d);
}
END_TEST

// A name that is no UTF-8 keeps the frames ASCII and comes whole beside.
START_TEST(odd_names_break_the_frames)
{
	struct testd *d = d_start();
	struct sse *s = open_stream(d, "path=.", NULL);
	struct sse_event e = {0};
	w_shell(d, "touch \"$(printf 'a\\nb\"\\377')\"");
	sse_expect(s, &e, SSE_WATCH, 5000);
	ck_assert_str_eq(j_str(e.obj, "name") + strlen(d->workspace), "/a\nb\"\xef\xbf\xbd");
	ck_assert(j_has(e.obj, "name_b64"));
	sse_event_release(&e);
	sse_close(s);
	d_finish(d);
}
END_TEST

// A reader that takes nothing: bounded, told, and nobody else waits.
START_TEST(slow_reader_loses_silently)
{
	struct testd *d = d_start();
	struct sse_event e = {0};
	struct sse *s = sse_open_with(d, "/watch/stream?path=.", NULL, NULL, 4096);
	sse_expect(s, &e, SSE_WATCH, 5000);
	long rss = d_rss_kib(d);
	int64_t id = w_create(d, ".", false);
	for (int i = 0; i < 25; i++) {
		struct w_events w = {0};
		// Long names: far more than the kernel may keep for a socket, or nothing would be lost.
		w_shell(d, "seq -f f%0120.0f 2000 | xargs touch; seq -f f%0120.0f 2000 | xargs rm");
		w_poll(d, id, &w);
		ck_assert(!w.overflow && w.count >= 4000);
		w_release(&w);
	}
	ck_assert_msg(d_sanitized(d) || d_rss_kib(d) - rss < 16384, "%ld KiB more", d_rss_kib(d) - rss);
	bool lost = false;
	while (!lost && sse_next(s, &e, 10000) == SSE_WATCH)
		lost = j_has(e.obj, "overflow");
	ck_assert(lost);
	w_file(d, "later");
	expect(d, s, CREATED, "later");
	sse_event_release(&e);
	sse_close(s);
	d_finish(d);
}
END_TEST

Suite *watch_stream_suite(void)
{
	Suite *s = suite_create("watch_stream");
	TCase *tc = h_tcase(s, "frames", 60);
	tcase_add_test(tc, events_come_late_or_not);
	tcase_add_loop_test(tc, stream_outlives_its_root, 0, 2);
	tcase_add_test(tc, stream_is_removed_by_id);
	tcase_add_test(tc, sandbox_end_cuts_watch_streams);
	tcase_add_test(tc, keepalive_floods_or_is_missing);
	tcase_add_test(tc, held_root_ends_nothing);
	tcase_add_test(tc, odd_names_break_the_frames);
	tcase_add_test(tc, slow_reader_loses_silently);
	return s;
}
