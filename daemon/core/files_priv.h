// SPDX-License-Identifier: Apache-2.0
// files_priv: what files.c, files_copy.c, files_writer.c and files_move.c share; nobody else includes it.
#ifndef CELLD_CORE_FILES_PRIV_H
#define CELLD_CORE_FILES_PRIV_H

#include "daemon/core/files.h"

#include <fcntl.h>

// Never waits, never becomes a terminal, never goes to a child.
#define FILES_OPEN (O_NONBLOCK | O_NOCTTY | O_CLOEXEC)

// --- files.c ---
// The part of PATH in front of its last name ("." or "/" if there is none). NULL when out of memory; the caller frees.
char *files_dirname(const char *path);
// Makes the missing directories above PATH. 0 or negative errno.
int files_make_parents(const char *path, const struct files_owner *owner);
// Gives the new file FD to its owner. Not being allowed to is no failure: then nobody else could be meant.
int files_give(int fd, const struct files_owner *owner);

// --- files_copy.c ---
enum { FILES_TEMP_SIZE = 24 };
// A fresh name for which files_temp_name is true.
void files_temp_make(char name[FILES_TEMP_SIZE]);
// All N bytes at the file's position. 0 or negative errno (-EAGAIN: it would block).
int files_write_all(int fd, const void *p, size_t n);
// Owner, mode and extended attributes of the file FROM, whose stat is ST. 0 or negative errno.
int files_copy_meta(int from, int to, const struct stat *st);

#endif
