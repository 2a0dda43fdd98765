// SPDX-License-Identifier: Apache-2.0
// Ways to a directory that only root and the daemon's own user can have laid.
#include "daemon/core/files.h"
#include "daemon/io.h"
#include "suites.h"
#include "treekit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define OTHER 64321

// 0 if the way PATH leads to the directory WANT, else what it says.
static int leads_to(const char *path, const char *want)
{
	struct stat a, b;
	int fds = tk_fds(), fd = files_open_trusted(path);
	if (fd >= 0) {
		ck_assert_int_eq(fstat(fd, &a), 0);
		ck_assert_int_eq(stat(want, &b), 0);
		ck_assert(a.st_dev == b.st_dev && a.st_ino == b.st_ino);
		ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
		close(fd);
	}
	ck_assert_int_eq(tk_fds(), fds);
	return fd < 0 ? fd : 0;
}

static void link_of(const char *to, const char *name, uid_t owner)
{
	ck_assert_int_eq(symlink(to, name), 0);
	if (owner)
		ck_assert_int_eq(lchown(name, owner, owner), 0);
}

static void refuse_openat2(void)
{
	scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
	ck_assert_ptr_nonnull(filter);
	ck_assert_int_eq(seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(openat2), 0), 0);
	ck_assert_int_eq(seccomp_load(filter), 0);
	seccomp_release(filter);
}

START_TEST(ways)
{
	struct tree t;
	char name[PATH_MAX];
	tk_init(&t, false);
	if (_i)
		refuse_openat2();
	tk_mkdir("a");
	tk_mkdir("a/b");
	tk_file("f", "");
	(void)snprintf(name, sizeof name, "%s", tk_path(&t, "a"));
	link_of(name, "whole", 0);
	link_of("a/../a//b/.", "part", 0);
	link_of("whole", "twice", 0);
	link_of("gone", "dangling", 0);
	link_of("round", "round", 0);
	static const struct {
		const char *way, *want;
		int rc;
	} cases[] = {{"a", "a", 0}, {"a/b", "a/b", 0}, {"a//b/", "a/b", 0}, {"a/./b/..", "a", 0}, {"whole", "a", 0},
		{"part", "a/b", 0}, {"twice/b", "a/b", 0}, {"f", NULL, -ENOTDIR}, {"f/x", NULL, -ENOTDIR},
		{"none", NULL, -ENOENT}, {"dangling", NULL, -ENOENT}, {"round", NULL, -ELOOP}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		ck_assert_msg(leads_to(tk_path(&t, cases[i].way), cases[i].want) == cases[i].rc, "%s", cases[i].way);
	ck_assert_int_eq(leads_to("/", "/"), 0);
	memset(name, 'n', 300);
	name[0] = '/';
	name[300] = '\0';
	ck_assert_int_eq(leads_to(name, NULL), -ENAMETOOLONG);
	for (size_t i = 0; i < sizeof name; i++)
		name[i] = i % 2 ? 'n' : '/';
	name[sizeof name - 1] = '\0';
	ck_assert_int_eq(leads_to(name, NULL), -ENOENT);
	tk_release(&t);
}
END_TEST

START_TEST(links_of_others)
{
	struct tree t;
	tk_init(&t, false);
	if (geteuid() == 0) {
		tk_mkdir("a");
		tk_mkdir("a/b");
		link_of("a", "theirs", OTHER);
		link_of("theirs/b", "over", 0);
		link_of("../theirs", "a/down", 0);
		ck_assert_int_eq(leads_to(tk_path(&t, "theirs"), NULL), -ELOOP);
		ck_assert_int_eq(leads_to(tk_path(&t, "theirs/b"), NULL), -ELOOP);
		ck_assert_int_eq(leads_to(tk_path(&t, "over"), NULL), -ELOOP);
		ck_assert_int_eq(leads_to(tk_path(&t, "a/down/b"), NULL), -ELOOP);
		// A directory of theirs is another matter, and so is a link that is ours.
		ck_assert_int_eq(lchown("a", OTHER, OTHER), 0);
		ck_assert_int_eq(leads_to(tk_path(&t, "a/b"), "a/b"), 0);
		ck_assert_int_eq(lchown("theirs", 0, 0), 0);
		ck_assert_int_eq(leads_to(tk_path(&t, "a/down/b"), "a/b"), 0);
		ck_assert_int_eq(lchown("theirs", OTHER, OTHER), 0);
		ck_assert_int_eq(chmod(".", 0755), 0);
		ck_assert_int_eq(seteuid(OTHER), 0);
		ck_assert_int_eq(leads_to(tk_path(&t, "theirs"), "a"), 0);
		ck_assert_int_eq(seteuid(0), 0);
	}
	tk_release(&t);
}
END_TEST

START_TEST(made_in_a_trusted_place)
{
	struct tree t;
	struct stat st;
	tk_init(&t, false);
	uid_t user = geteuid() == 0 ? OTHER : geteuid();
	const struct files_owner owner = {user, geteuid() == 0 ? OTHER : getegid()};
	tk_mkdir("a");
	ck_assert_int_eq(files_make_trusted(tk_path(&t, "a/new/"), &owner), 0);
	ck_assert_int_eq(lstat("a/new", &st), 0);
	ck_assert(S_ISDIR(st.st_mode) && st.st_uid == user);
	ck_assert_int_eq(files_make_trusted(tk_path(&t, "a/new"), &owner), -EEXIST);
	ck_assert_int_eq(files_make_trusted(tk_path(&t, "none/new"), &owner), -ENOENT);
	link_of("nowhere", "a/link", 0);
	ck_assert_int_eq(files_make_trusted(tk_path(&t, "a/link"), &owner), -EEXIST);
	ck_assert_int_eq(files_make_trusted("/", &owner), -EINVAL);
	ck_assert_int_eq(files_make_trusted("x", &owner), -EINVAL);
	if (geteuid() == 0) {
		link_of("a", "theirs", OTHER);
		ck_assert_int_eq(files_make_trusted(tk_path(&t, "theirs/new2"), &owner), -ELOOP);
		ck_assert(!tk_exists("a/new2"));
	}
	tk_release(&t);
}
END_TEST

Suite *files_trust_suite(void)
{
	Suite *s = suite_create("files_trust");
	TCase *t = tcase_create("trust");
	suite_add_tcase(s, t);
	tcase_add_loop_test(t, ways, 0, 2);
	tcase_add_test(t, links_of_others);
	tcase_add_test(t, made_in_a_trusted_place);
	return s;
}
