// SPDX-License-Identifier: Apache-2.0
// Files, watches, terminals and background runs.
#include "tests/demo/demo.h"

#include "proto/text.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define POLLS 100

static const char *text_of(const struct client *c, const char *key)
{
	const char *s = json_string_value(json_object_get(c->doc, key));
	return s ? s : "-";
}

static long long number_of(const json_t *o, const char *key)
{
	return json_integer_value(json_object_get(o, key));
}

static void between_polls(void)
{
	nanosleep(&(const struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
}

// Bytes that no text survives, out and back.
static void round_trip(struct demo *d, struct client *c)
{
	static const unsigned char bytes[] = {0, 0xff, '\n', 0x80, '"', 0xc3, 0x28, 0, 'z'};
	struct buf b64 = {0}, back = {0};
	text_b64_encode(&b64, bytes, sizeof bytes);
	const char *text = buf_cstr(&b64);
	int status = client_post(c, "/files/write", "{s:s,s:s,s:s}", "path", "made/here/raw.bin", "content",
		text ? text : "", "encoding", "base64");
	demo_line(d, "a file in, parents made", "200, 9 bytes", "%d, %lld bytes", status, number_of(c->doc, "size"));
	status = client_get(c, "/files/read?path=made/here/raw.bin&encoding=base64");
	const char *got = text_of(c, "content");
	bool same = text_b64_decode(&back, got, strlen(got)) == 0 && buf_len(&back) == sizeof bytes &&
		    memcmp(buf_data(&back), bytes, sizeof bytes) == 0;
	demo_line(d, "the file out again", "200, the same", "%d, %s", status, same ? "the same" : "different");
	status = client_post(c, "/files/stat", "{s:s}", "path", "made/here/raw.bin");
	demo_line(d, "its stat", "200 file 644", "%d %s %s", status, text_of(c, "type"), text_of(c, "mode"));
	status = client_get(c, "/files/read?path=no/such/file");
	demo_line(d, "a file that is missing", "404 ENOENT", "%d %s", status, text_of(c, "errno"));
	buf_release(&b64);
	buf_release(&back);
}

static bool has_event(const json_t *events, const char *tail, int type)
{
	size_t i;
	json_t *e;
	json_array_foreach(events, i, e)
	{
		const char *name = json_string_value(json_object_get(e, "name"));
		const char *at = name ? strstr(name, tail) : NULL;
		if (at && strcmp(at, tail) == 0 && number_of(e, "type") == type)
			return true;
	}
	return false;
}

// The new directory's file is reported too, though nobody watched that directory before.
static void watch(struct demo *d, struct client *c)
{
	char target[64];
	bool seen = false;
	client_post(c, "/watch/create", "{s:s,s:b}", "path", "made", "recursive", 1);
	long long id = number_of(c->doc, "watcher_id");
	client_post(c, "/exec", "{s:s}", "command", "mkdir made/later && echo x >made/later/file");
	snprintf(target, sizeof target, "/watch/events?watcher_id=%lld", id);
	for (int i = 0; i < POLLS && !seen; i++) {
		client_get(c, target);
		seen = has_event(json_object_get(c->doc, "events"), "/made/later/file", 1);
		if (!seen)
			between_polls();
	}
	int status = client_post(c, "/watch/remove", "{s:I}", "watcher_id", (json_int_t)id);
	demo_line(d, "a recursive watch", "create of later/file, removed 200", "%s, removed %d",
		seen ? "create of later/file" : "nothing", status);
}

static void terminal(struct demo *d, struct client *c)
{
	struct client second;
	struct run r = {0};
	char target[64];
	client_post(c, "/pty/create", "{s:[s,s,s],s:i,s:i}", "argv", "sh", "-c", "stty size; test -t 0; exit 4", "rows",
		33, "cols", 101);
	snprintf(target, sizeof target, "/exec/attach?pid=%lld", number_of(c->doc, "pid"));
	if (demo_open(d, &second) == 0 && client_get_stream(&second, target) == 200)
		run_collect(&second, &r, false);
	client_close(&second);
	const char *text = run_text(&r, FRAME_PTY);
	demo_line(d, "a terminal of 33 rows, 101 columns", "33 101, exit 4", "%.*s, exit %d",
		(int)strcspn(text, "\r\n"), text, r.end.code);
	run_release(&r);
}

static void background(struct demo *d, struct client *c)
{
	int status = client_post(
		c, "/exec/background", "{s:s,s:s}", "run_id", "demo", "command", "sleep .1; echo done; exit 6");
	for (int i = 0; i < POLLS; i++) {
		client_get(c, "/exec/background/demo");
		if (strcmp(text_of(c, "status"), "running") != 0)
			break;
		between_polls();
	}
	demo_line(d, "a run in the background", "200, completed, exit 6, done", "%d, %s, exit %lld, %.4s", status,
		text_of(c, "status"), number_of(c->doc, "exit_code"), text_of(c, "stdout"));
}

void demo_files(struct demo *d)
{
	struct client c;
	if (demo_open(d, &c) == 0) {
		round_trip(d, &c);
		watch(d, &c);
		terminal(d, &c);
		background(d, &c);
	} else {
		demo_line(d, "connect", "0", "failed");
	}
	client_close(&c);
}
