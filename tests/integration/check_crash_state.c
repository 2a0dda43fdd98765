// SPDX-License-Identifier: Apache-2.0
// A daemon that dies beside its init part: what it kept of the workspace, what ends all, and records that nobody can read.
#include "tests/integration/deathkit.h"
#include "tests/integration/suites.h"
#include "tests/integration/workkit.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

// --- background runs, transcripts, events ---

START_TEST(background_run_fails)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	int gate = death_gate(d, "gate");
	req_pack(d, "POST", "/exec/background", &r, "{s:s,s:s,s:s}", "command",
		"echo a; echo e >&2; read x <gate; echo b; exit 3", "run_id", "r1", "session_id", "s1");
	ck_assert_int_eq(r.status, 200);
	pid_t old = 0;
	// What is being read in the moment of a death is lost, which is said.
	death_await_file(d, ".k8e_bg/r1/stdout", "a\n");
	death_await_file(d, ".k8e_bg/r1/stderr", "e\n");
	// Its end comes after the restart, or while nobody serves.
	if (_i == 1) {
		old = death_down(d, SIGKILL);
	} else {
		death_crash(d, SIGSEGV);
		ck_assert_str_eq(j_str(wk_run(d, "r1", &r), "status"), "running");
	}
	ck_assert_int_eq(write(gate, "\n", 1), 1);
	if (old)
		death_up(d, old);
	(void)wk_await(d, "r1", &r);
	assert_text(&r.body, "{\"run_id\":\"r1\",\"status\":\"completed\",\"exit_code\":3,\"stdout\":\"a\\nb\\n\","
			     "\"stderr\":\"e\\n\",\"truncated\":false}");
	ck_assert_str_eq(wk_content(wk_run_path(d, "r1", "exit_code")), "3\n");
	wk_await_events(d, "bg_submit bg_end ");
	resp_release(&r);
	(void)close(gate);
	d_finish(d);
}
END_TEST

// What is on the disk of numbered lines: each once, in order. Returns how many.
static int assert_lines(const char *text, const char *before)
{
	int n = 0;
	for (const char *p = text; *p;) {
		p = strstr(p, before);
		if (!p)
			break;
		ck_assert_int_eq(atoi(p + strlen(before)), n + 1);
		n++;
		p += strlen(before);
	}
	return n;
}

// Four crashes while it writes: no line twice, none missing unless it is said.
START_TEST(background_output_is_doubled)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	wk_submit(d, "r2",
		"i=0; while [ ! -e stop ]; do i=$((i+1)); echo L$i; [ $((i%100)) = 0 ] && sleep .01; done; "
		"echo E$i; exit 4");
	for (int round = 0; round < 4; round++) {
		struct timespec t = {0, 1000000 * (long)(23 + 31 * round)};
		(void)nanosleep(&t, NULL);
		death_crash(d, round % 2 ? SIGKILL : SIGSEGV);
	}
	wk_put(wk_path(d, "stop"), "");
	const json_t *o = wk_await(d, "r2", &r);
	ck_assert_int_eq(j_int(o, "exit_code"), 4);
	char *file = death_file(d, ".k8e_bg/r2/stdout");
	ck_assert_ptr_nonnull(file);
	const char *end = strstr(file, "E");
	ck_assert_ptr_nonnull(end);
	if (!j_bool(o, "truncated"))
		ck_assert_int_eq(assert_lines(file, "L"), atoi(end + 1));
	free(file);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(transcript_and_events_end_with_the_daemon)
{
	struct testd *d = death_start_with();
	struct sse_out o = {0};
	struct sse *s = sse_open_pack(d, "/exec/stream", "{s:s,s:s}", "command",
		"echo one; read x; echo two; echo err >&2; exit 5", "session_id", "s1");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "one\n", NULL, 5000);
	// The transcript is written a moment later.
	int64_t end = h_now_ms() + h_scaled(3000);
	for (bool there = false; !there;) {
		char *text = death_file(d, ".k8e_transcripts/s1.log");
		there = text && strstr(text, "one");
		free(text);
		ck_assert_int_lt(h_now_ms(), end);
		h_tick();
	}
	death_crash(d, _i ? SIGSEGV : SIGKILL);
	sse_close(s);
	death_feed(d, pid, "\n", 1);
	death_collect(d, pid, 5, &o);
	sse_out_release(&o);
	wk_await_events(d, "exec_start exec_end ");
	json_t *list = wk_events(d, "?limit=1");
	ck_assert_int_eq(j_int(json_array_get(list, 0), "exit"), 5);
	ck_assert_str_eq(j_str(json_array_get(list, 0), "sid"), "s1");
	json_decref(list);
	static const char *const once[] = {"cmd echo one", "stdout one", "stdout two", "stderr err"};
	end = h_now_ms() + h_scaled(3000);
	for (size_t found = 0; found < sizeof once / sizeof *once;) {
		char *text = death_file(d, ".k8e_transcripts/s1.log");
		ck_assert_ptr_nonnull(text);
		found = 0;
		for (size_t i = 0; i < sizeof once / sizeof *once; i++) {
			const char *at = strstr(text, once[i]);
			found += at != NULL;
			ck_assert_msg(!at || !strstr(at + 1, once[i]), "\"%s\" twice in %s", once[i], text);
		}
		ck_assert_msg(h_now_ms() < end, "%zu lines in %s", found, text);
		free(text);
		h_tick();
	}
	d_finish(d);
}
END_TEST

// --- ends of all ---

// The commands of the dead daemon are the new one's to end, or the next tenant has them.
START_TEST(reset_spares_what_a_dead_daemon_started)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	struct sse *s =
		sse_exec(d, "trap '' TERM HUP PIPE; echo up; while :; do echo x >leak; sleep 1022 & sleep .05; done");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	death_crash(d, SIGKILL);
	pid_t init = d->init;
	sse_close(s);
	req(d, "POST", "/workspace/reset", NULL, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_int_eq(d_count_cmdline(d, "sleep 1022", NULL), 0);
	ck_assert_ptr_null(death_row(d, pid, &r));
	ck_assert_str_eq(j_str(run(d, "sleep .2; ls", &r), "stdout"), "");
	ck_assert(pid_alive(init));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The reader of a command that was taken over is told why it ends.
START_TEST(stop_forgets_commands_of_a_dead_daemon)
{
	struct testd *d = death_start_with("--stop-grace", "300");
	struct sse_out o = {0};
	struct sse *s = sse_exec(d, "trap '' TERM; echo up; while :; do sleep 1023; done");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	death_crash(d, SIGKILL);
	sse_close(s);
	s = sse_attach(d, pid);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	d_signal(d, SIGTERM);
	sse_collect(s, &o, 5000);
	ck_assert_int_eq(o.end.kind, SSE_ERROR);
	ck_assert_str_eq(j_str(o.end.obj, "reason"), "sandbox_terminating");
	ck_assert_int_eq(d_wait(d, 3000), 0);
	sse_close(s);
	sse_out_release(&o);
	d_finish(d);
}
END_TEST

// Ends of the old daemon's commands are init's to reap.
START_TEST(commands_of_a_dead_daemon_become_zombies)
{
	struct testd *d = death_start_with();
	struct sse *s = sse_exec(d, "for i in 1 2 3 4 5; do sleep 0.4 & setsid sleep 0.5 & done; echo up; wait");
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	death_crash(d, SIGKILL);
	int64_t end = h_now_ms() + h_scaled(5000);
	while (!d_no_commands(d)) {
		ck_assert_msg(h_now_ms() < end, "%d zombies", d_zombies(d));
		h_tick();
	}
	sse_close(s);
	death_assert_serves(d);
	d_finish(d);
}
END_TEST

// TERM while no daemon runs: the end comes at once, and nothing is left of the old commands.
START_TEST(stop_in_the_pause_is_lost)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	(void)run(d, "(trap '' TERM; exec setsid sleep 1024) >/dev/null 2>&1 & echo", &r);
	struct sse *s = sse_exec(d, "trap '' TERM; sleep 1024");
	(void)sse_pid(s);
	for (int i = 0; i < 7; i++)
		death_crash(d, SIGKILL);
	(void)death_kill(d, SIGKILL, NULL);
	ck_assert_int_eq(d_stop(d, 1000), 0);
	sse_close(s);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(daemon_that_hangs_cannot_be_stopped)
{
	struct testd *d = death_start_with("--stop-grace", "200");
	struct resp r = {0};
	(void)run(d, "setsid sleep 1025 >/dev/null 2>&1 & echo", &r);
	ck_assert_int_eq(kill(d->daemon, SIGSTOP), 0);
	ck_assert_int_eq(d_stop(d, 3000), 0);
	ck_assert(d_log_has(d, "daemon_stuck"));
	resp_release(&r);
	d_finish(d);
}
END_TEST

static bool is_dead(void *arg)
{
	return !pid_alive(*(pid_t *)arg);
}

// Not as PID 1, where the kernel sees to it.
START_TEST(daemon_outlives_init)
{
	static const char *const args[] = {"--init", NULL};
	const struct d_opts opts = {.args = args, .plain = true};
	struct testd *d = d_start_opts(&opts);
	struct resp r = {0};
	(void)run(d, "setsid sleep 1026 >/dev/null 2>&1 & echo", &r);
	d_expect_crash(d);
	pid_t daemon = d->daemon;
	d_signal(d, SIGKILL);
	ck_assert_int_eq(d_wait(d, 2000), -1 - SIGKILL);
	ck_assert_msg(wait_until(is_dead, &daemon, 3000), "the daemon lives on without init");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- records that cannot be read ---

// The store's memory of D, open for reading and writing.
static int open_store(const struct testd *d)
{
	char path[64], name[128];
	for (int fd = 3; fd < 64; fd++) {
		(void)snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)d->init, fd);
		ssize_t n = readlink(path, name, sizeof name - 1);
		name[n > 0 ? n : 0] = '\0';
		if (!strstr(name, "memfd:celld-store"))
			continue;
		int store = open(path, O_RDWR | O_CLOEXEC);
		ck_assert_int_ge(store, 0);
		return store;
	}
	ck_abort_msg("no store");
	return -1;
}

// Where TEXT stands in it, or -1.
static off_t find_in(int store, const char *text)
{
	static char part[1 << 20];
	off_t at = 0;
	while ((at = lseek(store, at, SEEK_DATA)) >= 0) {
		off_t hole = lseek(store, at, SEEK_HOLE);
		size_t want = hole - at > (off_t)sizeof part ? sizeof part : (size_t)(hole - at);
		ssize_t n = pread(store, part, want, at);
		ck_assert_int_gt(n, 0);
		const char *hit = memmem(part, (size_t)n, text, strlen(text));
		if (hit)
			return at + (hit - part);
		at += n < (ssize_t)want || at + n >= hole ? n : n - (ssize_t)strlen(text);
	}
	return -1;
}

static bool none_sleeps(void *arg)
{
	return d_count_cmdline(arg, "sleep 1027", NULL) == 0;
}

START_TEST(damaged_record_takes_others_along)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	struct sse_out o = {0};
	struct sse *bad = sse_exec(d, "sleep 1027 & echo bad-one; sleep 1027");
	int64_t bad_pid = sse_pid(bad);
	struct sse *good = sse_exec(d, "read x; exit 21");
	int64_t good_pid = sse_pid(good);
	sse_until(bad, FRAME_STDOUT, "bad-one\n", NULL, 5000);
	int store = open_store(d);
	off_t at = find_in(store, "sleep 1027 & echo bad-one");
	ck_assert_int_ge(at, 0);
	ck_assert_int_eq(pwrite(store, "S", 1, at), 1);
	(void)close(store);
	death_crash(d, SIGKILL);
	sse_close(bad);
	sse_close(good);
	death_assert_log(d, "could not be read");
	ck_assert_ptr_null(death_row(d, bad_pid, &r));
	ck_assert_msg(wait_until(none_sleeps, d, 3000), "what cannot be reached runs on");
	death_feed(d, good_pid, "\n", 1);
	death_collect(d, good_pid, 21, &o);
	death_assert_serves(d);
	sse_out_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The head: nothing in it is to be believed, so all that runs ends, and the sandbox serves.
START_TEST(damaged_store_ends_the_sandbox)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	struct sse *s = sse_exec(d, "trap '' TERM; echo up; sleep 1028");
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	(void)run(d, "setsid sleep 1028 >/dev/null 2>&1 & echo", &r);
	int store = open_store(d);
	ck_assert_int_eq(pwrite(store, "damaged", 7, 9), 7);
	(void)close(store);
	death_crash(d, SIGKILL);
	sse_close(s);
	death_assert_log(d, "store_damaged");
	death_assert_serves(d);
	int64_t end = h_now_ms() + h_scaled(5000); // killed is not gone yet
	while (d_count_cmdline(d, "sleep 1028", NULL) > 0 && h_now_ms() < end)
		usleep(20000);
	ck_assert_int_eq(d_count_cmdline(d, "sleep 1028", NULL), 0);
	// The store is as good as new.
	struct sse_out o = {0};
	s = sse_exec(d, "read x; exit 22");
	int64_t pid = sse_pid(s);
	death_crash(d, SIGKILL);
	sse_close(s);
	death_feed(d, pid, "\n", 1);
	death_collect(d, pid, 22, &o);
	sse_out_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *crash_state_suite(void)
{
	Suite *s = suite_create("crash_state");
	TCase *tc = h_tcase(s, "workspace", 30);
	tcase_add_loop_test(tc, background_run_fails, 0, 2);
	tcase_add_test(tc, background_output_is_doubled);
	tcase_add_loop_test(tc, transcript_and_events_end_with_the_daemon, 0, 2);
	tc = h_tcase(s, "ends", 30);
	tcase_add_test(tc, reset_spares_what_a_dead_daemon_started);
	tcase_add_test(tc, stop_forgets_commands_of_a_dead_daemon);
	tcase_add_test(tc, commands_of_a_dead_daemon_become_zombies);
	tcase_add_test(tc, stop_in_the_pause_is_lost);
	tcase_add_test(tc, daemon_that_hangs_cannot_be_stopped);
	tcase_add_test(tc, daemon_outlives_init);
	tc = h_tcase(s, "damage", 30);
	tcase_add_test(tc, damaged_record_takes_others_along);
	tcase_add_test(tc, damaged_store_ends_the_sandbox);
	return s;
}
