// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/notice.h"

#include "daemon/io.h"
#include "daemon/io_watch.h"

#include <limits.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

enum { ASKS = 8 }; // times that it is cheaper to look than to watch

// One event says it all: watches go with it, and nobody is woken for what else happens there.
#define CHANGES (IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONESHOT)
#define ENTRIES (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_ONLYDIR)

static void on_event(struct ev_loop *loop, ev_io *w, int revents)
{
	char events[4096];
	struct notice *n = w->data;
	io_watch_failed(loop, w, revents);
	n->armed = false;
	n->asks = 0;
	while (io_read(w->fd, events, sizeof events) > 0)
		;
}

void notice_init(struct notice *n, struct ev_loop *loop, const char *a, const char *b)
{
	int fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
	*n = (struct notice){.path = {a, b}};
	if (fd < 0)
		return;
	n->loop = loop;
	ev_io_init(&n->io, on_event, fd, EV_READ);
	ev_set_priority(&n->io, EV_MAXPRI); // what was changed before a request was sent is known before the request is
	n->io.data = n;
	io_watch(loop, &n->io);
}

void notice_release(struct notice *n)
{
	if (!n->loop)
		return;
	ev_io_stop(n->loop, &n->io);
	io_close(&n->io.fd);
	n->loop = NULL;
}

bool notice_quiet(const struct notice *n)
{
	if (!n->armed)
		return false;
	double age = ev_now(n->loop) - n->since;
	return age >= 0 && age < NOTICE_MAX_S; // also if the clock was set
}

// A file and its directory, where it may be replaced. What a symlink leads to may be replaced elsewhere.
static bool watch(struct notice *n, const char *path)
{
	char dir[PATH_MAX];
	struct stat st;
	const char *slash = strrchr(path, '/');
	size_t len = slash ? (size_t)(slash - path) : 0;
	if (!slash || len + 1 >= sizeof dir || lstat(path, &st) < 0 || !S_ISREG(st.st_mode))
		return false;
	memcpy(dir, path, len + 1);
	dir[len ? len : 1] = '\0';
	return inotify_add_watch(n->io.fd, dir, CHANGES | ENTRIES) >= 0 &&
	       inotify_add_watch(n->io.fd, path, CHANGES) >= 0;
}

void notice_look(struct notice *n)
{
	if (!n->loop || n->asks++ < ASKS)
		return;
	n->since = ev_now(n->loop);
	for (size_t i = 0; i < NOTICE_FILES && (n->armed || i == 0); i++)
		n->armed = watch(n, n->path[i]);
	if (!n->armed)
		n->asks = 0; // not again at once
}

void notice_doubt(struct notice *n)
{
	n->armed = false;
}
