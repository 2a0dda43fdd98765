// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/tree.h"

#include "daemon/io.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

// Rounds of stopping until a tree counts as still; each one that finds something new halves what can still escape.
#define ROUNDS_MAX 64

struct member {
	pid_t pid;
	unsigned long long start;
	UT_hash_handle hh;
};

struct tree {
	struct member *members; // by pid, in the order found
	pid_t self;
	int sig;   // sent to each member as it is found; 0 = none
	int found; // in this round
	int err;
};

int tree_stat(pid_t pid, struct tree_stat *out)
{
	char path[48], line[1024];
	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	ssize_t n = io_read_file(path, line, sizeof line);
	if (n < 0)
		return n == -ENOENT ? -ESRCH : (int)n;
	// The name may hold anything, parentheses too: it ends at the last one.
	char *open = strchr(line, '('), *close = strrchr(line, ')');
	if (!open || !close || close < open)
		return -EINVAL;
	memset(out, 0, sizeof *out);
	size_t len = (size_t)(close - open) - 1;
	if (len >= sizeof out->comm)
		len = sizeof out->comm - 1;
	memcpy(out->comm, open + 1, len);
	int ppid, pgrp, session;
	int got = sscanf(close + 1, " %c %d %d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
		&out->state, &ppid, &pgrp, &session, &out->start);
	if (got != 5)
		return -EINVAL;
	out->pid = pid;
	out->ppid = ppid;
	out->pgrp = pgrp;
	out->session = session;
	return 0;
}

static pid_t pid_of(const char *name)
{
	char *end;
	long v = strtol(name, &end, 10);
	return *end == '\0' && v > 0 && v <= INT32_MAX ? (pid_t)v : 0;
}

int tree_each(int (*fn)(void *arg, const struct tree_stat *s), void *arg)
{
	DIR *d = opendir("/proc");
	if (!d)
		return -errno;
	int rc = 0;
	for (;;) {
		errno = 0;
		struct dirent *e = readdir(d);
		if (!e) {
			rc = -errno;
			break;
		}
		struct tree_stat s;
		pid_t pid = pid_of(e->d_name);
		if (pid && tree_stat(pid, &s) == 0) {
			rc = fn(arg, &s);
			if (rc)
				break;
		}
	}
	closedir(d);
	return rc;
}

// Signals the process that was PID when it started at START, and no other: the pidfd pins it, then its identity is checked.
static int signal_exactly(pid_t pid, unsigned long long start, int sig)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0)
		return -errno;
	struct tree_stat s;
	int rc = tree_stat(pid, &s);
	if (rc == 0 && s.start != start)
		rc = -ESRCH;
	if (rc == 0 && syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0) < 0)
		rc = -errno;
	close(fd);
	return rc;
}

static void add(struct tree *t, const struct tree_stat *s)
{
	struct member *m;
	HASH_FIND(hh, t->members, &s->pid, sizeof s->pid, m);
	if (m && m->start == s->start)
		return;
	if (s->state == 'Z' || s->pid == t->self)
		return;
	if (m) {
		m->start = s->start; // the number has a new owner
	} else {
		m = calloc(1, sizeof *m);
		if (!m) {
			t->err = -ENOMEM;
			return;
		}
		m->pid = s->pid;
		m->start = s->start;
		HASH_ADD(hh, t->members, pid, sizeof m->pid, m);
		if (!m->hh.tbl) {
			free(m);
			t->err = -ENOMEM;
			return;
		}
	}
	t->found++;
	if (t->sig)
		signal_exactly(s->pid, s->start, t->sig);
}

// Calls add for each child of PID, or for those whose session is SESSION (0 = any). -ENOENT where the kernel has no children files.
static int add_children(struct tree *t, pid_t pid, pid_t session)
{
	char path[64];
	snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	DIR *d = opendir(path);
	if (!d)
		return errno == ENOENT ? 0 : -errno;
	struct dirent *e;
	int rc = 0;
	while (rc == 0 && (e = readdir(d))) {
		pid_t tid = pid_of(e->d_name);
		if (!tid)
			continue;
		snprintf(path, sizeof path, "/proc/%d/task/%d/children", (int)pid, (int)tid);
		FILE *f = fopen(path, "re");
		if (!f) {
			rc = errno == ENOENT && access("/proc/self/task", F_OK) == 0 && tid == pid ? -ENOENT : 0;
			continue;
		}
		int child;
		while (fscanf(f, "%d", &child) == 1) {
			struct tree_stat s;
			if (session && getsid(child) != session)
				continue;
			if (tree_stat(child, &s) == 0 && (s.ppid == pid))
				add(t, &s);
		}
		fclose(f);
	}
	closedir(d);
	return rc;
}

struct scan {
	struct tree *tree;
	pid_t root;
	pid_t session;
};

static int scan_one(void *arg, const struct tree_stat *s)
{
	const struct scan *scan = arg;
	struct tree *t = scan->tree;
	struct member *parent;
	HASH_FIND(hh, t->members, &s->ppid, sizeof s->ppid, parent);
	bool below = parent || (scan->root && s->ppid == scan->root);
	if (below || (scan->session && s->session == scan->session && s->ppid == t->self))
		add(t, s);
	return 0;
}

// One round: everything below the members known so far, and below SELF what belongs to SESSION (0: all of it).
static void round_of(struct tree *t, pid_t session)
{
	t->found = 0;
	int rc = add_children(t, t->self, session);
	// Members are appended while this runs, so their own children are looked at in the same round.
	for (struct member *m = t->members; rc == 0 && m; m = m->hh.next)
		rc = add_children(t, m->pid, 0);
	if (rc == -ENOENT) {
		struct scan scan = {.tree = t, .root = session ? 0 : t->self, .session = session};
		tree_each(scan_one, &scan);
	}
}

static int finish(struct tree *t, int sig)
{
	struct member *m, *tmp;
	int n = 0;
	HASH_ITER(hh, t->members, m, tmp)
	{
		if (sig && signal_exactly(m->pid, m->start, sig) == 0)
			n++;
		HASH_DEL(t->members, m);
		free(m);
	}
	return t->err && !n ? t->err : n;
}

static int signal_tree(struct tree *t, pid_t session, int sig)
{
	t->sig = sig == SIGKILL ? SIGSTOP : 0;
	for (int i = 0; i < ROUNDS_MAX; i++) {
		round_of(t, session);
		if (!t->found)
			break;
	}
	return finish(t, sig);
}

int tree_signal(pid_t root, pid_t self, int sig)
{
	struct tree t = {.self = self, .sig = sig == SIGKILL ? SIGSTOP : 0};
	struct tree_stat s;
	int rc = tree_stat(root, &s);
	if (rc == 0)
		add(&t, &s);
	return signal_tree(&t, root, sig);
}

int tree_signal_all(pid_t self, int sig)
{
	struct tree t = {.self = self};
	return signal_tree(&t, 0, sig);
}
