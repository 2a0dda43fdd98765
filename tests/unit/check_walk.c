// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/walk.h"
#include "oom.h"
#include "suites.h"
#include "treekit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct walk *walk_of(const char *path)
{
	struct walk *w;
	ck_assert_int_eq(walk_new(&w, walk_open_root(path), path), 0);
	return w;
}

struct seen {
	unsigned entries, dirs, leaves, errors, depth;
	int fds; // most at once
	int last_error;
	char text[1024]; // "path type|..." of small trees, sorted by nothing
};

static void see(struct seen *s, const struct walk_entry *e)
{
	size_t n = strlen(s->text);
	s->entries++;
	s->depth = e->depth > s->depth ? e->depth : s->depth;
	ck_assert_uint_eq(e->path_len, strlen(e->path));
	ck_assert_str_eq(strrchr(e->path, '/') + 1, e->name);
	if (n + e->path_len + 4 < sizeof s->text)
		(void)snprintf(s->text + n, sizeof s->text - n, "%s%c|", e->path, e->type == DT_DIR ? '/' : ' ');
}

// Walks all of it, COUNT_FDS: looking at the descriptors all the time.
static struct seen walk_all(const char *path, bool count_fds)
{
	struct seen s = {.entries = 0};
	struct walk *w = walk_of(path);
	struct walk_entry e;
	enum walk_event ev;
	while ((ev = walk_next(w, &e)) != WALK_DONE) {
		int fds = count_fds ? tk_fds() : 0;
		s.fds = fds > s.fds ? fds : s.fds;
		if (ev == WALK_LEAVE) {
			s.leaves++;
		} else if (ev == WALK_ERROR) {
			s.errors++;
		} else {
			see(&s, &e);
			int rc = e.type == DT_DIR ? walk_enter(w) : 1;
			s.dirs += rc == 0;
			s.last_error = rc < 0 ? rc : s.last_error;
		}
	}
	ck_assert_int_eq(walk_next(w, &e), WALK_DONE);
	walk_free(w);
	return s;
}

// DEPTH directories inside each other, each with a file.
static void make_deep(const char *top, int depth)
{
	int at = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	tk_mkdir(top);
	ck_assert_int_eq(chdir(top), 0);
	for (int i = 0; i < depth; i++) {
		tk_file("f", "");
		tk_mkdir("d");
		ck_assert_int_eq(chdir("d"), 0);
	}
	ck_assert_int_eq(fchdir(at), 0);
	close(at);
}

static void make_many(const char *top, int count)
{
	char name[64];
	tk_mkdir(top);
	for (int i = 0; i < count; i++) {
		(void)snprintf(name, sizeof name, "%s/file-with-a-longer-name-%06d", top, i);
		tk_file(name, "");
	}
}

// --- walking ---

START_TEST(links_are_followed)
{
	struct tree t;
	tk_init(&t, false);
	tk_mkdir("top");
	tk_mkdir("top/a");
	tk_file("top/a/\xff\xfe", "x");
	ck_assert_int_eq(symlink(".", "top/loop"), 0);
	ck_assert_int_eq(symlink("/", "top/root"), 0);
	ck_assert_int_eq(mkfifo("top/fifo", 0600), 0);
	struct seen s = walk_all("top", false);
	ck_assert_uint_eq(s.entries, 5);
	ck_assert_uint_eq(s.dirs, 1);
	ck_assert_uint_eq(s.leaves, 1);
	ck_assert_uint_eq(s.depth, 2);
	ck_assert_ptr_nonnull(strstr(s.text, "top/a/|"));
	ck_assert_ptr_nonnull(strstr(s.text, "top/a/\xff\xfe |"));
	ck_assert_ptr_nonnull(strstr(s.text, "top/loop |"));
	ck_assert_ptr_nonnull(strstr(s.text, "top/fifo |"));
	// The root itself may be reached through one.
	ck_assert_uint_eq(walk_all("top/loop", false).entries, 5);
	tk_release(&t);
}
END_TEST

START_TEST(roots_that_are_none)
{
	struct tree t;
	tk_init(&t, false);
	tk_file("file", "");
	ck_assert_int_eq(walk_open_root("missing"), -ENOENT);
	ck_assert_int_eq(walk_open_root("file"), -ENOTDIR);
	ck_assert_int_eq(walk_open_root("file/x"), -ENOTDIR);
	ck_assert_int_eq(walk_open_dir(AT_FDCWD, "file"), -ENOTDIR);
	// No doubled slash below "/".
	struct walk *w = walk_of("/");
	struct walk_entry e;
	ck_assert_int_eq(walk_next(w, &e), WALK_ENTRY);
	ck_assert_int_eq(e.path[0], '/');
	ck_assert_int_ne(e.path[1], '/');
	ck_assert_ptr_eq(e.name, e.path + 1);
	walk_free(w);
	walk_free(NULL);
	tk_release(&t);
}
END_TEST

START_TEST(deep_tree_takes_all_descriptors)
{
	struct tree t;
	tk_init(&t, false);
	make_deep("top", 400);
	int before = tk_fds();
	struct seen s = walk_all("top", true);
	ck_assert_uint_eq(s.entries, 800);
	ck_assert_uint_eq(s.leaves, 400);
	ck_assert_uint_eq(s.errors, 0);
	ck_assert_uint_eq(s.depth, 400);
	ck_assert_int_le(s.fds, before + WALK_FDS + 1);
	ck_assert_int_eq(tk_fds(), before);
	tk_release(&t);
}
END_TEST

// More than one getdents gives, at levels that are closed and opened again on the way.
START_TEST(entries_are_lost_between_reads)
{
	struct tree t;
	tk_init(&t, false);
	make_many("top", 3000);
	make_deep("top/deep", 100);
	struct seen s = walk_all("top", false);
	ck_assert_uint_eq(s.entries, 3000 + 1 + 200);
	tk_release(&t);
}
END_TEST

// In each order everything is given once, and of what is read at once the first kind before the other.
START_TEST(order_loses_entries)
{
	static const enum walk_order orders[] = {WALK_AS_TOLD, WALK_FILES_FIRST, WALK_DIRECTORIES_FIRST};
	struct tree t;
	struct walk_entry e;
	enum walk_event ev;
	unsigned dirs = 0, files = 0;
	bool first = false;
	tk_init(&t, false);
	make_many("top", 3000);
	for (int i = 0; i < 20; i++) {
		char name[32];
		(void)snprintf(name, sizeof name, "top/d%d", i);
		make_many(name, 40);
	}
	make_deep("top/deep", 30);
	struct walk *w = walk_of("top");
	walk_set_order(w, orders[_i]);
	while ((ev = walk_next(w, &e)) != WALK_DONE) {
		ck_assert_int_ne(ev, WALK_ERROR);
		if (ev != WALK_ENTRY)
			continue;
		bool dir = e.type == DT_DIR;
		if (e.depth == 2 && strstr(e.path, "/deep/") && !first) { // a file and a directory
			first = true;
			ck_assert(orders[_i] == WALK_AS_TOLD || dir == (orders[_i] == WALK_DIRECTORIES_FIRST));
		}
		dirs += dir;
		files += !dir;
		ck_assert(!dir || walk_enter(w) == 0);
	}
	ck_assert_uint_eq(files, 3000 + 20 * 40 + 30);
	ck_assert_uint_eq(dirs, 20 + 1 + 30);
	walk_free(w);
	tk_release(&t);
}
END_TEST

START_TEST(entries_vanish_during_the_walk)
{
	struct tree t;
	struct walk_entry e;
	struct stat st;
	tk_init(&t, false);
	tk_mkdir("top");
	tk_mkdir("top/a");
	struct walk *w = walk_of("top");
	ck_assert_int_eq(walk_next(w, &e), WALK_ENTRY);
	ck_assert_int_eq(rmdir("top/a"), 0);
	ck_assert_int_eq(walk_stat(&e, &st), -ENOENT);
	ck_assert_int_eq(walk_enter(w), -ENOENT);
	ck_assert_int_eq(symlink("/", "top/a"), 0);
	int rc = walk_enter(w);
	ck_assert(rc == -ENOTDIR || rc == -ELOOP);
	ck_assert_int_eq(rmdir("top") == 0, 0);
	ck_assert_int_eq(unlink("top/a"), 0);
	ck_assert_int_eq(rmdir("top"), 0);
	ck_assert_int_eq(walk_next(w, &e), WALK_DONE);
	walk_free(w);
	tk_release(&t);
}
END_TEST

// A directory far down is moved elsewhere while its ancestors are closed: the way up is checked.
START_TEST(moved_directory_leads_out_of_the_tree)
{
	struct tree t;
	struct walk_entry e;
	enum walk_event ev;
	tk_init(&t, false);
	make_deep("top", 100);
	tk_mkdir("out");
	tk_file("out/secret", "x");
	struct walk *w = walk_of("top");
	bool moved = false;
	int err = 0;
	while ((ev = walk_next(w, &e)) != WALK_DONE) {
		if (ev == WALK_ENTRY && e.type == DT_DIR)
			ck_assert_int_eq(walk_enter(w), 0);
		ck_assert_str_ne(e.name, "secret");
		if (ev == WALK_ENTRY && e.depth == 100 && !moved) {
			// The one at depth 20, whose parent is closed by now.
			char from[128] = "top";
			for (int i = 0; i < 20; i++)
				(void)memcpy(from + 3 + 2 * i, "/d", 3);
			ck_assert_int_eq(rename(from, "out/d"), 0);
			moved = true;
		}
		if (ev == WALK_ERROR)
			err = e.err;
	}
	ck_assert(moved);
	ck_assert_int_eq(err, -ESTALE);
	ck_assert(e.marked);
	walk_free(w);
	tk_release(&t);
}
END_TEST

START_TEST(mount_points_are_entered)
{
	struct tree t;
	tk_init(&t, true);
	if (t.mounts) {
		tk_mkdir("top");
		tk_mkdir("top/m");
		tk_mount("top/m", 1 << 20);
		tk_file("top/m/inside", "x");
		struct seen s = walk_all("top", false);
		ck_assert_uint_eq(s.entries, 1);
		ck_assert_int_eq(s.last_error, -EXDEV);
		ck_assert_uint_eq(walk_all("top/m", false).entries, 1);
	}
	tk_release(&t);
}
END_TEST

static int walk_run(void *arg)
{
	struct walk *w;
	struct walk_entry e;
	enum walk_event ev;
	unsigned entries = 0;
	int err = 0, rc = walk_new(&w, walk_open_root(arg), arg);
	if (rc < 0)
		return rc;
	while ((ev = walk_next(w, &e)) != WALK_DONE) {
		if (ev == WALK_ERROR)
			err = e.err;
		entries += ev == WALK_ENTRY;
		rc = ev == WALK_ENTRY && e.type == DT_DIR ? walk_enter(w) : 0;
		err = rc < 0 ? rc : err;
	}
	walk_free(w);
	return err ? err : entries == 60 ? 0 : 1;
}

START_TEST(walk_out_of_memory)
{
	struct tree t;
	tk_init(&t, false);
	make_deep("top", 30);
	int fds = tk_fds();
	OOM_LOOP(walk_run, (void *)(uintptr_t)tk_path(&t, "top"));
	ck_assert_int_eq(tk_fds(), fds);
	tk_release(&t);
}
END_TEST

// --- removing ---

// Removes PATH: the first error, and COUNT.
static int remove_all(const char *path, unsigned flags, uint64_t *count, char *where)
{
	struct walk_remove *r;
	const char *at;
	int rc = walk_remove_new(&r, path, flags);
	if (rc < 0)
		return rc;
	while (walk_remove_step(r, INT64_MAX))
		continue;
	ck_assert(!walk_remove_step(r, INT64_MAX));
	*count = walk_remove_count(r);
	rc = walk_remove_error(r, &at);
	if (where)
		(void)snprintf(where, 256, "%s", at);
	walk_remove_free(r);
	return rc;
}

START_TEST(tree_is_removed_through_links)
{
	struct tree t;
	uint64_t n;
	tk_init(&t, false);
	tk_mkdir("keep");
	tk_file("keep/file", "x");
	tk_mkdir("top");
	tk_mkdir("top/a");
	tk_file("top/a/\xff", "x");
	ck_assert_int_eq(symlink("../keep", "top/link"), 0);
	ck_assert_int_eq(symlink("keep", "link"), 0);
	int fds = tk_fds();
	ck_assert_int_eq(remove_all(tk_path(&t, "top"), 0, &n, NULL), 0);
	ck_assert_uint_eq(n, 4);
	ck_assert(!tk_exists("top"));
	ck_assert_int_eq(remove_all(tk_path(&t, "link/"), 0, &n, NULL), 0);
	ck_assert(!tk_exists("link"));
	ck_assert_int_eq(remove_all(tk_path(&t, "keep/file"), 0, &n, NULL), 0);
	ck_assert_uint_eq(n, 1);
	ck_assert(tk_exists("keep") && !tk_exists("keep/file"));
	ck_assert_int_eq(tk_fds(), fds);
	tk_release(&t);
}
END_TEST

START_TEST(what_cannot_be_removed)
{
	struct tree t;
	uint64_t n;
	tk_init(&t, false);
	tk_file("file", "");
	ck_assert_int_eq(remove_all(tk_path(&t, "missing"), 0, &n, NULL), -ENOENT);
	ck_assert_int_eq(remove_all(tk_path(&t, "missing/x"), 0, &n, NULL), -ENOENT);
	ck_assert_int_eq(remove_all(tk_path(&t, "file/x"), 0, &n, NULL), -ENOTDIR);
	ck_assert_int_eq(remove_all("/", 0, &n, NULL), -EINVAL);
	ck_assert_int_eq(remove_all("///", 0, &n, NULL), -EINVAL);
	ck_assert_int_eq(remove_all(tk_path(&t, "."), 0, &n, NULL), -EINVAL);
	ck_assert_int_eq(remove_all(tk_path(&t, ".."), 0, &n, NULL), -EINVAL);
	ck_assert_int_eq(remove_all(tk_path(&t, "../"), 0, &n, NULL), -EINVAL);
	ck_assert(tk_exists("file"));
	walk_remove_free(NULL);
	tk_release(&t);
}
END_TEST

START_TEST(root_is_kept)
{
	struct tree t;
	uint64_t n;
	tk_init(&t, false);
	make_many("top", 2500);
	make_deep("top/deep", 200);
	ck_assert_int_eq(symlink("top", "link"), 0);
	ck_assert_int_eq(remove_all(tk_path(&t, "link"), WALK_KEEP_ROOT, &n, NULL), 0);
	ck_assert_uint_eq(n, 2500 + 1 + 400);
	ck_assert_int_eq(tk_count("top"), 0);
	ck_assert_int_eq(remove_all(tk_path(&t, "top"), WALK_KEEP_ROOT, &n, NULL), 0);
	ck_assert_uint_eq(n, 0);
	tk_release(&t);
}
END_TEST

// Somebody puts a link to other files in the kept root's place while it is emptied: it is not looked for by its name again.
START_TEST(kept_root_is_exchanged)
{
	struct tree t;
	struct walk_remove *r;
	tk_init(&t, false);
	make_many("top", 2500);
	make_many("other", 10);
	ck_assert_int_eq(walk_remove_new(&r, tk_path(&t, "top"), WALK_KEEP_ROOT), 0);
	ck_assert(walk_remove_step(r, 0));
	ck_assert_int_eq(rename("top", "moved"), 0);
	ck_assert_int_eq(symlink("other", "top"), 0);
	while (walk_remove_step(r, INT64_MAX))
		;
	ck_assert_int_eq(walk_remove_error(r, NULL), 0);
	ck_assert_uint_eq(walk_remove_count(r), 2500);
	ck_assert_int_eq(tk_count("moved"), 0);
	ck_assert_int_eq(tk_count("other"), 10);
	walk_remove_free(r);
	tk_release(&t);
}
END_TEST

START_TEST(mounts_are_emptied)
{
	struct tree t;
	uint64_t n;
	char where[256];
	tk_init(&t, true);
	if (t.mounts) {
		tk_mkdir("top");
		tk_mkdir("top/a");
		tk_mkdir("top/a/m");
		tk_file("top/a/f", "");
		tk_mount("top/a/m", 1 << 20);
		tk_file("top/a/m/inside", "x");
		ck_assert_int_eq(remove_all(tk_path(&t, "top/a/m"), 0, &n, NULL), -EBUSY);
		ck_assert_int_eq(remove_all(tk_path(&t, "top"), 0, &n, where), -EBUSY);
		ck_assert_str_eq(where, tk_path(&t, "top/a/m"));
		ck_assert_uint_eq(n, 1); // all the rest is gone
		tk_file("top/a/f", "");
		ck_assert_int_eq(remove_all(tk_path(&t, "top"), WALK_KEEP_ROOT | WALK_KEEP_MOUNTS, &n, NULL), 0);
		ck_assert_uint_eq(n, 1);
		tk_assert_file("top/a/m/inside", "x");
	}
	tk_release(&t);
}
END_TEST

// Others fill the directories meanwhile: it comes to an end, and says so if something is left.
START_TEST(removal_races_with_creation)
{
	struct tree t;
	uint64_t n;
	tk_init(&t, false);
	tk_mkdir("top");
	pid_t pid = fork();
	if (pid == 0) {
		char name[32];
		for (unsigned i = 0;; i++) {
			(void)snprintf(name, sizeof name, "top/d%u", i % 50);
			(void)mkdir("top", 0755);
			(void)mkdir(name, 0755);
			(void)snprintf(name, sizeof name, "top/d%u/f%u", i % 50, i);
			close(open(name, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
		}
	}
	for (int i = 0; i < 50; i++) {
		int rc = remove_all(tk_path(&t, "top"), 0, &n, NULL);
		ck_assert_msg(rc == 0 || rc == -ENOTEMPTY || rc == -ENOENT, "%d", rc);
	}
	kill(pid, SIGKILL);
	ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
	int rc = remove_all(tk_path(&t, "top"), 0, &n, NULL);
	ck_assert(rc == 0 || rc == -ENOENT);
	ck_assert(!tk_exists("top"));
	tk_release(&t);
}
END_TEST

START_TEST(removal_runs_in_slices)
{
	struct tree t;
	struct walk_remove *r;
	tk_init(&t, false);
	make_many("top", 2000);
	ck_assert_int_eq(walk_remove_new(&r, tk_path(&t, "top"), 0), 0);
	ck_assert_int_eq(tk_count("top"), 2000); // nothing yet
	ck_assert(walk_remove_step(r, 0));
	walk_remove_free(r); // given up
	ck_assert_int_gt(tk_count("top"), 1900);
	tk_release(&t);
}
END_TEST

static int remove_run(void *arg)
{
	struct walk_remove *r;
	const char *where;
	int rc = walk_remove_new(&r, arg, 0);
	if (rc < 0)
		return rc;
	while (walk_remove_step(r, INT64_MAX))
		continue;
	rc = walk_remove_error(r, &where);
	walk_remove_free(r);
	return rc;
}

START_TEST(removal_out_of_memory)
{
	struct tree t;
	tk_init(&t, false);
	make_deep("top", 40);
	int fds = tk_fds();
	OOM_LOOP(remove_run, (void *)(uintptr_t)tk_path(&t, "top"));
	ck_assert(!tk_exists("top"));
	ck_assert_int_eq(tk_fds(), fds);
	tk_release(&t);
}
END_TEST

Suite *walk_suite(void)
{
	Suite *s = suite_create("walk");
	TCase *t = tcase_create("walking");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_test(t, links_are_followed);
	tcase_add_test(t, roots_that_are_none);
	tcase_add_test(t, deep_tree_takes_all_descriptors);
	tcase_add_test(t, entries_are_lost_between_reads);
	tcase_add_loop_test(t, order_loses_entries, 0, 3);
	tcase_add_test(t, entries_vanish_during_the_walk);
	tcase_add_test(t, moved_directory_leads_out_of_the_tree);
	tcase_add_test(t, mount_points_are_entered);
	tcase_add_test(t, walk_out_of_memory);
	t = tcase_create("removing");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_test(t, tree_is_removed_through_links);
	tcase_add_test(t, what_cannot_be_removed);
	tcase_add_test(t, root_is_kept);
	tcase_add_test(t, kept_root_is_exchanged);
	tcase_add_test(t, mounts_are_emptied);
	tcase_add_test(t, removal_races_with_creation);
	tcase_add_test(t, removal_runs_in_slices);
	tcase_add_test(t, removal_out_of_memory);
	return s;
}
