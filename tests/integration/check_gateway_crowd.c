// SPDX-License-Identifier: Apache-2.0
// Many sandboxes at once, and many one after the other: each answers for itself, and nothing of them is left.
#include "tests/integration/gatewaykit.h"
#include "tests/integration/suites.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CROWD 50
#define ROUNDS 200

static size_t count_dir(const struct gw *g, const char *name)
{
	char path[400];
	(void)snprintf(path, sizeof path, "%s/%s", g->dir, name);
	DIR *d = opendir(path);
	const struct dirent *e;
	size_t n = 0;
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	(void)closedir(d);
	return n;
}

START_TEST(fifty_at_once_get_in_each_others_way)
{
	struct gw *g = gw_start("--pool", "2", "--max-sandboxes", "50");
	struct client *c[CROWD];
	struct sbx s[CROWD];
	struct stream *run[CROWD];
	struct resp r = {0};
	char body[128];
	for (int i = 0; i < CROWD; i++) {
		(void)snprintf(body, sizeof body, "{\"templateID\":\"base\",\"envVars\":{\"ME\":\"number %d\"}}", i);
		c[i] = client_connect(g->d);
		c[i]->deadline = 50000;
		client_request(c[i], "POST", "/v2/sandboxes", GW_KEY, body, strlen(body));
	}
	for (int i = 0; i < CROWD; i++) {
		client_response(c[i], &r);
		ck_assert_msg(r.status == 201, "%d: %d %s", i, r.status, buf_cstr(&r.body));
		gw_take_sandbox(&r, &s[i]);
		client_close(c[i]);
		for (int k = 0; k < i; k++) {
			ck_assert_str_ne(s[i].id, s[k].id);
			ck_assert_str_ne(s[i].token, s[k].token);
		}
	}
	gw_want(g, "POST", "/v2/sandboxes", GW_BASE, 429, &r);
	char *request = sh_request("echo $ME >me; cat me; read x; cat me; exit 7", ",\"stdin\":true");
	for (int i = 0; i < CROWD; i++)
		run[i] = stream_open(
			g->d, "process.Process/Start", i % 2 ? CODEC_PROTO : CODEC_JSON, s[i].headers, request);
	for (int i = 0; i < CROWD; i++) {
		char want[32];
		(void)snprintf(want, sizeof want, "number %d\n", i);
		int64_t pid = stream_pid(run[i]);
		stream_until(run[i], FRAME_STDOUT, want, NULL, 20000);
		(void)snprintf(body, sizeof body, "{\"process\":{\"pid\":%lld},\"input\":{\"stdin\":\"Cg==\"}}",
			(long long)pid);
		json_decref(call(g->d, "process.Process/SendInput", CODEC_JSON, s[i].headers, body));
		struct played o = {0};
		stream_play(run[i], &o, 20000);
		played_assert_exit(&o, 7);
		assert_text(&o.ch[FRAME_STDOUT], want);
		played_release(&o);
		stream_close(run[i]);
	}
	for (int i = 0; i < CROWD; i++)
		gw_kill(g, &s[i]);
	for (int i = 0; i < CROWD; i++)
		gw_gone(g, &s[i]);
	free(request);
	resp_release(&r);
	gw_finish(g);
}
END_TEST

struct calm {
	const struct gw *g;
	size_t processes;
	int descriptors;
};

static bool is_calm(void *arg)
{
	const struct calm *c = arg;
	struct pinfo p;
	json_t *list = gw_slots(c->g);
	size_t n = json_array_size(list), i, warm = 0;
	json_t *o;
	json_array_foreach(list, i, o) warm += strcmp(j_str(o, "state"), "warm") == 0;
	json_decref(list);
	return n == 1 && warm == 1 && count_dir(c->g, "slots") == 1 &&
	       procs_below(c->g->d->init, &p, 0) == c->processes && d_fd_count(c->g->d) == c->descriptors;
}

START_TEST(rounds_leave_something_behind)
{
	char grace[16]; // also how long one that nobody needs stays warm
	(void)snprintf(grace, sizeof grace, "%.1f", 3 * h_scale());
	struct gw *g = gw_start("--pool", "1", "--sweep", "0.5", "--grace", grace);
	struct pinfo p;
	int rounds = (int)(ROUNDS / h_scale());
	gw_await(g, "warm", 1);
	struct calm c = {.g = g, .processes = procs_below(g->d->init, &p, 0), .descriptors = d_fd_count(g->d)};
	for (int i = 0; i < rounds; i++) {
		struct sbx s;
		struct resp r = {0};
		struct stream *run = NULL;
		gw_create(g, &s, "{\"templateID\":\"base\",\"metadata\":{\"a\":\"b\"},\"envVars\":{\"A\":\"b\"}}");
		char *text = gw_sh(g, &s,
			"ls -A . /tmp | grep -v ^/tmp: | grep -v '^.:' | grep .; echo $A; mkdir -p d/e; echo >d/e/f; "
			"echo >/tmp/x");
		ck_assert_str_eq(text, "b\n");
		free(text);
		if (i % 4 == 1) { // with a stream open
			char *request = sh_request("echo; sleep 1000", "");
			run = stream_open(g->d, "process.Process/Start", CODEC_JSON, s.headers, request);
			stream_pid(run);
			free(request);
		}
		if (i % 10 == 3)
			gw_on(g, "POST", "/sandboxes/%s/pause", s.id, i % 20 == 3 ? "{\"memory\":false}" : "{}", 204,
				&r);
		if (i % 5 == 4)
			gw_crash(g, &s);
		else
			gw_kill(g, &s);
		gw_gone(g, &s);
		stream_close(run);
		resp_release(&r);
	}
	if (!wait_until(is_calm, &c, 15000))
		ck_abort_msg("%zu directories, %zu processes (%zu before), %d descriptors (%d before): %s",
			count_dir(g, "slots"), procs_below(g->d->init, &p, 0), c.processes, d_fd_count(g->d),
			c.descriptors, j_text(gw_slots(g)));
	ck_assert_uint_eq(count_dir(g, "paused"), 0);
	ck_assert_uint_eq(count_dir(g, "snapshots"), 0);
	gw_finish(g);
}
END_TEST

Suite *gateway_crowd_suite(void)
{
	Suite *s = suite_create("gateway_crowd");
	TCase *tc = h_tcase(s, "crowd", 120);
	tcase_add_test(tc, fifty_at_once_get_in_each_others_way);
	tcase_add_test(tc, rounds_leave_something_behind);
	return s;
}
