// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/watch_priv.h"
#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <utlist.h>

// --- the tree ---

static int cmp_name(const void *a, const void *b)
{
	const struct watch_node *x = a, *y = b;
	return strcmp(x->name, y->name);
}

struct watch_node *watch_node_find(const struct watch_node *parent, const char *name)
{
	char *key = (char *)(uintptr_t)name; // only compared
	const struct watch_node want = {.name = key};
	struct watch_node **found = tfind(&want, &parent->by_name, cmp_name);
	return found ? *found : NULL;
}

static int hang(struct watch_node *n, struct watch_node *parent)
{
	if (!tsearch(n, &parent->by_name, cmp_name))
		return -ENOMEM;
	n->parent = parent;
	n->seen = n->w->pass;
	DL_APPEND(parent->children, n);
	return 0;
}

static void unhang(struct watch_node *n)
{
	if (!n->parent)
		return;
	tdelete(n, &n->parent->by_name, cmp_name);
	DL_DELETE(n->parent->children, n);
	n->parent = NULL;
}

static bool full(const struct watches *ws)
{
	return ws->nodes + ws->count >= ws->limits.max_nodes;
}

int watch_node_refused(const struct watcher *w)
{
	return full(w->ws) ? -EUSERS : -ENOMEM;
}

struct watch_node *watch_node_new(struct watcher *w, struct watch_node *parent, const char *name)
{
	if (full(w->ws))
		return NULL;
	struct watch_node *n = calloc(1, sizeof *n);
	if (!n)
		return NULL;
	n->w = w;
	n->name = strdup(name);
	if (!n->name || (parent && hang(n, parent) < 0)) {
		free(n->name);
		free(n);
		return NULL;
	}
	w->nodes++;
	w->ws->nodes++;
	return n;
}

void watch_node_free(struct watch_node *n)
{
	watch_scan_unqueue(n);
	watch_node_unbind(n);
	unhang(n);
	n->w->nodes--;
	n->w->ws->nodes--;
	free(n->name);
	free(n);
}

struct watch_node *watch_node_top(struct watch_node *n)
{
	while (n->parent)
		n = n->parent;
	return n;
}

bool watch_node_placed(struct watch_node *n)
{
	return watch_node_top(n)->place == WATCH_PLACED;
}

static void leave(struct watch_node *n)
{
	struct watches *ws = n->w->ws;
	if (n->place == WATCH_MOVED)
		DL_DELETE2(ws->moved, n, qprev, qnext);
}

void watch_node_take(struct watch_node *n, enum watch_place place)
{
	struct watches *ws = n->w->ws;
	unhang(n);
	leave(n);
	watch_scan_unqueue(n);
	n->place = place;
	if (place == WATCH_MOVED) {
		DL_APPEND2(ws->moved, n, qprev, qnext);
		return;
	}
	DL_APPEND2(ws->dropped, n, qprev, qnext);
	watch_work(ws);
}

int watch_node_put(struct watch_node *n, struct watch_node *parent, const char *name)
{
	char *copy = strdup(name);
	if (copy) {
		free(n->name);
		n->name = copy;
	}
	if (!copy || hang(n, parent) < 0) {
		watch_node_take(n, WATCH_DROPPED);
		return -ENOMEM;
	}
	leave(n);
	n->place = WATCH_PLACED;
	return 0;
}

size_t watch_node_len(const struct watch_node *n, const char *leaf)
{
	size_t len = strlen(leaf);
	for (; n->parent; n = n->parent)
		len += strlen(n->name) + (len > 0);
	return len;
}

void watch_node_name(const struct watch_node *n, const char *leaf, char *end)
{
	size_t len = strlen(leaf);
	bool any = len > 0;
	memcpy(end -= len, leaf, len);
	for (; n->parent; n = n->parent) {
		if (any)
			*--end = '/';
		any = true;
		len = strlen(n->name);
		memcpy(end -= len, n->name, len);
	}
}

// --- watch descriptors ---

static int cmp_wd(const void *a, const void *b)
{
	const struct watch_wd *x = a, *y = b;
	return (x->wd > y->wd) - (x->wd < y->wd);
}

struct watch_wd *watch_wd_find(const struct watches *ws, int wd)
{
	const struct watch_wd want = {.wd = wd};
	struct watch_wd **found = tfind(&want, &ws->by_wd, cmp_wd);
	return found ? *found : NULL;
}

// The entry for a descriptor that inotify_add_watch has just given.
static struct watch_wd *wd_get(struct watches *ws, int wd)
{
	struct watch_wd *e = watch_wd_find(ws, wd);
	if (e)
		return e;
	e = calloc(1, sizeof *e);
	if (e)
		e->wd = wd;
	if (!e || !tsearch(e, &ws->by_wd, cmp_wd)) {
		free(e);
		inotify_rm_watch(ws->fd, wd);
		return NULL;
	}
	return e;
}

void watch_node_unbind(struct watch_node *n)
{
	struct watches *ws = n->w->ws;
	struct watch_wd *e = n->wd;
	if (!e)
		return;
	if (ws->cursor == n)
		ws->cursor = n->wnext;
	DL_DELETE2(e->nodes, n, wprev, wnext);
	n->wd = NULL;
	if (e->nodes)
		return;
	if (ws->fd >= 0)
		inotify_rm_watch(ws->fd, e->wd);
	tdelete(e, &ws->by_wd, cmp_wd);
	free(e);
}

static int bind_path(struct watch_node *n, const char *path, uint32_t flags)
{
	struct watches *ws = n->w->ws;
	int wd = inotify_add_watch(ws->fd, path, WATCH_MASK | flags);
	if (wd < 0)
		return -errno;
	if (n->wd && n->wd->wd == wd)
		return 0;
	struct watch_wd *e = wd_get(ws, wd);
	if (!e)
		return -ENOMEM;
	watch_node_unbind(n);
	n->wd = e;
	DL_APPEND2(e->nodes, n, wprev, wnext);
	return 1;
}

int watch_node_bind(struct watch_node *n, const char *path)
{
	return bind_path(n, path, n->w->dir ? IN_ONLYDIR : 0);
}

int watch_node_bind_at(struct watch_node *n, int fd)
{
	char path[sizeof "/proc/self/fd/-2147483648/" + NAME_MAX];
	int len = snprintf(path, sizeof path, "/proc/self/fd/%d/%s", fd, n->name);
	if (len < 0 || (size_t)len >= sizeof path)
		return -ENAMETOOLONG;
	return bind_path(n, path, IN_ONLYDIR | IN_DONT_FOLLOW);
}

// --- the way back to a directory ---

#define DIR_FLAGS (O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NONBLOCK)

// Down the tree in pieces that the kernel takes. REST is cut up.
static int open_down(int fd, char *rest)
{
	while (fd >= 0 && *rest) {
		size_t n = strlen(rest);
		if (n >= PATH_MAX) {
			n = PATH_MAX - 1;
			while (rest[n] != '/')
				n--;
			rest[n] = '\0';
			n++;
		}
		int next = IO_AGAIN(openat(fd, rest, DIR_FLAGS | O_NOFOLLOW));
		int rc = next < 0 ? -errno : next;
		close(fd);
		fd = rc;
		rest += n;
	}
	return fd;
}

static int open_path(struct watch_node *n)
{
	size_t len = watch_node_len(n, "");
	char *rest = malloc(len + 1);
	if (!rest)
		return -ENOMEM;
	rest[len] = '\0';
	watch_node_name(n, "", rest + len);
	int fd = IO_AGAIN(open(n->w->path, DIR_FLAGS));
	fd = fd < 0 ? -errno : open_down(fd, rest);
	free(rest);
	return fd;
}

// A path says little about a tree that others rename at will: the inode behind it has to be the one that is watched.
static int same_inode(const struct watch_node *n, int fd)
{
	const struct watches *ws = n->w->ws;
	char path[sizeof "/proc/self/fd/-2147483648"];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	int wd = inotify_add_watch(ws->fd, path, WATCH_MASK);
	if (wd < 0)
		return errno == ENOENT ? -ENOSYS : -errno; // no /proc
	if (n->wd && n->wd->wd == wd)
		return 0;
	if (!watch_wd_find(ws, wd))
		inotify_rm_watch(ws->fd, wd);
	return -ESTALE;
}

int watch_node_open(struct watch_node *n)
{
	int fd = open_path(n);
	if (fd < 0)
		return fd;
	int rc = same_inode(n, fd);
	if (rc < 0)
		io_close(&fd);
	return rc < 0 ? rc : fd;
}
