// SPDX-License-Identifier: Apache-2.0
// Actions with commands and terminals, on either surface and across both: one table of processes is behind them.
#include "tests/soak/soak.h"

#include "proto/envelope.h"
#include "proto/text.h"

#include <stdio.h>
#include <string.h>

static void check_end(struct worker *w, const struct stream *st, int code, uint64_t bytes)
{
	if (st->code != code || st->bytes != bytes)
		wrong(w, "on %c: exit %d and %llu bytes, want %d and %llu", "AB"[st->s], st -> code,
			(unsigned long long)st -> bytes, code, (unsigned long long)bytes);
}

static void run(struct worker *w)
{
	struct stream st;
	char text[96];
	int code = (int)pick(w, 256);
	snprintf(text, sizeof text, "printf out; printf err >&2; exit %d", code);
	if (stream_start(w, &st, any(w), &(struct command){.text = text}) && stream_finish(w, &st, false))
		check_end(w, &st, code, 6);
}

static void flood(struct worker *w)
{
	struct stream st;
	char text[96];
	uint32_t n = chance(w, 50) ? pick(w, 64 * 1024) : pick(w, 4 * 1024 * 1024);
	snprintf(text, sizeof text, "yes 0123456 | head -c %u%s", n, chance(w, 30) ? " >&2" : "");
	if (!stream_start(w, &st, any(w), &(struct command){.text = text}))
		return;
	st.pattern = "0123456\n";
	if (chance(w, 25)) {
		int steps = (int)pick(w, 20);
		while (steps-- > 0 && stream_step(w, &st) == 1)
			;
		stream_leave(w, &st);
	} else if (stream_finish(w, &st, chance(w, 25))) {
		check_end(w, &st, 0, n);
	}
}

static void attach(struct worker *w)
{
	static const char *const text = "printf one; sleep 0.2; printf two; exit 7";
	struct stream first, second;
	int64_t start = client_now_us();
	if (!stream_start(w, &first, any(w), &(struct command){.text = text}))
		return;
	int pid = first.pid;
	bool left = chance(w, 30);
	if (left)
		stream_leave(w, &first);
	if (chance(w, 30)) // often not before it has ended
		pause_us(pick(w, 500000));
	int status = stream_attach(w, &second, any(w), pid);
	bool late = client_now_us() - start > 1500000; // ended ones are kept for two seconds
	if (status == 200 && stream_finish(w, &second, false)) {
		// Surface A replays, surface B does not.
		if (second.code != 7 || (second.s == A && strcmp(second.text, "onetwo") != 0))
			wrong(w, "attached on %c: exit %d, \"%s\"", "AB"[second.s], second.code, second.text);
	} else if (status != 200 && !(late && status == 404)) {
		want(w, "attach", status, 200);
	}
	if (!left && stream_finish(w, &first, false))
		check_end(w, &first, 7, 6);
}

static void put_input(struct buf *out, const char *key, json_t *value)
{
	struct buf one = {0};
	size_t mark = envelope_begin(&one);
	put_json(&one, json_pack("{s:o}", key, value));
	envelope_end(&one, mark, 0);
	http_put_chunk(out, buf_data(&one), buf_len(&one));
	buf_release(&one);
}

// The client stream: N times SIZE bytes at P in one request. The status.
static int stream_input(struct worker *w, int pid, const char *p, size_t size, int n)
{
	struct buf out = {0}, b64 = {0};
	struct client *c = surface(w, B);
	text_b64_encode(&b64, p, size);
	BUF_LIT(&out, "POST /process.Process/StreamInput HTTP/1.1\r\nHost: localhost\r\n"
		      "Content-Type: application/connect+json\r\nTransfer-Encoding: chunked\r\n\r\n");
	put_input(&out, "start", json_pack("{s:{s:i}}", "process", "pid", pid));
	for (int i = 0; i < n; i++) {
		put_input(&out, "data", json_pack("{s:{s:s}}", "input", "stdin", buf_cstr(&b64)));
		put_input(&out, "keepalive", json_object());
	}
	http_put_last_chunk(&out);
	int rc = c ? client_send_bytes(c, &out) : -1;
	int status = rc == 0 ? answered(w, B, client_answer(c)) : rc;
	static const char end[] = "\0\0\0\0\2{}\2\0\0\0\2{}";
	if (status == 200 &&
		(buf_len(&c->body) != sizeof end - 1 || memcmp(buf_data(&c->body), end, sizeof end - 1) != 0))
		wrong(w, "StreamInput: %zu bytes of answer", buf_len(&c->body));
	buf_release(&out);
	buf_release(&b64);
	hang_up(w, B);
	return status;
}

static void input(struct worker *w)
{
	struct stream st;
	char piece[4096];
	uint64_t sent = 0;
	size_t size = 8 * (1 + pick(w, sizeof piece / 8));
	for (size_t i = 0; i < sizeof piece; i++)
		piece[i] = "abcdefg\n"[i % 8];
	if (!stream_start(w, &st, any(w), &(struct command){.text = "cat", .input = true}))
		return;
	st.pattern = "abcdefg\n";
	int pieces = 1 + (int)pick(w, 6);
	for (int i = 0; i < pieces && !w->wrong[0]; i++, sent += size)
		want(w, "input", feed(w, any(w), &st, piece, size), 200);
	if (chance(w, 30) && want(w, "StreamInput", stream_input(w, st.pid, piece, size, 3), 200))
		sent += 3 * size;
	if (chance(w, 15)) { // it ends with its timeout, or here
		stream_leave(w, &st);
		want(w, "signal to one that was left", send_signal(w, any(w), st.pid, true), 200);
		return;
	}
	want(w, "close of the input", close_input(w, any(w), st.pid), 200);
	if (stream_finish(w, &st, false))
		check_end(w, &st, 0, sent);
}

static void kills(struct worker *w)
{
	static const char *const texts[] = {"sleep 30", "sleep 30 & sleep 30 & wait", "echo ready; exec sleep 30"};
	struct stream st;
	if (!stream_start(w, &st, any(w), &(struct command){.text = texts[pick(w, 3)]}))
		return;
	if (chance(w, 50))
		pause_us(pick(w, 50000));
	want(w, "signal", send_signal(w, any(w), st.pid, chance(w, 50)), 200);
	if (stream_finish(w, &st, false) && st.code != -1)
		wrong(w, "on %c: exit %d after a signal", "AB"[st.s], st.code);
	want(w, "signal to an ended one", send_signal(w, any(w), st.pid, true), 404);
}

static void timeout(struct worker *w)
{
	struct stream st;
	struct command cmd = {.text = "sleep 30 & sleep 30", .timeout_ms = 100 + (int)pick(w, 400)};
	if (!stream_start(w, &st, any(w), &cmd) || !stream_finish(w, &st, false))
		return;
	bool ok = st.s == A ? st.code == -1 : strcmp(st.error, "deadline_exceeded") == 0 || st.code == -1;
	if (!ok)
		wrong(w, "on %c: exit %d, \"%s\" after a timeout", "AB"[st.s], st.code, st.error);
}

// --- terminals ---

static void resize(struct worker *w, const struct stream *st)
{
	int rows = 1 + (int)pick(w, 100), cols = 1 + (int)pick(w, 300);
	if (st->s == A)
		want(w, "resize",
			post(w, A, "/pty/resize",
				json_pack(
					"{s:i, s:i, s:i}", "terminal_id", st->terminal_id, "rows", rows, "cols", cols)),
			200);
	else
		want(w, "Update",
			post(w, B, "/process.Process/Update",
				json_pack("{s:{s:i}, s:{s:{s:i, s:i}}}", "process", "pid", st->pid, "pty", "size",
					"cols", cols, "rows", rows)),
			200);
}

static void terminal(struct worker *w)
{
	struct stream st;
	struct command cmd = {.text = "stty -echo; echo ready; read x; echo got $x; exit 5", .terminal = true};
	char target[64];
	if (!stream_start(w, &st, any(w), &cmd))
		return;
	if (chance(w, 30))
		resize(w, &st);
	snprintf(target, sizeof target, "/pty/foreground?terminal_id=%d", st.terminal_id);
	if (st.s == A && want(w, "foreground", get(w, A, target), 200) &&
		!json_is_integer(answer(w, A, "process_group_id")))
		wrong(w, "no process_group_id");
	if (stream_until(w, &st, "ready"))
		want(w, "terminal input", feed(w, st.s, &st, "word\n", 5), 200);
	if (stream_finish(w, &st, false) && (st.code != 5 || !strstr(st.text, "got word")))
		wrong(w, "terminal on %c: exit %d, \"%s\"", "AB"[st.s], st.code, st.text);
}

static void terminal_end(struct worker *w)
{
	struct stream st;
	struct command cmd = {.text = "echo ready; sleep 30 & exec sleep 30", .terminal = true};
	if (!stream_start(w, &st, any(w), &cmd))
		return;
	bool go_on = stream_until(w, &st, "ready");
	int how = (int)pick(w, 3);
	if (st.s == B || how == 0)
		want(w, "kill of a terminal", send_signal(w, any(w), st.pid, true), 200);
	else if (how == 1)
		want(w, "pty/signal",
			post(w, A, "/pty/signal",
				json_pack("{s:i, s:s}", "terminal_id", st.terminal_id, "signal", "SIGKILL")),
			200);
	else
		want(w, "pty/destroy",
			post(w, A, "/pty/destroy",
				json_pack("{s:i, s:i}", "terminal_id", st.terminal_id, "grace_ms", 200)),
			200);
	if (stream_finish(w, &st, false) && go_on && st.code == 0)
		wrong(w, "terminal on %c: exit 0 after its kill", "AB"[st.s]);
	if (st.s == A)
		want(w, "destroy of an ended terminal",
			post(w, A, "/pty/destroy", json_pack("{s:i}", "terminal_id", st.terminal_id)), 200, 404);
}

// --- without a stream ---

static void check_exec(struct worker *w, const char *key, const char *want)
{
	const char *s = json_string_value(answer(w, A, key));
	if (!s || strcmp(s, want) != 0)
		wrong(w, "/exec: %s is \"%.60s\", want \"%s\"", key, s ? s : "(none)", want);
}

static void check_code(struct worker *w, int code)
{
	const json_t *v = answer(w, A, "exit_code");
	if (!json_is_integer(v) || json_integer_value(v) != code)
		wrong(w, "/exec: exit code %lld, want %d", (long long)json_integer_value(v), code);
}

static int exec_text(struct worker *w, const char *command, double timeout)
{
	return post(
		w, A, "/exec", json_pack("{s:s, s:f, s:s}", "command", command, "timeout", timeout, "workdir", w->dir));
}

static void exec_any(struct worker *w)
{
	char text[64];
	uint32_t n = pick(w, 2 * 1024 * 1024);
	switch (pick(w, 5)) {
	case 0:
		if (want(w, "/exec", exec_text(w, "printf out; printf err >&2; exit 3", 30), 200)) {
			check_exec(w, "stdout", "out");
			check_exec(w, "stderr", "err");
			check_code(w, 3);
		}
		break;
	case 1:
		snprintf(text, sizeof text, "yes 0123456 | head -c %u", n);
		if (want(w, "/exec", exec_text(w, text, 60), 200)) {
			size_t got = json_string_length(answer(w, A, "stdout"));
			check_code(w, 0);
			if (got != (n < 1048576 ? n : 1048576))
				wrong(w, "/exec: %zu bytes of %u", got, n);
		}
		break;
	case 2:
		if (want(w, "/exec", exec_text(w, "kill -9 $$", 30), 200)) {
			check_exec(w, "signal", "SIGKILL");
			check_code(w, -1);
		}
		break;
	case 3:
		if (want(w, "/exec", exec_text(w, "sleep 30", 0.1), 200)) {
			check_code(w, -1);
			if (!json_is_true(answer(w, A, "timed_out")))
				wrong(w, "/exec: timed_out is not true");
		}
		break;
	default:
		want(w, "/exec in no directory",
			post(w, A, "/exec", json_pack("{s:s, s:s}", "command", "true", "workdir", "/nowhere/at/all")),
			400);
	}
}

static void background(struct worker *w)
{
	char id[64], target[96];
	int64_t end = client_now_us() + 30000000 * (int64_t)client_scale();
	snprintf(id, sizeof id, "w%d-%lu", w->id, w->n);
	snprintf(target, sizeof target, "/exec/background/%s", id);
	for (int i = 0; i < 2; i++)
		want(w, "/exec/background",
			post(w, A, "/exec/background",
				json_pack("{s:s, s:s}", "run_id", id, "command", "printf back; sleep 0.3; exit 4")),
			200, i ? 409 : 200);
	const char *status = "running";
	while (!w->wrong[0] && strcmp(status, "running") == 0 && client_now_us() < end) {
		pause_us(20000);
		want(w, "background's state", get(w, A, target), 200);
		status = json_string_value(answer(w, A, "status"));
		status = status ? status : "-";
	}
	if (w->wrong[0])
		return;
	check_code(w, 4);
	check_exec(w, "status", "completed");
	check_exec(w, "stdout", "back");
}

static void session(struct worker *w)
{
	char id[64], target[96];
	snprintf(id, sizeof id, "s%d", w->id);
	snprintf(target, sizeof target, "/transcript?session=%s&offset=%u", id, pick(w, 5000));
	if (!want(w, "/exec with a session",
		    post(w, A, "/exec", json_pack("{s:s, s:s}", "command", "echo said", "session_id", id)), 200))
		return;
	if (want(w, "/transcript", get(w, A, target), 200) && !json_is_string(answer(w, A, "output")))
		wrong(w, "a transcript without output");
	want(w, "/events", get(w, A, "/events?limit=50"), 200);
	want(w, "a transcript that is none", get(w, A, "/transcript?session=none"), 404);
}

static void tables(struct worker *w)
{
	struct stream st;
	bool found = false;
	if (!stream_start(w, &st, any(w), &(struct command){.text = "sleep 30"}))
		return;
	enum surface s = any(w);
	int status = s == A ? get(w, A, "/exec/processes") : post(w, B, "/process.Process/List", json_object());
	if (want(w, "list of processes", status, 200)) {
		size_t i;
		const json_t *p;
		json_array_foreach(answer(w, s, "processes"), i, p) found =
			found || json_integer_value(json_object_get(p, "pid")) == st.pid;
		if (!found)
			wrong(w, "pid %d is not in the list of surface %c", st.pid, "AB"[s]);
	}
	if (chance(w, 30))
		want(w, "/processes", get(w, A, "/processes"), 200);
	want(w, "signal", send_signal(w, any(w), st.pid, true), 200);
	stream_finish(w, &st, false);
}

const struct action actions_process[] = {
	{"run", run, 8},
	{"flood", flood, 5},
	{"attach", attach, 5},
	{"input", input, 6},
	{"kills", kills, 5},
	{"timeout", timeout, 3},
	{"terminal", terminal, 5},
	{"terminal_end", terminal_end, 4},
	{"exec", exec_any, 8},
	{"background", background, 3},
	{"session", session, 3},
	{"tables", tables, 3},
	{NULL, NULL, 0},
};
