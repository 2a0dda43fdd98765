// SPDX-License-Identifier: Apache-2.0
// Control groups: where they are made, what may be in the way of that, and limits where the controllers are there.
#include "tests/integration/deathkit.h"
#include "tests/integration/groupskit.h"
#include "tests/integration/suites.h"
#include "tests/integration/workkit.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

// --- its own group ---

// A script that runs the binary in BASE, or where no hierarchy is to be seen: in a directory that the caller removes.
static void make_wrapper(char dir[64], char path[96], const char *before)
{
	char text[PATH_MAX * 3], real[PATH_MAX];
	const char *name = getenv("CELLD");
	ck_assert_ptr_nonnull(realpath(name && *name ? name : "build/celld", real));
	(void)snprintf(dir, 64, "/tmp/celld-it-wrap-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(chmod(dir, 0755), 0);
	(void)snprintf(path, 96, "%s/celld", dir);
	int n = snprintf(text, sizeof text, "#!/bin/sh\n%s\nexec %s \"$@\"\n", before, real);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
	ck_assert(fd >= 0 && write(fd, text, (size_t)n) == n);
	(void)close(fd);
}

// Controllers are handed down from where nothing is: celld goes to a leaf, and back at the end.
START_TEST(own_group_is_in_the_way)
{
	char dir[64], path[96], before[PATH_MAX + 64], own[64];
	struct resp r = {0};
	if (cg_none())
		return;
	(void)snprintf(before, sizeof before, "echo 0 >%s/cgroup.procs", cg_base);
	make_wrapper(dir, path, before);
	const char *const args[] = {"--cgroup", "on", NULL};
	const struct d_opts opts = {.args = args, .binary = path, .plain = true};
	struct testd *d = d_start_opts(&opts);
	ck_assert_int_gt(cg_run_number(d), 0);
	(void)snprintf(own, sizeof own, "/proc/%d", (int)d->init);
	const char *leaf = strstr(cg_read(own, "cgroup"), strrchr(cg_base, '/'));
	ck_assert_ptr_nonnull(leaf);
	leaf += strcspn(leaf + 1, "/\n") + 1;
	ck_assert_str_eq(leaf, cg_memory || cg_cpu || cg_pids ? "/celld\n" : "\n");
	req(d, "GET", "/capabilities", NULL, &r);
	const json_t *state = j_get(resp_json(&r), "cgroup");
	ck_assert(j_bool(state, "memory") == cg_memory && j_bool(state, "cpu") == cg_cpu);
	ck_assert(j_bool(state, "pids") == cg_pids);
	resp_release(&r);
	guard_remove_tree(dir);
	cg_finish(d);
}
END_TEST

// Its exit status; its output goes to TEXT.
static int start_fails(const char *binary, const char *how, char *text, size_t n)
{
	int fd[2], status = -1;
	char dir[] = "/tmp/celld-it-none-XXXXXX";
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(pipe2(fd, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		(void)dup2(fd[1], STDOUT_FILENO);
		(void)dup2(fd[1], STDERR_FILENO);
		(void)execl(binary, binary, "--listen", "127.0.0.1:0", "--envd-listen", "off", "--workspace", dir,
			"--venv", "off", "--cgroup", how, (char *)NULL);
		_exit(127);
	}
	ck_assert_int_gt(pid, 0);
	(void)close(fd[1]);
	size_t got = 0;
	for (ssize_t k; got < n - 1 && (k = read(fd[0], text + got, n - 1 - got)) > 0;)
		got += (size_t)k;
	text[got] = '\0';
	(void)close(fd[0]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	guard_remove_tree(dir);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

START_TEST(starts_without_what_was_asked_for)
{
	char dir[64], path[96], text[4096];
	if (geteuid() != 0)
		return;
	make_wrapper(dir, path,
		"[ \"$1\" = inside ] || exec unshare -m \"$0\" inside \"$@\"; shift\n"
		"for m in $(awk '/ - cgroup2 /{print $5}' /proc/self/mountinfo); do umount -l $m; done");
	ck_assert_int_eq(start_fails(path, "on", text, sizeof text), 1);
	ck_assert_msg(strncmp(text, "celld: --cgroup on: ", 20) == 0, "%s", text);
	ck_assert_ptr_eq(strchr(text, '\n') + 1, strchr(text, '\0'));
	guard_remove_tree(dir);
}
END_TEST

static const char *const unfit[] = {"/nowhere/at/all", "/tmp", "/proc"};

START_TEST(unfit_directory_ends_the_daemon)
{
	struct resp r = {0};
	struct testd *d = d_start("--cgroup", unfit[_i]);
	ck_assert_str_eq(j_str(run(d, "echo on", &r), "stdout"), "on\n");
	ck_assert(d_log_has(d, unfit[_i]));
	req_pack(d, "POST", "/exec", &r, "{s:s, s:{s:i}}", "command", "true", "limits", "pids", 5);
	(void)assert_error(&r, 501, "unimplemented");
	resp_release(&r);
	d_finish(d);
}
END_TEST

// --- what fails ---

START_TEST(no_more_groups)
{
	struct resp r = {0};
	if (cg_none())
		return;
	struct testd *d = d_start("--cgroup", cg_base);
	ck_assert(cg_write(cg_base, "cgroup.max.descendants", "2"));
	struct sse *s = sse_exec(d, "read x");
	(void)sse_pid(s);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(cg_run_number(d), 0); // without, rather than not at all
	death_assert_log(d, "a command runs without a group");
	ck_assert(cg_write(cg_base, "cgroup.max.descendants", "max"));
	ck_assert_int_gt(cg_run_number(d), 0);
	sse_close(s);
	resp_release(&r);
	cg_finish(d);
}
END_TEST

// Root inside may do what it likes with its groups: others go on.
START_TEST(commands_meddle)
{
	struct resp r = {0};
	char command[PATH_MAX * 3];
	if (cg_none())
		return;
	struct testd *d = d_start("--cgroup", cg_base);
	ck_assert_int_eq(cg_run_number(d), 1);
	(void)snprintf(command, sizeof command, "echo 1 >%s/commands/1/cgroup.kill; sleep 5", cg_base);
	ck_assert_str_eq(j_str(run(d, command, &r), "signal"), "SIGKILL");
	ck_assert_int_gt(cg_run_number(d), 0);
	// To a group of its own making: one that hands controllers down takes no processes.
	char aside[PATH_MAX];
	(void)snprintf(aside, sizeof aside, "%s/aside", cg_base);
	ck_assert_int_eq(mkdir(aside, 0755), 0);
	(void)snprintf(command, sizeof command,
		"echo $$ >%s/cgroup.procs && for g in %s/commands/*/; do rmdir $g; done; exit 4", aside, cg_base);
	ck_assert_int_eq(j_int(run(d, command, &r), "exit_code"), 4);
	ck_assert_int_gt(cg_run_number(d), 0);
	// One that leaves it frozen, or with groups below: the next command is not born there.
	static const char *const traps[] = {
		"echo 1 >$G/cgroup.freeze", "mkdir $G/sub", "mkdir $G/sub; echo 1 >$G/cgroup.freeze"};
	for (size_t i = 0; i < sizeof traps / sizeof *traps; i++) {
		int trap = cg_run_number(d);
		(void)snprintf(command, sizeof command, "echo $$ >%s/cgroup.procs && G=%s/commands/%d && { %s; }",
			aside, cg_base, trap, traps[i]);
		ck_assert_int_eq(j_int(run(d, command, &r), "exit_code"), 0);
		for (int k = 0; k < 3; k++) {
			int64_t start = h_now_ms();
			int number = cg_run_number(d);
			ck_assert_msg(number > 0 && number != trap, "%s: in group %d", traps[i], number);
			ck_assert_int_lt(h_now_ms() - start, 3000);
		}
		(void)snprintf(command, sizeof command, "%s/commands/%d/sub", cg_base, trap);
		ck_assert_int_eq(rmdir(command), i == 0 ? -1 : 0);
		(void)snprintf(command, sizeof command, "%s/commands/%d", cg_base, trap);
		ck_assert_int_eq(rmdir(command), i == 0 ? -1 : 0); // what is empty was removed
	}
	// One that has left its group does not get away.
	(void)snprintf(command, sizeof command, "echo $$ >%s/cgroup.procs && sleep 4142.7; :", aside);
	req_pack(d, "POST", "/exec", &r, "{s:s, s:f}", "command", command, "timeout", 0.5);
	ck_assert(j_bool(resp_json(&r), "timed_out"));
	cg_assert_count(d, "sleep 4142.7", 0);
	ck_assert_int_gt(cg_run_number(d), 0);
	ck_assert_int_eq(rmdir(aside), 0);
	resp_release(&r);
	cg_finish(d);
}
END_TEST

// --- limits ---

static bool refused(const struct testd *d, bool there, const char *key, json_t *value)
{
	struct resp r = {0};
	if (there) {
		json_decref(value);
		return false;
	}
	req_pack(d, "POST", "/exec", &r, "{s:s, s:{s:o}}", "command", "touch ran", "limits", key, value);
	(void)assert_error(&r, 501, "unimplemented");
	ck_assert_int_eq(access(wk_path(d, "ran"), F_OK), -1);
	resp_release(&r);
	return true;
}

// What is run under a memory limit: more than that, or as much in a child.
#define EAT "head -c 300m /dev/zero | tail"

START_TEST(memory_limit)
{
	struct resp r = {0};
	struct sse_out o = {0};
	if (cg_none())
		return;
	struct testd *d = d_start("--cgroup", cg_base);
	if (!refused(d, cg_memory, "memory", json_integer(32 << 20))) {
		req_pack(d, "POST", "/exec", &r, "{s:s, s:{s:i}}", "command", EAT "; echo $?", "limits", "memory",
			32 << 20);
		json_t *a = resp_json(&r);
		ck_assert_str_eq(j_str(a, "signal"), "SIGKILL"); // all of it
		ck_assert(j_bool(a, "oom") && !j_bool(a, "timed_out"));
		ck_assert(!j_has(run(d, "echo on", &r), "oom"));
		struct sse *s = sse_open_pack(
			d, "/exec/stream", "{s:s, s:{s:i}}", "command", EAT, "limits", "memory", 32 << 20);
		sse_collect(s, &o, CLIENT_DEADLINE);
		ck_assert(j_bool(o.end.obj, "oom"));
		sse_close(s);
		req_pack(d, "POST", "/exec/background", &r, "{s:s, s:s, s:{s:i}}", "command", EAT, "run_id", "b",
			"limits", "memory", 32 << 20);
		ck_assert(j_bool(wk_await(d, "b", &r), "oom"));
		// What fits runs, also in one that was used before.
		for (int i = 0; i < 3; i++) {
			req_pack(d, "POST", "/exec", &r, "{s:s, s:{s:i}}", "command",
				"head -c 20m /dev/zero | tail | wc -c", "limits", "memory", 200 << 20);
			ck_assert_str_eq(j_str(resp_json(&r), "stdout"), "20971520\n");
			ck_assert(!j_has(resp_json(&r), "oom"));
		}
	}
	sse_out_release(&o);
	resp_release(&r);
	cg_finish(d);
}
END_TEST

// It is not the command's limit that is in the way, but one above.
START_TEST(memory_above)
{
	struct resp r = {0};
	struct played o = {0};
	if (cg_none() || !cg_memory)
		return;
	struct testd *d = death_start_with("--cgroup", cg_base);
	ck_assert(cg_write(cg_base, "memory.max", "64M"));
	(void)cg_write(cg_base, "memory.swap.max", "0");
	const json_t *a = run(d, EAT "; exit 5", &r);
	ck_assert_int_eq(j_int(a, "exit_code"), 5); // only what was too large
	ck_assert(j_bool(a, "oom"));
	sh_play(d, CODEC_JSON, NULL, EAT " >/dev/null; exit 6", &o);
	ck_assert_int_eq(j_int(o.end, "exitCode"), 6);
	ck_assert_str_eq(j_str(o.end, "error"), "out of memory");
	ck_assert_str_eq(j_str(o.end, "status"), "exit status 6");
	played_release(&o);
	// Also if it happened to a daemon before.
	int gate = death_gate(d, "gate");
	struct sse_out s = {0};
	struct sse *t = sse_exec(d, EAT " >/dev/null; echo up; read x <gate");
	int64_t pid = sse_pid(t);
	sse_until(t, FRAME_STDOUT, "up\n", NULL, 10000);
	death_crash(d, SIGKILL);
	sse_close(t);
	ck_assert_int_eq(write(gate, "\n", 1), 1);
	t = sse_attach(d, pid);
	sse_collect(t, &s, CLIENT_DEADLINE);
	ck_assert_int_eq(s.end.code, 0);
	ck_assert(j_bool(s.end.obj, "oom"));
	sse_close(t);
	sse_out_release(&s);
	death_crash(d, SIGKILL); // and to one after its end
	t = sse_attach(d, pid);
	sse_collect(t, &s, CLIENT_DEADLINE);
	ck_assert(j_bool(s.end.obj, "oom"));
	sse_close(t);
	(void)close(gate);
	sse_out_release(&s);
	resp_release(&r);
	cg_finish(d);
}
END_TEST

START_TEST(cpu_limit)
{
	struct resp r = {0};
	if (cg_none())
		return;
	struct testd *d = d_start("--cgroup", cg_base);
	if (!refused(d, cg_cpu, "cpus", json_real(0.2))) {
		int64_t start = h_now_ms();
		req_pack(d, "POST", "/exec", &r, "{s:s, s:{s:f}}", "command",
			"timeout 2 sh -c 'while :; do :; done'; cut -d ' ' -f 16-17 /proc/$$/stat", "limits", "cpus",
			0.2);
		long user = 0, system = 0;
		ck_assert_int_eq(sscanf(j_str(resp_json(&r), "stdout"), "%ld %ld", &user, &system), 2);
		double seconds = (double)(user + system) / (double)sysconf(_SC_CLK_TCK);
		double took = (double)(h_now_ms() - start) / 1000;
		ck_assert_msg(seconds < 0.4 * took, "%.2f s of %.2f s at 0.2 CPUs", seconds, took);
	}
	resp_release(&r);
	cg_finish(d);
}
END_TEST

static bool no_commands(void *arg)
{
	return d_no_commands(arg);
}

START_TEST(fork_bomb)
{
	struct resp r = {0};
	if (cg_none())
		return;
	struct testd *d = d_start("--cgroup", cg_base);
	if (!refused(d, cg_pids, "pids", json_integer(20))) {
		req_pack(d, "POST", "/exec", &r, "{s:s, s:f, s:{s:i}}", "command",
			"b() { b | b & }; b 2>/dev/null; sleep 100", "timeout", 1.0, "limits", "pids", 20);
		ck_assert_int_eq(r.status, 200);
		cg_assert_count(d, "b | b", 0);
		ck_assert(wait_until(no_commands, d, 3000));
		ck_assert_int_eq(j_int(run(d, "for i in $(seq 60); do sleep 1 & done; wait", &r), "exit_code"), 0);
	}
	resp_release(&r);
	cg_finish(d);
}
END_TEST

Suite *cgroup_suite(void)
{
	Suite *s = suite_create("cgroup");
	TCase *tc = h_tcase(s, "place", 60);
	tcase_add_checked_fixture(tc, cg_set_up, cg_tear_down);
	tcase_add_test(tc, own_group_is_in_the_way);
	tcase_add_test(tc, starts_without_what_was_asked_for);
	tcase_add_loop_test(tc, unfit_directory_ends_the_daemon, 0, sizeof unfit / sizeof *unfit);
	tcase_add_test(tc, no_more_groups);
	tcase_add_test(tc, commands_meddle);
	tc = h_tcase(s, "limits", 60);
	tcase_add_checked_fixture(tc, cg_set_up, cg_tear_down);
	tcase_add_test(tc, memory_limit);
	tcase_add_test(tc, memory_above);
	tcase_add_test(tc, cpu_limit);
	tcase_add_test(tc, fork_bomb);
	return s;
}
