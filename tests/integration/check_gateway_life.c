// SPDX-License-Identifier: Apache-2.0
// Sandboxes over time, as E2B's control plane has them: timeouts, connect, pause and resume, by themselves too, snapshots, forks.
#include "tests/integration/gatewaykit.h"
#include "tests/integration/suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

// Seconds until its end, as its info says; its state goes to STATE (may be NULL).
static double left_of(const struct gw *g, const struct sbx *s, char state[16])
{
	struct resp r = {0};
	struct tm tm = {0};
	struct timespec now;
	gw_on(g, "GET", "/sandboxes/%s", s->id, NULL, 200, &r);
	const json_t *o = resp_json(&r);
	const char *end = strptime(j_str(o, "endAt"), "%Y-%m-%dT%H:%M:%S", &tm);
	ck_assert_ptr_nonnull(end);
	(void)clock_gettime(CLOCK_REALTIME, &now);
	double fraction = *end == '.' ? strtod(end, NULL) : 0;
	double left = difftime(timegm(&tm), now.tv_sec) + fraction - (double)now.tv_nsec / 1e9;
	if (state)
		(void)snprintf(state, 16, "%s", j_str(o, "state"));
	resp_release(&r);
	return left;
}

static void want_left(const struct gw *g, const struct sbx *s, double seconds)
{
	double left = left_of(g, s, NULL);
	ck_assert_msg(left > seconds - 20 && left < seconds + 1, "%.1f s left, want %.0f", left, seconds);
}

struct looked {
	const struct gw *g;
	const struct sbx *s;
	const char *state; // "" = 404
};

static bool is_in(void *arg)
{
	const struct looked *l = arg;
	struct resp r = {0};
	char target[128];
	(void)snprintf(target, sizeof target, "/sandboxes/%s", l->s->id);
	gw_api(l->g, "GET", target, NULL, &r);
	bool yes =
		l->state[0] ? r.status == 200 && strcmp(j_str(resp_json(&r), "state"), l->state) == 0 : r.status == 404;
	resp_release(&r);
	return yes;
}

static void await_state(const struct gw *g, const struct sbx *s, const char *state)
{
	struct looked l = {g, s, state};
	ck_assert_msg(wait_until(is_in, &l, 10000), "it does not get %s", state[0] ? state : "gone");
}

START_TEST(timeout_is_not_kept)
{
	struct gw *g = gw_start("--pool", "2", "--timeout", "77");
	struct sbx s, t;
	struct resp r = {0};
	gw_create(g, &s, "{\"templateID\":\"base\",\"timeout\":1}");
	int64_t begun = h_now_ms();
	await_state(g, &s, "");
	ck_assert_int_ge(h_now_ms() - begun, 900);
	gw_gone(g, &s);
	gw_on(g, "POST", "/sandboxes/%s/timeout", s.id, "{\"timeout\":60}", 404, &r);
	gw_create(g, &t, GW_BASE);
	want_left(g, &t, 77);
	gw_on(g, "POST", "/sandboxes/%s/timeout", t.id, "{\"timeout\":600}", 204, &r);
	want_left(g, &t, 600);
	gw_on(g, "POST", "/sandboxes/%s/timeout", t.id, "{\"timeout\":30}", 204, &r); // shortens too
	want_left(g, &t, 30);
	gw_on(g, "POST", "/sandboxes/%s/timeout", t.id, "{\"timeout\":\"30\"}", 400, &r);
	gw_on(g, "POST", "/sandboxes/%s/timeout", t.id, "{}", 400, &r);
	gw_on(g, "POST", "/sandboxes/%s/timeout", t.id, "{\"timeout\":0}", 204, &r); // now
	await_state(g, &t, "");
	gw_gone(g, &t);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(connect_to_a_running_one_shortens_its_life)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s, same;
	struct resp r = {0};
	gw_create(g, &s, "{\"templateID\":\"base\",\"timeout\":200}");
	for (int i = 0; i < 2; i++) {
		const char *route = i ? "/sandboxes/%s/connect" : "/v2/sandboxes/%s/connect";
		gw_on(g, "POST", route, s.id, "{\"timeout\":20}", 200, &r);
		want_left(g, &s, i ? 900 : 200);
		gw_on(g, "POST", route, s.id, "{\"timeout\":900}", 200, &r);
		want_left(g, &s, 900);
		gw_take_sandbox(&r, &same);
		ck_assert_str_eq(same.id, s.id);
		ck_assert_str_eq(same.token, s.token);
		ck_assert_str_eq(same.domain, s.domain);
	}
	gw_on(g, "POST", "/v2/sandboxes/%s/connect", s.id, "{}", 200, &r);
	gw_on(g, "POST", "/sandboxes/%s/refreshes", s.id, "{\"duration\":1200}", 204, &r);
	want_left(g, &s, 1200);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

static long lines_of(const struct gw *g, const struct sbx *s)
{
	struct buf b = {0};
	gw_get(g, s, "ticks", &b);
	long n = 0;
	for (const char *p = buf_cstr(&b); *p; p++)
		n += *p == '\n';
	buf_release(&b);
	return n;
}

static long long ticks_outside(const struct gw *g, int64_t number)
{
	char path[400];
	(void)snprintf(path, sizeof path, "%s/slots/%lld/work/ticks", g->dir, (long long)number);
	FILE *f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fseek(f, 0, SEEK_END), 0);
	long long n = ftell(f);
	(void)fclose(f);
	return n;
}

static void still(int64_t ms)
{
	for (int64_t end = h_now_ms() + ms; h_now_ms() < end;)
		h_tick();
}

// It stops, every process of it, and goes on as if nothing had been; only time has passed.
START_TEST(paused_sandbox_runs_on_or_resumed_one_does_not)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s, same;
	struct resp r = {0};
	char state[16];
	int64_t number;
	gw_create(g, &s, "{\"templateID\":\"base\",\"timeout\":200}");
	pid_t pid = gw_pid(g, &s, &number);
	free(gw_sh(g, &s,
		"nohup setsid sh -c 'while :; do echo x >>ticks; sleep 0.01; done' >/dev/null 2>&1 & until test -s "
		"ticks; do sleep 0.01; done"));
	gw_on(g, "POST", "/sandboxes/%s/pause", s.id, "{\"memory\":true}", 204, &r);
	long long before = ticks_outside(g, number);
	still(300);
	ck_assert_int_eq(ticks_outside(g, number), before);
	ck_assert(pid_alive(pid));
	left_of(g, &s, state);
	ck_assert_str_eq(state, "paused");
	gw_gone(g, &s);
	gw_on(g, "POST", "/sandboxes/%s/pause", s.id, "{}", 409, &r);
	char message[160];
	(void)snprintf(message, sizeof message, "Error pausing sandbox - sandbox '%s' is already paused", s.id);
	gw_error(&r, 409, message);
	gw_on(g, "POST", "/sandboxes/%s/timeout", s.id, "{\"timeout\":60}", 404, &r);
	gw_on(g, "POST", "/v2/sandboxes/%s/connect", s.id, "{\"timeout\":500}", 201, &r);
	gw_take_sandbox(&r, &same);
	ck_assert_str_eq(same.id, s.id);
	ck_assert_str_eq(same.token, s.token);
	want_left(g, &s, 500);
	ck_assert_int_eq(gw_pid(g, &s, NULL), pid);
	long at = lines_of(g, &s);
	still(200);
	ck_assert_int_gt(lines_of(g, &s), at);
	gw_on(g, "POST", "/sandboxes/%s/pause", s.id, NULL, 204, &r); // old clients send no body
	gw_on(g, "POST", "/sandboxes/%s/resume", s.id, "{\"timeout\":100}", 201, &r);
	ck_assert_int_eq(gw_health(g, &s), 204);
	gw_on(g, "POST", "/sandboxes/%s/pause", s.id, "{}", 204, &r);
	gw_kill(g, &s); // a paused one goes as well
	gw_gone(g, &s);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

// A deadline within the sandbox counts the time that it could run.
START_TEST(deadline_of_a_command_counts_the_pause)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct resp r = {0};
	char headers[640];
	gw_create(g, &s, GW_BASE);
	(void)snprintf(headers, sizeof headers, "%sConnect-Timeout-Ms: 2500\r\n", s.headers);
	char *request = sh_request("for i in 1 2 3 4 5; do sleep 0.1; done; echo done >f.new; mv f.new f", "");
	struct stream *run = stream_open(g->d, "process.Process/Start", CODEC_JSON, headers, request);
	stream_pid(run);
	gw_on(g, "POST", "/sandboxes/%s/pause", s.id, "{}", 204, &r);
	still(3600); // shorter ones it does not notice
	gw_on(g, "POST", "/v2/sandboxes/%s/connect", s.id, "{}", 201, &r);
	char *text = gw_sh(g, &s, "for i in $(seq 500); do test -e f && exec cat f; sleep 0.01; done");
	ck_assert_str_eq(text, "done\n");
	free(text);
	free(request);
	stream_close(run);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(pause_to_the_file_system_keeps_processes_or_loses_files)
{
	struct gw *g = gw_start("--pool", "1", "--max-sandboxes", "2");
	struct sbx s, other;
	struct resp r = {0};
	gw_create(g, &s, "{\"templateID\":\"base\",\"envVars\":{\"MINE\":\"kept\"}}");
	int64_t old, now;
	pid_t pid = gw_pid(g, &s, &old);
	free(gw_sh(g, &s, "mkdir d; echo text >d/f; chmod 600 d/f; nohup setsid sleep 1000 >/dev/null 2>&1 &"));
	gw_on(g, "POST", "/sandboxes/%s/pause", s.id, "{\"memory\":false}", 204, &r);
	gw_gone(g, &s);
	gw_on(g, "GET", "/sandboxes/%s", s.id, NULL, 200, &r);
	ck_assert_str_eq(j_str(resp_json(&r), "state"), "paused");
	ck_assert_str_eq(j_str(resp_json(&r), "pauseMode"), "filesystem");
	gw_create(g, &other, GW_BASE); // it has no slot
	gw_on(g, "POST", "/v2/sandboxes/%s/connect", s.id, "{}", 201, &r);
	ck_assert(!pid_alive(pid));
	gw_pid(g, &s, &now);
	ck_assert_int_ne(old, now); // never the dying one's address
	char *text = gw_sh(g, &s,
		"cat d/f; stat -c '%a %U' d/f; echo $MINE; for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; "
		"done | grep -c 'sleep 100[0]'; true");
	ck_assert_str_eq(text, g->isolated ? "text\n600 user\nkept\n0\n" : text);
	ck_assert_ptr_nonnull(strstr(text, "text\n600"));
	free(text);
	gw_on(g, "POST", "/sandboxes/%s/pause", s.id, "{\"memory\":true}", 204, &r);
	gw_on(g, "POST", "/v2/sandboxes/%s/connect", s.id, "{\"memory\":false}", 201, &r); // a reboot
	ck_assert_int_eq(gw_health(g, &s), 204);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(sandbox_at_its_timeout_is_killed_though_it_should_pause)
{
	struct gw *g = gw_start("--pool", "2");
	struct sbx s, t;
	struct resp r = {0};
	gw_create(g, &s, "{\"templateID\":\"base\",\"timeout\":1,\"autoPause\":true}");
	gw_create(
		g, &t, "{\"templateID\":\"base\",\"timeout\":1,\"autoPause\":true,\"autoResume\":{\"enabled\":true}}");
	free(gw_sh(g, &t, "echo kept >f"));
	await_state(g, &s, "paused");
	await_state(g, &t, "paused");
	gw_gone(g, &s); // until somebody connects
	gw_on(g, "POST", "/sandboxes/%s/connect", s.id, "{\"timeout\":60}", 201, &r);
	ck_assert_int_eq(gw_health(g, &s), 204);
	// Whoever has no token wakes nobody; the other one is woken by a request, which knows nothing of it.
	struct sbx thief = t;
	(void)snprintf(thief.headers, sizeof thief.headers, "E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\n", t.id);
	ck_assert_int_eq(gw_health(g, &thief), 403);
	await_state(g, &t, "paused");
	struct buf b = {0};
	gw_get(g, &t, "f", &b);
	assert_text(&b, "kept\n");
	await_state(g, &t, "running");
	want_left(g, &t, 300); // at least
	gw_on(g, "GET", "/sandboxes/%s", t.id, NULL, 200, &r);
	ck_assert_str_eq(j_str(j_get(resp_json(&r), "lifecycle"), "onTimeout"), "pause");
	ck_assert(j_bool(j_get(resp_json(&r), "lifecycle"), "autoResume"));
	buf_release(&b);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(snapshot_is_no_template)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s, t;
	struct resp r = {0};
	char id[96], body[160], target[256];
	gw_create(g, &s, GW_BASE);
	free(gw_sh(g, &s, "mkdir -p 'a b'; printf 'x\\0y' >'a b/bin'; ln -s bin 'a b/link'; chmod 755 'a b/bin'"));
	gw_on(g, "POST", "/sandboxes/%s/snapshots", s.id, "{\"name\":\"mine\"}", 201, &r);
	(void)snprintf(id, sizeof id, "%s", j_str(resp_json(&r), "snapshotID"));
	ck_assert(json_is_array(j_get(resp_json(&r), "names")));
	free(gw_sh(g, &s, "rm -r 'a b'")); // the copy is another's
	ck_assert_int_eq(gw_health(g, &s), 204);
	(void)snprintf(body, sizeof body, "{\"templateID\":\"%s\"}", id);
	for (int i = 0; i < 2; i++) {
		gw_create(g, &t, body);
		char *text =
			gw_sh(g, &t, "cat 'a b/link' | od -An -c | tr -d ' \\n'; test -x 'a b/bin' && echo; rm -r *");
		ck_assert_str_eq(text, "x\\0y\n");
		free(text);
		gw_kill(g, &t);
	}
	for (int i = 0; i < 3; i++) {
		(void)snprintf(target, sizeof target, "/snapshots%s%s",
			i == 1   ? "?sandboxID="
			: i == 2 ? "?name=mine"
				 : "",
			i == 1 ? s.id : "");
		gw_want(g, "GET", target, NULL, 200, &r);
		ck_assert_uint_eq(json_array_size(gw_array(&r)), 1);
		ck_assert_str_eq(j_str(json_array_get(gw_array(&r), 0), "snapshotID"), id);
		ck_assert(json_is_array(j_get(json_array_get(gw_array(&r), 0), "names")));
	}
	gw_want(g, "GET", "/snapshots?sandboxID=iother", NULL, 200, &r);
	ck_assert_uint_eq(json_array_size(gw_array(&r)), 0);
	gw_on(g, "DELETE", "/templates/%s", id, NULL, 204, &r);
	gw_on(g, "DELETE", "/templates/%s", id, NULL, 404, &r);
	gw_error(&r, 404, NULL);
	gw_want(g, "POST", "/v2/sandboxes", body, 404, &r);
	gw_error(&r, 404, NULL);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(fork_fails_as_a_whole)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct resp r = {0};
	gw_create(g, &s, GW_BASE);
	gw_on(g, "POST", "/sandboxes/%s/fork", s.id, "{\"timeout\":60,\"count\":3}", 201, &r);
	ck_assert_uint_eq(json_array_size(gw_array(&r)), 3);
	for (size_t i = 0; i < 3; i++) {
		const json_t *o = json_array_get(gw_array(&r), i);
		ck_assert_uint_eq(json_object_size(o), 1);
		if (j_has(o, "sandbox"))
			continue;
		ck_assert_int_ge(j_int(j_get(o, "error"), "code"), 400);
		ck_assert_str_ne(j_str(j_get(o, "error"), "message"), "");
	}
	gw_on(g, "POST", "/sandboxes/%s/fork", s.id, "{\"count\":0}", 400, &r);
	gw_on(g, "POST", "/sandboxes/%s/fork", s.id, "{\"count\":21}", 400, &r);
	ck_assert_int_eq(gw_health(g, &s), 204);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(template_directory_is_not_copied)
{
	char dir[] = "/tmp/celld-template-XXXXXX", path[64], option[128];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(path, sizeof path, "%s/file", dir);
	FILE *f = fopen(path, "we");
	ck_assert_ptr_nonnull(f);
	(void)fputs("of the template\n", f);
	(void)fclose(f);
	(void)snprintf(option, sizeof option, "own=%s,memory=100", dir);
	struct gw *g = gw_start("--pool", "1", "--template", option);
	struct sbx s;
	struct resp r = {0};
	for (int i = 0; i < 2; i++) {
		gw_create(g, &s, "{\"templateID\":\"own\"}");
		char *text = gw_sh(g, &s, "cat file; echo changed >file; stat -c %U .");
		ck_assert_str_eq(text, g->isolated ? "of the template\nuser\n" : text);
		free(text);
		gw_on(g, "GET", "/sandboxes/%s", s.id, NULL, 200, &r);
		ck_assert_str_eq(j_str(resp_json(&r), "alias"), "own");
		ck_assert_int_eq(j_int(resp_json(&r), "memoryMB"), 100);
		gw_kill(g, &s);
	}
	resp_release(&r);
	gw_finish(g);
	guard_remove_tree(dir);
}
END_TEST

Suite *gateway_life_suite(void)
{
	Suite *s = suite_create("gateway_life");
	TCase *tc = h_tcase(s, "life", 60);
	tcase_add_test(tc, timeout_is_not_kept);
	tcase_add_test(tc, connect_to_a_running_one_shortens_its_life);
	tcase_add_test(tc, paused_sandbox_runs_on_or_resumed_one_does_not);
	tcase_add_test(tc, deadline_of_a_command_counts_the_pause);
	tcase_add_test(tc, pause_to_the_file_system_keeps_processes_or_loses_files);
	tcase_add_test(tc, sandbox_at_its_timeout_is_killed_though_it_should_pause);
	tcase_add_test(tc, snapshot_is_no_template);
	tcase_add_test(tc, fork_fails_as_a_whole);
	tcase_add_test(tc, template_directory_is_not_copied);
	return s;
}
