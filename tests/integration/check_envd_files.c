// SPDX-License-Identifier: Apache-2.0
// Downloads of surface B: as the recordings have them, any name, any range, any size.
#include "proto/gzip.h"
#include "tests/integration/exchange.h"
#include "tests/integration/fskit.h"
#include "tests/integration/suites.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define G FS_HOME "/g"
#define MIB ((size_t)1 << 20)

// N bytes that differ with their place.
static unsigned char at(size_t i)
{
	return (unsigned char)(i * 7 + i / 251);
}

static unsigned char *pattern(size_t n)
{
	unsigned char *p = malloc(n + 1);
	ck_assert_ptr_nonnull(p);
	for (size_t i = 0; i < n; i++)
		p[i] = at(i);
	return p;
}

static struct testd *start(void)
{
	return d_start("--envd-listen", "127.0.0.1:0", "--user", "user");
}

static void get(const struct testd *d, const char *target, const char *headers, struct resp *r)
{
	struct client *c = client_connect_to(d->envd_host, d->envd_port, 0);
	client_request(c, "GET", target, headers, NULL, 0);
	resp_release(r);
	client_response(c, r);
	client_close(c);
}

// --- the recordings ---

#define MESSAGE(code, text) "{\"code\":" #code ",\"message\":\"" text "\"}\n"

START_TEST(recorded_downloads)
{
	static const struct deviation others[] = {
		// Every error has a JSON object.
		{"17. HEAD", 0, NULL, true},
		{"42. path twice", 0,
			MESSAGE(400,
				"Invalid format for parameter path: multiple values for single value parameter 'path'"),
			true},
		{"43. bad signature_expiration", 0,
			MESSAGE(400,
				"Invalid format for parameter signature_expiration: error binding string parameter: "
				"strconv.ParseInt: parsing \\\"soon\\\": invalid syntax"),
			true},
		// The path is told.
		{"38. ~other", 0,
			MESSAGE(400, "error expanding and resolving path '~nobody/x': failed to expand path "
				     "'~nobody/x' for user "
				     "'user': cannot expand user-specific home dir"),
			false},
		// What is no escape means nothing, rather than no path.
		{"46. broken percent encoding", 0,
			MESSAGE(400, "Invalid format for parameter path: invalid URL escape"), false},
		// Files of /proc have content.
		{"48. proc file", 0, NULL, true},
	};
	if (!fs_home())
		return;
	fs_tree(G);
	fs_put(G "/t.txt", "text body\n", 0644);
	fs_put(G "/h.html", "<p>x</p>", 0644);
	fs_put(G "/j.json", "{}", 0644);
	fs_put(G "/p.png", "\x89PNG\r\n\x1a\n123", 0644);
	fs_put(G "/noext", "plain words", 0644);
	exchange_file(G "/bin", "\0\1\2\3\4\5\6\7", 8);
	fs_put(G "/b.unknownext", "abc", 0644);
	fs_put(G "/sp ace.txt", "s", 0644);
	fs_put(G "/q\"uo\\te.txt", "q", 0644);
	fs_put(G "/\303\274ml\342\202\254.txt", "u", 0644);
	fs_put(G "/UP.TXT", "u", 0644);
	struct testd *d = start();
	exchange_all(d, "files-get", others, COUNT(others));
	d_finish(d);
}
END_TEST

START_TEST(recorded_ranges)
{
	static const struct deviation others[] = {
		{"7. start past the end", 0, MESSAGE(416, "invalid range: failed to overlap"), true},
		{"8. backwards", 0, MESSAGE(416, "invalid range"), true},
		{"9. other unit", 0, MESSAGE(416, "invalid range"), true},
		{"10. garbage", 0, MESSAGE(416, "invalid range"), true},
		{"17. If-Match \"x\"", 0, MESSAGE(412, "precondition failed"), true},
		{"19. If-Unmodified-Since, modified", 0, MESSAGE(412, "precondition failed"), true},
	};
	static const struct timespec times[2] = {{.tv_sec = 1714557600}, {.tv_sec = 1714557600}};
	if (!fs_home())
		return;
	fs_tree(G);
	fs_put(G "/r.txt", "0123456789", 0644);
	ck_assert_int_eq(utimensat(AT_FDCWD, G "/r.txt", times, 0), 0);
	struct testd *d = start();
	struct golden g;
	struct resp r = {0};
	golden_open(&g, "files-range");
	while (golden_next(&g)) {
		const char *date = "Wed, 01 May 2024 10:00:00 GMT";
		if (strstr(g.label, "older") || strstr(g.label, "Unmodified-Since, modified"))
			date = "Wed, 01 May 2024 09:59:59 GMT";
		else if (strstr(g.label, "date differs"))
			date = "Wed, 01 May 2024 10:00:01 GMT";
		exchange_send(d, &g, date, &r);
		exchange_check(&g, &r, others, COUNT(others));
		if (strstr(g.label, "past the end"))
			ck_assert_str_eq(resp_header(&r, "Content-Range"), "bytes */10");
		if (r.status == 304)
			ck_assert_ptr_null(resp_header(&r, "Content-Length"));
	}
	golden_close(&g);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(recorded_order_of_errors)
{
	static const struct deviation others[] = {
		{"6. unknown user + path twice", 0,
			MESSAGE(400,
				"Invalid format for parameter path: multiple values for single value parameter 'path'"),
			true},
	};
	if (!fs_home())
		return;
	fs_tree(G);
	struct testd *d = start();
	exchange_all(d, "files-order", others, COUNT(others));
	d_finish(d);
}
END_TEST

// --- names ---

// B42
START_TEST(names_are_decoded_wrongly)
{
	static const struct name {
		const char *query, *name;
	} names[] = {{"a+b", "a b"}, {"a%2Bb", "a+b"}, {"a%20b", "a b"}, {"a%2520b", "a%20b"}, {"100%25", "100%"},
		{"%C3%A9", "\303\251"}, {"%23%3F%26", "#?&"}, {"%252Bx", "%2Bx"}};
	static const char *const bads[] = {"%", "%zz", "%4", "x%00", "x%00y", "100%"};
	if (!fs_home())
		return;
	struct testd *d = start();
	struct resp r = {0};
	char text[128];
	fs_put(FS_HOME "/x", "wrong", 0644);
	for (size_t i = 0; i < COUNT(names); i++) {
		(void)snprintf(text, sizeof text, FS_HOME "/%s", names[i].name);
		exchange_file(text, names[i].name, strlen(names[i].name));
	}
	for (size_t i = 0; i < COUNT(names); i++) {
		(void)snprintf(text, sizeof text, "/files?path=%s", names[i].query);
		get(d, text, NULL, &r);
		ck_assert_msg(r.status == 200, "%s: %d", text, r.status);
		assert_text(&r.body, names[i].name);
	}
	for (size_t i = 0; i < COUNT(bads); i++) {
		(void)snprintf(text, sizeof text, "/files?path=%s", bads[i]);
		get(d, text, NULL, &r);
		ck_assert_msg(r.status == 400, "%s: %d", text, r.status);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- bytes ---

// At the sizes round the pieces that things are cut into, whole, compressed, and from the middle.
START_TEST(bytes_change_on_the_way)
{
	static const size_t sizes[] = {0, 1, 511, 512, 2047, 2049, 32767, 65537, 131071, 262144, 300001, 3000000};
	if (!fs_home())
		return;
	struct testd *d = start();
	struct resp r = {0};
	struct buf plain = {0};
	struct err e;
	char range[64];
	for (size_t i = 0; i < COUNT(sizes); i++) {
		size_t n = sizes[i];
		unsigned char *want = pattern(n);
		exchange_file(FS_HOME "/f", want, n);
		get(d, "/files?path=f", NULL, &r);
		assert_bytes(&r.body, want, n);
		get(d, "/files?path=f", "Accept-Encoding: gzip, identity;q=0\r\n", &r);
		ck_assert_str_eq(resp_header(&r, "Content-Encoding"), "gzip");
		buf_reset(&plain);
		ck_assert_int_eq(gunzip_all(&plain, buf_data(&r.body), buf_len(&r.body), 4 * MIB, &e), 0);
		assert_bytes(&plain, want, n);
		if (n <= 64 * 1024)
			ck_assert(r.chunked == (buf_len(&r.body) > 2048));
		(void)snprintf(range, sizeof range, "Range: bytes=%zu-\r\n", n / 2);
		get(d, "/files?path=f", range, &r);
		ck_assert_int_eq(r.status, n > 0 ? 206 : 200);
		assert_bytes(&r.body, want + n / 2, n - n / 2);
		free(want);
	}
	buf_release(&plain);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(many_ranges_of_a_large_file)
{
	if (!fs_home())
		return;
	struct testd *d = start();
	struct resp r = {0};
	struct buf header = {0}, want = {0};
	const size_t n = 2 * MIB;
	unsigned char *bytes = pattern(n);
	exchange_file(FS_HOME "/f", bytes, n);
	BUF_LIT(&header, "Range: bytes=-1");
	for (size_t i = 0; i < 100; i++)
		buf_printf(&header, ", %zu-%zu", i * 20000, i * 20000 + i * 150);
	BUF_LIT(&header, "\r\n");
	get(d, "/files?path=f", buf_cstr(&header), &r);
	ck_assert_int_eq(r.status, 206);
	const char *b = strstr(resp_header(&r, "Content-Type"), "boundary=");
	ck_assert_ptr_nonnull(b);
	for (size_t i = 0; i <= 100; i++) {
		size_t from = i ? (i - 1) * 20000 : n - 1, to = i ? from + (i - 1) * 150 : from;
		buf_printf(&want,
			"%s--%s\r\nContent-Range: bytes %zu-%zu/%zu\r\nContent-Type: application/octet-stream\r\n\r\n",
			i ? "\r\n" : "", b + 9, from, to, n);
		buf_append(&want, bytes + from, to - from + 1);
	}
	buf_printf(&want, "\r\n--%s--\r\n", b + 9);
	assert_bytes(&r.body, buf_data(&want), buf_len(&want));
	// More than there is, many times over, is answered with all of it once.
	buf_reset(&header);
	BUF_LIT(&header, "Range: bytes=0-");
	for (int i = 0; i < 3000; i++)
		BUF_LIT(&header, ",0-");
	BUF_LIT(&header, "\r\n");
	get(d, "/files?path=f", buf_cstr(&header), &r);
	ck_assert_int_eq(r.status, 200);
	assert_bytes(&r.body, bytes, n);
	free(bytes);
	buf_release(&header);
	buf_release(&want);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Their size is not what stat says.
START_TEST(kernel_files_come_empty)
{
	if (!fs_home())
		return;
	struct testd *d = start();
	struct resp r = {0};
	get(d, "/files?path=/proc/self/status", NULL, &r);
	ck_assert_int_eq(r.status, 200);
	buf_byte(&r.body, '\0');
	ck_assert_ptr_nonnull(strstr((const char *)buf_data(&r.body), "voluntary_ctxt_switches"));
	get(d, "/files?path=/sys/kernel/mm/transparent_hugepage/enabled", NULL, &r);
	if (r.status != 404) { // not every kernel has it
		ck_assert_int_eq(r.status, 200);
		ck_assert_uint_gt(buf_len(&r.body), 0);
		ck_assert_uint_lt(buf_len(&r.body), 4096);
	}
	get(d, "/files?path=/dev/zero", NULL, &r);
	ck_assert_int_eq(r.status, 400);
	ck_assert_int_eq(mkfifo(FS_HOME "/fifo", 0600), 0);
	get(d, "/files?path=fifo", NULL, &r);
	ck_assert_int_eq(r.status, 400);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Fetching an archive costs no compression for nothing; what becomes smaller is compressed, and what is to be.
START_TEST(large_files_are_compressed_for_nothing)
{
	static const struct {
		bool text;
		size_t n;
		const char *accept;
		bool coded;
	} cases[] = {
		{false, 2 * MIB, "gzip, deflate", false},
		{false, 2 * MIB, "gzip", false},
		{false, 2 * MIB, "gzip, identity;q=0", true},
		{false, 65536, "gzip, deflate", true},
		{true, 2 * MIB, "gzip, deflate", true},
	};
	if (!fs_home())
		return;
	struct testd *d = start();
	struct resp r = {0};
	struct buf plain = {0};
	struct err e;
	for (size_t i = 0; i < COUNT(cases); i++) {
		size_t n = cases[i].n;
		char line[96];
		unsigned char *want = malloc(n);
		ck_assert_ptr_nonnull(want);
		for (size_t at = 0; at < n; at += 128)
			ck_assert_int_eq(getrandom(want + at, 128, 0), 128);
		if (cases[i].text)
			memset(want, 'x', n);
		exchange_file(FS_HOME "/f", want, n);
		snprintf(line, sizeof line, "Accept-Encoding: %s\r\n", cases[i].accept);
		get(d, "/files?path=f", line, &r);
		ck_assert_int_eq(r.status, 200);
		ck_assert_int_eq(resp_header(&r, "Content-Encoding") != NULL, cases[i].coded);
		buf_reset(&plain);
		if (cases[i].coded)
			ck_assert_int_eq(gunzip_all(&plain, buf_data(&r.body), buf_len(&r.body), 4 * MIB, &e), 0);
		assert_bytes(cases[i].coded ? &plain : &r.body, want, n);
		free(want);
	}
	buf_release(&plain);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A file that becomes shorter meanwhile cannot come whole, and must not seem to.
// The error is not in the coding that the file would have had.
START_TEST(failed_read_is_called_gzip)
{
	if (!fs_home())
		return;
	struct testd *d = start();
	struct resp r = {0};
	get(d, "/files?path=/proc/self/mem", "Accept-Encoding: gzip\r\n", &r);
	ck_assert_int_eq(r.status, 500);
	ck_assert_ptr_null(resp_header(&r, "Content-Encoding"));
	ck_assert_str_eq(resp_header(&r, "Content-Type"), "application/json; charset=utf-8");
	ck_assert_int_eq(j_int(resp_json(&r), "code"), 500);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(shrinking_file_seems_whole)
{
	if (!fs_home())
		return;
	struct testd *d = start();
	struct resp r = {0};
	const size_t n = 40 * MIB;
	unsigned char *bytes = pattern(n);
	exchange_file(FS_HOME "/f", bytes, n);
	struct client *c = client_connect_to(d->envd_host, d->envd_port, 4096);
	client_request(c, "GET", "/files?path=f", NULL, NULL, 0);
	ck_assert_int_gt(client_fill(c, 5000), 0);
	ck_assert_int_eq(truncate(FS_HOME "/f", 1000), 0);
	ck_assert(!client_try_response(c, &r));
	client_close(c);
	free(bytes);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B45: constant memory, whoever reads how fast; others are served meanwhile.
START_TEST(large_download_takes_memory)
{
	enum { READERS = 4 };
	if (!fs_home())
		return;
	struct testd *d = start();
	struct resp r = {0};
	struct client *c[READERS];
	const uint64_t n = (uint64_t)(d_sanitized(d) ? 256 : 2048) * MIB;
	fs_put(FS_HOME "/f", "", 0644);
	ck_assert_int_eq(truncate(FS_HOME "/f", (off_t)n), 0); // a hole costs the disk nothing
	get(d, "/files?path=f", "Range: bytes=0-0\r\n", &r);
	long before = d_rss_kib(d);
	for (int i = 0; i < READERS; i++) {
		c[i] = client_connect_to(d->envd_host, d->envd_port, i ? 4096 : 0);
		client_request(c[i], "GET", "/files?path=f", i % 2 ? "Accept-Encoding: gzip\r\n" : NULL, NULL, 0);
	}
	uint64_t got = 0;
	int64_t slowest = 0, next = 0;
	while (got < n) {
		ck_assert_int_gt(client_fill(c[0], 10000), 0);
		got += buf_len(&c[0]->in);
		buf_reset(&c[0]->in);
		if (h_now_ms() < next)
			continue;
		int64_t asked = h_now_ms();
		get(d, "/health", NULL, &r);
		ck_assert_int_eq(r.status, 204);
		int64_t took = h_now_ms() - asked;
		slowest = took > slowest ? took : slowest;
		next = h_now_ms() + 50;
	}
	// Where each transfer is cut in half, and each call made twice, it takes more of them.
	ck_assert_int_lt(slowest, h_scaled(getenv("FAULTS_ALL") ? 6000 : 1500));
	long kept = d_rss_kib(d) - before;
	ck_assert_msg(d_sanitized(d) || kept < 6 * 1024, "%ld KiB are kept", kept);
	for (int i = 0; i < READERS; i++)
		client_close(c[i]);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *envd_files_suite(void)
{
	Suite *s = suite_create("envd_files");
	TCase *tc = h_tcase(s, "download", 60);
	tcase_add_test(tc, recorded_downloads);
	tcase_add_test(tc, recorded_ranges);
	tcase_add_test(tc, recorded_order_of_errors);
	tcase_add_test(tc, names_are_decoded_wrongly);
	tcase_add_test(tc, bytes_change_on_the_way);
	tcase_add_test(tc, many_ranges_of_a_large_file);
	tcase_add_test(tc, kernel_files_come_empty);
	tcase_add_test(tc, large_files_are_compressed_for_nothing);
	tcase_add_test(tc, failed_read_is_called_gzip);
	tcase_add_test(tc, shrinking_file_seems_whole);
	tcase_add_test(tc, large_download_takes_memory);
	return s;
}
