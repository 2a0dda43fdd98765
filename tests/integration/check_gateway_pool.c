// SPDX-License-Identifier: Apache-2.0
// The warm pool with real daemons: crashes, resets, capacity. The same names over made-up ones are in tests/unit/check_gateway_pool.c.
#include "tests/integration/gatewaykit.h"
#include "tests/integration/suites.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool claim_exists(const struct gw *g, int64_t number)
{
	char path[400];
	struct stat st;
	(void)snprintf(path, sizeof path, "%s/slots/%lld", g->dir, (long long)number);
	return stat(path, &st) == 0;
}

struct claim {
	const struct gw *g;
	int64_t number;
};

static bool claim_gone(void *arg)
{
	const struct claim *c = arg;
	return !claim_exists(c->g, c->number);
}

static void await_claim_gone(const struct gw *g, int64_t number)
{
	struct claim c = {g, number};
	ck_assert_msg(wait_until(claim_gone, &c, 10000), "the directory of %lld is still there", (long long)number);
}

START_TEST(next_session_finds_the_former_one)
{
	struct gw *g = gw_start("--pool", "1", "--max-sandboxes", "1");
	struct sbx a, b;
	gw_create(g, &a, "{\"templateID\":\"base\",\"envVars\":{\"SECRET\":\"of-a\"}}");
	pid_t pid = gw_pid(g, &a, NULL);
	free(gw_sh(g, &a,
		"echo a > f; mkdir -p d/e .h; echo a > /tmp/t; echo a > /dev/shm/s; chmod 0 d; "
		"nohup setsid sleep 7654 >/dev/null 2>&1 & echo $SECRET"));
	gw_kill(g, &a);
	gw_create(g, &b, GW_BASE); // there is room for one: it is that one, emptied
	ck_assert_int_eq(gw_pid(g, &b, NULL), pid);
	ck_assert_str_ne(a.id, b.id);
	ck_assert_str_ne(a.token, b.token);
	char *text = gw_sh(g, &b,
		"ls -A . /tmp /dev/shm | grep -v '^[./].*:$' | grep .; env | grep SECRET; "
		"for p in /proc/[0-9]*; do tr '\\0' ' ' <$p/cmdline; done | grep 765[4]; true");
	ck_assert_str_eq(text, "");
	free(text);
	// The former one's token opens nothing, and its id is nobody's.
	struct sbx thief = b;
	(void)snprintf(thief.headers, sizeof thief.headers,
		"E2b-Sandbox-Id: %s\r\nE2b-Sandbox-Port: 49983\r\nX-Access-Token: %s\r\n", b.id, a.token);
	struct resp r = {0};
	struct client *c = client_connect(g->d);
	client_request(c, "GET", "/files?path=f", thief.headers, NULL, 0);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 401);
	client_close(c);
	gw_gone(g, &a);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(create_waits_for_a_cold_start)
{
	struct gw *g = gw_start("--pool", "2");
	struct sbx s;
	gw_await(g, "warm", 2);
	json_t *list = gw_slots(g);
	int64_t number = 0, warm = j_int(json_array_get(list, 0), "number");
	gw_create(g, &s, GW_BASE);
	gw_pid(g, &s, &number);
	ck_assert_int_eq(number, warm);
	gw_await(g, "warm", 2); // and the stock is filled up
	json_decref(list);
	gw_finish(g);
}
END_TEST

// A reset that does not get on: the daemon is stopped.
static pid_t stop_box(const struct gw *g, const struct sbx *s, int64_t *number, int sig)
{
	struct pinfo p[64];
	pid_t pid = gw_pid(g, s, number);
	size_t n = procs_below(pid, p, 64);
	for (size_t i = 0; i < n && i < 64; i++)
		(void)kill(p[i].pid, sig);
	(void)kill(pid, sig);
	return pid;
}

START_TEST(failed_one_in_resetting_is_left)
{
	struct gw *g = gw_start("--pool", "0", "--sweep", "3600");
	struct sbx s;
	int64_t number;
	gw_create(g, &s, GW_BASE);
	pid_t pid = stop_box(g, &s, &number, SIGSTOP);
	gw_kill(g, &s);
	gw_await(g, "resetting", 1);
	ck_assert_int_eq(gw_reclaim(g), 0); // it may yet be well
	gw_await(g, "resetting", 1);
	ck_assert(claim_exists(g, number));
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	await_claim_gone(g, number);
	gw_await(g, "resetting", 0);
	ck_assert_uint_eq(gw_in(g, "warm") + gw_in(g, "failed"), 0);
	gw_finish(g);
}
END_TEST

START_TEST(healthy_resetting_one_is_not_promoted)
{
	struct gw *g = gw_start("--pool", "0", "--sweep", "3600");
	struct sbx s;
	int64_t number;
	struct pinfo p[64];
	gw_create(g, &s, GW_BASE);
	pid_t pid = stop_box(g, &s, &number, SIGSTOP);
	gw_kill(g, &s);
	gw_await(g, "resetting", 1);
	size_t n = procs_below(pid, p, 64);
	(void)kill(pid, SIGCONT);
	for (size_t i = 0; i < n && i < 64; i++)
		(void)kill(p[i].pid, SIGCONT);
	gw_await(g, "warm", 1);
	ck_assert_int_eq(gw_reclaim(g), 0);
	gw_await(g, "warm", 1);
	gw_finish(g);
}
END_TEST

// A daemon that never gets ready.
static char *never_ready(void)
{
	char path[] = "/tmp/celld-never-XXXXXX";
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	static const char script[] = "#!/bin/sh\nexec sleep 1000\n";
	ck_assert_int_eq(write(fd, script, sizeof script - 1), (ssize_t)sizeof script - 1);
	ck_assert_int_eq(fchmod(fd, 0755), 0);
	(void)close(fd);
	char *copy = strdup(path);
	ck_assert_ptr_nonnull(copy);
	return copy;
}

START_TEST(one_stuck_pending_is_left_or_a_recent_one_reclaimed)
{
	char *script = never_ready();
	struct gw *g = gw_start("--pool", "0", "--celld", script, "--grace", "1.5", "--sweep", "3600");
	struct client *c = client_connect(g->d);
	struct resp r = {0};
	client_request(c, "POST", "/v2/sandboxes", GW_KEY, GW_BASE, strlen(GW_BASE));
	gw_await(g, "pending", 1);
	json_t *list = gw_slots(g);
	int64_t number = j_int(json_array_get(list, 0), "number");
	int64_t begun = h_now_ms();
	ck_assert_int_eq(gw_reclaim(g), 0); // recent
	ck_assert_uint_eq(gw_in(g, "pending"), 1);
	int64_t back;
	while ((back = gw_reclaim(g)) == 0 && h_now_ms() - begun < h_scaled(10000))
		h_tick();
	ck_assert_int_eq(back, 1);
	ck_assert_int_gt(h_now_ms() - begun, 1000);
	client_response(c, &r); // who waited for it is told
	gw_error(&r, 503, NULL);
	await_claim_gone(g, number);
	client_close(c);
	json_decref(list);
	resp_release(&r);
	gw_finish(g);
	(void)unlink(script);
	free(script);
}
END_TEST

START_TEST(client_that_hung_up_keeps_its_slot)
{
	char *script = never_ready();
	struct gw *g =
		gw_start("--pool", "0", "--celld", script, "--max-sandboxes", "1", "--grace", "1", "--sweep", "0.5");
	struct client *c = client_connect(g->d);
	client_request(c, "POST", "/v2/sandboxes", GW_KEY, GW_BASE, strlen(GW_BASE));
	gw_await(g, "pending", 1);
	client_close(c);
	gw_await(g, "pending", 0); // the sweep, by itself
	struct resp r = {0};
	gw_want(g, "GET", "/v2/sandboxes", NULL, 200, &r);
	ck_assert_uint_eq(json_array_size(gw_array(&r)), 0);
	resp_release(&r);
	gw_finish(g);
	(void)unlink(script);
	free(script);
}
END_TEST

static void want_full(const struct gw *g, const char *body, const char *part)
{
	struct resp r = {0};
	gw_want(g, "POST", "/v2/sandboxes", body, 429, &r);
	gw_error(&r, 429, NULL);
	ck_assert_msg(
		strstr(j_str(resp_json(&r), "message"), part) != NULL, "\"%s\" lacks \"%s\"", buf_cstr(&r.body), part);
	resp_release(&r);
}

START_TEST(full_node_accepts)
{
	struct sbx s, t;
	struct gw *g = gw_start("--pool", "0", "--memory", "1024", "--cpus", "8", "--template", "big,memory=2000");
	want_full(g, "{\"templateID\":\"big\"}", "memory: 0 of 1024 MiB are in use");
	gw_create(g, &s, GW_BASE);
	gw_create(g, &t, GW_BASE);
	want_full(g, GW_BASE, "memory: 1024 of 1024 MiB are in use");
	gw_kill(g, &s);
	gw_create(g, &s, GW_BASE); // at once
	want_full(g, GW_BASE, "memory");
	gw_crash(g, &t); // a dead one counts no more
	gw_create(g, &t, GW_BASE);
	gw_finish(g);

	g = gw_start("--pool", "0", "--cpus", "2", "--template", "half,cpus=0.5", "--template", "unknown,cpus=0");
	gw_create(g, &s, GW_BASE);
	gw_create(g, &t, "{\"templateID\":\"half\"}");
	want_full(g, GW_BASE, "cpus: 1.5 of 2 are in use");
	gw_create(g, &t, "{\"templateID\":\"half\"}"); // CPU to spare
	want_full(g, "{\"templateID\":\"half\"}", "cpus: 2 of 2 are in use");
	gw_create(g, &t, "{\"templateID\":\"unknown\"}");
	gw_finish(g);

	g = gw_start("--pool", "1", "--max-sandboxes", "1");
	gw_create(g, &s, GW_BASE);
	want_full(g, GW_BASE, "sandboxes: 1 of 1 are in use");
	gw_finish(g);
}
END_TEST

START_TEST(session_whose_sandbox_ended_leaves_its_claim)
{
	struct gw *g = gw_start("--pool", "0", "--sweep", "3600");
	struct resp r = {0};
	for (int i = 0; i < 3; i++) {
		struct sbx s;
		int64_t number;
		gw_create(g, &s, GW_BASE);
		gw_put(g, &s, "f", "x", 1);
		pid_t pid = gw_pid(g, &s, &number);
		ck_assert_int_eq(kill(pid, SIGKILL), 0);
		char target[128];
		(void)snprintf(target, sizeof target, "/sandboxes/%s", s.id);
		gw_api(g, "DELETE", target, NULL, &r); // may come before its end is known
		ck_assert_msg(r.status == 204 || r.status == 404, "%d", r.status);
		await_claim_gone(g, number);
		gw_gone(g, &s);
	}
	gw_await(g, "terminated", 0);
	json_t *list = gw_slots(g);
	ck_assert_uint_eq(json_array_size(list), 0);
	json_decref(list);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(crashed_session_is_listed)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s, t;
	struct resp r = {0};
	int64_t number, next;
	gw_create(g, &s, GW_BASE);
	gw_pid(g, &s, &number);
	gw_crash(g, &s);
	gw_gone(g, &s);
	gw_on(g, "GET", "/sandboxes/%s", s.id, NULL, 404, &r);
	gw_on(g, "POST", "/sandboxes/%s/connect", s.id, "{\"timeout\":300}", 404, &r);
	gw_create(g, &t, GW_BASE);
	gw_pid(g, &t, &next);
	ck_assert_int_ne(number, next);
	await_claim_gone(g, number);
	// A warm one that has died is not given out.
	gw_await(g, "warm", 1);
	json_t *list = gw_slots(g), *o;
	size_t i;
	json_array_foreach(list, i, o)
	{
		if (strcmp(j_str(o, "state"), "warm") == 0)
			ck_assert_int_eq(kill((pid_t)j_int(o, "pid"), SIGKILL), 0);
	}
	gw_create(g, &t, GW_BASE);
	ck_assert_int_eq(gw_health(g, &t), 204);
	json_decref(list);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

START_TEST(nine_crashes_on_a_node_for_thirteen_cost_slots)
{
	struct gw *g =
		gw_start("--pool", "0", "--max-sandboxes", "13", "--memory", "6656", "--cpus", "13", "--sweep", "3600");
	struct sbx s[13];
	for (int i = 0; i < 13; i++)
		gw_create(g, &s[i], GW_BASE);
	want_full(g, GW_BASE, "memory: 6656 of 6656");
	for (int i = 0; i < 9; i++) {
		pid_t pid = gw_pid(g, &s[i], NULL);
		ck_assert_int_eq(kill(pid, SIGKILL), 0);
	}
	(void)gw_reclaim(g);
	for (int i = 0; i < 9; i++)
		gw_gone(g, &s[i]);
	for (int i = 0; i < 9; i++)
		gw_create(g, &s[i], GW_BASE);
	want_full(g, GW_BASE, "memory: 6656 of 6656");
	for (int i = 0; i < 13; i++)
		ck_assert_int_eq(gw_health(g, &s[i]), 204);
	gw_finish(g);
}
END_TEST

START_TEST(operators_see_or_do_nothing)
{
	struct gw *g = gw_start("--pool", "1");
	struct sbx s;
	struct resp r = {0};
	int64_t number;
	gw_create(g, &s, GW_BASE);
	pid_t pid = gw_pid(g, &s, &number);
	ck_assert(pid_alive(pid));
	char target[64];
	(void)snprintf(target, sizeof target, "/gateway/sandboxes/%lld/kill", (long long)number);
	gw_want(g, "POST", target, NULL, 204, &r);
	await_claim_gone(g, number);
	ck_assert(!pid_alive(pid));
	gw_gone(g, &s);
	gw_want(g, "POST", target, NULL, 404, &r);
	gw_error(&r, 404, NULL);
	gw_want(g, "GET", "/gateway/status", NULL, 200, &r);
	ck_assert_int_eq(j_int(resp_json(&r), "running"), 0);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

Suite *gateway_pool_suite(void)
{
	Suite *s = suite_create("gateway_pool");
	TCase *tc = h_tcase(s, "pool", 60);
	tcase_add_test(tc, next_session_finds_the_former_one);
	tcase_add_test(tc, create_waits_for_a_cold_start);
	tcase_add_test(tc, failed_one_in_resetting_is_left);
	tcase_add_test(tc, healthy_resetting_one_is_not_promoted);
	tcase_add_test(tc, one_stuck_pending_is_left_or_a_recent_one_reclaimed);
	tcase_add_test(tc, client_that_hung_up_keeps_its_slot);
	tcase_add_test(tc, full_node_accepts);
	tcase_add_test(tc, session_whose_sandbox_ended_leaves_its_claim);
	tcase_add_test(tc, crashed_session_is_listed);
	tcase_add_test(tc, nine_crashes_on_a_node_for_thirteen_cost_slots);
	tcase_add_test(tc, operators_see_or_do_nothing);
	return s;
}
