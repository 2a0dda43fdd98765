// SPDX-License-Identifier: Apache-2.0
// treekit: a directory of its own for a test, and short words for what tests make and look for in it. Everything fails the test by
// itself. Paths are relative to the directory, in which the test then stands.
#ifndef CELLD_UNIT_TREEKIT_H
#define CELLD_UNIT_TREEKIT_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct tree {
	char top[64]; // absolute
	bool mounts;  // tk_mount may be used
};

// Makes the directory and goes there; with MOUNTS into a mount namespace of its own (as root; where that is not allowed T->mounts is false).
void tk_init(struct tree *t, bool mounts);
// Unmounts and removes all of it. A test that fails before leaves it.
void tk_release(struct tree *t);
// PATH within the directory, absolute; valid until the fourth call after it.
const char *tk_path(const struct tree *t, const char *path);

void tk_mkdir(const char *path);
void tk_file(const char *path, const char *content);
// N bytes of C.
void tk_fill(const char *path, char c, size_t n);
// A tmpfs of SIZE bytes on the directory PATH.
void tk_mount(const char *path, size_t size);
// The file has exactly this.
void tk_assert_file(const char *path, const char *content);
// The file has exactly N bytes of C.
void tk_assert_fill(const char *path, char c, size_t n);
bool tk_exists(const char *path);
// How many names the directory has.
int tk_count(const char *path);
// Descriptors that this process has open.
int tk_fds(void);

#endif
