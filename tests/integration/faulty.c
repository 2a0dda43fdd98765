// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/faulty.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

// Which call fails goes up one by one to here, then faster; a path with more of them than the other never ends.
#define ONE_BY_ONE 48
#define AT_MAX 20000
#define SETTLE 8000

static struct fault_plan *make_plan(char *path, size_t n)
{
	(void)snprintf(path, n, "/tmp/celld-plan-XXXXXX");
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)sizeof(struct fault_plan)), 0);
	void *p = mmap(NULL, sizeof(struct fault_plan), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	(void)close(fd);
	return p;
}

void f_arm(struct faulty *f)
{
	struct fault_plan *p = f->plan;
	const struct fault *fault = f->fault = f->coming;
	f->armed = true;
	if (!fault)
		return;
	for (size_t i = 0; i < FAULT_CALLS_MAX; i++)
		atomic_store(&p->each[i], 0);
	p->name[0] = '\0';
	atomic_store(&p->kinds, fault->kinds);
	atomic_store(&p->err, fault->err);
	atomic_store(&p->every, fault->every);
	atomic_store(&p->at, f->at);
	atomic_store(&p->apart, fault->apart);
	atomic_store(&p->room, fault->room);
	atomic_store(&p->seen, 0);
	atomic_store(&p->hits, 0);
	atomic_store(&p->pid, f->d->daemon);
}

void f_disarm(struct faulty *f)
{
	atomic_store(&f->plan->pid, 0);
	f->fault = NULL;
}

enum verdict f_wrong(struct faulty *f, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	(void)vsnprintf(f->why, sizeof f->why, format, ap);
	va_end(ap);
	return WRONG;
}

// --- files ---

const char *f_path(struct faulty *f, const char *name)
{
	char *path = f->path[f->next++ % 8];
	(void)snprintf(path, sizeof f->path[0], "%s/%s", f->d->workspace, name);
	return path;
}

void f_put(struct faulty *f, const char *name, const void *p, size_t n)
{
	int fd = open(f_path(f, name), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, p, n), (ssize_t)n);
	(void)close(fd);
}

enum verdict f_file(struct faulty *f, const char *name, const void *p, size_t n)
{
	struct stat st;
	int fd = open(f_path(f, name), O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return p ? f_wrong(f, "%s is not there", name) : RIGHT;
	char *have = malloc(n + 1);
	ck_assert_ptr_nonnull(have);
	ck_assert_int_eq(fstat(fd, &st), 0);
	bool same = p && (size_t)st.st_size == n && read(fd, have, n) == (ssize_t)n && memcmp(have, p, n) == 0;
	free(have);
	(void)close(fd);
	return same ? RIGHT : f_wrong(f, "%s has other bytes, %lld of them", name, (long long)st.st_size);
}

static int count_hidden(const char *path, const struct stat *st, int type, struct FTW *where)
{
	(void)st, (void)type;
	return strncmp(path + where->base, ".celld-", 7) == 0;
}

// --- a path under a fault ---

static bool fds_are_as_before(void *arg)
{
	struct faulty *f = arg;
	return d_fd_count(f->d) <= f->fds;
}

static bool nothing_runs(void *arg)
{
	struct faulty *f = arg;
	return d_no_commands(f->d);
}

static const char *verdict_name(enum verdict v)
{
	static const char *const names[] = {"right", "refused", "cut", "wrong"};
	return names[v];
}

// Fails the test with all that is known of it.
static void give_up(struct faulty *f, const struct path *path, const char *what)
{
	const struct fault_plan *p = f->plan;
	const struct fault *fault = f->coming;
	if (getenv("FAULTS_GO_ON")) {
		fprintf(stderr, "%s under %s, call %u of %u (%u failed, the last: %s at 0x%llx): %s\n", path->name,
			fault ? fault->name : "no fault", f->at, p->seen, p->hits, p->name,
			(unsigned long long)p->where, what);
		f->failures++;
		return;
	}
	ck_abort_msg("%s under %s, call %u of %u (%u failed, the last: %s at 0x%llx): %s", path->name,
		fault ? fault->name : "no fault", f->at, p->seen, p->hits, p->name, (unsigned long long)p->where, what);
}

// Everything is as before: no temporary file, nothing of a sandbox, no descriptor.
static void settle(struct faulty *f, const struct path *path)
{
	f_disarm(f);
	if (nftw(f->d->workspace, count_hidden, 16, FTW_PHYS) != 0)
		give_up(f, path, "a temporary file is left");
	if (f_want(f, FACE_A, "/workspace/reset", "{}", "\"ok\":true") != RIGHT)
		give_up(f, path, f->why);
	if (f->fds && !wait_until(fds_are_as_before, f, SETTLE)) {
		char what[100];
		(void)snprintf(what, sizeof what, "%d descriptors, before it were %d", d_fd_count(f->d), f->fds);
		give_up(f, path, what);
	}
}

static enum verdict run_once(struct faulty *f, const struct path *path, const struct fault *fault, unsigned at)
{
	f->coming = fault;
	f->at = at;
	f->armed = false;
	enum verdict v = path->run(f);
	f_disarm(f);
	if (v == WRONG || !f->armed)
		give_up(f, path, f->armed ? f->why : "it was never armed");
	if (v != RIGHT && (!fault || fault->harmless || !f->plan->hits))
		give_up(f, path, verdict_name(v));
	settle(f, path);
	return v;
}

bool f_full(void)
{
	return getenv("FAULTS_FULL") != NULL;
}

static unsigned next_at(unsigned at)
{
	// A slow build does not see other calls than a quick one.
	unsigned step = f_full() ? 1 : h_scale() > 1 ? 6 : 2;
	return at < ONE_BY_ONE / step ? at + 1 : at + 1 + at * step / 8;
}

// Descriptors while nothing happens any more.
static int still_fds(struct faulty *f)
{
	int now = d_fd_count(f->d), last, looks = 0;
	do {
		last = now;
		h_tick();
		now = d_fd_count(f->d);
	} while (now != last && ++looks < 100);
	return now;
}

static void try_one(struct faulty *f, const struct path *path, const struct fault *fault)
{
	unsigned counts[WRONG + 1] = {0}, hits = 0, at = 1;
	int64_t began = h_now_ms();
	do {
		counts[run_once(f, path, fault, at)]++;
		hits = f->plan->hits;
		f->struck += hits;
		at = next_at(at);
	} while (!fault->every && hits && at < AT_MAX);
	if (at >= AT_MAX)
		give_up(f, path, "there is no end of it");
	if (getenv("FAULTS_VERBOSE"))
		fprintf(stderr, "%-20s %-12s right %u refused %u cut %u, up to call %u, %lld ms\n", path->name,
			fault->name, counts[RIGHT], counts[REFUSED], counts[CUT], f->at,
			(long long)(h_now_ms() - began));
}

void f_try(struct faulty *f, const struct path *path, const struct fault *faults, size_t count, unsigned *struck)
{
	f->fds = 0;
	(void)run_once(f, path, NULL, 0);
	f->fds = still_fds(f); // some are opened once and kept
	for (size_t i = 0; i < count; i++) {
		f->struck = 0;
		try_one(f, path, &faults[i]);
		struck[i] += f->struck;
	}
	if (run_once(f, path, NULL, 0) != RIGHT)
		give_up(f, path, "not right without it");
	if (!wait_until(nothing_runs, f, SETTLE))
		give_up(f, path, "a process is left");
	ck_assert_int_eq(d_zombies(f->d), 0);
	d_assert_alive(f->d);
}

// --- its life ---

void f_start(struct faulty *f)
{
	char path[64], env[100];
	const char *binary = getenv("CELLD_FAULTY");
	*f = (struct faulty){0};
	f->plan = make_plan(path, sizeof path);
	(void)snprintf(env, sizeof env, "FAULTS_PLAN=%s", path);
	const struct d_opts o = {
		.args = (const char *const[]){"--init", "--envd-listen", "127.0.0.1:0", "--retention", "1", NULL},
		.env = (const char *const[]){env, NULL},
		.binary = binary && *binary ? binary : "build/celld-faults",
		.plain = true,
	};
	f->d = d_start_opts(&o);
	(void)unlink(path);
	// What is opened once and kept.
	struct path idle = {"start", NULL};
	settle(f, &idle);
	f->fds = d_fd_count(f->d);
}

void f_finish(struct faulty *f)
{
	ck_assert_uint_eq(f->failures, 0);
	d_finish(f->d);
	(void)munmap(f->plan, sizeof *f->plan);
	resp_release(&f->r);
	buf_release(&f->out);
	buf_release(&f->err);
}

// --- talking ---

static const char *type_of(enum face face)
{
	static const char *const types[] = {"application/json", "application/json", "application/octet-stream",
		"application/json", "application/proto", "application/connect+json", "application/connect+proto"};
	return types[face];
}

struct talk *f_open(struct faulty *f, enum face face, const char *method, const char *target, const char *headers,
	const void *body, size_t n)
{
	struct buf out = {0};
	struct talk *t = calloc(1, sizeof *t);
	ck_assert_ptr_nonnull(t);
	t->face = face;
	t->c = face <= FACE_SSE ? client_connect(f->d) : client_connect_to(f->d->envd_host, f->d->envd_port, 0);
	buf_printf(&out, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s", method, target, headers ? headers : "");
	if (!headers || !strstr(headers, "Content-Type:"))
		buf_printf(&out, "Content-Type: %s\r\n", type_of(face));
	if (body)
		buf_printf(&out, "Content-Length: %zu\r\n", n);
	BUF_LIT(&out, "\r\n");
	buf_append(&out, body, body ? n : 0);
	ck_assert_int_eq(buf_failed(&out), 0);
	t->sent = client_send_raw(t->c, buf_data(&out), buf_len(&out));
	buf_release(&out);
	return t;
}

// One event more of the answer; false at its end or when none came in time.
static bool read_more(struct talk *t, int64_t end)
{
	if (t->over || t->cut)
		return false;
	switch (client_event(t->c, &t->body, end)) {
	case HTTP_HEAD:
		t->status = http_head(t->c->http)->status;
		return true;
	case HTTP_BODY:
		return true;
	case HTTP_END:
		t->over = true;
		return false;
	case HTTP_MORE:
		return false;
	default:
		t->cut = true;
		return false;
	}
}

static bool holds(struct buf *b, const char *text)
{
	return memmem(buf_data(b), buf_len(b), text, strlen(text)) != NULL;
}

bool f_until(struct talk *t, const char *text)
{
	int64_t end = h_now_ms() + h_scaled(SETTLE);
	while (!holds(&t->body, text))
		if (!read_more(t, end))
			return holds(&t->body, text);
	return true;
}

void f_leave(struct talk *t)
{
	client_close(t->c);
	buf_release(&t->body);
	free(t);
}
