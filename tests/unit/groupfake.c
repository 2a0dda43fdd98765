// SPDX-License-Identifier: Apache-2.0
#include "groupfake.h"

#include "daemon/io.h"

#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utlist.h>

char gk_base[64];

void gk_put(const char *name, const char *text)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", gk_base, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(io_write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

const char *gk_get(const char *name)
{
	static char text[256];
	char path[256];
	snprintf(path, sizeof path, "%s/%s", gk_base, name);
	ssize_t n = io_read_file(path, text, sizeof text);
	ck_assert_msg(n >= 0, "%s: %s", path, strerror((int)-n));
	text[strcspn(text, "\n")] = '\0'; // nothing truncates a plain file
	return text;
}

void gk_make_dir(const char *name)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", gk_base, name);
	ck_assert_int_eq(mkdir(path, 0700), 0);
}

void gk_take_away(const char *name)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", gk_base, name);
	ck_assert_int_eq(remove(path), 0);
}

// The files of a group that nothing is in.
void gk_make_group(unsigned number)
{
	static const struct {
		const char *name, *text;
	} files[] = {{"cgroup.events", "populated 0\nfrozen 0\n"}, {"cgroup.kill", ""}, {"memory.max", "max\n"},
		{"memory.swap.max", "max\n"}, {"memory.oom.group", "0\n"}, {"memory.current", "4096\n"},
		{"memory.events", "low 0\nmax 7\noom 3\noom_kill 0\noom_group_kill 0\n"}, {"cpu.max", "max 100000\n"},
		{"pids.max", "max\n"}};
	char name[64];
	snprintf(name, sizeof name, "commands/%u", number);
	gk_make_dir(name);
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		snprintf(name, sizeof name, "commands/%u/%s", number, files[i].name);
		gk_put(name, files[i].text);
	}
}

void gk_set_up(void)
{
	snprintf(gk_base, sizeof gk_base, "/tmp/celld-cgroup-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(gk_base));
	gk_put("cgroup.controllers", "cpuset cpu io memory hugetlb pids rdma\n");
	gk_put("cgroup.subtree_control", "");
	gk_make_dir("commands");
	gk_put("commands/cgroup.subtree_control", "");
	gk_put("commands/cgroup.events", "populated 0\nfrozen 0\n");
	gk_put("commands/cgroup.kill", "");
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

void gk_tear_down(void)
{
	nftw(gk_base, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

struct cgroups *gk_opened(void)
{
	struct cgroups *g;
	char why[256] = "";
	ck_assert_msg(cgroups_open(&g, gk_base, "", why, sizeof why) == 0, "%s", why);
	return g;
}

// Those that make_group has made, as if G had made them and nothing was in them any more.
void gk_know(void *arg, uint32_t number)
{
	struct cgroups *g = arg;
	struct cgroup *c = calloc(1, sizeof *c);
	ck_assert_ptr_nonnull(c);
	*c = (struct cgroup){.all = g, .number = number, .fd = -1};
	DL_APPEND(g->waiting, c);
	g->last = number > g->last ? number : g->last;
}

struct cgroups *gk_opened_with_groups(void)
{
	struct cgroups *g = gk_opened();
	ck_assert_int_eq(cgroups_each(g, gk_know, g), 0);
	return g;
}

struct cgroup *gk_taken(struct cgroups *g, const struct cgroup_bounds *b)
{
	struct cgroup *c;
	ck_assert_int_eq(cgroup_take(g, b, &c), 0);
	ck_assert_int_ge(cgroup_fd(c), 0);
	return c;
}
