// SPDX-License-Identifier: Apache-2.0
#include "groupkit.h"

#include "daemon/core/cgroup_priv.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NAME "celld-unit-"
#define OWN_MAX 3900
#define LOOKS 100

static bool own_group(char *path)
{
	return cgroup_find("/proc/self/cgroup", "/proc/self/mountinfo", path, OWN_MAX) == 0;
}

bool groupkit_base(char *path, size_t n)
{
	char own[OWN_MAX];
	if (!own_group(own) || snprintf(path, n, "%s/" NAME "%d", own, (int)getpid()) >= (int)n)
		return false;
	return mkdir(path, 0755) == 0;
}

static void remove_groups(int at, const char *name)
{
	int fd = openat(at, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *d = fd < 0 ? NULL : fdopendir(fd);
	for (const struct dirent *e; d && (e = readdir(d));) {
		if (e->d_type == DT_DIR && e->d_name[0] != '.')
			remove_groups(fd, e->d_name);
	}
	// What was killed takes a moment.
	for (int i = 0; unlinkat(at, name, AT_REMOVEDIR) < 0 && errno == EBUSY && i < LOOKS; i++)
		nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
	if (d)
		closedir(d);
}

void groupkit_sweep(void)
{
	char own[OWN_MAX], name[300];
	DIR *d = own_group(own) ? opendir(own) : NULL;
	for (const struct dirent *e; d && (e = readdir(d));) {
		int pid;
		if (sscanf(e->d_name, NAME "%d", &pid) != 1 || kill(pid, 0) == 0 || errno != ESRCH)
			continue;
		snprintf(name, sizeof name, "%s/cgroup.kill", e->d_name);
		(void)cgroup_write(dirfd(d), name, "1");
		remove_groups(dirfd(d), e->d_name);
	}
	if (d)
		closedir(d);
}
