// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/scale.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define ROOM_FDS ((rlim_t)500)
#define ROOM_PIDS 2000
#define MANY "20000" // connections and commands that celld is told to allow
#define TOO_STEEP 20.0
#define TOO_SLOPED 1.5

enum kind { MEMORY, TIME, BESIDE, KINDS };

// A load, and what a single one of it takes of the machine.
struct load {
	const char *name;
	bool (*run)(struct scale *s, enum surface t);
	unsigned surfaces; // bits
	rlim_t fds;        // of celld; half of its limit is for connections
	double kib;        // of commands, not of celld
	bool processes;
};

enum { READERS, COMMANDS, WATCHERS, ENTRIES, LOADS = SCALE_LOADS };
enum { ONE = 1 << SURFACE_A, BOTH = 1 << SURFACE_A | 1 << SURFACE_B };

static const struct load loads[LOADS] = {
	[READERS] = {"readers of one command", scale_readers, BOTH, .fds = 2},
	[COMMANDS] = {"commands", scale_commands, ONE, .fds = 4, .kib = 400, .processes = true},
	[WATCHERS] = {"watchers", scale_watchers, BOTH, .fds = 0},
	[ENTRIES] = {"entries of a directory", scale_entries, BOTH, .fds = 0},
};

static const char *const kinds[KINDS] = {
	[MEMORY] = "memory, KiB",
	[TIME] = "all together, ms",
	[BESIDE] = "one call beside them, us",
};

static const struct {
	int load;
	enum kind kind;
	const char *name;
	int colour;
	bool dashed;
} rows[SCALE_ROWS] = {
	[SCALE_READERS_MEMORY_A] = {READERS, MEMORY, "A", 0, false},
	[SCALE_READERS_MEMORY_B] = {READERS, MEMORY, "B", 0, true},
	[SCALE_READERS_OPEN_A] = {READERS, TIME, "open A", 0, false},
	[SCALE_READERS_OPEN_B] = {READERS, TIME, "open B", 0, true},
	[SCALE_READERS_LINE_A] = {READERS, TIME, "a line to all A", 1, false},
	[SCALE_READERS_LINE_B] = {READERS, TIME, "a line to all B", 1, true},
	[SCALE_READERS_CLOSE_A] = {READERS, TIME, "close A", 2, false},
	[SCALE_READERS_CLOSE_B] = {READERS, TIME, "close B", 2, true},
	[SCALE_READERS_HEALTH_A] = {READERS, BESIDE, "health A", 0, false},
	[SCALE_READERS_HEALTH_B] = {READERS, BESIDE, "health B", 0, true},
	[SCALE_COMMANDS_MEMORY] = {COMMANDS, MEMORY, "celld", 0, false},
	[SCALE_COMMANDS_START] = {COMMANDS, TIME, "start", 0, false},
	[SCALE_COMMANDS_LIST_A] = {COMMANDS, TIME, "list A", 1, false},
	[SCALE_COMMANDS_LIST_B] = {COMMANDS, TIME, "list B", 1, true},
	[SCALE_COMMANDS_END] = {COMMANDS, TIME, "all end", 2, false},
	[SCALE_COMMANDS_RESET] = {COMMANDS, TIME, "reset", 3, false},
	[SCALE_COMMANDS_EXEC_A] = {COMMANDS, BESIDE, "sh -c true A", 0, false},
	[SCALE_COMMANDS_EXEC_B] = {COMMANDS, BESIDE, "sh -c true B", 0, true},
	[SCALE_WATCHERS_MEMORY_A] = {WATCHERS, MEMORY, "A", 0, false},
	[SCALE_WATCHERS_MEMORY_B] = {WATCHERS, MEMORY, "B", 0, true},
	[SCALE_WATCHERS_ADD_A] = {WATCHERS, TIME, "add A", 0, false},
	[SCALE_WATCHERS_ADD_B] = {WATCHERS, TIME, "add B", 0, true},
	[SCALE_WATCHERS_REMOVE_A] = {WATCHERS, TIME, "remove A", 1, false},
	[SCALE_WATCHERS_REMOVE_B] = {WATCHERS, TIME, "remove B", 1, true},
	[SCALE_WATCHERS_TREE_A] = {WATCHERS, TIME, "one of a tree A", 2, false},
	[SCALE_WATCHERS_TREE_B] = {WATCHERS, TIME, "one of a tree B", 2, true},
	[SCALE_WATCHERS_EVENT_A] = {WATCHERS, BESIDE, "create to event A", 0, false},
	[SCALE_WATCHERS_EVENT_B] = {WATCHERS, BESIDE, "create to event B", 0, true},
	[SCALE_ENTRIES_MEMORY_A] = {ENTRIES, MEMORY, "list A, peak", 0, false},
	[SCALE_ENTRIES_MEMORY_B] = {ENTRIES, MEMORY, "list B, peak", 0, true},
	[SCALE_ENTRIES_LIST_A] = {ENTRIES, TIME, "list A", 0, false},
	[SCALE_ENTRIES_LIST_B] = {ENTRIES, TIME, "list B", 0, true},
	[SCALE_ENTRIES_FLOOR] = {ENTRIES, TIME, "readdir, lstat", 4, false},
	[SCALE_ENTRIES_STAT_A] = {ENTRIES, BESIDE, "stat A", 0, false},
	[SCALE_ENTRIES_STAT_B] = {ENTRIES, BESIDE, "stat B", 0, true},
};

static const double sizes[SCALE_STEPS] = {10, 100, 1000, 10000};

static double number_in(const char *path, const char *key)
{
	char line[256];
	double v = -1;
	size_t n = strlen(key);
	FILE *f = fopen(path, "re");
	while (f && v < 0 && fgets(line, sizeof line, f))
		if (strncmp(line, key, n) == 0)
			v = strtod(line + n, NULL);
	if (f)
		fclose(f);
	return v;
}

// KiB. Of the two processes by their pids, since a walk over all processes is long with so many.
static double pss(const struct scale *s)
{
	double sum = 0;
	for (int i = 0; i < 2; i++) {
		char path[64];
		snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)s->tree[i]);
		sum += number_in(path, "Pss:");
	}
	return sum;
}

// --- what the loads share ---

void scale_put(struct scale *s, int row, double v)
{
	s->v[row][s->step] = v;
}

void scale_put_memory(struct scale *s, int row)
{
	scale_put(s, row, pss(s) - s->pss);
}

bool scale_wrong(struct scale *s, const char *what, int64_t rc)
{
	if (rc == -503 || rc == 503 || rc == -EMFILE || rc == -ENFILE || rc == -EADDRNOTAVAIL)
		snprintf(s->why, sizeof s->why, "%s: %" PRId64, what, rc);
	else
		bench_wrong(s->b, "%zu, %s: %" PRId64, s->n, what, rc);
	return false;
}

double scale_ms_since(int64_t start_us)
{
	return (double)(client_now_us() - start_us) / 1000;
}

double scale_p50_us(
	struct scale *s, enum surface t, int times, int (*call)(struct wire *w, const char *arg), const char *arg)
{
	double us[256];
	size_t n = (size_t)times < sizeof us / sizeof *us ? (size_t)times : sizeof us / sizeof *us;
	for (size_t i = 0; i < n; i++) {
		int64_t start = bench_now_ns();
		int rc = call(&s->wire[t], arg);
		us[i] = (double)(bench_now_ns() - start) / 1000;
		if (rc < 0) {
			scale_wrong(s, arg ? arg : "a call beside", rc);
			return -1;
		}
	}
	return bench_percentile(us, n, 50);
}

static size_t count_text(const char *in, const char *text)
{
	size_t n = 0, len = strlen(text);
	while (in && (in = strstr(in, text)) != NULL) {
		n++;
		in += len;
	}
	return n;
}

double scale_list_ms(
	struct scale *s, enum surface t, const char *target, const char *json, const char *key, size_t count)
{
	struct client *c = &s->wire[t].c;
	struct buf out = {0};
	if (json)
		wire_put_post(&out, t, target, json);
	else
		wire_put_get(&out, target);
	int64_t start = client_now_us();
	int rc = client_send_bytes(c, &out);
	buf_release(&out);
	if (rc == 0)
		rc = client_answer_stream(c);
	if (rc == 200)
		while ((rc = client_more(c)) > 0)
			continue;
	double ms = scale_ms_since(start);
	size_t found = rc == 0 ? count_text(buf_cstr(&c->body), key) : 0;
	if (rc == 0 && found == count)
		return ms;
	scale_wrong(s, target, rc != 0 ? rc : (int64_t)found);
	return -1;
}

// --- one size of one load ---

// Whether the machine has room for N; s->why if not.
static bool has_room(struct scale *s, const struct load *l, size_t n)
{
	struct rlimit now = {0};
	rlim_t want = n * l->fds + ROOM_FDS;
	double have = number_in("/proc/meminfo", "MemAvailable:"), pids = number_in("/proc/sys/kernel/pid_max", "");
	getrlimit(RLIMIT_NOFILE, &now);
	const struct rlimit more = {.rlim_cur = want, .rlim_max = want > now.rlim_max ? want : now.rlim_max};
	s->why[0] = '\0';
	if (now.rlim_cur < want && setrlimit(RLIMIT_NOFILE, &more) < 0)
		snprintf(s->why, sizeof s->why, "%ju descriptors are more than the limit of %ju", (uintmax_t)want,
			(uintmax_t)now.rlim_max);
	else if (l->processes && pids >= 0 && pids < (double)n + ROOM_PIDS)
		snprintf(s->why, sizeof s->why, "kernel.pid_max is %.0f", pids);
	else if (have >= 0 && have < (double)n * l->kib)
		snprintf(s->why, sizeof s->why, "%.0f MiB of memory are free", have / 1024);
	return !s->why[0];
}

// As many of N as there is room for, but more than LESS; a digit and zeros. 0 if there are none.
static size_t fitting(struct scale *s, const struct load *l, size_t n, size_t less)
{
	size_t m = n, digit = n;
	while (m > less && !has_room(s, l, m)) {
		if (m == n)
			printf("%zu %s: %s\n", n, l->name, s->why);
		digit = m == digit ? digit / 10 : digit;
		m -= digit;
	}
	s->why[0] = '\0';
	return m > less ? m : 0;
}

static bool start(struct scale *s, const char *load)
{
	char dir[96];
	snprintf(dir, sizeof dir, "%s/scale-%.3s", s->b->room, load);
	snprintf(s->workspace, sizeof s->workspace, "%s/workspace", dir);
	if ((mkdir(dir, 0755) < 0 && errno != EEXIST) || sandbox_start(&s->box, s->b->celld, dir, false) < 0)
		return false;
	for (int t = 0; t < 2; t++) {
		s->target[t] = (struct target){
			.name = t == SURFACE_A ? "A" : "B",
			.surface = (enum surface)t,
			.port = t == SURFACE_A ? s->box.port : s->box.envd_port,
			.pid = s->box.init,
		};
		if (wire_open(&s->wire[t], &s->target[t]) < 0 || wire_health(&s->wire[t]) < 0)
			return false;
	}
	s->tree[0] = s->box.init;
	s->tree[1] = sandbox_daemon(&s->box);
	s->pss = pss(s);
	return true;
}

static void run_one(struct scale *s, const struct load *l, enum surface t)
{
	s->wire[0].c.fd = s->wire[1].c.fd = -1;
	if (!start(s, l->name))
		bench_wrong(s->b, "no celld for %zu %s", s->n, l->name);
	else if (!l->run(s, t) && s->why[0])
		printf("%zu %s: %s\n", s->n, l->name, s->why);
	s->why[0] = '\0';
	wire_close(&s->wire[0]);
	wire_close(&s->wire[1]);
	int status = sandbox_stop(&s->box);
	if (status != 0)
		bench_wrong(s->b, "exit status %d after %zu %s", status, s->n, l->name);
}

// All sizes of one load, those in X.
static void run_load(struct scale *s, const struct load *l, double x[SCALE_STEPS])
{
	size_t before = 0;
	for (s->step = 0; s->step < SCALE_STEPS - s->b->quick; s->step++) {
		s->n = fitting(s, l, (size_t)sizes[s->step], before);
		if (!s->n)
			return;
		x[s->step] = (double)s->n;
		for (int t = 0; t < 2; t++)
			if (l->surfaces & 1u << t)
				run_one(s, l, (enum surface)t);
		before = s->n;
	}
}

// --- what came of it ---

// Never of the floor, which is the kernel's.
static bool too_steep(const struct scale *s, int row)
{
	double most = row == SCALE_ENTRIES_FLOOR ? HUGE_VAL : rows[row].kind == BESIDE ? TOO_SLOPED : TOO_STEEP;
	return plot_growth(s->x[rows[row].load], s->v[row]) > most;
}

// Three digits, but no more than DIGITS behind the point.
static void print_number(double v, int digits)
{
	int want = v >= 100 ? 0 : v >= 10 ? 1 : 2;
	if (v > 0)
		printf(" %9.*f", want < digits ? want : digits, v);
	else
		printf(" %9s", "-");
}

static void print_table(const struct scale *s)
{
	for (int i = 0; i < SCALE_ROWS; i++) {
		const double *x = s->x[rows[i].load];
		double factor = plot_growth(x, s->v[i]);
		if (i == 0 || rows[i].load != rows[i - 1].load) {
			printf("\n%-52s", loads[rows[i].load].name);
			for (int k = 0; k < SCALE_STEPS; k++)
				print_number(x[k], 0);
			printf("    ten times as many\n");
		}
		printf("  %-18s %-31s", rows[i].name, kinds[rows[i].kind]);
		for (int k = 0; k < SCALE_STEPS; k++)
			print_number(s->v[i][k], 2);
		if (factor > 0)
			printf("    x%.1f%s", factor, too_steep(s, i) ? " <" : "");
		putchar('\n');
	}
	printf("Each number in a celld of its own, all on one CPU. The last column is reckoned from the last two "
	       "numbers.\n<: twice as steep as linear; of a call beside them, half as long again.\n");
}

static void write_picture(const struct scale *s, const char *svg)
{
	struct plot_panel panel[KINDS * LOADS] = {0};
	char title[KINDS * LOADS][64];
	struct plot p = {
		.title = "celld: what many of a kind cost",
		.note = "A, B (dashed): the two surfaces. Along the dotted lines is linear; in the last row nothing "
			"should "
			"grow. xN: what ten times as many cost, by the last two points; bold: too much.",
		.x_name = "how many",
		.from = sizes[0],
		.to = sizes[SCALE_STEPS - 1],
		.panel = panel,
		.panels = KINDS * LOADS,
		.columns = LOADS,
	};
	for (int i = 0; i < KINDS * LOADS; i++) {
		snprintf(title[i], sizeof title[i], "%s: %s", loads[i % LOADS].name, kinds[i / LOADS]);
		panel[i].title = title[i];
		panel[i].level = i / LOADS == BESIDE;
		memcpy(panel[i].x, s->x[i % LOADS], sizeof panel[i].x);
	}
	for (int i = 0; i < SCALE_ROWS; i++) {
		struct plot_panel *to = &panel[(int)rows[i].kind * LOADS + rows[i].load];
		struct plot_line *l = &to->line[to->lines++];
		*l = (struct plot_line){
			.name = rows[i].name,
			.colour = rows[i].colour,
			.dashed = rows[i].dashed,
			.marked = too_steep(s, i),
		};
		memcpy(l->y, s->v[i], sizeof l->y);
	}
	int rc = plot_write(svg, &p);
	if (rc < 0)
		bench_wrong(s->b, "%s: %s", svg, strerror(-rc));
	else
		printf("picture: %s\n", svg);
}

void scale_run(struct bench *b, const char *svg)
{
	struct scale *s = calloc(1, sizeof *s);
	int64_t begin = client_now_us();
	if (!s) {
		bench_wrong(b, "no memory");
		return;
	}
	s->b = b;
	// Whether a wake-up crosses to another CPU is a matter of luck, and more than many of the times here.
	bench_pin(NULL, true);
	setenv("CELLD_MAX_CONNS", MANY, 1);
	setenv("CELLD_MAX_PROCS", MANY, 1);
	for (int l = 0; l < LOADS; l++)
		run_load(s, &loads[l], s->x[l]);
	unsetenv("CELLD_MAX_CONNS");
	unsetenv("CELLD_MAX_PROCS");
	bench_pin(NULL, false);
	print_table(s);
	write_picture(s, svg);
	printf("scaling: %.0f s\n", scale_ms_since(begin) / 1000);
	free(s);
}
