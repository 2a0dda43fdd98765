// SPDX-License-Identifier: Apache-2.0
// /exec/signal: who gets a signal, in which spellings, and who must never get one. What a timeout kills is in check_kills.c.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

struct mark {
	const struct testd *d;
	const char *text;
	int count;
};

static bool count_is(void *arg)
{
	const struct mark *m = arg;
	return d_count_cmdline(m->d, m->text, NULL) == m->count;
}

static void assert_count(const struct testd *d, const char *text, int count, int64_t ms)
{
	struct mark m = {d, text, count};
	if (!wait_until(count_is, &m, ms))
		ck_abort_msg("%d processes of \"%s\", want %d", d_count_cmdline(d, text, NULL), text, count);
}

// Sends {"pid":PID,"signal":SIGNAL} with REST behind it (",\"group\":false", or ""): the answer's status, its body in R.
static int send_signal(const struct testd *d, int64_t pid, const char *sig, const char *rest, struct resp *r)
{
	char body[256];
	(void)snprintf(body, sizeof body, "{\"pid\":%lld,\"signal\":%s%s}", (long long)pid, sig, rest);
	req(d, "POST", "/exec/signal", body, r);
	return r->status;
}

static void must_signal(const struct testd *d, int64_t pid, const char *sig, const char *rest)
{
	struct resp r = {0};
	int status = send_signal(d, pid, sig, rest, &r);
	if (status != 200)
		ck_abort_msg("signal %s%s: %d %s", sig, rest, status, buf_cstr(&r.body));
	ck_assert(j_bool(resp_json(&r), "ok"));
	resp_release(&r);
}

static void expect_death(struct sse *s, const char *name)
{
	struct sse_event e = {0};
	sse_expect(s, &e, SSE_EXIT, 5000);
	ck_assert_int_eq(e.code, -1);
	ck_assert_str_eq(e.signal, name);
	ck_assert(!e.timed_out);
	sse_expect(s, &e, SSE_END, 2000);
	sse_event_release(&e);
	sse_close(s);
}

static const struct {
	const char *sent; // JSON
	const char *name;
} spellings[] = {
	{"\"SIGTERM\"", "SIGTERM"},
	{"\"SIGNAL_SIGTERM\"", "SIGTERM"},
	{"\"TERM\"", "SIGTERM"},
	{"\"15\"", "SIGTERM"},
	{"15", "SIGTERM"},
	{"\"SIGKILL\"", "SIGKILL"},
	{"\"SIGNAL_SIGKILL\"", "SIGKILL"},
	{"\"KILL\"", "SIGKILL"},
	{"\"9\"", "SIGKILL"},
	{"9", "SIGKILL"},
	{"\"SIGINT\"", "SIGINT"},
	{"\"INT\"", "SIGINT"},
	{"\"HUP\"", "SIGHUP"},
	{"1", "SIGHUP"},
	{"\"SIGQUIT\"", "SIGQUIT"},
	{"\"SIGNAL_SIGABRT\"", "SIGABRT"},
	{"\"USR1\"", "SIGUSR1"},
	{"\"SIGUSR2\"", "SIGUSR2"},
	{"\"PIPE\"", "SIGPIPE"},
	{"\"ALRM\"", "SIGALRM"},
	{"\"SIGIO\"", "SIGIO"},
	{"\"SIGPOLL\"", "SIGIO"},
	{"\"SIGIOT\"", "SIGABRT"},
	{"\"SEGV\"", "SIGSEGV"},
	{"\"SIGSYS\"", "SIGSYS"},
	{"\"SIGSTKFLT\"", "SIGSTKFLT"},
	{"\"SIGPWR\"", "SIGPWR"},
	{"\"SIGVTALRM\"", "SIGVTALRM"},
};

// B15
START_TEST(spelling_of_a_signal_is_refused)
{
	struct testd *d = d_start();
	for (int i = 0; i < COUNT(spellings); i++) {
		struct sse *s = sse_exec(d, "ulimit -c 0; echo up; exec sleep 3151");
		int64_t pid = sse_pid(s);
		sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
		must_signal(d, pid, spellings[i].sent, "");
		expect_death(s, spellings[i].name);
	}
	ck_assert(d_no_commands(d));
	d_finish(d);
}
END_TEST

// Signals that have no name in the end frame but their number.
static const struct {
	const char *sent;
	const char *name;
} realtime[] = {{"34", "SIG34"}, {"40", "SIG40"}, {"64", "SIG64"}, {"\"SIGRTMIN\"", "SIG34"}, {"\"RTMIN+3\"", "SIG37"},
	{"\"SIGNAL_SIGRTMAX\"", "SIG64"}, {"\"SIGRTMAX-14\"", "SIG50"}};

START_TEST(realtime_signal_is_lost)
{
	struct testd *d = d_start();
	for (int i = 0; i < COUNT(realtime); i++) {
		struct sse *s = sse_exec(d, "exec sleep 3151");
		must_signal(d, sse_pid(s), realtime[i].sent, "");
		expect_death(s, realtime[i].name);
	}
	d_finish(d);
}
END_TEST

static const char *const bad_signals[] = {"0", "-1", "-9", "65", "128", "1099511627776", "1.5", "true", "null", "[]",
	"{}", "\"\"", "\"0\"", "\"-9\"", "\"65\"", "\"9 \"", "\" 9\"", "\"+9\"", "\"0x9\"", "\"9x\"", "\"SIG\"",
	"\"SIGNAL_\"", "\"NOPE\"", "\"SIGNOPE\"", "\"SIG9\"", "\"SIGSIGTERM\"", "\"RTMIN+31\"", "\"RTMIN-1\"",
	"\"RTMAX+1\"", "\"RTMINX\"", "\"RTMIN+\"", "\"TERM\\u0000\"", "\"SIGKILL,SIGTERM\"",
	"\"SIGKILLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLLL\"", "\"\\u20ac\""};

START_TEST(bad_signal_reaches_the_command)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct sse_event e = {0};
	struct sse *s = sse_exec(d, "exec sleep 3152");
	int64_t pid = sse_pid(s);
	for (int i = 0; i < COUNT(bad_signals); i++) {
		int status = send_signal(d, pid, bad_signals[i], "", &r);
		ck_assert_msg(status == 400, "signal %s: %d %s", bad_signals[i], status, buf_cstr(&r.body));
		(void)assert_error(&r, 400, "invalid_argument");
	}
	static const char *const groups[] = {",\"group\":\"false\"", ",\"group\":0", ",\"group\":[]"};
	for (int i = 0; i < COUNT(groups); i++) {
		(void)send_signal(d, pid, "9", groups[i], &r);
		(void)assert_error(&r, 400, "invalid_argument");
	}
	char body[64];
	(void)snprintf(body, sizeof body, "{\"pid\":%lld}", (long long)pid);
	req(d, "POST", "/exec/signal", body, &r);
	(void)assert_error(&r, 400, "invalid_argument");
	ck_assert_int_eq(sse_next(s, &e, 300), SSE_TIMEOUT);
	ck_assert(d_nspid_alive(d, pid));
	sse_event_release(&e);
	sse_close(s);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B15: KILL through the API on three busy children.
START_TEST(kill_reaches_the_leader_only)
{
	struct testd *d = d_start();
	struct sse *s = sse_exec(d, "for i in 1 2 3; do (while :; do :; done)& done; echo up; wait # 3153");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	assert_count(d, "# 3153", 4, 2000);
	int64_t start = h_now_ms();
	must_signal(d, pid, "\"SIGKILL\"", "");
	expect_death(s, "SIGKILL");
	ck_assert_int_le(h_now_ms() - start, h_scaled(1000));
	assert_count(d, "# 3153", 0, 1000);
	d_finish(d);
}
END_TEST

static const struct {
	const char *rest;
	bool group;
} groups_asked[] = {{"", true}, {",\"group\":true", true}, {",\"group\":null", true}, {",\"group\":false", false}};

START_TEST(group_is_taken_for_the_leader_or_the_other_way)
{
	struct testd *d = d_start();
	struct sse *s = sse_exec(d, "sleep 3154.1 & setsid sleep 3154.2 & echo up; exec sleep 3154.3");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	for (int i = 1; i <= 3; i++) {
		char mark[32];
		(void)snprintf(mark, sizeof mark, "sleep 3154.%d", i);
		if (i < 3)
			(void)wait_until(count_is, &(struct mark){d, mark, 1}, 2000);
	}
	// The middle one has left the group once setsid has become what it starts.
	ck_assert(wait_until(count_is, &(struct mark){d, "setsid sleep 3154", 0}, 5000));
	struct pinfo p[8];
	ck_assert_uint_eq(procs_below(d->daemon, p, COUNT(p)), 3);
	must_signal(d, pid, "\"KILL\"", groups_asked[_i].rest);
	expect_death(s, "SIGKILL");
	assert_count(d, "sleep 3154.3", 0, 1000);
	assert_count(d, "sleep 3154.1", groups_asked[_i].group ? 0 : 1, 1000);
	// Another group is none of a signal's business.
	ck_assert_int_eq(d_count_cmdline(d, "sleep 3154.2", NULL), 1);
	d_finish(d);
}
END_TEST

// A signal is what was asked for, once, and nothing follows it.
START_TEST(term_turns_into_kill)
{
	struct testd *d = d_start();
	struct sse_event e = {0};
	struct sse *s = sse_exec(d, "trap '' TERM; sleep 3155 & echo up; wait; wait; sleep 3155");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	must_signal(d, pid, "\"SIGTERM\"", "");
	must_signal(d, pid, "\"SIGTERM\"", ",\"group\":false");
	ck_assert_int_eq(sse_next(s, &e, 3000), SSE_TIMEOUT);
	ck_assert(d_nspid_alive(d, pid));
	assert_count(d, "sleep 3155", 2, 1000); // the script and its child
	must_signal(d, pid, "\"SIGKILL\"", "");
	expect_death(s, "SIGKILL");
	sse_event_release(&e);
	d_finish(d);
}
END_TEST

START_TEST(signal_comes_twice_or_changed)
{
	static const char command[] =
		"for s in HUP INT QUIT USR1 USR2 TERM ALRM WINCH URG; do trap \"echo $s\" $s; done; "
		"echo up; while :; do sleep .02; done";
	static const char *const sent[] = {
		"\"USR1\"", "\"WINCH\"", "\"HUP\"", "12", "\"SIGTERM\"", "\"INT\"", "23", "\"QUIT\"", "\"ALRM\""};
	static const char *const got[] = {
		"USR1\n", "WINCH\n", "HUP\n", "USR2\n", "TERM\n", "INT\n", "URG\n", "QUIT\n", "ALRM\n"};
	struct testd *d = d_start();
	struct buf all = {0};
	struct buf want = {0};
	struct sse_event e = {0};
	struct sse *s = sse_exec(d, command);
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	for (int i = 0; i < COUNT(sent); i++) {
		must_signal(d, pid, sent[i], ",\"group\":false");
		sse_until(s, FRAME_STDOUT, got[i], &all, 5000);
		buf_str(&want, got[i]);
	}
	ck_assert_int_eq(sse_next(s, &e, 300), SSE_TIMEOUT);
	assert_bytes(&all, buf_data(&want), buf_len(&want));
	sse_event_release(&e);
	sse_close(s);
	buf_release(&all);
	buf_release(&want);
	d_finish(d);
}
END_TEST

struct in_state {
	pid_t pid;
	char state;
};

static bool in_state(void *arg)
{
	const struct in_state *w = arg;
	struct pinfo p;
	return proc_info(w->pid, &p) && p.state == w->state;
}

START_TEST(stopped_command_is_taken_for_an_ended_one)
{
	struct testd *d = d_start();
	struct sse_event e = {0};
	struct sse *s = sse_exec(d, "exec sleep 3156");
	int64_t pid = sse_pid(s);
	pid_t outside = d_outside_pid(d, pid);
	must_signal(d, pid, "\"SIGSTOP\"", "");
	ck_assert(wait_until(in_state, &(struct in_state){outside, 'T'}, 2000));
	ck_assert_int_eq(sse_next(s, &e, 300), SSE_TIMEOUT);
	must_signal(d, pid, "\"CONT\"", "");
	ck_assert(wait_until(in_state, &(struct in_state){outside, 'S'}, 2000));
	ck_assert_int_eq(sse_next(s, &e, 300), SSE_TIMEOUT);
	// A stopped one dies of KILL all the same.
	must_signal(d, pid, "\"SIGTSTP\"", "");
	must_signal(d, pid, "\"SIGSTOP\"", "");
	must_signal(d, pid, "\"SIGKILL\"", "");
	expect_death(s, "SIGKILL");
	sse_event_release(&e);
	d_finish(d);
}
END_TEST

// B16: pids that are not of the table. Those that are no number of a process at all may be 400 or 404.
static const struct {
	const char *pid;
	int status; // 0: 400 or 404
} strangers[] = {
	{"0", 0},
	{"1", 404},
	{"2", 404},
	{"-1", 0},
	{"-2", 0},
	{"2147483647", 404},
	{"2147483648", 0},
	{"4294967296", 0},
	{"4294967297", 0},
	{"1099511627776", 0},
	{"9223372036854775807", 0},
	{"-9223372036854775808", 0},
	{"9223372036854775808", 400},
	{"1e400", 400},
	{"1.5", 400},
	{"\"1\"", 400},
	{"true", 400},
	{"[1]", 400},
	{"null", 400},
};

// In a pid namespace of its own, so that a wrong kill() stays there.
START_TEST(signal_reaches_a_stranger)
{
	const struct d_opts opts = {.pid1 = true};
	struct testd *d = d_start_opts(&opts);
	struct resp r = {0};
	char body[128];
	struct sse *s = sse_exec(d, "sleep 3157 & echo $! up; wait");
	struct buf out = {0};
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", &out, 5000);
	int64_t child = strtoll(buf_cstr(&out), NULL, 10);
	ck_assert_int_gt(child, pid);
	for (int i = 0; i < COUNT(strangers); i++) {
		(void)snprintf(body, sizeof body, "{\"pid\":%s,\"signal\":\"KILL\"}", strangers[i].pid);
		req(d, "POST", "/exec/signal", body, &r);
		int status = strangers[i].status;
		if (!status)
			status = r.status == 400 ? 400 : 404;
		ck_assert_msg(r.status == status, "%s: %d", body, r.status);
		(void)assert_error(&r, status, status == 404 ? "not_found" : "invalid_argument");
	}
	req(d, "POST", "/exec/signal", "{\"signal\":9}", &r);
	(void)assert_error(&r, 400, "invalid_argument");
	// A child of a command, and the numbers around.
	for (int64_t n = child; n < child + 3; n++) {
		(void)send_signal(d, n, "9", "", &r);
		(void)assert_error(&r, 404, "not_found");
		(void)send_signal(d, -pid, "9", "", &r);
		ck_assert_int_ge(r.status, 400);
	}
	ck_assert(d_nspid_alive(d, child));
	ck_assert(d_nspid_alive(d, pid));
	d_assert_alive(d);
	sse_close(s);
	buf_release(&out);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B16: what has ended is not found, though its answer is still kept and others still bear its group's number.
START_TEST(ended_command_is_signalled)
{
	struct testd *d = d_start();
	struct sse_out o = {0};
	struct resp r = {0};
	sse_run(d, "sleep 3158 >/dev/null 2>&1 & exit 0", 0, &o);
	ck_assert_int_eq(d_count_cmdline(d, "sleep 3158", NULL), 1);
	static const char *const rest[] = {"", ",\"group\":false"};
	for (int i = 0; i < COUNT(rest); i++) {
		(void)send_signal(d, o.pid, "9", rest[i], &r);
		ck_assert_str_eq(j_str(assert_error(&r, 404, "not_found"), "error"), "process not found");
	}
	ck_assert_int_eq(d_count_cmdline(d, "sleep 3158", NULL), 1);
	sse_out_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A stream whose first child gets the pid PID: its own pid is another.
static struct sse *take_pid(const struct testd *d, int64_t pid, const char *rest)
{
	char command[256];
	char up[32];
	(void)snprintf(command, sizeof command, "echo %lld >/proc/sys/kernel/ns_last_pid; sleep 3159 & echo $! up; %s",
		(long long)pid - 1, rest);
	(void)snprintf(up, sizeof up, "%lld up\n", (long long)pid);
	struct sse *s = sse_exec(d, command);
	ck_assert_int_ne(sse_pid(s), pid);
	sse_until(s, FRAME_STDOUT, up, NULL, 5000);
	return s;
}

// B16: the kernel gives the number of an ended command, whose timeout is not over yet, to somebody else.
START_TEST(recycled_pid_is_signalled)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct sse_event e = {0};
	struct sse *old = sse_open_pack(d, "/exec/stream", "{s:s, s:i}", "command", "exit 0", "timeout", 2);
	int64_t pid = sse_pid(old);
	sse_expect(old, &e, SSE_EXIT, 5000);
	sse_close(old);
	struct sse *s = take_pid(d, pid, "wait");
	static const char *const rest[] = {"", ",\"group\":false"};
	for (int i = 0; i < COUNT(rest); i++) {
		(void)send_signal(d, pid, "9", rest[i], &r);
		(void)assert_error(&r, 404, "not_found");
	}
	req_pack(d, "POST", "/exec/stdin", &r, "{s:I, s:s}", "pid", (json_int_t)pid, "data", "aGk=");
	(void)assert_error(&r, 404, "not_found");
	req_pack(d, "POST", "/exec/stdin/close", &r, "{s:I}", "pid", (json_int_t)pid);
	(void)assert_error(&r, 404, "not_found");
	// Beyond the old one's deadline.
	ck_assert_int_eq(sse_next(s, &e, 2500), SSE_TIMEOUT);
	ck_assert(d_nspid_alive(d, pid));
	sse_close(s);
	sse_event_release(&e);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A new command under an old number is the one that is meant from then on.
START_TEST(recycled_pid_of_a_new_command_is_not_found)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct sse_event e = {0};
	struct sse *old = sse_open_pack(d, "/exec/stream", "{s:s, s:i}", "command", "echo old; exit 3", "timeout", 2);
	int64_t pid = sse_pid(old);
	sse_expect(old, &e, SSE_DATA, 5000);
	sse_expect(old, &e, SSE_EXIT, 5000);
	sse_close(old);
	struct sse *s = NULL;
	// Somebody else may fork in between: try a few times.
	for (int i = 0; i < 20 && !s; i++) {
		char set[96];
		(void)snprintf(set, sizeof set, "echo %lld >/proc/sys/kernel/ns_last_pid", (long long)pid - 1);
		ck_assert_int_eq(j_int(run(d, set, &r), "exit_code"), 0);
		s = sse_exec(d, "echo new; exec sleep 3160");
		if (sse_pid(s) != pid) {
			sse_close(s);
			s = NULL;
		}
	}
	ck_assert_msg(s, "the pid %lld was not given again", (long long)pid);
	sse_until(s, FRAME_STDOUT, "new\n", NULL, 5000);
	ck_assert_int_eq(sse_next(s, &e, 2500), SSE_TIMEOUT); // the old one's deadline
	struct sse *a = sse_attach(d, pid);
	ck_assert_int_eq(sse_pid(a), pid);
	struct buf out = {0};
	sse_until(a, FRAME_STDOUT, "new\n", &out, 5000);
	assert_text(&out, "new\n");
	must_signal(d, pid, "\"USR1\"", "");
	expect_death(s, "SIGUSR1");
	buf_release(&out);
	sse_close(a);
	sse_event_release(&e);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// 200 until the end, 404 from then on, and never a false end.
START_TEST(signals_race_the_exit)
{
	struct testd *d = d_start();
	struct resp r = {0};
	for (int i = 0; i < 30; i++) {
		struct sse_out o = {0};
		struct sse *s = sse_exec(d, "exec sleep 0.02");
		int64_t pid = sse_pid(s);
		int status = 200;
		int64_t end = h_now_ms() + h_scaled(5000);
		for (int k = 0; status == 200 && h_now_ms() < end; k++)
			status = send_signal(d, pid, "\"WINCH\"", k % 2 ? "" : ",\"group\":false", &r);
		(void)assert_error(&r, 404, "not_found");
		sse_collect(s, &o, CLIENT_DEADLINE);
		ck_assert_int_eq(o.end.kind, SSE_EXIT);
		ck_assert_int_eq(o.end.code, 0);
		sse_close(s);
		sse_out_release(&o);
	}
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Traces the daemon until it is about to be told of a child's end, and goes away with that. False if it may not be traced here.
static bool steal_sigchld(pid_t daemon)
{
	int status;
	if (ptrace(PTRACE_SEIZE, daemon, 0, 0) < 0)
		return false;
	while (waitpid(daemon, &status, __WALL) == daemon && WIFSTOPPED(status)) {
		long sig = status >> 16 ? 0 : WSTOPSIG(status);
		if (sig == SIGCHLD) {
			ck_assert_int_eq(ptrace(PTRACE_DETACH, daemon, 0, 0), 0);
			return true;
		}
		ck_assert_int_eq(ptrace(PTRACE_CONT, daemon, 0, sig), 0);
	}
	ck_abort_msg("the daemon is gone");
}

// What `strace -p PID | head` does to whom it traces.
START_TEST(tracer_takes_the_end_of_a_command_along)
{
	struct testd *d = d_start();
	struct sse *s = sse_exec(d, "sleep 0.3; exit 3");
	struct sse_event e = {0};
	sse_pid(s);
	if (steal_sigchld(d->daemon)) {
		sse_expect(s, &e, SSE_EXIT, 5000);
		ck_assert_int_eq(e.code, 3);
		sse_expect(s, &e, SSE_END, 2000);
	}
	sse_event_release(&e);
	sse_close(s);
	d_finish(d);
}
END_TEST

Suite *signals_suite(void)
{
	Suite *s = suite_create("signals");
	TCase *tc = h_tcase(s, "reach", 30);
	tcase_add_test(tc, spelling_of_a_signal_is_refused);
	tcase_add_test(tc, realtime_signal_is_lost);
	tcase_add_test(tc, bad_signal_reaches_the_command);
	tcase_add_test(tc, kill_reaches_the_leader_only);
	tcase_add_loop_test(tc, group_is_taken_for_the_leader_or_the_other_way, 0, COUNT(groups_asked));
	tcase_add_test(tc, term_turns_into_kill);
	tcase_add_test(tc, signal_comes_twice_or_changed);
	tcase_add_test(tc, stopped_command_is_taken_for_an_ended_one);
	tcase_add_test(tc, ended_command_is_signalled);
	tcase_add_test(tc, signals_race_the_exit);
	tcase_add_test(tc, tracer_takes_the_end_of_a_command_along);
	tc = h_tcase(s, "numbers", 30);
	if (geteuid() == 0)
		tcase_add_test(tc, signal_reaches_a_stranger);
	if (geteuid() == 0 && d_env_pid1()) {
		// Only in a namespace of its own may the next pid be set: others would get surprising numbers.
		tcase_add_test(tc, recycled_pid_is_signalled);
		tcase_add_test(tc, recycled_pid_of_a_new_command_is_not_found);
	}
	return s;
}
