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
#include <sys/resource.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define HASH_NONFATAL_OOM 1
#include <uthash.h>

// Rounds of stopping until a tree counts as still; each one that finds something new halves what can still escape.
#define ROUNDS_MAX 64
// Times that a tree is waited for to stand still: who sits in the kernel (vfork, a hung disk) does not stop at all.
#define PAUSES_MAX 20

// Fields of /proc/PID/stat, as proc(5) counts them.
enum { STAT_PARENT = 4, STAT_GROUP = 5, STAT_SESSION = 6, STAT_THREADS = 20, STAT_START = 22 };

struct member {
	pid_t pid, session;
	unsigned long long start;
	bool dead; // found as a zombie without threads: it has no children, but had them a moment ago
	UT_hash_handle hh;
};

struct tree {
	struct member *members; // by pid, in the order found
	pid_t self;
	pid_t spare; // not looked at
	int sig;     // sent to each member as it is found; 0 = none
	pid_t only;  // members of that session alone are signalled; 0 = all
	int found;   // in this round: new members, and hints that there are more
	int sent;
	int err;
};

// A /proc of another PID namespace tells of other processes under the same numbers: it is as good as none.
static bool proc_is_ours(void)
{
	char self[16];
	ssize_t n = readlink("/proc/self", self, sizeof self - 1);
	self[n > 0 ? n : 0] = '\0';
	return atoi(self) == getpid();
}

int tree_stat(pid_t pid, struct tree_stat *out)
{
	char path[48], line[1024];
	if (!proc_is_ours())
		return -ENOENT;
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
	// Its state, then what proc(5) counts from the 4th field on. (No scanf, here and elsewhere: it
	// would be 36 KiB of an idle celld.)
	long long field[STAT_START + 1];
	char *at = close + 1;
	while (*at == ' ')
		at++;
	out->state = *at ? *at++ : 0;
	for (size_t i = STAT_PARENT; i <= STAT_START; i++) {
		char *from = at;
		field[i] = strtoll(from, &at, 10);
		if (at == from)
			return -EINVAL;
	}
	out->pid = pid;
	out->ppid = (pid_t)field[STAT_PARENT];
	out->pgrp = (pid_t)field[STAT_GROUP];
	out->session = (pid_t)field[STAT_SESSION];
	out->threads = (int)field[STAT_THREADS];
	out->start = (unsigned long long)field[STAT_START];
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

// Signals the process that was PID when it started at START, and no other: the pidfd pins it, then its identity is checked. Where containers
// or kernels refuse pidfds, the check comes right before the signal.
static int signal_exactly(pid_t pid, unsigned long long start, int sig)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0 && errno != ENOSYS && errno != EPERM)
		return -errno;
	struct tree_stat s;
	int rc = tree_stat(pid, &s);
	if (rc == 0 && s.start != start)
		rc = -ESRCH;
	if (rc == 0 && (fd < 0 ? kill(pid, sig) : (int)syscall(SYS_pidfd_send_signal, fd, sig, NULL, 0)) < 0)
		rc = -errno;
	io_close(&fd);
	return rc;
}

static struct member *find(const struct tree *t, pid_t pid)
{
	struct member *m;
	HASH_FIND(hh, t->members, &pid, sizeof pid, m);
	return m;
}

static struct member *member_new(struct tree *t, pid_t pid)
{
	struct member *m = calloc(1, sizeof *m);
	if (m) {
		m->pid = pid;
		HASH_ADD(hh, t->members, pid, sizeof m->pid, m);
		if (m->hh.tbl)
			return m;
	}
	free(m);
	t->err = -ENOMEM;
	return NULL;
}

static bool is_dead(const struct tree_stat *s)
{
	return s->state == 'Z' && s->threads <= 1;
}

// One that gets signals.
static bool is_meant(const struct tree *t, const struct member *m)
{
	return !m->dead && (!t->only || m->session == t->only);
}

static void send_to(struct tree *t, const struct member *m, int sig)
{
	if (is_meant(t, m) && signal_exactly(m->pid, m->start, sig) == 0)
		t->sent++;
}

// The dead are taken in too: one that was not known before may have left a child that no list has shown yet.
static void add(struct tree *t, const struct tree_stat *s)
{
	struct member *m = find(t, s->pid);
	if (s->pid == t->self || s->pid == t->spare || (m && m->start == s->start))
		return;
	if (!m)
		m = member_new(t, s->pid);
	if (!m)
		return;
	m->start = s->start; // a known number has a new owner
	m->session = s->session;
	m->dead = is_dead(s);
	t->found++;
	if (t->sig)
		send_to(t, m, t->sig);
}

static void add_child(struct tree *t, pid_t child, pid_t parent, pid_t session)
{
	const struct member *m = find(t, child);
	if (parent == t->self && m && m->dead)
		return; // nobody but SELF could reap it, so it is the same
	pid_t of = session ? getsid(child) : 0;
	if (of != session && !find(t, of))
		return; // neither of that session nor of one that a member has made
	struct tree_stat s;
	if (tree_stat(child, &s) == 0 && s.ppid == parent)
		add(t, &s);
	else
		t->found++; // it ended or moved under our eyes: look again
}

// The numbers in the file PATH: how many, with *OUT allocated; or negative errno.
static ssize_t read_pids(const char *path, pid_t **out)
{
	FILE *f = fopen(path, "re");
	if (!f)
		return -errno;
	pid_t *list = NULL;
	char *text = NULL;
	size_t n = 0, cap = 0, room = 0;
	int pid;
	while (getdelim(&text, &room, ' ', f) > 0 && (pid = atoi(text)) > 0) {
		if (n == cap) {
			cap = cap ? cap * 2 : 64;
			pid_t *more = realloc(list, cap * sizeof *list);
			if (!more)
				break; // those already read are looked at; the rest shows in the next round
			list = more;
		}
		list[n++] = pid;
	}
	free(text);
	fclose(f);
	*out = list;
	return (ssize_t)n;
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
		pid_t *list = NULL;
		ssize_t n = read_pids(path, &list);
		if (n == -ENOENT && access("/proc/thread-self/children", F_OK) < 0)
			rc = -ENOENT;
		// Read whole, then the newest first: of processes that start their successors and end, only the last ones live.
		while (n > 0)
			add_child(t, list[--n], pid, session);
		free(list);
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
	bool below = find(t, s->ppid) || (scan->root && s->ppid == scan->root);
	if (below || (scan->session && s->session == scan->session))
		add(t, s);
	return 0;
}

// One round: everything below the members known so far, and below SELF what belongs to SESSION (0: all of it).
static void round_of(struct tree *t, pid_t session)
{
	t->found = 0;
	int rc = 0;
	// Members are appended while this runs, so their own children are looked at in the same round. SELF comes last: a child of
	// a member that ends meanwhile moves there.
	for (struct member *m = t->members; rc == 0 && m; m = m->hh.next) {
		if (!m->dead)
			rc = add_children(t, m->pid, 0);
	}
	if (rc == 0)
		rc = add_children(t, t->self, session);
	if (rc == -ENOENT) {
		struct scan scan = {.tree = t, .root = session ? 0 : t->self, .session = session};
		tree_each(scan_one, &scan);
	}
}

// A SIGSTOP takes effect a moment after it was sent, and a fork until then has a child that no list shows yet.
static bool still(const struct tree *t)
{
	struct tree_stat s;
	for (const struct member *m = t->members; m; m = m->hh.next) {
		if (is_meant(t, m) && tree_stat(m->pid, &s) == 0 && s.start == m->start && !strchr("TtZX", s.state))
			return false;
	}
	return true;
}

// Rounds until one finds nothing new and, where they are stopped first, all of them are.
static void settle(struct tree *t, pid_t session)
{
	static const struct timespec pause = {.tv_nsec = 200000};
	int pauses = 0;
	for (int i = 0; i < ROUNDS_MAX; i++) {
		round_of(t, session);
		if (t->found)
			continue;
		if (t->sig != SIGSTOP || still(t) || pauses++ == PAUSES_MAX)
			break;
		nanosleep(&pause, NULL);
	}
}

static int tree_release(struct tree *t)
{
	struct member *m, *tmp;
	HASH_ITER(hh, t->members, m, tmp)
	{
		HASH_DEL(t->members, m);
		free(m);
	}
	return t->err && !t->sent ? t->err : t->sent;
}

static int signal_tree(struct tree *t, pid_t session, int sig)
{
	settle(t, session);
	t->sent = 0;
	for (struct member *m = t->members; m; m = m->hh.next)
		send_to(t, m, sig);
	if (sig == SIGKILL) {
		// A fork that was under way outlives a SIGSTOP, but not a SIGKILL: from here on only what was born before can turn up.
		t->sig = sig;
		settle(t, session);
	}
	return tree_release(t);
}

// Looking at processes takes descriptors, also when clients have used them up: a soft limit below the hard one is their reserve.
static struct rlimit limit_lift(void)
{
	return io_limit_lift(RLIMIT_NOFILE);
}

static int limit_restore(const struct rlimit *old, int rc)
{
	io_limit_restore(RLIMIT_NOFILE, old);
	return rc;
}

int tree_signal(pid_t root, pid_t self, int sig)
{
	struct rlimit old = limit_lift();
	struct tree t = {.self = self, .sig = sig == SIGKILL ? SIGSTOP : 0};
	struct tree_stat s;
	int rc = tree_stat(root, &s);
	if (rc == 0)
		add(&t, &s);
	return limit_restore(&old, signal_tree(&t, root, sig));
}

int tree_signal_all(pid_t top, pid_t spare, int sig)
{
	struct rlimit old = limit_lift();
	struct tree t = {.self = top, .spare = spare, .sig = sig == SIGKILL ? SIGSTOP : 0};
	return limit_restore(&old, signal_tree(&t, 0, sig));
}

static void hang_up(pid_t pid, unsigned long long start)
{
	signal_exactly(pid, start, SIGHUP);
	signal_exactly(pid, start, SIGTERM);
	signal_exactly(pid, start, SIGCONT);
}

int tree_session(pid_t session, pid_t self, enum tree_act act)
{
	struct rlimit old = limit_lift();
	struct tree t = {.self = self, .sig = act == TREE_KILL ? SIGSTOP : 0, .only = session};
	struct tree_stat s;
	if (tree_stat(session, &s) == 0)
		add(&t, &s);
	if (act == TREE_KILL)
		return limit_restore(&old, signal_tree(&t, session, SIGKILL));
	settle(&t, session);
	for (struct member *m = t.members; m; m = m->hh.next) {
		if (act == TREE_HANG_UP && is_meant(&t, m))
			hang_up(m->pid, m->start);
		send_to(&t, m, 0);
	}
	return limit_restore(&old, tree_release(&t));
}

bool tree_sweep(DIR *proc, size_t max, pid_t session, enum tree_act act, size_t *found)
{
	struct rlimit old = limit_lift();
	struct dirent *e = NULL;
	for (; max && (e = readdir(proc)); max--) {
		struct tree_stat s;
		pid_t pid = pid_of(e->d_name);
		// getsid is so much cheaper than reading stat that it goes first.
		if (!pid || getsid(pid) != session || tree_stat(pid, &s) < 0 || is_dead(&s))
			continue;
		if (act == TREE_HANG_UP)
			hang_up(pid, s.start);
		else
			signal_exactly(pid, s.start, act == TREE_KILL ? SIGKILL : 0);
		*found += 1;
	}
	limit_restore(&old, 0);
	return !e;
}

static int group_session(void *arg, const struct tree_stat *s)
{
	const pid_t *pgrp = arg;
	return s->pgrp == *pgrp ? s->session : 0;
}

bool tree_group_in(pid_t pgrp, pid_t session)
{
	if (getpgid(pgrp) == pgrp)
		return getsid(pgrp) == session;
	return tree_each(group_session, &pgrp) == session; // its leader has gone
}
