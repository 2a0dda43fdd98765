// SPDX-License-Identifier: Apache-2.0
// What others wait while the daemon has much to do: GET /health again and again on one connection, beside one load at a time.
#include "tests/bench/bench.h"

#include "proto/text.h"

#include <ftw.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PACE_US 2000
#define PROBES_MAX ((size_t)60000)
#define QUIET_S 2
#define LOAD_US ((int64_t)60000000)
#define PIECE ((size_t)1024 * 1024)
#define MIB ((uint64_t)1024 * 1024)
#define FILE_BYTES (64 * MIB)
// A body of 64 MiB is the largest that is taken by default; this is its content, decoded.
#define WRITE_BYTES (FILE_BYTES / 4 * 3 - 3 * 1024)
#define ROOM (512 * MIB)

// What the load's process has beside the bench.
struct load {
	struct bench *b;
	struct client c;
	unsigned files; // in the tree
	char *json;     // the body of /files/write
};

struct load_case {
	const char *what;
	bool (*run)(struct load *l); // true if all was right
	int times;
};

// --- where ---

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

const char *bench_room_make(char *dir, size_t n)
{
	struct statvfs fs;
	bool room = statvfs("/dev/shm", &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize >= ROOM &&
		    (fs.f_files == 0 || fs.f_favail >= 200000);
	snprintf(dir, n, "%s/celld-XXXXXX", room ? "/dev/shm" : "/tmp");
	return mkdtemp(dir);
}

void bench_room_remove(const char *dir)
{
	nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

// --- the loads, in a process of their own ---

static uint64_t count_objects(struct http_span s)
{
	const char *end = s.p + s.n, *at = s.p;
	uint64_t n = 0;
	while ((at = memchr(at, '{', (size_t)(end - at))) != NULL) {
		n++;
		at++;
	}
	return n;
}

// Reads the body of an answer without keeping it: its length and how many objects it opens; false if it is none or cut.
static bool drain(struct client *c, uint64_t *bytes, uint64_t *objects)
{
	char *piece = malloc(PIECE);
	const char *p = (const char *)buf_data(&c->in);
	size_t n = buf_len(&c->in);
	enum http_event ev = HTTP_MORE;
	for (*bytes = *objects = 0; piece && ev != HTTP_END && ev != HTTP_ERROR;) {
		size_t used = 0;
		struct http_span body = {0};
		if (n == 0) {
			ssize_t got = recv(c->fd, piece, PIECE, 0);
			if (got <= 0)
				break;
			p = piece;
			n = (size_t)got;
		}
		ev = http_feed(c->http, p, n, &used, &body);
		p += used;
		n -= used;
		*bytes += ev == HTTP_BODY ? body.n : 0;
		*objects += ev == HTTP_BODY ? count_objects(body) : 0;
	}
	free(piece);
	buf_reset(&c->in);
	http_next(c->http);
	return ev == HTTP_END;
}

static bool get_and_drain(struct load *l, const char *target, uint64_t *bytes, uint64_t *objects)
{
	*bytes = *objects = 0;
	return client_get_stream(&l->c, target) == 200 && drain(&l->c, bytes, objects);
}

static bool run_list(struct load *l)
{
	uint64_t bytes, objects, want = 1 + l->files + l->files / 100;
	bool ok = get_and_drain(l, "/files/list?path=tree&depth=99", &bytes, &objects);
	if (!ok || objects != want)
		printf("list: %" PRIu64 " objects, want %" PRIu64 "\n", objects, want);
	return ok && objects == want;
}

static bool run_remove(struct load *l)
{
	return client_post(&l->c, "/files/remove", "{s:s}", "path", "tree") == 200;
}

static bool run_write(struct load *l)
{
	return client_send(&l->c, "POST", "/files/write", l->json) == 0 && client_answer(&l->c) == 200 &&
	       json_integer_value(json_object_get(l->c.doc, "size")) == WRITE_BYTES;
}

static bool run_read(struct load *l)
{
	uint64_t bytes, objects;
	return get_and_drain(l, "/files/read?path=file&encoding=base64", &bytes, &objects) && objects == 1 &&
	       bytes > FILE_BYTES / 3 * 4;
}

static bool run_stream(struct load *l)
{
	uint64_t bytes, objects, size = (l->b->quick ? 256 : 1024) * MIB;
	char command[64];
	snprintf(command, sizeof command, "head -c %" PRIu64 " /dev/zero", size);
	return client_post_stream(&l->c, "/exec/stream", "{s:s}", "command", command) == 200 &&
	       drain(&l->c, &bytes, &objects) && bytes > size / 3 * 4;
}

static const struct load_case cases[HEALTH_CASES] = {
	[HEALTH_QUIET] = {"nothing else happens", NULL, 0},
	[HEALTH_LIST] = {"a tree is listed", run_list, 4},
	[HEALTH_REMOVE] = {"a tree is removed", run_remove, 1},
	[HEALTH_WRITE] = {"64 MiB are written (base64)", run_write, 4},
	[HEALTH_READ] = {"64 MiB are read (base64)", run_read, 6},
	[HEALTH_STREAM] = {"a command streams at full speed", run_stream, 1},
};

static pid_t fork_load(struct load *l, const struct load_case *k)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bool ok = client_open(&l->c, l->b->box.port) == 0;
	const struct timeval silence = {.tv_sec = LOAD_US / 1000000};
	setsockopt(l->c.fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
	l->c.limit_us = LOAD_US * client_scale();
	for (int i = 0; ok && i < k->times; i++)
		ok = k->run(l);
	_exit(!ok);
}

// --- the probes ---

struct probes {
	struct client c;
	double *us;
	size_t n;
};

// One probe. Whoever had asked while it waited would have waited too: each pace that it missed counts for one that was sent then.
static bool probe(struct probes *p)
{
	int64_t start = client_now_us();
	int status = client_get(&p->c, "/health");
	int64_t took = client_now_us() - start;
	for (int64_t us = took; p->n < PROBES_MAX && (us == took || us > 0); us -= PACE_US)
		p->us[p->n++] = (double)us;
	int64_t rest = PACE_US - took % PACE_US;
	const struct timespec ts = {.tv_nsec = rest * 1000};
	nanosleep(&ts, NULL);
	return status == 204;
}

// Probes until the load PID ends; without one for a while.
static bool probe_beside(struct probes *p, pid_t pid, int64_t quiet_us)
{
	int64_t end = client_now_us() + quiet_us;
	int status = 0;
	bool ok = true, over = false;
	p->n = 0;
	while (ok && !over) {
		ok = probe(p);
		over = pid ? waitpid(pid, &status, WNOHANG) == pid : client_now_us() >= end;
	}
	if (pid && !over) {
		kill(pid, SIGKILL);
		waitpid(pid, &status, 0);
	}
	return ok && status == 0;
}

static void measure(struct bench *b, struct load *l, struct probes *p, enum health_case id)
{
	struct health *h = &b->health[id];
	const struct load_case *k = &cases[id];
	int64_t start = client_now_us();
	pid_t pid = k->run ? fork_load(l, k) : 0;
	if (pid < 0 || !probe_beside(p, pid, b->quick ? QUIET_S * 500000 : QUIET_S * 1000000) || p->n == 0) {
		bench_wrong(b, "GET /health while %s: a wrong answer", k->what);
		return;
	}
	h->load[h->rounds] = (double)(client_now_us() - start) / 1e6 / (k->times ? k->times : 1);
	h->p50[h->rounds] = bench_percentile(p->us, p->n, 50);
	h->p99[h->rounds] = bench_percentile(p->us, p->n, 99);
	h->max[h->rounds++] = p->us[p->n - 1];
}

// The tree and the file to be read, by a command.
static bool prepare(struct load *l)
{
	char command[512];
	struct client c;
	snprintf(command, sizeof command,
		"mkdir tree && cd tree && seq -f %%03.0f 0 %u | xargs mkdir && "
		"seq -f %%05.0f 0 %u | sed 's,..$,/&,' | xargs touch && head -c %" PRIu64 " /dev/urandom >../file",
		l->files / 100 - 1, l->files - 1, FILE_BYTES);
	int status = client_open(&c, l->b->box.port);
	c.limit_us = LOAD_US * client_scale();
	if (status == 0)
		status = client_post(&c, "/exec", "{s:s}", "command", command);
	const json_t *code = json_object_get(c.doc, "exit_code");
	bool ok = status == 200 && json_is_integer(code) && json_integer_value(code) == 0;
	if (!ok)
		bench_wrong(l->b, "no tree: %d, %.200s", status, buf_cstr(&c.body));
	client_close(&c);
	return ok;
}

// {"path":"written","encoding":"base64","content":"..."}, or NULL.
static char *write_body(void)
{
	struct buf json = {0};
	unsigned char raw[3 * 1024];
	for (size_t i = 0; i < sizeof raw; i++)
		raw[i] = (unsigned char)(i * 7 + i / 256);
	buf_str(&json, "{\"path\":\"written\",\"encoding\":\"base64\",\"content\":\"");
	for (uint64_t n = 0; n < WRITE_BYTES; n += sizeof raw)
		text_b64_encode(&json, raw, sizeof raw);
	buf_str(&json, "\"}");
	const char *s = buf_failed(&json) ? NULL : buf_cstr(&json);
	char *copy = s ? strdup(s) : NULL;
	buf_release(&json);
	return copy;
}

void bench_health(struct bench *b)
{
	struct load l = {.b = b, .files = b->quick ? 20000 : 100000, .json = write_body()};
	struct probes p = {.c.fd = -1, .us = malloc(PROBES_MAX * sizeof *p.us)};
	if (sandbox_start(&b->box, b->celld, b->room, false) < 0) {
		bench_wrong(b, "no celld for /health");
	} else {
		bool ok = l.json && p.us && prepare(&l) && client_open(&p.c, b->box.port) == 0;
		for (int id = 0; ok && id < HEALTH_CASES; id++)
			measure(b, &l, &p, (enum health_case)id);
		if (!ok)
			bench_wrong(b, "nothing to probe /health with");
		client_close(&p.c);
		if (sandbox_stop(&b->box) != 0)
			bench_wrong(b, "celld beside /health ended badly");
	}
	free(l.json);
	free(p.us);
}

void bench_health_print(struct bench *b)
{
	printf("\nGET /health while (%s, %d files in the tree)\n", b->room, b->quick ? 20000 : 100000);
	printf("%-36s %-5s %9s %9s %9s   %s\n", "P50, P99: MEDIAN; MAX: LEAST", "UNIT", "P50", "P99", "MAX",
		"THE LOAD TAKES");
	for (int i = 0; i < HEALTH_CASES; i++) {
		struct health *h = &b->health[i];
		size_t n = (size_t)h->rounds;
		printf("%-36s %-5s %9.0f %9.0f %9.0f   ", cases[i].what, "us", bench_percentile(h->p50, n, 50),
			bench_percentile(h->p99, n, 50), bench_percentile(h->max, n, 0));
		if (cases[i].run)
			printf("%.2f s", bench_percentile(h->load, n, 50));
		putchar('\n');
	}
}
