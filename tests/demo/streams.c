// SPDX-License-Identifier: Apache-2.0
// Commands that are followed while they run.
#include "tests/demo/demo.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BIG ((size_t)700 * 1000)

static const char program[] = "#include <stdio.h>\n"
			      "int main(void)\n"
			      "{\n"
			      "\tlong a = 0, b = 1;\n"
			      "\tfor (int i = 0; i < 50; i++) {\n"
			      "\t\tlong t = a + b;\n"
			      "\t\ta = b;\n"
			      "\t\tb = t;\n"
			      "\t}\n"
			      "\tprintf(\"fib(50) = %ld\\n\", a);\n"
			      "}\n";

// Opens a stream of COMMAND and reads up to its pid frame.
static bool start(struct demo *d, struct client *c, struct run *r, const char *command)
{
	*r = (struct run){0};
	r->status = demo_open(d, c);
	if (r->status == 0)
		r->status = client_post_stream(c, "/exec/stream", "{s:s}", "command", command);
	struct event e = {0};
	if (r->status == 200 && client_event(c, &e) == 1 && e.kind == EVENT_PID)
		r->pid = e.pid;
	event_release(&e);
	if (!r->pid)
		demo_line(d, command, "200 and a pid", "%d", r->status);
	return r->pid > 0;
}

static void finish(struct client *c, struct run *r)
{
	run_release(r);
	client_close(c);
}

static void whole(struct demo *d, struct run *r, const char *command, bool show)
{
	struct client c;
	if (start(d, &c, r, command)) {
		if (show)
			demo_note("data: {\"pid\":%d}", r->pid);
		run_collect(&c, r, show);
	}
	client_close(&c);
}

// A channel's text with a dot for each newline.
static const char *dotted(struct run *r, enum frame_channel ch, char *to, size_t n)
{
	snprintf(to, n, "%s", run_text(r, ch));
	for (char *p = to; *p; p++)
		*p = *p == '\n' ? '.' : *p;
	return to;
}

static void channels(struct demo *d)
{
	struct run r;
	char out[64], err[64];
	whole(d, &r, "echo one; echo two >&2; echo three", true);
	demo_line(d, "stdout and stderr apart, tagged", "exit 0, out one.three., err two.", "exit %d, out %s, err %s",
		r.end.code, dotted(&r, FRAME_STDOUT, out, sizeof out), dotted(&r, FRAME_STDERR, err, sizeof err));
	run_release(&r);
	whole(d, &r, "kill -9 $$", true);
	demo_line(d, "a signal in the exit frame", "exit -1, SIGKILL", "exit %d, %s", r.end.code, r.end.signal);
	run_release(&r);
}

// A program goes in through stdin in two pieces.
static void compile(struct demo *d)
{
	struct client c;
	struct run r;
	size_t half = (sizeof program - 1) / 2;
	if (start(d, &c, &r, "cat > fib.c && wc -c < fib.c")) {
		bool fed = run_feed(d, r.pid, program, half, false) &&
			   run_feed(d, r.pid, program + half, sizeof program - 1 - half, true);
		char want[64];
		snprintf(want, sizeof want, "accepted, exit 0, %zu bytes", sizeof program - 1);
		run_collect(&c, &r, false);
		demo_line(d, "a C program through stdin", want, "%s, exit %d, %d bytes", fed ? "accepted" : "refused",
			r.end.code, atoi(run_text(&r, FRAME_STDOUT)));
	}
	finish(&c, &r);
	whole(d, &r, "command -v cc >/dev/null || exit 99; cc -o fib fib.c && ./fib", false);
	if (r.end.code == 99)
		demo_note("no cc here: the program is not compiled");
	else
		demo_line(d, "compiled and run", "exit 0, fib(50) = 12586269025", "exit %d, %.*s", r.end.code,
			(int)strcspn(run_text(&r, FRAME_STDOUT), "\n"), run_text(&r, FRAME_STDOUT));
	run_release(&r);
}

// More than any queue or pipe holds, every byte value, into a file and out of it again.
static void file_round_trip(struct demo *d)
{
	struct client c;
	struct run r;
	unsigned char *data = malloc(BIG);
	uint32_t x = 1;
	char want[64];
	for (size_t i = 0; data && i < BIG; i++) {
		x = x * 1664525 + 1013904223;
		data[i] = (unsigned char)(x >> 24);
	}
	bool fed = data && start(d, &c, &r, "cat > data.bin");
	if (fed) {
		fed = run_feed(d, r.pid, data, BIG, true);
		run_collect(&c, &r, false);
		finish(&c, &r);
	}
	whole(d, &r, "cat data.bin", false);
	bool same =
		fed && buf_len(&r.out[FRAME_STDOUT]) == BIG && memcmp(buf_data(&r.out[FRAME_STDOUT]), data, BIG) == 0;
	snprintf(want, sizeof want, "%zu bytes, the same", BIG);
	demo_line(d, "a binary file in and out", want, "%zu bytes, %s", buf_len(&r.out[FRAME_STDOUT]),
		same ? "the same" : "different");
	run_release(&r);
	free(data);
}

static void attach(struct demo *d)
{
	struct client first, second;
	struct run a, b = {0};
	char target[64];
	if (start(d, &first, &a, "echo before; read x; echo \"after $x\"; exit 3") &&
		run_until(&first, &a, FRAME_STDOUT, "before\n")) {
		snprintf(target, sizeof target, "/exec/attach?pid=%d", a.pid);
		b.status = demo_open(d, &second);
		if (b.status == 0)
			b.status = client_get_stream(&second, target);
		bool replayed = b.status == 200 && run_until(&second, &b, FRAME_STDOUT, "before\n");
		run_feed(d, a.pid, "go\n", 3, false);
		run_collect(&first, &a, false);
		if (b.status == 200)
			run_collect(&second, &b, false);
		client_close(&second);
		demo_line(d, "attach: replay, then live", "before, then live after go, exit 3, done",
			"%s, then live %.8s, exit %d, %s", replayed ? "before" : "no replay",
			buf_len(&b.out[FRAME_STDOUT]) > 7 ? run_text(&b, FRAME_STDOUT) + 7 : "-", b.end.code,
			b.done ? "done" : "not done");
		bool same = strcmp(run_text(&a, FRAME_STDOUT), run_text(&b, FRAME_STDOUT)) == 0;
		demo_line(d, "the first reader beside it", "the same, exit 3, no done", "%s, exit %d, %s",
			same ? "the same" : "different", a.end.code, a.done ? "done" : "no done");
	}
	run_release(&b);
	finish(&first, &a);
}

void demo_streams(struct demo *d)
{
	channels(d);
	compile(d);
	file_round_trip(d);
	attach(d);
}
