// SPDX-License-Identifier: Apache-2.0
// celld ctl exec -t: this terminal and the one there, and that nothing of it is left here.
#include "tests/integration/ctlkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void assert_restored(const struct ctlrun *c)
{
	struct termios now;
	ck_assert_int_eq(tcgetattr(c->slave, &now), 0);
	ck_assert_uint_eq(now.c_iflag, c->before.c_iflag);
	ck_assert_uint_eq(now.c_oflag, c->before.c_oflag);
	ck_assert_uint_eq(now.c_cflag, c->before.c_cflag);
	ck_assert_uint_eq(now.c_lflag, c->before.c_lflag);
	ck_assert_int_eq(memcmp(now.c_cc, c->before.c_cc, sizeof now.c_cc), 0);
}

static bool is_raw(const struct ctlrun *c)
{
	struct termios now;
	return tcgetattr(c->slave, &now) == 0 && !(now.c_lflag & (ICANON | ECHO | ISIG));
}

static bool nothing_runs(void *d)
{
	return d_no_commands(d);
}

START_TEST(status_and_modes_come_back)
{
	struct testd *d = d_start();
	struct ctlrun c;
	ctl_start_tty(&c, d, NULL,
		ctl_words("exec", "-it", "--", "sh", "-c", "test -t 0 && test -t 1 && test -t 2 && exit 5"), 24, 80);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 5);
	ck_assert_str_eq(ctl_out(&c), "");
	assert_restored(&c);
	ctl_release(&c);
	ctl_start_tty(&c, d, NULL, ctl_words("exec", "-t", "--", "sh", "-c", "kill -KILL $$"), 24, 80);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 128 + SIGKILL);
	assert_restored(&c);
	ctl_release(&c);
	d_finish(d);
}
END_TEST

START_TEST(size_is_ours_and_follows)
{
	struct testd *d = d_start();
	struct ctlrun c;
	const struct winsize size = {.ws_row = 44, .ws_col = 122};
	ctl_start_tty(&c, d, ctl_words("TERM=vt220"),
		ctl_words("exec", "-t", "--", "sh", "-c",
			"stty size; echo $TERM; trap 'stty size; exit 3' WINCH; echo up; while :; do sleep 0.02; done"),
		33, 101);
	ctl_until(&c, false, "33 101\r\nvt220\r\nup");
	ck_assert_int_eq(ioctl(c.out, TIOCSWINSZ, &size), 0);
	ctl_until(&c, false, "44 122");
	ck_assert_int_eq(ctl_finish(&c, "", 0), 3);
	assert_restored(&c);
	ctl_release(&c);
	d_finish(d);
}
END_TEST

// Keys are bytes: those that make signals make them there.
START_TEST(keys_go_to_the_terminal_there)
{
	struct testd *d = d_start();
	struct ctlrun c;
	ctl_start_tty(&c, d, NULL,
		ctl_words("exec", "-t", "--", "sh", "-c",
			"trap 'echo interrupted; i=1' INT; echo up; until [ \"$i\" ]; do sleep 0.05; done; "
			"read x; echo \"<$x>\"; read y; echo \"<$y>\"; cat; exit 8"),
		24, 80);
	ctl_until(&c, false, "up");
	ck_assert(is_raw(&c));
	ctl_type(&c, "\x03", 1);
	ctl_until(&c, false, "interrupted");
	ctl_type(&c, "gr\xc3\xbc\xc3\x9f\r", 7);
	ctl_until(&c, false, "<gr\xc3\xbc\xc3\x9f>");
	ctl_type(&c, "line\r", 5);
	ctl_until(&c, false, "<line>");
	ctl_type(&c, "\x04", 1);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 8);
	assert_restored(&c);
	ctl_release(&c);
	// Without a trap Ctrl-C ends it.
	ctl_start_tty(&c, d, NULL, ctl_words("exec", "-t", "--", "sh", "-c", "echo up; exec sleep 60"), 24, 80);
	ctl_until(&c, false, "up");
	ctl_type(&c, "\x03", 1);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 128 + SIGINT);
	ctl_release(&c);
	d_finish(d);
}
END_TEST

// More than any queue holds at once, on to a program that takes its time.
START_TEST(large_paste_arrives_whole)
{
	struct testd *d = d_start();
	struct ctlrun c;
	size_t n = 300000;
	char *text = malloc(n);
	ck_assert_ptr_nonnull(text);
	memset(text, 'x', n);
	ctl_start_tty(&c, d, NULL,
		ctl_words("exec", "-t", "--", "sh", "-c", "stty raw -echo; echo up; sleep 0.3; head -c 300000 | wc -c"),
		24, 80);
	ctl_until(&c, false, "up");
	ctl_type(&c, text, n);
	ctl_until(&c, false, "300000");
	ck_assert_int_eq(ctl_finish(&c, "", 0), 0);
	ctl_release(&c);
	free(text);
	d_finish(d);
}
END_TEST

START_TEST(signal_restores_and_hangs_up)
{
	const int all[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGALRM, SIGSEGV, SIGRTMIN};
	struct testd *d = d_start();
	struct ctlrun c;
	ctl_start_tty(
		&c, d, NULL, ctl_words("exec", "-t", "--", "sh", "-c", "sleep 60 & echo up; wait; sleep 60"), 24, 80);
	ctl_until(&c, false, "up");
	ck_assert(is_raw(&c));
	ck_assert_int_eq(kill(c.pid, all[_i]), 0);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 128 + all[_i]);
	assert_restored(&c);
	ctl_release(&c);
	ck_assert(wait_until(nothing_runs, d, 5000));
	d_finish(d);
}
END_TEST

static bool is_stopped(void *arg)
{
	const struct ctlrun *c = arg;
	int status;
	return waitpid(c->pid, &status, WUNTRACED | WNOHANG) == c->pid && WIFSTOPPED(status);
}

static bool again_raw(void *arg)
{
	return is_raw(arg);
}

START_TEST(stopping_gives_the_terminal_back)
{
	struct testd *d = d_start();
	struct ctlrun c;
	ctl_start_tty(&c, d, NULL, ctl_words("exec", "-t", "--", "sh", "-c", "echo up; read x; echo \"<$x>\""), 24, 80);
	ctl_until(&c, false, "up");
	ck_assert_int_eq(kill(c.pid, SIGTSTP), 0);
	ck_assert(wait_until(is_stopped, &c, 10000));
	assert_restored(&c);
	ck_assert_int_eq(kill(c.pid, SIGCONT), 0);
	ck_assert(wait_until(again_raw, &c, 10000));
	ctl_type(&c, "on\r", 3);
	ctl_until(&c, false, "<on>");
	ck_assert_int_eq(ctl_finish(&c, "", 0), 0);
	assert_restored(&c);
	ctl_release(&c);
	d_finish(d);
}
END_TEST

START_TEST(lost_daemon_restores)
{
	struct testd *d = d_start("--stop-grace", "100");
	struct ctlrun c;
	ctl_start_tty(
		&c, d, NULL, ctl_words("exec", "-t", "--", "sh", "-c", "trap '' TERM HUP; echo up; sleep 60"), 24, 80);
	ctl_until(&c, false, "up");
	ck_assert_int_eq(d_stop(d, 10000), 0);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 125);
	ctl_assert_has(ctl_out(&c), "celld ctl: sandbox is terminating (unavailable)");
	assert_restored(&c);
	ctl_release(&c);
	d_finish(d);
}
END_TEST

START_TEST(what_cannot_be_run_says_why)
{
	struct testd *d = d_start();
	struct ctlrun c;
	ctl_exits(d, 2, &c, "exec", "-t", "sh");
	ctl_assert_has(ctl_err(&c), "--tty: the input is not a terminal");
	ctl_release(&c);
	ctl_start_tty(&c, d, NULL, ctl_words("exec", "-t", "no-such-program"), 24, 80);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 127);
	ctl_assert_has(ctl_out(&c), "exec no-such-program: No such file or directory (not_found)");
	ctl_release(&c);
	ctl_start_tty(&c, d, NULL, ctl_words("exec", "-t", "/etc/passwd"), 24, 80);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 126);
	assert_restored(&c);
	ctl_release(&c);
	ctl_start_tty(&c, d, NULL, ctl_words("exec", "-t", "--timeout", "5", "sh"), 24, 80);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 2);
	ctl_assert_has(ctl_out(&c), "--timeout does not go with --tty");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

// On a terminal alone, and the whole of it at the end.
START_TEST(progress_is_for_people)
{
	struct testd *d = d_start();
	struct ctlrun c;
	char path[512];
	ctl_file(d, "data", path);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 9 << 20), 0);
	(void)close(fd);
	ctl_start_tty(&c, d, NULL, ctl_words("cp", path, ":data"), 24, 80);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 0);
	ctl_assert_has(ctl_out(&c), "/data  100% [####################]  9.0 MiB");
	ctl_release(&c);
	ctl_start_tty(&c, d, NULL, ctl_words("cp", ":data", path), 24, 80);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 0);
	ctl_assert_has(ctl_out(&c), "data  100% [####################]  9.0 MiB");
	ctl_release(&c);
	ctl_start_tty(&c, d, NULL, ctl_words("cp", "-q", ":data", path), 24, 80);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 0);
	ck_assert_str_eq(ctl_out(&c), "");
	ctl_release(&c);
	ctl_ok(d, &c, "cp", ":data", path);
	ck_assert_str_eq(ctl_err(&c), "");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

// What the programs of a copy say there is no output that was asked for.
START_TEST(sandbox_writes_to_the_terminal)
{
	static const char cat[] = "#!/bin/sh\nprintf 'a\\033]0;title\\007\\302' >&2\nsleep 0.2\n"
				  "printf '\\23331mb\\303\\251\\n' >&2\nexit 1\n";
	struct testd *d = d_start();
	struct ctlrun c;
	char path[600];
	(void)snprintf(path, sizeof path, "%s/.venv/bin", d->workspace);
	ctl_ok(d, &c, "exec", "mkdir", "-p", path);
	ctl_release(&c);
	(void)snprintf(path, sizeof path, "%s/.venv/bin/cat", d->workspace);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0755);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, cat, sizeof cat - 1), (ssize_t)sizeof cat - 1);
	(void)close(fd);
	(void)snprintf(path, sizeof path, "%s/copy", d->base);
	ctl_start_tty(&c, d, NULL, ctl_words("cp", "-q", ":.venv/bin/cat", path), 24, 80);
	ck_assert_int_eq(ctl_finish(&c, "", 0), 1);
	ck_assert_ptr_null(strchr(ctl_out(&c), '\x1b'));
	ck_assert_ptr_null(strstr(ctl_out(&c), "\xc2\x9b"));
	ctl_assert_has(ctl_out(&c), "a?]0;title?");
	ctl_assert_has(ctl_out(&c), "31mb\xc3\xa9\r\n");
	ctl_release(&c);
	d_finish(d);
}
END_TEST

Suite *ctl_tty_suite(void)
{
	Suite *s = suite_create("ctl_tty");
	TCase *tc = h_tcase(s, "terminal", 60);
	tcase_add_test(tc, status_and_modes_come_back);
	tcase_add_test(tc, size_is_ours_and_follows);
	tcase_add_test(tc, keys_go_to_the_terminal_there);
	tcase_add_test(tc, large_paste_arrives_whole);
	tcase_add_loop_test(tc, signal_restores_and_hangs_up, 0, 8);
	tcase_add_test(tc, stopping_gives_the_terminal_back);
	tcase_add_test(tc, lost_daemon_restores);
	tcase_add_test(tc, what_cannot_be_run_says_why);
	tcase_add_test(tc, progress_is_for_people);
	tcase_add_test(tc, sandbox_writes_to_the_terminal);
	return s;
}
