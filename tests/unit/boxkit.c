// SPDX-License-Identifier: Apache-2.0
#include "boxkit.h"

#include "proto/buf.h"
#include "proto/json.h"
#include "tests/gateway/box_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define NOBODY 65534

static struct {
	int fds;
	char mounts[65536];
} before;

static int count(const char *dir, const char *prefix)
{
	int n = 0;
	DIR *d = opendir(dir);
	struct dirent *e;
	while (d && (e = readdir(d)))
		n += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
	if (d)
		closedir(d);
	return n;
}

int boxkit_groups(pid_t pid)
{
	char name[64];
	(void)snprintf(name, sizeof name, "celld-gateway-%d-", (int)pid);
	return count("/sys/fs/cgroup/unified", name) + count("/sys/fs/cgroup", name);
}

static void read_mounts(char *out, size_t n)
{
	int fd = open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC);
	size_t at = 0;
	ssize_t got = 1;
	ck_assert_int_ge(fd, 0);
	while (at < n - 1 && (got = read(fd, out + at, n - 1 - at)) > 0)
		at += (size_t)got;
	out[at] = '\0';
	close(fd);
}

double boxkit_time(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

static void shell(const char *line)
{
	ck_assert_msg(system(line) == 0, "%s", line);
}

// Where the machine has no namespaces for us boxes are plain in all ways; where it has, a box must have them.
static bool can_isolate(void)
{
	const char *probe = geteuid() == 0 ? "unshare -mpf --mount-proc true 2>/dev/null"
					   : "unshare -Urmpf --mount-proc true 2>/dev/null";
	const char *why = box_can_isolate();
	ck_assert_msg(!why || system(probe) != 0, "%s", why);
	return !why;
}

// Apart from what others mount meanwhile, and shared as systemd has it: what a box mounts in the wrong place would come out here.
static void own_mounts(void)
{
	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0)
		return;
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount(NULL, "/", NULL, MS_REC | MS_SHARED, NULL), 0);
}

void boxkit_init(struct boxkit *k, enum boxkit_way way)
{
	char line[1200];
	const char *celld = getenv("CELLD");
	ck_assert_msg(celld != NULL, "CELLD has to name the daemon's binary");
	own_mounts();
	*k = (struct boxkit){.dir = "/tmp/celld-box-XXXXXX"};
	ck_assert_ptr_nonnull(mkdtemp(k->dir));
	// Nobody may have no way to where it was built.
	(void)snprintf(k->celld, sizeof k->celld, "%s/celld", k->dir);
	(void)snprintf(line, sizeof line, "cp -- '%s' '%s'", celld, k->celld);
	shell(line);
	if (way == BOXKIT_NOBODY && geteuid() == 0) {
		ck_assert_int_eq(chown(k->dir, NOBODY, NOBODY), 0);
		ck_assert_int_eq(setgroups(0, NULL), 0);
		ck_assert_int_eq(setgid(NOBODY), 0);
		ck_assert_int_eq(setuid(NOBODY), 0);
	}
	k->namespaces = way != BOXKIT_PLAIN && can_isolate();
	k->loop = ev_loop_new(EVFLAG_NOENV);
	ck_assert_ptr_nonnull(k->loop);
	before.fds = count("/proc/self/fd", "");
	read_mounts(before.mounts, sizeof before.mounts);
}

void boxkit_release(struct boxkit *k)
{
	static char mounts[sizeof before.mounts];
	char line[1200];
	for (int i = 0; i < BOXKIT_MAX; i++)
		box_free(k->box[i].b);
	read_mounts(mounts, sizeof mounts);
	ck_assert_str_eq(mounts, before.mounts);
	ck_assert_int_eq(count("/proc/self/fd", ""), before.fds);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(errno, ECHILD);
	// Who was killed is not dead at once on a busy machine; the group goes when the gateway looks the next time.
	for (double until = boxkit_time() + 10; boxkit_groups(getpid()) && boxkit_time() < until; usleep(5000))
		box_cgroup_sweep();
	ck_assert_int_eq(boxkit_groups(getpid()), 0);
	ev_loop_destroy(k->loop);
	(void)snprintf(line, sizeof line, "chmod -Rf u+rwX '%s'; rm -rf --one-file-system -- '%s'", k->dir, k->dir);
	shell(line);
}

static void on_ready(void *arg, struct box *b)
{
	struct boxkit_box *x = arg;
	ck_assert_ptr_eq(x->b, b);
	ck_assert_int_eq(x->ended, 0);
	x->ready++;
}

static void on_ended(void *arg, struct box *b, const char *why)
{
	struct boxkit_box *x = arg;
	ck_assert_ptr_eq(x->b, b);
	ck_assert(!box_alive(b));
	ck_assert_int_eq(box_pid(b), 0);
	(void)snprintf(x->why, sizeof x->why, "%s", why);
	x->ended++;
	x->b = NULL;
	box_free(b);
}

struct boxkit_box *boxkit_begin(struct boxkit *k, int i)
{
	static const struct box_events events = {on_ready, on_ended};
	struct boxkit_box *x = &k->box[i];
	char dir[512], name[16];
	(void)snprintf(dir, sizeof dir, "%s/%d", k->dir, i);
	(void)snprintf(name, sizeof name, "%d", i);
	ck_assert(mkdir(dir, 0700) == 0 || errno == EEXIST);
	struct box_spec spec = {.celld = k->celld,
		.dir = dir,
		.hide = k->hide,
		.namespaces = k->namespaces,
		.private_net = k->private_net,
		.verbose = getenv("BOXKIT_VERBOSE") != NULL,
		.name = name};
	*x = (struct boxkit_box){.k = k};
	x->b = box_start(k->loop, &spec, &events, x);
	ck_assert_msg(x->b != NULL, "box_start: %s", strerror(errno));
	return x;
}

struct boxkit_box *boxkit_start(struct boxkit *k, int i)
{
	struct boxkit_box *x = boxkit_begin(k, i);
	BOXKIT_UNTIL(k, x->ready || x->ended);
	ck_assert_msg(!x->ended, "%s", x->why);
	ck_assert_int_eq(x->ready, 1);
	return x;
}

void boxkit_end(struct boxkit_box *x)
{
	box_kill(x->b);
	BOXKIT_UNTIL(x->k, x->ended);
	ck_assert_str_eq(x->why, "killed by SIGKILL");
}

static void on_time(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)w, (void)revents;
	ev_break(loop, EVBREAK_ONE);
}

void boxkit_turn(struct boxkit *k, double seconds)
{
	ev_timer t;
	ev_timer_init(&t, on_time, seconds, 0.);
	ev_timer_start(k->loop, &t);
	ev_run(k->loop, EVRUN_ONCE);
	ev_timer_stop(k->loop, &t);
}

static bool waits(int fd, short events, double until)
{
	struct pollfd p = {.fd = fd, .events = events};
	double left = until - boxkit_time();
	return poll(&p, 1, left > 0 ? (int)(left * 1000) : 0) > 0;
}

// All of the answer into B, up to its end.
static void receive(int fd, double until, struct buf *b)
{
	char text[4096];
	while (waits(fd, POLLIN, until)) {
		ssize_t n = read(fd, text, sizeof text);
		if (n <= 0)
			return;
		buf_append(b, text, (size_t)n);
	}
}

int boxkit_ask(const struct boxkit_box *x, unsigned port, const char *head, const char *body, double seconds, char *out,
	size_t n)
{
	double until = boxkit_time() + seconds;
	int fd = box_connect(x->b, port), status = -1;
	struct buf b;
	buf_init(&b, 0);
	out[0] = '\0';
	if (fd < 0)
		return -1;
	ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
	ck_assert(fcntl(fd, F_GETFD) & FD_CLOEXEC);
	buf_printf(&b,
		"%s HTTP/1.1\r\nHost: box\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: "
		"%zu\r\n\r\n%s",
		head, strlen(body), body);
	if (waits(fd, POLLOUT, until) && write(fd, buf_data(&b), buf_len(&b)) == (ssize_t)buf_len(&b)) {
		buf_reset(&b);
		receive(fd, until, &b);
		const char *text = buf_cstr(&b), *end = text ? strstr(text, "\r\n\r\n") : NULL;
		if (end && sscanf(text, "HTTP/1.1 %d", &status) == 1)
			(void)snprintf(out, n, "%s", end + 4);
	}
	close(fd);
	buf_release(&b);
	return status;
}

int boxkit_run(const struct boxkit_box *x, const char *command, char *out, size_t n)
{
	static char answer[65536];
	int code = -1;
	struct buf b;
	struct jsonw w;
	buf_init(&b, 0);
	jsonw_init(&w, &b);
	jsonw_obj(&w);
	jsonw_kstr(&w, "command", command);
	jsonw_obj_end(&w);
	if (boxkit_ask(x, BOX_SANDBOXD, "POST /exec", buf_cstr(&b), 15, answer, sizeof answer) == 200) {
		struct err e;
		json_t *doc = jsonr_parse(answer, strlen(answer), &e);
		ck_assert_msg(doc != NULL, "%s", answer);
		code = (int)json_integer_value(json_object_get(doc, "exit_code"));
		(void)snprintf(out, n, "%s%s", json_string_value(json_object_get(doc, "stdout")),
			json_string_value(json_object_get(doc, "stderr")));
		jsonr_free(doc);
		size_t len = strlen(out);
		if (len && out[len - 1] == '\n')
			out[len - 1] = '\0';
	} else {
		(void)snprintf(out, n, "%s", answer);
	}
	buf_release(&b);
	return code;
}
