// SPDX-License-Identifier: Apache-2.0
#define _GNU_SOURCE 1
#include "daemon/net/listener.h"
#include "oom.h"
#include "suites.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static char name[160];

static const char *name_of(int fd)
{
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(listener_name(fd, name, sizeof(name)), 0);
	return name;
}

static int port_of(int fd)
{
	return atoi(strrchr(name_of(fd), ':') + 1);
}

// A connection to a loopback port: a descriptor, or negative errno.
static int dial(int family, int port)
{
	struct sockaddr_in in4 = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_addr = IN6ADDR_LOOPBACK_INIT};
	in4.sin_port = in6.sin6_port = htons((uint16_t)port);
	int fd = socket(family, SOCK_STREAM, 0);
	if (fd < 0)
		return -errno;
	int rc = family == AF_INET ? connect(fd, (struct sockaddr *)&in4, sizeof(in4))
				   : connect(fd, (struct sockaddr *)&in6, sizeof(in6));
	return rc == 0 ? fd : -errno;
}

static int dial_unix(const char *path)
{
	struct sockaddr_un a = {.sun_family = AF_UNIX};
	snprintf(a.sun_path, sizeof(a.sun_path), "%s", path);
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);
	return connect(fd, (struct sockaddr *)&a, sizeof(a)) == 0 ? fd : -errno;
}

static const struct {
	const char *spec;
	int rc;
} bad_specs[] = {
	{"", -EINVAL},
	{"2024", -EINVAL},
	{":2024", -EINVAL},
	{"localhost:0", -EINVAL},
	{"127.0.0.1", -EINVAL},
	{"127.0.0.1:", -EINVAL},
	{"127.0.0.1:x", -EINVAL},
	{"127.0.0.1:-1", -EINVAL},
	{"127.0.0.1:+1", -EINVAL},
	{"127.0.0.1:65536", -EINVAL},
	{"127.0.0.1:99999999999999999999", -EINVAL},
	{"127.0.0.1 :0", -EINVAL},
	{"127.1:0", -EINVAL},
	{"[127.0.0.1]:0", -EINVAL},
	{"::1:0", -EINVAL},
	{"[::1]0", -EINVAL},
	{"[]:0", -EINVAL},
	{"[:0", -EINVAL},
	{"[::1%lo]:0", -EINVAL},
	{"[1111:2222:3333:4444:5555:6666:7777:8888:9999:aaaa]:0", -EINVAL},
	{"off", -EINVAL},
	{"192.0.2.77:0", -EADDRNOTAVAIL},
	{"fd:", -EINVAL},
	{"fd:x", -EINVAL},
	{"fd:-1", -EINVAL},
	{"fd:2147483648", -EINVAL},
	{"fd:1000", -EBADF},
	{"unix:", -EINVAL},
	{"unix:/no/such/dir/socket", -ENOENT},
	{"unix:/etc/passwd/socket", -ENOTDIR},
	{"unix:/etc/passwd", -EEXIST},
	{"unix:/tmp/"
	 "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
		-ENAMETOOLONG},
};

START_TEST(what_is_no_address_is_refused)
{
	for (int fallback = 0; fallback < 2; fallback++)
		ck_assert_int_eq(listener_open(bad_specs[_i].spec, fallback), bad_specs[_i].rc);
}
END_TEST

START_TEST(port_zero_shows_its_real_port)
{
	int fd = listener_open("127.0.0.1:0", false);
	int port = port_of(fd);
	ck_assert_int_gt(port, 0);
	ck_assert(strncmp(name, "127.0.0.1:", 10) == 0);
	ck_assert_int_eq(fcntl(fd, F_GETFD), FD_CLOEXEC);
	ck_assert(fcntl(fd, F_GETFL) & O_NONBLOCK);
	int conn = dial(AF_INET, port);
	ck_assert_int_ge(conn, 0);
	char spec[32], small[12];
	snprintf(spec, sizeof(spec), "127.0.0.1:%d", port);
	ck_assert_int_eq(listener_open(spec, false), -EADDRINUSE);
	ck_assert_int_eq(listener_name(fd, small, sizeof(small)), -ENAMETOOLONG);
	// A port with a connection that is over can be had again at once.
	close(accept(fd, NULL, NULL));
	close(fd);
	close(conn);
	fd = listener_open(spec, false);
	ck_assert_int_ge(fd, 0);
	close(fd);
}
END_TEST

START_TEST(loopback6_is_not_reached_over_ipv4)
{
	int fd = listener_open("[::1]:0", false);
	int port = port_of(fd);
	ck_assert(strncmp(name, "[::1]:", 6) == 0);
	ck_assert_int_ge(dial(AF_INET6, port), 0);
	ck_assert_int_eq(dial(AF_INET, port), -ECONNREFUSED);
	close(fd);
}
END_TEST

START_TEST(any6_is_dual_stack)
{
	int fd = listener_open("[::]:0", _i);
	int port = port_of(fd);
	ck_assert(strncmp(name, "[::]:", 5) == 0);
	ck_assert_int_ge(dial(AF_INET6, port), 0);
	ck_assert_int_ge(dial(AF_INET, port), 0);
	close(fd);
}
END_TEST

// From here on this process lives on a kernel without IPv6.
static void forbid_ipv6(void)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_socket, 0, 3),
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[0])),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, AF_INET6, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EAFNOSUPPORT),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {sizeof(code) / sizeof(code[0]), code};
	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
	ck_assert_int_eq(dial(AF_INET6, 1), -EAFNOSUPPORT);
}

START_TEST(without_ipv6_the_default_falls_back)
{
	forbid_ipv6();
	ck_assert_int_eq(listener_open("[::]:0", false), -EAFNOSUPPORT);
	ck_assert_int_eq(listener_open("[::1]:0", true), -EAFNOSUPPORT);
	int fd = listener_open("[::]:0", true);
	int port = port_of(fd);
	ck_assert(strncmp(name, "0.0.0.0:", 8) == 0);
	ck_assert_int_ge(dial(AF_INET, port), 0);
	close(fd);
}
END_TEST

START_TEST(a_given_socket_has_to_listen)
{
	char spec[16];
	int fds[2], sock = socket(AF_INET, SOCK_STREAM, 0);
	ck_assert_int_eq(pipe(fds), 0);
	snprintf(spec, sizeof(spec), "fd:%d", fds[0]);
	ck_assert_int_eq(listener_open(spec, false), -ENOTSOCK);
	snprintf(spec, sizeof(spec), "fd:%d", sock);
	ck_assert_int_eq(listener_open(spec, false), -EINVAL);
	ck_assert_int_eq(listen(sock, 1), 0);
	ck_assert_int_eq(listener_open(spec, false), sock);
	ck_assert_int_eq(fcntl(sock, F_GETFD), FD_CLOEXEC);
	ck_assert(fcntl(sock, F_GETFL) & O_NONBLOCK);
	ck_assert_int_ge(dial(AF_INET, port_of(sock)), 0);
	ck_assert(!listener_is_local(sock) && !listener_is_local(fds[0]));
	ck_assert_int_eq(listener_name(fds[0], name, sizeof(name)), -ENOTSOCK);
}
END_TEST

START_TEST(unix_replaces_only_a_dead_socket)
{
	char dir[] = "/tmp/celld-listen-XXXXXX", path[64], spec[80];
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/s", dir);
	snprintf(spec, sizeof(spec), "unix:%s", path);
	umask(0); // whatever it is, the file is its owner's alone
	int fd = listener_open(spec, false);
	ck_assert_uint_eq(umask(022), 0);
	ck_assert_str_eq(name_of(fd), spec);
	ck_assert(listener_is_local(fd));
	struct stat st;
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_int_eq(listener_open(spec, false), -EADDRINUSE); // somebody lives there
	int conn = dial_unix(path);
	ck_assert_int_ge(conn, 0);
	close(fd);
	ck_assert_int_eq(dial_unix(path), -ECONNREFUSED); // the file has stayed
	fd = listener_open(spec, false);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_ge(dial_unix(path), 0);
	close(fd);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("/etc/passwd", path), 0);
	ck_assert_int_eq(listener_open(spec, false), -EEXIST);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

struct taken {
	struct ev_loop *loop;
	int count, stop_at, last;
	unsigned last_turn;
	int in_turn, most_in_turn;
};

static void take(void *arg, int fd)
{
	struct taken *t = arg;
	t->count++;
	t->last = fd;
	t->in_turn = ev_iteration(t->loop) == t->last_turn ? t->in_turn + 1 : 1;
	t->last_turn = ev_iteration(t->loop);
	if (t->in_turn > t->most_in_turn)
		t->most_in_turn = t->in_turn;
	if (t->count == t->stop_at)
		ev_break(t->loop, EVBREAK_ONE);
}

static void on_time(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)w;
	(void)revents;
	ev_break(loop, EVBREAK_ONE);
}

// Runs until TAKE breaks the loop or SECONDS are over.
static void run_for(struct ev_loop *loop, double seconds)
{
	ev_timer timer;
	ev_timer_init(&timer, on_time, seconds, 0.);
	ev_now_update(loop);
	ev_timer_start(loop, &timer);
	ev_run(loop, 0);
	ev_timer_stop(loop, &timer);
}

START_TEST(connections_go_to_take_in_batches)
{
	enum { MANY = 200 };
	int fd = listener_open("127.0.0.1:0", false), port = port_of(fd);
	struct taken t = {.loop = ev_loop_new(EVFLAG_NOENV), .stop_at = MANY};
	struct listener *l = listener_new(t.loop, fd, take, &t);
	ck_assert_ptr_nonnull(l);
	for (int i = 0; i < MANY; i++)
		ck_assert_int_ge(dial(AF_INET, port), 0);
	run_for(t.loop, 20);
	ck_assert_int_eq(t.count, MANY);
	ck_assert_int_eq(t.most_in_turn, 16);
	ck_assert_int_eq(fcntl(t.last, F_GETFD), FD_CLOEXEC);
	ck_assert(fcntl(t.last, F_GETFL) & O_NONBLOCK);
	listener_free(l);
	ck_assert_int_ge(dial(AF_INET, port), 0); // the socket stays open, and nobody takes
	run_for(t.loop, 0.05);
	ck_assert_int_eq(t.count, MANY);
	listener_free(NULL);
	ev_loop_destroy(t.loop);
	close(fd);
}
END_TEST

START_TEST(without_descriptors_it_rests_and_comes_back)
{
	int fd = listener_open("127.0.0.1:0", false), port = port_of(fd);
	struct taken t = {.loop = ev_loop_new(EVFLAG_NOENV), .stop_at = 3};
	struct listener *l = listener_new(t.loop, fd, take, &t);
	for (int i = 0; i < 3; i++)
		ck_assert_int_ge(dial(AF_INET, port), 0);
	struct rlimit old, low;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max}; // everything below is in use
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	unsigned before = ev_iteration(t.loop);
	run_for(t.loop, 0.55);
	unsigned turns = ev_iteration(t.loop) - before;
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	ck_assert_int_eq(t.count, 0);
	ck_assert_uint_ge(turns, 3);  // it tries again by itself
	ck_assert_uint_le(turns, 20); // five rests and five tries; spinning makes thousands
	run_for(t.loop, 10);
	ck_assert_int_eq(t.count, 3);
	listener_free(l);
	ev_loop_destroy(t.loop);
	close(fd);
}
END_TEST

START_TEST(freed_while_it_rests)
{
	int fd = listener_open("127.0.0.1:0", false);
	struct taken t = {.loop = ev_loop_new(EVFLAG_NOENV)};
	struct listener *l = listener_new(t.loop, fd, take, &t);
	ck_assert_int_ge(dial(AF_INET, port_of(fd)), 0);
	struct rlimit old, low;
	ck_assert_int_eq(getrlimit(RLIMIT_NOFILE, &old), 0);
	low = (struct rlimit){.rlim_cur = 3, .rlim_max = old.rlim_max};
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &low), 0);
	ev_run(t.loop, EVRUN_ONCE);
	ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &old), 0);
	listener_free(l);
	ck_assert_int_eq(ev_run(t.loop, 0), 0); // no watcher is left
	ck_assert_int_eq(t.count, 0);
	ev_loop_destroy(t.loop);
}
END_TEST

static int build(void *arg)
{
	struct taken *t = arg;
	struct listener *l = listener_new(t->loop, t->last, take, t);
	if (!l)
		return -ENOMEM;
	listener_free(l);
	return 0;
}

START_TEST(out_of_memory_is_null)
{
	struct taken t = {.loop = ev_loop_new(EVFLAG_NOENV), .last = listener_open("127.0.0.1:0", false)};
	ck_assert_int_eq(build(&t), 0); // libev's own arrays are grown here: it aborts when it cannot
	OOM_LOOP(build, &t);
	ev_loop_destroy(t.loop);
	close(t.last);
}
END_TEST

Suite *listener_suite(void)
{
	Suite *s = suite_create("listener");
	TCase *t = tcase_create("listener");
	tcase_set_timeout(t, 30);
	tcase_add_loop_test(t, what_is_no_address_is_refused, 0, sizeof(bad_specs) / sizeof(bad_specs[0]));
	tcase_add_test(t, port_zero_shows_its_real_port);
	tcase_add_test(t, loopback6_is_not_reached_over_ipv4);
	tcase_add_loop_test(t, any6_is_dual_stack, 0, 2);
	tcase_add_test(t, without_ipv6_the_default_falls_back);
	tcase_add_test(t, a_given_socket_has_to_listen);
	tcase_add_test(t, unix_replaces_only_a_dead_socket);
	tcase_add_test(t, connections_go_to_take_in_batches);
	tcase_add_test(t, without_descriptors_it_rests_and_comes_back);
	tcase_add_test(t, freed_while_it_rests);
	tcase_add_test(t, out_of_memory_is_null);
	suite_add_tcase(s, t);
	return s;
}
