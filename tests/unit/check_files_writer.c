// SPDX-License-Identifier: Apache-2.0
// Design rule 13: an overwrite is old or new, never a mix; a new file that does not come to an end does not stay.
#include "daemon/core/files.h"
#include "oom.h"
#include "suites.h"
#include "treekit.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>
#include <unistd.h>

#define BIG (FILES_INPLACE_MAX + 100000)
#define PIECE ((size_t)50000)

struct job {
	const char *path;
	char c;
	size_t n; // bytes to feed
	bool append;
	bool unsized;
	bool give;    // an old file changes its owner
	bool give_up; // no commit
};

static char piece[PIECE];

// The result of the whole.
static int write_file(const struct job *j)
{
	struct files_writer *w;
	struct files_write spec = {.path = j->path,
		.append = j->append,
		.give = j->give,
		.size = j->unsized ? -1 : (int64_t)j->n,
		.owner = geteuid() == 0 ? (struct files_owner){54501, 54502}
					: (struct files_owner){geteuid(), getegid()}};
	memset(piece, j->c, sizeof piece);
	int rc = files_writer_new(&w, &spec);
	if (rc < 0)
		return rc;
	for (size_t left = j->n; left > 0 && rc == 0;) {
		size_t n = left < PIECE ? left : PIECE;
		rc = files_writer_feed(w, piece, n);
		left -= n;
	}
	if (!j->give_up)
		while ((rc = files_writer_commit(w)) == 1)
			continue;
	files_writer_free(w);
	return rc;
}

static int write_n(const char *path, char c, size_t n)
{
	return write_file(&(struct job){.path = path, .c = c, .n = n});
}

static struct stat stat_of(const char *path)
{
	struct stat st;
	ck_assert_int_eq(lstat(path, &st), 0);
	return st;
}

START_TEST(new_files)
{
	struct tree t;
	tk_init(&t, false);
	int fds = tk_fds();
	ck_assert_int_eq(write_n("a/b/f", 'x', 10), 0);
	tk_assert_fill("a/b/f", 'x', 10);
	ck_assert_uint_eq(stat_of("a/b/f").st_mode & 07777, 0644);
	if (geteuid() == 0) {
		ck_assert_uint_eq(stat_of("a").st_uid, 54501);
		ck_assert_uint_eq(stat_of("a/b").st_gid, 54502);
		ck_assert_uint_eq(stat_of("a/b/f").st_uid, 54501);
	}
	ck_assert_int_eq(write_n("empty", 'x', 0), 0);
	tk_assert_file("empty", "");
	ck_assert_int_eq(write_n(tk_path(&t, "big"), 'y', BIG), 0);
	tk_assert_fill("big", 'y', BIG);
	ck_assert_int_eq(write_file(&(struct job){.path = "log", .c = 'l', .n = 3, .append = true}), 0);
	tk_assert_file("log", "lll");
	// Cut.
	ck_assert_int_eq(write_file(&(struct job){.path = "cut", .n = BIG, .give_up = true}), 0);
	ck_assert_int_eq(write_file(&(struct job){.path = "cut", .n = 5, .append = true, .give_up = true}), 0);
	ck_assert(!tk_exists("cut"));
	ck_assert_int_eq(tk_fds(), fds);
	tk_release(&t);
}
END_TEST

static const size_t sizes[] = {0, 5, 1000, FILES_INPLACE_MAX, FILES_INPLACE_MAX + 1, BIG};
enum { SIZES = sizeof sizes / sizeof *sizes };

// Mode, owner and attributes stay, nothing is left beside it, whatever the sizes and whether the new one is known.
START_TEST(overwrite_replaces_the_file)
{
	struct tree t;
	size_t was = sizes[_i / SIZES], n = sizes[_i % SIZES];
	tk_init(&t, false);
	for (int unsized = 0; unsized < 2; unsized++) {
		tk_fill("f", 'o', was);
		if (geteuid() == 0)
			ck_assert_int_eq(chown("f", 54503, 54504), 0);
		ck_assert_int_eq(chmod("f", 0751), 0);
		bool attr = setxattr("f", "user.test", "kept", 4, 0) == 0;
		struct stat before = stat_of("f");
		struct job j = {.path = "f", .c = 'n', .n = n, .unsized = unsized};
		ck_assert_int_eq(write_file(&j), 0);
		tk_assert_fill("f", 'n', n);
		struct stat after = stat_of("f");
		ck_assert_uint_eq(after.st_mode, before.st_mode);
		ck_assert_uint_eq(after.st_uid, before.st_uid);
		ck_assert_uint_eq(after.st_gid, before.st_gid);
		ck_assert(n > FILES_INPLACE_MAX || after.st_ino == before.st_ino);
		char value[8];
		ck_assert(!attr || getxattr("f", "user.test", value, sizeof value) == 4);
		ck_assert_int_eq(tk_count("."), 1);
	}
	tk_release(&t);
}
END_TEST

START_TEST(cut_overwrite_changes_the_file)
{
	struct tree t;
	size_t was = sizes[_i / SIZES], n = sizes[_i % SIZES];
	tk_init(&t, false);
	tk_fill("f", 'o', was);
	struct stat before = stat_of("f");
	for (int append = 0; append < 2; append++)
		for (int unsized = 0; unsized < 2; unsized++) {
			struct job j = {
				.path = "f", .c = 'n', .n = n, .append = append, .unsized = unsized, .give_up = true};
			ck_assert_int_eq(write_file(&j), 0);
			tk_assert_fill("f", 'o', was);
			ck_assert_uint_eq(stat_of("f").st_ino, before.st_ino);
			ck_assert_int_eq(tk_count("."), 1);
		}
	tk_release(&t);
}
END_TEST

static struct files_writer *begin(const char *path, size_t size, bool append)
{
	struct files_writer *w;
	struct files_write spec = {
		.path = path, .append = append, .size = (int64_t)size, .owner = {geteuid(), getegid()}};
	return files_writer_new(&w, &spec) == 0 ? w : NULL;
}

static void feed_n(struct files_writer *w, char c, size_t n)
{
	memset(piece, c, sizeof piece);
	for (size_t left = n, some; left > 0; left -= some) {
		some = left < PIECE ? left : PIECE;
		ck_assert_int_eq(files_writer_feed(w, piece, some), 0);
	}
}

static void commit(struct files_writer *w)
{
	int rc;
	while ((rc = files_writer_commit(w)) == 1)
		continue;
	ck_assert_int_eq(rc, 0);
	files_writer_free(w);
}

// Two at once: the file is one of the two, whichever ends first, also where neither was there before.
static const struct {
	bool old;
	size_t a, b;
} pairs[] = {{false, 40000, 30000}, {false, BIG, 30000}, {false, 30000, BIG}, {false, BIG, BIG}, {true, 40000, 30000},
	{true, BIG, 30000}, {true, 30000, BIG}, {true, BIG, BIG}};

START_TEST(two_writers_do_not_mix)
{
	struct tree t;
	tk_init(&t, false);
	int fds = tk_fds();
	size_t na = pairs[_i].a, nb = pairs[_i].b;
	for (int first = 0; first < 2; first++) {
		if (pairs[_i].old)
			ck_assert_int_eq(write_n("f", 'o', 500000), 0);
		else
			unlink("f");
		struct files_writer *a = begin("f", na, false);
		feed_n(a, 'a', na / 2);
		struct files_writer *b = begin("f", nb, false);
		feed_n(b, 'b', nb);
		if (first == 0)
			commit(b);
		feed_n(a, 'a', na - na / 2);
		commit(a);
		if (first == 1)
			commit(b);
		char c = 0;
		int fd = open("f", O_RDONLY | O_CLOEXEC);
		ck_assert_int_eq(read(fd, &c, 1), 1);
		close(fd);
		ck_assert(c == 'a' || c == 'b');
		tk_assert_fill("f", c, c == 'a' ? na : nb);
		ck_assert_int_eq(tk_count("."), 1);
	}
	ck_assert_int_eq(tk_fds(), fds);
	tk_release(&t);
}
END_TEST

START_TEST(append_waits_for_a_writer)
{
	struct tree t;
	tk_init(&t, false);
	struct files_write spec = {.path = "f", .append = true, .size = 1, .owner = {geteuid(), getegid()}};
	struct files_writer *a = begin("f", 40000, false), *b = NULL;
	feed_n(a, 'a', 20000);
	ck_assert_int_eq(files_writer_new(&b, &spec), -EAGAIN);
	feed_n(a, 'a', 20000);
	commit(a);
	ck_assert_int_eq(write_file(&(struct job){.path = "f", .c = 'a', .n = 5, .append = true}), 0);
	tk_assert_fill("f", 'a', 40005);
	tk_release(&t);
}
END_TEST

START_TEST(append_is_cut_off_with_what_others_appended)
{
	struct tree t;
	struct files_writer *w;
	tk_init(&t, false);
	tk_file("f", "old");
	struct files_write spec = {.path = "f", .append = true, .size = 3, .owner = {geteuid(), getegid()}};
	ck_assert_int_eq(files_writer_new(&w, &spec), 0);
	ck_assert_int_eq(files_writer_feed(w, "new", 3), 0);
	int fd = open("f", O_WRONLY | O_APPEND | O_CLOEXEC);
	ck_assert_int_eq(write(fd, "others", 6), 6);
	close(fd);
	files_writer_free(w);
	tk_assert_file("f", "oldnewothers");
	ck_assert_int_eq(write_file(&(struct job){.path = "f", .c = 'z', .n = 2, .append = true}), 0);
	tk_assert_file("f", "oldnewotherszz");
	tk_release(&t);
}
END_TEST

// While a large overwrite runs, its file is one that watches know to hide.
START_TEST(temporary_file_has_a_name_of_its_own)
{
	struct tree t;
	struct files_writer *w;
	tk_init(&t, false);
	tk_file("f", "old");
	struct files_write spec = {.path = "f", .size = BIG, .owner = {geteuid(), getegid()}};
	ck_assert_int_eq(files_writer_new(&w, &spec), 0);
	ck_assert_int_eq(tk_count("."), 2);
	DIR *d = opendir(".");
	int hidden = 0;
	for (const struct dirent *e; (e = readdir(d));)
		hidden += files_temp_name(e->d_name);
	closedir(d);
	ck_assert_int_eq(hidden, 1);
	files_writer_free(w);
	ck_assert_int_eq(tk_count("."), 1);
	files_writer_free(NULL);
	tk_release(&t);
}
END_TEST

START_TEST(symlinks_are_replaced)
{
	struct tree t;
	tk_init(&t, false);
	tk_mkdir("d");
	tk_file("d/target", "old");
	ck_assert_int_eq(symlink("target", "d/one"), 0);
	ck_assert_int_eq(symlink("d/one", "two"), 0);
	ck_assert_int_eq(symlink(tk_path(&t, "d/new/deep"), "dangling"), 0);
	ck_assert_int_eq(symlink("loop", "loop"), 0);
	ck_assert_int_eq(write_n("two", 's', 5), 0);
	tk_assert_file("d/target", "sssss");
	ck_assert_int_eq(write_n("two", 'b', BIG), 0);
	tk_assert_fill("d/target", 'b', BIG);
	ck_assert_int_eq(write_n("dangling", 'x', 3), 0);
	tk_assert_file("d/new/deep", "xxx");
	ck_assert(S_ISLNK(stat_of("two").st_mode) && S_ISLNK(stat_of("d/one").st_mode));
	ck_assert(S_ISLNK(stat_of("dangling").st_mode));
	ck_assert_int_eq(write_n("loop", 'x', 3), -ELOOP);
	ck_assert_int_eq(tk_count("d"), 3);
	tk_release(&t);
}
END_TEST

START_TEST(targets_that_are_no_files)
{
	struct tree t;
	tk_init(&t, false);
	tk_mkdir("d");
	tk_file("f", "old");
	ck_assert_int_eq(mkfifo("fifo", 0600), 0);
	int fds = tk_fds(), reader = open("fifo", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	ck_assert_int_eq(write_n("fifo", 'x', 3), -EINVAL);
	close(reader);
	ck_assert_int_eq(write_n("fifo", 'x', 3), -EINVAL); // without blocking
	ck_assert_int_eq(write_n("d", 'x', 3), -EISDIR);
	ck_assert_int_eq(write_n("d/", 'x', 3), -EISDIR);
	ck_assert_int_eq(write_n("new/", 'x', 3), -EISDIR);
	ck_assert_int_eq(write_n("d/.", 'x', 3), -EISDIR);
	ck_assert_int_eq(write_n("/", 'x', 3), -EISDIR);
	ck_assert_int_eq(write_n("f/x", 'x', 3), -ENOTDIR);
	ck_assert_int_eq(write_n("f/x/y", 'x', 3), -ENOTDIR);
	ck_assert_int_eq(write_n("/proc/nothing/x", 'x', 3), -ENOENT);
	ck_assert_int_eq(write_n("/dev/null", 'x', BIG), 0);
	ck_assert_int_eq(write_n("/dev/full", 'x', 3), -ENOSPC);
	struct stat st;
	if (geteuid() == 0 && mknod("zero", S_IFCHR | 0666, makedev(1, 5)) == 0) { // a device keeps its owner
		ck_assert_int_eq(write_file(&(struct job){.path = "zero", .c = 'x', .n = 3, .give = true}), 0);
		ck_assert_int_eq(stat("zero", &st), 0);
		ck_assert_uint_eq(st.st_uid, 0);
	}
	tk_assert_file("f", "old");
	ck_assert_int_eq(tk_fds(), fds);
	tk_release(&t);
}
END_TEST

// Settings have size 0, take a write whole, and there is no file to be made beside them.
START_TEST(settings_of_proc)
{
	char path[64];
	FILE *f;
	(void)snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)getpid());
	struct files_writer *w;
	struct files_write spec = {.path = path, .size = 3};
	ck_assert_int_eq(files_writer_new(&w, &spec), 0);
	ck_assert_int_eq(files_writer_feed(w, "9", 1), 0);
	ck_assert_int_eq(files_writer_feed(w, "87", 2), 0);
	ck_assert_int_eq(files_writer_commit(w), 0);
	files_writer_free(w);
	int got = 0;
	f = fopen(path, "r");
	ck_assert(f && fscanf(f, "%d", &got) == 1);
	(void)fclose(f);
	ck_assert_int_eq(got, 987);
	ck_assert_int_eq(write_n(path, 'x', 3), -EINVAL);
}
END_TEST

// B44: 507, the old content, nothing else left, and afterwards all works again.
START_TEST(full_disk)
{
	struct tree t;
	tk_init(&t, true);
	if (t.mounts) {
		tk_mkdir("m");
		tk_mount("m", 4 << 20);
		tk_fill("m/small", 'o', 5000);
		tk_fill("m/big", 'o', 2 << 20);
		ck_assert_int_eq(write_n("m/new", 'n', 8 << 20), -ENOSPC);
		ck_assert(!tk_exists("m/new"));
		ck_assert_int_eq(write_n("m/small", 'n', 8 << 20), -ENOSPC);
		ck_assert_int_eq(
			write_file(&(struct job){.path = "m/small", .c = 'n', .n = 8 << 20, .unsized = true}), -ENOSPC);
		ck_assert_int_eq(
			write_file(&(struct job){.path = "m/small", .c = 'n', .n = 8 << 20, .append = true}), -ENOSPC);
		ck_assert_int_eq(write_n("m/big", 'n', 3 << 20), -ENOSPC);
		tk_assert_fill("m/small", 'o', 5000);
		tk_assert_fill("m/big", 'o', 2 << 20);
		// Held in memory, then not enough room to put it: not even a part of it is written.
		tk_fill("m/fill", 'f', (2 << 20) - 500000);
		ck_assert_int_eq(write_n("m/small", 'n', FILES_INPLACE_MAX), -ENOSPC);
		tk_assert_fill("m/small", 'o', 5000);
		ck_assert_int_eq(unlink("m/fill"), 0);
		ck_assert_int_eq(tk_count("m"), 2);
		ck_assert_int_eq(write_n("m/small", 'n', FILES_INPLACE_MAX), 0);
		tk_assert_fill("m/small", 'n', FILES_INPLACE_MAX);
	}
	tk_release(&t);
}
END_TEST

// A file that is a mount of its own: nothing can be renamed over it.
START_TEST(mounted_file)
{
	struct tree t;
	tk_init(&t, true);
	if (t.mounts) {
		tk_file("real", "old");
		tk_file("f", "");
		ck_assert_int_eq(mount("real", "f", NULL, MS_BIND, NULL), 0);
		struct stat before = stat_of("f");
		ck_assert_int_eq(write_n("f", 's', 7), 0);
		ck_assert_int_eq(write_n("f", 'b', BIG), 0);
		tk_assert_fill("f", 'b', BIG);
		ck_assert_int_eq(write_n("f", 'c', FILES_INPLACE_MAX + 1), 0); // shorter than before
		tk_assert_fill("f", 'c', FILES_INPLACE_MAX + 1);
		ck_assert_uint_eq(stat_of("f").st_ino, before.st_ino);
		ck_assert_int_eq(umount("f"), 0);
		tk_assert_fill("real", 'c', FILES_INPLACE_MAX + 1);
		ck_assert_int_eq(tk_count("."), 2);
	}
	tk_release(&t);
}
END_TEST

static int write_run(void *arg)
{
	return write_file(arg);
}

static const struct job oom_jobs[] = {
	{.path = "new/dir/file", .c = 'n', .n = 10},
	{.path = "old", .c = 'n', .n = 100},
	{.path = "old", .c = 'n', .n = BIG},
	{.path = "old", .c = 'n', .n = BIG, .unsized = true},
	{.path = "old", .c = 'n', .n = 3, .append = true},
	{.path = "link", .c = 'n', .n = 100},
};

START_TEST(write_out_of_memory)
{
	struct tree t;
	struct job j = oom_jobs[_i];
	tk_init(&t, false);
	tk_file("old", "old");
	ck_assert_int_eq(symlink("old", "link"), 0);
	(void)setxattr("old", "user.test", "kept", 4, 0);
	int fds = tk_fds();
	OOM_LOOP(write_run, &j);
	ck_assert_int_eq(tk_fds(), fds);
	ck_assert_int_eq(tk_count("."), strchr(j.path, '/') ? 3 : 2);
	tk_release(&t);
}
END_TEST

// Blocks that are really there, then a hole.
static void make_large(const char *name, size_t blocks, off_t size)
{
	static const char some[1024 * 1024] = {'o'};
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	ck_assert_int_ge(fd, 0);
	for (size_t at = 0; at < blocks; at += sizeof some)
		ck_assert_int_eq(write(fd, some, sizeof some), sizeof some);
	ck_assert_int_eq(ftruncate(fd, size), 0);
	close(fd);
}

// What is left of a large old file goes in pieces; also when nobody waits for the last one, the new content stands alone.
START_TEST(large_file_is_cut_at_once_or_not_at_all)
{
	struct tree t;
	tk_init(&t, false);
	int fds = tk_fds();
	static const off_t lengths[] = {(off_t)70 << 20, (off_t)1 << 40};
	for (int i = 0; i < 4; i++) {
		struct files_writer *w;
		struct files_write spec = {.path = "large", .size = 3, .owner = {geteuid(), getegid()}};
		make_large("large", (size_t)70 << 20, lengths[i % 2]);
		ino_t was = stat_of("large").st_ino;
		ck_assert_int_eq(files_writer_new(&w, &spec), 0);
		ck_assert_int_eq(files_writer_feed(w, "new", 3), 0);
		ck_assert_int_eq(files_writer_commit(w), 1);
		int steps = 1;
		for (; i < 2 && files_writer_commit(w) == 1; steps++)
			continue;
		ck_assert_int_le(steps, 1025);
		files_writer_free(w);
		tk_assert_file("large", "new");
		ck_assert_uint_eq(stat_of("large").st_ino, was);
	}
	ck_assert_int_eq(tk_fds(), fds);
	tk_release(&t);
}
END_TEST

START_TEST(large_files_stay_open_once_they_are_gone)
{
	struct tree t;
	tk_init(&t, false);
	int fds = tk_fds();
	make_large("old", (size_t)40 << 20, (off_t)40 << 20);
	ck_assert_int_eq(write_n("old", 'n', BIG), 0);
	tk_assert_fill("old", 'n', BIG);
	make_large("old", (size_t)40 << 20, (off_t)40 << 20);
	tk_file("from", "from");
	ck_assert_int_eq(files_rename("from", "old"), 0);
	tk_assert_file("old", "from");
	ck_assert_int_eq(files_rename("from", "old"), -ENOENT);
	tk_assert_file("old", "from");
	make_large("old", (size_t)40 << 20, (off_t)40 << 20);
	ck_assert_int_eq(link("old", "other"), 0);
	ck_assert_int_eq(files_unlink(AT_FDCWD, "old"), 0);
	ck_assert_int_eq(files_unlink(AT_FDCWD, "old"), -ENOENT);
	ck_assert_int_eq(stat_of("other").st_size, (off_t)40 << 20); // which has another name
	ck_assert_int_eq(files_unlink(AT_FDCWD, "other"), 0);
	ck_assert_int_eq(files_unlink(AT_FDCWD, "."), -EISDIR);
	ck_assert_int_eq(tk_fds(), fds);
	tk_release(&t);
}
END_TEST

Suite *files_writer_suite(void)
{
	Suite *s = suite_create("files_writer");
	TCase *t = tcase_create("writing");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_test(t, new_files);
	tcase_add_loop_test(t, overwrite_replaces_the_file, 0, SIZES * SIZES);
	tcase_add_loop_test(t, cut_overwrite_changes_the_file, 0, SIZES * SIZES);
	tcase_add_loop_test(t, two_writers_do_not_mix, 0, (int)(sizeof pairs / sizeof *pairs));
	tcase_add_test(t, append_waits_for_a_writer);
	tcase_add_test(t, append_is_cut_off_with_what_others_appended);
	tcase_add_test(t, temporary_file_has_a_name_of_its_own);
	tcase_add_test(t, symlinks_are_replaced);
	tcase_add_test(t, targets_that_are_no_files);
	tcase_add_test(t, settings_of_proc);
	tcase_add_test(t, full_disk);
	tcase_add_test(t, mounted_file);
	tcase_add_test(t, large_file_is_cut_at_once_or_not_at_all);
	tcase_add_test(t, large_files_stay_open_once_they_are_gone);
	tcase_add_loop_test(t, write_out_of_memory, 0, (int)(sizeof oom_jobs / sizeof *oom_jobs));
	return s;
}
