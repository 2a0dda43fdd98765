// SPDX-License-Identifier: Apache-2.0
// When a journal's file stays open between two lines, and when it must not.
#define _GNU_SOURCE 1
#include "daemon/core/journal.h"
#include "proto/buf.h"
#include "suites.h"

#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <unistd.h>

static char root[64];
static struct ev_loop *loop;
static struct journals *set;

static void say_lost(struct buf *out, uint64_t lines)
{
	buf_printf(out, "%llu lost\n", (unsigned long long)lines);
}

static void say_failed(const char *dir, const char *name, int err)
{
	ck_abort_msg("%s/%s: %s", dir, name, strerror(-err));
}

static const struct journal_spec spec = {
	.dir = "a",
	.name = "log",
	.max = 1 << 20,
	.rotate = true,
	.lost = say_lost,
	.failed = say_failed,
};

static void setup(void)
{
	snprintf(root, sizeof root, "/tmp/celld-journal-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(root));
	loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	set = journals_new(loop, root, geteuid(), getegid());
	ck_assert_ptr_nonnull(set);
}

static void teardown(void)
{
	char cmd[80];
	journals_free(set);
	ev_loop_destroy(loop);
	snprintf(cmd, sizeof cmd, "rm -rf %s", root);
	ck_assert_int_eq(system(cmd), 0);
}

static void add(struct journal *j)
{
	journal_append(j, "line\n", 5);
	journals_flush(set);
}

static void assert_lines(size_t lines)
{
	char path[80], text[256];
	snprintf(path, sizeof path, "%s/a/log", root);
	FILE *f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	size_t n = fread(text, 1, sizeof text, f);
	fclose(f);
	ck_assert_uint_eq(n, lines * 5);
}

// How many descriptors are of the file.
static int open_files(void)
{
	char text[256];
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	ck_assert_ptr_nonnull(d);
	for (const struct dirent *e; (e = readdir(d));) {
		ssize_t len = readlinkat(dirfd(d), e->d_name, text, sizeof text - 1);
		text[len < 0 ? 0 : len] = '\0';
		n += strncmp(text, root, strlen(root)) == 0;
	}
	closedir(d);
	return n;
}

// A reset is about to remove it, which NFS and many a FUSE do not do while it is open.
START_TEST(held_set_has_no_open_file)
{
	struct journal *j = journal_new(set, &spec);
	for (int i = 0; i < 2; i++) {
		add(j);
		ck_assert_int_le(open_files(), 1);
		journals_hold(set, true);
		ck_assert_int_eq(open_files(), 0);
		journals_hold(set, false);
	}
	add(j);
	assert_lines(3);
	journal_free(j);
	ck_assert_int_eq(open_files(), 0);
}
END_TEST

// Whoever clears up may meet it at any time: it stays open only where that does no harm.
START_TEST(file_stays_open_on_known_file_systems)
{
	static const struct {
		const char *type;
		int open;
	} kinds[] = {{"tmpfs", 1}, {"ramfs", 0}};
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return; // not root
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		ck_assert_int_eq(mount(kinds[i].type, root, kinds[i].type, 0, NULL), 0);
		struct journal *j = journal_new(set, &spec);
		for (size_t lines = 1; lines <= 2; lines++) {
			add(j);
			ck_assert_int_eq(open_files(), kinds[i].open);
			assert_lines(lines);
		}
		journal_free(j);
		ck_assert_int_eq(umount2(root, 0), 0);
	}
}
END_TEST

Suite *journal_open_suite(void)
{
	Suite *s = suite_create("journal_open");
	TCase *tc = tcase_create("open");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, held_set_has_no_open_file);
	tcase_add_test(tc, file_stays_open_on_known_file_systems);
	suite_add_tcase(s, tc);
	return s;
}
