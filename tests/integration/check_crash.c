// SPDX-License-Identifier: Apache-2.0
// A daemon that dies beside its init part: the sandbox lives on, the next daemon serves, init does not wear out.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

// As --init, whatever the mode; in a sanitized binary the signals kill as they do without.
static struct testd *start_with_init(const char *const *more)
{
	static const char *const env[] = {"ASAN_OPTIONS=handle_segv=0:handle_abort=0:detect_leaks=1", NULL};
	const char *args[16] = {"--init"};
	const struct rlimit none = {0, 0};
	for (size_t i = 0; more && more[i] && i < 14; i++)
		args[i + 1] = more[i];
	const struct d_opts opts = {.args = args, .env = env};
	ck_assert_int_eq(setrlimit(RLIMIT_CORE, &none), 0);
	struct testd *d = d_start_opts(&opts);
	ck_assert_msg(d->has_init, "no init part");
	d_expect_crash(d);
	return d;
}

static bool is_dead(void *arg)
{
	return !pid_alive(*(pid_t *)arg);
}

// The old daemon's pid, once it is dead.
static pid_t kill_daemon(const struct testd *d, int sig)
{
	pid_t old = d->daemon;
	ck_assert_int_eq(kill(old, sig), 0);
	ck_assert_msg(wait_until(is_dead, &old, 3000), "daemon %d survives signal %d", (int)old, sig);
	return old;
}

struct change {
	struct testd *d;
	pid_t old;
};

static bool has_new_daemon(void *arg)
{
	const struct change *c = arg;
	pid_t now = d_refresh(c->d);
	return now > 0 && now != c->old;
}

static void await_new_daemon(struct testd *d, pid_t old, int64_t ms)
{
	struct change c = {d, old};
	ck_assert_msg(wait_until(has_new_daemon, &c, ms), "no new daemon within %lld ms", (long long)ms);
}

static void assert_serves(const struct testd *d)
{
	struct resp r = {0};
	ck_assert_str_eq(j_str(run(d, "echo served", &r), "stdout"), "served\n");
	resp_release(&r);
}

// True once LOG_TEXT stands in the log: it may be written a moment after its cause shows.
struct log_wait {
	const struct testd *d;
	const char *text;
};

static bool log_has(void *arg)
{
	const struct log_wait *w = arg;
	return d_log_has(w->d, w->text);
}

static void assert_log(const struct testd *d, const char *text)
{
	struct log_wait w = {d, text};
	ck_assert_msg(wait_until(log_has, &w, 2000), "the log does not say \"%s\"", text);
}

static pid_t find_command(const struct testd *d, const char *text)
{
	pid_t pid = 0;
	ck_assert_int_ge(d_count_cmdline(d, text, &pid), 1);
	return pid;
}

static const int deaths[] = {SIGKILL, SIGSEGV, SIGABRT};

START_TEST(crash_takes_the_sandbox_along)
{
	struct testd *d = start_with_init(NULL);
	struct resp r = {0};
	(void)run(d, "setsid sleep 1017 >/dev/null 2>&1 & echo", &r);
	struct sse *s = sse_exec(d, "echo up; sleep 1018");
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	pid_t apart = find_command(d, "sleep 1017");
	pid_t held = find_command(d, "sleep 1018");
	pid_t init = d->init;
	pid_t old = kill_daemon(d, deaths[_i]);
	// Connects while there may be no daemon: the listening socket is init's.
	assert_serves(d);
	await_new_daemon(d, old, 3000);
	ck_assert(pid_alive(init));
	ck_assert_msg(pid_alive(apart), "a daemonized process died with the daemon");
	ck_assert_msg(pid_alive(held), "a command died with the daemon");
	// What was lost looks lost: no end frame, no proper end of the body.
	struct sse_event e = {0};
	sse_expect(s, &e, SSE_CUT, 3000);
	sse_event_release(&e);
	sse_close(s);
	assert_log(d, "daemon_died");
	assert_log(d, strsignal(deaths[_i]));
	assert_log(d, "daemon_restart");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Ends of the old daemon's commands are init's to reap.
// The commands of the dead daemon are the new one's to end, or the next tenant has them.
START_TEST(reset_spares_what_a_dead_daemon_started)
{
	struct testd *d = start_with_init(NULL);
	struct resp r = {0};
	struct sse *s =
		sse_exec(d, "trap '' TERM HUP PIPE; echo up; while :; do echo x >leak; sleep 1019 & sleep .05; done");
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	pid_t old = kill_daemon(d, SIGKILL);
	await_new_daemon(d, old, 3000);
	pid_t init = d->init;
	req(d, "POST", "/workspace/reset", NULL, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_int_eq(d_count_cmdline(d, "sleep 1019", NULL), 0);
	ck_assert_str_eq(j_str(run(d, "sleep .2; ls", &r), "stdout"), "");
	ck_assert(pid_alive(init));
	resp_release(&r);
	sse_close(s);
	d_finish(d);
}
END_TEST

START_TEST(commands_of_a_dead_daemon_become_zombies)
{
	struct testd *d = start_with_init(NULL);
	struct sse *s = sse_exec(d, "for i in 1 2 3 4 5; do sleep 0.4 & done; echo up; wait");
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	pid_t old = kill_daemon(d, SIGKILL);
	await_new_daemon(d, old, 3000);
	int64_t end = h_now_ms() + h_scaled(5000);
	while (!d_no_commands(d)) {
		ck_assert_msg(h_now_ms() < end, "%d zombies", d_zombies(d));
		h_tick();
	}
	sse_close(s);
	assert_serves(d);
	d_finish(d);
}
END_TEST

// The view of init as if it were the daemon, for the counters of procfs.
static struct testd view_of_init(const struct testd *d)
{
	struct testd v = *d;
	v.daemon = d->init;
	return v;
}

// Ten deaths in a row: each pause is longer than the last, init holds no more than before.
START_TEST(crash_loop_spins_or_wears_init_out)
{
	static const char *const pauses[] = {"in 0 ms", "in 10 ms", "in 20 ms", "in 40 ms", "in 80 ms", "in 160 ms"};
	struct testd *d = start_with_init(NULL);
	struct testd init = view_of_init(d);
	await_new_daemon(d, kill_daemon(d, SIGKILL), 3000);
	int fds = d_fd_count(&init);
	long rss = d_rss_kib(&init);
	for (int i = 1; i < 10; i++) {
		pid_t old = kill_daemon(d, SIGKILL);
		await_new_daemon(d, old, 5000);
	}
	// A slow machine may let a daemon live for a second, and the pauses start over.
	for (size_t i = 0; h_scale() <= 1 && i < sizeof pauses / sizeof *pauses; i++)
		assert_log(d, pauses[i]);
	assert_serves(d);
	ck_assert_int_eq(d_fd_count(&init), fds);
	ck_assert_msg(d_rss_kib(&init) - rss <= (d_sanitized(d) ? 2048 : 128), "init grew from %ld to %ld KiB", rss,
		d_rss_kib(&init));
	ck_assert_uint_lt(d_cpu_ticks(&init), (uint64_t)h_scaled(100));
	d_finish(d);
}
END_TEST

// One who connects in the pause waits, and is served by the next daemon.
START_TEST(connection_in_the_pause_is_refused)
{
	struct testd *d = start_with_init(NULL);
	pid_t old = 0;
	for (int i = 0; i < 6; i++) {
		old = kill_daemon(d, SIGKILL);
		if (i < 5)
			await_new_daemon(d, old, 3000);
	}
	assert_serves(d);
	await_new_daemon(d, old, 3000);
	d_finish(d);
}
END_TEST

// TERM while no daemon runs: the end comes at once, and nothing is left of the old commands.
START_TEST(stop_in_the_pause_is_lost)
{
	struct testd *d = start_with_init(NULL);
	struct resp r = {0};
	(void)run(d, "(trap '' TERM; exec setsid sleep 1019) >/dev/null 2>&1 & echo", &r);
	for (int i = 0; i < 8; i++) {
		pid_t old = kill_daemon(d, SIGKILL);
		if (i < 7)
			await_new_daemon(d, old, 3000);
	}
	ck_assert_int_eq(d_stop(d, 1000), 0);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(daemon_that_hangs_cannot_be_stopped)
{
	static const char *const args[] = {"--stop-grace", "200", NULL};
	struct testd *d = start_with_init(args);
	struct resp r = {0};
	(void)run(d, "setsid sleep 1020 >/dev/null 2>&1 & echo", &r);
	ck_assert_int_eq(kill(d->daemon, SIGSTOP), 0);
	ck_assert_int_eq(d_stop(d, 3000), 0);
	ck_assert(d_log_has(d, "daemon_stuck"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Not as PID 1, where the kernel sees to it.
START_TEST(daemon_outlives_init)
{
	static const char *const args[] = {"--init", NULL};
	const struct d_opts opts = {.args = args, .plain = true};
	struct testd *d = d_start_opts(&opts);
	struct resp r = {0};
	(void)run(d, "setsid sleep 1021 >/dev/null 2>&1 & echo", &r);
	d_expect_crash(d);
	pid_t daemon = d->daemon;
	d_signal(d, SIGKILL);
	ck_assert_int_eq(d_wait(d, 2000), -1 - SIGKILL);
	ck_assert_msg(wait_until(is_dead, &daemon, 3000), "the daemon lives on without init");
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *crash_suite(void)
{
	Suite *s = suite_create("crash");
	TCase *tc = h_tcase(s, "restart", 30);
	tcase_add_loop_test(tc, crash_takes_the_sandbox_along, 0, (int)(sizeof deaths / sizeof *deaths));
	tcase_add_test(tc, reset_spares_what_a_dead_daemon_started);
	tcase_add_test(tc, commands_of_a_dead_daemon_become_zombies);
	tcase_add_test(tc, crash_loop_spins_or_wears_init_out);
	tcase_add_test(tc, connection_in_the_pause_is_refused);
	tc = h_tcase(s, "stop", 30);
	tcase_add_test(tc, stop_in_the_pause_is_lost);
	tcase_add_test(tc, daemon_that_hangs_cannot_be_stopped);
	tcase_add_test(tc, daemon_outlives_init);
	return s;
}
