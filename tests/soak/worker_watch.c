// SPDX-License-Identifier: Apache-2.0
// Actions with watches: polled ones of both surfaces, and surface B's stream.
#include "tests/soak/soak.h"

#include "proto/envelope.h"

#include <stdio.h>
#include <string.h>

static bool make_dir(struct worker *w, const char *path)
{
	return want(w, "mkdir", post(w, A, "/files/mkdir", json_pack("{s:s}", "path", path)), 200);
}

static bool write_file(struct worker *w, const char *dir, const char *name)
{
	char path[256];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	return want(w, "write", post(w, A, "/files/write", json_pack("{s:s, s:s}", "path", path, "content", "x")), 200);
}

// True if one of EVENTS is about a name that ends with NAME.
static bool has_name(const json_t *events, const char *name)
{
	size_t i, n = strlen(name);
	const json_t *e;
	json_array_foreach(events, i, e)
	{
		const char *s = json_string_value(json_object_get(e, "name"));
		if (s && strlen(s) >= n && strcmp(s + strlen(s) - n, name) == 0)
			return true;
	}
	return false;
}

struct watcher {
	enum surface s;
	int id;        // of surface A
	char name[64]; // of surface B
};

static bool create(struct worker *w, struct watcher *at, const char *path, bool recursive)
{
	json_t *body = json_pack("{s:s, s:b}", "path", path, "recursive", recursive);
	at->s = any(w);
	int status = post(w, at->s, at->s == A ? "/watch/create" : "/filesystem.Filesystem/CreateWatcher", body);
	if (!want(w, "watch", status, 200))
		return false;
	const char *name = json_string_value(answer(w, at->s, "watcherId"));
	at->id = (int)json_integer_value(answer(w, at->s, "watcher_id"));
	snprintf(at->name, sizeof at->name, "%s", name ? name : "");
	return true;
}

static int poll_events(struct worker *w, const struct watcher *at)
{
	char target[64];
	snprintf(target, sizeof target, "/watch/events?watcher_id=%d", at->id);
	if (at->s == A)
		return get(w, A, target);
	return post(w, B, "/filesystem.Filesystem/GetWatcherEvents", json_pack("{s:s}", "watcherId", at->name));
}

static int remove_watcher(struct worker *w, const struct watcher *at)
{
	if (at->s == A)
		return post(w, A, "/watch/remove", json_pack("{s:i}", "watcher_id", at->id));
	return post(w, B, "/filesystem.Filesystem/RemoveWatcher", json_pack("{s:s}", "watcherId", at->name));
}

static void polled(struct worker *w)
{
	char path[200], sub[220], name[64];
	struct watcher at;
	bool recursive = chance(w, 50), found = false;
	int64_t end = client_now_us() + 5000000 * (int64_t)client_scale();
	snprintf(path, sizeof path, "%s/w%lu", w->dir, w->n);
	snprintf(sub, sizeof sub, "%s/sub", path);
	snprintf(name, sizeof name, "file%u", pick(w, 1000));
	if (!make_dir(w, path) || !create(w, &at, path, recursive))
		return;
	if (recursive)
		make_dir(w, sub);
	write_file(w, recursive ? sub : path, name);
	while (!w->wrong[0] && !found) {
		if (want(w, "events", poll_events(w, &at), 200))
			found = has_name(answer(w, at.s, "events"), name);
		if (!found && client_now_us() > end)
			wrong(w, "no event of %s on %c%s", name, "AB"[at.s], recursive ? ", recursive" : "");
		if (!found)
			pause_us(5000);
	}
	if (chance(w, 30)) // its root first
		want(w, "remove", post(w, A, "/files/remove", json_pack("{s:s}", "path", path)), 200);
	want(w, "end of a watch", remove_watcher(w, &at), 200);
	want(w, "events of an ended watch", poll_events(w, &at), 404);
	post(w, A, "/files/remove", json_pack("{s:s}", "path", path));
}

// --- the stream ---

static int send_watch(struct client *c, const char *path, bool recursive, int ms)
{
	struct buf body = {0}, out = {0};
	size_t mark = envelope_begin(&body);
	put_json(&body, json_pack("{s:s, s:b}", "path", path, "recursive", recursive));
	envelope_end(&body, mark, 0);
	buf_printf(&out,
		"POST /filesystem.Filesystem/WatchDir HTTP/1.1\r\nHost: localhost\r\n"
		"Content-Type: application/connect+json\r\nConnect-Timeout-Ms: %d\r\n",
		ms);
	http_put_length(&out, buf_len(&body));
	http_put_end(&out);
	buf_append(&out, buf_data(&body), buf_len(&body));
	int rc = client_send_bytes(c, &out);
	buf_release(&body);
	buf_release(&out);
	return rc;
}

// What came so far contains TEXT.
static bool came(const struct client *c, const char *text)
{
	return memmem(buf_data(&c->body), buf_len(&c->body), text, strlen(text)) != NULL;
}

static bool read_until(struct worker *w, struct client *c, const char *text)
{
	int rc = 1;
	while (!came(c, text) && rc == 1)
		rc = client_more(c);
	if (came(c, text))
		return true;
	wrong(w, "WatchDir: no %s: %s", text, rc < 0 ? strerror(-rc) : "it ended");
	return false;
}

static void read_to_end(struct worker *w, struct client *c)
{
	int rc;
	while ((rc = client_more(c)) == 1)
		;
	if (rc == 0 && came(c, "deadline_exceeded")) {
		atomic_fetch_add(&w->t->streams_ended, 1);
		return;
	}
	w->cuts++;
	wrong(w, "WatchDir without its end: %s", rc < 0 ? strerror(-rc) : "no end frame");
}

static void streamed(struct worker *w)
{
	char path[200], name[64];
	struct client c;
	bool wait = chance(w, 50);
	snprintf(path, sizeof path, "%s/v%lu", w->dir, w->n);
	snprintf(name, sizeof name, "file%u", pick(w, 1000));
	if (!make_dir(w, path) || !dial(w, B, &c))
		return;
	int rc = send_watch(&c, path, chance(w, 50), wait ? 500 + (int)pick(w, 1000) : 60000);
	int status = answered(w, B, rc == 0 ? client_answer_stream(&c) : rc);
	if (want(w, "WatchDir", status, 200)) {
		atomic_fetch_add(&w->t->streams, 1);
		// The deadline may have passed before the file was written.
		if (read_until(w, &c, wait ? "{" : "start") && write_file(w, path, name) && !wait)
			read_until(w, &c, name);
		if (wait) {
			read_to_end(w, &c);
		} else {
			atomic_fetch_add(&w->t->streams_left, 1);
			atomic_fetch_add(&w->t->disconnects, 1);
		}
	}
	client_close(&c);
	want(w, "remove", post(w, A, "/files/remove", json_pack("{s:s}", "path", path)), 200);
}

static void nowhere(struct worker *w)
{
	char path[200];
	snprintf(path, sizeof path, "%s/none", w->dir);
	want(w, "watch of nothing", post(w, A, "/watch/create", json_pack("{s:s}", "path", path)), 404);
	want(w, "watch of nothing",
		post(w, B, "/filesystem.Filesystem/CreateWatcher", json_pack("{s:s}", "path", path)), 404);
}

const struct action actions_watch[] = {
	{"watch_polled", polled, 5},
	{"watch_streamed", streamed, 5},
	{"watch_nowhere", nowhere, 1},
	{NULL, NULL, 0},
};
