// SPDX-License-Identifier: Apache-2.0
// The /files routes: what they answer, what a bad request changes (nothing), every errno, every kind of name and file.
#include "proto/text.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

static const char *in_ws(const struct testd *d, const char *name)
{
	static char path[4][600];
	static unsigned next;
	char *p = path[next++ % 4];
	(void)snprintf(p, sizeof path[0], "%s/%s", d->workspace, name);
	return p;
}

static void put_file(const struct testd *d, const char *name, const char *content)
{
	FILE *f = fopen(in_ws(d, name), "w");
	ck_assert_msg(f && fwrite(content, 1, strlen(content), f) == strlen(content), "%s", name);
	ck_assert_int_eq(fclose(f), 0);
}

static void assert_file(const struct testd *d, const char *name, const char *content)
{
	char got[256];
	FILE *f = fopen(in_ws(d, name), "r");
	ck_assert_msg(f != NULL, "%s is missing", name);
	size_t n = fread(got, 1, sizeof got, f);
	(void)fclose(f);
	ck_assert_msg(n == strlen(content) && memcmp(got, content, n) == 0, "%s has %.*s", name, (int)n, got);
}

static bool exists(const struct testd *d, const char *name)
{
	struct stat st;
	return lstat(in_ws(d, name), &st) == 0;
}

static void write_text(const struct testd *d, struct resp *r, const char *path, const char *content)
{
	req_pack(d, "POST", "/files/write", r, "{s:s, s:s}", "path", path, "content", content);
}

static void one_path(const struct testd *d, struct resp *r, const char *route, const char *path)
{
	req_pack(d, "POST", route, r, "{s:s}", "path", path);
}

// --- shapes ---

// Byte for byte what clients have parsed so far, with the keys that the contract adds behind them.
START_TEST(answers_have_other_shapes)
{
	struct testd *d = d_start();
	struct resp r = {0};
	char want[700];
	struct stat st;
	write_text(d, &r, "a/b/c.txt", "hello \"q\" \303\251\n");
	assert_text(&r.body, "{\"ok\":true,\"size\":13}");
	req_pack(d, "POST", "/files/write", &r, "{s:s, s:s, s:s}", "path", in_ws(d, "a/b/c.txt"), "content", "more\n",
		"mode", "a");
	assert_text(&r.body, "{\"ok\":true,\"size\":5}");
	req(d, "GET", "/files/read?path=a/b/c.txt", NULL, &r);
	assert_text(&r.body, "{\"content\":\"hello \\\"q\\\" \303\251\\nmore\\n\",\"size\":18}");
	ck_assert_str_eq(resp_header(&r, "content-type"), "application/json");
	ck_assert_ptr_nonnull(resp_header(&r, "content-length"));
	req(d, "GET", "/files/read?path=a/b/c.txt&encoding=base64", NULL, &r);
	assert_text(&r.body, "{\"content\":\"aGVsbG8gInEiIMOpCm1vcmUK\",\"size\":18,\"encoding\":\"base64\"}");
	one_path(d, &r, "/files/mkdir", "newdir");
	assert_text(&r.body, "{\"ok\":true}");
	one_path(d, &r, "/files/mkdir", "newdir");
	assert_text(&r.body,
		"{\"error\":\"already exists\",\"code\":\"already_exists\",\"retryable\":false,\"errno\":\"EEXIST\"}");
	ck_assert_int_eq(r.status, 409);
	req_pack(d, "POST", "/files/move", &r, "{s:s, s:s}", "source", "a/b/c.txt", "destination", "q\"uote");
	assert_text(&r.body, "{\"ok\":true}");
	one_path(d, &r, "/files/stat", "./q\"uote");
	ck_assert_int_eq(stat(in_ws(d, "q\"uote"), &st), 0);
	(void)snprintf(want, sizeof want,
		"{\"type\":\"file\",\"size\":18,\"mode\":\"644\",\"uid\":%u,\"gid\":%u,\"mtime\":%lld,"
		"\"name\":\"./q\\\"uote\",\"symlink_target\":\"\"}",
		(unsigned)st.st_uid, (unsigned)st.st_gid, (long long)st.st_mtime);
	assert_text(&r.body, want);
	req(d, "GET", "/files/list", NULL, &r);
	(void)snprintf(want, sizeof want, "{\"path\":\"%s/q\\\"uote\",\"modified\":%lld,\"type\":\"file\",\"size\":18}",
		d->workspace, (long long)st.st_mtime);
	const char *listed = buf_cstr(&r.body);
	ck_assert_msg(strncmp(listed, "{\"files\":[{", 11) == 0 && strstr(listed, want), "%s", listed);
	req(d, "GET", "/files/list?since=99999999999", NULL, &r);
	assert_text(&r.body, "{\"files\":[]}");
	one_path(d, &r, "/files/remove", "a");
	assert_text(&r.body, "{\"ok\":true}");
	ck_assert(!exists(d, "a"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(stat_follows_links)
{
	struct testd *d = d_start();
	struct resp r = {0};
	ck_assert_int_eq(symlink("nowhere", in_ws(d, "dangling")), 0);
	ck_assert_int_eq(mkfifo(in_ws(d, "fifo"), 0640), 0);
	one_path(d, &r, "/files/stat", "dangling");
	ck_assert_str_eq(j_str(resp_json(&r), "type"), "symlink");
	ck_assert_str_eq(j_str(resp_json(&r), "symlink_target"), "nowhere");
	ck_assert_int_eq(j_int(resp_json(&r), "size"), 7);
	one_path(d, &r, "/files/stat", "fifo");
	ck_assert_str_eq(j_str(resp_json(&r), "type"), "other");
	one_path(d, &r, "/files/stat", "/");
	ck_assert_str_eq(j_str(resp_json(&r), "type"), "dir");
	ck_assert_str_eq(j_str(resp_json(&r), "name"), "/");
	// Removing a link leaves what it points to.
	put_file(d, "target", "x");
	ck_assert_int_eq(symlink("target", in_ws(d, "link")), 0);
	one_path(d, &r, "/files/remove", "link");
	ck_assert_int_eq(r.status, 200);
	ck_assert(exists(d, "target") && !exists(d, "link"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- bad requests ---

static const struct bad {
	const char *method, *target, *body;
	int status;
	const char *code, *error; // ERROR: the exact message, or NULL
} bads[] = {
	{"POST", "/files/write", "{\"content\":\"x\"}", 400, "invalid_argument", "path required"},
	{"POST", "/files/write", "{\"path\":\"\",\"content\":\"x\"}", 400, "invalid_argument", "path required"},
	{"POST", "/files/write", "{\"path\":null,\"content\":\"x\"}", 400, "invalid_argument", "path required"},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":", 400, "invalid_argument", "invalid json"},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":\"x\"} x", 400, "invalid_argument", "invalid json"},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":\"\\x\"}", 400, "invalid_argument", "invalid json"},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":\"\xff\"}", 400, "invalid_argument", "invalid json"},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":\"\\ud800\"}", 400, "invalid_argument", "invalid json"},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":\"a\",\"content\":\"b\"}", 400, "invalid_argument",
		"invalid json"},
	{"POST", "/files/write", "", 400, "invalid_argument", "invalid json"},
	{"POST", "/files/write", "[]", 400, "invalid_argument", "invalid json"},
	{"POST", "/files/write", "\"content\"", 400, "invalid_argument", "invalid json"},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":5}", 400, "invalid_argument",
		"content must be a string"},
	{"POST", "/files/write", "{\"path\":5,\"content\":\"x\"}", 400, "invalid_argument", "path must be a string"},
	{"POST", "/files/write", "{\"path\":\"old\\u0000x\",\"content\":\"x\"}", 400, "invalid_argument", NULL},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":\"x\",\"mode\":\"x\"}", 400, "invalid_argument", NULL},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":\"x\",\"mode\":5}", 400, "invalid_argument", NULL},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":\"x\",\"encoding\":\"hex\"}", 400, "invalid_argument",
		NULL},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":\"AAEC/w=\",\"encoding\":\"base64\"}", 400,
		"invalid_argument", "invalid base64"},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":\"AA==AAAA\",\"encoding\":\"base64\"}", 400,
		"invalid_argument", "invalid base64"},
	{"POST", "/files/write", "{\"path\":\"old\",\"content\":\"AAA\\n\",\"encoding\":\"base64\"}", 400,
		"invalid_argument", "invalid base64"},
	{"POST", "/files/write", "{\"path\":\"new/x\",\"content\":\"A\",\"encoding\":\"base64\"}", 400,
		"invalid_argument", "invalid base64"},
	{"GET", "/files/write", NULL, 405, "unimplemented", NULL},
	{"GET", "/files/read", NULL, 400, "invalid_argument", "path required"},
	{"GET", "/files/read?path=", NULL, 400, "invalid_argument", "path required"},
	{"GET", "/files/read?path=old&encoding=hex", NULL, 400, "invalid_argument", NULL},
	{"GET", "/files/read?path=old&encoding=%zz", NULL, 400, "invalid_argument", NULL},
	{"GET", "/files/read?path=old%00", NULL, 400, "invalid_argument", NULL},
	{"GET", "/files/read?path=old%00x", NULL, 400, "invalid_argument", NULL},
	{"GET", "/files/list?path=%00", NULL, 400, "invalid_argument", NULL},
	{"GET", "/files/list?depth=0", NULL, 400, "invalid_argument", NULL},
	{"GET", "/files/list?depth=x", NULL, 400, "invalid_argument", NULL},
	{"GET", "/files/list?depth=99999999999", NULL, 400, "invalid_argument", NULL},
	{"GET", "/files/list?since=x", NULL, 400, "invalid_argument", NULL},
	{"GET", "/files/list?since=%4", NULL, 400, "invalid_argument", NULL},
	{"POST", "/files/list", "{}", 405, "unimplemented", NULL},
	{"POST", "/files/stat", "{}", 400, "invalid_argument", "path required"},
	{"POST", "/files/stat", "null", 400, "invalid_argument", "invalid json"},
	{"POST", "/files/stat", "{\"path_b64\":\"b2xk=\"}", 400, "invalid_argument", "invalid base64"},
	{"POST", "/files/stat", "{\"path_b64\":\"AA==\"}", 400, "invalid_argument", NULL},
	{"POST", "/files/mkdir", "{}", 400, "invalid_argument", "path required"},
	{"POST", "/files/mkdir", "{\"path\":\"new\",\"parents\":1}", 400, "invalid_argument", NULL},
	{"POST", "/files/move", "{\"source\":\"old\"}", 400, "invalid_argument", "source and destination required"},
	{"POST", "/files/move", "{\"destination\":\"old\"}", 400, "invalid_argument",
		"source and destination required"},
	{"POST", "/files/move", "{\"source\":\"old\",\"destination\":\"\"}", 400, "invalid_argument", NULL},
	{"POST", "/files/remove", "{}", 400, "invalid_argument", "path required"},
	{"POST", "/files/remove", "{\"path\":\"/\"}", 400, "invalid_argument", "refusing to remove the workspace"},
	{"POST", "/files/remove", "{\"path\":\".\"}", 400, "invalid_argument", "refusing to remove the workspace"},
	{"POST", "/files/remove", "{\"path\":\"dir/..\"}", 400, "invalid_argument", "refusing to remove the workspace"},
	{"POST", "/files/remove", "{\"path\":\"../..\"}", 400, "invalid_argument", "refusing to remove the workspace"},
	{"POST", "/files/move", "{\"source\":\".\",\"destination\":\"/tmp/elsewhere\"}", 400, "invalid_argument",
		"refusing to move the workspace"},
};

START_TEST(bad_request_changes_the_disk)
{
	struct testd *d = d_start();
	struct resp r = {0};
	ck_assert_int_eq(mkdir(in_ws(d, "dir"), 0755), 0);
	put_file(d, "old", "old");
	for (int i = 0; i < COUNT(bads); i++) {
		const struct bad *b = &bads[i];
		req(d, b->method, b->target, b->body, &r);
		ck_assert_msg(
			r.status == b->status, "%s %s %s: %d", b->method, b->target, b->body ? b->body : "", r.status);
		const json_t *e = assert_error(&r, b->status, b->code);
		if (b->error)
			ck_assert_str_eq(j_str(e, "error"), b->error);
	}
	assert_file(d, "old", "old");
	ck_assert(!exists(d, "new") && exists(d, "dir"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- errnos ---

static const struct failure {
	const char *method, *target, *body;
	int status;
	const char *code, *sys;
} failures[] = {
	{"GET", "/files/read?path=missing", NULL, 404, "not_found", "ENOENT"},
	{"GET", "/files/read?path=file/x", NULL, 404, "not_found", "ENOTDIR"},
	{"GET", "/files/read?path=dir", NULL, 400, "invalid_argument", "EISDIR"},
	{"GET", "/files/read?path=loop", NULL, 400, "invalid_argument", "ELOOP"},
	{"GET", "/files/read?path=fifo", NULL, 400, "invalid_argument", "EINVAL"},
	{"GET", "/files/read?path=/dev/zero", NULL, 400, "invalid_argument", "EINVAL"},
	{"GET", "/files/read?path=/proc/self/mem", NULL, 500, "internal", "EIO"},
	{"GET", "/files/list?path=missing", NULL, 404, "not_found", "ENOENT"},
	{"GET", "/files/list?path=file/x", NULL, 404, "not_found", "ENOTDIR"},
	{"GET", "/files/list?path=file", NULL, 400, "invalid_argument", "ENOTDIR"},
	{"GET", "/files/list?path=fifo", NULL, 400, "invalid_argument", "ENOTDIR"},
	{"GET", "/files/list?path=loop", NULL, 400, "invalid_argument", "ELOOP"},
	{"POST", "/files/write", "{\"path\":\"file/x\",\"content\":\"y\"}", 404, "not_found", "ENOTDIR"},
	{"POST", "/files/write", "{\"path\":\"dir\",\"content\":\"y\"}", 400, "invalid_argument", "EISDIR"},
	{"POST", "/files/write", "{\"path\":\"loop\",\"content\":\"y\"}", 400, "invalid_argument", "ELOOP"},
	{"POST", "/files/write", "{\"path\":\"fifo\",\"content\":\"y\"}", 400, "invalid_argument", "EINVAL"},
	{"POST", "/files/write", "{\"path\":\"/dev/full\",\"content\":\"y\"}", 507, "resource_exhausted", "ENOSPC"},
	{"POST", "/files/write", "{\"path\":\"/proc/nope\",\"content\":\"y\"}", 404, "not_found", "ENOENT"},
	{"POST", "/files/stat", "{\"path\":\"missing\"}", 404, "not_found", "ENOENT"},
	{"POST", "/files/stat", "{\"path\":\"file/x\"}", 404, "not_found", "ENOTDIR"},
	{"POST", "/files/mkdir", "{\"path\":\"file\"}", 409, "already_exists", "EEXIST"},
	{"POST", "/files/mkdir", "{\"path\":\"file/x\"}", 404, "not_found", "ENOTDIR"},
	{"POST", "/files/mkdir", "{\"path\":\"p/q\",\"parents\":false}", 404, "not_found", "ENOENT"},
	{"POST", "/files/mkdir", "{\"path\":\"loop/x\"}", 400, "invalid_argument", "ELOOP"},
	{"POST", "/files/move", "{\"source\":\"missing\",\"destination\":\"x\"}", 404, "not_found", "ENOENT"},
	{"POST", "/files/move", "{\"source\":\"file\",\"destination\":\"p/x\"}", 404, "not_found", "ENOENT"},
	{"POST", "/files/move", "{\"source\":\"file\",\"destination\":\"dir\"}", 400, "invalid_argument", "EISDIR"},
	{"POST", "/files/move", "{\"source\":\"dir\",\"destination\":\"full\"}", 409, "failed_precondition",
		"ENOTEMPTY"},
	{"POST", "/files/move", "{\"source\":\"dir\",\"destination\":\"dir/x\"}", 400, "invalid_argument", "EINVAL"},
	{"POST", "/files/remove", "{\"path\":\"missing\"}", 404, "not_found", "ENOENT"},
	{"POST", "/files/remove", "{\"path\":\"file/x\"}", 404, "not_found", "ENOTDIR"},
	{"POST", "/files/remove", "{\"path\":\"loop/x\"}", 400, "invalid_argument", "ELOOP"},
	{"POST", "/files/remove", "{\"path\":\"/proc/self\"}", 403, "permission_denied", "EPERM"},
};

START_TEST(errno_is_lost)
{
	struct testd *d = d_start();
	struct resp r = {0};
	char name[300], body[400];
	ck_assert_int_eq(mkdir(in_ws(d, "dir"), 0755), 0);
	ck_assert_int_eq(mkdir(in_ws(d, "full"), 0755), 0);
	put_file(d, "full/x", "");
	put_file(d, "file", "old");
	ck_assert_int_eq(symlink("loop", in_ws(d, "loop")), 0);
	ck_assert_int_eq(mkfifo(in_ws(d, "fifo"), 0600), 0);
	for (int i = 0; i < COUNT(failures); i++) {
		const struct failure *f = &failures[i];
		req(d, f->method, f->target, f->body, &r);
		ck_assert_msg(r.status == f->status, "%s %s: %d", f->target, f->body ? f->body : "", r.status);
		ck_assert_str_eq(j_str(assert_error(&r, f->status, f->code), "errno"), f->sys);
	}
	memset(name, 'n', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	static const char *const routes[] = {"write", "stat", "mkdir", "remove"};
	for (int i = 0; i < COUNT(routes); i++) {
		(void)snprintf(body, sizeof body, "/files/%s", routes[i]);
		one_path(d, &r, body, name);
		ck_assert_str_eq(j_str(assert_error(&r, 400, "invalid_argument"), "errno"), "ENAMETOOLONG");
	}
	// Its directory can be reached, but with its name it is one byte too much for those who would read it.
	char deep[PATH_MAX + 1];
	memset(deep, 'n', PATH_MAX);
	for (int at = PATH_MAX - 100; at > 0; at -= 200)
		deep[at] = '/';
	int n = snprintf(name, sizeof name, "%s/", in_ws(d, "deep"));
	memcpy(deep, name, (size_t)n);
	deep[PATH_MAX] = '\0';
	one_path(d, &r, "/files/write", deep);
	ck_assert_str_eq(j_str(assert_error(&r, 400, "invalid_argument"), "errno"), "ENAMETOOLONG");
	ck_assert_int_lt(access(in_ws(d, "deep"), F_OK), 0);
	assert_file(d, "file", "old");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Nothing waits for the other end of a FIFO, nothing ends in an endless device, files of /proc are read to their end.
START_TEST(special_files_block_or_loop)
{
	struct testd *d = d_start();
	struct resp r = {0};
	req(d, "GET", "/files/read?path=/proc/self/status", NULL, &r);
	ck_assert_int_eq(r.status, 200);
	const char *content = j_str(resp_json(&r), "content");
	ck_assert_ptr_nonnull(strstr(content, "voluntary_ctxt_switches"));
	ck_assert_int_eq(j_int(resp_json(&r), "size"), (int64_t)strlen(content));
	write_text(d, &r, "/dev/null", "gone");
	ck_assert_int_eq(r.status, 200);
	req(d, "GET", "/files/read?path=/dev/null", NULL, &r);
	assert_error(&r, 400, "invalid_argument");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- names and bytes ---

// B42: decoded once; on read and list a path that is missing decoded but exists as it was sent means that.
START_TEST(names_are_decoded_wrongly)
{
	static const struct name {
		const char *query, *name;
	} names[] = {
		{"a+b", "a b"},
		{"a%2Bb", "a+b"},
		{"a%20b", "a b"},
		{"a%2520b", "a%20b"},
		{"100%25", "100%"},
		{"%C3%A9", "\303\251"},
		{"%23%3F%26", "#?&"},
		{"%252Bx", "%2Bx"},
		{"100%", "100%"},
		{"%zz", "%zz"},
		{"%4", "%4"},
		{"x+y", "x+y"},
		{"u%41", "u%41"},
		{"%", "%"},
	};
	struct testd *d = d_start();
	struct resp r = {0};
	char target[64];
	for (int i = 0; i < COUNT(names); i++)
		put_file(d, names[i].name, names[i].name);
	for (int i = 0; i < COUNT(names); i++) {
		(void)snprintf(target, sizeof target, "/files/read?path=%s", names[i].query);
		req(d, "GET", target, NULL, &r);
		ck_assert_msg(r.status == 200, "%s: %d", target, r.status);
		ck_assert_str_eq(j_str(resp_json(&r), "content"), names[i].name);
	}
	ck_assert_int_eq(mkdir(in_ws(d, "d+e"), 0755), 0);
	put_file(d, "d+e/f", "");
	req(d, "GET", "/files/list?path=d+e", NULL, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_uint_eq(json_array_size(j_get(resp_json(&r), "files")), 1);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(names_that_are_not_utf8_are_lost)
{
	static const char name[] = "dir/\xff\xfe\n\"\x01", b64[] = "ZGlyL//+CiIB";
	struct testd *d = d_start();
	struct resp r = {0};
	req_pack(d, "POST", "/files/write", &r, "{s:s, s:s}", "path_b64", b64, "content", "raw");
	ck_assert_int_eq(r.status, 200);
	assert_file(d, name, "raw");
	req(d, "GET", "/files/list?path=dir", NULL, &r);
	const json_t *e = json_array_get(j_get(resp_json(&r), "files"), 0);
	const char *text = j_str(e, "path_b64");
	struct buf raw;
	buf_init(&raw, 0);
	ck_assert_int_eq(text_b64_decode(&raw, text, strlen(text)), 0);
	assert_text(&raw, in_ws(d, name));
	buf_release(&raw);
	ck_assert_ptr_nonnull(strstr(j_str(e, "path"), "/\xef\xbf\xbd\xef\xbf\xbd\n\"\x01"));
	req(d, "GET", "/files/read?path=dir/%FF%FE%0A%22%01", NULL, &r);
	ck_assert_str_eq(j_str(resp_json(&r), "content"), "raw");
	req_pack(d, "POST", "/files/stat", &r, "{s:s}", "path_b64", b64);
	ck_assert_str_eq(j_str(resp_json(&r), "name_b64"), b64);
	req_pack(d, "POST", "/files/move", &r, "{s:s, s:s}", "source_b64", b64, "destination", "plain");
	ck_assert_int_eq(r.status, 200);
	assert_file(d, "plain", "raw");
	req_pack(d, "POST", "/files/move", &r, "{s:s, s:s}", "source", "plain", "destination_b64", b64);
	ck_assert_int_eq(r.status, 200);
	req_pack(d, "POST", "/files/remove", &r, "{s:s}", "path_b64", b64);
	ck_assert_int_eq(r.status, 200);
	ck_assert(!exists(d, name));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// All byte values, at sizes round the pieces that things are cut into: exact by base64, valid JSON and marked as text.
START_TEST(bytes_change_on_the_way)
{
	static const size_t sizes[] = {
		0, 1, 2, 3, 255, 24575, 24576, 24577, 32768, 65537, 262143, 300001, 1048577, 3000000};
	struct testd *d = d_start();
	struct resp r = {0};
	for (int i = 0; i < COUNT(sizes); i++) {
		struct buf raw, b64;
		buf_init(&raw, 0);
		buf_init(&b64, 0);
		for (size_t n = 0; n < sizes[i]; n++)
			buf_byte(&raw, (unsigned char)(n * 7 + n / 256));
		text_b64_encode(&b64, buf_data(&raw), buf_len(&raw));
		const char *text = buf_cstr(&b64);
		req_pack(d, "POST", "/files/write", &r, "{s:s, s:s, s:s}", "content", text, "path", "f", "encoding",
			"base64");
		ck_assert_int_eq(r.status, 200);
		ck_assert_int_eq(j_int(resp_json(&r), "size"), (int64_t)sizes[i]);
		req(d, "GET", "/files/read?path=f&encoding=base64", NULL, &r);
		ck_assert_int_eq(j_int(resp_json(&r), "size"), (int64_t)sizes[i]);
		ck_assert(strcmp(j_str(resp_json(&r), "content"), text) == 0);
		req(d, "GET", "/files/read?path=f", NULL, &r);
		ck_assert_int_eq(j_int(resp_json(&r), "size"), (int64_t)sizes[i]);
		ck_assert(j_has(resp_json(&r), "lossy") == (sizes[i] > 18)); // the first byte beyond ASCII
		buf_release(&raw);
		buf_release(&b64);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A character that pieces cut in two is whole.
START_TEST(characters_are_cut)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct buf text;
	buf_init(&text, 0);
	for (int shift = 0; shift < 3; shift++) {
		buf_reset(&text);
		h_repeat(&text, "x", (size_t)shift);
		h_repeat(&text, "\342\202\254\n", 100000);
		const char *content = buf_cstr(&text);
		write_text(d, &r, "f", content);
		ck_assert_int_eq(r.status, 200);
		req(d, "GET", "/files/read?path=f", NULL, &r);
		ck_assert(!j_has(resp_json(&r), "lossy"));
		ck_assert(strcmp(j_str(resp_json(&r), "content"), content) == 0);
	}
	buf_release(&text);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *files_suite(void)
{
	Suite *s = suite_create("files");
	TCase *tc = h_tcase(s, "routes", 30);
	tcase_add_test(tc, answers_have_other_shapes);
	tcase_add_test(tc, stat_follows_links);
	tcase_add_test(tc, bad_request_changes_the_disk);
	tcase_add_test(tc, errno_is_lost);
	tcase_add_test(tc, special_files_block_or_loop);
	tcase_add_test(tc, names_are_decoded_wrongly);
	tcase_add_test(tc, names_that_are_not_utf8_are_lost);
	tcase_add_test(tc, bytes_change_on_the_way);
	tcase_add_test(tc, characters_are_cut);
	return s;
}
