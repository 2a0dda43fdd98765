// SPDX-License-Identifier: Apache-2.0
// Surface B's watches in both codecs: streams that end as they should, watchers that lose nothing without a word.
#include "tests/integration/fskit.h"
#include "tests/integration/suites.h"
#include "tests/integration/watching.h"

#include <ctype.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CODECS = 2 };
#define TREE FS_HOME "/g"

static const char *in_ws(const struct fskit *k, const char *name)
{
	static char path[4][600];
	static unsigned next;
	char *p = path[next++ % 4];
	(void)snprintf(p, sizeof path[0], "%s%s%s", k->d->workspace, *name ? "/" : "", name);
	return p;
}

static char *pack(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	char *text = client_pack(fmt, ap);
	va_end(ap);
	return text;
}

static void open_watch(struct fskit *k, struct fs_stream *s, const char *headers, const char *path, bool recursive)
{
	char *body = pack("{s:s,s:b}", "path", path, "recursive", (int)recursive);
	fs_open(k, s, headers, body);
	free(body);
	const json_t *first = fs_next(s, CLIENT_DEADLINE);
	ck_assert_msg(first && j_has(first, "start") && !s->ended, "no start");
}

// --- the recorded streams ---

// What depends on the hour and the file system.
static void normalise(json_t *frame)
{
	json_t *e = json_object_get(json_object_get(frame, "filesystem"), "entry");
	if (!e)
		return;
	ck_assert_uint_gt(strlen(j_str(e, "modifiedTime")), 19);
	json_object_del(e, "modifiedTime");
	const json_t *type = json_object_get(e, "type");
	if (type && strcmp(json_string_value(type), "FILE_TYPE_DIRECTORY") == 0)
		json_object_del(e, "size");
}

static json_t *golden_frame(char **at)
{
	char *line = strstr(*at, "[0");
	ck_assert_ptr_nonnull(line);
	char *json = strchr(line, '{'), *end = strchr(line, '\n');
	size_t n = end ? (size_t)(end - json) : strlen(json);
	struct buf text = {0};
	buf_append(&text, json, n);
	json_t *frame = json_loads(buf_cstr(&text), 0, NULL);
	ck_assert_msg(frame, "%s", buf_cstr(&text));
	buf_release(&text);
	*at = json + n;
	return frame;
}

// Reads COUNT frames, which have to be those recorded at *AT.
static void expect(struct fs_stream *s, char **at, int count)
{
	while (count-- > 0) {
		json_t *want = golden_frame(at);
		const json_t *frame = fs_next(s, 5000);
		char *text = j_text(want);
		ck_assert_msg(frame, "no %s", text);
		json_t *got = json_deep_copy(frame);
		json_t *e = json_object_get(json_object_get(want, "filesystem"), "entry");
		if (e)
			json_object_set_new(e, "modifiedTime", json_string("2024-05-01T10:00:00Z"));
		normalise(want);
		normalise(got);
		char *have = j_text(got);
		ck_assert_msg(json_equal(got, want), "got %s\nwant %s", have, text);
		free(text);
		free(have);
		json_decref(got);
		json_decref(want);
	}
}

struct act {
	const char *line; // of a shell
	int frames;       // that it makes
};

// Replays the exchange NUMBER, its actions within DIR of the golden tree.
static void replay(bool proto, int number, const char *dir, const struct act *acts, size_t count)
{
	struct fskit k;
	struct fs_stream s;
	struct golden g;
	if (!fs_home())
		return;
	fs_tree(TREE);
	fs_shell(TREE, "mkdir wd wr wr/s && mkdir -p out/tree/sub && touch out/tree/x out/tree/sub/y");
	fs_start(&k, proto, "--user", "user");
	for (golden_open(&g, "watch-dir"); number-- > 0;)
		ck_assert(golden_next(&g));
	fs_open(&k, &s, "Connect-Timeout-Ms: 4000\r\n", strchr(g.body, '{'));
	char *at = g.answer;
	expect(&s, &at, 1);
	for (size_t i = 0; i < count; i++) {
		fs_shell(dir, acts[i].line);
		expect(&s, &at, acts[i].frames);
	}
	fs_assert_end(&s, "deadline_exceeded");
	fs_close(&s);
	golden_close(&g);
	fs_finish(&k);
}
#define ACTS(a) a, sizeof a / sizeof *a

START_TEST(events_differ_from_the_recorded_ones)
{
	static const struct act plain[] = {
		{": >w1", 1},
		{"printf x >>w1", 1},
		{"chmod 600 w1", 1},
		{"mv w1 w2", 2},
		{"mkdir nd", 1},
		{"rm w2", 1},
		{"rmdir nd", 1},
	};
	static const struct act deep[] = {
		{"printf f >s/f", 2},
		{"mkdir new", 1},
		{"printf g >new/g", 2},
		{"chmod 700 s", 2},
		{"mv new new2", 2},
		{"printf h >new2/h", 2},
		{"rm new2/h", 1},
		{"rm -r new2", 2},
	};
	int codec = _i % CODECS;
	if (_i / CODECS == 0)
		replay(codec, 1, TREE "/wd", ACTS(plain));
	else if (_i / CODECS == 1)
		replay(codec, 2, TREE "/wd", ACTS(plain));
	else
		replay(codec, 3, TREE "/wr", ACTS(deep));
}
END_TEST

// A tree that comes from outside is told whole; its order is the directories'.
START_TEST(tree_moved_in)
{
	struct fskit k;
	struct fs_stream s;
	fs_start(&k, _i, NULL, NULL);
	fs_shell(in_ws(&k, ""), "mkdir -p in out/tree/sub && touch out/tree/x out/tree/sub/y");
	open_watch(&k, &s, NULL, in_ws(&k, "in"), true);
	fs_shell(in_ws(&k, ""), "mv out/tree in");
	fs_await(&s, "CREATE", "tree");
	bool x = false, sub = false, y = false;
	while (!x || !sub || !y) {
		const json_t *f = j_get(fs_next(&s, 5000), "filesystem");
		ck_assert_str_eq(j_str(f, "type"), "EVENT_TYPE_CREATE");
		x |= strcmp(j_str(f, "name"), "tree/x") == 0;
		sub |= strcmp(j_str(f, "name"), "tree/sub") == 0;
		y |= strcmp(j_str(f, "name"), "tree/sub/y") == 0;
	}
	fs_close(&s);
	fs_finish(&k);
}
END_TEST

// B51
START_TEST(new_subtree_loses_events)
{
	struct fskit k;
	struct fs_stream s;
	struct resp r = {0};
	char name[64], line[128];
	fs_start(&k, _i, NULL, NULL);
	open_watch(&k, &s, NULL, in_ws(&k, ""), true);
	const json_t *o = fs_pack(&k, "CreateWatcher", 200, &r, "{s:s,s:b}", "path", in_ws(&k, ""), "recursive", 1);
	char *id = strdup(j_str(o, "watcherId"));
	for (int i = 0; i < 20; i++) {
		(void)snprintf(line, sizeof line, "mkdir -p a%d/b/c && touch a%d/b/c/f", i, i);
		fs_shell(in_ws(&k, ""), line);
	}
	for (int i = 0; i < 20; i++) {
		(void)snprintf(name, sizeof name, "a%d/b/c/f", i);
		fs_await(&s, "CREATE", name);
	}
	fs_shell(in_ws(&k, ""), "touch a7/b/c/late");
	fs_await(&s, "CREATE", "a7/b/c/late");
	char *text = j_text(fs_pack(&k, "GetWatcherEvents", 200, &r, "{s:s}", "watcherId", id));
	for (int i = 0; i < 20; i++) {
		for (int depth = 0; depth < 4; depth++) {
			static const char *const below[] = {"", "/b", "/b/c", "/b/c/f"};
			(void)snprintf(name, sizeof name, "\"a%d%s\"", i, below[depth]);
			ck_assert_msg(strstr(text, name), "no %s", name);
		}
	}
	free(text);
	free(id);
	resp_release(&r);
	fs_close(&s);
	fs_finish(&k);
}
END_TEST

// --- how streams end ---

// The recorded failures: one frame, the end's, and the body is over.
START_TEST(failed_watch_has_no_end)
{
	struct fskit k;
	struct fs_stream s;
	struct golden g;
	if (!fs_home())
		return;
	fs_tree(TREE);
	ck_assert_int_eq(mkdir(TREE "/wd", 0755), 0);
	fs_start(&k, _i, "--user", "user");
	golden_open(&g, "watch-dir");
	for (int n = 1; golden_next(&g); n++) {
		struct buf line = {0};
		if (n < 6 || n == 8 || n == 9 || n == 12)
			continue; // not failures; those of symlinks were recorded without the link's target
		buf_str(&line, "Authorization: ");
		bool as = golden_header(g.head, "Authorization", &line);
		buf_str(&line, "\r\n");
		fs_open(&k, &s, as ? buf_cstr(&line) : NULL, strchr(g.body, '{'));
		const json_t *got = fs_next(&s, 5000);
		ck_assert_msg(got && s.ended, "%s", g.label);
		json_t *want = json_loads(strchr(g.answer, '{'), JSON_DISABLE_EOF_CHECK, NULL);
		ck_assert_str_eq(j_str(j_get(got, "error"), "code"), j_str(j_get(want, "error"), "code"));
		if (n != 7) // whose text has a slip
			ck_assert_msg(json_equal(got, want), "%s", g.label);
		json_decref(want);
		ck_assert_ptr_null(fs_next(&s, 5000));
		ck_assert_msg(s.whole, "%s: the body is not over", g.label);
		fs_close(&s);
		buf_release(&line);
	}
	golden_close(&g);
	fs_finish(&k);
}
END_TEST

// B33, and the symlinked roots.
START_TEST(bad_watch_request)
{
	static const struct {
		const char *headers, *body, *code;
	} calls[] = {
		{NULL, "{", "invalid_argument"},
		{NULL, "null", "invalid_argument"},
		{NULL, "\"x\"", "invalid_argument"},
		{NULL, "7", "invalid_argument"},
		{NULL, "{\"path\":\"~nobody/x\"}", "invalid_argument"},
		{"Connect-Timeout-Ms: soon\r\n", "{\"path\":\"/\"}", "invalid_argument"},
		{"Connect-Timeout-Ms: 12345678901\r\n", "{\"path\":\"/\"}", "invalid_argument"},
		{"Connect-Timeout-Ms: 200\r\n", "{\"path\":\"/\"}", "deadline_exceeded"},
		{NULL, "{\"path\":\"/nowhere/at/all\"}", "not_found"},
		{NULL, "{\"path\":\"/proc/self/status\"}", "invalid_argument"},
	};
	struct fskit k;
	struct fs_stream s;
	fs_start(&k, false, NULL, NULL);
	for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
		fs_open(&k, &s, calls[i].headers, calls[i].body);
		fs_assert_end(&s, calls[i].code);
		fs_close(&s);
	}
	fs_shell(in_ws(&k, ""), "mkdir d && ln -s d ln");
	char *body = pack("{s:s,s:b}", "path", in_ws(&k, "ln"), "recursive", 1);
	fs_open(&k, &s, NULL, body);
	fs_assert_end(&s, "internal");
	fs_close(&s);
	free(body);
	open_watch(&k, &s, NULL, in_ws(&k, "ln"), false);
	fs_shell(in_ws(&k, ""), "touch d/f");
	fs_await(&s, "CREATE", "f");
	fs_close(&s);
	fs_finish(&k);
}
END_TEST

// B28
START_TEST(keepalives_are_missing)
{
	struct fskit k;
	struct fs_stream s;
	fs_start(&k, _i, NULL, NULL);
	open_watch(&k, &s, "Keepalive-Ping-Interval: 1\r\nConnect-Timeout-Ms: 2500\r\n", in_ws(&k, ""), false);
	for (int i = 0; i < 2; i++)
		ck_assert(j_has(fs_next(&s, 3000), "keepalive"));
	fs_assert_end(&s, "deadline_exceeded");
	fs_close(&s);
	// No flood, and no crash.
	open_watch(&k, &s, "Keepalive-Ping-Interval: -1\r\nConnect-Timeout-Ms: 500\r\n", in_ws(&k, ""), false);
	const json_t *m = fs_next(&s, 3000);
	ck_assert(m && s.ended);
	fs_close(&s);
	fs_finish(&k);
}
END_TEST

// The end of what is watched is an event, not the stream's end.
START_TEST(watched_directory_goes)
{
	struct fskit k;
	struct fs_stream s;
	fs_start(&k, _i, NULL, NULL);
	fs_shell(in_ws(&k, ""), "mkdir w && touch w/f");
	open_watch(&k, &s, "Keepalive-Ping-Interval: 1\r\n", in_ws(&k, "w"), false);
	fs_shell(in_ws(&k, ""), "rm -r w");
	fs_await(&s, "REMOVE", "f");
	fs_await(&s, "REMOVE", ".");
	fs_shell(in_ws(&k, ""), "mkdir w && touch w/g");
	const json_t *m = fs_next(&s, 3000);
	ck_assert_msg(m && j_has(m, "keepalive"), "not silent");
	fs_close(&s);
	fs_finish(&k);
}
END_TEST

// B27
START_TEST(watches_at_the_sandbox_end)
{
	struct fskit k;
	struct fs_stream s;
	struct resp r = {0};
	fs_start(&k, _i, NULL, NULL);
	open_watch(&k, &s, NULL, in_ws(&k, ""), true);
	fs_pack(&k, "CreateWatcher", 200, &r, "{s:s}", "path", in_ws(&k, ""));
	d_signal(k.d, SIGTERM);
	fs_assert_end(&s, "unavailable");
	ck_assert_int_eq(d_wait(k.d, 5000), 0);
	fs_close(&s);
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

START_TEST(client_that_left_is_still_watched_for)
{
	struct fskit k;
	struct fs_stream s[10];
	fs_start(&k, _i, NULL, NULL);
	fs_shell(in_ws(&k, ""), "mkdir -p a/b");
	for (int i = 0; i < 10; i++)
		open_watch(&k, &s[i], NULL, in_ws(&k, ""), true);
	w_settled(k.d, 3);
	for (int i = 0; i < 10; i++)
		fs_close(&s[i]);
	w_settled(k.d, 0);
	fs_finish(&k);
}
END_TEST

// B04: a stream that is not read stalls nobody else's.
START_TEST(stuck_watcher_stalls_others)
{
	enum { FILES = 20000 };
	struct fskit k;
	struct fs_stream stuck, s;
	struct resp r = {0};
	fs_start(&k, _i, NULL, NULL);
	open_watch(&k, &stuck, NULL, in_ws(&k, ""), false);
	open_watch(&k, &s, NULL, in_ws(&k, ""), false);
	char line[128];
	for (int i = 0; i < FILES; i += 1000) {
		(void)snprintf(line, sizeof line, "for i in $(seq %d %d); do : >f$i; done", i, i + 999);
		fs_shell(in_ws(&k, ""), line);
		(void)snprintf(line, sizeof line, "f%d", i + 999);
		fs_await(&s, "CREATE", line);
	}
	fs_pack(&k, "Stat", 200, &r, "{s:s}", "path", in_ws(&k, "f0"));
	fs_close(&stuck);
	fs_close(&s);
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

// --- watchers ---

static char *create(struct fskit *k, const char *path, bool recursive, bool with_entry)
{
	struct resp r = {0};
	const json_t *o = fs_pack(k, "CreateWatcher", 200, &r, "{s:s,s:b,s:b}", "path", path, "recursive",
		(int)recursive, "includeEntry", (int)with_entry);
	char *id = strdup(j_str(o, "watcherId"));
	resp_release(&r);
	ck_assert_uint_eq(strlen(id), 21);
	ck_assert_int_eq(id[0], 'w');
	for (const char *p = id; *p; p++)
		ck_assert(islower((unsigned char)*p) || isdigit((unsigned char)*p));
	return id;
}

// The events of one call, a line each: "CREATE f".
static void poll_events(struct fskit *k, const char *id, struct buf *text)
{
	struct resp r = {0};
	size_t i;
	const json_t *e, *o = fs_pack(k, "GetWatcherEvents", 200, &r, "{s:s}", "watcherId", id);
	json_array_foreach(json_object_get(o, "events"), i, e)
	{
		buf_printf(text, "%s %s\n", j_str(e, "type") + sizeof "EVENT_TYPE_" - 1, j_str(e, "name"));
	}
	resp_release(&r);
}

static void assert_events(struct fskit *k, const char *id, const char *want)
{
	struct buf text = {0};
	poll_events(k, id, &text);
	ck_assert_str_eq(buf_cstr(&text), want);
	buf_release(&text);
}

START_TEST(watcher_life)
{
	struct fskit k;
	struct resp r = {0};
	fs_start(&k, _i, NULL, NULL);
	fs_shell(in_ws(&k, ""), "mkdir w");
	char *id = create(&k, in_ws(&k, "w"), false, false), *other = create(&k, in_ws(&k, "w"), true, false);
	ck_assert_str_ne(id, other);
	assert_events(&k, id, "");
	fs_shell(in_ws(&k, "w"), ": >f; printf x >>f; chmod 600 f; mv f g; rm g");
	assert_events(&k, id, "CREATE f\nWRITE f\nCHMOD f\nRENAME f\nCREATE g\nREMOVE g\n");
	assert_events(&k, id, "");
	assert_events(&k, other, "CREATE f\nWRITE f\nCHMOD f\nRENAME f\nCREATE g\nREMOVE g\n");
	// What the daemon itself has done is told at once.
	fs_pack(&k, "MakeDir", 200, &r, "{s:s}", "path", in_ws(&k, "w/nd"));
	assert_events(&k, id, geteuid() == 0 ? "CREATE nd\nCHMOD nd\n" : "CREATE nd\n");
	fs_pack(&k, "RemoveWatcher", 200, &r, "{s:s}", "watcherId", id);
	fs_pack(&k, "RemoveWatcher", 404, &r, "{s:s}", "watcherId", id);
	fs_assert_error(&r, 404, "not_found");
	fs_pack(&k, "GetWatcherEvents", 404, &r, "{s:s}", "watcherId", id);
	fs_assert_error(&r, 404, "not_found");
	fs_pack(&k, "GetWatcherEvents", 404, &r, "{}");
	ck_assert_ptr_nonnull(strstr(buf_cstr(&r.body), "watcher with id  not found"));
	fs_pack(&k, "RemoveWatcher", 404, &r, "{s:s}", "watcherId", "wxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
	fs_pack(&k, "CreateWatcher", 404, &r, "{s:s}", "path", in_ws(&k, "none"));
	fs_pack(&k, "CreateWatcher", 400, &r, "{s:s}", "path", "/proc/self/status");
	free(id);
	free(other);
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

START_TEST(events_without_their_entry)
{
	struct fskit k;
	struct resp r = {0};
	size_t i;
	const json_t *e;
	fs_start(&k, _i, NULL, NULL);
	// Before the watch: a file that is there when its directory is first read is told as created only.
	fs_pack(&k, "MakeDir", 200, &r, "{s:s}", "path", in_ws(&k, "d/e"));
	char *id = create(&k, in_ws(&k, ""), true, true);
	fs_shell(in_ws(&k, "d/e"), "printf xyz >f; touch gone; rm gone");
	const json_t *o = fs_pack(&k, "GetWatcherEvents", 200, &r, "{s:s}", "watcherId", id);
	int seen = 0;
	json_array_foreach(j_get(o, "events"), i, e)
	{
		const char *name = j_str(e, "name"), *type = j_str(e, "type");
		bool gone = strcmp(name, "d/e/gone") == 0;
		ck_assert_msg(j_has(e, "entry") == !gone, "%s %s", type, name);
		if (gone)
			continue;
		ck_assert_str_eq(j_str(j_get(e, "entry"), "path"), in_ws(&k, name));
		if (strcmp(name, "d/e/f") != 0)
			continue;
		ck_assert_str_eq(j_str(j_get(e, "entry"), "size"), "3");
		ck_assert_str_eq(j_str(j_get(e, "entry"), "name"), "f");
		seen++;
	}
	ck_assert_int_eq(seen, 2); // CREATE, WRITE
	free(id);
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

// B53: all events, or a word about it, and memory stays bounded.
START_TEST(overflow_without_a_word)
{
	enum { FILES = 40000 };
	struct fskit k;
	struct resp r = {0};
	fs_start(&k, _i, NULL, NULL);
	char *id = create(&k, in_ws(&k, ""), false, false);
	fs_shell(in_ws(&k, ""), "i=0; while [ $i -lt 40000 ]; do : >f$i; i=$((i + 1)); done");
	for (int i = 0; i < 2; i++) {
		fs_pack(&k, "GetWatcherEvents", 500, &r, "{s:s}", "watcherId", id);
		fs_assert_error(&r, 500, "internal");
	}
	ck_assert_int_lt(d_rss_kib(k.d), 64 * 1024);
	// A new one has what comes then.
	char *next = create(&k, in_ws(&k, ""), false, false);
	fs_shell(in_ws(&k, ""), ": >last");
	assert_events(&k, next, "CREATE last\n");
	fs_pack(&k, "RemoveWatcher", 200, &r, "{s:s}", "watcherId", id);
	free(id);
	free(next);
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

// B53: a daemon that was stopped while the kernel's queue overflowed.
START_TEST(overflow_ends_the_stream)
{
	struct fskit k;
	struct fs_stream s;
	fs_start(&k, _i, NULL, NULL);
	open_watch(&k, &s, NULL, in_ws(&k, ""), false);
	ck_assert_int_eq(kill(k.d->daemon, SIGSTOP), 0);
	fs_shell(in_ws(&k, ""), "n=$(($(cat /proc/sys/fs/inotify/max_queued_events) + 2000)); i=0;"
				"while [ $i -lt $n ]; do : >f$i; i=$((i + 1)); done");
	ck_assert_int_eq(kill(k.d->daemon, SIGCONT), 0);
	fs_assert_end(&s, "internal");
	fs_close(&s);
	fs_finish(&k);
}
END_TEST

// What the clients' own tests count: exactly these, and there as soon as the upload is answered.
START_TEST(upload_is_told_otherwise)
{
	static const char body[] = "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n"
				   "data\r\n--b--\r\n";
	struct fskit k;
	struct resp r = {0};
	char target[800], head[128];
	fs_start(&k, false, NULL, NULL);
	if (geteuid() != 0) { // nothing is given away then
		fs_finish(&k);
		return;
	}
	fs_shell(in_ws(&k, ""), "mkdir w");
	char *id = create(&k, in_ws(&k, "w"), true, false);
	for (int i = 0; i < 2; i++) {
		fs_pack(&k, "MakeDir", i ? 409 : 200, &r, "{s:s}", "path", in_ws(&k, "w/d"));
		(void)snprintf(target, sizeof target, "/files?path=%s", in_ws(&k, i ? "w/d/f" : "w/f"));
		(void)snprintf(head, sizeof head,
			"Content-Type: multipart/form-data; boundary=b\r\nContent-Length: %zu\r\n", sizeof body - 1);
		client_request(k.c, "POST", target, head, NULL, 0);
		ck_assert(client_send_raw(k.c, body, sizeof body - 1));
		client_response(k.c, &r);
		ck_assert_msg(r.status == 200, "%d %s", r.status, buf_cstr(&r.body));
		assert_events(&k, id,
			i ? "CREATE d/f\nCHMOD d/f\nWRITE d/f\n" : "CREATE d\nCHMOD d\nCREATE f\nCHMOD f\nWRITE f\n");
	}
	free(id);
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

Suite *envd_watch_suite(void)
{
	Suite *s = suite_create("envd_watch");
	TCase *tc = h_tcase(s, "recorded", 30);
	tcase_add_loop_test(tc, events_differ_from_the_recorded_ones, 0, 3 * CODECS);
	tcase_add_loop_test(tc, failed_watch_has_no_end, 0, CODECS);
	tc = h_tcase(s, "streams", 30);
	tcase_add_loop_test(tc, tree_moved_in, 0, CODECS);
	tcase_add_loop_test(tc, new_subtree_loses_events, 0, CODECS);
	tcase_add_test(tc, bad_watch_request);
	tcase_add_loop_test(tc, keepalives_are_missing, 0, CODECS);
	tcase_add_loop_test(tc, watched_directory_goes, 0, CODECS);
	tcase_add_loop_test(tc, watches_at_the_sandbox_end, 0, CODECS);
	tcase_add_loop_test(tc, client_that_left_is_still_watched_for, 0, CODECS);
	tcase_add_loop_test(tc, stuck_watcher_stalls_others, 0, CODECS);
	tc = h_tcase(s, "watchers", 30);
	tcase_add_loop_test(tc, watcher_life, 0, CODECS);
	tcase_add_loop_test(tc, events_without_their_entry, 0, CODECS);
	tcase_add_test(tc, upload_is_told_otherwise);
	tc = h_tcase(s, "overflow", 60);
	tcase_add_loop_test(tc, overflow_without_a_word, 0, CODECS);
	tcase_add_loop_test(tc, overflow_ends_the_stream, 0, CODECS);
	return s;
}
