// SPDX-License-Identifier: Apache-2.0
// File systems that are like no disk (NFS, FUSE, btrfs), played by the calls below: what they lose is said and undone, and what they do not
// have is not asked of them.
#include "daemon/core/files.h"
#include "suites.h"
#include "treekit.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

// What fails from now on, in this process.
static struct {
	int close, chown; // errno
	int writes;       // from so many on: ENOSPC; 0: none
	bool cow;
} odd;

// Of a regular file that can be written.
static bool written(int fd)
{
	struct stat st;
	return fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && (fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDONLY;
}

int close(int fd)
{
	int err = odd.close && written(fd) ? odd.close : 0;
	int rc = (int)syscall(SYS_close, fd);
	if (rc == 0 && err) {
		errno = err;
		return -1;
	}
	return rc;
}

static int refuse_owner(void)
{
	errno = odd.chown;
	return -1;
}

int fchown(int fd, uid_t uid, gid_t gid)
{
	return odd.chown ? refuse_owner() : (int)syscall(SYS_fchown, fd, uid, gid);
}

int fchmod(int fd, mode_t mode)
{
	return odd.chown ? refuse_owner() : (int)syscall(SYS_fchmod, fd, mode);
}

ssize_t write(int fd, const void *p, size_t n)
{
	if (odd.writes && written(fd)) {
		if (odd.writes == 1) {
			errno = ENOSPC;
			return -1;
		}
		odd.writes--;
		n = n < 1000 ? n : 1000;
	}
	return syscall(SYS_write, fd, p, n);
}

int fstatfs(int fd, struct statfs *fs)
{
	int rc = (int)syscall(SYS_fstatfs, fd, fs);
	if (rc == 0 && odd.cow)
		fs->f_type = BTRFS_SUPER_MAGIC;
	return rc;
}

static int write_n(const char *path, char c, size_t n, bool append)
{
	struct files_writer *w;
	struct files_write spec = {.path = path, .append = append, .size = (int64_t)n, .owner = {geteuid(), getegid()}};
	char *p = malloc(n);
	ck_assert_ptr_nonnull(p);
	memset(p, c, n);
	int rc = files_writer_new(&w, &spec);
	if (rc == 0) {
		rc = files_writer_feed(w, p, n);
		while (rc == 0 && (rc = files_writer_commit(w)) == 1)
			rc = 0;
		files_writer_free(w);
	}
	free(p);
	return rc;
}

static const size_t sizes[] = {3000, FILES_INPLACE_MAX + 1};

// A network has room for what is written until it is closed.
START_TEST(loss_at_the_close)
{
	struct tree t;
	size_t n = sizes[_i];
	tk_init(&t, false);
	int fds = tk_fds();
	tk_fill("old", 'o', 2000);
	odd.close = ENOSPC;
	ck_assert_int_eq(write_n("new", 'n', n, false), -ENOSPC);
	ck_assert_int_eq(write_n("old", 'n', n, false), -ENOSPC);
	ck_assert_int_eq(write_n("old", 'n', n, true), -ENOSPC);
	odd.close = 0;
	ck_assert(!tk_exists("new"));
	tk_assert_fill("old", 'o', 2000);
	ck_assert_int_eq(tk_count("."), 1);
	ck_assert_int_eq(tk_fds(), fds);
	ck_assert_int_eq(write_n("old", 'n', n, false), 0);
	tk_assert_fill("old", 'n', n);
	tk_release(&t);
}
END_TEST

START_TEST(loss_at_the_close_of_a_move)
{
	struct tree t;
	struct files_move *m;
	tk_init(&t, true);
	if (t.mounts) {
		tk_mkdir("m");
		tk_mount("m", 1 << 20);
		tk_fill("f", 'f', 2000);
		odd.close = EIO;
		ck_assert_int_eq(files_move_new(&m, tk_path(&t, "f"), tk_path(&t, "m/f")), 0);
		int rc = 1;
		while (rc == 1)
			rc = files_move_step(m, INT64_MAX);
		files_move_free(m);
		odd.close = 0;
		ck_assert_int_eq(rc, -EIO);
		tk_assert_fill("f", 'f', 2000);
		ck_assert_int_eq(tk_count("m"), 0);
	}
	tk_release(&t);
}
END_TEST

// What nobody can change is as it is to be already.
START_TEST(no_owners_and_no_modes)
{
	struct tree t;
	tk_init(&t, false);
	tk_fill("old", 'o', 2000);
	ck_assert_int_eq(chmod("old", 0600), 0);
	odd.chown = ENOSYS;
	ck_assert_int_eq(write_n("d/new", 'n', sizes[_i], false), 0);
	ck_assert_int_eq(write_n("old", 'n', sizes[_i], false), 0);
	odd.chown = 0;
	tk_assert_fill("d/new", 'n', sizes[_i]);
	tk_assert_fill("old", 'n', sizes[_i]);
	ck_assert_int_eq(tk_count("."), 2);
	tk_release(&t);
}
END_TEST

// The room that was promised is not there, of which a part has been written.
START_TEST(promised_room_is_none)
{
	struct tree t;
	tk_init(&t, false);
	tk_fill("f", 'o', 2500);
	odd.cow = _i == 1;
	odd.writes = 4;
	ck_assert_int_eq(write_n("f", 'n', 20000, false), -ENOSPC);
	odd.writes = 0;
	tk_assert_fill("f", 'o', 2500);
	ino_t was;
	struct stat st;
	ck_assert_int_eq(stat("f", &st), 0);
	was = st.st_ino;
	ck_assert_int_eq(write_n("f", 'n', 20000, false), 0);
	ck_assert_int_eq(stat("f", &st), 0);
	ck_assert_int_eq(was == st.st_ino, !odd.cow);
	tk_assert_fill("f", 'n', 20000);
	ck_assert_int_eq(tk_count("."), 1);
	tk_release(&t);
}
END_TEST

// More than there is room for.
START_TEST(holes_move_as_holes)
{
	struct tree t;
	struct files_move *m;
	struct stat st;
	char got[4];
	tk_init(&t, true);
	if (t.mounts) {
		tk_mkdir("m");
		tk_mount("m", 1 << 20);
		for (int i = 0; i < 2; i++) {
			int fd = open("f", O_RDWR | O_CREAT | O_CLOEXEC, 0644);
			ck_assert_int_eq(pwrite(fd, "ab", 2, 0), 2);
			ck_assert_int_eq(pwrite(fd, "cd", 2, 30 << 20), 2);
			ck_assert_int_eq(ftruncate(fd, i ? 60 << 20 : (30 << 20) + 2), 0);
			close(fd);
			ck_assert_int_eq(files_move_new(&m, tk_path(&t, "f"), tk_path(&t, "m/f")), 0);
			ck_assert_ptr_nonnull(m);
			int rc = 1;
			while (rc == 1)
				rc = files_move_step(m, INT64_MAX);
			files_move_free(m);
			ck_assert_int_eq(rc, 0);
			fd = open("m/f", O_RDONLY | O_CLOEXEC);
			ck_assert_int_eq(fstat(fd, &st), 0);
			ck_assert_int_eq(st.st_size, i ? 60 << 20 : (30 << 20) + 2);
			ck_assert_int_eq(pread(fd, got, 4, 0), 4);
			ck_assert_mem_eq(got, "ab\0", 4);
			ck_assert_int_eq(pread(fd, got, 2, 30 << 20), 2);
			ck_assert_mem_eq(got, "cd", 2);
			close(fd);
			ck_assert_int_eq(unlink("m/f"), 0);
		}
	}
	tk_release(&t);
}
END_TEST

Suite *files_odd_suite(void)
{
	Suite *s = suite_create("files_odd");
	TCase *t = tcase_create("odd");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_loop_test(t, loss_at_the_close, 0, 2);
	tcase_add_test(t, loss_at_the_close_of_a_move);
	tcase_add_test(t, holes_move_as_holes);
	tcase_add_loop_test(t, no_owners_and_no_modes, 0, 2);
	tcase_add_loop_test(t, promised_room_is_none, 0, 2);
	return s;
}
