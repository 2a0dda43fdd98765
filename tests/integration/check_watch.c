// SPDX-License-Identifier: Apache-2.0
// Polled watches (contract A section 8): what is told, of which trees, until when.
#include "tests/integration/suites.h"
#include "tests/integration/watching.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

START_TEST(changes_are_not_told)
{
	struct testd *d = d_start();
	struct w_events w = {0};
	w_dir(d, "w");
	int64_t id = w_create(d, "w", false);
	w_poll(d, id, &w);
	ck_assert_uint_eq(w.count, 0);
	w_shell(d, "echo x >w/f; chmod 600 w/f; mv w/f w/g; rm w/g; mkdir w/d; : >w/d/below");
	w_poll(d, id, &w);
	assert_text(&w.text, "1 w/f\n2 w/f\n5 w/f\n4 w/f\n1 w/g\n3 w/g\n1 w/d\n");
	ck_assert(!w.overflow && !w.ended);
	w_release(&w);
	w_poll(d, id, &w);
	ck_assert_msg(w.count == 0, "told twice: %s", buf_cstr(&w.text));
	w_remove(d, id);
	w_settled(d, 0);
	w_release(&w);
	d_finish(d);
}
END_TEST

// What the daemon's own commands and its own file routes do is told like anybody's.
START_TEST(own_changes_are_not_told)
{
	struct testd *d = d_start();
	struct w_events w = {0};
	struct resp r = {0};
	int64_t id = w_create(d, ".", true);
	(void)run(d, "mkdir made; touch made/by-command", &r);
	w_await(d, id, &w, CREATED, "made/by-command");
	req_pack(d, "POST", "/files/write", &r, "{s:s,s:s}", "path", "made/by-route", "content", "x");
	ck_assert_int_eq(r.status, 200);
	w_poll(d, id, &w);
	ck_assert_msg(
		w_has(&w, CREATED, "made/by-route") && w_has(&w, WRITTEN, "made/by-route"), "%s", buf_cstr(&w.text));
	resp_release(&r);
	w_release(&w);
	d_finish(d);
}
END_TEST

// A large overwrite goes by way of a hidden file: watchers see a write of its target and nothing else.
START_TEST(hidden_file_shows)
{
	struct testd *d = d_start();
	struct w_events w = {0};
	struct resp r = {0};
	struct buf content = {0};
	h_repeat(&content, "0123456789abcdef", (size_t)3 * 65536);
	w_file(d, "target");
	int64_t id = w_create(d, ".", true);
	req_pack(d, "POST", "/files/write", &r, "{s:s,s:s}", "path", "target", "content", buf_cstr(&content));
	ck_assert_int_eq(r.status, 200);
	w_await(d, id, &w, WRITTEN, "target");
	w_poll(d, id, &w);
	ck_assert_msg(!strstr(buf_cstr(&w.text), ".celld-") && !w_has(&w, CREATED, "target"), "%s", buf_cstr(&w.text));
	buf_release(&content);
	resp_release(&r);
	w_release(&w);
	d_finish(d);
}
END_TEST

// B51
START_TEST(new_tree_is_missed)
{
	struct testd *d = d_start();
	struct w_events w = {0};
	char line[200], name[64];
	int64_t id = w_create(d, ".", true);
	w_shell(d, "for i in 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do\n"
		   "mkdir -p $i/a/b/c && touch $i/a/b/c/f; done");
	for (int i = 0; i < 20; i++) {
		static const char *const ends[] = {"", "/a", "/a/b", "/a/b/c", "/a/b/c/f"};
		for (size_t j = 0; j < 5; j++) {
			(void)snprintf(name, sizeof name, "%d%s", i, ends[j]);
			w_await(d, id, &w, CREATED, name);
		}
	}
	ck_assert(!w.overflow);
	w_settled(d, 81);
	for (int i = 0; i < 20; i++) {
		(void)snprintf(name, sizeof name, "%d/a/b/c/later", i);
		w_file(d, name);
		w_await(d, id, &w, CREATED, name);
	}
	(void)snprintf(line, sizeof line, "rm -rf [0-9]*");
	w_shell(d, line);
	w_await(d, id, &w, REMOVED, "19");
	w_settled(d, 1);
	w_release(&w);
	d_finish(d);
}
END_TEST

// B51, with directories that are renamed, moved and made again while they are being found.
START_TEST(moving_tree_is_missed)
{
	struct testd *d = d_start();
	struct w_events w = {0};
	int64_t id = w_create(d, ".", true);
	for (int round = 0; round < 20; round++) {
		w_shell(d, "mkdir -p a/b/c; mv a z; mkdir -p a/b/c; mv z/b a/x; mkdir out; mv a/b out/b; rm -r z; mv "
			   "out/b z");
		w_release(&w);
		w_await(d, id, &w, CREATED, "z");
		w_file(d, "a/x/c/f");
		w_await(d, id, &w, CREATED, "a/x/c/f");
		w_file(d, "z/c/g");
		w_await(d, id, &w, CREATED, "z/c/g");
		w_settled(d, 7);
		w_shell(d, "rm -r a z out");
		w_await(d, id, &w, REMOVED, "out");
		w_settled(d, 1);
	}
	w_release(&w);
	d_finish(d);
}
END_TEST

// Several on one path, and trees that overlap: each has all of its own, also when the others go.
START_TEST(watchers_disturb_each_other)
{
	struct testd *d = d_start();
	struct w_events w[4] = {0};
	int64_t id[4];
	w_shell(d, "mkdir -p a/b/c");
	id[0] = w_create(d, "a", true);
	id[1] = w_create(d, "a", true);
	id[2] = w_create(d, "a/b", true);
	id[3] = w_create(d, "a", false);
	w_settled(d, 3);
	w_file(d, "a/b/c/f");
	w_file(d, "a/top");
	for (int i = 0; i < 4; i++) {
		w_poll(d, id[i], &w[i]);
		assert_text(&w[i].text, i < 2 ? "1 a/b/c/f\n1 a/top\n" : i == 2 ? "1 a/b/c/f\n" : "1 a/top\n");
		w_release(&w[i]);
	}
	w_remove(d, id[0]);
	w_remove(d, id[3]);
	w_settled(d, 3);
	w_file(d, "a/b/c/g");
	for (int i = 1; i < 3; i++) {
		w_poll(d, id[i], &w[i]);
		assert_text(&w[i].text, "1 a/b/c/g\n");
		w_release(&w[i]);
	}
	w_remove(d, id[1]);
	w_settled(d, 2);
	w_file(d, "a/b/h");
	w_poll(d, id[2], &w[2]);
	assert_text(&w[2].text, "1 a/b/h\n");
	w_release(&w[2]);
	w_remove(d, id[2]);
	w_settled(d, 0);
	d_finish(d);
}
END_TEST

static const struct {
	const char *line;
	const char *text;
} ends[] = {
	{"rm -r r", "3 r/f\n3 r/s\n3 r\n"},
	{"mv r q; : >q/unseen", "4 r\n"},
	{"rm -r r; mkdir r; : >r/unseen", "3 r/f\n3 r/s\n3 r\n"},
};

START_TEST(lost_root_is_not_told)
{
	struct testd *d = d_start();
	struct w_events w = {0};
	w_shell(d, "mkdir -p r/s; : >r/f");
	int64_t id = w_create(d, "r", true);
	w_shell(d, ends[_i].line);
	w_poll(d, id, &w);
	// rm takes the two entries in any order
	ck_assert_uint_eq(buf_len(&w.text), strlen(ends[_i].text));
	ck_assert_msg(w.ended && strstr(buf_cstr(&w.text), strrchr(ends[_i].text, ' ') - 1), "%s", buf_cstr(&w.text));
	w_settled(d, 0);
	w_release(&w);
	w_poll(d, id, &w);
	ck_assert(w.ended && w.count == 0);
	w_release(&w);
	if (_i == 2) {
		int64_t again = w_create(d, "r", true);
		w_file(d, "r/seen");
		w_poll(d, again, &w);
		assert_text(&w.text, "1 r/seen\n");
		w_release(&w);
	}
	w_remove(d, id);
	d_finish(d);
}
END_TEST

START_TEST(odd_names)
{
	struct testd *d = d_start();
	struct resp r = {0};
	char target[64];
	w_shell(d, "mkdir d");
	int64_t id = w_create(d, "d", false);
	w_shell(d, "touch \"$(printf 'd/a\\nb\"\\\\\\001\\377\\303\\251')\" 'd/ü 😀'");
	(void)snprintf(target, sizeof target, "/watch/events?watcher_id=%lld", (long long)id);
	req(d, "GET", target, NULL, &r);
	json_t *events = j_get(resp_json(&r), "events");
	const char *name = j_str(json_array_get(events, 0), "name");
	ck_assert_str_eq(name + strlen(d->workspace), "/d/a\nb\"\\\001\xef\xbf\xbd\xc3\xa9");
	ck_assert(j_has(json_array_get(events, 0), "name_b64"));
	json_t *last = json_array_get(events, json_array_size(events) - 1);
	ck_assert_str_eq(j_str(last, "name") + strlen(d->workspace), "/d/ü 😀");
	ck_assert(!j_has(last, "name_b64"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

static const struct {
	const char *method, *target, *body;
	int status;
	const char *code, *message;
} errors[] = {
	{"POST", "/watch/create", "{}", 400, "invalid_argument", "path required"},
	{"POST", "/watch/create", "{\"path\":\"x\\u0000y\"}", 400, "invalid_argument", NULL},
	{"POST", "/watch/create", "{\"path\":7}", 400, "invalid_argument", NULL},
	{"POST", "/watch/create", "{\"path\":\".\",\"recursive\":\"x\"}", 400, "invalid_argument", NULL},
	{"POST", "/watch/create", "x", 400, "invalid_argument", "invalid json"},
	{"POST", "/watch/create", "{\"path\":\"missing\"}", 404, "not_found", NULL},
	{"POST", "/watch/create", "{\"path\":\"file/x\"}", 404, "not_found", NULL},
	{"POST", "/watch/create", "{\"path\":\"loop\"}", 400, "invalid_argument", NULL},
	{"GET", "/watch/events", NULL, 400, "invalid_argument", "watcher_id required"},
	{"GET", "/watch/events?watcher_id=", NULL, 400, "invalid_argument", "watcher_id required"},
	{"GET", "/watch/events?watcher_id=x", NULL, 400, "invalid_argument", NULL},
	{"GET", "/watch/events?watcher_id=77", NULL, 404, "not_found", "watcher not found"},
	{"GET", "/watch/events?watcher_id=0", NULL, 404, "not_found", "watcher not found"},
	{"GET", "/watch/events?watcher_id=-1", NULL, 404, "not_found", "watcher not found"},
	{"GET", "/watch/events?watcher_id=99999999999999999999", NULL, 404, "not_found", "watcher not found"},
	{"POST", "/watch/remove", "{\"watcher_id\":77}", 404, "not_found", "watcher not found"},
	{"POST", "/watch/remove", "{\"watcher_id\":-1}", 404, "not_found", "watcher not found"},
	{"POST", "/watch/remove", "{}", 400, "invalid_argument", "watcher_id required"},
	{"GET", "/watch/stream", NULL, 400, "invalid_argument", "path required"},
	{"GET", "/watch/stream?path=", NULL, 400, "invalid_argument", "path required"},
	{"GET", "/watch/stream?path=missing", NULL, 404, "not_found", NULL},
	{"GET", "/watch/stream?path=%zz", NULL, 400, "invalid_argument", NULL},
	{"GET", "/watch/stream?path=a%00b", NULL, 400, "invalid_argument", NULL},
	{"GET", "/watch/stream?path=.&recursive=2", NULL, 400, "invalid_argument", NULL},
};

START_TEST(bad_requests)
{
	struct testd *d = d_start();
	struct resp r = {0};
	w_shell(d, ": >file; ln -s loop loop");
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
		req(d, errors[i].method, errors[i].target, errors[i].body, &r);
		json_t *obj = assert_error(&r, errors[i].status, errors[i].code);
		if (errors[i].message)
			ck_assert_str_eq(j_str(obj, "error"), errors[i].message);
		else if (r.status == 404)
			ck_assert_str_eq(j_str(obj, "errno"),
				strstr(errors[i].body ? errors[i].body : "", "file/x") ? "ENOTDIR" : "ENOENT");
	}
	w_settled(d, 0);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *watch_suite(void)
{
	Suite *s = suite_create("watch");
	TCase *tc = h_tcase(s, "events", 60);
	tcase_add_test(tc, changes_are_not_told);
	tcase_add_test(tc, own_changes_are_not_told);
	tcase_add_test(tc, hidden_file_shows);
	tcase_add_test(tc, new_tree_is_missed);
	tcase_add_test(tc, moving_tree_is_missed);
	tcase_add_test(tc, watchers_disturb_each_other);
	tcase_add_loop_test(tc, lost_root_is_not_told, 0, (int)(sizeof ends / sizeof *ends));
	tcase_add_test(tc, odd_names);
	tcase_add_test(tc, bad_requests);
	return s;
}
