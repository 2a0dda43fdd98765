// SPDX-License-Identifier: Apache-2.0
#include "daemon/core/spawn.h"
#include "daemon/io.h"
#include "spawnkit.h"
#include "suites.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

static void put_dir(struct spawnkit *f, const char *name, mode_t mode)
{
	ck_assert_int_eq(mkdir(spawnkit_path(f, name), 0700), 0);
	ck_assert_int_eq(chmod(f->path, mode), 0);
}

START_TEST(a_child_gets_three_descriptors)
{
	struct spawnkit f;
	spawnkit_init(&f);
	ck_assert_int_eq(fcntl(2, F_DUPFD, 3), fcntl(2, F_DUPFD, 3) - 1); // inheritable ones
	ck_assert_int_eq(fcntl(2, F_DUPFD, 60), 60);
	size_t before = spawnkit_fds();
	ck_assert_int_eq(
		spawnkit_shell(&f, "i=0; while [ $i -lt 77 ]; do [ -e /proc/self/fd/$i ] && echo $i; i=$((i+1)); "
				   "done; read x || echo eof; ulimit -n"),
		0);
	ck_assert_str_eq(f.out, "0\n1\n2\neof\n77\n");
	ck_assert_uint_eq(spawnkit_fds(), before);
	spawnkit_release(&f);
}
END_TEST

// Where it gets no copies of them. (3 is what lists them.)
START_TEST(a_child_of_one_with_many_descriptors_gets_three)
{
	struct spawnkit f;
	spawnkit_init(&f);
	for (int i = 0; i < 400; i++)
		ck_assert_int_gt(fcntl(2, F_DUPFD, 3), 2); // inheritable ones
	size_t before = spawnkit_fds();
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(spawnkit_shell(&f, "echo /proc/self/fd/*; echo e >&2; read x || echo eof"), 0);
		ck_assert_str_eq(f.out, "/proc/self/fd/0 /proc/self/fd/1 /proc/self/fd/2 /proc/self/fd/3\neof\n");
		ck_assert_str_eq(f.err, "e\n");
		ck_assert_int_eq(spawnkit_program(&f, "/no/such"), -ENOENT);
		ck_assert_int_eq(f.step, SPAWN_EXEC);
		ck_assert_uint_eq(spawnkit_fds(), before);
	}
	spawnkit_release(&f);
}
END_TEST

START_TEST(a_child_starts_with_clean_signals)
{
	struct spawnkit f;
	sigset_t blocked, after;
	spawnkit_init(&f);
	// The two that the C library hides, ignored all the same: SIG_IGN is 1.
	static const unsigned long ignore[8] = {1};
	for (int sig = 32; sig < 34; sig++)
		ck_assert_int_eq(syscall(SYS_rt_sigaction, sig, ignore, NULL, sizeof(uint64_t)), 0);
	signal(SIGPIPE, SIG_IGN);
	signal(SIGUSR1, SIG_IGN);
	signal(SIGRTMIN + 3, SIG_IGN);
	sigemptyset(&blocked);
	sigaddset(&blocked, SIGTERM);
	sigaddset(&blocked, SIGRTMIN);
	sigprocmask(SIG_SETMASK, &blocked, NULL);
	f.argv[1] = "-E";
	f.argv[2] = "^Sig(Blk|Ign)";
	f.argv[3] = "/proc/self/status";
	ck_assert_int_eq(spawnkit_program(&f, "grep"), 0);
	ck_assert_str_eq(f.out, "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
	sigprocmask(SIG_SETMASK, NULL, &after);
	for (int sig = 1; sig < NSIG; sig++)
		ck_assert_int_eq(sigismember(&blocked, sig), sigismember(&after, sig));
	struct sigaction sa;
	sigaction(SIGPIPE, NULL, &sa);
	ck_assert(sa.sa_handler == SIG_IGN);
	spawnkit_release(&f);
}
END_TEST

START_TEST(a_child_leads_its_session)
{
	struct spawnkit f;
	int in[2];
	pid_t pid;
	spawnkit_init(&f);
	ck_assert_int_eq(io_pipe(in), 0);
	f.spec.path = f.argv[0] = "cat";
	f.spec.fd[0] = in[0];
	ck_assert_int_eq(spawn_run(&f.base, &f.spec, &pid, &f.step), 0);
	close(in[0]);
	ck_assert_int_eq(getsid(pid), pid);
	ck_assert_int_eq(getpgid(pid), pid);
	close(in[1]);
	ck_assert_int_eq(waitpid(pid, &f.status, 0), pid);
	ck_assert_int_eq(f.status, 0);
	spawnkit_release(&f);
}
END_TEST

START_TEST(oom_score_is_the_larger_of_100_and_the_containers)
{
	static const struct {
		int original;
		const char *out;
	} cases[] = {{-900, "100\n"}, {0, "100\n"}, {100, "100\n"}, {321, "321\n"}};
	char before[16], after[16];
	struct spawnkit f;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		spawnkit_init(&f);
		spawn_base_release(&f.base);
		struct rlimit nofile = f.base.nofile;
		ck_assert_int_eq(spawn_base_init(&f.base, &nofile, cases[i].original), 0);
		f.argv[1] = "/proc/self/oom_score_adj";
		ck_assert_int_gt(io_read_file(f.argv[1], before, sizeof before), 0);
		ck_assert_int_eq(spawnkit_program(&f, "cat"), 0);
		ck_assert(spawn_settle(&f.base));
		ck_assert_int_gt(io_read_file(f.argv[1], after, sizeof after), 0);
		ck_assert_str_eq(f.out, cases[i].out);
		ck_assert_str_eq(before, after);
		spawnkit_release(&f);
	}
}
END_TEST

START_TEST(exec_errors)
{
	struct spawnkit f;
	spawnkit_init(&f);
	spawnkit_file(&f, "text", "hello\n", 0644);
	spawnkit_file(&f, "noexec", "no magic\n", 0755);
	spawnkit_file(&f, "nointerp", "#!/no/such/interpreter\n", 0755);
	ck_assert_int_eq(symlink("loop", spawnkit_path(&f, "loop")), 0);
	static const struct {
		const char *name;
		int rc;
	} cases[] = {{"missing", -ENOENT}, {"text", -EACCES}, {"noexec", -ENOEXEC}, {"nointerp", -ENOENT},
		{".", -EACCES}, {"text/x", -ENOTDIR}, {"loop", -ELOOP}};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int rc = spawnkit_program(&f, spawnkit_path(&f, cases[i].name));
		ck_assert_msg(rc == cases[i].rc && f.step == SPAWN_EXEC, "%s: %d", cases[i].name, rc);
	}
	char longer[PATH_MAX + 10];
	memset(longer, 'x', sizeof longer - 1);
	longer[0] = '/';
	longer[sizeof longer - 1] = '\0';
	ck_assert_int_eq(spawnkit_program(&f, longer), -ENAMETOOLONG);
	ck_assert_int_eq(f.step, SPAWN_EXEC);
	size_t n = 256 * 1024;
	char *argument = malloc(n);
	ck_assert_ptr_nonnull(argument);
	memset(argument, 'x', n - 1);
	argument[n - 1] = '\0';
	f.argv[1] = argument;
	ck_assert_int_eq(spawnkit_program(&f, "true"), -E2BIG);
	ck_assert_int_eq(f.step, SPAWN_EXEC);
	free(argument);
	spawnkit_release(&f);
}
END_TEST

// What PATH may be, relative to the test's directory, which is the command's too, and what "prog" then is.
static void check_path(struct spawnkit *f, const char *path, const char *out, int rc)
{
	char *line = f->path_line, *p = line, *end = line + sizeof f->path_line;
	p += snprintf(p, (size_t)(end - p), "PATH=");
	for (; *path; path++)
		p += *path == '@' ? snprintf(p, (size_t)(end - p), "%s", f->dir)
				  : snprintf(p, (size_t)(end - p), "%c", *path);
	f->env[0] = line;
	f->out[0] = '\0';
	ck_assert_msg(spawnkit_program(f, "prog") == rc && strcmp(f->out, out) == 0, "%s: %s", line, f->out);
	ck_assert_int_eq(f->step, rc ? SPAWN_EXEC : SPAWN_NONE);
}

START_TEST(path_look_up)
{
	struct spawnkit f;
	spawnkit_init(&f);
	put_dir(&f, "a", 0755);
	put_dir(&f, "b", 0755);
	put_dir(&f, "plain", 0755);
	put_dir(&f, "isdir", 0755);
	put_dir(&f, "isdir/prog", 0755);
	spawnkit_file(&f, "a/prog", "#!/bin/sh\necho a\n", 0755);
	spawnkit_file(&f, "b/prog", "#!/bin/sh\necho b\n", 0755);
	spawnkit_file(&f, "plain/prog", "#!/bin/sh\necho plain\n", 0644);
	f.spec.cwd = f.dir;
	check_path(&f, "@/a:@/b", "a\n", 0);
	check_path(&f, "@/none:@/b:@/a", "b\n", 0);
	check_path(&f, "@/plain:@/isdir:@/a", "a\n", 0);
	check_path(&f, "b:@/a", "b\n", 0); // relative to the command's directory, not to the daemon's
	check_path(&f, "@/plain:@/none", "", -EACCES);
	check_path(&f, "@/isdir:@/a/prog", "", -ENOENT);
	check_path(&f, ":", "", -ENOENT);
	check_path(&f, "", "", -ENOENT);
	spawnkit_file(&f, "prog", "#!/bin/sh\necho here\n", 0755);
	check_path(&f, "", "here\n", 0);
	check_path(&f, "@/none:", "here\n", 0);
	check_path(&f, "@/none::@/a", "here\n", 0);
	ck_assert_int_eq(spawnkit_program(&f, ""), -ENOENT);
	f.env[0] = "NOPATH=x";
	f.argv[1] = "hi";
	ck_assert_int_eq(spawnkit_program(&f, "echo"), 0);
	ck_assert_str_eq(f.out, "hi\n");
	spawnkit_release(&f);
}
END_TEST

START_TEST(cwd_errors)
{
	struct spawnkit f;
	spawnkit_init(&f);
	spawnkit_file(&f, "file", "", 0644);
	f.spec.cwd = spawnkit_path(&f, "missing");
	ck_assert_int_eq(spawnkit_program(&f, "pwd"), -ENOENT);
	ck_assert_int_eq(f.step, SPAWN_CWD);
	f.spec.cwd = spawnkit_path(&f, "file");
	ck_assert_int_eq(spawnkit_program(&f, "pwd"), -ENOTDIR);
	ck_assert_int_eq(f.step, SPAWN_CWD);
	f.spec.cwd = f.dir;
	ck_assert_int_eq(spawnkit_shell(&f, "pwd"), 0);
	f.out[strcspn(f.out, "\n")] = '\0';
	ck_assert_str_eq(f.out, f.dir);
	spawnkit_release(&f);
}
END_TEST

START_TEST(setup_errors)
{
	struct spawnkit f;
	spawnkit_init(&f);
	f.spec.controlling_tty = true;
	ck_assert_int_eq(spawnkit_program(&f, "true"), -ENOTTY);
	ck_assert_int_eq(f.step, SPAWN_SETUP);
	f.spec.controlling_tty = false;
	f.spec.fd[2] = 900; // not open
	ck_assert_int_eq(spawnkit_program(&f, "true"), -EBADF);
	ck_assert_int_eq(f.step, SPAWN_SETUP);
	spawnkit_release(&f);
}
END_TEST

START_TEST(a_terminal_becomes_the_controlling_one)
{
	struct spawnkit f;
	spawnkit_init(&f);
	int master = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
	ck_assert_int_ge(master, 0);
	ck_assert(grantpt(master) == 0 && unlockpt(master) == 0);
	f.spec.fd[0] = open(ptsname(master), O_RDWR | O_NOCTTY | O_CLOEXEC);
	ck_assert_int_ge(f.spec.fd[0], 0);
	f.spec.controlling_tty = true;
	ck_assert_int_eq(spawnkit_shell(&f, ": </dev/tty && echo yes"), 0);
	ck_assert_str_eq(f.out, "yes\n");
	close(f.spec.fd[0]);
	close(master);
	spawnkit_release(&f);
}
END_TEST

START_TEST(without_descriptors_nothing_runs)
{
	struct spawnkit f;
	int held[1024], n = 0;
	pid_t pid;
	spawnkit_init(&f);
	struct rlimit few = f.base.nofile;
	few.rlim_cur = 64;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	put_dir(&f, "d", 0755);
	while (n < 1024 && (held[n] = dup(2)) >= 0)
		n++;
	f.spec.cwd = f.dir;
	f.argv[1] = "d/made";
	f.spec.path = f.argv[0] = "touch";
	int rc = spawn_run(&f.base, &f.spec, &pid, &f.step);
	ck_assert_int_eq(rc, -EMFILE);
	ck_assert_int_eq(f.step, SPAWN_PREPARE);
	ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
	ck_assert_int_eq(access(spawnkit_path(&f, "d/made"), F_OK), -1);
	// One to say whom the kernel is to kill, and more where there are groups.
	int more = 0;
	while ((rc = spawn_run(&f.base, &f.spec, &pid, &f.step)) == -EMFILE && more++ < 4) {
		ck_assert_int_eq(access(spawnkit_path(&f, "d/made"), F_OK), -1);
		close(held[--n]);
	}
	ck_assert_int_eq(rc, 0);
	ck_assert_int_eq(waitpid(pid, &f.status, 0), pid);
	ck_assert_int_eq(f.status, 0);
	while (n > 0)
		close(held[--n]);
	ck_assert_int_eq(access(spawnkit_path(&f, "d/made"), F_OK), 0);
	spawnkit_release(&f);
}
END_TEST

START_TEST(failures_leave_nothing)
{
	struct spawnkit f;
	spawnkit_init(&f);
	size_t before = spawnkit_fds();
	for (int i = 0; i < 500; i++) {
		f.spec.cwd = i % 2 ? "/" : "/no/such/directory";
		ck_assert_int_eq(spawnkit_program(&f, "/no/such/program"), -ENOENT);
		ck_assert_int_eq(f.step, i % 2 ? SPAWN_EXEC : SPAWN_CWD);
	}
	ck_assert_uint_eq(spawnkit_fds(), before);
	spawnkit_release(&f);
}
END_TEST

START_TEST(another_user)
{
	gid_t groups[] = {NOBODY, 4242};
	struct user nobody = {.uid = NOBODY, .gid = NOBODY, .groups = groups, .group_count = 2};
	struct spawnkit f;
	if (geteuid() != 0)
		return; // only root may
	spawnkit_init(&f);
	f.spec.user = &nobody;
	ck_assert_int_eq(spawnkit_shell(&f, "id -u; id -ru; id -g; id -G; cat /proc/self/oom_score_adj"), 0);
	ck_assert_str_eq(f.out, "65534\n65534\n65534\n65534 4242\n100\n");
	put_dir(&f, "locked", 0700);
	f.spec.cwd = f.path;
	ck_assert_int_eq(spawnkit_program(&f, "true"), -EACCES);
	ck_assert_int_eq(f.step, SPAWN_CWD);
	f.spec.cwd = f.dir;
	// What root alone may run is no match for somebody else.
	put_dir(&f, "a", 0755);
	put_dir(&f, "b", 0755);
	spawnkit_file(&f, "a/prog", "#!/bin/sh\necho a\n", 0700);
	check_path(&f, "@/locked:@/a", "", -EACCES);
	spawnkit_file(&f, "b/prog", "#!/bin/sh\necho b\n", 0755);
	check_path(&f, "@/locked:@/a:@/b", "b\n", 0);
	gid_t *many = calloc(70000, sizeof *many);
	ck_assert_ptr_nonnull(many);
	nobody.groups = many;
	nobody.group_count = 70000;
	ck_assert_int_eq(spawnkit_program(&f, "true"), -EINVAL);
	ck_assert_int_eq(f.step, SPAWN_USER);
	free(many);
	spawnkit_release(&f);
}
END_TEST

START_TEST(who_is_not_root_stays_who_it_is)
{
	struct user root = {.uid = 0, .gid = 0}, own = {.uid = NOBODY, .gid = NOBODY};
	struct spawnkit f;
	if (geteuid() == 0)
		ck_assert(setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	else
		own.uid = geteuid();
	spawnkit_init(&f);
	f.spec.user = &root;
	ck_assert_int_eq(spawnkit_program(&f, "true"), -EPERM);
	ck_assert_int_eq(f.step, SPAWN_USER);
	f.spec.user = &own;
	ck_assert_int_eq(spawnkit_program(&f, "true"), 0);
	ck_assert_int_eq(f.status, 0);
	spawnkit_release(&f);
}
END_TEST

// What the child says goes to its output here.
static void assert_said(struct spawnkit *f, const char *program, int code, const char *why)
{
	char text[400];
	f->spec.like_shell = f->spec.even_priority = true;
	f->argv[1] = "a";
	int rc = spawnkit_program(f, program);
	ck_assert_msg(rc == 0, "%s: %d", program, rc);
	ck_assert_msg(WIFEXITED(f->status) && WEXITSTATUS(f->status) == code, "%s: %x", program, (unsigned)f->status);
	snprintf(text, sizeof text, "'%s': %s\n", program, why ? why : "");
	ck_assert_str_eq(f->err, why ? text : "");
}

START_TEST(like_a_shell_what_cannot_run_is_the_commands_own_end)
{
	struct spawnkit f;
	spawnkit_init(&f);
	assert_said(&f, "no-such-command", 127, "No such file or directory");
	assert_said(&f, "/no/such/command", 127, "No such file or directory");
	assert_said(&f, "", 127, "No such file or directory");
	assert_said(&f, "/", 126, "Permission denied");
	spawnkit_file(&f, "plain", "exit 3\n", 0644);
	assert_said(&f, spawnkit_path(&f, "plain"), 126, "Permission denied");
	spawnkit_file(&f, "bad", "#!/nope/sh\n", 0755);
	assert_said(&f, spawnkit_path(&f, "bad"), 127, "No such file or directory");
	spawnkit_file(&f, "empty", "", 0755);
	assert_said(&f, spawnkit_path(&f, "empty"), 0, NULL);
	spawnkit_file(&f, "script", "echo $0 $1; exit 5\n", 0755);
	assert_said(&f, spawnkit_path(&f, "script"), 5, NULL);
	snprintf(f.path_line, sizeof f.path_line, "%s a\n", f.path);
	ck_assert_str_eq(f.out, f.path_line);
	spawnkit_release(&f);
}
END_TEST

START_TEST(like_a_shell_but_what_is_too_long_is_told)
{
	struct spawnkit f;
	char *big = malloc(200000);
	spawnkit_init(&f);
	ck_assert_ptr_nonnull(big);
	memset(big, 'x', 199999);
	big[199999] = '\0';
	f.spec.like_shell = true;
	f.argv[1] = big;
	ck_assert_int_eq(spawnkit_program(&f, "/bin/true"), -E2BIG);
	ck_assert_int_eq(f.step, SPAWN_EXEC);
	// A program with such a name is not found, and says so in short.
	f.argv[1] = NULL;
	big[60000] = '\0';
	ck_assert_int_eq(spawnkit_program(&f, big), 0);
	ck_assert_int_eq(WEXITSTATUS(f.status), 127);
	ck_assert_uint_lt(strlen(f.err), 1200);
	free(big);
	spawnkit_release(&f);
}
END_TEST

static TCase *add_case(Suite *s, const char *name)
{
	TCase *t = tcase_create(name);
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 20);
	tcase_add_test(t, a_child_gets_three_descriptors);
	tcase_add_test(t, a_child_of_one_with_many_descriptors_gets_three);
	tcase_add_test(t, a_child_starts_with_clean_signals);
	tcase_add_test(t, a_child_leads_its_session);
	tcase_add_test(t, oom_score_is_the_larger_of_100_and_the_containers);
	tcase_add_test(t, exec_errors);
	tcase_add_test(t, path_look_up);
	tcase_add_test(t, cwd_errors);
	tcase_add_test(t, setup_errors);
	tcase_add_test(t, a_terminal_becomes_the_controlling_one);
	tcase_add_test(t, without_descriptors_nothing_runs);
	tcase_add_test(t, failures_leave_nothing);
	tcase_add_test(t, another_user);
	tcase_add_test(t, who_is_not_root_stays_who_it_is);
	tcase_add_test(t, like_a_shell_what_cannot_run_is_the_commands_own_end);
	tcase_add_test(t, like_a_shell_but_what_is_too_long_is_told);
	return t;
}

Suite *spawn_suite(void)
{
	Suite *s = suite_create("spawn");
	add_case(s, "run");
	tcase_add_checked_fixture(add_case(s, "forked"), spawnkit_fork_only, NULL);
	return s;
}
