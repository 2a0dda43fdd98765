// SPDX-License-Identifier: Apache-2.0
// What allocates or maps. The C library's own functions that do so inside are here too: --wrap does not see their calls.
#define FAULT_BASE 0
#include "tests/faults/inject.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

// A wrapper of a function that gives NULL when it fails in one of KINDS.
#define OR_NULL(kinds, type, name, parameters, arguments) \
	type __real_##name parameters;                    \
	type __wrap_##name parameters;                    \
	type __wrap_##name parameters                     \
	{                                                 \
		FAULT_CALL(#name);                        \
		if (fault_hits(&call, kinds, where))      \
			return NULL;                      \
		return __real_##name arguments;           \
	}

OR_NULL(FAULT_MEMORY, void *, malloc, (size_t n), (n))
OR_NULL(FAULT_MEMORY, void *, calloc, (size_t k, size_t n), (k, n))
OR_NULL(FAULT_MEMORY, void *, realloc, (void *p, size_t n), (p, n))
OR_NULL(FAULT_MEMORY, char *, strdup, (const char *s), (s))
OR_NULL(FAULT_MEMORY, char *, strndup, (const char *s, size_t n), (s, n))
OR_NULL(FAULT_MEMORY, char *, realpath, (const char *path, char *out), (path, out))
OR_NULL(FAULT_MEMORY, char *, __realpath_chk, (const char *path, char *out, size_t n), (path, out, n))
OR_NULL(FAULT_MEMORY, void *, tsearch, (const void *key, void **root, int (*cmp)(const void *, const void *)),
	(key, root, cmp))
OR_NULL(FAULT_MEMORY | FAULT_DESCRIPTOR | FAULT_DISK_READ, DIR *, opendir, (const char *path), (path))
OR_NULL(FAULT_MEMORY, DIR *, fdopendir, (int fd), (fd))
OR_NULL(FAULT_MEMORY | FAULT_DESCRIPTOR, FILE *, fopen, (const char *path, const char *mode), (path, mode))
OR_NULL(FAULT_MEMORY, FILE *, fdopen, (int fd, const char *mode), (fd, mode))
OR_NULL(FAULT_DISK_READ, struct dirent *, readdir, (DIR * d), (d))

static int print(const struct fault_call *call, const void *where, char **out, const char *format, va_list ap)
	__attribute__((format(printf, 4, 0)));
static int print(const struct fault_call *call, const void *where, char **out, const char *format, va_list ap)
{
	if (fault_hits(call, FAULT_MEMORY, where))
		return -1;
	return vasprintf(out, format, ap);
}

int __wrap_asprintf(char **out, const char *format, ...) __attribute__((format(printf, 2, 3)));
int __wrap_asprintf(char **out, const char *format, ...)
{
	FAULT_CALL("asprintf");
	va_list ap;
	va_start(ap, format);
	int n = print(&call, where, out, format, ap);
	va_end(ap);
	return n;
}

int __wrap___asprintf_chk(char **out, int flag, const char *format, ...) __attribute__((format(printf, 3, 4)));
int __wrap___asprintf_chk(char **out, int flag, const char *format, ...)
{
	FAULT_CALL("asprintf");
	va_list ap;
	(void)flag;
	va_start(ap, format);
	int n = print(&call, where, out, format, ap);
	va_end(ap);
	return n;
}

void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t offset)
{
	FAULT_CALL("mmap");
	if (fault_hits(&call, FAULT_KERNEL, where))
		return MAP_FAILED;
	return __real_mmap(at, n, prot, flags, fd, offset);
}
