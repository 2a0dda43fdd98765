// SPDX-License-Identifier: Apache-2.0
// A daemon that is killed again and again while it starts commands and commands end: this process is its init part.
#include "daemon/core/proc.h"
#include "daemon/core/store.h"
#include "daemon/init_store.h"
#include "daemon/io.h"
#include "suites.h"

#include <errno.h>
#include <ev.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { COMMANDS = 400, AT_ONCE = 6, GOOD = 42 };

// What outlives every daemon.
struct score {
	int next;              // the next command's number
	int32_t pid[COMMANDS]; // once its start has succeeded
	int crashes;
	int lost;          // commands that say so
	int living, ended; // taken back
	int flood;         // the last number of the one command that there is, 0: they are many
	volatile int stop; // no more crashes: run all to their ends and look at them
	char why[200];
};

struct daemon {
	struct score *score;
	struct ev_loop *loop;
	struct procs *procs;
	struct spawn_base base;
};

static void must(struct daemon *d, bool ok, const char *what, int i)
{
	if (ok)
		return;
	snprintf(d->score->why, sizeof d->score->why, "command %d: %s", i, what);
	_exit(1);
}

static void start_one(struct daemon *d)
{
	char script[160], tag[16];
	const char *const argv[] = {"/bin/sh", "-c", script, NULL}, *const env[] = {"PATH=/usr/bin:/bin", NULL};
	struct proc *p;
	enum spawn_step step;
	int i = d->score->next++;
	snprintf(script, sizeof script, "echo a%d; %s echo b%d >&2; exit %d", i, i % 7 ? "" : "sleep 0.03;", i, i % 50);
	if (d->score->flood)
		snprintf(script, sizeof script, "exec seq 1 %d", d->score->flood);
	snprintf(tag, sizeof tag, "%d", i);
	const struct asked asked = {.argv = argv, .env = env, .tag = tag};
	struct proc_spec spec = {
		.run = {.path = argv[0], .argv = argv, .env = env, .cwd = "/"}, .command = script, .asked = &asked};
	int rc = proc_start(d->procs, &spec, &p, &step);
	must(d, rc == 0, "cannot start", i);
	d->score->pid[i] = proc_pid(p);
}

static void nothing(struct output_reader *r)
{
	(void)r;
}

static void check_output(struct daemon *d, struct proc *p, int i)
{
	struct output_reader r = {.wake = nothing, .cut = nothing};
	struct output_span s;
	char text[OUTPUT_CHANNELS][32] = {{0}}, want[32];
	output_attach(proc_output(p), &r);
	while (output_next(&r, 31, &s)) {
		size_t n = strlen(text[s.channel]);
		must(d, n + s.n < sizeof text[0], "more output than it wrote", i);
		memcpy(text[s.channel] + n, s.p, s.n);
		output_taken(&r, s.n);
	}
	d->score->lost += r.lost;
	for (int ch = 0; ch < 2; ch++) {
		snprintf(want, sizeof want, "%c%d\n", "ab"[ch], i);
		bool all = strcmp(text[ch], want) == 0;
		must(d, all || (r.lost && !text[ch][0]), text[ch], i);
	}
	output_detach(&r);
}

// All of it came, or it is said that some is missing: then at most a read for each crash is.
static void check_flood(struct daemon *d)
{
	struct output_reader r = {.wake = nothing, .cut = nothing};
	struct output_span s;
	struct proc *p = procs_find(d->procs, d->score->pid[0]);
	uint64_t want = 0;
	char tail[32], text[1024] = {0};
	size_t n = 0;
	for (int i = 1; i <= d->score->flood; i++)
		want += (uint64_t)snprintf(tail, sizeof tail, "%d\n", i);
	must(d, p && proc_end(p) && proc_end(p)->code == 0 && !proc_end(p)->sig, "the flood has no end", 0);
	uint64_t got = output_total(proc_output(p), OUTPUT_STDOUT);
	d->score->lost = output_lost(proc_output(p));
	must(d, got == want || (d->score->lost && got < want), "the flood has another length", 0);
	must(d, got + (uint64_t)d->score->crashes * 65536 >= want, "too much of the flood is lost", 0);
	output_attach(proc_output(p), &r);
	while (output_next(&r, sizeof text - 1, &s)) {
		size_t old = n + s.n < sizeof text ? n : sizeof text - 1 - s.n;
		memmove(text, text + n - old, old);
		memcpy(text + old, s.p, s.n);
		n = old + s.n;
		output_taken(&r, s.n);
	}
	output_detach(&r);
	size_t end = strlen(tail);
	must(d, d->score->lost || (n > end && memcmp(text + n - end, tail, end) == 0), "the flood ends otherwise", 0);
}

static void check_all(struct daemon *d)
{
	char tag[16];
	if (d->score->flood) {
		check_flood(d);
		return;
	}
	for (int i = 0; i < d->score->next; i++) {
		struct proc *p = d->score->pid[i] ? procs_find(d->procs, d->score->pid[i]) : NULL;
		snprintf(tag, sizeof tag, "%d", i);
		if (!d->score->pid[i])
			continue; // its daemon did not get to know
		must(d, p != NULL, "is not there", i);
		must(d, strcmp(proc_asked(p)->tag, tag) == 0, "is another", i);
		const struct proc_end *end = proc_end(p);
		must(d, end && !end->sig && !end->stopped, "has no end of its own", i);
		must(d, end->code == i % 50, "another exit code", i);
		check_output(d, p, i);
	}
}

static void on_child(struct ev_loop *loop, ev_signal *w, int revents)
{
	(void)loop, (void)revents;
	procs_reap(((struct daemon *)w->data)->procs);
}

static void on_tick(struct ev_loop *loop, ev_timer *w, int revents)
{
	(void)loop, (void)revents;
	struct daemon *d = w->data;
	int max = d->score->flood ? 1 : COMMANDS;
	while (!d->score->stop && procs_living(d->procs) < AT_ONCE && d->score->next < max)
		start_one(d);
	if (!d->score->stop || !procs_alone(d->procs))
		return;
	check_all(d);
	_exit(GOOD);
}

static _Noreturn void serve(struct score *score, struct store *store)
{
	struct daemon d = {.score = score, .loop = ev_loop_new(EVFLAG_AUTO | EVFLAG_NOENV)};
	struct proc_limits limits = {.max_procs = COMMANDS,
		.max_ended = COMMANDS,
		.ended_memory = SIZE_MAX / 2,
		.stdin_max = 1000,
		.replay = 1000,
		.grace_ms = 1000,
		.retention_ms = 600000,
		.init = getppid(),
		.store = store};
	struct procs_taken taken;
	struct rlimit nofile;
	ev_signal chld;
	ev_timer tick;
	signal(SIGPIPE, SIG_IGN);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	must(&d, getrlimit(RLIMIT_NOFILE, &nofile) == 0 && spawn_base_init(&d.base, &nofile, 0) == 0, "base", -1);
	d.procs = procs_new(d.loop, &limits, &d.base);
	must(&d, d.procs && procs_take_back(d.procs, &taken) == 0, "taking back", -1);
	must(&d, taken.refused == 0, "refused", -1);
	score->living += (int)taken.living;
	score->ended += (int)taken.ended;
	ev_signal_init(&chld, on_child, SIGCHLD);
	ev_timer_init(&tick, on_tick, 0.001, 0.001);
	chld.data = tick.data = &d;
	ev_signal_start(d.loop, &chld);
	ev_timer_start(d.loop, &tick);
	ev_run(d.loop, 0);
	_exit(2);
}

// One daemon's life, at most MS milliseconds of it (0: as long as it likes). How it ended.
static int live(struct init_store *is, struct score *score, int ms)
{
	siginfo_t si = {0};
	int channel = init_store_open(is);
	ck_assert_int_ge(channel, 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		init_store_child(is, channel);
		serve(score, is->store);
	}
	close(channel);
	is->daemon = pid;
	int64_t end = io_mono_ns() + (int64_t)ms * 1000000;
	for (;;) {
		init_store_turn(is);
		init_store_look(is);
		init_store_overdue(is);
		si.si_pid = 0;
		ck_assert_int_eq(waitid(P_PID, (id_t)pid, &si, WEXITED | WNOHANG), 0);
		if (si.si_pid)
			break;
		if (ms && io_mono_ns() >= end && (!score->flood || score->pid[0]))
			kill(pid, SIGKILL);
		poll(NULL, 0, 1);
	}
	init_store_gone(is);
	init_store_look(is);
	return si.si_code == CLD_EXITED ? si.si_status : -si.si_status;
}

struct game {
	struct init_store is;
	struct score *score;
	uint32_t rnd;
};

static void game_init(struct game *g, uint32_t seed)
{
	struct store_sizes sizes = {.slots = COMMANDS + 100, .record = 2000, .log = proc_log_size(1000)};
	g->is = (struct init_store){.store = store_new(&sizes, 4096), .channel = -1};
	g->score = mmap(NULL, sizeof *g->score, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	g->rnd = 88172645u + seed;
	ck_assert(g->is.store && g->score != MAP_FAILED);
	ck_assert_int_eq(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

static void crash(struct game *g)
{
	g->rnd ^= g->rnd << 13;
	g->rnd ^= g->rnd >> 17;
	g->rnd ^= g->rnd << 5;
	int status = live(&g->is, g->score, 4 + (int)(g->rnd % 40));
	ck_assert_msg(status == -SIGKILL, "a daemon ended with %d: %s", status, g->score->why);
	g->score->crashes++;
}

static void game_end(struct game *g)
{
	g->score->stop = 1;
	int status = live(&g->is, g->score, 0);
	ck_assert_msg(status == GOOD, "the last daemon ended with %d: %s", status, g->score->why);
	ck_assert_int_le(g->score->lost, g->score->crashes);
	munmap(g->score, sizeof *g->score);
	store_free(g->is.store);
}

START_TEST(crashes_at_any_moment)
{
	struct game g;
	game_init(&g, (uint32_t)_i);
	while (g.score->next < COMMANDS && g.score->crashes < 200)
		crash(&g);
	ck_assert_int_ge(g.score->crashes, 4);
	ck_assert_int_gt(g.score->living, 0);
	ck_assert_int_gt(g.score->ended, 0);
	game_end(&g);
}
END_TEST

START_TEST(a_flood_through_crashes)
{
	struct game g;
	game_init(&g, (uint32_t)_i);
	g.score->flood = 4000000;
	// Some die before they have looked.
	while (g.score->living + g.score->ended < 8 && g.score->crashes < 100)
		crash(&g);
	ck_assert_int_ge(g.score->living + g.score->ended, 8);
	game_end(&g);
}
END_TEST

Suite *proc_crash_suite(void)
{
	Suite *s = suite_create("proc_crash");
	TCase *t = tcase_create("crash");
	suite_add_tcase(s, t);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, crashes_at_any_moment, 0, 3);
	tcase_add_loop_test(t, a_flood_through_crashes, 0, 3);
	return s;
}
