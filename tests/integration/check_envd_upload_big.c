// SPDX-License-Identifier: Apache-2.0
// Large uploads, compressed ones, and forms cut anywhere.
#include "tests/integration/suites.h"
#include "tests/integration/uploadkit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))

// --- sizes ---

// B45: in chunks and as a form, over nothing and over an old file, in constant memory, others served meanwhile.
START_TEST(large_upload_takes_memory)
{
	if (!fs_home())
		return;
	ck_assert_int_eq(mount("tmpfs", FS_HOME, "tmpfs", 0, "size=800m"), 0);
	struct testd *d = up_start();
	struct resp r = {0};
	struct up_pulse pulse = {.d = d};
	const size_t piece = 256 * 1024, pieces = d_sanitized(d) ? 400 : 1200;
	char *body = up_filled('x', piece);
	ck_assert_int_eq(up_post(d, "?path=/home/user/f", RAW, body, piece, &r), 200);
	long before = d_rss_kib(d);
	for (int i = 0; i < 3; i++) {
		struct client *c = up_connect(d);
		client_send_str(c,
			i < 2 ? "POST /files?path=/home/user/f HTTP/1.1\r\nHost: x\r\n" RAW
				"Transfer-Encoding: chunked\r\n\r\n"
			      : "POST /files?path=/home/user/g HTTP/1.1\r\nHost: x\r\n" FORM
				"Transfer-Encoding: chunked\r\n\r\n4c\r\n--b0undary\r\nContent-Disposition: form-data; "
				"name=\"file\"; filename=\"ffff\"\r\n\r\n\r\n");
		for (size_t k = 0; k < pieces; k++) {
			client_send_str(c, "40000\r\n");
			ck_assert(client_send_raw(c, body, piece));
			client_send_str(c, "\r\n");
			up_beat(&pulse);
		}
		client_send_str(c, i < 2 ? "0\r\n\r\n" : "10\r\n\r\n--b0undary--\r\n\r\n0\r\n\r\n");
		resp_release(&r);
		client_response(c, &r);
		ck_assert_msg(
			r.status == 200, "%d: %.*s", r.status, (int)buf_len(&r.body), (const char *)buf_data(&r.body));
		client_close(c);
		struct stat st;
		ck_assert_int_eq(stat(i < 2 ? FS_HOME "/f" : FS_HOME "/g", &st), 0);
		ck_assert_int_eq(st.st_size, (off_t)(piece * pieces));
		if (i == 1)
			ck_assert_int_eq(truncate(FS_HOME "/f", 0), 0);
	}
	ck_assert_int_lt(pulse.slowest, h_scaled(1500));
	long kept = d_rss_kib(d) - before;
	ck_assert_msg(d_sanitized(d) || kept < 6 * 1024, "%ld KiB are kept", kept);
	free(body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A megabyte that becomes a gigabyte: in slices, in constant memory.
START_TEST(compressed_upload_blocks_the_others)
{
	if (!fs_home())
		return;
	ck_assert_int_eq(mount("tmpfs", FS_HOME, "tmpfs", 0, "size=400m"), 0);
	struct testd *d = up_start();
	struct resp r = {0};
	struct up_pulse pulse = {.d = d};
	const size_t piece = MIB, pieces = d_sanitized(d) ? 60 : 300;
	char *zeros = calloc(1, piece);
	unsigned char *out = malloc(2 * MIB);
	z_stream z = {.avail_out = (unsigned)(2 * MIB), .next_out = out};
	ck_assert_int_eq(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	for (size_t i = 0; i < pieces; i++) {
		z.next_in = (unsigned char *)zeros;
		z.avail_in = (unsigned)piece;
		(void)deflate(&z, i + 1 < pieces ? Z_NO_FLUSH : Z_FINISH);
	}
	size_t n = 2 * MIB - z.avail_out;
	deflateEnd(&z);
	up_beat(&pulse);
	long before = d_rss_kib(d);
	struct client *c = up_connect(d);
	struct buf head = {0};
	buf_printf(&head,
		"POST /files?path=f HTTP/1.1\r\nHost: x\r\n" RAW
		"Content-Encoding: gzip\r\nContent-Length: %zu\r\n\r\n",
		n);
	client_send_raw(c, buf_data(&head), buf_len(&head));
	client_send_raw(c, out, n);
	struct stat st = {0};
	for (int64_t end = h_now_ms() + h_scaled(30000); st.st_size < (off_t)(piece * pieces);) {
		pulse.next = 0;
		up_beat(&pulse);
		(void)stat(FS_HOME "/f", &st);
		ck_assert_int_lt(h_now_ms(), end);
	}
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_int_eq(st.st_size, (off_t)(piece * pieces));
	ck_assert_int_lt(pulse.slowest, h_scaled(1500));
	long kept = d_rss_kib(d) - before;
	ck_assert_msg(d_sanitized(d) || kept < 4 * 1024, "%ld KiB are kept", kept);
	client_close(c);
	buf_release(&head);
	free(zeros);
	free(out);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- forms ---

static size_t gzip_all(const void *p, size_t n, unsigned char *out, size_t room)
{
	z_stream z = {.avail_in = (unsigned)n, .avail_out = (unsigned)room, .next_out = out};
	z.next_in = (unsigned char *)(uintptr_t)p;
	ck_assert_int_eq(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
	ck_assert_int_eq(deflate(&z, Z_FINISH), Z_STREAM_END);
	deflateEnd(&z);
	return room - z.avail_out;
}

// Sent in pieces of 1 to 5 bytes and whole, plain and compressed: always the same files.
START_TEST(form_depends_on_how_it_is_cut)
{
	static const char form[] =
		"preamble\r\n--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"d/one\"\r\n\r\n"
		"1\r\n--b0undar\r\n-\r\n--b0undary\r\nContent-Disposition: form-data; name=\"other\"\r\n\r\nskipped"
		"\r\n--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"two\"\r\n\r\n"
		"\r\n--b0undary\r\ncontent-disposition: form-data; filename=\"d/three\"; name=file\r\n\r\n\r\r\n"
		"\r\n--b0undary--\r\nepilogue";
	static const char answer[] = "[{\"name\":\"one\",\"path\":\"/home/user/d/one\",\"type\":\"file\"},"
				     "{\"name\":\"two\",\"path\":\"/home/user/two\",\"type\":\"file\"},"
				     "{\"name\":\"three\",\"path\":\"/home/user/d/three\",\"type\":\"file\"}]";
	static const size_t steps[] = {1, 2, 3, 4, 5, 100000};
	if (!fs_home())
		return;
	struct testd *d = up_start();
	struct resp r = {0};
	unsigned char packed[2048];
	size_t n = gzip_all(form, sizeof form - 1, packed, sizeof packed);
	for (size_t i = 0; i < 2 * COUNT(steps); i++) {
		const char *p = i % 2 ? (const char *)packed : form;
		size_t len = i % 2 ? n : sizeof form - 1, step = steps[i / 2];
		struct client *c = up_connect(d);
		struct buf head = {0};
		buf_printf(&head, "POST /files HTTP/1.1\r\nHost: x\r\n" FORM "%sContent-Length: %zu\r\n\r\n",
			i % 2 ? "Content-Encoding: gzip\r\n" : "", len);
		client_send_raw(c, buf_data(&head), buf_len(&head));
		for (size_t at = 0; at < len; at += step)
			client_send_raw(c, p + at, step < len - at ? step : len - at);
		resp_release(&r);
		client_response(c, &r);
		assert_text(&r.body, answer);
		up_content(FS_HOME "/d/one", "1\r\n--b0undar\r\n-", 15);
		up_content(FS_HOME "/two", "", 0);
		up_content(FS_HOME "/d/three", "\r\r\n", 3);
		fs_shell(FS_HOME, "rm -r d two");
		client_close(c);
		buf_release(&head);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Files before the one that fails stay, that one leaves nothing.
START_TEST(failing_part_undoes_others)
{
	static const char form[] =
		"--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"one\"\r\n\r\n1"
		"\r\n--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"d\"\r\n\r\n2"
		"\r\n--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename=\"three\"\r\n\r\n3"
		"\r\n--b0undary--\r\n";
	static const char nul[] =
		"--b0undary\r\nContent-Disposition: form-data; name=\"file\"; filename*=utf-8''o%00ther\r\n\r\n1"
		"\r\n--b0undary--\r\n";
	if (!fs_home())
		return;
	struct testd *d = up_start();
	struct resp r = {0};
	fs_dir(FS_HOME "/d", 0755);
	ck_assert_int_eq(up_post(d, "", FORM, form, sizeof form - 1, &r), 400);
	assert_text(&r.body, MESSAGE(400, "path is a directory: /home/user/d"));
	up_content(FS_HOME "/one", "1", 1);
	ck_assert_int_eq(up_entries(FS_HOME), 2);
	ck_assert_int_ge(up_post(d, "", FORM, nul, sizeof nul - 1, &r), 400);
	ck_assert_int_eq(up_entries(FS_HOME), 2);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// 4 uploads at once into a directory that is not there yet.
START_TEST(parallel_uploads_collide)
{
	enum { N = 4 };
	if (!fs_home())
		return;
	struct testd *d = up_start();
	struct resp r = {0};
	struct client *c[N];
	for (int round = 0; round < 20; round++) {
		for (int i = 0; i < N; i++) {
			char text[256];
			(void)snprintf(text, sizeof text,
				"POST /files?path=p%d/q/f%d HTTP/1.1\r\nHost: x\r\n" RAW "Content-Length: 1\r\n\r\nx",
				round, i);
			c[i] = up_connect(d);
			client_send_str(c[i], text);
		}
		for (int i = 0; i < N; i++) {
			resp_release(&r);
			client_response(c[i], &r);
			ck_assert_int_eq(r.status, 200);
			client_close(c[i]);
		}
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *envd_upload_big_suite(void)
{
	Suite *s = suite_create("envd_upload_big");
	TCase *tc = h_tcase(s, "bodies", 90);
	tcase_add_test(tc, large_upload_takes_memory);
	tcase_add_test(tc, compressed_upload_blocks_the_others);
	tcase_add_test(tc, form_depends_on_how_it_is_cut);
	tcase_add_test(tc, failing_part_undoes_others);
	tcase_add_test(tc, parallel_uploads_collide);
	return s;
}
