// SPDX-License-Identifier: Apache-2.0
// What ends, what lives on, and what must not be left.
#include "tests/demo/demo.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BACK_US ((int64_t)5000000)
#define TREE_MAX 8

// How many of the PIDS are in /processes; -1 without an answer.
static int living(const struct demo *d, const int *pids, int n)
{
	struct client c;
	int found = -1;
	size_t i;
	json_t *p;
	if (client_open(&c, d->box.port) == 0 && client_get(&c, "/processes") == 200) {
		const json_t *list = json_object_get(c.doc, "processes");
		found = 0;
		json_array_foreach(list, i, p) for (int k = 0; k < n; k++) found +=
			json_integer_value(json_object_get(p, "pid")) == pids[k];
	}
	client_close(&c);
	return found;
}

// A tree with background jobs, one of them in a session of its own, is cut by its timeout.
static void timeout(struct demo *d)
{
	static const char tree[] = "sleep 600 & a=$!; setsid sleep 600 & echo $$ $a $!; "
				   "sh -c 'sleep 600 & echo $$ $! end; exec sleep 600' & wait";
	struct client c;
	struct run r = {0};
	int pids[TREE_MAX] = {0}, n = 0, before = -1;
	int64_t start = client_now_us();
	r.status = client_open(&c, d->box.port);
	if (r.status == 0)
		r.status = client_post_stream(&c, "/exec/stream", "{s:s,s:f}", "command", tree, "timeout", 0.5);
	if (r.status == 200 && run_until(&c, &r, FRAME_STDOUT, "end\n")) {
		char *rest = buf_take(&r.out[FRAME_STDOUT], NULL);
		for (char *at = rest, *next; at && n < TREE_MAX; at = next) {
			long pid = strtol(at, &next, 10);
			if (next == at)
				break;
			pids[n++] = (int)pid;
		}
		free(rest);
		before = living(d, pids, n);
		run_collect(&c, &r, false);
	}
	int after = n ? living(d, pids, n) : -1;
	bool in_time = client_now_us() - start < (int64_t)1500000 * client_scale();
	demo_line(d, "a timeout ends the whole tree", "5 running, timed out in time, then 0",
		"%d running, %s%s, then %d", before, r.end.timed_out ? "timed out" : "ended",
		in_time ? " in time" : " late", after);
	run_release(&r);
	client_close(&c);
}

// Asks until the new daemon answers: the microseconds that took, or -1.
static int64_t served_again(const struct demo *d, int64_t since)
{
	for (;;) {
		struct client c;
		int status = client_open(&c, d->box.port);
		if (status == 0)
			status = client_post(&c, "/exec", "{s:s}", "command", "echo back");
		const char *out = json_string_value(json_object_get(c.doc, "stdout"));
		bool back = status == 200 && out && strcmp(out, "back\n") == 0;
		client_close(&c);
		if (back)
			return client_now_us() - since;
		if (client_now_us() - since > BACK_US * client_scale())
			return -1;
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
}

// A command that is in the middle of its work when the daemon dies, read by who comes back.
static void outlive(struct demo *d, const struct run *before, int64_t us)
{
	static const char all[] = "step 1\nstep 2\nstep 3\nstep 4\nstep 5\n";
	char target[64];
	struct client c;
	struct run r = {0};
	snprintf(target, sizeof target, "/exec/attach?pid=%d", before->pid);
	r.status = us < 0 ? -ETIMEDOUT : client_open(&c, d->box.port);
	if (us >= 0 && r.status == 0)
		r.status = client_get_stream(&c, target);
	if (r.status == 200)
		run_collect(&c, &r, true);
	const char *out = run_text(&r, FRAME_STDOUT);
	demo_line(d, "a command outlives the daemon", "same pid, all 5 steps once, exit 7", "%s pid, %s, %s %d",
		r.pid && r.pid == before->pid ? "same" : "no", strcmp(out, all) == 0 ? "all 5 steps once" : out,
		r.ended && r.end.kind == EVENT_EXIT ? "exit" : "no exit", r.end.code);
	run_release(&r);
	if (us >= 0)
		client_close(&c);
}

static void crash(struct demo *d)
{
	static const char command[] = "for i in 1 2 3 4 5; do echo step $i; sleep .2; done; exit 7";
	struct client c;
	struct run r = {0};
	r.status = client_open(&c, d->box.port);
	if (r.status == 0)
		r.status = client_post_stream(&c, "/exec/stream", "{s:s}", "command", command);
	if (r.status == 200)
		run_until(&c, &r, FRAME_STDOUT, "step 2\n");
	pid_t old = sandbox_daemon(&d->box);
	int64_t at = client_now_us();
	if (old > 0)
		kill(old, SIGKILL);
	int64_t us = served_again(d, at);
	pid_t now = sandbox_daemon(&d->box);
	bool init_lives = kill(d->box.init, 0) == 0;
	demo_line(d, "the daemon is killed", "init lives, a new daemon serves", "init %s, %s",
		init_lives ? "lives" : "is gone",
		us < 0                  ? "nobody serves"
		: now > 0 && now != old ? "a new daemon serves"
					: "the old daemon serves");
	if (us >= 0)
		demo_note("pid %d became %d under init %d; served %.1f ms after the kill", (int)old, (int)now,
			(int)d->box.init, (double)us / 1000);
	outlive(d, &r, us);
	run_release(&r);
	client_close(&c);
}

// With a command still running: it must go too.
static void stop(struct demo *d)
{
	struct client c;
	struct run r = {0};
	r.status = client_open(&c, d->box.port);
	if (r.status == 0)
		r.status = client_post_stream(&c, "/exec/stream", "{s:s}", "command", "echo on; exec sleep 600");
	bool on = r.status == 200 && run_until(&c, &r, FRAME_STDOUT, "on\n");
	int status = sandbox_stop(&d->box);
	run_collect(&c, &r, true);
	bool told = r.ended && (r.end.kind == EVENT_ERROR || r.end.code != 0);
	demo_line(d, "TERM while a command runs", "running, exit status 0, reader told, end",
		"%s, exit status %d, reader %s, %s", on ? "running" : "not running", status, told ? "told" : "not told",
		r.status == 200 ? "end" : "cut");
	run_release(&r);
	client_close(&c);
	demo_line(d, "init afterwards", "gone", "%s", kill(d->box.init, 0) < 0 && errno == ESRCH ? "gone" : "there");
}

void demo_survival(struct demo *d)
{
	timeout(d);
	crash(d);
	stop(d);
}
