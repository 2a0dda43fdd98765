// SPDX-License-Identifier: Apache-2.0
// The watchers over a small real tree, with a kernel that may say anything which has the form of an event: of watches that are there or not,
// of names that are there or not, renames without their other half, lost queues. Between, the tree changes and the real events come too.
// Lists, counts and sizes agree all the time; a loss is told to everybody; and after one, every tree is again what lies on the disk.
#include "daemon/core/watch_priv.h"
#include "tests/fuzz/daemon/fake.h"
#include "tests/fuzz/fuzz.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

enum { WATCHERS = 4, QUEUE = 8192, SETTLE = 3000, STEPS = 400 };

struct kernel {
	struct ev_loop *loop;
	struct slices *slices;
	struct watches *ws;
	struct watcher *watchers[WATCHERS];
	bool faked, real; // the descriptor is; real events come too
	bool small;       // the limits are
	char said[QUEUE]; // events that wait
	size_t n;
};

// --- what the kernel says ---

static ssize_t give(void *arg, void *p, size_t n)
{
	struct kernel *k = arg;
	if (k->n) {
		FUZZ_CHECK(n >= sizeof k->said);
		size_t len = k->n;
		memcpy(p, k->said, len);
		k->n = 0;
		return (ssize_t)len;
	}
	ssize_t got = k->real ? read(k->ws->fd, p, n) : -1;
	return got < 0 ? -EAGAIN : got;
}

static void say(struct kernel *k, int wd, uint32_t mask, uint32_t cookie, const char *name)
{
	struct inotify_event e = {.wd = wd, .mask = mask, .cookie = cookie};
	if (*name)
		e.len = (uint32_t)((strlen(name) + 16) / 16 * 16);
	if (k->n + sizeof e + e.len > sizeof k->said)
		return;
	memcpy(k->said + k->n, &e, sizeof e);
	memset(k->said + k->n + sizeof e, 0, e.len);
	memcpy(k->said + k->n + sizeof e, name, strlen(name));
	k->n += sizeof e + e.len;
}

// Three bytes, any events of one kind each.
static void say_any(struct kernel *k, const uint8_t **p, size_t *n)
{
	static const uint32_t masks[] = {IN_CREATE, IN_MODIFY, IN_DELETE, IN_DELETE_SELF, IN_MOVED_TO, IN_MOVED_FROM,
		IN_MOVE_SELF, IN_ATTRIB, IN_IGNORED, IN_UNMOUNT, IN_Q_OVERFLOW};
	static const char *const names[] = {"a", "b", "c", "f", ".celld-0123456789abcdef", "", "", ""};
	unsigned what = fuzz_choice(p, n), where = fuzz_choice(p, n), whom = fuzz_choice(p, n);
	uint32_t mask = masks[what % (sizeof masks / sizeof *masks)];
	bool self = mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_IGNORED | IN_UNMOUNT | IN_Q_OVERFLOW);
	if (mask == IN_Q_OVERFLOW)
		say(k, -1, mask, 0, "");
	else
		say(k, fake_watch(where % 12), mask | (what & 128 ? IN_ISDIR : 0), whom >> 4,
			self ? "" : names[whom % 8]);
}

// --- the tree ---

static const char *path_of(unsigned which)
{
	static const char *const paths[] = {"a", "b", "a/a", "a/b", "b/a", "a/a/a", "a/a/b", "b/a/c", "f", "a/f", "b/c",
		"c", "a/a/a/a", "c/a", "c/f", "b/a/f"};
	return paths[which % (sizeof paths / sizeof *paths)];
}

static void change(const uint8_t **p, size_t *n)
{
	unsigned what = fuzz_choice(p, n), which = fuzz_choice(p, n);
	const char *path = path_of(which), *other = path_of(which >> 4);
	int fd;
	switch (what % 4) {
	case 0:
		(void)mkdir(path, 0755);
		break;
	case 1:
		fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
		if (fd >= 0)
			close(fd);
		break;
	case 2:
		(void)rename(path, other);
		break;
	default:
		if (unlink(path) < 0 && rmdir(path) < 0 && what & 4)
			jail_empty(AT_FDCWD, path);
	}
}

// --- what has to agree ---

static size_t check_tree(const struct watcher *w, struct watch_node *n)
{
	size_t count = 1;
	const struct watch_node *c, *same;
	FUZZ_CHECK(n->w == w);
	if (n->wd) {
		bool found = false;
		DL_FOREACH2(n->wd->nodes, same, wnext)
		{
			found |= same == n;
		}
		FUZZ_CHECK(found && watch_wd_find(w->ws, n->wd->wd) == n->wd);
	}
	DL_FOREACH(n->children, c)
	{
		FUZZ_CHECK(c->parent == n && watch_node_find(n, c->name) == c);
		count += check_tree(w, (struct watch_node *)(uintptr_t)c);
	}
	return count;
}

static void check_queue(const struct watcher *w)
{
	size_t waiting = 0, bytes = 0, count = 0;
	const struct watch_item *i;
	DL_FOREACH(w->items, i)
	{
		waiting++;
		FUZZ_CHECK(i->queued);
		if (i == w->lost || i == w->end)
			continue;
		count++;
		bytes += i->e.path_len + sizeof *i;
		FUZZ_CHECK(strlen(i->e.path) == i->e.path_len && strncmp(i->e.path, w->path, strlen(w->path)) == 0);
		FUZZ_CHECK(i->e.name >= i->e.path && strlen(i->e.name) <= i->e.path_len && i->e.type != WATCH_LOST);
	}
	FUZZ_CHECK(waiting == w->waiting && count == w->count && bytes == w->bytes);
	FUZZ_CHECK(count <= w->ws->limits.max_events && bytes <= w->ws->limits.max_bytes);
}

static void check_all(const struct watches *ws)
{
	size_t watchers = 0, nodes = 0, bytes = 0;
	const struct watcher *w;
	DL_FOREACH(ws->all, w)
	{
		watchers++;
		nodes += w->nodes;
		bytes += w->bytes;
		check_queue(w);
		FUZZ_CHECK(!w->root == w->gone && !w->closed);
		if (w->root)
			FUZZ_CHECK(check_tree(w, w->root) <= w->nodes);
	}
	DL_FOREACH(ws->closed, w)
	{
		nodes += w->nodes;
	}
	FUZZ_CHECK(watchers == ws->count && nodes == ws->nodes && bytes == ws->bytes);
	FUZZ_CHECK(ws->nodes + ws->count <= ws->limits.max_nodes + 1);
}

// --- watchers ---

static void on_ready(void *arg, int rc)
{
	(void)arg;
	FUZZ_CHECK(rc <= 0);
}

static void on_changed(void *arg)
{
	struct watcher **slot = arg;
	const struct watch_event *e = *slot ? watcher_next(*slot) : NULL;
	// Now and then it has seen enough.
	if (e && e->type == WATCH_CHMOD && strcmp(e->name, "f") == 0) {
		watcher_close(*slot);
		*slot = NULL;
	}
}

static void add(struct kernel *k, unsigned which)
{
	struct watcher **slot = &k->watchers[which % WATCHERS];
	struct watch_spec spec = {.path = which & 64 ? path_of(which >> 2) : ".",
		.recursive = which & 128,
		.ready = on_ready,
		.changed = on_changed,
		.arg = slot};
	char path[PATH_MAX];
	if (*slot || !realpath(spec.path, path))
		return;
	spec.path = path;
	int rc = watches_add(k->ws, &spec, k, slot);
	FUZZ_CHECK(rc <= 0);
	if (rc < 0)
		*slot = NULL;
	else if (!k->faked) {
		const struct fake_fd f = {.fd = k->ws->fd, .arg = k, .read = give};
		fake_fd(&f);
		k->faked = true;
	}
}

static void take(struct kernel *k, unsigned which, size_t n)
{
	struct watcher *w = k->watchers[which % WATCHERS];
	while (w && n-- > 0 && watcher_next(w))
		watcher_taken(w);
}

// Everybody has been told, unless there is nothing left to watch. What really happened since is lost, too.
static void lose(struct kernel *k)
{
	char lost[4096];
	while (k->faked && read(k->ws->fd, lost, sizeof lost) > 0)
		;
	say(k, -1, IN_Q_OVERFLOW, 0, "");
	watches_sync(k->ws);
	for (int i = 0; i < WATCHERS && !k->n; i++) {
		const struct watcher *w = k->watchers[i];
		FUZZ_CHECK(!w || w->gone || w->lost->queued);
	}
}

static void turn(struct kernel *k)
{
	fake_pass(0.001);
	ev_run(k->loop, EVRUN_NOWAIT);
	if (k->faked)
		watches_sync(k->ws);
}

static void step(struct kernel *k, const uint8_t **p, size_t *n)
{
	unsigned what = fuzz_choice(p, n), which = what >> 4;
	char path[PATH_MAX];
	switch (what % 16) {
	case 0:
	case 1:
		add(k, fuzz_choice(p, n));
		break;
	case 2:
		watcher_close(k->watchers[which % WATCHERS]);
		k->watchers[which % WATCHERS] = NULL;
		break;
	case 3:
		k->real = which & 1;
		break;
	case 4:
	case 5:
		change(p, n);
		break;
	case 6:
		take(k, which, which & 4 ? SIZE_MAX : 3);
		break;
	case 7:
		if (k->watchers[which % WATCHERS])
			watcher_check(k->watchers[which % WATCHERS]);
		break;
	case 8:
		turn(k);
		break;
	case 9:
		lose(k);
		break;
	case 10:
		if (realpath(path_of(which), path))
			watches_end_below(k->ws, path);
		break;
	default:
		say_any(k, p, n);
	}
}

// --- the end: what is watched is what is there ---

static size_t check_disk(const struct watch_node *n, const char *path)
{
	char below[PATH_MAX];
	struct stat st;
	const struct watch_node *c;
	DIR *d = opendir(path);
	const struct dirent *e;
	size_t dirs = 0, nodes = 0;
	FUZZ_CHECK(d && n->wd);
	while ((e = readdir(d))) {
		if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
			continue;
		snprintf(below, sizeof below, "%s/%s", path, e->d_name);
		if (lstat(below, &st) < 0 || !S_ISDIR(st.st_mode))
			continue;
		dirs++;
		c = watch_node_find(n, e->d_name);
		FUZZ_CHECK(c != NULL);
		check_disk(c, below);
	}
	closedir(d);
	DL_FOREACH(n->children, c)
	{
		nodes++;
	}
	FUZZ_CHECK(nodes == dirs);
	return dirs;
}

static void settle(struct kernel *k)
{
	k->real = false;
	turn(k);
	lose(k);
	k->real = true;
	for (int i = 0; i < SETTLE && (i < 3 || k->ws->scanning || k->ws->moved || k->ws->dropped); i++)
		turn(k);
	FUZZ_CHECK(!k->ws->scanning && !k->ws->moved && !k->ws->dropped);
	check_all(k->ws);
	for (int i = 0; i < WATCHERS; i++) {
		const struct watcher *w = k->watchers[i];
		FUZZ_CHECK(!w || w->ready);
		if (w && !w->gone && w->dir && w->spec.recursive && !k->small)
			check_disk(w->root, w->path);
	}
}

static void run(const uint8_t *p, size_t n)
{
	static const struct watch_limits few = {.max_nodes = 8, .max_events = 5, .max_bytes = 600, .max_total = 1000};
	struct kernel k = {.small = fuzz_choice(&p, &n) & 1};
	k.loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV);
	k.slices = slices_new(k.loop);
	k.ws = watches_new(k.loop, k.slices, k.small ? &few : NULL);
	FUZZ_CHECK(k.loop && k.slices && k.ws);
	for (int i = 0; i < STEPS && n > 0; i++) {
		step(&k, &p, &n);
		check_all(k.ws);
	}
	if (k.faked)
		settle(&k);
	watches_terminate(k.ws, -ECANCELED);
	check_all(k.ws);
	watches_free(k.ws);
	slices_free(k.slices);
	ev_loop_destroy(k.loop);
}

// A directory in memory: emptied before each input, removed at the end.
static char dir[64];

static void leave(void)
{
	jail_empty(AT_FDCWD, dir);
	rmdir(dir);
}

int fuzz_inotify(const uint8_t *p, size_t n)
{
	char old[PATH_MAX];
	if (!*dir) {
		snprintf(dir, sizeof dir, "/dev/shm/celld-fuzz.XXXXXX");
		FUZZ_CHECK(mkdtemp(dir));
		atexit(leave);
	}
	FUZZ_CHECK(getcwd(old, sizeof old));
	jail_empty(AT_FDCWD, dir);
	FUZZ_CHECK(chdir(dir) == 0);
	fake_begin();
	run(p, n);
	fake_end();
	FUZZ_CHECK(chdir(old) == 0);
	return 0;
}
