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
	const char *slash = memrchr(path, '/', end);
	size_t start = slash ? (size_t)(slash - path) + 1 : 0;
	if (start == end)
		start = 0;
	*n = end - start;
	return path + start;
}

// Go's way: letters for the kind and the special bits, "-" if there are none, then the nine. Returns the length.
static size_t put_permissions(char out[16], mode_t mode)
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
	return (size_t)(p - out);
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

static char *take_name(struct fs_id *known, char *name, size_t n, bool plain)
{
	known->name = name;
	known->n = n;
	known->plain = plain;
	return name;
}

// The name of ID as UTF-8, or the number; in KNOWN. NULL when out of memory.
static char *name_of(struct fs_id *known, struct users *u, const char *(*find)(struct users *, unsigned), unsigned id)
{
	if (known->name && known->id == id)
		return known->name;
	struct text_tail tail = {0};
	const char *name = find(u, id);
	fs_id_release(known);
	known->id = id;
	if (!name) {
		char *number = put_number(known->text, id);
		return take_name(known, number, strlen(number), true);
	}
	size_t n = strlen(name);
	bool plain = jsonw_plain(name, n), fits = n < sizeof known->text;
	if (fits && (plain || text_utf8_valid(name, n)))
		return take_name(known, memcpy(known->text, name, n + 1), n, plain && n > 0);
	struct buf text;
	buf_init(&text, 0);
	text_utf8_repair(&text, &tail, name, n, true, NULL);
	known->mem = buf_take(&text, &n);
	return take_name(known, known->mem, n, plain);
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
	const char *key = name + sizeof meta_prefix - 1;
	ssize_t n = getxattr(path, name, NULL, 0);
	char *value = n < 0 ? NULL : malloc((size_t)n + 2);
	if (n < 0 || !value)
		return n < 0 ? 0 : -ENOMEM;
	n = getxattr(path, name, value,
		(size_t)n + 1); // of no size it would only be asked for; one that has grown is left out
	size_t len = n > 0 ? (size_t)n : 0;
	if (n < 0 || !text_utf8_valid(key, strlen(key)) || !text_utf8_valid(value, len) || memchr(value, '\0', len)) {
		free(value);
		return 0;
	}
	value[len] = '\0';
	*m = (Filesystem__EntryInfo__MetadataEntry)FILESYSTEM__ENTRY_INFO__METADATA_ENTRY__INIT;
	m->key = strdup(key);
	m->value = value;
	if (m->key)
		return 1;
	free(value);
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

// Puts PATH and its name into the texts as far as they cannot stay as they are. Returns where the name is, from the start of the path.
static size_t put_path(struct fs_entry *e, const char *path)
{
	size_t n, len = strlen(path);
	const char *name = last_name(path, len, &n);
	bool last = name + n == path + len;
	e->plain = jsonw_plain(path, len);
	e->path_n = len;
	e->name_n = n;
	if (!e->plain) {
		put_text(e, path, len);
		e->path_n = buf_len(&e->text) - 1;
		last = last && e->path_n == len; // else it was mended
	}
	e->borrowed = e->plain && last;
	if (last)
		return (size_t)(name - path);
	size_t at = put_text(e, name, n);
	e->name_n = buf_len(&e->text) - at - 1;
	return at;
}

int fs_entry_fill(struct fs_entry *e, struct users *u, int at, const char *rel, const char *path, const struct stat *st)
{
	Filesystem__EntryInfo *i = &e->info;
	size_t target = 0;
	clear(e);
	char *given = (char *)(uintptr_t)path; // written by nobody
	size_t name_at = put_path(e, path);
	bool link = S_ISLNK(st->st_mode);
	if (link)
		target = put_target(e, path);
	fill_numbers(e, at, rel, st);
	i->owner = name_of(&e->owner, u, users_uid_name, st->st_uid);
	i->group = name_of(&e->group, u, users_gid_name, st->st_gid);
	int rc = i->owner && i->group ? fill_metadata(e, at, rel, path) : -ENOMEM;
	if (rc < 0 || buf_failed(&e->text))
		return -ENOMEM;
	if (e->permissions_n == 0 || e->told != st->st_mode)
		e->permissions_n = put_permissions(e->permissions, st->st_mode);
	e->told = st->st_mode;
	i->permissions = e->permissions;
	i->name = e->borrowed ? given + name_at : text_at(e, name_at);
	i->path = e->plain ? given : text_at(e, 0);
	if (link) {
		i->_symlink_target_case = FILESYSTEM__ENTRY_INFO___SYMLINK_TARGET_SYMLINK_TARGET;
		i->symlink_target = text_at(e, target);
	}
	return 0;
}

// --- JSON ---

// For what is fixed, and for numbers, permissions and the time.
#define JSON_ROOM ((size_t)384)
// Many of a list are of the same second.
static char *put_time(char *to, struct fs_entry *e)
{
	int64_t s = e->time.seconds;
	if (s <= 0 || s > UINT32_MAX)
		return to + pbjson_time_write(to, s, e->time.nanos);
	if (e->second != s)
		(void)pbjson_time_write(e->second_text, s, 0);
	e->second = s;
	to = buf_put(to, e->second_text, sizeof "2000-01-01T00:00:00" - 1);
	return to + pbjson_time_fraction(to, e->time.nanos);
}

// True if no text of E has anything to be escaped or left out. (The name is part of the path.)
static bool is_usual(const struct fs_entry *e, size_t target_n)
{
	const Filesystem__EntryInfo *i = &e->info;
	return i->n_metadata == 0 && i->size >= 0 && e->name_n > 0 && e->plain && e->owner.plain && e->group.plain &&
	       jsonw_plain(i->symlink_target, target_n);
}

static char *put_type(char *to, Filesystem__FileType type)
{
	if (type == FILESYSTEM__FILE_TYPE__FILE_TYPE_FILE)
		return BUF_PUT(to, ", \"type\":\"FILE_TYPE_FILE\"");
	if (type == FILESYSTEM__FILE_TYPE__FILE_TYPE_DIRECTORY)
		return BUF_PUT(to, ", \"type\":\"FILE_TYPE_DIRECTORY\"");
	return to;
}

static char *put_owner(char *to, const struct fs_entry *e)
{
	to = BUF_PUT(to, ", \"permissions\":\"");
	to = buf_put(to, e->permissions, e->permissions_n);
	to = BUF_PUT(to, "\", \"owner\":\"");
	to = buf_put(to, e->owner.name, e->owner.n);
	to = BUF_PUT(to, "\", \"group\":\"");
	to = buf_put(to, e->group.name, e->group.n);
	return BUF_PUT(to, "\"");
}

// The same as pbjson_write, but that it knows what comes and has room for it at once: that took a list half as long again.
int fs_entry_json(struct buf *out, struct fs_entry *e)
{
	const Filesystem__EntryInfo *i = &e->info;
	size_t target_n = i->_symlink_target_case ? strlen(i->symlink_target) : 0;
	if (!is_usual(e, target_n))
		return pbjson_write(out, &i->base);
	char *start = (char *)buf_reserve(out, JSON_ROOM + e->name_n + e->path_n + e->owner.n + e->group.n + target_n);
	if (!start)
		return buf_failed(out);
	char *to = BUF_PUT(start, "{\"name\":\"");
	to = buf_put(to, i->name, e->name_n);
	to = put_type(BUF_PUT(to, "\""), i->type);
	to = BUF_PUT(to, ", \"path\":\"");
	to = buf_put(to, i->path, e->path_n);
	to = BUF_PUT(to, "\"");
	if (i->size > 0) {
		to = BUF_PUT(to, ", \"size\":\"");
		to = BUF_PUT(buf_put_u64(to, (uint64_t)i->size), "\"");
	}
	if (i->mode != 0)
		to = buf_put_u64(BUF_PUT(to, ", \"mode\":"), i->mode);
	to = put_owner(to, e);
	if (i->modified_time) {
		to = BUF_PUT(to, ", \"modifiedTime\":\"");
		to = BUF_PUT(put_time(to, e), "\"");
	}
	if (i->_symlink_target_case) {
		to = BUF_PUT(to, ", \"symlinkTarget\":\"");
		to = buf_put(to, i->symlink_target, target_n);
		to = BUF_PUT(to, "\"");
	}
	to = BUF_PUT(to, "}");
	buf_commit(out, (size_t)(to - start));
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
	fs_id_release(&e->owner);
	fs_id_release(&e->group);
}

void fs_entry_release(struct fs_entry *e)
{
	clear(e);
	fs_entry_forget(e);
	buf_release(&e->text);
}
