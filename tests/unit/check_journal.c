// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1
#include "daemon/core/journal.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static char base[64], root[96], outside[96];
static struct ev_loop *loop;
static struct journals *set;
static int failures, last_error;

static void say_lost(struct buf *out, uint64_t lines)
{
	buf_printf(out, "lost %d\n", (int)lines);
}

static void say_full(struct buf *out)
{
	BUF_LIT(out, "full\n");
}

static void say_failed(const char *dir, const char *name, int err)
{
	ck_assert(*dir && *name);
	failures++;
	last_error = err;
}

static const struct journal_spec plain = {
	.dir = "a/b",
	.name = "log",
	.max = 1 << 20,
	.lost = say_lost,
	.full = say_full,
	.failed = say_failed,
};

static void setup(void)
{
	snprintf(base, sizeof base, "/tmp/celld-journal-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(base));
	snprintf(root, sizeof root, "%s/root", base);
	snprintf(outside, sizeof outside, "%s/outside", base);
	ck_assert_int_eq(mkdir(root, 0755), 0);
	ck_assert_int_eq(mkdir(outside, 0755), 0);
	signal(SIGXFSZ, SIG_IGN);
	loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	set = journals_new(loop, root, geteuid(), getegid());
	ck_assert_ptr_nonnull(set);
	failures = 0;
}

static void teardown(void)
{
	char cmd[160];
	journals_free(set);
	ev_loop_destroy(loop);
	snprintf(cmd, sizeof cmd, "rm -rf %s", base);
	ck_assert_int_eq(system(cmd), 0);
}

static const char *below(const char *dir, const char *name)
{
	static char path[4][256];
	static int turn;
	char *p = path[turn++ % 4];
	snprintf(p, sizeof *path, "%s/%s", dir, name);
	return p;
}

static const char *content(const char *path)
{
	static char text[3 << 20];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	ck_assert_int_ge(n, 0);
	text[n] = '\0';
	return text;
}

static void put_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static void add(struct journal *j, const char *lines)
{
	journal_append(j, lines, strlen(lines));
}

// One turn of the loop, which has nothing else to do.
static void turn(void)
{
	ev_run(loop, EVRUN_NOWAIT);
}

START_TEST(lines_are_there_after_the_turn)
{
	struct stat st;
	struct journal *j = journal_new(set, &plain);
	turn();
	ck_assert_int_lt(access(below(root, "a"), F_OK), 0); // nothing before there are lines
	add(j, "one\n");
	add(j, "two\nthree\n");
	ck_assert_ptr_null(content(below(root, "a/b/log")));
	turn();
	ck_assert_str_eq(content(below(root, "a/b/log")), "one\ntwo\nthree\n");
	add(j, "four\n");
	journals_flush(set);
	ck_assert_str_eq(content(below(root, "a/b/log")), "one\ntwo\nthree\nfour\n");
	add(j, "five\n");
	journal_free(j);
	ck_assert_str_eq(content(below(root, "a/b/log")), "one\ntwo\nthree\nfour\nfive\n");
	ck_assert_int_eq(stat(below(root, "a/b/log"), &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0644 & ~022);
	ck_assert_int_eq(stat(below(root, "a/b"), &st), 0);
	ck_assert_int_eq(st.st_mode & 07777, 0755 & ~022);
	ck_assert_int_eq(failures, 0);
}
END_TEST

START_TEST(dropped_journal_writes_nothing)
{
	struct journal *j = journal_new(set, &plain);
	add(j, "one\n");
	journal_drop(j);
	journal_free(NULL);
	journal_drop(NULL);
	turn();
	ck_assert_ptr_null(content(below(root, "a/b/log")));
}
END_TEST

START_TEST(made_things_belong_to_the_user)
{
	if (geteuid() != 0)
		return;
	struct stat st;
	struct journals *other = journals_new(loop, root, 12345, 23456);
	struct journal *j = journal_new(other, &plain);
	add(j, "x\n");
	journal_free(j);
	static const char *const made[] = {"a", "a/b", "a/b/log"};
	for (size_t i = 0; i < sizeof made / sizeof *made; i++) {
		ck_assert_int_eq(stat(below(root, made[i]), &st), 0);
		ck_assert_int_eq(st.st_uid, 12345);
		ck_assert_int_eq(st.st_gid, 23456);
	}
	journals_free(other);
}
END_TEST

START_TEST(existing_directory_keeps_its_owner)
{
	struct stat st;
	struct journals *other = journals_new(loop, root, 12345, 23456);
	ck_assert_int_eq(mkdir(below(root, "a"), 0700), 0);
	struct journal *j = journal_new(other, &plain);
	if (geteuid() == 0)
		add(j, "x\n");
	journal_free(j);
	ck_assert_int_eq(stat(below(root, "a"), &st), 0);
	ck_assert_int_eq(st.st_uid, geteuid());
	ck_assert_int_eq(st.st_mode & 07777, 0700);
	journals_free(other);
}
END_TEST

START_TEST(more_than_waits_is_written_at_once)
{
	char line[1001];
	memset(line, 'x', 1000);
	line[999] = '\n';
	line[1000] = '\0';
	struct journal *j = journal_new(set, &plain);
	for (int i = 0; i < 200; i++)
		add(j, line);
	// Without a turn: all but what still fits into the buffer.
	size_t n = strlen(content(below(root, "a/b/log")));
	ck_assert_uint_ge(n, 200 * 1000 - 64 * 1024);
	ck_assert_uint_eq(n % 1000, 0);
	journals_flush(set);
	ck_assert_uint_eq(strlen(content(below(root, "a/b/log"))), 200 * 1000);
	journal_free(j);
}
END_TEST

START_TEST(append_beyond_the_bound_is_lost_alone)
{
	size_t n = (1 << 20) + 2;
	char *big = malloc(n + 1);
	memset(big, 'y', n);
	big[n - 1] = '\n';
	big[n] = '\0';
	struct journal *j = journal_new(set, &plain);
	add(j, "one\n");
	add(j, big);
	add(j, "two\n");
	journal_free(j);
	ck_assert_str_eq(content(below(root, "a/b/log")), "one\nlost 1\ntwo\n");
	free(big);
}
END_TEST

START_TEST(full_file_is_rotated)
{
	struct stat st;
	struct journal_spec spec = plain;
	spec.max = 100;
	spec.rotate = true;
	struct journal *j = journal_new(set, &spec);
	for (int i = 0; i < 100; i++) {
		char line[32];
		snprintf(line, sizeof line, "line %02d\n", i);
		add(j, line);
		journals_flush(set);
		ck_assert_int_eq(stat(below(root, "a/b/log"), &st), 0);
		ck_assert_int_le(st.st_size, 100);
	}
	// 12 lines of 8 bytes fit.
	ck_assert_str_eq(content(below(root, "a/b/log")), "line 96\nline 97\nline 98\nline 99\n");
	const char *old = content(below(root, "a/b/log.1"));
	ck_assert_uint_eq(strlen(old), 96);
	ck_assert_int_eq(strncmp(old, "line 84\n", 8), 0);
	ck_assert(!journal_full(j));
	journal_free(j);
}
END_TEST

START_TEST(directory_in_the_old_generations_place)
{
	struct journal_spec spec = plain;
	spec.max = 10;
	spec.rotate = true;
	struct journal *j = journal_new(set, &spec);
	add(j, "12345678\n");
	journals_flush(set);
	ck_assert_int_eq(mkdir(below(root, "a/b/log.1"), 0755), 0);
	add(j, "abcdefgh\n");
	journal_free(j);
	ck_assert_str_eq(content(below(root, "a/b/log")), "abcdefgh\n");
	ck_assert_int_eq(failures, 0);
}
END_TEST

START_TEST(full_file_says_so_once)
{
	struct journal_spec spec = plain;
	spec.max = 12;
	struct journal *j = journal_new(set, &spec);
	add(j, "12345\n");
	journals_flush(set);
	ck_assert(!journal_full(j));
	add(j, "6789012345\n");
	journals_flush(set);
	ck_assert(journal_full(j));
	add(j, "more\n");
	journal_free(j);
	j = journal_new(set, &spec);
	add(j, "again\n");
	journals_flush(set);
	ck_assert(journal_full(j));
	journal_free(j);
	ck_assert_str_eq(content(below(root, "a/b/log")), "12345\n6789012345\nfull\n");
	ck_assert_int_eq(failures, 0);
}
END_TEST

START_TEST(full_disk_loses_whole_lines_and_says_so)
{
	struct rlimit was, small = {.rlim_cur = 10, .rlim_max = RLIM_INFINITY};
	struct journal *j = journal_new(set, &plain);
	ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &was), 0);
	small.rlim_max = was.rlim_max;
	add(j, "12345\n");
	journals_flush(set);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &small), 0);
	for (int i = 0; i < 5; i++) {
		add(j, "abc\ndef\n");
		turn();
		// Nothing of a line that does not fit whole stays.
		ck_assert_str_eq(content(below(root, "a/b/log")), "12345\n");
	}
	ck_assert_int_eq(failures, 1);
	ck_assert_int_eq(last_error, -EFBIG);
	ck_assert_uint_eq(journal_lost(j), 10);
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &was), 0);
	add(j, "now\n");
	turn();
	ck_assert_uint_eq(journal_lost(j), 0);
	ck_assert_str_eq(content(below(root, "a/b/log")), "12345\nlost 10\nnow\n");
	ck_assert_int_eq(failures, 1);
	journal_free(j);
}
END_TEST

START_TEST(held_set_writes_nothing)
{
	struct journal *j = journal_new(set, &plain);
	add(j, "before\n");
	journals_hold(set, true);
	add(j, "meanwhile\n");
	turn();
	ck_assert_int_lt(access(below(root, "a"), F_OK), 0);
	journals_hold(set, false);
	add(j, "after\n");
	turn();
	ck_assert_str_eq(content(below(root, "a/b/log")), "after\n");
	journal_free(j);
}
END_TEST

START_TEST(removed_tree_is_made_again)
{
	struct journal *j = journal_new(set, &plain);
	add(j, "one\n");
	journals_flush(set);
	ck_assert_int_eq(unlink(below(root, "a/b/log")), 0);
	ck_assert_int_eq(rmdir(below(root, "a/b")), 0);
	ck_assert_int_eq(rmdir(below(root, "a")), 0);
	add(j, "two\n");
	journals_flush(set);
	ck_assert_str_eq(content(below(root, "a/b/log")), "two\n");
	journal_free(j);
}
END_TEST

// --- what users may plant ---

static void plant(const char *kind, const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	if (strcmp(kind, "symlink") == 0) {
		ck_assert_int_eq(symlink(below(outside, "file"), path), 0);
	} else if (strcmp(kind, "dangling") == 0) {
		ck_assert_int_eq(symlink(below(outside, "none"), path), 0);
	} else if (strcmp(kind, "dirlink") == 0) {
		ck_assert_int_eq(symlink(outside, path), 0);
	} else if (strcmp(kind, "magic") == 0) {
		ck_assert_int_eq(symlink("/proc/self/cwd", path), 0);
	} else if (strcmp(kind, "hardlink") == 0) {
		ck_assert_int_eq(link(below(outside, "file"), path), 0);
	} else if (strcmp(kind, "fifo") == 0) {
		ck_assert_int_eq(mkfifo(path, 0666), 0);
	} else if (strcmp(kind, "socket") == 0) {
		int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		snprintf(a.sun_path, sizeof a.sun_path, "%s", path);
		ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
		close(fd);
	} else if (strcmp(kind, "dir") == 0) {
		ck_assert_int_eq(mkdir(path, 0777), 0);
	} else {
		put_file(path, "a file\n");
	}
}

static void assert_outside_untouched(void)
{
	char cmd[200];
	ck_assert_str_eq(content(below(outside, "file")), "secret\n");
	snprintf(cmd, sizeof cmd, "test \"$(ls -A %s)\" = file", outside);
	ck_assert_int_eq(system(cmd), 0);
}

static const char *const file_kinds[] = {
	"symlink", "dangling", "dirlink", "magic", "hardlink", "fifo", "socket", "dir"};
static const char *const dir_kinds[] = {
	"symlink", "dangling", "dirlink", "magic", "hardlink", "fifo", "socket", "file"};

START_TEST(planted_file_is_replaced)
{
	const char *kind = file_kinds[_i];
	bool dir = strcmp(kind, "dir") == 0;
	put_file(below(outside, "file"), "secret\n");
	ck_assert_int_eq(mkdir(below(root, "a"), 0755), 0);
	ck_assert_int_eq(mkdir(below(root, "a/b"), 0755), 0);
	plant(kind, below(root, "a/b/log"));
	struct journal *j = journal_new(set, &plain);
	add(j, "line\n");
	turn();
	add(j, "line\n");
	turn();
	ck_assert_int_eq(failures, dir);
	ck_assert_uint_eq(journal_lost(j), dir ? 2 : 0);
	if (!dir) {
		struct stat st;
		ck_assert_int_eq(lstat(below(root, "a/b/log"), &st), 0);
		ck_assert(S_ISREG(st.st_mode));
		ck_assert_str_eq(content(below(root, "a/b/log")), "line\nline\n");
	}
	journal_free(j);
	assert_outside_untouched();
}
END_TEST

// A FIFO that somebody reads takes no line either.
START_TEST(planted_fifo_with_a_reader)
{
	char byte;
	ck_assert_int_eq(mkdir(below(root, "a"), 0755), 0);
	ck_assert_int_eq(mkdir(below(root, "a/b"), 0755), 0);
	plant("fifo", below(root, "a/b/log"));
	int fd = open(below(root, "a/b/log"), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	struct journal *j = journal_new(set, &plain);
	add(j, "line\n");
	journal_free(j);
	ck_assert_str_eq(content(below(root, "a/b/log")), "line\n");
	ck_assert_int_le(read(fd, &byte, 1), 0);
	close(fd);
}
END_TEST

START_TEST(planted_directory_is_not_followed)
{
	const char *kind = dir_kinds[_i % 8];
	const char *where = _i < 8 ? "a" : "a/b";
	put_file(below(outside, "file"), "secret\n");
	if (_i >= 8)
		ck_assert_int_eq(mkdir(below(root, "a"), 0755), 0);
	plant(kind, below(root, where));
	struct journal *j = journal_new(set, &plain);
	add(j, "line\n");
	turn();
	ck_assert_int_eq(failures, 1);
	ck_assert(last_error == -ELOOP || last_error == -ENOTDIR);
	ck_assert_int_lt(journals_dir(set, "a/b", false), 0);
	journal_drop(j);
	assert_outside_untouched();
}
END_TEST

START_TEST(planted_file_is_not_read)
{
	int64_t size;
	const char *kind = file_kinds[_i];
	put_file(below(outside, "file"), "secret\n");
	plant(kind, below(root, "log"));
	int dirfd = journals_dir(set, "", false);
	ck_assert_int_ge(dirfd, 0);
	ck_assert_int_eq(journals_read(dirfd, "log", &size), -ELOOP);
	ck_assert_int_eq(journals_read(dirfd, "none", &size), -ENOENT);
	ck_assert_int_lt(journals_read(dirfd, "../outside/file", &size), 0);
	ck_assert_int_lt(journals_read(dirfd, "..", &size), 0);
	close(dirfd);
}
END_TEST

START_TEST(put_is_whole_or_not_at_all)
{
	int64_t size;
	int dirfd = journals_dir(set, "a", true);
	put_file(below(outside, "file"), "secret\n");
	ck_assert_int_eq(symlink(below(outside, "file"), below(root, "a/.code")), 0);
	ck_assert_int_eq(symlink(below(outside, "file"), below(root, "a/code")), 0);
	ck_assert_int_eq(journals_put(set, dirfd, "code", "4\n"), 0);
	ck_assert_str_eq(content(below(root, "a/code")), "4\n");
	ck_assert_int_lt(access(below(root, "a/.code"), F_OK), 0);
	int fd = journals_read(dirfd, "code", &size);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(size, 2);
	close(fd);
	ck_assert_int_eq(mkdir(below(root, "a/dir"), 0755), 0);
	ck_assert_int_lt(journals_put(set, dirfd, "dir", "4\n"), 0);
	ck_assert_int_lt(access(below(root, "a/.dir"), F_OK), 0);
	char longest[300];
	memset(longest, 'n', sizeof longest - 1);
	longest[sizeof longest - 1] = '\0';
	ck_assert_int_eq(journals_put(set, dirfd, longest, "4\n"), -ENAMETOOLONG);
	ck_assert_int_eq(journals_dir(set, longest, true), -ENAMETOOLONG);
	close(dirfd);
	assert_outside_untouched();
}
END_TEST

// Kernels and filters without openat2: ERR is what they say.
static void refuse_openat2(int err)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)err),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog prog = {.len = sizeof code / sizeof *code, .filter = code};
	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog), 0);
}

START_TEST(without_openat2_it_is_as_safe)
{
	const char *ck_fork = getenv("CK_FORK");
	if (ck_fork && strcmp(ck_fork, "no") == 0)
		return; // the filter would stay for the other tests
	put_file(below(outside, "file"), "secret\n");
	refuse_openat2(_i ? EPERM : ENOSYS);
	ck_assert_int_eq(mkdir(below(root, "c"), 0755), 0);
	plant("dirlink", below(root, "a"));
	plant("symlink", below(root, "c/log"));
	struct journal *j = journal_new(set, &plain);
	add(j, "line\n");
	turn();
	ck_assert_int_eq(failures, 1);
	journal_drop(j);
	struct journal_spec spec = plain;
	spec.dir = "c";
	j = journal_new(set, &spec);
	add(j, "line\n");
	journal_free(j);
	ck_assert_str_eq(content(below(root, "c/log")), "line\n");
	ck_assert_int_lt(journals_dir(set, "../outside", false), 0);
	assert_outside_untouched();
}
END_TEST

// --- memory ---

static int use(void *arg)
{
	(void)arg;
	int rc = -ENOMEM;
	struct journal_spec spec = plain;
	struct journals *s = journals_new(loop, root, geteuid(), getegid());
	struct journal *j = s ? journal_new(s, &spec) : NULL;
	if (j) {
		journal_append(j, "one\n", 4);
		journals_flush(s);
		journal_append(j, "two\n", 4);
		rc = journal_lost(j) ? -ENOMEM : 0;
	}
	journal_free(j);
	journals_free(s);
	return rc;
}

START_TEST(out_of_memory)
{
	ck_assert_int_eq(use(NULL), 0); // the loop keeps what it allocates for its watchers
	OOM_LOOP(use, NULL);
	ck_assert_int_eq(failures, 0);
}
END_TEST

Suite *journal_suite(void)
{
	Suite *s = suite_create("journal");
	TCase *tc = tcase_create("lines");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, lines_are_there_after_the_turn);
	tcase_add_test(tc, dropped_journal_writes_nothing);
	tcase_add_test(tc, made_things_belong_to_the_user);
	tcase_add_test(tc, existing_directory_keeps_its_owner);
	tcase_add_test(tc, more_than_waits_is_written_at_once);
	tcase_add_test(tc, append_beyond_the_bound_is_lost_alone);
	tcase_add_test(tc, full_file_is_rotated);
	tcase_add_test(tc, directory_in_the_old_generations_place);
	tcase_add_test(tc, full_file_says_so_once);
	tcase_add_test(tc, full_disk_loses_whole_lines_and_says_so);
	tcase_add_test(tc, held_set_writes_nothing);
	tcase_add_test(tc, removed_tree_is_made_again);
	tcase_add_test(tc, out_of_memory);
	suite_add_tcase(s, tc);
	tc = tcase_create("planted");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, planted_file_is_replaced, 0, 8);
	tcase_add_test(tc, planted_fifo_with_a_reader);
	tcase_add_loop_test(tc, planted_directory_is_not_followed, 0, 16);
	tcase_add_loop_test(tc, planted_file_is_not_read, 0, 8);
	tcase_add_test(tc, put_is_whole_or_not_at_all);
	tcase_add_loop_test(tc, without_openat2_it_is_as_safe, 0, 2);
	suite_add_tcase(s, tc);
	return s;
}
