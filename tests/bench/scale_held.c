// SPDX-License-Identifier: Apache-2.0
// Many readers of one command, and many commands.
#include "tests/bench/scale.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#define OPEN_AT_ONCE ((size_t)64)
#define START_AT_ONCE ((size_t)16)
#define LINES 3
#define ASKED 100
#define EXECS 20
#define LISTED 5
#define END_US ((int64_t)60000000)

// --- readers ---

static int open_reader(struct wire *w, const struct target *t, int pid)
{
	struct buf out = {0};
	char text[64];
	int rc = wire_open(w, t);
	snprintf(
		text, sizeof text, t->surface == SURFACE_A ? "/exec/attach?pid=%d" : "{\"process\":{\"pid\":%d}}", pid);
	if (t->surface == SURFACE_A)
		wire_put_get(&out, text);
	else
		wire_put_post_stream(&out, SURFACE_B, "/process.Process/Connect", text);
	if (rc == 0)
		rc = client_send_bytes(&w->c, &out);
	buf_release(&out);
	return rc;
}

static bool open_readers(struct scale *s, struct wire *w, const struct target *t, int pid)
{
	struct wire_event e = {0};
	int rc = 0;
	for (size_t done = 0; done < s->n && rc >= 0;) {
		size_t end = done + OPEN_AT_ONCE < s->n ? done + OPEN_AT_ONCE : s->n;
		for (size_t i = done; i < end && rc >= 0; i++)
			rc = open_reader(&w[i], t, pid);
		for (; done < end && rc >= 0; done++) {
			rc = wire_stream_head(&w[done]);
			if (rc >= 0)
				rc = wire_event(&w[done], &e);
			if (rc >= 0 && (rc == 0 || e.kind != WIRE_STARTED || e.pid != pid))
				rc = -EPROTO;
		}
	}
	wire_event_release(&e);
	return rc >= 0 || scale_wrong(s, "a reader", rc);
}

// One line into the command: until all have it from its output.
static bool send_line(struct scale *s, struct wire *w, int pid, double *ms)
{
	struct wire_event e = {0};
	char json[64];
	int64_t start = client_now_us();
	snprintf(json, sizeof json, "{\"pid\":%d,\"data\":\"eAo=\"}", pid);
	int rc = wire_post(&s->wire[SURFACE_A], "/exec/stdin", json) == 200 ? 0 : -EPROTO;
	for (size_t i = 0; i < s->n && rc >= 0; i++) {
		rc = wire_event(&w[i], &e);
		if (rc >= 0 && (rc == 0 || e.kind != WIRE_DATA || buf_len(&e.data) != 2 ||
				       memcmp(buf_data(&e.data), "x\n", 2) != 0))
			rc = -EPROTO;
	}
	wire_event_release(&e);
	*ms = scale_ms_since(start);
	return rc >= 0 || scale_wrong(s, "a reader's line", rc);
}

static int ask_health(struct wire *w, const char *arg)
{
	(void)arg;
	return wire_health(w);
}

static bool measure_readers(struct scale *s, enum surface t, struct wire *w, int pid)
{
	double line[LINES], health;
	int64_t start = client_now_us();
	if (!open_readers(s, w, &s->target[t], pid))
		return false;
	scale_put(s, SCALE_READERS_OPEN_A + (int)t, scale_ms_since(start));
	scale_put_memory(s, SCALE_READERS_MEMORY_A + (int)t);
	for (int i = 0; i < LINES; i++)
		if (!send_line(s, w, pid, &line[i]))
			return false;
	scale_put(s, SCALE_READERS_LINE_A + (int)t, bench_percentile(line, LINES, 50));
	health = scale_p50_us(s, t, ASKED, ask_health, NULL);
	scale_put(s, SCALE_READERS_HEALTH_A + (int)t, health);
	return health >= 0;
}

// A command that has no end of its own, and no reader: its pid, or negative.
static int start_command(struct scale *s, const char *command)
{
	struct client c;
	struct event e = {0};
	int rc = client_open(&c, s->target[SURFACE_A].port);
	if (rc == 0)
		rc = client_post_stream(&c, "/exec/stream", "{s:s,s:i}", "command", command, "timeout", 0);
	if (rc == 200)
		rc = client_event(&c, &e) == 1 && e.kind == EVENT_PID ? e.pid : -EPROTO;
	event_release(&e);
	client_close(&c);
	return rc;
}

bool scale_readers(struct scale *s, enum surface t)
{
	struct wire *w = calloc(s->n, sizeof *w);
	int pid = start_command(s, "cat");
	for (size_t i = 0; w && i < s->n; i++)
		w[i].c.fd = -1;
	bool right = w && pid > 0 ? measure_readers(s, t, w, pid) : scale_wrong(s, "the command of the readers", pid);
	int64_t start = client_now_us();
	for (size_t i = 0; w && i < s->n; i++)
		wire_close(&w[i]);
	free(w);
	if (right && wire_health(&s->wire[t]) < 0)
		right = scale_wrong(s, "/health after the readers", -EPROTO);
	if (right)
		scale_put(s, SCALE_READERS_CLOSE_A + (int)t, scale_ms_since(start));
	return right;
}

// --- commands ---

// Sixteen at a time, waiting until somebody opens the pipe of all; each loses its reader as soon as it runs: its connection is reset,
// since one that is only closed might still be read from.
static bool start_commands(struct scale *s)
{
	static const struct linger gone = {.l_onoff = 1};
	struct client c[START_AT_ONCE];
	struct event e = {0};
	int rc = 0;
	for (size_t done = 0, n; done < s->n && rc >= 0; done += n) {
		n = START_AT_ONCE < s->n - done ? START_AT_ONCE : s->n - done;
		for (size_t i = 0; i < n; i++) {
			int opened = client_open(&c[i], s->target[SURFACE_A].port);
			if (rc == 0)
				rc = opened;
			if (rc == 0)
				rc = client_send(
					&c[i], "POST", "/exec/stream", "{\"command\":\"read x <fifo\",\"timeout\":0}");
		}
		for (size_t i = 0; i < n; i++) {
			int status = rc == 0 ? client_answer_stream(&c[i]) : rc;
			if (rc == 0 && status != 200)
				rc = status < 0 ? status : -status;
			if (rc == 0 && (client_event(&c[i], &e) != 1 || e.kind != EVENT_PID))
				rc = -EPROTO;
			setsockopt(c[i].fd, SOL_SOCKET, SO_LINGER, &gone, sizeof gone);
			client_close(&c[i]);
		}
	}
	event_release(&e);
	return rc == 0 || scale_wrong(s, "starting commands", rc);
}

static double list_commands(struct scale *s, enum surface t, size_t count)
{
	static const char *const target[] = {"/exec/processes", "/process.Process/List"};
	return scale_list_ms(s, t, target[t], t == SURFACE_A ? NULL : "{}", "\"pid\":", count);
}

static bool measure_list(struct scale *s, enum surface t)
{
	double ms[LISTED];
	for (int i = 0; i < LISTED; i++) {
		ms[i] = list_commands(s, t, s->n);
		if (ms[i] < 0)
			return false;
	}
	scale_put(s, SCALE_COMMANDS_LIST_A + (int)t, bench_percentile(ms, LISTED, 50));
	return true;
}

static int exec_true(struct wire *w, const char *arg)
{
	int rc = wire_exec(w, arg);
	return rc > 0 ? -EPROTO : rc;
}

static bool measure_exec(struct scale *s, enum surface t)
{
	double us = scale_p50_us(s, t, EXECS, exec_true, "true");
	scale_put(s, SCALE_COMMANDS_EXEC_A + (int)t, us);
	return us >= 0;
}

// How many commands live; negative errno.
static int living(struct scale *s)
{
	struct wire *w = &s->wire[SURFACE_A];
	int status = wire_get(w, "/exec/processes");
	return status == 200 ? (int)json_array_size(json_object_get(w->c.doc, "processes"))
	       : status < 0  ? status
			     : -EPROTO;
}

// All end at once, by themselves.
static bool end_commands(struct scale *s, const char *fifo)
{
	int64_t start = client_now_us();
	int left, fd = open(fifo, O_WRONLY | O_CLOEXEC);
	if (fd >= 0)
		close(fd);
	while ((left = living(s)) > 0 && client_now_us() - start < END_US)
		bench_pause_ms(2);
	if (fd < 0 || left != 0)
		return scale_wrong(s, "the end of the commands", fd < 0 ? fd : left);
	scale_put(s, SCALE_COMMANDS_END, scale_ms_since(start));
	return true;
}

static bool reset_commands(struct scale *s)
{
	struct wire *w = &s->wire[SURFACE_A];
	int64_t limit = w->c.limit_us, start = client_now_us();
	w->c.limit_us = END_US;
	int status = wire_post(w, "/workspace/reset", "{}");
	w->c.limit_us = limit;
	if (status != 200)
		return scale_wrong(s, "/workspace/reset", status);
	scale_put(s, SCALE_COMMANDS_RESET, scale_ms_since(start));
	return list_commands(s, SURFACE_A, 0) >= 0;
}

bool scale_commands(struct scale *s, enum surface t)
{
	char fifo[160];
	(void)t;
	snprintf(fifo, sizeof fifo, "%s/fifo", s->workspace);
	if (mkfifo(fifo, 0600) < 0 && errno != EEXIST)
		return scale_wrong(s, fifo, -errno);
	int64_t start = client_now_us();
	if (!start_commands(s))
		return false;
	scale_put(s, SCALE_COMMANDS_START, scale_ms_since(start));
	scale_put_memory(s, SCALE_COMMANDS_MEMORY);
	return measure_list(s, SURFACE_A) && measure_list(s, SURFACE_B) && measure_exec(s, SURFACE_A) &&
	       measure_exec(s, SURFACE_B) && end_commands(s, fifo) && start_commands(s) && reset_commands(s);
}
