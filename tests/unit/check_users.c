// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1
#include "daemon/core/users.h"
#include "oom.h"
#include "suites.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static char dir[] = "/tmp/celld-users-XXXXXX", passwd[64], group[64];

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(passwd, sizeof(passwd), "%s/passwd", dir);
	snprintf(group, sizeof(group), "%s/group", dir);
}

static void teardown(void)
{
	unlink(passwd);
	unlink(group);
	rmdir(passwd);
	rmdir(dir);
}

// Sets a file's time of change, long enough ago to be trusted.
static void age(const char *path, time_t seconds)
{
	struct timespec at[2] = {{.tv_sec = time(NULL) - seconds}, {.tv_sec = time(NULL) - seconds}};
	ck_assert_int_eq(utimensat(AT_FDCWD, path, at, 0), 0);
}

// In place: the same inode.
static void put(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	age(path, 1000);
}

static const char passwd_text[] = "root:x:0:0:root:/root:/bin/bash\n"
				  "# a comment\n"
				  "\n"
				  "broken line\n"
				  "+nis::::::\n"
				  "user:x:1000:1001:,,,:/home/user:/bin/zsh\n"
				  "user:x:1500:1500::/second:/bin/second\n"
				  "alias:x:1000:1001::/home/alias:/bin/sh\n"
				  "1234:x:4321:4321::/home/digits:/bin/sh\n"
				  "bare:x:2000:2000:::\n"
				  "last:x:4294967294:7::/l:/bin/l";
static const char group_text[] = "root:x:0:\n"
				 "sudo:x:27:user,other\n"
				 "user:x:1001:user\n"
				 "docker:x:999:other,user,user\n"
				 "near:x:50:use,userx,us\n"
				 "sudo:x:27:user\n"
				 "wheel:x:10:root\n";

static struct users *standard(void)
{
	put(passwd, passwd_text);
	put(group, group_text);
	struct users *u = users_new(passwd, group);
	ck_assert_ptr_nonnull(u);
	return u;
}

static const struct {
	const char *key;
	unsigned uid, gid;
	const char *name, *home, *shell;
	size_t group_count;
	gid_t groups[4];
} found[] = {
	{"root", 0, 0, "root", "/root", "/bin/bash", 2, {0, 10}},
	{"0", 0, 0, "root", "/root", "/bin/bash", 2, {0, 10}},
	{"user", 1000, 1001, "user", "/home/user", "/bin/zsh", 3, {1001, 27, 999}},
	{"1000", 1000, 1001, "user", "/home/user", "/bin/zsh", 3, {1001, 27, 999}},
	{"alias", 1000, 1001, "alias", "/home/alias", "/bin/sh", 1, {1001}},
	{"1500", 1500, 1500, "user", "/second", "/bin/second", 4, {1500, 27, 999, 1001}},
	{"1234", 4321, 4321, "1234", "/home/digits", "/bin/sh", 1, {4321}},
	{"bare", 2000, 2000, "bare", "/", "/bin/sh", 1, {2000}},
	{"last", 4294967294, 7, "last", "/l", "/bin/l", 1, {7}},
	{"4294967294", 4294967294, 7, "last", "/l", "/bin/l", 1, {7}},
};

START_TEST(found_by_name_and_by_uid)
{
	struct users *u = standard();
	struct user user;
	ck_assert_int_eq(users_find(u, found[_i].key, &user), 0);
	ck_assert_uint_eq(user.uid, found[_i].uid);
	ck_assert_uint_eq(user.gid, found[_i].gid);
	ck_assert_str_eq(user.name, found[_i].name);
	ck_assert_str_eq(user.home, found[_i].home);
	ck_assert_str_eq(user.shell, found[_i].shell);
	ck_assert_uint_eq(user.group_count, found[_i].group_count);
	for (size_t i = 0; i < user.group_count; i++)
		ck_assert_uint_eq(user.groups[i], found[_i].groups[i]);
	user_release(&user);
	user_release(&user); // zeroed by then
	users_free(u);
}
END_TEST

static const char *const missing[] = {"", "nobody", "use", "users", "1", "-1", "+0", " 0", "0x0", "4294967295",
	"4294967296", "18446744073709551616", "+nis", "broken line", "root:x"};

START_TEST(who_is_not_there_is_enoent)
{
	struct users *u = standard();
	struct user user;
	ck_assert_int_eq(users_find(u, missing[_i], &user), -ENOENT);
	ck_assert_ptr_null(user.name);
	users_free(u);
}
END_TEST

START_TEST(ids_have_names)
{
	struct users *u = standard();
	ck_assert_str_eq(users_uid_name(u, 1000), "user");
	ck_assert_str_eq(users_uid_name(u, 1500), "user");
	ck_assert_ptr_null(users_uid_name(u, 1));
	ck_assert_ptr_null(users_uid_name(u, (uid_t)-1));
	ck_assert_str_eq(users_gid_name(u, 27), "sudo");
	ck_assert_ptr_null(users_gid_name(u, 1000));
	users_free(u);
}
END_TEST

START_TEST(root_needs_no_file)
{
	struct users *u = users_new(passwd, group);
	struct user user;
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(users_find(u, i ? "0" : "root", &user), 0);
		ck_assert_uint_eq(user.uid, 0);
		ck_assert_uint_eq(user.gid, 0);
		ck_assert_str_eq(user.home, "/root");
		ck_assert_str_eq(user.shell, "/bin/sh");
		ck_assert_uint_eq(user.group_count, 1);
		ck_assert_uint_eq(user.groups[0], 0);
		user_release(&user);
	}
	ck_assert_int_eq(users_find(u, "user", &user), -ENOENT);
	ck_assert_str_eq(users_uid_name(u, 0), "root");
	ck_assert_str_eq(users_gid_name(u, 0), "root");
	ck_assert_ptr_null(users_uid_name(u, 1000));
	put(passwd, passwd_text); // and now there is one
	ck_assert_int_eq(users_find(u, "user", &user), 0);
	user_release(&user);
	users_free(u);
}
END_TEST

static void rename_over(const char *path, const char *text)
{
	char fresh[80];
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	put(fresh, text);
	ck_assert_int_eq(rename(fresh, path), 0);
}

START_TEST(a_changed_file_is_read_again)
{
	struct users *u = standard();
	ck_assert_str_eq(users_uid_name(u, 1000), "user");
	put(passwd, "ann:x:1000:1::/:/a\n"); // another size
	ck_assert_str_eq(users_uid_name(u, 1000), "ann");
	put(passwd, "bob:x:1000:1::/:/a\n");
	age(passwd, 900); // another time
	ck_assert_str_eq(users_uid_name(u, 1000), "bob");
	rename_over(passwd, "cat:x:1000:1::/:/a\n");
	age(passwd, 900); // another inode
	ck_assert_str_eq(users_uid_name(u, 1000), "cat");
	ck_assert_int_eq(unlink(passwd), 0);
	ck_assert_ptr_null(users_uid_name(u, 1000));
	ck_assert_str_eq(users_gid_name(u, 27), "sudo");
	put(group, "ops:x:27:root\n");
	ck_assert_str_eq(users_gid_name(u, 27), "ops");
	struct user user;
	ck_assert_int_eq(users_find(u, "root", &user), 0);
	ck_assert_uint_eq(user.group_count, 2);
	ck_assert_uint_eq(user.groups[1], 27);
	user_release(&user);
	users_free(u);
}
END_TEST

// Told by a change that the file's size, time and inode do not show.
START_TEST(an_unchanged_file_is_not_read_again)
{
	struct users *u = standard();
	struct timespec keep[2] = {{.tv_sec = time(NULL) - 5000}, {.tv_sec = time(NULL) - 5000}};
	put(passwd, "ann:x:1000:1::/:/a\n");
	ck_assert_int_eq(utimensat(AT_FDCWD, passwd, keep, 0), 0);
	ck_assert_str_eq(users_uid_name(u, 1000), "ann");
	put(passwd, "bob:x:1000:1::/:/a\n");
	ck_assert_int_eq(utimensat(AT_FDCWD, passwd, keep, 0), 0);
	ck_assert_str_eq(users_uid_name(u, 1000), "ann");
	users_free(u);
}
END_TEST

// Two changes within one tick of the file system's clock look alike: here by a time that is always too young.
START_TEST(a_file_changed_just_now_is_not_trusted)
{
	struct users *u = users_new(passwd, group);
	struct timespec late[2] = {{.tv_sec = time(NULL) + 5000}, {.tv_sec = time(NULL) + 5000}};
	put(passwd, "ann:x:1000:1::/:/a\n");
	ck_assert_int_eq(utimensat(AT_FDCWD, passwd, late, 0), 0);
	ck_assert_str_eq(users_uid_name(u, 1000), "ann");
	put(passwd, "bob:x:1000:1::/:/a\n");
	ck_assert_int_eq(utimensat(AT_FDCWD, passwd, late, 0), 0);
	ck_assert_str_eq(users_uid_name(u, 1000), "bob");
	users_free(u);
}
END_TEST

START_TEST(a_file_that_cannot_be_read_is_an_error)
{
	struct users *u = users_new(passwd, group);
	struct user user;
	ck_assert_int_eq(mkdir(passwd, 0755), 0);
	ck_assert_int_eq(users_find(u, "root", &user), -EISDIR);
	ck_assert_ptr_null(user.name);
	ck_assert_int_eq(rmdir(passwd), 0);
	ck_assert_int_eq(mkfifo(passwd, 0644), 0); // and does not block
	ck_assert_int_eq(users_find(u, "root", &user), -EINVAL);
	ck_assert_int_eq(unlink(passwd), 0);
	int fd = open(passwd, O_WRONLY | O_CREAT, 0644);
	ck_assert_int_eq(ftruncate(fd, 1L << 40), 0);
	close(fd);
	ck_assert_int_eq(users_find(u, "root", &user), -EFBIG);
	put(passwd, passwd_text);
	ck_assert_str_eq(users_uid_name(u, 1000), "user");
	ck_assert_int_eq(unlink(passwd), 0);
	ck_assert_int_eq(symlink("passwd", passwd), 0);
	ck_assert_int_eq(users_find(u, "user", &user), -ELOOP);
	ck_assert_str_eq(users_uid_name(u, 1000), "user"); // what was known
	users_free(u);
}
END_TEST

enum { MANY = 100000 };

START_TEST(a_hundred_thousand_lines)
{
	FILE *f = fopen(passwd, "w"), *g = fopen(group, "w");
	fputs("everyone:x:5:u0", g);
	for (int i = 0; i < MANY; i++) {
		fprintf(f, "u%d:x:%d:%d:comment:/home/u%d:/bin/sh\n", i, 1000 + i, 1000 + i, i);
		if (i > 0)
			fprintf(g, ",u%d", i); // one line of 700 kB
	}
	fputc('\n', g);
	ck_assert_int_eq(fclose(f) | fclose(g), 0);
	age(passwd, 1000);
	age(group, 1000);
	struct users *u = users_new(passwd, group);
	struct user user;
	char name[16];
	clock_t start = clock();
	for (int i = MANY - 1; i >= 0; i -= 1009) {
		snprintf(name, sizeof(name), "u%d", i);
		ck_assert_int_eq(users_find(u, name, &user), 0);
		ck_assert_uint_eq(user.uid, 1000U + (unsigned)i);
		ck_assert_uint_eq(user.group_count, 2);
		ck_assert_uint_eq(user.groups[1], 5);
		user_release(&user);
		ck_assert_str_eq(users_uid_name(u, 1000U + (unsigned)i), name);
	}
	ck_assert_int_lt((clock() - start) / CLOCKS_PER_SEC, 20); // reading again at each call takes longer
	users_free(u);
}
END_TEST

START_TEST(a_long_line_is_read_whole)
{
	static char text[3 << 16];
	memset(text, 'c', sizeof(text));
	memcpy(text, "long:x:7:7:", 11);
	memcpy(text + sizeof(text) - 30, ":/h:/s\nnext:x:8:8::/h:/s\n\0\0\0\0\0", 30);
	put(passwd, text);
	struct users *u = users_new(passwd, group);
	ck_assert_str_eq(users_uid_name(u, 7), "long");
	ck_assert_str_eq(users_uid_name(u, 8), "next");
	users_free(u);
}
END_TEST

START_TEST(dup_copies_all)
{
	struct users *u = standard();
	struct user user, copy, none = {0};
	ck_assert_int_eq(users_find(u, "user", &user), 0);
	ck_assert_int_eq(user_dup(&copy, &user), 0);
	user_release(&user);
	users_free(u);
	ck_assert_uint_eq(copy.uid, 1000);
	ck_assert_str_eq(copy.home, "/home/user");
	ck_assert_uint_eq(copy.groups[2], 999);
	user_release(&copy);
	ck_assert_int_eq(user_dup(&copy, &none), 0);
	ck_assert_ptr_null(copy.name);
	user_release(&copy);
}
END_TEST

// A turn of a loop that sees what inotify has.
static void turn(struct ev_loop *loop)
{
	ev_run(loop, EVRUN_NOWAIT);
}

static const char *name_now(struct users *u)
{
	const char *name = users_uid_name(u, 1000);
	return name ? name : "none";
}

START_TEST(changes_are_seen_in_the_next_turn)
{
	struct ev_loop *loop = ev_loop_new(0);
	struct users *u = standard();
	users_by_turns(u, loop);
	for (int i = 0; i < 40; i++) { // watched from some time on
		turn(loop);
		ck_assert_str_eq(name_now(u), "user");
	}
	unsigned generation = users_generation(u);
	put(passwd, "changed:x:1000:1000::/:/bin/sh\n"); // of another size, in place
	turn(loop);
	ck_assert_str_eq(name_now(u), "changed");
	ck_assert_uint_ne(users_generation(u), generation);
	for (int i = 0; i < 40; i++) {
		turn(loop);
		ck_assert_str_eq(name_now(u), "changed");
	}
	char other[80];
	snprintf(other, sizeof other, "%s/other", dir);
	put(other, "replaced:x:1000:1000::/:/bin/sh\n");
	ck_assert_int_eq(rename(other, passwd), 0);
	turn(loop);
	ck_assert_str_eq(name_now(u), "replaced");
	ck_assert_int_eq(unlink(passwd), 0);
	turn(loop);
	ck_assert_str_eq(name_now(u), "none");
	put(passwd, "again:x:1000:1000::/:/bin/sh\n");
	turn(loop);
	ck_assert_str_eq(name_now(u), "again");
	users_free(u);
	ev_loop_destroy(loop);
}
END_TEST

START_TEST(one_look_a_turn)
{
	struct ev_loop *loop = ev_loop_new(0);
	struct users *u = standard();
	struct user user;
	users_by_turns(u, loop);
	turn(loop);
	ck_assert_str_eq(name_now(u), "user");
	put(passwd, "changed:x:1000:1000::/:/bin/sh\nnew:x:7:7::/:/bin/sh\n");
	ck_assert_str_eq(name_now(u), "user");
	turn(loop);
	ck_assert_int_eq(users_find(u, "new", &user), 0);
	user_release(&user);
	users_free(u);
	ev_loop_destroy(loop);
}
END_TEST

static int work(void *arg)
{
	(void)arg;
	struct user user, copy;
	struct users *u = users_new(passwd, group);
	int rc = u ? users_find(u, "user", &user) : -ENOMEM;
	if (rc == 0) {
		rc = user_dup(&copy, &user);
		user_release(rc == 0 ? &copy : &user);
		if (rc == 0)
			user_release(&user);
	}
	users_free(u);
	return rc;
}

START_TEST(every_allocation_may_fail)
{
	char text[8192];
	size_t n = 0;
	for (int i = 0; i < 70; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "u%d:x:%d:1::/:/s\n", i, 2000 + i);
	snprintf(text + n, sizeof(text) - n, "user:x:1:1:%01500d:/:/s\n", 0);
	put(passwd, text);
	n = 0;
	for (int i = 0; i < 40; i++)
		n += (size_t)snprintf(text + n, sizeof(text) - n, "g%d:x:%d:user\n", i, 2000 + i);
	put(group, text);
	ck_assert_int_eq(work(NULL), 0);
	OOM_LOOP(work, NULL);
}
END_TEST

// After a failure the next call tries again.
START_TEST(memory_that_comes_back_is_used)
{
	struct users *u = standard();
	struct user user;
	oom_fail_at(3);
	int rc = users_find(u, "user", &user);
	oom_off();
	ck_assert_int_eq(rc, -ENOMEM);
	ck_assert_int_eq(users_find(u, "user", &user), 0);
	user_release(&user);
	users_free(u);
}
END_TEST

Suite *users_suite(void)
{
	Suite *s = suite_create("users");
	TCase *t = tcase_create("users");
	tcase_set_timeout(t, 30);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, found_by_name_and_by_uid, 0, sizeof(found) / sizeof(found[0]));
	tcase_add_loop_test(t, who_is_not_there_is_enoent, 0, sizeof(missing) / sizeof(missing[0]));
	tcase_add_test(t, ids_have_names);
	tcase_add_test(t, root_needs_no_file);
	tcase_add_test(t, a_changed_file_is_read_again);
	tcase_add_test(t, an_unchanged_file_is_not_read_again);
	tcase_add_test(t, a_file_changed_just_now_is_not_trusted);
	tcase_add_test(t, a_file_that_cannot_be_read_is_an_error);
	tcase_add_test(t, a_hundred_thousand_lines);
	tcase_add_test(t, a_long_line_is_read_whole);
	tcase_add_test(t, dup_copies_all);
	tcase_add_test(t, changes_are_seen_in_the_next_turn);
	tcase_add_test(t, one_look_a_turn);
	tcase_add_test(t, every_allocation_may_fail);
	tcase_add_test(t, memory_that_comes_back_is_used);
	suite_add_tcase(s, t);
	return s;
}
