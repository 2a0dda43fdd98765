// SPDX-License-Identifier: Apache-2.0
// Surface A's.
#include "tests/integration/faultpaths.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static enum verdict post(struct faulty *f, const char *target, const char *body, const char *want)
{
	return f_want(f, FACE_A, target, body, want);
}

// A request whose answer says WANT, alone.
static enum verdict alone(struct faulty *f, const char *target, const char *body, const char *want)
{
	f_arm(f);
	return post(f, target, body, want);
}

static enum verdict out_is(struct faulty *f, enum verdict v, const char *want)
{
	if (v != RIGHT || (buf_len(&f->out) == strlen(want) && memcmp(buf_data(&f->out), want, strlen(want)) == 0))
		return v;
	return f_wrong(f, "stdout is %.100s, not %s", buf_cstr(&f->out), want);
}

// --- commands ---

static enum verdict exec(struct faulty *f)
{
	enum verdict v = alone(f, "/exec", "{\"command\":\"echo out; echo err >&2; exit 3\"}", "\"stdout\":\"out\\n\"");
	if (v == RIGHT && (f_number(&f->r.body, "exit_code") != 3 || !strstr(buf_cstr(&f->r.body), "\"err\\n\"")))
		return f_wrong(f, "%s", buf_cstr(&f->r.body));
	return v;
}

static enum verdict exec_timeout(struct faulty *f)
{
	return alone(f, "/exec", "{\"command\":\"sleep 60\",\"timeout\":0.05}", "\"timed_out\":true");
}

static struct talk *stream(struct faulty *f, const char *json)
{
	return f_open(f, FACE_SSE, "POST", "/exec/stream", NULL, json, strlen(json));
}

static enum verdict exec_stream(struct faulty *f)
{
	f_arm(f);
	enum verdict v = f_end(f, stream(f, "{\"command\":\"echo out; echo err >&2; exit 3\"}"));
	if (v == RIGHT && (strcmp(buf_cstr(&f->err), "err\n") != 0 || f_number(&f->r.body, "exit") != 3))
		return f_wrong(f, "%s", buf_cstr(&f->r.body));
	return out_is(f, v, "out\n");
}

static enum verdict exec_much(struct faulty *f)
{
	f_arm(f);
	enum verdict v = f_end(f, stream(f, "{\"command\":\"head -c 70000 /dev/zero\",\"stdin\":false}"));
	if (v == RIGHT && buf_len(&f->out) != 70000)
		return f_wrong(f, "%zu bytes", buf_len(&f->out));
	return v;
}

// One request about PID, which stands for the '@' of TEMPLATE.
static enum verdict about(struct faulty *f, const char *target, const char *template, long long pid, const char *want)
{
	char body[200];
	char number[24];
	(void)snprintf(number, sizeof number, "%lld", pid);
	f_fill(body, sizeof body, template, number);
	return post(f, target, body, want);
}

// The pid of a stream that has begun; -1 if there was none.
static long long pid_of(struct talk *t)
{
	return f_until(t, "\"pid\":") && f_until(t, "}\n\n") ? f_number(&t->body, "pid") : -1;
}

// What went wrong first of a stream and of requests beside it. A refused one leaves the command to the cleaning up.
static enum verdict both(struct faulty *f, struct talk *t, enum verdict v)
{
	if (v == RIGHT)
		return f_end(f, t);
	f_leave(t);
	return v;
}

static enum verdict exec_stdin(struct faulty *f)
{
	f_arm(f);
	struct talk *t = stream(f, "{\"command\":\"cat\"}");
	long long pid = pid_of(t);
	if (pid < 0)
		return f_end(f, t);
	enum verdict v = about(f, "/exec/stdin", "{\"pid\":@,\"data\":\"aGVsbG8=\"}", pid, "\"ok\":true");
	if (v == RIGHT)
		v = about(f, "/exec/stdin/close", "{\"pid\":@}", pid, "\"ok\":true");
	bool sent = v == RIGHT;
	v = both(f, t, v);
	return sent ? out_is(f, v, "hello") : v;
}

static enum verdict exec_signal(struct faulty *f)
{
	f_arm(f);
	struct talk *t = stream(f, "{\"command\":\"sleep 60\"}");
	long long pid = pid_of(t);
	if (pid < 0)
		return f_end(f, t);
	enum verdict v = both(f, t, about(f, "/exec/signal", "{\"pid\":@,\"signal\":\"KILL\"}", pid, NULL));
	if (v == RIGHT && !strstr(buf_cstr(&f->r.body), "\"signal\":\"SIGKILL\""))
		return f_wrong(f, "%s", buf_cstr(&f->r.body));
	return v;
}

static enum verdict exec_attach(struct faulty *f)
{
	char target[64];
	struct talk *t = stream(f, "{\"command\":\"echo before; read x; echo $x\"}");
	long long pid = pid_of(t);
	if (pid < 0 || !f_until(t, "stdout"))
		return f_leave(t), f_wrong(f, "nothing to attach to");
	f_arm(f);
	(void)snprintf(target, sizeof target, "/exec/attach?pid=%lld", pid);
	struct talk *a = f_open(f, FACE_SSE, "GET", target, NULL, NULL, 0);
	if (!f_until(a, "stdout")) {
		f_leave(t);
		return f_end(f, a);
	}
	enum verdict v = about(f, "/exec/stdin", "{\"pid\":@,\"data\":\"YWZ0ZXIK\"}", pid, "\"ok\":true");
	bool sent = v == RIGHT;
	v = both(f, a, v);
	f_leave(t);
	if (v == RIGHT && !strstr(buf_cstr(&f->r.body), "data: {\"done\":true}"))
		return f_wrong(f, "%s", buf_cstr(&f->r.body));
	return sent ? out_is(f, v, "before\nafter\n") : v;
}

const struct path fault_paths_exec[] = {
	{"exec", exec},
	{"exec timeout", exec_timeout},
	{"exec/stream", exec_stream},
	{"exec/stream much", exec_much},
	{"exec/stdin", exec_stdin},
	{"exec/signal", exec_signal},
	{"exec/attach", exec_attach},
	{NULL, NULL},
};

// --- what lives longer ---

struct asked {
	struct faulty *f;
	enum verdict v;
	const char *target;
};

static bool run_is_over(void *arg)
{
	struct asked *a = arg;
	a->v = f_want(a->f, FACE_A, a->target, NULL, "\"run_id\"");
	return a->v != RIGHT || !strstr(buf_cstr(&a->f->r.body), "\"running\"");
}

static enum verdict background(struct faulty *f)
{
	struct asked a = {f, RIGHT, "/exec/background/r1"};
	f_arm(f);
	enum verdict v =
		post(f, "/exec/background", "{\"command\":\"echo out; exit 4\",\"run_id\":\"r1\"}", "\"started\"");
	if (v == WRONG)
		return v;
	if (!wait_until(run_is_over, &a, 5000))
		return f_wrong(f, "it runs on and on: %s", buf_cstr(&f->r.body));
	if (v != RIGHT || a.v != RIGHT)
		return v == RIGHT ? a.v : a.v == WRONG && f->r.status != 404 ? a.v : v;
	const char *text = buf_cstr(&f->r.body);
	if (strstr(text, "\"completed\"") && strstr(text, "\"out\\n\"") && f_number(&f->r.body, "exit_code") == 4)
		return RIGHT;
	// What could not be kept is said not to be whole.
	return f->coming && !f->coming->harmless && f->plan->hits &&
			       (strstr(text, "\"failed\"") || strstr(text, "\"truncated\":true"))
		       ? REFUSED
		       : f_wrong(f, "%s", text);
}

static enum verdict pty(struct faulty *f)
{
	char target[64];
	f_arm(f);
	enum verdict v = post(f, "/pty/create", "{\"argv\":[\"cat\"],\"rows\":30,\"cols\":90}", "\"terminal_id\":");
	if (v != RIGHT)
		return v;
	long long id = f_number(&f->r.body, "terminal_id");
	(void)snprintf(target, sizeof target, "/pty/stream?terminal_id=%lld", id);
	struct talk *t = f_open(f, FACE_SSE, "GET", target, NULL, NULL, 0);
	if (pid_of(t) < 0)
		return f_end(f, t);
	v = about(f, "/pty/resize", "{\"terminal_id\":@,\"rows\":40,\"cols\":100}", id, NULL);
	if (v == RIGHT)
		v = about(f, "/pty/input", "{\"terminal_id\":@,\"data\":\"hello\\n\"}", id, NULL);
	if (v == RIGHT)
		v = about(f, "/pty/destroy", "{\"terminal_id\":@,\"grace_ms\":10}", id, NULL);
	return both(f, t, v);
}

static enum verdict watch(struct faulty *f)
{
	char target[64];
	f_arm(f);
	enum verdict v = post(f, "/watch/create", "{\"path\":\".\",\"recursive\":true}", "\"watcher_id\":");
	if (v != RIGHT)
		return v;
	long long id = f_number(&f->r.body, "watcher_id");
	f_put(f, "seen", "x", 1);
	(void)snprintf(target, sizeof target, "/watch/events?watcher_id=%lld", id);
	for (int64_t end = h_now_ms() + h_scaled(5000); v == RIGHT; h_tick()) {
		v = f_want(f, FACE_A, target, NULL, "\"events\"");
		const char *text = buf_cstr(&f->r.body);
		if (v != RIGHT || strstr(text, "/seen\"") || strstr(text, "\"overflow\":true"))
			break;
		if (h_now_ms() > end)
			return f_wrong(f, "no event: %s", text);
	}
	return v == RIGHT ? about(f, "/watch/remove", "{\"watcher_id\":@}", id, "\"ok\":true") : v;
}

// It ends with its root.
static enum verdict watch_stream(struct faulty *f)
{
	char line[500];
	(void)snprintf(line, sizeof line, "mkdir -p '%s/root'", f->d->workspace);
	ck_assert_int_eq(system(line), 0);
	f_arm(f);
	struct talk *t = f_open(f, FACE_SSE, "GET", "/watch/stream?path=root&recursive=1", NULL, NULL, 0);
	if (f_until(t, "\n\n"))
		f_put(f, "root/seen", "x", 1);
	bool seen = f_until(t, "/root/seen");
	(void)unlink(f_path(f, "root/seen"));
	(void)rmdir(f_path(f, "root"));
	enum verdict v = f_end(f, t);
	return v == RIGHT && !seen ? f_wrong(f, "no event in %s", buf_cstr(&f->r.body)) : v;
}

const struct path fault_paths_live[] = {
	{"background", background},
	{"pty", pty},
	{"watch", watch},
	{"watch/stream", watch_stream},
	{NULL, NULL},
};

// --- files ---

// The answer can fail when all was done; the file never is anything between.
static enum verdict old_or_new(struct faulty *f, enum verdict v, const char *old, const char *new, size_t n)
{
	bool is_new = v != WRONG && f_file(f, "file", new, n) == RIGHT;
	if (v == RIGHT)
		return is_new ? RIGHT : WRONG;
	if (v == WRONG || is_new || f_file(f, "file", old, old ? strlen(old) : 0) == RIGHT)
		return v;
	return WRONG;
}

static enum verdict write_new(struct faulty *f)
{
	enum verdict v = alone(f, "/files/write", "{\"path\":\"file\",\"content\":\"new\"}", "\"size\":3");
	return old_or_new(f, v, NULL, "new", 3);
}

static enum verdict write_deep(struct faulty *f)
{
	enum verdict v = alone(f, "/files/write", "{\"path\":\"a/b/file\",\"content\":\"new\"}", "\"size\":3");
	return v == RIGHT ? f_file(f, "a/b/file", "new", 3) : v;
}

static enum verdict write_over(struct faulty *f)
{
	f_put(f, "file", "older", 5);
	enum verdict v = alone(
		f, "/files/write", "{\"path\":\"file\",\"content\":\"bmV3\",\"encoding\":\"base64\"}", "\"size\":3");
	return old_or_new(f, v, "older", "new", 3);
}

static enum verdict write_big(struct faulty *f)
{
	static const char head[] = "{\"path\":\"file\",\"content\":\"", tail[] = "\"}";
	size_t n = f->coming && f->coming->room ? 20000 : (size_t)1200 * 1024;
	char *body = malloc(n + sizeof head + sizeof tail), *content = body + sizeof head - 1;
	ck_assert_ptr_nonnull(body);
	memcpy(body, head, sizeof head);
	memset(content, 'x', n);
	memcpy(content + n, tail, sizeof tail);
	f_put(f, "file", "older", 5);
	enum verdict v = alone(f, "/files/write", body, "\"ok\":true");
	v = old_or_new(f, v, "older", content, n);
	free(body);
	return v;
}

static enum verdict read_file(struct faulty *f)
{
	f_put(f, "file", "hello", 5);
	return alone(f, "/files/read?path=file", NULL, "\"content\":\"hello\"");
}

static enum verdict read_base64(struct faulty *f)
{
	f_put(f, "file", "hello", 5);
	return alone(f, "/files/read?path=file&encoding=base64", NULL, "\"content\":\"aGVsbG8=\"");
}

static enum verdict read_big(struct faulty *f)
{
	static char text[100001];
	memset(text, 'y', sizeof text - 1);
	f_put(f, "file", text, sizeof text - 1);
	return alone(f, "/files/read?path=file", NULL, text);
}

static void put_tree(struct faulty *f)
{
	char line[500];
	(void)snprintf(
		line, sizeof line, "cd '%s' && mkdir -p t/a/b t/c && touch t/1 t/a/2 t/a/b/3 t/c/4", f->d->workspace);
	ck_assert_int_eq(system(line), 0);
}

static enum verdict list(struct faulty *f)
{
	put_tree(f);
	enum verdict v = alone(f, "/files/list", NULL, NULL);
	if (v == RIGHT && f->coming && strstr(buf_cstr(&f->r.body), "\"errors\":[{"))
		return REFUSED; // in part
	if (v == RIGHT && (!strstr(buf_cstr(&f->r.body), "/t/a/b/3\"") || !strstr(buf_cstr(&f->r.body), "/t/c/4\"") ||
				  !strstr(buf_cstr(&f->r.body), "/t/1\"")))
		return f_wrong(f, "some are missing: %s", buf_cstr(&f->r.body));
	return v;
}

static enum verdict stat_file(struct faulty *f)
{
	f_put(f, "file", "hello", 5);
	return alone(f, "/files/stat", "{\"path\":\"file\"}", "\"size\":5");
}

static enum verdict make_dir(struct faulty *f)
{
	enum verdict v = alone(f, "/files/mkdir", "{\"path\":\"a/b/c\"}", NULL);
	return v == RIGHT && access(f_path(f, "a/b/c"), F_OK) < 0 ? f_wrong(f, "it is not there") : v;
}

static enum verdict move_file(struct faulty *f)
{
	f_put(f, "from", "new", 3);
	f_put(f, "file", "older", 5);
	enum verdict v = alone(f, "/files/move", "{\"source\":\"from\",\"destination\":\"file\"}", NULL);
	return old_or_new(f, v, "older", "new", 3);
}

static enum verdict remove_tree(struct faulty *f)
{
	put_tree(f);
	enum verdict v = alone(f, "/files/remove", "{\"path\":\"t\"}", NULL);
	return v == RIGHT && access(f_path(f, "t"), F_OK) == 0 ? f_wrong(f, "it is still there") : v;
}

const struct path fault_paths_files[] = {
	{"files/write", write_new},
	{"files/write deep", write_deep},
	{"files/write over", write_over},
	{"files/write big", write_big},
	{"files/read", read_file},
	{"files/read base64", read_base64},
	{"files/read big", read_big},
	{"files/list", list},
	{"files/stat", stat_file},
	{"files/mkdir", make_dir},
	{"files/move", move_file},
	{"files/remove", remove_tree},
	{NULL, NULL},
};

// --- the rest ---

static enum verdict transcript(struct faulty *f)
{
	if (post(f, "/exec", "{\"command\":\"echo out\",\"session_id\":\"s1\"}", "\"exit_code\":0") != RIGHT)
		return WRONG;
	return alone(f, "/transcript?session=s1", NULL, "stdout out");
}

static enum verdict events(struct faulty *f)
{
	if (post(f, "/exec", "{\"command\":\"true\"}", "\"exit_code\":0") != RIGHT)
		return WRONG;
	return alone(f, "/events", NULL, "\"exec_end\"");
}

static enum verdict processes(struct faulty *f)
{
	return alone(f, "/processes", NULL, "\"comm\"");
}

static enum verdict exec_processes(struct faulty *f)
{
	return alone(f, "/exec/processes", NULL, "\"processes\":[");
}

static enum verdict ready(struct faulty *f)
{
	return alone(f, "/ready", "{}", "\"ready\"");
}

static enum verdict reset(struct faulty *f)
{
	put_tree(f);
	struct talk *t = stream(f, "{\"command\":\"sleep 60\"}");
	if (pid_of(t) < 0)
		return f_leave(t), f_wrong(f, "nothing to reset");
	enum verdict v = alone(f, "/workspace/reset", "{}", "\"ok\":true");
	if (v == RIGHT && access(f_path(f, "t"), F_OK) == 0)
		v = f_wrong(f, "the tree is still there");
	f_leave(t);
	return v;
}

const struct path fault_paths_work[] = {
	{"transcript", transcript},
	{"events", events},
	{"processes", processes},
	{"exec/processes", exec_processes},
	{"ready", ready},
	{"workspace/reset", reset},
	{NULL, NULL},
};
