// SPDX-License-Identifier: Apache-2.0
// GET /metrics: a page as Prometheus wants it, and what has been done is on it.
#include "tests/integration/deathkit.h"
#include "tests/integration/envdkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FAMILIES_MAX 100

// The page, and what has been read of it.
struct page {
	struct resp r;
	const char *text;
	char families[FAMILIES_MAX][80];
	size_t count;
	char type[16]; // of the last family
	double last_bucket;
};

static void get_with(const struct testd *d, const char *headers, struct page *p)
{
	struct client *c = client_connect(d);
	resp_release(&p->r);
	client_request(c, "GET", "/metrics", headers, NULL, 0);
	client_response(c, &p->r);
	client_close(c);
	ck_assert_int_eq(p->r.status, 200);
	ck_assert_str_eq(resp_header(&p->r, "content-type"), "text/plain; version=0.0.4; charset=utf-8");
	p->text = buf_cstr(&p->r.body);
}

static void get(const struct testd *d, struct page *p)
{
	get_with(d, NULL, p);
}

static void release(struct page *p)
{
	resp_release(&p->r);
}

// The value of the line that begins with SERIES and a blank; -1 if there is none.
static double value(const struct page *p, const char *series)
{
	size_t n = strlen(series);
	for (const char *at = p->text; (at = strstr(at, series)); at += n) {
		if ((at == p->text || at[-1] == '\n') && at[n] == ' ')
			return strtod(at + n, NULL);
	}
	return -1;
}

static void want(const struct page *p, const char *series, double v)
{
	double is = value(p, series);
	ck_assert_msg(is == v, "%s is %g, not %g", series, is, v);
}

// --- its form ---

static bool is_suffix(const char *s)
{
	return strcmp(s, "_bucket") == 0 || strcmp(s, "_sum") == 0 || strcmp(s, "_count") == 0;
}

// "# HELP name text" and "# TYPE name type", in this order, once for each family.
static const char *heading(struct page *p, const char *line)
{
	char name[80], again[80], rest[200];
	int used = 0;
	ck_assert_msg(sscanf(line, "# HELP %79[a-z_] %199[^\n]\n# TYPE %79[a-z_] %15[a-z]\n%n", name, rest, again,
			      p->type, &used) == 4,
		"no heading: %.100s", line);
	ck_assert_str_eq(name, again);
	for (size_t i = 0; i < p->count; i++)
		ck_assert_str_ne(p->families[i], name);
	ck_assert_uint_lt(p->count, FAMILIES_MAX);
	(void)snprintf(p->families[p->count++], sizeof *p->families, "%s", name);
	p->last_bucket = 0;
	return line + used;
}

static void sample(struct page *p, const char *line, const char *end)
{
	char name[120], labels[160] = "", tail;
	double v;
	int used = 0;
	ck_assert_msg(sscanf(line, "%119[a-z_]%n", name, &used) == 1, "no name: %.100s", line);
	const char *at = line + used;
	if (*at == '{') {
		ck_assert_msg(sscanf(at, "{%159[^}]}%n", labels, &used) == 1, "no labels: %.100s", line);
		at += used;
	}
	ck_assert_msg(sscanf(at, " %lf%c", &v, &tail) == 2 && tail == '\n' && isfinite(v) && v >= 0, "no value: %.100s",
		line);
	const char *family = p->families[p->count - 1];
	size_t n = strlen(family);
	bool histogram = strcmp(p->type, "histogram") == 0;
	ck_assert_msg(strncmp(name, family, n) == 0 && (histogram ? is_suffix(name + n) : !name[n]),
		"%s is not of the family %s", name, family);
	if (histogram && strcmp(name + n, "_bucket") == 0) {
		ck_assert_msg(v >= p->last_bucket && strncmp(labels, "le=\"", 4) == 0, "%.100s", line);
		p->last_bucket = v;
	}
	if (histogram && strcmp(name + n, "_count") == 0)
		ck_assert_msg(v == p->last_bucket, "%s: %g in the buckets, %g in all", family, p->last_bucket, v);
	ck_assert_ptr_eq(strchr(at, '\n'), end);
}

static void check_form(struct page *p)
{
	p->count = 0;
	for (const char *line = p->text, *end; *line; line = end + 1) {
		if (*line == '#')
			line = heading(p, line);
		end = strchr(line, '\n');
		ck_assert_msg(end, "the last line has no end");
		sample(p, line, end);
	}
	ck_assert_uint_gt(p->count, 25);
}

START_TEST(page_is_malformed)
{
	struct testd *d = d_start();
	struct page p = {0};
	struct resp r = {0};
	get(d, &p);
	check_form(&p);
	(void)run(d, "echo out; echo err >&2; exit 3", &r);
	get(d, &p);
	check_form(&p);
	want(&p, "celld_build_info{version=\"0.1.0\"}", 1);
	resp_release(&r);
	release(&p);
	d_finish(d);
}
END_TEST

// What Prometheus' own readers say, where one of them is installed.
START_TEST(prometheus_does_not_read_it)
{
	static const struct {
		const char *there, *check;
	} readers[] = {
		{"command -v promtool", "promtool check metrics"},
		{"python3 -c 'import prometheus_client'", "python3 -c 'import sys; from prometheus_client.parser "
							  "import text_string_to_metric_families as f; "
							  "assert len(list(f(sys.stdin.read()))) > 25'"},
	};
	struct testd *d = d_start();
	struct page p = {0};
	char command[400], path[300];
	get(d, &p);
	(void)snprintf(path, sizeof path, "%s/page", d->base);
	FILE *f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_eq(fwrite(p.text, 1, strlen(p.text), f), strlen(p.text));
	ck_assert_int_eq(fclose(f), 0);
	(void)snprintf(command, sizeof command, "{ %s; } >/dev/null 2>&1", readers[_i].there);
	if (system(command) != 0) {
		printf("metrics: not read by Prometheus' own: no \"%s\"\n", readers[_i].there);
	} else {
		(void)snprintf(command, sizeof command, "%s <'%s'", readers[_i].check, path);
		ck_assert_msg(system(command) == 0, "%s", command);
	}
	(void)unlink(path);
	release(&p);
	d_finish(d);
}
END_TEST

START_TEST(token_is_not_asked_for)
{
	struct testd *d = d_start("--token", "secret");
	struct page p = {0};
	struct resp r = {0};
	req(d, "GET", "/metrics", NULL, &r);
	assert_error(&r, 401, "unauthenticated");
	get_with(d, "X-Access-Token: secret\r\n", &p);
	ck_assert_ptr_null(strstr(p.text, "secret"));
	want(&p, "celld_requests_total{surface=\"sandboxd\",code=\"4xx\"}", 1);
	req(d, "POST", "/metrics", "{}", &r);
	ck_assert_int_eq(r.status, 405);
	resp_release(&r);
	release(&p);
	d_finish(d);
}
END_TEST

// --- what is on it ---

static bool has(const struct testd *d, const char *series, double v)
{
	struct page p = {0};
	get(d, &p);
	bool is = value(&p, series) == v;
	release(&p);
	return is;
}

static void await(const struct testd *d, const char *series, double v)
{
	for (int64_t end = h_now_ms() + h_scaled(5000); !has(d, series, v); h_tick())
		ck_assert_msg(h_now_ms() < end, "%s did not become %g", series, v);
}

START_TEST(command_is_not_counted)
{
	struct testd *d = d_start();
	struct page p = {0};
	struct resp r = {0};
	struct sse_out o = {0};
	(void)run(d, "printf 12345; printf 123 >&2", &r);
	(void)run(d, "exit 3", &r);
	(void)run(d, "kill -KILL $$", &r);
	req_pack(d, "POST", "/exec", &r, "{s:s,s:f}", "command", "sleep 60", "timeout", 0.1);
	ck_assert(j_bool(resp_json(&r), "timed_out"));
	req_pack(d, "POST", "/exec", &r, "{s:s,s:s}", "command", "true", "workdir", "/not/there");
	sse_run(d, "exit 0", 0, &o);
	req_pack(d, "POST", "/exec/background", &r, "{s:s,s:s}", "command", "true", "run_id", "b");
	ck_assert_int_eq(r.status, 200);
	await(d, "celld_commands_ended_total{kind=\"background\",end=\"success\"}", 1);
	get(d, &p);
	want(&p, "celld_commands_started_total{kind=\"exec\"}", 4);
	want(&p, "celld_commands_started_total{kind=\"stream\"}", 1);
	want(&p, "celld_commands_started_total{kind=\"background\"}", 1);
	want(&p, "celld_command_start_failures_total{step=\"cwd\"}", 1);
	want(&p, "celld_commands_ended_total{kind=\"exec\",end=\"success\"}", 1);
	want(&p, "celld_commands_ended_total{kind=\"exec\",end=\"failure\"}", 1);
	want(&p, "celld_commands_ended_total{kind=\"exec\",end=\"signal\"}", 1);
	want(&p, "celld_commands_ended_total{kind=\"exec\",end=\"timeout\"}", 1);
	want(&p, "celld_commands_ended_total{kind=\"stream\",end=\"success\"}", 1);
	want(&p, "celld_commands_running{kind=\"exec\"}", 0);
	want(&p, "celld_commands_kept", 6);
	want(&p, "celld_command_bytes_total{channel=\"stdout\"}", 5);
	want(&p, "celld_command_bytes_total{channel=\"stderr\"}", 3);
	want(&p, "celld_spawn_seconds_count", 6);
	sse_out_release(&o);
	resp_release(&r);
	release(&p);
	d_finish(d);
}
END_TEST

START_TEST(what_runs_is_not_seen)
{
	struct testd *d = d_start(ENVD_ON, "--max-procs", "9");
	struct page p = {0};
	struct resp r = {0};
	struct sse *s = sse_exec(d, "cat");
	int64_t pid = sse_pid(s);
	death_feed(d, pid, "seven..", 7);
	sse_until(s, FRAME_STDOUT, "seven..", NULL, 5000);
	req(d, "POST", "/pty/create", "{\"argv\":[\"/bin/sh\",\"-c\",\"echo typed; exec sleep 1019\"]}", &r);
	ck_assert_int_eq(r.status, 200);
	req_pack(d, "POST", "/watch/create", &r, "{s:s}", "path", d->workspace);
	ck_assert_int_eq(r.status, 200);
	envd_req(d, "GET", "/health", NULL, NULL, 0, &r);
	ck_assert_int_eq(r.status, 204);
	await(d, "celld_command_bytes_total{channel=\"pty\"}", strlen("typed\r\n"));
	get(d, &p);
	want(&p, "celld_commands_running{kind=\"stream\"}", 1);
	want(&p, "celld_commands_running{kind=\"pty\"}", 1);
	want(&p, "celld_commands_limit", 9);
	want(&p, "celld_command_bytes_total{channel=\"stdin\"}", 7);
	want(&p, "celld_streams_open{surface=\"sandboxd\"}", 1);
	want(&p, "celld_connections{surface=\"sandboxd\",state=\"stream\"}", 1);
	want(&p, "celld_connections{surface=\"sandboxd\",state=\"handler\"}", 1); // this one
	want(&p, "celld_requests_total{surface=\"envd\",code=\"2xx\"}", 1);
	want(&p, "celld_connections_accepted_total{surface=\"envd\"}", 1);
	ck_assert(value(&p, "celld_received_bytes_total{surface=\"envd\"}") > 20);
	ck_assert(value(&p, "celld_sent_bytes_total{surface=\"envd\"}") > 20);
	want(&p, "celld_watchers", 1);
	ck_assert(value(&p, "celld_watched_directories") >= 1);
	ck_assert(value(&p, "celld_output_readers") >= 1);
	ck_assert(fabs(value(&p, "celld_descriptors") - d_fd_count(d)) <= 2);
	ck_assert(value(&p, "celld_memory_bytes") > 100000);
	ck_assert(value(&p, "celld_loop_stall_seconds_count") > 3);
	death_post(d, "/exec/signal", "{s:I,s:s}", "pid", (json_int_t)pid, "signal", "KILL");
	await(d, "celld_streams_open{surface=\"sandboxd\"}", 0);
	sse_close(s);
	resp_release(&r);
	release(&p);
	d_finish(d);
}
END_TEST

// The reader that holds another one up.
START_TEST(cut_reader_is_not_counted)
{
	struct testd *d = d_start();
	struct sse *slow = sse_open_with(d, "/exec/stream", NULL, "{\"command\":\"yes 0123456789\"}", 4096);
	int64_t pid = sse_pid(slow);
	struct sse *quick = sse_attach(d, pid);
	struct sse_event e = {0};
	struct page p = {0};
	get(d, &p);
	for (int64_t end = h_now_ms() + h_scaled(15000); value(&p, "celld_readers_cut_total") != 1;) {
		ck_assert(h_now_ms() < end);
		for (int i = 0; i < 200; i++)
			(void)sse_next(quick, &e, 100);
		get(d, &p);
	}
	sse_event_release(&e);
	sse_close(slow);
	sse_close(quick);
	release(&p);
	d_finish(d);
}
END_TEST

START_TEST(counters_begin_anew_after_a_crash)
{
	struct testd *d = death_start_with();
	struct page before = {0}, p = {0};
	struct resp r = {0};
	struct sse_out o = {0};
	(void)run(d, "printf 12345", &r);
	struct sse *s = sse_exec(d, "echo up; read x; exit 7");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	get(d, &before);
	death_crash(d, SIGKILL);
	sse_close(s);
	get(d, &p);
	want(&p, "celld_daemon_restarts_total", 1);
	want(&p, "celld_commands_started_total{kind=\"exec\"}", 1);
	want(&p, "celld_commands_running{kind=\"stream\"}", 1);
	want(&p, "celld_command_bytes_total{channel=\"stdout\"}", 8);
	want(&p, "celld_start_time_seconds", value(&before, "celld_start_time_seconds"));
	ck_assert(value(&p, "celld_daemon_start_time_seconds") > value(&before, "celld_daemon_start_time_seconds"));
	death_feed(d, pid, "x\n", 2);
	death_collect(d, pid, 7, &o);
	// It is what it was started as, and ends once.
	await(d, "celld_commands_ended_total{kind=\"stream\",end=\"failure\"}", 1);
	death_crash(d, SIGKILL);
	get(d, &p);
	want(&p, "celld_commands_ended_total{kind=\"stream\",end=\"failure\"}", 1);
	want(&p, "celld_commands_running{kind=\"stream\"}", 0);
	want(&p, "celld_daemon_restarts_total", 2);
	sse_out_release(&o);
	resp_release(&r);
	release(&before);
	release(&p);
	d_finish(d);
}
END_TEST

Suite *metrics_suite(void)
{
	Suite *s = suite_create("metrics");
	TCase *tc = h_tcase(s, "metrics", 30);
	tcase_add_test(tc, page_is_malformed);
	tcase_add_loop_test(tc, prometheus_does_not_read_it, 0, 2);
	tcase_add_test(tc, token_is_not_asked_for);
	tcase_add_test(tc, command_is_not_counted);
	tcase_add_test(tc, what_runs_is_not_seen);
	tcase_add_test(tc, cut_reader_is_not_counted);
	tcase_add_test(tc, counters_begin_anew_after_a_crash);
	return s;
}
