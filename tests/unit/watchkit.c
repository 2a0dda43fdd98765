// SPDX-License-Identifier: Apache-2.0
#include "watchkit.h"
#include "daemon/io.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define PATH_ROOM 8192

void watchkit_start(struct watchkit *k, const struct watch_limits *limits)
{
	k->loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	k->slices = slices_new(k->loop);
	k->ws = watches_new(k->loop, k->slices, limits);
	ck_assert(k->loop && k->slices && k->ws);
	snprintf(k->dir, sizeof k->dir, "/tmp/celld-watch.XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(k->dir));
	ck_assert_int_eq(chdir(k->dir), 0);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
	(void)st, (void)type, (void)ftw;
	return remove(path);
}

void watchkit_remove(const char *path)
{
	nftw(path, remove_one, 32, FTW_DEPTH | FTW_PHYS);
}

void watchkit_end(struct watchkit *k)
{
	watches_free(k->ws);
	slices_free(k->slices);
	ev_loop_destroy(k->loop);
	ck_assert_int_eq(chdir("/"), 0);
	watchkit_remove(k->dir);
}

void watchkit_turn(struct watchkit *k)
{
	ev_run(k->loop, EVRUN_NOWAIT);
}

// How many inodes the kernel watches for us: the descriptor's "inotify wd:..." lines.
static int kernel_watches(void)
{
	DIR *d = opendir("/proc/self/fd");
	const struct dirent *e;
	int count = 0;
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		char path[300], line[512];
		snprintf(path, sizeof path, "/proc/self/fdinfo/%s", e->d_name);
		FILE *f = fopen(path, "re");
		while (f && fgets(line, sizeof line, f))
			count += strncmp(line, "inotify ", 8) == 0;
		if (f)
			fclose(f);
	}
	closedir(d);
	return count;
}

// Everything is done: nothing waits in slices, and what is watched has this size.
void watchkit_settle(struct watchkit *k, int watched)
{
	int64_t end = io_mono_ns() + INT64_C(10000000000);
	while (kernel_watches() != watched && io_mono_ns() < end)
		watchkit_turn(k);
	ck_assert_int_eq(kernel_watches(), watched);
}

static void on_ready(void *arg, int rc)
{
	*(int *)arg = rc;
}

// Watches PATH below the directory ("" is itself) and waits until it does: 0 or what it failed with.
int watchkit_add(struct watchkit *k, const char *path, bool recursive, struct watcher **w)
{
	char full[PATH_ROOM];
	int rc = 1;
	snprintf(full, sizeof full, "%s%s%s", k->dir, *path ? "/" : "", path);
	struct watch_spec spec = {.path = full, .recursive = recursive, .ready = on_ready, .arg = &rc};
	int added = watches_add(k->ws, &spec, k, w);
	if (added < 0)
		return added;
	if (watcher_ready(*w))
		return 0;
	int64_t end = io_mono_ns() + INT64_C(10000000000);
	while (rc > 0 && io_mono_ns() < end)
		watchkit_turn(k);
	ck_assert_int_le(rc, 0);
	return rc;
}

struct watcher *watchkit_added(struct watchkit *k, const char *path, bool recursive)
{
	struct watcher *w;
	ck_assert_int_eq(watchkit_add(k, path, recursive, &w), 0);
	return w;
}

// The events so far as text: "+name " create, "w" write, "-" remove, ">" rename, "m" chmod, "! " lost, "." after the end.
const char *watchkit_events(struct watchkit *k, struct watcher *w)
{
	static const char marks[] = "!+w->m";
	static char text[1024 * 1024];
	const struct watch_event *e;
	size_t n = 0;
	for (int i = 0; i < 5; i++) {
		watches_sync(k->ws);
		watchkit_turn(k);
	}
	text[0] = '\0';
	while ((e = watcher_next(w))) {
		if (n + e->path_len + 8 < sizeof text)
			n += (size_t)snprintf(text + n, sizeof text - n, "%c%s%s ", marks[e->type],
				e->type == WATCH_LOST ? "" : e->name, e->end ? "." : "");
		watcher_taken(w);
	}
	if (n)
		text[n - 1] = '\0';
	return text;
}

void watchkit_mkdir(const char *path)
{
	ck_assert_msg(mkdir(path, 0755) == 0, "mkdir %s: %s", path, strerror(errno));
}

void watchkit_file(const char *path)
{
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	close(fd);
}

void watchkit_write(const char *path)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, "x", 1), 1);
	close(fd);
}

void watchkit_move(const char *from, const char *to)
{
	ck_assert_msg(rename(from, to) == 0, "%s to %s: %s", from, to, strerror(errno));
}
