// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1 // SOCK_NONBLOCK
#include "daemon/net/listener.h"

#include "daemon/io.h"
#include "daemon/io_watch.h"
#include "proto/text.h"

#include <arpa/inet.h>
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <poll.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

// Connections a wake, after all that those already here have sent: at the limit the reserve of net is as large, and who has sent a request and
// is then in the way of others would see a reset where it should see an answer.
#define BATCH 16
#define REST 0.1 // seconds

// Any address that we listen on; sized by LEN.
struct address {
	union {
		struct sockaddr any;
		struct sockaddr_in in4;
		struct sockaddr_in6 in6;
		struct sockaddr_un un;
	};
	socklen_t len;
};

struct listener {
	struct ev_loop *loop;
	ev_io readable;
	ev_timer rest;
	void (*take)(void *arg, int fd);
	bool (*full)(void *arg);
	void *arg;
	bool taking; // within TAKE
};

static int parse_number(const char *s, long long max, long long *out)
{
	if (*s < '0' || *s > '9')
		return -EINVAL; // no sign
	return text_int(s, strlen(s), 0, max, out) < 0 ? -EINVAL : 0;
}

// "ADDR:PORT" or "[ADDR]:PORT", numbers only: a name would have to be looked up.
static int parse_tcp(const char *spec, struct address *a)
{
	const char *colon = strrchr(spec, ':');
	long long port;
	char host[INET6_ADDRSTRLEN + 1];
	if (!colon || parse_number(colon + 1, 65535, &port) < 0)
		return -EINVAL;
	size_t n = (size_t)(colon - spec);
	bool six = n >= 2 && spec[0] == '[' && spec[n - 1] == ']';
	if (six) {
		spec++;
		n -= 2;
	}
	if (n == 0 || n >= sizeof(host))
		return -EINVAL;
	memcpy(host, spec, n);
	host[n] = '\0';
	memset(a, 0, sizeof(*a));
	if (six) {
		a->in6.sin6_family = AF_INET6;
		a->in6.sin6_port = htons((uint16_t)port);
		a->len = sizeof(a->in6);
		return inet_pton(AF_INET6, host, &a->in6.sin6_addr) == 1 ? 0 : -EINVAL;
	}
	a->in4.sin_family = AF_INET;
	a->in4.sin_port = htons((uint16_t)port);
	a->len = sizeof(a->in4);
	return inet_pton(AF_INET, host, &a->in4.sin_addr) == 1 ? 0 : -EINVAL;
}

static int open_socket(int family)
{
	int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	return fd < 0 ? -errno : fd;
}

// A socket's file is its owner's alone from its first moment on; to change it by its name afterwards could hit another one.
static int bind_at(int fd, const struct address *a)
{
	if (a->any.sa_family != AF_UNIX)
		return bind(fd, &a->any, a->len) < 0 ? -errno : 0;
	if (fchmod(fd, 0600) < 0) // what the file is made with, where a directory's default ACL overrides the umask too
		return -errno;
	mode_t before = umask(0177);
	int rc = bind(fd, &a->any, a->len) < 0 ? -errno : 0;
	umask(before);
	return rc;
}

// Binds and listens; takes FD and gives it back, or closes it and gives a negative errno.
static int serve_at(int fd, const struct address *a)
{
	int rc = bind_at(fd, a);
	if (rc == 0 && listen(fd, SOMAXCONN) < 0)
		rc = -errno;
	if (rc == 0)
		return fd;
	io_close(&fd);
	return rc;
}

static int open_tcp(const struct address *a)
{
	int fd = open_socket(a->any.sa_family), on = 1, off = 0;
	if (fd < 0)
		return fd;
	int rc = setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (rc == 0 && a->any.sa_family == AF_INET6) // "[::]" takes IPv4 too, whatever the system's default
		rc = setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
	if (rc == 0)
		return serve_at(fd, a);
	rc = -errno;
	io_close(&fd);
	return rc;
}

static bool is_any6(const struct address *a)
{
	return a->any.sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&a->in6.sin6_addr);
}

static int open_spec_tcp(const char *spec, bool fallback4)
{
	struct address a;
	int fd = parse_tcp(spec, &a);
	if (fd < 0)
		return fd;
	fd = open_tcp(&a);
	bool no_ipv6 = fd == -EAFNOSUPPORT || fd == -EPROTONOSUPPORT || fd == -EADDRNOTAVAIL;
	if (!no_ipv6 || !fallback4 || !is_any6(&a))
		return fd;
	struct address four = {.in4 = {.sin_family = AF_INET, .sin_port = a.in6.sin6_port}, .len = sizeof(four.in4)};
	return open_tcp(&four);
}

// Makes room for a socket at A: 0 if there is nothing, or there was the socket of a process that has gone.
static int clear_stale(const struct address *a)
{
	struct stat st;
	if (lstat(a->un.sun_path, &st) < 0)
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	int fd = open_socket(AF_UNIX);
	if (fd < 0)
		return fd;
	// A full queue (EAGAIN) or another type of socket (EPROTOTYPE) is somebody too.
	int rc = IO_AGAIN(connect(fd, &a->any, a->len)) == 0 ? -EADDRINUSE : -errno;
	io_close(&fd);
	if (rc == -ENOENT)
		return 0;
	if (rc != -ECONNREFUSED)
		return rc == -EACCES ? rc : -EADDRINUSE;
	return unlink(a->un.sun_path) < 0 && errno != ENOENT ? -errno : 0;
}

static int open_unix(const char *path)
{
	struct address a = {.un = {.sun_family = AF_UNIX}, .len = sizeof(a.un)};
	size_t n = strlen(path);
	if (n == 0)
		return -EINVAL;
	if (n >= sizeof(a.un.sun_path))
		return -ENAMETOOLONG;
	memcpy(a.un.sun_path, path, n);
	int rc = clear_stale(&a);
	if (rc < 0)
		return rc;
	int fd = open_socket(AF_UNIX);
	return fd < 0 ? fd : serve_at(fd, &a);
}

// A socket that was handed over. It stays open on failure: it is not ours.
static int open_given(const char *number)
{
	long long fd;
	if (parse_number(number, INT_MAX, &fd) < 0)
		return -EINVAL;
	int listens = 0;
	socklen_t n = sizeof(listens);
	if (getsockopt((int)fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &n) < 0)
		return -errno;
	if (!listens)
		return -EINVAL;
	if (fcntl((int)fd, F_SETFD, FD_CLOEXEC) < 0)
		return -errno;
	int rc = io_set_nonblock((int)fd);
	return rc < 0 ? rc : (int)fd;
}

int listener_open(const char *spec, bool fallback4)
{
	if (strncmp(spec, "unix:", 5) == 0)
		return open_unix(spec + 5);
	if (strncmp(spec, "fd:", 3) == 0)
		return open_given(spec + 3);
	return open_spec_tcp(spec, fallback4);
}

int listener_name(int fd, char *out, size_t n)
{
	struct address a = {.len = offsetof(struct address, len)};
	char host[INET6_ADDRSTRLEN];
	if (getsockname(fd, &a.any, &a.len) < 0)
		return -errno;
	int len;
	if (a.any.sa_family == AF_INET6)
		len = snprintf(out, n, "[%s]:%d", inet_ntop(AF_INET6, &a.in6.sin6_addr, host, sizeof(host)),
			ntohs(a.in6.sin6_port));
	else if (a.any.sa_family == AF_INET)
		len = snprintf(out, n, "%s:%d", inet_ntop(AF_INET, &a.in4.sin_addr, host, sizeof(host)),
			ntohs(a.in4.sin_port));
	else if (a.any.sa_family == AF_UNIX && a.un.sun_path[0])
		len = snprintf(out, n, "unix:%.*s", (int)sizeof(a.un.sun_path), a.un.sun_path);
	else if (a.any.sa_family == AF_UNIX) // abstract, or without a name
		len = snprintf(out, n, "unix:@%.*s", (int)sizeof(a.un.sun_path) - 1, a.un.sun_path + 1);
	else
		return -EAFNOSUPPORT;
	return len >= 0 && (size_t)len < n ? 0 : -ENAMETOOLONG;
}

bool listener_is_local(int fd)
{
	int family = 0;
	socklen_t n = sizeof(family);
	return getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &n) == 0 && family == AF_UNIX;
}

static bool waits(int fd)
{
	struct pollfd p = {.fd = fd, .events = POLLIN};
	return IO_AGAIN(poll(&p, 1, 0)) > 0;
}

static void on_readable(struct ev_loop *loop, ev_io *w, int revents)
{
	io_watch_failed(loop, w, revents);
	struct listener *l = w->data;
	for (int i = 0; i < BATCH; i++) {
		int fd = io_accept(w->fd);
		if (fd == -EAGAIN)
			return;
		bool full = fd == -EMFILE || fd == -ENFILE;
		if (full && !waits(w->fd))
			return; // the kernel looks for a descriptor before it looks for a connection
		if (full && l->full && l->full(l->arg))
			continue;
		if (fd < 0) {
			// Out of descriptors or memory, or worse. The connection stays queued and the socket readable:
			// to look again at once would be to spin.
			ev_io_stop(loop, w);
			ev_timer_set(&l->rest, REST, 0.);
			ev_timer_start(loop, &l->rest);
			return;
		}
		l->taking = true;
		l->take(l->arg, fd);
		l->taking = false;
	}
}

static void on_rested(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)revents;
	struct listener *l = w->data;
	io_watch(loop, &l->readable);
}

struct listener *listener_new(struct ev_loop *loop, int fd, void (*take)(void *arg, int fd), void *arg)
{
	struct listener *l = calloc(1, sizeof(*l));
	if (!l)
		return NULL;
	l->loop = loop;
	l->take = take;
	l->arg = arg;
	ev_io_init(&l->readable, on_readable, fd, EV_READ);
	ev_timer_init(&l->rest, on_rested, REST, 0.);
	ev_set_priority(&l->readable, -1);
	l->readable.data = l->rest.data = l;
	io_watch(loop, &l->readable);
	return l;
}

void listener_on_full(struct listener *l, bool (*full)(void *arg))
{
	l->full = full;
}

void listener_free(struct listener *l)
{
	if (!l)
		return;
	assert(!l->taking); // a callback never frees its own object
	ev_io_stop(l->loop, &l->readable);
	ev_timer_stop(l->loop, &l->rest);
	free(l);
}
