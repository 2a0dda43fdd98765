// SPDX-License-Identifier: Apache-2.0
// Large files, which a child process removes at once: to free one takes a single call.
#include "asidekit.h"
#include "daemon/core/walk.h"
#include "suites.h"
#include "treekit.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mount.h>
#include <unistd.h>

static void make_file(const char *name, off_t size, bool sparse)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(sparse ? ftruncate(fd, size) : posix_fallocate(fd, 0, size), 0);
	close(fd);
}

// One call frees it, and would hold up the loop.
START_TEST(large_file_is_removed_aside)
{
	static const struct {
		off_t size;
		bool sparse, linked, at_once, inside, aside;
	} cases[] = {{.size = 16 << 20, .aside = true}, {.size = 16 << 20, .inside = true, .aside = true},
		{.size = 1 << 20}, {.size = 16 << 20, .sparse = true}, {.size = 16 << 20, .linked = true},
		{.size = 16 << 20, .at_once = true}, {.size = 16 << 20, .inside = true, .at_once = true}};
	struct tree t;
	tk_init(&t, false);
	for (size_t i = 0; ak_able() && i < sizeof cases / sizeof *cases; i++) {
		const char *name = cases[i].inside ? "top/f" : "top";
		int fds = tk_fds();
		if (cases[i].inside)
			tk_mkdir("top");
		make_file(name, cases[i].size, cases[i].sparse);
		if (cases[i].linked)
			ck_assert_int_eq(link(name, "other"), 0);
		struct walk_remove *r = ak_removal_of(tk_path(&t, "top"), 0);
		bool more = walk_remove_step(r, cases[i].at_once ? INT64_MAX : 0);
		for (int steps = 0; more && walk_remove_fd(r) < 0 && steps < 3; steps++)
			more = walk_remove_step(r, 0);
		ck_assert_msg((walk_remove_fd(r) >= 0) == cases[i].aside, "case %zu", i);
		ck_assert_int_eq(more, cases[i].aside);
		if (more)
			ak_await_end(walk_remove_fd(r));
		ck_assert(!walk_remove_step(r, 0));
		ck_assert_int_eq(walk_remove_error(r, NULL), 0);
		ck_assert_uint_eq(walk_remove_count(r), cases[i].inside ? 2 : 1);
		ck_assert(!tk_exists("top"));
		walk_remove_free(r);
		ck_assert_int_eq(tk_fds(), fds);
		ak_assert_childless();
		if (cases[i].linked)
			ck_assert_int_eq(unlink("other"), 0);
	}
	tk_release(&t);
}
END_TEST

START_TEST(child_with_a_large_file_is_killed)
{
	struct tree t;
	tk_init(&t, false);
	for (int done = 0; ak_able() && done < 2; done++) {
		make_file("top", 16 << 20, false);
		struct walk_remove *r = ak_removal_of(tk_path(&t, "top"), 0);
		ck_assert(walk_remove_step(r, 0));
		int fd = walk_remove_fd(r);
		ck_assert_int_ge(fd, 0);
		if (!done)
			ak_send_to(fd, SIGKILL);
		ak_await_end(fd);
		ck_assert(!walk_remove_step(r, 0));
		ck_assert_int_eq(walk_remove_error(r, NULL), 0);
		ck_assert_uint_eq(walk_remove_count(r), 1);
		ck_assert(!tk_exists("top"));
		walk_remove_free(r);
		ak_assert_childless();
	}
	tk_release(&t);
}
END_TEST

START_TEST(large_file_cannot_be_removed)
{
	struct tree t;
	const char *where;
	tk_init(&t, true);
	if (ak_able() && t.mounts) {
		tk_mkdir("m");
		tk_mount("m", 32 << 20);
		make_file("m/top", 16 << 20, false);
		ck_assert_int_eq(mount(NULL, "m", NULL, MS_REMOUNT | MS_RDONLY, NULL), 0);
		struct walk_remove *r = ak_removal_of(tk_path(&t, "m/top"), 0);
		ck_assert(walk_remove_step(r, 0));
		ak_await_end(walk_remove_fd(r));
		ck_assert(!walk_remove_step(r, 0));
		ck_assert_int_eq(walk_remove_error(r, &where), -EROFS);
		ck_assert_str_eq(where, tk_path(&t, "m/top"));
		ck_assert_uint_eq(walk_remove_count(r), 0);
		walk_remove_free(r);
		ak_assert_childless();
	}
	tk_release(&t);
}
END_TEST

Suite *walk_large_suite(void)
{
	Suite *s = suite_create("walk_large");
	TCase *t = tcase_create("large");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_test(t, large_file_is_removed_aside);
	tcase_add_test(t, child_with_a_large_file_is_killed);
	tcase_add_test(t, large_file_cannot_be_removed);
	return s;
}
