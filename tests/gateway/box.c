// SPDX-License-Identifier: Apache-2.0
#include "tests/gateway/box.h"

#include "daemon/io.h"
#include "daemon/log.h"
#include "tests/gateway/box_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATH_VALUE "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
#define LINE_MAX_BYTES 65536
#define FREE_WAIT_MS 5000

// --- what its celld says ---

static void take_line(struct box *b, const char *line, size_t n)
{
	(void)snprintf(b->last, sizeof b->last, "%.*s", (int)n, line);
	if (b->verbose)
		log_plain("[%s] %.*s", b->name, (int)n, line);
	if (b->ready || !b->pid || strncmp(b->last, "celld ", 6) != 0 || !strstr(b->last, " ready: "))
		return;
	b->ready = true;
	box_net_open(b);
	b->ev.ready(b->arg, b);
}

// Lines as they come; a NULL-less piece too long for a line counts as one.
static void take_text(struct box *b, const char *p, size_t n)
{
	const char *end;
	buf_append(&b->line, p, n);
	if (buf_failed(&b->line))
		buf_reset(&b->line);
	while ((end = memchr(buf_data(&b->line), '\n', buf_len(&b->line)))) {
		const char *line = (const char *)buf_data(&b->line);
		take_line(b, line, (size_t)(end - line));
		buf_consume(&b->line, (size_t)(end - line) + 1);
	}
}

// True once there is no more for now.
static bool read_log(struct box *b)
{
	char text[8192];
	ssize_t n = io_read(b->log, text, sizeof text);
	if (n > 0)
		take_text(b, text, (size_t)n);
	else if (n != -EAGAIN)
		ev_io_stop(b->loop, &b->on_log);
	return n <= 0;
}

static void on_log(struct ev_loop *loop, ev_io *w, int revents)
{
	(void)loop, (void)revents;
	read_log(w->data);
}

// --- its end ---

// Gives back all that it used while it lived. Its socket files are in the way of nobody but show where nothing listens.
static void let_go(struct box *b)
{
	struct sockaddr_un a;
	ev_io_stop(b->loop, &b->on_end);
	ev_io_stop(b->loop, &b->on_log);
	box_cgroup_close(b);
	box_stopped_kill(b);
	for (int i = 0; b->dirfd >= 0 && i < 2; i++) {
		box_address(b, i ? BOX_ENVD : BOX_SANDBOXD, &a);
		unlink(a.sun_path);
	}
	io_close(&b->pidfd);
	io_close(&b->log);
	io_close(&b->netns);
	b->pid = 0;
	b->frozen = false;
}

static void say_end(const struct box *b, const siginfo_t *si, char *out, size_t n)
{
	const char *name = sigabbrev_np(si->si_status);
	char how[64];
	if (si->si_code == CLD_EXITED)
		(void)snprintf(how, sizeof how, "exit status %d", si->si_status);
	else
		(void)snprintf(how, sizeof how, "killed by SIG%s", name ? name : "?");
	bool early = !b->ready && b->last[0];
	(void)snprintf(out, n, early ? "%s: %s" : "%s", how, b->last);
}

static void on_end(struct ev_loop *loop, ev_io *w, int revents)
{
	(void)loop, (void)revents;
	struct box *b = w->data;
	siginfo_t si = {0};
	char why[BOX_LAST + 80];
	if (waitid(P_PIDFD, (id_t)b->pidfd, &si, WEXITED | WNOHANG) < 0 || !si.si_pid)
		return;
	b->pid = 0; // what it has said is read, but it is not ready any more
	for (int i = 0; i < 64 && !read_log(b); i++) {
	}
	say_end(b, &si, why, sizeof why);
	let_go(b);
	b->ev.ended(b->arg, b, why);
}

// --- its start ---

static char *path_in(const char *dir, const char *name)
{
	char *path;
	return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

static struct box *box_new(struct ev_loop *loop, const struct box_spec *s, const struct box_events *ev, void *arg)
{
	struct box *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	b->loop = loop;
	b->ev = *ev;
	b->arg = arg;
	b->namespaces = s->namespaces;
	b->private_net = s->namespaces && s->private_net;
	b->verbose = s->verbose;
	b->pidfd = b->dirfd = b->log = b->netns = b->cgroup = -1;
	ev_init(&b->on_end, on_end);
	ev_init(&b->on_log, on_log);
	b->on_end.data = b->on_log.data = b;
	buf_init(&b->line, LINE_MAX_BYTES);
	b->name = strdup(s->name);
	b->dir = strdup(s->dir);
	b->hide = s->hide ? strdup(s->hide) : NULL;
	b->work = path_in(s->dir, "work");
	b->tmp = path_in(s->dir, "tmp");
	if (b->name && b->dir && !b->hide == !s->hide && b->work && b->tmp)
		return b;
	box_free(b);
	errno = ENOMEM;
	return NULL;
}

static int pidfd_of(pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	return fd < 0 ? -errno : fd;
}

// Runs CELLD for B with what I has. 0 or negative errno.
static int run(struct box *b, const char *celld, struct isolate *i)
{
	char key[PATH_MAX + 16], tmp[PATH_MAX + 8], home[PATH_MAX + 8];
	const char *argv[] = {"celld", "--listen", "fd:3", "--envd-listen", "fd:4", "--workspace", box_home(b),
		"--venv", "off", "--token-empty", "none", "--token-file", key, "--init",
		b->namespaces ? NULL : "--pass-env", "TMPDIR", NULL};
	const char *env[] = {PATH_VALUE, "LANG=C.UTF-8", home, b->namespaces ? NULL : tmp, NULL};
	(void)snprintf(
		key, sizeof key, "%s%s/token", b->namespaces ? "" : b->dir, b->namespaces ? ISOLATE_KEY : "/key");
	(void)snprintf(tmp, sizeof tmp, "TMPDIR=%s", b->tmp);
	(void)snprintf(home, sizeof home, "HOME=%s", b->namespaces ? "/root" : b->work);
	i->namespaces = b->namespaces;
	i->user_ns = geteuid() != 0;
	i->private_net = b->private_net;
	i->dir = b->dir;
	i->hide = b->hide;
	i->celld = celld;
	i->argv = (char *const *)argv;
	i->env = (char *const *)env;
	pid_t pid = isolate_start(i, b->cgroup);
	if (pid < 0 && b->cgroup >= 0) {
		box_cgroup_close(b);
		pid = isolate_start(i, -1);
	}
	if (pid < 0)
		return pid;
	b->pid = pid;
	int fd = pidfd_of(pid);
	if (fd >= 0)
		b->pidfd = fd;
	return fd < 0 ? fd : 0;
}

// Starts it all; what it leaves undone box_free sees to.
static int start(struct box *b, const struct box_spec *s)
{
	struct isolate i = {.listen = {-1, -1}, .log = -1, .parent = -1};
	int log[2] = {-1, -1};
	b->dirfd = open(b->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	int rc = b->dirfd < 0 ? -errno : box_places_make(b);
	if (rc == 0)
		rc = i.listen[0] = box_listen(b, BOX_SANDBOXD);
	if (rc >= 0)
		rc = i.listen[1] = box_listen(b, BOX_ENVD);
	if (rc >= 0)
		rc = io_pipe(log);
	b->log = log[0];
	i.log = log[1];
	if (rc >= 0)
		rc = io_set_nonblock(b->log);
	if (rc >= 0)
		rc = i.parent = pidfd_of(getpid());
	if (rc >= 0) {
		box_cgroup_open(b);
		rc = run(b, s->celld, &i);
	}
	io_close(&i.listen[0]);
	io_close(&i.listen[1]);
	io_close(&i.log);
	io_close(&i.parent);
	return rc < 0 ? rc : 0;
}

struct box *box_start(struct ev_loop *loop, const struct box_spec *spec, const struct box_events *ev, void *arg)
{
	struct box *b = box_new(loop, spec, ev, arg);
	int rc = b ? start(b, spec) : 0;
	if (rc < 0) {
		box_free(b);
		errno = -rc;
		return NULL;
	}
	if (!b)
		return NULL;
	ev_io_set(&b->on_end, b->pidfd, EV_READ);
	ev_io_set(&b->on_log, b->log, EV_READ);
	ev_io_start(loop, &b->on_end);
	ev_io_start(loop, &b->on_log);
	return b;
}

// --- what is asked of it ---

pid_t box_pid(const struct box *b)
{
	return b->pid;
}

static bool ended_within(const struct box *b, int ms)
{
	struct pollfd p = {.fd = b->pidfd, .events = POLLIN};
	return poll(&p, 1, ms) > 0;
}

// The number in FIELD of a process's stat, as proc(5) counts them; NAME: the end of the second.
static unsigned long stat_field(const char *name, int field)
{
	const char *at = name;
	for (int i = 3; at && i <= field; i++)
		at = strchr(at + 1, ' ');
	return at ? strtoul(at, NULL, 10) : 0;
}

// It was sent KILL and may not have noticed yet. Only the mask of the whole process keeps that until its end.
static bool doomed(pid_t pid)
{
	static const char mask[] = "\nShdPnd:";
	char path[32], text[4096];
	(void)snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
	ssize_t n = io_read_file(path, text, sizeof text);
	const char *at = n > 0 ? strstr(text, mask) : NULL;
	return at && strtoull(at + sizeof mask - 1, NULL, 16) & 1ULL << (SIGKILL - 1);
}

// A PID 1 that is being ended waits for all of its namespace before it can be waited for itself, and serves nothing by then.
static bool exiting(pid_t pid)
{
	enum { FLAGS = 9, PF_EXITING = 0x4 };
	char path[32], text[1024];
	if (doomed(pid))
		return true;
	(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	ssize_t n = io_read_file(path, text, sizeof text);
	const char *name = n > 0 ? strrchr(text, ')') : NULL;
	return name && stat_field(name, FLAGS) & PF_EXITING;
}

bool box_alive(const struct box *b)
{
	return b->pid && !ended_within(b, 0) && !exiting(b->pid);
}

static int signal_it(const struct box *b, int sig)
{
	if (!b->pid)
		return -ESRCH;
	return syscall(SYS_pidfd_send_signal, b->pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

void box_kill(struct box *b)
{
	if (!b->pid || box_cgroup_kill(b))
		return;
	if (!b->namespaces)
		tree_signal(b->pid, getpid(), SIGKILL);
	signal_it(b, SIGKILL);
}

int box_set_token(struct box *b, const char *token)
{
	if (!b->ready || !b->pid)
		return -ESRCH; // one that starts takes a HUP for its end
	int rc = box_write_token(b, token ? token : "");
	return rc < 0 ? rc : signal_it(b, SIGHUP);
}

const char *box_dir(const struct box *b)
{
	return b->dir;
}

const char *box_work(const struct box *b)
{
	return b->work;
}

const char *box_home(const struct box *b)
{
	return b->namespaces ? "/home/" BOX_USER : b->work;
}

const char *box_temp(const struct box *b, size_t i)
{
	static const char *const inside[] = {"/tmp", "/dev/shm", "/root", "/dev/mqueue", NULL};
	if (b->namespaces)
		return inside[i];
	return i == 0 ? b->tmp : NULL;
}

int box_mend(const struct box *b)
{
	return box_places_mend(b);
}

int box_remember(struct box *b, const char *text)
{
	free(b->remembered);
	b->remembered = strdup(text);
	return b->remembered ? 0 : -ENOMEM;
}

const char *box_remembered(const struct box *b)
{
	return b->remembered;
}

const char *box_user(const struct box *b)
{
	const struct passwd *p = b->namespaces ? NULL : getpwuid(geteuid());
	if (b->namespaces)
		return BOX_USER;
	return p ? p->pw_name : "root";
}

static void kill_and_wait(struct box *b)
{
	siginfo_t si;
	box_kill(b);
	if (b->pidfd < 0) {
		kill(b->pid, SIGKILL);
		waitid(P_PID, (id_t)b->pid, &si, WEXITED);
	} else if (ended_within(b, FREE_WAIT_MS)) {
		waitid(P_PIDFD, (id_t)b->pidfd, &si, WEXITED | WNOHANG);
	}
}

void box_free(struct box *b)
{
	if (!b)
		return;
	if (b->pid)
		kill_and_wait(b);
	let_go(b);
	io_close(&b->dirfd);
	buf_release(&b->line);
	free(b->stopped);
	free(b->name);
	free(b->dir);
	free(b->hide);
	free(b->remembered);
	free(b->work);
	free(b->tmp);
	free(b);
}
