// SPDX-License-Identifier: Apache-2.0
// A file to the sandbox: in pieces to a hidden file beside its place, by /files/write, which needs no program there; then moved.
#include "daemon/ctl/copy.h"
#include "daemon/ctl/progress.h"
#include "daemon/io.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <unistd.h>

#define PIECE ((size_t)4 * 1024 * 1024)
#define PIECE_MIN ((size_t)256)
#define NEW_MODE 0644u // of what /files/write makes
#define PRIVATE_MODE 0600u
#define REMOVE_MS 3000

struct upload {
	const char *src;
	int fd;
	int signals; // those that would end us: first the half-made copy goes
	int caught;
	char *temp;
	bool asked; // for the first piece: it may be there
	bool made;
	size_t piece;
	struct http_client c;
	struct progress progress;
	int64_t done;
};

static char *temp_name(const char *to)
{
	char *s;
	unsigned long long id;
	const char *slash = strrchr(to, '/');
	if (getrandom(&id, sizeof id, 0) != (ssize_t)sizeof id)
		id = (unsigned long long)io_mono_ns();
	return asprintf(&s, "%.*s" COPY_TEMP "%016llx", slash ? (int)(slash - to) + 1 : 0, to, id) < 0 ? NULL : s;
}

// True once a signal has come; else the file can be read.
static bool interrupted(struct upload *u)
{
	struct signalfd_siginfo info;
	struct pollfd p[2] = {{.fd = u->fd, .events = POLLIN}, {.fd = u->signals, .events = POLLIN}};
	while (poll(p, 2, -1) < 0 && errno == EINTR)
		;
	if (p[1].revents && io_read(u->signals, &info, sizeof info) == (ssize_t)sizeof info)
		u->caught = (int)info.ssi_signo;
	return u->caught;
}

// The status of what has failed because of E, or of a signal that nobody would wait for any longer.
static int give_up(struct upload *u, const struct err *e)
{
	struct signalfd_siginfo info;
	if (io_read(u->signals, &info, sizeof info) != (ssize_t)sizeof info)
		return ctl_fail(e);
	u->caught = (int)info.ssi_signo;
	return CTL_SIGNAL + u->caught;
}

// A whole piece, or what is left: bytes, or -1 (caught, or after a message).
static ssize_t read_piece(struct upload *u, char *p)
{
	size_t n = 0;
	while (n < u->piece) {
		if (interrupted(u))
			return -1;
		ssize_t got = io_read(u->fd, p + n, u->piece - n);
		if (got < 0) {
			(void)copy_fails(u->src, (int)-got);
			return -1;
		}
		if (got == 0)
			break;
		n += (size_t)got;
	}
	return (ssize_t)n;
}

// N bytes, in pieces as large as the daemon takes.
static int send_piece(struct upload *u, const char *p, size_t n, struct err *e)
{
	do {
		size_t now = n < u->piece ? n : u->piece;
		u->asked = true;
		if (remote_append(&u->c, u->temp, p, now, !u->made, e) == 0) {
			u->made = true;
			p += now;
			n -= now;
			u->done += (int64_t)now;
			progress_at(&u->progress, u->done);
		} else if (e->status == 413 && u->piece > PIECE_MIN) {
			u->piece /= 2;
		} else {
			return -1;
		}
	} while (n > 0);
	return 0;
}

static int send_all(struct upload *u)
{
	struct err e;
	char *p = malloc(PIECE);
	if (!p)
		return copy_fails(u->src, ENOMEM);
	ssize_t n;
	int status = CTL_OK;
	do {
		n = read_piece(u, p);
		if (n < 0)
			status = u->caught ? CTL_SIGNAL + u->caught : CTL_FAILED;
		else if ((n > 0 || !u->made) && send_piece(u, p, (size_t)n, &e) < 0)
			status = give_up(u, &e);
	} while (status == CTL_OK && n > 0);
	free(p);
	return status;
}

// The permission bits that the copy gets.
static unsigned mode_of(const struct upload *u)
{
	struct stat st;
	return fstat(u->fd, &st) == 0 && S_ISREG(st.st_mode) ? st.st_mode & 0777 : NEW_MODE;
}

static int set_mode(struct upload *u, unsigned mode, struct err *e)
{
	struct buf line;
	buf_init(&line, 0);
	buf_printf(&line, "chmod %03o ", mode);
	copy_put_path(&line, u->temp);
	const char *command = buf_cstr(&line);
	int rc = command ? remote_run(&u->c, command, e) : err_sys(e, -ENOMEM, "chmod");
	buf_release(&line);
	return rc;
}

static int put(struct upload *u, const char *to)
{
	struct err e;
	unsigned mode = mode_of(u);
	// What not everybody may read here is not for everybody there, not even while it comes.
	if ((mode & NEW_MODE) != NEW_MODE && (send_piece(u, "", 0, &e) < 0 || set_mode(u, PRIVATE_MODE, &e) < 0))
		return give_up(u, &e);
	int status = send_all(u);
	if (status != CTL_OK)
		return status;
	if ((mode != NEW_MODE && set_mode(u, mode, &e) < 0) || remote_move(&u->c, u->temp, to, &e) < 0)
		return give_up(u, &e);
	u->asked = false;
	return CTL_OK;
}

int copy_up(struct ctl *ctl, int fd, const char *src, const char *to)
{
	struct upload u = {.src = src, .fd = fd, .piece = PIECE, .temp = temp_name(to)};
	struct stat st;
	struct err e;
	sigset_t set;
	if (!u.temp)
		return copy_fails(src, ENOMEM);
	sigemptyset(&set);
	ctl_add_signal(&set, SIGINT);
	ctl_add_signal(&set, SIGTERM);
	ctl_add_signal(&set, SIGHUP);
	ctl_add_signal(&set, SIGQUIT);
	sigprocmask(SIG_BLOCK, &set, NULL);
	u.signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	http_client_init(&u.c, &ctl->target);
	u.c.stop_fd = u.signals;
	bool known = fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
	progress_begin(&u.progress, src, known ? st.st_size : -1, ctl->opt.quiet);
	int status = put(&u, to);
	progress_end(&u.progress);
	u.c.limit_ms = REMOVE_MS;
	if (u.asked)
		(void)remote_remove(&u.c, u.temp, &e);
	http_client_release(&u.c);
	io_close(&u.signals);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	free(u.temp);
	return status;
}
