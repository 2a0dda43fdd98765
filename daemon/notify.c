// SPDX-License-Identifier: Apache-2.0
#include "daemon/notify.h"

#include "daemon/io.h"
#include "daemon/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Until a full queue is tried again.
#define AGAIN_S 0.05
#define BEAT_MIN_US INT64_C(1000)

// All that a manager sets for one process alone; those of newer versions too.
static const char *const theirs[] = {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "LISTEN_FDS", "LISTEN_FDNAMES",
	"LISTEN_PID", "LISTEN_PIDFDID"};

// A whole number from 1 on, or 0.
static int64_t number(const char *name)
{
	const char *s = getenv(name);
	char *end;
	if (!s || *s < '0' || *s > '9')
		return 0;
	errno = 0;
	long long v = strtoll(s, &end, 10);
	return errno || *end ? 0 : v;
}

// "/path", or "@name" for an abstract one.
static int take_address(struct notify *n, const char *s)
{
	size_t len = strlen(s);
	if ((*s != '/' && *s != '@') || len < 2 || len >= sizeof n->to.sun_path)
		return -EINVAL;
	n->to.sun_family = AF_UNIX;
	memcpy(n->to.sun_path, s, len + 1);
	if (*s == '@')
		n->to.sun_path[0] = '\0';
	n->to_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + (*s == '/'));
	return 0;
}

int notify_take(struct notify *n)
{
	const char *socket = getenv("NOTIFY_SOCKET");
	int64_t pid = number("WATCHDOG_PID"), usec = number("WATCHDOG_USEC"), fds = number("LISTEN_FDS");
	memset(n, 0, sizeof *n);
	int rc = socket ? take_address(n, socket) : 0;
	// Half of the time that it waits. What is meant for another process, a parent, is not for us.
	if (n->to_len && usec && (!getenv("WATCHDOG_PID") || pid == getpid()))
		n->beat_us = usec / 2 > BEAT_MIN_US ? usec / 2 : BEAT_MIN_US;
	if (fds && number("LISTEN_PID") == getpid()) {
		n->given = (size_t)fds;
		n->names = getenv("LISTEN_FDNAMES");
	}
	notify_hide();
	return rc;
}

int notify_export(const struct notify *n)
{
	char text[sizeof n->to.sun_path + 1];
	if (!n->to_len)
		return 0;
	size_t len = n->to_len - offsetof(struct sockaddr_un, sun_path);
	memcpy(text, n->to.sun_path, len);
	text[len] = '\0';
	if (!text[0])
		text[0] = '@';
	if (setenv("NOTIFY_SOCKET", text, 1) < 0)
		return -errno;
	if (!n->beat_us)
		return 0;
	snprintf(text, sizeof text, "%lld", (long long)n->beat_us * 2);
	return setenv("WATCHDOG_USEC", text, 1) < 0 ? -errno : 0;
}

void notify_hide(void)
{
	for (size_t i = 0; i < sizeof theirs / sizeof *theirs; i++)
		unsetenv(theirs[i]);
}

void notify_name(const struct notify *n, size_t i, char *out, size_t size)
{
	const char *s = n->names ? n->names : "";
	for (; i > 0 && *s; i--) {
		s += strcspn(s, ":");
		s += *s == ':';
	}
	snprintf(out, size, "%.*s", (int)strcspn(s, ":"), s);
}

// --- saying ---

static int send_text(const struct notify *n, const char *text)
{
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	ssize_t sent = IO_AGAIN(sendto(
		fd, text, strlen(text), MSG_NOSIGNAL | MSG_DONTWAIT, (const struct sockaddr *)&n->to, n->to_len));
	int rc = sent < 0 ? -errno : 0;
	io_close(&fd);
	return rc;
}

// True for what passes by itself.
static bool passes(int rc)
{
	return rc == -EAGAIN || rc == -ENOBUFS || rc == -ENOMEM || rc == -EMFILE || rc == -ENFILE;
}

static void on_again(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	struct notify *n = w->data;
	int rc = n->unsaid[0] ? send_text(n, n->unsaid) : 0;
	if (passes(rc))
		return;
	if (rc < 0)
		log_warn("notify", "%s", strerror(-rc));
	n->unsaid[0] = '\0';
	ev_timer_stop(loop, w);
}

// One that finds no room is not made up for: the next one does as well.
static void on_beat(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	const struct notify *n = w->data;
	send_text(n, "WATCHDOG=1");
}

void notify_start(struct notify *n, struct ev_loop *loop)
{
	double every = (double)n->beat_us / 1e6;
	if (!n->to_len)
		return;
	n->loop = loop;
	ev_timer_init(&n->again, on_again, AGAIN_S, AGAIN_S);
	ev_timer_init(&n->beat, on_beat, 0., every);
	n->again.data = n->beat.data = n;
	if (n->beat_us)
		ev_timer_start(loop, &n->beat);
}

void notify_stop(struct notify *n)
{
	if (!n->loop)
		return;
	ev_timer_stop(n->loop, &n->beat);
	ev_timer_stop(n->loop, &n->again);
	n->loop = NULL;
}

void notify_say(struct notify *n, const char *fmt, ...)
{
	if (!n->loop)
		return;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(n->unsaid, sizeof n->unsaid, fmt, ap);
	va_end(ap);
	ev_timer_stop(n->loop, &n->again);
	int rc = send_text(n, n->unsaid);
	if (passes(rc)) {
		ev_timer_again(n->loop, &n->again);
		return;
	}
	if (rc < 0)
		log_warn("notify", "%s", strerror(-rc));
	n->unsaid[0] = '\0';
}
