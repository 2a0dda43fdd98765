// SPDX-License-Identifier: Apache-2.0
// Groups are idle (nothing in them, at no limit), taken, or waiting: released while something is in them still, which nobody tells us the end of, so
// some of those are looked at whenever a group is taken or released. An idle one has no descriptor open.
//
// One in which a start has failed is not taken again, nor one that commands have frozen or put groups into. One that was killed never is either: kernels of 2025 compare how often a group was killed with how often that of the parent was, to find a kill that
// raced with a fork, and end whoever is born into another group than its parent's if the two differ.
#include "daemon/core/cgroup_priv.h"

#include "daemon/io.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

// How many of the waiting ones, and of the idle ones, are looked at in one call.
#define LOOKS 4
#define NAMES_TRIED 16
#define CPU_PERIOD_US 100000.0
// The kernel takes no less.
#define CPU_QUOTA_MIN_US 1000.0
#define CPU_QUOTA_MAX_US 1e12

// --- files ---

struct file_name {
	char s[48];
};

static struct file_name within(const struct cgroup *c, const char *file)
{
	struct file_name name;
	snprintf(name.s, sizeof name.s, "%u%s%s", (unsigned)c->number, *file ? "/" : "", file);
	return name;
}

// The number after KEY at the start of a line; -1 if there is none.
static long long value_of(const char *text, const char *key)
{
	size_t n = strlen(key);
	for (const char *p = text; p; p = strchr(p, '\n'), p += p != NULL) {
		if (strncmp(p, key, n) == 0 && p[n] == ' ')
			return strtoll(p + n + 1, NULL, 10);
	}
	return -1;
}

// 1: something lives in it. An empty one that is frozen is spent: who is born there would not come to run.
static int populated(struct cgroup *c)
{
	char text[128];
	int rc = cgroup_read(c->all->dir, within(c, "cgroup.events").s, text, sizeof text);
	if (rc == 0)
		c->spent |= value_of(text, "frozen") > 0;
	return rc < 0 ? rc : value_of(text, "populated") != 0;
}

// Commands that may write there can make groups of their own, and a controller handed down to those keeps processes out of this one. (A file system that
// counts no directories says 1.)
static bool has_children(const struct cgroup *c)
{
	struct stat st;
	return fstatat(c->all->dir, within(c, "").s, &st, AT_SYMLINK_NOFOLLOW) < 0 || st.st_nlink > 2;
}

bool cgroup_oom(const struct cgroup *c)
{
	char text[512];
	if (!c->all->state.memory || cgroup_read(c->all->dir, within(c, "memory.events").s, text, sizeof text) < 0)
		return false;
	return value_of(text, "oom_kill") > 0;
}

// --- limits ---

static unsigned bounds_mask(const struct cgroup_bounds *b)
{
	if (!b)
		return 0;
	return (b->memory ? 1u << CGROUP_MEMORY : 0) | (b->cpus > 0 ? 1u << CGROUP_CPU : 0) |
	       (b->pids ? 1u << CGROUP_PIDS : 0);
}

// A kernel without swap has no such file, an old one none for the group.
static int write_memory(const struct cgroup *c, const char *max, const char *swap, const char *group)
{
	int rc = cgroup_write(c->fd, "memory.max", max);
	int more = rc < 0 ? 0 : cgroup_write(c->fd, "memory.swap.max", swap);
	if (more == 0 || more == -ENOENT)
		more = rc < 0 ? 0 : cgroup_write(c->fd, "memory.oom.group", group);
	return rc < 0 ? rc : more == -ENOENT ? 0 : more;
}

static int lift(struct cgroup *c)
{
	int rc = 0;
	if (c->bounded & (1u << CGROUP_MEMORY))
		rc = write_memory(c, "max\n", "max\n", "0\n");
	if (rc == 0 && c->bounded & (1u << CGROUP_CPU))
		rc = cgroup_write(c->fd, "cpu.max", "max 100000\n");
	if (rc == 0 && c->bounded & (1u << CGROUP_PIDS))
		rc = cgroup_write(c->fd, "pids.max", "max\n");
	if (rc == 0)
		c->bounded = 0;
	return rc;
}

static int bind(struct cgroup *c, const struct cgroup_bounds *b)
{
	char text[64];
	int rc = 0;
	c->bounded |= bounds_mask(b);
	if (b && b->memory) {
		snprintf(text, sizeof text, "%llu\n", (unsigned long long)b->memory);
		// One that ran out is killed whole, so that its end says so rather than whatever is left of it.
		rc = write_memory(c, text, "0\n", "1\n");
	}
	if (rc == 0 && b && b->cpus > 0) {
		double quota = b->cpus * CPU_PERIOD_US;
		quota = quota < CPU_QUOTA_MIN_US   ? CPU_QUOTA_MIN_US
			: quota > CPU_QUOTA_MAX_US ? CPU_QUOTA_MAX_US
						   : quota;
		snprintf(text, sizeof text, "%.0f %.0f\n", quota, CPU_PERIOD_US);
		rc = cgroup_write(c->fd, "cpu.max", text);
	}
	if (rc == 0 && b && b->pids) {
		snprintf(text, sizeof text, "%llu\n", (unsigned long long)b->pids);
		rc = cgroup_write(c->fd, "pids.max", text);
	}
	return rc;
}

// --- life ---

static struct cgroup *cgroup_new(struct cgroups *g, uint32_t number)
{
	struct cgroup *c = calloc(1, sizeof *c);
	if (!c)
		return NULL;
	c->all = g;
	c->number = number;
	c->fd = -1;
	return c;
}

static int open_group(struct cgroup *c)
{
	c->fd = IO_AGAIN(openat(c->all->dir, within(c, "").s, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
	return c->fd < 0 ? -errno : 0;
}

// One in which the kernel has killed for memory would say so again, to the next one's end.
static bool reusable(struct cgroup *c)
{
	if (c->spent || c->all->idle_count >= CGROUP_IDLE_MAX || cgroup_oom(c) || has_children(c))
		return false;
	return !c->bounded || ((c->fd >= 0 || open_group(c) == 0) && lift(c) == 0);
}

// Nothing is in it. C is in no list, and is consumed.
static void become_idle(struct cgroup *c)
{
	struct cgroups *g = c->all;
	bool again = reusable(c);
	io_close(&c->fd);
	if (again) {
		DL_PREPEND(g->idle, c);
		g->idle_count++;
		return;
	}
	unlinkat(g->dir, within(c, "").s, AT_REMOVEDIR);
	free(c);
}

// C is in no list.
static void settle(struct cgroup *c)
{
	int rc = populated(c);
	if (rc == 0) {
		become_idle(c);
		return;
	}
	io_close(&c->fd);
	if (rc == -ENOENT || rc == -ENODEV)
		free(c); // somebody has removed it
	else
		DL_APPEND(c->all->waiting, c);
}

static void look_at_waiting(struct cgroups *g)
{
	for (int i = 0; i < LOOKS && g->waiting; i++) {
		struct cgroup *c = g->waiting;
		DL_DELETE(g->waiting, c);
		settle(c);
	}
}

// Lowering a limit below what is used would have the kernel look for memory to free, while we wait.
static bool fits(const struct cgroup *c, const struct cgroup_bounds *b)
{
	char text[32];
	if (!b || !b->memory)
		return true;
	if (cgroup_read(c->all->dir, within(c, "memory.current").s, text, sizeof text) < 0)
		return false;
	return strtoull(text, NULL, 10) < b->memory;
}

// 0 with *OUT (open; in no list) or NULL: none will do.
static int take_idle(struct cgroups *g, const struct cgroup_bounds *b, struct cgroup **out)
{
	struct cgroup *c, *tmp;
	int looks = LOOKS;
	*out = NULL;
	DL_FOREACH_SAFE(g->idle, c, tmp)
	{
		if (!looks--)
			return 0;
		if (!fits(c, b))
			continue;
		int rc = open_group(c);
		if (rc < 0 && rc != -ENOENT)
			return rc;
		DL_DELETE(g->idle, c);
		g->idle_count--;
		if (rc == 0) {
			*out = c;
			return 0;
		}
		free(c);
	}
	return 0;
}

static int make(struct cgroups *g, struct cgroup **out)
{
	int rc = -EEXIST;
	struct cgroup *c = cgroup_new(g, 0);
	if (!c)
		return -ENOMEM;
	for (int i = 0; rc == -EEXIST && i < NAMES_TRIED; i++) {
		c->number = ++g->last ? g->last : ++g->last;
		rc = mkdirat(g->dir, within(c, "").s, 0755) < 0 ? -errno : 0;
	}
	bool made = rc == 0;
	if (made)
		rc = open_group(c);
	if (rc == 0) {
		*out = c;
		return 0;
	}
	if (made)
		unlinkat(g->dir, within(c, "").s, AT_REMOVEDIR);
	free(c);
	return rc;
}

int cgroup_take(struct cgroups *g, const struct cgroup_bounds *bounds, struct cgroup **out)
{
	struct cgroup *c = NULL;
	*out = NULL;
	if (!g || bounds_mask(bounds) & ~g->have)
		return -EOPNOTSUPP;
	look_at_waiting(g);
	int rc = take_idle(g, bounds, &c);
	if (rc == 0 && !c)
		rc = make(g, &c);
	if (rc < 0)
		return rc;
	DL_APPEND(g->taken, c);
	rc = bind(c, bounds);
	if (rc == 0)
		*out = c;
	else
		cgroup_release(c);
	return rc;
}

static struct cgroup *find(struct cgroup *list, uint32_t number)
{
	struct cgroup *c;
	DL_FOREACH(list, c)
	{
		if (c->number == number)
			return c;
	}
	return NULL;
}

int cgroup_take_back(struct cgroups *g, uint32_t number, struct cgroup **out)
{
	*out = NULL;
	if (!g || !number || find(g->taken, number))
		return -ENOENT;
	struct cgroup *c = find(g->waiting, number), *idle = find(g->idle, number);
	if (c) {
		DL_DELETE(g->waiting, c);
	} else if (idle) {
		c = idle;
		DL_DELETE(g->idle, c);
		g->idle_count--;
	} else {
		c = cgroup_new(g, number);
	}
	if (!c)
		return -ENOMEM;
	int rc = open_group(c);
	if (rc < 0) {
		free(c);
		return rc;
	}
	c->spent = true; // what was done to it is not known
	g->last = number > g->last ? number : g->last;
	DL_APPEND(g->taken, c);
	*out = c;
	return 0;
}

static void found(void *arg, uint32_t number)
{
	struct cgroups *g = arg;
	bool known = find(g->taken, number) || find(g->waiting, number) || find(g->idle, number);
	struct cgroup *c = known ? NULL : cgroup_new(g, number);
	if (!c)
		return;
	c->spent = true;
	g->last = number > g->last ? number : g->last;
	DL_APPEND(g->waiting, c);
}

void cgroups_settle(struct cgroups *g)
{
	if (g)
		(void)cgroups_each(g, found, g);
}

uint32_t cgroup_number(const struct cgroup *c)
{
	return c->number;
}

int cgroup_fd(const struct cgroup *c)
{
	return c->fd;
}

int cgroup_kill(struct cgroup *c)
{
	int rc = cgroup_write(c->fd, "cgroup.kill", "1\n");
	c->spent |= rc == 0;
	return rc;
}

void cgroup_spend(struct cgroup *c)
{
	c->spent = true;
}

int cgroups_kill_all(struct cgroups *g)
{
	struct cgroup *c;
	if (!g)
		return 0;
	DL_CONCAT(g->waiting, g->idle);
	g->idle = NULL;
	g->idle_count = 0;
	DL_FOREACH(g->waiting, c)
	{
		c->spent = true;
	}
	DL_FOREACH(g->taken, c)
	{
		c->spent = true;
	}
	return cgroup_write(g->dir, "cgroup.kill", "1\n");
}

bool cgroups_empty(const struct cgroups *g)
{
	char text[128];
	return !g || cgroup_read(g->dir, "cgroup.events", text, sizeof text) < 0 || value_of(text, "populated") != 1;
}

void cgroup_release(struct cgroup *c)
{
	if (!c)
		return;
	struct cgroups *g = c->all;
	DL_DELETE(g->taken, c);
	look_at_waiting(g);
	settle(c);
}
