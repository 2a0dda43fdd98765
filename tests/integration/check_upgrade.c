// SPDX-License-Identifier: Apache-2.0
// A new binary takes the daemon's place while commands run and clients read.
#include "tests/integration/deathkit.h"
#include "tests/integration/envdkit.h"
#include "tests/integration/suites.h"
#include "tests/integration/workkit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define START "process.Process/Start"
#define CONNECT "process.Process/Connect"

// --- binaries ---

// A copy of the one under test in a directory of its own, which the caller removes.
struct copy {
	char dir[64];
	char path[96];
};

// Replaces it with the same program, MORE bytes longer, or with TEXT.
static void copy_put(const struct copy *c, size_t more, const char *text)
{
	char temporary[120], part[65536];
	const char *name = getenv("CELLD");
	int from = open(name && *name ? name : "build/celld", O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(from, 0);
	(void)snprintf(temporary, sizeof temporary, "%s.new", c->path);
	int to = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	ck_assert_int_ge(to, 0);
	for (ssize_t n; !text && (n = read(from, part, sizeof part)) > 0;)
		ck_assert_int_eq(write(to, part, (size_t)n), n);
	while (!text && more-- > 0)
		ck_assert_int_eq(write(to, "x", 1), 1);
	if (text)
		ck_assert_int_eq(write(to, text, strlen(text)), (ssize_t)strlen(text));
	(void)close(from);
	(void)close(to);
	ck_assert_int_eq(rename(temporary, c->path), 0);
}

static void copy_make(struct copy *c)
{
	(void)snprintf(c->dir, sizeof c->dir, "/tmp/celld-it-binary-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(c->dir));
	ck_assert_int_eq(chmod(c->dir, 0755), 0);
	(void)snprintf(c->path, sizeof c->path, "%s/celld", c->dir);
	copy_put(c, 0, NULL);
}

// The size of the file that PID executes.
static off_t size_of(pid_t pid)
{
	char path[64];
	struct stat st;
	(void)snprintf(path, sizeof path, "/proc/%d/exe", (int)pid);
	ck_assert_int_eq(stat(path, &st), 0);
	return st.st_size;
}

START_TEST(old_binary_runs_on)
{
	struct copy c;
	struct sse_out o = {0};
	struct resp r = {0};
	copy_make(&c);
	struct testd *d = death_start(c.path, NULL);
	off_t size = size_of(d->daemon);
	struct sse *s = sse_exec(d, "read x; exit 41");
	int64_t pid = sse_pid(s);
	copy_put(&c, 7, NULL);
	death_upgrade(d);
	sse_close(s);
	ck_assert_int_eq(size_of(d->daemon), size + 7);
	ck_assert_int_eq(size_of(d->init), size); // init itself stays the old one
	ck_assert_ptr_nonnull(death_row(d, pid, &r));
	// A crash brings the new one back.
	death_crash(d, SIGKILL);
	ck_assert_int_eq(size_of(d->daemon), size + 7);
	copy_put(&c, 20, NULL);
	ck_assert_int_eq(kill(d->daemon, SIGUSR2), 0); // to the daemon itself
	death_await(d, d->daemon, 5000);
	ck_assert_int_eq(size_of(d->daemon), size + 20);
	json_t *status = death_status(d, &r);
	ck_assert_int_eq(j_int(status, "upgrades"), 2);
	ck_assert_int_eq(j_int(status, "restarts"), 1);
	death_feed(d, pid, "\n", 1);
	death_collect(d, pid, 41, &o);
	death_assert_serves(d);
	sse_out_release(&o);
	resp_release(&r);
	guard_remove_tree(c.dir);
	d_finish(d);
}
END_TEST

// The status of an answer; 0 if the connection was cut: it had been taken on just before its daemon went.
static int ask(const struct testd *d, const char *method, const char *target, const char *body)
{
	struct resp r = {0};
	struct client *c = client_connect(d);
	client_request(c, method, target, NULL, body, body ? strlen(body) : 0);
	int status = client_try_response(c, &r) ? r.status : 0;
	if (status == 503)
		ck_assert(j_bool(assert_error(&r, 503, "unavailable"), "retryable"));
	client_close(c);
	resp_release(&r);
	return status;
}

// What stands at the path is no celld: the code of before goes on, and so do the commands.
struct broken {
	const char *text; // NULL: nothing at all
	mode_t mode;
	const char *log;
	bool refused; // the daemon does not even go
};

static const struct broken broken[] = {
	{NULL, 0, "No such file", true},
	{NULL, S_IFDIR | 0755, "Permission denied", true},
	{"x", 0644, "Permission denied", true},
	{"\x7f"
	 "ELF is not all",
		0755, "the code of before goes on", false},
	{"#!/nowhere/at/all\n", 0755, "the code of before goes on", false},
	{"#!/bin/sh\nexit 3\n", 0755, "does not stay alive", false},
	{"#!/bin/sh\nexit 0\n", 0755, "does not stay alive", false},
	{"#!/bin/sh\nkill -SEGV $$\n", 0755, "does not stay alive", false},
	{"#!/bin/sh\nexec sleep 1032\n", 0755, "does not stay alive", false},
};

START_TEST(broken_binary_ends_the_sandbox)
{
	const struct broken *b = &broken[_i];
	struct copy c;
	struct sse_out o = {0};
	copy_make(&c);
	struct testd *d = death_start(c.path, NULL);
	pid_t old = d->daemon;
	struct sse *s = sse_exec(d, "echo up; read x; exit 42");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	copy_put(&c, 0, b->text ? b->text : "");
	if (b->text)
		ck_assert_int_eq(chmod(c.path, b->mode), 0);
	else
		ck_assert_int_eq(unlink(c.path), 0);
	if (S_ISDIR(b->mode))
		ck_assert_int_eq(mkdir(c.path, b->mode), 0);
	d_signal(d, SIGUSR2);
	if (b->refused) {
		death_assert_log(d, b->log);
		ck_assert_int_eq(d_refresh(d), old);
	} else {
		// A daemon that is none has to be waited for, and killed.
		int64_t end = h_now_ms() + h_scaled(20000);
		while (ask(d, "GET", "/health", NULL) != 204)
			ck_assert_int_lt(h_now_ms(), end);
		death_await(d, old, 20000);
		death_assert_log(d, b->log);
	}
	sse_close(s);
	death_feed(d, pid, "\n", 1);
	death_collect(d, pid, 42, &o);
	assert_text(&o.ch[FRAME_STDOUT], "up\n");
	death_crash(d, SIGKILL);
	death_assert_serves(d);
	ck_assert_int_eq(d_count_cmdline(d, "sleep 1032", NULL), 0);
	sse_out_release(&o);
	guard_remove_tree(c.dir);
	d_finish(d);
}
END_TEST

// --- who is there while it happens ---

static void assert_leaving(struct sse *s)
{
	struct sse_out o = {0};
	sse_collect(s, &o, 5000);
	ck_assert_msg(o.end.kind == SSE_ERROR, "%s at the end", sse_kind_name(o.end.kind));
	ck_assert_str_eq(j_str(o.end.obj, "code"), "unavailable");
	ck_assert(j_bool(o.end.obj, "retryable"));
	sse_out_release(&o);
	sse_close(s);
}

static void assert_call_leaving(struct stream *s)
{
	struct played o = {0};
	stream_play(s, &o, 5000);
	ck_assert_ptr_nonnull(strstr(played_assert_error(&o, "unavailable"), "reconnect"));
	ck_assert_ptr_null(o.end);
	played_release(&o);
	stream_close(s);
}

START_TEST(streams_are_cut_without_a_word)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	int64_t pid[3];
	struct sse *a = sse_exec(d, "echo up; read x; exit 43");
	pid[0] = sse_pid(a);
	struct sse *b = sse_attach(d, pid[0]);
	char *json = sh_request("echo up; read x; exit 44", ",\"stdin\":true,\"tag\":\"t\"");
	struct stream *c = stream_open(d, START, CODEC_JSON, NULL, json);
	pid[1] = stream_pid(c);
	struct stream *e = stream_open(d, CONNECT, CODEC_PROTO, NULL, "{\"process\":{\"tag\":\"t\"}}");
	req_pack(d, "POST", "/pty/create", &r, "{s:[s,s,s]}", "argv", "/bin/sh", "-c", "read x; exit 45");
	pid[2] = j_int(resp_json(&r), "pid");
	int64_t id = j_int(resp_json(&r), "terminal_id");
	char target[64];
	(void)snprintf(target, sizeof target, "/pty/stream?terminal_id=%lld", (long long)id);
	struct sse *t = sse_open(d, target, NULL);
	struct stream *w = stream_open(d, "filesystem.Filesystem/WatchDir", CODEC_JSON, NULL, "{\"path\":\"/tmp\"}");
	sse_until(a, FRAME_STDOUT, "up\n", NULL, 5000);
	death_upgrade(d);
	assert_leaving(a);
	assert_leaving(b);
	assert_leaving(t);
	assert_call_leaving(c);
	assert_call_leaving(e);
	json_t *msg = NULL;
	enum stream_kind kind;
	while ((kind = stream_next(w, &msg, 5000)) == STREAM_MESSAGE)
		json_decref(msg);
	ck_assert_int_eq(kind, STREAM_LAST);
	ck_assert_str_eq(j_str(j_get(msg, "error"), "code"), "unavailable");
	json_decref(msg);
	stream_close(w);
	ck_assert_int_eq(j_int(death_status(d, &r), "restarts"), 0);
	death_feed(d, pid[0], "\n", 1);
	death_feed(d, pid[1], "\n", 1);
	death_post(d, "/pty/input", "{s:I,s:s}", "terminal_id", (json_int_t)id, "data", "\n");
	for (int i = 0; i < 3; i++) {
		struct sse_out o = {0};
		death_collect(d, pid[i], 43 + i, &o);
		ck_assert(!o.end.truncated);
		sse_out_release(&o);
	}
	free(json);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(requests_are_refused_or_cut)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	int gate = death_gate(d, "gate"), cut = 0, served = 0;
	static const char slow[] = "{\"command\":\"echo $$ >pid; read x <gate; echo slow\"}";
	struct client *waiting = client_connect(d);
	client_request(waiting, "POST", "/exec", NULL, slow, sizeof slow - 1);
	char *pid = NULL;
	for (int64_t end = h_now_ms() + h_scaled(3000); !pid || !*pid; pid = death_file(d, "pid")) {
		ck_assert_int_lt(h_now_ms(), end);
		free(pid);
		h_tick();
	}
	// One that is accepted: the next daemon takes those that are not.
	struct client *idle = client_connect(d);
	client_request(idle, "GET", "/health", NULL, NULL, 0);
	client_response(idle, &r);
	ck_assert_int_eq(r.status, 204);
	pid_t old = d->daemon;
	d_signal(d, SIGUSR2);
	for (int64_t end = h_now_ms() + h_scaled(4000); served < 20;) {
		int status = ask(d, "POST", "/exec", "{\"command\":\"echo x\"}");
		ck_assert_msg(status == 0 || status == 200 || status == 503, "status %d", status);
		cut += status == 0;
		served += status == 200;
		ck_assert_int_lt(h_now_ms(), end);
	}
	ck_assert_int_le(cut, 1);
	death_await(d, old, 5000);
	// The command that it waited for goes on, whatever it was told.
	client_response(waiting, &r);
	ck_assert(j_bool(assert_error(&r, 503, "unavailable"), "retryable"));
	ck_assert(d_nspid_alive(d, atoll(pid)));
	ck_assert_int_eq(write(gate, "\n", 1), 1);
	struct sse_out o = {0};
	death_collect(d, atoll(pid), 0, &o);
	assert_text(&o.ch[FRAME_STDOUT], "slow\n");
	sse_out_release(&o);
	ck_assert(client_wait_eof(idle, 2000));
	client_close(waiting);
	client_close(idle);
	free(pid);
	(void)close(gate);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- what goes over ---

// Also what the daemon itself still held.
START_TEST(input_is_lost_or_comes_twice)
{
	enum { ALL = 700000 };
	struct testd *d = death_start_with();
	struct sse_out o = {0};
	int gate = death_gate(d, "gate");
	char *bytes = malloc(ALL);
	ck_assert_ptr_nonnull(bytes);
	for (int i = 0; i < ALL; i++)
		bytes[i] = (char)('a' + i % 23);
	struct sse *s = sse_exec(d, "read x <gate; cat >file; exit 9");
	int64_t pid = sse_pid(s);
	death_feed(d, pid, bytes, ALL / 2);
	death_upgrade(d);
	death_feed(d, pid, bytes + ALL / 2, ALL / 2);
	death_post(d, "/exec/stdin/close", "{s:I}", "pid", (json_int_t)pid);
	death_upgrade(d);
	sse_close(s);
	ck_assert_int_eq(write(gate, "\n", 1), 1);
	death_collect(d, pid, 9, &o);
	char *file = death_file(d, "file");
	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(strlen(file), ALL);
	ck_assert_int_eq(memcmp(file, bytes, ALL), 0);
	free(file);
	free(bytes);
	sse_out_release(&o);
	(void)close(gate);
	d_finish(d);
}
END_TEST

START_TEST(background_run_is_disturbed)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	struct buf want = {0};
	req_pack(d, "POST", "/exec/background", &r, "{s:s,s:s,s:s}", "command",
		"i=0; while [ ! -e stop ] || [ $i -lt 3000 ]; do i=$((i+1)); echo L$i; "
		"[ $((i%50)) = 0 ] && sleep .01; done; echo $i >last; exit 4",
		"run_id", "r1", "session_id", "s1");
	ck_assert_int_eq(r.status, 200);
	for (int i = 0; i < 3; i++)
		death_upgrade(d);
	wk_put(wk_path(d, "stop"), "");
	ck_assert_int_eq(j_int(wk_await(d, "r1", &r), "exit_code"), 4);
	ck_assert(!j_bool(resp_json(&r), "truncated"));
	int last = atoi(wk_content(wk_path(d, "last")));
	for (int i = 1; i <= last; i++)
		buf_printf(&want, "L%d\n", i);
	char *file = death_file(d, ".k8e_bg/r1/stdout");
	ck_assert_ptr_nonnull(file);
	assert_text(&want, file);
	free(file);
	wk_await_events(d, "bg_submit bg_end ");
	buf_release(&want);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static int status_with(const struct testd *d, const char *token)
{
	char header[128];
	struct resp r = {0};
	struct client *c = client_connect(d);
	(void)snprintf(header, sizeof header, "X-Access-Token: %s\r\n", token);
	client_request(c, "GET", "/processes", header, NULL, 0);
	client_response(c, &r);
	int status = r.status;
	client_close(c);
	resp_release(&r);
	return status;
}

// True if SECRET stands in /proc/PID/NAME.
static bool shows(pid_t pid, const char *name, const char *secret)
{
	char path[64];
	static char text[65536];
	(void)snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ssize_t n = read(fd, text, sizeof text);
	(void)close(fd);
	return n > 0 && memmem(text, (size_t)n, secret, strlen(secret));
}

START_TEST(token_is_forgotten_or_shown)
{
	static const char secret[] = "s3cr3t-of-the-start";
	struct testd *d = death_start_with("--token", secret);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(status_with(d, secret), 200);
		ck_assert_int_eq(status_with(d, "another"), 401);
		ck_assert(!shows(d->daemon, "cmdline", secret));
		ck_assert(!shows(d->daemon, "environ", secret));
		if (i == 1)
			death_crash(d, SIGKILL);
		else
			death_upgrade(d);
	}
	d_finish(d);
}
END_TEST

START_TEST(state_of_init_is_forgotten)
{
	struct testd *d = death_start_with();
	struct resp r = {0};
	ck_assert_int_eq(envd_init(d, "{\"envVars\":{\"KEPT\":\"yes\"},\"defaultWorkdir\":\"/usr\"}"), 204);
	death_upgrade(d);
	envd_req(d, "GET", "/envs", NULL, NULL, 0, &r);
	ck_assert_str_eq(j_str(resp_json(&r), "KEPT"), "yes");
	struct played o = {0};
	sh_play(d, CODEC_JSON, NULL, "echo $KEPT; pwd; echo \"<$CELLD_RESUME>\"", &o);
	assert_text(&o.ch[FRAME_STDOUT], "yes\n/usr\n<>\n");
	played_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(upgrade_cannot_be_asked_for)
{
	struct copy c;
	struct resp r = {0};
	struct sse_out o = {0};
	copy_make(&c);
	struct testd *d = death_start(c.path, NULL);
	off_t size = size_of(d->daemon);
	struct sse *s = sse_exec(d, "read x; exit 46");
	int64_t pid = sse_pid(s);
	copy_put(&c, 9, NULL);
	envd_req(d, "POST", "/upgrade", NULL, NULL, 0, &r);
	(void)envd_want_rest(&r, 409);
	ck_assert_int_eq(envd_init(d, "{}"), 204);
	envd_req(d, "POST", "/upgrade", "Content-Type: application/octet-stream\r\n", "ELF", 3, &r);
	(void)envd_want_rest(&r, 501);
	pid_t old = d->daemon;
	ck_assert_int_eq(d_refresh(d), old);
	envd_req(d, "POST", "/upgrade", NULL, NULL, 0, &r);
	ck_assert_int_eq(r.status, 204);
	death_await(d, old, 5000);
	assert_leaving(s);
	ck_assert_int_eq(size_of(d->daemon), size + 9);
	death_feed(d, pid, "\n", 1);
	death_collect(d, pid, 46, &o);
	ck_assert_int_eq(unlink(c.path), 0);
	envd_req(d, "POST", "/upgrade", NULL, NULL, 0, &r);
	(void)envd_want_rest(&r, 500);
	death_assert_serves(d);
	sse_out_release(&o);
	resp_release(&r);
	guard_remove_tree(c.dir);
	d_finish(d);
}
END_TEST

struct flat {
	const struct testd *d;
	int fds;
};

// A connection that was closed is gone a moment later.
static bool is_flat(void *arg)
{
	const struct flat *f = arg;
	return d_fd_count(f->d) <= f->fds;
}

// Nobody runs out of anything: what one daemon left the next one has, and nothing more.
START_TEST(upgrades_leak)
{
	struct testd *d = death_start_with();
	struct testd init = death_init_view(d);
	struct sse_out o = {0};
	struct sse *s = sse_exec(d, "read x; exit 47");
	int64_t pid = sse_pid(s);
	death_upgrade(d);
	sse_close(s);
	death_assert_serves(d);
	struct flat f = {d, d_fd_count(d)}, init_f = {&init, d_fd_count(&init)};
	for (int i = 0; i < 6; i++)
		death_upgrade(d);
	death_assert_serves(d);
	ck_assert_msg(wait_until(is_flat, &f, 2000), "%d descriptors became %d", f.fds, d_fd_count(d));
	ck_assert_msg(wait_until(is_flat, &init_f, 2000), "init: %d became %d", init_f.fds, d_fd_count(&init));
	death_feed(d, pid, "\n", 1);
	death_collect(d, pid, 47, &o);
	sse_out_release(&o);
	d_finish(d);
}
END_TEST

// The sandbox ends while another binary is on its way.
START_TEST(stop_is_lost_in_an_upgrade)
{
	struct testd *d = death_start_with("--stop-grace", "300");
	struct sse *s = sse_exec(d, "trap '' TERM; echo up; sleep 1033");
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	d_signal(d, SIGUSR2);
	if (_i > 0)
		death_wait_until(h_now_ms(), _i * 3 - 2);
	ck_assert_int_eq(d_stop(d, 3000), 0);
	sse_close(s);
	d_finish(d);
}
END_TEST

Suite *upgrade_suite(void)
{
	Suite *s = suite_create("upgrade");
	TCase *tc = h_tcase(s, "binary", 40);
	tcase_add_test(tc, old_binary_runs_on);
	tcase_add_loop_test(tc, broken_binary_ends_the_sandbox, 0, (int)(sizeof broken / sizeof *broken));
	tc = h_tcase(s, "clients", 30);
	tcase_add_test(tc, streams_are_cut_without_a_word);
	tcase_add_test(tc, requests_are_refused_or_cut);
	tcase_add_test(tc, upgrade_cannot_be_asked_for);
	tc = h_tcase(s, "state", 30);
	tcase_add_test(tc, input_is_lost_or_comes_twice);
	tcase_add_test(tc, background_run_is_disturbed);
	tcase_add_test(tc, token_is_forgotten_or_shown);
	tcase_add_test(tc, state_of_init_is_forgotten);
	tcase_add_test(tc, upgrades_leak);
	tcase_add_loop_test(tc, stop_is_lost_in_an_upgrade, 0, 4);
	return s;
}
