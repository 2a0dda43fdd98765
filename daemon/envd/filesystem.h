// SPDX-License-Identifier: Apache-2.0
// filesystem: the service filesystem.Filesystem (contract B section 4). What its files share: filesystem.c (the table, the short
// calls), filesystem_entry.c (what is told of one entry), filesystem_list.c, filesystem_job.c (answers made in slices),
// filesystem_watch.c (beginning to watch, streams), filesystem_poll.c (watchers that are asked). Nobody else includes it.
#ifndef CELLD_ENVD_FILESYSTEM_H
#define CELLD_ENVD_FILESYSTEM_H

#include "daemon/core/slice.h"
#include "daemon/core/users.h"
#include "daemon/core/watch.h"
#include "daemon/envd/rpc.h"
#include "proto/buf.h"
#include "proto/err.h"
#include "proto/filesystem.pb-c.h"
#include "proto/pbjson.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

// --- filesystem.c ---

// A request's path as its user's: absolute, the caller's. NULL with E filled.
char *fs_path(struct rpc *r, const char *path, struct err *e);
// Fills E for a system call's failure RC: the message is what FMT gives and ": " and what RC means, in the real daemon's words. The code is
// CODE but when memory or descriptors are out. Returns -1.
int fs_failed(struct err *e, enum err_code code, int rc, const char *fmt, ...) __attribute__((format(printf, 4, 5)));

// --- filesystem_entry.c ---

// The last name that was looked up.
enum { FS_ID_TEXT = 40 };
struct fs_id {
	char *name; // or the number; NULL: none was
	char *mem;  // what it is in, if TEXT is too small
	size_t n;   // bytes of name
	bool plain; // it can stand in JSON as it is
	unsigned id;
	char text[FS_ID_TEXT];
};

// What is told of one entry (contract B 4.1). Zeroed it is empty; it may be filled again and again.
struct fs_entry {
	Filesystem__EntryInfo info; // points into the rest
	Filesystem__Timestamp time;
	struct buf text;
	Filesystem__EntryInfo__MetadataEntry *metas; // private
	char permissions[16];
	struct fs_id owner, group; // private, as the rest: for many of the same owner
	bool by_path;              // the kernel has no listxattrat
	size_t path_n, name_n;     // bytes of the texts
	bool plain;                // the path is as it was given, and can stand in JSON so
	bool borrowed;             // the name too
	size_t permissions_n;
	mode_t told;                   // what permissions says
	int64_t second;                // of the last time that was written
	char second_text[PBJSON_TIME]; // and how
};
// Of the entry REL in the directory AT (AT_FDCWD: REL is PATH), whose lstat is ST and which is told under PATH, which has to stay until the
// next fill. Bytes that are not UTF-8 become U+FFFD. 0 or -ENOMEM.
int fs_entry_fill(
	struct fs_entry *e, struct users *u, int at, const char *rel, const char *path, const struct stat *st);
// Appends it as JSON: what pbjson_write of its info would. 0 or negative errno, as that.
int fs_entry_json(struct buf *out, struct fs_entry *e);
// The owners' names may have changed since the last fill.
void fs_entry_forget(struct fs_entry *e);
// lstat and fill, all of it anew. 0 or negative errno.
int fs_entry_of(struct fs_entry *e, struct users *u, const char *path);
void fs_entry_release(struct fs_entry *e);

// --- filesystem_job.c ---

enum fs_state {
	FS_MORE,   // step again
	FS_DONE,   // the answer in out is whole
	FS_FAILED, // err says why: the answer is that, or, if half of another one is out, the connection is cut
};

struct fs_job;

struct fs_job_ops {
	// Goes on until UNTIL (io_mono_ns) or until out has grown by some 64 KiB.
	enum fs_state (*step)(struct fs_job *j, int64_t until);
	// The end, also of one that was given up. Frees J itself.
	void (*free)(struct fs_job *j);
	bool keep_on; // it goes on to its end even if nobody waits for the answer any more
	bool whole;   // it may fail as long as it goes on: nothing of the answer goes out before its end
};

// A unary call that is served in slices. A short answer goes out whole with its length, a longer one is streamed as the reader takes
// it, in constant memory. The owner embeds it as its first member and allocates it; fs_job_start takes it over.
struct fs_job {
	struct slice_job slice; // private
	struct slices *slices;  // private
	struct rpc *rpc;        // private: NULL once the client is gone or a stream has begun
	struct conn *conn;      // private: of the stream
	const struct fs_job_ops *ops;
	bool json;
	size_t count; // private: of elements
	struct buf out;
	struct err err;
	bool ended; // private: out has its last bytes
};
// Serves R with J (zeroed, or filled by its owner beyond the job), its first step now: J may be gone afterwards.
void fs_job_start(struct fs_job *j, struct rpc *r, const struct fs_job_ops *ops);
// An answer that is one list, the field 1 of its message and NAME in JSON: appends an element, and what stands behind the last one.
void fs_job_put(struct fs_job *j, const char *name, const ProtobufCMessage *m);
void fs_job_put_entry(struct fs_job *j, const char *name, struct fs_entry *e);
void fs_job_put_end(struct fs_job *j);

void fs_list(struct rpc *r, const ProtobufCMessage *req);

// --- filesystem_watch.c ---

// What a client wants to be watched.
struct fs_watch_ask {
	const char *path;
	bool recursive;
	bool any_mount; // network file systems too
	void *arg;      // of the callbacks
	void (*ready)(void *arg, int rc);
	void (*changed)(void *arg);
};
// Checks the path and begins to watch (core/watch.h: watches_add): 0, or -1 with E filled. *PATH is the caller's in either case, NULL
// if it could not be made out.
int fs_watch_open(struct rpc *r, const struct fs_watch_ask *ask, struct watcher **w, char **path, struct err *e);
// Fills E for a watch on PATH that failed with RC. Returns -1.
int fs_watch_error(struct err *e, int rc, const char *path);
// Fills E for a watcher that has lost events. Returns -1.
int fs_watch_lost(struct err *e);

// One event as a message. Zeroed it is empty; it may be filled again and again.
struct fs_event {
	Filesystem__FilesystemEvent event; // points into the rest
	struct buf name;
	struct fs_entry entry;
};
// Of EV, which is no WATCH_LOST; with what its path has now, if that is wanted (WITH_ENTRY) and it is an event that has it. 0 or -ENOMEM.
int fs_event_fill(struct fs_event *f, struct users *u, const struct watch_event *ev, bool with_entry);
void fs_event_release(struct fs_event *f);

void fs_watch_dir(struct rpc *r, const ProtobufCMessage *req);

// --- filesystem_poll.c ---

void fs_create_watcher(struct rpc *r, const ProtobufCMessage *req);
void fs_get_watcher_events(struct rpc *r, const ProtobufCMessage *req);
void fs_remove_watcher(struct rpc *r, const ProtobufCMessage *req);

#endif
