// SPDX-License-Identifier: Apache-2.0
// One large file each way over surface B's /files, which carries raw bytes.
#include "tests/bench/bulk.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define BYTES ((uint64_t)512 * 1024 * 1024)

// What a transfer is measured by.
struct meter {
	enum row_id rate, cpu, growth; // its rows
	double seconds, cpu_s, memory;
	int64_t start;
};

static void begin(struct meter *m, const struct target *t)
{
	m->memory = t ? bulk_peak_begin(t) : 0;
	m->cpu_s = t ? bench_cpu(t) : 0;
	m->start = bench_now_ns();
}

static void end(struct meter *m, const struct target *t)
{
	m->seconds = (double)(bench_now_ns() - m->start) / 1e9;
	m->cpu_s = t ? bench_cpu(t) - m->cpu_s : 0;
}

static void put(struct bench *b, const struct meter *m, const struct target *t)
{
	bench_put(b, m->rate, t, (double)BYTES / 1e6 / m->seconds);
	if (m->cpu_s > 0) // else it is not known
		bench_put(b, m->cpu, t, m->cpu_s / ((double)BYTES / 1e9));
	if (t && m->memory >= 0)
		bench_put(b, m->growth, t, bulk_peak(t, m->memory));
}

// Waits for a server of one connection, which it has had: the CPU seconds that it took.
static double server_cpu(pid_t pid, bool connected)
{
	struct rusage used = {0};
	if (!connected)
		kill(pid, SIGKILL);
	wait4(pid, NULL, 0, &used);
	return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	       (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void target_of(char *to, size_t n, const char *path)
{
	snprintf(to, n, "/files?path=%s&username=%s", path, sandbox_user());
}

// --- up ---

// The head of an upload, then the bytes. The status of the answer, or negative errno.
static int send_file(const struct bulk *k, struct client *c, const char *path)
{
	struct buf head = {0};
	char target[512];
	ssize_t n = 0;
	target_of(target, sizeof target, path);
	http_put_request(&head, "POST", target);
	http_put_header(&head, "Host", "127.0.0.1");
	http_put_header(&head, "Content-Type", "application/octet-stream");
	http_put_length(&head, BYTES);
	http_put_end(&head);
	int rc = buf_failed(&head) ? buf_failed(&head) : client_send_bytes(c, &head);
	buf_release(&head);
	for (uint64_t at = 0; rc == 0 && at < BYTES; at += (uint64_t)n) {
		n = send(c->fd, bulk_at(k, at), BYTES - at < BULK_PIECE ? (size_t)(BYTES - at) : BULK_PIECE,
			MSG_NOSIGNAL);
		if (n < 0)
			rc = -errno;
	}
	return rc < 0 ? rc : client_answer(c);
}

static void upload(struct bench *b, struct bulk *k, const struct target *t, const char *path)
{
	struct meter m = {ROW_UPLOAD, ROW_UPLOAD_CPU, ROW_UPLOAD_GROWTH, .start = 0};
	struct wire w;
	int port = 0;
	unlink(path); // a new file each time
	pid_t floor = t ? 0 : bulk_floor_take(path, &port);
	int opened = bulk_open(&w, t, port);
	begin(&m, t);
	int rc = opened == 0 ? send_file(k, &w.c, path) : opened;
	end(&m, t);
	if (rc != 200)
		bench_wrong(b, "upload to %s: %d, %.100s", bench_name(t), rc, wire_text(&w));
	wire_close(&w);
	if (!t)
		m.cpu_s = server_cpu(floor, opened == 0);
	if (rc == 200 && !bulk_file_right(k, path, BYTES))
		bench_wrong(b, "upload to %s: not what was sent is in the file", bench_name(t));
	else if (rc == 200)
		put(b, &m, t);
}

// --- down ---

struct check {
	const struct bulk *k;
	uint64_t at;
	bool wrong;
};

static void take(void *arg, const char *p, size_t n)
{
	struct check *c = arg;
	c->wrong = c->wrong || !bulk_right(c->k, p, n, c->at);
	c->at += n;
}

// GETs the file at TARGET; true if it came whole, after saying why not.
static bool fetch(struct bench *b, const struct bulk *k, struct wire *w, const char *who, const char *target)
{
	struct check c = {.k = k};
	int rc = client_get_stream(&w->c, target);
	if (rc != 200)
		bench_wrong(b, "download from %s: %d, %.100s", who, rc, wire_text(w));
	else if ((rc = wire_drain(w, take, &c)) < 0 || c.wrong || c.at != BYTES)
		bench_wrong(b, "download from %s: %d, %llu bytes%s", who, rc, (unsigned long long)c.at,
			c.wrong ? ", not what is in the file" : "");
	else
		return true;
	return false;
}

static void download(struct bench *b, const struct bulk *k, const struct target *t, const char *path)
{
	struct meter m = {ROW_DOWNLOAD, ROW_DOWNLOAD_CPU, ROW_DOWNLOAD_GROWTH, .start = 0};
	struct wire w;
	char target[512];
	int port = 0;
	pid_t floor = t ? 0 : bulk_floor_give(path, &port);
	int rc = bulk_open(&w, t, port);
	target_of(target, sizeof target, path);
	begin(&m, t);
	bool ok = rc == 0 && fetch(b, k, &w, bench_name(t), target);
	end(&m, t);
	if (rc < 0)
		bench_wrong(b, "download from %s: no connection, %d", bench_name(t), rc);
	wire_close(&w);
	if (!t)
		m.cpu_s = server_cpu(floor, rc == 0);
	if (!ok)
		return;
	put(b, &m, t);
	if (t && bench_median(b, ROW_DOWNLOAD_NGINX, NULL) > 0)
		bench_put(b, ROW_DOWNLOAD_NGINX, t, (double)BYTES / 1e6 / m.seconds);
}

// The second floor of downloads, where it is installed.
static void download_nginx(struct bench *b, const struct bulk *k)
{
	struct wire w;
	int port;
	pid_t nginx = bulk_floor_nginx(b->dir, b->room, &port);
	if (nginx < 0)
		return;
	int rc = bulk_open(&w, NULL, port);
	int64_t start = bench_now_ns();
	if (rc < 0)
		bench_wrong(b, "download from nginx: no connection, %d", rc);
	else if (fetch(b, k, &w, "nginx", "/bulk"))
		bench_put(b, ROW_DOWNLOAD_NGINX, NULL, (double)BYTES * 1e3 / (double)(bench_now_ns() - start));
	wire_close(&w);
	bench_kill(nginx);
}

void bench_files(struct bench *b, struct target *t)
{
	char path[256];
	struct bulk k;
	snprintf(path, sizeof path, "%s/bulk", b->room);
	if (!bulk_init(&k)) {
		bench_wrong(b, "no memory for a file's bytes");
		return;
	}
	// Pages that nobody has used yet cost the first who writes more than the later ones: that is nobody's figure.
	if (!t && bulk_file_make(&k, path, BYTES) < 0)
		bench_wrong(b, "%s: %s", path, strerror(errno));
	// More than once where the table has room for it: one transfer takes a quarter of a second, and much can disturb it.
	for (int i = 0; i < (b->quick || b->rounds * 2 > ROUNDS_MAX ? 1 : 2); i++) {
		upload(b, &k, t, path);
		download(b, &k, t, path); // of what was uploaded
		if (!t)
			download_nginx(b, &k);
	}
	unlink(path);
	bulk_release(&k);
}
