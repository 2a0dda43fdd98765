// SPDX-License-Identifier: Apache-2.0
// A directory of 10 000 entries, each with what lstat says of it.
#include "tests/bench/bulk.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// The directory, made for the first who asks.
static const char *listed(struct bench *b, char *dir, size_t n)
{
	snprintf(dir, n, "%s/entries", b->room);
	if (bulk_tree_make(dir, BULK_ENTRIES, true) == 0 || errno == EEXIST)
		return dir;
	bench_wrong(b, "%s: %s", dir, strerror(errno));
	return NULL;
}

// In the order of the names, as a list is expected.
static double floor_list(struct bench *b, const char *dir)
{
	int64_t start = bench_now_ns();
	struct dirent **e = NULL;
	int n = 0, all = scandir(dir, &e, NULL, alphasort);
	for (int i = 0; i < all; i++) {
		char path[512];
		struct stat st;
		snprintf(path, sizeof path, "%s/%s", dir, e[i]->d_name);
		n += lstat(path, &st) == 0 && S_ISREG(st.st_mode);
		free(e[i]);
	}
	free(e);
	double ms = (double)(bench_now_ns() - start) / 1e6;
	if (n != BULK_ENTRIES)
		bench_wrong(b, "%s: %d entries, want %d", dir, n, BULK_ENTRIES);
	return ms;
}

// Looks at each entry of a list: every file once, as a file, of size 0.
static bool all_there(const json_t *doc, enum surface surface)
{
	bool a = surface == SURFACE_A;
	const json_t *list = json_object_get(doc, a ? "files" : "entries"), *e;
	unsigned char *seen = calloc(BULK_ENTRIES, 1);
	size_t i, found = 0;
	json_array_foreach(list, i, e)
	{
		const char *path = json_string_value(json_object_get(e, "path"));
		const char *type = json_string_value(json_object_get(e, "type"));
		const char *name = path ? strrchr(path, '/') : NULL;
		unsigned n = BULK_ENTRIES;
		if (!name || sscanf(name, "/f%u.txt", &n) != 1 || n >= BULK_ENTRIES || !seen || seen[n] || !type ||
			strcmp(type, a ? "file" : "FILE_TYPE_FILE") != 0)
			break;
		seen[n] = 1;
		found++;
	}
	free(seen);
	return found == BULK_ENTRIES && json_array_size(list) == BULK_ENTRIES;
}

static bool list_right(struct wire *w, const char *dir)
{
	char text[512];
	int rc;
	if (w->surface == SURFACE_A) {
		snprintf(text, sizeof text, "/files/list?depth=1&path=%s", dir);
		rc = wire_get(w, text);
	} else {
		snprintf(text, sizeof text, "{\"path\":\"%s\",\"depth\":1}", dir);
		rc = wire_post(w, "/filesystem.Filesystem/ListDir", text);
	}
	return rc == 200 && all_there(w->c.doc, w->surface);
}

void bench_list(struct bench *b, struct target *t)
{
	enum { MOST = 24 };
	double ms[MOST];
	size_t n = b->quick ? MOST / 3 : MOST;
	char dir[256];
	struct wire w = {.c.fd = -1};
	int wrong = b->wrong;
	// The first answer is looked at closely, entry by entry.
	if (!listed(b, dir, sizeof dir))
		return;
	if (t && (bulk_open(&w, t, 0) < 0 || !list_right(&w, dir)))
		bench_wrong(b, "list of %s: not each of %d entries once, %.100s", t->name, BULK_ENTRIES, wire_text(&w));
	for (size_t i = 0; i < n && b->wrong == wrong; i++) {
		int64_t start = bench_now_ns();
		int64_t got = t ? wire_list(&w, dir) : 0;
		ms[i] = t ? (double)(bench_now_ns() - start) / 1e6 : floor_list(b, dir);
		if (t && got != BULK_ENTRIES)
			bench_wrong(
				b, "list of %s: %lld entries, want %d", bench_name(t), (long long)got, BULK_ENTRIES);
	}
	if (b->wrong == wrong)
		bench_put(b, ROW_LIST, t, bench_percentile(ms, n, 50));
	wire_close(&w);
}
