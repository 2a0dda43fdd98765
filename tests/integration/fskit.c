// SPDX-License-Identifier: Apache-2.0
#include "tests/integration/fskit.h"

#include "proto/filesystem.pb-c.h"
#include "proto/pbjson.h"
#include "proto/pbwire.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define SERVICE "/filesystem.Filesystem/"

// --- the daemon ---

void fs_start(struct fskit *k, bool proto, const char *option, const char *value)
{
	*k = (struct fskit){.proto = proto};
	k->d = d_start("--envd-listen", "127.0.0.1:0", option ? option : "--replay", option ? value : "65536");
	k->c = client_connect_to(k->d->envd_host, k->d->envd_port, 0);
}

void fs_finish(struct fskit *k)
{
	client_close(k->c);
	d_finish(k->d);
}

// --- messages ---

static const struct {
	const char *method;
	const ProtobufCMessageDescriptor *request, *response;
} methods[] = {
#define METHOD(name, x)                                                                               \
	{                                                                                             \
		name, &filesystem__##x##_request__descriptor, &filesystem__##x##_response__descriptor \
	}
	METHOD("Stat", stat),
	METHOD("MakeDir", make_dir),
	METHOD("Move", move),
	METHOD("ListDir", list_dir),
	METHOD("Remove", remove),
	METHOD("WatchDir", watch_dir),
	METHOD("CreateWatcher", create_watcher),
	METHOD("GetWatcherEvents", get_watcher_events),
	METHOD("RemoveWatcher", remove_watcher),
};

static size_t method_of(const char *name)
{
	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
		if (strcmp(methods[i].method, name) == 0)
			return i;
	}
	ck_abort_msg("no method %s", name);
}

const ProtobufCMessageDescriptor *fs_request_of(const char *method)
{
	return methods[method_of(method)].request;
}

const ProtobufCMessageDescriptor *fs_response_of(const char *method)
{
	return methods[method_of(method)].response;
}

// The message that the JSON text says, in the codec of K.
static void encode(const struct fskit *k, const ProtobufCMessageDescriptor *d, const char *text, struct buf *out)
{
	struct err e;
	if (!k->proto) {
		buf_str(out, text);
		return;
	}
	ProtobufCMessage *m = pbjson_read(d, text, strlen(text), &e);
	ck_assert_msg(m, "%s: %s", text, e.msg);
	pbwire_write(out, m);
	pb_free(m);
}

// The other way, in place.
static void decode(const struct fskit *k, const ProtobufCMessageDescriptor *d, struct buf *b)
{
	if (!k->proto)
		return;
	// Not by pbwire_read: that has a server's limits.
	ProtobufCMessage *m = protobuf_c_message_unpack(d, NULL, buf_len(b), buf_data(b));
	ck_assert_msg(m, "no %s", d->name);
	buf_reset(b);
	ck_assert_int_eq(pbjson_write(b, m), 0);
	protobuf_c_message_free_unpacked(m, NULL);
}

// --- unary calls ---

void fs_call_as(struct fskit *k, const char *method, const char *headers, const char *request, struct resp *r)
{
	char target[64];
	struct buf head = {0}, body = {0};
	(void)snprintf(target, sizeof target, SERVICE "%s", method);
	encode(k, fs_request_of(method), request, &body);
	buf_printf(&head, "Content-Type: application/%s\r\nConnect-Protocol-Version: 1\r\nContent-Length: %zu\r\n%s",
		k->proto ? "proto" : "json", buf_len(&body), headers ? headers : "");
	client_request(k->c, "POST", target, buf_cstr(&head), NULL, 0);
	ck_assert(client_send_raw(k->c, buf_data(&body), buf_len(&body)));
	resp_release(r);
	client_response(k->c, r);
	if (!r->keep_alive) {
		client_close(k->c);
		k->c = client_connect_to(k->d->envd_host, k->d->envd_port, 0);
	}
	const char *type = resp_header(r, "Content-Type");
	ck_assert_ptr_nonnull(type);
	if (r->status != 200)
		ck_assert_str_eq(type, "application/json");
	else
		ck_assert_str_eq(type, k->proto ? "application/proto" : "application/json");
	if (r->status == 200)
		decode(k, fs_response_of(method), &r->body);
	buf_release(&head);
	buf_release(&body);
}

void fs_call(struct fskit *k, const char *method, const char *request, struct resp *r)
{
	fs_call_as(k, method, NULL, request, r);
}

json_t *fs_pack(struct fskit *k, const char *method, int status, struct resp *r, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	char *text = client_pack(fmt, ap);
	va_end(ap);
	fs_call(k, method, text, r);
	ck_assert_msg(r->status == status, "%s %s: %d %s", method, text, r->status, buf_cstr(&r->body));
	free(text);
	json_decref(r->json);
	r->json = json_loadb((const char *)buf_data(&r->body), buf_len(&r->body), 0, NULL);
	ck_assert_msg(json_is_object(r->json), "%s: %s", method, buf_cstr(&r->body));
	return r->json;
}

void fs_assert_error(struct resp *r, int status, const char *code)
{
	json_t *o = json_loadb((const char *)buf_data(&r->body), buf_len(&r->body), 0, NULL);
	ck_assert_msg(o && r->status == status, "%d %s", r->status, buf_cstr(&r->body));
	ck_assert_str_eq(j_str(o, "code"), code);
	ck_assert_uint_gt(strlen(j_str(o, "message")), 0);
	ck_assert_uint_eq(json_object_size(o), 2);
	json_decref(o);
}

// --- streams ---

void fs_open(struct fskit *k, struct fs_stream *s, const char *headers, const char *request)
{
	struct buf head = {0}, message = {0}, body = {0};
	*s = (struct fs_stream){.k = k, .c = client_connect_to(k->d->envd_host, k->d->envd_port, 0)};
	encode(k, fs_request_of("WatchDir"), request, &message);
	size_t n = buf_len(&message);
	const unsigned char prefix[5] = {
		0, (unsigned char)(n >> 24), (unsigned char)(n >> 16), (unsigned char)(n >> 8), (unsigned char)n};
	buf_append(&body, prefix, sizeof prefix);
	buf_append(&body, buf_data(&message), n);
	buf_printf(&head, "Content-Type: application/connect+%s\r\nContent-Length: %zu\r\n%s",
		k->proto ? "proto" : "json", buf_len(&body), headers ? headers : "");
	client_request(s->c, "POST", SERVICE "WatchDir", buf_cstr(&head), NULL, 0);
	ck_assert(client_send_raw(s->c, buf_data(&body), buf_len(&body)));
	int64_t end = h_now_ms() + h_scaled(CLIENT_DEADLINE);
	ck_assert_int_eq(client_event(s->c, &s->body, end), HTTP_HEAD);
	ck_assert_int_eq(http_head(s->c->http)->status, 200);
	buf_release(&head);
	buf_release(&message);
	buf_release(&body);
}

// A whole frame from what was read, or false.
static bool take_frame(struct fs_stream *s)
{
	const unsigned char *p = buf_data(&s->body);
	struct buf payload = {0};
	if (buf_len(&s->body) < 5)
		return false;
	size_t n = (size_t)p[1] << 24 | (size_t)p[2] << 16 | (size_t)p[3] << 8 | p[4];
	if (buf_len(&s->body) < 5 + n)
		return false;
	ck_assert_msg(!s->ended, "a frame behind the end");
	ck_assert_uint_eq(p[0] & ~2u, 0);
	s->ended = p[0] & 2;
	buf_append(&payload, p + 5, n);
	if (!s->ended)
		decode(s->k, fs_response_of("WatchDir"), &payload);
	json_decref(s->last);
	s->last = json_loadb((const char *)buf_data(&payload), buf_len(&payload), 0, NULL);
	ck_assert_msg(json_is_object(s->last), "%s", buf_cstr(&payload));
	buf_release(&payload);
	buf_consume(&s->body, 5 + n);
	return true;
}

const json_t *fs_next(struct fs_stream *s, int64_t ms)
{
	int64_t end = h_now_ms() + h_scaled(ms);
	while (!take_frame(s)) {
		if (s->whole)
			return NULL;
		enum http_event ev = client_event(s->c, &s->body, end);
		if (ev == HTTP_MORE)
			return NULL;
		ck_assert_msg(ev == HTTP_BODY || ev == HTTP_END, "the stream was cut");
		s->whole = ev == HTTP_END;
	}
	return s->last;
}

const json_t *fs_await(struct fs_stream *s, const char *type, const char *name)
{
	char word[64];
	(void)snprintf(word, sizeof word, "EVENT_TYPE_%s", type);
	int64_t end = h_now_ms() + h_scaled(5000);
	while (h_now_ms() < end && !s->ended) {
		const json_t *m = fs_next(s, 1000), *f = json_object_get(m, "filesystem");
		if (f && strcmp(j_str(f, "type"), word) == 0 && strcmp(j_str(f, "name"), name) == 0)
			return f;
	}
	ck_abort_msg("no %s of %s", type, name);
}

void fs_assert_end(struct fs_stream *s, const char *code)
{
	int64_t end = h_now_ms() + h_scaled(CLIENT_DEADLINE);
	while (!s->ended && h_now_ms() < end)
		(void)fs_next(s, 1000);
	ck_assert_msg(s->ended, "no end frame");
	ck_assert_str_eq(j_str(j_get(s->last, "error"), "code"), code);
	ck_assert_ptr_null(fs_next(s, 5000));
	ck_assert_msg(s->whole, "the body goes on behind the end frame");
}

void fs_close(struct fs_stream *s)
{
	client_close(s->c);
	buf_release(&s->body);
	json_decref(s->last);
}

// --- files ---

enum { USER_ID = 54321 };
static bool own_home;

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
	ck_assert_msg(fd >= 0, "%s", path);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

bool fs_home(void)
{
	char dir[] = "/tmp/celld-home.XXXXXX", path[64];
	if (geteuid() != 0 || unshare(CLONE_NEWNS) < 0)
		return false;
	ck_assert_int_eq(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
	// A file system of its own, gone with this process.
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(mount("tmpfs", dir, "tmpfs", 0, "size=64m"), 0);
	(void)snprintf(path, sizeof path, "%s/passwd", dir);
	write_file(path, "root:x:0:0::/root:/bin/sh\nuser:x:54321:54321::" FS_HOME ":/bin/sh\n");
	ck_assert_int_eq(mount(path, "/etc/passwd", NULL, MS_BIND, NULL), 0);
	(void)snprintf(path, sizeof path, "%s/group", dir);
	write_file(path, "root:x:0:\nuser:x:54321:\n");
	ck_assert_int_eq(mount(path, "/etc/group", NULL, MS_BIND, NULL), 0);
	ck_assert_int_eq(mount(dir, "/home", NULL, MS_MOVE, NULL), 0);
	ck_assert_int_eq(rmdir(dir), 0);
	own_home = true;
	fs_dir(FS_HOME, 0755);
	return true;
}

static void give(const char *path)
{
	if (own_home)
		ck_assert_int_eq(lchown(path, USER_ID, USER_ID), 0);
}

void fs_put(const char *path, const char *text, unsigned mode)
{
	write_file(path, text);
	ck_assert_int_eq(chmod(path, mode), 0);
	give(path);
}

void fs_dir(const char *path, unsigned mode)
{
	ck_assert_msg(mkdir(path, 0755) == 0, "%s", path);
	ck_assert_int_eq(chmod(path, mode), 0);
	give(path);
}

void fs_tree(const char *path)
{
	static const struct {
		const char *name, *text, *target; // a file, a symlink, else a directory
		unsigned mode;
	} entries[] = {
		{"", NULL, NULL, 0755},
		{"/a.txt", "hello", NULL, 0644},
		{"/empty", "", NULL, 0644},
		{"/d", NULL, NULL, 0755},
		{"/d/x", "x", NULL, 0644},
		{"/d/sub", NULL, NULL, 0755},
		{"/d/sub/y", "y", NULL, 0644},
		{"/B", "b", NULL, 0644},
		{"/.hid", "", NULL, 0644},
		{"/ln", NULL, "a.txt", 0},
		{"/lnd", NULL, "d", 0},
		{"/broken", NULL, "nowhere", 0},
		{"/loop", NULL, "loop", 0},
		{"/suid", "", NULL, 04755}, // to give it away takes that bit again
		{"/mode000", "", NULL, 0},
		{"/sticky", NULL, NULL, 01777},
	};
	char at[600];
	for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
		(void)snprintf(at, sizeof at, "%s%s", path, entries[i].name);
		if (entries[i].target)
			ck_assert_int_eq(symlink(entries[i].target, at), 0);
		else if (entries[i].text)
			fs_put(at, entries[i].text, entries[i].mode);
		else
			fs_dir(at, entries[i].mode);
	}
	(void)snprintf(at, sizeof at, "%s/fifo", path);
	ck_assert_int_eq(mkfifo(at, 0644), 0);
	give(at);
}

void fs_shell(const char *dir, const char *line)
{
	pid_t pid = fork();
	if (pid == 0) {
		if (chdir(dir) < 0)
			_exit(126);
		execl("/bin/sh", "sh", "-c", line, (char *)NULL);
		_exit(127);
	}
	int status = -1;
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(status == 0, "status %d of %s", status, line);
}
