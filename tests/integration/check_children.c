// SPDX-License-Identifier: Apache-2.0
// What a command starts with: descriptors, signals, session, limits, identity, directory, environment. Nothing of the daemon's own
// state may show, however odd the state is that the daemon itself was started in.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))
#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// stdout of COMMAND, run by /exec with exit code 0; borrowed from R.
static const char *out_of(const struct testd *d, const char *command, struct resp *r)
{
	const json_t *o = run(d, command, r);
	if (j_int(o, "exit_code") != 0)
		ck_abort_msg("%s: exit code %d, %s", command, (int)j_int(o, "exit_code"), j_str(o, "stderr"));
	return j_str(o, "stdout");
}

static void assert_out(const struct testd *d, const char *command, const char *want)
{
	struct resp r = {0};
	const char *got = out_of(d, command, &r);
	if (strcmp(got, want) != 0)
		ck_abort_msg("%s: \"%s\", want \"%s\"", command, got, want);
	resp_release(&r);
}

// The same through a stream; STDIN_OPEN is its stdin key.
static void assert_stream_out(const struct testd *d, const char *command, bool stdin_open, const char *want)
{
	struct sse_out o = {0};
	struct sse *s = sse_open_pack(d, "/exec/stream", "{s:s, s:b}", "command", command, "stdin", stdin_open);
	sse_collect(s, &o, CLIENT_DEADLINE);
	sse_close(s);
	assert_text(&o.ch[FRAME_STDOUT], want);
	sse_out_release(&o);
}

static void assert_line(const char *text, const char *line)
{
	size_t n = strlen(line);
	for (const char *p = text; *p; p += strcspn(p, "\n") + (p[strcspn(p, "\n")] == '\n'))
		if (strcspn(p, "\n") == n && memcmp(p, line, n) == 0)
			return;
	ck_abort_msg("no line \"%s\" in\n%s", line, text);
}

// --- a daemon that was started in an odd state ---

// Starts the daemon through a shell script of these lines, then ENV and ARGS as usual.
static struct testd *start_odd(const char *lines, const char *const *args)
{
	const char *name = getenv("CELLD");
	char *binary = realpath(name && *name ? name : "build/celld", NULL);
	ck_assert_ptr_nonnull(binary);
	char dir[] = "/tmp/celld-odd-XXXXXX";
	char script[64];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(script, sizeof script, "%s/start", dir);
	FILE *f = fopen(script, "we");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_gt(fprintf(f, "#!/bin/sh\n%s\nexec '%s' \"$@\"\n", lines, binary), 0);
	ck_assert_int_eq(fchmod(fileno(f), 0755), 0);
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_int_eq(setenv("CELLD", script, 1), 0);
	struct d_opts o = {.args = args};
	struct testd *d = d_start_opts(&o);
	ck_assert_int_eq(setenv("CELLD", binary, 1), 0);
	ck_assert_int_eq(unlink(script), 0);
	ck_assert_int_eq(rmdir(dir), 0);
	free(binary);
	return d;
}

static const char odd_state[] = "trap '' HUP INT QUIT USR1 USR2 PIPE ALRM TERM CHLD TSTP TTIN TTOU WINCH CONT\n"
				"umask 077\n"
				"exec 5</dev/null 6>>/dev/null 9</\n";

// Descriptors 0-2 alone, with requests, streams and other commands' pipes open in the daemon, and whatever it inherited.
START_TEST(descriptor_leaks_into_a_command)
{
	static const char list[] = "exec ls /proc/self/fd";
	static const char three[] = "0\n1\n2\n3\n"; // the last is the listing's own
	struct testd *d = start_odd(odd_state, NULL);
	struct sse *others[3];
	struct client *idle = client_connect(d);
	for (int i = 0; i < COUNT(others); i++)
		others[i] = sse_exec(d, "exec cat");
	ck_assert(client_send_str(idle, "GET /health HT"));
	assert_out(d, list, three);
	assert_stream_out(d, list, true, three);
	assert_stream_out(d, list, false, three);
	for (int i = 0; i < COUNT(others); i++)
		sse_close(others[i]);
	client_close(idle);
	d_finish(d);
}
END_TEST

// stdin is /dev/null or a pipe, the outputs two pipes, all blocking.
START_TEST(pipe_of_a_command_is_another_kind)
{
	static const char blocking[] =
		"for i in 0 1 2; do f=$(sed -n 's/^flags:[^0-9]*//p' /proc/$$/fdinfo/$i); echo $((f & 04000)); done";
	static const char kinds[] = "for i in 0 1 2; do readlink /proc/$$/fd/$i | sed 's/:.*//'; done; "
				    "[ \"$(readlink /proc/$$/fd/1)\" != \"$(readlink /proc/$$/fd/2)\" ] && echo two";
	struct testd *d = d_start();
	assert_out(d, kinds, "/dev/null\npipe\npipe\ntwo\n");
	assert_stream_out(d, kinds, false, "/dev/null\npipe\npipe\ntwo\n");
	assert_stream_out(d, kinds, true, "pipe\npipe\npipe\ntwo\n");
	assert_out(d, blocking, "0\n0\n0\n");
	assert_stream_out(d, blocking, true, "0\n0\n0\n");
	d_finish(d);
}
END_TEST

static void assert_clean_signals(const char *status)
{
	static const char *const sets[] = {"SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"};
	for (int i = 0; i < COUNT(sets); i++) {
		char line[40];
		(void)snprintf(line, sizeof line, "%s:\t0000000000000000", sets[i]);
		assert_line(status, line);
	}
}

START_TEST(signal_setting_leaks_into_a_command)
{
	static const char show[] = "exec cat /proc/self/status";
	struct testd *d = start_odd(odd_state, NULL);
	struct resp r = {0};
	struct sse_out o = {0};
	assert_clean_signals(out_of(d, show, &r));
	sse_run(d, show, 0, &o);
	assert_clean_signals(buf_cstr(&o.ch[FRAME_STDOUT]));
	sse_out_release(&o);
	resp_release(&r);
	assert_out(d, "umask", "0022\n");
	// A writer into a closed pipe dies of it, as everywhere.
	assert_out(d, "bash -c 'yes | head -n 1; echo ${PIPESTATUS[0]}'", "y\n141\n");
	d_finish(d);
}
END_TEST

// Leader of a session and a group of its own, without a terminal, a child of the daemon.
START_TEST(command_shares_the_daemons_session)
{
	struct testd *d = d_start();
	struct sse *s = sse_exec(d, "echo $$; exec cat /proc/$$/stat");
	struct sse_out o = {0};
	int64_t shown = 0;
	int pid = 0;
	int ppid = 0;
	int pgrp = 0;
	int session = 0;
	int tty = -1;
	sse_collect(s, &o, CLIENT_DEADLINE);
	sse_close(s);
	const char *text = buf_cstr(&o.ch[FRAME_STDOUT]);
	ck_assert_int_eq(sscanf(text, "%d", &pid), 1);
	shown = pid;
	const char *rest = strrchr(text, ')');
	ck_assert_ptr_nonnull(rest);
	ck_assert_int_eq(sscanf(rest + 1, " %*c %d %d %d %d", &ppid, &pgrp, &session, &tty), 4);
	ck_assert_int_eq(shown, o.pid);
	ck_assert_int_eq(pgrp, pid);
	ck_assert_int_eq(session, pid);
	ck_assert_int_eq(tty, 0);
	ck_assert_int_eq(d_outside_pid(d, ppid), d->daemon);
	sse_out_release(&o);
	d_finish(d);
}
END_TEST

// Commands get the limit back that the daemon was started with; the daemon itself takes all it may.
START_TEST(descriptor_limit_of_the_daemon_is_passed_on)
{
	struct testd *d = start_odd("ulimit -Sn 200; ulimit -Hn 800", NULL);
	struct rlimit own;
	assert_out(d, "ulimit -Sn; ulimit -Hn", "200\n800\n");
	assert_stream_out(d, "ulimit -Sn; ulimit -Hn", true, "200\n800\n");
	ck_assert_int_eq(prlimit(d->daemon, RLIMIT_NOFILE, NULL, &own), 0);
	ck_assert_uint_eq(own.rlim_cur, 800 - 8); // less what finding processes may need
	d_finish(d);
}
END_TEST

// The kernel's choice under memory pressure: a command before the daemon, never better off than the container was given.
static const struct {
	int original;
	const char *want;
} scores[] = {{0, "100\n"}, {50, "100\n"}, {100, "100\n"}, {300, "300\n"}, {1000, "1000\n"}};

START_TEST(command_outlives_the_daemon_under_memory_pressure)
{
	char lines[96];
	(void)snprintf(lines, sizeof lines, "echo %d >/proc/self/oom_score_adj", scores[_i].original);
	struct testd *d = start_odd(lines, NULL);
	assert_out(d, "cat /proc/self/oom_score_adj", scores[_i].want);
	d_finish(d);
}
END_TEST

static bool has_score(void *arg)
{
	const struct testd *d = arg;
	char path[64], text[16] = "";
	(void)snprintf(path, sizeof path, "/proc/%d/oom_score_adj", (int)d->daemon);
	FILE *f = fopen(path, "re");
	bool read = f && fgets(text, sizeof text, f);
	if (f)
		(void)fclose(f);
	return read && atoi(text) < 100;
}

// It has the commands' score while it starts some.
START_TEST(the_daemon_keeps_its_commands_score)
{
	struct testd *d = start_odd("echo 0 >/proc/self/oom_score_adj", NULL);
	ck_assert(has_score(d));
	for (int i = 0; i < 5; i++)
		assert_out(d, "cat /proc/self/oom_score_adj", "100\n");
	ck_assert(wait_until(has_score, d, 3000));
	assert_out(d, "cat /proc/self/oom_score_adj", "100\n");
	ck_assert(wait_until(has_score, d, 3000));
	d_finish(d);
}
END_TEST

// --- another user ---

START_TEST(root_leaks_into_an_unprivileged_command)
{
	struct testd *d = d_start("--user", "nobody");
	struct resp r = {0};
	char line[512];
	const struct passwd *pw = getpwnam("nobody");
	ck_assert_ptr_nonnull(pw);
	int uid = (int)pw->pw_uid;
	int gid = (int)pw->pw_gid;
	const char *status = out_of(d, "exec cat /proc/self/status", &r);
	(void)snprintf(line, sizeof line, "Uid:\t%d\t%d\t%d\t%d", uid, uid, uid, uid);
	assert_line(status, line);
	(void)snprintf(line, sizeof line, "Gid:\t%d\t%d\t%d\t%d", gid, gid, gid, gid);
	assert_line(status, line);
	static const char *const caps[] = {"CapInh:\t0000000000000000", "CapPrm:\t0000000000000000",
		"CapEff:\t0000000000000000", "CapAmb:\t0000000000000000"};
	for (int i = 0; i < COUNT(caps); i++)
		assert_line(status, caps[i]);
	// Its own groups alone: nothing of root's.
	(void)snprintf(line, sizeof line, "%d\n", gid);
	assert_out(d, "id -G", line);
	(void)snprintf(line, sizeof line, "%s %s %s %s\n", pw->pw_dir, "nobody", "nobody", pw->pw_shell);
	assert_out(d, "echo $HOME $USER $LOGNAME $SHELL", line);
	assert_out(d, "cat /proc/self/oom_score_adj", "100\n");
	assert_out(d, "head -c 1 /etc/shadow 2>&1 | grep -c denied", "1\n");
	// Its own workspace is writable only if the operator made it so; here the daemon has made none.
	(void)snprintf(line, sizeof line, "%s\n", d->workspace);
	assert_out(d, "pwd -P", line);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// A workspace that celld makes belongs to the user of the commands.
START_TEST(made_workspace_belongs_to_root)
{
	char base[] = "/tmp/celld-ws-XXXXXX";
	char dir[64];
	static const char *const args[] = {"--user", "nobody", NULL};
	ck_assert_ptr_nonnull(mkdtemp(base));
	ck_assert_int_eq(chmod(base, 0755), 0);
	(void)snprintf(dir, sizeof dir, "%s/a/b", base);
	const struct d_opts opts = {.args = args, .workspace = dir};
	struct testd *d = d_start_opts(&opts);
	assert_out(d, "echo text >file && stat -c %U . file && rm file", "nobody\nnobody\n");
	d_finish(d);
	guard_remove_tree(base);
}
END_TEST

// --- the directory ---

static int workdir_status(const struct testd *d, json_t *workdir, struct resp *r)
{
	static const char *const routes[] = {"/exec/stream", "/exec"};
	int status = 0;
	for (int i = 0; i < COUNT(routes); i++) {
		req_pack(d, "POST", routes[i], r, "{s:s, s:O}", "command", "echo 1 >ran", "workdir", workdir);
		ck_assert_msg(i == 0 || r->status == status, "%s: %d, %s: %d", routes[0], status, routes[i], r->status);
		status = r->status;
	}
	json_decref(workdir);
	return status;
}

static void make_dir(const struct testd *d, const char *name, mode_t mode)
{
	char path[512];
	(void)snprintf(path, sizeof path, "%s/%s", d->workspace, name);
	ck_assert_int_eq(mkdir(path, mode), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
}

// What hinders is told, and nothing runs anywhere else.
START_TEST(unreachable_workdir_is_ignored)
{
	struct testd *d = d_start("--user", "nobody");
	struct resp r = {0};
	char path[5000];
	make_dir(d, "locked", 0700);
	make_dir(d, "unlisted", 0711);
	(void)snprintf(path, sizeof path, "%s/loop", d->workspace);
	ck_assert_int_eq(symlink("loop", path), 0);
	(void)snprintf(path, sizeof path, "%s/dangling", d->workspace);
	ck_assert_int_eq(symlink("nowhere", path), 0);
	static const struct {
		const char *dir;
		int status;
		const char *sys;
	} bad[] = {
		{"locked", 403, "EACCES"},
		{"locked/below", 403, "EACCES"},
		{"/root", 403, "EACCES"},
		{"loop", 400, "ELOOP"},
		{"loop/x", 400, "ELOOP"},
		{"dangling", 400, "ENOENT"},
		{"/etc/passwd", 400, "ENOTDIR"},
		{" ", 400, "ENOENT"},
	};
	for (int i = 0; i < COUNT(bad); i++) {
		int status = workdir_status(d, json_string(bad[i].dir), &r);
		ck_assert_msg(status == bad[i].status, "%s: %d %s", bad[i].dir, status, buf_cstr(&r.body));
		ck_assert_str_eq(j_str(assert_error(&r, status, NULL), "errno"), bad[i].sys);
	}
	memset(path, 'd', sizeof path - 1);
	path[sizeof path - 1] = '\0';
	ck_assert_int_eq(workdir_status(d, json_string(path), &r), 400);
	ck_assert_str_eq(j_str(assert_error(&r, 400, "invalid_argument"), "errno"), "ENAMETOOLONG");
	ck_assert_int_eq(workdir_status(d, json_stringn("unlisted\0x", 10), &r), 400);
	ck_assert_int_eq(workdir_status(d, json_integer(1), &r), 400);
	ck_assert_int_eq(workdir_status(d, json_array(), &r), 400);
	ck_assert_int_eq(workdir_status(d, json_true(), &r), 400);
	(void)assert_error(&r, 400, "invalid_argument");
	ck_assert(d_no_commands(d));
	// A directory that may be entered but not listed is a fine one.
	req_pack(d, "POST", "/exec", &r, "{s:s, s:s}", "command", "basename $(pwd)", "workdir", "unlisted");
	ck_assert_str_eq(j_str(resp_json(&r), "stdout"), "unlisted\n");
	assert_out(d, "ls", "dangling\nlocked\nloop\nunlisted\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- the environment ---

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

// The sorted lines of TEXT, which is changed.
static size_t lines_of(char *text, char **lines, size_t max)
{
	size_t n = 0;
	for (char *p = strtok(text, "\n"); p && n < max; p = strtok(NULL, "\n"))
		lines[n++] = p;
	qsort(lines, n, sizeof *lines, by_text);
	return n;
}

// What the shell itself was started with, with ENV (JSON, or NULL), is what WANT has line by line, in any order.
static void assert_env(const struct testd *d, const char *env, const char *want)
{
	char body[1024];
	struct resp r = {0};
	char *got_lines[64];
	char *want_lines[64];
	(void)snprintf(body, sizeof body, "{\"command\":\"tr '\\\\0' '\\\\n' </proc/$$/environ\"%s%s}",
		env ? ",\"env\":" : "", env ? env : "");
	req(d, "POST", "/exec", body, &r);
	ck_assert_msg(r.status == 200, "%s: %d %s", body, r.status, buf_cstr(&r.body));
	char *got = strdup(j_str(resp_json(&r), "stdout"));
	char *copy = strdup(want);
	ck_assert(got && copy);
	size_t n = lines_of(got, got_lines, COUNT(got_lines));
	size_t m = lines_of(copy, want_lines, COUNT(want_lines));
	for (size_t i = 0; i < n && i < m; i++)
		ck_assert_str_eq(got_lines[i], want_lines[i]);
	ck_assert_uint_eq(n, m);
	free(got);
	free(copy);
	resp_release(&r);
}

static void default_env(const struct testd *d, const char *user, const char *more, char *out, size_t n)
{
	const struct passwd *pw = getpwnam(user);
	ck_assert_ptr_nonnull(pw);
	int len = snprintf(out, n,
		"PATH=%s/.venv/bin:" DEFAULT_PATH "\nVIRTUAL_ENV=%s/.venv\nHOME=%s\nUSER=%s\nLOGNAME=%s\nSHELL=%s\n%s",
		d->workspace, d->workspace, pw->pw_dir, user, user, pw->pw_shell, more);
	ck_assert(len > 0 && (size_t)len < n);
}

static const char *const own_env[] = {"LANG=C.UTF-8", "LC_ALL=C", "LD_PRELOAD_OLD=x", "TERM=dumb", "OPEN=a=b c",
	"SECRET=1", "HOME=/of/daemon", "PATH=/usr/bin:/bin:/usr/sbin:/sbin:/of/daemon", "USER=daemon", "EMPTY=", NULL};

START_TEST(environment_is_not_exactly_the_defaults)
{
	static const char *const users[] = {"root", "nobody"};
	const char *const args[] = {"--user", users[_i], NULL};
	const struct d_opts opts = {.args = args, .env = own_env};
	struct testd *d = d_start_opts(&opts);
	char want[2048];
	default_env(d, users[_i], "LANG=C.UTF-8\n", want, sizeof want);
	assert_env(d, NULL, want);
	assert_env(d, "null", want);
	assert_env(d, "{}", want);
	// What is no string is dropped, and drops nothing with it.
	assert_env(d, "{\"A\":1,\"HOME\":null,\"PATH\":[\"/x\"],\"USER\":{},\"LANG\":false,\"B\":1.5}", want);
	d_finish(d);
}
END_TEST

// Defaults < what the operator lets through < the request.
START_TEST(environment_has_the_wrong_order)
{
	static const char *const args[] = {
		"--pass-env", "OPEN", "--pass-env", "EMPTY", "--pass-env", "UNSET_ONE", "--pass-env", "USER", NULL};
	const struct d_opts opts = {.args = args, .env = own_env};
	struct testd *d = d_start_opts(&opts);
	char want[2048];
	default_env(d, "root", "LANG=C.UTF-8\nOPEN=a=b c\nEMPTY=\n", want, sizeof want);
	char *user = strstr(want, "\nUSER=root");
	ck_assert_ptr_nonnull(user);
	char patched[2048];
	(void)snprintf(patched, sizeof patched, "%.*s\nUSER=daemon%s", (int)(user - want), want, user + 10);
	assert_env(d, NULL, patched);
	assert_env(d,
		"{\"PATH\":\"/bin:/usr/bin\",\"HOME\":\"\",\"VIRTUAL_ENV\":\"/v\",\"USER\":\"me\",\"OPEN\":\"mine\","
		"\"LOGNAME\":\"me\",\"SHELL\":\"/bin/false\",\"LANG\":\"C\",\"EMPTY\":\"full\",\"A\":\"x=y\","
		"\"A=\":1,\"\\u20ac\":\"\\u20ac\"}",
		"PATH=/bin:/usr/bin\nHOME=\nVIRTUAL_ENV=/v\nUSER=me\nOPEN=mine\nLOGNAME=me\nSHELL=/bin/false\nLANG=C\n"
		"EMPTY=full\nA=x=y\n\342\202\254=\342\202\254\n");
	d_finish(d);
}
END_TEST

static const char *const bad_envs[] = {
	"[]", "\"A=1\"", "5", "true", "{\"\":\"x\"}", "{\"A=B\":\"x\"}", "{\"A\":\"x\\u0000y\"}"};

START_TEST(bad_environment_runs_the_command)
{
	static const char *const routes[] = {"/exec", "/exec/stream"};
	struct testd *d = d_start();
	struct resp r = {0};
	char body[128];
	for (int i = 0; i < COUNT(bad_envs); i++)
		for (int k = 0; k < COUNT(routes); k++) {
			(void)snprintf(body, sizeof body, "{\"command\":\"echo >ran\",\"env\":%s}", bad_envs[i]);
			req(d, "POST", routes[k], body, &r);
			ck_assert_msg(r.status == 400, "%s: %d", body, r.status);
			(void)assert_error(&r, 400, "invalid_argument");
		}
	assert_out(d, "ls", "");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// {"command":COMMAND,"env":{"V0":"xxx...",...}}: COUNT values of N bytes.
static char *long_env(const char *command, int count, size_t n)
{
	struct buf value = {0};
	h_repeat(&value, "x", n);
	json_t *env = json_object();
	for (int i = 0; i < count; i++) {
		char key[16];
		(void)snprintf(key, sizeof key, "V%d", i);
		ck_assert_int_eq(json_object_set_new(env, key, json_string(buf_cstr(&value))), 0);
	}
	json_t *o = json_pack("{s:s, s:o}", "command", command, "env", env);
	ck_assert_ptr_nonnull(o);
	char *text = j_text(o);
	json_decref(o);
	buf_release(&value);
	return text;
}

// B41: as much as the kernel takes; beyond, one string or all together, a clear error at once.
static const struct {
	int count;
	size_t n;
	bool fits;
} envs[] = {{1, 120000, true}, {1, 131068, true}, {1, 131069, false}, {1, 200000, false}, {10, 100000, true},
	{200, 100000, false}};

START_TEST(long_environment_hangs_or_is_cut)
{
	static const char *const routes[] = {"/exec/stream", "/exec"};
	struct testd *d = d_start();
	struct resp r = {0};
	char *body = long_env("echo ${#V0}", envs[_i].count, envs[_i].n);
	for (int i = envs[_i].fits; i < COUNT(routes); i++) {
		int64_t start = h_now_ms();
		req(d, "POST", routes[i], body, &r);
		ck_assert_int_lt(h_now_ms() - start, h_scaled(2000));
		if (!envs[_i].fits) {
			ck_assert_str_eq(j_str(assert_error(&r, 400, "invalid_argument"), "errno"), "E2BIG");
			continue;
		}
		ck_assert_msg(r.status == 200, "%d %.200s", r.status, buf_cstr(&r.body));
		ck_assert_int_eq(strtoll(j_str(resp_json(&r), "stdout"), NULL, 10), (int64_t)envs[_i].n);
	}
	assert_out(d, "echo ok", "ok\n");
	free(body);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- the token ---

// A command that knows the token could use the ports as another user. "%s" is where the daemon's own environment would show it.
START_TEST(token_shows_in_a_command)
{
	static const char token[] = "t0ken-of-the-check-4711";
	static const char *const by_option[] = {"--user", "nobody", "--token", token, NULL};
	static const char *const by_variable[] = {"--user", "nobody", NULL};
	static const char *const env[] = {"CELLD_TOKEN=t0ken-of-the-check-4711", NULL};
	static const char body[] = "{\"command\":\"cat /proc/$$/environ; cat /proc/[0-9]*/cmdline "
				   "/proc/[0-9]*/environ 2>/dev/null; env; ls /proc/self/fd; echo end\"}";
	const struct d_opts opts = {.args = _i ? by_option : by_variable, .env = _i ? NULL : env};
	struct testd *d = d_start_opts(&opts);
	struct client *c = client_connect(d);
	struct resp r = {0};
	client_request(c, "POST", "/exec", NULL, body, sizeof body - 1);
	client_response(c, &r);
	(void)assert_error(&r, 401, "unauthenticated");
	client_close(c);
	c = client_connect(d);
	client_request(c, "POST", "/exec", "X-Access-Token: t0ken-of-the-check-4711\r\n", body, sizeof body - 1);
	client_response(c, &r);
	ck_assert_int_eq(r.status, 200);
	ck_assert_ptr_nonnull(memmem(buf_data(&r.body), buf_len(&r.body), "\\nend\\n", 7));
	ck_assert_msg(!memmem(buf_data(&r.body), buf_len(&r.body), token, sizeof token - 1), "the token shows");
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *children_suite(void)
{
	Suite *s = suite_create("children");
	bool root = geteuid() == 0;
	TCase *tc = h_tcase(s, "state", 20);
	tcase_add_test(tc, descriptor_leaks_into_a_command);
	tcase_add_test(tc, pipe_of_a_command_is_another_kind);
	tcase_add_test(tc, signal_setting_leaks_into_a_command);
	tcase_add_test(tc, command_shares_the_daemons_session);
	tcase_add_test(tc, descriptor_limit_of_the_daemon_is_passed_on);
	tcase_add_loop_test(tc, command_outlives_the_daemon_under_memory_pressure, 0, COUNT(scores));
	tcase_add_test(tc, the_daemon_keeps_its_commands_score);
	tc = h_tcase(s, "environment", 20);
	tcase_add_loop_test(tc, environment_is_not_exactly_the_defaults, 0, root ? 2 : 0);
	if (root)
		tcase_add_test(tc, environment_has_the_wrong_order);
	tcase_add_test(tc, bad_environment_runs_the_command);
	tcase_add_loop_test(tc, long_environment_hangs_or_is_cut, 0, COUNT(envs));
	if (!root)
		return s; // the rest starts commands as another user
	tc = h_tcase(s, "user", 20);
	tcase_add_test(tc, root_leaks_into_an_unprivileged_command);
	tcase_add_test(tc, made_workspace_belongs_to_root);
	tcase_add_test(tc, unreachable_workdir_is_ignored);
	tcase_add_loop_test(tc, token_shows_in_a_command, 0, 2);
	return s;
}
