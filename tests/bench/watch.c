// SPDX-License-Identifier: Apache-2.0
// From the moment before a file is created until a client has read of it in a watch's stream.
#include "tests/bench/bulk.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MOST 600
#define PAUSE_US 500

static void rest(void)
{
	const struct timespec ts = {.tv_nsec = PAUSE_US * 1000};
	nanosleep(&ts, NULL);
}

static void name_of(char name[16], size_t i)
{
	snprintf(name, 16, "w%06zu.", i);
}

// Creates the I-th file; when that began, or -1.
static int64_t create(const char *dir, size_t i)
{
	char path[320], name[16];
	name_of(name, i);
	snprintf(path, sizeof path, "%s/%s", dir, name);
	int64_t start = bench_now_ns();
	return mknod(path, S_IFREG | 0644, 0) == 0 ? start : -1;
}

// --- the floor: a process that sleeps in the inotify read ---

// Tells on OUT when it has read of each file; ends at the first event that is none of the next one's creation.
static void read_events(int fd, int out)
{
	char text[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	for (size_t i = 0;; i++) {
		char name[16];
		ssize_t n = read(fd, text, sizeof text);
		int64_t at = bench_now_ns();
		const struct inotify_event *e = (const struct inotify_event *)(const void *)text;
		name_of(name, i);
		if (n < (ssize_t)sizeof *e || !(e->mask & IN_CREATE) || strcmp(e->name, name) != 0 ||
			write(out, &at, sizeof at) != sizeof at)
			_exit(1);
	}
}

static size_t floor_watch(const char *dir, double *us, size_t n)
{
	int pipes[2], fd = inotify_init1(IN_CLOEXEC);
	size_t done = 0;
	if (fd < 0 || inotify_add_watch(fd, dir, IN_CREATE) < 0 || pipe2(pipes, O_CLOEXEC) < 0) {
		close(fd);
		return 0;
	}
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pipes[0]);
		read_events(fd, pipes[1]);
	}
	close(fd);
	close(pipes[1]);
	for (int64_t at, start; done < n; done++) {
		rest();
		start = create(dir, done);
		if (start < 0 || read(pipes[0], &at, sizeof at) != sizeof at)
			break;
		us[done] = (double)(at - start) / 1e3;
	}
	close(pipes[0]);
	bench_kill(pid);
	return done;
}

// The same through a connection: how many creations came of it.
static size_t relayed_watch(const char *dir, double *us, size_t n)
{
	char text[4096] __attribute__((aligned(__alignof__(struct inotify_event))));
	size_t done = 0;
	int in = -1, fd = inotify_init1(IN_CLOEXEC);
	pid_t pid = fd < 0 || inotify_add_watch(fd, dir, IN_CREATE) < 0 ? -1 : bulk_floor_relay(fd, &in);
	for (int64_t start; pid > 0 && done < n; done++) {
		rest();
		start = create(dir, done);
		if (start < 0 || read(in, text, sizeof text) < (ssize_t)sizeof(struct inotify_event))
			break;
		us[done] = (double)(bench_now_ns() - start) / 1e3;
	}
	bench_kill(pid);
	close(in);
	close(fd);
	return done;
}

// --- a target ---

static int open_stream(struct wire *w, const char *dir)
{
	struct buf out = {0};
	char text[512];
	if (w->surface == SURFACE_A) {
		snprintf(text, sizeof text, "/watch/stream?path=%s", dir);
		wire_put_get(&out, text);
	} else {
		snprintf(text, sizeof text, "{\"path\":\"%s\"}", dir);
		wire_put_post_stream(&out, SURFACE_B, "/filesystem.Filesystem/WatchDir", text);
	}
	int rc = buf_failed(&out) ? buf_failed(&out) : client_send_bytes(&w->c, &out);
	buf_release(&out);
	return rc < 0 ? rc : client_answer_stream(&w->c);
}

// Reads until TEXT is in the stream: 0 or negative errno.
static int await(struct client *c, const char *text)
{
	for (;;) {
		if (memmem(buf_data(&c->body), buf_len(&c->body), text, strlen(text)))
			return 0;
		int rc = client_more(c);
		if (rc <= 0)
			return rc < 0 ? rc : -ECONNRESET;
	}
}

// The I-th file's event, which is its creation and the only one since the last.
static int await_event(struct wire *w, size_t i)
{
	const char *type = w->surface == SURFACE_A ? "\"type\":1" : "\"EVENT_TYPE_CREATE\"";
	char name[16];
	name_of(name, i);
	int rc = await(&w->c, name);
	if (rc == 0)
		rc = await(&w->c, type);
	buf_reset(&w->c.body);
	return rc;
}

// How many of N creations were told. A surface without such a stream is no wrong result.
static size_t target_watch(struct bench *b, const struct target *t, const char *dir, double *us, size_t n)
{
	struct wire w;
	size_t done = 0;
	int rc = wire_open(&w, t);
	rc = rc < 0 ? rc : open_stream(&w, dir);
	bool gone = rc == 404;
	if (rc == 200)
		rc = await(&w.c, t->surface == SURFACE_A ? "\"watcher_id\"" : "\"start\"");
	buf_reset(&w.c.body);
	for (; rc == 0 && done < n; done += rc == 0) {
		rest();
		int64_t start = create(dir, done);
		rc = start < 0 ? -errno : await_event(&w, done);
		us[done] = (double)(bench_now_ns() - start) / 1e3;
	}
	if (rc != 0 && !gone)
		bench_wrong(b, "watch of %s: %d after %zu events, %.200s", t->name, rc, done, buf_cstr(&w.c.body));
	wire_close(&w);
	return done;
}

static void measure(struct bench *b, struct target *t, bool relay)
{
	double us[MOST];
	char dir[256];
	size_t n = b->quick ? MOST / 3 : MOST;
	size_t done = 0;
	snprintf(dir, sizeof dir, "%s/watched", b->room);
	if (mkdir(dir, 0755) < 0)
		bench_wrong(b, "%s: %s", dir, strerror(errno));
	else
		done = t ? target_watch(b, t, dir, us, n) : relay ? relayed_watch(dir, us, n) : floor_watch(dir, us, n);
	if (done == n) {
		double p50 = bench_percentile(us, n, 50);
		if (t || relay)
			bench_put(b, ROW_WATCH_RELAY, t, p50);
		if (!relay) {
			bench_put(b, ROW_WATCH_P50, t, p50);
			bench_put(b, ROW_WATCH_P99, t, bench_percentile(us, n, 99));
		}
	} else if (!t) {
		bench_wrong(b, "the inotify read: %zu of %zu files", done, n);
	}
	bench_remove_tree(dir);
}

void bench_watch(struct bench *b, struct target *t)
{
	measure(b, t, false);
	if (!t)
		measure(b, NULL, true);
}
