// SPDX-License-Identifier: Apache-2.0
// Reaping: whatever ends, however many at once, is waited for, and each command's status reaches its own client.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool no_zombies(void *arg)
{
	return d_zombies(arg) == 0;
}

static bool no_commands(void *arg)
{
	return d_no_commands(arg);
}

static void assert_no_zombie(struct testd *d)
{
	if (!wait_until(no_zombies, d, 1000))
		ck_abort_msg("%d zombies a second later", d_zombies(d));
}

// B24, and 60 commands with codes of their own beside the loop that makes orphans.
START_TEST(orphans_stay_zombies_or_steal_codes)
{
	static const char *const loops[] = {
		"for i in $(seq 2000); do (sleep 0.01 &) ; done; exit 3",
		"for i in $(seq 150); do (setsid sh -c '(sleep 0.02 &) ; exit 9' >/dev/null 2>&1 &) ; done; exit 3",
	};
	struct testd *d = d_start();
	struct sse *s = sse_open_pack(d, "/exec/stream", "{s:s, s:i}", "command", loops[_i], "timeout", 0);
	struct sse_out o = {0};
	struct resp r = {0};
	for (int i = 0; i < 60; i++) {
		char command[64];
		(void)snprintf(command, sizeof command, i % 2 ? "exit %d" : "(sleep 0.01 &) ; exit %d", 40 + i);
		const json_t *a = run(d, command, &r);
		ck_assert_int_eq(j_int(a, "exit_code"), 40 + i);
		ck_assert(!j_has(a, "signal"));
	}
	sse_collect(s, &o, 30000);
	sse_close(s);
	ck_assert_int_eq(o.end.code, 3);
	ck_assert_str_eq(o.end.signal, "");
	ck_assert_msg(wait_until(no_commands, d, 3000), "orphans are left");
	assert_no_zombie(d);
	sse_out_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A FIFO in the workspace: opening it for reading blocks until release_all.
static void make_gate(const struct testd *d, char *path, size_t n)
{
	(void)snprintf(path, n, "%s/gate", d->workspace);
	ck_assert_int_eq(mkfifo(path, 0666), 0);
}

// All that wait at the gate go on in the same instant. The descriptor is to be held until the end of the test, so that none
// that comes late waits for ever.
static int release_all(const char *path)
{
	int fd = open(path, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
	ck_assert_msg(fd >= 0, "open %s: %s", path, strerror(errno));
	return fd;
}

// Command I of a crowd: every fifth ends by a signal, the others with a code that is theirs.
static struct sse *start_one(const struct testd *d, int i)
{
	char command[96];
	if (i % 5 == 4)
		(void)snprintf(command, sizeof command, ": <gate; kill -%s $$", i % 2 ? "KILL" : "SEGV");
	else
		(void)snprintf(command, sizeof command, ": <gate; exit %d", 1 + i % 250);
	return sse_exec(d, command);
}

static void check_one(struct sse *s, int i)
{
	struct sse_out o = {0};
	sse_collect(s, &o, 20000);
	ck_assert_int_eq(o.end.kind, SSE_EXIT);
	if (i % 5 == 4) {
		ck_assert_str_eq(o.end.signal, i % 2 ? "SIGKILL" : "SIGSEGV");
		ck_assert_int_eq(o.end.code, -1);
	} else {
		ck_assert_msg(o.end.code == 1 + i % 250 && !*o.end.signal, "command %d: code %lld %s", i,
			(long long)o.end.code, o.end.signal);
	}
	sse_out_release(&o);
}

struct crowd {
	const struct testd *d;
	int count;
};

static bool all_at_gate(void *arg)
{
	const struct crowd *c = arg;
	return d_count_cmdline(c->d, "<gate", NULL) >= c->count;
}

static void release_crowd(int commands, int orphans)
{
	struct testd *d = d_start();
	struct sse **s = calloc((size_t)commands, sizeof *s);
	ck_assert_ptr_nonnull(s);
	char gate[400];
	char line[160];
	struct resp r = {0};
	make_gate(d, gate, sizeof gate);
	(void)snprintf(line, sizeof line, "for i in $(seq %d); do (sh -c ': <gate; exit 99' >/dev/null 2>&1 &) ; done",
		orphans);
	if (orphans > 0)
		ck_assert_int_eq(j_int(run(d, line, &r), "exit_code"), 0);
	for (int i = 0; i < commands; i++)
		s[i] = start_one(d, i);
	struct crowd crowd = {d, commands + orphans};
	ck_assert_msg(wait_until(all_at_gate, &crowd, 10000), "they have not all started");
	int fd = release_all(gate);
	for (int i = 0; i < commands; i++) {
		check_one(s[i], i);
		sse_close(s[i]);
	}
	ck_assert_msg(wait_until(no_commands, d, 3000), "orphans are left");
	assert_no_zombie(d);
	(void)close(fd);
	free(s);
	resp_release(&r);
	d_finish(d);
}

// B25
START_TEST(ends_in_one_instant_are_merged)
{
	release_crowd(100, 100);
}
END_TEST

START_TEST(five_hundred_ends_at_once_are_mixed_up)
{
	release_crowd(500, 0);
}
END_TEST

// Signals that are no order to stop.
START_TEST(harmless_signal_ends_the_sandbox)
{
	static const int signals[] = {SIGUSR1, SIGUSR2, SIGHUP, SIGWINCH, SIGCONT, SIGPIPE};
	static const char *const with_init[] = {"--init", NULL};
	const struct d_opts opts = {.args = _i ? with_init : NULL};
	struct testd *d = d_start_opts(&opts);
	struct resp r = {0};
	struct sse *s = sse_exec(d, "read x; exit 8");
	int64_t pid = sse_pid(s);
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
		// An init part ignores a broken pipe as the kernel's PID 1 does; a plain daemon is to do so too.
		if (signals[i] == SIGPIPE && d->has_init)
			continue;
		// It asks for an upgrade, where there is one.
		if (signals[i] == SIGUSR2 && d->has_init)
			continue;
		for (int n = 0; n < 3; n++) {
			d_signal(d, signals[i]);
			ck_assert_str_eq(j_str(run(d, "echo ok", &r), "stdout"), "ok\n");
		}
		d_assert_alive(d);
	}
	req_pack(d, "POST", "/exec/stdin", &r, "{s:I, s:s}", "pid", (json_int_t)pid, "data", "Cg==");
	ck_assert_int_eq(r.status, 200);
	struct sse_out o = {0};
	sse_collect(s, &o, 5000);
	ck_assert_int_eq(o.end.code, 8);
	sse_out_release(&o);
	sse_close(s);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The number of a command that was waited for is never signalled, nor mistaken for an orphan with the same status.
START_TEST(orphan_ends_its_command)
{
	struct testd *d = d_start();
	struct sse *s =
		sse_exec(d, "(sleep 0.3; exit 5) >/dev/null 2>&1 & sh -c 'sleep 0.1; exit 6' & sleep 1; exit 7");
	struct sse_out o = {0};
	int64_t start = h_now_ms();
	sse_collect(s, &o, 10000);
	ck_assert_int_eq(o.end.code, 7);
	ck_assert_int_ge(h_now_ms() - start, 900);
	assert_no_zombie(d);
	sse_out_release(&o);
	sse_close(s);
	d_finish(d);
}
END_TEST

Suite *pid1_suite(void)
{
	Suite *s = suite_create("pid1");
	TCase *tc = h_tcase(s, "reaping", 60);
	tcase_add_loop_test(tc, orphans_stay_zombies_or_steal_codes, 0, 2);
	tcase_add_test(tc, ends_in_one_instant_are_merged);
	tcase_add_test(tc, five_hundred_ends_at_once_are_mixed_up);
	tcase_add_test(tc, orphan_ends_its_command);
	tc = h_tcase(s, "signals", 30);
	tcase_add_loop_test(tc, harmless_signal_ends_the_sandbox, 0, 2);
	return s;
}
