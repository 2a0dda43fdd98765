// SPDX-License-Identifier: Apache-2.0
#include "daemon/envd/filesystem.h"

#include "daemon/core/files.h"
#include "daemon/core/walk.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ENTRY_ROOM 768 // for one as JSON, mostly

char *fs_path(struct rpc *r, const char *path, struct err *e)
{
	const struct user *u = rpc_user_now(r, e);
	return u ? envd_path(rpc_envd(r), u, path, e) : NULL;
}

int fs_failed(struct err *e, enum err_code code, int rc, const char *fmt, ...)
{
	char what[sizeof e->msg];
	char text[64];
	va_list ap;
	(void)snprintf(text, sizeof text, ": %s", strerror(-rc));
	if (islower((unsigned char)text[3]))
		text[2] = (char)tolower((unsigned char)text[2]);
	va_start(ap, fmt);
	// A long path gives way to the reason.
	(void)vsnprintf(what, sizeof what - strlen(text), fmt, ap);
	va_end(ap);
	bool again = rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE;
	return err_set(e, again ? ERR_RESOURCE_EXHAUSTED : code, "%s%s", what, text);
}

// As reply_entry, in JSON.
static void reply_json(struct rpc *r, struct fs_entry *entry)
{
	struct buf body;
	char room[ENTRY_ROOM];
	buf_init_in(&body, room, sizeof room);
	BUF_LIT(&body, "{\"entry\":");
	(void)fs_entry_json(&body, entry); // its failure sticks, and is what goes out
	buf_byte(&body, '}');
	rpc_reply_body(r, &body);
	buf_release(&body);
}

// Answers with PATH's entry as the only field, called entry, of RESPONSE, whose member it is.
static void reply_entry(struct rpc *r, const char *path, ProtobufCMessage *response, Filesystem__EntryInfo **member)
{
	struct fs_entry entry = {0};
	struct err e;
	int rc = fs_entry_of(&entry, rpc_envd(r)->users, path);
	if (rc == 0 && rpc_is_json(r)) {
		reply_json(r, &entry);
	} else if (rc == 0) {
		*member = &entry.info;
		rpc_reply(r, response);
	} else {
		if (rc == -ENOENT)
			fs_failed(&e, ERR_NOT_FOUND, rc, "file not found: lstat %s", path);
		else
			fs_failed(&e, ERR_INTERNAL, rc, "error getting file info: lstat %s", path);
		rpc_error(r, &e);
	}
	fs_entry_release(&entry);
}

static void stat_call(struct rpc *r, const ProtobufCMessage *m)
{
	const Filesystem__StatRequest *req = (const void *)m;
	Filesystem__StatResponse res = FILESYSTEM__STAT_RESPONSE__INIT;
	struct err e;
	const struct user *u = rpc_user_now(r, &e);
	bool absolute = u && req->path[0] == '/'; // it is not copied then
	char *made = u && !absolute ? envd_path(rpc_envd(r), u, req->path, &e) : NULL;
	if (absolute || made)
		reply_entry(r, absolute ? req->path : made, &res.base, &res.entry);
	else
		rpc_error(r, &e);
	free(made);
}

// --- MakeDir ---

// What of PATH is there and is no directory, cut off behind it; else PATH as it is.
static void cut_at_file(char *path)
{
	struct stat st;
	for (char *p = path + 1; *p; p++) {
		if (*p != '/')
			continue;
		*p = '\0';
		if (stat(path, &st) < 0 || !S_ISDIR(st.st_mode))
			return;
		*p = '/';
	}
}

// Makes PATH, which is changed, and what is missing above it for the user of R; what is there is left alone. 0, or -1 with E filled.
static int make_dirs(struct rpc *r, char *path, struct err *e)
{
	struct stat st;
	const struct user *u = rpc_user(r, e);
	if (!u)
		return -1;
	int rc = files_mkdir(path, true, &(struct files_owner){u->uid, u->gid});
	if (rc == -EEXIST) {
		if (stat(path, &st) < 0)
			return fs_failed(e, ERR_INTERNAL, -errno, "failed to chown directory: chown %s", path);
		rc = S_ISDIR(st.st_mode) ? 0 : -ENOTDIR;
	}
	if (rc == 0)
		return 0;
	if (rc != -ENOTDIR)
		return fs_failed(e, ERR_INTERNAL, rc, "failed to create directory: mkdir %s", path);
	cut_at_file(path);
	return err_set(e, ERR_INTERNAL, "path is a file: %s", path);
}

// True if nothing is at PATH yet; else E says why it cannot be made.
static bool is_free(const char *path, struct err *e)
{
	struct stat st;
	if (stat(path, &st) == 0)
		if (S_ISDIR(st.st_mode))
			err_set(e, ERR_ALREADY_EXISTS, "directory already exists: %s", path);
		else
			err_set(e, ERR_INVALID_ARGUMENT, "path already exists but it is not a directory: %s", path);
	else if (errno == ENOENT)
		return true;
	else
		fs_failed(e, ERR_INTERNAL, -errno, "error getting file info: stat %s", path);
	return false;
}

static void make_dir_call(struct rpc *r, const ProtobufCMessage *m)
{
	const Filesystem__MakeDirRequest *req = (const void *)m;
	Filesystem__MakeDirResponse res = FILESYSTEM__MAKE_DIR_RESPONSE__INIT;
	struct err e;
	char *path = fs_path(r, req->path, &e);
	if (path && is_free(path, &e) && make_dirs(r, path, &e) == 0)
		reply_entry(r, path, &res.base, &res.entry);
	else
		rpc_error(r, &e);
	free(path);
}

// --- Move ---

// Makes what is missing above PATH.
static int make_parents(struct rpc *r, const char *path, struct err *e)
{
	char *dir = strdup(path);
	if (!dir)
		return err_sys(e, -ENOMEM, "path");
	size_t n = strlen(dir);
	while (n > 1 && dir[n - 1] == '/')
		n--;
	while (n > 0 && dir[n - 1] != '/')
		n--;
	while (n > 1 && dir[n - 1] == '/')
		n--;
	dir[n] = '\0';
	int rc = n > 0 ? make_dirs(r, dir, e) : 0;
	free(dir);
	return rc;
}

// rename(2), but never onto a directory, and never across file systems.
static int move(const char *from, const char *to)
{
	struct stat source, there;
	if (lstat(to, &there) == 0 && S_ISDIR(there.st_mode)) {
		if (lstat(from, &source) < 0)
			return -errno;
		if (strcmp(from, to) == 0 || source.st_dev != there.st_dev || source.st_ino != there.st_ino)
			return -EEXIST;
	}
	return files_rename(from, to);
}

// The path of what a call takes away. envd takes a path that is not there for the user's home, and no client means that.
static char *doomed_path(struct rpc *r, const char *path, struct err *e)
{
	char *full = fs_path(r, path, e);
	if (!full || *path)
		return full;
	free(full);
	err_set(e, ERR_INVALID_ARGUMENT, "path required");
	return NULL;
}

static void move_call(struct rpc *r, const ProtobufCMessage *m)
{
	const Filesystem__MoveRequest *req = (const void *)m;
	Filesystem__MoveResponse res = FILESYSTEM__MOVE_RESPONSE__INIT;
	struct err e;
	char *from = doomed_path(r, req->source, &e);
	char *to = from ? fs_path(r, req->destination, &e) : NULL;
	int rc = to && make_parents(r, to, &e) == 0 ? move(from, to) : 1;
	if (rc == -ENOENT)
		fs_failed(&e, ERR_NOT_FOUND, rc, "source file not found: rename %s %s", from, to);
	else if (rc < 0)
		fs_failed(&e, ERR_INTERNAL, rc, "error renaming: rename %s %s", from, to);
	if (rc == 0)
		reply_entry(r, to, &res.base, &res.entry);
	else
		rpc_error(r, &e);
	free(from);
	free(to);
}

// --- Remove ---

struct removal {
	struct fs_job job; // first
	struct walk_remove *remove;
};

static bool remove_on(struct slice_job *slice)
{
	struct removal *m = (struct removal *)slice;
	bool more = walk_remove_step(m->remove, slice_until());
	slice_await(slice, walk_remove_fd(m->remove));
	return more;
}

static int remove_error(struct err *e, int rc, const char *path)
{
	return fs_failed(e, ERR_INTERNAL, rc, "error removing file or directory: %s %s",
		rc == -EINVAL ? "RemoveAll" : "unlinkat", path);
}

static enum fs_state remove_step(struct fs_job *j, int64_t until)
{
	struct removal *m = (struct removal *)j;
	const char *where = NULL;
	(void)until;
	if (m->remove && remove_on(&j->slice)) {
		if (walk_remove_is_long(m->remove))
			slice_gently(&j->slice, remove_on);
		return FS_MORE;
	}
	int rc = m->remove ? walk_remove_error(m->remove, &where) : 0;
	if (rc < 0 && rc != -ENOENT) {
		remove_error(&j->err, rc, where);
		return FS_FAILED;
	}
	fs_job_put_end(j); // an empty message
	return FS_DONE;
}

static void remove_free(struct fs_job *j)
{
	struct removal *m = (struct removal *)j;
	walk_remove_free(m->remove);
	free(m);
}

static void remove_call(struct rpc *r, const ProtobufCMessage *req)
{
	static const struct fs_job_ops ops = {.step = remove_step, .free = remove_free, .keep_on = true};
	struct err e;
	struct removal *m = calloc(1, sizeof *m);
	char *path = m ? doomed_path(r, ((const Filesystem__RemoveRequest *)(const void *)req)->path, &e) : NULL;
	int rc = path ? walk_remove_new(&m->remove, path, 0) : 0;
	if (!m)
		err_sys(&e, -ENOMEM, "remove");
	else if (rc < 0 && rc != -ENOENT)
		remove_error(&e, rc, path);
	if (path && (rc == 0 || rc == -ENOENT)) {
		fs_job_start(&m->job, r, &ops);
	} else {
		rpc_error(r, &e);
		free(m);
	}
	free(path);
}

// --- the service ---

#define PATH "/filesystem.Filesystem/"
#define MESSAGES(x) &filesystem__##x##_request__descriptor, &filesystem__##x##_response__descriptor

const struct rpc_method *envd_filesystem_methods(void)
{
	static const struct rpc_method methods[] = {
		{PATH "Stat", RPC_UNARY, MESSAGES(stat), stat_call, NULL},
		{PATH "MakeDir", RPC_UNARY, MESSAGES(make_dir), make_dir_call, NULL},
		{PATH "Move", RPC_UNARY, MESSAGES(move), move_call, NULL},
		{PATH "ListDir", RPC_UNARY, MESSAGES(list_dir), fs_list, NULL},
		{PATH "Remove", RPC_UNARY, MESSAGES(remove), remove_call, NULL},
		{PATH "WatchDir", RPC_SERVER_STREAM, MESSAGES(watch_dir), fs_watch_dir, NULL},
		{PATH "CreateWatcher", RPC_UNARY, MESSAGES(create_watcher), fs_create_watcher, NULL},
		{PATH "GetWatcherEvents", RPC_UNARY, MESSAGES(get_watcher_events), fs_get_watcher_events, NULL},
		{PATH "RemoveWatcher", RPC_UNARY, MESSAGES(remove_watcher), fs_remove_watcher, NULL},
		{0},
	};
	return methods;
}
