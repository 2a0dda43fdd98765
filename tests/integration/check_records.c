// SPDX-License-Identifier: Apache-2.0
// What is logged of requests and commands (--access-log), by their ids; and the state dump on SIGUSR1.
#include "tests/integration/deathkit.h"
#include "tests/integration/envdkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The log's first line of EVENT whose member KEY is TEXT, as JSON (the caller's); waits for it. All its lines must be JSON but the ready line.
static json_t *find_line(const struct testd *d, const char *event, const char *key, const char *text)
{
	static char all[1 << 20];
	json_t *found = NULL;
	FILE *f = fopen(d->log, "r");
	ck_assert_ptr_nonnull(f);
	all[fread(all, 1, sizeof all - 1, f)] = '\0';
	ck_assert_int_eq(fclose(f), 0);
	char *save = NULL;
	if (!strrchr(all, '\n'))
		return NULL;
	strrchr(all, '\n')[0] = '\0'; // the last line may not be whole yet
	for (char *line = strtok_r(all, "\n", &save); line && !found; line = strtok_r(NULL, "\n", &save)) {
		if (strncmp(line, "celld ", 6) == 0)
			continue;
		json_t *j = json_loads(line, JSON_REJECT_DUPLICATES, NULL);
		ck_assert_msg(j, "no JSON: %s", line);
		const char *is = json_string_value(json_object_get(j, key));
		if (strcmp(j_str(j, "event"), event) == 0 && (!key[0] || (is && strcmp(is, text) == 0)))
			found = j;
		else
			json_decref(j);
	}
	return found;
}

static json_t *line_with(const struct testd *d, const char *event, const char *key, const char *text)
{
	for (int64_t end = h_now_ms() + h_scaled(5000); h_now_ms() < end; h_tick()) {
		json_t *j = find_line(d, event, key, text);
		if (j)
			return j;
	}
	ck_abort_msg("no line %s with %s=%s", event, key, text);
}

static void ask(const struct testd *d, const char *target, const char *headers, const char *body, struct resp *r)
{
	struct client *c = client_connect(d);
	resp_release(r);
	client_request(c, body ? "POST" : "GET", target, headers, body, body ? strlen(body) : 0);
	client_response(c, r);
	client_close(c);
}

static const char *const on[][3] = {{"--access-log", "--log-level", "error"}, {"--log-level", "debug", NULL}};

START_TEST(command_has_no_id)
{
	struct testd *d = d_start("--log-format", "json", on[_i][0], on[_i][1], on[_i][2]);
	struct resp r = {0};
	ask(d, "/exec", "X-Request-Id: r-1\r\n", "{\"command\":\"echo \\\"a b\\\"; exit 3\",\"session_id\":\"s1\"}",
		&r);
	ck_assert_str_eq(resp_header(&r, "x-request-id"), "r-1");
	json_t *start = line_with(d, "command_start", "id", "r-1"), *end = line_with(d, "command_end", "id", "r-1");
	json_t *request = line_with(d, "request", "id", "r-1");
	ck_assert_str_eq(j_str(start, "kind"), "exec");
	ck_assert_str_eq(j_str(start, "session"), "s1");
	ck_assert_str_eq(j_str(start, "command"), "echo \"a b\"; exit 3");
	ck_assert_int_eq(j_int(start, "pid"), j_int(end, "pid"));
	ck_assert_str_eq(j_str(end, "end"), "failure");
	ck_assert_int_eq(j_int(end, "code"), 3);
	ck_assert_int_eq(j_int(end, "stdout"), 4);
	ck_assert_int_gt(j_int(end, "us"), 0);
	ck_assert_str_eq(j_str(request, "surface"), "sandboxd");
	ck_assert_str_eq(j_str(request, "method"), "POST");
	ck_assert_str_eq(j_str(request, "path"), "/exec");
	ck_assert_int_eq(j_int(request, "status"), 200);
	ck_assert_int_ge(j_int(request, "us"), j_int(end, "us"));
	json_decref(start);
	json_decref(end);
	json_decref(request);

	ask(d, "/exec", NULL, "{\"command\":\"true\",\"workdir\":\"/not/there\"}", &r);
	const char *id = resp_header(&r, "x-request-id");
	ck_assert(id && strlen(id) == 16);
	json_t *failed = line_with(d, "command_failed", "id", id);
	ck_assert_str_eq(j_str(failed, "step"), "cwd");
	ck_assert_str_eq(j_str(failed, "error"), "ENOENT");
	json_decref(failed);
	request = line_with(d, "request", "id", id);
	ck_assert_int_eq(j_int(request, "status"), 400);
	json_decref(request);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(stream_of_envd_has_no_id)
{
	struct testd *d = d_start(ENVD_ON, "--access-log", "--log-format", "json");
	struct resp r = {0};
	struct buf body = {0};
	envd_envelope(&body, 0, "{\"process\":{\"cmd\":\"/bin/sh\",\"args\":[\"-c\",\"exit 4\"]}}");
	envd_req(d, "POST", "/process.Process/Start",
		"Content-Type: application/connect+json\r\nConnect-Protocol-Version: 1\r\nX-Request-Id: e-1\r\n",
		buf_data(&body), buf_len(&body), &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_str_eq(resp_header(&r, "x-request-id"), "e-1");
	json_t *end = line_with(d, "command_end", "id", "e-1"), *request = line_with(d, "request", "id", "e-1");
	ck_assert_str_eq(j_str(end, "kind"), "envd");
	ck_assert_int_eq(j_int(end, "code"), 4);
	ck_assert_str_eq(j_str(request, "surface"), "envd");
	ck_assert_str_eq(j_str(request, "path"), "/process.Process/Start");
	json_decref(end);
	json_decref(request);
	buf_release(&body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(nobody_asked_for_lines)
{
	struct testd *d = d_start();
	struct resp r = {0};
	ask(d, "/exec", "X-Request-Id: mine\r\n", "{\"command\":\"echo words\"}", &r);
	ck_assert_str_eq(resp_header(&r, "x-request-id"), "mine");
	ask(d, "/exec", NULL, "{\"command\":\"echo words\"}", &r);
	ck_assert_ptr_null(resp_header(&r, "x-request-id"));
	ck_assert(!d_log_has(d, "mine") && !d_log_has(d, "words") && !d_log_has(d, "request"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- SIGUSR1 ---

START_TEST(dump_says_nothing)
{
	struct testd *d = d_start("--init", "--log-format", "json", "--log-level", "error", "--max-procs", "77");
	struct resp r = {0};
	struct sse *s = sse_open(d, "/exec/stream", "{\"command\":\"exec sleep 1021\",\"session_id\":\"s1\"}");
	int64_t pid = sse_pid(s);
	req_pack(d, "POST", "/watch/create", &r, "{s:s}", "path", d->workspace);
	ck_assert_int_eq(r.status, 200);
	if (_i)
		ck_assert_int_eq(kill(d->daemon, SIGUSR1), 0);
	else
		d_signal(d, SIGUSR1);
	json_t *watch = line_with(d, "dump_watch", "path", d->workspace);
	json_t *state = line_with(d, "dump", "phase", "serving"), *limits = line_with(d, "dump_limits", "", "");
	json_t *command = line_with(d, "dump_command", "command", "exec sleep 1021");
	json_t *conn = line_with(d, "dump_connection", "state", "stream");
	ck_assert_str_eq(j_str(state, "version"), "0.1.0");
	ck_assert_int_eq(j_int(state, "commands"), 1);
	ck_assert_int_ge(j_int(state, "connections"), 1);
	ck_assert_int_gt(j_int(state, "memory"), 100000);
	ck_assert_int_gt(j_int(state, "descriptors"), 5);
	ck_assert_int_eq(j_int(limits, "commands"), 77);
	ck_assert_int_eq(j_int(command, "pid"), pid);
	ck_assert_str_eq(j_str(command, "session"), "s1");
	ck_assert_str_eq(j_str(command, "state"), "running");
	ck_assert_int_eq(j_int(command, "readers"), 2); // the stream and the session's transcript
	ck_assert_str_eq(j_str(conn, "surface"), "sandboxd");
	ck_assert_int_ge(j_int(watch, "directories"), 1);
	json_t *const lines[] = {state, limits, command, conn, watch};
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
		json_decref(lines[i]);
	sse_close(s);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// However much there is, so many lines of it and no more.
START_TEST(dump_has_no_end)
{
	enum { COUNT = 70, MAX = 64 };
	struct sse *s[COUNT];
	struct testd *d = d_start("--log-format", "json");
	for (int i = 0; i < COUNT; i++) {
		s[i] = sse_exec(d, "exec sleep 1023");
		(void)sse_pid(s[i]);
	}
	ck_assert_int_eq(kill(d->daemon, SIGUSR1), 0);
	json_t *commands = line_with(d, "dump_more", "of", "commands");
	json_t *conns = line_with(d, "dump_more", "of", "connections");
	ck_assert_int_eq(j_int(commands, "more"), COUNT - MAX);
	ck_assert_int_eq(j_int(conns, "more"), COUNT - MAX);
	json_decref(commands);
	json_decref(conns);
	for (int i = 0; i < COUNT; i++)
		sse_close(s[i]);
	d_finish(d);
}
END_TEST

Suite *records_suite(void)
{
	Suite *s = suite_create("records");
	TCase *tc = h_tcase(s, "requests and commands", 20);
	tcase_add_loop_test(tc, command_has_no_id, 0, 2);
	tcase_add_test(tc, stream_of_envd_has_no_id);
	tcase_add_test(tc, nobody_asked_for_lines);
	tc = h_tcase(s, "dump", 20);
	tcase_add_loop_test(tc, dump_says_nothing, 0, 2);
	tcase_add_test(tc, dump_has_no_end);
	return s;
}
