// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/files.h"
#include "daemon/core/walk.h"
#include "daemon/core/walk_aside.h"
#include "daemon/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// How often a directory is gone through that others keep filling.
enum { PASSES_MAX = 16 };
// What has not come to its end after so much work goes on in a process of its own: to make one takes a third of that.
#define ASIDE_AFTER_NS ((int64_t)1000000)
// A file of that much goes at once: one call frees it (60 us a MiB). Most have far less, so the look costs little of the millisecond above.
#define ASIDE_SIZE ((int64_t)16 * 1024 * 1024)

struct walk_remove {
	struct walk *walk; // NULL if there is nothing (more) to walk
	bool single;       // the root is no directory and still there
	int parent;        // of the root; with WALK_KEEP_ROOT itself: nobody can put another in its place
	bool known;        // which directory the root is: DEV and INO
	dev_t dev;
	ino_t ino;
	char *path;
	const char *base; // the last part of path
	unsigned flags;
	unsigned passes;    // over the root
	uint64_t count;     // of removed entries
	uint64_t count_was; // when this pass began
	int err;
	char *where;
	int64_t worked_ns;
	bool stays;          // in this process
	bool at_once;        // this step is the last
	bool second;         // this one helps another
	struct aside *aside; // or NULL; there is no walk here meanwhile
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
	int rc = fd < 0 ? fd : walk_new(&r->walk, fd, r->path);
	if (rc == 0)
		walk_set_order(r->walk, r->second ? WALK_DIRECTORIES_FIRST : WALK_FILES_FIRST);
	return rc;
}

static int open_root(const struct walk_remove *r)
{
	struct stat st;
	int fd = walk_open_dir(r->parent, r->flags & WALK_KEEP_ROOT ? "." : r->base);
	if (fd < 0 || !r->known)
		return fd;
	int rc = fstat(fd, &st) < 0 ? -errno : 0;
	if (rc == 0 && (st.st_dev != r->dev || st.st_ino != r->ino))
		rc = -ESTALE;
	if (rc < 0)
		io_close(&fd);
	return rc < 0 ? rc : fd;
}

static int cut_name(struct walk_remove *r)
{
	size_t n = strlen(r->path);
	while (n > 1 && r->path[n - 1] == '/')
		r->path[--n] = '\0';
	char *slash = strrchr(r->path, '/');
	if (!slash)
		return -EINVAL;
	r->base = slash + 1;
	return !*r->base || strcmp(r->base, ".") == 0 || strcmp(r->base, "..") == 0 ? -EINVAL : 0;
}

// Opens the directory that has the root and finds the root's name.
static int open_parent(struct walk_remove *r)
{
	int rc = cut_name(r);
	if (rc < 0)
		return rc;
	char *slash = strrchr(r->path, '/');
	*slash = '\0';
	r->parent = IO_AGAIN(open(slash == r->path ? "/" : r->path, O_PATH | O_DIRECTORY | O_CLOEXEC));
	rc = r->parent < 0 ? -errno : 0;
	*slash = '/';
	return rc;
}

static int open_kept(struct walk_remove *r)
{
	r->parent = files_open_trusted(r->path);
	return r->parent < 0 ? r->parent : 0;
}

static int open_given(struct walk_remove *r, int at, const struct stat *st)
{
	int rc = cut_name(r);
	if (rc < 0)
		return rc;
	r->known = true;
	r->dev = st->st_dev;
	r->ino = st->st_ino;
	r->parent = fcntl(at, F_DUPFD_CLOEXEC, 3);
	return r->parent < 0 ? -errno : 0;
}

static struct walk_remove *remove_alloc(const char *path, unsigned flags)
{
	struct walk_remove *r = calloc(1, sizeof *r);
	if (!r)
		return NULL;
	r->parent = -1;
	r->flags = flags;
	r->path = strdup(path);
	if (r->path)
		return r;
	free(r);
	return NULL;
}

// RC: of the opening of its parent.
static int begin(struct walk_remove **out, struct walk_remove *r, int rc)
{
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

int walk_remove_new(struct walk_remove **out, const char *path, unsigned flags)
{
	struct walk_remove *r = remove_alloc(path, flags);
	return r ? begin(out, r, flags & WALK_KEEP_ROOT ? open_kept(r) : open_parent(r)) : -ENOMEM;
}

int walk_remove_at(struct walk_remove **out, int at, const char *path, const struct stat *st)
{
	struct walk_remove *r = remove_alloc(path, 0);
	return r ? begin(out, r, open_given(r, at, st)) : -ENOMEM;
}

void walk_remove_free(struct walk_remove *r)
{
	if (!r)
		return;
	aside_free(r->aside);
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

// The kernel frees it with the name: it has no other one. (Whoever has it open keeps it, which does not show.)
static bool is_large(int dirfd, const char *name)
{
	struct stat st;
	return fstatat(dirfd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(st.st_mode) && st.st_nlink == 1 &&
	       (int64_t)st.st_blocks * 512 >= ASIDE_SIZE;
}

static bool step_aside(struct walk_remove *r);

static bool leaves_it_aside(struct walk_remove *r, int dirfd, const char *name)
{
	return !r->stays && !r->at_once && is_large(dirfd, name) && step_aside(r);
}

static int unlink_at(int dirfd, const char *name, int flags)
{
	return unlinkat(dirfd, name, flags) < 0 ? -errno : 0;
}

static void on_entry(struct walk_remove *r, const struct walk_entry *e)
{
	int rc;
	if (e->type != DT_DIR) {
		if (leaves_it_aside(r, e->dirfd, e->name))
			return;
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
	if ((rc == -ENOTEMPTY || rc == -EEXIST) && e->passes < PASSES_MAX && !r->second && walk_enter(r->walk) == 0)
		return;
	judge(r, rc, e->path);
}

// The root that is no directory. TRIED: somebody may have done it already who was killed then.
static void remove_single(struct walk_remove *r, bool tried)
{
	int rc = files_unlink(r->parent, r->base);
	if (rc == -ENOENT && tried)
		rc = 0;
	r->single = false;
	r->count += rc == 0;
	if (rc < 0)
		note(r, rc, r->path);
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

// One entry.
static void turn(struct walk_remove *r)
{
	struct walk_entry e;
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
}

// --- in a process of its own ---

// From the root again: whoever was at it before is through.
static void begin_again(struct walk_remove *r)
{
	int rc = start_pass(r, open_root(r));
	if (rc < 0 && rc != -ENOENT)
		note(r, rc == -EXDEV ? -EBUSY : rc, r->path);
}

static void tell(const struct walk_remove *r, struct aside_report *report)
{
	report->count[0] = r->count;
	if (!r->err || report->err)
		return;
	(void)snprintf(report->where, sizeof report->where, "%s", r->where ? r->where : r->path);
	report->err = r->err;
}

// Goes through it once, from the other end.
static void help(struct walk_remove *r, struct aside_report *report)
{
	int64_t until = 0;
	r->second = true;
	r->passes = PASSES_MAX;
	r->count = 0;
	begin_again(r);
	while (r->walk) {
		__atomic_store_n(&report->busy, true, __ATOMIC_SEQ_CST);
		turn(r);
		report->count[1] = r->count;
		__atomic_store_n(&report->busy, false, __ATOMIC_RELEASE);
		aside_rest(&until);
	}
}

static void run_aside(void *arg, struct aside_report *report, bool second)
{
	struct walk_remove *r = arg;
	r->walk = NULL; // its descriptors are closed
	r->stays = true;
	if (second && !r->single)
		help(r, report);
	if (second)
		return;
	if (r->single)
		remove_single(r, false);
	else
		begin_again(r);
	tell(r, report);
	while (r->walk) {
		turn(r);
		tell(r, report);
	}
}

static bool step_aside(struct walk_remove *r)
{
	int rc = aside_start(&r->aside, run_aside, r, r->parent);
	r->stays = rc < 0 && rc != -EBUSY;
	if (rc < 0)
		return false;
	walk_free(r->walk);
	r->walk = NULL;
	return true;
}

// The child has ended, or is not waited for. If it was killed before it was through, the rest is done here.
static void come_back(struct walk_remove *r)
{
	const struct aside_report *report = aside_end(r->aside);
	bool done = report->done, single = r->single;
	r->single = single && !done && report->count[0] == 0 && !report->err;
	if (report->count[0] > r->count)
		r->count = report->count[0];
	r->count += report->count[1];
	if (report->err)
		note(r, report->err, report->where);
	aside_free(r->aside);
	r->aside = NULL;
	r->stays = true;
	if (r->single)
		remove_single(r, true);
	else if (!done && !single)
		begin_again(r);
}

bool walk_remove_step(struct walk_remove *r, int64_t until)
{
	int64_t start = io_mono_ns(), now = start;
	r->at_once = until == INT64_MAX;
	if (r->single && !r->aside && !leaves_it_aside(r, r->parent, r->base))
		remove_single(r, false);
	if (r->aside && !aside_ended(r->aside) && until != INT64_MAX)
		return true;
	if (r->aside)
		come_back(r);
	while (r->walk) {
		turn(r);
		now = io_mono_ns();
		if (now >= until)
			break;
	}
	r->worked_ns += now - start;
	if (r->walk && !r->stays && r->worked_ns >= ASIDE_AFTER_NS)
		(void)step_aside(r);
	return r->walk || r->aside;
}

int walk_remove_fd(const struct walk_remove *r)
{
	return r->aside ? aside_fd(r->aside) : -1;
}

bool walk_remove_is_long(const struct walk_remove *r)
{
	return r->walk && r->worked_ns >= ASIDE_AFTER_NS;
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
