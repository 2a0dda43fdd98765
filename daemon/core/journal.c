// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/journal.h"

#include "daemon/core/files.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

// What may wait for the end of the turn; more is written at once.
#define WAIT_MAX ((size_t)64 * 1024)
// One append that is longer than this is lost.
#define APPEND_MAX ((size_t)1024 * 1024)
// Kept allocated between turns.
#define KEEP ((size_t)4096)
// How long a file stays open after a line: commands come in bursts, and to open it safely takes eight calls.
#define OPEN_S 1.0

struct journals {
	struct ev_loop *loop;
	char *root;
	uid_t uid;
	gid_t gid;
	bool held;
	struct journal *dirty;
	struct journal *open; // whose file is
	ev_prepare flush;
};

struct journal {
	struct journals *set;
	struct journal_spec spec;
	char *dir, *name;
	char *path; // of the file
	int fd;     // it, open; or -1
	dev_t dev;
	ino_t ino;
	ev_timer rest; // while it is open
	struct buf wait;
	uint64_t lost;
	bool dirty, full, failing;
	struct journal *prev, *next;   // in set->dirty
	struct journal *oprev, *onext; // in set->open
};

// --- files ---

// NAME is one part of a path. Where the kernel or its filter has no openat2, O_NOFOLLOW says the same for a single part.
static int open_part(int dirfd, const char *name, int flags, mode_t mode)
{
	struct open_how how = {
		.flags = (uint64_t)(unsigned)(flags | O_CLOEXEC | O_NOFOLLOW),
		.mode = flags & O_CREAT ? mode : 0,
		.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
	};
	if (!*name || strchr(name, '/'))
		return -EINVAL;
	long fd = IO_AGAIN(syscall(SYS_openat2, dirfd, name, &how, sizeof how));
	if (fd < 0 && (errno == ENOSYS || errno == EPERM) && strcmp(name, "..") != 0)
		fd = IO_AGAIN(openat(dirfd, name, flags | O_CLOEXEC | O_NOFOLLOW, mode));
	return fd < 0 ? -errno : (int)fd;
}

static int give(const struct journals *s, int fd)
{
	if (s->uid == geteuid() && s->gid == getegid())
		return 0;
	return fchown(fd, s->uid, s->gid) < 0 ? -errno : 0;
}

static int open_dir(const struct journals *s, int dirfd, const char *name, bool make)
{
	int flags = O_RDONLY | O_DIRECTORY | O_NONBLOCK;
	int fd = open_part(dirfd, name, flags, 0);
	bool made = fd == -ENOENT && make;
	if (made && mkdirat(dirfd, name, 0755) < 0)
		return -errno;
	if (made)
		fd = files_open_made(dirfd, name);
	int rc = made && fd >= 0 ? give(s, fd) : 0;
	if (rc < 0)
		io_close(&fd);
	return rc < 0 ? rc : fd;
}

int journals_dir(const struct journals *s, const char *dir, bool make)
{
	char part[NAME_MAX + 1];
	int fd = files_open_trusted(s->root);
	while (fd >= 0 && *dir) {
		size_t n = strcspn(dir, "/");
		int next = -ENAMETOOLONG;
		if (n < sizeof part) {
			memcpy(part, dir, n);
			part[n] = '\0';
			next = open_dir(s, fd, part, make);
		}
		io_close(&fd);
		fd = next;
		dir += n + (dir[n] == '/');
	}
	return fd;
}

// A file of ours has one name: a second one may be that of a file elsewhere.
static int check_file(int fd, struct stat *st)
{
	if (fstat(fd, st) < 0)
		return -errno;
	return S_ISREG(st->st_mode) && st->st_nlink == 1 ? 0 : -ELOOP;
}

bool journals_made(const struct journals *s, const struct stat *st)
{
	// Who owns the directory may have moved somebody else's file here.
	return S_ISREG(st->st_mode) && st->st_nlink == 1 && (s->uid == geteuid() || st->st_uid == s->uid);
}

static int create(const struct journals *s, int dirfd, const char *name)
{
	int fd = open_part(dirfd, name, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NONBLOCK, 0644);
	int rc = fd < 0 ? fd : give(s, fd);
	if (rc < 0 && fd >= 0) {
		io_close(&fd);
		unlinkat(dirfd, name, 0);
	}
	return rc < 0 ? rc : fd;
}

int journals_create(const struct journals *s, int dirfd, const char *name)
{
	if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
		return -errno;
	return create(s, dirfd, name);
}

int journals_read(int dirfd, const char *name, int64_t *size)
{
	struct stat st;
	int fd = open_part(dirfd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
	int rc = fd < 0 ? fd : check_file(fd, &st);
	if (rc < 0) {
		io_close(&fd);
		return rc == -ENXIO ? -ELOOP : rc;
	}
	*size = st.st_size;
	return fd;
}

// Opens the file for appending, or a new one in place of what is none. A FIFO without a reader and a socket are ENXIO.
static int open_append(const struct journals *s, int dirfd, const char *name, int64_t *size)
{
	struct stat st = {0};
	int fd = open_part(dirfd, name, O_WRONLY | O_APPEND | O_NONBLOCK | O_NOCTTY, 0);
	int rc = fd < 0 ? fd : check_file(fd, &st);
	if (rc == 0 && !journals_made(s, &st))
		rc = -ELOOP;
	*size = st.st_size;
	if (rc == 0)
		return fd;
	io_close(&fd);
	*size = 0;
	if (rc == -ENOENT)
		return create(s, dirfd, name);
	return rc == -ELOOP || rc == -ENXIO ? journals_create(s, dirfd, name) : rc;
}

// All N bytes or none: what a full disk left of a line is taken back.
static int write_all(int fd, const void *p, size_t n, int64_t size)
{
	size_t done = 0;
	while (done < n) {
		ssize_t rc = io_write(fd, (const char *)p + done, n - done);
		if (rc <= 0) {
			int ignored = done ? IO_AGAIN(ftruncate(fd, size)) : 0;
			(void)ignored;
			return rc < 0 ? (int)rc : -EIO;
		}
		done += (size_t)rc;
	}
	return 0;
}

int journals_put(const struct journals *s, int dirfd, const char *name, const char *text)
{
	char temp[NAME_MAX + 1];
	if ((size_t)snprintf(temp, sizeof temp, ".%s", name) >= sizeof temp)
		return -ENAMETOOLONG;
	int fd = journals_create(s, dirfd, temp);
	if (fd < 0)
		return fd;
	int rc = write_all(fd, text, strlen(text), 0);
	io_close(&fd);
	if (rc == 0 && renameat(dirfd, temp, dirfd, name) < 0)
		rc = -errno;
	if (rc < 0)
		unlinkat(dirfd, temp, 0);
	return rc;
}

// --- writing ---

static uint64_t count_lines(const void *p, size_t n)
{
	uint64_t lines = 0;
	const char *at = p, *end = at + n;
	while (at < end && (at = memchr(at, '\n', (size_t)(end - at)))) {
		lines++;
		at++;
	}
	return lines;
}

// The full file makes room. What takes the older one's name away, takes the full one's content too.
static int rotate(const struct journal *j, int dirfd, int *fd)
{
	char old[NAME_MAX + 1];
	if ((size_t)snprintf(old, sizeof old, "%s.1", j->name) >= sizeof old)
		return -ENAMETOOLONG;
	if (renameat(dirfd, j->name, dirfd, old) < 0)
		return IO_AGAIN(ftruncate(*fd, 0)) < 0 ? -errno : 0;
	io_close(fd);
	*fd = create(j->set, dirfd, j->name);
	return *fd < 0 ? *fd : 0;
}

// Whether N more bytes may be written: 1, or 0 if the file takes no more, or negative errno.
static int make_room(struct journal *j, int dirfd, int *fd, int64_t *size, size_t n)
{
	if (!j->spec.rotate) {
		j->full = *size >= j->spec.max;
		return !j->full;
	}
	if (!*size || *size + (int64_t)n <= j->spec.max)
		return 1;
	*size = 0;
	int rc = rotate(j, dirfd, fd);
	return rc < 0 ? rc : 1;
}

static int write_buf(int fd, const struct buf *b, int64_t *size)
{
	int rc = buf_failed(b);
	rc = rc < 0 ? rc : write_all(fd, buf_data(b), buf_len(b), *size);
	*size += rc < 0 ? 0 : (int64_t)buf_len(b);
	return rc;
}

static int write_to(struct journal *j, int dirfd, int *fd, int64_t size)
{
	struct buf said;
	int rc = make_room(j, dirfd, fd, &size, buf_len(&j->wait));
	if (rc <= 0)
		return rc;
	rc = 0;
	buf_init(&said, 0);
	if (j->lost) {
		j->spec.lost(&said, j->lost);
		rc = write_buf(*fd, &said, &size);
	}
	if (rc == 0) {
		j->lost = 0;
		rc = write_buf(*fd, &j->wait, &size);
	}
	if (rc == 0 && !j->spec.rotate && size >= j->spec.max) {
		buf_reset(&said);
		j->spec.full(&said);
		j->full = true;
		(void)write_buf(*fd, &said, &size); // what counts is there
	}
	buf_release(&said);
	return rc;
}

static void let_go(struct journal *j)
{
	if (j->fd < 0)
		return;
	DL_DELETE2(j->set->open, j, oprev, onext);
	ev_timer_stop(j->set->loop, &j->rest);
	io_close(&j->fd);
}

static void on_rest(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	let_go(w->data);
}

// On NFS, on SMB and on many a FUSE what is removed while it is open stays under another name, and its directory cannot be removed: a reset,
// or a command that clears up, would fail. So a file stays open only where it is known to go.
static bool goes_while_open(int fd)
{
	static const unsigned long kinds[] = {EXT4_SUPER_MAGIC, XFS_SUPER_MAGIC, BTRFS_SUPER_MAGIC, F2FS_SUPER_MAGIC,
		TMPFS_MAGIC, OVERLAYFS_SUPER_MAGIC};
	struct statfs fs;
	if (fstatfs(fd, &fs) < 0)
		return false;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		if ((unsigned long)fs.f_type == kinds[i])
			return true;
	}
	return false;
}

// FD, just written to, is j's from here on.
static void hold_on(struct journal *j, int fd)
{
	struct stat st;
	if (fd >= 0 && goes_while_open(fd) && fstat(fd, &st) == 0) {
		j->dev = st.st_dev;
		j->ino = st.st_ino;
		j->fd = fd;
		DL_APPEND2(j->set->open, j, oprev, onext);
		ev_timer_again(j->set->loop, &j->rest);
	} else {
		io_close(&fd);
	}
}

// The file that is open is still the one with that name, the only one it has. Symlinks on the way to it would do no harm then.
static bool is_there(const struct journal *j, int64_t *size)
{
	struct stat st;
	if (j->fd < 0 || fstatat(AT_FDCWD, j->path, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return false;
	*size = st.st_size;
	return st.st_dev == j->dev && st.st_ino == j->ino && journals_made(j->set, &st);
}

static int write_waiting(struct journal *j)
{
	int64_t size;
	if (is_there(j, &size) && !j->lost && size + (int64_t)buf_len(&j->wait) <= j->spec.max) {
		ev_timer_again(j->set->loop, &j->rest);
		return write_buf(j->fd, &j->wait, &size);
	}
	let_go(j);
	int dirfd = journals_dir(j->set, j->dir, true);
	if (dirfd < 0)
		return dirfd;
	int fd = open_append(j->set, dirfd, j->name, &size);
	int rc = fd < 0 ? fd : write_to(j, dirfd, &fd, size);
	if (rc == 0 && j->spec.rotate)
		hold_on(j, fd);
	else
		io_close(&fd);
	io_close(&dirfd);
	return rc;
}

static void forget_waiting(struct journal *j)
{
	buf_reset(&j->wait);
	if (j->dirty)
		DL_DELETE(j->set->dirty, j);
	j->dirty = false;
	if (!j->set->dirty)
		ev_prepare_stop(j->set->loop, &j->set->flush);
}

static void flush(struct journal *j)
{
	int rc = buf_len(&j->wait) ? write_waiting(j) : 0;
	if (rc < 0)
		j->lost += count_lines(buf_data(&j->wait), buf_len(&j->wait));
	if (rc < 0 && !j->failing)
		j->spec.failed(j->dir, j->name, rc);
	j->failing = rc < 0;
	forget_waiting(j);
	buf_shrink(&j->wait, KEEP);
	if (j->spec.settled)
		j->spec.settled(j->spec.arg);
}

void journals_flush(struct journals *s)
{
	while (s->dirty)
		flush(s->dirty);
}

static void on_prepare(struct ev_loop *loop, ev_prepare *w, int revents)
{
	(void)loop, (void)revents;
	journals_flush(w->data);
}

void journals_hold(struct journals *s, bool hold)
{
	s->held = hold;
	while (s->dirty)
		forget_waiting(s->dirty);
	// What is to be removed now is not to be open (goes_while_open, should it be wrong).
	while (hold && s->open)
		let_go(s->open);
}

struct journals *journals_new(struct ev_loop *loop, const char *root, uid_t uid, gid_t gid)
{
	struct journals *s = calloc(1, sizeof *s);
	if (!s)
		return NULL;
	s->loop = loop;
	s->uid = uid;
	s->gid = gid;
	s->root = strdup(root);
	ev_prepare_init(&s->flush, on_prepare);
	ev_set_priority(&s->flush, EV_MAXPRI); // before the answers go out
	s->flush.data = s;
	if (!s->root) {
		journals_free(s);
		return NULL;
	}
	return s;
}

void journals_free(struct journals *s)
{
	if (!s)
		return;
	journals_flush(s);
	ev_prepare_stop(s->loop, &s->flush);
	free(s->root);
	free(s);
}

struct journal *journal_new(struct journals *s, const struct journal_spec *spec)
{
	struct journal *j = calloc(1, sizeof *j);
	if (!j)
		return NULL;
	j->set = s;
	j->spec = *spec;
	buf_init(&j->wait, 0);
	j->fd = -1;
	ev_init(&j->rest, on_rest);
	j->rest.repeat = OPEN_S;
	j->rest.data = j;
	j->dir = strdup(spec->dir);
	j->name = strdup(spec->name);
	if (asprintf(&j->path, "%s/%s/%s", s->root, spec->dir, spec->name) < 0)
		j->path = NULL;
	if (!j->dir || !j->name || !j->path) {
		journal_drop(j);
		return NULL;
	}
	return j;
}

void journal_drop(struct journal *j)
{
	if (!j)
		return;
	forget_waiting(j);
	let_go(j);
	buf_release(&j->wait);
	free(j->dir);
	free(j->name);
	free(j->path);
	free(j);
}

void journal_free(struct journal *j)
{
	if (j)
		flush(j);
	journal_drop(j);
}

void journal_append(struct journal *j, const void *lines, size_t n)
{
	struct journals *s = j->set;
	if (s->held || !n)
		return;
	if (buf_len(&j->wait) + n > WAIT_MAX)
		flush(j);
	if (n <= APPEND_MAX)
		buf_append(&j->wait, lines, n);
	if (n > APPEND_MAX || buf_failed(&j->wait)) {
		j->lost += count_lines(buf_data(&j->wait), buf_len(&j->wait)) + count_lines(lines, n);
		forget_waiting(j);
		return;
	}
	if (j->dirty)
		return;
	j->dirty = true;
	DL_APPEND(s->dirty, j);
	ev_prepare_start(s->loop, &s->flush);
}

bool journal_full(const struct journal *j)
{
	return j->full;
}

uint64_t journal_lost(const struct journal *j)
{
	return j->lost;
}
