// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/files.h"
#include "daemon/core/walk.h"
#include "daemon/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// How often a directory is gone through that others keep filling.
enum { PASSES_MAX = 16 };

struct walk_remove {
	struct walk *walk; // NULL if there is nothing (more) to walk
	bool single;       // the root is no directory and still there
	int parent;        // of the root, -1 with WALK_KEEP_ROOT
	char *path;
	const char *base; // the last part of path
	unsigned flags;
	unsigned passes;    // over the root
	uint64_t count;     // of removed entries
	uint64_t count_was; // when this pass began
	int err;
	char *where;
};

static void note(struct walk_remove *r, int err, const char *path)
{
	if (r->err)
		return;
	r->err = err;
	r->where = strdup(path);
}

static int start_pass(struct walk_remove *r, int fd)
{
	walk_free(r->walk);
	r->walk = NULL;
	r->passes++;
	r->count_was = r->count;
	return fd < 0 ? fd : walk_new(&r->walk, fd, r->path);
}

static int open_root(const struct walk_remove *r)
{
	return r->flags & WALK_KEEP_ROOT ? walk_open_root(r->path) : walk_open_dir(r->parent, r->base);
}

// Opens the directory that has the root and finds the root's name.
static int open_parent(struct walk_remove *r)
{
	size_t n = strlen(r->path);
	while (n > 1 && r->path[n - 1] == '/')
		r->path[--n] = '\0';
	char *slash = strrchr(r->path, '/');
	if (!slash)
		return -EINVAL;
	r->base = slash + 1;
	if (!*r->base || strcmp(r->base, ".") == 0 || strcmp(r->base, "..") == 0)
		return -EINVAL;
	*slash = '\0';
	r->parent = IO_AGAIN(open(slash == r->path ? "/" : r->path, O_PATH | O_DIRECTORY | O_CLOEXEC));
	int rc = r->parent < 0 ? -errno : 0;
	*slash = '/';
	return rc;
}

int walk_remove_new(struct walk_remove **out, const char *path, unsigned flags)
{
	struct walk_remove *r = calloc(1, sizeof *r);
	if (!r)
		return -ENOMEM;
	r->parent = -1;
	r->flags = flags;
	r->path = strdup(path);
	int rc = !r->path ? -ENOMEM : flags & WALK_KEEP_ROOT ? 0 : open_parent(r);
	if (rc == 0) {
		rc = start_pass(r, open_root(r));
		r->single = (rc == -ENOTDIR || rc == -ELOOP) && r->base;
	}
	if (rc < 0 && !r->single) {
		walk_remove_free(r);
		return rc == -EXDEV ? -EBUSY : rc;
	}
	*out = r;
	return 0;
}

void walk_remove_free(struct walk_remove *r)
{
	if (!r)
		return;
	walk_free(r->walk);
	io_close(&r->parent);
	free(r->path);
	free(r->where);
	free(r);
}

// RC of an attempt that was made on E: what has gone away by itself is no failure.
static void judge(struct walk_remove *r, int rc, const char *path)
{
	if (rc == 0)
		r->count++;
	if (rc == 0 || rc == -ENOENT)
		return;
	walk_mark(r->walk);
	bool mount = rc == -EBUSY || rc == -EXDEV;
	if (!mount || !(r->flags & WALK_KEEP_MOUNTS))
		note(r, mount ? -EBUSY : rc, path);
}

static int unlink_at(int dirfd, const char *name, int flags)
{
	return unlinkat(dirfd, name, flags) < 0 ? -errno : 0;
}

static void on_entry(struct walk_remove *r, const struct walk_entry *e)
{
	int rc;
	if (e->type != DT_DIR) {
		rc = unlink_at(e->dirfd, e->name, 0);
		// A directory by now: the next pass sees it.
		if (rc != -EISDIR)
			judge(r, rc, e->path);
		return;
	}
	rc = walk_enter(r->walk);
	if (rc < 0 && rc != -ENOTDIR && rc != -ELOOP)
		judge(r, rc, e->path);
}

static void on_leave(struct walk_remove *r, const struct walk_entry *e)
{
	if (e->marked)
		return;
	int rc = unlink_at(e->dirfd, e->name, AT_REMOVEDIR);
	if ((rc == -ENOTEMPTY || rc == -EEXIST) && e->passes < PASSES_MAX && walk_enter(r->walk) == 0)
		return;
	judge(r, rc, e->path);
}

// The walk is through. The root itself, or another pass if there may be more.
static void on_done(struct walk_remove *r, bool marked)
{
	int rc = 0;
	if (r->flags & WALK_KEEP_ROOT)
		// Some file systems skip entries while others are removed.
		rc = r->count != r->count_was ? -ENOTEMPTY : 0;
	else if (!marked)
		rc = unlink_at(r->parent, r->base, AT_REMOVEDIR);
	if ((rc == -ENOTEMPTY || rc == -EEXIST) && r->passes < PASSES_MAX) {
		rc = start_pass(r, open_root(r));
		if (rc == 0)
			return;
	} else if (rc == 0 && !marked && !(r->flags & WALK_KEEP_ROOT)) {
		r->count++;
	}
	if (rc < 0 && rc != -ENOENT)
		note(r, rc, r->path);
	walk_free(r->walk);
	r->walk = NULL;
}

bool walk_remove_step(struct walk_remove *r, int64_t until)
{
	struct walk_entry e;
	if (r->single) {
		r->single = false;
		int rc = files_unlink(r->parent, r->base);
		r->count += rc == 0;
		if (rc < 0)
			note(r, rc, r->path);
	}
	while (r->walk) {
		switch (walk_next(r->walk, &e)) {
		case WALK_ENTRY:
			on_entry(r, &e);
			break;
		case WALK_LEAVE:
			on_leave(r, &e);
			break;
		case WALK_ERROR:
			judge(r, e.err, e.path);
			break;
		case WALK_DONE:
			on_done(r, e.marked);
			break;
		}
		if (io_mono_ns() >= until)
			break;
	}
	return r->walk != NULL;
}

bool walk_remove_is_tree(const struct walk_remove *r)
{
	return r->walk != NULL;
}

uint64_t walk_remove_count(const struct walk_remove *r)
{
	return r->count;
}

int walk_remove_error(const struct walk_remove *r, const char **path)
{
	if (path)
		*path = r->where ? r->where : r->path;
	return r->err;
}
