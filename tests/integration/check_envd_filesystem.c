// SPDX-License-Identifier: Apache-2.0
// Surface B's files in both codecs: what envd 0.6.13 answered, exchange by exchange, and what it should have.
#include "tests/integration/envdkit.h"
#include "tests/integration/fskit.h"
#include "tests/integration/suites.h"

#include "proto/pbjson.h"

#include <fcntl.h>
#include <poll.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

enum { MANY = 100000, ROUNDS = 1000, CODECS = 2 };
#define TREE FS_HOME "/g"

// --- the golden exchanges ---

// Replaces what RE matches (its group 1 stays in front) by WITH, everywhere.
static void replace(struct buf *text, const char *re, const char *with)
{
	regex_t r;
	regmatch_t m[2];
	struct buf out = {0};
	ck_assert_int_eq(regcomp(&r, re, REG_EXTENDED), 0);
	const char *p = buf_cstr(text);
	for (; regexec(&r, p, 2, m, 0) == 0; p += m[0].rm_eo) {
		buf_append(&out, p, (size_t)(m[1].rm_so >= 0 ? m[1].rm_eo : m[0].rm_so));
		buf_str(&out, with);
	}
	buf_str(&out, p);
	buf_reset(text);
	buf_append(text, buf_data(&out), buf_len(&out));
	buf_release(&out);
	regfree(&r);
}

// What depends on the file system and the hour; the texts in which ours is the saner one.
static void normalise(struct buf *text, bool keep_time)
{
	if (!keep_time)
		replace(text, "(\"modifiedTime\":\")[^\"]*Z", "<TIME>");
	replace(text, "(\"type\":\"FILE_TYPE_DIRECTORY\", \"path\":\"[^\"]*\", )(\"size\":\"[0-9]*\"|<SIZE>), ", "");
	replace(text, "(failed to expand path ')[^']*", "");
	// A message has its limit.
	replace(text, "(nnnnnnnnnnnnnnnnnnnn)n*[^\"]*", "");
}

static void compare(const struct golden *g, const struct resp *r)
{
	struct buf got = {0}, want = {0};
	bool keep_time = strstr(g->label, "mtime") != NULL;
	ck_assert_msg(r->status == g->status, "%s: %d", g->label, r->status);
	golden_assert_head(g, r);
	buf_append(&got, buf_data(&r->body), buf_len(&r->body));
	buf_str(&want, g->answer);
	normalise(&got, keep_time);
	normalise(&want, keep_time);
	ck_assert_msg(strcmp(buf_cstr(&got), buf_cstr(&want)) == 0, "%s\ngot  %s\nwant %s", g->label, buf_cstr(&got),
		buf_cstr(&want));
	buf_release(&got);
	buf_release(&want);
}

// What the test does before an exchange, as the recording did.
static void prepare(const struct golden *g)
{
	long long ns;
	const char *mtime = strstr(g->label, "mtime ");
	if (strstr(g->label, "empty directory") && strstr(g->body, "none-in-here"))
		fs_dir(TREE "/none-in-here", 0755);
	if (!mtime || sscanf(mtime, "mtime %lld ns", &ns) != 1)
		return;
	long long s = ns / 1000000000 - (ns < 0 && ns % 1000000000);
	const struct timespec times[] = {{0}, {s, ns - s * 1000000000}};
	ck_assert_int_eq(utimensat(AT_FDCWD, TREE "/a.txt", times, 0), 0);
}

// Ours are other answers: see other tests here.
static bool differs(const struct golden *g)
{
	return strstr(g->label, "NUL in the path") || strstr(g->label, "negative depth") ||
	       strstr(g->label, "not UTF-8");
}

static void replay(const char *name, bool proto)
{
	struct fskit k;
	struct golden g;
	struct resp r = {0};
	struct buf user = {0};
	int count = 0;
	if (!fs_home())
		return;
	fs_tree(TREE);
	if (strcmp(name, "stat") == 0) {
		ck_assert_int_eq(setxattr(TREE "/a.txt", "user.e2b.k", "v", 1, 0), 0);
		ck_assert_int_eq(setxattr(TREE "/a.txt", "user.other", "hidden", 6, 0), 0);
	}
	fs_start(&k, proto, "--user", "user");
	for (golden_open(&g, name); golden_next(&g);) {
		const char *method = strrchr(g.target, '/') + 1;
		if (differs(&g))
			continue;
		prepare(&g);
		buf_reset(&user);
		if (golden_header(g.head, "Authorization", &user)) {
			char line[128];
			(void)snprintf(line, sizeof line, "Authorization: %s\r\n", buf_cstr(&user));
			fs_call_as(&k, method, line, g.body, &r);
		} else {
			fs_call(&k, method, g.body, &r);
		}
		if (k.proto && r.status == 200)
			json_object_set_new(r.headers, "content-type", json_string("application/json"));
		compare(&g, &r);
		count++;
	}
	ck_assert_int_gt(count, 7);
	golden_close(&g);
	buf_release(&user);
	resp_release(&r);
	fs_finish(&k);
}

static const char *const recorded[] = {"stat", "list-dir", "make-dir", "move", "remove"};
enum { RECORDED = sizeof recorded / sizeof *recorded };

START_TEST(answers_differ_from_the_recorded_ones)
{
	replay(recorded[_i / CODECS], _i % CODECS);
}
END_TEST

// --- without that home ---

static const char *in_ws(const struct fskit *k, const char *name)
{
	static char path[4][600];
	static unsigned next;
	char *p = path[next++ % 4];
	(void)snprintf(p, sizeof path[0], "%s%s%s", k->d->workspace, *name ? "/" : "", name);
	return p;
}

static const json_t *entry_of(struct resp *r, const json_t *answer, const char *path)
{
	const json_t *e = j_get(answer, "entry");
	ck_assert_str_eq(j_str(e, "path"), path);
	(void)r;
	return e;
}

// B48
START_TEST(unknown_owner_breaks_the_entry)
{
	struct fskit k;
	struct resp r = {0};
	char uid[16], gid[16];
	fs_start(&k, _i, NULL, NULL);
	fs_put(in_ws(&k, "f"), "x", 0640);
	unsigned u = geteuid() == 0 ? 54501 : geteuid(), g = geteuid() == 0 ? 54502 : getegid();
	ck_assert_int_eq(chown(in_ws(&k, "f"), u, g), 0);
	(void)snprintf(uid, sizeof uid, "%u", u);
	(void)snprintf(gid, sizeof gid, "%u", g);
	const json_t *e = entry_of(&r, fs_pack(&k, "Stat", 200, &r, "{s:s}", "path", in_ws(&k, "f")), in_ws(&k, "f"));
	if (geteuid() == 0) {
		ck_assert_str_eq(j_str(e, "owner"), uid);
		ck_assert_str_eq(j_str(e, "group"), gid);
	}
	ck_assert_int_eq(j_int(e, "mode"), 0640);
	const json_t *list = j_get(fs_pack(&k, "ListDir", 200, &r, "{s:s}", "path", in_ws(&k, "")), "entries");
	ck_assert_uint_eq(json_array_size(list), 1);
	if (geteuid() == 0)
		ck_assert_str_eq(j_str(json_array_get(list, 0), "owner"), uid);
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

// One name that is not UTF-8 does not spoil the list, and no NUL shortens a path.
START_TEST(odd_names)
{
	static const char *const names[] = {"a b", "a+b", "a%20b", "100%", "\xc3\xa9", "#?&", "new\nline", "<\"\\>"};
	struct fskit k;
	struct resp r = {0};
	fs_start(&k, _i, NULL, NULL);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		fs_put(in_ws(&k, names[i]), "x", 0644);
		const char *path = in_ws(&k, names[i]);
		const json_t *e = entry_of(&r, fs_pack(&k, "Stat", 200, &r, "{s:s}", "path", path), path);
		ck_assert_str_eq(j_str(e, "name"), names[i]);
	}
	fs_put(in_ws(&k, "bad\xff"), "x", 0644);
	const json_t *list = j_get(fs_pack(&k, "ListDir", 200, &r, "{s:s}", "path", in_ws(&k, "")), "entries");
	ck_assert_uint_eq(json_array_size(list), sizeof names / sizeof *names + 1);
	size_t i, bad = 0;
	const json_t *e;
	json_array_foreach(list, i, e)
	{
		bad += strcmp(j_str(e, "name"), "bad\xef\xbf\xbd") == 0;
	}
	ck_assert_uint_eq(bad, 1);
	if (!k.proto) {
		fs_call(&k, "Stat", "{\"path\":\"/tmp\\u0000x\"}", &r);
		fs_assert_error(&r, 400, "invalid_argument");
		fs_call(&k, "ListDir", "{\"path\":\"/\",\"depth\":-1}", &r);
		fs_assert_error(&r, 400, "invalid_argument");
		fs_call(&k, "Remove", "{\"path\":5}", &r);
		fs_assert_error(&r, 400, "invalid_argument");
	}
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

static void add_meta(const char *path, const char *name, const char *value, size_t n)
{
	ck_assert_msg(setxattr(path, name, value, n, 0) == 0, "%s", name);
}

START_TEST(metadata_is_not_told_right)
{
	struct fskit k;
	struct resp r = {0};
	fs_start(&k, _i, NULL, NULL);
	fs_put(in_ws(&k, "f"), "x", 0644);
	ck_assert_int_eq(symlink("f", in_ws(&k, "ln")), 0);
	if (setxattr(in_ws(&k, "f"), "user.e2b.zz", "last", 4, 0) == 0) {
		add_meta(in_ws(&k, "f"), "user.e2b.aa", "", 0);
		add_meta(in_ws(&k, "f"), "user.e2b.bad", "\xff", 1);
		add_meta(in_ws(&k, "f"), "user.e2", "no", 2);
		for (int i = 0; i < 2; i++) {
			const char *path = in_ws(&k, i ? "ln" : "f");
			const json_t *e = entry_of(&r, fs_pack(&k, "Stat", 200, &r, "{s:s}", "path", path), path);
			char *text = j_text(j_get(e, "metadata"));
			ck_assert_str_eq(text, "{\"aa\":\"\",\"zz\":\"last\"}");
			free(text);
		}
	}
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

// What is made belongs to whoever asked, what was there stays as it was.
START_TEST(made_directories_belong_to_others)
{
	struct fskit k;
	struct resp r = {0};
	struct stat st;
	if (!fs_home())
		return;
	fs_start(&k, _i, "--user", "user");
	ck_assert_int_eq(mkdir(FS_HOME "/old", 0700), 0);
	const json_t *e = j_get(fs_pack(&k, "MakeDir", 200, &r, "{s:s}", "path", "old/n1/n2"), "entry");
	ck_assert_str_eq(j_str(e, "owner"), "user");
	ck_assert_str_eq(j_str(e, "path"), FS_HOME "/old/n1/n2");
	ck_assert_int_eq(stat(FS_HOME "/old/n1", &st), 0);
	ck_assert_uint_eq(st.st_uid, 54321);
	ck_assert_uint_eq(st.st_gid, 54321);
	ck_assert_uint_eq(st.st_mode & 07777, 0755);
	ck_assert_int_eq(stat(FS_HOME "/old", &st), 0);
	ck_assert_uint_eq(st.st_uid, 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0700);
	fs_put(FS_HOME "/f", "x", 0600);
	fs_pack(&k, "Move", 200, &r, "{s:s,s:s}", "source", "f", "destination", "m1/m2/f");
	ck_assert_int_eq(stat(FS_HOME "/m1/m2", &st), 0);
	ck_assert_uint_eq(st.st_uid, 54321);
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

static void touch(const char *dir, const char *name)
{
	char path[700];
	(void)snprintf(path, sizeof path, "%s/%s", dir, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_msg(fd >= 0, "%s", path);
	close(fd);
}

// The paths of a list below DIR, in their order, a line each.
static char *paths(struct fskit *k, const char *dir, int depth, struct resp *r)
{
	struct buf text = {0};
	size_t i;
	const json_t *e, *list;
	list = json_object_get(fs_pack(k, "ListDir", 200, r, "{s:s,s:i}", "path", dir, "depth", depth), "entries");
	json_array_foreach(list, i, e)
	{
		const char *path = j_str(e, "path");
		ck_assert_msg(strncmp(path, dir, strlen(dir)) == 0, "%s", path);
		buf_printf(&text, "%s\n", path + strlen(dir) + 1);
	}
	char *s = buf_take(&text, NULL);
	return s ? s : calloc(1, 1);
}

static void assert_paths(struct fskit *k, const char *dir, int depth, const char *want)
{
	struct resp r = {0};
	char *got = paths(k, dir, depth, &r);
	ck_assert_str_eq(got, want);
	free(got);
	resp_release(&r);
}

// B50: the order is the bytes', links are not descended, the depth is exact.
START_TEST(tree_is_not_in_order)
{
	struct fskit k;
	fs_start(&k, _i, NULL, NULL);
	const char *ws = in_ws(&k, "");
	fs_shell(ws, "mkdir -p b/c/d e && touch b/a b/c/x b/c/d/y e/z a '~' A ab a.b && ln -s . loop && ln -s b lnb");
	assert_paths(&k, ws, 0, "A\na\na.b\nab\nb\ne\nlnb\nloop\n~\n");
	assert_paths(&k, ws, 2, "A\na\na.b\nab\nb\nb/a\nb/c\ne\ne/z\nlnb\nloop\n~\n");
	assert_paths(&k, ws, 99, "A\na\na.b\nab\nb\nb/a\nb/c\nb/c/d\nb/c/d/y\nb/c/x\ne\ne/z\nlnb\nloop\n~\n");
	assert_paths(&k, in_ws(&k, "lnb"), 2, "a\nc\nc/d\nc/x\n");
	// Deeper than there are descriptors kept.
	fs_shell(ws, "rm -rf * && d=.; for i in $(seq 150); do d=$d/d; done && mkdir -p $d && touch d/z $d/f d/d/e");
	struct resp r = {0};
	char *got = paths(&k, ws, 1000, &r);
	size_t lines = 0;
	for (const char *p = got; *p; p++)
		lines += *p == '\n';
	ck_assert_uint_eq(lines, 153);
	ck_assert_uint_gt(strlen(got), 10);
	ck_assert_str_eq(got + strlen(got) - 10, "d/d/e\nd/z\n");
	free(got);
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

// Health on a connection of its own until C has something; the longest wait for it in milliseconds.
static int64_t probe(const struct fskit *k, const struct client *c)
{
	struct client *health = client_connect_to(k->d->envd_host, k->d->envd_port, 0);
	struct resp r = {0};
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	int64_t worst = 0;
	do {
		int64_t start = h_now_ms();
		client_request(health, "GET", "/health", NULL, NULL, 0);
		client_response(health, &r);
		ck_assert_int_eq(r.status, 204);
		if (h_now_ms() - start > worst)
			worst = h_now_ms() - start;
	} while (poll(&p, 1, 0) == 0);
	client_close(health);
	resp_release(&r);
	return worst;
}

// B50: others are served meanwhile, the list is whole and in order, the removal too.
START_TEST(huge_directory_blocks_the_others)
{
	struct fskit k;
	struct resp r = {0};
	char name[32], body[700];
	size_t i;
	const json_t *e;
	fs_start(&k, _i, NULL, NULL);
	fs_dir(in_ws(&k, "many"), 0755);
	for (int n = 0; n < MANY; n++) {
		(void)snprintf(name, sizeof name, "file-%05d", n * 7919 % MANY);
		touch(in_ws(&k, "many"), name);
	}
	struct client *c = client_connect_to(k.d->envd_host, k.d->envd_port, 0);
	struct client *unary = k.c;
	(void)snprintf(body, sizeof body, "{\"path\":\"%s\"}", in_ws(&k, "many"));
	client_request(c, "POST", "/filesystem.Filesystem/ListDir", NULL, body, strlen(body));
	ck_assert_int_lt(probe(&k, c), h_scaled(1500));
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	k.c = c;
	c->deadline = 60000;
	const json_t *list =
		json_object_get(fs_pack(&k, "ListDir", 200, &r, "{s:s}", "path", in_ws(&k, "many")), "entries");
	ck_assert_uint_eq(json_array_size(list), MANY);
	json_array_foreach(list, i, e)
	{
		(void)snprintf(name, sizeof name, "file-%05zu", i);
		ck_assert_str_eq(j_str(e, "name"), name);
	}
	client_request(c, "POST", "/filesystem.Filesystem/Remove", NULL, body, strlen(body));
	ck_assert_int_lt(probe(&k, c), h_scaled(1000)); // the last rmdir is one call
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_int_lt(access(in_ws(&k, "many"), F_OK), 0);
	client_close(c);
	k.c = unary;
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

// B50: a client that leaves a long list costs nothing.
START_TEST(client_leaves_a_long_list)
{
	static const char body[] = "{\"path\":\"/\",\"depth\":99}";
	struct fskit k;
	struct resp r = {0};
	fs_start(&k, false, NULL, NULL);
	fs_call(&k, "Stat", "{\"path\":\"/\"}", &r);
	int fds = d_fd_count(k.d);
	for (int i = 0; i < 20; i++) {
		struct client *c = client_connect_to(k.d->envd_host, k.d->envd_port, 0);
		client_request(c, "POST", "/filesystem.Filesystem/ListDir", NULL, body, sizeof body - 1);
		if (i % 2)
			ck_assert_int_ge(client_fill(c, CLIENT_DEADLINE), 1);
		client_abort(c);
	}
	int64_t end = h_now_ms() + h_scaled(CLIENT_DEADLINE);
	while (d_fd_count(k.d) > fds && h_now_ms() < end)
		h_tick();
	ck_assert_int_le(d_fd_count(k.d), fds);
	fs_call(&k, "Stat", "{\"path\":\"/\"}", &r);
	ck_assert_int_eq(r.status, 200);
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

// A path that was forgotten is neither the user's home nor (which is all that this test could lose) the default directory.
START_TEST(forgotten_path_takes_the_home_away)
{
	static const char *const bodies[] = {
		"{}", "{\"path\":\"\"}", "{\"destination\":\"x\"}", "{\"source\":\"\",\"destination\":\"x\"}"};
	struct fskit k;
	struct resp r = {0};
	char json[300];
	fs_start(&k, false, NULL, NULL);
	ck_assert_int_eq(mkdir(in_ws(&k, "default"), 0755), 0);
	(void)snprintf(json, sizeof json, "{\"defaultWorkdir\":\"%s\"}", in_ws(&k, "default"));
	ck_assert_int_eq(envd_init(k.d, json), 204);
	for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
		fs_call(&k, i < 2 ? "Remove" : "Move", bodies[i], &r);
		fs_assert_error(&r, 400, "invalid_argument");
		ck_assert_int_eq(access(in_ws(&k, "default"), F_OK), 0);
	}
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

// B36
START_TEST(bad_input_has_another_shape)
{
	static const char *const methods[] = {"Stat", "MakeDir", "Move", "ListDir", "Remove", "CreateWatcher"};
	static const char *const bodies[] = {"", "null", "7", "\"x\"", "[]", "{", "{\"path\":7}", "{} {}",
		"{\"path\":\"a\",\"path\":\"b\"}", "{\"source\":[]}"};
	struct fskit k;
	struct resp r = {0};
	fs_start(&k, false, NULL, NULL);
	for (size_t m = 0; m < sizeof methods / sizeof *methods; m++) {
		bool two = strcmp(methods[m], "Move") == 0;
		for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
			if (strstr(bodies[i], two ? "path" : "source"))
				continue; // a field it does not know
			fs_call(&k, methods[m], bodies[i], &r);
			fs_assert_error(&r, 400, "invalid_argument");
		}
		fs_call(&k, methods[m], two ? "{\"source\":\"~x/a\"}" : "{\"path\":\"~x/a\"}", &r);
		fs_assert_error(&r, 400, "invalid_argument");
		fs_call_as(&k, methods[m], "Authorization: Basic bm9ib2R5LWhlcmU6\r\n", "{}", &r);
		fs_assert_error(&r, 401, "unauthenticated");
	}
	resp_release(&r);
	fs_finish(&k);
}
END_TEST

Suite *envd_filesystem_suite(void)
{
	Suite *s = suite_create("envd_filesystem");
	TCase *tc = h_tcase(s, "recorded", 30);
	tcase_add_loop_test(tc, answers_differ_from_the_recorded_ones, 0, RECORDED * CODECS);
	tc = h_tcase(s, "entries", 30);
	tcase_add_loop_test(tc, unknown_owner_breaks_the_entry, 0, CODECS);
	tcase_add_loop_test(tc, odd_names, 0, CODECS);
	tcase_add_loop_test(tc, metadata_is_not_told_right, 0, CODECS);
	tcase_add_loop_test(tc, made_directories_belong_to_others, 0, CODECS);
	tcase_add_loop_test(tc, tree_is_not_in_order, 0, CODECS);
	tcase_add_test(tc, forgotten_path_takes_the_home_away);
	tcase_add_test(tc, bad_input_has_another_shape);
	tc = h_tcase(s, "huge", 90);
	tcase_add_loop_test(tc, huge_directory_blocks_the_others, 0, CODECS);
	tcase_add_test(tc, client_leaves_a_long_list);
	return s;
}
