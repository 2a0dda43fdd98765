// SPDX-License-Identifier: Apache-2.0
// A box's processes: stopped, continued, counted. By its cgroup; else one by one, as /proc shows them below its PID 1. A plain child that was stopped so
// outlives a gateway that is killed: nobody is left to continue it.
#include "daemon/io.h"
#include "tests/gateway/box_priv.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// Looks until the box counts as still. Who sits in the kernel stops when it comes out: it is waited for some times only.
#define LOOKS_MAX 64
#define LOOKS_QUIET 20

struct look {
	struct tree_stat *all;
	size_t n, cap;
};

static int add(void *arg, const struct tree_stat *s)
{
	struct look *l = arg;
	if (l->n == l->cap) {
		size_t cap = l->cap ? l->cap * 2 : 256;
		struct tree_stat *more = realloc(l->all, cap * sizeof *more);
		if (!more)
			return -ENOMEM;
		l->all = more;
		l->cap = cap;
	}
	l->all[l->n++] = *s;
	return 0;
}

static void swap(struct tree_stat *a, struct tree_stat *b)
{
	struct tree_stat t = *a;
	*a = *b;
	*b = t;
}

// B's processes at the front of L, parents before their children. How many, or negative errno. L is the caller's (free) in any case.
static ssize_t look(const struct box *b, struct look *l)
{
	int rc = tree_each(add, l);
	if (rc < 0)
		return rc;
	size_t found = 0;
	for (size_t i = 0; i < l->n; i++) {
		if (l->all[i].pid == b->pid)
			swap(&l->all[i], &l->all[found++]);
	}
	for (size_t at = 0; at < found; at++) {
		for (size_t i = found; i < l->n; i++) {
			if (l->all[i].ppid == l->all[at].pid)
				swap(&l->all[i], &l->all[found++]);
		}
	}
	return found ? (ssize_t)found : -ESRCH;
}

// To the process that was PID when it started at START, and no other.
static int send_to(pid_t pid, unsigned long long start, int sig)
{
	struct tree_stat s;
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return -errno;
	int rc = tree_stat(pid, &s);
	if (rc == 0 && s.start != start)
		rc = -ESRCH;
	if (rc == 0 && syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

static bool is_stopped(const struct box *b, const struct tree_stat *s)
{
	for (size_t i = 0; i < b->stopped_count; i++) {
		if (b->stopped[i].pid == s->pid && b->stopped[i].start == s->start)
			return true;
	}
	return false;
}

static int note(struct box *b, const struct tree_stat *s, bool own)
{
	if (b->stopped_count == b->room) {
		size_t room = b->room ? b->room * 2 : 64;
		struct box_member *more = realloc(b->stopped, room * sizeof *more);
		if (!more)
			return -ENOMEM;
		b->stopped = more;
		b->room = room;
	}
	b->stopped[b->stopped_count++] = (struct box_member){s->pid, s->start, own};
	return 0;
}

static int stop(struct box *b, const struct tree_stat *s)
{
	int rc = note(b, s, false);
	if (rc == 0)
		rc = send_to(s->pid, s->start, SIGSTOP);
	return rc == -ESRCH ? 0 : rc;
}

// One look: *FRESH of its processes had not been stopped, *RUNNING have been but are not still yet.
static int stop_round(struct box *b, size_t *fresh, size_t *running)
{
	struct look l = {0};
	ssize_t n = look(b, &l);
	int rc = n < 0 ? (int)n : 0;
	*fresh = *running = 0;
	for (ssize_t i = 0; rc == 0 && i < n; i++) {
		const struct tree_stat *s = &l.all[i];
		bool known = is_stopped(b, s);
		if (strchr("Tt", s->state) && !known) {
			rc = note(b, s, true);
		} else if (strchr("TtZXx", s->state)) {
			continue;
		} else if (known) {
			++*running;
		} else {
			++*fresh;
			rc = stop(b, s);
		}
	}
	free(l.all);
	return rc;
}

static void go_on(struct box *b)
{
	while (b->stopped_count) {
		const struct box_member *m = &b->stopped[--b->stopped_count];
		if (!m->own)
			send_to(m->pid, m->start, SIGCONT);
	}
}

void box_stopped_kill(struct box *b)
{
	while (b->stopped_count) {
		const struct box_member *m = &b->stopped[--b->stopped_count];
		send_to(m->pid, m->start, SIGKILL);
	}
}

static int stop_all(struct box *b)
{
	static const struct timespec tick = {.tv_nsec = 200000};
	int rc = 0, quiet = 0;
	for (int i = 0; i < LOOKS_MAX; i++) {
		size_t fresh, running;
		rc = stop_round(b, &fresh, &running);
		if (rc < 0)
			break;
		quiet = fresh ? 0 : quiet + 1;
		if (!fresh && (!running || quiet == LOOKS_QUIET))
			return 0;
		nanosleep(&tick, NULL);
	}
	go_on(b);
	return rc < 0 ? rc : -EAGAIN;
}

int box_freeze(struct box *b)
{
	if (!b->pid)
		return -ESRCH;
	if (b->frozen)
		return 0;
	int rc = b->cgroup >= 0 ? box_cgroup_freeze(b, true) : stop_all(b);
	b->frozen = rc == 0;
	return rc;
}

// A daemon puts its deadlines off when it is continued. The freezer does not tell it, so we do, while it cannot act yet.
static void announce(const struct box *b)
{
	struct look l = {0};
	ssize_t n = look(b, &l);
	for (ssize_t i = 0; i < n; i++) {
		const struct tree_stat *s = &l.all[i];
		if (s->pid == b->pid || (s->ppid == b->pid && strcmp(s->comm, l.all[0].comm) == 0))
			send_to(s->pid, s->start, SIGCONT);
	}
	free(l.all);
}

int box_thaw(struct box *b)
{
	int rc = 0;
	if (!b->pid)
		return -ESRCH;
	if (!b->frozen)
		return 0;
	if (b->cgroup >= 0) {
		announce(b);
		rc = box_cgroup_freeze(b, false);
	} else {
		go_on(b);
	}
	b->frozen = rc < 0;
	return rc;
}

bool box_frozen(const struct box *b)
{
	return b->frozen;
}

// --- what they use ---

static void add_usage(pid_t pid, long long *pages, unsigned long long *ticks)
{
	char path[48], text[1024];
	unsigned long long user, sys, cuser, csys;
	long long resident;
	(void)snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
	if (io_read_file(path, text, sizeof text) > 0 && sscanf(text, "%*d %lld", &resident) == 1)
		*pages += resident;
	(void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	if (io_read_file(path, text, sizeof text) <= 0)
		return;
	const char *rest = strrchr(text, ')');
	if (rest && sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu %llu %llu", &user, &sys,
			    &cuser, &csys) == 4)
		*ticks += user + sys + cuser + csys;
}

int box_usage(const struct box *b, long long *memory, double *cpu_seconds)
{
	struct look l = {0};
	long long pages = 0;
	unsigned long long ticks = 0;
	ssize_t n = b->pid ? look(b, &l) : -ESRCH;
	for (ssize_t i = 0; i < n; i++)
		add_usage(l.all[i].pid, &pages, &ticks);
	free(l.all);
	if (n < 0)
		return (int)n;
	*memory = pages * sysconf(_SC_PAGESIZE);
	if (b->cgroup < 0 || box_cgroup_cpu(b, cpu_seconds) < 0)
		*cpu_seconds = (double)ticks / (double)sysconf(_SC_CLK_TCK);
	return 0;
}
