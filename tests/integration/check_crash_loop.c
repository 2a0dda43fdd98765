// SPDX-License-Identifier: Apache-2.0
// Daemons that die again and again: the pauses, the ends of commands in those very moments, and that init does not wear out.
#include "tests/integration/deathkit.h"
#include "tests/integration/suites.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

// A daemon that lived so long is started again at once.
#define LIVED_MS 1000
#define RESTARTS 100 // CRASH_RESTARTS says another number
#define ENDS 10

static void pause_us(long us)
{
	const struct timespec t = {us / 1000000, us % 1000000 * 1000};
	(void)nanosleep(&t, NULL);
}

// Ten deaths in a row: each pause is longer than the last, init holds no more than before, the commands live.
START_TEST(crash_loop_spins_or_wears_init_out)
{
	static const char *const pauses[] = {"in 0 ms", "in 10 ms", "in 20 ms", "in 40 ms", "in 80 ms", "in 160 ms"};
	struct testd *d = death_start_with();
	struct testd init = death_init_view(d);
	struct resp r = {0};
	struct sse_out o = {0};
	struct sse *s = sse_exec(d, "echo up; read x; exit 31");
	int64_t pid = sse_pid(s);
	sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
	death_crash(d, SIGKILL);
	sse_close(s);
	int fds = d_fd_count(&init);
	long rss = d_rss_kib(&init);
	for (int i = 1; i < 10; i++)
		death_crash(d, SIGKILL);
	// A slow machine may let a daemon live for a second, and the pauses start over.
	for (size_t i = 0; h_scale() <= 1 && i < sizeof pauses / sizeof *pauses; i++)
		death_assert_log(d, pauses[i]);
	ck_assert_int_eq(j_int(death_status(d, &r), "restarts"), 10);
	ck_assert_str_eq(j_str(death_status(d, &r), "last_death"), strsignal(SIGKILL));
	ck_assert_int_eq(d_fd_count(&init), fds);
	ck_assert_msg(d_rss_kib(&init) - rss <= (d_sanitized(d) ? 2048 : 128), "init grew from %ld to %ld KiB", rss,
		d_rss_kib(&init));
	ck_assert_uint_lt(d_cpu_ticks(&init), (uint64_t)h_scaled(100));
	death_feed(d, pid, "\n", 1);
	death_collect(d, pid, 31, &o);
	sse_out_release(&o);
	resp_release(&r);
	d_finish(d);
}
END_TEST

// One who connects in the pause waits, and is served by the next daemon; a command ends in it all the same.
START_TEST(connection_in_the_pause_is_refused)
{
	struct testd *d = death_start_with();
	struct sse_out o = {0};
	int gate = death_gate(d, "gate");
	struct sse *s = sse_exec(d, "read x <gate; exit 32");
	int64_t pid = sse_pid(s);
	for (int i = 0; i < 6; i++)
		death_crash(d, SIGKILL);
	sse_close(s);
	pid_t old = death_kill(d, SIGKILL, NULL);
	ck_assert_int_eq(write(gate, "\n", 1), 1);
	death_assert_serves(d);
	death_await(d, old, 3000);
	death_collect(d, pid, 32, &o);
	sse_out_release(&o);
	(void)close(gate);
	d_finish(d);
}
END_TEST

// --- the very moment ---

struct moment {
	struct testd *d;
	unsigned seed;
	int64_t pid[ENDS];
	int code[ENDS];
};

// Commands that all wait for the end of one fifo. *GATE holds it open.
static void begin(struct moment *m, int *gate)
{
	char path[512], script[80];
	(void)snprintf(path, sizeof path, "%s/end", m->d->workspace);
	(void)unlink(path);
	ck_assert_int_eq(mkfifo(path, 0666), 0);
	*gate = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_ge(*gate, 0);
	for (int i = 0; i < ENDS; i++) {
		m->code[i] = (int)((unsigned)rand_r(&m->seed) % 250) + 1;
		(void)snprintf(script, sizeof script, "exec 3<end; echo up; read x <&3; exit %d", m->code[i]);
		struct sse *s = sse_exec(m->d, script);
		m->pid[i] = sse_pid(s);
		sse_until(s, FRAME_STDOUT, "up\n", NULL, 5000);
		sse_close(s);
	}
}

static void assert_ends(const struct moment *m)
{
	for (int i = 0; i < ENDS; i++) {
		struct sse_out o = {0};
		death_collect(m->d, m->pid[i], m->code[i], &o);
		assert_text(&o.ch[FRAME_STDOUT], "up\n");
		sse_out_release(&o);
	}
}

static int crash_while_they_end(struct moment *m)
{
	int gate;
	int64_t born = h_now_ms();
	begin(m, &gate);
	death_wait_until(born, LIVED_MS);
	int sig = (int[]){SIGKILL, DEATH_FAULT, SIGABRT}[rand_r(&m->seed) % 3];
	bool first = rand_r(&m->seed) % 4 == 0;
	pid_t old = first ? death_kill(m->d, sig, NULL) : 0;
	(void)close(gate);
	if (!first) {
		pause_us(rand_r(&m->seed) % 3000);
		old = death_kill(m->d, sig, NULL);
	}
	death_await(m->d, old, 8000);
	assert_ends(m);
	return ENDS;
}

static int restarts(void)
{
	const char *v = getenv("CRASH_RESTARTS");
	int n = v ? atoi(v) : 0;
	return n > 0 ? n : RESTARTS;
}

// Init's copies of what has ended go a moment later.
struct flat {
	const struct testd *init;
	int fds;
};

static bool is_flat(void *arg)
{
	const struct flat *f = arg;
	return d_fd_count(f->init) <= f->fds;
}

// A thousand commands end round a hundred deaths: each exit code is right, and init is what it was.
START_TEST(hundred_restarts_wear_init_out)
{
	struct moment m = {.d = death_start_with("--retention", "5"), .seed = (unsigned)h_now_ms()};
	unsigned seed = m.seed;
	struct testd init = death_init_view(m.d);
	struct resp r = {0};
	long rss = 0;
	int ends = 0, fds = 0, count = restarts();
	for (int i = 0; i < count; i++) {
		ends += crash_while_they_end(&m);
		if (i == 5) {
			rss = d_rss_kib(&init);
			fds = d_fd_count(&init);
		}
	}
	ck_assert_int_eq(ends, count * ENDS);
	ck_assert_int_eq(j_int(death_status(m.d, &r), "restarts"), count);
	struct flat f = {&init, fds};
	ck_assert_msg(wait_until(is_flat, &f, 2000), "init had %d descriptors, and has %d (seed %u)", fds,
		d_fd_count(&init), seed);
	ck_assert_msg(d_rss_kib(&init) - rss <= (d_sanitized(m.d) ? 2048 : 128), "init grew from %ld to %ld KiB", rss,
		d_rss_kib(&init));
	ck_assert_int_eq(d_zombies(m.d), 0);
	resp_release(&r);
	d_finish(m.d);
}
END_TEST

// --- starts ---

// As many commands run as are listed.
static bool list_is_right(void *arg)
{
	const struct testd *d = arg;
	struct resp r = {0};
	req(d, "GET", "/exec/processes", NULL, &r);
	size_t rows = json_array_size(j_get(resp_json(&r), "processes"));
	resp_release(&r);
	return (size_t)d_count_cmdline(d, "sleep 1030", NULL) == rows;
}

// A daemon that dies while it starts a command: it runs and is listed, or it does not run.
START_TEST(command_that_was_being_started_is_an_orphan)
{
	static const char body[] = "{\"command\":\"exec sleep 1030\",\"timeout\":600}";
	struct testd *d = death_start_with();
	unsigned seed = (unsigned)h_now_ms();
	for (int i = 0; i < 12; i++) {
		int64_t born = h_now_ms();
		struct client *c = client_connect(d);
		death_wait_until(born, LIVED_MS);
		client_request(c, "POST", "/exec/stream", NULL, body, sizeof body - 1);
		pause_us(rand_r(&seed) % 1500);
		death_crash(d, i % 2 ? DEATH_FAULT : SIGKILL);
		client_close(c);
		ck_assert_msg(wait_until(list_is_right, d, 3000), "a command runs and is not listed (round %d)", i);
	}
	d_finish(d);
}
END_TEST

Suite *crash_loop_suite(void)
{
	Suite *s = suite_create("crash_loop");
	TCase *tc = h_tcase(s, "pauses", 30);
	tcase_add_test(tc, crash_loop_spins_or_wears_init_out);
	tcase_add_test(tc, connection_in_the_pause_is_refused);
	tcase_add_test(tc, command_that_was_being_started_is_an_orphan);
	tc = h_tcase(s, "hundred", 2.0 * restarts());
	tcase_add_test(tc, hundred_restarts_wear_init_out);
	return s;
}
