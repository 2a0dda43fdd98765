// SPDX-License-Identifier: Apache-2.0
// Memory after a peak: what large answers and bodies needed goes back to the kernel, within seconds and without a request.
#include "tests/integration/envdkit.h"
#include "tests/integration/suites.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LISTS 60
#define ENTRIES 3000
#define COMMANDS 20
#define PEAK_KIB (16L * 1024) // less would prove nothing
#define LEFT_KIB (2L * 1024)
#define BACK_MS 8000
#define MEMBERS 700000 // of a JSON object: some 50 bytes each

struct rss {
	const struct testd *d;
	long kib;
};

// The most that it ever had.
static long peak_kib(const struct testd *d)
{
	char path[64], line[256];
	long kib = 0;
	(void)snprintf(path, sizeof path, "/proc/%d/status", (int)d->daemon);
	FILE *f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof line, f))
		(void)sscanf(line, "VmHWM: %ld", &kib);
	(void)fclose(f);
	return kib;
}

// Counted anew: what statm says is up to 64 pages late for each kind before Linux 6.2.
static long rss_kib(pid_t pid)
{
	char path[64], line[256];
	long kib = -1;
	(void)snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
	FILE *f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	while (kib < 0 && fgets(line, sizeof line, f))
		(void)sscanf(line, "Rss: %ld", &kib);
	(void)fclose(f);
	ck_assert_int_ge(kib, 0);
	return kib;
}

static bool has_peaked(void *arg)
{
	const struct rss *r = arg;
	return peak_kib(r->d) >= r->kib;
}

static bool is_back(void *arg)
{
	const struct rss *r = arg;
	return d_rss_kib(r->d) <= r->kib;
}

static void assert_back(const struct testd *d, long base)
{
	struct rss low = {d, base + LEFT_KIB};
	ck_assert_msg(
		wait_until(is_back, &low, BACK_MS), "%ld KiB at first, %ld KiB after the peak", base, d_rss_kib(d));
}

// What any daemon needs after its first requests.
static long first_rss(const struct testd *d)
{
	struct resp r = {0};
	ck_assert_int_eq(j_int(run(d, "true", &r), "exit_code"), 0);
	req(d, "GET", "/files/list", NULL, &r);
	ck_assert_int_eq(r.status, 200);
	resp_release(&r);
	return d_rss_kib(d);
}

static void fill_directory(const struct testd *d)
{
	char path[512];
	for (int i = 0; i < ENTRIES; i++) {
		(void)snprintf(path, sizeof path, "%s/a-file-with-a-rather-long-name-%d", d->workspace, i);
		int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		ck_assert_int_ge(fd, 0);
		(void)close(fd);
	}
}

// Lists that nobody reads, and then their clients go.
START_TEST(unread_lists_keep_memory)
{
	struct testd *d = d_start(ENVD_ON);
	struct client *c[LISTS];
	char body[512];
	long base = first_rss(d);
	fill_directory(d);
	(void)snprintf(body, sizeof body, "{\"path\":\"%s\"}", d->workspace);
	for (int i = 0; i < LISTS; i++) {
		c[i] = client_connect_to(d->envd_host, d->envd_port, 4096);
		envd_send(c[i], "POST", "/filesystem.Filesystem/ListDir", "Content-Type: application/json\r\n", body,
			strlen(body));
	}
	struct rss high = {d, base + PEAK_KIB};
	ck_assert_msg(wait_until(has_peaked, &high, 10000), "only %ld KiB", peak_kib(d));
	for (int i = 0; i < LISTS; i++)
		client_close(c[i]);
	if (!d_sanitized(d))
		assert_back(d, base);
	d_finish(d);
}
END_TEST

// A document of many small members, that is then no request.
START_TEST(large_document_keeps_memory)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct buf body = {0};
	long base = first_rss(d);
	BUF_LIT(&body, "{\"command\":\"true\",\"env\":{\"k\":\"v\"");
	for (int i = 0; i < MEMBERS; i++)
		buf_printf(&body, ",\"k%d\":\"0123456789012345678901234567890123456789\"", i);
	BUF_LIT(&body, "}}");
	struct client *c = client_connect(d);
	c->deadline = 30000;
	client_request(c, "POST", "/exec", NULL, buf_data(&body), buf_len(&body));
	client_response(c, &r);
	ck_assert_int_ge(r.status, 400);
	ck_assert_int_ge(peak_kib(d), base + PEAK_KIB);
	if (!d_sanitized(d))
		assert_back(d, base);
	client_close(c);
	buf_release(&body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Commands whose output went through memory, read and forgotten.
START_TEST(large_output_keeps_memory)
{
	static const char body[] = "{\"command\":\"head -c 4000000 /dev/zero | tr '\\\\0' x\"}";
	struct testd *d = d_start("--retention", "0");
	struct client *c[COMMANDS];
	struct resp r = {0};
	long base = first_rss(d);
	for (int i = 0; i < COMMANDS; i++) {
		c[i] = client_connect_rcvbuf(d, 4096);
		client_request(c[i], "POST", "/exec", NULL, body, sizeof body - 1);
	}
	struct rss high = {d, base + PEAK_KIB};
	ck_assert_msg(wait_until(has_peaked, &high, 10000), "only %ld KiB", peak_kib(d));
	for (int i = 0; i < COMMANDS; i++) {
		client_response(c[i], &r);
		ck_assert_int_eq(j_int(resp_json(&r), "exit_code"), 0);
		client_close(c[i]);
	}
	if (!d_sanitized(d))
		assert_back(d, base);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Those that are kept for late readers, a short output with each: of both processes, some 1.1 KiB a command.
START_TEST(ended_commands_keep_memory)
{
	struct testd *d = d_start("--init");
	struct resp r = {0};
	int count = d_sanitized(d) ? 100 : 1000;
	long base = first_rss(d), init = rss_kib(d->init);
	for (int i = 0; i < count; i++)
		ck_assert_int_eq(j_int(run(d, "echo some output of it; echo more >&2; exit 3", &r), "exit_code"), 3);
	if (!d_sanitized(d)) {
		assert_back(d, base);
		ck_assert_int_le(rss_kib(d->init), init + LEFT_KIB / 4);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *memory_suite(void)
{
	Suite *s = suite_create("memory");
	TCase *tc = h_tcase(s, "after_a_peak", 60);
	tcase_add_test(tc, unread_lists_keep_memory);
	tcase_add_test(tc, large_document_keeps_memory);
	tcase_add_test(tc, large_output_keeps_memory);
	tcase_add_test(tc, ended_commands_keep_memory);
	return s;
}
