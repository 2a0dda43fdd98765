// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/filesystem.h"
#include "proto/json.h"
#include "proto/pbjson.h"
#include "proto/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/xattr.h>
#include <unistd.h>

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

// The last name of PATH (END bytes) and its length: "/" has that name itself.
static const char *last_name(const char *path, size_t end, size_t *n)
{
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
	bool plain = (mode & ~(mode_t)0777) == S_IFREG;
	for (size_t i = 0; !plain && i < sizeof kinds / sizeof *kinds; i++) {
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

static void fs_id_release(struct fs_id *known)
{
	free(known->mem);
	known->mem = known->name = NULL;
}

static char *put_number(char to[static FS_ID_TEXT], unsigned v)
{
	char *at = to + FS_ID_TEXT - 1;
	*at = '\0';
	do
		*--at = (char)('0' + v % 10);
	while (v /= 10);
	return at;
}

// The name of ID as UTF-8, or the number; in KNOWN. NULL when out of memory.
static char *name_of(struct fs_id *known, struct users *u, const char *(*find)(struct users *, unsigned), unsigned id)
{
	if (known->name && known->id == id)
		return known->name;
	struct text_tail tail = {0};
	const char *name = find(u, id);
	size_t n = name ? strlen(name) : 0;
	fs_id_release(known);
	known->id = id;
	if (!name) {
		known->name = put_number(known->text, id);
	} else if (n < sizeof known->text && text_utf8_valid(name, n)) {
		known->name = memcpy(known->text, name, n + 1);
	} else {
		struct buf text;
		buf_init(&text, 0);
		text_utf8_repair(&text, &tail, name, n, true, NULL);
		known->name = known->mem = buf_take(&text, NULL);
	}
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

#ifndef SYS_listxattrat
#define SYS_listxattrat 465 // on all machines; since Linux 6.13
#endif

// listxattr of PATH, by its name REL in AT where the kernel knows how: a tenth of the system calls' time in a list.
static ssize_t list_names(struct fs_entry *e, int at, const char *rel, const char *path, char *to, size_t n)
{
	if (at == AT_FDCWD || e->by_path)
		return listxattr(path, to, n);
	ssize_t len = syscall(SYS_listxattrat, at, rel, 0, to, n);
	if (len >= 0 || (errno != ENOSYS && errno != EPERM))
		return len;
	e->by_path = true;
	return listxattr(path, to, n);
}

// The extended attributes' names of what PATH leads to, each with its NUL: *NAMES, the caller's, if there are any. 0 or -ENOMEM.
static int meta_names(struct fs_entry *e, int at, const char *rel, const char *path, char **names, size_t *n)
{
	char few[512];
	ssize_t len = list_names(e, at, rel, path, few, sizeof few);
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

static int fill_metadata(struct fs_entry *e, int at, const char *rel, const char *path)
{
	char *names = NULL;
	size_t n = 0;
	int rc = meta_names(e, at, rel, path, &names, &n);
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

// Where the name of PATH, which stands at PATH_AT, is: mostly its end.
static size_t put_name(struct fs_entry *e, const char *path, size_t path_at)
{
	size_t n, len = strlen(path);
	const char *name = last_name(path, len, &n);
	bool same = name + n == path + len && buf_len(&e->text) == path_at + len + 1; // as it is, nothing was mended
	return same ? path_at + (size_t)(name - path) : put_text(e, name, n);
}

int fs_entry_fill(struct fs_entry *e, struct users *u, int at, const char *rel, const char *path, const struct stat *st)
{
	Filesystem__EntryInfo *i = &e->info;
	size_t target = 0;
	clear(e);
	size_t path_at = put_text(e, path, strlen(path)), name_at = put_name(e, path, path_at);
	bool link = S_ISLNK(st->st_mode);
	if (link)
		target = put_target(e, path);
	fill_numbers(e, at, rel, st);
	i->owner = name_of(&e->owner, u, users_uid_name, st->st_uid);
	i->group = name_of(&e->group, u, users_gid_name, st->st_gid);
	int rc = i->owner && i->group ? fill_metadata(e, at, rel, path) : -ENOMEM;
	if (rc < 0 || buf_failed(&e->text))
		return -ENOMEM;
	put_permissions(e->permissions, st->st_mode);
	i->permissions = e->permissions;
	i->name = text_at(e, name_at);
	i->path = text_at(e, path_at);
	if (link) {
		i->_symlink_target_case = FILESYSTEM__ENTRY_INFO___SYMLINK_TARGET_SYMLINK_TARGET;
		i->symlink_target = text_at(e, target);
	}
	return 0;
}

// The same as pbjson_write, but that it knows what comes: a directory's list is made of nothing else, and took a sixth longer by descriptors.
int fs_entry_json(struct buf *out, const struct fs_entry *e)
{
	const Filesystem__EntryInfo *i = &e->info;
	char time[PBJSON_TIME];
	struct jsonw w;
	if (!*i->name || !*i->path || !*i->owner || !*i->group || i->n_metadata > 0)
		return pbjson_write(out, &i->base);
	size_t mark = buf_len(out);
	jsonw_init(&w, out);
	BUF_LIT(out, "{\"name\":");
	jsonw_cstr(&w, i->name);
	if (i->type == FILESYSTEM__FILE_TYPE__FILE_TYPE_FILE)
		BUF_LIT(out, ", \"type\":\"FILE_TYPE_FILE\"");
	else if (i->type == FILESYSTEM__FILE_TYPE__FILE_TYPE_DIRECTORY)
		BUF_LIT(out, ", \"type\":\"FILE_TYPE_DIRECTORY\"");
	BUF_LIT(out, ", \"path\":");
	jsonw_cstr(&w, i->path);
	if (i->size != 0) {
		BUF_LIT(out, ", \"size\":\"");
		buf_i64(out, i->size);
		buf_byte(out, '"');
	}
	if (i->mode != 0) {
		BUF_LIT(out, ", \"mode\":");
		buf_u64(out, i->mode);
	}
	BUF_LIT(out, ", \"permissions\":\"");
	buf_str(out, i->permissions);
	BUF_LIT(out, "\", \"owner\":");
	jsonw_cstr(&w, i->owner);
	BUF_LIT(out, ", \"group\":");
	jsonw_cstr(&w, i->group);
	if (i->modified_time) {
		BUF_LIT(out, ", \"modifiedTime\":\"");
		buf_append(out, time, pbjson_time_write(time, e->time.seconds, e->time.nanos));
		buf_byte(out, '"');
	}
	if (i->_symlink_target_case) {
		BUF_LIT(out, ", \"symlinkTarget\":");
		jsonw_cstr(&w, i->symlink_target);
	}
	buf_byte(out, '}');
	if (buf_failed(out))
		buf_truncate(out, mark);
	return buf_failed(out);
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
	fs_id_release(&e->owner);
	fs_id_release(&e->group);
}

void fs_entry_release(struct fs_entry *e)
{
	clear(e);
	fs_entry_forget(e);
	buf_release(&e->text);
}
