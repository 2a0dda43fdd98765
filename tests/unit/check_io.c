// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1
#include "daemon/io.h"
#include "suites.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static void temp_file(char *path, size_t n, const void *p, size_t len)
{
	snprintf(path, n, "/tmp/celld-io-XXXXXX");
	int fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, p, len), (ssize_t)len);
	close(fd);
}

START_TEST(pipe_ends_are_cloexec_and_blocking)
{
	int fds[2];
	ck_assert_int_eq(io_pipe(fds), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
		ck_assert_int_eq(fcntl(fds[i], F_GETFL) & O_NONBLOCK, 0);
	}
	ck_assert_int_eq(io_pending(fds[0]), 0);
	ck_assert_int_eq(io_write(fds[1], "hello", 5), 5);
	ck_assert_int_eq(io_pending(fds[0]), 5);
	char a[2], b[8];
	struct iovec iov[2] = {{a, sizeof(a)}, {b, sizeof(b)}};
	ck_assert_int_eq(io_readv(fds[0], iov, 2), 5);
	ck_assert(memcmp(a, "he", 2) == 0 && memcmp(b, "llo", 3) == 0);
	ck_assert_int_eq(io_set_nonblock(fds[0]), 0);
	ck_assert_int_eq(io_read(fds[0], a, 1), -EAGAIN);
	io_close(&fds[1]);
	ck_assert_int_eq(io_read(fds[0], a, 1), 0);
	io_close(&fds[0]);
	ck_assert_int_eq(fds[0], -1);
}
END_TEST

START_TEST(failures_are_negative_errno)
{
	char c;
	struct iovec iov = {&c, 1};
	ck_assert_int_eq(io_read(-1, &c, 1), -EBADF);
	ck_assert_int_eq(io_readv(-1, &iov, 1), -EBADF);
	ck_assert_int_eq(io_write(-1, &c, 1), -EBADF);
	ck_assert_int_eq(io_send(-1, &c, 1), -EBADF);
	ck_assert_int_eq(io_accept(-1), -EBADF);
	ck_assert_int_eq(io_set_nonblock(-1), -EBADF);
	ck_assert_int_eq(io_pending(-1), -EBADF);
	ck_assert_int_eq(io_read_file("/no/such/file", &c, 1), -ENOENT);
	ck_assert_int_eq(io_read_file("/", &c, 1), -EISDIR);
	ck_assert_int_eq(io_read_file("/dev/null", &c, 0), -EINVAL);
	ck_assert_int_eq(io_write_file("/no/such/file", "x"), -ENOENT);
}
END_TEST

static void on_alarm(int sig)
{
	(void)sig;
}

// Interrupts this process every millisecond from now on.
static void tick(void)
{
	struct sigaction sa = {.sa_handler = on_alarm}; // no SA_RESTART
	sigaction(SIGALRM, &sa, NULL);
	struct itimerval every = {{0, 1000}, {0, 1000}};
	setitimer(ITIMER_REAL, &every, NULL);
}

START_TEST(an_interrupted_read_goes_on)
{
	int fds[2];
	ck_assert_int_eq(io_pipe(fds), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		poll(NULL, 0, 50);
		_exit(write(fds[1], "x", 1) == 1 ? 0 : 1);
	}
	tick();
	char c = 0;
	ck_assert_int_eq(io_read(fds[0], &c, 1), 1);
	ck_assert_int_eq(c, 'x');
}
END_TEST

START_TEST(an_interrupted_accept_goes_on)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof(a);
	int server = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(bind(server, (struct sockaddr *)&a, n), 0);
	ck_assert_int_eq(listen(server, 8), 0);
	ck_assert_int_eq(getsockname(server, (struct sockaddr *)&a, &n), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		poll(NULL, 0, 50);
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		_exit(connect(fd, (struct sockaddr *)&a, n));
	}
	tick();
	int fd = io_accept(server);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
	ck_assert_int_eq(io_set_nonblock(server), 0);
	ck_assert_int_eq(io_accept(server), -EAGAIN);
}
END_TEST

START_TEST(send_to_a_closed_peer_is_epipe_without_a_signal)
{
	int fds[2];
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
	ck_assert_int_eq(io_send(fds[0], "ab", 2), 2);
	close(fds[1]);
	signal(SIGPIPE, SIG_DFL);
	ck_assert_int_eq(io_send(fds[0], "ab", 2), -EPIPE);
}
END_TEST

START_TEST(close_keeps_errno)
{
	int bad = 1000, none = -1;
	errno = EXDEV;
	io_close(&bad);
	io_close(&none);
	ck_assert_int_eq(errno, EXDEV);
	ck_assert_int_eq(bad, -1);
}
END_TEST

START_TEST(pipe_failure_leaves_no_descriptor)
{
	int fds[2] = {7, 8};
	struct rlimit old, none;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	none = (struct rlimit){.rlim_cur = 1, .rlim_max = old.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &none), 0);
	int rc = io_pipe(fds);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	ck_assert_int_eq(rc, -EMFILE);
	ck_assert(fds[0] == -1 && fds[1] == -1);
}
END_TEST

START_TEST(read_file_fits_or_is_efbig)
{
	char path[64], p[16];
	temp_file(path, sizeof(path), "0123456789", 10);
	ck_assert_int_eq(io_read_file(path, p, sizeof(p)), 10);
	ck_assert_str_eq(p, "0123456789");
	ck_assert_int_eq(io_read_file(path, p, 11), 10);
	ck_assert_str_eq(p, "0123456789");
	ck_assert_int_eq(io_read_file(path, p, 10), -EFBIG);
	ck_assert_str_eq(p, "012345678");
	ck_assert_int_eq(io_read_file(path, p, 1), -EFBIG);
	ck_assert_int_eq(io_read_file("/dev/null", p, 1), 0);
	ck_assert_str_eq(p, "");
	ck_assert_int_gt(io_read_file("/proc/self/oom_score_adj", p, sizeof(p)), 0);
	unlink(path);
}
END_TEST

START_TEST(read_file_now_waits_for_nobody)
{
	char path[64], p[16];
	temp_file(path, sizeof(path), "0123456789", 10);
	ck_assert_int_eq(io_read_file_now(path, p, sizeof(p)), 10);
	ck_assert_str_eq(p, "0123456789");
	signal(SIGIO, SIG_IGN);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	if (fcntl(fd, F_SETLEASE, F_WRLCK) == 0)
		ck_assert_int_eq(io_read_file_now(path, p, sizeof(p)), -EAGAIN);
	close(fd);
	unlink(path);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(io_read_file_now(path, p, sizeof(p)), 0);
	unlink(path);
}
END_TEST

START_TEST(write_file_replaces_and_makes_none)
{
	char path[64], p[16];
	temp_file(path, sizeof(path), "a longer text", 13);
	ck_assert_int_eq(io_write_file(path, "7\n"), 0);
	ck_assert_int_eq(io_read_file(path, p, sizeof(p)), 2);
	ck_assert_str_eq(p, "7\n");
	unlink(path);
	ck_assert_int_eq(io_write_file(path, "7\n"), -ENOENT);
	ck_assert_int_eq(access(path, F_OK), -1);
	ck_assert_int_eq(io_write_file("/dev/full", "x"), -ENOSPC);
	ck_assert_int_eq(io_write_file("/proc/self/oom_score_adj", "500"), 0);
	ck_assert_int_eq(io_read_file("/proc/self/oom_score_adj", p, sizeof(p)), 4);
	ck_assert_str_eq(p, "500\n");
}
END_TEST

START_TEST(a_limit_is_lifted_for_a_while)
{
	struct rlimit few = {100, 0}, all, is;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &all), 0);
	few.rlim_max = all.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	for (int i = 0; i < 2; i++) { // the second time there is nothing to lift
		struct rlimit old = io_limit_lift(RLIMIT_NOFILE);
		ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &is), 0);
		ck_assert(is.rlim_cur == all.rlim_max && is.rlim_max == all.rlim_max);
		io_limit_restore(RLIMIT_NOFILE, &old);
		ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &is), 0);
		ck_assert(is.rlim_cur == few.rlim_cur && is.rlim_max == all.rlim_max);
		few.rlim_cur = all.rlim_max;
		ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &few), 0);
	}
}
END_TEST

START_TEST(clocks_have_their_units)
{
	int64_t mono = io_mono_ns(), wall = io_wall_ms();
	poll(NULL, 0, 20);
	int64_t passed = io_mono_ns() - mono;
	ck_assert_int_ge(passed, 19000000);
	ck_assert_int_lt(passed, 20000000000);
	ck_assert_int_ge(io_wall_ms() - wall, 10);
	ck_assert_int_le(llabs(wall / 1000 - time(NULL)), 2);
}
END_TEST

Suite *io_suite(void)
{
	Suite *s = suite_create("io");
	TCase *t = tcase_create("io");
	tcase_add_test(t, pipe_ends_are_cloexec_and_blocking);
	tcase_add_test(t, failures_are_negative_errno);
	tcase_add_test(t, an_interrupted_read_goes_on);
	tcase_add_test(t, an_interrupted_accept_goes_on);
	tcase_add_test(t, send_to_a_closed_peer_is_epipe_without_a_signal);
	tcase_add_test(t, close_keeps_errno);
	tcase_add_test(t, pipe_failure_leaves_no_descriptor);
	tcase_add_test(t, read_file_fits_or_is_efbig);
	tcase_add_test(t, read_file_now_waits_for_nobody);
	tcase_add_test(t, write_file_replaces_and_makes_none);
	tcase_add_test(t, a_limit_is_lifted_for_a_while);
	tcase_add_test(t, clocks_have_their_units);
	suite_add_tcase(s, t);
	return s;
}
