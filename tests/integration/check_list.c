// SPDX-License-Identifier: Apache-2.0
// Lists and removals of trees of any size and shape: exact, never out of the tree, and never in anybody's way.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MANY = 100000, ROUNDS = 1000 };

static const char *in_ws(const struct testd *d, const char *name)
{
	static char path[2][600];
	static unsigned next;
	char *p = path[next++ % 2];
	(void)snprintf(p, sizeof path[0], "%s/%s", d->workspace, name);
	return p;
}

static void touch(const struct testd *d, const char *name)
{
	int fd = open(in_ws(d, name), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_msg(fd >= 0, "%s", name);
	close(fd);
}

static void make_dir(const struct testd *d, const char *name)
{
	ck_assert_msg(mkdir(in_ws(d, name), 0755) == 0, "%s", name);
}

static const json_t *list(const struct testd *d, const char *query, struct resp *r)
{
	char target[256];
	(void)snprintf(target, sizeof target, "/files/list%s", query);
	req(d, "GET", target, NULL, r);
	ck_assert_msg(r->status == 200, "%s: %d", target, r->status);
	return j_get(resp_json(r), "files");
}

// The entry of the workspace's NAME, or NULL.
static const json_t *entry(const struct testd *d, const json_t *files, const char *name)
{
	size_t i;
	const json_t *e;
	json_array_foreach(files, i, e)
	{
		if (strcmp(j_str(e, "path"), in_ws(d, name)) == 0)
			return e;
	}
	return NULL;
}

static void assert_names(const struct testd *d, const char *query, const char *const *names)
{
	struct resp r = {0};
	const json_t *files = list(d, query, &r);
	size_t n = 0;
	for (; names[n]; n++)
		ck_assert_msg(entry(d, files, names[n]), "%s without %s", query, names[n]);
	ck_assert_msg(json_array_size(files) == n, "%s: %zu entries", query, json_array_size(files));
	resp_release(&r);
}
#define NAMES(...) ((const char *const[]){__VA_ARGS__, NULL})

START_TEST(depth_or_since_is_wrong)
{
	struct testd *d = d_start();
	struct resp r = {0};
	char query[64];
	make_dir(d, "a");
	make_dir(d, "a/b");
	make_dir(d, "a/b/c");
	touch(d, ".hidden");
	touch(d, "a/f");
	touch(d, "a/b/c/g");
	ck_assert_int_eq(symlink("a", in_ws(d, "link")), 0);
	ck_assert_int_eq(mkfifo(in_ws(d, "fifo"), 0600), 0);
	assert_names(d, "", NAMES(".hidden", "a/f", "a/b/c/g", "link", "fifo"));
	assert_names(d, "?path=", NAMES(".hidden", "a/f", "a/b/c/g", "link", "fifo"));
	assert_names(d, "?depth=1", NAMES(".hidden", "a", "link", "fifo"));
	assert_names(d, "?path=a", NAMES("a/b", "a/f"));
	assert_names(d, "?path=a/&depth=2", NAMES("a/b", "a/f", "a/b/c"));
	assert_names(d, "?path=a&depth=99", NAMES("a/b", "a/f", "a/b/c", "a/b/c/g"));
	assert_names(d, "?path=link", NAMES("link/b", "link/f"));
	const struct timespec old[] = {{1000, 0}, {1000, 0}};
	ck_assert_int_eq(utimensat(AT_FDCWD, in_ws(d, "a/f"), old, 0), 0);
	assert_names(d, "?since=1001", NAMES(".hidden", "a/b/c/g", "link", "fifo"));
	assert_names(d, "?since=1000", NAMES(".hidden", "a/f", "a/b/c/g", "link", "fifo"));
	(void)snprintf(query, sizeof query, "?path=a&since=1001");
	assert_names(d, query, NAMES("a/b"));
	const json_t *files = list(d, "?depth=1", &r), *e = entry(d, files, "link");
	ck_assert_str_eq(j_str(e, "type"), "symlink");
	ck_assert_str_eq(j_str(e, "symlink_target"), "a");
	ck_assert_str_eq(j_str(e, "mode"), "777");
	ck_assert_str_eq(j_str(entry(d, files, "a"), "type"), "dir");
	ck_assert_str_eq(j_str(entry(d, files, "a"), "mode"), "755");
	ck_assert_str_eq(j_str(entry(d, files, "fifo"), "type"), "other");
	ck_assert(!j_has(resp_json(&r), "errors"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B48
START_TEST(unknown_owner_breaks_the_list)
{
	struct testd *d = d_start();
	struct resp r = {0};
	touch(d, "f");
	uint32_t uid = geteuid() == 0 ? 54501 : geteuid(), gid = geteuid() == 0 ? 54502 : getegid();
	ck_assert_int_eq(chown(in_ws(d, "f"), uid, gid), 0);
	const json_t *e = entry(d, list(d, "?depth=1", &r), "f");
	ck_assert_int_eq(j_int(e, "uid"), uid);
	ck_assert_int_eq(j_int(e, "gid"), gid);
	req_pack(d, "POST", "/files/stat", &r, "{s:s}", "path", "f");
	ck_assert_int_eq(j_int(resp_json(&r), "uid"), uid);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B50: links are not descended, a client that leaves a long list costs nothing.
START_TEST(looping_tree)
{
	struct testd *d = d_start();
	struct resp r = {0};
	ck_assert_int_eq(symlink(".", in_ws(d, "loop")), 0);
	assert_names(d, "?depth=99", NAMES("loop"));
	int fds = d_fd_count(d);
	for (int i = 0; i < 20; i++) {
		struct client *c = client_connect(d);
		client_request(c, "GET", "/files/list?path=/&depth=99", NULL, NULL, 0);
		ck_assert_int_ge(client_fill(c, CLIENT_DEADLINE), 1);
		client_abort(c);
	}
	int64_t end = h_now_ms() + h_scaled(CLIENT_DEADLINE);
	while (d_fd_count(d) > fds && h_now_ms() < end)
		h_tick();
	ck_assert_int_le(d_fd_count(d), fds);
	req_pack(d, "POST", "/files/remove", &r, "{s:s}", "path", "loop");
	ck_assert_int_eq(r.status, 200);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Asks for the health on a connection of its own until C has something: how often it was answered.
static int probe(const struct testd *d, const struct client *c)
{
	struct client *health = client_connect(d);
	struct resp r = {0};
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	int n = 0;
	do {
		client_request(health, "GET", "/health", NULL, NULL, 0);
		client_response(health, &r);
		ck_assert_int_eq(r.status, 204);
		n++;
	} while (poll(&p, 1, 0) == 0);
	client_close(health);
	resp_release(&r);
	return n;
}

// B50: 100 000 entries are listed and removed in slices.
START_TEST(huge_directory_stops_everybody)
{
	struct testd *d = d_start();
	struct resp r = {0};
	char name[64];
	make_dir(d, "many");
	for (int i = 0; i < MANY; i++) {
		(void)snprintf(name, sizeof name, "many/file-%06d", i);
		touch(d, name);
	}
	long rss = d_rss_kib(d);
	struct client *c = client_connect(d);
	c->deadline = 60000;
	client_request(c, "GET", "/files/list?path=many&depth=1", NULL, NULL, 0);
	ck_assert_int_gt(probe(d, c), 0);
	long grown = d_rss_kib(d) - rss;
	client_response(c, &r);
	ck_assert_uint_eq(json_array_size(j_get(resp_json(&r), "files")), MANY);
	ck_assert(r.chunked);
	ck_assert_int_lt(grown, d_sanitized(d) ? 40000 : 8000);
	int probes = 0;
	for (int tries = 0; tries < 10 && probes <= 1; tries++) { // on a busy machine the probes are slow, too
		client_request(c, "GET", "/files/list?since=99999999999", NULL, NULL, 0);
		probes = probe(d, c);
		client_response(c, &r);
		assert_text(&r.body, "{\"files\":[]}");
	}
	ck_assert_int_gt(probes, 1);
	static const char body[] = "{\"path\":\"many\"}";
	client_request(c, "POST", "/files/remove", NULL, body, sizeof body - 1);
	ck_assert_int_gt(probe(d, c), 10);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_int_ne(access(in_ws(d, "many"), F_OK), 0);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A removal goes on to its end when its client has left.
START_TEST(removal_stops_half_way)
{
	struct testd *d = d_start();
	char name[64];
	make_dir(d, "many");
	for (int i = 0; i < 20000; i++) {
		(void)snprintf(name, sizeof name, "many/file-%06d", i);
		touch(d, name);
	}
	struct client *c = client_connect(d);
	static const char body[] = "{\"path\":\"many\"}";
	client_request(c, "POST", "/files/remove", NULL, body, sizeof body - 1);
	int64_t end = h_now_ms() + h_scaled(CLIENT_DEADLINE);
	while (access(in_ws(d, "many/file-000000"), F_OK) == 0 && access(in_ws(d, "many/file-019999"), F_OK) == 0 &&
		h_now_ms() < end)
		continue;
	client_abort(c);
	while (access(in_ws(d, "many"), F_OK) == 0 && h_now_ms() < end)
		h_tick();
	ck_assert_int_ne(access(in_ws(d, "many"), F_OK), 0);
	d_finish(d);
}
END_TEST

// A tree that is deeper than paths and descriptors reach.
START_TEST(deep_tree)
{
	struct testd *d = d_start();
	struct resp r = {0};
	int at = open(d->workspace, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	for (int i = 0; i < 1500; i++) {
		ck_assert_int_eq(mkdirat(at, "deeper", 0755), 0);
		int next = openat(at, "deeper", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		ck_assert_int_ge(next, 0);
		close(at);
		at = next;
	}
	close(openat(at, "bottom", O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
	close(at);
	const json_t *files = list(d, "", &r);
	ck_assert_uint_eq(json_array_size(files), 1);
	const char *path = j_str(json_array_get(files, 0), "path");
	ck_assert_uint_eq(strlen(path), strlen(d->workspace) + 1500 * strlen("/deeper") + strlen("/bottom"));
	ck_assert_uint_eq(json_array_size(list(d, "?depth=1500", &r)), 1500);
	req_pack(d, "POST", "/files/remove", &r, "{s:s}", "path", "deeper");
	ck_assert_int_eq(r.status, 200);
	ck_assert_uint_eq(json_array_size(list(d, "?depth=1", &r)), 0);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Directories come and go during the walk: no crash, no error, what stays is listed.
START_TEST(list_races_with_removal)
{
	struct testd *d = d_start();
	struct resp r = {0};
	touch(d, "stays");
	struct client *c = client_connect(d);
	static const char stream[] = "{\"command\":\"while :; do mkdir -p x/y/z; touch x/y/z/f; rm -rf x; done\"}";
	client_request(c, "POST", "/exec/stream", NULL, stream, sizeof stream - 1);
	ck_assert_int_ge(client_fill(c, CLIENT_DEADLINE), 1);
	for (int i = 0; i < 300; i++) {
		const json_t *files = list(d, "", &r);
		ck_assert_ptr_nonnull(entry(d, files, "stays"));
		ck_assert(!j_has(resp_json(&r), "errors"));
		req_pack(d, "POST", "/files/remove", &r, "{s:s}", "path", "x");
		ck_assert(r.status == 200 || r.status == 404 || r.status == 409);
	}
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Descriptors and memory are back after many rounds of each route.
START_TEST(rounds_leak)
{
	static const char *const rounds[][2] = {
		{"/files/write", "{\"path\":\"a/b\",\"content\":\"x\"}"},
		{"/files/write", "{\"path\":\"a/b\",\"content\":\"y\",\"mode\":\"a\"}"},
		{"/files/write", "{\"path\":\"a\",\"content\":\"x\"}"},
		{"/files/write", "{\"path\":\"c\",\"content\":\"!\",\"encoding\":\"base64\"}"},
		{"/files/mkdir", "{\"path\":\"a/d/e\"}"},
		{"/files/stat", "{\"path\":\"a/b\"}"},
		{"/files/stat", "{\"path\":\"missing\"}"},
		{"/files/move", "{\"source\":\"a/b\",\"destination\":\"a/c\"}"},
		{"/files/remove", "{\"path\":\"missing\"}"},
		{"/files/list?path=a&depth=9", NULL},
		{"/files/list?path=a/c", NULL},
		{"/files/read?path=a/c", NULL},
		{"/files/read?path=a", NULL},
		{"/files/remove", "{\"path\":\"a\"}"},
	};
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	long rss = 0;
	int fds = 0;
	for (int i = 0; i < ROUNDS; i++) {
		for (size_t k = 0; k < sizeof rounds / sizeof *rounds; k++) {
			const char *body = rounds[k][1];
			client_request(c, body ? "POST" : "GET", rounds[k][0], NULL, body, body ? strlen(body) : 0);
			client_response(c, &r);
		}
		if (i == 100) {
			rss = d_rss_kib(d);
			fds = d_fd_count(d);
		}
	}
	ck_assert_int_eq(d_fd_count(d), fds);
	if (!d_sanitized(d)) // it keeps what is freed
		ck_assert_int_le(d_rss_kib(d), rss + 300);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *list_suite(void)
{
	Suite *s = suite_create("list");
	TCase *tc = h_tcase(s, "trees", 90);
	tcase_add_test(tc, depth_or_since_is_wrong);
	tcase_add_test(tc, unknown_owner_breaks_the_list);
	tcase_add_test(tc, looping_tree);
	tcase_add_test(tc, huge_directory_stops_everybody);
	tcase_add_test(tc, removal_stops_half_way);
	tcase_add_test(tc, deep_tree);
	tcase_add_test(tc, list_races_with_removal);
	tcase_add_test(tc, rounds_leak);
	return s;
}
