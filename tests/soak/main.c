// SPDX-License-Identifier: Apache-2.0
// soak CELLD: CLIENTS workers use a celld of its own for T seconds; afterwards nothing of it may be left. soak load CELLD: how
// it bears crowds. Variables: T (600), CLIENTS (50), SEED (the time), KILL_DAEMON (1: kill -9 of the daemon now and then).
// The exit status is 1, with the seed and the first discrepancies, if anything is off.
#include "tests/soak/soak.h"

#include <dirent.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define QUIET_S 30
#define STOP_S 120

struct soak {
	const char *celld;
	long seconds, clients, kill;
	unsigned long seed;
	struct sandbox box;
	char workspace[128];
	struct tally *t;
	pid_t worker[WORKERS_MAX];
	long kills, left; // left: commands that broken actions left
	struct holding base, after;
};

static void note(struct soak *k, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static void note(struct soak *k, const char *fmt, ...)
{
	unsigned at = atomic_fetch_add(&k->t->wrongs, 1);
	va_list ap;
	va_start(ap, fmt);
	if (at < WRONGS_MAX)
		vsnprintf(k->t->wrong[at], sizeof k->t->wrong[at], fmt, ap);
	va_end(ap);
}

// --- the workers ---

static pid_t start_worker(struct soak *k, int id, int phase)
{
	char dir[160];
	struct worker w = {.t = k->t, .id = id, .port = {k->box.port, k->box.envd_port}, .dir = dir};
	pid_t pid = fork();
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	signal(SIGPIPE, SIG_IGN);
	snprintf(dir, sizeof dir, "%s/w%d", k->workspace, id);
	mkdir(dir, 0777);
	w.n = (unsigned long)phase * 1000000000;
	w.random = k->seed * 1000003u + (unsigned long)(phase * WORKERS_MAX + id);
	_exit(worker_run(&w));
}

// Waits for the workers, who have been told to stop; whoever hangs is named.
static void collect(struct soak *k)
{
	int64_t end = client_now_us() + (int64_t)STOP_S * 1000000 * client_scale();
	for (int i = 0; i < k->clients; i++) {
		int status = 0;
		pid_t got;
		while ((got = waitpid(k->worker[i], &status, WNOHANG)) == 0 && client_now_us() < end)
			pause_us(2000);
		if (got == 0) {
			char doing[sizeof k->t->doing[i]];
			memcpy(doing, k->t->doing[i], sizeof doing);
			note(k, "worker %d hangs in %.31s", i, doing);
			kill(k->worker[i], SIGKILL);
			waitpid(k->worker[i], &status, 0);
		} else if (status != 0) {
			note(k, "worker %d ended with wait status %d", i, status);
		}
	}
}

static bool is_healthy(const struct soak *k)
{
	struct client c;
	bool ok = client_open(&c, k->box.port) == 0 && client_get(&c, "/health") == 204;
	client_close(&c);
	return ok;
}

static void kill_daemon(struct soak *k)
{
	pid_t pid = sandbox_daemon(&k->box);
	int64_t end = client_now_us() + 15000000 * (int64_t)client_scale();
	atomic_fetch_add(&k->t->epoch, 1);
	if (pid > 0)
		kill(pid, SIGKILL);
	while ((sandbox_daemon(&k->box) == pid || !is_healthy(k)) && client_now_us() < end)
		pause_us(5000);
	if (client_now_us() >= end)
		note(k, "no answer after a kill of the daemon %d", (int)pid);
	atomic_fetch_add(&k->t->epoch, 1);
	k->kills++;
}

// Actions that a kill broke off may have left terminals, which have no timeout. They end here if the last daemon knows them.
static void end_left(struct soak *k)
{
	struct client list, c;
	size_t i;
	const json_t *p;
	bool ok = client_open(&list, k->box.port) == 0 && client_get(&list, "/exec/processes") == 200 &&
		  client_open(&c, k->box.port) == 0;
	const json_t *all = ok ? json_object_get(list.doc, "processes") : NULL;
	json_array_foreach(all, i, p) client_post(&c, "/exec/signal", "{s:I, s:s}", "pid",
		json_integer_value(json_object_get(p, "pid")), "signal", "KILL");
	k->left = (long)json_array_size(all);
	if (!ok)
		note(k, "no list of processes after the kills");
	else
		client_close(&c);
	client_close(&list);
}

static void run_phase(struct soak *k, int phase, long seconds)
{
	int64_t end = client_now_us() + seconds * 1000000;
	atomic_store(&k->t->stop, false);
	for (int i = 0; i < k->clients; i++)
		k->worker[i] = start_worker(k, i, phase);
	struct worker chance = {.random = k->seed};
	while (client_now_us() < end) {
		int64_t left = end - client_now_us();
		int64_t step = k->kill && phase ? 3000000 + pick(&chance, 5000000) : left;
		pause_us(step < left ? step : left > 0 ? left : 0);
		if (client_now_us() < end && k->kill && phase)
			kill_daemon(k);
	}
	atomic_store(&k->t->stop, true);
	collect(k);
}

// --- the end ---

static void end_sandbox(struct soak *k)
{
	struct client c;
	int status = client_open(&c, k->box.port);
	c.limit_us *= 6;
	if (status == 0)
		status = client_post(&c, "/workspace/reset", "{}");
	if (status != 200)
		note(k, "/workspace/reset: %d", status);
	client_close(&c);
	DIR *dir = opendir(k->workspace);
	const struct dirent *d;
	long left = 0;
	while (dir && (d = readdir(dir)) != NULL)
		left += strcmp(d->d_name, ".") != 0 && strcmp(d->d_name, "..") != 0 &&
			strcmp(d->d_name, ".k8e_events") != 0; // has the reset itself
	if (!dir || left)
		note(k, "%ld entries left by the reset", left);
	if (dir)
		closedir(dir);
	status = sandbox_stop(&k->box);
	if (status != 0)
		note(k, "exit status %d after TERM", status);
}

// A sanitizer's words in celld's log; the log's end goes to stderr if SHOW.
static bool has_finding(const struct soak *k, bool show)
{
	char line[4096];
	bool found = false;
	FILE *f = fopen(k->box.log, "re");
	while (f && fgets(line, sizeof line, f))
		found = found || strstr(line, "Sanitizer") || strstr(line, "runtime error:");
	if (f && show && (fseek(f, -16384, SEEK_END) == 0 || fseek(f, 0, SEEK_SET) == 0)) {
		fprintf(stderr, "--- the end of celld's log\n");
		while (fgets(line, sizeof line, f))
			fputs(line, stderr);
		fprintf(stderr, "---\n");
	}
	if (f)
		fclose(f);
	return found;
}

static void print_tally(struct soak *k, double seconds)
{
	struct tally *t = k->t;
	const struct {
		const char *what;
		unsigned long n;
	} rows[] = {
		{"actions", t->actions},
		{"requests", t->requests},
		{"streams begun", t->streams},
		{"streams with a proper end", t->streams_ended},
		{"streams that their client left", t->streams_left},
		{"streams cut by a kill", t->streams_cut},
		{"disconnects in the middle", t->disconnects},
		{"slow readers", t->slow_readers},
		{"malformed requests", t->malformed},
		{"bytes of output", t->bytes},
		{"requests without an answer", t->no_answer},
		{"kills of the daemon", (unsigned long)k->kills},
		{"actions excused by a kill", t->excused},
		{"commands that those left", (unsigned long)k->left},
	};
	printf("%ld clients, %.0f s after the warm-up, seed %lu, %s\n\n", k->clients, seconds, k->seed,
		k->box.pid1 ? "PID 1 of a namespace" : "--init, no namespace");
	printf("%-34s %12s\n", "WHAT", "HOW MANY");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		printf("%-34s %12lu\n", rows[i].what, rows[i].n);
	for (int s = A; s <= B; s++) {
		printf("status on surface %c:", "AB"[s]);
		for (int i = 0; i < STATUS_MAX; i++)
			if (t->status[s][i])
				printf("  %d: %lu", i, (unsigned long)t->status[s][i]);
		putchar('\n');
	}
}

static int judge(struct soak *k, double seconds)
{
	struct tally *t = k->t;
	unsigned long known = t->streams_ended + t->streams_left + t->streams_cut;
	if (known > t->streams || (t->streams > known && !k->kill))
		note(k, "%ld streams begun of whose end nothing is known", (long)t->streams - (long)known);
	if (has_finding(k, false))
		note(k, "a sanitizer's finding in celld's log");
	print_tally(k, seconds);
	int bad = holding_print(&k->base, &k->after);
	unsigned wrongs = t->wrongs;
	if (!wrongs && !bad) {
		printf("\nall as it has to be\n");
		return 0;
	}
	printf("\n%u discrepancies, %d rows off; again with SEED=%lu CLIENTS=%ld T=%ld\n", wrongs, bad, k->seed,
		k->clients, k->seconds);
	for (unsigned i = 0; i < wrongs && i < WRONGS_MAX; i++)
		printf("  %s\n", t->wrong[i]);
	fflush(stdout);
	has_finding(k, true);
	return 1;
}

static int work(const char *dir, void *arg)
{
	struct soak *k = arg;
	snprintf(k->workspace, sizeof k->workspace, "%s/workspace", dir);
	k->t = mmap(NULL, sizeof *k->t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (k->t == MAP_FAILED || sandbox_start(&k->box, k->celld, dir, sandbox_can_pid1()) < 0)
		return 1;
	long warm = k->seconds / 5 < 10 ? 10 : k->seconds / 5 > 60 ? 60 : k->seconds / 5;
	run_phase(k, 0, warm);
	if (!holding_await(&k->base, NULL, &k->box, k->workspace, 2 * QUIET_S * client_scale()))
		note(k, "not quiet after the warm-up: %ld processes", k->base.processes);
	pid_t daemon = sandbox_daemon(&k->box);
	int64_t start = client_now_us();
	run_phase(k, 1, k->seconds);
	double seconds = (double)(client_now_us() - start) / 1e6;
	if (k->kill)
		end_left(k);
	k->base.killed = k->kill;
	struct holding quiet;
	holding_await(&quiet, NULL, &k->box, k->workspace, 2 * QUIET_S * client_scale());
	holding_await(&k->after, &k->base, &k->box, k->workspace, QUIET_S * client_scale());
	if (!k->kill && sandbox_daemon(&k->box) != daemon)
		note(k, "the daemon %d did not live through it", (int)daemon);
	end_sandbox(k);
	return judge(k, seconds);
}

static long number(const char *name, long otherwise)
{
	const char *v = getenv(name);
	return v && *v ? atol(v) : otherwise;
}

int main(int argc, char **argv)
{
	struct soak k = {.celld = argc > 1 ? argv[argc - 1] : NULL, .seconds = number("T", 600)};
	bool load = argc == 3 && strcmp(argv[1], "load") == 0;
	k.clients = number("CLIENTS", 50);
	k.seed = (unsigned long)number("SEED", (long)time(NULL));
	k.kill = number("KILL_DAEMON", 0);
	if (!k.celld || (argc != 2 && !load) || k.seconds < 1 || k.clients < 1 || k.clients > WORKERS_MAX) {
		fprintf(stderr, "usage: soak [load] CELLD\n");
		return 2;
	}
	if (load)
		return keeper_run(load_work, (void *)(uintptr_t)k.celld, 300 * client_scale());
	// What has ended is forgotten soon, so that the memory is that of a quiet sandbox.
	setenv("CELLD_RETENTION", "2", 1);
	return keeper_run(work, &k, (int)k.seconds + 60 + (2 * STOP_S + 5 * QUIET_S) * client_scale());
}
