// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/corpus.h"

#include <check.h>
#include <dirent.h>

static void replay(fuzz_target *run, const char *dir, const char *name)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	FILE *f = fopen(path, "rb");
	ck_assert_msg(f != NULL, "%s cannot be opened", path);
	// A block of exactly its size, so that a sanitizer sees a read beyond it.
	ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
	long n = ftell(f);
	ck_assert_int_ge(n, 0);
	rewind(f);
	uint8_t *p = malloc(n ? (size_t)n : 1);
	ck_assert_ptr_nonnull(p);
	ck_assert_uint_eq(fread(p, 1, (size_t)n, f), (size_t)n);
	fclose(f);
	ck_assert_int_eq(run(p, (size_t)n), 0);
	free(p);
}

void corpus_replay(fuzz_target *run, const char *name)
{
	char dir[256];
	size_t count = 0;
	snprintf(dir, sizeof dir, "tests/fuzz/corpus/%s", name);
	DIR *d = opendir(dir);
	ck_assert_msg(d != NULL, "%s: run from the top of the tree", dir);
	for (const struct dirent *e; (e = readdir(d));) {
		if (e->d_name[0] == '.')
			continue;
		replay(run, dir, e->d_name);
		count++;
	}
	closedir(d);
	ck_assert_msg(count >= 10, "%s: only %zu inputs", dir, count);
}
