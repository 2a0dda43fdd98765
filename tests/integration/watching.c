// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/watching.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

int64_t w_create(const struct testd *d, const char *path, bool recursive)
{
	struct resp r = {0};
	req_pack(d, "POST", "/watch/create", &r, "{s:s,s:b}", "path", path, "recursive", (int)recursive);
	ck_assert_msg(r.status == 200, "%d %s", r.status, buf_cstr(&r.body));
	int64_t id = j_int(resp_json(&r), "watcher_id");
	ck_assert_int_ge(id, 1);
	resp_release(&r);
	return id;
}

void w_remove(const struct testd *d, int64_t id)
{
	struct resp r = {0};
	req_pack(d, "POST", "/watch/remove", &r, "{s:I}", "watcher_id", (json_int_t)id);
	ck_assert_int_eq(r.status, 200);
	ck_assert(j_bool(resp_json(&r), "ok"));
	resp_release(&r);
}

void w_release(struct w_events *w)
{
	buf_release(&w->text);
	*w = (struct w_events){0};
}

void w_poll(const struct testd *d, int64_t id, struct w_events *w)
{
	struct resp r = {0};
	char target[64];
	size_t i;
	json_t *e;
	(void)snprintf(target, sizeof target, "/watch/events?watcher_id=%lld", (long long)id);
	req(d, "GET", target, NULL, &r);
	ck_assert_msg(r.status == 200, "%d %s", r.status, buf_cstr(&r.body));
	json_t *obj = resp_json(&r);
	json_array_foreach(j_get(obj, "events"), i, e)
	{
		const char *name = j_str(e, "name");
		size_t n = strlen(d->workspace);
		if (strncmp(name, d->workspace, n) == 0)
			name += n + (name[n] == '/');
		buf_printf(&w->text, "%lld %s\n", (long long)j_int(e, "type"), name);
		w->count++;
	}
	w->overflow = w->overflow || j_has(obj, "overflow");
	w->ended = w->ended || j_has(obj, "ended");
	resp_release(&r);
}

bool w_has(struct w_events *w, int type, const char *name)
{
	char line[4200];
	int n = snprintf(line, sizeof line, "%d %s\n", type, name);
	const char *text = buf_cstr(&w->text);
	for (const char *p = text; (p = strstr(p, line)); p += n) {
		if (p == text || p[-1] == '\n')
			return true;
	}
	return false;
}

void w_await(const struct testd *d, int64_t id, struct w_events *w, int type, const char *name)
{
	int64_t end = h_now_ms() + h_scaled(5000);
	while (!w_has(w, type, name)) {
		if (h_now_ms() >= end)
			ck_abort_msg("no %d %s in:\n%s", type, name, buf_cstr(&w->text));
		w_poll(d, id, w);
	}
}

void w_file(const struct testd *d, const char *name)
{
	char path[4600];
	(void)snprintf(path, sizeof path, "%s/%s", d->workspace, name);
	int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	close(fd);
}

void w_dir(const struct testd *d, const char *name)
{
	char path[4600];
	(void)snprintf(path, sizeof path, "%s/%s", d->workspace, name);
	ck_assert_int_eq(mkdir(path, 0755), 0);
}

void w_shell(const struct testd *d, const char *line)
{
	pid_t pid = fork();
	if (pid == 0) {
		if (chdir(d->workspace) < 0)
			_exit(126);
		execl("/bin/sh", "sh", "-c", line, (char *)NULL);
		_exit(127);
	}
	int status = -1;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0, "status %d of %s", status, line);
}

// What the daemon watches for itself: the users.
static bool is_own(const char *line)
{
	static const char *const own[] = {"/etc", "/etc/passwd", "/etc/group"};
	const char *ino = strstr(line, " ino:");
	struct stat st;
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		if (ino && stat(own[i], &st) == 0 && strtoull(ino + sizeof " ino:" - 1, NULL, 16) == st.st_ino)
			return true;
	return false;
}

static int count_lines(const char *path)
{
	char line[512];
	int count = 0;
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof line, f))
		count += strncmp(line, "inotify ", 8) == 0 && !is_own(line);
	if (f)
		(void)fclose(f);
	return count;
}

int w_watched(const struct testd *d)
{
	char path[400];
	const struct dirent *e;
	int count = 0;
	(void)snprintf(path, sizeof path, "/proc/%d/fdinfo", (int)d->daemon);
	DIR *dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir))) {
		(void)snprintf(path, sizeof path, "/proc/%d/fdinfo/%s", (int)d->daemon, e->d_name);
		count += count_lines(path);
	}
	closedir(dir);
	return count;
}

struct want {
	const struct testd *d;
	int watched;
};

static bool is_settled(void *arg)
{
	const struct want *w = arg;
	return w_watched(w->d) == w->watched;
}

void w_settled(const struct testd *d, int watched)
{
	struct want w = {d, watched};
	if (!wait_until(is_settled, &w, 10000))
		ck_abort_msg("%d inodes are watched, want %d", w_watched(d), watched);
}
