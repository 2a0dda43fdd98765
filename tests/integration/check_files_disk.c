// SPDX-License-Identifier: Apache-2.0
// Uploads that do not come to their end, large ones, and disks that are full: the old content or the new one, never a mix.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static const char *in_ws(const struct testd *d, const char *name)
{
	static char path[2][600];
	static unsigned next;
	char *p = path[next++ % 2];
	(void)snprintf(p, sizeof path[0], "%s/%s", d->workspace, name);
	return p;
}

// {"path":PATH,"content":"CCC..."} with N times C.
static void write_body(struct buf *b, const char *path, char c, size_t n)
{
	const char text[] = {c, '\0'};
	buf_reset(b);
	buf_printf(b, "{\"path\":\"%s\",\"content\":\"", path);
	h_repeat(b, text, n);
	buf_str(b, "\"}");
	ck_assert_int_eq(buf_failed(b), 0);
}

static void write_fill(const struct testd *d, struct resp *r, const char *path, char c, size_t n)
{
	struct buf body;
	buf_init(&body, 0);
	write_body(&body, path, c, n);
	struct client *cl = client_connect(d);
	cl->deadline = 30000;
	client_request(cl, "POST", "/files/write", NULL, buf_data(&body), buf_len(&body));
	client_response(cl, r);
	client_close(cl);
	buf_release(&body);
}

static void assert_fill(const struct testd *d, const char *name, char c, size_t n)
{
	char *got = malloc(n + 1);
	FILE *f = fopen(in_ws(d, name), "r");
	ck_assert_msg(got && f, "%s", name);
	ck_assert_uint_eq(fread(got, 1, n + 1, f), n);
	size_t i = 0;
	while (i < n && got[i] == c)
		i++;
	ck_assert_msg(i == n, "%s: byte %zu of %zu is another", name, i, n);
	(void)fclose(f);
	free(got);
}

// How many names DIR has; the daemon's own journals are not counted.
static int count(const char *dir)
{
	DIR *d = opendir(dir);
	ck_assert_ptr_nonnull(d);
	int n = -2;
	for (const struct dirent *e; (e = readdir(d));)
		n += strncmp(e->d_name, ".k8e_", 5) != 0;
	closedir(d);
	return n;
}

// B44: cut after a part of the body, by FIN, RST or a half-closed connection, with a length and in chunks.
START_TEST(cut_upload_is_written)
{
	static const char *const heads[] = {"Content-Length: 20000000\r\n", "Transfer-Encoding: chunked\r\n"};
	struct testd *d = d_start();
	struct resp r = {0};
	struct buf body;
	buf_init(&body, 0);
	write_fill(d, &r, "old", 'o', 3 * MIB);
	ck_assert_int_eq(r.status, 200);
	ck_assert_int_eq(chmod(in_ws(d, "old"), 0751), 0);
	for (int i = 0; i < 12; i++) {
		struct client *c = client_connect(d);
		write_body(&body, i % 2 ? "old" : "new", 'n', 8 * MIB);
		client_send_str(c, "POST /files/write HTTP/1.1\r\nHost: x\r\n");
		client_send_str(c, heads[i / 2 % 2]);
		client_send_str(c, i / 2 % 2 ? "\r\n1312d00\r\n" : "\r\n");
		client_send_raw(c, buf_data(&body), 8 * MIB);
		if (i / 4 == 0) {
			client_shutdown_write(c);
			if (client_try_response(c, &r))
				ck_assert_int_ne(r.status, 200);
		}
		if (i / 4 == 1)
			client_abort(c);
		else
			client_close(c);
	}
	struct stat st;
	assert_fill(d, "old", 'o', 3 * MIB);
	ck_assert_int_eq(stat(in_ws(d, "old"), &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0751);
	ck_assert_int_eq(count(d->workspace), 1);
	buf_release(&body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B44: mode, owner and link stay, whether it is written in place or renamed over.
START_TEST(overwrite_changes_more_than_the_content)
{
	static const size_t sizes[] = {10, 100000, 5 * MIB, 20};
	struct testd *d = d_start();
	struct resp r = {0};
	struct stat st;
	write_fill(d, &r, "dir/real", 'a', 5);
	ck_assert_int_eq(symlink("dir/real", in_ws(d, "link")), 0);
	ck_assert_int_eq(chmod(in_ws(d, "dir/real"), 0640), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(chown(in_ws(d, "dir/real"), 54501, 54502), 0);
	for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
		write_fill(d, &r, "link", (char)('b' + i), sizes[i]);
		ck_assert_int_eq(r.status, 200);
		ck_assert_int_eq(j_int(resp_json(&r), "size"), (int64_t)sizes[i]);
		assert_fill(d, "dir/real", (char)('b' + i), sizes[i]);
		ck_assert_int_eq(lstat(in_ws(d, "link"), &st), 0);
		ck_assert(S_ISLNK(st.st_mode));
		ck_assert_int_eq(stat(in_ws(d, "dir/real"), &st), 0);
		ck_assert_uint_eq(st.st_mode & 07777, 0640);
		ck_assert(geteuid() != 0 || (st.st_uid == 54501 && st.st_gid == 54502));
		ck_assert_int_eq(count(in_ws(d, "dir")), 1);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B44: 20 MB into a 10 MB file system.
START_TEST(full_disk_leaves_half_a_file)
{
	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return;
	char ws[] = "/tmp/celld-full.XXXXXX";
	ck_assert_ptr_nonnull(mkdtemp(ws));
	ck_assert_int_eq(mount("tmpfs", ws, "tmpfs", 0, "size=10m"), 0);
	struct testd *d = d_start_opts(&(struct d_opts){.workspace = ws});
	struct resp r = {0};
	write_fill(d, &r, "old", 'o', 3 * MIB);
	write_fill(d, &r, "small", 'o', 1000);
	static const char *const names[] = {"new", "old", "small", "new"};
	for (int i = 0; i < 4; i++) {
		write_fill(d, &r, names[i], 'n', 20 * MIB);
		ck_assert_str_eq(j_str(assert_error(&r, 507, "resource_exhausted"), "errno"), "ENOSPC");
	}
	assert_fill(d, "old", 'o', 3 * MIB);
	assert_fill(d, "small", 'o', 1000);
	ck_assert_int_eq(count(ws), 2);
	write_fill(d, &r, "new", 'n', 4 * MIB);
	ck_assert_int_eq(r.status, 200);
	assert_fill(d, "new", 'n', 4 * MIB);
	resp_release(&r);
	d_finish(d);
	(void)umount2(ws, MNT_DETACH);
	ck_assert_int_eq(rmdir(ws), 0);
}
END_TEST

// Waits for the answer of C while the health is asked for all the time, and given.
static void probe(const struct testd *d, struct client *c)
{
	struct client *health = client_connect(d);
	struct resp r = {0};
	struct pollfd p = {.fd = c->fd, .events = POLLIN};
	do {
		client_request(health, "GET", "/health", NULL, NULL, 0);
		client_response(health, &r);
		ck_assert_int_eq(r.status, 204);
	} while (poll(&p, 1, 0) == 0);
	client_close(health);
	resp_release(&r);
}

// B45: 45 MB are written and read; memory holds the body and no more; others are served meanwhile.
START_TEST(large_file_takes_memory_or_everybody)
{
	size_t n = 45 * 1000 * 1000;
	struct testd *d = d_start();
	struct resp r = {0};
	struct buf body;
	buf_init(&body, 0);
	long rss = d_rss_kib(d);
	write_body(&body, "big", 'x', n);
	struct client *c = client_connect(d);
	c->deadline = 60000;
	client_request(c, "POST", "/files/write", NULL, buf_data(&body), buf_len(&body));
	probe(d, c);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	assert_fill(d, "big", 'x', n);
	ck_assert_int_lt(d_rss_kib(d) - rss, d_sanitized(d) ? 400000 : 4000);
	// Read by somebody who takes it slowly: what is queued for him stays small.
	struct client *slow = client_connect_rcvbuf(d, 4096);
	client_request(slow, "GET", "/files/read?path=big", NULL, NULL, 0);
	ck_assert_int_ge(client_fill(slow, CLIENT_DEADLINE), 1);
	client_request(c, "GET", "/files/read?path=big&encoding=base64", NULL, NULL, 0);
	client_response(c, &r);
	ck_assert(r.chunked);
	ck_assert_int_eq(j_int(resp_json(&r), "size"), (int64_t)n);
	ck_assert_uint_eq(strlen(j_str(resp_json(&r), "content")), n / 3 * 4);
	ck_assert_int_lt(d_rss_kib(d) - rss, d_sanitized(d) ? 400000 : 6000);
	client_abort(slow);
	client_close(c);
	buf_release(&body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The body is complete, but nobody waits for the answer: old or new, and nothing beside it.
START_TEST(client_leaves_while_its_file_is_written)
{
	size_t n = 30 * MIB;
	struct testd *d = d_start();
	struct resp r = {0};
	struct buf body;
	struct stat st;
	buf_init(&body, 0);
	write_body(&body, "f", 'n', n);
	for (int i = 0; i < 6; i++) {
		write_fill(d, &r, "f", 'o', 2 * MIB);
		struct client *c = client_connect(d);
		int fds = d_fd_count(d);
		client_request(c, "POST", "/files/write", NULL, buf_data(&body), buf_len(&body));
		// As late as possible: when the file beside it is there, or the answer.
		struct pollfd p = {.fd = c->fd, .events = POLLIN};
		while (i % 2 && count(d->workspace) == 1 && poll(&p, 1, 0) == 0)
			continue;
		client_abort(c);
		int64_t end = h_now_ms() + h_scaled(CLIENT_DEADLINE);
		while (d_fd_count(d) >= fds && h_now_ms() < end)
			h_tick();
		ck_assert_int_eq(count(d->workspace), 1);
		ck_assert_int_eq(stat(in_ws(d, "f"), &st), 0);
		bool new = (size_t)st.st_size == n;
		assert_fill(d, "f", new ? 'n' : 'o', new ? n : 2 * MIB);
	}
	buf_release(&body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(too_large)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct client *c = client_connect(d);
	client_send_str(c, "POST /files/write HTTP/1.1\r\nHost: x\r\nContent-Length: 90000000\r\n\r\n");
	client_response(c, &r); // before anything of the body is sent
	assert_error(&r, 413, "resource_exhausted");
	client_close(c);
	int fd = open(in_ws(d, "huge"), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_eq(ftruncate(fd, (off_t)(64 * MIB + 1)), 0);
	close(fd);
	req(d, "GET", "/files/read?path=huge", NULL, &r);
	assert_error(&r, 413, "resource_exhausted");
	// What is beside the content is bounded, since it is parsed at once.
	struct buf body;
	buf_init(&body, 0);
	buf_str(&body, "{\"path\":\"f\",\"content\":\"x\",\"junk\":\"");
	h_repeat(&body, "y", MIB);
	buf_str(&body, "\"}");
	req(d, "POST", "/files/write", buf_cstr(&body), &r);
	assert_error(&r, 413, "resource_exhausted");
	ck_assert_int_eq(count(d->workspace), 1);
	buf_release(&body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *files_disk_suite(void)
{
	Suite *s = suite_create("files_disk");
	TCase *tc = h_tcase(s, "content", 60);
	tcase_add_test(tc, cut_upload_is_written);
	tcase_add_test(tc, overwrite_changes_more_than_the_content);
	tcase_add_test(tc, full_disk_leaves_half_a_file);
	tcase_add_test(tc, large_file_takes_memory_or_everybody);
	tcase_add_test(tc, client_leaves_while_its_file_is_written);
	tcase_add_test(tc, too_large);
	return s;
}
