// SPDX-License-Identifier: Apache-2.0
// Large trees are removed by a child of the daemon: nobody waits for it but who asked, and whatever happens to it, the tree goes. The tests
// that want one stop it, so that what they look at happens meanwhile for certain.
#include "tests/integration/deathkit.h"
#include "tests/integration/harness.h"
#include "tests/integration/suites.h"
#include "tests/integration/workkit.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define FILES 20000
#define IN_A_DIR 100
#define TRIES 5
#define ROUNDS 3 // what leaks by one each time is seen beside a connection that is still being closed
#define CLONE_PIDFD_FLAG 0x1000L

enum { SURFACE_A, SURFACE_B };

// A tree that the daemon is to remove, and the child that does.
struct removal {
	struct testd *d;
	int surface;
	char room[64], tree[80];
	struct client *c;
	pid_t child; // as seen from outside; 0 = none
};

// --- trees ---

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *at)
{
	(void)st, (void)type, (void)at;
	return remove(path);
}

static void make_room(struct removal *k)
{
	bool shm = access("/dev/shm", W_OK) == 0;
	(void)snprintf(k->room, sizeof k->room, "%s/celld-it-removal-XXXXXX", shm ? "/dev/shm" : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(k->room));
	(void)snprintf(k->tree, sizeof k->tree, "%s/tree", k->room);
}

static void drop_room(const struct removal *k)
{
	ck_assert_int_eq(nftw(k->room, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
}

static void make_tree(const struct removal *k)
{
	char path[160];
	ck_assert_int_eq(mkdir(k->tree, 0755), 0);
	for (int i = 0; i < FILES; i++) {
		(void)snprintf(path, sizeof path, "%s/%d", k->tree, i / IN_A_DIR);
		if (i % IN_A_DIR == 0)
			ck_assert_int_eq(mkdir(path, 0755), 0);
		(void)snprintf(path, sizeof path, "%s/%d/f%d", k->tree, i / IN_A_DIR, i);
		int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		ck_assert_int_ge(fd, 0);
		(void)close(fd);
	}
}

static void assert_gone(const struct removal *k)
{
	ck_assert_int_eq(access(k->tree, F_OK), -1);
	ck_assert_int_eq(errno, ENOENT);
}

// --- the child ---

// Whether there is to be one here: two CPUs that may be used, and a kernel that makes them.
static bool able(void)
{
	cpu_set_t set;
	long quota = 0, period = 0;
	int fd = -1;
	FILE *f = fopen("/sys/fs/cgroup/cpu.max", "re");
	bool limited = f && fscanf(f, "%ld %ld", &quota, &period) == 2 && quota < 2 * period;
	if (f)
		(void)fclose(f);
	if (limited || sched_getaffinity(0, sizeof set, &set) < 0 || CPU_COUNT(&set) < 2)
		return false;
	long pid = syscall(SYS_clone, CLONE_PIDFD_FLAG, 0L, &fd, 0L, 0L);
	if (pid == 0)
		_exit(0);
	if (pid > 0)
		ck_assert_int_eq(waitpid((pid_t)pid, NULL, __WALL), pid);
	(void)close(fd);
	return pid > 0;
}

// The daemon's child of that name, or 0.
static pid_t find_child(const struct removal *k)
{
	char path[64], text[32];
	struct pinfo all[64];
	size_t n = procs_below(k->d->daemon, all, 64);
	for (size_t i = 0; i < n && i < 64; i++) {
		(void)snprintf(path, sizeof path, "/proc/%d/comm", (int)all[i].pid);
		FILE *f = fopen(path, "re");
		bool same = f && fgets(text, sizeof text, f) && strcmp(text, "celld-remove\n") == 0;
		if (f)
			(void)fclose(f);
		// It has one in turn.
		if (same && all[i].state != 'Z' && all[i].ppid == k->d->daemon)
			return all[i].pid;
	}
	return 0;
}

static void ask(struct removal *k)
{
	char body[128];
	(void)snprintf(body, sizeof body, "{\"path\":\"%s\"}", k->tree);
	if (k->surface == SURFACE_A) {
		k->c = client_connect(k->d);
		client_request(k->c, "POST", "/files/remove", NULL, body, strlen(body));
	} else {
		k->c = client_connect_to(k->d->envd_host, k->d->envd_port, 0);
		client_request(k->c, "POST", "/filesystem.Filesystem/Remove", NULL, body, strlen(body));
	}
}

static bool is_answered(const struct removal *k)
{
	struct pollfd p = {.fd = k->c->fd, .events = POLLIN};
	return poll(&p, 1, 0) > 0;
}

static void await_answer(struct removal *k)
{
	struct resp r = {0};
	client_response(k->c, &r);
	ck_assert_int_eq(r.status, 200);
	if (k->surface == SURFACE_A)
		ck_assert(j_bool(resp_json(&r), "ok"));
	else
		assert_text(&r.body, "{}");
	resp_release(&r);
	client_close(k->c);
	k->c = NULL;
}

// Asks for a removal whose child is then found stopped. One that is through before it is seen is no harm: another one is made.
static void freeze(struct removal *k)
{
	for (int i = 0; i < TRIES; i++) {
		make_tree(k);
		ask(k);
		do
			k->child = find_child(k);
		while (!k->child && !is_answered(k));
		struct pinfo p = {0};
		if (k->child && kill(k->child, SIGSTOP) == 0) {
			while (proc_info(k->child, &p) && !strchr("TZ", p.state))
				h_tick();
			if (p.state == 'T')
				return;
		}
		await_answer(k);
		assert_gone(k);
	}
	ck_abort_msg("no child was seen in %d removals", TRIES);
}

static void release(struct removal *k)
{
	client_close(k->c);
	drop_room(k);
}

static void assert_health(const struct testd *d)
{
	struct resp r = {0};
	req(d, "GET", "/health", NULL, &r);
	ck_assert_int_eq(r.status, 204);
	resp_release(&r);
}

// What the daemon has once it has served: descriptors (of a connection that is just being closed one more) and children.
struct held {
	const struct testd *d;
	int fds, children;
};

static struct held held_by(const struct testd *d)
{
	struct resp r = {0};
	assert_health(d);
	ck_assert_int_eq(j_int(run(d, "exit 3", &r), "exit_code"), 3);
	resp_release(&r);
	return (struct held){d, d_fd_count(d), d_children(d)};
}

static bool holds_no_more(void *arg)
{
	const struct held *h = arg;
	return d_fd_count(h->d) <= h->fds && d_children(h->d) <= h->children;
}

// --- the tests ---

START_TEST(others_wait_for_a_removal)
{
	struct removal k = {.d = d_start("--envd-listen", "127.0.0.1:0"), .surface = _i};
	struct resp r = {0};
	make_room(&k);
	struct held h = held_by(k.d);
	for (int i = 0; i < ROUNDS && able(); i++) {
		freeze(&k);
		for (int n = 0; n < 3; n++)
			assert_health(k.d);
		// It is no command.
		req(k.d, "GET", "/exec/processes", NULL, &r);
		ck_assert_int_eq(r.status, 200);
		ck_assert_ptr_null(strstr(buf_cstr(&r.body), "celld-remove"));
		ck_assert_int_eq(j_int(run(k.d, "exit 3", &r), "exit_code"), 3);
		ck_assert(!is_answered(&k));
		ck_assert_int_eq(kill(k.child, SIGCONT), 0);
		await_answer(&k);
		assert_gone(&k);
	}
	ck_assert(wait_until(holds_no_more, &h, 5000));
	release(&k);
	resp_release(&r);
	d_finish(k.d);
}
END_TEST

START_TEST(killed_child_leaves_the_tree)
{
	struct removal k = {.d = d_start("--envd-listen", "127.0.0.1:0"), .surface = _i};
	make_room(&k);
	struct held h = held_by(k.d);
	for (int i = 0; i < ROUNDS && able(); i++) {
		freeze(&k);
		ck_assert_int_eq(kill(k.child, SIGKILL), 0);
		await_answer(&k);
		assert_gone(&k);
	}
	ck_assert(wait_until(holds_no_more, &h, 5000));
	release(&k);
	d_finish(k.d);
}
END_TEST

static bool is_gone(void *arg)
{
	const struct removal *k = arg;
	return access(k->tree, F_OK) < 0 && errno == ENOENT && d_children(k->d) == 0;
}

START_TEST(client_that_leaves_ends_the_removal)
{
	struct removal k = {.d = d_start("--envd-listen", "127.0.0.1:0"), .surface = _i};
	make_room(&k);
	if (able()) {
		freeze(&k);
		client_abort(k.c);
		k.c = NULL;
		assert_health(k.d);
		ck_assert_int_eq(kill(k.child, SIGCONT), 0);
		ck_assert(wait_until(is_gone, &k, 10000));
	}
	release(&k);
	d_finish(k.d);
}
END_TEST

// A reset kills whatever runs below the daemon; it does not wait for a removal, nor does that suffer.
START_TEST(reset_waits_for_a_removal)
{
	struct removal k = {.d = d_start("--envd-listen", "127.0.0.1:0"), .surface = _i};
	struct resp r = {0};
	make_room(&k);
	if (able()) {
		(void)run(k.d, "mkdir a && touch a/b c", &r);
		freeze(&k);
		ck_assert_int_ge(j_int(wk_reset(k.d, &r), "removed"), 3);
		ck_assert_str_eq(wk_left(k.d), "");
		await_answer(&k);
		assert_gone(&k);
		ck_assert(wait_until(is_gone, &k, 5000));
	}
	release(&k);
	resp_release(&r);
	d_finish(k.d);
}
END_TEST

static bool has_no_child(void *arg)
{
	const struct testd *d = arg;
	return d_children(d) == 0 && d_zombies(d) == 0;
}

// What a reset itself removes is counted the same.
START_TEST(reset_of_a_large_workspace)
{
	struct testd *d = d_start();
	struct resp r = {0};
	(void)run(d, "for i in $(seq 200); do mkdir d$i && (cd d$i && seq 100 | xargs touch); done", &r);
	int64_t n = j_int(wk_reset(d, &r), "removed");
	ck_assert_int_ge(n, 20202); // and the journal of events
	ck_assert_int_le(n, 20203);
	ck_assert_str_eq(wk_left(d), "");
	ck_assert(wait_until(has_no_child, d, 5000));
	resp_release(&r);
	d_finish(d);
}
END_TEST

// d_finish wants it to end, and nothing left.
START_TEST(stop_waits_for_a_removal)
{
	struct removal k = {.d = d_start("--envd-listen", "127.0.0.1:0"), .surface = _i};
	make_room(&k);
	if (able())
		freeze(&k);
	d_finish(k.d);
	ck_assert(!k.child || !pid_alive(k.child));
	release(&k);
}
END_TEST

static bool is_dead(void *arg)
{
	return !pid_alive(*(pid_t *)arg);
}

START_TEST(child_outlives_the_daemon)
{
	struct removal k = {.d = death_start_with("--grace", "100"), .surface = SURFACE_A};
	make_room(&k);
	if (able()) {
		freeze(&k);
		if (_i == 0)
			death_crash(k.d, SIGKILL);
		else
			death_upgrade(k.d);
		ck_assert(wait_until(is_dead, &k.child, 5000));
		assert_health(k.d);
		ck_assert(wait_until(has_no_child, k.d, 5000));
	}
	release(&k);
	d_finish(k.d);
}
END_TEST

// One call of the kernel's frees it: that is the child's, too.
START_TEST(large_file_is_answered_when_it_is_gone)
{
	struct removal k = {.d = d_start("--envd-listen", "127.0.0.1:0"), .surface = _i};
	make_room(&k);
	struct held h = held_by(k.d);
	for (int i = 0; i < ROUNDS; i++) {
		int fd = open(k.tree, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
		ck_assert_int_ge(fd, 0);
		ck_assert_int_eq(posix_fallocate(fd, 0, 32 << 20), 0);
		(void)close(fd);
		ask(&k);
		await_answer(&k);
		assert_gone(&k);
		assert_health(k.d);
	}
	ck_assert(wait_until(holds_no_more, &h, 5000));
	release(&k);
	d_finish(k.d);
}
END_TEST

// Where there is nothing to be won everything is as it ever was.
START_TEST(child_on_the_only_cpu)
{
	cpu_set_t set, old;
	int cpu = sched_getcpu();
	ck_assert_int_eq(sched_getaffinity(0, sizeof old, &old), 0);
	CPU_ZERO(&set);
	CPU_SET((size_t)cpu, &set);
	ck_assert_int_eq(sched_setaffinity(0, sizeof set, &set), 0);
	struct removal k = {.d = d_start("--envd-listen", "127.0.0.1:0"), .surface = _i};
	ck_assert_int_eq(sched_setaffinity(0, sizeof old, &old), 0);
	make_room(&k);
	make_tree(&k);
	ask(&k);
	while (!is_answered(&k))
		ck_assert_int_eq(find_child(&k), 0);
	await_answer(&k);
	assert_gone(&k);
	release(&k);
	d_finish(k.d);
}
END_TEST

Suite *removals_suite(void)
{
	Suite *s = suite_create("removals");
	TCase *tc = h_tcase(s, "aside", 60);
	tcase_add_loop_test(tc, others_wait_for_a_removal, SURFACE_A, SURFACE_B + 1);
	tcase_add_loop_test(tc, killed_child_leaves_the_tree, SURFACE_A, SURFACE_B + 1);
	tcase_add_loop_test(tc, client_that_leaves_ends_the_removal, SURFACE_A, SURFACE_B + 1);
	tcase_add_loop_test(tc, reset_waits_for_a_removal, SURFACE_A, SURFACE_B + 1);
	tcase_add_test(tc, reset_of_a_large_workspace);
	tcase_add_loop_test(tc, stop_waits_for_a_removal, SURFACE_A, SURFACE_B + 1);
	tcase_add_loop_test(tc, child_outlives_the_daemon, 0, 2);
	tcase_add_loop_test(tc, large_file_is_answered_when_it_is_gone, SURFACE_A, SURFACE_B + 1);
	tcase_add_loop_test(tc, child_on_the_only_cpu, SURFACE_A, SURFACE_B + 1);
	return s;
}
