// SPDX-License-Identifier: Apache-2.0
// --confine: what commands are kept from on every way of starting them, what they can do all the same, and how celld says what is missing.
#include "tests/integration/deathkit.h"
#include "tests/integration/suites.h"
#include "tests/integration/workkit.h"

#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define COUNT(a) (sizeof(a) / sizeof *(a))
#define KEPT 0x404fbULL // chown dac_override fowner fsetid kill setgid setuid net_bind_service sys_chroot

static const char *const who[] = {"root", "nobody"};

static bool has_landlock(const struct testd *d)
{
	return d_log_has(d, "landlock version");
}

static bool has_seccomp(const struct testd *d)
{
	return d_log_has(d, "seccomp on");
}

// Root celld, commands as who[I]; not root's tests without root.
static struct testd *start(int i, const char *confine)
{
	char path[300];
	struct testd *d = d_start(CALLS_ENVD, "--confine", confine, "--user", who[i]);
	(void)snprintf(path, sizeof path, "%s", d->workspace);
	const struct passwd *user = getpwnam(who[i]);
	ck_assert_ptr_nonnull(user);
	ck_assert_int_eq(chown(path, user->pw_uid, user->pw_gid), 0);
	if (strcmp(confine, "off") != 0 && (!has_landlock(d) || !has_seccomp(d)))
		fprintf(stderr, "confine: this kernel has not all of it, the rest is left out\n");
	return d;
}

static int exit_code(const struct testd *d, const char *command, char *out, size_t n)
{
	struct resp r = {0};
	json_t *o = run(d, command, &r);
	(void)snprintf(out, n, "%s%s", j_str(o, "stdout"), j_str(o, "stderr"));
	int code = (int)j_int(o, "exit_code");
	resp_release(&r);
	return code;
}

// --- every way to start something ---

// Leaves in the file NAME of the workspace how it was confined.
static const char *telling(const struct testd *d, const char *name)
{
	static char script[1024];
	(void)snprintf(script, sizeof script,
		"cd '%s' && { grep -E '^(CapBnd|NoNewPrivs|Seccomp):' /proc/self/status; ulimit -c; ulimit -Hc; } "
		">%s.new && mv %s.new %s",
		d->workspace, name, name, name);
	return script;
}

static bool is_there(void *arg)
{
	return access(arg, F_OK) == 0;
}

static void want_told(const struct testd *d, const char *name)
{
	char path[512], want[256];
	unsigned long long own = 0;
	(void)snprintf(path, sizeof path, "%s/%s", d->workspace, name);
	ck_assert_msg(wait_until(is_there, path, 5000), "%s: nothing was started", name);
	FILE *f = fopen("/proc/self/status", "re");
	ck_assert_ptr_nonnull(f);
	while (fgets(want, sizeof want, f) && sscanf(want, "CapBnd: %llx", &own) != 1)
		;
	(void)fclose(f);
	// Without the right to trim it the bounding set stays; a build root has it.
	(void)snprintf(want, sizeof want, "CapBnd:\t%016llx\nNoNewPrivs:\t1\nSeccomp:\t%d\n0\n0\n", own & KEPT,
		has_seccomp(d) ? 2 : 0);
	ck_assert_str_eq(wk_content(path), want);
}

START_TEST(every_start_is_confined)
{
	struct testd *d = start(_i, "on");
	struct resp r = {0};
	struct sse_out o = {0};
	struct played p = {0};
	char out[1024];
	ck_assert_int_eq(exit_code(d, telling(d, "exec"), out, sizeof out), 0);
	want_told(d, "exec");
	sse_run(d, telling(d, "stream"), 0, &o);
	sse_out_release(&o);
	want_told(d, "stream");
	wk_submit(d, "b", telling(d, "background"));
	want_told(d, "background");
	req_pack(d, "POST", "/pty/create", &r, "{s:[s,s,s]}", "argv", "/bin/sh", "-c", telling(d, "pty"));
	ck_assert_int_eq(r.status, 200);
	want_told(d, "pty");
	json_t *request = json_pack("{s:{s:s,s:[s,s],s:s},s:b}", "process", "cmd", "/bin/sh", "args", "-c",
		telling(d, "envd"), "cwd", d->workspace, "stdin", 0);
	char *text = j_text(request);
	start_and_play(d, CODEC_JSON, NULL, text, &p);
	free(text);
	json_decref(request);
	played_assert_exit(&p, 0);
	played_release(&p);
	want_told(d, "envd");
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(after_a_crash_and_an_upgrade_too)
{
	struct testd *d = death_start_with("--confine", "on");
	char out[256];
	death_crash(d, SIGKILL);
	ck_assert_int_eq(exit_code(d, telling(d, "crash"), out, sizeof out), 0);
	want_told(d, "crash");
	death_upgrade(d);
	ck_assert_int_eq(exit_code(d, telling(d, "upgrade"), out, sizeof out), 0);
	want_told(d, "upgrade");
	d_finish(d);
}
END_TEST

// --- what goes and what does not ---

enum needs { NOTHING, LANDLOCK, SECCOMP };

static const struct {
	const char *command;
	enum needs needs;
	bool works;
} cases[] = {
	{"mount -t tmpfs none .", SECCOMP, false},
	{"umount /proc", SECCOMP, false},
	{"unshare -U true", SECCOMP, false},
	{"unshare -m true", SECCOMP, false},
	{"unshare -n true", SECCOMP, false},
	{"nsenter -m -t $$ true", SECCOMP, false},
	{"touch /etc/celld-test", LANDLOCK, false},
	{": >>/etc/passwd", LANDLOCK, false},
	{": >>/proc/sysrq-trigger", LANDLOCK, false},
	{": >>/proc/sys/kernel/core_pattern", LANDLOCK, false},
	{"mkdir /usr/celld-test", LANDLOCK, false},
	{"rm -f /etc/passwd", LANDLOCK, false},
	{"mv /etc/passwd .", LANDLOCK, false},
	{"ln /etc/passwd . && : >>passwd", LANDLOCK, false},
	{"cat /proc/$PPID/environ", NOTHING, false},
	{"readlink /proc/$PPID/fd/0", NOTHING, false},
	{": >>/proc/$PPID/mem", NOTHING, false},
	{"prlimit --pid $PPID --nofile=10:10", SECCOMP, false},
	{"renice -n 5 -u root", SECCOMP, false},
	{"python3 -c 'import fcntl; fcntl.fcntl(open(\"leased\", \"w\"), 1024, 1)'", SECCOMP, false},
	{"nice true && nice -n 5 true && renice -n 19 -p $$ >/dev/null && ionice -c 2 -n 5 -p $$", NOTHING, true},
	{"taskset -c 0 true && sleep 1 & taskset -p 1 $! >/dev/null && kill $!", NOTHING, true},
	{"chrt -b 0 true && ulimit -n 64 && prlimit --nofile=32:32 true", NOTHING, true},
	{"! command -v python3 || python3 -c 'import os, resource; os.sched_setaffinity(0, [0]); "
	 "resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)); resource.prlimit(0, resource.RLIMIT_CORE, (0, 0))'",
		NOTHING, true},
	{"cat /etc/passwd >/dev/null && ls /usr /proc >/dev/null", NOTHING, true},
	{"touch f && cp f g && rm f g && touch /tmp/celld-$$ && rm /tmp/celld-$$", NOTHING, true},
	{"mkdir -p a b && touch a/f && mv a/f b/g && ln b/g a/h && rm -r a b", NOTHING, true},
	{"echo x >f && truncate -s 100 f && rm f", NOTHING, true},
	{"head -c 4 /dev/urandom >/dev/null", NOTHING, true},
	{"sleep 0 & wait; (true | cat) && sh -c 'kill -9 $$' || test $? = 137", NOTHING, true},
	{"! command -v dpkg || { dpkg --version && apt-get --version && apt-cache policy; } >/dev/null", NOTHING, true},
	{"! command -v git || { git init -q g && cd g && echo x >x && git add x && git -c user.name=a -c "
	 "user.email=b@c "
	 "commit -qm x && git checkout -qb y && git gc -q && cd .. && rm -rf g; }",
		NOTHING, true},
	{"! command -v python3 || python3 -c 'import subprocess, threading, tempfile; "
	 "subprocess.run([\"true\"], check=True); t = threading.Thread(target=print); t.start(); t.join(); "
	 "tempfile.TemporaryFile()'",
		NOTHING, true},
	{"! command -v cc || { echo 'int main(void) { return 0; }' >m.c && cc m.c -o m && ./m && rm m m.c; }", NOTHING,
		true},
	{"! command -v node || node -e 'require(\"fs\").readFileSync(\"/etc/passwd\")'", NOTHING, true},
};

START_TEST(ordinary_work_goes_on_and_nothing_else)
{
	struct testd *d = start(_i, "on");
	char out[4096], command[1024];
	for (size_t i = 0; i < COUNT(cases); i++) {
		if ((cases[i].needs == LANDLOCK && !has_landlock(d)) || (cases[i].needs == SECCOMP && !has_seccomp(d)))
			continue;
		(void)snprintf(command, sizeof command, "export HOME=$PWD; %s", cases[i].command);
		int code = exit_code(d, command, out, sizeof out);
		ck_assert_msg((code == 0) == cases[i].works, "%s: %s: %d: %s", who[_i], cases[i].command, code, out);
	}
	d_finish(d);
}
END_TEST

// The same without: what the table refuses is refused by this.
START_TEST(unconfined_root_can)
{
	struct testd *d = d_start("--user", "root");
	char out[1024];
	ck_assert_int_eq(exit_code(d, "touch /etc/celld-test && rm /etc/celld-test", out, sizeof out), 0);
	ck_assert_int_eq(exit_code(d, "grep -q '^NoNewPrivs:.0' /proc/self/status", out, sizeof out), 0);
	ck_assert_int_eq(exit_code(d, "test $(ulimit -c) = 0", out, sizeof out), 0);
	d_finish(d);
}
END_TEST

START_TEST(a_setuid_program_gains_nothing)
{
	char path[512], out[256], command[700];
	struct testd *d = start(1, _i ? "on" : "off");
	(void)snprintf(path, sizeof path, "%s/id", d->base);
	(void)snprintf(command, sizeof command, "cp \"$(command -v id)\" '%s'", path);
	ck_assert_int_eq(system(command), 0);
	ck_assert_int_eq(chmod(path, 04755), 0);
	(void)snprintf(command, sizeof command, "'%s' -u", path);
	ck_assert_int_eq(exit_code(d, command, out, sizeof out), 0);
	if (_i)
		ck_assert_str_eq(out, "65534\n");
	else if (strcmp(out, "0\n") != 0)
		fprintf(stderr, "confine: %s has no setuid programs here\n", d->base);
	d_finish(d);
}
END_TEST

START_TEST(options_change_it)
{
	char tree[] = "/tmp/celld-it-tree-XXXXXX", out[512], command[128];
	ck_assert_ptr_nonnull(mkdtemp(tree));
	ck_assert_int_eq(chmod(tree, 0777), 0);
	struct testd *d = d_start("--confine", "on", "--writable", tree, "--keep-cap", "CAP_CHOWN", "--keep-cap",
		"kill", "--allow-syscall", "unshare", "--rlimit", "core=5:7", "--rlimit", "nofile=64:128");
	ck_assert_int_eq(
		exit_code(d, "ulimit -Sc; ulimit -Hc; ulimit -n; ulimit -Hn; cat /proc/self/limits | grep core", out,
			sizeof out),
		0);
	ck_assert_ptr_nonnull(strstr(out, "64\n128\n"));
	ck_assert_msg(strstr(out, " 5 ") && strstr(out, " 7 "), "%s", out);
	ck_assert_int_eq(exit_code(d, "grep -q '^CapBnd:.0000000000000021$' /proc/self/status", out, sizeof out), 0);
	(void)snprintf(command, sizeof command, "touch %s/f f && rm %s/f f && echo x >/dev/null", tree, tree);
	ck_assert_int_eq(exit_code(d, command, out, sizeof out), 0);
	if (has_landlock(d))
		ck_assert_int_ne(exit_code(d, "touch /var/tmp/celld-test", out, sizeof out), 0);
	if (has_seccomp(d))
		ck_assert_int_ne(exit_code(d, "mount -t tmpfs none .", out, sizeof out), 0);
	d_finish(d);
	ck_assert_int_eq(rmdir(tree), 0);
}
END_TEST

// --- how it starts ---

// Runs celld with OPTIONS, which are wrong: its status, and what it said.
static int refused(const char *options, char *out, size_t n)
{
	char command[1024];
	const char *celld = getenv("CELLD");
	(void)snprintf(command, sizeof command,
		"timeout -s KILL 20 '%s' --listen 127.0.0.1:0 --envd-listen off --workspace /tmp --cgroup off %s 2>&1 "
		"</dev/null",
		celld && *celld ? celld : "build/celld", options);
	FILE *f = popen(command, "re");
	ck_assert_ptr_nonnull(f);
	size_t got = fread(out, 1, n - 1, f);
	out[got] = '\0';
	int status = pclose(f);
	ck_assert(WIFEXITED(status));
	return WEXITSTATUS(status);
}

START_TEST(what_cannot_be_had_is_told)
{
	char out[4096];
	ck_assert_int_eq(refused("--confine on --keep-cap fly", out, sizeof out), 2);
	ck_assert_ptr_nonnull(strstr(out, "fly"));
	ck_assert_int_eq(refused("--confine on --allow-syscall no_such_call", out, sizeof out), 2);
	ck_assert_ptr_nonnull(strstr(out, "no_such_call"));
	ck_assert_int_eq(refused("--confine require --writable /no/such/tree", out, sizeof out), 1);
	ck_assert_msg(strncmp(out, "celld: --confine require: ", 26) == 0, "%s", out);
	ck_assert_int_eq(refused("--rlimit nofile=64:4611686018427387904", out, sizeof out), 1);
	ck_assert_msg(strncmp(out, "celld: --rlimit nofile: ", 24) == 0, "%s", out);
}
END_TEST

START_TEST(options_without_it_are_warned_of)
{
	struct testd *d = d_start("--keep-cap", "chown", "--writable", "/tmp");
	ck_assert(d_log_has(d, "warn confine: --keep-cap, --writable have no effect without --confine"));
	d_finish(d);
}
END_TEST

// A program that does not come to run, as on a file system that hangs, holds the daemon up for a moment only and can be asked for again.
START_TEST(a_leased_program_is_unavailable)
{
	struct testd *d = d_start(CALLS_ENVD);
	struct resp r = {0};
	struct played p = {0};
	char path[300], body[700];
	(void)snprintf(path, sizeof path, "%s/leased", d->workspace);
	(void)snprintf(body, sizeof body, "printf '#!/bin/sh\n' >%s && chmod 755 %s", path, path);
	ck_assert_int_eq(system(body), 0);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	(void)signal(SIGIO, SIG_IGN);
	if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0) {
		int64_t start = h_now_ms();
		req_pack(d, "POST", "/pty/create", &r, "{s:[s]}", "argv", path);
		ck_assert_int_lt(h_now_ms() - start, 5000);
		json_t *o = assert_error(&r, 503, "unavailable");
		ck_assert(j_bool(o, "retryable"));
		ck_assert_msg(strncmp(j_str(o, "error"), "start: ", 7) == 0, "%s", j_str(o, "error"));
		(void)snprintf(body, sizeof body, "{\"process\":{\"cmd\":\"%s\",\"cwd\":\"/\"}}", path);
		start_and_play(d, CODEC_JSON, NULL, body, &p);
		ck_assert_ptr_nonnull(strstr(played_assert_error(&p, "unavailable"), "start: "));
		played_release(&p);
		ck_assert_int_eq(exit_code(d, "true", body, sizeof body), 0);
	} else {
		fprintf(stderr, "confine: %s has no leases\n", d->workspace);
	}
	(void)close(fd);
	resp_release(&r);
	d_finish(d);
}
END_TEST

START_TEST(an_open_port_is_warned_of)
{
	static const char token[] = "confine-token";
	struct testd *d = d_start("--confine", "on");
	ck_assert(d_log_has(d, "warn confine_open: "));
	d_finish(d);
	d = d_start("--confine", "on", "--token", token);
	ck_assert(!d_log_has(d, "confine_open"));
	ck_assert(d_log_has(d, "info confine: no new privileges, "));
	d_finish(d);
	d = d_start();
	ck_assert(!d_log_has(d, "confine"));
	d_finish(d);
}
END_TEST

Suite *confine_suite(void)
{
	Suite *s = suite_create("confine");
	TCase *tc = h_tcase(s, "start", 40);
	tcase_add_test(tc, what_cannot_be_had_is_told);
	tcase_add_test(tc, an_open_port_is_warned_of);
	tcase_add_test(tc, options_without_it_are_warned_of);
	tcase_add_test(tc, a_leased_program_is_unavailable);
	if (geteuid() != 0)
		return s; // the rest switches users
	tc = h_tcase(s, "confine", 60);
	tcase_add_loop_test(tc, every_start_is_confined, 0, (int)COUNT(who));
	tcase_add_test(tc, after_a_crash_and_an_upgrade_too);
	tcase_add_loop_test(tc, ordinary_work_goes_on_and_nothing_else, 0, (int)COUNT(who));
	tcase_add_test(tc, unconfined_root_can);
	tcase_add_loop_test(tc, a_setuid_program_gains_nothing, 0, 2);
	tcase_add_test(tc, options_change_it);
	return s;
}
