// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/filesystem.h"
#include "oom.h"
#include "proto/pbjson.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>
#include <unistd.h>

static char dir[64], file[128], dangling[128], passwd[128], group[128];

static void put(const char *path, const char *text)
{
	// Old, so that the tables are sure of what they have read.
	const struct timespec old[] = {{1000, 0}, {1000, 5000000}};
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0640);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(futimens(fd, old), 0);
	close(fd);
}

static void setup(void)
{
	(void)snprintf(dir, sizeof dir, "/tmp/celld-entry.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(file, sizeof file, "%s/file", dir);
	(void)snprintf(dangling, sizeof dangling, "%s/dangling", dir);
	(void)snprintf(passwd, sizeof passwd, "%s/passwd", dir);
	(void)snprintf(group, sizeof group, "%s/group", dir);
	put(file, "hello");
	ck_assert_int_eq(symlink("nowhere", dangling), 0);
	put(passwd, "somebody:x:71:72::/:/bin/sh\n");
	put(group, "some:x:72:\n");
}

static void teardown(void)
{
	unlink(file);
	unlink(dangling);
	unlink(passwd);
	unlink(group);
	rmdir(dir);
}

START_TEST(permissions_of_every_kind)
{
	static const struct {
		mode_t mode;
		const char *text;
	} kinds[] = {
		{S_IFREG | 0644, "-rw-r--r--"},
		{S_IFDIR | 0750, "drwxr-x---"},
		{S_IFDIR | 01777, "dtrwxrwxrwx"},
		{S_IFLNK | 0777, "Lrwxrwxrwx"},
		{S_IFIFO | 0600, "prw-------"},
		{S_IFSOCK | 0755, "Srwxr-xr-x"},
		{S_IFBLK | 0660, "Drw-rw----"},
		{S_IFCHR | 0666, "Dcrw-rw-rw-"},
		{S_IFREG | 04755, "urwxr-xr-x"},
		{S_IFREG | 06711, "ugrwx--x--x"},
		{S_IFDIR | 07000, "dugt---------"},
		{S_IFCHR | 07000, "Dugct---------"},
		{S_IFREG | 0, "----------"},
	};
	struct users *u = users_new(passwd, group);
	struct fs_entry e = {0};
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		struct stat st = {.st_mode = kinds[i].mode, .st_uid = 71, .st_gid = i % 2 ? 72 : 4294967294};
		ck_assert_int_eq(fs_entry_fill(&e, u, AT_FDCWD, file, file, &st), 0);
		ck_assert_str_eq(e.info.permissions, kinds[i].text);
		ck_assert_str_eq(e.info.owner, "somebody");
		ck_assert_str_eq(e.info.group, i % 2 ? "some" : "4294967294");
		ck_assert_ptr_null(e.info.modified_time);
	}
	fs_entry_release(&e);
	users_free(u);
}
END_TEST

START_TEST(names_of_paths)
{
	static const struct {
		const char *path, *name;
	} paths[] = {
		{"/", "/"}, {"/a", "a"}, {"/a/", "a"}, {"/a//b//", "b"}, {"/a/..", ".."}, {"/\xff", "\xef\xbf\xbd"}};
	struct users *u = users_new(passwd, group);
	struct fs_entry e = {0};
	struct stat st = {.st_mode = S_IFREG, .st_mtim = {-1, 5}};
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		ck_assert_int_eq(fs_entry_fill(&e, u, AT_FDCWD, file, paths[i].path, &st), 0);
		ck_assert_str_eq(e.info.name, paths[i].name);
		ck_assert_int_eq(e.info.modified_time->seconds, -1);
		ck_assert_int_eq(e.info.modified_time->nanos, 5);
	}
	ck_assert_int_eq(fs_entry_of(&e, u, "/nowhere/at/all"), -ENOENT);
	fs_entry_release(&e);
	users_free(u);
}
END_TEST

// As JSON it is what the codec for all messages makes of it.
START_TEST(json_of_entries)
{
	static const struct {
		mode_t mode;
		off_t size;
		struct timespec mtime;
		const char *path;
	} entries[] = {
		{S_IFREG | 0644, 5, {1, 2}, "/a"},
		{S_IFREG, 0, {0, 0}, "/"},
		{S_IFDIR | 01777, INT64_MAX, {-1, 999999999}, "/a/"},
		{S_IFIFO | 0600, 0, {253402300800, 0}, "/q\"\\<>&\x01\xff\xc3\xa4"},
		{S_IFSOCK, 1, {1, 1000}, ""},
	};
	struct users *u = users_new(passwd, group);
	struct fs_entry e = {0};
	for (size_t i = 0; i < sizeof entries / sizeof *entries + 2; i++) {
		struct buf a = {0}, b = {0};
		struct stat st = {.st_uid = i % 2 ? 71 : 5, .st_gid = i % 3 ? 72 : 6};
		if (i < sizeof entries / sizeof *entries) {
			st.st_mode = entries[i].mode;
			st.st_size = entries[i].size;
			st.st_mtim = entries[i].mtime;
			ck_assert_int_eq(fs_entry_fill(&e, u, AT_FDCWD, file, entries[i].path, &st), 0);
		} else { // a link; one with metadata, where the file system has them
			const char *path = i % 2 ? dangling : file;
			(void)setxattr(file, "user.e2b.k", "v", 1, 0);
			ck_assert_int_eq(fs_entry_of(&e, u, path), 0);
		}
		ck_assert_int_eq(fs_entry_json(&a, &e), 0);
		ck_assert_int_eq(pbjson_write(&b, &e.info.base), 0);
		ck_assert_str_eq(buf_cstr(&a), buf_cstr(&b));
		buf_release(&a);
		buf_release(&b);
		buf_init(&a, 40);
		ck_assert_int_lt(fs_entry_json(&a, &e), 0);
		ck_assert_uint_eq(buf_len(&a), 0);
		buf_release(&a);
	}
	fs_entry_release(&e);
	users_free(u);
}
END_TEST

static int fill_all(void *arg)
{
	struct fs_event f = {0};
	const struct watch_event ev = {.type = WATCH_CREATE, .path = file, .path_len = strlen(file), .name = "file"};
	int rc = fs_event_fill(&f, arg, &ev, true);
	if (rc == 0)
		rc = fs_entry_of(&f.entry, arg, dangling);
	fs_event_release(&f);
	return rc;
}

START_TEST(out_of_memory)
{
	struct users *u = users_new(passwd, group);
	(void)users_uid_name(u, 71); // the tables are read
	(void)users_gid_name(u, 72);
	bool metas = setxattr(file, "user.e2b.k", "v", 1, 0) == 0 && setxattr(file, "user.e2b.l", "w", 1, 0) == 0;
	OOM_LOOP(fill_all, u);
	struct fs_entry e = {0};
	ck_assert_int_eq(fs_entry_of(&e, u, file), 0);
	ck_assert_uint_eq(e.info.n_metadata, metas ? 2 : 0);
	fs_entry_release(&e);
	users_free(u);
}
END_TEST

Suite *envd_entry_suite(void)
{
	Suite *s = suite_create("envd_entry");
	TCase *tc = tcase_create("entry");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, permissions_of_every_kind);
	tcase_add_test(tc, names_of_paths);
	tcase_add_test(tc, json_of_entries);
	tcase_add_test(tc, out_of_memory);
	suite_add_tcase(s, tc);
	return s;
}
