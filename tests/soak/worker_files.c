// SPDX-License-Identifier: Apache-2.0
// Actions with files: what one way in takes, each way out has to give.
#include "tests/soak/soak.h"

#include "proto/gzip.h"
#include "proto/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define RAW "Content-Type: application/octet-stream\r\n"
#define FORM "Content-Type: multipart/form-data; boundary=b0undary\r\n"

static void fill_content(struct worker *w, struct buf *b)
{
	uint32_t n = chance(w, 10) ? 0 : chance(w, 85) ? pick(w, 100000) : pick(w, 3000000);
	uint32_t word = pick(w, UINT32_MAX);
	for (uint32_t i = 0; i < n; i += 4) {
		word = word * 1664525u + 1013904223u;
		buf_append(b, &(uint32_t){word & 0x3f7f0fffu}, n - i < 4 ? n - i : 4);
	}
}

static void fill_gzip(struct buf *out, const struct buf *in)
{
	z_stream z = {.next_in = (unsigned char *)(uintptr_t)buf_data(in), .avail_in = (uInt)buf_len(in)};
	if (deflateInit2(&z, 1, Z_DEFLATED, 31, 8, Z_DEFAULT_STRATEGY) != Z_OK)
		return;
	uLong room = deflateBound(&z, (uLong)buf_len(in));
	z.next_out = buf_reserve(out, room);
	z.avail_out = (uInt)room;
	if (z.next_out && deflate(&z, Z_FINISH) == Z_STREAM_END)
		buf_commit(out, z.total_out);
	deflateEnd(&z);
}

static int write_a(struct worker *w, const char *path, const struct buf *content)
{
	struct buf b64 = {0};
	text_b64_encode(&b64, buf_data(content), buf_len(content));
	const char *s = buf_cstr(&b64);
	int status = post(w, A, "/files/write",
		json_pack("{s:s, s:s, s:s}", "path", path, "encoding", "base64", "content", s ? s : ""));
	buf_release(&b64);
	return status;
}

static int write_b(struct worker *w, const char *path, const struct buf *content)
{
	struct buf body = {0};
	char target[300], headers[128] = RAW;
	snprintf(target, sizeof target, "/files?path=%s", path);
	switch (pick(w, 3)) {
	case 0:
		buf_append(&body, buf_data(content), buf_len(content));
		break;
	case 1:
		fill_gzip(&body, content);
		snprintf(headers, sizeof headers, "%s", RAW "Content-Encoding: gzip\r\n");
		break;
	default:
		BUF_LIT(&body, "--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\n\r\n");
		buf_append(&body, buf_data(content), buf_len(content));
		BUF_LIT(&body, "\r\n--b0undary--\r\n");
		snprintf(headers, sizeof headers, "%s", FORM);
	}
	int status = send_raw(w, B, "POST", target, headers, buf_data(&body), buf_len(&body));
	buf_release(&body);
	return status;
}

static void compare(struct worker *w, const char *how, const void *p, size_t n, const unsigned char *q, size_t m)
{
	if (n != m || memcmp(p, q, n) != 0)
		wrong(w, "%s: %zu bytes, want %zu%s", how, n, m, n == m ? ", other ones" : "");
}

static void read_a(struct worker *w, const char *path, const struct buf *content)
{
	char target[320];
	struct buf raw = {0};
	snprintf(target, sizeof target, "/files/read?encoding=base64&path=%s", path);
	if (want(w, "/files/read", get(w, A, target), 200)) {
		const json_t *s = answer(w, A, "content");
		text_b64_decode(&raw, json_string_value(s), json_string_length(s));
		compare(w, "/files/read", buf_data(&raw), buf_len(&raw), buf_data(content), buf_len(content));
	}
	buf_release(&raw);
}

static void read_b(struct worker *w, const char *path, const struct buf *content)
{
	char target[300], headers[64] = "";
	struct buf plain = {0};
	struct err e = {0};
	uint32_t n = (uint32_t)buf_len(content), from = n ? pick(w, n) : 0, len = n ? 1 + pick(w, n - from) : 0;
	int how = (int)pick(w, n ? 4 : 2);
	snprintf(target, sizeof target, "/files?path=%s", path);
	if (how == 1)
		snprintf(headers, sizeof headers, "Accept-Encoding: gzip\r\n");
	if (how == 2)
		snprintf(headers, sizeof headers, "Range: bytes=%u-%u\r\n", from, from + len - 1);
	if (how == 3)
		snprintf(headers, sizeof headers, "Range: bytes=%u-\r\n", n);
	int status = send_raw(w, B, "GET", target, headers, NULL, 0);
	const struct buf *got = &w->c[B].body;
	if (!want(w, "GET /files", status, how == 2 ? 206 : how == 3 ? 416 : 200) || how == 3)
		return;
	if (how == 1 && buf_len(got) >= 2 && memcmp(buf_data(got), "\x1f\x8b", 2) == 0) {
		if (gunzip_all(&plain, buf_data(got), buf_len(got), 1 << 24, &e) < 0)
			wrong(w, "GET /files: damaged gzip");
		got = &plain;
	}
	compare(w,
		how == 2   ? "a range"
		: how == 1 ? "GET /files, gzip"
			   : "GET /files",
		buf_data(got), buf_len(got), buf_data(content) + (how == 2 ? from : 0), how == 2 ? len : n);
	buf_release(&plain);
}

static int stat_file(struct worker *w, enum surface s, const char *path)
{
	if (s == A)
		return post(w, A, "/files/stat", json_pack("{s:s}", "path", path));
	return post(w, B, "/filesystem.Filesystem/Stat", json_pack("{s:s}", "path", path));
}

static int move_file(struct worker *w, enum surface s, const char *from, const char *to)
{
	json_t *body = json_pack("{s:s, s:s}", "source", from, "destination", to);
	return post(w, s, s == A ? "/files/move" : "/filesystem.Filesystem/Move", body);
}

static int remove_file(struct worker *w, enum surface s, const char *path)
{
	return post(w, s, s == A ? "/files/remove" : "/filesystem.Filesystem/Remove", json_pack("{s:s}", "path", path));
}

static void check_size(struct worker *w, enum surface s, const struct buf *content)
{
	const json_t *v = s == A ? answer(w, A, "size") : json_object_get(answer(w, B, "entry"), "size");
	long long size = json_is_string(v) ? atoll(json_string_value(v)) : (long long)json_integer_value(v);
	if (size != (long long)buf_len(content))
		wrong(w, "stat on %c: size %lld, want %zu", "AB"[s], size, buf_len(content));
}

static void file(struct worker *w)
{
	char path[200], other[220];
	struct buf content = {0};
	snprintf(path, sizeof path, "%s/d%u/f%lu", w->dir, pick(w, 3), w->n);
	snprintf(other, sizeof other, "%s.moved", path);
	fill_content(w, &content);
	for (int i = chance(w, 30); i >= 0 && !w->wrong[0]; i--) // now and then over a file that is there
		want(w, "write", any(w) == A ? write_a(w, path, &content) : write_b(w, path, &content), 200);
	for (int i = (int)pick(w, 3); i >= 0 && !w->wrong[0]; i--)
		any(w) == A ? read_a(w, path, &content) : read_b(w, path, &content);
	enum surface s = any(w);
	if (!w->wrong[0] && want(w, "stat", stat_file(w, s, path), 200))
		check_size(w, s, &content);
	if (!w->wrong[0] && want(w, "move", move_file(w, any(w), path, other), 200))
		want(w, "stat of a moved file", stat_file(w, any(w), path), 404);
	want(w, "remove", remove_file(w, any(w), other), 200);
	want(w, "stat of a removed file", stat_file(w, any(w), other), 404);
	buf_release(&content);
}

static void append(struct worker *w)
{
	char path[200];
	struct buf all = {0};
	snprintf(path, sizeof path, "%s/a%lu", w->dir, w->n);
	for (int i = 0; i < 3 && !w->wrong[0]; i++) {
		char text[64];
		snprintf(text, sizeof text, "line %u \\ \" \n", pick(w, 1000));
		buf_str(&all, text);
		want(w, "/files/write",
			post(w, A, "/files/write",
				json_pack("{s:s, s:s, s:s}", "path", path, "content", text, "mode", i ? "a" : "w")),
			200);
	}
	if (!w->wrong[0])
		read_b(w, path, &all);
	want(w, "remove", remove_file(w, any(w), path), 200);
	buf_release(&all);
}

static size_t entries(struct worker *w, enum surface s, const char *path)
{
	char target[320];
	snprintf(target, sizeof target, "/files/list?depth=5&path=%s", path);
	int status = s == A ? get(w, A, target)
			    : post(w, B, "/filesystem.Filesystem/ListDir",
				      json_pack("{s:s, s:i}", "path", path, "depth", 5));
	return want(w, "list", status, 200) ? json_array_size(answer(w, s, s == A ? "files" : "entries")) : 0;
}

static void tree(struct worker *w)
{
	char path[200], sub[240];
	unsigned dirs = 1 + pick(w, 6);
	snprintf(path, sizeof path, "%s/t%lu", w->dir, w->n);
	for (unsigned i = 0; i < dirs && !w->wrong[0]; i++) {
		enum surface s = any(w);
		const char *target = s == A ? "/files/mkdir" : "/filesystem.Filesystem/MakeDir";
		snprintf(sub, sizeof sub, "%s/s%u", path, i);
		want(w, "mkdir", post(w, s, target, json_pack("{s:s}", "path", sub)), 200);
		if (chance(w, 20))
			want(w, "mkdir again", post(w, s, target, json_pack("{s:s}", "path", sub)), 409);
	}
	enum surface s = any(w);
	size_t n = w->wrong[0] ? dirs : entries(w, s, path);
	if (n != dirs)
		wrong(w, "list on %c: %zu entries, want %u", "AB"[s], n, dirs);
	want(w, "remove of a tree", remove_file(w, any(w), path), 200);
	want(w, "list of nothing", post(w, B, "/filesystem.Filesystem/ListDir", json_pack("{s:s}", "path", path)), 404);
}

static void compose(struct worker *w)
{
	char path[3][200];
	struct buf part = {0}, all = {0};
	for (int i = 0; i < 3; i++)
		snprintf(path[i], sizeof path[i], "%s/c%lu-%d", w->dir, w->n, i);
	for (int i = 0; i < 2 && !w->wrong[0]; i++) {
		buf_reset(&part);
		fill_content(w, &part);
		buf_append(&all, buf_data(&part), buf_len(&part));
		want(w, "POST /files", write_b(w, path[i], &part), 200);
	}
	if (want(w, "/files/compose",
		    post(w, B, "/files/compose",
			    json_pack("{s:[s, s], s:s}", "source_paths", path[0], path[1], "destination", path[2])),
		    200))
		read_a(w, path[2], &all);
	want(w, "remove", remove_file(w, any(w), path[2]), 200);
	buf_release(&part);
	buf_release(&all);
}

// An upload that its client gives up leaves nothing under a new name, and an old file as it was.
static void cut(struct worker *w)
{
	char path[200], target[300];
	struct buf out = {0}, old = {0};
	struct client c;
	bool over = chance(w, 40);
	int64_t end = client_now_us() + 10000000 * (int64_t)client_scale();
	snprintf(path, sizeof path, "%s/u%lu", w->dir, w->n);
	snprintf(target, sizeof target, "/files?path=%s", path);
	buf_str(&old, "old content");
	if (over)
		want(w, "write", write_a(w, path, &old), 200);
	buf_printf(&out, "POST %s HTTP/1.1\r\nHost: x\r\n" RAW "Content-Length: %u\r\n\r\n", target,
		100000 + pick(w, 40000000));
	for (uint32_t i = pick(w, 90000) / 8; i > 0; i--)
		BUF_LIT(&out, "uploaded");
	if (!w->wrong[0] && dial(w, B, &c)) {
		client_send_bytes(&c, &out);
		if (chance(w, 50))
			pause_us(pick(w, 30000));
		client_close(&c);
		atomic_fetch_add(&w->t->disconnects, 1);
	}
	int status = -1;
	while (!w->wrong[0] && !over && (status = stat_file(w, A, path)) == 200 && client_now_us() < end)
		pause_us(10000);
	if (over && !w->wrong[0]) {
		pause_us(50000);
		read_a(w, path, &old);
		want(w, "remove", remove_file(w, any(w), path), 200);
	} else if (!w->wrong[0]) {
		want(w, "stat of a cut upload", status, 404);
	}
	buf_release(&out);
	buf_release(&old);
}

const struct action actions_files[] = {
	{"file", file, 14},
	{"append", append, 3},
	{"tree", tree, 4},
	{"compose", compose, 2},
	{"cut", cut, 4},
	{NULL, NULL, 0},
};
