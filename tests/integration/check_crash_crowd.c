// SPDX-License-Identifier: Apache-2.0
// Fifty commands of all kinds, with readers that come back, while the daemon is killed at random moments and replaced: every exit code is
// right, and every numbered line is there once.
#include "tests/integration/deathkit.h"
#include "tests/integration/suites.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CROWD 50
#define CRASHES 20
#define UPGRADES 5
#define LIVED_MS 1000
#define TICK_MS 15
// "L00000001\n", and at most what a daemon reads at once.
#define LINE 10
#define READ_MAX 65536
#define DIGITS 8
#define PRINT "i=$((i+1)); printf 'L%08d\\n' $i"
#define NUMBERED(more) "i=0; while [ ! -e stop ]; do " more "; sleep $P; done"

enum kind { FLOOD, BURSTS, SMALL, TERMINAL, ASKED, KINDS };

// Each prints numbered lines until the file "stop" is there, and how many they were; or what it is sent. Without a reader nothing holds a
// command up: what a flood writes in the time that its reader needs to come back has to fit into the replay.
static const struct {
	int count;
	enum frame_channel channel;
	double pause; // seconds; on slow machines longer
	const char *script;
} kinds[KINDS] = {
	[FLOOD] = {4, FRAME_STDOUT, .05, NUMBERED("for k in $(seq 800); do " PRINT "; done")},
	[BURSTS] = {14, FRAME_STDERR, .25, NUMBERED("for k in $(seq 30); do " PRINT " >&2; done")},
	[SMALL] = {12, FRAME_STDOUT, .4, NUMBERED(PRINT)},
	[TERMINAL] = {10, FRAME_PTY, .3, "stty raw -echo; " NUMBERED(PRINT)},
	[ASKED] = {10, FRAME_STDOUT, 0, "i=0; while read x; do i=$((i+1)); echo $x; done"},
};

struct member {
	enum kind kind;
	int code;
	int64_t pid;
	struct sse *s, *old; // OLD: of a daemon that is gone
	char part[LINE + 2]; // the beginning of a line
	size_t used;
	bool told;      // how many lines there were
	int last, sent; // numbers
	int seen;       // the last one of this connection
	int gaps;
	bool ended, truncated;
};

struct crowd {
	struct testd *d;
	struct member m[CROWD];
	unsigned seed;
	int crashes;
	bool ending;
	size_t lines;
};

// --- starts ---

static void begin(struct crowd *c, struct member *m, int index)
{
	char script[400];
	struct resp r = {0};
	m->code = 100 + index;
	double pause = kinds[m->kind].pause * h_scale() * h_scale();
	(void)snprintf(script, sizeof script, "P=%.2f; %s; printf 'E%%08d\\n' $i%s; exit %d", pause,
		kinds[m->kind].script, m->kind == BURSTS ? " >&2" : "", m->code);
	if (m->kind == TERMINAL) {
		req_pack(c->d, "POST", "/pty/create", &r, "{s:[s,s,s]}", "argv", "/bin/sh", "-c", script);
		ck_assert_int_eq(r.status, 200);
		m->pid = j_int(resp_json(&r), "pid");
		m->s = sse_attach(c->d, m->pid);
	} else {
		m->s = sse_open_pack(c->d, "/exec/stream", "{s:s,s:b,s:i}", "command", script, "stdin",
			m->kind == ASKED, "timeout", 600);
		m->pid = sse_pid(m->s);
	}
	resp_release(&r);
}

static void begin_all(struct crowd *c)
{
	int index = 0;
	for (int k = 0; k < KINDS; k++) {
		for (int i = 0; i < kinds[k].count; i++, index++) {
			c->m[index].kind = (enum kind)k;
			begin(c, &c->m[index], index);
		}
	}
	ck_assert_int_eq(index, CROWD);
}

// --- what they say ---

// A place where something is missing: at most one a crash, each of at most one read.
static void gap(struct crowd *c, struct member *m, int from, int to)
{
	m->gaps++;
	ck_assert_msg(m->gaps <= c->crashes, "command %d: lines %d to %d are missing, after %d crashes and %d gaps",
		m->code, from, to, c->crashes, m->gaps - 1);
	ck_assert_msg((to - from + 1) * LINE <= READ_MAX + LINE, "command %d: more than a read is missing: %d to %d",
		m->code, from, to);
}

static void line(struct crowd *c, struct member *m, char kind, int n)
{
	int due = kind == 'L' ? m->last + 1 : m->last;
	ck_assert_msg(!m->told, "command %d: a line behind the last", m->code);
	if (kind == 'L')
		ck_assert_msg(n > m->seen, "command %d: line %d behind %d", m->code, n, m->seen);
	m->seen = n;
	if (n < due && kind == 'L')
		return; // the replay has it again
	ck_assert_int_ge(n, due);
	if (n > due)
		gap(c, m, due, kind == 'L' ? n - 1 : n);
	m->last = n;
	m->told = kind == 'E';
	c->lines++;
}

// One byte of its lines. Only where a reader comes in may a line lack its beginning, or at a gap.
static void byte(struct crowd *c, struct member *m, char ch)
{
	bool first = ch == 'L' || ch == 'E';
	if (first && m->used > 0)
		m->used = 0; // torn by a gap; the numbers will show it
	if (m->used == 0 && !first)
		return; // the same; or the rest of a line whose beginning is not kept
	m->part[m->used++] = ch;
	if (m->used < LINE && ch != '\n')
		return;
	m->part[m->used] = '\0';
	if (m->used == LINE && ch == '\n' && strspn(m->part + 1, "0123456789") == DIGITS)
		line(c, m, m->part[0], atoi(m->part + 1));
	m->used = 0;
}

static void leave(struct member *m, struct sse **s)
{
	sse_close(*s);
	*s = NULL;
	m->used = 0;
	m->seen = 0;
}

static void take(struct crowd *c, struct member *m, const struct sse_event *e)
{
	const char *p = (const char *)buf_data(&e->data);
	switch (e->kind) {
	case SSE_DATA:
		ck_assert_int_eq(e->channel, kinds[m->kind].channel);
		for (size_t i = 0; i < buf_len(&e->data); i++)
			byte(c, m, p[i]);
		return;
	case SSE_PID:
		ck_assert_int_eq(e->pid, m->pid);
		return;
	case SSE_EXIT:
		ck_assert_msg(e->code == m->code && !*e->signal, "command %d ended with %lld \"%s\"", m->code,
			(long long)e->code, e->signal);
		ck_assert_msg(c->ending, "command %d ended with %d lines before it should", m->code, m->last);
		m->ended = true;
		m->truncated = e->truncated;
		return;
	case SSE_ERROR:
		ck_assert_str_eq(j_str(e->obj, "code"), "unavailable");
		return;
	default:
		return;
	}
}

// Takes what is there of a stream; true if there was something. One that is over is closed.
static bool pump_stream(struct crowd *c, struct member *m, struct sse **s)
{
	struct sse_event e = {0};
	bool any = false;
	for (int i = 0; *s && i < 16; i++) {
		enum sse_kind kind = sse_next(*s, &e, 0);
		if (kind == SSE_TIMEOUT)
			break;
		any = true;
		take(c, m, &e);
		if (kind == SSE_CUT || kind == SSE_END)
			leave(m, s);
	}
	sse_event_release(&e);
	return any;
}

// The old stream first, then what the new one has again.
static bool pump_one(struct crowd *c, struct member *m)
{
	return pump_stream(c, m, m->old ? &m->old : &m->s);
}

static bool pump(struct crowd *c)
{
	bool any = false;
	for (int i = 0; i < CROWD; i++)
		any |= pump_one(c, &c->m[i]);
	return any;
}

// Until one of them has more, or a moment is over.
static void wait_for_any(const struct crowd *c)
{
	struct pollfd p[CROWD];
	nfds_t n = 0;
	for (int i = 0; i < CROWD; i++) {
		struct sse *s = c->m[i].old ? c->m[i].old : c->m[i].s;
		if (s)
			p[n++] = (struct pollfd){.fd = sse_client(s)->fd, .events = POLLIN};
	}
	(void)poll(p, n, TICK_MS);
}

// The stdin users' next number, once the last one is back.
static void ask(struct crowd *c)
{
	char text[32];
	for (int i = 0; i < CROWD; i++) {
		struct member *m = &c->m[i];
		if (m->kind != ASKED || m->last < m->sent || rand_r(&c->seed) % 4)
			continue;
		(void)snprintf(text, sizeof text, "L%08d\n", ++m->sent);
		death_feed(c->d, m->pid, text, LINE);
	}
}

// --- what happens to them ---

static void live(struct crowd *c, int64_t until)
{
	while (h_now_ms() < until) {
		ask(c);
		if (!pump(c))
			wait_for_any(c);
	}
}

// The readers come back at once; they read what was on its way to them before.
static void come_back(struct crowd *c)
{
	for (int i = 0; i < CROWD; i++) {
		struct member *m = &c->m[i];
		m->old = m->s;
		m->s = sse_attach(c->d, m->pid);
	}
	for (int i = 0; i < CROWD; i++) {
		struct member *m = &c->m[i];
		int64_t end = h_now_ms() + h_scaled(5000);
		while (m->old) {
			ck_assert_msg(h_now_ms() < end, "the stream of command %d does not end", m->code);
			if (!pump_one(c, m))
				h_tick();
		}
	}
}

static void crash(struct crowd *c)
{
	pid_t old = death_kill(c->d, d_sanitized(c->d) || rand_r(&c->seed) % 4 == 0 ? DEATH_FAULT : SIGKILL, NULL);
	c->crashes++;
	death_await(c->d, old, 8000);
	come_back(c);
}

static void upgrade(struct crowd *c)
{
	pid_t old = c->d->daemon;
	d_signal(c->d, SIGUSR2);
	// They read on while it happens: what is under way is written to them.
	for (int64_t end = h_now_ms() + h_scaled(8000); d_refresh(c->d) == old || d_refresh(c->d) == 0;) {
		ck_assert_msg(h_now_ms() < end, "no new daemon");
		if (!pump(c))
			wait_for_any(c);
	}
	death_await(c->d, old, 8000);
	come_back(c);
}

static bool all_ended(struct crowd *c)
{
	for (int i = 0; i < CROWD; i++) {
		if (!c->m[i].ended || c->m[i].s)
			return false;
	}
	return true;
}

static void end_all(struct crowd *c)
{
	char path[512];
	c->ending = true;
	(void)snprintf(path, sizeof path, "%s/stop", c->d->workspace);
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	ck_assert_int_ge(fd, 0);
	(void)close(fd);
	for (int i = 0; i < CROWD; i++) {
		if (c->m[i].kind == ASKED)
			death_post(c->d, "/exec/stdin/close", "{s:I}", "pid", (json_int_t)c->m[i].pid);
	}
	for (int64_t end = h_now_ms() + h_scaled(15000); !all_ended(c);) {
		ck_assert_msg(h_now_ms() < end, "not all commands end");
		if (!pump(c))
			wait_for_any(c);
	}
}

static void assert_all(struct crowd *c)
{
	int gaps = 0;
	for (int i = 0; i < CROWD; i++) {
		const struct member *m = &c->m[i];
		ck_assert_msg(m->told, "the last line of command %d is missing", m->code);
		ck_assert_msg(m->gaps == 0 || m->truncated, "command %d: a gap that nobody told of", m->code);
		ck_assert_msg(
			m->kind != ASKED || m->last == m->sent, "command %d: %d of %d", m->code, m->last, m->sent);
		// Those of few lines have all of them in their replay: nothing else cuts it.
		if (c->crashes == 0 && m->kind != FLOOD)
			ck_assert_msg(!m->truncated, "command %d is truncated by an upgrade", m->code);
		gaps += m->gaps;
	}
	ck_assert_uint_gt(c->lines, h_scale() > 1 ? 2000 : 10000);
	if (gaps)
		fprintf(stderr, "crowd: %d gaps in %zu lines, all told\n", gaps, c->lines);
}

static void crowd_run(int crashes, int upgrades)
{
	// What a flood writes until its reader is back.
	static const char *const args[] = {"--replay", "512K", NULL};
	struct crowd *c = calloc(1, sizeof *c);
	struct resp r = {0};
	ck_assert_ptr_nonnull(c);
	c->seed = (unsigned)h_now_ms();
	unsigned seed = c->seed;
	c->d = death_start(NULL, args);
	begin_all(c);
	int events = crashes + upgrades;
	for (int i = 0; i < events; i++) {
		live(c, h_now_ms() + LIVED_MS + rand_r(&c->seed) % 200);
		// Every fifth, with both.
		if (upgrades == events || (upgrades && i % (events / upgrades) == 0))
			upgrade(c);
		else
			crash(c);
	}
	live(c, h_now_ms() + 200);
	json_t *status = death_status(c->d, &r);
	ck_assert_msg(j_int(status, "restarts") == crashes && j_int(status, "upgrades") == upgrades, "%s (seed %u)",
		j_text(status), seed);
	ck_assert_int_eq(c->crashes, crashes);
	end_all(c);
	assert_all(c);
	resp_release(&r);
	d_finish(c->d);
	free(c);
}

START_TEST(crowd_loses_a_line_to_crashes)
{
	crowd_run(CRASHES, UPGRADES);
}
END_TEST

START_TEST(crowd_loses_a_line_to_upgrades)
{
	crowd_run(0, UPGRADES);
}
END_TEST

Suite *crash_crowd_suite(void)
{
	Suite *s = suite_create("crash_crowd");
	TCase *tc = h_tcase(s, "crowd", 120);
	tcase_add_test(tc, crowd_loses_a_line_to_crashes);
	tcase_add_test(tc, crowd_loses_a_line_to_upgrades);
	return s;
}
