// SPDX-License-Identifier: Apache-2.0
#include "daemon/io.h"
#include "suites.h"
#include "watchkit.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// --- what is told ---

START_TEST(kinds_of_change)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	struct watcher *w = watchkit_added(&k, "", false);
	watchkit_file("a");
	ck_assert_str_eq(watchkit_events(&k, w), "+a");
	watchkit_write("a");
	watchkit_write("a");
	ck_assert_str_eq(watchkit_events(&k, w), "wa");
	chmod("a", 0600);
	watchkit_move("a", "b");
	unlink("b");
	watchkit_mkdir("d");
	ck_assert_str_eq(watchkit_events(&k, w), "ma >a +b -b +d");
	watchkit_file("d/below");
	ck_assert_str_eq(watchkit_events(&k, w), "");
	chmod(".", 0711);
	ck_assert_str_eq(watchkit_events(&k, w), "m");
	watchkit_end(&k);
}
END_TEST

// Writes of one file become one while nobody reads, also with another reader's turn between.
START_TEST(repeated_writes_are_one)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	watchkit_file("a");
	watchkit_file("b");
	struct watcher *w = watchkit_added(&k, "", false);
	for (int i = 0; i < 20; i++) {
		watchkit_write("a");
		watches_sync(k.ws);
	}
	watchkit_write("b");
	watchkit_write("a");
	ck_assert_str_eq(watchkit_events(&k, w), "wa wb wa");
	watchkit_end(&k);
}
END_TEST

START_TEST(full_paths)
{
	struct watchkit k;
	char given[80], want[100];
	watchkit_start(&k, NULL);
	watchkit_mkdir("d");
	snprintf(given, sizeof given, "%s///", k.dir);
	struct watch_spec spec = {.path = given, .recursive = true};
	struct watcher *w;
	ck_assert_int_eq(watches_add(k.ws, &spec, NULL, &w), 0);
	ck_assert_str_eq(watcher_path(w), k.dir);
	watchkit_settle(&k, 2);
	watchkit_file("d/f");
	watches_sync(k.ws);
	const struct watch_event *e = watcher_next(w);
	ck_assert_ptr_nonnull(e);
	snprintf(want, sizeof want, "%s/d/f", k.dir);
	ck_assert_str_eq(e->path, want);
	ck_assert_str_eq(e->name, "d/f");
	ck_assert_uint_eq(e->path_len, strlen(want));
	watchkit_end(&k);
}
END_TEST

START_TEST(our_temporary_files_show)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	struct watcher *w = watchkit_added(&k, "", true);
	watchkit_file("f");
	watchkit_file(".celld-0123456789abcdef");
	watchkit_write(".celld-0123456789abcdef");
	chmod(".celld-0123456789abcdef", 0600);
	watchkit_move(".celld-0123456789abcdef", "f");
	watchkit_file(".celld-0123456789abcdef");
	unlink(".celld-0123456789abcdef");
	watchkit_mkdir(".celld-0123456789abcdef");
	watchkit_file(".celld-0123456789abcdef/x");
	ck_assert_str_eq(watchkit_events(&k, w), "+f wf");
	watchkit_move(".celld-0123456789abcdef", "d");
	ck_assert_str_eq(watchkit_events(&k, w), "+d +d/x");
	watchkit_file("d/y");
	ck_assert_str_eq(watchkit_events(&k, w), "+d/y");
	watchkit_end(&k);
}
END_TEST

// --- recursion ---

START_TEST(existing_and_new_directories)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	watchkit_mkdir("a");
	watchkit_mkdir("a/b");
	watchkit_mkdir("a/b/c");
	struct watcher *w = watchkit_added(&k, "", true);
	watchkit_settle(&k, 4);
	watchkit_file("a/b/c/f");
	ck_assert_str_eq(watchkit_events(&k, w), "+a/b/c/f");
	watchkit_mkdir("n");
	watchkit_mkdir("n/m");
	watchkit_file("n/m/f");
	ck_assert_str_eq(watchkit_events(&k, w), "+n +n/m +n/m/f");
	watchkit_file("n/m/g");
	ck_assert_str_eq(watchkit_events(&k, w), "+n/m/g");
	watchkit_settle(&k, 6);
	watchkit_remove("n");
	ck_assert_ptr_nonnull(strstr(watchkit_events(&k, w), "-n/m -n"));
	watchkit_settle(&k, 4);
	watchkit_mkdir("n");
	watchkit_file("n/f");
	ck_assert_str_eq(watchkit_events(&k, w), "+n +n/f");
	watchkit_file("n/g");
	ck_assert_str_eq(watchkit_events(&k, w), "+n/g");
	watchkit_end(&k);
}
END_TEST

START_TEST(symlinks_are_not_followed)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	watchkit_mkdir("in");
	watchkit_mkdir("out");
	ck_assert_int_eq(symlink("../out", "in/link"), 0);
	ck_assert_int_eq(symlink("in", "root"), 0);
	struct watcher *w = watchkit_added(&k, "root", true);
	watchkit_settle(&k, 1);
	ck_assert_int_eq(symlink("../out", "in/later"), 0);
	watchkit_file("out/f");
	ck_assert_str_eq(watchkit_events(&k, w), "+later");
	watchkit_settle(&k, 1);
	watchkit_end(&k);
}
END_TEST

START_TEST(renamed_directories)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	watchkit_mkdir("a");
	watchkit_mkdir("a/b");
	watchkit_file("a/b/f");
	watchkit_mkdir("to");
	struct watcher *w = watchkit_added(&k, "", true);
	watchkit_settle(&k, 4);
	watchkit_move("a", "to/z");
	ck_assert_str_eq(watchkit_events(&k, w), ">a +to/z");
	watchkit_write("to/z/b/f");
	ck_assert_str_eq(watchkit_events(&k, w), "wto/z/b/f");
	watchkit_mkdir("a");
	watchkit_mkdir("a/b");
	watchkit_file("a/b/g");
	ck_assert_str_eq(watchkit_events(&k, w), "+a +a/b +a/b/g");
	watchkit_settle(&k, 6);
	// Over an empty one, which goes without an event of its own.
	watchkit_mkdir("empty");
	watchkit_move("a", "empty");
	ck_assert_str_eq(watchkit_events(&k, w), "+empty >a +empty");
	watchkit_file("empty/b/h");
	ck_assert_str_eq(watchkit_events(&k, w), "+empty/b/h");
	watchkit_settle(&k, 6);
	watchkit_end(&k);
}
END_TEST

// A name that has been given to another directory before anybody read of the rename.
START_TEST(renamed_and_made_again)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	struct watcher *w = watchkit_added(&k, "", true);
	for (int i = 0; i < 3; i++) {
		watchkit_mkdir("a");
		watchkit_mkdir("a/c");
		watchkit_move("a", "b");
		watchkit_mkdir("a");
		watchkit_mkdir("a/c");
		(void)watchkit_events(&k, w);
		watchkit_file("a/c/new");
		watchkit_file("b/c/old");
		const char *got = watchkit_events(&k, w);
		ck_assert_msg(strstr(got, "+a/c/new") && strstr(got, "+b/c/old"), "%s", got);
		watchkit_settle(&k, 5);
		watchkit_remove("a");
		watchkit_remove("b");
		(void)watchkit_events(&k, w);
		watchkit_settle(&k, 1);
	}
	watchkit_end(&k);
}
END_TEST

START_TEST(moved_out_and_back)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	watchkit_mkdir("in");
	watchkit_mkdir("in/a");
	watchkit_mkdir("in/a/b");
	struct watcher *w = watchkit_added(&k, "in", true);
	watchkit_move("in/a", "a");
	ck_assert_str_eq(watchkit_events(&k, w), ">a");
	watchkit_settle(&k, 1);
	watchkit_file("a/b/f");
	ck_assert_str_eq(watchkit_events(&k, w), "");
	watchkit_move("a", "in/a");
	ck_assert_str_eq(watchkit_events(&k, w), "+a +a/b +a/b/f");
	watchkit_move("in/a", "a");
	watchkit_move("a", "in/c");
	(void)watchkit_events(&k, w);
	watchkit_file("in/c/b/g");
	ck_assert_str_eq(watchkit_events(&k, w), "+c/b/g");
	watchkit_settle(&k, 3);
	watchkit_end(&k);
}
END_TEST

// Deeper than one path can name.
START_TEST(longer_than_a_path)
{
	static char part[201];
	struct watchkit k;
	watchkit_start(&k, NULL);
	memset(part, 'p', sizeof part - 1);
	struct watcher *w = watchkit_added(&k, "", true);
	int fds[40];
	fds[0] = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 1; i < 40; i++) {
		ck_assert_int_eq(mkdirat(fds[i - 1], part, 0755), 0);
		fds[i] = openat(fds[i - 1], part, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (i % 10 == 0)
			(void)watchkit_events(&k, w);
	}
	(void)watchkit_events(&k, w);
	watchkit_settle(&k, 40);
	close(openat(fds[39], "deep", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	const char *got = watchkit_events(&k, w);
	ck_assert_uint_gt(strlen(got), 39 * 201);
	ck_assert_str_eq(got + strlen(got) - 6, "p/deep");
	unlinkat(fds[39], "deep", 0);
	for (int i = 39; i > 0; i--) {
		close(fds[i]);
		unlinkat(fds[i - 1], part, AT_REMOVEDIR);
	}
	close(fds[0]);
	(void)watchkit_events(&k, w);
	watchkit_settle(&k, 1);
	watchkit_end(&k);
}
END_TEST

// --- several at once ---

START_TEST(several_watchers)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	watchkit_mkdir("a");
	watchkit_mkdir("a/b");
	struct watcher *all = watchkit_added(&k, "", true), *again = watchkit_added(&k, "", true);
	struct watcher *flat = watchkit_added(&k, "", false), *low = watchkit_added(&k, "a/b", true);
	watchkit_settle(&k, 3);
	watchkit_file("a/b/f");
	ck_assert_str_eq(watchkit_events(&k, all), "+a/b/f");
	ck_assert_str_eq(watchkit_events(&k, again), "+a/b/f");
	ck_assert_str_eq(watchkit_events(&k, flat), "");
	ck_assert_str_eq(watchkit_events(&k, low), "+f");
	watcher_close(all);
	watchkit_turn(&k);
	watchkit_settle(&k, 3);
	watchkit_file("a/b/g");
	watchkit_file("top");
	ck_assert_str_eq(watchkit_events(&k, again), "+a/b/g +top");
	ck_assert_str_eq(watchkit_events(&k, flat), "+top");
	ck_assert_str_eq(watchkit_events(&k, low), "+g");
	watcher_close(again);
	watchkit_settle(&k, 2);
	watchkit_file("a/b/h");
	ck_assert_str_eq(watchkit_events(&k, low), "+h");
	ck_assert_ptr_eq(watches_find(k.ws, &k, watcher_id(low)), low);
	ck_assert_ptr_null(watches_find(k.ws, NULL, watcher_id(low)));
	watchkit_move("a", "z");
	ck_assert_str_eq(watchkit_events(&k, flat), ">a +z");
	watcher_close(low);
	watcher_close(flat);
	watchkit_settle(&k, 0);
	watchkit_end(&k);
}
END_TEST

START_TEST(rounds_leave_nothing)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	watchkit_mkdir("a");
	watchkit_mkdir("a/b");
	struct watcher *stays = watchkit_added(&k, "a", false);
	for (int i = 0; i < 300; i++) {
		struct watcher *w = watchkit_added(&k, "", i % 2);
		watchkit_file("a/b/f");
		unlink("a/b/f");
		if (i % 3 == 0)
			watchkit_turn(&k);
		watcher_close(w);
	}
	watchkit_settle(&k, 1);
	watchkit_file("a/f");
	ck_assert_ptr_nonnull(strstr(watchkit_events(&k, stays), "+f"));
	watchkit_end(&k);
}
END_TEST

// --- the end of a root ---

START_TEST(root_is_removed)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	watchkit_mkdir("r");
	watchkit_mkdir("r/s");
	struct watcher *w = watchkit_added(&k, "r", _i);
	watchkit_remove("r");
	ck_assert_str_eq(watchkit_events(&k, w), "-s -.");
	ck_assert(watcher_ended(w));
	watchkit_mkdir("r");
	watchkit_file("r/f");
	ck_assert_str_eq(watchkit_events(&k, w), "");
	watchkit_settle(&k, 0);
	struct watcher *again = watchkit_added(&k, "r", _i);
	watchkit_file("r/g");
	ck_assert_str_eq(watchkit_events(&k, again), "+g");
	watcher_close(w);
	watcher_close(again);
	watchkit_settle(&k, 0);
	watchkit_end(&k);
}
END_TEST

START_TEST(root_is_moved)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	watchkit_mkdir("r");
	struct watcher *w = watchkit_added(&k, "r", _i);
	watchkit_file("r/f");
	watchkit_move("r", "q");
	watchkit_file("q/g");
	ck_assert_str_eq(watchkit_events(&k, w), "+f >.");
	ck_assert(watcher_ended(w));
	watchkit_settle(&k, 0);
	watchkit_end(&k);
}
END_TEST

// Neither a directory that somebody still works in nor one whose parent is moved is told of by the kernel.
START_TEST(root_is_lost_unsaid)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	watchkit_mkdir("p");
	watchkit_mkdir("p/r");
	watchkit_mkdir("held");
	int fd = open("held", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct watcher *w = watchkit_added(&k, "p/r", false), *h = watchkit_added(&k, "held", true);
	watchkit_move("p", "q");
	rmdir("held");
	watcher_check(w);
	watcher_check(h);
	ck_assert_str_eq(watchkit_events(&k, w), "-.");
	ck_assert_str_eq(watchkit_events(&k, h), "-.");
	close(fd);
	watchkit_end(&k);
}
END_TEST

START_TEST(single_file)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	watchkit_file("f");
	struct watcher *w = watchkit_added(&k, "f", _i);
	watchkit_write("f");
	chmod("f", 0600);
	ck_assert_str_eq(watchkit_events(&k, w), "w m");
	watchkit_file("new");
	watchkit_move("new", "f"); // replaced, as editors do
	ck_assert_str_eq(watchkit_events(&k, w), "w");
	watchkit_write("f");
	ck_assert_str_eq(watchkit_events(&k, w), "w");
	unlink("f");
	ck_assert_str_eq(watchkit_events(&k, w), "-.");
	watchkit_file("f");
	w = watchkit_added(&k, "f", _i);
	watchkit_move("f", "g");
	ck_assert_str_eq(watchkit_events(&k, w), ">.");
	watchkit_settle(&k, 0);
	watchkit_end(&k);
}
END_TEST

START_TEST(ended_below)
{
	struct watchkit k;
	char path[100];
	watchkit_start(&k, NULL);
	watchkit_mkdir("w");
	watchkit_mkdir("w/d");
	watchkit_mkdir("wx");
	ck_assert_int_eq(symlink("w", "link"), 0);
	struct watcher *at = watchkit_added(&k, "w", true), *below = watchkit_added(&k, "w/d", false),
		       *via = watchkit_added(&k, "link/d", false);
	struct watcher *beside = watchkit_added(&k, "wx", false), *above = watchkit_added(&k, "", true);
	snprintf(path, sizeof path, "%s/w/", k.dir);
	watches_end_below(k.ws, path);
	ck_assert_str_eq(watchkit_events(&k, at), "-.");
	ck_assert_str_eq(watchkit_events(&k, below), "-.");
	ck_assert_str_eq(watchkit_events(&k, via), "-.");
	watchkit_file("wx/f");
	ck_assert_str_eq(watchkit_events(&k, beside), "+f");
	ck_assert_str_eq(watchkit_events(&k, above), "+wx/f");
	watchkit_end(&k);
}
END_TEST

static void close_it(void *arg)
{
	struct watcher **w = arg;
	watcher_close(*w);
	*w = NULL;
}

// A machine that stalls lets the first look take so long that it is not over when events come: then it is this one that is called.
static void close_late(void *arg, int rc)
{
	(void)rc;
	close_it(arg);
}

// From within its own callback, by whatever event it is called.
START_TEST(closed_in_its_callback)
{
	struct watchkit k;
	char path[100];
	watchkit_start(&k, NULL);
	for (int i = 0; i < 4; i++) {
		struct watcher *w[2];
		watchkit_mkdir("r");
		watchkit_mkdir("r/d");
		snprintf(path, sizeof path, "%s/r", k.dir);
		for (int j = 0; j < 2; j++) {
			struct watch_spec spec = {.path = path,
				.recursive = true,
				.ready = close_late,
				.changed = close_it,
				.arg = &w[j]};
			ck_assert_int_eq(watches_add(k.ws, &spec, &k, &w[j]), 0);
		}
		if (i == 0)
			watchkit_mkdir("r/new");
		if (i == 1)
			watchkit_move("r/d", "r/e");
		if (i == 2)
			watches_end_below(k.ws, k.dir);
		if (i == 3)
			watches_terminate(k.ws, -ECANCELED);
		watchkit_remove("r");
		watchkit_settle(&k, 0);
		// The kernel has forgotten what is gone before anybody has read of it, and a turn's time is bounded.
		for (int64_t end = io_mono_ns() + INT64_C(10000000000); (w[0] || w[1]) && io_mono_ns() < end;)
			watchkit_turn(&k);
		ck_assert_msg(!w[0], "round %d", i);
		ck_assert_msg(!w[1], "round %d, the second", i);
	}
	watchkit_end(&k);
}
END_TEST

Suite *watch_suite(void)
{
	Suite *s = suite_create("watch");
	TCase *tc = tcase_create("events");
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, kinds_of_change);
	tcase_add_test(tc, repeated_writes_are_one);
	tcase_add_test(tc, full_paths);
	tcase_add_test(tc, our_temporary_files_show);
	tcase_add_test(tc, existing_and_new_directories);
	tcase_add_test(tc, symlinks_are_not_followed);
	tcase_add_test(tc, renamed_directories);
	tcase_add_test(tc, renamed_and_made_again);
	tcase_add_test(tc, moved_out_and_back);
	tcase_add_test(tc, longer_than_a_path);
	tcase_add_test(tc, several_watchers);
	tcase_add_test(tc, rounds_leave_nothing);
	suite_add_tcase(s, tc);
	tc = tcase_create("ends");
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, root_is_removed, 0, 2);
	tcase_add_loop_test(tc, root_is_moved, 0, 2);
	tcase_add_test(tc, root_is_lost_unsaid);
	tcase_add_loop_test(tc, single_file, 0, 2);
	tcase_add_test(tc, ended_below);
	tcase_add_test(tc, closed_in_its_callback);
	suite_add_tcase(s, tc);
	return s;
}
