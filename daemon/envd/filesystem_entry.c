// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/filesystem.h"
#include "proto/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/xattr.h>

static const char meta_prefix[] = "user.e2b.";

// --- texts ---

// Appends the N bytes as UTF-8 with a NUL and returns where they are, from the start of the texts: they may still move.
static size_t put_text(struct fs_entry *e, const char *s, size_t n)
{
	struct text_tail tail = {0};
	size_t at = buf_len(&e->text);
	text_utf8_repair(&e->text, &tail, s, n, true, NULL);
	buf_byte(&e->text, '\0');
	return at;
}

static char *text_at(struct fs_entry *e, size_t at)
{
	return (char *)(uintptr_t)buf_data(&e->text) + at; // ours, and written by nobody
}

// The last name of PATH and its length: "/" has that name itself.
static const char *last_name(const char *path, size_t *n)
{
	size_t end = strlen(path);
	while (end > 1 && path[end - 1] == '/')
		end--;
	size_t start = end;
	while (start > 0 && path[start - 1] != '/')
		start--;
	if (start == end)
		start = 0;
	*n = end - start;
	return path + start;
}

// Go's way: letters for the kind and the special bits, "-" if there are none, then the nine.
static void put_permissions(char out[16], mode_t mode)
{
	static const struct {
		mode_t mask, value;
		const char *letters;
	} kinds[] = {
		{S_IFMT, S_IFDIR, "d"},
		{S_IFMT, S_IFLNK, "L"},
		{S_IFMT, S_IFBLK, "D"},
		{S_IFMT, S_IFCHR, "D"},
		{S_IFMT, S_IFIFO, "p"},
		{S_IFMT, S_IFSOCK, "S"},
		{S_ISUID, S_ISUID, "u"},
		{S_ISGID, S_ISGID, "g"},
		{S_IFMT, S_IFCHR, "c"},
		{S_ISVTX, S_ISVTX, "t"},
	};
	char *p = out;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		if ((mode & kinds[i].mask) == kinds[i].value)
			*p++ = *kinds[i].letters;
	}
	if (p == out)
		*p++ = '-';
	for (unsigned i = 0; i < 9; i++)
		*p++ = (mode >> (8 - i)) & 1 ? "rwx"[i % 3] : '-';
	*p = '\0';
}

static Filesystem__FileType type_of(mode_t mode)
{
	if (S_ISREG(mode))
		return FILESYSTEM__FILE_TYPE__FILE_TYPE_FILE;
	return S_ISDIR(mode) ? FILESYSTEM__FILE_TYPE__FILE_TYPE_DIRECTORY
			     : FILESYSTEM__FILE_TYPE__FILE_TYPE_UNSPECIFIED;
}

// The name of ID, or the number; borrowed until the next call.
static const char *name_of(
	struct fs_id *known, struct users *u, const char *(*find)(struct users *, unsigned), unsigned id)
{
	if (known->valid && known->id == id)
		return known->name;
	const char *name = find(u, id);
	*known = (struct fs_id){.valid = !name || strlen(name) < sizeof known->name, .id = id};
	if (!known->valid)
		return name;
	if (name)
		(void)snprintf(known->name, sizeof known->name, "%s", name);
	else
		(void)snprintf(known->name, sizeof known->name, "%u", id);
	return known->name;
}

// --- metadata ---

static int cmp_meta(const void *a, const void *b)
{
	const Filesystem__EntryInfo__MetadataEntry *x = a, *y = b;
	return strcmp(x->key, y->key);
}

// 1: kept; 0: not for clients; -ENOMEM.
static int read_meta(Filesystem__EntryInfo__MetadataEntry *m, const char *path, const char *name)
{
	char value[XATTR_SIZE_MAX + 1];
	const char *key = name + sizeof meta_prefix - 1;
	ssize_t n = getxattr(path, name, value, sizeof value - 1);
	size_t len = n > 0 ? (size_t)n : 0;
	if (n < 0 || !text_utf8_valid(key, strlen(key)) || !text_utf8_valid(value, len) || memchr(value, '\0', len))
		return 0;
	*m = (Filesystem__EntryInfo__MetadataEntry)FILESYSTEM__ENTRY_INFO__METADATA_ENTRY__INIT;
	m->key = strdup(key);
	value[len] = '\0';
	m->value = strdup(value);
	if (m->key && m->value)
		return 1;
	free(m->key);
	free(m->value);
	return -ENOMEM;
}

// The extended attributes' names of what PATH leads to, each with its NUL: *NAMES, the caller's, if there are any. 0 or -ENOMEM.
static int meta_names(const char *path, char **names, size_t *n)
{
	char few[512];
	ssize_t len = listxattr(path, few, sizeof few);
	if (len == 0 || (len < 0 && errno != ERANGE))
		return 0;
	*names = malloc(len < 0 ? XATTR_LIST_MAX : (size_t)len);
	if (!*names)
		return -ENOMEM;
	if (len < 0)
		len = listxattr(path, *names, XATTR_LIST_MAX);
	else
		memcpy(*names, few, (size_t)len);
	*n = len > 0 ? (size_t)len : 0;
	return 0;
}

static bool is_meta(const char *name)
{
	return strncmp(name, meta_prefix, sizeof meta_prefix - 1) == 0;
}

static int fill_metas(struct fs_entry *e, const char *path, const char *names, size_t n)
{
	size_t count = 0;
	for (const char *p = names; p < names + n; p += strlen(p) + 1)
		count += is_meta(p);
	if (count == 0)
		return 0;
	e->metas = calloc(count, sizeof *e->metas);
	e->info.metadata = calloc(count, sizeof *e->info.metadata);
	if (!e->metas || !e->info.metadata)
		return -ENOMEM;
	for (const char *p = names; p < names + n; p += strlen(p) + 1) {
		int rc = is_meta(p) ? read_meta(&e->metas[e->info.n_metadata], path, p) : 0;
		if (rc < 0)
			return rc;
		e->info.n_metadata += (size_t)rc;
	}
	if (e->info.n_metadata > 0)
		qsort(e->metas, e->info.n_metadata, sizeof *e->metas, cmp_meta);
	for (size_t i = 0; i < e->info.n_metadata; i++)
		e->info.metadata[i] = &e->metas[i];
	return 0;
}

static int fill_metadata(struct fs_entry *e, const char *path)
{
	char *names = NULL;
	size_t n = 0;
	int rc = meta_names(path, &names, &n);
	if (rc == 0 && n > 0)
		rc = fill_metas(e, path, names, n);
	free(names);
	return rc;
}

// --- the whole ---

static void clear(struct fs_entry *e)
{
	for (size_t i = 0; e->metas && i < e->info.n_metadata; i++) {
		free(e->metas[i].key);
		free(e->metas[i].value);
	}
	free(e->metas);
	free(e->info.metadata);
	e->metas = NULL;
	e->info = (Filesystem__EntryInfo)FILESYSTEM__ENTRY_INFO__INIT;
	buf_reset(&e->text);
}

// What a symlink leads to, or its own path if that is nowhere.
static size_t put_target(struct fs_entry *e, const char *path)
{
	char *real = realpath(path, NULL);
	const char *target = real ? real : path;
	size_t at = put_text(e, target, strlen(target));
	free(real);
	return at;
}

static void fill_numbers(struct fs_entry *e, int at, const char *rel, const struct stat *st)
{
	Filesystem__EntryInfo *i = &e->info;
	struct stat target = *st;
	// Kind and mode are those of what it leads to; a link that leads nowhere has none.
	if (S_ISLNK(st->st_mode) && fstatat(at, rel, &target, 0) < 0)
		target.st_mode = 0;
	i->type = type_of(target.st_mode);
	i->size = st->st_size;
	i->mode = target.st_mode & 0777;
	if (st->st_mtim.tv_sec == 0 && st->st_mtim.tv_nsec == 0)
		return;
	e->time = (Filesystem__Timestamp)FILESYSTEM__TIMESTAMP__INIT;
	e->time.seconds = st->st_mtim.tv_sec;
	e->time.nanos = (int32_t)st->st_mtim.tv_nsec;
	i->modified_time = &e->time;
}

int fs_entry_fill(struct fs_entry *e, struct users *u, int at, const char *rel, const char *path, const struct stat *st)
{
	Filesystem__EntryInfo *i = &e->info;
	size_t n, target = 0;
	clear(e);
	const char *name = last_name(path, &n);
	size_t name_at = put_text(e, name, n), path_at = put_text(e, path, strlen(path));
	bool link = S_ISLNK(st->st_mode);
	if (link)
		target = put_target(e, path);
	fill_numbers(e, at, rel, st);
	const char *owner = name_of(&e->owner, u, users_uid_name, st->st_uid);
	size_t owner_at = put_text(e, owner, strlen(owner));
	const char *group = name_of(&e->group, u, users_gid_name, st->st_gid);
	size_t group_at = put_text(e, group, strlen(group));
	int rc = fill_metadata(e, path);
	if (rc < 0 || buf_failed(&e->text))
		return -ENOMEM;
	put_permissions(e->permissions, st->st_mode);
	i->permissions = e->permissions;
	i->name = text_at(e, name_at);
	i->path = text_at(e, path_at);
	i->owner = text_at(e, owner_at);
	i->group = text_at(e, group_at);
	if (link) {
		i->_symlink_target_case = FILESYSTEM__ENTRY_INFO___SYMLINK_TARGET_SYMLINK_TARGET;
		i->symlink_target = text_at(e, target);
	}
	return 0;
}

int fs_entry_of(struct fs_entry *e, struct users *u, const char *path)
{
	struct stat st;
	if (lstat(path, &st) < 0)
		return -errno;
	fs_entry_forget(e);
	return fs_entry_fill(e, u, AT_FDCWD, path, path, &st);
}

void fs_entry_forget(struct fs_entry *e)
{
	e->owner.valid = e->group.valid = false;
}

void fs_entry_release(struct fs_entry *e)
{
	clear(e);
	buf_release(&e->text);
}
