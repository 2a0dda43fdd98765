// SPDX-License-Identifier: Apache-2.0
// What others wait while the daemon has much to do: GET /health again and again on one connection, beside one load at a time.
#include "tests/bench/bulk.h"

#include "proto/text.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PACE_US 2000
#define PROBES_MAX ((size_t)60000)
#define QUIET_US 500000
#define MIB ((uint64_t)1024 * 1024)
#define FILE_BYTES (64 * MIB)
// A body of 64 MiB is the largest that is taken by default; this is its content, decoded.
#define WRITE_BYTES (FILE_BYTES / 4 * 3 - 3 * 1024)

// What the load's process has beside the bench.
struct load {
	struct bench *b;
	const struct target *t;
	struct wire w;
	char path[256];  // of what it works on
	struct buf json; // the body of /files/write
};

struct load_case {
	const char *what;
	enum row_id max, p99;
	unsigned whom;
	bool (*prepare)(struct load *l); // or NULL; not measured
	bool (*run)(struct load *l);     // true if all was right
	int times;
};

// --- the loads, in a process of their own ---

static bool make_entries(struct load *l)
{
	snprintf(l->path, sizeof l->path, "%s/entries", l->b->room);
	return bulk_tree_make(l->path, BULK_ENTRIES, true) == 0 || errno == EEXIST;
}

static bool run_list(struct load *l)
{
	return wire_list(&l->w, l->path) == BULK_ENTRIES;
}

static bool make_tree(struct load *l)
{
	snprintf(l->path, sizeof l->path, "%s/beside", l->b->room);
	return bulk_tree_make(l->path, BULK_TREE_FILES, false) == 0;
}

static bool run_remove(struct load *l)
{
	return wire_remove(&l->w, l->path) >= 0 && access(l->path, F_OK) < 0 && errno == ENOENT;
}

// {"path":"...","encoding":"base64","content":"..."}
static bool make_json(struct load *l)
{
	unsigned char raw[3 * 1024];
	for (size_t i = 0; i < sizeof raw; i++)
		raw[i] = (unsigned char)(i * 7 + i / 256);
	snprintf(l->path, sizeof l->path, "%s/beside", l->b->room);
	buf_printf(&l->json, "{\"path\":\"%s\",\"encoding\":\"base64\",\"content\":\"", l->path);
	for (uint64_t n = 0; n < WRITE_BYTES; n += sizeof raw)
		text_b64_encode(&l->json, raw, sizeof raw);
	buf_str(&l->json, "\"}");
	return !buf_failed(&l->json);
}

static bool run_write(struct load *l)
{
	const char *json = buf_cstr(&l->json);
	return json && wire_post(&l->w, "/files/write", json) == 200 &&
	       json_integer_value(json_object_get(l->w.c.doc, "size")) == WRITE_BYTES;
}

static bool make_file(struct load *l)
{
	struct bulk k;
	snprintf(l->path, sizeof l->path, "%s/beside", l->b->room);
	unlink(l->path);
	bool ok = bulk_init(&k) && bulk_file_make(&k, l->path, FILE_BYTES) == 0;
	bulk_release(&k);
	return ok;
}

static void count(void *arg, const char *p, size_t n)
{
	(void)p;
	*(uint64_t *)arg += n;
}

static bool run_read(struct load *l)
{
	char target[512];
	uint64_t bytes = 0;
	snprintf(target, sizeof target, "/files/read?path=%s&encoding=base64", l->path);
	return client_get_stream(&l->w.c, target) == 200 && wire_drain(&l->w, count, &bytes) == 0 &&
	       bytes > FILE_BYTES / 3 * 4;
}

static bool run_stream(struct load *l)
{
	uint64_t bytes = 0, size = (l->b->quick ? 512 : 1024) * MIB;
	char command[64];
	snprintf(command, sizeof command, "head -c %llu /dev/zero", (unsigned long long)size);
	return wire_stream_open(&l->w, command) >= 0 && wire_drain(&l->w, count, &bytes) == 0 && bytes > size / 3 * 4;
}

enum { A = 1 << SURFACE_A, B = 1 << SURFACE_B };

static const struct load_case cases[] = {
	{"nothing else happens", ROW_BESIDE_NOTHING, ROW_BESIDE_NOTHING_P99, A | B, NULL, NULL, 0},
	{"10 000 entries are listed", ROW_BESIDE_LIST, ROW_BESIDE_LIST_P99, A | B, make_entries, run_list, 20},
	{"50 000 files are removed", ROW_BESIDE_REMOVE, ROW_BESIDE_REMOVE_P99, A | B, make_tree, run_remove, 1},
	{"64 MiB are written (base64)", ROW_BESIDE_WRITE, ROW_BESIDE_WRITE_P99, A, make_json, run_write, 2},
	{"64 MiB are read (base64)", ROW_BESIDE_READ, ROW_BESIDE_READ_P99, A, make_file, run_read, 3},
	{"a command streams at full speed", ROW_BESIDE_STREAM, ROW_BESIDE_STREAM_P99, A | B, NULL, run_stream, 1},
};

static pid_t fork_load(struct load *l, const struct load_case *k)
{
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	bool ok = bulk_open(&l->w, l->t, 0) == 0;
	for (int i = 0; ok && i < k->times; i++)
		ok = k->run(l);
	_exit(!ok);
}

// --- the probes ---

struct probes {
	struct wire w;
	double *us;
	size_t n;
};

// One probe. Whoever had asked while it waited would have waited too: each pace that it missed counts for one that was sent then.
static bool probe(struct probes *p)
{
	int64_t start = client_now_us();
	int rc = wire_health(&p->w);
	int64_t took = client_now_us() - start;
	for (int64_t us = took; p->n < PROBES_MAX && (us == took || us > 0); us -= PACE_US)
		p->us[p->n++] = (double)us;
	const struct timespec ts = {.tv_nsec = (PACE_US - took % PACE_US) * 1000};
	nanosleep(&ts, NULL);
	return rc >= 0;
}

// Probes until the load PID ends; without one for a while.
static bool probe_beside(struct probes *p, pid_t pid)
{
	int64_t end = client_now_us() + QUIET_US;
	int status = 0;
	bool ok = true, over = false;
	p->n = 0;
	while (ok && !over) {
		ok = probe(p);
		over = pid ? waitpid(pid, &status, WNOHANG) == pid : client_now_us() >= end;
	}
	if (pid && !over)
		bench_kill(pid);
	return ok && status == 0;
}

static void measure(struct bench *b, const struct target *t, struct probes *p, const struct load_case *k)
{
	struct load l = {.b = b, .t = t};
	bool ready = !k->prepare || k->prepare(&l);
	pid_t pid = ready && k->run ? fork_load(&l, k) : 0;
	if (!ready || pid < 0) {
		bench_wrong(b, "GET /health while %s: no load, %s", k->what, strerror(errno));
	} else if (!probe_beside(p, pid)) {
		bench_wrong(b, "GET /health of %s while %s: a wrong answer", t->name, k->what);
	} else {
		bench_put(b, k->p99, t, bench_percentile(p->us, p->n, 99) / 1000);
		bench_put(b, k->max, t, p->us[p->n - 1] / 1000);
	}
	buf_release(&l.json);
	unlink(l.path); // a file; of the directories, one is gone and the other stays
}

void bench_health(struct bench *b, struct target *t)
{
	struct probes p = {.w.c.fd = -1, .us = malloc(PROBES_MAX * sizeof *p.us)};
	if (!p.us || bulk_open(&p.w, t, 0) < 0) {
		bench_wrong(b, "nothing to probe /health of %s with", t->name);
	} else {
		for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
			if (cases[i].whom & (1u << t->surface))
				measure(b, t, &p, &cases[i]);
	}
	wire_close(&p.w);
	free(p.us);
}
