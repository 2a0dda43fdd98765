// SPDX-License-Identifier: Apache-2.0
#include "treekit.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

void tk_init(struct tree *t, bool mounts)
{
	*t = (struct tree){.top = "/tmp/celld-unit.XXXXXX"};
	ck_assert_ptr_nonnull(mkdtemp(t->top));
	if (mounts && geteuid() == 0 && unshare(CLONE_NEWNS) == 0)
		t->mounts = mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
	ck_assert_int_eq(chdir(t->top), 0);
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *at)
{
	(void)st, (void)at;
	if (flag == FTW_DP)
		(void)umount2(path, MNT_DETACH);
	(void)!remove(path);
	return 0;
}

void tk_release(struct tree *t)
{
	ck_assert_int_eq(chdir("/"), 0);
	// Twice: what a mount covered comes to light.
	for (int i = 0; i < 2; i++)
		(void)nftw(t->top, remove_entry, 32, FTW_DEPTH | FTW_PHYS);
	ck_assert(!tk_exists(t->top));
}

const char *tk_path(const struct tree *t, const char *path)
{
	static char paths[4][256];
	static unsigned next;
	char *p = paths[next++ % 4];
	(void)snprintf(p, sizeof paths[0], "%s/%s", t->top, path);
	return p;
}

void tk_mkdir(const char *path)
{
	ck_assert_msg(mkdir(path, 0755) == 0, "mkdir %s", path);
}

static void put(const char *path, const char *p, size_t n)
{
	FILE *f = fopen(path, "w");
	ck_assert_msg(f != NULL, "open %s", path);
	ck_assert_uint_eq(fwrite(p, 1, n, f), n);
	ck_assert_int_eq(fclose(f), 0);
}

void tk_file(const char *path, const char *content)
{
	put(path, content, strlen(content));
}

void tk_fill(const char *path, char c, size_t n)
{
	char *p = malloc(n + 1);
	ck_assert_ptr_nonnull(p);
	memset(p, c, n);
	put(path, p, n);
	free(p);
}

void tk_mount(const char *path, size_t size)
{
	char options[32];
	(void)snprintf(options, sizeof options, "size=%zu", size);
	ck_assert_int_eq(mount("tmpfs", path, "tmpfs", 0, options), 0);
}

static char *get(const char *path, size_t *n)
{
	struct stat st;
	FILE *f = fopen(path, "r");
	ck_assert_msg(f != NULL, "open %s", path);
	ck_assert_int_eq(fstat(fileno(f), &st), 0);
	char *p = malloc((size_t)st.st_size + 1);
	ck_assert_ptr_nonnull(p);
	*n = fread(p, 1, (size_t)st.st_size + 1, f);
	(void)fclose(f);
	return p;
}

void tk_assert_file(const char *path, const char *content)
{
	size_t n;
	char *p = get(path, &n);
	ck_assert_msg(n == strlen(content) && memcmp(p, content, n) == 0, "%s: %.*s", path, n < 40 ? (int)n : 40, p);
	free(p);
}

void tk_assert_fill(const char *path, char c, size_t n)
{
	size_t got;
	char *p = get(path, &got);
	ck_assert_uint_eq(got, n);
	size_t i = 0;
	while (i < n && p[i] == c)
		i++;
	ck_assert_msg(i == n, "%s: byte %zu is %02x", path, i, (unsigned char)p[i]);
	free(p);
}

bool tk_exists(const char *path)
{
	struct stat st;
	return lstat(path, &st) == 0;
}

int tk_count(const char *path)
{
	DIR *d = opendir(path);
	ck_assert_msg(d != NULL, "opendir %s", path);
	int n = 0;
	const struct dirent *e;
	while ((e = readdir(d)))
		n += strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0;
	closedir(d);
	return n;
}

int tk_fds(void)
{
	return tk_count("/proc/self/fd") - 1;
}
