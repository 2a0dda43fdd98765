// SPDX-License-Identifier: Apache-2.0
// The gateway's boxes with a real celld in them: what they show, how they stop and end, and that they leave nothing.
#include "boxkit.h"
#include "suites.h"
#include "tests/gateway/box_priv.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define WAYS_AND_GROUPS (2 * BOXKIT_WAYS) // each way of running, with a cgroup where there can be one and without

static char out[65536];

static enum boxkit_way way_of(int i)
{
	if (i >= BOXKIT_WAYS)
		setenv("CELLD_GATEWAY_CGROUP", "off", 1);
	return (enum boxkit_way)(i % BOXKIT_WAYS);
}

static void want(const struct boxkit_box *x, const char *command, const char *answer)
{
	int code = boxkit_run(x, command, out, sizeof out);
	ck_assert_msg(strcmp(out, answer) == 0, "%s: exit %d, \"%s\" instead of \"%s\"", command, code, out, answer);
}

static void want_code(const struct boxkit_box *x, const char *command, int code)
{
	int got = boxkit_run(x, command, out, sizeof out);
	ck_assert_msg(got == code, "%s: exit %d instead of %d: %s", command, got, code, out);
}

static long long size_of(const char *path)
{
	struct stat st;
	return stat(path, &st) < 0 ? -1 : (long long)st.st_size;
}

START_TEST(it_starts_serves_and_ends)
{
	struct boxkit k;
	boxkit_init(&k, (enum boxkit_way)_i);
	struct boxkit_box *x = boxkit_start(&k, 0);
	ck_assert(box_alive(x->b));
	ck_assert_int_gt(box_pid(x->b), 0);
	ck_assert_int_eq(boxkit_ask(x, BOX_SANDBOXD, "GET /health", "", 5, out, sizeof out), 204);
	ck_assert_int_eq(boxkit_ask(x, BOX_ENVD, "GET /health", "", 5, out, sizeof out), 204);
	want(x, "pwd", box_home(x->b));
	want(x, "echo $((6 * 7)); exit 3", "42");
	want_code(x, "exit 3", 3);
	want_code(x, "sleep 1000 >/dev/null 2>&1 & echo", 0);
	want_code(x, "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done", 0);
	long long memory;
	double cpu;
	ck_assert_int_eq(box_usage(x->b, &memory, &cpu), 0);
	ck_assert_int_gt(memory, 100000);
	ck_assert(cpu > 0 && cpu < 100);
	pid_t pid = box_pid(x->b);
	boxkit_end(x);
	ck_assert_int_eq(kill(pid, 0), -1);
	// The same place once more; then without a word.
	x = boxkit_start(&k, 0);
	box_free(x->b);
	x->b = NULL;
	ck_assert_int_eq(x->ended, 0);
	boxkit_release(&k);
}
END_TEST

START_TEST(stopping_in_order_is_an_end_too)
{
	struct boxkit k;
	boxkit_init(&k, (enum boxkit_way)_i);
	struct boxkit_box *x = boxkit_start(&k, 0);
	ck_assert_int_eq(kill(box_pid(x->b), SIGTERM), 0);
	BOXKIT_UNTIL(&k, x->ended);
	ck_assert_str_eq(x->why, "exit status 0");
	boxkit_release(&k);
}
END_TEST

START_TEST(a_start_that_fails_says_why)
{
	struct boxkit k;
	boxkit_init(&k, (enum boxkit_way)_i);
	(void)snprintf(k.celld, sizeof k.celld, "/no/such/celld");
	struct boxkit_box *x = boxkit_begin(&k, 0);
	BOXKIT_UNTIL(&k, x->ended);
	ck_assert_str_eq(x->why, "exit status 127: /no/such/celld: No such file or directory");
	(void)snprintf(k.celld, sizeof k.celld, "/bin/false");
	x = boxkit_begin(&k, 0);
	BOXKIT_UNTIL(&k, x->ended);
	ck_assert_int_eq(x->ready, 0);
	if (k.namespaces)
		ck_assert(strncmp(x->why, "exit status ", 12) == 0); // its libraries are there, so it runs
	else
		ck_assert_str_eq(x->why, "exit status 1");
	static const struct box_events none = {NULL, NULL};
	struct box_spec spec = {.celld = k.celld, .dir = "/no/such/dir", .name = ""};
	ck_assert_ptr_null(box_start(k.loop, &spec, &none, NULL));
	ck_assert_int_eq(errno, ENOENT);
	boxkit_release(&k);
}
END_TEST

// --- what it sees and may do ---

static void want_places(const struct boxkit_box *x)
{
	static const char *const writable[] = {"/home/user", "/tmp", "/var/tmp", "/dev/shm", "/root"};
	static const char *const fixed[] = {"/", "/etc", "/usr", "/home", "/run", "/dev", "/proc/sys/kernel"};
	char command[256];
	for (size_t i = 0; i < sizeof writable / sizeof *writable; i++) {
		(void)snprintf(command, sizeof command, "echo >%s/mine && rm %s/mine", writable[i], writable[i]);
		want_code(x, command, 0);
	}
	for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++) {
		(void)snprintf(command, sizeof command, "echo >%s/mine", fixed[i]);
		ck_assert_int_gt(boxkit_run(x, command, out, sizeof out), 0);
	}
	want(x, "ls -A /home /root", "/home:\nuser\n\n/root:");
	want(x, "stat -c '%U %a' /home/user /tmp /dev/shm",
		geteuid() == 0 ? "user 755\nroot 1777\nroot 1777" : "user 755\nuser 1777\nuser 1777");
}

START_TEST(it_sees_only_its_own)
{
	struct boxkit k;
	boxkit_init(&k, (enum boxkit_way)_i);
	if (k.namespaces) {
		struct boxkit_box *x = boxkit_start(&k, 0);
		want(x, "cat /proc/1/comm", "celld");
		want_places(x);
		want(x, "id -u user", geteuid() == 0 ? "1000" : "0");
		want(x, "getent passwd user | cut -d: -f6", "/home/user");
		want(x, "/run/celld --version", "celld 0.1.0");
		want(x, "ls /dev | tr '\\n' ' '",
			"fd full mqueue null ptmx pts random shm stderr stdin stdout tty urandom zero ");
		want_code(x, "echo >/dev/null && head -c1 /dev/zero >/dev/null && head -c1 /dev/urandom >/dev/null", 0);
		want(x, "script -qec tty /dev/null </dev/null | tr -d '\\r'", "/dev/pts/0");
		want_code(x, "mount -o remount,rw,bind /", 32);
		want_code(x, "umount /home", 32);
		want_code(x, "unshare -m true", 1);
		want_code(x, "mknod /tmp/vda b 254 0", 1);
		want_code(x, "cat /proc/1/environ", 1); // nor what celld was started with
		want_code(x, "[ $(ls -d /proc/[0-9]* | wc -l) -lt 10 ]", 0);
		char command[600];
		(void)snprintf(command, sizeof command, "ls -A %s", k.dir);
		ck_assert_int_gt(boxkit_run(x, command, out, sizeof out), 0);
		if (geteuid() == 0) {
			want_code(x, "setpriv --reuid 1000 --regid 1000 --clear-groups cat /run/key/token", 1);
			want(x,
				"setpriv --reuid 1000 --regid 1000 --clear-groups sh -c 'whoami; echo a >/home/user/a "
				"&& cat ~user/a'",
				"user\na");
		}
	}
	boxkit_release(&k);
}
END_TEST

START_TEST(boxes_do_not_see_each_other)
{
	struct boxkit k;
	char command[600];
	boxkit_init(&k, (enum boxkit_way)_i);
	if (k.namespaces) {
		// Beside what is hidden anyway: a place under /var.
		char old[sizeof k.dir];
		(void)snprintf(old, sizeof old, "%s", k.dir);
		if (geteuid() == 0) {
			(void)snprintf(k.dir, sizeof k.dir, "/var/lib/celld-box-XXXXXX");
			ck_assert_ptr_nonnull(mkdtemp(k.dir));
		}
		struct boxkit_box *a = boxkit_start(&k, 0), *b = boxkit_start(&k, 1);
		want_code(a,
			"echo secret >/home/user/s; echo secret >/tmp/s; echo secret >/dev/shm/s; sleep 500 & echo", 0);
		want(b, "ls /home/user /tmp /dev/shm; pgrep sleep", "/dev/shm:\n\n/home/user:\n\n/tmp:");
		(void)snprintf(command, sizeof command, "ls -A %s", k.dir);
		if (geteuid() == 0)
			want(b, command, "");
		boxkit_end(a);
		boxkit_end(b);
		if (geteuid() == 0) {
			(void)snprintf(command, sizeof command, "rm -rf %s", k.dir);
			ck_assert_int_eq(system(command), 0);
			(void)snprintf(k.dir, sizeof k.dir, "%s", old);
		}
	}
	boxkit_release(&k);
}
END_TEST

START_TEST(a_long_directory)
{
	struct boxkit k;
	boxkit_init(&k, (enum boxkit_way)_i);
	size_t n = strlen(k.dir);
	while (n < 300) {
		n += (size_t)snprintf(k.dir + n, sizeof k.dir - n, "/a-directory-with-a-name");
		ck_assert_int_eq(mkdir(k.dir, 0755), 0);
	}
	struct boxkit_box *x = boxkit_start(&k, 0);
	want(x, "echo hello", "hello");
	boxkit_end(x);
	k.dir[strlen("/tmp/celld-box-XXXXXX")] = '\0';
	boxkit_release(&k);
}
END_TEST

// --- tokens ---

static bool answers(const struct boxkit_box *x, const char *head, int status)
{
	return boxkit_ask(x, BOX_ENVD, head, "", 5, out, sizeof out) == status;
}

START_TEST(tokens_come_and_go)
{
	struct boxkit k;
	boxkit_init(&k, (enum boxkit_way)_i);
	struct boxkit_box *x = boxkit_start(&k, 0);
	ck_assert(answers(x, "GET /envs", 200));
	ck_assert_int_eq(box_set_token(x->b, "one"), 0);
	BOXKIT_UNTIL(&k, answers(x, "GET /envs", 401));
	ck_assert_int_eq(boxkit_run(x, "echo", out, sizeof out), -1);
	ck_assert_int_eq(boxkit_ask(x, BOX_ENVD, "POST /init", "{\"accessToken\":\"two\"}", 5, out, sizeof out), 401);
	ck_assert_int_eq(box_set_token(x->b, NULL), 0);
	BOXKIT_UNTIL(&k, answers(x, "GET /envs", 200));
	// One that /init has set goes too, and a crash does not bring it back.
	ck_assert_int_eq(boxkit_ask(x, BOX_ENVD, "POST /init", "{\"accessToken\":\"two\"}", 5, out, sizeof out), 204);
	ck_assert(answers(x, "GET /envs", 401));
	ck_assert_int_eq(box_set_token(x->b, ""), 0);
	BOXKIT_UNTIL(&k, answers(x, "GET /envs", 200));
	want_code(x, "kill -9 $PPID", -1);
	BOXKIT_UNTIL(&k, answers(x, "GET /envs", 200));
	// One that it has set since stays.
	ck_assert_int_eq(boxkit_ask(x, BOX_ENVD, "POST /init", "{\"accessToken\":\"three\"}", 5, out, sizeof out), 204);
	ck_assert(answers(x, "GET /envs", 401));
	boxkit_end(x);
	boxkit_release(&k);
}
END_TEST

// --- frozen ---

START_TEST(frozen_nothing_runs)
{
	static const char counting[] =
		"for i in 1 2 3; do (while :; do (echo x >>n); done) >/dev/null 2>&1 & done; echo";
	struct boxkit k;
	char path[600];
	boxkit_init(&k, way_of(_i));
	struct boxkit_box *x = boxkit_start(&k, 0);
	(void)snprintf(path, sizeof path, "%s/n", box_work(x->b));
	want_code(x, "sh -c 'echo $$ >stopped; kill -STOP $$' >/dev/null 2>&1 & echo", 0);
	want_code(x, counting, 0);
	for (int round = 0; round < 3; round++) {
		long long before = size_of(path);
		BOXKIT_UNTIL(&k, size_of(path) > before + 20);
		double began = boxkit_time();
		ck_assert_int_eq(box_freeze(x->b), 0);
		ck_assert_int_eq(box_freeze(x->b), 0);
		ck_assert(boxkit_time() - began < 5);
		ck_assert(box_frozen(x->b) && box_alive(x->b));
		before = size_of(path);
		ck_assert_int_eq(boxkit_ask(x, BOX_SANDBOXD, "GET /health", "", 0.2, out, sizeof out), -1);
		ck_assert_int_eq(size_of(path), before);
		ck_assert_int_eq(box_thaw(x->b), 0);
		ck_assert(!box_frozen(x->b));
		ck_assert_int_eq(boxkit_ask(x, BOX_SANDBOXD, "GET /health", "", 5, out, sizeof out), 204);
	}
	// What its user had stopped has not been continued.
	want(x, "ps -o state= -p $(cat stopped)", "T");
	ck_assert_int_eq(box_freeze(x->b), 0);
	boxkit_end(x);
	boxkit_release(&k);
}
END_TEST

// A command's time does not run while the box is frozen.
START_TEST(frozen_time_does_not_count)
{
	struct boxkit k;
	boxkit_init(&k, way_of(_i));
	struct boxkit_box *x = boxkit_start(&k, 0);
	static const char body[] = "{\"command\":\"echo >begun; sleep 1.5; echo done\",\"timeout\":3}";
	char request[512], path[600];
	int fd = box_connect(x->b, BOX_SANDBOXD);
	ck_assert_int_ge(fd, 0);
	int n = snprintf(request, sizeof request, "POST /exec HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n%s",
		strlen(body), body);
	ck_assert_int_eq(write(fd, request, (size_t)n), n);
	(void)snprintf(path, sizeof path, "%s/begun", box_work(x->b));
	BOXKIT_UNTIL(&k, size_of(path) > 0);
	double until = boxkit_time() + 0.5; // so that the daemon too is done with its start
	while (boxkit_time() < until)
		boxkit_turn(&k, 0.1);
	ck_assert_int_eq(box_freeze(x->b), 0);
	until = boxkit_time() + 4;
	while (boxkit_time() < until)
		boxkit_turn(&k, 0.1);
	ck_assert_int_eq(box_thaw(x->b), 0);
	ssize_t got = -1;
	BOXKIT_UNTIL(&k, (got = read(fd, out, sizeof out - 1)) != -1 || errno != EAGAIN);
	out[got > 0 ? got : 0] = '\0';
	ck_assert_msg(strstr(out, "\"stdout\":\"done") && strstr(out, "\"timed_out\":false"), "%s", out);
	close(fd);
	boxkit_end(x);
	boxkit_release(&k);
}
END_TEST

// --- its ports ---

static unsigned free_port(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, n), 0);
	ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&a, &n), 0);
	close(fd);
	return ntohs(a.sin_port);
}

static void serve_in(const struct boxkit_box *x, const char *celld, const char *address, unsigned port)
{
	char command[700];
	(void)snprintf(command, sizeof command,
		"setsid %s --no-init --venv off --listen %s:%u --envd-listen off --workspace $PWD/w "
		">/dev/null 2>&1 &",
		celld, address, port);
	want_code(x, command, 0);
}

START_TEST(any_port_of_it)
{
	struct boxkit k;
	boxkit_init(&k, (enum boxkit_way)(_i % BOXKIT_WAYS));
	k.private_net = _i >= BOXKIT_WAYS;
	bool own = k.private_net && k.namespaces;
	unsigned port = free_port();
	struct boxkit_box *x = boxkit_start(&k, 0), *y = own ? boxkit_start(&k, 1) : NULL;
	const char *celld = k.namespaces ? "/run/celld" : k.celld;
	ck_assert_int_eq(box_connect(x->b, port), -ECONNREFUSED);
	serve_in(x, celld, "127.0.0.1", port);
	BOXKIT_UNTIL(&k, boxkit_ask(x, port, "GET /health", "", 5, out, sizeof out) == 204);
	if (y) {
		// The same number in another box, and by the other address; neither is a port of ours.
		ck_assert_int_eq(box_connect(y->b, port), -ECONNREFUSED);
		serve_in(y, celld, "[::1]", port);
		BOXKIT_UNTIL(&k, boxkit_ask(y, port, "GET /health", "", 5, out, sizeof out) == 204);
		struct sockaddr_in a = {.sin_family = AF_INET,
			.sin_port = htons((uint16_t)port),
			.sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		ck_assert_int_eq(connect(fd, (struct sockaddr *)&a, sizeof a), -1);
		close(fd);
		boxkit_end(y);
	}
	boxkit_end(x);
	boxkit_release(&k);
}
END_TEST

// --- many, and cut short ---

START_TEST(fifty_at_once)
{
	struct boxkit k;
	int ready = 0, ended = 0;
	boxkit_init(&k, (enum boxkit_way)_i);
	double began = boxkit_time();
	for (int i = 0; i < BOXKIT_MAX; i++)
		boxkit_begin(&k, i);
	double begun = boxkit_time();
	while (ready < BOXKIT_MAX) {
		boxkit_turn(&k, 1);
		ready = ended = 0;
		for (int i = 0; i < BOXKIT_MAX; i++) {
			ready += k.box[i].ready;
			ended += k.box[i].ended;
		}
		ck_assert_int_eq(ended, 0);
		ck_assert(boxkit_time() - began < 30);
	}
	double all = boxkit_time();
	for (int i = 0; i < BOXKIT_MAX; i++)
		want_code(&k.box[i], "exit 7", 7);
	double ran = boxkit_time();
	for (int i = 0; i < BOXKIT_MAX; i++)
		box_kill(k.box[i].b);
	for (int i = 0; i < BOXKIT_MAX; i++)
		BOXKIT_UNTIL(&k, k.box[i].ended);
	if (getenv("BOXKIT_VERBOSE"))
		fprintf(stderr, "50 boxes: begun after %.3f s, ready %.3f, a command each %.3f, ended %.3f\n",
			begun - began, all - began, ran - all, boxkit_time() - ran);
	boxkit_release(&k);
}
END_TEST

START_TEST(killed_at_any_moment_of_its_start)
{
	struct boxkit k;
	boxkit_init(&k, (enum boxkit_way)(_i % BOXKIT_WAYS));
	k.private_net = _i >= BOXKIT_WAYS;
	for (int i = 0; i < 40; i++) {
		struct boxkit_box *x = boxkit_begin(&k, 0);
		usleep((useconds_t)i * 250);
		if (i % 4 == 3) {
			box_free(x->b);
			x->b = NULL;
			continue;
		}
		if (i % 2)
			box_kill(x->b);
		else
			kill(box_pid(x->b), SIGKILL);
		BOXKIT_UNTIL(&k, x->ended);
	}
	boxkit_release(&k);
}
END_TEST

// The last child of a gateway that was killed has no parent that waits for it but us.
static bool all_gone(void)
{
	while (waitpid(-1, NULL, WNOHANG) > 0) {
	}
	return waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD;
}

static void be_gateway(struct boxkit *k, int ready_count, int report)
{
	k->loop = ev_loop_new(EVFLAG_NOENV);
	for (int i = 0; i < ready_count; i++)
		want_code(boxkit_start(k, i), "for i in 1 2 3; do setsid sleep 1000 >/dev/null 2>&1 & done; echo", 0);
	for (int i = ready_count; i < 6; i++)
		boxkit_begin(k, i);
	ck_assert_int_eq(write(report, "", 1), 1);
	for (;;)
		boxkit_turn(k, 1);
}

START_TEST(a_killed_gateway_leaves_nothing)
{
	struct boxkit k;
	char c;
	int report[2];
	boxkit_init(&k, (enum boxkit_way)_i);
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
	for (int round = 0; round < 4; round++) {
		ck_assert_int_eq(pipe2(report, O_CLOEXEC), 0);
		pid_t gateway = fork();
		if (gateway == 0)
			be_gateway(&k, 3, report[1]);
		close(report[1]);
		ck_assert_int_eq(read(report[0], &c, 1), 1);
		close(report[0]);
		usleep((useconds_t)round * 1500);
		ck_assert_int_eq(kill(gateway, SIGKILL), 0);
		// Its groups stay, empty; the next one removes them.
		double until = boxkit_time() + 10;
		while (!all_gone()) {
			ck_assert_msg(boxkit_time() < until, "round %d: something lives on", round);
			usleep(5000);
		}
		box_cgroup_sweep();
		ck_assert_int_eq(boxkit_groups(gateway), 0);
	}
	boxkit_release(&k);
}
END_TEST

Suite *gateway_box_suite(void)
{
	Suite *s = suite_create("gateway_box");
	TCase *t = tcase_create("box");
	tcase_set_timeout(t, 60);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, it_starts_serves_and_ends, 0, BOXKIT_WAYS);
	tcase_add_loop_test(t, stopping_in_order_is_an_end_too, 0, BOXKIT_WAYS);
	tcase_add_loop_test(t, a_start_that_fails_says_why, 0, BOXKIT_WAYS);
	tcase_add_loop_test(t, it_sees_only_its_own, 0, BOXKIT_PLAIN);
	tcase_add_loop_test(t, boxes_do_not_see_each_other, 0, BOXKIT_PLAIN);
	tcase_add_loop_test(t, a_long_directory, 0, BOXKIT_WAYS);
	tcase_add_loop_test(t, tokens_come_and_go, 0, BOXKIT_WAYS);
	tcase_add_loop_test(t, frozen_nothing_runs, 0, WAYS_AND_GROUPS);
	tcase_add_loop_test(t, frozen_time_does_not_count, 0, WAYS_AND_GROUPS);
	tcase_add_loop_test(t, any_port_of_it, 0, 2 * BOXKIT_WAYS);
	tcase_add_loop_test(t, fifty_at_once, 0, BOXKIT_WAYS);
	tcase_add_loop_test(t, killed_at_any_moment_of_its_start, 0, 2 * BOXKIT_WAYS);
	tcase_add_loop_test(t, a_killed_gateway_leaves_nothing, 0, BOXKIT_WAYS);
	suite_add_tcase(s, t);
	return s;
}
