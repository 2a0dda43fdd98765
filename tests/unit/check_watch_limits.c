// SPDX-License-Identifier: Apache-2.0
// What watches do when something runs out.
#include "daemon/io.h"
#include "oom.h"
#include "suites.h"
#include "watchkit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(queue_overflows)
{
	struct watch_limits limits = {
		.max_nodes = 100,
		.max_events = _i == 0 ? 10 : 1000,
		.max_bytes = _i == 1 ? 2000 : 1000000,
		.max_total = _i == 2 ? 2000 : 1000000,
	};
	struct watchkit k;
	char name[16];
	watchkit_start(&k, &limits);
	struct watcher *w = watchkit_added(&k, "", true);
	for (int i = 0; i < 100; i++) {
		snprintf(name, sizeof name, "f%d", i);
		watchkit_file(name);
	}
	const char *got = watchkit_events(&k, w);
	ck_assert_int_eq(strncmp(got, "+f0 +f1 +f2 ", 12), 0);
	ck_assert_str_eq(got + strlen(got) - 2, " !");
	ck_assert_ptr_null(strstr(got, "+f50"));
	watchkit_file("later");
	ck_assert_str_eq(watchkit_events(&k, w), "+later");
	watchkit_end(&k);
}
END_TEST

// More than the kernel keeps, while we look away: what came meanwhile is found, what went is forgotten.
START_TEST(kernel_overflows)
{
	struct watch_limits limits = {
		.max_nodes = 100, .max_events = 1 << 20, .max_bytes = 1 << 28, .max_total = 1 << 28};
	struct watchkit k;
	char name[32], text[16];
	watchkit_start(&k, &limits);
	watchkit_mkdir("gone");
	watchkit_mkdir("gone/deeper");
	watchkit_mkdir("stays");
	struct watcher *w = watchkit_added(&k, "", true), *r = watchkit_added(&k, "gone/deeper", false);
	io_read_file("/proc/sys/fs/inotify/max_queued_events", text, sizeof text);
	for (long i = 0; i < atol(text) + 10; i++) {
		snprintf(name, sizeof name, "stays/f%ld", i & 1);
		watchkit_file(name);
		unlink(name);
	}
	watchkit_remove("gone");
	watchkit_mkdir("new");
	watchkit_mkdir("new/d");
	watchkit_file("new/d/f");
	static const char *const made[] = {"+new", "+new/d", "+new/d/f"};
	bool lost = false;
	int found = 0; // in this order, if not in one turn
	for (int i = 0; i < 2000 && !(lost && found == 3); i++) {
		const char *got = watchkit_events(&k, w);
		lost |= strchr(got, '!') != NULL;
		while (found < 3 && (got = strstr(got, made[found])))
			got += strlen(made[found++]);
	}
	ck_assert_msg(lost && found == 3, "lost %d found %d", lost, found);
	watchkit_settle(&k, 4);
	watchkit_file("new/d/g");
	watchkit_file("stays/g");
	ck_assert_str_eq(watchkit_events(&k, w), "+new/d/g +stays/g");
	ck_assert_ptr_nonnull(strstr(watchkit_events(&k, r), "-."));
	watchkit_end(&k);
}
END_TEST

START_TEST(too_many_nodes)
{
	struct watch_limits limits = {.max_nodes = 6, .max_events = 100, .max_bytes = 100000, .max_total = 100000};
	struct watchkit k;
	struct watcher *w, *more;
	watchkit_start(&k, &limits);
	for (char d[] = "a"; *d < 'e'; ++*d)
		watchkit_mkdir(d);
	ck_assert_int_eq(watchkit_add(&k, "", true, &w), 0);
	ck_assert_int_eq(watchkit_add(&k, "", true, &more), -EUSERS);
	watchkit_mkdir("e");
	ck_assert_str_eq(watchkit_events(&k, w), "+e !");
	rmdir("a");
	ck_assert_str_eq(watchkit_events(&k, w), "-a");
	watchkit_turn(&k);
	watchkit_mkdir("f");
	watchkit_file("f/x");
	ck_assert_ptr_nonnull(strstr(watchkit_events(&k, w), "+f/x"));
	watchkit_end(&k);
}
END_TEST

START_TEST(bad_paths)
{
	struct watchkit k;
	struct watcher *w;
	char longest[5000];
	watchkit_start(&k, NULL);
	watchkit_file("f");
	ck_assert_int_eq(symlink("loop", "loop"), 0);
	ck_assert_int_eq(symlink("nowhere", "dangling"), 0);
	memset(longest, 'x', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	ck_assert_int_eq(watchkit_add(&k, "none", true, &w), -ENOENT);
	ck_assert_int_eq(watchkit_add(&k, "f/x", false, &w), -ENOTDIR);
	ck_assert_int_eq(watchkit_add(&k, "loop", false, &w), -ELOOP);
	ck_assert_int_eq(watchkit_add(&k, "dangling", false, &w), -ENOENT);
	ck_assert_int_eq(watchkit_add(&k, longest, false, &w), -ENAMETOOLONG);
	watchkit_settle(&k, 0);
	watchkit_end(&k);
}
END_TEST

// --- everything at once ---

// Some path of up to three parts below the directory.
static void some_path(char *path, size_t size, unsigned *seed)
{
	size_t n = 0;
	int depth = 1 + rand_r(seed) % 3;
	for (int i = 0; i < depth; i++)
		n += (size_t)snprintf(path + n, size - n, "%s%c", i ? "/" : "", "abcd"[rand_r(seed) % 4]);
}

static _Noreturn void storm(unsigned seed)
{
	char from[32], to[32];
	for (int i = 0; i < 4000; i++) {
		some_path(from, sizeof from, &seed);
		some_path(to, sizeof to, &seed);
		switch (rand_r(&seed) % 6) {
		case 0:
			rmdir(from);
			break;
		case 1:
		case 2:
			rename(from, to);
			break;
		default:
			mkdir(from, 0755);
		}
	}
	_exit(0);
}

// How many directories there are. Unless TEXT is NULL, makes the file "probe" in each and appends the events of that to TEXT.
static int probe(const char *dir, char *text, size_t size, size_t *n)
{
	char path[600];
	const struct dirent *e;
	int dirs = 1;
	DIR *d = opendir(dir);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		snprintf(path, sizeof path, "%s/%s", dir, e->d_name);
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			dirs += probe(path, text, size, n);
	}
	closedir(d);
	if (!text)
		return dirs;
	snprintf(path, sizeof path, "%s/probe", dir);
	watchkit_file(path);
	*n += (size_t)snprintf(text + *n, size - *n, "+%s ", path + 2);
	return dirs;
}

// The count of what is watched says nothing of names, and a slice may be short on a busy machine: so many turns leave nothing undone.
static void turn_often(struct watchkit *k)
{
	for (int i = 0; i < 1000; i++) {
		watches_sync(k->ws);
		watchkit_turn(k);
	}
}

// Directories are made, moved over each other and removed by somebody else while we look, and while we do not. In the end all that
// are there are watched, by their right names, and nothing else is.
START_TEST(storm_of_renames)
{
	static char want[1 << 16];
	struct watchkit k;
	int status;
	watchkit_start(&k, NULL);
	struct watcher *w = watchkit_added(&k, "", true), *twin = watchkit_added(&k, "", true);
	pid_t pid = fork();
	if (pid == 0)
		storm((unsigned)_i + 1);
	for (int i = 0; waitpid(pid, &status, WNOHANG) == 0; i++) {
		if ((i & 1023) < 512)
			watchkit_turn(&k);
		while (watcher_next(w))
			watcher_taken(w);
	}
	(void)watchkit_events(&k, w);
	(void)watchkit_events(&k, twin);
	watchkit_settle(&k, probe(".", NULL, 0, NULL));
	turn_often(&k);
	(void)watchkit_events(&k, w);
	(void)watchkit_events(&k, twin);
	size_t n = 0;
	(void)probe(".", want, sizeof want, &n);
	turn_often(&k);
	for (int i = 0; i < 2; i++) {
		const char *got = watchkit_events(&k, i ? twin : w);
		for (char *line = want, *end; *line; line = end + 1) {
			end = strchr(line, ' ');
			*end = '\0';
			ck_assert_msg(strstr(got, line), "seed %d: no %s in %.2000s", _i + 1, line, got);
			*end = ' ';
		}
	}
	watchkit_end(&k);
}
END_TEST

// --- memory ---

// One of them alone has bounded time, and a busy machine may take all of it away.
static void sync_all(struct watches *ws)
{
	for (int i = 0; i < 20; i++)
		watches_sync(ws);
}

// Watches, changes of every kind, events, the end. What is lost for want of memory is said to be.
static int whole_life(void *arg)
{
	struct watchkit *k = arg;
	struct watch_spec spec = {.path = k->dir, .recursive = true};
	struct watcher *w;
	struct watches *ws = watches_new(k->loop, k->slices, NULL);
	if (!ws)
		return -ENOMEM;
	int rc = watches_add(ws, &spec, NULL, &w);
	// The first look has a time limit, which a busy machine can let pass: the rest of it would be the loop's.
	for (int i = 0; i < 100 && rc == 0 && !watcher_ready(w); i++) {
		watcher_close(w);
		rc = watches_add(ws, &spec, NULL, &w);
	}
	if (rc == 0) {
		mkdir("n", 0755);
		mkdir("n/m", 0755);
		sync_all(ws);
		rename("n", "o");
		close(open("o/m/f", O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
		sync_all(ws);
		bool lost = false, found = false;
		const struct watch_event *e;
		unlink("o/m/f");
		rmdir("o/m");
		rmdir("o");
		sync_all(ws);
		for (; (e = watcher_next(w)); watcher_taken(w)) {
			lost |= e->type == WATCH_LOST;
			found |= e->type == WATCH_CREATE && strcmp(e->name, "o/m/f") == 0;
		}
		rc = lost ? -ENOMEM : found ? 0 : 1;
	}
	watches_free(ws);
	return rc;
}

START_TEST(out_of_memory)
{
	struct watchkit k;
	watchkit_start(&k, NULL);
	watchkit_mkdir("a");
	watchkit_mkdir("a/b");
	ck_assert_int_eq(whole_life(&k), 0); // libev's arrays have their size now
	OOM_LOOP(whole_life, &k);
	watchkit_end(&k);
}
END_TEST

Suite *watch_limits_suite(void)
{
	Suite *s = suite_create("watch_limits");
	TCase *tc = tcase_create("limits");
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, queue_overflows, 0, 3);
	tcase_add_test(tc, kernel_overflows);
	tcase_add_loop_test(tc, storm_of_renames, 0, 6);
	tcase_add_test(tc, too_many_nodes);
	tcase_add_test(tc, bad_paths);
	tcase_add_test(tc, out_of_memory);
	suite_add_tcase(s, tc);
	return s;
}
