// SPDX-License-Identifier: Apache-2.0
// What who owns a directory puts into celld's way there: nothing of it becomes theirs, goes, or is written to.
#include "daemon/core/files.h"
#include "daemon/core/journal.h"
#include "daemon/core/walk.h"
#include "daemon/envd/envd.h"
#include "daemon/io.h"
#include "suites.h"
#include "treekit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#define OTHER 64321

// --- directories just made ---

START_TEST(another_directory_in_the_place_of_a_new_one)
{
	struct tree t;
	tk_init(&t, false);
	int fds = tk_fds();
	tk_mkdir("new");
	tk_mkdir("secret");
	tk_file("secret/data", "x");
	int fd = files_open_made(AT_FDCWD, "new");
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(files_open_made(AT_FDCWD, "secret"), -EEXIST);
	ck_assert_int_eq(files_open_made(AT_FDCWD, "none"), -ENOENT);
	ck_assert_int_eq(symlink("new", "link"), 0);
	ck_assert_int_eq(files_open_made(AT_FDCWD, "link"), -ENOTDIR);
	ck_assert_int_eq(tk_fds(), fds);
	tk_release(&t);
}
END_TEST

static _Noreturn void swap_for_ever(pid_t parent)
{
	while (getppid() == parent) {
		(void)renameat2(AT_FDCWD, "proj", AT_FDCWD, "link", RENAME_EXCHANGE);
		(void)rmdir("proj/src");
		(void)rmdir("link/src");
	}
	_exit(0);
}

// Who owns what is above lets the way lead elsewhere now and then: nothing that is there is given away.
START_TEST(ways_that_change_while_a_directory_is_made)
{
	struct tree t;
	struct stat st;
	const struct files_owner other = {OTHER, OTHER};
	tk_init(&t, false);
	if (geteuid() == 0) {
		tk_mkdir("proj");
		tk_mkdir("victim");
		tk_mkdir("victim/src");
		ck_assert_int_eq(symlink("victim", "link"), 0);
		tk_file("victim/src/kept", "");
		pid_t self = getpid(), pid = fork();
		ck_assert_int_ge(pid, 0);
		if (pid == 0)
			swap_for_ever(self);
		int made = 0;
		for (int64_t until = io_mono_ns() + 500000000; io_mono_ns() < until;)
			made += files_mkdir(tk_path(&t, "proj/src"), false, &other) == 0;
		ck_assert(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid);
		ck_assert_int_gt(made, 0);
		ck_assert(stat("victim/src", &st) == 0 && st.st_uid == 0);
	}
	tk_release(&t);
}
END_TEST

// --- links ---

START_TEST(hard_link_of_a_link)
{
	struct tree t;
	tk_init(&t, false);
	tk_mkdir("kept");
	tk_mkdir("open");
	tk_mkdir("closed");
	ck_assert_int_eq(chmod("open", 0777), 0);
	ck_assert_int_eq(symlink("../kept", "closed/link"), 0);
	ck_assert_int_eq(symlink("../kept", "open/own"), 0);
	int fd = files_open_trusted(tk_path(&t, "open/own"));
	ck_assert_int_ge(fd, 0);
	close(fd);
	ck_assert_int_eq(linkat(AT_FDCWD, "closed/link", AT_FDCWD, "open/link", 0), 0);
	ck_assert_int_eq(files_open_trusted(tk_path(&t, "open/link")), -ELOOP);
	// Where only we can have put it, another name of it elsewhere is no matter.
	fd = files_open_trusted(tk_path(&t, "closed/link"));
	ck_assert_int_ge(fd, 0);
	close(fd);
	tk_release(&t);
}
END_TEST

// --- removals ---

START_TEST(removal_of_what_was_seen)
{
	struct tree t;
	struct stat st;
	struct walk_remove *r;
	tk_init(&t, false);
	tk_mkdir("a");
	tk_mkdir("a/x");
	tk_mkdir("b");
	tk_mkdir("b/x");
	tk_file("a/x/f", "");
	tk_file("b/x/kept", "");
	int fds = tk_fds(), at = open("a", O_PATH | O_DIRECTORY | O_CLOEXEC);
	ck_assert_int_ge(at, 0);
	ck_assert_int_eq(lstat("a/x", &st), 0);
	// The way leads elsewhere by now.
	ck_assert(rename("a", "c") == 0 && symlink("b", "a") == 0);
	ck_assert_int_eq(walk_remove_at(&r, at, tk_path(&t, "a/x"), &st), 0);
	while (walk_remove_step(r, INT64_MAX))
		continue;
	ck_assert_int_eq(walk_remove_error(r, NULL), 0);
	walk_remove_free(r);
	ck_assert(!tk_exists("c/x") && tk_exists("b/x/kept"));
	// Another directory has its name.
	ck_assert_int_eq(rename("b/x", "c/x"), 0);
	ck_assert_int_eq(walk_remove_at(&r, at, tk_path(&t, "a/x"), &st), -ESTALE);
	ck_assert_int_eq(walk_remove_at(&r, at, tk_path(&t, "a/x"), &(struct stat){0}), -ESTALE);
	ck_assert(tk_exists("c/x/kept"));
	close(at);
	ck_assert_int_eq(tk_fds(), fds);
	tk_release(&t);
}
END_TEST

START_TEST(file_that_was_read_goes_and_no_other)
{
	struct tree t;
	struct stat st;
	tk_init(&t, false);
	tk_mkdir("mine");
	tk_mkdir("victim");
	tk_file("mine/f", "x");
	tk_file("victim/f", "kept");
	int fds = tk_fds();
	ck_assert_int_eq(stat("mine/f", &st), 0);
	ck_assert(rename("mine", "gone") == 0 && symlink("victim", "mine") == 0);
	ck_assert_int_eq(files_unlink_known(tk_path(&t, "mine/f"), &st), -ESTALE);
	tk_assert_file("victim/f", "kept");
	ck_assert_int_eq(symlink("gone/f", "link"), 0);
	ck_assert_int_eq(files_unlink_known(tk_path(&t, "link"), &st), 0);
	ck_assert(!tk_exists("link") && tk_exists("gone/f"));
	ck_assert_int_eq(files_unlink_known(tk_path(&t, "gone/f"), &st), 0);
	ck_assert(!tk_exists("gone/f"));
	ck_assert_int_eq(files_unlink_known(tk_path(&t, "gone/f"), &st), -ENOENT);
	ck_assert_int_eq(tk_fds(), fds);
	tk_release(&t);
}
END_TEST

// --- uploads ---

START_TEST(file_with_a_second_name_keeps_its_owner)
{
	struct tree t;
	struct stat st;
	struct files_writer *w;
	static char text[3 << 20];
	tk_init(&t, false);
	for (int large = 0; large < 2 && geteuid() == 0; large++) {
		size_t n = large ? sizeof text : 4;
		memset(text, 'x', sizeof text);
		tk_file("precious", "old");
		ck_assert_int_eq(link("precious", "out"), 0);
		const struct files_write spec = {
			.path = tk_path(&t, "out"), .size = (int64_t)n, .owner = {OTHER, OTHER}, .give = true};
		ck_assert_int_eq(files_writer_new(&w, &spec), 0);
		ck_assert_int_eq(files_writer_feed(w, text, n), 0);
		while (files_writer_commit(w) == 1)
			continue;
		files_writer_free(w);
		tk_assert_fill("out", 'x', n);
		ck_assert(stat("precious", &st) == 0 && st.st_uid == 0);
		ck_assert(stat("out", &st) == 0 && st.st_uid == 0);
		ck_assert(unlink("precious") == 0 && unlink("out") == 0);
	}
	tk_release(&t);
}
END_TEST

// --- moves ---

static void end_move(struct files_move *m, int want)
{
	int rc;
	while ((rc = files_move_step(m, INT64_MAX)) > 0)
		continue;
	ck_assert_int_eq(rc, want);
	files_move_free(m);
}

START_TEST(move_whose_ways_change)
{
	struct tree t;
	struct files_move *m;
	tk_init(&t, true);
	if (t.mounts) {
		tk_mkdir("other");
		tk_mount("other", 1 << 20);
		tk_mkdir("mine");
		tk_mkdir("mine/lib");
		tk_file("mine/lib/f", "x");
		tk_mkdir("victim");
		tk_mkdir("victim/lib");
		tk_file("victim/lib/kept", "");
		char from[PATH_MAX];
		(void)snprintf(from, sizeof from, "%s", tk_path(&t, "mine/lib"));
		ck_assert_int_eq(files_move_new(&m, from, tk_path(&t, "other/lib")), 0);
		ck_assert_ptr_nonnull(m);
		ck_assert(rename("mine", "gone") == 0 && symlink("victim", "mine") == 0);
		end_move(m, 0);
		tk_assert_file("other/lib/f", "x");
		ck_assert(!tk_exists("gone/lib") && tk_exists("victim/lib/kept"));
	}
	tk_release(&t);
}
END_TEST

// The copy that is under way in the current directory.
static void find_copy(char name[64])
{
	FILE *f = popen("ls -A | grep '^.celld-'", "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_ptr_nonnull(fgets(name, 64, f));
	name[strcspn(name, "\n")] = '\0';
	pclose(f);
}

START_TEST(undone_move_removes_its_own_copy_alone)
{
	struct tree t;
	struct files_move *m;
	char name[64];
	tk_init(&t, true);
	if (t.mounts) {
		tk_mkdir("other");
		tk_mount("other", 1 << 20);
		tk_mkdir("other/lib");
		tk_file("other/lib/f", "x");
		tk_mkdir("secret");
		tk_file("secret/kept", "");
		char from[PATH_MAX];
		(void)snprintf(from, sizeof from, "%s", tk_path(&t, "other/lib"));
		for (int file = 0; file < 2; file++) {
			if (file)
				(void)snprintf(from, sizeof from, "%s", tk_path(&t, "other/lib/f"));
			ck_assert_int_eq(files_move_new(&m, from, tk_path(&t, "to")), 0);
			ck_assert_ptr_nonnull(m);
			find_copy(name);
			ck_assert(rename(name, file ? "stays" : "stays.d") == 0 && rename("secret", name) == 0);
			files_move_free(m);
			ck_assert_int_eq(rename(name, "secret"), 0);
			ck_assert(tk_exists("secret/kept") && tk_exists("other/lib/f"));
		}
	}
	tk_release(&t);
}
END_TEST

// --- a directory's default ---

// For files in DIR: everything to OTHER, as far as the mode's group bits go. False where there are no ACLs.
static bool set_default(const char *dir)
{
	static const struct {
		uint32_t version;
		struct {
			uint16_t tag, perm;
			uint32_t id;
		} entries[5];
	} acl = {2, {{1, 7, ~0u}, {2, 7, OTHER}, {4, 7, ~0u}, {0x10, 7, ~0u}, {0x20, 0, ~0u}}};
	return setxattr(dir, "system.posix_acl_default", &acl, sizeof acl, 0) == 0;
}

static bool has_acl(const char *path)
{
	return getxattr(path, "system.posix_acl_access", NULL, 0) >= 0 ||
	       getxattr(path, "system.posix_acl_default", NULL, 0) >= 0;
}

START_TEST(default_of_the_new_place_is_not_the_files)
{
	struct tree t;
	struct files_move *m;
	struct stat st;
	tk_init(&t, true);
	if (t.mounts) {
		char from[PATH_MAX];
		tk_mkdir("other");
		tk_mount("other", 1 << 20);
		tk_mkdir("other/d");
		tk_file("other/d/f", "x");
		ck_assert(chmod("other/d/f", 0640) == 0 && chmod("other/d", 0750) == 0);
		tk_mkdir("in");
		bool acls = set_default("in");
		(void)snprintf(from, sizeof from, "%s", tk_path(&t, "other/d"));
		ck_assert_int_eq(files_move_new(&m, from, tk_path(&t, "in/d")), 0);
		end_move(m, 0);
		ck_assert(!has_acl("in/d") && !has_acl("in/d/f"));
		ck_assert(stat("in/d/f", &st) == 0 && (st.st_mode & 07777) == 0640);
		ck_assert(acls == has_acl("in"));
	}
	tk_release(&t);
}
END_TEST

// --- journals ---

static void say_lost(struct buf *out, uint64_t lines)
{
	buf_printf(out, "%llu lost\n", (unsigned long long)lines);
}

static void say_failed(const char *dir, const char *name, int err)
{
	ck_abort_msg("%s/%s: %s", dir, name, strerror(-err));
}

START_TEST(file_of_another_in_a_journals_place)
{
	struct tree t;
	struct stat st;
	const struct journal_spec spec = {
		.dir = "a", .name = "log", .max = 1 << 20, .rotate = true, .lost = say_lost, .failed = say_failed};
	tk_init(&t, false);
	if (geteuid() == 0) {
		struct ev_loop *loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
		struct journals *set = journals_new(loop, t.top, OTHER, OTHER);
		tk_mkdir("a");
		tk_file("a/log", "root's\n");
		ck_assert_int_eq(link("a/log", "seen"), 0);
		int fd = open("seen", O_RDONLY | O_CLOEXEC);
		ck_assert(fd >= 0 && unlink("seen") == 0);
		struct journal *j = journal_new(set, &spec);
		journal_append(j, "line\n", 5);
		journals_flush(set);
		ck_assert(fstat(fd, &st) == 0 && st.st_size == 7);
		tk_assert_file("a/log", "line\n");
		ck_assert(stat("a/log", &st) == 0 && st.st_uid == OTHER);
		close(fd);
		journal_free(j);
		journals_free(set);
		ev_loop_destroy(loop);
	}
	tk_release(&t);
}
END_TEST

// --- the mark ---

START_TEST(mark_waits_for_nobody_and_writes_to_no_other_file)
{
	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
		mount("tmpfs", "/run", "tmpfs", 0, NULL) < 0)
		return;
	static const char mark[] = "/run/e2b/.E2B_SANDBOX";
	control_mark();
	ck_assert_int_eq(access(mark, R_OK), 0);
	ck_assert(unlink(mark) == 0 && mkfifo(mark, 0644) == 0);
	control_mark();
	ck_assert(unlink(mark) == 0);
	tk_file("/run/precious", "x");
	ck_assert_int_eq(link("/run/precious", mark), 0);
	control_mark();
	tk_assert_file("/run/precious", "x");
	ck_assert(access(mark, R_OK) == 0 && unlink(mark) == 0 && rmdir("/run/e2b") == 0);
	tk_mkdir("/run/elsewhere");
	ck_assert(symlink("elsewhere", "/run/e2b") == 0 && lchown("/run/e2b", OTHER, OTHER) == 0);
	control_mark();
	ck_assert_int_eq(tk_count("/run/elsewhere"), 0);
}
END_TEST

Suite *planted_suite(void)
{
	Suite *s = suite_create("planted");
	TCase *t = tcase_create("planted");
	suite_add_tcase(s, t);
	tcase_add_test(t, another_directory_in_the_place_of_a_new_one);
	tcase_add_test(t, ways_that_change_while_a_directory_is_made);
	tcase_add_test(t, hard_link_of_a_link);
	tcase_add_test(t, removal_of_what_was_seen);
	tcase_add_test(t, file_that_was_read_goes_and_no_other);
	tcase_add_test(t, file_with_a_second_name_keeps_its_owner);
	tcase_add_test(t, move_whose_ways_change);
	tcase_add_test(t, undone_move_removes_its_own_copy_alone);
	tcase_add_test(t, default_of_the_new_place_is_not_the_files);
	tcase_add_test(t, file_of_another_in_a_journals_place);
	tcase_add_test(t, mark_waits_for_nobody_and_writes_to_no_other_file);
	return s;
}
