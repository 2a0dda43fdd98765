// SPDX-License-Identifier: Apache-2.0
// Contract A section 2: a system call's failure is an answer with its errno, never the daemon's end; and when what was missing is
// there again, everything works again.
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define NOBODY 65534
#define ECHO "{\"command\":\"echo a\"}"

static void want_errno(struct resp *r, int status, const char *code, const char *word, bool retryable)
{
	json_t *o = assert_error(r, status, code);
	ck_assert_str_eq(j_str(o, "errno"), word);
	ck_assert(j_bool(o, "retryable") == retryable);
	ck_assert_uint_eq(json_object_size(o), 4);
}

// Sets the soft limit of another process, as its own user: that needs no privilege. Returns the one before.
static rlim_t set_limit(pid_t pid, int which, rlim_t soft)
{
	struct rlimit old;
	struct stat st;
	char path[64];
	(void)snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
	ck_assert_int_eq(stat(path, &st), 0);
	int fd[2];
	ck_assert_int_eq(pipe(fd), 0);
	pid_t child = fork();
	ck_assert_int_ge(child, 0);
	if (child == 0) {
		if (st.st_uid != geteuid() && (setgid(st.st_gid) < 0 || setuid(st.st_uid) < 0))
			_exit(1);
		if (prlimit(pid, (__rlimit_resource_t)which, NULL, &old) < 0)
			_exit(2);
		struct rlimit new = {.rlim_cur = soft < old.rlim_max ? soft : old.rlim_max, .rlim_max = old.rlim_max};
		if (prlimit(pid, (__rlimit_resource_t)which, &new, NULL) < 0)
			_exit(3);
		_exit(write(fd[1], &old.rlim_cur, sizeof old.rlim_cur) == sizeof old.rlim_cur ? 0 : 4);
	}
	int status = -1;
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(status == 0, "prlimit failed at step %d", WEXITSTATUS(status));
	ck_assert_int_eq(read(fd[0], &old.rlim_cur, sizeof old.rlim_cur), sizeof old.rlim_cur);
	(void)close(fd[0]);
	(void)close(fd[1]);
	return old.rlim_cur;
}

// With WORKDIR (JSON text) as the only fault, on both routes.
static void want_bad_workdir(const struct testd *d, const char *workdir, int status, const char *code, const char *word)
{
	static const char *const paths[] = {"/exec", "/exec/stream"};
	struct resp r = {0};
	for (size_t i = 0; i < COUNT(paths); i++) {
		req_pack(d, "POST", paths[i], &r, "{s:s, s:s}", "command", "touch \"$OLDPWD/ran\" ran; exit 0",
			"workdir", workdir);
		want_errno(&r, status, code, word, false);
	}
	resp_release(&r);
}

START_TEST(bad_workdir_is_another_directory)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct buf name = {0};
	(void)run(d, "touch file; ln -s loop loop; ln -s missing dangling", &r);
	want_bad_workdir(d, "missing", 400, "invalid_argument", "ENOENT");
	want_bad_workdir(d, "/no/such/dir", 400, "invalid_argument", "ENOENT");
	want_bad_workdir(d, "dangling", 400, "invalid_argument", "ENOENT");
	want_bad_workdir(d, "file", 400, "invalid_argument", "ENOTDIR");
	want_bad_workdir(d, "file/below", 400, "invalid_argument", "ENOTDIR");
	want_bad_workdir(d, "loop", 400, "invalid_argument", "ELOOP");
	want_bad_workdir(d, "loop/below", 400, "invalid_argument", "ELOOP");
	h_repeat(&name, "n", 300);
	want_bad_workdir(d, buf_cstr(&name), 400, "invalid_argument", "ENAMETOOLONG");
	buf_reset(&name);
	h_repeat(&name, "/n", 3000);
	want_bad_workdir(d, buf_cstr(&name), 400, "invalid_argument", "ENAMETOOLONG");
	ck_assert_str_eq(j_str(run(d, "ls", &r), "stdout"), "dangling\nfile\nloop\n");
	buf_release(&name);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(forbidden_workdir_is_entered)
{
	struct testd *d = d_start("--user", "nobody");
	struct resp r = {0};
	char dir[400];
	(void)snprintf(dir, sizeof dir, "%s/closed", d->base);
	ck_assert_int_eq(mkdir(dir, 0700), 0);
	want_bad_workdir(d, dir, 403, "permission_denied", "EACCES");
	(void)snprintf(dir, sizeof dir, "%s/closed/below", d->base);
	want_bad_workdir(d, dir, 403, "permission_denied", "EACCES");
	ck_assert_str_eq(j_str(run(d, "id -u", &r), "stdout"), "65534\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// One string beyond the kernel's 128 KiB, and all together beyond what exec takes.
START_TEST(long_command_ends_the_daemon)
{
	enum { STRING_MAX = 128 * 1024 };
	struct testd *d = d_start();
	struct resp r = {0};
	struct buf b = {0};
	buf_str(&b, "echo a #");
	h_repeat(&b, "x", STRING_MAX - 1 - buf_len(&b));
	ck_assert_str_eq(j_str(run(d, buf_cstr(&b), &r), "stdout"), "a\n");
	buf_str(&b, "x");
	req_pack(d, "POST", "/exec", &r, "{s:s}", "command", buf_cstr(&b));
	ck_assert_str_eq(j_str(assert_error(&r, 400, "invalid_argument"), "error"), "command too long");
	req_pack(d, "POST", "/exec", &r, "{s:s, s:{s:s}}", "command", "echo a", "env", "LONG", buf_cstr(&b));
	want_errno(&r, 400, "invalid_argument", "E2BIG", false);
	json_t *env = json_object();
	for (int i = 0; i < 100; i++) {
		char name[16];
		(void)snprintf(name, sizeof name, "LONG%d", i);
		ck_assert_int_eq(json_object_set_new(env, name, json_stringn(buf_cstr(&b), STRING_MAX - 100)), 0);
	}
	req_pack(d, "POST", "/exec", &r, "{s:s, s:o}", "command", "echo a", "env", env);
	want_errno(&r, 400, "invalid_argument", "E2BIG", false);
	ck_assert_str_eq(j_str(run(d, "echo b", &r), "stdout"), "b\n");
	buf_release(&b);
	resp_release(&r);
	d_finish(d);
}
END_TEST

static bool no_commands(void *arg)
{
	return d_no_commands(arg);
}

struct fds {
	const struct testd *d;
	int want;
};

static bool has_fds(void *arg)
{
	const struct fds *f = arg;
	return d_fd_count(f->d) <= f->want;
}

// The last connection of the test may still be closing.
static void want_fds(const struct testd *d, int n)
{
	struct fds f = {d, n};
	ck_assert_msg(wait_until(has_fds, &f, 3000), "%d descriptors, there were %d", d_fd_count(d), n);
}

// Each kind of request that needs descriptors, on a connection from before and on one that comes meanwhile.
START_TEST(lack_of_descriptors_ends_the_daemon)
{
	static const char *const paths[] = {"/exec", "/exec/stream"};
	struct testd *d = d_start();
	struct client *c = client_connect(d);
	struct resp r = {0};
	client_request(c, "GET", "/health", NULL, NULL, 0);
	client_response(c, &r);
	int fds = d_fd_count(d);
	for (rlim_t spare = 0; spare < 9; spare++) {
		// Numbers below the limit are all in use but for SPARE of them: each step of a start fails once.
		rlim_t old = set_limit(d->daemon, RLIMIT_NOFILE, (rlim_t)fds + spare);
		bool refused = false;
		for (size_t i = 0; i < COUNT(paths); i++) {
			client_request(c, "POST", paths[i], NULL, ECHO, strlen(ECHO));
			client_response(c, &r);
			if (r.status != 200)
				want_errno(&r, 503, "resource_exhausted", "EMFILE", true);
			refused = refused || r.status != 200;
		}
		ck_assert_msg(refused || spare > 0, "no descriptor was missing");
		struct client *late = spare ? NULL : client_connect(d);
		if (late) { // the idle one makes room for it
			client_request(late, "GET", "/health", NULL, NULL, 0);
			client_response(late, &r);
			ck_assert_int_eq(r.status, 204);
			ck_assert(client_wait_eof(c, 1000));
			client_close(c);
			c = late;
		}
		(void)set_limit(d->daemon, RLIMIT_NOFILE, old);
		ck_assert_str_eq(j_str(run(d, "echo b", &r), "stdout"), "b\n");
	}
	ck_assert_msg(wait_until(no_commands, d, 3000), "a command is left");
	want_fds(d, fds);
	client_close(c);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(low_descriptor_limit_ends_the_daemon)
{
	enum { CONNS = 24 };
	const struct d_opts opts = {.nofile = 64};
	struct testd *d = d_start_opts(&opts);
	struct client *c[CONNS];
	struct resp r = {0};
	int at = 0;
	for (int i = 0; i < CONNS; i++) {
		c[i] = client_connect(d);
		client_request(c[i], "GET", "/health", NULL, NULL, 0);
		client_response(c[i], &r);
		ck_assert_int_eq(r.status, 204);
	}
	for (;; at++) {
		struct buf body = {0};
		ck_assert_msg(at < CONNS, "no limit in sight");
		client_request(c[at], "POST", "/exec/stream", NULL, "{\"command\":\"cat\"}", 17);
		ck_assert_int_eq(client_event(c[at], &body, h_now_ms() + h_scaled(5000)), HTTP_HEAD);
		int status = http_head(c[at]->http)->status;
		ck_assert_int_eq(client_event(c[at], &body, h_now_ms() + h_scaled(5000)), HTTP_BODY);
		const char *text = buf_cstr(&body);
		ck_assert_msg(status == 200 || (status == 503 && strstr(text, "\"EMFILE\"")), "%d %s", status, text);
		buf_release(&body);
		if (status == 503)
			break;
	}
	ck_assert_int_gt(at, 2);
	d_assert_alive(d);
	for (int i = 0; i < CONNS; i++)
		client_abort(c[i]);
	// The commands live on without their readers: their places are still taken.
	req(d, "GET", "/exec/processes", NULL, &r);
	json_t *list = j_get(resp_json(&r), "processes");
	ck_assert_uint_eq(json_array_size(list), (size_t)at);
	struct resp kill = {0};
	for (int i = 0; i < at; i++) {
		req_pack(d, "POST", "/exec/signal", &kill, "{s:I, s:s}", "pid",
			(json_int_t)j_int(json_array_get(list, (size_t)i), "pid"), "signal", "KILL");
		ck_assert_int_eq(kill.status, 200);
	}
	resp_release(&kill);
	ck_assert(wait_until(no_commands, d, 3000));
	ck_assert_str_eq(j_str(run(d, "echo b", &r), "stdout"), "b\n");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// Idle connections must not keep the last descriptors from a new one.
START_TEST(idle_connections_lock_health_out)
{
	enum { COMMANDS = 12, CLIENTS = 40 };
	const struct d_opts opts = {.nofile = 64};
	struct testd *d = d_start_opts(&opts);
	struct client *c[COMMANDS], *idle[CLIENTS];
	struct resp r = {0};
	for (int i = 0; i < COMMANDS; i++) {
		c[i] = client_connect(d);
		client_request(c[i], "POST", "/exec/stream", NULL, "{\"command\":\"exec sleep 99\"}", 27);
		client_response_head(c[i], &r);
	}
	for (int i = 0; i < CLIENTS; i++) {
		idle[i] = client_connect(d);
		client_request(idle[i], "GET", "/health", NULL, NULL, 0);
		client_response(idle[i], &r);
		ck_assert_int_eq(r.status, 204);
	}
	for (int i = 0; i < COMMANDS; i++)
		client_close(c[i]);
	for (int i = 0; i < CLIENTS; i++)
		client_close(idle[i]);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// An unprivileged celld, for whom the limit of processes counts: started through a script that changes the user.
static struct testd *start_as_nobody(char *dir, size_t n)
{
	const char *celld = getenv("CELLD");
	char script[400];
	char *binary = realpath(celld && *celld ? celld : "build/celld", NULL);
	ck_assert_ptr_nonnull(binary);
	(void)snprintf(dir, n, "/tmp/celld-it-nobody-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chown(dir, NOBODY, NOBODY), 0);
	(void)snprintf(script, sizeof script, "%s.sh", dir);
	FILE *f = fopen(script, "w");
	ck_assert_ptr_nonnull(f);
	(void)fprintf(
		f, "#!/bin/sh\nexec setpriv --reuid %d --regid %d --clear-groups %s \"$@\"\n", NOBODY, NOBODY, binary);
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_int_eq(chmod(script, 0755), 0);
	char *before = celld ? strdup(celld) : NULL;
	ck_assert_int_eq(setenv("CELLD", script, 1), 0);
	const struct d_opts opts = {.workspace = dir};
	struct testd *d = d_start_opts(&opts);
	ck_assert_int_eq(before ? setenv("CELLD", before, 1) : unsetenv("CELLD"), 0);
	(void)unlink(script);
	free(before);
	free(binary);
	return d;
}

START_TEST(refused_fork_ends_the_daemon)
{
	static const char *const paths[] = {"/exec", "/exec/stream"};
	char dir[64];
	struct testd *d = start_as_nobody(dir, sizeof dir);
	struct resp r = {0};
	ck_assert_str_eq(j_str(run(d, "id -u", &r), "stdout"), "65534\n");
	int fds = d_fd_count(d);
	for (int round = 0; round < 3; round++) {
		rlim_t old = set_limit(d->daemon, RLIMIT_NPROC, 0);
		for (int i = 0; i < 20; i++) {
			req(d, "POST", paths[i % 2], ECHO, &r);
			want_errno(&r, 503, "resource_exhausted", "EAGAIN", true);
		}
		req(d, "GET", "/health", NULL, &r);
		ck_assert_int_eq(r.status, 204);
		(void)set_limit(d->daemon, RLIMIT_NPROC, old);
		ck_assert_str_eq(j_str(run(d, "echo b", &r), "stdout"), "b\n");
	}
	want_fds(d, fds);
	ck_assert_int_eq(d_zombies(d), 0);
	resp_release(&r);
	d_finish(d);
	guard_remove_tree(dir);
}
END_TEST

static rlim_t address_space(pid_t pid)
{
	char path[64];
	unsigned long pages = 0;
	(void)snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
	FILE *f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%lu", &pages), 1);
	(void)fclose(f);
	return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

// A body, and a command's output, larger than the memory that is left.
START_TEST(lack_of_memory_ends_the_daemon)
{
	struct testd *d = d_start();
	struct resp r = {0};
	struct buf b = {0};
	if (d_sanitized(d)) { // it takes its terabytes of address space beforehand
		d_finish(d);
		return;
	}
	buf_str(&b, ECHO);
	h_repeat(&b, " ", 16 << 20);
	for (int round = 0; round < 3; round++) {
		rlim_t old = set_limit(d->daemon, RLIMIT_AS, address_space(d->daemon) + (4 << 20));
		struct client *c = client_connect(d);
		client_request(c, "POST", "/exec", NULL, buf_data(&b), 16);
		client_response(c, &r);
		ck_assert_int_eq(r.status, 400); // small things go on
		char head[128];
		(void)snprintf(head, sizeof head, "POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
			buf_len(&b));
		ck_assert(client_send_str(c, head));
		(void)client_send_raw(c, buf_data(&b), buf_len(&b));
		c->eof = c->reset = false; // of the sending
		client_response(c, &r);
		want_errno(&r, 503, "resource_exhausted", "ENOMEM", true);
		client_close(c);
		(void)set_limit(d->daemon, RLIMIT_AS, old);
		ck_assert_str_eq(j_str(run(d, "echo b", &r), "stdout"), "b\n");
	}
	// With memory for it, it is only too long.
	req(d, "POST", "/exec", buf_cstr(&b), &r);
	want_errno(&r, 400, "invalid_argument", "E2BIG", false);
	buf_release(&b);
	resp_release(&r);
	d_finish(d);
}
END_TEST

Suite *errno_suite(void)
{
	Suite *s = suite_create("errno");
	TCase *tc = h_tcase(s, "start", 30);
	tcase_add_test(tc, bad_workdir_is_another_directory);
	tcase_add_test(tc, long_command_ends_the_daemon);
	tcase_add_test(tc, lack_of_descriptors_ends_the_daemon);
	tcase_add_test(tc, low_descriptor_limit_ends_the_daemon);
	tcase_add_test(tc, idle_connections_lock_health_out);
	tcase_add_test(tc, lack_of_memory_ends_the_daemon);
	if (geteuid() == 0) { // other users are needed
		tcase_add_test(tc, forbidden_workdir_is_entered);
		tcase_add_test(tc, refused_fork_ends_the_daemon);
	}
	return s;
}
