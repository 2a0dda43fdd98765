// SPDX-License-Identifier: Apache-2.0
// Surface B's.
#include "tests/integration/faultpaths.h"

#include "proto/filesystem.pb-c.h"
#include "proto/process.pb-c.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PROC(face, name, lower, json, want) \
	f_call(f, face, "process.Process/" name, &process__##lower##_request__descriptor, json, want)
#define FS(face, name, lower, json, want) \
	f_call(f, face, "filesystem.Filesystem/" name, &filesystem__##lower##_request__descriptor, json, want)

// --- processes ---

static char *shell(char text[500], const char *script, const char *more)
{
	(void)snprintf(text, 500, "{\"process\":{\"cmd\":\"sh\",\"args\":[\"-c\",\"%s\"]}%s}", script, more);
	return text;
}

static struct talk *start(struct faulty *f, enum face face, const char *script, const char *more)
{
	char text[500];
	return f_call_open(
		f, face, "process.Process/Start", &process__start_request__descriptor, shell(text, script, more));
}

static enum verdict start_json(struct faulty *f)
{
	f_arm(f);
	enum verdict v = f_end(f, start(f, FACE_STREAM, "echo out; echo err >&2; exit 3", ""));
	if (v == RIGHT && (strcmp(buf_cstr(&f->out), "out\n") != 0 || strcmp(buf_cstr(&f->err), "err\n") != 0 ||
				  f_number(&f->r.body, "exitCode") != 3))
		return f_wrong(f, "%s", buf_cstr(&f->out));
	return v;
}

// What the enveloped events in BODY carry of stdout, however it was cut: the first bytes of it, a string.
static void stdout_of(const struct buf *body, char *out, size_t n)
{
	const unsigned char *p = buf_data(body), *end = p + buf_len(body);
	size_t len = 0;
	while (end - p >= 5) {
		size_t size = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
		if (p[0] != 0 || size > (size_t)(end - p) - 5)
			break;
		Process__StartResponse *msg = process__start_response__unpack(NULL, size, p + 5);
		const Process__ProcessEvent *ev = msg ? msg->event : NULL;
		if (ev && ev->event_case == PROCESS__PROCESS_EVENT__EVENT_DATA &&
			ev->data->output_case == PROCESS__PROCESS_EVENT__DATA_EVENT__OUTPUT_STDOUT) {
			size_t some = ev->data->stdout.len < n - 1 - len ? ev->data->stdout.len : n - 1 - len;
			memcpy(out + len, ev->data->stdout.data, some);
			len += some;
		}
		process__start_response__free_unpacked(msg, NULL);
		p += 5 + size;
	}
	out[len] = '\0';
}

static enum verdict start_proto(struct faulty *f)
{
	char out[16];
	f_arm(f);
	enum verdict v = f_end(f, start(f, FACE_PSTREAM, "echo out; exit 3", ""));
	stdout_of(&f->r.body, out, sizeof out);
	if (v == RIGHT &&
		(strcmp(out, "out\n") != 0 || !memmem(buf_data(&f->r.body), buf_len(&f->r.body), "exit status 3", 13)))
		return f_wrong(f, "no output or end in %zu bytes", buf_len(&f->r.body));
	return v;
}

// After a start in JSON; false if it did not begin.
static bool begun(struct talk *t)
{
	return f_until(t, "\"pid\":") && f_until(t, "}");
}

static enum verdict both(struct faulty *f, struct talk *t, enum verdict v)
{
	if (v == RIGHT)
		return f_end(f, t);
	f_leave(t);
	return v;
}

static enum verdict send_input(struct faulty *f)
{
	char json[200];
	f_arm(f);
	struct talk *t = start(f, FACE_STREAM, "cat", ",\"stdin\":true");
	if (!begun(t))
		return f_end(f, t);
	int pid = (int)f_number(&t->body, "pid");
	(void)snprintf(json, sizeof json, "{\"process\":{\"pid\":%d},\"input\":{\"stdin\":\"aGVsbG8=\"}}", pid);
	enum verdict v = PROC(FACE_RPC, "SendInput", send_input, json, NULL);
	(void)snprintf(json, sizeof json, "{\"process\":{\"pid\":%d}}", pid);
	if (v == RIGHT)
		v = PROC(FACE_PROTO, "CloseStdin", close_stdin, json, NULL);
	v = both(f, t, v);
	return v == RIGHT && strcmp(buf_cstr(&f->out), "hello") != 0 ? f_wrong(f, "%s", buf_cstr(&f->out)) : v;
}

static void envelope(struct buf *out, const char *text)
{
	const unsigned char prefix[] = {0, 0, 0, 0, (unsigned char)strlen(text)};
	buf_append(out, prefix, sizeof prefix);
	buf_str(out, text);
}

static enum verdict stream_input(struct faulty *f)
{
	struct buf body = {0};
	char json[200];
	struct talk *t = start(f, FACE_STREAM, "cat", ",\"stdin\":true");
	if (!begun(t))
		return f_leave(t), f_wrong(f, "nothing to write to");
	int pid = (int)f_number(&t->body, "pid");
	(void)snprintf(json, sizeof json, "{\"start\":{\"process\":{\"pid\":%d}}}", pid);
	envelope(&body, json);
	envelope(&body, "{\"data\":{\"input\":{\"stdin\":\"aGVs\"}}}");
	envelope(&body, "{\"keepalive\":{}}");
	envelope(&body, "{\"data\":{\"input\":{\"stdin\":\"bG8=\"}}}");
	f_arm(f);
	enum verdict v = f_ask(f, FACE_STREAM, "POST", "/process.Process/StreamInput",
		"Connect-Protocol-Version: 1\r\n", buf_data(&body), buf_len(&body));
	buf_release(&body);
	(void)snprintf(json, sizeof json, "{\"process\":{\"pid\":%d}}", pid);
	if (v == RIGHT)
		v = PROC(FACE_RPC, "CloseStdin", close_stdin, json, NULL);
	v = both(f, t, v);
	return v == RIGHT && strcmp(buf_cstr(&f->out), "hello") != 0 ? f_wrong(f, "%s", buf_cstr(&f->out)) : v;
}

static enum verdict update(struct faulty *f)
{
	char json[200];
	struct talk *t = start(f, FACE_STREAM, "read x; stty size", ",\"pty\":{\"size\":{\"rows\":30,\"cols\":90}}");
	if (!begun(t))
		return f_leave(t), f_wrong(f, "no terminal");
	int pid = (int)f_number(&t->body, "pid");
	(void)snprintf(
		json, sizeof json, "{\"process\":{\"pid\":%d},\"pty\":{\"size\":{\"rows\":43,\"cols\":132}}}", pid);
	f_arm(f);
	enum verdict v = PROC(FACE_RPC, "Update", update, json, NULL);
	(void)snprintf(json, sizeof json, "{\"process\":{\"pid\":%d},\"input\":{\"pty\":\"Cg==\"}}", pid);
	if (v == RIGHT)
		v = PROC(FACE_PROTO, "SendInput", send_input, json, NULL);
	v = both(f, t, v);
	return v == RIGHT && !strstr(buf_cstr(&f->out), "43 132\r\n") ? f_wrong(f, "%s", buf_cstr(&f->out)) : v;
}

static enum verdict send_signal(struct faulty *f)
{
	char json[200];
	f_arm(f);
	struct talk *t = start(f, FACE_STREAM, "sleep 60", "");
	if (!begun(t))
		return f_end(f, t);
	(void)snprintf(json, sizeof json, "{\"process\":{\"pid\":%lld},\"signal\":\"SIGNAL_SIGKILL\"}",
		f_number(&t->body, "pid"));
	enum verdict v = both(f, t, PROC(FACE_RPC, "SendSignal", send_signal, json, NULL));
	if (v == RIGHT && !memmem(buf_data(&f->r.body), buf_len(&f->r.body), "signal: killed", 14))
		return f_wrong(f, "it was not killed");
	return v;
}

static enum verdict connect_json(struct faulty *f)
{
	char json[200];
	struct talk *t = start(f, FACE_STREAM, "read x; echo $x", ",\"stdin\":true,\"tag\":\"c\"");
	if (!begun(t))
		return f_leave(t), f_wrong(f, "nothing to connect to");
	long long pid = f_number(&t->body, "pid");
	(void)snprintf(json, sizeof json, "{\"process\":{\"pid\":%lld}}", pid);
	f_arm(f);
	struct talk *c =
		f_call_open(f, FACE_STREAM, "process.Process/Connect", &process__connect_request__descriptor, json);
	if (!begun(c)) {
		f_leave(t);
		return f_end(f, c);
	}
	(void)snprintf(json, sizeof json, "{\"process\":{\"pid\":%lld},\"input\":{\"stdin\":\"eAo=\"}}", pid);
	enum verdict v = both(f, c, PROC(FACE_RPC, "SendInput", send_input, json, NULL));
	f_leave(t);
	return v == RIGHT && strcmp(buf_cstr(&f->out), "x\n") != 0 ? f_wrong(f, "%s", buf_cstr(&f->out)) : v;
}

static enum verdict list(struct faulty *f)
{
	struct talk *t = start(f, FACE_STREAM, "sleep 60", ",\"tag\":\"listed\"");
	if (!begun(t))
		return f_leave(t), f_wrong(f, "nothing to list");
	f_arm(f);
	enum verdict v = PROC(FACE_RPC, "List", list, "{}", "\"listed\"");
	f_disarm(f);
	f_leave(t);
	return v;
}

static enum verdict start_pty(struct faulty *f)
{
	f_arm(f);
	enum verdict v = f_end(f, start(f, FACE_STREAM, "echo out", ",\"pty\":{\"size\":{\"rows\":30,\"cols\":90}}"));
	return v == RIGHT && strcmp(buf_cstr(&f->out), "out\r\n") != 0 ? f_wrong(f, "%s", buf_cstr(&f->out)) : v;
}

const struct path fault_paths_start[] = {
	{"Start JSON", start_json},
	{"Start proto", start_proto},
	{"Start pty", start_pty},
	{"Connect", connect_json},
	{"SendInput", send_input},
	{"StreamInput", stream_input},
	{"Update", update},
	{"SendSignal", send_signal},
	{"List", list},
	{NULL, NULL},
};

// --- the file system ---

// A request about paths of the workspace, '@' in TEMPLATE.
static const char *json_of(struct faulty *f, char json[1000], const char *template)
{
	f_fill(json, 1000, template, f->d->workspace);
	return json;
}

static void put_tree(struct faulty *f)
{
	char line[500];
	(void)snprintf(
		line, sizeof line, "cd '%s' && mkdir -p t/a/b t/c && touch t/1 t/a/2 t/a/b/3 t/c/4", f->d->workspace);
	ck_assert_int_eq(system(line), 0);
}

static enum verdict list_dir(struct faulty *f)
{
	char json[1000];
	put_tree(f);
	f_arm(f);
	enum verdict v =
		FS(FACE_RPC, "ListDir", list_dir, json_of(f, json, "{\"path\":\"@/t\",\"depth\":3}"), "/t/a/b/3\"");
	if (v == RIGHT && (!strstr(buf_cstr(&f->r.body), "/t/c/4\"") || !strstr(buf_cstr(&f->r.body), "/t/1\"")))
		return f_wrong(f, "some are missing: %s", buf_cstr(&f->r.body));
	return v;
}

static enum verdict list_dir_proto(struct faulty *f)
{
	char json[1000];
	put_tree(f);
	f_arm(f);
	return FS(FACE_PROTO, "ListDir", list_dir, json_of(f, json, "{\"path\":\"@/t\",\"depth\":3}"), "/t/a/b/3");
}

static enum verdict stat_entry(struct faulty *f)
{
	char json[1000];
	f_put(f, "file", "hello", 5);
	f_arm(f);
	return FS(FACE_RPC, "Stat", stat, json_of(f, json, "{\"path\":\"@/file\"}"), "\"size\":\"5\"");
}

static enum verdict make_dir(struct faulty *f)
{
	char json[1000];
	f_arm(f);
	enum verdict v = FS(FACE_PROTO, "MakeDir", make_dir, json_of(f, json, "{\"path\":\"@/a/b/c\"}"), "/a/b/c");
	return v == RIGHT && access(f_path(f, "a/b/c"), F_OK) < 0 ? f_wrong(f, "it is not there") : v;
}

static enum verdict old_or_new(struct faulty *f, enum verdict v, const char *old, const char *new, size_t n)
{
	bool is_new = v != WRONG && f_file(f, "file", new, n) == RIGHT;
	if (v == RIGHT)
		return is_new ? RIGHT : WRONG;
	if (v == WRONG || is_new || f_file(f, "file", old, old ? strlen(old) : 0) == RIGHT)
		return v;
	return WRONG;
}

static enum verdict move_entry(struct faulty *f)
{
	char json[1000];
	f_put(f, "from", "new", 3);
	f_arm(f);
	enum verdict v = FS(FACE_RPC, "Move", move,
		json_of(f, json, "{\"source\":\"@/from\",\"destination\":\"@/file\"}"), "\"entry\"");
	// The move can have been made when its answer could not.
	bool there = f_file(f, "file", "new", 3) == RIGHT, gone = access(f_path(f, "from"), F_OK) < 0;
	return there == gone && (v != RIGHT || there) ? v : f_wrong(f, "neither moved nor not");
}

static enum verdict remove_entry(struct faulty *f)
{
	char json[1000];
	put_tree(f);
	f_arm(f);
	enum verdict v = FS(FACE_RPC, "Remove", remove, json_of(f, json, "{\"path\":\"@/t\"}"), NULL);
	return v == RIGHT && access(f_path(f, "t"), F_OK) == 0 ? f_wrong(f, "it is still there") : v;
}

// It lives until the client goes; a refusal ends it.
static enum verdict watch_dir(struct faulty *f)
{
	char json[1000];
	f_arm(f);
	struct talk *t = f_call_open(f, FACE_STREAM, "filesystem.Filesystem/WatchDir",
		&filesystem__watch_dir_request__descriptor, json_of(f, json, "{\"path\":\"@\",\"recursive\":true}"));
	if (f_until(t, "\"start\":"))
		f_put(f, "seen", "x", 1);
	if (!f_until(t, "\"seen\""))
		return f_end(f, t);
	f_leave(t);
	return RIGHT;
}

static enum verdict poll_watcher(struct faulty *f)
{
	static const char key[] = "\"watcherId\":\"";
	char json[1000];
	f_arm(f);
	enum verdict v = FS(FACE_RPC, "CreateWatcher", create_watcher,
		json_of(f, json, "{\"path\":\"@\",\"recursive\":true}"), key);
	if (v != RIGHT)
		return v;
	const char *id = strstr(buf_cstr(&f->r.body), key) + sizeof key - 1;
	(void)snprintf(json, sizeof json, "{\"watcherId\":\"%.*s\"}", (int)strcspn(id, "\""), id);
	f_put(f, "seen", "x", 1);
	for (int64_t end = h_now_ms() + h_scaled(5000);; h_tick()) {
		v = FS(FACE_RPC, "GetWatcherEvents", get_watcher_events, json, NULL);
		if (v != RIGHT || strstr(buf_cstr(&f->r.body), "\"seen\""))
			break;
		if (h_now_ms() > end)
			return f_wrong(f, "no event: %s", buf_cstr(&f->r.body));
	}
	return v == RIGHT ? FS(FACE_PROTO, "RemoveWatcher", remove_watcher, json, NULL) : v;
}

const struct path fault_paths_tree[] = {
	{"ListDir", list_dir},
	{"ListDir proto", list_dir_proto},
	{"Stat", stat_entry},
	{"MakeDir", make_dir},
	{"Move", move_entry},
	{"Remove", remove_entry},
	{"WatchDir", watch_dir},
	{"CreateWatcher", poll_watcher},
	{NULL, NULL},
};

// --- /files and the others ---

static const char *files(struct faulty *f, char target[600])
{
	(void)snprintf(target, 600, "/files?path=%s/file", f->d->workspace);
	return target;
}

static enum verdict get_file(struct faulty *f)
{
	static char text[70001];
	char target[600];
	memset(text, 'z', sizeof text - 1);
	f_put(f, "file", text, sizeof text - 1);
	f_arm(f);
	enum verdict v = f_ask(f, FACE_REST, "GET", files(f, target), NULL, NULL, 0);
	if (v == RIGHT && (f->r.status != 200 || buf_len(&f->r.body) != sizeof text - 1))
		return f_wrong(f, "%d with %zu bytes", f->r.status, buf_len(&f->r.body));
	return v;
}

static enum verdict get_gzip(struct faulty *f)
{
	char target[600];
	f_put(f, "file", "hello", 5);
	f_arm(f);
	return f_ask(f, FACE_REST, "GET", files(f, target), "Accept-Encoding: gzip\r\n", NULL, 0);
}

static enum verdict post_file(
	struct faulty *f, const char *type, const void *body, size_t n, const char *new, size_t size)
{
	char target[600];
	f_put(f, "file", "older", 5);
	f_arm(f);
	enum verdict v = f_ask(f, FACE_REST, "POST", files(f, target), type, body, n);
	return old_or_new(f, v, "older", new, size);
}

static enum verdict post_raw(struct faulty *f)
{
	return post_file(f, "Content-Type: application/octet-stream\r\n", "new", 3, "new", 3);
}

static enum verdict post_big(struct faulty *f)
{
	size_t n = f->coming && f->coming->room ? 20000 : (size_t)5 * 1024 * 1024 / 2;
	char *body = malloc(n);
	ck_assert_ptr_nonnull(body);
	memset(body, 'b', n);
	enum verdict v = post_file(f, "Content-Type: application/octet-stream\r\n", body, n, body, n);
	free(body);
	return v;
}

static enum verdict post_multipart(struct faulty *f)
{
	static const char body[] =
		"--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"file\"\r\n\r\nnew\r\n--b--\r\n";
	return post_file(f, "Content-Type: multipart/form-data; boundary=b\r\n", body, sizeof body - 1, "new", 3);
}

static enum verdict compose(struct faulty *f)
{
	char json[1000];
	const char *w = f->d->workspace;
	f_put(f, "p1", "ne", 2);
	f_put(f, "p2", "w", 1);
	f_put(f, "file", "older", 5);
	(void)snprintf(
		json, sizeof json, "{\"source_paths\":[\"%s/p1\",\"%s/p2\"],\"destination\":\"%s/file\"}", w, w, w);
	f_arm(f);
	enum verdict v =
		f_ask(f, FACE_REST, "POST", "/files/compose", "Content-Type: application/json\r\n", json, strlen(json));
	return old_or_new(f, v, "older", "new", 3);
}

static enum verdict init(struct faulty *f)
{
	static const char body[] = "{\"envVars\":{\"A\":\"1\",\"B\":\"2\"},\"defaultUser\":\"root\"}";
	f_arm(f);
	return f_ask(f, FACE_REST, "POST", "/init", "Content-Type: application/json\r\n", body, sizeof body - 1);
}

static enum verdict envs(struct faulty *f)
{
	f_arm(f);
	return f_ask(f, FACE_REST, "GET", "/envs", NULL, NULL, 0);
}

static enum verdict metrics(struct faulty *f)
{
	f_arm(f);
	return f_ask(f, FACE_REST, "GET", "/metrics", NULL, NULL, 0);
}

const struct path fault_paths_upload[] = {
	{"GET /files", get_file},
	{"GET /files gzip", get_gzip},
	{"POST /files", post_raw},
	{"POST /files big", post_big},
	{"POST /files form", post_multipart},
	{"/files/compose", compose},
	{"/init", init},
	{"/envs", envs},
	{"/metrics", metrics},
	{NULL, NULL},
};
