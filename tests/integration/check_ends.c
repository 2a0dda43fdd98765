// SPDX-License-Identifier: Apache-2.0
// The end of a command: when it comes and what code it carries.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

// Writes TEXT to NAME below the workspace.
static void put_file(const struct testd *d, const char *name, const char *text, mode_t mode)
{
	char path[512];
	(void)snprintf(path, sizeof path, "%s/%s", d->workspace, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(fchmod(fd, mode), 0);
	(void)close(fd);
}

// The number in the file NAME below the workspace, 0 if there is none yet.
static int number_in(const struct testd *d, const char *name)
{
	char path[512];
	int n = 0;
	(void)snprintf(path, sizeof path, "%s/%s", d->workspace, name);
	FILE *f = fopen(path, "r");
	if (!f)
		return 0;
	if (fscanf(f, "%d", &n) != 1)
		n = 0;
	(void)fclose(f);
	return n;
}

struct end_case {
	const char *command;
	const char *out; // how stdout begins
	int code;
};

// B08: somebody else holds the pipes when the command ends.
static const struct end_case held[] = {
	{"sleep 300 & echo STARTED", "STARTED\n", 0},
	{"(setsid sleep 300 >&2 &) ; exit 3", "", 3},
	{"(while :; do echo log; sleep .2; done) & echo up", "", 0},
	{"setsid sh -c 'sleep 300 & sleep 300' & echo two; exit 7", "two\n", 7},
	{"sleep 300 2>/dev/null & exit 4", "", 4},
};

START_TEST(grandchild_holds_the_stream_open)
{
	const struct end_case *k = &held[_i];
	struct testd *d = d_start();
	struct sse_out o = {0};
	int64_t start = h_now_ms();
	sse_run(d, k->command, k->code, &o);
	ck_assert_int_lt(h_now_ms() - start, h_scaled(1500));
	ck_assert_int_eq(memcmp(buf_data(&o.ch[FRAME_STDOUT]), k->out, strlen(k->out)), 0);
	sse_out_release(&o);
	d_finish(d);
}
END_TEST

START_TEST(grandchild_holds_exec_open)
{
	const struct end_case *k = &held[_i];
	struct testd *d = d_start();
	struct resp r = {0};
	int64_t start = h_now_ms();
	const json_t *o = run(d, k->command, &r);
	ck_assert_int_lt(h_now_ms() - start, h_scaled(1500));
	ck_assert_int_eq(j_int(o, "exit_code"), k->code);
	ck_assert(!j_bool(o, "timed_out"));
	ck_assert_int_eq(strncmp(j_str(o, "stdout"), k->out, strlen(k->out)), 0);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B08: the reader starts long after the exit was due; the command's own output is whole all the same.
START_TEST(held_pipe_costs_a_late_reader_output)
{
	struct testd *d = d_start();
	struct sse *s = sse_open_with(d, "/exec/stream", NULL,
		"{\"command\":\"sleep 300 & head -c 2000000 /dev/zero | tr '\\\\0' q; exit 5\"}", 4096);
	int64_t end = h_now_ms() + 1500;
	while (h_now_ms() < end)
		h_tick();
	struct sse_out o = {0};
	struct buf want = {0};
	h_repeat(&want, "q", 2000000);
	sse_collect(s, &o, CLIENT_DEADLINE);
	assert_bytes(&o.ch[FRAME_STDOUT], buf_data(&want), buf_len(&want));
	ck_assert_int_eq(o.end.kind, SSE_EXIT);
	ck_assert_int_eq(o.end.code, 5);
	ck_assert(!o.end.truncated);
	sse_close(s);
	sse_out_release(&o);
	buf_release(&want);
	d_finish(d);
}
END_TEST

static bool counted_on(void *arg)
{
	return number_in(arg, "count") >= 20;
}

static const char counting[] =
	"(n=0; while :; do echo log; echo log >&2; n=$((n+1)); echo $n >count; sleep .05; done) & echo up";

// B08: the survivor's writes after the end are drained: no SIGPIPE, no full pipe.
START_TEST(survivor_dies_of_sigpipe_after_the_stream)
{
	struct testd *d = d_start();
	struct sse_out o = {0};
	sse_run(d, counting, 0, &o);
	sse_out_release(&o);
	ck_assert_msg(wait_until(counted_on, d, 5000), "stopped at %d", number_in(d, "count"));
	d_finish(d);
}
END_TEST

START_TEST(survivor_dies_of_sigpipe_after_exec)
{
	struct testd *d = d_start();
	struct resp r = {0};
	(void)run(d, counting, &r);
	resp_release(&r);
	ck_assert_msg(wait_until(counted_on, d, 5000), "stopped at %d", number_in(d, "count"));
	d_finish(d);
}
END_TEST

static bool wrote_all(void *arg)
{
	return number_in(arg, "done") == 1;
}

// B08: more than a pipe holds.
START_TEST(survivor_blocks_on_a_full_pipe)
{
	struct testd *d = d_start();
	struct sse_out o = {0};
	sse_run(d, "(sleep .6; head -c 3000000 /dev/zero; echo 1 >done) & echo up", 0, &o);
	assert_text(&o.ch[FRAME_STDOUT], "up\n");
	sse_out_release(&o);
	ck_assert_msg(wait_until(wrote_all, d, 8000), "the survivor is blocked");
	d_finish(d);
}
END_TEST

// B09: closed pipes are no exit.
START_TEST(closed_pipes_are_taken_for_the_exit)
{
	struct testd *d = d_start();
	struct sse *s = sse_exec(d, "exec >&- 2>&-; sleep 2; exit 4");
	struct sse_event e = {0};
	int64_t start = h_now_ms();
	(void)sse_pid(s);
	uint64_t cpu = d_cpu_ticks(d);
	sse_expect(s, &e, SSE_EXIT, 8000);
	ck_assert_int_ge(e.at - start, 1900);
	ck_assert_int_eq(e.code, 4);
	ck_assert_msg(d_cpu_ticks(d) - cpu < 30, "the daemon spins on the closed pipes");
	sse_expect(s, &e, SSE_END, 2000);
	sse_event_release(&e);
	sse_close(s);
	d_finish(d);
}
END_TEST

START_TEST(closed_pipes_end_exec)
{
	struct testd *d = d_start();
	struct resp r = {0};
	uint64_t cpu = d_cpu_ticks(d);
	const json_t *o = run(d, "exec >&- 2>&-; sleep 2; exit 4", &r);
	ck_assert_int_eq(j_int(o, "exit_code"), 4);
	ck_assert_int_ge(j_int(o, "duration_ms"), 1900);
	ck_assert_int_lt(j_int(o, "duration_ms"), h_scaled(6000));
	ck_assert_msg(d_cpu_ticks(d) - cpu < 30, "the daemon spins on the closed pipes");
	resp_release(&r);
	d_finish(d);
}
END_TEST

static bool daemon_is_another(void *arg)
{
	struct testd *d = arg;
	pid_t old = d->daemon;
	pid_t now = d_refresh(d);
	return now > 0 && now != old;
}

// B09: the daemon dies in the middle: the client must not see an end.
START_TEST(cut_stream_looks_complete)
{
	struct testd *d = d_start("--init");
	struct sse *s = sse_exec(d, "echo one; exec sleep 30");
	struct sse_event e = {0};
	(void)sse_pid(s);
	sse_until(s, FRAME_STDOUT, "one\n", NULL, 5000);
	d_expect_crash(d);
	ck_assert_int_eq(kill(d->daemon, SIGKILL), 0);
	bool chunked = http_head(sse_client(s)->http)->chunked;
	enum sse_kind kind = sse_next(s, &e, 5000);
	ck_assert_msg(kind == SSE_CUT || (kind == SSE_END && !chunked), "a %s frame", sse_kind_name(kind));
	sse_event_release(&e);
	sse_close(s);
	ck_assert(wait_until(daemon_is_another, d, 5000));
	d_finish(d);
}
END_TEST

// B10: what cannot run. BAD: 126 or 127 is right.
struct bad_case {
	const char *command;
	int low;
	int high;
	bool silent; // nothing need be on stderr
};

static const struct bad_case bad[] = {
	{"celld_no_such_command", 127, 127, false},
	{"/nope/bin", 127, 127, false},
	{"./plain-file", 126, 126, false},
	{"./bad-interpreter", 126, 127, false},
	{"./empty", 0, 126, true},
	{"/", 126, 126, false},
};

static void put_bad_files(const struct testd *d)
{
	put_file(d, "plain-file", "#!/bin/sh\necho no\n", 0644);
	put_file(d, "bad-interpreter", "#!/nope/sh\necho no\n", 0755);
	put_file(d, "empty", "", 0755);
}

START_TEST(command_that_cannot_run_is_silent)
{
	const struct bad_case *k = &bad[_i];
	struct testd *d = d_start();
	struct resp r = {0};
	put_bad_files(d);
	const json_t *o = run(d, k->command, &r);
	int64_t code = j_int(o, "exit_code");
	ck_assert_msg(code == k->low || code == k->high, "%s: exit code %d", k->command, (int)code);
	ck_assert(k->silent || *j_str(o, "stderr"));
	ck_assert_str_eq(j_str(o, "stdout"), "");
	ck_assert_int_lt(j_int(o, "duration_ms"), h_scaled(1000));

	struct sse_out so = {0};
	int64_t start = h_now_ms();
	sse_run(d, k->command, code, &so);
	ck_assert_int_lt(h_now_ms() - start, h_scaled(1000));
	ck_assert_int_gt(so.pid, 0);
	ck_assert(k->silent || buf_len(&so.ch[FRAME_STDERR]) > 0);
	sse_out_release(&so);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// B10: 500 in a row on one connection.
START_TEST(failing_commands_wear_the_daemon_out)
{
	static const char body[] = "{\"command\":\"celld_no_such_command\"}";
	struct testd *d = d_start();
	struct resp r = {0};
	struct client *c = client_connect(d);
	int fds = 0;
	for (int i = 0; i < 500; i++) {
		client_request(c, "POST", "/exec", NULL, body, sizeof body - 1);
		client_response(c, &r);
		ck_assert_int_eq(r.status, 200);
		ck_assert_int_eq(j_int(resp_json(&r), "exit_code"), 127);
		if (i == 0)
			fds = d_fd_count(d);
	}
	ck_assert_int_eq(d_fd_count(d), fds);
	ck_assert_int_eq(d_zombies(d), 0);
	resp_release(&r);
	client_close(c);
	d_finish(d);
}
END_TEST

static const struct {
	const char *workdir;
	const char *sys;
} no_dirs[] = {{"/nope/dir", "ENOENT"}, {"missing", "ENOENT"}, {"plain-file", "ENOTDIR"}, {"plain-file/x", "ENOTDIR"}};

// B10: a missing directory is an error before anything runs.
START_TEST(command_runs_in_the_wrong_directory)
{
	static const char *const routes[] = {"/exec", "/exec/stream"};
	struct testd *d = d_start();
	struct resp r = {0};
	put_bad_files(d);
	for (int i = 0; i < COUNT(routes); i++) {
		req_pack(d, "POST", routes[i], &r, "{s:s, s:s}", "command", "echo 1 >count", "workdir",
			no_dirs[_i].workdir);
		ck_assert_str_eq(j_str(assert_error(&r, 400, NULL), "errno"), no_dirs[_i].sys);
		ck_assert(!j_bool(resp_json(&r), "retryable"));
	}
	ck_assert_int_eq(number_in(d, "count"), 0);
	resp_release(&r);
	ck_assert(d_no_commands(d));
	d_finish(d);
}
END_TEST

static const struct {
	const char *command;
	const char *signal; // NULL: a plain code
	int code;
} deaths[] = {
	{"kill -KILL $$", "SIGKILL", -1},
	{"kill -SEGV $$", "SIGSEGV", -1},
	{"kill -TERM $$", "SIGTERM", -1},
	{"kill -PIPE $$", "SIGPIPE", -1},
	{"kill -HUP $$", "SIGHUP", -1},
	{"exec sh -c 'kill -9 $$'", "SIGKILL", -1},
	{"exit 137", NULL, 137},
	{"exit 143", NULL, 143},
	{"exit 255", NULL, 255},
	{"exit 1", NULL, 1},
	{"exit 0", NULL, 0},
	// The shell is what ends, and it ends with a code.
	{"sh -c 'kill -9 $$'; exit $?", NULL, 137},
};

// B13
START_TEST(signal_is_reported_as_a_code)
{
	struct testd *d = d_start();
	struct resp r = {0};
	const json_t *o = run(d, deaths[_i].command, &r);
	ck_assert_int_eq(j_int(o, "exit_code"), deaths[_i].code);
	ck_assert_int_eq(j_has(o, "signal"), deaths[_i].signal != NULL);
	if (deaths[_i].signal)
		ck_assert_str_eq(j_str(o, "signal"), deaths[_i].signal);
	ck_assert(!j_bool(o, "timed_out"));
	resp_release(&r);

	struct sse *s = sse_exec(d, deaths[_i].command);
	struct sse_out so = {0};
	sse_collect(s, &so, CLIENT_DEADLINE);
	sse_close(s);
	ck_assert_int_eq(so.end.kind, SSE_EXIT);
	ck_assert_int_eq(so.end.code, deaths[_i].code);
	ck_assert_str_eq(so.end.signal, deaths[_i].signal ? deaths[_i].signal : "");
	ck_assert(!so.end.timed_out);
	sse_out_release(&so);
	d_finish(d);
}
END_TEST

// B63: scripts that only the shell may judge.
static const char *const odd[] = {
	"cat <<'EOF'\nit's \"quoted\" $HOME `x` \\\n\nEOF\n",
	"cat <<EOF\n$((6*7)) 'a'\nEOF",
	"echo 'unbalanced",
	"echo \"unbalanced",
	"echo trailing\\",
	"echo trailing \\\n",
	"echo a\r\nexit 3\r\n",
	"exit 3\r\n",
	"# only a comment",
	"   ",
	"\n\n",
	")",
	"-c",
	"--help",
	"echo \342\202\254 \"\t\"",
};

// What /bin/sh -c makes of it here: exit code, stdout in OUT, whether stderr got anything.
static int here(const struct testd *d, const char *command, struct buf *out, bool *err)
{
	char out_path[320];
	char err_path[320];
	(void)snprintf(out_path, sizeof out_path, "%s/here.out", d->base);
	(void)snprintf(err_path, sizeof err_path, "%s/here.err", d->base);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		if (!freopen("/dev/null", "r", stdin) || !freopen(out_path, "w", stdout) ||
			!freopen(err_path, "w", stderr) || chdir(d->workspace) < 0)
			_exit(99);
		(void)execl("/bin/sh", "/bin/sh", "-c", command, (char *)NULL);
		_exit(99);
	}
	int status = 0;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert(WIFEXITED(status));
	char part[4096];
	FILE *f = fopen(out_path, "r");
	ck_assert_ptr_nonnull(f);
	size_t n;
	while ((n = fread(part, 1, sizeof part, f)) > 0)
		buf_append(out, part, n);
	(void)fclose(f);
	struct stat st;
	ck_assert_int_eq(stat(err_path, &st), 0);
	*err = st.st_size > 0;
	return WEXITSTATUS(status);
}

START_TEST(script_is_changed_on_its_way_to_the_shell)
{
	struct testd *d = d_start();
	struct buf want = {0};
	struct resp r = {0};
	struct sse_out so = {0};
	bool err;
	int code = here(d, odd[_i], &want, &err);
	const json_t *o = run(d, odd[_i], &r);
	ck_assert_int_eq(j_int(o, "exit_code"), code);
	ck_assert_str_eq(j_str(o, "stdout"), buf_cstr(&want));
	ck_assert_int_eq(*j_str(o, "stderr") != '\0', err);
	sse_run(d, odd[_i], code, &so);
	assert_bytes(&so.ch[FRAME_STDOUT], buf_data(&want), buf_len(&want));
	sse_out_release(&so);
	resp_release(&r);
	buf_release(&want);
	d_finish(d);
}
END_TEST

// A script of N bytes that prints "end" and exits with 3.
static char *long_script(size_t n)
{
	static const char head[] = ": '";
	static const char tail[] = "'; echo end; exit 3";
	struct buf b = {0};
	buf_str(&b, head);
	h_repeat(&b, "x", n - (sizeof head - 1) - (sizeof tail - 1));
	buf_str(&b, tail);
	char *text = buf_take(&b, NULL);
	ck_assert_ptr_nonnull(text);
	return text;
}

// B63: as long as the kernel takes (128 KiB with the NUL), and a clear error beyond.
static const struct {
	size_t n;
	bool fits;
} lengths[] = {{65535, true}, {65536, true}, {120000, true}, {131071, true}, {131072, false}, {200000, false}};

START_TEST(long_script_is_cut_or_hangs)
{
	static const char *const routes[] = {"/exec", "/exec/stream"};
	struct testd *d = d_start();
	struct resp r = {0};
	char *script = long_script(lengths[_i].n);
	if (lengths[_i].fits) {
		const json_t *o = run(d, script, &r);
		ck_assert_int_eq(j_int(o, "exit_code"), 3);
		ck_assert_str_eq(j_str(o, "stdout"), "end\n");
		struct sse_out so = {0};
		sse_run(d, script, 3, &so);
		assert_text(&so.ch[FRAME_STDOUT], "end\n");
		sse_out_release(&so);
	}
	for (int i = 0; i < COUNT(routes) && !lengths[_i].fits; i++) {
		int64_t start = h_now_ms();
		req_pack(d, "POST", routes[i], &r, "{s:s}", "command", script);
		ck_assert_str_eq(j_str(assert_error(&r, 400, "invalid_argument"), "error"), "command too long");
		ck_assert_int_lt(h_now_ms() - start, h_scaled(1000));
	}
	free(script);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *ends_suite(void)
{
	Suite *s = suite_create("ends");
	TCase *tc = h_tcase(s, "held pipes", 20);
	tcase_add_loop_test(tc, grandchild_holds_the_stream_open, 0, COUNT(held));
	tcase_add_loop_test(tc, grandchild_holds_exec_open, 0, COUNT(held));
	tcase_add_test(tc, held_pipe_costs_a_late_reader_output);
	tcase_add_test(tc, survivor_dies_of_sigpipe_after_the_stream);
	tcase_add_test(tc, survivor_dies_of_sigpipe_after_exec);
	tcase_add_test(tc, survivor_blocks_on_a_full_pipe);
	tcase_add_test(tc, closed_pipes_are_taken_for_the_exit);
	tcase_add_test(tc, closed_pipes_end_exec);
	tcase_add_test(tc, cut_stream_looks_complete);
	tc = h_tcase(s, "failures", 30);
	tcase_add_loop_test(tc, command_that_cannot_run_is_silent, 0, COUNT(bad));
	tcase_add_test(tc, failing_commands_wear_the_daemon_out);
	tcase_add_loop_test(tc, command_runs_in_the_wrong_directory, 0, COUNT(no_dirs));
	tcase_add_loop_test(tc, signal_is_reported_as_a_code, 0, COUNT(deaths));
	tcase_add_loop_test(tc, script_is_changed_on_its_way_to_the_shell, 0, COUNT(odd));
	tcase_add_loop_test(tc, long_script_is_cut_or_hangs, 0, COUNT(lengths));
	return s;
}
