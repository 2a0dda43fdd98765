// SPDX-License-Identifier: Apache-2.0
// The reset of the workspace, and the virtual environment.
#include "tests/integration/suites.h"
#include "tests/integration/workkit.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

// --- reset ---

START_TEST(everything_below_goes)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct stat before, after;
	char cmd[1024];
	ck_assert_int_eq(stat(d->workspace, &before), 0);
	(void)snprintf(cmd, sizeof cmd,
		"mkdir -p a/b/c .hidden/.more ./-rf %s/out; touch f a/f a/b/c/f .dot \"$(printf 'n\\nl\\377')\" "
		"%s/out/keep; "
		"ln -s %s/out link; ln -s / root; mkfifo pipe; mkdir ro; touch ro/f; chmod 500 ro; mkdir none; chmod 0 "
		"none",
		d->base, d->base, d->base);
	ck_assert_int_eq(j_int(run(d, cmd, &r), "exit_code"), 0);
	// 17 entries, the journal of events and its directory.
	ck_assert_int_eq(j_int(wk_reset(d, &r), "removed"), 19);
	ck_assert_str_eq(wk_left(d), "");
	ck_assert_int_eq(stat(d->workspace, &after), 0);
	ck_assert_uint_eq(before.st_ino, after.st_ino);
	ck_assert_uint_eq(before.st_mode, after.st_mode);
	(void)snprintf(cmd, sizeof cmd, "ls %s/out", d->base);
	ck_assert_str_eq(j_str(run(d, cmd, &r), "stdout"), "keep\n");
	// Only what was there since.
	json_t *list = wk_events(d, "");
	ck_assert_str_eq(j_str(json_array_get(list, 0), "ev"), "reset");
	ck_assert_int_eq(j_int(json_array_get(list, 0), "removed"), 19);
	json_decref(list);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(everything_that_runs_ends)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct sse_out o = {0};
	struct sse *s = sse_open_pack(d, "/exec/stream", "{s:s, s:s}", "command",
		"trap '' TERM HUP INT; setsid sh -c 'exec sleep 7771' & (setsid sh -c 'exec sleep 7772 >&2' &); sleep "
		"7773",
		"session_id", "s");
	(void)sse_pid(s);
	req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s, s:s}", "command", "while :; do echo x >>grow$$; done",
		"run_id", "b", "session_id", "s");
	ck_assert_int_eq(r.status, 200);
	req_pack(d, "POST", "/pty/create", &r, "{s:[s,s]}", "argv", "sleep", "7774");
	ck_assert_int_eq(r.status, 200);
	req_pack(d, "POST", "/watch/create", &r, "{s:s}", "path", d->workspace);
	int64_t id = j_int(resp_json(&r), "watcher_id");
	int64_t start = h_now_ms();
	(void)wk_reset(d, &r);
	ck_assert_int_lt(h_now_ms() - start, h_scaled(3000));
	ck_assert(d_no_commands(d));
	sse_collect(s, &o, CLIENT_DEADLINE);
	ck_assert_str_eq(o.end.signal, "SIGKILL");
	req(d, "GET", "/exec/processes", NULL, &r);
	ck_assert_uint_eq(json_array_size(j_get(resp_json(&r), "processes")), 0);
	req(d, "GET", "/exec/background/b", NULL, &r);
	ck_assert_int_eq(r.status, 404);
	req(d, "GET", "/transcript?session=s", NULL, &r);
	ck_assert_int_eq(r.status, 404);
	char target[64];
	(void)snprintf(target, sizeof target, "/watch/events?watcher_id=%d", (int)id);
	req(d, "GET", target, NULL, &r);
	ck_assert(j_bool(resp_json(&r), "ended"));
	ck_assert_str_eq(wk_left(d), "");
	sse_out_release(&o);
	sse_close(s);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// The next tenant finds nothing of what the commands before it had said.
START_TEST(ended_commands_are_forgotten)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct sse_out o = {0};
	struct sse *s = sse_exec(d, "echo private");
	sse_collect(s, &o, CLIENT_DEADLINE);
	char target[64];
	(void)snprintf(target, sizeof target, "/exec/attach?pid=%d", (int)o.pid);
	sse_close(s);
	s = sse_open(d, target, NULL);
	sse_close(s);
	(void)wk_reset(d, &r);
	(void)wk_reset(d, &r); // an attacher may have been seen leaving only after the first
	req(d, "GET", target, NULL, &r);
	ck_assert_int_eq(r.status, 404);
	sse_out_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// What would leave something behind for the next tenant.
static const struct {
	const char *target, *body;
} intruders[] = {
	{"/exec", "{\"command\":\"touch intruder\"}"},
	{"/files/write", "{\"path\":\"intruder\",\"content\":\"x\"}"},
	{"/files/mkdir", "{\"path\":\"intruder\"}"},
	{"/files/move", "{\"source\":\"/nonexistent/file\",\"destination\":\"intruder\"}"},
	{"/pty/create", "{\"argv\":[\"touch\",\"intruder\"]}"},
	{"/exec/background", "{\"command\":\"touch intruder\",\"run_id\":\"r\"}"},
};

START_TEST(intruders_while_it_runs)
{
	struct testd *d = d_start();
	struct resp r = {0};
	const char *body = intruders[_i].body;
	bool refused = false;
	for (int i = 0; i < 5 && !refused; i++) {
		struct client *a = client_connect(d), *b = client_connect(d), *c = client_connect(d);
		struct resp ra = {0}, rc = {0};
		(void)run(d, "mkdir d && cd d && seq 20000 | xargs touch", &r);
		// Once what runs has been killed, it is at it.
		struct sse *s = sse_exec(d, "sleep 1000");
		struct sse_event e = {0};
		(void)sse_pid(s);
		client_request(a, "POST", "/workspace/reset", NULL, NULL, 0);
		sse_expect(s, &e, SSE_EXIT, CLIENT_DEADLINE);
		client_request(c, "POST", "/workspace/reset", NULL, NULL, 0);
		client_request(b, "POST", intruders[_i].target, NULL, body, strlen(body));
		client_response(b, &r);
		client_response(a, &ra);
		client_response(c, &rc);
		ck_assert_int_eq(ra.status, 200);
		ck_assert_int_eq(rc.status, 200);
		refused = r.status == 503;
		if (refused) {
			const json_t *o = assert_error(&r, 503, "unavailable");
			ck_assert_str_eq(j_str(o, "error"), "workspace is being reset");
			ck_assert(j_bool(o, "retryable"));
			ck_assert_str_eq(wk_left(d), "");
			// The second one shared the result of the first.
			ck_assert_int_ge(j_int(resp_json(&rc), "removed"), 20001);
			ck_assert_int_eq(j_int(resp_json(&rc), "removed"), j_int(resp_json(&ra), "removed"));
		}
		resp_release(&ra);
		resp_release(&rc);
		sse_event_release(&e);
		sse_close(s);
		client_close(a);
		client_close(b);
		client_close(c);
	}
	ck_assert_msg(refused, "%s met no reset", intruders[_i].target);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static bool has_reset(void *arg)
{
	return d_log_has(arg, "reset: 20002 entries removed") || d_log_has(arg, "reset: 20003 entries removed");
}

START_TEST(client_that_leaves)
{
	struct testd *d = d_start();
	struct resp r = {0};
	(void)run(d, "mkdir d && cd d && seq 20000 | xargs touch", &r);
	struct client *c = client_connect(d);
	client_request(c, "POST", "/workspace/reset", NULL, NULL, 0);
	client_abort(c);
	ck_assert(wait_until(has_reset, d, 10000));
	ck_assert_str_eq(wk_left(d), "");
	resp_release(&r);
	d_finish(d);
}
END_TEST

static bool set_immutable(const char *path, bool on)
{
	int flags = 0, fd = open(path, O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	bool ok = ioctl(fd, FS_IOC_GETFLAGS, &flags) == 0;
	flags = on ? flags | FS_IMMUTABLE_FL : flags & ~FS_IMMUTABLE_FL;
	ok = ok && ioctl(fd, FS_IOC_SETFLAGS, &flags) == 0;
	(void)close(fd);
	return ok;
}

START_TEST(leftover_is_an_error)
{
	struct testd *d = d_start();
	struct resp r = {0};
	(void)run(d, "mkdir -p a/b c; touch a/b/stays a/b/goes c/goes", &r);
	if (set_immutable(wk_path(d, "a/b/stays"), true)) { // else this file system has no such thing
		req(d, "POST", "/workspace/reset", NULL, &r);
		bool undone = set_immutable(wk_path(d, "a/b/stays"), false);
		ck_assert(undone);
		const json_t *o = assert_error(&r, 500, "internal");
		ck_assert_str_eq(j_str(o, "errno"), "EPERM");
		ck_assert_str_eq(j_str(o, "path"), wk_path(d, "a/b/stays"));
		ck_assert_ptr_nonnull(strstr(j_str(o, "error"), "a/b/stays"));
		ck_assert(!j_bool(o, "retryable"));
		ck_assert_str_eq(j_str(run(d, "find a c", &r), "stdout"), "a\na/b\na/b/stays\n");
	}
	(void)wk_reset(d, &r);
	ck_assert_str_eq(wk_left(d), "");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Mount points in the workspace stay, with what is in them.
START_TEST(mount_points_stay)
{
	if (geteuid() != 0)
		return;
	char dir[] = "/tmp/celld-mount-XXXXXX", sub[64];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(sub, sizeof sub, "%s/sub", dir);
	ck_assert_int_eq(mkdir(sub, 0755), 0);
	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("tmpfs", sub, "tmpfs", 0, "size=1m"), 0);
	const struct d_opts opts = {.workspace = dir};
	struct testd *d = d_start_opts(&opts);
	struct resp r = {0};
	(void)run(d, "touch sub/kept gone", &r);
	(void)wk_reset(d, &r);
	ck_assert_str_eq(j_str(run(d, "ls; ls sub", &r), "stdout"), "sub\nkept\n");
	resp_release(&r);
	ck_assert_int_eq(umount2(sub, MNT_DETACH), 0);
	(void)wk_reset(d, &r);
	resp_release(&r);
	d_finish(d);
	guard_remove_tree(dir);
}
END_TEST

// Who runs commands owns what is above the workspace, and has put a link in its place.
START_TEST(link_leads_elsewhere)
{
	if (geteuid() != 0)
		return;
	char dir[] = "/tmp/celld-link-XXXXXX", ws[64], mine[64], kept[64], script[512];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(ws, sizeof ws, "%s/home/ws", dir);
	(void)snprintf(mine, sizeof mine, "%s/home", dir);
	(void)snprintf(kept, sizeof kept, "%s/kept", dir);
	ck_assert(chmod(dir, 0755) == 0 && mkdir(mine, 0755) == 0 && chown(mine, 65534, 65534) == 0);
	ck_assert(mkdir(kept, 0755) == 0 && mkdir(ws, 0755) == 0 && chown(ws, 65534, 65534) == 0);
	const struct d_opts opts = {.workspace = ws, .args = (const char *const[]){"--user", "nobody", NULL}};
	struct testd *d = d_start_opts(&opts);
	struct resp r = {0};
	(void)snprintf(script, sizeof script, "touch here; mv %s %s.old; ln -s %s %s", ws, ws, kept, ws);
	ck_assert_str_eq(j_str(run(d, script, &r), "stderr"), "");
	wk_put(wk_path(d, "precious"), "x");
	req(d, "POST", "/workspace/reset", NULL, &r);
	const json_t *o = assert_error(&r, 500, "internal");
	ck_assert_str_eq(j_str(o, "errno"), "ELOOP");
	ck_assert_str_eq(j_str(o, "path"), ws);
	ck_assert_int_eq(access(wk_path(d, "precious"), F_OK), 0);
	// A link of root's, by which another one of theirs is reached.
	ck_assert(unlink(ws) == 0 && symlink("../home/a/../next", ws) == 0);
	(void)snprintf(script, sizeof script, "cd %s && mkdir a && ln -s %s next", mine, kept);
	req_pack(d, "POST", "/exec", &r, "{s:s, s:s, s:s}", "command", script, "workdir", "/", "session_id", "s1");
	req(d, "POST", "/workspace/reset", NULL, &r);
	ck_assert_str_eq(j_str(assert_error(&r, 500, "internal"), "errno"), "ELOOP");
	ck_assert_int_eq(access(wk_path(d, "precious"), F_OK), 0);
	// Nor is anything written there that only celld could write.
	(void)snprintf(script, sizeof script, "cd %s && ls -A", kept);
	req_pack(d, "POST", "/exec", &r, "{s:s, s:s}", "command", script, "workdir", "/");
	ck_assert_str_eq(j_str(resp_json(&r), "stdout"), "precious\n");
	// A link of root's alone is the operator's.
	ck_assert(unlink(ws) == 0 && symlink("../home/ws.old", ws) == 0);
	ck_assert_int_eq(access(wk_path(d, "here"), F_OK), 0);
	(void)wk_reset(d, &r);
	ck_assert_int_lt(access(wk_path(d, "here"), F_OK), 0);
	resp_release(&r);
	d_finish(d);
	guard_remove_tree(dir);
}
END_TEST

// A command of an earlier life has put a link where a directory of the way would be.
START_TEST(workspace_is_made_elsewhere)
{
	if (geteuid() != 0)
		return;
	const char *celld = getenv("CELLD");
	char dir[] = "/tmp/celld-made-XXXXXX", path[64], line[PATH_MAX + 256];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(path, sizeof path, "%s/kept", dir);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	(void)snprintf(path, sizeof path, "%s/a", dir);
	ck_assert(symlink("kept", path) == 0 && lchown(path, 65534, 65534) == 0);
	(void)snprintf(line, sizeof line,
		"timeout 9 %s --listen 127.0.0.1:0 --envd-listen off --workspace %s/a/b/ws 2>/dev/null",
		celld && *celld ? celld : "build/celld", dir);
	ck_assert_int_eq(WEXITSTATUS(system(line)), 1);
	(void)snprintf(path, sizeof path, "%s/kept", dir);
	ck_assert_msg(rmdir(path) == 0, "something was made in it");
	guard_remove_tree(dir);
}
END_TEST

START_TEST(workspace_that_is_gone)
{
	struct testd *d = d_start();
	struct resp r = {0};
	(void)run(d, "touch f; rm -rf \"$PWD\"", &r);
	ck_assert_int_lt(access(d->workspace, F_OK), 0);
	(void)wk_reset(d, &r);
	ck_assert_str_eq(j_str(run(d, "pwd", &r), "stderr"), "");
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(many_resets_leak_nothing)
{
	struct testd *d = d_start();
	struct resp r = {0};
	int fds = 0;
	long rss = 0;
	for (int i = 0; i < 300; i++) {
		req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s, s:s}", "command", "touch a b; sleep 1000",
			"run_id", "r", "session_id", "s");
		ck_assert_int_eq(r.status, 200);
		(void)wk_reset(d, &r);
		if (i == 50) {
			fds = d_fd_count(d);
			rss = d_rss_kib(d);
		}
	}
	ck_assert_int_le(d_fd_count(d), fds + 1);
	ck_assert_int_le(d_rss_kib(d), rss + (d_sanitized(d) ? 300000 : 500));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- the virtual environment ---

// A python3 of our own in /usr/local/bin, in a mount namespace of this test: it waits for the FIFO gate, then makes what it is
// asked for. False without the rights to do so.
static bool fake_python(char dir[32])
{
	char text[512];
	if (geteuid() != 0)
		return false;
	(void)snprintf(dir, 32, "/tmp/celld-venv-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	(void)snprintf(text, sizeof text, "%s/gate", dir);
	ck_assert_int_eq(mkfifo(text, 0600), 0);
	ck_assert_int_eq(unshare(CLONE_NEWNS), 0);
	ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	ck_assert_int_eq(mount("tmpfs", "/usr/local/bin", "tmpfs", 0, "size=1m"), 0);
	(void)snprintf(text, sizeof text,
		"#!/bin/sh\nfor dir; do :; done\nmkdir -p \"$dir/bin\"\nln -s /bin/true \"$dir/bin/python3\"\n"
		": >\"$dir/begun\"\nread word <%s/gate\ntest \"$word\" = go || { echo \"no $word\"; exit 1; }\n",
		dir);
	wk_put("/usr/local/bin/python3", text);
	ck_assert_int_eq(chmod("/usr/local/bin/python3", 0755), 0);
	return true;
}

static void tell(const char *dir, const char *word)
{
	char path[64];
	(void)snprintf(path, sizeof path, "%s/gate", dir);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_gt(write(fd, word, strlen(word)), 0);
	// Kept open until it was read: a FIFO that nobody has open forgets.
	int waiting;
	int64_t end = h_now_ms() + h_scaled(5000);
	while (ioctl(fd, FIONREAD, &waiting) == 0 && waiting > 0 && h_now_ms() < end)
		h_tick();
	(void)close(fd);
}

static bool venv_is_ready(void *arg)
{
	struct resp r = {0};
	req(arg, "POST", "/ready", NULL, &r);
	ck_assert_str_eq(j_str(resp_json(&r), "status"), "ready");
	bool ready = j_bool(resp_json(&r), "venv");
	resp_release(&r);
	return ready;
}

static bool venv_is_begun(void *arg)
{
	return access(wk_path(arg, ".venv/begun"), F_OK) == 0;
}

static void remove_dir(const char *dir)
{
	guard_remove_tree(dir);
}

START_TEST(venv_is_made_in_the_background)
{
	char dir[32];
	struct resp r = {0};
	pid_t pid;
	if (!fake_python(dir))
		return;
	struct testd *d = d_start("--venv", "auto");
	ck_assert(wait_until(venv_is_begun, d, 5000));
	// Requests are served meanwhile, it is no command of a client, and it has the lowest priority.
	ck_assert(!venv_is_ready(d));
	ck_assert_str_eq(j_str(run(d, "echo fine", &r), "stdout"), "fine\n");
	req(d, "GET", "/exec/processes", NULL, &r);
	ck_assert_uint_eq(json_array_size(j_get(resp_json(&r), "processes")), 0);
	ck_assert_int_ge(d_count_cmdline(d, "-m venv", &pid), 1);
	ck_assert_int_eq(getpriority(PRIO_PROCESS, (id_t)pid), 19);
	tell(dir, "go\n");
	ck_assert(wait_until(venv_is_ready, d, 5000));
	ck_assert_str_eq(wk_event_names(d), "exec_start exec_end ");
	ck_assert_str_eq(j_str(run(d, "command -v python3", &r), "stdout"), wk_path(d, ".venv/bin/python3\n"));
	// After a reset there is a new one.
	(void)wk_reset(d, &r);
	ck_assert(wait_until(venv_is_begun, d, 5000));
	ck_assert(!venv_is_ready(d));
	tell(dir, "go\n");
	ck_assert(wait_until(venv_is_ready, d, 5000));
	resp_release(&r);
	d_finish(d);
	remove_dir(dir);
}
END_TEST

static bool venv_has_failed(void *arg)
{
	return d_log_has(arg, "venv: python3 -m venv ended with 1: no nonsense");
}

START_TEST(venv_that_fails)
{
	char dir[32];
	if (!fake_python(dir))
		return;
	struct testd *d = d_start("--venv", "auto");
	tell(dir, "nonsense\n");
	ck_assert(wait_until(venv_has_failed, d, 5000));
	d_finish(d);
	remove_dir(dir);
}
END_TEST

// It is ended by a reset and by a stop, and an environment that is there is left alone.
START_TEST(venv_meanwhile)
{
	char dir[32];
	struct resp r = {0};
	if (!fake_python(dir))
		return;
	struct testd *d = d_start("--venv", "auto");
	ck_assert(wait_until(venv_is_begun, d, 5000));
	(void)wk_reset(d, &r);
	ck_assert(wait_until(venv_is_begun, d, 5000));
	ck_assert_int_eq(d_count_cmdline(d, "-m venv", NULL), 1);
	int64_t start = h_now_ms();
	d_finish(d);
	ck_assert_int_lt(h_now_ms() - start, h_scaled(1200));
	d = d_start("--venv", "off");
	ck_assert_int_eq(d_count_cmdline(d, "-m venv", NULL), 0);
	d_finish(d);
	char workspace[64];
	(void)snprintf(workspace, sizeof workspace, "%s/w", dir);
	ck_assert_int_eq(mkdir(workspace, 0755), 0);
	const char *const args[] = {"--venv", "auto", NULL};
	const struct d_opts opts = {.workspace = workspace, .args = args};
	(void)snprintf(workspace, sizeof workspace, "%s/w/.venv", dir);
	ck_assert_int_eq(mkdir(workspace, 0755), 0);
	*strrchr(workspace, '/') = '\0';
	d = d_start_opts(&opts);
	ck_assert(!venv_is_ready(d));
	ck_assert_int_eq(d_count_cmdline(d, "-m venv", NULL), 0);
	resp_release(&r);
	d_finish(d);
	remove_dir(dir);
}
END_TEST

Suite *workspace_suite(void)
{
	Suite *s = suite_create("workspace");
	TCase *tc = h_tcase(s, "reset", 40);
	tcase_add_test(tc, everything_below_goes);
	tcase_add_test(tc, everything_that_runs_ends);
	tcase_add_test(tc, ended_commands_are_forgotten);
	tcase_add_loop_test(tc, intruders_while_it_runs, 0, COUNT(intruders));
	tcase_add_test(tc, client_that_leaves);
	tcase_add_test(tc, leftover_is_an_error);
	tcase_add_test(tc, mount_points_stay);
	tcase_add_test(tc, link_leads_elsewhere);
	tcase_add_test(tc, workspace_is_made_elsewhere);
	tcase_add_test(tc, workspace_that_is_gone);
	tcase_add_test(tc, many_resets_leak_nothing);
	tc = h_tcase(s, "venv", 40);
	tcase_add_test(tc, venv_is_made_in_the_background);
	tcase_add_test(tc, venv_that_fails);
	tcase_add_test(tc, venv_meanwhile);
	return s;
}
