// SPDX-License-Identifier: Apache-2.0
// Watches beyond what queues and the kernel hold, and what is left when they are gone.
#include "tests/integration/suites.h"
#include "tests/integration/watching.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// B53
START_TEST(unread_events_vanish)
{
	struct testd *d = d_start();
	struct w_events w = {0};
	long rss = d_rss_kib(d);
	int64_t id = w_create(d, ".", false);
	w_shell(d, "seq -f f%g 50000 | xargs touch");
	w_poll(d, id, &w);
	ck_assert_msg(w.overflow || w.count >= 50000, "%zu events and no word of a loss", w.count);
	ck_assert_uint_ge(w.count, 1000);
	ck_assert_msg(d_sanitized(d) || d_rss_kib(d) - rss < 24576, "%ld KiB more", d_rss_kib(d) - rss);
	w_release(&w);
	w_file(d, "later");
	w_poll(d, id, &w);
	assert_text(&w.text, "1 later\n");
	ck_assert(!w.overflow);
	w_release(&w);
	d_finish(d);
}
END_TEST

static void stop_daemon(const struct testd *d, int sig)
{
	ck_assert_int_eq(kill(d->daemon, sig), 0);
}

// B53: the kernel's own queue overflows; what came meanwhile is found.
START_TEST(burst_while_stopped_vanishes)
{
	struct testd *d = d_start();
	struct w_events w = {0};
	char limit[32] = "", line[200];
	FILE *f = fopen("/proc/sys/fs/inotify/max_queued_events", "re");
	ck_assert(f && fgets(limit, sizeof limit, f));
	(void)fclose(f);
	w_dir(d, "burst");
	w_dir(d, "gone");
	int64_t id = w_create(d, ".", true), flat = w_create(d, "gone", false);
	stop_daemon(d, SIGSTOP);
	(void)snprintf(line, sizeof line, "cd burst && seq -f f%%g %ld | xargs touch", atol(limit));
	w_shell(d, line);
	w_shell(d, "mkdir -p late/dir; rmdir gone");
	stop_daemon(d, SIGCONT);
	while (!w.overflow)
		w_poll(d, id, &w);
	w_release(&w);
	w_settled(d, 4); // the workspace, burst, late, late/dir
	w_file(d, "late/dir/f");
	w_await(d, id, &w, CREATED, "late/dir/f");
	w_release(&w);
	while (!w.ended)
		w_poll(d, flat, &w);
	w_release(&w);
	d_finish(d);
}
END_TEST

START_TEST(rounds_leak)
{
	struct testd *d = d_start();
	struct w_events w = {0};
	int rounds = (int)(1000 / h_scale()), fds = 0;
	long rss = 0;
	w_shell(d, "mkdir -p t/a/b t/c");
	w_file(d, "t/f");
	for (int i = -50; i < rounds; i++) {
		if (i == 0) {
			fds = d_fd_count(d);
			rss = d_rss_kib(d);
		}
		int64_t id = w_create(d, i % 3 == 2 ? "t/f" : "t", i % 3);
		if (i % 10 == 0) {
			w_shell(d, "mkdir t/n; touch t/n/x t/f; mv t/n t/a; rm -r t/a/n");
			w_poll(d, id, &w);
			ck_assert_uint_gt(w.count, 0);
			w_release(&w);
		}
		if (i % 7 == 0) {
			struct sse *s = sse_open(d, "/watch/stream?path=t&recursive=1", NULL);
			sse_close(s);
		}
		w_remove(d, id);
	}
	w_settled(d, 0);
	ck_assert_int_le(d_fd_count(d), fds);
	ck_assert_msg(d_rss_kib(d) - rss <= (d_sanitized(d) ? 300L * 1024 : 512), "%ld KiB more", d_rss_kib(d) - rss);
	d_finish(d);
}
END_TEST

// More than any table of a fixed size.
START_TEST(many_watchers_are_refused)
{
	struct testd *d = d_start();
	struct w_events w = {0};
	int count = (int)(2000 / h_scale());
	w_dir(d, "t");
	for (int i = 1; i <= count; i++)
		ck_assert_int_eq(w_create(d, "t", false), i);
	w_settled(d, 1);
	w_file(d, "t/f");
	for (int i = 1; i <= count; i++) {
		w_poll(d, i, &w);
		assert_text(&w.text, "1 t/f\n");
		w_release(&w);
		w_remove(d, i);
	}
	w_settled(d, 0);
	d_finish(d);
}
END_TEST

#define WIDE 100
#define DEEP 200

// A large tree is watched in slices: others are served, and the answer comes when all of it is.
START_TEST(large_tree_holds_everybody_up)
{
	struct testd *d = d_start();
	struct client *c = client_connect(d), *asker = client_connect(d);
	struct resp r = {0};
	struct w_events w = {0};
	w_shell(d, "mkdir t; cd t; for i in $(seq 100); do mkdir $i; (cd $i; seq 200 | xargs mkdir); done");
	const char *body = "{\"path\":\"t\",\"recursive\":true}";
	client_request(asker, "POST", "/watch/create", NULL, body, strlen(body));
	int64_t slowest = 0;
	int served = 0;
	while (w_watched(d) < WIDE * DEEP + WIDE + 1) {
		int64_t start = h_now_ms();
		client_request(c, "GET", "/health", NULL, NULL, 0);
		client_response(c, &r);
		ck_assert_int_eq(r.status, 204);
		int64_t took = h_now_ms() - start;
		slowest = took > slowest ? took : slowest;
		served++;
	}
	client_response(asker, &r);
	int64_t id = j_int(resp_json(&r), "watcher_id");
	ck_assert_msg(slowest <= h_scaled(1500), "%d answers, one took %lld ms", served, (long long)slowest);
	w_file(d, "t/100/200/f");
	w_poll(d, id, &w);
	assert_text(&w.text, "1 t/100/200/f\n");
	w_release(&w);
	w_shell(d, "mv t/1 t/2 t/3 .");
	w_settled(d, (WIDE - 3) * (DEEP + 1) + 1);
	w_poll(d, id, &w);
	assert_text(&w.text, "4 t/1\n4 t/2\n4 t/3\n");
	w_remove(d, id);
	w_settled(d, 0);
	w_release(&w);
	// The asker goes before it is answered.
	client_request(asker, "POST", "/watch/create", NULL, body, strlen(body));
	client_close(asker);
	req(d, "GET", "/health", NULL, &r);
	w_settled(d, 0);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// In a user namespace of its own, where the kernel's limits can be set for it alone. False if that is not allowed here.
static bool limit_daemons(char *script, const char *dir, const char *limit, int value)
{
	const char *celld = getenv("CELLD");
	(void)snprintf(script, 300, "%s/celld", dir);
	FILE *f = fopen(script, "we");
	ck_assert_ptr_nonnull(f);
	(void)fprintf(f,
		"#!/bin/sh\nexec unshare -Ur sh -c 'echo %d >/proc/sys/user/max_inotify_%s && exec \"$0\" \"$@\"' %s "
		"\"$@\"\n",
		value, limit, celld ? celld : "build/celld");
	(void)fclose(f);
	ck_assert_int_eq(chmod(script, 0755), 0);
	ck_assert_int_eq(setenv("CELLD", script, 1), 0);
	return system("unshare -Ur sh -c 'echo 100 >/proc/sys/user/max_inotify_watches' 2>/dev/null") == 0;
}

static const struct {
	const char *limit;
	int value;
	const char *named, *sys;
	bool retryable;
} limits[] = {
	{"watches", 4, "fs.inotify.max_user_watches", "ENOSPC", false},
	{"instances", 0, "fs.inotify.max_user_instances", "EMFILE", true},
};

// Said with the limit's name; what is watched stays so.
START_TEST(kernel_limit_is_a_riddle)
{
	char dir[] = "/tmp/celld-it-limit.XXXXXX", script[300];
	struct w_events w = {0};
	struct resp r = {0};
	ck_assert_ptr_nonnull(mkdtemp(dir));
	if (!limit_daemons(script, dir, limits[_i].limit, limits[_i].value)) {
		(void)fputs("no user namespaces here: skipped\n", stderr);
		(void)unlink(script);
		(void)rmdir(dir);
		return;
	}
	const struct d_opts opts = {.plain = true};
	struct testd *d = d_start_opts(&opts);
	(void)unlink(script);
	(void)rmdir(dir);
	w_shell(d, "mkdir -p small t/1 t/2 t/3 t/4 t/5");
	int64_t id = _i == 0 ? w_create(d, "small", true) : 0;
	for (int stream = 0; stream < 2; stream++) {
		if (stream)
			req(d, "GET", "/watch/stream?path=t&recursive=1", NULL, &r);
		else
			req(d, "POST", "/watch/create", "{\"path\":\"t\",\"recursive\":true}", &r);
		json_t *e = assert_error(&r, 503, "resource_exhausted");
		ck_assert_msg(strstr(j_str(e, "error"), limits[_i].named), "%s", j_str(e, "error"));
		ck_assert_str_eq(j_str(e, "errno"), limits[_i].sys);
		ck_assert(j_bool(e, "retryable") == limits[_i].retryable);
	}
	if (_i == 0) {
		w_settled(d, 1);
		w_file(d, "small/f");
		w_poll(d, id, &w);
		assert_text(&w.text, "1 small/f\n");
		w_release(&w);
		// Later, when a tree grows beyond it: events are lost, and that is said.
		w_shell(d, "mkdir small/1 small/2 small/3 small/4 small/5");
		w_poll(d, id, &w);
		ck_assert(w.overflow && w_has(&w, CREATED, "small/5"));
		w_release(&w);
		w_remove(d, id);
		w_settled(d, 0);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *watch_limits_suite(void)
{
	Suite *s = suite_create("watch_limits");
	TCase *tc = h_tcase(s, "queues", 120);
	tcase_add_test(tc, unread_events_vanish);
	tcase_add_test(tc, burst_while_stopped_vanishes);
	tcase_add_test(tc, rounds_leak);
	tcase_add_test(tc, many_watchers_are_refused);
	tcase_add_loop_test(tc, kernel_limit_is_a_riddle, 0, (int)(sizeof limits / sizeof *limits));
	tcase_add_test(tc, large_tree_holds_everybody_up);
	return s;
}
