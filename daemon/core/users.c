// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1 // fgetpwent_r, fgetgrent_r
#include "daemon/core/users.h"

#include "daemon/core/notice.h"
#include "daemon/io.h"
#include "proto/text.h"

#include <errno.h>
#include <ev.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_BYTES (64 << 20) // whoever is root in the sandbox may write these files
#define LINE_START 1024
#define GROUPS_MAX 65536 // the kernel's NGROUPS_MAX
#define TICK_MS 20       // no file system's clock we rely on is coarser

// One line of passwd or group; its texts lie behind it.
struct entry {
	unsigned id; // uid or gid
	gid_t gid;   // passwd: the primary group
	size_t line; // among lines of the same name or id the first one counts
	const char *name;
	const char *home, *shell; // passwd
	const char *members;      // group: names, each with its NUL; an empty one ends them
};

struct stamp {
	bool exists;
	bool young; // changed so lately that another change could bear the same time
	dev_t dev;
	ino_t ino;
	off_t size;
	struct timespec mtime;
};

struct table {
	const char *path;
	int (*read)(struct table *t, FILE *f, char *mem, size_t n); // one line; as fgetpwent_r, positive errno
	struct entry **by_name;
	struct entry **by_id;
	size_t count, cap; // by_name and by_id have room for cap
	bool loaded;
	struct stamp stamp;
};

struct users {
	struct table passwd, group;
	struct ev_loop *loop; // or NULL: looked at for each question
	struct notice notice;
	unsigned turn; // of the last look
	bool looked;   // it went well
	unsigned generation;
	char *asked; // the name that was looked up last, and who that is, as long as neither table is read again
	struct user known;
};

static int compare_names(const void *a, const void *b)
{
	const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;
	int order = strcmp(x->name, y->name);
	return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

static int compare_ids(const void *a, const void *b)
{
	const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;
	int order = (x->id > y->id) - (x->id < y->id);
	return order != 0 ? order : (x->line > y->line) - (x->line < y->line);
}

static void table_clear(struct table *t)
{
	for (size_t i = 0; i < t->count; i++)
		free(t->by_name[i]);
	free(t->by_name);
	free(t->by_id);
	t->by_name = t->by_id = NULL;
	t->count = t->cap = 0;
	t->loaded = false;
}

static bool table_grow(struct table *t)
{
	if (t->count < t->cap)
		return true;
	size_t cap = t->cap > 0 ? 2 * t->cap : 32;
	struct entry **grown = realloc(t->by_name, cap * sizeof(struct entry *));
	if (!grown)
		return false;
	t->by_name = grown;
	grown = realloc(t->by_id, cap * sizeof(struct entry *));
	if (!grown)
		return false;
	t->by_id = grown;
	t->cap = cap;
	return true;
}

// Adds an entry with room for TEXT bytes behind it, which *ROOM points to. NULL when out of memory.
static struct entry *table_add(struct table *t, size_t text, char **room)
{
	struct entry *e = table_grow(t) ? calloc(1, sizeof(*e) + text) : NULL;
	if (!e)
		return NULL;
	e->line = t->count;
	t->by_name[t->count] = t->by_id[t->count] = e;
	t->count++;
	*room = (char *)(e + 1);
	return e;
}

static char *put_text(char **room, const char *s)
{
	size_t n = strlen(s) + 1;
	char *at = memcpy(*room, s, n);
	*room += n;
	return at;
}

// NIS leftovers ("+", "-name") are no users.
static bool is_entry(const char *name)
{
	return name && *name && *name != '+' && *name != '-';
}

static int read_passwd(struct table *t, FILE *f, char *mem, size_t n)
{
	struct passwd pw, *got;
	int rc = fgetpwent_r(f, &pw, mem, n, &got);
	if (rc != 0 || !is_entry(pw.pw_name))
		return rc;
	const char *home = pw.pw_dir && *pw.pw_dir ? pw.pw_dir : "/";
	const char *shell = pw.pw_shell && *pw.pw_shell ? pw.pw_shell : "/bin/sh"; // passwd(5)
	char *room;
	struct entry *e = table_add(t, strlen(pw.pw_name) + strlen(home) + strlen(shell) + 3, &room);
	if (!e)
		return ENOMEM;
	e->id = pw.pw_uid;
	e->gid = pw.pw_gid;
	e->name = put_text(&room, pw.pw_name);
	e->home = put_text(&room, home);
	e->shell = put_text(&room, shell);
	return 0;
}

static int read_group(struct table *t, FILE *f, char *mem, size_t n)
{
	struct group gr, *got;
	int rc = fgetgrent_r(f, &gr, mem, n, &got);
	if (rc != 0 || !is_entry(gr.gr_name))
		return rc;
	size_t text = strlen(gr.gr_name) + 2;
	for (char **m = gr.gr_mem; *m; m++)
		text += strlen(*m) + 1;
	char *room;
	struct entry *e = table_add(t, text, &room);
	if (!e)
		return ENOMEM;
	e->id = gr.gr_gid;
	e->name = put_text(&room, gr.gr_name);
	e->members = room;
	for (char **m = gr.gr_mem; *m; m++)
		if (**m)
			put_text(&room, *m);
	return 0; // calloc left the empty name at the end
}

static struct stamp stamp_of(const struct stat *st)
{
	int64_t mtime = (int64_t)st->st_mtim.tv_sec * 1000 + st->st_mtim.tv_nsec / 1000000;
	return (struct stamp){.exists = true,
		.young = io_wall_ms() - mtime < TICK_MS,
		.dev = st->st_dev,
		.ino = st->st_ino,
		.size = st->st_size,
		.mtime = st->st_mtim};
}

static bool stamp_same(const struct stamp *a, const struct stamp *b)
{
	return a->exists == b->exists && a->dev == b->dev && a->ino == b->ino && a->size == b->size &&
	       a->mtime.tv_sec == b->mtime.tv_sec && a->mtime.tv_nsec == b->mtime.tv_nsec;
}

// Opens the file and says what it was before the first byte is read. Non-blocking, for it might be a fifo.
static int table_open(const char *path, FILE **out, struct stamp *stamp)
{
	int fd = IO_AGAIN(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
	if (fd < 0)
		return -errno;
	struct stat st;
	int rc = fstat(fd, &st) < 0 ? -errno : 0;
	if (rc == 0 && !S_ISREG(st.st_mode))
		rc = S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL;
	if (rc == 0 && st.st_size > FILE_MAX_BYTES)
		rc = -EFBIG;
	if (rc == 0) {
		*stamp = stamp_of(&st);
		*out = fdopen(fd, "r");
		if (*out)
			return 0;
		rc = -ENOMEM;
	}
	io_close(&fd);
	return rc;
}

// Reads every line; a line too long for the memory at hand is read again with more.
static int table_read(struct table *t, FILE *f)
{
	size_t n = LINE_START;
	char *mem = malloc(n);
	int rc = mem ? 0 : ENOMEM;
	while (rc == 0) {
		off_t at = ftello(f);
		rc = t->read(t, f, mem, n);
		if (rc != ERANGE)
			continue;
		char *grown = n <= 4 * (size_t)FILE_MAX_BYTES ? realloc(mem, 2 * n) : NULL;
		rc = !grown ? ENOMEM : fseeko(f, at, SEEK_SET) < 0 ? errno : 0;
		if (grown) {
			mem = grown;
			n *= 2;
		}
	}
	free(mem);
	if (ferror(f))
		return -EIO;
	return rc == ENOENT ? 0 : -rc; // the end of the file
}

static int table_load(struct table *t)
{
	struct table fresh = {.path = t->path, .read = t->read};
	FILE *f = NULL;
	int rc = table_open(t->path, &f, &fresh.stamp);
	if (rc == 0) {
		rc = table_read(&fresh, f);
		fclose(f);
	} else if (rc == -ENOENT || rc == -ENOTDIR) {
		rc = 0; // no file: an empty table
	}
	if (rc < 0) {
		table_clear(&fresh);
		return rc;
	}
	if (fresh.count > 0) {
		qsort(fresh.by_name, fresh.count, sizeof(struct entry *), compare_names);
		qsort(fresh.by_id, fresh.count, sizeof(struct entry *), compare_ids);
	}
	fresh.loaded = true;
	table_clear(t);
	*t = fresh;
	return 0;
}

static void forget(struct users *u)
{
	free(u->asked);
	u->asked = NULL;
	user_release(&u->known);
}

// Reads the file again if it is not the one that was read. On failure what was known stays.
static int table_refresh(struct users *u, struct table *t)
{
	struct stat st;
	struct stamp now = {0};
	if (stat(t->path, &st) == 0)
		now = stamp_of(&st);
	if (t->loaded && !t->stamp.young && stamp_same(&now, &t->stamp))
		return 0;
	forget(u);
	u->generation++;
	return table_load(t);
}

static int look(struct users *u)
{
	u->turn = u->loop ? ev_iteration(u->loop) : 0;
	notice_look(&u->notice);
	int rc = table_refresh(u, &u->passwd), other = table_refresh(u, &u->group);
	rc = rc < 0 ? rc : other;
	u->looked = rc == 0;
	if (rc < 0 || u->passwd.stamp.young || u->group.stamp.young)
		notice_doubt(&u->notice);
	return rc;
}

static bool looked_now(const struct users *u)
{
	return u->looked && u->loop && u->turn == ev_iteration(u->loop);
}

// A small request asks up to six times, and the two files were a tenth of what it cost.
static int refresh(struct users *u)
{
	return looked_now(u) || (u->looked && notice_quiet(&u->notice)) ? 0 : look(u);
}

// For a name or id that is not known, which may be a new one that notice does not see yet. True if it is worth to look for it again.
static bool refresh_for_new(struct users *u)
{
	unsigned before = u->generation;
	return u->loop && !looked_now(u) && look(u) == 0 && u->generation != before;
}

static const struct entry *find_name(const struct table *t, const char *name)
{
	size_t low = 0, high = t->count;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (strcmp(t->by_name[mid]->name, name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low < t->count && strcmp(t->by_name[low]->name, name) == 0 ? t->by_name[low] : NULL;
}

static const struct entry *find_id(const struct table *t, unsigned id)
{
	size_t low = 0, high = t->count;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (t->by_id[mid]->id < id)
			low = mid + 1;
		else
			high = mid;
	}
	return low < t->count && t->by_id[low]->id == id ? t->by_id[low] : NULL;
}

static const struct entry *find_user(const struct table *t, const char *name)
{
	static const struct entry root = {.name = "root", .home = "/root", .shell = "/bin/sh"};
	long long id;
	const struct entry *e = find_name(t, name);
	// The uid 2^32-1 is "unchanged" to the kernel.
	if (!e && *name >= '0' && *name <= '9' && text_int(name, strlen(name), 0, UINT_MAX - 1, &id) == 0)
		e = find_id(t, (unsigned)id);
	if (!e && (strcmp(name, "root") == 0 || strcmp(name, "0") == 0))
		e = &root;
	return e;
}

static bool is_member(const struct entry *group, const char *name)
{
	for (const char *m = group->members; *m; m += strlen(m) + 1)
		if (strcmp(m, name) == 0)
			return true;
	return false;
}

// The primary group, then those that list the user. 0 or -ENOMEM.
static int collect_groups(const struct table *t, const struct entry *e, struct user *out)
{
	size_t cap = 0;
	out->groups = NULL;
	out->group_count = 0;
	for (size_t i = 0; i <= t->count && out->group_count < GROUPS_MAX; i++) {
		const struct entry *group = i > 0 ? t->by_id[i - 1] : NULL;
		gid_t gid = group ? group->id : e->gid;
		// Sorted by gid: a group of several lines comes in a row.
		if (group && (gid == e->gid || out->groups[out->group_count - 1] == gid || !is_member(group, e->name)))
			continue;
		if (out->group_count == cap) {
			cap = cap > 0 ? 2 * cap : 8;
			gid_t *grown = realloc(out->groups, cap * sizeof(gid_t));
			if (!grown) {
				free(out->groups);
				return -ENOMEM;
			}
			out->groups = grown;
		}
		out->groups[out->group_count++] = gid;
	}
	return 0;
}

struct users *users_new(const char *passwd, const char *group)
{
	struct users *u = calloc(1, sizeof(*u));
	if (!u)
		return NULL;
	u->passwd = (struct table){.path = passwd, .read = read_passwd};
	u->group = (struct table){.path = group, .read = read_group};
	return u;
}

void users_free(struct users *u)
{
	if (!u)
		return;
	notice_release(&u->notice);
	forget(u);
	table_clear(&u->passwd);
	table_clear(&u->group);
	free(u);
}

void users_by_turns(struct users *u, struct ev_loop *loop)
{
	u->loop = loop;
	notice_init(&u->notice, loop, u->passwd.path, u->group.path);
}

unsigned users_generation(struct users *u)
{
	return refresh(u) == 0 ? u->generation : 0;
}

// The uid that celld runs as needs no line in passwd: containers are often given one that has none.
static int own_identity(const char *name, struct user *out)
{
	long long uid;
	if (text_int(name, strlen(name), 0, UINT_MAX - 1, &uid) < 0 || (uid_t)uid != geteuid())
		return -ENOENT;
	int count = getgroups(0, NULL);
	gid_t *groups = malloc(((size_t)(count < 0 ? 0 : count) + 1) * sizeof *groups);
	if (!groups)
		return -ENOMEM;
	count = getgroups(count, groups);
	struct user user = {.uid = (uid_t)uid, .gid = getegid(), .groups = groups};
	user.group_count = count < 0 ? 0 : (size_t)count;
	user.name = (char *)name;
	user.home = (char *)"/";
	user.shell = (char *)"/bin/sh";
	int rc = user_dup(out, &user);
	free(groups);
	return rc;
}

static int find(struct users *u, const char *name, struct user *out)
{
	const struct entry *e = find_user(&u->passwd, name);
	if (!e)
		return own_identity(name, out);
	// Borrowed texts, which user_dup copies.
	struct user user = {.uid = e->id,
		.gid = e->gid,
		.name = (char *)e->name,
		.home = (char *)e->home,
		.shell = (char *)e->shell};
	int rc = collect_groups(&u->group, e, &user);
	if (rc == 0) {
		rc = user_dup(out, &user);
		free(user.groups);
	}
	return rc;
}

int users_find(struct users *u, const char *name, struct user *out)
{
	memset(out, 0, sizeof(*out));
	int rc = refresh(u);
	if (rc < 0)
		return rc;
	if (u->asked && strcmp(u->asked, name) == 0)
		return user_dup(out, &u->known);
	rc = find(u, name, out);
	if (rc == -ENOENT && refresh_for_new(u))
		rc = find(u, name, out);
	if (rc < 0)
		return rc;
	// Kept for the next one, who mostly asks for the same.
	forget(u);
	rc = user_dup(&u->known, out);
	u->asked = rc == 0 ? strdup(name) : NULL;
	if (u->asked)
		return 0;
	user_release(out);
	return -ENOMEM;
}

// What is known is better than nothing if the file cannot be read just now.
static const char *id_name(struct users *u, struct table *t, unsigned id)
{
	(void)refresh(u);
	const struct entry *e = find_id(t, id);
	if (!e && refresh_for_new(u))
		e = find_id(t, id);
	return e ? e->name : id == 0 ? "root" : NULL;
}

const char *users_uid_name(struct users *u, uid_t uid)
{
	return id_name(u, &u->passwd, uid);
}

const char *users_gid_name(struct users *u, gid_t gid)
{
	return id_name(u, &u->group, gid);
}

void user_release(struct user *u)
{
	free(u->mem);
	memset(u, 0, sizeof(*u));
}

static size_t text_size(const char *s)
{
	return s ? strlen(s) + 1 : 0;
}

// S copied to *AT, which goes on behind it.
static char *copy_to(char **at, const char *s)
{
	return s ? put_text(at, s) : NULL;
}

int user_dup(struct user *out, const struct user *u)
{
	struct user copy = {.uid = u->uid, .gid = u->gid, .group_count = u->group_count};
	size_t groups = u->group_count * sizeof(gid_t); // first, for their alignment
	char *at = copy.mem = malloc(groups + text_size(u->name) + text_size(u->home) + text_size(u->shell) + 1);
	*out = (struct user){0};
	if (!at)
		return -ENOMEM;
	if (groups > 0) {
		copy.groups = memcpy(at, u->groups, groups);
		at += groups;
	}
	copy.name = copy_to(&at, u->name);
	copy.home = copy_to(&at, u->home);
	copy.shell = copy_to(&at, u->shell);
	*out = copy;
	return 0;
}
