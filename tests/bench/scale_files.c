// SPDX-License-Identifier: Apache-2.0
// Many watchers, a watched tree of as many directories, and a directory of as many entries.
#include "tests/bench/bulk.h"
#include "tests/bench/scale.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define SENT_AHEAD ((size_t)64)
#define EVENTS 20
#define LISTED 5
#define STATS 200

// --- watchers ---

struct watching {
	struct scale *s;
	enum surface t;
	char dir[144]; // its directories are named by number
	char (*id)[24];
};

static int make_directories(const struct watching *w)
{
	char path[192];
	if (mkdir(w->dir, 0755) < 0 && errno != EEXIST)
		return -errno;
	for (size_t i = 0; i < w->s->n; i++) {
		snprintf(path, sizeof path, "%s/%zu", w->dir, i);
		if (mkdir(path, 0755) < 0 && errno != EEXIST)
			return -errno;
	}
	return 0;
}

static void put_add(const struct watching *w, struct buf *out, const char *path, bool recursive)
{
	static const char *const target[] = {"/watch/create", "/filesystem.Filesystem/CreateWatcher"};
	char json[256];
	snprintf(json, sizeof json, "{\"path\":\"%s\",\"recursive\":%s}", path, recursive ? "true" : "false");
	wire_put_post(out, w->t, target[w->t], json);
}

static void put_remove(const struct watching *w, struct buf *out, const char *id)
{
	static const char *const target[] = {"/watch/remove", "/filesystem.Filesystem/RemoveWatcher"};
	char json[64];
	snprintf(json, sizeof json, w->t == SURFACE_A ? "{\"watcher_id\":%s}" : "{\"watcherId\":\"%s\"}", id);
	wire_put_post(out, w->t, target[w->t], json);
}

static int answer(const struct watching *w)
{
	int status = client_answer(&w->s->wire[w->t].c);
	return status < 0 ? status : status == 200 ? 0 : -status;
}

// The id in the last answer: digits of surface A, a string of surface B.
static int read_id(const struct watching *w, char id[24])
{
	const json_t *doc = w->s->wire[w->t].c.doc, *a = json_object_get(doc, "watcher_id");
	const char *b = json_string_value(json_object_get(doc, "watcherId"));
	if (w->t == SURFACE_A ? !json_is_integer(a) : !b)
		return -EPROTO;
	if (w->t == SURFACE_A)
		snprintf(id, 24, "%lld", (long long)json_integer_value(a));
	else
		snprintf(id, 24, "%s", b);
	return 0;
}

// Adds or removes all: 0 or a negative errno or status.
static int each(struct watching *w, bool add)
{
	struct buf out = {0};
	char path[192];
	int rc = 0;
	for (size_t done = 0, end; done < w->s->n && rc == 0;) {
		end = done + SENT_AHEAD < w->s->n ? done + SENT_AHEAD : w->s->n;
		for (size_t i = done; i < end; i++) {
			snprintf(path, sizeof path, "%s/%zu", w->dir, i);
			if (add)
				put_add(w, &out, path, false);
			else
				put_remove(w, &out, w->id[i]);
		}
		rc = client_send_bytes(&w->s->wire[w->t].c, &out);
		buf_reset(&out);
		for (; done < end && rc == 0; done++) {
			rc = answer(w);
			if (rc == 0 && add)
				rc = read_id(w, w->id[done]);
		}
	}
	buf_release(&out);
	return rc;
}

// More of the stream's body, until it has TEXT.
static int wait_text(struct client *c, const char *text)
{
	for (;;) {
		if (buf_len(&c->body) && memmem(buf_data(&c->body), buf_len(&c->body), text, strlen(text)))
			return 0;
		int rc = client_more(c);
		if (rc <= 0)
			return rc < 0 ? rc : -EPROTO;
	}
}

static int open_stream(struct wire *w, const struct target *t, const char *dir)
{
	struct buf out = {0};
	char text[256];
	int rc = wire_open(w, t);
	snprintf(text, sizeof text, t->surface == SURFACE_A ? "/watch/stream?path=%s" : "{\"path\":\"%s\"}", dir);
	if (t->surface == SURFACE_A)
		wire_put_get(&out, text);
	else
		wire_put_post_stream(&out, SURFACE_B, "/filesystem.Filesystem/WatchDir", text);
	if (rc == 0)
		rc = client_send_bytes(&w->c, &out);
	buf_release(&out);
	if (rc == 0)
		rc = client_answer_stream(&w->c);
	return rc < 0 ? rc : rc != 200 ? -rc : wait_text(&w->c, t->surface == SURFACE_A ? "watcher_id" : "\"start\"");
}

// A file is made in a directory that a stream watches, too: until its name is here.
static int measure_event(struct watching *w, double *us)
{
	double all[EVENTS];
	struct wire stream = {0};
	char dir[160], path[192];
	snprintf(dir, sizeof dir, "%s-events", w->dir);
	int rc = mkdir(dir, 0755) < 0 && errno != EEXIST ? -errno : open_stream(&stream, &w->s->target[w->t], dir);
	for (int i = 0; i < EVENTS && rc == 0; i++) {
		snprintf(path, sizeof path, "%s/event-%d-", dir, i);
		int64_t start = bench_now_ns();
		int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		rc = fd < 0 ? -errno : wait_text(&stream.c, strrchr(path, '/') + 1);
		all[i] = (double)(bench_now_ns() - start) / 1000;
		if (fd >= 0)
			close(fd);
	}
	wire_close(&stream);
	bench_remove_tree(dir);
	*us = rc == 0 ? bench_percentile(all, EVENTS, 50) : 0;
	return rc;
}

// One recursive watcher on the directory of all directories.
static int measure_tree(struct watching *w, double *ms)
{
	struct buf out = {0};
	char id[24];
	int64_t start = client_now_us();
	put_add(w, &out, w->dir, true);
	int rc = client_send_bytes(&w->s->wire[w->t].c, &out);
	if (rc == 0)
		rc = answer(w);
	*ms = scale_ms_since(start);
	if (rc == 0)
		rc = read_id(w, id);
	buf_release(&out);
	return rc;
}

bool scale_watchers(struct scale *s, enum surface t)
{
	struct watching w = {.s = s, .t = t, .id = calloc(s->n, sizeof *w.id)};
	double event = 0, tree = 0;
	snprintf(w.dir, sizeof w.dir, "%s/w", s->workspace);
	int rc = w.id ? make_directories(&w) : -ENOMEM;
	int64_t start = client_now_us();
	if (rc == 0)
		rc = each(&w, true);
	if (rc == 0) {
		scale_put(s, SCALE_WATCHERS_ADD_A + (int)t, scale_ms_since(start));
		scale_put_memory(s, SCALE_WATCHERS_MEMORY_A + (int)t);
		rc = measure_event(&w, &event);
	}
	start = client_now_us();
	if (rc == 0)
		rc = each(&w, false);
	if (rc == 0) {
		scale_put(s, SCALE_WATCHERS_REMOVE_A + (int)t, scale_ms_since(start));
		rc = measure_tree(&w, &tree);
	}
	free(w.id);
	if (rc < 0)
		return scale_wrong(s, "watchers", rc);
	scale_put(s, SCALE_WATCHERS_EVENT_A + (int)t, event);
	scale_put(s, SCALE_WATCHERS_TREE_A + (int)t, tree);
	return true;
}

// --- entries ---

static bool measure_floor(struct scale *s, const char *dir)
{
	double ms[LISTED];
	for (int i = 0; i < LISTED; i++) {
		int64_t start = client_now_us();
		size_t n = 0;
		struct stat st;
		DIR *d = opendir(dir);
		for (const struct dirent *e; d && (e = readdir(d)) != NULL;)
			n += e->d_name[0] != '.' && fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0;
		if (d)
			closedir(d);
		ms[i] = scale_ms_since(start);
		if (n != s->n)
			return scale_wrong(s, "readdir", (int64_t)n);
	}
	scale_put(s, SCALE_ENTRIES_FLOOR, bench_percentile(ms, LISTED, 50));
	return true;
}

static bool measure_entries(struct scale *s, enum surface t, const char *dir)
{
	double ms[LISTED], before = bulk_peak_begin(&s->target[t]);
	char target[256], json[256];
	snprintf(target, sizeof target, "/files/list?path=%s&depth=1", dir);
	snprintf(json, sizeof json, "{\"path\":\"%s\",\"depth\":1}", dir);
	for (int i = 0; i < LISTED; i++) {
		ms[i] = t == SURFACE_A ? scale_list_ms(s, t, target, NULL, "\"path\":", s->n)
				       : scale_list_ms(s, t, "/filesystem.Filesystem/ListDir", json, "\"path\":", s->n);
		if (ms[i] < 0)
			return false;
	}
	scale_put(s, SCALE_ENTRIES_MEMORY_A + (int)t, bulk_peak(&s->target[t], before));
	scale_put(s, SCALE_ENTRIES_LIST_A + (int)t, bench_percentile(ms, LISTED, 50));
	snprintf(json, sizeof json, "%s/%zu", dir, s->n / 2);
	double us = scale_p50_us(s, t, STATS, wire_stat, json);
	scale_put(s, SCALE_ENTRIES_STAT_A + (int)t, us);
	return us >= 0;
}

bool scale_entries(struct scale *s, enum surface t)
{
	char dir[144], path[192];
	snprintf(dir, sizeof dir, "%s/entries", s->workspace);
	if (mkdir(dir, 0755) < 0 && errno != EEXIST)
		return scale_wrong(s, dir, -errno);
	for (size_t i = 0; i < s->n; i++) {
		snprintf(path, sizeof path, "%s/%zu", dir, i);
		int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0)
			return scale_wrong(s, path, -errno);
		close(fd);
	}
	return (t == SURFACE_B || measure_floor(s, dir)) && measure_entries(s, t, dir);
}
